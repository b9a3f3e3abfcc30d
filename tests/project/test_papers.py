"""The pages about the project itself: the module map is current, and the short pages stay short."""

import re

from tests.conftest import REPOSITORY
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
