"""eval-ua-tion-gen: further options of a story's gaps from a user's list of nouns, and every bad list."""

import json
import re
from pathlib import Path

import pytest

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject
from miron_jax.tasks.generators.eval_uation_gen.gaps import MOST_OPTIONS, UserStory, gap_rows
from miron_jax.tasks.generators.eval_uation_gen.story_words import (
    CASES,
    StoryWord,
    known_nouns,
    read_distractors,
    story_word,
)  # fmt: skip
from miron_jax.tasks.registry import export
from tests.conftest import REPOSITORY
from tests.tasks.eval_uation.test_uation_gen_user import story_file

NOUNS = {noun.word.lemma: noun.word for noun in known_nouns()}
# as in UA-CBT's words_and_data.yaml, beside keys of other things
LIST = """
word_replacements: {заяць: заєць}
distractors:
    NAMED_ENTITY:
        animal:
            male: [півень, верблюд, кріт]
            female: [коза]
            neutral:
        human:
            male:
                - lemma: Петро
                  forms: {nom: Петро, gen: Петра, dat: Петру, acc: Петра, ins: Петром, loc: Петрі, voc: Петре}
                - коваль
                - півень
    COMMON_NOUN:
        neutral: [озеро]
"""
PLACE = "NAMED_ENTITY/animal/male"


def list_file(folder: Path, text: str = LIST) -> Path:
    path = folder / "nouns.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def story_of(text: str, *lemmas: str) -> UserStory:
    return UserStory("1", text, tuple(NOUNS[lemma] for lemma in lemmas))


def test_the_source_s_example(tmp_path: Path) -> None:
    """The README of UA-CBT shows a gap for a camel in the nominative, with six options: верблюд, єнот, орел and сусід
    from the text, півень and петро from the list.

    By hand, with the same animals: the text names four (the question is its last 2 of 6 sentences), so the list gives
    two.  Of its six masculine animates верблюд and кріт are in the text (кріт's genitive alone, крота), Петро has a
    capital that no other option has, and півень, which stands twice, counts once: півень and коваль are left.
    """
    text = (
        "Верблюд, єнот і орел мали доброго сусіда. Верблюд боявся крота. Єнот і орел носили воду. Сусід спав. "
        "Орел знайшов оазу. Потім верблюд заплакав."
    )
    [_, row] = gap_rows(story_of(text, "верблюд", "єнот", "орел", "сусід"), read_distractors(list_file(tmp_path)))
    assert row["answer"] == "верблюд"
    assert sorted(row["options"]) == ["верблюд", "коваль", "орел", "півень", "сусід", "єнот"]
    assert row["md_opts_replacement_option_from_text"] == ["верблюд", "єнот", "орел", "сусід"]
    assert sorted(row["md_opts_distractor_external"]) == ["коваль", "півень"]
    assert [m for o, m in zip(row["options"], row["md_mentions"], strict=True) if o in ("коваль", "півень")] == [0, 0]
    assert row["md_opts_baseline_most_frequent"] == ["верблюд"]


# case -> a sentence that has it
GAPS = {
    "nom": "Тоді {} утік.", "gen": "Без {} ніхто не ліг.", "dat": "Усі раділи {} й сміялись.",
    "acc": "Усі побачили {} в полі.",
    "ins": "Усі пишалися {} й сміялись.", "loc": "Усе трималося на {} й далі.", "voc": "Ходи, {}, сюди!",
}  # fmt: skip
CAST = ("лисиця", "білка", "сорока", "черепаха")


@pytest.mark.parametrize("case", CASES)
def test_options_have_the_form_of_the_gap(tmp_path: Path, case: str) -> None:
    """лисиця has seven cases of which gen = dat = loc and none else; an option needs one form for all three, which коза
    (кози, козі) has not, and няня (няні) and вовчиця (вовчиці) have."""
    words = [*CAST] if case in ("nom", "acc", "ins", "voc") else ["лисиця", "миша", "куниця"]
    listed = "NAMED_ENTITY: {animal: {female: [вовчиця, коза, синиця]}, human: {female: [няня, пряля]}}"
    text = f"{', '.join(words).capitalize()} співали. " * 3 + GAPS[case].format(NOUNS["лисиця"].forms[case]) + " Усе."
    [row] = gap_rows(story_of(text, *words), read_distractors(list_file(tmp_path, listed)))
    assert len(row["options"]) == MOST_OPTIONS
    names = row["md_form"].split("/")
    assert case in names
    every = {lemma: NOUNS[lemma] for lemma in (*words, "вовчиця", "коза", "синиця", "няня", "пряля")}
    fits = [word.forms[case] for word in every.values() if len({word.forms[name] for name in names}) == 1]
    assert set(row["options"]) <= set(fits)
    assert row["md_opts_replacement_option_from_text"] == [NOUNS[lemma].forms[case] for lemma in words]


