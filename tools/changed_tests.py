"""Which tests does a change reach?  Prints test files for `make check`.

    python tools/changed_tests.py             # the test files that the change reaches
    python tools/changed_tests.py --changed   # the changed Python files, for a type checker

Changed is what differs from the merge base with origin/main (main where there is none), committed
or not.  Reached are changed test files, and those that import a changed module, or a module that
imports it: imports are read from the source, also those within functions.  A conftest.py reaches
all tests below it.  Another file counts as a change of the Python files that name it, or where none
does, of those in the nearest folder above it.  What hangs on more distant imports is left to CI.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDERS = ("miron_jax", "kernels", "tasks", "tests", "benchmarks", "tools")
READ_BY_NEIGHBOURS = FOLDERS[:4]  # where a file that no source names is read by those beside it


def main() -> None:
    changed = changed_files()
    if "--changed" in sys.argv[1:]:
        print("\n".join(sorted(name for name in changed if name.endswith(".py"))))
        return
    sources = [path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in sources}
    names = {module_name(path) for path in sources}
    imported = {path: imports_of(text, names) for path, text in texts.items()}
    touched = {path for file in changed for path in python_of(REPOSITORY / file, texts)}
    modules = {module_name(path) for path in touched}
    near = modules | {
        module_name(path)
        for path, imports in imported.items()
        if imports & modules and not is_test(path)
    }
    tests = [
        path
        for path, imports in imported.items()
        if is_test(path) and (path in touched or imports & near or below_conftest(path, touched))
    ]
    print("\n".join(sorted(str(path.relative_to(REPOSITORY)) for path in tests)))


def git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def changed_files() -> set[str]:
    """Files, from the repository's root, that are there now."""
    base = git("merge-base", "HEAD", "origin/main") or git("merge-base", "HEAD", "main")
    names = [
        *git("diff", "--name-only", base).splitlines(),
        *git("ls-files", "--others", "--exclude-standard").splitlines(),
    ]
    return {name for name in names if (REPOSITORY / name).is_file()}


def python_of(file: Path, texts: Mapping[Path, str]) -> Iterable[Path]:
    """The Python files whose behaviour a file is part of."""
    if file.suffix == ".py":
        return [file]
    name = re.compile(rf"""["'/]{re.escape(file.name)}["']""")
    naming = [path for path, text in texts.items() if name.search(text)]
    if naming or file.relative_to(REPOSITORY).parts[0] not in READ_BY_NEIGHBOURS:
        return naming
    nearest = next(folder for folder in file.parents if any(folder.glob("*.py")))
    return nearest.glob("*.py")


def below_conftest(test: Path, touched: set[Path]) -> bool:
    return any(folder / "conftest.py" in touched for folder in test.parents)


def is_test(path: Path) -> bool:
    return path.name.startswith("test_")


def module_name(path: Path) -> str:
    """kernels/a/b.py -> miron_jax.kernels.a.b, as it is imported; a package's __init__ has the
    package's name."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    parts = ("miron_jax", *parts) if parts[0] in ("kernels", "tasks") else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(text: str, names: set[str]) -> set[str]:
    """The modules of this project that a source imports anywhere."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules & names


if __name__ == "__main__":
    main()
