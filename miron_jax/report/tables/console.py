"""Consoles: a terminal keeps its width; other outputs are wide enough for every column.

Arrives: nothing.  Leaves: a rich console that makes all text printable.  It deliberately does not know what it prints.
"""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from miron_jax.errors import printable

WIDE = 160
MOST = 1000  # columns of a table on a terminal


def console(stderr: bool = False) -> Console:
    """A console on standard output, or on standard error."""
    output = _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not output.is_terminal:
        output.width = WIDE
    return output


def table_of(names: Sequence[str], numbers: Sequence[str]) -> Table:
    """A table whose first columns are names and whose others are numbers, aligned to the right; none of them wraps."""
    table = Table(header_style="bold")
    for name in (*names, *numbers):
        table.add_column(name, no_wrap=True)
    for column in table.columns[len(names) :]:
        column.justify = "right"
    return table


def print_whole(out: Console, table: Table) -> None:
    """Print a table as wide as it is: a narrow terminal breaks its lines, but no number is cut."""
    before = out.width
    out.width = max(before, out.measure(table, options=out.options.update(width=MOST)).maximum)
    out.print(table, crop=False)
    out.width = before


class _Console(Console):
    """rich passes all plain text through `render_str`: lines, cells, headings and titles."""

    def render_str(self, text: str, **style: Any) -> Text:
        return super().render_str(printable(text), **style)
