"""Saves tiny models of MaxText by its own checkpointing, and what they compute.

Beside each lies maxtext.yml, all fields of its config, written as docs/checkpoints.md says.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import maxtext  # pyright: ignore[reportMissingImports]
from flax import nnx
from maxtext.common import checkpointing, train_state_nnx  # pyright: ignore[reportMissingImports]
from maxtext.configs import pyconfig  # pyright: ignore[reportMissingImports]
from maxtext.utils import maxtext_utils, model_creation_utils, train_utils  # pyright: ignore[reportMissingImports]
from saved import (
    LENGTH,
    ORIGINAL,
    SIZES,
    STEP,
    TOKEN_IDS,
    VOCAB,
    WINDOW,
    Cases,
    moved,
    rounded,
    rows,
)

Fields = dict[str, Any]
BASE = Path(str(maxtext.__file__)).parent / "configs" / "base.yml"
COMMON: Fields = {
    "run_name": "tiny", "model_name": "default", "override_model_config": True, "hardware": "cpu",
    "skip_jax_distributed_system": True, "base_output_directory": "unused", "log_config": False,
    "async_checkpointing": False, "checkpoint_period": 1, "enable_dropout": False,
    "attention": "dot_product", "dtype": "float32", "matmul_precision": "highest",
    "per_device_batch_size": len(TOKEN_IDS), "max_target_length": LENGTH, "vocab_size": VOCAB,
    "base_emb_dim": 32, "base_mlp_dim": 40, "base_num_query_heads": 4, "base_num_kv_heads": 2,
    "head_dim": 8, "base_num_decoder_layers": 3, "mlp_activations": ["silu", "linear"],
    "decoder_block": "llama2", "normalization_layer_epsilon": 1e-5, "rope_max_timescale": 10_000,
}  # fmt: skip
LLAMA: Fields = {
    **SIZES, "model_type": "llama", "num_hidden_layers": 3, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
    "tie_word_embeddings": False, "hidden_act": "silu",
}  # fmt: skip
OF_GEMMA: Fields = {
    "mlp_activations": ["gelu", "linear"], "normalization_layer_epsilon": 1e-6,
    "logits_via_embedding": True,
}  # fmt: skip
GEMMA: Fields = {
    **SIZES,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "hidden_activation": "gelu_pytorch_tanh",
}
LOCAL: Fields = {"sliding_window": WINDOW, "query_pre_attn_scalar": 8}
YARN: Fields = {
    "rope_type": "yarn", "rope_factor": 4, "original_max_position_embeddings": ORIGINAL,
    "max_position_embeddings": 256,
}  # fmt: skip


def scaled(kind: str, **fields: float) -> Fields:
    return {"rope_scaling": {"rope_type": kind, **fields}}


def models() -> dict[str, tuple[Fields, Fields]]:
    """MaxText's fields, and those of config.json."""
    yarn = scaled(
        "yarn", factor=4.0, original_max_position_embeddings=ORIGINAL, attention_factor=1.0
    )
    llama3 = scaled(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    )  # fmt: skip
    tied = LLAMA | {"tie_word_embeddings": True}
    first = GEMMA | {"model_type": "gemma", "num_hidden_layers": 3}
    kinds = ["sliding_attention", "full_attention"]
    caps = {"final_logit_softcapping": 3.0, "attn_logit_softcapping": 5.0}
    second = GEMMA | LOCAL | caps | {"model_type": "gemma2", "num_hidden_layers": 4}
    third = GEMMA | LOCAL | {"model_type": "gemma3_text", "num_hidden_layers": 7}
    return {
        "Llama": ({}, LLAMA),
        "Llama, llama3.1": ({"rope_type": "llama3.1"}, LLAMA | llama3),
        "Llama, llama3.1 without scale": (
            {"rope_type": "llama3.1", "rope_use_scale": False}, LLAMA
        ),
        "Llama, yarn": (YARN, LLAMA | yarn),
        "Llama, yarn in halves": (YARN | {"rope_interleave": False}, LLAMA | yarn),
        "Llama, yarn scaled": (
            YARN | {"rope_attention_scaling": True},
            LLAMA | scaled("yarn", factor=4.0, original_max_position_embeddings=ORIGINAL),
        ),
        "Llama, linear": (
            {"rope_linear_scaling_factor": 4.0}, LLAMA | scaled("linear", factor=4.0)
        ),
        "Llama, attention capped": ({"attn_logits_soft_cap": 2.0}, LLAMA),
        "Llama, tied head": ({"logits_via_embedding": True}, tied),
        "Llama, tied head, undivided": (
            {"logits_via_embedding": True, "normalize_embedding_logits": False}, tied
        ),
        "Mistral": (
            {"decoder_block": "mistral"}, LLAMA | {"model_type": "mistral", "sliding_window": None}
        ),
        "Gemma 1": (OF_GEMMA | {"decoder_block": "gemma"}, first),
        "Gemma 1, undivided": (
            OF_GEMMA | {"decoder_block": "gemma", "normalize_embedding_logits": False},
            first,
        ),
        "Gemma 2": (
            OF_GEMMA | {
                "decoder_block": "gemma2", "base_num_decoder_layers": 2, "use_post_attn_norm": True,
                "use_post_ffw_norm": True, "final_logits_soft_cap": 3.0,
                "attn_logits_soft_cap": 5.0, "sliding_window_size": WINDOW,
            },
            second | {"layer_types": kinds * 2},
        ),
        "Gemma 3": (
            OF_GEMMA | {
                "model_name": "gemma3-4b", "decoder_block": "gemma3", "base_num_decoder_layers": 7,
                "use_post_attn_norm": True, "use_post_ffw_norm": True,
                "sliding_window_size": WINDOW, "rope_linear_scaling_factor": 1.0,
                "rope_max_timescale": 1_000_000, "local_rope_max_timescale": 10_000,
            },
            third | {
                "rope_theta": 1e6, "rope_local_base_freq": 1e4,
                "layer_types": [kinds[0]] * 5 + kinds[1:] + kinds[:1],
            },
        ),
    }  # fmt: skip


