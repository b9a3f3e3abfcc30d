"""What XLA's TPU compiler writes into a compiled program: the cycles that it expects, and where its
kernels are.

Arrives: compiled HLO text.  Leaves: cycles, counts.  It deliberately does not know which program it
is.

The compiler writes `estimated_cycles` beside every fusion, copy and matmul, and nothing beside a
Pallas kernel or what devices send to one another: sums are estimates of all but these, and no
times.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple


class Operation(NamedTuple):
    kind: str  # the HLO opcode
    cycles: int  # 0: no estimate
    scope: str  # of the source, as in jit(f)/layers/while/body/linear
    # computations that it runs; those of a fusion are part of its own cycles
    calls: tuple[str, ...] = ()
    condition: str | None = None  # of a loop: the computation that decides whether it goes on


class Computation(NamedTuple):
    operations: list[Operation]
    limit: int | None  # iterations of a loop that has this condition; None: known only when it runs


def computations_of(text: str) -> tuple[dict[str, Computation], str]:
    """The computations by name, and the name of the one that runs first."""
    bodies: dict[str, list[str]] = {}
    entry = name = ""
    for line in text.splitlines():
        if header := re.match(r"(ENTRY )?%?([\w.\-]+) .*\{\s*$", line):
            name = header[2]
            bodies[name] = []
            entry = name if header[1] else entry
        elif name:
            bodies[name].append(line)
    return {
        name: Computation(_operations(lines), _limit(lines)) for name, lines in bodies.items()
    }, entry


def _operations(lines: list[str]) -> list[Operation]:
    operations = []
    for line in lines:
        if not (matched := re.match(r"\s+(?:ROOT )?%[\w.\-]+ = .*? ([\w\-]+)\(", line)):
            continue
        kind = matched[1]
        calls = list[str]()
        if kind in ("while", "call", "conditional"):
            calls = re.findall(r"(?:body|to_apply)=%?([\w.\-]+)", line)
            for branches in re.findall(r"branch_computations=\{([^}]*)\}", line):
                calls += [branch.strip().lstrip("%") for branch in branches.split(",")]
        cycles = re.search(r'"estimated_cycles":"(\d+)"', line)
        scope = re.search(r'op_name="([^"]*)"', line)
        condition = re.search(r" condition=%?([\w.\-]+)", line)
        operations.append(
            Operation(
                kind,
                int(cycles[1]) if cycles else 0,
                scope[1] if scope else "",
                tuple(calls),
                condition and condition[1],
            )
        )
    return operations


def _limit(lines: list[str]) -> int | None:
    """N of a condition `index < N` with a constant N."""
    constants = dict(re.findall(r"%([\w.\-]+) = s32\[\]\S* constant\((\d+)\)", "\n".join(lines)))
    root = re.search(r"ROOT .* compare\(%[\w.\-]+, %([\w.\-]+)\), direction=LT", "\n".join(lines))
    return int(constants[root[1]]) if root and root[1] in constants else None


def cycles_of(text: str, iterations: Mapping[str, float]) -> float:
    """Expected cycles of a program.  `iterations`: of loops whose scope ends with a key; other
    loops run as often as their condition says, or once if it does not.  Of a conditional's branches
    the dearest counts."""
    computations, entry = computations_of(text)

    def total(name: str) -> float:
        cycles = 0.0
        for operation in computations[name].operations:
            inner = [*map(total, operation.calls)]
            if operation.condition is not None:
                limit = computations[operation.condition].limit
                times = next(
                    (n for end, n in iterations.items() if operation.scope.endswith(end)),
                    limit or 1,
                )
                cycles += times * sum(inner)
            else:
                cycles += max(inner, default=operation.cycles)
        return cycles

    return total(entry)


def kernel_calls(text: str) -> int:
    """Calls of Pallas kernels in the text; one in a loop's body counts once."""
    return text.count('custom_call_target="tpu_custom_call"')


def sends(text: str) -> bool:
    """Whether devices send one another anything."""
    return bool(
        re.search(
            r" (?:all-[\w\-]+|reduce-scatter|collective-[\w\-]+|async-collective[\w\-]*)\(", text
        )
    )
