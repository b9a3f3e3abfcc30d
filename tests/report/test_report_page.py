"""The report in a browser: it draws, sorts, filters and opens examples without an error, and no text of a run does anything.

Needs Chromium and Playwright.  A screenshot of each colour scheme is kept in SCREENSHOTS.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from miron_jax.report.html.page import page_of
from miron_jax.results.run_folder import read_runs
from tests.conftest import REPOSITORY
from tests.support.own_task import CHOICE, prompts_of, run_of
from tests.support.run_folders import NASTY, composite, hostile_run, samples_of, write_run, write_training_run

pytestmark = pytest.mark.slow

SCREENSHOTS = Path(os.environ.get("MIRON_SCREENSHOTS") or REPOSITORY / ".pytest_cache" / "screenshots")


COMPOSITES = {
    "an overall number with a long name, in bits a byte": composite(
        0.5, {f"own/task_with_a_long_name_{i}": 1 / 9 for i in range(9)}, complete=True
    )
}


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
            "[...document.querySelectorAll('#all tbody:not(.suite) tr')].filter(row => row.offsetParent !== null)"
            ".map(row => [...row.cells].filter(cell => !cell.hidden)"
            ".map(cell => cell.innerText.replace(/\\s+/g, ' ').trim()))"
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
    assert page.locator("#panels figure").count() == 1  # of the training run
    # 0.3, then 0.4: a line from the bottom to the top.
    assert page.locator("#all svg.steps polyline").get_attribute("points") == "0.0,11.0 60.0,1.0"
    assert page.locator("#all svg.steps").get_attribute("aria-label") == "over the steps: 0.3000, 0.4000"
    assert page.locator("#comparison tbody tr:visible").count() == 4  # with the step before, and with the first run
    # The matrix sorts within a suite; what has no value comes last.
    heads = page.locator("#all thead button:visible").all_text_contents()
    assert heads == ["task", "metric", "n", "a", "less a step 10", "b", "less a"]
    x, y = opened.rows()
    assert x[:4] == ["own/x #", "accuracy", "30", "0.4000"]
    assert (x[5], x[6][:9], y[2:6]) == ("0.5000", "+0.1000 (", ["600", "none", "", "1.0000"])
    for button, expected in (("b", "xy"), ("b", "yx"), ("a", "xy"), ("a", "xy"), ("n", "xy"), ("n", "yx")):
        page.locator("#all thead button:visible").nth(heads.index(button)).click()
        assert [row[0] for row in opened.rows()] == [f"own/{task} #" for task in expected], button
    for wanted, task in (("bits", "x"), ("OWN/Y", "y")):  # other metrics count
        page.locator("#filter").fill(wanted)
        assert [row[0] for row in opened.rows()] == [f"own/{task} #"]
        assert page.locator("#shown").text_content() == "1 of 2"
    # Examples: the wrong ones of x in the first run, one opened.
    page.locator("#which").select_option("0")
    assert page.locator("#count").text_content() == "18 of 30 examples"
    page.locator("#list button").nth(1).click()
    opened.wait_for("own/x, row 13")
    assert page.locator("#detail pre").first.text_content() == "Question 13?\nAnswer:"
    assert page.locator("#detail .tokens span").count() == 8, "of two choices in two runs"
    rows = [row.split("nats")[0] for row in page.locator("#detail .options tr").all_text_contents()]
    assert rows == ["choiceab", "A yes 50 % chosen-2.5 ", "Bright answer no 50 %-2.5 "]
    # Another task, scrolled to its end: a chunk that was not inflated before.
    page.locator("#which").select_option("")
    page.locator("#task").select_option(label="own/y")
    page.evaluate("document.getElementById('list').scrollTop = 1e9")
    opened.wait_for("599Question 599? Answer:")
    dark = Page(browser, file, color_scheme="dark")
    dark.wait_for("Question 0?")
    for scheme, each in (("light", opened), ("dark", dark)):
        each.page.screenshot(path=SCREENSHOTS / f"report-{scheme}.png", full_page=True)
        assert each.errors == []
    backgrounds = [each.page.evaluate("getComputedStyle(document.body).backgroundColor") for each in (opened, dark)]
    assert backgrounds[0] != backgrounds[1]


def test_the_matrix_opens_by_keys_or_a_link_and_is_copied(browser: Any, tmp_path: Path) -> None:
    """Forty of 80 become 70, which is beyond chance; 20 of 40 become 21, which is not."""
    folders = []
    for name, right in (("first", (40, 20)), ("second", (70, 21))):
        tasks = {f"own/{task}": samples_of([1] * n + [0] * (size - n), bits=[1.0] * size)
                 for task, n, size in zip(("x|", "y"), right, (80, 40), strict=True)}  # fmt: skip
        of_task = {"baselines": {"random": 0.25, "human": 0.9}}
        folders.append(write_run(tmp_path / name, tasks, of_task=of_task))
    opened = Page(browser, reported(tmp_path / "out.html", *folders), permissions=["clipboard-read", "clipboard-write"])
    page = opened.page
    changes = page.locator("#all tr:not(.more) td.better:visible, #all tr:not(.more) td.worse:visible")
    changed = [text.split() for text in changes.all_text_contents()]
    assert [(words[0], words[-1]) for words in changed] == [("+0.3750", "better")]
    page.locator("#pin").select_option(label="second")
    turned = [text.split() for text in changes.all_text_contents()]
    assert [(words[0], words[-1]) for words in turned] == [("-0.3750", "worse")]
    assert [*map(abs, map(float, (turned[0][1][1:], turned[0][3][:-1])))] == [
        *map(abs, map(float, (changed[0][3][:-1], changed[0][1][1:])))
    ], "the interval's ends change places"
    heads = page.locator("#all thead th:visible").all_text_contents()
    assert heads == ["task", "metric", "n", "first", "less second", "second"]
    assert page.locator(".sum:visible").all_text_contents() == [
        "first against second: 1 of 2 compared tasks moved by more than chance: 0 better, 1 worse."
    ]
    page.locator("#pin").select_option(label="first")
    # Of 80, 40 are Wilson's 0.3930 to 0.6070: from 0.143 / 0.75 to 0.357 / 0.75 of the way from chance to 1.
    first = page.locator("#all svg").first
    assert first.get_attribute("aria-label") == "0.3930 to 0.6070; chance 0.2500; people 0.9000"
    assert [round(float(first.locator("rect").get_attribute(name))) for name in ("x", "width")] == [19, 29]
    # A name opens the other metrics, a link too.
    more = page.locator("#all .more")
    assert [more.nth(i).is_visible() for i in range(2)] == [False, False]
    page.locator("#all summary").first.press("Enter")
    page.locator("#all th a").nth(1).click()
    assert [more.nth(i).is_visible() for i in range(2)] == [True, True]
    assert page.url.endswith("#own/y")
    assert "bits_per_byte" in more.first.text_content()
    page.locator("#filter").fill("own/x")
    for form, start in (("Markdown", "| task | metric | n | first |"), ("CSV", '"task","metric","n","first"')):
        page.get_by_role("button", name=f"Copy as {form}").click()
        page.locator("#copied:not(:empty)").wait_for()
        head, *lines = page.evaluate("navigator.clipboard.readText()").split("\n")
        assert head.startswith(start)
        assert len(lines) == (2 if form == "Markdown" else 1)
        assert lines[-1].startswith("| own/x\\| | accuracy | 80 | 0.5000 |" if form == "Markdown" else '"own/x|","acc')
    assert opened.errors == []


def test_the_filter_reads_what_is_shown(browser: Any, tmp_path: Path) -> None:
    """Of the runs a and b, both right in 10 of 20, and c, right in all: only c differs beyond chance, from a and b."""
    rights = {"a": [1, 0] * 10, "b": [1, 0] * 10, "c": [1] * 20}
    folders = [write_run(tmp_path / name, {"own/x": samples_of(right)}) for name, right in rights.items()]
    page = Page(browser, reported(tmp_path / "out.html", *folders)).page
    for pinned, wanted, count in (("a", "better", 1), ("c", "better", 0), ("c", "worse", 1), ("c", "examples", 0)):
        page.locator("#pin").select_option(label=pinned)
        page.locator("#filter").fill(wanted)
        assert page.locator("#shown").text_content() == f"{count} of 1", (pinned, wanted)


def test_curves_change_their_axes_and_lead_to_a_checkpoint(browser: Any, tmp_path: Path) -> None:
    """Run a has steps 0, 10, 100 and 1000, run b steps 10 and 1000; the page has the examples of both runs' last."""
    folders = []
    for name, steps in (("a", (0, 10, 100, 1000)), ("b", (10, 1000))):
        samples = {step: {"own/x": samples_of([1] * (i + 3) + [0] * 7), "own/y": samples_of([1] * 9)}
                   for i, step in enumerate(steps)}  # fmt: skip
        folders.append(write_training_run(tmp_path / name, samples))
    opened = Page(browser, reported(tmp_path / "out.html", *folders))
    page = opened.page
    points = page.locator("#panels figure").first.locator("a circle")

    def places() -> list[int]:
        """Of a's points, per cent of the way from the first to the last."""
        x = [float(points.nth(i).get_attribute("cx") or "") for i in range(4)]
        return [round(100 * (each - x[0]) / (x[3] - x[0])) for each in x]

    assert points.count() == 6
    # 0 lies a sixth of the way from 10 to 1000 below 10.
    assert places() == [0, 14, 57, 100]
    page.locator("#axis").select_option("linear")
    assert places() == [0, 1, 10, 100]
    # A step of b has twice the tokens of one of a; nothing is drawn of a run that they are not known of.
    page.locator("#over").select_option("training tokens")
    assert points.count() == 0
    assert "name them for a and b." in (page.locator("#unknown").text_content() or "")
    page.get_by_label("Tokens a step of a").fill("1000")
    assert points.count() == 4
    page.get_by_label("Tokens a step of b").fill("2000")
    assert places() == [0, 1, 10, 100]
    assert page.locator("#panels text").filter(has_text="2M").count() == 2
    # By keys: along a to its last point, down to b's, to its first.
    page.locator("#panels figure").first.locator("a[tabindex='0']").last.focus()
    said = []
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowLeft"):
        page.keyboard.press(key)
        said.append(page.evaluate("document.activeElement.getAttribute('aria-label')").partition(" (")[0])
    assert said == [
        "a, step 10, 10K tokens: 0.3636", "a, step 100, 100K tokens: 0.4167", *["a, step 1000, 1M tokens: 0.4615"] * 2,
        "b, step 1000, 2M tokens: 0.3636", *["b, step 10, 20K tokens: 0.3000"] * 2,
    ]  # fmt: skip
    assert "0.3000 (0.1078 to 0.6032)" in (page.locator("#hint").text_content() or "")
    # It opens its task, though the filter hides it, and says where the examples are; those of a last step are here.
    page.locator("#filter").fill("own/y")
    page.locator("#panels figure").first.locator("a[aria-label^='b, step 10,']").press("Enter")
    assert page.url.endswith("#own/x")
    point = page.locator("#all #point")
    assert point.is_visible()
    assert f"miron-jax report {folders[1]}/step_10 --html=FILE" in (point.text_content() or "")
    points.nth(5).scroll_into_view_if_needed()
    box = points.nth(5).bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 14, box["y"] + 4)  # beside the point
    assert (point.text_content() or "").startswith("b, step 1000, 2M tokens: own/x: accuracy 0.3636")
    point.get_by_role("link", name="Its examples").click()
    opened.wait_for("11 of 11 examples")
    assert page.locator("#run option:checked").text_content() == "b"
    assert opened.errors == []


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
    samples = {"own/x": samples_of([1, 0] * 15)}
    runs = [
        write_training_run(tmp_path / "a", {1: samples, 2: samples}),
        write_run(tmp_path / "b", samples, COMPOSITES),
    ]
    page = Page(browser, reported(tmp_path / "out.html", *runs)).page
    page.locator("#list button").first.click()
    page.locator("#detail .wide").wait_for()
    for selector in (".wide", "#list", "#panels svg"):
        assert page.locator(selector).count()
        for i in range(page.locator(selector).count()):
            element = page.locator(selector).nth(i)
            assert element.get_attribute("aria-label"), selector
            assert selector == "#panels svg" or element.get_attribute("tabindex") == "0"


