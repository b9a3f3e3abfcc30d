"""Is anything lost when a run is interrupted or killed at a random moment, on any layout of devices
and processes?

    python benchmarks/bench_interruptions.py --signals=100      # SIGTERM and SIGINT: README's exit status and sentence
    python benchmarks/bench_interruptions.py --kills=300        # kill -9: the answers of an undisturbed run

A tiny model scores CORE-like choices and writes completions. A run that gets a signal is a fresh
interpreter; a run that is killed is a fork of this process, which has imported everything and
started nothing, so that no time goes into imports. Each run continues in the folder of the one
before, on the next layout of the list, until one completes: its answers (choices, completions, how
they ended) are compared with those of an undisturbed run on one device, and the folder is emptied.
A signal that comes before the command has installed its handlers counts as `early`: Python is
starting. The last line is JSON.
"""  # noqa: E501

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import RUN_AGAIN

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.append(str(REPOSITORY))  # tests/ has a tiny model

TIMEOUT = 300.0  # seconds until a run counts as hanging

Answers = dict[str, list[list[object]]]  # samples file -> the answer to each example


class Layout(NamedTuple):
    name: str
    devices: int  # of a process
    processes: int
    flags: tuple[str, ...]


ONE = Layout("one device", 1, 1, ())
LAYOUTS = [
    ONE,
    Layout("pmap 2", 2, 1, ()),
    Layout("data=2", 2, 1, ("--sharding=mesh", "--mesh=data=2")),
    Layout("model=2", 2, 1, ("--sharding=mesh", "--mesh=model=2")),
    Layout("two processes", 1, 2, ("--peer_timeout=5",)),
    Layout(
        "two processes, one mesh", 1, 2, ("--peer_timeout=5", "--sharding=mesh", "--mesh=model=2")
    ),
]


class Copy:
    """`miron-jax` in a fork of this process and a new session, with the methods of subprocess.Popen
    that are used."""

    def __init__(self, arguments: Sequence[str], devices: int) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as this object
        self.returncode: int | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.chdir(REPOSITORY)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(self._errors.fileno(), 2)
            import jax

            from miron_jax.__main__ import main

            jax.config.update("jax_num_cpu_devices", devices)
            sys.argv = ["miron-jax", *arguments]
            status = 1
            try:
                main()
            except SystemExit as ended:
                status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            finally:
                sys.stderr.flush()
                os._exit(status)

    def communicate(self, timeout: float | None = None) -> tuple[None, str]:
        """Wait until the process ends; raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            pid, ended = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(ended)
            elif deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("miron-jax", timeout or 0.0)
            else:
                time.sleep(0.01)
        self._errors.seek(0)
        return None, self._errors.read().decode("utf-8", "replace")


Process = subprocess.Popen[str] | Copy


class Command(NamedTuple):
    scratch: Path
    copies: bool = False  # forks of this process instead of fresh interpreters

    def start(self, layout: Layout, output: Path) -> list[Process]:
        common = ["eval", f"--model={self.scratch / 'model'}", "--allow_changed_data"]
        common += [
            f"--data_dir={self.scratch / 'data'}",
            "--tasks=core,miron-gen/en",
            "--items_per_category=3",
        ]
        common += [
            f"--compilation_cache={self.scratch / 'programs'}",
            f"--output={output}",
            *layout.flags,
        ]
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": str(layout.devices),
        }
        peer_flags = [()]
        if layout.processes > 1:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            hosts = (f"--coordinator=127.0.0.1:{port}", f"--num_processes={layout.processes}")
            peer_flags = [(*hosts, f"--process_id={i}") for i in range(layout.processes)]
        if self.copies:
            return [Copy([*common, *more], layout.devices) for more in peer_flags]
        return [
            subprocess.Popen(
                [sys.executable, "-m", "miron_jax", *common, *more],
                cwd=REPOSITORY, env=environment, start_new_session=True, text=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )
            for more in peer_flags
        ]  # fmt: skip


def finish(processes: Sequence[Process]) -> list[tuple[int, str]]:
    """(status, standard error) of each process; (124, "hangs") after the timeout."""
    ended = []
    for process in processes:
        try:
            errors = process.communicate(timeout=TIMEOUT)[1]
            ended.append((process.returncode, errors))
        except subprocess.TimeoutExpired:
            end(process)
            process.communicate()
            ended.append((124, "hangs"))
    return ended


def end(process: Process) -> None:
    """Kill a process and its children; a copy may not lead its group yet, so it is killed by its
    own id too."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    os.kill(process.pid, signal.SIGKILL)


