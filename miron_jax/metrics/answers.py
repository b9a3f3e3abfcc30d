"""A text that a model wrote, and the answers that are right -> named numbers.

Arrives: the generated text, the accepted answers.  Leaves: `ExampleScore`.  It deliberately does not know tasks or tokens.
"""

import math
import re
import string
from collections.abc import Callable, Sequence
from functools import partial

from miron_jax.definitions.records import AnswerProfile
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.mera import exact_match, token_f1
from miron_jax.metrics.mera import normalize as normalize_squad
from miron_jax.metrics.ukrainian import as_lm_eval, comparable

_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "\u2018\u2019\u00b4`", " "))
_ARTICLE = re.compile(r"\b(a|an|the)\b")


def score_answer(text: str, accepted: Sequence[str], profile: AnswerProfile) -> ExampleScore:
    """A text against right answers, by the profile's rule."""
    answer = answer_of(text, profile.answer_after)
    if profile.match == "squad":
        em, f1 = exact_match(answer, accepted), token_f1(answer, accepted)
        return ExampleScore(None, bool(em), False, False, {"em": em, "f1": f1, "score": (em + f1) / 2})
    if profile.match == "equal":
        right = answer.strip() in accepted
        return ExampleScore(None, right, False, False, {"accuracy": float(right)})
    if profile.match == "normalized":
        same = NORMALIZERS[profile.answer_normalizer]
        right = same(answer) in map(same, accepted)
        return ExampleScore(None, right, False, False, {"accuracy": float(right)})
    if profile.match == "exam":  # its points are counted over all records together
        return ExampleScore(None, None, False, False, {"answered": float(bool(answer.strip()))})
    if profile.match == "detox":
        return ExampleScore(None, None, False, False, {"j": math.nan})
    return _score_prefix(answer, accepted)


def _score_prefix(answer: str, accepted: Sequence[str]) -> ExampleScore:
    """accuracy = 1 if the normalized answer begins with a normalized accepted one, else 0.

    composer's InContextLearningQAAccuracy.  A longer number that begins with the right one passes ("12" for "1"), a lost
    sign is not seen ("5" for "-5"), and an accepted answer that normalizes to nothing is always right.
    """
    answer = normalize(answer)
    right = any(answer.startswith(normalize(own)) for own in accepted)
    return ExampleScore(None, right, False, False, {"accuracy": float(right)})


def answer_of(text: str, answer_after: str) -> str:
    """What stands behind the last `answer_after`; the whole text where there is none."""
    return text.rsplit(answer_after, 1)[-1] if answer_after else text


def compared(text: str, profile: AnswerProfile) -> str:
    """The answer in a text, as it is compared."""
    return NORMALIZERS[profile.answer_normalizer](answer_of(text, profile.answer_after))


def normalize(text: str) -> str:
    """Lower case; punctuation, underscores and the articles a, an, the become space; white space is squeezed."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


NORMALIZERS: dict[str, Callable[[str], str]] = {
    "gauntlet": normalize,
    "squad": normalize_squad,
    "strip": str.strip,
    "ukrainian": comparable,
    "lm_eval": partial(as_lm_eval, drop_space=False),
    "lm_eval_no_space": partial(as_lm_eval, drop_space=True),
}
