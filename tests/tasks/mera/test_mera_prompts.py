"""MERA's prompts against texts written out by hand for records of the published form, and its few-shot sampling against the
published rule, step by step."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Question, Task
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject
from miron_jax.metrics.choices import FIRST, LAST
from miron_jax.prompting.prompts import Prompt, render
from miron_jax.tasks.mera.metrics import ETHICS
from miron_jax.tasks.mera.records import worded
from miron_jax.tasks.mera.suite import V1, V12
from miron_jax.tasks.mera.table import BY_NAME, data_sets

ABCD = {"option_a": "1", "option_b": "2", "option_c": "3", "option_d": "4"}
INPUTS: JsonObject = ABCD | {
    "text": " Т", "actant_1": "а", "actant_2": "б", "premise": "П", "hypothesis": "Г", "choice1": "а", "choice2": "б",
    "span1_text": "а", "span2_text": "б", "question": "В", "support_text": "С", "query": "?", "target_group": "женщины",
    "replica": "р", "reply_1": "а", "reply_2": "б", "task": "З", "subject": "с", "topic": "кино",
}  # fmt: skip
META: JsonObject = {
    "domain": "law", "question": "good", "criteria": "honest", "id_task": "4", "variant": 0, "type": "text", "score": 1,
}  # fmt: skip


def record(number: int, instruction: str, inputs: Json = INPUTS, outputs: Json = "", **meta: Json) -> JsonObject:
    return {"instruction": instruction, "inputs": inputs, "outputs": outputs, "meta": {**META, "id": number, **meta}}


def write(folder: Path, config: str, **splits: list[JsonObject]) -> Path:
    for split, records in splits.items():
        path = folder / config / f"{split}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return folder


def task_of(name: str) -> Task[Any]:
    task = {task.name: task for suite in (V1, V12) for task in suite.tasks}[name]
    assert task.kind != "code"
    return task


def prompts(name: str, folder: Path, limit: int | None = None) -> list[Prompt]:
    task = task_of(name)
    return render(task, read_examples(task, folder), limit)


def texts(name: str, folder: Path) -> list[str]:
    return [prompt.preamble + prompt.contexts[0] for prompt in prompts(name, folder)]


WHOLE = {  # without shots a prompt is the record's instruction
    "mera-v1/parus": (" Выбери: {premise} | {choice1} | {choice2}", " Выбери: П | а | б\nОтвет:"),
    "mera-v1/rcb": ("{premise} -> {hypothesis}?\n", "П -> Г?\n\nОтвет:"),
    "mera-v1/rwsd": ("{text}: {span1_text} = {span2_text}?", " Т: а = б?\nОтвет:"),
    "mera-v1/multiq": (" {question}\n{support_text}\n{text}\nОтвет: ", "В\nС\n Т\nОтвет:"),
    "mera-v1/rumodar": ("Реши:\n{inputs}\n", "Реши:\n ABC"),
    "mera-v1/rudetox": ("Перепиши: {toxic_comment}\n", "Перепиши:  ABC"),
    "mera-v1/ruethics": ("{text} {actant_1} {actant_2} ", " Т а б "),
    "mera-v1/ruhhh": ("{query}\n1 {reply_1}\n2 {reply_2}\n", "?\n1 а\n2 б"),
    "mera-v1/ruhatespeech": ("{target_group}: {replica} {reply_1} {reply_2}\n", "женщины: р а б\n"),
    "mera-v1/use": ("{task}\n{text}\n", "З\n Т"),
    "mera-v1.2/ruethics": (" {text} ", "Т"),
}
ONE_TEXT = ("bps", "lcs", "simplear", "rumodar", "rumultiar", "rudetox")


@pytest.mark.parametrize("name", WHOLE)
def test_without_shots_a_prompt_is_the_records_instruction(name: str, tmp_path: Path) -> None:
    (instruction, expected), config = WHOLE[name], name.partition("/")[2]
    fields = record(0, instruction, " ABC " if config in ONE_TEXT else INPUTS)
    assert texts(name, write(tmp_path, config, test=[fields])) == [expected]


CHOOSE = "\nA) 1\nB) 2\nC) 3\nD) 4\nОтвет:"
SHORT = {  # after shots the question has no instruction: the split of the shots, the question
    "mera-v1/bps": ("train", "ABC"),
    "mera-v1.2/bps": ("train", "Последовательность:  ABC \nОтвет:"),
    "mera-v1/lcs": ("public_test", "ABC"),
    "mera-v1.2/lcs": ("public_test", "Строки:  ABC \nОтвет:"),
    "mera-v1/mathlogicqa": ("train", "Т" + CHOOSE),
    "mera-v1.2/mathlogicqa": ("train", " Т" + CHOOSE),
    "mera-v1/ruworldtree": ("train", "В" + CHOOSE),
    "mera-v1/rummlu": ("public_test", "Т" + CHOOSE),
    "mera-v1.2/rummlu": ("train", "Т" + CHOOSE),
    "mera-v1/chegeka": ("train", 'Категория "кино"\nВопрос:  Т\nОтвет:'),
    "mera-v1/simplear": ("train", "ABC"),
    "mera-v1/rumultiar": ("train", "ABC"),
    "mera-v1.2/parus": ("train", "Ситуация: П\nФрагмент 1: а\nФрагмент 2: б\nОтвет:"),
    "mera-v1.2/rcb": ("train", "Ситуация: П\nГипотеза: Г\nОтвет:"),
    "mera-v1.2/rwsd": ("train", "Текст:  Т\nФрагмент 1: а\nФрагмент 2: б\nОтвет:"),
    "mera-v1.2/rudetox": ("train", "Токсичный текст:  ABC \nНетоксичный текст:"),
}


@pytest.mark.parametrize("name", SHORT)
def test_after_shots_the_question_has_no_instruction(name: str, tmp_path: Path) -> None:
    config, (split, expected) = name.partition("/")[2], SHORT[name]
    dataset = next(dataset for dataset in data_sets("v1.2") if dataset.config == config)
    right = dataset.choices[0] if dataset.choices else "да"
    inputs = " ABC " if config in ONE_TEXT else INPUTS
    opening = "Скобки фигурные {} и []: " if config == "bps" else "Начало: "  # BPS speaks of braces that are no field
    instruction = opening + "{" + (dataset.field if config in ONE_TEXT else "premise") + "}"
    shots = [record(i, instruction, inputs, right) for i in range(6)]
    write(tmp_path, config, test=[record(9, instruction, inputs)], **{split: shots})
    [prompt] = prompts(name, tmp_path)
    assert prompt.contexts[0] == expected
    assert prompt.gold is None  # the right answer is not published
    num_fewshot = task_of(name).profile.num_fewshot
    assert prompt.preamble.count(opening) == 1  # only the first few-shot example has its instruction
    assert prompt.preamble.count(f" {right}\n\n") == num_fewshot
    assert prompt.preamble.endswith(f"{expected} {right}\n\n" if num_fewshot > 1 else f" {right}\n\n")


def test_the_exam_without_its_instruction_depends_on_the_type_of_task(tmp_path: Path) -> None:
    inputs = {"task": "З", "text": "Т", "choices": "1) а", "additional_text": "Р"}
    expected = {
        "text": "Задание: З\nТ\nОтвет:",
        "multiple_choice_options_within_text": "Задание: З\nТ\nОтвет:",
        "matching": "Задание: З\nТекст: Т\nРецензии: Р\nСписок терминов:\n1) а\nОтвет:",
        "multiple_choice_based_on_text": "Задание: З\nТекст: Т\nВарианты ответа:\n1) а\nОтвет:",
        "multiple_choice_independent_options": "Задание: З\nВарианты ответа:\n1) а\nОтвет:",
    }
    tests, shots = (
        [record(i, text, inputs, f"о{i}", id_task=str(i), type=kind) for i, kind in enumerate(expected)]
        for text in ("И {task}", "И {task} ")
    )
    write(tmp_path, "use", test=tests, train=shots)
    assert texts("mera-v1.2/use", tmp_path) == [f"И З  о{i}\n\n{text}" for i, text in enumerate(expected.values())]


def test_one_stream_shuffles_and_then_samples_for_every_record_in_that_order(tmp_path: Path) -> None:
    shots = [record(i, "И {inputs}", f"ш{i}", str(i)) for i in range(9)]
    write(tmp_path, "lcs", test=[record(i, "{inputs}", f"т{i}") for i in range(7)], public_test=shots)
    for name, seed, k, short in (("mera-v1/lcs", 42, 2, "{}"), ("mera-v1.2/lcs", 1234, 1, "Строки: {}\nОтвет:")):
        stream, order = random.Random(seed), list(range(7))
        if name == "mera-v1/lcs":
            stream.shuffle(order)
        expected = []
        for row in order:
            first, *others = stream.sample(shots, k)
            shown = [f"И {first['inputs']}", *(short.format(other["inputs"]) for other in others)]
            pairs = zip(shown, (first, *others), strict=True)
            expected.append((row, "".join(f"{text} {shot['outputs']}\n\n" for text, shot in pairs)))
        rendered = prompts(name, tmp_path)
        assert [(prompt.row, prompt.preamble) for prompt in rendered] == expected
        assert prompts(name, tmp_path, 3) == rendered[:3]  # a limit moves no draw


def test_shots_share_the_questions_domain(tmp_path: Path) -> None:
    tests = [record(i, "{text}", outputs="A", domain=("art", "law")[i % 2]) for i in range(6)]
    shots = [record(i, "{text}" + d, outputs="B", domain=d) for d in ("law", "art") for i in range(5)]
    write(tmp_path, "rummlu", test=tests, public_test=shots)
    for prompt in prompts("mera-v1/rummlu", tmp_path):
        assert [domain for domain in ("art", "law") if domain in prompt.preamble] == [prompt.category]
    write(tmp_path, "rummlu", public_test=shots[:5])
    with pytest.raises(InputError, match=r"public_test\.jsonl has 0 records with domain 'art', expected at least 5"):
        prompts("mera-v1/rummlu", tmp_path)


def test_a_test_record_is_never_its_own_shot(tmp_path: Path) -> None:
    tests = [record(i, "И {replica}", {**INPUTS, "replica": f"р{i}"}, "1") for i in range(3)]
    write(tmp_path, "ruhatespeech", test=tests)
    stream = random.Random(1234)
    for i, prompt in enumerate(prompts("mera-v1.2/ruhatespeech", tmp_path)):
        [shot] = stream.sample(tests, 1)
        assert prompt.preamble == ("" if shot["meta"]["id"] == i else f"И {shot['inputs']['replica']} 1\n\n")
        assert prompt.contexts[0] == f"Реплика: р{i}\nОтвет 1: а\nОтвет 2: б\nЦелевая группа: женщины\nОтвет:"


def test_an_older_copy_calls_v1s_public_test_train(tmp_path: Path) -> None:
    shots = [record(i, "И {inputs}", f"ш{i}", "1") for i in range(2)]
    write(tmp_path, "lcs", test=[record(0, "{inputs}", "т")], train=shots)
    assert "И ш" in prompts("mera-v1/lcs", tmp_path)[0].preamble
    (tmp_path / "lcs" / "train.jsonl").unlink()
    with pytest.raises(InputError, match=r"lcs/public_test\.jsonl is missing, where its few-shot examples come from"):
        prompts("mera-v1/lcs", tmp_path)


def test_accepted_answers_ties_and_scored_spans(tmp_path: Path) -> None:
    fields = record(0, "{topic} {text}", outputs="раз;два")
    write(tmp_path, "chegeka", test=[fields], train=[fields] * 4)
    [question] = read_examples(task_of("mera-v1/chegeka"), tmp_path)
    assert isinstance(question, Question)
    assert question.accepted == ("раз", "два")
    assert worded([]) == ()
    ties = {dataset.name for dataset in data_sets("v1") if dataset.v1 and dataset.v1.tie is LAST}
    assert ties == {"ruEthics", "ruHHH", "ruHateSpeech"}  # "1" wins a tie in ruEthics, "2" in the others
    assert all(dataset.v12.tie is FIRST for dataset in data_sets("v1.2"))
    assert BY_NAME["ruEthics"].choices == ("0", "1")
    # Choices " 1" and " 2": where a tokenizer makes a token of the space, v1 leaves it out, as all choices begin so.
    for suite, expected in ((V1, "after_common_prefix"), (V12, "after_context")):
        assert {task.profile.span.name for task in suite.tasks if hasattr(task.profile, "span")} == {expected}


GOOD = {
    "parus": record(0, "{premise}", {"premise": "П", "choice1": "а", "choice2": "б"}, "1"),
    "ruethics": record(0, "{text}", outputs=dict.fromkeys(ETHICS, "1")),
    "use": record(0, "{task}", outputs="1"),
    "multiq": record(0, "{question}", outputs=[{"segment": "а"}]),
    "rummlu": record(0, "{text}", outputs="A"),
    "bps": record(0, "{inputs}", "( )", "1"),
    "ruhhh": record(0, "{query}", outputs="1"),
}


@pytest.mark.parametrize(
    ("config", "change", "says"),
    [
        ("parus", {"instruction": 3}, "field 'instruction' is 3, expected a text"),
        ("parus", {"inputs": None}, "field 'inputs' is None"),
        ("parus", {"meta": {"id": "7"}}, "no id that is a whole number"),
        ("parus", {"outputs": "7"}, "field 'outputs' is '7', expected one of 1, 2"),
        ("parus", {"instruction": "{premise} {choice3}"}, "expected fields among premise, choice1, choice2"),
        *(
            ("parus", {"instruction": text}, "cannot be filled in")
            for text in ("{premise:>700000000}", "{premise!r}", "{premise.__class__}", "{premise[0]}", "{}", "{premise")
        ),
        ("ruethics", {"outputs": {"virtue": "1"}}, "a label 0 or 1 for each of virtue"),
        ("ruethics", {"outputs": dict.fromkeys(ETHICS, 1)}, "a label 0 or 1 for each of virtue"),
        ("ruethics", {"meta": {"id": 1, "question": "fair"}}, "expected one of correct, good, ethical"),
        ("use", {"meta": {"id": 1, "type": "text"}}, "the id_task None, expected a text"),
        ("use", {"meta": {**META, "id": 1, "score": "1"}}, "the score '1', expected a whole number"),
        ("multiq", {"outputs": ["x"]}, "field 'outputs' is"),
        ("multiq", {"outputs": [{"offset": 3}]}, "field 'outputs' is"),
        ("rummlu", {"meta": {"id": 1, "domain": ["law"]}}, "the domain"),
        ("bps", {"inputs": {"text": "()"}}, "expected one text"),
        ("ruhhh", {"meta": {"id": 1}}, "its criteria is None, expected a text"),
        ("ruhhh", {}, "it has the id 0 of line 1"),
    ],
)
def test_a_bad_record_is_named(config: str, change: JsonObject, says: str, tmp_path: Path) -> None:
    write(tmp_path, config, test=[GOOD[config], {**GOOD[config], **change}])
    with pytest.raises(InputError, match=rf"test\.jsonl, line 2: .*{says}"):
        prompts(f"mera-v1/{config}", tmp_path)


def test_fetching_mera_needs_a_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a commit nothing is fetched; with one, offline, the error reports it and no folder remains."""
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path))
    monkeypatch.delenv("MIRON_JAX_MERA_REVISION", raising=False)
    with pytest.raises(InputError, match=r"set MIRON_JAX_MERA_REVISION\) for the commit of ai-forever/MERA"):
        V1.locate(None, True)
    monkeypatch.setenv("MIRON_JAX_MERA_REVISION", "0" * 40)
    with pytest.raises(InputError, match=r"neither in .*mera-v1 nor to be had from ai-forever/MERA"):
        V1.locate(None, True)
    assert not (tmp_path / "mera-v1").exists()
