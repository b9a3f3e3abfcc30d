"""What libtpu's compiler expects of the engine's programs on TPUs that are not here: cycles,
milliseconds, memory.

    make .venv-tpu/.installed
    .venv-tpu/bin/python benchmarks/tpu_estimate.py --out=benchmarks/results/tpu_estimate.json      # a quarter of an hour

Every model of tests/support/described_models.py on each chip, in the smallest layout that holds it:
scoring of 32 rows of 1,024, generation, dialogues, self-check, fingerprint.  The compiler writes
the cycles that it expects beside every fusion, copy and matmul (`miron_jax/runtime/hlo.py`).
Kernels and what chips send to one another carry no estimate and are not counted: these are
estimates of the rest, and not times.  Ablations of Llama 1B:

    xla        attention in plain XLA
    float32    weights and operands of matmuls in float32
    gathered   an eighth of the places are scored, and gathered for the head; elsewhere all are
    fused      norms and residual sums left to XLA, which computes them again in each matmul that reads them
"""  # noqa: E501

import json
import math
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import jax
from absl import app, flags
from common import environment, say

sys.path.append(str(Path(__file__).parents[1]))  # tests/ has the models

from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.growing import GrowingText
from miron_jax.engine.plain import PlainProgram
from miron_jax.files.readers import JsonObject
from miron_jax.model.checkpoints.fingerprint import compile_sums
from miron_jax.model.config import ModelConfig, matmul_params
from miron_jax.model.decoder import decoder, modules
from miron_jax.model.own import OwnModel
from miron_jax.model.own_probe import compile_probe
from miron_jax.runtime.hlo import sends
from miron_jax.runtime.topology import chip_of
from miron_jax.runtime.tpu_cycles import cycles_of
from tests.support.described_models import OWN, Case, model_of, plan_of, text_requests

FLAGS = flags.FLAGS
flags.DEFINE_string(
    "out", None, "File of the table as JSON; rows that are there and not asked for stay."
)
flags.DEFINE_bool("others", True, "The programs beside the rows too.")
flags.DEFINE_list("only", None, "Names of shapes; absent: all.")

# The smallest layout of each chip that holds the model.
LAYOUTS = {
    "llama-1b": {"v5e": ("v5e:2x2", ""), "v5p": ("v5p:2x2x1", ""), "v6e": ("v6e:2x2", "")},
    "llama-8b": {"v5e": ("v5e:2x2", "fsdp=4"), "v5p": ("v5p:2x2x1", ""), "v6e": ("v6e:2x2", "")},
    "llama-70b": {
        "v5e": ("v5e:4x4", "fsdp=16"),
        "v5p": ("v5p:2x2x2", "fsdp=2,model=4"),
        "v6e": ("v6e:4x4", "fsdp=2,model=8"),
    },
    "gemma3-1b": {"v5e": ("v5e:2x2", ""), "v5p": ("v5p:2x2x1", ""), "v6e": ("v6e:2x2", "")},
    "gpt2": {"v5e": ("v5e:2x2", ""), "v5p": ("v5p:2x2x1", ""), "v6e": ("v6e:2x2", "")},
    "qwen3-0.6b": {"v5e": ("v5e:2x2", ""), "v5p": ("v5p:2x2x1", ""), "v6e": ("v6e:2x2", "")},
    **{
        name: {"v5e": ("v5e:2x2", ""), "v5p": ("v5p:2x2x1", ""), "v6e": ("v6e:2x2", "")}
        for name in OWN
    },
}
LENGTH = 1024  # of 32 rows
ABLATED = ("llama-1b",)


