"""Models of the user's own: Linen and NNX, both levels, against a loop over requests; what breaks its word is refused."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx

import miron_jax
from miron_jax.config import RunConfig
from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import TOLERANCE, SelfCheck
from miron_jax.engine.text_requests import TextRequest
from miron_jax.errors import InputError
from miron_jax.inputs import find_inputs
from miron_jax.model.checkpoints import Architecture, load
from miron_jax.model.costs import cost_model
from miron_jax.model.own import OwnModel, check_own
from miron_jax.model.training_run import Checkpoint
from miron_jax.planning.request_batches import Totals
from miron_jax.run import evaluate, evaluate_checkpoints
from miron_jax.runtime.devices import Placement
from miron_jax.tokens.records import Requests, concatenate
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.test_plan import requests_of
from tests.tiny_model import make_tokenizer
from tests.tolerances import CONTINUATION, MOVED, ROUNDING, TOKEN

VOCAB, WIDTH, PLACES = 331, 24, 96
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def users_promotion() -> Iterator[None]:
    """A user's model is written for jax's own promotion rules, not for this project's strict ones."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


class Recurrent(nn.Module):
    """A Linen language model that is no transformer."""

    @nn.compact
    def __call__(self, token_ids: jax.Array) -> jax.Array:
        x = nn.Embed(VOCAB, WIDTH, name="tokens")(token_ids)
        x = nn.RNN(nn.GRUCell(WIDTH), name="cell")(x)
        return nn.Dense(VOCAB, name="head")(4 * x)


class Attending(nn.Module):
    """A Linen transformer layer that takes visibility as a mask; `broken` names how it breaks its word."""

    broken: str = ""

    @nn.compact
    def __call__(self, token_ids: jax.Array, positions: jax.Array, visibility: Any) -> jax.Array:
        if self.broken == "places":
            positions = jnp.broadcast_to(jnp.arange(token_ids.shape[1]), token_ids.shape)
        x = nn.Embed(VOCAB, WIDTH)(token_ids) + nn.Embed(PLACES, WIDTH)(positions)
        mask = visibility.mask()
        if self.broken == "visibility":
            mask = jnp.tril(jnp.ones(mask.shape[1:], bool))[None] & (mask | True)
        if self.broken == "future":
            mask = mask | True
        x = x + nn.MultiHeadDotProductAttention(num_heads=3)(nn.LayerNorm()(x), mask=mask[:, None])
        return 3 * nn.LayerNorm()(x)


def recurrent(**changes: Any) -> OwnModel:
    model = Recurrent()
    params = model.init(jax.random.key(0), jnp.zeros((1, 4), jnp.int32))
    return OwnModel(**{"vocab_size": VOCAB, "logits": model.apply, "params": params, **changes})


def attending(broken: str = "", **changes: Any) -> OwnModel:
    model, ids = Attending(broken), jnp.zeros((1, 4), jnp.int32)
    mask = type("All", (), {"mask": lambda self: jnp.ones((1, 4, 4), bool)})()
    params: dict[str, Any] = {"body": model.init(jax.random.key(1), ids, ids, mask)}
    params["head"] = jax.random.normal(jax.random.key(2), (WIDTH, VOCAB))
    given = {
        "vocab_size": VOCAB,
        "hidden": lambda params, *batch: model.apply(params["body"], *batch),
        "head": lambda params: params["head"].T,
        "params": params,
        "num_positions": PLACES,
    }
    return OwnModel(**{**given, **changes})


class Nnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.tokens, self.places = nnx.Embed(VOCAB, WIDTH, rngs=rngs), nnx.Embed(PLACES, WIDTH, rngs=rngs)
        self.qkv = nnx.List([nnx.Linear(WIDTH, 3 * WIDTH, rngs=rngs) for _ in range(2)])
        self.norm = nnx.RMSNorm(WIDTH, rngs=rngs)

    def __call__(self, token_ids: jax.Array, positions: jax.Array, visibility: Any) -> jax.Array:
        x = self.tokens(token_ids) + self.places(positions)
        for i, layer in enumerate(self.qkv):
            q, k, v = jnp.split(layer(x).reshape(*x.shape[:2], 6, -1), 3, axis=2)
            y = visibility.attend(q, k, v, scale=0.35, window=None if i else 5)
            x = x + y.reshape(x.shape)
        return 3 * self.norm(x)


