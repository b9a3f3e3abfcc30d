"""`miron-jax compare RUN RUN [RUN ...]`: paired differences of runs, and the noise of training runs.

Arrives: output folders of eval; the first is what the others are compared with.  Leaves: tables on screen, a JSON file.  It
deliberately computes nothing.
"""

from absl import flags

from miron_jax.errors import InputError

FLAGS = flags.FLAGS


def command(folders: list[str]) -> None:
    from miron_jax.files.places import local_path
    from miron_jax.report.byte_gaps import print_byte_gaps
    from miron_jax.report.comparison import compare
    from miron_jax.report.comparison_table import comparison_json, print_comparison, print_decided, print_noise
    from miron_jax.report.console import console
    from miron_jax.report.results import strict_json
    from miron_jax.report.run_folder import read_runs, readable
    from miron_jax.report.training_noise import training_noise

    if not folders:
        raise InputError("compare wants the output folders of two runs or more, or that of one training run")
    if FLAGS.until not in (None, "decided"):
        raise InputError(f"--until is {FLAGS.until!r}, and compare knows decided alone; eval knows ci<=0.01 too")
    if FLAGS.last < 2:
        raise InputError(f"--last is {FLAGS.last}, expected 2 or more: one checkpoint has no deviation")
    runs, out = read_runs(folders), console()
    with readable(runs):
        noises = training_noise(runs, FLAGS.last)
        if len(runs) == 1 and not noises:
            raise InputError(
                f"{runs[0].folder} is the only run, and has one checkpoint: name a second run to compare it with"
            )
        comparisons = [compare(runs[0], other, FLAGS.metric or ()) for other in runs[1:]]
        for comparison in comparisons:
            print_comparison(out, comparison)
            if FLAGS.until is not None:
                print_decided(out, comparison, FLAGS.seed)
            print_byte_gaps(out, comparison.first, comparison.second)
        if noises:
            print_noise(out, noises, [run.label for run in runs], FLAGS.last)
    if FLAGS.json is not None:
        path = local_path(FLAGS.json)
        path.write_text(strict_json([comparison_json(own) for own in comparisons], indent=1) + "\n", encoding="utf-8")
        out.print(f"written to {path}", soft_wrap=True)
