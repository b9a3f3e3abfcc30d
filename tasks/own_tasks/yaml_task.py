"""A user's YAML and Python files -> the suite `own`.

Arrives: files, or folders of them.  Leaves: a `Suite`; every wrong key is one sentence.  It
deliberately does not know how examples are scored.

A YAML file names data, and what it takes from each record:

    task: capitals
    data: capitals.jsonl
    question: "Question: {{question}}"
    choices: options
    gold: answer
    delimiter: "\\nAnswer: "
    num_fewshot: 5
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import (
    CPU_FACTOR,
    AnswerProfile,
    AnyExample,
    AnyTask,
    ClozeProfile,
    ClozeTask,
    ProgramProfile,
    Suite,
    Task,
)
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, shown
from miron_jax.metrics import answers
from miron_jax.prompting.draws import distinct
from miron_jax.tasks.gauntlet import programming
from miron_jax.tasks.groups import GroupMembers, Groups, read_groups
from miron_jax.tasks.own_tasks import records
from miron_jax.tasks.own_tasks.data import Data, read_data
from miron_jax.tasks.own_tasks.gold import LABELS, READINGS
from miron_jax.tasks.own_tasks.keys import Keys
from miron_jax.tasks.own_tasks.python_task import read_python
from miron_jax.tasks.own_tasks.rules import RULES, profile_of, rule_named, rules_of
from miron_jax.tasks.own_tasks.templates import Value, text_of, value_of
from miron_jax.tokens.spans import AFTER_COMMON_PREFIX

NAME = "own"
_TAKES = {  # kind -> what it takes from each record, and what that must be
    "choice": {"question": "a text", "choices": "a list of texts", "gold": "the right choice"},
    "schema": {
        "contexts": "a list of texts", "answer": "the text that goes on from each of them",
        "gold": "the right context",
    },
    "continuation": {"question": "a text", "answer": "a text"},
    "generation": {"question": "a text", "answer": "a text, or a list of texts that are all right"},
    "program": {
        "prompt": "the beginning of a program", "entry_point": "the function that is called",
        "inputs": "a list of texts",
        "outputs": "a list of texts", "solution": "a program",
    },
    "cloze": {"prefix": "a text", "target": "the text that goes on", "category": "a text"},
}  # fmt: skip
_RELATED = ("category", "cluster", "swapped", "traits")
# of the others: _RELATED
_MAY_TAKE = {
    "program": ("language", "name"), "choice": (*_RELATED, *records.BIAS),
    "cloze": ("name", "distractors", "clean_prefix", "operator", "num_edits"),
}  # fmt: skip
_KIND = {
    "choice": "multiple_choice", "schema": "schema", "continuation": "language_modeling",
    "generation": "generation", "program": "code", "cloze": "cloze",
}  # fmt: skip
# as results name it -> as YAML does: both are taken
_NAMED = {kind: name for name, kind in _KIND.items()}
_PARSE: dict[str, Callable[..., AnyExample]] = {
    "choice": records.choice,
    "schema": records.schema,
    "continuation": records.continuation,
    "generation": records.question,
    "program": records.problem,
    "cloze": records.cloze,
}
_TEXTS = {  # key -> field of the wording
    "delimiter": "delimiter", "shot_separator": "shot_separator", "before_shots": "prompt_string",
    "before_question": "prelimiter", "answer_after": "answer_after",
}  # fmt: skip
_EVERY = ("task", "kind", "data", "max_length", "baseline", "citation", "licence")
_PROMPTED = (
    "rules", "num_fewshot", "fewshot", "fewshot_data", "delimiter", "shot_separator",
    "before_shots", "before_question",
)  # fmt: skip
_OPTIONS = ("choices", "contexts")  # each a field with a list of texts, or a list of templates
_ALSO = {
    "choice": ("gold_is", "target_delimiter"),
    "schema": ("gold_is", "target_delimiter"),
    "generation": ("stop", "extra_tokens", "answer_after"),
}
# of programs, with their smallest and largest values
_SAMPLED = {
    "num_samples": (1,), "pass_at_k": (1,), "extra_tokens": (0,), "memory_mb": (16, 1 << 20),
    "output_mb": (1, 1024), "processes": (1, 1 << 15),
}  # fmt: skip
_SECONDS = ("test_seconds", "cpu_seconds")  # likewise
MAX_SECONDS = 24 * 3600.0
_TASK_NAME = re.compile(r"[\w+-][\w.+-]{0,99}(/[\w+-][\w.+-]{0,99}){0,3}")


def read_suite(paths: Sequence[str]) -> Suite[Any]:
    """The tasks of these files, and of the .yaml files in these folders.  Raises InputError."""
    file_of: dict[str, Path] = {}
    tasks: list[AnyTask] = []
    fetches: list[Data] = []
    stated: list[tuple[Path, JsonObject]] = []
    for path in chain.from_iterable(map(_files, map(Path, paths))):
        keys = None if path.suffix == ".py" else Keys(path)
        if keys is not None and "groups" in keys:
            keys.check_known(("groups",))
            stated.append((path, keys.fields["groups"]))
            continue
        for task in read_python(path, NAME) if keys is None else [_task(keys, fetches)]:
            if task.name in file_of:
                raise InputError(
                    f"{path}: {file_of[task.name]} has a task {task.name} too: give one another "
                    "name"
                )
            file_of[task.name] = path
            tasks.append(task)
    if not tasks:
        raise InputError(
            f"--task_path={','.join(paths)}: there are groups and no task, expected the files of "
            "tasks too"
        )
    files = tuple(path for path, _ in stated)
    tasks = [replace(task, made_of=(*task.made_of, *files)) for task in tasks]
    groups = partial(_groups, tuple(tasks), stated)
    if stated and not fetches:
        groups()  # finds what is wrong before a model is loaded
    return Suite(
        NAME,
        tuple(tasks),
        lambda measured: groups().composites(measured),
        partial(_locate, fetches),
    )


def _locate(fetches: Sequence[Data], data_dir: Path | None, fetch: bool) -> Path:
    for data in fetches if fetch else ():
        data.fetch()
    return Path()


def _groups(tasks: Sequence[AnyTask], stated: Sequence[tuple[Path, JsonObject]]) -> Groups:
    """Groups of all files together, in the order of the files."""
    every: JsonObject = {}
    for path, groups in stated:
        if not isinstance(groups, dict) or groups.keys() & every.keys():
            raise InputError(
                f"{path}: groups is {shown(groups)}, expected names that no other file has, with "
                "their members"
            )
        every |= groups
    by_size = "by_size" in str(every)  # examples are counted only where a weight hangs on them
    sizes: dict[str, int] = {}
    names: dict[str, str] = {}
    baselines: dict[str, float | None] = {}
    for task in tasks:
        name = task.name.removeprefix(f"{NAME}/")
        sizes[name] = 1
        if by_size:
            if isinstance(task, ClozeTask):
                sizes[name] = len(task.read(None, 0))
            else:
                sizes[name] = len(read_examples(task, Path(), allow_changed=True))
        names[name] = task.name
        baselines[name] = task.baselines["random"]
    known = GroupMembers(sizes, names, baselines)
    if stated:
        return read_groups(every, known, stated[-1][0])
    return Groups({})


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(each for each in path.iterdir() if each.suffix in (".yaml", ".yml"))
    if not files:
        raise InputError(
            f"--task_path={path}: the folder has no .yaml file, expected one for each task"
        )
    return files


def _task(keys: Keys, fetches: list[Data]) -> AnyTask:
    kind = _NAMED.get(str(keys.fields.get("kind"))) or keys.one_of("kind", _TAKES, "choice")
    _check_keys(keys, kind)
    name = f"{NAME}/{keys.text('task')}"
    if not _TASK_NAME.fullmatch(keys.text("task")):
        raise keys.wrong(
            f"task is {shown(keys.text('task'))}, expected letters, digits, and . + - _ with / "
            "between parts"
        )
    data = read_data(keys, "data")
    others = read_data(keys, "fewshot_data") if "fewshot_data" in keys else None
    for each in filter(None, (data, others)):
        if each.repository is not None:
            fetches.append(each)
    if kind == "cloze":
        return _cloze(keys, name, data)
    profile = (
        _program_profile(keys) if kind == "program" else _profile(keys, kind, others is not None)
    )
    of_choices = (LABELS,) if kind == "choice" and not _measures_bias(keys) else ()
    gold_is = keys.one_of("gold_is", ("", *READINGS, *of_choices), "")
    strips_fields = getattr(profile, "strip", "") == "fields"
    parse = _PARSE[kind]
    if isinstance(profile, AnswerProfile):
        is_equal = profile.match is answers.EQUAL
        parse = partial(parse, str if is_equal else profile.answer_normalizer.call)
    if delimiter := getattr(profile, "joined_delimiter", ""):
        parse = partial(records.joined, parse, delimiter)
    parser = partial(records.parser, parse, _values(keys, kind), gold_is, strips_fields)
    return Task(
        name,
        _KIND[kind],
        profile,
        data.file,
        {"random": keys.share("baseline"), "human": None},
        lambda record, row: parser([record], lambda _: "the record")(record, row),
        keys.text("citation", ""),
        shots_from=None if others is None else cache(partial(others.examples, name, parser)),
        examples=lambda folder: data.examples(name, parser),
        main="right_mass" if gold_is == LABELS else "accuracy",
        clusters=_clusters(keys),
        licence=keys.text("licence", ""),
        made_of=(*data.paths[1:], keys.path.resolve(), *(others.paths if others else ())),
    )


def _cloze(keys: Keys, name: str, data: Data) -> ClozeTask:
    """Items with MIRON's metrics and groups."""
    profile = ClozeProfile()
    if "max_length" in keys:
        profile = replace(profile, max_length=keys.number("max_length", 2))
    parser = partial(records.parser, records.cloze, _values(keys, "cloze"), "", False)
    return ClozeTask(
        name,
        profile,
        data.file,
        lambda folder, per_category: data.examples(name, parser),
        keys.text("citation", ""),
        baselines={"random": keys.share("baseline"), "human": None},
        made_of=(*data.paths[1:], keys.path.resolve()),
    )


