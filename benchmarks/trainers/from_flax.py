"""Saves users' Linen and NNX models as Flax and Orbax do, and what they compute."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
from flax import config, linen, nnx
from flax.training import checkpoints
from flax.training.train_state import TrainState
from flax_models import LinenModel, NnxModel
from orbax.checkpoint import v1
from saved import STEP, TOKEN_IDS, Cases, as_dtype, moved, rounded

READ = {"checkpoint": "RUN"}
FLAX_V0 = "flax.training.checkpoints, msgpack"


def standard(run: Path, tree: Any) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(run / str(STEP), tree)


def plain(run: Path, tree: Any) -> None:
    """A file an array, as older versions wrote."""
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=False)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(run / str(STEP), args=ocp.args.PyTreeSave(tree))


def manage(run: Path, **items: Any) -> None:
    """A CheckpointManager with named items; `default` alone has no name."""
    with ocp.CheckpointManager(run) as manager:
        saved = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
        alone = saved.get("default")
        manager.save(STEP, args=alone if alone is not None else ocp.args.Composite(**saved))


def version_1(run: Path, tree: Any) -> None:
    v1.save(str(run / str(STEP)), tree)


def version_1_run(run: Path, tree: Any) -> None:
    with v1.training.Checkpointer(str(run)) as checkpointer:
        checkpointer.save(STEP, tree)


def by_flax(run: Path, tree: Any, with_orbax: bool) -> None:
    config.update("flax_use_orbax_checkpointing", with_orbax)
    checkpoints.save_checkpoint(run, tree, STEP)


def add_linen(cases: Cases) -> None:
    model = LinenModel()
    variables = rounded(moved(linen.unbox(model.init(jax.random.key(0), TOKEN_IDS))))
    logits = model.apply(variables, jnp.asarray(TOKEN_IDS))
    add = partial(cases.add, "Linen", logits=logits, factory="flax_models:make_linen", **READ)
    params = variables["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))
    half = as_dtype(variables, jnp.bfloat16)
    average = jax.tree.map(jnp.zeros_like, params)
    saves = {
        "variables, StandardCheckpointer": partial(standard, tree=variables),
        "variables, bfloat16": partial(standard, tree=half),
        "params alone": partial(standard, tree=params),
        "variables, without OCDBT": partial(plain, tree=variables),
        "TrainState, StandardCheckpointer": partial(standard, tree=state),
        "TrainState, CheckpointManager": partial(manage, default=state),
        "TrainState, item model": partial(manage, model=state),
        "TrainState below model": partial(standard, tree={"model": state, "step": 3}),
        "TrainState, Orbax v1": partial(version_1, tree=state),
        "TrainState, Orbax v1, Checkpointer": partial(version_1_run, tree=state),
        "TrainState, flax.training.checkpoints": partial(by_flax, tree=state, with_orbax=True),
        "params beside an average": partial(standard, tree={"params": params, "ema": average}),
    }
    for layout, save in saves.items():
        add(layout, save=save)
    add(FLAX_V0, save=partial(by_flax, tree=state, with_orbax=False), refused="no Orbax checkpoint")
    swapped = {"params": average, "ema": params}
    add("average, --params_key=ema", save=partial(standard, tree=swapped), params_key="ema")


def add_nnx(cases: Cases) -> None:
    model = NnxModel(nnx.Rngs(0))
    nnx.update(model, rounded(moved(nnx.state(model, nnx.Param))))
    model.eval()
    logits = model(jnp.asarray(TOKEN_IDS))
    add = partial(cases.add, "NNX", logits=logits, factory="flax_models:make_nnx", **READ)
    params = nnx.state(model, nnx.Param)
    everything = nnx.state(model)  # the dropout's keys and counts too
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    both = {"model": everything, "optimizer": nnx.state(optimizer)}
    saves = {
        "nnx.state(model, Param)": partial(standard, tree=params),
        "nnx.state(model)": partial(standard, tree=everything),
        "nnx.state(model), CheckpointManager": partial(manage, default=everything),
        "pure dict": partial(standard, tree=nnx.to_pure_dict(everything)),
        "model and optimizer": partial(standard, tree=both),
        "model and optimizer, pure dict": partial(
            standard, tree={name: nnx.to_pure_dict(tree) for name, tree in both.items()}
        ),
        "items model and optimizer": partial(manage, **both),
        "nnx.state(model), Orbax v1": partial(version_1, tree=nnx.to_pure_dict(everything)),
    }
    for layout, save in saves.items():
        add(layout, save=save)
    whole = nnx.ModelAndOptimizer(model, optax.adam(1e-3))
    add("ModelAndOptimizer", save=partial(standard, tree=nnx.state(whole)))
    items = partial(manage, weights=everything, data={"n": 1})
    add("item weights, --params_key=weights", save=items, params_key="weights")


def main() -> None:
    cases = Cases("flax", "orbax-checkpoint")
    add_linen(cases)
    add_nnx(cases)


if __name__ == "__main__":
    main()
