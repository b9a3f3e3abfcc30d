"""The training text of the demo model: documents of one sentence or item each, in English and
Russian.

Arrives: a purpose and a seed; wordings and sounds, demo_text.json.  Leaves: `Document`s without
end, the same on every machine.  It deliberately does not know tokenizers or models.

The text extends the training side of miron_gen (its training stems and wordings, its facts, the
series that the benchmark never holds): a model that meets an ability in three wordings and with
four hundred stems learns just those.  No wording and no stem is one of the benchmark; tests check
that.

In a wording [a|b|c] stands for one of the three; all combinations are written out when the module
is imported.  Stems are made of sounds that few words of the language have, and whose forms are
spelt regularly.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, product
from pathlib import Path
from typing import NamedTuple

from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.miron_gen import (
    english_morphology,
    facts,
    logic,
    russian_morphology,
)
from miron_jax.tasks.generators.miron_gen.draft import Draft, Frames


class Document(NamedTuple):
    text: str
    language: str  # "en" or "ru"
    category: str  # as the benchmark calls it
    # character at which the part begins that a reader could know; the part before it is drawn
    knowable_start: int
    root: str  # the beginning that all forms of the invented word share; "" if no word is invented


# Of twelve documents.  Facts are few and short; endings and series want many examples.
_CATEGORIES = ("Morphology",) * 5 + ("Facts",) * 3 + ("Logic",) * 4
_LANGUAGES = ("en",) * 7 + ("ru",) * 5

_NUM_RUSSIAN = 1500  # stems drawn of each family
# of each wording in a table of frames: one without choices weighs as much as one with many
_TEXTS = 24

_DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def expanded(wording: str) -> tuple[str, ...]:
    """ "[We|I] sing[| now]" -> "We sing", "We sing now", "I sing", "I sing now".  Empty choices
    leave one space."""
    parts = [part.split("|") for part in re.split(r"[\[\]]", wording)]
    return tuple(" ".join("".join(choice).split()) for choice in product(*parts))


def _evenly(texts: tuple[str, ...]) -> tuple[str, ...]:
    """_TEXTS of one wording's texts, some of them more than once or not at all."""
    return tuple(texts[i * len(texts) // _TEXTS] for i in range(_TEXTS))


def _widened(frames: Frames, added: Mapping[str, Sequence[str]]) -> Frames:
    """The frames of each form with the added ones, all expanded."""
    wordings = {
        form: [*((frame,) for frame in frames[form]), *map(expanded, added.get(form, ()))]
        for form in frames
    }
    return {
        form: tuple(text for texts in wordings[form] for text in _evenly(texts)) for form in frames
    }


def _facts(language: str) -> facts.FactTables:
    """The benchmark's facts with all training wordings."""
    added: Mapping[str, list[str]] = _DATA[language]["facts"]
    tables = facts.tables_of(language)
    widened = (
        replace(t, training_templates=(*t.training_templates, *added[t.name]))
        for t in tables.tables
    )
    return replace(tables, tables=tuple(widened))


def _logic(words: logic.LogicWords) -> logic.LogicWords:
    """The benchmark's words with all training wordings: families of series share theirs, the others
    have their own."""
    added: Mapping[str, list[str]] = _DATA[words.language]["logic"]
    series: list[str] = _DATA[words.language]["series"]
    training: Frames = {family.name: family.training for family in words.families}
    frames = _widened(training, {name: added.get(name, series) for name in training})
    return replace(
        words,
        families=tuple(family._replace(training=frames[family.name]) for family in words.families),
    )


def _english_stems() -> tuple[str, ...]:
    sounds = _DATA["en"]
    invented = (
        onset + rime for onset in sounds["onsets"].split() for rime in sounds["rimes"].split()
    )
    return tuple(
        sorted(
            {*english_morphology.TRAINING.stems, *invented}
            - set(english_morphology.BENCHMARK.stems)
        )
    )


def _russian_stems(family: str, endings: Sequence[str]) -> tuple[str, ...]:
    draw = Stream("miron-jax demo", "stems", family)
    onsets, finals = _DATA["ru"]["onsets"].split(), _DATA["ru"]["finals"][family]
    sounds = (onsets, "аоуие", "бвгдзклмнпрстх", "аоуи", finals, endings)
    invented = {"".join(draw.choice(part) for part in sounds) for _ in range(_NUM_RUSSIAN)}
    training = russian_morphology.TRAINING.stems[family]
    return tuple(sorted({*training, *invented} - set(russian_morphology.BENCHMARK.stems[family])))


ENGLISH_MATERIAL = english_morphology.EnglishMaterial(
    _english_stems(), _widened(english_morphology.TRAINING.frames, _DATA["en"]["frames"])
)
RUSSIAN_MATERIAL = russian_morphology.RussianMaterial(
    {family: _russian_stems(family, endings) for family, endings in _DATA["ru"]["endings"].items()},
    _widened(russian_morphology.TRAINING.frames, _DATA["ru"]["frames"]),
)
FACTS = {"en": _facts("en"), "ru": _facts("ru")}
LOGIC = {"en": _logic(logic.words_of("en")), "ru": _logic(logic.words_of("ru"))}


def documents(purpose: str, seed: int) -> Iterator[Document]:
    """Endless documents.  Each is drawn by its own number, so the first n do not depend on how many
    are read."""
    for i in count():
        document = _document(Stream("miron-jax demo", purpose, seed, i))
        if document is not None:
            yield document


def words_known_to_all(document: Document) -> str:
    """The text without the forms of its invented word."""
    if not document.root:
        return document.text
    return " ".join(word for word in document.text.split() if document.root not in word)


def _document(draw: Stream) -> Document | None:
    language, category = draw.choice(_LANGUAGES), draw.choice(_CATEGORIES)
    if category == "Facts":
        return Document(facts.training_sentence(draw, FACTS[language]), language, category, 0, "")
    if category == "Logic":
        draft = logic.draft(draw, LOGIC[language], training=True)
        return None if draft is None else _of_draft(draft, language, category, "")
    return _morphology(draw, language)


def _morphology(draw: Stream, language: str) -> Document:
    if language == "en":
        draft = english_morphology.draft(draw, ENGLISH_MATERIAL)
        root = dict(draft.meta)["stem"][:-1]  # less an e or y that may change
    else:
        draft = russian_morphology.draft(draw, RUSSIAN_MATERIAL)
        root = russian_morphology.root(dict(draft.meta)["stem"])
    return _of_draft(draft, language, "Morphology", root)


def _of_draft(draft: Draft, language: str, category: str, root: str) -> Document:
    return Document(f"{draft.prefix}{draft.target}.", language, category, len(draft.prefix), root)
