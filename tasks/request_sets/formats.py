"""The files of a request set -> its requests, whoever wrote them.

Arrives: a folder.  Leaves: `Request`s in file order; InputError names file, line and field.  It deliberately does not know
tasks or scores.

    requests.jsonl      Marin's, and `eval --save_requests`: {task, doc_id, context, continuation[, gold]}
    *-requests.jsonl    olmo-eval's --save-requests: {task_name, doc_id, request: {context, continuation}[, label]}
    samples_*.jsonl     lm-eval's --log_samples: {doc_id, target, arguments: {gen_args_0: {arg_0, arg_1}, ...}}
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from miron_jax.definitions.data_files import json_rows, parse_each
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, parse_json, shown
from miron_jax.tasks.icl_rows import checked_text, text_field

REQUESTS, MANIFEST = "requests.jsonl", "manifest.json"
_REMEDY = "write the set again"


class Request(NamedTuple):
    """A continuation to score behind its context.  Requests of one task with one `doc_id` are the choices of a question."""

    task: str
    doc_id: int | str
    context: str
    continuation: str
    gold: int | None  # which of its choices is right; None: not stated
    file: Path
    row: int  # line in the file, from 0


class RequestSet(NamedTuple):
    requests: list[Request]
    manifest: JsonObject  # {}: there is none


def read_requests(folder: Path) -> RequestSet:
    """Raises InputError."""
    if not folder.is_dir():
        raise InputError(f"--requests={folder}: there is no such folder, expected one with {REQUESTS}")
    for pattern, parse in _LAYOUTS.items():
        files = sorted(folder.rglob(pattern)) if "*" in pattern else [folder / pattern]
        files = [file for file in files if file.is_file()]
        if files:
            requests = [request for file in files for request in _read(file, partial(parse, file))]
            requests = _each_once(requests, skips=parse is _lm_eval)
            manifest = _manifest(folder / MANIFEST)
            _check_counts(requests, manifest, folder / MANIFEST)
            return RequestSet(requests, manifest)
    raise InputError(
        f"--requests={folder}: the folder has none of {', '.join(_LAYOUTS)}: save requests with `eval --save_requests`, "
        "olmo-eval --save-requests or lm-eval --log_samples"
    )


def _read(file: Path, parse: Callable[[JsonObject, int], list[Request]]) -> list[Request]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): {_REMEDY}") from None
    rows = json_rows(content, file, "requests", remedy=_REMEDY)
    return [request for each in parse_each(rows, parse, f"{file}, line", f"; {_REMEDY}") for request in each]


def _each_once(requests: list[Request], skips: bool) -> list[Request]:
    """`skips`: an equal request of one question is left out (lm-eval writes a line for each filter), else it is refused."""
    file_of: dict[str, Path] = {}
    seen: set[tuple[str, int | str, str, str]] = set()
    kept = []
    for request in requests:
        at = f"{request.file}, line {request.row + 1}"
        if file_of.setdefault(request.task, request.file) != request.file:
            raise InputError(f"{at}: {file_of[request.task]} holds the task {request.task} too: leave one of them")
        key = request[:4]
        if key in seen and not skips:
            raise InputError(f"{at}: doc_id {request.doc_id!r} of {request.task} has this request twice; {_REMEDY}")
        if key not in seen:
            kept.append(request)
        seen.add(key)
    return kept


def _plain(file: Path, fields: JsonObject, row: int) -> list[Request]:
    pair = text_field(fields, "context"), _continuation(fields)
    return [Request(text_field(fields, "task"), _doc_id(fields), *pair, _gold(fields.get("gold")), file, row)]


def _olmo(file: Path, fields: JsonObject, row: int) -> list[Request]:
    request = fields.get("request")
    if not isinstance(request, dict):
        raise ValueError(f"field 'request' holds {shown(request)}, expected a context and a continuation")
    pair = text_field(request, "context"), _continuation(request)
    return [Request(text_field(fields, "task_name"), _doc_id(fields), *pair, _gold(fields.get("label")), file, row)]


def _lm_eval(file: Path, fields: JsonObject, row: int) -> list[Request]:
    arguments = fields.get("arguments")
    each = list(arguments.values()) if isinstance(arguments, dict) else arguments
    pairs = [_pair(argument) for argument in each] if isinstance(each, list) else []
    if not pairs:
        raise ValueError(f"field 'arguments' holds {shown(arguments)}, expected a request")
    # acc_mutual_info asks for every choice a second time, without a context.
    pairs = [pair for pair in pairs if pair[0] or not pairs[0][0]]
    task = re.sub(r"^samples_|_[\dT:.-]+$", "", file.stem)
    target, texts = fields.get("target"), [continuation.strip() for _, continuation in pairs]
    gold = _gold(target, len(pairs)) if len(pairs) > 1 else None  # digits are a place, as lm-eval itself reads them
    if len(pairs) > 1 and gold is None and isinstance(target, str) and target.strip() in texts:
        gold = texts.index(target.strip())
    return [Request(task, _doc_id(fields), *pair, gold, file, row) for pair in pairs]


def _pair(argument: Json) -> tuple[str, str]:
    values = list(argument.values()) if isinstance(argument, dict) else argument
    if not isinstance(values, list) or len(values) != 2 or not isinstance(values[1], str):
        raise ValueError(
            f"its request is {shown(values)}, expected a context and a continuation: completions and whole documents are no "
            "request set, take the file out"
        )
    if not values[1]:
        raise ValueError("its continuation is empty, expected a text to score")
    return checked_text(values[0], "arg_0"), values[1]


_LAYOUTS: dict[str, Callable[[Path, JsonObject, int], list[Request]]] = {
    REQUESTS: _plain, "*-requests.jsonl": _olmo, "samples_*.jsonl": _lm_eval,
}  # fmt: skip


def _continuation(fields: JsonObject) -> str:
    text = text_field(fields, "continuation")
    if not text:
        raise ValueError("field 'continuation' is empty, expected a text to score")
    return text


def _doc_id(fields: JsonObject) -> int | str:
    doc_id = fields.get("doc_id")
    if not isinstance(doc_id, int | str) or isinstance(doc_id, bool):
        raise ValueError(f"field 'doc_id' holds {shown(doc_id)}, expected a whole number or a text")
    return doc_id


def _gold(value: Json, num_choices: int | None = None) -> int | None:
    """A place from 0; None where the value is none."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,4}", value, re.ASCII):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < (num_choices or 10_000) else None


def _manifest(path: Path) -> JsonObject:
    if not path.is_file():
        return {}
    try:
        manifest = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no JSON ({error!s:.120}): {_REMEDY}, or take the file away") from None
    if not isinstance(manifest, dict):
        raise InputError(
            f"{path}: found {shown(manifest)}, expected an object with tasks: {{task: number of requests}}"
        )
    return manifest


def _check_counts(requests: list[Request], manifest: JsonObject, path: Path) -> None:
    """Raises InputError where the manifest counts other requests than there are: the file was cut, or is another one."""
    counts = manifest.get("tasks")
    if counts is None:
        return
    there = dict.fromkeys(counts, 0) if isinstance(counts, dict) else {}
    for request in requests:
        there[request.task] = there.get(request.task, 0) + 1
    if there != counts:
        wrong = next((name for name in there if not isinstance(counts, dict) or there[name] != counts.get(name)), "")
        expected = counts.get(wrong, 0) if isinstance(counts, dict) else shown(counts)
        raise InputError(
            f"{path}: it counts {shown(expected)} requests of {wrong!r}, there are {there.get(wrong, 0)}: {_REMEDY}"
        )
