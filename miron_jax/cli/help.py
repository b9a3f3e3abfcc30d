"""The text of `miron-jax COMMAND --help`: the command's own flags, a heading for each topic.

Arrives: declarations of flags.  Leaves: text.  It deliberately does not know what was given.
"""

import textwrap
from collections.abc import Iterator

from miron_jax.cli import COMMANDS
from miron_jax.cli.flags import EVERY, OF_COMMAND
from miron_jax.config import Setting, Topic

TOPICS: dict[Topic, str] = {
    "annotations": "Annotations",
    "submission": "Submissions to MERA's site",
    "model": "Model",
    "tasks": "Tasks",
    "export": "Export",
    "output": "Output",
    "devices": "Devices",
    "hosts": "Hosts",
}
WIDTH = 110
TIED = "\N{NO-BREAK SPACE}"  # where no line ends
_VALUES = {"string": "TEXT", "integer": "N", "float": "NUMBER", "list": "A,B,.."}


def help_of(command: str) -> str:
    """Usage, topics, and absl's flag that reads a file of flags."""
    parts = [f"usage: miron-jax {command} [flags]: {COMMANDS[command]}"]
    for topic, heading in TOPICS.items():
        lines = [line for name in OF_COMMAND[command] if EVERY[name].topic == topic for line in _lines(name)]
        if lines:
            parts.append("\n".join([f"{heading}:", *lines]))
    parts.append(f"Flag files:\n  --flagfile=FILE\n      Flags of {command}, one a line.")
    return "\n\n".join(parts)


def _lines(name: str) -> Iterator[str]:
    own = EVERY[name]
    yield f"  --[no]{name}" if own.kind == "bool" else f"  --{name}={_value(own)}"
    text, indent = f"{own.help}{_default(own)}", " " * 6
    for line in textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False):
        yield line.replace(TIED, " ")


def _value(own: Setting) -> str:
    return "|".join(own.choices) if own.kind == "enum" else _VALUES[own.kind]


def _default(own: Setting) -> str:
    if own.default is None or own.default == "":
        return ""
    told = f"{own.default:g}" if own.kind == "float" else str(own.default)
    return f" (default:{TIED}{told.lower() if own.kind == 'bool' else told})"
