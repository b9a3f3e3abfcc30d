"""A run's requests, planned one batch of about REQUEST_BATCH_TOKENS tokens at a time.

Arrives: batches of Requests.  Leaves: `RequestBatch`es; a `Ledger` remembers the distinct requests
of a run, so that equal requests of later batches cost nothing.  It deliberately does not know
devices or scores.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from miron_jax.files.kept import ArraysByKey, Job, key_of
from miron_jax.planning.plan import make_plan
from miron_jax.planning.records import CostModel, Plan
from miron_jax.tokens.ragged import gather
from miron_jax.tokens.records import Requests

# tokens that are tokenized and planned about as fast as a file of them is written and synced
LEAST_KEPT = 10_000
# tokens planned at a time: host memory stays flat and the device starts early
REQUEST_BATCH_TOKENS = 6_000_000


@dataclass(slots=True)
class Totals:
    """Sums over the request batches of a run."""

    requests: int = 0
    truncated: int = 0  # of these, those that lose tokens to the length limit
    plain_tokens: int = 0  # at one row per request
    unique_tokens: int = 0  # nodes of the plans
    control_tokens: int = 0  # of these, those of --controls
    without_draws: int | None = None  # unique tokens of one draw of shots; None: not planned
    padded_tokens: int = 0  # slots of their rows
    useful_flops: float = 0.0
    rows: int = 0
    parents: int = 0  # nodes that go through the head
    edges: int = 0  # scored tokens
    lengths: Counter[int] = field(default_factory=Counter)  # rows of each length
    expected: float = 0.0  # plain tokens of the whole run, about; 0: not estimated
    expected_unique: float = 0.0  # unique tokens, likewise
    # task -> unique tokens of it alone, about, however much of it runs
    by_task: dict[str, int] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The share of the run that these sums cover, about, from 0 to 1."""
        if not (self.expected and self.plain_tokens):
            return 1.0
        return min(1.0, self.plain_tokens / self.expected)

    @property
    def unique_in_all(self) -> float:
        """Unique tokens of the whole run, about."""
        return max(self.unique_tokens, self.expected_unique)

    def expect(self, plain_tokens: float, unique_tokens: float) -> None:
        self.expected = plain_tokens
        self.expected_unique = unique_tokens

    def add(self, requests: Requests, plan: Plan) -> None:
        self.requests += len(requests)
        self.truncated += int(requests.truncated.sum())
        self.plain_tokens += int((np.diff(requests.offsets) - 1).sum())
        self.unique_tokens += plan.unique_tokens
        self.padded_tokens += plan.padded_tokens
        self.rows += plan.num_rows
        self.parents += plan.num_parents
        self.edges += len(plan.edge_parent)
        self.lengths.update(plan.row_length.tolist())


class Ledger:
    """The distinct requests of a run so far.  Equal token ids, spans and id sets are one request,
    whatever task has them."""

    def __init__(self, id_sets: Sequence[np.ndarray] = ()) -> None:
        self._idx: dict[bytes, int] = {}
        self._id_sets = id_sets
        self._set_digests = dict[int, bytes]()

    def enter(self, requests: Requests) -> tuple[np.ndarray, np.ndarray, list[bytes]]:
        """(each request's index among the run's distinct ones, the new requests of `requests`, the
        digests of the new)."""
        distinct_idx = np.empty(len(requests), np.int64)
        fresh = []
        digests = []
        for r in range(len(requests)):
            num_distinct = len(self._idx)
            if requests.digests is None:
                digest = self._digest(requests, r)
            else:
                digest = requests.digests[r].tobytes()
            distinct_idx[r] = self._idx.setdefault(digest, num_distinct)
            if distinct_idx[r] == num_distinct:
                fresh.append(r)
                digests.append(digest)
        return distinct_idx, np.asarray(fresh, np.int64), digests

    def _digest(self, requests: Requests, request: int) -> bytes:
        if requests.id_set is None or requests.id_set[request] < 0:
            return digest_of(requests, request)
        of_set = self._set_digest(int(requests.id_set[request]))
        return digest_of(requests, request, b"set" + of_set)

    def _set_digest(self, index: int) -> bytes:
        if index not in self._set_digests:
            ids = np.asarray(self._id_sets[index], np.int64)
            self._set_digests[index] = blake2b(ids.tobytes(), digest_size=16).digest()
        return self._set_digests[index]


def digest_of(requests: Requests, request: int, of_set: bytes = b"") -> bytes:
    """128 bits of a request's content: token ids, span start, and `of_set` of its set's ids."""
    span_start = int(requests.span_start[request]).to_bytes(4, "little")
    tokens = requests.tokens(request).astype(np.int32, copy=False)
    content = tokens.tobytes() + span_start + of_set
    return blake2b(content, digest_size=16).digest()


def with_digests(requests: Requests) -> Requests:
    """Requests without sets of ids, with their digests."""
    digests = b"".join(digest_of(requests, r) for r in range(len(requests)))
    return replace(requests, digests=np.frombuffer(digests, np.uint8).reshape(-1, 16))


def select(requests: Requests, chosen: np.ndarray) -> Requests:
    """The requests at these indices, in this order."""
    if np.array_equal(chosen, np.arange(len(requests))):
        return requests
    token_ids, offsets = gather(
        requests.token_ids, requests.offsets[chosen], np.diff(requests.offsets)[chosen]
    )
    id_set = None if requests.id_set is None else requests.id_set[chosen]
    flags = requests.truncated[chosen], requests.inexact_prefix[chosen]
    return Requests(token_ids, offsets, requests.span_start[chosen], *flags, id_set)