def scoring(case: Case, folder: Path, scored: float = 1.0) -> JsonObject:
    """Of 32 rows of LENGTH places, or as many as the model has positions.  `scored`: share of
    places that the head sees."""
    model = model_of(case, folder)
    config, placement = model.config, case.placement
    forward = Forward(model, case.budget)
    forward.compile(plan_of(case, model, case.lengths[0]))
    [(shape, program)] = forward.programs.items()
    text, memory, chip = program.as_text(), program.memory_analysis(), chip_of(placement.device)
    assert text is not None
    assert memory is not None
    chunks = math.ceil(shape.slots * scored / shape.chunk)
    row: JsonObject = {"rows": shape.rows, "length": shape.length, "attention": forward.attention}
    if isinstance(config, ModelConfig):
        once, twice = (cycles_of(text, {"layers/while": n}) for n in (1, 2))
        devices = placement.devices // placement.shards
        floor = 2 * matmul_params(config) / config.num_layers * shape.slots / devices / chip.peak
        row["layer_cycles"] = round(twice - once)
        row["layer_floor_cycles"] = round(floor * chip.clock)
        if not sends(text):  # else matmuls that are fused with what is sent are not in the cycles
            row["layer_peak_share"] = round(floor * chip.clock / (twice - once), 3)
    return {
        **row,
        "program_seconds": round(cycles_of(text, {"target_logprob/while": chunks}) / chip.clock, 4),
        "weights_and_batch_gb": round(memory.argument_size_in_bytes / 1e9, 2),
        "temporaries_gb": round(memory.temp_size_in_bytes / 1e9, 2),
        "chip_gb": round(chip.memory / 1e9, 2),
    }


def others(case: Case, folder: Path) -> JsonObject:
    """Milliseconds of a call of the programs beside the rows: generation, dialogues, self-check,
    fingerprint."""
    model, chip = model_of(case, folder), chip_of(case.placement.device)
    generator = Generator(model, None)  # pyright: ignore[reportArgumentType] - no request has a stop string
    generator.compile(text_requests(model))
    programs = {" ".join(map(str, key)): program for key, program in generator.programs.items()}
    if isinstance(model.config, ModelConfig):
        read = GrowingText(model, 900).program
        assert read is not None
        programs["read 128"] = read
    elif isinstance(model.config, OwnModel):
        programs["probe"] = compile_probe(model.config, model.state)
    length = min(1000, model.config.num_positions or 1000)
    programs[f"self-check {length}"] = PlainProgram(model, length).compile()
    leaves = {(leaf.shape, str(leaf.sharding)): leaf for leaf in jax.tree.leaves(model.state)}
    programs["fingerprint, largest weight"] = [
        compile_sums(leaf) for leaf in sorted(leaves.values(), key=lambda leaf: leaf.size)
    ][-1]
    return {
        name: round(1e3 * cycles_of(p.as_text() or "", {}) / chip.clock, 3)
        for name, p in programs.items()
    }


def main(_: list[str]) -> None:
    stored = modules.stored
    out = Path(FLAGS.out or "/dev/null")
    table: dict[str, dict[str, JsonObject]] = (
        json.loads(out.read_text() or "{}").get("estimates", {}) if out.exists() else {}
    )
    for model, layouts in LAYOUTS.items():
        for chip, (topology, mesh) in layouts.items():
            name = f"{model} {chip}"
            if FLAGS.only and name not in FLAGS.only:
                continue
            case = Case(model, topology, mesh, (LENGTH,))
            with tempfile.TemporaryDirectory() as path:
                folder = Path(path)
                row = table[name] = {"as it runs": scoring(case, folder)}
                if model in ABLATED:
                    row["xla"] = scoring(case._replace(attention="xla"), folder)
                    row["float32"] = scoring(case._replace(dtype="float32"), folder)
                    row["gathered"] = scoring(case, folder, 1 / 8)
                    decoder.stored = modules.stored = lambda x: x
                    row["fused"] = scoring(case, folder)
                    decoder.stored = modules.stored = stored
                if FLAGS.others:
                    row["ms a call"] = others(case, folder)
            for variant, numbers in row.items():
                say(f"{name}, {topology} {mesh}, {variant}: {json.dumps(numbers)}")
            document = {
                "environment": {**environment(), "libtpu": version("libtpu")},
                "estimates": table,
            }
            out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    jax.config.update("jax_default_matmul_precision", "highest")  # as the engine has it
    app.run(main)
