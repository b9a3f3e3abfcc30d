"""Sentences that qualify the numbers of a run.

Arrives: a `RunResult`.  Leaves: sentences; those that only one task kind needs are written by its
`Details`.  It deliberately computes no score.
"""

from collections import Counter
from collections.abc import Iterator

from miron_jax.report.numbers import interval, shown
from miron_jax.results.records import Decided, RunResult, TaskResult
from miron_jax.statistics.human_gaps import HumanGap
from miron_jax.tokens.detokenize import WITHOUT_TEXT

MODEL_ONLY = "*"
ALONE = "no interval of one example"
_VERDICTS = {1: "better than", -1: "worse than", 0: "neither better nor worse than"}


def above_chance(run: RunResult) -> Iterator[str]:
    """How many tasks lie above chance; nothing where no chance is known."""
    above = []
    for task in run.tasks.values():
        chance = task.chance(task.main_metric)
        if chance is not None:
            above.append(task.main_estimate.ci95[0] > chance)
    if above:
        count = f"{sum(above)} of {len(above)} tasks with a known chance"
        yield f"{count} lie above it by their whole 95 % interval."


def notes_of(run: RunResult) -> list[str]:
    notes = []
    against = str(run.config.get("against"))
    if run.decided:
        notes.append(_decided(run.decided, against))
    if any(gap.is_model_only for task in run.tasks.values() for gap in task.human):
        notes.append(
            f"{MODEL_ONLY} the interval of the model's number alone: that of the human baseline is "
            "not known"
        )
    counts = Counter[str]()
    cautions = dict[str, None]()
    for name, task in run.tasks.items():
        of_task = (*_of_task(task, against), *task.details.notes(task))
        notes += [f"{name}: {note}" for note in of_task]
        counts.update(task.details.counts(task))
        counts[WITHOUT_TEXT] += task.tokens_without_text or 0
        cautions[task.details.caution] = None
    notes += [f"{count} {what}" for what, count in counts.items() if count]
    notes += filter(None, cautions)
    return [*notes, *_of_all(run)]


def _decided(decided: Decided, against: str) -> str:
    numbers = f"{decided.difference:+.4f}, give or take {decided.half_width:.4f}"
    return f"{decided.composite}: {_VERDICTS[decided.winner]} {against} on this set: {numbers}"


def _of_task(task: TaskResult, against: str) -> Iterator[str]:
    sampled = task.sampled
    if sampled and not sampled.is_whole:
        low, high = sampled.interval
        yield (
            f"{sampled.examples} of {sampled.of} examples ran, in a random order ({sampled.how}, "
            f"seed {sampled.seed}); with 95 % confidence the {task.main} of all of them lies "
            f"between {low:.3f} and {high:.3f}"
        )
    if sampled and sampled.winner is not None:
        verdict = f"{_VERDICTS[sampled.winner]} {against}"
        yield f"{verdict} on this set, after {sampled.examples} of its {sampled.of} examples"
    if task.data.published_rows is not None:
        yield (
            f"its file has {task.data.rows} rows, published are {task.data.published_rows}; no "
            "composite counts it"
        )
    if task.control_tokens:
        names = ", ".join(f"{name} ({count})" for name, count in task.control_tokens.items())
        yield (
            "names of special tokens in the data are read as these tokens; the number of rows "
            f"that hold each: {names}"
        )
    shots = task.num_shots or {}
    expected = task.num_fewshot or 0
    fewer = sum(count for kept, count in shots.items() if int(kept) < expected)
    if fewer:
        yield (
            f"{fewer} of {sum(shots.values())} prompts have fewer than {expected} few-shot "
            "examples: no more fit"
        )
    for gap in task.human:
        if gap.pairs:
            yield _of_people(gap)
        if gap.why_not and task.n:
            yield f"no human gap by {gap.metric}: {gap.why_not}"


def _of_people(gap: HumanGap) -> str:
    """People's score of the examples that the model has answered too, and the gap."""
    human = gap.human
    return (
        f"people's {gap.metric}: {shown(human.value)} ({interval(human.ci95) or ALONE}), "
        f"{human.n} examples by procedure {human.procedure}, {human.note}; the model's less "
        f"people's over the same {gap.pairs}: {shown(gap.value, '+.4f')} "
        f"({interval(gap.ci95) or ALONE}; {gap.interval})"
    )


def _of_all(run: RunResult) -> Iterator[str]:
    dtype = next(iter(run.checkpoint.dtypes), None)
    if dtype not in (None, run.dtype):
        yield (
            f"the model's own weights are {dtype}, and were not cast; here --dtype only sets the "
            "tolerance of the self-check"
        )
    if rows := run.config.get("rows"):
        yield f"--rows {','.join(map(str, rows))}: only these examples of each task"
    limits = {task.limit for task in run.tasks.values() if task.limit is not None}
    if limits:
        profiles = [task.profile for task in run.tasks.values() if task.num_fewshot]
        draws = any(profile.get("fewshot_pool") == "limited_items" for profile in profiles)
        pool = "; few-shot examples are sampled from them too" if draws else ""
        yield f"--limit {limits.pop()}: the first examples of each task or category{pool}"
    changed = [name for name, task in run.tasks.items() if task.data.state == "changed"]
    if changed:
        yield f"not the published data: {', '.join(changed)}"
