"""A mixture of experts beside a dense model of as many active FLOPs a token.

    python benchmarks/bench_experts.py --dtype=bfloat16 --experts=64 --active=8

Both are decoders with random weights; a call computes the hidden states of --rows texts of --length
tokens, without the head.  Calls take turns, after one of each that is not timed.  Prints medians of
seconds, FLOP/s and their ratio; the last line is JSON.
"""

import functools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from common import environment, say
from flax import nnx

from miron_jax.model.config import (
    Experts,
    ModelConfig,
    Rope,
    attention_flops_per_pair,
    matmul_params,
)
from miron_jax.model.decoder.decoder import abstract, random_params
from miron_jax.model.visibility import Visibility

FLAGS = flags.FLAGS
flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "dtype of the weights")
flags.DEFINE_integer("width", 512, "width of the residual stream", lower_bound=128)
flags.DEFINE_integer("experts", 8, "experts of the mixture", lower_bound=1)
flags.DEFINE_integer("active", 2, "experts of a token", lower_bound=1)
flags.DEFINE_integer("rows", 8, "rows of a batch", lower_bound=1)
flags.DEFINE_integer("length", 512, "tokens of a row", lower_bound=1)
flags.DEFINE_integer("repeats", 7, "timed calls of each model", lower_bound=1)


def mixture(width: int, length: int) -> ModelConfig:
    """Llama with experts that are wider than they are deep, as Mixtral's."""
    heads, layers = width // 64, 4
    rope = Rope(tuple(1e4 ** (-np.arange(32) / 32)))
    return ModelConfig(
        family="mixtral", vocab_size=1000, d_model=width, num_layers=layers, num_heads=heads,
        num_kv_heads=heads,
        head_dim=64, d_ff=3 * width, trained_length=length, num_positions=None,
        layer_ropes=(rope,) * layers,
        layer_windows=(None,) * layers, norm_eps=1e-5, attn_scale=0.125,
        experts=Experts(count=FLAGS.experts, active=FLAGS.active, normalised=True),
    )  # fmt: skip


def program(config: ModelConfig) -> Callable[[jax.Array], jax.Array]:
    """Token ids [B, T] -> hidden states [B, T, D] of causal rows."""
    graphdef, _ = abstract(config, FLAGS.dtype)

    @jax.jit
    def run(state: object, token_ids_BT: jax.Array) -> jax.Array:
        position_BT = jnp.broadcast_to(
            jnp.arange(FLAGS.length, dtype=jnp.int32)[None], token_ids_BT.shape
        )
        end_BT = jnp.full_like(position_BT, FLAGS.length)
        return nnx.merge(graphdef, state)(
            token_ids_BT, position_BT, Visibility(end_BT, position_BT)
        )

    return functools.partial(run, random_params(config, FLAGS.dtype, seed=0))


def main(_arguments: list[str]) -> None:
    experts = mixture(FLAGS.width, FLAGS.length)
    configs = {
        "mixture": experts,
        "dense": replace(experts, d_ff=FLAGS.active * experts.d_ff, experts=None),
    }
    token_ids_BT = jnp.asarray(
        np.random.default_rng(0).integers(0, 1000, (FLAGS.rows, FLAGS.length), dtype=np.int32)
    )
    programs = {name: program(config) for name, config in configs.items()}
    for run in programs.values():
        jax.block_until_ready(run(token_ids_BT))
    seconds: dict[str, list[float]] = {name: [] for name in configs}
    for _ in range(FLAGS.repeats):
        for name, run in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(run(token_ids_BT))
            seconds[name].append(time.perf_counter() - start)
    rates = {}
    pairs = FLAGS.rows * FLAGS.length * (FLAGS.length + 1) / 2
    for name, config in configs.items():
        flops = (
            2 * matmul_params(config) * token_ids_BT.size + attention_flops_per_pair(config) * pairs
        )
        median = statistics.median(seconds[name])
        rates[name] = flops / median
        say(f"{name}: {median:.3f} s, {flops / 1e9:.1f} GFLOP, {rates[name] / 1e9:.1f} GFLOP/s")
    share = rates["mixture"] / rates["dense"]
    say(
        f"{share:.2f} of the dense rate per active FLOP on {jax.devices()[0].device_kind}, "
        f"{FLAGS.dtype}"
    )
    document = {"benchmark": "bench_experts", "flops_per_second": rates, "share_of_dense": share}
    print(json.dumps({**document, "environment": environment()}))


if __name__ == "__main__":
    app.run(main)
