"""The plan of a run on screen.

Arrives: the totals of a planned run.  Leaves: lines on standard output.  It deliberately does not know devices: its
time is for a stated rate.
"""

import timeit

import numpy as np

from miron_jax.evaluation.records import Inputs
from miron_jax.planning.request_batches import Totals
from miron_jax.report.console import console
from miron_jax.task_kinds.kinds import kind_of


def print_plan(inputs: Inputs, totals: Totals) -> None:
    """Print requests, tokens, rows, programs, FLOPs, and their time at this host's NumPy matmul rate."""
    out = console()
    for name, path in inputs.missing.items():
        out.print(f"{name} is left out: {path} is missing", soft_wrap=True)
    padding = 100 * (totals.padded_tokens / max(1, totals.unique_tokens) - 1)
    shared = totals.plain_tokens / max(1, totals.unique_tokens)
    rate = host_matmul_rate()
    rows = ", ".join(f"{count} x {length}" for length, count in sorted(totals.lengths.items()))
    texts = sum(kind_of(source.task).generates for source in inputs.sources)
    for line in (
        f"tasks          {len(inputs.sources)}",
        *([f"               {texts} of them generate texts, which are not planned here"] if texts else []),
        f"requests       {totals.requests}",
        f"plain tokens   {totals.plain_tokens} (one row a request)",
        f"unique tokens  {totals.unique_tokens} ({shared:.2f} times fewer)",
        f"rows           {totals.rows} (rows x tokens: {rows})",
        f"row places     {totals.padded_tokens} ({padding:.1f} % padding)",
        f"programs       {len(totals.lengths)}",
        f"scored tokens  {totals.edges} from {totals.parents} places",
        f"useful FLOPs   {totals.useful_flops:.3e}",
        f"estimated time {totals.useful_flops / rate:.0f} s at {rate / 1e9:.0f} GFLOP/s, this host's NumPy float32 matmul",
    ):
        out.print(line, soft_wrap=True)


def host_matmul_rate() -> float:
    """FLOP/s of a square NumPy float32 matmul, best of five."""
    size = 1024
    left = np.random.default_rng(0).standard_normal((size, size), np.float32)
    return 2 * size**3 / min(timeit.repeat(lambda: np.matmul(left, left), repeat=5, number=1))
