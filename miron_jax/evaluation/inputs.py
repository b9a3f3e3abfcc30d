"""The tasks that a run scores: suites are selected, data files read; without data, skipped.

Arrives: a validated RunConfig.  Leaves: `Inputs`, checked before any weight is loaded.  It
deliberately does not know models.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import data_state, git_blob_sha1
from miron_jax.definitions.records import AnyTask, Suite, Task, kind_word
from miron_jax.errors import InputError
from miron_jax.evaluation.records import Inputs, Selected
from miron_jax.evaluation.task_kinds.interface import LoadedTask
from miron_jax.evaluation.task_kinds.kinds import kind_of
from miron_jax.evaluation.task_kinds.prompted import PromptedKind
from miron_jax.files.places import public
from miron_jax.files.regular import read_regular
from miron_jax.humans.task_labels import check_folder, file_of, read_labels
from miron_jax.model import demo
from miron_jax.model.checkpoints.training_run import Checkpoint
from miron_jax.prompting.prompts import check_shots, draws_by_limit
from miron_jax.runtime.timeline import spent_on
from miron_jax.tasks import expert, registry, text
from miron_jax.tasks.chats import with_chat_template
from miron_jax.tasks.shots import with_num_fewshot

# of --num_fewshot and --chat_template
_HOW_ASKED = re.compile(r"(/[0-9]+-shot)?(/chat(-one-turn)?)?$")


def select_tasks(config: RunConfig) -> Selected:
    """The tasks that --tasks names.  Raises InputError."""
    of_user = (config.icl_tasks, config.eval_gauntlet, config.task_path or (), config.requests)
    texts = _folder_of(text.NAME, config)
    solutions = _folder_of(expert.NAME, config)
    if solutions is not None and not config.token_stats:
        raise InputError(
            f"--tasks={expert.NAME} is scored by the statistics of tokens: add --token_stats"
        )
    if config.special_tokens and texts is None:
        raise InputError(
            f"--special_tokens={config.special_tokens} is of --tasks=text alone, whose documents "
            "are your own: leave it out, or write special_tokens into the YAML file of a task of "
            "your own"
        )
    for name in ("stride", "save_byte_losses"):
        if getattr(config, name) and texts is None:
            raise InputError(
                f"--{name} is of --tasks=text alone: leave it out, or name tasks of text in --tasks"
            )
    of_texts = texts, config.stride, config.special_tokens or "control"
    all_suites = registry.suites(*of_user, *of_texts, solutions)
    selection = registry.select(",".join(config.tasks), all_suites)
    names = {task.name for task in selection.tasks}
    suites = [
        suite for suite in all_suites.values() if any(task.name in names for task in suite.tasks)
    ]
    if config.num_fewshot is None and config.chat_template is None:
        return Selected(suites, names, set(selection.by_name))
    tasks = selection.tasks
    if config.num_fewshot is not None:
        tasks = [with_num_fewshot(task, config.num_fewshot) for task in tasks]
    if config.chat_template is not None:
        tasks = _as_chats(tasks, config)
    changed = {task.name: other for task, other in zip(selection.tasks, tasks, strict=True)}
    names = {task.name for task in tasks}
    if len(names) < len(changed):
        raise InputError(
            f"--num_fewshot={config.num_fewshot} makes one task of several: name one of "
            f"{', '.join(changed)} in --tasks"
        )
    for i, suite in enumerate(suites):
        # a task that bears the new name of a changed one makes room for it
        tasks = {task.name: task for task in suite.tasks if task.name not in names - changed.keys()}
        suites[i] = replace(suite, tasks=tuple((tasks | changed)[name] for name in tasks))
    return Selected(suites, names, {changed[name].name for name in selection.by_name})


def in_chats(inputs: Inputs, config: RunConfig) -> Inputs:
    """Tasks that `select_tasks` has not selected, by the chat template if the run has one.  Raises
    InputError."""
    if config.chat_template is None:
        return inputs
    chats = dict[str, AnyTask]()
    sources = list[LoadedTask]()
    for source in inputs.sources:
        [task] = _as_chats([source.task], config)
        chats[source.task.name] = task
        sources.append(source._replace(task=task))
    suites = list[Suite[AnyTask]]()
    for suite in inputs.suites:
        tasks = tuple(chats.get(task.name, task) for task in suite.tasks)
        suites.append(replace(suite, tasks=tasks))
    by_name = [source.task.name for source in sources]
    return inputs._replace(sources=sources, suites=suites, by_name=by_name)


def _as_chats(tasks: Sequence[AnyTask], config: RunConfig) -> list[AnyTask]:
    assert config.chat_template is not None
    if config.generated or config.controls:
        raise InputError(
            "--chat_template makes the prompts of a model that is here, and --controls changes "
            "plain ones: leave out --generated and --controls"
        )
    return with_chat_template(tasks, config.chat_template)


def why_not_grown(config: RunConfig, before: int) -> str | None:
    """Why a run cannot go on from one whose --limit was smaller, `before`; None: it can."""
    if config.is_sampled:
        return "--until and --budget choose examples in an order that --limit changes"
    for task in select_tasks(config).tasks:
        if draws_by_limit(task, before, config.limit):
            return f"{task.name} draws its shots from what --limit leaves, so all prompts change"
    return None


@spent_on("load")
def find_inputs(
    config: RunConfig, fetch: bool = True, runs: bool = True, selected: Selected | None = None
) -> Inputs:
    """Find and read the data of every selected task.

    `fetch`: download absent files.  `runs`: False if the run is only planned.  `selected`: what
    `select_tasks` gave.  A task without a file is left out if its suite was selected; raises
    InputError if the task itself was, or if no task is left.
    """
    suites, names, by_name = selected or select_tasks(config)
    sources = []
    missing = {}
    for suite in suites:
        folder = suite.locate(suite.named_folder(config.data_dir), fetch)
        for task in suite.tasks:
            if task.name not in names:
                continue
            if config.rows is not None and not kind_of(task).takes_rows:
                raise InputError(
                    f"--rows: {task.name} has no single examples with a prompt of their own, "
                    "expected tasks of choices, continuations or completions: leave it out of "
                    "--tasks"
                )
            data = data_state(task, folder)
            if data.state == "missing" and task.name not in by_name:
                assert task.file is not None
                missing[task.name] = str(task.file.below(folder))
            else:
                examples = kind_of(task).load(task, folder, config, runs)
                if config.num_fewshot is not None and isinstance(task, Task):
                    check_shots(task, examples, config.limit, all_of_them=True)
                again = None
                if getattr(task, "arrange", None) is not None:
                    again = partial(kind_of(task).load, folder=folder, config=config, runs=runs)
                sources.append(LoadedTask(task, examples, data, arranged=again))
    if not sources:
        raise InputError(
            f"none of the tasks asked for has its data file: {next(iter(missing.values()))} and "
            "others"
        )
    return with_labels(config, Inputs(sources, missing, suites, by_name))


def with_labels(config: RunConfig, inputs: Inputs) -> Inputs:
    """With people's answers of --human_labels, whose files may leave out the parts of a task's name
    that say how its prompts are made.  Raises InputError."""
    if config.human_labels is None:
        return inputs
    folder = Path(config.human_labels)
    names = dict[str, bool]()  # of all tasks of the suites -> whether this run has it
    ran = {source.task.name for source in inputs.sources}
    for suite in inputs.suites:
        for task in suite.tasks:
            for name in (_HOW_ASKED.sub("", task.name), task.name):
                names[name] = names.get(name, False) or task.name in ran
    check_folder(folder, names)
    sources = list[LoadedTask]()
    for source in inputs.sources:
        task = source.task
        kind = kind_of(task)
        file = file_of(folder, task.name) or file_of(folder, _HOW_ASKED.sub("", task.name))
        if file is None:
            sources.append(source)
            continue
        if not issubclass(kind, PromptedKind):
            raise InputError(
                f"{file}: {task.name} is a {kind_word(task)} task, whose score is no mean over "
                "answers that people can give, expected labels of choices, continuations or "
                "completions: remove the file"
            )
        label_of = partial(kind.label_of, task)
        labels = read_labels(file, task.name, source.examples, label_of, config.human_baseline)
        data = source.data._replace(labels=git_blob_sha1(read_regular(file)))
        sources.append(source._replace(labels=labels, data=data))
    return inputs._replace(sources=sources)


def _folder_of(suite: str, config: RunConfig) -> Path | None:
    """The folder of a suite of the user's own files, if tasks of it are selected."""
    if not any(name.partition("/")[0] == suite for name in config.tasks):
        return None
    return registry.SUITES[suite].named_folder(config.data_dir)


def unverified(config: RunConfig, inputs: Inputs, checkpoint: Checkpoint) -> list[str]:
    """Inputs without a published checksum, in which a changed bit may go unnoticed."""
    lines = []
    if config.generated:
        lines.append(f"completions: {public(config.generated)}")
    elif config.model != demo.NAME:
        if checkpoint.folder:
            lines.append(f"weights: {public(str(checkpoint.folder))}")
        lines.append(f"configuration and tokenizer: {public(config.tokenizer or config.model)}")
    for source in inputs.sources:
        if source.data.state not in ("as published", "generated"):
            lines.append(f"{source.task.name}: {source.data.state}")
    return lines
