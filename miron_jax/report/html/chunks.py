"""Examples -> chunks: compressed columns of what the page shows of each.

Arrives: `ExampleResult`s, with what the page shows of their prompts.  Leaves: texts in base64.  It
deliberately does not know what a metric means.

Numbers beside numbers take three quarters of the room that they take in records.  Of options there
are columns over all options of a chunk, of tokens over all tokens of these:

    options  2        2        3              of each example
    texts    yes no   yes no   red green blue
    sizes    1   1    1   1    1   2     1    tokens of each option
    tokens   250 50   12  300  8   95 4  410  surprise, hundredths of a nat
"""

import base64
import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson

from miron_jax.files.readers import Json, JsonObject
from miron_jax.results.samples import AskedItem, Completion, ExampleResult, Option, Programs

CHUNK = 500  # examples, which compress together
TEXT = 600  # characters that are kept of an answer


@dataclass
class Chunk:
    """Examples that compress together."""

    shown: list[JsonObject] = field(default_factory=list)
    # by name; None: the example has none of this name
    metrics: dict[str, list[float | None]] = field(default_factory=dict)
    options: list[Option] = field(default_factory=list)
    num_options: list[int] = field(default_factory=list)

    def add(self, example: ExampleResult, prompt: JsonObject, group: str, is_same: bool) -> None:
        """`prompt`: what the page shows of it; `is_same`: as the first run has it."""
        generated = [] if example.generated is None else [example.generated]
        accepted = tuple[str, ...]()
        if isinstance(example.answered, Programs):
            generated += [f"{each.text}\n\n{each.ended}" for each in example.answered.programs]
        elif isinstance(example.answered, Completion):
            accepted = example.answered.accepted
        elif isinstance(example.asked, AskedItem) and example.options:
            accepted = (example.options[0].text,)
        entry = {
            **prompt,
            "row": example.row,
            "gold": example.gold,
            "prediction": example.prediction,
            "same": is_same,
        }
        optional: JsonObject = {
            "group": group,
            "also": example.also_right,
            "generated": [text[:TEXT] for text in generated],
            "accepted": [text[:TEXT] for text in accepted],
            "truncated": example.truncated,
            "reason": example.reason,
        }
        for name, value in optional.items():
            if value:
                entry[name] = value
        for name in example.metrics:
            self.metrics.setdefault(name, [None] * len(self.shown))
        for name, column in self.metrics.items():
            column.append(example.metrics.get(name))
        self.shown.append(entry)
        self.num_options.append(len(example.options))
        self.options += example.options

    def text(self) -> str:
        """The chunk as the page holds it."""
        each = dict[str, list[Json]]()
        for name in dict.fromkeys(name for entry in self.shown for name in entry):
            each[name] = [entry.get(name) for entry in self.shown]
        texts = list[str]()
        sizes = list[int]()
        tokens = list[float]()
        lengths = list[int | None]()
        ids = list[int | None]()
        ranks = list[int | None]()
        for option in self.options:
            texts.append(option.text[:TEXT])
            sizes.append(len(option.token_logprobs))
            tokens += option.token_logprobs
            lengths += _each(option.token_bytes if len(option.text) <= TEXT else (), sizes[-1])
            ids += _each(option.token_ids, sizes[-1])
            ranks += _each(option.token_ranks, sizes[-1])
        return compressed(
            {
                "each": each,
                "metrics": {name: _rounded(column) for name, column in self.metrics.items()},
                "options": self.num_options,
                "texts": texts,
                "sums": _hundredths([option.logprob for option in self.options]),
                "sizes": sizes,
                "greedy": [option.greedy for option in self.options],
                "tokens": _hundredths(tokens),
                "lengths": lengths,
                "ids": ids,
                "ranks": ranks,
            }
        )


def compressed(value: Json) -> str:
    try:
        text = orjson.dumps(value)
    except TypeError:  # half a surrogate pair, which UTF-8 has no bytes for
        text = json.dumps(value, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(text, 6, mtime=0)).decode()


def _each(values: Sequence[int], size: int) -> Sequence[int | None]:
    """One of each token, or None of each where a run has not kept them."""
    return values if len(values) == size else [None] * size


def _hundredths(logprobs: Sequence[float]) -> list[Json]:
    """Of a nat, of the surprise; None where a number is not defined."""
    numbers = np.rint(np.asarray(logprobs, np.float64) * -100)
    if np.isfinite(numbers).all():
        return numbers.astype(np.int64).tolist()
    return [int(number) if math.isfinite(number) else None for number in numbers]


def _rounded(column: Sequence[float | None]) -> list[Json]:
    """To three digits.  None where a number is not defined, False where an example has none."""
    if None not in column:
        numbers = np.round(np.asarray(column, np.float64), 3)
        if np.isfinite(numbers).all():
            return numbers.tolist()
    rounded = list[Json]()
    for value in column:
        if value is None:
            rounded.append(False)
        else:
            rounded.append(round(value, 3) if math.isfinite(value) else None)
    return rounded
