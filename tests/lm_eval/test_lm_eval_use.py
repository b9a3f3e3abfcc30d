"""The lm-eval adapter as its users meet it: arguments, caches, devices, the command, models of their own."""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, entry_points
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

pytest.importorskip("lm_eval", reason="needs lm-eval, which the extra lm-eval installs")
pytest.importorskip("torch", reason="needs torch, with which HFLM computes")

from lm_eval.api.model import CachingLM
from lm_eval.tasks import TaskManager

import miron_jax.lm_eval
import miron_jax.session
from miron_jax import InputError, OwnModel, load_params
from miron_jax.lm_eval import MironLM
from miron_jax.model.decoder import abstract
from miron_jax.model.hf_config import from_hf_config
from tests.support.lm_eval_pair import (
    asked,
    evaluate,
    folder,
    pair,
    simple_evaluate,
    tasks,
    values,
)
from tests.support.tolerances import CONTINUATION, TOKEN
from tests.support.torch_folders import torch_folder

pytestmark = pytest.mark.slow

__all__ = ["folder", "pair", "tasks"]  # fixtures


def test_a_model_by_its_arguments_is_the_same(folder: Path, tasks: TaskManager) -> None:
    """As lm-eval's command makes it: arguments are cast, and device and batch size always come."""
    miron_jax.lm_eval.register()
    options: dict[str, Any] = {"tasks": ["own_choice"], "task_manager": tasks, "bootstrap_iters": 0}
    made = simple_evaluate(
        model="miron_jax", model_args=f"pretrained={folder},max_length=64,add_bos_token=true", device="cuda:0",
        batch_size="auto:4", **options,
    )  # fmt: skip
    lm = MironLM.create_from_arg_string(f"pretrained={folder},max_length=64", {"batch_size": 1, "device": "cpu"})
    direct = evaluate(lm=lm, task_dict=tasks.load(["own_choice"]), bootstrap_iters=0)
    assert values(made) == values(direct)


def test_wrong_arguments_are_one_sentence(folder: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"dtypes": "float32"}, "dtypes is no option, expected dtype?"),
        ({"parallelize": True}, "parallelize is no option"),
        ({"step": 3}, "step is no option, expected steps?"),
        ({"dtype": "float16"}, "--dtype is 'float16'"),
        ({"max_length": 10**6}, "max_length is 1000000, expected 1 to 64, the model's learned positions"),
        ({"steps": 100}, "--steps=100"),
        ({"prefix_token_id": "first"}, "prefix_token_id is 'first', expected a whole number, 0 or more"),
        ({"token_budget": 0}, "token_budget is 0, expected a whole number, 1 or more"),
        ({"add_bos_token": "perhaps"}, "add_bos_token is 'perhaps', expected true or false"),
        ({"watch": True}, "watch is no option"),
    ]
    for options, sentence in wrong:
        with pytest.raises(InputError, match=sentence):
            MironLM(str(torch_folder("gpt2", folder.parent / "gpt2") if "max_length" in options else folder), **options)
    with pytest.raises(InputError, match=r"no such folder|there is no"):
        MironLM(str(folder / "absent"))
    given: dict[str, Any] = {"max_length": "32", "steps": None, "dtype": None, "seed": None, "trust_remote_code": True}
    assert MironLM(str(folder), token_budget="512", **given).max_length == 32


