"""Records of a benchmark: suites, tasks, the profiles with the rules that score them, and examples.

Arrives: nothing.  Leaves: the records `Task` and `Suite` that files in tasks/ fill in, and the
`Example`s read for them.  It deliberately does not know few-shot sampling, tokenizers,
models or devices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from miron_jax.definitions.if_any import IfAny
from miron_jax.definitions.rules import GREEDY, LEFT_OUT, NOTHING, Rule
from miron_jax.files.readers import Json, JsonObject

SpecialTokens = Literal["control", "text"]
AnyRule = Rule[Callable[..., Any]]  # the module of a rule documents its signature


class Bias(NamedTuple):
    """What the choices of a question on social bias stand for."""

    biased: int  # the choice that follows the stereotype
    unknown: int  # the choice that says that the passage does not tell
    is_ambiguous: bool  # the passage does not tell: `unknown` is right


@dataclass(frozen=True, slots=True)
class Example:
    """One line of a data file: contexts and continuations, either of which may be one text that all
    choices share."""

    row: int  # line in the data file, from 0
    contexts: tuple[str, ...]  # one, or one per choice (schema)
    continuations: tuple[str, ...]  # one, or one per choice (multiple choice)
    gold: int | None  # index of the right choice; 0 if there is only one; None: not published
    category: str | None = None  # if the file has categories
    # few-shot examples that the suite chose; None: the run samples them
    shots: tuple[str, ...] | None = None
    # turns of one dialogue run in order; each prompt holds the earlier answers
    dialogue: int | None = None
    # the record itself, for submissions and metrics over all records
    published: Mapping[str, Json] | None = None
    neutral: str | None = None  # a context without content: it gives the choices' prior probability
    # examples of one cluster (a word, a story) are not independent trials
    cluster: str | None = None
    # examples with equal values are one question with its choices in different orders
    swapped: str | None = None
    # (name, value) pairs by which the robustness report groups examples
    traits: tuple[tuple[str, str], ...] = ()
    # the right choices beside gold, which is the first one; None: one choice is right
    also_right: tuple[int, ...] | None = None
    bias: Bias | None = None  # None: it measures none


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Example):
    """An example that the model answers by a completion; its continuation is its answer as a
    few-shot example shows it."""

    accepted: tuple[str, ...]  # right answers; empty: not published
    room_for: tuple[str, ...]  # texts that must fit into the completion's tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution(Example):
    """A solution that an expert wrote, after its prompt."""

    # texts whose sequence is the solution, each with the probability that the expert gave it; ():
    # not known
    expert_probs: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Every rule that makes a prompt and its tokens.  A field with one possible value names a rule
    that all suites share."""

    protocol: str  # whose rules these are
    num_fewshot: int  # few-shot examples before each question
    documented_num_fewshot: int | None = None  # if the suite's document says another number
    prompt_string: str = ""  # before the few-shot examples
    prelimiter: str = ""  # before every context
    delimiter: str  # between a context and its continuation
    # Between the question and its answer.
    # whole: `delimiter` as it is.
    # right_stripped: without white space at its end; a schema's context without few-shot examples
    # has none.
    # spaces_stripped: question and delimiter lose spaces at their end, which tokenizers join with
    # the next word.
    question_delimiter: Literal["whole", "right_stripped", "spaces_stripped"]
    shot_separator: str  # between few-shot examples, and between the last one and the question
    # What loses white space at both ends; fields: texts outside lists.
    strip: Literal["nothing", "context", "fields"]
    item_order: AnyRule  # of prompting/draws.py, or of a suite that arranges its examples
    fewshot_draw: AnyRule  # likewise
    # limited_items: what --limit leaves, at least num_fewshot + 1
    fewshot_pool: Literal["limited_items", "whole_file", "other_file"]
    # pooled: one mean over all examples.
    # macro: shots and means within each category, then the mean of these means.
    # reported: pooled, and each category's mean beside it.
    categories: Literal["pooled", "macro", "reported"]
    # always: the declared bos_token, else <|bos|>, else <|endoftext|>, else an error.
    # as_tokenizer: if the tokenizer puts one there.
    # as_tokenizer_or_prefix: likewise; an empty context, before which the tokenizer puts nothing,
    # gets BOS, else EOS.
    bos: Literal["always", "as_tokenizer", "as_tokenizer_or_prefix", "never"]
    # joint: context and continuation are tokenized as one text.
    # segments: shots, context and continuation are tokenized apart.
    # context_kept: the n tokens of the context alone, then those of the one text from token n on.
    boundary: Literal["joint", "segments", "context_kept"]
    # How names of special tokens in the data ("<|endoftext|>") are read.
    # control: as these tokens, as transformers does.  text: as their letters.
    special_tokens: SpecialTokens = field(default="control", metadata=LEFT_OUT)
    # keep_last: the last max_length tokens stay, so BOS and early shots go first.
    # keep_last_inputs: the last max_length + 1 stay, since the model does not read the last one.
    # whole_shots: few-shot examples are dropped whole, the first ones first, and only then tokens.
    # By the last two the limit without max_length is the length that the model was trained at.
    truncation: Literal["keep_last", "keep_last_inputs", "whole_shots"]
    max_length: int | None  # tokens of a request without --max_length; None: the model's limit
    # (results of `Task.answered`, weights) -> numbers over all examples, beside the means
    over_all: AnyRule = NOTHING
    # Prompts by the tokenizer's chat template (tokens/chats.py); "": plain text.
    # turns: each few-shot example is a turn of the user and one of the assistant.
    # one_turn: the few-shot examples stand before the question, in the user's one turn.
    chat: Literal["", "turns", "one_turn"] = field(default="", metadata=LEFT_OUT)
    # White space at the beginning of an assistant's turn.
    answer_start: Literal["as_written", "stripped"] = field(default="as_written", metadata=LEFT_OUT)

    @property
    def endings(self) -> tuple[str, ...]:
        """Texts to append to the gold continuation in further requests."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Wording):
    """Every rule that makes a prompt and scores its choices; results print all of them."""

    # where_one_token: a continuation begins with a space if " a" is one token
    continuation_space: Literal["as_written", "where_one_token"]
    # text that each continuation begins with but that is no part of the choice: the choice's
    # characters and bytes are counted without it
    joined_delimiter: str = field(default="", metadata=LEFT_OUT)
    span: Any  # scored tokens: a Span of tokens/spans.py
    normalizer: AnyRule  # losses by which choices are compared: of metrics/choices.py
    # names and further normalizers: the metric accuracy_NAME is by each
    compared: tuple[tuple[str, AnyRule], ...] = field(default=(), metadata=LEFT_OUT)
    tie: AnyRule  # which of equal choices wins: likewise
    # A choice without a scored token.
    # nan_first_wins: its loss is NaN; it is chosen if it stands first, and never elsewhere.
    # error: the run is refused.
    empty_span: Literal["nan_first_wins", "error"]
    # Gold is also scored with each of these appended: greedy_exact is whether the model would write
    # it and one of them. Two, because a blank line is one token of some tokenizers.
    endings: tuple[str, ...] = ()
    # permuted_where_gold_leans: by row, if the file's gold stands in one place too often
    choice_order: Literal["as_written", "permuted_where_gold_leans"] = field(
        default="as_written", metadata=LEFT_OUT
    )
    # Continuations are letters: one of several tokens is refused.
    one_token: bool = field(default=False, metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerProfile(Wording):
    """Every rule that makes a prompt, generates a completion and judges it; results print all of
    them."""

    decoding: Rule[Callable[[], Mapping[str, float]]]  # -> fields of engine.text_requests.Sampling
    # tokens that a completion may have beyond the longest accepted answer of the whole file
    extra_tokens: int
    stop: tuple[str, ...]  # a completion ends before the first of these
    # the answer follows the last occurrence of this text; "": the whole completion
    answer_after: str
    answer_normalizer: Rule[Callable[[str], str]]  # of metrics/answers.py, or of the suite
    match: AnyRule  # likewise: (answer, accepted answers, normalizer) -> the example's score
    # alone: SentencePiece drops a first space
    decoded: Literal["after_prompt", "alone"] = "after_prompt"


@dataclass(frozen=True, slots=True)
class Problem:
    """The beginning of a program, and what the completed program must compute."""

    row: int  # line in the data file, from 0
    name: str
    prompt: str
    entry_point: str  # the function that is called
    language: Literal["python", "c++", "javascript"]
    inputs: tuple[str, ...]  # arguments of each test, as text of that language
    outputs: tuple[str, ...]  # the expected return value of each test; empty: not published
    solution: str  # the authors' own
    code: str | None = None  # what precedes a program when it runs; None: the prompt
    published: Mapping[str, Json] | None = None  # the record itself, for submissions


CPU_FACTOR = 4  # limit of a program's processor time, in limits of its wall time


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramProfile:
    """Every rule that samples and judges programs; results print all of them."""

    protocol: str
    num_fewshot: int = 0
    documented_num_fewshot: int | None = None
    categories: Literal["pooled"] = "pooled"
    bos: Literal["as_tokenizer", "never"] = "as_tokenizer"
    max_length: int | None  # tokens of prompt and program without --max_length
    num_samples: int  # programs sampled for each problem
    pass_at_k: int  # accuracy is the chance that one of this many programs passes
    also_pass_at: tuple[int, ...] = ()  # further k; `score` is the mean over them
    temperature: float
    top_k: int
    top_p: float
    room: Literal["longest_solution", "nothing"] = "longest_solution"
    extra_tokens: int  # tokens that a program may have beyond `room`
    cut: Rule[Callable[[str], str]]  # completion -> the program in it: of metrics/programs.py
    stop: tuple[str, ...] = ()
    # all_tests: a program passes if every test does; the check function of its file is not used.
    # answers: a program passes if str() of every returned value is as expected.
    judge: Literal["all_tests", "answers"]
    # What a program may take for each of its tests; all other limits of its box follow from these.
    test_seconds: float  # of wall time, from its first instruction
    # of all processors, by all its processes; None: CPU_FACTOR * test_seconds
    cpu_seconds: float | None = None
    memory_mb: int = 2048  # of all its processes, files of its folder included
    output_mb: int = 1  # of the value that it returns
    processes: int = 256  # threads included


@dataclass(frozen=True, slots=True)
class Document:
    """A text of which every token is scored."""

    row: int  # place in its group, from 0
    doc_id: str  # as its file names it; else its file and line
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextProfile:
    """Every rule that cuts documents into windows and scores them; results print all of them."""

    protocol: str = "lm-eval's rolling windows"  # of 0.4.13; documents are never joined
    num_fewshot: int = 0
    documented_num_fewshot: int | None = None
    categories: Literal["pooled"] = "pooled"
    # before a document's first token, not scored
    bos: Literal["as_tokenizer_or_prefix"] = "as_tokenizer_or_prefix"
    # tokens of a window beside the last one, without --max_length; at most the trained length
    max_length: int = 2048
    stride: int | None = None  # tokens that a window scores; None: all
    special_tokens: SpecialTokens = field(default="control", metadata=LEFT_OUT)  # as in Wording


AnyExample = Any  # an Example, a Question, a Problem or a Document: the task's kind knows which
# (examples in file order, the suite's folder, the profile's draw of shots)
Arrange = Callable[[list[AnyExample], Path, AnyRule], list[AnyExample]]
# (example, its answer) -> an entry for `Wording.over_all`
Answering = Callable[[AnyExample, str], Any]
# (turns so far, answers to all but the last)
TurnPrompt = Callable[[Sequence[Example], Sequence[str]], str]
# a file's examples -> baselines that depend on them
Chance = Callable[[Sequence[AnyExample]], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file as published; its hash decides whether a score may bear the suite's name."""

    path: str  # below the suite's data folder; of documents: a file, or a folder of files
    rows: int | None  # None: a user's own file
    git_blob_sha1: str | None  # as `git hash-object` prints it
    others: tuple[str, ...] = ()  # further paths to look at
    remedy: str = "fetch the file again"  # where its bytes are others

    def below(self, folder: Path) -> Path:
        """The path of the file in this folder; the published one if the file is absent."""
        paths = [folder / path for path in (self.path, *self.others)]
        return next((path for path in paths if path.is_file()), paths[0])


