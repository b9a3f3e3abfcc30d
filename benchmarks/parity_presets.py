"""Log-probabilities of the gemma library's own modules, and of this engine on the trees that they
save.  (`make trainers` has the other libraries.)

    pip download --no-deps --dest=wheels gemma==3.3.0
    python -m zipfile -e wheels/gemma-*.whl sources
    pip install jaxtyping einops
    python benchmarks/parity_presets.py --sources=sources

The library is imported from --sources without its packages' __init__, which want TensorFlow,
Kauldron and others.  Prints the largest difference over two rows of twelve tokens and the whole
vocabulary; ends with an error above 1e-4 nats.
"""

import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from absl import app, flags
from common import say
from flax import linen

from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.checkpoints.training_run import load_step

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.support.plain_rows import logprobs

FLAGS = flags.FLAGS
flags.DEFINE_string("sources", None, "folder with the package gemma", required=True)

SIZES = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "rope_theta": 1e6,
}  # fmt: skip
LENGTH = 12


def use_sources(folder: Path) -> None:
    """Packages that are folders alone, and stand-ins for what their modules import and do not need
    here."""
    named: dict[str, Any] = {
        name: types.ModuleType(name) for name in ("kauldron", "kauldron.typing")
    }
    for name in (
        "gemma",
        "gemma.gm",
        "gemma.gm.nn",
        "gemma.gm.math",
    ):
        named[name] = types.ModuleType(name)
        named[name].__path__ = [str(folder / name.replace(".", "/"))]
    named["kauldron"].kd = types.SimpleNamespace(
        nn=types.SimpleNamespace(Identity=lambda: lambda x: x)
    )
    anything = type("Anything", (), {"__class_getitem__": classmethod(lambda cls, _: cls)})
    for name in ("Bool", "Int"):
        setattr(named["kauldron.typing"], name, anything)
    sys.modules.update(named)


def random_like(tree: Any) -> Any:
    """Numbers of the weights' sizes; norms too differ from their neutral value."""
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(0.0, 0.3, x.shape), jnp.float32), tree)


def rows(token_ids: jax.Array | np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Positions and causal mask."""
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    return jnp.tile(jnp.arange(LENGTH)[None], (len(token_ids), 1)), jnp.tile(
        mask[None], (len(token_ids), 1, 1)
    )


def gemma(family: str, token_ids: np.ndarray) -> tuple[dict[str, Any], Any, jax.Array]:
    """Fields of config.json, the tree to save, and logits."""
    from gemma.gm.nn import _layers, _modules  # pyright: ignore[reportMissingImports]

    local, everywhere = _modules.AttentionType.LOCAL_SLIDING, _modules.AttentionType.GLOBAL
    kinds = [everywhere] * 3 if family == "gemma" else [local, local, everywhere]
    later, kv_heads = family != "gemma", 4 if family == "gemma" else 2
    softcap = 3.0 if family == "gemma2" else None

    class Model(linen.Module):
        @linen.compact
        def __call__(self, token_ids: jax.Array) -> jax.Array:
            embedder = _modules.Embedder(vocab_size=64, embed_dim=16, name="embedder")
            x, (position, mask) = embedder.encode(token_ids), rows(token_ids)
            for i, kind in enumerate(kinds):
                block = _modules.Block(
                    name=f"layer_{i}", num_heads=4, num_kv_heads=kv_heads, embed_dim=16, head_dim=8,
                    hidden_dim=24,
                    use_post_attn_norm=later, use_post_ffw_norm=later, attn_type=kind,
                    query_pre_attn_scalar=13**-0.5 if later else 8**-0.5,
                    transpose_gating_einsum=family == "gemma3_text",
                    attn_logits_soft_cap=softcap, sliding_window_size=4,
                    use_qk_norm=family == "gemma3_text",
                    rope_base_frequency=10_000 if family == "gemma3_text" and kind is local else 1_000_000,  # noqa: E501
                )  # fmt: skip
                _, x = block(x, position, None, mask)
            logits = embedder.decode(_layers.RMSNorm(name="final_norm")(x))
            return logits if softcap is None else softcap * jnp.tanh(logits / softcap)

    fields: dict[str, Any] = {
        "model_type": family,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": 1e-6,
    }
    if later:
        types_ = ["sliding_attention" if kind is local else "full_attention" for kind in kinds]
        fields |= {"query_pre_attn_scalar": 13, "sliding_window": 4, "layer_types": types_}
        fields |= {"final_logit_softcapping": softcap, "attn_logit_softcapping": softcap}
    if family == "gemma3_text":
        fields["rope_local_base_freq"] = 1e4
    params = random_like(Model().init(jax.random.key(0), jnp.asarray(token_ids)))
    logits: Any = Model().apply(params, jnp.asarray(token_ids))
    return fields, params, logits


def difference(family: str) -> float:
    """In nats, of the library and of this engine on its tree."""
    token_ids = np.random.default_rng(0).integers(1, 64, (2, LENGTH), dtype=np.int32)
    fields, tree, logits = gemma(family, token_ids)
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        with ocp.PyTreeCheckpointer() as saver:
            saver.save(folder / "7", tree)
        (folder / "config.json").write_text(json.dumps(SIZES | fields))
        config = from_hf_config(folder)
        ours = logprobs(config, load_step(folder / "7", config, jnp.float32, "gemma"), token_ids)
    return float(np.abs(ours - np.asarray(jax.nn.log_softmax(logits, axis=-1))).max())


def main(_arguments: list[str]) -> None:
    use_sources(Path(FLAGS.sources))
    for family in ("gemma", "gemma2", "gemma3_text"):
        largest = difference(family)
        say(f"gemma, {family}: {largest:.1e} nats at most")
        if largest > 1e-4:
            raise SystemExit(f"gemma, {family}: another model than the library's")


if __name__ == "__main__":
    app.run(main)
