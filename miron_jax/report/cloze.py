"""The cloze tasks of results.json as a table.

Arrives: entries of results.json.  Leaves: a table and sentences.  It deliberately does not know how a metric is computed.
"""

from collections.abc import Mapping, Sequence

from rich.table import Table

from miron_jax.files.readers import JsonObject
from miron_jax.report.console import table_of
from miron_jax.task_kinds.cloze import BY_TARGET_TOKENS

HEADINGS = ("Levenshtein", "confidence", "bits/char", "bits/byte", "greedy exact", "contrast")


def cloze_table(tasks: Mapping[str, JsonObject]) -> Table:
    """A table of every cloze task's categories and their macro mean."""
    table = table_of(("task", "category"), ("n", *HEADINGS))
    for name, task in tasks.items():
        for category, group in task["groups"].items():
            table.add_row(name, category, str(group["n"]), *_cells(group["metrics"]))
        table.add_row(name, "macro mean", str(task["n"]), *_cells(task["macro"]), end_section=True)
    return table


def cloze_notes(tasks: Mapping[str, JsonObject]) -> Sequence[str]:
    """Sentences that qualify the numbers."""
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


def _cells(metrics: Mapping[str, JsonObject]) -> list[str]:
    return [_number(metrics.get(name, {})) for name in BY_TARGET_TOKENS]


def _number(entry: JsonObject) -> str:
    """Value and standard error; "" without a value."""
    value, stderr = entry.get("value"), entry.get("stderr")
    if value is None:
        return ""
    digits = 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}" if stderr is None else f"{value:.{digits}f} \u00b1 {stderr:.{digits}f}"
