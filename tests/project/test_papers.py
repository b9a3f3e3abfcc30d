"""The pages about the project itself: the module map is current, and the short pages stay short."""

import re

from tests.conftest import REPOSITORY
from tools.changed_tests import below_conftest, python_of
from tools.module_map import PAGE, module_map


def test_the_module_map_is_current() -> None:
    remedy = "docs/modules.md is stale: python tools/module_map.py writes it again"
    assert PAGE.read_text(encoding="utf-8") == module_map(), remedy


def test_build_notes_are_a_page_and_a_decision_is_a_paragraph() -> None:
    notes = (REPOSITORY / "BUILD_NOTES.md").read_text(encoding="utf-8")
    assert notes.count("\n") <= 80
    decisions = (REPOSITORY / "docs" / "decisions.md").read_text(encoding="utf-8")
    paragraphs = re.split(r"\n\n|\n- ", decisions)
    assert [text[:60] for text in paragraphs if len(text.split()) > 120] == []


def test_the_table_of_rules_names_what_is_there() -> None:
    table = (REPOSITORY / "docs" / "design.md").read_text(encoding="utf-8")
    [table] = re.findall(r"\n## Where a rule is decided\n(.*?)\n## ", table, re.DOTALL)
    files = re.findall(r"`([\w/]+\.py)`: ([^|;]+)", table)
    assert len(files) > 20
    for file, names in files:
        [path] = [path for path in (REPOSITORY / "miron_jax" / file, REPOSITORY / file) if path.is_file()][:1]
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^(def|class) {name}\b", text, re.MULTILINE) or name == "Rule", f"{file} has no {name}"


def test_the_pages_only_get_shorter() -> None:
    """A new feature's paragraph takes the place of one that nobody needs any more, or has a reason in its commit."""
    pages = [page for page in (REPOSITORY / "docs").glob("*.md") if page != PAGE]  # the map has a line for each module
    texts = [page.read_text(encoding="utf-8").partition("<!-- made by tools/")[0] for page in pages]
    assert sum(len(text.split()) for text in texts) <= 26_000


def test_a_change_reaches_tests_through_data_files_and_fixtures() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (REPOSITORY / "miron_jax" / "report").rglob("*.py")}
    for file, readers in (
        ("miron_jax/report/html/page.css", ["humans.py", "page.py", "people.py"]),  # its reader names it
        ("tests/golden/core.json", ["data.py", "make.py", "test_golden.py"]),  # nobody does: its neighbours read it
        ("benchmarks/mutants.toml", []),
    ):
        assert sorted(path.name for path in python_of(REPOSITORY / file, texts)) == readers, file
    touched = {REPOSITORY / "tests" / "lm_eval" / "conftest.py"}
    assert below_conftest(REPOSITORY / "tests" / "lm_eval" / "test_lm_eval.py", touched)
    assert not below_conftest(REPOSITORY / "tests" / "cli" / "test_cli.py", touched)
