"""Tables of people's work: TSV or CSV, of any tool or of a page of this package.

Arrives: a file.  Leaves: its header and lines.  It deliberately does not know what columns mean,
but for two that a page writes: `PAGE:id`, and `PAGE:check` of the line's cells with their columns'
names, by which columns or cells that were moved apart are found, in whatever order they stand.
"""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

from miron_jax.errors import InputError
from miron_jax.files.regular import read_regular

DELIMITERS = "\t;,|"
PAGE = "PAGE:id"
CHECK = "PAGE:check"


def read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """(header, lines by column).  The delimiter is the one with most occurrences in the header; a
    line that repeats the header, as in files that were joined, is none.  Raises InputError."""
    content = read_regular(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {number}: byte 0x{content[error.start]:02x} is not UTF-8, expected one "
            "encoding throughout: convert the file, such as by iconv -f cp1251 -t utf-8"
        ) from None
    first = text.partition("\n")[0]
    delimiter = max(DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(reader, None)
        if not header:
            raise InputError(f"{path} is empty, expected a header line and one answer a line")
        if twice := [name for name in header if header.count(name) > 1]:
            raise InputError(
                f"{path}: the header names {twice[0]} twice, expected every column once"
            )
        lines = []
        for fields in reader:
            if not fields or fields == header:
                continue
            if len(fields) != len(header):
                raise InputError(
                    f"{path}, line {reader.line_num}: {len(fields)} fields, the header has "
                    f"{len(header)}: quote fields that hold the delimiter or a line break"
                )
            line = dict(zip(header, fields, strict=True))
            if CHECK in line and line[CHECK] != check_of(line.items()):
                raise InputError(
                    f"{path}, line {reader.line_num}: {CHECK} is {line[CHECK]!r:.20}, expected "
                    f"{check_of(line.items())}, as columns or cells were moved or changed after "
                    f"the page wrote them: export again, or remove the column {CHECK}"
                )
            lines.append(line)
    except csv.Error as error:
        raise InputError(
            f"{path}, line {reader.line_num}: {error}; expected fields in balanced double quotes"
        ) from None
    for line in lines:
        if PAGE in line and line[PAGE] != lines[0][PAGE]:
            raise InputError(
                f"{path} joins the work of pages {lines[0][PAGE]:.20} and {line[PAGE]:.20}, "
                "expected one page's: give each page's file to a call"
            )
    return header, lines


def check_of(cells: Iterable[tuple[str, str]]) -> str:
    """Of a line's cells (column, text) but the check itself, as people.js computes it."""
    total = 0
    for name, text in cells:
        if name != CHECK:
            total += crc32(f"{name}\0{text}".encode())
    return f"{total % 2**32:08x}"
