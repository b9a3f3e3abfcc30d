"""ruTiE: turns worded by hand, and turn by turn the same scores as texts that are read whole."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState, read_examples
from miron_jax.definitions.records import Task
from miron_jax.engine.growing import READ, GrowingText
from miron_jax.engine.model import Model, load_model
from miron_jax.engine.plain import score_plainly
from miron_jax.engine.self_check import SelfCheck, SelfCheckFailed
from miron_jax.errors import InputError
from miron_jax.prompting.prompts import Prompt
from miron_jax.task_kinds.choice import ChoiceScores
from miron_jax.task_kinds.dialogue import Dialogue
from miron_jax.task_kinds.interface import Setup, Source
from miron_jax.tasks.mera.suite import V1, V12
from miron_jax.tokens.records import LengthLimit
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.tiny_model import make_model

TASKS = {task.name: task for suite in (V1, V12) for task in suite.tasks}


def turn(number: int, dialogue: int = 0, outputs: str = "1", instruction: str | None = None) -> dict[str, Any]:
    return {
        "instruction": instruction or "Беседа:\n{context}\n{question}\n1. {choice1}\n2. {choice2}",
        "inputs": {"question": f"В{number}?", "choice1": f"а{number}", "choice2": f"б{number}"},
        "outputs": outputs,
        "meta": {"dialog_id": dialogue, "question_id": number},
    }


def source(name: str, folder: Path, records: list[dict[str, Any]]) -> Source:
    path = folder / "rutie" / "test.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(own, ensure_ascii=False) + "\n" for own in records), encoding="utf-8")
    task = TASKS[name]
    assert isinstance(task, Task)
    return Source(task, read_examples(task, folder), DataState("no published hash", None))


def told(own: Source, answers: list[str]) -> str:
    assert own.task.ask is not None
    return own.task.ask(own.examples[: len(answers) + 1], answers)


def test_v1_words_a_turn_behind_the_numbers_answered_before_it(tmp_path: Path) -> None:
    other = "Никто не видит этого {context}"  # only the first turn's instruction counts
    own = source("mera-v1/rutie", tmp_path, [turn(2, instruction=other), turn(0), turn(1, instruction=other)])
    # Where the context is empty, its two line feeds become one.
    assert told(own, []) == "Беседа:\nВ0?\n1. а0\n2. б0\nОтвет:"
    assert told(own, ["2"]) == "Беседа:\nВ0?\n1. а0\n2. б0\nОтвет: 2\nВ1?\n1. а1\n2. б1\nОтвет:"
    assert told(own, ["2", "1"]) == (
        "Беседа:\nВ0?\n1. а0\n2. б0\nОтвет: 2\nВ1?\n1. а1\n2. б1\nОтвет: 1\nВ2?\n1. а2\n2. б2\nОтвет:"
    )


def test_a_turn_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2: it has the id \(0, 1\) of line 1"):
        source("mera-v1/rutie", tmp_path, [turn(1), turn(1)])


def test_v12_opens_with_what_stands_before_the_context(tmp_path: Path) -> None:
    instruction = "Это {беседа}.\n{context}\n{question}\n1. {choice1}\n2. {choice2}\nОтвет:"
    own = source("mera-v1.2/rutie", tmp_path, [turn(i, instruction=instruction) for i in range(3)])
    assert told(own, []) == "\n\nЭто {беседа}.\n\nВ0?\n1. а0\n2. б0\nОтвет:"
    assert told(own, ["2", "1"]) == (
        "Это {беседа}.\nВ0?\n1. а0\n2. б0\nОтвет: 2\n\nВ1?\n1. а1\n2. б1\nОтвет: 1\n\nВ2?\n1. а2\n2. б2\nОтвет:"
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"meta": {"dialog_id": 0}}, "no id that is a whole number"),
        ({"instruction": "{question}"}, "has no {context}, expected it once"),
        ({"inputs": {"question": "?"}}, "expected the texts question, choice1, choice2"),
        ({"outputs": "3"}, "expected one of 1, 2"),
    ],
)
def test_a_bad_turn_is_named(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        source("mera-v1/rutie", tmp_path, [{**turn(0), **change}])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Any]:
    folder = make_model(tmp_path_factory.mktemp("dialogues") / "model")
    return load_model(folder, "float32"), load_tokenizer(str(folder))


def dialogue(own: Source, tokenizer: Any, limit: int | None = None, most: int | None = None) -> Dialogue:
    config = RunConfig("none", ("none",), limit=limit)
    return Dialogue(own, Setup(config, tokenizer, TokenBytes(tokenizer, len(tokenizer)), LengthLimit(most, None)))


def scored(own: Source, model: tuple[Model, Any], limit: int | None = None, most: int | None = None) -> ChoiceScores:
    kind = dialogue(own, model[1], limit, most)
    scores = kind.begin()
    kind.ask(scores, model[0], SelfCheck(1e-3))
    return scores


@pytest.mark.parametrize("name", ["mera-v1/rutie", "mera-v1.2/rutie"])
@pytest.mark.parametrize("most", [None, 150])
def test_every_turn_scores_as_if_its_text_were_read_whole(
    name: str, most: int | None, model: tuple[Model, Any], tmp_path: Path
) -> None:
    own = source(name, tmp_path, [turn(i, i // 7, "12"[i % 2]) for i in range(12)])
    scores = scored(own, model, most=most)
    start = {dialogue: next(i for i, e in enumerate(own.examples) if e.dialogue == dialogue) for dialogue in (0, 1)}
    answers: list[str] = []
    for i, (options, example) in enumerate(zip(scores.options, scores.examples, strict=True)):
        first = start[own.examples[i].dialogue or 0]
        answers = answers if i > first else []
        assert own.task.ask is not None
        context = own.task.ask(own.examples[first : i + 1], answers)
        prompt = Prompt(i, i, (context,) * 2, (" 1", " 2"), 0)
        requests = tokenize([prompt], own.task.profile, model[1], most, name)
        plain, _ = score_plainly(model[0], [ids for ids, _ in requests], [first for _, first in requests])
        for option, other in zip(options, plain, strict=True):
            np.testing.assert_allclose(option.logprob, other.logprob, atol=2e-5)
        sums = [float(other.logprob.sum()) for other in plain]
        assert example.prediction == int(np.argmax(sums))
        assert example.prediction is not None
        answers.append("12"[example.prediction])
    assert scores.growing is not None
    assert scores.growing.turns == 12
    # Kept, the text is read once, cut, every turn is read anew.
    if most is None:
        assert scores.growing.read_tokens < 0.6 * scores.growing.plain_tokens


def test_lengths_around_the_borders_of_calls_and_a_text_that_turns_back(model: tuple[Model, Any]) -> None:
    """Lengths around the borders of blocks and calls, each behind a text that shares some, all or nothing of it."""
    draw = np.random.default_rng(0)
    block = 64
    base = draw.integers(5, 300, 3 * READ).astype(np.int32)
    text = GrowingText(model[0], len(base))
    for length in (1, 2, block - 1, block, block + 1, READ, READ + 1, 2 * READ + 3, block, block + 2, 3, 2 * READ):
        ids = base[:length].copy()
        if length % 3 == 0:
            ids[-1] = (ids[-1] + 1) % 300
        ids = np.append(ids, np.int32(7))
        [plain], _ = score_plainly(model[0], [ids], [length])
        found = text._score(ids, length)
        np.testing.assert_allclose(found.logprob, plain.logprob, atol=2e-5)
        assert (found.rank[0] == 0) == (plain.margin[0] > 0)


def test_a_limit_asks_the_first_turns_and_hidden_gold_is_no_zero(model: tuple[Model, Any], tmp_path: Path) -> None:
    own = source("mera-v1/rutie", tmp_path, [turn(i, outputs="") for i in range(5)])
    scores = scored(own, model, limit=3)
    assert [prompt.row for prompt in scores.prompts] == [0, 1, 2]
    assert all(example.prediction is not None and example.correct is None for example in scores.examples)
    assert all(np.isnan(example.metrics["accuracy"]) for example in scores.examples)


@pytest.mark.parametrize("name", ["mera-v1/rutie", "mera-v1.2/rutie"])
def test_a_turn_that_the_model_answers_with_nan_ends_its_dialogue(
    name: str, model: tuple[Model, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = source(name, tmp_path, [turn(i) for i in range(4)])
    honest = GrowingText.score

    def broken(text: GrowingText, options: Any) -> Any:
        found = honest(text, options)
        return (
            [own._replace(logprob=own.logprob * np.float32(np.nan)) for own in found]
            if text.speed.turns == 2
            else found
        )

    monkeypatch.setattr(GrowingText, "score", broken)
    kind = dialogue(own, model[1])
    scores, check = kind.begin(), SelfCheck(1e-3)
    with pytest.raises(SelfCheckFailed):  # a plain read of that turn is no NaN: the run fails
        kind.ask(scores, model[0], check)
    assert [example.prediction is None for example in scores.examples] == [False, True, True, True]
    honest_check = SelfCheck(1e-3)
    monkeypatch.setattr(SelfCheck, "_judge", lambda check, score, plain, label: None)
    kind.ask(kind.begin(), model[0], honest_check)
    assert honest_check.requests == 4  # two turns of two options: those behind the NaN were never read


def test_models_without_a_cache_read_each_turn_whole(model: tuple[Model, Any], tmp_path: Path) -> None:
    """What models that keep nothing take: the same numbers by the plain way."""
    own = source("mera-v1/rutie", tmp_path, [turn(i) for i in range(3)])
    kept = scored(own, model)
    text = GrowingText(model[0], 256)
    text._keeps = False
    for prompt, options in zip(kept.prompts, kept.options, strict=True):
        assert prompt.gold == 0
        answers = [str(1 + (example.prediction or 0)) for example in kept.examples[: prompt.id]]
        context = told(replace_examples(own, prompt.id + 1), answers)
        requests = tokenize(
            [Prompt(0, 0, (context,) * 2, (" 1", " 2"), 0)], own.task.profile, model[1], None, own.task.name
        )
        for one, other in zip(text.score(requests), options, strict=True):
            np.testing.assert_allclose(one.logprob, other.logprob, atol=2e-5)


def replace_examples(own: Source, count: int) -> Source:
    return own._replace(examples=[replace(example) for example in own.examples[:count]])
