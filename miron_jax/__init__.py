"""miron_jax: scores language-model checkpoints in JAX; every unique token is computed once.

    Evaluator      benchmarks inside a training loop
    score          log-probabilities of texts
    load_params    a checkpoint's weights
    OwnModel       a model of your own
    Head           its output head, where a matrix is not all
    InputError, SelfCheckFailed    what a run raises

Import it before jax computes anything: some versions of jaxlib need a flag on CPU.
"""

from typing import TYPE_CHECKING, Any

from miron_jax.runtime.backend import set_backend_flags

__version__ = "0.2.0"
__all__ = [
    "Evaluator", "Head", "InputError", "OwnModel", "SelfCheckFailed", "TextScore", "Visibility",
    "load_params", "score",
]  # fmt: skip

if TYPE_CHECKING:
    from miron_jax.errors import InputError, SelfCheckFailed
    from miron_jax.evaluator import Evaluator, TextScore, load_params, score
    from miron_jax.model.decoder.decoder import Head
    from miron_jax.model.own import OwnModel
    from miron_jax.model.visibility import Visibility

_HOMES = {
    "Evaluator": "evaluator", "TextScore": "evaluator", "load_params": "evaluator",
    "score": "evaluator", "InputError": "errors", "Head": "model.decoder.decoder",
    "OwnModel": "model.own", "SelfCheckFailed": "errors",
    "Visibility": "model.visibility",
}  # fmt: skip

set_backend_flags()

if not TYPE_CHECKING:  # a type checker reports a name that is not there

    def __getattr__(name: str) -> Any:
        """Public names are imported when they are first used: `import miron_jax` alone stays
        quick."""
        if name not in _HOMES:
            raise AttributeError(f"module 'miron_jax' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(f"miron_jax.{_HOMES[name]}"), name)
