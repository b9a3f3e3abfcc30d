"""ruTiE: prompts of turns by hand, and scores equal to those of whole prompts computed from scratch."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState, read_examples
from miron_jax.definitions.records import Task
from miron_jax.engine.growing import READ, GrowingText
from miron_jax.engine.model import Model, load_model
from miron_jax.engine.plain import score_plainly
from miron_jax.engine.records import Score
from miron_jax.engine.self_check import TOLERANCE, SelfCheck, SelfCheckFailed
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.prompting.prompts import Prompt
from miron_jax.task_kinds.choice import ChoiceScores
from miron_jax.task_kinds.dialogue import Dialogue
from miron_jax.task_kinds.interface import Setup, Source
from miron_jax.tasks.mera.suite import V1, V12
from miron_jax.tokens.records import LengthLimit, Requests
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import Tokenizer, load_tokenizer
from tests.support.tiny_model import make_model
from tests.support.tolerances import TOKEN

pytestmark = pytest.mark.slow

TASKS = {task.name: task for suite in (V1, V12) for task in suite.tasks}


def turn(number: int, dialogue: int = 0, outputs: str = "1", instruction: str | None = None) -> JsonObject:
    return {
        "instruction": instruction or "Беседа:\n{context}\n{question}\n1. {choice1}\n2. {choice2}",
        "inputs": {"question": f"В{number}?", "choice1": f"а{number}", "choice2": f"б{number}"},
        "outputs": outputs,
        "meta": {"dialog_id": dialogue, "question_id": number},
    }


def read_turns(name: str, folder: Path, records: list[JsonObject]) -> Source:
    path = folder / "rutie" / "test.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    task = TASKS[name]
    assert isinstance(task, Task)
    return Source(task, read_examples(task, folder), DataState("no published hash", None))


def prompt_of(source: Source, answers: list[str]) -> str:
    return source.task.turn_prompt(source.examples[: len(answers) + 1], answers)


def test_v1_prompt_holds_the_numbers_of_earlier_answers(tmp_path: Path) -> None:
    other = "Никто не видит этого {context}"  # only the first turn's instruction counts
    source = read_turns("mera-v1/rutie", tmp_path, [turn(2, instruction=other), turn(0), turn(1, instruction=other)])
    # The two line feeds around an empty context become one.
    assert prompt_of(source, []) == "Беседа:\nВ0?\n1. а0\n2. б0\nОтвет:"
    assert prompt_of(source, ["2"]) == "Беседа:\nВ0?\n1. а0\n2. б0\nОтвет: 2\nВ1?\n1. а1\n2. б1\nОтвет:"
    assert prompt_of(source, ["2", "1"]) == (
        "Беседа:\nВ0?\n1. а0\n2. б0\nОтвет: 2\nВ1?\n1. а1\n2. б1\nОтвет: 1\nВ2?\n1. а2\n2. б2\nОтвет:"
    )


def test_a_turn_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2: it has the id \(0, 1\) of line 1"):
        read_turns("mera-v1/rutie", tmp_path, [turn(1), turn(1)])


def test_v12_prompt_opens_with_the_instructions_beginning(tmp_path: Path) -> None:
    instruction = "Это {беседа}.\n{context}\n{question}\n1. {choice1}\n2. {choice2}\nОтвет:"
    source = read_turns("mera-v1.2/rutie", tmp_path, [turn(i, instruction=instruction) for i in range(3)])
    assert prompt_of(source, []) == "\n\nЭто {беседа}.\n\nВ0?\n1. а0\n2. б0\nОтвет:"
    assert prompt_of(source, ["2", "1"]) == (
        "Это {беседа}.\nВ0?\n1. а0\n2. б0\nОтвет: 2\n\nВ1?\n1. а1\n2. б1\nОтвет: 1\n\nВ2?\n1. а2\n2. б2\nОтвет:"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"meta": {"dialog_id": 0}}, "no id that is a whole number"),
        ({"instruction": "{question}"}, "has no {context}, expected it once"),
        ({"inputs": {"question": "?"}}, "expected the texts question, choice1, choice2"),
        ({"outputs": "3"}, "expected one of 1, 2"),
    ],
)
def test_a_bad_turn_is_named(change: JsonObject, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_turns("mera-v1/rutie", tmp_path, [{**turn(0), **change}])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Tokenizer]:
    folder = make_model(tmp_path_factory.mktemp("dialogues") / "model")
    return load_model(folder, "float32"), load_tokenizer(str(folder))


def dialogue(source: Source, tokenizer: Tokenizer, limit: int | None = None, most: int | None = None) -> Dialogue:
    config = RunConfig("none", ("none",), limit=limit)
    return Dialogue(source, Setup(config, tokenizer, TokenBytes(tokenizer, len(tokenizer)), LengthLimit(most, None)))


def scored(
    source: Source, model: tuple[Model, Tokenizer], limit: int | None = None, most: int | None = None
) -> ChoiceScores:
    kind = dialogue(source, model[1], limit, most)
    scores = kind.begin()
    kind.score_in_turn(scores, model[0], SelfCheck(TOLERANCE["float32"]))
    return scores


@pytest.mark.parametrize("name", ["mera-v1/rutie", "mera-v1.2/rutie"])
@pytest.mark.parametrize("most", [None, 150])
def test_every_turn_scores_as_its_whole_prompt(
    name: str, most: int | None, model: tuple[Model, Tokenizer], tmp_path: Path
) -> None:
    source = read_turns(name, tmp_path, [turn(i, i // 7, "12"[i % 2]) for i in range(12)])
    scores = scored(source, model, most=most)
    start = {dialogue: next(i for i, e in enumerate(source.examples) if e.dialogue == dialogue) for dialogue in (0, 1)}
    answers: list[str] = []
    for i, (choices, example) in enumerate(zip(scores.choices, scores.examples, strict=True)):
        first = start[source.examples[i].dialogue or 0]
        answers = answers if i > first else []
        context = source.task.turn_prompt(source.examples[first : i + 1], answers)
        prompt = Prompt(i, i, (context,) * 2, (" 1", " 2"), 0)
        requests = tokenize([prompt], source.task.profile, model[1], most, name)
        plain, _ = score_plainly(model[0], [ids for ids, _ in requests], [first for _, first in requests])
        for choice, other in zip(choices, plain, strict=True):
            np.testing.assert_allclose(choice.logprob, other.logprob, atol=TOKEN)
        sums = [float(other.logprob.sum()) for other in plain]
        assert example.prediction == int(np.argmax(sums))
        assert example.prediction is not None
        answers.append("12"[example.prediction])
    assert scores.growing is not None
    assert scores.growing.turns == 12
    # With a cache the text is computed once; a cut text is computed anew for every turn.
    if most is None:
        assert scores.growing.read_tokens < 0.6 * scores.growing.plain_tokens


def test_lengths_around_the_borders_of_calls_and_a_text_that_turns_back(model: tuple[Model, Tokenizer]) -> None:
    """Lengths around the borders of blocks and calls; the text before shares all, some or nothing of the next one."""
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
        score = text._score(ids, length)
        np.testing.assert_allclose(score.logprob, plain.logprob, atol=TOKEN)
        assert (score.rank[0] == 0) == (plain.margin[0] > 0)


def test_a_limit_scores_the_first_turns_and_hidden_gold_is_not_zero(
    model: tuple[Model, Tokenizer], tmp_path: Path
) -> None:
    source = read_turns("mera-v1/rutie", tmp_path, [turn(i, outputs="") for i in range(5)])
    scores = scored(source, model, limit=3)
    assert [prompt.row for prompt in scores.prompts] == [0, 1, 2]
    assert all(example.prediction is not None and example.correct is None for example in scores.examples)
    assert all(np.isnan(example.metrics["accuracy"]) for example in scores.examples)


@pytest.mark.parametrize("name", ["mera-v1/rutie", "mera-v1.2/rutie"])
def test_a_turn_that_the_model_answers_with_nan_ends_its_dialogue(
    name: str, model: tuple[Model, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = read_turns(name, tmp_path, [turn(i) for i in range(4)])
    honest = GrowingText.score

    def broken(text: GrowingText, requests: Requests) -> list[Score]:
        scores = honest(text, requests)
        nan = [score._replace(logprob=score.logprob * np.float32(np.nan)) for score in scores]
        return nan if text.speed.turns == 2 else scores

    monkeypatch.setattr(GrowingText, "score", broken)
    kind = dialogue(source, model[1])
    scores, check = kind.begin(), SelfCheck(TOLERANCE["float32"])
    with pytest.raises(SelfCheckFailed):  # the plain score of that turn is not NaN: the run fails
        kind.score_in_turn(scores, model[0], check)
    assert [example.prediction is None for example in scores.examples] == [False, True, True, True]
    honest_check = SelfCheck(TOLERANCE["float32"])
    monkeypatch.setattr(SelfCheck, "_judge", lambda check, score, plain, label: None)
    kind.score_in_turn(kind.begin(), model[0], honest_check)
    assert honest_check.requests == 4  # two turns of two choices; later ones have no score


def test_models_without_a_cache_score_alike(model: tuple[Model, Tokenizer], tmp_path: Path) -> None:
    """A model without a cache computes every prompt from scratch and gives the same numbers."""
    source = read_turns("mera-v1/rutie", tmp_path, [turn(i) for i in range(3)])
    kept = scored(source, model)
    text = GrowingText(model[0], 256)
    text._keeps = False
    for prompt, choices in zip(kept.prompts, kept.choices, strict=True):
        assert prompt.gold == 0
        answers = [str(1 + (example.prediction or 0)) for example in kept.examples[: prompt.id]]
        context = prompt_of(replace_examples(source, prompt.id + 1), answers)
        requests = tokenize(
            [Prompt(0, 0, (context,) * 2, (" 1", " 2"), 0)], source.task.profile, model[1], None, source.task.name
        )
        for one, other in zip(text.score(requests), choices, strict=True):
            np.testing.assert_allclose(one.logprob, other.logprob, atol=TOKEN)


def replace_examples(source: Source, count: int) -> Source:
    return source._replace(examples=[replace(example) for example in source.examples[:count]])
