"""The command `miron-jax COMMAND [flags]`; absl flags throughout.

Arrives: the command line.  Leaves: an exit status of errors.py.  It
deliberately computes no score; jax is imported after the flags are read, so that --help is quick.

    flags, parse, help    what each command accepts; the command line -> flags
    run_config            flags -> RunConfig
    processes, guard      the processes of a run, their supervisor; exceptions -> exit statuses
    throughput, verification, task_page, topology_plan
                          what bench, verify, tasks and plan compute
    the rest              a module a command
"""

import sys

# at the top, as it defines flags, which code that saves and restores flags must know
from absl import app

COMMANDS = {
    "eval": "score a model on tasks",
    "report": "what runs found: on screen, or as one HTML page, Markdown, CSV",
    "compare": "runs example by example: differences, intervals, p-values; noise of training runs",
    "gate": "GO, NO-GO or INCONCLUSIVE: a run, and a baseline, by the rules of a policy",
    "ladder": "laws of each task over runs of several sizes, and what a larger run would score",
    "memorized": "whether a model knows test sets by heart: order, Min-K%++, guided prefixes",
    "tasks": "list suites and tasks, what data each needs and whether it is there",
    "plan": (
        "what eval would do: requests, tokens, rows, programs, FLOPs; with --topology its memory "
        "and time on TPUs"
    ),
    "verify": (
        "does this model score as it should: several ways, and against transformers' stored numbers"
    ),
    "bench": (
        "throughput of these devices on a model: tokens/s, share of the matmul peak, what each "
        "idea is worth"
    ),
    "init": "a task, or a Flax model, of your own to begin with: files that run, with comments",
    "mera": "submissions to MERA's site: write, check",
    "humans": "crowd annotations to a human baseline: filter, votes, agreement, accuracy",
    "completion": "a script that completes commands and flags in bash, zsh or fish",
}

# What these commands take beside flags.
TAKES = {
    "compare": "RUN [RUN ...] ",
    "gate": "POLICY.yaml RUN [BASELINE] ",
    "ladder": "RUN [RUN ...] ",
    "report": "[RUN ...] ",
    "init": "task|model [FOLDER] ",
    "completion": "bash|zsh|fish ",
    "tasks": "[WORD ...] ",
}
LIKENESS = 60.0  # of 100: from it a command is suggested


def main() -> None:
    """Entry point of the `miron-jax` command."""
    from miron_jax.errors import BAD_INPUT, printable

    arguments = sys.argv[1:]
    command = arguments[0] if arguments else "--help"
    if command in ("--help", "-help", "-h", "help", "--helpfull"):
        from miron_jax.cli.help import welcome

        print(welcome())
        sys.exit(0)
    if command in ("--version", "-version", "version"):
        from miron_jax import __version__

        print(f"miron-jax {__version__}")
        sys.exit(0)
    if command not in COMMANDS:
        print(printable(f"miron-jax: {_unknown(command)}"), file=sys.stderr)
        sys.exit(BAD_INPUT)
    from functools import partial
    from importlib import import_module

    from miron_jax.cli.guard import guarded
    from miron_jax.cli.parse import parse

    action = import_module(f"miron_jax.cli.{command}").command
    takes_runs = command in TAKES
    app.run(
        lambda rest: (
            guarded(partial(action, rest[1:]), rest[:1]) if takes_runs else guarded(action, rest)
        ),
        argv=[f"miron-jax {command}", *arguments[1:]],
        flags_parser=lambda argv: parse(command, argv),
    )


def _unknown(command: str) -> str:
    """Why this is no command, and what may be meant."""
    from rapidfuzz import fuzz, process

    if command.startswith("-"):
        return (
            f"a command comes before its flags: miron-jax eval {command} ..., or another of "
            f"{', '.join(COMMANDS)}"
        )
    nearest, likeness, _ = process.extractOne(command, list(COMMANDS), scorer=fuzz.ratio)
    meant = f"; {nearest} is the nearest" if likeness >= LIKENESS else ""
    return f"unknown command {command!r}, expected one of {', '.join(COMMANDS)}{meant}"
