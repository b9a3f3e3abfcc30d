"""eval-ua-tion-gen: prompts for stories, the stories taken back, and the gaps in them."""

import json
import re
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.tasks.eval_uation.records import reader
from miron_jax.tasks.generators.eval_uation_gen.gaps import MOST_OPTIONS
from miron_jax.tasks.generators.eval_uation_gen.story_prompts import (
    MOST_STORIES,
    TABLE,
    StoryPrompt,
    read_prompted,
    story_prompts,
    write_prompts,
)  # fmt: skip
from miron_jax.tasks.generators.eval_uation_gen.story_words import known_nouns
from miron_jax.tasks.registry import export
from tests.support.people_pages import exported, write_tsv
from tests.support.uation_gen_rows import BY_NAME

NOUNS = {noun.word.lemma: noun for noun in known_nouns()}


def genders(lemmas: list[str]) -> set[str]:
    return {NOUNS[lemma].word.gender for lemma in lemmas}


def test_the_source_s_settings() -> None:
    """UA-CBT's generator asks for 3 main and 5 minor characters, animals of one gender without names, and about 500
    words; half of its prompts add a sentence that asks for an unhappy ending.

    By hand: of 7 stories 7 // 2 = 3 end badly; each has 3 prompts, 21 in all.
    """
    prompts = story_prompts(7, seed=0)
    assert [prompt.record["id"] for prompt in prompts] == [f"000{i}" for i in range(1, 8)]
    unhappy = [prompt for prompt in prompts if prompt.record["columns"]["BAD_ENDING"]]
    assert len(unhappy) == 3
    for record, texts in prompts:
        assert len(record["characters"]) == len(set(record["characters"])) == 8
        assert len(genders(record["characters"])) == len(genders(record["things"])) == 1
        assert {NOUNS[lemma].kind for lemma in record["characters"]} == {"animal"}
        columns = {"NUM_WORDS": 500, "N_MAIN_CHARACTERS": 3, "N_MINOR_CHARACTERS": 5}
        assert record["columns"] == columns | {"BAD_ENDING": record["columns"]["BAD_ENDING"]}
        first = texts[0]
        assert f"Головні герої: {', '.join(record['characters'][:3])}. Другорядні" in first
        assert f"Другорядні герої: {', '.join(record['characters'][3:])}.\n" in first
        assert ("Закінчення сумне" in first) == record["columns"]["BAD_ENDING"]
        assert "500 слів" in first
        for about in ("style", "place", "trait", "wish", "moral", "start"):
            assert record[about] in first
        assert [text.count("{story}") for text in texts] == [0, 1, 1]
        for later in texts[1:]:
            assert ", ".join(record["characters"]) in later
        assert not re.search(r"[{}]", "".join(texts).replace("{story}", ""))


def test_prompts_are_drawn_by_number_and_seed() -> None:
    assert story_prompts(20, seed=1) == story_prompts(20, seed=1)
    drawn = [story_prompts(20, seed=seed) for seed in (1, 2)]
    firsts = {prompt.prompts[0] for prompts in drawn for prompt in prompts}
    assert len(firsts) == 40
    assert sum(prompt.record["columns"]["BAD_ENDING"] for prompt in drawn[1]) == 10
    wishes = [prompt for prompt in story_prompts(60, seed=3) if "виміняти" in prompt.record["wish"]]
    for prompt in wishes:
        thing = NOUNS[prompt.record["things"][0]]
        assert (thing.kind, f"виміняти {thing.word.forms['acc']} на щось дешеве") == ("thing", prompt.record["wish"])
    assert wishes


def tale(record: JsonObject) -> str:
    """A story as a model may write it: the question is the last 3 of 8 sentences, and names the hero in three cases."""
    hero, *others = [NOUNS[lemma].word.forms for lemma in record["characters"]]
    main = ", ".join(forms["nom"] for forms in others[:2])
    return (
        f"{record['start']} жили собі поруч {hero['nom']}, {main}.\n\nНа ярмарку був {others[0]['nom']}. "
        f"Там був і {hero['nom']}. Побачив це {others[1]['nom']}. Усі лягли спати.\n"
        f"Уранці прокинувся {hero['nom']}. Усі побачили {hero['acc']} в полі. Усі пішли за {hero['ins']}.\n"
    )


def masculine(prompts: list[StoryPrompt]) -> list[JsonObject]:
    return [prompt.record for prompt in prompts if genders(prompt.record["characters"]) == {"m"}]


HUMANS = ("мельник", "коваль", "козак", "лікар", "мисливець")
LIST = f"NAMED_ENTITY: {{human: {{male: [{', '.join(HUMANS)}]}}}}"


