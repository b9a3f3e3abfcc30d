"""Would the tests notice a wrong number?  Small faults are put into the code, one at a time, and
tests run on each.

    python benchmarks/mutants.py                        # the tests that CI runs; two at a time
    python benchmarks/mutants.py --quick                # quick tests only
    python benchmarks/mutants.py --only=engine/,yarn    # faults whose file or name contains one of these
    python benchmarks/mutants.py --check                # whether every fault still fits the code; runs no test

mutants.toml has the faults: a file, its text, the text in its place, and the test files that should
notice (X stands for tests/**/test_X.py; `slow` ones run where the quick ones pass).  Each fault
goes into a copy of the checkout.  It is killed by the first test that fails; a fault that no listed
test notices survives, unless the entry says why it is `equal` in effect.  Every listed file runs on
the unchanged code first: a test that always fails would kill everything.  The last line is JSON.
"""  # noqa: E501

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
TIMEOUT = 900.0  # seconds for the tests of one fault


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    tests: Sequence[str]
    slow: Sequence[str] = ()
    equal: str = ""  # why no test can notice it


class Verdict(NamedTuple):
    mutant: Mutant
    killed_by: str  # the first test that failed; empty: survived
    slow: bool  # whether it took a slow test
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="parts of files or names, separated by commas")
    parser.add_argument("--quick", action="store_true", help="leave the slow tests out")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time")
    parser.add_argument("--check", action="store_true", help="run no test")
    parser.add_argument(
        "--no-baseline", dest="baseline", action="store_false", help="leave the unchanged code out"
    )
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    mutants = [
        each
        for each in read_mutants()
        if any(part in each.file or part in each.name for part in parts)
    ]
    wrong = [sentence for each in mutants for sentence in misfits(each)]
    if wrong:
        raise SystemExit("\n".join(wrong))
    print(f"{len(mutants)} faults, each fits the code")
    if arguments.check:
        return
    with tempfile.TemporaryDirectory() as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for i in range(arguments.jobs):
            copies.put(copy_checkout(Path(folder) / str(i)))
        if arguments.baseline:
            check_baseline(mutants, copies, quick=arguments.quick)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            verdicts = []
            for verdict in pool.map(
                lambda each: judge(each, copies, quick=arguments.quick), mutants
            ):
                verdicts.append(verdict)
                print(line_of(verdict), flush=True)
    report(verdicts)


def read_mutants() -> list[Mutant]:
    entries = tomllib.loads((REPOSITORY / "benchmarks" / "mutants.toml").read_text())["mutant"]
    return [Mutant(**entry) for entry in entries]


def misfits(mutant: Mutant) -> list[str]:
    """Sentences that say where an entry no longer fits the code."""
    source = (REPOSITORY / mutant.file).read_text()
    if source.count(mutant.old) != 1:
        return [
            f"{mutant.name}: {mutant.file} has its text {source.count(mutant.old)} times, expected "
            "once"
        ]
    ast.parse(source.replace(mutant.old, mutant.new))
    absent = [name for name in [*mutant.tests, *mutant.slow] if not files_of([name], REPOSITORY)]
    return [f"{mutant.name}: no tests/**/test_{name}.py" for name in absent]


def files_of(names: Sequence[str], checkout: Path) -> list[str]:
    paths = [path for name in names for path in (checkout / "tests").rglob(f"test_{name}.py")]
    return [str(path.relative_to(checkout)) for path in paths]


def copy_checkout(folder: Path) -> Path:
    """Tracked files and new ones beside them; a link to ../shared, which tests look for beside a
    checkout."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(
        listed, cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    checkout = folder / "checkout"
    for name in names.split("\0"):
        source, target = REPOSITORY / name, checkout / name
        if name and (source.is_file() or source.is_symlink()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    shared = REPOSITORY.parent / "shared"
    if shared.is_dir():
        (folder / "shared").symlink_to(shared)
    return checkout


def run_tests(files: list[str], checkout: Path) -> str:
    """The first test that fails; empty where all pass."""
    if not files:  # pytest would run all of them
        return ""
    environment = os.environ | {
        "PYTHONPATH": str(checkout),  # commands that tests start run the copy too
        "PYTHONDONTWRITEBYTECODE": "1",
        "JAX_COMPILATION_CACHE_DIR": str(
            checkout.parent.parent / "programs"
        ),  # most programs are those of the unchanged code
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-m",
        "not long",
        "-p",
        "no:cacheprovider",
        *files,
    ]
    try:
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        print(f"no end after {TIMEOUT:.0f} s of {' '.join(files)}: that is no kill", flush=True)
        return ""
    if done.returncode == 0:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (?:tests/)?(\S+)", done.stdout, re.MULTILINE)
    if done.returncode not in (1, 2) or not failed:
        raise SystemExit(
            f"pytest ended with {done.returncode} on "
            f"{files}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return failed[1]


def check_baseline(mutants: list[Mutant], copies: "SimpleQueue[Path]", quick: bool) -> None:
    names = sorted(
        {name for each in mutants for name in [*each.tests, *([] if quick else each.slow)]}
    )
    began, checkout = time.monotonic(), copies.get()
    with ThreadPoolExecutor(copies.qsize() + 1) as pool:
        failed = [
            each
            for each in pool.map(
                lambda name: run_tests(files_of([name], checkout), checkout), names
            )
            if each
        ]
    copies.put(checkout)
    if failed:
        raise SystemExit(f"these tests fail on the unchanged code: {', '.join(failed)}")
    print(
        f"{len(names)} test files pass on the unchanged code in {time.monotonic() - began:.0f} s",
        flush=True,
    )


def judge(mutant: Mutant, copies: "SimpleQueue[Path]", quick: bool) -> Verdict:
    checkout, began = copies.get(), time.monotonic()
    file = checkout / mutant.file
    source = file.read_text()
    file.write_text(source.replace(mutant.old, mutant.new))
    try:
        killed_by, slow = run_tests(files_of(mutant.tests, checkout), checkout), False
        if not killed_by and mutant.slow and not quick:
            killed_by, slow = run_tests(files_of(mutant.slow, checkout), checkout), True
    finally:
        file.write_text(source)
        copies.put(checkout)
    return Verdict(mutant, killed_by, slow, time.monotonic() - began)


def line_of(verdict: Verdict) -> str:
    mutant = verdict.mutant
    outcome = "killed  " if verdict.killed_by else "equal   " if mutant.equal else "SURVIVED"
    return (
        f"{outcome} {verdict.seconds:5.0f} s  {mutant.file}: {mutant.name}  "
        f"[{verdict.killed_by or mutant.equal}]"
    )


def report(verdicts: list[Verdict]) -> None:
    killed = [each for each in verdicts if each.killed_by]
    alive = [each for each in verdicts if not each.killed_by]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True
    )
    summary = {
        "commit": commit.stdout.strip(),
        "mutants": len(verdicts),
        "killed": len(killed),
        "killed_by_slow_tests": sum(each.slow for each in killed),
        "equal": {each.mutant.name: each.mutant.equal for each in alive if each.mutant.equal},
        "survived": [each.mutant.name for each in alive if not each.mutant.equal],
        "seconds": round(sum(each.seconds for each in verdicts)),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
