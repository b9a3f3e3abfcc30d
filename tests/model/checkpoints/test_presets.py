"""Trees of other libraries, by --param_map=NAME: made here by the libraries' own rules, and read back exactly."""

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
from tests.support.toy_decoders import GEMMA, GEMMA2, GEMMA3, LLAMA, arrays_of, same_bits, seeded, with_layers
from tests.support.training_runs import save_standard

pytestmark = pytest.mark.slow

GEMMA1 = replace(GEMMA, num_kv_heads=GEMMA.num_heads)
QWEN2 = replace(LLAMA, family="qwen2", qkv_bias=True)
QWEN3 = replace(LLAMA, family="qwen3", qk_norm="head")


def padded(table_VD: np.ndarray) -> np.ndarray:
    """These libraries pad a vocabulary to sizes of their own."""
    return np.concatenate([table_VD, np.ones((8, table_VD.shape[1]), table_VD.dtype)])


def einsums(config: ModelConfig, attn: Any, i: int) -> dict[str, Any]:
    """Gemma's attention: kernels (heads, width, head); keys and values in one array, or all three."""
    q, k, v = (attn[name]["kernel_IO"][i] for name in ("q", "k", "v"))
    apart = [x.reshape(config.d_model, -1, config.head_dim).transpose(1, 0, 2) for x in (q, k, v)]
    out = attn["out"]["kernel_IO"][i].reshape(config.num_heads, config.head_dim, config.d_model)
    if config.num_heads == config.num_kv_heads:
        return {"qkv_einsum": {"w": np.stack(apart)}, "attn_vec_einsum": {"w": out}}
    return {"q_einsum": {"w": apart[0]}, "kv_einsum": {"w": np.stack(apart[1:])}, "attn_vec_einsum": {"w": out}}


def gemma_layer(config: ModelConfig, layers: Any, i: int, post_norm: str = "post_attention_norm") -> dict[str, Any]:
    """All but the MLP."""
    layer: dict[str, Any] = {
        "attn": einsums(config, layers["attn"], i),
        "pre_attention_norm": {"scale": layers["attn_norm"]["weight"][i]},
        "pre_ffw_norm": {"scale": layers["mlp_norm"]["weight"][i]},
    }
    if config.post_norms:
        layer[post_norm] = {"scale": layers["attn_post_norm"]["weight"][i]}
        layer["post_ffw_norm"] = {"scale": layers["mlp_post_norm"]["weight"][i]}
    if config.qk_norm:
        layer["attn"]["_query_norm"] = {"scale": layers["attn"]["q_norm"]["weight"][i]}
        layer["attn"]["_key_norm"] = {"scale": layers["attn"]["k_norm"]["weight"][i]}
    return layer


def gemma_tree(config: ModelConfig, weights: Any, wide_first: bool) -> dict[str, Any]:
    """gemma/gm/nn: one array for gate and up."""
    tree: dict[str, Any] = {
        "embedder": {"input_embedding": padded(weights["embedding_VD"]), "mm_input_projection": {"w": np.ones((3, 4))}},
        "vision_encoder": {"siglip": np.ones((3, 4))},
        "final_norm": {"scale": weights["final_norm"]["weight"]},
    }
    for i in range(config.num_layers):
        mlp = {name: weights["layers"]["mlp"][name]["kernel_IO"][i] for name in ("gate", "up", "down")}
        gating = np.stack([mlp["gate"], mlp["up"]])
        gating = gating.transpose(0, 2, 1) if wide_first else gating
        layer = gemma_layer(config, weights["layers"], i) | {"mlp": {"gating_einsum": gating, "linear": mlp["down"]}}
        tree[f"layer_{i}"] = layer
    return tree


def flat(tree: dict[str, Any]) -> dict[str, Any]:
    """The layout of the published checkpoints: one level of modules, whose names hold slashes."""
    modules: dict[str, Any] = {}

    def visit(path: str, node: Any) -> None:
        for name, value in node.items():
            if isinstance(value, dict):
                visit(f"{path}/{name}", value)
            else:
                modules.setdefault(path, {})[name] = value

    visit("transformer", tree)
    return modules


