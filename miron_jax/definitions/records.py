"""What a benchmark is: where its examples come from, how they are worded, which rules score them.

Arrives: a folder of data files.  Leaves: the records `Task` and `Suite` that files in tasks/ fill in, and the `Example`s
read for them.  It deliberately does not know few-shot draws, tokenizers, models or devices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from miron_jax.definitions.rules import GREEDY, NOTHING, Rule


@dataclass(frozen=True, slots=True)
class Example:
    """One line of a data file.  Either side may be a single text that all options share."""

    row: int  # line in the data file, from 0
    contexts: tuple[str, ...]  # one, or one an option (schema)
    continuations: tuple[str, ...]  # one, or one an option (multiple choice)
    gold: int | None  # index of the right option; 0 where there is one option; None: it is not published
    category: str | None = None  # where the file has categories
    shots: tuple[str, ...] | None = None  # worked examples that the suite itself has put before it; None: the run draws
    dialogue: int | None = None  # turns of one dialogue are asked in order, each behind the answers to those before it
    published: Mapping[str, Any] | None = None  # the record itself, for submissions and metrics over all records
    neutral: str | None = (
        None  # a context without content, which tells how probable an option is before anything is asked
    )
    cluster: str | None = None  # examples of one cluster (a word, a story) are no independent trials
    swapped: str | None = None  # examples of one name are the same question with its options in another order
    traits: tuple[tuple[str, str], ...] = ()  # what the robustness report groups examples by


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Example):
    """An example that the model answers in its own words; its continuation is what a worked example shows."""

    accepted: tuple[str, ...]  # right answers; none: they are not published
    room_for: tuple[str, ...]  # texts that the model must have tokens enough to write


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Every rule that makes a prompt.

    A field of one possible value names a rule that all suites share so far; the stage that a second value would change
    is where it will be read.
    """

    protocol: str  # whose rules these are
    num_fewshot: int  # worked examples before each question
    documented_num_fewshot: int | None = None  # where the suite's document says another number
    prompt_string: str = ""  # before the worked examples
    prelimiter: str = ""  # before every context
    delimiter: str  # between a context and its continuation
    question_delimiter: Literal["whole", "right_stripped"]  # as it ends the question itself; right_stripped: a schema's
    # context without worked examples goes without one
    shot_separator: str  # between worked examples, and between the last one and the question
    strip: Literal["nothing", "context", "fields"]  # what loses white space at both ends; fields: texts outside lists
    item_order: Rule[Callable[..., Any]]  # prompting/draws.py; an arranged suite's own
    fewshot_draw: Rule[Callable[..., Any]]  # likewise
    fewshot_pool: Literal["limited_items", "whole_file", "other_file"]  # limited_items: what --limit leaves, at least
    # num_fewshot + 1
    categories: Literal["pooled", "macro", "reported"]
    # macro: drawn and averaged within each category, then the mean of those; reported: pooled, each category told beside
    bos: Literal["always", "as_tokenizer", "never"]  # always: the declared bos_token, else <|bos|>, else <|endoftext|>,
    # else an error; as_tokenizer: what the tokenizer puts before a text
    boundary: Literal["joint", "segments"]  # joint: one text; segments: worked examples, context, continuation apart
    truncation: Literal[
        "keep_last", "whole_shots"
    ]  # keep_last: the last max_length tokens stay, BOS and early shots go
    # first; whole_shots: worked examples go whole, the first first, and only then tokens
    max_length: int | None  # tokens of a request without --max_length; None: as many as the model takes
    over_all: Rule[Callable[..., Any]] = (
        NOTHING  # what `Task.answered` gives, how often each counts -> numbers over all
    )
    # examples together, beside the means

    @property
    def endings(self) -> tuple[str, ...]:
        """Gold is asked with each of these behind it too."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Wording):
    """And every rule that scores options, printed whole in the result."""

    continuation_space: Literal["as_written", "where_one_token"]  # where_one_token: a continuation begins with a space
    # where " a" is one token
    span: Any  # tokens scored: of tokens/spans.py
    normalizer: Rule[Callable[..., Any]]  # what options are compared by: of metrics/choices.py
    tie: Rule[Callable[..., int]]  # which of equal options wins: likewise
    empty_span: Literal[
        "nan_first_wins", "error"
    ]  # no scored token: NaN, which wins in first place and loses elsewhere
    # Gold is asked with each of these behind it too: greedy_exact is whether the model would write it and just one of them.
    # Two, because a blank line is one token of some tokenizers.
    endings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerProfile(Wording):
    """And every rule that draws and judges a text, printed whole in the result."""

    decoding: Rule[
        Callable[[], Mapping[str, Any]]
    ]  # -> how each token is drawn, as engine.text_requests.Sampling names it
    extra_tokens: int  # a text may have this many tokens more than the longest accepted answer of the whole file
    stop: tuple[str, ...]  # a text ends before the first of these
    answer_after: str  # the answer is what stands behind the last of these; "": the whole text
    answer_normalizer: Rule[Callable[[str], str]]  # of metrics/answers.py, or the suite's own
    match: Rule[Callable[..., Any]]  # likewise: an answer, the accepted ones, the normalizer -> what the example scores
    decoded: Literal["after_prompt", "alone"] = (
        "after_prompt"  # a text's tokens; alone: SentencePiece drops a first space
    )


@dataclass(frozen=True, slots=True)
class Problem:
    """A program to go on with, and what it must then compute."""

    row: int  # line in the data file, from 0
    name: str
    prompt: str
    entry_point: str  # the function that is called
    language: Literal["python", "c++", "javascript"]
    inputs: tuple[str, ...]  # arguments of each test, as text of that language
    outputs: tuple[str, ...]  # what it must return, one a test; none: not published
    solution: str  # one that the file's authors wrote
    code: str | None = None  # what stands before a program when it runs; None: the prompt
    published: Mapping[str, Any] | None = None  # the record itself, for submissions


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramProfile:
    """Every rule that draws and judges programs, printed whole in the result."""

    protocol: str
    num_fewshot: int = 0
    documented_num_fewshot: int | None = None
    categories: Literal["pooled"] = "pooled"
    bos: Literal["as_tokenizer", "never"] = "as_tokenizer"
    max_length: int | None  # tokens of prompt and program without --max_length
    num_samples: int  # programs drawn for each problem
    pass_at_k: int  # accuracy is the chance that one of so many passes
    also_pass_at: tuple[int, ...] = ()  # told beside it, and score, the mean of these
    temperature: float
    top_k: int
    top_p: float
    room: Literal["longest_solution", "nothing"] = "longest_solution"
    extra_tokens: int  # a program may have this many tokens more than the longest solution of the file, or than nothing
    cut: Rule[Callable[[str], str]]  # where a program ends in its text: of metrics/programs.py
    stop: tuple[str, ...] = ()
    judge: Literal["all_tests", "answers"]  # passes if every test does; the file's own check function is not used;
    # answers: if str() of what every test returns is what it should be
    test_seconds: float


Arrange = Callable[[list[Any], Path], list[Any]]  # examples in file order, the suite's folder -> with their preambles
Answering = Callable[[Any, str], Any]  # an example, its answer
Ask = Callable[[Sequence[Example], Sequence[str]], str]  # all turns so far, the answers to those before the last one
Chance = Callable[[Sequence[Any]], Mapping[str, float]]  # the examples of a file -> baselines that depend on them


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file as published; its hash decides whether a score may bear the suite's name."""

    path: str  # below the suite's data folder
    rows: int | None  # None: a file of the user's own
    git_blob_sha1: str | None  # as `git hash-object` prints it
    others: tuple[str, ...] = ()  # where else it may lie

    def below(self, folder: Path) -> Path:
        """Where it lies in this folder; where it should, if it is absent."""
        places = [folder / path for path in (self.path, *self.others)]
        return next((place for place in places if place.is_file()), places[0])


