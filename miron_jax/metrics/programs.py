"""How many of a problem's programs pass -> named numbers.

Arrives: a verdict a program.  Leaves: `ExampleScore`.  It deliberately does not know programs.
"""

from collections.abc import Sequence

import numpy as np

from miron_jax.metrics.choices import ExampleScore


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
