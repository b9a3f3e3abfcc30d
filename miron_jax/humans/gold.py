"""Right answers to annotated items, computed or read from a file.

Arrives: the name of a rule, or a file.  Leaves: the right answer of an item, None if it has none.
It deliberately knows nothing of annotators.
"""

import ast
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

from rapidfuzz.distance import LCSseq

from miron_jax.errors import InputError
from miron_jax.files.places import local_path
from miron_jax.humans.annotations import PROJECTS, Project, normalized
from miron_jax.humans.tables import read_table

GoldRule = Callable[[tuple[str, ...]], str | None]


class Gold(NamedTuple):
    rule: GoldRule
    items: int | None  # of the test set; None: the rule gives right answers to any item


_PAIRS = {")": "(", "]": "[", "}": "{"}
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def brackets(item: tuple[str, ...]) -> str:
    """ "1" if all brackets close in order (MERA's BPS), else "0"."""
    stack: list[str] = []
    for char in item[0]:
        if char in _PAIRS.values():
            stack.append(char)
        elif char in _PAIRS and (not stack or stack.pop() != _PAIRS[char]):
            return "0"
    return "0" if stack else "1"


def common_subsequence(item: tuple[str, ...]) -> str:
    """Length of the longest common subsequence of two strings (MERA's LCS)."""
    left, right = map(str.strip, item)
    return str(LCSseq.similarity(left, right))


def arithmetic(item: tuple[str, ...]) -> str | None:
    """The value of a formula of whole numbers, exactly (MERA's SimpleAr and ruMultiAr); None if it
    is not whole."""
    try:
        value = _value(ast.parse(item[0].strip(), mode="eval").body)
        return str(value) if value.denominator == 1 else None
    except (
        SyntaxError,
        ValueError,
        ZeroDivisionError,
        OverflowError,
        RecursionError,
        MemoryError,
    ) as error:
        raise InputError(
            f"formula {item[0]!r:.60}: {error!s:.60}; expected whole numbers, + - * / and "
            "brackets, not too deep or long"
        ) from None


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise SyntaxError(f"{ast.unparse(node)} is no arithmetic")


RULES: dict[str, GoldRule] = {
    "lcs": common_subsequence,
    "brackets": brackets,
    "arithmetic": arithmetic,
}


def gold_of(name: str, inputs: Sequence[str], project: Project = PROJECTS["plain"]) -> Gold:
    """A named rule, or one that looks answers up in a file: a table of the item's columns and the
    right answer.

    Raises InputError.
    """
    if name in RULES:
        num_columns = 2 if name == "lcs" else 1
        if len(inputs) != num_columns:
            raise InputError(
                f"--gold={name} wants {num_columns} column{'s' * (num_columns > 1)} an item, here "
                f"are {', '.join(inputs)}: name them with --input_columns, or another rule"
            )
        return Gold(RULES[name], None)
    path = local_path(name)
    if not path.is_file():
        raise InputError(
            f"--gold={name} is no file and none of {', '.join(RULES)}: name one of these"
        )
    header, lines = read_table(path)
    others = [column for column in header if column not in inputs]
    if set(inputs) - set(header) or len(others) != 1:
        raise InputError(
            f"--gold={name} has the columns {', '.join(header)}, expected {', '.join(inputs)} and "
            "one with the right answer"
        )
    right: dict[tuple[str, ...], str] = {}
    for number, line in enumerate(lines, start=2):
        item = normalized([line[column] for column in inputs])
        answer = project.spelled(line[others[0]])
        if right.setdefault(item, answer) != answer:
            raise InputError(
                f"--gold={name}, line {number}: this item has another right answer in an earlier "
                "line"
            )
    return Gold(lambda item: right.get(normalized(item)), len(right))
