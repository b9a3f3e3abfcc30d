"""Names, labels and categories of any characters are plain text on a screen and in a picture."""

import io
import math
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jax
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from miron_jax.errors import printable
from miron_jax.report.figures.curves import curves_figure, draw_curves
from miron_jax.report.tables.console import console
from miron_jax.report.tables.curves import curves_of, curves_table
from miron_jax.results.details import ClozeDetails, Fragmentation
from miron_jax.results.records import UNKNOWN, Group, RunResult, TaskResult

HOSTILE = (
    "[/b]", "[bold]x[/bold]", ":smile:", "\x1b[31mred", "\x1b]0;title\x07", "a\rb", "\u202egnp", "\x9b2J", "\ud83d",
)  # fmt: skip
COMMANDS = (
    "\x1b[31m", "eval --tasks=\x1b[31m", "eval --\x1b[31m=1", "eval \x1b[31m", "plan --model=/nowhere/\x1b]0;x\x07",
    "plan --model=demo --icl_tasks=/nowhere/\x1b[2J", "report --check_submission=/nowhere/\x1b[2J",
    "humans --annotations=/nowhere/\x1b[2J", "eval --output=~nosuchuser/x", f"eval --tasks=core --data_dir={'x' * 5000}",
    f"plan --model={'x/' * 3000}",
)  # fmt: skip
FORBIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def is_clean(text: str) -> bool:
    return all(unicodedata.category(char) not in FORBIDDEN for char in text if char != "\n")


@given(st.text(st.characters(exclude_categories=())))
def test_printable_text_is_clean_and_can_be_written(text: str) -> None:
    clean = printable(text)
    assert is_clean(clean)
    clean.encode()
    assert printable(clean) == clean
    assert len(printable(text, 9)) <= 9
    plain = "Київ, Москва: 1 000 ≥ 5\nwinogrande/0-shot 中文"
    assert (printable(plain), printable("abcdef", 4)) == (plain, "abc…")


def test_tables_and_lines_show_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(title=HOSTILE[3])
    table.add_column(HOSTILE[0])
    for text in HOSTILE:
        table.add_row(text)
    out = console()
    for each in (table, *HOSTILE):
        out.print(each, soft_wrap=True)
    printed = capsys.readouterr().out
    assert is_clean(printed)
    for text in HOSTILE:
        assert printed.count(printable(text)) >= 2


def results(*names: str) -> RunResult:
    """A cloze task of each name, whose category has this name too."""
    return run_with({name: cloze_task(name, 0.5, 0.5, 1.0) for name in names})


def run_with(tasks: dict[str, TaskResult]) -> RunResult:
    return RunResult(config={}, tasks=tasks, suites={})


def cloze_task(category: str, *values: float) -> TaskResult:
    """Values of greedy_exact, contrast_accuracy, bits_per_char."""
    names = ("greedy_exact", "contrast_accuracy", "bits_per_char")
    metrics = {name: replace(UNKNOWN, value=value) for name, value in zip(names, values, strict=True)}
    details = ClozeDetails(macro={}, fragmentation=Fragmentation(math.nan, {}), drift={}, rows_by_category={})
    return TaskResult(n=1, metrics={}, groups={category: Group(1, metrics)}, kind="cloze", details=details)


def test_a_panel_is_drawn_for_what_has_a_value() -> None:
    chosen = TaskResult(n=1, metrics={"accuracy": replace(UNKNOWN, value=0.5)})
    run = run_with({"copa": chosen, "miron": cloze_task("Facts", 0.25, math.nan, 1.0), "boolq": chosen})
    figure = curves_figure({"": {1: run, 10: run}})
    assert figure is not None
    assert [(panel.get_title(), panel.get_legend() is not None) for panel in figure.axes if panel.lines] == [
        ("copa: accuracy", False), ("miron: greedy exact", True), ("miron: bits/char", False), ("boolq: accuracy", False)
    ]  # fmt: skip
    assert [panel.axison for panel in figure.axes] == [True] * 4 + [False] * 2
    of_bytes = TaskResult(n=1, metrics={"bits_per_byte": replace(UNKNOWN, value=3.5)})
    assert [(curve.metric, curve.values) for curve in curves_of({1: run_with({"text/a": of_bytes})})] == [
        ("bits_per_byte", (3.5,))
    ], "a task without accuracy shows its main metric"
    undefined = TaskResult(n=0, metrics={"accuracy": UNKNOWN})
    assert curves_figure({"": {1: run_with({"copa": undefined})}}) is None


@pytest.mark.parametrize("names", [HOSTILE[:5], HOSTILE[5:], (r"$\foo$", "_hidden", "x" * 300, "$$", "&lt;<svg>")])
def test_curves_are_drawn_of_any_name(names: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    picture, steps = io.BytesIO(), {1: results(*names), 10: results(*names)}
    draw_curves(steps, picture)
    ElementTree.fromstring(picture.getvalue())
    assert len(picture.getvalue()) < 50_000 * len(names)
    console().print(curves_table(steps))
    assert is_clean(capsys.readouterr().out)


@pytest.mark.parametrize("command", COMMANDS)
def test_values_of_flags_are_printed_as_text(
    command: str, tmp_path: Path, miron: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cache = jax.config.values["jax_compilation_cache_dir"]
    ran = miron(*command.split(" "))
    jax.config.update("jax_compilation_cache_dir", cache)  # which a command sets that gets so far
    assert ran.status == 2, ran.err
    errors = [line for line in ran.err.splitlines() if not line.startswith("miron-jax 0.")]
    assert is_clean(ran.err + ran.out)
    assert len(errors) == 1, ran.err
    assert not list(tmp_path.iterdir())


def test_labels_are_checked_before_anything_is_scored(tmp_path: Path, miron: Any) -> None:
    for label in ("x" * 300, "ж" * 101, "a\x1b[31m", "../a", "\u202ea", "[/b]"):
        entry = {"label": label, "dataset_uri": "a.jsonl", "num_fewshot": [0], "icl_task_type": "multiple_choice"}
        (tmp_path / "tasks.yaml").write_text(yaml.safe_dump({"icl_tasks": [entry]}))
        ran = miron("tasks", f"--icl_tasks={tmp_path / 'tasks.yaml'}")
        if label == "[/b]":  # rich's markup, but plain text here
            assert (ran.status, "own-gauntlet/[/b]" in ran.out) == (0, True), ran.err
        else:
            assert (ran.status, "label" in ran.err, is_clean(ran.err)) == (2, True, True), ran.out
