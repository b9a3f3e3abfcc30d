"""`--page`: the offline page for people's work, of `humans` and of `tasks`.

Arrives: parsed flags, or a sheet.  Leaves: one HTML file.  It deliberately does not know what the
page looks like.
"""

import os
from pathlib import Path

from absl import flags

from miron_jax.cli.report import checked_path
from miron_jax.cli.run_config import data_dir, rows, task_path
from miron_jax.config import RunConfig
from miron_jax.errors import InputError, printable, some_of
from miron_jax.files.durable import write_whole
from miron_jax.files.places import local_path
from miron_jax.humans.annotations import Columns
from miron_jax.humans.sheets import Sheet, sheet_of_table, sheet_of_task

FLAGS = flags.FLAGS
_OF_TASK = ("tasks", "task_path", "data_dir", "limit", "control_rows")


def check_flags() -> None:
    """Raises InputError for flags of `humans --page` without it."""
    for name in ("answers", *_OF_TASK):
        if getattr(FLAGS, name) and FLAGS.page is None:
            raise InputError(
                f"--{name} is of a page that asks people: add --page=FILE, or leave it out"
            )


def write_asking_page(columns: Columns) -> None:
    """Of `humans`: asks the items of a table, or the examples of a task.  Raises InputError."""
    of_task = [name for name in _OF_TASK if getattr(FLAGS, name)]
    if bool(of_task) == bool(FLAGS.annotations) or len(FLAGS.annotations or "1") > 1:
        raise InputError(
            "--page wants what it asks: --annotations=TABLE with a line an item, or --tasks=TASK, "
            "one of them"
        )
    if FLAGS.annotations:
        table = local_path(FLAGS.annotations[0])
        write_people_page(sheet_of_table(table, columns, FLAGS.answers or ()))
        return
    if FLAGS.answers:
        raise InputError("--answers are of a table's items, and a task has its choices: leave it")
    write_people_page(_sheet_of_task())


def write_people_page(sheet: Sheet) -> None:
    """Writes --page.  Raises InputError if it cannot be written."""
    from miron_jax.report.html.people import people_page

    path: Path = checked_path(FLAGS.page, "page")
    write_whole(path, people_page(sheet).encode("utf-8", "replace"))
    controls = sum(bool(row.right) for row in sheet.rows if sheet.kind == "answers")
    rest = f", {controls} of them control rows" if controls else ""
    print(printable(f"written to {path}: {len(sheet.rows)} rows{rest}, for {sheet.kind}"))


def _sheet_of_task() -> Sheet:
    os.environ["JAX_PLATFORMS"] = "cpu"  # nothing is computed
    from miron_jax.definitions.records import Question, kind_word
    from miron_jax.evaluation.inputs import find_inputs
    from miron_jax.evaluation.task_kinds.choice import ChoiceKind
    from miron_jax.evaluation.task_kinds.kinds import kind_of
    from miron_jax.evaluation.task_kinds.prompted import PromptedKind
    from miron_jax.prompting.prompts import render

    config = RunConfig(
        "demo",
        tuple(FLAGS.tasks or ("own",)),
        data_dir=data_dir(),
        task_path=task_path(),
        limit=FLAGS.limit,
        allow_changed_data=True,
    )
    sources = find_inputs(config, runs=False).sources
    if len(sources) > 1:
        names = some_of([source.task.name for source in sources], 4)
        raise InputError(f"--page asks the examples of one task, here are {names}: name one")
    [source] = sources
    task = source.task
    kind = kind_of(task)
    if not issubclass(kind, PromptedKind):
        raise InputError(
            f"--page: {task.name} is a {kind_word(task)} task, expected one of choices, "
            "continuations or completions, whose answers people can give: name another"
        )
    chooses = issubclass(kind, ChoiceKind) and kind.chooses
    prompts = render(task, source.examples, config.limit)
    by_row = {example.row: example for example in source.examples}
    controls = dict[int, str]()
    for row in rows("control_rows") or ():
        example = by_row.get(row)
        if example is None or row not in [prompt.row for prompt in prompts]:
            raise InputError(
                f"--control_rows={FLAGS.control_rows}: the page has no row {row}, expected rows of "
                f"{task.name} that --limit leaves: name others"
            )
        right = None
        if chooses and example.gold is not None:
            right = str(example.gold)
        elif isinstance(example, Question):
            right = next(iter(example.accepted), None)
        elif not chooses:
            right = example.continuations[0].strip()
        if not right:
            raise InputError(
                f"--control_rows={FLAGS.control_rows}: {task.name} has no right answer to row "
                f"{row}: name others"
            )
        controls[row] = right
    return sheet_of_task(task.name, prompts, chooses, controls)
