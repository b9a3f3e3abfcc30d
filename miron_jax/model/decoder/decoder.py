"""The decoder of most families: token ids, positions and visibility -> hidden states before the
head.

Arrives: a `ModelConfig`, weights, one batch of rows.  Leaves: hidden states after the final norm,
and the `Head` that maps selected ones to logits.  It deliberately does not know the plan, what is
scored, files or meshes.

SHAPES   B rows, T slots of a row, D model, N query heads, K key/value heads, H head, F
         feed-forward, V vocabulary, L layers, I/O a matmul's in/out.  Weights of all layers are
         stacked along a leading axis L, for one scan.
NUMBERS  Matrices have the run's dtype (float32 or bfloat16), norm weights and biases are float32.
         Matmuls take operands of the run's dtype and accumulate in float32; residual stream,
         norms, rotation and activation are computed in float32.  Nothing relies on implicit dtype
         or rank promotion.

    graphdef, state = nnx.split(decoder)  # once
    step = jax.jit(lambda state, *batch: nnx.merge(graphdef, state)(*batch))

A call of `step` costs what a call of plain jit costs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.tree_util import KeyPath
from jax.typing import DTypeLike

from miron_jax.kernels.target_logprob.xla import head_logits
from miron_jax.model.config import ALIBI_DIMS, ModelConfig
from miron_jax.model.decoder.cache import Cache
from miron_jax.model.decoder.experts import ExpertMlp
from miron_jax.model.decoder.modules import (
    Linear,
    Mlp,
    Norm,
    array_of,
    norm_if,
    normal,
    normed,
    stored,
    weight_if,
)
from miron_jax.model.decoder.rope import Rotation, distinct, rotate, rotation_of
from miron_jax.model.visibility import NO_WINDOW, Continuation, Visibility
from miron_jax.runtime.devices import Tree, on_every_device, take_rows


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Head:
    """logits = softcap * tanh(scale * (hidden @ weight.T + bias) / softcap); without a soft cap no
    tanh is applied."""

    # a tied head is the token embedding, not a copy; None: hidden states are logits
    weight_VD: jax.Array | None
    bias_V: jax.Array | None = None  # float32
    softcap: float | None = field(default=None, metadata={"static": True})
    scale: float = field(default=1.0, metadata={"static": True})
    # rows beyond it are padding
    vocab_size: int | None = field(default=None, metadata={"static": True})

    @property
    def rules(self) -> dict[str, Any]:
        """All but the weight, as keyword arguments of the functions in kernels/target_logprob."""
        return {
            "bias_V": self.bias_V,
            "softcap": self.softcap,
            "scale": self.scale,
            "vocab_size": self.vocab_size,
        }

    def logits(self, hidden_ND: jax.Array) -> jax.Array:
        """Logits of N hidden states, float32 [N, V]."""
        return head_logits(hidden_ND, self.weight_VD, **self.rules)


PLACES = 256  # positions that bfloat16 tells apart


class LayerKind(NamedTuple):
    """What differs between layers, besides weights: traced numbers, so that one compiled body
    serves all layers."""

    window: jax.Array | None  # int32; None when no layer has one
    rope_idx: jax.Array | None  # int32, row of the rotation tables; None when all layers share one
    scale: jax.Array | None  # float32, of queries; None when no layer has one


class KeyValues(NamedTuple):
    """Keys and values after norm and rotation, in the run's dtype; those of one layer have no axis
    L."""

    key_LBTKH: jax.Array
    value_LBTKH: jax.Array


class LayerContext(NamedTuple):
    """What a layer needs beside its input."""

    kind: LayerKind
    rows_are_split: bool  # over a mesh's axes ROWS, where they divide them
    rotation: Rotation | None
    position_BT: jax.Array
    visibility: Visibility | Continuation
    past: (
        tuple[Cache, jax.Array] | None
    )  # keys and values computed before, of all layers, and the layer's index (int32)


class Attention(nnx.Module):
    def __init__(
        self, config: ModelConfig, stack: tuple[int, ...], dtype: DTypeLike, rngs: nnx.Rngs
    ):
        self.config = config
        wide = config.num_heads * config.head_dim
        narrow = config.num_kv_heads * config.head_dim
        self.q = Linear(stack, (config.d_model, wide), config.qkv_bias, dtype, rngs, by_head=True)
        self.k = Linear(stack, (config.d_model, narrow), config.qkv_bias, dtype, rngs, by_head=True)
        self.v = Linear(stack, (config.d_model, narrow), config.qkv_bias, dtype, rngs, by_head=True)
        self.out = Linear(stack, (wide, config.d_model), config.attn_out_bias, dtype, rngs)
        self.sinks_N = weight_if(config.attn_sinks, rngs, (*stack, config.num_heads), scale=1.0)
        norm = partial(norm_if, config.qk_norm is not None, config, stack, rngs=rngs, bias=False)
        self.q_norm = norm(_qk_norm_shape(config, config.num_heads))
        self.k_norm = norm(_qk_norm_shape(config, config.num_kv_heads))

    def __call__(self, x_BTD: jax.Array, context: LayerContext) -> tuple[jax.Array, KeyValues]:
        """Also returns the keys and values of these slots; attention reads those of `context.past`
        too."""
        dtype = self.q.kernel_IO[...].dtype
        q_BTNH = self._heads(self.q(x_BTD, dtype), self.q_norm, context)
        scale = self.config.attn_scale
        if self.config.alibi_slopes:  # what is multiplied with positions is not scaled
            q_BTNH = q_BTNH * scale
            scale = 1.0
        if context.kind.scale is not None:
            q_BTNH = q_BTNH * context.kind.scale
        q_BTNH = q_BTNH.astype(dtype)
        k_BTKH = self._heads(self.k(x_BTD, dtype), self.k_norm, context).astype(dtype)
        v_BTKH = _split_heads(self._clipped(self.v(x_BTD, dtype)), self.config.head_dim)
        if self.config.alibi_slopes:
            q_BTNH, k_BTKH, v_BTKH = with_places(
                self.config, context.position_BT, q_BTNH, k_BTKH, v_BTKH
            )
        # a Continuation's takes a past, a Visibility's does not
        attend: Callable[..., jax.Array] = context.visibility.attend
        o_BTNH = attend(
            q_BTNH,
            k_BTKH,
            v_BTKH,
            *(context.past or ()),
            window=context.kind.window,
            softcap=self.config.attn_softcap,
            sinks_N=array_of(self.sinks_N),
            scale=scale,
        )
        o_BTNH = o_BTNH[..., : self.config.head_dim]
        return self.out(o_BTNH.reshape(*x_BTD.shape[:2], -1)), KeyValues(k_BTKH, v_BTKH)

    def _clipped(self, x_BTO: jax.Array) -> jax.Array:
        most = self.config.qkv_clip
        return x_BTO if most is None else jnp.clip(x_BTO, -most, most)

    def _heads(self, x_BTO: jax.Array, norm: Norm | None, context: LayerContext) -> jax.Array:
        """Queries or keys by head, normed and rotated in the order of the config, in float32."""
        x_BTO = x_BTO.astype(jnp.float32)
        if self.config.qk_norm == "all_heads":
            x_BTO = normed(norm, x_BTO)
            norm = None
        x_BTNH = _split_heads(self._clipped(x_BTO), self.config.head_dim)
        if not self.config.qk_norm_rotated:
            x_BTNH = normed(norm, x_BTNH)
        if context.rotation is not None:
            x_BTNH = rotate(x_BTNH, context.rotation, context.kind.rope_idx)
        return normed(norm, x_BTNH) if self.config.qk_norm_rotated else x_BTNH


def with_places(
    config: ModelConfig,
    position_BT: jax.Array,
    q_BTNH: jax.Array,
    k_BTKH: jax.Array,
    v_BTKH: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries, keys and values with ALIBI_DIMS more dimensions, in which query and key multiply to
    slope * position of the key: ALiBi's bias but for a term of the query alone, which the softmax
    drops.
    """
    dtype = q_BTNH.dtype
    q_NP, k_BTKP = (_rounded_places if config.alibi_rounded else _places)(config, position_BT)
    room = [(0, ALIBI_DIMS - q_NP.shape[-1])]
    q_NP = jnp.asarray(np.pad(q_NP, [(0, 0), *room]), dtype)
    k_BTKP = jnp.pad(k_BTKP.astype(dtype), [(0, 0)] * 3 + room)
    return (
        jnp.concatenate(
            [q_BTNH, jnp.broadcast_to(q_NP[None, None], (*q_BTNH.shape[:3], ALIBI_DIMS))], axis=-1
        ),
        jnp.concatenate(
            [k_BTKH, jnp.broadcast_to(k_BTKP, (*k_BTKH.shape[:3], ALIBI_DIMS))], axis=-1
        ),
        jnp.pad(v_BTKH, ((0, 0), (0, 0), (0, 0), (0, ALIBI_DIMS))),
    )


