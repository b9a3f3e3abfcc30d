"""Samples -> compressed chunks, which the page inflates as they are seen.

Arrives: `Run`s.  Leaves: an index of tasks, and chunks in base64.  It deliberately does not know what a metric means.
"""

import base64
import gzip
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from miron_jax.errors import printable
from miron_jax.files.readers import JsonObject
from miron_jax.report.run_folder import Run

CHUNK = 500  # examples, which compress together
PROMPT, TEXT = 240, 600  # characters that are kept of a prompt's end, and of the beginning of another text


class Examples(NamedTuple):
    index: list[
        JsonObject
    ]  # name, first chunk, examples a chunk, and a mark for each example: 1 right, 0 wrong, - neither
    chunks: list[str]  # JSON, gzip, base64


def examples_of(runs: Sequence[Run]) -> Examples:
    """Every example of every task, those of several runs one after another.  Raises InputError."""
    found = Examples([], [])
    for run in runs:
        for name in run.tasks:
            samples = run.samples(name)
            label = name if len(runs) == 1 else f"{name} ({run.label})"
            marks = "".join("-" if sample.get("correct") is None else str(int(sample["correct"])) for sample in samples)
            found.index.append({"name": printable(label), "first": len(found.chunks), "size": CHUNK, "marks": marks})
            found.chunks.extend(_chunks([_shown(sample) for sample in samples]))
    return found


def _chunks(examples: Sequence[JsonObject]) -> Iterator[str]:
    for start in range(0, len(examples), CHUNK):
        text = json.dumps(examples[start : start + CHUNK], separators=(",", ":"))
        yield base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _shown(sample: JsonObject) -> JsonObject:
    """What the page shows of a sample, with the digits that it shows."""
    options = sample.get("options") or []
    chosen = sample.get("prediction")
    generated = [text for text in (sample.get("generated"), *_programs(sample)) if text is not None]
    said = options[chosen]["text"] if chosen is not None and chosen < len(options) else (generated or [""])[0]
    if not said and options:
        said = options[0]["text"]
    metrics = sample.get("metrics") or {}
    margin = metrics.get("choice_margin")
    return {
        "row": sample.get("row", sample.get("id")),
        "category": sample.get("category"),
        "prompt": (sample.get("prompt") or sample.get("prefix") or sample.get("doc_id") or "")[-PROMPT:],
        "said": said[:TEXT],
        "gold": sample.get("gold"),
        "prediction": chosen,
        "options": [
            [own["text"][:TEXT], _short(own["logprob"]), [_short(p) for p in own["token_logprobs"]], own["greedy"]]
            for own in options
        ],
        "generated": [text[:TEXT] for text in generated],
        "margin": _short(margin),
        "metrics": {name: _short(value, 3) for name, value in metrics.items()},
        "reason": sample.get("reason"),
    }


def _programs(sample: JsonObject) -> list[str]:
    return [f"{own['text']}\n\n{own['ended']}" for own in sample.get("programs", ())]


def _short(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)
