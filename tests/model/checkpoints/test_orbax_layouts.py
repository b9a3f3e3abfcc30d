"""Every layout that Orbax writes is read; what is damaged or half-written is one sentence."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from orbax.checkpoint import v1 as ocp1

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import evaluate_checkpoints
from miron_jax.model.checkpoints.orbax_reader import load_orbax, load_tree
from miron_jax.model.checkpoints.training_run import load_step, training_steps
from miron_jax.model.decoder.decoder import abstract
from miron_jax.runtime.devices import Tree
from tests.support import processes
from tests.support.toy_decoders import CONFIG, pure, same_bits, weights
from tests.support.training_runs import save_apart, save_standard

# After a damaged array Orbax closes its event loop before its last reads end: on a busy machine asyncio warns of it during
# the next test.
pytestmark = [
    pytest.mark.slow, pytest.mark.newest,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]  # fmt: skip


def refused(words: str, folder: Path, *given: Any, read: Callable[..., object] = load_orbax, **named: Any) -> None:
    with pytest.raises(InputError, match=words):
        read(folder, CONFIG, jnp.bfloat16, *given, **named)


def test_a_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    for name, dtype in (("7", jnp.bfloat16), ("8", jnp.float32)):
        save_standard(tmp_path / name, nnx.to_pure_dict(weights(dtype)))
        loaded = load_orbax(tmp_path / name, CONFIG, dtype)
        assert jax.tree.structure(loaded) == jax.tree.structure(abstract(CONFIG, dtype)[1])
        assert same_bits(loaded, weights(dtype))
    loaded = load_orbax(tmp_path / "7", CONFIG, jnp.float32)  # wider than it is stored: nothing is lost
    assert {x.dtype for x in jax.tree.leaves(loaded)} == {np.dtype(np.float32)}
    assert same_bits(jax.tree.map(lambda x, y: x.astype(y.dtype), loaded, weights()), weights())


def save_items(folder: Path, **items: Any) -> None:
    with ocp.CheckpointManager(folder.parent, item_names=tuple(items)) as manager:
        saved = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
        manager.save(int(folder.name), args=ocp.args.Composite(**saved))
        manager.wait_until_finished()


OPTIMIZER = {"mu": np.ones((3, 4), np.float32), "count": np.int32(7)}
WRITERS: dict[str, Callable[[Path], object]] = {
    "PyTreeCheckpointer": lambda folder: ocp.PyTreeCheckpointer().save(folder, pure()),
    "StandardCheckpointer": lambda folder: save_standard(folder, pure()),
    "CheckpointManager": lambda folder: save_items(folder, default=pure()),
    "a composite with the optimizer's state": lambda folder: save_items(folder, opt=OPTIMIZER, params=pure()),
    "params twice over, as Linen's variables in a train state": lambda folder: save_standard(
        folder, {"params": {"params": pure()}, "opt_state": OPTIMIZER}
    ),
    "an nnx.State as it is": lambda folder: save_standard(folder, weights()),
    "orbax v1": lambda folder: ocp1.save(str(folder), pure()),
    "an array a folder (no OCDBT)": lambda folder: save_apart(folder, pure()),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_layout_that_orbax_writes_is_read(tmp_path: Path, writer: str) -> None:
    WRITERS[writer](tmp_path / "7")
    assert training_steps(tmp_path) == [(7, tmp_path / "7")]
    assert same_bits(load_step(tmp_path / "7", CONFIG, jnp.bfloat16), weights())


def test_weights_that_stand_twice_are_refused_but_for_params(tmp_path: Path) -> None:
    half = jax.tree.map(lambda x: x * 0.5, pure())
    save_standard(tmp_path / "1", {"params": pure(), "ema": half})
    assert same_bits(load_orbax(tmp_path / "1", CONFIG, jnp.bfloat16), weights())
    save_standard(tmp_path / "2", {"slow": pure(), "ema": half})
    refused("the weights in ema/, slow/, expected them once, or once below params; say with", tmp_path / "2")


AVERAGED: dict[str, Callable[[Path, Any, Any], object]] = {
    "ema": lambda folder, fast, slow: save_standard(folder, {"params": fast, "ema": slow}),
    "train/ema/": lambda folder, fast, slow: save_standard(folder, {"train": {"params": fast, "ema": slow}}),
    "ema/params": lambda folder, fast, slow: save_items(folder, params=fast, ema={"params": slow}),
    "ema_params": lambda folder, fast, slow: save_items(folder, params=fast, ema_params=slow),
    "weights": lambda folder, fast, slow: save_items(folder, weights=slow, ema=fast),  # no item has a usual name
}


@pytest.mark.parametrize("key", AVERAGED)
def test_params_key_says_which_weights_are_scored(tmp_path: Path, key: str) -> None:
    """A key of the tree, a path in it, or an item beside the weights."""
    AVERAGED[key](tmp_path / "7", jax.tree.map(lambda x: x * 0.5, pure()), pure())
    assert training_steps(tmp_path, key) == [(7, tmp_path / "7")]
    assert same_bits(load_step(tmp_path / "7", CONFIG, jnp.bfloat16, params_key=key), weights())
    words = "--params_key=average: .*7 holds nothing below it, expected a path in its tree of"
    refused(words, tmp_path / "7", params_key="average")
    (tmp_path / "config.json").write_text("{}")
    refused("--params_key names the arrays of an Orbax checkpoint", tmp_path, read=load_step, params_key="ema")


def test_weights_with_nan_are_named(tmp_path: Path) -> None:
    tree = pure()
    tree["layers"]["mlp"]["up"]["kernel_IO"] = tree["layers"]["mlp"]["up"]["kernel_IO"].at[1, 2, 3].set(jnp.inf)
    save_standard(tmp_path / "7", tree)
    refused("7: the weights layers/mlp/up/kernel_IO hold NaN or infinity", tmp_path / "7", read=load_step)


ON_FOUR_DEVICES = """
import sys
from pathlib import Path
import jax, numpy as np
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from tests.support.toy_decoders import weights

