"""The plan of a run on screen.

Arrives: the totals of a planned run.  Leaves: lines on standard output.  It deliberately does not
know devices: its time is for a stated rate.
"""

import timeit
from collections import Counter
from collections.abc import Mapping

import numpy as np

from miron_jax.config import RunConfig
from miron_jax.evaluation.records import Inputs
from miron_jax.evaluation.task_kinds.interface import LoadedTask
from miron_jax.evaluation.task_kinds.kinds import kind_of
from miron_jax.planning.request_batches import Totals
from miron_jax.report.tables.console import console, table_of
from miron_jax.results.run_folder import Earlier
from miron_jax.statistics.paired import detectable

# of two models' results on an example; checkpoints of one run are alike, other models less
CORRELATION = 0.5
WORST_DEVIATION = 0.5  # of a right or wrong, at one half


def print_plan(inputs: Inputs, totals: Totals) -> None:
    """Print requests, tokens, rows, programs, FLOPs, and their time at this host's NumPy matmul
    rate."""
    out = console()
    for name, path in inputs.missing.items():
        out.print(f"{name} is left out: {path} is missing", soft_wrap=True)
    padding = 100 * (totals.padded_tokens / max(1, totals.unique_tokens) - 1)
    shared = totals.plain_tokens / max(1, totals.unique_tokens)
    rate = host_matmul_rate()
    rows = ", ".join(f"{count} x {length}" for length, count in sorted(totals.lengths.items()))
    texts = sum(kind_of(source.task).generates for source in inputs.sources)
    out.print(f"tasks          {len(inputs.sources)}", soft_wrap=True)
    if texts:
        line = f"               {texts} of them generate texts, which are not planned here"
        out.print(line, soft_wrap=True)
    controls = ""
    if totals.control_tokens:
        without = totals.unique_tokens - totals.control_tokens
        times = totals.unique_tokens / max(1, without)
        controls = f"; {without} without --controls, which costs {times:.2f} times as many"
    draws = ""
    if totals.without_draws is not None:
        times = totals.unique_tokens / max(1, totals.without_draws)
        draws = (
            f"; {totals.without_draws} without --fewshot_draws, which costs {times:.2f} times as "
            "many"
        )
    cut = f", {totals.truncated} of them cut to the length limit" if totals.truncated else ""
    for line in (
        f"requests       {totals.requests}{cut}",
        f"plain tokens   {totals.plain_tokens} (one row a request)",
        f"unique tokens  {totals.unique_tokens} ({shared:.2f} times fewer){controls}{draws}",
        f"rows           {totals.rows} (rows x tokens: {rows})",
        f"row places     {totals.padded_tokens} ({padding:.1f} % padding)",
        f"programs       {len(totals.lengths)}",
        f"scored tokens  {totals.edges} from {totals.parents} places",
        f"useful FLOPs   {totals.useful_flops:.3e}",
        f"estimated time {totals.useful_flops / rate:.0f} s at {rate / 1e9:.0f} GFLOP/s, this "
        "host's NumPy float32 matmul",
    ):
        out.print(line, soft_wrap=True)


def print_detectable(
    inputs: Inputs, config: RunConfig, earlier: Mapping[str, Earlier] | None
) -> None:
    """Print, for each task, the smallest true difference that its examples find four times in five
    at a level of 5 %."""
    out = console()
    for name, path in inputs.missing.items():
        out.print(f"{name} is left out: {path} is missing", soft_wrap=True)
    if earlier is not None and (
        absent := [each.task.name for each in inputs.sources if each.task.name not in earlier]
    ):
        out.print(
            f"--against has not scored {', '.join(absent)}: {WORST_DEVIATION:g} is taken there",
            soft_wrap=True,
        )
    known = {name: each.values for name, each in (earlier or {}).items()}
    columns = ("n", "deviation", f"correlation {CORRELATION:g}", "independent")
    table = table_of(("task",), columns, gives_way=("deviation", "independent"))
    for source in inputs.sources:
        task = source.task
        n = _num_examples(source, config.limit)
        values = np.asarray([*known.get(task.name, {}).values()], np.float64)
        values = values[~np.isnan(values)]
        deviation = float(values.std(ddof=1)) if len(values) > 1 else WORST_DEVIATION
        paired = detectable(deviation, n, CORRELATION)
        independent = detectable(deviation, n, 0.0)
        table.add_row(task.name, str(n), f"{deviation:.3f}", f"{paired:.4f}", f"{independent:.4f}")
    out.print(table)
    out.print(
        "the difference of two models' means over the same examples that is found four times in "
        f"five (level 5 %), if an example's results of both correlate by {CORRELATION:g}, and if "
        "they are independent; deviation of an example: from --against where given, else "
        f"{WORST_DEVIATION:g}, the largest of a right or wrong",
        soft_wrap=True,
    )


def _num_examples(source: LoadedTask, limit: int | None) -> int:
    """Examples that run: of tasks whose categories count separately, the limit is each
    category's."""
    if limit is None:
        return len(source.examples)
    if source.task.profile.categories != "macro":
        return min(limit, len(source.examples))
    categories = Counter(each.category for each in source.examples)
    return sum(min(limit, count) for count in categories.values())


def host_matmul_rate() -> float:
    """FLOP/s of a square NumPy float32 matmul, best of five."""
    size = 1024
    left = np.random.default_rng(0).standard_normal((size, size), np.float32)
    return 2 * size**3 / min(timeit.repeat(lambda: np.matmul(left, left), repeat=5, number=1))
