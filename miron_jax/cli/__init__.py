"""The command `miron-jax COMMAND [flags]`; absl flags throughout.

Arrives: the command line.  Leaves: an exit status: 0 done, 1 failed, 2 bad input, 75 interrupted.  It deliberately
knows only run.py and the modules that print or write; jax is imported after the flags are read, so that --help is quick.

    flags        what each command accepts           one module a command
    parse, help  the command line -> flags           processes    the processes of a run, their supervisor
    run_config   flags -> RunConfig                  guard        exceptions -> exit statuses
"""

import sys

from absl import app  # at the top, as it defines flags, which code that saves and restores flags must know

COMMANDS = {
    "eval": "score a model on tasks",
    "tasks": "list suites and tasks, what data each needs and whether it is there",
    "bench": "throughput of these devices on a model: tokens/s, share of the matmul peak, what each idea is worth",
    "humans": "crowd annotations to a human baseline: filter, votes, agreement, accuracy",
    "compare": "runs example by example: differences, intervals, p-values; noise of training runs",
    "report": "a run's results on screen, and how far they hang on wording",
    "mera": "submissions to MERA's site: write, check",
    "verify": "does this model score as it should: several ways, and against transformers' stored numbers",
    "plan": "what eval would do: requests, tokens, rows, programs, FLOPs; with --topology its memory and time on TPUs",
}

TAKES_RUNS = ("compare", "report")  # output folders of eval, beside flags


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
    from functools import partial
    from importlib import import_module

    from miron_jax.cli.guard import guarded
    from miron_jax.cli.parse import parse

    action = import_module(f"miron_jax.cli.{command}").command
    takes_runs = command in TAKES_RUNS
    app.run(
        lambda rest: guarded(partial(action, rest[1:]), rest[:1]) if takes_runs else guarded(action, rest),
        argv=[f"miron-jax {command}", *arguments[1:]],
        flags_parser=lambda argv: parse(command, argv),
    )


def usage() -> str:
    """The help text: one line for each command."""
    lines = [f"  miron-jax {name:6} {text}" for name, text in COMMANDS.items()]
    return "\n".join(["usage: miron-jax COMMAND [flags]; miron-jax COMMAND --help lists the flags", *lines])
