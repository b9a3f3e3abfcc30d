"""Fields of records that JSON holds only where there is something to say.

Arrives: the type of a field.  Leaves: the same type, marked; the marked fields of a record.  It
deliberately does not write JSON.
"""

from dataclasses import fields
from functools import cache
from typing import Annotated, TypeVar, get_args, get_origin

T = TypeVar("T")
_MARK = "left out of JSON, not null, where it is None or empty"
IfAny = Annotated[T, _MARK]


@cache
def fields_if_any(record: type) -> frozenset[str]:
    """Names of a dataclass's marked fields."""
    return frozenset(
        field.name
        for field in fields(record)
        if get_origin(field.type) is Annotated and _MARK in get_args(field.type)
    )