@dataclass(frozen=True, slots=True)
class HumanBaseline:
    """What people scored, and where that was published."""

    metric: str  # as results name it
    value: float
    n: int | None  # items that it is over; None: not published, or not measured
    procedure: Literal["A", "B", "one annotator"]  # by which answers became labels: humans/votes.py
    source: Literal["measured", "paper", "definition", "exam statistics"]
    published: str  # where
    tests: int | None = None  # records of the test set that it stands for; None: any
    note: str = ""
    otherwise: str = ""  # how people were asked otherwise than a model is: then no gap is drawn
    paper: str = ""


AnyProfile = TypeVar("AnyProfile", bound="Wording | ProgramProfile", covariant=True)


@dataclass(frozen=True, slots=True)
class Task(Generic[AnyProfile]):
    """A benchmark with one example a line of its file."""

    name: str  # "core/arc_easy"
    kind: str  # of those in miron_jax/task_kinds
    profile: AnyProfile
    file: DataFile
    baselines: Mapping[str, float | None]  # "random", "human"; shares of 1
    parse: Callable[[dict[str, Any], int], Any]  # one JSON object and its row -> its example; ValueError on bad content
    citation: str
    section: str | None = None  # the heading under which the suite counts it
    arrange: "Arrange | None" = None  # the suite's own order and worked examples; None: the profile's
    main: str = "accuracy"  # the metric that composites take
    answered: "Answering | None" = None  # an example and its answer, as numbers over all examples take them
    ask: "Ask | None" = None  # of dialogues: the text before the last turn's options
    human: tuple[HumanBaseline, ...] = ()
    chance: "Chance | None" = None  # baselines that depend on the examples
    clusters: str | None = None  # what examples share that are no independent trials; None: they are
    reference: Mapping[str, float] = field(default_factory=dict)  # published models' accuracy, for the eye alone


