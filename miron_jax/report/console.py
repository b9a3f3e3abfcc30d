"""Where tables and lines go: the terminal at its own width, anything else wide enough that no column is cut.

Arrives: nothing.  Leaves: a rich console.  Names and labels may hold anything: here they become what a screen may show.
"""

from typing import Any

from rich.console import Console
from rich.text import Text

from miron_jax.errors import printable

WIDE = 160


def console(stderr: bool = False) -> Console:
    """A console on standard output, or on standard error."""
    found = _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = WIDE
    return found


class _Console(Console):
    """Lines, cells, headings and titles that are plain text all come through here."""

    def render_str(self, text: str, **style: Any) -> Text:
        return super().render_str(printable(text), **style)
