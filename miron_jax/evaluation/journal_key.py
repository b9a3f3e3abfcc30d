"""The key of a run's journal: a digest of all that its scores and texts depend on beside their own
tokens.

Arrives: a model on the devices, its architecture.  Leaves: a key that all processes of a run share.
It deliberately does not know tasks.
"""

from typing import Any

import jax

from miron_jax.engine.model import Model, attention_of
from miron_jax.errors import InputError
from miron_jax.files.store import Store
from miron_jax.model.checkpoints.checkpoints import Architecture
from miron_jax.model.checkpoints.fingerprint import tokenizer_fingerprint
from miron_jax.runtime.answers import Answers
from miron_jax.runtime.devices import Placement
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.journal import key_of_answers, run_key
from miron_jax.runtime.progress import Progress


def agreed_key(
    hosts: Hosts, name: str, model: Model, architecture: Architecture, weights: str, dtype: str
) -> str:
    """`name`: of these weights, used once.  Raises InputError if this process has others than the
    first."""
    parts: dict[str, Any] = {
        "weights": weights,
        "model": architecture.source or repr(model.config),
        "eos": sorted(architecture.eos_ids),
        "tokenizer": tokenizer_fingerprint(architecture.tokenizer),
        "dtype": dtype,
        "precision": str(jax.config.values["jax_default_matmul_precision"]),
        "platform": Placement.of(model.state).device.platform,
        "attention": attention_of(model).name,
    }
    if model.with_distribution:
        parts["with_distribution"] = model.distribution_size
    if model.experts_in_kernel:
        parts["experts_in_kernel"] = True
    key = run_key(parts)
    if hosts.agree(f"key/{name}", key) != key:
        raise InputError(
            f"process {hosts.index} has other weights than process 0, or another tokenizer, device "
            "or precision: give all processes the same files and flags on devices of one kind"
        )
    return key


def key_with_answers(
    hosts: Hosts,
    name: str,
    store: Store,
    key: str,
    answers: Answers,
    is_global: bool,
    progress: Progress,
) -> str:
    """The key of a user's own model, which the first process chooses.  Raises InputError if this
    one's answers differ."""
    if hosts.is_first:
        key = key_of_answers(store, key, answers, progress)
    if is_global:
        return key
    key, first_answers = hosts.agree(f"answers/{name}", [key, answers])
    if why := answers.differ(Answers.of_json(first_answers)):
        raise InputError(
            f"process {hosts.index}'s model answers fixed tokens otherwise than process 0's, "
            f"{why}: give all processes the same code, and the same files for it to read"
        )
    return key
