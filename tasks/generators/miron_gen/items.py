"""miron-gen: generated items in the manner of MIRON, the same on every machine.

Arrives: a language, or a user's folder of one, and the number of items per category.  Leaves:
`Item`s with unique prefixes, categories in published order.  It deliberately does not know models
or tokenizers.

An item depends on its number, and on the items before it only in that no prefix comes twice.  So
the first n items of a larger set are the smaller set, except for Noise, which draws its clean
partners from all Facts and Logic items.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from miron_jax.definitions.records import Cloze
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject, shown
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.miron_gen import (
    english_morphology,
    facts,
    logic,
    noise,
    russian_morphology,
    word_forms,
)
from miron_jax.tasks.generators.miron_gen.draft import Draft, package_folder, read_file

VERSION = "1"  # another version, other items
CATEGORIES = ("Morphology", "Facts", "Logic", "Noise")
FILES = ("frames.json", "facts.json", "logic.json", "words.json")  # of a language
MOST = 2000  # Facts has 2,254 prefixes in Russian
TRIES = 2000  # draws of one item before its category counts as used up


@dataclass(frozen=True, slots=True)
class Item:
    id: str  # "en-facts-0007"
    language: str
    category: str
    prefix: str  # no space at its end
    target: str  # one leading space
    distractors: tuple[str, ...]
    template: str
    meta: tuple[tuple[str, str], ...]
    pair_id: str | None = None  # id of the clean item that a noisy one was made from
    clean_prefix: str | None = None
    operator: str | None = None
    num_edits: int = 0

    def cloze(self, row: int) -> Cloze:
        return Cloze(
            row, self.id, self.prefix, self.target, self.category, self.distractors,
            self.clean_prefix, self.operator,
            self.num_edits,
        )  # fmt: skip


Drafter = Callable[[Stream], Draft | None]


class Generators(NamedTuple):
    """What makes the items of one language."""

    language: str
    drafters: Mapping[str, Drafter]  # by category
    rules: noise.NoiseRules | None  # None: it has no noise
    pool: tuple[str, ...]  # words that decide an answer: a reader must recover them from the noise


def is_language(folder: Path) -> bool:
    """Whether a user's folder has files of miron-gen."""
    return any((folder / name).is_file() for name in FILES)


def has_word_forms(folder: Path) -> bool:
    """Whether Morphology is of words.csv with all forms, not of stems and rules."""
    return (folder / "frames.json").is_file() and _words(folder).get("rules") is None


def _words(folder: Path) -> JsonObject:
    return read_file(folder / "words.json") if (folder / "words.json").is_file() else {}


def read_generators(folder: Path, words_file: Path | None = None) -> Generators:
    """Those of the categories whose files are there; `words_file`: in place of words.csv.  Raises
    InputError."""
    drafters: dict[str, Drafter] = {}
    pool: list[str] = []
    words = _words(folder)
    if (folder / "frames.json").is_file():
        drafters["Morphology"] = _morphology(folder, words_file, words)
    if (folder / "facts.json").is_file():
        tables = facts.read_tables(folder)
        drafters["Facts"] = partial(facts.draft, facts=tables)
        pool += facts.entity_pool(tables)
    if (folder / "logic.json").is_file():
        of_logic = logic.read_words(folder)
        drafters["Logic"] = partial(logic.draft, words=of_logic)
        pool += logic.pool(of_logic)
    if not drafters:
        raise InputError(
            f"--templates={folder} has a words.json alone, expected frames.json, facts.json or "
            "logic.json beside it: copy the package's and edit them"
        )
    rules = noise.read_rules(folder) if pool and words else None
    return Generators(folder.resolve().name, drafters, rules, tuple(pool))


def _morphology(folder: Path, words_file: Path | None, words: JsonObject) -> Drafter:
    """Invented stems by the rules that words.json names, or words of a table with all forms."""
    rules = words.get("rules")
    if rules is None:
        return partial(
            word_forms.draft, material=word_forms.read_material(folder, words_file, words)
        )
    if rules == "en":
        return partial(english_morphology.draft, material=english_morphology.read_material(folder))
    if rules == "ru":
        return partial(russian_morphology.draft, material=russian_morphology.read_material(folder))
    raise InputError(
        f"{folder / 'words.json'}: rules is {shown(rules)}, expected en or ru, or none and a "
        "words.csv with all forms"
    )


@cache
def items_of(language: str, per_category: int) -> tuple[Item, ...]:
    """Items of Morphology, Facts, Logic, then Noise of a language of the package.  Raises
    InputError if a category has fewer than `per_category`."""
    return make_items(read_generators(package_folder(language)), per_category)


def make_items(generators: Generators, per_category: int) -> tuple[Item, ...]:
    """Items of all categories, in published order.  Raises InputError as `items_of`."""
    if per_category > MOST:
        raise InputError(
            f"--items_per_category is {per_category}, miron-gen has no more than {MOST}: ask for "
            "fewer"
        )
    language = generators.language
    prefixes: set[str] = set()
    clean: list[Item] = []
    for category, draft in generators.drafters.items():
        make = partial(_clean_item, language, category, draft)
        clean += _items(language, category, per_category, make, prefixes)
    if generators.rules is None:
        return tuple(clean)
    partners = [item for item in clean if item.category != "Morphology"]
    make = partial(_noisy_item, generators, generators.rules, partners)
    return (*clean, *_items(language, "Noise", per_category, make, prefixes))


def _items(
    language: str, category: str, count: int, make: "Maker", prefixes: set[str]
) -> Iterator[Item]:
    """Items whose prefixes differ from `prefixes`, to which theirs are added."""
    for i in range(count):
        for attempt in range(TRIES):
            item = make(Stream(VERSION, language, category, i, attempt), i)
            if item is not None and item.prefix not in prefixes:
                break
        else:
            raise InputError(
                f"--items_per_category: miron-gen has no more than {i} different items of "
                f"{category} in {language!r}: ask for fewer"
            )
        prefixes.add(item.prefix)
        yield replace(item, id=f"{language}-{category.lower()}-{i:04d}")


Maker = Callable[[Stream, int], Item | None]  # a candidate for the item of this number, without id


def _clean_item(
    language: str, category: str, draft: Drafter, draw: Stream, number: int
) -> Item | None:
    clean = draft(draw)
    return clean and Item("", language, category, *clean)


def _noisy_item(
    generators: Generators, rules: noise.NoiseRules, clean: list[Item], draw: Stream, number: int
) -> Item | None:
    partner = draw.choice(clean)
    draft = Draft(
        partner.prefix, partner.target, partner.distractors, partner.template, partner.meta
    )
    noisy = noise.perturb(draw, draft, rules, generators.pool, noise.turn_of(number, rules))
    return noisy and replace(
        partner, category="Noise", prefix=noisy.prefix, pair_id=partner.id,
        clean_prefix=partner.prefix, operator=noisy.operator, num_edits=noisy.num_edits,
    )  # fmt: skip
