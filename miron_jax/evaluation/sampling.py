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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.definitions.records import AnyTask, Composite, Measured, Suite
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.interface import TaskKind, TaskScores
from miron_jax.planning.records import CostModel
from miron_jax.results.records import Decided, Sampled
from miron_jax.results.run_folder import Earlier
from miron_jax.runtime.hosts import Hosts
from miron_jax.statistics.sequential import (
    FIRST,
    GROWTH,
    Stratum,
    allocation,
    betting_interval,
    half_width,
    order_of,
    winner,
)

NO_EXAMPLES = Earlier({}, {})
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
    num_wanted: int = 0  # so many of the order are to run
    num_run: int = 0  # so many have, or run in this round
    # the main metric of those that have run, in their order; NaN counts as 0, and ends the run
    values: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def name(self) -> str:
        return self.kind.source.task.name

    @property
    def size(self) -> int:
        return len(self.order)

    @property
    def ids(self) -> list[int]:
        """Of the examples that have run."""
        return self.order[: self.num_run].tolist()

    def grow(self) -> None:
        self.num_wanted = min(self.size, math.ceil(GROWTH * self.num_run))


class ExampleSampling:
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
        self.name = self.until.name if self.until else ""
        # the task that --until names; None: it names a composite, or none
        self.target = next((pool for pool in self.pools if pool.name == self.name), None)
        # of a composite that is compared with the earlier run, at the last round
        self.decided: Decided | None = None
        if self.until and self.name and self.target is None:
            self._check_composite(self.until)

    def _check_composite(self, until: Until) -> None:
        composite = self._composite()
        if composite is None:
            composites = [name for suite in self.suites for name in suite.composites({})]
            names = (*(pool.name for pool in self.pools), *composites)
            raise InputError(
                f"--until={until.text}: {until.name} is no task of this run whose examples may be "
                f"chosen, nor a composite: expected one of {', '.join(names)}"
            )
        if composite.value is None:
            missing = ", ".join(composite.missing[:4])
            raise InputError(
                f"--until={until.text}: {until.name} wants tasks that are not in this run, or "
                f"cannot be sampled: {missing}{' ...' if composite.missing[4:] else ''}"
            )
        mains = {pool.kind.source.task.main for pool in self.pools}
        if composite.metric not in {"", *mains}:
            raise InputError(
                f"--until={until.text}: {until.name} averages {composite.metric}, and --until "
                "knows right or wrong alone"
            )

    def rounds(
        self,
        scores: Sequence[TaskScores],
        hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
        name: str = "",
    ) -> Iterator[None]:
        """Before each round the kinds are told which examples are due.  `name`: of these weights,
        unique within the process group.  Raises InputError."""
        by_name = {task.source.task.name: task for task in scores}
        for pool in self.pools:
            pool.num_wanted = min(FIRST, pool.size)
        if self.config.budget is not None:
            self._spend(self.config.budget)
        for i in count():
            due = hosts.agree(f"{name}/due/{i}", [pool.num_wanted for pool in self.pools])
            if i and due == [pool.num_run for pool in self.pools]:
                break
            for kind in self.kinds:
                kind.due = None if not i and not kind.may_be_sampled else frozenset()
            for pool, number in zip(self.pools, due, strict=True):
                pool.kind.due = frozenset(pool.order[pool.num_run : number].tolist())
                pool.num_run = number
            yield
            if not hosts.is_first:
                continue
            for pool in self.pools:
                by_id = by_name[pool.name].values_by_id()
                pool.values = np.nan_to_num(np.asarray([by_id[i] for i in pool.ids], np.float64))
            if self.until is not None:
                self._want_more(self.until)
        for pool in self.pools if hosts.is_first else ():
            task = by_name[pool.name]
            task.sampled = self._sampled(pool)
            task.rows.sort(key=lambda row: row.id)

    # How many examples each task runs

    def _want_more(self, until: Until) -> None:
        """Raise `num_wanted` of each pool of which more examples are to run."""
        if until.name and self.target is None:
            self._want_more_of_composite(until)
            return
        for pool in self.pools:
            if self._is_of_target(pool) and not self._is_known(pool, until):
                pool.grow()

    def _is_known(self, pool: _Pool, until: Until) -> bool:
        if until.width is not None:
            return betting_interval(pool.values, pool.size).half_width <= until.width
        return winner(pool.values - self._rivals(pool), pool.size) != 0

    def _want_more_of_composite(self, until: Until) -> None:
        composite = self._composite({pool.name: float(pool.values.mean()) for pool in self.pools})
        assert composite is not None
        pools = [pool for pool in self.pools if composite.weights.get(pool.name)]
        strata = []
        for pool in pools:
            values = pool.values
            if until.width is None:
                values = values - self._rivals(pool)
            strata.append(Stratum(composite.weights[pool.name], values, pool.size))
        total = sum(stratum.weight * float(stratum.values.mean()) for stratum in strata)
        width = abs(total) if until.width is None else until.width
        half = half_width(strata, max(width, 1e-9))
        if until.width is None:
            better = 1 if total > 0 else -1
            self.decided = Decided(until.name, total, half, better if half < abs(total) else 0)
        if half <= width:
            return
        deviations = [abs(stratum.weight) * _deviation(stratum.values) for stratum in strata]
        spent = sum(pool.num_run * pool.cost for pool in pools)
        _allocate(pools, deviations, GROWTH * spent)
        # Neyman's shares are reached: all grow
        if all(pool.num_wanted == pool.num_run for pool in pools):
            for pool in pools:
                pool.grow()

    def _spend(self, budget: float) -> None:
        composite = self._composite()
        weights = composite.weights if composite is not None else {}
        equal = 1 / max(1, len(self.pools))
        deviations = []
        for pool in self.pools:
            earlier = self.earlier.get(pool.name, NO_EXAMPLES)
            values = np.asarray([*earlier.values.values()], np.float64)
            deviation = _deviation(values[~np.isnan(values)])
            deviations.append(abs(weights.get(pool.name, equal)) * deviation)
        _allocate(self.pools, deviations, budget)

    def _is_of_target(self, pool: _Pool) -> bool:
        """Whether the rule is about this task, alone or in a composite."""
        if not self.name or pool is self.target:
            return True
        if self.target is not None:
            return False
        composite = self._composite()
        return composite is not None and bool(composite.weights.get(pool.name))

    def _composite(self, means: Mapping[str, float] | None = None) -> Composite | None:
        """The composite that --until names, or of a budget the one of most tasks, at these means
        (None: a half each)."""
        measured = {
            pool.name: Measured(means[pool.name] if means else 0.5, pool.size)
            for pool in self.pools
        }
        composites = list[Composite]()
        for suite in self.suites:
            names = [task.name for task in suite.tasks if task.name in measured]
            of_suite = suite.composites({name: measured[name] for name in names})
            for label, composite in of_suite.items():
                is_named = self.name in (label, f"{suite.name}: {label}")
                if is_named or (not self.name and composite.weights):
                    composites.append(composite)
        return max(composites, key=lambda composite: len(composite.weights), default=None)

    # Values

    def _rivals(self, pool: _Pool) -> np.ndarray:
        """The earlier run's values of the same examples.  Raises InputError."""
        earlier = self.earlier.get(pool.name)
        if earlier is None or any(i not in earlier.values for i in pool.ids):
            raise InputError(
                f"--against: its run has not scored {pool.name} on the examples that are due here: "
                "name a run of all of them, or one by the same --seed that ran at least as many"
            )
        prompts = pool.kind.digests()
        for i in pool.ids:
            if math.isnan(earlier.values[i]):
                raise InputError(
                    f"--against: its run has no score for example {i} of {pool.name}: name another "
                    "run"
                )
            if earlier.prompts.get(i) != prompts[i]:
                raise InputError(
                    f"--against: its run asked {pool.name} otherwise (example {i}): its prompts "
                    "must be those of this run"
                )
        return np.asarray([earlier.values[i] for i in pool.ids], np.float64)

    def _sampled(self, pool: _Pool) -> Sampled:
        how = f"--until={self.config.until}" if self.until else f"--budget={self.config.budget:g}"
        better = None
        if self.until is not None and self.until.width is None and self._is_of_target(pool):
            better = winner(pool.values - self._rivals(pool), pool.size)
        interval = betting_interval(pool.values, pool.size)
        return Sampled(pool.num_run, pool.size, how, self.config.seed, interval, better)


def _pool(kind: TaskKind, seed: int, cost: CostModel) -> _Pool:
    order = order_of(kind.digests(), kind.source.task.name, seed)
    sizes = kind.sizes(cost)
    tokens = 1.0 if sizes is None else float(sizes.num_nodes.mean())
    return _Pool(kind, order, tokens)


def _deviation(values: np.ndarray) -> float:
    """Of one example; DEVIATION where too few say, and never 0, as all may have been right by
    chance."""
    return max(float(values.std(ddof=1)), 0.05) if len(values) > 1 else DEVIATION


def _allocate(pools: Sequence[_Pool], deviations: Sequence[float], budget: float) -> None:
    """Want of each pool what `allocation` gives it, or what has run."""
    costs = [pool.cost for pool in pools]
    sizes = [pool.size for pool in pools]
    for pool, number in zip(pools, allocation(deviations, costs, sizes, budget), strict=True):
        pool.num_wanted = max(pool.num_run, number)
