"""One NVIDIA GPU, one command, no downloads: is the engine right on it, and how fast?

    python benchmarks/gpu_suite.py --data_dir=BUNDLE --slice=core   # eight minutes at most, on a fresh machine
    python benchmarks/gpu_suite.py --data_dir=BUNDLE --smoke        # everything in tiny shapes, on CPU too

Slices, by what a minute is worth: first_result, core, experts, mamba, parity, attention.

Weights are random, in the shapes of GPT-2 124M, nanochat d20 (561 M) and Llama 1B; the tokenizer is
trained on the items' own text; files of CORE that the bundle lacks are made up (`stand_ins.py`).

first_result  seconds of `miron-jax eval` from its start to results.json, by stage, in a new process: without compiled programs,
        and with those that the first has kept.
peak    FLOPs a second of bare matmuls, bfloat16 and float32 at highest precision.
parity  every scored token of a few examples against torch, one choice a forward: float32 at highest precision on both sides
        (beyond 1e-4 nats is wrong), and bfloat16, also torch's, against torch's float32.
core    CORE in bfloat16 (--limit examples of each task), from files to numbers, by the code of
        `miron-jax eval`: seconds without compiling and self-check (both reported too), and those of
        the next checkpoint, whose text is already tokenized and planned. Useful FLOPs count each
        unique token once, and the head of tokens that are scored.
experts, mamba  bench_experts.py and bench_recurrent.py, in processes of their own.
peers   torch in bfloat16 on the same weights: one example a forward, and batches sorted by length,
        within a time budget, scaled by the slots that they would run, padding included; lm-eval and
        vLLM if they are installed.
kernels seconds of one layer's attention in every implementation that the device takes, and of the
head by chunk.

A section that fails is reported with its error and the others run; a section that the time does not
suffice for is skipped.  Exit status 1 if float32 disagrees or a section failed.  Each section's
JSON is printed when it ends, then gpu_rows.py's rows, and all of it last, as one line of JSON.
"""  # noqa: E501

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# jax takes memory at once; torch needs the rest
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.6")

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from agreement import TorchAnswers, compare, score_each
from child import in_a_child
from common import (
    PRINTED,
    Answers,
    Engine,
    Work,
    environment,
    joined,
    median_seconds,
    prepare,
    read_tasks,
    run,
    run_eval,
    say,
    seconds_of,
    split,
    train_tokenizer,
)
from device_clock import DeviceClock
from gpu_rows import rows_of
from kernel_times import attention_seconds, head_seconds
from peers import LmEval, PlainTorch, example_batches, sorted_batches, time_lm_eval, time_torch
from stand_ins import with_stand_ins
from vllm_peer import time_vllm

from miron_jax.cli.throughput import matmul_rate
from miron_jax.config import RunConfig
from miron_jax.engine.model import load_model
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import Evaluation
from miron_jax.evaluation.run_result import finished_run
from miron_jax.evaluation.task_kinds.interface import LoadedTask
from miron_jax.files.readers import JsonObject
from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.decoder.decoder import random_params
from miron_jax.results.document import run_json
from miron_jax.tokens.tokenizers import load_tokenizer

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_integer("parity_limit", 2, "Examples of each task compared with torch.", lower_bound=1)
flags.DEFINE_integer("limit", 300, "Examples of each task of CORE.", lower_bound=1)
flags.DEFINE_integer(
    "peer_limit", 200, "Examples of each task that the peers' time is scaled to.", lower_bound=1
)
flags.DEFINE_float("torch_seconds", 15, "Time budget of each torch run.")
flags.DEFINE_float("seconds", 400, "No section begins after this.")
flags.DEFINE_bool("smoke", False, "Tiny shapes and few examples, on whatever device there is.")

# Each slice's sections; the first ones are other processes, to which this one leaves the GPU.
ELSEWHERE = {"first_result": ("first_result",), "experts": ("experts",), "mamba": ("mamba",)}
SLICES = {
    **ELSEWHERE,
    "core": ("peak", "core_gpt2_124m", "core_nanochat_d20_561m", "core_llama_1b"),
    "parity": ("parity",),
    "attention": ("kernels",),
}
flags.DEFINE_enum("slice", None, [*SLICES], "A part of the suite; absent: all of it.")

TOLERANCE = 1e-4  # nats a scored token, float32 at highest precision
# start included; of the GPU's memory, beside jax's share and torch's weights
VLLM_SECONDS, VLLM_MEMORY = 120, 0.25

