"""Tables of the suites: files of JSON lines beside the modules that read them.

Arrives: a module's path, a file's name.  Leaves: an object a line, whose keys are the fields of a
record.  It deliberately does not know the records.
"""

import json
from pathlib import Path

from miron_jax.files.readers import JsonObject
from miron_jax.files.regular import read_text


def table_rows(module: str, name: str = "table.jsonl") -> list[JsonObject]:
    """The rows of a table in the module's folder; `module` is its __file__."""
    text = read_text(Path(module).with_name(name))
    return list(map(json.loads, text.rstrip("\n").split("\n")))
