"""Annotators' abilities by GLAD, through the optional package crowd-kit.

Arrives: `Annotations`.  Leaves: an ability by annotator, or None if the package is absent.  It
deliberately does not know how labels use them.
"""

import warnings
from collections.abc import Mapping

from miron_jax.humans.annotations import Annotations

# MERA's notebooks: limits of the whole fit, and of each step's maximization
ITERATIONS, TOLERANCE, STEP_ITERATIONS, STEP_TOLERANCE = 10_000, 1e-6, 1000, 1e-3


def abilities(annotations: Annotations) -> Mapping[str, float] | None:
    """alpha of every annotator, fitted on all answers, including those to control tasks and of
    rejected annotators.

    Whitehill et al. 2009, "Whose vote should count more".  None: crowd-kit is not installed (pip
    install crowd-kit).
    """
    try:
        import pandas as pd  # pyright: ignore[reportMissingImports]
        from crowdkit.aggregation import GLAD  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    rows = []
    for answer in annotations.answers:
        rows.append(("\t".join(answer.item), answer.worker, answer.answer))
    table = pd.DataFrame(rows, columns=["task", "worker", "label"])
    glad = GLAD(
        n_iter=ITERATIONS, tol=TOLERANCE, m_step_max_iter=STEP_ITERATIONS, m_step_tol=STEP_TOLERANCE
    )
    with warnings.catch_warnings():
        # crowd-kit 1.4 under pandas 3: one of its assignments warns at each step
        warnings.simplefilter("ignore")
        fitted = glad.fit(table)
    return {str(worker): float(ability) for worker, ability in fitted.alphas_.items()}
