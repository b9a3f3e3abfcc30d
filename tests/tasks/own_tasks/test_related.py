"""Clusters, traits and categories of a user's own tasks: numbers by hand, and those of the published suites' code."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from miron_jax.definitions.data_files import DataState
from miron_jax.definitions.records import Cloze
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.interface import LoadedTask
from miron_jax.metrics.choices import ExampleScore
from miron_jax.prompting.prompts import Prompt
from miron_jax.statistics.cloze_groups import cloze_groups
from miron_jax.statistics.estimate import by_category
from miron_jax.statistics.robustness import Robustness, Swapped
from miron_jax.tasks.eval_uation.suite import SUITE
from miron_jax.tasks.generators.eval_uation_gen.table import frozen_rows
from tests.support.choice_scores import choice_kind, choice_scores
from tests.support.own_task import CHOICE, TEXT, read_task
from tests.support.tolerances import ROUNDING

RELATED = "cluster: story\nswapped: pair\ntraits: [template_n, long]\n"
ROWS = [  # right, right, wrong of story s; wrong, right of t
    {"story": "s", "pair": "p", "template_n": 0, "long": True, "c": ["x", "y"], "a": "x"},
    {"story": "s", "pair": "p", "template_n": 0, "long": None, "c": ["y", "x"], "a": "x"},
    {"story": "s", "pair": "q", "template_n": 10, "long": False, "c": ["x", "y"], "a": "y"},
    {"story": "t", "pair": "q", "template_n": 2, "long": False, "c": ["y", "x"], "a": "y"},
    {"story": "t", "pair": "r", "template_n": 10, "long": True, "c": ["x", "y"], "a": "y"},
]
PREDICTIONS = (0, 1, 0, 1, 1)


def report_of(task: Any, examples: list[Any]) -> Robustness | None:
    """The report of a model that makes `PREDICTIONS`."""
    source, scored = LoadedTask(task, examples, DataState("no published hash", None)), []
    for example, prediction in zip(examples, PREDICTIONS, strict=True):
        right = prediction == example.gold
        score = ExampleScore(prediction, right, False, False, {"accuracy": float(right)})
        scored.append((Prompt(example.row, example.row, example.contexts, example.continuations, 0), [], score))
    return choice_kind(source).robustness(choice_scores(source, scored))


def test_robustness_by_hand(tmp_path: Path) -> None:
    report = report_of(*read_task(tmp_path, CHOICE + RELATED, [{"q": "?", **row} for row in ROWS]))
    assert report is not None
    assert (report.main, report.cluster, report.clusters) == ("accuracy", "story", 2)
    whole = report.metrics["accuracy"]
    assert (whole.n, whole.clusters, whole.value) == (5, 2, 0.6)
    assert whole.stderr == pytest.approx(math.sqrt(0.6 * 0.4 / 5), abs=ROUNDING)
    # Sums of deviations from .6: s .4 + .4 - .6 = .2, t -.6 + .4 = -.2; sqrt(2 / 1 * (.04 + .04)) / 5 = .08
    assert whole.cluster_stderr == pytest.approx(0.08, abs=ROUNDING)
    values = {trait: {name: each.value for name, each in by.items()} for trait, by in report.by.items()}
    assert values == {"template_n": {"0": 1, "2": 0, "10": 0.5}, "long": {"false": 0, "true": 1}}
    assert list(values["template_n"]) == ["0", "2", "10"]
    assert report.template_spread == 1.0
    # p: x in both orders; q: x in both orders; r in one order counts for nothing.
    assert report.swapped == Swapped(2, 1.0, 0.0)


def test_without_clusters_every_record_is_one(tmp_path: Path) -> None:
    keys = CHOICE + 'traits: {wide: "{{ c | length > 1 }}"}\n'
    report = report_of(*read_task(tmp_path, keys, [{"q": "?", **row} for row in ROWS]))
    assert report is not None
    assert (report.cluster, report.clusters, report.template_spread) == ("record", 5, None)
    assert report.by["wide"]["true"].n == 5
    # As a plain standard error with n - 1: sqrt(5 / 4 * (3 * .16 + 2 * .36)) / 5
    assert report.metrics["accuracy"].cluster_stderr == pytest.approx(math.sqrt(1.25 * 1.2) / 5, abs=ROUNDING)
    blank = "traits: [long]\n"  # of a .csv: of no value
    _, [example] = read_task(tmp_path, CHOICE + blank, [{"q": "?", **ROWS[0], "long": ""}])
    assert example.traits == ()
    task, examples = read_task(tmp_path, CHOICE, [{"q": "?", **row} for row in ROWS])
    assert report_of(task, examples) is None
    _, [example] = read_task(tmp_path, TEXT + RELATED, [{"q": "?", **ROWS[0], "long": "1.50"}])
    assert (example.cluster, example.swapped, example.traits) == ("s", "p", (("template_n", "0"), ("long", "1.50")))


def test_columns_equal_what_the_suite_reads(tmp_path: Path) -> None:
    """Rows of Eval-UA-tion's shape: the same clusters, traits and orders as the suite's code, so the same report."""
    task = next(task for task in SUITE.tasks if task.name == "eval-ua-tion/lmes_wordalpha")
    rows = frozen_rows("lmes_wordalpha", "train")[:5]
    theirs = [task.parse(fields, i) for i, fields in enumerate(rows)]
    flat = [{key.removeprefix("additionalMetadata_"): value for key, value in row.items()} for row in rows]
    traits = [name for name, _ in theirs[0].traits if name != "num_options"]
    keys = (
        "task: x\ndata: x.jsonl\nquestion: question\ngold: correctAnswer\nitem_order: file\ntie: first\n"
        'choices: ["{{option_0}}", "{{option_1}}"]\n'
        "cluster: \"{{ [option_0, option_1] | sort | join(' ') }}\"\n"
        "swapped: \"{{ [option_0, option_1] | sort | join(' ') }} {{template_n}} {{kind}}\"\n"
        f"traits: [{', '.join(traits)}]\n"
    )
    mine, examples = read_task(tmp_path, keys, flat)
    for example, suites in zip(examples, theirs, strict=True):
        assert (example.cluster, example.swapped) == (suites.cluster, suites.swapped)
        assert dict(example.traits).items() <= dict(suites.traits).items()
        assert example.gold == suites.gold
    report, of_suite = report_of(mine, examples), report_of(task, theirs)
    assert report is not None
    assert of_suite is not None
    assert report.metrics == of_suite.metrics
    assert report.by == {name: by for name, by in of_suite.by.items() if name != "num_options"}
    assert (report.template_spread, report.swapped) == (of_suite.template_spread, of_suite.swapped)


def test_means_of_categories_are_those_of_miron() -> None:
    """a: 1, 0, 1 is 2 / 3; b: 0 is 0; the mean of the two is 1 / 3, with half of a's standard error."""
    scored = []
    for row, (category, right) in enumerate((("a", 1.0), ("a", 0.0), ("b", 0.0), ("a", 1.0))):
        item = Cloze(row, str(row), "p", " t", category)
        scored.append((item, ExampleScore(None, bool(right), bool(right), False, {"greedy_exact": right})))
    groups = cloze_groups(scored)
    categories = [item.category for item, _ in scored]
    mine = by_category([score for _, score in scored], categories, "macro", {})
    assert mine.categories == groups.categories
    assert mine.metrics == groups.macro
    assert mine.metrics["greedy_exact"].value == pytest.approx(1 / 3, abs=ROUNDING)
    of_a = math.sqrt(2 / 3 * 1 / 3 / 3)
    assert mine.metrics["greedy_exact"].stderr == pytest.approx(of_a / 2, abs=ROUNDING)


@pytest.mark.parametrize(
    ("keys", "row", "words"),
    [
        ("traits: long\n", {}, "traits is 'long', expected a list of fields' names, or names"),
        ("traits: []\n", {}, "traits is [], expected a list"),
        ('traits: {a: "{{ b"}\n', {}, "traits: '{{ b' is no template"),
        ("traits: [none]\n", {}, "field 'none' is missing"),
        ("traits: [long]\n", {"long": [1]}, "trait long holds [1], expected a text"),
        ("cluster: story\n", {"story": None}, "cluster holds None, expected a text"),
        ("cluster: story\n", {"story": " "}, "cluster is empty, expected a text in each record"),
        ("swapped: pair\n", {"pair": ""}, "swapped is empty, expected a text in each record"),
        ("cluster: [story]\n", {}, "cluster is ['story'], expected a field's name or a template"),
    ],
)
def test_bad_columns(tmp_path: Path, keys: str, row: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        read_task(tmp_path, CHOICE + keys, [{"q": "?", **ROWS[0], **row}])
    program = "task: x\nkind: program\ndata: x.jsonl\ncluster: story\n"
    with pytest.raises(InputError, match="'cluster' is not of a task of kind program"):
        read_task(tmp_path, program, [])
