"""The record of a candidate item, and Morphology's wordings.

Arrives: the JSON files of this folder, such as frames_en.json.  Leaves: `Draft` and `Frames`.  It
deliberately does not know the generators.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from miron_jax.files.readers import JsonObject


class Draft(NamedTuple):
    prefix: str  # no space at its end
    target: str  # one leading space
    distractors: tuple[str, ...]  # formed as a target, certainly wrong
    template: str  # family and number of its wording: "plural/3"
    meta: tuple[tuple[str, str], ...]  # its ingredients, such as stem and form


Frames = Mapping[str, Sequence[str]]  # form -> wordings


def frames_of(lang: str) -> tuple[Frames, Frames]:
    """Morphology's wordings of "en" or "ru": of the benchmark, and of the demo model's training
    text."""
    frames = shipped(f"frames_{lang}.json")
    return frames["benchmark"], frames["training"]


def shipped(name: str) -> JsonObject:
    """A JSON file of this folder."""
    return json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
