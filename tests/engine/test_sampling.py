"""Sampled texts: draws that hang on the request alone, top-k and top-p, temperature."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.engine.generate import Generator
from miron_jax.engine.text_requests import Sampling, TextRequest
from miron_jax.errors import InputError
from miron_jax.kernels.draw_token import keep_probable
from tests.support.generators import Tiny, load, prompts, slow_logits
from tests.support.tiny_model import make_model

pytestmark = [pytest.mark.slow, pytest.mark.newest]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return load(make_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def shared(tiny: Tiny) -> Generator:
    """One generator, whose programs are compiled once."""
    return Generator(tiny.model, tiny.tokenizer, slots=8)


def test_order_and_batch_change_no_draw(tiny: Tiny, shared: Generator) -> None:
    rules = [Sampling(0.9, seed=5), Sampling(1.3, top_k=7, seed=6), Sampling(0.7, top_p=0.8, seed=7), Sampling()]
    requests = [TextRequest(ids, 8, sampling=rules[i % 4]) for i, ids in enumerate(prompts(12, 2, 320))]
    together = shared.run(requests)
    backwards = Generator(tiny.model, tiny.tokenizer, slots=5).run(requests[::-1])[::-1]
    one_slot = Generator(tiny.model, tiny.tokenizer, slots=1)
    alone = [one_slot.run([request])[0] for request in requests[:3]]
    assert together == backwards
    assert together[:3] == alone
    other = Generator(tiny.model, tiny.tokenizer).run(
        [TextRequest(requests[0].token_ids, 8, sampling=Sampling(0.9, seed=8))]
    )
    assert other[0].token_ids != together[0].token_ids


def test_draws_follow_the_distribution(tiny: Tiny) -> None:
    """2,000 seeds of one prompt: top_k 3 draws three tokens only, each as often as its renormalised probability says."""
    ids = prompts(1, 3, 320)[0]
    requests = [TextRequest(ids, 1, sampling=Sampling(0.5, top_k=3, seed=seed)) for seed in range(2000)]
    drawn = np.asarray([text.token_ids[0] for text in Generator(tiny.model, tiny.tokenizer, slots=64).run(requests)])
    logits = slow_logits(tiny.model, ids).astype(np.float64) / 0.5
    best = np.argsort(-logits)[:3]
    expected = np.exp(logits[best]) / np.exp(logits[best]).sum()
    assert set(drawn.tolist()) <= set(best.tolist())
    share = np.asarray([(drawn == token).mean() for token in best])
    assert np.abs(share - expected).max() < 4 * 0.5 / 2000**0.5  # four standard errors of a proportion


@pytest.mark.parametrize("top_k", [0, 1, 5, 400])
@pytest.mark.parametrize("top_p", [1e-6, 0.3, 0.8, 1.0])
def test_top_k_and_top_p_keep_the_fewest(top_k: int, top_p: float) -> None:
    """Against a loop in float64: walk down from the most probable token of the top k until top_p is held."""
    logits = np.random.default_rng(0).normal(size=(3, 331)).astype(np.float32) * 3
    kept = np.isfinite(
        keep_probable(jnp.asarray(logits), jnp.full(3, top_k, jnp.int32), jnp.full(3, top_p, jnp.float32))
    )
    for row, kept_row in zip(logits.astype(np.float64), kept, strict=True):
        order = np.argsort(-row)[: top_k or len(row)]
        share = np.exp(row[order]) / np.exp(row[order]).sum()
        held, expected = 0.0, set()
        for token, probability in zip(order.tolist(), share, strict=True):
            if held >= top_p and expected:
                break
            expected.add(token)
            held += probability
        if top_p == 1:  # float64's sum may reach 1 a token early; top_p 1 cuts nothing
            expected = set(order.tolist())
        assert set(np.flatnonzero(kept_row).tolist()) == expected


def test_a_tiny_temperature_is_greedy(shared: Generator) -> None:
    ids = prompts(1, 4, 320)[0]
    [best] = shared.run([TextRequest(ids, 3)])
    [completion] = shared.run([TextRequest(ids, 3, sampling=Sampling(1e-37))])
    assert completion.token_ids == best.token_ids


@pytest.mark.parametrize(
    "rules",
    [{"top_p": 0.0}, {"top_p": 1.5}, {"temperature": float("nan")}, {"seed": -1}, {"top_k": -1}, {"seed": 2**32}],
)
def test_bad_sampling(rules: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(rules))):
        Sampling(**rules)
