"""Seconds of one layer's attention in every implementation, and of the head by chunk, in bfloat16;
for `gpu_suite.py`."""

import itertools
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from common import median_seconds, say
from jax.typing import ArrayLike

from miron_jax.kernels.forest_attention import IMPLEMENTATIONS, implementation, xla
from miron_jax.kernels.target_logprob.layout import lay_out
from miron_jax.kernels.target_logprob.xla import target_logprob


def attention_seconds(smoke: bool) -> dict[str, float | str]:
    """Seconds for causal rows ("texts") and for forests: branches of 64 nodes after a prefix of a
    quarter of the row."""
    heads, size, slots = (2, 16, 1024) if smoke else (10, 128, 32768)
    seconds: dict[str, float | str] = {}
    for name, length in itertools.product(IMPLEMENTATIONS, (128,) if smoke else (512, 2048)):
        rows = slots // length
        q, k, v = (
            jax.random.normal(jax.random.key(i), (rows, length, heads, size), jnp.float32).astype(
                jnp.bfloat16
            )
            for i in range(3)
        )
        index = np.arange(length, dtype=np.int32)
        branches = np.where(index < length // 4, length, (index // 64 + 1) * 64)
        for kind, end in (
            ("texts", np.full(length, length)),
            ("forests", np.minimum(branches, length)),
        ):
            subtree_end, index_BT = (
                jnp.tile(jnp.asarray(x, jnp.int32)[None], (rows, 1)) for x in (end, index)
            )
            dtype = IMPLEMENTATIONS[name].bias_dtype
            bias = xla.hidden_bias(subtree_end, index_BT).astype(dtype) if dtype else None
            attend = jax.jit(partial(implementation(name), scale=0.1))
            label = f"{name}_{length}_{kind}"
            try:
                seconds[label] = _call_seconds(
                    attend, q, k, v, subtree_end, index_BT, bias_BTT=bias
                )
            except Exception as error:  # the device does not support it
                seconds[label] = f"{type(error).__name__}: {str(error)[:200]}"
            say(f"  attention {name}, {rows} rows of {length}, {kind}: {seconds[label]}")
    return seconds


def head_seconds(smoke: bool) -> dict[str, float]:
    """Seconds of the head of the 561M shape, by chunk."""
    sources, width, vocabulary = (512, 32, 600) if smoke else (8192, 1280, 65536)
    weight = jax.random.normal(jax.random.key(0), (vocabulary, width), jnp.float32).astype(
        jnp.bfloat16
    )
    hidden = jax.random.normal(jax.random.key(1), (sources, width), jnp.float32)
    target = np.random.default_rng(0).integers(0, vocabulary, sources)
    seconds: dict[str, float] = {}
    for chunk in (64, 128) if smoke else (128, 256, 512, 1024, 2048, 4096):
        layout = lay_out(np.arange(sources), target, chunk)
        arrays = [
            np.asarray(x, np.int32)
            for x in (target, np.append(layout.round_start_R, sources), layout.chunk_round_C1)
        ]
        score = jax.jit(
            lambda h, w, t, r, c, n, chunk=chunk: target_logprob(
                h, w, t, r, c, n, chunk=chunk, softcap=15.0
            )
        )
        chunks = jnp.int32(len(layout.chunk_round_C1) - 1)
        seconds[str(chunk)] = _call_seconds(score, hidden, weight, *arrays, chunks)
        say(f"  head, {sources} sources in chunks of {chunk}: {seconds[str(chunk)]:.5f} s")
    return seconds


def _call_seconds(
    function: Callable[..., jax.Array], *arguments: ArrayLike, **options: ArrayLike | None
) -> float:
    return median_seconds(lambda: jax.block_until_ready(function(*arguments, **options)), 9)
