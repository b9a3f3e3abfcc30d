"""An Evaluator on every process of a training job: weights spread over all of them, one result, an end with a sentence."""

import json
import socket
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import miron_jax
from miron_jax.config import RunConfig
from miron_jax.errors import RUN_AGAIN, InputError
from miron_jax.runtime import hosts
from miron_jax.runtime.hosts import Hosts
from tests.support import processes
from tests.support.coordinator import Coordinator
from tests.support.kept_runs import same_results
from tests.support.own_models import bigrams, of_nnx, users_promotion
from tests.support.own_task import CHOICE, rows
from tests.support.tiny_model import make_tokenizer

__all__ = ["users_promotion"]  # a fixture that every test here uses

TRAINER = """
import json, os, sys
from pathlib import Path
import miron_jax
import jax
import miron_jax.evaluation.same_on_hosts as same_on_hosts
from miron_jax.runtime import hosts
from tests.evaluation.test_evaluator_memory import bytes_of_a_device
from tests.evaluation.test_evaluator_hosts import MODELS, evaluator_of, spread

port, count, index, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
folder = Path(sys.argv[5])
address = f"127.0.0.1:{port}"
jax.distributed.initialize(
    address, count, index, coordinator_bind_address=address, cluster_detection_method="deactivate"
)
mesh = jax.make_mesh((count, 2), ("data", "model"))
params = MODELS[kind]().params
evaluator = evaluator_of(folder, kind, row_axes=("data",), output=folder / "out")
weights = spread(params, mesh)
elsewhere = spread(params, jax.sharding.Mesh(mesh.devices[::-1], mesh.axis_names))
results = evaluator.run(weights, step=1)

def refused(run):
    try:
        run()
    except miron_jax.InputError as error:
        return str(error)

other_data = folder / "other" if index else folder
version = same_on_hosts.__version__
same_on_hosts.__version__ = f"{version}.{index}"
of_version = refused(lambda: evaluator_of(folder, kind).run(weights))
same_on_hosts.__version__ = version
sentences = [
    of_version,
    refused(lambda: evaluator.run(weights, step=index)),
    refused(lambda: evaluator_of(folder, kind, limit=2 + index).run(weights)),
    refused(lambda: evaluator_of(other_data, kind).run(weights)),
    refused(lambda: evaluator.run({"params": weights} if index else weights)),
    refused(lambda: evaluator_of(folder, kind).run(elsewhere if index else weights)),
    refused(lambda: evaluator_of(folder, kind, mesh=f"fsdp={count},model=2").run(weights)),
    refused(lambda: evaluator_of(folder, kind, mesh=f"data={3 if index else 2 * count}").run(weights)),
]
again = evaluator.run(weights, step=2)
copying = evaluator_of(folder, kind, mesh=f"data={2 * count}")
memory = copying.memory(weights)
before = bytes_of_a_device()
copied = copying.run(weights)
assert bytes_of_a_device() == before
assert memory.weights == sum(leaf.nbytes for leaf in jax.tree.leaves(weights))
print(json.dumps([results, again, copied, sentences]), flush=True)

from miron_jax.engine.forward import Forward
hosts.of_program().peer_timeout = 3.0
if index == 1:
    Forward.run_all = lambda *_: os._exit(9)
evaluator.run(weights, step=3)
"""


def table() -> miron_jax.OwnModel:
    """A table of logits whose sides can be split."""
    return bigrams(vocab_size=336, params=jnp.asarray(np.random.default_rng(0).normal(size=(336, 336)), jnp.float32))


MODELS: dict[str, Callable[[], miron_jax.OwnModel]] = {"table": table, "transformer": of_nnx}


def evaluator_of(folder: Path, kind: str, **options: Any) -> miron_jax.Evaluator:
    given = {"limit": 5, "task_path": (str(folder / "task"),), **options}
    return miron_jax.Evaluator(replace(MODELS[kind](), params=None), str(folder), ["own/x"], **given)


