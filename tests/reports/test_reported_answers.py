"""Faults that people reported of how texts are cut, compared and tokenized.  README.md lists the reports."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from miron_jax.definitions.records import AnswerProfile
from miron_jax.errors import InputError
from miron_jax.metrics.answers import score_answer
from miron_jax.prompting.prompts import render
from miron_jax.tasks.own_tasks.check import findings
from miron_jax.tokens.detokenize import text_after
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.token_bytes import TokenBytes
from tests.support.own_task import CHOICE, TEXT, read_task, rows

# ------------------------------------------------------------------------------------------------- answers and their rules

STRIP = "answer_normalizer: strip\n"
COMPARED = [  # (keys, completion, right answer, is it right)
    # stanford-crfm/helm#4337, jundot/omlx#3484: a comma behind the number took its place.
    ("answer_after: The answer is\n", "The answer is 72, in total.", "72", True),
    (STRIP + "answer_after: 'The answer is '\n", "The answer is 72, in total.", "72", True),
    # openai/evals#1736, openai/openai-python#467: a number that goes on past the right one.
    ("", "12", "1", False),
    ("", "1 or 2", "1", True),
    (STRIP, "3.5", "3", False),
    (STRIP, "3.", "3", True),
    (STRIP, "1,000", "1", False),
    (STRIP, "1, 2", "1", True),
    # aniri15/OPD-V#2, open-compass/opencompass#1933: the letter that a word begins with.
    (STRIP, "Answer: D", "A", False),
    (STRIP, "A: the first", "A", True),
    (STRIP, "A", "A", True),
    ("", "Parisian", "Paris", False),
    ("", "Paris, of course", "paris", True),
    ("", "\u043c\u043e\u0441\u043a\u0432\u0438\u0447", "\u041c\u043e\u0441\u043a\u0432\u0430", False),
    ("", "\u043c\u0438\u0440\u043d\u044b\u0439", "\u043c\u0438\u0440", False),
    # Scripts without spaces between words have no case.
    ("", "\u5317\u4eac\u662f\u9996\u90fd", "\u5317\u4eac", True),
    # google-deepmind/proeval#19, stanford-crfm/helm#4289: a sign or a point that was lost.
    (STRIP, "-3", "3", False),
    (STRIP, "3", "-3", False),
    (STRIP, "7:30", "30", False),
    ("match: equal\n", "-3", "3", False),
    ("match: equal\n", "Paris\n", " Paris ", True),  # issue 54
    ("match: prefix\n", "12", "1", True),  # composer's rule, by its name
    ("rules: gauntlet\n", "12", "1", True),  # and among its rules
]


@pytest.mark.parametrize(("keys", "text", "right", "is_right"), COMPARED)
def test_an_answer_is_a_whole_word_or_number(keys: str, text: str, right: str, is_right: bool, tmp_path: Path) -> None:
    task, [example] = read_task(tmp_path, TEXT + keys, rows(right))
    assert isinstance(task.profile, AnswerProfile)
    assert score_answer(text, example.accepted, task.profile).correct == is_right


@pytest.mark.parametrize("match", ["prefix_words", "prefix", "normalized", "squad"])
@pytest.mark.parametrize("answer", ["A", "the", "!", "?!"])
def test_an_answer_that_is_nothing_once_normalized_is_refused(match: str, answer: str, tmp_path: Path) -> None:
    """stanford-crfm/helm#4315: the option "A" is an article, taken out of both sides; here any text was right, or ""."""
    keys = TEXT + f"match: {match}\n"
    with pytest.raises(InputError, match=rf"line 2: answer '{answer[0]}.* is empty once normalized"):
        read_task(tmp_path, keys, rows("B", ["C", answer]))
    for kept in (keys + STRIP, TEXT + "match: equal\n"):
        task, examples = read_task(tmp_path, kept, rows(answer))
        assert [score_answer(text, examples[0].accepted, task.profile).correct for text in (answer, "B", "")] == [
            True, False, False,
        ]  # fmt: skip


def test_numbers_that_normalizing_changes_are_said(tmp_path: Path) -> None:
    """google-deepmind/proeval#19: -3 became 3; open-compass/opencompass#2426: 80,000 and 80000 were two numbers."""
    answers = ["72", "-3", "3.5", "80,000", "3 apples", "x-3"]
    said = "3 of 6 examples have a number that loses its sign, point or comma, the first is record 2"
    assert said in list(findings(*read_task(tmp_path, TEXT, rows(*answers))))
    for keys in (STRIP, "match: equal\n"):
        assert said not in list(findings(*read_task(tmp_path, TEXT + keys, rows(*answers))))


