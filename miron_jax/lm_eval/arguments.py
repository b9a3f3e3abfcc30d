"""`model_args` of lm-eval -> the run's configuration.

Arrives: values as lm-eval has cast them, or as a user gives them.  Leaves: a `RunConfig`, checked values.  It deliberately
does not know models.
"""

import difflib
from typing import Any

from miron_jax.config import SETTINGS, RunConfig, parse_mesh
from miron_jax.errors import InputError

OPTIONS = tuple(
    name
    for name, declared in SETTINGS.items()
    if declared.topic in ("model", "devices")
    and name not in ("model", "tokenizer", "max_length", "watch", "watch_timeout")
)
OWN = ("pretrained", "tokenizer", "max_length", "max_gen_toks", "add_bos_token", "prefix_token_id", "seed")


def run_config(model: str, options: dict[str, Any]) -> RunConfig:
    """Raises InputError for an option that there is not, or a value that it does not take."""
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, [*OPTIONS, *OWN], 1)
            meant = f"{near[0]}?" if near else f"one of {', '.join([*OWN, *OPTIONS])}"
            raise InputError(f"model_args: {name} is no option, expected {meant}")
        declared = SETTINGS[name]
        if declared.kind == "integer":
            given[name] = whole_number(name, given[name], declared.low or 0)
        elif name != "mesh":
            given[name] = str(given[name])  # lm-eval makes a number of steps=1000
    if isinstance(given.get("mesh"), str):
        given["mesh"] = parse_mesh(given["mesh"].replace(";", ","))  # lm-eval divides its arguments at commas
    return RunConfig(model=model, tasks=("none",), **given)


def whole_number(name: str, value: Any, low: int) -> int:
    """Raises InputError unless the value is a whole number of at least `low`, or a text of one."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    number = int(value) if is_number or (isinstance(value, str) and value.strip().isdecimal()) else None
    if number is None or number < low:
        raise InputError(f"model_args: {name} is {value!r}, expected a whole number, {low} or more")
    return number


def truth(name: str, value: Any) -> bool:
    """Raises InputError unless the value is true or false, or a text of one."""
    known = {"true": True, "false": False}
    if isinstance(value, bool) or str(value).lower() in known:
        return known[str(value).lower()]
    raise InputError(f"model_args: {name} is {value!r}, expected true or false")
