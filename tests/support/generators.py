"""A tiny model that generates texts, and the slow twin: a whole forward pass a token."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.engine.decode import decoder_of
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model, Network
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.checkpoints.hf_reader import load_hf
from miron_jax.model.decoder.decoder import abstract, leaf_name
from miron_jax.model.visibility import Visibility
from miron_jax.runtime.devices import Tree
from miron_jax.tokens.tokenizers import Tokenizer, load_tokenizer
from tests.support.tiny_model import make_model


class Tiny(NamedTuple):
    model: Model
    tokenizer: Tokenizer
    folder: Path


def load(folder: Path) -> Tiny:
    config, state = load_hf(folder, jnp.dtype("float32"))
    return Tiny(Model(config, abstract(config, jnp.dtype("float32"))[0], state), load_tokenizer(str(folder)), folder)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return load(make_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def shared(tiny: Tiny) -> Generator:
    """One generator, whose programs are compiled once."""
    return Generator(tiny.model, tiny.tokenizer, slots=8)


def random_model(folder: Path, config: dict[str, Any], seed: int = 3) -> Model:
    """A float32 model of this config.json.  NumPy draws its weights: jax would compile a program for each shape."""
    (folder / "config.json").write_text(json.dumps(config))
    model_config, rng = from_hf_config(folder), np.random.default_rng(seed)
    network, shapes = abstract(model_config, jnp.dtype("float32"))

    def draw(path: Any, leaf: Any) -> jax.Array:
        return jnp.asarray(float("norm" in leaf_name(path)) + rng.normal(0, 0.3, leaf.shape), leaf.dtype)

    return Model(model_config, network, jax.tree_util.tree_map_with_path(draw, shapes))


class NoText:
    """The tokenizer of a model that has none: the text is not looked at."""

    def __len__(self) -> int:
        return 331

    def get_vocab(self) -> dict[str, int]:
        return {str(i): i for i in range(331)}

    def decode(self, ids: list[int], **_: Any) -> str:
        return ""


LONGEST = 160  # slots of the slow twin's one row, padded on the right


@partial(jax.jit, static_argnums=0)
def last_logits(graphdef: Network, state: Tree, row_T: jax.Array, length: jax.Array) -> jax.Array:
    decoder = decoder_of(graphdef, state)
    position = jnp.arange(LONGEST, dtype=jnp.int32)[None]
    hidden = decoder(row_T[None], position, Visibility(jnp.full((1, LONGEST), LONGEST, jnp.int32), position))
    head = decoder.head()
    return head.logits(hidden[0, length - 1][None])[0]


def slow_logits(model: Model, ids: Sequence[int]) -> np.ndarray:
    row = np.zeros(LONGEST, np.int32)
    row[: len(ids)] = ids
    return np.asarray(last_logits(model.graphdef, model.state, row, np.int32(len(ids))))


def slow_greedy(model: Model, prompt: tuple[int, ...], count: int) -> list[int]:
    """One token a whole forward pass; NumPy's argmax takes the lowest id among equals, as the engine promises."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(slow_logits(model, ids).argmax()))
    return ids[len(prompt) :]


def prompts(count: int, seed: int, vocabulary: int) -> list[tuple[int, ...]]:
    """Random prompts of 1 to 40 tokens, many of which begin alike."""
    rng = np.random.default_rng(seed)
    shared = rng.integers(1, vocabulary, 24).tolist()
    return [
        (*shared[: int(rng.integers(0, 25))], *rng.integers(1, vocabulary, int(rng.integers(1, 17))).tolist())
        for _ in range(count)
    ]
