"""Tiny classifiers of Russian texts with random weights, as transformers writes them with torch, and their probabilities as
MERA's code asks for them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

PHRASES = ("ты добрый кот", "сам ты пёс", "мы все ушли домой!", "Это очень, очень глупо.", "да")
STYLE, MEANING, FLUENCY = ("neutral", "toxic"), ("not_paraphrase", "paraphrase"), ("LABEL_0", "LABEL_1")


def classifier(folder: Path, family: str, labels: Sequence[str], seed: int = 0, **fields: Any) -> Path:
    """A folder with config.json, tokenizer and safetensors.  Weights are large, so that texts differ by much."""
    import torch
    from transformers import AutoModelForSequenceClassification, BertConfig, RobertaConfig

    kind, first, room = (BertConfig, 0, 512) if family == "bert" else (RobertaConfig, 1, 514)
    tokenizer = tokenizer_of(family)
    config = kind(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        pad_token_id=first, max_position_embeddings=room, type_vocab_size=2 - first, initializer_range=0.4,
        id2label=dict(enumerate(labels)), label2id={name: i for i, name in enumerate(labels)}, **fields,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_config(config)
    for name, tensor in model.named_parameters():
        if tensor.ndim == 1:  # biases and norms, which begin as 0 and 1
            tensor.data += 0.3 * torch.randn(tensor.shape)
        elif "classifier" in name:
            tensor.data *= 4
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    named = {"tokenizer_class": "BertTokenizer" if family == "bert" else "RobertaTokenizer", "do_lower_case": False}
    path.write_text(json.dumps({**json.loads(path.read_text()), **named}))
    return folder


def tokenizer_of(family: str) -> Any:
    """[CLS] a [SEP] b [SEP] of two kinds of tokens, or <s> a </s></s> b </s> with padding at 1."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    if family == "bert":
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False)
        tokenizer.train_from_iterator(PHRASES, trainer)
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(PHRASES, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def probabilities(folder: Path, label: int, *texts: Sequence[str]) -> np.ndarray:
    """The label's probability for each text or pair, in torch, each by itself: no row is padded."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    values = []
    for row in zip(*texts, strict=True):
        inputs = tokenizer(*([text] for text in row), return_tensors="pt", truncation=True, max_length=512)
        assert ("token_type_ids" in inputs) == (model.config.model_type == "bert")
        with torch.no_grad():
            values.append(torch.softmax(model(**inputs).logits, -1)[0, label].item())
    return np.array(values)
