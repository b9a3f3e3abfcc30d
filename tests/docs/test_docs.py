"""Every command and every Python block of README.md and docs/ runs, in order, in a folder with the names that they use.

Commands run at the size of a test: one example a task, two items of a category.  Hub ids and object stores are local.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from miron_jax.cli import COMMANDS
from miron_jax.config import RunConfig
from tests.conftest import REPOSITORY
from tests.support import docs_folder

pytestmark = pytest.mark.slow

PAGES = sorted(
    path
    for path in (REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").glob("*.md"))
    if path.name != "extending.md"  # its files are parts of the tree: test_extending runs them
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w.]+\.(?:py|yaml|json|jsonl|toml|flags))\n")
# What stands for a place that is not here.
STAND_INS = {"HuggingFaceTB/SmolLM2-135M": "MODEL", "gs://BUCKET": "memory://bucket"}
SMALL = {"--limit": "1", "--items_per_category": "2"}
LINKS = re.compile(r"\[[^\]]*\]\(([^)#\s]+)")


def commands_of(block: str) -> Iterator[list[str]]:
    """The words of each command; a comment and a line's continuation are as in a shell."""
    for line in re.sub(r"\\\n\s*", " ", block).splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def made_small(words: list[str]) -> list[str]:
    """`eval` and `bench` at the size of a test."""
    for place, stand_in in STAND_INS.items():
        words = [word.replace(place, stand_in) for word in words]
    known = {word.partition("=")[0] for word in words}
    if words[0] == "plan" and "--allow_changed_data" not in known:
        words = [*words, "--allow_changed_data"]
    if words[0] not in ("eval", "bench"):
        return words
    kept = [word for word in words if word.partition("=")[0] not in SMALL]
    small = [f"{name}={value}" for name, value in SMALL.items()]
    return [*kept, *small, *(["--allow_changed_data"] if "--allow_changed_data" not in known else [])]


@pytest.fixture(scope="session")
def docs_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return docs_folder.write(tmp_path_factory.mktemp("docs"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_as_it_says(page: Path, docs_place: Path, tmp_path: Path, miron: Any, monkeypatch) -> None:
    folder = tmp_path / "here"
    shutil.copytree(docs_place, folder)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("WANDB_MODE", "offline")
    # The files of the folder are not those that were published.
    monkeypatch.setattr("miron_jax.evaluator.RunConfig", partial(RunConfig, allow_changed_data=True))
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    for _, text in blocks:
        if (named := NAMED.match(text)) is not None:
            Path(named[1]).write_text(text, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    before = set(sys.modules)
    for language, text in blocks:
        if language == "python" and not NAMED.match(text):
            exec(compile(text, f"{page.name}", "exec"), names)
        for words in commands_of(text) if language == "bash" else ():
            _run(words, miron)
    for name in set(sys.modules) - before:  # another page has another my_model.py
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def _run(words: list[str], miron: Any) -> None:
    variables = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    program, *rest = words[len(variables) :]
    rest = made_small(rest) if program == "miron-jax" else rest
    if program == "miron-jax" and not variables:
        if "--allow_code_execution" in rest and shutil.which("bwrap") is None:
            rest.append("--allow_unsandboxed_code")
        if any(word.startswith("--topology") for word in rest):
            return  # libtpu is not installed here: tests/tpu/test_tpu_plan.py runs these
        ran = miron(*rest)
        assert ran.status == 0, f"{shlex.join(words)}\n{ran.err[-3000:]}"
        return
    lm_eval = "from miron_jax.lm_eval import main; main()"
    programs = {"python": [], "miron-jax": ["-m", "miron_jax"], "miron-lm-eval": ["-c", lm_eval]}
    assert program in programs, f"{program}: what the pages run is {', '.join(programs)}"
    command = [sys.executable, *programs[program]]
    environment = {**os.environ, **variables, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([*command, *rest], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("page", [*PAGES, REPOSITORY / "docs" / "extending.md"], ids=lambda page: page.stem)
def test_links_lead_to_files(page: Path) -> None:
    for target in LINKS.findall(page.read_text(encoding="utf-8")):
        if not re.match(r"\w+:", target):
            assert (page.parent / target).exists(), f"{page.name}: {target} is not there"


def test_console_blocks_name_what_there_is() -> None:
    """Commands that cannot run in a test: their extras, targets and commands exist."""
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    for page in PAGES:
        for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            for words in commands_of(text) if language == "console" else ():
                for extra in re.findall(r"\[([\w,-]+)\]", " ".join(words)):
                    assert all(f"\n{name} = [" in project for name in extra.split(",")), f"{page.name}: {extra}"
                if words[0] == "make":
                    assert all(re.search(rf"^{word}:", makefile, re.M) for word in words[1:] if word.islower()), words
                if words[0] == "miron-jax":
                    assert words[1] in COMMANDS, words


def test_the_pages_are_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx_book_theme")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    docs = [str(REPOSITORY / "docs"), str(tmp_path / "html")]
    done = subprocess.run([*command, *docs], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = {path.stem for path in (tmp_path / "html").glob("*.html")}
    assert {page.stem for page in (REPOSITORY / "docs").glob("*.md")} <= built
    commands = (tmp_path / "html" / "commands.html").read_text(encoding="utf-8")
    assert all(f"miron-jax {name}" in commands for name in COMMANDS)
    assert "--watch_timeout=NUMBER" in commands
