"""The benchmarks run from end to end on a tiny random model and made-up items, and end with one line of JSON."""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from miron_jax.engine.self_check import TOLERANCE
from miron_jax.files.readers import JsonObject
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.conftest import REPOSITORY
from tests.support.needs import needs
from tests.support.olmes_package import write_package
from tests.support.tolerances import CONFIDENCE, CONTINUATION, TOKEN

pytestmark = [pytest.mark.slow, pytest.mark.long]
WORDS = ("red", "green", "blue", "small", "large", "old", "river", "stone", "bird", "tree", "house", "road", "boat")


class Tiny(NamedTuple):
    model: Path
    bundle: Path


def sentence(seed: int, length: int = 6) -> str:
    """A few words that differ from seed to seed."""
    return " ".join(WORDS[(seed * 7 + i * (seed % 5 + 1)) % len(WORDS)] for i in range(length))


def items(kind: str) -> list[JsonObject]:
    def item(i: int) -> JsonObject:
        if kind == "choices":
            return {"query": sentence(i), "choices": [sentence(i + c, 2) + f" {c}" for c in range(4)], "gold": i % 4}
        if kind == "schema":
            return {"context_options": [sentence(i), sentence(i + 1)], "continuation": sentence(i, 3), "gold": i % 2}
        return {"context": sentence(i), "continuation": sentence(i + 2, 1)}

    return [item(i) for i in range(13)]  # more than ten shots and one question


FILES = {
    "world_knowledge/arc_challenge.jsonl": "choices",
    "commonsense_reasoning/copa.jsonl": "choices",
    "language_understanding/winograd_wsc.jsonl": "schema",
    "language_understanding/lambada_openai.jsonl": "continuation",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    torch = needs("torch")
    transformers = needs("transformers")
    folder = tmp_path_factory.mktemp("tiny")
    for name, kind in FILES.items():
        path = folder / "bundle" / "eval_data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(item) + "\n" for item in items(kind)))
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=300, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "model")
    trained = needs("tokenizers").ByteLevelBPETokenizer()
    trained.train_from_iterator(WORDS, vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, bos_token="<|endoftext|>")
    tokenizer.save_pretrained(folder / "model")
    return Tiny(folder / "model", folder / "bundle")


