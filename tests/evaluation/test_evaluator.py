"""The engine from Python: the command's numbers, nothing compiled twice, weights that stay on their mesh."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from flax import nnx

import miron_jax
from miron_jax.config import RunConfig
from miron_jax.engine.checked_requests import CheckedRequests
from miron_jax.engine.plain import PlainProgram
from miron_jax.engine.self_check import TOLERANCE, SelfCheck
from miron_jax.errors import InputError, SelfCheckFailed
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import evaluate
from miron_jax.evaluation.run_result import finished_run
from miron_jax.evaluation.session import architecture_with, files_of
from miron_jax.evaluation.task_kinds.cloze import ClozeKind
from miron_jax.evaluator import _requests
from miron_jax.report.tables.notes import notes_of
from miron_jax.results.document import run_json, run_of
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support import processes
from tests.support.kept_runs import same_results
from tests.support.own_models import bigrams, logits_of, of_nnx, users_promotion, with_nan
from tests.support.tiny_model import make_model, make_tokenizer
from tests.support.tolerances import CONTINUATION, TOKEN

__all__ = ["users_promotion"]  # a fixture that every test here uses


@contextmanager
def counted_compilations() -> Iterator[list[str]]:
    """Every program that XLA compiles meanwhile."""
    met: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            met.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield met
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


OPTIONS: dict[str, Any] = {"limit": 3, "items_per_category": 3}


def without_times(results: dict[str, Any]) -> dict[str, Any]:
    return {name: results[name] for name in ("tasks", "suites")}


class First(NamedTuple):
    """An evaluator after its first run."""

    evaluator: miron_jax.Evaluator
    tokenizer: str
    results: dict[str, Any]
    num_compiled: int


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> First:
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(folder)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"), counted_compilations() as met:
        evaluator = miron_jax.Evaluator(of_nnx(params=None), str(folder), ["miron-gen/en"], **OPTIONS)
        results = evaluator.run(of_nnx(0).params, step=10)
    return First(evaluator, str(folder), results, len(met))


@pytest.mark.slow
def test_later_weights_compile_nothing_and_have_their_own_numbers(first: First) -> None:
    assert first.num_compiled > 0
    other, results = of_nnx(1).params, first.results
    with counted_compilations() as met:
        second = first.evaluator.run(other, step=20)
    assert met == []
    assert (results["step"], second["step"]) == (10, 20)
    assert results["tasks"] != second["tasks"]
    again = first.evaluator.run(of_nnx(0).params)
    assert without_times(again) == without_times(results)
    for speed in (results["speed"], again["speed"]):
        assert sum(speed["timeline"].values()) == pytest.approx(speed["wall_seconds"])
        assert speed["timeline"]["device"] > 0 == speed["timeline"]["import"], "it began at the call"
    assert "tokenize" in results["speed"]["in_threads"]
    assert "tokenize" not in again["speed"]["in_threads"], "planned once"
    assert again["speed"]["unique_tokens"] == results["speed"]["unique_tokens"] > 0
    json.dumps(results, allow_nan=False)


@pytest.mark.slow
def test_later_weights_are_checked_by_a_part_once_weights_that_tell_rows_apart_have_passed(
    first: First, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = miron_jax.Evaluator(of_nnx(params=None), first.tokenizer, ["miron-gen/en"], **OPTIONS)
    params = of_nnx(0).params

    def checked(weights: Any) -> int:
        return evaluator.run(weights)["self_check"]["requests"]

    assert checked(jax.tree.map(jax.numpy.zeros_like, params)) == 8
    assert checked(jax.tree.map(lambda leaf: jax.numpy.full_like(leaf, np.nan), params)) == 8
    assert [checked(params) for _ in range(3)] == [8, 2, 2]
    with monkeypatch.context() as patch:
        patch.setattr(SelfCheck, "bounds", lambda check, logprob, size: np.full(len(logprob), 1e-12))
        with pytest.raises(SelfCheckFailed, match="differs"):
            checked(params)
    assert [checked(params) for _ in range(2)] == [8, 2]


@pytest.mark.slow
def test_results_have_the_precision_of_the_programs_and_not_of_the_caller(first: First) -> None:
    with jax.default_matmul_precision("bfloat16"):
        results = first.evaluator.run(of_nnx(0).params)
    assert results["environment"]["matmul_precision"] == "highest"
    assert results["tasks"] == first.results["tasks"]


@pytest.mark.slow
def test_results_have_the_slots_of_the_batches_that_ran(first: First) -> None:
    """A budget below a row's length is one row."""
    of_first = first.results["speed"]["batch_slots"]
    for budget, slots in ((1, range(1, of_first)), (of_first, (of_first,))):
        evaluator = miron_jax.Evaluator(
            of_nnx(params=None), first.tokenizer, ["miron-gen/en"], token_budget=budget, **OPTIONS
        )
        assert evaluator.run(of_nnx(0).params)["speed"]["batch_slots"] in slots


