"""What does scoring the checkpoints of a training run cost beyond the device's time, and how much
memory does a read take?

    python benchmarks/bench_checkpoints.py --model=FOLDER --data_dir=BUNDLE

The folder's weights are saved with Orbax, once as a training run would and copied --checkpoints
times; all are scored on --tasks in float32 as `miron-jax eval` does, results written.  Cost is the
seconds from the first look at the folder to the last result, over the device's seconds of scoring;
it is reported with and without compilation, which only the first checkpoint needs.  Memory: a
bfloat16 checkpoint is restored while other parameters are in use, in seven new processes; each
one's peak of resident memory over what was resident before, as a share of the checkpoint's bytes.
On a CPU this includes the new parameters.  One run of everything else.  The last line is JSON.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from absl import flags
from common import PRINTED, environment, run, say
from flax import nnx

from miron_jax.config import RunConfig
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import evaluate_checkpoints
from miron_jax.evaluation.run_result import finished_run
from miron_jax.files.readers import JsonObject
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.checkpoints.hf_reader import load_hf
from miron_jax.model.checkpoints.training_run import load_step
from miron_jax.results.writing import write_finished
from miron_jax.runtime.timeline import Timeline

PROCESSES = 7  # measure memory, one after the other

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_string("data_dir", None, "Eval bundle.")
flags.DEFINE_list("tasks", ["core/copa", "core/winograd"], "Tasks of every checkpoint.")
flags.DEFINE_integer("checkpoints", 20, "Steps of the run.", lower_bound=2)
flags.DEFINE_enum("saved_dtype", "float32", ["float32", "bfloat16"], "Dtype of the run's files.")
flags.DEFINE_string("restore", None, "Internal: measure the memory of restoring this checkpoint.")


def main(_: Sequence[str]) -> None:
    if FLAGS.restore:
        print(json.dumps(restored(Path(FLAGS.restore))))
        return
    with tempfile.TemporaryDirectory() as folder:
        document = {
            "run": cost(Path(folder)),
            "memory": memory(Path(folder)),
            "environment": environment(),
        }
    print(json.dumps(document, allow_nan=False))


def save(folder: Path, dtype: str) -> None:
    with ocp.StandardCheckpointer() as saver:
        saver.save(
            folder.absolute(), nnx.to_pure_dict(load_hf(FLAGS.model, jnp.dtype(dtype)).state)
        )
        saver.wait_until_finished()


def cost(folder: Path) -> JsonObject:
    """Score every checkpoint of a run, one after the other."""
    shutil.copytree(FLAGS.model, folder / "run", ignore=shutil.ignore_patterns("*.safetensors*"))
    save(folder / "run" / "1", FLAGS.saved_dtype)
    for step in range(2, FLAGS.checkpoints + 1):
        shutil.copytree(folder / "run" / "1", folder / "run" / str(step))
    config = RunConfig(
        str(folder / "run"),
        tuple(FLAGS.tasks),
        data_dir=(("", FLAGS.data_dir),),
        output=str(folder / "results"),
    )
    inputs = find_inputs(config)
    compiled: list[float] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration_secs, **kwargs: (
            compiled.append(duration_secs) if event.endswith("backend_compile_duration") else None
        )
    )
    laps, start = [], time.perf_counter()
    for step, outcome in evaluate_checkpoints(config, inputs, PRINTED):
        write_finished(config, finished_run(config, outcome, step), Timeline().lap)
        seconds = time.perf_counter() - start
        laps.append(
            {
                "step": step,
                "seconds": seconds,
                "device_seconds": outcome.speed.device_seconds,
                "self_check_seconds": outcome.check.seconds,
                "waited_for_weights": outcome.load_seconds,
                "programs": len(compiled),
                "compile_seconds": sum(compiled),
            }
        )
        compiled.clear()
        say(f"step {step}: {seconds:.2f} s, {outcome.speed.device_seconds:.2f} of them scoring")
        start = time.perf_counter()
    shutil.rmtree(folder / "run")
    whole, device = sum(lap["seconds"] for lap in laps), sum(lap["device_seconds"] for lap in laps)
    compiling = sum(lap["compile_seconds"] for lap in laps)
    return {
        "checkpoints": len(laps),
        "seconds": whole,
        "device_seconds": device,
        "compile_seconds": compiling,
        "cost": whole / device,
        "cost_without_compilation": (whole - compiling) / device,
        "self_check_seconds": sum(lap["self_check_seconds"] for lap in laps),
        "programs_of_the_first": laps[0]["programs"],
        "programs_of_later_ones": sum(lap["programs"] for lap in laps[1:]),
        "laps": laps,
    }


def memory(folder: Path) -> JsonObject:
    save(folder / "bfloat16", "bfloat16")
    command = [
        sys.executable,
        __file__,
        f"--model={FLAGS.model}",
        f"--restore={folder / 'bfloat16'}",
    ]
    each = [
        json.loads(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[
                -1
            ]
        )
        for _ in range(PROCESSES)
    ]
    shares = sorted(one["share"] for one in each)
    return {
        "checkpoint_bytes": each[0]["checkpoint_bytes"],
        "median": shares[len(shares) // 2],
        "shares": shares,
    }


def restored(folder: Path) -> JsonObject:
    """Peak of resident memory while a second set of weights is read, bytes."""
    config = from_hf_config(FLAGS.model)
    in_use = load_step(folder, config, jnp.bfloat16)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(in_use))
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    second = load_step(folder, config, jnp.bfloat16)
    jax.block_until_ready(second)
    peak = resident("VmHWM")
    return {"checkpoint_bytes": size, "more_bytes": peak - before, "share": (peak - before) / size}


def resident(name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


if __name__ == "__main__":
    run(main)
