"""eval-ua-tion-gen: templates and words of a user, and a made-up language from its folder to the groups of a run."""

import json
import re
from pathlib import Path

import pytest

from miron_jax.definitions.data_files import git_blob_sha1, read_examples
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.tasks.generators.eval_uation_gen.language import UKRAINIAN, Language
from miron_jax.tasks.generators.eval_uation_gen.language_sets import MADE
from miron_jax.tasks.generators.eval_uation_gen.table import GENERATED, jsonl
from miron_jax.tasks.generators.miron_gen.draft import package_folder
from miron_jax.tasks.own_tasks.yaml_task import read_suite
from miron_jax.tasks.registry import export
from tests.support.languages import (
    ALPHABET,
    LANGUAGE,
    NUMERALS,
    TEMPLATES,
    TITLES,
    categories,
    template,
    write_language,
)

META = "additionalMetadata_"


def rows_of(folder: Path, name: str, split: str = "train") -> list[JsonObject]:
    return [json.loads(line) for line in (folder / name / f"{split}.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    export(folder / "out", 1, templates=write_language(folder / "zena"))
    return folder / "out"


def test_the_package_s_files_make_the_package_s_rows() -> None:
    for generated in GENERATED:
        if generated.name in MADE:
            rows = MADE[generated.name].rows(Language(UKRAINIAN), "train", generated.num_rows)
            assert git_blob_sha1(jsonl(rows)) == generated.blob, generated.name


def test_every_answer_of_a_made_up_language(made: Path) -> None:
    places = {text: n for n, forms in enumerate(NUMERALS, 1) for text in forms} | {"lasta": -1}
    low = rows_of(made, "lmes_low")
    for row in low:
        [(numeral, word)] = re.findall(r'^(\w+) zo "(\w+)"\?$', row["question"]) or [
            each[::-1] for each in re.findall(r'^"(\w+)": zo (\w+)\?$', row["question"])
        ]
        n = places[numeral]
        assert word[n - 1 if n > 0 else -1] == row["correctAnswer"]
        assert row["options"] == list(dict.fromkeys(word))
    assert any("lasta zo" in row["question"] for row in low)
    assert not any("zo lasta" in row["question"] for row in low), "the second form has no word for the last place"
    for row in rows_of(made, "lmes_wis"):
        [(numeral, sentence)] = re.findall(r'^(\w+) ko "(.*)"\?$', row["question"])
        assert [token.strip(",.!") for token in sentence.split()][places[numeral] - 1] == row["correctAnswer"]
        assert row["answer"].casefold() == row["correctAnswer"].casefold()
        assert len({option.casefold() for option in row["options"]}) == len(row["options"])
    for row in rows_of(made, "lmes_wordalpha"):
        order = sorted(row["options"], key=lambda word: [ALPHABET.index(letter) for letter in word])
        assert row["answer"] == order[0 if row["question"].endswith("ona?") else 1]
    of = {word: name for name, words in categories().items() for word in words}
    for row in rows_of(made, "lmes_catsbin"):
        name = row[f"{META}cat_name_main"]
        is_whole = all(of[word] == name for word in row[f"{META}all_options"])
        assert row["answer"] == ("ta" if is_whole != row["question"].startswith("Ko na") else "ne"), row["question"]
    assert {row[f"{META}template_n"] for row in rows_of(made, "lmes_catsbin")} == {0, 1, 2}
    for row in rows_of(made, "lmes_catsmc"):
        assert of[row["answer"]] == row[f"{META}cat_name_other"] != row[f"{META}cat_name_main"]
    shots = {row[f"{META}word_raw"] for row in rows_of(made, "lmes_low", "fewshot")}
    assert shots.isdisjoint({row[f"{META}word_raw"] for row in low})


def test_the_tasks_of_a_made_up_language(made: Path) -> None:
    suite = read_suite([str(made)])
    assert sorted(task.name for task in suite.tasks) == sorted(f"own/zena/{name}" for name in MADE)
    for task in suite.tasks:
        examples = read_examples(task, made)
        assert all(len(set(example.continuations)) == len(example.continuations) for example in examples)
        assert task.profile.num_fewshot in (2, 3)
        prompt = examples[0].contexts[0]
        assert prompt.endswith("\nRe:")
        assert "Ki: " in prompt
    [titles] = [task for task in suite.tasks if task.name.endswith("up_masked")]
    [first] = [row for row in rows_of(made, "up_masked") if row["index"] == 0]
    listed = "".join(f"{i}) {title}\n" for i, title in enumerate(first["similar_titles"]))
    example = read_examples(titles, made)[0]
    assert example.contexts[0] == f"{first['masked_text']}\nKi: ki titu?\n{listed}Re:"
    assert example.gold == first["label"]


@pytest.mark.slow
def test_a_run_of_a_made_up_language_has_its_groups(made: Path, tmp_path: Path, miron) -> None:
    names = "own/zena/lmes_catsmc,own/zena/lmes_wordalpha"
    ran = miron("eval", f"--task_path={made}", f"--tasks={names}", "--limit=24", f"--output={tmp_path / 'run'}")
    assert ran.status == 0, ran.err
    tasks = json.loads((tmp_path / "run" / "results.json").read_text())["tasks"]
    listed = tasks["own/zena/lmes_catsmc"]
    assert listed["groups"].keys() == {"peto", "kami"}
    report = tasks["own/zena/lmes_wordalpha"]["robustness"]
    assert report["by"].keys() >= {"template_n", "kind", "stratum"}
    assert report["swapped"]["pairs"] == 12
    assert report["clusters"] == 12
    shown = miron("report", str(tmp_path / "run"), "--robustness")
    assert "between its best and its worst template" in shown.out


def test_words_alone_and_a_folder_of_one_file(tmp_path: Path) -> None:
    """Ukrainian templates ask of own words; a folder without language.yaml takes what it lacks from the package."""
    csv = tmp_path / "words.csv"
    csv.write_text("word\n" + "".join(f"{a}{b}\n" for a in ("ко", "ру", "ли") for b in ("са", "ка", "на", "ман")))
    export(tmp_path / "out", 1, words=csv)
    rows = rows_of(tmp_path / "out", "lmes_low")
    assert len({row[f"{META}word_raw"] for row in rows}) == 11
    assert {row[f"{META}pos"] for row in rows} == {None}
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "LOWTask.yaml").write_text('templates: [{template: "{WORD}, ПЕРШОЮ?"}]')
    export(tmp_path / "two", 1, templates=folder, words=csv)
    assert {row["question"].split(", ")[1] for row in rows_of(tmp_path / "two", "lmes_low")} >= {
        "першою?",
        "останньою?",
    }
    assert len(rows_of(tmp_path / "two", "lmes_catsmc")) > 1000


def test_number_words_of_a_language_are_masked(tmp_path: Path) -> None:
    articles = tmp_path / "news.jsonl"
    articles.write_text(
        "".join(json.dumps({"title": f"Ti {'z' * i}", "text": "Dua 7 zu.", "tags": []}) + "\n" for i in range(10))
    )
    export(tmp_path / "out", 1, articles, True, templates=write_language(tmp_path / "zena"))
    assert {row["masked_text"] for row in rows_of(tmp_path / "out", "up_masked")} == {"X X zu."}


def test_ends_and_purposes_of_articles_are_filled(tmp_path: Path) -> None:
    things = [{**thing, "purpose": {"a": "Ne {town}.", "b": "No {town}."}} for thing in TITLES["things"]]
    titles = {**TITLES, "end": ["{number} za {actor_low}."], "things": things}
    folder = write_language(tmp_path / "zena", UPTitles=json.dumps(titles), **dict.fromkeys(TEMPLATES))
    export(tmp_path / "out", 1, templates=folder)
    for row in rows_of(tmp_path / "out", "up_unmasked"):
        assert re.search(r" N[eo] (Toma|Peka)\. .* 1[56] za (zeno|mako)\.$", row["ukr_text"]), row["ukr_text"]


def test_a_second_export_reads_the_files_again(tmp_path: Path) -> None:
    of_wis = write_language(tmp_path / "zena", **dict.fromkeys([*TEMPLATES, "UPTitles"]))
    (of_wis / "WISTask.yaml").write_text(json.dumps({"templates": TEMPLATES["WISTask"]}))
    for sentences in ("Zena pita mako.\nMako pita zena.\n", "Toma peka zo.\nPeka toma zi.\n"):
        (of_wis / "sentences.txt").write_text(sentences)
        export(tmp_path / "out", 1, templates=of_wis)
        rows = rows_of(tmp_path / "out", "lmes_wis")
        assert {row["cluster"] for row in rows} <= {*sentences.splitlines()}
        assert all(row["cluster"] in row["question"] for row in rows)


def test_words_that_no_set_reads_are_refused(tmp_path: Path) -> None:
    titles = write_language(tmp_path / "zena", **dict.fromkeys(TEMPLATES))
    for folder in (titles, package_folder("en")):
        with pytest.raises(
            InputError, match=r"none of the sets of --templates=.* has words of a file: leave out --words"
        ):
            export(tmp_path / "out", 5, templates=folder, words=tmp_path / "none.csv")
    assert not (tmp_path / "out").exists()


def without(table: dict, *keys: str) -> dict:
    return {key: value for key, value in table.items() if key not in keys}


BAD = [
    ({"LOWTask": '{"templates": [{"template": "ONA {WRD}"}]}'}, "LOWTask.yaml: template 0 names the field {WRD}"),
    ({"LOWTask": '{"templates": [{"template": "ONA"}]}'}, "LOWTask.yaml: template 0 lacks the field {WORD}: add it"),
    ({"LOWTask": '{"templates": [{"template": "ona {WORD}"}]}'}, "has 0 numerals, expected one, in capitals, as numer"),
    ({"LOWTask": '{"templates": [{"template": "{WORD"}]}'}, "which cannot be filled"),
    ({"LOWTask": '{"templates": [{"template": "{WORD!r} ONA"}]}'}, "template 0 names the field {WORD}, expected"),
    ({"LOWTask": '{"templates": []}'}, "LOWTask.yaml: templates is [], expected a list of templates"),
    ({"LOWTask": "- a"}, "LOWTask.yaml: found ['a'], expected keys with values"),
    ({"LOWTask": "a: [}"}, "LOWTask.yaml: is no yaml"),
    (
        {"LOWTask": json.dumps({"templates": [template("ONA {WORD}", template_n=7)] * 2})},
        "LOWTask.yaml: template_n 7 comes 2 times",
    ),
    (
        {"WordsAlphabetOrder": '{"templates": [{"template": "{t1} {t2}"}]}'},
        "template 0: its kind is None, expected less or more",
    ),
    ({"numerals": "n,a,u\n1,ona,onu\n2,dua,\nlast,lasta,\n"}, "numerals.csv: line 3: 2 has no form 'u': add it to the line"),
    ({"numerals": "n,a,u\n1,ona,onu\nlast,lasta,\n"}, "numerals.csv: ends at 1, and a word or sentence has"),
    ({"numerals": "n,a,u\n1,ona,onu\n"}, "has no row 'last'"),
    ({"numerals": "n,a,u\n1,ona\n"}, "line 2 has not the 3 cells of the heading"),
    ({"words": "word,pos\nzan,noun\nząn,noun\n"}, "words.csv: line 3: the word is 'ząn', expected another one"),
    ({"words": "word\nzan\nzan\n"}, "line 3: the word is 'zan', expected another one than before"),
    ({"words": "text\nzan\n"}, "words.csv: has no column 'word'"),
    ({"words": "word,tokens\nzan,x\n"}, "line 2: tokens is 'x', expected a number"),
    ({"words": "word\nza\nte\nki\n", "UPTitles": None}, "WordLengthComparison.yaml: the words make no row"),
    ({"words": None}, "words.csv: cannot be read (No such file or directory): write it"),
    ({"word_classes": '{"a": ["b"]}'}, "word_classes.yaml: a is ['b'], expected a list of 14 words or more"),
    (
        {"word_classes": json.dumps({"a": categories()["peto"], "b": categories()["peto"]})},
        "'pena' stands in a and in b",
    ),
    ({"sentences": "Zena pita.\nZena\n"}, "sentences.txt: line 2 is 'Zena'"),
    ({"language": json.dumps(without(LANGUAGE, "yes"))}, "language.yaml: yes is None, expected a text"),
    ({"language": json.dumps({**LANGUAGE, "yess": "a"})}, "language.yaml: key 'yess' is not known"),
    (
        {"UPTitles": json.dumps({**TITLES, "doings": [{"did": {"a": "x"}, "did_else": "y", "tag": "z"}]})},
        "UPTitles.yaml: doings 0 is {'did': {'a': 'x'}, 'did_else': 'y', 'tag': 'z'}, without did for gender 'b': add it",
    ),
    ({"UPTitles": json.dumps({**TITLES, "titles": ["{actr}"]})}, "UPTitles.yaml: titles 0 names the field {actr}"),
    ({"UPTitles": json.dumps({**TITLES, "end": []})}, "UPTitles.yaml: end is [], expected a list of texts"),
    ({"UPTitles": json.dumps({**TITLES, "titels": []})}, "UPTitles.yaml: key 'titels' is not known"),
    ({"language": json.dumps({**LANGUAGE, "out_of_order": 3})}, "language.yaml: out_of_order is 3, expected a text"),
    ({"language": json.dumps(LANGUAGE)[:-1] + ", 1: a, foo: b}"}, "language.yaml: key 1 is not known, expected alphabet"),
    ({"language": json.dumps({**LANGUAGE, "no": "Ta"})}, "language.yaml: yes and no are both 'Ta': mend one"),
    ({"UPTitles": json.dumps(TITLES)[:-1] + ", 1: a, foo: b}"}, "UPTitles.yaml: key 1 is not known"),
    ({"word_classes": f"{{null: {json.dumps(categories()['peto'])}}}"}, "the category None is no text: put it in quotes"),
    ({"numerals": "n,a,u\nlast,lasta,\n"}, "numerals.csv: has no row '1', the word for the first place: add it"),
    ({"numerals": "n,a,u\nlast,lasta,\nlast,lasta,\n"}, "line 3 stands behind last, expected it at the end"),
    (
        {"UPTitles": json.dumps({**TITLES, "actors": [{"actor": " ", "gender": "a", "tag": "z"}]})},
        "actors 0 is {'actor': ' ', 'gender': 'a', 'tag': 'z'}, expected one text for actor: mend it",
    ),
    (
        {"UPTitles": json.dumps({**TITLES, "towns": [{"town": {"a": "x", "b": "y"}, "at": "en"}]})},
        "expected one text for town: mend it",
    ),
    (
        {"UPTitles": json.dumps({**TITLES, "things": [{"things": "z", "tag": "z", "purpose": {"a": "", "b": "{actr}"}}]})},
        "UPTitles.yaml: purpose of things 0 names the field {actr}",
    ),
    ({"words": "word\nzz\n"}, "words.csv: line 2: the word is 'zz', expected"),
    *(
        ({"sentences": f"Zena pita.\n{line}\n"}, f"sentences.txt: line 2 is {line!r}, expected two different words")
        for line in ("Zena  pita.", " Zena pita.", "Zena pita. ", "Zena ... pita.", "Zena\tpita mako.", "Zena, zena.")
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "words"), BAD)
def test_bad_files(tmp_path: Path, changed: dict[str, str | None], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        export(tmp_path / "out", 1, templates=write_language(tmp_path / "zena", **changed))
    assert not (tmp_path / "out").exists()


def test_bad_folders(tmp_path: Path, miron) -> None:
    (tmp_path / "empty").mkdir()
    misnamed = write_language(tmp_path / "misnamed")
    (misnamed / "LOWTask.yaml").rename(misnamed / "LOW.yml")
    for flags, words in (
        ((f"--templates={tmp_path / 'empty'}",), "has none of the files of a language, language.yaml, words.csv"),
        ((f"--templates={misnamed}",), "LOW.yml is none of the files of a language"),
        ((f"--templates={tmp_path / 'none'}",), "is no folder: name one"),
        (
            (f"--templates={write_language(tmp_path / 'bare', **dict.fromkeys([*TEMPLATES, 'UPTitles']))}",),
            "has no templ",
        ),
        ((f"--words={tmp_path / 'none.csv'}",), "none.csv: cannot be read"),
        ((f"--templates={tmp_path}", "--stories=a.jsonl"), "leave out --articles and --stories"),
    ):
        ran = miron("tasks", f"--export={tmp_path / 'out'}", *flags)
        assert (ran.status, ran.err.count("\n")) == (2, 1), ran.err
        assert words in ran.err
        assert not (tmp_path / "out").exists()
    assert "--words wants --export" in miron("tasks", "--words=a.csv").err
