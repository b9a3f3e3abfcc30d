# type: ignore
"""A loop of your own: an NNX module, Optax's optimizer in nnx.Optimizer, batches by Grain.

python nnx_loop.py                 # nnx_model.py beside this folder, scored after 20 and 40
"""

import miron_jax  # first: some versions of jaxlib need a flag before jax starts

import sys
from pathlib import Path

import grain.python as grain
import numpy as np
import optax
from flax import nnx
from miron_jax.model import demo
from transformers import AutoTokenizer

sys.path.append(str(Path(__file__).resolve().parent.parent))
from nnx_model import Model

TEXT = "One wug, two wugs. One fep, two feps. One blick, two blicks. "


def own_model(model) -> miron_jax.OwnModel:
    graphdef, params = nnx.split(model)
    return miron_jax.OwnModel(
        vocab_size=1280,
        hidden=lambda params, *batch: nnx.merge(graphdef, params).hidden(*batch),
        head=lambda params: nnx.merge(graphdef, params).tokens.embedding[...],
        params=params, tokenizer=demo.FOLDER, num_positions=512,
    )  # fmt: skip


@nnx.jit
def train(model, optimizer, token_ids):
    def loss(model):
        seen = miron_jax.Visibility.causal(token_ids.shape[0], token_ids.shape[1] - 1)
        hidden = model.hidden(token_ids[:, :-1], seen.position_BT, seen)
        logits = model.tokens.attend(hidden)
        return optax.softmax_cross_entropy_with_integer_labels(logits, token_ids[:, 1:]).mean()

    value, gradient = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradient)
    return value


model = Model(1280, width=64, layers=2, heads=4, rngs=nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adamw(1e-2), wrt=nnx.Param)
scored = {"tasks": ["miron-gen/en"], "items_per_category": 2, "output": "nnx-results"}
evaluator = miron_jax.Evaluator(own_model(model), **scored, every=20)
token_ids = np.asarray(AutoTokenizer.from_pretrained(demo.FOLDER)(TEXT * 80)["input_ids"])
rows = token_ids[: len(token_ids) // 33 * 33].reshape(-1, 33)
batches = grain.MapDataset.source(rows).seed(0).shuffle().repeat().batch(8)
for step in range(1, 41):
    value = train(model, optimizer, batches[step])
    if run := evaluator.after_step(nnx.state(model), step, is_last=step == 40):
        metrics = run.result()["tasks"]["miron-gen/en"]["metrics"]
        print(f"step {step}: loss {value:.3f}, {metrics['bits_per_byte']['value']:.4f}")
