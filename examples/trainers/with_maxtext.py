# type: ignore
"""MaxText: a hook after each step of its pre-training that scores its model.

    python with_maxtext.py CONFIG.yml steps=10000 ...    # as maxtext.trainers.pre_train.train takes

What is scored and how often stands in EVALUATOR: a config of MaxText takes no keys but its own.
"""

import miron_jax  # first: some versions of jaxlib need a flag before jax starts

import sys

import jax
import jax.numpy as jnp
from flax import nnx
from maxtext.trainers.pre_train import train
from maxtext.utils.model_creation_utils import from_config

EVALUATOR = {"tasks": ["miron-gen/en"], "every": 2, "limit": 1, "output": "maxtext-results"}
iteration = train.training_loop_iteration
evaluators: list[miron_jax.Evaluator] = []


def own_model(config, mesh) -> miron_jax.OwnModel:
    """What MaxText's model of this config computes."""
    model = nnx.eval_shape(lambda: from_config(config, mesh=mesh, rngs=nnx.Rngs(0)))
    graphdef, _, rest = nnx.split(model, nnx.Param, ...)

    def logits(params, token_ids):  # [B, T] -> [B, T, vocabulary]
        places = jnp.broadcast_to(jnp.arange(token_ids.shape[1]), token_ids.shape)
        segments = jnp.ones_like(token_ids)
        merged = nnx.merge(graphdef, params, rest)
        return merged(token_ids, places, decoder_segment_ids=segments, enable_dropout=False)

    return miron_jax.OwnModel(config.vocab_size, logits, tokenizer=config.tokenizer_path)


def scored_iteration(device, variables, fixed):
    """An iteration of MaxText's loop, and a score where one is due."""
    metrics = iteration(device, variables, fixed)
    if not evaluators:
        model = own_model(fixed["config"], device["mesh"])
        evaluators.append(miron_jax.Evaluator(model, **EVALUATOR))
    params = device["state"]["model"].filter(nnx.Param)
    step = variables["step"] + 1
    with jax.set_mesh(device["mesh"]):
        evaluators[0].after_step(params, step, is_last=step == fixed["steps"])
    return metrics


if __name__ == "__main__":
    train.training_loop_iteration = scored_iteration
    train.main(sys.argv)
