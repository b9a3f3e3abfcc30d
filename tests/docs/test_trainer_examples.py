"""One file a trainer: short, in the table of the page, and the loops of one's own run here where Grain is installed."""

import ast
import re

import pytest

from tests.conftest import REPOSITORY
from tests.support import processes

FOLDER = REPOSITORY / "examples" / "trainers"


def test_each_is_short_and_stands_in_the_table() -> None:
    page = (REPOSITORY / "docs" / "training_loop.md").read_text()
    listed = re.findall(r"^\|[^|]+\| `(\w+\.py)`", page, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in FOLDER.glob("*.py"))
    for name in listed:
        text = (FOLDER / name).read_text()
        ast.parse(text)
        assert len(text.splitlines()) <= 60, name
        assert ".after_step(" in text, name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nnx_loop.py", "linen_loop.py"])
def test_a_loop_of_ones_own_runs(name: str, tmp_path: object) -> None:
    pytest.importorskip("grain")
    code = f"import runpy; runpy.run_path({str(FOLDER / name)!r}, run_name='__main__')"
    printed = processes.run("-c", code, cwd=tmp_path, check=True).stdout
    assert re.findall(r"^step (\d+): loss", printed, re.MULTILINE) == ["20", "40"]
