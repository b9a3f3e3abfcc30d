"""What a model computes belongs to what is kept of it: a factory that reads a file gets no scores of its other self."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from miron_jax.files.store import Store
from miron_jax.model.own import OwnModel
from miron_jax.model.own_probe import check_own_model
from miron_jax.runtime.answers import Answers
from miron_jax.runtime.journal import FOLDER, key_of_answers
from miron_jax.runtime.progress import Lines
from tests.support import processes
from tests.support.tiny_model import make_tokenizer
from tests.support.tolerances import TOKEN

FACTORY = """
import json
from pathlib import Path
import jax.numpy as jnp
import numpy as np
from miron_jax import OwnModel

def model():
    scale = json.loads(Path(__file__).with_name("scale.json").read_text())
    table = np.random.default_rng(0).standard_normal((331, 16), np.float32)

    def logits(params, token_ids):
        return scale * jnp.cumsum(params["table"][token_ids], axis=1) @ params["table"].T

    return OwnModel(331, logits=logits, params={"table": jnp.asarray(table)}, tokenizer="tokenizer")
"""


def write_home(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "own.py").write_text(FACTORY)
    make_tokenizer(folder / "tokenizer")
    return folder


def run(home: Path, scale: float, output: str, *more: str, devices: int = 1) -> tuple[dict[str, Any], str]:
    (home / "scale.json").write_text(json.dumps(scale))
    command = ["eval", "--model=own:model", "--tasks=miron-gen/en", "--items_per_category=2", "--compilation_cache="]
    command += [f"--output={home / output}", *more]
    ended = processes.run("-m", "miron_jax.cli", *command, cwd=home, devices=devices, check=True)
    return json.loads((home / output / "results.json").read_text()), ended.stderr


def nats(results: dict[str, Any]) -> float:
    return results["tasks"]["miron-gen/en"]["metrics"]["bits_per_char"]["value"]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A home with the output of one run, for scale 0.125."""
    home = write_home(tmp_path_factory.mktemp("first") / "home")
    return home, run(home, 0.125, "out")[0]


@pytest.fixture
def home(first: tuple[Path, Any], tmp_path: Path) -> Path:
    return shutil.copytree(first[0], tmp_path / "home")


@pytest.mark.slow
def test_a_file_that_the_factory_reads_makes_another_model(home: Path, first: tuple[Path, dict[str, Any]]) -> None:
    before = first[1]
    other, output = run(home, 0.25, "out")
    assert "are there already" not in output
    assert "with the same weights and code it answers otherwise" in output
    assert before["checkpoint"]["weights"] == other["checkpoint"]["weights"]
    fresh, _ = run(home, 0.25, "fresh")
    assert nats(other) == nats(fresh) != nats(before)
    again, output = run(home, 0.125, "out")
    assert nats(again) == nats(before)
    assert "are there already" in output
    assert again["speed"]["computed_tokens"] == 0


@pytest.mark.slow
def test_another_layout_of_devices_takes_what_is_there(home: Path, first: tuple[Path, dict[str, Any]]) -> None:
    again, output = run(home, 0.125, "out", "--sharding=mesh", "--mesh=data=4", devices=4)
    assert "are there already" in output, output
    assert again["speed"]["computed_tokens"] == 0
    assert nats(again) == pytest.approx(nats(first[1]), abs=TOKEN / 4)
    assert len(list((home / "out" / FOLDER).iterdir())) == 1


@pytest.mark.slow
def test_steps_that_are_scored_are_those_of_this_model_alone(tmp_path: Path) -> None:
    home = write_home(tmp_path / "home")
    table = np.random.default_rng(1).standard_normal((331, 16), np.float32)
    with ocp.StandardCheckpointer() as saver:
        for step in (1, 2):
            saver.save(home / "run" / str(step), {"table": step * table})
    before, _ = run(home, 0.125, "out", "--checkpoint=run")
    other, output = run(home, 0.25, "out", "--checkpoint=run")
    fresh, _ = run(home, 0.25, "fresh", "--checkpoint=run")
    assert "is scored already" not in output
    assert nats(other) == nats(fresh) != nats(before)
    resumed = json.loads((home / "out" / "step_1" / "results.json").read_text())
    assert nats(resumed) == nats(json.loads((home / "fresh" / "step_1" / "results.json").read_text()))


def answers(logprob: tuple[float | None, ...], digest: str = "a", layout: str | None = "one") -> Answers:
    return Answers(layout, digest, logprob, 1e-3)


def test_bytes_on_one_layout_values_on_another() -> None:
    stored = answers((-1.0, -2.0, None))
    assert stored.differ(stored) is None
    assert "on the same devices" in str(stored.differ(answers((-1.0, -2.0, None), "b")))
    for layout in ("two", None):
        assert stored.differ(answers((-1.0005, -2.0, None), "b", layout)) is None
        for values, words in (((-1.1, -2, None), "by 0.1 nats"), ((-1, -2, -3), "by inf"), ((-1, -2), "by inf")):
            assert words in str(stored.differ(answers(values, "b", layout)))
    gpu = answers((-1.0, -2.0, None), layout=None)
    assert gpu.differ(answers((-1.0, -2.0, None), "b", None)) is None, "a compiler that times its algorithms"


def test_a_damaged_record_of_answers_is_nobodys(tmp_path: Path) -> None:
    store, stored = Store(str(tmp_path)), answers((-1.0,), "a")
    said: list[str] = []
    assert key_of_answers(store, "k", stored) == "k-a"
    assert key_of_answers(store, "k", answers((-1.0,), "b", "two")) == "k-a"
    for content in ("[", "[1]", "{}", "[null, null, 3, 1]", '[null, "a", ["x"], 1]', "[" * 5000):
        (tmp_path / FOLDER / "k-a" / "answers.json").write_text(content)
        assert key_of_answers(store, "k", answers((-1.0,), "b", "two"), Lines(said.append)) == "k-b"
        (tmp_path / FOLDER / "k-b" / "answers.json").unlink()
    assert len(said) == 6
    assert "answers.json is damaged" in said[0]
    assert key_of_answers(store, "k", stored) == "k-a", "these answers have this key"


def test_answers_are_the_models_own() -> None:
    def made(scale: float) -> OwnModel:
        return OwnModel(7, logits=lambda params, ids: scale * params[ids])

    params = jnp.asarray(np.random.default_rng(0).standard_normal((7, 7), np.float32))
    one, again, other = (check_own_model(made(scale), params, 1e-3) for scale in (1.0, 1.0, 1.0 + 1e-5))
    assert one == again
    assert one.digest != other.digest
    assert one.differ(other) is not None
