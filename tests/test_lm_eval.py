"""lm-eval on this engine: the same answers as its Hugging Face backend (HFLM), request by request and task by task."""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, entry_points
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

pytest.importorskip("lm_eval", reason="needs lm-eval, which the extra lm-eval installs")
pytest.importorskip("torch", reason="needs torch, with which HFLM computes")

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.api.model import CacheHook, CachingLM
from lm_eval.models import huggingface
from lm_eval.tasks import TaskManager

import miron_jax.lm_eval
from miron_jax import InputError, OwnModel, load_params
from miron_jax.lm_eval import MironLM
from miron_jax.model.decoder import abstract
from miron_jax.model.hf_config import from_hf_config
from tests.tolerances import CONTINUATION, METRIC, METRIC_RELATIVE, TOKEN
from tests.torch_folders import FOLDERS, torch_folder

# lm-eval's decorators hide what their functions take and give.
hflm: Any = huggingface.HFLM
simple_evaluate: Any = lm_eval.simple_evaluate
evaluate: Any = lm_eval.evaluate

TEXTS = (
    "the sun is hot and the rain is cold", " on a green hill", "where the small hill falls\n\nand the sun",
    "é over ñ ☀ hill", "hot", " ", "the  ", "a\tb\n", "rain rain rain rain", "",
)  # fmt: skip


