"""The page of a human baseline: what people score, how sure that is, and by how much agreement.

Arrives: a `Baseline`.  Leaves: the text of an HTML file.  It deliberately computes nothing.
"""

from typing import TYPE_CHECKING

from markupsafe import Markup

from miron_jax.errors import printable
from miron_jax.humans.baseline import Baseline
from miron_jax.report.html.offline import offline_page
from miron_jax.report.html.pictures import Picture, inline_svg, style
from miron_jax.report.tables.humans import (
    AGREEMENT,
    PROCEDURE,
    agreement_rows,
    baseline_lines,
    procedure_rows,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def humans_page(measured: Baseline, title: str) -> str:
    """One HTML file without a script."""
    picture = _picture_of(measured)
    return offline_page(
        "humans.html.j2",
        ("page.css",),
        (),
        title=printable(title),
        answer=_answer(measured),
        picture=picture and Picture(Markup(picture.svg), picture.caption),
        tables={
            "Labels": (PROCEDURE, [*procedure_rows(measured)]),
            "Agreement": (AGREEMENT, [*agreement_rows(measured)]),
        },
        lines=[*map(printable, baseline_lines(measured))],
    )


def _answer(measured: Baseline) -> str:
    accuracy = measured.a.accuracy
    if accuracy is None:
        return f"{measured.a.labelled} of {measured.items} items have a label; none is judged."
    low, high = accuracy.ci95
    return (
        f"People are right in {accuracy.value:.3f} of {accuracy.n} labels ({low:.3f} to "
        f"{high:.3f}, 95 %), by procedure A, which labels {measured.a.labelled} of "
        f"{measured.items} items."
    )


def _picture_of(measured: Baseline) -> Picture | None:
    """The accuracy by the votes that a label needs; None: fewer than two points are known."""
    known = [each for each in measured.by_agreement if each.accuracy is not None]
    if len(known) < 2:
        return None
    caption = "Accuracy (with 95 % intervals) and coverage by the equal votes that a label needs."
    with style():
        return Picture(inline_svg(_figure_of(measured), caption), caption)


def _figure_of(measured: Baseline) -> "Figure":
    from matplotlib.figure import Figure

    from miron_jax.report.figures.drawing import color

    figure = Figure(figsize=(5.0, 2.8), layout="constrained")
    axes = figure.subplots()
    curve = measured.by_agreement
    axes.plot(
        [each.votes for each in curve],
        [each.coverage for each in curve],
        color=color(1),
        linestyle="--",
        label="coverage",
    )
    for each in curve:
        if each.accuracy is not None and each.ci95 is not None:
            low, high = each.ci95
            reach = [[each.accuracy - low], [high - each.accuracy]]
            axes.errorbar(each.votes, each.accuracy, reach, fmt="o", color=color(0), capsize=2)
    axes.plot([], [], "o", color=color(0), label="accuracy")
    axes.set_xticks([each.votes for each in curve])
    axes.set_xlabel("equal votes needed")
    axes.set_ylim(0, 1.02)
    axes.legend(fontsize=8, loc="lower left")
    return figure
