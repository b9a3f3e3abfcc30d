"""Some damaged inputs for each reader: each ends with a value or with one sentence.  More: benchmarks/fuzz.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow


def test_no_damaged_input_ends_in_a_traceback_or_hangs(tmp_path: Path) -> None:
    command = [sys.executable, str(REPOSITORY / "benchmarks/fuzz.py"), "--inputs=6", "--seed=23", f"--keep={tmp_path}"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr[-2000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    assert (counts["tracebacks"], counts["hangs"]) == (0, 0), done.stdout
    assert counts["inputs"] == counts["accepted"] + counts["refused"]
    assert min(counts["accepted"], counts["refused"]) > 20, done.stdout  # files are damaged, and not all beyond reading
