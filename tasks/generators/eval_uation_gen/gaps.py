"""Rows in UA-CBT's published shape from a user's stories.

Arrives: stories, each with the words that gaps may replace and all forms of these words, from a
morphology tool or a person.  Leaves: rows.  It deliberately does not know Ukrainian: it finds a
word by its forms.  A form that two words share makes no gap, nor do options that read alike.  Texts
lose stress marks and soft hyphens, and have one apostrophe.

The last 35 % of the sentences are the question.  A word of the question may become a gap if the
context names it twice (a COMMON_NOUN four times).  The other options are words of its type and
gender that the context names, the most frequent first, in the form that the gap takes, all
capitalized or none.  No gap follows a preposition that only some words take (зі), and none replaces
a word that the text writes otherwise than its form.  The author of the story has to check that only
one option is true, by `md_gap_sentence` and `options`.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, are_texts
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.eval_uation.ukrainian import comparable, one_apostrophe
from miron_jax.tasks.generators.eval_uation_gen.table import VERSION
from miron_jax.tasks.generators.eval_uation_gen.user_files import read_records

GAP = "______"
QUESTION_SHARE = 0.35
TASK_TYPES = ("NAMED_ENTITY", "COMMON_NOUN", "VERB")
MOST_OPTIONS, FEWEST_OPTIONS = 6, 4
# Times that the context names a word before it may become a gap.
TIMES_BEFORE = {"NAMED_ENTITY": 2, "COMMON_NOUN": 4, "VERB": 2}
_WORD = re.compile(r"\w+(?:['-]\w+)*")  # a compound is one word
_SENTENCE_END = re.compile(
    r"""(?:(?<=[.!?…])|(?<=[.!?…][»”"]))(?<!\b\w\.)(?<!\bім\.)(?<!\bст\.)\s+(?=[«„"“(—–]?\s*[А-ЯҐЄІЇA-Z])"""
)
_UNSEEN = str.maketrans("", "", "\u00ad\u0301")  # soft hyphen, stress
# prepositions before some beginnings only
_OF_SOME_WORDS = {"зі", "із", "ізі", "зо", "уві", "наді", "піді", "переді"}
_RECORD = "text, and words: each with lemma, type, forms (form name to form) and, of a noun, gender"


class StoryWord(NamedTuple):
    lemma: str
    type: str  # of TASK_TYPES
    gender: str  # "": a verb, whose options may be any other verb
    forms: Mapping[str, str]  # by case, or by person, gender and tense

    def names_of(self, form: str) -> tuple[str, ...]:
        """Names of the forms that read like `form`: "nom", "acc", ..."""
        return tuple(
            name for name, text in self.forms.items() if comparable(text) == comparable(form)
        )


class UserStory(NamedTuple):
    name: str
    text: str
    words: tuple[StoryWord, ...]


def gap_rows(story: UserStory) -> Iterator[JsonObject]:
    """A row for every gap that the story allows, without `md_global_number`."""
    sentences = list(filter(None, _SENTENCE_END.split(" ".join(story.text.split()))))
    num_question = max(1, round(QUESTION_SHARE * len(sentences)))
    context = " ".join(sentences[:-num_question])
    question = " ".join(sentences[-num_question:])
    owners = _owners(story)
    before = _mentions(context, owners)
    whole = _mentions(f"{context} {question}", owners)
    named_before = (word for word in story.words if before[word.lemma])
    ranked = sorted(named_before, key=lambda word: -before[word.lemma])
    num_rows = 0
    for match in _WORD.finditer(question):
        answer = owners.get(comparable(match[0]))
        if answer is None or before[answer.lemma] < TIMES_BEFORE[answer.type]:
            continue
        if (_WORD.findall(question[: match.start()].lower()) or [""])[-1] in _OF_SOME_WORDS:
            continue
        options = _options(answer, match[0], ranked, _begins_sentence(question, match))
        if len(options) < FEWEST_OPTIONS:
            continue
        texts = Stream("eval-ua-tion-gen", VERSION, "gaps", story.name, match.start()).shuffled(
            list(options)
        )
        mentions = [whole[options[text].lemma] for text in texts]
        lead = question[: match.start()].rstrip()
        rest = question[match.end() :].lstrip()
        yield {
            "context": context,
            "question": f"{lead} {GAP} {rest}".strip(),
            "options": texts,
            "answer": match[0],
            "storyId": story.name,
            "taskType": answer.type,
            "md_num_context_sents": len(sentences) - num_question,
            "md_num_question_sents": num_question,
            "md_n_question_sents_share": QUESTION_SHARE,
            "md_sequential_number": num_rows,
            "md_form": "/".join(answer.names_of(match[0])),
            "md_gap_sentence": _with_gap(question, match),
            "md_opts_baseline_most_frequent": [texts[mentions.index(max(mentions))]],
            "md_mentions": mentions,
        }
        num_rows += 1


def _owners(story: UserStory) -> dict[str, StoryWord]:
    """Form -> the one word of the story that has it."""
    owners: dict[str, StoryWord] = {}
    shared = set[str]()
    for word in story.words:
        for form in map(comparable, word.forms.values()):
            if owners.setdefault(form, word) is not word:
                shared.add(form)
    return {form: word for form, word in owners.items() if form not in shared}


def _mentions(text: str, owners: Mapping[str, StoryWord]) -> Counter[str]:
    forms = map(comparable, _WORD.findall(text))
    return Counter(owners[form].lemma for form in forms if form in owners)


def _options(
    answer: StoryWord, form: str, ranked: list[StoryWord], begins_sentence: bool
) -> dict[str, StoryWord]:
    """Text -> word, at most MOST_OPTIONS with the answer: words of its type and gender with one
    form for all cases that `form` may be.

    Empty where the text writes the word otherwise than its form, such as in capitals: that would
    reveal the answer.
    """

    def text_of(word: StoryWord) -> str | None:
        [text, *others] = set(map(word.forms.get, names))
        if text is None or others:
            return None
        if begins_sentence:
            return f"{text[0].upper()}{text[1:]}"
        return text

    names = answer.names_of(form)
    if text_of(answer) != form:
        return {}
    options = {form: answer}
    for word in ranked:
        text = text_of(word)
        if text is None or (word.type, word.gender) != (answer.type, answer.gender):
            continue
        is_new = comparable(text) not in map(comparable, options)
        same_case = text[0].isupper() == form[0].isupper()
        if is_new and same_case and len(options) < MOST_OPTIONS:
            options[text] = word
    return options


def _begins_sentence(question: str, match: re.Match[str]) -> bool:
    """Whether only quotes and dashes precede the word in its sentence."""
    return not _WORD.search(question[_sentence_start(question, match) : match.start()])


def _sentence_start(question: str, match: re.Match[str]) -> int:
    start = 0
    for end in _SENTENCE_END.finditer(question):
        if end.end() <= match.start():
            start = end.end()
    return start


def _with_gap(question: str, match: re.Match[str]) -> str:
    """The sentence of the word, with a gap in its place."""
    start = _sentence_start(question, match)
    end = _SENTENCE_END.search(question, match.end())
    stop = end.start() if end else len(question)
    before = question[start : match.start()].rstrip()
    after = question[match.end() : stop].lstrip()
    return f"{before} {GAP} {after}".strip()


def read_stories(path: Path) -> list[UserStory]:
    """A user's stories: JSON objects with text and words.  Raises InputError."""
    stories = read_records(path, "--stories", _story, _RECORD, f"; expected {_RECORD}")
    if len(set(map(attrgetter("name"), stories))) < len(stories):
        raise InputError(
            f"--stories={path}: two records have one id, expected another for each, or none"
        )
    return stories


def rows_of_stories(
    stories: list[UserStory], name: str, say: Callable[[str], None]
) -> list[JsonObject]:
    """The rows of all stories.  Says which stories allow no gap; raises InputError where none
    allows one."""
    rows_by_story = {story.name: list(gap_rows(story)) for story in stories}
    without = [story for story, rows in rows_by_story.items() if not rows]
    if len(without) == len(stories):
        raise InputError(
            f"{name}: none of {len(stories)} stories allows a gap; expected a word in the last "
            f"third that is named {TIMES_BEFORE['NAMED_ENTITY']} times before (a thing "
            f"{TIMES_BEFORE['COMMON_NOUN']}), and {FEWEST_OPTIONS - 1} others of its type and "
            "gender in the text before: list more of its words"
        )
    if without:
        say(
            f"{name}: {len(without)} of {len(stories)} stories allow no gap and are left out: "
            f"{', '.join(without)}"
        )
    rows = list(chain(*rows_by_story.values()))
    for number, row in enumerate(rows):
        row["md_global_number"] = number
    return rows


def _story(fields: JsonObject, row: int) -> UserStory:
    text = fields.get("text")
    words = fields.get("words")
    if not isinstance(text, str) or not text.strip():
        raise ValueError("text is no text")
    text = _plain(text)
    if "_" in text:
        raise ValueError("text has a low line _, which rows keep for the gap")
    if len(_SENTENCE_END.split(text.strip())) < 2:
        raise ValueError("text has one sentence, of two at least")
    if not isinstance(words, list) or not words:
        raise ValueError("words is no list of words")
    story_words = tuple(map(_word, words))
    [(lemma, times)] = Counter(map(attrgetter("lemma"), story_words)).most_common(1)
    if times > 1:
        raise ValueError(f"words has the lemma {lemma!r} twice")
    return UserStory(str(row + 1 if fields.get("id") is None else fields["id"]), text, story_words)


def _plain(text: str) -> str:
    seen = unicodedata.normalize("NFC", text).translate(_UNSEEN)
    return one_apostrophe(unicodedata.normalize("NFC", seen))


def _word(fields: Json) -> StoryWord:
    if (
        not isinstance(fields, dict)
        or not isinstance(fields.get("lemma"), str)
        or not fields["lemma"].strip()
    ):
        raise ValueError(f"the word {fields!r:.60} has no lemma")
    lemma = _plain(fields["lemma"]).strip()
    kind = fields.get("type")
    gender = fields.get("gender", "")
    forms = fields.get("forms")
    if kind not in TASK_TYPES:
        raise ValueError(
            f"the type of {lemma!r} is {kind!r:.40}, not one of {', '.join(TASK_TYPES)}"
        )
    if kind != "VERB" and gender not in ("m", "f", "n"):
        raise ValueError(f"the gender of {lemma!r} is {gender!r:.40}, not m, f or n")
    if not isinstance(forms, dict) or not are_texts(list(forms.values())):
        raise ValueError(f"the forms of {lemma!r} are {forms!r:.60}, not a form by its name")
    plain = {name: _plain(form).strip() for name, form in forms.items()}
    for form in plain.values():
        if not _WORD.fullmatch(form):
            raise ValueError(f"the form {form!r:.60} of {lemma!r} is no single word")
    return StoryWord(lemma, kind, "" if kind == "VERB" else gender, plain)
