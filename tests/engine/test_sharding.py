"""One answer on any number of devices: pmap and mesh against one device, for three architectures, in their own process."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from miron_jax.config import RunConfig, parse_mesh
from miron_jax.engine import model as model_module
from miron_jax.engine.forward import Forward
from miron_jax.engine.model import Model
from miron_jax.engine.plain import PlainProgram, launch_plainly
from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention import tpu
from miron_jax.kernels.forest_attention.choose import AttentionChoice
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.config import ModelConfig
from miron_jax.model.costs import cost_model
from miron_jax.model.decoder.decoder import random_params
from miron_jax.model.decoder.sharding import layout_of
from miron_jax.planning.plan import make_plan
from miron_jax.runtime.devices import AXES, Placement
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support import processes
from tests.support.placements import CONFIGS, logprobs, placed, placement_of, scores_of, texts
from tests.support.requests import some_requests
from tests.support.tiny_model import make_model
from tests.support.tolerances import BFLOAT16, RANKS_APART, TOKEN

pytestmark = pytest.mark.slow

ALL_PLACES = ("pmap 2", "pmap 3", "pmap 8", "data=2,model=4", "data=8", "model=8", "model=3", "data=2,fsdp=2,model=2")
ALL_MESHES = tuple(
    f"data={data},fsdp={fsdp},model={8 // data // fsdp}"
    for data in (1, 2, 4, 8)
    for fsdp in (1, 2, 4, 8)
    if 8 % (data * fsdp) == 0
)
# Two with fsdp, whose split of a gather is XLA's own; model alone is in KERNEL_PLACES, the three together in PLACES.
MESHES = ("data=2,fsdp=4,model=1", "data=1,fsdp=2,model=4")
PLACES = ("pmap 3", "data=2,fsdp=2,model=2")
KERNEL_PLACES = ("data=2,fsdp=2,model=2", "fsdp=4", "model=3", "pmap 2")


def in_devices(function: Callable[..., None], *arguments: str, devices: int = 8) -> list[str]:
    """Lines that a function of this file prints in a process that has so many devices."""
    code = f"import sys; from tests.engine.test_sharding import {function.__name__} as f; f(*sys.argv[1:])"
    return processes.run("-c", code, *arguments, devices=devices, check=True, timeout=600.0).stdout.splitlines()


def on_one_device(folder: str, fields: dict[str, Any], dtype: Any = jnp.float32) -> tuple[Model, Any]:
    """A model with random weights, and the same weights for other devices."""
    (Path(folder) / "config.json").write_text(json.dumps(fields))
    config = from_hf_config(Path(folder))
    state = random_params(config, dtype, seed=5)
    return placed(config, state, Placement(jax.devices()[0])), state


def check_places(family: str, folder: str, vocabulary: str, budget: str, *places: str) -> None:
    """Every placement gives what one device gives; of Llama entropies too, which the self-check compares."""
    alone, state = on_one_device(folder, CONFIGS[family] | {"vocab_size": int(vocabulary)})
    tokenizer, with_distribution = load_tokenizer(folder), family == "llama"
    expected, drawn = scores_of(alone._replace(with_distribution=with_distribution), int(budget)), None
    assert expected.distribution.shape == (len(expected.rank), 3 * with_distribution)
    for place in places:
        model = placed(alone.config, state, placement_of(place))
        scores = scores_of(model._replace(with_distribution=with_distribution), int(budget))
        np.testing.assert_allclose(scores.logprob, expected.logprob, rtol=0, atol=TOKEN, err_msg=place)
        np.testing.assert_allclose(scores.distribution, expected.distribution, rtol=0, atol=TOKEN, err_msg=place)
        assert (scores.rank != expected.rank).mean() < RANKS_APART, place  # two tokens may be level within rounding
        if place in PLACES or int(budget) > 256:
            drawn = drawn or texts(alone, tokenizer)
            assert texts(model, tokenizer, slots=16 if int(budget) > 256 else 2) == drawn, place
        print(place, flush=True)


@pytest.mark.parametrize(
    ("family", "places"),
    [
        ("gemma3_text", PLACES),
        *(pytest.param(name, ALL_PLACES, marks=pytest.mark.long) for name in CONFIGS),
    ],
)
def test_one_two_three_and_eight_devices_agree(family: str, places: tuple[str, ...], tmp_path: Path) -> None:
    assert in_devices(check_places, family, str(make_model(tmp_path)), "331", "256", *places) == [*places]


@pytest.mark.parametrize(
    ("vocabulary", "budget", "meshes"),
    [
        ("331", "64", MESHES),
        pytest.param("331", "64", ALL_MESHES, marks=pytest.mark.long),
        pytest.param("352", "2048", ALL_MESHES, marks=pytest.mark.long),
    ],
)
def test_meshes_of_eight_devices(vocabulary: str, budget: str, meshes: tuple[str, ...], tmp_path: Path) -> None:
    """XLA's own split of a gather ends the process at some sizes."""
    assert in_devices(check_places, "llama", str(make_model(tmp_path)), vocabulary, budget, *meshes) == [*meshes]


