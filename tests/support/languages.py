"""A made-up language as the folder that `tasks --export --templates` reads."""

import csv
import json
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

ALPHABET = "zaeioutpkmn"  # z comes first
NUMERALS = [
    ("ona", "onu"),
    ("dua", "duu"),
    ("tria", "triu"),
    ("kata", "katu"),
    ("penta", "pentu"),
    ("heka", "heku"),
    ("sepa", "sepu"),
]
SENTENCES = ["Zena pita mako.", "Mako pita zena, Tumi pita.", "Kano zeta, pita.", "Tumi mako zena!"]


def template(text: str, **meta: Any) -> dict[str, Any]:
    return {"template": text, "additional-metadata": meta}


TEMPLATES = {
    "LOWTask": [template('ONA zo "{WORD}"?'), template('"{WORD}": zo ONU?', type="ordinal")],
    "WISTask": [template('ONU ko "{SENT}"?')],
    "WordsAlphabetOrder": [template("{t1} e {t2}: ona?", kind="less"), template("{t1} e {t2}: lasta?", kind="more")],
    "WordLengthComparison": [template("{t1} e {t2}: ma?", kind="more")],
    "WhichWordWrongCatTask": [template("Ko na: {words_list}?", kind="which_word_foreign")],
    # As in the authors' file, where "reversed" names the order of what it says: the answer is not reversed.
    "DoAllWordsBelongToCatTask": [
        template("{words_list} {cat_name}?", kind="direct"),
        template("{cat_name}: {words_list}?", kind="reversed"),
        {**template("Ko na {cat_name}: {words_list}?", template_n=2), "asks": "odd"},
    ],
}
LANGUAGE = {
    "alphabet": ALPHABET,
    "yes": "ta",
    "no": "ne",
    "question": "Ki:",
    "answer": "Re:",
    "which_title": "ki titu?",
}
TITLES = {
    "titles": ["{actor} {did} {things}", {"template": "{number} {things}: {actor_low} {at} {town}", "gender": "a"}],
    "openings": ["{month}: {actor_low} {did_else} {number} {things} {at} {town}."],
    "middle": ["{before} tu.", "{days} ze.", "{people} mo.", "{money} pe."],
    "end": ["Za."],
    "actors": [{"actor": "Zeno", "gender": "a", "tag": "zen"}, {"actor": "Mako", "gender": "b", "tag": "mak"}],
    "towns": [{"town": "Toma", "at": "en"}, {"town": "Peka", "at": {"a": "en", "b": "em"}}],
    "doings": [{"did": {"a": "paka", "b": "paku"}, "did_else": "toka", "tag": "pak"}],
    "things": [{"things": word, "tag": word, "purpose": "Ne."} for word in ("zetin", "komin", "manin", "pakin")],
    "months": [{"month": "uma", "month_of": "uman", "in_month": "en"}],
    "numbers": [15, 16],
}  # fmt: skip


def words() -> list[tuple[str, str]]:
    """45 words of two to six letters, with their parts of speech."""
    made = ["".join(pair) for pair in product(("za", "te", "ki", "po", "mu"), ("", "n", "to"))]
    made += ["".join(three) for three in product(("na", "ko", "zi"), ("mi", "ta"), ("n", "ke", "pu", "zon", ""))]
    return [(word, "noun" if i % 3 else "verb") for i, word in enumerate(made)]


def table(head: list[str], rows: Any) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def categories() -> dict[str, list[str]]:
    """Two categories of 14 words."""
    made = ["".join(pair) for pair in product(("pe", "to", "ka", "mi"), ("na", "ne", "no", "nu", "zi", "zu", "zo"))]
    return {"peto": made[:14], "kami": made[14:]}


def write_language(folder: Path, **changed: str | None) -> Path:
    """`changed`: name of a file without its ending -> its text; None: it is not there."""
    files = {f"{name}.yaml": json.dumps({"templates": of, "system_prompts": []}) for name, of in TEMPLATES.items()}
    ordinals = [(i, *forms) for i, forms in enumerate(NUMERALS, 1)]
    files |= {
        "language.yaml": json.dumps(LANGUAGE),
        "UPTitles.yaml": json.dumps(TITLES),
        "word_classes.yaml": json.dumps(categories()),
        "words.csv": table(["word", "pos", "freq"], [(*word, 1) for word in words()]),
        "numerals.csv": table(["n", "a", "u"], [*ordinals, ("last", "lasta", "")]),
        "sentences.txt": "\n".join(SENTENCES) + "\n",
    }
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        stem = name.partition(".")[0]
        if changed.get(stem, text) is not None:
            (folder / name).write_text(changed.get(stem) or text, encoding="utf-8")
    return folder
