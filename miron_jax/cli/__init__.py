"""The command `miron-jax COMMAND [flags]`; absl flags throughout.

Arrives: the command line.  Leaves: an exit status: 0 done, 1 failed, 2 bad input, 75 interrupted.  It deliberately
knows only run.py and what prints or writes; jax is imported after the flags are read, so that --help is quick.

    flags        what each command accepts           eval tasks plan bench humans report    one module a command
    parse, help  the command line -> flags           processes    the processes of a run, their supervisor
    run_config   flags -> RunConfig                  guard        what an exception becomes
"""

import sys

from absl import app  # here, for it defines flags: whoever saves and restores flags around a command keeps them

COMMANDS = {
    "eval": "score a model on tasks",
    "tasks": "list suites and tasks, what data each needs and whether it is there",
    "bench": "throughput of these devices on a model: tokens/s, share of the matmul peak, what each idea is worth",
    "humans": "crowd annotations to a human baseline: filter, votes, agreement, accuracy",
    "report": "how far a run's scores hang on wording; its answers as a submission to MERA's site",
    "plan": "what eval would do: requests, tokens, rows, programs, FLOPs; no device",
}


def main() -> None:
    """Entry point of the `miron-jax` command."""
    from miron_jax.errors import BAD_INPUT

    arguments = sys.argv[1:]
    command = arguments[0] if arguments else "--help"
    if command in ("--help", "-h", "help"):
        print(usage())
        sys.exit(0)
    if command not in COMMANDS:
        print(f"miron-jax: unknown command {command!r}, expected one of {', '.join(COMMANDS)}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    from importlib import import_module

    from miron_jax.cli.guard import guarded
    from miron_jax.cli.parse import parse

    action = import_module(f"miron_jax.cli.{command}").command
    app.run(
        lambda rest: guarded(action, rest),
        argv=[f"miron-jax {command}", *arguments[1:]],
        flags_parser=lambda given: parse(command, given),
    )


def usage() -> str:
    """The commands, a line each."""
    lines = [f"  miron-jax {name:6} {text}" for name, text in COMMANDS.items()]
    return "\n".join(["usage: miron-jax COMMAND [flags]; miron-jax COMMAND --help lists the flags", *lines])
