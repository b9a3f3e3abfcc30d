"""Cohere's Command R and R7B: how config.json is read, and the names of the tensors.

Arrives: `Fields` of a config.json.  Leaves: `FAMILIES`.  It deliberately does not know files.
"""

from dataclasses import replace

from miron_jax.model.config import ModelConfig
from miron_jax.model.families.family import Family
from miron_jax.model.families.fields import Fields
from miron_jax.model.families.naming import Table, Tensor, half_split, linear, llama_names
from miron_jax.model.families.reading import llama_like, without_rope

_COMMON = "num_key_value_heads hidden_act layer_norm_eps attention_bias logit_scale"
_ALWAYS = {  # what published configs of Command R7B and A say besides
    "order_of_interleaved_layers": "local_attn_first", "position_embedding_type": "rope_gptj",
    "rotary_pct": 1.0,
    "use_embedding_sharing": True, "use_gated_activation": True, "use_parallel_block": True,
    "use_parallel_embedding": False, "use_qk_norm": False,
}  # fmt: skip


def _cohere_config(fields: Fields, more: str = "use_qk_norm") -> ModelConfig:
    return replace(
        llama_like(fields, f"{_COMMON} {more}"),
        norm="layer",
        norm_bias=False,
        parallel="one_norm",
        logit_scale=float(fields["logit_scale"]),
        qk_norm="each_head" if fields.get("use_qk_norm") else None,
    )


def _cohere2_config(fields: Fields) -> ModelConfig:
    """Only layers with a window rotate."""
    for name, value in _ALWAYS.items():
        fields.allow_value(name, value)
    fields.allow_value("layer_switch", fields.raw.get("sliding_window_pattern") or 4)
    config = _cohere_config(fields, "sliding_window sliding_window_pattern layer_types head_dim")
    return replace(
        config,
        layer_ropes=without_rope(config.layer_ropes, [w is None for w in config.layer_windows]),
    )


def _cohere_names(config: ModelConfig) -> Table:
    """Queries and keys rotate neighbours, as GPT-J's do; their norms have the order of the
    heads."""
    q = half_split(config, config.num_heads)
    k = half_split(config, config.num_kv_heads)
    head = tuple(half_split(config, 1).tolist())
    names = llama_names(config) | {
        **linear("layers/attn/q", "layers.{}.self_attn.q_proj", columns=q, width=len(q)),
        **linear("layers/attn/k", "layers.{}.self_attn.k_proj", columns=k, width=len(k)),
    }
    for leaf in ("q_norm", "k_norm"):
        stored = f"layers.{{}}.self_attn.{leaf}.weight"
        names[f"layers/attn/{leaf}/weight"] = Tensor(stored, columns=head, width=len(head))
    return names


FAMILIES = {
    "cohere": Family(_cohere_config, _cohere_names),
    "cohere2": Family(_cohere2_config, _cohere_names),
}
