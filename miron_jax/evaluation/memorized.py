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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from miron_jax.engine.records import Score
from miron_jax.errors import InputError
from miron_jax.evaluation.session import Session
from miron_jax.metrics.token_stats import min_k_plus_plus
from miron_jax.prompting.row_texts import RowText
from miron_jax.runtime.progress import Progress
from miron_jax.statistics.paired import Difference, difference, holm, signed_ranks
from miron_jax.tokens.ragged import end_to_end
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
SHARES = {ORDER: 0.5, TWINS: 0.3, GUIDED: 0.2}  # of these tokens; order has all without twins
UNITS = {ORDER: "nats a token", TWINS: "rank correlation", GUIDED: "nats a token"}


MOST_TOKENS = 2048  # of a request without --max_length, where the model was trained at as many


class TaskTexts(NamedTuple):
    """The rows of a task."""

    name: str
    rows: list[RowText]
    twins: list[RowText | None] | None  # of each row; None: there are no twins


class TaskRows(NamedTuple):
    """The rows of a task, as tokens without special ones."""

    name: str
    row_ids: list[np.ndarray]  # int32 each, in the order of the file
    clusters: list[str]  # of each row: rows of one cluster are not independent
    twin_ids: list[np.ndarray | None] | None  # the twin of each row; None: there are no twins


class RowTest(NamedTuple):
    """A test of one task."""

    test: str
    difference: Difference  # p-value one-sided: of a larger effect
    unit: str
    holm: float  # p-value that holds for all tests of the run at once
    tokens: int  # that were scored for it


class TaskTests(NamedTuple):
    """All tests of one task."""

    task: str
    rows: int
    tokens: int  # of all its rows
    tests: list[RowTest]
    left_out: dict[str, str]  # test -> why it is not done


class _Pair(NamedTuple):
    """Two numbers that are as likely either way round, by the requests that they are made of."""

    expected_higher: tuple[int, ...]
    other: tuple[int, ...]
    cluster: str


@dataclass(slots=True)
class _Plan:
    """What the tests of one task compare."""

    task: TaskRows
    pairs: dict[str, list[_Pair]] = field(default_factory=dict)  # by test
    tokens: dict[str, int] = field(default_factory=dict)  # by test
    left_out: dict[str, str] = field(default_factory=dict)


