"""Runs inside the sandbox: calls a Python program's function on one test, and writes what it
returns to descriptor 3.

    python -I value.py value NAME     files program, input: the normal form of NAME(*input)
    python -I value.py text NAME      files program, input: "=" and str(NAME(**input)), or the error
                                      that it raised
    python -I value.py expected       file input, a JSON list of expressions: a JSON list of their
                                      normal forms

Two values are equal in Python exactly if their normal forms are the same text.  A number's form is
its exact fraction, so that 1, 1.0, True and Fraction(1) have one form; lists, tuples, sets and
dicts have different forms; a subclass (Counter, a named tuple) has the form of its builtin class.
A value without a normal form ("?"), such as NaN, equals nothing.
"""

import json
import operator
import os
import sys
from typing import Any, NoReturn

NO_FORM = "?"
MAX_FORM_LEN = 1 << 20  # characters of a normal form
MAX_TEXT_BYTES = 8000  # of str() of a result
MAX_DEPTH = 200  # of nested containers


class NoForm(Exception):
    """The value equals no expression of builtin types."""


def normal_form(value: object, depth: int = 0) -> str:
    """A text that is the same for equal values.  Raises NoForm, RecursionError."""
    if depth > MAX_DEPTH:
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
        pairs = [
            f"{normal_form(key, depth + 1)}:{normal_form(entry, depth + 1)}"
            for key, entry in dict.items(value)
        ]
        return "{:" + ",".join(sorted(pairs)) + "}"
    return _number(value)


def _number(value: Any) -> str:
    if isinstance(value, complex):
        real = _number(value.real)
        return real if value.imag == 0 else f"{real}+{_number(value.imag)}j"
    if isinstance(value, float) and value in (float("inf"), -float("inf")):
        return "inf" if value > 0 else "-inf"
    try:
        if not hasattr(value, "as_integer_ratio"):
            value = int(operator.index(value))  # pyright: ignore[reportArgumentType] - NumPy's integers
        numerator, denominator = value.as_integer_ratio()
        return f"{numerator:x}/{denominator:x}"
    except (AttributeError, TypeError, ValueError, OverflowError):  # no number; NaN
        raise NoForm from None


def form_of(value: object) -> str:
    """The normal form, or "?"."""
    try:
        form = normal_form(value)
    except (NoForm, RecursionError):
        return NO_FORM
    return form if len(form) <= MAX_FORM_LEN else NO_FORM


def write_and_exit(content: bytes) -> NoReturn:
    """Write a value and end the process, so that nothing which the program has registered or
    started runs afterwards."""
    while content:
        content = content[os.write(3, content) :]
    os._exit(0)


def main(how: str, *name: str) -> NoReturn:
    with open("input", encoding="utf-8") as file:
        arguments = file.read()
    if how == "expected":
        write_and_exit(json.dumps([*map(_form_of_expression, json.loads(arguments))]).encode())
    with open("program", encoding="utf-8") as file:
        code = file.read()
    scope = {}
    if how == "value":
        exec(code, scope)
        write_and_exit(form_of(scope[name[0]](*eval(arguments, {}))).encode())
    try:
        exec(code, scope)
        text = str(scope[name[0]](**eval(arguments, {})))
    except BaseException as error:
        text = f"failed: {type(error).__name__}: {error}"
    write_and_exit(b"=" + text.encode("utf-8", "replace")[:MAX_TEXT_BYTES])


def _form_of_expression(expression: str) -> str:
    try:
        value = eval(expression, {})
    except Exception:
        value = expression  # not an expression: the text itself is the value
    return form_of(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
