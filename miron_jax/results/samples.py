"""One example of a task: what was asked, what the model did, how it counts.

Arrives: nothing.  Leaves: `ExampleResult` and its parts, a line each of the samples files.  It
deliberately does not know how an example is scored.

Field names are the keys of a line.  A number that is not defined is NaN here and null there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from miron_jax.definitions.if_any import IfAny
from miron_jax.files.readers import Json, JsonObject
from miron_jax.results.records import RunResult, TaskResult


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPrompt:
    """A prompt with choices, or one that is completed."""

    prompt: str = ""  # its end
    prompt_sha256: str = ""  # of all of it, 16 digits
    category: IfAny[str | None] = None
    num_shots: IfAny[int | None] = None
    cluster: IfAny[str | None] = None  # examples of one word, sentence or story
    swapped: str | None = None  # name of the question, equal in all orders of its choices
    traits: Mapping[str, str | None] | None = None  # by which the robustness report groups it


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedItem:
    """A cloze item."""

    name: str = ""
    category: str = ""
    prefix: str = ""
    prompt_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDocument:
    """A text of which every token is scored."""

    doc_id: str = ""
    corpus_id: str = ""
    total_nll: float = 0.0  # nats
    scored_tokens: int = 0
    num_bytes: int = 0
    text_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedProblem:
    """A program's beginning."""

    name: str = ""
    prompt: str = ""  # its end
    prompt_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A scored span.  Its log-probabilities are nats."""

    text: str
    logprob: float  # sum over its tokens
    num_tokens: int = 0
    token_logprobs: Sequence[float] = ()
    token_bytes: IfAny[tuple[int, ...]] = ()  # of each, at the end of `text`; 0 of a special token
    # of its tokens, with --token_stats: their ids; tokens ahead, 0 is greedy; entropy and largest
    # log p of the distribution, nats
    token_ids: IfAny[Sequence[int]] = ()
    token_ranks: IfAny[Sequence[int]] = ()
    token_entropies: IfAny[Sequence[float]] = ()
    token_largest_logprobs: IfAny[Sequence[float]] = ()
    greedy: bool | None = None  # whether greedy decoding writes it; None: no token, or NaN
    # of the end of the prefix that the first token of a cloze target holds
    held_logprob: IfAny[float | None] = None
    reason: IfAny[str] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    ended: str = ""  # why
    answer: str = ""  # in the form that is compared with the accepted ones
    accepted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramText:
    text: str
    ended: str
    answers: IfAny[Json] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    programs: tuple[ProgramText, ...]
    ceiling: str  # how the authors' own solution ended


Asked = AskedPrompt | AskedItem | AskedDocument | AskedProblem
ModelOutput = Completion | Programs | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleResult:
    id: int  # place in the suite's own order
    row: int  # line of the data file, from 0
    asked: Asked = AskedPrompt()
    gold: int | None = None  # place of the right option, or of the first of several
    also_right: IfAny[tuple[int, ...]] = ()  # places of the others
    prediction: int | None = None  # place of the chosen one
    correct: bool | None = None  # None: no right or wrong, or no score
    options: tuple[Option, ...] = ()
    neutral_logprobs: IfAny[Sequence[float]] = ()  # of the options after the neutral context
    generated: str | None = None
    answered: IfAny[ModelOutput] = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    by_draw: IfAny[Sequence[float]] = ()  # the main metric under each draw of shots; (): one draw
    truncated: IfAny[bool | None] = None  # True: its prompt lost tokens to the length limit
    meta: IfAny[JsonObject | None] = None  # of its record in a submission
    reason: IfAny[str] = ""  # why a number is not defined

    @property
    def digest(self) -> str:
        """Of the prompt or text; "": a run of an older version has none."""
        asked = self.asked
        return asked.text_sha256 if isinstance(asked, AskedDocument) else asked.prompt_sha256


ExamplesOf = Callable[[str], Iterable[ExampleResult]]  # by name of the task


class FinishedTask(NamedTuple):
    """All that is kept of a task."""

    result: TaskResult
    # made while they are written, so that those of one task are held at a time
    examples: Callable[[], Iterator[ExampleResult]]  # in the suite's order
    # what the run was asked to write beside its results: names below the output folder, contents
    further_files: Callable[[], Iterator[tuple[str, bytes]]]
    unanswered: Sequence[int]  # ids of examples without a score, as the model answers NaN
    not_judged: Mapping[int, str]  # ids of examples that the machine could not judge -> why


class FinishedRun(NamedTuple):
    """All that is kept of a run, or of one checkpoint of several."""

    result: RunResult
    tasks: Mapping[str, FinishedTask]  # by name

    def examples(self, task: str) -> Iterator[ExampleResult]:
        return self.tasks[task].examples()

    def further_files(self) -> Iterator[tuple[str, bytes]]:
        for task in self.tasks.values():
            yield from task.further_files()
