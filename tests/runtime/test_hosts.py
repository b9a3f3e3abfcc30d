"""Several processes on this machine: the same results, work dealt out evenly, and an end with a sentence if one is lost."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from miron_jax.config import RunConfig
from miron_jax.engine.text_requests import TextRequest
from miron_jax.errors import InputError
from miron_jax.evaluation.texts import _blocks
from miron_jax.model.hf_reader import load_hf
from miron_jax.run import Evaluation
from miron_jax.runtime.hosts import Hosts, deal
from tests.conftest import REPOSITORY
from tests.support.kept_runs import WRITES_AT_ONCE, done, parts_in, same_results
from tests.support.tiny_model import make_model, write_core_data

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, Any]]:
    """Flags of a run, and what one process makes of it."""
    folder = tmp_path_factory.mktemp("alone")
    model, data = make_model(folder / "model"), write_core_data(folder / "data")
    flags = [f"--model={model}", f"--data_dir={data}", "--tasks=core,miron-gen/en", "--items_per_category=4"]
    flags += ["--allow_changed_data", "--token_budget=64", "--compilation_cache="]
    done([sys.executable, "-c", WRITES_AT_ONCE, "eval", *flags, f"--output={folder / 'out'}"])
    return flags, json.loads((folder / "out" / "results.json").read_text())


def start(
    flags: list[str], output: Path, count: int, *more: str, devices: int = 1, own: dict[int, str] | None = None
) -> list[subprocess.Popen[str]]:
    """`count` processes of one run; `own`: of processes by number, a flag that only they have, and then only they start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}
    common = [*flags, f"--output={output}", f"--coordinator=127.0.0.1:{port}", f"--num_processes={count}", *more]
    return [
        subprocess.Popen(
            [sys.executable, "-c", WRITES_AT_ONCE, "eval", *common, f"--process_id={index}", *([flag] if flag else [])],
            cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for index, flag in (own or dict.fromkeys(range(count), "")).items()
    ]  # fmt: skip


def ended(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """(exit status, standard error) of each."""
    told = [process.communicate(timeout=240)[1] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, told, strict=True)]


@pytest.mark.parametrize(
    ("count", "devices", "more"),
    [
        (2, 3, ()),
        pytest.param(4, 1, (), marks=pytest.mark.long),
        pytest.param(
            2, 2, ("--sharding=mesh", "--mesh=data=1,model=2"), marks=pytest.mark.long
        ),  # each host has all weights
        (2, 2, ("--sharding=mesh", "--mesh=data=2,model=2")),  # the mesh spans them, in step
        (2, 1, ("--sharding=mesh", "--mesh=fsdp=2")),
    ],
)
def test_processes_give_what_one_gives(
    count: int, devices: int, more: tuple[str, ...], alone: Any, tmp_path: Path
) -> None:
    flags, expected = alone
    found = ended(start(flags, tmp_path / "out", count, *more, devices=devices))
    assert [status for status, _ in found] == [0] * count, found
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    same_results(results, expected)
    assert results["speed"]["unique_tokens"] == expected["speed"]["unique_tokens"]
    assert results["speed"]["padded_tokens"] >= results["speed"]["unique_tokens"], "all processes' rows are counted"
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")] == []


ON_A_MESH = ("--sharding=mesh", "--mesh=model=2")


@pytest.mark.parametrize(
    ("index", "number", "whom", "more"),
    [
        (1, signal.SIGKILL, "worker", ()),
        (1, signal.SIGSTOP, "worker", ()),
        pytest.param(0, signal.SIGKILL, "worker", (), marks=pytest.mark.long),
        pytest.param(1, signal.SIGKILL, "supervisor", (), marks=pytest.mark.long),
        pytest.param(1, signal.SIGKILL, "supervisor", ON_A_MESH, marks=pytest.mark.long),
        (0, signal.SIGKILL, "supervisor", ON_A_MESH),
    ],
)
def test_a_lost_process_ends_the_others_by_name(
    index: int, number: signal.Signals, whom: str, more: tuple[str, ...], alone: Any, tmp_path: Path
) -> None:
    """Killed, or stopped and silent: the other one says which within --peer_timeout; one process goes on from there."""
    flags, expected = alone
    processes = start(flags, tmp_path / "out", 2, "--peer_timeout=6", *more)
    while len(parts_in(tmp_path / "out")) < 2 and processes[1 - index].poll() is None:
        time.sleep(0.02)
    lost = processes[index]
    child = int(Path(f"/proc/{lost.pid}/task/{lost.pid}/children").read_text().split()[0])
    os.kill(child if whom == "worker" else lost.pid, number)
    start_time = time.monotonic()
    status, told = ended([processes[1 - index]])[0]
    seconds = time.monotonic() - start_time
    os.kill(child, signal.SIGKILL) if number == signal.SIGSTOP else None
    lost.communicate(timeout=60)
    if status == 0:
        pytest.fail("the run had ended before its process was lost")
    assert status == 75, told
    assert seconds < 6 + 10, "within --peer_timeout, and what it takes to look and write"
    if index == 0:
        lost_0 = (
            "has lost process 0, which coordinates the run",
            "process 0, which coordinates the run, has not answered",
        )
        assert any(own in told for own in lost_0), told
    else:
        assert f"miron-jax: process 1 ({socket.gethostname()}) has not been heard from for" in told
    done([sys.executable, "-c", WRITES_AT_ONCE, "eval", *flags, f"--output={tmp_path / 'out'}"])
    same_results(json.loads((tmp_path / "out" / "results.json").read_text()), expected)


def test_bad_input_ends_all_processes(alone: Any, tmp_path: Path) -> None:
    flags, _ = alone
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    found = ended(start(flags, tmp_path / "out", 2))
    assert [status for status, _ in found] == [2, 2], found
    assert all("is not empty and holds no results.json" in told for _, told in found)
    found = ended(start([*flags, "--model=/nowhere/at/all"], tmp_path / "other", 2))
    assert [status for status, _ in found] == [2, 2], found


def test_hosts_that_plan_differently_are_told(alone: Any, tmp_path: Path) -> None:
    """A file that one of them has otherwise, or another version: nobody waits, and nothing is mixed up."""
    flags, _ = alone
    shutil.copytree(flags[1].partition("=")[2], tmp_path / "data")
    changed = next((tmp_path / "data").rglob("copa.jsonl"))
    lines = changed.read_text().splitlines()
    changed.write_text("\n".join(lines[:-1]) + "\n")
    found = ended(start(flags, tmp_path / "out", 2, own={0: "", 1: f"--data_dir={tmp_path / 'data'}"}))
    assert [status for status, _ in found] == [2, 2], found
    assert "process 1 has other requests than process 0" in found[0][1]


@pytest.mark.parametrize("more", [(), pytest.param(("--sharding=mesh", "--mesh=model=2"), marks=pytest.mark.long)])
def test_steps_of_an_orbax_run_are_shared(more: tuple[str, ...], alone: Any, tmp_path: Path) -> None:
    flags, expected = alone
    model = Path(next(flag for flag in flags if flag.startswith("--model=")).partition("=")[2])
    state = nnx.to_pure_dict(load_hf(model, jnp.float32).state)
    shutil.copytree(model, tmp_path / "run", ignore=shutil.ignore_patterns("*.safetensors"))
    with ocp.StandardCheckpointer() as saver:
        saver.save(tmp_path / "run" / "1", jax.tree.map(lambda leaf: leaf * 1.5, state))
        saver.save(tmp_path / "run" / "2", state)
    found = ended(start([*flags, f"--model={tmp_path / 'run'}"], tmp_path / "out", 2, *more))
    assert [status for status, _ in found] == [0, 0], found
    same_results(json.loads((tmp_path / "out" / "results.json").read_text()), expected)
    assert (tmp_path / "out" / "step_1" / "results.json").is_file()


def test_sigterm_to_one_process_ends_all_as_interrupted(alone: Any, tmp_path: Path) -> None:
    flags, _ = alone
    processes = start(flags, tmp_path / "out", 2)
    while not parts_in(tmp_path / "out") and processes[0].poll() is None:
        time.sleep(0.02)
    processes[1].send_signal(signal.SIGTERM)
    found = ended(processes)
    assert [status for status, _ in found] == [75, 75], found
    assert "process 1" in found[0][1]
    assert "interrupted" in found[0][1]


@pytest.mark.parametrize(("count", "shards"), [(1, 1), (2, 1), (3, 2), (128, 8)])
def test_every_row_is_dealt_once_and_evenly(count: int, shards: int) -> None:
    rng = np.random.default_rng(0)
    length = rng.choice([256, 512, 1024, 1536, 2048], 40 * count * shards)
    cost = length * (length + 4000.0)
    sizes = {size: 4096 // size for size in np.unique(length).tolist()}
    lists = deal(length, cost, count, shards, sizes, np.zeros(count))
    rows = [row for own in lists for batch in own for row in batch]
    assert sorted(rows) == list(range(len(length)))
    for batch in chain.from_iterable(lists):
        assert len({int(length[row]) for row in batch}) == 1
        assert -(-len(batch) // shards) * int(length[batch[0]]) <= 4096
    # A process takes as long as its devices side by side: a batch costs as many rows as the busiest of them has.
    load = [sum(-(-len(batch) // shards) * cost[batch[0]] for batch in own) for own in lists]
    assert max(load) <= 1.03 * cost.sum() / (count * shards)


def test_texts_are_dealt_in_blocks_of_neighbours() -> None:
    rng = np.random.default_rng(0)
    requests = [TextRequest(tuple(range(1, 2 + i % 7)), int(rng.integers(1, 40))) for i in range(50)]
    blocks = _blocks([*requests, *requests[:5]], 3)
    assert [own for host in blocks for block in host for own in block] == list(dict.fromkeys(requests))
    assert _blocks([], 2) == [[], []]
    assert sum(len(block) for host in _blocks(requests[:1], 4) for block in host) == 1


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--coordinator=localhost", "--num_processes=2", "--process_id=0"], "expected host:port of process 0"),
        (["--coordinator=localhost:abc", "--num_processes=2", "--process_id=0"], "expected host:port of process 0"),
        (["--coordinator=localhost:1", "--num_processes=2", "--process_id=2"], "expected one of 0 to 1"),
        (["--coordinator=localhost:1", "--num_processes=0", "--process_id=0"], "--process_id=0 of --num_processes=0"),
        (["--process_id=0"], "go together"),
        (["--distributed", "--watch"], "--watch waits for steps on one host"),
        (["--distributed", "--output=memory://x/y"], "is seen by one process only"),
    ],
)
def test_bad_processes_are_told_before_anyone_waits(flags: list[str], sentence: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "miron_jax.cli", "eval", f"--output={tmp_path / 'o'}", *flags]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=60)
    assert found.returncode == 2
    assert sentence in found.stderr
    assert "Traceback" not in found.stderr


def test_flags_that_differ_are_told(alone: Any, tmp_path: Path) -> None:
    flags, _ = alone
    found = ended(start(flags, tmp_path / "out", 2, own={0: "--dtype=bfloat16", 1: ""}))
    assert [status for status, _ in found] == [2, 2], found
    assert all("process 1 runs with dtype = float32, process 0 with dtype = bfloat16" in told for _, told in found)


def test_sigterm_ends_a_process_that_waits_for_the_others(alone: Any, tmp_path: Path) -> None:
    flags, _ = alone
    [process] = start(flags, tmp_path / "out", 2, own={0: ""})
    assert process.stderr is not None
    told = process.stderr.readline()
    assert "process 0 meets the others (2 in all)" in told
    process.terminate()
    told = process.communicate(timeout=20)[1]
    assert process.returncode == 75, told
    assert "interrupted before all processes had met" in told


def test_alone_every_item_is_taken_once() -> None:
    hosts = Hosts()
    assert list(hosts.take("q", [["a", "b"]])) == ["a", "b"]
    assert hosts.agree("x", [1]) == [1]
    assert hosts.gather("y") == [None]
    hosts.arrive("y")
    hosts.end()


def test_a_coordinator_wants_number_and_place(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "miron_jax.cli", "eval", "--coordinator=127.0.0.1:1", f"--output={tmp_path / 'o'}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert found.returncode == 2
    assert "--coordinator, --num_processes and --process_id go together" in found.stderr
    command = [sys.executable, "-m", "miron_jax.cli", "eval", "--distributed", f"--output={tmp_path / 'o'}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert found.returncode == 2
    assert "--distributed:" in found.stderr
    assert "expected a cluster that JAX knows" in found.stderr
    assert RunConfig(model="demo", tasks=("core",)).sharding == "pmap"


def test_a_host_of_a_global_mesh_that_took_other_attention_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each host tries the kernel on its own device; hosts that compile different programs would wait for each other."""
    monkeypatch.setattr("miron_jax.evaluation.journal_key.attention_of", lambda model: SimpleNamespace(name="xla"))
    monkeypatch.setattr("miron_jax.evaluation.journal_key.tokenizer_fingerprint", lambda tokenizer: "t")
    monkeypatch.setattr(
        "miron_jax.evaluation.journal_key.Placement.of",
        lambda state: SimpleNamespace(device=SimpleNamespace(platform="tpu")),
    )
    for answer, words in ((lambda name, key: key, None), (lambda name, key: "another", "process 1 has other weights")):
        hosts = SimpleNamespace(is_first=False, index=1, agree=answer)
        evaluation: Any = SimpleNamespace(
            store=object(), hosts=hosts, config=SimpleNamespace(dtype="float32"), _num_scored=0,
            architecture=SimpleNamespace(source="s", eos_ids=(), tokenizer=None),
        )  # fmt: skip
        model: Any = SimpleNamespace(config=None, state=None, placement=SimpleNamespace(is_global=True))
        outcome = pytest.raises(InputError, match=words) if words else contextlib.nullcontext()
        with outcome, Evaluation._journal(evaluation, model, "w", None) as journal:
            assert journal is None


@pytest.mark.parametrize(
    "more",
    [pytest.param((), marks=pytest.mark.long), ("--sharding=mesh", "--mesh=data=2")],
    ids=["each its rows", "one mesh"],
)
def test_every_process_keeps_its_compiled_programs(alone, tmp_path, more) -> None:
    flags, expected = alone
    programs, kept = tmp_path / "programs", list[list[str]]()
    for name in ("first", "again"):
        processes = start(flags, tmp_path / name, 2, f"--compilation_cache={programs}", *more)
        assert [status for status, _ in ended(processes)] == [0, 0]
        same_results(json.loads((tmp_path / name / "results.json").read_text()), expected)
        kept.append(sorted(path.name for path in programs.glob("*-process")))
    assert kept[0]
    assert kept[0] == kept[1]
