"""--json: a command's result as JSON, in a file or on standard output.

Arrives: the flag, a document.  Leaves: a file, or lines on standard output.  It deliberately does not know what the
document says.
"""

from pathlib import Path
from typing import Any

from miron_jax.errors import InputError
from miron_jax.files.places import local_path

STANDARD_OUTPUT = Path("-")


def json_file(name: str | None) -> Path | None:
    """The file that --json names; `STANDARD_OUTPUT` for "-", None if the flag is absent.  Raises InputError."""
    if name is None or name == "-":
        return None if name is None else STANDARD_OUTPUT
    path = local_path(name)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InputError(f"--json={name} cannot be written: name a file in a folder that is there, or - for the screen")
    return path


def write_json(path: Path | None, document: Any) -> None:
    """Write the document where `json_file` says."""
    if path is None:
        return
    from miron_jax.report.results import strict, strict_json

    text = strict_json(strict(document), indent=1)
    if path == STANDARD_OUTPUT:
        print(text)
    else:
        path.write_text(f"{text}\n", encoding="utf-8")
