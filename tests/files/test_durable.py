"""What a user keeps is the whole former file or the whole new one, whichever call of the system fails."""

import errno
import os
import random
import threading
from pathlib import Path

import pytest

from miron_jax.files.durable import make_folder, remove_folder, write_whole
from miron_jax.files.store import Store
from tests.support.faults import Disk

OLD, NEW = b"the former numbers", b"the new numbers, which are longer"


@pytest.mark.parametrize("is_there", [False, True])
def test_whichever_call_fails_the_file_is_the_former_or_the_new_one(is_there: bool, tmp_path: Path) -> None:
    done = 0
    for at in range(1, 45):
        folder = tmp_path / str(at)
        folder.mkdir()
        path = folder / "deep" / "er" / "results.json"
        if is_there:
            Store(str(folder)).put("deep/er/results.json", OLD)
        failed: OSError | None = None
        with Disk(folder, at) as disk:
            try:
                Store(str(folder)).put("deep/er/results.json", [NEW[:5], NEW[5:]])
                done += 1
            except OSError as error:
                failed = error
        if failed is not None:
            # an error of what made a folder names the folder
            assert str(failed.filename).startswith(str(folder / "deep")), (at, failed.filename)
            assert ".partial" not in str(failed)
        content = path.read_bytes() if path.is_file() else None
        if len(disk.calls) < at:
            assert content == NEW, (at, disk.calls)
        else:
            assert content in ((OLD, NEW) if is_there else (None, NEW)), (at, disk.calls)
        if path.parent.is_dir():
            left = [path.name] if content else []
            # a file that cannot be removed either stays, and the next run removes it
            assert sorted(os.listdir(path.parent)) == left, (at, disk.calls)
    assert 10 < done < 36


@pytest.mark.parametrize("is_there", [False, True])
def test_after_a_kill_or_a_power_cut_the_file_is_the_former_or_the_new_one(is_there: bool, tmp_path: Path) -> None:
    """At every moment; once it is written, it stays."""
    name = "deep/er/results.json"
    if is_there:
        Store(str(tmp_path)).put(name, OLD)
    with Disk(tmp_path) as disk:

        def look() -> None:
            rng = random.Random(len(disk.calls))
            cuts = [disk.after_power_cut(rng, share) for share in (0.0, 0.5, 1.0)]
            for tree in (disk.after_kill(), *cuts):
                assert tree.get(name) in ((OLD, NEW) if is_there else (None, NEW)), disk.calls

        disk.when = look
        Store(str(tmp_path)).put(name, [NEW[:5], NEW[5:]])
    assert len(disk.calls) > 8
    assert disk.after_power_cut(random.Random(0), 0.0)[name] == NEW


def test_links_are_followed_modes_kept_and_streams_written_into(tmp_path: Path) -> None:
    path, link, dangling, pipe = (tmp_path / name for name in ("file", "link", "dangling", "pipe"))
    path.write_bytes(OLD)
    path.chmod(0o600)
    link.symlink_to(path)
    dangling.symlink_to(tmp_path / "not yet")
    os.mkfifo(pipe)
    for target in (link, dangling):
        write_whole(target, NEW)
        assert target.is_symlink()
        assert target.read_bytes() == NEW
    assert path.stat().st_mode & 0o777 == 0o600
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_whole(pipe, NEW)
    reader.join(20)
    assert read == [NEW]
    assert pipe.is_fifo()
    write_whole(Path(os.devnull), NEW)
    assert Path(os.devnull).is_char_device()
    with pytest.raises(IsADirectoryError) as refused:
        write_whole(tmp_path, NEW)
    assert refused.value.filename == str(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["dangling", "file", "link", "not yet", "pipe"]


def test_a_file_system_that_cannot_sync_is_written_to_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(descriptor: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr("miron_jax.files.durable.os.fsync", refuses)
    write_whole(tmp_path / "x", NEW)
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "x").read_bytes() == NEW
    remove_folder(tmp_path / "a")
    remove_folder(tmp_path / "a")  # absent: nothing to do
    assert os.listdir(tmp_path) == ["x"]
