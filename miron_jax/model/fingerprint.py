"""Fingerprints of what scores depend on: weights as they lie on the devices, and the tokenizer.

Arrives: a state, a tokenizer.  Leaves: hex strings.  It deliberately does not look at files: a copy has the same
fingerprint, a number that changed in place another one, and weights from a training loop have theirs.
"""

import json
from functools import partial
from hashlib import blake2b
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.model.decoder import leaf_name

_WORDS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}
_LANES = np.asarray([0x9E3779B1, 0x85EBCA77], np.uint32)  # odd, from xxHash's primes
_FACTORS = np.asarray([0x2C1B3C6D, 0x297A2D39], np.uint32)
_AXES = np.asarray([0x165667B1, 0xD3A2646D, 0xFD7046C5, 0xB55A4F09, 0x8DA6B343], np.uint32)


def weights_fingerprint(state: Any) -> str:
    """Of every bit of the weights, whatever devices they lie on.

    Each leaf is read once on its devices: 64 bits, two sums modulo 2**32 of what its words and their places are mixed to.
    Zeros that fill an axis up add nothing.
    """
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    told = [(leaf_name(path), str(leaf.dtype), _sums(leaf).tobytes().hex()) for path, leaf in leaves]
    return blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()


def _sums(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(_sums_on_device(leaf))


@partial(jax.jit)
def _sums_on_device(leaf: jax.Array) -> jax.Array:
    """uint32 [2]."""
    size = leaf.dtype.itemsize
    if leaf.dtype == bool:
        words = leaf.astype(jnp.uint32)
    elif size in _WORDS:
        words = jax.lax.bitcast_convert_type(leaf, _WORDS[size]).astype(jnp.uint32)
    else:
        words = jax.lax.bitcast_convert_type(leaf, jnp.uint32)  # a last axis of two words
    place = jnp.zeros(words.shape, jnp.uint32)
    for axis in range(words.ndim):
        place += jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis) * _AXES[axis % len(_AXES)]
    sums = []
    for lane in _LANES:
        # A word times a number of its place would not do: sign bits, 2**31 each, cancel in pairs.
        mixed = (words ^ ((place ^ (place >> 15)) * lane)) * _FACTORS[0]
        mixed = (mixed ^ (mixed >> 15)) * _FACTORS[1]
        mixed = mixed ^ (mixed >> 13)
        sums.append(jnp.where(words == 0, jnp.uint32(0), mixed).sum(dtype=jnp.uint32))
    return jnp.stack(sums)


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Of its vocabulary, rules and special tokens."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = backend.to_str() if backend is not None else sorted(tokenizer.get_vocab().items())
    special = {name: str(value) for name, value in sorted(getattr(tokenizer, "special_tokens_map", {}).items())}
    told = json.dumps([type(tokenizer).__name__, rules, special, getattr(tokenizer, "all_special_ids", [])])
    return blake2b(told.encode(), digest_size=16).hexdigest()
