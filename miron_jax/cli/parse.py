"""The command line of one command: its flags read, or --help printed, or one sentence about what is wrong with it.

Arrives: arguments.  Leaves: flags that are set.  It deliberately does not know what a command does.
"""

import sys
from collections.abc import Sequence

from absl import flags

from miron_jax.cli.flags import EVERY, FLAGS, OF_COMMAND, define
from miron_jax.cli.help import help_of
from miron_jax.errors import BAD_INPUT, printable

ALIKE = (
    60.0  # of 100: a flag of another command is this much like one of this command, or the user meant that other one
)


def parse(command: str, arguments: Sequence[str]) -> list[str]:
    """Set the command's flags; what is no flag is returned.  Exits where there is nothing to run."""
    if any(argument in ("--help", "-help", "-h", "--helpshort", "--helpfull") for argument in arguments):
        print(help_of(command))
        sys.exit(0)
    define(command)
    try:
        return FLAGS(list(arguments))
    except flags.UnrecognizedFlagError as error:
        sentence = f"miron-jax {command}: {_unknown(command, error.flagname, arguments)}"
    except (flags.Error, ValueError) as error:  # of --nolimit=3, and of a --flagfile that is no text
        sentence = f"miron-jax: {error}"
    print(printable(f"{sentence}; miron-jax {command} --help lists the flags"), file=sys.stderr)
    sys.exit(BAD_INPUT)


def _unknown(command: str, given: str, arguments: Sequence[str]) -> str:
    """What is wrong with --given, which the command does not accept, and what is like it."""
    from rapidfuzz import fuzz, process

    name = _positive(given)
    others = [other for other, accepted in OF_COMMAND.items() if name in accepted]
    nearest, likeness, _ = process.extractOne(name, OF_COMMAND[command], scorer=fuzz.ratio)
    if not others:
        return f"there is no flag --{given}{_where(given, arguments)}; the nearest is --{nearest}"
    said = f"--{name} is a flag of {', '.join(others)}, not of {command}{_where(given, arguments)}"
    return f"{said}; the nearest of {command} is --{nearest}" if likeness >= ALIKE else said


def _positive(given: str) -> str:
    """resume of --noresume."""
    name = given.removeprefix("no")
    return name if given not in EVERY and name in EVERY and EVERY[name].kind == "bool" else given


def _where(given: str, arguments: Sequence[str]) -> str:
    named = {argument.lstrip("-").partition("=")[0] for argument in arguments if argument.startswith("-")}
    return "" if given in named else " (it stands in a --flagfile, which may hold only flags of its command)"
