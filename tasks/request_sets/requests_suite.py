"""A folder of frozen requests -> the suite `requests`.

Arrives: a folder.  Leaves: a `Suite` with a task for each name that the requests bear.  It
deliberately does not know who wrote the files.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from miron_jax.definitions.records import DataFile, Example, Profile, Suite, Task
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.choices import FIRST, SUM
from miron_jax.prompting.draws import FILE_ORDER, NO_SHOTS
from miron_jax.tasks.groups import MACRO, Groups, Tasks, read_groups, written
from miron_jax.tasks.request_sets.formats import MANIFEST, Request, read_requests
from miron_jax.tokens.spans import AFTER_CONTEXT_OR_DIFFERENCE

NAME = "requests"
# lm-eval's rules, which olmo-eval and Marin follow (tokens/pairs.py); bytes are those of the
# continuation as it stands in the file.
PROFILE = Profile(
    protocol="request set", num_fewshot=0, documented_num_fewshot=None, delimiter="",
    question_delimiter="whole",
    shot_separator="", strip="nothing", item_order=FILE_ORDER, fewshot_draw=NO_SHOTS,
    fewshot_pool="whole_file",
    categories="pooled", bos="as_tokenizer_or_prefix", boundary="context_kept",
    truncation="keep_last_inputs",
    max_length=None, continuation_space="as_written", span=AFTER_CONTEXT_OR_DIFFERENCE,
    normalizer=SUM, tie=FIRST,
    empty_span="error",
)  # fmt: skip


def read_suite(folder: Path) -> Suite[Task[Profile]]:
    """Raises InputError for files that are no request set."""
    requests, manifest = read_requests(folder)
    by_task: dict[str, list[Request]] = {}
    for request in requests:
        by_task.setdefault(request.task, []).append(request)
    names = _names([each[0] for each in by_task.values()])
    tasks = tuple(_task(names[task], each, folder / MANIFEST) for task, each in by_task.items())
    sizes = {task: len({request.doc_id for request in each}) for task, each in by_task.items()}
    stated = manifest.get("groups", _plain_means(tasks, names))
    groups = read_groups(stated, Tasks(sizes, names), folder / MANIFEST)
    _check_metrics(tasks, groups, folder / MANIFEST)
    return Suite(NAME, tasks, groups.composites, lambda data_dir, fetch: Path())


def _plain_means(tasks: Sequence[Task[Profile]], names: Mapping[str, str]) -> JsonObject:
    """The plain mean of all tasks; if some choose and others do not, of those of each metric."""
    main = {task.name: task.main for task in tasks}
    metrics = sorted(set(main.values()))
    means = {
        metric: {"of": [task for task, name in names.items() if main[name] == metric]}
        for metric in metrics
    }
    first = f"{MACRO}_of_tasks" if MACRO in names else MACRO
    return {
        first if len(means) == 1 else f"{first}_{metric}": each for metric, each in means.items()
    }


def _check_metrics(tasks: Sequence[Task[Profile]], groups: Groups, path: Path) -> None:
    """Raises InputError for a group of tasks whose numbers are not the same metric."""
    main = {task.name: task.main for task in tasks}
    for name, (weights, _) in groups.of.items():
        if len({main[task] for task in weights}) > 1:
            bits = next(task for task in weights if main[task] == "bits_per_byte")
            raise InputError(
                f"{path}: group {name!r} mixes accuracy with bits per byte, which {bits} has: "
                "expected one"
            )


def _names(first_of_task: Sequence[Request]) -> dict[str, str]:
    """Each task's name in results; one that is taken gets a further _."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for request in first_of_task:
        name = written(request.task)
        if not name.strip("."):
            raise InputError(
                f"{request.file}, line {request.row + 1}: task is {request.task!r}, expected a name"
            )
        while name in taken:
            name += "_"
        taken.add(name)
        names[request.task] = f"{NAME}/{name}"
    return names


def _task(name: str, requests: Sequence[Request], manifest: Path) -> Task[Profile]:
    by_doc: dict[int | str, list[Request]] = {}
    for request in requests:
        by_doc.setdefault(request.doc_id, []).append(request)
    chooses = any(len(choices) > 1 for choices in by_doc.values())
    examples = [_example(choices, chooses) for choices in by_doc.values()]
    return Task(
        name,
        "multiple_choice" if chooses else "language_modeling",
        PROFILE,
        DataFile(str(requests[0].file.resolve()), None, None),
        {"random": None, "human": None},
        parse=_by_line,
        citation="",
        main="accuracy" if chooses else "bits_per_byte",
        made_of=(
            manifest,
            *list(dict.fromkeys(request.file.resolve() for request in requests))[1:],
        ),
        examples=lambda: examples,
    )


def _by_line(fields: JsonObject, row: int) -> Example:
    raise AssertionError("the examples are read already: the file holds several tasks")


def _example(choices: Sequence[Request], chooses: bool) -> Example:
    first = choices[0]
    at = f"{first.file}, line {first.row + 1}: doc_id {first.doc_id!r} of {first.task}"
    if chooses and len(choices) == 1:
        raise InputError(
            f"{at} has one request, others of its task have several: expected choices of each, or "
            "none"
        )
    golds = {choice.gold for choice in choices}
    gold = golds.pop() if len(golds) == 1 else None
    if chooses and (gold is None or gold >= len(choices)):
        raise InputError(
            f"{at} has {len(choices)} requests, and the right one is {gold}: expected `gold` from "
            f"0 to {len(choices) - 1} in each (`label` of olmo-eval, `target` of lm-eval), or one "
            "request a doc_id"
        )
    contexts = tuple(choice.context for choice in choices)
    same = all(context == contexts[0] for context in contexts)
    continuations = tuple(choice.continuation for choice in choices)
    return Example(
        first.row, contexts[:1] if same else contexts, continuations, gold if chooses else 0
    )
