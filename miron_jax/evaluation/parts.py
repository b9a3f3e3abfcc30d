"""Sources + tokenizer -> the run's parts: tokenized examples of about PART_TOKENS tokens, over the tasks' borders.

Arrives: tasks with their examples.  Leaves: parts of `Piece`s and `ClozePiece`s, and the row lengths that a run of many
parts should compile.  It deliberately does not know models' weights or scores.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.evaluation.records import AnswerSource, AnySource, ClozeSource, ProgramSource, Source, is_dialogue
from miron_jax.planning.packing import choose_lengths
from miron_jax.planning.records import CostModel
from miron_jax.planning.request_batches import PART_TOKENS
from miron_jax.prompting.prompts import Prompt, render
from miron_jax.task_kinds.records import Cloze, Task
from miron_jax.tokens.cloze_requests import Asked, cloze_requests
from miron_jax.tokens.records import LengthLimit, Requests, concatenate
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import special_tokens
from miron_jax.tokens.whole_shots import fitting

LONGEST_TRIED, SAMPLED = 8, 32  # examples of each task tokenized ahead: its longest, and some of every size


class Piece(NamedTuple):
    """Some examples of one task, tokenized."""

    task: int  # place in Inputs.sources
    prompts: list[Prompt]
    requests: Requests


class ClozePiece(NamedTuple):
    """The items of one cloze task, tokenized."""

    task: int
    items: list[Cloze]
    asked: list[Asked]
    empty_prefix: str | None  # the token that stands for one
    requests: Requests


Part = list[Piece | ClozePiece]


def parts_of(
    sources: Sequence[AnySource],
    order: Sequence[int],
    limit: int | None,
    tokenizer: Any,
    table: TokenBytes,
    max_length: LengthLimit,
) -> Iterator[Part]:
    """Tokenized examples in runs of about PART_TOKENS tokens, over the tasks' borders.  `order`: see `Survey`."""
    part: Part = []
    tokens = 0
    for index in order:
        source = sources[index]
        if isinstance(source, AnswerSource | ProgramSource) or is_dialogue(source):
            continue  # nothing of it is scored, or each turn only behind the one before it
        for piece in _pieces(index, source, limit, tokenizer, table, max_length.of(source.task.profile)):
            part.append(piece)
            tokens += len(piece.requests.token_ids)
            if tokens >= PART_TOKENS:
                yield part
                part, tokens = [], 0
    if part:
        yield part


def _pieces(
    index: int,
    source: Source | ClozeSource,
    limit: int | None,
    tokenizer: Any,
    table: TokenBytes,
    max_length: int | None,
) -> Iterator[Piece | ClozePiece]:
    if isinstance(source, ClozeSource):
        task, items = source.task, source.examples
        requests, asked = cloze_requests(items, task.profile, tokenizer, table, max_length, task.name)
        empty = special_tokens(tokenizer).empty
        yield ClozePiece(index, items, asked, tokenizer.convert_ids_to_tokens(empty[0]) if empty else None, requests)
        return
    prompts = render(source.task, source.examples, limit)
    for chunk in _chunks(fitting(prompts, source.task.profile, tokenizer, max_length)):
        requests = tokenize(chunk, source.task.profile, tokenizer, max_length, source.task.name)
        yield Piece(index, chunk, requests)


def join(parts: Iterable[Part], waiting: deque[Part], vocab_size: int) -> Iterator[Requests]:
    """Each part's requests end to end; the part itself goes to `waiting` for the scores to come."""
    for part in parts:
        waiting.append(part)
        requests = concatenate([piece.requests for piece in part])
        highest = int(requests.token_ids.max(initial=0))
        if highest >= vocab_size:  # an embedding lookup on the device would silently take another row
            raise InputError(
                f"the tokenizer gives token id {highest}, but the model's vocabulary has {vocab_size}: "
                "name the model's own tokenizer with --tokenizer"
            )
        yield requests


class Survey(NamedTuple):
    """What a run of several parts settles before the first one is tokenized."""

    lengths: tuple[int, ...]  # of rows; () in a run of one part, which chooses from the data themselves
    order: list[int]  # sources by their longest row, so that hosts and devices that share a run end on short rows


def survey(
    sources: Sequence[AnySource], config: RunConfig, tokenizer: Any, max_length: LengthLimit, cost: CostModel
) -> Survey:
    """Row lengths for a run of several parts, and the order of its tasks.

    Sizes of all examples are guessed from their UTF-8 bytes; the rate of each task comes from a few that are tokenized,
    the longest among them.  One program is left to an example that is longer than guessed.
    """
    plain_tokens, longest, guessed = 0.0, dict[int, int](), []
    for index, source in enumerate(sources):
        if not isinstance(source, Source) or is_dialogue(source):
            continue
        prompts, most = render(source.task, source.examples, config.limit), max_length.of(source.task.profile)
        sizes = np.asarray([_num_bytes(prompt) for prompt in prompts])
        by_size = np.argsort(sizes, kind="stable")
        tried = np.unique([*by_size[-LONGEST_TRIED:], *by_size[:: max(1, len(prompts) // SAMPLED)]])
        measured = np.asarray([_places(prompts[i], source.task, tokenizer, most, cost) for i in tried])
        longest[index] = int(measured.max())
        guessed.append(np.minimum(sizes * (measured.sum() / sizes[tried].sum()), measured.max()))
        plain_tokens += float(guessed[-1].sum()) * len(prompts[0].contexts)
    if plain_tokens < PART_TOKENS:
        return Survey((), list(range(len(sources))))
    most = min(-(-max(longest.values()) // cost.length_multiple) * cost.length_multiple, cost.most_places or 1 << 31)
    spare = replace(cost, max_lengths=max(1, cost.max_lengths - 1))
    sizes = np.minimum(np.ceil(np.concatenate(guessed)).astype(np.int64), most)
    order = sorted(range(len(sources)), key=lambda index: -longest.get(index, most))
    return Survey(choose_lengths(sizes, spare, (most,)), order)


def _num_bytes(prompt: Prompt) -> int:
    """UTF-8 bytes of a prompt with all its options."""
    return len("".join((prompt.preamble, prompt.contexts[0], *prompt.continuations)).encode())


def _places(prompt: Prompt, task: Task, tokenizer: Any, max_length: int | None, cost: CostModel) -> int:
    """Places that an example's options take together, their common beginning shared; those of one, where a row holds one."""
    requests = tokenize([prompt], task.profile, tokenizer, max_length, task.name)
    length = np.diff(requests.offsets)
    if cost.sharing != "forest":
        return int(length.max()) - 1
    return int(length.max() + np.sort(length - requests.span_start)[:-1].sum())


def _chunks(prompts: list[Prompt]) -> Iterator[list[Prompt]]:
    """Prompts in runs that hold about half a part's text, at four characters a token."""
    start = num_chars = 0
    for i, prompt in enumerate(prompts):
        num_chars += prompt.num_chars
        if num_chars >= 2 * PART_TOKENS:
            yield prompts[start : i + 1]
            start, num_chars = i + 1, 0
    if start < len(prompts):
        yield prompts[start:]
