"""What a decoder is, in one record: everything its arithmetic depends on.

Arrives: config.json of a Hugging Face folder.  Leaves: a frozen, hashable `ModelConfig`.
It deliberately does not know weights, tensor names, tokenizers or devices.

A field of config.json is used, or known to change no score, or refused: nothing is ignored for being unknown.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from miron_jax.errors import InputError

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"]


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions of one layer: pair i of a head turns by position / factor * theta ** (-2i / head_dim)."""

    theta: float
    factor: float = 1.0  # linear position interpolation


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder-only transformer.  Sizes are counts, scales multiply, caps are c in c * tanh(x / c)."""

    family: str  # model_type of config.json; picks tensor names and is printed, no arithmetic depends on it
    vocab_size: int
    d_model: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    d_ff: int
    trained_length: int  # tokens; a longer row is legal unless num_positions forbids it
    num_positions: int | None  # rows of the learned position table; None: rotary positions
    layer_ropes: tuple[Rope, ...]  # one a layer; empty with learned positions
    layer_windows: tuple[int | None, ...]  # one a layer; key visible when position distance < window
    norm: Literal["rms", "layer"]  # layer norms carry a bias
    norm_eps: float
    norm_offset: float  # added to the stored norm weight (Gemma: 1)
    post_norms: bool  # attention and MLP outputs are normed before they join the residual stream
    qk_norm: bool  # queries and keys are RMS-normed a head, before the rotation
    activation: Activation
    gated_mlp: bool  # act(gate(x)) * up(x), else act(up(x))
    qkv_bias: bool
    attn_out_bias: bool
    mlp_bias: bool
    head_bias: bool
    tied_head: bool  # the head is the token embedding
    attn_scale: float
    attn_softcap: float | None
    final_softcap: float | None
    embedding_scale: float
    logit_scale: float

    @property
    def has_windows(self) -> bool:
        return any(window is not None for window in self.layer_windows)


def matmul_params(config: ModelConfig) -> int:
    """Weights of the layers' matmuls: 2 FLOPs each a token.  Embeddings and head are not among them."""
    attention = 2 * config.d_model * config.head_dim * (config.num_heads + config.num_kv_heads)
    mlp = (3 if config.gated_mlp else 2) * config.d_model * config.d_ff
    return config.num_layers * (attention + mlp)


def attention_flops_per_pair(config: ModelConfig) -> int:
    """FLOPs a visible (query, key) pair costs over all layers: scores and weighted sum.  Windows are not deducted."""
    return 4 * config.num_heads * config.head_dim * config.num_layers


def from_hf_config(folder: Path | str) -> ModelConfig:
    """config.json of a Hugging Face folder -> ModelConfig."""
    path = Path(folder) / "config.json"
    raw = _read_json(path)
    family = raw.get("model_type")
    if not isinstance(family, str) or family not in _FAMILIES:
        nearest = difflib.get_close_matches(str(family), _FAMILIES, n=1, cutoff=0.0)[0]
        raise InputError(
            f"{path}: model_type is {family!r}, expected one of {', '.join(_FAMILIES)} (nearest: {nearest}); "
            "convert the checkpoint to one of these architectures"
        )
    config = _FAMILIES[family](_Fields(path, family, raw))
    _check_sizes(path, config)
    return config


def eos_token_ids(folder: Path | str) -> tuple[int, ...]:
    """Tokens that end a text: generation_config.json's where it is there and names any, else config.json's."""
    for name in ("generation_config.json", "config.json"):
        path = Path(folder) / name
        found = _read_json(path).get("eos_token_id") if path.exists() else None
        if found is not None:
            ids = found if isinstance(found, list) else [found]
            if not all(isinstance(i, int) and i >= 0 for i in ids):
                raise InputError(f"{path}: eos_token_id is {found!r}, expected a token id or a list of them")
            return tuple(ids)
    return ()


class _Fields:
    """config.json with the family's defaults filled in by transformers, and a sentence ready for what is wrong."""

    def __init__(self, path: Path, family: str, raw: Mapping[str, Any]) -> None:
        self.path = path
        self.family = family
        self.raw = raw
        self.filled = _filled_by_transformers(path, raw)

    def __getitem__(self, name: str) -> Any:
        return getattr(self.filled, name)

    def refuse(self, name: str, value: object, expected: str) -> InputError:
        return InputError(
            f"{self.path}: {name} is {value!r}, expected {expected} for model_type {self.family!r}; "
            "this model is not supported"
        )

    def require(self, name: str, expected: object) -> None:
        if self[name] != expected:
            raise self.refuse(name, self[name], repr(expected))

    def allow_only(self, used: str) -> None:
        """Refuse any field that is neither used, nor harmless, nor off."""
        for name, value in self.raw.items():
            known = name in used.split() or _HARMLESS.fullmatch(name)
            if not known and value not in (None, False, 0, "", [], {}):
                raise InputError(
                    f"{self.path}: field {name!r} = {value!r} is not known for model_type {self.family!r} and may "
                    "change the scores; remove it from config.json if it does not, else this model is not supported"
                )


