"""A training job of several processes, which scores its weights every 20 of 200 steps and is killed in the middle of one."""

import json
import socket
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import miron_jax
from miron_jax.errors import RUN_AGAIN
from tests.evaluation.test_evaluator_hosts import write_task
from tests.support import processes
from tests.support.own_models import of_nnx, users_promotion
from tests.support.tiny_model import make_tokenizer
from tests.support.tolerances import CONTINUATION
from tests.support.training_runs import eval_command, scores_of

__all__ = ["users_promotion"]  # a fixture that every test here uses

pytestmark = [pytest.mark.slow, pytest.mark.long]

STEPS, EVERY, KILLED_AT = 200, 20, 120
TIMEOUT = 1500.0  # seconds: eight devices on two cores
TRAINER = """
import json, os, sys
from pathlib import Path
import miron_jax
import jax
import orbax.checkpoint as ocp
from miron_jax.engine.forward import Forward
from miron_jax.runtime import hosts
from tests.evaluation.test_evaluator_hosts import evaluator_of, spread
from tests.evaluation.test_evaluator_training import EVERY, KILLED_AT, STEPS, train
from tests.support.own_models import of_nnx

port, count, index, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
address = f"127.0.0.1:{port}"
jax.distributed.initialize(
    address, count, index, coordinator_bind_address=address, cluster_detection_method="deactivate"
)
mesh = jax.make_mesh((count, 8 // count), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
first = spread(of_nnx().params, mesh)
checkpoints = ocp.StandardCheckpointer()
saved = max((int(path.name) for path in (folder / "run").glob("*") if path.name.isdigit()), default=0)
params = checkpoints.restore(folder / "run" / str(saved), first) if saved else first
evaluator = evaluator_of(folder, "transformer", row_axes=("data",), output=folder / "out", every=EVERY)
num_scored, losses = [], []

def after_step(params, step):
    if not index:  # the pipes of others are read when this one has ended, and would be full before
        print(json.dumps([step, num_scored, losses]), flush=True)
    if step % EVERY == 0:
        if step > saved:
            checkpoints.save(folder / "run" / str(step), params)
            checkpoints.wait_until_finished()
        if step == KILLED_AT and not saved and index == count - 1:
            Forward.run_all = lambda *_: os._exit(9)
    if (future := evaluator.after_step(params, step)) is not None:
        num_scored.append(step)
        future.result()

hosts.of_program().peer_timeout = 5.0
if saved:  # a restarted job asks for the step that it comes from
    after_step(params, saved)
train(params, saved, after_step, losses)
alone = train(spread(of_nnx().params, mesh), 0, lambda *_: None, [])
print(json.dumps([saved, losses, alone, num_scored]), flush=True)
"""


def loss_of(params: Any, tokens: jax.Array) -> jax.Array:
    """Mean nats of the next tokens."""
    model = of_nnx()
    assert model.hidden is not None
    seen = miron_jax.Visibility.causal(len(tokens), tokens.shape[1] - 1)
    hidden = model.hidden(params, tokens[:, :-1], seen.position_BT, seen)
    logits = hidden @ model.head(params).weight_VD.T  # type: ignore[union-attr, misc]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1).mean()


def training_step(params: Any, tokens: jax.Array) -> tuple[Any, jax.Array]:
    loss, gradient = jax.value_and_grad(loss_of)(params, tokens)
    return jax.tree.map(lambda leaf, slope: leaf - 0.05 * slope, params, gradient), loss


def train(params: Any, begin: int, after_step: Any, losses: list[float]) -> list[float]:
    """The loss of each step after `begin`, which `losses` gets as it is known; the tokens of a step follow from its
    number."""
    shardings = jax.tree.map(lambda leaf: leaf.sharding, params)
    one_step = jax.jit(training_step, donate_argnums=0, out_shardings=(shardings, None))
    for step in range(begin + 1, STEPS + 1):
        tokens = np.random.default_rng(step).integers(0, 40, (8, 17), np.int32)
        params, loss = one_step(params, tokens)
        losses.append(float(loss))
        after_step(params, step)
    return losses


def job(count: int, folder: Path) -> tuple[list[int | None], list[str], list[str]]:
    """(exit statuses, what each process printed, its errors)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    arguments = (port, str(count))
    started = [
        processes.start("-c", TRAINER, *arguments, str(index), str(folder), devices=8 // count)
        for index in range(count)
    ]
    ended = [process.communicate(TIMEOUT) for process in started]
    return [process.returncode for process in started], [out for out, _ in ended], [err for _, err in ended]


@pytest.mark.parametrize("count", [2, 4])
def test_a_job_scores_as_it_trains_and_goes_on_after_a_kill(count: int, tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    write_task(tmp_path / "task", "a hill")
    statuses, printed, errors = job(count, tmp_path)
    assert statuses == [*[RUN_AGAIN] * (count - 1), 9], errors
    for error in errors[:-1]:
        assert f"miron-jax: process {count - 1} (" in error
        assert "has not been heard from" in error
    last, num_scored, before = json.loads(printed[0].splitlines()[-1])
    assert (last, num_scored, len(before)) == (KILLED_AT, [*range(EVERY, KILLED_AT, EVERY)], KILLED_AT)
    assert not (tmp_path / f"out/step_{KILLED_AT}/results.json").exists()

    statuses, printed, errors = job(count, tmp_path)
    assert statuses == [0] * count, errors
    assert len({out.splitlines()[-1] for out in printed}) == 1
    saved, losses, alone, num_scored = json.loads(printed[0].splitlines()[-1])
    assert saved == KILLED_AT
    assert num_scored == [*range(KILLED_AT, STEPS + 1, EVERY)], "the step of the kill again, each after it once"
    assert before + losses == alone, "the same curve with an Evaluator, and over the kill, to the last bit"
    assert alone[-1] < alone[0]

    model = ("--model=tests.support.own_models:of_nnx", f"--tokenizer={tmp_path}", f"--checkpoint={tmp_path / 'run'}")
    flags = (
        f"--task_path={tmp_path / 'task'}",
        "--tasks=own/x",
        "--limit=5",
        f"--output={tmp_path / 'alone'}",
        "--quiet",
    )
    assert eval_command(*model, *flags) == 0
    for step in range(EVERY, STEPS + 1, EVERY):
        metrics = [scores_of(tmp_path / name / f"step_{step}")["own/x"]["metrics"] for name in ("out", "alone")]
        received, expected = ({name: entry["value"] for name, entry in each.items()} for each in metrics)
        assert received == pytest.approx(expected, abs=CONTINUATION), step
