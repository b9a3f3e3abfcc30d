"""Which titles stand beside the right one, and digits hidden: UP-Titles' sampler and masker, for articles of any source.

Arrives: `Article`s.  Leaves: rows in the published shape.  It deliberately does not know where articles come from.

Titles come from the articles whose tags are most alike, by cosine of their sets of tags.  Equally alike ones come in the
order of a hash of both places, so nothing hangs on how a machine sorts.  Titles that are the same once masked stand once.
The right title is no more often than any other the one that all are alike to: the most alike of the right one itself, as
published, would tell it without the article (it shares most words with the other nine).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from miron_jax.definitions.data_files import json_rows
from miron_jax.errors import InputError
from miron_jax.tasks.draw import Draw
from miron_jax.tasks.eval_uation.ukrainian import APOSTROPHES, comparable, one_apostrophe
from miron_jax.tasks.generators.eval_uation_gen.numerals import simple_forms
from miron_jax.tasks.generators.eval_uation_gen.rows import VERSION

NUM_TITLES = 10
MASK = "X"  # Latin, one a digit, as published
_DIGIT = re.compile("[0-9]")
_WORD = re.compile(rf"[^\W\d_]+(?:['{APOSTROPHES}][^\W\d_]+)*")
_BLOCK = 256  # articles compared with all others at a time


@dataclass(frozen=True, slots=True)
class Article:
    title: str
    text: str
    tags: tuple[str, ...]


def mask_digits(text: str, spelled: bool = False) -> str:
    """Every ASCII digit becomes an X; `spelled`: words for 1 to 99, cardinal or ordinal, in any form, become one X each."""
    text = _DIGIT.sub(MASK, text)
    if not spelled:
        return text
    forms = simple_forms()
    return _WORD.sub(lambda word: MASK if one_apostrophe(word[0].lower()) in forms else word[0], text)


def title_rows(articles: Sequence[Article], count: int | None = None, name: str = "articles") -> list[dict[str, Any]]:
    """A row for each of the first `count` articles.  Raises InputError where fewer than NUM_TITLES titles differ."""
    keys = [comparable(mask_digits(article.title)) for article in articles]
    if len(set(keys)) < NUM_TITLES:
        raise InputError(
            f"{name}: {len(set(keys))} titles differ once their digits are masked, expected at least {NUM_TITLES}: add "
            "articles"
        )
    near = [_most_alike(i, likeness, keys) for i, likeness in enumerate(_likeness(articles))]
    middles: list[list[int]] = [[] for _ in articles]  # of whose most alike each article is one
    for middle, others in enumerate(near):
        for i in others:
            middles[i].append(middle)
    rows = []
    for i in range(len(articles) if count is None else min(count, len(articles))):
        draw = Draw("eval-ua-tion-gen", VERSION, "up", name, i)
        middle = draw.choice(middles[i]) if middles[i] and draw.below(NUM_TITLES) else i
        rows.append(_row(i, articles, draw.shuffled([middle, *near[middle]]), middle))
    return rows


def _likeness(articles: Sequence[Article]) -> Iterator[np.ndarray]:
    """Of each article: cosine [all articles] of its set of tags with everyone's, float64."""
    place: dict[str, int] = {}
    tags = [sorted({tag.strip().lower() for tag in article.tags} - {""}) for article in articles]
    columns = [place.setdefault(tag, len(place)) for own in tags for tag in own]
    starts = np.concatenate([[0], np.cumsum([len(own) for own in tags])])
    norms = np.repeat([1 / np.sqrt(max(1, len(own))) for own in tags], [len(own) for own in tags])
    matrix = scipy.sparse.csr_array((norms, columns, starts), shape=(len(articles), max(1, len(place))))
    for first in range(0, len(articles), _BLOCK):
        block = (matrix[first : first + _BLOCK] @ matrix.T).toarray()
        yield from np.round(block, 12)  # sums in another order differ in the last bits


def _most_alike(i: int, likeness: np.ndarray, keys: Sequence[str]) -> list[int]:
    """NUM_TITLES - 1 other articles with titles of their own, the most alike first."""
    found: list[int] = []
    met = {keys[i]}
    for value in np.unique(likeness)[::-1]:
        tied = sorted(
            np.flatnonzero(likeness == value).tolist(), key=lambda j: sha256(f"{VERSION}/{i}/{j}".encode()).digest()
        )
        for j in tied:
            if keys[j] not in met:
                met.add(keys[j])
                found.append(j)
            if len(found) == NUM_TITLES - 1:
                return found
    raise AssertionError("title_rows has counted the titles")


def _row(i: int, articles: Sequence[Article], order: Sequence[int], middle: int) -> dict[str, Any]:
    own = articles[i]
    return {
        "index": i,
        "tags": ",".join(own.tags),
        "ukr_title": own.title,
        "ukr_text": own.text,
        "similar_titles": [articles[j].title for j in order],
        "similar_idx": list(order),
        "similar_to_idx": middle,
        "masked_text": mask_digits(own.text),
        "masked_title": mask_digits(own.title),
        "label": order.index(i),
    }


def masked_row(row: dict[str, Any], spelled: bool = False) -> dict[str, Any]:
    """As up_masked has it: the titles' digits are hidden too; `spelled`: see `mask_digits`, also of the text."""
    titles = [mask_digits(title, spelled) for title in row["similar_titles"]]
    own = {
        name: mask_digits(row[of], spelled) for name, of in (("masked_text", "ukr_text"), ("masked_title", "ukr_title"))
    }
    return {**row, **own, "similar_titles": titles}


def read_articles(path: Path) -> list[Article]:
    """A user's own: JSON objects with title, text and tags (a list, or one text with commas).  Raises InputError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"--articles={path} cannot be read ({error.strerror}): name a file of JSON objects with title, text and tags"
        ) from None
    found = []
    for number, fields in enumerate(json_rows(content, path, "--articles"), 1):
        tags = fields.get("tags")
        tags = tags.split(",") if isinstance(tags, str) else tags
        texts = [fields.get("title", fields.get("ukr_title")), fields.get("text", fields.get("ukr_text"))]
        if not all(isinstance(own, str) and own.strip() for own in texts):
            raise InputError(f"--articles={path}, record {number}: expected the texts title and text: mend the record")
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise InputError(
                f"--articles={path}, record {number}: tags is {tags!r:.40}, expected a list of texts, or one text with "
                "commas: mend the record"
            )
        found.append(Article(texts[0], texts[1], tuple(tags)))
    return found