def _check_keys(keys: Keys, kind: str) -> None:
    """Raises InputError for keys that are not there, or not of this kind."""
    of_kind = {}
    for each, takes in _TAKES.items():
        of_kind[each] = (*_EVERY, *takes, *_MAY_TAKE.get(each, _RELATED), *_further(each))
    keys.check_known(list(dict.fromkeys(chain.from_iterable(of_kind.values()))))
    for key in keys.fields:
        if key not in of_kind[kind]:
            raise keys.wrong(
                f"key {key!r} is not of a task of kind {kind}, which takes "
                f"{', '.join(_TAKES[kind])}"
            )


def _measures_bias(keys: Keys) -> bool:
    """Raises InputError where some of the keys of bias are missing."""
    missing = [key for key in records.BIAS if key not in keys]
    if 0 < len(missing) < len(records.BIAS):
        raise keys.wrong(
            f"{', '.join(records.BIAS)} go together, but {' and '.join(missing)} is missing: name "
            "the field of it too, or none of them (docs/own_tasks.md)"
        )
    return not missing


def _further(kind: str) -> tuple[str, ...]:
    if kind == "program":
        return (*_SAMPLED, *_SECONDS)
    if kind == "cloze":
        return ()
    return (*_PROMPTED, *rules_of(kind), *_ALSO.get(kind, ()))