def test_from_prompts_over_stories_to_gaps_with_six_options(tmp_path: Path, miron) -> None:
    folder = tmp_path / "prompts"
    ran = miron("tasks", f"--export={folder}", "--story_prompts=6", "--seed=4")
    assert (ran.status, ran.out) == (0, f"{folder / TABLE}\n")
    assert "put that in place of {story} in NUMBER.2.prompt.txt" in ran.err
    assert len([*folder.glob("*.prompt.txt")]) == 18
    records = [json.loads(line) for line in (folder / TABLE).read_text("utf-8").splitlines()]
    assert records == [prompt.record for prompt in story_prompts(6, seed=4)]
    first, second, *_ = masculine(story_prompts(6, seed=4))
    # the first has stories of two passes, of which the later counts
    (folder / f"{first['id']}.1.story.txt").write_text("Це лише начерк. Його не читають.", encoding="utf-8")
    (folder / f"{first['id']}.2.story.txt").write_text(tale(first), encoding="utf-8")
    (folder / f"{second['id']}.3.story.txt").write_text("\ufeff" + tale(second), encoding="utf-8")

    nouns = tmp_path / "nouns.yaml"
    nouns.write_text(LIST, encoding="utf-8")
    ran = miron("tasks", f"--export={tmp_path / 'gaps'}", f"--stories={folder}", f"--distractors={nouns}")
    assert (ran.status, ran.err) == (0, f"--stories={folder}: 4 of 6 have no story yet\n")
    rows = parquet.read_table(tmp_path / "gaps/ua_cbt/train.parquet").to_pylist()
    assert [row["storyId"] for row in rows] == [first["id"]] * 3 + [second["id"]] * 3
    of_list = {form for lemma in HUMANS for form in NOUNS[lemma].word.forms.values()}
    for row, name in zip(rows, ["nom", "acc", "ins"] * 2, strict=True):
        record = records[int(row["storyId"]) - 1]
        # by hand: the context names the hero and two main characters, so three options are the list's
        main = [NOUNS[lemma].word.forms[name] for lemma in record["characters"][:3]]
        assert row["answer"] == main[0]
        assert name in row["md_form"].split("/")
        assert len(row["options"]) == MOST_OPTIONS
        assert set(row["md_opts_replacement_option_from_text"]) == set(main) <= set(row["options"])
        assert set(row["md_opts_distractor_external"]) == set(row["options"]) - set(main) <= of_list
        assert (row["md_st_NUM_WORDS"], row["md_st_pass"]) == (500, 2 if record == first else 3)
        assert row["md_st_BAD_ENDING"] == record["columns"]["BAD_ENDING"]
        assert len(reader(BY_NAME["ua_cbt"].data_set)(row, 0).fills) == MOST_OPTIONS
    assert rows[0]["question"].startswith("Уранці прокинувся ______ . Усі")


def test_a_corrected_story_has_the_nouns_of_its_corrected_text(tmp_path: Path, miron) -> None:
    """A person writes a miller in the hero's place: the answers are his forms."""
    folder = tmp_path / "prompts"
    write_prompts(folder, 6, seed=4)
    first, *_ = masculine(story_prompts(6, seed=4))
    before = tale(first)
    (folder / f"{first['id']}.3.story.txt").write_text(before, encoding="utf-8")
    after = tale({**first, "characters": ["мельник", *first["characters"][1:]]})
    given = {"INPUT:story": first["id"], "INPUT:before": before, "OUTPUT:verdict": "usable", "OUTPUT:reasons": ""}
    table = write_tsv(tmp_path / "c.tsv", exported("p", "w1", [{**given, "OUTPUT:text": after}]))
    ran = miron("tasks", f"--stories={folder}", f"--page={tmp_path / 'p.html'}")
    assert ran.out.endswith("p.html: 1 rows, for corrections\n")
    nouns = tmp_path / "nouns.yaml"
    nouns.write_text(LIST, encoding="utf-8")
    flags = (f"--export={tmp_path / 'gaps'}", f"--distractors={nouns}")
    ran = miron("tasks", *flags, f"--stories={folder}", f"--corrections={table}")
    assert ran.status == 0, ran.err
    rows = parquet.read_table(tmp_path / "gaps/ua_cbt/train.parquet").to_pylist()
    assert [row["answer"] for row in rows] == [NOUNS["мельник"].word.forms[name] for name in ("nom", "acc", "ins")]


def test_nouns_of_the_list_that_a_story_names_are_words_of_it(tmp_path: Path) -> None:
    write_prompts(tmp_path, 1, seed=0)
    (tmp_path / "0001.1.story.txt").write_text("Жив собі лісник. Лісник співав козі.", encoding="utf-8")
    forester = NOUNS["мельник"].word._replace(lemma="лісник", forms={"nom": "лісник"})
    [story] = read_prompted(tmp_path, [forester], print)
    assert [word.lemma for word in story.words] == ["лісник", "коза"]


