"""Composites and samples show missing data, changed data and NaN."""

import math
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from miron_jax.definitions.data_files import DataState
from miron_jax.definitions.records import Example
from miron_jax.engine.records import Score
from miron_jax.evaluation.composites import of_complete_set, suite_composites
from miron_jax.evaluation.task_kinds.choice import ChoiceRow
from miron_jax.evaluation.task_kinds.interface import LoadedTask, TaskScores
from miron_jax.metrics.choices import score_choices
from miron_jax.prompting.prompts import Prompt
from miron_jax.results import details
from miron_jax.results.details import ChoiceDetails
from miron_jax.results.document import DETAILS, TASK_KEYS
from miron_jax.results.records import Details, Sampled, TaskResult
from miron_jax.statistics.estimate import estimate
from miron_jax.tasks import core
from tests.support.choice_scores import choice_scores


def scored(task_name: str, logprobs: list[list[float]], state: Any = "as published") -> TaskScores[ChoiceRow]:
    """Scores of one example, one list per choice; gold is 0."""
    task = next(task for task in core.SUITE.tasks if task.name == task_name)
    choices = [Score(np.asarray(x, np.float32), np.zeros(len(x), np.int32)) for x in logprobs]
    texts = tuple("abcd"[: len(logprobs)])
    examples = [Example(0, ("q ",) * len(texts), texts, 0)] * (task.file.rows or 0)
    source = LoadedTask(task, examples, DataState(state, "0" * 40))
    example = score_choices([choice.logprob for choice in choices], texts, 0)
    return choice_scores(source, [(Prompt(0, 0, ("q ",) * len(texts), texts, 0), choices, example)])


def every_small_task(changed: str = "", broken: str = "") -> dict[str, TaskResult]:
    logprobs, states = {broken: [[math.nan], [-1.0]]}, {changed: "changed"}
    tasks = {
        name: scored(name, logprobs.get(name, [[-1.0], [-2.0]]), states.get(name, "as published"))
        for name in core.BASELINES_18
    }
    return {name: scores.kind.result(scores) for name, scores in tasks.items()}


def test_core_18_has_a_value_and_core_has_none():
    composites = suite_composites(core.SUITE, every_small_task())
    composite = composites["CORE-18"]
    assert composite.value == pytest.approx(1.0)  # every example is right: (1 - b) / (1 - b)
    assert composite.stderr == 0.0
    assert math.isnan(composites["CORE"].value)
    large = {"hellaswag", "hellaswag_zeroshot", "squad", "coqa"}
    assert set(composites["CORE"].missing) == {f"core/{name}" for name in large}


def test_changed_data_and_skipped_examples_leave_no_composite():
    for tasks in (every_small_task(changed="core/copa"), every_small_task(broken="core/copa")):
        composite = suite_composites(core.SUITE, tasks)["CORE-18"]
        assert math.isnan(composite.value)
        assert (composite.ci95, composite.missing) == (None, ("core/copa",))
    assert scored("core/copa", [[math.nan], [-1.0]]).num_skipped == 1


def test_a_sampled_tasks_error_is_half_the_interval_by_1_96():
    computed = of_complete_set(
        TaskResult(
            n=30,
            metrics={"accuracy": estimate([1.0, 0.0] * 15, True)},
            main="accuracy",
            sampled=Sampled(30, 90, "--until=ci<=0.2", 0, (0.3, 0.7)),
        )
    )
    assert (computed.value, computed.ci95) == (0.5, (0.3, 0.7))
    assert computed.stderr == pytest.approx(0.2 / 1.96)


def test_samples_say_why_a_number_is_null():
    nan, infinite, empty = (
        next(iter(scores.kind.example_results(scores)))
        for scores in (
            scored("core/copa", logprobs) for logprobs in ([[math.nan], [-1.0]], [[-math.inf], [-1.0]], [[], [-1.0]])
        )
    )
    for sample, reason in ((nan, "NaN"), (infinite, "no probability"), (empty, "no scored token")):
        assert reason in sample.reason
    assert (nan.prediction, nan.correct) == (None, None)
    assert (empty.options[0].greedy, empty.correct) == (None, True)  # nanochat: NaN wins in first place


def test_the_suite_finds_its_folder_without_a_network(tmp_path: Path):
    (tmp_path / "eval_data/world_knowledge").mkdir(parents=True)
    (tmp_path / "eval_data/world_knowledge/arc_easy.jsonl").write_text("")
    assert core.SUITE.locate(tmp_path, False) == tmp_path / "eval_data"


@pytest.mark.parametrize(
    ("boundary", "pairs", "expected"),
    [
        ("context_kept", 3, "the model reads the context's own tokens first, as under lm-eval"),
        ("joint", 3, "the model reads the two as one text, which lm-eval does not"),
        ("joint", None, ""),
    ],
)
def test_a_run_says_how_many_borders_tokens_cross(boundary: str, pairs: int | None, expected: str) -> None:
    task: Any = SimpleNamespace(profile={"boundary": boundary}, skipped=0)
    said = {what: count for what, count in ChoiceDetails(crossed_pairs=pairs).counts(task).items() if count}
    border = "pairs of context and continuation whose border a token crosses: "
    assert said == ({border + expected: pairs} if pairs else {}), (boundary, pairs)


def test_a_tasks_entry_has_a_key_for_each_field_of_its_records():
    in_records = {field.name for record in (TaskResult, *DETAILS.values()) for field in fields(record)}
    assert set(TASK_KEYS) == in_records - {"details"}
    kinds = [each for each in vars(details).values() if isinstance(each, type) and issubclass(each, Details)]
    assert set(DETAILS.values()) == {*kinds} - {Details}
