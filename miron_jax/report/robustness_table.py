"""How far scores hang on wording, on screen.

Arrives: a run's results.json.  Leaves: a table a task on standard output.  It deliberately computes nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from miron_jax.errors import InputError
from miron_jax.files.readers import parse_json
from miron_jax.report.console import console


def print_robustness(folder: Path) -> None:
    """Every task that tells of clusters and traits.  Raises InputError where the folder holds no such run."""
    path = folder / "results.json"
    try:
        tasks = parse_json(path.read_bytes())["tasks"]
        told = {name: task for name, task in tasks.items() if task.get("robustness")}
        tables = [(_table(name, task["robustness"]), _lines(task)) for name, task in told.items()]
    except FileNotFoundError:
        raise InputError(f"--output={folder} holds no results.json: name the folder of a finished run") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(
            f"{path} is no results.json of this version ({error!s:.120}): name the folder of a finished run"
        ) from None
    if not tables:
        raise InputError(
            f"{path}: none of its tasks tells how its questions are worded: run eval-ua-tion or eval-ua-tion-gen"
        )
    out = console()
    for table, lines in tables:
        out.print(table)
        for line in lines:
            out.print(line, soft_wrap=True)


def _table(name: str, own: Mapping[str, Any]) -> Table:
    table = Table(title=f"{name}: {own['main']}", header_style="bold", title_justify="left")
    table.add_column("by", no_wrap=True)
    for column in ("", "n", own["main"], "stderr", f"of {own['cluster']} clusters", "clusters"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    table.add_row("all", "", *_numbers(own["metrics"][own["main"]]))
    for trait, values in own["by"].items():
        table.add_section()
        for place, (value, entry) in enumerate(values.items()):
            table.add_row("" if place else trait, value, *_numbers(entry))
    return table


def _numbers(entry: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = [entry[name] for name in ("value", "stderr", "cluster_stderr")]
    return str(entry["n"]), *("" if own is None else f"{own:.3f}" for own in numbers), str(entry["clusters"])


def _lines(task: Mapping[str, Any]) -> list[str]:
    own, lines = task["robustness"], []
    others = [(name, entry) for name, entry in own["metrics"].items() if name != own["main"]]
    shown = [f"{name} {entry['value']:.3f}" for name, entry in others if entry["value"] is not None]
    if shown:
        lines.append(f"beside it: {', '.join(shown)}")
    if own.get("template_spread") is not None:
        lines.append(f"between its best and its worst template: {own['template_spread']:.3f}")
    if swapped := own.get("swapped"):
        lines.append(
            f"the same answer with the options in both orders: {swapped['consistency']:.3f} of {swapped['pairs']} pairs"
        )
    if reference := task.get("reference"):
        lines.append("published: " + ", ".join(f"{model} {value:.2f}" for model, value in reference.items()))
    baselines = [f"{name} {value:.3f}" for name, value in task["baselines"].items() if value is not None]
    return [*lines, f"baselines: {', '.join(baselines)}"]
