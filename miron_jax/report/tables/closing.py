"""The last lines of eval: the headline, what changed, where to look.

Arrives: a finished `Run`, an earlier one.  Leaves: at most five lines.  It deliberately does not
know how a score is made.
"""

import contextlib
import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from miron_jax.errors import InputError, some_of
from miron_jax.files.store import Store
from miron_jax.report.compare.runs import Comparison, compare
from miron_jax.report.compare.verdicts import LEVEL
from miron_jax.report.exports.flat import composites_of
from miron_jax.report.numbers import with_interval
from miron_jax.results.output import RESULTS
from miron_jax.results.run_folder import Run, read_runs

MOST = 3  # composites, tasks, changes that a line names
LAST_BESIDE = 8  # folders that are looked at for an earlier run
_STEP = re.compile(r"(step|checkpoint|ckpt|iter|epoch)[-_]?\d+$", re.IGNORECASE)


def last_run_beside(store: Store, model: str) -> Run | None:
    """The run of this model that was written last among the folders beside this one; None in an
    object store, or if none of the LAST_BESIDE newest is of it.  Checkpoints in folders such as
    step_1000 and step_2000 are one model."""
    if store.is_remote:
        return None
    folder = store.root.absolute()
    runs = list[tuple[float, Path]]()
    with contextlib.suppress(OSError):  # a parent that may not be listed
        for path in folder.parent.iterdir():
            with contextlib.suppress(OSError):  # no run, or a folder that may not be read
                if path != folder:
                    runs.append(((path / RESULTS).stat().st_mtime, path))
    for _, path in sorted(runs, reverse=True)[:LAST_BESIDE]:
        with contextlib.suppress(InputError, OSError):
            run = read_runs([str(path)])[0]
            if _without_step(run.result.model) == _without_step(model):
                return run
    return None


def _without_step(model: str) -> str:
    return _STEP.sub("", model.rstrip("/"))


def closing_lines(run: Run, against: Run | None, is_asked: bool) -> Iterator[str]:
    """`is_asked`: the user named the earlier run; else a run that cannot be compared is passed
    over."""
    yield _headline(run)
    if against is not None:
        try:
            yield from _changes(compare(against, run))
        except InputError as error:
            if is_asked:
                yield str(error)
    seconds = run.result.speed.wall_seconds
    num_examples = sum(task.n for task in run.tasks.values())
    count = len(run.tasks)
    check = run.result.self_check
    checked = ""
    if check.tokens:
        checked = f"; self-check: {check.tokens} tokens within {check.largest:.1e} nats"
    yield (
        f"{count} task{'s' if count > 1 else ''}, {num_examples} examples in {seconds:.1f} s"
        f"{checked}; numbers: {run.folder}/{RESULTS}"
    )
    page = "report.html" if run.store.is_remote else f"{run.folder}/report.html"
    yield f"look at it: miron-jax report {shlex.quote(run.folder)} --html={shlex.quote(page)}"


def average_lines(average: Run, last: Run) -> Iterator[str]:
    """What an average of a run's checkpoints scores, beside the last one."""
    weights = average.result.checkpoint
    steps = some_of(weights.averaged, 8)
    yield f"average {weights.average} of steps {steps}: {_headline(average)}; in {average.folder}"
    try:
        yield from _changes(compare(replace(last, label=f"step {last.result.step}"), average))
    except InputError as error:
        yield str(error)


def _headline(run: Run) -> str:
    composites = []
    for name, (composite,) in composites_of([run]).items():
        if math.isfinite(composite.value):
            composites.append(f"{_short(name)} {with_interval(composite)}")
    tasks = []
    for name, task in run.tasks.items():
        tasks.append(f"{name} {task.main_metric} {with_interval(task.main_estimate)}")
    return some_of(composites or tasks, MOST)


def _short(name: str) -> str:
    """ "core: CORE" stays; "miron: miron overall .." loses the suite, which its name has too."""
    suite, _, composite = name.partition(": ")
    if composite.startswith(f"{suite} "):
        return composite
    return name


def _changes(comparison: Comparison) -> Iterator[str]:
    """Composites and tasks, newer less older."""
    against = f"against {comparison.first.label}: "
    if comparison.composites:
        shown = []
        for each in comparison.composites:
            shown.append(
                f"{each.name} {each.paired.value:+.4f} (paired, {each.paired.ci95[0]:+.4f} to "
                f"{each.paired.ci95[1]:+.4f})"
            )
        yield f"{against}{some_of(shown, MOST)}"
        against = ""
    mains = []
    for each in comparison.tasks:
        if each.is_main and not math.isnan(each.difference.p_value):
            mains.append(each)
    changed = []
    for each in sorted(mains, key=lambda each: each.adjusted):
        if each.adjusted < LEVEL:
            changed.append(f"{each.task} {each.metric} {each.difference.value:+.4f}")
    counts = f"{len(changed)} of {len(mains)} tasks changed their main metric by more than chance"
    tasks = f": {some_of(changed, MOST)}" if changed else ""
    yield f"{against}{counts} (Holm, {LEVEL:g}){tasks}"
