"""One candidate item as a category's generator makes it, before it has a place in the benchmark; its wordings."""

import json
from pathlib import Path
from typing import NamedTuple


class Draft(NamedTuple):
    prefix: str  # no space at its end
    target: str  # one leading space
    distractors: tuple[str, ...]  # formed as a target, certainly wrong
    template: str  # family and number of its wording: "plural/3"
    meta: tuple[tuple[str, str], ...]  # what it was made of


Frames = dict[str, tuple[str, ...]]  # form -> wordings


def frames_of(lang: str) -> tuple[Frames, Frames]:
    """Morphology's wordings of "en" or "ru": the benchmark's, and those that a demo model trains on."""
    found = json.loads(Path(__file__).with_name(f"frames_{lang}.json").read_text(encoding="utf-8"))
    benchmark, training = (
        {form: tuple(wordings) for form, wordings in found[of].items()} for of in ("benchmark", "training")
    )
    return benchmark, training