def test_the_last_of_six_of_the_story_makes_room_for_the_list(tmp_path: Path) -> None:
    cast = ("слон", "кит", "тигр", "лев", "бик", "цап", "кріт")
    words = [
        StoryWord("кит", "NAMED_ENTITY", "m", {"nom": "кит", "gen": "кита"}) if w == "кит" else NOUNS[w] for w in cast
    ]
    text = f"{', '.join(cast).capitalize()} співали. Слон спав. Тоді слон утік."
    story = UserStory("1", text, tuple(words))
    [alone] = gap_rows(story)
    assert sorted(alone["options"]) == sorted(cast[:6])
    assert not [name for name in alone if name.startswith("md_opts_") and "baseline" not in name]
    [row] = gap_rows(story, read_distractors(list_file(tmp_path)))
    assert row["md_opts_replacement_option_from_text"] == [*cast[:5]]
    assert len(row["md_opts_distractor_external"]) == 1
    [row] = gap_rows(story, read_distractors(list_file(tmp_path, "COMMON_NOUN: {male: [ніж]}")))
    assert (row["md_opts_replacement_option_from_text"], row["md_opts_distractor_external"]) == ([*cast[:6]], [])


def test_which_of_a_long_list_stand_in_a_gap_is_drawn(tmp_path: Path) -> None:
    listed = [noun.word for noun in known_nouns() if noun.word.gender == "m" and noun.kind == "human"]
    text = "Слон, тигр і лев співали. Слон і тигр спали. " * 2 + "Тоді слон утік. Потім слон приліг."
    rows = [*gap_rows(story_of(text, "слон", "тигр", "лев"), listed)]
    of_list = [frozenset(row["md_opts_distractor_external"]) for row in rows]
    assert [*map(len, of_list)] == [3] * len(rows)
    assert len(set(of_list)) > 1
    assert rows == [*gap_rows(story_of(text, "слон", "тигр", "лев"), listed)]


def test_a_word_of_the_story_is_no_further_option_in_another_form(tmp_path: Path) -> None:
    """The text has бикові alone, where the package's dative is бику."""
    ox = StoryWord("бик", "NAMED_ENTITY", "m", {**NOUNS["бик"].forms, "dat": "бикові", "loc": "бикові", "nom": "бичок"})
    text = "Слон, тигр і лев раділи бикові. Слон спав. Тоді всі раділи слону й сміялись."
    words = ("слон", "тигр", "лев")
    story = UserStory("1", text, (*(NOUNS[lemma] for lemma in words), ox))
    others = [NOUNS[lemma] for lemma in ("бик", "вовк")]
    assert [*gap_rows(story, others)] == [], "four of the story and вовк"
    [row] = gap_rows(story, [*others, NOUNS["осел"]])
    assert "бику" not in row["options"]


def record_of(lemma: str, **changed: Json) -> JsonObject:
    return {**NOUNS[lemma]._asdict(), **changed}


def test_gaps_that_lack_options_are_counted(tmp_path: Path) -> None:
    text = (
        "Слон, тигр, лев і миша співали. Слон, тигр і миша спали. Слон і миша їли. Тоді слон утік. Миша бачила слона."
    )
    path = story_file(tmp_path, {"text": text, "words": [*map(record_of, ("слон", "тигр", "лев", "миша"))]})
    said: list[str] = []
    few = "NAMED_ENTITY: {animal: {male: [кріт, бик, вовк]}}"
    export(tmp_path / "out", 1, stories=path, say=said.append, distractors=list_file(tmp_path, few))
    [line] = said
    assert line.endswith(
        "1 gaps have less than 6 options and are left out; most often options lack that are NAMED_ENTITY f nom (1): "
        "list such nouns in --distractors"
    )
    too_few = list_file(tmp_path, "COMMON_NOUN: {male: [ніж]}")
    with pytest.raises(InputError, match=r"2 others .* 6 options: .*; gaps that lack options: NAMED_ENTITY m"):
        export(tmp_path / "none", 1, stories=path, distractors=too_few)
    assert not (tmp_path / "none").exists()


def test_the_nouns_of_the_package() -> None:
    assert len({(noun.word.lemma, noun.word.gender) for noun in known_nouns()}) == len(known_nouns()) == 331
    for noun in known_nouns():
        word = noun.word
        assert story_word(word._asdict()) == word
        assert word.forms["nom"] == word.lemma
        assert re.fullmatch("['абвгґдеєжзиіїйклмнопрстуфхцчшщьюя]+", "".join(word.forms.values()))
        same = {"m": "gen" if word.type == "NAMED_ENTITY" else "nom", "n": "nom", "f": "acc"}[word.gender]
        if word.lemma != "рибалка":  # declined as a feminine
            assert word.forms["acc"] == word.forms[same], word.lemma


def test_the_longer_dative_of_masculine_animates() -> None:
    longer = {lemma: NOUNS[lemma].forms.get("dat_ovi") for lemma in ("вовк", "ведмідь", "сторож", "рибалка", "ніж")}
    assert longer == {"вовк": "вовкові", "ведмідь": "ведмедеві", "сторож": "сторожеві", "рибалка": None, "ніж": None}
    text = "Вовк, тигр, лев і бик співали. Вовк спав. Тоді всі раділи вовкові й сміялись."
    [row] = gap_rows(story_of(text, "вовк", "тигр", "лев", "бик"))
    assert sorted(row["options"]) == ["бикові", "вовкові", "левові", "тигрові"]