def _places(config: ModelConfig, position_BT: jax.Array) -> tuple[np.ndarray, jax.Array]:
    """A position is split into three numbers that bfloat16 holds, and a slope into two."""
    slope_N = np.asarray(config.alibi_slopes, np.float32)
    coarse_N = slope_N.astype(jnp.bfloat16).astype(np.float32)
    powers = (1, PLACES, PLACES**2)
    slopes_2N = (coarse_N, slope_N - coarse_N)
    digits_BT = [position_BT // power % PLACES for power in powers]
    q_NP = np.stack([power * slope for power in powers for slope in slopes_2N], axis=-1)
    k_BTP = jnp.stack([digit_BT for digit_BT in digits_BT for _ in slopes_2N], axis=-1)
    return q_NP, k_BTP[:, :, None]


def _rounded_places(config: ModelConfig, position_BT: jax.Array) -> tuple[np.ndarray, jax.Array]:
    """Slope, position and their product are each rounded to bfloat16, so the key of each head holds
    the product.

    A compiler may drop a conversion to bfloat16 and back, but not `reduce_precision`.
    """
    bfloat16 = partial(jax.lax.reduce_precision, exponent_bits=8, mantissa_bits=7)
    slope_11N = jnp.asarray(config.alibi_slopes, jnp.float32)[None, None]
    bias_BTN = bfloat16(bfloat16(slope_11N) * bfloat16(position_BT.astype(jnp.float32))[..., None])
    return np.full((config.num_heads, 1), config.attn_scale, np.float32), bias_BTN[..., None]


class Layer(nnx.Module):
    """Attention, then MLP on its output, or both on the same input; each normed before, after, or
    both."""

    def __init__(
        self, config: ModelConfig, stack: tuple[int, ...], dtype: DTypeLike, rngs: nnx.Rngs
    ):
        self.config = config
        norm = partial(norm_if, config=config, stack=stack, shape=(config.d_model,), rngs=rngs)
        self.attn_norm = norm(config.pre_norms)
        self.attn = Attention(config, stack, dtype, rngs)
        self.attn_post_norm = norm(config.post_norms)
        self.mlp_norm = norm(config.pre_norms and config.parallel != "one_norm")
        self.mlp = (ExpertMlp if config.experts else Mlp)(config, stack, dtype, rngs)
        self.mlp_post_norm = norm(config.post_norms)

    def __call__(self, x_BTD: jax.Array, context: LayerContext) -> tuple[jax.Array, KeyValues]:
        dtype = self.attn.q.kernel_IO[...].dtype
        normed_BTD = stored(normed(self.attn_norm, x_BTD).astype(dtype))
        y_BTD, key_values = self.attn(normed_BTD, context)
        after_BTD = stored(x_BTD + self.config.residual_scale * normed(self.attn_post_norm, y_BTD))
        if self.config.parallel is None:
            normed_BTD = stored(normed(self.mlp_norm, after_BTD).astype(dtype))
        elif self.config.parallel == "own_norm":
            normed_BTD = stored(normed(self.mlp_norm, x_BTD).astype(dtype))
        if isinstance(self.mlp, ExpertMlp):
            y_BTD = stored(self.mlp(normed_BTD, context.rows_are_split))
        else:
            y_BTD = stored(self.mlp(normed_BTD))
        return after_BTD + self.config.residual_scale * normed(
            self.mlp_post_norm, y_BTD
        ), key_values


class Decoder(nnx.Module):
    # of each leaf of a layer, to which it is cast; (): as they are
    layer_dtypes: tuple[str, ...] = ()

    def __init__(self, config: ModelConfig, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.config = config

        def table(rows: int) -> nnx.Param:
            shape = (rows, config.d_model)
            return nnx.Param(normal(rngs, shape, dtype, scale=0.5 / config.embedding_scale))

        self.embedding_VD = table(config.vocab_size)
        length = config.num_positions
        self.position_PD = None if length is None else table(length + config.position_offset)
        self.embedding_norm = norm_if(config.embedding_norm, config, (), (config.d_model,), rngs)
        self.layers = Layer(config, (config.num_layers,), dtype, rngs)
        self.final_norm = Norm(config, (), (config.d_model,), rngs)
        self.head_VD = None if config.tied_head else table(config.vocab_size)
        self.head_bias_V = weight_if(config.head_bias, rngs, (config.vocab_size,))

    def __call__(
        self,
        token_ids_BT: jax.Array,
        position_BT: jax.Array,
        visibility: Visibility,
        rope_class_BT: jax.Array | None = None,
    ) -> jax.Array:
        """Hidden states after the final norm, float32 [B, T, D].

        `rope_class_BT`: the RoPE scaling class (`RopeClasses.class_of`) of each slot, int32; None
        means 0 everywhere.
        """
        return self._run(
            token_ids_BT, position_BT, visibility, None, keep=False, rope_class_BT=rope_class_BT
        )[0]

    def keeping(
        self,
        token_ids_BT: jax.Array,
        position_BT: jax.Array,
        visibility: Visibility | Continuation,
        past: Cache | None = None,
    ) -> tuple[jax.Array, KeyValues]:
        """Hidden states of tokens that follow those of `past`, and their own keys and values."""
        hidden_BTD, key_values = self._run(token_ids_BT, position_BT, visibility, past, keep=True)
        assert key_values is not None
        # Else XLA may exchange parts of them between all devices before the head: in a loop that
        # copies of the weights leave at different steps, these wait for each other.
        return on_every_device(hidden_BTD), key_values

    def _run(
        self,
        token_ids_BT: jax.Array,
        position_BT: jax.Array,
        visibility: Visibility | Continuation,
        past: Cache | None,
        keep: bool,
        rope_class_BT: jax.Array | None = None,
    ) -> tuple[jax.Array, KeyValues | None]:
        graphdef, stacked = nnx.split(self.layers)
        kinds = self._layer_kinds()
        rotation = self._rotation(position_BT, rope_class_BT)

        def layer(x_BTD: jax.Array, of_layer: Tree) -> tuple[jax.Array, KeyValues | None]:
            weights, kind, index = of_layer
            context = LayerContext(
                kind,
                not keep,
                rotation,
                position_BT,
                visibility,
                None if past is None else (past, index),
            )
            if self.layer_dtypes:
                leaves, tree = jax.tree.flatten(weights)
                pairs = zip(leaves, self.layer_dtypes, strict=True)
                weights = tree.unflatten([leaf.astype(dtype) for leaf, dtype in pairs])
            x_BTD, key_values = nnx.merge(graphdef, weights)(x_BTD, context)
            return x_BTD, key_values if keep else None

        x_BTD = self._embed(token_ids_BT, position_BT, rows_are_split=not keep)
        indices = jnp.arange(self.config.num_layers, dtype=jnp.int32)
        with jax.named_scope("layers"):
            x_BTD, key_values = jax.lax.scan(layer, x_BTD, (stacked, kinds, indices))
        return self.final_norm(x_BTD), key_values

    def head(self) -> Head:
        weight = self.embedding_VD if self.head_VD is None else self.head_VD
        return Head(
            weight[...],
            array_of(self.head_bias_V),
            self.config.final_softcap,
            self.config.logit_scale,
            self.config.vocab_size,
        )

    def _embed(
        self, token_ids_BT: jax.Array, position_BT: jax.Array, rows_are_split: bool
    ) -> jax.Array:
        table_VD = self.embedding_VD[...]
        x_BTD = take_rows(table_VD, token_ids_BT, rows_are_split)
        if self.config.embedding_scale != 1.0:
            # Gemma's sqrt(640) = 25.298 is 25.25 in bfloat16.
            dtype = table_VD.dtype if self.config.embedding_scale_rounded else jnp.float32
            x_BTD = x_BTD * jnp.asarray(self.config.embedding_scale, dtype).astype(jnp.float32)
        if self.position_PD is not None:
            x_BTD = x_BTD + self.position_PD[...][position_BT + self.config.position_offset].astype(
                jnp.float32
            )
        return normed(self.embedding_norm, x_BTD)

    def _layer_kinds(self) -> LayerKind:
        config = self.config
        window = rope_idx = scale = None
        if config.has_windows:
            windows = [window or NO_WINDOW for window in config.layer_windows]
            window = jnp.asarray(windows, jnp.int32)
        ropes = distinct(config.layer_ropes)
        if len(ropes) > 1:
            rope_idx = jnp.asarray([*map(ropes.index, config.layer_ropes)], jnp.int32)
        if config.layer_scales:
            scale = jnp.asarray(config.layer_scales, jnp.float32)
        return LayerKind(window, rope_idx, scale)

    def _rotation(self, position_BT: jax.Array, rope_class_BT: jax.Array | None) -> Rotation | None:
        if not self.config.layer_ropes:
            return None
        if self.config.rope_classes is None:
            rope_class_BT = None
        return rotation_of(distinct(self.config.layer_ropes), position_BT, rope_class_BT)


def abstract(config: ModelConfig, dtype: DTypeLike) -> tuple[nnx.GraphDef, Tree]:
    """(graphdef, state of ShapeDtypeStructs) of a Decoder; nothing is allocated."""
    return nnx.split(nnx.eval_shape(lambda: Decoder(config, dtype=dtype, rngs=nnx.Rngs(0))))


def leaf_name(path: KeyPath) -> str:
    """Name of a leaf: the keys of its tree path joined by "/", without nnx's last level of
    `value`; "" of params that are one array."""
    if path and isinstance(path[-1], jax.tree_util.GetAttrKey) and path[-1].name == "value":
        path = path[:-1]
    return jax.tree_util.keystr(path, simple=True, separator="/")


def random_params(config: ModelConfig, dtype: DTypeLike, seed: int) -> Tree:
    """The state of a Decoder with seeded random weights, on the default device; for tests and
    benchmarks."""
    # Not under jit, which would compile one large program for seconds.
    return nnx.split(Decoder(config, dtype=dtype, rngs=nnx.Rngs(seed)))[1]


def _split_heads(x_BTO: jax.Array, head_dim: int) -> jax.Array:
    return x_BTO.reshape(*x_BTO.shape[:2], -1, head_dim)


def _qk_norm_shape(config: ModelConfig, num_heads: int) -> tuple[int, ...]:
    shapes = {"head": (config.head_dim,), "each_head": (num_heads, config.head_dim)}
    return shapes.get(str(config.qk_norm), (num_heads * config.head_dim,))