assert len(jax.devices()) == 4
mesh = Mesh(np.asarray(jax.devices()).reshape(2, 2), ("data", "model"))
def spread(x):
    spec = P("data", "model") if x.ndim == 2 and not (x.shape[0] % 2 or x.shape[1] % 2) else P()
    return jax.device_put(x, NamedSharding(mesh, spec))
tree = jax.tree.map(spread, nnx.to_pure_dict(weights()))
with ocp.StandardCheckpointer() as saver:
    saver.save(Path(sys.argv[1]), {"params": tree, "opt_state": {"mu": tree}})
    saver.wait_until_finished()
"""


def test_a_checkpoint_of_another_topology(tmp_path: Path) -> None:
    """Saved from four devices, over two axes of a mesh, read on one."""
    processes.run("-c", ON_FOUR_DEVICES, str(tmp_path / "7"), devices=4, check=True)
    assert same_bits(load_step(tmp_path / "7", CONFIG, jnp.bfloat16), weights())


BROKEN: list[tuple[Callable[[Tree], object], str]] = [
    (
        lambda tree: tree["layers"]["attn"].pop("q"),
        r"lacks layers/attn/q/kernel_IO, expected the .*config\.json",
    ),
    (
        lambda tree: tree.update(head_VD=np.zeros((31, 12))),
        r"(?<!and )has head_VD besides, expected the \d+ arrays",
    ),
    (lambda tree: tree.update(params={"embedding_VD": tree.pop("embedding_VD")}), "has params/embedding_VD besides"),
    (
        lambda tree: tree.update(embedding_VD=np.zeros((30, 12))),
        r"embedding_VD has shape \[30, 12\], expected \[31, 12\]",
    ),
    (
        lambda tree: tree.update(embedding_VD=np.zeros((12, 31))),
        r"embedding_VD has shape \[12, 31\], expected \[31, 12\]",
    ),
    (
        lambda tree: tree.update(embedding_VD=np.zeros((2, 31, 12))),
        r"embedding_VD has shape \[2, 31, 12\], expected \[31, 12\]; use the config\.json",
    ),
    (
        lambda tree: tree.update(jax.tree.map(lambda x: np.stack([x] * 3), tree)),
        r"every array has a first axis of 3, as flax\.jax_utils\.replicate .*flax\.jax_utils\.unreplicate",
    ),
    (
        lambda tree: tree.update(embedding_VD=np.zeros((31, 12), np.int8)),
        "embedding_VD holds int8, expected one of float64, float32, float16, bfloat16; save the weights unquantized",
    ),
]


def test_trees_of_another_form_are_refused(tmp_path: Path) -> None:
    for i, (change, sentence) in enumerate(BROKEN):
        tree = pure()
        change(tree)
        save_standard(tmp_path / f"{i}", tree)
        refused(rf"^{re.escape(str(tmp_path / f'{i}'))}: .*{sentence}", tmp_path / f"{i}")


def drop_arrays(folder: Path) -> None:
    for name in ("d", "ocdbt.process_0"):
        shutil.rmtree(folder / name)


def cut_arrays(folder: Path) -> None:
    largest = max((path for path in folder.rglob("d/*") if path.is_file()), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-100])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "tree file": lambda folder: (folder / "_METADATA").write_text("{"),
    "manifest": lambda folder: (folder / "manifest.ocdbt").unlink(),
    "the end of an array": cut_arrays,
    "all arrays": drop_arrays,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, damage: str) -> None:
    save_standard(tmp_path / "7", pure())
    DAMAGES[damage](tmp_path / "7")
    refused(r"/7: Orbax cannot read it \(.*expected a whole checkpoint; copy or save it", tmp_path / "7")


def test_lost_files_are_noticed_before_all_arrays_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Orbax opens them at once, and each that failed once printed a traceback beside the sentence."""
    opened: list[Any] = []
    monkeypatch.setattr(ocp.PyTreeCheckpointHandler, "metadata", lambda _, folder: opened.append(folder))
    for damage in ("manifest", "all arrays"):
        save_standard(tmp_path / damage, pure())
        DAMAGES[damage](tmp_path / damage)
        refused(r"Orbax cannot read it \(.*expected a whole checkpoint; copy or save it", tmp_path / damage)
    assert opened == []


