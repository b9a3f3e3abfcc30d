"""What is computed of many examples together, or once for several checkpoints, is what each gives alone."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from miron_jax.definitions.records import Example
from miron_jax.engine.records import Score, Scores, no_distribution
from miron_jax.evaluation.task_kinds import choice
from miron_jax.evaluation.task_kinds.interface import TokenizedExamples
from miron_jax.evaluation.task_kinds.summary import option_of, scored_option
from miron_jax.metrics.spans import Spans
from miron_jax.prompting.prompts import without_shots
from tests.tasks.test_peer_lengths import kind_with, named


def _scores(with_distribution: bool) -> Iterator[Score]:
    rng = np.random.default_rng(0)
    for length in (0, 1, 1, 5, 7, 8, 9, 40, 131, 0, 5, 8, 3, 3):
        logprob = -rng.exponential(3.0, length).astype(np.float32)
        rank = rng.integers(0, 2, length, np.int32) * rng.integers(0, 2, dtype=np.int32)
        yield Score(logprob, rank, distribution=rng.normal(size=(length, 3 * with_distribution)).astype(np.float32))
    for value in (np.nan, -np.inf):
        yield Score(np.full(2, value, np.float32), np.zeros(2, np.int32), distribution=np.zeros((2, 0), np.float32))


@pytest.mark.parametrize("with_distribution", [False, True])
def test_options_of_many_spans_are_those_of_each(with_distribution: bool) -> None:
    scores = [*_scores(with_distribution)]
    texts = [f"choice {i}" for i in range(len(scores))]
    spans = Spans.of_each([score.logprob for score in scores], [score.rank for score in scores])
    options = [*map(scored_option, texts, scores, spans.sum.tolist(), spans.is_greedy.tolist())]
    # repr tells the last bit of a float, and that NaN is NaN
    assert [*map(repr, options)] == [*map(repr, map(option_of, texts, scores))]
    assert {option.greedy for option in options} == {True, False, None}


def test_prompts_of_rows_are_made_once_for_all_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(choice, "without_shots", lambda prompt: made.append(prompt.id) or without_shots(prompt))
    task = named("core", "copa")
    task = replace(task, profile=replace(task.profile, num_fewshot=0))
    kind = kind_with(task, [Example(row, (f"the cat {row}",), ("sat", "the mat"), 0) for row in range(11)])
    [(prompts, requests)] = kind.pieces()
    assert made == [], "before there are scores the device waits"
    piece = TokenizedExamples(0, prompts, requests)
    sizes = [len(ids) - start for ids, start in requests]
    scores = Scores.of([Score(np.zeros(n, np.float32), np.zeros(n, np.int32), 0.0, no_distribution(n)) for n in sizes])
    first, second = (kind.rows_of(piece, scores) for _ in range(2))
    assert made == [*range(11)]
    assert [row.prompt for row in first] == [row.prompt for row in second]
