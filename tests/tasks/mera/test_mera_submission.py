"""MERA's submissions: the published zip scores exactly its published response, and the site's faults are found.

shared/data/mera/golden_submission holds the files that the site's authors published at commit 12daebd of ai-forever/MERA.
"""

import csv
import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

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
from miron_jax.tasks.mera.submission import Key, Submission, read_submission, write_submission
from miron_jax.tasks.mera.table import DATA_SETS, Version, data_sets
from tests.support.tolerances import FLOAT64

Records = dict[Key, JsonObject]


def records_of(golds: list[Any], metas: list[JsonObject], inputs: list[JsonObject] | None = None) -> Records:
    rows = enumerate(zip(golds, metas, inputs or [{}] * len(golds), strict=True))
    return {i: {"inputs": given, "outputs": gold, "meta": {"id": i, **meta}} for i, (gold, meta, given) in rows}


def golden_records(folder: Path) -> dict[str, Records]:
    """Right answers of the three open data sets whose metrics need no classifier, by the site's record ids (spec section C):
    ruHateSpeech counts its rows; ruHHH's file holds harmless 58, honest 61, helpful 59, its ids honest first, then harmless;
    ruEthics asks its 645 texts three times."""
    tables = ((folder / f"{name}_gold.csv").read_text(encoding="utf-8") for name in ("ruHateSpeech", "ruHHH"))
    hate, hhh = (list(csv.DictReader(io.StringIO(text, newline=""))) for text in tables)
    parts = {"honest": hhh[58:119], "harmless": hhh[:58], "helpful": hhh[119:]}
    ethics = json.loads((folder / "ruEthics_gold.json").read_text(encoding="utf-8"))
    labels = [{category: str(row[category]) for category in ETHICS} for row in ethics]
    groups: list[JsonObject] = [{"target_group": row["target_group"]} for row in hate]
    return {
        "ruHateSpeech": records_of([row["outputs"] for row in hate], [{}] * len(hate), groups),
        "ruHHH": records_of(
            [row["lb"] for rows in parts.values() for row in rows],
            [{"criteria": name} for name, rows in parts.items() for _ in rows],
        ),
        "ruEthics": records_of(labels * 3, [{"question": question} for question in QUESTIONS for _ in labels]),
    }


def test_the_published_submission_scores_its_published_response(shared_data: Path) -> None:
    folder = shared_data / "mera" / "golden_submission"
    records = golden_records(folder)
    submission = read_submission(folder / "sample_submission.zip", "v1", {key: list(by) for key, by in records.items()})
    assert not submission.faults
    sizes = {"PARus": 500, "ruDetox": 800, "ruEthics": 1935, "ruHateSpeech": 265}
    assert {name: len(submission.answers[name]) for name in sizes} == sizes
    published = json.loads((folder / "sample_response.json").read_text(encoding="utf-8"))["results"]
    scores = score_submission(submission.answers, records, "v1")
    assert sum(map(len, scores.values())) == 26
    for name, numbers in scores.items():
        assert numbers == pytest.approx(published[name], abs=FLOAT64, rel=0)
    total = published.pop("total_score")
    assert expected_total(published, "v1") == total
    checked = check(folder / "sample_submission.zip", "v1", None)  # without records
    assert (checked.faults, "cannot be scored here" in checked.rows[0][3]) == ([], True)


def test_the_total_treats_missing_data_sets_by_the_versions_rule() -> None:
    numbers = {"RCB": {"acc": 0.5, "f1_macro": 0.3}, "ruMMLU": {"acc": 0.8, "acc.law": 0.1}, "ruHHH": {"acc": 1.0}}
    # v1 means over what is there, the diagnostic ruHHH apart: ((0.5 + 0.3) / 2 + 0.8) / 2.
    # v1.2 counts 15 data sets, ruMMLU is open there and does not count: 0.4 / 15.
    cases: list[tuple[Version, float, int]] = [("v1", 0.6, 17), ("v1.2", 0.4 / 15, 15)]
    for version, expected, num_counted in cases:
        assert expected_total(numbers, version) == pytest.approx(expected)
        assert sum(dataset.counts(version) for dataset in DATA_SETS) == num_counted
    assert math.isnan(expected_total({}, "v1"))


EXAM: dict[str, Records] = {"USE": {i: {"id": i, "id_task": "4", "variant": 0} for i in range(900)}}


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
    path, expected = tmp_path / "out.zip", answers(version)
    write_submission(path, version, expected, EXAM)
    keys = {name: list(by_key) for name, by_key in expected.items()}
    assert read_submission(path, version, keys) == Submission(expected, {})
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


def document(*records: Json) -> JsonObject:
    return {"data": {"test": list(records)}}


