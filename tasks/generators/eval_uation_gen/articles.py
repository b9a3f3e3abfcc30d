"""Invented news articles, each made of a frame: who, where, did what, how many of what, when.

Arrives: a language with an UPTitles.yaml, the number of articles.  Leaves: `Article`s whose tags
are slots of their frames.  It deliberately does not know how titles are sampled.

No two articles share actor, town, action and object, so no other title is true of an article even
with its digits masked.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from miron_jax.files.readers import Json, JsonObject, shown
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.eval_uation_gen import table
from miron_jax.tasks.generators.eval_uation_gen.language import Language, check_fields
from miron_jax.tasks.generators.eval_uation_gen.titles import Article

UP_TITLES = "UPTitles.yaml"
_OF_ARTICLE = ("number", "before", "days", "people", "money", "more", "actor_low")
# list of words -> what each of its words has; a mapping of genders may stand for a text
_WORDS = {
    "actors": ("actor", "gender", "tag"),
    "towns": ("town", "at"),
    "doings": ("did", "did_else", "tag"),
    "things": ("things", "tag", "purpose"),
    "months": ("month", "month_of", "in_month"),
}
_OF_FRAME = ("actors", "towns", "doings", "things")
_ONE_TEXT = ("actor", "gender", "tag", "town")  # for all genders
_FIELDS = tuple(dict.fromkeys(chain(*_WORDS.values(), _OF_ARTICLE)))
_TEMPLATES = ("titles", "openings", "middle", "end")
_PER_ARTICLE = 3  # sentences of the middle


class _Title(NamedTuple):
    template: str
    gender: str | None  # of the actors that it speaks of; None: of any


class Frames(NamedTuple):
    """The words and templates of articles."""

    words: Mapping[str, Sequence[JsonObject]]  # by the names of _WORDS
    titles: Sequence[_Title]
    templates: Mapping[str, Sequence[str]]  # the others of _TEMPLATES
    numbers: Sequence[int]  # of as many digits, so that no mask's length reveals a title


def read_frames(language: Language) -> Frames:
    """Raises InputError."""
    fields = language.mapping(UP_TITLES)
    for key in fields:
        if key not in (*_WORDS, *_TEMPLATES, "numbers"):
            raise language.wrong(UP_TITLES, f"key {key!r} is not known: remove it")
    words = {name: _words(language, name, fields.get(name)) for name in _WORDS}
    numbers = fields.get("numbers")
    if not isinstance(numbers, list) or not all(type(n) is int for n in numbers) or not numbers:
        raise language.wrong(UP_TITLES, f"numbers is {shown(numbers)}, expected whole numbers")
    templates: dict[str, list[_Title]] = {}
    for name in _TEMPLATES:
        given = fields.get(name)
        templates[name] = []
        for i, each in enumerate(given if isinstance(given, list) else ()):
            title = each if isinstance(each, dict) else {"template": each}
            text = title.get("template")
            if not isinstance(text, str):
                raise language.wrong(UP_TITLES, f"{name} {i} is {shown(each)}, expected a text")
            check_fields(text, _FIELDS, f"{language.file(UP_TITLES)}: {name} {i}")
            templates[name].append(_Title(text, title.get("gender")))
        if len(templates[name]) < (_PER_ARTICLE if name == "middle" else 1):
            raise language.wrong(UP_TITLES, f"{name} is {shown(given)}, expected a list of texts")
    titles = templates.pop("titles")
    texts = {name: [each.template for each in of] for name, of in templates.items()}
    for actor in words["actors"]:
        if not _titles(titles, actor["gender"]):
            raise language.wrong(UP_TITLES, f"no title is of gender {actor['gender']!r}: add one")
    return Frames(words, titles, texts, numbers)


def _titles(titles: Sequence[_Title], gender: str) -> list[str]:
    return [title.template for title in titles if title.gender in (None, gender)]


def _words(language: Language, name: str, given: Json) -> Sequence[JsonObject]:
    if not isinstance(given, list) or not given:
        raise language.wrong(UP_TITLES, f"{name} is {shown(given)}, expected a list of words")
    genders = set[str]()
    if name != "actors":
        actors = language.mapping(UP_TITLES).get("actors") or ()
        genders = {str(each.get("gender")) for each in actors if isinstance(each, dict)}
    for i, word in enumerate(given):
        for key in _WORDS[name]:
            form = word.get(key) if isinstance(word, dict) else None
            at = f"{name} {i} is {shown(word)}"
            is_blank = key in ("actor", "town") and not str(form).strip()
            if key in _ONE_TEXT and (isinstance(form, dict) or is_blank):
                raise language.wrong(UP_TITLES, f"{at}, expected one text for {key}: mend it")
            forms = form if isinstance(form, dict) else dict.fromkeys(genders or ("",), form)
            for gender in sorted(genders or {""}):
                text = forms.get(gender)
                if not isinstance(text, str):
                    of = f" for gender {gender!r}" if isinstance(form, dict) else ""
                    raise language.wrong(UP_TITLES, f"{at}, without {key}{of}: add it")
                if key == "purpose":
                    at_purpose = f"{language.file(UP_TITLES)}: purpose of {name} {i}"
                    check_fields(text, [*filter(key.__ne__, _FIELDS)], at_purpose)
    return given


def articles(language: Language, count: int) -> list[Article]:
    """`count` articles of different frames, or as many as there are."""
    frames = read_frames(language)
    words = frames.words
    most = math.prod(len(words[name]) for name in _OF_FRAME)
    by_frame: dict[tuple[int, ...], Article] = {}
    attempts = 0
    while len(by_frame) < min(count, most):
        draw = Stream(table.NAME, table.VERSION, "articles", len(by_frame), attempts)
        attempts += 1
        frame = [draw.below(len(words[name])) for name in _OF_FRAME]
        if tuple(frame) not in by_frame:
            by_frame[tuple(frame)] = _article(draw, frames, frame)
    return list(by_frame.values())


def _article(draw: Stream, frames: Frames, idxs: Sequence[int]) -> Article:
    month = draw.choice(frames.words["months"])
    of_frame = [frames.words[name][i] for name, i in zip(_OF_FRAME, idxs, strict=True)]
    actor, town, doing, thing = of_frame
    gender = actor["gender"]
    words = {}
    for name, word in zip((*_OF_FRAME, "months"), (*of_frame, month), strict=True):
        for key in _WORDS[name]:
            words[key] = word[key]
            if isinstance(word[key], dict):
                words[key] = word[key][gender]
    tags = filter(None, (actor["tag"], town["town"].lower(), doing["tag"], thing["tag"]))
    words |= {
        "actor_low": actor["actor"][0].lower() + actor["actor"][1:],
        "number": draw.choice(frames.numbers),
        "before": _many(draw, 5, 10),
        "days": _many(draw, 5, 90),
        "people": _many(draw, 105, 998),
        "money": _many(draw, 105, 9990),
        "more": _many(draw, 5, 98),
    }
    words["purpose"] = words["purpose"].format(**words)
    sentences = draw.sample(frames.templates["middle"], _PER_ARTICLE)
    middle = [sentence.format(**words) for sentence in sentences]
    opening = draw.choice(frames.templates["openings"]).format(**words)
    end = draw.choice(frames.templates["end"]).format(**words)
    body = [opening, words["purpose"], *middle, end]
    title = draw.choice(_titles(frames.titles, gender)).format(**words)
    return Article(title, " ".join(body), tuple(tags))


def _many(draw: Stream, least: int, most: int) -> int:
    """A number that takes the genitive plural."""
    while True:
        n = least + draw.below(most - least + 1)
        if n % 100 in range(11, 15) or n % 10 in (0, 5, 6, 7, 8, 9):
            return n
