"""stub"""

from collections.abc import Iterator
from typing import NamedTuple

from miron_jax.tasks.miron_gen import (
    english_facts,
    english_logic,
    english_morphology,
    facts,
    logic,
    russian_facts,
    russian_logic,
    russian_morphology,
)
from miron_jax.tasks.miron_gen.draw import Draw


class Document(NamedTuple):
    text: str
    language: str
    category: str
    root: str


def _one(draw):
    lang = draw.below(2)
    cat = draw.below(3)
    if cat == 0:
        m = (english_morphology, russian_morphology)[lang]
        d = m.draft(draw, m.TRAINING)
        stem = d.meta[0][1]
        return Document(
            d.prefix + d.target + ".", "en", "Morphology", stem[:-1] if lang == 0 else russian_morphology.root(stem)
        )
    if cat == 1:
        return Document(facts.training_sentence(draw, (english_facts, russian_facts)[lang].FACTS), "en", "Facts", "")
    d = logic.draft(draw, (english_logic, russian_logic)[lang].WORDS, training=True)
    return d and Document(d.prefix + d.target + ".", "en", "Logic", "")


def documents(purpose: str, seed: int) -> Iterator[Document]:
    i = 0
    while True:
        d = _one(Draw("demo", purpose, seed, i))
        i += 1
        if d:
            yield d


def words_known_to_all(document: Document) -> str:
    if not document.root:
        return document.text
    return " ".join(w for w in document.text.split(" ") if document.root not in w.lower())
