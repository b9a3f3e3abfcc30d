"""Where tables go: the terminal at its own width, anything else wide enough that no column is cut.

Arrives: nothing.  Leaves: a rich console.
"""

from rich.console import Console

WIDE = 160


def console(stderr: bool = False) -> Console:
    """A console on standard output, or on standard error."""
    found = Console(stderr=stderr, highlight=False)
    return found if found.is_terminal else Console(stderr=stderr, highlight=False, width=WIDE)
