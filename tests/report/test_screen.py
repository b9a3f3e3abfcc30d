"""Names, labels and categories of any characters are plain text on a screen and in a picture."""

import io
import os
import subprocess
import sys
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from miron_jax.errors import printable
from miron_jax.files.readers import JsonObject
from miron_jax.report.console import console
from miron_jax.report.curves import curves_figure, curves_table, draw_curves
from tests.conftest import REPOSITORY

HOSTILE = (
    "[/b]",
    "[bold]x[/bold]",
    ":smile:",
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "a\rb",
    "\u202egnp",
    "\x9b2J",
    "\ud83d",
)
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


def test_plain_text_stays() -> None:
    text = "Київ, Москва: 1 000 ≥ 5\nwinogrande/0-shot 中文"
    assert printable(text) == text
    assert printable("abcdef", 4) == "abc…"


def test_tables_and_lines_show_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(title=HOSTILE[3])
    table.add_column(HOSTILE[0])
    for text in HOSTILE:
        table.add_row(text)
    out = console()
    out.print(table)
    for text in HOSTILE:
        out.print(text, soft_wrap=True)
    printed = capsys.readouterr().out
    assert is_clean(printed)
    for text in HOSTILE:
        assert printed.count(printable(text)) >= 2


def results(name: str, category: str) -> JsonObject:
    metrics = {"greedy_exact": {"value": 0.5}, "contrast_accuracy": {"value": 0.5}, "bits_per_char": {"value": 1.0}}
    return {"tasks": {name: {"kind": "cloze", "macro": {}, "groups": {category: {"metrics": metrics}}}}}


def test_a_panel_is_drawn_for_what_has_a_value() -> None:
    metrics = {"greedy_exact": {"value": 0.25}, "contrast_accuracy": {"value": None}, "bits_per_char": {"value": 1.0}}
    cloze = {"macro": {}, "groups": {"Facts": {"metrics": metrics}}}
    chosen = {"metrics": {"accuracy": {"value": 0.5}}}
    tasks = {"copa": chosen, "miron": cloze, "boolq": chosen}
    figure = curves_figure({1: {"tasks": tasks}, 10: {"tasks": tasks}})
    assert figure is not None
    titles = [panel.get_title() for panel in figure.axes if panel.lines]
    assert titles == ["copa: accuracy", "miron: greedy exact, %", "miron: bits/char", "boolq: accuracy"]
    assert [panel.axison for panel in figure.axes] == [True] * 4 + [False] * 2
    assert [panel.get_legend() is not None for panel in figure.axes] == [False, True, False, False, False, False]
    assert curves_figure({1: {"tasks": {"copa": {"metrics": {"accuracy": {"value": None}}}}}}) is None


@pytest.mark.parametrize("name", [*HOSTILE, r"$\foo$", "_hidden", "x" * 300, "$$", "&lt;<svg>"])
def test_curves_are_drawn_of_any_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    picture, steps = io.BytesIO(), {1: results(name, name), 10: results(name, name)}
    draw_curves(steps, picture)
    ElementTree.fromstring(picture.getvalue())
    assert len(picture.getvalue()) < 100_000
    console().print(curves_table(steps))
    assert is_clean(capsys.readouterr().out)


def miron(*arguments: str, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "miron_jax", *arguments]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ("\x1b[31m",),
        ("eval", "--tasks=\x1b[31m"),
        ("eval", "--\x1b[31m=1"),
        ("eval", "\x1b[31m"),
        ("plan", "--model=/nowhere/\x1b]0;x\x07"),
        ("plan", "--model=demo", "--icl_tasks=/nowhere/\x1b[2J"),
        ("report", "--check_submission=/nowhere/\x1b[2J"),
        ("humans", "--annotations=/nowhere/\x1b[2J"),
        ("eval", "--output=~nosuchuser/x"),
        ("eval", "--tasks=core", "--data_dir=" + "x" * 5000),
        ("plan", "--model=" + "x/" * 3000),
    ],
)
def test_values_of_flags_are_printed_as_text(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = miron(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    errors = [line for line in done.stderr.splitlines() if not line.startswith("miron-jax 0.")]
    assert is_clean(done.stderr + done.stdout)
    assert len(errors) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_labels_are_checked_before_anything_is_scored(tmp_path: Path) -> None:
    def plan(label: str) -> subprocess.CompletedProcess[str]:
        entry = {"label": label, "dataset_uri": "a.jsonl", "num_fewshot": [0], "icl_task_type": "multiple_choice"}
        (tmp_path / "tasks.yaml").write_text(yaml.safe_dump({"icl_tasks": [entry]}))
        return miron("tasks", f"--icl_tasks={tmp_path / 'tasks.yaml'}")

    for label in ("x" * 300, "ж" * 101, "a\x1b[31m", "../a", "\u202ea"):
        done = plan(label)
        assert done.returncode == 2, done.stdout
        assert "label" in done.stderr
        assert is_clean(done.stderr)
    done = plan("[/b]")
    assert done.returncode == 0, done.stderr
    assert "own-gauntlet/[/b]" in done.stdout
