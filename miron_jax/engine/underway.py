"""The request batches that are being scored, and the order in which their rows are launched.

Arrives: request batches with the rows that are missing, a Forward.  Leaves: each batch with the
scores of its edges, in order.  It deliberately does not know which process computes which rows.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from miron_jax.engine.forward import Forward, Rows
from miron_jax.engine.model import RowScores
from miron_jax.engine.records import Scores
from miron_jax.planning.request_batches import RequestBatch
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.journal import Entries, Journal
from miron_jax.tokens.ragged import gather

MOST_UNDERWAY = 2  # request batches at once


class EdgeScores:
    """The scores of a batch's edges while they come in."""

    def __init__(self, batch: RequestBatch, num_distribution: int) -> None:
        self.plan = batch.plan
        self.digests = batch.digests
        plan = self.plan
        self.logprob = np.full(len(plan.edge_parent), np.nan, np.float32)
        self.rank = np.full(len(plan.edge_parent), -1, np.int32)
        size = (len(plan.edge_parent), num_distribution)
        self.distribution = np.full(size, np.nan, np.float32)
        # of each query; the last one: no query
        self.set_logprob = np.zeros(len(plan.query_node) + 1, np.float32)
        request_row = plan.request_row
        # a request without an edge has row -1: these come first
        self._by_row = np.argsort(request_row, kind="stable")
        self._first = np.searchsorted(request_row[self._by_row], np.arange(plan.num_rows + 1))

    def write(self, scored: RowScores) -> None:
        self.logprob[scored.edges], self.rank[scored.edges] = scored.logprob, scored.rank
        self.set_logprob[scored.queries] = scored.set_logprob
        self.distribution[scored.edges] = scored.distribution

    def requests_of(self, rows: Sequence[int]) -> np.ndarray:
        """Requests whose edges are in these rows, int64."""
        return np.concatenate(
            [self._by_row[self._first[row] : self._first[row + 1]] for row in rows]
        )

    def entries(self, rows: Sequence[int]) -> Entries:
        """Journal entries of these rows' requests, without those with a NaN, which are scored
        again."""
        plan = self.plan
        requests = self.requests_of(rows)
        size = np.diff(plan.request_edge_offset)
        edges, offsets = gather(
            plan.request_edge, plan.request_edge_offset[requests], size[requests]
        )
        set_logprob = self.set_logprob[plan.request_query[requests]]
        is_nan = np.isnan(set_logprob) | np.logical_or.reduceat(
            np.isnan(self.logprob[edges]), offsets[:-1]
        )
        if is_nan.any():
            requests = requests[~is_nan]
            set_logprob = set_logprob[~is_nan]
            edges, offsets = gather(
                plan.request_edge, plan.request_edge_offset[requests], size[requests]
            )
        digests = b"".join(self.digests[r] for r in requests.tolist())
        digests = np.frombuffer(digests, np.uint8).reshape(-1, 16)
        columns = self.logprob[edges], self.rank[edges], set_logprob, self.distribution[edges]
        return Entries(digests, offsets, *columns)

    def fill_from(self, journal: Journal | None, progress: Callable[[int], None]) -> np.ndarray:
        """Write the scores of rows that the journal has whole; returns the rows that are missing,
        int64."""
        plan = self.plan
        rows = np.arange(self.plan.num_rows)
        if journal is None or not journal.num_known:
            return rows
        known = journal.known(self.digests)
        missing = np.zeros(plan.num_rows, bool)
        request_row = plan.request_row
        missing[request_row[~known & (request_row >= 0)]] = True
        done = rows[~missing]
        if len(done):
            requests = self.requests_of(done.tolist())
            stored = journal.scores_of([self.digests[r] for r in requests.tolist()])
            size = np.diff(plan.request_edge_offset)[requests]
            assert (np.diff(stored.offsets) == size).all(), "a digest names token ids and span"
            edges, _ = gather(plan.request_edge, plan.request_edge_offset[requests], size)
            self.logprob[edges], self.rank[edges] = stored.logprob, stored.rank
            self.distribution[edges] = stored.distribution
            has_query = plan.request_query[requests] >= 0
            self.set_logprob[plan.request_query[requests[has_query]]] = stored.set_logprob[
                has_query
            ]
            progress(plan.num_nodes(done.tolist()))
        return rows[missing]

    def scores(self) -> Scores:
        """The scores of all requests of the batch, in their order."""
        plan = self.plan
        edges = self.plan.request_edge
        assert not (self.rank < 0).any(), "an edge of the plan was never scored"
        set_logprob = self.set_logprob[plan.request_query]
        columns = self.logprob[edges], self.rank[edges], set_logprob, self.distribution[edges]
        return Scores(plan.request_edge_offset, *columns)


