"""What verify found, on screen.

Arrives: differences of ways to score.  Leaves: a table.  It deliberately computes nothing.
"""

from collections.abc import Iterable
from typing import Protocol

from rich.console import Console

from miron_jax.report.tables.console import table_of


class _Difference(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def largest(self) -> float: ...
    @property
    def flips(self) -> int: ...
    @property
    def kl(self) -> float | None: ...


def print_verified(
    out: Console, differences: Iterable[_Difference], tokens: int, tolerance: float
) -> None:
    numbers = ("largest difference, nats a token", "KL, nats", "greedy tokens that flip", "verdict")
    table = table_of(("against",), numbers, gives_way=("KL, nats", "greedy tokens that flip"))
    for each in differences:
        kl = "" if each.kl is None else f"{each.kl:.1e}"
        verdict = "same" if each.largest <= tolerance else "DIFFERS"
        table.add_row(each.name, f"{each.largest:.1e}", kl, f"{each.flips} of {tokens}", verdict)
    out.print(table)
    out.print(f"{tokens} tokens; allowed {tolerance:g} nats a token", soft_wrap=True)
