"""What a benchmark is: where its examples come from, how they are worded, which rules score them.

Arrives: a folder of data files.  Leaves: the records `Task` and `Suite` that files in tasks/ fill in, and the `Example`s
read for them.  It deliberately does not know few-shot draws, tokenizers, models or devices.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from miron_jax.errors import InputError

Kind = Literal["multiple_choice", "schema", "language_modeling"]


@dataclass(frozen=True, slots=True)
class Example:
    """One line of a data file.  Either side may be a single text that all options share."""

    row: int  # line in the data file, from 0
    contexts: tuple[str, ...]  # one, or one an option (schema)
    continuations: tuple[str, ...]  # one, or one an option (multiple choice)
    gold: int  # index of the right option; 0 where there is one option


@dataclass(frozen=True, slots=True)
class Profile:
    """Every rule that can move a score, printed whole in the result.

    A field of one possible value names a rule that all suites share so far; the stage that a second value would change
    is where it will be read.
    """

    num_fewshot: int  # worked examples before each question
    delimiter: str  # between a context and its continuation
    shot_separator: str  # after each worked example
    strip_context: bool  # contexts lose white space at both ends
    item_order: Literal["shuffle_1337"]  # random.Random(1337).shuffle of the file's lines, before any limit
    fewshot_draw: Literal["per_item_1234"]  # random.Random(1234 + place).sample over the others, drawn order kept
    fewshot_pool: Literal["limited_items"]  # the pool is what --limit leaves, at least num_fewshot + 1 items
    bos: Literal["always"]  # one BOS: the declared bos_token, else <|bos|>, else <|endoftext|>, else an error
    boundary: Literal["joint"]  # context and continuation are tokenized as one text
    span: Literal["after_common_prefix", "common_suffix", "after_stripped_context"]  # which tokens are scored
    truncation: Literal["keep_last"]  # the last max_length tokens stay; BOS and early shots go first
    normalizer: Literal["mean"]  # options are compared by mean log-probability a token, float32
    tie: Literal["first"]  # equal options: the first wins
    empty_span: Literal["nan_first_wins"]  # no scored token: NaN, which wins in first place and loses elsewhere


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file as published; its hash decides whether a score may bear the suite's name."""

    path: str  # below the suite's data folder
    rows: int
    git_blob_sha1: str  # as `git hash-object` prints it


@dataclass(frozen=True, slots=True)
class Task:
    name: str  # "core/arc_easy"
    kind: Kind
    profile: Profile
    file: DataFile
    baselines: Mapping[str, float | None]  # "random", "human"; shares of 1
    parse: Callable[[dict[str, Any], int], Example]  # one JSON object and its row -> Example; ValueError on bad content
    citation: str


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
    card: Literal["token_counts"] = "token_counts"  # the card's target: what follows len(tokenizer(prefix)) tokens
    bos: Literal["as_tokenizer"] = "as_tokenizer"  # special tokens stand before a text where the tokenizer puts them
    boundary: Literal["joint"] = "joint"  # prefix and target are tokenized as one text
    span: Literal["healed"] = "healed"  # tokens that end in the target, less log p of what they hold of the prefix
    empty_prefix: Literal["bos"] = "bos"  # of pmi: the declared BOS, else <|bos|>, else <|endoftext|>
    num_segmentations: int = 8  # tokenizations of a target that the marginal sums over, its own among them
    decoding: Literal["greedy"] = "greedy"
    extra_tokens: int = 8  # a text may have this many tokens more than its target
    stop: str = "\n"


@dataclass(frozen=True, slots=True)
class ClozeTask:
    """Items of a beginning and its continuation, in categories."""

    name: str  # "miron/en"
    profile: ClozeProfile
    file: str | None  # below the suite's data folder; None: the items are generated
    read: Callable[[Path | None, int], list[Cloze]]  # its file, items of each category to generate -> all items
    citation: str
    kind: Literal["cloze"] = "cloze"


TaskKind = TypeVar("TaskKind", bound=Task | ClozeTask, covariant=True)


@dataclass(frozen=True, slots=True)
class Suite(Generic[TaskKind]):
    name: str
    tasks: tuple[TaskKind, ...]  # in published order
    composites: Callable[[Mapping[str, float | None]], Mapping[str, "Composite"]]  # accuracies by task name
    locate: Callable[
        [Path | None, bool], Path
    ]  # --data_dir or None, may fetch -> folder; InputError says how to get it


@dataclass(frozen=True, slots=True)
class Composite:
    """One number over many tasks.  `weights` are the derivatives by each task's accuracy: they carry the standard error."""

    value: float | None  # null while a task is missing
    complete: bool
    missing: tuple[str, ...]  # names of tasks that have no score
    weights: Mapping[str, float]  # d value / d accuracy, by task name


class DataState(NamedTuple):
    """Whether a task's file is there and is the published one; only the published one may bear the suite's name."""

    state: Literal["missing", "as published", "changed", "no published hash", "generated"]
    git_blob_sha1: str | None  # of the file found


def data_state(task: Task | ClozeTask, folder: Path | None) -> DataState:
    """Compares the file under `folder` with the hash it was published under."""
    if task.file is None:
        return DataState("generated", None)
    path = (folder or Path()) / (task.file if isinstance(task, ClozeTask) else task.file.path)
    if not path.is_file():
        return DataState("missing", None)
    found = git_blob_sha1(_read_bytes(task, path))
    if isinstance(task, ClozeTask):
        return DataState("no published hash", found)
    return DataState("as published" if found == task.file.git_blob_sha1 else "changed", found)


def read_examples(task: Task, folder: Path, allow_changed: bool = False) -> list[Example]:
    """All examples of a task in file order; a file that is not as published is refused unless `allow_changed`."""
    path = folder / task.file.path
    content = _read_bytes(task, path)
    found = git_blob_sha1(content)
    if found != task.file.git_blob_sha1 and not allow_changed:
        raise InputError(
            f"{task.name}: {path} is not the published file (git blob {found}, expected {task.file.git_blob_sha1}): "
            "fetch the file again, or pass --allow_changed_data to score it without the suite's name"
        )
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()  # the newline that ends the last line
    if not lines:
        raise InputError(f"{task.name}: {path} is empty, expected {task.file.rows} lines: fetch the file again")
    return [_example(task, path, row, line) for row, line in enumerate(lines)]


def git_blob_sha1(content: bytes) -> str:
    """The name git gives these bytes, as `git hash-object` prints it."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _read_bytes(task: Task | ClozeTask, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        remedy = "point --data_dir at a folder that holds it"
        raise InputError(f"{task.name}: data file {path} is missing: {remedy}") from None
    except OSError as error:
        raise InputError(
            f"{task.name}: data file {path} cannot be read ({error.strerror}): mend or replace it"
        ) from error


def _example(task: Task, path: Path, row: int, line: bytes) -> Example:
    try:
        fields = _json_object(line)
        return task.parse(fields, row)
    except ValueError as error:
        raise InputError(
            f"{task.name}: {path}, line {row + 1}: {error}; mend the line or fetch the file again"
        ) from None


def _json_object(line: bytes) -> dict[str, Any]:
    try:
        text = line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8, expected one JSON object in UTF-8") from None
    if not text:
        raise ValueError("found a blank line, expected one JSON object")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"found no valid JSON ({error.msg} at column {error.colno}), expected one JSON object"
        ) from None
    except RecursionError:
        raise ValueError("found JSON nested too deep to read, expected one flat JSON object") from None
    if not isinstance(value, dict):
        raise ValueError(f"found a JSON {type(value).__name__}, expected one JSON object")
    return value
