"""Only regular files are opened: a named pipe or a device would make a run wait for ever, or read without end."""

import os
import re
import socket
from pathlib import Path

import pytest

from miron_jax.files.regular import open_regular, read_regular, read_text
from miron_jax.files.store import Store
from miron_jax.report.tables.closing import last_run_beside
from tests.conftest import REPOSITORY


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("слово", encoding="utf-8")
    (tmp_path / "link").symlink_to("file")
    assert read_text(tmp_path / "link") == "слово"
    assert read_regular(tmp_path / "file") == "слово".encode()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "socket"))
        refused = {
            tmp_path / "pipe": "is a pipe or a device, expected a regular file", Path("/dev/zero"): "is a pipe or a device",
            tmp_path / "socket": "No such device or address", tmp_path: "Is a directory",
            tmp_path / "loop": "symbolic links", tmp_path / "absent": "No such file",
        }  # fmt: skip
        num_open = len(os.listdir("/proc/self/fd"))
        for path, words in refused.items():
            with pytest.raises(OSError, match=words):
                open_regular(path)
        assert len(os.listdir("/proc/self/fd")) == num_open


def test_a_pipe_in_place_of_results_in_a_folder_beside_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    os.mkfifo(tmp_path / "other" / "results.json")
    (tmp_path / "mine").mkdir()
    assert last_run_beside(Store(str(tmp_path / "mine")), "demo") is None


SHIPPED = (
    "cli/init.py", "cli/parse.py", "cli/verification.py", "html/offline.py", "program_languages.py", "demo/__init__.py",
    "miron_gen/russian_morphology.py", "miron_gen/english_morphology.py",
    "miron_gen/draft.py", "eval_uation_gen/titles.py",
    "eval_uation_gen/story_words.py", "eval_uation_gen/story_prompts.py",
)  # fmt: skip


def test_files_of_others_are_read_in_this_way_alone() -> None:
    """All else that reads whole files reads those of the package, of the system, or metadata that `is_file` has seen."""
    others = {
        *SHIPPED,
        "sandbox.py",
        "files/hub.py",
        "files/kept.py",
        "files/regular.py",
        "program_cache.py",
        "runtime/processors.py",
        "runtime/cgroups.py",
        "runtime/sandbox/group.py",
        "runtime/sandbox/processes.py",
        "runtime/sandbox/user.py",
        "runtime/timeline.py",
    }
    pattern = re.compile(r"\.read_(bytes|text)\(|safe_open|\bZipFile\(path|parquet.read_table\(path")
    for folder in ("miron_jax", "tasks"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            if not str(path).endswith(tuple(others)):
                assert not pattern.search(path.read_text()), path
