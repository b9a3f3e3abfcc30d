"""A completion and the accepted answers -> named numbers.

Arrives: the completion, the accepted answers.  Leaves: `ExampleScore`; rules of normalizing and
matching that suites choose from.  It deliberately does not know tasks or tokens.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

from miron_jax.definitions.records import AnswerProfile
from miron_jax.definitions.rules import Rule
from miron_jax.metrics.choices import ExampleScore

_MORE_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "\u2018\u2019\u00b4`", " "))
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")


def score_answer(text: str, accepted: Sequence[str], profile: AnswerProfile) -> ExampleScore:
    """Score a completion against the accepted answers, by the profile's rules."""
    return profile.match.call(
        answer_of(text, profile.answer_after), accepted, profile.answer_normalizer.call
    )


def holds_stop(text: str, profile: AnswerProfile) -> bool:
    """Whether a stop string, or what an answer stands after, is in a text without the space at its
    ends: no completion's answer is that."""
    marks = (*profile.stop, *filter(None, [profile.answer_after]))
    return any(mark in text.strip() for mark in marks)


def may_be_right(accepted: Sequence[str], profile: AnswerProfile) -> bool:
    """Whether a completion may be right: a right answer, or its normalized form, is one and is
    taken for right."""
    for answer in accepted:
        for text in (answer.strip(), profile.answer_normalizer.call(answer)):
            is_right = score_answer(text, accepted, profile).correct is not False
            if is_right and not holds_stop(text, profile):
                return True
    return not accepted


def answer_of(text: str, answer_after: str) -> str:
    """The text after the last `answer_after`; the whole text if there is none."""
    return text.rsplit(answer_after, 1)[-1] if answer_after else text


def compared(text: str, profile: AnswerProfile) -> str:
    """The normalized answer in a completion."""
    return profile.answer_normalizer.call(answer_of(text, profile.answer_after))


def normalize_gauntlet(text: str) -> str:
    """Lower case; punctuation, underscores and the articles a, an, the become space; white space is
    squeezed."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_MORE_PUNCTUATION)).split())


def normalize_squad(text: str) -> str:
    """SQuAD's: lower case, no ASCII punctuation, no English articles, white space squeezed.
    Russian quotes stay."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


Normalize = Callable[[str], str]
GAUNTLET: Rule[Normalize] = Rule("gauntlet", normalize_gauntlet)
SQUAD: Rule[Normalize] = Rule("squad", normalize_squad)
STRIP: Rule[Normalize] = Rule("strip", str.strip)


def exact_match(
    answer: str, accepted: Sequence[str], normalize: Normalize = normalize_squad
) -> float:
    """em: 1 if the normalized answer equals a normalized accepted one."""
    return float(any(normalize(answer) == normalize(right) for right in accepted))


def token_f1(answer: str, accepted: Sequence[str], normalize: Normalize = normalize_squad) -> float:
    """f1: the best, over accepted answers, of 2 P R / (P + R) over words that both have, with their
    multiplicity.

    If either side has no word it is 1 if both have none, else 0.
    """
    return max(_token_f1(normalize(answer).split(), normalize(right).split()) for right in accepted)


def _token_f1(answer: list[str], right: list[str]) -> float:
    if not answer or not right:
        return float(answer == right)
    same = sum((Counter(answer) & Counter(right)).values())
    return 2 * same / (len(answer) + len(right)) if same else 0.0


def _right(is_right: bool) -> ExampleScore:
    return ExampleScore(None, is_right, False, False, {"accuracy": float(is_right)})


def _match_words(answer: str, accepted: Sequence[str], normalize: Normalize) -> ExampleScore:
    em = exact_match(answer, accepted, normalize)
    f1 = token_f1(answer, accepted, normalize)
    return ExampleScore(None, bool(em), False, False, {"em": em, "f1": f1, "score": (em + f1) / 2})


# Matches: an answer, the accepted ones, a normalizer -> the example's score.
Match = Callable[[str, Sequence[str], Normalize], ExampleScore]
EQUAL: Rule[Match] = Rule(
    "equal",
    lambda answer, accepted, normalize: _right(answer.strip() in map(str.strip, accepted)),
)
NORMALIZED: Rule[Match] = Rule(
    "normalized",
    lambda answer, accepted, normalize: _right(normalize(answer) in map(normalize, accepted)),
)
WORDS: Rule[Match] = Rule("squad", _match_words)


def _begins_with(text: str, right: str) -> bool:
    """Whether the text begins with `right` and no number or cased word goes on past it."""
    last, rest = right[-1:], text[len(right) :]
    number_goes_on = last.isdigit() and re.match(r"[.,]?\d", rest)
    word_goes_on = last.lower() != last.upper() and rest[:1].isalpha()
    return text.startswith(right) and not number_goes_on and not word_goes_on


PREFIX_WORDS: Rule[Match] = Rule(
    "prefix_words",
    lambda answer, accepted, normalize: _right(
        any(_begins_with(normalize(answer), normalize(right)) for right in accepted)
    ),
)
# composer's InContextLearningQAAccuracy: right if the normalized answer begins with a normalized
# accepted one.  A longer number that begins with the right one passes ("12" for "1"), a missing
# sign passes ("5" for "-5"), and everything passes if an accepted answer normalizes to the empty
# string.
PREFIX: Rule[Match] = Rule(
    "prefix",
    lambda answer, accepted, normalize: _right(
        normalize(answer).startswith(tuple(map(normalize, accepted)))
    ),
)
