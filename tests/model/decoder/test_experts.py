"""Mixtures of experts: against a loop over tokens and experts in float64, over meshes, under padding, and their refusals."""

import json
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.engine.checked_requests import CheckedRequests
from miron_jax.engine.forward import Forward
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import SelfCheck
from miron_jax.errors import InputError, SelfCheckFailed
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.checkpoints.hf_reader import load_hf
from miron_jax.model.config import Experts, matmul_params
from miron_jax.model.costs import cost_model
from miron_jax.model.decoder.decoder import random_params
from miron_jax.model.decoder.experts import Act, Kernels, expert_sum, route
from miron_jax.model.decoder.sharding import layout_of
from miron_jax.planning.request_batches import Totals, plan_request_batches
from miron_jax.runtime.devices import AXES, Placement
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.placements import in_process, logprobs, placed, placement_of, texts
from tests.support.requests import some_requests
from tests.support.tiny_families import MIXTRAL
from tests.support.tiny_model import make_model
from tests.support.tolerances import KERNEL, RANKS_APART, ROUNDING, TOKEN
from tests.support.torch_folders import save_tiny

MESHES = ("expert=4", "expert=2,model=4", "data=2,fsdp=2,expert=2", "expert=3", "pmap 3")
MIXTURE: dict[str, Any] = {
    "model_type": "qwen2_moe", "vocab_size": 331, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 3, "max_position_embeddings": 512, "num_experts": 8,
    "num_experts_per_tok": 3, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 20,
}  # fmt: skip

GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss", "num_local_experts": 8, "num_experts": None, "intermediate_size": 16, "head_dim": 4,
    "moe_intermediate_size": None, "shared_expert_intermediate_size": None,
}  # fmt: skip

SILU = Act("silu")
CLAMPED = Act("silu", limit=0.6, gain=1.702)


def by_hand(x_MD: Any, expert_MA: Any, weight_MA: Any, kernels: Kernels, act: Act) -> np.ndarray:
    """One expert at a time, in float64."""
    given = (np.zeros(len(kernels[0])) if kernel is None else np.asarray(kernel, np.float64) for kernel in kernels)
    gate, up, down, gate_bias, up_bias, down_bias = given
    x_MD = np.asarray(x_MD, np.float64)
    total = np.zeros(x_MD.shape)
    for e in range(len(gate)):
        weight_M = np.where(expert_MA == e, np.asarray(weight_MA, np.float64), 0.0).sum(axis=1)
        g, u = x_MD @ gate[e] + gate_bias[e], x_MD @ up[e] + up_bias[e]
        if act.limit is not None:
            g, u = np.minimum(g, act.limit), np.clip(u, -act.limit, act.limit) + 1
        total += weight_M[:, None] * ((g / (1 + np.exp(-act.gain * g)) * u) @ down[e] + down_bias[e])
    return total


sum_of_experts = jax.jit(expert_sum, static_argnames="act")


# Tokens, experts, active experts of a token, experts of the first of two devices.  1,100 tokens: several blocks an expert.
SIZES = [(1, 1, 1, 1), (7, 9, 3, 4), (64, 5, 5, 2), (1100, 3, 1, 1)]


@pytest.mark.newest
@pytest.mark.parametrize("favoured", [None, -1])
@pytest.mark.parametrize("act", [SILU, CLAMPED], ids=["silu", "clamped"])
@pytest.mark.parametrize(("num_tokens", "num_experts", "active", "cut"), SIZES)
def test_the_sum_equals_a_loop_over_experts(
    num_tokens: int, num_experts: int, active: int, cut: int, act: Act, favoured: int | None
) -> None:
    """Also where one expert gets every token and others none, and where devices have a part of the experts each."""
    rng = np.random.default_rng(num_tokens)
    shapes = [(6, 5)] * 2 + [(5, 6)] + ([] if act == SILU else [(5,), (5,), (6,)])
    kernels = Kernels(*(rng.normal(0, 0.3, (num_experts, *shape)).astype(np.float32) for shape in shapes))  # type: ignore[arg-type]
    x_MD = rng.normal(0, 1, (num_tokens, 6)).astype(np.float32)
    preference = rng.normal(0, 1, (num_tokens, num_experts))
    if favoured is not None:
        preference[:, favoured] += 9.0
    expert_MA = np.argsort(-preference, axis=1)[:, :active].astype(np.int32)
    weight_MA = rng.uniform(0, 1, expert_MA.shape).astype(np.float32)
    expected = by_hand(x_MD, expert_MA, weight_MA, kernels, act)
    tokens = x_MD, expert_MA, weight_MA
    np.testing.assert_allclose(sum_of_experts(*tokens, kernels, act=act), expected, rtol=0, atol=KERNEL)
    if cut < num_experts:
        first, second = (
            sum_of_experts(*tokens, jax.tree.map(itemgetter(part), kernels), act=act, first=part.start)
            for part in (slice(0, cut), slice(cut, num_experts))
        )
        np.testing.assert_allclose(first + second, expected, rtol=0, atol=KERNEL)