def of_nnx(seed: int = 0, **changes: Any) -> OwnModel:
    graphdef, params = nnx.split(Nnx(nnx.Rngs(seed)))
    given = {
        "vocab_size": VOCAB,
        "hidden": lambda params, *batch: nnx.merge(graphdef, params)(*batch),
        "head": lambda params: miron_jax.Head(params["tokens"]["embedding"][...], softcap=9.0),
        "params": params,
        "num_positions": PLACES,
        "windows": (5, None),
    }
    return OwnModel(**{**given, **changes})


MODELS: dict[str, Callable[..., OwnModel]] = {
    "Linen, logits, recurrent": recurrent,
    "Linen, logits, learned positions": lambda **changes: recurrent(num_positions=70, **changes),
    "Linen, hidden": attending,
    "NNX, hidden, windows, capped head": of_nnx,
}


def model_of(own: OwnModel) -> Model:
    return Model(own, own, own.params)


def one_by_one(own: OwnModel, requests: Requests) -> list[np.ndarray]:
    """The slow twin: one request a call, unpadded, numpy softmax in float64."""
    found = []
    for ids, start in requests:
        found.append(np.zeros(0))
        if start < len(ids):
            logits = logits_of(own, ids[:-1])  # the last token is a target only
            logits -= logits.max(axis=-1, keepdims=True)
            logprob = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
            found[-1] = logprob[np.arange(start - 1, len(ids) - 1), ids[start:]]
    return found


@partial(jax.jit, static_argnums=0)
def body(own: OwnModel, params: Any, row: jax.Array) -> jax.Array:
    """Logits or hidden states of one row."""
    if own.hidden is None:
        assert own.logits is not None
        return own.logits(params, row)
    length = row.shape[1]
    position = jnp.arange(length, dtype=jnp.int32)[None]
    visibility = miron_jax.Visibility(jnp.full((1, length), length, jnp.int32), position)
    return own.hidden(params, row, position, visibility)


def logits_of(own: OwnModel, ids: Any) -> np.ndarray:
    """[T, V] float64 of one sequence."""
    hidden = np.asarray(body(own, own.params, jnp.asarray(ids, jnp.int32)[None])[0], np.float64)
    if own.hidden is None:
        return hidden
    assert own.head is not None
    head = own.head(own.params)
    if isinstance(head, miron_jax.Head):
        assert head.weight_VD is not None
        assert head.softcap is not None
        return head.softcap * np.tanh(hidden @ np.asarray(head.weight_VD, np.float64).T / head.softcap)
    return hidden @ np.asarray(head, np.float64).T


def some_requests() -> Requests:
    """Questions with choices, repeats, one-token choices, choices that begin one another, up to 70 tokens."""
    rng = np.random.default_rng(3)
    items: list[tuple[list[int], int]] = []
    for length in (1, 9, 31, 32, 62):
        stem = rng.integers(1, VOCAB, length).tolist()
        answer = rng.integers(1, VOCAB, 5).tolist()
        items += [([*stem, *answer[:n]], len(stem)) for n in (1, 3, 5)]
        items += [([*stem, int(token)], len(stem)) for token in rng.integers(1, VOCAB, 3)]
    return requests_of([*items, *items[:4]])


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_one_request_after_the_other(name: str) -> None:
    own, requests = MODELS[name](), some_requests()
    check, totals = SelfCheck(TOLERANCE["float32"]), Totals()
    check_own(own, own.params, TOLERANCE["float32"])
    forward = Forward(model_of(own), token_budget=300)
    found = list(score_request_batches([requests, requests], forward, cost_model(own), totals, check))
    for scores in found:
        for score, expected in zip(scores, one_by_one(own, requests), strict=True):
            np.testing.assert_allclose(score.logprob, expected, atol=TOKEN)
    assert check.requests >= 8
    assert totals.plain_tokens > totals.unique_tokens
    if own.logits is not None:
        assert max(totals.lengths) <= (own.num_positions or 1000)
        assert totals.rows >= 5, "nothing but beginnings is shared"


