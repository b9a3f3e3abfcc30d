"""The tolerances of all tests: what each bounds, in which unit, and why that size.

What a test knows exactly (answers, counts, ranks, texts, numbers worked out in a comment) has no entry here: it is compared
by == or by pytest.approx as it comes.  A run's own self-check has its bounds in miron_jax.engine.self_check.TOLERANCE.
"""

# float32 at the highest matmul precision, tiny models.  Sums of a few dozen terms in another order: the engine in another
# plan, on other devices or with a cache, against a slow twin, torch, the same weights in another file.
TOKEN = 4e-5  # nats per token; the largest that was seen is 1.3e-5
CONTINUATION = 1e-4  # nats per continuation of up to about ten tokens, whose errors add up
COMPONENT = 2e-7  # bits a byte: a mean over the questions of a task, each some bytes long (Marin finds 1.7e-7 at most)
CONFIDENCE = 1e-4  # per cent: 100 p moves by 100 p times the error of log p, and p is about 1 / vocabulary here

# bfloat16 against float32: operands keep 8 bits.
BFLOAT16 = 0.1  # nats per token, and of a logit; the largest that was seen is 0.06

# A kernel (XLA's, TPU's, interpreted) against its definition in float64, for inputs of size 1.
KERNEL = 3e-5  # of an attention output, and nats per token of the head
RANKS_APART = 0.01  # share of ranks: two logits within rounding of each other may change places

# Arithmetic alone.
ROUNDING = 1e-6  # absolute, of numbers of size 1: a few float32 operations, each wrong by at most 6e-8
FLOAT32 = 3e-7  # relative: one number that is rounded to float32 after a formula of a few steps
RESAMPLED = 0.02  # a p-value of 10,000 sign flips beside the normal one: four deviations of the draws
INTERVALS_APART = 1e-5  # ends of a Wilson and a normal interval of tens of thousands of examples away from 0 and 1
SIMULATED = 0.05  # relative: a variance of 4,000 simulated runs, five standard errors
TWO_BFLOAT16 = 2e-5  # relative: a number that is held as the sum of two bfloat16 numbers
ESTIMATED = 0.05  # relative: tokens of a run before it is tokenized, from a hundred prompts a task
FITTED = 1e-4  # relative: parameters of a law that two searches for least squares find, or that made the numbers
LEFT_OUT = 2e-6  # absolute: what two such laws say of a run, a number of size 1
FLOAT64 = 1e-12  # absolute or relative: a formula in float64, summed in another order


def printed(digits: int) -> float:
    """Half a unit of the last place of a published number with so many decimals."""
    return 0.5 * 10.0**-digits


# Metrics of whole runs, in nats, bits or per cent alike.  Files in tests/golden hold six digits and were written on another
# machine, with another release of jax.
METRIC_RELATIVE = 1e-4
METRIC = 2e-4  # absolute
DRIFT = 0.02  # per cent, absolute: a drift is 100 times a ratio of two probabilities

# The other way round: at least so much must a wrong rule move a log-probability, or the test could not fail.
MOVED = 1e-3  # nats per token, more than ten times TOKEN
