"""Trains nnx_model on a little text, saves Orbax checkpoints, and scores the weights every few
steps.

    python training_loop.py --steps=60                   # run-results/step_20, step_40, step_60
    python training_loop.py --steps=80                   # goes on from the last checkpoint
    miron-jax eval --model=nnx_model:make --checkpoint=checkpoints --tasks=miron-gen/en  # the same

Needs optax (pip install miron-jax[demo-train]).
"""

import miron_jax  # first: some versions of jaxlib need a flag before jax starts

from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
from absl import app, flags
from miron_jax.model import demo
from nnx_model import make
from transformers import AutoTokenizer

STEPS = flags.DEFINE_integer("steps", 60, "Steps to train, those of an earlier run included.")
EVERY = flags.DEFINE_integer("every", 20, "Steps between two checkpoints, each of which is scored.")
CHECKPOINTS = flags.DEFINE_string("checkpoints", "checkpoints", "Folder of the checkpoints.")
OUTPUT = flags.DEFINE_string("output", "run-results", "Folder of the results.")
TEXT = "One wug, two wugs. One fep, two feps. One blick, two blicks. "
BATCH, LENGTH = 8, 32


def batches() -> jax.Array:
    """Token ids [BATCH, LENGTH + 1]."""
    token_ids = AutoTokenizer.from_pretrained(demo.FOLDER)(TEXT * 40)["input_ids"]
    return jnp.asarray(token_ids[: BATCH * (LENGTH + 1)]).reshape(BATCH, LENGTH + 1)


def main(_: list[str]) -> None:
    model, batch, optimizer = make(), batches(), optax.adamw(1e-2)
    evaluator = miron_jax.Evaluator(
        model, tasks=["miron-gen/en"], items_per_category=12, output=OUTPUT.value
    )

    def loss(params):
        seen = miron_jax.Visibility.causal(BATCH, LENGTH)  # one text a row
        hidden = model.hidden(params, batch[:, :-1], seen.position_BT, seen)
        logits = hidden @ model.head(params).T
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()

    @jax.jit
    def train(params, memory):
        value, gradient = jax.value_and_grad(loss)(params)
        updates, memory = optimizer.update(gradient, memory, params)
        return optax.apply_updates(params, updates), memory, value

    state = {"params": model.params, "memory": optimizer.init(model.params)}
    with ocp.CheckpointManager(Path(CHECKPOINTS.value).absolute()) as manager:
        if (last := manager.latest_step()) is not None:
            state = manager.restore(last, args=ocp.args.StandardRestore(state))
        for step in range((last or 0) + 1, STEPS.value + 1):
            params, memory, value = train(state["params"], state["memory"])
            state = {"params": params, "memory": memory}
            if step % EVERY.value == 0:
                manager.save(step, args=ocp.args.StandardSave(state))
                metrics = evaluator.run(params, step=step)["tasks"]["miron-gen/en"]["metrics"]
                print(
                    f"step {step}: loss {value:.3f}, {metrics['bits_per_byte']['value']:.4f} bits "
                    "per byte"
                )


if __name__ == "__main__":
    app.run(main)
