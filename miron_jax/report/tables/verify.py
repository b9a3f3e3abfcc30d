"""What verify found, on screen.

Arrives: differences of ways to score.  Leaves: a table.  It deliberately computes nothing.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.console import Console

from miron_jax.report.compare.reference import Reference, Row
from miron_jax.report.numbers import interval, shown
from miron_jax.report.tables.console import table_of
from miron_jax.results.run_folder import Run


class WayDifference(NamedTuple):
    """One way of scoring against another."""

    name: str
    largest: float  # nats a token
    exceeds: bool  # some token differs by more than its own bound, that of the self-check
    # tokens of which one way says that they are the most probable one, and the other does not
    flips: int
    kl: float | None = None  # nats, largest over the texts; None: not asked


def print_verified(
    out: Console, differences: Iterable[WayDifference], tokens: int, tolerance: float
) -> None:
    numbers = ("largest difference, nats a token", "KL, nats", "greedy tokens that flip", "verdict")
    table = table_of(("against",), numbers, gives_way=("KL, nats", "greedy tokens that flip"))
    for each in differences:
        numbers = (f"{each.largest:.1e}", shown(each.kl, ".1e"), f"{each.flips} of {tokens}")
        verdict = "DIFFERS" if each.exceeds else "same"
        table.add_row(each.name, *numbers, verdict)
    out.print(table)
    out.print(f"{tokens} tokens; allowed at most {tolerance:g} nats a token", soft_wrap=True)


def print_reference(
    out: Console, rows: Sequence[Row], expected: Reference, run: Run, unlike: str
) -> None:
    columns = ("reference", "95 % interval", "run")
    table = table_of(("task", "metric"), columns, ("verdict",), gives_way=("95 % interval",))
    for row in rows:
        numbers = (shown(row.expected), interval(row.interval), shown(row.measured))
        table.add_row(row.task, row.metric, *numbers, row.verdict)
    out.print(table)
    model = unlike or "the same weights and dtype"
    device = run.result.environment.device
    out.print(f"{model}; on {device}, the reference on {expected.device}", soft_wrap=True)
