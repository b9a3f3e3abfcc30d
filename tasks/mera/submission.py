"""MERA's submissions: a flat zip with one JSON file for each data set.

Arrives: a zip, or answers.  Leaves: answers by record and faults under the site's names, or a zip.
It deliberately does not know prompts or metrics.

    v1      {"data": {"test": [{"outputs": X, "meta": {"id": 0}}, ...]}}, every id of the test
            records once
    X       a text; ruEthics: a label by category; MultiQ in v1: a list of spans; programs: results
            by generation and test
    ruTiE   its keys are dialog_id and question_id; v1 wraps the records in one more list

A fault voids its data set; the others still count.  The site's `no_id` means a test record without
an answer.  `duplicate_id` and `unknown_id` are faults of this program only: the site uses the last
answer, or none.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from miron_jax.errors import InputError
from miron_jax.files.durable import write_whole
from miron_jax.files.readers import Json, JsonObject, are_texts, parse_json
from miron_jax.files.regular import open_regular
from miron_jax.tasks.mera.metrics import ETHICS, EXAM
from miron_jax.tasks.mera.table import DataSet, Version, data_sets

Key = int | tuple[int, int]  # the id of a record; ruTiE: its dialog_id and question_id
# What zipfile raises for damaged zips; RuntimeError includes NotImplementedError.
_TORN = (zipfile.BadZipFile, OSError, EOFError, RuntimeError, ValueError, zlib.error)
GENERATIONS = 10  # programs for each problem
MOST_BYTES = 16 << 20  # of an unpacked file: the published ones stay below 2 MB
# Other methods cannot be stopped when they unpack to more than they announce.
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a data set of a submission does not count."""

    name: str  # the site's
    detail: str  # what, where, expected


@dataclass(frozen=True, slots=True)
class Submission:
    answers: dict[str, dict[Key, Json]]  # by data set and record
    faults: dict[str, Fault]  # by data set


class _Invalid(Exception):
    def __init__(self, name: str, detail: str) -> None:
        super().__init__(detail)
        self.fault = Fault(name, detail)


def read_submission(
    path: Path, version: Version, test_keys: Mapping[str, Collection[Key]]
) -> Submission:
    """The answers in a zip, and its faults.  `test_keys`: keys of the test records by data set;
    without them the number of answers must be the published number of records."""
    try:
        with io.BufferedReader(open_regular(path)) as file, zipfile.ZipFile(file) as archive:
            members: dict[str, zipfile.ZipInfo | None] = {}
            for member in archive.infolist():
                # None: named twice
                members[member.filename] = None if member.filename in members else member
            faults: dict[str, Fault] = {}
            answers: dict[str, dict[Key, Json]] = {}
            for dataset in data_sets(version):
                try:
                    content = _member(archive, members, dataset.name)
                    answers[dataset.name] = _answers(
                        content, dataset, version, test_keys.get(dataset.name)
                    )
                except _Invalid as error:
                    faults[dataset.name] = error.fault
            return Submission(answers, faults)
    except FileNotFoundError:
        raise InputError(f"{path} is missing: name the zip of a submission") from None
    except _TORN as error:
        reason = f"unreadable_zip: {path} is no zip that can be read ({error!s:.120})"
        return Submission(
            {}, {dataset.name: Fault("unreadable_zip", reason) for dataset in data_sets(version)}
        )


def write_submission(
    path: Path,
    version: Version,
    answers: Mapping[str, Mapping[Key, Json]],
    meta: Mapping[str, Mapping[Key, JsonObject]],
    logs: Mapping[str, bytes] | None = None,
) -> None:
    """Writes a zip of the answers, in the published order of data sets; the same answers give the
    same bytes.

    `meta`: by record, if it holds more than the key.  `logs`: files of v1.2's logs_public.zip.
    """
    files: dict[str, bytes] = {}
    for dataset in data_sets(version):
        if dataset.name in answers:
            record_meta = meta.get(dataset.name, {})
            records: list[Json] = [
                {"outputs": output, "meta": record_meta.get(key) or _meta(key)}
                for key, output in answers[dataset.name].items()
            ]
            if dataset.kind == "dialogue" and version == "v1":
                records = [records]
            text = json.dumps({"data": {"test": records}}, ensure_ascii=False, indent=1)
            files[f"{dataset.name}.json"] = text.encode()
    if logs:
        files["logs_public.zip"] = _zipped(logs)
    write_whole(path, _zipped(files))


