"""A task of a user's own in a few words: its keys and its records."""

import json
from pathlib import Path
from typing import Any

from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Task
from miron_jax.prompting.prompts import Prompt, render
from miron_jax.tasks.own_tasks.yaml_task import read_suite

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
