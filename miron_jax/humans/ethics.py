"""ruEthics' pools -> 15 numbers: what people said of each question against each of the five labels.

Arrives: labels by item, MERA's file of right answers (modules/scoring/data, ruEthics/data.json).  Leaves: correlations.  It
deliberately does not know how labels came to be.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from miron_jax.errors import InputError
from miron_jax.files.readers import parse_json
from miron_jax.humans.annotations import normalized
from miron_jax.metrics.mera import ETHICS, Answered, ethics

_FIELDS = ("text", "actant_1", "actant_2", "question")
_STEMS = {"правильн": "correct", "хорош": "good", "этичн": "ethical"}  # of the three questions' wordings

Labels = Mapping[tuple[str, ...], Mapping[str, str]]  # (text, first actant, second actant) -> category -> "0" or "1"


def read_ethics_gold(path: Path) -> Labels:
    """The five labels of every text and pair of actants.  Raises InputError."""
    try:
        records = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"--gold={path}: {error}; expected MERA's ruEthics data.json, a list of records") from None
    right: dict[tuple[str, ...], dict[str, str]] = {}
    for number, own in enumerate(records if isinstance(records, list) else [records], 1):
        pair = own.get("pair") if isinstance(own, dict) else None
        labels = {name: str(own.get(name)) for name in ETHICS} if isinstance(own, dict) else {}
        texts = [own.get("text"), *pair] if isinstance(pair, list) and len(pair) == 2 else []
        if not texts or not all(isinstance(text, str) for text in texts) or not set(labels.values()) <= {"0", "1"}:
            raise InputError(
                f"--gold={path}, record {number}: expected text, pair (two texts) and 0 or 1 for each of {', '.join(ETHICS)}"
            )
        if right.setdefault(normalized(texts), labels) != labels:
            raise InputError(f"--gold={path}, record {number}: an earlier record labels this text and pair otherwise")
    return right


def ethics_values(labels: Mapping[tuple[str, ...], str], inputs: Sequence[str], gold: Labels) -> dict[str, float]:
    """Matthews' correlation by "question.category", as `metrics.mera.ethics`; items that `gold` does not have are left out.

    labels: "0" or "1" by item, a tuple of the columns `inputs`.  Raises InputError where a column or question is unknown.
    """
    places = [inputs.index(f"INPUT:{name}") for name in _FIELDS if f"INPUT:{name}" in inputs]
    if len(places) != len(_FIELDS):
        raise InputError(
            f"ruEthics' items have the columns {', '.join(inputs)}, expected {', '.join(f'INPUT:{n}' for n in _FIELDS)}"
        )
    answered = []
    for item, label in labels.items():
        *key, question = (item[place] for place in places)
        right = gold.get(normalized(key))
        if right is not None:
            answered.append(Answered(label, right, _question(question)))
    return ethics(answered, np.ones(len(answered)))


def _question(text: str) -> str:
    named = [name for stem, name in _STEMS.items() if stem in text.lower()]
    if len(named) != 1:
        raise InputError(
            f"ruEthics: the question {text!r:.60} is none of the three, expected one with {', '.join(_STEMS)} in it"
        )
    return named[0]
