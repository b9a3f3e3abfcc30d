"""Groups of tasks with their weights -> composites; a request set's manifest states them.

Arrives: a manifest, the sizes of the tasks.  Leaves: `Composite`s.  It deliberately does not know requests.

    "groups": {
        "mmlu_stem": {"of": ["mmlu_astronomy", ...], "weights": "by_size"},
        "easy":      {"of": ["arc_easy", "mmlu_stem", ...]}
    }

`weights`: equal (the default), by_size (questions of each task, or of all tasks of a group), or a number for each member.  A
group may hold groups that stand before it.
"""

import math
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rapidfuzz import process

from miron_jax.definitions.records import Composite, Measured
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, shown

MACRO = "macro_mean"
Weights = Mapping[str, float]  # of each task in a group's mean; they sum to 1


def written(name: str) -> str:
    """A name as files and --tasks may bear it: other characters than letters, digits and . + - _ : = @ become _."""
    return re.sub(r"[^\w.+:=@-]", "_", name)


class Groups(NamedTuple):
    """The weights of every group's tasks."""

    weights: Mapping[str, Weights]

    def composites(self, measured: Mapping[str, Measured]) -> dict[str, Composite]:
        return {name: _mean(weights, measured) for name, weights in self.weights.items()}


def read_groups(stated: Json, sizes: Mapping[str, int], names: Mapping[str, str], path: Path) -> Groups:
    """`stated`: as above; `sizes`: questions of each task, by its name there; `names`: its name in results.

    Raises InputError for groups of what is not there.
    """
    if not isinstance(stated, dict):
        raise InputError(f"{path}: groups is {shown(stated)}, expected names with their members")
    groups: dict[str, Weights] = {}
    for name, group in stated.items():
        if name in sizes:
            raise InputError(f"{path}: group {name!r} has the name of a task, expected another one")
        if not isinstance(group, dict) or not group.keys() <= {"of", "weights"}:
            raise InputError(f"{path}: group {name!r} is {shown(group)}, expected the keys of and, if need be, weights")
        groups[name] = _weights(name, group, groups, sizes, path)
    return Groups({name: {names[task]: weight for task, weight in each.items()} for name, each in groups.items()})


def _weights(
    name: str, group: JsonObject, groups: Mapping[str, Weights], sizes: Mapping[str, int], path: Path
) -> Weights:
    members, known = group.get("of"), [*sizes, *groups]
    if not isinstance(members, list) or not members:
        raise InputError(f"{path}: group {name!r} is of {shown(members)}, expected a list of tasks and earlier groups")
    for member in members:
        if member not in known:
            nearest = process.extractOne(str(member), known)
            raise InputError(
                f"{path}: group {name!r} holds {shown(member)}, which is no task and no earlier group: did you mean "
                f"{nearest[0] if nearest else ''!r}?"
            )
    if len(set(members)) < len(members):
        raise InputError(f"{path}: group {name!r} holds a member twice, expected each once")
    share = partial(_share, group.get("weights", "equal"), groups, sizes, f"{path}: group {name!r}")
    shares = [share(member) for member in members]
    total = math.fsum(shares)
    if not total > 0:
        raise InputError(f"{path}: group {name!r}: its weights sum to {total}, expected more than 0")
    weights: dict[str, float] = {}
    for member, of_member in zip(members, shares, strict=True):
        for task, weight in groups.get(member, {member: 1.0}).items():
            weights[task] = weights.get(task, 0.0) + weight * of_member / total
    return weights


def _share(stated: Json, groups: Mapping[str, Weights], sizes: Mapping[str, int], at: str, member: str) -> float:
    if stated == "equal":
        return 1.0
    if stated == "by_size":
        return float(sum(sizes[task] for task in groups.get(member, (member,))))
    weight = stated.get(member) if isinstance(stated, dict) else stated
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 <= weight < math.inf:
        raise InputError(f"{at}: the weight of {member!r} is {shown(weight)}, expected equal, by_size or a number each")
    return float(weight)


def _mean(weights: Weights, measured: Mapping[str, Measured]) -> Composite:
    values = {task: measured[task].accuracy if task in measured else None for task in weights}
    missing = tuple(task for task, value in values.items() if value is None)
    total = None if missing else math.fsum(weights[task] * (value or 0.0) for task, value in values.items())
    return Composite(total, not missing, missing, {} if missing else dict(weights))
