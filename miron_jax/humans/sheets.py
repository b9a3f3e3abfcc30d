"""What people are asked on a page, and the columns of what they give back.

Arrives: a table of items, or the prompts of a task.  Leaves: a `Sheet`, whose answers `humans` and
`--human_labels` read.  It deliberately knows neither HTML nor how answers are counted.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from miron_jax.errors import InputError
from miron_jax.humans.annotations import Columns, canonical
from miron_jax.humans.tables import read_table
from miron_jax.humans.task_labels import ANSWER, CHOICE, ROW
from miron_jax.prompting.prompts import Prompt

INPUT = "INPUT:"
OUTPUT = "OUTPUT:"
GOLDEN = "GOLDEN:"


class Shown(NamedTuple):
    heading: str
    text: str


class SheetRow(NamedTuple):
    cells: tuple[str, ...]  # of the sheet's inputs
    label: str  # in the list of rows
    shown: tuple[Shown, ...]
    options: tuple[str, ...] = ()  # to choose between; (): a text is written
    # of answers that of a control row, which is exported, "" elsewhere; of verdicts the right
    # option, which is shown
    right: str = ""
    text: str = ""  # that people correct


class Sheet(NamedTuple):
    kind: Literal["answers", "verdicts", "corrections"]
    title: str
    inputs: tuple[str, ...]  # columns
    output: str  # column
    rows: Sequence[SheetRow]
    reasons: Mapping[str, str] = {}  # of a verdict: name in the table -> words on the page
    mark: str = ""  # stands out in what is shown


def sheet_of_table(path: Path, columns: Columns, options: Sequence[str]) -> Sheet:
    """The items of a table, each once; one with a right answer is a control row.  `options`: the
    possible answers; empty: any text.  Raises InputError."""
    header, lines = read_table(path)
    inputs = columns.inputs or tuple(name for name in header if name.startswith(INPUT))
    control = columns.right or next((name for name in header if name.startswith(GOLDEN)), "")
    needed = {"--input_columns": inputs or (f"{INPUT}..",), "--control_column": (control,)}
    for flag, names in needed.items():
        for name in filter(None, names):
            if name not in header:
                raise InputError(
                    f"{path}: no column {name}, it has {', '.join(header)}: name it with {flag}"
                )
    named = [*map(_bare, inputs)]
    if len({*named}) < len(named):
        raise InputError(
            f"{path}: the columns {', '.join(inputs)} would be {', '.join(named)} in what people "
            "give back, expected different ones: rename one, or leave it out of --input_columns"
        )
    if options and len({"", *map(canonical, options)}) < max(len(options), 2) + 1:
        raise InputError(
            f"--answers={','.join(options)}: expected two answers or more, all different and none "
            "empty: mend them"
        )
    answer = columns.answer or next((name for name in header if name.startswith(OUTPUT)), "")
    rows = dict[tuple[str, ...], SheetRow]()
    for line in lines:
        cells = tuple(line[name] for name in inputs)
        right = line[control].strip() if control else ""
        if right and options and right not in options:
            raise InputError(
                f"{path}: {control} of {cells[0]!r:.40} is {right!r:.40}, expected one of "
                f"--answers={','.join(options)}: add it there"
            )
        if any(map(str.strip, cells)) and (right or cells not in rows):
            known = rows[cells].right if cells in rows else ""
            if known not in ("", right):
                raise InputError(
                    f"{path}: {control} of {cells[0]!r:.40} is {known!r:.40} and {right!r:.40}, "
                    "expected one right answer of an item: mend one of the lines"
                )
            shown = tuple(map(Shown, named, cells))
            rows[cells] = SheetRow(cells, " ".join(cells), shown, tuple(options), right)
    if not rows:
        raise InputError(f"{path} has no item, expected a line each: add them")
    return Sheet(
        "answers",
        path.stem,
        tuple(f"{INPUT}{name}" for name in named),
        f"{OUTPUT}{_bare(answer or control) or 'answer'}",
        [*rows.values()],
    )


def sheet_of_task(
    name: str, prompts: Sequence[Prompt], chooses: bool, controls: Mapping[int, str]
) -> Sheet:
    """The examples of a task, as a model reads them without few-shot examples.  `chooses`: by a
    choice's place; else by a text.  `controls`: row -> its right answer, in the export's words."""
    rows = list[SheetRow]()
    for prompt in prompts:
        num_choices = len(prompt.contexts) - prompt.num_extra
        contexts = [context.strip() for context in prompt.contexts[:num_choices]]
        options = [text.strip() for text in prompt.continuations[:num_choices]]
        question = contexts[0]
        if len({*contexts}) > 1:  # a schema, or contexts that end as the choices do
            question = ""
            for i, context in enumerate(contexts):
                options[i] = f"{context} {options[i]}"
        row = str(prompt.row)
        shown = (Shown("", question),) if question else ()
        label = question or options[0]
        right = controls.get(prompt.row, "")
        rows.append(SheetRow((row,), label, shown, tuple(options) if chooses else (), right))
    return Sheet("answers", name, (ROW,), CHOICE if chooses else ANSWER, rows)


def _bare(column: str) -> str:
    """A column's name without INPUT:, OUTPUT: or GOLDEN:."""
    for prefix in (INPUT, OUTPUT, GOLDEN):
        column = column.removeprefix(prefix)
    return column
