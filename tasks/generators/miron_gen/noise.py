"""Noise: one to three typos of one kind in the prefix of a clean item; the target stays.

Arrives: draws, a clean `Draft`, one language's rules and the pool of words that decide an answer.
Leaves: `Noisy`, or None if these draws give no prefix whose typos a reader could undo.  It
deliberately does not know the item's category.

All typos are picked in the clean text, apart from one another, and applied at once, so none undoes
another.  Frozen words (words with digits, single letters, capitals only, numbers, negations) never
change, nor does the text between two of them: "2,5" and "twenty five" would be other numbers.  The
last word of the prefix and its join with the target stay too.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from rapidfuzz.distance import OSA

from miron_jax.errors import InputError
from miron_jax.files.readers import shown
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.miron_gen.draft import Draft, package_folder, read_file, texts_of

# "yo": ё written as е; "tsya": -тся for -ться and the other way round
Operator = Literal[
    "swap", "drop", "double", "keyboard", "homoglyph", "case", "extra_space", "missing_space",
    "punctuation", "yo", "tsya",
]  # fmt: skip

MAX_EDITS = 3
# few prefixes allow two of these: one edit only
_RARE: frozenset[Operator] = frozenset({"yo", "tsya"})
_MIN_LETTERS = 3  # of a word whose letters may change: "of" too easily becomes "or" or "if"
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


@dataclass(frozen=True, slots=True)
class NoiseRules:
    """The possible typos of one language, and the words that must not have any."""

    language: str
    operators: tuple[Operator, ...]
    # rows of letters, each row half a key to the right of the one above
    keyboard: tuple[str, str, str]
    homoglyphs: Mapping[str, str]  # letter -> the letter of the other script that looks the same
    frozen: frozenset[str]  # negations and words of number or rank, lower case


class Turn(NamedTuple):
    operator: Operator
    num_edits: int


class Noisy(NamedTuple):
    prefix: str
    operator: Operator
    num_edits: int
    clean: Draft


class Edit(NamedTuple):
    """clean[start:end] becomes text; an insertion has start == end."""

    start: int
    end: int
    text: str


class _WordPlace(NamedTuple):
    start: int
    end: int
    is_frozen: bool


class _PoolWord(NamedTuple):
    """An occurrence of a pool word in the clean prefix."""

    start: int
    end: int
    form: str


def turn_of(index: int, rules: NoiseRules) -> Turn:
    """The operator and number of edits of item `index`: operators take turns, then numbers of
    edits, both evenly."""
    operator = rules.operators[index % len(rules.operators)]
    if operator in _RARE:
        return Turn(operator, 1)
    return Turn(operator, 1 + index // len(rules.operators) % MAX_EDITS)


def perturb(
    draw: Stream, clean: Draft, rules: NoiseRules, pool: Sequence[str], turn: Turn | None = None
) -> Noisy | None:
    """The clean item with the turn's typos; None draws a turn.  Returns None if they would change
    what the item means."""
    turn = turn or turn_of(draw.below(MAX_EDITS * len(rules.operators)), rules)
    entity = dict(clean.meta).get("entity", "")
    assert entity in clean.prefix, (clean, "an entity is named as the prefix has it")
    forms = tuple(filter(None, dict.fromkeys((entity, *pool))))
    keys = _keys(clean.prefix, forms)
    locked = _locked(clean.prefix, rules, keys if turn.num_edits > 1 else ())
    possible = [
        edit for edit in _edits(clean.prefix, turn.operator, rules) if not _touches(edit, locked)
    ]
    edits = _sample_apart(draw, possible, turn.num_edits)
    if len(edits) < turn.num_edits:
        return None
    noisy = _applied(clean.prefix, edits)
    if _changes_meaning(clean, noisy, rules, forms) or not all(
        _is_recovered(key, edits, forms) for key in keys
    ):
        return None
    return Noisy(noisy, turn.operator, turn.num_edits, clean)


def _words(text: str, rules: NoiseRules) -> Iterator[_WordPlace]:
    for match in _WORD.finditer(text):
        yield _WordPlace(*match.span(), _is_frozen(match[0], rules))


def _is_frozen(word: str, rules: NoiseRules) -> bool:
    has_digit = any(map(str.isdigit, word))
    return has_digit or len(word) == 1 or word.isupper() or word.casefold() in rules.frozen


def _keys(text: str, forms: Iterable[str]) -> list[_PoolWord]:
    keys = []
    for form in forms:
        if form in text:  # most are not, and a search is slow
            for match in re.finditer(rf"(?<!\w){re.escape(form)}(?!\w)", text):
                keys.append(_PoolWord(*match.span(), form))
    return keys


def _locked(text: str, rules: NoiseRules, keys: Iterable[_PoolWord]) -> frozenset[int]:
    """Indices of characters that stay: frozen and short words, text between frozen ones, the last
    word, ends of keys."""
    words = list(_words(text, rules))
    locked = set(range(text.rfind(" ") + 1, len(text)))
    for word in words:
        if word.is_frozen or word.end - word.start < _MIN_LETTERS:
            locked.update(range(word.start, word.end))
    for left, right in pairwise(words):
        are_adjacent = right.start - left.end == 1  # one space: without it both would be one word
        if (left.is_frozen and right.is_frozen) or (
            are_adjacent and (left.is_frozen or right.is_frozen)
        ):
            locked.update(range(left.end, right.start))
    for key in keys:
        locked.update((key.start, key.end - 1))
    return frozenset(locked)


def _touches(edit: Edit, locked: frozenset[int]) -> bool:
    """Whether an edit changes a locked character; an insertion touches the characters on both
    sides."""
    changed = range(edit.start, edit.end) or (edit.start - 1, edit.start)
    return not locked.isdisjoint(changed)


def _sample_apart(draw: Stream, possible: list[Edit], num_edits: int) -> list[Edit]:
    """Edits with at least one unchanged character between any two; fewer than `num_edits` if there
    is no room."""
    chosen: list[Edit] = []
    while possible and len(chosen) < num_edits:
        new = draw.choice(possible)
        chosen.append(new)
        possible = [edit for edit in possible if edit.end < new.start or new.end < edit.start]
    return sorted(chosen)


def _applied(text: str, edits: Sequence[Edit], start: int = 0) -> str:
    """The edited text; `start`: the index of its first character, as the edits count."""
    for edit in reversed(edits):
        text = text[: edit.start - start] + edit.text + text[edit.end - start :]
    return text


def _changes_meaning(clean: Draft, noisy: str, rules: NoiseRules, forms: Sequence[str]) -> bool:
    """Whether a number or negation appeared or vanished, a pool word appeared, or the answer may be
    another."""
    if _changes_answer(clean, noisy):
        return True
    before = Counter(_WORD.findall(clean.prefix))
    after = Counter(_WORD.findall(noisy))
    if any(after[form] > before[form] for form in forms):
        return True
    same_frozen = _frozen_words(clean.prefix, rules) == _frozen_words(noisy, rules)
    return not same_frozen or not unicodedata.is_normalized("NFC", noisy)


def _frozen_words(text: str, rules: NoiseRules) -> list[str]:
    return sorted(word.casefold() for word in _WORD.findall(text) if _is_frozen(word, rules))


def _changes_answer(clean: Draft, noisy: str) -> bool:
    """Whether the answer appeared in the prefix, or a model that copies it exactly would copy a
    typo."""
    answer = clean.target.strip()
    whole = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)")
    if len(whole.findall(noisy)) != len(whole.findall(clean.prefix)):
        return True
    if noisy.casefold().count(answer.casefold()) > clean.prefix.casefold().count(answer.casefold()):
        return True
    # "Фёдор" after "Федора" would be wrong as well
    return "ё" in answer and noisy.count("ё") < clean.prefix.count("ё")


def _is_recovered(key: _PoolWord, edits: Sequence[Edit], forms: Sequence[str]) -> bool:
    """Whether the clean form is the only nearest of all forms to its edited text, by OSA
    distance."""
    inner = [edit for edit in edits if key.start <= edit.start and edit.end <= key.end]
    if not inner:
        return True
    noisy = _applied(key.form, inner, key.start)
    distance = OSA.distance(noisy, key.form)
    as_near = (
        form for form in forms if OSA.distance(noisy, form, score_cutoff=distance) <= distance
    )
    return set(as_near) == {key.form}


def _swaps(text: str, rules: NoiseRules) -> Iterator[Edit]:
    for i, (a, b) in enumerate(pairwise(text)):
        if a.isalpha() and b.isalpha() and a.casefold() != b.casefold():
            yield Edit(i, i + 2, b + a)


def neighbours(letter: str, keyboard: Sequence[str]) -> list[str]:
    """The keys around a letter, in its case: s has w and e above, a and d beside, z and x below."""
    rows = ("", *keyboard, "")
    for above, row, below in zip(rows, rows[1:], rows[2:], strict=False):
        i = row.find(letter.lower())
        if i >= 0:
            left = max(i - 1, 0)
            keys = above[i : i + 2] + row[left:i] + row[i + 1 : i + 2] + below[left : i + 1]
            return list(keys.upper() if letter.isupper() else keys)
    return []


def _extra_spaces(text: str, rules: NoiseRules) -> Iterator[Edit]:
    """A doubled space, or a space inside a word of four letters or more, at least two letters from
    its ends."""
    for match in re.finditer(" ", text):
        yield Edit(*match.span(), "  ")
    for word in _words(text, rules):
        for i in range(word.start + 2, word.end - 1):
            yield Edit(i, i, " ")


def _tsya(text: str, rules: NoiseRules) -> Iterator[Edit]:
    for match in re.finditer(r"(?<=т)(ь?)(?=ся\b)", text):
        yield Edit(*match.span(), "" if match[1] else "ь")


# Operators that replace single characters: (character, rules) -> each text that may replace it.
# A list times False is empty.
_REPLACEMENTS: dict[Operator, Callable[[str, NoiseRules], Iterable[str]]] = {
    "drop": lambda c, rules: [""] * c.isalpha(),
    "double": lambda c, rules: [c + c.lower()] * c.isalpha(),
    "keyboard": lambda c, rules: neighbours(c, rules.keyboard),
    "homoglyph": lambda c, rules: rules.homoglyphs.get(c, ()),
    "case": lambda c, rules: [c.swapcase()] * c.isalpha(),
    "missing_space": lambda c, rules: [""] * (c == " "),
    "punctuation": lambda c, rules: [""] * (c in ".,:;!?"),
    "yo": lambda c, rules: {"ё": "е", "Ё": "Е"}.get(c, ()),
}
_EDITS: dict[Operator, Callable[[str, NoiseRules], Iterator[Edit]]] = {
    "swap": _swaps,
    "extra_space": _extra_spaces,
    "tsya": _tsya,
}


def _edits(text: str, operator: Operator, rules: NoiseRules) -> Iterator[Edit]:
    """All typos of one kind that the text may have."""
    if operator in _EDITS:
        return _EDITS[operator](text, rules)
    replacements = _REPLACEMENTS[operator]
    return (Edit(i, i + 1, new) for i, c in enumerate(text) for new in replacements(c, rules))


_COMMON: tuple[Operator, ...] = tuple(
    operator for operator in get_args(Operator) if operator not in _RARE
)


def read_rules(folder: Path) -> NoiseRules:
    """The rules of a language, by its words.json; without a keyboard or homoglyphs these typos are
    not made.  Raises InputError."""
    path = folder / "words.json"
    words = read_file(path)
    rare = words.get("rare_typos", [])
    texts_of(path, "rare_typos", rare, 0)
    operators = [*_COMMON, *rare]
    for key, operator in (("keyboard", "keyboard"), ("homoglyphs", "homoglyph")):
        if not words.get(key):
            operators.remove(operator)
    keyboard = ("", "", "")
    if words.get("keyboard"):
        keyboard = texts_of(path, "keyboard", words["keyboard"], 3)
    homoglyphs = words.get("homoglyphs") or {}
    if not isinstance(homoglyphs, dict):
        raise InputError(
            f"{path}: homoglyphs is {shown(homoglyphs)}, expected letters with their look-alikes: "
            "mend it"
        )
    texts_of(path, "homoglyphs", [*homoglyphs.values()], 0)
    frozen = words.get("frozen", "")
    is_known = set(operators) <= set(get_args(Operator)) and isinstance(frozen, str)
    if not is_known or len(keyboard) != 3:
        raise InputError(
            f"{path}: expected a keyboard of three rows, rare_typos of {', '.join(sorted(_RARE))}, "
            "and frozen as one text of words: mend it"
        )
    return NoiseRules(
        language=folder.name,
        operators=tuple(operators),
        keyboard=(keyboard[0], keyboard[1], keyboard[2]),
        homoglyphs=homoglyphs,
        frozen=frozenset(frozen.split()),
    )


ENGLISH = read_rules(package_folder("en"))
RUSSIAN = read_rules(package_folder("ru"))
