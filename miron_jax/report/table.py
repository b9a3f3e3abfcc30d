"""The table on screen.

Arrives: results as results.json has them.  Leaves: lines on a rich console.  It deliberately does not know the engine.
"""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from miron_jax.report.cloze import cloze_notes, cloze_table


def print_results(console: Console, results: Mapping[str, Any]) -> None:
    """Tasks with their accuracy and its 95 % interval, then composites, notes and speed."""
    cloze = {name: task for name, task in results["tasks"].items() if task["kind"] == "cloze"}
    choices = {name: task for name, task in results["tasks"].items() if name not in cloze}
    if cloze:
        console.print(cloze_table(cloze))
    if choices:
        console.print(_choices_table(choices))
    for suite in results["suites"].values():
        for name, composite in suite["composites"].items():
            console.print(_composite(name, composite), markup=False, soft_wrap=True)
    for line in (*cloze_notes(cloze), *_notes(results), _speed(results)):
        console.print(line, markup=False, soft_wrap=True)


def _choices_table(tasks: Mapping[str, Any]) -> Table:
    table = Table(title=None, header_style="bold")
    table.add_column("task", no_wrap=True)
    for name in ("n", "accuracy", "95 % interval", "baseline", "by sum", "by bytes", "bits/byte"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, task in tasks.items():
        table.add_row(*_row(name, task))
    return table


def _row(name: str, task: Mapping[str, Any]) -> tuple[str, ...]:
    metrics = task["metrics"]
    low, high = metrics["accuracy"]["ci95"]
    return (
        name,
        str(task["n"]),
        _number(metrics["accuracy"]["value"]),
        f"{_number(low)} - {_number(high)}",
        _number(task["baselines"]["random"]),
        *(_number(metrics.get(key, {}).get("value")) for key in ("accuracy_sum", "accuracy_bytes", "bits_per_byte")),
    )


def _number(value: float | None) -> str:
    return "" if value is None or value != value else f"{value:.3f}"


def _composite(name: str, composite: Mapping[str, Any]) -> str:
    if composite["value"] is None:
        missing = composite["missing"]
        names = f"{', '.join(missing[:4])}{' ...' if missing[4:] else ''}"
        return f"{name}: none, {len(missing)} tasks have no score on published data: {names}"
    low, high = composite["ci95"]
    return f"{name}: {composite['value']:.4f} (95 % interval {low:.4f} to {high:.4f})"


def _notes(results: Mapping[str, Any]) -> list[str]:
    """What a reader has to know about these numbers."""
    tasks = results["tasks"]
    notes = []
    for key, text in (
        ("skipped", "examples without a score: the model answers NaN; no composite counts their tasks"),
        ("tied", "examples where another option equals the chosen one (the first wins)"),
        ("empty_span", "examples with an option that scores no token"),
        ("truncated", "examples cut to the length limit (BOS and early shots go first)"),
        ("inexact_prefix", "examples whose context is no token prefix, scored from the longest common one"),
        ("beyond_trained_length", "examples longer than the length the model was trained at"),
    ):
        if total := sum(task.get(key, 0) - task.get("unspelled", 0) * (key == "skipped") for task in tasks.values()):
            notes.append(f"{total} {text}")
    limits = {task["limit"] for task in tasks.values() if "limit" in task}
    if limits:
        shots = any(task["profile"]["num_fewshot"] for task in tasks.values())
        drawn = "; worked examples are drawn from them too" if shots else ""
        notes.append(f"--limit {limits.pop()}: the first examples of each task or category{drawn}")
    changed = [name for name, task in tasks.items() if task["data"]["state"] == "changed"]
    if changed:
        notes.append(f"not the published data: {', '.join(changed)}")
    return notes


def _speed(results: Mapping[str, Any]) -> str:
    speed, check = results["speed"], results["self_check"]
    padding = 100 * (speed["padded_tokens"] / max(1, speed["unique_tokens"]) - 1)
    rate = speed["tokens_per_second"] or 0.0
    return (
        f"{speed['requests']} requests, {speed['plain_tokens']} tokens one row each, {speed['unique_tokens']} unique, "
        f"{padding:.1f} % padding; {rate:.0f} unique tokens/s on the device; {speed['wall_seconds']:.1f} s in all, of "
        f"them {speed['device_seconds']:.1f} device, {speed['compile_seconds']:.1f} compiling {speed['programs']} "
        f"programs, {speed['load_seconds']:.1f} loading, {check['seconds']:.1f} self-check (largest difference "
        f"{check['largest']:.1e} nats over {check['tokens']} tokens, allowed {check['tolerance']:g})"
    )
