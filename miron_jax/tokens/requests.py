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

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from miron_jax.definitions.records import Profile
from miron_jax.errors import InputError
from miron_jax.prompting.prompts import Prompt
from miron_jax.tokens.records import Requests, concatenate
from miron_jax.tokens.tokenizers import (
    Encode,
    Tokenizer,
    encode_each,
    encoder,
    first_tokens,
    with_space,
    writes_space_into_words,
)

_CHUNK_CHARS = 1_000_000  # text tokenized at a time: enough to feed every core, little enough to hold twice


class _Ragged(NamedTuple):
    """Token sequences end to end."""

    token_ids: np.ndarray  # int32 [N]
    offsets: np.ndarray  # int64 [R+1]


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
    each = encode_each(encode, texts + contexts, first=first)
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
    texts = [with_space(text) if spaced else text for prompt in prompts for text in prompt.continuations]
    before = _before_answers(prompts, encode, rules.tokenizer)
    after = encode_each(encode, texts)
    whole = _ragged([np.concatenate(pair) for pair in zip(before, after, strict=True)])
    return _Spanned(whole, np.asarray([len(own) for own in before], np.int64), np.zeros(len(texts), bool))


def _before_answers(prompts: Sequence[Prompt], encode: Encode, tokenizer: Tokenizer) -> list[np.ndarray]:
    """Token ids of preamble and context, tokenized apart, one an option; an EOS behind the preamble is dropped."""
    eos = tokenizer.eos_token_id
    opened = [
        own[:-1] if len(own) > 1 and own[-1] == eos else own
        for own in encode_each(encode, [prompt.preamble for prompt in prompts], special=True)
    ]
    contexts = iter(encode_each(encode, [context for prompt in prompts for context in prompt.contexts]))
    return [
        np.concatenate([own, next(contexts)])
        for prompt, own in zip(prompts, opened, strict=True)
        for _ in prompt.contexts
    ]


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
