"""The animals, objects, actions and places of the stories, with all their forms.

Arrives: the text files in this folder and the package's nouns.  Leaves: `Noun`s and `Verb`s.  It
deliberately does not know stories.
"""

from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from miron_jax.tasks.generators.eval_uation_gen.story_words import CASES, known_nouns
from tools.eval_uation_gen.numerals import Gender

StoryCase = Literal["nom", "gen", "dat", "acc", "ins", "loc", "voc"]
NUM_NOUNS = 14
STORY_CASES: tuple[StoryCase, ...] = ("nom", "gen", "dat", "acc", "ins", "loc", "voc")
# Actions that leave the actor with the object, who may then be proud of it or give it away.
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
    """Something that an animal does without an object or another animal."""

    masculine: str
    feminine: str

    def by(self, gender: Gender) -> str:
        return self.masculine if gender == "m" else self.feminine


def lines(name: str) -> list[str]:
    return Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()


def table(name: str) -> list[list[str]]:
    return [line.split("\t") for line in lines(name)]


@cache
def nouns(kind: str, gender: Gender) -> tuple[Noun, ...]:
    """The first NUM_NOUNS of a kind and gender: those that the rows of the package are about."""
    chosen = []
    for word, word_kind in known_nouns():
        if (word.gender, word_kind) == (gender, kind):
            forms = tuple(word.forms[case] for case in CASES)
            chosen.append(Noun(word.lemma, gender, kind, forms))
    return tuple(chosen[:NUM_NOUNS])


@cache
def verbs() -> tuple[Verb, ...]:
    return tuple(Verb(lemma, (m, f, n)) for lemma, m, f, n, *_ in table("verbs_uk.txt"))


@cache
def places() -> tuple[str, ...]:
    return tuple(lines("places_uk.txt"))


@cache
def idle() -> tuple[Idle, ...]:
    return tuple(Idle(*row) for row in table("idle_uk.txt"))
