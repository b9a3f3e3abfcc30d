"""Eval-UA-tion's rows -> the question, its choices, and what examples share.

Arrives: one row of a data set as published, flattened with "_".  Leaves: an `Item`; ValueError for
an invalid row.  It deliberately does not know models, few-shot examples or how an answer is scored.

The authors publish no prompts: the words around a row are this project's.  Long choices appear in a
prompt under letters (Latin, as published) or digits; otherwise a choice is the answer itself.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from miron_jax.files.readers import JsonObject
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
_OPENED = ("(", "[", "«", "„", "“")
_CLOSING = (",", ".", ";", ":", "!", "?", ")", "]", "»", "”", "…")
_MOST_OPTIONS = 40
SAME_DRAW = 4  # words that two lists sampled together have in common


@dataclass(frozen=True, slots=True)
class Item:
    row: int
    ask: str  # the prompt without few-shot examples
    options: tuple[str, ...]  # possible answers
    gold: int
    cluster: str
    # equal for questions that differ only in the order of choices; None: only one order exists
    swapped: str | None
    traits: tuple[tuple[str, str], ...]
    before: str = ""  # story: the text up to the gap
    question: str = ""  # story: the part of `before` that the row calls its question
    fills: tuple[str, ...] = ()  # story: every choice with the text after the gap

    @property
    def answer(self) -> str:
        return self.options[self.gold]


def reader(dataset: DataSet) -> Callable[[JsonObject, int], Item]:
    """The parser of a data set's rows."""
    return (
        partial(_article, dataset.masked) if dataset.shape == "article" else _READERS[dataset.shape]
    )


def _letters(fields: JsonObject, row: int) -> Item:
    word = _quoted(_text(fields, "question"))
    options = _distinct("".join(word.split()))  # an apostrophe and a hyphen count, as published
    answer = _answer(fields, options, f"a letter of {word!r:.40}")
    names = ("template_n", "needle", "word_length", "pos", "len", "freq_quantile", "len_quantile")
    return _listed(fields, row, options, answer, word, _traits(fields, *names))


def _words(fields: JsonObject, row: int) -> Item:
    sentence = _quoted(_text(fields, "question"))
    words = _distinct(_WORD.findall(sentence))
    # The authors split at white space.
    answer = _answer(fields, [*words, *sentence.split()], f"a word of {sentence!r:.60}")
    traits = _traits(fields, "template_n", "type", "needle", "len_haystack")
    return _listed(fields, row, _distinct([*words, answer]), answer, sentence, traits)


def _odd_word(fields: JsonObject, row: int) -> Item:
    words = _texts(fields, f"{_META}all_options")
    answer = _answer(fields, words, f"one of {', '.join(words):.80}")
    gold = [comparable(option) for option in words].index(comparable(answer))
    traits = (
        *_traits(fields, "template_n", "kind", "cat_name_main", "cat_name_other"),
        ("gold_place", str(gold)),
    )
    return _listed(fields, row, _distinct(words), answer, _categories(fields), traits)


def _answer(fields: JsonObject, options: Iterable[str], expected: str) -> str:
    answer = _text(fields, "correctAnswer")
    if comparable(answer) not in map(comparable, options):
        raise ValueError(f"field 'correctAnswer' is {answer!r:.40}, expected {expected}")
    return answer


def _yes_no(fields: JsonObject, row: int) -> Item:
    """The right answer is published as a boolean."""
    right = fields.get("correctAnswer")
    named = {True: YES, False: NO, "true": YES, "false": NO, YES: YES, NO: NO}
    key = right.strip().lower() if isinstance(right, str) else right
    if not isinstance(key, bool | str) or key not in named:
        raise ValueError(f"field 'correctAnswer' is {right!r:.40}, expected true or false")
    traits = (
        *_traits(fields, "template_n", "kind", "cat_name_main", "cat_name_other"),
        ("gold", named[key]),
    )
    return _listed(fields, row, (YES, NO), named[key], _categories(fields), traits)


def _two_words(fields: JsonObject, row: int) -> Item:
    pair = tuple(_text(fields, f"{_META}option_{i}") for i in range(2))
    if comparable(pair[0]) == comparable(pair[1]):
        raise ValueError(f"its two options are both {pair[0]!r:.40}, expected different words")
    answer = _answer(fields, pair, f"one of {' and '.join(pair)}")
    words = " ".join(sorted(pair))
    names = (
        "template_n",
        "type",
        "kind",
        "reversed",
        "num_shared_characters",
        "stratum",
        "len_difference",
    )
    of_words = (f"{word}_meta_{name}" for word in ("t1", "t2") for name in ("word_length", "pos"))
    traits = _traits(fields, *names, *of_words)
    swapped = f"{words} {dict(traits).get('template_n', '')} {dict(traits).get('kind', '')}"
    return _listed(fields, row, pair, answer, words, traits, swapped)


