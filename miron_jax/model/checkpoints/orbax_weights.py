"""Where the weights of a model lie in an Orbax tree, beside optimizers and averages.

Arrives: the arrays of a tree by key, the names of a model's leaves.  Leaves: `Weights`, the key of
each leaf and what lies beside them.  It deliberately does not read the arrays.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.model.checkpoints.orbax_layout import NO_ARRAY, StoredArray, listed

# usual prefixes of the weights in a tree
ROOTS = ("", "params/", "params/params/", "model/", "transformer/")
LINEN = "params/"  # Linen's collection of weights
_INNER = "/value"  # level of an nnx variable, or of a box of Linen's, which some weights may have
# Parts of the path of an optimizer's arrays: the whole state, and fields of optax's states
_STATES = ("opt_state", "opt_states", "optimizer_state", "optimizer_states", "optim_state")
_FIELDS = (
    *("mu", "nu", "nu_max", "trace", "v_row", "v_col", "sum_of_squares", "acc_grads"),
    *("inner_state", "inner_states", "inner_opt_state", "base_optimizer_state"),
)
_OPTIMIZERS = ("opt", "optim", "optimizer", "tx")  # these may hold a model beside the state
_MODELS = ("model", "params", "target")  # right below them

_Copies = dict[
    str, dict[str, str]
]  # of each copy, by the prefix of its keys: name of a leaf -> key


class Weights(NamedTuple):
    """The arrays of a tree that a model's leaves are read from, and the others."""

    prefix: str  # of their keys
    keys: dict[str, str]  # name of a leaf -> key; leaves that are not there are absent
    extra: dict[str, str]  # name -> key of arrays among them that may be weights, too
    besides: list[str]  # names of arrays, or of whole subtrees, that are not read
    copies: list[str]  # prefixes of other arrays of the same names, such as averages


def weights_of(
    folder: Path, arrays: Mapping[str, StoredArray], leaf_names: Collection[str], home: str = ""
) -> Weights:
    """The weights with the most of the leaf names.

    A key is prefix + name, and perhaps `_INNER`.  Linen's names may lack `params/`.  An optimizer's
    state has the same names and is no copy of the weights.  Of several copies the one
    below `params` counts, or another one of `ROOTS` below `home`.  Raises InputError if that leaves
    none or more than one.
    """
    collection = ""
    if all(name.startswith(LINEN) for name in leaf_names):
        collection = LINEN
    names = {name.removeprefix(collection) for name in leaf_names}
    copies, states = _copies(arrays, names)
    apart = _apart(copies)
    usual = [prefix for prefix in apart if prefix in {home + root for root in ROOTS}]
    if len(usual) == 1:
        taken = usual[0]
    elif len(apart) > 1:
        raise InputError(
            f"{folder}: holds the weights in {listed(map(_shown, apart))}, expected them once, "
            "or once below params; say with --params_key which to score"
        )
    elif apart:
        taken = apart[0]
    elif states:
        raise InputError(
            f"{folder}: holds the model's names in {listed(states)} alone, as an optimizer's "
            "state does, expected the weights too: save them, or say with --params_key that these "
            "are the weights"
        )
    else:
        taken = ""
    keys = copies.get(taken, {})
    others = [prefix for prefix in apart if prefix != taken]
    no_weights = {*_STATES}
    for prefix in (*others, *states):
        if prefix.startswith(taken):
            no_weights.add(_top(prefix.removeprefix(taken)))
    extra, besides = _rest(arrays, taken, keys, no_weights, {*map(_top, names)})
    named = {collection + name: key for name, key in keys.items()}
    return Weights(taken, named, extra, besides, others)


def is_optimizers(path: Iterable[str]) -> bool:
    """Whether an array, or the subtree, with this path belongs to an optimizer's state."""
    is_inside = False
    before = ""
    for part in path:
        if part in _STATES or part in _FIELDS:
            return True
        if part in _OPTIMIZERS:
            is_inside = True
        elif before in _OPTIMIZERS and part in _MODELS:
            is_inside = False
        before = part
    return is_inside


def _copies(keys: Iterable[str], names: Collection[str]) -> tuple[_Copies, _Copies]:
    """Arrays with leaf names by what their keys have besides: weights, and states of optimizers."""
    copies: _Copies = {}
    states: _Copies = {}
    for key in keys:
        for path in (key, key.removesuffix(_INNER)):
            parts = path.split("/")
            for i in range(len(parts)):
                name = "/".join(parts[i:])
                if name in names:
                    kind = states if is_optimizers(parts[:i]) else copies
                    kind.setdefault(path.removesuffix(name), {})[name] = key
    return copies, states


def _apart(copies: _Copies) -> list[str]:
    """The copies with more than half as many leaves as the largest one, which comes first; none
    that is a part of another."""
    apart: list[str] = []
    used: set[str] = set()
    for prefix, keys in sorted(copies.items(), key=lambda copy: (-len(copy[1]), copy[0])):
        is_large = not apart or 2 * len(keys) > len(copies[apart[0]])
        if is_large and used.isdisjoint(keys.values()):
            apart.append(prefix)
            used.update(keys.values())
    return apart


def _rest(
    arrays: Mapping[str, StoredArray],
    prefix: str,
    keys: Mapping[str, str],
    no_weights: Collection[str],
    tops: Collection[str],
) -> tuple[dict[str, str], list[str]]:
    """The arrays that are no leaf: name -> key of those that may be weights, and the names of those
    that cannot, or of their subtrees.

    `tops`: the first parts of the leaves' names; `no_weights`: those of other copies and of
    optimizers.
    """
    is_linen = LINEN.rstrip("/") in tops  # it can use no collection that it does not ask for
    used = {*keys.values()}
    all_inner = bool(used) and all(key.endswith(_INNER) for key in used)
    extra: dict[str, str] = {}
    besides: set[str] = set()
    for key, array in arrays.items():
        if key in used or array.dtype == NO_ARRAY:
            continue
        name = key.removeprefix(prefix).removesuffix(_INNER)
        top = _top(name)
        is_near = key.startswith(prefix) and (key.endswith(_INNER) or not all_inner)
        if is_near and (top in tops or not (is_linen or top in no_weights)):
            extra[name] = key
        else:
            besides.add(_branch(key.removesuffix(_INNER), prefix))
    return extra, sorted(besides)


def _top(name: str) -> str:
    return name.partition("/")[0]


def _branch(key: str, prefix: str) -> str:
    """The part of a key's path up to where it leaves that of the prefix: of model/step and
    model/params/ the first."""
    branch: list[str] = []
    others = iter(prefix.split("/"))
    for part in key.split("/"):
        branch.append(part)
        if part != next(others, None):
            break
    return "/".join(branch)


def _shown(prefix: str) -> str:
    return prefix or "the top"