# Fields that change nothing in a forward pass: bookkeeping, generation and training settings, token ids.
# reorder_and_upcast_attn only asks for a float32 softmax, which this engine always has; pretraining_tp splits a matmul.
_HARMLESS = re.compile(
    r"_.*|.*_token_id|.*token_index|.*_dropout|.*_pdrop|summary_.*|output_.*|num_beam.*|.*_penalty|.*ngram_size|"
    r"(begin_)?suppress_tokens|forced_.*|unsloth_.*|transformers.*|top_[kp]|typical_p|(max|min)_length|"
    r"model_type|architectures|(torch_)?dtype|use_cache|pretraining_tp|initializer_range|task_specific_params|"
    r"id2label|label2id|num_labels|problem_type|finetuning_task|n_ctx|return_dict(_in_generate)?|is_encoder_decoder|"
    r"is_decoder|chunk_size_feed_forward|is_llama_config|tokenizer_class|prefix|do_sample|early_stopping|temperature|"
    r"bad_words_ids|num_return_sequences|remove_invalid_values|torchscript|cache_implementation|"
    r"reorder_and_upcast_attn|vision_config|mm_tokens_per_image|gradient_checkpointing|name_or_path"
)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path}: no such file, expected a Hugging Face model folder; check --model")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not JSON ({error}), expected a model config; download the file again") from None
    if not isinstance(raw, dict):
        raise InputError(f"{path}: holds a {type(raw).__name__}, expected a JSON object; download the file again")
    return raw


def _filled_by_transformers(path: Path, raw: Mapping[str, Any]) -> Any:
    """Defaults, types and old spellings (rope_theta, rope_scaling, sliding_window_pattern) are left to transformers."""
    from huggingface_hub.errors import StrictDataclassError  # imported here: transformers takes a second to import
    from transformers import CONFIG_MAPPING

    try:
        return CONFIG_MAPPING[raw["model_type"]].from_dict(dict(raw))
    except (StrictDataclassError, ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: transformers refuses it: {reason}; mend config.json or download it again") from None


def _rope(fields: _Fields, parameters: Mapping[str, Any]) -> Rope:
    kind = parameters.get("rope_type", "default")
    if kind not in ("default", "linear"):
        raise fields.refuse("rope_type", kind, "'default' or 'linear'")
    known = {"rope_type", "type", "rope_theta"} | ({"factor"} if kind == "linear" else set())
    for name, value in parameters.items():
        if (name not in known and value is not None and (name, value) != ("partial_rotary_factor", 1.0)) or (
            name == "type" and value != kind
        ):
            raise fields.refuse(f"rope parameter {name!r}", value, f"none beside rope_type {kind!r}")
    return Rope(theta=float(parameters["rope_theta"]), factor=float(parameters.get("factor", 1.0)))


_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}


