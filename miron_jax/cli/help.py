"""The texts of `miron-jax`, of `miron-jax COMMAND --help` and of `--helpfull`.

Arrives: declarations of flags.  Leaves: text.  It deliberately does not know the flags' values.
"""

import textwrap
from collections.abc import Iterator

from miron_jax.cli import COMMANDS, TAKES
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
    "screen": "Screen",
    "devices": "Devices",
    "hosts": "Hosts",
}
WIDTH = 110
SCREEN = 50  # lines of a page of help
TIED = "\N{NO-BREAK SPACE}"  # a space that lines are not wrapped at
_VALUES = {"string": "TEXT", "integer": "N", "float": "NUMBER", "list": "A,B,.."}

WELCOME = """\
miron-jax scores language-model checkpoints on benchmark suites, in JAX: CORE,
the Mosaic Eval Gauntlet, MIRON, MERA, Eval-UA-tion, and tasks of your own.

Begin here:
  miron-jax eval
      the demo model on built-in tasks, in about a minute
  miron-jax report miron-results --html=report.html
      what the run measured, as one page for a browser
  miron-jax tasks
      every task, and whether its data are here
  miron-jax eval --model=FOLDER --tasks=core --limit=20
      a Hugging Face folder, or the folder of a training run

Commands:
"""


def welcome() -> str:
    """What the program does, where to begin, its commands."""
    lines = [f"  {name:11} {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            f"{WELCOME}{lines[0]}",
            *lines[1:],
            "",
            "miron-jax COMMAND --help lists its flags; miron-jax --version",
        ]
    )


def help_of(command: str, full: bool = False) -> str:
    """Usage and the flags of each topic; one screen, where flags for special cases are only named,
    unless `full`."""
    long = _help(command, everyday_alone=False)
    return long if full or long.count("\n") < SCREEN else _help(command, everyday_alone=True)


def _help(command: str, everyday_alone: bool) -> str:
    takes = TAKES.get(command, "")
    about = textwrap.wrap(f"usage: miron-jax {command} {takes}[flags]: {COMMANDS[command]}", WIDTH)
    parts = ["\n".join(about)]
    for topic, heading in TOPICS.items():
        names = [name for name in OF_COMMAND[command] if EVERY[name].topic == topic]
        lines = (
            _short(names) if everyday_alone else [line for name in names for line in _lines(name)]
        )
        if lines:
            parts.append("\n".join([f"{heading}:", *lines]))
    if everyday_alone:
        ending = [
            f"Flags: miron-jax {command} --helpfull says what each does; --flagfile=FILE holds "
            "flags, one a line."
        ]
        return "\n".join([*parts, *ending])
    return "\n\n".join(
        [*parts, f"Flag files:\n  --flagfile=FILE\n      Flags of {command}, one a line."]
    )


def _short(names: list[str]) -> list[str]:
    """A line for each flag that everybody uses, and the names of the others."""
    lines = []
    for name in (name for name in names if EVERY[name].everyday):
        text = textwrap.shorten(
            EVERY[name].help.split("; ")[0].rstrip("."), WIDTH - 30, placeholder=" .."
        )
        lines.append(f"  {usage_of(name):27} {text}")
    rest = " ".join(f"--{name}" for name in names if not EVERY[name].everyday)
    return lines + textwrap.wrap(
        rest, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )


def _lines(name: str) -> Iterator[str]:
    setting = EVERY[name]
    yield f"  {usage_of(name)}"
    text = f"{setting.help}{default_of(setting)}"
    indent = " " * 6
    for line in textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    ):
        yield line.replace(TIED, " ")


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