@pytest.fixture(scope="module", params=FOLDERS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[MironLM, Any]:
    """The same weights here and in HFLM.

    Its `logits_cache` answers requests whose tokens are equal as one, wherever their continuations begin: "the  " + "hot"
    and "the " + " hot" then get one sum, of two tokens and of one.
    """
    folder = torch_folder(request.param, tmp_path_factory.mktemp(request.param))
    theirs = hflm(pretrained=str(folder), dtype="float32", device="cpu", batch_size=3, logits_cache=False)
    return MironLM(str(folder)), theirs


def asked(kind: Any, arguments: list[tuple[Any, ...]]) -> list[Any]:
    return [Instance(kind, {}, each, i) for i, each in enumerate(arguments)]


def assert_same(ours: list[tuple[float, bool]], theirs: list[tuple[float, bool]], tokens: list[int]) -> None:
    for (logprob, greedy), (expected, is_greedy), count in zip(ours, theirs, tokens, strict=True):
        assert isinstance(logprob, float)
        assert type(greedy) is bool
        assert abs(logprob - expected) <= TOKEN * max(count, 1)
        assert greedy == is_greedy


def test_every_pair_of_texts(pair: tuple[MironLM, Any]) -> None:
    """Trailing spaces, BOS in the text, letters across tokens, duplicates; contexts longer than the window."""
    ours, theirs = pair
    bos = theirs.tokenizer.decode(theirs.prefix_token_id)
    contexts = [*TEXTS, f"{bos}the sun", " ".join(TEXTS * 8)]
    pairs = [(context, rest) for context in contexts for rest in TEXTS if rest.strip()]
    pairs += pairs[:3]
    requests = asked("loglikelihood", pairs)
    kept = [i for i, (context, rest) in enumerate(pairs) if theirs_can(theirs, context, rest)]
    assert len(kept) > 0.8 * len(pairs)
    found = ours.loglikelihood(requests)
    expected = theirs.loglikelihood([requests[i] for i in kept], disable_tqdm=True)
    assert_same([found[i] for i in kept], expected, [len(pairs[i][1]) + 4 for i in kept])
    assert all(np.isfinite(logprob) for logprob, _ in found)


def theirs_can(model: Any, context: str, rest: str) -> bool:
    """HFLM fails where the context's tokens leave none for the continuation, or where there is no context token."""
    if context == "":
        return True
    before, after = model._encode_pair(context, rest)
    return bool(before and after)


def test_tokens_are_theirs(pair: tuple[MironLM, Any]) -> None:
    ours, theirs = pair
    bos = theirs.tokenizer.decode(theirs.prefix_token_id)
    assert (ours.max_length, ours.prefix_token_id) == (theirs.max_length, theirs.prefix_token_id)
    for text in (*TEXTS, f"{bos}hot", f"{bos} hot", f"hot {bos}"):
        for special in (None, True, False):
            assert ours.tok_encode(text, special) == theirs.tok_encode(text, special)
        assert ours.tok_encode(text)[:2] != [ours.prefix_token_id] * 2, "a second BOS"


def test_documents_by_windows(pair: tuple[MironLM, Any]) -> None:
    """Shorter than the window, exactly as long, one longer, several windows, and empty."""
    ours, theirs = pair
    window = ours.max_length
    text = " ".join(TEXTS[:5])
    ids = theirs.tok_encode(text * 9, add_special_tokens=False)
    texts = [theirs.tok_decode(ids[:length]) for length in (window - 1, window, window + 1, 2 * window + 3, 3)]
    texts.append("")
    found = ours.loglikelihood_rolling(asked("loglikelihood_rolling", [(each,) for each in texts]))
    expected = theirs.loglikelihood_rolling(asked("loglikelihood_rolling", [(each,) for each in texts]), True)
    for a, b, each in zip(found, expected, texts, strict=True):
        assert isinstance(a, float)
        assert abs(a - b) <= TOKEN * (len(each) + 1)


def test_completions(pair: tuple[MironLM, Any]) -> None:
    ours, theirs = pair
    options: list[dict[str, Any]] = [
        {"until": ["\n\n"], "max_gen_toks": 12},
        {"until": "hill", "do_sample": False, "max_new_tokens": 12},
        {"until": [], "max_gen_toks": 7, "temperature": 0.0},
        {"until": [" "], "max_gen_toks": 7},
        {"max_gen_toks": 9, "num_beams": 1},
    ]
    contexts = ["the sun is", "where the small hill", " ".join(TEXTS * 8), "hot"]
    requests = asked("generate_until", [(context, each) for each in options for context in contexts])
    found = ours.generate_until(requests)
    expected = theirs.generate_until(requests, disable_tqdm=True)
    assert found == expected


def test_edges(pair: tuple[MironLM, Any]) -> None:
    ours, _ = pair
    [empty, spaces, alone] = ours.loglikelihood(asked("loglikelihood", [("hot", ""), ("hot", "  "), ("", "")]))
    assert empty == alone == (0.0, True)
    assert spaces[0] < 0
    assert ours.loglikelihood([]) == ours.loglikelihood_rolling([]) == ours.generate_until([]) == []
    long = "hot " * (ours.max_length + 5)
    with pytest.raises(InputError, match=r"a continuation has .* tokens, but the model takes"):
        ours.loglikelihood(asked("loglikelihood", [("the", long)]))
    assert ours.generate_until(asked("generate_until", [("hot", {"max_gen_toks": 0})])) == [""]
    [stop] = ours.generate_until(asked("generate_until", [("hot", {"until": "", "max_gen_toks": 4})]))
    [none] = ours.generate_until(asked("generate_until", [("hot", {"until": [], "max_gen_toks": 4})]))
    assert stop == none
    for wrong, sentence in (
        ({"max_gen_toks": ours.max_length}, "ask for fewer"),
        ({"do_sample": True, "temperature": 0.0}, "draws nothing"),
        ({"repetition_penalty": 1.2}, "repetition_penalty=1.2 is not done here"),
        ({"num_beams": 4}, "num_beams=4 is not done here"),
        ({"until": 3}, "until is"),
    ):
        with pytest.raises(InputError, match=sentence):
            ours.generate_until(asked("generate_until", [("hot", wrong)]))


def test_repeats_draw_anew_and_can_be_drawn_again(pair: tuple[MironLM, Any]) -> None:
    ours, _ = pair
    how = {"do_sample": True, "temperature": 2.0, "max_gen_toks": 12, "until": []}
    [request] = asked("generate_until", [("the sun", how)])
    first = ours.generate_until([request] * 4)
    assert len(set(first)) > 1
    assert ours.generate_until([request] * 4) == first


def write_task(folder: Path, name: str, output_type: str, **more: Any) -> None:
    rows = [
        {
            "question": f"the sun is {word}", "choices": ["hot", "cold", "green hill", "a rain"], "gold": i % 4,
            "text": f"rain falls on the {word} hill where the sun is {word}", "answer": word,
        }
        for i, word in enumerate(["hot", "cold", "small", "green", "on a hill", "rain", "where"] * 2)
    ]  # fmt: skip
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps({**row, "id": i}) + "\n" for i, row in enumerate(rows)))
    task = {
        "task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data), "train": str(data)}},
        "test_split": "test", "fewshot_split": "train", "output_type": output_type, "doc_to_text": "{{question}} and",
        "doc_to_target": "{{answer}}", **more,
    }  # fmt: skip
    (folder / f"{name}.yaml").write_text(json.dumps(task))  # YAML holds JSON


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> TaskManager:
    """One task of each output type, in local files."""
    folder = tmp_path_factory.mktemp("tasks")
    choices = {"doc_to_choice": "{{choices}}", "doc_to_target": "gold"}
    metrics = [{"metric": each} for each in ("acc", "acc_norm", "acc_mutual_info")]
    write_task(folder, "own_choice", "multiple_choice", **choices, metric_list=metrics)
    write_task(folder, "own_shots", "multiple_choice", **choices, num_fewshot=5)
    write_task(folder, "own_next", "loglikelihood", metric_list=[{"metric": "perplexity"}, {"metric": "acc"}])
    rolling = [{"metric": each} for each in ("word_perplexity", "byte_perplexity", "bits_per_byte")]
    write_task(
        folder, "own_text", "loglikelihood_rolling", doc_to_text="", doc_to_target="{{text}}", metric_list=rolling
    )
    generation = {"until": ["\n"], "max_gen_toks": 6, "do_sample": False}
    exact = [{"metric": "exact_match"}]
    write_task(folder, "own_write", "generate_until", generation_kwargs=generation, metric_list=exact, repeats=2)
    return TaskManager(include_path=str(folder), include_defaults=False)


