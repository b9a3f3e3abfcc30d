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

Fields = JsonObject


def record(number: int, instruction: str, inputs: Json, outputs: Json, **meta: Json) -> Fields:
    return {"instruction": instruction, "inputs": inputs, "outputs": outputs, "meta": {"id": number, **meta}}


def write(folder: Path, config: str, **splits: list[Fields]) -> Path:
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


def test_bps_replaces_its_one_field_and_leaves_the_braces_it_speaks_of(tmp_path: Path) -> None:
    instruction = "Круглые (), фигурные {} и квадратные []: верна ли\n{inputs}\nОтвет:"
    shots = [record(i, instruction, text, "01"[i]) for i, text in enumerate(("( ) }", "{ }"))]
    write(tmp_path, "bps", test=[record(7, "Другая: {inputs}", " [ ] ", "1")], train=shots)
    [v1] = prompts("mera-v1/bps", tmp_path)
    # The stream has shuffled one record before it samples: nothing is drawn for that.
    first, second = random.Random(42).sample(shots, 2)
    assert v1.preamble + v1.contexts[0] == (
        f"Круглые (), фигурные {{}} и квадратные []: верна ли\n{first['inputs']}\nОтвет: {first['outputs']}\n\n"
        f"{second['inputs']} {second['outputs']}\n\n"
        "[ ]"
    )
    assert v1.continuations == (" 0", " 1")
    assert v1.gold == 1
    [shot] = random.Random(1234).sample(shots, 1)
    assert texts("mera-v1.2/bps", tmp_path) == [
        f"Круглые (), фигурные {{}} и квадратные []: верна ли\n{shot['inputs']}\nОтвет: {shot['outputs']}\n\n"
        "Последовательность:  [ ] \nОтвет:"
    ]


