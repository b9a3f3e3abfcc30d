"""`miron-jax verify`: a model that scores as transformers does, and planted errors, each of which is found."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.cli.verification import Difference, Verified, _largest
from miron_jax.engine.plain import score_plainly
from tests.support.needs import needs
from tests.support.torch_folders import FOLDERS, torch_folder


def test_nan_differs_from_every_number() -> None:
    a = np.asarray([-1.0, -2.0], np.float32)
    assert _largest(a, np.asarray([-1.5, -2.0])) == 0.5
    for other in ([np.nan, -2.0], [np.nan, np.nan], [-np.inf, -2.0]):
        largest = _largest(a, np.asarray(other))
        assert largest == np.inf
        assert Verified(2, 1e-3, [Difference("way", largest, 0)]).wrong
    assert Verified(2, 1e-3, [Difference("way", np.nan, 0)]).wrong
    assert not Verified(2, 1e-3, [Difference("way", 1e-4, 0)]).wrong


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model's folder of each kind, and a file of its oracle's numbers in it."""
    needs("torch")
    return {kind: torch_folder(kind, tmp_path_factory.mktemp("models") / kind) for kind in FOLDERS}


def oracle_of(miron: Any, folder: Path) -> Path:
    """Written by the command, once."""
    path = folder.parent / f"{folder.name}.json"
    if not path.exists():
        ran = miron("verify", f"--model={folder}", f"--write={path}", "--compilation_cache=")
        assert ran.status == 0, ran.err
    return path


def verified(miron: Any, folder: Path, oracle: Path, *flags: str) -> Any:
    return miron("verify", f"--model={folder}", f"--against={oracle}", "--compilation_cache=", *flags)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FOLDERS)
def test_a_model_scores_as_the_oracle(folders: dict[str, Path], miron, kind: str) -> None:
    ran = verified(miron, folders[kind], oracle_of(miron, folders[kind]))
    assert ran.status == 0, ran.err + ran.out
    assert ran.out.count("same") == 3
    assert "DIFFERS" not in ran.out


def changed_config(**fields: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        config |= {name: value(config) if callable(value) else value for name, value in fields.items()}
        (folder / "config.json").write_text(json.dumps(config))

    return change


def changed_weights(part: str, factor: float) -> Callable[[Path], None]:
    """The first tensor with this part in its name, times a factor."""

    def change(folder: Path) -> None:
        from safetensors.numpy import load_file, save_file

        tensors = load_file(folder / "model.safetensors")
        name = next(name for name in tensors if part in name)
        tensors[name] = tensors[name] * factor
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    return change


def rope_theta(config: dict[str, Any]) -> dict[str, Any]:
    return {**config["rope_parameters"], "rope_theta": 500.0}


PLANTED: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a weight by 2 %": ("llama", changed_weights("o_proj", 1.02)),
    "RoPE": ("llama", changed_config(rope_parameters=rope_theta)),
    "layer norm": ("gpt2", changed_config(layer_norm_epsilon=0.05)),
    "window": ("gemma", changed_config(sliding_window=4)),
}
MORE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "norm's epsilon": ("llama", changed_config(rms_norm_eps=0.05)),
    "norm": ("llama", changed_weights("input_layernorm", 1.1)),
    "scale of attention": ("gemma", changed_config(query_pre_attn_scalar=16)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "plant"),
    [
        *(pytest.param(*planted, id=name) for name, planted in PLANTED.items()),
        *(pytest.param(*planted, id=name, marks=pytest.mark.long) for name, planted in MORE.items()),
    ],
)
def test_planted_errors_are_found(folders: dict[str, Path], tmp_path: Path, miron, kind: str, plant: Any) -> None:
    """The engine agrees with itself on a wrong model too: only the oracle knows."""
    wrong = shutil.copytree(folders[kind], tmp_path / "wrong")
    plant(wrong)
    ran = verified(miron, wrong, oracle_of(miron, folders[kind]))
    assert ran.status == 1, ran.out
    assert ran.out.count("same") == 2
    assert ran.out.count("DIFFERS") == 1
    assert "differs by more than 0.001 nats a token from: transformers" in ran.err


@pytest.mark.slow
def test_another_bos_is_found_in_the_tokens(folders: dict[str, Path], tmp_path: Path, miron) -> None:
    wrong = shutil.copytree(folders["llama"], tmp_path / "wrong")
    tokenizer = json.loads((wrong / "tokenizer.json").read_text())
    tokenizer["post_processor"] = None
    (wrong / "tokenizer.json").write_text(json.dumps(tokenizer))
    ran = verified(miron, wrong, oracle_of(miron, folders["llama"]))
    assert ran.status == 2
    assert "the tokenizer or its first token (BOS) is another one" in ran.err.splitlines()[-1]


@pytest.mark.slow
def test_an_engine_that_is_wrong_is_found_without_an_oracle(
    folders: dict[str, Path], miron, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*arguments: Any) -> Any:
        scores, programs = score_plainly(*arguments)
        return [score._replace(logprob=score.logprob - 0.01) for score in scores], programs

    monkeypatch.setattr("miron_jax.cli.verification.score_plainly", wrong)
    ran = miron("verify", f"--model={folders['llama']}", "--compilation_cache=")
    assert ran.status == 1
    assert "from: one request a row" in ran.err


@pytest.mark.slow
def test_bad_files_are_one_sentence(
    folders: dict[str, Path], tmp_path: Path, miron, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = json.loads(oracle_of(miron, folders["llama"]).read_text())
    short = {**good, "texts": good["texts"][:3]}
    torn = {**good, "texts": [{**good["texts"][0], "logprobs": [-1.0]}]}
    for name, text, sentence in (
        ("text", "no JSON", "is no file of an oracle's numbers"),
        ("schema", json.dumps({**good, "schema": 9}), "schema 9, expected 1"),
        ("torn", json.dumps(torn), "more or fewer numbers than tokens"),
        ("short", json.dumps(short), "it holds 3 texts, expected"),
    ):
        (tmp_path / name).write_text(text)
        ran = verified(miron, folders["llama"], tmp_path / name)
        assert ran.status == 2, (name, ran.err)
        assert sentence in ran.err.splitlines()[-1]
    ran = verified(miron, folders["llama"], tmp_path / "nowhere")
    assert (ran.status, "nowhere: No such file" in ran.err) == (2, True), ran.err
    ran = miron("verify", "--model=demo", f"--write={tmp_path / 'x'}")
    assert (ran.status, "makes the oracle from a Hugging Face folder" in ran.err) == (2, True), ran.err
    ran = miron("verify", f"--model={folders['llama']}", f"--write={tmp_path / 'no' / 'x'}")
    assert (ran.status, "cannot be written: name a file in a folder that is there" in ran.err) == (2, True), ran.err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ran = miron("verify", f"--model={folders['llama']}", f"--write={tmp_path / 'x'}")
    assert (ran.status, "torch, which is not installed: pip install miron-jax[oracle]" in ran.err) == (2, True), ran.err
