"""The numbers of a run: of a task, a suite, and all of them.

Arrives: nothing.  Leaves: `RunResult` and its parts.  It deliberately does not know JSON.

Field names are the keys of results.json.  A number that is not defined is NaN here and null there.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar

from miron_jax.definitions.if_any import IfAny
from miron_jax.engine.text_requests import GenerationSpeed
from miron_jax.files.readers import Json, JsonObject
from miron_jax.runtime.answers import Answers
from miron_jax.statistics.draws import WITHIN
from miron_jax.statistics.estimate import Estimate
from miron_jax.statistics.human_gaps import HumanGap
from miron_jax.statistics.robustness import Robustness

UNKNOWN = Estimate(math.nan, math.nan, (math.nan, math.nan), 0, 0)
CHOSEN_IF_NO_MAIN = ("accuracy", "greedy_exact", "em", "bits_per_char")
UNSCORED = (
    "examples without a score (NaN, programs that were not judged, or unpublished right answers); "
    "no composite counts their tasks"
)
BEYOND_TRAINED = "examples longer than the length the model was trained at"


@dataclass(frozen=True, slots=True)
class Group:
    """A category of a task."""

    n: int  # scored examples
    metrics: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class Rescaled:
    """(accuracy - b) / (1 - b): 0 is chance, 1 perfect, below chance negative."""

    value: float
    stderr: float


@dataclass(frozen=True, slots=True)
class TaskData:
    """The file of a task's examples."""

    file: str | None = None  # None: made by the package
    rows: IfAny[int | None] = None  # None: as many as the published file has
    published_rows: IfAny[int | None] = None
    state: str = ""  # compared with the published file
    git_blob_sha1: str | None = None
    commit: str | None = None  # of the hub's data set
    labels: IfAny[str | None] = None  # hash of people's answers (--human_labels), as git has it


@dataclass(frozen=True, slots=True)
class Sampled:
    """Which examples of a task ran, if not all."""

    examples: int
    of: int
    how: str  # the flag that decided
    seed: int  # of their random order
    # the main metric's 95 % confidence sequence, about the complete set
    interval: tuple[float, float]
    # against the earlier run: 1 this model, -1 that run, 0 not decided; None: not asked
    winner: int | None = None

    @property
    def is_whole(self) -> bool:
        return self.examples == self.of


