"""One line about each benchmark, and the year of its publication.

Arrives: a task's name; about.tsv.  Leaves: `About`.  It deliberately does not know how a task is
scored.  The year is that of the paper or release that first published the questions; of the Mosaic
Eval Gauntlet it is the one on its page.  A licence is that of the data set's page or repository.
"""

from pathlib import Path
from typing import NamedTuple

from miron_jax.definitions.records import About
from miron_jax.files.regular import read_text


class _Line(NamedTuple):
    """A line of about.tsv."""

    year: int | None
    asks: str


def _lines() -> dict[str, _Line]:
    lines = {}
    for line in read_text(Path(__file__).with_suffix(".tsv")).splitlines()[1:]:
        name, year, asks = line.split("\t")
        lines[name] = _Line(int(year) if year else None, asks)
    return lines


_ABOUT = _lines()


NOT_STATED = "not stated"
_LICENCES = {"miron": "MIT", "mera-v1": "MIT", "mera-v1.2": "MIT"}  # of whole suites
_OF_THIS_PROGRAM = "Apache-2.0"  # of generated rows
# of Eval-UA-tion's data sets; the pages of the other four have no line about it
_NONCOMMERCIAL = ("ua_cbt", "up_masked", "up_unmasked", "lmes_catsbin", "lmes_catsmc")


def _licence(suite: str, name: str) -> str:
    if suite.startswith(("miron-gen", "eval-ua-tion-gen")):
        return _OF_THIS_PROGRAM
    if suite.startswith("eval-ua-tion") and name.startswith(_NONCOMMERCIAL):
        return "CC BY-NC 4.0"
    return _LICENCES.get(suite, NOT_STATED)


def about(task_name: str) -> About | None:
    """The `About` of a task such as "core/arc_easy"; None for a user's task."""
    suite, _, name = task_name.partition("/")
    name = name.removesuffix("_zeroshot")
    if suite == "olmes":  # a task's forms have its name before theirs
        name = max((known for known in _ABOUT if name.startswith(known)), key=len, default=name)
    if suite.startswith("own-") or name not in _ABOUT:
        return None
    licence = _licence(suite, name)
    if name in ("en", "ru"):
        return About(f"{suite.partition('-')[0]}/{name}", *_ABOUT[name], licence)
    return About(name, *_ABOUT[name], licence)
