"""An interrupted command ends with status 75 and a sentence, at whichever moment the signal comes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_an_interrupt_says_so(miron, place, tmp_path, monkeypatch):
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


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("where", DROPPED)
def test_a_signal_that_python_drops_is_not_lost(where: str, number: str) -> None:
    """What is raised there goes nowhere; the run went on to its end, deaf to further signals."""
    code = f"""
import os, signal, sys, time
from absl import flags
from miron_jax.cli.guard import guarded
sent = []

def send():
    sent.append(1)
    os.kill(os.getpid(), signal.{number})
    time.sleep(0.1)
{DROPPED[where]}
flags.FLAGS(["miron-jax"])
sys.exit(guarded(action, ["miron-jax"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 75, done.stderr
    assert done.stderr.startswith("miron-jax: interrupted; what is scored is kept")


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_waits_until_an_import_is_over(number: str, tmp_path: Path) -> None:
    """torch runs Python within C++ as it is imported, where an exception ends the process with -6."""
    (tmp_path / "library.py").write_text(f"""
import os, signal, time
os.kill(os.getpid(), signal.{number})
time.sleep(0.2)
print("imported", flush=True)
""")
    code = """
import sys
from absl import flags
from miron_jax.cli.guard import guarded

def action():
    import library
    for moment in range(50):
        library.time.sleep(0.1)
    print("the signal is lost")

flags.FLAGS(["miron-jax"])
sys.exit(guarded(action, ["miron-jax"]))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=50
    )
    assert (done.returncode, done.stdout) == (75, "imported\n"), done.stderr
    assert done.stderr.startswith("miron-jax: interrupted; what is scored is kept")


def test_a_second_interrupt_ends_at_once_with_a_sentence() -> None:
    code = """
import sys, time
from absl import flags
from miron_jax.cli.guard import guarded

def action():
    try:
        print("there", flush=True)
        time.sleep(60)
    finally:
        print("writes", flush=True)
        time.sleep(60)

flags.FLAGS(["miron-jax"])
sys.exit(guarded(action, ["miron-jax"]))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "writes\n"
        process.send_signal(signal.SIGTERM)  # ignored: what is finished is being written
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 75
        assert process.stderr is not None
        assert process.stderr.read() == "miron-jax: interrupted twice, ended at once; run the same command again\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_from_the_first_line_to_the_last_a_signal_has_its_status(number: signal.Signals, tmp_path: Path) -> None:
    """At moments from the first import to the end of the process: 75 and a sentence, or 0 once all is done."""
    code = """
import sys
from miron_jax import __main__
from miron_jax.runtime import signals
own = signals.install

def install():
    own()
    print("begun", flush=True)

signals.install = install
sys.argv = ["miron-jax", "tasks"]
__main__.main()
"""
    environment = {**os.environ, "MIRON_JAX_DATA": str(tmp_path)}

    def begin() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        return process

    start = time.monotonic()
    begin().communicate()
    whole = time.monotonic() - start
    statuses = []
    for moment in range(10):
        process = begin()
        time.sleep(whole * moment / 6)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        statuses.append(process.returncode)
        found = (process.returncode, "interrupted" in err, "Traceback" in err)
        assert found in ((75, True, False), (0, False, False)), err
        assert process.returncode or "core" in out
    assert {0, 75} == set(statuses)
