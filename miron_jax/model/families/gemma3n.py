"""Gemma 3n's text model: how config.json is read, the names of the tensors, and what a layer
computes.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.

What it has beside Gemma 3: A residual streams that a layer predicts and corrects from the one it
computes (AltUp: Baykal et al., 2023, arXiv 2301.13310), a residual of low rank (LAuReL: Menghani et
al., 2024, arXiv 2411.07501), an embedding of each token for each layer, MLPs whose smaller
activations are cut, and last layers that read the keys and values of earlier ones. A streams, P
size of a layer's embedding, R rank; other letters as in decoder.py.
"""

from functools import partial
from statistics import NormalDist
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.model.config import Rope
from miron_jax.model.decoder.decoder import Head
from miron_jax.model.decoder.modules import ACTIVATE
from miron_jax.model.decoder.rope import Rotation, distinct, rotate, rotation_of
from miron_jax.model.families.family import Family
from miron_jax.model.families.family_model import (
    FamilyModel,
    head_weight,
    linear,
    linear_shapes,
    names_of,
    rms_norm,
    tree_of,
)
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table, Tensor, of_layers
from miron_jax.model.families.naming import linear as linear_names
from miron_jax.model.families.reading import activation, layer_types, ropes
from miron_jax.model.visibility import NO_WINDOW, Visibility
from miron_jax.runtime.devices import Tree

USED = (
    "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
    "num_key_value_heads head_dim hidden_activation max_position_embeddings rms_norm_eps "
    "tie_word_embeddings rope_parameters rope_theta rope_scaling rope_local_base_freq "
    "attention_bias sliding_window layer_types final_logit_softcapping vocab_size_per_layer_input "
    "hidden_size_per_layer_input altup_active_idx altup_coef_clip altup_correct_scale "
    "altup_num_inputs laurel_rank num_kv_shared_layers activation_sparsity_pattern "
    # published ones hold these two, which transformers does not read
    "altup_lr_multiplier query_pre_attn_scalar"
)
SLIDING, FULL = 0, 1  # kinds of attention
FLOOR = 1e-5  # of a stream's mean square before it is scaled


class _Gemma3nSizes(NamedTuple):
    width: int
    streams: int
    active: int  # the stream that layers compute
    sharing: int  # first layer that reads keys and values of others
    per_layer: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    activation: str
    scales_output: bool
    kinds: tuple[int, ...]  # of each layer
    window: int
    # of each layer, in standard deviations above the mean; -inf: nothing is cut
    cuts: tuple[float, ...]
    ropes: tuple[Rope, ...]  # of each layer


class _OfLayer(NamedTuple):
    """What differs between layers, besides weights."""

    kind: jax.Array  # int32
    window: jax.Array  # int32
    rope_idx: jax.Array  # int32
    cut: jax.Array  # float32


