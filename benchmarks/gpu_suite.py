"""One NVIDIA GPU, one command, no downloads: is the engine right there, and how fast?

    python benchmarks/gpu_suite.py --data_dir=BUNDLE            # under nine minutes
    python benchmarks/gpu_suite.py --data_dir=BUNDLE --smoke    # tiny shapes, on CPU too

Weights are random, in the shapes of GPT-2 124M, nanochat d20 (561 M) and Llama 1B; the tokenizer is trained on the items'
own text; files of CORE that the bundle lacks are made up (`stand_ins.py`).

peak    FLOPs a second of bare matmuls, bfloat16 and float32 at highest precision.
parity  every scored token of a few examples against torch, one option a forward: float32 at highest precision on both sides
        (beyond 1e-4 nats is wrong), and bfloat16 against torch's float32, with torch's own bfloat16 beside it.
core    all of CORE in bfloat16, from files to numbers, by the code of `miron-jax eval`: seconds without compiling and
        self-check (both beside), and those of the next checkpoint, which finds text tokenized and planned.  Useful FLOPs
        count each unique token once, and the head where something is scored.
peers   torch in bfloat16 on the same weights: one example a forward, and batches sorted by length, within a time budget,
        scaled by the places that they would run, padding included; lm-eval and vLLM where they are installed.
kernels seconds of one layer's attention in every implementation that the device takes, and of the head by chunk.

A section that fails is reported with its error and the others run; one that the clock leaves no time for says so.  Exit
status 1 where float32 disagrees or a section failed.  The last line is JSON.
"""

import importlib.util
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.6")  # jax takes memory at once; torch needs the rest

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from agreement import TorchAnswers, compare, score_each
from child import in_a_child
from common import (
    Answers,
    Engine,
    LmEval,
    PlainTorch,
    Source,
    Work,
    environment,
    joined,
    padded_by_length,
    prepare,
    read_tasks,
    run,
    say,
    seconds_of,
    split,
    train_tokenizer,
)
from device_clock import DeviceClock
from kernel_times import attention_seconds, head_seconds
from stand_ins import with_stand_ins
from vllm_peer import time_vllm

from miron_jax.bench import matmul_rate
from miron_jax.config import RunConfig
from miron_jax.engine.model import load_model
from miron_jax.inputs import find_inputs
from miron_jax.model.checkpoints import architecture_of, find_model
from miron_jax.model.decoder import random_params
from miron_jax.model.hf_config import from_hf_config
from miron_jax.planning.request_batches import select
from miron_jax.report.results import results_of
from miron_jax.run import Evaluation
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import load_tokenizer

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_integer("parity_limit", 2, "Examples of each task compared with torch.", lower_bound=1)
flags.DEFINE_integer("peer_limit", 200, "Examples of each task that the peers' time is scaled to.", lower_bound=1)
flags.DEFINE_float("torch_seconds", 15, "Time budget of each torch run.")
flags.DEFINE_float("seconds", 500, "No section begins after this.")
flags.DEFINE_list("only", [], "Sections to run; all when empty.")
flags.DEFINE_bool("smoke", False, "Tiny shapes and few examples, on whatever device there is.")

TOLERANCE = 1e-4  # nats a scored token, float32 at highest precision
VLLM_SECONDS, VLLM_MEMORY = 120, 0.25  # start included; of the GPU's memory, beside jax's share and torch's weights
LM_EVAL_BATCHES = (8, 32)  # it pads to the longest row and keeps float32 logits of every place
PEERS = {
    "one_example_a_forward": "torch, one example a forward",
    "sorted_batches": "torch, sorted batches",
    "lm_eval": "lm-eval's HF backend",
    "vllm": "vLLM",
}
BATCH_PLACES = 16384  # torch in batches: float32 logits of this many places take 3.3 GB