def tunix_tree(config: ModelConfig, weights: Any) -> dict[str, Any]:
    """tunix/models: layers in a list, kernels of attention with heads of their own axis."""
    layers, blocks = weights["layers"], []
    for i in range(config.num_layers):
        mlp = {f"{name}_proj": {"kernel": layers["mlp"][name]["kernel_IO"][i]} for name in ("gate", "up", "down")}
        if config.family.startswith("gemma"):
            post_norm = "post_attn_norm" if config.family == "gemma2" else "post_attention_norm"
            blocks.append(gemma_layer(config, layers, i, post_norm) | {"mlp": mlp})
            continue
        stacked = layers["attn"]
        attn: dict[str, Any] = {
            f"{name}_proj": {"w": stacked[name]["kernel_IO"][i].reshape(config.d_model, -1, config.head_dim)}
            for name in ("q", "k", "v")
        }
        attn["o_proj"] = {"w": stacked["out"]["kernel_IO"][i].reshape(-1, config.head_dim, config.d_model)}
        if config.qkv_bias:
            attn |= {f"{name}_bias": stacked[name]["bias_O"][i] for name in ("q", "k", "v")}
        if config.qk_norm:
            attn |= {name: {"w": stacked[name]["weight"][i]} for name in ("q_norm", "k_norm")}
        norms = {"input_layernorm": "attn_norm", "post_attention_layernorm": "mlp_norm"}
        blocks.append(
            {"attn": attn, "mlp": mlp, **{name: {"w": layers[leaf]["weight"][i]} for name, leaf in norms.items()}}
        )
    norm = "scale" if config.family.startswith("gemma") else "w"
    tree = {
        "embedder": {"input_embedding": padded(weights["embedding_VD"])},
        "layers": blocks,
        "final_norm": {norm: weights["final_norm"]["weight"]},
    }
    return tree if config.tied_head else tree | {"lm_head": {"w": padded(weights["head_VD"]).T}}


def saved(folder: Path, tree: Any) -> Path:
    save_standard(folder / "7", tree)
    return folder / "7"


@pytest.mark.parametrize(
    ("config", "layout"),
    [
        (GEMMA1, "nested, (2, D, F)"),
        (GEMMA2, "nested, (2, F, D)"),
        (GEMMA3, "flat, (2, F, D)"),
        (GEMMA2, "below params, (2, D, F)"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.family,
)
def test_gemmas_own_trees(config: ModelConfig, layout: str, tmp_path: Path) -> None:
    tree = gemma_tree(config, arrays_of(config), wide_first="F, D" in layout)
    tree = flat(tree) if "flat" in layout else {"params": tree, "step": np.int32(3)} if "params" in layout else tree
    assert same_bits(load_orbax(saved(tmp_path, tree), config, jnp.float32, "gemma"), seeded(config))


@pytest.mark.parametrize("config", [LLAMA, QWEN2, QWEN3, GEMMA2, GEMMA3], ids=lambda config: config.family)
def test_tunixs_trees(config: ModelConfig, tmp_path: Path) -> None:
    """As its CheckpointManager saves them, beside the optimizer's state."""
    tree = tunix_tree(config, arrays_of(config))
    with ocp.CheckpointManager(tmp_path, item_names=("model_params", "optimizer_state")) as manager:
        items = {"model_params": tree, "optimizer_state": {"mu": tree["final_norm"]}}
        manager.save(7, args=ocp.args.Composite(**{name: ocp.args.PyTreeSave(item) for name, item in items.items()}))
        manager.wait_until_finished()
    assert same_bits(load_orbax(tmp_path / "7", config, jnp.float32, "tunix"), seeded(config))


@pytest.mark.parametrize("layout", ["nested", "flat", "tunix"])
def test_layers_that_config_json_lacks_are_not_left_out(layout: str, tmp_path: Path) -> None:
    weights = arrays_of(GEMMA2)
    tree = tunix_tree(GEMMA2, weights) if layout == "tunix" else gemma_tree(GEMMA2, weights, wide_first=True)
    folder = saved(tmp_path, flat(tree) if layout == "flat" else tree)
    with pytest.raises(InputError, match=r"has .*layers?[_/]2/.* besides, which nothing is mapped to"):
        load_orbax(folder, with_layers(GEMMA2, (3, None)), jnp.float32, "tunix" if layout == "tunix" else "gemma")


def test_trees_that_do_not_fit_are_one_sentence(tmp_path: Path) -> None:
    folder = saved(tmp_path, tunix_tree(LLAMA, arrays_of(LLAMA)))
    for config, param_map, words in (
        (LLAMA, "gemma", "--param_map=gemma: such a tree has no place for head_VD, which a llama model"),
        (QWEN3, "tunix", "has no array layers/0/attn/k_norm/w"),
        (LLAMA, "tunics", r"no package\.module:function, and none of gemma, tunix; check the path"),
    ):
        with pytest.raises(InputError, match=words):
            load_orbax(folder, config, jnp.float32, param_map)
    with pytest.raises(InputError, match="--param_map=tunix: names a library's tree of a known architecture"):
        load_tree(folder, {"w": jax.ShapeDtypeStruct((2,), jnp.float32)}, "tunix")
