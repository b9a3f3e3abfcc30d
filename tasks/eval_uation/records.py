"""Eval-UA-tion's rows -> what is asked, what may be answered, and what examples share.

Arrives: one row of a data set as published, flattened with "_".  Leaves: an `Item`, or ValueError for what a row lacks.  It
deliberately does not know models, few-shot examples or how an answer is scored.

The words around a row are this project's own.  Options stand in a prompt as letters (Latin, as published) or digits where
they are long; elsewhere the answer itself is the option.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miron_jax.tasks.eval_uation.table import DataSet
from miron_jax.tasks.eval_uation.ukrainian import comparable

GAP = "______"
LETTERS = "ABCDEFGHIJ"
YES, NO = "так", "ні"
ASK = "Питання: {}\nВідповідь:"
NEUTRAL = ASK.format("...")
STORY = "{story}\nПитання: яким словом треба заповнити пропуск " + GAP + "? {options}\nВідповідь:"
ARTICLE = "{text}\nПитання: під яким із цих заголовків вийшла стаття?\n{options}\nВідповідь:"
_META = "additionalMetadata_"
_QUOTED = re.compile('["«“„](.*)["»”“]', re.DOTALL)
_WORD = re.compile(r"\w+(?:['’ʼ]\w+)*")
_OPENED, _CLOSING = ("(", "[", "«", "„", "“"), (",", ".", ";", ":", "!", "?", ")", "]", "»", "”", "…")
_MOST_OPTIONS = 40
SAME_DRAW = 4  # words of a category that two lists of one draw share


@dataclass(frozen=True, slots=True)
class Item:
    row: int
    ask: str  # up to where the answer begins, without few-shot examples
    options: tuple[str, ...]  # what may be answered
    gold: int
    cluster: str
    swapped: str | None  # the question without the order of its options; None: it is asked in one order only
    traits: tuple[tuple[str, str], ...]
    before: str = ""  # of a story: its text up to the gap
    question: str = ""  # of a story: the last part of `before`, which the row calls its question
    fills: tuple[str, ...] = ()  # of a story: every option with what follows it

    @property
    def answer(self) -> str:
        return self.options[self.gold]


def reader(own: DataSet) -> Callable[[dict[str, Any], int], Item]:
    return lambda fields, row: _READERS[own.shape](own, fields, row)


def _letters(own: DataSet, fields: Mapping[str, Any], row: int) -> Item:
    question, answer = _text(fields, "question"), _text(fields, "correctAnswer")
    word = _quoted(question)
    options = _distinct("".join(word.split()))  # an apostrophe and a hyphen count, as published
    if comparable(answer) not in map(comparable, options):
        raise ValueError(f"field 'correctAnswer' is {answer!r:.40}, expected a letter of {word!r:.40}")
    names = ("template_n", "needle", "word_length", "pos", "len", "freq_quantile", "len_quantile")
    traits = _traits(fields, *names)
    return _listed(row, question, options, answer, word, None, traits)


def _words(own: DataSet, fields: Mapping[str, Any], row: int) -> Item:
    question, answer = _text(fields, "question"), _text(fields, "correctAnswer")
    sentence = _quoted(question)
    options = _distinct(_WORD.findall(sentence))
    if comparable(answer) not in map(comparable, options):  # cut otherwise than here
        if comparable(answer) not in map(comparable, sentence.split()):
            raise ValueError(f"field 'correctAnswer' is {answer!r:.40}, expected a word of {sentence!r:.60}")
        options.append(answer)
    return _listed(
        row, question, options, answer, sentence, None, _traits(fields, "template_n", "type", "needle", "len_haystack")
    )


def _odd_word(own: DataSet, fields: Mapping[str, Any], row: int) -> Item:
    question, answer = _text(fields, "question"), _text(fields, "correctAnswer")
    given = _texts(fields, f"{_META}all_options")
    options = _distinct(given)
    if comparable(answer) not in map(comparable, options):
        raise ValueError(f"field 'correctAnswer' is {answer!r:.40}, expected one of {', '.join(given):.80}")
    place = [comparable(option) for option in given].index(comparable(answer))
    traits = (*_traits(fields, "template_n", "kind", "cat_name_main", "cat_name_other"), ("gold_place", str(place)))
    return _listed(row, question, options, answer, _categories(fields), None, traits)


def _yes_no(own: DataSet, fields: Mapping[str, Any], row: int) -> Item:
    """Its right answer is published as a boolean."""
    right = fields.get("correctAnswer")
    named = {True: YES, False: NO, "true": YES, "false": NO, YES: YES, NO: NO}
    key = right.strip().lower() if isinstance(right, str) else right
    if not isinstance(key, bool | str) or key not in named:
        raise ValueError(f"field 'correctAnswer' is {right!r:.40}, expected true or false")
    traits = (*_traits(fields, "template_n", "kind", "cat_name_main", "cat_name_other"), ("gold", named[key]))
    question = _text(fields, "question")
    return _listed(row, question, (YES, NO), named[key], _categories(fields), None, traits)


def _two_words(own: DataSet, fields: Mapping[str, Any], row: int) -> Item:
    question, answer = _text(fields, "question"), _text(fields, "correctAnswer")
    pair = tuple(_text(fields, f"{_META}option_{i}") for i in range(2))
    if comparable(pair[0]) == comparable(pair[1]):
        raise ValueError(f"its two options are both {pair[0]!r:.40}, expected different words")
    if comparable(answer) not in map(comparable, pair):
        raise ValueError(f"field 'correctAnswer' is {answer!r:.40}, expected one of {' and '.join(pair)}")
    words = " ".join(sorted(pair))
    names = ("template_n", "type", "kind", "reversed", "num_shared_characters", "stratum", "len_difference")
    of_words = (f"{word}_meta_{name}" for word in ("t1", "t2") for name in ("word_length", "pos"))
    traits = _traits(fields, *names, *of_words)
    template = dict(traits).get("template_n", "")
    return _listed(row, question, pair, answer, words, f"{words} {template} {dict(traits).get('kind', '')}", traits)


def _story(own: DataSet, fields: Mapping[str, Any], row: int) -> Item:
    context, question, answer = (_text(fields, name) for name in ("context", "question", "answer"))
    options = _texts(fields, "options")
    if answer not in options:
        raise ValueError(f"field 'answer' is {answer!r:.40}, expected one of its options {', '.join(options):.80}")
    gaps = re.findall("_+", question)
    if gaps != [GAP]:
        raise ValueError(f"field 'question' has the gaps {' '.join(gaps) or '(none)'}, expected one, {GAP}")
    if GAP in context:
        raise ValueError(f"field 'context' has a gap {GAP}, expected it in the question alone")
    if options.count(answer) > 1:
        raise ValueError(
            f"its options are {', '.join(options):.80}, expected the answer {answer!r:.40} among them once"
        )
    story = f"{context} {question}".replace("\n", " ")
    listed = "; ".join(f"{letter}: {option}" for letter, option in zip(LETTERS, options, strict=False))
    gold = options.index(answer)
    names = (fields.get(name) for name in ("storyId", "md_tale_id_labelstudio"))
    cluster = str(next((name for name in names if name is not None), f"row {row}"))
    traits = [("taskType", _text(fields, "taskType")), ("gold_place", str(gold)), *_num_options(options)]
    frequent = fields.get("md_opts_baseline_most_frequent")
    if isinstance(frequent, list) and frequent:
        traits.append(("most_frequent", "gold" if frequent[0] == answer else "other"))
    before, _, after = story.partition(GAP)
    return Item(
        row,
        STORY.format(story=story, options=listed),
        tuple(LETTERS[: len(options)]),
        gold,
        cluster,
        None,
        tuple(traits),
        before.rstrip(),
        question.replace("\n", " ").partition(GAP)[0].strip(),
        tuple(_filled(before, option, after) for option in options),
    )


def _filled(before: str, option: str, after: str) -> str:
    """An option in its gap with what follows it, spaces as a text has them: the gap itself stands between two."""
    lead = "" if before.rstrip().endswith(_OPENED) or not before.strip() else " "
    after = after.strip()
    return f"{lead}{option}{'' if after.startswith(_CLOSING) or not after else ' '}{after}"


def _article(own: DataSet, fields: Mapping[str, Any], row: int) -> Item:
    """The label is a float in some copies, and a row may have fewer than ten titles."""
    text = _text(fields, "masked_text" if own.masked else "ukr_text").replace("\n", " ")
    titles, label = _texts(fields, "similar_titles"), fields.get("label")
    if isinstance(label, bool) or not isinstance(label, int | float) or not float(label).is_integer():
        raise ValueError(f"field 'label' is {label!r:.40}, expected the place of the right title, from 0")
    if not 0 <= label < len(titles):
        raise ValueError(f"field 'label' is {label}, expected a place among its {len(titles)} titles, from 0")
    listed = "\n".join(f"{place}) {title}" for place, title in enumerate(titles))
    options = tuple(str(place) for place in range(len(titles)))
    traits = (("gold_place", str(int(label))), *_num_options(titles))
    cluster = str(row if fields.get("index") is None else fields["index"])
    return Item(row, ARTICLE.format(text=text, options=listed), options, int(label), cluster, None, traits)


def _listed(
    row: int,
    question: str,
    options: Sequence[str],
    answer: str,
    cluster: str,
    swapped: str | None,
    traits: tuple[tuple[str, str], ...],
) -> Item:
    """An item whose options are the answers themselves."""
    gold = [comparable(option) for option in options].index(comparable(answer))
    if not 2 <= len(options) <= _MOST_OPTIONS:
        raise ValueError(f"it has {len(options)} different answers to choose from, expected 2 to {_MOST_OPTIONS}")
    return Item(row, ASK.format(question), tuple(options), gold, cluster, swapped, (*traits, *_num_options(options)))


def _num_options(options: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return (("num_options", str(len(options))),)


def _distinct(options: Iterable[str]) -> list[str]:
    """Options that compare as different, in their order."""
    found: dict[str, str] = {}
    for option in options:
        found.setdefault(comparable(option), option)
    return list(found.values())


def _categories(fields: Mapping[str, Any]) -> str:
    """The main category and the words drawn from it, in any order: see `joined_draws`."""
    words = fields.get(f"{_META}main_cat_words") or []
    if not isinstance(words, list):
        raise ValueError(f"field '{_META}main_cat_words' is {words!r:.40}, expected a list of texts")
    return f"{fields.get(f'{_META}cat_name_main')}: {', '.join(sorted(map(str, words)))}"


def joined_draws(clusters: Sequence[str]) -> list[str]:
    """One name for every cluster of `_categories` that is of one draw: a whole list shows five words of the main category,
    one with an odd word four of the same."""
    known: dict[str, list[tuple[frozenset[str], str]]] = {}
    found = []
    for cluster in clusters:
        category, _, listed = cluster.partition(": ")
        words = frozenset(listed.split(", "))
        draws = known.setdefault(category, [])
        name = next((name for own, name in draws if len(own & words) >= min(SAME_DRAW, len(words))), None)
        if name is None:
            name = cluster
            draws.append((words, name))
        found.append(name)
    return found


def _traits(fields: Mapping[str, Any], *names: str) -> tuple[tuple[str, str], ...]:
    found = [(name, fields.get(f"{_META}{name}")) for name in names]
    return tuple(
        (name, str(own).lower() if isinstance(own, bool) else str(own)) for name, own in found if own is not None
    )


def _quoted(question: str) -> str:
    found = _QUOTED.search(question)
    if found is None or not found[1].strip():
        raise ValueError(f"field 'question' is {question!r:.60}, expected quotation marks around what it asks about")
    return unicodedata.normalize("NFC", found[1].strip())


def _text(fields: Mapping[str, Any], name: str) -> str:
    own = fields.get(name)
    if not isinstance(own, str) or not own.strip():
        raise ValueError(f"field {name!r} is {own!r:.40}, expected a text")
    return own.strip()


def _texts(fields: Mapping[str, Any], name: str) -> list[str]:
    own = fields.get(name)
    texts = isinstance(own, list) and all(isinstance(text, str) and text.strip() for text in own)
    if not texts or not 2 <= len(own) <= len(LETTERS):
        raise ValueError(f"field {name!r} is {own!r:.60}, expected a list of 2 to {len(LETTERS)} texts")
    return own


_READERS: dict[str, Callable[[DataSet, Mapping[str, Any], int], Item]] = {
    "letters": _letters,
    "words": _words,
    "odd_word": _odd_word,
    "yes_no": _yes_no,
    "two_words": _two_words,
    "story": _story,
    "article": _article,
}
