"""Prompts of a task, and requests of some of them -> the lengths of its rows and the number of its
tokens, estimated before the task is tokenized.

Arrives: rendered prompts, the requests of some.  Leaves: `RowSizes`.  It deliberately does not know
tokenizers or profiles.

Requests are sorted by their texts, and the bytes that each one and the one before it begin with are
counted.  The tokenized ones say how many tokens stand for so many bytes.  A trie of sequences that
are so long, and share so much, is cut as a plan is.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import compress, pairwise
from typing import NamedTuple

import numpy as np

from miron_jax.evaluation.task_kinds.interface import RowSizes
from miron_jax.planning.records import CostModel
from miron_jax.planning.request_batches import select
from miron_jax.planning.tries import Trie, cut, share_within, sort_requests, subtrie_sizes
from miron_jax.prompting.prompts import Prompt
from miron_jax.tokens.ragged import offsets_of
from miron_jax.tokens.records import Requests

# prompts of a task that are tokenized: all of a task of so many bytes; else the longest, and some
# of every size, a multiple of SAMPLED: at least TIMES or VARIED of them, one prompt in SAMPLED_OF
SMALL, LONGEST, SAMPLED, TIMES, VARIED, SAMPLED_OF = 1 << 19, 8, 32, 2, 16, 100


class Sample(NamedTuple):
    """Some prompts of a task."""

    index: np.ndarray  # int64, of each; the longest ones come first
    prompts: Sequence[Prompt]  # as they are tokenized: without the shots that have no room
    requests: Requests


class _Texts(NamedTuple):
    """Distinct requests in the order of their texts; int64."""

    count: np.ndarray  # equal requests
    whole: np.ndarray  # UTF-8 bytes
    common: np.ndarray  # bytes of the beginning that the request before it has too
    continuation: np.ndarray  # bytes


def row_bytes(prompts: Sequence[Prompt]) -> np.ndarray:
    """UTF-8 bytes of each prompt with all its choices, int64."""
    rows = ((*prompt.shots, prompt.contexts[0], *prompt.continuations) for prompt in prompts)
    return np.array([sum(map(_num_bytes, row)) for row in rows], np.int64)


def sampled(num_bytes: np.ndarray, times: int = TIMES) -> np.ndarray:
    """Indices of the prompts to be tokenized: see `Sample`.  `num_bytes`: `row_bytes` of all;
    `times`: so many times SAMPLED."""
    if num_bytes.sum() <= SMALL:
        return np.arange(len(num_bytes))
    by_size = np.argsort(num_bytes, kind="stable")
    step = max(1, len(num_bytes) // SAMPLED)
    times = max(times, step // SAMPLED_OF)
    others = np.unique(np.concatenate([by_size[i * step // times :: step] for i in range(times)]))
    longest = by_size[-LONGEST:]
    return np.concatenate([longest, others[~np.isin(others, longest)]])


def varies(sample: Sample) -> bool:
    """Whether it is chance what choices share: too long, they share their context where they lose
    equally many tokens."""
    begin = offsets_of([len(prompt.contexts) for prompt in sample.prompts])[:-1]
    span = np.diff(sample.requests.offsets) - sample.requests.span_start
    differ = np.maximum.reduceat(span, begin) != np.minimum.reduceat(span, begin)
    return float((differ & sample.requests.truncated[begin]).mean()) > 1 / 8


def row_sizes(
    prompts: Sequence[Prompt],
    num_bytes: np.ndarray,
    sample: Sample,
    max_length: int | None,
    cost: CostModel,
) -> RowSizes:
    """Estimates tokens from the bytes of all prompts, at the rates of the sample."""
    by_size = np.argsort(num_bytes, kind="stable")
    tried = [*by_size[-LONGEST:], *by_size[:: max(1, len(prompts) // SAMPLED)]]
    is_tried = np.isin(sample.index, tried)
    ends = offsets_of([len(prompt.contexts) for prompt in sample.prompts]).tolist()
    each = (select(sample.requests, np.arange(a, b)) for a, b in compress(pairwise(ends), is_tried))
    row = np.asarray([_row(requests, cost) for requests in each])
    rate_of_rows = row.sum() / num_bytes[sample.index[is_tried]].sum()
    num_nodes = np.minimum(num_bytes * rate_of_rows, row.max())

    plain = np.add.reduceat(np.diff(sample.requests.offsets) - 1, ends[:-1])
    if len(sample.prompts) == len(prompts):
        whole = sort_requests(sample.requests, cost)
        unique = _nodes(whole, cut(whole, cost))
        return RowSizes(int(row.max()), num_nodes, float(plain.sum()), float(unique))

    rate = _rate(sample)
    usual = slice(LONGEST, None)  # what the longest are like says little about the others
    texts = _texts(prompts)
    trie = _trie(texts, rate, max_length)
    some_texts = _texts([prompts[i] for i in sample.index[usual].tolist()])
    some = _trie(some_texts, rate, max_length)
    of_usual = select(sample.requests, np.arange(ends[LONGEST], ends[-1]))
    return RowSizes(
        longest=int(row.max()),
        num_nodes=num_nodes,
        plain_tokens=_plain_tokens(texts, trie)
        * int(plain[usual].sum())
        / _plain_tokens(some_texts, some),
        unique_tokens=_nodes(trie, cut(trie, cost))
        * _nodes(sort_requests(of_usual, cost))
        / _nodes(some),
    )


def sizes_of(requests: Requests, cost: CostModel) -> RowSizes:
    """Of requests that are all tokenized: what no plan of them cuts counts as a row."""
    trie = sort_requests(requests, cost)
    first = cut(trie, cost)
    num_nodes, _ = subtrie_sizes(share_within(trie, first), first)
    plain = float((np.diff(requests.offsets) - 1).sum())
    return RowSizes(
        int(num_nodes.max()), num_nodes.astype(np.float64), plain, float(num_nodes.sum())
    )


def _rate(sample: Sample) -> float:
    """Tokens a byte, of the requests that lost none."""
    num_bytes = np.asarray(
        [
            sum(map(_num_bytes, (*prompt.shots, *choice)))
            for prompt in sample.prompts
            for choice in zip(prompt.contexts, prompt.continuations, strict=True)
        ]
    )
    is_whole = ~sample.requests.truncated
    if not is_whole.any():
        return 1.0  # at least: all are as long as may be
    return np.diff(sample.requests.offsets)[is_whole].sum() / num_bytes[is_whole].sum()


def _trie(texts: _Texts, rate: float, max_length: int | None) -> Trie:
    """Sequences of about these lengths.  Those that lose their left ends share something if they
    lose the same."""
    span = np.maximum(1, np.rint(texts.continuation * rate).astype(np.int64))
    context = np.rint((texts.whole - texts.continuation) * rate).astype(np.int64)
    whole = np.maximum(1, context) + span
    length = whole if max_length is None else np.minimum(whole, max_length)
    lost = whole - length
    common = np.minimum(np.rint(texts.common * rate).astype(np.int64), whole) - lost
    common = np.where(lost == np.roll(lost, 1), np.maximum(common, 0), 0)
    return Trie(
        tokens=np.zeros(0, np.int32),
        offset=offsets_of(length),
        span_start=np.maximum(1, length - span),
        common=common,
        shared=np.minimum(common, np.minimum(length, np.roll(length, 1)) - 1),
        request_sequence=np.arange(len(length)),
        rope_class=np.zeros(0, np.int32),
    )


def _nodes(trie: Trie, first: np.ndarray | None = None) -> int:
    """Nodes of a trie that is cut before these sequences; None: it is not cut."""
    added = np.maximum(trie.length - 1 - trie.shared, 0)
    if first is not None:
        added[first] = trie.length[first] - 1
    return int(added.sum())


def _plain_tokens(texts: _Texts, trie: Trie) -> int:
    return int((texts.count * (trie.length - 1)).sum())


def _row(requests: Requests, cost: CostModel) -> int:
    """Nodes of an example's row: of all its choices with their common prefix shared, or of the
    longest without a forest."""
    length = np.diff(requests.offsets)
    if cost.sharing != "forest":
        return int(length.max()) - 1
    return int(length.max() + np.sort(length - requests.span_start)[:-1].sum())


def _texts(prompts: Sequence[Prompt]) -> _Texts:
    counts = Counter(
        (prompt.shots, *choice)
        for prompt in prompts
        for choice in zip(prompt.contexts, prompt.continuations, strict=True)
    )
    rows = list[tuple[int, int, int, int]]()
    before: tuple[str, ...] = ()
    shots_before: tuple[str, ...] = ()
    preamble = 0  # bytes
    for shots, context, continuation in sorted(counts):
        texts = (context, continuation)
        if shots is shots_before:
            common = preamble + _common_bytes(before, texts)
        else:
            preamble = sum(map(_num_bytes, shots))
            common = _common_bytes((*shots_before, *before), (*shots, *texts))
        behind = _num_bytes(continuation)
        whole = preamble + _num_bytes(context) + behind
        rows.append((counts[shots, context, continuation], whole, common, behind))
        shots_before = shots
        before = texts
    return _Texts(*np.asarray(rows, np.int64).T)


def _common_bytes(left: Sequence[str], right: Sequence[str]) -> int:
    """Bytes that two texts, given as their parts, begin with alike."""
    num_bytes = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            size = min(len(a), len(b))
            same = bisect_left(range(size), True, key=lambda n: a[: n + 1] != b[: n + 1])
            return num_bytes + _num_bytes(a[:same])
        num_bytes += _num_bytes(a)
    return num_bytes


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
