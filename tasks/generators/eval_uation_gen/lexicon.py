"""The animals, objects, actions and places of the stories, with all their forms.

Arrives: the text files in this folder.  Leaves: `Noun`s and `Verb`s.  It deliberately does not know stories.
"""

from functools import cache
from typing import Literal, NamedTuple

from miron_jax.tasks.generators.eval_uation_gen.numerals import Gender
from miron_jax.tasks.generators.eval_uation_gen.words import lines

StoryCase = Literal["nom", "gen", "dat", "acc", "ins", "loc", "voc"]
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


@cache
def nouns(kind: str, gender: Gender) -> tuple[Noun, ...]:
    rows = [line.split("\t") for line in lines("nouns_uk.txt")]
    return tuple(
        Noun(lemma, gender, kind, tuple(forms))
        for lemma, row_gender, row_kind, *forms in rows
        if (row_gender, row_kind) == (gender, kind)
    )


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