@dataclass(frozen=True, slots=True)
class HumanBaseline:
    """A human score of a task, published or of labels that a user gave."""

    metric: str  # as results name it
    value: float
    n: int | None  # items of the mean; None: not published, or not measured
    procedure: Literal["A", "B", "one annotator"]  # how answers became labels: humans/votes.py
    source: Literal["measured", "paper", "definition", "exam statistics"]
    published: str  # source of the number
    tests: int | None = None  # records of its test set; None: any number
    note: str = ""
    otherwise: str = ""  # how the human task differs from the model's; then there is no human gap
    paper: str = ""
    ci95: IfAny[tuple[float, float] | None] = None  # None: published without labels


AnyProfile = TypeVar("AnyProfile", bound="Wording | ProgramProfile | TextProfile", covariant=True)


@dataclass(frozen=True, slots=True)
class Task(Generic[AnyProfile]):
    """A benchmark: its data, its rules and its main metric."""

    name: str  # "core/arc_easy"
    kind: str  # a key of KINDS in evaluation/task_kinds
    profile: AnyProfile
    file: DataFile
    baselines: Mapping[str, float | None]  # "random", "human"; shares of 1
    # (JSON object, row) -> example; ValueError on bad content
    parse: Callable[[JsonObject, int], AnyExample]
    citation: str
    section: str | None = None  # the heading under which the suite counts it
    # the suite's own order and few-shot examples; None: the profile's
    arrange: "Arrange | None" = None
    main: str = "accuracy"  # the metric that composites take
    answered: "Answering | None" = None  # if the profile has numbers over all examples
    turn_prompt: "TurnPrompt | None" = None  # of dialogues: the context of the last turn
    human: tuple[HumanBaseline, ...] = ()
    chance: "Chance | None" = None  # baselines that depend on the examples
    clusters: str | None = None  # what dependent examples share; None: examples are independent
    # published models' accuracy, only displayed
    reference: Mapping[str, float] = field(default_factory=dict)
    # examples of another file; None: the task's own
    shots_from: "Callable[[], list[AnyExample]] | None" = None
    # Reads a file of several tasks, or several files, by the suite's folder; None: `parse` reads
    # each line of `file`.
    examples: "Callable[[Path], list[AnyExample]] | None" = None
    licence: str = ""  # of the data; "": not known here
    # further files that its prompts depend on: the data's hash covers them
    made_of: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Cloze:
    """A prefix and its true continuation, the target."""

    row: int  # line in the data file, from 0
    name: str  # the item's name, else its row
    prefix: str
    target: str
    category: str
    distractors: tuple[str, ...] = ()  # other continuations, all wrong
    clean_prefix: str | None = None  # the prefix before noise was added
    operator: str | None = None  # the noise
    num_edits: int = 0