def run(script: str, *flags: str) -> JsonObject:
    """Run a benchmark; returns the last line of its output."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(REPOSITORY / "benchmarks" / script), *flags]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_parity_of_a_tiny_model(tiny: Tiny) -> None:
    document = run("parity.py", f"--model={tiny.model}", f"--data_dir={tiny.bundle}", "--limit=2")
    # arc_challenge at ten shots and at none, the three others at none: 5 works of two examples
    assert document["examples"] == 10
    assert document["wrong"] == []
    assert document["largest"] < TOKEN / 2  # two layers: far below the 1e-4 of real models


def test_bench_core_smoke(tiny: Tiny) -> None:
    document = run("bench_core.py", f"--model={tiny.model}", f"--data_dir={tiny.bundle}", "--fast")
    long, wide = document["workloads"]
    assert long["examples"] == 3
    assert wide["examples"] == 2 * len(FILES)
    for workload in (long, wide):
        assert workload["wrong"] == []
        assert workload["unique_tokens"] < workload["plain_tokens"] <= workload["plain"]["places"]
        assert workload["matmul_rate_xla"] > 0
        assert workload["plain"]["ratio"] > 0
    assert document["memory"]["peak_bytes"] > document["memory"]["weight_bytes"]


def test_bench_lm_eval_smoke(tiny: Tiny) -> None:
    needs("lm_eval")
    flags = ("--limit=4", "--mix_limit=2", "--peer_every=2", "--repeats=1")
    document = run("bench_lm_eval.py", f"--model={tiny.model}", f"--data_dir={tiny.bundle}", *flags)
    one, mix = document["workloads"]
    assert (one["requests"], one["peer_requests"]) == (16, 8)
    assert (mix["tasks"], mix["requests"]) == (["own_arc_challenge"], 8)
    for workload in (one, mix):
        assert workload["differing"]["judged_otherwise"] == 0
        assert workload["differing"]["largest_nats"] < CONTINUATION
        assert 0 < workload["harness_seconds"] < workload["seconds"]


def test_bench_olmes_smoke(tiny: Tiny, tmp_path: Path) -> None:
    needs("lm_eval")
    write_package(tmp_path)
    flags = ("--tasks=olmes/arc_easy_test_rc_5shot,olmes/winogrande_rc_5shot", "--limit=2", "--peer_every=2")
    document = run("bench_olmes.py", f"--model={tiny.model}", f"--data_dir={tmp_path}", *flags)
    assert document["requests"] > document["peer_requests"] == 5  # three options, and two contexts
    assert document["largest_bits_per_byte"] < CONTINUATION
    assert document["times_faster"] > 0


def test_parity_of_miron_on_a_tiny_model(tiny: Tiny) -> None:
    document = run("parity_miron.py", f"--model={tiny.model}", "--items=8")
    assert [task["items"] for task in document["tasks"].values()] == [4, 4, 4, 4]  # two suites, two languages
    assert document["wrong"] == []
    for task in document["tasks"].values():
        assert task["largest_difference"]["target_confidence"] < CONFIDENCE


def test_bench_miron_smoke(tiny: Tiny) -> None:
    flags = ("--items_per_category=12", "--peer_items=8", "--repeats=1")
    document = run("bench_miron.py", f"--model={tiny.model}", *flags)
    assert (document["items"], document["peer_items"]) == (96, 8)
    assert document["wrong"] == []
    assert document["card"]["unique_tokens"] < document["full"]["unique_tokens"]
    assert document["full"]["segmentation_tokens"] > 0
    for peer in ("one_by_one", "batched", "batched_tightly"):
        assert document[peer]["ratio"]["card"] > 0


def test_gpu_suite_smoke(tiny: Tiny) -> None:
    document = run("gpu_suite.py", f"--data_dir={tiny.bundle}", "--smoke", "--torch_seconds=1")
    assert document["parity"]["wrong"] == []
    for shape in ("gpt2_124m", "nanochat_d20_561m"):
        assert document["parity"][shape]["scored_tokens"] > 0
        largest = {dtype: document["parity"][shape][dtype]["largest"] for dtype in ("float32", "bfloat16")}
        assert largest["float32"] < 2.5 * TOKEN < largest["bfloat16"]  # logits of hundreds of channels
    for section in ("core_gpt2_124m", "core_nanochat_d20_561m", "core_llama_1b"):
        assert document[section]["first"]["self_check_largest"] < TOLERANCE["bfloat16"]
        assert document[section]["next_checkpoint"]["compile_seconds"] == 0
        assert 0 <= document[section]["first"]["idle_share"] < 1
        assert document[section]["examples"] == 2 * 8  # the bundle's four files, and hellaswag (two tasks), squad, coqa
    assert document["peers"]["sorted_batches"]["times_ours"] > 0
    if importlib.util.find_spec("lm_eval"):  # an optional extra
        assert document["peers"]["lm_eval"]["times_ours"] > 0
    assert (
        document["first_result"]["cold"]["wall_seconds"] > document["first_result"]["with_programs"]["wall_seconds"] > 0
    )
    assert {*document["experts"]} == {"8_experts", "64_experts"}
    assert {*document["mamba"]["seconds"]} == {"shared states", "a row a request"}
    assert document["kernels"]["head"]["64"] > 0
    assert document["kernels"]["attention"]["xla_128_forests"] > 0
    assert document["seconds"] < 540


def test_rows_of_a_gpus_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    gpu_rows = importlib.import_module("gpu_rows")
    later = {"seconds": 2.0, "share_of_peak": 0.5, "idle_share": 0.03}
    reports = {
        "core_gpt2_124m": {"next_checkpoint": later, "examples": 7, "unique_tokens": 3_000_000, "attention": "cudnn"},
        "experts": {"8_experts": {"share_of_dense": 0.75}},
        "peak": {"failed": "no room"},
        "parity": {"skipped": "torch is not installed", "wrong": []},
    }
    assert [*gpu_rows.rows_of(reports)] == [
        "| core_gpt2_124m, 7 examples, next checkpoint | 2.00 s, 1.50 M unique tokens/s, 50.0% of peak, idle 3.0%, cudnn |",
        "| experts, of the dense rate | 8_experts: 0.75 |",
        "peak: no room",
        "parity: torch is not installed",
    ]


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
        return [SimpleNamespace(prompt_logprobs=self.logprobs(one["prompt_token_ids"])) for one in prompts]

    def logprobs(self, ids):
        with torch.inference_mode():
            logprob = self.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        rank = [int((row > row[i]).sum()) + 1 for row, i in zip(logprob, ids[1:])]
        pairs = zip(ids[1:], logprob, rank)
        return [None, *({i: SimpleNamespace(logprob=float(row[i]), rank=r)} for i, row, r in pairs)]
"""