@pytest.mark.slow
def test_a_first_run_that_fails_binds_no_later_weights(first: First) -> None:
    evaluator = miron_jax.Evaluator(of_nnx(params=None), first.tokenizer, ["miron-gen/en"], **OPTIONS)
    params = of_nnx(0).params
    for wrong in ({"a": jax.numpy.zeros(3)}, jax.tree.map(lambda leaf: leaf[..., :1], params)):
        for call in (evaluator.run, evaluator.memory):
            with pytest.raises((TypeError, ValueError, AttributeError)):  # of the user's model
                call(wrong)
    assert without_times(evaluator.run(params)) == without_times(first.results)
    with pytest.raises(InputError, match="are another tree than the first ones"):
        evaluator.run({"a": jax.numpy.zeros(3)})


@pytest.mark.slow
def test_a_step_may_be_an_integer_of_any_kind(first: First, tmp_path: Path) -> None:
    evaluator = miron_jax.Evaluator(of_nnx(), first.tokenizer, ["miron-gen/en"], output=tmp_path, every=2, **OPTIONS)
    given: list[Any] = [np.int64(2), jax.numpy.int32(3)]
    assert [evaluator.run(step=step)["step"] for step in given] == [2, 3]
    count: Any = jax.numpy.int32(4)
    future = evaluator.after_step(None, count)
    assert future is not None
    assert future.result()["step"] == 4
    assert evaluator.after_step(None, count + 1) is None
    wrong: list[Any] = ["five", -1, 1.5]
    for step in wrong:
        with pytest.raises(InputError, match=f"step is {step!r}, expected an integer of 0 or more"):
            evaluator.run(step=step)
    assert [*json.loads((tmp_path / "results.json").read_text())["steps"]] == ["2", "3", "4"]
    assert all((tmp_path / f"step_{step}/results.json").exists() for step in (2, 3, 4))
    assert not (tmp_path / "step_-1").exists()


@pytest.mark.slow
@pytest.mark.parametrize("is_planned", [False, True])
def test_a_run_that_breaks_off_leaves_nothing_behind(
    first: First, monkeypatch: pytest.MonkeyPatch, is_planned: bool
) -> None:
    """Between two of its parts; the next run begins anew, or with what `memory` has planned."""
    monkeypatch.setattr("miron_jax.evaluation.parts.REQUEST_BATCH_TOKENS", 1)  # one request batch per task
    evaluator = miron_jax.Evaluator(of_nnx(), first.tokenizer, ["miron-gen"], **OPTIONS)
    if is_planned:
        evaluator.memory()
    real, parts = SelfCheck.compare, []

    def first_fails(self: SelfCheck, *rest: Any) -> None:
        parts.append(1)
        if len(parts) == 1:
            raise SelfCheckFailed("broken off")
        real(self, *rest)

    monkeypatch.setattr(SelfCheck, "compare", first_fails)
    with pytest.raises(SelfCheckFailed, match="broken off"):
        evaluator.run()
    checked = []
    for _ in range(3):
        results = evaluator.run()
        checked.append(results["self_check"]["requests"])
        tasks = results["tasks"]
        assert len(tasks) == 2
        same_results({"tasks": {"miron-gen/en": tasks["miron-gen/en"]}}, first.results)
    assert checked == [16, 4, 4], "what did not pass is checked whole again"


