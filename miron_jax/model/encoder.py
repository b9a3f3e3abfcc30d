"""Classifiers of texts: encoders of the kind of BERT or RoBERTa with a head over labels.

Arrives: a Hugging Face folder; token ids.  Leaves: an `Encoder`, its weights, and logits of the
labels.  It deliberately does not know tokenizers, nor what a label means.

What is computed is transformers' BertForSequenceClassification and
RobertaForSequenceClassification, in float32 without dropout.  RoBERTa differs in three things: it
has no kinds of tokens, a token that is not padding has the position of its place among such tokens
plus pad_token_id, and its head has a dense layer where BERT has a pooler.
"""

import re
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.errors import InputError, some_of
from miron_jax.model.checkpoints.hf_config import read_fields
from miron_jax.model.checkpoints.hf_files import Stored, has_tensors, stored_tensors
from miron_jax.model.checkpoints.torch_file import torch_tensors
from miron_jax.model.config import Activation
from miron_jax.model.decoder.modules import ACTIVATE
from miron_jax.model.families.fields import Fields, check_fields, with_whole_numbers
from miron_jax.model.families.reading import activation
from miron_jax.runtime.program_cache import Device

PICKLED = "pytorch_model.bin"
Weights = dict[str, jax.Array]  # by torch's names, those of layers as layer.NAME with an axis L
_FLOATS = ("F64", "F32", "F16", "BF16")
_LAYER = re.compile(r"layer\.")


@dataclass(frozen=True, slots=True)
class Encoder:
    """What a classifier computes."""

    family: Literal["bert", "roberta"]
    vocab_size: int
    num_positions: int
    num_types: int  # kinds of tokens
    d_model: int
    d_ff: int
    num_layers: int
    num_heads: int
    activation: Activation
    norm_eps: float
    pad_id: int
    labels: tuple[str, ...]  # names, by id

    @property
    def longest(self) -> int:
        """Most tokens of a text."""
        return self.num_positions - (self.pad_id + 1 if self.family == "roberta" else 0)

    @property
    def head(self) -> tuple[str, str]:
        """Names of the head's two layers."""
        if self.family == "roberta":
            return "classifier.dense", "classifier.out_proj"
        return "bert.pooler.dense", "classifier"


def read_encoder(folder: Path) -> Encoder:
    """What the folder's config.json describes.  Raises InputError for anything but a BERT or a
    RoBERTa with absolute positions."""
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(
            f"{path}: no such file, expected a folder with config.json, tokenizer and weights of a "
            "classifier; name the folder that save_pretrained wrote"
        )
    raw = with_whole_numbers(read_fields(path))
    family = raw.get("model_type")
    if family not in ("bert", "roberta"):
        raise InputError(
            f"{path}: model_type is {family!r}, expected bert or roberta; score with a function of "
            "your own, package.module:function, if the classifier is of another kind"
        )
    check_fields(path, raw)
    fields = Fields(path, family, raw)
    if raw.get("position_embedding_type") not in (None, "absolute"):
        kind = raw["position_embedding_type"]
        raise fields.refuse("position_embedding_type", kind, "'absolute'")
    if raw.get("is_decoder"):
        raise fields.refuse("is_decoder", True, "false")
    d_model = fields["hidden_size"]
    divides = d_model % fields["num_attention_heads"] == 0
    fields.expect("num_attention_heads", divides, f"a divisor of hidden_size, {d_model},")
    for name in ("type_vocab_size", "pad_token_id"):
        fields.expect(name, type(fields[name]) is int and fields[name] >= 0, "a whole number")
    names = fields["id2label"]
    return Encoder(
        family=family,
        vocab_size=fields["vocab_size"],
        num_positions=fields["max_position_embeddings"],
        num_types=fields["type_vocab_size"],
        d_model=d_model,
        d_ff=fields["intermediate_size"],
        num_layers=fields["num_hidden_layers"],
        num_heads=fields["num_attention_heads"],
        activation=activation(fields, "hidden_act"),
        norm_eps=fields["layer_norm_eps"],
        pad_id=fields["pad_token_id"],
        labels=tuple(str(names[id]) for id in sorted(names)),
    )


