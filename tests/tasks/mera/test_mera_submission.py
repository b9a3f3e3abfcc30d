"""MERA's submissions: the published zip scores exactly its published response, and the site's faults are found.

shared/data/mera/golden_submission holds the files that the site's authors published at commit 12daebd of ai-forever/MERA.
"""

import csv
import io
import json
import math
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject
from miron_jax.metrics.answers import token_f1
from miron_jax.metrics.choices import LAST, MEAN, SUM, score_choices
from miron_jax.metrics.programs import pass_at
from miron_jax.tasks.mera.metrics import ETHICS, QUESTIONS, exam_points, grade_norm, macro_f1, matthews
from miron_jax.tasks.mera.scoring import expected_total, score_submission
from miron_jax.tasks.mera.site import check
from miron_jax.tasks.mera.submission import Fault, Key, Submission, read_submission, write_submission
from miron_jax.tasks.mera.table import DATA_SETS, Version, data_sets
from tests.support.tolerances import FLOAT64

Record = JsonObject


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def golden_records(folder: Path) -> dict[str, dict[Key, Record]]:
    """Right answers of the three open data sets whose metrics need no classifier, by the site's record ids (spec section C):
    ruHateSpeech counts its rows; ruHHH's file holds harmless 58, honest 61, helpful 59, its ids honest first, then harmless;
    ruEthics asks its 645 texts three times."""
    hate, hhh = (rows(folder / f"{name}_gold.csv") for name in ("ruHateSpeech", "ruHHH"))
    parts = {"harmless": hhh[:58], "honest": hhh[58:119], "helpful": hhh[119:]}
    ethics = json.loads((folder / "ruEthics_gold.json").read_text(encoding="utf-8"))
    hhh_records = [(name, row) for name in ("honest", "harmless", "helpful") for row in parts[name]]
    return {
        "ruHateSpeech": {
            i: {"inputs": {"target_group": row["target_group"]}, "outputs": row["outputs"], "meta": {"id": i}}
            for i, row in enumerate(hate)
        },
        "ruHHH": {
            i: {"inputs": {}, "outputs": row["lb"], "meta": {"id": i, "criteria": name}}
            for i, (name, row) in enumerate(hhh_records)
        },
        "ruEthics": {
            645 * q + i: {
                "inputs": {},
                "outputs": {category: str(row[category]) for category in ETHICS},
                "meta": {"id": 645 * q + i, "question": question},
            }
            for q, question in enumerate(QUESTIONS)
            for i, row in enumerate(ethics)
        },
    }


@pytest.fixture
def golden(shared_data: Path) -> Path:
    return shared_data / "mera" / "golden_submission"


def test_the_published_submission_scores_its_published_response(golden: Path) -> None:
    records = golden_records(golden)
    test_keys = {name: list(by_key) for name, by_key in records.items()}
    submission = read_submission(golden / "sample_submission.zip", "v1", test_keys)
    assert not submission.faults
    sizes = {"PARus": 500, "ruDetox": 800, "ruEthics": 1935, "ruHateSpeech": 265}
    assert {name: len(submission.answers[name]) for name in sizes} == sizes
    published = json.loads((golden / "sample_response.json").read_text(encoding="utf-8"))["results"]
    scores = score_submission(submission.answers, records, "v1")
    assert sum(map(len, scores.values())) == 26
    for name, numbers in scores.items():
        assert numbers == pytest.approx(published[name], abs=FLOAT64, rel=0)
    total = published.pop("total_score")
    assert expected_total(published, "v1") == total


def test_the_published_zip_has_no_faults_without_records(golden: Path) -> None:
    checked = check(golden / "sample_submission.zip", "v1", None)
    assert checked.faults == []
    assert "cannot be scored here" in checked.rows[0][3]


def test_the_total_treats_missing_data_sets_by_the_versions_rule() -> None:
    numbers = {"RCB": {"acc": 0.5, "f1_macro": 0.3}, "ruMMLU": {"acc": 0.8, "acc.law": 0.1}, "ruHHH": {"acc": 1.0}}
    # v1 means over what is there, the diagnostic ruHHH apart: ((0.5 + 0.3) / 2 + 0.8) / 2.
    assert expected_total(numbers, "v1") == pytest.approx(0.6)
    # v1.2 counts 15 data sets, ruMMLU is open there and does not count: 0.4 / 15.
    assert expected_total(numbers, "v1.2") == pytest.approx(0.4 / 15)
    assert sum(dataset.counts("v1") for dataset in DATA_SETS) == 17
    assert sum(dataset.counts("v1.2") for dataset in DATA_SETS) == 15


EXAM: dict[str, dict[Key, Record]] = {"USE": {i: {"id": i, "id_task": "4", "variant": 0} for i in range(900)}}


