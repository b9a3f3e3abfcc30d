"""Prompts + tokenizer -> Requests: boundary and scored span of each; truncation.py says what a
prompt loses that is too long.

Arrives: Prompts and a task's Profile.  Leaves: `Requests`, flat NumPy arrays.  It deliberately does
not know models, devices or data files.

A request is its token ids and the start of its scored span, half-open, in tokens.  Nothing after a
span can change it, so every span ends where its request ends:

    token ids   B   The sky is    blue .
    index       0    1   2   3      4  5        len 6
    span                           [4,      6)  span_start 4: two tokens are scored

`span_start` is at least 1 unless the span is empty; span_start == len is an empty span (nothing
scored).
"""

from collections.abc import Sequence
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from miron_jax.definitions.records import Profile
from miron_jax.errors import InputError
from miron_jax.prompting.prompts import Prompt, chunks_of
from miron_jax.tokens.pairs import TextPair, context_kept, text_tokens
from miron_jax.tokens.pieces import piece_encoder
from miron_jax.tokens.ragged import Ragged, end_to_end
from miron_jax.tokens.records import Requests, concatenate
from miron_jax.tokens.spans import shared_with_context
from miron_jax.tokens.tokenizers import Tokenizer, writes_space_into_words
from miron_jax.tokens.truncation import num_cut

_NO_TOKENS = np.zeros(0, np.int32)
# text tokenized at a time: enough to feed every core, little enough to hold twice
_CHUNK_CHARS = 1_000_000


def tokenize(
    prompts: Sequence[Prompt],
    profile: Profile,
    tokenizer: Tokenizer,
    max_length: int | None,
    task_name: str,
) -> Requests:
    """One request per choice, in the prompts' order; `max_length` counts all tokens of a request,
    BOS included, but not the last one where the profile's truncation leaves that out.

    A span depends on one prompt alone, so a long task may be tokenized slice by slice.
    """
    rules = _TokenRules(profile, tokenizer, task_name, max_length)
    return concatenate(
        [_tokenize_chunk(chunk, rules) for chunk in chunks_of(prompts, _CHUNK_CHARS)]
    )


def tokenize_questions(
    prompts: Sequence[Prompt], tokenizer: Tokenizer, first: tuple[int, ...] | None = None
) -> list[tuple[int, ...]]:
    """Token ids of every prompt up to its answer.  `first`: preamble and context are one text after
    these tokens; None: they are tokenized separately."""
    questions = list[tuple[int, ...]]()
    for chunk in chunks_of(prompts, _CHUNK_CHARS):
        if first is None:
            encoded = _before_answers(chunk, tokenizer)
            questions += (tuple(ids.tolist()) for ids in encoded)
        else:
            texts = [(*prompt.shots, prompt.contexts[0]) for prompt in chunk]
            encoded = piece_encoder(tokenizer)(texts)
            questions += ((*first, *ids.tolist()) for ids in encoded)
    return questions


class _TokenRules(NamedTuple):
    """The arguments of `tokenize` beside the prompts."""

    profile: Profile
    tokenizer: Tokenizer
    task_name: str
    max_length: int | None

    @property
    def num_unread(self) -> int:
        """Tokens of a request beyond `max_length`: the model does not read the last one."""
        return int(self.profile.truncation == "keep_last_inputs")


def _tokenize_chunk(prompts: Sequence[Prompt], rules: _TokenRules) -> Requests:
    num_choices = np.array([len(prompt.contexts) for prompt in prompts])
    of_boundary = _segments if rules.profile.boundary == "segments" else _joint
    untruncated = of_boundary(prompts, rules, num_choices)
    may_be_empty = (num_choices > 1) & (rules.profile.empty_span != "error")
    names = _Names(rules.task_name, prompts, num_choices, may_be_empty)
    if rules.profile.one_token:
        _check_letters(untruncated, names)
    return _keep_last(untruncated, rules, names)


class _Untruncated(NamedTuple):
    """Requests before truncation."""

    whole: Ragged
    span_start: np.ndarray
    is_crossed: np.ndarray  # bool, a token crosses the border of context and continuation


def _joint(prompts: Sequence[Prompt], rules: _TokenRules, num_choices: np.ndarray) -> _Untruncated:
    """Preamble, context and continuation are one text behind its special tokens; a context may keep
    its own tokens."""
    span = rules.profile.span
    texts = text_tokens(rules.profile.bos, rules.tokenizer)
    choices = list[tuple[tuple[str, ...], str]]()
    for prompt in prompts:
        for context, continuation in zip(prompt.contexts, prompt.continuations, strict=True):
            choices.append(((*prompt.shots, context), continuation))
    if span.context is None and texts.prefix is None:  # no rule looks at a context
        wholes = [(*context, continuation) for context, continuation in choices]
        ids = texts.of(wholes)
        pairs = [TextPair(ids[whole], _NO_TOKENS) for whole in wholes]
    else:
        pairs = texts.pairs(choices, span.context or str.rstrip)
    whole = end_to_end([pair.whole for pair in pairs])
    before = end_to_end([pair.context for pair in pairs])
    is_crossed = np.zeros(len(pairs), bool)
    if span.context:
        is_crossed = shared_with_context(whole, before) < before.lengths
    if rules.profile.boundary == "context_kept":
        whole = end_to_end([*map(context_kept, pairs)])
    return _Untruncated(whole, span.call(whole, before, num_choices), is_crossed)