NAMES = ["own_choice", "own_shots", "own_next", "own_text", "own_write"]


def values(results: Any) -> dict[str, float]:
    return {
        f"{task} {metric}": value
        for task, metrics in results["results"].items()
        for metric, value in metrics.items()
        if isinstance(value, float) and "stderr" not in metric
    }


def test_tasks_of_every_output_type(pair: tuple[MironLM, Any], tasks: TaskManager) -> None:
    ours, theirs = pair
    options: dict[str, Any] = {"tasks": NAMES, "task_manager": tasks, "bootstrap_iters": 0, "log_samples": True}
    found, expected = simple_evaluate(model=ours, **options), simple_evaluate(model=theirs, **options)
    assert values(found) == pytest.approx(values(expected), rel=METRIC_RELATIVE, abs=METRIC)
    for name in NAMES:
        for a, b in zip(found["samples"][name], expected["samples"][name], strict=True):
            assert (a["doc_id"], a["prompt_hash"], a["target_hash"]) == (
                b["doc_id"],
                b["prompt_hash"],
                b["target_hash"],
            )
            if name == "own_write":
                assert a["resps"] == b["resps"]
    assert found["config"]["model_dtype"] == "float32"


def test_limits_and_samples(pair: tuple[MironLM, Any], tasks: TaskManager) -> None:
    ours, _ = pair
    options: dict[str, Any] = {"task_manager": tasks, "bootstrap_iters": 0, "log_samples": True}
    half = simple_evaluate(model=ours, tasks=["own_choice"], limit=0.5, **options)
    assert len(half["samples"]["own_choice"]) == 7
    chosen = simple_evaluate(model=ours, tasks=["own_choice"], samples={"own_choice": [3, 9]}, **options)
    assert [sample["doc_id"] for sample in chosen["samples"]["own_choice"]] == [3, 9]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_folder("llama", tmp_path_factory.mktemp("llama"))


def test_a_model_by_its_arguments_is_the_same(folder: Path, tasks: TaskManager) -> None:
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


def test_wrong_arguments_are_one_sentence(folder: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"dtypes": "float32"}, "dtypes is no option, expected dtype?"),
        ({"parallelize": True}, "parallelize is no option"),
        ({"step": 3}, "step is no option, expected steps?"),
        ({"dtype": "float16"}, "--dtype is 'float16'"),
        ({"max_length": 10**6}, "max_length is 1000000, expected 1 to 64, the model's learned positions"),
        ({"steps": 100}, "--steps=100"),
    ]
    for options, sentence in wrong:
        with pytest.raises(InputError, match=sentence):
            MironLM(str(torch_folder("gpt2", folder.parent / "gpt2") if "max_length" in options else folder), **options)
    with pytest.raises(InputError, match=r"no such folder|there is no"):
        MironLM(str(folder / "absent"))


def test_no_chat_template_is_one_sentence(folder: Path, tasks: TaskManager) -> None:
    with pytest.raises(InputError, match="has no chat template"):
        simple_evaluate(
            model=MironLM(str(folder)), tasks=["own_choice"], task_manager=tasks, apply_chat_template=True, limit=1
        )