@pytest.mark.slow
def test_it_gives_the_commands_numbers(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model")
    config = RunConfig(str(folder), ("miron-gen/en",), **OPTIONS)
    expected = run_json(finished_run(config, evaluate(config, find_inputs(config))).result)
    options = {**OPTIONS, "output": tmp_path / "out", "save_requests": True}
    evaluator = miron_jax.Evaluator(folder, tasks=["miron-gen/en"], **options)
    assert (tmp_path / "out/requests/requests.jsonl").is_file()
    written = evaluator.run(step=5), json.loads((tmp_path / "out/step_5/results.json").read_text())
    for results in (*written, evaluator.run(miron_jax.load_params(folder))):
        assert without_times(results) == without_times(expected)
        assert (results["config"]["sharding"], results["config"]["mesh"]) == ("pmap", []), "the only device"
    assert (tmp_path / "out/results.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(("stated", "given"), [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_weights_run_in_the_stated_dtype(tmp_path: Path, stated: str, given: str) -> None:
    folder = make_model(tmp_path / "model")
    params = miron_jax.load_params(folder, given)
    cast = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), params, miron_jax.load_params(folder, stated))

    def results_of(params: Any, dtype: str) -> dict[str, Any]:
        evaluator = miron_jax.Evaluator(folder, tasks=["miron-gen/en"], dtype=dtype, **OPTIONS)
        return evaluator.run(params)

    results = results_of(params, stated)
    assert without_times(results) == without_times(results_of(cast, stated))
    assert without_times(results) != without_times(results_of(params, given))
    assert (results["config"]["dtype"], results["self_check"]["tolerance"]) == (stated, TOLERANCE[stated])
    assert next(iter(results["checkpoint"]["dtypes"])) == stated
    texts = [("the sun is", " hot"), ("the sun is", " cold and small")]
    scores = [miron_jax.score(folder, None, texts, each, dtype=stated) for each in (params, cast)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"watch": True}, "watch and average are of the command"),
        ({"save_requests": True}, "save_requests writes files .*expected output beside it"),
        ({"save_byte_losses": True}, "save_byte_losses writes files"),
        ({"results_format": "lm_eval"}, "results_format writes files"),
        ({"stride": 4}, "--stride is of --tasks=text alone"),
        ({"checkpoint": "x"}, "--checkpoint names weights, expected a model's folder: an OwnModel has its params"),
        ({"steps": "5"}, "--steps selects checkpoints of a training run, expected a model's folder"),
        ({"params_key": "ema"}, "--params_key says where an Orbax .*expected a model's folder"),
    ],
)
def test_settings_that_would_not_run_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        miron_jax.Evaluator(bigrams(), tasks=["miron-gen/en"], **options)


def test_settings_of_checkpoints_are_not_of_given_params(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model")
    params = miron_jax.load_params(folder)
    evaluator = miron_jax.Evaluator(folder, tasks=["miron-gen/en"], **{**OPTIONS, "param_map": "gemma"})
    with pytest.raises(InputError, match=r"--param_map .*expected no params beside it"):
        evaluator.run(params)


@pytest.mark.slow
def test_results_state_the_tokenizer_and_the_dtypes_that_ran(tmp_path: Path) -> None:
    """Also of params that are one array, and of a tokenizer object."""
    make_tokenizer(tmp_path / "tokenizer")
    for given, dtype in (
        (str(tmp_path / "tokenizer"), "float32"),
        (load_tokenizer(str(tmp_path / "tokenizer")), "bfloat16"),
    ):
        model = bigrams(logits=lambda params, ids: params[ids].astype("float32"))
        evaluator = miron_jax.Evaluator(model, given, ["miron-gen/en"], **OPTIONS)
        results = evaluator.run(model.params.astype(dtype))
        stated = results["config"]["tokenizer"]
        digest = results["checkpoint"]["tokenizer"][:16]
        assert stated == (given if isinstance(given, str) else f"given {type(given).__name__} {digest}")
        assert results["checkpoint"]["dtypes"] == {dtype: model.params.size}
        assert results["checkpoint"]["parameters"] == model.params.size
        said = f"the model's own weights are {dtype}, and were not cast" in " ".join(notes_of(run_of(results)))
        assert said == (dtype != results["config"]["dtype"])


def test_params_of_another_model_are_named(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model")
    params = nnx.to_pure_dict(miron_jax.load_params(folder))
    params["layers"]["mixer"] = params["layers"].pop("mlp")
    with pytest.raises(InputError, match=r"they have layers/mixer/.* and lack layers/mlp/.*load_params gives"):
        miron_jax.Evaluator(folder, tasks=["miron-gen/en"], **OPTIONS).run(params)


@pytest.mark.slow
def test_score_by_hand(first: First) -> None:
    model = of_nnx(tokenizer=first.tokenizer)
    texts = [("the sun is", " hot"), ("the sun is", " cold and small"), ("a", " hill"), ("the sun is", " hot")]
    scores = miron_jax.score(model, None, texts)
    tokenizer = load_tokenizer(first.tokenizer)
    for (context, continuation), score in zip(texts, scores, strict=True):
        before = tokenizer(context)["input_ids"]
        after = tokenizer(continuation, add_special_tokens=False)["input_ids"]
        logits = logits_of(model, [*before, *after])[len(before) - 1 : -1]
        logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        expected = logprobs[np.arange(len(after)), after]
        ranks = (logits > logits[np.arange(len(after)), after][:, None]).sum(axis=1)
        np.testing.assert_allclose(score.token_logprobs, expected, atol=TOKEN)
        assert score.token_ids == tuple(after)
        assert score.token_ranks == tuple(ranks)
        assert score.greedy == (not ranks.any())
        assert score.logprob == pytest.approx(expected.sum(), abs=CONTINUATION)


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ([0, 5, 6, 2], [0, 5, 6]),  # <s> a b </s>: the EOS goes
        ([2, 5, 6], [2, 5, 6]),  # one special token, before the text alone
        ([5, 6], [5, 6]),
        ([2], [2]),  # an empty context has nothing else
    ],
)
def test_an_eos_after_the_context_is_not_before_the_continuation(context: list[int], expected: list[int]) -> None:
    class Tokenizer:
        eos_token_id = 2

        def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
            return {"input_ids": context if add_special_tokens else [7, 8]}

    architecture: Any = SimpleNamespace(tokenizer=Tokenizer(), config=SimpleNamespace(num_positions=None))
    requests = _requests(architecture, [("a", "b")])
    assert requests.tokens(0).tolist() == [*expected, 7, 8]
    assert requests.span_start.tolist() == [len(expected)]


