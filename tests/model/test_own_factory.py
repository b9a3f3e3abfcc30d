"""A model that a user's function makes, named by --model=module:function, and its checkpoints."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import evaluate, evaluate_checkpoints
from miron_jax.model.checkpoints.checkpoints import Architecture
from miron_jax.model.checkpoints.loading import load
from miron_jax.model.checkpoints.training_run import Checkpoint
from miron_jax.runtime.devices import Placement
from tests.support.own_models import WIDTH, bigrams, of_nnx, users_promotion
from tests.support.tiny_model import make_tokenizer
from tests.support.tolerances import CONTINUATION, MOVED
from tests.support.training_runs import eval_command, save_standard

__all__ = ["users_promotion"]  # a fixture that every test here uses
pytestmark = [
    pytest.mark.slow, pytest.mark.newest,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]  # fmt: skip

FACTORY = """
import jax
import miron_jax
from tests.support.own_models import bigrams, of_nnx

def make():
    return of_nnx(tokenizer={tokenizer!r})

def shapes():
    params = of_nnx().params
    return of_nnx(tokenizer={tokenizer!r}, params=jax.eval_shape(lambda: params))

def linen(times=1):
    table = times * bigrams().params
    variables = {{"params": {{"table": table}}}}
    return bigrams(tokenizer={tokenizer!r}, params=variables, logits=lambda params, ids: params["params"]["table"][ids])

def doubled():
    return linen(2)

def nothing():
    return None

def wants(width, depth=2):
    return None

def fails():
    return len(3)

def few():
    return bigrams(tokenizer={tokenizer!r}, vocab_size=200)

number = 3
"""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(folder)
    return str(folder)


@pytest.fixture
def factory(tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module's name in the working directory."""
    (tmp_path / "a_users_model.py").write_text(FACTORY.format(tokenizer=tokenizer))
    (tmp_path / "with_missing_import.py").write_text("import not_installed_anywhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "a_users_model", raising=False)
    importlib.invalidate_caches()
    return "a_users_model"


def config_of(model: str, **changes: Any) -> RunConfig:
    return RunConfig(model, ("miron-gen/en",), **{"limit": 2, "items_per_category": 12, **changes})


def logprobs(outcome: Any) -> list[float]:
    return [example.metrics["logprob"] for example in outcome.tasks[0].example_scores if example]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("a_users_mode:make", {}, "no module a_users_mode, neither in"),
    ("a_users_model:made", {}, "a_users_model.py has no function made"),
    ("a_users_model:number", {}, "has no function number"),
    ("a_users_model:nothing", {}, "nothing returns a NoneType, expected a miron_jax.OwnModel"),
    ("a_users_model:wants", {}, r"wants takes \(width, depth=2\), but it is called without arguments"),
    ("with_missing_import:make", {}, "with_missing_import imports not_installed_anywhere, which is not installed"),
    ("a_users_model:fails", {}, r"fails in a_users_model.py, line \d+ \(TypeError: object of type 'int' has no len"),
    ("a_users_model:shapes", {}, "shapes without numbers: name them with --checkpoint"),
    ("a_users_model:few", {}, r"tokenizer has \d+ tokens, but the model's vocabulary has 200"),
    ("a_users_model:make", {"param_map": "ema"}, "--param_map says where an Orbax .*expected --checkpoint"),
    ("a_users_model:make", {"params_key": "ema"}, "--params_key says where an Orbax .*expected --checkpoint"),
    ("a_users_model:make", {"steps": "5"}, "--steps selects checkpoints of a training run, expected --checkpoint"),
    ("a_users_model:make", {"watch": True}, "--watch waits for checkpoints .*expected --checkpoint"),
    ("demo", {"checkpoint": "x"}, "no factory"),
]


def test_factories_that_are_refused(factory: str) -> None:
    for named, flags, words in REFUSED:
        config = config_of(named, **flags)
        with pytest.raises(InputError, match=words):
            evaluate(config, find_inputs(config))


