"""What an Evaluator takes of a device beside the trainer's weights: stated before the first run, held, and given back."""

import gc
import json
from pathlib import Path
from typing import Any

import jax
import psutil
import pytest

import miron_jax
from miron_jax.errors import InputError
from tests.support import processes
from tests.support.own_models import bigrams, users_promotion
from tests.support.own_task import TEXT, rows
from tests.support.tiny_model import make_model, make_tokenizer

__all__ = ["users_promotion"]  # a fixture that every test here uses

OPTIONS: dict[str, Any] = {"limit": 1, "items_per_category": 1}
ON_FOUR = """
import sys
import miron_jax
import jax
from jax.sharding import NamedSharding, PartitionSpec as P
from miron_jax.runtime.devices import Placement
from tests.evaluation.test_evaluator_memory import bytes_of_a_device, evaluator_of
from tests.support.kept_runs import same_results

def spread(x, axis):
    return jax.device_put(x, NamedSharding(mesh, P(*[None] * axis, "all") if x.ndim > 1 else P()))

folder = sys.argv[1]
mesh = jax.make_mesh((4,), ("all",))
whole = miron_jax.load_params(folder)
expected = evaluator_of(folder).run(whole)
weights = jax.tree.map(lambda x: spread(x, x.ndim - 1 if x.shape[-1] % 4 == 0 else x.ndim - 2), whole)
peaks = []
put = Placement.put
def counted(self, host):
    packed = put(self, host)
    peaks.append(bytes_of_a_device())
    return packed
Placement.put = counted

for name in ("fsdp=2,model=2", "data=4", None):
    evaluator = evaluator_of(folder, mesh=name)
    before = bytes_of_a_device()
    memory = evaluator.memory(weights)
    assert bytes_of_a_device() == before, "nothing has run"
    programs = {**evaluator.evaluation.engine.forward.programs, **evaluator.evaluation.engine.generator.programs}
    peaks.clear()
    for step in range(2):
        results = evaluator.run(weights, step=step)
        same_results(results, expected)
        assert bytes_of_a_device() == before, "the copy is freed"
    forward, generator = evaluator.evaluation.engine
    assert {**forward.programs, **generator.programs} == programs, "those that were asked"
    largest = max(x.memory_analysis().temp_size_in_bytes for x in programs.values())
    beside = max(peaks) - before
    assert 0 < memory.caches < beside < memory.weights + memory.caches + memory.activations == memory.total
    assert largest <= memory.activations
    ran = results["config"]["sharding"], dict(results["config"]["mesh"])
    if name is None:
        assert memory.weights == 0 and ran == ("user", {"all": 4})
    else:
        sizes = {axis: size for axis, size in ran[1].items() if size > 1}
        assert ran[0] == "mesh" and ",".join(f"{axis}={size}" for axis, size in sizes.items()) == name
        assert memory.weights < beside - memory.caches, "both are there at once"
    print(name, *memory, beside)
"""


def bytes_of_a_device() -> int:
    """Of all arrays that are alive, on the device of this process that has most."""
    blocks = [shard.data for x in jax.live_arrays() if x.nbytes for shard in x.addressable_shards]
    sizes = {(x.device, x.unsafe_buffer_pointer()): x.nbytes for x in blocks}
    return max(sum(size for (on, _), size in sizes.items() if on == device) for device in jax.local_devices())


def evaluator_of(folder: Path, **options: Any) -> miron_jax.Evaluator:
    tasks = Path(folder).parent / "task"
    given = {"limit": 3, "items_per_category": 3, "task_path": (str(tasks),), **options}
    return miron_jax.Evaluator(folder, tasks=["miron-gen/en", "own/x"], **given)