@pytest.mark.newest
def test_a_router_compares_float32_logits() -> None:
    """1 + 2^-8 is more than 1, but in bfloat16 the two are equal, and the first expert would be taken."""
    router_DE = jnp.asarray([[1.0, 1.0], [0.0, 2.0**-8]], jnp.bfloat16)
    expert_MA, weight_MA = route(jnp.ones((1, 2), jnp.bfloat16), router_DE, Experts(2, 1, False))
    assert expert_MA.tolist() == [[1]]
    np.testing.assert_allclose(weight_MA, [[1 / (1 + np.exp(-(2.0**-8)))]], rtol=0, atol=ROUNDING)


def mixture(tmp_path: Path, **fields: Any) -> Any:
    given = {name: value for name, value in (MIXTURE | fields).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(given))
    return from_hf_config(tmp_path)


def test_equal_logits_choose_the_first_experts(tmp_path: Path) -> None:
    expert_MA, weight_MA = route(jnp.ones((2, 24)), jnp.zeros((24, 8)), mixture(tmp_path).experts)
    assert expert_MA.tolist() == [[0, 1, 2]] * 2
    np.testing.assert_allclose(weight_MA, 1 / 8, rtol=0, atol=ROUNDING)


def test_what_is_not_finite_stays_with_its_token() -> None:
    """An expert's last block reaches into the next expert's rows."""
    rng = np.random.default_rng(0)
    kernels = Kernels(*(rng.normal(0, 0.3, (4, 5, 5)).astype(np.float32) for _ in range(3)))  # type: ignore[arg-type]
    x_MD = rng.normal(0, 1, (50, 5)).astype(np.float32)
    expert_MA = rng.permuted(np.tile(np.arange(4, dtype=np.int32), (50, 1)), axis=1)[:, :2]
    weight_MA = np.full((50, 2), 0.5, np.float32)
    clean = sum_of_experts(x_MD, expert_MA, weight_MA, kernels, act=SILU)
    x_MD[::7] = np.nan
    dirty = sum_of_experts(x_MD, expert_MA, weight_MA, kernels, act=SILU)
    others = np.arange(50) % 7 != 0
    np.testing.assert_array_equal(np.asarray(clean)[others], np.asarray(dirty)[others])
    assert np.isnan(np.asarray(dirty)[~others]).all()


def check_meshes(folder: str) -> None:
    """Every placement scores and writes what one device does."""
    tokenizer = load_tokenizer(folder)
    biased = mixture(Path(folder), **GPT_OSS)  # the second mesh splits the units of an expert, whose bias is added once
    for config, places in ((mixture(Path(folder)), MESHES), (biased, MESHES[1:2])):
        check_places(config, tokenizer, places)


def check_places(config: Any, tokenizer: Any, places: Sequence[str]) -> None:
    state = random_params(config, jnp.float32, seed=5)
    alone = placed(config, state, Placement(jax.devices()[0]))
    logprob, rank = logprobs(alone)
    drawn = texts(alone, tokenizer)
    for place in places:
        model = placed(config, state, placement_of(place))
        scored, scored_rank = logprobs(model)
        np.testing.assert_allclose(scored, logprob, rtol=0, atol=TOKEN, err_msg=place)
        assert (scored_rank != rank).mean() < RANKS_APART, place
        if place == "data=2,fsdp=2,expert=2":
            assert texts(model, tokenizer) == drawn, place
        print(place, float(np.abs(scored - logprob).max()), flush=True)


@pytest.mark.slow
def test_meshes_of_experts_agree_with_one_device(tmp_path: Path) -> None:
    make_model(tmp_path)
    script = (
        "import miron_jax, sys; from tests.model.decoder.test_experts import check_meshes; check_meshes(sys.argv[1])"
    )
    assert len(in_process(["-c", script, str(tmp_path)], devices=8).splitlines()) == len(MESHES) + 1


