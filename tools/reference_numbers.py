"""Writes a finished run into the table of reference numbers, and the page of them again.

    python tools/reference_numbers.py [NAME COMMAND [RUN]]

COMMAND makes such a run; without RUN the table says that it was not run.  Without arguments only
the page is written.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from miron_jax.report.compare.reference import (
    FILE,
    Reference,
    ReferenceTask,
    entry_of,
    references,
)
from miron_jax.results.run_folder import read_runs

PAGE = Path(__file__).parents[1] / "docs" / "reference_numbers.md"
BEGIN = "<!-- made by tools/reference_numbers.py -->\n"


def main(arguments: list[str]) -> None:
    if arguments:
        name, command, *folder = arguments
        entry = Reference(command)
        if folder:
            entry = entry_of(read_runs(folder)[0], command)
        every = references() | {name: entry}
        table = {name: asdict(each) for name, each in every.items()}
        FILE.write_text(json.dumps(table, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The page, below BEGIN made again."""
    head, _, _ = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return head + BEGIN + "".join(line + "\n" for line in made(references()))


def made(every: dict[str, Reference]) -> Iterator[str]:
    for name, each in every.items():
        yield from ("", f"## {name}", "", "```console", each.command, "```", "")
        if not each.tasks:
            yield "Not run."
            continue
        versions = ", ".join(f"{package} {version}" for package, version in each.packages.items())
        yield f"{each.dtype}, {each.device}; {versions}; weights"
        yield f"`{each.weights}`."
        yield ""
        yield "| task | examples | metric | value | 95 % interval | beside it | requests |"
        yield "|---|---|---|---|---|---|---|"
        for composite, number in each.composites.items():
            yield f"| {composite} | | | {shown(number)} | | |"
        for task, numbers in each.tasks.items():
            yield row(task, numbers)


def row(task: str, numbers: ReferenceTask) -> str:
    (metric, number), *others = numbers.metrics.items()
    beside = ", ".join(f"{name} {value:.4f}" for name, (value, _, _) in others)
    about = f"{numbers.n} | {metric} | {shown(number)}"
    return f"| {task} | {about} | {beside} | `{numbers.requests_sha256[:12]}` |"


def shown(number: tuple[float, float, float]) -> str:
    value, low, high = number
    return f"{value:.4f} | {low:.4f} to {high:.4f}"


if __name__ == "__main__":
    main(sys.argv[1:])
