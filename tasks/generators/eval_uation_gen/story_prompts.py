"""Prompts with which any language model writes stories for gaps, and the stories taken back.

Arrives: a number of stories and a seed; later the folder with stories beside the prompts.  Leaves:
a file a prompt, and `UserStory`s.  It deliberately calls no model.

As for UA-CBT a story takes three passes: the first writes it, the second makes it longer, the third
corrects it; half of the stories shall end badly.  Prompts are Ukrainian, from
story_prompts_uk.yaml.  Characters are animals of one gender, as every option of a gap is, and
things are of one gender too; the forms of both come with the package, so gaps are found in whatever
the model writes.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.durable import make_folder, write_whole
from miron_jax.files.readers import JsonObject, parse_yaml
from miron_jax.files.regular import read_regular
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.eval_uation_gen.gaps import UserStory, story_text
from miron_jax.tasks.generators.eval_uation_gen.story_words import (
    StoryWord,
    known_nouns,
    words_in,
)
from miron_jax.tasks.generators.eval_uation_gen.table import VERSION, jsonl
from miron_jax.tasks.generators.eval_uation_gen.user_files import read_records

TABLE = "prompts.jsonl"
PASSES = ("write", "lengthen", "correct")
NUM_MAIN = 3
NUM_MINOR = 5
NUM_THINGS = 3
NUM_WORDS = 500  # of a story of the first pass
MOST_STORIES = 100_000
TEMPLATES = Path(__file__).with_name("story_prompts_uk.yaml")


class StoryPrompt(NamedTuple):
    """What one story is to be about, and its prompts by pass."""

    record: JsonObject  # its line of TABLE
    prompts: tuple[str, ...]  # `{story}` stands for the story of the pass before


@cache
def _templates() -> JsonObject:
    return parse_yaml(TEMPLATES.read_bytes())


def story_prompts(num_stories: int, seed: int) -> list[StoryPrompt]:
    """The same prompts for the same number and seed, everywhere."""
    key = ("eval-ua-tion-gen", VERSION, "story_prompts", seed)
    unhappy = set(Stream(*key).sample(range(num_stories), num_stories // 2))
    width = max(4, len(str(num_stories)))
    prompts = []
    for i in range(num_stories):
        prompts.append(_prompt(Stream(*key, i), f"{i + 1:0{width}}", i in unhappy))
    return prompts


def _prompt(draw: Stream, name: str, is_unhappy: bool) -> StoryPrompt:
    texts = _templates()
    characters = _sample(draw, "animal", draw.choice("mf"), NUM_MAIN + NUM_MINOR)
    things = _sample(draw, "thing", draw.choice("mfn"), NUM_THINGS)
    names = [noun.lemma for noun in characters]
    wish = draw.choice(texts["wishes"]).format(thing=things[0].forms["acc"])
    about: JsonObject = {
        "style": draw.choice(texts["styles"]),
        "place": draw.choice(texts["places"]),
        "trait": draw.choice(texts["traits"]),
        "wish": wish,
        "moral": draw.choice(texts["morals"]),
        "start": draw.choice(texts["starts"]),
    }
    filled: JsonObject = {
        **about,
        "num_words": NUM_WORDS,
        "hero": names[0],
        "main": ", ".join(names[:NUM_MAIN]),
        "minor": ", ".join(names[NUM_MAIN:]),
        "characters": ", ".join(names),
        "things": ", ".join(thing.lemma for thing in things),
        "ending": texts["unhappy_ending"] if is_unhappy else "",
        "story": "{story}",
    }
    columns = {
        "BAD_ENDING": is_unhappy,
        "NUM_WORDS": NUM_WORDS,
        "N_MAIN_CHARACTERS": NUM_MAIN,
        "N_MINOR_CHARACTERS": NUM_MINOR,
    }
    record = {"id": name, "characters": names, "things": [thing.lemma for thing in things]}
    return StoryPrompt(
        record | about | {"columns": columns},
        tuple(texts[pass_].format(**filled) for pass_ in PASSES),
    )


def _sample(draw: Stream, kind: str, gender: str, k: int) -> list[StoryWord]:
    nouns = []
    for noun in known_nouns():
        if (noun.kind, noun.word.gender) == (kind, gender):
            nouns.append(noun.word)
    return draw.sample(nouns, k)


def write_prompts(folder: Path, num_stories: int, seed: int) -> Path:
    """Writes ID.1.prompt.txt, ID.2.prompt.txt and ID.3.prompt.txt of every story, and the table of
    what they are about, whose path is returned.

    Raises InputError where the folder has another table: its stories would be taken for answers to
    these prompts.
    """
    if not 0 < num_stories <= MOST_STORIES:
        raise InputError(f"--story_prompts is {num_stories}, expected 1 to {MOST_STORIES}")
    prompts = story_prompts(num_stories, seed)
    content = jsonl([prompt.record for prompt in prompts])
    table = folder / TABLE
    if table.exists() and read_regular(table) != content:
        raise InputError(
            f"--export={folder} has prompts of another number, seed or version: name another folder"
        )
    make_folder(folder)
    write_whole(table, content)
    for record, texts in prompts:
        for number, text in enumerate(texts, 1):
            write_whole(folder / f"{record['id']}.{number}.prompt.txt", text.encode())
    return table


def read_prompted(
    folder: Path, listed: Sequence[StoryWord], say: Callable[[str], None]
) -> list[UserStory]:
    """The stories beside the prompts of a folder: ID.3.story.txt, or that of the last pass that
    there is.  Says how many are missing.

    The words of a story are the nouns of the package and `listed` ones that it names.  Raises
    InputError.
    """
    records = read_records(folder / TABLE, "--stories", _record, "id and columns")
    stories = []
    for name, columns in records:
        paths = [folder / f"{name}.{number}.story.txt" for number in (3, 2, 1)]
        written = [path for path in paths if path.exists()]
        if not written:
            continue
        try:
            text = story_text(read_regular(written[0]).decode("utf-8-sig"))
        except (OSError, ValueError) as error:
            raise InputError(
                f"--stories={folder}: {written[0].name}: {error}; expected the text of a story: "
                "mend the file or remove it"
            ) from None
        words = nouns_in(text, listed)
        passes = 3 - paths.index(written[0])
        of_prompt = {f"md_st_{key}": value for key, value in columns.items()}
        stories.append(UserStory(name, text, words, of_prompt | {"md_st_pass": passes}))
    if not stories:
        raise InputError(
            f"--stories={folder} has no story; expected {records[0][0]}.3.story.txt beside "
            f"{records[0][0]}.3.prompt.txt, and so on, or stories of an earlier pass: write them "
            "with a language model"
        )
    missing = len(records) - len(stories)
    if missing:
        say(f"--stories={folder}: {missing} of {len(records)} have no story yet")
    return stories


def nouns_in(text: str, listed: Sequence[StoryWord]) -> tuple[StoryWord, ...]:
    """The nouns of the package and `listed` ones that a text names."""
    nouns = {}
    for noun in (*listed, *(word for word, _ in known_nouns())):
        nouns.setdefault((noun.lemma, noun.type, noun.gender), noun)
    named = words_in(text)
    return tuple(noun for noun in nouns.values() if noun.is_in(named))


def _record(fields: JsonObject, row: int) -> tuple[str, JsonObject]:
    name = fields.get("id")
    columns = fields.get("columns")
    if not isinstance(name, str) or not re.fullmatch(r"\w+", name):
        raise ValueError(f"id is {name!r:.40}, expected letters and digits")
    if not isinstance(columns, dict):
        raise ValueError(f"columns is {columns!r:.40}, expected values by name")
    return name, columns