def answers(output: Path) -> Answers:
    """Choices and completions of every samples file, without numbers, whose last digits differ from
    layout to layout."""
    keys = ("id", "prediction", "correct", "generated", "ended")
    by_file = {}
    for path in sorted((output / "samples").rglob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        by_file[str(path.relative_to(output))] = [[line.get(key) for key in keys] for line in lines]
    return by_file


def is_ready(process: Process) -> bool:
    """Whether the command has installed its handlers: SIGTERM is caught or ignored."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return True
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigCgt:", "SigIgn:"))]
    return any(mask >> (signal.SIGTERM - 1) & 1 for mask in masks)


def moments(
    rng: random.Random, seconds: dict[str, float], layouts: Sequence[Layout]
) -> Iterator[tuple[Layout, float]]:
    while True:
        for layout in layouts:
            yield layout, rng.uniform(0.0, 1.05 * seconds[layout.name])


def measure(command: Command, layouts: Sequence[Layout], expected: Answers) -> dict[str, float]:
    """Seconds of a second run on each layout, whose programs are compiled; the answers of all runs
    must be the same."""
    seconds = {}
    for layout in layouts:
        for _ in range(2):
            output = command.scratch / "whole"
            shutil.rmtree(output, ignore_errors=True)
            start = time.monotonic()
            ended = finish(command.start(layout, output))
            seconds[layout.name] = time.monotonic() - start
            assert all(status == 0 for status, _ in ended), ended
            assert answers(output) == expected, layout
        print(f"{layout.name}: {seconds[layout.name]:.1f} s", flush=True)
    return seconds


def interrupt(command: Command, count: int, rng: random.Random, expected: Answers) -> Counter[str]:
    seconds, counts, output = (
        measure(command, [ONE], expected),
        Counter[str](),
        command.scratch / "out",
    )
    for number, (layout, moment) in zip(range(count), moments(rng, seconds, [ONE]), strict=False):
        signum = (signal.SIGTERM, signal.SIGINT)[number % 2]
        [process] = command.start(layout, output)
        time.sleep(moment if number % 10 else rng.uniform(0.0, 0.2))  # the first moments more often
        ready = is_ready(process)
        os.kill(process.pid, signum)
        [(status, errors)] = finish([process])
        counts["signals"] += 1
        if not ready:
            counts["early"] += 1
        elif (
            status == RUN_AGAIN
            and "interrupted; what is scored is kept" in errors
            and "Traceback" not in errors
        ):
            counts["75 and its sentence"] += 1
        elif status == 0 and answers(output) == expected:
            counts["0, all was done"] += 1
            shutil.rmtree(output)
        else:
            counts["wrong"] += 1
            print(
                f"{signum.name} after {moment:.2f} s: status {status}: {errors[-600:]}", flush=True
            )
    counts["changed answers"] += compare(command, output, expected)
    return counts


def kill(command: Command, count: int, rng: random.Random, expected: Answers) -> Counter[str]:
    import jax  # noqa: F401 - the copies need it; it starts no backend

    command = command._replace(copies=True)
    seconds, counts, output = (
        measure(command, LAYOUTS, expected),
        Counter[str](),
        command.scratch / "out",
    )
    for _, (layout, moment) in zip(range(count), moments(rng, seconds, LAYOUTS), strict=False):
        processes = command.start(layout, output)
        time.sleep(moment)
        killed = rng.sample(processes, rng.randint(1, len(processes)))
        for process in killed:
            end(process)
        ended = finish(processes)
        counts["kills"] += 1
        if counts["kills"] % 25 == 0:
            print(dict(counts), flush=True)
        counts[layout.name] += 1
        for process, (status, errors) in zip(processes, ended, strict=True):
            if process not in killed and status not in (0, RUN_AGAIN):
                counts["wrong"] += 1
                line = (
                    f"{layout.name}, killed after {moment:.2f} s: the other's status {status}: "
                    f"{errors[-600:]}"
                )
                print(line, flush=True)
        if all(status == 0 for status, _ in ended):
            counts["runs that had ended"] += 1
            counts["changed answers"] += answers(output) != expected
            shutil.rmtree(output)
    counts["changed answers"] += compare(command, output, expected)
    return counts


def compare(command: Command, output: Path, expected: Answers) -> int:
    """Complete the last run; 1 if its answers differ."""
    [(status, errors)] = finish(command.start(ONE, output))
    assert status == 0, errors
    return int(answers(output) != expected)


def main(flags: argparse.Namespace) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    from tests.support.tiny_model import make_model, write_core_data

    with tempfile.TemporaryDirectory(
        prefix="miron-interruptions-", ignore_cleanup_errors=True
    ) as scratch:
        command, rng = Command(Path(scratch)), random.Random(flags.seed)
        make_model(command.scratch / "model")
        write_core_data(command.scratch / "data")
        assert finish(command.start(ONE, command.scratch / "alone"))[0][0] == 0
        expected = answers(command.scratch / "alone")
        assert len(expected) > 3, "the undisturbed run has no answers"
        document: dict[str, object] = {"seed": flags.seed}
        if flags.signals:
            document["signals"] = dict(interrupt(command, flags.signals, rng, expected))
        if flags.kills:
            document["kills"] = dict(kill(command, flags.kills, rng, expected))
    print(json.dumps(document))


if __name__ == "__main__":
    flags = argparse.ArgumentParser()  # not absl's, which parses the copies' flags
    flags.add_argument("--signals", type=int, default=0, help="Runs that get a SIGTERM or SIGINT.")
    flags.add_argument("--kills", type=int, default=0, help="Runs that are killed.")
    flags.add_argument("--seed", type=int, default=0, help="Seed of the moments.")
    main(flags.parse_args())
