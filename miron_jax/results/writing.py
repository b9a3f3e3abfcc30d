"""A finished run -> samples and results.json.

Arrives: a `FinishedRun`, or the results of all steps of a training run.  Leaves: files, and the
`RunResult` as they have it.  It deliberately does not know how a score is made, nor the layouts of
other programs, which the caller gives.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.files.store import Store
from miron_jax.results.document import example_line
from miron_jax.results.output import STEP, folder_of
from miron_jax.results.records import RunResult
from miron_jax.results.run_folder import Run
from miron_jax.results.samples import ExamplesOf, FinishedRun
from miron_jax.results.whole import RESULTS, joined, replace_results, sample_content, sample_name
from miron_jax.runtime.timeline import Times, spent_on

Files = Iterable[tuple[str, bytes]]  # names below the output folder, contents
Layout = Callable[[RunResult, ExamplesOf], Files]  # the same numbers as another program writes them


def no_layout(result: RunResult, examples: ExamplesOf) -> Files:
    """results.json and samples alone."""
    return ()


@spent_on("write")
def write_finished(
    config: RunConfig,
    run: FinishedRun,
    times: Callable[[], Times],
    layout: Layout = no_layout,
) -> RunResult:
    """Write samples, further files and results.json, of one checkpoint of several in a folder of
    its own; returns the results as they are written.

    `times`: asked for once samples are written.  Raises OSError.
    """
    store = Store(config.output)
    below = folder_of(run.result.step, run.result.checkpoint.average)

    def samples() -> Iterator[tuple[str, bytes]]:
        for task in run.tasks:
            yield task, b"".join(map(example_line, run.examples(task)))

    def finished() -> RunResult:
        result = with_times(run.result, times())
        _put(store, below, chain(run.further_files(), layout(result, run.examples)))
        return result

    return replace_results(store, below, samples(), finished)


@spent_on("write")
def write_top(
    config: RunConfig,
    steps: Mapping[int, RunResult],
    times: Callable[[], Times],
    layout: Layout = no_layout,
) -> RunResult:
    """Write the last step's results and samples to the output folder too, with all `steps`;
    `times`: of all.  Raises OSError, and InputError for samples that are damaged."""
    store = Store(config.output)
    last = steps[max(steps)]
    below = f"{STEP}{last.step}"
    result = replace(last, steps={str(step): f"{STEP}{step}/{RESULTS}" for step in sorted(steps)})

    def samples() -> Iterator[tuple[str, bytes]]:
        for task in result.tasks:
            name = joined(below, sample_name(task))
            file = last.samples.get(task)
            content = store.get(name) if file is None else sample_content(store, below, task, file)
            if content is None:
                raise InputError(
                    f"{store.name}/{name} is missing or damaged, expected the file that "
                    f"{below}/{RESULTS} names: remove {below}, and run the same command again"
                )
            yield task, content

    def finished() -> RunResult:
        whole = with_times(result, times())
        _put(store, "", layout(whole, Run("", store, below, last).examples))
        return whole

    return replace_results(store, "", samples(), finished)


def _put(store: Store, below: str, files: Files) -> None:
    for name, content in files:
        store.put(joined(below, name), content)


def with_times(result: RunResult, times: Times) -> RunResult:
    """The results with the time of day, the wall time and where it went."""
    speed = replace(
        result.speed,
        finished=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        wall_seconds=sum(times.main.values()),
        timeline=times.main,
        in_threads=times.in_threads,
    )
    return replace(result, speed=speed)