def _profile(keys: Keys, kind: str, of_other_file: bool) -> Any:
    rules = keys.one_of("rules", RULES, "core")
    stated: dict[str, Any] = {field: keys.text(key) for key, field in _TEXTS.items() if key in keys}
    try:
        stated |= {
            name: rule_named(kind, name, keys.fields[name], of_other_file)
            for name in rules_of(kind)
            if name in keys
        }
    except ValueError as error:
        raise keys.wrong(str(error)) from None
    stated |= {"num_fewshot": keys.number("num_fewshot", 0), "documented_num_fewshot": None}
    if "target_delimiter" in keys:
        if "delimiter" in keys:
            raise keys.wrong(
                "delimiter and target_delimiter are both given: name the one that no choice is "
                "scored with, or the one that each choice begins with"
            )
        stated |= {"delimiter": "", "joined_delimiter": keys.text("target_delimiter")}
    stated.setdefault("delimiter", " ")
    if "max_length" in keys:
        stated["max_length"] = keys.number("max_length", 2)
    if stated.get("categories", "pooled") != "pooled" and "category" not in keys:
        raise keys.wrong(
            f"categories is {stated['categories']}, but no category is taken: name its field with "
            "category"
        )
    stop = keys.texts("stop", ["\n"])
    extra = keys.number("extra_tokens", 0)
    try:
        profile = profile_of(rules, kind, stated, stop, extra, of_other_file)
    except ValueError as error:
        raise keys.wrong(str(error)) from None
    if "target_delimiter" in keys and getattr(profile, "span", None) is AFTER_COMMON_PREFIX:
        raise keys.wrong(
            "target_delimiter would not be scored, as the span after_common_prefix (of rules: "
            "core) leaves out what all choices begin with: add rules: lm_eval, or name delimiter"
        )
    if keys.one_of("fewshot", ("any", "distinct"), "any") == "any":
        return profile
    return replace(profile, fewshot_draw=distinct(profile.fewshot_draw))


