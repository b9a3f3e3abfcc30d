"""The lm-eval adapter as its users meet it: arguments, caches, the command, models of their own, devices, processes, the
journal that processes meet in."""

import json
import math
import socket
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, entry_points
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.support.needs import reason

pytest.importorskip("lm_eval", reason=reason("lm_eval"))
pytest.importorskip("torch", reason=reason("torch"))

from lm_eval.api.model import CachingLM
from lm_eval.tasks import TaskManager

import miron_jax.evaluation.session
import miron_jax.lm_eval
from miron_jax import InputError, OwnModel, load_params
from miron_jax.lm_eval import MironLM
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.decoder.decoder import abstract
from tests.support import processes
from tests.support.lm_eval_pair import TEXTS, asked, evaluate, simple_evaluate, values
from tests.support.tolerances import CONTINUATION, METRIC_RELATIVE, TOKEN

pytestmark = pytest.mark.slow

WITHOUT_DEFAULTS = (None, None, False, None)  # of TaskManager's parameters; the third is include_defaults
SHARED = ["own_choice", "own_text", "own_write"]  # a task of each kind of request
EVALUATES = """
import json, sys
import lm_eval.evaluator
lm_eval.evaluator.add_env_info = lambda storage: None
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from miron_jax.lm_eval import MironLM
lm = MironLM(sys.argv[1], **json.loads(sys.argv[2]))
tasks = TaskManager(include_path=sys.argv[3], include_defaults=False)
results = simple_evaluate(model=lm, tasks=sys.argv[4].split(","), task_manager=tasks, bootstrap_iters=0, limit=4)
print(json.dumps(results["results"]))
"""
ANSWERS = """
import json, sys
import jax
from miron_jax.lm_eval import MironLM
from tests.support.lm_eval_pair import asked
lm = MironLM(sys.argv[1])
scored, written = (list(map(tuple, json.loads(text))) for text in sys.argv[2:])
scored = lm.loglikelihood(asked("loglikelihood", scored))
written = lm.generate_until(asked("generate_until", written))
print(json.dumps([jax.device_count(), lm.world_size, lm.rank, scored, written]))
"""


@pytest.fixture
def imported() -> None:
    """Processes begin with lm-eval imported."""
    processes.preload("lm_eval.evaluator", "lm_eval.tasks", "lm_eval.models", "miron_jax.lm_eval.model")


def folder_of_tasks(tasks: Any) -> str:
    return str(Path(tasks.include_path).resolve())


def test_a_model_by_its_arguments_is_the_same(folder: Path, tasks: Any) -> None:
    """As lm-eval's command makes it: arguments are cast, and device and batch size always come."""
    miron_jax.lm_eval.register()
    options: dict[str, Any] = {"tasks": ["own_choice"], "task_manager": tasks, "bootstrap_iters": 0}
    made = simple_evaluate(
        model="miron_jax", model_args=f"pretrained={folder},max_length=64,add_bos_token=true", device="cuda:0",
        batch_size="auto:4", **options,
    )  # fmt: skip
    lm = MironLM.create_from_arg_string(f"pretrained={folder},max_length=64", {"batch_size": 1, "device": "cpu"})
    direct = evaluate(lm=lm, task_dict=tasks.load(["own_choice"]), bootstrap_iters=0)
    assert values(made) == values(direct)


def test_a_perplexity_that_overflows_is_infinite(capsys: pytest.CaptureFixture[str]) -> None:
    from lm_eval.api import metrics

    with miron_jax.lm_eval.infinite_perplexities():
        assert metrics.weighted_perplexity([(-1000.0, 1)]) == math.inf
        assert metrics.weighted_perplexity([(-2.0, 1)]) == math.exp(2)
    assert "a perplexity is infinite: exp of a loss of 1000.0 nats" in capsys.readouterr().err
    with pytest.raises(OverflowError):
        metrics.perplexity([-1000.0])


