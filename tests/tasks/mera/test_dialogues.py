"""ruTiE: prompts of turns by hand, and scores equal to those of whole prompts computed from scratch."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState, read_examples
from miron_jax.definitions.records import Task
from miron_jax.engine.growing import READ, GrowingText
from miron_jax.engine.model import Model, load_model
from miron_jax.engine.plain import score_plainly
from miron_jax.engine.records import Score
from miron_jax.engine.self_check import TOLERANCE, SelfCheck
from miron_jax.errors import InputError, SelfCheckFailed
from miron_jax.evaluation.task_kinds.choice import ChoiceRow
from miron_jax.evaluation.task_kinds.dialogue import DialogueKind
from miron_jax.evaluation.task_kinds.interface import LoadedTask, Setup, TaskScores
from miron_jax.files.readers import JsonObject
from miron_jax.prompting.prompts import Prompt
from miron_jax.tasks.mera.suite import V1, V12
from miron_jax.tokens.records import Requests
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import Tokenizer, load_tokenizer
from miron_jax.tokens.truncation import LengthLimit
from tests.support.mera_records import turn
from tests.support.tiny_model import make_model
from tests.support.tolerances import TOKEN

TASKS = {task.name: task for suite in (V1, V12) for task in suite.tasks}


def read_turns(name: str, folder: Path, records: list[JsonObject]) -> LoadedTask:
    path = folder / "rutie" / "test.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    task = TASKS[name]
    assert isinstance(task, Task)
    return LoadedTask(task, read_examples(task, folder), DataState("no published hash", None))


def prompt_of(source: LoadedTask, answers: list[str]) -> str:
    return source.task.turn_prompt(source.examples[: len(answers) + 1], answers)


def test_a_prompt_holds_the_answers_to_earlier_turns(tmp_path: Path) -> None:
    other = "Никто не видит этого {context}"  # only the first turn's instruction counts
    v1 = read_turns("mera-v1/rutie", tmp_path, [turn(2, instruction=other), turn(0), turn(1, instruction=other)])
    # The two line feeds around an empty context become one.
    first = "Беседа:\nВ0?\n1. а0\n2. б0\nОтвет:"
    assert prompt_of(v1, []) == first
    assert prompt_of(v1, ["2"]) == f"{first} 2\nВ1?\n1. а1\n2. б1\nОтвет:"
    assert prompt_of(v1, ["2", "1"]) == f"{first} 2\nВ1?\n1. а1\n2. б1\nОтвет: 1\nВ2?\n1. а2\n2. б2\nОтвет:"
    instruction = "Это {беседа}.\n{context}\n{question}\n1. {choice1}\n2. {choice2}\nОтвет:"
    v12 = read_turns("mera-v1.2/rutie", tmp_path, [turn(i, instruction=instruction) for i in range(3)])
    assert prompt_of(v12, []) == "\n\nЭто {беседа}.\n\nВ0?\n1. а0\n2. б0\nОтвет:"
    assert prompt_of(v12, ["2", "1"]) == (
        "Это {беседа}.\nВ0?\n1. а0\n2. б0\nОтвет: 2\n\nВ1?\n1. а1\n2. б1\nОтвет: 1\n\nВ2?\n1. а2\n2. б2\nОтвет:"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, r"line 2: it has the id \(0, 1\) of line 1"),
        ({"meta": {"dialog_id": 0}}, "no id that is a whole number"),
        ({"instruction": "{question}"}, "has no {context}, expected it once"),
        ({"inputs": {"question": "?"}}, "expected the texts question, choice1, choice2"),
        ({"outputs": "3"}, "expected one of 1, 2"),
    ],
)
def test_a_bad_turn_is_named(change: JsonObject, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_turns("mera-v1/rutie", tmp_path, [turn(1), {**turn(1), **change}])


class Scorer(NamedTuple):
    model: Model
    tokenizer: Tokenizer


def dialogue(source: LoadedTask, scorer: Scorer, limit: int | None = None, most: int | None = None) -> DialogueKind:
    config, tokenizer = RunConfig("none", ("none",), limit=limit), scorer.tokenizer
    return DialogueKind(
        source, Setup(config, tokenizer, TokenBytes(tokenizer, len(tokenizer)), LengthLimit(most, None))
    )


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    folder = make_model(tmp_path_factory.mktemp("dialogues") / "model")
    return Scorer(load_model(folder, "float32"), load_tokenizer(str(folder)))


def scored(
    source: LoadedTask, scorer: Scorer, limit: int | None = None, most: int | None = None
) -> TaskScores[ChoiceRow]:
    kind = dialogue(source, scorer, limit, most)
    scores = TaskScores(kind)
    kind.score_in_turn(scores, scorer.model, SelfCheck(TOLERANCE["float32"]))
    return scores


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("mera-v1/rutie", None), ("mera-v1.2/rutie", 150)])
def test_every_turn_scores_as_its_whole_prompt(name: str, most: int | None, scorer: Scorer, tmp_path: Path) -> None:
    source = read_turns(name, tmp_path, [turn(i, i // 7, "12"[i % 2]) for i in range(12)])
    scores = scored(source, scorer, most=most)
    answers: list[str] = []
    prompts = []
    for i, example in enumerate(row.score for row in scores.rows):
        first = 7 * (i // 7)
        answers = answers if i > first else []
        context = source.task.turn_prompt(source.examples[first : i + 1], answers)
        prompts.append(Prompt(i, i, (context,) * 2, (" 1", " 2"), 0))
        assert example.prediction is not None
        answers.append("12"[example.prediction])
    requests = tokenize(prompts, source.task.profile, scorer.tokenizer, most, name)
    plain, _ = score_plainly(scorer.model, [ids for ids, _ in requests], [start for _, start in requests])
    for i, row in enumerate(scores.rows):
        for choice, other in zip(row.choices, plain[2 * i : 2 * i + 2], strict=True):
            np.testing.assert_allclose(choice.logprob, other.logprob, atol=TOKEN)
        assert row.score.prediction == int(np.argmax([float(one.logprob.sum()) for one in plain[2 * i : 2 * i + 2]]))
    assert scores.growing is not None
    assert scores.growing.turns == 12
    # With a cache the text is computed once; a cut text is computed anew for every turn.
    if most is None:
        assert scores.growing.read_tokens < 0.6 * scores.growing.plain_tokens


@pytest.mark.slow
def test_lengths_around_the_borders_of_calls_and_a_text_that_turns_back(scorer: Scorer) -> None:
    """Lengths around the borders of blocks and calls; the text before shares all, some or nothing of the next one."""
    block = 64
    base = np.random.default_rng(0).integers(5, 300, 3 * READ).astype(np.int32)
    model = scorer.model._replace(with_distribution=True)
    text = GrowingText(model, len(base))
    lengths = (1, 2, block - 1, block, block + 1, READ, READ + 1, 2 * READ + 3, block, block + 2, 3, 2 * READ)
    texts = []
    for length in lengths:
        ids = base[:length].copy()
        ids[-1] = (ids[-1] + (length % 3 == 0)) % 300
        texts.append(np.append(ids, np.int32(7)))
    plain, _ = score_plainly(model, texts, list(lengths))
    for ids, length, other in zip(texts, lengths, plain, strict=True):
        score = text._score(ids, length)
        np.testing.assert_allclose(score.logprob, other.logprob, atol=TOKEN, err_msg=f"{length} tokens")
        np.testing.assert_allclose(score.distribution, other.distribution, atol=TOKEN, err_msg=f"{length} tokens")
        assert (score.rank[0] == 0) == (other.margin[0] > 0)


@pytest.mark.slow
def test_a_turn_that_the_model_answers_with_nan_ends_its_dialogue(
    scorer: Scorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = read_turns("mera-v1/rutie", tmp_path, [turn(i) for i in range(4)])
    honest = GrowingText.score

    def broken(text: GrowingText, requests: Requests) -> list[Score]:
        scores = honest(text, requests)
        nan = [score._replace(logprob=score.logprob * np.float32(np.nan)) for score in scores]
        return nan if text.speed.turns == 2 else scores

    monkeypatch.setattr(GrowingText, "score", broken)
    kind = dialogue(source, scorer)
    scores, check = TaskScores(kind), SelfCheck(TOLERANCE["float32"])
    with pytest.raises(SelfCheckFailed):  # the plain score of that turn is not NaN: the run fails
        kind.score_in_turn(scores, scorer.model, check)
    assert [row.score.prediction is None for row in scores.rows] == [False, True, True, True]
    honest_check = SelfCheck(TOLERANCE["float32"])
    monkeypatch.setattr(SelfCheck, "_judge", lambda *_: None)
    kind.score_in_turn(TaskScores(kind), scorer.model, honest_check)
    assert honest_check.requests == 4  # two turns of two choices; later ones have no score


@pytest.mark.slow
def test_a_model_whose_frequencies_change_with_length_reads_every_turn_whole(tmp_path: Path) -> None:
    """Keys of a shorter text are turned by other angles: none may be kept."""
    folder = make_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["rope_scaling"] = {"rope_type": "dynamic", "factor": 2.0}
    (folder / "config.json").write_text(json.dumps(config))
    scorer = Scorer(load_model(folder, "float32"), load_tokenizer(str(folder)))
    source = read_turns("mera-v1/rutie", tmp_path, [turn(i) for i in range(4)])
    scores = scored(source, scorer, limit=2)
    assert [row.prompt.row for row in scores.rows] == [0, 1], "a limit scores the first turns"
    assert scores.growing is not None
    assert scores.growing.read_tokens == scores.growing.plain_tokens > 0
