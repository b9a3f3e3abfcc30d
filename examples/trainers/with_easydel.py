# type: ignore
"""EasyDeL: a trainer that scores its model after a step.

python with_easydel.py             # a tiny Llama, 4 steps, scored after the 2nd and the 4th
"""

import miron_jax  # first: some versions of jaxlib need a flag before jax starts

import datasets
import easydel
import jax.numpy as jnp
from flax import nnx
from miron_jax.model import demo
from transformers import AutoTokenizer


def own_model(model, vocab_size, tokenizer) -> miron_jax.OwnModel:
    """What any of EasyDeL's causal language models computes."""
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)

    def logits(params, token_ids):  # [B, T] -> [B, T, vocabulary]
        with model.mesh:
            return nnx.merge(graphdef, params, rest)(input_ids=token_ids).logits

    return miron_jax.OwnModel(vocab_size, logits, params=params, tokenizer=tokenizer)


class ScoringTrainer(easydel.Trainer):
    """The same for easydel.SFTTrainer and others: they call the same method."""

    evaluator: miron_jax.Evaluator

    def on_step_end(self, state, metrics, step):
        is_last = step == self.max_training_steps
        self.evaluator.after_step(nnx.state(state.model, nnx.Param), step, is_last)
        return state, metrics


if __name__ == "__main__":
    config = easydel.LlamaConfig(
        vocab_size=1280, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    model = easydel.LlamaForCausalLM(config=config, param_dtype=jnp.float32, rngs=nnx.Rngs(0))
    scored = {"tasks": ["miron-gen/en"], "items_per_category": 1, "output": "easydel-results"}
    evaluator = miron_jax.Evaluator(own_model(model, 1280, demo.FOLDER), **scored, every=2)
    row = {"input_ids": [i % 9 for i in range(64)], "attention_mask": [1] * 64}
    settings = easydel.TrainingArguments(
        max_training_steps=4, total_batch_size=4, num_train_epochs=1, max_length=64,
        save_directory="easydel-checkpoints", do_last_save=False, use_wandb=False,
    )  # fmt: skip
    ScoringTrainer.evaluator = evaluator
    trainer = ScoringTrainer(
        arguments=settings, model=model, dataset_train=datasets.Dataset.from_list([row] * 64),
        processing_class=AutoTokenizer.from_pretrained(demo.FOLDER),
    )  # fmt: skip
    trainer.train()
