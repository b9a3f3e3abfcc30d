"""A folder of frozen requests -> the suite `requests`.

Arrives: a folder.  Leaves: a `Suite` with a task for each name that the requests bear.  It
deliberately does not know who wrote the files.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from miron_jax.definitions.records import DataFile, Example, Profile, Suite, Task
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject, shown
from miron_jax.metrics.choices import FIRST, SUM
from miron_jax.prompting.draws import FILE_ORDER, NO_SHOTS
from miron_jax.tasks.groups import MACRO, GroupMembers, Groups, read_groups, written
from miron_jax.tasks.request_sets.formats import MANIFEST, FrozenRequest, read_requests
from miron_jax.tokens.spans import AFTER_CONTEXT_OR_DIFFERENCE

NAME = "requests"
# By whether questions have choices.
_KIND_AND_METRIC = {
    True: ("multiple_choice", "accuracy"),
    False: ("language_modeling", "bits_per_byte"),
}
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
    # task -> the requests of each of its questions
    by_task = defaultdict[str, dict[int | str, list[FrozenRequest]]](dict)
    for request in requests:
        by_task[request.task].setdefault(request.doc_id, []).append(request)
    names = _names(requests)
    tasks = []
    as_text = _read_as_text(manifest, names, folder / MANIFEST)
    for task, by_doc in by_task.items():
        of_task = _task(names[task], list(by_doc.values()), folder / MANIFEST)
        if task in as_text:
            of_task = replace(of_task, profile=replace(PROFILE, special_tokens="text"))
        tasks.append(of_task)
    sizes = {task: len(by_doc) for task, by_doc in by_task.items()}
    stated = manifest.get("groups", _plain_means(tasks, names))
    groups = read_groups(stated, GroupMembers(sizes, names), folder / MANIFEST)
    _check_metrics(tasks, groups, folder / MANIFEST)
    return Suite(NAME, tuple(tasks), groups.composites, lambda data_dir, fetch: Path())


def _read_as_text(manifest: JsonObject, names: Mapping[str, str], path: Path) -> list[str]:
    """The tasks whose names of special tokens are plain text.  Raises InputError."""
    as_text = manifest.get("special_tokens_as_text", [])
    if not isinstance(as_text, list) or not all(
        isinstance(name, str) and name in names for name in as_text
    ):
        raise InputError(
            f"{path}: special_tokens_as_text is {shown(as_text)}, expected a list of tasks of "
            "the requests: mend it, or leave it out"
        )
    return as_text


def _plain_means(tasks: Sequence[Task[Profile]], names: Mapping[str, str]) -> JsonObject:
    """The plain mean of all tasks; if some choose and others do not, of those of each metric."""
    by_metric = defaultdict[str, list[str]](list)
    for name, task in zip(names, tasks, strict=True):
        by_metric[task.main].append(name)
    mean = f"{MACRO}_of_tasks" if MACRO in names else MACRO
    if len(by_metric) == 1:
        return {mean: {"of": list(names)}}
    return {f"{mean}_{metric}": {"of": members} for metric, members in sorted(by_metric.items())}


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


def _names(requests: Sequence[FrozenRequest]) -> dict[str, str]:
    """Each task's name in results; one that is taken gets a further _."""
    names: dict[str, str] = {}
    for request in requests:
        if request.task in names:
            continue
        name = f"{NAME}/{written(request.task)}"
        if not name.removeprefix(f"{NAME}/").strip("."):
            raise InputError(
                f"{request.file}, line {request.row + 1}: task is {request.task!r}, expected a name"
            )
        while name in names.values():
            name += "_"
        names[request.task] = name
    return names


def _task(name: str, questions: list[list[FrozenRequest]], manifest: Path) -> Task[Profile]:
    chooses = max(map(len, questions)) > 1
    examples = [example_of(choices, chooses) for choices in questions]
    files = dict.fromkeys(request.file for request in chain.from_iterable(questions))
    first, *others = map(Path.resolve, files)
    kind, main = _KIND_AND_METRIC[chooses]
    return Task(
        name,
        kind,
        PROFILE,
        DataFile(str(first), None, None),
        {"random": None, "human": None},
        parse=_by_line,
        citation="",
        main=main,
        made_of=(manifest, *others),
        examples=lambda folder: examples,
    )


def _by_line(fields: JsonObject, row: int) -> Example:
    raise AssertionError("the examples are read already: the file holds several tasks")


def example_of(choices: Sequence[FrozenRequest], chooses: bool) -> Example:
    """The requests of one question as an example.  Raises InputError where none is right, or not
    one alone."""
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
    if len(set(contexts)) == 1:
        contexts = contexts[:1]
    continuations = tuple(choice.continuation for choice in choices)
    return Example(first.row, contexts, continuations, gold if chooses else 0)
