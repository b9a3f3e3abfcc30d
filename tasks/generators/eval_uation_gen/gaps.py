"""Gaps in stories of one's own: rows in UA-CBT's published shape.

Arrives: stories whose words to ask for are given with all their forms, as a morphology tool or a person writes them.
Leaves: rows.  It deliberately parses no Ukrainian: a word is found by its forms, and a form that two words share, or two
words that would stand in the gap alike, make no gap.  Texts lose stress marks and soft hyphens, and have one apostrophe.

The last 35 % of the sentences are the question.  A word may be asked for where it stands in them, if the sentences before
name it twice (a thing four times).  The other options are words of its type and gender that the story names before the
gap, the most frequent first, in the form that the gap takes, all with a capital or all without.  No gap stands behind a
preposition that only some words take (зі), or where the text writes a word otherwise than its form.  That only one option
is true is for whoever wrote the story to see: `md_gap_sentence` and `options` are what to read.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from miron_jax.definitions.data_files import json_rows
from miron_jax.errors import InputError
from miron_jax.tasks.draw import Draw
from miron_jax.tasks.eval_uation.ukrainian import comparable, one_apostrophe
from miron_jax.tasks.generators.eval_uation_gen.rows import VERSION
from miron_jax.tasks.generators.eval_uation_gen.stories import GAP, QUESTION_SHARE, TASK_TYPES

MOST_OPTIONS, FEWEST_OPTIONS = 6, 4
TIMES_BEFORE = {"NAMED_ENTITY": 2, "COMMON_NOUN": 4, "VERB": 2}  # that the context names a word that is asked for
_WORD = re.compile(r"\w+(?:['-]\w+)*")  # a compound is one word
_SENTENCE_END = re.compile(
    r"""(?:(?<=[.!?…])|(?<=[.!?…][»”"]))(?<!\b\w\.)(?<!\bім\.)(?<!\bст\.)\s+(?=[«„"“(—–]?\s*[А-ЯҐЄІЇA-Z])"""
)
_UNSEEN = str.maketrans("", "", "\u00ad\u0301")  # soft hyphen, stress
_OF_SOME_WORDS = {"зі", "із", "ізі", "зо", "уві", "наді", "піді", "переді"}  # prepositions before some beginnings only
_RECORD = "text, and words: each with lemma, type, forms (form name to form) and, of a noun, gender"


class StoryWord(NamedTuple):
    lemma: str
    type: str  # of TASK_TYPES
    gender: str  # "": a verb, which stands beside any other
    forms: Mapping[str, str]  # by case, or by person, gender and tense

    def names_of(self, form: str) -> tuple[str, ...]:
        """What the form may be: "nom", "acc", ..."""
        return tuple(name for name, own in self.forms.items() if comparable(own) == comparable(form))


class OwnStory(NamedTuple):
    name: str
    text: str
    words: tuple[StoryWord, ...]


def gap_rows(story: OwnStory) -> Iterator[dict[str, Any]]:
    """A row for every gap that the story allows, without `md_global_number`."""
    sentences = [own for own in _SENTENCE_END.split(" ".join(story.text.split())) if own]
    num_question = max(1, round(QUESTION_SHARE * len(sentences)))
    context, question = " ".join(sentences[:-num_question]), " ".join(sentences[-num_question:])
    owners = _owners(story)
    before, whole = (_counts(text, owners) for text in (context, f"{context} {question}"))
    rows = 0
    for match in _WORD.finditer(question):
        asked = owners.get(comparable(match[0]))
        if asked is None or before[asked.lemma] < TIMES_BEFORE[asked.type]:
            continue
        if (_WORD.findall(question[: match.start()].lower()) or [""])[-1] in _OF_SOME_WORDS:
            continue
        others = [own for own in story.words if (own.type, own.gender) == (asked.type, asked.gender)]
        ranked = sorted((own for own in others if before[own.lemma]), key=lambda own: -before[own.lemma])
        options = _options(asked, match[0], ranked, _begins_sentence(question, match))
        if len(options) < FEWEST_OPTIONS:
            continue
        shown = Draw("eval-ua-tion-gen", VERSION, "gaps", story.name, match.start()).shuffled(list(options))
        counts = [whole[options[text].lemma] for text in shown]
        lead, rest = question[: match.start()].rstrip(), question[match.end() :].lstrip()
        yield {
            "context": context,
            "question": f"{lead} {GAP} {rest}".strip(),
            "options": shown,
            "answer": match[0],
            "storyId": story.name,
            "taskType": asked.type,
            "md_num_context_sents": len(sentences) - num_question,
            "md_num_question_sents": num_question,
            "md_n_question_sents_share": QUESTION_SHARE,
            "md_sequential_number": rows,
            "md_form": "/".join(asked.names_of(match[0])),
            "md_gap_sentence": _with_gap(question, match),
            "md_opts_baseline_most_frequent": [shown[counts.index(max(counts))]],
            "md_mentions": counts,
        }
        rows += 1


def _owners(story: OwnStory) -> dict[str, StoryWord]:
    """Form -> the one word of the story that has it."""
    having: dict[str, set[str]] = {}
    of = {own.lemma: own for own in story.words}
    for own in story.words:
        for form in own.forms.values():
            having.setdefault(comparable(form), set()).add(own.lemma)
    return {form: of[next(iter(lemmas))] for form, lemmas in having.items() if len(lemmas) == 1}


def _counts(text: str, owners: Mapping[str, StoryWord]) -> Counter[str]:
    return Counter(own.lemma for word in _WORD.findall(text) if (own := owners.get(comparable(word))) is not None)


def _options(asked: StoryWord, form: str, ranked: list[StoryWord], begins_sentence: bool) -> dict[str, StoryWord]:
    """Text -> word, at most MOST_OPTIONS, the asked one among them: words that have one form for all that `form` may be.

    None where the text writes the word otherwise than its form, such as in capitals: it would tell the answer.
    """

    def shown(own: StoryWord) -> str | None:
        forms = {own.forms.get(name) for name in names}
        [text] = forms if len(forms) == 1 else (None,)
        return text if text is None or not begins_sentence else f"{text[0].upper()}{text[1:]}"

    names = asked.names_of(form)
    if shown(asked) != form:
        return {}
    options, known = {form: asked}, {comparable(form)}
    for own in ranked:
        text = shown(own)
        if text is None or comparable(text) in known or text[0].isupper() != form[0].isupper():
            continue
        known.add(comparable(text))
        options[text] = own
        if len(options) == MOST_OPTIONS:
            break
    return options


def _begins_sentence(question: str, match: re.Match[str]) -> bool:
    """Nothing but quotes and dashes stands before it in its sentence."""
    return not _WORD.search(question[_sentence_start(question, match) : match.start()])


def _sentence_start(question: str, match: re.Match[str]) -> int:
    return max((end.end() for end in _SENTENCE_END.finditer(question) if end.end() <= match.start()), default=0)


def _with_gap(question: str, match: re.Match[str]) -> str:
    """The sentence that holds the gap."""
    start = _sentence_start(question, match)
    stop = next((end.start() for end in _SENTENCE_END.finditer(question, match.end())), len(question))
    return f"{question[start : match.start()].rstrip()} {GAP} {question[match.end() : stop].lstrip()}".strip()


def read_stories(path: Path) -> list[OwnStory]:
    """A user's own: JSON objects with text and words.  Raises InputError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"--stories={path} cannot be read ({error.strerror}): name a file of JSON objects with {_RECORD}"
        ) from None
    found: list[OwnStory] = []
    for number, fields in enumerate(json_rows(content, path, "--stories"), 1):
        try:
            found.append(_story(fields, number))
        except ValueError as error:
            raise InputError(
                f"--stories={path}, record {number}: {error}; expected {_RECORD}: mend the record"
            ) from None
    if len({story.name for story in found}) < len(found):
        raise InputError(f"--stories={path}: two records have one id, expected another for each, or none")
    return found


def rows_of_stories(stories: list[OwnStory], name: str) -> list[dict[str, Any]]:
    """The rows of all stories.  Raises InputError where no story allows a gap."""
    rows = [row for story in stories for row in gap_rows(story)]
    if not rows:
        raise InputError(
            f"{name}: none of {len(stories)} stories allows a gap; expected a word in the last third that is named "
            f"{TIMES_BEFORE['NAMED_ENTITY']} times before (a thing {TIMES_BEFORE['COMMON_NOUN']}), and "
            f"{FEWEST_OPTIONS - 1} others of its type and gender in the text before: list more of its words"
        )
    return [{**row, "md_global_number": number} for number, row in enumerate(rows)]


def _story(fields: Mapping[str, Any], number: int) -> OwnStory:
    text, words = fields.get("text"), fields.get("words")
    if not isinstance(text, str) or not text.strip():
        raise ValueError("text is no text")
    text = _plain(text)
    if "_" in text:
        raise ValueError("text has a low line _, which rows keep for the gap")
    if len(_SENTENCE_END.split(text.strip())) < 2:
        raise ValueError("text has one sentence, of two at least")
    if not isinstance(words, list) or not words:
        raise ValueError("words is no list of words")
    found = tuple(_word(own) for own in words)
    if twice := [lemma for lemma, times in Counter(own.lemma for own in found).items() if times > 1]:
        raise ValueError(f"words has the lemma {twice[0]!r} twice")
    return OwnStory(str(number if fields.get("id") is None else fields["id"]), text, found)


def _plain(text: str) -> str:
    return one_apostrophe(unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).translate(_UNSEEN)))


def _word(own: Any) -> StoryWord:
    if not isinstance(own, dict) or not isinstance(own.get("lemma"), str) or not own["lemma"].strip():
        raise ValueError(f"the word {own!r:.60} has no lemma")
    lemma, kind, gender, forms = _plain(own["lemma"]).strip(), own.get("type"), own.get("gender", ""), own.get("forms")
    if kind not in TASK_TYPES:
        raise ValueError(f"the type of {lemma!r} is {kind!r:.40}, not one of {', '.join(TASK_TYPES)}")
    if kind != "VERB" and gender not in ("m", "f", "n"):
        raise ValueError(f"the gender of {lemma!r} is {gender!r:.40}, not m, f or n")
    texts = isinstance(forms, dict) and all(isinstance(form, str) for form in forms.values())
    if not texts or not forms:
        raise ValueError(f"the forms of {lemma!r} are {forms!r:.60}, not a form by its name")
    plain = {name: _plain(form).strip() for name, form in forms.items()}
    if wrong := [form for form in plain.values() if not _WORD.fullmatch(form)]:
        raise ValueError(f"the form {wrong[0]!r:.60} of {lemma!r} is no single word")
    return StoryWord(lemma, kind, "" if kind == "VERB" else gender, plain)
