"""Users' models, Linen and NNX, at both levels, against a loop over requests; those that break the contract are refused."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import miron_jax
from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import LOGIT_SHARE, TOLERANCE, SelfCheck
from miron_jax.engine.text_requests import TextRequest
from miron_jax.errors import InputError
from miron_jax.model.costs import cost_model
from miron_jax.model.own import OwnModel
from miron_jax.model.own_probe import check_own_model
from miron_jax.planning.request_batches import Totals
from miron_jax.tokens.records import Requests, concatenate
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.own_models import (
    MODELS,
    VOCAB,
    WIDTH,
    attending,
    bigrams,
    logits_of,
    model_of,
    of_nnx,
    one_by_one,
    recurrent,
    some_requests,
    users_promotion,
    with_nan,
)  # fmt: skip
from tests.support.requests import requests_of
from tests.support.tiny_model import make_tokenizer
from tests.support.tolerances import MOVED, ROUNDING, TOKEN

__all__ = ["users_promotion"]  # a fixture that every test here uses
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def check_scores(model: OwnModel, requests: Requests, budget: int = 300) -> tuple[Forward, Totals]:
    """Beside one request after the other."""
    forward, totals, check = Forward(model_of(model), budget), Totals(), SelfCheck(TOLERANCE["float32"])
    [scores] = score_request_batches([requests], forward, cost_model(model), totals, check)
    for score, expected in zip(scores, one_by_one(model, requests), strict=True):
        np.testing.assert_allclose(score.logprob, expected, atol=TOKEN)
    assert check.requests >= 8
    return forward, totals


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_one_request_after_the_other(name: str) -> None:
    model = MODELS[name]()
    check_own_model(model, model.params, TOLERANCE["float32"])
    _, totals = check_scores(model, some_requests())
    assert totals.plain_tokens > totals.unique_tokens
    if not model.is_forest:
        assert max(totals.lengths) <= (model.num_positions or 1000)
        assert totals.rows >= 5, "nothing but beginnings is shared"


@pytest.mark.slow
def test_many_continuations_of_one_context_fit_a_small_table_of_positions() -> None:
    places, rng = 4, np.random.default_rng(4)
    stems = [rng.integers(1, VOCAB, n).tolist() for n in (1, places // 2, places - 1, places)]
    items = [([*stem, token], len(stem)) for stem in stems for token in rng.permutation(VOCAB)[:40].tolist()]
    items += [([*stems[0], *rng.integers(1, VOCAB, places - 1).tolist()], 1) for _ in range(20)]
    check_scores(recurrent(num_positions=places), requests_of(items))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_texts_are_the_most_probable_tokens(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    make_tokenizer(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))
    generator = Generator(model_of(model), tokenizer, slots=3)
    rng = np.random.default_rng(0)
    wanted = [
        (tuple(rng.integers(1, 300, length).tolist()), most) for length, most in ((1, 9), (5, 20), (60, 11), (3, 1))
    ]
    computed = generator.run([TextRequest(ids, most) for ids, most in wanted])
    for (ids, most), text in zip(wanted, computed, strict=True):
        logits = logits_of(model, [*ids, *text.token_ids[:-1]])[len(ids) - 1 :]
        assert list(text.token_ids) == logits.argmax(axis=-1).tolist()
        assert (len(text.token_ids), text.ended) == (most, "length")


BROKEN: dict[str, tuple[Callable[[], OwnModel], str]] = {
    "looks ahead": (lambda: attending("future"), "tokens behind it, so no score could be trusted: it is no causal"),
    "a plain causal mask": (lambda: attending("visibility"), "tokens that `visibility` hides.*visibility.attend"),
    "arange": (lambda: attending("places"), "place in the row.*take positions from `positions`"),
    "dropout": (lambda: bigrams(logits=with_dropout), "equal rows of a batch get different logits.*turn dropout off"),
    "experts with a capacity": (lambda: bigrams(logits=with_capacity), "with the other rows, .*with a capacity limit"),
    "batch statistics": (
        lambda: bigrams(logits=lambda params, ids: params[ids] + jnp.mean(ids) / VOCAB * params[0]),
        "a row's logits change with the other rows.*freeze batch statistics",
    ),
}


def with_dropout(params: Any, ids: jax.Array) -> jax.Array:
    """A fixed key, so that the same batch gives the same logits."""
    kept = jax.random.bernoulli(jax.random.key(0), 0.5, (*ids.shape, 1))
    return jnp.where(kept, params[ids], 0.0)


def with_capacity(params: Any, ids: jax.Array) -> jax.Array:
    """An expert takes odd or even ids, and 20 tokens of a batch."""
    is_its = ids % 2 == ids[:1, :1] % 2
    taken = jnp.cumsum(is_its.reshape(-1)).reshape(ids.shape)
    return jnp.where((is_its & (taken > 20))[..., None], 0.5 * params[ids], params[ids])


@pytest.mark.parametrize("name", BROKEN)
def test_a_model_that_breaks_the_contract_is_refused_with_the_reason(name: str) -> None:
    make, words = BROKEN[name]
    model = make()
    with pytest.raises(InputError, match=words):
        check_own_model(model, model.params, TOLERANCE["float32"])


def test_peaked_tokens_hide_no_fault_beside_them() -> None:
    """Odd tokens' logits are up to 1e6, of which rounding may take 15 nats; even tokens look at the other rows."""

    def logits(params: Any, ids: jax.Array) -> jax.Array:
        mixed = params[ids] + jnp.mean(ids) / VOCAB * params[0]
        return jnp.where((ids % 2 == 1)[..., None], 3e5 * params[ids], mixed if is_broken else params[ids])

    for is_broken in (False, True):
        model = bigrams(logits=logits)
        bounds = TOLERANCE["float32"], LOGIT_SHARE["float32"]
        if is_broken:
            with pytest.raises(InputError, match="a row's logits change with the other rows"):
                check_own_model(model, model.params, *bounds)
        else:
            assert check_own_model(model, model.params, *bounds).tolerance > 10


