"""Trees with MaxText's names, and what MaxText computes from one: a slow twin in NumPy, by the rules of its own code."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from miron_jax.model.config import ModelConfig, Rope
from tests.support.toy_decoders import arrays_of

PADDED = 3  # rows that MaxText adds to a vocabulary


def to_maxtext(
    config: ModelConfig, scanned: bool = True, interleaved: bool = False, axis: int = 1, weights: Any = None
) -> dict[str, Any]:
    """What MaxText would hold, after the rules of its own conversion (to_maxtext.py), written backwards."""
    weights = arrays_of(config) if weights is None else weights
    heads, size, layers = config.num_heads, config.head_dim, weights["layers"]

    def neighbours(x: np.ndarray) -> np.ndarray:
        return np.stack(np.split(x, 2, axis=-1), axis=-1).reshape(x.shape) if interleaved else x

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
        attention["query_norm"] = {"scale": neighbours(layers["attn"]["q_norm"]["weight"] + config.norm_offset)}
        attention["key_norm"] = {"scale": neighbours(layers["attn"]["k_norm"]["weight"] + config.norm_offset)}
    kernels = {"wi_0": "gate", "wi_1": "up", "wo": "down"}
    mlp = {name: {"kernel": layers["mlp"][ours]["kernel_IO"]} for name, ours in kernels.items()}
    if not config.family.startswith("gemma"):
        norms = {"pre_self_attention_layer_norm": "attn_norm", "post_self_attention_layer_norm": "mlp_norm"}
    else:
        norms = {"pre_self_attention_norm": "attn_norm", "pre_ffw_norm": "mlp_norm"}
        if config.post_norms:
            norms |= {"post_self_attention_norm": "attn_post_norm", "post_ffw_norm": "mlp_post_norm"}
    body = {"self_attention": attention, "mlp": mlp}
    body |= {name: {"scale": layers[ours]["weight"] + config.norm_offset} for name, ours in norms.items()}

    def take(tree: Any, which: Any) -> Any:
        return jax.tree.map(lambda x: x[which] if isinstance(which, int) else np.moveaxis(x[which], 0, axis), tree)

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


def logprobs(
    tree: dict[str, Any], tokens_T: np.ndarray, vocab_size: int, config: ModelConfig, rope: Rope, fields: dict[str, Any]
) -> np.ndarray:
    """Log-probabilities of the vocabulary after each token of an unscanned Llama or Gemma 1, in float64.

    Of `config` it takes eps and activation, of `rope` the frequencies; all else the tree and MaxText's `fields` say.
    """
    rope_type = "llama3.1" if fields["model_name"].startswith("llama3.1") else fields["rope_type"]
    interleaved = rope_type == "llama3.1" or (rope_type == "yarn" and fields.get("rope_interleave", True))
    scaled = rope_type == "yarn" and fields.get("rope_attention_scaling", False)
    angle_T1P = np.arange(len(tokens_T))[:, None, None] * np.asarray(rope.frequencies, np.float64)
    turn_T1P = np.exp(1j * angle_T1P) * (0.1 * np.log(fields.get("rope_factor", 40)) + 1 if scaled else 1)

    def norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config.norm_eps) * scale

    def rotate(x_TNH: np.ndarray) -> np.ndarray:
        pairs = (x_TNH[..., ::2], x_TNH[..., 1::2]) if interleaved else np.split(x_TNH, 2, axis=-1)
        turned = (pairs[0] + 1j * pairs[1]) * turn_T1P
        return np.concatenate([turned.real, turned.imag], axis=-1)

    def cap(x: np.ndarray, size: float) -> np.ndarray:
        return np.tanh(x / size) * size if size else x

    def act(x: np.ndarray) -> np.ndarray:
        if config.activation == "silu":
            return x / (1 + np.exp(-x))
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    table = tree["token_embedder"]["embedding"]
    x_TD = table[tokens_T].astype(np.float64)
    causal = np.tri(len(tokens_T), dtype=bool)
    names = [name for name in tree["decoder"] if name.startswith("layers_")]
    for layer in sorted(names, key=lambda name: int(name.removeprefix("layers_"))):
        part = jax.tree.map(np.float64, tree["decoder"][layer])
        suffix = "_layer_norm" if "pre_self_attention_layer_norm" in part else "_norm"
        attention = part["self_attention"]
        normed = norm(x_TD, part[f"pre_self_attention{suffix}"]["scale"])
        q, k, v = (np.einsum("td,dnh->tnh", normed, attention[name]["kernel"]) for name in ("query", "key", "value"))
        k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (rotate(k), v))
        block = fields.get("decoder_block", "llama2")
        logits = cap(
            np.einsum("tnh,snh->nts", rotate(q), k), fields.get("attn_logits_soft_cap", 0) if block == "llama2" else 0
        )
        weights = np.where(causal, np.exp(logits - logits.max()), 0)
        weights /= weights.sum(-1, keepdims=True)
        x_TD = x_TD + np.einsum("nts,snh,nhd->td", weights, v, attention["out"]["kernel"])
        name = "post_self_attention_layer_norm" if suffix == "_layer_norm" else "pre_ffw_norm"
        normed = norm(x_TD, part[name]["scale"])
        mlp = part["mlp"]
        x_TD = x_TD + (act(normed @ mlp["wi_0"]["kernel"]) * (normed @ mlp["wi_1"]["kernel"])) @ mlp["wo"]["kernel"]
    x_TD = norm(x_TD, tree["decoder"]["decoder_norm"]["scale"])
    if fields.get("logits_via_embedding", False):
        logits = x_TD @ table.astype(jnp.bfloat16).astype(np.float64).T
        logits = logits / np.sqrt(x_TD.shape[1]) if fields["normalize_embedding_logits"] else logits
        logits = cap(logits, fields.get("final_logits_soft_cap", 0))
    else:
        logits = x_TD @ tree["decoder"]["logits_dense"]["kernel"]
    logits = logits[:, :vocab_size]
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))