def test_a_cache_must_name_its_weights(folder: Path, tmp_path: Path) -> None:
    lm = MironLM(str(folder))
    with pytest.raises(InputError, match=f"name a file with these weights' fingerprint in its name, {lm.fingerprint}"):
        CachingLM(lm, str(tmp_path / "cache.db"))
    cached = CachingLM(lm, str(tmp_path / f"cache_{lm.fingerprint}.db"))
    requests = asked("loglikelihood", [("the sun", " is hot")])
    assert cached.loglikelihood(requests) == cached.loglikelihood(requests)
    lm.set_cache_hook(CacheHook(None))


def test_several_devices_are_one(folder: Path) -> None:
    """Two devices give what one gives."""
    code = f"""
import json
from lm_eval.api.instance import Instance
from miron_jax.lm_eval import MironLM
import jax
lm = MironLM({str(folder)!r})
asked = [Instance("loglikelihood", {{}}, ("the sun is" + " hot" * i, " and cold"), i) for i in range(9)]
texts = [Instance("generate_until", {{}}, ("the sun is" + " hot" * i, {{"max_gen_toks": 5}}), i) for i in range(5)]
print(json.dumps([jax.device_count(), lm.world_size, lm.rank, lm.loglikelihood(asked), lm.generate_until(texts)]))
"""
    answers = {}
    for devices in (1, 2):
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        environment = {**os.environ, "XLA_FLAGS": flags}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        answers[devices] = json.loads(done.stdout.splitlines()[-1])
        assert answers[devices][:3] == [devices, 1, 0]
    for (a, greedy), (b, is_greedy) in zip(answers[1][3], answers[2][3], strict=True):
        assert abs(a - b) <= TOKEN
        assert greedy == is_greedy
    assert answers[1][4] == answers[2][4]


def test_the_command(folder: Path, tasks: TaskManager, tmp_path: Path) -> None:
    """As a user calls it: a run, its files, and a wrong option that ends in one sentence."""
    include = str(Path(tasks.include_path).resolve())  # pyright: ignore[reportArgumentType]
    command = [sys.executable, "-c", "from miron_jax.lm_eval import main; main()"]
    flags = ["--model", "miron_jax", "--tasks", "own_choice", "--include_path", include, "--output_path", str(tmp_path)]
    flags += ["--log_samples", "--limit", "4"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}

    def run(arguments: str) -> subprocess.CompletedProcess[str]:
        whole = [*command, *flags, "--model_args", arguments]
        return subprocess.run(whole, env=environment, capture_output=True, text=True, check=False)

    done = run(f"pretrained={folder}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "own_choice" in done.stdout
    [results] = tmp_path.rglob("results_*.json")
    assert json.loads(results.read_text())["results"]["own_choice"]["acc,none"] >= 0
    assert len(list(tmp_path.rglob("samples_own_choice_*.jsonl"))) == 1
    wrong = run(f"pretrained={folder},dtyp=float32")
    assert wrong.returncode == 2
    assert (
        wrong.stderr.strip()
        .splitlines()[-1]
        .startswith("miron-lm-eval: model_args: dtyp is no option, expected dtype?")
    )


def test_own_models_and_given_weights(folder: Path) -> None:
    requests = asked("loglikelihood", [("the sun", " is hot"), ("", "rain")])
    expected = MironLM(str(folder)).loglikelihood(requests)
    params, config = load_params(folder), from_hf_config(folder)
    assert MironLM(str(folder), params=params).loglikelihood(requests) == expected
    graphdef = abstract(config, jnp.float32)[0]
    own = OwnModel(
        vocab_size=config.vocab_size,
        hidden=lambda state, *batch: nnx.merge(graphdef, state)(*batch),
        head=lambda state: nnx.merge(graphdef, state).head(),
        params=params,
    )
    found = MironLM(own, str(folder)).loglikelihood(requests)
    np.testing.assert_allclose([a for a, _ in found], [a for a, _ in expected], rtol=0, atol=CONTINUATION)
    changed = jax.tree.map(lambda x: x * 0.5, params)
    assert MironLM(str(folder), params=changed).loglikelihood(requests) != expected


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
    told = capsys.readouterr().err
    assert sentence in told
    assert 'pip install "miron-jax[lm-eval]"' in told


def test_versions_that_look_for_entry_points_find_it() -> None:
    [found] = [each for each in entry_points(group="lm_eval.models") if each.name == "miron_jax"]
    assert found.load() is MironLM
