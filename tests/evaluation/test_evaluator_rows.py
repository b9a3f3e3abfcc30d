"""Devices of a trainer's mesh share the texts that an Evaluator completes, as they share the rows that it scores."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

import miron_jax
from tests.support import processes
from tests.support.own_models import of_nnx, stateful, users_promotion
from tests.support.tiny_model import make_model

__all__ = ["users_promotion"]  # a fixture that every test here uses

ON_FOUR = """
import json, sys
import miron_jax
import jax
from jax.sharding import NamedSharding, PartitionSpec
from tests.evaluation.test_evaluator_rows import buffers_of, evaluator_of, params_of
from tests.support.kept_runs import same_results

folder, kind = sys.argv[1:]
mesh = jax.make_mesh((4,), ("data",))
whole = params_of(folder, kind)
expected = evaluator_of(folder, kind).run(whole)
weights = jax.tree.map(lambda x: jax.device_put(x, NamedSharding(mesh, PartitionSpec())), whole)
flops = {}
for axes in ((), ("data",)):
    evaluator = evaluator_of(folder, kind, row_axes=axes)
    received = evaluator.run(weights)
    same_results(received, expected)
    assert (received["config"]["sharding"], received["config"]["mesh"]) == ("user", [["data", 4]])
    forward = evaluator.evaluation.engine.forward
    assert buffers_of(evaluator.evaluation.model_of(weights).state) == buffers_of(weights), "weights stay where they are"
    shards = 4 if axes and kind == "decoder" else 1  # each device has a shard, and the head of its rows alone
    assert {shape.shards for shape in forward.programs} == {shards}
    for key, program in evaluator.evaluation.engine.generator.programs.items():
        flops.setdefault(key[0], []).append(program.cost_analysis()["flops"])
print(json.dumps(flops))
"""
OWN: dict[str, Callable[..., miron_jax.OwnModel]] = {"rows": of_nnx, "state": stateful}


def evaluator_of(folder: Path, kind: str, **options: Any) -> miron_jax.Evaluator:
    model = OWN[kind](params=None) if kind in OWN else folder
    return miron_jax.Evaluator(model, str(folder), ["miron-gen/en"], items_per_category=3, **options)


def buffers_of(weights: Any) -> set[int]:
    """Addresses, on all devices."""
    shards = [shard for leaf in jax.tree.leaves(weights) for shard in leaf.addressable_shards]
    return {shard.data.unsafe_buffer_pointer() for shard in shards}


def params_of(folder: Path, kind: str) -> Any:
    return OWN[kind]().params if kind in OWN else miron_jax.load_params(folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["decoder", "rows", "state"])
def test_each_device_completes_its_share_of_the_texts(kind: str, tmp_path: Path) -> None:
    """By the operations of a device's part of each program: a quarter, and what all of them do."""
    folder = make_model(tmp_path / "model")
    ended = processes.run("-c", ON_FOUR, str(folder), kind, devices=4, check=True)
    flops = json.loads(ended.stdout.splitlines()[-1])
    names = {"decoder": ["prefill", "step"], "rows": ["plain step"], "state": ["plain step"]}[kind]
    for name in names:
        alone, shared = flops[name]
        assert shared < 0.5 * alone, flops
