"""The operations of every task kind, and the records that task kinds exchange with other stages.

Arrives: nothing.  Leaves: `TaskKind`, `TaskScores`, `Source`, `Piece`, `Setup`, `Facts`.  It deliberately knows no kind.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState, read_examples
from miron_jax.definitions.records import AnyExample
from miron_jax.engine.growing import GrowingText
from miron_jax.engine.model import Model
from miron_jax.engine.records import Score
from miron_jax.engine.self_check import SelfCheck
from miron_jax.engine.text_requests import Generated, TextRequest
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.detox import Scorer
from miron_jax.planning.records import CostModel
from miron_jax.runtime.progress import Progress
from miron_jax.runtime.sandbox import Sandbox
from miron_jax.statistics.estimate import Estimate, is_unscored
from miron_jax.tokens.records import Bos, LengthLimit, Requests
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import Tokenizer


class Source(NamedTuple):
    """A task and its examples."""

    task: Any  # an AnyTask with the profile of its kind
    examples: list[AnyExample]
    data: DataState


@dataclass(frozen=True)
class Setup:
    """What every task of a run is tokenized with."""

    config: RunConfig
    tokenizer: Tokenizer
    table: TokenBytes
    limit: LengthLimit
    trained_length: int = 1 << 31  # tokens; unlimited if a user's own model does not say

    @cached_property
    def sandbox(self) -> Sandbox:
        """Runs programs; tested on first use."""
        return Sandbox.find(self.config.allow_unsandboxed_code)


class Facts(NamedTuple):
    """What a task's part of results.json prints of the whole run."""

    config: RunConfig
    limit: LengthLimit
    bos: Bos | None


class Piece(NamedTuple):
    """Some examples of one task, tokenized."""

    task: int  # index into Inputs.sources
    examples: Any  # of the form that the task's kind chose
    requests: Requests


class Pair(NamedTuple):
    """A scored request as texts."""

    doc_id: int  # the example's place in the suite's own order
    context: str  # all before the continuation, few-shot examples included
    continuation: str
    gold: int | None  # place of the right choice among the example's pairs; None: it is the only one


class Sampled(NamedTuple):
    """Which examples of a task ran, if not all."""

    examples: int
    of: int
    how: str  # the flag that decided
    seed: int  # of their random order
    interval: tuple[float, float]  # the main metric's 95 % confidence sequence, about the complete set
    winner: int | None = None  # against the earlier run: 1 this model, -1 that run, 0 not decided; None: not asked


class Sizes(NamedTuple):
    """The lengths of a task's rows, estimated from a few examples."""

    longest: int  # nodes of the longest row
    num_nodes: np.ndarray  # float64 [examples], of each example's row
    plain_tokens: float  # of one row per request


class TaskScores(ABC):
    """The scores of one task's examples with one set of weights, in the suite's order."""

    source: Source
    examples: Sequence[ExampleScore | None]  # None: the tokenizer cannot spell the example
    sampled: Sampled | None = None  # None: every example ran

    @property
    def num_examples(self) -> int:
        return len(self.examples)

    @property
    def num_skipped(self) -> int:
        """Examples without a score: the model answers NaN, the right answer is not published, or they cannot be spelled."""
        return sum(example is None or is_unscored(example) for example in self.examples)

    @property
    @abstractmethod
    def unanswered(self) -> list[int]:
        """Ids of the examples that have no score because the model answered NaN."""

    @abstractmethod
    def finish(self, detox: Scorer | None = None) -> None:
        """Score every example after all scores and completions have come.  `detox`: the user's classifiers of rewrites."""

    @abstractmethod
    def for_composites(self) -> Mapping[str, Estimate]:
        """Metrics of which a suite's composites are made, the task's main one first."""

    @abstractmethod
    def entry(self, facts: Facts) -> JsonObject:
        """The task's part of results.json, DESIGN section 4."""

    @abstractmethod
    def samples(self) -> Iterator[JsonObject]:
        """One record per example, for the samples files."""

    def values_by_id(self) -> Mapping[int, float]:
        """The main metric of each example that has run, of a kind that `may_be_sampled`."""
        raise AssertionError(f"{self.source.task.name} runs whole")

    def in_order(self) -> None:
        """Put examples that ran in another order into the suite's own."""
        raise AssertionError(f"{self.source.task.name} runs whole")

    def further_files(self) -> Iterator[tuple[str, bytes]]:
        """Files that the run was asked for beside samples: their names below the output folder, and contents."""
        yield from ()


Scores = TypeVar("Scores", bound=TaskScores)


class TaskKind(ABC, Generic[Scores]):
    """One task of a run, scored by the rules of its kind."""

    scores_spans: ClassVar[bool] = False  # it has requests that are planned and scored
    generates: ClassVar[bool] = False
    runs_programs: ClassVar[bool] = False  # that the model writes

    def __init__(self, source: Source, setup: Setup) -> None:
        self.source, self.setup = source, setup
        self.max_length = setup.limit.of(source.task.profile)
        self.due: frozenset[int] | None = None  # ids of the examples that `pieces` gives; None: all

    @classmethod
    def load(cls, task: Any, folder: Path, config: RunConfig, runs: bool) -> list[AnyExample]:
        """The examples of a task's data file.  `runs`: False if the run is only planned.  Raises InputError."""
        return read_examples(task, folder, config.allow_changed_data)

    def prepare(self) -> None:
        """Do whatever may fail before weights are loaded, such as tokenizing prompts of completions.  Raises InputError."""

    @property
    def may_be_sampled(self) -> bool:
        """Whether the task's number is a mean of examples that may run one without the other."""
        return False

    def digests(self) -> Mapping[int, str]:
        """The digest of each example's prompt, by id, as samples have it."""
        raise AssertionError(f"{self.source.task.name} runs whole")

    def sizes(self, cost: CostModel) -> Sizes | None:
        """Estimate the task's rows; None: they are too few to matter."""
        return None

    def pieces(self) -> Iterator[tuple[Any, Requests]]:
        """Examples with their tokenized requests, some at a time."""
        yield from ()

    def pairs(self) -> Iterator[Pair]:
        """The texts of scored requests, for a frozen request set; none where they are no pairs or gold is not published."""
        yield from ()

    @abstractmethod
    def begin(self) -> Scores:
        """Scores without any example yet."""

    def take(self, scores: Scores, piece: Piece, request_scores: Sequence[Score]) -> None:
        """Add the scores of a piece: one per request, in order."""
        raise AssertionError(f"{self.source.task.name} has no pieces")

    def texts(self, scores: Scores) -> list[TextRequest]:
        """Requests for completions, after all pieces are scored."""
        return []

    def take_texts(self, scores: Scores, texts: Iterator[Generated]) -> None:
        """Add one completion per request of `texts`."""

    def growing_text(self, scores: Scores, model: Model, progress: Progress) -> GrowingText | None:
        """The text, with its compiled program, that `score_in_turn` reads turns into; None: it does nothing."""
        return None

    def score_in_turn(self, scores: Scores, model: Model, check: SelfCheck, progress: Progress) -> None:
        """Score examples whose prompts depend on earlier answers, on the whole model.  Raises SelfCheckFailed."""