def spread(params: Any, mesh: jax.sharding.Mesh) -> Any:
    """The weights on this mesh, matrices split over all devices; each process makes its blocks alone."""

    def put(x: jax.Array) -> jax.Array:
        host = np.asarray(x)
        is_even = x.ndim == 2 and not len(x) % mesh.size
        sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names) if is_even else PartitionSpec())
        return jax.make_array_from_callback(x.shape, sharding, lambda index: host[index])

    return jax.tree.map(put, params)


def write_task(folder: Path, last: str) -> None:
    folder.mkdir(parents=True)
    records = [{**row, "c": ["cold", "hot and small", last]} for row in rows(*(i % 3 for i in range(7)))]
    (folder / "x.yaml").write_text(CHOICE)
    (folder / "x.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "kind"),
    [
        (2, "table"),
        pytest.param(2, "transformer", marks=pytest.mark.long),
        pytest.param(4, "transformer", marks=pytest.mark.long),
    ],
)
def test_processes_of_a_trainer_score_together_or_all_say_why_not(count: int, kind: str, tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    write_task(tmp_path / "task", "a hill")
    write_task(tmp_path / "other" / "task", "a hole")
    make_tokenizer(tmp_path / "other")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        processes.start("-c", TRAINER, str(port), str(count), str(index), kind, str(tmp_path), devices=2)
        for index in range(count)
    ]
    alone = evaluator_of(tmp_path, kind).run(MODELS[kind]().params)
    ended = [process.communicate() for process in started]
    assert started[1].returncode == 9, ended
    texts = [out.splitlines()[-1] for index, (out, _) in enumerate(ended)]
    assert len({*texts}) == 1, ended
    results, again, copied, sentences = json.loads(texts[0])
    for each in (results, copied):
        same_results(each, alone)
    assert copied["config"]["mesh"][0] == ["data", 2 * count]
    assert again["tasks"] == results["tasks"]
    assert (results["config"]["sharding"], results["config"]["mesh"]) == ("user", [["data", count], ["model", 2]])
    assert results["speed"]["unique_tokens"] == alone["speed"]["unique_tokens"]
    assert json.loads((tmp_path / "out/step_1/results.json").read_text())["tasks"] == results["tasks"]
    assert "--mesh splits weights by the names" in sentences[-2]
    assert f"process 1: Evaluator: mesh='data=3' takes 3 devices, the weights lie on {2 * count}" in sentences[-1]
    for sentence, field in zip(sentences[:-2], ("version", "step", "limit", "data", "", "mesh"), strict=True):
        assert sentence.startswith(f"process 1 has {field} " if field else "process 1: Evaluator.run: these params")
    for index in {*range(count)} - {1}:
        assert started[index].returncode == RUN_AGAIN, ended[index]
        assert "miron-jax: process 1 (" in ended[index][1]
        assert "has not been heard from" in ended[index][1]


def in_both(work: Callable[[Hosts], Any], store: Coordinator, both: list[Hosts] | None = None) -> list[Any]:
    """What two processes make of it: a result, or the error's text."""

    def one(each: Hosts) -> Any:
        try:
            return work(each)
        except (InputError, ValueError) as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        return [*pool.map(one, both or [Hosts(index, 2, store, in_rounds=True) for index in range(2)])]


def test_rounds_leave_nothing_behind() -> None:
    store = Coordinator()
    both = [Hosts(index, 2, store, in_rounds=True) for index in range(2)]

    def work(each: Hosts) -> Any:
        with each.round(lambda: {"step": 1}):
            return each.agree("value", each.index + 7)

    sizes, num_threads = [], threading.active_count()
    for _ in range(3):
        assert in_both(work, store, both) == [7, 7]
        sizes.append(len(store.values))
    assert sizes[0] == sizes[1] == sizes[2]
    assert threading.active_count() == num_threads


def test_a_process_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "STALL_SECONDS", 0.05)
    with (
        pytest.raises(InputError, match="process 1 has not come for 0 s: call it in all"),
        Hosts(0, 2, Coordinator(), in_rounds=True).round(dict),
    ):
        pass


