"""Parses the command line of one command; prints `--help`, or one sentence about a wrong flag.

Arrives: arguments.  Leaves: absl's flags, set.  It deliberately does not know what a command does.
"""

import re
import sys
from collections.abc import Sequence

from absl import flags

from miron_jax.cli.flags import EVERY, FLAGS, OF_COMMAND, define
from miron_jax.cli.help import help_of
from miron_jax.config import check_setting
from miron_jax.errors import BAD_INPUT, InputError, printable

FULL = ("--helpfull", "-helpfull")
ALIKE = 60.0  # of 100: likeness from which a flag of this command is suggested


def parse(command: str, arguments: Sequence[str]) -> list[str]:
    """Set the command's flags and return the arguments that are no flags.  Exits after --help and
    after a wrong flag."""
    if any(
        argument in ("--help", "-help", "-h", "--helpshort", "-helpshort", *FULL)
        for argument in arguments
    ):
        print(help_of(command, full=any(argument in FULL for argument in arguments)))
        sys.exit(0)
    define(command)
    try:
        for argument in arguments:
            argument.encode()
        rest = FLAGS(list(arguments))
        for name in OF_COMMAND[command]:
            check_setting(name, EVERY[name], FLAGS[name].value)
        return rest
    except InputError as error:
        sentence = f"miron-jax {command}: {error}"
    except UnicodeEncodeError as error:
        sentence = (
            f"miron-jax {command}: {error.object} holds bytes that are not UTF-8, which no results "
            "can name, expected text: rename the file or folder"
        )
    except flags.UnrecognizedFlagError as error:
        sentence = f"miron-jax {command}: {_unknown(command, error.flagname, arguments)}"
    # ValueError: of --nolimit=3, and of a --flagfile that is no text
    except (flags.Error, ValueError) as error:
        sentence = f"miron-jax {command}: {_wrong_value(str(error))}"
    print(printable(f"{sentence}; miron-jax {command} --help lists the flags"), file=sys.stderr)
    sys.exit(BAD_INPUT)


def flags_of_others() -> dict[str, str]:
    """What users of other programs type -> what serves here.  lm-evaluation-harness and olmo-eval
    have the first ones, nanochat and llm-foundry the last."""
    import json
    from importlib.resources import files

    return json.loads(
        files("miron_jax.cli").joinpath("flags_of_others.json").read_text(encoding="utf-8")
    )


def _unknown(command: str, flag: str, arguments: Sequence[str]) -> str:
    """Why the command does not accept --flag, and the flag that is most like it."""
    from rapidfuzz import fuzz, process

    name = _positive(flag).replace("-", "_")
    if advice := flags_of_others().get(name):
        return f"there is no flag --{flag}{_origin(flag, arguments)}: {advice}"
    if name in OF_COMMAND[command]:
        return (
            f"there is no flag --{flag}{_origin(flag, arguments)}: names of flags have "
            f"underscores, --{name}"
        )
    others = [other for other, accepted in OF_COMMAND.items() if name in accepted]
    nearest, likeness, _ = process.extractOne(
        name, [*OF_COMMAND[command], "help"], scorer=fuzz.ratio
    )
    if not others:
        return f"there is no flag --{flag}{_origin(flag, arguments)}{_suggested(nearest, likeness)}"
    sentence = (
        f"--{name} is a flag of {', '.join(others)}, not of {command}{_origin(flag, arguments)}"
    )
    if likeness >= ALIKE:
        return f"{sentence}; the nearest of {command} is --{nearest}"
    return sentence


def _suggested(nearest: str, likeness: float) -> str:
    return f"; the nearest is --{nearest}" if likeness >= ALIKE else ""


_EXPECTED = {
    "integer": "a whole number",
    "float": "a number",
    "bool": "true or false, or the bare flag",
}


def _wrong_value(message: str) -> str:
    """absl's message about a value or a flag file, in this program's words where it is one of
    those."""
    if wrong := re.match(r"flag --(\w+)=(.*?): ", message, re.DOTALL):
        name, value = wrong.groups()
        setting = EVERY.get(name)
        if setting is not None and setting.kind in _EXPECTED:
            return f"--{name} is {value!r}, expected {_EXPECTED[setting.kind]}"
        if setting is not None and setting.choices:
            return f"--{name} is {value!r}, expected one of {', '.join(setting.choices)}"
    if missing := re.match(
        r"ERROR:: Unable to open flagfile: \[Errno \d+\] (.*?): '(.*)'", message
    ):
        return (
            f"--flagfile={missing[2]} cannot be read ({missing[1]}): name a file with one flag a "
            "line"
        )
    return message


def _positive(flag: str) -> str:
    """The flag that is negated: resume of --noresume."""
    name = flag.removeprefix("no")
    if flag not in EVERY and name in EVERY and EVERY[name].kind == "bool":
        return name
    return flag


def _origin(flag: str, arguments: Sequence[str]) -> str:
    """A note where the flag is not on the command line."""
    on_line = {
        argument.lstrip("-").partition("=")[0] for argument in arguments if argument.startswith("-")
    }
    if flag in on_line:
        return ""
    return " (it stands in a --flagfile, which may hold only flags of its command)"
