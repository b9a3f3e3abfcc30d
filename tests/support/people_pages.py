"""Lines as a page of people's work exports them, and a page that is open."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from miron_jax.humans.annotations import Columns
from miron_jax.humans.tables import CHECK, PAGE, check_of


def exported(page: str, worker: str, lines: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The lines with the columns that the page adds; one second lies between two answers."""
    whole = []
    for i, line in enumerate(lines):
        time = f"2026-01-01T00:{i // 60:02}:{i % 60:02}.000Z"
        cells = {**line, Columns().worker: worker, "ASSIGNMENT:started": time, PAGE: page}
        whole.append({**cells, CHECK: check_of(cells.items())})
    return whole


def write_tsv(path: Path, lines: Sequence[Mapping[str, str]], header: Sequence[str] = ()) -> Path:
    names = header or list(lines[0])
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore", delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return path


class OpenPage:
    """A page of people's work that is open, with all that went wrong in it."""

    def __init__(self, context: Any, file: Path):
        self.page = context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on(
            "request", lambda asked: None if asked.url[:5] in ("file:", "blob:") else self.errors.append(asked.url)
        )
        self.page.on("dialog", lambda dialog: (self.errors.append(dialog.message), dialog.dismiss()))
        self.page.goto(file.as_uri())

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def enter(self, annotator: str) -> None:
        self.page.locator("#who").fill(annotator)
        self.press("Enter")

    def said(self, name: str = "said") -> str:
        return self.page.locator(f"#{name}").text_content()

    def download(self, key: str, path: Path) -> Path:
        with self.page.expect_download() as download:
            self.press(key)
        download.value.save_as(path)
        return path
