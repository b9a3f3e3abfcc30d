"""A progress bar on a terminal; other outputs have none.

Arrives: tokens done and planned.  Leaves: a bar on standard error with tokens/s and time left.  It deliberately does not
know what the tokens are.
"""

import time

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from miron_jax.report.console import console


class Progress:
    """Prints lines and the bar to standard error, so that standard output holds only results."""

    def __init__(self) -> None:
        self.tables = console()
        self._lines = console(stderr=True)
        self._bar = Bar(
            TextColumn("scoring"),
            BarColumn(),
            TextColumn("{task.completed:.0f} of {task.total:.0f} tokens, {task.fields[rate]:.0f}/s, left"),
            TimeRemainingColumn(),
            console=self._lines,
            disable=not self._lines.is_terminal,
        )
        self._task = self._bar.add_task("scoring", total=1, rate=0.0)
        self._start: float | None = None

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        self._lines.print(line, soft_wrap=True)

    def advance(self, done: int, planned: int) -> None:
        """`done` of `planned` tokens; both grow while parts are planned."""
        self._start = self._start or time.perf_counter()
        rate = done / max(time.perf_counter() - self._start, 1e-3)
        self._bar.update(self._task, completed=done, total=planned, rate=rate)
