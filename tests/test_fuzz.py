"""Two minutes of damaged inputs for all readers: each ends by a value or by one sentence.  More: benchmarks/fuzz.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY


def test_no_damaged_input_ends_in_a_traceback_or_hangs(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(REPOSITORY / "benchmarks/fuzz.py"),
        "--seconds=120",
        "--seed=23",
        f"--keep={tmp_path}",
    ]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["tracebacks"], told["hangs"]) == (0, 0), done.stdout
    assert told["inputs"] == told["accepted"] + told["refused"]
    assert min(told["accepted"], told["refused"]) > 50, done.stdout  # it did damage them, and not all beyond reading
