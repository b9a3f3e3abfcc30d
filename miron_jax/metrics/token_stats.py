"""The scored tokens of one example -> named numbers: means of what the model's distribution says at
each token.

Arrives: log-probability and rank of each token, entropy and largest log-probability of the
distribution in which it stands.  Leaves: named numbers.  It deliberately does not know tasks.

These are the core statistics of Patel et al. 2026 (arXiv 2605.18607) as others sum them up: the
paper itself was not at hand.  It weighs tokens in eight ways, takes the last 1,000 of a solution
and divides entropies by ln V; here every scored token counts once, and entropies are nats.
"""

from collections.abc import Sequence

import numpy as np

LOWEST_SHARE = 0.2  # of the tokens of a text, in Min-K%++
# nats; a floor that the paper does not have, so that a sure token does not outweigh all others
LEAST_DEVIATION = 1e-3
HITS = (1, 5, 20)  # a target is a hit if it is among so many most probable tokens
# in results and samples, not in tables
TOKEN_STATS = (
    "token_surprise", "token_entropy", "token_prob", *(f"token_top{k}" for k in HITS),
    "expected_rank", "reciprocal_rank", "token_margin", "wrong_confidence",
)  # fmt: skip
RBRIDGE = "rbridge_surprise"
TOKEN_STATS_LOWER_IS_BETTER = frozenset({
    "token_surprise", "token_entropy", "expected_rank", "token_margin", "wrong_confidence", RBRIDGE
})  # fmt: skip


def token_metrics(
    logprob: np.ndarray, rank: np.ndarray, distribution: np.ndarray
) -> dict[str, float]:
    """Means over the scored tokens; NaN without a token, or where the model answers NaN.

    surprise -log p, nats.  entropy -sum of p log p over the vocabulary, nats.  prob p.  topK 1 if
    fewer than K tokens are ahead, equal logits ordered by lower id.  expected_rank: the rank, 1 for
    the most probable token, that a target has on average; not the rank that a token drawn from the
    model has on average, which wants a sorted vocabulary.  reciprocal_rank 1 / rank.  margin: the
    largest probability less p.  wrong_confidence: the largest probability where another token has
    it, else 0.
    """
    p = np.exp(logprob.astype(np.float64))
    entropy, largest = distribution[:, :2].astype(np.float64).T
    largest = np.exp(largest)
    place = np.where(np.isnan(logprob), np.nan, rank + 1.0)
    columns = (
        -logprob.astype(np.float64),
        entropy,
        p,
        *(np.where(np.isnan(place), np.nan, place <= k) for k in HITS),
        place,
        1 / place,
        largest - p,
        np.where(place == 1, 0.0, largest),
    )
    means = np.mean(columns, axis=1) if len(logprob) else np.full(len(columns), np.nan)
    return dict(zip(TOKEN_STATS, means.tolist(), strict=True))


def min_k_plus_plus(logprob: np.ndarray, distribution: np.ndarray) -> float:
    """Min-K%++ (Zhang et al. 2024, arXiv:2404.02936): how many standard deviations a token's log p
    stands above the mean of log p in its distribution, averaged over the LOWEST_SHARE of tokens
    where this is least, at least one; higher of texts that the model was trained on.

    `logprob` float32 [N] nats, `distribution` float32 [N, 3] as `engine.records.Scores` has it; NaN
    without a token.
    """
    if not len(logprob):
        return float("nan")
    entropy, _, variance = distribution.astype(np.float64).T
    deviation = np.maximum(np.sqrt(variance), LEAST_DEVIATION)
    above = np.sort((logprob.astype(np.float64) + entropy) / deviation)
    return float(above[: max(1, int(LOWEST_SHARE * len(above)))].mean())


def rbridge_surprise(
    logprob: np.ndarray, pieces: Sequence[bytes], expert_probs: Sequence[tuple[str, float]]
) -> float:
    """The mean over tokens of -log p times the token's weight, nats (rBridge, Koh et al. 2025,
    arXiv 2509.21013); NaN if the tokens do not spell the solution.

    A letter has the probability that the expert gave to its own token around it, and a token the
    mean of its letters', scaled over the solution so that the least is 0 and the largest 1 (all 1
    if they are equal).  Bytes stand for letters, of which a token may hold a part; the mean, and
    the scale by solution, are this project's reading of the paper.  `pieces`: the bytes of each
    token; the last ones end the solution, and earlier ones may begin before it.
    """
    of_bytes = np.concatenate([np.full(len(text.encode()), p) for text, p in expert_probs])
    solution = "".join(text for text, _ in expert_probs).encode()
    spelled = b"".join(pieces)
    if not spelled or not (spelled.endswith(solution) or solution.endswith(spelled)):
        return float("nan")
    end = len(solution) - len(spelled) + np.cumsum([*map(len, pieces)])
    start = np.maximum(np.append(len(solution) - len(spelled), end[:-1]), 0)
    inside = end > start  # tokens with letters of the solution
    sums = np.insert(np.cumsum(of_bytes), 0, 0.0)
    weight = (sums[end[inside]] - sums[start[inside]]) / (end - start)[inside]
    width = np.ptp(weight)
    scaled = (weight - weight.min()) / width if width > 0 else np.ones(len(weight))
    return float(np.mean(-logprob.astype(np.float64)[inside] * scaled))
