"""The launch recipes: flag files that the command accepts, a Slurm script that runs, a matching Kubernetes file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from miron_jax.files.readers import JsonObject
from tests.conftest import REPOSITORY
from tests.support.kept_runs import same_results
from tests.support.tiny_model import make_model, write_core_data

pytestmark = pytest.mark.slow

LAUNCH = REPOSITORY / "examples" / "launch"
FLAG_FILES = sorted(LAUNCH.glob("*.flags"))
# What Slurm's srun does with two tasks on one node.
SRUN = """#!/usr/bin/env bash
for i in 0 1; do
  SLURM_PROCID=$i SLURM_LOCALID=$i "$@" &
  tasks+=($!)
done
status=0
for task in "${tasks[@]}"; do wait "$task" || status=$?; done
exit "$status"
"""


@pytest.mark.parametrize("path", FLAG_FILES, ids=lambda path: path.name)
def test_flag_files_are_flags_of_the_command(path: Path) -> None:
    code = """
import sys
from miron_jax.cli.parse import parse
from miron_jax.cli.run_config import run_config

parse("eval", ["x", *sys.argv[1:]])
print(run_config().sharding)
"""
    command = [sys.executable, "-c", code, f"--flagfile={path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "pmap"


def test_the_slurm_script_runs_two_processes(tmp_path: Path) -> None:
    """With Slurm's variables as srun sets them, JAX finds both processes, whose results are those of a single one."""
    model, data = make_model(tmp_path / "model"), write_core_data(tmp_path / "data")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "srun").write_text(SRUN)
    (tools / "miron-jax").write_text(f'#!/usr/bin/env bash\nexec {sys.executable} -m miron_jax.cli "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    flags = [f"--model={model}", f"--data_dir={data}", "--tasks=core", "--allow_changed_data", "--dtype=float32"]
    slurm = {"SLURM_JOB_ID": str(os.getpid() % 4000), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    environment = {**os.environ, **slurm, "PATH": f"{tools}:{os.environ['PATH']}", "JAX_PLATFORMS": "cpu"}
    environment |= {"PYTHONPATH": str(REPOSITORY), "SLURM_SUBMIT_DIR": str(LAUNCH)}

    def run(command: list[str], output: str) -> JsonObject:
        command = [*command, *flags, f"--output={tmp_path / output}"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads((tmp_path / output / "results.json").read_text())

    together = run(["bash", str(LAUNCH / "slurm.sbatch")], "together")
    same_results(together, run([str(tools / "miron-jax"), "eval"], "alone"))
    assert together["environment"]["num_devices"] == 2


@pytest.mark.parametrize("name", ["tpu_pod.sh", "slurm.sbatch"])
def test_scripts_are_bash(name: str) -> None:
    assert subprocess.run(["bash", "-n", str(LAUNCH / name)], capture_output=True, check=False).returncode == 0


def test_the_tpu_script_gives_every_host_the_command(tmp_path: Path) -> None:
    (tmp_path / "gcloud").write_text('#!/usr/bin/env bash\nprintf "%s\\n" "$*" >> "$LOG"\n')
    (tmp_path / "gcloud").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(tmp_path / "log")}
    command = ["bash", str(LAUNCH / "tpu_pod.sh"), "pod", "us-east5-a", "--limit=5", "--tasks=core/arc easy"]
    assert subprocess.run(command, env=environment, check=False).returncode == 0
    copied, ran = (tmp_path / "log").read_text().splitlines()
    assert copied.endswith("tpu_pod.flags pod: --zone=us-east5-a --worker=all")
    assert "ssh pod --zone=us-east5-a --worker=all" in ran
    assert r"miron-jax eval --flagfile=tpu_pod.flags --limit=5 --tasks=core/arc\ easy" in ran


def test_the_kubernetes_file_says_what_the_command_takes() -> None:
    service, job = yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())
    spec = job["spec"]
    assert service["spec"]["selector"]["job-name"] == job["metadata"]["name"]
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert spec["completions"] == spec["parallelism"] == 4
    [container] = spec["template"]["spec"]["containers"]
    assert container["command"][:2] == ["miron-jax", "eval"]
    assert (LAUNCH / Path(container["command"][2].partition("=")[2]).name).is_file()
    failing, counted = (rule["onExitCodes"]["values"] for rule in spec["podFailurePolicy"]["rules"])
    assert (failing, counted) == ([1, 2], [75])
