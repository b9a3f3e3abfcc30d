"""An `Outcome` -> what results/output writes: results, samples, other layouts, curves.

Arrives: an `Outcome`, or the results of all steps.  Leaves: files, a `RunResult`.  It deliberately
does not know how a file is written.
"""

import io
from collections.abc import Iterator, Mapping

from miron_jax.config import RunConfig
from miron_jax.evaluation.records import Outcome
from miron_jax.evaluation.run_result import run_result
from miron_jax.files.places import public
from miron_jax.files.store import Store
from miron_jax.report.exports.other_layouts import other_layout
from miron_jax.report.tables.curves import draw_curves
from miron_jax.results import output
from miron_jax.results.output import CURVES, STEP
from miron_jax.results.records import RunResult
from miron_jax.results.run_folder import Run
from miron_jax.results.samples import ExampleResult


def write_outcome(
    config: RunConfig, outcome: Outcome, wall_seconds: float, step: int | None = None
) -> RunResult:
    """`step`: of one checkpoint of several, in its own folder."""
    result = run_result(config, outcome, wall_seconds, step)
    by_task = {scores.source.task.name: scores for scores in outcome.tasks}

    def examples(task: str) -> Iterator[ExampleResult]:
        return by_task[task].kind.example_results(by_task[task])

    def further() -> Iterator[tuple[str, bytes]]:
        for scores in outcome.tasks:
            yield from scores.kind.further_files(scores)
        yield from other_layout(config.results_format, result, examples)

    return output.write_run(Store(config.output), result, examples, further())


def write_top(config: RunConfig, steps: Mapping[int, RunResult], wall_seconds: float) -> RunResult:
    """Write the last step's results to the output folder too, with all `steps`; `wall_seconds`: of
    all."""
    store = Store(config.output)
    last = steps[max(steps)]
    run = Run("", store, f"{STEP}{last.step}", last)
    further = other_layout(config.results_format, last, run.examples)
    return output.write_top(store, steps, wall_seconds, further)


def write_curves(config: RunConfig, steps: Mapping[int, RunResult]) -> str:
    """Write the picture of all steps; returns its path."""
    picture = io.BytesIO()
    draw_curves(steps, picture)
    Store(config.output).put(CURVES, picture.getvalue())
    return f"{public(config.output)}/{CURVES}"
