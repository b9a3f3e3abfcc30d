"""The benchmarks run from end to end on a tiny random model and made-up items, and end with one line of JSON."""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from miron_jax.tasks.eval_uation_gen.sets import GENERATED
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.conftest import REPOSITORY

WORDS = ("red", "green", "blue", "small", "large", "old", "river", "stone", "bird", "tree", "house", "road", "boat")


class Tiny(NamedTuple):
    model: Path
    bundle: Path


def sentence(seed: int, length: int = 6) -> str:
    """A few words that differ from seed to seed."""
    return " ".join(WORDS[(seed * 7 + i * (seed % 5 + 1)) % len(WORDS)] for i in range(length))


def items(kind: str, count: int = 13) -> list[dict[str, Any]]:
    """13: one more than ten shots and one question need."""
    if kind == "choices":
        return [
            {"query": sentence(i), "choices": [sentence(i + c, 2) + f" {c}" for c in range(4)], "gold": i % 4}
            for i in range(count)
        ]
    if kind == "schema":
        return [
            {"context_options": [sentence(i), sentence(i + 1)], "continuation": sentence(i, 3), "gold": i % 2}
            for i in range(count)
        ]
    return [{"context": sentence(i), "continuation": sentence(i + 2, 1)} for i in range(count)]


FILES = {
    "world_knowledge/arc_challenge.jsonl": "choices",
    "commonsense_reasoning/copa.jsonl": "choices",
    "language_understanding/winograd_wsc.jsonl": "schema",
    "language_understanding/lambada_openai.jsonl": "continuation",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny")
    for name, kind in FILES.items():
        path = folder / "bundle" / "eval_data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(item) + "\n" for item in items(kind)))
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=300,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "model")
    save_tokenizer(folder / "model")
    return Tiny(folder / "model", folder / "bundle")


def save_tokenizer(folder: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(WORDS, vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer, bos_token="<|endoftext|>"
    ).save_pretrained(folder)


def run(script: str, *flags: str) -> dict[str, Any]:
    """The last line of a benchmark's output."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(REPOSITORY / "benchmarks" / script), *flags]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_parity_of_a_tiny_model(tiny: Tiny) -> None:
    found = run("parity.py", f"--model={tiny.model}", f"--data_dir={tiny.bundle}", "--limit=2")
    # arc_challenge at ten shots and at none, the three others at none: 5 works of two examples
    assert found["examples"] == 10
    assert found["wrong"] == []
    assert found["largest"] < 1e-5  # two layers: far inside the 1e-4 of real models


def test_bench_core_smoke(tiny: Tiny) -> None:
    found = run("bench_core.py", f"--model={tiny.model}", f"--data_dir={tiny.bundle}", "--fast")
    long, wide = found["workloads"]
    assert long["examples"] == 3
    assert wide["examples"] == 2 * len(FILES)
    for workload in (long, wide):
        assert workload["wrong"] == []
        assert workload["unique_tokens"] < workload["plain_tokens"] <= workload["plain"]["places"]
        assert workload["matmul_rate_xla"] > 0
        assert workload["plain"]["ratio"] > 0
    assert found["memory"]["peak_bytes"] > found["memory"]["weight_bytes"]


def test_parity_of_miron_on_a_tiny_model(tiny: Tiny) -> None:
    found = run("parity_miron.py", f"--model={tiny.model}", "--items=8")
    assert [task["items"] for task in found["tasks"].values()] == [4, 4, 4, 4]  # two suites, two languages
    assert found["wrong"] == []
    for task in found["tasks"].values():
        assert task["largest_difference"]["target_confidence"] < 1e-4


def test_bench_miron_smoke(tiny: Tiny) -> None:
    found = run("bench_miron.py", f"--model={tiny.model}", "--items_per_category=12", "--peer_items=8", "--repeats=1")
    assert (found["items"], found["peer_items"]) == (96, 8)
    assert found["wrong"] == []
    assert found["card"]["unique_tokens"] < found["full"]["unique_tokens"]
    assert found["full"]["segmentation_tokens"] > 0
    for peer in ("one_by_one", "batched", "batched_tightly"):
        assert found[peer]["ratio"]["card"] > 0


def test_every_instruction_of_a_traced_batch_has_a_part(tiny: Tiny) -> None:
    flags = ("--limit=12", "--batches=2", "--instructions=3")
    found = run("trace_forward.py", f"--model={tiny.model}", f"--data_dir={tiny.bundle}", *flags)
    assert sum(found["traced_seconds"].values()) == pytest.approx(found["traced_batch_seconds"])
    for part in ("weight matmuls", "attention: matmuls", "attention: mask, maximum, sum, copies", "head"):
        assert found["traced_seconds"][part] > 0, part
    assert found["share_of_matmul_rate"] > 0


def test_gpu_suite_smoke(tiny: Tiny) -> None:
    found = run("gpu_suite.py", f"--data_dir={tiny.bundle}", "--smoke", "--torch_seconds=1")
    assert found["parity"]["wrong"] == []
    for shape in ("gpt2_124m", "nanochat_d20_561m"):
        assert found["parity"][shape]["scored_tokens"] > 0
        assert found["parity"][shape]["float32"]["largest"] < 1e-4 < found["parity"][shape]["bfloat16"]["largest"]
    for section in ("core_gpt2_124m", "core_nanochat_d20_561m", "core_llama_1b"):
        assert found[section]["first"]["self_check_largest"] < 0.25
        assert found[section]["next_checkpoint"]["compile_seconds"] == 0
        assert 0 <= found[section]["first"]["idle_share"] < 1
        assert found[section]["examples"] == 2 * 8  # four files that are there, and hellaswag (two tasks), squad, coqa
    assert found["peers"]["sorted_batches"]["times_ours"] > 0
    if importlib.util.find_spec("lm_eval"):  # an extra of its own
        assert found["peers"]["lm_eval"]["times_ours"] > 0
    assert found["kernels"]["head"]["64"] > 0
    assert found["kernels"]["attention"]["xla_128_forests"] > 0
    assert found["seconds"] < 540


VLLM = """
import numpy as np, torch
from types import SimpleNamespace
from transformers import AutoModelForCausalLM

class SamplingParams:
    def __init__(self, **rules):
        assert rules == {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0, "detokenize": False}

class LLM:
    def __init__(self, model, dtype, **rules):
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))

    def generate(self, prompts, rules, use_tqdm):
        return [SimpleNamespace(prompt_logprobs=self.told(one["prompt_token_ids"])) for one in prompts]

    def told(self, ids):
        with torch.inference_mode():
            logprob = self.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        rank = [int((own > own[i]).sum()) + 1 for own, i in zip(logprob, ids[1:])]
        pairs = zip(ids[1:], logprob, rank)
        return [None, *({i: SimpleNamespace(logprob=float(own[i]), rank=r)} for i, own, r in pairs)]
