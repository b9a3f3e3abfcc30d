"""Locks that processes of one run hold together, and their claims on checkpoints: on a disk and in an object store."""

import os
import time
from pathlib import Path

import pytest

from miron_jax.errors import InputError
from miron_jax.files import store as stores
from miron_jax.files.claims import FOLDER, Claims
from miron_jax.files.store import LOCK, Lock, Store


@pytest.fixture(params=["disk", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(stores, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(stores, "SILENT_SECONDS", 0.4)
    monkeypatch.setattr(stores, "TAG_SECONDS", 0.1)
    return Store(str(tmp_path / "out") if request.param == "disk" else f"memory://claims/{time.time_ns()}")


def taken_in_time(claims: Claims, name: str, seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if claims.take(name):
            return True
        time.sleep(0.01)
    return False


def test_a_checkpoint_is_of_one_process_until_it_leaves_it(store: Store) -> None:
    with Claims(store) as one, Claims(store) as other:
        assert one.take("10")
        assert not other.take("10")
        assert other.take("20")
        assert one.has("10")
        assert not other.has("10")
        assert one.release("10")
        assert not one.release("10"), "it is nobody's"
        assert other.take("10")
    assert store.names(FOLDER) == []


def test_a_claim_of_a_dead_process_ends_when_it_has_not_changed_for_a_while(store: Store) -> None:
    """Whatever the time is there: an hour behind or ahead plays no part, as no time is written."""
    store.put(f"{FOLDER}/10", b"another-host process 7 0123 3")
    claims = Claims(store)
    for count in range(4, 9):  # it lives
        assert not claims.take("10")
        time.sleep(0.15)
        store.put(f"{FOLDER}/10", f"another-host process 7 0123 {count}".encode())
    assert not claims.take("10")
    assert taken_in_time(claims, "10")
    assert store.get(f"{FOLDER}/10").split()[2] == str(os.getpid()).encode()
    claims.release_all()


def test_a_claim_that_was_taken_over_is_not_had_again(store: Store) -> None:
    claims = Claims(store)
    assert claims.take("10")
    store.remove(f"{FOLDER}/10")
    with Claims(store) as other:
        assert other.take("10")
        assert not claims.has("10")
        assert other.has("10")
    assert not claims.has("10"), "although nobody has it now"
    assert not claims.release("10")


def test_a_claim_that_a_host_with_locks_of_its_own_took_over_is_not_had_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other host's lock does not reach this one: it writes into the same file, whose lock is still held here."""
    monkeypatch.setattr(stores, "BEAT_SECONDS", 0.05)
    claims = Claims(Store(str(tmp_path)))
    assert claims.take("10")
    theirs = tmp_path / FOLDER / "10"
    theirs.write_text("another-host process 7 0123 3")
    time.sleep(3 * stores.BEAT_SECONDS)
    assert theirs.read_text() == "another-host process 7 0123 3", "no beat goes on where another has the claim"
    assert not claims.has("10")
    assert not claims.release("10")
    assert theirs.read_text() == "another-host process 7 0123 3"


def test_the_top_is_written_by_one_process_at_a_time(store: Store) -> None:
    with Claims(store).top():
        assert not Claims(store).take("top")
    with Claims(store).top():
        pass


def test_processes_of_one_run_hold_its_lock_together(store: Store) -> None:
    with Lock(store, tag="a") as first:
        first.share()
        with Lock(store, tag="a") as second:
            assert first.is_first
            assert not second.is_first
            second.share()
            for tag in ("", "b"):
                with pytest.raises(InputError, match="is being written by another run"):
                    Lock(store, tag=tag)
            assert not first.renew()
            assert not second.renew()
            first.__exit__()
            with pytest.raises(InputError, match="is being written by another run"):
                Lock(store)
            assert store.has(LOCK)
    assert store.is_remote or not store.root.exists(), "the last one has removed it"
    with Lock(store):  # in an object store once it has been silent
        pass


def test_nobody_joins_before_the_first_process_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It mends the folder alone; a process that comes meanwhile waits for it."""
    store, waits = Store(str(tmp_path / "out")), list[float]()
    first = Lock(store, tag="a")

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            first.share()

    monkeypatch.setattr(stores.time, "sleep", sleep)
    with Lock(store, tag="a") as second:
        assert not second.is_first
    assert len(waits) == 3
    first.__exit__()