def test_the_longer_dative_of_a_user_s_nouns(tmp_path: Path) -> None:
    """змія has a vowel before its ending; Буй's dative is the longer one already, and Ілля has none."""
    forms = {"змій": ("змія", "змію"), "Буй": ("Буя", "Буєві"), "Ілля": ("Іллі", "Іллі"), "гном": ("гнома", "гному")}
    entries = ""
    for lemma, (genitive, dative) in forms.items():
        cases = dict.fromkeys(CASES, lemma) | {"gen": genitive, "dat": dative}
        entries += f"    - {{lemma: {lemma}, forms: {json.dumps(cases, ensure_ascii=False)}}}\n"
    nouns = read_distractors(list_file(tmp_path, f"NAMED_ENTITY:\n  male:\n{entries}"))
    assert [noun.forms.get("dat_ovi") for noun in nouns] == ["змієві", None, None, "гномові"]


def test_a_plural_that_reads_like_a_locative_is_no_gap() -> None:
    """ведмеді is the locative, of which коні, зайці and лебеді are too, and the nominative plural."""
    cast = ("ведмідь", "кінь", "заєць", "лебідь")
    text = "Ведмідь, кінь, заєць і лебідь співали. Ведмідь спав. {}"
    assert [*gap_rows(story_of(text.format("Тоді ведмеді прокинулися."), *cast))] == []
    [row] = gap_rows(story_of(text.format("Уся сила була в ведмеді, і край."), *cast))
    assert (row["md_form"], sorted(row["options"])) == ("loc", ["ведмеді", "зайці", "коні", "лебеді"])


FORMS = ", ".join(f"{case}: лісник" for case in CASES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"NAMED_ENTITY: {{animal: {{male: [{{lemma: лісник, forms: {{{FORMS.replace(', voc: лісник', '')}}}}}]}}}}",
            f"{PLACE}: 'лісник' has no voc; expected a form for each of nom, gen, dat, acc, ins, loc, voc: add",
        ),
        (
            "NAMED_ENTITY: {animal: {male: [лісовик, жаба]}}",
            f"2 nouns have no forms: 'лісовик' ({PLACE}), 'жаба' ({PLACE}); expected one of the 331 nouns that come",
        ),
        (f"NAMED_ENTITY: {{male: [{{lemma: лісник, forms: {{{FORMS}, pl: а б}}}}]}}", "the form 'а б' of 'лісник' is no"),
        (
            f"NAMED_ENTITY: {{male: [{{lemma: лісник, forms: {{1: лісник, {FORMS}}}}}]}}",
            "the forms of 'лісник' are {1: ",
        ),
        ("NAMED_ENTITY: {animal: {male: [3]}}", f"{PLACE}: the word 3 has no lemma"),
        ("NAMED_ENTITY: {animal: {masculine: [кріт]}}", "NAMED_ENTITY/animal/masculine is ['кріт'], expected lists of"),
        ("NAMED_ENTITY: {animal: [кріт]}", "NAMED_ENTITY/animal is ['кріт'], expected lists of nouns below NAMED_ENTITY"),
        ("VERB: {male: [іти]}", "VERB/male is ['іти'], expected lists"),
        ("animal: {male: [кріт]}", "animal/male is ['кріт'], expected lists"),
        ("[кріт]", "the file is ['кріт'], expected lists"),
        ("", "the file is None, expected lists"),
        ("NAMED_ENTITY: {human: {male: []}}", "has no noun: expected lists"),
        ("a: [", "is no YAML ("),
    ],
)  # fmt: skip
def test_bad_lists(tmp_path: Path, text: str, message: str) -> None:
    path = list_file(tmp_path, text)
    with pytest.raises(InputError, match=re.escape(message)) as refused:
        export(tmp_path / "out", 1, stories=path, distractors=path)
    assert str(refused.value).startswith(f"--distractors={path}")
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="cannot be read"):
        read_distractors(tmp_path / "none")


def test_the_list_of_the_docs(tmp_path: Path) -> None:
    [example] = re.findall(r"```yaml\n(.*?)```", (REPOSITORY / "docs/eval_uation.md").read_text("utf-8"), re.DOTALL)
    nouns = read_distractors(list_file(tmp_path, example))
    assert [noun.lemma for noun in nouns] == ["кріт", "верблюд", "лань", "озеро"]
    assert (nouns[1], nouns[2].gender, nouns[2].forms["ins"]) == (NOUNS["верблюд"], "f", "ланню")


def test_a_list_without_stories_is_refused(miron) -> None:
    ran = miron("tasks", "--export=out", "--distractors=nouns.yaml")
    assert (ran.status, ran.out) == (2, "")
    assert "--distractors wants --stories=FILE, whose gaps have them as options" in ran.err
