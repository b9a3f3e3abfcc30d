"""One answer on any number of devices: pmap and mesh against one device, for three architectures, in their own process."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from miron_jax.config import RunConfig, parse_mesh
from miron_jax.engine import model as model_module
from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import TOLERANCE, SelfCheck
from miron_jax.engine.text_requests import Sampling, TextRequest
from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention import tpu
from miron_jax.kernels.forest_attention.choose import Choice
from miron_jax.model.costs import cost_model
from miron_jax.model.decoder import abstract, leaf_name, matrix_dtype, random_params
from miron_jax.model.hf_config import from_hf_config
from miron_jax.model.sharding import layout_of, put_weight
from miron_jax.planning.request_batches import Totals
from miron_jax.runtime.devices import AXES, DATA, Placement
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.conftest import REPOSITORY
from tests.engine.test_forward import some_requests
from tests.support.tiny_model import make_model
from tests.support.tolerances import BFLOAT16, RANKS_APART, TOKEN

pytestmark = pytest.mark.slow

# Sizes that 2, 3, 4 and 8 do not all divide: 331 tokens (prime), 6 heads, 3 or 2 key-value heads, 40 wide.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {
        "model_type": "llama", "vocab_size": 331, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5, "rope_theta": 1e4, "hidden_act": "silu", "tie_word_embeddings": False,
    },
    "gpt2": {
        "model_type": "gpt2", "vocab_size": 331, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512,
        "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "tie_word_embeddings": True,
    },
    "gemma3_text": {
        "model_type": "gemma3_text", "vocab_size": 331, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 512, "sliding_window": 16, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 8,
        "hidden_activation": "gelu_pytorch_tanh", "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "tie_word_embeddings": True,
    },
}  # fmt: skip
PLACES = ("pmap 2", "pmap 3", "pmap 8", "data=2,model=4", "data=8", "model=8", "model=3", "data=2,fsdp=2,model=2")
MESHES = [
    f"data={data},fsdp={fsdp},model={8 // data // fsdp}"
    for data in (1, 2, 4, 8)
    for fsdp in (1, 2, 4, 8)
    if 8 % (data * fsdp) == 0
]
DRAWN = ("pmap 3", "data=2,fsdp=2,model=2")


def placement_of(name: str) -> Placement:
    if name.startswith("pmap"):
        devices = jax.devices()[: int(name.split()[1])]
        return Placement(devices[0], Mesh(np.asarray(devices), (DATA,)), "pmap")
    return Placement.choose("mesh", parse_mesh(name))


def placed(config: Any, state: Any, placement: Placement) -> Model:
    leaves, tree = jax.tree_util.tree_flatten_with_path(state)
    arrays = [put_weight(leaf_name(path), np.asarray(leaf), config, placement) for path, leaf in leaves]
    network = abstract(config, jnp.dtype("float32"))[0]
    return Model(config, network, jax.tree_util.tree_unflatten(tree, arrays), placement)


def logprobs(model: Model, budget: int = 256) -> tuple[np.ndarray, np.ndarray]:
    requests, check = some_requests(), SelfCheck(TOLERANCE[str(matrix_dtype(model.state))])
    forward = Forward(model, token_budget=budget)
    [scores] = score_request_batches([requests], forward, cost_model(model.config), Totals(), check)
    assert check.requests >= 8
    return scores.logprob, scores.rank


def texts(model: Model, tokenizer: Any, slots: int = 2) -> list[tuple[int, ...]]:
    """Greedy and sampled, of unlike lengths, with prompts of one token and prompts that begin one another."""
    rng = np.random.default_rng(3)
    stem = rng.integers(1, 331, 30).tolist()
    prompts = [(int(own),) for own in rng.integers(1, 331, 3)] + [tuple(stem[:n]) for n in (5, 11, 30)]
    prompts += [tuple(rng.integers(1, 331, 9).tolist()) for _ in range(8)]
    asked = [TextRequest(ids, 6 + i) for i, ids in enumerate(prompts)]
    asked += [TextRequest(ids, 4, sampling=Sampling(0.7, 5, 0.9, seed=i)) for i, ids in enumerate(prompts[:4])]
    return [own.token_ids for own in Generator(model, tokenizer, slots=slots).run(asked)]


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


def in_process(arguments: list[str], devices: int) -> str:
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(devices), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


COLLECTIVES = """
import re, sys
import miron_jax
from tests.engine.test_sharding import *
(Path(sys.argv[1]) / "config.json").write_text(json.dumps(CONFIGS["llama"]))
config = from_hf_config(Path(sys.argv[1]))
model = placed(config, random_params(config, jnp.float32, 5), placement_of("data=2,fsdp=2,model=2"))
forward = Forward(model, token_budget=256)
[_] = score_request_batches([some_requests()], forward, cost_model(config), Totals(), SelfCheck(TOLERANCE["float32"]))
for program in forward.programs.values():
    for line in program.as_text().splitlines():
        if found := re.search(r"= [a-z0-9]+\\[([0-9,]*)\\]\\S* (all-gather|all-reduce|all-to-all|collective-permute)", line):
            print(found[2], found[1])
"""


def test_logits_stay_where_they_are_made(tmp_path: Path) -> None:
    """332 rows of the head lie on four devices, 83 on each: nothing as wide as either travels."""
    make_model(tmp_path)
    found = [line.split() for line in in_process(["-c", COLLECTIVES, str(tmp_path)], devices=8).splitlines()]
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