def load_encoder(folder: Path, encoder: Encoder, device: Device) -> Weights:
    """The weights on the device, in float32.  Raises InputError as `check_encoder` does."""
    weights: Weights = {}
    with ExitStack() as files:
        stored = check_encoder(folder, encoder, files)
        for name, shape in _shapes(encoder).items():
            host = np.empty(shape, np.float32)
            for target, full_name in _slices(host, name, encoder):
                target[...] = stored[full_name].array[:]
            weights[name] = jax.device_put(host, device)
    return weights


def check_encoder(folder: Path, encoder: Encoder, files: ExitStack) -> dict[str, Stored]:
    """The folder's tensors, in files that `files` closes.

    Raises InputError if one is missing, such as the head, which transformers would then draw at
    random, or has another shape than config.json says.
    """
    if (folder / PICKLED).is_file() and not has_tensors(folder):
        stored = torch_tensors(folder / PICKLED, files)
    else:
        stored = stored_tensors(folder, files)
    for name, shape in _shapes(encoder).items():
        template = np.broadcast_to(np.float32(0), shape)
        for part, full_name in _slices(template, name, encoder):
            if full_name not in stored:
                raise InputError(
                    f"{folder}: no tensor {full_name} (it has {some_of(sorted(stored), 3)}), "
                    f"expected a {encoder.family} with a trained head over labels "
                    "(ForSequenceClassification): name another classifier"
                )
            tensor = stored[full_name]
            if tensor.shape != part.shape or tensor.dtype not in _FLOATS:
                raise InputError(
                    f"{tensor.file}: tensor {full_name} is {tensor.dtype} of the shape "
                    f"{list(tensor.shape)}, config.json expects floats of the shape "
                    f"{list(part.shape)}; use the config.json that belongs to these weights"
                )
    return stored


def _slices(array: np.ndarray, name: str, encoder: Encoder) -> list[tuple[np.ndarray, str]]:
    """The parts of an array that tensors fill, with their names."""
    if not _LAYER.match(name):
        return [(array, name)]
    rest = _LAYER.sub("", name, count=1)
    return [
        (part, f"{encoder.family}.encoder.layer.{layer}.{rest}") for layer, part in enumerate(array)
    ]


