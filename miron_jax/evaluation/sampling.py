"""Fewer examples: which ones run next, until a number is known well enough or a budget is spent.

Arrives: `--until` or `--budget`, the run's `TaskKind`s, an earlier run's values.  Leaves: rounds of
chosen examples; `Sampled` for each task, on its scores.  It deliberately does not know devices or
files.  Of several processes the first one decides, which alone has the scores.

Every task's examples run in a random order of their own, by the seed and the task's name, so that a
run that asks for more contains one that asks for less.  A task whose number is no mean of
independent examples (completions, dialogues, means of categories) runs whole.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple
from zlib import crc32

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.definitions.records import AnyTask, Composite, Measured, Suite
from miron_jax.errors import InputError
from miron_jax.evaluation.records import Earlier
from miron_jax.evaluation.task_kinds.interface import TaskKind, TaskScores
from miron_jax.planning.records import CostModel
from miron_jax.results.records import Decided, Sampled
from miron_jax.runtime.hosts import Hosts
from miron_jax.statistics.sequential import (
    Interval,
    Stratum,
    allocation,
    betting_interval,
    half_width,
    winner,
)

FIRST, GROWTH = 100, 1.5  # examples of a task in its first round; how much each round adds
DEVIATION = 0.5  # of an example's right or wrong, where no earlier run says
_UNTIL = re.compile(
    r"(?:(?P<name>.+):)?\s*(?P<rule>decided|ci\s*<=\s*(?P<width>\d*\.?\d+(?:e-?\d+)?))\s*"
)


class Until(NamedTuple):
    """What ends a run."""

    name: str  # of a task or a composite; "": each task for itself
    # half of the interval's; None: until a winner against the earlier run is decided
    width: float | None
    text: str


def parse_until(text: str) -> Until:
    """Raises InputError."""
    match = _UNTIL.fullmatch(text)
    width = float(match["width"]) if match and match["width"] else None
    if not match or (width is not None and not 0 < width < 1):
        raise InputError(
            f"--until={text!r} is not understood: expected ci<=0.01 (half of the interval, between "
            "0 and 1) or decided, alone for each task, or behind the name of a task or composite: "
            "CORE:ci<=0.01"
        )
    return Until((match["name"] or "").strip(), width, text)


def check_sampling(config: RunConfig, has_earlier: bool) -> None:
    """Raises InputError for flags that do not go together."""
    if config.until is not None:
        until = parse_until(config.until)
        if config.budget is not None:
            raise InputError(
                "--until and --budget both say how many examples run: give one of them"
            )
        if until.width is None and not has_earlier:
            raise InputError("--until=decided wants the run to compare with: add --against=RUN")


@dataclass
class _Pool:
    """One task's examples in the order in which they run."""

    kind: TaskKind
    order: np.ndarray  # ids
    cost: float  # tokens of an example
    num_due: int = 0  # so many of the order are to run, or have

    @property
    def name(self) -> str:
        return self.kind.source.task.name

    @property
    def size(self) -> int:
        return len(self.order)


