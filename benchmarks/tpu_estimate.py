"""What libtpu's compiler expects of scoring on TPUs that are not here: cycles, seconds, memory, by model, chip and mesh.

    make .venv-tpu/.installed
    .venv-tpu/bin/python benchmarks/tpu_estimate.py --out=benchmarks/results/tpu_estimate.json      # a quarter of an hour

The compiler writes the cycles that it expects beside every fusion, copy and matmul of a program.  They are added up with
each loop's body times its iterations: layers, chunks of the head; a chunk has one round.  Kernels carry no estimate and are
not counted, so these are estimates of the rest of a program, and not times.  Ablations, for the layer of each shape:

    xla        attention in plain XLA
    fused      norms and residual sums left to XLA, which computes them again in each matmul that reads them
"""

import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
from absl import app, flags
from common import environment, say

sys.path.append(str(Path(__file__).parents[1]))  # tests/ has the models

from miron_jax.engine.forward import Forward
from miron_jax.files.readers import JsonObject
from miron_jax.model import decoder
from miron_jax.model.config import ModelConfig, matmul_params
from miron_jax.runtime.topology import chip_of
from tests.tpu_models import Case, model_of, plan_of

FLAGS = flags.FLAGS
flags.DEFINE_string("out", None, "File of the table as JSON.")
flags.DEFINE_list("only", None, "Names of shapes; absent: all.")

SHAPES = {
    "llama-1b v5e": Case("llama-1b", "v5e"),
    "llama-1b v5p": Case("llama-1b", "v5p"),
    "llama-1b v6e": Case("llama-1b", "v6e"),
    "llama-8b v5e fsdp=4": Case("llama-8b", "v5e", "fsdp=4"),
    "llama-8b v5p": Case("llama-8b", "v5p"),
    "llama-8b v6e": Case("llama-8b", "v6e"),
    "gemma3-1b v5e": Case("gemma3-1b", "v5e"),
    "gemma3-1b v5p": Case("gemma3-1b", "v5p"),
    "gemma3-1b v6e": Case("gemma3-1b", "v6e"),
}


class Operation(NamedTuple):
    kind: str  # the HLO opcode
    cycles: int  # 0: no estimate
    scope: str  # of the source, as in jit(f)/while/body/linear
    calls: tuple[str, ...]  # computations that it runs


def operations_of(text: str) -> tuple[dict[str, list[Operation]], str]:
    """Compiled HLO -> the operations of each computation, and the name of the first one that runs."""
    computations: dict[str, list[Operation]] = {}
    entry = name = ""
    for line in text.splitlines():
        if header := re.match(r"(ENTRY )?%?([\w.\-]+) .*\{\s*$", line):
            name = header[2]
            computations[name] = []
            entry = name if header[1] else entry
        elif operation := re.match(r"\s+(?:ROOT )?%[\w.\-]+ = .*? ([\w\-]+)\(", line):
            cycles = re.search(r'"estimated_cycles":"(\d+)"', line)
            scope = re.search(r'op_name="([^"]*)"', line)
            called = re.findall(r"(?:body|to_apply)=%?([\w.\-]+)", line)
            for branches in re.findall(r"branch_computations=\{([^}]*)\}", line):
                called += [branch.strip().lstrip("%") for branch in branches.split(",")]
            kept = called if operation[1] in ("while", "call", "conditional") else []
            computations[name].append(
                Operation(operation[1], int(cycles[1]) if cycles else 0, scope[1] if scope else "", tuple(kept))
            )
    return computations, entry


def cycles_of(text: str, iterations: Mapping[str, int]) -> int:
    """Expected cycles of a program.  `iterations`: of the loops whose scope ends with a key; others run once."""
    computations, entry = operations_of(text)

    def total(name: str) -> int:
        cycles = 0
        for operation in computations[name]:
            inner = [total(called) for called in operation.calls]
            if operation.kind == "while":
                times = next((n for end, n in iterations.items() if operation.scope.endswith(end)), 1)
                cycles += times * sum(inner)
            elif inner:
                cycles += max(inner)  # of a conditional's branches the dearest
            else:
                cycles += operation.cycles
        return cycles

    return total(entry)


def estimate(case: Case) -> JsonObject:
    with tempfile.TemporaryDirectory() as folder:
        model = model_of(case, Path(folder))
    assert model.placement is not None
    assert isinstance(model.config, ModelConfig)
    forward = Forward(model, case.budget)
    [length] = case.lengths
    forward.compile(plan_of(case, model, length))
    [(shape, program)] = forward.programs.items()
    text, memory, chip = program.as_text(), program.memory_analysis(), chip_of(model.placement.device)
    assert text is not None
    assert memory is not None
    layers, chunks = model.config.num_layers, -(-shape.slots // shape.chunk)
    loops = {"target_logprob/while": chunks, "jit(on_batch_of_one)/while": layers, "shard_map/while": layers}
    whole = cycles_of(text, loops)
    once, twice = (cycles_of(text, {**loops, "jit(on_batch_of_one)/while": n, "shard_map/while": n}) for n in (1, 2))
    devices = model.placement.devices // forward.placement.shards
    floor = 2 * matmul_params(model.config) / layers * shape.slots / devices / chip.peak
    return {
        "rows": shape.rows,
        "length": shape.length,
        "attention": forward.attention,
        "layer_cycles": twice - once,
        "layer_peak_share": round(floor / ((twice - once) / chip.clock), 3),
        "program_seconds": round(whole / chip.clock, 4),
        "weights_gb": round(memory.argument_size_in_bytes / 1e9, 2),
        "temporaries_gb": round(memory.temp_size_in_bytes / 1e9, 2),
    }


def main(_: list[str]) -> None:
    stored = decoder._stored
    table: dict[str, dict[str, JsonObject]] = {}
    for name, case in SHAPES.items():
        if FLAGS.only and name not in FLAGS.only:
            continue
        table[name] = {"as it runs": estimate(case)}
        if case.model == "llama-1b":
            table[name]["xla"] = estimate(case._replace(attention="xla"))
            decoder._stored = lambda x: x
            table[name]["fused"] = estimate(case)
            decoder._stored = stored
        for variant, numbers in table[name].items():
            say(f"{name}, {variant}: {json.dumps(numbers)}")
    document = {"environment": environment(), "estimates": table}
    if FLAGS.out:
        Path(FLAGS.out).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    jax.config.update("jax_enable_compilation_cache", False)
    app.run(main)