@pytest.mark.slow
def test_memory_is_stated_before_the_first_run_and_held(tmp_path: Path) -> None:
    """Choices and completions on four devices, where the weights lie and in two other layouts."""
    folder = make_model(tmp_path / "model")
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "x.yaml").write_text(TEXT)
    records = (json.dumps(row) + "\n" for row in rows("cold", "hot", "small"))
    (tmp_path / "task" / "x.jsonl").write_text("".join(records))
    ended = processes.run("-c", ON_FOUR, str(folder), devices=4, check=True)
    stated = [line.split() for line in ended.stdout.splitlines()]
    split, whole, _ = (int(weights) for _, weights, *_ in stated)
    assert split < whole


@pytest.mark.slow
@pytest.mark.parametrize(("is_own", "layout"), [(False, {}), (True, {"mesh": "data=1"})])
def test_runs_leave_no_objects_behind(is_own: bool, layout: dict[str, Any], tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    model = bigrams(params=None) if is_own else folder
    params = bigrams().params if is_own else miron_jax.load_params(folder)
    evaluator = miron_jax.Evaluator(model, folder, ["miron-gen/en"], limit=1, items_per_category=1, **layout)
    counts = []
    for _ in range(4):
        for step in range(3):
            evaluator.run(params, step=step)
        gc.collect()
        counts.append((len(gc.get_objects()), len(jax.live_arrays()), psutil.Process().num_fds()))
    assert counts[-1][0] - counts[1][0] < 6, f"objects, arrays and files: {counts}, after three runs more each"
    assert counts[-1][1:] == counts[1][1:]


def test_memory_is_stated_for_shapes(tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    params = bigrams().params
    assert params is not None
    shape = jax.ShapeDtypeStruct(params.shape, params.dtype, sharding=params.sharding)
    given: dict[str, Any] = {"tasks": ["miron-gen/en"], "limit": 1, "items_per_category": 1}
    evaluator = miron_jax.Evaluator(bigrams(params=None), str(tmp_path), **given)
    with pytest.raises(InputError, match="params hold a shape without a sharding: give each shape that of the weights"):
        evaluator.memory(jax.ShapeDtypeStruct(params.shape, params.dtype))
    assert evaluator.memory(shape) == miron_jax.Evaluator(bigrams(), str(tmp_path), **given).memory()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mesh": "data=2", "row_axes": ("data",)}, "row_axes are of the weights' own mesh"),
        ({"mesh": "pipe=2"}, "--mesh=pipe=2: 'pipe=2' is not expected there; name each of data, fsdp, expert, model"),
        ({"sharding": "pmap"}, "weights stay where they are"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        miron_jax.Evaluator(bigrams(), tasks=["miron-gen/en"], **options)


def test_a_copy_that_a_device_has_no_room_for_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of 331 by 331 float32 is 0.4 MiB.  Other errors of the device are not hidden, and room later is used."""
    make_tokenizer(tmp_path)
    evaluator = miron_jax.Evaluator(bigrams(), str(tmp_path), ["miron-gen/en"], mesh="data=1", **OPTIONS)
    expected = evaluator.run()["tasks"]
    copy = evaluator._copy
    words = ["RESOURCE_EXHAUSTED: Out of memory", "INTERNAL: lost the device"]

    def full(state: Any) -> Any:
        raise jax.errors.JaxRuntimeError(words[0])

    monkeypatch.setattr(evaluator, "_copy", full)
    with pytest.raises(InputError) as refused:
        evaluator.run()
    sentence = "mesh='data=1' copies the weights, 0.4 MiB to each device, and cpu:0 has no room for them beside what is"
    assert sentence in str(refused.value)
    words.pop(0)
    with pytest.raises(jax.errors.JaxRuntimeError, match="lost the device"):
        evaluator.run()
    monkeypatch.setattr(evaluator, "_copy", copy)
    assert evaluator.run()["tasks"] == expected


def test_a_layout_for_more_devices_than_the_weights_have_is_refused(tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    evaluator = miron_jax.Evaluator(bigrams(), str(tmp_path), ["miron-gen/en"], limit=1, mesh="data=3")
    with pytest.raises(InputError, match=r"mesh='data=3' takes 3 devices, the weights lie on 1: name sizes"):
        evaluator.run()
