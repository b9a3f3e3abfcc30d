"""Writes a finished run into the table of reference numbers, and the page of them again.

python tools/reference_numbers.py NAME RUN "miron-jax eval ..."; without arguments only the page.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from miron_jax.report.compare.reference import FILE, Reference, entry_of, references
from miron_jax.results.run_folder import read_runs

PAGE = Path(__file__).parents[1] / "docs" / "reference_numbers.md"
BEGIN = "<!-- made by tools/reference_numbers.py -->\n"


def main(arguments: list[str]) -> None:
    every = references()
    if arguments:
        name, folder, command = arguments
        [run] = read_runs([folder])
        every[name] = entry_of(run, command)
        table = {name: asdict(each) for name, each in every.items()}
        FILE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    head, _, _ = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(head + BEGIN + made(every), encoding="utf-8")


def made(every: dict[str, Reference]) -> str:
    """The page's part below BEGIN."""
    parts = []
    for name, each in every.items():
        versions = ", ".join(f"{package} {version}" for package, version in each.packages.items())
        rows = [
            "| task | n | metric | value | 95 % interval | requests_sha256 |",
            "|---|---|---|---|---|---|",
        ]
        for task, numbers in each.tasks.items():
            for metric, (value, low, high) in numbers.metrics.items():
                numbered = f"{numbers.n} | {metric} | {value:.4f} | {low:.4f} to {high:.4f}"
                rows.append(f"| {task} | {numbered} | `{numbers.requests_sha256[:16]}` |")
        about = f"{each.dtype}, {each.device}; {versions}; weights `{each.weights[:16]}`"
        parts.append(
            f"\n## {name}\n\n```console\n{each.command}\n```\n\n{about}.\n\n"
            + "\n".join(rows)
            + "\n"
        )
    return "".join(parts)


if __name__ == "__main__":
    main(sys.argv[1:])
