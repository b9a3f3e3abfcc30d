"""A gate's policy, a YAML file -> its rules, each checked.

Arrives: a YAML file.  Leaves: `Rule`s.  It deliberately does not know which metrics a run has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeGuard, get_args

from miron_jax.errors import InputError
from miron_jax.files.places import local_path
from miron_jax.files.readers import Json, parse_yaml, shown
from miron_jax.files.regular import read_regular

Kind = Literal["not_below_baseline_by", "not_worse_beyond_chance", "below", "above"]
KINDS: tuple[Kind, ...] = get_args(Kind)
TASKS = "tasks"  # the metric of a rule about the main metrics of all tasks
EXPECTED = (
    f"expected `rules:`, a list, each with metric, confidence and one of {', '.join(KINDS)} "
    "(docs/compare.md)"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a policy asks of one number, or of all tasks."""

    metric: str  # as the policy names it
    kind: Kind
    amount: float  # in the metric's unit; 0 of not_worse_beyond_chance
    confidence: float  # of the interval, or 1 less the level of the p-value

    @property
    def wants_baseline(self) -> bool:
        return self.kind not in ("below", "above")


def read_policy(file: str) -> list[Rule]:
    """Raises InputError for a file that cannot be read, and for a rule that is none."""
    try:
        policy = parse_yaml(read_regular(local_path(file)))
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): name a policy") from None
    except ValueError as error:
        raise InputError(f"{file} is no yaml ({error!s:.160}): {EXPECTED}") from None
    if not isinstance(policy, Mapping) or [*policy] != ["rules"]:
        raise InputError(f"{file} holds {shown(policy)}, {EXPECTED}")
    [rules] = policy.values()
    if not isinstance(rules, list) or not rules:
        raise InputError(f"{file}: rules is {shown(rules)}, {EXPECTED}")
    return [_rule(f"{file}: rule {i}", rule) for i, rule in enumerate(rules, 1)]


def _rule(where: str, rule: Json) -> Rule:
    if not isinstance(rule, Mapping):
        raise InputError(f"{where} is {shown(rule)}, {EXPECTED}")
    for key in rule:
        if key not in ("metric", "confidence", *KINDS):
            raise InputError(f"{where} has an unknown key {shown(key)}, {EXPECTED}")
    kinds: list[Kind] = [kind for kind in KINDS if kind in rule]
    if len(kinds) != 1:
        raise InputError(f"{where} has {' and '.join(kinds) or 'none'} of the four, {EXPECTED}")
    [kind] = kinds
    metric = rule.get("metric")
    if not isinstance(metric, str):
        raise InputError(f"{where}: metric is {shown(metric)}, expected a text such as core")
    if metric == TASKS and kind != "not_worse_beyond_chance":
        raise InputError(f"{where}: {TASKS} has no {kind}, expected not_worse_beyond_chance: true")
    confidence = rule.get("confidence")
    if not _is_number(confidence) or not 0 < confidence < 1:
        raise InputError(
            f"{where}: confidence is {shown(confidence)}, expected a number between 0 and 1, such "
            "as 0.95"
        )
    amount = rule[kind]
    if kind == "not_worse_beyond_chance":
        if amount is not True:
            raise InputError(f"{where}: {kind} is {shown(amount)}, expected true")
        return Rule(metric, kind, 0.0, confidence)
    if not _is_number(amount) or (kind == "not_below_baseline_by" and amount < 0):
        least = ", 0 or more" if kind == "not_below_baseline_by" else ""
        raise InputError(f"{where}: {kind} is {shown(amount)}, expected a number{least}")
    return Rule(metric, kind, amount, confidence)


def _is_number(value: Json) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