def as_scored(continuations: Sequence[str], profile: Profile, tokenizer: Tokenizer) -> list[str]:
    """Continuations with the space that the profile puts before them."""
    if profile.continuation_space != "where_one_token" or not writes_space_into_words(tokenizer):
        return list(continuations)
    return [text if text.startswith(" ") else f" {text}" for text in continuations]


def _segments(
    prompts: Sequence[Prompt], rules: _TokenRules, num_choices: np.ndarray
) -> _Untruncated:
    """Preamble, context and continuation are tokenized separately and concatenated; the
    continuation is scored.

    A SentencePiece tokenizer may put a stray space before each of them.
    """
    continuations = [*chain(*(prompt.continuations for prompt in prompts))]
    texts = as_scored(continuations, rules.profile, rules.tokenizer)
    before = _before_answers(prompts, rules.tokenizer)
    after = piece_encoder(rules.tokenizer)(texts)
    whole = end_to_end([*map(np.concatenate, zip(before, after, strict=True))])
    span_start = rules.profile.span.call(whole, end_to_end(before), num_choices)
    return _Untruncated(whole, span_start, np.zeros(len(texts), bool))


def _before_answers(prompts: Sequence[Prompt], tokenizer: Tokenizer) -> list[np.ndarray]:
    """Token ids of preamble and context, tokenized separately, for each choice; an EOS after the
    preamble is dropped."""
    encode = piece_encoder(tokenizer)
    eos = tokenizer.eos_token_id
    preambles = []
    for ids in encode([prompt.shots for prompt in prompts], special=True):
        preambles.append(ids[:-1] if len(ids) > 1 and ids[-1] == eos else ids)
    contexts = iter(encode([*chain(*(prompt.contexts for prompt in prompts))]))
    before = list[np.ndarray]()
    for prompt, preamble in zip(prompts, preambles, strict=True):
        for context in islice(contexts, len(prompt.contexts)):
            before.append(np.concatenate([preamble, context]))
    return before


class _Names(NamedTuple):
    """The names of requests in errors."""

    task: str
    prompts: Sequence[Prompt]
    num_choices: np.ndarray  # of each prompt
    may_be_empty: np.ndarray  # bool, of each prompt: a choice may have no scored token

    def of(self, request: int) -> str:
        ends = np.cumsum(self.num_choices)
        i = int(np.searchsorted(ends, request, side="right"))
        choice = request - int(ends[i] - self.num_choices[i])
        return (
            f"{self.task}, example {self.prompts[i].id} (row {self.prompts[i].row}), option "
            f"{choice}"
        )


def _check_letters(untruncated: _Untruncated, names: _Names) -> None:
    """Raises InputError for a letter that is no single token."""
    num_tokens = untruncated.whole.lengths - untruncated.span_start
    for request in np.flatnonzero(num_tokens != 1).tolist():
        raise InputError(
            f"{names.of(request)}: the letter is {num_tokens[request]} tokens of this tokenizer, "
            "expected one: choose a task whose options are texts"
        )


def _keep_last(untruncated: _Untruncated, rules: _TokenRules, names: _Names) -> Requests:
    """Drop leading tokens of requests over the limit and shift their spans."""
    (token_ids, offsets), span_start, is_crossed = untruncated
    length = untruncated.whole.lengths
    cut = num_cut(length - rules.num_unread, rules.max_length)
    shifted = span_start - cut
    _check_spans(length, span_start, shifted, rules, names)
    if cut.any():
        kept = np.arange(len(token_ids)) - np.repeat(offsets[:-1], length) >= np.repeat(cut, length)
        token_ids = token_ids[kept]
        offsets = offsets - np.concatenate([[0], np.cumsum(cut)])
    return Requests(token_ids, offsets, shifted.astype(np.int32), cut > 0, is_crossed)


def _check_spans(
    length: np.ndarray,
    span_start: np.ndarray,
    shifted: np.ndarray,
    rules: _TokenRules,
    names: _Names,
) -> None:
    """Raise InputError for a request without a scored token that needs one, or without a token
    before its scored span."""
    refused = ~np.repeat(names.may_be_empty, names.num_choices)
    invalid = np.flatnonzero(np.where(span_start < length, shifted < 1, refused))
    if not len(invalid):
        return
    request = int(invalid[0])
    num_scored = int(length[request] - span_start[request])
    if num_scored == 0:
        problem = (
            "the continuation adds no token to its context, so there is nothing to score: mend or "
            "remove the line"
        )
    elif span_start[request] < 1:
        problem = (
            "the scored span has no token before it: all options read the same, or the context is "
            "empty and the tokenizer puts no BOS there; mend or remove the line"
        )
    else:
        problem = (
            f"the scored span has {num_scored} tokens and needs one more before it, but the length "
            f"limit is {rules.max_length}: raise --max_length to at least "
            f"{num_scored + 1 - rules.num_unread}, or remove the line"
        )
    raise InputError(f"{names.of(request)}: {problem}")
