"""The HTML page of one or several runs, from headline to single examples.

Arrives: `Run`s.  Leaves: the text of an HTML file.  It deliberately computes no score.
"""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from miron_jax.errors import printable
from miron_jax.report.compare.table import comparison_lines, composite_rows, task_rows
from miron_jax.report.figures.all import trained_of
from miron_jax.report.html.curves import panels_of
from miron_jax.report.html.examples import examples_of
from miron_jax.report.html.head import (
    MOST_PINNED,
    Against,
    against_of,
    card_of,
    sentences_of,
)
from miron_jax.report.html.matrix import matrix_of
from miron_jax.report.html.offline import json_in_html, offline_page
from miron_jax.report.html.pictures import pictures_of
from miron_jax.report.html.prompts import DataDir
from miron_jax.report.tables.notes import notes_of
from miron_jax.report.tables.robustness import robustness_lines, robustness_rows
from miron_jax.results.document import plain
from miron_jax.results.records import TaskResult
from miron_jax.results.run_folder import Run

_SETTINGS = ("model", "dtype", "limit", "max_length", "seed")
_SPEED = (
    "requests", "unique_tokens", "plain_tokens", "wall_seconds", "device_seconds",
    "compile_seconds", "tokens_per_second",
)  # fmt: skip


def page_of(runs: Sequence[Run], data_dir: DataDir = ()) -> str:
    """In ASCII, which browsers decode six times as fast: other characters are references to them.

    `data_dir`: where the data for whole prompts lie, if not where the runs read them.  Raises
    InputError if samples are missing.
    """
    examples = examples_of(runs, data_dir)
    besides = against_of(runs)
    trained = trained_of(runs)
    curves = panels_of(runs, trained)
    text = offline_page(
        "page.html.j2",
        ("page.css",),
        ("shared.js", "page.js", "curves.js", "examples.js"),
        title=" and ".join(printable(run.label) for run in runs),
        sentences=[list(sentences_of(runs, beside)) for beside in besides],
        cards=[card_of(run, besides, trained.get(run.label, {})) for run in runs],
        pictures=pictures_of(runs),
        most_pinned=MOST_PINNED,
        comparisons=[[*map(_compared, beside.values())] for beside in besides],
        matrix=matrix_of(runs, besides, trained),
        curves=curves and json_in_html(curves),
        notes=_notes(runs),
        robustness=[section for run in runs for section in _robustness(run, len(runs) > 1)],
        index=json_in_html(examples.index),
        chunks=examples.chunks,
        rules=[
            {"name": printable(name), "fields": list(_rules(task))}
            for name, task in _all_tasks(runs).items()
        ],
        runs=[{"label": printable(run.label), "fields": list(_facts(run))} for run in runs],
    )
    return text.encode("ascii", "xmlcharrefreplace").decode()


def _notes(runs: Sequence[Run]) -> list[str]:
    notes = dict[str, None]()
    for run in runs:
        notes |= dict.fromkeys([*notes_of(run.result), run.unfinished])
    return [*map(printable, filter(None, notes))]


def _compared(against: Against) -> dict[str, Any]:
    """The comparison, or the sentence that says why there is none."""
    title, comparison, why_not = against
    if comparison is None:
        return {"title": title, "head": (), "rows": (), "lines": (why_not,)}
    head, *rows = task_rows(comparison)
    _, *more = composite_rows(comparison)
    wide = [[name, "composite", "", *cells[:5], "", cells[5], ""] for name, *cells in more]
    return {
        "title": title,
        "head": head,
        "rows": [*rows, *wide],
        "lines": [*map(printable, comparison_lines(comparison))],
    }


def _robustness(run: Run, is_labelled: bool) -> Iterator[dict[str, Any]]:
    """A section for each task that tells how its questions are worded."""
    for name, task in run.tasks.items():
        report = task.robustness
        if report:
            head, *rows = robustness_rows(report)
            label = f" ({run.label})" if is_labelled else ""
            yield {
                "title": printable(f"{name}: {report.main}{label}"),
                "head": head,
                "rows": [[*map(printable, row)] for row in rows],
                "lines": [*map(printable, robustness_lines(task))],
            }


def _all_tasks(runs: Sequence[Run]) -> dict[str, TaskResult]:
    return {name: task for run in reversed(runs) for name, task in run.tasks.items()}


def _rules(task: TaskResult) -> Iterator[tuple[str, str]]:
    """What a score of the task depends on."""
    facts = {
        "kind": task.kind,
        "main": task.main,
        "limit": task.limit,
        "licence": task.licence,
        "citation": task.citation,
        **{f"data, {name}": value for name, value in plain(task.data).items()},
        **task.profile,
    }
    for name, value in facts.items():
        if value not in (None, "", (), []):
            yield name, printable(_as_text(value))


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    """Model, environment and speed."""
    result = run.result
    yield "folder", printable(run.folder)
    facts = [(name, result.config.get(name)) for name in _SETTINGS]
    checkpoint = plain(result.checkpoint)
    facts += [("checkpoint's folder", checkpoint.pop("folder", None)), *checkpoint.items()]
    facts += plain(result.environment).items()
    facts += [(name, plain(getattr(result.speed, name))) for name in _SPEED]
    for name, value in facts:
        if value not in (None, "", [], {}):
            text = f"{value:.4g}" if isinstance(value, float) else _as_text(value)
            if text:
                yield name.replace("_", " "), printable(text)
    check = result.self_check
    if math.isfinite(check.largest):
        yield (
            "self-check",
            f"largest difference {check.largest:.1e} nats, allowed {check.tolerance:g}",
        )


def _as_text(value: Any) -> str:
    """A mapping as `name value, name value`, without what has none."""
    if isinstance(value, dict):
        known = {name: each for name, each in value.items() if each not in (None, "", [], {})}
        return ", ".join(f"{name} {_as_text(each)}" for name, each in known.items())
    return value if isinstance(value, str) else json.dumps(value)
