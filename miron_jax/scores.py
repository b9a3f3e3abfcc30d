"""Walks a Plan: one score a request, exactly once.

Arrives: Requests, a Forward.  Leaves: `Scores`, flat arrays in the order of the requests.  It deliberately does not
know tasks or text.  A `Ledger` remembers what a run has met: equal requests of later parts cost nothing.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from miron_jax.costs import cost_model
from miron_jax.errors import InputError
from miron_jax.forward import Forward, Model, RowScores
from miron_jax.hosts import Hosts, deal
from miron_jax.journal import Entries, Journal
from miron_jax.model.own import OwnModel, check_own
from miron_jax.plain import PlainScore, score_plainly
from miron_jax.plan import CostModel, Plan, make_plan
from miron_jax.token_requests import Requests, gather

# Largest difference in nats a token that rounding may cause between a forest row and a plain row, by dtype.  float32 at
# highest matmul precision: sums of a few thousand terms in another order.  bfloat16: operands keep 8 bits, and a
# different order of sums moves roundings of the attention weights.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25}
PART_TOKENS = 6_000_000  # plain tokens planned at a time: host memory stays flat and the device starts early
CHECKED_AT_LEAST, CHECKED_SHARE = 8, 1 / 1000


class SelfCheckFailed(Exception):
    """The fast path and the plain path disagree: no number of this run can be trusted.  Exit status 1."""


@dataclass(frozen=True, slots=True)
class Scores:
    """R requests: the scored tokens of request r are [offsets[r], offsets[r + 1])."""

    offsets: np.ndarray  # int64 [R + 1]
    logprob: np.ndarray  # float32 [N], nats
    rank: np.ndarray  # int32 [N], tokens ahead of the target
    set_logprob: np.ndarray  # float32 [R], nats: log p of the request's id set before its span; 0 where it has none

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator["Score"]:
        return (self[request] for request in range(len(self)))

    def __getitem__(self, request: int) -> "Score":
        span = slice(self.offsets[request], self.offsets[request + 1])
        return Score(self.logprob[span], self.rank[span], float(self.set_logprob[request]))


class Score(NamedTuple):
    """One request's scored span, token by token."""

    logprob: np.ndarray  # float32, nats
    rank: np.ndarray  # int32, tokens ahead of the target; 0 is greedy
    set_logprob: float = 0.0  # nats, see Scores


@dataclass(slots=True)
class SelfCheck:
    """Scores a share of the requests, chosen by hash, the plain way, and compares.  Sums over the parts of a run."""

    tolerance: float  # nats a token
    requests: int = 0
    tokens: int = 0
    largest: float = 0.0  # largest absolute difference so far, nats a token
    seconds: float = 0.0
    programs: int = 0

    def compare(self, model: Model, part: "PlannedPart", scores: Scores, judge: bool = True) -> None:
        """Raises SelfCheckFailed where a scored token differs by more than the tolerance, or only one of the two is NaN.

        Without `judge` only the programs run, which all processes of a mesh that spans hosts must.
        """
        scored = np.flatnonzero(np.diff(scores.offsets)).tolist()
        wanted = max(CHECKED_AT_LEAST, math.ceil(CHECKED_SHARE * len(scored)))
        chosen = sorted(scored, key=part.digests.__getitem__)[:wanted]
        names = [f"request {part.digests[r].hex()}" for r in chosen]
        asked = [(part.fresh.tokens(r), int(part.fresh.span_start[r])) for r in chosen]
        self.compare_with(model, asked, [scores[r] for r in chosen], names, judge)

    def compare_with(
        self,
        model: Model,
        asked: Sequence[tuple[np.ndarray, int]],
        scores: Sequence[Score],
        names: Sequence[str],
        judge: bool = True,
    ) -> None:
        """The same of these requests: token ids and where the span begins."""
        start = time.perf_counter()
        plain, programs = score_plainly(model, [ids for ids, _ in asked], [first for _, first in asked])
        for (ids, _), score, other, name in zip(asked, scores, plain, names, strict=True):
            if judge:
                self._judge(score, other, f"{name} ({len(ids)} tokens)")
            self.tokens += len(other.logprob)
        self.requests += len(asked)
        self.programs += programs
        self.seconds += time.perf_counter() - start

    def probe(self, model: Model) -> None:
        """Whether a user's own model keeps its word, before anything is scored.  Raises InputError with the reason."""
        start = time.perf_counter()
        assert isinstance(model.config, OwnModel)
        check_own(model.config, model.on_one_device.state, self.tolerance)
        self.seconds += time.perf_counter() - start

    def _judge(self, score: Score, plain: PlainScore, name: str) -> None:
        same = (score.logprob == plain.logprob) | (np.isnan(score.logprob) & np.isnan(plain.logprob))
        with np.errstate(invalid="ignore"):  # infinity less infinity, which `same` has settled
            difference = np.where(same, 0.0, np.abs(score.logprob.astype(np.float64) - plain.logprob))
        worst = float(difference.max())
        if not worst <= self.tolerance:
            raise SelfCheckFailed(
                f"self-check: {name} differs by {worst:.3g} nats from its plain score, expected at most "
                f"{self.tolerance:g}; no score of this run can be trusted, please report it"
            )
        # Where the margin over every other token is clear, the rank must say the same.
        clear = np.abs(plain.margin) > 2 * self.tolerance
        if (clear & ((score.rank == 0) != (plain.margin > 0))).any():
            raise SelfCheckFailed(
                f"self-check: {name} has a token whose rank {score.rank.tolist()} contradicts its plain margin; no score "
                "of this run can be trusted, please report it"
            )
        self.largest = max(self.largest, worst)


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


