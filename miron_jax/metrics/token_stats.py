"""The scored tokens of one example -> named numbers: means of what the model's distribution says at
each token.

Arrives: log-probability and rank of each token, entropy and largest log-probability of the
distribution in which it stands.  Leaves: named numbers.  It deliberately does not know tasks.

These are the core statistics of Patel et al. 2026 (arXiv 2605.18607) as others sum them up: the
paper itself was not at hand.  It weighs tokens in eight ways, takes the last 1,000 of a solution
and divides entropies by ln V; here every scored token counts once, and entropies are nats.
"""

import numpy as np

HITS = (1, 5, 20)  # a target is a hit if it is among so many most probable tokens
# in results and samples, not in tables
TOKEN_STATS = (
    "token_surprise", "token_entropy", "token_prob", *(f"token_top{k}" for k in HITS),
    "expected_rank", "reciprocal_rank", "token_margin", "wrong_confidence",
)  # fmt: skip
TOKEN_STATS_LOWER_IS_BETTER = frozenset(
    {"token_surprise", "token_entropy", "expected_rank", "token_margin", "wrong_confidence"}
)


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
    entropy, largest = distribution.astype(np.float64).T
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
