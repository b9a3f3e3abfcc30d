"""Eval-UA-tion's loaders and prompts, on files of the published shape."""

import json
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import AnswerProfile
from miron_jax.errors import InputError
from miron_jax.metrics.answers import score_answer
from miron_jax.metrics.choices import CHAR
from miron_jax.prompting.prompts import Prompt, render
from miron_jax.tasks.eval_uation.suite import locate
from miron_jax.tasks.eval_uation.table import DATA_SETS
from miron_jax.tasks.registry import suites
from tests.support.uation_records import FILES, TASKS, Fields, cbt, title, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("uation"))


def prompts(name: str, folder: Path) -> list[Prompt]:
    task = TASKS[name]
    return render(task, read_examples(task, folder))


def rewritten(folder: Path, target: Path, file: str, change: Callable[[list[Fields]], list[Any]]) -> Path:
    """A copy of the data with the rows of one file changed."""
    shutil.copytree(folder, target)
    path = target / file
    text = path.read_text(encoding="utf-8")
    rows = json.loads(text) if file.endswith(".json") else [json.loads(line) for line in text.splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in change(rows)), encoding="utf-8")
    return target


def test_every_data_set_gives_prompts_with_its_number_of_shots(folder: Path) -> None:
    assert locate(folder) == folder
    for task in TASKS.values():
        rendered = prompts(task.name, folder)
        assert len(rendered) == 12, task.name
        cloze = task.name.endswith("_cloze")
        shots = 0 if cloze else 2 if task.name == "eval-ua-tion-text-refcompat/ua_cbt" else 3
        assert {prompt.num_shots for prompt in rendered} == {shots}, task.name
        assert task.profile.num_fewshot == shots


def test_chance_is_the_mean_over_rows_of_one_over_the_choices(folder: Path) -> None:
    """Words of 4, 4, 5 and 4 different letters: 0.2375, not 1 / 4.25."""
    task = TASKS["eval-ua-tion/lmes_low"]
    assert task.chance is not None
    assert task.chance(read_examples(task, folder))["random"] == pytest.approx((3 / 4 + 1 / 5) / 4)


FIRST = {  # what the first row asks, and what may be answered
    "lmes_low": ('Питання: Яка літера y слові "молоко" стоїть під номером 2?\nВідповідь:', (" м", " о", " л", " к"), 1),
    "lmes_wis": (
        'Питання: Котре слово в реченні "Сонце гріє мокру траву." має номер 1?\nВідповідь:',
        (" Сонце", " гріє", " мокру", " траву"),
        0,
    ),
    "lmes_catsmc": (
        "Питання: Яке слово зайве: дуб, клен, липа, береза, ложка?\nВідповідь:",
        (" дуб", " клен", " липа", " береза", " ложка"),
        4,
    ),
    "lmes_catsbin": (
        "Питання: Чи всі слова належать до категорії 'дерева': дуб, клен, липа, береза, ложка?\nВідповідь:",
        (" так", " ні"),
        1,
    ),
    "lmes_wordalpha": (
        'Питання: Яке слово далі від кінця абетки: "вода" чи "вітер"?\nВідповідь:',
        (" вода", " вітер"),
        1,
    ),
    "ua_cbt": (
        "Жили собі лисиця й сова. Лисиця знайшла кошик. Сова позичила свічку. Жаба загубила миску. Увечері всі раділи. "
        "Кошик знайшла ______ , а не хтось інший. Настала ніч 0.\n"
        "Питання: яким словом треба заповнити пропуск ______? "
        "A: лисиця; B: сова; C: жаба; D: миша; E: качка; F: коза\nВідповідь:",
        (" A", " B", " C", " D", " E", " F"),
        0,
    ),
    "up_masked": (
        "Місто купило XX автобусів. Це стаття 0.\nПитання: під яким із цих заголовків вийшла стаття?\n"
        + "\n".join(f"{k}) Заголовок {'X' * (k + 1)} про справу номер {k}" for k in range(10))
        + "\nВідповідь:",
        tuple(f" {k}" for k in range(10)),
        0,
    ),
}


