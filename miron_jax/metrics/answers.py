"""A text that a model wrote, and the answers that are right -> named numbers.

Arrives: the generated text, the accepted answers.  Leaves: `ExampleScore`.  It deliberately does not know tasks or tokens.
"""

import re
import string
from collections.abc import Sequence

from miron_jax.metrics.choices import ExampleScore

_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "\u2018\u2019\u00b4`", " "))
_ARTICLE = re.compile(r"\b(a|an|the)\b")


def score_answer(text: str, accepted: Sequence[str], answer_after: str) -> ExampleScore:
    """accuracy = 1 if the normalized answer begins with a normalized accepted one, else 0.

    composer's InContextLearningQAAccuracy.  A longer number that begins with the right one passes ("12" for "1"), a lost
    sign is not seen ("5" for "-5"), and an accepted answer that normalizes to nothing is always right.
    """
    answer = normalize(answer_of(text, answer_after))
    right = any(answer.startswith(normalize(own)) for own in accepted)
    return ExampleScore(None, right, False, False, {"accuracy": float(right)})


def answer_of(text: str, answer_after: str) -> str:
    """What stands behind the last `answer_after`; the whole text where there is none."""
    return text.rsplit(answer_after, 1)[-1] if answer_after else text


def normalize(text: str) -> str:
    """Lower case; punctuation, underscores and the articles a, an, the become space; white space is squeezed."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())
