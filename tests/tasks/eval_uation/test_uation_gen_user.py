"""eval-ua-tion-gen: rows of articles and stories of a user, and every bad input."""

import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject
from miron_jax.tasks.eval_uation.records import reader
from miron_jax.tasks.generators.eval_uation_gen import gaps
from miron_jax.tasks.generators.eval_uation_gen.gaps import gap_rows, read_stories
from miron_jax.tasks.generators.eval_uation_gen.titles import read_articles
from miron_jax.tasks.registry import export
from tests.support.uation_gen_rows import BY_NAME

# --------------------------------------------------------------------------------------------------- articles of a user


def test_articles_of_a_user(tmp_path: Path) -> None:
    path = tmp_path / "news.jsonl"
    rows = [
        {"title": f"Подія {'я' * i}", "text": f"Двадцять {i}.", "tags": "місто, вода" if i % 2 else ["село"]}
        for i in range(12)
    ]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    paths = export(tmp_path / "out", 1, path)
    assert [str(out.relative_to(tmp_path / "out")) for out in paths] == [
        "up_masked/train.jsonl", "up_masked/train.parquet", "up_unmasked/train.jsonl", "up_unmasked/train.parquet",
    ]  # fmt: skip
    masked = parquet.read_table(paths[1]).to_pylist()
    assert [row["masked_text"] for row in masked] == [f"Двадцять {'X' * len(str(i))}." for i in range(12)]
    spelled = parquet.read_table(export(tmp_path / "words", 1, path, spelled=True)[1]).to_pylist()
    assert [row["masked_text"] for row in spelled] == [f"X {'X' * len(str(i))}." for i in range(12)]
    assert read_articles(path)[1].tags == ("місто", " вода")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"title": "а", "text": "б"}', "line 1: tags is None"),
        ('{"title": "а", "tags": []}', "line 1: expected the texts title and text"),
        ('{"title": "а", "text": "б", "tags": [1]}', r"line 1: tags is \[1\]"),
        ('{"title": "а", "text": "б", "tags": []}', "1 titles differ.*expected at least 10"),
        ("nonsense", "line 1: found no valid JSON"),
        ("", "is empty"),
    ],
)
def test_bad_articles(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "news.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        export(tmp_path / "out", 1, path)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="cannot be read"):
        read_articles(tmp_path / "none")


# --------------------------------------------------------------------------------------------------------- stories of a user


def of_animal(stem: str, **changed: Json) -> JsonObject:
    """Declined like слон."""
    endings = {"nom": "", "gen": "а", "dat": "у", "acc": "а", "ins": "ом", "loc": "ові"}
    forms = {case: stem + ending for case, ending in endings.items()}
    return {"lemma": stem, "type": "NAMED_ENTITY", "gender": "m", "forms": forms, **changed}


def of_doing(stem: str) -> JsonObject:
    return {"lemma": f"{stem}ти", "type": "VERB", "forms": {"m": f"{stem}в", "f": f"{stem}ла", "n": f"{stem}ло"}}


ANIMALS = ("слон", "кит", "тигр", "крокодил", "бегемот")
TALE = (
    "Жили собі слон, кит, тигр, крокодил та бегемот. Слон співав. Кит читав. Тигр малював. Крокодил співала казку. "
    "Слон знайшов мед. Кит покликав слона. Тигр пішов до кита. Крокодил засміявся! Бегемот покликав тигра. "
    "Усі дивились на слона. Потім слон віддав мед. Слона похвалили. Кит задрімав."
)


def story_file(folder: Path, *records: Json) -> Path:
    path = folder / "stories.jsonl"
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def test_gaps_in_stories_of_a_user(tmp_path: Path) -> None:
    doings = [of_doing(stem) for stem in ("співа", "чита", "малюва")]
    path = story_file(tmp_path, {"id": "звірі", "text": TALE, "words": [*map(of_animal, ANIMALS), *doings]})
    paths = export(tmp_path / "out", 1, stories=path)
    assert [str(out.relative_to(tmp_path / "out")) for out in paths] == ["ua_cbt/train.jsonl", "ua_cbt/train.parquet"]
    rows = parquet.read_table(paths[1]).to_pylist()
    # слона may be a genitive or an accusative: all five animals have one form for both. No doing is in the last third.
    assert [(row["answer"], row["md_form"]) for row in rows] == [
        ("тигра", "gen/acc"), ("слона", "gen/acc"), ("слон", "nom"), ("Слона", "gen/acc"), ("Кит", "nom"),
    ]  # fmt: skip
    assert [row["md_gap_sentence"] for row in rows] == [
        "Бегемот покликав ______ .", "Усі дивились на ______ .",
        "Потім ______ віддав мед.", "______ похвалили.", "______ задрімав.",
    ]  # fmt: skip
    assert sorted(rows[1]["options"]) == ["бегемота", "кита", "крокодила", "слона", "тигра"]
    assert sorted(rows[3]["options"]) == ["Бегемота", "Кита", "Крокодила", "Слона", "Тигра"]
    assert {row["md_num_question_sents"] for row in rows} == {5}
    before = "Бегемот покликав тигра. Усі дивились на ______ . Потім слон віддав мед. Слона похвалили. Кит задрімав."
    assert rows[1]["question"] == before
    named = dict(zip(rows[1]["options"], rows[1]["md_mentions"], strict=True))
    assert named == {"слона": 7, "кита": 5, "тигра": 4, "крокодила": 3, "бегемота": 2}
    assert rows[1]["md_opts_baseline_most_frequent"] == ["слона"]
    assert [row["md_global_number"] for row in rows] == [0, 1, 2, 3, 4]
    read = [reader(BY_NAME["ua_cbt"].data_set)(row, i) for i, row in enumerate(rows)]
    assert {item.cluster for item in read} == {"звірі"}
    assert read[2].fills[rows[2]["options"].index("тигр")].startswith(" тигр віддав мед.")


def test_stories_without_a_gap_are_named(tmp_path: Path) -> None:
    words = [*map(of_animal, ANIMALS)]
    bare = {"text": "Жив собі слон. Усі спали. Усе.", "words": words}
    path = story_file(tmp_path, {"text": TALE, "words": words}, {"id": "нудна", **bare}, bare)
    said: list[str] = []
    [_, table] = export(tmp_path / "out", 1, stories=path, say=said.append)
    assert said == [f"--stories={path}: 2 of 3 stories allow no gap and are left out: нудна, 3"]
    rows = parquet.read_table(table).to_pylist()
    assert {row["storyId"] for row in rows} == {"1"}
    assert [row["md_global_number"] for row in rows] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("read", [read_articles, read_stories])
def test_a_torn_line_of_a_users_file_is_not_to_be_fetched(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"title": "а"\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"line 1: found no valid JSON.*; mend the line or name another file$"):
        read(path)
    path.write_text("", encoding="utf-8")
    with pytest.raises(InputError, match=r"is empty, expected at least 1 lines: name another file$"):
        read(path)


def test_what_makes_no_gap(tmp_path: Path) -> None:
    """A form of two words, options with two forms for an ambiguous gap, a noun with too few mentions, too few options."""

    def answers(*words: Json) -> list[str]:
        path = story_file(tmp_path, {"text": TALE, "words": words})
        return [row["answer"] for story in read_stories(path) for row in gap_rows(story)]

    animals = [of_animal(stem) for stem in ANIMALS]
    assert answers(*animals) == ["тигра", "слона", "слон", "Слона", "Кит"]
    assert answers(*animals, of_animal("слонище", forms={"nom": "слон"})) == ["тигра", "Кит"]  # "слон" is nobody's
    inanimate = [of_animal(s, forms={**of_animal(s)["forms"], "acc": s}) for s in ("тигр", "крокодил", "бегемот")]
    assert answers(*animals[:2], *inanimate) == ["тигра", "слон", "Кит"]
    assert answers(*animals[:4]) == ["тигра", "слона", "слон", "Слона", "Кит"]
    assert answers(*animals[:3]) == []
    things = [of_animal(stem, type="COMMON_NOUN") for stem in ANIMALS]
    assert answers(*things) == ["слона", "слон", "Слона", "Кит"]  # the tiger is named three times before
    assert answers(*(of_animal(stem, gender="n" if stem == "тигр" else "m") for stem in ANIMALS[:4])) == []


def gaps_behind(sentence: str, *more: Json, words: Json = None) -> list[JsonObject]:
    """Rows of a story whose question is `sentence` and a sentence that allows no gap."""
    words = words or [of_animal(stem) for stem in ANIMALS]
    context = "Слон, кит, тигр, крокодил та бегемот співали. " * 4
    fields = {"text": f"{context}{sentence} Усе.", "words": [*words, *more]}
    return list(gap_rows(gaps._story(fields, 0)))


def test_no_capital_and_no_preposition_reveals_the_answer() -> None:
    name = of_animal("Іван")
    assert gaps_behind("Тоді СЛОН закричав.") == []
    assert gaps_behind("Потім Іван заплакав. Іван. Іван.", name) == []  # named too rarely before
    named = [*map(of_animal, ANIMALS), name]
    [row] = gaps_behind("Потім слон заплакав.", name)
    assert {option[0].isupper() for option in row["options"]} == {False}
    assert gaps_behind("Потім слон заплакав.", words=[of_animal(stem.capitalize()) for stem in ANIMALS]) == []
    assert len(named) == 6
    [row] = gaps_behind("«Слон!» — гукнули всі.")
    assert {option[0].isupper() for option in row["options"]} == {True}
    assert gaps_behind("Усі гралися зі слоном.") == []
    assert len(gaps_behind("Усі гралися з китом.")) == 1


def test_words_are_whole_and_plain() -> None:
    assert gaps_behind("Потім слон-велетень утік.") == []
    assert gaps_behind("Потім с`слон утік.") == []
    [row] = gaps_behind("Потім слона\u0301 прогнали.")
    assert row["md_gap_sentence"] == "Потім ______ прогнали."
    assert gaps_behind("Потім кит\u0301ом гралися.")[0]["md_form"] == "ins"
    assert gaps_behind("Потім сл\u00adон утік.")[0]["answer"] == "слон"
    kite = {"lemma": "змій", "type": "NAMED_ENTITY", "gender": "m", "forms": {"nom": "змій"}}
    decomposed = unicodedata.normalize("NFD", "Змій, змій. Потім змій утік.")
    assert gaps_behind(decomposed, kite)[0]["md_mentions"]
    padded = [of_animal(stem, forms={n: f" {f} " for n, f in of_animal(stem)["forms"].items()}) for stem in ANIMALS]
    [row] = gaps_behind("Потім слон утік.", words=padded)
    assert all(option == option.strip() for option in row["options"])


def test_sentences_end_where_a_reader_ends_them() -> None:
    ended = gaps._SENTENCE_END.split(
        "Він народився 1990 р. Слон мав ім. Шевченка. «Хто там?» — спитав кит. «Я!» Тигр утік… Усе"
    )
    assert ended == [
        "Він народився 1990 р. Слон мав ім. Шевченка.",
        "«Хто там?» — спитав кит.",
        "«Я!»",
        "Тигр утік…",
        "Усе",
    ]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"words": [of_animal("слон")]}, "line 1: text is no text; expected text, and words"),
        ({"text": "Слон а_б. Кит."}, "text has a low line _, which rows keep for the gap"),
        ({"text": "Одне речення."}, "text has one sentence"),
        ({"text": TALE}, "words is no list of words"),
        ({"text": TALE, "words": [of_animal("слон"), of_animal("слон")]}, "words has the lemma 'слон' twice"),
        ({"text": TALE, "words": ["слон"]}, "the word 'слон' has no lemma"),
        (
            {"text": TALE, "words": [of_animal("слон", type="ANIMAL")]},
            "the type of 'слон' is 'ANIMAL', not one of NAMED",
        ),
        ({"text": TALE, "words": [of_animal("слон", gender="х")]}, "the gender of 'слон' is 'х', not m, f or n"),
        ({"text": TALE, "words": [of_animal("слон", forms=["слон"])]}, "the forms of 'слон' are"),
        (
            {"text": TALE, "words": [of_animal("слон", forms={"nom": "слон сірий"})]},
            "the form 'слон сірий' of 'слон' is no",
        ),
        (
            {"text": TALE, "words": [of_animal("слон", forms={"nom": "---"})]},
            "the form '---' of 'слон' is no single word",
        ),
        (
            {"text": TALE, "words": [of_animal("слон"), of_animal("слон", lemma="слон ")]},
            "words has the lemma 'слон' twice",
        ),
        ({"text": TALE, "words": [of_animal("слон")]}, "none of 1 stories allows a gap"),
    ],
)
def test_bad_stories(tmp_path: Path, record: JsonObject, message: str) -> None:
    path = story_file(tmp_path, record)
    with pytest.raises(InputError, match=re.escape(message)):
        export(tmp_path / "out", 1, stories=path)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="two records have one id"):
        read_stories(story_file(tmp_path, *({"id": 1, "text": TALE, "words": [of_animal("слон")]} for _ in "ab")))
    with pytest.raises(InputError, match="cannot be read"):
        read_stories(tmp_path / "none")
