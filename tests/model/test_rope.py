"""Frequencies of rotary positions against transformers' own, at the sizes of real models.

A test of short rows would not see a frequency that is a little wrong; here each one is compared to its last bits.
"""

from typing import Any

import numpy as np
import pytest

from miron_jax.model.rope import rope_of
from tests.support.tolerances import FLOAT32, FLOAT64

pytestmark = pytest.mark.newest

LLAMA31 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500000.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 8.0, "rope_theta": 500000.0, "original_max_position_embeddings": 8192}
CASES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "llama 3.1": LLAMA31,
    "llama 3.2": LLAMA31 | {"factor": 32.0},
    "yarn": YARN,
    "yarn, its own bounds": YARN | {"beta_fast": 64.0, "beta_slow": 2.0, "truncate": False},
    "yarn, mscale": YARN | {"mscale": 1.0, "mscale_all_dim": 0.7},
    "yarn, attention factor": YARN | {"attention_factor": 1.2},
    "yarn, no stretch": YARN | {"factor": 1.0},
}


@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("parameters", CASES.values(), ids=CASES)
def test_frequencies_are_transformers(parameters: dict[str, Any], size: int) -> None:
    pytest.importorskip("torch")
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(
        hidden_size=4 * size, num_attention_heads=4, max_position_embeddings=65536, rope_parameters=dict(parameters)
    )
    expected, scale = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu")
    found = rope_of(parameters["rope_type"], parameters, size)
    np.testing.assert_allclose(np.asarray(found.frequencies, np.float32), expected.numpy(), rtol=FLOAT32, atol=0)
    assert found.scale == pytest.approx(scale, abs=FLOAT64)


def test_each_way_of_scaling_changes_frequencies() -> None:
    plain = rope_of("default", {"rope_theta": 500000.0}, 128)
    assert len(plain.frequencies) == 64
    assert all(rope_of(own["rope_type"], own, 128) != plain for own in CASES.values() if own.get("factor") != 1.0)
