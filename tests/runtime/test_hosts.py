"""Several processes on this machine: the same results, work dealt out evenly, and an end with a sentence if one is lost."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from miron_jax.engine.text_requests import TextRequest
from miron_jax.errors import InputError
from miron_jax.evaluation.run import Evaluation
from miron_jax.evaluation.texts import _blocks
from miron_jax.model.checkpoints.hf_reader import load_hf
from miron_jax.runtime.dealing import deal
from tests.support import processes
from tests.support.kept_runs import WRITES_AT_ONCE, parts_in, same_results
from tests.support.tiny_model import WORDS, make_model, write_core_data

pytestmark = pytest.mark.slow

# The command, whose main thread stands still once its first scores are in the journal.
STANDS_STILL = f"""
import time, miron_jax.runtime.journal as journal
add = journal.Journal._add
journal.Journal._add = lambda self, new: (add(self, new), self._wait(), time.sleep(60))
{WRITES_AT_ONCE}
"""
TASKS = "core/copa,core/winograd,core/lambada_openai,miron-gen/en"
ON_A_MESH = ("--sharding=mesh", "--mesh=model=2")
long = pytest.mark.long


class Alone(NamedTuple):
    """A run, and what one process makes of it."""

    flags: list[str]
    model: Path
    data: Path
    results: dict[str, Any]

    def of(self, *names: str) -> dict[str, Any]:
        """The results of these tasks."""
        return {"tasks": {name: self.results["tasks"][name] for name in names}}


def results_of(output: Path) -> dict[str, Any]:
    return json.loads((output / "results.json").read_text())


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    folder = tmp_path_factory.mktemp("alone")
    model, data = make_model(folder / "model"), write_core_data(folder / "data")
    tensors = load_file(model / "model.safetensors")
    tensors["model.layers.1.mlp.down_proj.weight"][-3:] = 0  # as in a file that is half-written: each host names it
    save_file(tensors, model / "model.safetensors")
    flags = [f"--model={model}", f"--data_dir={data}", f"--tasks={TASKS}", "--items_per_category=2", "--limit=3"]
    flags += ["--allow_changed_data", "--token_budget=64", f"--compilation_cache={folder / 'programs'}"]
    processes.run("-c", WRITES_AT_ONCE, "eval", *flags, f"--output={folder / 'out'}", devices=1, check=True)
    return Alone(flags, model, data, results_of(folder / "out"))


def start(
    flags: list[str],
    output: Path,
    *more: str,
    count: int = 2,
    devices: int = 1,
    only: dict[int, str] | None = None,
    code: str = WRITES_AT_ONCE,
) -> list[processes.Process]:
    """`count` processes of one run; `only`: number -> a flag that only this process has, and then only these start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = [*flags, f"--output={output}", f"--coordinator=127.0.0.1:{port}", f"--num_processes={count}", *more]
    return [
        processes.start(
            "-c", code, "eval", *common, f"--process_id={index}", *filter(None, [flag]),
            devices=devices, stdout=subprocess.DEVNULL,
        )
        for index, flag in (only or dict.fromkeys(range(count), "")).items()
    ]  # fmt: skip


def ended(started: list[processes.Process]) -> list[tuple[int | None, str]]:
    """(exit status, standard error) of each."""
    texts = [process.communicate()[1] for process in started]
    return [(process.returncode, text) for process, text in zip(started, texts, strict=True)]


def wait_for_scores_of(index: int, output: Path, process: processes.Process) -> None:
    while not any(path.name.startswith(f"{index}-") for path in parts_in(output)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("count", "devices", "more"),
    [
        (2, 3, ()),
        pytest.param(4, 1, (), marks=long),
        pytest.param(2, 2, ("--sharding=mesh", "--mesh=data=1,model=2"), marks=long),  # each host has all weights
        pytest.param(2, 2, ("--sharding=mesh", "--mesh=data=2,model=2"), marks=long),  # the mesh spans them, in step
        pytest.param(2, 1, ("--sharding=mesh", "--mesh=fsdp=2"), marks=long),
    ],
)
def test_processes_give_what_one_gives(
    count: int, devices: int, more: tuple[str, ...], alone: Alone, tmp_path: Path
) -> None:
    ends = ended(start(alone.flags, tmp_path / "out", *more, count=count, devices=devices))
    assert [status for status, _ in ends] == [0] * count, ends
    results = results_of(tmp_path / "out")
    same_results(results, alone.results)
    speed = results["speed"]
    assert speed["unique_tokens"] == alone.results["speed"]["unique_tokens"]
    assert speed["padded_tokens"] >= speed["unique_tokens"], "all processes' rows are counted"
    assert not list((tmp_path / "out").glob(".*"))
    if not more:  # each process has all weights, and writes some of the completions
        writers = {
            path.name.partition("-")[0] for path in parts_in(tmp_path / "out") if np.load(path)["texts"].size > 2
        }
        assert writers == {str(i) for i in range(count)}


