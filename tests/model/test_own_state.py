"""Models of the user's own that carry a state: what is refused, and many devices."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import TOLERANCE, SelfCheck
from miron_jax.engine.text_requests import TextRequest
from miron_jax.errors import InputError
from miron_jax.model.costs import cost_model
from miron_jax.model.network import BoundNetwork
from miron_jax.model.own import OwnModel
from miron_jax.model.own_probe import check_own_model
from miron_jax.model.stateful.walk import WalkArrays, WalkShape, walk_rows
from miron_jax.planning.request_batches import Totals
from miron_jax.planning.walks import GroupSize
from miron_jax.runtime.devices import Placement
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.own_models import VOCAB, WIDTH, some_requests, summing, sums, users_promotion, with_cache
from tests.support.placements import in_process, placement_of
from tests.support.requests import requests_of
from tests.support.tiny_model import make_model
from tests.support.tolerances import TOKEN

__all__ = ["users_promotion"]  # a fixture that every test here uses


def answers(users_model: OwnModel, placement: Placement, tokenizer: Any) -> tuple[np.ndarray, list[Any]]:
    """Log-probabilities of some requests, and greedy texts after some prompts."""
    model = Model(users_model, users_model, jax.tree.map(placement.share, users_model.params), placement)
    forward = Forward(model, token_budget=200)
    check = SelfCheck(TOLERANCE["float32"])
    [scores] = score_request_batches([some_requests()], forward, cost_model(model.config), Totals(), check)
    rng = np.random.default_rng(1)
    stem = tuple(rng.integers(1, 300, 40).tolist())
    prompts = [stem[:1], stem, (*stem[:20], 7), (*stem[:20], 8), (5,)]
    asked = [TextRequest(ids, 4 + i) for i, ids in enumerate(prompts)]
    return scores.logprob, [text.token_ids for text in Generator(model, tokenizer, slots=2).run(asked)]


def check_places(folder: str) -> None:
    """Every placement gives what one device gives."""
    tokenizer = load_tokenizer(folder)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for model, place in ((summing(), "pmap 3"), (with_cache(), "data=4")):
            logprob, texts = answers(model, Placement(jax.devices()[0]), tokenizer)
            computed, computed_texts = answers(model, placement_of(place), tokenizer)
            np.testing.assert_allclose(computed, logprob, rtol=0, atol=TOKEN, err_msg=place)
            assert computed_texts == texts, place
            print(place, flush=True)


@pytest.mark.slow
def test_three_and_four_devices_agree_with_one(tmp_path: Any) -> None:
    make_model(tmp_path)
    script = "import miron_jax, sys; from tests.model.test_own_state import check_places; check_places(*sys.argv[1:])"
    assert in_process(["-c", script, str(tmp_path)], devices=4).split("\n") == ["pmap 3", "data=4", ""]


@pytest.mark.slow
def test_what_requests_share_is_read_once() -> None:
    """One row holds them all, and its program reads each of its nodes once: see tests/planning/test_walks.py."""
    stem = list(range(1, 200))
    items = [([*stem, *answer], len(stem)) for answer in ([200, 201], [202, 203, 204], [205], [200, 206])]
    totals, model = Totals(), summing()
    forward = Forward(Model(model, model, model.params))
    check = SelfCheck(TOLERANCE["float32"])
    list(score_request_batches([requests_of(items)], forward, cost_model(model), totals, check))
    assert totals.unique_tokens == len(stem) + 3  # 200, 202, 203; last tokens are targets only
    assert forward.speed.computed_tokens == totals.unique_tokens


def test_a_state_that_is_not_wanted_is_written_nowhere() -> None:
    """Tokens 3 and 5, each from the empty state: the first leaves the kept state, the last of all; the second none."""
    model, sizes = summing(), (GroupSize(1, 1),)
    walk = WalkArrays(
        chunk_slot_Q=jnp.array([0, 1]), chunk_from_Q=jnp.array([0, 0]), chunk_to_Q=jnp.array([1, -1]),
        group_first_G=jnp.array([0, 1, 2]), group_size_G=jnp.array([0, 0]), num_groups_1=jnp.array([2]),
    )  # fmt: skip
    _, kept = walk_rows(BoundNetwork(model, model.params), jnp.array([3, 5]), walk, WalkShape(sizes, 2, 1, 1, 4))
    np.testing.assert_array_equal(kept[0], model.params[3])


def changed(after: Any) -> dict[str, Any]:
    """The step of `summing`, but with other results than its (logits, carry)."""
    return {"step": lambda params, carry, ids: after(*sums(params, carry, ids), carry)}


BROKEN: list[tuple[dict[str, Any], str]] = [
    (
        changed(lambda logits, carry, before: (logits, before)),
        "other logits if it takes a text in several parts.*all that",
    ),
    (
        changed(lambda logits, carry, before: (logits, jnp.concatenate([carry, carry]))),
        rf"step gives a state whose array is float32 \[{2 * WIDTH}\], expected float32 \[{WIDTH}\], as state gives it",
    ),
    (
        changed(lambda logits, carry, before: (logits, carry.astype(jnp.bfloat16))),
        r"whose array is bfloat16 \[24\], expected float32 \[24\]",
    ),
    (changed(lambda logits, carry, before: (logits, (carry, carry))), "step gives a state whose"),
    (changed(lambda logits, *carries: logits), "step gives a .*, expected two: its outputs, then the state"),
    (changed(lambda logits, *carries: (logits, *carries)), "step gives 3 values, expected two"),
    ({"state": lambda params, num_tokens: "nothing"}, "state gives something else than arrays"),
    ({"state": lambda params, num_tokens: ()}, "state gives no array"),
    (
        changed(lambda logits, carry, before: (logits[:, :WIDTH], carry)),
        rf"step gives \[4, 16, {WIDTH}\] for token ids of shape \[4, 16\], expected \[4, 16, {VOCAB}\]",
    ),
    (
        {"logits": lambda params, ids: 2 * jnp.tanh(jnp.cumsum(params[ids], axis=1)) @ params.T},
        "step gives other logits than logits, .*the same model",
    ),
    (
        {"step": lambda params, carry, ids: sums(params, carry + ids[-1] % 2, ids)},
        "a token's logits change with the tokens behind it",
    ),
]


@pytest.mark.parametrize(("changes", "words"), BROKEN, ids=[words for _, words in BROKEN])
def test_a_state_that_breaks_the_contract_is_refused_with_the_reason(changes: dict[str, Any], words: str) -> None:
    model = summing(**changes)
    with pytest.raises(InputError, match=words):
        check_own_model(model, model.params, TOLERANCE["float32"])


@pytest.mark.slow
def test_a_cache_of_another_model_and_a_head_of_another_width_are_refused() -> None:
    step: Any = with_cache().step
    other = with_cache(step=lambda params, state, ids: (2 * step(params, state, ids)[0], step(params, state, ids)[1]))
    narrow = with_cache(head=lambda params: jnp.zeros((VOCAB, 5)))
    for model, words in (
        (other, "step gives other logits than hidden"),
        (narrow, f"hidden states have {WIDTH} numbers and the head's weight 5 a token"),
    ):
        with pytest.raises(InputError, match=words):
            check_own_model(model, model.params, TOLERANCE["float32"])


def test_functions_that_take_other_arguments_are_refused() -> None:
    with pytest.raises(InputError, match=r"OwnModel: state takes \(params\), but it is called with 2 arguments"):
        summing(state=lambda params: jnp.zeros(WIDTH))


@pytest.mark.slow
def test_a_state_has_no_more_room_than_learned_positions(tmp_path: Any) -> None:
    rooms, model, places = [], summing(), 40

    def state(params: Any, num_tokens: int) -> jax.Array:
        rooms.append(num_tokens)
        return jnp.zeros(WIDTH)

    limited = summing(state=state, num_positions=places)
    check_own_model(limited, limited.params, TOLERANCE["float32"])
    make_model(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))
    asked = [TextRequest(tuple(range(1, 30)), 5), TextRequest((7,), 5)]
    computed, expected = (Generator(Model(m, m, m.params), tokenizer).run(asked) for m in (limited, model))
    assert computed == expected
    assert max(rooms) <= places
