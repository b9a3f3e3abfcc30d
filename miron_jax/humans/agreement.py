"""Agreement of annotators.  Arrives: the answers to each item.  Leaves: one number.  It
deliberately knows no labels."""

from collections import Counter
from collections.abc import Iterable, Sequence


def krippendorff_alpha(units: Iterable[Sequence[str]]) -> float | None:
    """Krippendorff's alpha for nominal data: 1 - observed over expected disagreement; 1 is perfect,
    0 is chance.

    `units`: the answers to each item; items with one answer are ignored.  None if there is no pair,
    or if only one answer occurs, so that the expected disagreement is 0.  Source: Krippendorff,
    Computing Krippendorff's Alpha-Reliability (2011), section C.
    """
    totals = Counter[str]()
    observed = 0.0
    for unit in units:
        counts = Counter(unit)
        size = len(unit)
        if size < 2:
            continue
        totals.update(counts)
        observed += sum(count * (size - count) for count in counts.values()) / (size - 1)
    n = totals.total()
    expected = sum(count * (n - count) for count in totals.values()) / max(n - 1, 1)
    if not expected:
        return None
    return 1 - observed / expected
