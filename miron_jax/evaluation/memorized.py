"""Whether a model knows the rows of a data set by heart: what is scored for it, and the tests.

Arrives: rows as texts, their twins; then scores.  Leaves: a `TaskTests` each.  It deliberately
does not know where rows and twins come from.

    order          Oren et al. 2023 (arXiv:2310.17623): BLOCK_ROWS rows that follow one another in
                   the file are as probable in that order as from the last to the first
    twins          Min-K%++ (Zhang et al. 2024, arXiv:2404.02936) of a row is as high as its twin's
    guided prefix  the second half of a long row gains as much from its first half, against that
                   of a third text, as the second half of its twin does

Each compares two numbers that a model which has read neither file gives in either order with equal
probability, so signs of the differences are flipped, one-sided.  Min-K%++ has no bounds where a
model is sure, so twins are compared by Wilcoxon's signed ranks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.definitions.if_any import IfAny
from miron_jax.engine.records import Score
from miron_jax.errors import InputError
from miron_jax.evaluation.session import Session
from miron_jax.metrics.token_stats import min_k_plus_plus
from miron_jax.prompting.row_texts import RowsAndTwins
from miron_jax.runtime.progress import Progress
from miron_jax.statistics.paired import Difference, difference, holm, signed_ranks
from miron_jax.tokens.ragged import common_length, end_to_end
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import encode_each, encoder, first_tokens, prefix_token

BLOCK_ROWS = (5, 4, 3, 2)  # rows of a block: the first number of which enough blocks have room
SEPARATOR = "\n\n"  # between the rows of a block
LEAST = 10  # blocks or pairs of a test: the p-value of 10 is 1 / 1,024 at the lowest
LONG = 32  # tokens of a row that is cut in two halves
# The tests take the tokens of so many rows, or of this share of the rows where that is more.
TEST_ROWS = 1_000
TEST_SHARE = 0.1
ORDER = "order"
TWINS = "twins"
GUIDED = "guided prefix"


MOST_TOKENS = 2048  # of a request without --max_length, where the model was trained at as many


class TaskRows(NamedTuple):
    """The rows of a task, as tokens without special ones."""

    name: str
    row_ids: list[np.ndarray]  # int32 each, in the order of the file
    clusters: list[str]  # of each row: rows of one cluster are not independent
    twin_ids: list[np.ndarray] | None  # of each row, [0]: it has none; None: there are no twins
    twin_clusters: Sequence[str] = ()  # of each twin, likewise
    git_blob_sha1: str | None = None  # of the data file


@dataclass(frozen=True, slots=True)
class RowTest:
    """A test of one task."""

    test: str
    difference: Difference  # p-value one-sided: of a larger effect
    unit: str
    holm: float  # p-value that holds for all tests of the run at once


@dataclass(slots=True)
class TaskTests:
    """What the tests of one task compare, and their results."""

    task: str
    tokens: int  # of all its rows, shared prefixes once
    rows: int
    git_blob_sha1: str | None  # of the data file
    # by test: two tuples of requests whose numbers are as likely either way round, and a cluster;
    # {}: they are tested
    pairs: IfAny[dict[str, list[tuple[tuple[int, ...], tuple[int, ...], str]]]] = field(
        default_factory=dict
    )
    scored: dict[str, int] = field(default_factory=dict)  # tokens by test
    left_out: dict[str, str] = field(default_factory=dict)  # test -> why it is not done
    tests: list[RowTest] = field(default_factory=list)


def tests_of_rows(
    session: Session,
    tasks: Mapping[str, RowsAndTwins],
    config: RunConfig,
    test_rows: int | None,
    progress: Progress,
) -> list[TaskTests]:
    """All tests of these tasks, by rows and their twins; says before scoring what they cost.
    `session`: with numbers of distributions.  Raises InputError, SelfCheckFailed."""
    model = session.architecture.config
    tokenizer = session.architecture.tokenizer
    limits = [*filter(None, (model.num_positions, model.trained_length))]
    encode = partial(encode_each, encoder(tokenizer))
    task_rows = list[TaskRows]()
    for name, (rows, twins, sha1) in tasks.items():
        twin_ids = None
        if twins is not None:
            twin_ids = encode(["" if twin is None else twin.text for twin in twins])
        of_twins = ["" if twin is None else twin.cluster for twin in twins or ()]
        ids = encode([row.text for row in rows])
        clusters = [row.cluster for row in rows]
        task_rows.append(TaskRows(name, ids, clusters, twin_ids, of_twins, sha1))
    first = first_tokens("as_tokenizer", tokenizer) or (prefix_token(tokenizer),)
    separator = tokenizer(SEPARATOR, add_special_tokens=False)["input_ids"]
    wanted = config.max_length or MOST_TOKENS
    room = min([wanted, *limits])
    tests = Memorized(
        task_rows, first, separator, room, config.seed, test_rows, room < min(limits, default=room)
    )
    for sentence in tests.sentences():
        progress.say(sentence)
    return tests.results(session.scores(tests.requests))


class Memorized:
    """The tests of some tasks, and the requests whose scores they need."""

    def __init__(
        self,
        tasks: Sequence[TaskRows],
        first: Sequence[int],
        separator: Sequence[int],
        room: int,
        seed: int,
        test_rows: int | None = None,
        may_be_longer: bool = False,
    ) -> None:
        """`first`, `separator`: the tokens before a text, and between the rows of a block; `room`:
        tokens of a request at most; `test_rows`: the tests take the tokens of so many rows;
        `may_be_longer`: a larger --max_length gives more room.

        Raises InputError if no task has enough rows for any test.
        """
        self.first = np.asarray(first, np.int32)
        self.separator = np.asarray(separator, np.int32)
        self.room = room - len(first)
        self.may_be_longer = may_be_longer
        self._ids: list[np.ndarray] = []
        self._start: list[int] = []
        self.plans = [self._plan(task, seed, test_rows) for task in tasks]
        if not any(plan.pairs for plan in self.plans):
            why = [f"no {test} test, {why}" for test, why in self.plans[0].left_out.items()]
            raise InputError(
                f"no task can be tested, {self.plans[0].task} has {'; '.join(why)}: name tasks of "
                "more rows in --tasks, or twins in --twins"
            )

    @property
    def requests(self) -> Requests:
        no_flags = np.zeros(len(self._ids), bool)
        start = np.asarray(self._start, np.int32)
        return Requests(*end_to_end(self._ids), start, no_flags, no_flags)

    def sentences(self) -> Iterator[str]:
        """What each task costs."""
        for plan in self.plans:
            parts = [
                f"{test} {len(pairs)} pairs, {plan.scored[test]:,} tokens"
                for test, pairs in plan.pairs.items()
            ]
            yield (
                f"{plan.task}: {'; '.join(parts) or 'no test'}; "
                f"{sum(plan.scored.values()) / plan.tokens:.1%} of the {plan.tokens:,} distinct "
                f"tokens of its {plan.rows:,} rows"
            )

    def results(self, scores: Sequence[Score]) -> list[TaskTests]:
        """`scores`: of `requests`, in their order, with numbers of distributions."""
        for plan in self.plans:
            plan.tests = []
            for test, pairs in plan.pairs.items():
                value, unit, _ = TESTS[test]
                differences = np.zeros(len(pairs))
                for place, (higher, other, _) in enumerate(pairs):
                    differences[place] = value([scores[i] for i in higher])
                    differences[place] -= value([scores[i] for i in other])
                if test == TWINS:
                    differences = signed_ranks(differences)
                clusters = [pair[2] for pair in pairs]
                how = {"clusters": clusters, "one_sided": True}
                differs = difference(np.zeros(len(pairs)), differences, **how)
                if test == TWINS:  # a correlation
                    low, high = differs.ci95
                    differs = replace(differs, ci95=(max(-1.0, low), min(1.0, high)))
                plan.tests.append(RowTest(test, differs, unit, 0.0))
        p_values = [each.difference.p_value for plan in self.plans for each in plan.tests]
        adjusted = iter(holm(p_values))
        for plan in self.plans:
            plan.tests = [replace(each, holm=next(adjusted)) for each in plan.tests]
        return [replace(plan, pairs={}) for plan in self.plans]

    def _plan(self, task: TaskRows, seed: int, test_rows: int | None) -> TaskTests:
        num_rows = len(task.row_ids)
        plan = TaskTests(task.name, _num_distinct(task.row_ids), num_rows, task.git_blob_sha1)
        rng = np.random.default_rng([seed, *task.name.encode()])
        wanted = test_rows or max(TEST_ROWS, TEST_SHARE * num_rows)
        budget = wanted * plan.tokens / max(1, num_rows)
        if task.twin_ids is None:
            self._add_blocks(plan, task.row_ids, budget, rng)
            plan.left_out |= dict.fromkeys((TWINS, GUIDED), "which wants --twins")
        else:
            self._add_blocks(plan, task.row_ids, TESTS[ORDER][2] * budget, rng)
            self._add_twins(plan, task, task.twin_ids, budget, rng)
        return plan

    def _add_blocks(
        self, plan: TaskTests, rows: list[np.ndarray], budget: float, rng: np.random.Generator
    ) -> None:
        """Blocks of rows forwards and backwards, unless there are too few."""
        every = blocks = list[list[np.ndarray]]()
        for size in BLOCK_ROWS:
            every = [rows[start : start + size] for start in range(0, len(rows) - size + 1, size)]
            blocks = [block for block in every if len(self._joined(block)) <= self.room]
            if len(blocks) >= max(LEAST, len(every) / 2):
                break
        if len(blocks) < LEAST:
            plan.left_out[ORDER] = (
                f"for {len(blocks)} blocks of {BLOCK_ROWS[-1]} of its {len(rows)} rows fit "
                f"{self.room} tokens, expected at least {LEAST}"
            )
            if self.may_be_longer and len(every) >= LEAST:
                plan.left_out[ORDER] += " (raise --max_length)"
            return
        pairs = plan.pairs[ORDER] = []
        plan.scored[ORDER] = 0
        for i in rng.permutation(len(blocks)).tolist():
            block = self._joined(blocks[i])
            cost = 2 * len(block)
            if len(pairs) >= LEAST and plan.scored[ORDER] + cost > budget:
                break
            both = (self._add(block), self._add(self._joined(blocks[i][::-1])))
            pairs.append((both[:1], both[1:], str(i)))
            plan.scored[ORDER] += cost

    def _add_twins(
        self,
        plan: TaskTests,
        task: TaskRows,
        twins: list[np.ndarray],
        budget: float,
        rng: np.random.Generator,
    ) -> None:
        """Rows and twins, each alone; of every second long pair the second halves after the first
        half of the twin of the long pair before, which is in no guided pair itself.

        Each cluster of rows stands against one cluster of twins: a pair of others is left out.
        """
        third: np.ndarray | None = None
        counts = {TWINS: 0, GUIDED: 0}
        pairs = plan.pairs[TWINS] = []
        guided = plan.pairs[GUIDED] = []
        twins_of = dict[str, str]()  # by cluster of rows
        rows_of = dict[str, str]()  # by cluster of twins
        for i in map(int, rng.permutation(len(twins))):
            row = task.row_ids[i][: self.room]
            twin = twins[i][: self.room]
            if not (len(row) and len(twin)):
                continue
            cost = len(row) + len(twin)
            if len(pairs) >= LEAST and counts[TWINS] + cost > TESTS[TWINS][2] * budget:
                break
            cluster = task.clusters[i]
            other = task.twin_clusters[i]
            if twins_of.get(cluster, other) != other or rows_of.get(other, cluster) != cluster:
                continue
            twins_of[cluster] = other
            rows_of[other] = cluster
            alone = (self._add(row), self._add(twin))
            pairs.append((alone[:1], alone[1:], cluster))
            counts[TWINS] += cost
            halves = (row[len(row) // 2 :], twin[len(twin) // 2 :])
            cost = sum(map(len, halves))  # the third text's half is computed already
            fits = counts[GUIDED] + cost <= TESTS[GUIDED][2] * budget
            if min(len(row), len(twin)) < LONG:
                continue
            if third is None:
                third = twin[: len(twin) // 2]
            elif fits:
                after = [self._add(np.append(third, half), len(third)) for half in halves]
                guided.append(((alone[0], after[1]), (alone[1], after[0]), cluster))
                counts[GUIDED] += cost
                third = None
        plan.scored |= counts
        for test, least in ((TWINS, 1), (GUIDED, LONG)):
            clusters = {pair[2] for pair in plan.pairs[test]}
            if len(clusters) < LEAST:
                del plan.pairs[test]
                plan.left_out[test] = (
                    f"for {len(clusters)} clusters of its rows and twins have {least} tokens or "
                    f"more, expected at least {LEAST}"
                )

    def _joined(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        between = [part for row in rows for part in (self.separator, row)]
        return np.concatenate(between[1:])

    def _add(self, ids: np.ndarray, start: int = 0) -> int:
        """The place of a request of these tokens, scored from `start` on."""
        self._ids.append(np.append(self.first, ids))
        self._start.append(len(self.first) + start)
        return len(self._ids) - 1


def _num_distinct(rows: Sequence[np.ndarray]) -> int:
    by_ids = sorted(rows, key=lambda row: row.astype(">u4").tobytes())
    ordered = end_to_end(by_ids)
    place = np.arange(len(rows) - 1)
    return len(ordered.values) - int(common_length(ordered, place, ordered, place + 1).sum())


def _per_token(scores: Sequence[Score]) -> float:
    return float(scores[0].logprob.mean(dtype=np.float64))


def _min_k(scores: Sequence[Score]) -> float:
    return min_k_plus_plus(scores[0].logprob, scores[0].distribution)


def _second_halves(scores: Sequence[Score]) -> float:
    """`scores`: of a whole text, and of another's second half after a third one's first."""
    whole, half = (score.logprob.astype(np.float64) for score in scores)
    return float(np.concatenate([whole[len(whole) // 2 :], half]).mean())


# the number of each test, its unit, and its share of the tokens; order has all without twins
TESTS: dict[str, tuple[Callable[[Sequence[Score]], float], str, float]] = {
    ORDER: (_per_token, "nats a token", 0.5),
    TWINS: (_min_k, "rank correlation", 0.3),
    GUIDED: (_second_halves, "nats a token", 0.2),
}
