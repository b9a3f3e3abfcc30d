"""`miron-jax memorized`: whether a model knows test sets by heart.

Arrives: the flags that name a model, tasks and twins of their rows.  Leaves: a table on screen, a
JSON file.  It deliberately computes nothing.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from absl import flags

from miron_jax.cli.json_output import json_output
from miron_jax.cli.processes import leave_out_torch, start_jax
from miron_jax.cli.run_config import data_dir, run_config
from miron_jax.config import RunConfig

if TYPE_CHECKING:
    from miron_jax.evaluation.memorized import TaskTexts

FLAGS = flags.FLAGS


def command() -> None:
    config = replace(run_config(), token_stats=True)
    start_jax()
    from miron_jax.evaluation.memorized import tests_of_rows
    from miron_jax.evaluation.session import Session
    from miron_jax.report.tables.console import console
    from miron_jax.report.tables.memorized import memorized_json, print_memorized
    from miron_jax.report.tables.progress import Screen

    with json_output(FLAGS.json) as document, Screen(FLAGS.quiet, FLAGS.verbose) as screen:
        tasks = _texts(config)
        leave_out_torch(config)
        session = Session(config.model, config.tokenizer, None, config, screen)
        chosen = (FLAGS.test_rows, config.seed, config.max_length)
        tested = tests_of_rows(session, tasks, *chosen, screen)
        document.write(memorized_json(config.model, tested))
        print_memorized(console(), tested)


def _texts(config: RunConfig) -> "list[TaskTexts]":
    from miron_jax.evaluation.inputs import find_inputs
    from miron_jax.evaluation.memorized import TaskTexts
    from miron_jax.evaluation.twins import GENERATED, generated_twins, read_twins
    from miron_jax.prompting.row_texts import row_texts

    folders = {}
    if FLAGS.twins and FLAGS.twins != GENERATED:
        folders = dict(data_dir("twins"))
    tasks = list[TaskTexts]()
    for source in find_inputs(config).sources:
        name = source.task.name
        rows = row_texts(source.task, source.examples)
        twins = None
        if FLAGS.twins == GENERATED:
            twins = generated_twins(config, name, rows)
        elif folders:
            twins = read_twins(config, folders, name, rows)
        tasks.append(TaskTexts(name, rows, twins))
    return tasks
