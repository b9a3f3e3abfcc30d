"""`--json`: a command's result as JSON, in a file or on standard output.

Arrives: the flag, a document.  Leaves: a file, or lines on standard output.  It deliberately does
not know what the document says.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import NamedTuple, TextIO

from miron_jax.errors import InputError
from miron_jax.files.durable import write_whole
from miron_jax.files.places import local_path
from miron_jax.files.readers import Json


class JsonOutput(NamedTuple):
    """Where a command's document goes."""

    path: Path | None  # None: to standard output, or nowhere
    stream: TextIO | None  # standard output, if the document alone may stand there

    @property
    def is_alone(self) -> bool:
        """Whether nothing but the document may be printed to standard output."""
        return self.stream is not None

    def write(self, document: Json) -> None:
        if self.path is None and self.stream is None:
            return
        from miron_jax.results.document import plain, strict_json

        text = strict_json(plain(document), indent=1) + "\n"
        if self.path is not None:
            write_whole(self.path, text.encode("utf-8"))
        elif self.stream is not None:
            self.stream.flush()
            # as UTF-8, whatever the terminal's encoding is
            binary = getattr(self.stream, "buffer", None)
            self.stream.write(text) if binary is None else binary.write(text.encode())


@contextmanager
def json_output(name: str | None) -> Iterator[JsonOutput]:
    """What --json names.  For "-", all else that is printed meanwhile, by a user's own model too,
    goes to standard error.

    Raises InputError for a file that cannot be written.
    """
    if name == "-":
        stream = sys.stdout
        with redirect_stdout(sys.stderr):
            yield JsonOutput(None, stream)
        return
    path = None if name is None else local_path(name)
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise InputError(
            f"--json={name} cannot be written: name a file in a folder that is there, or - for the "
            "screen"
        )
    yield JsonOutput(path, None)
