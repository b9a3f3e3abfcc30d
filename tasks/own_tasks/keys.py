"""The values of a task's YAML file, each checked.

Arrives: a YAML file.  Leaves: its mapping; texts, numbers and names of it.  InputError says file,
key, what it is, and what is expected.  It deliberately does not know what a task is.
"""

from collections.abc import Collection, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from rapidfuzz import process

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, parse_yaml, shown
from miron_jax.files.regular import read_regular


class Keys:
    """One YAML file."""

    def __init__(self, path: Path) -> None:
        """Raises InputError for a file that is no mapping."""
        remedy = "expected keys such as task, data, question (docs/own_tasks.md)"
        self.path = path
        try:
            fields: Json = parse_yaml(read_regular(path))
        except OSError as error:
            raise InputError(
                f"--task_path={path} cannot be read ({error.strerror}): {remedy}"
            ) from None
        except ValueError as error:
            raise InputError(f"{path} is no yaml ({error!s:.160}): {remedy}") from None
        if not isinstance(fields, dict):
            raise InputError(f"{path}: found {shown(fields)}, {remedy}")
        self.fields: JsonObject = fields

    def __contains__(self, key: str) -> bool:
        return key in self.fields

    def wrong(self, problem: str) -> InputError:
        return InputError(f"{self.path}: {problem}")

    def check_known(self, known: Sequence[str]) -> None:
        for key in self.fields:
            if key not in known:
                nearest = process.extractOne(str(key), known)[0]
                raise self.wrong(
                    f"key {key!r} is not known, did you mean {nearest!r}? expected "
                    f"{', '.join(known)}"
                )

    def text(self, key: str, default: str | None = None) -> str:
        text = self.fields.get(key, default)
        if not isinstance(text, str):
            raise self.wrong(f"{key} is {shown(text)}, expected a text")
        return text

    def one_of(self, key: str, known: Collection[str] | Mapping[str, Any], default: str) -> str:
        chosen = self.fields.get(key, default)
        if not isinstance(chosen, str) or chosen not in known:
            raise self.wrong(f"{key} is {shown(chosen)}, expected one of {', '.join(known)}")
        return chosen

    def number(self, key: str, low: int, high: float = inf) -> int:
        """A whole number; `low` where the key is absent."""
        number = self.fields.get(key, low)
        is_bool = isinstance(number, bool)
        if not isinstance(number, int) or is_bool or not low <= number <= high:
            most = f"{low} or more" if high == inf else f"{low} to {high}"
            raise self.wrong(f"{key} is {shown(number)}, expected a whole number, {most}")
        return number

    def seconds(self, key: str, high: float) -> float:
        seconds = self.fields.get(key)
        is_bool = isinstance(seconds, bool)
        if not isinstance(seconds, int | float) or is_bool or not 0 < seconds <= high:
            raise self.wrong(
                f"{key} is {shown(seconds)}, expected seconds, above 0, at most {high:g}"
            )
        return float(seconds)

    def share(self, key: str) -> float | None:
        """A number from 0 to below 1; None where the key is absent."""
        share = self.fields.get(key)
        is_number = isinstance(share, int | float) and not isinstance(share, bool)
        if share is not None and not (is_number and 0 <= share < 1):
            raise self.wrong(
                f"{key} is {shown(share)}, expected the accuracy of chance, 0 or more, below 1"
            )
        return share

    def texts(self, key: str, default: list[str]) -> tuple[str, ...]:
        texts = self.fields.get(key, default)
        if not (isinstance(texts, list) and all(isinstance(each, str) and each for each in texts)):
            raise self.wrong(f"{key} is {shown(texts)}, expected a list of texts")
        return tuple(texts)