def test_a_row_of_the_list_is_the_question_what_was_chosen_and_what_is_right(browser: Any, tmp_path: Path) -> None:
    shots = "A shot of many words. " * 20
    prompts = [f"{shots}\n\nQuestion one?\nAnswer:", f"{shots}last?\nAnswer:"]
    run = write_run(tmp_path / "run", {"own/x": samples_of([0, 1], prompt=[prompt[-300:] for prompt in prompts])})
    opened = Page(browser, reported(tmp_path / "out.html", run))
    opened.wait_for("last?")
    wrong, right = ([*row.locator("> span").all_text_contents()] for row in opened.page.locator("#list button").all())
    assert wrong == ["✗", "0", "Question one? Answer:", "→ no", "right: yes", ""]
    assert right[2].startswith("… many words. A shot of many words.")
    assert right[2].endswith("many words. last? Answer:")
    assert right[3:] == ["→ no", "", ""]


def test_examples_of_two_runs_are_read_beside_each_other_by_keys(browser: Any, tmp_path: Path) -> None:
    """The second run lacks example 0, asked example 3 otherwise, and is right where the first is wrong in 2 of 5."""
    first = samples_of([1, 0, 0, 1, 1], category=["a", "b", "b", "a", "a"])
    second = samples_of([1, 1, 1, 1, 1])[1:]
    first[1]["metrics"]["choice_margin"], first[4]["metrics"]["choice_margin"] = -3.0, 0.25
    second[2]["prompt_sha256"] = "another"
    second[0]["options"][1] |= {"token_logprobs": [-0.5, None], "token_bytes": [2, 1], "token_ids": [70, 71]}
    second[0]["options"][1] |= {"token_ranks": [3, 4]}
    runs = [write_run(tmp_path / name, {"own/x": each}) for name, each in (("one", first), ("two", second))]
    opened = Page(browser, reported(tmp_path / "out.html", *runs))
    page = opened.page

    def marks_and_rows() -> list[list[str]]:
        return [[*row.locator("> span").all_text_contents()][:2] for row in page.locator("#list button").all()]

    opened.wait_for("Question 4?")
    assert marks_and_rows() == [["✓ ", "0"], ["✗✓", "1"], ["✗✓", "2"], ["✓✓", "3"], ["✓✓", "4"]]
    page.locator("#which").select_option("flipped")
    opened.wait_for("2 of 5 examples")
    for key, row in (("j", 1), ("j", 2), ("j", 2), ("k", 1)):
        page.keyboard.press(key)
        opened.wait_for(f"own/x, row {row}, b")
    right = page.locator("#detail .options tr").nth(2)
    assert right.locator("th").text_content() == "Bright answer"
    assert [cell.split("-")[0] for cell in right.locator("td").all_text_contents()] == [" no", " 50 %", " 50 % chosen"]
    tokens = page.locator("#detail .tokens span")
    assert tokens.all_text_contents()[4:] == ["", "", " n", "o"], "the first run has not kept which letters they are"
    assert tokens.nth(6).get_attribute("title") == "“ n”, -0.5 nats, id 70, rank 3, +1.50 to the run beside"
    assert [tokens.nth(i).get_attribute("class") for i in (6, 7)] == ["gained dearest", None]
    box = page.locator("#detail .tokens").last
    said = box.locator("+ .note")
    assert said.text_content() == "dearest: “ n”, -0.5 nats, id 70, rank 3, +1.50 to the run beside"
    box.focus()
    for key, text in (
        ("Left", "1 of 2: “ n”, -0.5 nats"),
        ("Right", "2 of 2: “o”, no value"),
        ("Right", "2 of 2: “o”"),
    ):
        page.keyboard.press(f"Arrow{key}")
        assert (said.text_content() or "").startswith(f"token {text}"), key
    page.keyboard.press("Tab")
    assert (said.text_content() or "").startswith("dearest: ")
    page.locator("#which").select_option("")
    page.locator("#group").select_option("a")
    page.locator("#order").select_option("ties")
    opened.wait_for("3 of 5 examples")
    assert [row for _, row in marks_and_rows()] == ["4", "0", "3"], "4 is near a tie, the others have no margin"
    page.locator("#list button").nth(2).click()
    opened.wait_for("The two runs asked this example otherwise")
    page.keyboard.press("/")
    page.keyboard.type("question 4")
    opened.wait_for("1 of 5 examples")
    assert [row for _, row in marks_and_rows()] == ["4"]
    page.locator("#search").fill("")
    page.locator("#run").select_option(label="two")
    opened.wait_for("of 4 examples")
    assert page.locator("#beside option").all_text_contents() == ["one", "none"]
    assert opened.errors == []