def _program_profile(keys: Keys) -> ProgramProfile:
    """The Gauntlet's rules of programs; what the file gives itself stands in their place."""
    numbers = {key: keys.number(key, *most) for key, most in _SAMPLED.items() if key in keys}
    seconds = {key: keys.seconds(key, MAX_SECONDS) for key in _SECONDS if key in keys}
    limit = {"max_length": keys.number("max_length", 2)} if "max_length" in keys else {}
    profile = replace(programming.PROFILE, cpu_seconds=None, **numbers, **seconds, **limit)
    if profile.cpu_seconds is None:
        profile = replace(profile, cpu_seconds=CPU_FACTOR * profile.test_seconds)
    if profile.pass_at_k > profile.num_samples:
        raise keys.wrong(
            f"pass_at_k is {profile.pass_at_k}, expected at most num_samples, {profile.num_samples}"
        )
    return profile


def _values(keys: Keys, kind: str) -> Mapping[str, Any]:
    """What the kind takes from a record: functions of it; a list of them where `choices` lists
    templates."""
    values: dict[str, Any] = {}
    optional = [key for key in _MAY_TAKE.get(kind, _RELATED) if key in keys and key != "traits"]
    for key, what in {**_TAKES[kind], **dict.fromkeys(optional, "a text")}.items():
        given = keys.fields.get(key)
        texts: list[Json] = (
            given if key in _OPTIONS and isinstance(given, list) and len(given) > 1 else [given]
        )
        several = texts is given
        if not all(isinstance(text, str) and text for text in texts):
            more = " or a list of at least two" if key in _OPTIONS else ""
            raise keys.wrong(
                f"{key} is {shown(given)}, expected a field's name or a template{more}: {what}"
            )
        try:
            functions = [text_of(text) if several else value_of(text) for text in texts]
        except ValueError as error:
            raise keys.wrong(f"{key}: {error}") from None
        values[key] = functions if several else functions[0]
    if "traits" in keys:
        values["traits"] = _traits(keys)
    return values


def _traits(keys: Keys) -> Mapping[str, Value]:
    """What groups the examples of the robustness report, by the name of each trait."""
    given = keys.fields["traits"]
    if isinstance(given, list):
        given = {str(field): field for field in given}
    texts = list(given.values()) if isinstance(given, dict) else []
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise keys.wrong(
            f"traits is {shown(keys.fields['traits'])}, expected a list of fields' names, or names "
            "with a field's name or a template each"
        )
    try:
        return {str(name): value_of(text) for name, text in given.items()}
    except ValueError as error:
        raise keys.wrong(f"traits: {error}") from None


def _clusters(keys: Keys) -> str | None:
    """What dependent examples share, as the robustness report names it."""
    if "cluster" in keys:
        return keys.text("cluster")
    return "record" if "traits" in keys or "swapped" in keys else None
