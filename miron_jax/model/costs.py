"""Costs of a model's rows for the planner, and the FLOPs that a plan needs.

Arrives: a ModelConfig or a Network.  Leaves: a `CostModel`, FLOPs.  It deliberately does not know
devices or weights.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig, attention_flops_per_pair, matmul_params
from miron_jax.model.network import Network
from miron_jax.planning.records import CostModel, Plan

# Duration of an attention FLOP, in FLOPs of a weight matmul (measured on a 2-core CPU, rows of 512,
# heads of 64)
SLOW_ATTENTION = 3.0
# FLOPs that a 2-core CPU computes while it compiles one program; an accelerator computes more, so
# it uses every program
COMPILE_FLOPS = 3e11


def cost_model(config: ModelConfig | Network, max_lengths: int = 8) -> CostModel:
    """Costs of this model's rows in FLOPs.

    Of a `Network` only the weights are known: the cost assumes a matmul of each with every token,
    and no attention.
    """
    if isinstance(config, Network):
        cost = CostModel(network_flops(config), 0.0, COMPILE_FLOPS, max_lengths=max_lengths)
        if not config.is_forest:
            cost = replace(cost, sharing="path", max_slots=config.num_positions)
        return cost
    return CostModel(
        flops_per_token=2.0 * matmul_params(config),
        flops_per_pair=SLOW_ATTENTION * attention_flops_per_pair(config),
        flops_per_program=COMPILE_FLOPS,
        max_lengths=max_lengths,
        length_class=None if config.rope_classes is None else config.rope_classes.class_of,
    )


def network_flops(network: Network) -> float:
    """FLOPs per token, two for each weight of a matrix; 1 if the weights are not known yet."""
    return 2.0 * network.matmul_params or 1.0


def flops_per_token(config: ModelConfig | Network) -> float | None:
    """FLOPs of a forward pass for one token through all matmuls with weights, the head among them,
    without scores and sums of attention: of experts only the active ones count.  None: it is not
    known which weights are multiplied, and which are looked up."""
    if isinstance(config, Network):
        return None
    return 2.0 * (matmul_params(config) + config.d_model * config.vocab_size)


def useful_flops(config: ModelConfig | Network, plan: Plan) -> float:
    """FLOPs that a plan needs: weights at unique tokens, attention over visible pairs, the head at
    the parent nodes."""
    if isinstance(config, Network):
        return (
            network_flops(config) * plan.unique_tokens + 2.0 * config.head_params * plan.num_parents
        )
    head = 2.0 * config.d_model * config.vocab_size * plan.num_parents
    linear = 2.0 * matmul_params(config) * plan.unique_tokens
    return linear + float(attention_flops_per_pair(config)) * plan.visible_pairs + head
