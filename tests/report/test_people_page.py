"""The page of people's work in Chromium: rows by keys alone, closed, opened again, exported, and read by the commands."""

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from miron_jax.humans.annotations import Columns
from miron_jax.humans.reviews import sheet_of_stories
from miron_jax.humans.sheets import sheet_of_table
from miron_jax.report.html.people import people_page
from miron_jax.tasks.generators.eval_uation_gen.gaps import UserStory
from tests.report.conftest import CHROMIUM
from tests.support.needs import needs
from tests.support.people_pages import OpenPage
from tests.support.run_folders import NASTY
from tests.support.tolerances import FLOAT64
from tests.tasks.eval_uation.test_uation_gen_user import ANIMALS, TALE, of_animal, story_file

pytestmark = pytest.mark.slow


@contextmanager
def profile(folder: Path) -> Iterator[Any]:
    """A browser with a profile on disk: what it keeps outlives it."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with needs("playwright.sync_api").sync_playwright() as started:
        context = started.chromium.launch_persistent_context(
            str(folder), executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield context
        context.close()


def table_of_sums(folder: Path, count: int) -> Path:
    """Sums that are right; each tenth is a control row."""
    path = folder / "sums.tsv"
    lines = [f"{i}+1={i + 1}\t{'' if i % 10 else 'yes'}\n" for i in range(count)]
    path.write_text("INPUT:sum\tGOLDEN:right\n" + "".join(lines))
    return path


def table_of_items(folder: Path) -> Path:
    path = folder / "items.tsv"
    path.write_text("INPUT:item\none\ntwo\n")
    return path


def test_two_hundred_rows_by_keys_closed_opened_exported_and_read(miron: Any, tmp_path: Path) -> None:
    """w1 says yes to all, w2 no to 50 of the 180 rows that are no control rows.  Krippendorff's alpha of 310 yes and 50 no:
    1 - (50 / 180) / (2 * 310 * 50 / (360 * 359)) = -0.1581.  Labels that more than half give: 130 of 180."""
    asked = miron(
        "humans", f"--page={tmp_path / 'p.html'}", f"--annotations={table_of_sums(tmp_path, 200)}", "--answers=yes,no"
    )
    assert (asked.status, asked.err) == (0, "")
    assert asked.out.endswith("p.html: 200 rows, 20 of them control rows, for answers\n")
    with profile(tmp_path / "profile") as context:
        opened = OpenPage(context, tmp_path / "p.html")
        assert "Say who answers" in opened.said()
        opened.page.keyboard.type("w1")
        opened.press("Enter", *["1"] * 90)
        opened.press("k", "k", "2", "k", "1", "j", "2", "k", "Delete")  # back, changed, taken back
        assert opened.said("count") == "90 of 200 done"
        assert opened.errors == []
    with profile(tmp_path / "profile") as context:
        opened = OpenPage(context, tmp_path / "p.html")
        assert (opened.said("count"), opened.page.locator("#who").input_value()) == ("90 of 200 done", "w1")
        assert opened.page.locator("#detail h2").text_content() == "Row 91 of 200"
        opened.press("ArrowDown", "ArrowUp")  # no row: they scroll
        opened.press("k", "1", *["1"] * 110)
        assert opened.said() == "All rows are done: x exports them."
        one = opened.download("x", tmp_path / "w1.tsv")
        opened.press("w")
        opened.page.keyboard.type("w2")
        opened.press("Enter")
        assert opened.said("count") == "0 of 200 done"
        opened.press(*("2" if i % 4 == 1 else "1" for i in range(200)))
        two = opened.download("x", tmp_path / "w2.tsv")
        assert opened.errors == []
    ran = miron("humans", f"--annotations={one},{two}", f"--output={tmp_path / 'out'}")
    assert (ran.status, ran.err) == (0, "")
    people = json.loads((tmp_path / "out/humans.json").read_text())
    assert (people["rows"], people["items"], people["workers"], people["rejected"]) == (400, 180, 2, {})
    assert (people["a"]["labelled"], people["even"], people["controls_a_worker"]) == (130, 50, 20)
    assert people["alpha"] == pytest.approx(1 - (50 / 180) / (2 * 310 * 50 / (360 * 359)), abs=FLOAT64)


def test_a_state_goes_to_another_browser_and_what_is_newer_stays(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "p.html"
    sheet = sheet_of_table(table_of_sums(tmp_path, 5), Columns(), ("yes", "no"))
    file.write_text(people_page(sheet))
    first = OpenPage(browser.new_context(), file)
    first.enter("w1")
    first.press("1", "2")
    state = first.download("s", tmp_path / "state.json")

    def load(opened: OpenPage, path: Path) -> str:
        opened.page.evaluate("() => { document.getElementById('said').textContent = '' }")  # of what was loaded before
        opened.page.locator("#file").set_input_files(path)
        opened.page.wait_for_function("() => document.getElementById('said').textContent")
        return opened.said()

    second = OpenPage(browser.new_context(), file)
    assert load(second, state) == "Loaded 2 rows of w1."
    assert second.said("count") == "2 of 5 done"
    assert load(second, state) == "Loaded 0 rows of w1; the others are newer here."
    other = tmp_path / "other.html"
    other.write_text(people_page(sheet._replace(rows=sheet.rows[:4])))
    third = OpenPage(browser.new_context(), other)
    third.enter("w1")
    assert "another page, which asks other rows: nothing was loaded" in load(third, state)
    changed = json.loads(state.read_text())
    changed["entries"]["1"]["answer"] = "maybe"
    no_row = json.dumps({**changed, "entries": {"length": {}}})
    for broken in (json.dumps(changed), no_row, "no JSON", "[]"):
        (tmp_path / "broken.json").write_text(broken)
        third.enter("w2")
        assert load(second if broken[0] == "{" else third, tmp_path / "broken.json").endswith("nothing was loaded.")
    assert first.errors + second.errors + third.errors == []


def test_a_browser_that_keeps_nothing_says_so_until_a_state_is_saved(browser: Any, tmp_path: Path) -> None:
    """Storage that is full: the warning stays, the page asks before it goes, annotators keep their rows while it is open."""
    file = tmp_path / "p.html"
    file.write_text(people_page(sheet_of_table(table_of_items(tmp_path), Columns(), ("yes", "no"))))
    context = browser.new_context()
    context.add_init_script(
        "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); };"
    )
    opened = OpenPage(context, file)
    opened.enter("w1")
    assert opened.said().startswith("This browser does not keep your answers: save a state (s)")
    opened.press("1")
    assert "does not keep your answers" in opened.said()
    opened.enter("w2")
    opened.enter("w1")
    assert opened.said("count") == "1 of 2 done"
    with opened.page.expect_event("dialog") as asked:
        opened.page.close(run_before_unload=True)
    assert asked.value.type == "beforeunload"
    opened.press("2")
    assert opened.said().endswith("go on. All rows are done: x exports them.")
    opened.download("s", tmp_path / "w1.json")
    assert "does not keep" in opened.said()  # of w2, who did nothing
    opened.enter("w2")
    opened.download("s", tmp_path / "w2.json")
    assert opened.said() == ""
    assert opened.errors == [""]  # the dialog
    with opened.page.expect_event("close"):
        opened.page.close(run_before_unload=True)


def test_two_tabs_of_one_annotator_show_one_text(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "p.html"
    file.write_text(people_page(sheet_of_table(table_of_items(tmp_path), Columns(), ())))
    context = browser.new_context()
    one = OpenPage(context, file)
    one.enter("w1")
    two = OpenPage(context, file)
    one.page.bring_to_front()
    one.page.locator("#text").press_sequentially("of tab one")
    two.page.wait_for_function("() => document.getElementById('text').value === 'of tab one'", timeout=5000)
    two.page.bring_to_front()
    two.page.locator("#text").press_sequentially(", of two")
    one.page.reload()
    one.press("Escape", "k")
    assert one.page.locator("#text").input_value() == "of tab one, of two"
    one.press("Escape", "Delete")
    assert (one.said(), one.said("count")) == ("Delete once more erases what is written.", "1 of 2 done")
    one.press("Delete")
    assert one.said("count") == "0 of 2 done"
    assert one.errors + two.errors == []


def test_delete_takes_back_a_verdict_and_only_twice_a_corrected_story(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "p.html"
    file.write_text(people_page(sheet_of_stories([UserStory(name, TALE, ()) for name in "ab"], "stories")))
    opened = OpenPage(browser.new_context(), file)
    opened.enter("w1")
    opened.page.locator("#text").fill(f"Давно. {TALE}")
    opened.press("Control+Enter", "k", "Delete")
    assert opened.said() == "The verdict is taken back. Delete once more erases what is written."
    assert opened.said("count") == "0 of 2 done, 1 begun"
    assert opened.page.locator("#text").input_value() == f"Давно. {TALE}"
    opened.press("j", "k", "Delete")  # another row in between: the first press again
    assert opened.said("count") == "0 of 2 done, 1 begun"
    opened.press("Delete")
    assert (opened.said("count"), opened.page.locator("#text").input_value()) == ("0 of 2 done", TALE)
    opened.press("g", "k", "Delete")  # nothing is written
    assert opened.said("count") == "0 of 2 done"
    assert opened.errors == []


def test_texts_are_texts_and_come_back_as_they_were_written(browser: Any, tmp_path: Path) -> None:
    """Whatever an item or an answer holds: no script runs, and the export has the same characters."""
    written = [*NASTY, 'a "quoted"\ttab', "two\nlines"]
    table = tmp_path / "nasty.csv"
    with table.open("w", newline="") as lines:
        csv.writer(lines).writerows([["INPUT:text"], *([text] for text in written)])
    file = tmp_path / f"{NASTY[0][1:7]}.html"
    sheet = sheet_of_table(table, Columns(), ())
    file.write_text(people_page(sheet._replace(title=NASTY[0])))
    opened = OpenPage(browser.new_context(), file)
    opened.enter(NASTY[1])
    for text in written:
        opened.page.locator("#text").fill(text)
        opened.press("Enter")
    assert opened.said("count") == f"{len(written)} of {len(written)} done"
    assert opened.page.title() == NASTY[0]
    opened.press("Escape")
    with opened.download("x", tmp_path / "out.tsv").open(newline="") as lines:
        rows = [*csv.DictReader(lines, delimiter="\t", strict=True)]
    assert [row["INPUT:text"] for row in rows] == written
    assert [row["OUTPUT:answer"] for row in rows] == written
    assert opened.errors == []


def test_verdicts_and_corrections_make_another_set(miron: Any, browser: Any, tmp_path: Path) -> None:
    """Of a story mended on the page gaps are made; of those one is refused there."""
    words = [*map(of_animal, ANIMALS)]
    stories = story_file(tmp_path, {"id": "a", "text": TALE, "words": words}, {"id": "b", "text": TALE, "words": words})
    assert miron("tasks", f"--stories={stories}", f"--page={tmp_path / 's.html'}").status == 0
    opened = OpenPage(browser.new_context(), tmp_path / "s.html")
    opened.enter("Оля")
    opened.press("e", "Control+Home")
    opened.page.keyboard.type("Давно це було. ")
    assert opened.said("count") == "0 of 2 done, 1 begun"
    opened.press("Control+Enter", "2", "4")
    assert opened.said("count") == "2 of 2 done"
    opened.press("k")
    assert opened.page.locator("#changes ins").text_content() == "Давно це було. "
    corrections = opened.download("x", tmp_path / "s.tsv")
    flags = (f"--stories={stories}", f"--export={tmp_path / 'out'}", f"--corrections={corrections}")
    ran = miron("tasks", *flags, f"--page={tmp_path / 'g.html'}")
    assert "of 2 stories 1 are usable, 1 unusable (gender 1, short 1), and 0 without a verdict" in ran.err
    rows = [*map(json.loads, (tmp_path / "out/ua_cbt/train.jsonl").read_text().splitlines())]
    assert rows[0]["context"].startswith("Давно це було. Жили собі")
    judged = OpenPage(browser.new_context(), tmp_path / "g.html")
    judged.enter("Оля")
    assert judged.page.locator("#detail .right").text_content() == f"{rows[0]['answer']} (right)"
    judged.press("2", "n")
    judged.page.keyboard.type("і кит теж")
    judged.press("Escape", "j", *["g"] * (len(rows) - 1))
    verdicts = judged.download("x", tmp_path / "g.tsv")
    ran = miron("tasks", *flags, f"--verdicts={verdicts}")
    assert f"of {len(rows)} gaps {len(rows) - 1} are usable, 1 unusable (several 1), and 0 without" in ran.err
    kept = [*map(json.loads, (tmp_path / "out/ua_cbt/train.jsonl").read_text().splitlines())]
    assert kept == rows[1:]
    assert opened.errors + judged.errors == []


@pytest.mark.parametrize(
    ("options", "key", "answer"),
    [("0,1,2", "2", "2"), ("A,B,C", "c", "C"), ("2,5,-2", "c", "-2"), ("yes,no", "2", "no"), ("j,k", "2", "k")],
)
def test_a_key_chooses_the_option_beside_it(browser: Any, tmp_path: Path, options: str, key: str, answer: str) -> None:
    """Options of one letter or digit are their keys; else digits are, or letters where one option is a digit."""
    file = tmp_path / "p.html"
    file.write_text(people_page(sheet_of_table(table_of_items(tmp_path), Columns(), options.split(","))))
    opened = OpenPage(browser.new_context(), file)
    opened.enter("w1")
    opened.press(key)
    assert opened.download("x", tmp_path / "out.tsv").read_text().splitlines()[1].split("\t")[1] == answer
    opened.press("k")
    pressed = opened.page.locator(".pick button[aria-pressed=true]")
    assert pressed.text_content() == f"{key}{answer}"


def test_keys_work_on_a_keyboard_of_another_alphabet(browser: Any, tmp_path: Path) -> None:
    """п is where g is, о where j is: keys count by their place."""
    story = UserStory("a", TALE, ())
    file = tmp_path / "p.html"
    file.write_text(people_page(sheet_of_stories([story, story._replace(name="b")], "stories")))
    opened = OpenPage(browser.new_context(), file)
    opened.enter("w1")
    cast = "([key, code]) => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key, code, bubbles: true}))"
    opened.page.evaluate(cast, ["п", "KeyG"])
    assert opened.said("count") == "1 of 2 done"
    opened.page.evaluate(cast, ["л", "KeyK"])
    assert opened.page.locator("#detail h2").text_content() == "Row 1 of 2"
    assert opened.errors == []
