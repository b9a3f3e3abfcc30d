"""What a run says while it works: sentences, details, how far each stage is.

Arrives: lines and counts from any stage, on any thread.  Leaves: nothing here; report/progress.py
prints them.  It deliberately does not know a screen.
"""

from collections.abc import Callable


class Progress:
    """Listens to a run; this one keeps silent, and a subclass prints."""

    def say(self, line: str) -> None:
        """A sentence for every user."""

    def warn(self, line: str) -> None:
        """A sentence that must be read, whatever else is silenced."""
        self.say(line)

    def detail(self, line: str) -> None:
        """A sentence for those who ask for details (--verbose)."""

    def advance(self, stage: str, done: float = 0, total: float = 0, unit: str = "") -> None:
        """`done` of about `total` units of a stage, such as "scoring", which this begins; a total
        of 0 is not known."""

    def end(self, stage: str) -> None:
        """The stage is over, if it has begun."""


class Lines(Progress):
    """Hands each sentence and detail to a function."""

    def __init__(self, take: Callable[[str], object]) -> None:
        self._take = take

    def say(self, line: str) -> None:
        self._take(line)

    def detail(self, line: str) -> None:
        self._take(line)


SILENT = Progress()
