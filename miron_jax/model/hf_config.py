"""config.json of a Hugging Face folder -> ModelConfig.

Arrives: a folder.  Leaves: what the decoder of its family computes.  It deliberately does not know weights or their
names.

A field of config.json is used, or known to change no score, or refused: nothing is ignored for being unknown.  Each
family names what differs from Llama.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from miron_jax.errors import InputError
from miron_jax.model import rope
from miron_jax.model.config import Activation, ModelConfig, Rope


def from_hf_config(folder: Path | str) -> ModelConfig:
    """config.json of a Hugging Face folder -> ModelConfig."""
    path = Path(folder) / "config.json"
    raw = _text_part(path, _read_json(path))
    family = raw.get("model_type")
    if not isinstance(family, str) or family not in _FAMILIES:
        longer = [known for known in _FAMILIES if known.startswith(str(family))]
        nearest = [*longer, *difflib.get_close_matches(str(family), _FAMILIES, n=1, cutoff=0.0)][0]
        raise InputError(
            f"{path}: model_type is {family!r}, expected one of {', '.join(_FAMILIES)} (nearest: {nearest}); "
            "convert the checkpoint to one of these architectures"
        )
    config = _FAMILIES[family](_Fields(path, family, raw))
    _check_sizes(path, config)
    return config


def _text_part(path: Path, raw: dict[str, Any]) -> dict[str, Any]:
    """A multimodal Gemma 3 answers texts with its text model alone: its config is nested, its vision tower is not read."""
    if raw.get("model_type") != "gemma3":
        return raw
    text = raw.get("text_config")
    if not isinstance(text, dict):
        raise InputError(
            f"{path}: text_config is {text!r}, expected that of a multimodal Gemma 3; download the file again"
        )
    tied = {} if raw.get("tie_word_embeddings") is None else {"tie_word_embeddings": raw["tie_word_embeddings"]}
    return {**text, **tied, "model_type": "gemma3_text"}


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
        self.repeated: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        return getattr(self.filled, name)

    def get(self, name: str) -> Any:
        """None where the family has no such field."""
        return getattr(self.filled, name, None)

    def refuse(self, name: str, value: object, expected: str) -> InputError:
        return InputError(
            f"{self.path}: {name} is {value!r}, expected {expected} for model_type {self.family!r}; "
            "this model is not supported"
        )

    def require(self, name: str, expected: object) -> None:
        if self[name] != expected:
            raise self.refuse(name, self[name], repr(expected))

    def allow_same(self, name: str, used: str) -> None:
        """A field that transformers does not read may repeat the one that it does."""
        if self.raw.get(name) not in (None, self[used]):
            raise self.refuse(name, self.raw[name], f"{used}'s {self[used]!r}, which transformers reads instead,")
        self.repeated.add(name)

    def _names_own_code(self, name: str, value: Any) -> bool:
        """Phi-3's published configs still point at the code that transformers took over under the same names."""
        own = {type(self.filled).__name__, "Phi3ForCausalLM"}
        is_own = name == "auto_map" and self.family == "phi3" and isinstance(value, Mapping)
        return is_own and all(str(code).rsplit(".")[-1] in own for code in value.values())

    def allow_only(self, used: str) -> None:
        """Refuse any field that is neither used, nor harmless, nor off."""
        for name, value in self.raw.items():
            known = name in used.split() or name in self.repeated or _HARMLESS.fullmatch(name)
            known = known or self._names_own_code(name, value)
            if not known and value not in (None, False, 0, "", [], {}):
                raise InputError(
                    f"{self.path}: field {name!r} = {value!r} is not known for model_type {self.family!r} and may "
                    "change the scores; remove it from config.json if it does not, else this model is not supported"
                )


# Fields that change nothing in a forward pass: bookkeeping, generation and training settings, token ids.
# reorder_and_upcast_attn only asks for a float32 softmax, which this engine always has; pretraining_tp splits a matmul.
_HARMLESS = re.compile(
    r"_.*|.*_token_id|.*token_index|.*_dropout(_prob)?|.*_pdrop|max_sequence_length|summary_.*|output_.*|num_beam.*|.*_penalty|.*ngram_size|"
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


_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}


