"""One answer on any number of devices: pmap and mesh against one device, for three architectures, in their own process."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.config import RunConfig, parse_mesh
from miron_jax.engine import model as model_module
from miron_jax.engine.forward import Forward
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import TOLERANCE, SelfCheck
from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention import tpu
from miron_jax.kernels.forest_attention.choose import Choice
from miron_jax.model.costs import cost_model
from miron_jax.model.decoder import random_params
from miron_jax.model.hf_config import from_hf_config
from miron_jax.model.sharding import layout_of
from miron_jax.planning.request_batches import Totals
from miron_jax.runtime.devices import AXES, Placement
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.placements import CONFIGS, in_process, logprobs, placed, placement_of, texts
from tests.support.requests import some_requests
from tests.support.tiny_model import make_model
from tests.support.tolerances import BFLOAT16, RANKS_APART, TOKEN

pytestmark = pytest.mark.slow

PLACES = ("pmap 2", "pmap 3", "pmap 8", "data=2,model=4", "data=8", "model=8", "model=3", "data=2,fsdp=2,model=2")
MESHES = [
    f"data={data},fsdp={fsdp},model={8 // data // fsdp}"
    for data in (1, 2, 4, 8)
    for fsdp in (1, 2, 4, 8)
    if 8 % (data * fsdp) == 0
]
DRAWN = ("pmap 3", "data=2,fsdp=2,model=2")


def check_family(name: str, folder: str) -> None:
    """Every placement gives what one device gives; no logits travel between devices."""
    (Path(folder) / "config.json").write_text(json.dumps(CONFIGS[name]))
    config, tokenizer = from_hf_config(Path(folder)), load_tokenizer(folder)
    state = random_params(config, jnp.float32, seed=5)
    alone = placed(config, state, Placement(jax.devices()[0]))
    (logprob, rank), drawn = logprobs(alone), texts(alone, tokenizer)
    for place in PLACES:
        model = placed(config, state, placement_of(place))
        found, found_rank = logprobs(model)
        np.testing.assert_allclose(found, logprob, rtol=0, atol=TOKEN, err_msg=place)
        assert (found_rank != rank).mean() < RANKS_APART, place  # two tokens may be level within rounding
        if place in DRAWN:
            assert texts(model, tokenizer) == drawn, place
        print(place, float(np.abs(found - logprob).max()), flush=True)


@pytest.mark.parametrize(
    "family", ["gemma3_text", *(pytest.param(name, marks=pytest.mark.long) for name in ("llama", "gpt2"))]
)
def test_one_two_three_and_eight_devices_agree(family: str, tmp_path: Path) -> None:
    make_model(tmp_path)
    script = "import miron_jax, sys; from tests.engine.test_sharding import check_family; check_family(*sys.argv[1:])"
    found = in_process(["-c", script, family, str(tmp_path)], devices=8)
    assert len(found.splitlines()) == len(PLACES)


def check_meshes(folder: str, vocab_size: str, budget: str) -> None:
    """Every mesh of eight devices scores and writes texts; XLA's own split of a gather ends the process at some sizes."""
    budget_, vocabulary = int(budget), int(vocab_size)
    (Path(folder) / "config.json").write_text(json.dumps({**CONFIGS["llama"], "vocab_size": vocabulary}))
    config, tokenizer = from_hf_config(Path(folder)), load_tokenizer(folder)
    state = random_params(config, jnp.float32, seed=5)
    alone = placed(config, state, Placement(jax.devices()[0]))
    (logprob, rank), drawn = logprobs(alone, budget_), texts(alone, tokenizer) if budget_ > 64 else []
    for mesh in MESHES:
        model = placed(config, state, placement_of(mesh))
        found, found_rank = logprobs(model, budget_)
        np.testing.assert_allclose(found, logprob, rtol=0, atol=TOKEN, err_msg=mesh)
        assert (found_rank != rank).mean() < RANKS_APART, mesh
        if drawn:
            assert texts(model, tokenizer, slots=16) == drawn, mesh
        print(mesh, flush=True)


def check_bfloat16(folder: str) -> None:
    """XLA's CPU compiler aborts on some sums of bfloat16 over devices."""
    (Path(folder) / "config.json").write_text(json.dumps(CONFIGS["llama"]))
    config = from_hf_config(Path(folder))
    state = random_params(config, jnp.bfloat16, seed=5)
    logprob, _ = logprobs(placed(config, state, Placement(jax.devices()[0])), 256)
    for mesh in ("fsdp=4", "fsdp=2,model=2", "data=2,model=2"):
        found, _ = logprobs(placed(config, state, placement_of(mesh)), 256)
        np.testing.assert_allclose(found, logprob, rtol=0, atol=BFLOAT16, err_msg=mesh)
        print(mesh, flush=True)


