"""Rewrites of toxic texts -> style, meaning, fluency and their product.

Arrives: originals, rewrites, and a function that scores them.  Leaves: named numbers of each pair.
It deliberately does not know models.

MERA's scoring example loads one calibration three times and takes style's other label, so J of
different scripts is on different scales.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from miron_jax.definitions.rules import Rule
from miron_jax.errors import InputError
from miron_jax.metrics.choices import ExampleScore

Scorer = Callable[[Sequence[str], Sequence[str]], tuple[np.ndarray, np.ndarray, np.ndarray]]
NAMES = ("sta", "sim", "fl")
# Without the classifiers a rewrite has no score.
DETOX = Rule(
    "detox",
    lambda answer, accepted, normalize: ExampleScore(None, None, False, False, {"j": math.nan}),
)


def detox_scores(
    scorer: Scorer, originals: Sequence[str], rewrites: Sequence[str]
) -> list[dict[str, float]]:
    """sta, sim, fl and j = sta * sim * fl of every pair; J of a set is the mean of j, not the
    product of the three means.

    `scorer(originals, rewrites)` returns three arrays [R] of scores from 0 to 1: the rewrite is not
    toxic, has the same meaning, is fluent.  MERA: IlyaGusev/rubertconv_toxic_clf (label 0),
    s-nlp/rubert-base-cased-conversational-paraphrase-v1 ("paraphrase"),
    s-nlp/ruRoberta-large-RuCoLa-v1 (label 1), each calibrated.  Its scoring example and v1.2
    calibrate all three by the first table, and the former takes label 1 of style: values of
    different scripts do not compare.

    Raises InputError if the scorer returns anything else.
    """
    scores = scorer(list(originals), list(rewrites))
    if not isinstance(scores, tuple | list) or len(scores) != len(NAMES):
        raise InputError(
            f"--detox_scorer returned a {type(scores).__name__}, expected three arrays: "
            f"{', '.join(NAMES)}"
        )
    columns = [np.asarray(column, np.float64) for column in scores]
    for name, column in zip(NAMES, columns, strict=True):
        if column.shape != (len(rewrites),) or not ((column >= 0) & (column <= 1)).all():
            raise InputError(
                f"--detox_scorer returned for {name} the shape {column.shape} and values from "
                f"{column.min(initial=0):g} to {column.max(initial=0):g}, expected {len(rewrites)} "
                "numbers from 0 to 1"
            )
    rows = np.stack(columns, axis=1)
    return [
        {**dict(zip(NAMES, row.tolist(), strict=True)), "j": float(np.prod(row))} for row in rows
    ]