@dataclass(slots=True)
class Underway:
    """A request batch whose rows are being scored."""

    name: str
    batch: RequestBatch
    table: EdgeScores
    progress: Callable[[int], None]
    rows: np.ndarray  # int64, that are likely to run here
    row_lists: Iterator[list[int]]  # not launched yet
    unread: int = 0  # rows that are launched, and whose scores are not read
    all_launched: bool = False

    @property
    def is_scored(self) -> bool:
        return self.all_launched and not self.unread

    def next_rows(self) -> Rows | None:
        rows = next(self.row_lists, None)
        if rows is None:
            self.all_launched = True
            return None
        self.unread += len(rows)
        return Rows(self.batch.plan, rows, self.batch.more)


class Line:
    """Request batches in the order in which they run.

    The next one is launched before the last scores of the one before are read, so that the device
    has work meanwhile.  At most two that have rows are underway, whose arrays the host holds.
    Counts of rows alone decide what is launched next, never a clock: all processes of a mesh launch
    in the same order.
    """

    def __init__(
        self,
        batches: Iterator[Underway],
        forward: Forward,
        hosts: Hosts,
        journal: Journal | None,
        settle: Callable[[], object] = lambda: None,
        behind: Callable[[RequestBatch], object] = lambda batch: None,
    ) -> None:
        """`settle`: called before a batch begins; returns when the caller has used the scores that
        it has got.  `behind`: called when all rows of a batch are launched, before the next one
        begins; launches what belongs to it."""
        self._batches = batches
        self._forward = forward
        self._hosts = hosts
        self._journal = journal
        self._settle = settle
        self._behind = behind
        self._underway: deque[Underway] = deque()
        self._next: Underway | None = None  # its programs are compiled once the device is idle
        self._ended = False

    def scored(self) -> Iterator[Underway]:
        """Each batch when all its scores are there, in order."""
        while not self._ended or self._underway:
            for scored in self._forward.run_all(self._next_rows):
                self._hosts.step()
                of_plan = next(each for each in self._underway if each.batch.plan is scored.plan)
                of_plan.table.write(scored)
                if self._journal is not None:
                    self._journal.add(of_plan.table.entries(scored.rows))
                of_plan.progress(scored.tokens)
                of_plan.unread -= len(scored.rows)
                yield from self._scored_first()
            # batches whose rows the journal held: no launch brings them
            yield from self._scored_first()

    def _scored_first(self) -> Iterator[Underway]:
        while self._underway and self._underway[0].is_scored:
            yield self._underway.popleft()

    def _next_rows(self) -> Rows | None:
        """Rows of the first batch that has some to launch; batches begin as there is a place."""
        while True:
            last = self._underway[-1] if self._underway else None
            if last is not None and not last.all_launched:
                if (rows := last.next_rows()) is not None:
                    return rows
                self._behind(last.batch)
            if not self._begin():
                return None

    def _begin(self) -> bool:
        """Whether the next batch can be launched now."""
        num_running = sum(not each.is_scored for each in self._underway)
        # a first one that had no rows is yielded before others begin
        if num_running == MOST_UNDERWAY or (self._underway and self._underway[0].is_scored):
            return False
        if self._next is None and not self._ended:
            self._settle()
            self._next = next(self._batches, None)
            self._ended = self._next is None
        if self._next is None:
            return False
        plan, more, rows = self._next.batch.plan, self._next.batch.more, self._next.rows
        # how many rows a new program has room for is measured while nothing runs
        if num_running and self._forward.lengths_to_compile(plan, more, rows):
            return False
        self._forward.compile_in_turn(plan, more, rows)
        self._underway.append(self._next)
        self._next = None
        return True
