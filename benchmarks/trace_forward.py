"""Where does the time of a batch go?  The engine's program, traced by instruction and compared with
bare matmuls.

    python benchmarks/trace_forward.py --model=FOLDER --data_dir=BUNDLE

Plans one CORE task as `eval` does, takes the row length that holds most of its tokens and runs full
batches of it: the engine's compiled program, and the same layers' weight matmuls alone at the same
number of slots, in turns, so that a noisy machine slows both.  Then jax's profiler traces a few
more batches; every instruction of the program is assigned to a part by the scope that its HLO
names.  Times are medians over the traced batches; time of no instruction is printed as such.  The
second share is an upper bound for this design: weight matmuls at their bare rate, with attention's
masks, maxima, sums and copies and the gaps between instructions for free.  CPU only: other devices
name their events differently.  The last line is JSON.
"""

import glob
import json
import re
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from absl import flags
from common import (
    PRINTED,
    bare_matmuls,
    environment,
    joined,
    layer_kernels,
    prepare,
    read_tasks,
    run,
    seconds_of,
)

from miron_jax.engine.batches import Shape, assemble
from miron_jax.engine.forward import Forward
from miron_jax.engine.model import load_model
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.config import ModelConfig, attention_flops_per_pair, matmul_params
from miron_jax.model.costs import cost_model
from miron_jax.planning.records import Plan
from miron_jax.planning.request_batches import Totals, plan_request_batches
from miron_jax.tokens.tokenizers import load_tokenizer

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_string("task", "arc_challenge", "CORE label.")
flags.DEFINE_integer("limit", 100, "Examples that are planned.", lower_bound=1)
flags.DEFINE_integer(
    "batches", 10, "Batches that are timed, and as many that are traced.", lower_bound=2
)
flags.DEFINE_integer(
    "token_budget", None, "Slots of a batch; the engine's own number when absent.", lower_bound=32
)
flags.DEFINE_integer("instructions", 12, "Longest instructions that are listed.", lower_bound=0)
flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Weights and matmul operands.")

WEIGHTS, ATTENTION_MATMULS = "weight matmuls", "attention: matmuls"
ATTENTION, EXPONENTIALS, HEAD = (
    "attention: mask, maximum, sum, copies",
    "attention: exponentials",
    "head",
)
SLICES, REST = "a layer's weights out of the stack", "norms, rotation, activation, residual"
# counted in the upper bound, with the weight matmuls
KEPT = (ATTENTION_MATMULS, EXPONENTIALS, HEAD, SLICES, REST)


class UsefulFlops(NamedTuple):
    """FLOPs that the answers of one batch need."""

    weights: float
    attention: float
    head: float


def main(_: Sequence[str]) -> None:
    folder = Path(FLAGS.model)
    tokenizer, config = load_tokenizer(FLAGS.model), from_hf_config(folder)
    works = [
        prepare(s, FLAGS.limit, tokenizer, config.num_positions)
        for s in read_tasks(FLAGS.data_dir, [FLAGS.task])
    ]
    model = load_model(folder, FLAGS.dtype)
    plan = next(
        iter(plan_request_batches(iter([joined(works)]), cost_model(config), Totals()))
    ).plan
    forward = Forward(model, FLAGS.token_budget, PRINTED)
    forward.compile(plan)
    shape, rows = full_batches(plan, forward)
    program = forward._program(shape)
    host, batches = zip(
        *(seconds_of(lambda batch=batch: assemble(plan, batch, shape)) for batch in rows),
        strict=True,
    )
    packed = [jax.device_put(batch.packed) for batch in batches]
    no_sets = forward._sets_table(0)
    bare = bare_matmuls(layer_kernels(model), shape.slots, FLAGS.dtype)

    def run_batch(i: int) -> None:
        jax.block_until_ready(program(model.state, no_sets, packed[i]))

    run_batch(0)
    bare()
    engine_seconds, bare_seconds = [], []
    for i in range(len(rows)):
        bare_seconds.append(seconds_of(bare)[0])
        engine_seconds.append(seconds_of(lambda i=i: run_batch(i))[0])
    columns = zip(*(useful_flops(config, plan, batch) for batch in rows), strict=True)
    useful = UsefulFlops(*(statistics.median(column) for column in columns))
    trace = traced(program.as_text() or "", run_batch, len(rows))
    report(shape, useful, engine_seconds, bare_seconds, trace, statistics.median(host))


