"""The weights of a Flax model stand out from the optimizer's state and from averages, wherever trainers save them."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import linen as nn
from flax import nnx
from flax.training import checkpoints as flax_checkpoints
from flax.training.train_state import TrainState
from orbax.checkpoint import v1 as ocp1

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.model.checkpoints.checkpoints import ModelFiles, checkpoint_folder, checkpoints_of
from miron_jax.model.checkpoints.orbax_reader import load_tree
from miron_jax.model.checkpoints.training_run import training_steps
from miron_jax.runtime.devices import Tree
from miron_jax.runtime.progress import Lines
from tests.support.own_models import users_promotion
from tests.support.training_runs import save_apart, save_standard

__all__ = ["users_promotion"]  # a fixture that every test here uses
pytestmark = [
    pytest.mark.slow, pytest.mark.newest,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]  # fmt: skip

IDS = jnp.arange(6).reshape(2, 3)
Save = Callable[[Path, Tree], object]
Make = Callable[[Tree], Tree]  # of a tree around the weights


class Linen(nn.Module):
    @nn.compact
    def __call__(self, token_ids: jax.Array) -> jax.Array:
        return nn.Dense(11, name="head")(nn.LayerNorm()(nn.Embed(11, 4)(token_ids)))


class Nnx(nnx.Module):
    def __init__(self, seed: int):
        rngs = nnx.Rngs(seed)
        self.tokens = nnx.Embed(11, 4, rngs=rngs)
        self.head = nnx.Linear(4, 11, rngs=rngs)
        self.drop = nnx.Dropout(0.5, deterministic=True, rngs=rngs)

    def __call__(self, token_ids: jax.Array) -> jax.Array:
        return self.head(self.drop(self.tokens(token_ids)))


MODEL = Linen()
VARIABLES: Any = MODEL.init(jax.random.key(0), IDS)
PARAMS: Any = VARIABLES["params"]
HALF = jax.tree.map(lambda x: x / 2, PARAMS)
LOGITS: Any = MODEL.apply(VARIABLES, IDS)
ADAM = optax.adam(1e-3)


class WithAverage(TrainState):
    ema_params: Any = None
    key: Any = None


def trained(params: Tree = PARAMS, tx: optax.GradientTransformation = ADAM, **fields: Any) -> TrainState:
    """A state whose moments are those of a step."""
    state = (WithAverage if fields else TrainState).create(apply_fn=MODEL.apply, params=params, tx=tx, **fields)
    return state.apply_gradients(grads=jax.tree.map(jnp.ones_like, params)).replace(params=params)


def boxed(x: jax.Array) -> Tree:
    """As with_partitioning leaves a kernel; biases have no box."""
    return nn.Partitioned(x, names=("in", "out")) if x.ndim > 1 else x


def managed(folder: Path, **items: Any) -> None:
    with ocp.CheckpointManager(folder.parent) as manager:
        manager.save(int(folder.name), args=ocp.args.Composite(**items))
        manager.wait_until_finished()


def managed_without_items(folder: Path, tree: Tree) -> None:
    with ocp.CheckpointManager(folder.parent) as manager:
        manager.save(int(folder.name), args=ocp.args.StandardSave(tree))
        manager.wait_until_finished()


def managed_before_args(folder: Path, tree: Tree) -> None:
    with ocp.CheckpointManager(folder.parent, {"kept": ocp.PyTreeCheckpointer()}) as manager:
        manager.save(int(folder.name), {"kept": tree})
        manager.wait_until_finished()


def flax_orbax(folder: Path, tree: Tree) -> None:
    flax_checkpoints.save_checkpoint(
        str(folder.parent), tree, int(folder.name), prefix="", orbax_checkpointer=ocp.PyTreeCheckpointer()
    )


WRITERS: dict[str, Save] = {
    "StandardCheckpointer": save_standard,
    "PyTreeCheckpointer": lambda folder, tree: ocp.PyTreeCheckpointer().save(folder, tree),
    "no OCDBT": save_apart,
    "CheckpointManager": managed_without_items,
    "CheckpointManager, PyTreeSave": lambda folder, tree: managed(folder, default=ocp.args.PyTreeSave(tree)),
    "an item of a usual name": lambda folder, tree: managed(folder, state=ocp.args.StandardSave(tree)),
    "an item of any name": lambda folder, tree: managed(
        folder, mine=ocp.args.StandardSave(tree), notes=ocp.args.JsonSave({"loss": 2.0})
    ),
    "before args": managed_before_args,
    "orbax v1": lambda folder, tree: ocp1.save(str(folder), tree),
    "flax.training.checkpoints": flax_orbax,
}
STATES: dict[str, tuple[Make, list[str]]] = {  # and the lines about them
    "variables": (lambda params: {"params": params}, []),
    "params alone": (lambda params: params, []),
    "TrainState of the variables": (
        lambda params: trained({"params": params}), ["the weights below params/params are read, not opt_state, step"],
    ),
    "below an item": (
        lambda params: {"model": trained(params), "epoch": 3, "loss": np.float32(2)},
        ["the weights below model/params are read, not epoch, loss, model/opt_state and 1 more"],
    ),
    "below two items": (
        lambda params: {"run": {"state": trained(params)}, "rate": np.ones(2, np.float32)},
        ["the weights below run/state/params are read, not rate, run/state/opt_state, run/state/step"],
    ),
    "a pair": (lambda params: (params, ADAM.init(params)), ["the weights below 0 are read, not 1"]),
    "kernels in boxes": (
        lambda params: trained(jax.tree.map(boxed, params)), ["the weights below params are read, not opt_state, step"],
    ),
    "kernels in boxes, of variables": (lambda params: {"params": jax.tree.map(boxed, params)}, []),
}  # fmt: skip
CHAINS: dict[str, optax.GradientTransformation] = {
    "masks": optax.adamw(1e-3, mask=lambda params: jax.tree.map(lambda x: x.ndim > 1, params)),
    "parts": optax.multi_transform(
        {"a": ADAM, "b": optax.sgd(1e-2, momentum=0.9)},
        lambda params: {name: "a" if name == "head" else "b" for name in params},
    ),
    "averages of gradients": optax.chain(optax.clip_by_global_norm(1.0), optax.ema(0.9), optax.adamw(1e-3)),
    "steps": optax.MultiSteps(ADAM, 2).gradient_transformation(),
    "factors": optax.adafactor(1e-3),
    "hyperparameters": optax.inject_hyperparams(optax.adamw)(learning_rate=1e-3),
    "fast and slow": optax.lbfgs(),
    "schedule-free": optax.contrib.schedule_free_adamw(1e-3),
    "momentum": optax.sgd(1e-3, momentum=0.9),
}


def read(folder: Path, tree: Tree = VARIABLES, **named: Any) -> tuple[Tree, list[str]]:
    """The tree from the one step of a run, and the lines about it."""
    lines = list[str]()
    [(step, path)] = training_steps(folder.parent, named.get("params_key"))
    assert step == 7
    return load_tree(path, tree, progress=Lines(lines.append), **named), [line.split(": ", 1)[1] for line in lines]


def scores_alike(folder: Path, times: float = 1, **named: Any) -> list[str]:
    """Linen's variables and its params alone are read to the bit; the lines about them."""
    variables, lines = read(folder, **named)
    params, others = read(folder, PARAMS, **named)
    assert lines == others
    for loaded in (variables, {"params": params}):
        assert jax.tree.all(jax.tree.map(lambda x, y: bool((x == times * y).all()), loaded, VARIABLES))
    if times == 1:
        scored: Any = MODEL.apply(variables, IDS)
        assert jnp.array_equal(scored, LOGITS)
    return lines


