"""Normalization of Ukrainian answers: this project's, and that of lm-evaluation-harness.

Arrives: texts.  Leaves: texts that are equal if the answers are.  It deliberately does not know
tasks.
"""

import string
import unicodedata
from functools import partial

from miron_jax.definitions.rules import Rule
from miron_jax.metrics.answers import Normalize

APOSTROPHES = "\u2019\u02bc\u2018\u0060\u00b4\uff07"  # written for U+0027, which dictionaries have
_FOLDED = str.maketrans(dict.fromkeys(APOSTROPHES, "'"))
_QUOTES = str.maketrans(
    dict.fromkeys("\u00ab\u00bb\u201e\u201c\u201d\u201f\u2039\u203a\u201a\u201b", '"')
)
_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "\u2026\u2013\u2014", ""))
_ASCII_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation, ""))
# Cyrillic capitals that look like the Latin letters which name an option.
_LOOK_ALIKES = str.maketrans(
    "\u0410\u0412\u0421\u0415\u0406\u041a\u041c\u041d\u041e\u0420\u0422\u0425", "ABCEIKMHOPTX"
)


def one_apostrophe(text: str) -> str:
    """Every form of the apostrophe as U+0027."""
    return text.translate(_FOLDED)


def comparable(text: str) -> str:
    """NFC, lower case, without white space at either end or twice in a row, quotes or punctuation;
    the forms of the apostrophe and, of an answer that is one letter, Cyrillic and Latin letters of
    one look count as the same.

    Only a one-letter answer, in upper case, is mapped to Latin letters: "В" and "в" are both choice
    B, and the letters of a word stay Cyrillic.  Gold is normalized by the same rule, so one-letter
    Cyrillic gold stays comparable.
    """
    whole = one_apostrophe(unicodedata.normalize("NFC", text)).translate(_QUOTES)
    text = " ".join(whole.translate(_PUNCTUATION).split())
    if not text:  # the answer may be the apostrophe or the hyphen of a word
        return whole.strip()
    if len(text) == 1:
        return text.upper().translate(_LOOK_ALIKES).lower()
    return text.casefold()


def as_lm_eval(text: str, drop_space: bool) -> str:
    r"""exact_match with ignore_case and ignore_punctuation, as lm-evaluation-harness 0.4 compares:
    ASCII punctuation is removed, white space too if the task has `\s+` among regexes_to_ignore;
    Unicode forms and apostrophes are not folded."""
    if drop_space:
        text = "".join(text.split())
    return text.lower().translate(_ASCII_PUNCTUATION)


UKRAINIAN: Rule[Normalize] = Rule("ukrainian", comparable)
LM_EVAL: Rule[Normalize] = Rule("lm_eval", partial(as_lm_eval, drop_space=False))
LM_EVAL_NO_SPACE: Rule[Normalize] = Rule("lm_eval_no_space", partial(as_lm_eval, drop_space=True))