def _zipped(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(
                zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED
            )
    return packed.getvalue()


def key_of(dataset: DataSet, meta: Mapping[str, Json]) -> Key:
    """The key of a record.  Raises KeyError if it is missing, TypeError if it is no whole
    number."""
    if dataset.kind == "dialogue":
        return _whole(meta["dialog_id"]), _whole(meta["question_id"])
    return _whole(meta["id"])


def _whole(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is no whole number")
    return value


def _meta(key: Key) -> JsonObject:
    if isinstance(key, tuple):
        return {"dialog_id": key[0], "question_id": key[1]}
    return {"id": key}


def _member(
    archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo | None], name: str
) -> bytes:
    member = members.get(f"{name}.json")
    if member is None and f"{name}.json" in members:
        raise _Invalid("unreadable_file", f"{name}.json: is twice in the zip, expected once")
    if member is None:
        hint = ""
        for other in members:
            if other.rpartition(".")[0] == name:
                raise _Invalid("extension", f"{other}: expected {name}.json")
            if other.endswith(f"/{name}.json"):
                hint = f", found {other}: put the files at the top of the zip"
        raise _Invalid("no_task", f"{name}.json is not in the zip{hint}")
    if member.compress_type not in _METHODS:
        raise _Invalid(
            "unreadable_file",
            f"{name}.json: packed by method {member.compress_type}, expected stored or deflate",
        )
    try:
        with archive.open(member) as file:
            content = file.read(MOST_BYTES + 1)  # the size that it announces may be wrong
            if len(content) <= MOST_BYTES:
                return content
    except _TORN as error:
        raise _Invalid(
            "unreadable_file", f"{name}.json: cannot be unpacked ({error!s:.80})"
        ) from None
    raise _Invalid(
        "unreadable_file",
        f"{name}.json: unpacks to more than {MOST_BYTES} bytes, expected that at most",
    )


def _answers(
    content: bytes, dataset: DataSet, version: Version, test_keys: Collection[Key] | None
) -> dict[Key, Json]:
    file = f"{dataset.name}.json"
    answers: dict[Key, Json] = {}
    for i, record in enumerate(_records(content, dataset, version)):
        at = f"{file}, record {i}"
        if not isinstance(record, Mapping) or "outputs" not in record:
            raise _Invalid(
                "no_outputs_field_for_doc", f'{at}: expected {{"outputs": ..., "meta": {{...}}}}'
            )
        if not isinstance(record.get("meta"), Mapping):
            raise _Invalid("no_meta_field_for_doc", f"{at}: no meta beside outputs")
        try:
            key = key_of(dataset, record["meta"])
        except (KeyError, TypeError) as error:
            names = "dialog_id and question_id" if dataset.kind == "dialogue" else "id"
            raise _Invalid(
                "no_id_field_for_doc", f"{at}: meta has no {names} that is a whole number ({error})"
            ) from None
        if dataset.match is EXAM and not {"id_task", "variant"} <= record["meta"].keys():
            raise _Invalid(
                "no_meta_field_for_doc", f"{at}: meta has no id_task and variant beside its id"
            )
        if key in answers:
            raise _Invalid(
                "duplicate_id", f"{at}: record {_named(key)} is answered twice, expected once"
            )
        answers[key] = _checked(record["outputs"], dataset, version, f"{at} ({_named(key)})")
    if test_keys is not None:
        _check_keys(answers, test_keys, file)
    elif (tests := dataset.rules(version).tests) not in (None, len(answers)):
        raise _Invalid(
            "no_id", f"{file}: {len(answers)} records, expected {tests}, one for each test record"
        )
    return answers


def _check_keys(answers: Mapping[Key, Json], test_keys: Collection[Key], file: str) -> None:
    if unanswered := [key for key in test_keys if key not in answers]:
        raise _Invalid(
            "no_id",
            f"{file}: record {_named(unanswered[0])} has no answer, {len(unanswered)} of "
            f"{len(test_keys)} have none",
        )
    known_keys = set(test_keys)
    for key in answers:
        if key not in known_keys:
            raise _Invalid(
                "unknown_id",
                f"{file}: record {_named(key)} is none of the {len(test_keys)} test records",
            )


def _named(key: Key) -> str:
    return ", ".join(f"{name} {number}" for name, number in _meta(key).items())


def _records(content: bytes, dataset: DataSet, version: Version) -> list[Json]:
    file = f"{dataset.name}.json"
    try:
        document = parse_json(content.decode("utf-8"))
    except ValueError as error:
        raise _Invalid("unreadable_file", f"{file}: no JSON in UTF-8 ({error!s:.80})") from None
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, Mapping):
        raise _Invalid("no_data_field", f'{file}: expected {{"data": {{"test": [...]}}}}')
    test = data.get("test")
    if not isinstance(test, list):
        raise _Invalid("no_split", f'{file}: "data" has no list under "test"')
    if dataset.kind == "dialogue" and version == "v1":
        if len(test) != 1 or not isinstance(test[0], list):
            raise _Invalid(
                "no_split", f'{file}: v1 wants one list of records within the list under "test"'
            )
        return test[0]
    return test


