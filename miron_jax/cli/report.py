"""`miron-jax report RUN [RUN ...]`: results of runs on screen, as a page, or in other programs'
files.

Arrives: output folders of eval; --output where none is named.  Leaves: tables on screen, or files.
It deliberately computes no score.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from absl import flags

from miron_jax.errors import InputError

if TYPE_CHECKING:
    from miron_jax.results.run_folder import Run

FLAGS = flags.FLAGS


def command(folders: list[str]) -> None:
    from miron_jax.report.tables.console import console
    from miron_jax.report.tables.results import print_results
    from miron_jax.report.tables.robustness import is_robust, print_robustness
    from miron_jax.results.run_folder import read_runs

    runs = read_runs(folders or [FLAGS.output])
    out = console()
    if FLAGS.html or FLAGS.markdown or FLAGS.csv:
        for name, size in _written(runs):
            out.print(f"written to {name} ({size / 1e6:.1f} MB)", soft_wrap=True)
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


def _written(runs: "list[Run]") -> Iterator[tuple[str, int]]:
    """Write each file that is asked for; yields its name and size in bytes."""
    from miron_jax.files.places import local_path
    from miron_jax.report.exports.flat import csv_of, markdown_of
    from miron_jax.report.html.page import page_of
    from miron_jax.results.output import RESULTS

    flags_of = (
        (FLAGS.html, page_of, "html"),
        (FLAGS.markdown, markdown_of, "markdown"),
        (FLAGS.csv, csv_of, "csv"),
    )
    asked = [
        (name, local_path(name), text_of, flag)
        for name, text_of, flag in flags_of
        if name is not None
    ]
    for i, (name, path, _, flag) in enumerate(asked):
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise InputError(
                f"--{flag}={name} cannot be written: name a file in a folder that is there"
            )
        if path.name == RESULTS or any(path == other for _, other, _, _ in asked[:i]):
            raise InputError(
                f"--{flag}={name} would overwrite a run's results or another of these files: name "
                "another file"
            )
    for name, path, text_of, _ in asked:
        content = text_of(runs).encode("utf-8", "replace")
        if path.exists() and not path.is_file():  # a device or a pipe, which a rename would replace
            path.write_bytes(content)
        else:
            partial = path.with_name(f".{path.name}.partial")
            partial.write_bytes(content)
            partial.replace(path)
        yield name, len(content)