def _activation(fields: _Fields, name: str) -> Activation:
    if fields[name] not in _ACTIVATIONS:
        raise fields.refuse(name, fields[name], f"one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[fields[name]]


def _llama(fields: _Fields) -> ModelConfig:
    fields.allow_only(
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
        "hidden_act max_position_embeddings rms_norm_eps tie_word_embeddings attention_bias mlp_bias "
        "rope_parameters rope_theta rope_scaling"
    )
    rope = _rope(fields, fields["rope_parameters"])
    return ModelConfig(
        family=fields.family,
        vocab_size=fields["vocab_size"],
        d_model=fields["hidden_size"],
        num_layers=fields["num_hidden_layers"],
        num_heads=fields["num_attention_heads"],
        num_kv_heads=fields["num_key_value_heads"],
        head_dim=fields["head_dim"],
        d_ff=fields["intermediate_size"],
        trained_length=fields["max_position_embeddings"],
        num_positions=None,
        layer_ropes=(rope,) * fields["num_hidden_layers"],
        layer_windows=(None,) * fields["num_hidden_layers"],
        norm="rms",
        norm_eps=fields["rms_norm_eps"],
        norm_offset=0.0,
        post_norms=False,
        qk_norm=False,
        activation=_activation(fields, "hidden_act"),
        gated_mlp=True,
        qkv_bias=fields["attention_bias"],
        attn_out_bias=fields["attention_bias"],
        mlp_bias=fields["mlp_bias"],
        head_bias=False,
        tied_head=fields["tie_word_embeddings"],
        attn_scale=fields["head_dim"] ** -0.5,
        attn_softcap=None,
        final_softcap=None,
        embedding_scale=1.0,
        logit_scale=1.0,
    )


def _gpt2(fields: _Fields) -> ModelConfig:
    fields.allow_only(
        "vocab_size n_positions n_embd n_layer n_head n_inner activation_function layer_norm_epsilon "
        "scale_attn_weights scale_attn_by_inverse_layer_idx add_cross_attention tie_word_embeddings"
    )
    fields.require("scale_attn_by_inverse_layer_idx", False)
    fields.require("add_cross_attention", False)
    num_heads, d_model = fields["n_head"], fields["n_embd"]
    if num_heads < 1 or d_model % num_heads:
        raise fields.refuse("n_embd", d_model, f"a multiple of n_head = {num_heads}")
    head_dim = d_model // num_heads
    return ModelConfig(
        family=fields.family,
        vocab_size=fields["vocab_size"],
        d_model=d_model,
        num_layers=fields["n_layer"],
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=head_dim,
        d_ff=4 * d_model if fields["n_inner"] is None else fields["n_inner"],
        trained_length=fields["n_positions"],
        num_positions=fields["n_positions"],
        layer_ropes=(),
        layer_windows=(None,) * fields["n_layer"],
        norm="layer",
        norm_eps=fields["layer_norm_epsilon"],
        norm_offset=0.0,
        post_norms=False,
        qk_norm=False,
        activation=_activation(fields, "activation_function"),
        gated_mlp=False,
        qkv_bias=True,
        attn_out_bias=True,
        mlp_bias=True,
        head_bias=False,
        tied_head=fields["tie_word_embeddings"],
        attn_scale=head_dim**-0.5 if fields["scale_attn_weights"] else 1.0,
        attn_softcap=None,
        final_softcap=None,
        embedding_scale=1.0,
        logit_scale=1.0,
    )


def _gemma3_text(fields: _Fields) -> ModelConfig:
    fields.allow_only(
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
        "hidden_activation max_position_embeddings rms_norm_eps tie_word_embeddings attention_bias sliding_window "
        "layer_types sliding_window_pattern query_pre_attn_scalar final_logit_softcapping attn_logit_softcapping "
        "use_bidirectional_attention rope_parameters rope_theta rope_local_base_freq rope_scaling"
    )
    if fields["use_bidirectional_attention"]:
        raise fields.refuse("use_bidirectional_attention", True, "false")
    # transformers' Gemma 3 reads this field and never applies it: with a value the two readings part.
    fields.require("attn_logit_softcapping", None)
    return ModelConfig(
        family=fields.family,
        vocab_size=fields["vocab_size"],
        d_model=fields["hidden_size"],
        num_layers=fields["num_hidden_layers"],
        num_heads=fields["num_attention_heads"],
        num_kv_heads=fields["num_key_value_heads"],
        head_dim=fields["head_dim"],
        d_ff=fields["intermediate_size"],
        trained_length=fields["max_position_embeddings"],
        num_positions=None,
        layer_ropes=tuple(_rope(fields, fields["rope_parameters"][kind]) for kind in _layer_types(fields)),
        layer_windows=tuple(_window(fields, kind) for kind in _layer_types(fields)),
        norm="rms",
        norm_eps=fields["rms_norm_eps"],
        norm_offset=1.0,
        post_norms=True,
        qk_norm=True,
        activation=_activation(fields, "hidden_activation"),
        gated_mlp=True,
        qkv_bias=fields["attention_bias"],
        attn_out_bias=fields["attention_bias"],
        mlp_bias=False,
        head_bias=False,
        tied_head=fields["tie_word_embeddings"],
        attn_scale=fields["query_pre_attn_scalar"] ** -0.5,
        attn_softcap=None,
        final_softcap=fields["final_logit_softcapping"],
        embedding_scale=fields["hidden_size"] ** 0.5,
        logit_scale=1.0,
    )


def _layer_types(fields: _Fields) -> tuple[str, ...]:
    kinds = tuple(fields["layer_types"])
    if len(kinds) != fields["num_hidden_layers"] or not set(kinds) <= {"sliding_attention", "full_attention"}:
        raise fields.refuse(
            "layer_types",
            list(kinds),
            f"{fields['num_hidden_layers']} entries 'sliding_attention' or 'full_attention'",
        )
    return kinds


def _window(fields: _Fields, layer_type: str) -> int | None:
    if layer_type == "full_attention":
        return None
    if not isinstance(fields["sliding_window"], int) or fields["sliding_window"] < 1:
        raise fields.refuse("sliding_window", fields["sliding_window"], "a positive number of tokens")
    return fields["sliding_window"]


# A multimodal gemma3 (model_type "gemma3", vision tower beside the text model) is a later family.
_FAMILIES = {"llama": _llama, "gpt2": _gpt2, "gemma3_text": _gemma3_text}


def _check_sizes(path: Path, config: ModelConfig) -> None:
    sizes = ("vocab_size", "d_model", "num_layers", "num_heads", "num_kv_heads", "head_dim", "d_ff", "trained_length")
    for name in sizes:
        if getattr(config, name) < 1:
            raise InputError(f"{path}: {name} is {getattr(config, name)}, expected at least 1; mend config.json")
    if config.num_heads % config.num_kv_heads:
        raise InputError(
            f"{path}: {config.num_heads} attention heads over {config.num_kv_heads} key/value heads, "
            "expected a multiple; mend config.json"
        )
    if config.layer_ropes and config.head_dim % 2:
        raise InputError(
            f"{path}: head_dim is {config.head_dim}, rotary positions expect an even one; mend config.json"
        )