def test_vllm_is_asked_for_the_spans(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against torch, with a stand-in for the vllm module, which cannot be installed without a GPU."""
    (tmp_path / "vllm.py").write_text(VLLM)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    common, peers, vllm_peer = map(importlib.import_module, ("common", "peers", "vllm_peer"))
    tokenizer = load_tokenizer(str(tiny.model))
    works = [common.prepare(source, 2, tokenizer, None) for source in common.read_tasks(str(tiny.bundle), [])]
    requests = common.joined(works)
    answers = vllm_peer.Vllm(str(tiny.model), "float32", 0.25).score(requests)
    torch = peers.PlainTorch.load(str(tiny.model), "float32")
    for r, (logprob, greedy) in enumerate(zip(answers.logprob, answers.greedy, strict=True)):
        expected = torch.requests(requests, [r])
        np.testing.assert_allclose(logprob, expected.logprob[0], atol=TOKEN / 2)
        np.testing.assert_array_equal(greedy, expected.greedy[0])
    timed = vllm_peer.time_vllm(str(tiny.model), "float32", 0.25, requests, 0.01)
    assert timed["places"] == timed["measured_places"] == int(requests.offsets[-1])


def test_bench_dtype(tiny: Tiny) -> None:
    flags = ("--tasks=core/copa,core/lambada_openai", "--limit=3")
    document = run("bench_dtype.py", f"--model={tiny.model}", f"--data_dir={tiny.bundle}", *flags)
    assert set(document["tasks"]) == {"core/copa", "core/lambada_openai"}
    for task in document["tasks"].values():
        assert task["n"] == 3
        assert task["scored_tokens"] > 0
        assert 0 < task["mean"] <= task["largest"] < TOLERANCE["bfloat16"]


def test_bench_uation(tiny: Tiny) -> None:
    document = run("bench_uation.py", f"--model={tiny.model}", "--limit=2")
    assert len(document["tasks"]) == 10  # nine sets, UA-CBT in two forms
    assert document["plain_tokens"] > document["unique_tokens"] > 0
    assert document["plain_tokens"] == sum(task["plain_tokens"] for task in document["tasks"].values())


def test_bench_host(tiny: Tiny) -> None:
    flags = (f"--model={tiny.model}", f"--data_dir={tiny.bundle}", "--limit=2", "--repeats=1")
    document = run("bench_host.py", *flags)
    assert document["examples"] == 2 * len(FILES)
    assert {"launch", "metrics", "score", "results", "files"} < document["second"].keys()
    assert document["cold"].keys() > document["second"].keys() | {"read"}
    assert min(document["second"].values()) > 0