@pytest.mark.parametrize("name", FIRST)
def test_prompts_by_hand(folder: Path, name: str) -> None:
    context, options, gold = FIRST[name]
    first = prompts(f"eval-ua-tion/{name}", folder)[0]
    num = len(options)
    assert first.contexts[:num] == (context,) * num
    assert (first.continuations[:num], first.gold) == (options, gold)
    # Beside them: the right one with a line break and with a blank line, then each behind a question without content.
    assert first.contexts[num:] == (context, context, *("Питання: ...\nВідповідь:",) * num)
    assert first.continuations[num:] == (options[gold] + "\n", options[gold] + "\n\n", *options)
    text = prompts(f"eval-ua-tion-text/{name}", folder)[0]
    assert (text.contexts, text.continuations) == ((context,), ("",))


def test_masked_bodies_or_not(folder: Path) -> None:
    def body(name: str) -> str:
        return prompts(name, folder)[0].contexts[0].split("\n")[0]

    assert body("eval-ua-tion/up_masked") == "Місто купило XX автобусів. Це стаття 0."
    for name in ("up_masked_refcompat", "up_unmasked"):
        assert body(f"eval-ua-tion/{name}") == "Місто купило 12 автобусів. Це стаття 0."


def test_rows_may_have_fewer_titles(folder: Path) -> None:
    rendered = prompts("eval-ua-tion/up_masked", folder)
    assert [len(prompt.contexts) - prompt.num_extra for prompt in rendered[:3]] == [10, 9, 10]
    examples = read_examples(TASKS["eval-ua-tion/up_masked"], folder)
    chance = TASKS["eval-ua-tion/up_masked"].chance
    assert chance is not None
    assert chance(examples) == pytest.approx({"random": (11 / 10 + 1 / 9) / 12, "random_published": 0.1})


def test_the_cloze_glues_punctuation_and_is_compared_by_the_character(folder: Path) -> None:
    first = prompts("eval-ua-tion/ua_cbt_cloze", folder)[0]
    assert first.preamble == ""
    assert first.contexts[0].endswith("Жаба загубила миску. Увечері всі раділи. Кошик знайшла")
    assert first.continuations[0] == " лисиця, а не хтось інший. Настала ніч 0."
    # Beside the six: the same six behind the question's own beginning, without the story.
    assert first.contexts[6:] == ("Увечері всі раділи. Кошик знайшла",) * 6
    assert TASKS["eval-ua-tion/ua_cbt_cloze"].profile.normalizer is CHAR  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("question", "context", "fill"),
    [
        ("Ось ______ і кінець.", "Ось", " x і кінець."),
        ("Ось ______ .", "Ось", " x."),
        ("Ось ______", "Ось", " x"),
        ("Ось « ______ » і кінець , отак.", "Ось «", "x» і кінець , отак."),
        ("______ прийшла.", "", " x прийшла."),
    ],
)
def test_gaps(folder: Path, tmp_path: Path, question: str, context: str, fill: str) -> None:
    def change(rows: list[Fields]) -> list[Fields]:
        return [{**rows[0], "question": question, "options": ["x", "y"], "answer": "x"}]

    data = rewritten(folder, tmp_path / "own", "ua_cbt/data/train/ua_cbt_v0.2-clean.json", change)
    [prompt] = prompts("eval-ua-tion/ua_cbt_cloze", data)
    assert prompt.contexts[0] == f"{cbt()['context']} {context}".rstrip()
    assert prompt.continuations[0] == fill
    assert prompt.num_extra == (
        2 if context else 0
    )  # nothing tells how probable an end is where nothing stands before it


@pytest.mark.parametrize("form", ["array", "lines", "columns"])
def test_json_files_may_have_any_form(folder: Path, tmp_path: Path, form: str) -> None:
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    path, rows = data / "up_titles_masked/up_titles_35000-5000-ukr.json", [title(i) for i in range(12)]
    text = {
        "array": json.dumps(rows),
        "lines": "\n".join(map(json.dumps, rows)),
        "columns": json.dumps({name: {str(i): row[name] for i, row in enumerate(rows)} for name in rows[0]}),
    }[form]
    path.write_text(text, encoding="utf-8")
    assert prompts("eval-ua-tion/up_masked", data) == prompts("eval-ua-tion/up_masked", folder)


