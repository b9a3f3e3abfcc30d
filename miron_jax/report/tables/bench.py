"""What `miron-jax bench` measured, as records and on screen.

Arrives: `Bench`, the numbers of one machine.  Leaves: two tables on standard output.  It
deliberately does not know how anything was measured.
"""

from dataclasses import dataclass

from miron_jax.report.tables.console import console, table_of


@dataclass(frozen=True, slots=True)
class Bucket:
    """Rows of one length."""

    length: int
    rows: int
    rows_a_batch: int  # of all devices
    batches: int
    timed_batches: int
    tokens: int  # unique tokens in these rows
    seconds: float  # of all batches, extrapolated from the timed ones


@dataclass(frozen=True, slots=True)
class Layout:
    """A run of the same requests in one layout."""

    name: str
    seconds: float  # on the devices, without compilation
    compile_seconds: float
    places: int  # slots computed on the device, padding included
    tokens: int  # computed tokens without padding
    # useful FLOPs, the same for all layouts, over seconds and peak; NaN before the peak is known
    share_of_peak: float
    buckets: list[Bucket]


@dataclass(frozen=True, slots=True)
class Bench:
    device: str
    devices: int
    attention: str
    matmul_flops_per_second: float  # one device, a large square product in the run's dtype
    # one device: of that product, or of the fastest layout where it is faster
    peak_flops_per_second: float
    requests: int
    plain_tokens: int  # of one row per request
    unique_tokens: int
    useful_flops: float
    tokenize_seconds: float  # rendering included
    plan_seconds: float
    host_tokens_per_second: float  # unique tokens that the host tokenizes and plans
    device_tokens_per_second: float  # unique tokens that one device computes
    peak_bytes: int | None  # of a device's memory; of the process on CPU
    engine: Layout
    ablations: list[Layout]


def print_bench(bench: Bench) -> None:
    """Prints the engine by row length, then compares every layout with it."""
    out = console()
    numbers = (
        "row length", "rows", "rows a batch", "batches (timed)", "unique tokens", "padding",
        "tokens/s",
    )  # fmt: skip
    buckets = table_of((), numbers, gives_way=("rows a batch", "batches (timed)", "rows"))
    for bucket in bench.engine.buckets:
        slots = bucket.batches * bucket.rows_a_batch * bucket.length
        buckets.add_row(
            str(bucket.length), str(bucket.rows), str(bucket.rows_a_batch),
            f"{bucket.batches} ({bucket.timed_batches})",
            str(bucket.tokens), f"{100 * (slots / bucket.tokens - 1):.1f} %",
            f"{bucket.tokens / bucket.seconds:.0f}",
        )  # fmt: skip
    out.print(buckets)
    numbers = ("seconds", "times the engine", "places computed", "of peak", "compile seconds")
    layouts = table_of(("layout",), numbers, gives_way=("compile seconds", "places computed"))
    for layout in (bench.engine, *bench.ablations):
        layouts.add_row(*_row(layout, bench.engine))
    out.print(layouts)
    memory = "" if bench.peak_bytes is None else f"; peak memory {bench.peak_bytes / 1e9:.2f} GB"
    for line in (
        f"{bench.devices} x {bench.device}, {bench.matmul_flops_per_second / 1e12:.2f} TFLOP/s a "
        f"device in a large matmul; attention: {bench.attention}{memory}",
        f"{bench.requests} requests, {bench.plain_tokens} tokens one row each, "
        f"{bench.unique_tokens} unique; tokenized in {bench.tokenize_seconds:.1f} s, planned in "
        f"{bench.plan_seconds:.1f} s",
        _bound(bench),
        "of peak: FLOPs that the answers need (every unique token once, the head where something "
        f"is scored) over seconds and the peak, {bench.peak_flops_per_second / 1e12:.2f} TFLOP/s a "
        f"device, {_basis(bench)}",
    ):
        out.print(line, soft_wrap=True)


def _bound(bench: Bench) -> str:
    """Whether the host or the devices bound a run, and on how many devices."""
    most = int(bench.host_tokens_per_second / bench.device_tokens_per_second)
    bound = f"up to {most:,} of them bound a run, and beyond that the host does"
    if not most:
        bound = "the host bounds a run on any number of them"
    return (
        f"the host tokenizes and plans {bench.host_tokens_per_second:,.0f} unique tokens a second, "
        f"a device computes {bench.device_tokens_per_second:,.0f}: {bound}"
    )


def _basis(bench: Bench) -> str:
    """Which of the two measurements the peak is."""
    if bench.peak_flops_per_second > bench.matmul_flops_per_second:
        return "of the fastest layout above, which is faster than the large matmul"
    return "of the large matmul"


def _row(layout: Layout, engine: Layout) -> tuple[str, ...]:
    times = f"{layout.seconds / engine.seconds:.2f}"
    share = f"{100 * layout.share_of_peak:.1f} %"
    compiling = f"{layout.compile_seconds:.1f}"
    return layout.name, f"{layout.seconds:.1f}", times, str(layout.places), share, compiling
