"""Mamba 1 and Falcon Mamba: how config.json is read, the names of the tensors, and what a layer
computes.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.

Gu and Dao, 2023 (arXiv 2312.00752), section 3; Falcon Mamba (arXiv 2410.05355) also norms B, C and
the time step. I channels, N states of a channel, R rank of the time step; other letters as in
recurrent.py.
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
from miron_jax.model.families.naming import Table, Tensor, linear
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
    "vocab_size hidden_size state_size num_hidden_layers layer_norm_epsilon expand "
    "intermediate_size conv_kernel use_bias use_conv_bias hidden_act residual_in_fp32 "
    "time_step_rank time_step_scale time_step_min time_step_max time_step_init_scheme "
    "time_step_floor rescale_prenorm_residual use_mambapy use_falcon_mambapy use_associative_scan "
    "tie_word_embeddings fused_add_norm rms_norm pad_vocab_size_multiple "
)


class _MambaSizes(NamedTuple):
    num_layers: int
    channels: int
    states: int
    rank: int
    conv: int
    norm_eps: float
    activation: str
    mixer_norm_eps: float | None  # Falcon's; None: B, C and the time step are not normed


def _model(fields: Fields, more: str = "") -> FamilyModel:
    for name, same in (
        ("d_model", "hidden_size"),
        ("n_layer", "num_hidden_layers"),
        ("d_inner", "intermediate_size"),
    ):
        fields.allow_same(name, same)  # in the published conversions, which name sizes twice
    fields.allow_only(USED + more)
    check_rescaling(fields)
    if fields.raw.get("rms_norm") is False:
        raise fields.refuse("rms_norm", False, "true, which transformers always does,")
    rank = fields["time_step_rank"]
    fields.expect(
        "time_step_rank", type(rank) is int and rank >= 1, "a number of at least 1, or auto"
    )
    sizes = _MambaSizes(
        fields["num_hidden_layers"],
        fields["intermediate_size"],
        fields["state_size"],
        rank,
        fields["conv_kernel"],
        fields["layer_norm_epsilon"],
        activation(fields, "hidden_act"),
        fields["mixer_rms_eps"] if more else None,
    )
    vocab = fields["vocab_size"]
    width = fields["hidden_size"]
    tied = fields["tie_word_embeddings"]
    layers, channels, states = sizes[:3]
    bias = fields["use_bias"]
    shapes = {
        "embedding_VD": (vocab, width),
        "final_norm/weight": (width,),
        "layers/norm/weight": (layers, width),
        **linear_shapes("layers/in", layers, width, 2 * channels, bias),
        **conv_shapes("layers/conv", layers, channels, sizes.conv, fields["use_conv_bias"]),
        **linear_shapes("layers/x", layers, channels, rank + 2 * states, False),
        **linear_shapes("layers/dt", layers, rank, channels, True),
        "layers/A_log_IN": (layers, channels, states),
        "layers/D_I": (layers, channels),
        **linear_shapes("layers/out", layers, channels, width, bias),
        **({} if tied else {"head_VD": (vocab, width)}),
    }
    return FamilyModel(
        vocab,
        head=head_weight,
        params=tree_of(shapes),
        state=lambda params, num_tokens: {
            "conv": zeros(layers, sizes.conv - 1, channels),
            "ssm": zeros(layers, channels, states),
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
        **linear("layers/x", "layers.{}.mixer.x_proj"),
        **linear("layers/dt", "layers.{}.mixer.dt_proj"),
        "layers/A_log_IN": Tensor("layers.{}.mixer.A_log"),
        "layers/D_I": Tensor("layers.{}.mixer.D"),
    }


def _mixer(
    sizes: _MambaSizes, weights: Tree, before: Tree, x_TD: jax.Array
) -> tuple[jax.Array, Tree]:
    x_TI, gate_TI = jnp.split(matmul(weights["in"], x_TD), 2, axis=-1)
    x_TI, conv = causal_conv(weights["conv"], before["conv"], x_TI)
    x_TI = ACTIVATE[sizes.activation](x_TI)
    parts = jnp.split(matmul(weights["x"], x_TI), (sizes.rank, sizes.rank + sizes.states), axis=-1)
    if sizes.mixer_norm_eps is not None:
        parts = [rms_norm(part, sizes.mixer_norm_eps) for part in parts]
    rank_TR, b_TN, c_TN = parts
    dt_TI = jax.nn.softplus(matmul(weights["dt"], rank_TR))
    a_IN = -jnp.exp(weights["A_log_IN"])

    def token(h_IN: jax.Array, of_token: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        x_I, dt_I, b_N, c_N = of_token
        h_IN = jnp.exp(dt_I[:, None] * a_IN) * h_IN + (dt_I * x_I)[:, None] * b_N[None]
        return h_IN, (h_IN * c_N[None]).sum(axis=-1)

    walk = partial(jax.lax.scan, token)
    # a GPU launches three kernels a token otherwise
    h_IN, y_TI = jax.lax.platform_dependent(
        before["ssm"], (x_TI, dt_TI, b_TN, c_TN), cuda=partial(walk, unroll=16), default=walk
    )
    y_TI = (y_TI + x_TI * weights["D_I"][None]) * jax.nn.silu(gate_TI)
    return matmul(weights["out"], y_TI), {"conv": conv, "ssm": h_IN}


FAMILIES = {
    "mamba": Family(_model, names_of),
    "falcon_mamba": Family(partial(_model, more="mixer_rms_eps"), names_of),
}