def test_a_completion_shows_what_it_lacks(browser: Any, tmp_path: Path) -> None:
    written = {"generated": "stone bridge", "ended": "stop", "answer": "stone bridge", "accepted": ["stone ridges"]}
    sample = {**samples_of([0])[0], "options": [], "gold": None, "prediction": None, **written}
    opened = Page(browser, reported(tmp_path / "out.html", write_run(tmp_path / "run", {"own/x": [sample]})))
    opened.wait_for("right: stone ridges")
    opened.page.keyboard.press("j")
    opened.wait_for("generated ✗")
    assert [opened.page.locator(f"#detail {name}").all_text_contents() for name in ("ins", "del")] == [["b"], ["s"]]
    assert opened.errors == []


def test_a_whole_prompt_has_its_shots_folded_and_a_key_opens_them(browser: Any, tmp_path: Path) -> None:
    """Hostile texts as questions, choices and shots: they stay texts."""
    nasty = [text.replace("\x00", "") for text in NASTY]
    rows = [{"q": f"{text} {i}?", "c": [text, "no"], "a": 0} for i, text in enumerate(nasty)]
    keys = f"{CHOICE}num_fewshot: 3\nbefore_shots: {json.dumps(nasty[2])}\n"
    asked = prompts_of(tmp_path, keys, rows)
    more = {"num_fewshot": 3, "prompt_string": nasty[2]}
    run_of(tmp_path, asked, more)
    opened = Page(browser, reported(tmp_path / "out.html", tmp_path / "run"))
    page = opened.page
    opened.wait_for("alert(1)")
    for prompt in asked:
        page.keyboard.press("j")
        opened.wait_for(f"row {prompt.row}")
        fold, question = page.locator("#detail details"), page.locator("#detail > pre")
        assert [question.count(), fold.get_attribute("open")] == [1, None]
        assert question.text_content() == shown(prompt.contexts[0].lstrip("\n"))
        page.keyboard.press("s")
        page.locator("#detail details pre").nth(3).wait_for()
        assert "".join(fold.locator("pre").all_text_contents()) == shown(f"{prompt.preamble}\n\n")
        assert fold.locator("summary").text_content() == "3 few-shot examples before the question"
    page.keyboard.press("s")
    assert not fold.locator("pre").first.is_visible()
    fold.locator("summary").click()
    assert fold.locator("pre").count() == 4, "opened again they are not there twice"
    assert page.locator("#detail b, #detail img, #detail script").count() == 0
    assert opened.errors == []