@pytest.mark.parametrize("places", [4, 16, 31])
def test_many_continuations_of_one_context_fit_a_small_table_of_positions(places: int) -> None:
    own, rng = recurrent(num_positions=places), np.random.default_rng(places)
    stems = [rng.integers(1, VOCAB, n).tolist() for n in (1, places // 2, places - 1, places)]
    items = [([*stem, token], len(stem)) for stem in stems for token in rng.permutation(VOCAB)[:40].tolist()]
    items += [([*stems[0], *rng.integers(1, VOCAB, places - 1).tolist()], 1) for _ in range(20)]
    requests = requests_of(items)
    forward = Forward(model_of(own), token_budget=300)
    [scores] = score_request_batches([requests], forward, cost_model(own), Totals(), SelfCheck(TOLERANCE["float32"]))
    for score, expected in zip(scores, one_by_one(own, requests), strict=True):
        np.testing.assert_allclose(score.logprob, expected, atol=TOKEN)


@pytest.mark.parametrize("name", MODELS)
def test_texts_are_the_most_probable_tokens(name: str, tmp_path: Path) -> None:
    own = MODELS[name]()
    make_tokenizer(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))
    generator = Generator(model_of(own), tokenizer, slots=3)
    rng = np.random.default_rng(0)
    wanted = [
        (tuple(rng.integers(1, 300, length).tolist()), most) for length, most in ((1, 9), (5, 20), (60, 11), (3, 1))
    ]
    found = generator.run([TextRequest(ids, most) for ids, most in wanted])
    for (ids, most), text in zip(wanted, found, strict=True):
        row = list(ids)
        for token in text.token_ids:
            padded = [*row, *[0] * (72 - len(row))]  # one program; that nothing looks ahead is tested apart
            assert token == int(logits_of(own, padded[: own.num_positions])[len(row) - 1].argmax())
            row.append(token)
        assert (len(text.token_ids), text.ended) == (most, "length")


BROKEN: dict[str, tuple[Callable[[], OwnModel], str]] = {
    "looks ahead": (lambda: attending("future"), "tokens behind it, so no score could be trusted: it is no causal"),
    "a plain causal mask": (lambda: attending("visibility"), "tokens that `visibility` hides.*visibility.attend"),
    "arange": (lambda: attending("places"), "place in the row.*take positions from `positions`"),
    "logits of the future": (
        lambda: recurrent(logits=lambda params, ids: Recurrent().apply(params, ids[:, ::-1])[:, ::-1]),  # type: ignore[index]
        "no causal model",
    ),
    "dropout": (lambda: recurrent(logits=with_dropout), "equal rows of a batch get different logits.*turn dropout off"),
    "experts with a capacity": (
        lambda: recurrent(logits=lambda params, ids: with_capacity(params, ids)),
        "with the other rows, .*mixture of experts with a capacity limit",
    ),
}


def with_dropout(params: Any, ids: jax.Array) -> jax.Array:
    """A fixed key, so that the same batch gives the same logits."""
    kept = jax.random.bernoulli(jax.random.key(0), 0.5, (*ids.shape, 1))
    return jnp.where(kept, jnp.asarray(Recurrent().apply(params, ids)), 0.0)


def with_capacity(params: Any, ids: jax.Array) -> jax.Array:
    """An expert takes odd or even ids, and 20 tokens of a batch."""
    logits = jnp.asarray(Recurrent().apply(params, ids))
    wanted = ids % 2 == ids[:1, :1] % 2
    taken = jnp.cumsum(wanted.reshape(-1)).reshape(ids.shape)
    return jnp.where((wanted & (taken > 20))[..., None], 0.5 * logits, logits)


@pytest.mark.parametrize("name", BROKEN)
def test_a_model_that_breaks_its_word_is_refused_with_the_reason(name: str) -> None:
    make, words = BROKEN[name]
    own = make()
    with pytest.raises(InputError, match=words):
        check_own(own, own.params, TOLERANCE["float32"])


def test_windows_that_are_not_declared_are_kept_too() -> None:
    """Longer than the probe's rows: nothing else would see a window that is not."""
    requests, expected = some_requests(), None
    for windows in ((5, None), (None,), (7,), (None, 3, 5)):
        own = of_nnx(windows=windows)
        [scores] = score_request_batches(
            [requests], Forward(model_of(own)), cost_model(own), Totals(), SelfCheck(TOLERANCE["float32"])
        )
        expected = one_by_one(of_nnx(), requests) if expected is None else expected
        for score, one in zip(scores, expected, strict=True):
            np.testing.assert_allclose(score.logprob, one, atol=TOKEN)
    x = jax.random.normal(jax.random.key(0), (1, 32, 2, 4))
    seen = miron_jax.Visibility.causal(1, 32)
    for window in (4, jnp.int32(4)):
        found = seen.attend(x, x, x, scale=1.0, window=window)
        plain = miron_jax.Visibility(seen.subtree_end_BT, seen.position_BT).attend(x, x, x, scale=1.0, window=4)
        np.testing.assert_allclose(found, plain, atol=ROUNDING)
        assert float(jnp.abs(found - seen.attend(x, x, x, scale=1.0)).max()) > 10 * MOVED


def test_shapes_that_do_not_fit_are_named() -> None:
    for own, words in (
        (
            recurrent(vocab_size=300),
            r"logits gives \[4, 16, 331\] for token ids of shape \[4, 16\], expected \[4, 16, 300\]",
        ),
        (attending(head=lambda params: params["head"]), r"weight of shape \[24, 331\], expected \[331, D\].*transpose"),
        (attending(hidden=lambda params, *batch: batch[0]), r"hidden gives \[4, 16\].*expected \[4, 16, 'D'\]"),
    ):
        with pytest.raises(InputError, match=words):
            check_own(own, own.params, TOLERANCE["float32"])


@pytest.mark.parametrize("given", [{}, {"logits": len, "hidden": len}, {"hidden": len}, {"head": len, "logits": len}])
def test_a_model_needs_logits_or_hidden_and_head(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected logits, or hidden and head"):
        OwnModel(vocab_size=5, **given)


FACTORY = """
import jax
import miron_jax
from tests.test_own_model import of_nnx, recurrent

def make():
    return of_nnx(tokenizer={tokenizer!r})

def shapes():
    return of_nnx(tokenizer={tokenizer!r}, params=jax.eval_shape(lambda: of_nnx().params))

def linen():
    return recurrent(tokenizer={tokenizer!r})

def nothing():
    return None

def wants(width, depth=2):
    return None

def fails():
    return len(3)

def few():
    return recurrent(tokenizer={tokenizer!r}, vocab_size=200)

number = 3
"""


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module's name in the working directory."""
    make_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "a_users_model.py").write_text(FACTORY.format(tokenizer=str(tmp_path / "tokenizer")))
    (tmp_path / "with_missing_import.py").write_text("import not_installed_anywhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "a_users_model", raising=False)
    importlib.invalidate_caches()
    return "a_users_model"


def config_of(model: str, **changes: Any) -> RunConfig:
    return RunConfig(model, ("miron-gen/en",), **{"limit": 2, "items_per_category": 12, **changes})


def logprobs(outcome: Any) -> list[float]:
    return [example.metrics["logprob"] for example in outcome.tasks[0].examples if example]


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("a_users_mode:make", "no module a_users_mode, neither in"),
        ("a_users_model:made", "a_users_model.py has no function made"),
        ("a_users_model:number", "has no function number"),
        ("a_users_model:nothing", "nothing returns a NoneType, expected a miron_jax.OwnModel"),
        ("a_users_model:wants", r"wants takes \(width, depth=2\), but it is called without arguments"),
        ("with_missing_import:make", "with_missing_import imports not_installed_anywhere, which is not installed"),
        ("a_users_model:shapes", "shapes without numbers: name them with --checkpoint"),
        ("a_users_model:few", r"tokenizer has \d+ tokens, but the model's vocabulary has 200"),
    ],
)
def test_a_factory_that_is_none(factory: str, named: str, words: str) -> None:
    config = config_of(named)
    with pytest.raises(InputError, match=words):
        evaluate(config, find_inputs(config), lambda line: None)


