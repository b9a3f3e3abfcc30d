"""The report in a browser: it draws, sorts, filters and opens examples without an error, and no text of a run does anything.

Needs Chromium and Playwright.  A screenshot of each colour scheme is kept in SCREENSHOTS.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from miron_jax.report.html.page import page_of
from miron_jax.results.run_folder import read_runs
from tests.conftest import REPOSITORY
from tests.support.needs import needs
from tests.support.run_folders import NASTY, composite, hostile_run, samples_of, write_run, write_training_run

pytestmark = pytest.mark.slow

playwright: Any = needs("playwright.sync_api")
SCREENSHOTS = Path(os.environ.get("MIRON_SCREENSHOTS") or REPOSITORY / ".pytest_cache" / "screenshots")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


COMPOSITES = {
    "an overall number with a long name, in bits a byte": composite(
        0.5, {f"own/task_with_a_long_name_{i}": 1 / 9 for i in range(9)}, complete=True
    )
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Page:
    """A report that is open, with all that went wrong in it."""

    def __init__(self, browser: Any, file: Path, **options: Any):
        self.page = browser.new_page(**options)
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type != "log" else None)
        self.page.on("request", lambda asked: None if asked.url.startswith("file:") else self.errors.append(asked.url))
        self.page.on("dialog", lambda dialog: (self.errors.append(dialog.message), dialog.dismiss()))
        self.page.goto(file.as_uri())

    def wait_for(self, text: str) -> None:
        """Until the list or the opened example shows this text."""
        self.page.wait_for_function(
            "text => document.getElementById('examples').textContent.includes(text)", arg=text, timeout=20_000
        )

    def rows(self) -> list[list[str]]:
        """Visible rows of the table of tasks."""
        return self.page.evaluate(
            "[...document.querySelectorAll('#all tbody tr')].filter(row => row.offsetParent !== null)"
            ".map(row => [...row.cells].map(cell => cell.textContent))"
        )


def reported(out: Path, *runs: Path) -> Path:
    out.write_text(page_of(read_runs([str(run) for run in runs])))
    return out


def test_a_report_is_drawn_sorted_filtered_and_opened(browser: Any, tmp_path: Path) -> None:
    steps = {step: {"own/x": samples_of([1] * n + [0] * (30 - n), bits=[1.0] * 30)} for step, n in ((10, 9), (20, 12))}
    others = {"own/x": samples_of([1, 0] * 15, bits=[2.0] * 30), "own/y": samples_of([1] * 600)}
    runs = write_training_run(tmp_path / "a", steps), write_run(tmp_path / "b", others)
    file = reported(tmp_path / "out.html", *runs)
    opened = Page(browser, file, color_scheme="light")
    page = opened.page
    assert page.locator("figure svg").count() == 2  # bars; curves of the training run
    assert page.locator("#comparison tbody tr").count() == 4  # with the step before, and with the first run
    # The table: four rows of x, one of y; by value, then backwards; the empty cells of `chance` come last.
    assert [row[0] for row in opened.rows()] == ["own/x", "own/x", "own/x", "own/x", "own/y"]
    for button, column, expected in (
        ("value", 3, ["0.4000", "0.5000", "1.0000", "1.0000", "2.0000"]),
        ("value", 3, ["2.0000", "1.0000", "1.0000", "0.5000", "0.4000"]),
        ("chance", 8, ["0.5000", "0.5000", "0.5000", "", ""]),
    ):
        page.get_by_role("button", name=button).click()
        assert [row[column] for row in opened.rows()] == expected
    page.locator("#filter").fill("OWN/Y")
    assert [row[0] for row in opened.rows()] == ["own/y"]
    assert page.locator("#shown").text_content() == "1 of 5"
    # Examples: the wrong ones of x in the first run, one opened.
    page.locator("#which").select_option("0")
    assert page.locator("#count").text_content() == "18 of 30 examples"
    page.locator("#list button").nth(1).click()
    opened.wait_for("own/x (a), row 13")
    opened.wait_for("right answer, -2.5 nats, 2 tokens")
    assert page.locator("#detail pre").first.text_content() == "Question 13?\nAnswer:"
    assert page.locator("#detail .tokens svg").count() == 4
    # Another task, scrolled to its end: a chunk that was not inflated before.
    page.locator("#which").select_option("")
    page.locator("#task").select_option(label="own/y (b)")
    page.evaluate("document.getElementById('list').scrollTop = 1e9")
    opened.wait_for("599  Question 599? Answer:")
    dark = Page(browser, file, color_scheme="dark")
    dark.wait_for("own/x (a)")
    for scheme, each in (("light", opened), ("dark", dark)):
        each.page.screenshot(path=SCREENSHOTS / f"report-{scheme}.png", full_page=True)
        assert each.errors == []
    backgrounds = [each.page.evaluate("getComputedStyle(document.body).backgroundColor") for each in (opened, dark)]
    assert backgrounds[0] != backgrounds[1]


def test_no_text_of_a_run_does_anything(browser: Any, tmp_path: Path) -> None:
    opened = Page(browser, reported(tmp_path / "out.html", hostile_run(tmp_path / "run")))
    opened.wait_for("alert(1)")
    for i in range(len(NASTY)):
        opened.page.locator("#list button").nth(i).click()
        opened.wait_for(f"row {i}")
    detail = opened.page.locator("#detail").text_content()
    assert "control \u2400\u2407\u241b[31m" in detail  # pictures of control characters
    assert opened.page.locator("script:not([type])").count() == 1
    assert opened.page.locator("#detail b, #detail img, #list b, #list img").count() == 0
    assert opened.errors == []


def test_what_a_run_smuggles_past_the_escaping_would_still_not_run(browser: Any, tmp_path: Path) -> None:
    """The policy alone: a script, a handler and a style that are put into the finished file are refused."""
    file = reported(tmp_path / "out.html", write_run(tmp_path / "run", {"own/x": samples_of([1])}))
    smuggled = "<script>document.title = 'x'</script><img src=x onerror=\"document.title = 'y'\"><main>"
    file.write_text(file.read_text().replace("<main>", smuggled, 1))
    opened = Page(browser, file)
    opened.wait_for("Question 0?")  # the page's own script runs
    assert opened.page.title() == "run"
    assert len(opened.errors) >= 2
    assert all("Content Security Policy" in error or "ERR_" in error for error in opened.errors), opened.errors


def test_keys_reach_what_scrolls_and_pictures_have_words(browser: Any, tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, {"own/x": samples_of([1, 0] * 15)}, COMPOSITES) for name in ("a", "b")]
    page = Page(browser, reported(tmp_path / "out.html", *runs)).page
    for selector in (".wide", "#list", "figure svg"):
        assert page.locator(selector).count()
        for i in range(page.locator(selector).count()):
            element = page.locator(selector).nth(i)
            assert element.get_attribute("aria-label"), selector
            assert selector == "figure svg" or element.get_attribute("tabindex") == "0"


def test_a_row_of_the_list_is_the_question_what_was_chosen_and_what_is_right(browser: Any, tmp_path: Path) -> None:
    shots = "A shot of many words. " * 20
    prompts = [f"{shots}\n\nQuestion one?\nAnswer:", f"{shots}last?\nAnswer:"]
    run = write_run(tmp_path / "run", {"own/x": samples_of([0, 1], prompt=[prompt[-300:] for prompt in prompts])})
    opened = Page(browser, reported(tmp_path / "out.html", run))
    opened.wait_for("last?")
    wrong, right = opened.page.locator("#list button").all_text_contents()
    assert wrong.startswith("✗ 0  Question one? Answer:  →  no  right: yes")
    assert right.startswith("✓ 1  … many words. A shot of many words.")
    assert "many words. last? Answer:  →" in right


def test_a_phone_and_paper(browser: Any, tmp_path: Path) -> None:
    tasks = {f"own/{'long' * 8}{i}": samples_of([1, 0] * 9, bits=[1.0] * 18) for i in range(9)}
    run = write_run(tmp_path / "run", tasks)
    opened = Page(browser, reported(tmp_path / "out.html", run), viewport={"width": 360, "height": 740})
    widths = opened.page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert widths[0] <= widths[1], "nothing but tables and pictures scrolls sideways, within themselves"
    assert opened.page.pdf().startswith(b"%PDF")
    assert opened.errors == []


def test_values_are_in_sight_at_390_pixels_and_a_comparison_fits_on_paper(browser: Any, tmp_path: Path) -> None:
    tasks = {f"own/task_with_a_long_name_{i}": samples_of([1, 0] * 9, bits=[1.0] * 18) for i in range(9)}
    runs = [write_run(tmp_path / name, tasks, COMPOSITES) for name in ("first", "second")]
    page = Page(browser, reported(tmp_path / "one.html", runs[0]), viewport={"width": 390, "height": 740}).page
    ends = "[...document.querySelectorAll('#head strong, #head b, #head dd')].map(e => e.getBoundingClientRect().right)"
    assert max(page.evaluate(ends)) <= 390
    page = Page(browser, reported(tmp_path / "two.html", *runs), viewport={"width": 718, "height": 1000}).page  # A4
    page.emulate_media(media="print")
    widths = "[...document.querySelectorAll('#comparison table')].map(table => table.getBoundingClientRect().right)"
    assert max(page.evaluate(widths)) <= 718
