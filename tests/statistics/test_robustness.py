"""The robustness report: standard errors by hand, groups, swapped pairs, and the table of a run."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from miron_jax.definitions.data_files import DataState
from miron_jax.definitions.records import Example
from miron_jax.evaluation.task_kinds.interface import LoadedTask
from miron_jax.metrics.choices import ExampleScore
from miron_jax.prompting.prompts import Prompt
from miron_jax.report.tables.robustness import robustness_rows
from miron_jax.results.document import plain
from miron_jax.statistics.robustness import Robustness, Swapped, cluster_stderr
from miron_jax.tasks.eval_uation.suite import SUITE
from tests.support.choice_scores import choice_kind, choice_scores

RUN: dict[str, Any] = {"schema": 1, "config": {}, "suites": {}}  # all of results.json but its tasks
EMPTY: dict[str, Any] = {"n": 0, "metrics": {}}
TASK = next(task for task in SUITE.tasks if task.name == "eval-ua-tion/lmes_wordalpha")


def test_cluster_stderr_by_hand() -> None:
    # Mean 0.5.  Sums of deviations: a 1.0, b -1.0, c 0.  sqrt(3 / 2 * (1 + 1 + 0)) / 6
    values, clusters = [1, 1, 0, 0, 1, 0], ["a", "a", "b", "b", "c", "c"]
    assert cluster_stderr(values, clusters) == pytest.approx(math.sqrt(3) / 6)
    assert math.isnan(cluster_stderr([1, 0], ["a", "a"]))
    assert math.isnan(cluster_stderr([], []))


def robustness() -> Robustness:
    """Two pairs in both orders and two questions in one: template 0 right, wrong; template 1 right, right, NaN; 2 right."""
    rows = [  # pair, template, choices, prediction, right
        ("a b 0", "0", ("a", "b"), 0, True),
        ("a b 0", "0", ("b", "a"), 0, False),
        ("c d 1", "1", ("c", "d"), 1, True),
        ("c d 1", "1", ("d", "c"), 0, True),
        ("e f 1", "1", ("e", "f"), None, None),
        ("g h 2", "2", ("g", "h"), 0, True),
    ]
    source, scored = LoadedTask(TASK, [], DataState("no published hash", None)), []
    for i, (pair, template, choices, prediction, right) in enumerate(rows):
        value, traits = math.nan if right is None else float(right), (("template_n", template), ("kind", "less"))
        source.examples.append(Example(i, ("",), choices, 0, cluster=pair[:3], swapped=pair, traits=traits))
        example = ExampleScore(prediction, right, False, False, {"accuracy": value, "bits_per_byte": 1.0})
        scored.append((Prompt(i, i, ("", ""), choices, 0), [], example))
    report = choice_kind(source).robustness(choice_scores(source, scored))
    assert report is not None
    return report


def test_groups_spread_and_swapped_pairs() -> None:
    report = robustness()
    assert (report.cluster, report.clusters) == ("pair", 4)
    assert report.metrics.keys() == {"accuracy"}  # bits per byte are no share
    whole = report.metrics["accuracy"]
    assert (whole.n, whole.clusters, whole.value) == (5, 3, 0.8)
    assert whole.stderr == pytest.approx(math.sqrt(0.8 * 0.2 / 5))
    # Sums of deviations: a b .2 - .8, c d .4, g h .2
    assert whole.cluster_stderr == pytest.approx(math.sqrt(3 / 2 * (0.6**2 + 0.4**2 + 0.2**2)) / 5)
    assert {name: part.value for name, part in report.by["template_n"].items()} == {"0": 0.5, "1": 1, "2": 1}
    assert report.template_spread == 0.5
    # "a" in one order and "b" in the other; "d" both times; "g" in one order counts for nothing.
    assert report.swapped == Swapped(2, 0.5, pytest.approx(math.sqrt(0.25 / 2)))  # pyright: ignore[reportArgumentType]


def test_the_table_of_a_run(tmp_path: Path, miron) -> None:
    baselines = {"random": 0.5, "human": None}
    report = robustness()
    report = replace(
        report, metrics={**report.metrics, "accuracy_pmi": replace(report.metrics["accuracy"], value=0.25)}
    )
    task = {**EMPTY, "robustness": plain(report), "baselines": baselines, "reference": {"gpt": 0.85}}
    (tmp_path / "results.json").write_text(json.dumps(RUN | {"tasks": {"eval-ua-tion/x": task, "core/y": EMPTY}}))
    ran = miron("report", str(tmp_path), "--robustness")
    for part in ("eval-ua-tion/x: accuracy", "template_n", "0.800", "0.500 of 2 pairs", "gpt 0.85", "random 0.500"):
        assert part in ran.out, ran.out
    assert "beside it: accuracy_pmi 0.250" in ran.out
    assert miron("report", f"--output={tmp_path}", "--robustness").out == ran.out  # as before runs could be named
    assert [row[:2] for row in robustness_rows(report)] == [
        ["by", ""], ["all", ""], ["template_n", "0"], ["template_n", "1"], ["template_n", "2"], ["kind", "less"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        (None, "holds no results.json"),
        ([], "is no results.json (list, expected an object)"),
        (RUN | {"tasks": []}, "is no results.json of this version"),
        (RUN | {"tasks": {"core/x": {"n": 1}}}, "required field missing @ $.tasks['core/x'].metrics"),
        (RUN | {"tasks": {"core/x": EMPTY}}, "none of its tasks"),
    ],
)
def test_no_such_run(tmp_path: Path, miron, results: Any, sentence: str) -> None:
    (tmp_path / "notes.txt").write_text("")
    if results is not None:
        (tmp_path / "results.json").write_text(json.dumps(results))
    ran = miron("report", str(tmp_path), "--robustness")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert sentence in ran.err
