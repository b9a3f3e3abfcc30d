"""Where a program ends in a text, and how many of a problem's programs pass -> named numbers.

Arrives: texts, a verdict a program.  Leaves: programs, `ExampleScore`.  It deliberately does not know what a program does.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np

from miron_jax.definitions.rules import Rule
from miron_jax.metrics.choices import ExampleScore

# Cuts: a text -> the program in it.  What follows the function is not part of it: a line that begins with a letter, digit, #
# or ` at the margin.  A stop string has cut a text before.
NEXT_TOP_LEVEL_LINE: Rule[Callable[[str], str]] = Rule(
    "next_top_level_line", lambda text: re.split(r"\n[A-Za-z0-9#`]", text, maxsplit=1)[0]
)
AT_STOP: Rule[Callable[[str], str]] = Rule("stop", lambda text: text)


def score_programs(passed: Sequence[bool], k: int, also: Sequence[int] = ()) -> ExampleScore:
    """accuracy = pass@k; pass_at_1 and pass_at_n, for n programs, stand beside it; score is the mean over `also`."""
    n, right = len(passed), sum(passed)
    metrics = {"accuracy": pass_at(k, n, right)}
    metrics |= {f"pass_at_{own}": pass_at(own, n, right) for own in dict.fromkeys((1, *also, n))}
    if also:
        metrics["score"] = float(np.mean([metrics[f"pass_at_{own}"] for own in also]))
    return ExampleScore(None, right > 0, False, False, metrics)


def pass_at(k: int, n: int, right: int) -> float:
    """1 - C(n - right, k) / C(n, k): the chance that one of k programs drawn from these n passes, without bias.

    Chen et al. 2021, arXiv:2107.03374, section 2.1; 1 where fewer than k are wrong.
    """
    if n - right < k:
        return 1.0
    return float(1 - np.prod(1 - k / np.arange(n - right + 1, n + 1)))
