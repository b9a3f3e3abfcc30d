"""Pictures for papers, and curves of the page: what they show is what the runs have."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.report.compare.runs import compare
from miron_jax.report.figures.all import figures_of, trained_of
from miron_jax.report.figures.cost import costs_of
from miron_jax.report.figures.curves import curves_figure, single_curves
from miron_jax.report.figures.panels import comparison_figure, tasks_figure
from miron_jax.report.html.page import page_of
from miron_jax.results.records import Weights
from miron_jax.results.run_folder import Run, read_runs
from tests.support.run_folders import changed, composite, samples_of, write_run, write_training_run
from tests.support.tolerances import printed


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Task a: 10 right of 40, and 30 of 40.  Task b, whose main metric is bits: 2, and 3 of each example."""
    folders = []
    for name, right, bits in (("one", [1, 0, 0, 0], 2.0), ("two", [1, 1, 1, 0], 3.0)):
        samples = {"own/a": samples_of(right * 10), "own/b": samples_of([1] * 4, bits=[bits] * 4)}
        folder = write_run(tmp_path / name, samples, {"mean": composite(0.5, {"own/a": 1.0}, complete=True)})
        with changed(folder) as results:
            results["tasks"]["own/b"]["main"] = "bits_per_byte"
        folders.append(str(folder))
    return read_runs(folders)


def values(axes: Any, marker: str) -> list[list[float]]:
    """Places on the horizontal axis of each line of such marks."""
    return [np.asarray(line.get_xdata()).tolist() for line in axes.lines if line.get_marker() == marker]


def test_each_metric_has_a_panel_with_the_values_of_each_run_and_chance(runs: list[Run]) -> None:
    figure = tasks_figure(runs)
    assert figure is not None
    accuracy, bits = figure.axes
    assert (accuracy.get_xlabel(), bits.get_xlabel()) == ("accuracy", "bits_per_byte ↓")
    assert (values(accuracy, "o"), values(bits, "o")) == ([[0.25], [0.75]], [[2.0], [3.0]])
    assert [0.5] in values(accuracy, "|"), "chance"
    assert [0.5] not in values(bits, "|")
    assert accuracy.get_xlim() == (0, 1)
    assert [label.get_text() for label in accuracy.get_yticklabels()] == ["a"], "all tasks are of one suite"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]


def test_scores_stand_against_what_every_run_says_it_cost(runs: list[Run]) -> None:
    """Training: 3 passes of 2e8 FLOPs over 1e9 and over 4e9 tokens; without the tokens of one run, FLOPs a token."""
    cheap, dear = (
        {"flops_per_token": 2e8, "training_tokens": 10**9},
        {"flops_per_token": 3e8, "training_tokens": 4 * 10**9},
    )
    assert costs_of(runs) is None, "neither says anything"
    assert drawn_costs(runs, {"parameters": 5}, {"dtypes": {"float32": 7}}) == (
        "parameters",
        [[5.0], [7.0]],
        [[0.5], [0.5]],
    )
    assert drawn_costs(runs, cheap, dear | {"training_tokens": None})[:2] == ("FLOPs a token, forward", [[2e8], [3e8]])
    assert drawn_costs(runs, cheap, dear)[:2] == ("training FLOPs", [[6e17], [3.6e18]])
    with_costs(runs, cheap, cheap)
    assert "cost" not in {drawn.name for drawn in figures_of(runs)}, "one cost has no axis"


def drawn_costs(runs: list[Run], first: dict[str, Any], second: dict[str, Any]) -> tuple[str, list[Any], list[Any]]:
    """The axis, each run's place on it and its score there."""
    with_costs(runs, first, second)
    [figure] = [drawn.figure for drawn in figures_of(runs) if drawn.name == "cost"]
    [axes] = figure.axes
    assert axes.get_title() == "own mean"
    shown = [tick.get_text() for tick in axes.get_xticklabels() if tick.get_text()]
    assert len(shown) == 2, "both costs are on the axis, however near"
    points = [line for line in axes.lines if line.get_marker() == "o"]
    places = [np.asarray(line.get_xdata()).tolist() for line in points]
    return axes.get_xlabel(), places, [np.asarray(line.get_ydata()).tolist() for line in points]