def full_batches(plan: Plan, forward: Forward) -> tuple[Shape, list[list[int]]]:
    """The row length that holds most slots, and the rows of --batches full batches of it, repeated
    if there are fewer."""
    lengths, counts = np.unique(plan.row_length, return_counts=True)
    length = int(lengths[np.argmax(lengths * counts)])
    shape = Shape(forward._rows[length], length, forward._chunk)
    rows = np.flatnonzero(plan.row_length == length)
    batches = [
        rows[a : a + shape.rows].tolist() for a in range(0, len(rows) - shape.rows + 1, shape.rows)
    ]
    return shape, [batches[i % len(batches)] for i in range(FLAGS.batches)]


def useful_flops(config: ModelConfig, plan: Plan, rows: list[int]) -> UsefulFlops:
    tokens = pairs = parents = 0
    for row in rows:
        nodes = slice(plan.node_offset[row], plan.node_offset[row + 1])
        edges = slice(plan.edge_offset[row], plan.edge_offset[row + 1])
        tokens += nodes.stop - nodes.start
        pairs += int((plan.subtree_end[nodes] - np.arange(nodes.stop - nodes.start)).sum())
        parents += len(np.unique(plan.edge_parent[edges]))
    return UsefulFlops(
        2.0 * matmul_params(config) * tokens,
        float(attention_flops_per_pair(config)) * pairs,
        2.0 * config.d_model * config.vocab_size * parents,
    )


class Instruction(NamedTuple):
    part: str
    shape: str
    operation: str


class Trace(NamedTuple):
    """Medians over the traced batches, seconds a batch."""

    whole: float
    parts: dict[str, float]
    instructions: dict[tuple[str, Instruction], float]


def traced(hlo: str, run_batch: Callable[[int], None], batches: int) -> Trace:
    known = instructions_of(hlo)
    runs = [trace_once(known, lambda i=i: run_batch(i)) for i in range(batches)]
    whole = statistics.median(wall for wall, _ in runs)
    seconds = {
        (name, known[name]): statistics.median(by_name.get(name, 0.0) for _, by_name in runs)
        for name in {name for _, by_name in runs for name in by_name}
    }
    parts: dict[str, float] = defaultdict(float)
    for (_, instruction), median in seconds.items():
        parts[instruction.part] += median
    parts["between instructions, and rounding"] = whole - sum(parts.values())
    return Trace(whole, dict(parts), seconds)


def instructions_of(hlo: str) -> dict[str, Instruction]:
    """Every instruction but loops and calls; without a scope of its own, it gets that of most of
    its computation."""
    known: dict[str, Instruction] = {}
    for computation in hlo.split("\n}\n"):
        lines = re.findall(
            r"^ +(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) (.*)$", computation, flags=re.MULTILINE
        )
        scopes = {
            name: match[1]
            for name, _, text in lines
            if (match := re.search(r'op_name="([^"]*)"', text))
        }
        special = [scope for scope in scopes.values() if part_of("", scope) in (ATTENTION, HEAD)]
        usual = special[0] if 2 * len(special) > len(scopes) else ""
        for name, shape, text in lines:
            if not re.match(r"(while|call|conditional)\(", text):
                operation = scopes.get(name, "").rpartition("/")[2]
                known[name] = Instruction(
                    part_of(name, scopes.get(name, usual)), shape.partition("{")[0], operation
                )
    return known


def part_of(instruction: str, scope: str) -> str:
    multiplies = instruction.startswith(("ynn", "dot", "onednn"))  # as XLA:CPU's versions name it
    if "target_logprob" in scope:
        return HEAD
    if "forest_attention" in scope:
        if multiplies:
            return ATTENTION_MATMULS
        return EXPONENTIALS if "exponential" in instruction else ATTENTION
    if multiplies:
        return WEIGHTS
    return SLICES if "dynamic_index_in_dim" in scope and "slice" in instruction else REST


