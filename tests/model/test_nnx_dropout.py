"""NNX models with dropout: their random keys are not read from checkpoints, and no score depends on them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from orbax.checkpoint import v1 as ocp1

from miron_jax.engine.self_check import TOLERANCE
from miron_jax.errors import InputError
from miron_jax.model.checkpoints.orbax_reader import load_tree
from miron_jax.model.network import heads_of
from miron_jax.model.own import OwnModel
from miron_jax.model.own_probe import check_own_model
from miron_jax.runtime.progress import Lines
from tests.support.own_models import VOCAB, WIDTH, users_promotion
from tests.support.training_runs import save_standard

__all__ = ["users_promotion"]  # a fixture that every test here uses
pytestmark = [
    pytest.mark.slow, pytest.mark.newest,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]  # fmt: skip


class Dropping(nnx.Module):
    """A table of logits behind dropout; `broadcast` gives every token of every row one mask."""

    def __init__(self, seed: int = 0, broadcast: bool = False, statistics: bool = False):
        rngs = nnx.Rngs(seed)
        self.tokens = nnx.Embed(VOCAB, WIDTH, rngs=rngs)
        self.drop = nnx.Dropout(0.5, broadcast_dims=(0, 1) if broadcast else (), rngs=rngs)
        self.mean = nnx.BatchNorm(WIDTH, rngs=rngs) if statistics else None

    def hidden(self, token_ids: jax.Array, *_: Any) -> jax.Array:
        x = self.drop(self.tokens(token_ids))
        return x if self.mean is None else self.mean(x)


class LinenDropping(nn.Module):
    @nn.compact
    def __call__(self, token_ids: jax.Array) -> jax.Array:
        return nn.Dropout(0.5, deterministic=False)(nn.Embed(VOCAB, VOCAB)(token_ids))


def whole(model: Dropping) -> OwnModel:
    """The keys are among the params."""
    graphdef, state = nnx.split(model)
    return OwnModel(
        VOCAB, hidden=lambda params, *batch: nnx.merge(graphdef, params).hidden(*batch), head=table, params=state
    )


def weights_alone(model: Dropping) -> OwnModel:
    """The keys stay with the functions."""
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    return OwnModel(
        VOCAB, hidden=lambda params, *batch: nnx.merge(graphdef, params, rest).hidden(*batch), head=table, params=params
    )


def table(params: Any) -> jax.Array:
    return params["tokens"]["embedding"][...]


def counting_statistics() -> OwnModel:
    """Dropout is off, and batches still count."""
    model = Dropping(statistics=True)
    model.drop.deterministic = True
    return weights_alone(model)


def linen() -> OwnModel:
    return OwnModel(VOCAB, logits=LinenDropping().apply, params={"params": {"Embed_0": {"embedding": jnp.eye(VOCAB)}}})


TRAINING: dict[str, tuple[Callable[[], OwnModel], str]] = {
    "keys among the params": (lambda: whole(Dropping()), "change with the random keys among the params"),
    "one mask for all rows": (lambda: whole(Dropping(broadcast=True)), "change with the random keys among the params"),
    "keys elsewhere": (lambda: weights_alone(Dropping()), r"in training mode \(Cannot mutate RngCount .* level\)"),
    "batch statistics": (lambda: counting_statistics(), "Cannot mutate BatchStat"),
    "Linen": (linen, 'in training mode .Dropout_0 needs PRNG for "dropout"'),
}


@pytest.mark.parametrize("name", TRAINING)
def test_a_model_in_training_mode_is_refused_with_the_call_that_ends_it(name: str) -> None:
    make, words = TRAINING[name]
    model = make()
    with pytest.raises(
        InputError, match=rf"^--model: .*{words}.*so no score could be trusted: .*model\.eval\(\).*deterministic=True"
    ):
        check_own_model(model, model.params, TOLERANCE["float32"])


def test_heads_of_a_model_in_training_mode_are_refused_alike() -> None:
    model = weights_alone(Dropping())
    with pytest.raises(InputError, match=r"in training mode .*model\.eval\(\)"):
        heads_of(model, model.params)


@pytest.mark.parametrize("make", [whole, weights_alone])
def test_in_evaluation_mode_it_is_scored(make: Callable[[Dropping], OwnModel]) -> None:
    module = Dropping(statistics=True)
    module.eval()
    model = make(module)
    check_own_model(model, model.params, TOLERANCE["float32"])


def as_item(folder: Path, state: Any) -> None:
    with ocp.CheckpointManager(folder.parent, item_names=("model", "data")) as manager:
        items = {"model": ocp.args.StandardSave(state), "data": ocp.args.StandardSave({"place": np.ones(3)})}
        manager.save(int(folder.name), args=ocp.args.Composite(**items))
        manager.wait_until_finished()


def with_optimizer(folder: Path, model: Dropping) -> None:
    save_standard(folder, nnx.state(nnx.ModelAndOptimizer(model, optax.adam(1e-3), wrt=nnx.Param)))


WRITERS: dict[str, Callable[[Path, Dropping], object]] = {
    "nnx.state": lambda folder, model: save_standard(folder, nnx.state(model)),
    "a pure dict": lambda folder, model: save_standard(folder, nnx.to_pure_dict(nnx.state(model))),
    "ModelAndOptimizer": with_optimizer,
    "an item `model`": lambda folder, model: as_item(folder, nnx.state(model)),
    "orbax v1": lambda folder, model: ocp1.save(str(folder), nnx.state(model)),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_keys_in_a_checkpoint_are_not_read_and_a_line_says_so(tmp_path: Path, writer: str) -> None:
    WRITERS[writer](tmp_path / "7", Dropping(seed=1))
    lines = list[str]()
    asked = {
        "weights": weights_alone(Dropping()).params,
        "all": nnx.state(Dropping()),
        "shapes": nnx.eval_shape(lambda: nnx.state(Dropping())),
        "a dict": nnx.to_pure_dict(nnx.state(Dropping())),
    }
    for name, tree in asked.items():
        state = load_tree(tmp_path / "7", tree, progress=Lines(lines.append))
        assert jax.tree.structure(state) == jax.tree.structure(tree), name
        plain = nnx.to_pure_dict(state) if isinstance(state, nnx.State) else state
        np.testing.assert_array_equal(plain["tokens"]["embedding"], Dropping(seed=1).tokens.embedding[...])
        if name in ("all", "a dict"):  # the model's own, of seed 0
            own_key = nnx.to_pure_dict(nnx.state(Dropping()))["drop"]["rngs"]["key"]
            assert jax.random.key_data(plain["drop"]["rngs"]["key"]).tolist() == jax.random.key_data(own_key).tolist()
    assert len(lines) == len(asked)
    key = "(model/)?drop/rngs"
    words = rf"7: the weights (at the top|below model) are read, not (data, )?{key}/count, {key}/key"
    assert all(re.search(words, line) for line in lines), lines


def test_a_map_may_name_the_keys_or_leave_them_out(tmp_path: Path) -> None:
    save_standard(tmp_path / "7", {"block": nnx.to_pure_dict(nnx.state(Dropping(seed=1)))})
    entries = {"tokens/embedding": "block/tokens/embedding"}
    keys = {f"drop/rngs/{name}": f"block/drop/rngs/{name}" for name in ("count", "key")}
    for mapping in (entries, entries | keys):
        (tmp_path / "map.json").write_text(json.dumps(mapping))
        state = load_tree(tmp_path / "7", nnx.state(Dropping()), str(tmp_path / "map.json"))
        np.testing.assert_array_equal(table(state), Dropping(seed=1).tokens.embedding[...])


def test_what_may_be_weights_is_refused_as_before(tmp_path: Path) -> None:
    """Statistics of batches, and small integers, which quantized weights are."""
    model = nnx.to_pure_dict(nnx.state(Dropping()))
    for name, extra in (("mean/var", {"mean": {"var": np.ones(3, np.float32)}}), ("q", {"q": np.ones(3, np.int8)})):
        save_standard(tmp_path / name[0], model | extra)
        with pytest.raises(InputError, match=f": has {name} besides"):
            load_tree(tmp_path / name[0], weights_alone(Dropping()).params)
