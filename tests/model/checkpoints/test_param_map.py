"""Orbax trees of the user's own names, by a file or a function."""

import importlib
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.errors import InputError
from miron_jax.model.checkpoints.orbax_reader import load_orbax, load_tree
from tests.support.toy_decoders import LLAMA, USERS_MAP, arrays_of, same_bits, seeded
from tests.support.training_runs import save_standard

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


def named_by_a_user() -> dict[str, Any]:
    """One array a layer, heads apart, the head and one kernel turned; a list of blocks; an optimizer beside."""
    weights = arrays_of(LLAMA)
    layers = weights["layers"]
    blocks = [
        {
            "attn": {name: layers["attn"][name]["kernel_IO"][i].reshape(12, -1, 6) for name in ("q", "k", "v")},
            "proj": layers["attn"]["out"]["kernel_IO"][i].T,
            "norms": [layers["attn_norm"]["weight"][i], layers["mlp_norm"]["weight"][i]],
        }
        for i in range(LLAMA.num_layers)
    ]
    mlp = {name: np.moveaxis(layers["mlp"][name]["kernel_IO"], 0, 2) for name in ("gate", "up", "down")}
    body = {"wte": weights["embedding_VD"], "ln": weights["final_norm"]["weight"], "out": weights["head_VD"].T}
    return {"model": {**body, "blocks": blocks, "mlp": mlp}, "adam": {"mu": {"wte": weights["embedding_VD"]}}}


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "users"
    save_standard(folder, named_by_a_user())
    return folder


def write_map(folder: Path, **changes: Any) -> str:
    entries = {leaf: entry for leaf, entry in (USERS_MAP | changes).items() if entry is not None}
    (folder / "map.json").write_text(json.dumps(entries))
    return str(folder / "map.json")


def test_a_users_tree_by_file_and_by_function(users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = {leaf: json.loads(json.dumps(entry).replace("model/", "")) for leaf, entry in USERS_MAP.items()}
    (tmp_path / "below.json").write_text(json.dumps(below))  # names below the weights' own root
    (tmp_path / "users_map.py").write_text(
        "from tests.support.toy_decoders import USERS_MAP\n"
        "def by_hand(shapes):\n"
        "    assert shapes['model/out'] == (12, 29), shapes\n"
        "    return USERS_MAP | {'head_VD': {'name': 'model/out', 'change': lambda x: x.T}}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    for param_map in (write_map(tmp_path), str(tmp_path / "below.json"), "users_map:by_hand"):
        assert same_bits(load_orbax(users, LLAMA, jnp.float32, param_map), seeded(LLAMA)), param_map


def test_a_users_own_model_by_file(users: Path, tmp_path: Path) -> None:
    """Of a model that has no layers of ours, every leaf is one array."""
    tree = {"layers": {"0": jax.ShapeDtypeStruct((29, 12), jnp.float32)}, "n": jax.ShapeDtypeStruct((12,), jnp.float32)}
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"layers/0": "adam/mu/wte", "n": "model/ln"}))
    with pytest.raises(InputError, match=r"has model/blocks/0/attn/k, .*besides"):
        load_tree(users, tree, str(path))
    path.write_text(json.dumps({"layers/0": "adam/mu/wte"}))
    loaded = load_tree(users, {"layers": tree["layers"]}, str(path))
    np.testing.assert_array_equal(loaded["layers"]["0"], arrays_of(LLAMA)["embedding_VD"])


NO_ENTRY = "expected a name, or an object"
UP = "layers/mlp/up/kernel_IO"


def test_maps_that_do_not_fit(users: Path, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"head_VD": None}, "lacks head_VD, expected an entry for each of embedding_VD, final_norm/weight"),
        ({"head": "x"}, "names head, which the model does not have"),
        ({"he\nad": "x"}, "names he ad, which the model does not have"),  # a sentence is one line
        ({"final_norm/weight": "model/lm"}, r"has no array model/lm \(closest: model/ln"),
        ({"final_norm/weight": 3}, "final_norm/weight is 3, expected a name, or an object of name, layer_axis"),
        ({"final_norm/weight": {"nam": "x"}}, NO_ENTRY),
        ({"head_VD": {"name": "model/out", "transposed": "false"}}, NO_ENTRY),
        ({"head_VD": {"name": "model/out", "change": "x"}}, NO_ENTRY),
        ({UP: {"name": "model/mlp/up", "layer_axis": "1"}}, NO_ENTRY),
        ({UP: {"name": "model/mlp/up", "layer_axis": -1}}, NO_ENTRY),
        ({UP: {"name": "model/mlp/up", "layer_axis": 3}}, "expected 3 layers along axis 3"),
        ({"final_norm/weight": "model/wte"}, "gives|besides"),
        ({"head_VD": "model/out"}, r"model/out gives \[12, 29\] for head_VD, expected \[29, 12\]"),
        ({"layers/attn/q/kernel_IO": {"name": "model/blocks/{}/attn/q", "transposed": True}}, "expected two axes"),
    ]
    for changes, words in cases:
        with pytest.raises(InputError, match=words):
            load_orbax(users, LLAMA, jnp.float32, write_map(tmp_path, **changes))
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    for given, words in (
        (str(tmp_path / "nowhere.json"), "no such file"),
        (str(tmp_path / "bad.json"), "not JSON"),
        (str(tmp_path / "list.json"), "holds a list"),
        ("nowhere:map", "--param_map=nowhere:map: no module nowhere"),
    ):
        with pytest.raises(InputError, match=words):
            load_orbax(users, LLAMA, jnp.float32, given)
