"""Eval-UA-tion's rows -> the question, its choices, and what examples share.

Arrives: one row of a data set as published, flattened with "_".  Leaves: a `ChoiceQuestion`;
ValueError for an invalid row.  It deliberately does not know models, few-shot examples or how an
answer is scored.

The authors publish no prompts: the words around a row are this project's.  Long choices appear in a
prompt under letters (Latin, as published) or digits; otherwise a choice is the answer itself.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from miron_jax.files.readers import JsonObject, are_texts
from miron_jax.tasks.eval_uation.table import UationSet
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
class ChoiceQuestion:
    """A row as a question with its choices."""

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


def reader(dataset: UationSet) -> Callable[[JsonObject, int], ChoiceQuestion]:
    """The parser of a data set's rows."""
    if dataset.shape == "article":
        return partial(_article, dataset.masked)
    return _READERS[dataset.shape]


def _letters(fields: JsonObject, row: int) -> ChoiceQuestion:
    word = _quoted(_text(fields, "question"))
    options = _distinct("".join(word.split()))  # an apostrophe and a hyphen count, as published
    answer = _answer(fields, options, f"a letter of {word!r:.40}")
    names = ("template_n", "needle", "word_length", "pos", "len", "freq_quantile", "len_quantile")
    return _listed(fields, row, options, answer, word, _traits(fields, *names))


def _words(fields: JsonObject, row: int) -> ChoiceQuestion:
    sentence = _quoted(_text(fields, "question"))
    words = _distinct(_WORD.findall(sentence))
    # The authors split at white space.
    answer = _answer(fields, [*words, *sentence.split()], f"a word of {sentence!r:.60}")
    traits = _traits(fields, "template_n", "type", "needle", "len_haystack")
    return _listed(fields, row, _distinct([*words, answer]), answer, sentence, traits)


def _odd_word(fields: JsonObject, row: int) -> ChoiceQuestion:
    words = _texts(fields, f"{_META}all_options")
    answer = _answer(fields, words, f"one of {', '.join(words):.80}")
    gold = list(map(comparable, words)).index(comparable(answer))
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


def _yes_no(fields: JsonObject, row: int) -> ChoiceQuestion:
    """The right answer is published as a boolean."""
    right = fields.get("correctAnswer")
    named = {"true": YES, "false": NO, YES: YES, NO: NO}
    answer = named.get(str(right).strip().lower())
    if answer is None:
        raise ValueError(f"field 'correctAnswer' is {right!r:.40}, expected true or false")
    traits = (
        *_traits(fields, "template_n", "kind", "cat_name_main", "cat_name_other"),
        ("gold", answer),
    )
    return _listed(fields, row, (YES, NO), answer, _categories(fields), traits)


def _two_words(fields: JsonObject, row: int) -> ChoiceQuestion:
    pair = (_text(fields, f"{_META}option_0"), _text(fields, f"{_META}option_1"))
    if comparable(pair[0]) == comparable(pair[1]):
        raise ValueError(f"its two options are both {pair[0]!r:.40}, expected different words")
    answer = _answer(fields, pair, f"one of {' and '.join(pair)}")
    words = " ".join(sorted(pair))
    traits = _traits(
        fields, "template_n", "type", "kind", "reversed", "num_shared_characters", "stratum",
        "len_difference",
        "t1_meta_word_length", "t1_meta_pos", "t2_meta_word_length", "t2_meta_pos",
    )  # fmt: skip
    swapped = f"{words} {dict(traits).get('template_n', '')} {dict(traits).get('kind', '')}"
    return _listed(fields, row, pair, answer, words, traits, swapped)


def _story(fields: JsonObject, row: int) -> ChoiceQuestion:
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
    listed = "; ".join(map("{}: {}".format, LETTERS, options))
    gold = options.index(answer)
    cluster = _first_of(fields, ("storyId", "md_tale_id_labelstudio"), f"row {row}")
    traits = [
        ("taskType", _text(fields, "taskType")),
        ("gold_place", str(gold)),
        *_num_options(options),
    ]
    frequent = fields.get("md_opts_baseline_most_frequent")
    if isinstance(frequent, list) and frequent:
        traits.append(("most_frequent", "gold" if frequent[0] == answer else "other"))
    before, _, after = story.partition(GAP)
    return ChoiceQuestion(
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
    before = before.strip()
    after = after.strip()
    option = option.strip()
    if before and not before.endswith(_OPENED):
        option = f" {option}"
    if after and not after.startswith(_CLOSING):
        option = f"{option} "
    return option + after


def _article(masked: bool, fields: JsonObject, row: int) -> ChoiceQuestion:
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
    options = tuple(map(str, range(len(titles))))
    listed = "\n".join(map("{}) {}".format, options, titles))
    traits = (("gold_place", str(int(label))), *_num_options(titles))
    cluster = _first_of(fields, ("index",), row)
    return ChoiceQuestion(
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
) -> ChoiceQuestion:
    """An item whose choices are the answers themselves."""
    ask = ASK.format(_text(fields, "question"))
    gold = list(map(comparable, options)).index(comparable(answer))
    if not 2 <= len(options) <= _MOST_OPTIONS:
        raise ValueError(
            f"it has {len(options)} different answers to choose from, expected 2 to {_MOST_OPTIONS}"
        )
    return ChoiceQuestion(
        row, ask, tuple(options), gold, cluster, swapped, (*traits, *_num_options(options))
    )


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
    lists_by_category = defaultdict[str, list[tuple[set[str], str]]](list)
    names = []
    for cluster in clusters:
        category, _, listed = cluster.partition(": ")
        words = set(listed.split(", "))
        least = min(SAME_DRAW, len(words))
        lists = lists_by_category[category]
        same = next((name for other, name in lists if len(other & words) >= least), None)
        if same is None:
            lists.append((words, cluster))
        names.append(same or cluster)
    return names


def _first_of(fields: JsonObject, names: Iterable[str], otherwise: str | int) -> str:
    """The first of the fields that has a value, as a text."""
    values = map(fields.get, names)
    return str(next((value for value in values if value is not None), otherwise))


def _traits(fields: JsonObject, *names: str) -> tuple[tuple[str, str], ...]:
    traits = []
    for name in names:
        value = fields.get(f"{_META}{name}")
        if isinstance(value, bool):
            value = str(value).lower()
        if value is not None:
            traits.append((name, str(value)))
    return tuple(traits)


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
    if (
        not are_texts(texts)
        or not 2 <= len(texts) <= len(LETTERS)
        or not all(map(str.strip, texts))
    ):
        raise ValueError(
            f"field {name!r} is {texts!r:.60}, expected a list of 2 to {len(LETTERS)} texts"
        )
    return texts


_READERS: dict[str, Callable[[JsonObject, int], ChoiceQuestion]] = {
    "letters": _letters,
    "words": _words,
    "odd_word": _odd_word,
    "yes_no": _yes_no,
    "two_words": _two_words,
    "story": _story,
}
