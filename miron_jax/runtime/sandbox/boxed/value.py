"""Runs inside the sandbox: calls a Python program's function on tests, and writes what it returns
to descriptor 3.

    python -I value.py value NAME BYTES   files program, input, a list of arguments: for each, the
                                          normal form of NAME(*arguments)
    python -I value.py text NAME BYTES    the same, "=" and str(NAME(**arguments)), or the error
                                          that it raised
    python -I value.py expected           file input, a JSON list of expressions: a JSON list of
                                          their normal forms

Each test is a fork of this process, which has not executed the program, in an empty folder.  Before
its value stands a line with its exit status and its length; of a longer value than BYTES there is
one byte more.  The tests after a failed one are left out, and those after one that leaves a file or
a process behind, or that took long: they are to run in another box.  The program may do to this
process what it may do to itself, and spoil its own tests; no right answer is here.

Two values are equal in Python exactly if their normal forms are the same text.  A number's form is
its exact fraction, so that 1, 1.0, True and Fraction(1) have one form; lists, tuples, sets and
dicts have different forms; a subclass (Counter, a named tuple) has the form of its builtin class,
and so has what equals it (UserList, a mapping proxy, the keys of a dict).  The form of a long value
is a digest.

A value has no form if it equals nothing ("!": NaN, a function of the program's), or if the program
decides what it equals ("?" and its type: a class with an `__eq__` of its own).

It runs once a program, so it imports only what starts fast: `json` and `typing` would take 10 ms.
"""

from __future__ import annotations

import builtins
import operator
import os
import sys
import time
from collections.abc import ItemsView, Iterable, KeysView, Mapping, Set
from operator import attrgetter
from types import MappingProxyType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

UNEQUAL = "!"
NOT_COMPARABLE = "?"
MAX_FORM_LEN = 1 << 16  # characters; a longer form is replaced by its digest
MAX_DEPTH = 1000  # of nested containers, where Python itself does not compare lists any more
FRAMES = 8 * MAX_DEPTH  # of calls, while forms are made
MAX_NAME_LEN = 60  # characters of a type's name
MAX_SECONDS = 1.0  # after which no further test begins: the first may have been wrong
_SETS = (set, frozenset, KeysView, ItemsView)
_MAPPINGS = (dict, MappingProxyType)
_DURATION = attrgetter("days", "seconds", "microseconds")
_CLOCK = attrgetter("hour", "minute", "second", "microsecond")


class Unequal(Exception):
    """The value equals no other one."""


class NotComparable(Exception):
    """What the value equals is not known outside of the program; the message is its type."""


def normal_form(value: object, depth: int = 0) -> str:
    """A text that is the same for equal values.  Raises Unequal, NotComparable, RecursionError."""
    if depth > MAX_DEPTH:
        raise NotComparable(f"nested more than {MAX_DEPTH} deep")
    if value is None or value is Ellipsis or value is NotImplemented:
        return str(value)
    if isinstance(value, str):
        return ascii(str.__str__(value))
    if isinstance(value, int):
        return int.__format__(value, "x") + "/1"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, memoryview) and value.format == "B" and value.ndim == 1:
        value = value.tobytes()
    if isinstance(value, (bytes, bytearray)):
        return "b" + bytes(value).hex()
    if isinstance(value, (list, tuple)):
        parts = _forms(tuple(value), depth)
        return f"[{parts}]" if isinstance(value, list) else f"({parts})"
    compares = type(value).__eq__
    if isinstance(value, _SETS) or (isinstance(value, Set) and compares is Set.__eq__):
        return "{" + ",".join(sorted(normal_form(part, depth + 1) for part in value)) + "}"
    if isinstance(value, _MAPPINGS) or (isinstance(value, Mapping) and compares is Mapping.__eq__):
        items = dict.items(value) if isinstance(value, dict) else value.items()
        pairs = [f"{normal_form(k, depth + 1)}:{normal_form(v, depth + 1)}" for k, v in items]
        return "{:" + ",".join(sorted(pairs)) + "}"
    if _is(value, "collections", "UserString") or _is(value, "collections", "UserList"):
        return normal_form(attrgetter("data")(value), depth + 1)
    if isinstance(value, range):
        return f"range({_range(value)})"
    for module, name in (("collections", "deque"), ("array", "array")):
        if isinstance(value, Iterable) and _is(value, module, name):
            return f"{name}[{_forms(value, depth)}]"
    return _moment(value) or _builtin(value) or _number(value)


def _forms(parts: Iterable[object], depth: int) -> str:
    return ",".join([normal_form(part, depth + 1) for part in parts])


def _is(value: object, module: str, name: str) -> bool:
    """Whether it is of a class of a module; False if nobody has imported the module."""
    return isinstance(value, getattr(sys.modules.get(module), name, ()))


def _range(value: range) -> str:
    """Ranges are equal if they hold the same numbers."""
    return ",".join(map(str, (len(value), *value[:1], *(value[1:2] and (value.step,)))))


