"""The animals, things, doings and places that stories are made of, every form stored.

Arrives: the text files beside this one.  Leaves: `Noun`s and `Verb`s.  It deliberately does not know stories.
"""

from functools import cache
from typing import Literal, NamedTuple

from miron_jax.tasks.generators.eval_uation_gen.numerals import Gender
from miron_jax.tasks.generators.eval_uation_gen.words import lines

StoryCase = Literal["nom", "gen", "dat", "acc", "ins", "loc", "voc"]
STORY_CASES: tuple[StoryCase, ...] = ("nom", "gen", "dat", "acc", "ins", "loc", "voc")
# Doings after which a thing is there to be shown, given away or taken pride in.
_KEEPING = frozenset(
    {"знайти", "змайструвати", "полагодити", "помити", "купити", "виграти", "прикрасити", "зважити"}
)  # fmt: skip


class Noun(NamedTuple):
    lemma: str
    gender: Gender
    kind: str  # "animal", "thing"
    forms: tuple[str, ...]  # singular, by STORY_CASES

    def form(self, case: StoryCase) -> str:
        return self.forms[STORY_CASES.index(case)]


class Verb(NamedTuple):
    lemma: str
    past: tuple[str, str, str]  # masculine, feminine, neuter

    @property
    def keeps(self) -> bool:
        return self.lemma in _KEEPING

    def by(self, gender: Gender) -> str:
        return self.past["mfn".index(gender)]


class Idle(NamedTuple):
    """Something that an animal does, which tells nothing about things or others."""

    masculine: str
    feminine: str

    def by(self, gender: Gender) -> str:
        return self.masculine if gender == "m" else self.feminine


@cache
def nouns(kind: str, gender: Gender) -> tuple[Noun, ...]:
    rows = [line.split("\t") for line in lines("nouns_uk.txt")]
    found = [Noun(lemma, own, what, tuple(forms)) for lemma, own, what, *forms in rows]  # pyright: ignore[reportArgumentType]
    return tuple(noun for noun in found if (noun.kind, noun.gender) == (kind, gender))


@cache
def verbs() -> tuple[Verb, ...]:
    rows = [line.split("\t") for line in lines("verbs_uk.txt")]
    return tuple(Verb(lemma, (past_m, past_f, past_n)) for lemma, past_m, past_f, past_n, *_ in rows)


@cache
def places() -> tuple[str, ...]:
    return tuple(lines("places_uk.txt"))


@cache
def idle() -> tuple[Idle, ...]:
    rows = [line.split("\t") for line in lines("idle_uk.txt")]
    return tuple(Idle(*row) for row in rows)