@pytest.mark.parametrize(
    ("index", "number", "whom", "more"),
    [
        (1, signal.SIGSTOP, "worker", ()),
        pytest.param(1, signal.SIGKILL, "worker", (), marks=long),
        pytest.param(0, signal.SIGKILL, "worker", (), marks=long),
        pytest.param(1, signal.SIGKILL, "supervisor", (), marks=long),
        pytest.param(1, signal.SIGKILL, "supervisor", ON_A_MESH, marks=long),
        (0, signal.SIGKILL, "supervisor", ON_A_MESH),
    ],
)
def test_a_lost_process_ends_the_others_by_name(
    index: int, number: signal.Signals, whom: str, more: tuple[str, ...], alone: Alone, tmp_path: Path
) -> None:
    """Killed, or stopped and silent: the other one says which within --peer_timeout; one process goes on from there."""
    started = start(alone.flags, tmp_path / "out", "--peer_timeout=6", *more, code=STANDS_STILL)
    wait_for_scores_of(0 if more else index, tmp_path / "out", started[1 - index])  # of a mesh the first process writes
    lost = started[index]
    child = int(Path(f"/proc/{lost.pid}/task/{lost.pid}/children").read_text().split()[0])
    os.kill(child if whom == "worker" else lost.pid, number)
    before = time.monotonic()
    [(status, err)] = ended([started[1 - index]])
    seconds = time.monotonic() - before
    if number == signal.SIGSTOP:
        os.kill(child, signal.SIGKILL)
    lost.communicate(timeout=60)
    assert status == 75, err
    assert seconds < 6 + 40, "within --peer_timeout; a process that misses nothing stands still for 60"
    sentence = {
        0: "(has lost process 0, which coordinates|process 0, which coordinates the run, has not answered)",
        1: rf"miron-jax: process 1 \({re.escape(socket.gethostname())}\) has not been heard from for",
    }[index]
    assert re.search(sentence, err), err
    done = ("eval", *alone.flags, f"--output={tmp_path / 'out'}")
    processes.run("-c", WRITES_AT_ONCE, *done, devices=1, check=True)
    same_results(results_of(tmp_path / "out"), alone.results)


def test_sigterm_to_one_process_ends_all_as_interrupted(alone: Alone, tmp_path: Path) -> None:
    started = start(alone.flags, tmp_path / "out", code=STANDS_STILL)
    wait_for_scores_of(1, tmp_path / "out", started[0])
    started[1].send_signal(signal.SIGTERM)
    ends = ended(started)
    assert [status for status, _ in ends] == [75, 75], ends
    assert "process 1" in ends[0][1]
    assert "interrupted" in ends[0][1]


def test_sigterm_ends_a_process_that_waits_for_the_others(alone: Alone, tmp_path: Path) -> None:
    [process] = start(alone.flags, tmp_path / "out", only={0: ""})
    assert process.stderr is not None
    assert "process 0 meets the others (2 in all)" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    err = process.communicate(timeout=100)[1]
    assert process.returncode == 75, err
    assert "interrupted before all processes had met" in err


def test_a_process_whose_number_another_one_had_does_not_end_with_its_status() -> None:
    processes.run("-c", "")
    server = processes._server
    assert server is not None
    highest = int(Path("/proc/sys/kernel/pid_max").read_text())
    server._ended |= dict.fromkeys(range(1, highest + 1), 0)
    try:
        assert processes.run("-c", "raise SystemExit(3)").returncode == 3
    finally:
        server._ended.clear()


@pytest.mark.parametrize("case", ["folder of others", "flags that differ", "data that differ"])
def test_what_ends_one_process_ends_both(case: str, alone: Alone, tmp_path: Path) -> None:
    """Nobody waits, and nothing is mixed up."""
    changed = Path(shutil.copytree(alone.data, tmp_path / "data"))
    copa = next(changed.rglob("copa.jsonl"))
    copa.write_text(copa.read_text().replace(" the ", " a "))
    (tmp_path / "out").mkdir()
    if case == "folder of others":
        (tmp_path / "out" / "notes.txt").write_text("mine")
    only, by_first, by_second = {
        "folder of others": ({}, *["is not empty and holds no results.json"] * 2),
        "flags that differ": (
            {0: "--dtype=bfloat16", 1: ""},
            *["process 1 runs with dtype = float32, process 0 with dtype = bfloat16"] * 2,
        ),
        "data that differ": ({0: "", 1: f"--data_dir={changed}"}, "process 1 has other requests than process 0", ""),
    }[case]
    ends = ended(start(alone.flags, tmp_path / "out", only=only))
    assert [status for status, _ in ends] == [2, 2], ends
    assert by_first in ends[0][1]
    assert by_second in ends[1][1]