def test_nothing_that_overflows_escapes_and_nothing_stays_patched(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of perplexities of exp(360) = 1e156 and more the squares overflow."""
    from lm_eval.api import metrics
    from lm_eval.tasks.careqa import utils_perplexity

    monkeypatch.setenv("DISABLE_MULTIPROC", "1")
    before = {**vars(metrics)}, math.exp
    large, answer = [-360.0, -500.0, -400.0], {"answer": "two words"}

    def pooled() -> float:
        return metrics.pooled_sample_stderr([1e200, 1.0], [3, 3])

    with miron_jax.lm_eval.infinite_perplexities():
        from math import exp

        mean, stderr = metrics.pooled_sample_stderr, metrics.stderr_for_metric(metrics.perplexity, 10)
        assert stderr is not None
        assert math.isnan(stderr(large))
        assert math.isnan(pooled())
        assert metrics.mean_stderr([0.0, 1.0]) == 0.5
        assert metrics.perplexity(large) == pytest.approx(math.exp(420))
    said = capsys.readouterr().err
    assert said.count("miron-lm-eval: ") == said.count("miron-lm-eval: a standard error is no number") == 1
    with miron_jax.lm_eval.infinite_perplexities():
        assert utils_perplexity.process_results(answer, (-5000.0,))["word_perplexity"] == (-5000.0, 2)
    assert "exp of a loss of 2500.0 nats" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError), miron_jax.lm_eval.infinite_perplexities():
        metrics.mean_stderr([1.0])
    with miron_jax.lm_eval.infinite_perplexities():
        assert math.isnan(metrics.mean_stderr([math.nan, 1.0]))
    assert capsys.readouterr().err == "", "no number of the model's, not an overflow"
    assert ({**vars(metrics)}, math.exp) == before
    calls: tuple[Callable[[], object], ...] = (
        lambda: exp(1000.0), lambda: mean([1e200, 1.0], [3, 3]), pooled,
        lambda: utils_perplexity.process_results(answer, (-5000.0,)),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(OverflowError):
            call()


def test_an_untrained_model_keeps_its_other_metrics_from_python(
    folder: Path, tasks: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = MironLM(str(folder), max_length=64)
    scored = lm._loglikelihood_tokens
    monkeypatch.setattr(lm, "_loglikelihood_tokens", lambda asked: [(1e4 * p, g) for p, g in scored(asked)])
    options: dict[str, Any] = {"tasks": ["own_text", "own_choice"], "task_manager": tasks, "bootstrap_iters": 10}
    results = miron_jax.lm_eval.simple_evaluate(model=lm, **options)["results"]
    assert results["own_text"]["word_perplexity,none"] == math.inf
    assert 1e3 < results["own_text"]["bits_per_byte,none"] < math.inf
    assert 0 <= results["own_choice"]["acc,none"] <= 1
    assert capsys.readouterr().err.count("a perplexity is infinite: exp of a loss of") == 1
    with pytest.raises(OverflowError):
        simple_evaluate(model=lm, **options)


def test_wrong_arguments_are_one_sentence(folder_of: Callable[[str], Path], folder: Path, tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"dtypes": "float32"}, "dtypes is no option, expected dtype?"),
        ({"parallelize": True}, "parallelize is no option"),
        ({"step": 3}, "step is no option, expected steps?"),
        ({"dtype": "float16"}, "--dtype is 'float16'"),
        ({"max_length": 10**6}, "max_length is 1000000, expected 1 to 64, the model's learned positions"),
        ({"steps": 100}, "--steps=100"),
        ({"prefix_token_id": "first"}, "prefix_token_id is 'first', expected a whole number, 0 or more"),
        ({"token_budget": 0}, "token_budget is 0, expected a whole number, 1 or more"),
        ({"add_bos_token": "perhaps"}, "add_bos_token is 'perhaps', expected true or false"),
        ({"watch": True}, "watch is no option"),
        ({"coordinator": "127.0.0.1:1"}, "coordinator, num_processes and process_id go together"),
        ({"distributed": "perhaps"}, "distributed is 'perhaps', expected true or false"),
        ({"distributed": True}, "give journal=FOLDER"),
        (
            {"coordinator": "127.0.0.1:1", "num_processes": 2, "process_id": 2, "journal": str(tmp_path)},
            "process_id is 2, expected 0 to 1",
        ),
        ({"distributed": True, "peer_timeout": 1}, "peer_timeout is 1, expected a whole number, 5 or more"),
    ]
    for options, sentence in wrong:
        with pytest.raises(InputError, match=sentence):
            MironLM(str(folder_of("gpt2") if "max_length" in options else folder), **options)
    with pytest.raises(InputError, match=r"no such folder|there is no"):
        MironLM(str(folder / "absent"))
    given: dict[str, Any] = {"max_length": "32", "steps": None, "dtype": None, "seed": None, "trust_remote_code": True}
    assert MironLM(str(folder), token_budget="512", **given).max_length == 32


def test_a_cache_must_name_its_model(
    lm: MironLM, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=f"name a file with this model's fingerprint in its name, {lm.fingerprint}"):
        CachingLM(lm, str(tmp_path / "cache.db"))
    assert MironLM(str(folder), max_length=32).fingerprint != lm.fingerprint
    cached = CachingLM(lm, str(tmp_path / f"cache_{lm.fingerprint}.db"))
    requests = asked("loglikelihood", [("the sun", " is hot")])
    first = cached.loglikelihood(requests)
    monkeypatch.setattr(lm.session, "scores", None)  # nothing may be scored again
    assert cached.loglikelihood(requests) == first
    lm.set_cache_hook(type(lm.cache_hook)(None))  # this model serves other tests


def test_own_models_and_given_weights(lm: MironLM, folder: Path) -> None:
    requests = asked("loglikelihood", [("the sun", " is hot"), ("", "rain")])
    expected = lm.loglikelihood(requests)
    params, config = load_params(folder), from_hf_config(folder)
    assert MironLM(str(folder), params=params).loglikelihood(requests) == expected
    graphdef = abstract(config, jnp.float32)[0]
    model = OwnModel(
        vocab_size=config.vocab_size,
        hidden=lambda state, *batch: nnx.merge(graphdef, state)(*batch),
        head=lambda state: nnx.merge(graphdef, state).head(),
        params=params,
    )
    received = MironLM(model, str(folder)).loglikelihood(requests)
    np.testing.assert_allclose([a for a, _ in received], [a for a, _ in expected], rtol=0, atol=CONTINUATION)
    changed = jax.tree.map(lambda x: jax.device_put(np.asarray(x) * np.float32(0.5)), params)
    assert MironLM(str(folder), params=changed).loglikelihood(requests) != expected


@pytest.mark.usefixtures("imported")
def test_the_command(
    folder: Path, tasks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run, its files, and a wrong option that ends in one sentence; without lm-eval's ten thousand tasks."""
    flags = ["--model", "miron_jax", "--tasks", "own_choice", "--include_path", folder_of_tasks(tasks)]
    flags += ["--output_path", str(tmp_path), "--log_samples", "--limit", "4", "--model_args"]
    monkeypatch.setattr(TaskManager.__init__, "__defaults__", WITHOUT_DEFAULTS)
    code = f"""
import lm_eval.evaluator, lm_eval.tasks
lm_eval.evaluator.add_env_info = lambda storage: None
lm_eval.tasks.TaskManager.__init__.__defaults__ = {WITHOUT_DEFAULTS}
from miron_jax.lm_eval import main
main()
"""
    ran = processes.run("-c", code, *flags, f"pretrained={folder}", devices=1, check=True)
    assert "own_choice" in ran.stdout
    [results] = tmp_path.rglob("results_*.json")
    assert json.loads(results.read_text())["results"]["own_choice"]["acc,none"] >= 0
    assert len(list(tmp_path.rglob("samples_own_choice_*.jsonl"))) == 1
    monkeypatch.setattr("sys.argv", ["miron-lm-eval", *flags, f"pretrained={folder},dtyp=float32"])
    with pytest.raises(SystemExit) as stopped:
        miron_jax.lm_eval.main()
    assert stopped.value.code == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("miron-lm-eval: model_args: dtyp is no option, expected dtype?")


@pytest.mark.parametrize(
    ("has", "sentence"),
    [(None, "is not installed"), ("0.4.9", "lm-eval is 0.4.9"), ("0.5.0.dev1", "lm-eval is 0.5.0.dev1")],
)
def test_lm_eval_that_is_absent_or_another_is_one_sentence(
    has: str | None, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        if has is None:
            raise PackageNotFoundError(name)
        return has

    monkeypatch.setattr(miron_jax.lm_eval, "version", version)
    with pytest.raises(SystemExit) as ended:
        miron_jax.lm_eval.main()
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert 'pip install "miron-jax[lm-eval]"' in err


def test_versions_that_look_for_entry_points_find_it() -> None:
    [entry] = [each for each in entry_points(group="lm_eval.models") if each.name == "miron_jax"]
    assert entry.load() is MironLM


@pytest.mark.usefixtures("imported")
def test_two_devices_are_one(lm: MironLM, folder: Path) -> None:
    scored = [("the sun is" + " hot" * i, " and cold") for i in range(9)]
    written = [("the sun is" + " hot" * i, {"max_gen_toks": 5}) for i in range(5)]
    ran = processes.run("-c", ANSWERS, str(folder), json.dumps(scored), json.dumps(written), devices=2, check=True)
    devices, world_size, rank, received, texts = json.loads(ran.stdout.splitlines()[-1])
    assert (devices, world_size, rank) == (2, 1, 0)
    for (a, greedy), (b, is_greedy) in zip(received, lm.loglikelihood(asked("loglikelihood", scored)), strict=True):
        assert abs(a - b) <= TOKEN
        assert greedy == is_greedy
    assert texts == lm.generate_until(asked("generate_until", written))


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize(
    "more",
    [pytest.param({}, marks=pytest.mark.long), {"sharding": "mesh", "mesh": "fsdp=2"}],
    ids=["a copy each", "one mesh"],
)
def test_two_processes_are_one_to_lm_eval(
    lm: MironLM, folder: Path, tasks: Any, tmp_path: Path, more: dict[str, Any]
) -> None:
    """The same metrics as of one process; only the first prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    together = {"journal": str(tmp_path), "coordinator": f"127.0.0.1:{port}", "num_processes": 2, **more}
    started = [
        processes.start(
            "-c", EVALUATES, str(folder), json.dumps({**together, "process_id": index}), folder_of_tasks(tasks),
            ",".join(SHARED), devices=1,
        )
        for index in range(2)
    ]  # fmt: skip
    (first, err), (second, _) = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0, 0], err[-3000:]
    assert "own_" not in second, "gloo may greet there"
    received = {"results": json.loads(first.splitlines()[-1])}
    expected = simple_evaluate(model=lm, tasks=SHARED, task_manager=tasks, bootstrap_iters=0, limit=4)
    assert values(received) == pytest.approx(values(expected), rel=METRIC_RELATIVE)
    assert not list((tmp_path / "calls").glob("*")), "what the processes handed over is taken away"
    written = {path.name.split("-")[0] for path in (tmp_path / "journal").rglob("*.npz")}
    assert written == ({"0"} if more else {"0", "1"}), "each computes its share, and the first writes for a mesh"
    assert miron_jax.evaluation.session.CALLS == "calls"


def test_what_the_journal_keeps_is_not_computed_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = asked("loglikelihood", [("the sun is", f" {word}") for word in ("hot", "cold", "green")])
    texts = asked("generate_until", [(text, {"until": ["\n"], "max_gen_toks": 4}) for text in TEXTS[:3]])
    first = MironLM(str(folder), journal=str(tmp_path))
    answers, written = first.loglikelihood(requests), first.generate_until(texts)

    def computed_again(*_: Any, **__: Any) -> None:
        raise AssertionError("computed again")

    again = MironLM(str(folder), journal=str(tmp_path))
    monkeypatch.setattr(again.session.forward, "run", lambda plan, more, batches: [computed_again() for _ in batches])
    monkeypatch.setattr(again.session.generator, "_run_slots", computed_again)
    received = again.loglikelihood(requests)
    assert [greedy for _, greedy in received] == [greedy for _, greedy in answers]
    assert [value for value, _ in received] == pytest.approx([value for value, _ in answers], abs=TOKEN)
    assert again.generate_until(texts) == written
    other = MironLM(str(folder), journal=str(tmp_path), dtype="bfloat16")
    assert other.session._journal is not None
    assert other.session._journal.num_known == 0, "other arithmetic, another key"
