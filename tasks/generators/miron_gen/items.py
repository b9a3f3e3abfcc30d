"""miron-gen: generated items in the manner of MIRON, the same on every machine.

Arrives: a language and the number of items per category.  Leaves: `Item`s with unique prefixes,
categories in published order.  It deliberately does not know models or tokenizers.

An item depends on its number, and on the items before it only in that no prefix comes twice.  So
the first n items of a larger set are the smaller set, except for Noise, which draws its clean
partners from all Facts and Logic items.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

from miron_jax.definitions.records import Cloze
from miron_jax.errors import InputError
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.miron_gen import (
    english_morphology,
    facts,
    logic,
    noise,
    russian_morphology,
)
from miron_jax.tasks.generators.miron_gen.draft import Draft

VERSION = "1"  # another version, other items
CATEGORIES = ("Morphology", "Facts", "Logic", "Noise")
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


class _Generators(NamedTuple):
    """What makes the items of one language."""

    drafters: dict[str, Drafter]  # by category
    rules: noise.NoiseRules
    pool: tuple[str, ...]  # words that decide an answer: a reader must recover them from the noise


def _generators(
    morphology: Drafter, words: logic.LogicWords, rules: noise.NoiseRules
) -> _Generators:
    tables = facts.tables_of(words.language)
    drafters: dict[str, Drafter] = {
        "Morphology": morphology,
        "Facts": lambda draw: facts.draft(draw, tables),
        "Logic": lambda draw: logic.draft(draw, words),
    }
    return _Generators(drafters, rules, (*facts.entity_pool(tables), *logic.pool(words)))


_LANGUAGES = {
    "en": _generators(english_morphology.draft, logic.words_of("en"), noise.ENGLISH),
    "ru": _generators(russian_morphology.draft, logic.words_of("ru"), noise.RUSSIAN),
}


@cache
def items_of(language: str, per_category: int) -> tuple[Item, ...]:
    """Items of Morphology, Facts, Logic, then Noise.  Raises InputError if a category has fewer
    than `per_category`."""
    if per_category > MOST:
        raise InputError(
            f"--items_per_category is {per_category}, miron-gen has no more than {MOST}: ask for "
            "fewer"
        )
    prefixes: set[str] = set()
    clean: list[Item] = []
    for category, draft in _LANGUAGES[language].drafters.items():
        make = partial(_clean_item, language, category, draft)
        clean += _items(language, category, per_category, make, prefixes)
    make = partial(_noisy_item, language, clean[per_category:])
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


def _noisy_item(language: str, clean: list[Item], draw: Stream, number: int) -> Item | None:
    _, rules, pool = _LANGUAGES[language]
    partner = draw.choice(clean)
    draft = Draft(
        partner.prefix, partner.target, partner.distractors, partner.template, partner.meta
    )
    noisy = noise.perturb(draw, draft, rules, pool, noise.turn_of(number, rules))
    return noisy and replace(
        partner, category="Noise", prefix=noisy.prefix, pair_id=partner.id,
        clean_prefix=partner.prefix, operator=noisy.operator, num_edits=noisy.num_edits,
    )  # fmt: skip
