"""Which tests does a change reach?  Prints test files for `make check`.

    python tools/changed_tests.py             # the test files that the change reaches
    python tools/changed_tests.py --changed   # the changed Python files, for a type checker

Changed is what differs from the merge base with origin/main (main where there is none), committed
or not.  Reached are changed test files, and those that import a changed module, or a module that
imports it: imports are read from the source, also those within functions.  What hangs on more
distant imports, or on files that are no Python, is left to CI.
"""

import ast
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDERS = ("miron_jax", "kernels", "tasks", "tests", "benchmarks", "tools")


def main() -> None:
    changed = changed_files()
    if "--changed" in sys.argv[1:]:
        print("\n".join(sorted(changed)))
        return
    sources = [path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py")]
    names = {module_name(path) for path in sources}
    imported = {path: imports_of(path, names) for path in sources}
    modules = {module_name(REPOSITORY / file) for file in changed}
    near = modules | {
        module_name(path)
        for path, imports in imported.items()
        if imports & modules and not is_test(path)
    }
    tests = [
        path
        for path, imports in imported.items()
        if is_test(path) and (module_name(path) in modules or imports & near)
    ]
    print("\n".join(sorted(str(path.relative_to(REPOSITORY)) for path in tests)))


def git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def changed_files() -> set[str]:
    """Python files, from the repository's root, that are there now."""
    base = git("merge-base", "HEAD", "origin/main") or git("merge-base", "HEAD", "main")
    names = [
        *git("diff", "--name-only", base).splitlines(),
        *git("ls-files", "--others", "--exclude-standard").splitlines(),
    ]
    return {name for name in names if name.endswith(".py") and (REPOSITORY / name).is_file()}


def is_test(path: Path) -> bool:
    return path.name.startswith("test_")


def module_name(path: Path) -> str:
    """kernels/a/b.py -> miron_jax.kernels.a.b, as it is imported; a package's __init__ has the
    package's name."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    parts = ("miron_jax", *parts) if parts[0] in ("kernels", "tasks") else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, names: set[str]) -> set[str]:
    """The modules of this project that a file imports anywhere."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules & names


if __name__ == "__main__":
    main()