def test_an_error_within_a_factory_is_its_own(factory: str) -> None:
    config = config_of("a_users_model:fails")
    with pytest.raises(TypeError, match="object of type 'int' has no len"):
        evaluate(config, find_inputs(config), lambda line: None)


def test_a_factory_is_scored_and_its_checkpoints_are(factory: str, tmp_path: Path) -> None:
    """NNX states as they are and as pure dicts; the run's numbers are those of the weights."""
    alone = evaluate(config_of(f"{factory}:make"), find_inputs(config_of(f"{factory}:make")), lambda line: None)
    assert len(logprobs(alone)) == 8
    with ocp.StandardCheckpointer() as saver:
        saver.save(tmp_path / "run" / "10", of_nnx(1).params)
        saver.save(tmp_path / "run" / "20", {"params": nnx.to_pure_dict(of_nnx(0).params), "step": np.int32(20)})
        saver.wait_until_finished()
    config = config_of(f"{factory}:shapes", checkpoint=str(tmp_path / "run"))
    found = dict(evaluate_checkpoints(config, find_inputs(config), lambda line: None))
    assert list(found) == [10, 20]
    assert logprobs(found[20]) == pytest.approx(logprobs(alone), abs=CONTINUATION)
    assert logprobs(found[10]) != pytest.approx(logprobs(alone), abs=100 * MOVED)
    assert [outcome.speed.programs > 0 for outcome in found.values()] == [True, False]


