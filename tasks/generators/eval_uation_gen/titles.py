"""UP-Titles' sampler of wrong titles and masker of digits, for articles of any source.

Arrives: `Article`s.  Leaves: rows in the published shape.  It deliberately does not know where
articles come from.

Titles come from the articles with the most similar tags, by cosine of their sets of tags.  Ties are
broken by a hash of both indices, so the order does not depend on how a machine sorts.  Titles that
are the same once masked appear once.  The titles of a row are similar to one of them, its center,
and every title is the center equally often.  In the published sets the right title always is, which
reveals it without the article: it shares most words with the other nine.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import scipy.sparse

from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject, are_texts
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.eval_uation.ukrainian import APOSTROPHES, comparable, one_apostrophe
from miron_jax.tasks.generators.eval_uation_gen.table import VERSION
from miron_jax.tasks.generators.eval_uation_gen.user_files import read_records

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


def mask_digits(text: str, forms: Collection[str] = ()) -> str:
    """Every ASCII digit becomes an X, and so does each word that is one of `forms`."""
    text = _DIGIT.sub(MASK, text)
    if not forms:
        return text
    return _WORD.sub(
        lambda word: MASK if one_apostrophe(word[0].lower()) in forms else word[0], text
    )


def title_rows(articles: Sequence[Article], name: str, at: str = "") -> list[JsonObject]:
    """A row for each article.  `at`: where they come from, if not of a file of this name.  Raises
    InputError where fewer than NUM_TITLES titles differ."""
    keys = [comparable(mask_digits(article.title)) for article in articles]
    num_titles = len(set(keys))
    if num_titles < NUM_TITLES:
        raise InputError(
            f"{at or name}: {num_titles} titles differ once their digits are masked, expected at "
            f"least {NUM_TITLES}: add {'words' if at else 'articles'}"
        )
    neighbours: list[list[int]] = []
    centers = defaultdict[int, list[int]](list)  # of each article those whose neighbour it is
    for center, similarity in enumerate(_similarities(articles)):
        neighbours.append(_most_similar(center, similarity, keys))
        for i in neighbours[center]:
            centers[i].append(center)
    rows = []
    for i in range(len(articles)):
        draw = Stream("eval-ua-tion-gen", VERSION, "up", name, i)
        center = draw.choice(centers[i]) if centers[i] and draw.below(NUM_TITLES) else i
        rows.append(_row(i, articles, draw.shuffled([center, *neighbours[center]]), center))
    return rows


def _similarities(articles: Sequence[Article]) -> Iterator[np.ndarray]:
    """For each article the cosine [all articles] of its set of tags with that of every article,
    float64."""
    columns: dict[str, int] = {}
    column_idxs: list[int] = []
    norms: list[float] = []
    starts = [0]
    for article in articles:
        tags = sorted({tag.strip().lower() for tag in article.tags} - {""})
        column_idxs += [columns.setdefault(tag, len(columns)) for tag in tags]
        norms += [1 / np.sqrt(max(1, len(tags)))] * len(tags)
        starts.append(len(column_idxs))
    matrix = scipy.sparse.csr_array(
        (norms, column_idxs, starts), shape=(len(articles), max(1, len(columns)))
    )
    for first in range(0, len(articles), _BLOCK):
        block = (matrix[first : first + _BLOCK] @ matrix.T).toarray()
        yield from np.round(block, 12)  # sums in another order differ in the last bits


def _most_similar(i: int, similarity: np.ndarray, keys: Sequence[str]) -> list[int]:
    """NUM_TITLES - 1 other articles with different titles, the most similar first."""
    chosen: list[int] = []
    seen = {keys[i]}
    for value in np.unique(similarity)[::-1]:
        tied = sorted(
            np.flatnonzero(similarity == value).tolist(),
            key=lambda j: sha256(f"{VERSION}/{i}/{j}".encode()).digest(),
        )
        for j in tied:
            if keys[j] not in seen:
                seen.add(keys[j])
                chosen.append(j)
            if len(chosen) == NUM_TITLES - 1:
                return chosen
    raise AssertionError("title_rows has counted the titles")


def _row(i: int, articles: Sequence[Article], order: Sequence[int], center: int) -> JsonObject:
    article = articles[i]
    return {
        "index": i,
        "tags": ",".join(article.tags),
        "ukr_title": article.title,
        "ukr_text": article.text,
        "similar_titles": [articles[j].title for j in order],
        "similar_idx": list(order),
        "similar_to_idx": center,
        "masked_text": mask_digits(article.text),
        "masked_title": mask_digits(article.title),
        "label": order.index(i),
    }


def masked_row(row: JsonObject, forms: Collection[str] = ()) -> JsonObject:
    """The row for up_masked: all titles are masked too; `forms`: see `mask_digits`, for the text as
    well."""
    return {
        **row,
        "masked_text": mask_digits(row["ukr_text"], forms),
        "masked_title": mask_digits(row["ukr_title"], forms),
        "similar_titles": [mask_digits(title, forms) for title in row["similar_titles"]],
    }


def read_articles(path: Path) -> list[Article]:
    """A user's articles: JSON objects with title, text and tags (a list, or one text with commas).
    Raises InputError."""
    return read_records(path, "--articles", _article, "title, text and tags")


def _article(fields: JsonObject, row: int) -> Article:
    tags = fields.get("tags")
    if isinstance(tags, str):
        tags = tags.split(",")
    texts = [fields.get(name, fields.get(f"ukr_{name}")) for name in ("title", "text")]
    if not are_texts(texts) or not all(map(str.strip, texts)):
        raise ValueError("expected the texts title and text")
    if not isinstance(tags, list) or (tags and not are_texts(tags)):
        raise ValueError(f"tags is {tags!r:.40}, expected a list of texts, or one text with commas")
    title, text = texts
    return Article(title, text, tuple(tags))