def _shapes(encoder: Encoder) -> dict[str, tuple[int, ...]]:
    """The shape of each array of the weights."""
    d_model = encoder.d_model
    d_ff = encoder.d_ff
    embeddings = f"{encoder.family}.embeddings"
    dense, out = encoder.head
    matrices = {
        f"{embeddings}.word_embeddings": (encoder.vocab_size, d_model),
        f"{embeddings}.position_embeddings": (encoder.num_positions, d_model),
        f"{embeddings}.token_type_embeddings": (encoder.num_types, d_model),
        "layer.attention.self.query": (d_model, d_model),
        "layer.attention.self.key": (d_model, d_model),
        "layer.attention.self.value": (d_model, d_model),
        "layer.attention.output.dense": (d_model, d_model),
        "layer.intermediate.dense": (d_ff, d_model),
        "layer.output.dense": (d_model, d_ff),
        dense: (d_model, d_model),
        out: (len(encoder.labels), d_model),
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in matrices.items():
        shapes[f"{name}.weight"] = shape
        if not name.startswith(embeddings):
            shapes[f"{name}.bias"] = shape[:1]
    norms = (
        f"{embeddings}.LayerNorm",
        "layer.attention.output.LayerNorm",
        "layer.output.LayerNorm",
    )
    for name in norms:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (d_model,)
    for name in [*filter(_LAYER.match, shapes)]:
        shapes[name] = (encoder.num_layers, *shapes[name])
    return shapes


@partial(jax.jit, static_argnums=0)
def label_logits(
    encoder: Encoder,
    weights: Weights,
    token_ids_BT: jax.Array,
    type_ids_BT: jax.Array,
    num_tokens_B: jax.Array,
) -> jax.Array:
    """Logits of the labels, float32 [B, C].

    `token_ids_BT`, `type_ids_BT` int32: rows are padded on the right, with `pad_id` and 0.
    `num_tokens_B` int32, 1 or more: slots behind are seen by none.
    """
    length = token_ids_BT.shape[1]
    embeddings = f"{encoder.family}.embeddings"
    positions_BT = jnp.broadcast_to(jnp.arange(length)[None], token_ids_BT.shape)
    if encoder.family == "roberta":
        is_text_BT = (token_ids_BT != encoder.pad_id).astype(jnp.int32)
        positions_BT = jnp.cumsum(is_text_BT, axis=1) * is_text_BT + encoder.pad_id
    hidden_BTD = (
        weights[f"{embeddings}.word_embeddings.weight"][token_ids_BT]
        + weights[f"{embeddings}.token_type_embeddings.weight"][type_ids_BT]
        + weights[f"{embeddings}.position_embeddings.weight"][positions_BT]
    )
    hidden_BTD = _norm(encoder, weights, f"{embeddings}.LayerNorm", hidden_BTD)
    is_seen_BT = jnp.arange(length)[None] < num_tokens_B[:, None]

    def layer(hidden_BTD: jax.Array, weights: Weights) -> tuple[jax.Array, None]:
        attended_BTD = _attention(encoder, weights, hidden_BTD, is_seen_BT)
        added_BTD = _linear(weights, "layer.attention.output.dense", attended_BTD)
        name = "layer.attention.output.LayerNorm"
        hidden_BTD = _norm(encoder, weights, name, hidden_BTD + added_BTD)
        up_BTF = ACTIVATE[encoder.activation](
            _linear(weights, "layer.intermediate.dense", hidden_BTD)
        )
        added_BTD = _linear(weights, "layer.output.dense", up_BTF)
        return _norm(encoder, weights, "layer.output.LayerNorm", hidden_BTD + added_BTD), None

    layers = {name: array for name, array in weights.items() if _LAYER.match(name)}
    hidden_BTD, _ = jax.lax.scan(layer, hidden_BTD, layers)
    dense, out = encoder.head
    return _linear(weights, out, jnp.tanh(_linear(weights, dense, hidden_BTD[:, 0])))


def _attention(
    encoder: Encoder, weights: Weights, hidden_BTD: jax.Array, is_seen_BT: jax.Array
) -> jax.Array:
    """Every token sees all tokens of its row that are no padding."""
    heads = []
    for name in ("query", "key", "value"):
        x_BTD = _linear(weights, f"layer.attention.self.{name}", hidden_BTD)
        heads.append(x_BTD.reshape(*x_BTD.shape[:2], encoder.num_heads, -1))
    query_BTNH, key_BTNH, value_BTNH = heads
    einsum = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
    scores_BNTS = einsum("btnh,bsnh->bnts", query_BTNH, key_BTNH) / query_BTNH.shape[-1] ** 0.5
    scores_BNTS = jnp.where(is_seen_BT[:, None, None], scores_BNTS, -jnp.inf)
    mixed_BTNH = einsum("bnts,bsnh->btnh", jax.nn.softmax(scores_BNTS, axis=-1), value_BTNH)
    return mixed_BTNH.reshape(hidden_BTD.shape)


def _linear(weights: Weights, name: str, x: jax.Array) -> jax.Array:
    y = jnp.einsum(
        "...i,oi->...o", x, weights[f"{name}.weight"], precision=jax.lax.Precision.HIGHEST
    )
    return y + jnp.expand_dims(weights[f"{name}.bias"], range(y.ndim - 1))


def _norm(encoder: Encoder, weights: Weights, name: str, x_BTD: jax.Array) -> jax.Array:
    mean_BT1 = x_BTD.mean(-1, keepdims=True)
    variance_BT1 = jnp.square(x_BTD - mean_BT1).mean(-1, keepdims=True)
    normed_BTD = (x_BTD - mean_BT1) * jax.lax.rsqrt(variance_BT1 + encoder.norm_eps)
    weight_11D = weights[f"{name}.weight"][None, None]
    return normed_BTD * weight_11D + weights[f"{name}.bias"][None, None]