def _checked(output: Json, dataset: DataSet, version: Version, at: str) -> Json:
    """The answer itself.  Raises a fault if it does not have the form that its data set
    requires."""
    if dataset.config == "ruethics":
        if not isinstance(output, dict):
            raise _type_error(output, at, "a label for each of " + ", ".join(ETHICS))
        if set(output) != set(ETHICS) or not are_texts(list(output.values())):
            raise _Invalid(
                "doc_parse_output_error", f"{at}: expected the texts of {', '.join(ETHICS)}"
            )
    elif dataset.config == "multiq" and version == "v1":
        if not isinstance(output, list):
            raise _type_error(output, at, "a list of spans")
        if (
            not output
            or not isinstance(output[0], dict)
            or not isinstance(output[0].get("segment"), str)
        ):
            raise _Invalid("doc_parse_output_error", f'{at}: expected [{{"segment": "..."}}]')
    elif dataset.kind == "program":
        if not isinstance(output, list):
            raise _type_error(output, at, "results of the tests, a list for each generation")
        if version == "v1.2" and len(output) != 1:
            raise _Invalid(
                "doc_parse_output_error", f"{at}: expected one list, of {GENERATIONS} generations"
            )
        results = output[0] if version == "v1.2" else output
        if (
            not isinstance(results, list)
            or len(results) != GENERATIONS
            or not all(map(_is_run, results))
        ):
            raise _Invalid(
                "doc_parse_output_error",
                f"{at}: expected {GENERATIONS} generations, a list of texts each",
            )
    elif not isinstance(output, str):
        raise _type_error(output, at, "a text")
    return output


def _is_run(run: Json) -> bool:
    """Whether it is the result of one program: a text for each test, null if it failed (so MERA's
    harness writes), or one text for all tests, such as "timed out"."""
    if isinstance(run, list):
        return all(isinstance(result, str | None) for result in run)
    return isinstance(run, str)


def _type_error(output: Json, at: str, expected: str) -> _Invalid:
    return _Invalid(
        "doc_output_type_error", f"{at}: found a {type(output).__name__}, expected {expected}"
    )
