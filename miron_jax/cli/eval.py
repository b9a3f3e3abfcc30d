"""`miron-jax eval`: score a model on tasks.

Arrives: the flags of a run.  Leaves: the output folder, tables on screen.  It deliberately does not know how a score is
made: run.py does.
"""

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from miron_jax.cli.processes import join_others, start_jax, wants_others
from miron_jax.cli.run_config import run_config
from miron_jax.config import SETTINGS, RunConfig
from miron_jax.errors import FAILED, InputError
from miron_jax.files.places import public
from miron_jax.files.readers import JsonObject
from miron_jax.files.store import Lock, Store

if TYPE_CHECKING:
    from miron_jax.evaluation.records import Inputs, Outcome
    from miron_jax.model.training_run import Checkpoint
    from miron_jax.report.loggers import Logger
    from miron_jax.report.progress import Progress
    from miron_jax.runtime.answers import Answers
    from miron_jax.runtime.hosts import Hosts


def command() -> None:
    start = time.perf_counter()
    config = run_config()
    if config.watch and wants_others():
        raise InputError("--watch waits for steps on one host: leave out --distributed and --coordinator, or --watch")
    if config.output.startswith("memory:") and wants_others():
        raise InputError(
            f"--output={public(config.output)} is seen by one process only: name a folder that all of them share"
        )
    start_jax()
    hosts = join_others()  # before the import of transformers, which reads HF_HUB_OFFLINE
    _check_same_flags(config, hosts)
    from miron_jax.report.output import check_output

    store = check_output(config)
    if not hosts.is_first:
        _score_along(config, store, hosts)
        hosts.end()
        return
    with Lock(store):
        hosts.check_shared(store)
        _eval_into(config, store, hosts, start)
    hosts.end()


def _check_same_flags(config: RunConfig, hosts: "Hosts") -> None:
    """Raises InputError where the flags of this process differ from those of process 0, paths of files apart."""
    flags = {name: value for name, value in json.loads(json.dumps(asdict(config))).items() if not SETTINGS[name].place}
    for name, expected in hosts.agree("flags", flags).items():
        if flags[name] != expected:
            raise InputError(
                f"process {hosts.index} runs with {name} = {flags[name]}, process 0 with {name} = {expected}: give all "
                "processes the same flags"
            )


def _score_along(config: RunConfig, store: Store, hosts: "Hosts") -> None:
    """Do the share of a process that is not the first, which checks the output folder and writes the results."""
    from miron_jax.inputs import find_inputs
    from miron_jax.run import evaluate_checkpoints

    hosts.check_shared(store)
    inputs = hosts.first_then_others("data", lambda: find_inputs(config, fetch=False))
    for _ in evaluate_checkpoints(config, inputs, lambda line: None, store=store, hosts=hosts):
        raise AssertionError("only the first process has results")


def _eval_into(config: RunConfig, store: Store, hosts: "Hosts", start: float) -> None:
    """Score every checkpoint, write the results and print them.  Exits with FAILED where a score could not be computed."""
    from miron_jax.engine.self_check import SelfCheckFailed
    from miron_jax.inputs import find_inputs
    from miron_jax.report.loggers import open_loggers
    from miron_jax.report.output import write_top
    from miron_jax.report.progress import Progress

    inputs = hosts.first_then_others("data", lambda: find_inputs(config))
    loggers = open_loggers(config)
    with Progress() as progress:
        for name, path in inputs.missing.items():
            progress.say(f"{name} is left out: {path} is missing")
        try:
            scored = _score_and_write(config, inputs, store, hosts, progress, loggers, start)
        except SelfCheckFailed as error:
            progress.say(f"miron-jax: {error}")
            sys.exit(FAILED)
        finally:
            for logger in loggers:
                logger.close()
    results = write_top(config, scored.by_step, time.perf_counter() - start) if scored.by_step else scored.last
    if not results:
        raise InputError(
            f"--model={public(config.model)}: no checkpoint came within --watch_timeout; start the training, or wait longer"
        )
    _print(config, results, scored, progress)
    if scored.error is not None:
        raise scored.error
    if scored.failures:
        sys.exit(FAILED)


class _Scored(NamedTuple):
    """What all checkpoints of a run scored."""

    last: JsonObject  # results of the checkpoint that was scored last; empty: none was
    by_step: dict[int, JsonObject]  # results of each step of a training run, those of an earlier command included
    failures: list[str]  # a sentence for each task that has examples without a score
    error: InputError | None  # what ended the run after some steps had been scored


def _score_and_write(
    config: RunConfig,
    inputs: "Inputs",
    store: Store,
    hosts: "Hosts",
    progress: "Progress",
    loggers: "list[Logger]",
    start: float,
) -> _Scored:
    """Score checkpoint after checkpoint; each one's results are written and logged before the next one is loaded."""
    from miron_jax.report.loggers import numbers_of
    from miron_jax.report.output import stored_results, write_results
    from miron_jax.run import evaluate_checkpoints

    last: JsonObject = {}
    by_step: dict[int, JsonObject] = {}
    failures: list[str] = []

    def log(step: int | None, results: JsonObject) -> None:
        if step is not None:
            by_step[step] = results
        for logger in loggers:
            logger.log(step or 0, numbers_of(results))

    def is_scored(checkpoint: "Checkpoint", answers: "Answers | None") -> bool:
        stored = stored_results(config, checkpoint, inputs, answers)
        if stored is not None:
            log(checkpoint.step, stored)
        return stored is not None

    try:
        for step, outcome in evaluate_checkpoints(
            config, inputs, progress.say, progress.advance, is_scored, store, hosts
        ):
            last = write_results(config, outcome, time.perf_counter() - start, step)
            failures += _failures(outcome, step)
            log(step, last)
            start = time.perf_counter()
    except InputError as error:
        if not by_step:
            raise
        return _Scored(last, by_step, failures, error)
    return _Scored(last, by_step, failures, None)


def _failures(outcome: "Outcome", step: int | None) -> list[str]:
    """A sentence for each task that has examples which the model answers with NaN.

    Such examples count as skipped; the results are written all the same.
    """
    at = "" if step is None else f" at step {step}"
    return [
        f"{task.source.task.name}: the model answers NaN{at} to {len(ids)} examples, each asked alone too (the first: "
        f"{ids[0]}), so the run fails: look for an overflow, such as weights too large for --dtype"
        for task in outcome.tasks
        if (ids := task.unanswered)
    ]


def _print(config: RunConfig, results: JsonObject, scored: _Scored, progress: "Progress") -> None:
    """Print the tables of the results; of a training run also the curves over its steps, which are written too."""
    from miron_jax.report.curves import curves_table
    from miron_jax.report.output import write_curves
    from miron_jax.report.table import print_results

    print_results(progress.tables, results)
    if scored.by_step:
        curves = write_curves(config, scored.by_step)
        progress.tables.print(curves_table(scored.by_step))
        progress.tables.print(f"curves: {curves}", soft_wrap=True)
    progress.tables.print(f"written to {public(config.output)}/results.json", soft_wrap=True)
    for sentence in scored.failures:
        progress.say(f"miron-jax: {sentence}")