def answers(version: Version) -> dict[str, dict[Key, Json]]:
    """A valid answer to every record of every data set."""
    shapes: JsonObject = {
        "ruEthics": dict.fromkeys(ETHICS, "1"),
        "MultiQ": [{"label": "passage", "length": 1, "offset": 0, "segment": "а"}] if version == "v1" else "а",
        "ruHumanEval": [["1"]] * 10 if version == "v1" else [[["1"]] * 10],
        "ruCodeEval": [[["1"]] * 10],
    }
    return {
        dataset.name: {
            ((0, i) if dataset.kind == "dialogue" else i): shapes.get(dataset.name, "1")
            for i in range(dataset.rules(version).tests or 3)
        }
        for dataset in data_sets(version)
    }


@pytest.mark.parametrize("version", ["v1", "v1.2"])
def test_a_written_submission_reads_back(version: Version, tmp_path: Path) -> None:
    expected = answers(version)
    path = tmp_path / "out.zip"
    write_submission(path, version, expected, EXAM)
    assert read_submission(path, version, {name: list(by_key) for name, by_key in expected.items()}) == Submission(
        expected, {}
    )
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == [f"{dataset.name}.json" for dataset in data_sets(version)]
        tie, use = (json.loads(archive.read(f"{name}.json"))["data"]["test"] for name in ("ruTiE", "USE"))
    assert isinstance(tie[0], list) == (version == "v1")
    assert use[0]["meta"] == {"id": 0, "id_task": "4", "variant": 0}