def test_an_error_in_a_round_ends_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hosts, "BEAT_SECONDS", 0.01)
    statuses: list[int] = []
    monkeypatch.setattr(hosts.os, "_exit", statuses.append)

    def work(each: Hosts) -> Any:
        with each.round(dict):
            if each.is_first:
                raise ValueError("no room")
            each._stopped.wait(10)  # for the first one, for ever

    assert in_both(work, Coordinator()) == ["no room", None]
    assert statuses[0] == 1
    assert "miron-jax: process 0 (" in (said := capsys.readouterr().err)
    assert "has ended: ValueError: no room" in said


def test_an_error_behind_the_others_end_of_a_round_is_told_to_those_that_wait_for_results() -> None:
    """The first process compares scores when the others are done."""
    second_has_left = threading.Event()

    def work(each: Hosts) -> Any:
        with each.round(dict):
            if each.is_first:
                second_has_left.wait(10)
                raise ValueError("a score differs")
        second_has_left.set()
        return each.in_first(dict).result(10)

    assert in_both(work, Coordinator()) == [
        "a score differs",
        "process 0 has failed: ValueError: a score differs",
    ]


class Numbers:
    """A logger that keeps what it gets."""

    def __init__(self) -> None:
        self.steps = dict[int, set[str]]()

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self.steps.setdefault(step, set()).update(numbers)

    def close(self) -> None: ...


@pytest.mark.slow
def test_training_is_the_same_beside_runs_of_a_subset_and_one_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tokenizer(tmp_path)
    write_task(tmp_path / "task", "a hill")
    numbers = Numbers()
    opened = list[str]()

    def open_loggers(config: RunConfig) -> list[Numbers]:
        opened.extend(filter(None, (config.tensorboard, config.mlflow, config.trackio)))
        return [numbers]

    monkeypatch.setattr("miron_jax.evaluator.open_loggers", open_loggers)
    options = {"every": 2, "subset": 12, "output": tmp_path / "out", "limit": None, "mlflow": "m", "trackio": "t"}
    evaluator = evaluator_of(tmp_path, "table", **options)
    assert opened == ["m", "t"], "once: the subset's runs log there too"

    def loss(params: jax.Array) -> jax.Array:
        return -jax.nn.log_softmax(params[:-1])[jnp.arange(335), jnp.arange(1, 336)].mean()

    @partial(jax.jit, donate_argnums=0)
    def train(params: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(params)
        return params - 9 * gradient, value

    def curve(after_step: Callable[[jax.Array, int, bool], Any]) -> list[float]:
        params, losses = table().params, list[float]()
        assert params is not None
        for step in range(1, 6):
            params, value = train(params)
            after_step(params, step, step == 5)
            losses.append(float(value))
        return losses

    futures = dict[int, Any]()
    config = dict(jax.config.values)
    losses = curve(lambda params, step, last: futures.update({step: evaluator.after_step(params, step, is_last=last)}))
    assert losses == curve(lambda *_: None)
    assert dict(jax.config.values) == config
    results = {step: future.result() for step, future in futures.items() if future is not None}
    assert [*results] == [2, 4, 5]
    assert [results[step]["config"]["budget"] for step in results] == [12, 12, None]
    of_task = [result["tasks"]["own/x"] for result in results.values()]
    assert of_task[0]["n"] == of_task[1]["n"] < of_task[2]["n"] == 7
    assert "interval" in str(of_task[0]), "of examples that were drawn"
    assert sorted(path.name for path in tmp_path.glob("out*/step_*")) == ["step_2", "step_4", "step_5"]
    assert {step: min(names) for step, names in numbers.steps.items()}[2].startswith("subset/own/x")
    assert min(numbers.steps[5]).startswith("own/x")
    weights = table().params
    freed = weakref.ref(weights)
    future = evaluator.run_async(weights)
    del weights
    assert freed() is None, "the trainer's memory is its own again"
    assert future.result()["tasks"] == evaluator.run(table().params)["tasks"]


def test_a_subset_beside_a_budget_is_refused(tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    write_task(tmp_path / "task", "a hill")
    with pytest.raises(InputError, match="subset is a budget of its own"):
        evaluator_of(tmp_path, "table", subset=9, budget=9)
