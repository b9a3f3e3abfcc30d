"""Words that gaps may replace, with all forms: a user's, and nouns that come with the package.

Arrives: records of a file; a list of nouns in the layout of UA-CBT's words_and_data.yaml.  Leaves:
`StoryWord`s.  It deliberately inflects nothing but the longer dative of masculine animates: other
forms are looked up in nouns_uk.txt or written by the user, as a rule that is wrong for one word in
six reveals which option is the answer.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, are_texts, parse_yaml, shown
from miron_jax.files.regular import read_regular
from miron_jax.tasks.eval_uation.ukrainian import comparable, one_apostrophe

TASK_TYPES = ("NAMED_ENTITY", "COMMON_NOUN", "VERB")
CASES: tuple[str, ...] = ("nom", "gen", "dat", "acc", "ins", "loc", "voc")
NOUNS = Path(__file__).with_name("nouns_uk.txt")  # lemma, gender, kind, singular forms by CASES
WORD = re.compile(r"\w+(?:['-]\w+)*")  # a compound is one word
_GENDERS = {"male": "m", "female": "f", "neutral": "n"}  # as UA-CBT's list names them
_UNSEEN = str.maketrans("", "", "\u00ad\u0301")  # soft hyphen, stress
_NOUN_TYPES = (("NAMED_ENTITY",), ("COMMON_NOUN",))
_MOST_NAMED = 8  # nouns that one message names
_LAYOUT = (
    "expected lists of nouns below NAMED_ENTITY, a species and a gender, or below COMMON_NOUN and "
    f"a gender; genders are {', '.join(_GENDERS)}"
)


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

    def is_in(self, comparable_words: frozenset[str]) -> bool:
        """Whether any of its forms is among these words of a text."""
        return not comparable_words.isdisjoint(map(comparable, self.forms.values()))


class KnownNoun(NamedTuple):
    word: StoryWord
    kind: str  # "animal", "human", "thing" (which can be carried), "other"


@cache
def known_nouns() -> tuple[KnownNoun, ...]:
    """The nouns of nouns_uk.txt; see `_with_longer_dative`."""
    nouns = []
    for line in NOUNS.read_text(encoding="utf-8").splitlines():
        lemma, gender, kind, *forms = line.split("\t")
        type_ = "NAMED_ENTITY" if kind in ("animal", "human") else "COMMON_NOUN"
        by_case = dict(zip(CASES, forms, strict=True))
        nouns.append(KnownNoun(_with_longer_dative(StoryWord(lemma, type_, gender, by_case)), kind))
    return tuple(nouns)


def _with_longer_dative(noun: StoryWord) -> StoryWord:
    """The noun with `dat_ovi`, the dative and locative that masculine animates have beside the
    shorter one, unless another form reads so: вовка, вовкові; ведмедя, ведмедеві; сторожа,
    сторожеві; змія, змієві."""
    stem = noun.forms["gen"][:-1]
    ending = noun.forms["gen"][-1]
    is_animate = (noun.type, noun.gender) == ("NAMED_ENTITY", "m")
    if not is_animate or not stem or ending not in "ая" or "dat_ovi" in noun.forms:
        return noun
    vowel = "о"
    if ending == "я" or stem[-1] in "жчшщ":
        vowel = "е"
    if ending == "я" and stem[-1] in "аеєиіїоуюя'":
        vowel = "є"
    longer = f"{stem}{vowel}ві"
    if longer in noun.forms.values():
        return noun
    return noun._replace(forms={**noun.forms, "dat_ovi": longer})


def plain(text: str) -> str:
    """NFC, without stress marks and soft hyphens, with one form of the apostrophe."""
    seen = unicodedata.normalize("NFC", text).translate(_UNSEEN)
    return one_apostrophe(unicodedata.normalize("NFC", seen))


def words_in(text: str) -> frozenset[str]:
    """The words of a text, each `comparable`."""
    return frozenset(map(comparable, WORD.findall(text)))


def story_word(fields: Json) -> StoryWord:
    """A word of a user's record: lemma, type, gender and forms.  Raises ValueError."""
    if (
        not isinstance(fields, dict)
        or not isinstance(fields.get("lemma"), str)
        or not fields["lemma"].strip()
    ):
        raise ValueError(f"the word {fields!r:.60} has no lemma")
    lemma = plain(fields["lemma"]).strip()
    kind = fields.get("type")
    gender = fields.get("gender", "")
    forms = fields.get("forms")
    if kind not in TASK_TYPES:
        raise ValueError(
            f"the type of {lemma!r} is {kind!r:.40}, not one of {', '.join(TASK_TYPES)}"
        )
    if kind != "VERB" and gender not in ("m", "f", "n"):
        raise ValueError(f"the gender of {lemma!r} is {gender!r:.40}, not m, f or n")
    if not isinstance(forms, dict) or not are_texts([*forms, *forms.values()]):
        raise ValueError(f"the forms of {lemma!r} are {forms!r:.60}, not a form by its name")
    plain_forms = {name: plain(form).strip() for name, form in forms.items()}
    for form in plain_forms.values():
        if not WORD.fullmatch(form):
            raise ValueError(f"the form {form!r:.60} of {lemma!r} is no single word")
    return StoryWord(lemma, kind, "" if kind == "VERB" else gender, plain_forms)