def shown(text: str) -> str:
    """As the page shows it: control characters by their pictures, marks of direction by one too."""
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", lambda match: chr(0x2400 + (ord(match[0]) & 0x3F)), text)
    return re.sub(r"[\u202a-\u202e\u2066-\u2069]", "\u2423", text)


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
    widths = (
        "[...document.querySelectorAll('#comparison table, #all')].map(table => table.getBoundingClientRect().right)"
    )
    assert max(page.evaluate(widths)) <= 718


def test_a_continuation_has_the_room_of_what_was_not_said(browser: Any, tmp_path: Path) -> None:
    """At 390 pixels its row shows the question and what is right, as a choice's shows what was chosen."""
    asked = [
        {**sample, "gold": None, "prediction": None, "options": sample["options"][:1]} for sample in samples_of([0])
    ]
    run = write_run(tmp_path / "run", {"own/x": asked})
    file = reported(tmp_path / "out.html", run)
    for width in (1280, 390):
        opened = Page(browser, file, viewport={"width": width, "height": 740})
        opened.wait_for("right: yes")
        cells = opened.page.locator("#list button > span:visible")
        assert cells.all_text_contents()[:4] == ["✗", "0", "Question 0? Answer:", "right: yes"]
        tops = opened.page.evaluate("[...document.querySelectorAll('#list button > span')].map(each => each.offsetTop)")
        assert len(set(tops[:4])) == 1, "on one line"
