"""The operations of every task kind, and the records that task kinds exchange with other stages.

Arrives: nothing.  Leaves: `TaskKind`, `TaskScores`, `ScoredRow`, `LoadedTask`, `TokenizedExamples`,
`Setup`.  It deliberately knows no kind.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState, read_examples
from miron_jax.definitions.records import AnyExample, AnyTask
from miron_jax.engine.growing import GrowingText
from miron_jax.engine.model import Model
from miron_jax.engine.records import GrowingSpeed, Scores
from miron_jax.engine.self_check import SelfCheck
from miron_jax.engine.text_requests import Generated, TextRequest
from miron_jax.evaluation.detox_scorer import detox_scorer
from miron_jax.files.kept import ArraysByKey, Job
from miron_jax.humans.task_labels import TaskLabels
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.detox import Scorer
from miron_jax.planning.records import CostModel
from miron_jax.prompting.prompts import Prompt
from miron_jax.results.records import Sampled, TaskResult
from miron_jax.results.samples import ExampleResult, FinishedTask
from miron_jax.runtime.journal import Journal
from miron_jax.runtime.progress import Progress
from miron_jax.runtime.sandbox.sandbox import Sandbox
from miron_jax.statistics.estimate import is_unscored
from miron_jax.tokens.chats import Chat
from miron_jax.tokens.records import Bos, Requests
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import Tokenizer, reading_names_as_text, special_names_in
from miron_jax.tokens.truncation import LengthLimit


class LoadedTask(NamedTuple):
    """A task and its examples."""

    task: Any  # an AnyTask with the profile of its kind
    examples: list[AnyExample]
    data: DataState
    labels: TaskLabels | None = None  # people's; None: there are none
    # The examples with the shots of another draw, of a task that arranges them; None: the shots are
    # no part of them.
    arranged: Callable[[AnyTask], list[AnyExample]] | None = None


@dataclass(frozen=True)
class Setup:
    """What every task of a run is tokenized with."""

    config: RunConfig
    tokenizer: Tokenizer  # None: completions were written elsewhere
    table: TokenBytes
    limit: LengthLimit
    trained_length: int = 1 << 31  # tokens; unlimited if a user's own model does not say
    kept: ArraysByKey | None = None  # of earlier runs; None: nothing is kept
    bos: Bos | None = None  # None: no task adds one
    chat: Chat | None = None  # None: prompts are plain text

    @classmethod
    def without_tokenizer(cls, config: RunConfig) -> "Setup":
        return cls(config, None, cast("TokenBytes", None), LengthLimit(config.max_length, None))

    @cached_property
    def detox(self) -> Scorer | None:
        """Classifiers of rewrites; None: not named.  Raises InputError."""
        name = self.config.detox_scorer
        return detox_scorer(name) if name else None

    @cached_property
    def sandbox(self) -> Sandbox:
        """Runs programs; tested on first use."""
        return Sandbox.find(self.config.allow_unsandboxed_code)


class TokenizedExamples(NamedTuple):
    """Some examples of one task, tokenized."""

    task: int  # index into `RunTasks.every_kind`, which begins with Inputs.sources
    examples: Any  # of the form that the task's kind chose
    requests: Requests


# A kind -> all prompts of its task; it remembers those of one kind.
Rendered = Callable[["TaskKind"], Sequence[Prompt]]


class RequestTexts(NamedTuple):
    """A scored request as texts."""

    doc_id: int  # the example's place in the suite's own order
    context: str  # all before the continuation, few-shot examples included
    continuation: str
    # place of the right choice among the example's pairs; None: it is the only one
    gold: int | None


class RowSizes(NamedTuple):
    """The lengths of a task's rows and the number of its tokens, estimated from a few examples."""

    longest: int  # nodes of the longest row
    num_nodes: np.ndarray  # float64 [examples], of each example's row
    plain_tokens: float  # of one row per request
    unique_tokens: float  # nodes of a plan of the task alone
    # int64, the index behind the last prompt of each piece that another process may make
    stops: np.ndarray = np.zeros(0, np.int64)


@dataclass(slots=True)
class ScoredRow(ABC):
    """One scored example of a task."""

    id: int  # the example's place in the suite's own order
    score: ExampleScore | None  # None: the tokenizer cannot spell it

    @property
    @abstractmethod
    def is_nan(self) -> bool:
        """Whether the model answered NaN, so that there is no score."""

    @property
    def why_not_judged(self) -> str:
        """Why the machine could not judge what the model answered; "": it could."""
        return ""

    @property
    def is_unscored(self) -> bool:
        """Whether the model answers NaN, the right answer is not published, or the tokenizer cannot
        spell the example."""
        return self.score is None or is_unscored(self.score)


AnyRow = TypeVar("AnyRow", bound=ScoredRow)


@dataclass(slots=True)
class TaskScores(Generic[AnyRow]):
    """The scores of one task's examples with one set of weights."""

    kind: "TaskKind[AnyRow]"
    rows: list[AnyRow] = field(default_factory=list)  # in the suite's order, once all have run
    sampled: Sampled | None = None  # None: every example ran
    growing: GrowingSpeed | None = None  # of the text that dialogues read; None: there was none
    tokens_without_text: int = 0  # of completions: the tokenizer lacks them
    journal: Journal | None = None  # keeps verdicts of programs

    @property
    def source(self) -> LoadedTask:
        return self.kind.source

    @property
    def example_scores(self) -> list[ExampleScore | None]:
        return [row.score for row in self.rows]

    @property
    def num_skipped(self) -> int:
        """Examples without a score."""
        return sum(row.is_unscored for row in self.rows)

    def values_by_id(self) -> dict[int, float]:
        """The main metric of each example that has run."""
        values = dict.fromkeys([row.id for row in self.rows], math.nan)
        for row in self.rows:
            if row.score is not None:
                values[row.id] = row.score.metrics.get(self.source.task.main, math.nan)
        return values