GPT2 = {"n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
NANOCHAT = {
    "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 20, "num_attention_heads": 10,
    "num_key_value_heads": 10, "vocab_size": 65536,
}  # fmt: skip
LLAMA = {
    "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "tie_word_embeddings": True,
    "max_position_embeddings": 131072,
}  # fmt: skip
SHAPES = {
    "gpt2_124m": ("GPT2Config", GPT2),
    "nanochat_d20_561m": ("NanoChatConfig", NANOCHAT),
    "llama_1b": ("LlamaConfig", LLAMA),
}
TINY = {
    "gpt2_124m": {"n_positions": 512, "n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 509},
    "nanochat_d20_561m": {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "vocab_size": 600,
    },
    "llama_1b": {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 700, "tie_word_embeddings": True,
    },
}  # fmt: skip


def main(_: Sequence[str]) -> None:
    start = time.perf_counter()
    if not FLAGS.smoke and jax.devices()[0].platform != "gpu":
        sys.exit(f"no NVIDIA GPU: jax sees {jax.devices()[0].device_kind}; --smoke runs tiny shapes on any device")
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(Path(folder))
        sections: dict[str, Callable[[], Any]] = {
            "peak": suite.measure_peak,
            "parity": suite.measure_parity,
            "core_nanochat_d20_561m": lambda: suite.measure_core("nanochat_d20_561m"),
            "core_gpt2_124m": lambda: suite.measure_core("gpt2_124m"),
            "kernels": suite.measure_kernels,
            "peers": suite.measure_peers,
            "core_llama_1b": lambda: suite.measure_core("llama_1b", limit=500),
        }
        found = {
            name: attempt(name, section, start)
            for name, section in sections.items()
            if not FLAGS.only or name in FLAGS.only
        }
    seconds = time.perf_counter() - start
    print_report(found, seconds)
    failed = [name for name, own in found.items() if "failed" in own]
    wrong = [*found.get("parity", {}).get("wrong", ()), *failed]
    document = {"benchmark": "gpu_suite", **found, "seconds": seconds, "environment": environment()}
    print(json.dumps(document, allow_nan=False))
    if wrong:
        sys.exit(1)


def attempt(name: str, section: Callable[[], Any], start: float) -> Any:
    """What a section found; its error, or that there was no time for it."""
    spent = time.perf_counter() - start
    if spent > FLAGS.seconds:
        say(f"{name}: no time left")
        return {"skipped": f"{spent:.0f} s were spent before it"}
    say(f"{name} (at {spent:.0f} s)")
    try:
        return section()
    except Exception as error:  # the other sections are worth their time
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {str(error)[:500]}"}


class Suite:
    """What the sections share: the data, the tokenizer, a folder for each shape."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.bundle = with_stand_ins(Path(FLAGS.data_dir), folder / "bundle", 0.0 if FLAGS.smoke else 1.0)
        self.sources = read_tasks(str(self.bundle), [])
        self.has_torch = importlib.util.find_spec("torch") is not None
        self.peak = {"bfloat16": 0.0, "float32": 0.0}
        seconds, self.tokenizer = seconds_of(self._train_tokenizer)
        say(f"tokenizer of {len(self.tokenizer)} tokens trained in {seconds:.0f} s")

    def _train_tokenizer(self) -> Any:
        most = 509 if FLAGS.smoke else GPT2["vocab_size"]
        return train_tokenizer(texts(self.sources), most, self.folder / "tokenizer")

    def home(self, shape: str) -> Path:
        """config.json and tokenizer of a shape."""
        import transformers

        home = self.folder / shape
        if not home.exists():
            kind, sizes = SHAPES[shape]
            ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
            config = getattr(transformers, kind)(**(TINY[shape] if FLAGS.smoke else sizes), **ends)
            config.save_pretrained(home)
            self.tokenizer.save_pretrained(str(home))
        return home

    def works(self, shape: str, limit: int) -> list[Work]:
        most = from_hf_config(self.home(shape)).num_positions or None
        return [prepare(source, limit, self.tokenizer, most) for source in self.sources]

    def with_weights(self, shape: str) -> Path:
        """Also weights, seeded, saved by torch so that both sides read one file; norms and biases away from neutral."""
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

    def measure_peak(self) -> dict[str, Any]:
        self.peak = {dtype: matmul_rate(dtype, jax.devices()[0]) for dtype in self.peak}
        say("bare matmul: " + ", ".join(f"{dtype} {rate / 1e12:.2f} TFLOP/s" for dtype, rate in self.peak.items()))
        return {"flops_per_second": self.peak}

    def measure_parity(self) -> dict[str, Any]:
        if not self.has_torch:
            say("torch is not installed: no parity")
            return {"skipped": "torch is not installed", "wrong": []}
        found: dict[str, Any] = {"wrong": []}
        for shape in ("gpt2_124m", "nanochat_d20_561m"):
            home, few = str(self.with_weights(shape)), self.works(shape, FLAGS.parity_limit)
            torch = PlainTorch.load(home, "float32", torch_device())
            torch.torch.set_float32_matmul_precision("highest")
            exact = [score_each(torch, work) for work in few]
            ours = self._scored(home, "float32", few)
            compared = [compare(work, own, true, TOLERANCE) for work, own, true in zip(few, ours, exact, strict=True)]
            wrong = [line for one in compared for line in one.wrong]
            wrong += [f"{w.task.name}, request {r}" for w, c in zip(few, compared, strict=True) for r in c.beyond]
            found["wrong"] += [f"{shape}: {line}" for line in wrong]
            rounded = PlainTorch.load(home, "bfloat16", torch_device())
            found[shape] = {
                "scored_tokens": sum(len(one.nats) for one in compared),
                "float32": nats_apart(ours, exact),
                "bfloat16": nats_apart(self._scored(home, "bfloat16", few), exact),
                "torch_bfloat16": nats_apart([score_each(rounded, work) for work in few], exact),
                "close": [line for one in compared for line in one.close],
            }
            say(f"  {shape}: {found[shape]}")
        return {**found, "torch_device": torch_device(), "tolerance": TOLERANCE}

    def _scored(self, home: str, dtype: str, works: Sequence[Work]) -> list[Answers]:
        engine = Engine(load_model(Path(home), dtype), max_lengths=2)
        return split(works, engine.score(iter([joined(works)])).answers)

    def measure_core(self, shape: str, limit: int | None = None) -> dict[str, Any]:
        start = time.perf_counter()
        config = RunConfig(
            str(self.home(shape)), ("core",), data_dir=(("", str(self.bundle)),), allow_changed_data=True,
            dtype="bfloat16", limit=2 if FLAGS.smoke else limit,
        )  # fmt: skip
        inputs = find_inputs(config, fetch=False)
        architecture = architecture_of(config, find_model(config, weights=False))
        evaluation = Evaluation(config, inputs, architecture, lambda line: say(f"  {line}"), keep=True)
        made, state = seconds_of(lambda: random_params(architecture.config, jnp.bfloat16, seed=0))  # type: ignore[arg-type]
        runs = []
        for _ in range(2):
            with DeviceClock() as clock:
                outcome = evaluation.score(state)
            assert outcome is not None
            results = results_of(config, outcome, 0.0)
            seconds, speed = time.perf_counter() - start - made, results["speed"]
            apart = speed["compile_seconds"] + results["self_check"]["seconds"]
            runs.append(
                {
                    "seconds": seconds - apart,
                    "compile_seconds": speed["compile_seconds"],
                    "self_check_seconds": results["self_check"]["seconds"],
                    "self_check_largest": results["self_check"]["largest"],
                    "idle_share": clock.idle_share,
                    "device_seconds": speed["device_seconds"],
                    "tokens_per_second": speed["tokens_per_second"],
                    "share_of_peak": self._share(speed["useful_flops"], seconds - apart),
                    "share_of_peak_on_device": self._share(speed["useful_flops"], speed["device_seconds"]),
                }
            )
            say(f"  {runs[-1]}")
            start, made = time.perf_counter(), 0.0
        return {
            "first": runs[0],
            "next_checkpoint": runs[1],
            "examples": sum(task["n"] for task in results["tasks"].values()),
            **{
                name: speed[name]
                for name in (
                    "requests", "plain_tokens", "unique_tokens", "padded_tokens", "programs", "attention", "useful_flops",
                )
            },
        }  # fmt: skip

    def _share(self, flops: float, seconds: float) -> float | None:
        return flops / seconds / self.peak["bfloat16"] if self.peak["bfloat16"] and seconds else None

    def measure_peers(self) -> dict[str, Any]:
        """All engines on the same examples, CORE's first ones of the 561M shape."""
        shape = "nanochat_d20_561m"
        if not self.has_torch or (torch_device() == "cpu" and not FLAGS.smoke):
            say("torch with CUDA is not installed: nothing to compare the speed with")
            return {"skipped": "torch with CUDA is not installed"}
        home, works = str(self.with_weights(shape)), self.works(shape, 2 if FLAGS.smoke else FLAGS.peer_limit)
        requests, engine = joined(works), Engine(load_model(Path(home), "bfloat16"))
        engine.compile(requests)
        ours = statistics.median(seconds_of(lambda: engine.score(iter([requests])))[0] for _ in range(3))
        torch = PlainTorch.load(home, "bfloat16", torch_device())
        peers = {
            "one_example_a_forward": run_batches(torch, requests, example_batches(works)),
            "sorted_batches": run_batches(torch, requests, sorted_batches(requests)),
        }
        if lm_eval := LmEval.around(torch, load_tokenizer(home)):
            peers["lm_eval"] = run_lm_eval(lm_eval, requests, peers["sorted_batches"])
        if importlib.util.find_spec("vllm"):
            arguments = (home, "bfloat16", VLLM_MEMORY, requests, FLAGS.torch_seconds)
            peers["vllm"] = in_a_child(VLLM_SECONDS, time_vllm, *arguments)
            say(f"  vLLM: {peers['vllm']}")
        for own in peers.values():
            own["times_ours"] = own["seconds"] / ours if "seconds" in own else None
        return {"examples": sum(len(work.prompts) for work in works), "miron_jax_seconds": ours, **peers}

    def measure_kernels(self) -> dict[str, Any]:
        """One layer's attention in rows of 512 and 2048, and the head of the 561M shape by chunk, bfloat16."""
        return {"attention": attention_seconds(FLAGS.smoke), "head": head_seconds(FLAGS.smoke)}


def texts(sources: Sequence[Source]) -> list[str]:
    """The text of the examples, to train a tokenizer on."""
    examples = [example for source in sources for example in source.examples[:2000]]
    return [text for example in examples for text in (*example.contexts, *example.continuations)]


def nats_apart(found: Sequence[Answers | TorchAnswers], exact: Sequence[TorchAnswers]) -> dict[str, float]:
    """How far log-probabilities of scored tokens lie apart, nats."""
    ours, true = (np.concatenate([span for one in own for span in one.logprob]) for own in (found, exact))
    apart = np.abs(ours - true)
    return {"largest": float(apart.max(initial=0)), "mean": float(apart.mean())}


def run_lm_eval(lm_eval: LmEval, requests: Requests, batched: dict[str, Any]) -> dict[str, Any]:
    """Every n-th request at two batch sizes, so many that torch's own batches would take half the time budget; scaled to
    all of them by places, the faster size."""
    step = max(1, math.ceil(2 * batched["seconds"] / FLAGS.torch_seconds))
    chosen = select(requests, np.arange(0, len(requests), step))
    lm_eval.score(select(requests, np.arange(min(8, len(requests)))), 8)  # warm-up
    found = []
    for size in LM_EVAL_BATCHES:
        seconds, _ = seconds_of(lambda size=size: lm_eval.score(chosen, size))
        places = padded_by_length(requests, size)
        scaled = seconds * places / padded_by_length(chosen, size)
        say(f"  lm-eval, batches of {size}: {scaled:.2f} s for {places} places, from {seconds:.2f} s")
        found.append({"seconds": scaled, "measured_seconds": seconds, "places": places, "batch_size": size})
    return min(found, key=lambda own: own["seconds"])


def example_batches(works: Sequence[Work]) -> list[list[int]]:
    """Requests of each example, by their place in the joined works."""
    before = np.cumsum([0, *(len(work.requests) for work in works)])
    return [
        list(range(int(start + a), int(start + b)))
        for work, start in zip(works, before, strict=False)
        for a, b in itertools.pairwise(work.first)
    ]


def sorted_batches(requests: Requests) -> list[list[int]]:
    """Longest first, as many rows together as BATCH_PLACES allows."""
    length = np.diff(requests.offsets)
    batches: list[list[int]] = [[]]
    for r in np.argsort(-length, kind="stable").tolist():
        if batches[-1] and (len(batches[-1]) + 1) * length[batches[-1][0]] > BATCH_PLACES:
            batches.append([])
        batches[-1].append(r)
    return batches


def run_batches(torch: PlainTorch, requests: Requests, batches: list[list[int]]) -> dict[str, Any]:
    """Run batches in a shuffled order until the time budget is spent; scale to all of them by places."""
    places = [len(batch) * max(len(requests.tokens(r)) for r in batch) for batch in batches]
    order = np.random.default_rng(0).permutation(len(batches)).tolist()

    def score(b: int) -> None:
        torch.batch([requests.tokens(r) for r in batches[b]], [int(requests.span_start[r]) for r in batches[b]])

    for b in order[:3]:
        score(b)
    ran, start = 0, time.perf_counter()
    for b in order:
        score(b)
        ran += places[b]
        if time.perf_counter() - start > FLAGS.torch_seconds:
            break
    measured = time.perf_counter() - start
    seconds = measured * sum(places) / ran
    say(f"  torch: {seconds:.2f} s for {sum(places)} places in {len(batches)} batches, from {measured:.2f} s for {ran}")
    return {
        "seconds": seconds,
        "measured_seconds": measured,
        "places": sum(places),
        "plain_tokens_per_second": (len(requests.token_ids) - len(requests)) / seconds,
    }


def print_report(found: dict[str, Any], seconds: float) -> None:
    print(
        f"\n{'CORE, bfloat16':28}{'seconds':>9}{'next':>9}{'compile':>9}{'unique tokens':>15}{'of peak':>9}{'attention':>11}"
    )
    for name, own in found.items():
        if name.startswith("core_") and "first" in own:
            first, later, share = own["first"], own["next_checkpoint"], own["next_checkpoint"]["share_of_peak"]
            print(
                f"{name[5:]:28}{first['seconds']:9.1f}{later['seconds']:9.1f}{first['compile_seconds']:9.1f}"
                f"{own['unique_tokens']:15}{'' if share is None else f'{share:.1%}':>9}{own['attention']:>11}"
            )
    peers = found.get("peers", {})
    for name, title in PEERS.items():
        if name in peers:
            times = peers[name]["times_ours"]
            print(f"{title}: {peers[name]['failed'] if times is None else f'{times:.1f} times ours'}")
    for line in found.get("parity", {}).get("wrong", ()):
        print(f"WRONG: {line}")
    for name, own in found.items():
        if "failed" in own:
            print(f"FAILED: {name}: {own['failed']}")
    print(f"all in {seconds:.0f} s")


def torch_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    run(main)
