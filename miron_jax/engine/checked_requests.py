"""The requests that the self-check scores.

Arrives: planned request batches.  Leaves: indices of requests.  It deliberately does not know
scores.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np

from miron_jax.engine.plain import plain_length
from miron_jax.model.config import ModelConfig
from miron_jax.model.costs import cost_model
from miron_jax.model.network import Network
from miron_jax.planning.records import CostModel, Plan
from miron_jax.planning.request_batches import RequestBatch
from miron_jax.runtime.devices import Placement

# of a batch whose scores are compared, whatever they cost
CHECKED_ALWAYS = 2
CHECKED_AT_LEAST = 8  # as far as they may cost so much
CHECKED_SHARE = 1 / 1000
# Later weights run the same programs on the same rows: they are checked by a part of the same
# requests, another one each time.
PARTS_LATER = 4
# A plain row takes as long as so many forest rows of its length: of SmolLM2-135M 1.2 (448 tokens)
# to 2.3 (1,920) on a CPU; by the compilers' programs of 1,344 and 5,376 tokens 10 and 2.4 on an
# H100, where long ones take most of a run's seconds, and 4.5 and 8.8 on a TPU v5e.
PLAIN_PRICE = {"cpu": 2.0, "gpu": 3.0, "tpu": 8.0}
COST_SHARE = 1 / 10  # of the time of the run's rows, that the check may take
# What a device may spend in a short run: about 2 s of a 2-core CPU, less of an accelerator.
LEAST_FLOPS = {"cpu": 2e11}
LEAST_FLOPS_ELSEWHERE = 2e13
# tokens of a request that is checked for its kind: dense attention takes memory for all pairs
CHECKED_UP_TO = 8192


class _RequestKind(NamedTuple):
    """Requests of a batch of which one may be computed wrongly where others are right."""

    row_length: int  # the compiled program
    has_query: bool  # an id set is summed too
    is_stretched: bool  # the request's length selects other rotary frequencies than a short one's
    is_first: bool  # of the rows of this length
    is_second: bool
    is_last: bool
    has_siblings: bool  # the row has nodes of the same trie before its end that it must not see
    has_strangers: bool  # the row has other tries before it

    @property
    def needs(self) -> set[tuple[object, ...]]:
        """What a checked request of this kind covers of that which every batch must have
        covered."""
        program = ("program", self.row_length, self.has_query, self.is_stretched)
        neighbours = self._with_length("has_siblings", "has_strangers")
        return {program, *neighbours, *((name,) for name, _ in self.wishes)}

    @property
    def wishes(self) -> set[tuple[str, int]]:
        """Of that which is covered as far as its cost allows: first, second and last rows of each
        length."""
        return self._with_length("is_first", "is_second", "is_last")

    def _with_length(self, *names: str) -> set[tuple[str, int]]:
        """Those of these traits that it has, each with the length of its row."""
        return {(name, self.row_length) for name in names if getattr(self, name)}


@dataclass(slots=True)
class CheckedRequests:
    """Chooses the requests of a run that are checked, batch by batch, and the lengths of their
    plain rows: a program each, two in a run.

    Plans, digests, costs and the devices alone decide, so all hosts choose the same; a run that
    goes on with other devices may choose others.
    FLOPs are those of one device, or of the devices that compute a row together.
    """

    cost: CostModel
    least_flops: float = LEAST_FLOPS_ELSEWHERE  # that the check may cost in any run
    num_positions: int | None = None  # that the model has learned
    together: int = 1  # plain rows that the devices of the process which checks compute at a time
    processes: int = 1  # that share the rows of the run; one of them checks
    price: float = PLAIN_PRICE["cpu"]  # of a plain row, in forest rows of its length
    lengths: set[int] = field(default_factory=set)  # of plain rows
    planned: float = 0.0  # FLOPs of all rows so far
    spent: float = 0.0  # by plain rows

    @classmethod
    def of(cls, config: ModelConfig | Network, placement: Placement, processes: int = 1) -> Self:
        platform = placement.device.platform
        return cls(
            cost_model(config),
            LEAST_FLOPS.get(platform, LEAST_FLOPS_ELSEWHERE),
            config.num_positions,
            math.prod(placement.row_places),
            processes,
            PLAIN_PRICE.get(platform, PLAIN_PRICE["gpu"]),
        )

    def choose(self, batch: RequestBatch) -> list[int]:
        """The requests of the next batch that are checked.

        A fault may lie in one program, in one row of a batch, or only where a row holds other
        requests.  So the longest request is checked and the last one of the row that has most,
        then what covers all `_RequestKind.needs` of the batch, then `_RequestKind.wishes`, then a
        share by the digests.  In a run that costs more than `least_flops` / COST_SHARE the longest
        is that which a half of what is left pays for.
        """
        flops = float(self.cost.rows_of(batch.plan).sum())
        self.planned += flops / (self.together * self.processes)
        allowed = max(self.least_flops, COST_SHARE * self.planned)
        spare = allowed - self.spent
        num_tokens = np.diff(batch.fresh.offsets)
        scored = np.flatnonzero(np.diff(batch.plan.request_edge_offset))
        if not len(scored):
            return []
        length = np.asarray([plain_length(n, self.num_positions) for n in num_tokens.tolist()])
        price = self.price * self.cost.row(length)
        requests = self._candidates(scored, length)
        most = math.inf
        if allowed > self.least_flops:
            most = 0.5 * spare
        is_cheap = price[requests] <= max(most, price[requests].min())
        longest = int(length[requests[is_cheap]].max())

        known = {*self.lengths}
        if longest > max(known, default=0):
            known.add(longest)
        chosen = self._within(batch, requests, known, spare)
        short = plain_length(longest // 4, self.num_positions)
        if len(known) == 1 and short < longest:
            left = spare - self.cost.flops_per_program
            with_short = self._within(batch, requests, {*known, short}, left)
            if len(with_short.chosen) > len(chosen.chosen):
                chosen = with_short
        self.lengths = chosen.lengths
        self.spent += chosen.cost
        return list(chosen.chosen)

    def later(self, chosen: list[int], turn: int) -> list[int]:
        """Those of the chosen requests that are checked for later weights, whose number is `turn`:
        a part, and what fills up the rows that are computed at a time."""
        times = math.ceil(len(chosen) / PARTS_LATER / self.together)
        count = min(len(chosen), max(CHECKED_ALWAYS, times * self.together))
        first = turn * count
        return [chosen[k % len(chosen)] for k in range(first, first + count)]

    def lengths_of(self, num_tokens: Sequence[int]) -> list[int]:
        """Of the plain row of each request; a request longer than all of them adds one."""
        longest = max(num_tokens, default=0)
        if longest > max(self.lengths, default=0):
            self.lengths = {*self.lengths, plain_length(longest, self.num_positions)}
        return [min(length for length in self.lengths if length >= n) for n in num_tokens]

    def _candidates(self, scored: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Requests that fit dense attention and the programs that are there; where none do, the
        shortest."""
        most = CHECKED_UP_TO
        longest = max(self.lengths, default=0)
        if len(self.lengths) > 1 and length[scored].max() <= 2 * longest:
            most = min(most, longest)
        candidates = scored[length[scored] <= most]
        if len(candidates):
            return candidates
        return scored[[int(np.argmin(length[scored]))]]

    def _within(
        self, batch: RequestBatch, requests: np.ndarray, lengths: set[int], spare: float
    ) -> "_Basket":
        """What is chosen of these requests if plain rows have these lengths."""
        num_tokens = np.diff(batch.fresh.offsets)
        steps = np.asarray(sorted(lengths))
        requests = requests[num_tokens[requests] <= steps[-1]]
        price = np.full(len(num_tokens), math.inf)
        rows = steps[np.searchsorted(steps, num_tokens[requests])]
        price[requests] = self.price * self.cost.row(rows)
        basket = _Basket(price, spare, lengths, self.together)
        _cover(batch, requests, basket)
        num_checked = max(CHECKED_AT_LEAST, math.ceil(CHECKED_SHARE * len(requests)))
        for r in sorted(requests.tolist(), key=batch.digests.__getitem__):
            if len(basket.chosen) >= num_checked:
                break
            basket.add(r)
        return basket