def test_a_factory_is_scored_and_its_checkpoints_are(factory: str, tmp_path: Path) -> None:
    """NNX states as they are and as pure dicts; the run's numbers are those of the weights."""
    alone = evaluate(config_of(f"{factory}:make"), find_inputs(config_of(f"{factory}:make")))
    assert len(logprobs(alone)) == 8
    save_standard(tmp_path / "run" / "10", of_nnx(1).params)
    save_standard(tmp_path / "run" / "20", {"params": nnx.to_pure_dict(of_nnx(0).params), "step": np.int32(20)})
    config = config_of(f"{factory}:shapes", checkpoint=str(tmp_path / "run"))
    computed = dict(evaluate_checkpoints(config, find_inputs(config)))
    assert list(computed) == [10, 20]
    assert logprobs(computed[20]) == pytest.approx(logprobs(alone), abs=CONTINUATION)
    assert logprobs(computed[10]) != pytest.approx(logprobs(alone), abs=100 * MOVED)
    assert [outcome.speed.programs > 0 for outcome in computed.values()] == [True, False]


def test_a_linen_train_state_from_orbax(factory: str, tmp_path: Path) -> None:
    """The numbers are those of a factory that has the weights itself."""
    params = {"table": 2 * bigrams().params}
    state = TrainState.create(apply_fn=len, params=params, tx=optax.adam(1e-3))
    save_standard(tmp_path / "state", {"model": state, "epoch": 3})
    configs = config_of(f"{factory}:linen", checkpoint=str(tmp_path / "state")), config_of(f"{factory}:doubled")
    computed, expected = (logprobs(evaluate(config, find_inputs(config))) for config in configs)
    assert computed == pytest.approx(expected, abs=CONTINUATION)


def test_a_checkpoint_of_another_model_is_refused(factory: str, tmp_path: Path) -> None:
    save_standard(tmp_path / "other", {"params": {"tokens": {"embedding": np.zeros((3, 4), np.float32)}}})
    config = config_of(f"{factory}:shapes", checkpoint=str(tmp_path / "other"))
    with pytest.raises(InputError, match=r"lacks norm/scale, places/embedding.*check the model's sizes"):
        evaluate(config, find_inputs(config))


def test_a_run_whose_model_answers_nan_fails_and_keeps_its_scores(
    factory: str, tokenizer: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a_nan_model.py").write_text(
        "from tests.support.own_models import of_nnx, with_nan\n"
        f"def make():\n    return with_nan(of_nnx(tokenizer={tokenizer!r}), 46)\n"
    )
    importlib.invalidate_caches()
    flags = ("--tasks=miron-gen/en", "--limit=3", "--items_per_category=12", "--compilation_cache=")
    assert eval_command("--model=a_nan_model:make", f"--output={tmp_path}/out", *flags) == 1
    said = capfd.readouterr().err.splitlines()[-1]
    assert "miron-gen/en: the model answers NaN to" in said
    results = json.loads((tmp_path / "out" / "results.json").read_text())["tasks"]["miron-gen/en"]
    lines = (tmp_path / "out" / "samples" / "miron-gen" / "en.jsonl").read_text().splitlines()
    assert 0 < results["skipped"] < len(lines) == 12
    assert f"to {results['skipped']} examples" in said
    assert results["n"] == 12 - results["skipped"]
    assert eval_command("--model=a_nan_model:make", f"--output={tmp_path}/out", *flags) == 1, "nor the second time"


def test_a_factorys_weights_with_nan_are_named(factory: str) -> None:
    model = of_nnx(params=jax.tree.map(lambda x: x, of_nnx().params))  # a copy, as other tests have the same weights
    model.params["norm"]["scale"] = model.params["norm"]["scale"].replace(jnp.full(WIDTH, jnp.nan))
    with pytest.raises(InputError, match="x:y: the weights norm/scale hold NaN"):
        load(Architecture(model, model, None, ()), config_of("x:y"), Checkpoint(None, None), Placement.default())  # type: ignore[arg-type]
