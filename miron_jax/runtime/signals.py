"""SIGTERM and SIGINT from the first line to the last: a run that is interrupted ends with 75 and a sentence.

Arrives: signals.  Leaves: `Interrupted`, raised in the main thread; exit statuses.  It deliberately imports nothing that
takes time: what comes before it is loaded has the system's own answer.

    moment                                   SIGTERM            SIGINT (Ctrl-C)      a second one
    before this package is imported          -15                traceback            -
    imports, flags, waiting for peers        75, a sentence     75, a sentence       SIGINT: 75 at once, a sentence
    loading, compiling, scoring, writing     75, a sentence     75, a sentence       SIGINT: 75 at once, a sentence
    within a destructor or a gc callback     75, a sentence     75, a sentence       SIGINT: 75 at once, a sentence
    once the exit status is decided          ignored            ignored              ignored

A second SIGTERM is ignored: what is finished is being written.  A handler runs between two instructions of Python: while a
library computes (XLA compiles a program), the signal waits for it.  It waits for imports too: C++ that a library runs as it
is imported (torch's, by transformers) ends the process where an exception passes through it.
"""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from miron_jax.errors import INTERRUPTED

AGAIN_SECONDS = 0.05  # until what a destructor dropped, or an import held back, is raised again
SENTENCE = "interrupted; what is scored is kept, run the same command again"


class Interrupted(KeyboardInterrupt):
    """A signal that ends the run."""

    def __init__(self, is_preemption: bool = False) -> None:
        super().__init__()
        self.is_preemption = is_preemption  # SIGTERM: the machine is taken away, and does not wait


def install() -> None:
    """From here on signals raise `Interrupted`; Python would drop what is raised within a destructor: it is raised again."""
    signal.signal(signal.SIGTERM, _first)
    signal.signal(signal.SIGINT, _first)
    signal.signal(signal.SIGALRM, lambda _, frame: _raise(frame))
    if not isinstance(sys.unraisablehook, _RaiseAgain):
        sys.unraisablehook = _RaiseAgain(sys.unraisablehook)


def ignore() -> None:
    """The status is decided: nothing changes it any more."""
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _first(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what is finished is written now, whatever else is sent
    signal.signal(signal.SIGINT, _second)
    is_preemption = number == signal.SIGTERM
    signal.signal(signal.SIGALRM, lambda _, frame: _raise(frame, is_preemption))
    _raise(frame, is_preemption)


def _raise(frame: FrameType | None, is_preemption: bool = False) -> None:
    """Raises `Interrupted`, or tries again later where the main thread is importing something."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
            return
        frame = frame.f_back
    raise Interrupted(is_preemption)


def _second(*_: Any) -> NoReturn:
    os.write(2, b"miron-jax: interrupted twice, ended at once; run the same command again\n")
    os._exit(INTERRUPTED)


class _RaiseAgain:
    """Stands before the interpreter's own hook for exceptions that nobody can catch."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell

    def __call__(self, dropped: Any) -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        else:
            self._tell(dropped)