def test_a_tokenizer_beside_the_model_precedes_the_models_own(tmp_path: Path) -> None:
    for name, vocabulary in (("own", 290), ("beside", 310)):
        make_tokenizer(tmp_path / name, vocabulary)
    model, config = of_nnx(tokenizer=str(tmp_path / "own")), RunConfig("own", ("none",))
    for given, expected in ((None, "own"), (str(tmp_path / "beside"), "beside")):
        tokenizer = architecture_with(model, files_of(model, config), given, config).tokenizer
        assert tokenizer.get_vocab() == load_tokenizer(str(tmp_path / expected)).get_vocab()


@pytest.mark.slow
def test_nan_is_counted_and_never_greedy(first: First) -> None:
    model = with_nan(of_nnx(tokenizer=first.tokenizer), 46)
    results = miron_jax.Evaluator(model, tasks=["miron-gen/en"], **OPTIONS).run()
    assert results["unanswered"] == results["tasks"]["miron-gen/en"]["skipped"] > 0
    tokenizer = load_tokenizer(first.tokenizer)
    [score] = miron_jax.score(model, None, [(tokenizer.decode([46]), "a")])
    assert np.isnan(score.logprob)
    assert not score.greedy


@pytest.mark.slow
def test_what_it_refuses(first: First, tmp_path: Path) -> None:
    model = of_nnx(tokenizer=first.tokenizer)
    refused: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
        (
            miron_jax.Evaluator,
            (model,),
            {"tasks": "core"},
            r"tasks is 'core', expected a list of names: tasks=\['core'\]",
        ),
        (
            miron_jax.Evaluator,
            (model,),
            {"row_axes": "data"},
            r"row_axes is 'data', expected a list of names: row_axes=",
        ),
        (miron_jax.Evaluator, (model,), {"every": "2"}, "every is '2', expected an integer above 0"),
        (miron_jax.Evaluator, (model,), {"subset": 0}, "subset is 0, expected an integer above 0"),
        (miron_jax.Evaluator, (model,), {"tasks": ["miron-gen"], "limits": 3}, "unexpected keyword argument 'limits'"),
        (miron_jax.Evaluator, (of_nnx(),), {"tasks": ["miron-gen"]}, "the OwnModel has no tokenizer"),
        (miron_jax.score, (model, None, [("a", "")]), {}, "text 0: its continuation '' has no token"),
        (
            miron_jax.score,
            (model, None, [("a" * 90, "b" * 15)]),
            {},
            "text 0 has 10[0-9] tokens, .* model has 96 places",
        ),
        (miron_jax.score, (model, None, ["ab"]), {}, "text 0 is 'ab', expected a pair"),
        (miron_jax.score, (model, model.params, [("a", "b")]), {}, "the tokenizer is a State, expected a transformers"),
    ]
    for call, arguments, options, words in refused:
        with pytest.raises(InputError, match=words):
            call(*arguments, **options)
    evaluator = miron_jax.Evaluator(model, tasks=["miron-gen/en"], output=tmp_path / "out", **OPTIONS)
    evaluator.run(step=3)
    for params, words in (
        (jax.tree.map(lambda x: x.astype("bfloat16"), model.params), r"norm/scale is bfloat16 \[24\] on|bfloat16"),
        (nnx.to_pure_dict(model.params), "another tree than the first ones"),
    ):
        with pytest.raises(InputError, match=words):
            evaluator.run(params)
    with pytest.raises(InputError, match="holds another run"):
        miron_jax.Evaluator(model, tasks=["miron-gen/en"], output=tmp_path / "out", **{**OPTIONS, "limit": 2})
    resumed = miron_jax.Evaluator(model, tasks=["miron-gen/en"], output=tmp_path / "out", **OPTIONS)
    resumed.run(step=7)
    top = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(top["steps"]) == ["3", "7"], "a training that goes on keeps its earlier steps"
    evaluator = miron_jax.Evaluator(model, tasks=["miron-gen/en"], row_axes=("data",), **OPTIONS)
    with pytest.raises(InputError, match=r"row_axes are .*expected axes of the weights' mesh: none"):
        evaluator.run(model.params)


