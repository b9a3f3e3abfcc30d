"""Texts, each given as its parts -> token ids; what texts have in common is tokenized once.

Arrives: parts of texts (shots, a question, a choice).  Leaves: the token ids of each text as a
whole.  It deliberately does not know prompts or spans.

A text is cut between its parts, and the sections between these cuts at ends of lines, where the
tokenizer cuts too: the tokens on both sides are then those of the sides alone, and a piece that
stands in a thousand texts is tokenized once.  White space at the end of a part may belong to the
next one.  Whether it cuts is asked of the tokenizer itself, for the few characters on both
sides and for fewer of them: normalizer and pre-tokenizer must make of both together what they make
of each alone.  Where a word goes on out of sight, and of tokenizers that make no words, no token of
the vocabulary may hold both characters at the border.

    parts      "Q: two?\\nA: 2\\n\\n" + "Q: one?\\nA: " + "1"
    sections   |Q: two?\\nA: 2\\n\\n|Q: one?\\nA:| 1|
    pieces     |Q: two?\\n|A: 2\\n\\n|Q: one?\\nA:| 1|

A text without such places is tokenized whole.  Some others are tokenized whole as well, and a
difference ends the run.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from itertools import chain, filterfalse, pairwise
from threading import Lock

import numpy as np
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from miron_jax.errors import InputError, SelfCheckFailed
from miron_jax.tokens.ragged import end_to_end, offsets_of
from miron_jax.tokens.tokenizers import Tokenizer, encode_each, encoder, special_tokens

# A text: its parts, end to end.
Text = str | tuple[str, ...]

SEEN = 4  # characters on each side of a cut that decide it
KEPT_BYTES = 250_000_000  # of pieces and sections, about; then all are forgotten
LEAST_CHARS = 64  # of a piece that ends with a line, but for the line before a section's last
CHECKED = 256  # one text in so many is tokenized whole as well
_LINE = re.compile(r"\n(?=\S)")
# the last character of a part -> what may go to the next part, the likelier first
_MOVES = {" ": (" ", ""), "\n": ("", "\n")}

# characters that come to a part from the one before it, the part, how many of it go to the next
_Section = tuple[str, str, int]


class PieceEncoder:
    """Tokenizes texts; remembers pieces, from call to call, of one thread at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._encode = encoder(tokenizer)
        self._cuts = getattr(tokenizer, "is_fast", False)
        if self._cuts:
            is_cut = _cuts_of(tokenizer)
            self._cut_between = lru_cache(maxsize=1 << 17)(partial(_cut_between, is_cut))
        self._num_texts = 0
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        self._ids = dict[str, np.ndarray]()  # of a piece
        self._ids_of_section = dict[_Section, np.ndarray]()
        self._num_bytes = 0

    def __call__(self, texts: Sequence[Text], special: bool = False) -> list[np.ndarray]:
        """Token ids of each text, int32.  `special`: with the tokens that the tokenizer puts around
        a text.  Raises SelfCheckFailed."""
        if not self._cuts or (special and self._around is None):
            return encode_each(self._encode, ["".join(text) for text in texts], special)
        with self._lock:
            return self._of_pieces(texts, special)

    def _of_pieces(self, texts: Sequence[Text], special: bool) -> list[np.ndarray]:
        if self._num_bytes > KEPT_BYTES:
            self._forget()
        of_text = [*self._sections(texts)]
        sections = [*chain(*of_text)]
        self._tokenize(dict.fromkeys(sections))
        ids, offsets = end_to_end([*map(self._ids_of_section.__getitem__, sections)])
        ends = offsets[offsets_of([*map(len, of_text)])].tolist()
        each = [ids[start:end] for start, end in pairwise(ends)]
        if special and self._around is not None:
            before, after = self._around
            each = [np.concatenate([before, ids, after]) for ids in each]
        self._check(texts, each, special)
        return each

    @cached_property
    def _around(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The tokens that stand around every text; None: they hang on the text."""
        try:
            before, after, _ = special_tokens(self._tokenizer)
        except InputError:
            return None
        if [*before, *after] != self._encode([""], True)[0]:
            return None
        return np.asarray(before, np.int32), np.asarray(after, np.int32)

    def _sections(self, texts: Sequence[Text]) -> Iterator[list[_Section]]:
        """The sections of each text; those of leading parts that it shares with the text before are
        taken over.  A part with too few characters to decide a cut behind it is joined to the next
        one."""
        last: tuple[str, ...] = ()
        sections = list[_Section]()
        states = [(0, "", "")]  # before each part: sections so far, what has come, what follows
        for text in texts:
            parts = (text,) if isinstance(text, str) else text
            # a text may be cut otherwise before its last part
            start = _num_equal(parts[:-1], last[:-1])
            del states[start + 1 :]
            num_sections, gained, before = states[-1]
            sections = sections[:num_sections]
            for i, part in enumerate(parts[start:], start + 1):
                moved = None
                if len(before) > SEEN and part:
                    ends = len(part) <= SEEN and i == len(parts)
                    moved = self._cut_between(before[-SEEN - 1 :], part[:SEEN], ends)
                if moved is None:
                    before += part
                else:
                    sections.append((gained, before, len(moved)))
                    gained = moved
                    before = part
                states.append((len(sections), gained, before))
            sections.append((gained, before, 0))
            yield sections
            last = parts

    def _tokenize(self, sections: Iterable[_Section]) -> None:
        """Tokenize the sections that are new."""
        new = [section for section in sections if section not in self._ids_of_section]
        pieces = [*map(self._split, new)]
        unknown = [*filterfalse(self._ids.__contains__, dict.fromkeys(chain(*pieces)))]
        encoded = encode_each(self._encode, unknown)  # may raise, with nothing remembered
        self._ids |= zip(unknown, encoded, strict=True)
        for section, of_section in zip(new, pieces, strict=True):
            ids = [*map(self._ids.__getitem__, of_section)]
            self._ids_of_section[section] = ids[0] if len(ids) == 1 else np.concatenate(ids)
        num_chars = sum(map(len, unknown)) + sum(len(part) for _, part, _ in new)
        self._num_bytes += 3 * num_chars + 300 * (len(unknown) + len(new))

    def _split(self, section: _Section) -> list[str]:
        """The pieces of a section."""
        gained, part, lost = section
        text = gained + part[: len(part) - lost]
        cuts = [0]
        ends = [match.end() for match in _LINE.finditer(text, SEEN + 1, len(text) - SEEN + 1)]
        for end in ends:
            if end - cuts[-1] >= LEAST_CHARS or end == ends[-1]:
                moved = self._cut_between(text[end - SEEN - 1 : end], text[end : end + SEEN], False)
                if moved is not None:
                    cuts.append(end - len(moved))
        return [text[a:b] for a, b in pairwise([*cuts, len(text)])]

    def _check(self, texts: Sequence[Text], each: Sequence[np.ndarray], special: bool) -> None:
        first = -self._num_texts % CHECKED
        self._num_texts += len(texts)
        checked = range(first, len(texts), CHECKED)
        whole = encode_each(self._encode, ["".join(texts[i]) for i in checked], special)
        for i, ids in zip(checked, whole, strict=True):
            if not np.array_equal(ids, each[i]):
                raise SelfCheckFailed(
                    f"the self-check of tokens: the text {''.join(texts[i])[-200:]!r} has other "
                    "tokens in pieces than as a whole: please report the tokenizer"
                )


@lru_cache(maxsize=4)
def piece_encoder(tokenizer: Tokenizer) -> PieceEncoder:
    """The same for the same tokenizer, so that tasks share their pieces."""
    return PieceEncoder(tokenizer)


def _cuts_of(tokenizer: Tokenizer) -> Callable[[str, str], bool]:
    """A function that says of the last characters of a text and the first ones of another whether
    the tokenizer cuts between them."""
    backend = tokenizer.backend_tokenizer
    normalizer = backend.normalizer
    pre_tokenizer = backend.pre_tokenizer
    is_one_token = _neighbours_in_tokens(backend)
    model = backend.model
    is_bpe = isinstance(model, BPE)
    merges_stay = is_bpe and not (model.dropout or getattr(model, "ignore_merges", False))
    if is_bpe and (model.continuing_subword_prefix or model.end_of_word_suffix):
        merges_stay = False
    normalized = str if normalizer is None else normalizer.normalize_str
    added = [*backend.get_added_tokens_decoder().values()]
    if backend.encode_special_tokens:  # their names are text
        added = [token for token in added if not token.special]
    as_written = {token.content: token for token in added if not token.normalized}
    as_normalized = {normalized(token.content): token for token in added if token.normalized}
    contents = [*as_written, *as_normalized]
    inner = {pair for content in contents for pair in pairwise(content)}
    prefixes = {content[:n] for content in contents for n in range(1, len(content))}
    suffixes = {content[n:] for content in contents for n in range(1, len(content))}
    split_written = _split_at(as_written)
    split_normalized = _split_at(as_normalized)
    if any(token.single_word for token in added):
        return lambda left, right: False

    @lru_cache(maxsize=1 << 16)
    def words(text: str) -> list[str]:
        """What no token crosses, as the tokenizer finds it; added tokens are marked."""
        cut = list[str]()
        for i, span in enumerate(split_written(text)):
            if i % 2:
                cut.append(f"\0{span}")
                continue
            for k, between in enumerate(split_normalized(normalized(span))):
                if k % 2:
                    cut.append(f"\0{between}")
                elif pre_tokenizer is None:
                    cut += filter(None, [between])
                else:
                    cut += [word for word, _ in pre_tokenizer.pre_tokenize_str(between)]
        return cut

    has_words = len(words("a b.C\n1-\t2")) > 1  # else it cuts at added tokens alone
    has_prefix = words("a") != [normalized("a")]

    def meets(left: str, right: str) -> bool:
        before = words(left)
        after = words(right)
        both = words(left + right)
        if has_prefix and "\0" in "".join(both):  # it puts none behind an added token
            return False
        if has_words or not (before and after) or "\0" in before[-1][0] + after[0][0]:
            return both == before + after
        in_a_word = both == [*before[:-1], before[-1] + after[0], *after[1:]]
        return in_a_word and merges_stay and not is_one_token(before[-1][-1], after[0][0])

    def may_grow(left: str, right: str) -> bool:
        """Whether a word that goes on out of sight may take in the one across, in one token."""
        before = words(left)
        after = words(right)
        if not (has_words and is_bpe) or (len(before) > 1 and (after[1:] or len(right) < SEEN)):
            return False
        return is_one_token("".join(before)[-1:], "".join(after)[:1])

    @lru_cache(maxsize=1 << 16)
    def meets_nearer(left: str, right: str) -> bool:
        # white space is cut by what stands behind it
        least = min(len(right) - len(right.lstrip()) + 1, len(right))
        near = right[: max(least, 2)]
        return all(meets(left[-n:], near) for n in range(1, len(left) + 1)) and all(
            meets(left[-2:], right[:n]) for n in range(least, len(right))
        )

    def is_cut(left: str, right: str) -> bool:
        lengths = [*map(len, map(normalized, (left, right)))]
        if left.isspace() or lengths != [len(left), len(right)]:
            return False
        # an added token may stand across, or end and begin out of sight
        for before, behind in {(left, right), (normalized(left), normalized(right))}:
            if (before[-1], behind[0]) in inner:
                return False
            if any(before[:n] in suffixes for n in range(1, len(before) + 1)):
                return False
            if any(behind[-n:] in prefixes for n in range(1, len(behind) + 1)):
                return False
        return meets_nearer(left[1:], right) and meets(left, right) and not may_grow(left, right)

    return is_cut


def _split_at(added: dict[str, AddedToken]) -> Callable[[str], list[str]]:
    """A function that splits a text of what is seen at added tokens; every second item is one, with
    the white space that it takes in."""
    patterns = list[str]()
    for content in sorted(added, key=len, reverse=True):
        if not 0 < len(content) <= 2 * SEEN:
            continue
        before = r"\s*" * added[content].lstrip
        behind = r"\s*" * added[content].rstrip
        patterns.append(f"{before}{re.escape(content)}{behind}")
    return re.compile(f"({'|'.join(patterns)})").split if patterns else lambda text: [text]


def _num_equal(some: Sequence[str], others: Sequence[str]) -> int:
    """Number of leading items that are equal."""
    num_equal = 0
    for one, other in zip(some, others, strict=False):
        if one != other:
            break
        num_equal += 1
    return num_equal


def _cut_between(
    is_cut: Callable[[str, str], bool], left: str, right: str, ends: bool
) -> str | None:
    """What goes from the end of a text to the next one, so that the tokenizer cuts between them:
    nothing, or its last white space; None: it cuts at neither place.  `left`: the last SEEN + 1
    characters of a text; `ends`: nothing stands behind `right`."""
    for moved in _MOVES.get(left[-1], ("",)):
        before = left[: len(left) - len(moved)]
        behind = moved + right
        is_all = ends and len(behind) <= SEEN
        is_seen = is_all or (len(behind) >= SEEN and not behind[:SEEN].isspace())
        if is_seen and len(before) >= SEEN and is_cut(before[-SEEN:], behind[:SEEN]):
            return moved
    return None


def _neighbours_in_tokens(backend: Backend) -> Callable[[str, str], bool]:
    """A function that says of two characters of a word whether a token may hold both.

    Merges of a BPE never cross two characters that stand side by side in no token.  Of characters
    that are no tokens themselves it is not known.
    """

    @lru_cache(maxsize=1)
    def tokens() -> str:
        return "\0".join(backend.get_vocab(with_added_tokens=False))

    @lru_cache(maxsize=1 << 16)
    def is_one_token(left: str, right: str) -> bool:
        is_unknown = None in map(backend.model.token_to_id, (left, right))
        return is_unknown or left + right in tokens()

    return is_one_token