@pytest.mark.parametrize("writer", WRITERS)
def test_a_train_state_is_read_from_every_writer(tmp_path: Path, writer: str) -> None:
    WRITERS[writer](tmp_path / "7", trained())
    assert scores_alike(tmp_path / "7") == ["the weights below params are read, not opt_state, step"]


@pytest.mark.parametrize("state", STATES)
def test_weights_are_read_wherever_they_stand(tmp_path: Path, state: str) -> None:
    make, lines = STATES[state]
    save_standard(tmp_path / "7", make(PARAMS))
    assert scores_alike(tmp_path / "7") == lines


@pytest.mark.parametrize("chain", CHAINS)
def test_no_optimizers_state_is_taken_for_weights(tmp_path: Path, chain: str) -> None:
    """Nor where the weights have a name that says nothing."""
    tx = CHAINS[chain]
    state = tx.init(PARAMS)
    save_standard(tmp_path / "a" / "7", {"x": {"params": PARAMS, "opt_state": state}})
    save_standard(tmp_path / "b" / "7", {"weights": PARAMS, "optimizer": state})
    for run in ("a", "b"):
        scores_alike(tmp_path / run / "7")
    save_standard(tmp_path / "c" / "7", {"optimizer": state})
    save_standard(tmp_path / "d" / "7", {"y": state, "weights": HALF})
    with pytest.raises(InputError, match=r"in optimizer/.* alone, as an optimizer's state|lacks"):
        read(tmp_path / "c" / "7")
    if chain in ("averages of gradients", "factors", "fast and slow", "schedule-free"):
        with pytest.raises(
            InputError, match="holds the weights in weights/, y/"
        ):  # ema, v and z are names of weights, too
            read(tmp_path / "d" / "7")
    else:
        scores_alike(tmp_path / "d" / "7", 0.5)


