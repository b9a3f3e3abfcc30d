"""Composites and samples show missing data, changed data and NaN."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from miron_jax.definitions.data_files import DataState
from miron_jax.engine.model import Speed
from miron_jax.engine.records import Score
from miron_jax.engine.self_check import TOLERANCE, SelfCheck
from miron_jax.evaluation.composites import suite_composites
from miron_jax.evaluation.records import Inputs, Outcome
from miron_jax.evaluation.sampling import of_complete_set
from miron_jax.metrics.choices import score_choices
from miron_jax.planning.request_batches import Totals
from miron_jax.prompting.prompts import Prompt
from miron_jax.statistics.estimate import estimate
from miron_jax.statistics.sequential import Interval
from miron_jax.task_kinds.choice import ChoiceScores
from miron_jax.task_kinds.interface import Sampled, Source
from miron_jax.tasks import core
from miron_jax.tokens.records import Bos, LengthLimit


def scored(task_name: str, logprobs: list[list[float]], state: str = "as published") -> ChoiceScores:
    """Scores of one example, one list per choice; gold is 0."""
    task = next(task for task in core.SUITE.tasks if task.name == task_name)
    choices = [Score(np.asarray(x, np.float32), np.zeros(len(x), np.int32)) for x in logprobs]
    texts = tuple("abcd"[: len(logprobs)])
    scores = ChoiceScores(Source(task, [], DataState(state, "0" * 40)))  # type: ignore[arg-type]
    scores.prompts.append(Prompt(0, 0, ("q ",) * len(texts), texts, 0))
    scores.choices.append(choices)
    scores.examples.append(score_choices([choice.logprob for choice in choices], texts, 0))
    return scores


def outcome(tasks: list[ChoiceScores]) -> Outcome:
    inputs, check = Inputs([task.source for task in tasks], {}, [core.SUITE]), SelfCheck(TOLERANCE["float32"])
    return Outcome(tasks, inputs, LengthLimit(None, None), Bos(0, "declared <s>"), Totals(), Speed(), check, 0.0)


def every_small_task(changed: str = "", broken: str = "") -> list[ChoiceScores]:
    logprobs, states = {broken: [[math.nan], [-1.0]]}, {changed: "changed"}
    return [
        scored(name, logprobs.get(name, [[-1.0], [-2.0]]), states.get(name, "as published"))
        for name in core.BASELINES_18
    ]


def test_core_18_has_a_value_and_core_has_none():
    composites = suite_composites(core.SUITE, outcome(every_small_task()))
    composite, error = composites["CORE-18"]
    assert composite.value == pytest.approx(1.0)  # every example is right: (1 - b) / (1 - b)
    assert error is not None
    assert error.stderr == 0.0
    assert composites["CORE"][0].value is None
    large = {"hellaswag", "hellaswag_zeroshot", "squad", "coqa"}
    assert set(composites["CORE"][0].missing) == {f"core/{name}" for name in large}


def test_changed_data_and_skipped_examples_leave_no_composite():
    for tasks in (every_small_task(changed="core/copa"), every_small_task(broken="core/copa")):
        composite, error = suite_composites(core.SUITE, outcome(tasks))["CORE-18"]
        assert (composite.value, error, composite.missing) == (None, None, ("core/copa",))
    assert scored("core/copa", [[math.nan], [-1.0]]).num_skipped == 1


def test_a_sampled_tasks_error_is_half_the_interval_by_1_96():
    interval = Interval(0.3, 0.7)
    sampled = SimpleNamespace(sampled=Sampled(30, 90, "--until=ci<=0.2", 0, interval, None))
    computed = of_complete_set(sampled, estimate([1.0, 0.0] * 15, True))  # pyright: ignore[reportArgumentType]
    assert (computed.value, computed.ci95) == (0.5, interval)
    assert computed.stderr == pytest.approx(0.2 / 1.96)


def test_samples_say_why_a_number_is_null():
    nan, infinite, empty = (
        next(scored("core/copa", logprobs).samples())
        for logprobs in ([[math.nan], [-1.0]], [[-math.inf], [-1.0]], [[], [-1.0]])
    )
    for sample, reason in ((nan, "NaN"), (infinite, "no probability"), (empty, "no scored token")):
        assert reason in sample["reason"]
    assert (nan["prediction"], nan["correct"]) == (None, None)
    assert (empty["options"][0]["greedy"], empty["correct"]) == (None, True)  # nanochat: NaN wins in first place


def test_the_suite_finds_its_folder_without_a_network(tmp_path: Path):
    (tmp_path / "eval_data/world_knowledge").mkdir(parents=True)
    (tmp_path / "eval_data/world_knowledge/arc_easy.jsonl").write_text("")
    assert core.SUITE.locate(tmp_path, False) == tmp_path / "eval_data"
