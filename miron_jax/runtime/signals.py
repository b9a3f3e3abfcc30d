"""Handling of SIGTERM and SIGINT over the whole life of a run: an interrupted run ends with status
75 and a sentence.

Arrives: signals.  Leaves: `Interrupted`, raised in the main thread; exit statuses.  It deliberately
imports nothing that takes time: a signal that comes before this module is loaded has the system's
default action.

    moment                                  SIGTERM   SIGINT (Ctrl-C)   a second one
    before this package is imported         -15       traceback         -
    imports, flags, waiting for peers       75        75                SIGINT: 75 at once
    loading, compiling, scoring, writing    75        75                SIGINT: 75 at once
    within a destructor or a gc callback    75        75                SIGINT: 75 at once
    once the exit status is decided         ignored   ignored           ignored

A sentence comes with every 75.

A second SIGTERM is ignored, because finished work is being written.  A handler runs between two
instructions of Python: a signal waits while a library computes (XLA compiles a program).  It waits
for imports too: an exception that passes through C++ code which a library runs on import (torch's,
by transformers) would end the process.
"""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from miron_jax.errors import GOES_ON, RUN_AGAIN

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# after which an exception that a destructor dropped, or an import delayed, is raised again
AGAIN_SECONDS = 0.05
SENTENCE = f"interrupted; {GOES_ON}"


class Interrupted(KeyboardInterrupt):
    """A signal that ends the run."""

    def __init__(self, is_preemption: bool = False) -> None:
        super().__init__()
        self.is_preemption = is_preemption  # SIGTERM: the machine is preempted, and does not wait


def install() -> None:
    """Make signals raise `Interrupted`.  Python drops an exception within a destructor, so it is
    raised again later."""
    signal.signal(signal.SIGTERM, _on_first_signal)
    signal.signal(signal.SIGINT, _on_first_signal)
    signal.signal(signal.SIGALRM, lambda _, frame: _raise(frame))
    if not isinstance(sys.unraisablehook, _RaiseAgain):
        sys.unraisablehook = _RaiseAgain(sys.unraisablehook)


def ignore() -> None:
    """Ignore signals, once the exit status is decided."""
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _on_first_signal(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # finished work is being written
    signal.signal(signal.SIGINT, _on_second_signal)
    is_preemption = number == signal.SIGTERM
    signal.signal(signal.SIGALRM, lambda _, frame: _raise(frame, is_preemption))
    _raise(frame, is_preemption)


def _raise(frame: FrameType | None, is_preemption: bool = False) -> None:
    """Raise `Interrupted`, or try again later if the main thread is importing a module."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
            return
        frame = frame.f_back
    raise Interrupted(is_preemption)


def _on_second_signal(*_: object) -> NoReturn:
    os.write(2, b"miron-jax: interrupted twice, ended at once; run the same command again\n")
    os._exit(RUN_AGAIN)


class _RaiseAgain:
    """A hook for exceptions that nobody can catch: interrupts are raised again, all others go to
    the previous hook."""

    def __init__(self, previous: Callable[["UnraisableHookArgs"], object]) -> None:
        self._previous = previous

    def __call__(self, unraisable: "UnraisableHookArgs") -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        else:
            self._previous(unraisable)
