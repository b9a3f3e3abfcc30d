# type: ignore
"""Levanter and marin: a callback of the trainer that scores its model.

python with_levanter.py      # a tiny Llama, 7 steps, scored after the 3rd, 6th and last
"""

import miron_jax  # first: some versions of jaxlib need a flag before jax starts

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import optax
from levanter.callbacks import Callback
from levanter.layers.attention import AttentionMask
from levanter.models.llama import LlamaConfig
from levanter.models.lm_model import LmExample
from levanter.tracker import NoopConfig
from levanter.trainer import Trainer, TrainerConfig
from miron_jax.model import demo


def own_model(model, tokenizer) -> miron_jax.OwnModel:
    """What any of levanter's language models computes."""
    params, rest = eqx.partition(model, eqx.is_array)

    def logits(params, token_ids):  # [B, T] -> [B, T, vocabulary]
        batch, position = hax.Axis("batch", len(token_ids)), model.Pos.resize(token_ids.shape[1])
        named = hax.named(token_ids, (batch, position))
        scored = eqx.combine(params, rest)(named, attn_mask=AttentionMask.causal())
        return scored.rearrange((batch, position, model.Vocab)).array

    return miron_jax.OwnModel(model.Vocab.size, logits, params=params, tokenizer=tokenizer)


class Score(Callback):
    """trainer.add_hook(Score(evaluator)), and so in marin.  Levanter calls none after two steps."""

    def __init__(self, evaluator: miron_jax.Evaluator):
        self.evaluator = evaluator

    def on_step(self, info, force=False):
        self.evaluator.after_step(eqx.filter(info.eval_model, eqx.is_array), info.next_step, force)


if __name__ == "__main__":
    config = LlamaConfig(max_seq_len=256, hidden_dim=32, num_layers=2, num_heads=4, num_kv_heads=4)
    model = config.build(hax.Axis("vocab", 1280), key=jax.random.key(0))
    scored = {"tasks": ["miron-gen/en"], "items_per_category": 1, "output": "levanter-results"}
    evaluator = miron_jax.Evaluator(own_model(model, demo.FOLDER), **scored, every=3)
    texts = hax.named(jnp.tile(jnp.arange(64) % 9, (4, 1)), ("batch", model.Pos.resize(64)))
    batch = hax.vmap(LmExample.causal, "batch")(texts)
    settings = TrainerConfig(id="tiny", tracker=NoopConfig(), num_train_steps=7, train_batch_size=4)

    def loss(model, example, key=None):
        return model.compute_next_token_loss(example, key=key).scalar()

    with Trainer(settings, optax.adam(1e-3), loss, add_default_hooks=False) as trainer:
        trainer.add_hook(Score(evaluator))
        trainer.train(trainer.initial_state(jax.random.key(0), model=model), iter([batch] * 7))
