"""config.json of a tiny random model of every family and variant: (transformers' class, fields), by name."""

from typing import Any

VOCAB = 101

LLAMA: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 36, "intermediate_size": 53, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
}  # fmt: skip
GEMMA: dict[str, Any] = LLAMA | {
    "head_dim": 10, "num_hidden_layers": 5, "sliding_window": 4, "query_pre_attn_scalar": 13, "pad_token_id": 0,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
}  # fmt: skip
GPT2: dict[str, Any] = {"vocab_size": VOCAB, "n_positions": 31, "n_embd": 35, "n_layer": 3, "n_head": 5}
GPTJ: dict[str, Any] = {
    "vocab_size": VOCAB, "n_positions": 64, "n_embd": 36, "n_layer": 3, "n_head": 3, "rotary_dim": 8,
}  # fmt: skip
OPT: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 36, "ffn_dim": 53, "num_hidden_layers": 3, "num_attention_heads": 6,
    "max_position_embeddings": 31,
}  # fmt: skip
FALCON: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 36, "ffn_hidden_size": 53, "num_hidden_layers": 3, "num_attention_heads": 6,
}  # fmt: skip
MPT: dict[str, Any] = {"vocab_size": VOCAB, "d_model": 32, "n_layers": 3, "n_heads": 4, "max_seq_len": 64}
LAYER_NORMS = {name: value for name, value in LLAMA.items() if name != "rms_norm_eps"} | {"layer_norm_eps": 1e-4}
NEOX = {name: value for name, value in LAYER_NORMS.items() if name != "num_key_value_heads"} | {"rotary_pct": 0.7}
SHORT_WINDOW = {"sliding_window": 4}
OLMO = {name: value for name, value in LLAMA.items() if name != "rms_norm_eps"} | {"pad_token_id": 0}
STARCODER = OLMO | SHORT_WINDOW | {"norm_epsilon": 1e-4}
MIXTRAL = LLAMA | {"num_local_experts": 5, "num_experts_per_tok": 2}
MIXTURE = LLAMA | {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 17}
WITH_SHARED = MIXTURE | {"shared_expert_intermediate_size": 29}
OLMOE = OLMO | {"num_experts": 6, "num_experts_per_tok": 3}
LINEAR_ROPE = {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e3}
LLAMA3_ROPE = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 100.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
YARN_ROPE = {
    "rope_type": "yarn", "factor": 4.0, "rope_theta": 50.0, "original_max_position_embeddings": 16, "beta_fast": 3.0,
}  # fmt: skip
YARN_UNCUT = YARN_ROPE | {"truncate": False}
YARN_SCALED = YARN_ROPE | {"mscale": 0.7, "mscale_all_dim": 1.3, "truncate": False}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-gqa-untied": ("Llama", LLAMA),
    "llama-tied-biases": ("Llama", LLAMA | {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    "llama-wide-heads-linear-rope": ("Llama", LLAMA | {"head_dim": 14, "rope_parameters": LINEAR_ROPE}),
    "bloom": ("Bloom", {"vocab_size": VOCAB, "hidden_size": 32, "n_layer": 3, "n_head": 4}),
    "bloom-untied-seven-heads": ("Bloom", {
        "vocab_size": VOCAB, "hidden_size": 35, "n_layer": 2, "n_head": 7, "tie_word_embeddings": False,
    }),
    "mpt": ("Mpt", MPT),
    "mpt-six-heads-clip-scale": ("Mpt", MPT | {
        "d_model": 36, "n_heads": 6, "tie_word_embeddings": False,
        "attn_config": {"clip_qkv": 0.9, "softmax_scale": 0.2},
    }),
    "gpt2": ("GPT2", GPT2),
    "gpt2-untied-unscaled": ("GPT2", GPT2 | {
        "n_inner": 47, "scale_attn_weights": False, "activation_function": "relu", "tie_word_embeddings": False,
    }),
    "gpt2-inverse-layers": ("GPT2", GPT2 | {"scale_attn_by_inverse_layer_idx": True}),
    "opt": ("OPT", OPT),
    "opt-no-biases-untied": ("OPT", OPT | {"enable_bias": False, "tie_word_embeddings": False}),
    "falcon": ("Falcon", FALCON),
    "falcon-grouped": ("Falcon", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True}),
    "falcon-one-norm": ("Falcon", FALCON | {
        "new_decoder_architecture": True, "num_kv_heads": 3, "num_ln_in_parallel_attn": 1,
    }),
    "falcon-in-turn-all-heads": ("Falcon", FALCON | {
        "parallel_attn": False, "multi_query": False, "tie_word_embeddings": False, "bias": True,
    }),
    "falcon-alibi": ("Falcon", FALCON | {"alibi": True, "multi_query": False, "bias": True}),
    "llama3-rope": ("Llama", LLAMA | {"head_dim": 14, "rope_parameters": LLAMA3_ROPE}),
    "llama-yarn-scaled": ("Llama", LLAMA | {"head_dim": 14, "rope_parameters": YARN_SCALED}),
    "mistral": ("Mistral", LLAMA | SHORT_WINDOW),
    "mistral-no-window": ("Mistral", LLAMA | {"sliding_window": None, "head_dim": 8}),
    "qwen2": ("Qwen2", LLAMA),
    "qwen2-windows": ("Qwen2", LLAMA | SHORT_WINDOW | {"use_sliding_window": True, "max_window_layers": 1}),
    "qwen3": ("Qwen3", LLAMA | {"head_dim": 8}),
    "qwen3-biases": ("Qwen3", LLAMA | {"head_dim": 8, "attention_bias": True, "tie_word_embeddings": True}),
    "gemma": ("Gemma", LLAMA | {"head_dim": 10}),
    "gemma2": ("Gemma2", LLAMA | SHORT_WINDOW | {  # caps so small that they bite
        "head_dim": 10, "query_pre_attn_scalar": 13, "attn_logit_softcapping": 0.4, "final_logit_softcapping": 4.0,
    }),
    "gptj": ("GPTJ", GPTJ),
    "gpt-neox": ("GPTNeoX", NEOX),
    "gpt-neox-in-turn": ("GPTNeoX", NEOX | {"use_parallel_residual": False, "attention_bias": False}),
    "olmo2": ("Olmo2", LLAMA | {"attention_bias": True}),
    "olmo3": ("Olmo3", LLAMA | SHORT_WINDOW | {"num_hidden_layers": 4}),
    "olmo": ("Olmo", OLMO),
    "olmo-clipped-biases": ("Olmo", OLMO | {"clip_qkv": 0.6, "attention_bias": True, "tie_word_embeddings": True}),
    "smollm3": ("SmolLM3", LLAMA | {"num_hidden_layers": 5, "pad_token_id": 0}),
    "smollm3-windows": ("SmolLM3", LLAMA | SHORT_WINDOW | {
        "no_rope_layers": [0, 1, 0], "use_sliding_window": True, "attention_bias": True, "pad_token_id": 0,
    }),
    "starcoder2": ("Starcoder2", STARCODER),
    "starcoder2-no-biases": ("Starcoder2", STARCODER | {"use_bias": False, "tie_word_embeddings": False}),
    "phi": ("Phi", LAYER_NORMS | {"partial_rotary_factor": 0.4}),
    "cohere": ("Cohere", LAYER_NORMS | {"logit_scale": 0.4, "pad_token_id": 0}),
    "cohere-normed-biases": ("Cohere", LAYER_NORMS | {"use_qk_norm": True, "attention_bias": True, "pad_token_id": 0}),
    "cohere2": ("Cohere2", LAYER_NORMS | SHORT_WINDOW | {"num_hidden_layers": 5, "pad_token_id": 0}),
    "phi3-window-partly-rotated": ("Phi3", LLAMA | SHORT_WINDOW | {"pad_token_id": 0, "partial_rotary_factor": 0.7}),
    "stablelm": ("StableLm", LAYER_NORMS | {"partial_rotary_factor": 0.7}),
    "stablelm-parallel": ("StableLm", LAYER_NORMS | {
        "partial_rotary_factor": 0.4, "use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True,
    }),
    "granite": ("Granite", LLAMA | {
        "embedding_multiplier": 3.0, "logits_scaling": 2.5, "residual_multiplier": 0.3, "attention_multiplier": 0.2,
        "mlp_bias": True,
    }),
    "mixtral": ("Mixtral", MIXTRAL | SHORT_WINDOW),
    "qwen2-moe": ("Qwen2Moe", WITH_SHARED),
    "qwen2-moe-normalised": ("Qwen2Moe", WITH_SHARED | SHORT_WINDOW | {
        "norm_topk_prob": True, "qkv_bias": False, "use_sliding_window": True,
    }),
    "qwen3-moe": ("Qwen3Moe", MIXTURE | {"head_dim": 8}),
    "olmoe": ("Olmoe", OLMOE),
    "olmoe-clipped": ("Olmoe", OLMOE | {"clip_qkv": 0.6, "norm_topk_prob": True, "num_experts_per_tok": 6}),
    "granite-moe": ("GraniteMoe", MIXTRAL | {"residual_multiplier": 0.3, "logits_scaling": 2.5}),
    "gpt-oss": ("GptOss", MIXTRAL | SHORT_WINDOW | {
        "head_dim": 10, "rope_parameters": YARN_UNCUT, "swiglu_limit": 0.7,
    }),
    "nanochat": ("NanoChat", LLAMA | {"final_logit_softcapping": 4.0}),
    "gemma3": ("Gemma3", GEMMA),
    "gemma3-capped-biases": ("Gemma3", GEMMA | {"final_logit_softcapping": 3.0, "attention_bias": True}),
    "gemma3-long-context": ("Gemma3", GEMMA | {"rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }}),
}  # fmt: skip

MAMBA: dict[str, Any] = {
    "vocab_size": 331, "hidden_size": 24, "state_size": 6, "num_hidden_layers": 3, "pad_token_id": 0,
    "layer_norm_epsilon": 1e-4,
}  # fmt: skip
MAMBA2 = MAMBA | {"num_heads": 6, "head_dim": 8, "n_groups": 2, "chunk_size": 16}
GRIFFIN: dict[str, Any] = {
    "vocab_size": 331, "hidden_size": 48, "intermediate_size": 60, "num_hidden_layers": 5, "num_attention_heads": 4,
    "num_key_value_heads": 1, "lru_width": 32, "attention_window_size": 9, "pad_token_id": 0,
}  # fmt: skip
# Models that carry a state.
RECURRENT: dict[str, tuple[str, dict[str, Any]]] = {
    "mamba": ("Mamba", MAMBA),
    "mamba-untied-biases": ("Mamba", MAMBA | {
        "tie_word_embeddings": False, "use_bias": True, "use_conv_bias": False, "conv_kernel": 3, "time_step_rank": 5,
    }),
    "falcon_mamba": ("FalconMamba", MAMBA | {"mixer_rms_eps": 1e-3}),
    "mamba2": ("Mamba2", MAMBA2),
    "mamba2-tied-limits": ("Mamba2", MAMBA2 | {
        "tie_word_embeddings": True, "use_bias": True, "time_step_limit": (0.01, 0.5), "n_groups": 1,
    }),
    "recurrent_gemma": ("RecurrentGemma", GRIFFIN | {"num_hidden_layers": 4}),  # a period of three, and one more
    "recurrent_gemma-biases": ("RecurrentGemma", GRIFFIN | {
        "num_key_value_heads": 2, "attention_bias": True, "block_types": ["attention", "recurrent"], "lru_width": None,
    }),
}  # fmt: skip
