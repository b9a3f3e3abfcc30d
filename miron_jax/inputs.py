"""Which tasks a run scores: the suites asked for, their data found and read.

Arrives: a validated RunConfig.  Leaves: `Inputs`, checked before any weight is loaded.  It deliberately does not know
models.
"""

from collections import Counter
from pathlib import Path

from miron_jax import demo
from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.evaluation.records import (
    AnswerSource,
    ClozeSource,
    Inputs,
    ProgramSource,
    Source,
)
from miron_jax.files.places import public
from miron_jax.model.training_run import Checkpoint
from miron_jax.task_kinds.data_files import data_state, read_examples
from miron_jax.task_kinds.records import AnswerTask, AnyTask, Cloze, ClozeTask, ProgramTask
from miron_jax.tasks import registry


def find_inputs(config: RunConfig, fetch: bool = True, runs: bool = True) -> Inputs:
    """Find and read the data of every task asked for; what is absent is fetched.  A suite goes on without a file; a task
    asked for by name does not."""
    every = registry.suites(config.icl_tasks, config.eval_gauntlet)
    selection = registry.select(",".join(config.tasks), every)
    names = {task.name for task in selection.tasks}
    suites = [suite for suite in every.values() if any(task.name in names for task in suite.tasks)]
    sources, missing = [], {}
    for suite in suites:
        folder = suite.locate(suite.named_folder(config.data_dir), fetch)
        for task in (task for task in suite.tasks if task.name in names):
            data = data_state(task, folder)
            if data.state == "missing" and task.name not in selection.by_name:
                missing[task.name] = task_file(task, folder)
            elif isinstance(task, ClozeTask):
                items = task.read(folder, config.items_per_category)
                sources.append(ClozeSource(task, _first_of_each(items, config.limit), data))
            elif isinstance(task, ProgramTask):
                if runs:
                    _check_allowed(task, config)
                sources.append(ProgramSource(task, read_examples(task, folder, config.allow_changed_data), data))
            elif isinstance(task, AnswerTask):
                sources.append(AnswerSource(task, read_examples(task, folder, config.allow_changed_data), data))
            else:
                sources.append(Source(task, read_examples(task, folder, config.allow_changed_data), data))
    if not sources:
        raise InputError(f"none of the tasks asked for has its data file: {next(iter(missing.values()))} and others")
    return Inputs(sources, missing, suites)


def _check_allowed(task: ProgramTask, config: RunConfig) -> None:
    if not config.allow_code_execution:
        raise InputError(
            f"{task.name} runs programs that the model writes: add --allow_code_execution to run them in a sandbox, or "
            "leave the task out"
        )


def _first_of_each(items: list[Cloze], limit: int | None) -> list[Cloze]:
    """The first `limit` items of each category, in file order."""
    met: Counter[str] = Counter()
    chosen = []
    for item in items:
        met[item.category] += 1
        if limit is None or met[item.category] <= limit:
            chosen.append(item)
    return chosen


def task_file(task: AnyTask, folder: Path) -> Path:
    assert task.file is not None
    return folder / task.file if isinstance(task, ClozeTask) else task.file.below(folder)


def unverified(config: RunConfig, inputs: Inputs, checkpoint: Checkpoint) -> list[str]:
    """Inputs that nothing was checked against: a flipped bit in them goes unnoticed, unless it breaks their form."""
    found = []
    if config.model != demo.NAME:
        found += [f"weights: {public(str(checkpoint.folder))}"] if checkpoint.folder else []
        found.append(f"configuration and tokenizer: {public(config.tokenizer or config.model)}")
    for source in inputs.sources:
        if source.data.state not in ("as published", "generated"):
            found.append(f"{source.task.name}: {source.data.state}")
    return found
