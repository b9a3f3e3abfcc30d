"""A byte-level tokenizer of 400 tokens, trained in place; no network."""

from collections.abc import Sequence

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from miron_jax.tokens.tokenizers import resolve_bos


def trained(special_tokens: Sequence[str]) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet, special = sorted(pre_tokenizers.ByteLevel.alphabet()), list(special_tokens)
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    corpus = ["the cat sat on the mat", "the sky is blue and the sea is blue", "Answer: the answer is the mat"] * 20
    backend.train_from_iterator(corpus, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend)


TINY = trained(["<|endoftext|>"])
BOS = resolve_bos(TINY).id
