"""Samples -> compressed chunks, which the page inflates as they are seen.

Arrives: `Run`s.  Leaves: an index of tasks, and chunks in base64.  It deliberately does not know
what a metric means.
"""

import base64
import gzip
import json
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from miron_jax.errors import printable
from miron_jax.files.readers import JsonObject
from miron_jax.results.run_folder import Run
from miron_jax.results.samples import (
    AskedDocument,
    AskedItem,
    Completion,
    ExampleResult,
    Programs,
)

CHUNK = 500  # examples, which compress together
# characters that are kept of a prompt's end, and of the beginning of another text
PROMPT, TEXT = 300, 600
MAX_GROUPS = 100  # categories that the page offers to choose from


class Examples(NamedTuple):
    # A task: its name, its groups, and for each run what `_of_run` returns.
    index: list[JsonObject]
    chunks: list[str]  # JSON, gzip, base64


def examples_of(runs: Sequence[Run]) -> Examples:
    """Every example of every task, by task and run.  Raises InputError."""
    chunks: list[str] = []
    index: list[JsonObject] = []
    for name in dict.fromkeys(name for run in runs for name in run.tasks):
        asked = dict[int, str]()  # digest of each example's prompt, in the first run that has it
        groups = dict[str, None]()
        scored = [run for run in runs if name in run.tasks]
        of_runs = [_of_run(run, name, asked, groups, chunks) for run in scored]
        offered = [*groups] if 1 < len(groups) <= MAX_GROUPS else []
        index.append({"name": printable(name), "groups": offered, "runs": of_runs})
    return Examples(index, chunks)


def _of_run(
    run: Run, name: str, asked: dict[int, str], groups: dict[str, None], chunks: list[str]
) -> JsonObject:
    """Appends the chunks of a task's examples.  Returns where they stand, their ids (None: from 0
    on), and a mark for each: 1 right, 0 wrong, - neither."""
    ids: list[int] = []
    marks: list[str] = []
    shown: list[JsonObject] = []
    for example in run.examples(name):
        ids.append(example.id)
        marks.append("-" if example.correct is None else str(int(example.correct)))
        is_same = asked.setdefault(example.id, example.digest) == example.digest
        group = printable(getattr(example.asked, "category", None) or "")
        if group:
            groups[group] = None
        shown.append({**_shown(example), "group": group, "same": is_same})
    first = len(chunks)
    chunks.extend(_chunks(shown))
    is_counted = ids == [*range(len(ids))]
    return {
        "label": printable(run.label),
        "first": first,
        "size": CHUNK,
        "ids": None if is_counted else ids,
        "marks": "".join(marks),
    }


def _chunks(examples: Sequence[JsonObject]) -> Iterator[str]:
    for start in range(0, len(examples), CHUNK):
        text = json.dumps(examples[start : start + CHUNK], separators=(",", ":"))
        yield base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _shown(example: ExampleResult) -> JsonObject:
    """What the page shows of an example, with the digits that it shows."""
    generated = [] if example.generated is None else [example.generated]
    accepted = tuple[str, ...]()
    if isinstance(example.answered, Programs):
        generated += [f"{each.text}\n\n{each.ended}" for each in example.answered.programs]
    elif isinstance(example.answered, Completion):
        accepted = example.answered.accepted
    elif isinstance(example.asked, AskedItem) and example.options:
        accepted = (example.options[0].text,)
    return {
        "row": example.row,
        "prompt": _asked(example)[-PROMPT:],
        "gold": example.gold,
        "also": example.also_right,
        "prediction": example.prediction,
        "options": [
            [
                option.text[:TEXT],
                _short(option.logprob),
                [*map(_short, option.token_logprobs)],
                option.greedy,
                option.token_bytes if len(option.text) <= TEXT else None,
                option.token_ranks,
            ]
            for option in example.options
        ],
        "generated": [text[:TEXT] for text in generated],
        "accepted": [text[:TEXT] for text in accepted],
        "margin": _short(example.metrics.get("choice_margin", math.nan)),
        "metrics": {name: _short(value, 3) for name, value in example.metrics.items()},
        "truncated": example.truncated,
        "reason": example.reason or None,
    }


def _asked(example: ExampleResult) -> str:
    asked = example.asked
    if isinstance(asked, AskedItem):
        return asked.prefix
    if isinstance(asked, AskedDocument):
        return asked.doc_id
    return asked.prompt


def _short(value: float, digits: int = 2) -> float | None:
    return round(value, digits) if math.isfinite(value) else None
