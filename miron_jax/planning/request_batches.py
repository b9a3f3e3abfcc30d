"""A run's requests, planned one batch of about PART_TOKENS tokens at a time.

Arrives: batches of Requests.  Leaves: `PlannedPart`s; a `Ledger` remembers what a run has met, so that equal requests
of later batches cost nothing.  It deliberately does not know devices or scores.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from miron_jax.planning.plan import make_plan
from miron_jax.planning.records import CostModel, Plan
from miron_jax.ragged import gather
from miron_jax.tokens.records import Requests

PART_TOKENS = 6_000_000  # plain tokens planned at a time: host memory stays flat and the device starts early


@dataclass(slots=True)
class Totals:
    """Sums over the parts of a run."""

    requests: int = 0
    plain_tokens: int = 0  # one row a request
    unique_tokens: int = 0  # places the plan computes
    padded_tokens: int = 0  # places of its rows
    useful_flops: float = 0.0
    rows: int = 0
    sources: int = 0  # places that go through the head
    edges: int = 0  # scored tokens
    lengths: Counter[int] = field(default_factory=Counter)  # rows of each length

    def add(self, requests: Requests, plan: Plan) -> None:
        self.requests += len(requests)
        self.plain_tokens += int((np.diff(requests.offsets) - 1).sum())
        self.unique_tokens += plan.unique_tokens
        self.padded_tokens += plan.padded_tokens
        self.rows += plan.num_rows
        self.sources += plan.num_sources
        self.edges += len(plan.edge_source)
        self.lengths.update(plan.row_length.tolist())


class Ledger:
    """Which requests of a run are new.  Equal token ids with equal spans are one request, wherever they come from."""

    def __init__(self, id_sets: Sequence[np.ndarray] = ()) -> None:
        self._place: dict[bytes, int] = {}
        self._id_sets, self._set_names = id_sets, dict[int, bytes]()

    def enter(self, requests: Requests) -> tuple[np.ndarray, np.ndarray, list[bytes]]:
        """(place of every request among the run's distinct ones, indices of those met for the first time, their digests)."""
        places, fresh, digests = np.empty(len(requests), np.int64), [], []
        for r in range(len(requests)):
            known, own = len(self._place), self._digest(requests, r)
            places[r] = self._place.setdefault(own, known)
            if places[r] == known:
                fresh.append(r)
                digests.append(own)
        return places, np.asarray(fresh, np.int64), digests

    def _digest(self, requests: Requests, request: int) -> bytes:
        """128 bits that name a request's content: token ids, where its span begins, and the ids of its set."""
        content = requests.tokens(request).tobytes() + int(requests.span_start[request]).to_bytes(4, "little")
        if requests.id_set is not None and requests.id_set[request] >= 0:
            content += b"set" + self._set_name(int(requests.id_set[request]))
        return blake2b(content, digest_size=16).digest()

    def _set_name(self, index: int) -> bytes:
        if index not in self._set_names:
            ids = np.asarray(self._id_sets[index], np.int64)
            self._set_names[index] = blake2b(ids.tobytes(), digest_size=16).digest()
        return self._set_names[index]


def select(requests: Requests, chosen: np.ndarray) -> Requests:
    """The requests at these indices, in this order."""
    token_ids, offsets = gather(requests.token_ids, requests.offsets[chosen], np.diff(requests.offsets)[chosen])
    return Requests(
        token_ids,
        offsets,
        requests.span_start[chosen],
        requests.truncated[chosen],
        requests.inexact_prefix[chosen],
        None if requests.id_set is None else requests.id_set[chosen],
    )


class PlannedPart(NamedTuple):
    """Some requests of a run and where they stand in its rows."""

    places: np.ndarray  # int64 [R], where each request's score stands among the run's distinct ones
    fresh: Requests  # those that no earlier part holds
    digests: list[bytes]  # of these
    plan: Plan
    more: bool  # other parts are to be expected


def plan_parts(
    parts: Iterable[Requests],
    cost: CostModel,
    totals: Totals,
    lengths: tuple[int, ...] = (),
    id_sets: Sequence[np.ndarray] = (),
) -> Iterator[PlannedPart]:
    """Plan a run part by part.  Row lengths of earlier parts are used again and bound the tries of later ones.

    `lengths` are those that the whole run is expected to want: then no other is added, but for a single request that is
    longer than all of them.  `id_sets`: the token ids of each set that requests name.
    """
    ledger = Ledger(id_sets)
    limits = replace(cost, max_lengths=len(lengths)) if lengths else cost
    for requests in parts:
        places, indices, digests = ledger.enter(requests)
        fresh = select(requests, indices)
        bounded = replace(limits, longest=min(cost.longest, max(lengths))) if lengths else limits
        plan = make_plan(fresh, bounded, lengths)
        lengths = tuple(sorted({*lengths, *plan.row_length.tolist()}))
        totals.add(requests, plan)
        yield PlannedPart(places, fresh, digests, plan, len(requests.token_ids) >= PART_TOKENS)