def trace_once(
    known: dict[str, Instruction], action: Callable[[], None]
) -> tuple[float, dict[str, float]]:
    """(wall seconds, instruction -> seconds); instructions that run at the same time share that
    time equally."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            wall, _ = seconds_of(action)
        [file] = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        planes = jax.profiler.ProfileData.from_file(file).planes
        lines = [line for plane in planes for line in plane.lines if line.name.startswith("tf_XLA")]
        spans = [
            (e.start_ns, e.end_ns, e.name) for line in lines for e in line.events if e.name in known
        ]
    changes = sorted(
        [(a, 1, name) for a, _, name in spans] + [(b, -1, name) for _, b, name in spans]
    )
    seconds: dict[str, float] = defaultdict(float)
    running, last = Counter[str](), 0.0
    for moment, change, name in changes:
        for other, count in running.items():
            seconds[other] += (moment - last) * count / running.total() / 1e9
        running[name] += change
        if not running[name]:
            del running[name]
        last = moment
    return wall, seconds


def report(
    shape: Shape,
    useful: UsefulFlops,
    engine: list[float],
    bare: list[float],
    trace: Trace,
    host: float,
) -> None:
    median = statistics.median
    bare_flops = 2.0 * shape.slots * matmul_params(from_hf_config(Path(FLAGS.model)))
    rate, bare_rate = sum(useful) / median(engine), bare_flops / median(bare)
    ratio = median(e / b for e, b in zip(engine, bare, strict=True))
    print(
        f"\n{FLAGS.task}: batches of {shape.rows} rows of {shape.length} slots, {len(engine)} "
        "timed in turns"
    )
    print(
        f"  a batch        {median(engine):7.3f} s, {rate / 1e9:4.0f} useful GFLOP/s; host "
        f"assembly {host * 1e3:.1f} ms"
    )
    print(
        f"  bare matmuls   {median(bare):7.3f} s, {bare_rate / 1e9:4.0f} GFLOP/s; a batch takes "
        f"{ratio:.3f} times as long"
    )
    bound_seconds = median(bare) + sum(trace.parts.get(part, 0.0) for part in KEPT)
    at_most = sum(useful) / bound_seconds / bare_rate
    print(
        f"  share          {rate / bare_rate:7.1%}, at {useful.weights / bare_flops:.1%} useful "
        "slots"
    )
    print(
        f"  at most        {at_most:7.1%}, were masks, maxima, sums, copies and gaps between "
        "instructions free"
    )
    print(f"\n{'traced part':48}{'seconds':>9}{'share':>8}")
    for name, seconds in [
        *sorted(trace.parts.items(), key=itemgetter(1), reverse=True),
        ("a traced batch", trace.whole),
    ]:
        print(f"{name:48}{seconds:9.4f}{seconds / trace.whole:8.1%}")
    longest = sorted(trace.instructions.items(), key=itemgetter(1), reverse=True)
    print(f"\n{'longest instructions, all layers':48}{'seconds':>9}")
    for (name, instruction), seconds in longest[: FLAGS.instructions]:
        title = f"{name} {instruction.shape} {instruction.operation}"
        print(f"{title[:47]:48}{seconds:9.4f}  {instruction.part}")
    document = {
        "benchmark": "trace_forward",
        "task": FLAGS.task,
        "rows": shape.rows,
        "length": shape.length,
        "engine_seconds": engine,
        "bare_seconds": bare,
        "useful_flops": useful._asdict(),
        "bare_flops": bare_flops,
        "share_of_matmul_rate": rate / bare_rate,
        "share_at_most": at_most,
        "traced_batch_seconds": trace.whole,
        "traced_seconds": trace.parts,
        "environment": environment(),
    }
    print(json.dumps(document, allow_nan=False))


if __name__ == "__main__":
    run(main)