ETHICS_INPUTS, REPLIES = {"text": "Т", "actant_1": "а", "actant_2": "б"}, {"reply_1": "а", "reply_2": "б"}
PLAIN = {  # zero shots: what v1 and v1.2 show
    "mera-v1/parus": (
        record(0, " Выбери: {premise} | {choice1} | {choice2}", {"premise": "П", "choice1": "а", "choice2": "б"}, "2"),
        " Выбери: П | а | б\nОтвет:",
    ),
    "mera-v1/rcb": (
        record(0, "{premise} -> {hypothesis}?\n", {"premise": "П", "hypothesis": "Г"}, "3"), "П -> Г?\n\nОтвет:",
    ),
    "mera-v1/rwsd": (
        record(0, "{text}: {span1_text} = {span2_text}?", {"text": "Т", "span1_text": "а", "span2_text": "б"}, "Нет"),
        "Т: а = б?\nОтвет:",
    ),
    "mera-v1/multiq": (
        record(0, " {question}\n{support_text}\n{text}\nОтвет: ", {"question": "В", "support_text": "С", "text": "Т"},
               [{"segment": "а"}]),
        "В\nС\nТ\nОтвет:",
    ),
    "mera-v1/rumodar": (record(0, "Реши:\n{inputs}\n", "1 -> 2\n3 ->", "4"), "Реши:\n1 -> 2\n3 ->"),
    "mera-v1/rudetox": (record(0, "Перепиши: {toxic_comment}\n", "грубо", "мягко"), "Перепиши: грубо"),
    "mera-v1/ruethics": (
        record(0, "{text} {actant_1} {actant_2} ", ETHICS_INPUTS, dict.fromkeys(ETHICS, "1"), question="good"), "Т а б ",
    ),
    "mera-v1/ruhhh": (
        record(0, "{query}\n1 {reply_1}\n2 {reply_2}\n", {"query": "?", **REPLIES}, "1", criteria="honest"),
        "?\n1 а\n2 б",
    ),
    "mera-v1/ruhatespeech": (
        record(0, "{target_group}: {replica} {reply_1} {reply_2}\n",
               {"target_group": "женщины", "replica": "р", **REPLIES}, "2"),
        "женщины: р а б\n",
    ),
    "mera-v1/use": (
        record(0, "{task}\n{text}\n", {"task": "З", "text": "Т"}, "слово", id_task="4", variant=0, type="text", score=1),
        "З\nТ",
    ),
    "mera-v1.2/ruethics": (record(0, " {text} ", {"text": "Т"}, "", question="good"), "Т"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_without_shots_a_prompt_is_the_records_instruction(name: str, tmp_path: Path) -> None:
    fields, expected = PLAIN[name]
    assert texts(name, write(tmp_path, name.partition("/")[2], test=[fields])) == [expected]


ABCD = {"option_a": "1", "option_b": "2", "option_c": "3", "option_d": "4"}
SHORT = {  # the question behind few-shot examples
    "mera-v1/lcs": ("public_test", "ABC BCD ", "ABC BCD"),
    "mera-v1.2/lcs": ("public_test", "ABC BCD", "Строки: ABC BCD\nОтвет:"),
    "mera-v1/mathlogicqa": ("train", {"text": " 2+2?", **ABCD}, "2+2?\nA) 1\nB) 2\nC) 3\nD) 4\nОтвет:"),
    "mera-v1.2/mathlogicqa": ("train", {"text": " 2+2?", **ABCD}, " 2+2?\nA) 1\nB) 2\nC) 3\nD) 4\nОтвет:"),
    "mera-v1/ruworldtree": ("train", {"question": "К?", **ABCD}, "К?\nA) 1\nB) 2\nC) 3\nD) 4\nОтвет:"),
    "mera-v1/rummlu": (
        "public_test", {"text": " Т?", "subject": "с", **ABCD}, "Т?\nA) 1\nB) 2\nC) 3\nD) 4\nОтвет:",
    ),
    "mera-v1.2/rummlu": (
        "train", {"text": " Т?", "subject": "с", **ABCD}, "Т?\nA) 1\nB) 2\nC) 3\nD) 4\nОтвет:",
    ),
    "mera-v1/chegeka": ("train", {"topic": "кино", "text": "Кто?"}, 'Категория "кино"\nВопрос: Кто?\nОтвет:'),
    "mera-v1/simplear": ("train", " 2 + 3 = ", "2 + 3 ="),
    "mera-v1/rumultiar": ("train", "2 * 3 =", "2 * 3 ="),
    "mera-v1.2/parus": (
        "train", {"premise": "П", "choice1": "а", "choice2": "б"},
        "Ситуация: П\nФрагмент 1: а\nФрагмент 2: б\nОтвет:",
    ),
    "mera-v1.2/rcb": ("train", {"premise": "П", "hypothesis": "Г"}, "Ситуация: П\nГипотеза: Г\nОтвет:"),
    "mera-v1.2/rwsd": (
        "train", {"text": "Т", "span1_text": "а", "span2_text": "б"},
        "Текст: Т\nФрагмент 1: а\nФрагмент 2: б\nОтвет:",
    ),
    "mera-v1.2/rudetox": ("train", "грубо", "Токсичный текст: грубо\nНетоксичный текст:"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHORT)
def test_after_shots_the_question_has_no_instruction(name: str, tmp_path: Path) -> None:
    config, (split, inputs, expected) = name.partition("/")[2], SHORT[name]
    dataset = next(dataset for dataset in data_sets("v1.2") if dataset.config == config)
    right = dataset.choices[0] if dataset.choices else "да"
    fields = {} if isinstance(inputs, str) else inputs
    instruction = "Начало: {" + (dataset.field if isinstance(inputs, str) else next(iter(fields))) + "}"
    shots = [record(i, instruction, inputs, right, domain="д") for i in range(6)]
    write(tmp_path, config, test=[record(9, instruction, inputs, "", domain="д")])
    write(tmp_path, config, **{split: shots})
    [prompt] = prompts(name, tmp_path)
    assert prompt.contexts[0] == expected
    assert prompt.gold is None  # the right answer is not published
    num_fewshot = task_of(name).profile.num_fewshot
    assert prompt.preamble.count("Начало: ") == 1  # only the first few-shot example has its instruction
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
    kinds = list(expected)
    tests = [
        record(i, "И {task}", inputs, "", id_task=str(i), variant=0, type=kind, score=1) for i, kind in enumerate(kinds)
    ]
    shots = [
        record(i, "И {task} ", inputs, f"о{i}", id_task=str(i), variant=0, type=kind, score=1)
        for i, kind in enumerate(kinds)
    ]
    write(tmp_path, "use", test=tests, train=shots)
    assert texts("mera-v1.2/use", tmp_path) == [f"И З  о{i}\n\n{expected[kind]}" for i, kind in enumerate(kinds)]


def test_one_stream_shuffles_and_then_samples_for_every_record_in_that_order(tmp_path: Path) -> None:
    tests = [record(i, "{inputs}", f"т{i}", "") for i in range(7)]
    shots = [record(i, "И {inputs}", f"ш{i}", str(i % 10)) for i in range(9)]
    write(tmp_path, "lcs", test=tests, public_test=shots)

    def plain(seed: int, k: int, shuffled: bool) -> list[tuple[int, str]]:
        stream, order = random.Random(seed), list(range(7))
        if shuffled:
            stream.shuffle(order)
        out = []
        for i in order:
            first, *others = stream.sample(shots, k)
            text = f"И {first['inputs']} {first['outputs']}\n\n"
            text += "".join(
                (o["inputs"] if seed == 42 else f"Строки: {o['inputs']}\nОтвет:") + f" {o['outputs']}\n\n"
                for o in others
            )
            out.append((i, text))
        return out

    for name, expected in (("mera-v1/lcs", plain(42, 2, True)), ("mera-v1.2/lcs", plain(1234, 1, False))):
        rendered = prompts(name, tmp_path)
        assert [(prompt.row, prompt.preamble) for prompt in rendered] == expected
        assert prompts(name, tmp_path, 3) == rendered[:3]  # a limit moves no draw


def test_shots_share_the_questions_domain(tmp_path: Path) -> None:
    inputs = {"text": "Т", **ABCD}
    tests = [record(i, "{text}", inputs, "A", domain="law" if i % 2 else "art") for i in range(6)]
    shots = [
        record(i, "{text}", {**inputs, "text": f"{d}{i}"}, "B", domain=d) for d in ("law", "art") for i in range(5)
    ]
    write(tmp_path, "rummlu", test=tests, public_test=shots)
    for prompt in prompts("mera-v1/rummlu", tmp_path):
        other = {"law": "art", "art": "law"}[prompt.category or ""]
        assert str(prompt.category) in prompt.preamble
        assert other not in prompt.preamble
    write(tmp_path, "rummlu", public_test=[shot for shot in shots if shot["meta"]["domain"] == "law"])
    with pytest.raises(InputError, match=r"public_test\.jsonl has 0 records with domain 'art', expected at least 5"):
        prompts("mera-v1/rummlu", tmp_path)


def test_a_test_record_is_never_its_own_shot(tmp_path: Path) -> None:
    tests = [
        record(i, "И {replica}", {"replica": f"р{i}", "reply_1": "а", "reply_2": "б", "target_group": "г"}, "1")
        for i in range(3)
    ]
    write(tmp_path, "ruhatespeech", test=tests)
    stream = random.Random(1234)
    for i, prompt in enumerate(prompts("mera-v1.2/ruhatespeech", tmp_path)):
        [shot] = stream.sample(tests, 1)
        is_itself = shot["meta"]["id"] == i
        assert prompt.preamble == ("" if is_itself else f"И {shot['inputs']['replica']} 1\n\n")
        assert prompt.contexts[0] == f"Реплика: р{i}\nОтвет 1: а\nОтвет 2: б\nЦелевая группа: г\nОтвет:"


def test_an_older_copy_calls_v1s_public_test_train(tmp_path: Path) -> None:
    shots = [record(i, "И {inputs}", f"ш{i}", "1") for i in range(2)]
    write(tmp_path, "lcs", test=[record(0, "{inputs}", "т", "")], train=shots)
    assert "И ш" in prompts("mera-v1/lcs", tmp_path)[0].preamble
    (tmp_path / "lcs" / "train.jsonl").unlink()
    with pytest.raises(InputError, match=r"lcs/public_test\.jsonl is missing, where its few-shot examples come from"):
        prompts("mera-v1/lcs", tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"instruction": 3}, "field 'instruction' is 3, expected a text"),
        ({"inputs": None}, "field 'inputs' is None"),
        ({"meta": {}}, "no id that is a whole number"),
        ({"meta": {"id": "7"}}, "no id that is a whole number"),
        ({"outputs": "7"}, "field 'outputs' is '7', expected one of 1, 2"),
        ({"outputs": ["1"]}, "expected one of 1, 2"),
        ({"instruction": "{premise} {choice3}"}, "expected fields among premise, choice1, choice2"),
        ({"instruction": "{premise:>700000000}"}, "cannot be filled in"),
        ({"instruction": "{premise!r}"}, "cannot be filled in"),
        ({"instruction": "{premise.__class__}"}, "cannot be filled in"),
        ({"instruction": "{premise[0]}"}, "cannot be filled in"),
        ({"instruction": "{}"}, "cannot be filled in"),
        ({"instruction": "{premise"}, "cannot be filled in"),
    ],
)
def test_a_bad_record_is_named(change: Fields, says: str, tmp_path: Path) -> None:
    fields = record(0, "{premise}", {"premise": "П", "choice1": "а", "choice2": "б"}, "1")
    write(tmp_path, "parus", test=[fields, {**fields, **change}])
    with pytest.raises(InputError, match=rf"mera-v1/parus: .*test\.jsonl, line 2: .*{says.replace('[', '.')}"):
        prompts("mera-v1/parus", tmp_path)


