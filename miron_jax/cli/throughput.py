"""`miron-jax bench`: the devices' peak rate, the engine's share of it, and the gain from each idea
of the engine.

Arrives: a run's configuration and data.  Leaves: a `Bench` with the measurements of one machine.
It deliberately does not know scores: it runs real rows and drops their results.

SECONDS bounds the number of timed batches of each row length; the time of the others is
extrapolated.  An ablation times the same requests without one idea of the engine; its useful FLOPs
are those of the engine's layout.
"""

import math
import resource
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import starmap

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.config import RunConfig
from miron_jax.engine.forward import Forward
from miron_jax.engine.model import Model, attention_of, with_experts
from miron_jax.errors import InputError
from miron_jax.evaluation.parts import parts_of, requests_of, survey
from miron_jax.evaluation.records import Inputs
from miron_jax.evaluation.run_tasks import RunTasks
from miron_jax.evaluation.task_kinds.kinds import kind_of
from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model, rounds
from miron_jax.model.checkpoints.loading import loaded
from miron_jax.model.costs import cost_model, useful_flops
from miron_jax.planning.records import CostModel, Plan
from miron_jax.planning.request_batches import Totals, plan_request_batches
from miron_jax.report.tables.bench import Bench, Bucket, Layout
from miron_jax.runtime.backend import start_devices
from miron_jax.runtime.devices import Device, Placement
from miron_jax.runtime.progress import SILENT, Progress
from miron_jax.tokens.records import Requests

SECONDS = 60.0  # about how long the timed batches of one layout take
SQUARE_ON_CPU, SQUARE = 2048, 8192  # rows and columns of the matrices that measure the peak rate


def measure(config: RunConfig, inputs: Inputs, progress: Progress = SILENT) -> Bench:
    """Measure scoring on the first request batch of `eval`, without generation.  Raises
    InputError."""
    if not any(kind_of(source.task).scores_spans for source in inputs.sources):
        raise InputError(
            "--tasks: all of these generate texts, and bench times scoring: name a task with "
            "choices"
        )
    files = find_model(config)
    architecture = architecture_of(config, files)
    start_devices(progress.warn)
    placement = Placement.choose(config.sharding, config.mesh)
    first = next(rounds(config, files, progress, lambda checkpoint: False))
    _, state = next(loaded(architecture, config, first, placement, progress))
    model = with_experts(
        Model(architecture.config, architecture.network, state, placement, config.attention),
        progress,
    )
    peak = matmul_rate(config.dtype, placement.device)
    progress.say(
        f"{peak / 1e9:.0f} GFLOP/s in a large {config.dtype} product on "
        f"{placement.device.device_kind}"
    )

    cost = cost_model(model.config)
    totals = Totals()
    start = time.perf_counter()
    tasks = RunTasks.of(config, inputs, architecture)
    surveyed = survey(tasks.kinds, cost)
    survey_seconds = time.perf_counter() - start
    start = time.perf_counter()
    parts = parts_of(tasks.kinds, surveyed.order)
    requests = requests_of(next(parts), model.config.vocab_size)
    tokenize_seconds = time.perf_counter() - start
    start = time.perf_counter()
    plan = _planned(requests, cost, totals)
    plan_seconds = time.perf_counter() - start
    totals.expected = surveyed.plain_tokens
    tokenize_seconds += survey_seconds * totals.share  # the survey is of the whole run
    flops = useful_flops(model.config, plan)

    def time_layout(name: str, layout: Plan) -> Layout:
        progress.say(f"{name} ...")
        forward = Forward(model, config.token_budget, id_sets=tasks.setup.table.id_sets)
        return _layout(name, layout, forward)

    engine = time_layout("the engine", plan)
    memory = _peak_bytes(placement.device)
    ablations = [*starmap(time_layout, _ablations(requests, plan, cost))]
    fastest = min(layout.seconds for layout in (engine, *ablations))
    rate = max(peak, flops / fastest / placement.devices)
    engine, *ablations = (
        replace(layout, share_of_peak=flops / layout.seconds / (rate * placement.devices))
        for layout in (engine, *ablations)
    )
    return Bench(
        placement.device.device_kind,
        placement.devices,
        attention_of(model).name,
        peak,
        rate,
        len(requests),
        totals.plain_tokens,
        totals.unique_tokens,
        flops,
        tokenize_seconds,
        plan_seconds,
        totals.unique_tokens / (tokenize_seconds + plan_seconds),
        engine.tokens / engine.seconds / placement.devices,
        memory,
        engine,
        ablations,
    )


