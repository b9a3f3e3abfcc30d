"""Arrays kept for later runs: whatever is wrong with their folder, a run gets equal arrays or none, and a line."""

import errno
import os
import shutil
import signal
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.files import kept as module
from miron_jax.files.kept import KeptArrays, key_of
from tests.support import processes
from tests.support.faults import Disk

KEY = key_of("a task")
ARRAYS = {
    "ids": np.asarray([0, 7, 65_535], np.int32),
    "offsets": np.asarray([0, 2, 3], np.int64),
    "none": np.zeros(0, np.int32),
    "negative": np.asarray([-1, 300], np.int64),
    "flags": np.asarray([True, False]),
    "rates": np.asarray([0.1, -2.5]),
    "digests": np.arange(32, dtype=np.uint8).reshape(2, 16),
    "stop": np.int64(70_000),
}


def same(received: dict[str, np.ndarray] | None) -> None:
    assert received is not None
    assert list(received) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert (received[name].dtype, received[name].shape) == (array.dtype, array.shape), name
        np.testing.assert_array_equal(received[name], array)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def kept(tmp_path: Path, said: list[str]) -> KeptArrays:
    return KeptArrays(tmp_path / "programs" / "plans", said.append)


def file_of(tmp_path: Path) -> Path:
    [path] = (tmp_path / "programs" / "plans").iterdir()
    return path


def test_arrays_come_back_with_their_types_in_a_folder_of_the_users_own(
    kept: KeptArrays, tmp_path: Path, said: Any
) -> None:
    assert kept.get(KEY) is None
    kept.put(KEY, ARRAYS)
    same(kept.get(KEY))
    same(KeptArrays(tmp_path / "programs" / "plans", said.append).get(KEY))
    assert kept.get(key_of("another task")) is None
    assert (tmp_path / "programs" / "plans").stat().st_mode & 0o777 == 0o700
    assert not said


def test_whole_numbers_take_as_few_bytes_as_they_need(kept: KeptArrays, tmp_path: Path) -> None:
    kept.put(KEY, {"ids": np.arange(50_000, dtype=np.int64)[::-1]})
    assert 100_000 < file_of(tmp_path).stat().st_size < 101_000  # two bytes each


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_numbers_that_count_or_repeat_take_as_few_bytes_as_their_runs(
    dtype: type[np.signedinteger[Any]], step: int, kept: KeptArrays, tmp_path: Path
) -> None:
    highest = np.iinfo(dtype).max
    starts = np.asarray([-5, 0, highest, 7, -highest - 1, 3, highest - 10, 3], dtype)
    lengths = np.asarray([1, 1, 400, 1, 9000, 2, 30, 1])
    within = np.concatenate([*map(np.arange, lengths)])
    array = np.repeat(starts, lengths) + (step * within).astype(dtype)  # wraps around
    kept.put(KEY, {"array": array})
    received = kept.get(KEY)
    assert received is not None
    assert received["array"].dtype == dtype
    np.testing.assert_array_equal(received["array"], array)
    assert file_of(tmp_path).stat().st_size < 1000


