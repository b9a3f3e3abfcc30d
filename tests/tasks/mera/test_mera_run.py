"""MERA from records to submission on a tiny model: eval reports the metrics that the site computes from its answers."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState, read_examples
from miron_jax.definitions.records import Problem, Task
from miron_jax.engine.text_requests import Generated
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import evaluate
from miron_jax.evaluation.run_result import finished_run
from miron_jax.evaluation.task_kinds.choice import ChoiceKind, ScoredPrompt
from miron_jax.evaluation.task_kinds.generation import GenerationKind
from miron_jax.evaluation.task_kinds.interface import LoadedTask, Setup, TaskScores
from miron_jax.evaluation.task_kinds.program import ProgramKind
from miron_jax.evaluation.task_kinds.programs import Judge
from miron_jax.files.readers import Json, JsonObject
from miron_jax.metrics.spans import Spans
from miron_jax.prompting.prompts import Prompt
from miron_jax.results.writing import write_finished
from miron_jax.runtime.sandbox.sandbox import Sandbox
from miron_jax.runtime.timeline import Timeline
from miron_jax.tasks.mera.scoring import score_submission
from miron_jax.tasks.mera.site import export, read_records
from miron_jax.tasks.mera.submission import read_submission
from miron_jax.tasks.mera.suite import SUITE_NAME, V1
from miron_jax.tasks.mera.table import Version, data_sets
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.truncation import LengthLimit
from tests.support.mera_records import write_mera
from tests.support.tiny_model import make_model
from tests.support.tiny_tokenizer import TINY

SITE = {name: name for name in ("f1_macro", "em", "f1", "grade_norm")} | {"accuracy": "acc"}
SITE |= {f"pass_at_{k}": f"pass@{k}" for k in (1, 5, 10)}
NO_HASH = DataState("no published hash", None)


def task_of(name: str) -> Task[Any]:
    [task] = [task for task in V1.tasks if task.name == f"mera-v1/{name}"]
    assert isinstance(task, Task)
    return task


def setup(**settings: Any) -> Setup:
    config = RunConfig("none", ("none",), allow_code_execution=True, allow_unsandboxed_code=True, **settings)
    return Setup(config, TINY, TokenBytes(TINY, len(TINY)), LengthLimit(None, None))


def test_questions_without_a_right_choice_count_the_last_answer() -> None:
    kind = ChoiceKind(LoadedTask(task_of("ruethics"), [], NO_HASH), setup())
    prompt = Prompt(0, 0, ("Т",) * 2, ("0", "1"), None)
    for losses, expected in (((1.0, 2.0), 0.0), ((2.0, 1.0), 1.0), ((1.0, 1.0), 1.0)):  # the last one wins a tie
        spans = Spans.of_each([np.asarray([-loss], np.float32) for loss in losses])
        [scored] = kind.score([ScoredPrompt.of(prompt)], spans)
        assert scored.metrics == {"answered_last": expected}


def test_a_leading_blank_of_an_answer_does_not_count(tmp_path: Path) -> None:
    """A prompt ends in "Ответ:", so a model's answer begins with a blank; the exam's rules want it stripped."""
    task, folder = task_of("use"), write_mera(tmp_path, "v1", 2)
    path = folder / "use" / "test.jsonl"
    records = [json.loads(line) | {"outputs": "1,2"} for line in path.read_text().splitlines()]
    for record in records:
        record["meta"] |= {"id_task": "2", "type": "multiple_choice_options_within_text", "score": 2}
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    questions = read_examples(task, tmp_path)
    kind = GenerationKind(LoadedTask(task, questions, NO_HASH), setup())
    kind.prepare()
    scores = TaskScores(kind)
    kind.take_texts(scores, (Generated(text, (), "stop") for text in (" 2,1", " 3")))
    # One point in one of two variants, each of 34: v1 does not ask the records for their 2.
    assert kind.estimates(scores).metrics["grade_norm"].value == pytest.approx(1 / 34 / 2)


RECORD = {
    "instruction": "Допишите: {function}",
    "inputs": {"function": "def one(a, b=0):\n    ", "tests": "[{'a': 1}, {'a': 2, 'b': 3}]"},
    "outputs": ["[1, 0]", "[2, 3]"],
    "meta": {"id": 4, "entry_point": "one", "canonical_solution": "return [a, b]"},
}


def problem_of(row: int = 0, **changes: Json) -> Problem:
    return task_of("ruhumaneval").parse({**RECORD, **changes}, row)


def test_programs_are_judged_by_the_text_of_their_results() -> None:
    """The site compares str() of every result with the published text."""
    programs = {
        "return [a, b]": ("passed", ("[1, 0]", "[2, 3]")),
        "return [a, 0]": ("wrong", ("[1, 0]", "[2, 0]")),
        "return [b for b in range(a)][3]": ("wrong", ("failed: IndexError: list index out of range",) * 2),
        "while a == 2: pass\n    return [a, b]": ("wrong", ("[1, 0]", "timed out")),
        "import os; os._exit(0)": ("wrong", ("failed", "failed")),
        "return": ("wrong", ("None", "None")),
        "nonsense (": ("wrong", ("failed: SyntaxError",) * 2),
    }
    known, hidden = problem_of(), problem_of(outputs="")
    assert known.prompt == "Допишите: def one(a, b=0):\n    "  # the model sees the instruction, the function alone runs
    judge = Judge(Sandbox.find(allow_unsandboxed=True), 0.5, "answers")
    verdicts = iter(judge.verdicts([(problem, text) for text in programs for problem in (known, hidden)]))
    for text, (ended, answers) in programs.items():
        verdict, closed = next(verdicts), next(verdicts)
        assert verdict.ended == ended, text
        assert len(verdict.answers) == len(answers), text
        assert all(a.startswith(b) for a, b in zip(verdict.answers, answers, strict=True)), (text, verdict.answers)
        assert (closed.ended, closed.answers) == ("answered", verdict.answers), text


def test_every_program_of_every_problem_has_a_seed_of_its_own() -> None:
    def seeds(seed: int) -> list[int]:
        problems = [problem_of(row) for row in range(2)]
        kind = ProgramKind(LoadedTask(task_of("ruhumaneval"), problems, NO_HASH), setup(seed=seed))
        kind.prepare()
        return [text.sampling.seed for text in kind.texts()]

    assert len({*seeds(0), *seeds(1)}) == 2 * 2 * 10
    assert seeds(0) == seeds(0)


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


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every fifth token ends a text, so that completions are short."""
    folder = make_model(tmp_path_factory.mktemp("mera") / "model")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [*range(0, 331, 5)]}))
    return folder


