"""An interrupted command ends with status 75 and a sentence, at whichever moment the signal comes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.support import processes

pytestmark = pytest.mark.slow

SIGNALS = [signal.SIGTERM, signal.SIGINT]
KEPT = "miron-jax: interrupted; what is scored is kept"
GUARDED = """
import os, sys, time
from absl import flags
from miron_jax.cli.guard import guarded
{action}
flags.FLAGS(["miron-jax"])
sys.exit(guarded(action, ["miron-jax"]))
"""


def test_a_reader_that_has_read_enough_is_no_error() -> None:
    for arguments in ("eval --helpfull", "--version"):
        command = f"{sys.executable} -m miron_jax {arguments} | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=REPOSITORY)
        assert (done.stdout, done.stderr) == ("0\n", ""), arguments


def test_an_interrupt_says_so(miron, monkeypatch):
    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("miron_jax.cli.eval.command", stop)
    ran = miron("eval")
    assert ran.status == 75
    assert "run the same command again" in ran.err


DROPPED = {
    "a destructor": """
class Dying:
    def __del__(self):
        send()

def action():
    Dying()
    time.sleep(60)
""",
    "a gc callback": """
import gc

def action():
    gc.callbacks.append(lambda phase, info: phase == "start" and not sent and send())
    gc.collect()
    time.sleep(60)
""",
}
SENDS = """
sent = []

def send():
    sent.append(1)
    os.kill(os.getpid(), {number})
    time.sleep(0.1)
"""


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("where", DROPPED)
def test_a_signal_that_python_drops_is_not_lost(where: str, number: signal.Signals) -> None:
    """What is raised there goes nowhere; the run went on to its end, deaf to further signals."""
    code = GUARDED.format(action=SENDS.format(number=int(number)) + DROPPED[where])
    ended = processes.run("-c", code, timeout=50)
    assert ended.returncode == 75, ended.stderr
    assert ended.stderr.startswith(KEPT)


IMPORTS = """
def action():
    import library
    for moment in range(50):
        time.sleep(0.1)
    print("the signal is lost")
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_waits_until_an_import_is_over(number: signal.Signals, tmp_path: Path) -> None:
    """torch runs Python within C++ as it is imported, where an exception ends the process with -6."""
    (tmp_path / "library.py").write_text(f"""
import os, time
os.kill(os.getpid(), {int(number)})
time.sleep(0.2)
print("imported", flush=True)
""")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = processes.run("-c", GUARDED.format(action=IMPORTS), env=environment, timeout=50)
    assert (ended.returncode, ended.stdout) == (75, "imported\n"), ended.stderr
    assert ended.stderr.startswith(KEPT)


WRITES = """
def action():
    try:
        print("there", flush=True)
        time.sleep(60)
    finally:
        print("writes", flush=True)
        time.sleep(60)
"""


def test_a_second_interrupt_ends_at_once_with_a_sentence() -> None:
    process = processes.start("-c", GUARDED.format(action=WRITES))
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "writes\n"
    process.send_signal(signal.SIGTERM)  # ignored: what is finished is being written
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(50)
    assert process.returncode == 75
    assert err == "miron-jax: interrupted twice, ended at once; run the same command again\n"


FROM_THE_FIRST_LINE = """
import sys
from miron_jax import __main__
from miron_jax.runtime import signals
install = signals.install

def installed():
    install()
    print("begun", flush=True)

signals.install = installed
sys.argv = ["miron-jax", "tasks", "core"]  # little enough for a pipe that nobody reads yet
__main__.main()
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_from_the_first_line_to_the_last_a_signal_has_its_status(number: signal.Signals, tmp_path: Path) -> None:
    """At moments from the first import to the end of the process: 75 and a sentence, or 0 once all is done."""
    environment = {**os.environ, "MIRON_JAX_DATA": str(tmp_path)}

    def ended(process: Any, seconds: float) -> int:
        """Its status after a signal that comes so long after the first line of `main`."""
        assert process.stdout.readline() == "begun\n"
        time.sleep(seconds)
        if process.poll() is None:
            process.send_signal(number)
        out, err = process.communicate(timeout=30)
        received = (process.returncode, "interrupted" in err, "Traceback" in err)
        assert received in ((75, True, False), (0, False, False)), err
        assert process.returncode or "core" in out
        return process.returncode

    for seconds in (0.0, 0.3):  # while it imports
        process = subprocess.Popen(
            [sys.executable, "-c", FROM_THE_FIRST_LINE],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert ended(process, seconds) == 75
    start = time.monotonic()
    processes.run("-c", FROM_THE_FIRST_LINE, env=environment, check=True)
    whole = time.monotonic() - start
    moments = [whole * 0.3 * moment for moment in range(6)]
    statuses = [ended(processes.start("-c", FROM_THE_FIRST_LINE, env=environment), moment) for moment in moments]
    while 0 not in statuses:  # the first one had more of the processor
        whole *= 2
        statuses.append(ended(processes.start("-c", FROM_THE_FIRST_LINE, env=environment), whole))
    assert {0, 75} == set(statuses)
