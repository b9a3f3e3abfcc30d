"""Controls of choice tasks on screen.

Arrives: the tasks of a run.  Leaves: a table, and lines about places and about what is absent.  It
deliberately computes nothing.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from string import ascii_uppercase

from miron_jax.errors import some_of
from miron_jax.report.numbers import shown
from miron_jax.report.tables.console import NumberTable, table_of
from miron_jax.results.records import TaskResult

MOST_NAMES = 4


def controls_table(tasks: Mapping[str, TaskResult]) -> NumberTable:
    """A row for the drawn examples of each task as they are, and one for each control: its
    accuracy, and how much was lost."""
    table = table_of(("task and control",), ("n", "accuracy", "lost", "95 % interval"))
    for name, task in tasks.items():
        controls = task.controls
        if controls is None or not controls.by:
            continue
        n = f"{controls.n} of {controls.of}"
        table.add_section()
        table.add_row(name, n, shown(controls.accuracy.value, ".3f"), "", "")
        for control, each in controls.by.items():
            low, high = each.gap.ci95
            interval = f"{shown(low, '+.3f')} to {shown(high, '+.3f')}"
            lost = shown(each.gap.value, "+.3f")
            accuracy = shown(each.accuracy.value, ".3f")
            table.add_row(f"  {_words(control)}", "", accuracy, lost, interval)
    return table


def controls_lines(tasks: Mapping[str, TaskResult]) -> Iterator[str]:
    """Where permuted options are chosen, and why some tasks lack controls."""
    lacking = defaultdict[tuple[str, str], list[str]](list)
    for name, task in tasks.items():
        if task.controls is None:
            continue
        for control, each in task.controls.by.items():
            if each.chosen_places:
                places = zip(ascii_uppercase, each.chosen_places, strict=False)
                shares = ", ".join(f"{place} {share:.2f}" for place, share in places)
                yield f"{name}: with {_words(control)} it chooses {shares} of the time"
        reasons = defaultdict[str, list[str]](list)
        for control, why in task.controls.absent.items():
            reasons[why].append(_words(control))
        for why, controls in reasons.items():
            lacking[", ".join(controls), why].append(name)
    for (controls, why), names in lacking.items():
        yield f"no {controls} of {some_of(names, MOST_NAMES)}: {why}"


def _words(control: str) -> str:
    return control.replace("_", " ")
