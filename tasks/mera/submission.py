"""MERA's submissions: a flat zip with one JSON file a data set.

Arrives: a zip, or answers.  Leaves: answers by record, faults under the site's own names; a zip.  It deliberately does not
know prompts or metrics.

    v1      {"data": {"test": [{"outputs": X, "meta": {"id": 0}}, ...]}}, every id of the test records once
    X       a text; ruEthics: a label a category; MultiQ in v1: a list of spans; programs: results by generation and test
    ruTiE   keyed by dialog_id and question_id instead; v1 wraps the records in one more list

One fault voids its data set; the others still count.  The site's `no_id` is for a record that is asked and not answered;
`duplicate_id` and `unknown_id` are ours, where the site would take the last one or none.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from miron_jax.errors import InputError
from miron_jax.files.readers import parse_json
from miron_jax.tasks.mera.metrics import ETHICS, EXAM
from miron_jax.tasks.mera.table import DataSet, Version, data_sets

Key = int | tuple[int, int]  # a record's id; of ruTiE dialog_id and question_id
_TORN = (
    zipfile.BadZipFile,
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    NotImplementedError,
    zlib.error,
)  # by torn zips
GENERATIONS = 10  # programs that a problem has
MOST_BYTES = 16 << 20  # that a file of a submission may unpack to: the published ones stay below 2 MB
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # others inflate beyond what they say before they can be stopped


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a data set of a submission does not count."""

    name: str  # as the site names it
    detail: str  # what, where, expected


@dataclass(frozen=True, slots=True)
class Submission:
    answers: dict[str, dict[Key, Any]]  # by data set and record
    faults: dict[str, Fault]  # by data set


class _Found(Exception):
    def __init__(self, name: str, detail: str) -> None:
        super().__init__(detail)
        self.fault = Fault(name, detail)


def read_submission(path: Path, version: Version, asked: Mapping[str, Sequence[Key]]) -> Submission:
    """The answers of a zip, and what is wrong with it.  `asked`: keys of the test records, where they are at hand; elsewhere
    their published number is compared."""
    try:
        with zipfile.ZipFile(path) as archive:
            members: dict[str, zipfile.ZipInfo | None] = {}
            for member in archive.infolist():
                members[member.filename] = None if member.filename in members else member  # None: named twice
            faults: dict[str, Fault] = {}
            answers: dict[str, dict[Key, Any]] = {}
            for own in data_sets(version):
                try:
                    content = _member(archive, members, own.name)
                    answers[own.name] = _answers(content, own, version, asked.get(own.name))
                except _Found as found:
                    faults[own.name] = found.fault
            return Submission(answers, faults)
    except FileNotFoundError:
        raise InputError(f"{path} is missing: name the zip of a submission") from None
    except _TORN as error:
        reason = f"unreadable_zip: {path} is no zip that can be read ({error!s:.120})"
        return Submission({}, {own.name: Fault("unreadable_zip", reason) for own in data_sets(version)})


def write_submission(
    path: Path,
    version: Version,
    answers: Mapping[str, Mapping[Key, Any]],
    meta: Mapping[str, Mapping[Key, dict[str, Any]]],
    logs: Mapping[str, bytes] | None = None,
) -> None:
    """A zip of these answers, in the published order of data sets; the same answers give the same bytes.

    `meta`: what stands beside an answer, where it is more than its key.  `logs`: files of v1.2's logs_public.zip.
    """
    files: dict[str, bytes] = {}
    for own in data_sets(version):
        if own.name in answers:
            more = meta.get(own.name, {})
            records: list[Any] = [
                {"outputs": output, "meta": more.get(key) or _meta(key)} for key, output in answers[own.name].items()
            ]
            if own.kind == "dialogue" and version == "v1":
                records = [records]
            document = {"data": {"test": records}}
            files[f"{own.name}.json"] = json.dumps(document, ensure_ascii=False, indent=1).encode()
    if logs:
        files["logs_public.zip"] = _zipped(logs)
    path.write_bytes(_zipped(files))


def _zipped(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def key_of(own: DataSet, meta: Mapping[str, Any]) -> Key:
    """What names a record.  Raises KeyError or TypeError where it is not there or no whole number."""
    if own.kind == "dialogue":
        return _whole(meta["dialog_id"]), _whole(meta["question_id"])
    return _whole(meta["id"])


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is no whole number")
    return value


def _meta(key: Key) -> dict[str, Any]:
    return {"dialog_id": key[0], "question_id": key[1]} if isinstance(key, tuple) else {"id": key}


def _member(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo | None], name: str) -> bytes:
    member = members.get(f"{name}.json")
    if member is None and f"{name}.json" in members:
        raise _Found("unreadable_file", f"{name}.json: is twice in the zip, expected once")
    if member is None:
        other = next((found for found in members if found.rpartition(".")[0] == name), None)
        if other is not None:
            raise _Found("extension", f"{other}: expected {name}.json")
        nested = next((found for found in members if found.endswith(f"/{name}.json")), None)
        hint = f", found {nested}: put the files at the top of the zip" if nested else ""
        raise _Found("no_task", f"{name}.json is not in the zip{hint}")
    if member.compress_type not in _METHODS:
        raise _Found(
            "unreadable_file", f"{name}.json: packed by method {member.compress_type}, expected stored or deflate"
        )
    try:
        with archive.open(member) as file:
            content = file.read(MOST_BYTES + 1)  # what it says of its size is not asked
            if len(content) <= MOST_BYTES:
                return content
    except _TORN as error:
        raise _Found("unreadable_file", f"{name}.json: cannot be unpacked ({error!s:.80})") from None
    raise _Found("unreadable_file", f"{name}.json: unpacks to more than {MOST_BYTES} bytes, expected that at most")


