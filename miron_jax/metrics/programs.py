"""Completions -> programs; how many of a problem's programs pass -> named numbers.

Arrives: completions, a verdict for each program.  Leaves: programs, `ExampleScore`.  It
deliberately does not know what a program does.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np

from miron_jax.definitions.rules import Rule
from miron_jax.metrics.choices import ExampleScore

# Cuts: a completion -> the program in it.  A line that begins with a letter, digit, # or ` at the
# margin follows the function and is cut off.  The stop string has ended the completion already.
NEXT_TOP_LEVEL_LINE: Rule[Callable[[str], str]] = Rule(
    "next_top_level_line", lambda text: re.split(r"\n[A-Za-z0-9#`]", text, maxsplit=1)[0]
)
AT_STOP: Rule[Callable[[str], str]] = Rule("stop", lambda text: text)


def score_programs(passed: Sequence[bool], k: int, also: Sequence[int] = ()) -> ExampleScore:
    """accuracy = pass@k; also pass_at_j for j = 1, each of `also` and n programs; score is the mean
    over `also`."""
    n = len(passed)
    right = sum(passed)
    metrics = {"accuracy": pass_at(k, n, right)}
    metrics |= {f"pass_at_{j}": pass_at(j, n, right) for j in dict.fromkeys((1, *also, n))}
    if also:
        metrics["score"] = float(np.mean([metrics[f"pass_at_{j}"] for j in also]))
    return ExampleScore(None, right > 0, False, False, metrics)


def pass_at(k: int, n: int, right: int) -> float:
    """1 - C(n - right, k) / C(n, k): the unbiased chance that at least one of k of these n programs
    passes.

    Chen et al. 2021, arXiv:2107.03374, section 2.1; 1 if fewer than k are wrong.
    """
    if n - right < k:
        return 1.0
    return float(1 - np.prod(1 - k / np.arange(n - right + 1, n + 1)))