def _model(fields: Fields) -> FamilyModel:
    fields.allow_only(USED)
    num_layers = fields["num_hidden_layers"]
    d_ff = set(fields["intermediate_size"])
    shared = fields["num_kv_shared_layers"]
    sparsity = fields["activation_sparsity_pattern"]
    fields.expect("intermediate_size", len(d_ff) == 1, "one size for all layers")
    fields.expect(
        "num_kv_shared_layers",
        type(shared) is int and 0 <= shared < num_layers,
        f"a number from 0 to {num_layers - 1}",
    )
    fields.expect(
        "activation_sparsity_pattern",
        all(isinstance(share, int | float) and 0 <= share < 1 for share in sparsity),
        "numbers from 0 to below 1",
    )
    fields.expect(
        "num_key_value_heads",
        fields["num_attention_heads"] % fields["num_key_value_heads"] == 0,
        "a divisor of num_attention_heads",
    )
    fields.expect(
        "altup_active_idx",
        0 <= fields["altup_active_idx"] < fields["altup_num_inputs"],
        "one of altup_num_inputs streams",
    )
    layer_ropes = ropes(fields, fields["head_dim"], ("layer_types",))
    fields.expect(
        "rope_parameters",
        not any(rope.varies_with_length for rope in layer_ropes),
        "rotations that do not depend on a text's length",
    )
    kinds = tuple(FULL if kind == "full_attention" else SLIDING for kind in layer_types(fields))
    fields.expect(
        "num_kv_shared_layers",
        set(kinds[num_layers - shared :]) <= set(kinds[: num_layers - shared]),
        "layers of each kind that have keys and values",
    )
    sizes = _Gemma3nSizes(
        fields["hidden_size"],
        fields["altup_num_inputs"],
        fields["altup_active_idx"],
        num_layers - shared,
        fields["hidden_size_per_layer_input"],
        fields["num_attention_heads"],
        fields["num_key_value_heads"],
        fields["head_dim"],
        fields["rms_norm_eps"],
        activation(fields, "hidden_activation"),
        fields["altup_correct_scale"],
        kinds,
        fields["sliding_window"],
        tuple(NormalDist().inv_cdf(share) if share else -np.inf for share in sparsity),
        layer_ropes,
    )
    vocab = fields["vocab_size"]
    tied = fields["tie_word_embeddings"]
    cap = fields["final_logit_softcapping"]
    shapes = _shapes(fields, sizes, d_ff.pop()) | (
        {} if tied else {"head_VD": (vocab, sizes.width)}
    )
    sharing = "|".join(map(str, range(sizes.sharing, num_layers)))
    return FamilyModel(
        vocab,
        hidden=partial(_hidden, sizes),
        head=lambda params: Head(head_weight(params), softcap=cap),
        params=tree_of(shapes),
        trained_length=fields["max_position_embeddings"],
        windows=(sizes.window, None),
        family=fields.family,
        names=_names(sizes),
        tied_head=tied,
        # Layers that read others' keys and values may have weights for their own, and a checkpoint
        # parts for other senses.
        ignored=(
            rf"(.*\.)?layers\.({sharing})\.self_attn\.[kv]_(proj|norm)\..*|"
            r"(model\.)?(vision_tower|audio_tower|embed_vision|embed_audio)\..*"
        ),
        description=repr((fields.family, sizes, shapes, cap)),
    )


def _shapes(fields: Fields, sizes: _Gemma3nSizes, d_ff: int) -> dict[str, tuple[int, ...]]:
    layers = len(sizes.kinds)
    width = sizes.width
    bias = fields["attention_bias"]
    wide = sizes.heads * sizes.head_dim
    narrow = sizes.kv_heads * sizes.head_dim
    norms = (
        "attn_norm", "attn_post_norm", "mlp_norm", "mlp_post_norm", "laurel/norm", "altup/norm",
        "per_layer/norm",
    )  # fmt: skip
    layer = {
        **{f"{name}/weight": (layers, width) for name in norms},
        "q_norm/weight": (layers, sizes.head_dim),
        **linear_shapes("q", layers, width, wide, bias),
        **linear_shapes("out", layers, wide, width, bias),
        **linear_shapes("gate", layers, width, d_ff, False),
        **linear_shapes("up", layers, width, d_ff, False),
        **linear_shapes("down", layers, d_ff, width, False),
        **linear_shapes("laurel/left", layers, width, fields["laurel_rank"], False),
        **linear_shapes("laurel/right", layers, fields["laurel_rank"], width, False),
        **linear_shapes("altup/router", layers, width, sizes.streams, False),
        **linear_shapes("altup/predict", layers, sizes.streams, sizes.streams**2, False),
        **linear_shapes("altup/correct", layers, sizes.streams, sizes.streams, False),
        "altup/scale_D": (layers, width),
        **linear_shapes("per_layer/gate", layers, width, sizes.per_layer, False),
        **linear_shapes("per_layer/out", layers, sizes.per_layer, width, False),
    }
    others = sizes.streams - 1
    streams = {
        **linear_shapes("streams/begin", others, width, width, False),
        **linear_shapes("streams/end", others, width, width, False),
    }
    return {
        "embedding_VD": (fields["vocab_size"], width),
        "final_norm/weight": (width,),
        "per_layer/embedding_VD": (fields["vocab_size_per_layer_input"], layers * sizes.per_layer),
        "per_layer/project/kernel_IO": (width, layers * sizes.per_layer),
        "per_layer/norm/weight": (sizes.per_layer,),
        **(streams if others else {}),
        **{f"layers/{name}": shape for name, shape in layer.items()},
        **linear_shapes("key_value/k", sizes.sharing, width, narrow, bias),
        **linear_shapes("key_value/v", sizes.sharing, width, narrow, bias),
        "key_value/k_norm/weight": (sizes.sharing, sizes.head_dim),
    }


