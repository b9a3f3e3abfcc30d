"""The texts of `miron-jax`, of `miron-jax COMMAND --help` and of `--helpfull`.

Arrives: declarations of flags.  Leaves: text, as wide as the screen, at most WIDTH.  It
deliberately does not know the flags' values.
"""

import shutil
import textwrap
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from miron_jax.cli import COMMANDS, TAKES
from miron_jax.cli.flags import EVERY, OF_COMMAND
from miron_jax.config import Setting, Topic
from miron_jax.files.regular import read_text

TOPICS: dict[Topic, str] = {
    "annotations": "Annotations",
    "submission": "Submissions to MERA's site",
    "comparison": "Comparison",
    "model": "Model",
    "tasks": "Tasks",
    "sampling": "Fewer examples",
    "answers": "Answers of others",
    "export": "Export",
    "output": "Output",
    "screen": "Screen",
    "devices": "Devices",
    "hosts": "Hosts",
}
WIDTH = 110
SCREEN = 50  # lines of a page of help
TIED = "\N{NO-BREAK SPACE}"  # a space that lines are not wrapped at
_VALUES = {"string": "TEXT", "integer": "N", "float": "NUMBER", "list": "A,B,.."}

WELCOME = read_text(Path(__file__).with_name("templates") / "welcome.txt")


def welcome() -> str:
    """What the program does, where to begin, its commands."""
    commands = "\n".join(_entry(name, 11, text, 3) for name, text in COMMANDS.items())
    return f"{WELCOME}{commands}\n\nmiron-jax COMMAND --help has its flags; miron-jax --version"


def help_of(command: str, full: bool = False) -> str:
    """Usage and the flags of each topic; one screen, where flags for special cases are only named,
    unless `full`."""
    long = _help(command, everyday_alone=False)
    if full or long.count("\n") < SCREEN:
        return long
    return _help(command, everyday_alone=True)


def _help(command: str, everyday_alone: bool) -> str:
    takes = TAKES.get(command, "")
    about = f"usage: miron-jax {command} {takes}[flags]: {COMMANDS[command]}"
    parts = [textwrap.fill(about, _width())]
    for topic, heading in TOPICS.items():
        names = [name for name in OF_COMMAND[command] if EVERY[name].topic == topic]
        lines = _short(names) if everyday_alone else [*chain.from_iterable(map(_lines, names))]
        if lines:
            parts.append("\n".join([f"{heading}:", *lines]))
    if everyday_alone:
        more = f"Flags: miron-jax {command} --helpfull says what each does; --flagfile=FILE holds "
        return "\n".join([*parts, _filled(f"{more}flags, one a line.", "")])
    return "\n\n".join(
        [*parts, f"Flag files:\n  --flagfile=FILE\n      Flags of {command}, one a line."]
    )


def _short(names: list[str]) -> list[str]:
    """A line for each flag that everybody uses, and the names of the others."""
    lines: list[str] = []
    rest: list[str] = []
    for name in names:
        if EVERY[name].everyday:
            lines.append(_entry(usage_of(name), 27, EVERY[name].help.split("; ")[0].rstrip("."), 2))
        else:
            rest.append(f"--{name}")
    if rest:
        return [*lines, _filled(" ".join(rest), "  ")]
    return lines


def _width() -> int:
    """Columns of the terminal, or those that COLUMNS names; at most WIDTH, which a pipe has too."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH, SCREEN)).columns)


def _filled(text: str, indent: str, first: str = "", max_lines: int | None = None) -> str:
    lines = textwrap.TextWrapper(
        _width(), first or indent, indent, break_on_hyphens=False, max_lines=max_lines
    )
    lines.placeholder = " .."
    return lines.fill(text)


def _entry(name: str, size: int, text: str, max_lines: int) -> str:
    """A name in `size` columns, and beside it a text of at most so many lines."""
    return _filled(text, " " * (size + 3), f"  {name:{size}} ", max_lines)


def _lines(name: str) -> Iterator[str]:
    yield f"  {usage_of(name)}"
    yield _filled(f"{EVERY[name].help}{default_of(EVERY[name])}", " " * 6).replace(TIED, " ")


def usage_of(name: str) -> str:
    """--name=TEXT, --[no]name."""
    setting = EVERY[name]
    if setting.kind in ("bool", "optional"):
        return f"--[no]{name}" if setting.kind == "bool" else f"--{name}[=FILE]"
    return (
        f"--{name}={'|'.join(setting.choices) if setting.kind == 'enum' else _VALUES[setting.kind]}"
    )


def default_of(setting: Setting) -> str:
    """(default: 500); empty if there is none."""
    if setting.default is None or setting.default == "":
        return ""
    text = f"{setting.default:g}" if setting.kind == "float" else str(setting.default)
    return f" (default:{TIED}{text.lower() if setting.kind == 'bool' else text})"