# The transformers configuration of each shape, its sizes, and its sizes with --smoke.
SHAPES = {
    "gpt2_124m": (
        "GPT2Config",
        {"n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257},
        {"n_positions": 512, "n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 509},
    ),
    "nanochat_d20_561m": (
        "NanoChatConfig",
        {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 20,
            "num_attention_heads": 10,
         "num_key_value_heads": 10, "vocab_size": 65536},
        {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2,
         "num_key_value_heads": 2, "vocab_size": 600},
    ),
    "llama_1b": (
        "LlamaConfig",
        {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
            "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
         "tie_word_embeddings": True,
         "max_position_embeddings": 131072},
        {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 700, "tie_word_embeddings": True},
    ),
}  # fmt: skip


def main(_: Sequence[str]) -> None:
    start = time.perf_counter()
    if FLAGS.slice in ELSEWHERE:
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if not FLAGS.smoke and jax.devices()[0].platform != "gpu":
        sys.exit(
            f"no NVIDIA GPU: jax sees {jax.devices()[0].device_kind}; --smoke runs tiny shapes on "
            "any device"
        )
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(Path(folder))
        sections: dict[str, Callable[[], JsonObject]] = {
            "first_result": suite.measure_first_result,
            "peak": suite.measure_peak,
            "core_gpt2_124m": lambda: suite.measure_core("gpt2_124m"),
            "core_nanochat_d20_561m": lambda: suite.measure_core("nanochat_d20_561m"),
            "core_llama_1b": lambda: suite.measure_core("llama_1b"),
            "experts": measure_experts,
            "mamba": measure_mamba,
            "parity": suite.measure_parity,
            "kernels": suite.measure_kernels,
            "peers": suite.measure_peers,
        }
        names = SLICES[FLAGS.slice] if FLAGS.slice else sections
        reports = {name: attempt(name, sections[name], start) for name in names}
    seconds = time.perf_counter() - start
    print("\n".join(rows_of(reports)))
    document = {
        "benchmark": "gpu_suite",
        "slice": FLAGS.slice,
        **reports,
        "seconds": seconds,
        "environment": environment(),
    }
    print(json.dumps(document, allow_nan=False))
    if reports.get("parity", {}).get("wrong") or any(
        "failed" in report for report in reports.values()
    ):
        sys.exit(1)


def attempt(name: str, section: Callable[[], JsonObject], start: float) -> JsonObject:
    """A section's report; its error, or that there was no time for it."""
    spent = time.perf_counter() - start
    if spent > FLAGS.seconds:
        say(f"{name}: no time left")
        return {"skipped": f"{spent:.0f} s were spent before it"}
    say(f"{name} (at {spent:.0f} s)")
    try:
        report = section()
    except (Exception, SystemExit) as error:  # the other sections are worth their time
        traceback.print_exc()
        report = {"failed": f"{type(error).__name__}: {str(error)[:500]}"}
    # a run that is cut off keeps what it has
    print(json.dumps({name: report}, allow_nan=False), flush=True)
    return report


class Suite:
    """The sections, and what they share: the data, the tokenizer, a folder for each shape."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.bundle = with_stand_ins(
            Path(FLAGS.data_dir), folder / "bundle", 0.0 if FLAGS.smoke else 1.0
        )
        self.sources = read_tasks(str(self.bundle), [])
        self.has_torch = importlib.util.find_spec("torch") is not None
        self.peak = {"bfloat16": 0.0, "float32": 0.0}
        _, *sizes = SHAPES["gpt2_124m"]
        vocab_size = sizes[FLAGS.smoke]["vocab_size"]
        self.tokenizer = train_tokenizer(texts(self.sources), vocab_size, folder / "tokenizer")
        say(f"tokenizer of {len(self.tokenizer)} tokens trained")

    def home(self, shape: str) -> Path:
        """Folder with config.json and tokenizer of a shape."""
        import transformers

        home = self.folder / shape
        if not home.exists():
            kind, *sizes = SHAPES[shape]
            ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
            config = getattr(transformers, kind)(**sizes[FLAGS.smoke], **ends)
            config.save_pretrained(home)
            self.tokenizer.save_pretrained(str(home))
        return home

    def works(self, shape: str, limit: int) -> list[Work]:
        max_length = from_hf_config(self.home(shape)).num_positions or None
        return [prepare(source, limit, self.tokenizer, max_length) for source in self.sources]

    def with_weights(self, shape: str) -> Path:
        """The same folder with seeded weights, saved by torch so that both sides read one file.

        Noise is added to norms and biases, whose neutral values would hide mistakes.
        """
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        home = self.home(shape)
        if not (home / "model.safetensors").is_file():
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(home))
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.ndim == 1:
                        parameter.add_(0.1 * torch.randn_like(parameter))
            model.save_pretrained(home)
        return home

    # Sections

    def measure_first_result(self) -> JsonObject:
        """CORE on GPT-2's shape by the command, in new processes."""
        if not self.has_torch:
            return {"skipped": "torch, which writes the weights, is not installed"}
        home, report = self.with_weights("gpt2_124m"), JsonObject()
        for name in ("cold", "with_programs"):
            results = run_eval(
                self.folder / name, f"--model={home}", f"--data_dir={self.bundle}", "--tasks=core",
                f"--limit={2 if FLAGS.smoke else FLAGS.limit}",
                "--dtype=bfloat16", f"--compilation_cache={self.folder / 'programs'}",
            )  # fmt: skip
            report[name] = {
                key: results["speed"][key] for key in ("wall_seconds", "timeline", "programs")
            }
            say(f"  {name}: {report[name]['wall_seconds']:.1f} s")
        return report

    def measure_peak(self) -> JsonObject:
        self.peak = {dtype: matmul_rate(dtype, jax.devices()[0]) for dtype in self.peak}
        say(
            "bare matmul: "
            + ", ".join(f"{dtype} {rate / 1e12:.2f} TFLOP/s" for dtype, rate in self.peak.items())
        )
        return {"flops_per_second": self.peak}

    def measure_parity(self) -> JsonObject:
        if not self.has_torch:
            say("torch is not installed: no parity")
            return {"skipped": "torch is not installed", "wrong": []}
        report: JsonObject = {"wrong": []}
        for shape in ("gpt2_124m", "nanochat_d20_561m"):
            home, few = str(self.with_weights(shape)), self.works(shape, FLAGS.parity_limit)
            torch = PlainTorch.load(home, "float32", torch_device())
            torch.torch.set_float32_matmul_precision("highest")
            exact = [score_each(torch, work) for work in few]
            ours = self._scored(home, "float32", few)
            compared = [
                compare(work, mine, true, TOLERANCE)
                for work, mine, true in zip(few, ours, exact, strict=True)
            ]
            wrong = [line for one in compared for line in one.wrong]
            wrong += [
                f"{w.task.name}, request {r}"
                for w, c in zip(few, compared, strict=True)
                for r in c.beyond
            ]
            report["wrong"] += [f"{shape}: {line}" for line in wrong]
            rounded = PlainTorch.load(home, "bfloat16", torch_device())
            report[shape] = {
                "scored_tokens": sum(len(one.nats) for one in compared),
                "float32": nats_apart(ours, exact),
                "bfloat16": nats_apart(self._scored(home, "bfloat16", few), exact),
                "torch_bfloat16": nats_apart([score_each(rounded, work) for work in few], exact),
                "close": [line for one in compared for line in one.close],
            }
            say(f"  {shape}: {report[shape]}")
        return {**report, "torch_device": torch_device(), "tolerance": TOLERANCE}

    def _scored(self, home: str, dtype: str, works: Sequence[Work]) -> list[Answers]:
        engine = Engine(load_model(Path(home), dtype), max_lengths=2)
        return split(works, engine.score(iter([joined(works)])).answers)

    def measure_core(self, shape: str) -> JsonObject:
        start = time.perf_counter()
        config = RunConfig(
            str(self.home(shape)), ("core",), data_dir=(("", str(self.bundle)),),
            allow_changed_data=True,
            dtype="bfloat16", limit=2 if FLAGS.smoke else FLAGS.limit,
        )  # fmt: skip
        inputs = find_inputs(config, fetch=False)
        architecture = architecture_of(config, find_model(config, weights=False))
        evaluation = Evaluation(config, inputs, architecture, PRINTED, keep=True)
        model_config: Any = architecture.config
        init_seconds, state = seconds_of(lambda: random_params(model_config, jnp.bfloat16, seed=0))
        runs = []
        for _ in range(2):
            with DeviceClock() as clock:
                outcome = evaluation.score(state)
            assert outcome is not None
            results = run_json(finished_run(config, outcome).result)
            speed = results["speed"]
            excluded = init_seconds + speed["compile_seconds"] + results["self_check"]["seconds"]
            seconds = time.perf_counter() - start - excluded
            runs.append(
                {
                    "seconds": seconds,
                    "compile_seconds": speed["compile_seconds"],
                    "self_check_seconds": results["self_check"]["seconds"],
                    "self_check_largest": results["self_check"]["largest"],
                    "idle_share": clock.idle_share,
                    "device_seconds": speed["device_seconds"],
                    "tokens_per_second": speed["tokens_per_second"],
                    "share_of_peak": self._share(speed["useful_flops"], seconds),
                    "share_of_peak_on_device": self._share(
                        speed["useful_flops"], speed["device_seconds"]
                    ),
                }
            )
            say(f"  {runs[-1]}")
            start, init_seconds = time.perf_counter(), 0.0
        return {
            "first": runs[0],
            "next_checkpoint": runs[1],
            "examples": sum(task["n"] for task in results["tasks"].values()),
            **{
                name: speed[name]
                for name in (
                    "requests", "plain_tokens", "unique_tokens", "padded_tokens", "programs",
                    "attention", "useful_flops",
                )
            },
        }  # fmt: skip

    def _share(self, flops: float, seconds: float) -> float | None:
        return (
            flops / seconds / self.peak["bfloat16"] if self.peak["bfloat16"] and seconds else None
        )

    def measure_peers(self) -> JsonObject:
        """All engines on the same examples, CORE's first ones of the 561M shape."""
        shape = "nanochat_d20_561m"
        if not self.has_torch or (torch_device() == "cpu" and not FLAGS.smoke):
            say("torch with CUDA is not installed: nothing to compare the speed with")
            return {"skipped": "torch with CUDA is not installed"}
        home, works = (
            str(self.with_weights(shape)),
            self.works(shape, 2 if FLAGS.smoke else FLAGS.peer_limit),
        )
        requests, engine = joined(works), Engine(load_model(Path(home), "bfloat16"))
        engine.compile(requests)
        ours = median_seconds(lambda: engine.score(iter([requests])), 3)
        torch = PlainTorch.load(home, "bfloat16", torch_device())
        peers = {
            "one_example_a_forward": time_torch(
                torch, requests, example_batches(works), FLAGS.torch_seconds
            ),
            "sorted_batches": time_torch(
                torch, requests, sorted_batches(requests), FLAGS.torch_seconds
            ),
        }
        if lm_eval := LmEval.around(torch, load_tokenizer(home)):
            seconds = peers["sorted_batches"]["seconds"]
            peers["lm_eval"] = time_lm_eval(lm_eval, requests, seconds, FLAGS.torch_seconds)
        if importlib.util.find_spec("vllm"):
            arguments = (home, "bfloat16", VLLM_MEMORY, requests, FLAGS.torch_seconds)
            peers["vllm"] = in_a_child(VLLM_SECONDS, time_vllm, *arguments)
            say(f"  vLLM: {peers['vllm']}")
        for peer in peers.values():
            peer["times_ours"] = peer["seconds"] / ours if "seconds" in peer else None
        return {
            "examples": sum(len(work.prompts) for work in works),
            "miron_jax_seconds": ours,
            **peers,
        }

    def measure_kernels(self) -> JsonObject:
        """One layer's attention in rows of 512 and 2048, and the head of the 561M shape by chunk,
        bfloat16."""
        return {"attention": attention_seconds(FLAGS.smoke), "head": head_seconds(FLAGS.smoke)}


def texts(sources: Sequence[LoadedTask]) -> list[str]:
    """The text of the examples, to train a tokenizer on."""
    examples = [example for source in sources for example in source.examples[:2000]]
    return [text for example in examples for text in (*example.contexts, *example.continuations)]


def nats_apart(
    answers: Sequence[Answers | TorchAnswers], exact: Sequence[TorchAnswers]
) -> dict[str, float]:
    """Largest and mean difference of the log-probabilities of scored tokens, nats."""
    ours, true = (
        np.concatenate([span for work in works for span in work.logprob])
        for works in (answers, exact)
    )
    nats = np.abs(ours - true)
    return {"largest": float(nats.max(initial=0)), "mean": float(nats.mean())}


def measure_experts() -> JsonObject:
    """Of the dense rate, in bfloat16, 8,192 tokens: 8 experts with 2 active, 64 with 8."""
    size = {"width": 128, "rows": 1, "length": 16, "repeats": 1} if FLAGS.smoke else {
        "width": 2048, "length": 1024,
    }  # fmt: skip
    return {
        f"{experts}_experts": benchmark(
            "bench_experts.py", dtype="bfloat16", experts=experts, active=active, **size
        )
        for experts, active in ((8, 2), (64, 8))
    }


def measure_mamba() -> JsonObject:
    tiny = {"width": 128, "layers": 1, "questions": 2, "prefix": 8, "repeats": 1}
    return benchmark("bench_recurrent.py", torch_rows=0, **(tiny if FLAGS.smoke else {}))


def benchmark(script: str, **options: object) -> JsonObject:
    """The JSON that another benchmark prints last."""
    given = [f"--{name}={value}" for name, value in options.items()]
    command = [sys.executable, str(Path(__file__).with_name(script)), *given]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def torch_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    run(main)
