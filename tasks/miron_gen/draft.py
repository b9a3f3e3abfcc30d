"""One candidate item as a category's generator makes it, before it has a place in the benchmark."""

from typing import NamedTuple


class Draft(NamedTuple):
    prefix: str  # no space at its end
    target: str  # one leading space
    distractors: tuple[str, ...]  # formed as a target, certainly wrong
    template: str  # family and number of its wording: "plural/3"
    meta: tuple[tuple[str, str], ...]  # what it was made of