def _answers(content: bytes, own: DataSet, version: Version, asked: Sequence[Key] | None) -> dict[Key, Any]:
    where = f"{own.name}.json"
    found: dict[Key, Any] = {}
    for place, record in enumerate(_records(content, own, version)):
        at = f"{where}, record {place}"
        if not isinstance(record, Mapping) or "outputs" not in record:
            raise _Found("no_outputs_field_for_doc", f'{at}: expected {{"outputs": ..., "meta": {{...}}}}')
        if not isinstance(record.get("meta"), Mapping):
            raise _Found("no_meta_field_for_doc", f"{at}: no meta beside outputs")
        try:
            key = key_of(own, record["meta"])
        except (KeyError, TypeError) as error:
            names = "dialog_id and question_id" if own.kind == "dialogue" else "id"
            raise _Found("no_id_field_for_doc", f"{at}: meta has no {names} that is a whole number ({error})") from None
        if own.match is EXAM and not {"id_task", "variant"} <= record["meta"].keys():
            raise _Found("no_meta_field_for_doc", f"{at}: meta has no id_task and variant beside its id")
        if key in found:
            raise _Found("duplicate_id", f"{at}: record {_named(key)} is answered twice, expected once")
        found[key] = _checked(record["outputs"], own, version, f"{at} ({_named(key)})")
    if asked is not None:
        _check_keys(found, asked, where)
    elif own.rules(version).tests not in (None, len(found)):  # pyright: ignore[reportOptionalMemberAccess]
        tests = own.rules(version).tests  # pyright: ignore[reportOptionalMemberAccess]
        raise _Found("no_id", f"{where}: {len(found)} records, expected {tests}, one for each test record")
    return found


def _check_keys(found: Mapping[Key, Any], asked: Sequence[Key], where: str) -> None:
    known = set(asked)
    if absent := [key for key in asked if key not in found]:
        raise _Found(
            "no_id", f"{where}: record {_named(absent[0])} has no answer, {len(absent)} of {len(asked)} have none"
        )
    if more := [key for key in found if key not in known]:
        raise _Found("unknown_id", f"{where}: record {_named(more[0])} is none of the {len(asked)} test records")


def _named(key: Key) -> str:
    return f"dialog_id {key[0]}, question_id {key[1]}" if isinstance(key, tuple) else f"id {key}"


def _records(content: bytes, own: DataSet, version: Version) -> list[Any]:
    where = f"{own.name}.json"
    try:
        document = parse_json(content.decode("utf-8"))
    except ValueError as error:
        raise _Found("unreadable_file", f"{where}: no JSON in UTF-8 ({error!s:.80})") from None
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, Mapping):
        raise _Found("no_data_field", f'{where}: expected {{"data": {{"test": [...]}}}}')
    test = data.get("test")
    if not isinstance(test, list):
        raise _Found("no_split", f'{where}: "data" has no list under "test"')
    if own.kind == "dialogue" and version == "v1":
        if len(test) != 1 or not isinstance(test[0], list):
            raise _Found("no_split", f'{where}: v1 wants one list of records within the list under "test"')
        return test[0]
    return test


def _checked(output: Any, own: DataSet, version: Version, at: str) -> Any:
    """The answer, if it has the shape that its data set wants."""
    if own.config == "ruethics":
        if not isinstance(output, dict):
            raise _type_error(output, at, "a label for each of " + ", ".join(ETHICS))
        if set(output) != set(ETHICS) or not all(isinstance(label, str) for label in output.values()):
            raise _Found("doc_parse_output_error", f"{at}: expected the texts of {', '.join(ETHICS)}")
    elif own.config == "multiq" and version == "v1":
        if not isinstance(output, list):
            raise _type_error(output, at, "a list of spans")
        if not output or not isinstance(output[0], dict) or not isinstance(output[0].get("segment"), str):
            raise _Found("doc_parse_output_error", f'{at}: expected [{{"segment": "..."}}]')
    elif own.kind == "program":
        if not isinstance(output, list):
            raise _type_error(output, at, "results of the tests, a list for each generation")
        if version == "v1.2" and len(output) != 1:
            raise _Found("doc_parse_output_error", f"{at}: expected one list, of {GENERATIONS} generations")
        results = output[0] if version == "v1.2" else output
        if not isinstance(results, list) or len(results) != GENERATIONS or not all(map(_is_run, results)):
            raise _Found("doc_parse_output_error", f"{at}: expected {GENERATIONS} generations, a list of texts each")
    elif not isinstance(output, str):
        raise _type_error(output, at, "a text")
    return output


def _is_run(run: Any) -> bool:
    """Results of one generation: a text a test, null where it failed, as MERA's own harness writes; or one text for all of
    them, such as "timed out"."""
    return isinstance(run, str) or (isinstance(run, list) and all(isinstance(own, str | None) for own in run))


def _type_error(output: Any, at: str, expected: str) -> _Found:
    return _Found("doc_output_type_error", f"{at}: found a {type(output).__name__}, expected {expected}")
