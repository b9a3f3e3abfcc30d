"""The page by keys alone: Tab comes to every control, each is seen when it is reached, letters walk the examples."""

from pathlib import Path
from typing import Any

import pytest

from tests.report.test_report_page import COMPOSITES, Page, reported
from tests.support.run_folders import samples_of, write_run, write_training_run

pytestmark = pytest.mark.slow

# What can be clicked, chosen or written in, and is on the page; curves have one stop a panel, whose points arrow keys reach.
CONTROLS = "a[href], button, input, select, summary, [tabindex='0']"
REACHABLE = """(selector) => [...document.querySelectorAll(selector)]
  .filter((each) => each.checkVisibility({ visibilityProperty: true }) && !each.closest("[tabindex='-1']"))
  .map((each, i) => { each.dataset.walk = i; return [String(i), each.outerHTML.slice(0, 90)]; })"""
FOCUSED = """() => {
  const each = document.activeElement, style = getComputedStyle(each), box = each.getBoundingClientRect();
  const circle = each.querySelector("circle");
  const isSeen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0
    || each.closest("#list") && getComputedStyle(each).backgroundColor !== "rgba(0, 0, 0, 0)"
    || circle && getComputedStyle(circle).stroke !== "none";
  const isInside = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
  return each === document.body ? null : [each.dataset.walk ?? "", each.outerHTML.slice(0, 90), Boolean(isSeen), isInside];
}"""


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Page:
    samples = {"own/x": samples_of([1, 0] * 3, bits=[1.0] * 6), "own/y": samples_of([0, 1])}
    runs = [
        write_training_run(tmp_path / "a", {1: samples, 2: samples}),
        write_run(tmp_path / "b", samples, COMPOSITES),
    ]
    return Page(browser, reported(tmp_path / "out.html", *runs))


def stop_of(page: Any, key: str) -> Any:
    page.keyboard.press(key)
    return page.evaluate(FOCUSED)


def test_tab_comes_to_every_control_and_shows_where_it_is(opened: Page) -> None:
    page = opened.page
    opened.wait_for("Question 0?")
    page.keyboard.press("j")
    page.locator("#detail .tokens").first.wait_for()
    controls = dict(page.evaluate(REACHABLE, CONTROLS))
    assert len(controls) > 40
    page.evaluate("document.activeElement.blur()")
    stops = [*iter(lambda: stop_of(page, "Tab"), None)]
    missed = {text for walked, text in controls.items() if walked not in {stop[0] for stop in stops}}
    assert missed == set()
    assert [text for _, text, is_seen, _ in stops if not is_seen] == []
    assert [text for _, text, _, is_inside in stops if not is_inside] == []
    back = [stop_of(page, "Shift+Tab") for _ in stops]
    assert [stop[0] for stop in back] == [stop[0] for stop in reversed(stops)]
    assert opened.errors == []


def test_keys_open_what_a_click_opens(opened: Page) -> None:
    """A task by Enter on its name, its wrong examples by Enter on the link, an example by Enter on its row; j, k and /."""
    page = opened.page
    opened.wait_for("Question 0?")
    name = page.locator("#all summary").nth(1)
    name.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")  # the row's address
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Those it gets wrong"
    page.keyboard.press("Enter")
    opened.wait_for("1 of 2 examples")
    assert page.locator("#task option:checked").text_content() == "own/y"
    page.locator("#list button").first.focus()
    page.keyboard.press("Enter")
    opened.wait_for("own/y, row 0")
    page.locator("#which").focus()
    page.keyboard.type("all")
    page.keyboard.press("Escape")
    opened.wait_for("2 of 2 examples")
    page.locator("#list").focus()
    for key, row in (("j", 0), ("j", 1), ("k", 0)):
        page.keyboard.press(key)
        opened.wait_for(f"own/y, row {row}")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("question 1")
    opened.wait_for("1 of 2 examples")
    assert opened.errors == []