AVERAGES: dict[str, Make] = {
    "ema_params": lambda params: trained(params, ema_params=HALF, key=jax.random.key(1)),
    "ema": lambda params: {"params": params, "ema": HALF, "opt_state": ADAM.init(params)},
    "average": lambda params: {"model": params, "average": HALF},
}


@pytest.mark.parametrize("key", AVERAGES)
def test_an_average_beside_params_is_named_and_read_when_it_is_asked_for(tmp_path: Path, key: str) -> None:
    save_standard(tmp_path / "7", AVERAGES[key](PARAMS))
    *_, line = scores_alike(tmp_path / "7")
    assert line.endswith(f"are read, and the same names stand in {key}/ too: --params_key={key} scores those")
    assert scores_alike(tmp_path / "7", 0.5, params_key=key) == []


AMBIGUOUS: dict[str, tuple[Save, str, str]] = {
    "below an item": (
        lambda folder, params: save_standard(folder, {"model": trained(params, ema_params=HALF, key=None)}),
        "model/ema_params/, model/params/", "model/ema_params",
    ),
    "names that say nothing": (
        lambda folder, params: save_standard(folder, {"slow": HALF, "fast": params}), "fast/, slow/", "slow",
    ),
    "two items": (
        lambda folder, params: managed(folder, b=ocp.args.StandardSave(params), a=ocp.args.StandardSave(HALF)),
        "a/, b/", "a",
    ),
    "fast and slow": (
        lambda folder, params: save_standard(folder, trained(optax.LookaheadParams(params, HALF))),
        "params/fast/, params/slow/", "params/slow",
    ),
    "one that lacks leaves": (
        lambda folder, params: save_standard(folder, {"slow": HALF, "fast": {**params, "head": {}}}),
        "fast/, slow/", "slow",
    ),
}  # fmt: skip


@pytest.mark.parametrize("tree", AMBIGUOUS)
def test_weights_of_equal_right_are_asked_for(tmp_path: Path, tree: str) -> None:
    write, places, key = AMBIGUOUS[tree]
    write(tmp_path / "7", PARAMS)
    for asked in (VARIABLES, PARAMS):
        with pytest.raises(InputError, match=f"holds the weights in {places}, expected .* say with --params_key"):
            read(tmp_path / "7", asked)
    scores_alike(tmp_path / "7", 0.5, params_key=key)


def test_averages_of_items_are_named(tmp_path: Path) -> None:
    managed(tmp_path / "7", ema=ocp.args.StandardSave(HALF), params=ocp.args.StandardSave(PARAMS))
    *_, line = scores_alike(tmp_path / "7")
    assert line.endswith("stand in ema/ too: --params_key=ema scores those")
    assert scores_alike(tmp_path / "7", 0.5, params_key="ema") == []