def test_other_prompts_do_not_replace_those_of_a_folder(tmp_path: Path) -> None:
    table = write_prompts(tmp_path, 3, seed=0)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    write_prompts(tmp_path, 3, seed=0)
    for number, seed in ((3, 1), (4, 0)):
        with pytest.raises(InputError, match="has prompts of another number, seed or version: name another folder"):
            write_prompts(tmp_path, number, seed)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert table in before
    for number in (0, -1, MOST_STORIES + 1):
        with pytest.raises(InputError, match=f"--story_prompts is {number}, expected 1 to 100000"):
            write_prompts(tmp_path / "none", number, 0)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("story", "message"),
    [
        (b"  \n", r"0002.1.story.txt: text is no text; expected the text of a story: mend the file or remove it"),
        ("Одне речення.".encode(), r"0002.1.story.txt: text has one sentence"),
        ("Слон а_б. Кит.".encode(), r"0002.1.story.txt: text has a low line"),
        (b"\xff\xff", r"0002.1.story.txt: 'utf-8' codec can't decode"),
        (None, r"has no story; expected 0001.3.story.txt beside 0001.3.prompt.txt, and so on"),
        ("Слон спав. Слон їв.".encode(), "none of 1 stories allows a gap"),
    ],
)
def test_bad_stories_of_prompts(tmp_path: Path, miron, story: bytes | None, message: str) -> None:
    folder = tmp_path / "prompts"
    write_prompts(folder, 2, seed=0)
    if story is not None:
        (folder / "0002.1.story.txt").write_bytes(story)
    ran = miron("tasks", f"--export={tmp_path / 'out'}", f"--stories={folder}")
    assert (ran.status, ran.out) == (2, "")
    assert re.search(message, ran.err)
    assert not (tmp_path / "out").exists()


def test_columns_of_several_kinds_are_refused(tmp_path: Path) -> None:
    first, second, *_ = masculine(story_prompts(6, seed=4))
    lines = ""
    for record, value in ((first, 1), (second, "x")):
        lines += json.dumps({"id": record["id"], "columns": {"a": value}}) + "\n"
        (tmp_path / f"{record['id']}.1.story.txt").write_text(tale(record), encoding="utf-8")
    (tmp_path / TABLE).write_text(lines)
    nouns = tmp_path / "nouns.yaml"
    nouns.write_text(LIST, encoding="utf-8")
    with pytest.raises(InputError, match=r"train.parquet cannot be written \(.*; expected values of one kind in each"):
        export(tmp_path / "out", 1, stories=tmp_path, distractors=nouns)
    assert not (tmp_path / "out").exists()


def test_a_table_that_is_missing_or_wrong(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"prompts.jsonl cannot be read .*: name a file of JSON objects with id"):
        read_prompted(tmp_path, [], print)
    for line, message in (
        ('{"id": "../a", "columns": {}}', "line 1: id is '../a', expected letters and digits"),
        ('{"id": "1"}', "line 1: columns is None, expected values by name"),
    ):
        (tmp_path / TABLE).write_text(line)
        with pytest.raises(InputError, match=message):
            read_prompted(tmp_path, [], print)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--story_prompts=3", "--story_prompts wants --export=FOLDER"),
        ("--story_prompts=3 --export=x --stories=y", "without --stories and --articles"),
        ("--export=x --seed=3", "--seed wants --story_prompts=N, which it draws"),
        ("--export=x --story_prompts=2 --templates=y", "--templates is not read by --story_prompts: leave it out"),
        ("--export=x --story_prompts=2 --words=y", "--words is not read by --story_prompts"),
        ("--export=x --story_prompts=2 --items_per_category=3", "--items_per_category is not read by --story_prompts"),
        ("--export=x --check=y", "--check is not read by --export"),
        ("--export=x --stories=y --items_per_category=3", "not read by an --export of other sets than miron-gen"),
        ("--export=x --words=y --items_per_category=3", "not read by an --export of other sets than miron-gen"),
        ("--export=x --templates=y --items_per_category=3", "not read by an --export of other sets than miron-gen"),
        ("--page=x --stories=y --distractors=z", "--distractors is not read by --page"),
        ("--max_length=9", "--max_length is not read by the list of tasks"),
        ("--export=x --templates=", "--templates is empty: name a file or folder, or leave it out"),
        ("--export=x --stories=", "--stories is empty"),
    ],
)
def test_flags_that_have_no_meaning_together(miron, arguments: str, message: str) -> None:
    ran = miron("tasks", *arguments.split())
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
