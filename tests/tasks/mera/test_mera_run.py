"""MERA from records to submission on a tiny model: eval reports the metrics that the site computes from its answers."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState, read_examples
from miron_jax.definitions.records import Problem
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject
from miron_jax.inputs import find_inputs
from miron_jax.prompting.prompts import Prompt
from miron_jax.report.output import write_results
from miron_jax.run import evaluate
from miron_jax.runtime.sandbox import Sandbox
from miron_jax.task_kinds.generation import GenerationScores
from miron_jax.task_kinds.interface import Source
from miron_jax.task_kinds.programs import Judge
from miron_jax.tasks.mera.metrics import grade_norm, macro_f1, matthews
from miron_jax.tasks.mera.scoring import score_submission
from miron_jax.tasks.mera.site import check, export, read_records
from miron_jax.tasks.mera.submission import read_submission
from miron_jax.tasks.mera.suite import SUITE_NAME, V1
from miron_jax.tasks.mera.table import Version, data_sets
from tests.support.mera_records import write_mera
from tests.support.tiny_model import make_model

pytestmark = pytest.mark.slow

SITE = {"accuracy": "acc", "f1_macro": "f1_macro", "em": "em", "f1": "f1", "grade_norm": "grade_norm"} | {
    f"pass_at_{k}": f"pass@{k}" for k in (1, 5, 10)
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("mera") / "model")


def run(model: Path, folder: Path, version: Version, **settings: Any) -> Path:
    """The results folder of a run on the records in `folder`."""
    suite, output = SUITE_NAME[version], folder.parent / f"{folder.name}-out"
    paths = {
        "data_dir": ((suite, str(folder)),),
        "output": str(output),
        "allow_code_execution": True,
        "allow_unsandboxed_code": True,
    }
    config = RunConfig(str(model), (suite,), **paths, **settings)
    outcome = evaluate(config, find_inputs(config))
    write_results(config, outcome, 1.0, None)
    return output


@pytest.mark.parametrize("version", [pytest.param("v1", marks=pytest.mark.long), "v1.2"])
def test_a_run_has_the_sites_metrics_of_its_submission(version: Version, model: Path, tmp_path: Path) -> None:
    folder = write_mera(tmp_path / "data", version, 5)
    output = run(model, folder, version)
    path = tmp_path / "out.zip"
    exported = export(output, path, version)
    with zipfile.ZipFile(path) as archive:
        assert ("logs_public.zip" in archive.namelist()) == (version == "v1.2")
    records = read_records(folder, version)
    submission = read_submission(path, version, {name: list(by_key) for name, by_key in records.items()})
    assert list(submission.faults) == exported.absent
    assert {fault.name for fault in submission.faults.values()} <= {"no_task"}
    site = score_submission(submission.answers, records, version)
    tasks = json.loads((output / "results.json").read_text())["tasks"]
    compared = 0
    for dataset in data_sets(version):
        if dataset.name not in site:
            continue
        task = tasks[f"{SUITE_NAME[version]}/{dataset.config}"]
        metrics = {SITE[name]: entry["value"] for name, entry in task["metrics"].items() if name in SITE}
        metrics |= {name: entry["value"] for name, entry in task["metrics"].items() if "." in name}
        if dataset.kind == "program":
            metrics.pop("acc")  # pass@1 again
        metrics |= {f"acc.{name}": group["metrics"]["accuracy"]["value"] for name, group in task["groups"].items()}
        assert metrics == pytest.approx(site[dataset.name]), dataset.name
        compared += len(metrics)
    assert compared > 30


def test_closed_gold_is_never_zero(model: Path, tmp_path: Path) -> None:
    folder = write_mera(tmp_path / "data", "v1", 3, open_gold=False)
    output = run(model, folder, "v1")
    results = json.loads((output / "results.json").read_text())
    for dataset in data_sets("v1"):
        task = results["tasks"].get(f"mera-v1/{dataset.config}")
        if task is None or (dataset.v1 and dataset.v1.is_open):
            continue
        assert (task["n"], task["skipped"]) == (0, 3)
        assert all(entry["value"] is None for entry in task["metrics"].values())
        samples = output / "samples" / "mera-v1" / f"{dataset.config}.jsonl"
        assert "not published" in json.loads(samples.read_text().splitlines()[0])["reason"]
    composite = results["suites"]["mera-v1"]["composites"]["total_score"]
    assert composite["value"] is None
    assert len(composite["missing"]) == 17
    export(output, tmp_path / "out.zip", "v1")  # its answers are there all the same


def test_ethics_without_labels_correlates_with_nothing(model: Path, tmp_path: Path) -> None:
    """ruEthics has no right choice, so its records are scored without labels; a missing label is not 0."""
    folder = write_mera(tmp_path / "data", "v1", 3)
    path = folder / "ruethics" / "test.jsonl"
    records = [{**json.loads(line), "outputs": ""} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    output = run(model, folder, "v1", limit=3)
    metrics = json.loads((output / "results.json").read_text())["tasks"]["mera-v1/ruethics"]["metrics"]
    assert [name for name, entry in metrics.items() if entry["value"] is not None] == ["answered_last"]


def test_ties_follow_the_rule_of_v1(tmp_path: Path) -> None:
    from miron_jax.metrics.choices import LAST, MEAN, SUM, score_choices

    equal = [np.array([-1.0], np.float32), np.array([-1.0], np.float32)]
    assert score_choices(equal, (" 1", " 2"), 0, SUM).prediction == 0
    assert score_choices(equal, (" 1", " 2"), 0, SUM, LAST).prediction == 1
    # The sum is not normalized: two tokens of -0.7 lose against one of -1.
    longer = [np.array([-0.7, -0.7], np.float32), np.array([-1.0], np.float32)]
    assert score_choices(longer, ("a", "b"), None, SUM).prediction == 1
    assert score_choices(longer, ("a", "b"), None, MEAN).prediction == 0


def test_export_needs_a_complete_run_of_the_suite(model: Path, tmp_path: Path) -> None:
    folder = write_mera(tmp_path / "data", "v1", 3)
    output = run(model, folder, "v1", limit=2)
    with pytest.raises(InputError, match=r"scored with --limit=2, expected every record"):
        export(output, tmp_path / "out.zip", "v1")
    with pytest.raises(InputError, match=r"no task of mera-v1\.2 there"):
        export(output, tmp_path / "out.zip", "v1.2")
    with pytest.raises(InputError, match=r"none/results\.json cannot be read"):
        export(tmp_path / "none", tmp_path / "out.zip", "v1")
    assert not (tmp_path / "out.zip").exists()


def test_the_published_zip_has_no_faults_without_records(shared_data: Path) -> None:
    checked = check(shared_data / "mera" / "golden_submission" / "sample_submission.zip", "v1", None)
    assert checked.faults == []
    assert "cannot be scored here" in checked.rows[0][3]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        # Labels a, b: a has tp 2, fp 1, fn 0 -> 4/5; b has tp 1, fp 0, fn 1 -> 2/3; c is nowhere.
        (lambda w: macro_f1(["a", "a", "b", "a"], ["a", "a", "b", "b"], w), (4 / 5 + 2 / 3) / 2),
        # tp 2, tn 1, fp 1, fn 0: (2 - 0) / sqrt(3 * 2 * 2 * 1).
        (lambda w: matthews(np.array([1, 1, 0, 1], bool), np.array([1, 1, 0, 0], bool), w), 2 / 12**0.5),
        (lambda w: matthews(np.array([1, 1, 1, 1], bool), np.array([1, 1, 0, 0], bool), w), 0.0),
        (lambda w: grade_norm([], np.ones(0))["grade_norm"], float("nan")),
    ],
)
def test_metrics_over_all_records_by_hand(metric: Callable[[np.ndarray], float], expected: float) -> None:
    assert metric(np.ones(4)) == pytest.approx(expected, nan_ok=True)
    assert metric(np.full(4, 3.0)) == pytest.approx(expected, nan_ok=True)  # every record thrice is no other number


RECORD = {
    "instruction": "Допишите: {function}",
    "inputs": {"function": "def one(a, b=0):\n    ", "tests": "[{'a': 1}, {'a': 2, 'b': 3}]"},
    "outputs": ["[1, 0]", "[2, 3]"],
    "meta": {"id": 4, "entry_point": "one", "canonical_solution": "return [a, b]"},
}


def problem_of(**changes: Json) -> Problem:
    [task] = [task for task in V1.tasks if task.name == "mera-v1/ruhumaneval"]
    assert task.kind == "code"
    return task.parse({**RECORD, **changes}, 0)


@pytest.mark.parametrize(
    ("text", "ended", "answers"),
    [
        ("return [a, b]", "passed", ("[1, 0]", "[2, 3]")),
        ("return [a, 0]", "wrong", ("[1, 0]", "[2, 0]")),
        ("return [b for b in range(a)][3]", "wrong", ("failed: IndexError: list index out of range",) * 2),
        ("while a == 2: pass\n    return [a, b]", "wrong", ("[1, 0]", "timed out")),
        ("import os; os._exit(0)", "wrong", ("failed", "failed")),
        ("return", "wrong", ("None", "None")),
        ("nonsense (", "wrong", ("failed: SyntaxError",) * 2),
    ],
)
def test_programs_are_judged_by_the_text_of_their_results(text: str, ended: str, answers: tuple[str, ...]) -> None:
    """The site compares str() of every result with the published text."""
    sandbox = Sandbox.find(allow_unsandboxed=True)
    known, hidden = problem_of(), problem_of(outputs="")
    assert known.prompt == "Допишите: def one(a, b=0):\n    "  # the model sees the instruction, the function alone runs
    [verdict, closed] = Judge(sandbox, 1.0, "answers").verdicts([(known, text), (hidden, text)])
    assert verdict.ended == ended
    assert len(verdict.answers) == len(answers)
    assert all(answer.startswith(prefix) for answer, prefix in zip(verdict.answers, answers, strict=True))
    assert (closed.ended, closed.answers) == ("answered", verdict.answers)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"inputs": {"function": "def one():"}}, "expected the texts function and tests"),
        ({"inputs": {"function": "def one():", "tests": "[1"}}, "expected a list of objects"),
        ({"outputs": ["1"]}, "expected 2 texts, one for each test"),
        ({"meta": {"id": 1}}, "has the entry_point None"),
    ],
)
def test_a_bad_record_of_a_program_is_named(changes: JsonObject, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        problem_of(**changes)


def test_a_leading_blank_of_an_answer_does_not_count(tmp_path: Path) -> None:
    """A prompt ends in "Ответ:", so a model's answer begins with a blank; the exam's rules want it stripped."""
    [task] = [task for task in V1.tasks if task.name == "mera-v1/use"]
    assert task.kind == "generation"
    meta = {"id_task": "2", "type": "multiple_choice_options_within_text", "score": 2}
    records = [
        {
            "instruction": "{task}",
            "inputs": {"task": "З", "text": "Т"},
            "outputs": "1,2",
            "meta": {"id": i, "variant": i, **meta},
        }
        for i in range(2)
    ]
    (tmp_path / "use").mkdir()
    (tmp_path / "use" / "test.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    questions = read_examples(task, tmp_path)
    source = Source(task, questions, DataState("no published hash", None))
    prompts = [Prompt(i, q.row, q.contexts, q.continuations, None) for i, q in enumerate(questions)]
    scores = GenerationScores(source, prompts, questions=questions, ended=["stop", "stop"], generated=[" 2,1", " 3"])
    scores.finish()
    # One point in one of two variants, each of 34: v1 does not ask the records for their 2.
    assert scores.estimates().metrics["grade_norm"].value == pytest.approx(1 / 34 / 2)