class RequestBatch(NamedTuple):
    """Requests of a run that are planned together."""

    distinct_idx: np.ndarray  # int64 [R], index of each request among the run's distinct ones
    fresh: Requests  # the distinct ones that no earlier batch has
    digests: list[bytes]  # of the fresh ones
    plan: Plan  # of the fresh ones
    more: bool  # more batches are likely to follow
    pieces: Sequence[Any] = ()  # what the requests are of, in their order; only the caller knows it


class EnteredBatch(NamedTuple):
    """Requests that are planned together, before they are."""

    requests: Requests
    distinct_idx: np.ndarray  # as `RequestBatch` has them
    fresh: Requests
    digests: list[bytes]
    pieces: Sequence[object]


class RequestPlanner:
    """Plans a run batch by batch.  Row lengths of earlier batches are used again and bound the
    tries of later ones.

    `lengths`: row lengths chosen for the whole run; no other is added except for a single request
    that is longer than all of them.  `id_sets`: the token ids of each set that requests name.
    `totals` grows with each batch.  `kept`: plans of earlier runs; None: none are kept.
    """

    def __init__(
        self,
        cost: CostModel,
        totals: Totals,
        lengths: tuple[int, ...] = (),
        id_sets: Sequence[np.ndarray] = (),
        kept: ArraysByKey | None = None,
    ) -> None:
        self._kept = kept
        self._cost = replace(cost, max_lengths=len(lengths)) if lengths else cost
        self._totals = totals
        self._lengths = lengths
        self._ledger = Ledger(id_sets)
        self.bounds_tries = True  # no trie is longer than the rows so far; else rows may be added

    def plan(self, requests: Requests, pieces: Sequence[Any] = ()) -> RequestBatch:
        return self.planned(self.enter(requests, pieces))

    def enter(self, requests: Requests, pieces: Sequence[object] = ()) -> EnteredBatch:
        """The next batch of the run, to be planned after those that were entered before it."""
        distinct_idx, fresh_idx, digests = self._ledger.enter(requests)
        return EnteredBatch(requests, distinct_idx, select(requests, fresh_idx), digests, pieces)

    def planned(self, entered: EnteredBatch) -> RequestBatch:
        plan = self._kept_plan(entered)
        self._lengths = tuple(sorted({*self._lengths, *plan.row_length.tolist()}))
        self._totals.add(entered.requests, plan)
        more = len(entered.requests.token_ids) >= REQUEST_BATCH_TOKENS
        _, distinct_idx, fresh, digests, pieces = entered
        return RequestBatch(distinct_idx, fresh, digests, plan, more, pieces)

    def job(self, entered: EnteredBatch) -> Iterator[Job]:
        """What makes the batch's plan in one process for all, unless the batches before it add a
        row length; nothing: each makes it."""
        if len(entered.fresh.token_ids) >= LEAST_KEPT:
            lengths = self._lengths
            key = _plan_key(entered, self._cost_now, lengths)
            make = partial(_made_plan, entered.fresh, self._cost_now, lengths)
            yield Job(key, len(entered.fresh.token_ids), make)

    @property
    def _cost_now(self) -> CostModel:
        if not (self._lengths and self.bounds_tries):
            return self._cost
        return replace(self._cost, longest=min(self._cost.longest, max(self._lengths)))

    def _kept_plan(self, entered: EnteredBatch) -> Plan:
        """The plan of these requests: kept by an earlier run, or made and kept."""
        fresh = entered.fresh
        if self._kept is None or len(fresh.token_ids) < LEAST_KEPT:
            return make_plan(fresh, self._cost_now, self._lengths)
        key = _plan_key(entered, self._cost_now, self._lengths)
        arrays = self._kept.get(key)
        if arrays is None:
            arrays = _made_plan(fresh, self._cost_now, self._lengths)
            self._kept.put(key, arrays)
        return Plan(**arrays)


def _made_plan(fresh: Requests, cost: CostModel, lengths: tuple[int, ...]) -> dict[str, np.ndarray]:
    plan = make_plan(fresh, cost, lengths)
    return {each.name: getattr(plan, each.name) for each in fields(Plan)}


def _plan_key(entered: EnteredBatch, cost: CostModel, lengths: tuple[int, ...]) -> str:
    """Of all that `make_plan` looks at; sets of ids stand in a plan by their numbers."""
    requests = entered.fresh
    id_set = None if requests.id_set is None else requests.id_set.tobytes()
    classes = None
    if cost.length_class is not None:
        classes = [*map(cost.length_class, np.unique(np.diff(requests.offsets)).tolist())]
        cost = replace(cost, length_class=None)
    return key_of("plan", b"".join(entered.digests), id_set, cost, classes, lengths)


def plan_request_batches(
    batches: Iterable[Requests],
    cost: CostModel,
    totals: Totals,
    lengths: tuple[int, ...] = (),
    id_sets: Sequence[np.ndarray] = (),
) -> Iterator[RequestBatch]:
    """Plan a run batch by batch: see `RequestPlanner`."""
    return map(RequestPlanner(cost, totals, lengths, id_sets).plan, batches)
