"""Pictures for papers: figures of runs as SVG and PNG files.

Arrives: `Run`s.  Leaves: files' names and contents.  It deliberately computes no score.
"""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from miron_jax.errors import InputError
from miron_jax.report.compare.runs import compare
from miron_jax.report.figures.all import Drawn, Trained, figures_of, trained_of
from miron_jax.report.figures.curves import curves_figure, single_curves
from miron_jax.report.figures.panels import comparison_figure, tasks_figure
from miron_jax.results.run_folder import Run

DPI = 300
_UNSAFE = re.compile(r"[^\w.-]+")
_STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "miron", "text.parse_math": False, "font.size": 8,
    "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


def picture_files(runs: Sequence[Run]) -> Iterator[tuple[str, bytes]]:
    """(name, content) of an SVG and a PNG of each figure that the runs have numbers for."""
    yield from files_of(
        chain(_tasks(runs), _comparisons(runs), figures_of(runs), _curves(trained_of(runs)))
    )


def files_of(drawn: Iterable[Drawn]) -> Iterator[tuple[str, bytes]]:
    """(name, content) of an SVG and a PNG of each figure."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        for name, figure, *_ in drawn:
            for suffix, metadata in (("svg", {"Date": None}), ("png", {})):
                content = io.BytesIO()
                figure.savefig(content, format=suffix, dpi=DPI, metadata=metadata)
                yield f"{name}.{suffix}", content.getvalue()


def _curves(trained: Trained) -> Iterator[Drawn]:
    """All in one figure, and each in its own."""
    if figure := curves_figure(trained):
        yield Drawn("curves", figure, "")
    for name, figure in single_curves(trained):
        yield Drawn(f"curve_{file_name(name)}", figure, "")


def file_name(name: str) -> str:
    """A task's name without what no file may be called."""
    return _UNSAFE.sub("_", name)


def _tasks(runs: Sequence[Run]) -> Iterator[Drawn]:
    if figure := tasks_figure(runs):
        yield Drawn("tasks", figure, "")


def _comparisons(runs: Sequence[Run]) -> Iterator[Drawn]:
    """Of each run with the first, where they can be compared."""
    for i, run in enumerate(runs[1:], 2):
        try:
            figure = comparison_figure(compare(runs[0], run))
        except InputError:
            continue
        if figure:
            yield Drawn("comparison" if len(runs) == 2 else f"comparison_{i}", figure, "")