@dataclass(frozen=True, slots=True)
class Control:
    """A task's accuracy with one thing of its prompts changed."""

    accuracy: Estimate
    gap: Estimate  # the accuracy of the same examples as they are, less this one; paired
    # of permuted options: the share of the choices that each place has, A first
    chosen_places: IfAny[tuple[float, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What is left of a task's score without its input, over examples that were drawn for it."""

    n: int = 0  # examples drawn
    of: int  # from so many
    accuracy: Estimate = UNKNOWN  # of those drawn, as they are
    by: Mapping[str, Control] = field(default_factory=dict)  # name of the control -> its numbers
    absent: Mapping[str, str] = field(default_factory=dict)  # name -> why the task has none


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """What a score owes to the draw of its few-shot examples."""

    scores: tuple[float, ...] = ()  # of each draw, the suite's first
    mean: float = math.nan  # of them
    spread: float = math.nan  # standard deviation of the score from one draw to another
    scored_once: IfAny[str] = ""  # why there is one draw: "zero-shot" or "fixed"

    @property
    def estimate(self) -> Estimate:
        """The mean, and where 95 % of other draws would lie: the mean of K draws varies, too."""
        half = WITHIN * self.spread * math.sqrt(1 + 1 / max(1, len(self.scores)))
        ends = self.mean - half, self.mean + half
        return Estimate(self.mean, self.spread, ends, len(self.scores), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What only one task kind has; its own class is in details.py."""

    caution: ClassVar[str] = ""  # a sentence beside all numbers of the kind

    beyond_trained_length: int = 0  # examples longer than the length the model was trained at

    def notes(self, task: "TaskResult") -> Iterator[str]:
        """Sentences that qualify the task's numbers."""
        yield from ()

    def counts(self, task: "TaskResult") -> Mapping[str, int]:
        """Sentences that begin with a number, which is summed over the tasks of a run."""
        return {UNSCORED: task.skipped, BEYOND_TRAINED: self.beyond_trained_length}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """One task's numbers, with the rules that they depend on."""

    n: int  # scored examples
    metrics: Mapping[str, Estimate]
    groups: Mapping[str, Group] = field(default_factory=dict)
    # accuracies; "random" and "human" among them
    baselines: Mapping[str, float | None] = field(default_factory=dict)
    human: tuple[HumanGap, ...] = ()
    rescaled: Rescaled | None = None
    profile: JsonObject = field(default_factory=dict)  # its rules, as results name them
    kind: str = ""
    main: str = ""  # the metric that stands for the task; "": see `main_metric`
    section: str | None = None  # of the suite's own table
    skipped: int = 0  # examples without a score
    details: Details = field(default_factory=Details)
    # special tokens named in the data -> rows that do
    control_tokens: IfAny[Mapping[str, int]] = field(default_factory=dict)
    # tokens of completions that the tokenizer lacks; None: there are none, or no completions
    tokens_without_text: IfAny[int | None] = None
    # few-shot examples -> prompts that keep so many; None: not counted
    num_shots: IfAny[Mapping[str, int] | None] = None
    robustness: IfAny[Robustness | None] = None
    data: TaskData = TaskData()
    citation: str = ""
    # published scores, by model
    reference: IfAny[Mapping[str, float]] = field(default_factory=dict)
    licence: IfAny[str] = ""
    controls: IfAny[Controls | None] = None  # None: not asked for
    draws: IfAny[Draws | None] = None  # likewise
    sampled: IfAny[Sampled | None] = None  # None: every example ran
    limit: IfAny[int | None] = None

    @property
    def num_fewshot(self) -> Json:
        """Few-shot examples of a prompt by the task's rules; None: they name no number."""
        return self.profile.get("num_fewshot")

    @property
    def categories(self) -> Json:
        """What becomes of the numbers of its categories."""
        return self.profile.get("categories")

    @property
    def main_metric(self) -> str:
        """The metric that stands for the task; "" without a metric."""
        chosen = (name for name in CHOSEN_IF_NO_MAIN if name in self.metrics)
        return self.main or next(chosen, next(iter(self.metrics), ""))

    @property
    def main_estimate(self) -> Estimate:
        return self.metric(self.main_metric)

    def metric(self, name: str) -> Estimate:
        """An undefined number where the task lacks it."""
        return self.metrics.get(name, UNKNOWN)

    def chance(self, metric: str) -> float | None:
        """What guessing gives; None where it is not known."""
        return self.baselines.get("random") if metric == "accuracy" else None

    def people(self, metric: str) -> float | None:
        """The human baseline of a metric; None where there is none."""
        gap = self.human_gap(metric)
        if gap is not None:
            return None if math.isnan(gap.human.value) else gap.human.value
        return self.baselines.get("human") if metric == "accuracy" else None

    def human_gap(self, metric: str) -> HumanGap | None:
        return next((gap for gap in self.human if gap.metric == metric), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeResult:
    """One number over many tasks."""

    value: float = math.nan
    stderr: float = math.nan
    ci95: tuple[float, float] | None = None  # None: it has no value
    complete: bool = False
    missing: tuple[str, ...] = ()  # tasks without a score
    weights: Mapping[str, float] = field(default_factory=dict)  # d value / d metric of each task
    metric: IfAny[str] = ""  # "": each task's main one
    draws: IfAny[Draws | None] = None  # None: not asked for, or of another metric


@dataclass(frozen=True, slots=True)
class SuiteResult:
    composites: Mapping[str, CompositeResult]
    missing_data: Mapping[str, str] = field(
        default_factory=dict
    )  # task -> path where its file should be, or why it is left out


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnvironment:
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    platform: str = ""
    num_devices: int = 0
    host: str = ""
    xla_flags: str = ""
    matmul_precision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpeed:
    """Counts of tokens, and seconds."""

    requests: int = 0
    load_seconds: float = 0.0
    unique_tokens: int = 0
    # task -> unique tokens of it alone, about; without tasks that only generate
    tokens_by_task: IfAny[Mapping[str, int]] = field(default_factory=dict)
    padded_tokens: int = 0
    plain_tokens: int = 0
    # of the largest batch on a device, padding included: what --token_budget came to
    batch_slots: int = 0
    programs: int = 0
    attention: str | None = None  # the operation that ran
    compile_seconds: float = 0.0
    device_seconds: float = 0.0
    finished: IfAny[str] = ""  # when, in UTC; "": of an older version
    wall_seconds: float = 0.0  # since the command's process began, or the call of an Evaluator
    # activity (runtime/timeline) -> seconds of the main thread, which sum to wall_seconds
    timeline: Mapping[str, float] = field(default_factory=dict)
    # activity -> seconds of threads that worked meanwhile
    in_threads: Mapping[str, float] = field(default_factory=dict)
    journal_seconds: float = 0.0
    computed_tokens: int = 0  # fewer than unique ones in a resumed run
    tokens_per_second: float = math.nan
    useful_flops: float = 0.0
    useful_flops_per_second: float = math.nan
    share_of_peak: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheckResult:
    """What the self-check scored a second time."""

    tolerance: float = math.nan  # nats
    requests: int = 0
    tokens: int = 0
    largest: float = math.nan  # difference in nats
    seconds: float = 0.0
    programs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Which weights were scored."""

    folder: str | None = None
    fingerprint: str | None = None  # of the checkpoint's files
    weights: str | None = None  # fingerprint of all weights on the devices
    # hub commits of model and tokenizer
    commits: Mapping[str, str | None] = field(default_factory=dict)
    # number of weights of each dtype, as the programs computed with them, the most first
    dtypes: Mapping[str, int] = field(default_factory=dict)
    parameters: IfAny[int] = 0  # all of them
    # of a forward pass, without scores and sums of attention (model/costs.py); None: not known
    flops_per_token: IfAny[float | None] = None
    training_tokens: IfAny[int | None] = None  # None: the checkpoint does not say them
    tokenizer: str | None = None  # fingerprint of its vocabulary and rules
    tokenizer_from: str | None = None  # tokenizer.json, a class of transformers, or a given object
    answers: Answers | None = None  # of a user's own model to fixed tokens
    implausible: tuple[str, ...] = ()  # one warning per suspicious weight
    average: IfAny[str] = ""  # such as last:5: the weights are an average of several steps
    averaged: IfAny[tuple[int, ...]] = ()  # those steps

    @property
    def num_parameters(self) -> int:
        """0: not known.  Results of earlier versions have them by dtype alone."""
        return self.parameters or sum(self.dtypes.values())


@dataclass(frozen=True, slots=True)
class SampleFile:
    """A task's samples as they were written."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Decided:
    """A composite against the earlier run's, over this set of examples."""

    composite: str
    difference: float  # this model less that run
    half_width: float  # of its 95 % confidence sequence
    winner: int  # 1 this model, -1 that run, 0 not decided


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """All numbers of a run, or of one checkpoint of a training run."""

    config: JsonObject
    environment: RunEnvironment = RunEnvironment()
    tasks: Mapping[str, TaskResult]
    suites: Mapping[str, SuiteResult]
    speed: RunSpeed = RunSpeed()
    generation: GenerationSpeed | None = None  # None: nothing was generated
    self_check: SelfCheckResult = SelfCheckResult()
    unanswered: int = 0  # examples that the model answers with NaN
    decided: IfAny[Decided | None] = None
    unverified: tuple[str, ...] = ()  # inputs without a checksum
    checkpoint: Weights = Weights()
    step: IfAny[int | None] = None  # of a training run
    steps: IfAny[Mapping[str, str]] = field(default_factory=dict)  # its steps -> their results.json
    # by task; {}: of an older version, or not written
    samples: IfAny[Mapping[str, SampleFile]] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """As --model names it; "": not known."""
        return str(self.config.get("model") or "")

    @property
    def dtype(self) -> Json:
        return self.config.get("dtype")

    @property
    def limit(self) -> Json:
        """--limit; None: all examples."""
        return self.config.get("limit")

    def tasks_of(self, suite: str) -> dict[str, TaskResult]:
        return {name: task for name, task in self.tasks.items() if name.startswith(f"{suite}/")}

    def metric(self, task: str, name: str) -> Estimate:
        """An undefined number where the run, or the task, lacks it."""
        return self.tasks[task].metric(name) if task in self.tasks else UNKNOWN

    def composite(self, suite: str, name: str) -> CompositeResult:
        """An undefined one where the run lacks it."""
        of_suite = self.suites.get(suite, SuiteResult({}))
        return of_suite.composites.get(name, CompositeResult())

    def metric_of(self, composite: CompositeResult) -> str:
        """The metric that a composite averages, its tasks' main one if it names none."""
        mains = (self.tasks[task].main_metric for task in composite.weights if task in self.tasks)
        return composite.metric or next(mains, "composite")

    def not_scored(self, composite: CompositeResult) -> tuple[str, ...]:
        """Tasks that a composite lacks although --tasks names all that it lacks; () for one that
        nobody asked for."""
        patterns = self.config.get("tasks")
        if not isinstance(patterns, list | tuple):
            return composite.missing
        for task in composite.missing:
            suite, _, _ = task.partition("/")
            if not any(suite == each or fnmatchcase(task, str(each)) for each in patterns):
                return ()
        return composite.missing
