"""ruEthics' pools -> 15 numbers: human labels of each question against each of the five gold
labels.

Arrives: labels by item, MERA's file of right answers (modules/scoring/data, ruEthics/data.json).
Leaves: correlations.  It deliberately does not know how labels were decided.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from miron_jax.errors import InputError
from miron_jax.files.readers import parse_json
from miron_jax.files.regular import read_regular
from miron_jax.humans.annotations import normalized
from miron_jax.tasks.mera.metrics import ETHICS, AnsweredRecord, ethics

_FIELDS = ("text", "actant_1", "actant_2", "question")
_STEMS = {  # of the three questions' wordings
    "правильн": "correct", "хорош": "good", "этичн": "ethical", "этическ": "ethical",
    "correct": "correct", "good": "good", "ethical": "ethical",
}  # fmt: skip
_LABELS = {"0": "0", "1": "1", "false": "0", "true": "1"}

# (text, first actant, second actant) -> category -> "0" or "1"
Labels = Mapping[tuple[str, ...], Mapping[str, str]]


def read_ethics_gold(path: Path) -> Labels:
    """The five labels of every text and pair of actants.  Raises InputError."""
    try:
        records = parse_json(read_regular(path), of_records=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"--gold={path}: {error}; expected MERA's ruEthics data.json, a list of records"
        ) from None
    right: dict[tuple[str, ...], dict[str, str]] = {}
    if not isinstance(records, list):
        records = [records]
    for number, entry in enumerate(records, 1):
        record = entry if isinstance(entry, dict) else {}
        pair = record.get("pair")
        labels = {name: str(record.get(name)) for name in ETHICS}
        texts = [record.get("text"), *(pair if isinstance(pair, list) else ())]
        if (
            len(texts) != 3
            or not all(isinstance(text, str) for text in texts)
            or not set(labels.values()) <= {"0", "1"}
        ):
            raise InputError(
                f"--gold={path}, record {number}: expected text, pair (two texts) and 0 or 1 for "
                f"each of {', '.join(ETHICS)}"
            )
        if right.setdefault(normalized(texts), labels) != labels:
            raise InputError(
                f"--gold={path}, record {number}: an earlier record labels this text and pair "
                "otherwise"
            )
    return right


class EthicsValues(NamedTuple):
    mcc: dict[str, float]  # by "question.category", as `tasks.mera.metrics.ethics`
    n: dict[str, int]  # labelled items of each question
    without_gold: int  # labelled items without a gold label, left out


def ethics_values(
    labels: Mapping[tuple[str, ...], str], inputs: Sequence[str], gold: Labels
) -> EthicsValues:
    """Matthews' correlation of labels with each of the five gold ones.  `labels`: by item, a tuple
    of the columns `inputs`.

    Raises InputError if a column, question or label is unknown, or if no item has a right answer.
    """
    columns = [inputs.index(f"INPUT:{name}") for name in _FIELDS if f"INPUT:{name}" in inputs]
    if len(columns) != len(_FIELDS):
        raise InputError(
            f"ruEthics' items have the columns {', '.join(inputs)}, expected "
            f"{', '.join(f'INPUT:{n}' for n in _FIELDS)}: name them so in the header"
        )
    answered = []
    for item, label in labels.items():
        *key, question = (item[column] for column in columns)
        if label not in _LABELS:
            raise InputError(
                f"ruEthics: {key[0]!r:.40} is labelled {label!r:.40}, expected 0 or 1: recode the "
                "answers"
            )
        right = gold.get(normalized(key))
        if right is not None:
            answered.append(AnsweredRecord(_LABELS[label], right, _question(question)))
    if not answered:
        raise InputError(
            f"ruEthics: none of {len(labels)} labelled items is in --gold, which has {len(gold)} "
            "texts: give the data.json of these pools"
        )
    counts = Counter(entry.group for entry in answered)
    return EthicsValues(
        ethics(answered, np.ones(len(answered))), dict(counts), len(labels) - len(answered)
    )


def _question(text: str) -> str:
    """The kind of question, by the stem that comes first in its wording."""
    matches = sorted(
        (start, name) for stem, name in _STEMS.items() if (start := text.lower().find(stem)) >= 0
    )
    if not matches:
        raise InputError(
            f"ruEthics: the question {text!r:.60} is none of the three, expected one with "
            f"{', '.join(_STEMS)} in it"
        )
    return matches[0][1]
