"""Further draws of a task's few-shot examples: the same task with the shots of the next seeds.

Arrives: a `TaskKind`; then the scores of the task and those of its draws.  Leaves: `TaskKind`s,
then `Draws`.  It deliberately does not know how a draw comes about.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

import numpy as np

from miron_jax.definitions.records import Task, Wording
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.interface import TaskKind, TaskScores
from miron_jax.evaluation.task_kinds.prompted import PromptedKind
from miron_jax.prompting.draws import another_draw, is_ordered
from miron_jax.prompting.prompts import sizes_of_pools
from miron_jax.results.records import CompositeResult, Draws, TaskResult
from miron_jax.results.samples import ExampleResult, FinishedTask
from miron_jax.statistics.draws import spread_of_task

ZERO_SHOT = "zero-shot"
FIXED = "fixed"  # the shots of a task that are the same in every draw


def why_scored_once(task: Task) -> str:
    """ "": its shots are sampled."""
    profile = task.profile
    if not isinstance(profile, Wording) or not profile.num_fewshot:
        return ZERO_SHOT
    return "" if another_draw(profile.fewshot_draw, 1) else FIXED


def further_draws(kind: TaskKind) -> list[PromptedKind]:
    """The task with each draw but the first of --fewshot_draws; [] of one that is scored once.
    Raises InputError for more draws than there are, or of a part of the task."""
    source = kind.source
    task = source.task
    config = kind.setup.config
    num_draws = config.fewshot_draws
    if num_draws < 2:
        return []
    if config.generated or config.rows or config.is_sampled:
        raise InputError(
            f"--fewshot_draws={num_draws} scores whole tasks with every draw: leave out "
            "--generated, --rows, --until and --budget"
        )
    if why_scored_once(task):
        return []
    assert isinstance(kind, PromptedKind)
    _check_number(kind, num_draws)
    draws = list[PromptedKind]()
    for number in range(1, num_draws):
        draw = another_draw(task.profile.fewshot_draw, number)
        redrawn = replace(task, profile=replace(task.profile, fewshot_draw=draw))
        examples = source.examples if source.arranged is None else source.arranged(redrawn)
        draws.append(type(kind)(source._replace(task=redrawn, examples=examples), kind.setup))
    return draws


def _check_number(kind: PromptedKind, num_draws: int) -> None:
    task = kind.source.task
    if task.arrange is not None:
        return  # a published file has plenty
    pools = sizes_of_pools(task, kind.source.examples, kind.setup.config.limit)
    num_others = min(pools) - (task.shots_from is None)
    # an example of a small file has fewer
    shots = min(task.profile.num_fewshot, num_others)
    ways = math.comb(num_others, shots)
    if is_ordered(task.profile.fewshot_draw):
        ways = math.perm(num_others, shots)
    if num_draws > max(1, ways):
        larger = ", or a larger --limit" if kind.setup.config.limit else ""
        raise InputError(
            f"--fewshot_draws={num_draws}: {task.name} samples {shots} from {num_others} examples, "
            f"which can be drawn in {ways} ways: expected at most {max(1, ways)} draws{larger}"
        )


def times_as_many(plain: TaskKind, draws: Sequence[PromptedKind]) -> float:
    """How many times as many unique tokens all draws of a task have as the first, about: by
    characters, what several prompts begin with counted once."""
    seen = set[tuple[str, ...]]()
    so_far = list[int]()
    num_chars = 0
    for kind in (plain, *draws):
        assert isinstance(kind, PromptedKind)
        for prompt in kind.prompts():
            num_chars += sum(map(len, (*{*prompt.contexts}, *prompt.continuations)))
            if prompt.shots not in seen:
                seen.add(prompt.shots)
                num_chars += sum(map(len, prompt.shots))
        so_far.append(num_chars)
    return so_far[-1] / max(1, so_far[0])


def with_draws(
    finished: Mapping[str, FinishedTask],
    tasks: Sequence[TaskScores],
    draws: Sequence[TaskScores],
) -> dict[str, FinishedTask]:
    """The tasks with the scores of all draws, or with why they have one.  `draws`: of all tasks,
    in the order of the draws."""
    added = dict(finished)
    for scores in tasks:
        task = scores.source.task
        done = finished[task.name]
        every = [scores, *(each for each in draws if each.source.task.name == task.name)]
        if len(every) == 1:
            once = Draws(scored_once=why_scored_once(task))
            added[task.name] = done._replace(result=replace(done.result, draws=once))
            continue
        metric = done.result.main_metric
        by_id = _by_id(every, metric)
        result = replace(done.result, draws=_draws_of(every, metric, by_id))
        examples = partial(_with_values, done.examples, by_id)
        added[task.name] = done._replace(result=result, examples=examples)
    return added


def _by_id(every: Sequence[TaskScores], metric: str) -> dict[int, list[float]]:
    """Of each example in the suite's order: its value under each draw."""
    by_id = dict[int, list[float]]()
    for scores in every:
        for row in sorted(scores.rows, key=attrgetter("id")):
            by_id.setdefault(row.id, []).append(row.score.metrics.get(metric, math.nan))
    return by_id


def _draws_of(
    every: Sequence[TaskScores], metric: str, by_id: Mapping[int, Sequence[float]]
) -> Draws:
    scores = list[float]()
    for each in every:
        assert isinstance(each.kind, PromptedKind)
        scores.append(each.kind.estimates(each).metrics[metric].value)
    strata = None
    first = every[0]
    if first.source.task.profile.categories == "macro":
        rows = sorted(first.rows, key=attrgetter("id"))
        strata = [str(row.prompt.category) for row in rows]
    by_draw = np.asarray([*by_id.values()], np.float64)
    spread = spread_of_task(by_draw, scores, strata)
    return Draws(scores=tuple(scores), mean=float(np.mean(scores)), spread=spread)


def _with_values(
    examples: Callable[[], Iterator[ExampleResult]], by_id: Mapping[int, Sequence[float]]
) -> Iterator[ExampleResult]:
    for example in examples():
        yield replace(example, by_draw=by_id[example.id])


def composite_draws(composite: CompositeResult, tasks: Mapping[str, TaskResult]) -> Draws | None:
    """The composite under each draw, as the tasks' weights have it; None where it averages
    another metric, has no value, or nothing that is drawn."""
    if composite.metric or math.isnan(composite.value):
        return None
    parts = list[tuple[float, Draws]]()
    for name, weight in composite.weights.items():
        draws = tasks[name].draws
        if draws is not None and draws.scores:
            parts.append((weight, draws))
    if not parts:
        return None
    moves = sum(weight * (np.asarray(draws.scores) - draws.scores[0]) for weight, draws in parts)
    scores = composite.value + np.asarray(moves)
    spread = math.hypot(*(weight * draws.spread for weight, draws in parts))
    return Draws(scores=tuple(scores.tolist()), mean=float(scores.mean()), spread=spread)
