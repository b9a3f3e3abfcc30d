"""What a run scores and what comes of it, task by task.

Arrives: nothing.  Leaves: sources (a task with its examples), their scores, `Inputs` and `Outcome`.  It deliberately
does not know how a score is made or averaged.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from miron_jax.engine.growing import GrowingSpeed
from miron_jax.engine.model import Speed
from miron_jax.engine.records import Score
from miron_jax.engine.self_check import SelfCheck
from miron_jax.engine.text_requests import Ended, GenerationSpeed
from miron_jax.metrics.choices import ExampleScore
from miron_jax.model.training_run import Checkpoint
from miron_jax.planning.request_batches import Totals
from miron_jax.prompting.prompts import Prompt
from miron_jax.runtime.answers import Answers
from miron_jax.task_kinds.data_files import DataState
from miron_jax.task_kinds.programs import Verdict
from miron_jax.task_kinds.records import (
    AnswerTask,
    AnyTask,
    Cloze,
    ClozeTask,
    Example,
    Problem,
    ProgramTask,
    Question,
    Suite,
    Task,
)
from miron_jax.tokens.cloze_requests import Asked
from miron_jax.tokens.records import Bos, LengthLimit


class Source(NamedTuple):
    """A task with its data at hand."""

    task: Task
    examples: list[Example]
    data: DataState


class AnswerSource(NamedTuple):
    """The same of a task whose questions are answered in the model's own words."""

    task: AnswerTask
    examples: list[Question]
    data: DataState


class ClozeSource(NamedTuple):
    """The same of a cloze task."""

    task: ClozeTask
    examples: list[Cloze]
    data: DataState


class ProgramSource(NamedTuple):
    """The same of a task whose problems are answered with programs."""

    task: ProgramTask
    examples: list[Problem]
    data: DataState


AnySource = Source | AnswerSource | ProgramSource | ClozeSource


def is_dialogue(source: AnySource) -> bool:
    """Whether its examples are turns, each asked behind the answers to those before it."""
    return isinstance(source, Source) and source.task.ask is not None


class Inputs(NamedTuple):
    """What a run scores, found and checked."""

    sources: list[AnySource]
    missing: dict[str, Path]  # tasks of a suite whose data file is absent, and where it was looked for
    suites: Sequence[Suite[AnyTask]]  # those that the tasks come from


@dataclass(slots=True)
class TaskScores:
    """One task's examples, in the suite's own order."""

    source: Source
    prompts: list[Prompt] = field(default_factory=list)  # without their worked examples
    options: list[list[Score]] = field(default_factory=list)  # one an example, one an option
    examples: list[ExampleScore] = field(default_factory=list)
    truncated: int = 0  # examples with an option that lost tokens to the length limit
    inexact_prefix: int = 0  # examples whose context is no token prefix; scored from the longest common one
    beyond_trained: int = 0  # examples with an option longer than the length the model was trained at
    growing: GrowingSpeed | None = None  # of dialogues


@dataclass(slots=True)
class AnswerScores:
    """One task's questions, in the suite's own order."""

    source: AnswerSource
    prompts: list[Prompt] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    max_new_tokens: int = 0  # that a text may have
    truncated: int = 0  # questions that lost tokens to the length limit
    beyond_trained: int = 0  # questions that with their text may exceed the length the model was trained at
    ended: list[Ended] = field(default_factory=list)  # what ended each text
    drawn: list[tuple[int, ...]] = field(default_factory=list)  # its tokens, EOS not
    generated: list[str] = field(default_factory=list)
    examples: list[ExampleScore] = field(default_factory=list)


@dataclass(slots=True)
class ProgramScores:
    """One task's problems, in file order."""

    source: ProgramSource
    sandboxed: bool  # else its programs ran under limits alone
    problems: list[Problem] = field(default_factory=list)
    max_new_tokens: int = 0  # that a program may have
    beyond_trained: int = 0  # problems that with their program may exceed the length the model was trained at
    programs: list[list[str]] = field(default_factory=list)  # of each problem, behind its prompt
    verdicts: list[list[Verdict]] = field(default_factory=list)
    ceiling: list[Verdict] = field(default_factory=list)  # of the authors' own solutions
    examples: list[ExampleScore] = field(default_factory=list)


@dataclass(slots=True)
class ClozeScores:
    """One cloze task's items, in file order.  Those that the tokenizer cannot spell have no scores and no example."""

    source: ClozeSource
    items: list[Cloze] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)  # as the other lists, one an item
    spans: list[dict[int, Score]] = field(default_factory=list)  # by place among the requests that `asked` names
    generated: list[str | None] = field(default_factory=list)  # None: not scored, or the model answered NaN
    examples: list[ExampleScore | None] = field(default_factory=list)
    truncated: int = 0
    beyond_trained: int = 0

    empty_prefix: str | None = None  # the token that stands for an empty prefix

    @property
    def unspelled(self) -> int:
        return sum(asked.target is None for asked in self.asked)

    @property
    def scored(self) -> list[tuple[Cloze, ExampleScore]]:
        """Items that the tokenizer could spell and the model answered."""
        pairs = zip(self.items, self.examples, strict=True)
        return [(item, example) for item, example in pairs if example and not math.isnan(example.metrics["logprob"])]


AnyScores = TaskScores | AnswerScores | ProgramScores | ClozeScores


class Outcome(NamedTuple):
    """All that a run has scored, and what it took."""

    tasks: Sequence[AnyScores]
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
