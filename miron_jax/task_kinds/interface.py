"""What every kind of task can do, and the records that pass between kinds and the stages around them.

Arrives: nothing.  Leaves: `TaskKind`, `TaskScores`, `Source`, `Piece`, `Setup`, `Facts`.  It deliberately knows no kind.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState, read_examples
from miron_jax.engine.model import Model
from miron_jax.engine.records import Score
from miron_jax.engine.self_check import SelfCheck
from miron_jax.engine.text_requests import Generated, TextRequest
from miron_jax.metrics.detox import Scorer
from miron_jax.planning.records import CostModel
from miron_jax.runtime.sandbox import Sandbox
from miron_jax.statistics.estimate import Estimate
from miron_jax.tokens.records import Bos, LengthLimit, Requests
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import Tokenizer


class Source(NamedTuple):
    """A task with its data at hand."""

    task: Any  # an AnyTask, of its kind's profile
    examples: list[Any]
    data: DataState


@dataclass(frozen=True)
class Setup:
    """What a task is tokenized with."""

    config: RunConfig
    tokenizer: Tokenizer
    table: TokenBytes
    limit: LengthLimit
    trained_length: int = 1 << 31  # tokens that the model was trained at; a user's own model may not say

    @cached_property
    def sandbox(self) -> Sandbox:
        """Where programs will run; tried when it is first asked for."""
        return Sandbox.find(self.config.allow_unsandboxed_code)


class Facts(NamedTuple):
    """What a task's part of results.json says of the whole run."""

    config: RunConfig
    limit: LengthLimit
    bos: Bos | None


class Piece(NamedTuple):
    """Some examples of one task, tokenized."""

    task: int  # place in Inputs.sources
    examples: Any  # as the task's kind made them
    requests: Requests


class Sizes(NamedTuple):
    """How long a task's rows will be, guessed from a few examples."""

    longest: int  # places of the longest row
    places: np.ndarray  # float64 [examples], of each example's row
    plain_tokens: float  # one row a request


class TaskScores(ABC):
    """What one task's examples score with one set of weights, in the suite's own order."""

    source: Source
    examples: list[Any]  # ExampleScores

    @property
    @abstractmethod
    def num_examples(self) -> int: ...

    @property
    @abstractmethod
    def num_skipped(self) -> int:
        """Examples that have no score: a model that answers NaN, a tokenizer that cannot spell them."""

    @property
    @abstractmethod
    def unanswered(self) -> list[int]:
        """Examples, by their id, that have no score because the model answered NaN."""

    @abstractmethod
    def finish(self, detox: Scorer | None = None) -> None:
        """Score every example, once all scores and texts are there.  `detox`: the user's classifiers of rewrites."""

    @abstractmethod
    def for_composites(self) -> Mapping[str, Estimate]:
        """Metrics that a suite's composites take, the task's main one first."""

    @abstractmethod
    def entry(self, facts: Facts) -> dict[str, Any]:
        """The task's part of results.json, DESIGN section 4."""

    @abstractmethod
    def samples(self) -> Iterator[dict[str, Any]]:
        """One record an example."""


class TaskKind(ABC):
    """One task of a run, asked the way of its kind."""

    scores_spans: ClassVar[bool] = False  # requests of it are planned and scored
    generates: ClassVar[bool] = False

    def __init__(self, source: Source, setup: Setup) -> None:
        self.source, self.setup = source, setup
        self.max_length = setup.limit.of(source.task.profile)

    @classmethod
    def load(cls, task: Any, folder: Path, config: RunConfig, runs: bool) -> list[Any]:
        """Its examples, from its data file.  `runs`: else it is only planned.  Raises InputError."""
        return read_examples(task, folder, config.allow_changed_data)

    def prepare(self) -> None:
        """What can fail before weights are loaded: prompts to generate from are tokenized.  Raises InputError."""

    def sizes(self, cost: CostModel) -> Sizes | None:
        """None: its rows count for little."""
        return None

    def pieces(self) -> Iterator[tuple[Any, Requests]]:
        """Examples and what is scored of them, tokenized some at a time."""
        yield from ()

    @abstractmethod
    def begin(self) -> TaskScores:
        """Nothing scored yet."""

    def take(self, scores: Any, piece: Piece, found: Sequence[Score]) -> None:
        """Keep the scores of a piece: one a request, in order."""
        raise AssertionError(f"{self.source.task.name} has no pieces")

    def texts(self, scores: Any) -> list[TextRequest]:
        """What is generated, once all pieces are scored."""
        return []

    def take_texts(self, scores: Any, texts: Iterator[Generated]) -> None:
        """Keep a text a request of `texts`."""

    def ask(self, scores: Any, model: Model, check: SelfCheck, say: Any) -> None:
        """What can only be asked one after another, on the whole model.  Raises SelfCheckFailed."""