@dataclass(frozen=True, slots=True)
class ClozeProfile:
    """Every rule that makes and scores cloze requests; results print all of them."""

    num_fewshot: int = 0
    # tokens of a request without --max_length; None: the model's limit
    max_length: int | None = None
    # the card's target: what follows len(tokenizer(prefix)) tokens
    card: Literal["token_counts"] = "token_counts"
    # as_tokenizer: special tokens as the tokenizer adds them
    bos: Literal["as_tokenizer", "never"] = "as_tokenizer"
    # joint: prefix and target are tokenized as one text; context_kept as in `Wording`
    boundary: Literal["joint", "context_kept"] = "joint"
    # healed: tokens that end in the target, less log p of their part of the prefix; after_prompt:
    # those behind the prefix's
    span: Literal["healed", "after_prompt"] = "healed"
    # as in `Wording`: the prefix is the user's turn, and the target begins the assistant's
    chat: Literal["", "turns", "one_turn"] = field(default="", metadata=LEFT_OUT)
    # of pmi: the declared BOS, else <|bos|>, else <|endoftext|>
    empty_prefix: Literal["bos"] = "bos"
    # tokenizations of a target in the marginal, the canonical one included
    num_segmentations: int = 8
    decoding: Rule[Callable[[], Mapping[str, float]]] = GREEDY
    extra_tokens: int = 8  # tokens that a completion may have beyond its target
    stop: str = "\n"


