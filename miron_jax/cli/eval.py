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
from miron_jax.files.store import Lock, Store, together

if TYPE_CHECKING:
    from miron_jax.evaluation.records import Inputs, Outcome
    from miron_jax.model.training_run import Checkpoint
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
    hosts = join_others()  # before transformers is imported, which looks whether it is to stay offline
    _check_same_flags(config, hosts)
    from miron_jax.report.output import check_output

    store = check_output(config)
    if not hosts.is_first:
        _score_along(config, store, hosts)
        hosts.end()
        return
    with Lock(store), together(store, hosts):
        _eval_into(config, store, hosts, start)
    hosts.end()


def _check_same_flags(config: RunConfig, hosts: "Hosts") -> None:
    """Places of files may differ from host to host; what is scored, and how, may not."""
    own = {name: value for name, value in json.loads(json.dumps(asdict(config))).items() if not SETTINGS[name].place}
    for name, value in hosts.agree("flags", own).items():
        if own[name] != value:
            raise InputError(
                f"process {hosts.index} runs with {name} = {own[name]}, process 0 with {name} = {value}: give all processes "
                "the same flags"
            )


def _score_along(config: RunConfig, store: Store, hosts: "Hosts") -> None:
    """A process that is not the first: its share of the work, into the folder that the first one checks and fills."""
    from miron_jax.inputs import find_inputs
    from miron_jax.run import evaluate_checkpoints

    with together(store, hosts):
        inputs = hosts.first_then_others("data", lambda: find_inputs(config, fetch=False))
        for _ in evaluate_checkpoints(config, inputs, lambda line: None, store=store, hosts=hosts):
            raise AssertionError("only the first process has results")


def _eval_into(config: RunConfig, store: Store, hosts: "Hosts", start: float) -> None:
    from miron_jax.inputs import find_inputs
    from miron_jax.report.curves import curves_table
    from miron_jax.report.output import write_curves, write_top
    from miron_jax.report.progress import Progress
    from miron_jax.report.table import print_results

    inputs = hosts.first_then_others("data", lambda: find_inputs(config))
    with Progress() as progress:
        for name, path in inputs.missing.items():
            progress.say(f"{name} is left out: {path} is missing")
        scored = _score_checkpoints(config, inputs, store, hosts, progress, start)
    results = write_top(config, scored.of_step, time.perf_counter() - start) if scored.of_step else scored.last
    if not results:
        raise InputError(
            f"--model={public(config.model)}: no checkpoint came within --watch_timeout; start the training, or wait longer"
        )
    print_results(progress.tables, results)
    if scored.of_step:
        curves = write_curves(config, scored.of_step)
        progress.tables.print(curves_table(scored.of_step))
        progress.tables.print(f"curves: {curves}", soft_wrap=True)
    progress.tables.print(f"written to {public(config.output)}/results.json", soft_wrap=True)
    for line in scored.broken:
        progress.say(f"miron-jax: {line}")
    if scored.unread is not None:
        raise scored.unread
    if scored.broken:
        sys.exit(FAILED)


class _Scored(NamedTuple):
    """The checkpoints of a run."""

    last: JsonObject  # results of the last one; empty: there was none
    of_step: dict[int, JsonObject]  # results of a training run's steps, earlier ones included
    broken: list[str]  # a sentence for each task to which the model answered NaN
    unread: InputError | None  # a checkpoint that could not be read ended the run; the steps before it are scored


def _score_checkpoints(
    config: RunConfig, inputs: "Inputs", store: Store, hosts: "Hosts", progress: "Progress", start: float
) -> _Scored:
    """Score every checkpoint, write and log its results."""
    from miron_jax.engine.self_check import SelfCheckFailed
    from miron_jax.report.loggers import numbers_of, open_loggers
    from miron_jax.report.output import stored_results, write_results
    from miron_jax.run import evaluate_checkpoints

    loggers = open_loggers(config)
    last: JsonObject = {}
    of_step: dict[int, JsonObject] = {}
    broken: list[str] = []

    def log(step: int | None, results: JsonObject) -> None:
        for logger in loggers:
            logger.log(step or 0, numbers_of(results))

    def is_stored(checkpoint: "Checkpoint", answers: "Answers | None") -> bool:
        stored = stored_results(config, checkpoint, inputs, answers)
        if stored is not None and checkpoint.step is not None:
            of_step[checkpoint.step] = stored
            log(checkpoint.step, stored)
        return stored is not None

    rounds = evaluate_checkpoints(config, inputs, progress.say, progress.advance, is_stored, store, hosts)
    try:
        for step, outcome in rounds:
            last = write_results(config, outcome, time.perf_counter() - start, step)
            broken += _broken(outcome, step)
            log(step, last)
            if step is not None:
                of_step[step] = last
                start = time.perf_counter()
    except SelfCheckFailed as error:
        progress.say(f"miron-jax: {error}")
        sys.exit(FAILED)
    except InputError as error:
        if not of_step:
            raise
        return _Scored(last, of_step, broken, error)
    finally:
        for logger in loggers:
            logger.close()
    return _Scored(last, of_step, broken, None)


def _broken(outcome: "Outcome", step: int | None) -> list[str]:
    """A sentence a task whose examples the model answered with NaN; they count as skipped, what was scored is written."""
    at = "" if step is None else f" at step {step}"
    found = [(task.source.task.name, task.unanswered) for task in outcome.tasks]
    return [
        f"{name}: the model answers NaN{at} to {len(ids)} examples, each asked alone too (the first: {ids[0]}), so the run "
        "fails: look for an overflow, such as weights too large for --dtype"
        for name, ids in found
        if ids
    ]
