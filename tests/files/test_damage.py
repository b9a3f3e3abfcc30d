"""Damage that breaks no form: a flipped bit is found by a checksum, or told of, and results say what had none."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import numpy as safetensors

from miron_jax import demo
from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.inputs import find_inputs
from miron_jax.model.checkpoints import find_model
from miron_jax.report.results import results_of
from miron_jax.run import evaluate
from miron_jax.runtime.progress import Lines
from miron_jax.tasks.miron import export, read_parquet
from tests.support.tiny_model import make_model, write_core_data

pytestmark = pytest.mark.slow


def flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    bit = rng.randrange(8 * len(content))
    content[bit // 8] ^= 1 << (bit % 8)
    path.write_bytes(content)


def test_a_flipped_bit_of_the_demo_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = demo.FOLDER
    monkeypatch.setattr(demo, "FOLDER", tmp_path / "data")
    shutil.copytree(whole, tmp_path / "data")
    find_model(RunConfig(model="demo", tasks=("miron-gen",)))
    rng = random.Random(0)
    files = sorted(path for path in (tmp_path / "data").rglob("*") if path.is_file() and path.name != demo.SUMS)
    for path in files:
        content = path.read_bytes()
        flip(path, rng)
        with pytest.raises(InputError, match="is not as it was shipped: install miron-jax again"):
            find_model(RunConfig(model="demo", tasks=("miron-gen",)))
        path.write_bytes(content)
    files[3].unlink()
    with pytest.raises(InputError, match="is not as it was shipped"):
        find_model(RunConfig(model="demo", tasks=("miron-gen",)))


def test_every_file_of_the_demo_has_its_hash(tmp_path: Path) -> None:
    shutil.copytree(demo.FOLDER, tmp_path / "data")
    (tmp_path / "data" / demo.SUMS).unlink()
    demo.write_sums(tmp_path / "data")
    assert (tmp_path / "data" / demo.SUMS).read_bytes() == (demo.FOLDER / demo.SUMS).read_bytes()


def test_flipped_bits_of_our_own_parquet_give_no_other_rows(tmp_path: Path) -> None:
    """pyarrow checks the pages' checksums, which `export` writes; what is left are names that nothing reads."""
    path = export(tmp_path, 40)[0]
    whole, expected = path.read_bytes(), read_parquet(path, "miron/en")
    rng, refused = random.Random(1), 0
    for _ in range(400):
        flip(path, rng)
        try:
            assert read_parquet(path, "miron/en") == expected
        except InputError:
            refused += 1
        path.write_bytes(whole)
    assert refused > 300


def results(model: Path, data: Path, told: list[str], **more: Any) -> dict[str, Any]:
    config = RunConfig(
        model=str(model), tasks=("core/copa",), data_dir=(("", str(data)),), allow_changed_data=True, limit=4, **more
    )
    outcome = evaluate(config, find_inputs(config), Lines(told.append))
    return results_of(config, outcome, 1.0)


def test_implausible_weights_are_told_by_leaf_and_another_bit_is_another_fingerprint(tmp_path: Path) -> None:
    model, data, told = make_model(tmp_path / "model"), write_core_data(tmp_path / "data"), list[str]()
    sound = results(model, data, told)
    assert sound["checkpoint"]["implausible"] == []
    assert not any("go up to" in line for line in told)
    tensors = safetensors.load_file(model / "model.safetensors")
    tensors["model.layers.1.input_layernorm.weight"][3] = 4.6e30
    safetensors.save_file(tensors, model / "model.safetensors")
    odd = results(model, data, told)
    assert any("the weights layers/attn_norm/weight go up to 4.6e+30, expected at most 10000" in line for line in told)
    assert odd["checkpoint"]["implausible"][0].startswith("the weights layers/attn_norm/weight go up to")
    assert odd["checkpoint"]["weights"] != sound["checkpoint"]["weights"]
    tensors["model.layers.1.input_layernorm.weight"][3] = np.nan
    safetensors.save_file(tensors, model / "model.safetensors")
    with pytest.raises(InputError, match="layers/attn_norm/weight hold NaN"):
        results(model, data, told)


def test_results_say_which_inputs_had_no_checksum(tmp_path: Path) -> None:
    model, data = make_model(tmp_path / "model"), write_core_data(tmp_path / "data")
    found = results(model, data, [])["unverified"]
    assert found == [f"weights: {model}", f"configuration and tokenizer: {model}", "core/copa: changed"]
    config = RunConfig(model="demo", tasks=("miron-gen/en",), items_per_category=1, steps="60")
    outcome = evaluate(config, find_inputs(config))
    assert json.loads(json.dumps(results_of(config, outcome, 1.0)))["unverified"] == []
