"""A human baseline on screen.

Arrives: a `Baseline`.  Leaves: a table and lines on standard output.  It deliberately computes nothing.
"""

from collections.abc import Mapping

from rich.table import Table

from miron_jax.humans.baseline import Accuracy, Baseline, Procedure
from miron_jax.humans.ethics import EthicsValues
from miron_jax.report.console import console


def print_baseline(found: Baseline) -> None:
    """Both procedures and one annotator alone, then who answered and how far they agree."""
    out = console()
    table = Table("labels", "n", "coverage", "accuracy", "95 % interval", "right", "macro F1", "MCC", "decided by")
    for column in table.columns[1:8]:
        column.justify = "right"
    for name, own in (("A: equal votes, else dropped", found.a), ("B: plurality, then skills", found.b)):
        table.add_row(
            name, str(own.labelled), f"{own.coverage:.3f}", *_shown(own.accuracy), *_over_all(own), _origins(own)
        )
    table.add_row("one annotator", "", "", *_shown(found.single_annotator), "", "", "")
    out.print(table)
    rejected = sum(controls for controls, _ in found.rejected.values())
    for line in (
        f"{found.rows} answers by {found.workers} annotators to {found.items} items; answers an item: "
        + ", ".join(f"{count} x {votes}" for votes, count in found.overlap.items()),
        f"rejected: {len(found.rejected)} annotators, less than half of their control tasks right ({rejected} in all); "
        f"control tasks an annotator, median: {found.controls_a_worker:g}; without any, and kept: "
        f"{found.workers_without_controls}",
        f"Krippendorff's alpha (nominal): {_number(found.alpha)}; with rejected annotators {_number(found.alpha_before)}",
        *_notes(found),
    ):
        out.print(line, soft_wrap=True)


def print_ethics(found: Mapping[str, EthicsValues]) -> None:
    """ruEthics' correlations, a row a question and category, a column a procedure; nothing where there are none."""
    names = list(dict.fromkeys(name for own in found.values() for name in own.mcc))
    if not names:
        return
    out, table = console(), Table("question", "category", *(f"MCC, {name}" for name in found))
    for name in names:
        table.add_row(*name.split("."), *(_number(own.mcc.get(name)) for own in found.values()))
    out.print(table)
    for name, own in found.items():
        counts = ", ".join(f"{question} {count}" for question, count in own.n.items())
        out.print(
            f"{name}: items of {counts}; {own.without_gold} have no right answer and are left out", soft_wrap=True
        )


def _notes(found: Baseline) -> list[str]:
    notes = []
    if found.dropped_rows:
        notes.append(f"{found.dropped_rows} lines without an item or an annotator are left out")
    if found.a.without_gold or found.b.without_gold:
        notes.append(
            f"labelled items without a right answer, left out of the accuracy: {found.a.without_gold} of A, "
            f"{found.b.without_gold} of B"
        )
    if undecided := found.b.origins.get("undecided", 0):
        notes.append(
            f"{undecided} items are even under B and left out of it; --skills may decide them, and GLAD does: "
            "pip install crowd-kit"
        )
    return notes


def _shown(own: Accuracy | None) -> tuple[str, str, str]:
    if own is None:
        return "", "", ""
    low, high = own.ci95
    return f"{own.value:.3f}", f"{low:.3f} - {high:.3f}", f"{own.right} of {own.n}"


def _over_all(own: Procedure) -> list[str]:
    return ["" if value is None else f"{value:.3f}" for value in (own.f1_macro, own.mcc)]


def _origins(own: Procedure) -> str:
    return ", ".join(f"{name} {count}" for name, count in own.origins.items())


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