def check_plain_rows(folder: str, *places: str) -> None:
    """The self-check's rows of two lengths: each device, or those that share its rows, computes another one."""
    alone, state = on_one_device(folder, CONFIGS["llama"])
    rng = np.random.default_rng(0)
    ids = [rng.integers(1, 331, 3 + 11 * i).astype(np.int32) for i in range(11)]
    asked = ids, [1 + i for i in range(11)], [64 if i < 6 else 128 for i in range(11)]
    sets = [np.arange(i, dtype=np.int32) for i in range(11)]
    expected = [row.read() for row in launch_plainly(alone, *asked, sets)]
    for place in places:
        rows = [*launch_plainly(placed(alone.config, state, placement_of(place)), *asked, sets)]
        for computed, wanted in zip([row.read() for row in rows], expected, strict=True):
            for column, of_one in zip(computed, wanted, strict=True):
                np.testing.assert_allclose(column, of_one, rtol=0, atol=TOKEN, err_msg=place)
        print(place, len({id(row.outputs) for row in rows}), flush=True)


def test_each_device_computes_another_row_of_the_self_check(tmp_path: Path) -> None:
    """Six rows of 64 slots and five of 128, so many at a time as a batch has shards and a shard devices for its rows."""
    rows = {"pmap 3": 3, "data=8": 8, "fsdp=4": 4, "data=2,fsdp=2,model=2": 4, "data=2,expert=2": 4, "model=3": 1}
    computed = in_devices(check_plain_rows, str(make_model(tmp_path)), *rows)
    assert computed == [f"{place} {-(-6 // count) - (-5 // count)}" for place, count in rows.items()]


def check_bfloat16(folder: str) -> None:
    """XLA's CPU compiler aborts on some sums of bfloat16 over devices."""
    alone, state = on_one_device(folder, CONFIGS["llama"], jnp.bfloat16)
    logprob, _ = logprobs(alone)
    for mesh in ("fsdp=4", "fsdp=2,model=2"):
        computed, _ = logprobs(placed(alone.config, state, placement_of(mesh)))
        np.testing.assert_allclose(computed, logprob, rtol=0, atol=BFLOAT16, err_msg=mesh)
        print(mesh, flush=True)


def test_meshes_of_bfloat16_weights(tmp_path: Path) -> None:
    assert len(in_devices(check_bfloat16, str(make_model(tmp_path)), devices=4)) == 2


def check_kernel(family: str, folder: str, *places: str) -> None:
    """The TPU's kernel, interpreted, gives what plain XLA gives: its rows split over fsdp, its heads over model."""
    alone, state = on_one_device(folder, CONFIGS[family])
    logprob, rank = logprobs(alone)
    shapes: set[tuple[int, ...]] = set()

    def attend(*arrays: jax.Array, **rules: Any) -> jax.Array:
        shapes.add(arrays[1].shape)
        return interpreted(*arrays, **rules)

    interpreted = partial(tpu.forest_attention, interpret=True)
    model_module.choose = lambda device, heads, name, split: AttentionChoice("tpu")
    tpu.forest_attention = attend
    for place in places:
        model = placed(alone.config, state, placement_of(place))
        shapes.clear()
        computed, computed_rank = logprobs(model)
        np.testing.assert_allclose(computed, logprob, rtol=0, atol=TOKEN, err_msg=place)
        assert (computed_rank == rank).mean() > 0.99, place
        assert isinstance(alone.config, ModelConfig)
        kv_heads, model_size = alone.config.num_kv_heads, model.placement.size("model") if model.placement else 1
        expected = kv_heads if kv_heads % model_size else kv_heads // model_size
        assert {shape[2] for shape in shapes} == {expected}, place
        print(place, flush=True)


@pytest.mark.parametrize(
    ("family", "places"),
    [
        ("gemma3_text", (KERNEL_PLACES[0], "model=3")),
        *(pytest.param(name, KERNEL_PLACES, marks=pytest.mark.long) for name in ("llama", "gemma3_text")),
    ],
)
def test_a_kernel_computes_the_rows_and_heads_of_its_device(
    family: str, places: tuple[str, ...], tmp_path: Path
) -> None:
    assert in_devices(check_kernel, family, str(make_model(tmp_path)), *places) == [*places]


def print_manual_axes(*meshes: str) -> None:
    """Axes that are manual in a program of each mesh."""
    for mesh in meshes:
        axes: set[str] = set()
        placement = placement_of(mesh)
        batch = placement.put(np.zeros((placement.shards, 4), np.float32))
        placement.compile(partial(add_manual_axes, axes), (), (batch,))
        print(mesh, *(axis for axis in AXES if axis in axes))


def add_manual_axes(axes: set[str], x: jax.Array) -> jax.Array:
    axes.update(jax.sharding.get_abstract_mesh().manual_axes)
    return x


