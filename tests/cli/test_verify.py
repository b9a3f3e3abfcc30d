"""`miron-jax verify`: a model that scores as transformers does, and planted errors, each of which is found."""

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.cli import verification
from miron_jax.cli.verification import SCHEMA, Verified, _cut, _difference, _differences, texts_for, token_ids_of
from miron_jax.engine.batches import Batch, Shape, assemble
from miron_jax.engine.model import load_model
from miron_jax.engine.plain import PROGRAMS, score_plainly
from miron_jax.engine.records import Score
from miron_jax.model.config import RopeClasses
from miron_jax.model.decoder.decoder import Decoder
from miron_jax.planning.records import Plan
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.needs import needs
from tests.support.tiny_model import make_model
from tests.support.torch_folders import FOLDERS, torch_folder


def test_nan_differs_from_every_number() -> None:
    a = np.asarray([-1.0, -2.0], np.float32)
    assert list(_differences(a, np.asarray([-1.5, -2.0]))) == [0.5, 0]
    for other in ([np.nan, -2.0], [np.nan, np.nan], [-np.inf, -2.0]):
        assert _differences(a, np.asarray(other))[0] == np.inf


def test_each_token_has_its_own_bound() -> None:
    """A peaked position, whose logits are large, widens no other one's bound."""
    engine = [Score(np.asarray([-1.0, -2.0], np.float32), np.zeros(2, np.int32))]
    bounds = [np.asarray([0.5, 1e-3])]
    for other, exceeds in (([-1.4, -2.0], False), ([-1.0, -2.4], True), ([np.nan, -2.0], True)):
        way = _difference("way", engine, [(np.asarray(other), np.ones(2, bool))], bounds)
        assert way.exceeds == exceeds
        assert Verified(2, 0.5, [way]).wrong == [way] * exceeds


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


def shifted(position_BT: Any) -> Any:
    """Positions above 100 are one too high."""
    return position_BT + (position_BT > 100).astype(position_BT.dtype)


def shift_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(plan: Plan, rows: list[int], shape: Shape) -> Batch:
        batch = assemble(plan, rows, shape)
        position_BT = shape.unpack(batch.packed[0]).position_BT
        position_BT[:] = shifted(position_BT)
        return batch

    monkeypatch.setattr("miron_jax.engine.forward.assemble", faulty)


def shift_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain rows are as wrong as the engine's, so only an oracle knows."""
    real = Decoder.__call__

    def faulty(self: Decoder, token_ids_BT: Any, position_BT: Any, *more: Any) -> Any:
        return real(self, token_ids_BT, shifted(position_BT), *more)

    monkeypatch.setattr(Decoder, "__call__", faulty)


def leak_in_long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Siblings see each other in rows that are longer than the engine's own rows of these texts."""

    def faulty(plan: Plan, rows: list[int], shape: Shape) -> Batch:
        batch = assemble(plan, rows, shape)
        arrays = shape.unpack(batch.packed[0])
        end_BT = arrays.subtree_end_BT
        for b in range(len(rows) if shape.length > 300 else 0):
            starts = [*np.flatnonzero(arrays.position_BT[b] == 0).tolist(), shape.length]
            for start, stop in pairwise(starts):
                end_BT[b, start:stop] = end_BT[b, start:stop].max()
        return batch

    monkeypatch.setattr("miron_jax.engine.forward.assemble", faulty)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model of 256 positions, and its plain numbers as an oracle's."""
    folder = make_model(tmp_path_factory.mktemp("tiny") / "model")
    model, tokenizer = load_model(folder, "float32"), load_tokenizer(str(folder))
    ids = token_ids_of(tokenizer, texts_for(256, 256))
    assert max(map(len, ids)) == 256
    scores, _ = score_plainly(model, [np.asarray(each, np.int32) for each in ids], [1] * len(ids))
    texts = [
        {
            "token_ids": each, "logprobs": score.logprob.tolist(), "greedy": (score.margin > 0).tolist(),
            "next_ids": [], "next_logprobs": [],
        }
        for each, score in zip(ids, scores, strict=True)
    ]  # fmt: skip
    path = folder.parent / "oracle.json"
    path.write_text(json.dumps({"schema": SCHEMA, "source": "an oracle", "texts": texts}))
    return folder, path


