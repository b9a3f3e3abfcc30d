"""Every Eval Ever's record and the Hub's `.eval_results` of a run: fields, what is left out, hashes, refusals."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import eval_result_entries_to_yaml, parse_eval_result_entries

from tests.support.run_folders import changed, composite, samples_of, write_run

# What Every Eval Ever's eval.schema.json 0.2.2 says of the fields that are written, as its package is not in the index:
# type or allowed values; "!" is required, "*" any other name.  At its top other names are refused.
TEXTS: dict[str, Any] = {"*": str}
SCHEMA: dict[str, Any] = {
    "schema_version!": str, "evaluation_id!": str, "retrieved_timestamp!": str,
    "source_metadata!": {
        "source_name": str, "source_type!": ("documentation", "evaluation_run"), "source_organization_name!": str,
        "evaluator_relationship!": ("first_party", "third_party", "collaborative", "other"),
    },
    "eval_library!": {"name!": str, "version!": str},
    "model_info!": {"name!": str, "id!": str, "additional_details": TEXTS},
    "evaluation_results!": [{
        "evaluation_result_id": str, "evaluation_name!": str,
        "source_data!": {"dataset_name!": str, "source_type!": ("other",), "additional_details": TEXTS},
        "metric_config!": {
            "metric_id": str, "metric_name": str, "lower_is_better!": bool,
            "score_type": ("binary", "continuous", "levels"), "min_score": float, "max_score": float,
        },
        "score_details!": {
            "score!": float, "details": TEXTS,
            "uncertainty": {
                "standard_error": {"value!": float}, "num_samples": int,
                "confidence_interval": {"lower!": float, "upper!": float, "confidence_level": float},
            },
        },
    }],
}  # fmt: skip


def violations(value: Any, rule: Any, where: str = "record") -> Iterator[str]:
    """Where a record is not as the schema says."""
    if isinstance(rule, dict):
        rules = {name.rstrip("!"): each for name, each in rule.items()}
        yield from (f"{where} lacks {name}" for name in rule if name[-1] == "!" and name[:-1] not in value)
        for name, each in value.items():
            if name not in rules and "*" not in rules:
                yield f"{where} has {name}"
            else:
                yield from violations(each, rules.get(name, rules.get("*")), f"{where}.{name}")
        if value.get("score_type") == "continuous" and not {"min_score", "max_score"} <= set(value):
            yield f"{where} has no bounds"
    elif isinstance(rule, list):
        for i, each in enumerate(value):
            yield from violations(each, rule[0], f"{where}[{i}]")
    elif isinstance(rule, tuple):
        if value not in rule:
            yield f"{where} is {value!r}"
    elif type(value) not in ((int, float) if rule is float else (rule,)):
        yield f"{where} is {value!r}, no {rule.__name__}"


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
    assert not [*violations(record, SCHEMA)]
    wrong = record | {"x": 1, "evaluation_id": None}
    assert [*violations(wrong, SCHEMA)] == ["record.evaluation_id is None, no str", "record has x"]
    assert record["schema_version"] == "0.2.2"
    assert record["evaluation_id"] == f"own/run/{record['retrieved_timestamp']}"
    assert record["eval_library"] == {"name": "miron_jax", "version": "0.1.0"}
    details = {
        "dtype": "float32", "weights": "run", "tokenizer": "t", "deployment_type": "local", "model_availability": "other",
    }  # fmt: skip
    assert record["model_info"] == {"name": "run", "id": "run", "additional_details": details}
    by_id = {each["evaluation_result_id"]: each for each in record["evaluation_results"]}
    assert list(by_id) == ["own/x/accuracy", "own/x/bits_per_byte", "own/y/accuracy", "own/OWN"]
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
    tasks = {"own/x": old, "own/y": samples_of([1, 0])}
    run = write_run(tmp_path / "old", tasks, {"OWN": composite(0.5, {"own/x": 0.5, "own/y": 0.5})})
    assert miron("report", str(run), f"--every_eval_ever={tmp_path / 'record.json'}").status == 0
    results = json.loads((tmp_path / "record.json").read_text())["evaluation_results"]
    accuracy, other, composed = (result["score_details"]["details"] for result in results)
    assert accuracy == {"num_fewshot": "5"}
    assert other == {"num_fewshot": "5", "requests_sha256": hash_of(2)}
    assert composed == {"tasks": "own/x, own/y"}, "nor has a composite of such a task"


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
