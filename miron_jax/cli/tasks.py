"""`miron-jax tasks`: lists suites with the state of their data, or exports the rows of generated benchmarks.

Arrives: folders of data.  Leaves: a table on screen, or exported files.  It deliberately does not know models.
"""

import sys
from pathlib import Path

from absl import flags

from miron_jax.cli.run_config import data_dir, local, task_path
from miron_jax.errors import InputError, printable
from miron_jax.files.places import local_path

FLAGS = flags.FLAGS


def command() -> None:
    from miron_jax.report.task_table import print_tasks
    from miron_jax.tasks.about import about
    from miron_jax.tasks.registry import export, suites

    if FLAGS.articles is not None and FLAGS.export is None:
        raise InputError("--articles wants --export=FOLDER, where its sets of titles are written")
    if FLAGS.stories is not None and FLAGS.export is None:
        raise InputError("--stories wants --export=FOLDER, where its set of gaps is written")
    if FLAGS.mask_number_words and FLAGS.articles is None:
        raise InputError("--mask_number_words wants --articles=FILE, whose number words are to be hidden")
    if FLAGS.export is not None:
        articles, stories = (local_path(path) if path else None for path in (FLAGS.articles, FLAGS.stories))
        folder, spelled = local_path(FLAGS.export), FLAGS.mask_number_words
        for path in export(folder, FLAGS.items_per_category, articles, spelled, stories, _say):
            print(printable(str(path)))
        return

    texts = next((Path(folder) for suite, folder in data_dir() if suite == "text"), None)
    icl_tasks, eval_gauntlet, requests = map(local, (FLAGS.icl_tasks, FLAGS.eval_gauntlet, FLAGS.requests))
    every = suites(icl_tasks, eval_gauntlet, task_path() or (), requests, texts)
    print_tasks(every.values(), data_dir(), about)


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr)
