"""`miron-jax bench`: what the devices give, what the engine takes of it, and what each of its ideas is worth.

Arrives: a run's configuration and data.  Leaves: `Bench`, numbers of one machine.  It deliberately knows no score: the rows
are real ones, their results are thrown away.

Of every row length some batches run, as many as the time allows, and the rest is reckoned from them.  An ablation lays
the same requests out with one idea left out and runs that; its useful work stays that of the answer.
"""

import resource
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.config import RunConfig
from miron_jax.engine.forward import Forward
from miron_jax.engine.model import Model, attention_of
from miron_jax.errors import InputError
from miron_jax.evaluation.parts import join, parts_of, survey
from miron_jax.evaluation.records import Inputs
from miron_jax.model.checkpoints import architecture_of, find_model, loaded, rounds
from miron_jax.model.costs import cost_model, useful_flops
from miron_jax.planning.records import CostModel, Plan
from miron_jax.planning.request_batches import Totals, plan_request_batches
from miron_jax.report.bench_table import Bench, Bucket, Layout
from miron_jax.run import length_limit
from miron_jax.runtime.devices import Placement
from miron_jax.task_kinds.interface import Setup
from miron_jax.task_kinds.kinds import kind_of
from miron_jax.tokens.records import Requests
from miron_jax.tokens.token_bytes import TokenBytes

SECONDS = 60.0  # that the batches of one layout run, about
SQUARE_ON_CPU, SQUARE = 2048, 8192  # of the product that the peak is measured with


def measure(config: RunConfig, inputs: Inputs, say: Callable[[str], None]) -> Bench:
    """Measure on the first part of what `eval` would score; texts are not drawn.  Raises InputError."""
    if not any(kind_of(source.task).scores_spans for source in inputs.sources):
        raise InputError("--tasks: all of these generate texts, and bench times scoring: name a task with choices")
    found = find_model(config)
    architecture, placement = architecture_of(config, found), Placement.choose(config.sharding, config.mesh)
    now = next(rounds(config, found, say, lambda checkpoint: False))
    _, state = next(loaded(architecture, config, now, placement))
    model = Model(architecture.config, architecture.network, state, placement, config.attention)
    peak = matmul_rate(config.dtype, placement.device)
    say(f"{peak / 1e9:.0f} GFLOP/s in a large {config.dtype} product on {placement.device.device_kind}")

    limit, cost = length_limit(config, model.config), cost_model(model.config)
    start, table = time.perf_counter(), TokenBytes(architecture.tokenizer, model.config.vocab_size)
    setup = Setup(config, architecture.tokenizer, table, limit)
    kinds = [kind_of(source.task)(source, setup) for source in inputs.sources]
    _, order = survey(kinds, cost)
    requests = next(join(parts_of(kinds, order), deque(maxlen=1), model.config.vocab_size))
    tokenize_seconds, totals = time.perf_counter() - start, Totals()
    start = time.perf_counter()
    plan = _planned(requests, cost, totals)
    plan_seconds = time.perf_counter() - start
    flops = useful_flops(model.config, plan)
    whole = flops / (peak * placement.devices)  # seconds at the peak

    def measured(name: str, own: Plan) -> Layout:
        say(f"{name} ...")
        forward = Forward(model, config.token_budget, id_sets=table.id_sets)
        buckets = [_bucket(forward, own, length) for length in np.unique(own.row_length)[::-1].tolist()]
        seconds = sum(bucket.seconds for bucket in buckets)
        places = sum(bucket.batches * bucket.rows_a_batch * bucket.length for bucket in buckets)
        tokens = sum(bucket.tokens for bucket in buckets)
        return Layout(name, seconds, forward.speed.compile_seconds, places, tokens, whole / seconds, buckets)

    def without(name: str, **changes: Any) -> Layout:
        return measured(name, _planned(requests, replace(cost, **changes), Totals()))

    engine = measured("the engine", plan)
    memory = _peak_bytes(placement.device)
    ablations = [
        measured("no gather: the head at every place", _scored_everywhere(plan)),
        without("one row length", max_lengths=1),
    ]
    if cost.sharing == "forest":
        ablations += [
            without("no packing: a row holds one tree", sharing="trees"),
            without("no sharing: a row holds whole requests", sharing="packed"),
            without("neither: a row holds one request", sharing="none"),
        ]
    return Bench(
        placement.device.device_kind,
        placement.devices,
        attention_of(model).name,
        peak,
        len(requests),
        totals.plain_tokens,
        totals.unique_tokens,
        flops,
        tokenize_seconds,
        plan_seconds,
        memory,
        engine,
        ablations,
    )


def _planned(requests: Requests, cost: CostModel, totals: Totals) -> Plan:
    return next(plan_request_batches(iter([requests]), cost, totals)).plan


def _scored_everywhere(plan: Plan) -> Plan:
    """The same rows with one edge at every place."""
    first = np.repeat(plan.node_offset[:-1], np.diff(plan.node_offset))
    source = (np.arange(len(plan.token_ids)) - first).astype(np.int32)
    return replace(plan, edge_offset=plan.node_offset, edge_parent=source, edge_target=np.zeros_like(source))


def _bucket(forward: Forward, plan: Plan, length: int) -> Bucket:
    """Compile for rows of this length, run one batch, then time as many as their share of SECONDS allows."""
    rows = np.flatnonzero(plan.row_length == length)
    forward.compile(plan, rows=rows)
    batches = list(forward.batches(plan, rows))

    def seconds_of(some: list[list[int]]) -> float:
        start = time.perf_counter()
        deque(forward.run(plan, row_lists=iter(some)), maxlen=0)
        return time.perf_counter() - start

    deque(forward.run(plan, row_lists=iter(batches[:1])), maxlen=0)
    first = seconds_of(batches[:1])
    allowed = SECONDS * len(rows) * length / int(plan.row_length.sum())
    some = batches[: max(2, int(allowed / first))]
    seconds = seconds_of(some) / len(some) * len(batches)
    size = forward.rows_a_batch(length) * forward.placement.shards
    tokens = plan.num_nodes(rows.tolist())
    return Bucket(length, len(rows), size, len(batches), len(some), tokens, seconds)


def matmul_rate(dtype: str, device: Any) -> float:
    """FLOPs a second of one large square product with float32 sums, the median of several."""
    size = SQUARE_ON_CPU if device.platform == "cpu" else SQUARE
    with jax.default_device(device):
        x, y = (jax.random.normal(jax.random.key(i), (size, size), jnp.float32).astype(dtype) for i in range(2))
        product = jax.jit(lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.float32).astype(a.dtype))
        jax.block_until_ready(product(x, y))
        rates = []
        for _ in range(5):
            start = time.perf_counter()
            jax.block_until_ready([product(x, y) for _ in range(4)])
            rates.append(4 * 2.0 * size**3 / (time.perf_counter() - start))
    return statistics.median(rates)


def _peak_bytes(device: Any) -> int | None:
    if device.platform == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    stats: dict[str, Any] = device.memory_stats() or {}
    return stats.get("peak_bytes_in_use")
