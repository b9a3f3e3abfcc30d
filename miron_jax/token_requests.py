"""Prompts + tokenizer -> Requests.  BOS, boundary, span and truncation rules live here.

Arrives: Prompts and a task's Profile.  Leaves: `Requests`, flat NumPy arrays.  It deliberately does not know models,
devices or data files.

A request is its token ids and the start of its scored span, half-open, in tokens.  Nothing after a span can change
it, so every span ends where its request ends:

    token ids   B   The sky is    blue .
    index       0    1   2   3      4  5        len 6
    span                           [4,      6)  span_start 4: two scored tokens, the first predicted at index 3

`span_start` is at least 1 unless the span is empty; span_start == len is an empty span (nothing scored).
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from miron_jax.errors import InputError
from miron_jax.prompts import Prompt
from miron_jax.task import ClozeProfile, Profile, ProgramProfile, Wording

# A transformers tokenizer.  Its class is private to that library's version, so no type is named here.
Tokenizer = Any

_CHUNK_CHARS = 1_000_000  # text tokenized at a time: enough to feed every core, little enough to hold twice

BLOCK = 1_000_000  # tokens whose indices are held at a time


@dataclass(frozen=True, slots=True)
class Requests:
    """R requests, one after another.  Shapes: token_ids [N] int32, offsets [R+1] int64, the rest [R]."""

    token_ids: np.ndarray  # int32 [N], all requests' tokens end to end
    offsets: np.ndarray  # int64 [R+1]; request r is token_ids[offsets[r]:offsets[r+1]]
    span_start: np.ndarray  # int32 [R], first scored token, counted from the request's first token
    truncated: np.ndarray  # bool [R], lost tokens to the length limit
    inexact_prefix: np.ndarray  # bool [R], the context alone is no token prefix; scored from the longest common prefix
    id_set: np.ndarray | None = None  # int32 [R], which set of ids is also summed before the span; -1, or None: none is

    def __len__(self) -> int:
        return len(self.span_start)

    def tokens(self, request: int) -> np.ndarray:
        return self.token_ids[self.offsets[request] : self.offsets[request + 1]]

    def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
        return ((self.tokens(r), int(self.span_start[r])) for r in range(len(self)))


class LengthLimit(NamedTuple):
    """How many tokens a request may have, BOS included."""

    asked: int | None  # --max_length, instead of a suite's own rule
    learned: int | None  # positions of the model, which nothing exceeds
    trained: int | None = None  # tokens that the model was trained at, within which whole worked examples are kept

    def of(self, profile: Wording | ProgramProfile | ClozeProfile) -> int | None:
        """None: no limit."""
        whole_shots = isinstance(profile, Wording) and profile.truncation == "whole_shots"
        own = self.asked or profile.max_length or (self.trained if whole_shots else None)
        limits = [limit for limit in (own, self.learned) if limit is not None]
        return min(limits, default=None)


class Bos(NamedTuple):
    """The token every request begins with."""

    id: int
    how: str  # which rule found it: "declared <s>", "vocabulary <|bos|>", "vocabulary <|endoftext|>"


class Special(NamedTuple):
    """Tokens that the tokenizer puts around every text, and what stands for an empty one."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    empty: tuple[int, ...]  # context of a target without a prefix; () where the vocabulary has nothing for it


class _Ragged(NamedTuple):
    """Token sequences end to end."""

    token_ids: np.ndarray  # int32 [N]
    offsets: np.ndarray  # int64 [R+1]


class _Encode(Protocol):
    def __call__(self, texts: list[str], special: bool = False) -> list[list[int]]: ...