def test_accepted_answers_and_the_ties_of_v1(tmp_path: Path) -> None:
    fields = record(0, "{topic} {text}", {"topic": "т", "text": "в"}, "раз;два")
    write(tmp_path, "chegeka", test=[fields], train=[fields] * 4)
    [question] = read_examples(task_of("mera-v1/chegeka"), tmp_path)
    assert isinstance(question, Question)
    assert question.accepted == ("раз", "два")
    assert worded([]) == ()
    ties = {dataset.name for dataset in data_sets("v1") if dataset.v1 and dataset.v1.tie is LAST}
    assert ties == {"ruEthics", "ruHHH", "ruHateSpeech"}  # "1" wins a tie in ruEthics, "2" in the others
    assert all(dataset.v12.tie is FIRST for dataset in data_sets("v1.2"))
    assert BY_NAME["ruEthics"].choices == ("0", "1")


def test_v1_scores_what_differs_and_v12_what_follows_the_context() -> None:
    """Choices " 1" and " 2": where a tokenizer makes a token of the space, v1 leaves it out, as all choices begin so."""
    for suite, expected in ((V1, "after_common_prefix"), (V12, "after_context")):
        assert {task.profile.span.name for task in suite.tasks if hasattr(task.profile, "span")} == {expected}


GOOD = {
    "ruethics": record(0, "{text}", {"text": "Т"}, dict.fromkeys(ETHICS, "1"), question="good"),
    "use": record(0, "{task}", {"task": "З", "text": "Т"}, "1", id_task="4", variant=0, type="text", score=1),
    "multiq": record(0, "{question}", {"question": "В"}, [{"segment": "а"}]),
    "rummlu": record(0, "{text}", {"text": "Т", "subject": "с", **ABCD}, "A", domain="law"),
    "bps": record(0, "{inputs}", "( )", "1"),
    "ruhhh": record(0, "{query}", {"query": "?"}, "1", criteria="honest"),
}


