"""Standard streams that are closed, full or not UTF-8, and names of files in every locale.

Arrives: the streams of the process.  Leaves: streams that show any text, in ASCII what their
encoding lacks, and never end a run.  It deliberately imports nothing that takes time.
"""

import codecs
import errno
import io
import os
import sys
from typing import TextIO

ERRORS = "miron_jax.ascii_forms"  # the name of the handler, for `errors=` of a stream
_FORMS = {
    **dict(zip("\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588", "_.,-=+*#", strict=True)),
    "\u00b1": "+-", "\u00b2": "^2", "\u00b7": ".", "\u00d7": "x", "\u2013": "-", "\u2014": "-",
    "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2026": "...", "\u2190": "<-",
    "\u2191": "^", "\u2192": "->", "\u2193": "v", "\u2212": "-", "\u2264": "<=", "\u2265": ">=",
    "\u27e6": "[[", "\u27e7": "]]",
}  # fmt: skip


class _LastingFile(io.FileIO):
    """The file of a stream: what it does not take is dropped."""

    error: OSError | None = None  # the first one; a reader that has gone is none

    def write(self, data: bytes | bytearray | memoryview) -> int | None:
        try:
            return super().write(data)
        except OSError as error:
            if self.error is None and error.errno != errno.EPIPE:
                self.error = error
            return memoryview(data).nbytes


def prepare() -> None:
    """Begin the process again where names of files are not UTF-8 (LC_ALL=C with PYTHONUTF8=0), and
    replace the standard streams by lasting ones.

    A stream that is closed gets /dev/null: a file of the run would else be opened under its number
    and take what libraries print.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number is free
    if sys.getfilesystemencoding() != "utf-8":
        if sys.stdout is not None:
            os.environ.setdefault("PYTHONIOENCODING", sys.stdout.encoding)
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    # a program that calls us may have put others in their place
    if sys.stdout is sys.__stdout__:
        sys.stdout = _lasting(1, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _lasting(2, sys.stderr)


def unwritten() -> OSError | None:
    """Why standard output did not take all that was printed; None if it did, or if its reader has
    gone."""
    sys.stdout.flush()
    file = getattr(sys.stdout, "buffer", None)
    return file.raw.error if isinstance(file, io.BufferedWriter) else None


def _lasting(number: int, stream: TextIO | None) -> TextIO:
    """The stream of this number; None: it was closed."""
    by_line = number == 2 or os.isatty(number) or getattr(stream, "write_through", False)
    encoding = getattr(stream, "encoding", "utf-8")
    errors = getattr(stream, "errors", "backslashreplace")
    if codecs.lookup(encoding).name != "utf-8":
        errors = ERRORS
    raw = _LastingFile(number, "w", closefd=False)
    file = io.BufferedWriter(raw)  # pyright: ignore[reportArgumentType] - write takes any buffer
    return io.TextIOWrapper(file, encoding, errors, line_buffering=by_line)


def _ascii_forms(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    shown = []
    for each in lacking:
        shown.append(_FORMS.get(each) or each.encode("ascii", "backslashreplace").decode())
    return "".join(shown), error.end


codecs.register_error(ERRORS, _ascii_forms)
