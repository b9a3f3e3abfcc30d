"""The launch recipes: flag files that the command accepts, a Slurm script that runs, a matching Kubernetes file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from absl import flags

from miron_jax.cli.parse import parse
from miron_jax.cli.run_config import run_config
from tests.conftest import REPOSITORY
from tests.support import processes
from tests.support.command import Place, common
from tests.support.kept_runs import same_results

pytestmark = pytest.mark.slow

LAUNCH = REPOSITORY / "examples" / "launch"
FLAG_FILES = sorted(LAUNCH.glob("*.flags"))
# What Slurm's srun does with two tasks on one node; the tasks only say how they are called.
SRUN = """#!/usr/bin/env bash
for i in 0 1; do
  SLURM_PROCID=$i SLURM_LOCALID=$i "$@" || exit
done
"""
TASK = (
    f"#!{sys.executable}"
    """
import json, os, sys
print(json.dumps({"arguments": sys.argv[1:], "environment": dict(os.environ), "cwd": os.getcwd()}))
sys.exit(int(os.environ.get("STATUS", "0")))
"""
)


@pytest.mark.parametrize("path", FLAG_FILES, ids=lambda path: path.name)
def test_flag_files_are_flags_of_the_command(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    flags.FLAGS.unparse_flags()
    parse("eval", ["miron-jax eval", f"--flagfile={path}"])
    assert run_config().sharding == "pmap"


def test_the_slurm_script_runs_two_processes(miron: Any, place: Place, tmp_path: Path) -> None:
    """With Slurm's variables as srun sets them, JAX finds both processes, whose results are those of a single one."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, script in {"srun": SRUN, "miron-jax": TASK, "scontrol": '#!/usr/bin/env bash\necho "$*"\n'}.items():
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    slurm = {"SLURM_JOB_ID": str(os.getpid() % 4000), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    environment = {**os.environ, **slurm, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(LAUNCH)}
    command = [
        "bash",
        str(LAUNCH / "slurm.sbatch"),
        *common(place, tmp_path / "together", "--dtype=float32", "--limit=4"),
    ]

    def batch_job(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, env=environment | more, check=False)

    tasks = [json.loads(line) for line in batch_job().stdout.splitlines()]
    running = [
        processes.start(
            "-m", "miron_jax", *task["arguments"], env=task["environment"], cwd=Path(task["cwd"]), devices=1
        )
        for task in tasks
    ]
    for process in running:
        _, err = process.communicate()
        assert process.returncode == 0, err[-3000:]
    ran = miron("eval", *common(place, tmp_path / "alone", "--dtype=float32", "--limit=4"))
    assert ran.status == 0, ran.err
    together, alone = (
        json.loads((tmp_path / name / "results.json").read_text(encoding="utf-8")) for name in ("together", "alone")
    )
    same_results(together, alone)
    assert together["environment"]["num_devices"] == 2

    requeued = batch_job(STATUS="75")
    assert requeued.returncode == 75
    assert requeued.stdout.splitlines()[-1] == f"requeue {slurm['SLURM_JOB_ID']}"


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