def _activation(fields: _Fields, name: str) -> Activation:
    if fields[name] not in _ACTIVATIONS:
        raise fields.refuse(name, fields[name], f"one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[fields[name]]


def _ropes(fields: _Fields, head_dim: int, has_layer_types: bool) -> tuple[Rope, ...]:
    """One a layer."""
    parameters = fields["rope_parameters"]
    if "full_attention" in parameters:  # one for each type of layer
        if not has_layer_types:
            raise fields.refuse("rope_parameters", parameters, "those of one rotation")
        if any(own.get("truncate") is False for own in parameters.values()):
            # transformers looks for it beside the types, where it is not, and truncates.
            raise fields.refuse("truncate", False, "true where each type of layer has its own rotation")
        return tuple(_rope(fields, parameters[kind], head_dim) for kind in _layer_types(fields))
    share = parameters.get("partial_rotary_factor") or 1.0
    if share != 1.0 and fields.family not in _PARTLY_ROTATED:
        raise fields.refuse("partial_rotary_factor", share, "1.0")
    return (_rope(fields, parameters, int(head_dim * share)),) * fields["num_hidden_layers"]


def _rope(fields: _Fields, parameters: Mapping[str, Any], size: int) -> Rope:
    """The rotation of `size` numbers of each head."""
    kind = parameters.get("rope_type", "default")
    if kind not in rope.KINDS:
        raise fields.refuse("rope_type", kind, f"one of {', '.join(rope.KINDS)}")
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor", *rope.KINDS[kind]}
    for name, value in parameters.items():
        if (name not in known and value is not None) or (name == "type" and value != kind):
            raise fields.refuse(f"rope parameter {name!r}", value, f"none beside rope_type {kind!r}")
    if kind not in ("default", "longrope") and not isinstance(parameters.get("factor"), int | float):
        raise fields.refuse("rope parameter 'factor'", parameters.get("factor"), "a number")
    if size < 2 or size % 2:
        raise fields.refuse("the rotated part of a head", size, "an even number of at least 2")
    longest = fields.get("max_position_embeddings")  # GPT-J has another name for it, and plain rotation alone
    original = parameters.get("original_max_position_embeddings") or longest
    known = {"max_position_embeddings": longest, "original_max_position_embeddings": original}
    return rope.rope_of(kind, {**parameters, **known}, size)


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


def _windows(fields: _Fields) -> tuple[int | None, ...]:
    """One a layer, from layer_types; none where there are no such types."""
    if fields.get("layer_types") is None:
        return (None,) * fields["num_hidden_layers"]
    return tuple(_window(fields, kind) for kind in _layer_types(fields))


_PARTLY_ROTATED = ("gpt_neox", "phi3", "stablelm")

# What every family here that is written like Llama uses, in transformers' usual spelling
_SIZES = (
    "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads max_position_embeddings "
    "tie_word_embeddings rope_parameters rope_theta rope_scaling "
)
_LLAMA = "num_key_value_heads head_dim hidden_act rms_norm_eps "


def _llama_like(fields: _Fields, more: str) -> ModelConfig:
    """Llama's decoder of these sizes.  `more` is all that the family uses beside them: another field is refused, so
    that none is read here which transformers does not read."""
    fields.allow_only(_SIZES + more)
    used = more.split()
    num_heads, head_dim = fields["num_attention_heads"], fields.get("head_dim") if "head_dim" in used else None
    head_dim = head_dim or _head_dim(fields, "hidden_size", "num_attention_heads")
    return ModelConfig(
        family=fields.family,
        vocab_size=fields["vocab_size"],
        d_model=fields["hidden_size"],
        num_layers=fields["num_hidden_layers"],
        num_heads=num_heads,
        num_kv_heads=fields["num_key_value_heads"] if "num_key_value_heads" in used else num_heads,
        head_dim=head_dim,
        d_ff=fields["intermediate_size"],
        trained_length=fields["max_position_embeddings"],
        num_positions=None,
        layer_ropes=_ropes(fields, head_dim, "layer_types" in used),
        layer_windows=(None,) * fields["num_hidden_layers"],
        norm_eps=fields["rms_norm_eps" if "rms_norm_eps" in used else "layer_norm_eps"],
        attn_scale=head_dim**-0.5,
        activation=_activation(fields, "hidden_act" if "hidden_act" in used else "hidden_activation"),
        tied_head=fields["tie_word_embeddings"],
    )


def _head_dim(fields: _Fields, width: str, heads: str) -> int:
    if fields[heads] < 1 or fields[width] % fields[heads]:
        raise fields.refuse(width, fields[width], f"a multiple of {heads} = {fields[heads]}")
    return fields[width] // fields[heads]


def _llama(fields: _Fields) -> ModelConfig:
    bias = fields["attention_bias"]
    plain = _llama_like(fields, _LLAMA + "attention_bias mlp_bias")
    return replace(plain, qkv_bias=bias, attn_out_bias=bias, mlp_bias=fields["mlp_bias"])


def _mistral(fields: _Fields) -> ModelConfig:
    plain = _llama_like(fields, _LLAMA + "sliding_window")
    window = None if fields["sliding_window"] is None else _window(fields, "sliding_attention")
    return replace(plain, layer_windows=(window,) * plain.num_layers)


def _qwen2(fields: _Fields) -> ModelConfig:
    plain = _llama_like(fields, _LLAMA + "use_sliding_window sliding_window max_window_layers layer_types")
    return replace(plain, qkv_bias=True, layer_windows=_windows(fields))


def _qwen3(fields: _Fields) -> ModelConfig:
    plain = _llama_like(
        fields, _LLAMA + "attention_bias use_sliding_window sliding_window max_window_layers layer_types"
    )
    bias = fields["attention_bias"]
    return replace(plain, qkv_bias=bias, attn_out_bias=bias, qk_norm="head", layer_windows=_windows(fields))


def _gemma_like(fields: _Fields, more: str) -> ModelConfig:
    if fields["use_bidirectional_attention"]:
        raise fields.refuse("use_bidirectional_attention", True, "false")
    bias = fields["attention_bias"]
    return replace(
        _llama_like(
            fields, f"num_key_value_heads head_dim rms_norm_eps attention_bias use_bidirectional_attention {more}"
        ),
        norm_offset=1.0,
        qkv_bias=bias,
        attn_out_bias=bias,
        embedding_scale=fields["hidden_size"] ** 0.5,
        embedding_scale_rounded=True,
    )


def _gemma(fields: _Fields) -> ModelConfig:
    fields.allow_same("hidden_activation", "hidden_act")
    return _gemma_like(fields, "hidden_act")


_GEMMA_LATER = (
    "hidden_activation sliding_window layer_types sliding_window_pattern query_pre_attn_scalar "
    "final_logit_softcapping attn_logit_softcapping rope_local_base_freq"
)


def _gemma2(fields: _Fields) -> ModelConfig:
    fields.allow_same("hidden_act", "hidden_activation")
    return replace(
        _gemma_like(fields, _GEMMA_LATER),
        post_norms=True,
        layer_windows=_windows(fields),
        attn_scale=fields["query_pre_attn_scalar"] ** -0.5,
        attn_softcap=fields["attn_logit_softcapping"],
        final_softcap=fields["final_logit_softcapping"],
    )


def _gemma3_text(fields: _Fields) -> ModelConfig:
    # transformers' Gemma 3 reads this field and never applies it: with a value the two readings part.
    fields.require("attn_logit_softcapping", None)
    return replace(_gemma2(fields), qk_norm="head")


def _gpt2(fields: _Fields) -> ModelConfig:
    fields.allow_only(
        "vocab_size n_positions n_embd n_layer n_head n_inner activation_function layer_norm_epsilon "
        "scale_attn_weights scale_attn_by_inverse_layer_idx add_cross_attention tie_word_embeddings"
    )
    fields.require("scale_attn_by_inverse_layer_idx", False)
    fields.require("add_cross_attention", False)
    head_dim = _head_dim(fields, "n_embd", "n_head")
    return ModelConfig(
        **_gpt_sizes(fields),
        head_dim=head_dim,
        num_positions=fields["n_positions"],
        layer_ropes=(),
        attn_scale=head_dim**-0.5 if fields["scale_attn_weights"] else 1.0,
        qkv_bias=True,
        attn_out_bias=True,
    )


def _gptj(fields: _Fields) -> ModelConfig:
    fields.allow_only(
        "vocab_size n_positions n_embd n_layer n_head n_inner activation_function layer_norm_epsilon rotary rotary_dim "
        "scale_attn_weights tie_word_embeddings"
    )
    head_dim = _head_dim(fields, "n_embd", "n_head")
    if not isinstance(fields["rotary_dim"], int) or not 0 < fields["rotary_dim"] <= head_dim:
        raise fields.refuse("rotary_dim", fields["rotary_dim"], f"at least 1 and at most the head size, {head_dim}")
    one = _rope(fields, {"rope_theta": 10000.0}, fields["rotary_dim"])
    return ModelConfig(
        **_gpt_sizes(fields),
        head_dim=head_dim,
        num_positions=None,
        layer_ropes=(one,) * fields["n_layer"],
        attn_scale=head_dim**-0.5,
        parallel="one_norm",
        head_bias=True,
    )


def _gpt_sizes(fields: _Fields) -> dict[str, Any]:
    return {
        "family": fields.family,
        "vocab_size": fields["vocab_size"],
        "d_model": fields["n_embd"],
        "num_layers": fields["n_layer"],
        "num_heads": fields["n_head"],
        "num_kv_heads": fields["n_head"],
        "d_ff": 4 * fields["n_embd"] if fields["n_inner"] is None else fields["n_inner"],
        "trained_length": fields["n_positions"],
        "layer_windows": (None,) * fields["n_layer"],
        "norm": "layer",
        "norm_eps": fields["layer_norm_epsilon"],
        "activation": _activation(fields, "activation_function"),
        "gated_mlp": False,
        "mlp_bias": True,
        "tied_head": fields["tie_word_embeddings"],
    }


def _gpt_neox(fields: _Fields) -> ModelConfig:
    more = "attention_bias use_parallel_residual hidden_act layer_norm_eps rotary_pct rotary_emb_base partial_rotary_factor"
    bias = fields["attention_bias"]
    return replace(
        _llama_like(fields, more),
        norm="layer",
        parallel="own_norm" if fields["use_parallel_residual"] else None,
        gated_mlp=False,
        qkv_bias=bias,
        attn_out_bias=bias,
        mlp_bias=True,
    )


def _olmo2(fields: _Fields, more: str = "") -> ModelConfig:
    bias = fields["attention_bias"]
    return replace(
        _llama_like(fields, f"{_LLAMA} attention_bias {more}"),
        pre_norms=False,
        post_norms=True,
        qk_norm="all_heads",
        qkv_bias=bias,
        attn_out_bias=bias,
    )


def _olmo3(fields: _Fields) -> ModelConfig:
    return replace(_olmo2(fields, "sliding_window layer_types"), layer_windows=_windows(fields))


def _phi3(fields: _Fields) -> ModelConfig:
    plain = _llama_like(fields, _LLAMA + "sliding_window original_max_position_embeddings partial_rotary_factor")
    window = None if fields["sliding_window"] is None else _window(fields, "sliding_attention")
    return replace(plain, layer_windows=(window,) * plain.num_layers)


def _stablelm(fields: _Fields) -> ModelConfig:
    more = "use_qkv_bias qk_layernorm use_parallel_residual partial_rotary_factor"
    return replace(
        _llama_like(fields, f"num_key_value_heads hidden_act layer_norm_eps {more}"),
        norm="layer",
        parallel="one_norm" if fields["use_parallel_residual"] else None,
        qk_norm="each_head" if fields["qk_layernorm"] else None,
        qkv_bias=fields["use_qkv_bias"],
    )


def _granite(fields: _Fields) -> ModelConfig:
    scales = "embedding_multiplier logits_scaling residual_multiplier attention_multiplier"
    bias = fields["attention_bias"]
    return replace(
        _llama_like(fields, f"{_LLAMA} attention_bias mlp_bias {scales}"),
        qkv_bias=bias,
        attn_out_bias=bias,
        mlp_bias=fields["mlp_bias"],
        attn_scale=float(fields["attention_multiplier"]),
        embedding_scale=float(fields["embedding_multiplier"]),
        residual_scale=float(fields["residual_multiplier"]),
        logit_scale=1.0 / fields["logits_scaling"],
    )


def _nanochat(fields: _Fields) -> ModelConfig:
    plain, bias = _llama_like(fields, _LLAMA + "attention_bias final_logit_softcapping"), fields["attention_bias"]
    backwards = [replace(one, frequencies=tuple(-f for f in one.frequencies)) for one in plain.layer_ropes]
    return replace(
        plain,
        layer_ropes=tuple(backwards),
        norm_weight=False,
        embedding_norm=True,
        qk_norm="head",
        qk_norm_rotated=True,
        gated_mlp=False,
        qkv_bias=bias,
        attn_out_bias=bias,
        final_softcap=fields["final_logit_softcapping"],
    )


_FAMILIES = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3_text,
    "gpt2": _gpt2,
    "gptj": _gptj,
    "gpt_neox": _gpt_neox,
    "olmo2": _olmo2,
    "olmo3": _olmo3,
    "phi3": _phi3,
    "stablelm": _stablelm,
    "granite": _granite,
    "nanochat": _nanochat,
}


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