class TaskKind(ABC, Generic[AnyRow]):
    """One task of a run, scored by the rules of its kind."""

    scores_spans: ClassVar[bool] = False  # it has requests that are planned and scored
    generates: ClassVar[bool] = False
    runs_programs: ClassVar[bool] = False  # that the model writes
    takes_rows: ClassVar[bool] = False  # --rows may choose its examples
    # why --controls has nothing to score; "": it has
    why_no_controls: ClassVar[str] = "it does not choose among given options"

    def __init__(self, source: LoadedTask, setup: Setup) -> None:
        profile = source.task.profile
        is_text = getattr(profile, "special_tokens", "control") == "text"
        if is_text and setup.tokenizer is not None:
            setup = replace(setup, tokenizer=reading_names_as_text(setup.tokenizer))
        self.source = source
        self.setup = setup
        self.max_length = setup.limit.of(source.task.profile)
        self.due: frozenset[int] | None = None  # ids of the examples that `pieces` gives; None: all

    @cached_property
    def control_tokens(self) -> dict[str, int]:
        """Names of special tokens that the data hold and the tokenizer reads as these tokens ->
        rows that hold them."""
        if self.setup.tokenizer is None:
            return {}
        return special_names_in(self.setup.tokenizer, map(_texts_of, self.source.examples))

    @classmethod
    def load(cls, task: Any, folder: Path, config: RunConfig, runs: bool) -> list[AnyExample]:
        """The examples of a task's data file.  `runs`: False if the run is only planned.  Raises
        InputError."""
        return read_examples(task, folder, config.allow_changed_data)

    @classmethod
    @abstractmethod
    def whole_prompts(
        cls, source: LoadedTask, config: RunConfig, examples: Iterable[ExampleResult]
    ) -> Iterable[Prompt]:
        """What each example asks, without a tokenizer, so with the shots that a length limit may
        have left out.  `examples`: of a run, whose answers the prompts of dialogues hold.

        Its digest, or that of `without_shots` of it, is the one of samples."""

    def prepare(self) -> None:
        """Do whatever may fail before weights are loaded, such as tokenizing prompts of
        completions.  Raises InputError."""

    @property
    def may_be_sampled(self) -> bool:
        """Whether the task's number is a mean of examples that may run one without the other."""
        return False

    def digests(self) -> Mapping[int, str]:
        """The digest of each example's prompt, by id, of a kind that `may_be_sampled`."""
        return {}

    def sizes(self, cost: CostModel) -> RowSizes | None:
        """Estimate the task's rows; None: they are too few to matter."""
        return None

    def sizes_job(self, cost: CostModel) -> Iterator[Job]:
        """What makes `sizes` in one process for all; nothing: each makes them."""
        yield from ()

    def piece_jobs(self, sizes: RowSizes, rendered: Rendered) -> Iterator[Job]:
        """What makes `pieces` in one process for all, in their order; nothing: each makes
        them."""
        yield from ()

    def pieces(self) -> Iterator[tuple[Any, Requests]]:
        """Examples with their tokenized requests, some at a time."""
        yield from ()

    def pairs(self) -> Iterator[RequestTexts]:
        """The texts of scored requests, for a frozen request set; none where they are no pairs or
        gold is not published."""
        yield from ()

    def finished(self, scores: TaskScores[AnyRow]) -> FinishedTask:
        """All that is kept of the task, once everything is scored."""
        return FinishedTask(
            self.result(scores),
            partial(self.example_results, scores),
            partial(self.further_files, scores),
            unanswered=[row.id for row in scores.rows if row.is_nan],
            not_judged={row.id: row.why_not_judged for row in scores.rows if row.why_not_judged},
        )

    @abstractmethod
    def result(self, scores: TaskScores[AnyRow]) -> TaskResult:
        """The task's numbers."""

    @abstractmethod
    def example_results(self, scores: TaskScores[AnyRow]) -> Iterator[ExampleResult]:
        """One record an example, in the suite's order."""

    def further_files(self, scores: TaskScores[AnyRow]) -> Iterator[tuple[str, bytes]]:
        """Files that the run was asked for beside samples: their names below the output folder, and
        contents."""
        yield from ()

    def rows_of(self, piece: TokenizedExamples, scores: Scores) -> list[AnyRow]:
        """The examples of a piece with their scores.  `scores`: one per request, in order."""
        return []

    def texts(self) -> list[TextRequest]:
        """Requests for completions, after all pieces are tokenized."""
        return []

    def take_texts(self, scores: TaskScores[AnyRow], texts: Iterator[Generated]) -> None:
        """Add one completion per request of `texts`, and score what they answer."""

    def growing_text(self, model: Model, progress: Progress) -> GrowingText | None:
        """The text, with its compiled program, that `score_in_turn` reads turns into; None: it does
        nothing."""
        return None

    def score_in_turn(
        self, scores: TaskScores[AnyRow], model: Model, check: SelfCheck, progress: Progress
    ) -> None:
        """Score examples whose prompts depend on earlier answers, on the whole model.  Raises
        SelfCheckFailed."""


_TEXT_FIELDS = frozenset(
    {
        "contexts", "continuations", "shots", "neutral", "prompt", "text", "prefix", "target",
        "distractors",
    }
)  # fmt: skip


def _texts_of(example: AnyExample) -> Iterator[str]:
    """The texts of an example that a model reads."""
    for each in fields(example):
        if each.name in _TEXT_FIELDS:
            value = getattr(example, each.name) or ()
            yield from (value,) if isinstance(value, str) else value