def _names(sizes: _Gemma3nSizes) -> Table:
    layer = "layers.{}"
    linears = {
        "layers/q": f"{layer}.self_attn.q_proj", "layers/out": f"{layer}.self_attn.o_proj",
        "layers/gate": f"{layer}.mlp.gate_proj", "layers/up": f"{layer}.mlp.up_proj",
        "layers/down": f"{layer}.mlp.down_proj",
        "layers/laurel/left": f"{layer}.laurel.linear_left",
        "layers/laurel/right": f"{layer}.laurel.linear_right",
        "layers/altup/router": f"{layer}.altup.modality_router",
        "layers/altup/predict": f"{layer}.altup.prediction_coefs",
        "layers/altup/correct": f"{layer}.altup.correction_coefs",
        "layers/per_layer/gate": f"{layer}.per_layer_input_gate",
        "layers/per_layer/out": f"{layer}.per_layer_projection",
        "per_layer/project": "per_layer_model_projection",
    }  # fmt: skip
    norms = {
        "layers/attn_norm": f"{layer}.input_layernorm",
        "layers/attn_post_norm": f"{layer}.post_attention_layernorm",
        "layers/mlp_norm": f"{layer}.pre_feedforward_layernorm",
        "layers/mlp_post_norm": f"{layer}.post_feedforward_layernorm",
        "layers/q_norm": f"{layer}.self_attn.q_norm",
        "layers/laurel/norm": f"{layer}.laurel.post_laurel_norm",
        "layers/altup/norm": f"{layer}.altup.router_norm",
        "layers/per_layer/norm": f"{layer}.post_per_layer_input_norm",
        "per_layer/norm": "per_layer_projection_norm",
        "final_norm": "norm",
    }  # fmt: skip
    streams = {
        "streams/begin": "altup_projections.{}",
        "streams/end": "altup_unembed_projections.{}",
    }
    key_value = {f"key_value/{x}": f"{layer}.self_attn.{x}_proj" for x in "kv"}
    with_keys = _linears(key_value)
    with_keys["key_value/k_norm/weight"] = Tensor(f"{layer}.self_attn.k_norm.weight")
    return {
        "embedding_VD": Tensor("embed_tokens.weight"),
        "per_layer/embedding_VD": Tensor("embed_tokens_per_layer.weight"),
        "layers/altup/scale_D": Tensor(f"{layer}.altup.correct_output_scale"),
        **{f"{leaf}/weight": Tensor(f"{tensor}.weight") for leaf, tensor in norms.items()},
        **_linears(linears),
        **of_layers(_linears(streams), range(sizes.streams - 1)),
        **of_layers(with_keys, range(sizes.sharing)),
    }


def _linears(tensors: dict[str, str]) -> Table:
    return {
        name: source
        for leaf, tensor in tensors.items()
        for name, source in linear_names(leaf, tensor).items()
    }


def _hidden(
    sizes: _Gemma3nSizes,
    params: Tree,
    token_ids_BT: jax.Array,
    position_BT: jax.Array,
    visibility: Visibility,
) -> jax.Array:
    dtype = params["embedding_VD"].dtype
    scale = jnp.asarray(sizes.width**0.5, dtype).astype(jnp.float32)
    x_BTD = params["embedding_VD"][token_ids_BT].astype(jnp.float32) * scale
    per_layer_LBTP = _per_layer_inputs(sizes, params["per_layer"], token_ids_BT, x_BTD)
    size_BT1 = jnp.sqrt(_mean_square(x_BTD))
    begin, end = (
        params["streams"][name] if "streams" in params else None for name in ("begin", "end")
    )
    streams_ABTD = jnp.stack([x_BTD, *_resized(begin, [x_BTD] * (sizes.streams - 1), size_BT1)])
    different = distinct(sizes.ropes)
    rotation = rotation_of(different, position_BT, None)
    windows = [sizes.window if kind == SLIDING else NO_WINDOW for kind in sizes.kinds]
    of_layer = _OfLayer(
        jnp.asarray(sizes.kinds, jnp.int32),
        jnp.asarray(windows, jnp.int32),
        jnp.asarray([*map(different.index, sizes.ropes)], jnp.int32),
        jnp.asarray(sizes.cuts, jnp.float32),
    )
    each = params["layers"], per_layer_LBTP, of_layer
    first = jax.tree.map(lambda x: x[: sizes.sharing], each)
    sharing = jax.tree.map(lambda x: x[sizes.sharing :], each)
    # of each kind: keys, values
    kept = jnp.zeros((2, 2, *token_ids_BT.shape, sizes.kv_heads, sizes.head_dim), dtype)
    layer = partial(_layer, sizes, rotation, visibility)
    with jax.named_scope("layers"):
        carry, _ = jax.lax.scan(layer, (streams_ABTD, kept), (*first, params["key_value"]))
        if sizes.sharing < len(sizes.kinds):
            carry, _ = jax.lax.scan(layer, carry, (*sharing, None))
    streams_ABTD, _ = carry
    first_BTD, *others = streams_ABTD
    size_BT1 = jnp.sqrt(_mean_square(first_BTD))
    mean_BTD = jnp.mean(jnp.stack([first_BTD, *_resized(end, others, size_BT1)]), axis=0)
    return _norm(sizes, params["final_norm"], mean_BTD)