def score_parts(
    parts: Iterable[Requests],
    forward: Forward,
    cost: CostModel,
    totals: Totals,
    check: SelfCheck,
    progress: Callable[[int], None] = lambda tokens: None,
    lengths: tuple[int, ...] = (),
) -> Iterator[Scores]:
    """Plan and score each part in turn.  Raises SelfCheckFailed; what the parts raise (InputError) comes through."""
    return score_planned(plan_parts(parts, cost, totals, lengths, forward.id_sets), forward, check, progress)


def score_planned(
    planned: Iterable[PlannedPart],
    forward: Forward,
    check: SelfCheck,
    progress: Callable[[int], None] = lambda tokens: None,
    journal: Journal | None = None,
    hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
    name: str = "",
) -> Iterator[Scores]:
    """Score each part in turn; the next one is tokenized and planned while the device works on this one.  Rows whose
    requests all stand in the journal are not computed; others go there when they are.

    Several `hosts` that have all weights each deal the rows of every part out between them; they meet in the journal, and
    only the first one yields scores, when all parts are done.  On a mesh that spans them all compute the same, and scores
    of others than the first stand for nothing where the journal had them.  `name` of these weights is used once.
    """
    known, coming, met, load = _Known(), iter(planned), list[PlannedPart](), np.zeros(hosts.count)
    each_its_share = hosts.count > 1 and not forward.placement.is_global
    host = ThreadPoolExecutor(1)
    try:
        upcoming = host.submit(next, coming, None)
        while (part := upcoming.result()) is not None:
            upcoming = host.submit(next, coming, None)
            met.append(part)
            own_name = f"{name}/{len(met)}"
            _same_plan(hosts, own_name, part)
            if each_its_share:
                assert journal is not None, "hosts meet in the journal"
                _score_share(part, forward, progress, journal, hosts, own_name, load)
                continue
            scores = _score(part, forward, progress, journal, hosts, own_name)
            scores = _alone_where_nan(scores, part, forward, hosts, own_name)
            check.compare(forward.model, part, scores, hosts.is_first)
            known.append(scores)
            yield known.take(part.places)
        _same_plan(hosts, f"{name}/{len(met) + 1}", None)
        if each_its_share:
            assert journal is not None
            meet(journal, hosts, f"{name}/scored")
            hosts.tell(f"{name}/speed", forward.speed.told)
            if hosts.is_first:
                forward.speed.add(hosts.gather(f"{name}/speed")[1:])
            for part in met if hosts.is_first else ():
                scores = _score(part, forward, progress, journal)  # all is there but where the model answered NaN
                scores = _alone_where_nan(scores, part, forward)
                check.compare(forward.model, part, scores)
                known.append(scores)
                yield known.take(part.places)
    finally:
        host.shutdown(wait=False, cancel_futures=True)  # a run that is interrupted does not wait for its next part