def test_a_mesh_of_whole_copies_is_manual_throughout() -> None:
    """cuDNN's attention compiles for GPUs under manual axes alone, and an axis of size 1 counts."""
    assert in_devices(print_manual_axes, "data=1", "data=2", "data=2,model=2", "fsdp=4", devices=4) == [
        "data=1 data fsdp expert model",
        "data=2 data fsdp expert model",
        "data=2,model=2 data",
        "fsdp=4 data",
    ]


def print_collectives(folder: str) -> None:
    """What travels between devices in every program: the operation and its shape."""
    alone, state = on_one_device(folder, CONFIGS["llama"])
    forward = Forward(placed(alone.config, state, placement_of("data=2,fsdp=2,model=2")), token_budget=256)
    forward.compile(make_plan(some_requests(), cost_model(alone.config, max_lengths=1)))
    pattern = r"= [a-z0-9]+\[([0-9,]*)\]\S* (all-gather|all-reduce|all-to-all|collective-permute)"
    for program in forward.programs.values():
        for shape, operation in re.findall(pattern, program.as_text() or ""):
            print(operation, shape)


def test_logits_stay_where_they_are_made(tmp_path: Path) -> None:
    """332 rows of the head lie on four devices, 83 on each: nothing as wide as either travels."""
    computed = [line.split() for line in in_devices(print_collectives, str(make_model(tmp_path)))]
    assert computed, "a layer's sums travel"
    wide = [line for line in computed if len(line) > 1 and {"83", "166", "332"} & set(line[1].split(","))]
    assert wide == []


def print_gathered(folder: str) -> None:
    """Loops, if any, in which devices of a trainer's mesh send one another what they compute of their rows."""
    alone, state = on_one_device(folder, CONFIGS["llama"])
    mesh = Mesh(np.asarray(jax.devices()), ("batch",))
    state = jax.device_put(state, NamedSharding(mesh, PartitionSpec()))
    model = alone._replace(state=state, placement=Placement.of(state, ("batch",)))
    forward = Forward(model, token_budget=256)
    forward.compile(make_plan(some_requests(), cost_model(alone.config, max_lengths=1)))
    [scoring] = forward.programs.values()
    for program in (scoring, PlainProgram(model, 64).compile()):
        lines = (program.as_text() or "").splitlines()
        sends = [line for line in lines if re.search(r" (all-gather|all-to-all|collective-permute)\(", line)]
        print(len(sends) > 0, *(each for each in sends if "/while/" in each))


def test_devices_of_a_trainers_mesh_send_rows_in_no_loop(tmp_path: Path) -> None:
    """Else each computes attention of all rows, or waits for the others at every pass of the head."""
    assert in_devices(print_gathered, str(make_model(tmp_path)), devices=4) == ["True", "True"]


def test_rules_split_what_devices_divide(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama"]))
    config = from_hf_config(tmp_path)

    def spec(path: str, shape: tuple[int, ...], **axes: int) -> tuple[Any, ...]:
        mesh: Any = type("Sizes", (), {"shape": {axis: axes.get(axis, 1) for axis in AXES}})()
        return tuple(layout_of(path, shape, config, Placement(None, mesh, "mesh")).spec)

    assert spec("layers/attn/q/kernel_IO", (2, 24, 48), model=2) == (None, None, "model")
    assert spec("layers/attn/k/kernel_IO", (2, 24, 24), model=2) == (None, None, None), "three heads on two devices"
    assert spec("layers/attn/k/kernel_IO", (2, 24, 24), model=3, fsdp=4) == (None, "fsdp", "model")
    assert spec("layers/attn/out/kernel_IO", (2, 48, 24), model=3, fsdp=4) == (None, "model", "fsdp")
    assert spec("layers/mlp/down/kernel_IO", (2, 40, 24), model=8) == (None, "model", None)
    assert spec("layers/attn/q/bias_O", (2, 48), model=2) == (None, "model")
    assert spec("layers/attn/out/bias_O", (2, 24), model=2, fsdp=2) == (None, None)
    assert spec("layers/attn_norm/weight", (2, 24), model=2) == ()
    assert spec("embedding_VD", (331, 24), model=2, fsdp=2) == (("fsdp", "model"), None)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"sharding": "mesh"}, "wants the mesh's axes"),
        ({"mesh": (("data", 2),)}, "wants the mesh's axes"),
        ({"sharding": "shmap"}, "--sharding is 'shmap', expected one of pmap, mesh"),
    ],
)
def test_flags_that_do_not_fit_are_refused(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        RunConfig(model="demo", tasks=("core",), **flags)


@pytest.mark.parametrize("text", ["data", "data=", "data=0", "data=x", "rows=2", "data=2,data=2", "data=-1", "data=2,"])
def test_meshes_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not expected there; name each of data, fsdp, expert, model"):
        parse_mesh(text)


def test_a_mesh_larger_than_the_machine_is_refused() -> None:
    with pytest.raises(InputError, match="--mesh=data=4000,model=2 takes 8000 devices, this host has"):
        Placement.choose("mesh", parse_mesh("data=4000,model=2"))