def tests_of_rows(
    session: Session,
    tasks: Sequence[TaskTexts],
    test_rows: int | None,
    seed: int,
    max_length: int | None,
    progress: Progress,
) -> list[TaskTests]:
    """All tests of these tasks; says before scoring what they cost.  `session`: with numbers of
    distributions.  Raises InputError, SelfCheckFailed."""
    model = session.architecture.config
    tokenizer = session.architecture.tokenizer
    limits = (max_length or MOST_TOKENS, model.num_positions, model.trained_length)
    encode = encoder(tokenizer)
    task_rows = list[TaskRows]()
    for name, rows, twins in tasks:
        twin_ids = None
        if twins is not None:
            ids = iter(encode_each(encode, [twin.text for twin in twins if twin is not None]))
            twin_ids = [None if twin is None else next(ids) for twin in twins]
        ids_of_rows = encode_each(encode, [row.text for row in rows])
        task_rows.append(TaskRows(name, ids_of_rows, [row.cluster for row in rows], twin_ids))
    first = first_tokens("as_tokenizer", tokenizer) or (prefix_token(tokenizer),)
    separator = tokenizer(SEPARATOR, add_special_tokens=False)["input_ids"]
    tests = Memorized(task_rows, first, separator, min(filter(None, limits)), seed, test_rows)
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
    ) -> None:
        """`first`, `separator`: the tokens before a text, and between the rows of a block; `room`:
        tokens of a request at most; `test_rows`: the tests take the tokens of so many rows.

        Raises InputError for a task with too few rows.
        """
        self.first = np.asarray(first, np.int32)
        self.separator = np.asarray(separator, np.int32)
        self.room = room - len(first)
        self._ids: list[np.ndarray] = []
        self._start: list[int] = []
        self.plans = [self._plan(task, seed, test_rows) for task in tasks]

    @property
    def requests(self) -> Requests:
        no_flags = np.zeros(len(self._ids), bool)
        start = np.asarray(self._start, np.int32)
        return Requests(*end_to_end(self._ids), start, no_flags, no_flags)

    def sentences(self) -> Iterator[str]:
        """What each task costs."""
        for plan in self.plans:
            whole = _num_tokens(plan.task.row_ids)
            parts = [
                f"{test} {len(pairs)} pairs, {plan.tokens[test]:,} tokens"
                for test, pairs in plan.pairs.items()
            ]
            share = sum(plan.tokens.values()) / whole
            yield (
                f"{plan.task.name}: {'; '.join(parts)}; {share:.1%} of the {whole:,} tokens of its "
                f"{len(plan.task.row_ids):,} rows"
            )

    def results(self, scores: Sequence[Score]) -> list[TaskTests]:
        """`scores`: of `requests`, in their order, with numbers of distributions."""
        tasks = list[TaskTests]()
        for plan in self.plans:
            tests = list[RowTest]()
            for test, pairs in plan.pairs.items():
                value = VALUES[test]
                higher = [value([scores[i] for i in pair.expected_higher]) for pair in pairs]
                other = [value([scores[i] for i in pair.other]) for pair in pairs]
                differences = np.asarray(higher) - np.asarray(other)
                if test == TWINS:
                    differences = signed_ranks(differences)
                clusters = [pair.cluster for pair in pairs]
                none = np.zeros(len(pairs))
                differs = difference(none, differences, clusters=clusters, one_sided=True)
                tests.append(RowTest(test, differs, UNITS[test], 0.0, plan.tokens[test]))
            whole = _num_tokens(plan.task.row_ids)
            num_rows = len(plan.task.row_ids)
            tasks.append(TaskTests(plan.task.name, num_rows, whole, tests, plan.left_out))
        adjusted = iter(holm([each.difference.p_value for task in tasks for each in task.tests]))
        for task in tasks:
            task.tests[:] = [each._replace(holm=next(adjusted)) for each in task.tests]
        return tasks

    def _plan(self, task: TaskRows, seed: int, test_rows: int | None) -> _Plan:
        plan = _Plan(task)
        rng = np.random.default_rng([seed, *task.name.encode()])
        num_rows = len(task.row_ids)
        wanted = test_rows or max(TEST_ROWS, TEST_SHARE * num_rows)
        budget = wanted * _num_tokens(task.row_ids) / max(1, num_rows)
        if task.twin_ids is None:
            self._add_blocks(plan, budget, rng)
            for test in (TWINS, GUIDED):
                plan.left_out[test] = "which wants --twins"
            return plan
        self._add_blocks(plan, SHARES[ORDER] * budget, rng)
        self._add_twins(plan, budget, rng)
        return plan

    def _add_blocks(self, plan: _Plan, budget: float, rng: np.random.Generator) -> None:
        """Blocks of rows forwards and backwards.  Raises InputError for too few."""
        task = plan.task
        blocks = list[list[np.ndarray]]()
        for size in BLOCK_ROWS:
            starts = range(0, len(task.row_ids) - size + 1, size)
            every = [task.row_ids[start : start + size] for start in starts]
            blocks = [block for block in every if len(self._joined(block)) <= self.room]
            if len(blocks) >= max(LEAST, len(every) / 2):
                break
        if len(blocks) < LEAST:
            raise InputError(
                f"{task.name} has {len(blocks)} blocks of {BLOCK_ROWS[-1]} rows that fit "
                f"{self.room} tokens, expected at least {LEAST} to test the order of its "
                f"{len(task.row_ids)} rows: leave it out of --tasks, or raise --max_length"
            )
        pairs = list[_Pair]()
        tokens = 0
        for i in rng.permutation(len(blocks)).tolist():
            cost = 2 * len(self._joined(blocks[i]))
            if len(pairs) >= LEAST and tokens + cost > budget:
                break
            forwards = self._add(self._joined(blocks[i]))
            backwards = self._add(self._joined(blocks[i][::-1]))
            pairs.append(_Pair((forwards,), (backwards,), str(i)))
            tokens += cost
        plan.pairs[ORDER] = pairs
        plan.tokens[ORDER] = tokens

    def _add_twins(self, plan: _Plan, budget: float, rng: np.random.Generator) -> None:
        """Rows and twins, each alone; of every second long pair the second halves after the first
        half of the twin of the long pair before, which is in no guided pair itself."""
        task = plan.task
        third: np.ndarray | None = None
        twins = task.twin_ids or []
        counts = {TWINS: 0, GUIDED: 0}
        plan.pairs |= {TWINS: [], GUIDED: []}
        for i in rng.permutation(len(twins)).tolist():
            row = task.row_ids[i][: self.room]
            twin = twins[i]
            if twin is None or not len(row) or not len(twin):
                continue
            twin = twin[: self.room]
            cost = len(row) + len(twin)
            if len(plan.pairs[TWINS]) >= LEAST and counts[TWINS] + cost > SHARES[TWINS] * budget:
                break
            alone = (self._add(row), self._add(twin))
            plan.pairs[TWINS].append(_Pair(alone[:1], alone[1:], task.clusters[i]))
            counts[TWINS] += cost
            if min(len(row), len(twin)) < LONG:
                continue
            if third is None:
                third = twin[: len(twin) // 2]
                continue
            halves = (row[len(row) // 2 :], twin[len(twin) // 2 :])
            cost = sum(map(len, halves))  # the third text's half is computed already
            if counts[GUIDED] + cost > SHARES[GUIDED] * budget:
                continue
            after = [self._add(np.append(third, half), len(third)) for half in halves]
            higher = (alone[0], after[1])
            other = (alone[1], after[0])
            plan.pairs[GUIDED].append(_Pair(higher, other, task.clusters[i]))
            counts[GUIDED] += cost
            third = None
        plan.tokens |= counts
        if len(plan.pairs[TWINS]) < LEAST:
            raise InputError(
                f"{task.name} has {len(plan.pairs[TWINS])} rows with a twin, expected at least "
                f"{LEAST}: give more twins, or leave --twins out"
            )
        if len(plan.pairs[GUIDED]) < LEAST:
            del plan.pairs[GUIDED]
            plan.left_out[GUIDED] = f"for it wants {LEAST} pairs of {LONG} tokens each"

    def _joined(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        parts = [rows[0]]
        for row in rows[1:]:
            parts += [self.separator, row]
        return np.concatenate(parts)

    def _add(self, ids: np.ndarray, start: int = 0) -> int:
        """The place of a request of these tokens, scored from `start` on."""
        self._ids.append(np.append(self.first, ids))
        self._start.append(len(self.first) + start)
        return len(self._ids) - 1


def _per_token(scores: Sequence[Score]) -> float:
    return float(scores[0].logprob.mean(dtype=np.float64))


def _min_k(scores: Sequence[Score]) -> float:
    return min_k_plus_plus(scores[0].logprob, scores[0].distribution)


def _second_halves(scores: Sequence[Score]) -> float:
    """`scores`: of a whole text, and of another's second half after a third one's first."""
    whole, half = (score.logprob.astype(np.float64) for score in scores)
    return float(np.concatenate([whole[len(whole) // 2 :], half]).mean())


VALUES = {ORDER: _per_token, TWINS: _min_k, GUIDED: _second_halves}


def _num_tokens(rows: Sequence[np.ndarray]) -> int:
    return sum(map(len, rows))
