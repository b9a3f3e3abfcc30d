"""What XLA's TPU compiler writes into a compiled program: the cycles that it expects, and where its kernels are.

Arrives: compiled HLO text.  Leaves: cycles, counts.  It deliberately does not know which program it is.

The compiler writes `estimated_cycles` beside every fusion, copy and matmul, and nothing beside a Pallas kernel: sums are
estimates of all but the kernels, and no times.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

LOOPS = (
    "while",
    "call",
    "conditional",
)  # operations whose computations run as often as they say; a fusion's are part of it


class Operation(NamedTuple):
    kind: str  # the HLO opcode
    cycles: int  # 0: no estimate
    scope: str  # of the source, as in jit(f)/layers/while/body/linear
    calls: tuple[str, ...]  # computations that it runs


def operations_of(text: str) -> tuple[dict[str, list[Operation]], str]:
    """The operations of each computation, and the name of the first one that runs."""
    computations: dict[str, list[Operation]] = {}
    entry = name = ""
    for line in text.splitlines():
        if header := re.match(r"(ENTRY )?%?([\w.\-]+) .*\{\s*$", line):
            name = header[2]
            computations[name] = []
            entry = name if header[1] else entry
        elif operation := re.match(r"\s+(?:ROOT )?%[\w.\-]+ = .*? ([\w\-]+)\(", line):
            computations[name].append(_operation(operation[1], line))
    return computations, entry


def _operation(kind: str, line: str) -> Operation:
    cycles = re.search(r'"estimated_cycles":"(\d+)"', line)
    scope = re.search(r'op_name="([^"]*)"', line)
    called = re.findall(r"(?:body|to_apply)=%?([\w.\-]+)", line)
    for branches in re.findall(r"branch_computations=\{([^}]*)\}", line):
        called += [branch.strip().lstrip("%") for branch in branches.split(",")]
    calls = tuple(called) if kind in LOOPS else ()
    return Operation(kind, int(cycles[1]) if cycles else 0, scope[1] if scope else "", calls)


def cycles_of(text: str, iterations: Mapping[str, int]) -> int:
    """Expected cycles of a program.  `iterations`: of the loops whose scope ends with a key; others run once.

    Of a conditional's branches the dearest counts.
    """
    computations, entry = operations_of(text)

    def total(name: str) -> int:
        cycles = 0
        for operation in computations[name]:
            inner = [total(called) for called in operation.calls]
            if operation.kind == "while":
                times = next((n for end, n in iterations.items() if operation.scope.endswith(end)), 1)
                cycles += times * sum(inner)
            else:
                cycles += max(inner, default=operation.cycles)
        return cycles

    return total(entry)


def kernel_calls(text: str) -> int:
    """Calls of Pallas kernels in the text; one in a loop's body counts once."""
    return len(re.findall(r'custom_call_target="tpu_custom_call"', text))
