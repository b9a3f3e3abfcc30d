"""miron-gen from a user's folder: the package's files, edited ones, and a made-up language to the groups of a run."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from miron_jax.errors import InputError
from miron_jax.tasks.generators.miron_gen.draft import package_folder
from miron_jax.tasks.generators.miron_gen.english_morphology import read_material
from miron_jax.tasks.generators.miron_gen.items import items_of, make_items, read_generators
from miron_jax.tasks.miron import read_parquet
from miron_jax.tasks.own_tasks.yaml_task import read_suite
from miron_jax.tasks.registry import export

NAMES = ["zeno", "mako", "tumi", "pako", "kizu", "neto", "pomi", "zatu", "kino", "muzo"]
FRAMES = {
    "plural": ["Ona {word}, dua", "{who} na ona {word}. Zi na {count}"],
    "past": ["Zu {who} {now}. Zo {who}", "Ki {now}, ki"],
    "now": ["Zo {who} {past}. Zu {who}"],
}
FACTS = {
    "town": {
        "forms": ["land", "of_land"],
        "rows": [[f"{name}ra", f"{name}ran", f"{name[:2]}polis"] for name in NAMES],
        "templates": ["Polis ti {of_land} zi", "{Land} ma polis", "Ki polis ma ti {land}? Zi"],
    }
}
LOGIC = {
    "families": {"arithmetic squares": {"frames": ["{terms},", "Ko: {terms},"]}, "copy": {"frames": ["{terms}. {shown},"]}},
    "nouns": NAMES,
}  # fmt: skip
WORDS = {"slots": {"who": NAMES[:4], "count": ["tria", "kata"]}, "keyboard": ["qwertyuiop", "asdfghjkl", "zxcvbnm"]}


def write_folder(folder: Path, **changed: Any) -> Path:
    """`changed`: name of a file without its ending -> its content; None: it is not there."""
    folder.mkdir()
    rows = "".join(f"{name},{name}n,{name}de,{name}\n" for name in NAMES)
    files = {"frames": {"benchmark": FRAMES}, "facts": FACTS, "logic": LOGIC, "words": WORDS, **changed}
    for name, content in files.items():
        if content is not None and name != "forms":
            (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    (folder / "words.csv").write_text(changed.get("forms") or f"word,plural,past,now\n{rows}")
    return folder


@pytest.mark.parametrize("language", ["en", "ru"])
def test_a_copy_of_the_package_s_files_makes_the_same_items(tmp_path: Path, language: str) -> None:
    shutil.copytree(package_folder(language), tmp_path / language)
    assert make_items(read_generators(tmp_path / language), 30) == items_of(language, 30)
    frames = json.loads((tmp_path / language / "frames.json").read_text())
    stem = "{stem}" if language == "en" else "{lemma}"
    frames["benchmark"] = {form: [f"Wug {stem} {form}:"] for form in frames["benchmark"]}
    (tmp_path / language / "frames.json").write_text(json.dumps(frames))
    edited = make_items(read_generators(tmp_path / language), 30)
    assert {item.prefix.partition(" ")[0] for item in edited if item.category == "Morphology"} == {"Wug"}
    assert [item for item in edited if item.category == "Facts"] == [
        item for item in items_of(language, 30) if item.category == "Facts"
    ]


def test_items_of_a_made_up_language(tmp_path: Path) -> None:
    export(tmp_path / "out", 20, templates=write_folder(tmp_path / "zena"))
    items = read_parquet(tmp_path / "out" / "miron_gen.parquet", "x")
    by_category: dict[str, list[Any]] = {}
    for item in items:
        by_category.setdefault(item.category, []).append(item)
        assert item.name.startswith("zena-")
        assert item.target.startswith(" ")
        assert not item.prefix.endswith(" ")
        assert item.target not in item.distractors
    assert {name: len(of) for name, of in by_category.items()} == dict.fromkeys(
        ("Morphology", "Facts", "Logic", "Noise"), 20
    )
    for item in by_category["Morphology"]:
        if item.prefix.startswith("Ona "):
            [name] = re.findall(r"^Ona (\w+), dua$", item.prefix)
            assert (item.target, set(item.distractors)) == (f" {name}n", {f" {name}", f" {name}de"})
    for item in by_category["Facts"]:
        [name] = [name for name in NAMES if name in item.prefix.lower()]
        assert item.target == f" {name[:2]}polis"
    assert all(item.clean_prefix and item.clean_prefix != item.prefix for item in by_category["Noise"])
    assert not any(item.operator == "homoglyph" for item in items), "the language has none"


@pytest.mark.slow
def test_a_run_has_the_groups_of_miron(tmp_path: Path, miron) -> None:
    folder = write_folder(tmp_path / "zena")
    made = miron("tasks", f"--export={tmp_path / 'out'}", f"--templates={folder}", "--items_per_category=6")
    assert (made.status, len(made.out.splitlines())) == (0, 2), made.err
    ran = miron("eval", f"--task_path={tmp_path / 'out'}", f"--output={tmp_path / 'run'}")
    assert ran.status == 0, ran.err
    task = json.loads((tmp_path / "run" / "results.json").read_text())["tasks"]["own/zena/miron_gen"]
    assert {name: group["n"] for name, group in task["groups"].items()} == dict.fromkeys(
        ("Morphology", "Facts", "Logic", "Noise"), 6
    )
    values = [group["metrics"]["lev_score"]["value"] for group in task["groups"].values()]
    assert task["macro"]["lev_score"]["value"] == pytest.approx(sum(values) / 4)


def test_categories_are_those_whose_files_there_are(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "zena", frames=None, words=None, logic=None)
    assert [item.category for item in make_items(read_generators(folder), 2)] == ["Facts", "Facts"]


def town(**changed: Any) -> dict[str, Any]:
    return {"facts": {"town": {**FACTS["town"], **changed}}}


def logic(family: str = "squares", frame: str = "{terms},", **changed: Any) -> dict[str, Any]:
    return {"logic": {**LOGIC, "families": {family: {"frames": [frame]}}, **changed}}


def frames(*wordings: Any) -> dict[str, Any]:
    return {"frames": {"benchmark": {"past": wordings}}}


def words(**changed: Any) -> dict[str, Any]:
    return {"words": {**WORDS, **changed}}


BAD = [
    (frames("{wrod}"), "frames.json: past 0 names the field {wrod}, expected {word}"),
    ({"frames": {"benchmark": {"plural": "a"}}}, "frames.json: plural is 'a', expected a list of 1 texts"),
    ({"frames": {"benchmark": {}}}, "frames.json: benchmark is {}, expected a list of wordings"),
    (frames(" {word}"), "frames.json: text 0 of past is ' {word}', expected a text that neither is empty nor has a space"),
    (frames("Ki {who}"), "frames.json: past 0 is 'Ki {who}', expected the word in it, as {word}: add it"),
    (frames("Ki {past}"), "frames.json: past 0 names the field {past}, expected {word}, {who}, {count}: mend it"),
    ({"frames": "{"}, "frames.json is no JSON that can be read"),
    ({"forms": "word,plural,past,now\nzeno,zenon,,zeno\n"}, "words.csv: line 2: 'zeno' has no form 'past': add it"),
    ({"forms": "word,plural,past,now\n,zenon,zen,zeno\n"}, "words.csv: line 2: '' has no form 'word': add it"),
    ({"forms": "word,plural,past\nzeno,zenon,a\n"}, "words.csv: has no column 'now'"),
    (words(slots={"who": []}), "words.json: who is [], expected a list of 1 texts or more"),
    (words(rules="de"), "words.json: rules is 'de', expected en or ru"),
    (words(keyboard=["qwe"]), "words.json: keyboard is ['qwe'], expected a list of 3 texts"),
    (words(rare_typos=["x"]), "words.json: expected a keyboard of three rows, rare_typos of tsya, yo"),
    (words(rare_typos=3), "words.json: rare_typos is 3, expected a list of 0 texts or more"),
    (words(rare_typos=[{}]), "words.json: text 0 of rare_typos is {}, expected a text"),
    (words(homoglyphs=["a"]), "words.json: homoglyphs is ['a'], expected letters with their look-alikes"),
    (words(homoglyphs={"a": 3}), "words.json: text 0 of homoglyphs is 3, expected a text"),
    (town(rows=[["a", "b"]]), "facts.json: row 0 of town is ['a', 'b'], expected land, of_land, the answer: mend it"),
    (town(rows=[]), "facts.json: town is [], expected a list of rows: mend it"),
    (town(rows=[["a", "b", ""]]), "facts.json: text 2 of row 0 of town is '', expected a text"),
    (town(rows=FACTS["town"]["rows"][:3]), "facts.json: town has 2 wrong answers for 'zenora', expected 3: add rows"),
    (town(templates=["{lnd}"]), "template 0 of town names the field {lnd}"),
    (town(templates=["Ki"]), "template 0 of town is 'Ki', expected one form"),
    (
        town(forms=["1", "of.land"], templates=["{of.land}"]),
        "template 0 of town names the field {of.land}, expected no number and no . or [ in its name: rename it",
    ),
    (town(more_answers=3), "facts.json: more_answers of town is 3, expected a list of 0 texts or more"),
    (town(arguable=3), "facts.json: arguable of town is 3, expected a list of rows"),
    (town(arguable=[["a"]]), "facts.json: row 0 of arguable of town is ['a'], expected entity, answer"),
    (town(training_templates=3), "facts.json: training_templates of town is 3, expected a list"),
    ({"facts": {"town": []}}, "facts.json: town is [], expected a table"),
    ({"facts": {}}, "facts.json: it has no table, expected one or more"),
    ({"logic": {"families": {}}}, "logic.json: families is {}, expected some"),
    (logic(""), "logic.json: families is {'': {'frames': ['{terms},']}}, expected some"),
    (logic("squres"), "the family 'squres' is not known"),
    (logic("letters"), "alphabets is None, and the family letters wants 1"),
    (logic("letters", alphabets=["abcd"]), "logic.json: the alphabet 'abcd' has less than 5 letters"),
    (logic("weekdays", weekdays=[1, 2, 3, 4, 5]), "logic.json: text 0 of weekdays is 1, expected a text"),
    (logic(frame="{shown}"), "frame 0 of squares names the field {shown}"),
    (logic(frame="Ki?"), "frame 0 of squares lacks the field {terms}: add it"),
    (logic(rivals=3), "logic.json: rivals is 3, expected a list of rows"),
    (logic(people=[["a"]]), "logic.json: row 0 of people is ['a'], expected subject, compared"),
    (logic(statement=3), "logic.json: statement is 3 and optional_letters '', expected texts"),
    (logic(optional_letters=3), "logic.json: statement is '' and optional_letters 3, expected texts"),
    (logic(families={"squares": {"frames": ["{terms}"], "training": 3}}), "logic.json: training of squares is 3, expected"),
    (logic("comparison", "{facts} {most}", people=[1] * 5, scales=[1]), "logic.json: statement lacks the field {compared}"),
    (logic("comparison", "{facts} Zo"), "frame 0 of comparison lacks the field {most}: add it"),
    ({"frames": None, "facts": None, "logic": None}, "has a words.json alone, expected frames.json"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "words"), BAD)
def test_bad_files(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        export(tmp_path / "out", 5, templates=write_folder(tmp_path / "zena", **changed))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("language", "stems", "words"),
    [
        ("en", "a\nblib\n", "stems.txt: a stem is 'a', expected two letters or more"),
        ("ru", "а\n", "stems.txt: a stem is 'а', expected two letters or more"),
        ("en", "\n\n", "stems.txt: a stem is '', expected two letters or more"),
        ("en", "blish\n", "stems.txt: no stem has the form possessive: add some"),
        ("en", b"\xff", "stems.txt cannot be read ('utf-8' codec"),
    ],
)
def test_bad_stems(tmp_path: Path, language: str, stems: str | bytes, words: str) -> None:
    folder = shutil.copytree(package_folder(language), tmp_path / "zena")
    (folder / "stems.txt").write_bytes(stems if isinstance(stems, bytes) else stems.encode())
    with pytest.raises(InputError, match=re.escape(words)):
        export(tmp_path / "out", 5, templates=folder)


def test_stems_of_training_stay_out_whatever_ends_the_lines(tmp_path: Path) -> None:
    folder = shutil.copytree(package_folder("en"), tmp_path / "zena")
    (folder / "stems.txt").write_bytes(b"\r\nblib\r\nglop\r\n \r\nzzib\r\n")
    assert read_material(folder).stems == ("blib", "glop")


@pytest.mark.parametrize("name", ["zena@2", "a:b=c", ".zena", "z" * 120])
def test_a_folder_of_any_name_makes_a_task_that_is_read(tmp_path: Path, name: str) -> None:
    folder = write_folder(tmp_path / name, logic=None, words=None, frames=None)
    export(tmp_path / "out", 1, templates=folder)
    [task] = read_suite([str(tmp_path / "out")]).tasks
    assert re.fullmatch(r"own/(zena_2|a_b_c|_zena|z{100})/miron_gen", task.name)
