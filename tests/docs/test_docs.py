"""Every command and every Python block of README.md and docs/ runs, in order, in a folder with the names that they use.

Commands run at 80 columns and the size of a test: one example a task, two items of a category.  Hub ids and object
stores are local.
They run in this process, and a command with variables before it in a process of its own.  A command beside which another
runs the same path is only read: its flags are those of the command, and their values those of a run.
"""

import os
import re
import runpy
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from absl import flags
from rich.cells import cell_len

from miron_jax.cli import COMMANDS
from miron_jax.cli.parse import parse
from miron_jax.cli.run_config import run_config
from miron_jax.config import RunConfig
from miron_jax.lm_eval import main as lm_eval_main
from tests.conftest import REPOSITORY
from tests.support import docs_folder, processes
from tests.support.needs import needs

pytestmark = pytest.mark.slow

PAGES = sorted(
    path
    for path in (REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").glob("*.md"))
    if path.name != "extending.md"  # its files are parts of the tree: test_extending runs them
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w.]+\.(?:py|yaml|json|jsonl|csv|toml|flags))\n")
DATA = (".json", ".jsonl", ".csv")  # without comments: the line with the name is no part of the file
# What stands for a place that is not here.
STAND_INS = {"HuggingFaceTB/SmolLM2-135M": "MODEL", "gs://BUCKET": "memory://bucket"}
SMALL = {"--limit": "1", "--items_per_category": "2"}
LONGEST = "--max_length=512"  # in place of any other number
WIDTH = 80  # columns of the screen
DEMO = ["miron-jax", "eval"]
# Of evaluations into these folders only the flags are read, as of those that name no folder.
READ_OUTPUTS = {
    "own-model", "capitals", "run", "cheap", "uation-text-run", "own-gaps-run",
    "cot-fix-run", "programs-run", "copies", "gen-run", "small-run", "both", "job",
    "scored",
}  # fmt: skip
ran: list[list[str]] = []  # commands of all pages so far
LINKS = re.compile(r"\[[^\]]*\]\(([^)#\s]+)")


def commands_of(block: str) -> Iterator[list[str]]:
    """The words of each command; a comment and a line's continuation are as in a shell."""
    for line in re.sub(r"\\\n\s*", " ", block).splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def made_small(words: list[str]) -> list[str]:
    """`eval` and `bench` at the size of a test; programs are kept where those of all tests are."""
    for place, stand_in in STAND_INS.items():
        words = [word.replace(place, stand_in) for word in words]
    words = [LONGEST if word.startswith("--max_length=") else word for word in words]
    if words[0] in ("eval", "bench", "verify"):
        words.append("--compilation_cache=")
    if words[0] in ("eval", "bench"):
        words = [word for word in words if word.partition("=")[0] not in SMALL]
        words += [f"{name}={value}" for name, value in SMALL.items()]
    if words[0] in ("eval", "bench", "plan") and "--allow_changed_data" not in words:
        words.append("--allow_changed_data")
    return words


def too_wide(printed: str) -> list[str]:
    """Lines that do not fit the screen and could, being more than a word: JSON and an example's tokens are as they are."""
    lines = [line for line in printed.splitlines() if not line.startswith(("{", "  request "))]
    return [line for line in lines if cell_len(line) > WIDTH and len(line.split()) > 1]


def only_read(words: list[str]) -> bool:
    """Whether another command runs the same path, or the same one has run on a page before."""
    if words in ran or words == ["miron-jax", "verify", "--model=MODEL"]:
        return True
    outputs = {word.partition("=")[2] for word in words if word.startswith("--output=")}
    return "eval" in words and words != DEMO and outputs <= READ_OUTPUTS


def read(words: list[str]) -> None:
    """The flags of a command are flags that it has, with values that a run may have."""
    start = words.index("miron-jax") + 1
    if not words[start].startswith("-"):
        flags.FLAGS.unparse_flags()
        parse(words[start], words[start:])
        if words[start] in ("eval", "plan", "bench"):
            run_config()


