"""Orbax trees of other names: MaxText's for Llama and Gemma, and the user's own by a file or a function."""

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from miron_jax.errors import InputError
from miron_jax.model.checkpoints.orbax_reader import load_orbax, load_tree
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder.decoder import leaf_name
from miron_jax.model.decoder.rope import rope_of
from tests.support.tolerances import ROUNDING
from tests.support.toy_decoders import (
    GEMMA,
    GEMMA2,
    GEMMA3,
    LLAMA,
    USERS_MAP,
    arrays_of,
    same_bits,
    seeded,
    with_layers,
)  # fmt: skip
from tests.support.training_runs import save_standard

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

LLAMA31_ROPE = {
    "rope_theta": 1e3, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
LLAMA31 = replace(LLAMA, layer_ropes=(rope_of("llama3", LLAMA31_ROPE, 6),) * 3)
MODELS = {"llama": LLAMA, "llama 3.1": LLAMA31, "gemma": GEMMA, "gemma 2": GEMMA2, "gemma 3": GEMMA3}
PADDED = 3  # rows that MaxText adds to a vocabulary


def to_maxtext(config: ModelConfig, scanned: bool = True) -> dict[str, Any]:
    """What MaxText would hold, after the rules of its own conversion (to_maxtext.py), written backwards."""
    weights = arrays_of(config)
    heads, size, layers = config.num_heads, config.head_dim, weights["layers"]
    llama31 = any(rope.kind == "llama3" for rope in config.layer_ropes)

    def neighbours(x: np.ndarray) -> np.ndarray:
        return np.stack(np.split(x, 2, axis=-1), axis=-1).reshape(x.shape) if llama31 else x

    def kernel(x: np.ndarray, count: int) -> np.ndarray:
        return x.reshape(*x.shape[:2], count, size)

    query = kernel(layers["attn"]["q"]["kernel_IO"], heads)
    query = query if config.family == "gemma3_text" else query * config.attn_scale
    kv = config.num_kv_heads
    attention = {
        "query": {"kernel": neighbours(query)},
        "key": {"kernel": neighbours(kernel(layers["attn"]["k"]["kernel_IO"], kv))},
        "value": {"kernel": kernel(layers["attn"]["v"]["kernel_IO"], kv)},
        "out": {"kernel": layers["attn"]["out"]["kernel_IO"].reshape(config.num_layers, heads, size, -1)},
    }
    if config.qk_norm:
        attention["query_norm"] = {"scale": layers["attn"]["q_norm"]["weight"] + config.norm_offset}
        attention["key_norm"] = {"scale": layers["attn"]["k_norm"]["weight"] + config.norm_offset}
    kernels = {"wi_0": "gate", "wi_1": "up", "wo": "down"}
    mlp = {name: {"kernel": layers["mlp"][ours]["kernel_IO"]} for name, ours in kernels.items()}
    if config.family == "llama":
        norms = {"pre_self_attention_layer_norm": "attn_norm", "post_self_attention_layer_norm": "mlp_norm"}
    else:
        norms = {"pre_self_attention_norm": "attn_norm", "pre_ffw_norm": "mlp_norm"}
        if config.post_norms:
            norms |= {"post_self_attention_norm": "attn_post_norm", "post_ffw_norm": "mlp_post_norm"}
    body = {"self_attention": attention, "mlp": mlp}
    body |= {name: {"scale": layers[ours]["weight"] + config.norm_offset} for name, ours in norms.items()}

    def take(tree: Any, which: Any) -> Any:
        return jax.tree.map(lambda x: x[which] if isinstance(which, int) else np.moveaxis(x[which], 0, 1), tree)

    decoder: dict[str, Any] = {"decoder_norm": {"scale": weights["final_norm"]["weight"] + config.norm_offset}}
    if config.family == "gemma2":
        halves = {"_local": slice(0, None, 2), "_global": slice(1, None, 2)}
        for half, which in halves.items():
            named = {f"{name}{half}": tree for name, tree in body.items()}
            if scanned:
                decoder.setdefault("layers", {}).update(take(named, which))
            else:
                for pair in range(config.num_layers // 2):
                    decoder.setdefault(f"layers_{pair}", {}).update(take(named, 2 * pair + which.start))
    elif config.family == "gemma3_text" and scanned:
        whole = config.num_layers - config.num_layers % 6
        decoder["layers"] = {f"layers_{i}": take(body, slice(i, whole, 6)) for i in range(6)}
        decoder["layers_remainder"] = {f"layers_{i}": take(body, whole + i) for i in range(config.num_layers % 6)}
    elif scanned:
        decoder["layers"] = take(body, slice(None))
    else:
        decoder |= {f"layers_{i}": take(body, i) for i in range(config.num_layers)}

    def padded(x: np.ndarray) -> np.ndarray:
        return np.concatenate([x, np.full((PADDED, x.shape[1]), 7.0, np.float32)])

    if not config.tied_head:
        decoder["logits_dense"] = {"kernel": padded(weights["head_VD"]).T}
    embedding = weights["embedding_VD"] * np.float32(config.embedding_scale)
    return {"token_embedder": {"embedding": padded(embedding)}, "decoder": decoder}


def save_items(folder: Path, tree: Any) -> Path:
    """As MaxText does: item `items` of a CheckpointManager's step, params twice over, an optimizer beside."""
    with ocp.CheckpointManager(folder, item_names=("items",)) as manager:
        optimizer = [{"mu": {"params": {"token_embedder": tree["token_embedder"]}}, "count": np.int32(3)}]
        state = {"params": {"params": tree}, "opt_state": optimizer, "step": 3}
        manager.save(3, args=ocp.args.Composite(items=ocp.args.PyTreeSave(state)))
        manager.wait_until_finished()
    return folder / "3"


def assert_weights(loaded: Any, expected: Any, **scaled: float) -> None:
    """Equal up to float32's rounding of a factor and its inverse; `scaled`: leaves that are so many times the expected."""
    assert jax.tree.structure(loaded) == jax.tree.structure(expected)
    for (path, leaf), x in zip(jax.tree.leaves_with_path(expected), jax.tree.leaves(loaded), strict=True):
        name = leaf_name(path)
        wanted = np.asarray(leaf) * np.float32(scaled.get(name, 1.0))
        np.testing.assert_allclose(x, wanted, rtol=ROUNDING, atol=ROUNDING, err_msg=name)


@pytest.mark.parametrize("scanned", [True, False], ids=["scanned", "layer by layer"])
@pytest.mark.parametrize("name", MODELS)
def test_maxtext_trees_hold_the_weights(name: str, scanned: bool, tmp_path: Path) -> None:
    config = MODELS[name]
    tree = to_maxtext(config, scanned)
    if not scanned:  # an NNX-era file has a level of `value`
        tree = jax.tree.map(lambda x: {"value": x}, tree)
    assert_weights(load_orbax(save_items(tmp_path / "run", tree), config, jnp.float32), seeded(config))


def test_maxtexts_embedding_of_gemma_is_divided_by_the_scale_that_the_run_uses(tmp_path: Path) -> None:
    """A run in bfloat16 rounds the scale first: 3.4641 to 3.4688."""
    tree = to_maxtext(GEMMA)
    loaded = load_orbax(save_items(tmp_path / "run", tree), GEMMA, jnp.bfloat16)
    expected = tree["token_embedder"]["embedding"][: GEMMA.vocab_size] / np.float32(3.46875)
    np.testing.assert_array_equal(loaded["embedding_VD"][...], expected.astype(jnp.bfloat16))


TIED = replace(LLAMA, tied_head=True)


@pytest.fixture(scope="module")
def maxtext_llama(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A Llama's folder, tied or not."""
    made = tmp_path_factory.mktemp("maxtext")
    return {name: save_items(made / name, to_maxtext(config)) for name, config in (("tied", TIED), ("untied", LLAMA))}


def test_a_tied_llama_of_maxtext_needs_its_config(maxtext_llama: dict[str, Path], tmp_path: Path) -> None:
    def loaded(content: str | None) -> Any:
        path = tmp_path / ("absent.yml" if content is None else "config.yml")
        if content is not None:
            path.write_text(content)
        return load_orbax(maxtext_llama["tied"], TIED, jnp.float32, str(path))

    fields = "base_emb_dim: 12\nlogits_via_embedding: true\nnormalize_embedding_logits: {}\n"
    for divided, scale in (("true", 12**-0.5), ("false", 1.0)):  # what divides the logits divides the norm before them
        assert_weights(loaded(fields.format(divided)), seeded(TIED), **{"final_norm/weight": scale})
    for content, words in (
        ("logits_via_embedding: true", "normalize_embedding_logits is None, expected True or False"),
        (fields.format("true").replace("g: true", "g: false"), "logits_via_embedding is False, expected True"),
        ("- 1", "logits_via_embedding is None, expected True"),
        ("a: [", "cannot be read .*expected MaxText's config file"),
        (None, "cannot be read .*expected MaxText's config file"),
    ):
        with pytest.raises(InputError, match=words):
            loaded(content)


def test_maxtext_trees_that_are_refused(maxtext_llama: dict[str, Path], tmp_path: Path) -> None:
    for config, words in (
        (replace(LLAMA, family="qwen2"), "MaxText tree of a qwen2 model is not read"),
        (TIED, "with a tied head"),
        (replace(LLAMA, qkv_bias=True), "asks for layers/attn/k/bias_O, .*which such a tree has no place for"),
        (
            with_layers(LLAMA, (None,) * 4),
            "expected 4 layers along axis 1; use .* param_scan_axis other than 1 is not read",
        ),
        (with_layers(LLAMA, (None,) * 2), "expected 2 layers along"),
        (replace(LLAMA, d_ff=15), "query/kernel|wi_0/kernel gives|wi_1/kernel gives|wo/kernel gives"),
    ):
        with pytest.raises(InputError, match=words):
            load_orbax(maxtext_llama["untied"], config, jnp.float32)
    tree = to_maxtext(LLAMA)
    mlp = tree["decoder"]["layers"]["mlp"]
    mlp["wi_2"] = {"kernel": np.ones((3, 2), np.float32)}
    with pytest.raises(InputError, match="has params/params/decoder/layers/mlp/wi_2/kernel besides"):
        load_orbax(save_items(tmp_path / "more", tree), LLAMA, jnp.float32)
    del mlp["wi_2"], mlp["wi_1"]
    words = r"has no array .*mlp/wi_1/kernel \(closest: .*wi_0/kernel.*\); use the config\.json .* fused kernels"
    with pytest.raises(InputError, match=words):
        load_orbax(save_items(tmp_path / "less", tree), LLAMA, jnp.float32)


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