def _ablations(requests: Requests, plan: Plan, cost: CostModel) -> Iterator[tuple[str, Plan]]:
    """Layouts of the same requests, each without one idea of the engine."""
    yield "no gather: the head at every place", _scored_everywhere(plan)
    changes = {"one row length": replace(cost, max_lengths=1)}
    if cost.sharing == "forest":
        changes |= {
            "no packing: a row holds one tree": replace(cost, sharing="trees"),
            "no sharing: a row holds whole requests": replace(cost, sharing="packed"),
            "neither: a row holds one request": replace(cost, sharing="none"),
        }
    for name, changed in changes.items():
        yield name, _planned(requests, changed, Totals())


def _layout(name: str, plan: Plan, forward: Forward) -> Layout:
    buckets = []
    for length in np.unique(plan.row_length)[::-1].tolist():
        buckets.append(_bucket(forward, plan, length))
    seconds = sum(bucket.seconds for bucket in buckets)
    slots = sum(bucket.batches * bucket.rows_a_batch * bucket.length for bucket in buckets)
    tokens = sum(bucket.tokens for bucket in buckets)
    return Layout(name, seconds, forward.speed.compile_seconds, slots, tokens, math.nan, buckets)


def _planned(requests: Requests, cost: CostModel, totals: Totals) -> Plan:
    return next(plan_request_batches(iter([requests]), cost, totals)).plan


def _scored_everywhere(plan: Plan) -> Plan:
    """The same rows with one edge at every node."""
    first = np.repeat(plan.node_offset[:-1], np.diff(plan.node_offset))
    parent = (np.arange(len(plan.token_ids)) - first).astype(np.int32)
    return replace(
        plan, edge_offset=plan.node_offset, edge_parent=parent, edge_target=np.zeros_like(parent)
    )


def _bucket(forward: Forward, plan: Plan, length: int) -> Bucket:
    """Compile for rows of this length, run one batch to warm up, then time as many as their share
    of SECONDS allows, but no fewer than two."""
    rows = np.flatnonzero(plan.row_length == length)
    forward.compile(plan, rows=rows)
    batches = list(forward.batches(plan, rows))

    def seconds_of(row_lists: list[list[int]]) -> float:
        start = time.perf_counter()
        deque(forward.run(plan, row_lists=iter(row_lists)), maxlen=0)
        return time.perf_counter() - start

    seconds_of(batches[:1])
    one_batch = seconds_of(batches[:1])
    allowed = SECONDS * len(rows) * length / int(plan.row_length.sum())
    timed = batches[: max(2, int(allowed / one_batch))]
    seconds = seconds_of(timed) / len(timed) * len(batches)
    size = forward.shard_rows(length) * forward.placement.shards
    tokens = plan.num_nodes(rows.tolist())
    return Bucket(length, len(rows), size, len(batches), len(timed), tokens, seconds)


def matmul_rate(dtype: str, device: Device) -> float:
    """FLOP/s of a large square matrix product with float32 sums: the best of five measurements."""
    size = SQUARE_ON_CPU if device.platform == "cpu" else SQUARE
    with jax.default_device(device):
        x, y = (
            jax.random.normal(jax.random.key(i), (size, size), jnp.float32).astype(dtype)
            for i in range(2)
        )
        product = jax.jit(
            lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.float32).astype(a.dtype)
        )
        jax.block_until_ready(product(x, y))
        rates = []
        for _ in range(5):
            start = time.perf_counter()
            jax.block_until_ready([product(x, y) for _ in range(4)])
            rates.append(4 * 2.0 * size**3 / (time.perf_counter() - start))
    return max(rates)


def _peak_bytes(device: Device) -> int | None:
    """Peak memory of the device in bytes, on CPU that of this process; None if the device does not
    report it."""
    if device.platform == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return (device.memory_stats() or {}).get("peak_bytes_in_use")
