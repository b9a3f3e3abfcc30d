"""The text of `miron-jax COMMAND --help`: the command's own flags, a heading for each topic.

Arrives: declarations of flags.  Leaves: text.  It deliberately does not know the flags' values.
"""

import textwrap
from collections.abc import Iterator

from miron_jax.cli import COMMANDS
from miron_jax.cli.flags import EVERY, OF_COMMAND
from miron_jax.config import Setting, Topic

TOPICS: dict[Topic, str] = {
    "annotations": "Annotations",
    "submission": "Submissions to MERA's site",
    "comparison": "Comparison",
    "model": "Model",
    "tasks": "Tasks",
    "sampling": "Fewer examples",
    "export": "Export",
    "output": "Output",
    "devices": "Devices",
    "hosts": "Hosts",
}
WIDTH = 110
TIED = "\N{NO-BREAK SPACE}"  # a space that lines are not wrapped at
_VALUES = {"string": "TEXT", "integer": "N", "float": "NUMBER", "list": "A,B,.."}


def help_of(command: str) -> str:
    """Usage, the flags of each topic, and absl's --flagfile."""
    runs = {"compare": "RUN [RUN ...] ", "report": "[RUN ...] "}.get(command, "")
    parts = [f"usage: miron-jax {command} {runs}[flags]: {COMMANDS[command]}"]
    for topic, heading in TOPICS.items():
        lines = [line for name in OF_COMMAND[command] if EVERY[name].topic == topic for line in _lines(name)]
        if lines:
            parts.append("\n".join([f"{heading}:", *lines]))
    parts.append(f"Flag files:\n  --flagfile=FILE\n      Flags of {command}, one a line.")
    return "\n\n".join(parts)


def _lines(name: str) -> Iterator[str]:
    setting = EVERY[name]
    yield f"  --[no]{name}" if setting.kind == "bool" else f"  --{name}={_value(setting)}"
    text, indent = f"{setting.help}{_default(setting)}", " " * 6
    for line in textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False):
        yield line.replace(TIED, " ")


def _value(setting: Setting) -> str:
    return "|".join(setting.choices) if setting.kind == "enum" else _VALUES[setting.kind]


def _default(setting: Setting) -> str:
    if setting.default is None or setting.default == "":
        return ""
    text = f"{setting.default:g}" if setting.kind == "float" else str(setting.default)
    return f" (default:{TIED}{text.lower() if setting.kind == 'bool' else text})"
