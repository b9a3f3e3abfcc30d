"""A `FinishedRun` -> what results/output writes: results, samples, other layouts, curves.

Arrives: a `FinishedRun`, or the results of all steps.  Leaves: files, a `RunResult`.  It
deliberately does not know how a score is made, nor how a file is written.
"""

import io
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain

from miron_jax.config import RunConfig
from miron_jax.files.places import public
from miron_jax.files.store import Store
from miron_jax.report.exports.other_layouts import other_layout
from miron_jax.report.figures.curves import draw_curves
from miron_jax.results import output
from miron_jax.results.output import CURVES, STEP
from miron_jax.results.records import RunResult
from miron_jax.results.run_folder import Run
from miron_jax.results.samples import FinishedRun
from miron_jax.runtime.timeline import Times, spent_on


@spent_on("write")
def write_finished(config: RunConfig, run: FinishedRun, times: Callable[[], Times]) -> RunResult:
    """One checkpoint of several is written to its own folder.  `times`: asked for once samples
    are written."""
    in_layout = partial(other_layout, config.results_format, examples=run.examples)
    return output.write_run(
        Store(config.output),
        run.result,
        run.examples,
        times,
        lambda result: chain(run.further_files(), in_layout(result)),
    )


@spent_on("write")
def write_top(
    config: RunConfig, steps: Mapping[int, RunResult], times: Callable[[], Times]
) -> RunResult:
    """Write the last step's results to the output folder too, with all `steps`; `times`: of all."""
    store = Store(config.output)
    last = steps[max(steps)]
    run = Run("", store, f"{STEP}{last.step}", last)
    further = partial(other_layout, config.results_format, examples=run.examples)
    return output.write_top(store, steps, times, further)


def write_curves(config: RunConfig, steps: Mapping[int, RunResult]) -> str:
    """Write the picture of all steps; returns its path."""
    picture = io.BytesIO()
    draw_curves(steps, picture)
    Store(config.output).put(CURVES, picture.getvalue())
    return f"{public(config.output)}/{CURVES}"
