"""The scores and costs of a run -> its numbers.

Arrives: a RunConfig and its `Outcome`.  Leaves: a `FinishedRun`: the `RunResult`, composites
included, and the `FinishedTask`s.  It deliberately does not know JSON or files.
"""

import math
import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib.metadata import version

import jax

from miron_jax import __version__
from miron_jax.config import RunConfig
from miron_jax.engine.self_check import SelfCheck
from miron_jax.evaluation.composites import suite_composites
from miron_jax.evaluation.records import Outcome
from miron_jax.evaluation.task_kinds.controls import with_controls
from miron_jax.evaluation.task_kinds.draws import composite_draws, with_draws
from miron_jax.files.readers import JsonObject
from miron_jax.results.document import config_json
from miron_jax.results.records import (
    RunEnvironment,
    RunResult,
    RunSpeed,
    SelfCheckResult,
    SuiteResult,
    Weights,
)
from miron_jax.results.samples import FinishedRun
from miron_jax.runtime.devices import Placement
from miron_jax.runtime.timeline import spent_on

_PACKAGES = ("jax", "jaxlib", "flax", "transformers", "tokenizers", "numpy")


def finished_runs(
    config: RunConfig, outcomes: Iterable[tuple[int | None, Outcome]]
) -> Iterator[tuple[Outcome, FinishedRun]]:
    """What `evaluate_checkpoints` gives, with the numbers of each."""
    for step, outcome in outcomes:
        yield outcome, finished_run(config, outcome, step)


@spent_on("metrics")
def finished_run(config: RunConfig, outcome: Outcome, step: int | None = None) -> FinishedRun:
    """The run without its times: see `with_times`.  `step`: of one checkpoint of several."""
    finished = {scores.source.task.name: scores.kind.finished(scores) for scores in outcome.tasks}
    if config.controls:
        finished = with_controls(finished, outcome.tasks, outcome.controls)
    if config.fewshot_draws > 1:
        finished = with_draws(finished, outcome.tasks, outcome.draws)
    tasks = {name: task.result for name, task in finished.items()}
    suites = {}
    for suite in outcome.inputs.suites:
        missing = outcome.inputs.missing.items()
        of_suite = {name: why for name, why in missing if name.startswith(f"{suite.name}/")}
        composites = suite_composites(suite, tasks)
        for name, composite in composites.items():
            composites[name] = replace(composite, draws=composite_draws(composite, tasks))
        suites[suite.name] = SuiteResult(composites, of_suite)
    result = RunResult(
        config={**config_json(config), **_where_it_ran(config, outcome.placement)},
        environment=replace(environment(), matmul_precision=outcome.matmul_precision),
        tasks=tasks,
        suites=suites,
        speed=_speed(outcome),
        generation=outcome.generation,
        self_check=_checked(outcome.check),
        unanswered=sum(len(task.unanswered) for task in finished.values()),
        decided=outcome.decided,
        unverified=tuple(outcome.unverified),
        checkpoint=_weights(outcome),
        step=step,
    )
    return FinishedRun(result, finished)


def _where_it_ran(config: RunConfig, ran: Placement | None) -> JsonObject:
    """`sharding` and `mesh` of weights that do not lie as the flags say: `one` device, or the mesh
    of the `user`."""
    if ran is None or ran == Placement.choose(config.sharding, config.mesh):
        return {}
    axes = {} if ran.mesh is None else ran.mesh.shape
    return {"sharding": ran.how, "mesh": [[axis, size] for axis, size in axes.items()]}


_version = cache(version)  # each reads a file, and an Evaluator's later runs ask again


def environment() -> RunEnvironment:
    device = jax.devices()[0]
    return RunEnvironment(
        python=platform.python_version(),
        packages={"miron-jax": __version__, **{name: _version(name) for name in _PACKAGES}},
        device=device.device_kind,
        platform=device.platform,
        num_devices=jax.device_count(),
        host=platform.processor() or platform.machine(),
        xla_flags=os.environ.get("XLA_FLAGS", ""),
        matmul_precision=jax.config.values["jax_default_matmul_precision"],
    )


def _speed(outcome: Outcome) -> RunSpeed:
    totals = outcome.totals
    speed = outcome.speed
    computed = speed.computed_tokens / max(totals.unique_tokens, 1)
    seconds = speed.device_seconds
    return RunSpeed(
        requests=totals.requests,
        load_seconds=outcome.load_seconds,
        unique_tokens=totals.unique_tokens,
        tokens_by_task=totals.by_task,
        padded_tokens=speed.batch_tokens,
        plain_tokens=totals.plain_tokens,
        batch_slots=max((shape.slots for shape in speed.batches), default=0),
        programs=speed.programs,
        attention=speed.attention,
        compile_seconds=speed.compile_seconds,
        device_seconds=seconds,
        journal_seconds=outcome.journal_seconds,
        computed_tokens=speed.computed_tokens,
        tokens_per_second=speed.computed_tokens / seconds if seconds else math.nan,
        useful_flops=totals.useful_flops,
        useful_flops_per_second=totals.useful_flops * computed / seconds if computed else math.nan,
    )


def _checked(check: SelfCheck) -> SelfCheckResult:
    return SelfCheckResult(
        tolerance=max(check.tolerance, check.largest_bound),
        requests=check.requests,
        tokens=check.tokens,
        largest=check.largest,
        seconds=check.seconds,
        programs=check.programs,
    )


def _weights(outcome: Outcome) -> Weights:
    checkpoint = outcome.checkpoint
    return Weights(
        folder=None if checkpoint.folder is None else str(checkpoint.folder),
        fingerprint=checkpoint.fingerprint,
        weights=outcome.weights,
        commits=outcome.commits,
        dtypes=outcome.dtypes,
        parameters=sum(outcome.dtypes.values()),
        flops_per_token=outcome.flops_per_token,
        training_tokens=outcome.training_tokens,
        tokenizer=outcome.tokenizer,
        tokenizer_from=outcome.tokenizer_from,
        answers=outcome.answers,
        implausible=tuple(outcome.implausible),
        average=checkpoint.average,
        averaged=tuple(checkpoint.averaged_steps),
    )