# by a batch's identity, while it is kept: the requests, and what the next batch is chosen from
Choices = dict[int, tuple[list[int], CheckedRequests]]


class _Basket:
    """Requests that are chosen, and what is left to spend."""

    def __init__(self, price: np.ndarray, spare: float, lengths: set[int], together: int) -> None:
        """`price`: of each request of the batch, in rows of one length the same."""
        self.price = price
        self.spare = spare
        self.lengths = lengths
        self.together = together
        self.room: dict[float, int] = {}  # price of a row -> such rows that cost nothing more
        self.cost = 0.0
        self.chosen: dict[int, None] = {}

    def add(self, r: int) -> bool:
        """Whether the request is chosen, now or before; the first CHECKED_ALWAYS are in any
        case."""
        if r not in self.chosen:
            price = float(self.price[r])
            room = self.room.get(price, 0)
            paid = 0.0 if room else price
            if self.cost + paid > self.spare and len(self.chosen) >= CHECKED_ALWAYS:
                return False
            self.room[price] = (room or self.together) - 1
            self.chosen[r] = None
            self.cost += paid
        return True


def _cover(batch: RequestBatch, requests: np.ndarray, basket: _Basket) -> None:
    """Choose the longest request, the last one of the row that has most, and those that cover the
    needs and wishes of the batch."""
    columns, slot = _kinds_of(batch.plan, requests)
    row = batch.plan.request_row[requests]
    # what ends furthest right in its row is long, and has most neighbours
    digest = np.frombuffer(b"".join(batch.digests[r][:8] for r in requests.tolist()), ">u8")
    order = np.lexsort((digest, -slot))
    requests = requests[order]
    columns = columns[order]
    num_tokens = np.diff(batch.fresh.offsets)[requests]
    mates = np.bincount(row)[row[order]]

    covered = set[tuple[object, ...]]()
    for i in (int(np.argmax(num_tokens)), int(np.argmax(mates))):
        kind = _RequestKind(*columns[i].tolist())
        basket.add(int(requests[i]))
        covered |= kind.needs | kind.wishes

    # of each kind the one that ends furthest right, and where that costs too much the shortest
    _, first, kind_idx = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    kind_idx = kind_idx.ravel()
    by_length = np.lexsort((num_tokens, kind_idx))
    shortest = by_length[np.searchsorted(kind_idx[by_length], np.arange(len(first)))]
    waiting = {
        _RequestKind(*columns[i].tolist()): (int(requests[i]), int(requests[short]))
        for i, short in sorted(zip(first.tolist(), shortest.tolist(), strict=True))
    }
    while waiting:
        kind = max(
            waiting, key=lambda kind: (len(kind.needs - covered), len(kind.wishes - covered))
        )
        candidates = waiting.pop(kind)
        if kind.needs | kind.wishes <= covered:
            break
        if any(map(basket.add, candidates)):
            covered |= kind.needs | kind.wishes


def _kinds_of(plan: Plan, requests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64 [n, fields of _RequestKind], the slot of the node before each one's last token)."""
    row = plan.request_row[requests]
    slot = plan.edge_parent[plan.request_edge[plan.request_edge_offset[requests + 1] - 1]]
    node = plan.node_offset[row] + slot
    # every subtrie begins with its requests' first token
    roots = np.flatnonzero(plan.position == 0)
    root = roots[np.searchsorted(roots, node, side="right") - 1]
    rope_class = plan.rope_class[node] if len(plan.rope_class) else np.zeros(len(node), np.int32)

    _, length_idx, count = np.unique(plan.row_length, return_inverse=True, return_counts=True)
    rank = np.empty(plan.num_rows, np.int64)  # of each row among those of its length
    rank[np.argsort(length_idx, kind="stable")] = np.concatenate([*map(np.arange, count)])
    columns = (
        plan.row_length[row],
        plan.request_query[requests] >= 0,
        rope_class > 0,
        rank[row] == 0,
        rank[row] == 1,
        rank[row] == count[length_idx[row]] - 1,
        node - root > plan.position[node],
        root > plan.node_offset[row],
    )
    return np.stack([column.astype(np.int64) for column in columns], axis=1), slot