ON_A_MESH = """
import json, sys
import miron_jax
import jax, numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from tests.evaluation.test_evaluator import OPTIONS, counted_compilations, without_times
from tests.support.kept_runs import same_results
from tests.support.own_models import of_nnx

def sharded(params, mesh):
    def spec(x):
        return P("data", "model") if x.ndim == 2 and not (x.shape[0] % 2 or x.shape[1] % 2) else P()
    return jax.tree.map(lambda x: jax.device_put(x, NamedSharding(mesh, spec(x))), params)

assert len(jax.devices()) == 4
tokenizer, expected = sys.argv[1], json.loads(sys.argv[2])
auto = Mesh(np.asarray(jax.devices()).reshape(2, 2), ("data", "model"))
explicit = jax.make_mesh((2, 2), ("data", "model"))
assert set(explicit.axis_types) == {AxisType.Explicit}
for mesh, axes in ((auto, ("data", "model")), (explicit, ("data",))):
    evaluator = miron_jax.Evaluator(of_nnx(params=None), tokenizer, ["miron-gen/en"], row_axes=axes, **OPTIONS)
    received = evaluator.run(sharded(of_nnx(0).params, mesh))
    other = sharded(of_nnx(1).params, mesh)
    with counted_compilations() as met:
        evaluator.run(other)
    assert met == [], (axes, len(met))
    same_results(received, expected)
    ran = {name: received["config"][name] for name in ("sharding", "mesh")}
    assert ran == {"sharding": "user", "mesh": [["data", 2], ["model", 2]]}, ran
    print(axes, received["speed"]["programs"])
one = miron_jax.Evaluator(of_nnx(params=None), tokenizer, ["miron-gen/en"], **OPTIONS).run(of_nnx(0).params)
assert (one["config"]["sharding"], one["config"]["mesh"]) == ("one", []), one["config"]
"""


@pytest.mark.slow
def test_weights_stay_on_their_mesh(first: First) -> None:
    """Four devices, in a process of its own: rows over one axis or both, explicit axes as jax.make_mesh has them."""
    ended = processes.run("-c", ON_A_MESH, first.tokenizer, json.dumps(first.results), devices=4, check=True)
    assert len(ended.stdout.splitlines()) == 2


def test_a_later_run_chooses_no_requests_and_scores_completions_by_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tokenizer(tmp_path)
    evaluator = miron_jax.Evaluator(bigrams(), str(tmp_path), ["miron-gen/en"], **OPTIONS)
    first = evaluator.run()
    calls: list[tuple[str, bool]] = []

    def record(of: type, name: str) -> None:
        method = getattr(of, name)

        def called(*arguments: Any) -> Any:
            calls.append((name, threading.current_thread() is threading.main_thread()))
            return method(*arguments)

        monkeypatch.setattr(of, name, called)

    record(CheckedRequests, "choose")
    record(PlainProgram, "compile")
    record(ClozeKind, "take_texts")
    later = evaluator.run()
    assert calls == [("take_texts", False)]
    assert without_times(later) == without_times(first)
    assert (first["self_check"]["requests"], later["self_check"]["requests"]) == (8, 2)
    assert evaluator.run()["self_check"]["requests"] == 2
