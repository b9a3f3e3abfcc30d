"""`miron-jax ladder RUN RUN ...`: laws of tasks over runs of several sizes, and forecasts.

Arrives: output folders of eval, what the user states of them.  Leaves: tables on screen, a JSON
file, pictures.  It deliberately computes nothing.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from absl import flags

from miron_jax.cli.json_output import JsonOutput, json_output
from miron_jax.errors import InputError

if TYPE_CHECKING:
    from miron_jax.report.compare.ladder import Tokens
    from miron_jax.results.run_folder import Run

FLAGS = flags.FLAGS
T = TypeVar("T")


def command(folders: list[str]) -> None:
    from miron_jax.results.run_folder import reading_again

    if not folders:
        raise InputError("ladder wants the output folders of runs of several sizes")
    with json_output(FLAGS.json) as document:
        reading_again(partial(_ladder, folders, document))


def _ladder(folders: list[str], document: JsonOutput) -> None:
    from miron_jax.cli.report import picture_folder, write_pictures
    from miron_jax.report.compare.ladder import ladder_of, rungs_of
    from miron_jax.report.tables.console import console
    from miron_jax.report.tables.ladder import ladder_json, print_ladder
    from miron_jax.results.run_folder import read_runs

    runs = read_runs(folders)
    metrics = FLAGS.metric or [None]
    if len(metrics) > 1:
        raise InputError(f"--metric names {len(metrics)} metrics: a ladder has the law of one loss")
    unused = {"parameters": "tokens", "tokens": "parameters"}.get(FLAGS.axis)
    if unused and FLAGS[unused].value:
        raise InputError(
            f"--{unused} has no place in --axis={FLAGS.axis}: leave it out, or --axis=flops"
        )
    parameters = _stated("parameters", runs, _number)
    sizes = [_number("--predict", text) for text in FLAGS.predict or ()]
    rungs = rungs_of(runs, FLAGS.axis, parameters, _stated("tokens", runs, _tokens))
    folder = picture_folder() if FLAGS.pictures else None
    ladder = ladder_of(FLAGS.axis, rungs, metrics[0], sizes)
    out = console()
    print_ladder(out, ladder)
    document.write(ladder_json(ladder))
    if document.path is not None:
        out.print(f"written to {document.path}", soft_wrap=True)
    if folder is not None:
        from miron_jax.report.exports.pictures import files_of
        from miron_jax.report.figures.ladder import ladder_figures

        for name, _ in write_pictures(folder, files_of(ladder_figures(ladder))):
            out.print(f"written to {name}", soft_wrap=True)


def _stated(name: str, runs: "Sequence[Run]", value_of: Callable[[str, str], T]) -> dict[str, T]:
    """Label of a run -> what --NAME=RUN=VALUE states of it.  Raises InputError."""
    stated = dict[str, T]()
    for text in FLAGS[name].value or ():
        run, _, value = text.rpartition("=")
        label = None
        for each in runs:
            if run in (each.label, each.folder):
                label = each.label
        if label is None:
            raise InputError(
                f"--{name}: {text!r} names none of the runs, expected RUN=1e9 with RUN of "
                f"{', '.join(each.label for each in runs)}"
            )
        if label in stated:
            raise InputError(f"--{name} names {label} twice: state it once")
        stated[label] = value_of(f"--{name}={run}", value)
    return stated


def _number(place: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise InputError(f"{place}: {text!r} is no number above 0, expected one such as 1.3e8")
    return number


def _tokens(place: str, text: str) -> "Tokens":
    from miron_jax.report.compare.ladder import Tokens

    count = re.sub("/step$", "", text)
    return Tokens(_number(place, count), count != text)
