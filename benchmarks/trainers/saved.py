"""What the scripts of all trainers share: the texts, and the form in which a case is left.

Runs in each trainer's environment, beside no package but jax and NumPy.  A case is a folder:

    case.json    what was saved, by which versions, and the flags that read it
    logprob.npy  float32 [rows, LENGTH - 1 or fewer]: nats of each next token, by the trainer's own
                 forward
    run/         the trainer's checkpoint, below a step, with its config.json
"""

import importlib.metadata
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

VOCAB = 96
LENGTH = 150  # more than 64, and more than ORIGINAL
ORIGINAL = 64  # original_max_position_embeddings of scaled rotations
WINDOW = 24
TOKEN_IDS = np.random.default_rng(0).integers(1, VOCAB, (2, LENGTH)).astype(np.int32)
STEP = 7
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 40, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256,
}  # fmt: skip


def moved(tree: Any) -> Any:
    """The tree with every number, those of norms too, moved from its neutral value."""
    leaves, structure = jax.tree.flatten(tree)
    for i, x in enumerate(leaves):
        if hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating):
            leaves[i] = x + 0.15 * jax.random.normal(jax.random.key(i), x.shape, x.dtype)
    return jax.tree.unflatten(structure, leaves)


def as_dtype(tree: Any, dtype: Any) -> Any:
    """The tree with its floating numbers in another dtype."""

    def cast(x: Any) -> Any:
        is_float = hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)
        return x.astype(dtype) if is_float else x

    return jax.tree.map(cast, tree)


def rounded(tree: Any) -> Any:
    """Float32 numbers that bfloat16 holds exactly."""
    return as_dtype(as_dtype(tree, jnp.bfloat16), jnp.float32)


def rows() -> tuple[jax.Array, jax.Array, jax.Array]:
    """Token ids, positions, and a causal mask [rows, query, key]."""
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    position = jnp.tile(jnp.arange(LENGTH)[None], (len(TOKEN_IDS), 1))
    return jnp.asarray(TOKEN_IDS), position, jnp.tile(mask[None], (len(TOKEN_IDS), 1, 1))


class Cases:
    """The cases of one trainer, in a folder each below the script's argument."""

    def __init__(self, *packages: str) -> None:
        jax.config.update("jax_default_matmul_precision", "highest")
        self.folder = Path(sys.argv[1]).absolute()
        self.versions = {name: importlib.metadata.version(name) for name in (*packages, "jax")}
        self.count = 0

    def add(
        self,
        model: str,
        layout: str,
        logits: Any,
        save: Callable[[Path], object],
        config: Mapping[str, Any] | None = None,
        refused: str = "",
        factory: str = "RUN",
        until: int = LENGTH,
        **flags: str,
    ) -> None:
        """Save a model of a layout and what it computes.

        `save` gets the run's folder; `config`: of config.json; `refused`: why miron_jax must not
        read it; `until`: positions that are compared; `factory`, `flags`: --model and others of
        miron_jax, where RUN stands for the run's folder.
        """
        self.count += 1
        folder = self.folder / f"{self.count:02}"
        run = folder / "run"
        run.mkdir(parents=True)
        save(run)
        if config is not None:
            (run / "config.json").write_text(json.dumps({**config}))
        scores = jax.nn.log_softmax(jnp.asarray(logits, jnp.float32)[..., :VOCAB], axis=-1)
        target = TOKEN_IDS[:, 1:, None]
        logprob = np.take_along_axis(np.asarray(scores)[:, :-1], target, axis=2)[..., 0]
        np.save(folder / "logprob.npy", logprob[:, :until])
        case = {
            "model": model,
            "layout": layout,
            "flags": {"model": factory, **flags},
            "refused": refused,
        }
        (folder / "case.json").write_text(json.dumps({**case, "versions": self.versions}))
        print(f"{folder.name} {model}, {layout}", flush=True)
