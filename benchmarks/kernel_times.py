"""Seconds of one layer's attention in every implementation, and of the head by chunk, in bfloat16; for `gpu_suite.py`."""

import itertools
import statistics
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import say, seconds_of

from miron_jax.kernels.forest_attention import cudnn, xla
from miron_jax.kernels.target_logprob.layout import lay_out
from miron_jax.kernels.target_logprob.xla import target_logprob


def attention_seconds(smoke: bool) -> dict[str, Any]:
    """Of one layer, texts that see all before them and forests: branches of 64 places behind a quarter of the row."""
    heads, size, places = (2, 16, 1024) if smoke else (10, 128, 32768)
    ways: dict[str, Callable[..., jax.Array]] = {
        "xla": lambda q, k, v, subtree_end, index, bias: xla.forest_attention(
            q, k, v, subtree_end, index, scale=0.1, bias_BTT=bias
        ),
        "cudnn": lambda q, k, v, subtree_end, index, bias: cudnn.forest_attention(
            q, k, v, bias.astype(jnp.bfloat16), scale=0.1
        ),
    }
    found: dict[str, Any] = {}
    for name, length in itertools.product(ways, (128,) if smoke else (512, 2048)):
        rows = places // length
        q, k, v = (
            jax.random.normal(jax.random.key(i), (rows, length, heads, size), jnp.float32).astype(jnp.bfloat16)
            for i in range(3)
        )
        index = np.arange(length, dtype=np.int32)
        branches = np.where(index < length // 4, length, (index // 64 + 1) * 64)
        for kind, own in (("texts", np.full(length, length)), ("forests", np.minimum(branches, length))):
            subtree_end, index_BT = (jnp.tile(jnp.asarray(x, jnp.int32)[None], (rows, 1)) for x in (own, index))
            bias = xla.hidden_bias(subtree_end, index_BT)
            label = f"{name}_{length}_{kind}"
            try:
                found[label] = kernel_seconds(jax.jit(ways[name]), q, k, v, subtree_end, index_BT, bias)
            except Exception as error:  # a device without it
                found[label] = f"{type(error).__name__}: {str(error)[:200]}"
            say(f"  attention {name}, {rows} rows of {length}, {kind}: {found[label]}")
    return found


def head_seconds(smoke: bool) -> dict[str, Any]:
    """Of the head of the 561M shape, by chunk."""
    sources, width, vocabulary = (512, 32, 600) if smoke else (8192, 1280, 65536)
    weight = jax.random.normal(jax.random.key(0), (vocabulary, width), jnp.float32).astype(jnp.bfloat16)
    hidden = jax.random.normal(jax.random.key(1), (sources, width), jnp.float32)
    target = np.random.default_rng(0).integers(0, vocabulary, sources)
    found: dict[str, Any] = {}
    for chunk in (64, 128) if smoke else (128, 256, 512, 1024, 2048, 4096):
        laid = lay_out(np.arange(sources), target, chunk)
        arrays = [
            np.asarray(x, np.int32) for x in (target, np.append(laid.round_start_R, sources), laid.chunk_round_C1)
        ]
        score = jax.jit(
            lambda h, w, t, r, c, n, chunk=chunk: target_logprob(h, w, t, r, c, n, chunk=chunk, softcap=15.0)
        )
        chunks = jnp.int32(len(laid.chunk_round_C1) - 1)
        found[str(chunk)] = kernel_seconds(score, hidden, weight, *arrays, chunks)
        say(f"  head, {sources} sources in chunks of {chunk}: {found[str(chunk)]:.5f} s")
    return found


def kernel_seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Of one call, median of nine, compilation apart."""
    jax.block_until_ready(function(*arguments))
    return statistics.median(seconds_of(lambda: jax.block_until_ready(function(*arguments)))[0] for _ in range(9))
