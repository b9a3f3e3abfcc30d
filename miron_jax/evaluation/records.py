"""The inputs and the outcome of a run.

Arrives: nothing.  Leaves: `Inputs` and `Outcome`.  It deliberately does not know how scores are
computed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from miron_jax.definitions.records import AnyTask, Suite
from miron_jax.engine.model import ForwardSpeed
from miron_jax.engine.self_check import SelfCheck
from miron_jax.engine.text_requests import GenerationSpeed
from miron_jax.evaluation.task_kinds.interface import LoadedTask, TaskScores
from miron_jax.files.kept import ArraysByKey
from miron_jax.model.checkpoints.training_run import Checkpoint
from miron_jax.planning.request_batches import Totals
from miron_jax.results.records import Decided
from miron_jax.results.run_folder import Earlier
from miron_jax.runtime.answers import Answers
from miron_jax.runtime.devices import Placement


class Selected(NamedTuple):
    """The tasks of a run, before their data are looked for."""

    suites: list[Suite[AnyTask]]  # that a selected task belongs to
    names: set[str]  # of the tasks
    by_name: set[str]  # those that the user named, whose data must be there

    @property
    def tasks(self) -> list[AnyTask]:
        return [task for suite in self.suites for task in suite.tasks if task.name in self.names]


class Inputs(NamedTuple):
    """The tasks of a run with their checked data files."""

    sources: list[LoadedTask]
    missing: Mapping[
        str, str
    ]  # tasks of a suite that are left out -> where the data file should be, or why it is left out
    suites: Sequence[Suite[AnyTask]]  # of the tasks
    by_name: Collection[str] = ()  # tasks that the user named, none of which is left out
    earlier: Mapping[str, Earlier] | None = None  # of the run that --against names, by task
    kept: ArraysByKey | None = None  # requests and plans of earlier runs; None: none are kept


class Outcome(NamedTuple):
    """All scores of a run, and its costs."""

    tasks: Sequence[TaskScores]
    inputs: Inputs
    totals: Totals
    speed: ForwardSpeed
    check: SelfCheck
    load_seconds: float  # model and tokenizer
    generation: GenerationSpeed | None = None  # None: nothing was generated
    checkpoint: Checkpoint = Checkpoint(None, None)
    journal_seconds: float = 0.0  # that the run waited for its journal
    weights: str = ""  # fingerprint of all weights on the devices
    training_tokens: int | None = None  # that the checkpoint was trained on, where it says so
    flops_per_token: float | None = None  # of a forward pass (model/costs.py)
    answers: Answers | None = None  # of a user's own model to fixed tokens
    # number of weights of each dtype, as the programs computed with them, the most first
    dtypes: Mapping[str, int] = MappingProxyType({})
    matmul_precision: str | None = None  # jax's, that the programs were compiled with
    tokenizer: str = ""  # fingerprint of its vocabulary and rules
    tokenizer_from: str = ""  # tokenizer.json, a class of transformers, or a given object
    implausible: Sequence[str] = ()  # one warning per suspicious weight
    commits: Mapping[str, str | None] = MappingProxyType({})  # hub commits of model and tokenizer
    unverified: Sequence[str] = ()  # inputs without a checksum
    # a composite against the run of --against, if --until asks for a winner
    decided: Decided | None = None
    placement: Placement | None = None  # of weights and batches; None: nothing ran
    controls: Sequence[TaskScores] = ()  # of tasks that have some
    draws: Sequence[TaskScores] = ()  # of tasks with several draws of shots, without the first
    # completes `tasks` by the scores of completions; it needs no weights.  None: that is done
    take_texts: Callable[[], None] | None = None