class Sampling:
    """The rounds of one run."""

    def __init__(
        self,
        config: RunConfig,
        kinds: Sequence[TaskKind],
        suites: Sequence[Suite[AnyTask]],
        cost: CostModel,
        earlier: Mapping[str, Earlier] | None,
    ) -> None:
        """Raises InputError for a name that is neither task nor composite."""
        self.config = config
        self.kinds = kinds
        self.suites = suites
        self.earlier = earlier or {}
        self.pools = [_pool(kind, config.seed, cost) for kind in kinds if kind.may_be_sampled]
        self.until = None if config.until is None else parse_until(config.until)
        # of a composite that is compared with the earlier run, at the last round
        self.decided: Decided | None = None
        if self.until and self.until.name and self._target() is None:
            self._check_composite(self.until)

    def _check_composite(self, until: Until) -> None:
        composite = self._composite({pool.name: np.full(2, 0.5) for pool in self.pools})
        if composite is not None and composite.value is None:
            missing = ", ".join(composite.missing[:4])
            raise InputError(
                f"--until={until.text}: {until.name} wants tasks that are not in this run, or "
                f"cannot be sampled: {missing}{' ...' if composite.missing[4:] else ''}"
            )
        if composite is not None and composite.metric not in (
            "",
            *(pool.kind.source.task.main for pool in self.pools),
        ):
            raise InputError(
                f"--until={until.text}: {until.name} averages {composite.metric}, and --until "
                "knows right or wrong alone"
            )
        if composite is None:
            raise InputError(
                f"--until={until.text}: {until.name} is no task of this run whose examples may be "
                "chosen, nor a composite: expected one of "
                f"{', '.join((*[pool.name for pool in self.pools], *self._composite_names()))}"
            )

    def rounds(
        self,
        scores: Sequence[TaskScores],
        hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
        name: str = "",
    ) -> Iterator[None]:
        """Before each round the kinds are told which examples are due.  `name`: of these weights,
        unique within the process group.  Raises InputError."""
        numbers = {id(pool): min(FIRST, pool.size) for pool in self.pools}
        by_kind = {id(task.kind): task for task in scores}
        if self.until is None:
            numbers = self._of_budget()
        for i in count():
            due = hosts.agree(f"{name}/due/{i}", [numbers[id(pool)] for pool in self.pools])
            if i and due == [pool.num_due for pool in self.pools]:
                break
            for kind in self.kinds:
                kind.due = None if not i and not kind.may_be_sampled else frozenset()
            for pool, number in zip(self.pools, due, strict=True):
                pool.kind.due = frozenset(pool.order[pool.num_due : number].tolist())
                pool.num_due = number
            yield
            if self.until is not None and hosts.is_first:
                numbers = self._next(
                    {id(pool): self._values(pool, by_kind[id(pool.kind)]) for pool in self.pools}
                )
        for pool in self.pools if hosts.is_first else ():
            task = by_kind[id(pool.kind)]
            task.sampled = self._sampled(pool, self._values(pool, task))
            task.rows.sort(key=lambda row: row.id)

    # How many examples each task runs

    def _next(self, values: Mapping[int, np.ndarray]) -> dict[int, int]:
        """Examples of each pool after the next round, by id(pool); as many as now where it is
        done."""
        assert self.until is not None
        if self.until.name and self._target() is None:
            return self._next_of_composite(values)
        return {id(pool): self._grown(pool, values[id(pool)]) for pool in self.pools}

    def _grown(self, pool: _Pool, values: np.ndarray) -> int:
        assert self.until is not None
        if not self._is_of_target(pool) or self._is_known(pool, values):
            return pool.num_due
        return min(pool.size, math.ceil(GROWTH * pool.num_due))

    def _is_known(self, pool: _Pool, values: np.ndarray) -> bool:
        assert self.until is not None
        if self.until.width is not None:
            return betting_interval(values, pool.size).half_width <= self.until.width
        return winner(values - self._rivals(pool), pool.size) != 0

    def _next_of_composite(self, values: Mapping[int, np.ndarray]) -> dict[int, int]:
        assert self.until is not None
        composite = self._composite({pool.name: values[id(pool)] for pool in self.pools})
        assert composite is not None
        pools = [pool for pool in self.pools if composite.weights.get(pool.name)]
        decides = self.until.width is None
        compared = [values[id(pool)] - (self._rivals(pool) if decides else 0.0) for pool in pools]
        strata = [
            Stratum(composite.weights[pool.name], of_pool, pool.size)
            for pool, of_pool in zip(pools, compared, strict=True)
        ]
        total = sum(stratum.weight * float(stratum.values.mean()) for stratum in strata)
        width = abs(total) if self.until.width is None else self.until.width
        half = half_width(strata, max(width, 1e-9))
        now = {id(pool): pool.num_due for pool in self.pools}
        if decides:
            self.decided = Decided(
                self.until.name, total, half, 0 if half >= abs(total) else 1 if total > 0 else -1
            )
        if half <= width:
            return now
        deviations = [abs(stratum.weight) * _deviation(stratum.values) for stratum in strata]
        costs = [pool.cost for pool in pools]
        spent = sum(pool.num_due * pool.cost for pool in pools)
        numbers = allocation(deviations, costs, [pool.size for pool in pools], GROWTH * spent)
        grown = {
            id(pool): max(pool.num_due, number) for pool, number in zip(pools, numbers, strict=True)
        }
        # Neyman's shares are reached: all grow
        if all(grown[id(pool)] == pool.num_due for pool in pools):
            grown = {id(pool): min(pool.size, math.ceil(GROWTH * pool.num_due)) for pool in pools}
        return now | grown

    def _of_budget(self) -> dict[int, int]:
        assert self.config.budget is not None
        composite = self._composite({pool.name: np.full(2, 0.5) for pool in self.pools})
        weights = composite.weights if composite is not None else {}
        equal = 1 / max(1, len(self.pools))
        deviations = [
            abs(weights.get(pool.name, equal))
            * _deviation(np.asarray(list(self._values_of_earlier(pool))))
            for pool in self.pools
        ]
        sizes = [pool.size for pool in self.pools]
        numbers = allocation(
            deviations, [pool.cost for pool in self.pools], sizes, self.config.budget
        )
        return {id(pool): number for pool, number in zip(self.pools, numbers, strict=True)}

    # Names

    def _target(self) -> _Pool | None:
        assert self.until is not None
        return next((pool for pool in self.pools if pool.name == self.until.name), None)

    def _is_of_target(self, pool: _Pool) -> bool:
        """Whether the rule is about this task, alone or in a composite."""
        assert self.until is not None
        if not self.until.name or pool is self._target():
            return True
        if self._target() is not None:
            return False
        composite = self._composite({each.name: np.full(2, 0.5) for each in self.pools})
        return composite is not None and bool(composite.weights.get(pool.name))

    def _composite(self, values: Mapping[str, np.ndarray]) -> Composite | None:
        """The composite that --until names, or of a budget the one of most tasks, at these
        means."""
        name = self.until.name if self.until else ""
        composites = list[Composite]()
        sizes = {pool.name: pool.size for pool in self.pools}
        for suite in self.suites:
            measured = {
                task.name: Measured(float(of_task.mean()), sizes[task.name])
                for task in suite.tasks
                if (of_task := values.get(task.name)) is not None
            }
            for label, composite in suite.composites(measured).items():
                if name in (label, f"{suite.name}: {label}") or (not name and composite.weights):
                    composites.append(composite)
        return max(composites, key=lambda composite: len(composite.weights), default=None)

    def _composite_names(self) -> list[str]:
        return [name for suite in self.suites for name in suite.composites({})]

    # Values

    def _values(self, pool: _Pool, scores: TaskScores) -> np.ndarray:
        """The main metric of the examples that have run, in their random order; NaN counts as 0,
        and ends the run anyway."""
        by_id = scores.values_by_id()
        return np.nan_to_num(
            np.asarray([by_id[i] for i in pool.order[: pool.num_due].tolist()], np.float64)
        )

    def _rivals(self, pool: _Pool) -> np.ndarray:
        """The earlier run's values of the same examples.  Raises InputError."""
        earlier = self.earlier.get(pool.name)
        ids = pool.order[: pool.num_due].tolist()
        if earlier is None or any(i not in earlier.values for i in ids):
            raise InputError(
                f"--against: its run has not scored {pool.name} on the examples that are due here: "
                "name a run of all of them, or one by the same --seed that ran at least as many"
            )
        nan = next((i for i in ids if math.isnan(earlier.values[i])), None)
        if nan is not None:
            raise InputError(
                f"--against: its run has no score for example {nan} of {pool.name}: name another "
                "run"
            )
        prompts = pool.kind.digests()
        other = next((i for i in ids if earlier.prompts.get(i) != prompts[i]), None)
        if other is not None:
            raise InputError(
                f"--against: its run asked {pool.name} otherwise (example {other}): its prompts "
                "must be those of this run"
            )
        return np.asarray([earlier.values[i] for i in ids], np.float64)

    def _values_of_earlier(self, pool: _Pool) -> Iterator[float]:
        earlier = self.earlier.get(pool.name)
        yield from (
            ()
            if earlier is None
            else (value for value in earlier.values.values() if not math.isnan(value))
        )

    def _sampled(self, pool: _Pool, values: np.ndarray) -> Sampled:
        how = f"--until={self.config.until}" if self.until else f"--budget={self.config.budget:g}"
        interval = betting_interval(values, pool.size) if len(values) else Interval(0.0, 1.0)
        decides = self.until is not None and self.until.width is None and self._is_of_target(pool)
        better = winner(values - self._rivals(pool), pool.size) if decides else None
        return Sampled(len(values), pool.size, how, self.config.seed, interval, better)


def order_of(ids: Collection[int], task: str, seed: int) -> np.ndarray:
    """The ids, int64 [n], in the random order in which a task's examples run."""
    return np.random.default_rng([seed, crc32(task.encode())]).permutation(
        np.asarray(sorted(ids), np.int64)
    )


def moments(size: int) -> Iterator[int]:
    """Numbers of examples after which a task may end, all of them at last."""
    at = min(FIRST, size)
    while at < size:
        yield at
        at = min(size, math.ceil(GROWTH * at))
    yield size


def _pool(kind: TaskKind, seed: int, cost: CostModel) -> _Pool:
    order = order_of(kind.digests(), kind.source.task.name, seed)
    sizes = kind.sizes(cost)
    tokens = 1.0 if sizes is None else float(sizes.num_nodes.mean())
    return _Pool(kind, order, tokens)


def _deviation(values: np.ndarray) -> float:
    """Of one example; DEVIATION where too few say, and never 0, as all may have been right by
    chance."""
    return max(float(values.std(ddof=1)), 0.05) if len(values) > 1 else DEVIATION
