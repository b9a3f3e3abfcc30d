"""How often is a run that stops early wrong, and how many examples does it save?  Replays of recorded runs.

    python benchmarks/replay_stops.py --first=RUN --second=RUN       # ten minutes on two cores for 10,000 replays

Each replay draws another random order of the examples that both runs have, and asks after 100 examples and then after each
half more, as `eval --until` does: who wins (`decided`), and, on one run, whether a betting interval up to the last of those
moments misses the mean of all examples.  A pair of runs differs as it differs; to ask about other differences, populations
of a given size are made with the recorded share of pairs that differ.  The pooled population has the examples of all tasks.
A budget of a tenth of all tokens, by Neyman's shares, is compared with the equal limit that has the same error.  The last
line is JSON.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import flags
from common import environment, run, say

from miron_jax.evaluation.sampling import moments
from miron_jax.report.run_folder import earlier_of, main_of, read_runs
from miron_jax.statistics.sequential import ALPHA, allocation, highest_wealth, winner

FLAGS = flags.FLAGS
flags.DEFINE_string("first", None, "Output folder of eval.", required=True)
flags.DEFINE_string("second", None, "Output folder of eval, with the same tasks.", required=True)
flags.DEFINE_integer("replays", 10_000, "Orders of each population.", lower_bound=1)
flags.DEFINE_integer(
    "interval_replays", 300, "Orders of each task for its intervals, which take longer.", lower_bound=1
)

GAPS = ((10_000, 0.04), (2_400, 0.04), (25_000, 0.04), (10_000, 0.0), (2_400, 0.0))  # population, difference
TENTH = 0.1


class Replayed(NamedTuple):
    wrong: float  # share of orders that named the other one, or one where both are equal
    median: float  # share of the examples that ran


def replayed(differences: np.ndarray, replays: int, draws: np.random.Generator) -> Replayed:
    size, truth = len(differences), int(np.sign(differences.sum()))
    wrong, shares = 0, []
    for _ in range(replays):
        order = draws.permutation(differences)
        at, found = next((at, own) for at in moments(size) if (own := winner(order[:at], size)) or at == size)
        wrong += found not in (0, truth)
        shares.append(at / size)
    return Replayed(wrong / replays, float(np.median(shares)))


def with_gap(differences: np.ndarray, size: int, gap: float) -> np.ndarray:
    """A population with the recorded share of discordant pairs, and this difference."""
    discordant = max(float((differences != 0).mean()), gap)
    second, first = (round(size * (discordant + sign * gap) / 2) for sign in (1, -1))
    return np.repeat([1.0, -1.0, 0.0], [second, first, size - second - first])


def missed(values: np.ndarray, replays: int, draws: np.random.Generator) -> float:
    """Share of orders in which the bets refute the true mean, before the last round: an interval that does not hold it."""
    size, truth, out = len(values), float(values.mean()), 0
    *_, last, _ = (0, *moments(size))
    for _ in range(replays):
        order = draws.permutation(values)[:last]
        out += bool(highest_wealth(order, size, np.asarray([truth]))[0] >= -math.log(ALPHA))
    return out / replays


def budget_saves(values: Mapping[str, np.ndarray], costs: Mapping[str, float]) -> float:
    """Tokens of the equal limit with the error of a budget of a tenth of all tokens, by the budget's."""
    tasks = list(values)
    weight = 1 / len(tasks)
    spreads = [float(values[task].std(ddof=1)) for task in tasks]
    sizes, cost = [len(values[task]) for task in tasks], [costs[task] for task in tasks]
    budget = TENTH * sum(n * c for n, c in zip(sizes, cost, strict=True))
    numbers = allocation([weight * own for own in spreads], cost, sizes, budget)

    def variance(numbers: Sequence[int]) -> float:
        return sum(
            (weight * spread) ** 2 / n * (1 - n / size) for spread, n, size in zip(spreads, numbers, sizes, strict=True)
        )

    def spent(numbers: Sequence[int]) -> float:
        return sum(n * c for n, c in zip(numbers, cost, strict=True))

    limits = ([min(limit, size) for size in sizes] for limit in range(2, max(sizes) + 1))
    equal = next(own for own in limits if variance(own) <= variance(numbers))
    return spent(equal) / spent(numbers)


def main(arguments: Sequence[str]) -> None:
    first, second = read_runs([FLAGS.first, FLAGS.second])
    tasks = [name for name in first.tasks if name in second.tasks and main_of(first.tasks[name]) == "accuracy"]
    found = [earlier_of(own, tasks) for own in (first, second)]
    values = [
        {name: np.asarray([own[name].values[i] for i in sorted(own[name].values)]) for name in tasks} for own in found
    ]
    draws, results = np.random.default_rng(0), {}
    recorded = {name: values[1][name] - values[0][name] for name in tasks}
    recorded["pooled"] = np.concatenate([*recorded.values()])
    for name, differences in recorded.items():
        own = replayed(differences, FLAGS.replays, draws)
        gap, discordant = float(differences.mean()), float((differences != 0).mean())
        results[name] = {"examples": len(differences), "difference": gap, "discordant": discordant, **own._asdict()}
        say(f"{name}: {len(differences)} examples, {gap:+.4f}: wrong {own.wrong:.2%}, median {own.median:.1%} of them")
    for size, gap in GAPS:
        own = replayed(with_gap(recorded["pooled"], size, gap), FLAGS.replays, draws)
        results[f"{size}, {gap:g}"] = own._asdict()
        say(f"population of {size}, difference {gap:g}: wrong {own.wrong:.2%}, median {own.median:.1%} of the examples")
    for name in tasks:
        out = missed(values[0][name], FLAGS.replays, draws)
        results[f"{name}, interval"] = {"missed": out}
        say(f"{name}: the interval at some moment misses the mean in {out:.2%} of the orders")
    tokens = {name: float(np.mean([_tokens(sample) for sample in first.samples(name)])) for name in tasks}
    saved = budget_saves(values[0], tokens)
    say(f"a tenth of all tokens by Neyman's shares: an equal limit with the same error takes {saved:.2f}x the tokens")
    say(
        json.dumps(
            {
                "benchmark": "replay_stops",
                "first": first.label,
                "second": second.label,
                "replays": FLAGS.replays,
                "results": results,
                "budget_saves": saved,
                "environment": environment(),
            }
        )
    )


def _tokens(sample: Mapping[str, object]) -> float:
    """About the tokens of an example: of its prompt by characters, and of its options."""
    options = sample["options"]
    assert isinstance(options, list)
    return len(str(sample["prompt"])) / 4 + sum(own["num_tokens"] for own in options)


if __name__ == "__main__":
    run(main)