def test_arrays_that_are_no_floats_are_read_where_the_model_asks_for_them(tmp_path: Path) -> None:
    """Such as positions or a mask that stand among an nnx model's variables."""
    tree = {"x": np.ones((3, 2), np.float32), "places": np.arange(7, dtype=np.int32), "seen": np.eye(3, dtype=bool)}
    save_standard(tmp_path / "7", tree)
    jax.tree.map(np.testing.assert_array_equal, load_tree(tmp_path / "7", abstract_of(tree)), tree)
    mapped = tmp_path / "map.json"
    mapped.write_text(json.dumps({name: name for name in tree}))
    jax.tree.map(np.testing.assert_array_equal, load_tree(tmp_path / "7", abstract_of(tree), str(mapped)), tree)
    tree["places"] = tree["places"].astype(np.int16)
    with pytest.raises(InputError, match=r"places holds int32, expected the int16 of the model's params; give the"):
        load_tree(tmp_path / "7", abstract_of(tree))


def abstract_of(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def test_no_folder_and_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "weights.pkl").write_bytes(b"never opened")
    refused("/8: no such folder, expected an Orbax checkpoint; check the path", tmp_path / "8")
    refused(r"/7: holds weights\.pkl and no _METADATA, expected a finished Orbax", tmp_path / "7")


def test_a_checkpoint_that_is_still_being_written_is_none(tmp_path: Path) -> None:
    save_standard(tmp_path / "7", pure())
    unfinished = (tmp_path / "7").rename(tmp_path / "7.orbax-checkpoint-tmp-123")
    assert training_steps(tmp_path) == []
    config = RunConfig(str(unfinished), ("miron-gen/en",))
    with pytest.raises(InputError, match=r"holds Orbax checkpoints and no config\.json"):
        list(evaluate_checkpoints(config, find_inputs(config)))
    refused("tmp-123: is still being written, or was given up", unfinished)


def test_a_damaged_array_header_is_one_sentence(tmp_path: Path) -> None:
    """Chunks of 2**32 once made tensorstore abort the whole process."""
    save_apart(tmp_path / "7", pure())
    whole = {path: path.read_text() for path in (tmp_path / "7").glob("*/.zarray")}
    damages: list[tuple[str, Any]] = [
        *(("chunks", chunks) for chunks in ([1 << 32, 1 << 32], [10**30], [0, 0], "x", None)),
        ("shape", [1 << 62]), ("shape", [[1]]), ("dtype", "<f9"), ("zarr_format", 99),
    ]  # fmt: skip
    for field, value in damages:
        for path, text in whole.items():
            path.write_text(json.dumps(json.loads(text) | {field: value}))
        refused(r"save (it|the checkpoint) again|config\.json", tmp_path / "7")


def test_damaged_metadata_is_one_sentence(tmp_path: Path) -> None:
    """Values of Orbax's own records replaced by others."""
    save_apart(tmp_path / "7", pure())
    path, rng = tmp_path / "7" / "_METADATA", random.Random(3)
    whole = path.read_text()
    others: list[Any] = [None, True, -1, 10**30, "x", [], {}, [[]], {"a": 1}]

    def damaged(value: Any, depth: int = 0) -> Any:
        if depth and rng.random() < 0.05:
            return rng.choice(others)
        if isinstance(value, dict):
            return {key: damaged(below, depth + 1) for key, below in value.items()}
        return [damaged(below, depth + 1) for below in value] if isinstance(value, list) else value

    refused = 0
    for _ in range(25):
        path.write_text(json.dumps(damaged(json.loads(whole))))
        try:
            load_orbax(tmp_path / "7", CONFIG, jnp.bfloat16)
        except InputError:
            refused += 1
    assert refused > 6
