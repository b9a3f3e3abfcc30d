"""How many programs a whole run compiles, of whatever kind."""

import json
from collections import Counter
from pathlib import Path

import pytest

from miron_jax.evaluation.run_tasks import SCORING_PROGRAMS
from tests.support import processes
from tests.support.command import Place

SELF_CHECK_PROGRAMS, OTHER_PROGRAMS = 2, 4
# The command; its last line says who asked for each program.
COUNTS = """
import atexit, json, os, traceback
import jax

asked = []

def listen(event, seconds, **more):
    if event == "/jax/core/compile/backend_compile_duration":
        files = [frame.filename for frame in traceback.extract_stack()]
        asked.append([name.rpartition("/miron_jax/")[2] for name in files if "/miron_jax/" in name])

jax.monitoring.register_event_duration_secs_listener(listen)
atexit.register(lambda: print(json.dumps(asked)))
from miron_jax.cli import main
main()
"""


@pytest.mark.slow
def test_a_whole_core_compiles_few_programs(place: Place, tmp_path: Path) -> None:
    """Row lengths, two of the self-check, and four for the weights' fingerprint and what looks implausible in them."""
    flags = [
        "--model=demo",
        "--steps=60",
        "--tasks=core",
        "--limit=3",
        f"--data_dir={place.data}",
        "--allow_changed_data",
    ]
    ran = processes.run(
        "-c", COUNTS, "eval", *flags, f"--output={tmp_path / 'out'}", "--compilation_cache=", check=True
    )  # fmt: skip
    by = Counter[str]()
    for files in json.loads(ran.stdout.splitlines()[-1]):
        kinds = {"engine/forward.py": "scoring", "engine/plain.py": "self-check"}
        by[next((kinds[name] for name in files if name in kinds), "other")] += 1
        assert files, "a program that no line of the package asked for"
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert by["scoring"] == results["speed"]["programs"] <= SCORING_PROGRAMS
    assert 1 <= by["self-check"] <= SELF_CHECK_PROGRAMS
    assert 1 <= by["other"] <= OTHER_PROGRAMS
