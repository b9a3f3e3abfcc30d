# type: ignore
"""Tunix: a hook of its trainer that scores its model.

python with_tunix.py               # a tiny Llama 3, 4 steps, scored after the 2nd and the 4th
"""

import miron_jax  # first: some versions of jaxlib need a flag before jax starts

import jax.numpy as jnp
import optax
from flax import nnx
from miron_jax.model import demo
from tunix.models.llama3.model import Llama3, ModelConfig
from tunix.sft import hooks, peft_trainer


def arguments(token_ids):
    """What tunix's models take: [B, T] tokens, positions, no cache, [B, T, T] causal mask."""
    positions = jnp.broadcast_to(jnp.arange(token_ids.shape[1]), token_ids.shape)
    return token_ids, positions, None, positions[:, :, None] >= positions[:, None]


def own_model(model, vocab_size, tokenizer) -> miron_jax.OwnModel:
    """What any of tunix's language models computes."""
    graphdef, params = nnx.split(model)
    logits = lambda params, ids: nnx.merge(graphdef, params)(*arguments(ids))[0]  # noqa: E731
    return miron_jax.OwnModel(vocab_size, logits, params=params, tokenizer=tokenizer)


class Score(hooks.TrainingHooks):
    """trainer.with_training_hooks(Score(evaluator)).  Tunix calls the end of a step late."""

    def __init__(self, evaluator: miron_jax.Evaluator):
        self.evaluator, self.scored = evaluator, 0

    def on_train_step_start(self, trainer, is_last=False):
        if trainer.train_steps > self.scored:  # several starts are one step of accumulation
            self.scored = trainer.train_steps
            self.evaluator.after_step(nnx.state(trainer.model), self.scored, is_last)

    on_train_end = lambda self, trainer: self.on_train_step_start(trainer, True)  # noqa: E731
    on_train_start = on_eval_step_start = lambda *_: None
    on_train_step_end = on_eval_step_end = on_train_start


if __name__ == "__main__":
    sizes = {"embed_dim": 32, "hidden_dim": 40, "num_heads": 4, "num_kv_heads": 2, "head_dim": 8}
    rules = {"num_layers": 2, "vocab_size": 1280, "rope_theta": 10_000, "norm_eps": 1e-5}
    model = Llama3(ModelConfig(**sizes, **rules), rngs=nnx.Rngs(0))
    scored = {"tasks": ["miron-gen/en"], "items_per_category": 1, "output": "tunix-results"}
    evaluator = miron_jax.Evaluator(own_model(model, 1280, demo.FOLDER), **scored, every=2)
    settings = peft_trainer.TrainingConfig(eval_every_n_steps=100, max_steps=4)
    trainer = peft_trainer.PeftTrainer(model, optax.adam(1e-3), settings)
    trainer.with_training_hooks(Score(evaluator))
    text, places, _, mask = arguments(jnp.tile(jnp.arange(64) % 9, (4, 1)))
    batch = peft_trainer.TrainingInput(text, jnp.ones_like(text))
    more = {"positions": places, "attention_mask": mask}
    trainer.with_gen_model_input_fn(lambda batch: {**vars(batch), **more})
    trainer.train([batch] * 4)
