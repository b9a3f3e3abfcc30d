"""Request batches -> scores of every request: from the journal, else computed once.

Arrives: Requests, a Forward.  Leaves: `Scores`, flat arrays in the order of the requests.  It
deliberately does not know tasks or text.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial, reduce
from hashlib import blake2b
from itertools import count
from operator import sub

import numpy as np

from miron_jax.engine.forward import Forward
from miron_jax.engine.records import Scores
from miron_jax.engine.self_check import SelfCheck
from miron_jax.engine.underway import EdgeScores, Line, Underway
from miron_jax.errors import InputError
from miron_jax.model.costs import cost_model
from miron_jax.planning.plan import make_plan
from miron_jax.planning.records import CostModel
from miron_jax.planning.request_batches import RequestBatch, Totals, plan_request_batches, select
from miron_jax.runtime.dealing import deal
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.journal import Journal
from miron_jax.runtime.timeline import counted_in_thread, spent_on
from miron_jax.tokens.ragged import gather, offsets_of
from miron_jax.tokens.records import Requests


def score_request_batches(
    batches: Iterable[Requests],
    forward: Forward,
    cost: CostModel,
    totals: Totals,
    check: SelfCheck,
    progress: Callable[[int], None] = lambda tokens: None,
    lengths: tuple[int, ...] = (),
) -> Iterator[Scores]:
    """Plan and score each request batch in turn.  Raises SelfCheckFailed, and what the iterable
    raises (InputError)."""
    planned = plan_request_batches(batches, cost, totals, lengths, forward.id_sets)
    for _, scores in score_planned(planned, forward, check, progress):
        yield scores


def score_planned(
    planned: Iterable[RequestBatch],
    forward: Forward,
    check: SelfCheck,
    progress: Callable[[int], None] = lambda tokens: None,
    journal: Journal | None = None,
    hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
    name: str = "",
    settle: Callable[[], object] = lambda: None,
) -> Iterator[tuple[RequestBatch, Scores]]:
    """Score each request batch in turn; a thread tokenizes and plans the next one while the device
    works on this one, and the next one is launched before the scores of this one are yielded.

    A row whose requests are all in the journal is not computed; the scores of other rows are added
    to the journal.  One process plans requests that share rows with known ones anew, without those.

    Several `hosts` that each have all weights share the rows of every batch and meet in the
    journal; only the first one yields scores, after all batches.  On a mesh that spans hosts all of
    them compute the same rows, and scores that the first one took from the journal are meaningless
    on the others.  `name` identifies these weights and is used once.  `settle` is called before a
    batch begins: it waits for threads that still use the scores of earlier ones.
    """

    def begin(of_batch: str, batch: RequestBatch) -> Underway:
        left = progress
        if journal is not None and hosts.count == 1:
            left = _score_missing(batch, forward, progress, journal)
        return _with_missing_rows(batch, forward, left, journal, hosts, of_batch)

    distinct = _DistinctScores()
    planner = ThreadPoolExecutor(1, initializer=counted_in_thread())
    batches = _in_turn(planned, planner, hosts, name)
    share_rows = hosts.count > 1 and not forward.placement.is_global
    if hosts.is_first or not share_rows:  # it compares scores
        batches = _prepared(batches, forward, check, hosts.count if share_rows else 1)
    try:
        if share_rows:
            assert journal is not None, "hosts meet in the journal"
            scored = _score_shares(batches, forward, progress, journal, hosts, name)
        else:
            begun = (begin(name, batch) for name, batch in batches)
            behind = partial(check.launch, forward.model, id_sets=forward.id_sets)
            line = Line(begun, forward, hosts, journal, settle, behind)
            scored = _score_all(line, forward, hosts)
        for batch, scores in scored:
            check.compare(forward.model, batch, scores, hosts.is_first, forward.id_sets)
            distinct.append(scores)
            yield batch, distinct.select(batch.distinct_idx)
    finally:
        # an interrupted run does not wait for its next batch
        planner.shutdown(wait=False, cancel_futures=True)


def _in_turn(
    planned: Iterable[RequestBatch], planner: ThreadPoolExecutor, hosts: Hosts, name: str
) -> Iterator[tuple[str, RequestBatch]]:
    """Each batch and its name; `planner` makes the next one meanwhile.  Raises InputError if this
    host has another plan than the first one."""
    unread = iter(planned)
    upcoming = planner.submit(next, unread, None)
    for number in count(1):
        with spent_on("wait_for_host"):
            batch = upcoming.result()
        if batch is not None:
            upcoming = planner.submit(next, unread, None)
        _check_same_plan(hosts, f"{name}/{number}", batch)
        if batch is None:
            return
        yield f"{name}/{number}", batch


def _prepared(
    batches: Iterable[tuple[str, RequestBatch]], forward: Forward, check: SelfCheck, processes: int
) -> Iterator[tuple[str, RequestBatch]]:
    for name, batch in batches:
        check.prepare(forward.model, batch, processes)
        yield name, batch


def _score_all(line: Line, forward: Forward, hosts: Hosts) -> Iterator[tuple[RequestBatch, Scores]]:
    """Every process computes all rows: one that is alone, or those of a mesh that spans hosts."""
    for each in line.scored():
        scores = each.table.scores()
        yield each.batch, _alone_where_nan(scores, each.batch, forward, hosts, each.name)


def _score_shares(
    batches: Iterable[tuple[str, RequestBatch]],
    forward: Forward,
    progress: Callable[[int], None],
    journal: Journal,
    hosts: Hosts,
    name: str,
) -> Iterator[tuple[RequestBatch, Scores]]:
    """Every process computes its share of the rows; then the first one reads all scores from the
    journal."""
    load = np.zeros(hosts.count)
    before = forward.speed.counts
    begun = (
        _begun_share(batch, forward, progress, journal, hosts, batch_name, load)
        for batch_name, batch in batches
    )
    shared = [each.batch for each in Line(begun, forward, hosts, journal).scored()]
    meet(journal, hosts, f"{name}/scored")
    hosts.arrive(f"{name}/speed", list(map(sub, forward.speed.counts, before)))
    if not hosts.is_first:
        return
    forward.speed.add(hosts.gather(f"{name}/speed")[1:], before[-1])
    for batch in shared:
        # the journal lacks only those with NaN
        scores = _score(batch, forward, lambda tokens: None, journal)
        yield batch, _alone_where_nan(scores, batch, forward)


def _check_same_plan(hosts: Hosts, name: str, batch: RequestBatch | None) -> None:
    """Raises InputError if this host has another plan than the first one; None: there is no further
    batch."""
    if hosts.count == 1:
        return
    digest = None
    if batch is not None:
        digest = blake2b(
            b"".join(batch.digests) + batch.plan.row_length.tobytes(), digest_size=16
        ).hexdigest()
    if hosts.agree(f"{name}/plan", digest) != digest:
        raise InputError(
            f"process {hosts.index} has other requests than process 0: give all hosts the same "
            "flags, benchmark data, tokenizer and versions"
        )


def meet(journal: Journal, hosts: Hosts, name: str) -> None:
    """Write all finished scores to the journal; the first process waits for the others and reads
    theirs."""
    journal.flush()
    hosts.arrive(name, journal.written)
    if hosts.is_first:
        journal.read_from(hosts.gather(name))


def _begun_share(
    batch: RequestBatch,
    forward: Forward,
    progress: Callable[[int], None],
    journal: Journal,
    hosts: Hosts,
    name: str,
    load: np.ndarray,
) -> Underway:
    """This process's rows of a batch that the journal lacks, then rows that others have not begun.
    `load`: see `deal`."""
    plan = batch.plan
    table = EdgeScores(batch, forward.model.distribution_size)
    missing = np.zeros(plan.num_rows, bool)
    missing[table.fill_from(journal, progress)] = True
    rows_of_length = list(forward.size(plan, batch.more, hosts.count).items())
    shards, sizes = hosts.agree(f"{name}/batch", [forward.placement.shards, rows_of_length])
    cost = cost_model(forward.model.config).rows_of(plan)
    lists = deal(plan.row_length, cost, hosts.count, shards, dict(sizes), load)
    dealt = np.asarray(
        [row for rows in lists[hosts.index] for row in rows if missing[row]], np.int64
    )
    row_lists = ([row for row in rows if missing[row]] for rows in hosts.take(name, lists))
    return Underway(name, batch, table, progress, dealt, filter(None, row_lists))


def _alone_where_nan(
    scores: Scores,
    batch: RequestBatch,
    forward: Forward,
    hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
    name: str = "",
) -> Scores:
    """Score requests with NaN again, one per row: in a shared row 0 x NaN spreads from one request
    to all."""
    is_nan = np.isnan(scores.set_logprob)
    owner = np.repeat(np.arange(len(scores)), np.diff(scores.offsets))
    is_nan[owner[np.isnan(scores.logprob)]] = True
    chosen = np.asarray(hosts.agree(f"{name}/nan", np.flatnonzero(is_nan).tolist()), np.int64)
    if not len(chosen):
        return scores
    one_per_row = replace(cost_model(forward.model.config), sharing="none")
    alone = _part_of(batch, chosen, one_per_row, forward.lengths)._replace(more=True)
    logprob = scores.logprob.copy()
    rank = scores.rank.copy()
    set_logprob = scores.set_logprob.copy()
    distribution = scores.distribution.copy()
    for r, score in zip(
        chosen.tolist(), _score(alone, forward, lambda tokens: None, None), strict=True
    ):
        span = slice(scores.offsets[r], scores.offsets[r + 1])
        logprob[span] = score.logprob
        rank[span] = score.rank
        set_logprob[r] = score.set_logprob
        distribution[span] = score.distribution
    return Scores(scores.offsets, logprob, rank, set_logprob, distribution)


def _score_missing(
    batch: RequestBatch, forward: Forward, progress: Callable[[int], None], journal: Journal
) -> Callable[[int], None]:
    """Score the requests that the journal lacks by a plan of their own, where rows of the batch's
    plan hold others too, as of a run whose --limit has grown.

    Returns `progress` for what is left.
    """
    known = journal.known(batch.digests)
    row = batch.plan.request_row
    if not np.intersect1d(row[known & (row >= 0)], row[~known]).size:
        return progress
    lengths = tuple(np.unique(batch.plan.row_length).tolist())
    missing = _part_of(batch, np.flatnonzero(~known), cost_model(forward.model.config), lengths)
    _score(missing, forward, progress, journal)
    journal.flush()
    journal.read()
    return lambda tokens: progress(max(0, tokens - missing.plan.unique_tokens))


@spent_on("plan")
def _part_of(
    batch: RequestBatch, chosen: np.ndarray, cost: CostModel, lengths: tuple[int, ...]
) -> RequestBatch:
    """These requests of a batch, planned anew in rows of these lengths."""
    requests = select(batch.fresh, chosen)
    plan = make_plan(requests, replace(cost, max_lengths=len(lengths)), lengths)
    digests = [batch.digests[r] for r in chosen.tolist()]
    return RequestBatch(chosen, requests, digests, plan, batch.more)


def _score(
    batch: RequestBatch,
    forward: Forward,
    progress: Callable[[int], None],
    journal: Journal | None,
) -> Scores:
    """Compute the rows of a batch that the journal lacks, and return the scores of its requests."""
    alone = Hosts()
    begun = _with_missing_rows(batch, forward, progress, journal, alone, "")
    [each] = Line(iter([begun]), forward, alone, journal).scored()
    return each.table.scores()


def _with_missing_rows(
    batch: RequestBatch,
    forward: Forward,
    progress: Callable[[int], None],
    journal: Journal | None,
    hosts: Hosts,
    name: str,
) -> Underway:
    """The rows of a batch that the journal lacks."""
    table = EdgeScores(batch, forward.model.distribution_size)
    missing = np.asarray(
        hosts.agree(f"{name}/rows", table.fill_from(journal, progress).tolist()), np.int64
    )
    if not hosts.is_first:
        table.rank[:] = 0  # in place of rows that the first host takes from its journal
        table.logprob[:] = 0
        table.distribution[:] = 0
    row_lists = forward.batches(batch.plan, missing)
    return Underway(name, batch, table, progress, missing, row_lists)


class _DistinctScores:
    """Scores of the run's distinct requests, in order of first occurrence."""

    def __init__(self) -> None:
        self._batches: list[Scores] = []
        self._first: list[int] = [0]

    def append(self, scores: Scores) -> None:
        self._batches.append(scores)
        self._first.append(self._first[-1] + len(scores))

    def select(self, distinct_idx: np.ndarray) -> Scores:
        """Of the batches that hold these requests alone: mostly the last one."""
        batch = np.searchsorted(self._first, distinct_idx, side="right") - 1
        needed, place = np.unique(batch, return_inverse=True)
        first = offsets_of([len(self._batches[b]) for b in needed])
        request = first[place] + distinct_idx - np.asarray(self._first)[batch]
        of_batches = [self._batches[b] for b in needed] or self._batches[-1:]
        scores = reduce(Scores.followed_by, of_batches)
        begin = scores.offsets[request]
        length = scores.offsets[request + 1] - begin
        token, offsets = gather(np.arange(len(scores.logprob)), begin, length)
        return Scores(
            offsets,
            scores.logprob[token],
            scores.rank[token],
            scores.set_logprob[request],
            scores.distribution[token],
        )
