"""Every Eval Ever's record and the Hub's `.eval_results` of a run: fields, what is left out, hashes, refusals."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import eval_result_entries_to_yaml, parse_eval_result_entries

from tests.support.run_folders import changed, composite, samples_of, write_run

# Fields of Every Eval Ever's eval.schema.json 0.2.2, which has no package here: those that it requires, and may stand there
REQUIRED = {
    "schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata", "model_info", "eval_library",
    "evaluation_results",
}  # fmt: skip
OF_RESULT = {"evaluation_result_id", "evaluation_name", "source_data", "metric_config", "score_details"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    samples = {"own/x": samples_of([1, 0, 1, 1], bits=[1.0, 2.0, 2.0, 1.0]), "own/y": samples_of([1, 0])}
    return write_run(
        tmp_path / "run", samples, {"OWN": composite(0.5, {"own/y": 0.5, "own/x": 0.5}), "B": composite(None, {})}
    )


def hash_of(num_examples: int) -> str:
    """The digest of row i is i in sixteen digits of base 16."""
    return sha256("".join(f"{i} {i:016x}\n" for i in range(num_examples)).encode()).hexdigest()


def test_a_record_of_every_eval_ever(run: Path, tmp_path: Path, miron) -> None:
    with changed(run) as results:
        results["tasks"]["own/x"]["metrics"]["undefined"] = {"value": None, "stderr": None, "ci95": [None, None]}
    ran = miron("report", str(run), f"--every_eval_ever={tmp_path / 'record.json'}")
    assert (ran.status, "written to" in ran.out) == (0, True), ran.err
    record = json.loads((tmp_path / "record.json").read_text())
    assert set(record) == REQUIRED
    assert record["schema_version"] == "0.2.2"
    assert record["evaluation_id"] == f"own/run/{record['retrieved_timestamp']}"
    assert record["eval_library"] == {"name": "miron_jax", "version": "0.1.0"}
    details = {"dtype": "float32", "weights": "run", "tokenizer": "t"}
    assert record["model_info"] == {"name": "run", "id": "run", "additional_details": details}
    by_id = {each["evaluation_result_id"]: each for each in record["evaluation_results"]}
    assert list(by_id) == ["own/x/accuracy", "own/x/bits_per_byte", "own/y/accuracy", "own/OWN"]
    for each in by_id.values():
        assert set(each) == OF_RESULT
        assert each["source_data"]["source_type"] == "other"
        assert all(isinstance(value, str) for value in each["score_details"]["details"].values())
    accuracy, bits, _, composed = by_id.values()
    assert accuracy["metric_config"] == {
        "metric_id": "accuracy", "metric_name": "accuracy", "lower_is_better": False,
        "score_type": "continuous", "min_score": 0, "max_score": 1,
    }  # fmt: skip
    assert (bits["metric_config"]["lower_is_better"], "score_type" in bits["metric_config"]) == (True, False)
    score = accuracy["score_details"]
    written = json.loads((run / "results.json").read_text())["tasks"]["own/x"]["metrics"]["accuracy"]
    assert (score["score"], score["uncertainty"]["num_samples"]) == (0.75, 4)
    assert score["uncertainty"]["standard_error"]["value"] == written["stderr"]
    interval = score["uncertainty"]["confidence_interval"]
    assert [interval["lower"], interval["upper"], interval["confidence_level"]] == [*written["ci95"], 0.95]
    assert score["details"] == {"requests_sha256": hash_of(4), "num_fewshot": "5"}
    of_tasks = sha256((hash_of(4) + hash_of(2)).encode()).hexdigest()
    assert composed["score_details"]["details"] == {"requests_sha256": of_tasks, "tasks": "own/x, own/y"}


def test_yaml_for_the_hub_is_read_by_its_client(run: Path, tmp_path: Path, miron) -> None:
    with changed(run) as results:
        results["tasks"]["own/x"]["data"]["commit"] = "c" * 40
    tasks = "--hub_tasks=own/x=cais/hle:default,own/y=Idavidrein/gpqa:gpqa_diamond"
    ran = miron("report", str(run), f"--hub_yaml={tmp_path / 'results.yaml'}", tasks)
    assert ran.status == 0, ran.err
    document = yaml.safe_load((tmp_path / "results.yaml").read_text())
    first, second = parse_eval_result_entries(document)
    assert (first.dataset_id, first.task_id, first.value, first.dataset_revision) == (
        "cais/hle",
        "default",
        0.75,
        "c" * 40,
    )
    assert first.notes == f"miron_jax, metric own/x accuracy, num_fewshot 5, requests_sha256 {hash_of(4)}"
    assert (second.dataset_id, second.task_id, second.dataset_revision) == ("Idavidrein/gpqa", "gpqa_diamond", None)
    assert eval_result_entries_to_yaml([first, second]) == document


def test_a_run_without_digests_has_no_hash(tmp_path: Path, miron) -> None:
    old: list[dict[str, Any]] = [{**sample, "prompt_sha256": ""} for sample in samples_of([1, 0])]
    run = write_run(tmp_path / "old", {"own/x": old})
    assert miron("report", str(run), f"--every_eval_ever={tmp_path / 'record.json'}").status == 0
    [accuracy] = json.loads((tmp_path / "record.json").read_text())["evaluation_results"]
    assert accuracy["score_details"]["details"] == {"num_fewshot": "5"}


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--hub_yaml={}",), "--hub_yaml and --hub_tasks=TASK=OWNER/DATA_SET:TASK_ID go together"),
        (("--hub_tasks=own/x=a/b:c", "--csv={}"), "--hub_yaml and --hub_tasks=TASK=OWNER/DATA_SET:TASK_ID go together"),
        (("--hub_yaml={}", "--hub_tasks=own/x=b:c"), "'own/x=b:c' is not understood, expected TASK=OWNER/DATA_SET:"),
        (("--hub_yaml={}", "--hub_tasks=own/z=a/b:c"), "run has no task 'own/z', expected one of own/x, own/y"),
        (("--hub_yaml={}.x", "--every_eval_ever={}", "again"), "is a file of one run, and 2 are named: name one"),
    ],
)
def test_refused(run: Path, tmp_path: Path, miron, flags: tuple[str, ...], sentence: str) -> None:
    words = [str(run), *(flag.format(tmp_path / "out") for flag in flags)]
    if words[-1] == "again":
        words[-1] = str(write_run(tmp_path / "again", {"own/x": samples_of([1, 0])}))
        words.append("--hub_tasks=own/x=a/b:c")
    ran = miron("report", *words)
    assert (ran.status, ran.err.count("\n"), sentence in ran.err) == (2, 1, True), ran.err
    assert not list(tmp_path.glob("out*"))