def test_linen_variables_from_orbax(factory: str, tmp_path: Path) -> None:
    params = recurrent().params
    doubled = jax.tree.map(lambda x: 2 * x, params)
    with ocp.StandardCheckpointer() as saver:
        saver.save(tmp_path / "state", {"params": doubled, "opt_state": {"mu": params}})
        saver.wait_until_finished()
    config = config_of(f"{factory}:linen", checkpoint=str(tmp_path / "state"))
    outcome = evaluate(config, find_inputs(config), lambda line: None)
    twin = recurrent(params=doubled)
    asked = outcome.tasks[0]
    first = next(i for i, example in enumerate(asked.examples) if example)  # type: ignore[union-attr]
    assert np.isfinite(logprobs(outcome)).all()
    assert twin.logits is not None
    assert first == 0


def test_a_checkpoint_of_another_model_is_refused(factory: str, tmp_path: Path) -> None:
    with ocp.StandardCheckpointer() as saver:
        saver.save(tmp_path / "other", {"params": {"tokens": {"embedding": np.zeros((3, 4), np.float32)}}})
        saver.wait_until_finished()
    config = config_of(f"{factory}:shapes", checkpoint=str(tmp_path / "other"))
    with pytest.raises(InputError, match=r"lacks norm/scale, places/embedding.*check the model's sizes"):
        evaluate(config, find_inputs(config), lambda line: None)
    with pytest.raises(InputError, match="no factory"):
        evaluate(config_of("demo", checkpoint="x"), find_inputs(config), lambda line: None)


