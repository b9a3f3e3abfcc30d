"""Consoles and tables: no number is ever cut, however narrow the screen.

Arrives: rows of cells.  Leaves: a rich console that makes all text printable, tables that fit it.
It deliberately does not know what it prints.

A screen has a width where it is a terminal, or where COLUMNS names one; any other output (a file, a
pipe) takes all columns, and only texts are wrapped there.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from miron_jax.errors import printable

WIDE = 160  # columns of text where no screen says how wide it is
LEAST_TEXT = 24  # columns of a text that wraps
LEAST_NAMES = (12, 8)  # columns of a folded name, before and after numbers are folded
_FRAME = 3  # columns beside each cell: two of padding and a line
_AT_SPACES = re.compile(r"(?<= )")
_IN_NAMES = re.compile(r"(?<=[ /_:,])")


def console(stderr: bool = False) -> Console:
    """A console on standard output, or on standard error."""
    output = _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    output.is_screen = output.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    if not output.is_screen:
        output.width = WIDE
    return output


class _Console(Console):
    """rich passes all plain text through `render_str`: lines, cells, headings and titles."""

    is_screen = True

    def render_str(self, text: str, **style: Any) -> Text:
        return super().render_str(printable(text), **style)

    def print(self, *objects: Any, soft_wrap: bool | None = None, **more: Any) -> None:
        """Crops nothing.  `soft_wrap`: lines of text, which a screen breaks at spaces and nowhere
        else."""
        if soft_wrap and self.is_screen:
            objects = tuple(map(self._wrapped, objects))
        super().print(*objects, soft_wrap=soft_wrap, **{"crop": False, **more})

    def _wrapped(self, line: Any) -> Any:
        if not isinstance(line, str):
            return line
        return "\n".join(_folded(printable(line), self.width, _AT_SPACES, cuts=False))


@dataclass(slots=True)
class _TableRow:
    cells: tuple[str, ...]
    style: str | None
    ends_section: bool


@dataclass(slots=True)
class NumberTable:
    """Rows under headings: names, then numbers, aligned to the right, then texts, which wrap.

    A narrow screen first breaks headings, then takes away columns of `gives_way`, those without a
    value first, then folds names, then numbers at their spaces ("0.1 to 0.2").  A line below says
    what is not shown.
    """

    names: Sequence[str]
    numbers: Sequence[str]
    texts: Sequence[str] = ()
    # Headings, the least important column first; those of a tuple leave together.
    gives_way: Sequence[str | tuple[str, ...]] = ()
    title: str | None = None
    rows: list[_TableRow] = field(default_factory=list)

    def add_row(self, *cells: str, style: str | None = None, end_section: bool = False) -> None:
        self.rows.append(_TableRow(tuple(map(printable, cells)), style, end_section))

    def add_section(self) -> None:
        """A line below the last row."""
        if self.rows:
            self.rows[-1].ends_section = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_screen = getattr(console, "is_screen", True)
        widths, natural = self._widths(options.max_width, is_screen)
        yield from console.render(
            self._drawn(widths), options.update(width=max(options.max_width, _sum(widths)))
        )
        hidden = [heading for i, heading in enumerate(self._headings) if i not in widths]
        headings = dict.fromkeys(filter(self._has_values, hidden))
        if headings:
            left_out = (
                f"not shown at {options.max_width} columns: {', '.join(headings)}; "
                f"COLUMNS={natural} shows all"
            )
            yield Text(printable(left_out))

    @property
    def _headings(self) -> list[str]:
        return [*self.names, *self.numbers, *self.texts]

    def _widths(self, width: int, is_screen: bool) -> tuple[dict[int, int], int]:
        """Columns that are shown -> their widths, as wide as a screen of this width allows; the
        width that shows all."""
        headings = self._headings
        of_names = range(len(self.names))
        of_texts = range(len(headings) - len(self.texts), len(headings))
        natural = {
            i: max(cell_len(heading), self._longest(i, cell_len))
            for i, heading in enumerate(headings)
        }
        widths = dict(natural)
        for i in of_texts:
            widths[i] = min(natural[i], LEAST_TEXT)
        if is_screen:
            if _sum(widths) > width:
                for i in range(of_texts.start):
                    widths[i] = max(_longest_word(headings[i]), self._longest(i, cell_len))
            groups = [(each,) if isinstance(each, str) else each for each in self.gives_way]
            for leaving in sorted(groups, key=lambda names: any(map(self._has_values, names))):
                if _sum(widths) > width:
                    widths = {i: size for i, size in widths.items() if headings[i] not in leaving}
            names = [i for i in of_names if i in widths]
            _shrink(widths, names, LEAST_NAMES[0], width)
            if _sum(widths) > width:
                for i in widths.keys() & {*range(of_names.stop, of_texts.start)}:
                    widths[i] = max(_longest_word(headings[i]), self._longest(i, _longest_word))
            _shrink(widths, names, LEAST_NAMES[1], width)
        for i in of_texts:
            if i in widths:
                widths[i] = min(natural[i], widths[i] + max(0, width - _sum(widths)))
        return widths, _sum(natural)

    def _has_values(self, heading: str) -> bool:
        cells = (pair for row in self.rows for pair in zip(self._headings, row.cells, strict=False))
        return any(name == heading and cell.strip("- ") for name, cell in cells)

    def _longest(self, column: int, length: Callable[[str], int]) -> int:
        """The largest length of a column's cells."""
        cells = (row.cells[column] for row in self.rows if column < len(row.cells))
        return max(map(length, cells), default=1)

    def _drawn(self, widths: dict[int, int]) -> Table:
        table = Table(header_style="bold", title=self.title, title_justify="left")
        of_numbers = range(len(self.names), len(self.names) + len(self.numbers))
        for i, width in widths.items():
            heading = "\n".join(_folded(self._headings[i], width, _AT_SPACES))
            table.add_column(heading, no_wrap=True, justify="right" if i in of_numbers else "left")
        for row in self.rows:
            cells = []
            for i, width in widths.items():
                breaks = _IN_NAMES if i < len(self.names) else _AT_SPACES
                cells.append(
                    "\n".join(_folded(row.cells[i], width, breaks)) if i < len(row.cells) else ""
                )
            table.add_row(*cells, style=row.style, end_section=row.ends_section)
        return table


def table_of(
    names: Sequence[str],
    numbers: Sequence[str],
    texts: Sequence[str] = (),
    gives_way: Sequence[str | tuple[str, ...]] = (),
) -> NumberTable:
    return NumberTable(names, numbers, texts, gives_way)


def _sum(widths: dict[int, int]) -> int:
    """Columns of a whole table."""
    return sum(width + _FRAME for width in widths.values()) + 1


def _shrink(widths: dict[int, int], names: Sequence[int], least: int, width: int) -> None:
    """Make the widest names narrower, to no less than `least`, until the table fits."""
    for i in sorted(names, key=lambda i: -widths[i]):
        excess = _sum(widths) - width
        if excess > 0:
            widths[i] = min(widths[i], max(least, widths[i] - excess))


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=1)


def _folded(text: str, width: int, breaks: re.Pattern[str], cuts: bool = True) -> Iterator[str]:
    """Lines of at most `width` columns, broken behind what `breaks` names.  `cuts`: longer pieces
    are broken anywhere."""
    for line in text.split("\n"):
        before = ""
        for piece in breaks.split(line):
            if before and cell_len(before + piece.rstrip()) > width:
                yield before.rstrip()
                before = ""
            before += piece
            if cuts and cell_len(before.rstrip()) > width:
                *whole, before = chop_cells(before, width)
                yield from whole
        yield before.rstrip()
