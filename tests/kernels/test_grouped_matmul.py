"""The kernel of a mixture's experts is taken where it agrees on the device itself; else a loop of blocks runs."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from miron_jax.engine.model import Model, with_experts
from miron_jax.kernels import grouped_matmul
from miron_jax.kernels.grouped_matmul import GroupedChoice, choose, tried
from miron_jax.model.config import Experts
from miron_jax.model.decoder.decoder import abstract, random_params
from miron_jax.model.decoder.experts import Act, ExpertMlp, Kernels, _in_blocks, _ragged
from miron_jax.runtime.progress import Lines
from tests.support.tolerances import BFLOAT16
from tests.support.toy_decoders import CONFIG


def test_a_device_takes_the_kernel_only_where_it_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    device = jax.devices("cpu")[0]

    def answers(kernel: Any) -> GroupedChoice:
        monkeypatch.setattr(grouped_matmul, "grouped_matmul", kernel)
        return tried(device, 5, 64, 192)

    def refused(*_: Any) -> jax.Array:
        raise NotImplementedError("no Hopper\nmore")

    assert answers(jax.lax.ragged_dot) == GroupedChoice(True)
    assert answers(refused) == GroupedChoice(False, "the kernel fails here: no Hopper")
    for wrong in (lambda *a: jax.lax.ragged_dot(*a) * 1.05, lambda *a: jax.lax.ragged_dot(*a).at[3, 7].set(jnp.nan)):
        is_taken, why_not = answers(wrong)
        assert not is_taken
        assert "off its definition here" in str(why_not)


class Gpu(NamedTuple):
    compute_capability: str
    platform: str = "gpu"
    client: object = None


def test_other_devices_dtypes_and_sizes_take_blocks() -> None:
    for device, width, dtype in (
        (jax.devices("cpu")[0], 64, "bfloat16"),
        (Gpu("8.0"), 64, "bfloat16"),
        (Gpu("10.0"), 64, "bfloat16"),
        (Gpu("9.0"), 64, "float32"),
    ):
        assert choose(device, 8, width, 64, dtype) == GroupedChoice(False)
    assert choose(Gpu("9.0"), 8, 96, 64, "bfloat16") == GroupedChoice(False, "96 and 64 are not multiples of 64")


def test_a_model_whose_device_takes_the_kernel_runs_it_and_another_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    experts = Experts(count=4, active=2, normalised=True)
    config = dataclasses.replace(CONFIG, experts=experts, mlp_bias=False, gated_mlp=True)
    model = Model(config, abstract(config, jnp.bfloat16)[0], random_params(config, jnp.bfloat16, seed=0))
    lines: list[str] = []
    assert with_experts(model, Lines(lines.append)) is model
    monkeypatch.setattr(grouped_matmul, "choose", lambda *_: GroupedChoice(False, "the kernel fails here: x"))
    assert with_experts(model, Lines(lines.append)) is model
    assert lines == ["experts in a loop of blocks: the kernel fails here: x"]
    monkeypatch.setattr(grouped_matmul, "choose", lambda *_: GroupedChoice(True))
    changed = with_experts(model)
    assert changed.experts_in_kernel
    for each, is_on in ((changed, True), (model, False)):
        assert isinstance(each.graphdef, nnx.GraphDef)
        mlp = nnx.merge(each.graphdef, each.state).layers.mlp
        assert isinstance(mlp, ExpertMlp)
        assert mlp.on_hopper == is_on


def test_experts_in_a_kernel_equal_those_in_blocks() -> None:
    """The kernel gives bfloat16; rows after the last group are any."""
    rng = np.random.default_rng(0)
    kernels = Kernels(
        *(jnp.asarray(rng.normal(0, 0.2, (3, *shape)), jnp.bfloat16) for shape in ((16, 24), (16, 24), (24, 16)))
    )
    x_RD, size_E = jnp.asarray(rng.normal(size=(40, 16)), jnp.bfloat16), jnp.asarray([9, 0, 21], jnp.int32)
    ran = _ragged(Act("silu"), x_RD, size_E, kernels, jax.lax.ragged_dot)
    plain = _in_blocks(Act("silu"), x_RD, size_E, kernels)
    np.testing.assert_allclose(ran[:30], plain[:30], rtol=0, atol=BFLOAT16)
    assert np.abs(plain[:30]).max() > 5 * BFLOAT16
