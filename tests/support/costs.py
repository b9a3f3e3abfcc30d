"""What each test file costs, and what a run left out: printed once, at the end.

Arrives: every test's reports.  Leaves: a table of the dearest files (processor seconds of the tests and of the processes
that they started, compiled programs), the files above the limit in its last lines, and each reason to skip with its count.
A test's share is what its process has spent since the test before it ended, so a fixture's cost is its first user's.
"""

import json
import os
import resource
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import pytest

from tests.support import processes

LIMIT = 60.0  # processor seconds of a file; CONTRIBUTING.md
LISTED = 12  # files in the table


class Cost(NamedTuple):
    tests: float = 0
    processor_seconds: float = 0.0
    child_seconds: float = 0.0  # of processes that have ended
    programs: float = 0
    compile_seconds: float = 0.0


compiled = {"programs": 0, "seconds": 0.0}  # of this process
before: list[Cost] = []  # of this process, at the end of the test before
costs: dict[str, list[Cost]] = {}  # by file, of all processes
skipped: dict[str, set[str]] = {}  # by reason, the tests or files


def count_compilation(event: str, duration_secs: float, **_: Any) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        compiled["programs"] += 1
        compiled["seconds"] += duration_secs


jax.monitoring.register_event_duration_secs_listener(count_compilation)


def spent() -> Cost:
    """What this process has spent since it started."""
    self, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(
        0,
        self.ru_utime + self.ru_stime,
        children.ru_utime + children.ru_stime + processes.child_seconds,
        compiled["programs"],
        compiled["seconds"],
    )


def pytest_collection_finish() -> None:
    before[:] = [spent()]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    if call.when == "teardown":
        now = spent()
        share = [1, *(round(b - a, 3) for a, b in zip(before[0][1:], now[1:], strict=True))]
        item.user_properties.append(("cost", share))
        before[:] = [now]
    return (yield)


def note_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        skipped.setdefault(report.longrepr[2].removeprefix("Skipped: "), set()).add(report.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    note_skip(report)
    for name, share in report.user_properties:
        if name == "cost" and report.when == "teardown":
            costs.setdefault(report.nodeid.partition("::")[0], []).append(Cost(*share))  # type: ignore[misc]
            write_line(report.nodeid, share)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    note_skip(report)


def write_line(test: str, share: Any) -> None:
    """$TEST_COSTS names a file that gets a line of JSON for each test, for a closer look."""
    path = os.environ.get("TEST_COSTS")
    if path and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(path).open("a") as file:
            file.write(json.dumps({"test": test, **Cost(*share)._asdict()}) + "\n")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    totals = {file: Cost(*map(sum, zip(*each, strict=True))) for file, each in costs.items()}
    whole = {file: cost.processor_seconds + cost.child_seconds for file, cost in totals.items()}
    dearest = sorted(whole, key=lambda file: -whole[file])
    write = terminalreporter.write_line
    terminalreporter.section("processor seconds by file")
    for file in dearest[:LISTED]:
        _, _, child, programs, seconds = totals[file]
        write(f"{whole[file]:6.1f} s  {file} ({child:.1f} s in processes; {programs:.0f} programs in {seconds:.1f} s)")
    write(f"{sum(whole.values()):6.1f} s  all {len(whole)} files")
    for reason, names in sorted(skipped.items()):
        write(f"skipped {len(names)}: {reason}", yellow=True)
    for file in dearest:
        if whole[file] > LIMIT:
            write(f"ABOVE {LIMIT:.0f} s of processor time: {file} takes {whole[file]:.0f} s", red=True)
