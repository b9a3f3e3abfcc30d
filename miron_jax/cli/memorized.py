"""`miron-jax memorized`: whether a model knows test sets by heart.

Arrives: the flags that name a model, tasks and twins of their rows.  Leaves: a table on screen, a
JSON file.  It deliberately computes nothing.
"""

from dataclasses import replace

from absl import flags

from miron_jax.cli.json_output import json_output
from miron_jax.cli.processes import leave_out_torch, start_jax
from miron_jax.cli.run_config import data_dir, run_config
from miron_jax.errors import InputError
from miron_jax.files.places import public

FLAGS = flags.FLAGS


def command() -> None:
    config = replace(run_config(), token_stats=True)
    if config.steps is not None and set(config.steps) & {",", ":"}:
        raise InputError(
            f"--steps={config.steps}: memorized tests one checkpoint, expected one step or latest"
        )
    start_jax()
    from miron_jax.evaluation.memorized import tests_of_rows
    from miron_jax.evaluation.session import Session
    from miron_jax.evaluation.twins import GENERATED, rows_and_twins
    from miron_jax.model.checkpoints.checkpoints import checkpoints_of
    from miron_jax.report.tables.console import console
    from miron_jax.report.tables.memorized import print_memorized
    from miron_jax.report.tables.progress import Screen

    folders = None
    if FLAGS.twins and FLAGS.twins != GENERATED:
        folders = dict(data_dir("twins"))
    with json_output(FLAGS.json) as document, Screen(FLAGS.quiet, FLAGS.verbose) as screen:
        tasks = rows_and_twins(config, FLAGS.twins == GENERATED, folders)
        leave_out_torch(config)
        session = Session(config.model, config.tokenizer, None, config, screen)
        tested = tests_of_rows(session, tasks, config, FLAGS.test_rows, screen)
        step = checkpoints_of(config, session.files)[-1].step
        written = {"model": public(config.model), "step": step, "seed": config.seed}
        written |= {"twins": FLAGS.twins and public(FLAGS.twins), "test_rows": FLAGS.test_rows}
        document.write({**written, "tasks": tested})
        print_memorized(console(), tested)
