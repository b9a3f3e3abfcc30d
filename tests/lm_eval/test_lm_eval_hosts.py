"""The lm-eval adapter in several processes, and the journal that they meet in."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="needs lm-eval, which the extra lm-eval installs")
pytest.importorskip("torch", reason="needs torch, which writes the models")

import miron_jax.session
from miron_jax import InputError
from miron_jax.lm_eval import MironLM
from tests.support.lm_eval_pair import NAMES, TEXTS, asked, write_task
from tests.support.tolerances import METRIC_RELATIVE, TOKEN
from tests.support.torch_folders import torch_folder

pytestmark = pytest.mark.slow

SCRIPT = """
import json, sys
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from miron_jax.lm_eval import MironLM

lm = MironLM(sys.argv[1], **json.loads(sys.argv[2]))
tasks = TaskManager(include_path=sys.argv[3], include_defaults=False)
results = simple_evaluate(model=lm, tasks=sys.argv[4].split(","), task_manager=tasks, bootstrap_iters=0, predict_only=False)
print(json.dumps(results["results"]))
"""
CHOICES = {"doc_to_choice": "{{choices}}", "doc_to_target": "gold"}
ROLLING = [{"metric": "bits_per_byte"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_folder("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    write_task(folder, NAMES[0], "multiple_choice", **CHOICES, num_fewshot=2)
    write_task(folder, NAMES[3], "loglikelihood_rolling", doc_to_text="", doc_to_target="{{text}}", metric_list=ROLLING)
    generation = {"until": ["\n"], "max_gen_toks": 6, "do_sample": False}
    write_task(
        folder, NAMES[4], "generate_until", generation_kwargs=generation, metric_list=[{"metric": "exact_match"}]
    )
    return folder


def start(model: Path, options: dict[str, Any], folder: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1", "HF_HUB_OFFLINE": "1"}
    names = ",".join((NAMES[0], NAMES[3], NAMES[4]))
    command = [sys.executable, "-c", SCRIPT, str(model), json.dumps(options), str(folder), names]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
    )


def ended(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err[-3000:]
    return out


@pytest.mark.parametrize(
    "more",
    [pytest.param({}, marks=pytest.mark.long), {"sharding": "mesh", "mesh": "fsdp=2"}],
    ids=["a copy each", "one mesh"],
)
def test_two_processes_are_one_to_lm_eval(model: Path, folder: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    """The same metrics as of one process; only the first prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    together = {"journal": str(tmp_path / "shared"), "coordinator": f"127.0.0.1:{port}", "num_processes": 2, **more}
    processes = [start(model, {**together, "process_id": index}, folder) for index in range(2)]
    first, second = map(ended, processes)
    assert "own_" not in second, "gloo may greet there"
    expected = json.loads(ended(start(model, {}, folder)))
    found = json.loads(first.splitlines()[-1])
    assert found.keys() == expected.keys()
    for name, metrics in expected.items():
        numbers = {metric: value for metric, value in metrics.items() if isinstance(value, float)}
        assert {metric: found[name][metric] for metric in numbers} == pytest.approx(numbers, rel=METRIC_RELATIVE)
    assert not list((tmp_path / "shared" / "calls").glob("*")), "what the processes handed over is taken away"
    written = {path.name.split("-")[0] for path in (tmp_path / "shared" / "journal").rglob("*.npz")}
    assert written == ({"0"} if more else {"0", "1"}), "each computes its share, and the first writes for a mesh"


def test_what_the_journal_keeps_is_not_computed_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = asked("loglikelihood", [("the sun is", f" {word}") for word in ("hot", "cold", "green")])
    texts = asked("generate_until", [(text, {"until": ["\n"], "max_gen_toks": 4}) for text in TEXTS[:3]])
    first = MironLM(str(model), journal=str(tmp_path))
    answers, written = first.loglikelihood(requests), first.generate_until(texts)

    def computed_again(*_: Any, **__: Any) -> None:
        raise AssertionError("computed again")

    again = MironLM(str(model), journal=str(tmp_path))
    monkeypatch.setattr(again.session.forward, "run", lambda plan, more, batches: [computed_again() for _ in batches])
    monkeypatch.setattr(again.session.generator, "_run_slots", computed_again)
    found = again.loglikelihood(requests)
    assert [greedy for _, greedy in found] == [greedy for _, greedy in answers]
    assert [value for value, _ in found] == pytest.approx([value for value, _ in answers], abs=TOKEN)
    assert again.generate_until(texts) == written
    other = MironLM(str(model), journal=str(tmp_path), dtype="bfloat16")
    assert other.session._journal is not None
    assert other.session._journal.num_known == 0, "other arithmetic, another key"


def test_wrong_processes_are_one_sentence(model: Path, tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"coordinator": "127.0.0.1:1"}, "coordinator, num_processes and process_id go together"),
        ({"distributed": "perhaps"}, "distributed is 'perhaps', expected true or false"),
        ({"distributed": True}, "give journal=FOLDER"),
        (
            {"coordinator": "127.0.0.1:1", "num_processes": 2, "process_id": 2, "journal": str(tmp_path)},
            "process_id is 2, expected 0 to 1",
        ),
        ({"distributed": True, "peer_timeout": 1}, "peer_timeout is 1, expected a whole number, 5 or more"),
    ]
    for options, sentence in wrong:
        with pytest.raises(InputError, match=sentence):
            MironLM(str(model), **options)
    assert miron_jax.session.CALLS == "calls"