def test_meshes_of_bfloat16_weights(tmp_path: Path) -> None:
    make_model(tmp_path)
    script = "import miron_jax, sys; from tests.engine.test_sharding import check_bfloat16; check_bfloat16(sys.argv[1])"
    assert len(in_process(["-c", script, str(tmp_path)], devices=4).splitlines()) == 3


@pytest.mark.parametrize(("vocabulary", "budget"), [(331, 64), pytest.param(352, 2048, marks=pytest.mark.long)])
def test_all_meshes_of_eight_devices(vocabulary: int, budget: int, tmp_path: Path) -> None:
    make_model(tmp_path)
    script = "import miron_jax, sys; from tests.engine.test_sharding import check_meshes; check_meshes(*sys.argv[1:])"
    found = in_process(["-c", script, str(tmp_path), str(vocabulary), str(budget)], devices=8)
    assert found.splitlines() == MESHES


def check_kernel(name: str, folder: str) -> None:
    """The TPU's kernel, interpreted, gives what plain XLA gives: its rows split over fsdp, its heads over model."""
    (Path(folder) / "config.json").write_text(json.dumps(CONFIGS[name]))
    config, tokenizer = from_hf_config(Path(folder)), load_tokenizer(folder)
    state = random_params(config, jnp.float32, seed=5)
    alone = placed(config, state, Placement(jax.devices()[0]))
    (logprob, rank), drawn = logprobs(alone), texts(alone, tokenizer)
    shapes: set[tuple[int, ...]] = set()

    def attend(*arrays: jax.Array, **rules: Any) -> jax.Array:
        shapes.add(arrays[1].shape)
        return interpreted(*arrays, **rules)

    interpreted = partial(tpu.forest_attention, interpret=True)
    model_module.choose = lambda device, heads, name, split: Choice("tpu")
    tpu.forest_attention = attend
    for place in ("data=2,fsdp=2,model=2", "fsdp=4", "model=3", "pmap 2"):
        model = placed(config, state, placement_of(place))
        shapes.clear()
        found, found_rank = logprobs(model)
        np.testing.assert_allclose(found, logprob, rtol=0, atol=TOKEN, err_msg=place)
        assert (found_rank == rank).mean() > 0.99, place
        kv_heads, model_size = config.num_kv_heads, model.placement.size("model") if model.placement else 1
        expected = kv_heads if kv_heads % model_size else kv_heads // model_size
        assert {shape[2] for shape in shapes} == {expected}, place
        if place == "data=2,fsdp=2,model=2":
            assert texts(model, tokenizer) == drawn, place
        print(place, flush=True)


@pytest.mark.parametrize("family", [pytest.param("llama", marks=pytest.mark.long), "gemma3_text"])
def test_a_kernel_computes_the_rows_and_heads_of_its_device(family: str, tmp_path: Path) -> None:
    make_model(tmp_path)
    script = "import miron_jax, sys; from tests.engine.test_sharding import check_kernel; check_kernel(*sys.argv[1:])"
    assert len(in_process(["-c", script, family, str(tmp_path)], devices=8).splitlines()) == 4


def print_collectives(folder: str) -> None:
    """What travels between devices in every program: the operation and its shape."""
    (Path(folder) / "config.json").write_text(json.dumps(CONFIGS["llama"]))
    config = from_hf_config(Path(folder))
    model = placed(config, random_params(config, jnp.float32, 5), placement_of("data=2,fsdp=2,model=2"))
    forward = Forward(model, token_budget=256)
    [_] = score_request_batches(
        [some_requests()], forward, cost_model(config), Totals(), SelfCheck(TOLERANCE["float32"])
    )
    pattern = r"= [a-z0-9]+\[([0-9,]*)\]\S* (all-gather|all-reduce|all-to-all|collective-permute)"
    for program in forward.programs.values():
        for shape, operation in re.findall(pattern, program.as_text()):
            print(operation, shape)


def test_logits_stay_where_they_are_made(tmp_path: Path) -> None:
    """332 rows of the head lie on four devices, 83 on each: nothing as wide as either travels."""
    make_model(tmp_path)
    script = "import miron_jax, sys; from tests.engine.test_sharding import *; print_collectives(sys.argv[1])"
    found = [line.split() for line in in_process(["-c", script, str(tmp_path)], devices=8).splitlines()]
    assert found, "a layer's sums travel"
    wide = [line for line in found if len(line) > 1 and {"83", "166", "332"} & set(line[1].split(","))]
    assert wide == []


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