def _same_plan(hosts: Hosts, name: str, part: PlannedPart | None) -> None:
    """Every host makes the same plan; None: of no further part.  Raises InputError where this one made another."""
    if hosts.count == 1:
        return
    told = None
    if part is not None:
        told = blake2b(b"".join(part.digests) + part.plan.row_length.tobytes(), digest_size=16).hexdigest()
    if hosts.agree(f"{name}/plan", told) != told:
        raise InputError(
            f"process {hosts.index} has other requests than process 0: give all hosts the same flags, benchmark data, "
            "tokenizer and versions"
        )


def meet(journal: Journal, hosts: Hosts, name: str) -> None:
    """All that this process has finished is in the journal; the first one waits for the others, and reads theirs."""
    journal.flush()
    hosts.tell(name, journal.written)
    if hosts.is_first:
        journal.read_those_of(hosts.gather(name))


def _score_share(
    part: PlannedPart,
    forward: Forward,
    progress: Callable[[int], None],
    journal: Journal,
    hosts: Hosts,
    name: str,
    load: np.ndarray,
) -> None:
    """This process's rows of a part, then what others have not begun, into the journal.  `load`: see `deal`."""
    plan, table = part.plan, _Table(part)
    lacking = np.zeros(plan.num_rows, bool)
    lacking[table.take_from(journal, progress)] = True
    batch = forward.size(plan, part.more, hosts.count)
    shards, sizes = hosts.agree(f"{name}/batch", [forward.placement.shards, list(batch.items())])
    cost = cost_model(forward.model.config).row(plan.row_length)
    lists = deal(plan.row_length, cost, hosts.count, shards, dict(sizes), load)
    own = np.asarray([row for rows in lists[hosts.index] for row in rows if lacking[row]], np.int64)
    forward.compile(plan, part.more, own)
    taken = ([row for row in rows if lacking[row]] for rows in hosts.take(name, lists))
    for scored in forward.run(plan, part.more, (rows for rows in taken if rows)):
        hosts.step()
        table.write(scored)
        journal.add(table.entries(scored.rows))
        progress(scored.tokens)


def _alone_where_nan(
    scores: Scores,
    part: PlannedPart,
    forward: Forward,
    hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
    name: str = "",
) -> Scores:
    """Requests with NaN once more, each in a row of its own: in a row that many share, 0 x NaN reaches them all."""
    wrong = np.isnan(scores.set_logprob)
    owner = np.repeat(np.arange(len(scores)), np.diff(scores.offsets))
    wrong[owner[np.isnan(scores.logprob)]] = True
    chosen = np.asarray(hosts.agree(f"{name}/nan", np.flatnonzero(wrong).tolist()), np.int64)
    if not len(chosen):
        return scores
    one_a_row = replace(cost_model(forward.model.config, max_lengths=len(forward.lengths)), sharing="none")
    requests = select(part.fresh, chosen)
    plan = make_plan(requests, one_a_row, forward.lengths)
    alone = PlannedPart(chosen, requests, [part.digests[r] for r in chosen.tolist()], plan, more=True)
    again = _score(alone, forward, lambda tokens: None, None)
    logprob, rank, set_logprob = scores.logprob.copy(), scores.rank.copy(), scores.set_logprob.copy()
    for r, own in zip(chosen.tolist(), again, strict=True):
        span = slice(scores.offsets[r], scores.offsets[r + 1])
        logprob[span], rank[span], set_logprob[r] = own
    return Scores(scores.offsets, logprob, rank, set_logprob)


def _score(
    part: PlannedPart,
    forward: Forward,
    progress: Callable[[int], None],
    journal: Journal | None,
    hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
    name: str = "",
) -> Scores:
    """Run a plan and hand every request its edges."""
    table = _Table(part)
    missing = np.asarray(hosts.agree(f"{name}/rows", table.take_from(journal, progress).tolist()), np.int64)
    if not hosts.is_first:
        table.rank[:] = 0  # of rows that the first one had
        table.logprob[:] = 0
    forward.compile(part.plan, part.more, missing)
    for scored in forward.run(part.plan, part.more, forward.batches(part.plan, missing)):
        hosts.step()
        table.write(scored)
        if journal is not None:
            journal.add(table.entries(scored.rows))
        progress(scored.tokens)
    return table.scores()


