"""Costs of a model's rows for the planner, and the FLOPs that a plan needs.

Arrives: a ModelConfig or an OwnModel.  Leaves: a `CostModel`, FLOPs.  It deliberately does not know devices or weights.
"""

import math
from dataclasses import replace

import jax

from miron_jax.model.config import ModelConfig, RopeClasses, attention_flops_per_pair, matmul_params
from miron_jax.model.families.family_model import FamilyModel
from miron_jax.model.own import OwnModel
from miron_jax.planning.records import CostModel, Plan

# Duration of an attention FLOP, in FLOPs of a weight matmul (measured on a 2-core CPU, rows of 512, heads of 64)
SLOW_ATTENTION = 3.0
# FLOPs that a 2-core CPU computes while it compiles one program; an accelerator computes more, so it uses every program
COMPILE_FLOPS = 3e11


def cost_model(config: ModelConfig | OwnModel, max_lengths: int = 8) -> CostModel:
    """Costs of this model's rows in FLOPs.

    Of a user's own model only the weights are known: the cost assumes a matmul of each weight with every token, and no
    attention.
    """
    if isinstance(config, OwnModel):
        cost = CostModel(own_model_flops(config), 0.0, COMPILE_FLOPS, max_lengths=max_lengths)
        return cost if config.is_forest else replace(cost, sharing="path", max_slots=config.num_positions)
    return CostModel(
        flops_per_token=2.0 * matmul_params(config),
        flops_per_pair=SLOW_ATTENTION * attention_flops_per_pair(config),
        flops_per_program=COMPILE_FLOPS,
        max_lengths=max_lengths,
        length_class=None if config.rope_classes is None else config.rope_classes.class_of,
    )


def rope_classes_of(config: ModelConfig | OwnModel) -> RopeClasses | None:
    """The RoPE scaling classes; None if there are none, or for a user's own model."""
    return None if isinstance(config, OwnModel) else config.rope_classes


def own_model_flops(model: OwnModel) -> float:
    """FLOPs per token, two for each weight of a matrix; 1 if the weights are not known yet.  Of a model of a known family
    those of its layers."""
    if isinstance(model, FamilyModel):
        return 2.0 * model.matmul_params
    return 2.0 * sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(model.params) if leaf.ndim > 1) or 1.0


def useful_flops(config: ModelConfig | OwnModel, plan: Plan) -> float:
    """FLOPs that a plan needs: weights at unique tokens, attention over visible pairs, the head at the parent nodes."""
    if isinstance(config, OwnModel):
        head = 2.0 * config.head_params * plan.num_parents if isinstance(config, FamilyModel) else 0.0
        return own_model_flops(config) * plan.unique_tokens + head
    head = 2.0 * config.d_model * config.vocab_size * plan.num_parents
    linear = 2.0 * matmul_params(config) * plan.unique_tokens
    return linear + float(attention_flops_per_pair(config)) * plan.visible_pairs + head
