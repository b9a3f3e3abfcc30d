"""Groups of tasks with their weights -> composites; a request set's manifest states them.

Arrives: a manifest, the sizes of the tasks.  Leaves: `Composite`s.  It deliberately does not know
requests.

    "groups": {
        "mmlu_stem": {"of": ["mmlu_astronomy", ...], "weights": "by_size"},
        "easy":      {"of": ["arc_easy", "mmlu_stem", ...]}
    }

`weights`: equal (the default), by_size (questions of each task, or of all tasks of a group), or a
number for each member.  `rescaled`: true takes (accuracy - baseline) / (1 - baseline) of each task.
A group may hold groups that stand before it.
"""

import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from rapidfuzz import process

from miron_jax.definitions.records import Composite, Measured
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, shown

MACRO = "macro_mean"


class WeightedSum(NamedTuple):
    """A group's number: its offset, and each task's number times its weight."""

    weights: Mapping[str, float]
    offset: float = 0.0


_NAME = re.compile(r"[\w.+:=@/-]{1,100}")
_MOST = 1e9  # a weight


def written(name: str) -> str:
    """A name as files and --tasks may bear it: other characters than letters, digits and . + - _ :
    = @ become _."""
    return re.sub(r"[^\w.+:=@-]", "_", name)


def part_of_task(name: str) -> str:
    """A folder's name as a part of `task` in a task's file: of letters, digits and . + - _, at most
    100, the first no point."""
    return re.sub(r"^\.|[^\w.+-]", "_", name)[:100]


class Groups(NamedTuple):
    of: Mapping[str, WeightedSum]  # by name of the group

    def composites(self, measured: Mapping[str, Measured]) -> dict[str, Composite]:
        main_of = main_metrics(measured)
        return {name: _composite(group, main_of) for name, group in self.of.items()}


def main_metrics(measured: Mapping[str, Measured]) -> dict[str, float]:
    """The main metric of each task that has one."""
    main_of = {}
    for name, score in measured.items():
        if score.main is not None:
            main_of[name] = score.main
    return main_of


def missing_of(tasks: Iterable[str], scored: Container[str]) -> tuple[str, ...]:
    """Those of the tasks that have no score."""
    return tuple(task for task in tasks if task not in scored)


class GroupMembers(NamedTuple):
    """What groups may hold; all by the names that groups use."""

    sizes: Mapping[str, int]  # questions
    names: Mapping[str, str]  # in results
    baselines: Mapping[str, float | None] = MappingProxyType({})


def plain_mean(tasks: Sequence[str]) -> Groups:
    return Groups({MACRO: WeightedSum(dict.fromkeys(tasks, 1 / len(tasks)))})


def read_groups(stated: Json, tasks: GroupMembers, path: Path) -> Groups:
    """Raises InputError for groups of what is not there."""
    if not isinstance(stated, dict):
        raise InputError(f"{path}: groups is {shown(stated)}, expected names with their members")
    groups: dict[str, WeightedSum] = {}
    for name, group in stated.items():
        at = f"{path}: group {name!r}"
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name.startswith("partial_"):
            raise InputError(
                f"{at}: expected letters, digits and . + - _ : = @ / that do not begin with "
                "partial_"
            )
        if name in tasks.sizes:
            raise InputError(f"{at} has the name of a task, expected another one")
        if not isinstance(group, dict) or not group.keys() <= {"of", "weights", "rescaled"}:
            raise InputError(
                f"{at} is {shown(group)}, expected the keys of and, if need be, weights and "
                "rescaled"
            )
        if not isinstance(group.get("rescaled", False), bool):
            raise InputError(
                f"{at}: rescaled is {shown(group['rescaled'])}, expected true or false"
            )
        groups[name] = _group(group, groups, tasks, at)
    return Groups({name: _in_results(group, tasks) for name, group in groups.items()})


def _in_results(group: WeightedSum, tasks: GroupMembers) -> WeightedSum:
    """The group with the names that tasks have in results."""
    weights = {tasks.names[task]: weight for task, weight in group.weights.items()}
    return WeightedSum(weights, group.offset)


def _group(
    group: JsonObject, groups: Mapping[str, WeightedSum], tasks: GroupMembers, at: str
) -> WeightedSum:
    stated = group.get("weights", "equal")
    shares = {}
    for member in _members(group.get("of"), [*tasks.sizes, *groups], at):
        shares[member] = _share(stated, groups, tasks.sizes, at, member)
    total = math.fsum(shares.values())
    if not total > 0:
        raise InputError(f"{at}: its weights sum to {total}, expected more than 0")
    weights = dict[str, float]()
    offset = 0.0
    for member, share in shares.items():
        if member in groups and group.get("rescaled"):
            raise InputError(
                f"{at} is rescaled, but {member} is a group: state rescaled of that one, and a "
                "group of both"
            )
        if member in groups:
            inner = groups[member]
        else:
            inner = _of_task(member, group.get("rescaled", False), tasks, at)
        offset += inner.offset * share / total
        for task, weight in inner.weights.items():
            weights[task] = weights.get(task, 0.0) + weight * share / total
    return WeightedSum(weights, offset)


def _of_task(task: str, rescaled: bool, tasks: GroupMembers, at: str) -> WeightedSum:
    if not rescaled:
        return WeightedSum({task: 1.0})
    baseline = tasks.baselines.get(task)
    if baseline is None:
        raise InputError(f"{at} is rescaled, but {task} has no baseline: give it one")
    return WeightedSum({task: 1 / (1 - baseline)}, -baseline / (1 - baseline))


def _members(members: Json, known: Sequence[str], at: str) -> list[str]:
    if not isinstance(members, list) or not members:
        raise InputError(
            f"{at} is of {shown(members)}, expected a list of tasks and earlier groups"
        )
    for member in members:
        if member not in known:
            nearest = process.extractOne(str(member), known)
            hint = f": did you mean {nearest[0]!r}?" if nearest else ""
            raise InputError(
                f"{at} holds {shown(member)}, which is no task and no earlier group{hint}"
            )
    if len(set(members)) < len(members):
        raise InputError(f"{at} holds a member twice, expected each once")
    return members


def _share(
    stated: Json, groups: Mapping[str, WeightedSum], sizes: Mapping[str, int], at: str, member: str
) -> float:
    if stated == "equal":
        return 1.0
    if stated == "by_size":
        tasks = groups[member].weights if member in groups else [member]
        return float(sum(sizes[task] for task in tasks))
    weight = stated.get(member) if isinstance(stated, dict) else stated
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 <= weight <= _MOST:
        raise InputError(
            f"{at}: the weight of {member!r} is {shown(weight)}, expected equal, by_size or a "
            f"number each, up to {_MOST:g}"
        )
    return float(weight)


def _composite(group: WeightedSum, main_of: Mapping[str, float]) -> Composite:
    missing = missing_of(group.weights, main_of)
    if missing:
        return Composite(None, False, missing, {})
    terms = [weight * main_of[task] for task, weight in group.weights.items()]
    return Composite(math.fsum([group.offset, *terms]), True, (), dict(group.weights))