@pytest.mark.slow
def test_windows_that_are_not_declared_are_kept_too() -> None:
    """Longer than the probe's rows: nothing else would see a window that is not."""
    check_scores(of_nnx(windows=(None, 3)), some_requests())
    x = jax.random.normal(jax.random.key(0), (1, 32, 2, 4))
    seen = miron_jax.Visibility.causal(1, 32)
    for window in (4, jnp.int32(4)):
        computed = seen.attend(x, x, x, scale=1.0, window=window)
        plain = miron_jax.Visibility(seen.subtree_end_BT, seen.position_BT).attend(x, x, x, scale=1.0, window=4)
        np.testing.assert_allclose(computed, plain, atol=ROUNDING)
        assert float(jnp.abs(computed - seen.attend(x, x, x, scale=1.0)).max()) > 10 * MOVED


def test_shapes_that_do_not_fit_are_named() -> None:
    tall = jnp.zeros((VOCAB + 1, WIDTH))
    for model, words in (
        (bigrams(vocab_size=300), r"[4, 16, 331] for token ids of shape [4, 16], expected [4, 16, 300]"),
        (attending(head=lambda params: params["head"]), "weight of shape [24, 331], expected [331, D]"),
        (attending(head=lambda params: tall), "weight of shape [332, 24], expected [331, D]; cut rows that only pad"),
        (attending(hidden=lambda params, *batch: batch[0]), "hidden gives [4, 16]"),
    ):
        with pytest.raises(InputError, match=re.escape(words).replace(r";\ ", ".*")):
            check_own_model(model, model.params, TOLERANCE["float32"])


def test_a_model_needs_logits_or_hidden_and_head_or_state_and_step() -> None:
    for names in ("", "logits hidden", "hidden", "head logits", "state", "step", "state logits", "head"):
        given: dict[str, Any] = dict.fromkeys(names.split(), len)
        with pytest.raises(InputError, match="expected logits, or hidden and head, or state and step"):
            OwnModel(vocab_size=5, **given)


def test_nothing_is_scored_twice() -> None:
    """Equal requests of several parts, and requests that begin one another, take one row."""
    model = bigrams()
    items = [([1, 2, 3, 4], 1), ([1, 2, 3], 1), ([1, 2, 3, 5], 3), ([1, 2, 3, 4], 2)]
    totals, forward, check = Totals(), Forward(model_of(model)), SelfCheck(TOLERANCE["float32"])
    parts = [requests_of(items), concatenate([requests_of(items), requests_of(items)])]
    list(score_request_batches(parts, forward, cost_model(model), totals, check))
    assert totals.unique_tokens == 3  # 1 2 3; what follows is a target only


@pytest.mark.slow
def test_nan_stays_with_the_requests_that_have_it() -> None:
    """In a row that many share it reaches them all, so those are asked once more, alone: as the twin asks them."""
    items = [(ids.tolist(), start) for ids, start in some_requests()]
    requests = requests_of([*items, ([5, 330, 7, 8], 1), ([5, 330, 9], 2), ([5, 6, 7, 330], 1)])
    model = with_nan(of_nnx(), 330)
    for (ids, _), expected in zip(requests, one_by_one(model, requests), strict=True):
        assert np.isnan(expected).any() == (330 in ids[:-1].tolist())
    forward, _ = check_scores(model, requests)
    assert len(set(forward.lengths)) <= 8
