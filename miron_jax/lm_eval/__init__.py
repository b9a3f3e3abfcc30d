"""lm-evaluation-harness on this engine: its thousands of tasks, each unique token computed once.

Arrives: lm-eval's requests.  Leaves: log-likelihoods and completions, as its Hugging Face backend
gives them.  It deliberately does not know what lm-eval's tasks are.

    miron-lm-eval --model miron_jax --model_args pretrained=FOLDER --tasks hellaswag,arc_easy

    from miron_jax.lm_eval import MironLM, simple_evaluate
    results = simple_evaluate(model=MironLM("FOLDER"), tasks=["hellaswag"])

The released lm-eval finds no models of other packages: `miron-lm-eval` is its own command with this
one added.  Versions that look for entry points find `miron_jax` there.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, ParamSpec

import numpy as np
from packaging.version import Version

from miron_jax.errors import InputError, RunEnded, printable
from miron_jax.runtime import streams

if TYPE_CHECKING:
    from lm_eval import simple_evaluate

    from miron_jax.lm_eval.model import MironLM

__all__ = ["MironLM", "main", "simple_evaluate"]
NAMES = ("miron_jax", "miron-jax")  # of the model in lm-eval's registry
OLDEST, TOO_NEW = Version("0.4.13"), Version("0.5.dev0")  # versions of lm-eval
P = ParamSpec("P")
# lm-eval's functions that square values, those of groups among them
STDERRS = ("bootstrap_stderr", "mean_stderr", "pooled_sample_stderr", "unweighted_mean_stderr")


def __getattr__(name: str) -> object:
    """MironLM is imported when it is first used, for it needs lm-eval, and so is lm-eval's
    `simple_evaluate`, under `infinite_perplexities`.  Raises InputError where lm-eval is absent."""
    if name not in ("MironLM", "simple_evaluate"):
        raise AttributeError(f"module 'miron_jax.lm_eval' has no attribute {name!r}")
    check_installed()
    if name == "simple_evaluate":
        import lm_eval

        return infinite_perplexities()(lm_eval.simple_evaluate)
    from miron_jax.lm_eval.model import MironLM

    return MironLM


def check_installed() -> None:
    """Raises InputError if lm-eval is absent, or of another version than this adapter was made
    for."""
    remedy = 'install it by pip install "miron-jax[lm-eval]"'
    try:
        has = version("lm_eval")
    except PackageNotFoundError:
        raise InputError(f"lm-eval, whose tasks this runs, is not installed: {remedy}") from None
    if not OLDEST <= Version(has) < TOO_NEW:
        raise InputError(
            f"lm-eval is {has}, but this adapter goes with {OLDEST} and later ones before 0.5: "
            f"{remedy}"
        )


def register() -> None:
    """Add MironLM to lm-eval's registry, behind its own models."""
    check_installed()
    import lm_eval.models  # noqa: F401 - before any other is added, or lm-eval takes its own for registered
    from lm_eval.api.registry import model_registry

    from miron_jax.lm_eval.model import MironLM

    names = [name for name in NAMES if name not in model_registry]
    if names:
        model_registry.register(*names)(MironLM)


@contextmanager
def infinite_perplexities() -> Iterator[None]:
    """Perplexities of an untrained model are infinite where lm-eval's exp overflows (a loss above
    709 nats a word), and standard errors are NaN where squares do, so that the other metrics are
    kept; a line says so.  The `math` of task files is the same one.  Nothing of it outlasts the
    context, not even in a task file that has taken `exp` from `math`."""
    from lm_eval.api import metrics

    losses: list[float] = []
    lost: set[str] = set()
    is_running = True
    plain_exp = math.exp

    def exp(loss: float) -> float:
        try:
            return plain_exp(loss)
        except OverflowError:
            if not is_running:
                raise
            losses.append(loss)
            return math.inf

    def guarded(function: Callable[P, float]) -> Callable[P, float]:
        """NaN where numbers are too large to square, or where some resamples have no exp."""

        @wraps(function)
        def stderr(*args: P.args, **options: P.kwargs) -> float:
            try:
                value = function(*args, **options)
            except OverflowError:
                if not is_running:
                    raise
                lost.add(function.__name__)
                return math.nan
            # resamples are taken in processes whose `losses` are not these
            is_resampled = function is whole["bootstrap_stderr"] and args[0] is metrics.perplexity
            if is_resampled and not math.isfinite(value) and np.isfinite(np.asarray(args[1])).all():
                lost.add(function.__name__)
            return value

        return stderr

    whole = {name: getattr(metrics, name) for name in STDERRS}
    math.exp = exp
    for name, function in whole.items():
        setattr(metrics, name, guarded(function))
    try:
        yield
    finally:
        is_running = False
        math.exp = plain_exp
        for name, function in whole.items():
            setattr(metrics, name, function)
        if losses or lost:
            print(f"miron-lm-eval: {_overflow_line(losses)}", file=sys.stderr, flush=True)


def _overflow_line(losses: Sequence[float]) -> str:
    what = "a standard error is no number: squares of a metric's values overflow"
    if losses:
        what = (
            f"a perplexity is infinite: exp of a loss of {max(losses):.1f} nats a word or byte "
            "overflows"
        )
    return f"{what}; the other metrics stand (is the model trained?)"


def main() -> None:
    """Entry point of the command `miron-lm-eval`; exits with its status."""
    streams.prepare()
    status = 0
    try:
        register()
        from lm_eval.__main__ import cli_evaluate

        with infinite_perplexities():
            cli_evaluate()
    except RunEnded as error:
        print(f"miron-lm-eval: {printable(str(error))}", file=sys.stderr, flush=True)
        status = error.status
    sys.exit(status)
