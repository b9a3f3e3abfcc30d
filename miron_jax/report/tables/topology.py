"""The plan of a run on TPUs or GPUs that are not here, as a record, as JSON and on screen.

Arrives: `TopologyPlan`.  Leaves: a table on standard output, a JSON object.  It deliberately does
not know how programs are compiled.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

from miron_jax.files.readers import JsonObject
from miron_jax.planning.request_batches import Totals
from miron_jax.report.tables.console import console, table_of
from miron_jax.runtime.chips import BANDWIDTH_SHARE, LAUNCH_SECONDS, MATMUL_SHARE, Gpu, Tpu
from miron_jax.runtime.gpu_kernels import Roofline


class Cycles(NamedTuple):
    cycles: int  # of one call on a TPU, by the compiler's estimate, without kernels


@dataclass(frozen=True, slots=True)
class PlannedProgram:
    """One compiled program."""

    name: str  # what it does, and its sizes
    calls: int  # in a run
    has_kernel: bool  # it calls the attention kernel
    sends: bool  # chips send one another something, which takes time that is not counted
    arguments: int  # bytes of a chip beside the weights: a batch, a cache
    temporaries: int  # bytes of a chip
    outputs: int  # bytes of a chip
    estimate: Cycles | Roofline
    seconds: float  # of one call (cli/topology_costs.py)
    # FLOPs of one call over seconds and peak; None: not known
    peak_share: float | None

    @property
    def needs(self) -> int:
        """Bytes of a chip beside the weights."""
        return self.arguments + self.temporaries + self.outputs

    def json(self) -> JsonObject:
        program = asdict(self)
        return {**program.pop("estimate")._asdict(), **program}


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    topology: str
    chip: Tpu | Gpu
    chips: int  # that the run takes
    mesh: Mapping[str, int]
    sharding: str
    dtype: str
    attention: str
    weights: int  # bytes of a chip
    programs: list[PlannedProgram]
    token_budget: int  # slots of a shard whose programs fit
    not_planned: list[str]  # tasks whose programs may not run
    missing: Mapping[str, str]  # tasks without a data file
    totals: Totals

    @property
    def seconds(self) -> float:
        """Of all programs, one after the other, without load, compilation and the host's work."""
        return sum(program.calls * program.seconds for program in self.programs)

    def json(self) -> JsonObject:
        plan = asdict(self)
        plan["chip"] = {"memory": self.chip.memory, "peak": self.chip.peak, **self.chip._asdict()}
        plan["totals"]["lengths"] = {
            str(length): rows for length, rows in self.totals.lengths.items()
        }
        plan |= {"programs": [program.json() for program in self.programs]}
        return {"estimate": basis_of(self.chip), "seconds": self.seconds, **plan}


def basis_of(chip: Tpu | Gpu) -> str:
    """What the seconds of a plan are made of."""
    if isinstance(chip, Tpu):
        return (
            "compiler's cycles, attention kernels at the peak rate (those of a model of your own "
            "are not counted), no communication between chips; nothing ran"
        )
    return (
        f"rooflines of the compiled kernels: matmuls at {chip.peak / 1e12:.0f} TFLOP/s "
        f"({MATMUL_SHARE:.0%} of the data sheet, as measured on an H200), memory at "
        f"{BANDWIDTH_SHARE:.0%} of the data sheet's {chip.bandwidth / 1e12:.3g} TB/s and "
        f"{1e6 * LAUNCH_SECONDS:.0f} us a launch, both assumed; no communication between GPUs; "
        "nothing ran"
    )


def print_topology_plan(plan: TopologyPlan) -> None:
    out = console()
    for name, path in plan.missing.items():
        out.print(f"{name} is left out: {path} is missing", soft_wrap=True)
    estimates = ("launches", "bound by")
    if isinstance(plan.chip, Tpu):
        estimates = ("cycles",)
    table = table_of(
        ("program", "attention"),
        (
            "calls", "arguments", "temporaries", "outputs", *estimates, "ms a call", "of peak",
            "seconds",
        ),
        gives_way=(
            "outputs", "cycles", "ms a call", "arguments", "attention", "of peak", "launches",
            "temporaries",
        ),
    )  # fmt: skip
    for program in plan.programs:
        table.add_row(
            program.name,
            plan.attention if program.has_kernel else "",
            str(program.calls),
            gigabytes(program.arguments),
            gigabytes(program.temporaries),
            gigabytes(program.outputs),
            *_cells(program.estimate),
            f"{1e3 * program.seconds:.3g}",
            "" if program.peak_share is None else f"{100 * program.peak_share:.0f} %",
            f"{program.calls * program.seconds:.3g}",
        )
    out.print(table)
    needs = max((program.needs for program in plan.programs), default=0)
    mesh = ",".join(f"{axis}={size}" for axis, size in plan.mesh.items() if size > 1)
    totals = plan.totals
    chip = plan.chip
    for line in (
        f"chips          {plan.chips} x {chip.kind} ({plan.topology}), "
        + ("one copy of the weights each" if plan.sharding == "pmap" else f"mesh {mesh}"),
        f"memory a chip  {gigabytes(plan.weights)} weights, {gigabytes(needs)} the largest "
        f"program, of {gigabytes(chip.memory)}",
        f"token budget   --token_budget={plan.token_budget}",
        f"requests       {totals.requests}: {totals.plain_tokens} tokens one row each, "
        f"{totals.unique_tokens} unique, {totals.rows} rows",
        f"time           {plan.seconds:.3g} s on the chips; loading, compiling and the host's work "
        "come on top",
        f"every program above compiles; {basis_of(chip)}; steps as if every text went to its limit",
    ):
        out.print(line, soft_wrap=True)
    if isinstance(chip, Gpu):
        line = "jax takes three quarters of a GPU's memory (XLA_PYTHON_CLIENT_MEM_FRACTION)"
        out.print(line, soft_wrap=True)
    if any(program.sends for program in plan.programs):
        out.print(
            "what chips send to one another is not counted: the times of this mesh are lower "
            "bounds",
            soft_wrap=True,
        )
    for name in plan.not_planned:
        line = f"{name} is not planned: it runs programs, see --allow_code_execution"
        out.print(line, soft_wrap=True)


def _cells(estimate: Cycles | Roofline) -> tuple[str, ...]:
    if isinstance(estimate, Cycles):
        return (f"{estimate.cycles:,}",)
    return f"{estimate.launches:,}", estimate.bound


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.2f} GB"