def load_tokenizer(folder_or_id: str) -> Tokenizer:
    """A tokenizer from a Hugging Face folder or hub id."""
    # transformers greets a machine without torch with a warning, once, while it is imported.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import AutoTokenizer

    remedy = "name a folder that holds tokenizer.json and tokenizer_config.json, or a hub id that can be reached"
    if folder_or_id.startswith(("/", ".", "~")) and not Path(folder_or_id).is_dir():
        raise InputError(f"--tokenizer={folder_or_id}: there is no such folder: {remedy}")
    try:
        return AutoTokenizer.from_pretrained(folder_or_id)
    except Exception as error:
        # tokenizers raises a bare Exception for a tokenizer.json that it cannot read; subclasses pass unless named.
        if type(error) is not Exception and not isinstance(error, OSError | ValueError | KeyError | ImportError):
            raise
        reason = " ".join(str(error).split())
        raise InputError(f"--tokenizer={folder_or_id}: no tokenizer could be read ({reason:.200}): {remedy}") from error


def resolve_bos(tokenizer: Tokenizer) -> Bos:
    """The declared bos_token, else `<|bos|>`, else `<|endoftext|>`, where the vocabulary has them."""
    if tokenizer.bos_token_id is not None:
        return Bos(int(tokenizer.bos_token_id), f"declared {tokenizer.bos_token}")
    vocabulary = tokenizer.get_vocab()
    for token in ("<|bos|>", "<|endoftext|>"):
        if token in vocabulary:
            return Bos(int(vocabulary[token]), f"vocabulary {token}")
    raise InputError(
        "the tokenizer declares no bos_token and has neither <|bos|> nor <|endoftext|>, but each prompt begins with one: "
        "set bos_token in its tokenizer_config.json"
    )


def special_tokens(tokenizer: Tokenizer) -> Special:
    with_specials, alone = tokenizer("a")["input_ids"], tokenizer("a", add_special_tokens=False)["input_ids"]
    places = range(len(with_specials))
    at = next((i for i in places if alone and with_specials[i : i + len(alone)] == alone), None)
    if at is None:
        raise InputError(
            f"the tokenizer makes {with_specials} of 'a' with special tokens and {alone} without, expected the same tokens "
            "between them: name another with --tokenizer"
        )
    try:
        empty = (resolve_bos(tokenizer).id,)
    except InputError:
        empty = ()
    return Special(tuple(with_specials[:at]), tuple(with_specials[at + len(alone) :]), empty)


def first_tokens(bos: Literal["always", "as_tokenizer", "never"], tokenizer: Tokenizer) -> tuple[int, ...]:
    """What stands before a text that is tokenized as one."""
    if bos == "as_tokenizer":
        return special_tokens(tokenizer).before
    return () if bos == "never" else (resolve_bos(tokenizer).id,)


def tokenize(
    prompts: Sequence[Prompt], profile: Profile, tokenizer: Tokenizer, max_length: int | None, task_name: str
) -> Requests:
    """One request an option, in the prompts' order; `max_length` counts all tokens of a request, BOS included.

    A span depends on its own prompt alone, so a long task may be tokenized slice by slice.
    """
    rules = _Rules(profile, tokenizer, task_name, max_length)
    parts = [_tokenize_chunk(chunk, rules) for chunk in _chunks(prompts)]
    return concatenate(parts)


def tokenize_questions(
    prompts: Sequence[Prompt], tokenizer: Tokenizer, first: tuple[int, ...] | None = None
) -> list[tuple[int, ...]]:
    """Every prompt's whole token ids by segments, up to where its answer begins; `first`: as one text behind these."""
    encode = encoder(tokenizer)
    if first is not None:
        return [
            (*first, *ids)
            for chunk in _chunks(prompts)
            for ids in encode([prompt.preamble + prompt.contexts[0] for prompt in chunk])
        ]
    return [
        tuple(int(token) for token in before)
        for chunk in _chunks(prompts)
        for before in _before_answers(chunk, encode, tokenizer)
    ]


def longest_answer(texts: Sequence[str], tokenizer: Tokenizer) -> int:
    """Tokens of the longest text, with the special tokens that the tokenizer puts around it."""
    return max((len(ids) for ids in encoder(tokenizer)(list(texts), True)), default=0)


