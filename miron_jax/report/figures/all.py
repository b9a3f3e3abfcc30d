"""Every figure that runs have numbers for, with its name and caption.

Arrives: `Run`s.  Leaves: figures.  It deliberately does not know where they are shown.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from miron_jax.report.figures.cloze import cloze_figure
from miron_jax.report.figures.curves import Point, Steps, curves_figure, points_of_lines
from miron_jax.report.figures.radar import radar_figure, radar_spokes
from miron_jax.report.tables.cloze import cloze_of
from miron_jax.results.run_folder import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Drawn(NamedTuple):
    name: str  # of a file
    figure: "Figure"
    caption: str
    hover: Mapping[str, Sequence[Point]] = MappingProxyType({})  # id of a line -> its points


Trained = Mapping[str, Steps]  # by label of a run


def trained_of(runs: Sequence[Run]) -> Trained:
    """The steps of each run that has several, by its label."""
    steps = {run.label: {step: each.result for step, each in run.steps().items()} for run in runs}
    return {name: results for name, results in steps.items() if len(results) > 1}


def figures_of(runs: Sequence[Run], trained: Trained) -> Iterator[Drawn]:
    """Categories, curves over the steps of training, and MIRON's fragmentation and noise."""
    radar = radar_spokes(runs)
    if len(radar.spokes) > 2:
        yield Drawn("categories", radar_figure(runs, radar.spokes), radar.caption)
    if figure := curves_figure(trained):
        names = " and ".join(trained)
        caption = f"{names}: over the steps of training, with 95 % intervals; chance is dashed"
        yield Drawn("curves", figure, f"{caption}, people are dotted.", points_of_lines(trained))
    for task in cloze_of(runs[0].result):
        if (figure := cloze_figure(runs, task)) is not None:
            caption = f"{task}: by tokens of the target, and what noise in the prefix costs."
            yield Drawn(task.replace("/", "_"), figure, caption)
