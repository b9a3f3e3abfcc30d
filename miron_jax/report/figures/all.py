"""Figures that runs have numbers for, with name and caption, beside curves, which pages and papers
have otherwise.

Arrives: `Run`s.  Leaves: figures.  It deliberately does not know where they are shown.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from miron_jax.report.figures.cloze import cloze_figure
from miron_jax.report.figures.cost import cost_figure, costs_of
from miron_jax.report.figures.curves import Steps
from miron_jax.report.figures.radar import radar_figure, radar_spokes
from miron_jax.report.tables.cloze import cloze_of
from miron_jax.results.run_folder import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Drawn(NamedTuple):
    name: str  # of a file
    figure: "Figure"
    caption: str


Trained = Mapping[str, Steps]  # by label of a run


def trained_of(runs: Sequence[Run]) -> Trained:
    """The steps of each run that has several, by its label."""
    steps = {run.label: {step: each.result for step, each in run.steps().items()} for run in runs}
    return {name: results for name, results in steps.items() if len(results) > 1}


def figures_of(runs: Sequence[Run]) -> Iterator[Drawn]:
    """Categories, scores against cost, and MIRON's fragmentation and noise."""
    radar = radar_spokes(runs)
    if len(radar.spokes) > 2:
        yield Drawn("categories", radar_figure(runs, radar.spokes), radar.caption)
    costs = costs_of(runs)
    if costs is not None and costs.differ:
        figure = cost_figure(runs, costs)
        if figure is not None:
            caption = f"Composites and their 95 % intervals against {costs.name}."
            yield Drawn("cost", figure, caption)
    for task in cloze_of(runs[0].result):
        if (figure := cloze_figure(runs, task)) is not None:
            caption = f"{task}: by tokens of the target, and what noise in the prefix costs."
            yield Drawn(task.replace("/", "_"), figure, caption)
