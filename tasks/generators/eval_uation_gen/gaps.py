"""Rows in UA-CBT's published shape from a user's stories.

Arrives: stories, each with the words that gaps may replace and all forms of these words, from a
morphology tool or a person.  Leaves: rows.  It deliberately does not know Ukrainian: it finds a
word by its forms.  A form that two words share makes no gap, nor do options that read alike.  Texts
lose stress marks and soft hyphens, and have one apostrophe.

The last 35 % of the sentences are the question.  A word of the question may become a gap if the
context names it twice (a COMMON_NOUN four times).  The other options are words of its type and
gender that the context names, the most frequent first, in the form that the gap takes, all
capitalized or none.  No gap follows a preposition that only some words take (зі), and none replaces
a word that the text writes otherwise than its form, or one that reads like a locative without a
preposition just before it: a plural (ведмеді).  The author of the story has to check that only
one option is true, by `md_gap_sentence` and `options`.

With a list of other nouns every gap has six options as in the published set: those of the story
first, three to five of them with the answer (six where no listed noun fits), then nouns of the list
that the story does not name, in an order drawn for the gap.  UA-CBT's code makes room for a listed
noun in the same way; unlike it, no noun in capitals stands among others, and none of another
gender.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.eval_uation.ukrainian import comparable
from miron_jax.tasks.generators.eval_uation_gen.story_words import (
    WORD,
    StoryWord,
    plain,
    story_word,
    words_in,
)
from miron_jax.tasks.generators.eval_uation_gen.table import VERSION
from miron_jax.tasks.generators.eval_uation_gen.user_files import read_records

GAP = "______"
QUESTION_SHARE = 0.35
MOST_OPTIONS, FEWEST_OPTIONS = 6, 4
FEWEST_OF_STORY = 3  # options, with the answer, beside those of a list
# Times that the context names a word before it may become a gap.
TIMES_BEFORE = {"NAMED_ENTITY": 2, "COMMON_NOUN": 4, "VERB": 2}
_SENTENCE_END = re.compile(
    r"""(?:(?<=[.!?…])|(?<=[.!?…][»”"]))(?<!\b\w\.)(?<!\bім\.)(?<!\bст\.)\s+(?=[«„"“(—–]?\s*[А-ЯҐЄІЇA-Z])"""
)
# prepositions before some beginnings only
_OF_SOME_WORDS = {"зі", "із", "ізі", "зо", "уві", "наді", "піді", "переді"}
_OF_LOCATIVE = {"на", "у", "в", "о", "об", "по", "при"}
_RECORD = "text, and words: each with lemma, type, forms (form name to form) and, of a noun, gender"


class UserStory(NamedTuple):
    name: str
    text: str
    words: tuple[StoryWord, ...]
    columns: Mapping[str, Json] = MappingProxyType({})  # further ones of its rows


def gap_rows(
    story: UserStory, listed: Sequence[StoryWord] = (), too_few: Counter[str] | None = None
) -> Iterator[JsonObject]:
    """A row for every gap that the story allows, without `md_global_number`.

    `listed`: nouns for further options.  `too_few` counts the gaps that have too few options, by
    what an option has to be.
    """
    sentences = list(filter(None, _SENTENCE_END.split(" ".join(story.text.split()))))
    num_question = max(1, round(QUESTION_SHARE * len(sentences)))
    context = " ".join(sentences[:-num_question])
    question = " ".join(sentences[-num_question:])
    owners = _owners(story)
    before = _mentions(context, owners)
    whole = _mentions(f"{context} {question}", owners)
    named_before = (word for word in story.words if before[word.lemma])
    ranked = sorted(named_before, key=lambda word: -before[word.lemma])
    named = words_in(story.text)
    lemmas = set(map(attrgetter("lemma"), story.words))
    others = [word for word in listed if word.lemma not in lemmas and not word.is_in(named)]
    num_rows = 0
    for match in WORD.finditer(question):
        answer = owners.get(comparable(match[0]))
        if answer is None or before[answer.lemma] < TIMES_BEFORE[answer.type]:
            continue
        names = answer.names_of(match[0])
        preceding = (WORD.findall(question[: match.start()].lower()) or [""])[-1]
        if preceding in _OF_SOME_WORDS or (names == ("loc",) and preceding not in _OF_LOCATIVE):
            continue
        draw = Stream("eval-ua-tion-gen", VERSION, "gaps", story.name, match.start())
        begins = _begins_sentence(question, match)
        options = _options(answer, match[0], ranked, draw.shuffled(others), begins)
        of_list = [text for text, word in options.items() if word in others]
        of_story = [text for text in options if text not in of_list]
        if len(options) < (MOST_OPTIONS if listed else FEWEST_OPTIONS) or (
            listed and len(of_story) < FEWEST_OF_STORY
        ):
            if options and too_few is not None:
                lacking = (answer.type, answer.gender, "/".join(names))
                too_few[" ".join(filter(None, lacking))] += 1
            continue
        texts = draw.shuffled(list(options))
        sources = {}
        if listed:
            sources["md_opts_replacement_option_from_text"] = of_story
            sources["md_opts_distractor_external"] = of_list
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
            "md_form": "/".join(names),
            "md_gap_sentence": _with_gap(question, match),
            "md_opts_baseline_most_frequent": [texts[mentions.index(max(mentions))]],
            "md_mentions": mentions,
            **sources,
            **story.columns,
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
    forms = map(comparable, WORD.findall(text))
    return Counter(owners[form].lemma for form in forms if form in owners)


def _options(
    answer: StoryWord,
    form: str,
    ranked: Sequence[StoryWord],
    others: Sequence[StoryWord],
    begins_sentence: bool,
) -> dict[str, StoryWord]:
    """Text -> word, at most MOST_OPTIONS with the answer: words of its type and gender with one
    form for all cases that `form` may be, first of `ranked`, the last of them of `others` if any
    fits.

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

    def fitting(words: Sequence[StoryWord]) -> dict[str, StoryWord]:
        fits: dict[str, StoryWord] = {}
        for word in words:
            text = text_of(word)
            if text is None or (word.type, word.gender) != (answer.type, answer.gender):
                continue
            is_new = comparable(text) not in map(comparable, (form, *fits))
            if is_new and text[0].isupper() == form[0].isupper():
                fits[text] = word
        return fits

    names = answer.names_of(form)
    if text_of(answer) != form:
        return {}
    of_list = fitting(others)
    num_of_story = MOST_OPTIONS - 1 - bool(of_list)
    options = {form: answer}
    for text, word in (*list(fitting(ranked).items())[:num_of_story], *of_list.items()):
        if len(options) < MOST_OPTIONS:
            options.setdefault(text, word)
    return options


def _begins_sentence(question: str, match: re.Match[str]) -> bool:
    """Whether only quotes and dashes precede the word in its sentence."""
    return not WORD.search(question[_sentence_start(question, match) : match.start()])


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
    stories: list[UserStory],
    name: str,
    say: Callable[[str], None],
    listed: Sequence[StoryWord] = (),
) -> list[JsonObject]:
    """The rows of all stories; `listed`: see `gap_rows`.  Says which stories allow no gap, and with
    a list how many gaps lack options; raises InputError where no story allows one."""
    too_few = Counter[str]()
    rows_by_story = {story.name: list(gap_rows(story, listed, too_few)) for story in stories}
    lacking = ", ".join(f"{what} ({times})" for what, times in too_few.most_common(3))
    without = [story for story, rows in rows_by_story.items() if not rows]
    if len(without) == len(stories):
        others = f"{FEWEST_OPTIONS - 1} others of its type and gender in the text before"
        if listed:
            others = (
                f"{FEWEST_OF_STORY - 1} others of its type and gender in the text before and as "
                f"many nouns in --distractors as make {MOST_OPTIONS} options"
            )
        raise InputError(
            f"{name}: none of {len(stories)} stories allows a gap; expected a word in the last "
            f"third that is named {TIMES_BEFORE['NAMED_ENTITY']} times before (a thing "
            f"{TIMES_BEFORE['COMMON_NOUN']}), and {others}: list more of its words"
            + (f"; gaps that lack options: {lacking}" if too_few else "")
        )
    if without:
        say(
            f"{name}: {len(without)} of {len(stories)} stories allow no gap and are left out: "
            f"{', '.join(without)}"
        )
    if listed and too_few:
        say(
            f"{name}: {too_few.total()} gaps have less than {MOST_OPTIONS} options and are left "
            f"out; most often options lack that are {lacking}: list such nouns in --distractors"
        )
    rows = list(chain(*rows_by_story.values()))
    for number, row in enumerate(rows):
        row["md_global_number"] = number
    return rows


def _story(fields: JsonObject, row: int) -> UserStory:
    text = story_text(fields.get("text"))
    words = fields.get("words")
    if not isinstance(words, list) or not words:
        raise ValueError("words is no list of words")
    story_words = tuple(map(story_word, words))
    [(lemma, times)] = Counter(map(attrgetter("lemma"), story_words)).most_common(1)
    if times > 1:
        raise ValueError(f"words has the lemma {lemma!r} twice")
    return UserStory(str(row + 1 if fields.get("id") is None else fields["id"]), text, story_words)


def story_text(text: Json) -> str:
    """The text of a story, plain.  Raises ValueError for one that allows no gap whatever its
    words."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError("text is no text")
    text = plain(text)
    if "_" in text:
        raise ValueError("text has a low line _, which rows keep for the gap")
    if len(_SENTENCE_END.split(text.strip())) < 2:
        raise ValueError("text has one sentence, of two at least")
    return text
