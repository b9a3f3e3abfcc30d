"""Frequencies of rotary positions against transformers' own, at the sizes of real models.

A test of short rows would not see a frequency that is a little wrong; here each one is compared to its last bits.
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.model.config import RopeClasses
from miron_jax.model.decoder.rope import rope_of, rotation_of
from tests.support.needs import needs
from tests.support.tolerances import FLOAT32, FLOAT64, ROUNDING

pytestmark = pytest.mark.newest

LLAMA31 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500000.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 8.0, "rope_theta": 500000.0, "original_max_position_embeddings": 8192}
LONGROPE: dict[str, Any] = {
    "rope_theta": 50.0, "short_factor": [1.0, 1.1, 1.3, 1.5], "long_factor": [1.5, 2.0, 4.0, 9.0],
    "original_max_position_embeddings": 16,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "llama 3.1": LLAMA31,
    "llama 3.2": LLAMA31 | {"factor": 32.0},
    "yarn": YARN,
    "yarn, its own bounds": YARN | {"beta_fast": 64.0, "beta_slow": 2.0, "truncate": False},
    "yarn, mscale": YARN | {"mscale": 1.0, "mscale_all_dim": 0.7},
    "yarn, attention factor": YARN | {"attention_factor": 1.2},
    "yarn, no stretch": YARN | {"factor": 1.0},
    "yarn, all pairs turn often": YARN | {"rope_theta": 1000.0, "original_max_position_embeddings": 32768},
}


@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("parameters", CASES.values(), ids=CASES)
def test_frequencies_are_transformers(parameters: dict[str, Any], size: int) -> None:
    needs("torch")
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(
        hidden_size=4 * size, num_attention_heads=4, max_position_embeddings=65536, rope_parameters=dict(parameters)
    )
    expected, scale = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu")
    computed = rope_of(parameters["rope_type"], parameters, size)
    np.testing.assert_allclose(np.asarray(computed.frequencies, np.float32), expected.numpy(), rtol=FLOAT32, atol=0)
    assert computed.scale == pytest.approx(scale, abs=FLOAT64)


def test_each_way_of_scaling_changes_frequencies() -> None:
    plain = rope_of("default", {"rope_theta": 500000.0}, 128)
    assert len(plain.frequencies) == 64
    assert all(rope_of(case["rope_type"], case, 128) != plain for case in CASES.values() if case.get("factor") != 1.0)


def test_yarn_divides_pairs_by_the_factor_between_two_bounds() -> None:
    """With theta 1000, pair i of 4 turns 100 * 1000^(-i / 4) / 2 pi times within 100 tokens: 15.9, 2.83, 0.50, 0.09.

    Pairs of 8 and 1 turn have the indices 0.4 and 1.6, rounded outwards 0 and 2: pair 1 lies in the middle.  Of 0.01 turns
    it is 4.3, so 5: with a bound of 5 the pairs keep 1, 4/5, 3/5 and 2/5, and with a bound of 3 would keep 1, 2/3, 1/3, 0.
    """
    yarn = {"factor": 4.0, "rope_theta": 1000.0, "original_max_position_embeddings": 100, "beta_fast": 8.0}
    plain = 1000.0 ** (-np.arange(4) / 4)
    for turns, kept in ((1.0, [1, 1 / 2, 0, 0]), (0.01, [1, 4 / 5, 3 / 5, 2 / 5])):
        computed = rope_of("yarn", yarn | {"beta_slow": turns}, 8).frequencies
        np.testing.assert_allclose(computed, plain * (np.array(kept) * 3 / 4 + 1 / 4), rtol=ROUNDING)


@pytest.mark.parametrize(("factor", "scale"), [(1.0, 1.0), (1.25, math.sqrt(1 + math.log(1.25) / math.log(16)))])
def test_longropes_scale_by_hand(factor: float, scale: float) -> None:
    assert rope_of("longrope", LONGROPE | {"factor": factor}, 8).scale == pytest.approx(scale, abs=FLOAT64)


@pytest.mark.parametrize(("by_length", "classes"), [(False, [0, 0, 17, 17, 17]), (True, [0, 0, 17, 18, 90])])
def test_classes_of_lengths_by_hand(by_length: bool, classes: list[int]) -> None:
    assert [RopeClasses(16, by_length).class_of(length) for length in (1, 16, 17, 18, 90)] == classes


@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_a_slots_class_chooses_its_frequencies(kind: str) -> None:
    """Short ones for class 0, long ones from the first class above the limit on."""
    rope = rope_of(kind, LONGROPE | {"factor": 3.0, "max_position_embeddings": 16}, 8)
    position = jnp.full((1, 3), 5, jnp.int32)
    rotation = rotation_of((rope,), position, jnp.asarray([[0, 17, 20]], jnp.int32))
    exponent = np.arange(4) / 4
    if kind == "longrope":
        expected = [50.0**-exponent / LONGROPE[name] for name in ("short_factor", "long_factor", "long_factor")]
    else:  # theta grows by (3 * length / 16 - 2) to the power of 8 / 6
        expected = [(50.0 * (3 * max(length, 16) / 16 - 2) ** (8 / 6)) ** -exponent for length in (0, 17, 20)]
    angle = 5 * np.array(expected)
    np.testing.assert_allclose(rotation.cos_RBT1H[0, 0, :, 0], np.cos(angle) * rope.scale, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(rotation.sin_RBT1H[0, 0, :, 0], np.sin(angle) * rope.scale, rtol=0, atol=ROUNDING)