def _per_layer_inputs(
    sizes: _Gemma3nSizes, weights: Tree, token_ids_BT: jax.Array, x_BTD: jax.Array
) -> jax.Array:
    """[L, B, T, P]: what the embedding of each layer and a projection of the token's embedding
    give."""
    table_VO = weights["embedding_VD"]
    known_BT = jnp.where(token_ids_BT < table_VO.shape[0], token_ids_BT, 0)
    scale = jnp.asarray(sizes.per_layer**0.5, table_VO.dtype).astype(jnp.float32)
    by_layer = (*token_ids_BT.shape, len(sizes.kinds), sizes.per_layer)
    looked_up = (table_VO[known_BT].astype(jnp.float32) * scale).reshape(by_layer)
    projected = (linear(weights["project"], x_BTD) * sizes.width**-0.5).reshape(by_layer)
    return jnp.moveaxis((_norm(sizes, weights["norm"], projected) + looked_up) * 2.0**-0.5, 2, 0)


def _layer(
    sizes: _Gemma3nSizes,
    rotation: Rotation,
    visibility: Visibility,
    carry: tuple[jax.Array, jax.Array],
    layer: Tree,
) -> tuple[tuple[jax.Array, jax.Array], None]:
    """One layer, of the streams and the keys and values kept so far."""
    streams_ABTD, kept = carry
    weights, per_layer_BTP, of_layer, key_value = layer
    altup = weights["altup"]
    act = ACTIVATE[sizes.activation]
    mixed_BTA = _modalities(sizes, altup, streams_ABTD[sizes.active])
    coefficient_BTO = linear(altup["predict"], mixed_BTA)  # of each stream, for each stream
    predicted = []
    for j in range(sizes.streams):  # sums of products: a matmul of 4 by 4 for each token is slower
        shares = coefficient_BTO[:, :, j * sizes.streams : (j + 1) * sizes.streams]
        predicted.append(
            streams_ABTD[j]
            + sum(shares[:, :, i, None] * streams_ABTD[i] for i in range(sizes.streams))
        )
    predicted_ABTD = jnp.stack(predicted)

    x_BTD = predicted_ABTD[sizes.active]
    normed_BTD = _norm(sizes, weights["attn_norm"], x_BTD)
    low_BTD = linear(weights["laurel"]["right"], linear(weights["laurel"]["left"], normed_BTD))
    laurel_BTD = normed_BTD + _norm(sizes, weights["laurel"]["norm"], low_BTD)
    attended_BTD, kept = _attention(
        sizes, weights, key_value, of_layer, rotation, visibility, normed_BTD, kept
    )
    x_BTD = (x_BTD + _norm(sizes, weights["attn_post_norm"], attended_BTD) + laurel_BTD) * 2.0**-0.5
    normed_BTD = _norm(sizes, weights["mlp_norm"], x_BTD)
    gate_BTF = act(_cut(linear(weights["gate"], normed_BTD), of_layer.cut))
    down_BTD = linear(weights["down"], gate_BTF * linear(weights["up"], normed_BTD))
    x_BTD = x_BTD + _norm(sizes, weights["mlp_post_norm"], down_BTD)

    innovation_BTD = x_BTD - predicted_ABTD[sizes.active]
    share_BTA = linear(altup["correct"], _modalities(sizes, altup, x_BTD)) + 1.0
    corrected_ABTD = (
        predicted_ABTD + innovation_BTD[None] * jnp.moveaxis(share_BTA, -1, 0)[..., None]
    )
    first_BTD = corrected_ABTD[sizes.active]
    if sizes.scales_output:
        first_BTD = first_BTD * altup["scale_D"][None, None]
    of_token_BTP = act(linear(weights["per_layer"]["gate"], first_BTD)) * per_layer_BTP
    of_token_BTD = _norm(
        sizes, weights["per_layer"]["norm"], linear(weights["per_layer"]["out"], of_token_BTP)
    )
    return (corrected_ABTD.at[1:].add(of_token_BTD[None]), kept), None