def test_experts_and_their_hidden_units_are_split(tmp_path: Path) -> None:
    config = mixture(tmp_path)

    def spec(path: str, shape: tuple[int, ...], **axes: int) -> tuple[Any, ...]:
        mesh: Any = type("Sizes", (), {"shape": {axis: axes.get(axis, 1) for axis in AXES}})()
        return tuple(layout_of(path, shape, config, Placement(None, mesh, "mesh")).spec)

    assert spec("layers/mlp/gate_EDF", (2, 8, 24, 16), expert=4, fsdp=2, model=2) == (None, "expert", "fsdp", "model")
    assert spec("layers/mlp/down_EFD", (2, 8, 16, 24), expert=4, model=2) == (None, "expert", "model", None)
    assert spec("layers/mlp/up_EDF", (2, 8, 24, 16), expert=3) == (None, None, None, None), "eight experts on three"
    assert spec("layers/mlp/router/kernel_IO", (2, 24, 8), expert=4, model=2) == ()
    assert spec("layers/mlp/shared/up/kernel_IO", (2, 24, 20), expert=4, model=2) == (None, None, "model")


@pytest.mark.slow
def test_in_bfloat16_the_self_check_holds_the_median_token(tmp_path: Path) -> None:
    config = mixture(tmp_path)
    model = placed(config, random_params(config, jnp.bfloat16, seed=5), Placement(jax.devices()[0]))
    check = SelfCheck.of(config, model.state, "bfloat16")
    assert check.by_median
    assert not SelfCheck.of(config, model.state, "float32").by_median
    [batch] = plan_request_batches([some_requests()], cost_model(config), Totals())
    [scores] = score_request_batches([batch.fresh], Forward(model, 256), cost_model(config), Totals(), check)
    few, all_ = replace(scores, logprob=scores.logprob.copy()), replace(scores, logprob=scores.logprob + 0.5)
    few[CheckedRequests(cost_model(config)).choose(batch)[0]].logprob[0] += 5.0
    check.compare(model, batch, few)
    assert check.largest > 4
    with pytest.raises(SelfCheckFailed, match=r"the median of the checked tokens differs by 0\.[45]"):
        check.compare(model, batch, all_)
    with pytest.raises(SelfCheckFailed, match="differs by nan nats"):
        check.compare(model, batch, replace(scores, logprob=np.full_like(scores.logprob, np.nan)))


def test_only_active_experts_count_as_flops(tmp_path: Path) -> None:
    # a layer: q and out 24x24 each, k and v 24x12 each, router 24x8, gate, up and down 24x16 of 3 experts,
    # gate, up and down 24x20 of the shared one, and its 24x1
    assert matmul_params(mixture(tmp_path)) == 2 * (2 * 576 + 2 * 288 + 192 + 3 * 3 * 384 + 3 * 480 + 24)


def test_mixtures_that_are_not_computed_are_refused(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"num_experts_per_tok": 9}, "num_experts_per_tok is 9, expected at most num_experts = 8"),
        ({"num_experts": 0}, "num_experts is 0, expected a whole number from 1 to"),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step is 2, expected 1"),
        ({"mlp_only_layers": [1]}, r"mlp_only_layers is \[1\], expected \[\]"),
        ({"norm_topk_prob": "yes"}, "norm_topk_prob is 'yes', expected true or false"),
        ({"expert_capacity": 4}, "field 'expert_capacity' = 4 is not known"),
    ]
    for fields, sentence in cases:
        with pytest.raises(InputError, match=sentence):
            mixture(tmp_path, **fields)


@pytest.mark.slow
def test_other_numbers_of_experts_than_the_weights_have_are_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path, "Mixtral", MIXTRAL)
    config = json.loads((tmp_path / "config.json").read_text())
    for count, sentence in (
        (4, r"block_sparse_moe.gate.weight has shape \[5, 36\], config.json expects \[4, 36\]"),
        (6, "no tensor model.layers.0.block_sparse_moe.experts.5.w2.weight, which config.json asks for"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | {"num_local_experts": count}))
        with pytest.raises(InputError, match=sentence):
            load_hf(tmp_path, jnp.float32)


def test_the_published_config_of_gpt_oss_is_read(tmp_path: Path) -> None:
    """Fields that repeat others, or stand in the code of older transformers."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 24, "vocab_size": 331, "num_local_experts": 4}

    def read(**more: Any) -> Any:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt_oss"} | sizes | more))
        return from_hf_config(tmp_path)

    assert read().experts == Experts(4, 4, True, bias=True, limit=7.0, gain=1.702)
    more = {"experts_per_token": 4, "initial_context_length": 4096, "swiglu_limit": 7.0, "output_router_logits": False}
    assert read(**more) == read()
    with pytest.raises(InputError, match="experts_per_token is 3, expected num_experts_per_tok's 4"):
        read(experts_per_token=3)
