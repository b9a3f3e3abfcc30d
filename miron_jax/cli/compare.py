"""`miron-jax compare RUN RUN [RUN ...]`: paired differences of runs, and the noise of training
runs.

Arrives: output folders of eval; the first is what the others are compared with.  Leaves: tables on
screen, a JSON file.  It deliberately leaves every number to report/compare.
"""

from functools import partial

from absl import flags

from miron_jax.cli.json_output import JsonOutput, json_output
from miron_jax.errors import InputError

FLAGS = flags.FLAGS


def command(folders: list[str]) -> None:
    from miron_jax.results.run_folder import reading_again
    from miron_jax.statistics.noise import LEAST

    if not folders:
        raise InputError(
            "compare wants the output folders of two runs or more, or that of one training run"
        )
    if FLAGS.until not in (None, "decided"):
        raise InputError(
            f"--until is {FLAGS.until!r}, and compare knows decided alone; eval knows ci<=0.01 too"
        )
    if FLAGS.last < LEAST:
        raise InputError(
            f"--last is {FLAGS.last}, expected {LEAST} or more: two checkpoints do not deviate "
            "from a line"
        )
    with json_output(FLAGS.json) as document:
        reading_again(partial(_compare, folders, document))


def _compare(folders: list[str], document: JsonOutput) -> None:
    from miron_jax.cli.report import checked_path
    from miron_jax.files.durable import write_whole
    from miron_jax.report.compare.byte_gaps import print_byte_gaps
    from miron_jax.report.compare.runs import compare
    from miron_jax.report.compare.subset import subset
    from miron_jax.report.compare.table import (
        comparison_json,
        print_comparison,
        print_decided,
        print_decisions,
        print_noise,
        print_subset,
    )
    from miron_jax.report.compare.training_noise import decisions, training_noise
    from miron_jax.report.tables.console import console
    from miron_jax.results.document import plain, strict_json
    from miron_jax.results.run_folder import RunChanged, read_runs

    runs = read_runs(folders)
    larger = read_runs(FLAGS.larger or [])
    if larger and len(larger) != len(runs):
        raise InputError(
            f"--larger names {len(larger)} runs for {len(runs)} runs, expected one of the same "
            "recipe for each, in their order"
        )
    if (FLAGS.subset is None) != (FLAGS.budget is None):
        raise InputError(
            "--subset=FILE and --budget=TOKENS go together: name the file of chosen tasks and how "
            "many unique tokens they may cost"
        )
    path = None if FLAGS.subset is None else checked_path(FLAGS.subset, "subset")
    out = console()
    noises = training_noise(runs, FLAGS.last)
    if len(runs) == 1 and (larger or not noises or FLAGS.until):
        raise InputError(f"{runs[0].folder} is the only run: name a second one to compare it with")
    comparisons = []
    error = None
    for other in runs[1:]:
        try:
            comparisons.append(compare(runs[0], other, FLAGS.metric or ()))
        except RunChanged:
            raise
        except InputError as refused:  # what can be compared is
            error = error or refused
    for comparison in comparisons:
        print_comparison(out, comparison)
        if FLAGS.until is not None:
            print_decided(out, comparison, FLAGS.seed)
        print_byte_gaps(out, comparison.first, comparison.second)
    if noises:
        print_noise(out, noises, [run.label for run in runs], FLAGS.last)
    if larger:
        print_decisions(out, decisions(runs, larger, FLAGS.last))
    if path is not None:
        chosen = subset(runs, FLAGS.budget, FLAGS.last)
        write_whole(path, f"{strict_json(plain(chosen.json()), indent=1)}\n".encode())
        print_subset(out, chosen, str(FLAGS.subset))
    seed = None if FLAGS.until is None else FLAGS.seed
    document.write([comparison_json(comparison, seed) for comparison in comparisons])
    if document.path is not None:
        out.print(f"written to {document.path}", soft_wrap=True)
    if error is not None:
        raise error