def with_costs(runs: list[Run], *of_runs: dict[str, Any]) -> None:
    """The checkpoints of the runs, as they would be read."""
    for i, costs in enumerate(of_runs):
        runs[i] = replace(runs[i], result=replace(runs[i].result, checkpoint=Weights(**costs)))


def test_differences_have_a_panel_a_metric_and_are_filled_beyond_chance(runs: list[Run]) -> None:
    """Twenty pairs differ, all one way: p = 2 * 0.5 ** 20.  All bits differ by exactly 1: four signs, p = 2 / 16."""
    figure = comparison_figure(compare(runs[0], runs[1]))
    assert figure is not None
    composites, accuracy, bits = figure.axes
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "difference in accuracy", "difference in accuracy", "difference in bits_per_byte ↓"
    ]  # fmt: skip
    assert values(composites, "o")[0] == values(accuracy, "o")[0] == [0.5]
    assert values(accuracy, "o")[1] == [0.5], "filled"
    assert values(bits, "o") == [[1.0], []], "hollow"


def test_curves_of_runs_lie_in_one_panel_with_bands_and_chance(tmp_path: Path) -> None:
    folders = []
    for name, last in (("a", [1] * 40), ("b", [1, 1, 1, 0] * 10)):
        steps = {step: {"own/x": samples_of(right)} for step, right in ((1, [1, 0] * 20), (2, last))}
        folders.append(str(write_training_run(tmp_path / name, steps)))
    trained = trained_of(read_runs(folders))
    figure = curves_figure(trained)
    assert figure is not None
    (axes,) = figure.axes
    lines = [np.asarray(line.get_ydata()).tolist() for line in axes.lines]
    assert lines == [[0.5, 1.0], [0.5, 0.75], [0.5, 0.5]], "two runs, chance"
    assert len(axes.collections) == 2, "intervals"
    assert [name for name, _ in single_curves(trained)] == ["own/x accuracy"]
    page = page_of(read_runs(folders))
    data = re.search(r'id="curves-data">(.*?)</script>', page)
    assert data is not None
    (panel,) = json.loads(data[1])["panels"]
    assert (panel["task"], panel["title"], panel["chance"], panel["people"]) == ("own/x", "own/x: accuracy", 0.5, None)
    assert [[point[:2] for point in line["points"]] for line in panel["lines"]] == [
        [[1, 0.5], [2, 1.0]], [[1, 0.5], [2, 0.75]]
    ]  # fmt: skip
    assert panel["lines"][0]["points"][1][2:] == pytest.approx([0.9124, 1.0], abs=printed(4)), (
        "Wilson's interval of 40 of 40"
    )


def test_report_writes_svg_and_png_into_a_folder(runs: list[Run], tmp_path: Path, miron: Any) -> None:
    out = tmp_path / "pictures"
    ran = miron("report", *(str(tmp_path / name) for name in ("one", "two")), f"--pictures={out}")
    assert ran.status == 0, ran.err
    assert sorted(path.name for path in out.iterdir()) == [
        "comparison.png", "comparison.svg", "tasks.png", "tasks.svg"
    ]  # fmt: skip
    assert (out / "tasks.png").read_bytes().startswith(b"\x89PNG")
    assert "bits_per_byte" in (out / "tasks.svg").read_text()
    for folder in (tmp_path / "one" / "results.json", tmp_path / "absent" / "pictures"):
        ran = miron("report", str(tmp_path / "one"), f"--pictures={folder}")
        assert ran.status == 2
        assert "--pictures=" in ran.err
        assert "name a folder, or a new one" in ran.err
