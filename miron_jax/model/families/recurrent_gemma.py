"""RecurrentGemma (Griffin): how config.json is read, the names of the tensors, and what a layer
computes.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.

De et al., 2024 (arXiv 2402.19427), section 2: two layers in three mix tokens by a gated linear
recurrence, the others by attention over the last tokens.  W width of the recurrence, N query heads,
K key-value heads, H head, S tokens of the cache; other letters as in recurrent.py.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from miron_jax.model.config import Rope
from miron_jax.model.decoder.decoder import Head
from miron_jax.model.decoder.modules import ACTIVATE
from miron_jax.model.decoder.rope import rotate, rotation_of
from miron_jax.model.families.family import Family
from miron_jax.model.families.family_model import (
    FamilyModel,
    embedded,
    head_weight,
    linear_shapes,
    names_of,
    rms_norm,
    tree_of,
)
from miron_jax.model.families.family_model import linear as matmul
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table, Tensor, linear, of_layers
from miron_jax.model.families.reading import activation, head_size, ropes
from miron_jax.model.stateful.recurrent import (
    causal_conv,
    conv_names,
    conv_shapes,
    linear_recurrence,
    zeros,
)
from miron_jax.runtime.devices import Tree

USED = (
    "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
    "num_key_value_heads head_dim lru_width attention_window_size conv1d_width logits_soft_cap "
    "rms_norm_eps hidden_activation rope_parameters rope_theta partial_rotary_factor block_types "
    "attention_bias w_init_variance_scale final_w_init_variance_scale embeddings_scale_by_sqrt_dim "
    "tie_word_embeddings"
)
DECAY = 8.0  # the paper's c, section 2.4


class _GriffinSizes(NamedTuple):
    kinds: tuple[str, ...]  # of each layer
    period: int  # layers from which on the kinds repeat
    width: int
    recurrence: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int
    conv: int
    norm_eps: float
    activation: str
    rope: Rope

    def layers(self, kind: str) -> tuple[int, ...]:
        return tuple(i for i, each in enumerate(self.kinds) if each == kind)


def _model(fields: Fields) -> FamilyModel:
    fields.allow_only(USED)
    kinds = tuple(
        (list(fields["block_types"]) * fields["num_hidden_layers"])[: fields["num_hidden_layers"]]
    )
    fields.expect(
        "block_types",
        kinds and set(kinds) <= {"recurrent", "attention"},
        "a list of 'recurrent' and 'attention'",
    )
    if fields.raw.get("embeddings_scale_by_sqrt_dim") is False:
        raise fields.refuse(
            "embeddings_scale_by_sqrt_dim", False, "true, which transformers always does,"
        )
    sizes = _GriffinSizes(
        kinds,
        len(fields["block_types"]),
        fields["hidden_size"],
        fields["lru_width"],
        fields["num_attention_heads"],
        fields["num_key_value_heads"],
        head_size(fields, "hidden_size", "num_attention_heads"),
        fields["attention_window_size"],
        fields["conv1d_width"],
        fields["rms_norm_eps"],
        activation(fields, "hidden_activation"),
        ropes(
            fields,
            head_size(fields, "hidden_size", "num_attention_heads"),
            ("partial_rotary_factor",),
        )[0],
    )
    head_size(fields, "lru_width", "num_attention_heads")
    if fields["rope_parameters"].get("rope_type") != "default":
        raise fields.refuse("rope_type", fields["rope_parameters"].get("rope_type"), "'default'")
    fields.expect("intermediate_size", fields["intermediate_size"] % 2 == 0, "an even number")
    fields.expect(
        "num_key_value_heads",
        sizes.heads % sizes.kv_heads == 0,
        f"a divisor of {sizes.heads} heads",
    )
    vocab = fields["vocab_size"]
    tied = fields["tie_word_embeddings"]
    cap = fields["logits_soft_cap"]
    shapes = _shapes(fields, sizes) | ({} if tied else {"head_VD": (vocab, sizes.width)})
    return FamilyModel(
        vocab,
        head=lambda params: Head(head_weight(params), softcap=cap),
        params=tree_of(shapes),
        state=partial(_state, sizes),
        step=partial(_step, sizes),
        family=fields.family,
        names=_names(sizes),
        tied_head=tied,
        description=repr((fields.family, sizes, shapes, cap)),
    )


def _shapes(fields: Fields, sizes: _GriffinSizes) -> dict[str, tuple[int, ...]]:
    layers = len(sizes.kinds)
    width = sizes.width
    wide = sizes.heads * sizes.head_dim
    attending = len(sizes.layers("attention"))
    recurring = len(sizes.layers("recurrent"))
    inner = fields["intermediate_size"] // 2
    narrow = sizes.kv_heads * sizes.head_dim
    bias = fields["attention_bias"]
    block = sizes.recurrence // sizes.heads
    gate = (recurring, sizes.heads, block)
    attention = {
        **linear_shapes("attention/q", attending, width, wide, bias),
        **linear_shapes("attention/k", attending, width, narrow, bias),
        **linear_shapes("attention/v", attending, width, narrow, bias),
        **linear_shapes("attention/out", attending, wide, width, True),
    }
    recurrent = {
        **linear_shapes("recurrent/y", recurring, width, sizes.recurrence, True),
        **linear_shapes("recurrent/x", recurring, width, sizes.recurrence, True),
        **linear_shapes("recurrent/out", recurring, sizes.recurrence, width, True),
        **conv_shapes("recurrent/conv", recurring, sizes.recurrence, sizes.conv),
        "recurrent/decay_W": (recurring, sizes.recurrence),
        **{f"recurrent/{name}_gate/weight": (*gate, block) for name in ("input", "decay")},
        **{f"recurrent/{name}_gate/bias": gate for name in ("input", "decay")},
    }
    return {
        "embedding_VD": (fields["vocab_size"], width),
        "final_norm/weight": (width,),
        "layers/mixer_norm/weight": (layers, width),
        "layers/mlp_norm/weight": (layers, width),
        **linear_shapes("layers/gate", layers, width, inner, True),
        **linear_shapes("layers/up", layers, width, inner, True),
        **linear_shapes("layers/down", layers, inner, width, True),
        **(attention if attending else {}),
        **(recurrent if recurring else {}),
    }


def _names(sizes: _GriffinSizes) -> Table:
    block = "layers.{}.temporal_block"
    rg_lru = f"{block}.rg_lru"
    mlp = "layers.{}.mlp_block"
    attention = {
        **linear("attention/q", f"{block}.q_proj"),
        **linear("attention/k", f"{block}.k_proj"),
        **linear("attention/v", f"{block}.v_proj"),
        **linear("attention/out", f"{block}.o_proj"),
    }
    recurrent = {
        **linear("recurrent/y", f"{block}.linear_y"),
        **linear("recurrent/x", f"{block}.linear_x"),
        **linear("recurrent/out", f"{block}.linear_out"),
        **conv_names("recurrent/conv", f"{block}.conv_1d"),
        "recurrent/decay_W": Tensor(f"{rg_lru}.recurrent_param"),
        "recurrent/input_gate/weight": Tensor(f"{rg_lru}.input_gate_weight"),
        "recurrent/input_gate/bias": Tensor(f"{rg_lru}.input_gate_bias"),
        "recurrent/decay_gate/weight": Tensor(f"{rg_lru}.recurrent_gate_weight"),
        "recurrent/decay_gate/bias": Tensor(f"{rg_lru}.recurrent_gate_bias"),
    }
    return {
        "embedding_VD": Tensor("embed_tokens.weight"),
        "final_norm/weight": Tensor("final_norm.weight"),
        "layers/mixer_norm/weight": Tensor("layers.{}.temporal_pre_norm.weight"),
        "layers/mlp_norm/weight": Tensor("layers.{}.channel_pre_norm.weight"),
        **linear("layers/gate", f"{mlp}.gate_proj"),
        **linear("layers/up", f"{mlp}.up_proj"),
        **linear("layers/down", f"{mlp}.down_proj"),
        **of_layers(attention, sizes.layers("attention")),
        **of_layers(recurrent, sizes.layers("recurrent")),
    }


def _state(sizes: _GriffinSizes, params: Tree, num_tokens: int) -> Tree:
    attending = len(sizes.layers("attention"))
    recurring = len(sizes.layers("recurrent"))
    cache = jnp.zeros(
        (attending, 2, num_tokens, sizes.kv_heads, sizes.head_dim), params["embedding_VD"].dtype
    )
    return {
        "count": jnp.int32(0),
        "key_value": cache,
        "conv": zeros(recurring, sizes.conv - 1, sizes.recurrence),
        "hidden": zeros(recurring, sizes.recurrence),
    }


def _step(
    sizes: _GriffinSizes, params: Tree, state: Tree, token_ids_T: jax.Array
) -> tuple[jax.Array, Tree]:
    # As in the published code: a constant in bfloat16.
    x_TD = embedded(params, token_ids_T) * jnp.asarray(sizes.width**0.5, jnp.bfloat16).astype(
        jnp.float32
    )
    count = state["count"]
    length = len(token_ids_T)
    position_T = count + jnp.arange(length, dtype=jnp.int32)
    # One compiled body serves all whole periods of kinds.
    num_periods = len(sizes.kinds) // sizes.period
    size = sizes.period

    def period(carry: tuple[jax.Array, Tree], i: jax.Array) -> tuple[tuple[jax.Array, Tree], None]:
        for j, kind in enumerate(sizes.kinds[:size]):
            of_kind = sizes.kinds[:size].count(kind) * i + sizes.kinds[:j].count(kind)
            carry = _layer(sizes, params, kind, size * i + j, of_kind, position_T, *carry)
        return carry, None

    with jax.named_scope("layers"):
        carry, _ = jax.lax.scan(period, (x_TD, state), jnp.arange(num_periods, dtype=jnp.int32))
        for layer, kind in list(enumerate(sizes.kinds))[num_periods * size :]:
            index = jnp.int32(layer), jnp.int32(sizes.kinds[:layer].count(kind))
            carry = _layer(sizes, params, kind, *index, position_T, *carry)
    x_TD, state = carry
    return _norm(sizes, params["final_norm"], x_TD), state | {"count": count + length}


def _layer(
    sizes: _GriffinSizes,
    params: Tree,
    kind: str,
    layer: jax.Array,
    of_kind: jax.Array,
    position_T: jax.Array,
    x_TD: jax.Array,
    state: Tree,
) -> tuple[jax.Array, Tree]:
    """(outputs, state) of a layer, the number `of_kind` among those of its kind."""
    act = ACTIVATE[sizes.activation]
    common = _at(params["layers"], layer)
    weights = _at(params[kind], of_kind)
    normed_TD = _norm(sizes, common["mixer_norm"], x_TD)
    mixer: Callable[..., tuple[jax.Array, ...]]
    mixer, *names = _MIXERS[kind]
    before = [_at(state[name], of_kind) for name in names]
    y_TD, *after = mixer(sizes, weights, *before, position_T, normed_TD)
    for name, new in zip(names, after, strict=True):
        state = state | {name: jax.lax.dynamic_update_index_in_dim(state[name], new, of_kind, 0)}
    x_TD = x_TD + y_TD
    normed_TD = _norm(sizes, common["mlp_norm"], x_TD)
    x_TD = x_TD + matmul(
        common["down"], act(matmul(common["gate"], normed_TD)) * matmul(common["up"], normed_TD)
    )
    return x_TD, state


def _at(weights: Tree, index: jax.Array) -> Tree:
    return jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), weights
    )


def _norm(sizes: _GriffinSizes, weights: Tree, x_TD: jax.Array) -> jax.Array:
    return rms_norm(x_TD, sizes.norm_eps) * (1.0 + weights["weight"])[None]


def _attention(
    sizes: _GriffinSizes, weights: Tree, cache: jax.Array, position_T: jax.Array, x_TD: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(output, keys and values [2, S, K, H] with those of the new tokens)."""
    dtype = cache.dtype
    rotation = rotation_of((sizes.rope,), position_T[None], None)
    q_TNH, k_TKH, v_TKH = (
        matmul(weights[name], x_TD).reshape(len(x_TD), -1, sizes.head_dim) for name in "qkv"
    )
    q_TNH, k_TKH = (rotate(x[None], rotation, None)[0] for x in (q_TNH, k_TKH))
    new = jnp.stack([k_TKH, v_TKH]).astype(dtype)
    cache = jax.lax.dynamic_update_slice_in_dim(cache, new, position_T[0], axis=1)
    q_TKGH = (
        (q_TNH * sizes.head_dim**-0.5)
        .astype(dtype)
        .reshape(len(x_TD), sizes.kv_heads, -1, sizes.head_dim)
    )
    key_SKH, value_SKH = cache
    logits_KGTS = jnp.einsum("tkgh,skh->kgts", q_TKGH, key_SKH, preferred_element_type=jnp.float32)
    back_TS = position_T[:, None] - jnp.arange(key_SKH.shape[0], dtype=jnp.int32)[None]
    is_seen_TS = (back_TS >= 0) & (back_TS < sizes.window)
    weight_KGTS = jax.nn.softmax(
        jnp.where(is_seen_TS[None, None], logits_KGTS, -jnp.inf), axis=-1
    ).astype(dtype)
    seen_TKGH = jnp.einsum(
        "kgts,skh->tkgh", weight_KGTS, value_SKH, preferred_element_type=jnp.float32
    )
    return matmul(weights["out"], seen_TKGH.reshape(len(x_TD), -1)), cache


