"""Rows in the published shape of Eval-UA-tion's nine data sets, in words of this project's own, and files of them."""

import json
from pathlib import Path
from typing import Any

from miron_jax.definitions.records import Task
from miron_jax.files.readers import Json, JsonObject
from miron_jax.tasks.eval_uation.suite import SUITE, TEXT, TEXT_REFCOMPAT
from tests.support.tiny_model import make_model, make_tokenizer

Fields = JsonObject
TASKS: dict[str, Task[Any]] = {task.name: task for suite in (SUITE, TEXT, TEXT_REFCOMPAT) for task in suite.tasks}
META = "additionalMetadata_"
STORY = "Жили собі лисиця й сова. Лисиця знайшла кошик. Сова позичила свічку. Жаба загубила миску."


def lmes(question: str, answer: Json, **metadata: Json) -> Fields:
    return {
        "question": question,
        "correctAnswer": answer,
        "templateUuid": "t",
        "taskInstanceUuid": "i",
        "system_prompts": ["never used"],
        **{f"{META}{name}": value for name, value in metadata.items()},
    }


def low(i: int = 0, **metadata: Json) -> Fields:
    word, needle = [("молоко", 2), ("їжак", 1), ("ґанок", 5), ("слово", 3)][i % 4]
    question = f'Яка літера y слові "{word}" стоїть під номером {needle}?'
    return lmes(question, word[needle - 1], **{"template_n": i % 2, "needle": needle, "word_length": "mid", **metadata})


def wis(i: int = 0) -> Fields:
    words = [["Сонце", "гріє", "мокру", "траву"], ["Діти", "п'ють", "теплий", "чай", "зранку"]][i % 2]
    sentence = " ".join(words) + "."
    needle = 1 + i % len(words)
    question = f'Котре слово в реченні "{sentence}" має номер {needle}?'
    return lmes(question, words[needle - 1], template_n=i % 2, type="numeral", needle=needle, len_haystack=len(words))


def catsmc(i: int = 0) -> Fields:
    options = ["дуб", "клен", "липа", "береза", "ложка"]
    shown = options[i % 5 :] + options[: i % 5]
    names = {"cat_name_main": "дерева", "cat_name_other": "посуд", "main_cat_words": options[:4], "other_word": "ложка"}
    return lmes(f"Яке слово зайве: {', '.join(shown)}?", "ложка", template_n=i % 2, all_options=shown, label=4, **names)


def catsbin(i: int = 0) -> Fields:
    words = ["дуб", "клен", "липа", "береза", "ясен" if i % 2 else "ложка"]
    question = f"Чи всі слова належать до категорії 'дерева': {', '.join(words)}?"
    return lmes(
        question,
        bool(i % 2),
        template_n=i % 2,
        kind="direct",
        all_options=words,
        main_cat_words=words,
        cat_name_main="дерева",
    )


def compared(i: int = 0) -> Fields:
    pair = ("вітер", "вода") if i % 2 else ("вода", "вітер")
    meta = {"option_0": pair[0], "option_1": pair[1], "label": pair.index("вітер"), "reversed": bool(i % 2)}
    question = f'Яке слово далі від кінця абетки: "{pair[0]}" чи "{pair[1]}"?'
    return lmes(question, "вітер", template_n=0, kind="less", type="further", num_shared_characters=1, **meta)


def cbt(i: int = 0) -> Fields:
    options = ["лисиця", "сова", "жаба", "миша", "качка", "коза"]
    return {
        "context": STORY,
        "question": f"Увечері всі\nраділи. Кошик знайшла ______ , а не хтось інший.\nНастала ніч {i}.",
        "options": options[i % 6 :] + options[: i % 6],
        "answer": "лисиця",
        "storyId": i // 2,
        "taskType": ("NAMED_ENTITY", "COMMON_NOUN", "VERB")[i % 3],
        "md_opts_baseline_most_frequent": ["лисиця" if i % 2 else "сова"],
    }


def title(i: int = 0) -> Fields:
    titles = [f"Заголовок {'X' * (k + 1)} про справу номер {k}" for k in range(9 if i == 1 else 10)]
    return {
        "index": i,
        "tags": "місто,транспорт",
        "ukr_title": titles[i % 9],
        "ukr_text": f"Місто купило 12 автобусів.\nЦе стаття {i}.",
        "similar_titles": titles,
        "similar_idx": list(range(len(titles))),
        "masked_text": f"Місто купило XX автобусів.\nЦе стаття {i}.",
        "masked_title": titles[i % 9],
        "label": float(i % 9),
    }


FILES = {
    "lmes_LOW/data/train/LOWTask.jsonl": low,
    "lmes_LOW/data/fewshot/LOWTask.jsonl": low,
    "lmes_WIS/data/WISTask.jsonl": wis,
    "lmes_WIS/data/WISTask_fewshot.jsonl": wis,
    "lmes_catsbin/DoAllWordsBelongToCatTask.jsonl": catsbin,
    "lmes_catsbin/DoAllWordsBelongToCatTask-fewshot.jsonl": catsbin,
    "lmes_catsmc/WhichWordWrongCatTask.jsonl": catsmc,
    "lmes_catsmc/WhichWordWrongCatTask-fewshot.jsonl": catsmc,
    "lmes_wordalpha/WordsAlphabetOrder.jsonl": compared,
    "lmes_wordalpha/WordsAlphabetOrder_fewshot.jsonl": compared,
    "lmes_wordlength/WordLengthComparison.jsonl": compared,
    "lmes_wordlength/WordLengthComparison_fewshot.jsonl": compared,
    "ua_cbt/data/train/ua_cbt_v0.2-clean.json": cbt,
    "ua_cbt/data/fewshot_clean_v0.2.json": cbt,
    "up_titles_masked/up_titles_35000-5000-ukr.json": title,
    "up_titles_unmasked/5000_ukr_pravda.json": title,
}


def write(folder: Path, rows: int = 12) -> Path:
    """All files of the published layout; .json files as one array, as the hub has them."""
    for path, row in FILES.items():
        records = [row(i) for i in range(rows)]
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(record, ensure_ascii=False) for record in records]
        text = f"[{', '.join(lines)}]" if path.endswith(".json") else "".join(f"{line}\n" for line in lines)
        target.write_text(text, encoding="utf-8")
    return folder


def make_uation_model(folder: Path, data: Path) -> Path:
    """A tiny model whose tokenizer knows the words of these files: prompts of some hundred tokens, not of thousands."""
    make_model(folder, vocabulary=1009)
    make_tokenizer(folder, 1000, [path.read_text(encoding="utf-8") for path in sorted(data.rglob("*.json*"))])
    return folder