ONE_A_ROW, OTHER_ROWS, ORACLE = "one request a row", "other row lengths, cuts and row mates", "an oracle"
WRONG: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], tuple[str, ...]]] = {
    "nothing": (lambda monkeypatch: None, ()),
    "positions above 100 of the engine's rows": (shift_rows, (ONE_A_ROW, ORACLE)),
    "positions above 100 of the model": (shift_model, (ORACLE,)),
    "masks of rows of more than 300 slots": (leak_in_long_rows, (OTHER_ROWS,)),
}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
def test_faults_are_named_by_the_ways_that_show_them(
    tiny: tuple[Path, Path], miron, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    folder, oracle = tiny
    plant, ways = WRONG[wrong]
    PROGRAMS.clear()
    with monkeypatch.context() as planted:
        plant(planted)
        ran = verified(miron, folder, oracle)
    PROGRAMS.clear()
    assert ran.status == bool(ways), ran.err
    last = (ran.err.splitlines() or [""])[-1]
    assert [way for way in (ONE_A_ROW, OTHER_ROWS, ORACLE) if way in last] == list(ways), ran.out


@pytest.mark.slow
def test_other_rows_have_other_lengths(tiny: tuple[Path, Path], miron, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: dict[str, set[int]] = {"engine": set(), "other": set()}
    phase = ["engine"]
    in_other_rows = verification._in_other_rows

    def recording(plan: Plan, rows: list[int], shape: Shape) -> Batch:
        lengths[phase[-1]].add(shape.length)
        return assemble(plan, rows, shape)

    def other(*arguments: Any) -> Any:
        phase.append("other")
        return in_other_rows(*arguments)

    monkeypatch.setattr("miron_jax.engine.forward.assemble", recording)
    monkeypatch.setattr(verification, "_in_other_rows", other)
    assert verified(miron, *tiny).status == 0
    assert all(lengths.values())
    assert lengths["engine"].isdisjoint(lengths["other"]), lengths


def test_long_texts_are_as_long_as_the_model_takes(tiny: tuple[Path, Path]) -> None:
    tokenizer = load_tokenizer(str(tiny[0]))
    for trained, most, lengths in (
        (None, 1 << 31, [1100]),
        (256, 256, [256]),
        (2048, 2048, [1100, 2048]),
        (131072, 131072, [1100, 4200]),
        (None, 512, [512]),
    ):
        ids = token_ids_of(tokenizer, texts_for(trained, most))
        assert [len(each) for each in ids[-len(lengths) :]] == lengths, (trained, most)
        assert max(map(len, ids)) == lengths[-1]


def test_texts_are_cut_where_rope_allows_it() -> None:
    ids = list(range(10))
    assert _cut(ids, None) == [(ids[:5], 1), (ids, 5)]
    assert _cut(ids, RopeClasses(4, True)) == [(ids, 1)]
    assert _cut(ids[:3], None) == [(ids[:3], 1)]


@pytest.mark.slow
def test_bad_files_are_one_sentence(
    folders: dict[str, Path], tmp_path: Path, miron, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = json.loads(oracle_of(miron, folders["llama"]).read_text())
    short = {**good, "texts": good["texts"][:3]}
    torn = {**good, "texts": [{**good["texts"][0], "logprobs": [-1.0]}]}
    for name, text, sentence in (
        ("text", "no JSON", "is no file of an oracle's numbers"),
        ("schema", json.dumps({**good, "schema": 9}), "schema 9, expected 2"),
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
    assert (ran.status, 'torch, which is not installed: pip install "miron-jax[oracle]"' in ran.err) == (2, True), (
        ran.err
    )