def _story(fields: JsonObject, row: int) -> Item:
    context, question, answer = (_text(fields, name) for name in ("context", "question", "answer"))
    options = _texts(fields, "options")
    if answer not in options:
        raise ValueError(
            f"field 'answer' is {answer!r:.40}, expected one of its options "
            f"{', '.join(options):.80}"
        )
    gaps = re.findall("_+", question)
    if gaps != [GAP]:
        raise ValueError(
            f"field 'question' has the gaps {' '.join(gaps) or '(none)'}, expected one, {GAP}"
        )
    if GAP in context:
        raise ValueError(f"field 'context' has a gap {GAP}, expected it in the question alone")
    if options.count(answer) > 1:
        raise ValueError(
            f"its options are {', '.join(options):.80}, expected the answer {answer!r:.40} among "
            "them once"
        )
    story = f"{context} {question}".replace("\n", " ")
    listed = "; ".join(
        f"{letter}: {option}" for letter, option in zip(LETTERS, options, strict=False)
    )
    gold = options.index(answer)
    names = (fields.get(name) for name in ("storyId", "md_tale_id_labelstudio"))
    cluster = str(next((name for name in names if name is not None), f"row {row}"))
    traits = [
        ("taskType", _text(fields, "taskType")),
        ("gold_place", str(gold)),
        *_num_options(options),
    ]
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
    """A choice and the text after the gap, with the spaces of normal text: the gap itself has one
    on each side."""
    lead = "" if before.rstrip().endswith(_OPENED) or not before.strip() else " "
    after = after.strip()
    return f"{lead}{option}{'' if after.startswith(_CLOSING) or not after else ' '}{after}"


def _article(masked: bool, fields: JsonObject, row: int) -> Item:
    """Some copies have float labels, and a row may have fewer than ten titles."""
    text = _text(fields, "masked_text" if masked else "ukr_text").replace("\n", " ")
    titles = _texts(fields, "similar_titles")
    label = fields.get("label")
    if (
        isinstance(label, bool)
        or not isinstance(label, int | float)
        or not float(label).is_integer()
    ):
        raise ValueError(
            f"field 'label' is {label!r:.40}, expected the place of the right title, from 0"
        )
    if not 0 <= label < len(titles):
        raise ValueError(
            f"field 'label' is {label}, expected a place among its {len(titles)} titles, from 0"
        )
    listed = "\n".join(f"{i}) {title}" for i, title in enumerate(titles))
    options = tuple(str(i) for i in range(len(titles)))
    traits = (("gold_place", str(int(label))), *_num_options(titles))
    cluster = str(row if fields.get("index") is None else fields["index"])
    return Item(
        row, ARTICLE.format(text=text, options=listed), options, int(label), cluster, None, traits
    )


def _listed(
    fields: JsonObject,
    row: int,
    options: Sequence[str],
    answer: str,
    cluster: str,
    traits: tuple[tuple[str, str], ...],
    swapped: str | None = None,
) -> Item:
    """An item whose choices are the answers themselves."""
    ask = ASK.format(_text(fields, "question"))
    gold = [comparable(option) for option in options].index(comparable(answer))
    if not 2 <= len(options) <= _MOST_OPTIONS:
        raise ValueError(
            f"it has {len(options)} different answers to choose from, expected 2 to {_MOST_OPTIONS}"
        )
    return Item(row, ask, tuple(options), gold, cluster, swapped, (*traits, *_num_options(options)))


def _num_options(options: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return (("num_options", str(len(options))),)


def _distinct(options: Iterable[str]) -> list[str]:
    """The choices without those that compare equal to an earlier one."""
    by_form: dict[str, str] = {}
    for option in options:
        by_form.setdefault(comparable(option), option)
    return list(by_form.values())


def _categories(fields: JsonObject) -> str:
    """The cluster of a row: its main category and the words sampled from it, sorted; see
    `joined_draws`."""
    words = fields.get(f"{_META}main_cat_words") or []
    if not isinstance(words, list):
        raise ValueError(
            f"field '{_META}main_cat_words' is {words!r:.40}, expected a list of texts"
        )
    return f"{fields.get(f'{_META}cat_name_main')}: {', '.join(sorted(map(str, words)))}"


def joined_draws(clusters: Sequence[str]) -> list[str]:
    """The clusters of `_categories`, with one name for lists that the authors sampled together: a
    list of one category shows five of its words, a list with an odd word four of the same five."""
    draws_by_category: dict[str, list[tuple[frozenset[str], str]]] = {}
    names = []
    for cluster in clusters:
        category, _, listed = cluster.partition(": ")
        words = frozenset(listed.split(", "))
        draws = draws_by_category.setdefault(category, [])
        name = next(
            (name for drawn, name in draws if len(drawn & words) >= min(SAME_DRAW, len(words))),
            None,
        )
        if name is None:
            name = cluster
            draws.append((words, name))
        names.append(name)
    return names


def _traits(fields: JsonObject, *names: str) -> tuple[tuple[str, str], ...]:
    values = {name: fields.get(f"{_META}{name}") for name in names}
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
    }
    return tuple((name, text) for name, text in texts.items() if values[name] is not None)


def _quoted(question: str) -> str:
    match = _QUOTED.search(question)
    if match is None or not match[1].strip():
        raise ValueError(
            f"field 'question' is {question!r:.60}, expected quotation marks around what it asks "
            "about"
        )
    return unicodedata.normalize("NFC", match[1].strip())


def _text(fields: JsonObject, name: str) -> str:
    text = fields.get(name)
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"field {name!r} is {text!r:.40}, expected a text")
    return text.strip()


def _texts(fields: JsonObject, name: str) -> list[str]:
    texts = fields.get(name)
    listed = texts if isinstance(texts, list) else []
    if not 2 <= len(listed) <= len(LETTERS) or not all(
        isinstance(text, str) and text.strip() for text in listed
    ):
        raise ValueError(
            f"field {name!r} is {texts!r:.60}, expected a list of 2 to {len(LETTERS)} texts"
        )
    return listed


_READERS: dict[str, Callable[[JsonObject, int], Item]] = {
    "letters": _letters,
    "words": _words,
    "odd_word": _odd_word,
    "yes_no": _yes_no,
    "two_words": _two_words,
    "story": _story,
}