def _recurrence(
    sizes: _GriffinSizes,
    weights: Tree,
    before_KW: jax.Array,
    hidden_W: jax.Array,
    position_T: jax.Array,
    x_TD: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(output, the last inputs of the convolution, the hidden state [W])."""
    y_TW = ACTIVATE[sizes.activation](matmul(weights["y"], x_TD))
    x_TW, conv = causal_conv(weights["conv"], before_KW, matmul(weights["x"], x_TD))
    x_TNW = x_TW.reshape(len(x_TD), sizes.heads, -1)

    def gate(name: str) -> jax.Array:
        of_heads = (
            jnp.einsum("tni,nio->tno", x_TNW, weights[name]["weight"]) + weights[name]["bias"][None]
        )
        return jax.nn.sigmoid(of_heads.reshape(x_TW.shape))

    log_decay_TW = -DECAY * gate("decay_gate") * jax.nn.softplus(weights["decay_W"])[None]
    # A text's first token goes in whole; later ones are scaled so that the state keeps its size.
    scale_TW = jnp.where((position_T == 0)[:, None], 1.0, jnp.sqrt(-jnp.expm1(2.0 * log_decay_TW)))
    input_TW = x_TW * gate("input_gate") * scale_TW
    decay_TW, hidden_TW = linear_recurrence((jnp.exp(log_decay_TW), input_TW))
    hidden_TW = hidden_TW + decay_TW * hidden_W[None]
    return matmul(weights["out"], hidden_TW * y_TW), conv, hidden_TW[-1]


# of each kind: what computes it, and the parts of the state that it reads and gives
_MIXERS = {
    "attention": (_attention, "key_value"),
    "recurrent": (_recurrence, "conv", "hidden"),
}
FAMILIES = {"recurrent_gemma": Family(_model, names_of)}