EQUAL = "match: equal\n"
STOPPED = [  # (keys, right answers, records of --check, those where no text is right)
    (STRIP, ["up", "up\ndown", ["left\nright", "left"], "x\n"], [2, 3], [2]),
    ("", ["up", "up\ndown"], [2], []),  # "up down" is right once normalized
    (EQUAL, ["up\ndown", ["up\ndown", "down"]], [1, 2], [1]),
    (STRIP + "stop: ['END', ' ']\n", ["up\ndown", "up down", "THE END"], [2, 3], [2, 3]),
    (STRIP, ["up", "down"], [], []),
    # issue 54: answers were stripped, right ones were not; answer_after takes its like away from an answer
    (EQUAL, [" up", "up\n", "up\t"], [], []),
    (EQUAL + "answer_after: '#'\n", ["so # up", ["a#b", "b"], "up"], [1, 2], [1]),
]


@pytest.mark.parametrize(("keys", "answers", "records", "never"), STOPPED)
def test_a_right_answer_that_holds_a_stop_string_is_said(
    keys: str, answers: list[Any], records: list[int], never: list[int], tmp_path: Path
) -> None:
    task, examples = read_task(tmp_path, TEXT + keys, rows(*answers))
    said = [line for line in findings(task, examples) if "completion" in line]
    held = (
        f"{len(records)} of {len(answers)} examples have a right answer that holds a stop string or answer_after, so "
    )
    assert said == [
        *[f"{held}no completion is that answer: records {', '.join(map(str, records))}"] * bool(records),
        *[
            f"no completion at all is right in {len(never)} of {len(answers)} examples: records "
            f"{', '.join(map(str, never))}"
        ]
        * bool(never),
    ]


@pytest.mark.parametrize("stop", ['[""]', '["\\n", ""]', '""', "3"])
def test_an_empty_stop_string_is_refused(stop: str, tmp_path: Path) -> None:
    """sgl-project/sglang#38712, h2oai/h2o-llmstudio#54: every text holds it, so every text was empty."""
    with pytest.raises(InputError, match=r"stop is .*, expected a list of texts"):
        read_task(tmp_path, TEXT + f"stop: {stop}\n", rows("x"))


# --------------------------------------------------------------------------------------------------------- tokens and text


def llama(legacy: bool) -> PreTrainedTokenizerFast:
    """A Llama-like tokenizer: a mark for each space, one before the text, bytes for what it lacks."""
    pieces = ["<unk>", *["▁", "▁A", "▁B", "▁q", ":", "A", "B", "q"], *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    merges = [("\u2581", letter) for letter in "ABq"]
    backend = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>"))
    if legacy:
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("rules", ["core", "gauntlet", "lm_eval"])
def test_no_lone_space_is_scored_before_an_answer(rules: str, legacy: bool, tmp_path: Path) -> None:
    """mosaicml/composer#2178, allenai/catwalk#156: where a text tokenized alone gets a space of its own, a further one is
    a token; all options lose nearly all their probability to it."""
    tokenizer = llama(legacy)
    keys = CHOICE.replace("question: q", "question: '{{q}}:'") + f"rules: {rules}\nbos: never\n"
    task, examples = read_task(tmp_path, keys, [{"q": "q", "c": ["A", "B"], "a": "A"}])
    requests = tokenize(render(task, examples), task.profile, tokenizer, None, task.name)
    pieces = [
        (tokenizer.convert_ids_to_tokens(ids[:start].tolist()), tokenizer.convert_ids_to_tokens(ids[start:].tolist()))
        for ids, start in requests
    ]
    assert pieces == [(["\u2581q", ":"], ["\u2581A"]), (["\u2581q", ":"], ["\u2581B"])]


def test_bytes_of_tokens_are_those_of_the_text() -> None:
    """openai/parameter-golf#1719: the space of a word's mark, counted twice; #1289: three bytes for each token of one."""
    tokenizer = llama(legacy=False)
    of_tokens = TokenBytes(tokenizer)
    for text in ("q: A B", "A \u20ac \U0001f600 B", "\u0451:q"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        ends = of_tokens.ends(ids, text)
        assert ends is not None
        assert ends[-1] == len(text.encode())
        mark = tokenizer.convert_ids_to_tokens(ids)[0].startswith("\u2581")  # a space that the text has not
        assert sum(len(of_tokens.of[i] or b"") for i in ids) == len(text.encode()) + mark


def words() -> PreTrainedTokenizerFast:
    pieces = ["<unk>", "x", "!", "=", "y", ",", ".", "do", "n't", "'s"]
    backend = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=True)


def test_decoded_texts_keep_their_spaces() -> None:
    """huggingface/transformers#44914, #42913: "x != y" became "x!= y", by the tokenizer's own setting and by its version."""
    tokenizer = words()
    text = "x ! = y , x do n't 's ."
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) != text, "the tokenizer's own setting takes spaces out"
    assert text_after(tokenizer, (1,), ids) == f" {text}"


def test_ids_past_the_tokenizer_have_no_text() -> None:
    """mirage-project/mirage#751: rows that pad the head to a round number won where all logits were negative."""
    tokenizer = words()
    size = len(tokenizer)
    drawn: list[Any] = [1, size, 4, size + 100]
    assert text_after(tokenizer, (1,), drawn) == " x y"
    assert len(TokenBytes(tokenizer, size + 128).of) == size