def concatenate(parts: Sequence[Requests]) -> Requests:
    """Requests end to end."""
    starts = np.cumsum([0, *(len(part.token_ids) for part in parts)])
    ends = [part.offsets[1:] + start for part, start in zip(parts, starts, strict=False)]
    return Requests(
        token_ids=np.concatenate([np.zeros(0, np.int32), *(part.token_ids for part in parts)]),
        offsets=np.concatenate([np.zeros(1, np.int64), *ends]),
        span_start=np.concatenate([np.zeros(0, np.int32), *(part.span_start for part in parts)]),
        truncated=np.concatenate([np.zeros(0, bool), *(part.truncated for part in parts)]),
        inexact_prefix=np.concatenate([np.zeros(0, bool), *(part.inexact_prefix for part in parts)]),
        id_set=_concatenate_sets(parts),
    )


def _concatenate_sets(parts: Sequence[Requests]) -> np.ndarray | None:
    if all(part.id_set is None for part in parts):
        return None
    return np.concatenate([np.full(len(part), -1, np.int32) if part.id_set is None else part.id_set for part in parts])


def gather(values: np.ndarray, begin: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """values[begin[i]:begin[i] + length[i]] for every i, end to end, and where each one starts (int64 [n + 1])."""
    offset = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    out = np.empty(offset[-1], values.dtype)
    for a, b in blocks(offset):
        at = np.repeat(begin[a:b] - offset[a:b], length[a:b]) + np.arange(offset[a], offset[b])
        out[offset[a] : offset[b]] = values[at]
    return out, offset


def blocks(offset: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs [a, b) of sequences that hold about BLOCK tokens each: work that needs indices a token stays small."""
    a = 0
    while a < len(offset) - 1:
        b = max(a + 1, int(np.searchsorted(offset, offset[a] + BLOCK, side="right")) - 1)
        yield a, b
        a = b


def _chunks(prompts: Sequence[Prompt]) -> Iterator[Sequence[Prompt]]:
    """Prompts in runs of about _CHUNK_CHARS characters, none torn."""
    start = num_chars = 0
    for i, prompt in enumerate(prompts):
        num_chars += prompt.num_chars
        if num_chars >= _CHUNK_CHARS:
            yield prompts[start : i + 1]
            start, num_chars = i + 1, 0
    if start < len(prompts):
        yield prompts[start:]


class _Rules(NamedTuple):
    """What turns prompts into requests."""

    profile: Profile
    tokenizer: Tokenizer
    task_name: str
    max_length: int | None


def _tokenize_chunk(prompts: Sequence[Prompt], rules: _Rules) -> Requests:
    num_options = np.array([len(prompt.contexts) for prompt in prompts])
    found = (_joint if rules.profile.boundary == "joint" else _segments)(prompts, rules, num_options)
    may_be_empty = (num_options > 1) & (rules.profile.empty_span != "error")
    return _keep_last(*found, rules.max_length, _Names(rules.task_name, prompts, num_options, may_be_empty))


class _Spanned(NamedTuple):
    """Requests before any cut."""

    whole: _Ragged
    span_start: np.ndarray
    inexact: np.ndarray  # bool


def _joint(prompts: Sequence[Prompt], rules: _Rules, num_options: np.ndarray) -> _Spanned:
    """Preamble, context and continuation are one text, with one BOS in front or none."""
    encode = encoder(rules.tokenizer)
    first = first_tokens(rules.profile.bos, rules.tokenizer)
    texts = [p.preamble + c + k for p in prompts for c, k in zip(p.contexts, p.continuations, strict=True)]
    strip = {"after_stripped_context": str.strip, "after_context": str.rstrip}.get(rules.profile.span)
    contexts = [strip(p.preamble + context) for p in prompts for context in p.contexts] if strip else []
    each = _encode_each(encode, texts + contexts, first=first)
    whole, before = _ragged(each[: len(texts)]), _ragged(each[len(texts) :])
    span_start = _span_starts(rules.profile, whole, before, num_options)
    inexact = _shared_with(whole, before) < np.diff(before.offsets) if strip else np.zeros(len(texts), bool)
    return _Spanned(whole, span_start, inexact)


def _shared_with(whole: _Ragged, before: _Ragged) -> np.ndarray:
    """How many tokens each request shares with its context alone."""
    requests = np.arange(len(whole.offsets) - 1)
    return _common_length(whole, requests, before, requests, from_end=False)


def _segments(prompts: Sequence[Prompt], rules: _Rules, num_options: np.ndarray) -> _Spanned:
    """Preamble, context and continuation are tokenized apart and laid end to end; the continuation is scored.

    A SentencePiece tokenizer may put a stray space before each.
    """
    encode = encoder(rules.tokenizer)
    spaced = rules.profile.continuation_space == "where_one_token" and writes_space_into_words(rules.tokenizer)
    texts = [_with_space(text) if spaced else text for prompt in prompts for text in prompt.continuations]
    before = _before_answers(prompts, encode, rules.tokenizer)
    after = _encode_each(encode, texts)
    whole = _ragged([np.concatenate(pair) for pair in zip(before, after, strict=True)])
    return _Spanned(whole, np.asarray([len(own) for own in before], np.int64), np.zeros(len(texts), bool))


def _before_answers(prompts: Sequence[Prompt], encode: _Encode, tokenizer: Tokenizer) -> list[np.ndarray]:
    """Token ids of preamble and context, tokenized apart, one an option; an EOS behind the preamble is dropped."""
    eos = tokenizer.eos_token_id
    opened = [
        own[:-1] if len(own) > 1 and own[-1] == eos else own
        for own in _encode_each(encode, [prompt.preamble for prompt in prompts], special=True)
    ]
    contexts = iter(_encode_each(encode, [context for prompt in prompts for context in prompt.contexts]))
    return [
        np.concatenate([own, next(contexts)])
        for prompt, own in zip(prompts, opened, strict=True)
        for _ in prompt.contexts
    ]


def writes_space_into_words(tokenizer: Tokenizer) -> bool:
    """Whether " a" is one token, as composer asks; never told from the tokenizer's class."""
    return len(tokenizer(" a", add_special_tokens=False)["input_ids"]) == 1


def _with_space(text: str) -> str:
    return text if text.startswith(" ") else f" {text}"


def encoder(tokenizer: Tokenizer) -> _Encode:
    """Texts -> token ids; `special`: with the tokens that the tokenizer puts at either end."""
    if not getattr(tokenizer, "is_fast", False):
        return lambda texts, special=False: tokenizer(texts, add_special_tokens=special, verbose=False)["input_ids"]
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # a tokenizer.json may ask for either; transformers resets both on each of its own calls too
    backend.no_padding()
    # encode_batch_fast leaves character offsets out and runs on all cores (TOKENIZERS_PARALLELISM=false: on one).
    return lambda texts, special=False: [e.ids for e in backend.encode_batch_fast(texts, add_special_tokens=special)]


def _encode_each(
    encode: _Encode, texts: list[str], special: bool = False, first: tuple[int, ...] = ()
) -> list[np.ndarray]:
    """Each text's tokens behind `first`; a text that comes twice is tokenized once."""
    place: dict[str, int] = {}
    index = [place.setdefault(text, len(place)) for text in texts]
    encoded = [np.array([*first, *ids], np.int32) for ids in encode(list(place), special)]
    return [encoded[i] for i in index]


def _ragged(sequences: Sequence[np.ndarray]) -> _Ragged:
    offsets = np.zeros(len(sequences) + 1, np.int64)
    np.cumsum([len(s) for s in sequences], out=offsets[1:])
    return _Ragged(np.concatenate([np.zeros(0, np.int32), *sequences]), offsets)


def _span_starts(profile: Profile, whole: _Ragged, before: _Ragged, num_options: np.ndarray) -> np.ndarray:
    """First scored token of each request, before any cut."""
    requests = np.arange(len(whole.offsets) - 1)
    first_of_prompt = np.cumsum(num_options) - num_options
    first = np.repeat(first_of_prompt, num_options)  # each request's first sibling
    match profile.span:
        case "after_stripped_context":
            return _shared_with(whole, before)
        case "after_context":
            return np.minimum(np.diff(before.offsets), np.diff(whole.offsets))
        case "after_common_prefix":
            # What all share is the least of what each shares with the first.
            shared = _common_length(whole, requests, whole, first, from_end=False)
            return np.repeat(np.minimum.reduceat(shared, first_of_prompt), num_options)
        case "common_suffix":
            shared = _common_length(whole, requests, whole, first, from_end=True)
            return np.diff(whole.offsets) - np.repeat(np.minimum.reduceat(shared, first_of_prompt), num_options)
        case "continuation":
            raise AssertionError("a joint text has no seam before its continuation")


def _common_length(a: _Ragged, a_rows: np.ndarray, b: _Ragged, b_rows: np.ndarray, from_end: bool) -> np.ndarray:
    """How many tokens a[a_rows[i]] and b[b_rows[i]] share from one end.

    All pairs are laid out end to end, each as long as its shorter side (never 0: there is a BOS):

        lengths 3 2    starts 0 3    step 0 1 2 | 0 1    differs . . x | . .    common 2 2
    """
    length = np.minimum(np.diff(a.offsets)[a_rows], np.diff(b.offsets)[b_rows])
    starts = np.cumsum(length) - length
    step = np.arange(length.sum()) - np.repeat(starts, length)
    if from_end:
        a_index = np.repeat(a.offsets[a_rows + 1] - 1, length) - step
        b_index = np.repeat(b.offsets[b_rows + 1] - 1, length) - step
    else:
        a_index = np.repeat(a.offsets[a_rows], length) + step
        b_index = np.repeat(b.offsets[b_rows], length) + step
    differs = a.token_ids[a_index] != b.token_ids[b_index]
    return np.minimum.reduceat(np.where(differs, step, np.repeat(length, length)), starts)


class _Names(NamedTuple):
    """What an error needs to name a request."""

    task: str
    prompts: Sequence[Prompt]
    num_options: np.ndarray
    may_be_empty: np.ndarray  # bool, as num_options: an option may have no scored token

    def of(self, request: int) -> str:
        ends = np.cumsum(self.num_options)
        i = int(np.searchsorted(ends, request, side="right"))
        option = request - int(ends[i] - self.num_options[i])
        return f"{self.task}, example {self.prompts[i].id} (row {self.prompts[i].row}), option {option}"


def _keep_last(
    whole: _Ragged, span_start: np.ndarray, inexact: np.ndarray, max_length: int | None, names: _Names
) -> Requests:
    """Drops leading tokens of requests over the limit and shifts their spans."""
    length = np.diff(whole.offsets)
    cut = np.maximum(length - max_length, 0) if max_length is not None else np.zeros_like(length)
    shifted = span_start - cut
    _check_spans(length, span_start, shifted, max_length, names)
    token_ids, offsets = whole
    if cut.any():
        kept = np.arange(len(token_ids)) - np.repeat(offsets[:-1], length) >= np.repeat(cut, length)
        token_ids, offsets = token_ids[kept], offsets - np.concatenate([[0], np.cumsum(cut)])
    return Requests(token_ids, offsets, shifted.astype(np.int32), cut > 0, inexact)


def _check_spans(
    length: np.ndarray, span_start: np.ndarray, shifted: np.ndarray, max_length: int | None, names: _Names
) -> None:
    """A scored token needs a token before it; only a choice that begins another may have no scored token."""
    refused = ~np.repeat(names.may_be_empty, names.num_options)
    wrong = np.flatnonzero(np.where(span_start < length, shifted < 1, refused))
    if not len(wrong):
        return
    request = int(wrong[0])
    num_scored = int(length[request] - span_start[request])
    if num_scored == 0:
        found = "the continuation adds no token to its context, so there is nothing to score: mend or remove the line"
    elif span_start[request] < 1:
        found = (
            "the scored span has no token before it: all options read the same, or the context is empty and the tokenizer "
            "puts no BOS there; mend or remove the line"
        )
    else:
        found = (
            f"the scored span has {num_scored} tokens and needs one more before it, but the length limit is "
            f"{max_length}: raise --max_length to at least {num_scored + 1}, or remove the line"
        )
    raise InputError(f"{names.of(request)}: {found}")
