"""What each peer divides by, on choices with white space at both ends: their formulas, written out, beside ours.

A toy model gives a log-probability to each pair of neighbouring tokens; the peers' formulas are those of their
specifications (`core_and_gauntlet.md`: nanochat's evaluate_task, composer's datasets; `olmes.md`: sums and bits per byte).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState
from miron_jax.definitions.records import Example
from miron_jax.engine.records import Score, Scores
from miron_jax.evaluation.task_kinds.interface import LoadedTask, Setup, TaskScores, TokenizedExamples
from miron_jax.evaluation.task_kinds.kinds import kind_of
from miron_jax.metrics.choices import CHAR, ExampleScore
from miron_jax.tasks.registry import SUITES
from miron_jax.tasks.request_sets.requests_suite import PROFILE
from miron_jax.tokens.records import LengthLimit
from miron_jax.tokens.token_bytes import TokenBytes
from tests.support.tiny_tokenizer import BOS, TINY
from tests.support.tolerances import FLOAT32

CHOICES = {
    "blanks before": (" the mat", "  the mat", "the mat"),
    "blanks behind": ("the mat ", "the mat  ", "the sea"),
    "both, of other bytes": (" базбзге ", " g! ", "\tèéèàêéàà\n"),
    "prefixes": ("the", "the cat", "the cat sat "),
    "a line's end": ("blue\n", "blue", "\nblue"),
    "one token": ("a", " a", "b"),
}
QUESTION = " the answer is "
DELIMITERS = ("", " ", "\n", "\nAnswer: ", ": \t")


def ids_of(text: str) -> list[int]:
    return TINY.encode(text, add_special_tokens=False)


def logprob(before: int, token: int) -> float:
    """Nats of a token after another, the same in every text; multiples of 2^-7, so that float32 sums are exact."""
    return -(1 + (before * 131 + token * 29) % 613) / 128


def logprobs(ids: Sequence[int], start: int) -> list[float]:
    return [logprob(ids[place - 1], ids[place]) for place in range(start, len(ids))]


def scored(task: Any, example: Example) -> ExampleScore:
    """The example as this program scores it, with the toy model in place of a network."""
    task = replace(task, profile=replace(task.profile, num_fewshot=0), arrange=None)
    source = LoadedTask(task, [example], DataState("as published", None, None))
    setup = Setup(RunConfig("demo", ("own",)), TINY, TokenBytes(TINY, 400), LengthLimit(None, None, None))
    kind = kind_of(task)(source, setup)
    kind.prepare()
    scores: TaskScores[Any] = TaskScores(kind, [])
    for examples, requests in kind.pieces():
        nats = [np.asarray(logprobs([*map(int, ids)], start), np.float32) for ids, start in requests]
        given = [Score(each, np.zeros(len(each), np.int32)) for each in nats]
        kind.take(scores, TokenizedExamples(0, examples, requests), Scores.of(given))
    [row] = scores.rows
    return row.example


def common_prefix(texts: Sequence[Sequence[int]]) -> int:
    same = 0
    while all(len(ids) > same and ids[same] == texts[0][same] for ids in texts):
        same += 1
    return same


def with_delimiter(task: Any, delimiter: str) -> Any:
    return replace(task, profile=replace(task.profile, delimiter=delimiter))


def named(suite: str, name: str) -> Any:
    return next(task for task in SUITES[suite].tasks if task.name == f"{suite}/{name}")


# CORE, nanochat: the whole prompt with BOS; of choices the tokens after the longest common prefix, of a schema the common
# suffix, each by the mean.


@pytest.mark.parametrize("delimiter", DELIMITERS)
@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_core_divides_by_the_tokens_that_choices_do_not_share(choices: tuple[str, ...], delimiter: str) -> None:
    task = with_delimiter(named("core", "copa"), delimiter)
    texts = [[BOS, *ids_of(QUESTION + delimiter + choice)] for choice in choices]
    start = common_prefix(texts)
    losses = [-float(np.mean(logprobs(ids, start))) if len(ids) > start else math.nan for ids in texts]
    example = scored(task, Example(0, (QUESTION,), choices, 1))
    first = next((i for i, loss in enumerate(losses) if math.isnan(loss)), None)
    assert example.prediction == (int(np.argmin(losses)) if first is None else first)
    bits = -sum(logprobs(texts[1], start)) / math.log(2) / len(choices[1].encode())
    assert example.metrics["bits_per_byte"] == pytest.approx(bits, rel=FLOAT32)


@pytest.mark.parametrize("delimiter", DELIMITERS)
@pytest.mark.parametrize("contexts", CHOICES.values(), ids=CHOICES)
def test_cores_schemas_divide_by_the_common_ending(contexts: tuple[str, ...], delimiter: str) -> None:
    task = with_delimiter(named("core", "winograd"), delimiter)
    texts = [[BOS, *ids_of(context + delimiter + " is blue. ")] for context in contexts]
    shared = common_prefix([ids[::-1] for ids in texts])
    losses = [-np.mean(logprobs(ids, len(ids) - shared)) for ids in texts]
    assert scored(task, Example(0, contexts, (" is blue. ",), 1)).prediction == int(np.argmin(losses))


# The Gauntlet, composer: context and choice apart, the context's end stripped with its delimiter; choices in a list keep
# their white space, and get one space in front where they have none; exp of the mean over all of the choice's tokens.


@pytest.mark.parametrize("delimiter", DELIMITERS)
@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_the_gauntlet_divides_by_all_tokens_of_the_choice(choices: tuple[str, ...], delimiter: str) -> None:
    task = with_delimiter(named("gauntlet", "copa"), delimiter)
    example = task.parse({"query": QUESTION, "choices": [*choices], "gold": 1}, 0)
    context = ids_of(QUESTION.strip() + delimiter.rstrip())
    space = " " if len(ids_of(" a")) == 1 else ""
    behind = [ids_of(choice if choice.startswith(" ") else space + choice) for choice in choices]
    losses = [np.float32(-np.mean(logprobs([*context, *ids], len(context)))) for ids in behind]
    assert scored(task, example).prediction == int(np.argmin(np.exp(losses)))


# Request sets, olmo-eval: sums of the whole continuation, and gold's bits over its UTF-8 bytes, the leading blank counted.


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_request_sets_count_the_bytes_of_the_text_as_it_lies(choices: tuple[str, ...]) -> None:
    task = replace(named("core", "copa"), profile=PROFILE)
    context, rest = QUESTION.rstrip(), QUESTION[len(QUESTION.rstrip()) :]
    begins = ids_of(context)
    pairs = [[*begins, *ids_of(rest + choice)] for choice in choices]
    sums = [sum(logprobs(ids, len(begins))) for ids in pairs]
    example = scored(task, Example(0, (QUESTION,), choices, 1))
    assert example.prediction == int(np.argmax(sums))
    expected = -sums[1] / math.log(2) / len(choices[1].encode())
    assert example.metrics["bits_per_byte"] == pytest.approx(expected, rel=FLOAT32)


LENGTHS: dict[str, Callable[[str], int]] = {
    "accuracy_sum": lambda text: 1,
    "accuracy_bytes": lambda text: len(text.encode()),
    "accuracy_char": len,
}


@pytest.mark.parametrize("metric", LENGTHS)
@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_lm_evals_lengths_are_those_of_the_choice_without_its_delimiter(metric: str, choices: tuple[str, ...]) -> None:
    """`acc`, `acc_bytes` and `acc_norm` of lm-eval 0.4.13: the sum of all that follows the context, divided by the choice
    as doc_to_choice gives it, target_delimiter left out."""
    task = replace(named("core", "copa"), profile=replace(PROFILE, normalizer=CHAR, joined_delimiter=" "))
    begins = ids_of("the sky is")
    sums = [sum(logprobs([*begins, *ids_of(f" {choice}")], len(begins))) for choice in choices]
    joined = tuple(f" {choice}" for choice in choices)
    example = scored(task, Example(0, ("the sky is",), joined, 1))
    values = [each / LENGTHS[metric](choice) for each, choice in zip(sums, choices, strict=True)]
    assert example.metrics[metric] == float(int(np.argmax(values)) == 1)
