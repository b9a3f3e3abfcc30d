"""Memory and threads that cannot be had: a sentence before anything is computed, or when XLA has aborted."""

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from miron_jax.errors import InputError
from miron_jax.runtime import limits
from tests.conftest import REPOSITORY


def test_what_any_run_needs_is_tried_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    limits.check_limits()
    assert threading.active_count() == before
    start, started = threading.Thread.start, list[threading.Thread]()

    def refused(thread: threading.Thread) -> None:
        if len(started) == 5:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(InputError, match=r"may start 5 threads, expected \d+, .* raise the limit"):
            limits.check_limits()
    assert not any(thread.is_alive() for thread in started)
    monkeypatch.setattr(limits, "ADDRESS_BYTES", 1 << 49)  # more than any process can name
    with pytest.raises(InputError, match=r"may not map 562950 GB more, which the smallest run needs.*raise the limit"):
        limits.check_limits()


def limited(kilobytes: int, code: str) -> "subprocess.Popen[str]":
    command = ["bash", "-c", f'ulimit -v {kilobytes}; exec {sys.executable} -c "$0" eval --tasks=miron-gen/en', code]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


MAIN = "from miron_jax.__main__ import main; main()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kilobytes", "code", "status", "words"),
    [
        (1_900_000, MAIN, 2, ("may not map 2.3 GB more", "the limit being 1900000 kB (ulimit -v): raise the limit")),
        # what XLA does in the middle of a run
        (
            4_000_000, f"import os, miron_jax.cli.eval as module; module.command = os.abort; {MAIN}", 1,
            ("refused memory or threads (SIGABRT)", "the same command goes on"),
        ),
    ],
)  # fmt: skip
def test_a_process_under_limits_ends_with_a_sentence(
    kilobytes: int, code: str, status: int, words: tuple[str, ...]
) -> None:
    process = limited(kilobytes, code)
    _, err = process.communicate(timeout=120)
    assert process.returncode == status, err
    [line] = err.splitlines()
    assert line.startswith("miron-jax: this process ")
    for word in words:
        assert word in line


@pytest.mark.slow
def test_a_run_under_limits_is_interrupted_as_any_other() -> None:
    """Its supervisor passes the signal on."""
    waits = "lambda: (print('ready', flush=True), time.sleep(100))"
    process = limited(4_000_000, f"import time, miron_jax.cli.eval as module; module.command = {waits}; {MAIN}")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert "interrupted" in err


def test_whether_a_limit_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_limits(memory: int, threads: int) -> bool:
        by_limit: dict[Any, int] = {limits.resource.RLIMIT_AS: memory, limits.resource.RLIMIT_NPROC: threads}
        monkeypatch.setattr(limits.resource, "getrlimit", lambda which: (by_limit[which], by_limit[which]))
        return limits.are_set()

    none = limits.resource.RLIM_INFINITY
    assert [with_limits(none, none), with_limits(none, 96551)] == [False, False]
    assert [with_limits(4 << 30, none), with_limits(none, 100)] == [True, True]
