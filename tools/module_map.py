"""Writes docs/modules.md: each folder's docstring, and the first sentence of each module's.

    python tools/module_map.py

Arrives: the folders of the package.  Leaves: the page.  It deliberately knows no stage: the table
in docs/design.md gives their order.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "modules.md"
SENTENCE_END = re.compile(r"(?<=[.?!])\s+(?=[A-Z(`])")
OPENING = """# Modules

Every folder with its docstring, and every module with the first sentence of its own, in the order
of the data ([design](design.md)).
`python tools/module_map.py` writes this page.
"""


def module_map() -> str:
    """The page; a stage's folder stands before the folders in it."""
    design = (REPOSITORY / "docs" / "design.md").read_text(encoding="utf-8")
    stages = [f"miron_jax/{stage}" for stage in re.findall(r"^\| `(\w+)` \|", design, re.MULTILINE)]
    inner = [REPOSITORY / top for top in (*stages, "kernels", "tasks")]
    folders = [REPOSITORY / "miron_jax"]
    folders += [
        init.parent
        for top in inner
        for init in sorted(top.rglob("__init__.py"), key=lambda init: init.parent)
    ]
    return OPENING + "".join(line + "\n" for folder in folders for line in section(folder))


def section(folder: Path) -> Iterator[str]:
    """A heading, what the folder is for, and its modules."""
    yield from (
        "",
        f"## {folder.relative_to(REPOSITORY)}/",
        "",
        docstring_of(folder / "__init__.py"),
        "",
    )
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            yield f"- `{path.name}`: {first_sentence(path)}"


def first_sentence(path: Path) -> str:
    return SENTENCE_END.split(" ".join(docstring_of(path).partition("\n\n")[0].split()))[0]


def docstring_of(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


if __name__ == "__main__":
    PAGE.write_text(module_map(), encoding="utf-8")
