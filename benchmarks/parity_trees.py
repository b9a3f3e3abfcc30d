"""Log-probabilities of the levanter and EasyDeL libraries' own models, and of this engine on the
checkpoints they save.

Neither library can be installed beside this package, so each saves its models from an environment
of its own:

    levanter/bin/pip install marin-levanter==0.2.20.dev202606180959 gitpython
    levanter/bin/python benchmarks/parity_trees.py --save=levanter --trees=trees/levanter
    easydel/bin/pip install easydel==0.3.0 pillow torch==2.13.0
    easydel/bin/python benchmarks/parity_trees.py --save=easydel --trees=trees/easydel
    python benchmarks/parity_trees.py --trees=trees/levanter
    python benchmarks/parity_trees.py --trees=trees/easydel

Prints the largest difference over two rows of twelve tokens and the whole vocabulary; ends with an
error above 1e-4 nats.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_enum(
    "save", None, ["levanter", "easydel"], "the library whose models to save; absent: compare"
)
flags.DEFINE_string("trees", None, "folder of the checkpoints", required=True)

VOCAB, LENGTH, HEAD = 61, 12, 6
TOKEN_IDS = np.random.default_rng(0).integers(0, VOCAB, (2, LENGTH)).astype(np.int32)


def moved(tree: Any) -> Any:
    """The tree with every number, those of norms too, moved from its neutral value."""
    leaves, structure = jax.tree.flatten(tree)
    for i, x in enumerate(leaves):
        if hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating):
            leaves[i] = x + 0.15 * jax.random.normal(jax.random.key(i), x.shape, x.dtype)
    return jax.tree.unflatten(structure, leaves)


def mend(folder: Path, **fields: Any) -> None:
    """Change fields of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def save_levanter(trees: Path) -> None:
    """What levanter computes and its config.json does not say: Gemma 2 and 3 scale queries by the
    head's size, and Gemma 2 has no final soft cap."""
    import haliax  # pyright: ignore[reportMissingImports]
    from levanter.checkpoint import save_checkpoint  # pyright: ignore[reportMissingImports]
    from levanter.layers.attention import AttentionMask  # pyright: ignore[reportMissingImports]
    from levanter.models import gemma, gpt2, llama, mistral, olmo, qwen  # pyright: ignore[reportMissingImports]

    sizes = {"max_seq_len": 32, "hidden_dim": 24, "num_layers": 3, "num_heads": 4}
    more = {**sizes, "intermediate_dim": 40, "num_kv_heads": 2}
    own_scale = {"head_dim": HEAD, "query_pre_attn_scalar": HEAD}
    models: dict[str, tuple[Any, dict[str, Any]]] = {
        "llama": (llama.LlamaConfig(**more), {}),
        "mistral": (mistral.MistralConfig(**more), {}),
        "qwen2": (qwen.QwenConfig(**more), {}),
        "qwen3": (qwen.Qwen3Config(**more), {}),
        "olmo2": (olmo.Olmo2Config(**more), {}),
        "gpt2": (gpt2.Gpt2Config(**sizes), {}),
        "gemma": (gemma.GemmaConfig(**more), {"head_dim": HEAD}),
        "gemma2": (gemma.Gemma2Config(**more), own_scale | {"final_logit_softcapping": None}),
        "gemma3": (gemma.Gemma3Config(**more), own_scale | {"use_qk_norm": False}),
    }
    vocab, batch = haliax.Axis("vocab", VOCAB), haliax.Axis("batch", len(TOKEN_IDS))
    for name, (config, fields) in models.items():
        model = moved(config.model_type.init(vocab, config, key=jax.random.PRNGKey(0)))
        position = config.max_Pos.resize(LENGTH)
        token_ids = haliax.named(jnp.asarray(TOKEN_IDS), (batch, position))
        with jax.default_matmul_precision("highest"):
            logits = (
                model(token_ids, attn_mask=AttentionMask.causal())
                .rearrange((batch, position, vocab))
                .array
            )
        save_checkpoint({"model": model}, 7, str(trees / name / "step-7"))
        config.to_hf_config(VOCAB).save_pretrained(trees / name)
        mend(trees / name, **fields)
        np.save(trees / name / "logprobs.npy", jax.nn.log_softmax(logits, axis=-1))


def save_easydel(trees: Path) -> None:
    """What EasyDeL computes otherwise: its rotary table is bfloat16 (here it is replaced), and a
    token sees one token more than sliding_window."""
    import easydel  # pyright: ignore[reportMissingImports]
    from flax import nnx

    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "head_dim": HEAD,
    }
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}
    models: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "llama": (easydel.LlamaConfig, easydel.LlamaForCausalLM, {}),
        "mistral": (easydel.MistralConfig, easydel.MistralForCausalLM, {"sliding_window": 4}),
        "qwen2": (easydel.Qwen2Config, easydel.Qwen2ForCausalLM, {}),
        "qwen3": (easydel.Qwen3Config, easydel.Qwen3ForCausalLM, {}),
    }
    single = {
        "dtype": jnp.float32,
        "param_dtype": jnp.float32,
        "precision": jax.lax.Precision.HIGHEST,
    }
    for name, (config_class, model_class, fields) in models.items():
        config = config_class(**sizes, **fields, attn_mechanism="vanilla", attn_dtype=jnp.float32)
        model = model_class(config=config, **single, rngs=nnx.Rngs(0))
        nnx.update(model, moved(nnx.state(model, nnx.Param)))
        run: Callable[[], jax.Array] = lambda: model(input_ids=jnp.asarray(TOKEN_IDS)).logits  # noqa: B023, E731
        angle = np.outer(np.arange(32), float(config.rope_theta) ** -(np.arange(0, HEAD, 2) / HEAD))
        table = jnp.asarray(np.concatenate([np.cos(angle), np.sin(angle)], axis=-1), jnp.float32)
        with model.mesh:
            run()  # makes the table
            exact = jax.tree_util.tree_map_with_path(
                lambda path, x: table if "frequencies" in jax.tree_util.keystr(path) else x,  # noqa: B023
                nnx.state(model),
            )
            nnx.update(model, exact)
            logits = run().astype(jnp.float32)
        model.save_pretrained(trees / name)
        if "sliding_window" in fields:
            mend(trees / name, sliding_window=fields["sliding_window"] + 1)
        np.save(trees / name / "logprobs.npy", jax.nn.log_softmax(logits, axis=-1))


def difference(folder: Path) -> float:
    """In nats, of the library and of this engine."""
    from miron_jax.model.checkpoints.hf_config import from_hf_config
    from miron_jax.model.checkpoints.training_run import load_step, training_steps

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests.support.plain_rows import logprobs

    config = from_hf_config(folder)
    steps = training_steps(folder)
    state = load_step(steps[0][1] if steps else folder, config, jnp.float32)
    ours = logprobs(config, state, TOKEN_IDS)
    return float(np.abs(ours - np.load(folder / "logprobs.npy")).max())


def main(_: list[str]) -> None:
    trees = Path(FLAGS.trees).absolute()
    if FLAGS.save:
        {"levanter": save_levanter, "easydel": save_easydel}[FLAGS.save](trees)
        return
    jax.config.update("jax_default_matmul_precision", "highest")
    differences = {folder.name: difference(folder) for folder in sorted(trees.iterdir())}
    for name, nats in differences.items():
        print(f"{name:8} {nats:.1e} nats")
    if max(differences.values()) > 1e-4:
        raise SystemExit("above 1e-4 nats")


if __name__ == "__main__":
    app.run(main)