def read_distractors(path: Path) -> list[StoryWord]:
    """Nouns of a user's YAML list, each once, in its order.

    An entry is a lemma of nouns_uk.txt, or `{lemma: .., forms: {nom: .., ..}}` with the seven cases
    of the singular and any other forms that gaps take.  As in UA-CBT's file, the list may stand
    below the key `distractors` beside other keys.  Raises InputError.
    """
    try:
        document = parse_yaml(read_regular(path))
    except OSError as error:
        raise InputError(
            f"--distractors={path} cannot be read ({error.strerror}): name a YAML file of nouns"
        ) from None
    except ValueError as error:
        raise InputError(f"--distractors={path} is no YAML ({error!s:.160}): mend it") from None
    if isinstance(document, dict):
        document = document.get("distractors", document)
    known = {}
    for noun in known_nouns():
        known[noun.word.lemma, noun.word.type, noun.word.gender] = noun.word
    nouns = dict[tuple[str, str, str], StoryWord]()
    unknown = list[str]()
    for place, entry in _entries(document, (), path):
        type_ = place[0]
        gender = _GENDERS[place[-1]]
        try:
            if isinstance(entry, str):
                lemma = plain(entry).strip()
                noun = known.get((lemma, type_, gender))
                if noun is None:
                    unknown.append(f"{lemma!r} ({'/'.join(place)})")
                    continue
            else:
                noun = _with_all_cases(entry, type_, gender)
        except ValueError as error:
            raise InputError(f"--distractors={path}, {'/'.join(place)}: {error}") from None
        nouns.setdefault((noun.lemma, type_, gender), noun)
    if unknown:
        raise InputError(
            f"--distractors={path}: {len(unknown)} nouns have no forms: "
            f"{', '.join(unknown[:_MOST_NAMED])}; expected one of the {len(known)} nouns that come "
            "with miron_jax, of this gender, or {lemma: .., forms: {"
            f"{': .., '.join(CASES)}: ..}}}}"
        )
    if not nouns:
        raise InputError(f"--distractors={path} has no noun: {_LAYOUT}")
    return list(nouns.values())


def _entries(
    tree: Json, place: tuple[str, ...], path: Path
) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Every entry of the list, each with the keys above it."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _entries(value, (*place, str(key)), path)
    elif place[:1] in _NOUN_TYPES and place[-1] in _GENDERS and isinstance(tree or [], list):
        for entry in tree or []:
            yield place, entry
    else:
        at = "/".join(place) or "the file"
        raise InputError(f"--distractors={path}: {at} is {shown(tree)}, {_LAYOUT}")


def _with_all_cases(entry: Json, type_: str, gender: str) -> StoryWord:
    if isinstance(entry, dict):
        entry = {**entry, "type": type_, "gender": gender}
    noun = story_word(entry)
    missing = [case for case in CASES if case not in noun.forms]
    if missing:
        raise ValueError(
            f"{noun.lemma!r} has no {', '.join(missing)}; expected a form for each of "
            f"{', '.join(CASES)}: add what is missing"
        )
    return _with_longer_dative(noun)
