"""Standard streams and names of files in every locale.

Arrives: the streams of the process.  Leaves: streams that show any text: in ASCII what their
encoding lacks.  It deliberately imports nothing that takes time.
"""

import codecs
import io
import os
import sys

ERRORS = "miron_jax.ascii_forms"  # the name of the handler, for `errors=` of a stream
_FORMS = {
    **dict(zip("\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588", "_.,-=+*#", strict=True)),
    "\u00b1": "+-", "\u00b2": "^2", "\u00b7": ".", "\u00d7": "x", "\u2013": "-", "\u2014": "-",
    "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2026": "...", "\u2190": "<-",
    "\u2191": "^", "\u2192": "->", "\u2193": "v", "\u2212": "-", "\u2264": "<=", "\u2265": ">=",
    "\u27e6": "[[", "\u27e7": "]]",
}  # fmt: skip


def use_utf8() -> None:
    """Begin the process again where names of files are not UTF-8 (LC_ALL=C with PYTHONUTF8=0);
    give the standard streams ASCII forms of what their encoding lacks."""
    if sys.getfilesystemencoding() != "utf-8":
        os.environ.setdefault("PYTHONIOENCODING", sys.stdout.encoding)
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors=ERRORS)


def _ascii_forms(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    shown = [
        _FORMS.get(each) or each.encode("ascii", "backslashreplace").decode() for each in lacking
    ]
    return "".join(shown), error.end


codecs.register_error(ERRORS, _ascii_forms)
