"""What is known of a metric by its name, of all task kinds.

Arrives: nothing.  Leaves: `PROPORTIONS`, `LOWER_IS_BETTER`, `ZERO_IS_BEST`.  It deliberately does
not know how a metric is computed.
"""

from miron_jax.metrics.bias import SIGNS
from miron_jax.metrics.choices import OF_OPTIONS
from miron_jax.metrics.token_stats import TOKEN_STATS_LOWER_IS_BETTER

# 0 or 1 for each example; others are means.  Those of cloze items: `CLOZE_PROPORTIONS`.
PROPORTIONS = frozenset({
    "accuracy", "accuracy_char", "accuracy_token", "accuracy_package", "accuracy_pmi",
    "accuracy_ambiguous", "accuracy_disambiguated", "greedy_exact", "em", "answered",
    "answered_last",
    *(metric.name for metric in OF_OPTIONS if metric.is_proportion),
})  # fmt: skip
# By which fewer is better.
LOWER_IS_BETTER = frozenset({
    "bits_per_byte", "bits_per_char", "bits_per_token", "choice_rank", "first_token_rank",
    "drift_bits", "drift_percent",
    "flip_to_wrong", "token_inflation", *TOKEN_STATS_LOWER_IS_BETTER,
})  # fmt: skip
# A side is no better than the other.
ZERO_IS_BEST = frozenset(SIGNS)
