"""Mamba 2: how config.json is read, the names of the tensors, and what a layer computes.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.

Dao and Gu, 2024 (arXiv 2405.21060), section 6: the tokens of a block are mixed by one matrix, and
blocks by their states. H heads, P head, N states of a channel, G groups of heads, E heads of a
group, S tokens of a block as sources; other letters as in recurrent.py.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from miron_jax.model.decoder.modules import ACTIVATE
from miron_jax.model.families.family import Family
from miron_jax.model.families.family_model import (
    FamilyModel,
    head_weight,
    linear_shapes,
    names_of,
    rms_norm,
    tree_of,
)
from miron_jax.model.families.family_model import linear as matmul
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table, Tensor
from miron_jax.model.families.reading import activation, check_rescaling
from miron_jax.model.stateful.recurrent import (
    causal_conv,
    conv_shapes,
    mixer_names,
    step_of_layers,
    zeros,
)
from miron_jax.runtime.devices import Tree

USED = (
    "vocab_size hidden_size state_size num_hidden_layers layer_norm_epsilon expand conv_kernel "
    "n_groups num_heads head_dim use_bias use_conv_bias hidden_act residual_in_fp32 "
    "time_step_rank time_step_min time_step_max time_step_floor time_step_limit "
    "time_step_init_scheme time_step_scale rescale_prenorm_residual chunk_size "
    "tie_word_embeddings intermediate_size norm_before_gate"  # transformers always gates first
)
BLOCK = 128  # tokens that one matrix mixes


class _Mamba2Sizes(NamedTuple):
    num_layers: int
    heads: int
    head_dim: int
    states: int
    groups: int
    conv: int
    norm_eps: float
    activation: str
    time_step_limit: tuple[float, float]

    @property
    def channels(self) -> int:
        return self.heads * self.head_dim


def _model(fields: Fields) -> FamilyModel:
    fields.allow_value("rms_norm", True)
    fields.allow_only(USED)
    check_rescaling(fields)
    limit = fields["time_step_limit"]
    fields.expect(
        "time_step_limit",
        len(limit) == 2 and 0 <= limit[0] <= limit[1],
        "two numbers, the first at least 0 and the second at least that",
    )
    sizes = _Mamba2Sizes(
        fields["num_hidden_layers"],
        fields["num_heads"],
        fields["head_dim"],
        fields["state_size"],
        fields["n_groups"],
        fields["conv_kernel"],
        fields["layer_norm_epsilon"],
        activation(fields, "hidden_act"),
        tuple(fields["time_step_limit"]),
    )
    vocab = fields["vocab_size"]
    width = fields["hidden_size"]
    tied = fields["tie_word_embeddings"]
    fields.expect(
        "expand",
        sizes.channels == int(fields["expand"] * width),
        f"num_heads * head_dim / hidden_size = {sizes.channels / width:g}",
    )
    if fields.raw.get("intermediate_size") not in (None, sizes.channels):
        raise fields.refuse(
            "intermediate_size",
            fields.raw["intermediate_size"],
            f"num_heads * head_dim = {sizes.channels}",
        )
    fields.expect(
        "n_groups", sizes.heads % sizes.groups == 0, f"a divisor of num_heads = {sizes.heads}"
    )
    layers = sizes.num_layers
    mixed = sizes.channels + 2 * sizes.groups * sizes.states
    bias = fields["use_bias"]
    shapes = {
        "embedding_VD": (vocab, width),
        "final_norm/weight": (width,),
        "layers/norm/weight": (layers, width),
        **linear_shapes("layers/in", layers, width, sizes.channels + mixed + sizes.heads, bias),
        **conv_shapes("layers/conv", layers, mixed, sizes.conv, fields["use_conv_bias"]),
        "layers/dt_bias_H": (layers, sizes.heads),
        "layers/A_log_H": (layers, sizes.heads),
        "layers/D_H": (layers, sizes.heads),
        "layers/gated_norm/weight": (layers, sizes.channels),
        **linear_shapes("layers/out", layers, sizes.channels, width, bias),
        **({} if tied else {"head_VD": (vocab, width)}),
    }
    return FamilyModel(
        vocab,
        head=head_weight,
        params=tree_of(shapes),
        state=lambda params, num_tokens: {
            "conv": zeros(layers, sizes.conv - 1, mixed),
            "ssm": zeros(layers, sizes.heads, sizes.head_dim, sizes.states),
        },
        step=step_of_layers(partial(_mixer, sizes), sizes.norm_eps),
        family=fields.family,
        names=_names(),
        tied_head=tied,
        description=repr((fields.family, sizes, shapes)),
    )


def _names() -> Table:
    return {
        **mixer_names(),
        "layers/dt_bias_H": Tensor("layers.{}.mixer.dt_bias"),
        "layers/A_log_H": Tensor("layers.{}.mixer.A_log"),
        "layers/D_H": Tensor("layers.{}.mixer.D"),
        "layers/gated_norm/weight": Tensor("layers.{}.mixer.norm.weight"),
    }


def _mixer(
    sizes: _Mamba2Sizes, weights: Tree, before: Tree, x_TD: jax.Array
) -> tuple[jax.Array, Tree]:
    length = x_TD.shape[0]
    channels = sizes.channels
    groups = sizes.groups
    projected = matmul(weights["in"], x_TD)
    gate_TC = projected[:, :channels]
    mixed = projected[:, channels : -sizes.heads]
    dt_TH = projected[:, -sizes.heads :]
    mixed, conv = causal_conv(weights["conv"], before["conv"], mixed)
    mixed = ACTIVATE[sizes.activation](mixed)
    x_TC, b_TC, c_TC = jnp.split(mixed, (channels, channels + groups * sizes.states), axis=-1)
    x_TGEP = x_TC.reshape(length, groups, -1, sizes.head_dim)
    dt_TH = jnp.clip(jax.nn.softplus(dt_TH + weights["dt_bias_H"][None]), *sizes.time_step_limit)
    log_decay_TH = -jnp.exp(weights["A_log_H"])[None] * dt_TH
    of_groups = [x.reshape(length, groups, -1) for x in (dt_TH, log_decay_TH, b_TC, c_TC)]
    h_GEPN = before["ssm"].reshape(groups, -1, *before["ssm"].shape[1:])
    y_TGEP, h_GEPN = _in_blocks(h_GEPN, x_TGEP, *of_groups)
    y_TGEP = y_TGEP + weights["D_H"].reshape(1, groups, -1, 1) * x_TGEP
    gated_TGC = y_TGEP.reshape(length, groups, -1) * jax.nn.silu(gate_TC).reshape(
        length, groups, -1
    )
    normed_TC = (
        rms_norm(gated_TGC, sizes.norm_eps).reshape(length, channels)
        * weights["gated_norm"]["weight"][None]
    )
    return matmul(weights["out"], normed_TC), {
        "conv": conv,
        "ssm": h_GEPN.reshape(before["ssm"].shape),
    }


def _in_blocks(h_GEPN: jax.Array, *tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(outputs, the last state) of all tokens, BLOCK at a time."""
    length = tokens[0].shape[0]
    if length <= BLOCK:
        h_GEPN, y_TGEP = _block(h_GEPN, *tokens)
        return y_TGEP, h_GEPN
    blocks = -(-length // BLOCK)
    # Tokens behind the end have a time step of 0, which leaves the state as it is.
    padded = [jnp.pad(x, [(0, blocks * BLOCK - length), *[(0, 0)] * (x.ndim - 1)]) for x in tokens]
    by_block = [x.reshape(blocks, BLOCK, *x.shape[1:]) for x in padded]
    h_GEPN, y = jax.lax.scan(lambda h, block: _block(h, *block), h_GEPN, by_block)
    return y.reshape(blocks * BLOCK, *y.shape[2:])[:length], h_GEPN


def _block(
    h_GEPN: jax.Array,
    x_TGEP: jax.Array,
    dt_TGE: jax.Array,
    log_decay_TGE: jax.Array,
    b_TGN: jax.Array,
    c_TGN: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """(the last state, outputs) of a few tokens."""
    length = x_TGEP.shape[0]
    so_far_TGE = jnp.cumsum(log_decay_TGE, axis=0)
    is_up_to_TS = jnp.tril(jnp.ones((length, length), bool))
    # Sums between two tokens, each by itself: differences of `so_far` would cancel.
    is_after_TS11 = jnp.tril(is_up_to_TS, -1)[:, :, None, None]
    between_TSGE = jnp.cumsum(jnp.where(is_after_TS11, log_decay_TGE[:, None], 0.0), axis=0)
    weight_TSGE = (
        jnp.exp(jnp.where(is_up_to_TS[:, :, None, None], between_TSGE, -jnp.inf))
        * jnp.einsum("tgn,sgn->tsg", c_TGN, b_TGN)[..., None]
        * dt_TGE[None]
    )
    y_TGEP = jnp.einsum("tsge,sgep->tgep", weight_TSGE, x_TGEP)
    y_TGEP = y_TGEP + jnp.exp(so_far_TGE)[..., None] * jnp.einsum("tgn,gepn->tgep", c_TGN, h_GEPN)
    left_TGE = jnp.exp(between_TSGE[-1]) * dt_TGE
    added_GEPN = jnp.einsum("tgep,tgn->gepn", x_TGEP * left_TGE[..., None], b_TGN)
    return jnp.exp(so_far_TGE[-1])[..., None, None] * h_GEPN + added_GEPN, y_TGEP


FAMILIES = {"mamba2": Family(_model, names_of)}
