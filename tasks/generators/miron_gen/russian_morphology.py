"""Russian morphology: an invented word in a sentence that calls for one case, gender or person of
it.

Arrives: a source of draws; lemmas and frames, of the benchmark or of the demo model's training
text, which are disjoint.  Leaves: one candidate item.  It deliberately does not know which prefixes
are in use, nor how the lemmas were chosen: benchmarks/freeze_stems.py wrote stems_ru.txt once
(benchmark, blank line, training).

The tables are right for that list only: no lemma has a soft or hushing end or a fleeting vowel, or
looks like a surname. The accusative of masculine nouns, which depends on animacy, never occurs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from miron_jax.tasks.draw import Draw
from miron_jax.tasks.generators.miron_gen.draft import Draft, Frames, frames_of


class Form(NamedTuple):
    """Endings after the root; `attach` spells "ы" and "и"."""

    right: str
    # the lemma's, then endings of other forms or declensions, or of no Russian word
    wrong: tuple[str, str, str]


class Material(NamedTuple):
    """Lemmas and wordings of one side, benchmark or training."""

    stems: Mapping[str, tuple[str, ...]]  # family -> lemmas
    frames: Frames  # form -> wordings; a slot is "lemma" or a key of SLOTS


_LEMMA_ENDING = {"verb": "ать", "adjective": "ый", "feminine": "а", "masculine": ""}

# No wrong ending may be a second right answer.  Excluded: -у for a masculine genitive or
# prepositional (чаю, в саду), -а for its nominative plural (дома), the same case in the other
# number, and -у for -аю (ору, жду).
_ENDINGS: dict[str, dict[str, Form]] = {
    "masculine": {
        "genitive": Form("а", ("", "ы", "ом")),
        "dative": Form("у", ("", "е", "ом")),
        "instrumental": Form("ом", ("", "ой", "а")),
        "prepositional": Form("е", ("", "ой", "ом")),
        "plural_nominative": Form("ы", ("", "и", "ов")),
        "plural_genitive": Form("ов", ("", "ей", "ам")),
        "plural_dative": Form("ам", ("", "ом", "ов")),
        "plural_instrumental": Form("ами", ("", "ой", "ах")),
        "plural_prepositional": Form("ах", ("", "ов", "ами")),
    },
    "feminine": {
        "genitive": Form("ы", ("а", "и", "ой")),
        "dative": Form("е", ("а", "у", "ой")),
        "accusative": Form("у", ("а", "ом", "ой")),
        "instrumental": Form("ой", ("а", "ом", "у")),
        "prepositional": Form("е", ("а", "ом", "ой")),
        "plural_nominative": Form("ы", ("а", "и", "ам")),
        "plural_genitive": Form("", ("а", "ов", "ам")),
        "plural_dative": Form("ам", ("а", "ом", "ах")),
        "plural_instrumental": Form("ами", ("а", "ом", "ах")),
        "plural_prepositional": Form("ах", ("а", "ов", "ами")),
    },
    "adjective": {
        "masculine_genitive": Form("ого", ("ый", "его", "ым")),
        "masculine_dative": Form("ому", ("ый", "ему", "ого")),
        "masculine_instrumental": Form("ым", ("ый", "им", "ого")),
        "masculine_prepositional": Form("ом", ("ый", "ем", "ому")),
        "feminine_nominative": Form("ая", ("ый", "яя", "ую")),
        "feminine_oblique": Form("ой", ("ый", "ей", "ую")),
        "feminine_accusative": Form("ую", ("ый", "юю", "ой")),
        "neuter_nominative": Form("ое", ("ый", "ая", "ого")),
        "plural_nominative": Form("ые", ("ый", "ие", "ых")),
        "plural_genitive": Form("ых", ("ый", "их", "ыми")),
        "plural_dative": Form("ым", ("ый", "им", "ых")),
        "plural_instrumental": Form("ыми", ("ый", "ими", "ых")),
    },
    "verb": {
        "first_singular": Form("аю", ("ать", "ую", "ает")),
        "third_singular": Form("ает", ("ать", "ует", "аю")),
        "third_plural": Form("ают", ("ать", "уют", "ает")),
        "past_masculine": Form("ал", ("ать", "ил", "ала")),
        "past_feminine": Form("ала", ("ать", "ила", "ал")),
        "past_neuter": Form("ало", ("ать", "ило", "ала")),
        "past_plural": Form("али", ("ать", "или", "ало")),
    },
}

FORMS = tuple(f"{family}_{form}" for family, endings in _ENDINGS.items() for form in endings)


def family(lemma: str) -> str:
    """The family that a lemma's ending shows; unambiguous for the lemmas of the list."""
    return next(name for name, ending in _LEMMA_ENDING.items() if lemma.endswith(ending))


