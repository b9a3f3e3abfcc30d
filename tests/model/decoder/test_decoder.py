"""The decoder by itself: what stands outside its matmuls against NumPy, its head, parameters, FLOPs and programs."""

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from miron_jax.model.config import ModelConfig, attention_flops_per_pair, matmul_params
from miron_jax.model.decoder.decoder import abstract, leaf_name, random_params, with_places
from miron_jax.model.decoder.modules import Mlp
from miron_jax.model.visibility import Visibility
from tests.support.tolerances import ROUNDING, TWO_BFLOAT16
from tests.support.toy_decoders import CONFIG, GEMMA3, same_bits, seeded

pytestmark = pytest.mark.newest


def hidden_of(config: ModelConfig, dtype: Any) -> tuple[np.ndarray, Any]:
    """Hidden states of the tokens 1 to 4, and the weights; the matrices of layers that add to the stream are zeros."""
    graphdef, wanted = abstract(config, dtype)
    rng = np.random.default_rng(0)

    def weight(path: Any, leaf: Any) -> jax.Array:
        adds = leaf_name(path).endswith(("out/kernel_IO", "down/kernel_IO"))
        return jnp.asarray(np.zeros(leaf.shape) if adds else rng.normal(size=leaf.shape), leaf.dtype)

    state = jax.tree_util.tree_map_with_path(weight, wanted)
    row = jnp.arange(4, dtype=jnp.int32)[None]

    @jax.jit
    def run(state: Any) -> jax.Array:
        return nnx.merge(graphdef, state)(row + 1, row, Visibility(jnp.full((1, 4), 4), row))

    return np.asarray(run(state)[0]), state


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("rounded", "scale_in_bfloat16"), [(True, 6.3125), (False, 6.32455532)])
def test_the_residual_stream_is_float32(rounded: bool, scale_in_bfloat16: float, dtype: str) -> None:
    """Layers that add nothing leave scaled embeddings as they are: no product with sqrt(40) = 6.32 fits bfloat16.

    Gemma's scale is itself rounded to the run's dtype.  A large eps is seen to stand under the root.
    """
    config = dataclasses.replace(
        CONFIG, d_model=40, embedding_scale=40**0.5, embedding_scale_rounded=rounded, norm_offset=1.0, norm_eps=9.0
    )
    computed, state = hidden_of(config, dtype)
    scale = scale_in_bfloat16 if dtype == "bfloat16" else 6.32455532
    x_TD = np.asarray(state["embedding_VD"][...], np.float64)[1:5] * scale
    expected = x_TD / np.sqrt((x_TD**2).mean(axis=-1, keepdims=True) + 9.0)
    expected *= 1 + np.asarray(state["final_norm"]["weight"][...], np.float64)
    np.testing.assert_allclose(computed, expected, rtol=ROUNDING, atol=ROUNDING)


def test_alibi_holds_in_bfloat16_at_far_positions() -> None:
    """Products of the dimensions that hold positions, against slope * position."""
    slopes = tuple(float(x) for x in 2.0 ** -np.linspace(0.5, 8, 6))
    config = dataclasses.replace(CONFIG, alibi_slopes=slopes, num_heads=6, head_dim=4)
    position = np.asarray([[0, 1, 255, 256, 65535, 65536, 65793, 1_000_001]], np.int32)
    empty = jnp.zeros((1, 8, 6, 4), jnp.bfloat16)
    q, k, v = with_places(config, jnp.asarray(position), empty, empty, empty)
    computed = np.einsum("btnh,bsnh->bnts", np.asarray(q, np.float64), np.asarray(k, np.float64))[0, :, 0]
    np.testing.assert_allclose(computed, np.outer(slopes, position[0]), rtol=TWO_BFLOAT16)
    assert v.shape == (1, 8, 6, 12)


def test_the_head_is_the_embedding_itself_where_tied() -> None:
    decoder = nnx.merge(abstract(GEMMA3, jnp.float32)[0], seeded(GEMMA3))
    head = decoder.head()
    assert head.weight_VD is decoder.embedding_VD[...]
    assert len(jax.tree.leaves(head)) == 1  # no bias leaf; cap and scale are static


def test_random_params_have_the_abstract_tree() -> None:
    one, same, other = (random_params(GEMMA3, jnp.bfloat16, seed) for seed in (1, 1, 2))
    computed, wanted = (
        jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree) for tree in (one, abstract(GEMMA3, jnp.bfloat16)[1])
    )
    assert computed == wanted
    assert same_bits(one, same)
    assert not same_bits(one, other)


def test_flop_counts_by_hand() -> None:
    # a layer: q and out 12x12 each, k and v 12x6 each, gate, up and down 12x14 each = 288 + 144 + 504 = 936
    assert matmul_params(GEMMA3) == 8 * 936
    flat = jax.tree_util.tree_leaves_with_path(abstract(GEMMA3, jnp.float32)[1])
    assert matmul_params(GEMMA3) == sum(leaf.size for path, leaf in flat if "kernel_IO" in leaf_name(path))
    assert attention_flops_per_pair(GEMMA3) == 4 * 2 * 6 * 8  # two matmuls, multiply and add, 2 heads of 6, 8 layers


def test_one_program_serves_all_layers_and_ahead_of_time_compilation() -> None:
    """Budget: the layer is traced once, whatever the depth, and a compiled call with donated tokens works."""
    calls = []

    class Counting(Visibility):
        def attend(self, *args: Any, **kwargs: Any) -> jax.Array:
            calls.append(kwargs["window"])
            return super().attend(*args, **kwargs)

    graphdef, wanted = abstract(GEMMA3, jnp.float32)
    tokens = jax.ShapeDtypeStruct((2, 9), jnp.int32)

    def step(state: Any, token_ids: jax.Array, position: jax.Array) -> tuple[jax.Array, jax.Array]:
        visibility = Counting(jnp.full_like(position, 9), position)
        return nnx.merge(graphdef, state)(token_ids, position, visibility), token_ids + 1  # takes the donated place

    compiled = jax.jit(step, donate_argnums=(1,)).lower(wanted, tokens, tokens).compile()
    assert len(calls) <= 2  # lax.scan may trace a body once more to settle its types
    position = jnp.tile(jnp.arange(9, dtype=jnp.int32), (2, 1))
    hidden_BTD, _ = compiled(seeded(GEMMA3), position + 1, position)
    assert hidden_BTD.shape == (2, 9, GEMMA3.d_model)


@pytest.mark.parametrize(("gated", "bias"), [(True, False), (False, False), (False, True)])
def test_what_an_activation_takes_is_in_the_runs_dtype_and_what_a_layer_adds_is_not(gated: bool, bias: bool) -> None:
    """As published models compute: only the last matmul gives float32.  A bias is added before anything is rounded."""
    config = dataclasses.replace(CONFIG, gated_mlp=gated, mlp_bias=bias)
    for dtype, name in ((jnp.float32, "f32"), (jnp.bfloat16, "bf16")):
        mlp = Mlp(config, (), dtype, nnx.Rngs(0))
        traced = str(jax.make_jaxpr(mlp)(jnp.ones((1, 3, config.d_model), dtype)))
        matmuls = re.findall(r":(\w+)\[[^\n]* = dot_general\[", traced)
        wide = "f32" if bias else name
        assert matmuls == [wide] * (1 + gated) + ["f32"]
        assert (f":{name}[1,3,{config.d_ff}] = convert_element_type" in traced) == (name == "bf16")