def test_shots_are_sampled_as_in_lm_eval(folder: Path) -> None:
    rendered = prompts("eval-ua-tion/lmes_low", folder)
    rows = [json.loads(line) for line in (folder / "lmes_LOW/data/fewshot/LOWTask.jsonl").read_text().splitlines()]
    stream = random.Random(1234)
    for prompt in rendered:
        shots = stream.sample(rows, 3)
        assert prompt.preamble == "".join(
            f"Питання: {row['question']}\nВідповідь: {row['correctAnswer']}\n\n" for row in shots
        )
    # UP-Titles has no split for them: four of the test rows are drawn, and the row itself left out.
    stream, titles = random.Random(1234), [title(i) for i in range(12)]
    for prompt in prompts("eval-ua-tion/up_masked", folder):
        shots = [row for row in stream.sample(titles, 4) if row["index"] != prompt.row][:3]
        answers = [part.rsplit("Відповідь: ", 1)[1] for part in prompt.preamble.split("\n\n")[:-1]]
        assert answers == [str(int(row["label"])) for row in shots]
        assert f"Це стаття {prompt.row}." not in prompt.preamble


def test_a_file_at_another_published_path(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    (data / "lmes_catsbin/data").mkdir()
    for path in (data / "lmes_catsbin").glob("*.jsonl"):
        path.rename(path.parent / "data" / path.name.replace("-fewshot", "_fewshot"))
    assert prompts("eval-ua-tion/lmes_catsbin", data) == prompts("eval-ua-tion/lmes_catsbin", folder)


LOW, CBT = "lmes_LOW/data/train/LOWTask.jsonl", "ua_cbt/data/train/ua_cbt_v0.2-clean.json"
ALPHA, MC = "lmes_wordalpha/WordsAlphabetOrder.jsonl", "lmes_catsmc/WhichWordWrongCatTask.jsonl"
TITLES = "up_titles_masked/up_titles_35000-5000-ukr.json"
BAD = [  # file, changed fields, message
    (LOW, {"question": "Яка літера?"}, "line 1: field 'question'.*quotation marks"),
    (LOW, {"correctAnswer": None}, "line 1: field 'correctAnswer' is None"),
    (LOW, {"correctAnswer": "щ"}, "expected a letter of 'молоко'"),
    (LOW, {"correctAnswer": "молоко"}, "expected a letter of 'молоко'"),
    ("lmes_WIS/data/WISTask.jsonl", {"correctAnswer": "слон"}, "expected a word of 'Сонце гріє мокру траву.'"),
    ("lmes_catsbin/DoAllWordsBelongToCatTask.jsonl", {"correctAnswer": 1.5}, "expected true or false"),
    (MC, {"correctAnswer": "кіт"}, "expected one of дуб, клен"),
    (MC, {"additionalMetadata_main_cat_words": 5}, "main_cat_words' is 5, expected a list"),
    (ALPHA, {"correctAnswer": "вікно"}, "expected one of вода and вітер"),
    (ALPHA, {"additionalMetadata_option_1": "Вода"}, "are both 'вода'"),
    (ALPHA, {"question": "\ud83d"}, "half a surrogate pair"),
    (CBT, {"answer": "кит"}, "expected one of its options"),
    (CBT, {"question": "Без пропуску."}, r"the gaps \(none\), expected one, ______"),
    (CBT, {"options": ["один"]}, "expected a list of 2 to 10 texts"),
    (CBT, {"question": "Це _______ ."}, "expected one, ______"),
    (CBT, {"context": "Це ______ ."}, "expected it in the question alone"),
    (CBT, {"options": ["лисиця", "сова", "сова"], "answer": "сова"}, "expected the answer 'сова' among them once"),
    (TITLES, {"label": math.inf}, "field 'label' is inf"),
    (TITLES, {"label": math.nan}, "field 'label' is nan"),
    (TITLES, {"label": 10.0}, "a place among its 10 titles"),
    (TITLES, {"label": "0"}, "field 'label' is '0'"),
    (TITLES, {"masked_text": " "}, "field 'masked_text'"),
]


@pytest.mark.parametrize(("file", "change", "message"), BAD)
def test_a_bad_row_is_named(folder: Path, tmp_path: Path, file: str, change: Fields, message: str) -> None:
    data = rewritten(folder, tmp_path / "own", file, lambda rows: [{**rows[0], **change}, *rows[1:]])
    dataset = next(dataset for dataset in DATA_SETS if file.startswith(dataset.folder))
    with pytest.raises(InputError, match=message):
        read_examples(TASKS[f"eval-ua-tion/{dataset.name}"], data)


def test_what_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    (data / "lmes_LOW/data/fewshot/LOWTask.jsonl").unlink()
    with pytest.raises(InputError, match=r"LOWTask\.jsonl is missing, where its few-shot examples come from"):
        prompts("eval-ua-tion/lmes_low", data)
    (data / "lmes_LOW/data/fewshot/LOWTask.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="line 1: field 'question'"):
        prompts("eval-ua-tion/lmes_low", data)
    with pytest.raises(InputError, match="no eval-ua-tion data there, expected folders ua_cbt, lmes_LOW"):
        locate(tmp_path / "nothing")
    few = rewritten(folder, tmp_path / "few", "lmes_WIS/data/WISTask_fewshot.jsonl", lambda rows: rows[:2])
    with pytest.raises(InputError, match="2 rows to sample few-shot examples from, expected at least 3"):
        prompts("eval-ua-tion/lmes_wis", few)


def test_scored_rows_are_never_the_pool_of_shots(folder: Path, tmp_path: Path) -> None:
    """Both splits of LOW are called LOWTask.jsonl: what lies at the top is the one that is scored."""
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    shutil.rmtree(data / "lmes_LOW/data/fewshot")
    (data / "lmes_LOW/data/train/LOWTask.jsonl").rename(data / "lmes_LOW/LOWTask.jsonl")
    with pytest.raises(InputError, match=r"LOWTask\.jsonl is missing, where its few-shot examples come from"):
        prompts("eval-ua-tion/lmes_low", data)


def test_an_apostrophe_is_a_letter_of_its_word(folder: Path, tmp_path: Path) -> None:
    change = {"question": 'Яка літера y слові "п’ять-так" стоїть під номером 2?', "correctAnswer": "’"}
    data = rewritten(folder, tmp_path / "own", LOW, lambda rows: [{**rows[0], **change}, *rows[1:]])
    first = prompts("eval-ua-tion/lmes_low", data)[0]
    assert first.continuations[: len(first.contexts) - first.num_extra] == (
        " п", " ’", " я", " т", " ь", " -", " а", " к",
    )  # fmt: skip
    assert first.gold == 1
    profile = TASKS["eval-ua-tion-text/lmes_low"].profile
    assert isinstance(profile, AnswerProfile)
    answered = {text: score_answer(text, ["’"], profile).correct for text in ("", " ", " '", " -", " ’\n")}
    assert answered == {"": False, " ": False, " '": True, " -": False, " ’\n": True}


def test_one_folder_for_the_three_suites(folder: Path) -> None:
    suites_by_name = suites()
    folders = (("eval-ua-tion", str(folder)), ("", "elsewhere"))
    for name in ("eval-ua-tion", "eval-ua-tion-text", "eval-ua-tion-text-refcompat"):
        assert suites_by_name[name].named_folder(folders) == folder
    assert suites_by_name["eval-ua-tion-gen"].named_folder(folders) == Path("elsewhere")
    assert suites_by_name["eval-ua-tion-text"].named_folder((("eval-ua-tion-text", "own"), *folders)) == Path("own")
    with pytest.raises(InputError, match="no folder: name one, or leave it out"):
        suites_by_name["eval-ua-tion-gen"].locate(Path("/nonexistent"), True)


def test_published_paths_are_those_of_the_test_files() -> None:
    named = {f"{dataset.folder}/{dataset.file}" for dataset in DATA_SETS}
    named |= {f"{dataset.folder}/{dataset.shots_file}" for dataset in DATA_SETS if dataset.shots_file}
    assert named == FILES.keys()