@dataclass(frozen=True, slots=True)
class ClozeTask:
    """A benchmark of cloze items in categories."""

    name: str  # "miron/en"
    profile: ClozeProfile
    file: DataFile | None  # None: the items are generated
    # (file, items of each category to generate) -> all items
    read: Callable[[Path | None, int], list[Cloze]]
    citation: str
    rows: int | None = None  # of each category, as published; None: not published
    kind: str = "cloze"
    main: str = "greedy_exact"  # of all items; its mean over categories enters composites
    section: str | None = None
    baselines: Mapping[str, float | None] = field(
        default_factory=lambda: {"random": None, "human": None}
    )
    made_of: tuple[Path, ...] = ()  # as of a Task


PromptedTask = Task[Any]  # of any profile
AnyTask = PromptedTask | ClozeTask
# A task's `kind`, as results have it -> the word that people read and write, where it is another
# one.
KIND_WORDS = {"multiple_choice": "choice", "language_modeling": "continuation", "code": "program"}


def kind_word(task: AnyTask) -> str:
    return KIND_WORDS.get(task.kind, task.kind)


OfSuite = TypeVar("OfSuite", bound=AnyTask, covariant=True)


@dataclass(frozen=True, slots=True)
class Suite(Generic[OfSuite]):
    name: str
    tasks: tuple[OfSuite, ...]  # in published order
    composites: Callable[[Mapping[str, "Measured"]], Mapping[str, "Composite"]]  # by task name
    # (--data_dir or None, may fetch) -> folder; InputError says how to get it.
    locate: Callable[[Path | None, bool], Path]
    # another suite that reads the same files: its --data_dir counts for this one too
    files_of: str = ""

    def named_folder(self, data_dir: Sequence[tuple[str, str]]) -> Path | None:
        """The --data_dir for this suite; a pair that names it precedes a plain folder, whose suite
        is ""."""
        folders = dict(data_dir)
        named = next(
            (folders[name] for name in (self.name, self.files_of, "") if name in folders), None
        )
        return None if named is None else Path(named)


class Measured(NamedTuple):
    """A task's scores as a composite takes them."""

    main: float | None  # its main metric; None: it must not count
    num_examples: int
    # if several metrics have composites; empty: it must not count
    means: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Composite:
    """One number over many tasks.  Its standard error follows from `weights`, its derivatives by
    each task's metric."""

    value: float | None  # null while a task is missing
    complete: bool
    missing: tuple[str, ...]  # names of tasks that have no score
    weights: Mapping[str, float]  # d value / d metric, by task name
    metric: str = ""  # "": each task's main one


class About(NamedTuple):
    """What a benchmark tests, for `miron-jax tasks`."""

    name: str  # without its suite
    year: int | None  # None: unknown
    asks: str
    licence: str  # of its data, as the source's pages say
