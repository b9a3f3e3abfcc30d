"""Files of articles and stories that a user wrote, read as parsed records.

Arrives: a path and the flag that names it.  Leaves: parsed records; InputError for a bad one.  It
deliberately does not know what a record means.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from miron_jax.definitions.data_files import located_rows, parse_each
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.files.regular import read_regular

T = TypeVar("T")


def read_records(
    path: Path, flag: str, parse: Callable[[JsonObject, int], T], fields: str, hint: str = ""
) -> list[T]:
    """The records of a file of JSON objects with `fields`; `hint` precedes the remedy for one that
    `parse` refuses."""
    try:
        content = read_regular(path)
    except OSError as error:
        raise InputError(
            f"{flag}={path} cannot be read ({error.strerror}): name a file of JSON objects with "
            f"{fields}"
        ) from None
    rows = located_rows(content, path, flag, remedy="name another file")
    return parse_each(rows, parse, f"{flag}={path}", f"{hint}: mend the {rows.unit}")