class _Table:
    """The scores of a part's edges while they come in."""

    def __init__(self, part: PlannedPart) -> None:
        self.part, plan = part, part.plan
        self.logprob = np.full(len(plan.edge_source), np.nan, np.float32)
        self.rank = np.full(len(plan.edge_source), -1, np.int32)
        self.of_ask = np.zeros(len(plan.ask_source) + 1, np.float32)  # the last one stands for no ask
        request_row = plan.request_row
        self._by_row = np.argsort(request_row, kind="stable")  # requests without an edge first
        self._first = np.searchsorted(request_row[self._by_row], np.arange(plan.num_rows + 1))

    def write(self, scored: RowScores) -> None:
        self.logprob[scored.edges], self.rank[scored.edges] = scored.logprob, scored.rank
        self.of_ask[scored.asks] = scored.set_logprob

    def requests_of(self, rows: Sequence[int]) -> np.ndarray:
        """int64, those whose edges lie in these rows."""
        return np.concatenate([self._by_row[self._first[row] : self._first[row + 1]] for row in rows])

    def entries(self, rows: Sequence[int]) -> Entries:
        """Finished requests of these rows, for the journal; those with a NaN are run again, and stay out of it."""
        plan, requests = self.part.plan, self.requests_of(rows)
        size = np.diff(plan.request_edge_offset)
        edges, offsets = gather(plan.request_edge, plan.request_edge_offset[requests], size[requests])
        set_logprob = self.of_ask[plan.request_ask[requests]]
        wrong = np.isnan(set_logprob) | np.logical_or.reduceat(np.isnan(self.logprob[edges]), offsets[:-1])
        if wrong.any():
            requests, set_logprob = requests[~wrong], set_logprob[~wrong]
            edges, offsets = gather(plan.request_edge, plan.request_edge_offset[requests], size[requests])
        digests = b"".join(self.part.digests[r] for r in requests.tolist())
        digests = np.frombuffer(digests, np.uint8).reshape(-1, 16)
        return Entries(digests, offsets, self.logprob[edges], self.rank[edges], set_logprob)

    def take_from(self, journal: Journal | None, progress: Callable[[int], None]) -> np.ndarray:
        """Write what the journal knows of whole rows; the others' numbers, int64."""
        plan, rows = self.part.plan, np.arange(self.part.plan.num_rows)
        if journal is None or not journal.num_known:
            return rows
        known = journal.known(self.part.digests)
        lacking = np.zeros(plan.num_rows, bool)
        request_row = plan.request_row
        lacking[request_row[~known & (request_row >= 0)]] = True
        done = rows[~lacking]
        if len(done):
            requests = self.requests_of(done.tolist())
            stored = journal.scores_of([self.part.digests[r] for r in requests.tolist()])
            size = np.diff(plan.request_edge_offset)[requests]
            assert (np.diff(stored.offsets) == size).all(), "a digest names token ids and span"
            edges, _ = gather(plan.request_edge, plan.request_edge_offset[requests], size)
            self.logprob[edges], self.rank[edges] = stored.logprob, stored.rank
            asking = plan.request_ask[requests] >= 0
            self.of_ask[plan.request_ask[requests[asking]]] = stored.set_logprob[asking]
            progress(plan.places_of(done.tolist()))
        return rows[lacking]

    def scores(self) -> Scores:
        plan = self.part.plan
        assert not (self.rank < 0).any(), "an edge of the plan was never scored"
        set_logprob = self.of_ask[plan.request_ask]
        return Scores(
            plan.request_edge_offset, self.logprob[plan.request_edge], self.rank[plan.request_edge], set_logprob
        )


class _Known:
    """Scores of the run's distinct requests, in the order in which they were met."""

    def __init__(self) -> None:
        self._parts: list[Scores] = []
        self._first: list[int] = [0]

    def append(self, scores: Scores) -> None:
        self._parts.append(scores)
        self._first.append(self._first[-1] + len(scores))

    def take(self, places: np.ndarray) -> Scores:
        part = np.searchsorted(self._first, places, side="right") - 1
        taken = [
            self._parts[p][place - self._first[p]] for p, place in zip(part.tolist(), places.tolist(), strict=True)
        ]
        offsets = np.concatenate([[0], np.cumsum([len(score.rank) for score in taken])]).astype(np.int64)
        empty = [np.zeros(0, np.float32)], [np.zeros(0, np.int32)]
        return Scores(
            offsets,
            np.concatenate([score.logprob for score in taken] or empty[0]),
            np.concatenate([score.rank for score in taken] or empty[1]),
            np.asarray([score.set_logprob for score in taken], np.float32),
        )
