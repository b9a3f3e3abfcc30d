"""A task of a user's own in a few words: its keys and its records."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Task
from miron_jax.prompting.prompts import Prompt, render, without_shots
from miron_jax.results.run_folder import Run, read_runs
from miron_jax.tasks.own_tasks.yaml_task import read_suite
from tests.support.run_folders import samples_of, write_run

CHOICE = "task: x\ndata: x.jsonl\nquestion: q\nchoices: c\ngold: a\nitem_order: file\n"
TEXT = "task: x\nkind: generation\ndata: x.jsonl\nquestion: q\nanswer: a\n"


def read_task(folder: Path, keys: str, records: list[Any] | str, data: str = "x.jsonl") -> tuple[Task[Any], list[Any]]:
    """The task and its examples; `records`: rows, or the text of the file `data`."""
    text = records if isinstance(records, str) else "".join(json.dumps(row) + "\n" for row in records)
    (folder / data).write_text(text, newline="")
    (folder / "x.yaml").write_text(keys.replace("x.jsonl", data, 1))
    [task] = read_suite([str(folder / "x.yaml")]).tasks
    return task, read_examples(task, folder)


def prompts_of(folder: Path, keys: str, records: list[Any], limit: int | None = None) -> list[Prompt]:
    return render(*read_task(folder, keys, records), limit)


def rows(*answers: Any, **more: Any) -> list[dict[str, Any]]:
    """Questions q0, q1, ... with these right answers."""
    return [{"q": f"q{i}", "a": answer, **more} for i, answer in enumerate(answers)]


def run_of(folder: Path, prompts: Sequence[Prompt], more: Any = (), **columns: Any) -> Run:
    """A run that asked these prompts of the own task in the folder.  `more`: of its profile; `columns`: of samples."""
    kept = [*map(without_shots, prompts)]
    columns = {"prompt": [each.tail for each in kept], "prompt_sha256": [each.digest for each in kept], **columns}
    config = {"model": "demo", "tasks": ["own/x"], "task_path": [str(folder / "x.yaml")]}
    of_task = {"profile": {"num_fewshot": 2, **dict(more)}}
    samples = {"own/x": samples_of([1] * len(kept), **columns)}
    return read_runs([str(write_run(folder / "run", samples, of_task=of_task, config=config))])[0]
