"""`model_args` of lm-eval -> the run's configuration.

Arrives: values as lm-eval has cast them, or as a user gives them.  Leaves: a `RunConfig`, checked
values.  It deliberately does not know models.
"""

import difflib
import os
from typing import TypeVar

from miron_jax.config import SETTINGS, RunConfig, parse_mesh
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject
from miron_jax.runtime.hosts import Hosts, join

Default = TypeVar("Default", int, None)
OPTIONS = tuple(
    name
    for name, declared in SETTINGS.items()
    if declared.topic in ("model", "devices")
    and name not in ("model", "tokenizer", "max_length", "average")
    and name not in ("watch", "watch_timeout", "newest_first", "keep_up")
)
HOSTS = ("distributed", "coordinator", "num_processes", "process_id", "peer_timeout")
OWN = (
    "pretrained", "tokenizer", "max_length", "max_gen_toks", "add_bos_token", "prefix_token_id",
    "seed", "journal", *HOSTS,
)  # fmt: skip


def run_config(model: str, options: JsonObject) -> RunConfig:
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
        # lm-eval divides its arguments at commas
        given["mesh"] = parse_mesh(given["mesh"].replace(";", ","))
    return RunConfig(model=model, tasks=("none",), **given)


def hosts_of(options: JsonObject, has_journal: bool) -> Hosts:
    """Connects to the other processes that the options name, and takes those out of `options`.
    Raises InputError."""
    given = {name: options.pop(name, None) for name in HOSTS}
    if not any(value is not None for name, value in given.items() if name != "peer_timeout"):
        return Hosts()
    address = given["coordinator"]
    distributed = truth("distributed", given["distributed"] or False)
    timeout = whole_number_or("peer_timeout", given["peer_timeout"], 5, 60)
    three = (address, given["num_processes"], given["process_id"])
    if (distributed and three != (None, None, None)) or (not distributed and None in three):
        raise InputError(
            "model_args: coordinator, num_processes and process_id go together: give all three to "
            "each process, or distributed=true where the cluster tells of them"
        )
    if not has_journal:
        raise InputError(
            "model_args: several processes meet in a folder that all of them see: give "
            "journal=FOLDER"
        )
    count = whole_number_or("num_processes", given["num_processes"], 0, None)
    index = whole_number_or("process_id", given["process_id"], 0, None)
    if count is not None and index is not None and index >= count:
        raise InputError(
            f"model_args: process_id is {index}, expected 0 to {count - 1}, below num_processes"
        )
    hosts = join(None if address is None else str(address), count, index, float(timeout))
    if not hosts.is_first:
        os.environ["HF_HUB_OFFLINE"] = "1"  # process 0 fetches into the cache that the hosts share
    return hosts


def whole_number_or(name: str, value: Json, low: int, otherwise: Default) -> int | Default:
    """`whole_number`, or `otherwise` if the value is not given."""
    return otherwise if value is None else whole_number(name, value, low)


def whole_number(name: str, value: Json, low: int) -> int:
    """Raises InputError unless the value is a whole number of at least `low`, or a text of one."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    is_text = isinstance(value, str) and value.strip().isdecimal()
    if not (is_number or is_text) or int(value) < low:
        raise InputError(f"model_args: {name} is {value!r}, expected a whole number, {low} or more")
    return int(value)


def truth(name: str, value: Json) -> bool:
    """Raises InputError unless the value is true or false, or a text of one."""
    known = {"true": True, "false": False}
    if isinstance(value, bool) or str(value).lower() in known:
        return known[str(value).lower()]
    raise InputError(f"model_args: {name} is {value!r}, expected true or false")