@pytest.mark.parametrize("more", [(), pytest.param(ON_A_MESH, marks=long)])
def test_steps_of_an_orbax_run_are_shared(more: tuple[str, ...], alone: Alone, tmp_path: Path) -> None:
    state = nnx.to_pure_dict(load_hf(alone.model, jnp.float32).state)
    shutil.copytree(alone.model, tmp_path / "run", ignore=shutil.ignore_patterns("*.safetensors"))
    with ocp.StandardCheckpointer() as saver:
        saver.save(tmp_path / "run" / "1", jax.tree.map(lambda leaf: np.asarray(leaf) * np.float32(1.5), state))
        saver.save(tmp_path / "run" / "2", state)
    flags = [*alone.flags, f"--model={tmp_path / 'run'}", "--tasks=core/copa"]
    ends = ended(start(flags, tmp_path / "out", *more))
    assert [status for status, _ in ends] == [0, 0], ends
    same_results(results_of(tmp_path / "out"), alone.of("core/copa"))
    first = results_of(tmp_path / "out" / "step_1")["tasks"]["core/copa"]["metrics"]["bits_per_byte"]["value"]
    assert first != alone.results["tasks"]["core/copa"]["metrics"]["bits_per_byte"]["value"]


@pytest.mark.parametrize(
    ("flag", "more"),
    [
        ("--until=ci<=0.07", ()),
        pytest.param("--budget=1500", (), marks=long),
        pytest.param("--until=ci<=0.07", ON_A_MESH, marks=long),
    ],
)
def test_processes_choose_the_same_examples(flag: str, more: tuple[str, ...], alone: Alone, tmp_path: Path) -> None:
    """The first one decides after each round; the others follow, and the numbers are those of one process."""
    draws = np.random.default_rng(0)
    rows = [
        {"q": f"the {WORDS[a]} is", "c": [WORDS[b], f"{WORDS[a]} {WORDS[b]}"], "a": int(draws.integers(2))}
        for a, b in draws.integers(0, len(WORDS), (250, 2)).tolist()
    ]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "t.yaml").write_text("task: t\ndata: t.jsonl\nquestion: q\nchoices: c\ngold: a\nnum_fewshot: 0\n")
    flags = [*alone.flags, "--tasks=own", f"--task_path={tmp_path / 't.yaml'}", "--limit=250", flag]
    one = ("-c", WRITES_AT_ONCE, "eval", *flags, f"--output={tmp_path / 'one'}")
    processes.run(*one, devices=1, check=True)
    ends = ended(start(flags, tmp_path / "out", *more))
    assert [status for status, _ in ends] == [0, 0], ends
    results, expected = results_of(tmp_path / "out"), results_of(tmp_path / "one")
    same_results(results, expected)
    task = results["tasks"]["own/t"]
    assert task["sampled"] == expected["tasks"]["own/t"]["sampled"]
    assert 100 < task["n"] < 250, "several rounds, and not all examples"
    speed = results["speed"]
    assert speed["computed_tokens"] == speed["unique_tokens"] == expected["speed"]["unique_tokens"], "each counted once"


@pytest.mark.parametrize(
    ("devices", "more"),
    [pytest.param(1, (), marks=long), (2, ("--sharding=mesh", "--mesh=fsdp=2,model=2"))],
    ids=["each its rows", "one mesh"],
)
def test_every_process_keeps_its_compiled_programs(
    devices: int, more: tuple[str, ...], alone: Alone, tmp_path: Path
) -> None:
    """Of the mesh each host has half of every weight."""
    names = ("miron-gen/en",)
    flags = [*alone.flags, f"--tasks={','.join(names)}", f"--compilation_cache={tmp_path / 'programs'}", *more]
    kept = list[list[str]]()
    for output in (tmp_path / "first", tmp_path / "again"):
        ends = ended(start(flags, output, devices=devices))
        assert [status for status, _ in ends] == [0, 0], ends
        same_results(results_of(output), alone.of(*names))
        [implausible] = results_of(output)["checkpoint"]["implausible"]
        assert "layers/mlp/down/kernel_IO are zero in the last 3 of 24 columns in layer 1" in implausible
        kept.append(sorted(path.name for path in (tmp_path / "programs").glob("*-process")))
    assert kept[0]
    assert kept[0] == kept[1]


