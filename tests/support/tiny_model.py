"""A tiny Llama folder made without torch: random weights, a byte-level tokenizer trained in place, CORE-like data."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

WORDS = ("the", "sun", "is", "hot", "and", "cold", "rain", "falls", "on", "a", "green", "hill", "where", "small")


def make_tokenizer(folder: Path, vocabulary: int = 320, texts: Sequence[str] = (" ".join(WORDS),) * 4) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<|bos|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|bos|>").save_pretrained(folder)


def make_model(folder: Path, layers: int = 2, width: int = 24, vocabulary: int = 331, seed: int = 0) -> Path:
    """Vocabulary is larger than the tokenizer's and prime; 3 heads on 1 key-value head."""
    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(folder)
    rng = np.random.default_rng(seed)
    heads, kv_heads, size, wide = 3, 1, 8, 40
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocabulary, "hidden_size": width,
        "intermediate_size": wide, "num_hidden_layers": layers, "num_attention_heads": heads, "head_dim": size,
        "num_key_value_heads": kv_heads, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "hidden_act": "silu", "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))

    def draw(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) * 0.3).astype(np.float32)

    tensors = {"model.embed_tokens.weight": draw(vocabulary, width), "model.norm.weight": 1 + draw(width)}
    matrices = {
        "self_attn.q_proj": (heads * size, width), "self_attn.k_proj": (kv_heads * size, width),
        "self_attn.v_proj": (kv_heads * size, width), "self_attn.o_proj": (width, heads * size),
        "mlp.gate_proj": (wide, width), "mlp.up_proj": (wide, width), "mlp.down_proj": (width, wide),
    }  # fmt: skip
    for layer in (f"model.layers.{i}" for i in range(layers)):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{layer}.{norm}.weight"] = 1 + draw(width)
        tensors |= {f"{layer}.{name}.weight": draw(*shape) for name, shape in matrices.items()}
    save_file(tensors, str(folder / "model.safetensors"))
    return folder


def write_core_data(folder: Path, rows: int = 14, seed: int = 1) -> Path:
    """Files under the names of four CORE tasks, own words in them; their hashes are not the published ones."""
    rng = random.Random(seed)

    def text(words: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(words))

    def schema() -> dict[str, object]:
        contexts = [f"{text(5)} sun", f"{text(5)} rain"]
        return {"context_options": contexts, "continuation": text(4), "gold": rng.randrange(2)}

    lines: dict[str, list[dict[str, object]]] = {
        "commonsense_reasoning/copa.jsonl": [
            {"query": text(6), "choices": [text(3), text(5)], "gold": rng.randrange(2)} for _ in range(rows)
        ],
        "world_knowledge/arc_easy.jsonl": [
            {"query": f"Question: {text(8)}", "choices": [text(k) for k in (1, 2, 3, 4)], "gold": rng.randrange(4)}
            for _ in range(rows)
        ],
        "language_understanding/winograd_wsc.jsonl": [schema() for _ in range(rows)],
        "language_understanding/lambada_openai.jsonl": [
            {"context": text(20), "continuation": rng.choice(WORDS)} for _ in range(rows)
        ],
    }
    for name, entries in lines.items():
        path = folder / "eval_data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return folder


def spoil_token(folder: Path, token: int) -> Path:
    """The model of `make_model` with an untied copy of its head, and with NaN as the embedding of one token."""
    tensors = load_file(str(folder / "model.safetensors"))
    embedding = tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = embedding.copy()
    embedding[token] = np.nan
    save_file(tensors, str(folder / "model.safetensors"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    return folder
