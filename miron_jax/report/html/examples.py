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
from miron_jax.results.samples import AskedDocument, AskedItem, ExampleResult, Programs

CHUNK = 500  # examples, which compress together
# characters that are kept of a prompt's end, and of the beginning of another text
PROMPT, TEXT = 240, 600


class Examples(NamedTuple):
    # Name, first chunk, examples a chunk, and a mark for each example: 1 right, 0 wrong, - neither.
    index: list[JsonObject]
    chunks: list[str]  # JSON, gzip, base64


def examples_of(runs: Sequence[Run]) -> Examples:
    """Every example of every task, those of several runs one after another.  Raises InputError."""
    all_examples = Examples([], [])
    for run in runs:
        for name in run.tasks:
            marks: list[str] = []
            shown: list[JsonObject] = []
            for example in run.examples(name):
                marks.append("-" if example.correct is None else str(int(example.correct)))
                shown.append(_shown(example))
            label = name if len(runs) == 1 else f"{name} ({run.label})"
            first = len(all_examples.chunks)
            all_examples.index.append(
                {"name": printable(label), "first": first, "size": CHUNK, "marks": "".join(marks)}
            )
            all_examples.chunks.extend(_chunks(shown))
    return all_examples


def _chunks(examples: Sequence[JsonObject]) -> Iterator[str]:
    for start in range(0, len(examples), CHUNK):
        text = json.dumps(examples[start : start + CHUNK], separators=(",", ":"))
        yield base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _shown(example: ExampleResult) -> JsonObject:
    """What the page shows of an example, with the digits that it shows."""
    options = example.options
    chosen = example.prediction
    generated = _programs(example)
    if example.generated is not None:
        generated = [example.generated, *generated]
    said = "".join(generated[:1])
    if chosen is not None and chosen < len(options):
        said = options[chosen].text
    if not said and options:
        said = options[0].text
    return {
        "row": example.row,
        "category": getattr(example.asked, "category", None),
        "prompt": _asked(example)[-PROMPT:],
        "said": said[:TEXT],
        "gold": example.gold,
        "prediction": chosen,
        "options": [
            [
                option.text[:TEXT],
                _short(option.logprob),
                [*map(_short, option.token_logprobs)],
                option.greedy,
            ]
            for option in options
        ],
        "generated": [text[:TEXT] for text in generated],
        "margin": _short(example.metrics.get("choice_margin", math.nan)),
        "metrics": {name: _short(value, 3) for name, value in example.metrics.items()},
        "reason": example.reason or None,
    }


def _asked(example: ExampleResult) -> str:
    asked = example.asked
    if isinstance(asked, AskedItem):
        return asked.prefix
    if isinstance(asked, AskedDocument):
        return asked.doc_id
    return asked.prompt


def _programs(example: ExampleResult) -> list[str]:
    if not isinstance(example.answered, Programs):
        return []
    return [f"{program.text}\n\n{program.ended}" for program in example.answered.programs]


def _short(value: float, digits: int = 2) -> float | None:
    return round(value, digits) if math.isfinite(value) else None