def test_a_cache_must_name_its_model(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = MironLM(str(folder))
    with pytest.raises(InputError, match=f"name a file with this model's fingerprint in its name, {lm.fingerprint}"):
        CachingLM(lm, str(tmp_path / "cache.db"))
    assert MironLM(str(folder), max_length=32).fingerprint != lm.fingerprint
    cached = CachingLM(lm, str(tmp_path / f"cache_{lm.fingerprint}.db"))
    requests = asked("loglikelihood", [("the sun", " is hot")])
    first = cached.loglikelihood(requests)
    monkeypatch.setattr(lm.session, "scores", None)  # nothing may be scored again
    assert cached.loglikelihood(requests) == first


def test_several_devices_are_one(folder: Path) -> None:
    """Two devices give what one gives."""
    code = f"""
import json
from lm_eval.api.instance import Instance
from miron_jax.lm_eval import MironLM
import jax
lm = MironLM({str(folder)!r})
asked = [Instance("loglikelihood", {{}}, ("the sun is" + " hot" * i, " and cold"), i) for i in range(9)]
texts = [Instance("generate_until", {{}}, ("the sun is" + " hot" * i, {{"max_gen_toks": 5}}), i) for i in range(5)]
print(json.dumps([jax.device_count(), lm.world_size, lm.rank, lm.loglikelihood(asked), lm.generate_until(texts)]))
"""
    answers = {}
    for devices in (1, 2):
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        environment = {**os.environ, "XLA_FLAGS": flags}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        answers[devices] = json.loads(done.stdout.splitlines()[-1])
        assert answers[devices][:3] == [devices, 1, 0]
    for (a, greedy), (b, is_greedy) in zip(answers[1][3], answers[2][3], strict=True):
        assert abs(a - b) <= TOKEN
        assert greedy == is_greedy
    assert answers[1][4] == answers[2][4]


def test_the_command(folder: Path, tasks: TaskManager, tmp_path: Path) -> None:
    """As a user calls it: a run, its files, and a wrong option that ends in one sentence."""
    include = str(Path(tasks.include_path).resolve())  # pyright: ignore[reportArgumentType]
    command = [sys.executable, "-c", "from miron_jax.lm_eval import main; main()"]
    flags = ["--model", "miron_jax", "--tasks", "own_choice", "--include_path", include, "--output_path", str(tmp_path)]
    flags += ["--log_samples", "--limit", "4"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}

    def run(arguments: str) -> subprocess.CompletedProcess[str]:
        whole = [*command, *flags, "--model_args", arguments]
        return subprocess.run(whole, env=environment, capture_output=True, text=True, check=False)

    done = run(f"pretrained={folder}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "own_choice" in done.stdout
    [results] = tmp_path.rglob("results_*.json")
    assert json.loads(results.read_text())["results"]["own_choice"]["acc,none"] >= 0
    assert len(list(tmp_path.rglob("samples_own_choice_*.jsonl"))) == 1
    wrong = run(f"pretrained={folder},dtyp=float32")
    assert wrong.returncode == 2
    assert (
        wrong.stderr.strip()
        .splitlines()[-1]
        .startswith("miron-lm-eval: model_args: dtyp is no option, expected dtype?")
    )


def test_own_models_and_given_weights(folder: Path) -> None:
    requests = asked("loglikelihood", [("the sun", " is hot"), ("", "rain")])
    expected = MironLM(str(folder)).loglikelihood(requests)
    params, config = load_params(folder), from_hf_config(folder)
    assert MironLM(str(folder), params=params).loglikelihood(requests) == expected
    graphdef = abstract(config, jnp.float32)[0]
    own = OwnModel(
        vocab_size=config.vocab_size,
        hidden=lambda state, *batch: nnx.merge(graphdef, state)(*batch),
        head=lambda state: nnx.merge(graphdef, state).head(),
        params=params,
    )
    found = MironLM(own, str(folder)).loglikelihood(requests)
    np.testing.assert_allclose([a for a, _ in found], [a for a, _ in expected], rtol=0, atol=CONTINUATION)
    changed = jax.tree.map(lambda x: x * 0.5, params)
    assert MironLM(str(folder), params=changed).loglikelihood(requests) != expected


@pytest.mark.parametrize(
    ("has", "sentence"),
    [(None, "is not installed"), ("0.4.9", "lm-eval is 0.4.9"), ("0.5.0.dev1", "lm-eval is 0.5.0.dev1")],
)
def test_lm_eval_that_is_absent_or_another_is_one_sentence(
    has: str | None, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        if has is None:
            raise PackageNotFoundError(name)
        return has

    monkeypatch.setattr(miron_jax.lm_eval, "version", version)
    with pytest.raises(SystemExit) as ended:
        miron_jax.lm_eval.main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert 'pip install "miron-jax[lm-eval]"' in told


def test_versions_that_look_for_entry_points_find_it() -> None:
    [found] = [each for each in entry_points(group="lm_eval.models") if each.name == "miron_jax"]
    assert found.load() is MironLM
