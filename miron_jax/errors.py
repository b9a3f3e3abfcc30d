"""The exceptions that end a run with a sentence, the exit statuses, and how any text comes to a
screen.

Arrives: nothing.  Leaves: each `RunEnded`, among them `InputError`, for input that a user can mend,
and what its exit status means; cli/guard.py exits with it.  It knows nothing of stages: whoever
meets the fault words the sentence.
"""

from collections.abc import Sequence

# Exit statuses; 0: done.
# The self-check or `verify` found a difference, the model answers NaN, the machine refused memory
# or threads, or the package has a defect.
FAILED = 1
BAD_INPUT = 2  # `InputError`, a wrong flag, or a file that the system refuses
NO_GO = 3  # `NoGo`
INCONCLUSIVE = 4  # `Inconclusive`
# The same command goes on: after SIGTERM or Ctrl-C (runtime/signals.py), a lost process of the run
# (runtime/hosts.py, cli/processes.py), or `NotJudged`.
RUN_AGAIN = 75

GOES_ON = "what is scored is kept, run the same command again"  # ends a sentence about RUN_AGAIN


class RunEnded(Exception):
    """Ends a run with one sentence and an exit status.  The sentence is one line, whatever names
    and values it quotes."""

    status = FAILED

    def __init__(self, sentence: str) -> None:
        super().__init__(" ".join(sentence.splitlines()))


class InputError(RunEnded):
    """Bad input: what, where, what was expected, what to do."""

    status = BAD_INPUT


class SelfCheckFailed(RunEnded):
    """Two ways that must agree do not, the engine and the plain scorer for one: no number of this
    run can be trusted."""


class NoGo(RunEnded):
    """A run breaks a rule of its gate's policy."""

    status = NO_GO


class Inconclusive(RunEnded):
    """A run breaks no rule of its gate's policy, and of some it is not known whether they hold."""

    status = INCONCLUSIVE


class Unscored(RunEnded):
    """A run is finished and written, and the model answered some of its examples with NaN."""

    status = FAILED


class NotJudged(RunEnded):
    """A run is finished and written, but for programs that the machine could not judge.

    One with examples that are `Unscored` too, or that an InputError ended, ends as these do
    (cli/eval.py).
    """

    status = RUN_AGAIN


def printable(text: str, most: int | None = None) -> str:
    """Text of files, names and flags as a screen or a picture may show it: no control character,
    nothing that turns the order of writing, no lone surrogate; they are written as Python escapes.
    Cut to `most` characters."""
    shown = "".join(
        character if character.isprintable() or character == "\n" else repr(character)[1:-1]
        for character in text
    )
    return shown if most is None or len(shown) <= most else f"{shown[: most - 1]}\u2026"


def some_of(values: Sequence[object], most: int) -> str:
    """The first `most` values with commas, and how many more there are."""
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(map(str, values[:most])) + more
