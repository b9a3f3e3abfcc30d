"""Isotonic calibrations: tables that move a classifier's probability to how often it is right.

Arrives: probabilities; pickles of scikit-learn's IsotonicRegression, or a table of this package.
Leaves: numbers from 0 to 1.  It deliberately does not know classifiers.  Nothing that a pickle
names is called (files/pickles.py).
"""

import io
from pathlib import Path
from typing import NamedTuple

import numpy as np

from miron_jax.errors import InputError
from miron_jax.files.pickles import Pickled, read_pickle
from miron_jax.files.readers import Json, shown
from miron_jax.files.regular import read_regular, read_text

# of s-nlp's score_calibrations_ru.pkl the first, which MERA v1.2 writes out in its code
FIRST = Path(__file__).with_name("rudetox_calibration.tsv")


class Calibration(NamedTuple):
    """Numbers at rising probabilities; between two of them the line, beyond the last one its
    number."""

    probabilities: np.ndarray  # float64 [K]
    values: np.ndarray  # float64 [K]

    def __call__(self, probabilities: np.ndarray) -> np.ndarray:
        """Float64, as IsotonicRegression(out_of_bounds="clip").predict has it."""
        return np.interp(probabilities.astype(np.float64), *self)


def first_calibration() -> Calibration:
    """The table that MERA v1.2 applies to style, meaning and fluency alike.  A line of the file is
    a step: its first and last probability, and the number of both."""
    steps = np.loadtxt(read_text(FIRST).splitlines(), skiprows=1)
    return Calibration(steps[:, :2].ravel(), steps[:, 2].repeat(2))


def read_calibrations(path: Path, count: int) -> list[Calibration]:
    """The calibrations of a file of so many pickles.  Raises InputError."""
    expected = (
        f"expected {count} pickles of scikit-learn's IsotonicRegression, one behind the other, "
        "such as s-nlp's and MERA's score_calibrations_ru.pkl"
    )
    try:
        file = io.BytesIO(read_regular(path))
        return [_calibration(read_pickle(file)) for _ in range(count)]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; {expected}: name another file") from None
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: {reason:.200}; {expected}: download it again") from None


def _calibration(value: Json) -> Calibration:
    if not isinstance(value, Pickled) or value.name != "sklearn.isotonic.IsotonicRegression":
        raise ValueError(f"holds {getattr(value, 'name', shown(value))}")
    if value.state["out_of_bounds"] != "clip":
        raise ValueError(f"out_of_bounds is {shown(value.state['out_of_bounds'])}, not 'clip'")
    table = Calibration(_array(value.state["X_thresholds_"]), _array(value.state["y_thresholds_"]))
    is_rising = bool((np.diff(table.probabilities) >= 0).all())
    if not len(table.probabilities) or table.probabilities.shape != table.values.shape:
        raise ValueError("has thresholds of different counts, or none")
    if not (is_rising and ((table.values >= 0) & (table.values <= 1)).all()):
        raise ValueError("has thresholds that do not rise, or numbers outside 0 to 1")
    return table


def _array(value: Json) -> np.ndarray:
    """A pickled array of numbers along one axis, in float64."""
    if not isinstance(value, Pickled) or not value.name.endswith("multiarray._reconstruct"):
        raise ValueError(f"has {getattr(value, 'name', shown(value))} for an array")
    _, [size], dtype, _, content = value.state
    if dtype.args[0] not in ("f4", "f8"):
        raise ValueError(f"has an array of {shown(dtype.args[0])}")
    return np.frombuffer(content, f"<{dtype.args[0]}", size).astype(np.float64)