def test_a_file_that_is_cut_anywhere_is_made_again(kept: KeptArrays, tmp_path: Path, said: list[str]) -> None:
    kept.put(KEY, ARRAYS)
    path = file_of(tmp_path)
    whole = path.read_bytes()
    for size in (0, 1, 15, 16, 17, 100, len(whole) // 2, len(whole) - 17, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert kept.get(KEY) is None, size
        assert said.pop() == f"{path} is damaged: what it held is made again"
    kept.put(KEY, ARRAYS)
    same(kept.get(KEY))


def test_no_flipped_byte_goes_unnoticed(kept: KeptArrays, tmp_path: Path, said: list[str]) -> None:
    kept.put(KEY, ARRAYS)
    path = file_of(tmp_path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert kept.get(KEY) is None, at
    assert len(said) == len(whole)


def test_a_file_under_the_name_of_another_key_is_not_taken(kept: KeptArrays, tmp_path: Path, said: list[str]) -> None:
    kept.put(KEY, ARRAYS)
    other = key_of("of another tokenizer")
    shutil.copy(file_of(tmp_path), tmp_path / "programs" / "plans" / f"{other}.npz")
    assert kept.get(other) is None
    assert len(said) == 1


def test_pickles_are_never_read(kept: KeptArrays, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    with pytest.raises(ValueError, match="allow_pickle"):
        kept.put(KEY, {"trap": np.asarray([Trap()], object)})
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
def test_a_folder_in_which_others_may_write_is_refused(
    mode: int, kept: KeptArrays, tmp_path: Path, said: list[str]
) -> None:
    kept.put(KEY, ARRAYS)
    folder = tmp_path / "programs" / "plans"
    folder.chmod(mode)
    assert kept.get(KEY) is None
    kept.put(key_of("another task"), ARRAYS)
    assert len(list(folder.iterdir())) == 1
    [line] = said
    assert (
        line == f"plans are not kept for later runs ({folder}: other users may write there: chmod 700); the run goes on"
    )


@pytest.mark.parametrize("theirs", ["folder", "file"])
def test_what_another_user_has_written_is_refused(
    theirs: str, kept: KeptArrays, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.put(KEY, ARRAYS)
    status = os.fstat
    if theirs == "folder":
        monkeypatch.setattr(module.os, "getuid", lambda: os.geteuid() + 1)
    else:
        user = namedtuple("user", "st_uid st_mode")
        of_file = lambda descriptor: user(os.geteuid() + 1, status(descriptor).st_mode)  # noqa: E731
        monkeypatch.setattr(module.os, "fstat", of_file)
    assert kept.get(KEY) is None
    kept.put(key_of("another task"), ARRAYS)
    monkeypatch.undo()
    assert file_of(tmp_path)
    [line] = said
    assert "it is another user's" in line


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_folder_that_takes_no_file_is_read_all_the_same(
    error: int, kept: KeptArrays, tmp_path: Path, said: list[str]
) -> None:
    kept.put(KEY, ARRAYS)
    folder = tmp_path / "programs" / "plans"
    at = 1
    while True:
        said.clear()
        again = KeptArrays(folder, said.append)
        with Disk(folder, at, error) as disk:
            again.put(key_of(at), ARRAYS)
            again.put(key_of(at, "more"), ARRAYS)
        if len(disk.calls) < at:
            break
        assert len(said) <= 1, at
        same(again.get(KEY))
        at += 1
    assert at > 8


def test_the_files_that_were_used_longest_ago_go_first(
    kept: KeptArrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    keys = [key_of(i) for i in range(4)]
    for i, key in enumerate(keys[:3]):
        kept.put(key, ARRAYS)
        os.utime(tmp_path / "programs" / "plans" / f"{key}.npz", (i, i))
    partial = tmp_path / "programs" / "plans" / ".0123.partial"  # of a writer that was killed
    partial.write_bytes(b"half")
    os.utime(partial, (0, 0))
    same(kept.get(keys[0]))
    size = (tmp_path / "programs" / "plans" / f"{keys[0]}.npz").stat().st_size
    monkeypatch.setattr(module, "MOST_BYTES", 3 * size)
    kept.put(keys[3], ARRAYS)
    assert not partial.exists()
    assert [kept.get(key) is not None for key in keys] == [True, False, True, True]
    monkeypatch.setattr(module, "MOST_BYTES", size // 2)
    kept.put(key_of("too large"), ARRAYS)
    assert [kept.get(key) is not None for key in keys] == [True, False, True, True]
    assert "No space left" in said.pop()


def test_a_disk_that_is_nearly_full_keeps_a_tenth_of_what_is_free(
    kept: KeptArrays, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: usage(20_000))
    kept.put(KEY, ARRAYS)
    assert kept.get(KEY) is None
    assert len(said) == 1


WRITER = """
import sys, numpy as np
from pathlib import Path
from miron_jax.files.kept import KeptArrays, key_of
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
kept = KeptArrays(folder, print)
print("begins", flush=True)
for i in range(int(sys.argv[3])):
    for key in range(3):
        arrays = kept.get(key_of(key))
        assert arrays is None or (arrays["ids"] == key).all() and len(arrays["ids"]) == 100_000
        kept.put(key_of(key), {"ids": np.full(100_000, key, np.int32)})
"""


def test_two_processes_write_and_read_the_same_files_at_once(tmp_path: Path) -> None:
    both = [processes.start("-c", WRITER, str(tmp_path / "plans"), str(seed), "40") for seed in range(2)]
    for process in both:
        out, err = process.communicate()
        assert (process.returncode, out) == (0, "begins\n"), err
    assert len(list((tmp_path / "plans").iterdir())) == 3


def test_a_writer_that_is_killed_leaves_whole_files(tmp_path: Path, said: list[str]) -> None:
    for times in range(4):
        process = processes.start("-c", WRITER, str(tmp_path / "plans"), "0", "100000")
        assert process.stdout is not None
        process.stdout.readline()
        while not list((tmp_path / "plans").glob("*.npz")):
            assert process.poll() is None
        for _ in range(500 * times):
            os.stat(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kept = KeptArrays(tmp_path / "plans", said.append)
        for key in range(3):
            arrays = kept.get(key_of(key))
            assert arrays is None or (arrays["ids"] == key).all()
    assert not said


def test_another_version_of_code_or_of_a_library_is_another_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert key_of("a task") == KEY
    keys = {KEY, key_of("a", "task"), key_of(b"a task"), key_of(("a task",))}
    for change in ("code", "library"):
        with monkeypatch.context() as patch:
            if change == "code":
                (tmp_path / "files").mkdir()
                (tmp_path / "plan.py").write_text("rows = 2")
                patch.setattr(module, "__file__", str(tmp_path / "files" / "kept.py"))
            else:
                patch.setattr(module, "version", lambda name: "0.0.1")
            module._version.cache_clear()
            keys.add(key_of("a task"))
    module._version.cache_clear()
    assert len(keys) == 6
