"""The pages about the project itself: the module map is current."""

from tests.conftest import REPOSITORY
from tools.module_map import PAGE, module_map


def test_the_module_map_is_current() -> None:
    remedy = "docs/modules.md is stale: python tools/module_map.py writes it again"
    assert PAGE.read_text(encoding="utf-8") == module_map(), remedy