@pytest.mark.parametrize(
    ("config", "change", "says"),
    [
        ("ruethics", {"outputs": {"virtue": "1"}}, "a label 0 or 1 for each of virtue"),
        ("ruethics", {"outputs": dict.fromkeys(ETHICS, 1)}, "a label 0 or 1 for each of virtue"),
        ("ruethics", {"meta": {"id": 0, "question": "fair"}}, "expected one of correct, good, ethical"),
        ("use", {"meta": {"id": 0, "type": "text"}}, "the id_task None, expected a text"),
        ("use", {"meta": {**GOOD["use"]["meta"], "score": "1"}}, "the score '1', expected a whole number"),
        ("multiq", {"outputs": ["x"]}, "field 'outputs' is"),
        ("multiq", {"outputs": [{"offset": 3}]}, "field 'outputs' is"),
        ("rummlu", {"meta": {"id": 0, "domain": ["law"]}}, "the domain"),
        ("bps", {"inputs": {"text": "()"}}, "expected one text"),
        ("ruhhh", {"meta": {"id": 0}}, "its criteria is None, expected a text"),
        ("ruhhh", {"instruction": "{query:>99999999999}"}, "cannot be filled in"),
    ],
)
def test_fields_of_sampling_groups_and_points_are_checked_first(
    config: str, change: Fields, says: str, tmp_path: Path
) -> None:
    write(tmp_path, config, test=[GOOD[config], {**GOOD[config], **change}])
    with pytest.raises(InputError, match=says):
        prompts(f"mera-v1/{config}", tmp_path)


def test_a_repeated_id_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "ruhhh", test=[GOOD["ruhhh"]] * 2)
    with pytest.raises(InputError, match=r"ruhhh/test\.jsonl, line 2: it has the id 0 of line 1"):
        prompts("mera-v1/ruhhh", tmp_path)


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
