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

from miron_jax.runtime.hlo import Computation, Operation, program_of, runs_of


def cycles_of(text: str, iterations: Mapping[str, float]) -> float:
    """Expected cycles of a call of a program.  `iterations`: see `runs_of`."""
    runs = runs_of(program_of(text), iterations, _cycles)
    return sum(_cycles(run.operation, run.inside) * run.times for run in runs)


def _cycles(operation: Operation, _: Computation) -> float:
    cycles = re.search(r'"estimated_cycles":"(\d+)"', operation.line)
    return int(cycles[1]) if cycles else 0


def kernel_calls(text: str) -> int:
    """Calls of Pallas kernels in the text; one in a loop's body counts once."""
    return text.count('custom_call_target="tpu_custom_call"')
