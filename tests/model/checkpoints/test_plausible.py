"""Zeros where a half-written file has them are named; what may be zero in a sound model is not."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.model.checkpoints import plausible
from miron_jax.model.checkpoints.hf_reader import load_hf
from miron_jax.model.checkpoints.plausible import implausible
from tests.support.hf_folders import LLAMA, Tensors, llama_tensors, write_folder

VOCABULARY = 29
LAYER = "model.layers.1."


def warnings_of(folder: Path, num_tokens: int = VOCABULARY) -> list[str]:
    return implausible(load_hf(folder, jnp.bfloat16).state, num_tokens)


def changed(**zeros: slice | tuple[slice, slice]) -> Tensors:
    tensors = llama_tensors()
    for name, span in zeros.items():
        tensors[name][span] = 0
    return tensors


END = "the file may be half-written or damaged, compare it with its source"
CASES: list[tuple[dict[str, slice | tuple[slice, slice]], int, list[str]]] = [
    ({}, VOCABULARY, []),
    ({"model.norm.weight": np.s_[:], f"{LAYER}input_layernorm.weight": np.s_[:]}, VOCABULARY, []),
    (
        {f"{LAYER}mlp.up_proj.weight": np.s_[:]}, VOCABULARY,
        [f"the weights layers/mlp/up/kernel_IO are all zero in layer 1: {END}"],
    ),
    (
        {f"{LAYER}mlp.up_proj.weight": np.s_[-1:]}, VOCABULARY,  # its rows are columns of the leaf
        [f"the weights layers/mlp/up/kernel_IO are zero in the last 1 of 14 columns in layer 1: {END}"],
    ),
    ({f"{LAYER}mlp.up_proj.weight": np.s_[-3:-1]}, VOCABULARY, []),  # dead neurons, but no end of a file
    (
        {"model.embed_tokens.weight": np.s_[-5:]}, VOCABULARY,
        [f"the last 5 of 29 rows of the weights embedding_VD are zero: {END}"],
    ),
    ({"model.embed_tokens.weight": np.s_[-5:]}, 24, []),  # rows that pad the vocabulary
    (
        {"model.embed_tokens.weight": np.s_[-6:]}, 24,
        [f"the last 1 of 29 rows of the weights embedding_VD are zero: {END}"],
    ),
    (
        {"model.embed_tokens.weight": np.s_[:]}, VOCABULARY,
        [f"all of 29 rows of the weights embedding_VD are zero: {END}"],
    ),
]  # fmt: skip


@pytest.mark.parametrize("at_once", [plausible.MAX_AT_ONCE, 50])
def test_zeros_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(plausible, "MAX_AT_ONCE", at_once)  # 50: the last part overlaps the one before
    jax.clear_caches()
    for i, (zeros, num_tokens, expected) in enumerate(CASES):
        assert warnings_of(write_folder(tmp_path / str(i), LLAMA, changed(**zeros)), num_tokens) == expected


def test_a_preallocated_file_that_is_half_written_is_named_wherever_it_ends(tmp_path: Path) -> None:
    path = write_folder(tmp_path, LLAMA) / "model.safetensors"
    whole = path.read_bytes()
    for share in np.linspace(0.5, 0.96, 12):
        kept = int(share * len(whole))
        path.write_bytes(whole[:kept] + bytes(len(whole) - kept))
        assert any(END in line for line in warnings_of(tmp_path)), share


def test_zeros_of_a_users_own_model_are_named() -> None:
    """Of matrices, whatever they are called; its norms, biases, vectors and padded vocabulary may be zero."""
    ones = {
        "embed": (13, 4), "attention": {"query": (4, 2, 3), "bias": (2, 3)}, "norm": {"scale": (2, 4)}, "out": (4, 13),
        "small": (4,), "counts": (3, 3),
    }  # fmt: skip
    shapes, tree = jax.tree.flatten(ones, is_leaf=lambda value: isinstance(value, tuple))
    sound = jax.tree.unflatten(tree, [jnp.ones(shape) for shape in shapes])
    sound["counts"] = jnp.zeros((3, 3), jnp.int32)
    sound["norm"]["scale"], sound["attention"]["bias"], sound["small"] = (
        jnp.zeros((2, 4)),
        jnp.zeros((2, 3)),
        jnp.zeros(4),
    )
    sound["embed"] = sound["embed"].at[11:].set(0)
    assert implausible(sound, 11, is_own=True) == []
    broken = sound | {"attention": {"query": jnp.ones((4, 2, 3)).at[3:].set(0)}, "out": jnp.zeros((4, 13))}
    assert implausible(broken, 12, is_own=True) == [
        f"the last 1 of 4 rows of the weights attention/query are zero: {END}",
        f"the last 1 of 13 rows of the weights embed are zero: {END}",
        f"all of 4 rows of the weights out are zero: {END}",
    ]