def run(model: Path, folder: Path, version: Version, *tasks: str) -> tuple[Path, JsonObject]:
    """Results of a run on the records in `folder`; of the whole suite, or of these tasks of it."""
    suite, output = SUITE_NAME[version], folder.parent / f"{folder.name}-out"
    names = tuple(f"{suite}/{task}" for task in tasks) or (suite,)
    code: Any = {"allow_code_execution": True, "allow_unsandboxed_code": True}
    config = RunConfig(str(model), names, data_dir=((suite, str(folder)),), output=str(output), **code)
    write_finished(config, finished_run(config, evaluate(config, find_inputs(config))), Timeline().lap)
    return output, json.loads((output / "results.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("version", [pytest.param("v1", marks=pytest.mark.long), "v1.2"])
def test_a_run_has_the_sites_metrics_of_its_submission(version: Version, model: Path, tmp_path: Path) -> None:
    folder = write_mera(tmp_path / "data", version, 5)
    output, results = run(model, folder, version)
    path = tmp_path / "out.zip"
    exported = export(output, path, version)
    with zipfile.ZipFile(path) as archive:
        assert ("logs_public.zip" in archive.namelist()) == (version == "v1.2")
    records = read_records(folder, version)
    submission = read_submission(path, version, {name: list(by_key) for name, by_key in records.items()})
    assert list(submission.faults) == exported.absent
    assert {fault.name for fault in submission.faults.values()} <= {"no_task"}
    site = score_submission(submission.answers, records, version)
    tasks = results["tasks"]
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


@pytest.mark.slow
def test_closed_gold_is_never_zero_and_export_wants_a_complete_run(model: Path, tmp_path: Path) -> None:
    """ruEthics has no right choice, so its records are scored without labels; a missing label is not 0."""
    folder = write_mera(tmp_path / "data", "v1", 3, open_gold=False)
    path = folder / "ruethics" / "test.jsonl"
    records = [{**json.loads(line), "outputs": ""} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    closed = ("parus", "chegeka", "use", "rutie", "ruhumaneval")  # of every kind
    output, results = run(model, folder, "v1", *closed, "ruethics")
    tasks = results["tasks"]
    for name in closed:
        task = tasks[f"mera-v1/{name}"]
        assert (task["n"], task["skipped"]) == (0, 3), name
        assert all(entry["value"] is None for entry in task["metrics"].values()), name
        samples = output / "samples" / "mera-v1" / f"{name}.jsonl"
        assert "not published" in json.loads(samples.read_text().splitlines()[0])["reason"], name
    ethics = tasks["mera-v1/ruethics"]["metrics"]
    assert [name for name, entry in ethics.items() if entry["value"] is not None] == ["answered_last"]
    composite = results["suites"]["mera-v1"]["composites"]["total_score"]
    assert composite["value"] is None
    assert len(composite["missing"]) == 17
    export(output, tmp_path / "out.zip", "v1")  # its answers are there all the same
    tasks["mera-v1/parus"]["limit"] = 2
    (output / "results.json").write_text(json.dumps({"tasks": tasks}))
    cases: list[tuple[Path, Version, str]] = [
        (output, "v1", r"scored with --limit=2, expected every record"),
        (output, "v1.2", r"no task of mera-v1\.2 there"),
        (tmp_path / "none", "v1", r"none/results\.json cannot be read"),
    ]
    for place, version, sentence in cases:
        with pytest.raises(InputError, match=sentence):
            export(place, tmp_path / "no.zip", version)
    assert not (tmp_path / "no.zip").exists()