def test_what_one_run_has_planned_serves_other_numbers_of_hosts(alone: Alone, tmp_path: Path) -> None:
    keeps = "import miron_jax.planning.request_batches as r, miron_jax.evaluation.task_kinds.kept_tasks as k\n"
    keeps += f"r.LEAST_KEPT = k.LEAST_KEPT = 0\n{WRITES_AT_ONCE}"
    flags = [*alone.flags, f"--compilation_cache={tmp_path / 'programs'}"]
    names = [name for name in alone.results["tasks"] if name.startswith("core/")]
    flags += [f"--tasks={','.join(names)}"]
    for count, code in (
        (1, keeps),
        (2, f"import miron_jax.planning.request_batches as r\nr.make_plan = None\n{keeps}"),
    ):
        output = tmp_path / str(count)
        ends = ended(start(flags, output, count=count, code=code))
        assert [status for status, _ in ends] == [0] * count, ends
        same_results(results_of(output), alone.of(*names))
    assert list((tmp_path / "programs" / "plans").glob("*.npz"))


def test_bad_processes_are_told_before_anyone_waits(
    tmp_path: Path, miron: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("miron_jax.cli.processes.supervised", lambda: None)  # no fork of the tests
    for flags, sentence in (
        ("--coordinator=localhost --num_processes=2 --process_id=0", "expected host:port of process 0"),
        ("--coordinator=localhost:abc --num_processes=2 --process_id=0", "expected host:port of process 0"),
        ("--coordinator=localhost:1 --num_processes=2 --process_id=2", "expected one of 0 to 1"),
        ("--coordinator=localhost:1 --num_processes=0 --process_id=0", "--process_id=0 of --num_processes=0"),
        ("--coordinator=localhost:1", "--coordinator, --num_processes and --process_id go together"),
        ("--process_id=0", "go together"),
        ("--keep_up", "--newest_first and --keep_up say in which order --watch scores: give --watch too"),
        ("--distributed --watch", "--watch waits for steps on one host"),
        ("--distributed --output=memory://x/y", "is seen by one process only"),
    ):
        ran = miron("eval", f"--output={tmp_path / 'o'}", "--compilation_cache=", *flags.split())
        assert (ran.status, sentence in ran.err) == (2, True), f"{flags}: {ran.err}"


def test_without_a_cluster_distributed_is_refused(tmp_path: Path) -> None:
    ran = processes.run("-m", "miron_jax.cli", "eval", f"--output={tmp_path / 'o'}", "--distributed", timeout=60)
    assert ran.returncode == 2, ran.stderr
    assert "expected a cluster that JAX knows" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(("count", "shards"), [(1, 1), (2, 1), (3, 2), (128, 8)])
def test_every_row_is_dealt_once_and_evenly(count: int, shards: int) -> None:
    rng = np.random.default_rng(0)
    length = rng.choice([256, 512, 1024, 1536, 2048], 40 * count * shards)
    cost = length * (length + 4000.0)
    sizes = {size: 4096 // size for size in np.unique(length).tolist()}
    lists = deal(length, cost, count, shards, sizes, np.zeros(count))
    rows = [row for batches in lists for batch in batches for row in batch]
    assert sorted(rows) == list(range(len(length)))
    for batch in chain.from_iterable(lists):
        assert len({int(length[row]) for row in batch}) == 1
        assert -(-len(batch) // shards) * int(length[batch[0]]) <= 4096
    # A process takes as long as its devices side by side: a batch costs as many rows as the busiest of them has.
    load = [sum(-(-len(batch) // shards) * cost[batch[0]] for batch in batches) for batches in lists]
    assert max(load) <= 1.03 * cost.sum() / (count * shards)


def test_texts_are_dealt_in_blocks_of_neighbours() -> None:
    rng = np.random.default_rng(0)
    requests = [TextRequest(tuple(range(1, 2 + i % 7)), int(rng.integers(1, 40))) for i in range(50)]
    blocks = _blocks([*requests, *requests[:5]], 3)
    assert [request for host in blocks for block in host for request in block] == list(dict.fromkeys(requests))
    assert _blocks([], 2) == [[], []]
    assert sum(len(block) for host in _blocks(requests[:1], 4) for block in host) == 1


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
        placement = SimpleNamespace(is_global=True)
        model: Any = SimpleNamespace(
            config=None, state=None, placement=placement, with_distribution=False, experts_in_kernel=False
        )
        outcome = pytest.raises(InputError, match=words) if words else contextlib.nullcontext()
        with outcome, Evaluation._journal(evaluation, model, "w", None) as journal:
            assert journal is None