def test_collections_that_the_model_asks_for_are_read_and_others_named(tmp_path: Path) -> None:
    statistics = {"norm": {"mean": jnp.arange(3.0)}}
    state = {"params": PARAMS, "batch_stats": statistics, "opt_state": ADAM.init(PARAMS), "aux": {"w": jnp.ones(2)}}
    save_standard(tmp_path / "7", {"state": state})
    tree = {"params": PARAMS, "batch_stats": statistics}
    loaded, lines = read(tmp_path / "7", tree)
    assert jax.tree.all(jax.tree.map(lambda x, y: bool((x == y).all()), loaded, tree))
    assert lines == ["the weights below state are read, not state/aux, state/opt_state"]


def test_what_may_be_weights_is_refused(tmp_path: Path) -> None:
    more = {**PARAMS, "gate": {"kernel": np.ones((2, 2), np.float32)}}
    less = {name: PARAMS[name] for name in ("head", "Embed_0")}
    states: tuple[Make, ...] = (lambda params: params, lambda params: {"params": params}, trained)
    for name, params, words in (("more", more, "has gate/kernel besides"), ("less", less, "lacks params/LayerNorm_0")):
        for i, make in enumerate(states):
            save_standard(tmp_path / f"{name}{i}" / "7", make(params))
            with pytest.raises(InputError, match=rf"/7: {words}.*, expected the 5 arrays"):
                read(tmp_path / f"{name}{i}" / "7")


NNX_STATES: dict[str, Callable[[Nnx], Tree]] = {
    "state": nnx.state,
    "pure": lambda model: nnx.to_pure_dict(nnx.state(model)),
    "params": lambda model: nnx.state(model, nnx.Param),
    "ModelAndOptimizer": lambda model: nnx.state(nnx.ModelAndOptimizer(model, ADAM, wrt=nnx.Param)),
    "that below a key": lambda model: {"optimizer": nnx.state(nnx.ModelAndOptimizer(model, ADAM, wrt=nnx.Param))},
    "model and optimizer": lambda model: {
        "model": nnx.state(model), "optimizer": nnx.state(nnx.Optimizer(model, ADAM, wrt=nnx.Param)),
    },
    "chain": lambda model: {
        "net": nnx.state(model), "opt": CHAINS["averages of gradients"].init(nnx.state(model, nnx.Param)),
    },
}  # fmt: skip


@pytest.mark.parametrize("state", NNX_STATES)
def test_nnx_models_are_read_beside_their_optimizers(tmp_path: Path, state: str) -> None:
    expected = Nnx(1)
    save_standard(tmp_path / "7", NNX_STATES[state](expected))
    graphdef, tree, rest = nnx.split(Nnx(0), nnx.Param, ...)
    loaded, _ = read(tmp_path / "7", tree)
    assert jnp.array_equal(nnx.merge(graphdef, loaded, rest)(IDS), expected(IDS))


def test_msgpack_files_are_refused_with_a_command_that_saves_them_again(tmp_path: Path) -> None:
    run = tmp_path / "it's my run"
    without_orbax = flax.config.temp_flip_flag("use_orbax_checkpointing", False)
    with without_orbax, pytest.warns(DeprecationWarning, match="Orbax"):
        flax_checkpoints.save_checkpoint(str(run), trained(), 7)
    (run / "3").write_text("notes")  # no step
    ended: list[str] = []
    of_run = RunConfig("x:y", ("miron-gen/en",))
    for place, config in (
        (run, of_run), (run, replace(of_run, steps="latest")), (run, replace(of_run, watch=True)),
        (run / "checkpoint_7", of_run),
    ):  # fmt: skip
        with pytest.raises(InputError, match=r"checkpoint_7: is a file of msgpack, as flax\.training") as refused:
            checkpoints_of(config, ModelFiles(None, checkpoint_folder(str(place)), None))
        ended.append(str(refused.value))
    assert len(set(ended)) == 1
    command = ended[0].partition("save each step again, ")[2].rpartition(", and name ")[0]
    python, flag, code = shlex.split(command)
    assert (python, flag) == ("python", "-c")
    exec(code, {})
    scores_alike(tmp_path / "it's my run-orbax" / "7")
