"""A cloze task's part of results.json -> its rows on screen.

Arrives: entries of results.json.  Leaves: a table and sentences.  It deliberately does not know how a metric is made.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from miron_jax.task_kinds.cloze import SHOWN

HEADINGS = ("Levenshtein", "confidence", "bits/char", "bits/byte", "greedy exact", "contrast")


def cloze_table(tasks: Mapping[str, Mapping[str, Any]]) -> Table:
    """Categories, then their macro mean, of every cloze task."""
    table = Table(title=None, header_style="bold")
    table.add_column("task", no_wrap=True)
    for heading in ("category", "n", *HEADINGS):
        table.add_column(heading, justify="left" if heading == "category" else "right", no_wrap=True)
    for name, task in tasks.items():
        for category, group in task["groups"].items():
            table.add_row(name, category, str(group["n"]), *_cells(group["metrics"]))
        table.add_row(name, "macro mean", str(task["n"]), *_cells(task["macro"]), end_section=True)
    return table


def cloze_notes(tasks: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    """What a reader has to know about these numbers."""
    notes = []
    for name, task in tasks.items():
        metrics = task["metrics"]
        if not task["n"]:
            notes.append(f"{name}: no item is scored, {task['unspelled']} cannot be spelled with this tokenizer")
            continue
        seam, zero = (100 * metrics[key]["value"] for key in ("seam", "card_zero"))
        notes.append(
            f"{name}: a token spans the border of prefix and target in {seam:.1f} % of the items, and the card's formula "
            f"gives a forced 0 in {zero:.1f} %; {task['unspelled']} items cannot be spelled with this tokenizer"
        )
        published = task.get("published_rows_a_category")
        if published and "limit" not in task and set(task["rows_by_category"].values()) != {published}:
            counts = ", ".join(f"{category} {count}" for category, count in task["rows_by_category"].items())
            notes.append(f"{name}: its file has {counts} rows, the card says {published} of each category")
        if task["drift"].get("all", {}).get("n"):
            drift = task["drift"]["all"]
            low, high = (f"{bound:.1f}" for bound in drift["ci95"])
            notes.append(
                f"{name}: noise in the prefix takes a median {drift['median_percent']:.1f} % ({low} to {high}) of "
                f"P(target); share of items turned wrong {_number(drift['flip_to_wrong'])}, turned right "
                f"{_number(drift['flip_to_right'])}"
            )
    if tasks:
        notes.append("confidence is a mean a token: compare bits/char, not confidence, between tokenizers")
    return notes


def _cells(metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [_number(metrics.get(name, {})) for name in SHOWN]


def _number(entry: Mapping[str, Any]) -> str:
    """Value and standard error."""
    value, stderr = entry.get("value"), entry.get("stderr")
    if value is None:
        return ""
    digits = 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}" if stderr is None else f"{value:.{digits}f} \u00b1 {stderr:.{digits}f}"