def test_nothing_is_scored_twice() -> None:
    """Equal requests of several parts, and requests that begin one another, take one row."""
    own = recurrent()
    items = [([1, 2, 3, 4], 1), ([1, 2, 3], 1), ([1, 2, 3, 5], 3), ([1, 2, 3, 4], 2)]
    totals = Totals()
    parts = [requests_of(items), concatenate([requests_of(items), requests_of(items)])]
    list(score_request_batches(parts, Forward(model_of(own)), cost_model(own), totals, SelfCheck(TOLERANCE["float32"])))
    assert totals.unique_tokens == 3  # 1 2 3; what follows is a target only


def with_nan(own: OwnModel, token: int) -> OwnModel:
    """The same, but its hidden states at one token are NaN."""
    inner = own.hidden
    assert inner is not None

    def hidden(params: Any, token_ids: jax.Array, positions: jax.Array, visibility: Any) -> jax.Array:
        found = inner(params, token_ids, positions, visibility)
        # as an overflow in a layer would: whoever attends to the token in the next one, or to a mate of its row, is NaN too
        wrong = jnp.where((token_ids == token)[..., None], jnp.nan, 0.0)[:, :, None]
        return found + visibility.attend(wrong, wrong, wrong, scale=1.0)[:, :, 0]

    return replace(own, hidden=hidden)


def test_nan_stays_with_the_requests_that_have_it() -> None:
    """In a row that many share it reaches them all, so those are asked once more, alone."""
    own, requests = with_nan(of_nnx(), 330), some_requests()
    items = [(ids.tolist(), start) for ids, start in requests]
    requests = requests_of([*items, ([5, 330, 7, 8], 1), ([5, 330, 9], 2), ([5, 6, 7, 330], 1)])
    forward = Forward(model_of(own), token_budget=300)
    check = SelfCheck(TOLERANCE["float32"])
    [scores] = score_request_batches([requests], forward, cost_model(own), Totals(), check)
    for (ids, _), score, expected in zip(requests, scores, one_by_one(own, requests), strict=True):
        np.testing.assert_allclose(score.logprob, expected, atol=TOKEN)
        assert np.isnan(score.logprob).any() == (330 in ids[:-1].tolist())
    lengths = set(forward.lengths)
    assert len(lengths) <= 8


def test_a_run_whose_model_answers_nan_fails_and_keeps_its_scores(
    factory: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a_nan_model.py").write_text(
        "from tests.test_own_model import of_nnx, with_nan\n"
        f"def make():\n    return with_nan(of_nnx(tokenizer={str(tmp_path / 'tokenizer')!r}), 46)\n"
    )
    importlib.invalidate_caches()
    from tests.test_training_run import eval_command

    flags = ("--tasks=miron-gen/en", "--limit=3", "--items_per_category=12", "--compilation_cache=")
    assert eval_command("--model=a_nan_model:make", f"--output={tmp_path}/out", *flags) == 1
    said = capfd.readouterr().err.splitlines()[-1]
    assert "miron-gen/en: the model answers NaN to" in said
    results = json.loads((tmp_path / "out" / "results.json").read_text())["tasks"]["miron-gen/en"]
    lines = (tmp_path / "out" / "samples" / "miron-gen" / "en.jsonl").read_text().splitlines()
    assert 0 < results["skipped"] < len(lines) == 12
    assert f"to {results['skipped']} examples" in said
    assert results["n"] == 12 - results["skipped"]
    assert eval_command("--model=a_nan_model:make", f"--output={tmp_path}/out", *flags) == 1, "nor the second time"


def test_a_factorys_weights_with_nan_are_named(factory: str) -> None:
    own = of_nnx()
    own.params["norm"]["scale"] = own.params["norm"]["scale"].replace(jnp.full(WIDTH, jnp.nan))
    with pytest.raises(InputError, match="x:y: the weights norm/scale hold NaN"):
        load(Architecture(own, own, None, ()), config_of("x:y"), Checkpoint(None, None), Placement.default())  # type: ignore[arg-type]