@pytest.fixture(scope="module")
def without_parus(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A valid submission that lacks one data set."""
    path = tmp_path_factory.mktemp("submission") / "out.zip"
    write_submission(path, "v1", {key: by_key for key, by_key in answers("v1").items() if key != "PARus"}, EXAM)
    return path.read_bytes()


def change(records: list[Json]) -> JsonObject:
    return {"data": {"test": records}}


def good(i: int) -> Record:
    return {"outputs": "1", "meta": {"id": i}}


@pytest.mark.parametrize(
    ("document", "name", "says"),
    [
        (b"\xff\xfe", "unreadable_file", "no JSON in UTF-8"),
        ([], "no_data_field", '{"data": {"test": [...]}}'),
        ({"data": {"train": []}}, "no_split", 'no list under "test"'),
        (change([{"meta": {"id": 0}}]), "no_outputs_field_for_doc", "record 0"),
        (change([{"outputs": "1"}]), "no_meta_field_for_doc", "no meta"),
        (change([{"outputs": "1", "meta": {}}]), "no_id_field_for_doc", "no id"),
        (change([{"outputs": "1", "meta": {"id": "0"}}]), "no_id_field_for_doc", "no whole number"),
        (change([good(0), good(2)]), "no_id", "id 1 has no answer, 1 of 3"),
        (change([good(0), good(1), good(2), good(3)]), "unknown_id", "id 3 is none of the 3"),
        (change([good(0), good(0), good(1)]), "duplicate_id", "id 0 is answered twice"),
        (change([{"outputs": ["1"], "meta": {"id": 0}}]), "doc_output_type_error", "found a list, expected a text"),
        (change([{"outputs": 1, "meta": {"id": 0}}]), "doc_output_type_error", "found a int, expected a text"),
    ],
)
def test_a_fault_voids_its_data_set_alone_under_the_sites_name(
    document: Json, name: str, says: str, without_parus: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "out.zip"
    path.write_bytes(without_parus)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("PARus.json", document if isinstance(document, bytes) else json.dumps(document))
    submission = read_submission(path, "v1", {"PARus": [0, 1, 2]})
    assert list(submission.faults) == ["PARus"]
    assert submission.faults["PARus"].name == name
    assert says in submission.faults["PARus"].detail
    assert len(submission.answers) == 20


@pytest.mark.parametrize(
    ("data_set", "output", "name"),
    [
        ("ruEthics", "1", "doc_output_type_error"),
        ("ruEthics", {"virtue": "1"}, "doc_parse_output_error"),
        ("MultiQ", "а", "doc_output_type_error"),
        ("MultiQ", [[]], "doc_parse_output_error"),
        ("ruHumanEval", "1", "doc_output_type_error"),
        ("ruHumanEval", ["1"], "doc_parse_output_error"),
        ("ruHumanEval", [], "doc_parse_output_error"),
        ("ruHumanEval", [["1"]] * 9, "doc_parse_output_error"),
        ("ruHumanEval", [[1]] * 10, "doc_parse_output_error"),
    ],
)
def test_answers_that_are_not_texts_must_have_the_form_of_their_data_set(
    data_set: str, output: Json, name: str, tmp_path: Path
) -> None:
    path = tmp_path / "out.zip"
    write_submission(path, "v1", {data_set: {0: output}}, {})
    assert read_submission(path, "v1", {data_set: [0]}).faults[data_set].name == name


def test_failed_programs_are_accepted_as_mera_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "out.zip"
    cases: list[tuple[Version, Json]] = [
        ("v1", [["1", None]] * 9 + ["timed out"]),
        ("v1.2", [[["1", None]] * 9 + ["timed out"]]),
    ]
    for version, output in cases:
        write_submission(path, version, {"ruHumanEval": {0: output}}, {})
        assert read_submission(path, version, {"ruHumanEval": [0]}).answers["ruHumanEval"] == {0: output}
    for output in ([], [[]], [[["1"]] * 10, []]):
        write_submission(path, "v1.2", {"ruCodeEval": {0: output}}, {})
        assert read_submission(path, "v1.2", {"ruCodeEval": [0]}).faults["ruCodeEval"].name == "doc_parse_output_error"


def test_a_damaged_zip_is_a_fault_or_reads_the_same(tmp_path: Path) -> None:
    """Inverting any byte of a small zip gives a fault or the same answers, never another error."""
    whole, torn = tmp_path / "whole.zip", tmp_path / "torn.zip"
    write_submission(whole, "v1", {"BPS": dict.fromkeys(range(40), "1")}, {})
    data = whole.read_bytes()
    names = set()
    for place in range(len(data)):
        torn.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        submission = read_submission(torn, "v1", {"BPS": list(range(40))})
        names.add(submission.faults["BPS"].name if "BPS" in submission.faults else "")
    assert {"unreadable_zip", "unreadable_file"} <= names


@pytest.mark.parametrize(
    ("method", "size", "says"),
    [
        (zipfile.ZIP_BZIP2, 1 << 20, "expected stored or deflate"),
        (zipfile.ZIP_LZMA, 1 << 20, "expected stored or deflate"),
        (zipfile.ZIP_DEFLATED, 17 << 20, "unpacks to more than 16777216 bytes"),
    ],
)
def test_members_that_unpack_to_more_than_announced_are_stopped(
    method: int, size: int, says: str, tmp_path: Path
) -> None:
    path, packed = tmp_path / "out.zip", io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("BPS.json", bytes(size))
    data = packed.getvalue().replace(size.to_bytes(4, "little"), (10).to_bytes(4, "little"))  # it claims 10 bytes
    path.write_bytes(data)
    fault = read_submission(path, "v1", {}).faults["BPS"]
    assert fault.name == "unreadable_file"
    if method != zipfile.ZIP_DEFLATED:
        assert says in fault.detail
    path.write_bytes(packed.getvalue())
    assert says in read_submission(path, "v1", {}).faults["BPS"].detail


def test_a_file_twice_in_a_zip_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "out.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("BPS.json", "{}")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("BPS.json", "{}")
    assert "is twice in the zip" in read_submission(path, "v1", {}).faults["BPS"].detail


def spoilt(make: Callable[[Path], object], path: Path) -> dict[str, Fault]:
    make(path)
    return read_submission(path, "v1", {}).faults


def test_no_zip_and_missing_files_are_faults(tmp_path: Path) -> None:
    path = tmp_path / "out.zip"
    assert {fault.name for fault in spoilt(lambda at: at.write_bytes(b"no zip"), path).values()} == {"unreadable_zip"}

    def elsewhere(at: Path) -> None:
        with zipfile.ZipFile(at, "w") as archive:
            archive.writestr("BPS.txt", "")
            archive.writestr("mine/LCS.json", "")
            archive.writestr("PARus.json", json.dumps(change([good(i) for i in range(400)])))

    faults = spoilt(elsewhere, path)
    assert (faults["BPS"].name, faults["LCS"].name) == ("extension", "no_task")
    assert "at the top of the zip" in faults["LCS"].detail
    assert "400 records, expected 500" in faults["PARus"].detail  # 400 is what v1's README says
    with pytest.raises(InputError, match=r"none\.zip is missing"):
        read_submission(tmp_path / "none.zip", "v1", {})


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        # Labels a, b: a has tp 2, fp 1, fn 0 -> 4/5; b has tp 1, fp 0, fn 1 -> 2/3; c is nowhere.
        (lambda w: macro_f1(["a", "a", "b", "a"], ["a", "a", "b", "b"], w), (4 / 5 + 2 / 3) / 2),
        # c is among the answers alone: a 1, b 2/3 and c 0.
        (lambda w: macro_f1(["a", "a", "b", "c"], ["a", "a", "b", "b"], w), (1 + 2 / 3 + 0) / 3),
        # tp 2, tn 1, fp 1, fn 0: (2 - 0) / sqrt(3 * 2 * 2 * 1).
        (lambda w: matthews(np.array([1, 1, 0, 1], bool), np.array([1, 1, 0, 0], bool), w), 2 / 12**0.5),
        (lambda w: matthews(np.array([1, 1, 1, 1], bool), np.array([1, 1, 0, 0], bool), w), 0.0),
        (lambda w: grade_norm([], np.ones(0))["grade_norm"], float("nan")),
    ],
)
def test_metrics_over_all_records_by_hand(metric: Callable[[np.ndarray], float], expected: float) -> None:
    assert metric(np.ones(4)) == pytest.approx(expected, nan_ok=True)
    assert metric(np.full(4, 3.0)) == pytest.approx(expected, nan_ok=True)  # every record thrice is no other number


def test_metrics_of_one_record_by_hand() -> None:
    assert token_f1("да да нет", ["да да"]) == pytest.approx(2 * 2 / 5)  # both of the two count
    assert pass_at(5, 10, 5) == pytest.approx(1 - 1 / 252)  # all five of five drawn ones may be the wrong ones
    assert pass_at(5, 10, 6) == 1.0
    for answer, gold, points in (("2,1", "1,2", 1), ("1,2,3", "1,2", 0), ("1", "1,2", 0), ("1,3", "1,2", 0)):
        assert exam_points(answer, gold, "x", "2") == points, (answer, gold)
    assert exam_points("1,2,5", "1,2,3", "x", "16") == 2
    assert exam_points("1,2,3,4", "1,2,3", "x", "16") == 2  # a further wrong number costs a point
    assert exam_points("1,2,3", "1,3,3", "matching", "8") == 2


def test_ties_follow_the_rule_of_v1() -> None:
    equal = [np.array([-1.0], np.float32), np.array([-1.0], np.float32)]
    assert score_choices(equal, (" 1", " 2"), 0, SUM).prediction == 0
    assert score_choices(equal, (" 1", " 2"), 0, SUM, LAST).prediction == 1
    # The sum is not normalized: two tokens of -0.7 lose against one of -1.
    longer = [np.array([-0.7, -0.7], np.float32), np.array([-1.0], np.float32)]
    assert score_choices(longer, ("a", "b"), None, SUM).prediction == 1
    assert score_choices(longer, ("a", "b"), None, MEAN).prediction == 0


def test_texts_programs_and_exams_score_by_their_rules() -> None:
    record = {"inputs": "", "meta": {"id": 0}}
    records: dict[str, dict[Key, Record]] = {
        "CheGeKa": {0: {**record, "outputs": "Пушкин;Александр Пушкин"}, 1: {**record, "outputs": "Да"}},
        "SimpleAr": {0: {**record, "outputs": "12"}},
        "ruHumanEval": {0: {**record, "outputs": ["1", "2"]}},
        "USE": {
            0: {"inputs": {}, "outputs": "слово", "meta": {"id": 0, "type": "text", "id_task": "4", "variant": 0}},
            1: {
                "inputs": {},
                "outputs": "1,2",
                "meta": {"id": 1, "type": "x", "id_task": "2", "variant": 1, "score": 2},
            },
        },
        "ruHHH": {
            i: {"inputs": {}, "outputs": "1", "meta": {"id": i, "criteria": group}}
            for i, group in enumerate(("honest", "honest", "helpful"))
        },
        "LCS": {0: {**record, "outputs": ""}},
    }
    submitted: dict[str, dict[Key, Json]] = {
        "CheGeKa": {0: "Это Пушкин!", 1: ""},
        "SimpleAr": {0: " 12\n"},
        "ruHumanEval": {0: [["1", "2"]] + [["1", "3"]] * 9},
        "USE": {0: "Слово.", 1: "2,1"},
        "ruHHH": {0: "1", 1: "1", 2: "2"},
        "LCS": {0: "3"},
    }
    scores = score_submission(submitted, records, "v1")
    # Two words against one: 2 * 1 / 3; nothing against a word: 0.
    assert scores["CheGeKa"] == pytest.approx({"em": 0.0, "f1": 1 / 3})
    assert scores["SimpleAr"] == {"acc": 1.0}
    # One of ten passes: 1/10, 1 - C(9,5)/C(10,5) = 1/2, 1.
    assert scores["ruHumanEval"] == pytest.approx({"pass@1": 0.1, "pass@5": 0.5, "pass@10": 1.0})
    assert scores["USE"] == pytest.approx({"grade_norm": 1 / 34})  # one point in each of two variants
    # Two of three records, not the mean of two groups.
    assert scores["ruHHH"] == pytest.approx({"acc": 2 / 3, "acc.honest": 1.0, "acc.helpful": 0.0})
    assert "LCS" not in scores  # its right answers are not published: never 0
    assert math.isnan(expected_total({}, "v1"))
