"""Prompts as a page shows them: rendered again from the data, each held by its sample's digest.

Arrives: a run, the folders of --data_dir, its examples.  Leaves: what the page shows of each
prompt.  It deliberately shows no prompt of another digest, fetches no data and runs no file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.prompting.prompts import TAIL, Prompt, without_shots
from miron_jax.results.document import config_of
from miron_jax.results.run_folder import Run
from miron_jax.results.samples import AskedDocument, AskedItem, AskedPrompt, ExampleResult

if TYPE_CHECKING:
    from miron_jax.evaluation.records import Selected

DataDir = Sequence[tuple[str, str]]  # (suite, folder); suite "" stands for every suite
MOST_ITEMS = 10_000  # of a category, which results.json may name
FIRST = 300  # examples of a task whose prompts a page holds
MOST = 6_000_000  # characters of a page's prompts beyond their ends
LONGEST = 20_000  # characters of one text
ANOTHER = (
    "rendered again it is another than the one that the model read, as its data, its task or this "
    "package have changed since"
)
# A page may be shown to others, and results.json may be a stranger's: what a reader says of a file
# that it names, its path or its words, is no reason that a page gives.
NOT_READ = (
    "its task or its data are not here, or cannot be read: miron-jax report --html with "
    "--data_dir=FOLDER renders it where the data lie"
)
UNDIGESTED = "the version that wrote this run kept no digest, by which a prompt is known"
NO_ROOM = (
    f"a page holds the prompts of each task's first {FIRST:,} examples, or of fewer that make "
    f"{MOST / 1e6:.0f} million characters; miron-jax tasks --describe=TASK --rows=ROW prints it"
)


class NotRendered(Exception):
    """Why a page has no prompts of a task."""


class Shared(NamedTuple):
    """What the examples of a page refer to: texts -> their places."""

    texts: dict[str, int]  # before questions
    reasons: dict[str, int]  # why prompts are not shown whole


@dataclass
class Prompts:
    """The prompts of a task of a run."""

    by_id: Mapping[int, Prompt]
    why_not: str  # why there are none; "": there are
    has_intro: bool  # the first of their `shots` is a text before them
    num_fewshot: int  # of the task
    room: int  # characters that the page may still have of them

    @classmethod
    def of(cls, run: Run, name: str, room: int, data: "DataOfPage") -> "Prompts":
        profile = run.tasks[name].profile
        num_fewshot = profile.get("num_fewshot")
        how = (
            bool(profile.get("prompt_string")),
            num_fewshot if type(num_fewshot) is int else 0,
            room,
        )
        try:
            return cls(data.rendered(run, name), "", *how)
        except NotRendered as error:
            return cls({}, str(error), *how)
        except (InputError, OSError, ValueError):
            return cls({}, NOT_READ, *how)

    def shown(self, example: ExampleResult, shared: Shared) -> JsonObject:
        """`prompt`: what stands in the list.  `contexts`: the texts before the choices where they
        differ, or a document.  `before`: places of the texts before them, and `shots`, how many
        few-shot examples these are; `dropped`, how many the length limit left out.  `cut`: first
        characters that are left out here.  `why`: place of the reason why it is not whole."""
        end = _end(example)
        whole, why = self._whole(example, shared)
        if whole is not None:
            return whole
        is_whole = isinstance(example.asked, AskedItem) or len(end) < TAIL
        if not is_whole and self.num_fewshot:  # what it begins with is the end of a shot
            end = end.partition("\n\n")[2].lstrip("\n") or end
        if is_whole and not isinstance(example.asked, AskedDocument):
            return {"prompt": end}
        return {"prompt": end, "why": shared.reasons.setdefault(why, len(shared.reasons))}

    def _whole(self, example: ExampleResult, shared: Shared) -> tuple[JsonObject | None, str]:
        """What the page shows of a prompt that is as the model read it, or why there is none."""
        if self.why_not:
            return None, self.why_not
        prompt = self.by_id.get(example.id)
        if not example.digest:
            return None, UNDIGESTED
        if self.room <= 0 or example.id >= FIRST:
            return None, NO_ROOM
        if prompt is None:
            return None, ANOTHER
        read = _as_read(prompt, example)
        if without_shots(read).digest != example.digest:
            return None, ANOTHER
        before, contexts = _parts(read, self.num_fewshot if not prompt.shots else 0)
        kept = [text[-LONGEST:] for text in contexts]
        new = sum(len(text) for text in before if text not in shared.texts)
        self.room -= new + sum(max(0, len(text) - TAIL) for text in kept)
        if self.room <= 0:
            return None, NO_ROOM
        is_document = isinstance(example.asked, AskedDocument)
        entry: JsonObject = {"prompt": _end(example) if is_document else kept[0]}
        if is_document or len(kept) > 1:
            entry |= {"contexts": kept}
        if before:
            places = [shared.texts.setdefault(text, len(shared.texts)) for text in before]
            entry |= {"before": places}
            if read.shots:  # else a part of the context, that may hold more than examples
                entry |= {"shots": len(read.shots) - self.has_intro}
        if dropped := len(prompt.shots) - len(read.shots):
            entry |= {"dropped": dropped}
        if (cut := max(map(len, contexts)) - LONGEST) > 0:
            entry |= {"cut": cut}
        return entry, ""


class DataOfPage:
    """Prompts of every task, each rendered once for all runs that asked the same."""

    def __init__(self, data_dir: DataDir) -> None:
        self.data_dir = data_dir
        self._select = cache(_selected)  # a request set of 57 tasks is read once
        self._last = "", dict[int, Prompt]()  # the task that was rendered last, its prompts by id

    def rendered(self, run: Run, name: str) -> Mapping[int, Prompt]:
        """The first by the example's id.  Raises NotRendered, or what a reader of the task and its
        data raises."""
        last, prompts = self._last
        if name == last and _asks_the_same(run, name, prompts):
            return prompts
        config = _config_of(run, name, self.data_dir)
        from miron_jax.evaluation.task_kinds.interface import LoadedTask
        from miron_jax.evaluation.task_kinds.kinds import kind_of

        for suite in self._select(config).suites:
            for task in suite.tasks:
                if task.name == name:
                    folder = suite.locate(suite.named_folder(config.data_dir), False)
                    examples = kind_of(task).load(task, folder, config, False)
                    state = DataState("no published hash", None)  # which no prompt depends on
                    source = LoadedTask(task, examples, state)
                    answered = run.examples(name, with_texts=False)
                    every = kind_of(task).whole_prompts(source, config, answered)
                    prompts = {prompt.id: prompt for prompt in islice(every, FIRST)}
                    self._last = name, prompts
                    return prompts
        raise NotRendered(f"this version has no task {name}")


def _selected(config: RunConfig) -> "Selected":
    from miron_jax.evaluation.inputs import select_tasks

    return select_tasks(config)


def _asks_the_same(run: Run, name: str, prompts: Mapping[int, Prompt]) -> bool:
    """Whether the first prompts of a run are these."""
    for example in islice(run.examples(name), FIRST):
        prompt = prompts.get(example.id)
        if prompt is None or without_shots(_as_read(prompt, example)).digest != example.digest:
            return False
    return True


def _config_of(run: Run, name: str, data_dir: DataDir) -> RunConfig:
    """The run's settings, of the task's suite alone.  Raises NotRendered."""
    try:
        config = config_of(run.result.config)
    except ValueError as error:
        raise NotRendered(f"results.json lacks the run's settings ({error!s:.80})") from None
    if config.chat_template is not None:
        raise NotRendered("a page has no tokenizer, whose chat template made this prompt")
    if any(Path(path).suffix == ".py" for path in config.task_path or ()):
        raise NotRendered("a page runs no Python file, and this run names one in --task_path")
    if (config.items_per_category or 0) > MOST_ITEMS:
        raise NotRendered(f"a page makes no more than {MOST_ITEMS:,} items of a category again")
    # other suites need not be here; the rest is of documents' windows, and refused for others
    alone = {"stride": None, "special_tokens": None, "save_byte_losses": False}
    config = replace(config, tasks=(name.partition("/")[0],), **alone)
    if data_dir:
        folders = dict(data_dir)
        if "" not in folders:
            folders = {**dict(config.data_dir), **folders}
        config = replace(config, data_dir=tuple(folders.items()))
    return config


def _as_read(prompt: Prompt, example: ExampleResult) -> Prompt:
    """Without the shots that the length limit had no room for."""
    asked = example.asked
    if not isinstance(asked, AskedPrompt) or asked.num_shots is None or prompt.num_shots is None:
        return prompt
    return replace(prompt, shots=prompt.shots[max(0, len(prompt.shots) - asked.num_shots) :])


def _parts(prompt: Prompt, num_fewshot: int) -> tuple[Sequence[str], list[str]]:
    """The texts before the question, and the distinct contexts.  `num_fewshot`: examples that stand
    in the context itself, to its last blank line."""
    contexts = [*dict.fromkeys(prompt.contexts[: len(prompt.contexts) - prompt.num_extra])]
    before, blank_line, question = contexts[0].rpartition("\n\n")
    if num_fewshot and len(contexts) == 1 and before and question.strip():
        return [before + blank_line], [question]
    return prompt.shots, contexts


def _end(example: ExampleResult) -> str:
    """What a sample keeps of its prompt, or the name of its document."""
    asked = example.asked
    if isinstance(asked, AskedItem):
        return asked.prefix[-LONGEST:]
    if isinstance(asked, AskedDocument):
        return asked.doc_id
    return asked.prompt[-TAIL:]
