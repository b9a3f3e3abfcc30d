"""The record of a candidate item, and Morphology's wordings.

Arrives: frames_en.json and frames_ru.json.  Leaves: `Draft` and `Frames`.  It deliberately does not
know the generators.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


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
    frames = json.loads(Path(__file__).with_name(f"frames_{lang}.json").read_text(encoding="utf-8"))
    return frames["benchmark"], frames["training"]
