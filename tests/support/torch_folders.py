"""Hugging Face folders with random weights, written by transformers with torch, and the kinds of tokenizers there are."""

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.needs import needs
from tests.support.tiny_model import WORDS

BOS, EOS, END = "<s>", "</s>", "<|end|>"
# Messages as a template writes them; gemma's refuses those of the system.
TURN = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
TEMPLATE = TURN + "{% if add_generation_prompt %}<you>{% endif %}"
REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
# llama: BOS before each text, another EOS in the tokenizer than in generation_config.json, both drawn often.  gpt2: one
# special token, before no text; learned positions.  gemma: spaces are part of words, the first one is lost when a text is
# decoded; windows.
FOLDERS = ("llama", "gpt2", "gemma")


def torch_folder(kind: str, folder: Path) -> Path:
    """The folder of a model of this kind."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(_config(kind))
    model.generation_config.eos_token_id = model.config.eos_token_id
    if kind == "llama":
        model.lm_head.weight.data[1:3] *= 3
    model.float().save_pretrained(folder)
    tokenizer_of(kind).save_pretrained(folder)
    return folder


def _config(kind: str) -> Any:
    from transformers import Gemma3TextConfig, GPT2Config, LlamaConfig

    if kind == "gpt2":
        return GPT2Config(
            vocab_size=400, n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.4, bos_token_id=0,
            eos_token_id=0,
        )  # fmt: skip
    more: dict[str, Any] = {
        "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "max_position_embeddings": 64, "vocab_size": 400,
        "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "initializer_range": 0.4, "head_dim": 8,
        "num_key_value_heads": 1, "intermediate_size": 24,
    }  # fmt: skip
    if kind == "llama":
        return LlamaConfig(**more)
    return Gemma3TextConfig(**more, sliding_window=8, query_pre_attn_scalar=8)


def tokenizer_of(kind: str) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = {"gpt2": ["<|endoftext|>"], "llama": [BOS, EOS, END], "gemma": [BOS, EOS]}[kind]
    lines = [" ".join(WORDS), "é ñ ☀ \n\t", " hot hot  hot"]
    if kind == "gemma":
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token=None))
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256))]
        trainer = trainers.BpeTrainer(vocab_size=390, special_tokens=tokens, show_progress=False)
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=390, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
    tokenizer.train_from_iterator(lines * 4, trainer)
    if kind != "gpt2":
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=special[0], eos_token=special[-1], pad_token=special[-1],
        additional_special_tokens=special, model_max_length=64,
    )  # fmt: skip
    fast.chat_template = {"gpt2": None, "llama": TEMPLATE, "gemma": REFUSES + TEMPLATE}[kind]
    return fast


def save_tiny(folder: Path, architecture: str, fields: dict[str, Any], **save: Any) -> Any:
    """A seeded random model whose every parameter, biases and norms too, differs from its neutral value."""
    torch = needs("torch")
    transformers = needs("transformers")
    prefix = f"{architecture}Text" if architecture in ("Gemma3", "Gemma3n") else architecture
    head = "LMHeadModel" if architecture == "GPT2" else "ForCausalLM"
    config = getattr(transformers, f"{prefix}Config")(**fields)
    torch.manual_seed(7)
    # eager: SDPA has no place for a soft cap, and the oracle should be the plainest program there is; but Falcon's eager
    # program of transformers 5.x adds ALiBi twice, with the mask and before it, which its SDPA does not
    plain = {"attn_implementation": "sdpa" if fields.get("alibi") else "eager", "experts_implementation": "eager"}
    model = getattr(transformers, f"{architecture}{head}")._from_config(config, **plain).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.ndim == 1 else 0.1))
    model.save_pretrained(folder, **save)
    return model


def torch_logprobs(model: Any, token_ids: np.ndarray) -> np.ndarray:
    torch = needs("torch")
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor(token_ids)).logits.double(), dim=-1).numpy()
