"""Samples -> compressed chunks, which the page inflates as they are seen.

Arrives: `Run`s.  Leaves: an index of tasks, and chunks in base64.  It deliberately does not know
what a metric means.
"""

from collections.abc import Sequence
from typing import NamedTuple

from miron_jax.errors import printable
from miron_jax.files.readers import Json, JsonObject
from miron_jax.report.html.chunks import CHUNK, Chunk, compressed
from miron_jax.report.html.prompts import FIRST, MOST, DataDir, DataOfPage, Prompts, Shared
from miron_jax.results.run_folder import Run

CHUNK_OF_TEXTS = 100
MAX_GROUPS = 100  # categories that the page offers to choose from


class Examples(NamedTuple):
    # `tasks`: of each its name, its groups, and for each run what `_of_run` returns; `texts` that
    # stand before questions: where their chunks begin; `reasons` why prompts are not whole.
    index: JsonObject
    chunks: list[str]  # JSON, gzip, base64


def examples_of(runs: Sequence[Run], data_dir: DataDir = ()) -> Examples:
    """Every example of every task, by task and run.  `data_dir`: where the data for whole prompts
    lie now.  Raises InputError."""
    chunks: list[str] = []
    tasks: list[Json] = []
    shared = Shared({}, {})
    data = DataOfPage(data_dir)
    room = MOST
    due = sum(_num_held(run, name) for run in runs for name in run.tasks)
    for name in dict.fromkeys(name for run in runs for name in run.tasks):
        asked = dict[int, str]()  # digest of each example's prompt, in the first run that has it
        groups = dict[str, None]()
        scored = [run for run in runs if name in run.tasks]
        of_runs = list[Json]()
        for run in scored:
            count = _num_held(run, name)
            share = room * count // due
            prompts = Prompts.of(run, name, share, data)
            of_runs.append(_of_run(run, name, asked, groups, chunks, prompts, shared))
            room -= share - max(0, prompts.room)
            due -= count
        offered: list[Json] = []
        if 1 < len(groups) <= MAX_GROUPS:
            offered += groups
        tasks.append({"name": printable(name), "groups": offered, "runs": of_runs})
    texts = {"first": len(chunks), "size": CHUNK_OF_TEXTS}
    before = [*shared.texts]
    for start in range(0, len(before), CHUNK_OF_TEXTS):
        chunks.append(compressed(before[start : start + CHUNK_OF_TEXTS]))
    reasons: list[Json] = [*map(printable, shared.reasons)]
    return Examples({"tasks": tasks, "texts": texts, "reasons": reasons}, chunks)


def _num_held(run: Run, name: str) -> int:
    """Examples whose whole prompts the page may have."""
    task = run.tasks[name]
    return max(1, min(FIRST, task.n + task.skipped))


def _of_run(
    run: Run,
    name: str,
    asked: dict[int, str],
    groups: dict[str, None],
    chunks: list[str],
    prompts: Prompts,
    shared: Shared,
) -> JsonObject:
    """Appends the chunks of a task's examples.  Returns where they stand, their ids (None: from 0
    on), and a mark for each: 1 right, 0 wrong, - neither."""
    ids: list[int] = []
    marks: list[str] = []
    first = len(chunks)
    chunk = Chunk()
    for example in run.examples(name):
        ids.append(example.id)
        marks.append("-" if example.correct is None else str(int(example.correct)))
        is_same = asked.setdefault(example.id, example.digest) == example.digest
        group = printable(getattr(example.asked, "category", None) or "")
        if group:
            groups[group] = None
        chunk.add(example, prompts.shown(example, shared), group, is_same)
        if len(chunk.shown) == CHUNK:
            chunks.append(chunk.text())
            chunk = Chunk()
    if chunk.shown:
        chunks.append(chunk.text())
    is_counted = ids == [*range(len(ids))]
    return {
        "label": printable(run.label),
        "first": first,
        "size": CHUNK,
        "ids": None if is_counted else ids,
        "marks": "".join(marks),
    }
