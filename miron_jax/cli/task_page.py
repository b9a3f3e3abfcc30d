"""What a task is, as `miron-jax tasks --describe` prints it: rules, one example with its tokens,
baselines, what to look at.

Arrives: a task's name, the run's configuration.  Leaves: lines.  It deliberately loads no weights.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from miron_jax.cli.chosen_examples import CLOSE, OPEN, chosen_examples
from miron_jax.config import RunConfig
from miron_jax.definitions.records import kind_word
from miron_jax.definitions.rules import printed
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run_tasks import RunTasks
from miron_jax.evaluation.task_kinds.interface import TaskKind
from miron_jax.files.places import public
from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model
from miron_jax.prompting.prompts import Prompt
from miron_jax.report.tables.tasks import licence_of
from miron_jax.tasks.about import about
from miron_jax.tokens.tokenizers import Tokenizer

MOST_CHARS = 4000  # of a prompt that is shown


def describe(config: RunConfig) -> Iterator[str]:
    """Each task of the configuration.  Raises InputError."""
    inputs = find_inputs(config, runs=False)
    architecture = architecture_of(config, find_model(config, weights=False))
    for kind in RunTasks.of(config, inputs, architecture).kinds:
        yield from _task(kind, architecture.tokenizer)


def _task(kind: TaskKind, tokenizer: Tokenizer) -> Iterator[str]:
    source = kind.source
    task = kind.source.task
    size = f"{len(source.examples)} examples"
    yield f"{task.name}: {kind_word(task)}, {size}, main metric {task.main}"
    file = "made by this program" if task.file is None else public(task.file.path)
    yield f"data: {file} ({source.data.state}, {source.data.git_blob_sha1 or 'no hash'})"
    yield f"licence of the data: {licence_of(task, about)}"
    yield f"cite: {task.citation or 'nothing is stated'}"
    baselines = {name: value for name, value in task.baselines.items() if value is not None}
    shown = ", ".join(f"{name} {value:.3f}" for name, value in baselines.items())
    yield f"baselines: {shown or 'none'}"
    for human in getattr(task, "human", ()):
        yield f"human: {human.metric} {human.value} ({human.published})"
    yield "rules:"
    for name, value in printed(task.profile).items():
        yield f"    {name}: {value!r}"
    yield from _duplicates(source.examples)
    yield from _lengths(kind)
    if kind.setup.config.rows is not None:
        yield from chosen_examples(kind)
    else:
        yield from _example(kind, tokenizer)


def _duplicates(examples: Sequence[Any]) -> Iterator[str]:
    same = Counter(map(_asked, examples))
    repeated = sum(count - 1 for count in same.values())
    yield f"repeated examples: {repeated} of {len(examples)} are there before"


def _asked(example: Any) -> str:
    names = {"row": 0, "doc_id": "", "name": ""}  # of the example, not what it asks
    known = {key: value for key, value in names.items() if hasattr(example, key)}
    return repr(replace(example, **known))


def _lengths(kind: TaskKind) -> Iterator[str]:
    trained = kind.setup.trained_length
    longest = 0
    beyond = 0
    truncated = 0
    total = 0
    for _, requests in kind.pieces():
        lengths = np.diff(requests.offsets)
        longest = max(longest, int(lengths.max(initial=0)))
        total += len(requests)
        beyond = beyond + int((lengths - 1 > trained).sum())
        truncated = truncated + int(requests.truncated.sum())
    known = ""
    if trained < 1 << 31:
        known = f"; {beyond} are longer than the {trained} tokens of the model's training"
    if total:
        cut = f"{truncated} are cut to the limit{known}"
        yield f"requests: {total}, the longest of {longest} tokens; {cut}"


def _example(kind: TaskKind, tokenizer: Tokenizer) -> Iterator[str]:
    """The first example as the model reads it; the scored span of each request stands in ⟦ ⟧,
    tokens are divided by |."""
    first = next(kind.pieces(), None)
    if first is None:
        prompt = next(_prompts(kind), None)
        if prompt is not None:
            yield "first prompt, which the model completes:"
            yield _shortened(prompt).replace("\n", "\\n")
        return
    examples, requests = first
    count = min(1, len(requests))
    if isinstance(example := next(iter(examples)), Prompt):
        count = len(example.contexts)
    yield f"first example, as tokens (the scored span in {OPEN} {CLOSE}):"
    for r in range(count):
        ids = requests.tokens(r)
        start = int(requests.span_start[r])
        pieces = [tokenizer.decode([token]).replace("\n", "\\n") for token in ids.tolist()]
        before = "|".join(pieces[:start])
        scored = "|".join(pieces[start:])
        right = " (right)" if isinstance(example, Prompt) and example.gold == r else ""
        yield f"  request {r}{right}: {_shortened(before)}|{OPEN}{scored}{CLOSE}"


def _prompts(kind: TaskKind) -> Iterator[str]:
    """Prompts of completions."""
    if not kind.runs_programs:
        kind.prepare()
    requests = getattr(kind, "requests", None)
    if requests is not None:
        yield from map(kind.setup.tokenizer.decode, map(list, requests.prompts))
    else:
        for example in kind.source.examples:
            if hasattr(example, "prompt"):
                yield example.prompt


def _shortened(text: str) -> str:
    if len(text) <= MOST_CHARS:
        return text
    return f"{text[: MOST_CHARS // 2]} ... {text[-MOST_CHARS // 2 :]}"
