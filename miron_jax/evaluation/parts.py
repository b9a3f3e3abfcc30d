"""The request batches of a run: tokenized examples of one or more tasks, about REQUEST_BATCH_TOKENS
tokens each.

Arrives: the run's `TaskKind`s.  Leaves: lists of `TokenizedExamples`, and the row lengths that a
run of many batches compiles.  It deliberately does not know weights or scores.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.draws import times_as_many
from miron_jax.evaluation.task_kinds.interface import RowSizes, TaskKind, TokenizedExamples
from miron_jax.evaluation.task_kinds.prompted import PromptedKind
from miron_jax.planning.packing import choose_lengths
from miron_jax.planning.records import CostModel
from miron_jax.planning.request_batches import REQUEST_BATCH_TOKENS, Totals
from miron_jax.tokens.records import Requests, concatenate

_FLOPS = (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9))


def parts_of(
    kinds: Sequence[TaskKind],
    order: Sequence[int],
    draws: Mapping[int, Sequence[int]] = MappingProxyType({}),
) -> Iterator[list[TokenizedExamples]]:
    """Tokenized examples in parts of about REQUEST_BATCH_TOKENS tokens, across tasks.  `order`: see
    `Survey`.  `draws`: of a task -> its further draws, whose pieces stand beside the task's, as
    their prompts share much."""
    part = list[TokenizedExamples]()
    tokens = 0
    for index in order:
        if kinds[index].due == frozenset():  # it has run whole in an earlier round
            continue
        every = [index, *draws.get(index, ())]
        for of_draws in zip_longest(*(kinds[each].pieces() for each in every)):
            for each, piece in zip(every, of_draws, strict=True):
                if piece is not None:
                    part.append(TokenizedExamples(each, *piece))
                    tokens += len(part[-1].requests.token_ids)
            if tokens >= REQUEST_BATCH_TOKENS:
                yield part
                part = []
                tokens = 0
    if part:
        yield part


def requests_of(part: Sequence[TokenizedExamples], vocab_size: int) -> Requests:
    """Raises InputError for a token id that the model does not have."""
    requests = concatenate([piece.requests for piece in part])
    highest = int(requests.token_ids.max(initial=0))
    if highest >= vocab_size:  # an embedding lookup on the device would silently take another row
        raise InputError(
            f"the tokenizer gives token id {highest}, but the model's vocabulary has {vocab_size}: "
            "name the model's own tokenizer with --tokenizer, or mend vocab_size of your OwnModel"
        )
    return requests


class Survey(NamedTuple):
    """Decisions of a run of several parts before the first one is tokenized."""

    lengths: tuple[int, ...]  # of rows; (): a run of one part chooses them from its requests
    plain_tokens: float  # of all tasks, about, at one row per request; 0: it has one part
    unique_tokens: float  # nodes of the plans of all tasks, about; 0 likewise
    # tasks from long rows to short, so that hosts and devices finish at about the same time
    order: list[int]
    sizes: Mapping[int, RowSizes]  # of tasks that have an estimate


def survey(
    kinds: Sequence[TaskKind],
    cost: CostModel,
    several: bool = False,
    draws: Mapping[int, Sequence[PromptedKind]] = MappingProxyType({}),
) -> Survey:
    """Row lengths for a run of several parts, and the order of its tasks.  `several`: it has
    several, however small.  `draws`: of a task -> its further draws.

    Each kind estimates its sizes.  One compiled length is reserved for examples longer than
    estimated.
    """
    estimated = {
        index: sizes for index, kind in enumerate(kinds) if (sizes := kind.sizes(cost)) is not None
    }
    plain_tokens = 0.0
    for index, sizes in estimated.items():
        plain_tokens += sizes.plain_tokens * (1 + len(draws.get(index, ())))
    if not estimated or (plain_tokens < REQUEST_BATCH_TOKENS and not several):
        return Survey((), 0.0, 0.0, list(range(len(kinds))), estimated)
    longest = {index: sizes.longest for index, sizes in estimated.items()}
    for index in estimated.keys() & draws.keys():
        of_draws = [sizes.longest for draw in draws[index] if (sizes := draw.sizes(cost))]
        longest[index] = max(longest[index], *of_draws)
    most = min(
        -(-max(longest.values()) // cost.length_multiple) * cost.length_multiple,
        cost.max_slots or 1 << 31,
    )
    spare = replace(cost, max_lengths=max(1, cost.max_lengths - 1))
    num_nodes = np.concatenate([sizes.num_nodes for sizes in estimated.values()])
    sizes = np.minimum(np.ceil(num_nodes).astype(np.int64), most)
    order = sorted(range(len(kinds)), key=lambda index: -longest.get(index, most))
    unique_tokens = 0.0
    for index, each in estimated.items():
        times = 1.0
        if index in draws:
            times = times_as_many(kinds[index], draws[index])
        unique_tokens += each.unique_tokens * times
    lengths = choose_lengths(sizes, spare, (most,))
    return Survey(lengths, plain_tokens, unique_tokens, order, estimated)


def cost_of(totals: Totals) -> str:
    """What a run computes with each weights, in a sentence; estimated while only a part of it is
    planned."""
    unique = totals.unique_in_all
    plain = max(totals.plain_tokens, totals.expected)
    flops = totals.useful_flops * unique / max(1, totals.unique_tokens)
    unit, size = next((pair for pair in _FLOPS if flops >= pair[1]), _FLOPS[-1])
    about = "" if totals.share == 1 else "about "
    return (
        f"{about}{unique:,.0f} unique tokens of {plain:,.0f} to compute, {flops / size:,.3g} "
        f"{unit} ({plain / max(1.0, unique):.1f} times fewer than one row a request)"
    )
