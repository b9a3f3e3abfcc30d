"""Figures of runs as inline SVG, which takes the page's colours.

Arrives: `Run`s.  Leaves: SVG texts with captions.  It deliberately does not know how a number is
made.
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from miron_jax.errors import printable
from miron_jax.report.figures.all import figures_of
from miron_jax.results.run_folder import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#010203"  # drawn in the text's colour of the page
_SVG = "http://www.w3.org/2000/svg"
_STYLE: Any = {
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none", "svg.hashsalt": "miron", "text.parse_math": False, "font.size": 9,
    "figure.facecolor": "none", "axes.facecolor": "none", "legend.framealpha": 0.0,
    "savefig.facecolor": "none",
    "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


class Picture(NamedTuple):
    svg: str
    caption: str


def pictures_of(runs: Sequence[Run]) -> list[Picture]:
    """The pictures that these runs have numbers for."""
    with style():
        return [
            Picture(inline_svg(drawn.figure, drawn.caption), drawn.caption)
            for drawn in figures_of(runs)
        ]


def style() -> AbstractContextManager[None]:
    """Of all figures that are drawn within it."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def inline_svg(figure: "Figure", caption: str) -> str:
    """The figure as an SVG element without style attributes, which the page's policy forbids.
    `caption`: what screen readers say in its place."""
    picture = io.BytesIO()
    figure.savefig(
        picture,
        format="svg",
        metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
    )
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(picture.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}style", f"{{{_SVG}}}metadata"):
                parent.remove(child)
        for name, value in _declarations(parent.attrib.pop("style", "")):
            parent.set(name, value)
        for name, value in parent.attrib.items():
            if value == INK:
                parent.set(name, "currentColor")
    root.set("stroke-linejoin", "round")
    root.set("stroke-linecap", "butt")
    root.set("role", "img")
    root.set("aria-label", printable(caption))
    return re.sub(r"^<\?xml[^>]*\?>\s*", "", ElementTree.tostring(root, encoding="unicode"))


def _declarations(style: str) -> Iterator[tuple[str, str]]:
    """The properties of a style attribute as attributes; `font: 9px 'Name'` is size and family."""
    for declaration in filter(None, map(str.strip, style.split(";"))):
        name, _, value = map(str.strip, declaration.partition(":"))
        if name == "font":
            size = re.search(r"([\d.]+px)", value)
            yield "font-size", size[1] if size else "9px"
            yield "font-family", "system-ui, sans-serif"
        else:
            yield name, value