def _attention(
    sizes: _Gemma3nSizes,
    weights: Tree,
    key_value: Tree,
    of_layer: _OfLayer,
    rotation: Rotation,
    visibility: Visibility,
    x_BTD: jax.Array,
    kept: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """(output, the last keys and values of each kind).  `key_value`: None in a layer that reads
    those kept."""

    def heads(x_BTO: jax.Array) -> jax.Array:
        return x_BTO.reshape(*x_BTO.shape[:2], -1, sizes.head_dim)

    def turned(x_BTNH: jax.Array) -> jax.Array:
        return rotate(x_BTNH, rotation, of_layer.rope_idx).astype(kept.dtype)

    q_BTNH = turned(_norm(sizes, weights["q_norm"], heads(linear(weights["q"], x_BTD))))
    if key_value is not None:
        k_BTKH = turned(_norm(sizes, key_value["k_norm"], heads(linear(key_value["k"], x_BTD))))
        v_BTKH = rms_norm(heads(linear(key_value["v"], x_BTD)), sizes.norm_eps).astype(kept.dtype)
        kept = jax.lax.dynamic_update_index_in_dim(
            kept, jnp.stack([k_BTKH, v_BTKH]), of_layer.kind, 0
        )
    k_BTKH, v_BTKH = jax.lax.dynamic_index_in_dim(kept, of_layer.kind, keepdims=False)
    o_BTNH = visibility.attend(q_BTNH, k_BTKH, v_BTKH, scale=1.0, window=of_layer.window)
    return linear(weights["out"], o_BTNH.reshape(*x_BTD.shape[:2], -1)), kept


def _modalities(sizes: _Gemma3nSizes, altup: Tree, x_BTD: jax.Array) -> jax.Array:
    """[B, T, A]."""
    return jnp.tanh(linear(altup["router"], _norm(sizes, altup["norm"], x_BTD) / sizes.width))


def _cut(x_BTF: jax.Array, deviations: jax.Array) -> jax.Array:
    """What is above the mean by so many standard deviations, less that; all of x if they are
    -inf."""
    mean = jnp.mean(x_BTF, axis=-1, keepdims=True)
    deviation = jnp.sqrt(jnp.mean(jnp.square(x_BTF - mean), axis=-1, keepdims=True))
    is_cut = deviations > -jnp.inf
    limit = mean + deviation * jnp.where(is_cut, deviations, 0.0)
    return jnp.where(is_cut, jax.nn.relu(x_BTF - limit), x_BTF)


def _resized(weights: Tree, streams: list[jax.Array], size_BT1: jax.Array) -> list[jax.Array]:
    """Each stream through a matrix of its own, with root mean squares of `size_BT1`."""
    resized = []
    for i, x_BTD in enumerate(streams):
        y_BTD = linear({"kernel_IO": weights["kernel_IO"][i]}, x_BTD)
        resized.append(y_BTD * size_BT1 / jnp.sqrt(jnp.maximum(_mean_square(y_BTD), FLOOR)))
    return resized


def _mean_square(x: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(x), axis=-1, keepdims=True)


def _norm(sizes: _Gemma3nSizes, weights: Tree, x: jax.Array) -> jax.Array:
    weight = weights["weight"]
    return rms_norm(x, sizes.norm_eps) * weight[(None,) * (x.ndim - 1)]


FAMILIES = {"gemma3n_text": Family(_model, names_of)}