@dataclass(frozen=True, slots=True)
class Cloze:
    """A beginning and the text that truly goes on from it."""

    row: int  # line in the data file, from 0
    name: str  # the item's own name, or its row
    prefix: str
    target: str
    category: str
    distractors: tuple[str, ...] = ()  # other continuations, all wrong
    clean_prefix: str | None = None  # the same beginning before it was made noisy
    operator: str | None = None  # how it was made noisy
    num_edits: int = 0


@dataclass(frozen=True, slots=True)
class ClozeProfile:
    """Every rule that can move a cloze score, printed whole in the result."""

    num_fewshot: int = 0
    max_length: int | None = None  # tokens of a request without --max_length; None: as many as the model takes
    card: Literal["token_counts"] = "token_counts"  # the card's target: what follows len(tokenizer(prefix)) tokens
    bos: Literal["as_tokenizer"] = "as_tokenizer"  # special tokens stand before a text where the tokenizer puts them
    boundary: Literal["joint"] = "joint"  # prefix and target are tokenized as one text
    span: Literal["healed"] = "healed"  # tokens that end in the target, less log p of what they hold of the prefix
    empty_prefix: Literal["bos"] = "bos"  # of pmi: the declared BOS, else <|bos|>, else <|endoftext|>
    num_segmentations: int = 8  # tokenizations of a target that the marginal sums over, its own among them
    decoding: Rule[Callable[[], Mapping[str, Any]]] = GREEDY
    extra_tokens: int = 8  # a text may have this many tokens more than its target
    stop: str = "\n"


@dataclass(frozen=True, slots=True)
class ClozeTask:
    """Items of a beginning and its continuation, in categories."""

    name: str  # "miron/en"
    profile: ClozeProfile
    file: DataFile | None  # None: the items are generated
    read: Callable[[Path | None, int], list[Cloze]]  # its file, items of each category to generate -> all items
    citation: str
    rows: int | None = None  # of each category, as published; None: nothing is said of it
    kind: str = "cloze"
    section: str | None = None
    baselines: Mapping[str, float | None] = field(default_factory=lambda: {"random": None, "human": None})


AnyTask = Task[Any] | ClozeTask
OfSuite = TypeVar("OfSuite", bound=AnyTask, covariant=True)


@dataclass(frozen=True, slots=True)
class Suite(Generic[OfSuite]):
    name: str
    tasks: tuple[OfSuite, ...]  # in published order
    composites: Callable[[Mapping[str, "Measured"]], Mapping[str, "Composite"]]  # by task name
    locate: Callable[
        [Path | None, bool], Path
    ]  # --data_dir or None, may fetch -> folder; InputError says how to get it
    files_of: str = ""  # another suite that reads the same files: its --data_dir counts for this one too

    def named_folder(self, data_dir: Sequence[tuple[str, str]]) -> Path | None:
        """The --data_dir for this suite; a pair that names it goes before a plain folder, whose suite is ""."""
        folders = dict(data_dir)
        named = next((folders[name] for name in (self.name, self.files_of, "") if name in folders), None)
        return None if named is None else Path(named)


class Measured(NamedTuple):
    """What a composite needs of a task."""

    accuracy: float | None  # its main metric; None: it may not count
    num_examples: int
    means: Mapping[str, float] = MappingProxyType({})  # where several metrics have composites; none: it may not count


@dataclass(frozen=True, slots=True)
class Composite:
    """One number over many tasks.  `weights` are the derivatives by each task's accuracy: they carry the standard error."""

    value: float | None  # null while a task is missing
    complete: bool
    missing: tuple[str, ...]  # names of tasks that have no score
    weights: Mapping[str, float]  # d value / d accuracy, by task name
    metric: str = ""  # that it is over; "": each task's main one


class About(NamedTuple):
    """What a benchmark asks, for `miron-jax tasks`."""

    name: str  # without its suite
    year: int | None  # None: its authors do not say
    asks: str