def root(lemma: str) -> str:
    return lemma.removesuffix(_LEMMA_ENDING[family(lemma)])


def attach(root: str, ending: str) -> str:
    """Root and ending: "ы" is spelt и after г к х; the wrong ending "и" becomes whichever of both
    is a misspelling."""
    velar = root[-1] in "гкх"
    return root + {"ы": "и" if velar else "ы", "и": "ы" if velar else "и"}.get(ending, ending)


def inflect(lemma: str, form: str) -> str:
    kind = family(lemma)
    return attach(root(lemma), _ENDINGS[kind][form.removeprefix(f"{kind}_")].right)


def misinflect(lemma: str, form: str) -> tuple[str, ...]:
    kind = family(lemma)
    return tuple(
        attach(root(lemma), ending)
        for ending in _ENDINGS[kind][form.removeprefix(f"{kind}_")].wrong
    )


SLOTS = {
    "he": (
        "Антон",
        "Борис",
        "Виктор",
        "Денис",
        "Игорь",
        "Кирилл",
        "Максим",
        "Олег",
        "Павел",
        "Роман",
    ),
    "she": ("Анна", "Вера", "Дарья", "Жанна", "Инна", "Лидия", "Марина", "Нина", "Ольга", "Софья"),
    "few": ("два", "три", "четыре"),
    "few_f": ("две", "три", "четыре"),
    "many": ("пять", "шесть", "семь", "восемь", "девять", "десять"),
}

# A preposition, numeral or verb determines the case, a pronoun or numeral the number and gender;
# the lemma appears as a subject.  In no frame would the lemma itself be right.
FRAMES, TRAINING_FRAMES = frames_of("ru")


def _by_family(lemmas: str) -> dict[str, tuple[str, ...]]:
    return {
        name: tuple(lemma for lemma in lemmas.split() if family(lemma) == name) for name in _ENDINGS
    }


def _stem_lists() -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    text = Path(__file__).with_name("stems_ru.txt").read_text(encoding="utf-8")
    benchmark, training = (_by_family(part) for part in text.split("\n\n"))
    return benchmark, training


BENCHMARK_STEMS, TRAINING_STEMS = _stem_lists()
BENCHMARK = Material(BENCHMARK_STEMS, FRAMES)
TRAINING = Material(TRAINING_STEMS, TRAINING_FRAMES)


def draft(draw: Draw, material: Material = BENCHMARK) -> Draft:
    """One candidate: the form is drawn first and uniformly, then a wording, then a lemma of the
    form's family."""
    form = draw.choice(FORMS)
    frame_idx = draw.below(len(material.frames[form]))
    lemma = draw.choice(material.stems[form.partition("_")[0]])
    words = {slot: draw.choice(options) for slot, options in SLOTS.items()}
    return Draft(
        prefix=material.frames[form][frame_idx].format(lemma=lemma, **words),
        target=" " + inflect(lemma, form),
        distractors=tuple(" " + word for word in misinflect(lemma, form)),
        template=f"{form}/{frame_idx}",
        meta=(("stem", lemma), ("form", form), ("family", family(lemma))),
    )
