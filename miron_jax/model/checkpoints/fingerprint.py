"""Fingerprints of weights on devices, and of tokenizers.

Arrives: a state, a tokenizer.  Leaves: hex strings.  It deliberately does not read files: copies
have the same fingerprint, a changed number gives another one, and weights of a training loop have
one too.
"""

import json
from hashlib import blake2b

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.model.decoder.decoder import leaf_name
from miron_jax.model.network import is_key
from miron_jax.runtime.devices import Tree
from miron_jax.runtime.timeline import spent_on
from miron_jax.tokens.tokenizers import Tokenizer

_WORDS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}
_LANES = np.asarray([0x9E3779B1, 0x85EBCA77], np.uint32)  # odd, from xxHash's primes
_FACTORS = np.asarray([0x2C1B3C6D, 0x297A2D39], np.uint32)
_AXES = np.asarray([0x165667B1, 0xD3A2646D, 0xFD7046C5, 0xB55A4F09, 0x8DA6B343], np.uint32)


@spent_on("load")
def weights_fingerprint(state: Tree) -> str:
    """Fingerprint of every bit of the weights, independent of their devices and shardings.

    One program reads each leaf once on its devices and reduces it to 64 bits: two sums modulo 2**32
    of a hash of each word and its position.  Zeros that pad an axis add nothing.
    """
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    hashes = []
    for (path, leaf), sums in zip(leaves, _sums([leaf for _, leaf in leaves]), strict=True):
        hashes.append((leaf_name(path), str(leaf.dtype), np.asarray(sums).tobytes().hex()))
    return blake2b(json.dumps(hashes).encode(), digest_size=16).hexdigest()


def compile_sums(state: Tree) -> jax.stages.Compiled:
    """The program that reads these weights, for devices that only compile."""
    return _sums.lower(jax.tree.leaves(state)).compile()


@jax.jit
def _sums(leaves: list[jax.Array]) -> list[jax.Array]:
    return [_sums_of(jax.random.key_data(leaf) if is_key(leaf) else leaf) for leaf in leaves]


def _sums_of(leaf: jax.Array) -> jax.Array:
    """Two sums of the hashes of all words, uint32 [2]."""
    size = leaf.dtype.itemsize
    if leaf.dtype == bool:
        words = leaf.astype(jnp.uint32)
    elif size in _WORDS:
        words = jax.lax.bitcast_convert_type(leaf, _WORDS[size]).astype(jnp.uint32)
    else:
        words = jax.lax.bitcast_convert_type(leaf, jnp.uint32)  # a last axis of two words
    position = jnp.zeros(words.shape, jnp.uint32)
    for axis in range(words.ndim):
        position += (
            jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis) * _AXES[axis % len(_AXES)]
        )
    hashes = []
    for lane in _LANES:
        # The product of a word and its position is too weak: sign bits, 2**31 each, would cancel in
        # pairs.
        mixed = (words ^ ((position ^ (position >> 15)) * lane)) * _FACTORS[0]
        mixed = (mixed ^ (mixed >> 15)) * _FACTORS[1]
        mixed = mixed ^ (mixed >> 13)
        hashes.append(jnp.where(words == 0, jnp.uint32(0), mixed))

    def add(left: list[jax.Array], right: list[jax.Array]) -> list[jax.Array]:
        return [*map(jnp.add, left, right)]

    # As one reduction: of two, XLA on CPU writes the words and positions to memory, 8 bytes each,
    # and takes 18 times as long.
    zeros = [jnp.uint32(0)] * len(_LANES)
    return jnp.stack(jax.lax.reduce(hashes, zeros, add, tuple(range(words.ndim))))


def tokenizer_fingerprint(tokenizer: Tokenizer) -> str:
    """Fingerprint of a tokenizer's vocabulary, rules and special tokens."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = backend.to_str() if backend is not None else sorted(tokenizer.get_vocab().items())
    special = {}
    for name, value in sorted(getattr(tokenizer, "special_tokens_map", {}).items()):
        special[name] = str(value)
    text = json.dumps(
        [type(tokenizer).__name__, rules, special, getattr(tokenizer, "all_special_ids", [])]
    )
    return blake2b(text.encode(), digest_size=16).hexdigest()
