"""`miron-jax report RUN [RUN ...]`: results of runs on screen, as a page, or in other programs'
files.

Arrives: output folders of eval; --output where none is named.  Leaves: tables on screen, or files.
It deliberately computes no score.
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from miron_jax.errors import InputError, some_of

if TYPE_CHECKING:
    from miron_jax.results.run_folder import Run

FLAGS = flags.FLAGS


def command(folders: list[str]) -> None:
    from miron_jax.report.tables.console import console
    from miron_jax.report.tables.results import print_results
    from miron_jax.report.tables.robustness import is_robust, print_robustness
    from miron_jax.results.run_folder import read_runs, reading_again

    names = folders or [FLAGS.output]
    out = console()
    if FLAGS.data_dir and not FLAGS.html:
        raise InputError(
            f"--data_dir={FLAGS.data_dir} is of --html alone, whose page shows whole prompts: add "
            "--html=FILE, or leave it out"
        )
    files = (FLAGS.html, FLAGS.markdown, FLAGS.csv, FLAGS.every_eval_ever, FLAGS.hub_yaml)
    if any((*files, FLAGS.pictures)):
        written = reading_again(lambda: [*_written(read_runs(names))])
        for name, size in written:
            out.print(f"written to {name} ({size / 1e6:.1f} MB)", soft_wrap=True)
        return
    runs = read_runs(names)
    if FLAGS.verify:
        _verify(runs)
        return
    for run in runs:
        if FLAGS.robustness:
            print_robustness(out, run)
            continue
        out.print(run.folder, style="bold", soft_wrap=True)
        print_results(out, run.result)
        if run.unfinished:
            out.print(run.unfinished, soft_wrap=True)
        if is_robust(run):
            print_robustness(out, run)


def _verify(runs: "list[Run]") -> None:
    """Raises InputError if a sample file is not as its results.json says."""
    from miron_jax.report.tables.console import console

    damages = [*chain.from_iterable(run.damages() for run in runs)]
    if damages:
        raise InputError(f"{len(damages)} sample files are not whole: {some_of(damages, 3)}")
    count = sum(len(each.tasks) for run in runs for each in (run, *run.steps().values()))
    console().print(f"{count} sample files are as results.json says", soft_wrap=True)


def _written(runs: "list[Run]") -> Iterator[tuple[str, int]]:
    """Write each file that is asked for; yields its name and size in bytes."""
    from miron_jax.cli.run_config import data_dir
    from miron_jax.files.durable import write_whole
    from miron_jax.report.exports.exchange import every_eval_ever, hub_yaml
    from miron_jax.report.exports.flat import csv_of, markdown_of
    from miron_jax.report.exports.pictures import picture_files
    from miron_jax.report.html.page import page_of

    flags_of = (
        (FLAGS.html, lambda runs: page_of(runs, data_dir()), "html"),
        (FLAGS.markdown, markdown_of, "markdown"),
        (FLAGS.csv, csv_of, "csv"),
        (FLAGS.every_eval_ever, every_eval_ever, "every_eval_ever"),
        (FLAGS.hub_yaml, partial(hub_yaml, _hub_tasks()), "hub_yaml"),
    )
    asked = [
        (name, checked_path(name, flag), text_of, flag)
        for name, text_of, flag in flags_of
        if name is not None
    ]
    for i, (name, path, _, flag) in enumerate(asked):
        if any(path == other for _, other, _, _ in asked[:i]):
            raise InputError(
                f"--{flag}={name} would overwrite another of these files: name another file"
            )
    folder = picture_folder() if FLAGS.pictures else None
    contents = [text_of(runs).encode("utf-8", "replace") for _, _, text_of, _ in asked]
    for (name, path, _, _), content in zip(asked, contents, strict=True):
        write_whole(path, content)
        yield name, len(content)
    if folder:
        yield from write_pictures(folder, picture_files(runs))


def write_pictures(
    folder: Path, pictures: Iterable[tuple[str, bytes]]
) -> Iterator[tuple[str, int]]:
    """Write each into the folder of --pictures; yields its name and size in bytes."""
    from miron_jax.files.durable import write_whole

    for name, content in pictures:
        write_whole(folder / name, content)
        yield f"{FLAGS.pictures}/{name}", len(content)


def picture_folder() -> Path:
    """Raises InputError if the folder of --pictures can be neither used nor made."""
    from miron_jax.files.places import local_path

    folder = local_path(FLAGS.pictures)
    if (folder.exists() and not folder.is_dir()) or not folder.absolute().parent.is_dir():
        raise InputError(
            f"--pictures={FLAGS.pictures} is no folder and cannot be made: name a folder, or a new "
            "one in a folder that is there"
        )
    folder.mkdir(exist_ok=True)
    return folder


def _hub_tasks() -> dict[str, tuple[str, str]]:
    """Task -> data set of the Hub, task_id there.  Raises InputError."""
    if bool(FLAGS.hub_yaml) != bool(FLAGS.hub_tasks):
        raise InputError(
            "--hub_yaml and --hub_tasks=TASK=OWNER/DATA_SET:TASK_ID go together, as the Hub takes "
            "results of its registered benchmarks and a run does not know which of its tasks are"
        )
    benchmarks = dict[str, tuple[str, str]]()
    for each in FLAGS.hub_tasks or ():
        match = re.fullmatch(r"([^=]+)=([\w.-]+/[\w.-]+):([\w.-]+)", each)
        if match is None:
            raise InputError(
                f"--hub_tasks: {each!r} is not understood, expected TASK=OWNER/DATA_SET:TASK_ID"
            )
        benchmarks[match[1]] = (match[2], match[3])
    return benchmarks


def checked_path(name: str, flag: str) -> Path:
    """The file that a flag names.  Raises InputError if it cannot be written, or is a run's."""
    from miron_jax.files.places import local_path
    from miron_jax.results.output import RESULTS

    path = local_path(name)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InputError(
            f"--{flag}={name} cannot be written: name a file in a folder that is there"
        )
    if path.name == RESULTS:
        raise InputError(f"--{flag}={name} would overwrite a run's results: name another file")
    return path


def write_page(name: str, folders: list[str]) -> None:
    """Write the page of these runs, whole or not at all."""
    from miron_jax.files.durable import write_whole
    from miron_jax.report.html.page import page_of
    from miron_jax.results.run_folder import read_runs

    page = page_of(read_runs(folders))
    write_whole(checked_path(name, "html"), page.encode("utf-8", "replace"))
