"""The Gauntlet with its known faults mended, beside the exact one and under other names.

Arrives: an entry of the table.  Leaves: `fixed_task`.  It deliberately does not know averages.

    fault of v0.1.0                            here
    gold stands in one place too often         choices permuted by row, where a file's counts say so
    an answer is right if it *begins* right    its first line is the accepted one, normalized
    1,024 tokens cut the prompts               2,048

Whether gold leans is read from the whole file, never from a task's name: some place holds it more
often than an even share of the rows and LEAN standard deviations.

    bigbench_novel_concepts  32 rows of 4 choices, gold first in 32    8 + 4 * sqrt(32 * 1/4 * 3/4)
                             = 17.8 < 32: it leans
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from re import compile as pattern

from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Example, PromptedTask
from miron_jax.definitions.rules import Rule
from miron_jax.metrics.answers import NORMALIZED, Normalize, normalize_gauntlet
from miron_jax.tasks.gauntlet.icl_task import IclTask, task_of

NAME = "gauntlet-fixed"
MAX_LENGTH = 2048
LEAN = 4  # standard deviations; chance passes it in one of some 10,000 files
STOP = ("\n\n", "Q:")  # after reasoning, which has line feeds; as gauntlet-cot-fix
LETTERS = "ABCDEFGHIJ"
_MARKS = ("\n{}. ", "\n{}.) ", "\n{}) ", "({}) ")  # before an option that a query lists
# An option that points at others ("all of the above", "both A and B") has to stay where it is.
_POINTS = pattern(r"\b(?:above|below|preceding|following|[B-J]|[Oo]nly A|A only)\b")


def normalize_first_line(text: str) -> str:
    """`normalize_gauntlet` of the first line that is not blank: few-shot answers are one line."""
    return normalize_gauntlet(text.strip().partition("\n")[0])


FIRST_LINE: Rule[Normalize] = Rule("gauntlet_first_line", normalize_first_line)


def fixed_task(entry: IclTask, category: str) -> PromptedTask:
    """The task gauntlet-fixed/LABEL."""
    stop = STOP if entry.answer_after else ("\n",)
    task = task_of(entry, f"{NAME}/{entry.label}", category, stop)
    profile = replace(task.profile, protocol=NAME, max_length=MAX_LENGTH)
    if entry.kind == "generation":
        profile = replace(profile, answer_normalizer=FIRST_LINE, match=NORMALIZED)
    task = replace(task, profile=profile)
    if entry.kind != "multiple_choice":
        return task
    profile = replace(profile, choice_order="permuted_where_gold_leans")
    return replace(task, profile=profile, examples=partial(_read, task, entry.label))


def _read(task: PromptedTask, label: str, folder: Path) -> list[Example]:
    examples: list[Example] = read_examples(task, folder, allow_changed=True)  # checked before
    if not leans(examples):
        return examples
    return [*map(partial(permuted, label), examples)]


def leans(examples: Sequence[Example]) -> bool:
    """Whether gold stands in some place too often for chance: see the module's text."""
    places = list[int]()
    even = dict[int, float]()  # place -> rows that would have gold there
    variance = dict[int, float]()
    for example in examples:
        places.append(example.gold or 0)
        share = 1 / len(example.continuations)
        for place in range(len(example.continuations)):
            even[place] = even.get(place, 0.0) + share
            variance[place] = variance.get(place, 0.0) + share * (1 - share)
    return any(
        places.count(place) > even[place] + LEAN * math.sqrt(variance[place]) for place in even
    )


def permuted(label: str, example: Example) -> Example:
    """The example with its choices in an order that hangs on the task's label and the row alone.

    Choices that are letters stay; the options that the query lists under them change places.  The
    example stays as it is where these cannot be told apart, or where one points at others.
    """
    choices = example.continuations
    [query] = example.contexts
    order = sorted(range(len(choices)), key=partial(_key, label, example.row))
    listed = options_of(query, len(choices))
    options = [query[span] for span in listed]
    is_lettered = "".join(choices) == LETTERS[: len(choices)]
    if (is_lettered and not listed) or any(map(_POINTS.search, options)):
        return example
    if is_lettered or options == [*map(str.strip, choices)]:
        query = _with_options(query, listed, [options[i] for i in order])
    if not is_lettered:
        choices = tuple(choices[i] for i in order)
    gold = order.index(example.gold or 0)
    return replace(example, contexts=(query,), continuations=choices, gold=gold)


def _key(label: str, row: int, place: int) -> bytes:
    return sha256(f"{label} {row} {place}".encode()).digest()


def options_of(query: str, num: int) -> list[slice]:
    """Where the `num` options that a query lists by letters stand, each on one line; []: they
    cannot be told apart, as one of the letters' marks stands there twice, or not at all."""
    for mark in _MARKS:
        marks = [*map(mark.format, LETTERS[:num])]
        if any(query.count(each) != 1 for each in marks):
            continue
        starts = [query.index(each) for each in marks]
        last = query.find("\n", starts[-1] + len(marks[-1]))
        ends = [*starts[1:], len(query) if last < 0 else last]
        spans = list[slice]()
        for start, end in zip(starts, ends, strict=True):
            text = query[start + len(marks[0]) : end]
            if text.strip() and "\n" not in text.strip():
                first = end - len(text.lstrip())
                spans.append(slice(first, first + len(text.strip())))
        if len(spans) == num:
            return spans
    return []


def _with_options(query: str, spans: Sequence[slice], options: Sequence[str]) -> str:
    parts = list[str]()
    end = 0
    for span, option in zip(spans, options, strict=True):
        parts += [query[end : span.start], option]
        end = span.stop
    return "".join([*parts, query[end:]])
