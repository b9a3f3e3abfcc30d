# type: ignore
"""A loop of your own: a Linen module in flax's TrainState, Optax, batches by Grain.

python linen_loop.py               # linen_model.py beside this folder, scored after 20 and 40
"""

import miron_jax  # first: some versions of jaxlib need a flag before jax starts

import sys
from pathlib import Path

import grain.python as grain
import jax
import numpy as np
import optax
from flax.training.train_state import TrainState
from miron_jax.model import demo
from transformers import AutoTokenizer

sys.path.append(str(Path(__file__).resolve().parent.parent))
from linen_model import make

TEXT = "One wug, two wugs. One fep, two feps. One blick, two blicks. "


@jax.jit
def train(state, token_ids):
    def loss(params):
        seen = miron_jax.Visibility.causal(token_ids.shape[0], token_ids.shape[1] - 1)
        hidden = state.apply_fn(params, token_ids[:, :-1], seen.position_BT, seen)
        logits = hidden @ model.head(params).T
        return optax.softmax_cross_entropy_with_integer_labels(logits, token_ids[:, 1:]).mean()

    value, gradient = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=gradient), value


model = make()
state = TrainState.create(apply_fn=model.hidden, params=model.params, tx=optax.adamw(1e-2))
scored = {"tasks": ["miron-gen/en"], "items_per_category": 2, "output": "linen-results"}
evaluator = miron_jax.Evaluator(model, **scored, every=20)
token_ids = np.asarray(AutoTokenizer.from_pretrained(demo.FOLDER)(TEXT * 80)["input_ids"])
rows = token_ids[: len(token_ids) // 33 * 33].reshape(-1, 33)
batches = grain.MapDataset.source(rows).seed(0).shuffle().repeat().batch(8)
for step in range(1, 41):
    state, value = train(state, batches[step])
    if run := evaluator.after_step(state.params, step, is_last=step == 40):
        metrics = run.result()["tasks"]["miron-gen/en"]["metrics"]
        print(f"step {step}: loss {value:.3f}, {metrics['bits_per_byte']['value']:.4f}")
