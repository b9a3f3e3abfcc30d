"""What a run scores and what comes of it.

Arrives: nothing.  Leaves: `Inputs` and `Outcome`.  It deliberately does not know how a score is made or averaged.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from miron_jax.definitions.records import AnyTask, Suite
from miron_jax.engine.model import Speed
from miron_jax.engine.self_check import SelfCheck
from miron_jax.engine.text_requests import GenerationSpeed
from miron_jax.model.training_run import Checkpoint
from miron_jax.planning.request_batches import Totals
from miron_jax.runtime.answers import Answers
from miron_jax.task_kinds.interface import Source, TaskScores
from miron_jax.tokens.records import Bos, LengthLimit


class Inputs(NamedTuple):
    """What a run scores, found and checked."""

    sources: list[Source]
    missing: dict[str, Path]  # tasks of a suite whose data file is absent, and where it was looked for
    suites: Sequence[Suite[AnyTask]]  # those that the tasks come from


class Outcome(NamedTuple):
    """All that a run has scored, and what it took."""

    tasks: Sequence[TaskScores]
    inputs: Inputs
    length_limit: LengthLimit
    bos: Bos | None  # None: no task puts one of its own
    totals: Totals
    speed: Speed
    check: SelfCheck
    load_seconds: float  # model and tokenizer
    generation: GenerationSpeed | None = None  # None: nothing was generated
    checkpoint: Checkpoint = Checkpoint(None, None)
    journal_seconds: float = 0.0  # that the run waited for what keeps its scores
    weights: str = ""  # fingerprint of all weights as they lay on the devices
    answers: Answers | None = None  # of a user's own model to fixed tokens
    implausible: Sequence[str] = ()  # what is odd about the weights, a sentence a leaf
    commits: Mapping[str, str | None] = MappingProxyType({})  # of the hub, that model and tokenizer were read at
    unverified: Sequence[str] = ()  # inputs that came with no checksum
