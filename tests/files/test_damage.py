"""Damage that breaks no form: a checksum finds a flipped bit, or a warning names it, and results say what had none."""

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import numpy as safetensors

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import find_inputs, unverified
from miron_jax.evaluation.run import evaluate
from miron_jax.evaluation.run_result import finished_run
from miron_jax.model import demo
from miron_jax.model.checkpoints.checkpoints import find_model
from miron_jax.model.checkpoints.training_run import Checkpoint
from miron_jax.results.document import run_json
from miron_jax.runtime.progress import Lines
from miron_jax.tasks.miron import export, read_parquet
from tests.support.tiny_model import make_model, write_core_data


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
    for path, damage in [*((path, flip) for path in files), (files[3], lambda path, _: path.unlink())]:
        content = path.read_bytes()
        damage(path, rng)
        with pytest.raises(InputError, match="is not as it was shipped: install miron-jax again"):
            find_model(RunConfig(model="demo", tasks=("miron-gen",)))
        path.write_bytes(content)
    (tmp_path / "data" / demo.SUMS).unlink()
    demo.write_sums(tmp_path / "data")
    assert (tmp_path / "data" / demo.SUMS).read_bytes() == (whole / demo.SUMS).read_bytes()


def test_flipped_bits_of_our_own_parquet_give_no_other_rows(tmp_path: Path) -> None:
    """pyarrow checks the pages' checksums, which `export` writes; what is left are names that nothing reads."""
    path = export(tmp_path, 40)[0]
    whole, expected = path.read_bytes(), read_parquet(path, "miron/en")
    rng, refused = random.Random(1), 0
    for _ in range(150):
        flip(path, rng)
        try:
            assert read_parquet(path, "miron/en") == expected
        except InputError:
            refused += 1
        path.write_bytes(whole)
    assert refused > 110


@pytest.mark.slow
def test_results_tell_of_implausible_weights_by_leaf_and_of_inputs_without_a_checksum(tmp_path: Path) -> None:
    """Another bit is another fingerprint."""
    model, data, lines = make_model(tmp_path / "model"), write_core_data(tmp_path / "data"), list[str]()
    config = RunConfig(
        model=str(model), tasks=("core/copa",), data_dir=(("", str(data)),), allow_changed_data=True, limit=4
    )
    tensors = safetensors.load_file(model / "model.safetensors")

    def results(norm_weight: float) -> dict[str, Any]:
        tensors["model.layers.1.input_layernorm.weight"][3] = norm_weight
        safetensors.save_file(tensors, model / "model.safetensors")
        return run_json(finished_run(config, evaluate(config, find_inputs(config), Lines(lines.append))).result)

    sound = results(1.0)
    assert sound["checkpoint"]["implausible"] == []
    assert not any("go up to" in line for line in lines)
    assert sound["unverified"] == [
        f"weights: {model}", f"configuration and tokenizer: {model}", "core/copa: changed"
    ]  # fmt: skip
    odd = results(4.6e30)
    assert any("the weights layers/attn_norm/weight go up to 4.6e+30, expected at most 10000" in line for line in lines)
    assert odd["checkpoint"]["implausible"][0].startswith("the weights layers/attn_norm/weight go up to")
    assert odd["checkpoint"]["weights"] != sound["checkpoint"]["weights"]
    with pytest.raises(InputError, match="layers/attn_norm/weight hold NaN"):
        results(np.nan)


def test_all_that_the_demo_reads_has_a_checksum() -> None:
    config = RunConfig(model="demo", tasks=("miron-gen/en",), items_per_category=1)
    assert unverified(config, find_inputs(config), Checkpoint(60, demo.FOLDER)) == []
