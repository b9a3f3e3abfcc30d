"""`miron-jax eval`: scores a model on tasks.

Arrives: the flags of a run.  Leaves: the output folder, tables on screen.  It deliberately does not
know how a score is made: run.py does.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from absl import flags

from miron_jax.cli.json_output import JsonOutput, json_output
from miron_jax.cli.processes import (
    helped_plans,
    join_others,
    kept_plans,
    leave_out_torch,
    start_jax,
    wants_others,
)
from miron_jax.cli.report import checked_path, write_page
from miron_jax.cli.run_config import run_config
from miron_jax.config import SETTINGS, RunConfig
from miron_jax.errors import InputError, NotJudged, RunEnded, Unscored, printable, some_of
from miron_jax.files.claims import Claims
from miron_jax.files.places import public
from miron_jax.files.store import Lock, Store
from miron_jax.runtime.timeline import Timeline, since_start, spent_on

if TYPE_CHECKING:
    from miron_jax.definitions.data_files import DataState
    from miron_jax.evaluation.records import Inputs, Outcome
    from miron_jax.model.checkpoints.checkpoints import ModelFiles
    from miron_jax.model.checkpoints.training_run import Checkpoint
    from miron_jax.report.exports.loggers import Logger
    from miron_jax.report.tables.progress import Screen
    from miron_jax.results.records import RunResult
    from miron_jax.results.run_folder import Run
    from miron_jax.results.samples import FinishedRun
    from miron_jax.runtime.answers import Answers
    from miron_jax.runtime.hosts import Hosts

FLAGS = flags.FLAGS


def command() -> None:
    with Timeline(since_start()).running() as timeline:
        _eval(run_config(), timeline)


def _eval(config: RunConfig, timeline: Timeline) -> None:
    if config.watch and wants_others():
        raise InputError(
            "--watch waits for steps on one host: leave out --distributed and --coordinator, and "
            "start the same command on each host, which share the steps"
        )
    if (config.newest_first or config.keep_up) and not config.watch:
        raise InputError(
            "--newest_first and --keep_up say in which order --watch scores: give --watch too"
        )
    if config.generated and wants_others():
        raise InputError(
            "--generated scores completions in one process: leave out --distributed and "
            "--coordinator"
        )
    if config.output.startswith("memory:") and wants_others():
        raise InputError(
            f"--output={public(config.output)} is seen by one process only: name a folder that all "
            "of them share"
        )
    with spent_on("import"):
        start_jax()
    hosts = join_others()  # before the import of transformers, which reads HF_HUB_OFFLINE
    _check_same_flags(config, hosts)
    with spent_on("import"):
        from miron_jax.evaluation.inputs import why_not_grown
        from miron_jax.results.output import check_output, mend_output, tag_of

    check = partial(check_output, config, partial(why_not_grown, config))
    store = check()
    if not hosts.is_first:
        _score_along(config, store, hosts)
        hosts.end()
        return
    with Lock(store, tag=tag_of(config) if config.watch else "") as lock:
        notes = mend_output(store) if lock.is_first else []
        check()  # another run may have written there until it left the lock
        hosts.check_shared(store)

        def check_lock() -> None:
            if lock.renew():
                check()

        with json_output(FLAGS.json) as document, Claims(store) as claims:
            work = _Work(config, store, hosts, lock, check_lock, timeline, claims)
            _eval_into(work, document, notes)
    hosts.end()


def _check_same_flags(config: RunConfig, hosts: "Hosts") -> None:
    """Raises InputError if flags of this process differ from those of process 0.  Paths of files
    may differ."""
    flags = json.loads(json.dumps(asdict(config)))
    for name, expected in hosts.agree("flags", flags).items():
        if flags[name] != expected and not SETTINGS[name].is_path:
            raise InputError(
                f"process {hosts.index} runs with {name} = {flags[name]}, process 0 with {name} = "
                f"{expected}: give all processes the same flags"
            )


def _score_along(config: RunConfig, store: Store, hosts: "Hosts") -> None:
    """Do the share of a process that is not the first, which checks the output folder and writes
    the results."""
    from miron_jax.evaluation.inputs import find_inputs
    from miron_jax.evaluation.run import evaluate_checkpoints
    from miron_jax.model.checkpoints.checkpoints import find_model
    from miron_jax.runtime.progress import SILENT

    hosts.check_shared(store)
    leave_out_torch(config)
    files = hosts.first_then_others("model", lambda: find_model(config))
    # a host whose caches are its own looks there, and fetches what is not on the hub
    inputs = hosts.first_then_others("data", lambda: find_inputs(config))
    inputs = inputs._replace(kept=kept_plans(SILENT.say))
    for _ in evaluate_checkpoints(config, inputs, store=store, hosts=hosts, files=files):
        raise AssertionError("only the first process has results")


@dataclass(slots=True)
class _Work:
    """A run of the first process, and its results so far."""

    config: RunConfig
    store: Store
    hosts: "Hosts"
    lock: Lock
    check_lock: Callable[[], None]  # raises InputError if another run has taken the output folder
    timeline: Timeline  # since the command's process began
    claims: Claims  # on the steps of --watch
    last: "RunResult | None" = None  # of the checkpoint that was scored last
    average: "RunResult | None" = None  # of --average
    # of each step, those of an earlier command included
    by_step: "dict[int, RunResult]" = field(default_factory=dict)
    # a sentence for each task that has examples without a score
    failures: list[str] = field(default_factory=list)
    # a sentence for each task that has programs which the machine could not judge
    not_judged: list[str] = field(default_factory=list)
    error: InputError | None = None  # which ended the run after some steps had been scored
    loggers: "Sequence[Logger]" = ()
    data: "dict[str, DataState]" = field(default_factory=dict)  # of each task

    def keep(self, result: "RunResult", step: int | None) -> None:
        from miron_jax.report.exports.loggers import logged_numbers

        if result.checkpoint.average:
            self.average = result  # beside the curves of steps
            return
        if step is not None:
            self.by_step[step] = result
        for logger in self.loggers:
            logger.log(step or 0, logged_numbers(result))

    def is_stored(self, checkpoint: "Checkpoint", answers: "Answers | None") -> bool:
        """Whether these weights have results; those of an earlier command are kept."""
        from miron_jax.results.output import folder_of, has_asked_for, stored_result

        config = self.config
        below = folder_of(checkpoint.step, checkpoint.average)
        wants_more = (
            config.save_requests or config.save_byte_losses or config.results_format is not None
        )
        # what an earlier run need not have written; scores come from the journal
        if wants_more and not (config.watch and has_asked_for(config, below)):
            return False
        if not below or checkpoint.fingerprint is None:
            return False
        known = self.average
        if checkpoint.step is not None:
            known = self.by_step.get(checkpoint.step)
        if known is not None and known.checkpoint.fingerprint == checkpoint.fingerprint:
            return True
        stored = stored_result(config, below, checkpoint.fingerprint, self.data, answers)
        if stored is not None:
            self.keep(stored, checkpoint.step)
        return stored is not None


def _eval_into(work: _Work, document: JsonOutput, notes: Sequence[str]) -> None:
    """Score every checkpoint, write the results and print them.  Raises Unscored, NotJudged.

    `notes`: what was mended in the output folder."""
    with spent_on("import"):
        from miron_jax.report.exports.other_layouts import other_layout
        from miron_jax.report.figures.curves import write_curves
        from miron_jax.report.tables.progress import Screen
        from miron_jax.results.document import run_json
        from miron_jax.results.output import leave_smaller_run
        from miron_jax.results.run_folder import read_runs
        from miron_jax.results.writing import write_top

    config = work.config
    if FLAGS.html:
        checked_path(FLAGS.html, "html")
    against = read_runs([config.against])[0] if config.against else None
    screen = Screen(FLAGS.quiet, FLAGS.verbose)
    files, inputs = _checked_inputs(work, screen, against)
    with screen:
        if inputs.missing:
            first = next(iter(inputs.missing.values()))
            screen.warn(f"left out, as data are missing ({first} ..): {', '.join(inputs.missing)}")
        for line in notes:
            screen.warn(line)
        if work.lock.is_first:
            leave_smaller_run(config, work.store)
        work.lock.share()
        _score_checkpoints(work, inputs, files, screen)
    work.check_lock()
    curves = None
    with work.claims.top() if config.watch else nullcontext():
        if work.by_step:
            layout = partial(other_layout, config.results_format)
            work.last = write_top(config, work.by_step, work.timeline.total, layout)
            curves = write_curves(config, work.by_step)
    if work.last is None:
        raise InputError(
            f"--model={public(config.model)}: no checkpoint came within --watch_timeout; start the "
            "training, or wait longer"
        )
    document.write(run_json(work.last))
    _write_page(config)
    _print_results(work, work.last, curves, against)
    # the last one decides the exit status: what running again mends stands first
    endings: list[RunEnded] = [*map(NotJudged, work.not_judged), *map(Unscored, work.failures)]
    if work.error is not None:
        endings.append(work.error)
    for ending in endings[:-1]:
        screen.warn(f"miron-jax: {ending}")
    if endings:
        raise endings[-1]


def _checked_inputs(
    work: _Work, screen: "Screen", against: "Run | None"
) -> "tuple[ModelFiles | None, Inputs]":
    """What flags refuse is refused before the model and the data are looked for.  Without a model
    where completions are there."""
    import jax

    from miron_jax.evaluation.earlier import with_earlier
    from miron_jax.evaluation.inputs import find_inputs, select_tasks
    from miron_jax.evaluation.sampling import check_sampling
    from miron_jax.model.checkpoints.checkpoints import find_model
    from miron_jax.model.own import is_factory
    from miron_jax.report.exports.other_layouts import check_layout
    from miron_jax.report.tables.opening import opening_line
    from miron_jax.runtime.backend import start_devices

    config = work.config
    selected = select_tasks(config)
    knows_devices = work.hosts.count == 1 and not is_factory(config.model)
    if knows_devices:
        start_devices(screen.warn)
    is_idle = knows_devices and jax.default_backend() != "cpu"
    helped = helped_plans(config, len(selected.tasks), screen.say, is_idle)
    screen.say(opening_line(config, selected, knows_devices))
    check_layout(config.results_format, [suite.name for suite in selected.suites])
    if config.is_sampled:
        check_sampling(config, has_earlier=against is not None)
    leave_out_torch(config)
    files = None
    if config.generated is None:
        files = work.hosts.first_then_others("model", lambda: find_model(config))
    inputs = work.hosts.first_then_others("data", lambda: find_inputs(config, selected=selected))
    if helped is not None:
        helped.begin()
    inputs = inputs._replace(kept=helped or kept_plans(screen.say))
    if config.is_sampled and against is not None:
        inputs = with_earlier(inputs, against)
    return files, inputs


def _print_results(
    work: _Work, result: "RunResult", curves: str | None, against: "Run | None"
) -> None:
    """`curves`: the path of their picture; None: of one checkpoint there is none."""
    from miron_jax.report.tables.closing import average_lines, closing_lines, last_run_beside
    from miron_jax.report.tables.console import console
    from miron_jax.report.tables.curves import curves_table
    from miron_jax.report.tables.results import print_results, speed_line, timeline_lines
    from miron_jax.results.output import folder_of
    from miron_jax.results.run_folder import Run

    out = console()
    if not FLAGS.quiet:
        print_results(out, result)
        if FLAGS.verbose:
            for line in (speed_line(result), *timeline_lines(result)):
                out.print(line, soft_wrap=True)
        if curves is not None:
            out.print(curves_table(work.by_step))
            out.print(f"curves: {curves}", soft_wrap=True)
    run = Run(work.config.output, work.store, "", result)
    if work.average is not None:
        below = folder_of(None, work.average.checkpoint.average)
        average = Run(f"{work.config.output}/{below}", work.store, below, work.average)
        for line in average_lines(average, run):
            out.print(line, soft_wrap=True)
    earlier = against or last_run_beside(work.store, public(work.config.model))
    for line in closing_lines(run, earlier, against is not None):
        out.print(line, soft_wrap=True)


def _score_checkpoints(
    work: _Work, inputs: "Inputs", files: "ModelFiles | None", screen: "Screen"
) -> None:
    """Score every checkpoint, write and log its results."""
    with spent_on("import"):
        from miron_jax.evaluation.run import evaluate_checkpoints
        from miron_jax.evaluation.run_result import finished_runs
        from miron_jax.evaluation.written_elsewhere import score_written
        from miron_jax.report.exports.loggers import open_loggers
        from miron_jax.results.output import dropped_steps

    config = work.config
    work.loggers = open_loggers(config)
    work.data = {source.task.name: source.data for source in inputs.sources}
    if config.generated is None:
        outcomes = evaluate_checkpoints(
            config,
            inputs,
            screen,
            work.is_stored,
            work.store,
            work.hosts,
            files,
            work.claims if config.watch else None,
        )
    else:
        outcomes = [(None, score_written(config, config.generated, inputs, screen))]
    try:
        for outcome, run in finished_runs(config, outcomes):
            work.check_lock()
            _keep_run(work, outcome, run, screen)
    except InputError as error:
        if not work.by_step:
            raise
        work.error = error
    finally:
        for logger in work.loggers:
            logger.close()
    if work.by_step:
        dropped = dropped_steps(config, work.data, work.by_step)
        work.by_step |= dropped
        if dropped:
            screen.say(
                f"steps {some_of(sorted(dropped), 8)}: their checkpoints are gone, their earlier "
                "results stay"
            )


def _keep_run(work: _Work, outcome: "Outcome", run: "FinishedRun", screen: "Screen") -> None:
    """Write the results of a checkpoint, then log and show them."""
    from miron_jax.cli.chosen_examples import chosen_examples
    from miron_jax.report.exports.other_layouts import other_layout
    from miron_jax.results.output import folder_of
    from miron_jax.results.writing import write_finished

    config = work.config
    scored = outcome.checkpoint
    step = run.result.step
    if config.watch and not work.claims.has(folder_of(step, scored.average)):
        screen.warn(f"{scored.title} is another process's now, as this one stood still")
        return
    layout = partial(other_layout, config.results_format)
    work.last = write_finished(config, run, work.timeline.lap, layout)
    work.failures += _failures(run, step)
    work.not_judged += _not_judged(run, step)
    work.keep(work.last, step)
    if config.rows is not None:
        for scores in outcome.tasks:
            print(printable("\n".join(chosen_examples(scores.kind, scores))))
    if step is not None:
        _write_page(config)


def _write_page(config: RunConfig) -> None:
    """The page of --html, beside the run of --against."""
    if FLAGS.html:
        write_page(FLAGS.html, [*filter(None, [config.against]), config.output])


def _failures(run: "FinishedRun", step: int | None) -> list[str]:
    """A sentence for each task that has examples which the model answers with NaN.

    Such examples count as skipped; the results are written all the same.
    """
    at = "" if step is None else f" at step {step}"
    return [
        f"{name}: the model answers NaN{at} to {len(ids)} examples, each asked "
        f"alone too (the first: {ids[0]}), so the run fails: look for an overflow, such as weights "
        "too large for --dtype"
        for name, task in run.tasks.items()
        if (ids := task.unanswered)
    ]


def _not_judged(run: "FinishedRun", step: int | None) -> list[str]:
    """A sentence for each task that has programs which the machine could not judge.  They are in no
    mean."""
    at = "" if step is None else f" at step {step}"
    return [
        f"{name}: {len(why)} examples{at} are not judged, as their programs could "
        f"not be run (the first, {next(iter(why))}: {next(iter(why.values()))}): run the same "
        "command again, which judges only them"
        for name, task in run.tasks.items()
        if (why := task.not_judged)
    ]
