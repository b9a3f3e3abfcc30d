"""`miron-jax eval`: score a model on tasks.

Arrives: the flags of a run.  Leaves: the output folder, tables on screen.  It deliberately does not know how a score is
made: run.py does.
"""

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from miron_jax.cli.processes import join_others, start_jax, wants_others
from miron_jax.cli.run_config import run_config
from miron_jax.config import SETTINGS, RunConfig
from miron_jax.errors import FAILED, InputError
from miron_jax.files.places import public
from miron_jax.files.store import Lock, Store, together

if TYPE_CHECKING:
    from miron_jax.evaluation.records import Outcome
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
    from miron_jax.engine.self_check import SelfCheckFailed
    from miron_jax.inputs import find_inputs
    from miron_jax.model.training_run import Checkpoint
    from miron_jax.report.curves import curves_table
    from miron_jax.report.loggers import numbers_of, open_loggers
    from miron_jax.report.output import stored_results, write_curves, write_results, write_top
    from miron_jax.report.progress import Progress
    from miron_jax.report.table import print_results
    from miron_jax.run import evaluate_checkpoints

    inputs = hosts.first_then_others("data", lambda: find_inputs(config))
    loggers = open_loggers(config)

    def log(step: int | None, found: dict[str, Any]) -> None:
        for logger in loggers:
            logger.log(step or 0, numbers_of(found))

    with Progress() as progress:
        for name, path in inputs.missing.items():
            progress.say(f"{name} is left out: {path} is missing")
        results: dict[str, Any] = {}
        broken: list[str] = []
        unread: InputError | None = None
        of_step: dict[int, dict[str, Any]] = {}
        lap = start

        def scored(checkpoint: Checkpoint, answers: "Answers | None") -> bool:
            stored = stored_results(config, checkpoint, inputs, answers)
            if stored is not None and checkpoint.step is not None:
                of_step[checkpoint.step] = stored
                log(checkpoint.step, stored)
            return stored is not None

        try:
            for step, outcome in evaluate_checkpoints(
                config, inputs, progress.say, progress.advance, scored, store, hosts
            ):
                results = write_results(config, outcome, time.perf_counter() - lap, step)
                broken += _broken(outcome, step)
                log(step, results)
                if step is not None:
                    of_step[step] = results
                    lap = time.perf_counter()
        except SelfCheckFailed as error:
            progress.say(f"miron-jax: {error}")
            sys.exit(FAILED)
        except InputError as error:
            if not of_step:
                raise
            unread = error  # told behind what the other steps have scored
        finally:
            for logger in loggers:
                logger.close()
    if of_step:
        results = write_top(config, of_step, time.perf_counter() - start)
    if not results:
        raise InputError(
            f"--model={public(config.model)}: no checkpoint came within --watch_timeout; start the training, or wait longer"
        )
    print_results(progress.tables, results)
    if of_step:
        curves = write_curves(config, of_step)
        progress.tables.print(curves_table(of_step))
        progress.tables.print(f"curves: {curves}", soft_wrap=True)
    progress.tables.print(f"written to {public(config.output)}/results.json", soft_wrap=True)
    for line in broken:
        progress.say(f"miron-jax: {line}")
    if unread is not None:
        raise unread
    if broken:
        sys.exit(FAILED)


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