"""


def test_vllm_is_asked_for_the_spans(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against torch, by a module that answers as vLLM does: it cannot be installed without a GPU."""
    (tmp_path / "vllm.py").write_text(VLLM)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    common, peer = importlib.import_module("common"), importlib.import_module("vllm_peer")
    works = [
        common.prepare(own, 2, load_tokenizer(str(tiny.model)), None) for own in common.read_tasks(str(tiny.bundle), [])
    ]
    requests = common.joined(works)
    found = peer.Vllm(str(tiny.model), "float32", 0.25).score(requests)
    torch = common.PlainTorch.load(str(tiny.model), "float32")
    expected = [torch.batch([requests.tokens(r)], [int(requests.span_start[r])]) for r in range(len(requests))]
    for logprob, greedy, one in zip(found.logprob, found.greedy, expected, strict=True):
        np.testing.assert_allclose(logprob, one.logprob[0], atol=1e-5)
        np.testing.assert_array_equal(greedy, one.greedy[0])
    timed = peer.time_vllm(str(tiny.model), "float32", 0.25, requests, 0.01)
    assert timed["places"] == timed["measured_places"] == int(requests.offsets[-1])


def test_bench_dtype(tiny: Tiny) -> None:
    found = run(
        "bench_dtype.py",
        f"--model={tiny.model}",
        f"--data_dir={tiny.bundle}",
        "--tasks=core/copa,core/lambada_openai",
        "--limit=3",
    )
    assert set(found["tasks"]) == {"core/copa", "core/lambada_openai"}
    for own in found["tasks"].values():
        assert own["n"] == 3
        assert own["scored_tokens"] > 0
        assert 0 < own["mean"] <= own["largest"] < 0.25


def test_trace_idle_sums_up_the_time_without_a_batch(tiny: Tiny) -> None:
    found = run("trace_idle.py", f"--model={tiny.model}", f"--data_dir={tiny.bundle}", "--limit=3", "--gaps=1000")
    assert found["batches"] > 0
    assert sum(gap["seconds"] for gap in found["gaps"]) == pytest.approx(found["idle_seconds"])
    assert 0 <= found["idle_share"] < 1
    assert found["idle_share"] == pytest.approx(found["idle_seconds"] / found["seconds_from_first_batch"])


def test_bench_uation(tiny: Tiny) -> None:
    found = run("bench_uation.py", f"--model={tiny.model}", "--limit=2")
    assert len(found["tasks"]) == 10  # nine sets, UA-CBT in two forms
    assert found["plain_tokens"] > found["unique_tokens"] > 0
    assert found["plain_tokens"] == sum(own["plain_tokens"] for own in found["tasks"].values())
    assert set(found["seconds_to_make"]) == {own.name for own in GENERATED}
