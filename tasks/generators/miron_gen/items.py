"""miron-gen: this project's own items in the manner of MIRON, the same on every machine.

Arrives: a language and how many items of each category.  Leaves: `Item`s, prefixes unique, categories in published order.
It deliberately does not know models or tokenizers.  An item depends on its place, and on the items before it in so far
as no prefix comes twice: the first n of a larger set are the smaller set, Noise excepted, which draws its clean partners
from all Facts and Logic items.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from miron_jax.definitions.records import Cloze
from miron_jax.errors import InputError
from miron_jax.tasks.draw import Draw
from miron_jax.tasks.generators.miron_gen import (
    english_logic,
    english_morphology,
    noise,
    russian_logic,
    russian_morphology,
)
from miron_jax.tasks.generators.miron_gen import facts as facts_of
from miron_jax.tasks.generators.miron_gen import logic as logic_of
from miron_jax.tasks.generators.miron_gen.draft import Draft

VERSION = "1"  # another version, other items
CATEGORIES = ("Morphology", "Facts", "Logic", "Noise")
MOST = 2000  # Facts has 2,254 prefixes in Russian
TRIES = 2000  # draws of one place before its category is said to be used up


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
    pair_id: str | None = None  # of the clean item that a noisy one was made from
    clean_prefix: str | None = None
    operator: str | None = None
    num_edits: int = 0

    @property
    def space_in_prefix(self) -> "Item":
        """The same text with its space on the other side of the border, where it breaks many tokenizers' seams."""
        moved = tuple(other[1:] for other in self.distractors)
        clean = None if self.clean_prefix is None else self.clean_prefix + " "
        return replace(self, prefix=self.prefix + " ", target=self.target[1:], distractors=moved, clean_prefix=clean)

    def cloze(self, row: int) -> Cloze:
        return Cloze(
            row, self.id, self.prefix, self.target, self.category, self.distractors, self.clean_prefix, self.operator,
            self.num_edits,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Language:
    morphology: Callable[[Draw], Draft | None]
    facts: Callable[[Draw], Draft | None]
    logic: Callable[[Draw], Draft | None]
    rules: noise.NoiseRules
    pool: tuple[str, ...]  # words that an item can turn on: noise must leave them recoverable


_LANGUAGES = {
    "en": _Language(
        lambda draw: english_morphology.draft(draw, english_morphology.BENCHMARK),
        lambda draw: facts_of.draft(draw, facts_of.tables_of("en")),
        lambda draw: logic_of.draft(draw, english_logic.WORDS),
        noise.ENGLISH,
        (*facts_of.entity_pool(facts_of.tables_of("en")), *logic_of.pool(english_logic.WORDS)),
    ),
    "ru": _Language(
        lambda draw: russian_morphology.draft(draw, russian_morphology.BENCHMARK),
        lambda draw: facts_of.draft(draw, facts_of.tables_of("ru")),
        lambda draw: logic_of.draft(draw, russian_logic.WORDS),
        noise.RUSSIAN,
        (*facts_of.entity_pool(facts_of.tables_of("ru")), *logic_of.pool(russian_logic.WORDS)),
    ),
}


@cache
def items_of(language: str, per_category: int) -> tuple[Item, ...]:
    """Morphology, Facts, Logic, then Noise.  Raises InputError where a category has fewer items than are asked for."""
    if per_category > MOST:
        raise InputError(f"--items_per_category is {per_category}, miron-gen has no more than {MOST}: ask for fewer")
    own, taken = _LANGUAGES[language], set[str]()
    clean: list[Item] = []
    for category, draft in (("Morphology", own.morphology), ("Facts", own.facts), ("Logic", own.logic)):
        clean += _items(language, category, per_category, draft, taken)
    noisy = _noisy_items(language, per_category, own, clean[per_category:], taken)
    return (*clean, *noisy)


def _items(
    language: str, category: str, count: int, draft: Callable[[Draw], Draft | None], taken: set[str]
) -> Iterator[Item]:
    for i in range(count):
        for attempt in range(TRIES):
            found = draft(Draw(VERSION, language, category, i, attempt))
            if found is not None and found.prefix not in taken:
                break
        else:
            raise _used_up(language, category, i)
        taken.add(found.prefix)
        yield Item(_id(language, category, i), language, category, *found)


def _noisy_items(language: str, count: int, own: _Language, clean: list[Item], taken: set[str]) -> Iterator[Item]:
    for i in range(count):
        turn = noise.turn_of(i, own.rules)
        for attempt in range(TRIES):
            draw = Draw(VERSION, language, "Noise", i, attempt)
            partner = draw.choice(clean)
            draft = Draft(partner.prefix, partner.target, partner.distractors, partner.template, partner.meta)
            found = noise.perturb(draw, draft, own.rules, own.pool, turn)
            if found is not None and found.prefix not in taken:
                break
        else:
            raise _used_up(language, "Noise", i)
        taken.add(found.prefix)
        made_of = (partner.target, partner.distractors, partner.template, partner.meta, partner.id, partner.prefix)
        yield Item(
            _id(language, "Noise", i), language, "Noise", found.prefix, *made_of, found.operator, found.num_edits
        )


def _id(language: str, category: str, i: int) -> str:
    return f"{language}-{category.lower()}-{i:04d}"


def _used_up(language: str, category: str, count: int) -> InputError:
    return InputError(
        f"--items_per_category: miron-gen has no more than {count} different items of {category} in {language!r}: "
        "ask for fewer"
    )
