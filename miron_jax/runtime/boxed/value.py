"""Runs inside the box: calls a Python program's function on one test, and writes what it returns to descriptor 3.

    python -I value.py value NAME     files program, given: the normal form of NAME(*given)
    python -I value.py text NAME      files program, given: "=" and str(NAME(**given)), or why it returned nothing
    python -I value.py wanted         file given, a JSON list of expressions: a JSON list of their normal forms

Two values are equal in Python exactly where their normal forms are the same text: a number is its exact fraction, so that 1,
1.0, True and Fraction(1) are one; lists, tuples, sets and dicts are apart; a subclass (Counter, a named tuple) is what its
builtin class holds.  A value without a normal form ("?") equals nothing; NaN is one.
"""

import json
import operator
import os
import sys
from typing import Any, NoReturn

NONE = "?"
MOST_BYTES = 1 << 20  # of a normal form
MOST_TEXT = 8000  # bytes of str() of a result
MOST_DEPTH = 200


class NoForm(Exception):
    """A value that no expression of builtin types is equal to."""


def normal_form(value: Any, depth: int = 0) -> str:
    """The text that is the same for equal values.  Raises NoForm where there is none."""
    if depth > MOST_DEPTH:
        raise NoForm
    if value is None:
        return "None"
    if isinstance(value, str):
        return json.dumps(str.__str__(value))
    if isinstance(value, (bytes, bytearray)):
        return "b" + bytes(value).hex()
    if isinstance(value, (list, tuple)):
        parts = ",".join([normal_form(part, depth + 1) for part in tuple(value)])
        return f"[{parts}]" if isinstance(value, list) else f"({parts})"
    if isinstance(value, (set, frozenset)):
        return "{" + ",".join(sorted(normal_form(part, depth + 1) for part in value)) + "}"
    if isinstance(value, dict):
        pairs = [f"{normal_form(key, depth + 1)}:{normal_form(own, depth + 1)}" for key, own in dict.items(value)]
        return "{:" + ",".join(sorted(pairs)) + "}"
    return _number(value)


def _number(value: Any) -> str:
    if isinstance(value, complex) and value.imag != 0:
        return f"{_number(value.real)}+{_number(value.imag)}j"
    if isinstance(value, complex):
        return _number(value.real)
    if isinstance(value, float) and value in (float("inf"), -float("inf")):
        return "inf" if value > 0 else "-inf"
    try:
        if not hasattr(value, "as_integer_ratio"):
            value = int(operator.index(value))  # pyright: ignore[reportArgumentType] - NumPy's integers
        numerator, denominator = value.as_integer_ratio()
        return f"{numerator:x}/{denominator:x}"
    except (AttributeError, TypeError, ValueError, OverflowError):  # no number; NaN
        raise NoForm from None


def form_of(value: Any) -> str:
    """The normal form, or "?"."""
    try:
        form = normal_form(value)
    except (NoForm, RecursionError):
        return NONE
    return form if len(form) <= MOST_BYTES else NONE


def tell(content: bytes) -> NoReturn:
    """Write a value, and end: nothing that the program left behind runs any more."""
    while content:
        content = content[os.write(3, content) :]
    os._exit(0)


def main(how: str, *name: str) -> NoReturn:
    with open("given", encoding="utf-8") as file:
        given = file.read()
    if how == "wanted":
        tell(json.dumps([_wanted(expression) for expression in json.loads(given)]).encode())
    with open("program", encoding="utf-8") as file:
        code = file.read()
    scope = {}
    if how == "value":
        exec(code, scope)
        tell(form_of(scope[name[0]](*eval(given, {}))).encode())
    try:
        exec(code, scope)
        text = str(scope[name[0]](**eval(given, {})))
    except BaseException as error:
        text = f"failed: {type(error).__name__}: {error}"
    tell(b"=" + text.encode("utf-8", "replace")[:MOST_TEXT])


def _wanted(expression: str) -> str:
    try:
        value = eval(expression, {})
    except Exception:
        value = expression  # no expression: it stands for itself
    return form_of(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
