"""Records -> the JSON objects that stand for them wherever they occur.

Arrives: an `Estimate`, a `Score`.  Leaves: plain dicts; a number that is not finite has a reason beside it.  It
deliberately does not know what a metric means.
"""

import math
from typing import Any

import numpy as np

from miron_jax.engine.records import Score
from miron_jax.statistics.estimate import Estimate


def option_entry(text: str, score: Score) -> dict[str, Any]:
    scored = len(score.logprob) > 0
    option = {
        "text": text,
        "logprob": float(score.logprob.sum(dtype=np.float64)) if scored else math.nan,
        "num_tokens": len(score.logprob),
        "token_logprobs": score.logprob.tolist(),
        "greedy": bool((score.rank == 0).all()) if scored and not np.isnan(score.logprob).any() else None,
    }
    return option if scored else {**option, "reason": "no scored token"}


def estimate_entry(found: Estimate) -> dict[str, Any]:
    entry: dict[str, Any] = {"value": found.value, "stderr": found.stderr, "ci95": list(found.ci95)}
    if found.num_undefined:
        entry |= {"n": found.num_examples, "undefined": found.num_undefined}
    if not found.num_examples:
        entry["reason"] = "no example has a defined value"
    elif not math.isfinite(found.value):
        entry["reason"] = "an example is infinite"
    elif not math.isfinite(found.stderr):
        entry["reason"] = "one example has no deviation"
    return entry
