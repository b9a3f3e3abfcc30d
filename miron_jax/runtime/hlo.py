"""The text of a compiled program as operations, and how often each of them runs.

Arrives: compiled HLO text.  Leaves: operations by computation, runs, sizes of arrays.  It
deliberately does not know which program or which compiler it is of (`tpu_cycles.py`,
`gpu_kernels.py`).
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

# bytes of an element, by the bits that its dtype's name ends with; pred is a byte
_ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)(?:e\d+m\d+\w*)?)\[([\d,]*)\]")


class Operation(NamedTuple):
    name: str
    kind: str  # the HLO opcode
    shape: str  # of the result, as the text has it
    operands: tuple[str, ...]  # names
    line: str
    # computations that it runs as they are; those of a fusion are part of its own cost
    calls: tuple[str, ...] = ()

    @property
    def scope(self) -> str:
        """Of the source, as in jit(f)/layers/while/body/linear."""
        scope = re.search(r'op_name="([^"]*)"', self.line)
        return scope[1] if scope else ""

    @property
    def is_root(self) -> bool:
        return self.line.lstrip().startswith("ROOT")


class Computation(NamedTuple):
    operations: dict[str, Operation]  # by name
    limit: int | None  # iterations of a loop that has this condition; None: known only when it runs


class Program(NamedTuple):
    computations: dict[str, Computation]  # by name
    entry: str  # the one that runs first


class Run(NamedTuple):
    operation: Operation
    inside: Computation
    times: float  # in one call of the program


def program_of(text: str) -> Program:
    bodies: dict[str, list[str]] = {}
    entry = name = ""
    for line in text.splitlines():
        if header := re.match(r"(ENTRY )?%?([\w.\-]+) .*\{\s*$", line):
            name = header[2]
            bodies[name] = []
            entry = name if header[1] else entry
        elif name:
            bodies[name].append(line)
    return Program(
        {name: Computation(_operations(lines), _limit(lines)) for name, lines in bodies.items()},
        entry,
    )


def _operations(lines: list[str]) -> dict[str, Operation]:
    operations = {}
    for line in lines:
        matched = re.match(r"\s+(?:ROOT )?%([\w.\-]+) = (.*?) ([\w\-]+)\((.*)", line)
        if not matched:
            continue
        name, shape, kind, rest = matched.groups()
        calls = list[str]()
        if kind in ("while", "call", "conditional"):
            calls = re.findall(r"(?:body|to_apply|(?:true|false)_computation)=%?([\w.\-]+)", line)
            for branches in re.findall(r"branch_computations=\{([^}]*)\}", line):
                calls += [branch.strip().lstrip("%") for branch in branches.split(",")]
        operands = re.findall(r"%([\w.\-]+)", rest.split(")")[0])
        operations[name] = Operation(name, kind, shape, tuple(operands), line, tuple(calls))
    return operations


def _limit(lines: list[str]) -> int | None:
    """N of a condition `index < N` with a constant N."""
    constants = dict(re.findall(r"%([\w.\-]+) = s32\[\]\S* constant\((\d+)\)", "\n".join(lines)))
    root = re.search(r"ROOT .* compare\(%[\w.\-]+, %([\w.\-]+)\), direction=LT", "\n".join(lines))
    return int(constants[root[1]]) if root and root[1] in constants else None


def runs_of(
    program: Program,
    iterations: Mapping[str, float],
    cost: Callable[[Operation, Computation], float],
) -> list[Run]:
    """What a call of the program runs.  `iterations`: of loops whose scope ends with a key; other
    loops run as often as the text says, or once if it does not.  Of a conditional's branches the
    one of the highest cost runs."""

    def runs(name: str) -> list[Run]:
        computation = program.computations[name]
        out = list[Run]()
        for operation in computation.operations.values():
            branches = [*map(runs, operation.calls)]
            if operation.kind == "while":
                times = _iterations(operation, program, iterations)
                out += [run._replace(times=run.times * times) for run in branches[0]]
            elif branches:
                out += max(branches, key=total)
            else:
                out.append(Run(operation, computation, 1))
        return out

    def total(branch: list[Run]) -> float:
        return sum(cost(run.operation, run.inside) * run.times for run in branch)

    return runs(program.entry)


def _iterations(loop: Operation, program: Program, iterations: Mapping[str, float]) -> float:
    for end, times in iterations.items():
        if loop.scope.endswith(end):
            return times
    if counted := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.line):
        return int(counted[1])
    condition = re.search(r" condition=%?([\w.\-]+)", loop.line)
    return (condition and program.computations[condition[1]].limit) or 1


def sizes_of(shape: str) -> list[int]:
    """Sizes of the axes of an array, or of the first of a tuple's."""
    array = _ARRAY.search(shape)
    return [int(size) for size in array[3].split(",") if size] if array else []


def bytes_of(shape: str) -> float:
    """Bytes of an array or of all arrays of a tuple."""
    total = 0.0
    for _, bits, sizes in _ARRAY.findall(shape):
        total += int(bits or 8) / 8 * math.prod(int(size) for size in sizes.split(",") if size)
    return total


def sends(text: str) -> bool:
    """Whether devices send one another anything."""
    return bool(
        re.search(
            r" (?:all-[\w\-]+|reduce-scatter|collective-[\w\-]+|async-collective[\w\-]*)\(", text
        )
    )
