"""Walks a Plan: one score a request, exactly once.

Arrives: Requests, a Forward.  Leaves: `Scores`, flat arrays in the order of the requests.  It deliberately does not
know tasks or text.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from miron_jax.engine.forward import Forward
from miron_jax.engine.model import RowScores
from miron_jax.engine.records import Scores
from miron_jax.engine.self_check import SelfCheck
from miron_jax.errors import InputError
from miron_jax.model.costs import cost_model
from miron_jax.planning.plan import make_plan
from miron_jax.planning.records import CostModel
from miron_jax.planning.request_batches import PlannedPart, Totals, plan_parts, select
from miron_jax.ragged import gather, offsets_of
from miron_jax.runtime.hosts import Hosts, deal
from miron_jax.runtime.journal import Entries, Journal
from miron_jax.tokens.records import Requests


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
            hosts.arrive(f"{name}/speed", forward.speed.told)
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
    hosts.arrive(name, journal.written)
    if hosts.is_first:
        journal.read_from(hosts.gather(name))


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
        offsets = offsets_of([len(score.rank) for score in taken])
        empty = [np.zeros(0, np.float32)], [np.zeros(0, np.int32)]
        return Scores(
            offsets,
            np.concatenate([score.logprob for score in taken] or empty[0]),
            np.concatenate([score.rank for score in taken] or empty[1]),
            np.asarray([score.set_logprob for score in taken], np.float32),
        )
