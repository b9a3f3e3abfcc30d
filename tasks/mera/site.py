"""Submissions to MERA's site: exporting a run's answers, and checking a zip as the site does.

Arrives: a results folder, or a zip and the test records if the user has them.  Leaves: a zip, or
the `Checked` of one.  It deliberately does not know models.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, parse_json
from miron_jax.files.regular import read_regular
from miron_jax.metrics.detox import DETOX
from miron_jax.tasks.mera.metrics import ETHICS, EXAM, MCC
from miron_jax.tasks.mera.records import check_keys, check_record
from miron_jax.tasks.mera.scoring import counted, expected_total, score_submission
from miron_jax.tasks.mera.submission import (
    Key,
    Submission,
    key_of,
    read_submission,
    write_submission,
)
from miron_jax.tasks.mera.suite import SUITE_NAME, locate
from miron_jax.tasks.mera.table import DataSet, Version, data_sets

Records = dict[str, dict[Key, JsonObject]]


class Exported(NamedTuple):
    written: list[str]  # data sets
    # data sets without answers in the run: the site refuses a submission without them
    absent: list[str]


def export(folder: Path, path: Path, version: Version) -> Exported:
    """Writes the zip of a run's answers.  Raises InputError if the run has none, or lacks the
    answer to a record."""
    suite = SUITE_NAME[version]
    tasks = _results(folder)
    answers: dict[str, dict[Key, Json]] = {}
    meta: dict[str, dict[Key, JsonObject]] = {}
    absent = []
    for dataset in data_sets(version):
        task = tasks.get(f"{suite}/{dataset.config}")
        if task is None:
            absent.append(dataset.name)
            continue
        if "limit" in task:
            raise InputError(
                f"{folder}: {suite}/{dataset.config} was scored with --limit={task['limit']}, "
                "expected every record: run eval without --limit"
            )
        answers[dataset.name], meta[dataset.name] = _answers(
            folder / "samples" / suite / f"{dataset.config}.jsonl", dataset, version
        )
    if not answers:
        raise InputError(
            f"{folder}: no task of {suite} there, expected a run of miron-jax eval "
            f"--tasks={suite}; --mera_version names another version"
        )
    logs: dict[str, bytes] = {}
    if version == "v1.2":
        logs = _logs(folder, version, answers)
    write_submission(path, version, answers, meta, logs)
    return Exported(list(answers), absent)


def _logs(folder: Path, version: Version, answers: Mapping[str, object]) -> dict[str, bytes]:
    """Files of v1.2's logs_public.zip: the run's results, and its samples of data sets whose right
    answers are published."""
    logs = {"results.json": read_regular(folder / "results.json")}
    for dataset in data_sets(version):
        if dataset.name in answers and dataset.rules(version).is_open:
            samples = folder / "samples" / SUITE_NAME[version]
            logs[f"{dataset.config}.jsonl"] = read_regular(samples / f"{dataset.config}.jsonl")
    return logs


def _lines(path: Path) -> list[bytes]:
    """Lines of a JSON lines file; str.splitlines would also split at separators inside texts."""
    return read_regular(path).rstrip(b"\n").split(b"\n")


def _results(folder: Path) -> JsonObject:
    try:
        tasks = parse_json(read_regular(folder / "results.json"))["tasks"]
        return {name: task for name, task in tasks.items() if "kind" in task}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{folder}/results.json cannot be read ({error!s:.80}): name a results folder of eval "
            "with --output"
        ) from None


def _answers(
    path: Path, dataset: DataSet, version: Version
) -> tuple[dict[Key, Json], dict[Key, JsonObject]]:
    """Answers by record, ordered by key, and the meta of records that need more than their key."""
    answers = {}
    meta = {}
    for number, line in enumerate(_lines(path), start=1):
        try:
            sample = parse_json(line)
            answer = _answer(sample)
            key = key_of(dataset, sample["meta"])
            if dataset.match is EXAM:
                meta[key] = {name: sample["meta"][name] for name in ("id", "id_task", "variant")}
            # half a surrogate pair is no text
            json.dumps([answer, meta.get(key)], ensure_ascii=False).encode()
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error!s:.60}"
            raise InputError(
                f"{path}, line {number}: no sample that can be read ({reason}): run eval again"
            ) from None
        if answer is None:
            raise InputError(
                f"{path}, line {number}: no answer, as the model answered NaN or its program was "
                "not judged: run the same eval again"
            )
        answers[key] = _shaped(answer, dataset, version)
    return dict(sorted(answers.items())), meta


def _answer(sample: JsonObject) -> Json:
    if "programs" in sample:
        answers = [program.get("answers") for program in sample["programs"]]
        return None if None in answers else answers
    if sample["prediction"] is not None:
        return sample["options"][sample["prediction"]]["text"].strip()
    if sample["generated"] is None or sample.get("ended") == "nan":
        return None
    return sample["generated"].strip()


def _shaped(answer: Json, dataset: DataSet, version: Version) -> Json:
    """An answer in the form that the site expects."""
    if dataset.kind == "program":
        return answer if version == "v1" else [answer]
    if dataset.over_all is MCC:
        return dict.fromkeys(ETHICS, answer)
    if dataset.config == "multiq" and version == "v1":
        return [{"label": "passage", "length": len(answer), "offset": -1, "segment": answer}]
    return answer


class SiteReport(NamedTuple):
    """What the site would report of a submission."""

    notes: list[str]
    rows: list[tuple[str, str, str, str]]  # data set, records, state, numbers
    faults: list[str]  # none: the site accepts it
    total: str


def check(path: Path, version: Version, data_dir: Path | None) -> SiteReport:
    """Checks a zip, and scores it if `data_dir` holds the records.  Raises InputError for a file
    that is no zip."""
    records: Records = {}
    if data_dir is not None:
        records = read_records(locate(version, data_dir, False), version)
    read = read_submission(path, version, records)
    if {fault.name for fault in read.faults.values()} == {"unreadable_zip"}:
        raise InputError(next(iter(read.faults.values())).detail)
    notes = []
    for dataset in data_sets(version):
        tests = dataset.rules(version).tests
        if dataset.name in records and tests not in (None, len(records[dataset.name])):
            notes.append(
                f"{dataset.config}/test.jsonl has {len(records[dataset.name])} records, MERA has "
                f"{tests}: the site asks for those"
            )
    numbers = score_submission(read.answers, records, version)
    return SiteReport(
        notes,
        rows=_rows(read, numbers, records, version),
        faults=[f"{name}: {fault.name}: {fault.detail}" for name, fault in read.faults.items()],
        total=_total(read, numbers, records, version),
    )


def read_records(folder: Path, version: Version) -> Records:
    """The test records of every data set in the folder."""
    records: Records = {}
    for dataset in data_sets(version):
        path = folder / dataset.config / "test.jsonl"
        if path.is_file():
            try:
                lines = [parse_json(line, of_records=True) for line in _lines(path)]
                for line in lines:
                    check_record(line, dataset)
            except ValueError as error:
                raise InputError(
                    f"{path}: no records that can be read ({error!s:.80}): fetch the file again"
                ) from None
            check_keys(dataset, lines)
            records[dataset.name] = {key_of(dataset, line["meta"]): line for line in lines}
    return records


Numbers = Mapping[str, Mapping[str, float]]
_MISSING = {"v1": "missing data sets are left out", "v1.2": "a missing data set counts 0"}


def _rows(
    read: Submission, numbers: Numbers, records: Records, version: Version
) -> list[tuple[str, str, str, str]]:
    rows = []
    for dataset in data_sets(version):
        name = dataset.name
        answers = str(len(read.answers[name])) if name in read.answers else ""
        if name in read.faults:
            rows.append((name, answers, read.faults[name].name, ""))
        else:
            rows.append((name, answers, "fine", _numbers_text(dataset, numbers, records)))
    return rows


def _numbers_text(dataset: DataSet, numbers: Numbers, records: Records) -> str:
    if dataset.name in numbers:
        return ", ".join(f"{name} {value:.4f}" for name, value in numbers[dataset.name].items())
    if dataset.match is DETOX:
        return "J wants three classifiers, which are not here"
    if dataset.name in records:
        return "right answers are not published"
    return "cannot be scored here: no records at hand"


def _total(read: Submission, numbers: Numbers, records: Records, version: Version) -> str:
    answered = [name for name in counted(version) if name in read.answers]
    unknown = [name for name in answered if name not in numbers]
    if unknown or numbers.keys().isdisjoint(counted(version)):
        have = "not published" if records else "not at hand: name the records with --data_dir"
        return (
            f"total_score: none, right answers of {len(unknown)} data sets that it answers are "
            f"{have}"
        )
    return (
        f"total_score: {expected_total(numbers, version):.6f} by {version}'s rule, "
        f"{_MISSING[version]}"
    )
