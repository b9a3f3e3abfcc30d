"""What `miron-jax bench` measured, as records and on screen.

Arrives: `Bench`, the numbers of one machine.  Leaves: two tables on standard output.  It deliberately does not know how
anything was measured.
"""

from dataclasses import dataclass

from rich.table import Table

from miron_jax.report.console import console


@dataclass(frozen=True, slots=True)
class Bucket:
    """Rows of one length."""

    length: int
    rows: int
    rows_a_batch: int  # of all devices
    batches: int
    timed_batches: int
    tokens: int  # unique ones in these rows
    seconds: float  # of all batches, reckoned from the timed ones


@dataclass(frozen=True, slots=True)
class Layout:
    """The same requests, laid out in one way and run."""

    name: str
    seconds: float  # on the devices, compilation apart
    compile_seconds: float
    places: int  # that the device computes, padding and filled-up batches included
    tokens: int  # of them real ones
    share_of_peak: float  # of the useful FLOPs, which are the same for all layouts
    buckets: list[Bucket]


@dataclass(frozen=True, slots=True)
class Bench:
    device: str
    devices: int
    attention: str
    matmul_flops_per_second: float  # one device, a large square product in the run's dtype
    requests: int
    plain_tokens: int  # one row a request
    unique_tokens: int
    useful_flops: float
    tokenize_seconds: float
    plan_seconds: float
    peak_bytes: int | None  # of a device's memory; of the process on CPU
    engine: Layout
    ablations: list[Layout]


def print_bench(found: Bench) -> None:
    """The engine by row length, then every layout beside it."""
    out = console()
    buckets = Table("row length", "rows", "rows a batch", "batches (timed)", "unique tokens", "padding", "tokens/s")
    for column in buckets.columns:
        column.justify = "right"
    for own in found.engine.buckets:
        places = own.batches * own.rows_a_batch * own.length
        buckets.add_row(
            str(own.length), str(own.rows), str(own.rows_a_batch), f"{own.batches} ({own.timed_batches})",
            str(own.tokens), f"{100 * (places / own.tokens - 1):.1f} %", f"{own.tokens / own.seconds:.0f}",
        )  # fmt: skip
    out.print(buckets)
    layouts = Table("layout", "seconds", "times the engine", "places computed", "of peak", "compile seconds")
    for column in layouts.columns[1:]:
        column.justify = "right"
    for own in (found.engine, *found.ablations):
        layouts.add_row(*_row(own, found.engine))
    out.print(layouts)
    memory = "" if found.peak_bytes is None else f"; peak memory {found.peak_bytes / 1e9:.2f} GB"
    for line in (
        f"{found.devices} x {found.device}, {found.matmul_flops_per_second / 1e12:.2f} TFLOP/s a device in a large matmul; "
        f"attention: {found.attention}{memory}",
        f"{found.requests} requests, {found.plain_tokens} tokens one row each, {found.unique_tokens} unique; tokenized in "
        f"{found.tokenize_seconds:.1f} s, planned in {found.plan_seconds:.1f} s",
        "of peak: FLOPs that the answers need (every unique token once, the head where something is scored) over seconds",
    ):
        out.print(line, soft_wrap=True)


def _row(own: Layout, engine: Layout) -> tuple[str, ...]:
    times = f"{own.seconds / engine.seconds:.2f}"
    share, compiling = f"{100 * own.share_of_peak:.1f} %", f"{own.compile_seconds:.1f}"
    return own.name, f"{own.seconds:.1f}", times, str(own.places), share, compiling