def write_fields(run: Path, config: Any) -> None:
    fields = config.get_keys()
    plain = json.dumps(fields, default=lambda x: getattr(x, "value", str(x)))
    (run / "maxtext.yml").write_text(plain)


def save_state(run: Path, config: Any, state: Any) -> None:
    """As the trainer does: weights, step and optimizer."""
    write_fields(run, config)
    manager = checkpointing.create_orbax_checkpoint_manager(str(run), True, False, 1)
    checkpointing.save_checkpoint(manager, STEP, state, config, force=True)
    checkpointing.wait_until_finished(manager)


def save_params(run: Path, config: Any, params: Any, use_ocdbt: bool = True) -> None:
    """Weights alone, below params/params."""
    write_fields(run, config)
    tree = {"params": params.to_pure_dict()}
    path = str(run / str(STEP))
    checkpointing.save_params_to_path(path, tree, use_ocdbt=use_ocdbt, use_zarr3=use_ocdbt)


def add(cases: Cases, name: str, fields: Fields, document: Fields, **layout: Any) -> None:
    """A model in the layouts that its fields leave."""
    config = pyconfig.initialize(["", str(BASE)], **COMMON | fields | layout)
    mesh = maxtext_utils.get_mesh_from_config(config)
    token_ids, position, _ = rows()
    with jax.set_mesh(mesh):
        model = model_creation_utils.from_config(config, mesh=mesh, rngs=nnx.Rngs(0))
        weights = rounded(moved(nnx.state(model, nnx.Param)))
        nnx.update(model, weights)
        segment = jnp.ones_like(token_ids)
        logits = model(token_ids, position, decoder_segment_ids=segment, enable_dropout=False)
        _, tx = train_utils.create_training_optimizer(config, model)
        state = train_state_nnx.TrainStateNNX(model, nnx.Optimizer(model, tx, wrt=nnx.Param))
        scanned = "scanned" if config.scan_layers else "not scanned"
        if config.param_scan_axis == 0:
            scanned += ", param_scan_axis 0"
        save = partial(cases.add, name, logits=logits, config=document, param_map="RUN/maxtext.yml")
        whole = partial(save_state, config=config, state=state)
        if config.fused_qkv:
            save("fused_qkv", save=whole, refused="one kernel for queries, keys and values")
            return
        save(f"training state, {scanned}", save=whole)
        params = partial(save_params, config=config, params=weights)
        if layout or "," in name:
            return
        save("weights alone", save=params)
        if name == "Llama":
            save("weights alone, without OCDBT", save=partial(params, use_ocdbt=False))
            half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), weights)
            save("weights alone, bfloat16", save=partial(params, params=half))
            why = "how it rotates, caps and divides must be said"
            cases.add(name, "without maxtext.yml", logits, params, document, refused=why)


def main() -> None:
    cases = Cases("maxtext", "flax", "orbax-checkpoint")
    for name, (fields, document) in models().items():
        add(cases, name, fields, document)
        if "," not in name:
            add(cases, name, fields, document, scan_layers=False)
    add(cases, "Llama", {}, LLAMA, param_scan_axis=0)
    add(cases, "Llama", {}, LLAMA, fused_qkv=True)


if __name__ == "__main__":
    main()
