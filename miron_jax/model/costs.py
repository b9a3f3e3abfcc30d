"""What rows of a model cost, for the planner, and what work its answers need.

Arrives: a model's configuration.  Leaves: a `CostModel`, FLOPs.  It deliberately does not know devices or weights.
"""

import math
from dataclasses import replace

import jax

from miron_jax.model.config import ModelConfig, RopeClasses, attention_flops_per_pair, matmul_params
from miron_jax.model.own import OwnModel
from miron_jax.planning.records import CostModel, Plan

SLOW_ATTENTION = (
    3.0  # an attention FLOP takes as long as three of a weight matmul (2-core CPU, rows of 512, heads of 64)
)
COMPILE_FLOPS = (
    3e11  # what a 2-core CPU computes while one more program is compiled; an accelerator takes every program
)


def cost_model(config: ModelConfig | OwnModel, max_lengths: int = 8) -> CostModel:
    """What rows of this model cost, for the planner.  Of a user's own model only the weights are known: each is taken to
    meet every token, and attention to cost nothing."""
    if isinstance(config, OwnModel):
        own = CostModel(own_flops(config), 0.0, COMPILE_FLOPS, max_lengths=max_lengths)
        return own if config.is_forest else replace(own, sharing="path", max_slots=config.num_positions)
    return CostModel(
        flops_per_token=2.0 * matmul_params(config),
        flops_per_pair=SLOW_ATTENTION * attention_flops_per_pair(config),
        flops_per_program=COMPILE_FLOPS,
        max_lengths=max_lengths,
        length_class=None if config.rope_classes is None else config.rope_classes.class_of,
    )


def rope_classes_of(config: ModelConfig | OwnModel) -> RopeClasses | None:
    return None if isinstance(config, OwnModel) else config.rope_classes


def own_flops(own: OwnModel) -> float:
    """FLOPs a token, two a weight of a matrix; 1 where the weights are not known yet."""
    return 2.0 * sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(own.params) if leaf.ndim > 1) or 1.0


def useful_flops(config: ModelConfig | OwnModel, plan: Plan) -> float:
    """FLOPs the answers need: weights at unique tokens, attention over visible pairs, the head at the parent nodes."""
    if isinstance(config, OwnModel):
        return own_flops(config) * plan.unique_tokens
    head = 2.0 * config.d_model * config.vocab_size * plan.num_parents
    linear = 2.0 * matmul_params(config) * plan.unique_tokens
    return linear + float(attention_flops_per_pair(config)) * plan.visible_pairs + head
