"""What an `Evaluator` is given: arguments of the wrong kind, and names for results.json.

Arrives: arguments.  Leaves: InputError, or nothing.  It deliberately scores nothing.
"""

import operator
from pathlib import Path
from typing import SupportsIndex

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.model.checkpoints.fingerprint import tokenizer_fingerprint
from miron_jax.tokens.tokenizers import Tokenizer


def check_arguments(tasks: object, row_axes: object, every: object, subset: object) -> None:
    """Raises InputError."""
    for name, value in (("tasks", tasks), ("row_axes", row_axes)):
        if isinstance(value, str):
            raise InputError(
                f"Evaluator: {name} is {value!r}, expected a list of names: {name}=[{value!r}]"
            )
    for name, value in (("every", every), ("subset", subset)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InputError(f"Evaluator: {name} is {value!r}, expected an integer above 0")


def step_of(step: SupportsIndex | None) -> int | None:
    """An integer of Python's; trainers count with jax's and NumPy's.  Raises InputError."""
    try:
        number = None if step is None else operator.index(step)
    except TypeError:
        number = -1
    if number is not None and number < 0:
        raise InputError(f"Evaluator: step is {step!r}, expected an integer of 0 or more, or None")
    return number


def check_runs_here(config: RunConfig, writes: bool) -> None:
    """Raises InputError for settings that are of the command alone, or of an output folder."""
    if config.watch or config.average:
        raise InputError(
            "Evaluator: watch and average are of the command, which reads checkpoints: leave them "
            "out, and call run for each"
        )
    for name in ("save_requests", "save_byte_losses", "results_format"):
        if getattr(config, name) and not writes:
            raise InputError(
                f"Evaluator: {name} writes files beside the results, expected output beside it: "
                "name a folder, or leave it out"
            )


def name_of_tokenizer(tokenizer: Tokenizer | str | Path) -> str:
    if isinstance(tokenizer, str | Path):
        return str(tokenizer)
    # a path may be another at the next start of a job
    return f"given {type(tokenizer).__name__} {tokenizer_fingerprint(tokenizer)[:16]}"