A, B, C, D = ({"outputs": "1", "meta": {"id": i}} for i in range(4))


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        (b"\xff\xfe", "unreadable_file", "no JSON in UTF-8"),
        ([], "no_data_field", '{"data": {"test": [...]}}'),
        ({"data": {"train": []}}, "no_split", 'no list under "test"'),
        (document({"meta": {"id": 0}}), "no_outputs_field_for_doc", "record 0"),
        (document({"outputs": "1"}), "no_meta_field_for_doc", "no meta"),
        (document({"outputs": "1", "meta": {}}), "no_id_field_for_doc", "no id"),
        (document({"outputs": "1", "meta": {"id": "0"}}), "no_id_field_for_doc", "no whole number"),
        (document(A, C), "no_id", "id 1 has no answer, 1 of 3"),
        (document(A, B, C, D), "unknown_id", "id 3 is none of the 3"),
        (document(A, A, B), "duplicate_id", "id 0 is answered twice"),
        (document({**A, "outputs": ["1"]}), "doc_output_type_error", "found a list, expected a text"),
        (document({**A, "outputs": 1}), "doc_output_type_error", "found a int, expected a text"),
    ],
)
def test_a_fault_voids_its_data_set_alone_under_the_sites_name(
    content: Json, name: str, says: str, without_parus: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "out.zip"
    path.write_bytes(without_parus)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("PARus.json", content if isinstance(content, bytes) else json.dumps(content))
    submission = read_submission(path, "v1", {"PARus": [0, 1, 2]})
    assert list(submission.faults) == ["PARus"]
    assert submission.faults["PARus"].name == name
    assert says in submission.faults["PARus"].detail
    assert len(submission.answers) == 20


FAILED = [["1", None]] * 9 + ["timed out"]


@pytest.mark.parametrize(
    ("version", "data_set", "output", "name"),
    [
        ("v1", "ruEthics", "1", "doc_output_type_error"),
        ("v1", "ruEthics", {"virtue": "1"}, "doc_parse_output_error"),
        ("v1", "MultiQ", "а", "doc_output_type_error"),
        ("v1", "MultiQ", [[]], "doc_parse_output_error"),
        ("v1", "ruHumanEval", "1", "doc_output_type_error"),
        ("v1", "ruHumanEval", ["1"], "doc_parse_output_error"),
        ("v1", "ruHumanEval", [], "doc_parse_output_error"),
        ("v1", "ruHumanEval", [["1"]] * 9, "doc_parse_output_error"),
        ("v1", "ruHumanEval", [[1]] * 10, "doc_parse_output_error"),
        ("v1", "ruHumanEval", FAILED, None),  # as MERA writes failed programs
        ("v1.2", "ruHumanEval", [FAILED], None),
        ("v1.2", "ruCodeEval", [], "doc_parse_output_error"),
        ("v1.2", "ruCodeEval", [[]], "doc_parse_output_error"),
        ("v1.2", "ruCodeEval", [[["1"]] * 10, []], "doc_parse_output_error"),
    ],
)
def test_answers_that_are_not_texts_have_the_form_of_their_data_set(
    version: Version, data_set: str, output: Json, name: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "out.zip"
    write_submission(path, version, {data_set: {0: output}}, {})
    submission = read_submission(path, version, {data_set: [0]})
    if name is None:
        assert submission.answers[data_set] == {0: output}
    else:
        assert submission.faults[data_set].name == name


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
    path.write_bytes(packed.getvalue())
    assert says in read_submission(path, "v1", {}).faults["BPS"].detail
    path.write_bytes(
        packed.getvalue().replace(size.to_bytes(4, "little"), (10).to_bytes(4, "little"))
    )  # claims 10 bytes
    fault = read_submission(path, "v1", {}).faults["BPS"]
    assert fault.name == "unreadable_file"
    assert says in fault.detail or method == zipfile.ZIP_DEFLATED


def test_no_zip_and_missing_or_repeated_files_are_faults(tmp_path: Path) -> None:
    path = tmp_path / "out.zip"
    path.write_bytes(b"no zip")
    assert {fault.name for fault in read_submission(path, "v1", {}).faults.values()} == {"unreadable_zip"}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("BPS.txt", "")
        archive.writestr("mine/LCS.json", "")
        archive.writestr("PARus.json", json.dumps(document(*({**A, "meta": {"id": i}} for i in range(400)))))
        archive.writestr("RCB.json", "{}")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("RCB.json", "{}")
    faults = read_submission(path, "v1", {}).faults
    assert (faults["BPS"].name, faults["LCS"].name) == ("extension", "no_task")
    assert "at the top of the zip" in faults["LCS"].detail
    assert "400 records, expected 500" in faults["PARus"].detail  # 400 is what v1's README says
    assert "is twice in the zip" in faults["RCB"].detail
    with pytest.raises(InputError, match=r"none\.zip is missing"):
        read_submission(tmp_path / "none.zip", "v1", {})


def test_metrics_over_all_records_by_hand() -> None:
    for weights in (np.ones(4), np.full(4, 3.0)):  # every record thrice is no other number
        # Labels a, b: a has tp 2, fp 1, fn 0 -> 4/5; b has tp 1, fp 0, fn 1 -> 2/3; c is nowhere.
        assert macro_f1([*"aaba"], [*"aabb"], weights) == pytest.approx((4 / 5 + 2 / 3) / 2)
        # c is among the answers alone: a 1, b 2/3 and c 0.
        assert macro_f1([*"aabc"], [*"aabb"], weights) == pytest.approx((1 + 2 / 3 + 0) / 3)
        # tp 2, tn 1, fp 1, fn 0: (2 - 0) / sqrt(3 * 2 * 2 * 1).
        gold = np.array([1, 1, 0, 0], bool)
        assert matthews(np.array([1, 1, 0, 1], bool), gold, weights) == pytest.approx(2 / 12**0.5)
        assert matthews(np.ones(4, bool), gold, weights) == 0.0
    assert math.isnan(grade_norm([], np.ones(0))["grade_norm"])


def test_metrics_of_one_record_by_hand() -> None:
    assert token_f1("да да нет", ["да да"]) == pytest.approx(2 * 2 / 5)  # both of the two count
    assert pass_at(5, 10, 5) == pytest.approx(1 - 1 / 252)  # all five of five drawn ones may be the wrong ones
    assert pass_at(5, 10, 6) == 1.0
    for answer, gold, kind, number, points in (
        ("2,1", "1,2", "x", "2", 1), ("1,2,3", "1,2", "x", "2", 0), ("1", "1,2", "x", "2", 0), ("1,3", "1,2", "x", "2", 0),
        ("1,2,5", "1,2,3", "x", "16", 2), ("1,2,3,4", "1,2,3", "x", "16", 2),  # a further wrong number costs a point
        ("1,2,3", "1,3,3", "matching", "8", 2),
    ):  # fmt: skip
        assert exam_points(answer, gold, kind, number) == points, (answer, gold)
    equal = [np.array([-1.0], np.float32), np.array([-1.0], np.float32)]
    assert score_choices(equal, (" 1", " 2"), 0, SUM).prediction == 0
    assert score_choices(equal, (" 1", " 2"), 0, SUM, LAST).prediction == 1  # ties by the rule of v1
    # The sum is not normalized: two tokens of -0.7 lose against one of -1.
    longer = [np.array([-0.7, -0.7], np.float32), np.array([-1.0], np.float32)]
    assert [score_choices(longer, ("a", "b"), None, rule).prediction for rule in (SUM, MEAN)] == [1, 0]


def test_texts_programs_and_exams_score_by_their_rules() -> None:
    first = {"type": "text", "id_task": "4", "variant": 0}
    second = {"type": "x", "id_task": "2", "variant": 1, "score": 2}
    cases: dict[str, tuple[list[Any], list[JsonObject], list[Any], Any]] = {
        # Two words against one: 2 * 1 / 3; nothing against a word: 0.
        "CheGeKa": (["Пушкин;Александр Пушкин", "Да"], [{}, {}], ["Это Пушкин!", ""], {"em": 0.0, "f1": 1 / 3}),
        "SimpleAr": (["12"], [{}], [" 12\n"], {"acc": 1.0}),
        # One of ten passes: 1/10, 1 - C(9,5)/C(10,5) = 1/2, 1.
        "ruHumanEval": (
            [["1", "2"]], [{}], [[["1", "2"]] + [["1", "3"]] * 9], {"pass@1": 0.1, "pass@5": 0.5, "pass@10": 1.0},
        ),
        "USE": (["слово", "1,2"], [first, second], ["Слово.", "2,1"], {"grade_norm": 1 / 34}),  # a point in each variant
        # Two of three records, not the mean of two groups.
        "ruHHH": (
            ["1"] * 3, [{"criteria": group} for group in ("honest", "honest", "helpful")], ["1", "1", "2"],
            {"acc": 2 / 3, "acc.honest": 1.0, "acc.helpful": 0.0},
        ),
        "LCS": ([""], [{}], ["3"], None),  # its right answers are not published: never 0
    }  # fmt: skip
    records = {name: records_of(golds, metas) for name, (golds, metas, _, _) in cases.items()}
    submitted: dict[str, dict[Key, Json]] = {name: dict(enumerate(said)) for name, (_, _, said, _) in cases.items()}
    scores = score_submission(submitted, records, "v1")
    assert scores.keys() == cases.keys() - {"LCS"}
    for name, numbers in scores.items():
        assert numbers == pytest.approx(cases[name][3]), name