def small_config(**options: Any) -> RunConfig:
    """A RunConfig at the size of a test.  The files of the folder are not those that were published."""
    smaller: dict[str, Any] = {"limit": 2, "items_per_category": 2}
    return RunConfig(
        **options | {name: size for name, size in smaller.items() if name in options}, allow_changed_data=True
    )


def without_tasks_of_lm_eval(monkeypatch: pytest.MonkeyPatch) -> None:
    """lm-eval reads its own ten thousand tasks for each command and describes the machine: ten processor seconds that say
    nothing of this package."""
    needs("lm_eval")
    from lm_eval.tasks import TaskManager

    monkeypatch.setattr(TaskManager.__init__, "__defaults__", (None, None, False, None))  # include_defaults
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda storage: None)


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
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setattr("miron_jax.evaluator.RunConfig", small_config)
    if page.stem == "lm_eval":
        without_tasks_of_lm_eval(monkeypatch)
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    for _, text in blocks:
        if (named := NAMED.match(text)) is not None:
            file = Path(named[1])
            file.write_text(text[named.end() :] if file.suffix in DATA else text, encoding="utf-8")
            sys.modules.pop(Path(named[1]).stem, None)  # another test has another my_model.py
    names: dict[str, Any] = {"__name__": "__main__"}
    before = set(sys.modules)
    for language, text in blocks:
        if language == "python" and not NAMED.match(text):
            exec(compile(text, f"{page.name}", "exec"), names)
        for words in commands_of(text) if language == "bash" else ():
            if only_read(words):
                read(words)
            else:
                _run(words, miron, monkeypatch)
                ran.append(words)
        for name in set(sys.modules) - before:  # each command is a process: another folder has another my_model.py
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]


def _run(words: list[str], miron: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    program, *rest = words[len(variables) :]
    rest = made_small(rest) if program == "miron-jax" else rest
    if program == "miron-lm-eval":
        monkeypatch.setattr("sys.argv", [program, *rest])
        with warnings.catch_warnings(action="ignore"), pytest.raises(SystemExit) as ended:
            lm_eval_main()
        assert not ended.value.code, shlex.join(words)
    elif program == "miron-jax" and not variables:
        if "--allow_code_execution" in rest and shutil.which("bwrap") is None:
            rest.append("--allow_unsandboxed_code")
        if any(word.startswith("--topology") for word in rest):
            return  # libtpu is not installed here: tests/tpu/test_tpu_plan.py runs these
        ran = miron(*rest)
        assert ran.status == 0, f"{shlex.join(words)}\n{ran.err[-3000:]}"
        assert too_wide(ran.out + ran.err) == [], shlex.join(words)
    elif program == "miron-jax":
        processes.run("-m", "miron_jax", *rest, env=os.environ | variables, cwd=Path.cwd(), check=True)
    else:
        assert (program, variables) == ("python", {}), f"{shlex.join(words)}: not one of the programs that pages run"
        monkeypatch.setattr("sys.argv", rest)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            runpy.run_path(rest[0], run_name="__main__")


def test_links_lead_to_files() -> None:
    for page in (*PAGES, REPOSITORY / "docs" / "extending.md"):
        for target in LINKS.findall(page.read_text(encoding="utf-8")):
            assert re.match(r"\w+:", target) or (page.parent / target).exists(), f"{page.name}: {target} is not there"


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
    needs("sphinx_book_theme")
    environment = {**os.environ, "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    options = ("-q", "-W", "--keep-going", "-b", "html")
    processes.run(
        "-m", "sphinx", *options, str(REPOSITORY / "docs"), str(tmp_path / "html"), env=environment, check=True
    )
    built = {path.stem for path in (tmp_path / "html").glob("*.html")}
    assert {page.stem for page in (REPOSITORY / "docs").glob("*.md")} <= built
    commands = (tmp_path / "html" / "commands.html").read_text(encoding="utf-8")
    assert all(f"miron-jax {name}" in commands for name in COMMANDS)
    assert "--watch_timeout=NUMBER" in commands