def _moment(value: object) -> str:
    """Of dates, times and durations, which equal those of their own class; "" of all else."""
    if _is(value, "datetime", "timedelta"):
        return "timedelta({},{},{})".format(*_DURATION(value))
    name = "datetime" if _is(value, "datetime", "datetime") else "time"
    if not _is(value, "datetime", name):
        is_date = _is(value, "datetime", "date")
        return f"date({attrgetter('toordinal')(value)()})" if is_date else ""
    hour, minute, second, microsecond = _CLOCK(value)
    clock = ((hour * 60 + minute) * 60 + second) * 10**6 + microsecond
    if name == "datetime":
        clock += attrgetter("toordinal")(value)() * 24 * 3600 * 10**6
    offset = attrgetter("utcoffset")(value)()
    if offset is None:
        return f"{name}({clock})"
    days, seconds, microseconds = _DURATION(offset)
    return f"{name}({clock - (days * 24 * 3600 + seconds) * 10**6 - microseconds},UTC)"


def _builtin(value: object) -> str:
    """Of a class or function of Python; "" of all else.  Raises Unequal for what equals nothing but
    itself."""
    name = getattr(value, "__name__", "")
    if isinstance(name, str) and vars(builtins).get(name) is value:
        return f"builtins.{name}"
    if type(value).__eq__ is object.__eq__:
        raise Unequal
    return ""


def _number(value: Any) -> str:
    if isinstance(value, complex):
        real = _number(value.real)
        return real if value.imag == 0 else f"{real}+{_number(value.imag)}j"
    try:
        if not hasattr(value, "as_integer_ratio"):
            value = int(operator.index(value))  # NumPy's integers
        numerator, denominator = value.as_integer_ratio()
        return f"{numerator:x}/{denominator:x}"
    except OverflowError:
        return "inf" if value > 0 else "-inf"
    except ValueError:  # NaN
        raise Unequal from None
    except (AttributeError, TypeError):
        raise NotComparable(type(value).__name__) from None


def form_of(value: object) -> str:
    """The normal form, or why there is none."""
    try:
        form = normal_form(value)
    except Unequal:
        return UNEQUAL
    except NotComparable as error:
        return NOT_COMPARABLE + ascii(str(error))[1:-1][:MAX_NAME_LEN]
    except RecursionError:
        return f"{NOT_COMPARABLE}nested too deep"
    if len(form) <= MAX_FORM_LEN:
        return form
    import hashlib  # slow to import

    return f"#{hashlib.sha256(form.encode()).hexdigest()}"


def write_and_exit(content: bytes) -> NoReturn:
    """Write a value and end the process, so that nothing which the program has registered or
    started runs afterwards."""
    _write(3, content)
    os._exit(0)


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def fork_for_each(tests: list[str], how: str, max_bytes: int) -> str:
    """Return the arguments of each test, in a process of its own; this process ends with the last
    one.  The process writes its value to descriptor 3, which is a file of its own."""
    out = os.dup(3)
    before = _state()
    end = time.monotonic() + MAX_SECONDS
    for arguments in tests:
        file = _empty_file()
        try:
            child = os.fork()
        except OSError:  # as of a shell that cannot execute a program
            os._exit(126)
        if child == 0:
            os.dup2(file, 3)
            os.closerange(4, max(out, file) + 1)
            return arguments
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.lseek(file, 0, os.SEEK_SET)
        value = os.read(file, max_bytes + 1)
        os.close(file)
        # a signal as shells and bubblewrap state it
        _write(out, b"%d %d\n" % (status if status >= 0 else 128 - status, len(value)) + value)
        has_failed = status != 0 or (how == "value" and not value)
        if has_failed or time.monotonic() > end or _state() != before:
            break
    os._exit(0)


def _state() -> tuple[object, ...]:
    """Processes and files of the box, whose folder lies in /dev/shm, and who may write there."""
    try:
        folders = [(os.listdir(name), os.stat(name).st_mode) for name in (".", "/dev/shm")]
    except OSError:  # the program has changed who may look
        folders = []
    processes = [name for name in os.listdir("/proc") if name.isdecimal()]
    return folders, processes, os.nice(0)


def _empty_file() -> int:
    """A descriptor of a file without a name."""
    try:
        file = os.open("value", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        os.unlink("value")
    except OSError:  # the program has changed who may write
        os._exit(0)
    return file


def _read(name: str) -> str:
    """The text of a file, which is taken away."""
    with open(name, encoding="utf-8") as file:
        text = file.read()
    os.unlink(name)
    return text


def main(how: str, *rest: str) -> NoReturn:
    if how == "expected":
        import json

        sys.setrecursionlimit(FRAMES)
        expressions = json.loads(_read("input"))
        write_and_exit(json.dumps([*map(_form_of_expression, expressions)]).encode())
    name, max_bytes = rest
    code = _read("program")
    tests = eval(_read("input"), {})
    os.unlink("value.py")
    arguments = fork_for_each(tests, how, int(max_bytes))
    scope = {}
    if how == "value":
        exec(code, scope)
        value = scope[name](*eval(arguments, {}))
        sys.setrecursionlimit(FRAMES)
        write_and_exit(form_of(value).encode())
    try:
        exec(code, scope)
        text = str(scope[name](**eval(arguments, {})))
    except BaseException as error:
        text = f"failed: {type(error).__name__}: {error}"
    write_and_exit(b"=" + text.encode("utf-8", "replace"))


def _form_of_expression(expression: str) -> str:
    try:
        value = eval(expression, {})
    except Exception:
        value = expression  # not an expression: the text itself is the value
    return form_of(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
