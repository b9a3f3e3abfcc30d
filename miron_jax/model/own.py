"""The user's own Flax model: a record of functions, told apart by what they know.

Arrives: `OwnModel`, from a factory that `--model=package.module:factory` names or from Python.  Leaves: the same, found
to be what it says.  It deliberately does not know Linen or NNX: parameters are a pytree, functions are called under jit.

    logits(params, token_ids)                            any causal model.  A row is one request (or several that begin
                                                         one another); what they share is computed again
    hidden(params, token_ids, positions, visibility)     a transformer that looks only where `visibility` lets it: rows
    head(params)                                         are forests, every unique token is computed once
"""

import importlib
import importlib.util
import inspect
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from miron_jax.errors import InputError
from miron_jax.model.decoder import Decoder, Head
from miron_jax.model.visibility import Visibility
from miron_jax.runtime.answers import Answers

PROBE_LENGTH = 16  # places of the rows that tell whether a model keeps its word
PROBE_DRAWS = 5


@dataclass(frozen=True, eq=False)  # compared by identity: it is a static argument of compiled programs
class OwnModel:
    """A causal language model of the user's own.

    Give `logits`, or `hidden` and `head`; all are pure functions that jax can trace.  Shapes: token_ids and positions int32
    [B, T]; logits [B, T, V] and hidden states [B, T, D] of any float dtype; row v of the head's weight [V, D] is token v's.
    Rows are padded on the right with token 0.

    Of a training run, `params` may hold shapes alone (jax.eval_shape): --checkpoint names the weights.
    """

    vocab_size: int
    logits: Callable[[Any, jax.Array], jax.Array] | None = None
    hidden: Callable[[Any, jax.Array, jax.Array, Visibility], jax.Array] | None = None
    head: Callable[[Any], "jax.Array | Head"] | None = None  # weight [V, D], or a Head with bias, soft cap and scale
    params: Any = None  # pytree of arrays; None: they come later (Evaluator.run)
    tokenizer: Any = None  # folder, hub id, or a transformers tokenizer; --tokenizer goes before it
    eos_token_ids: tuple[int, ...] = ()  # tokens that end a text
    num_positions: int | None = None  # places that the model has; None: any number
    trained_length: int | None = None  # tokens; requests beyond it are counted
    windows: tuple[int | None, ...] = (None,)  # that `hidden` asks of visibility.attend

    def __post_init__(self) -> None:
        if self.vocab_size < 1:
            raise InputError(f"OwnModel: vocab_size is {self.vocab_size}, expected the number of tokens")
        both, one = self.hidden is not None and self.head is not None, self.hidden is None and self.head is None
        if not ((both and self.logits is None) or (one and self.logits is not None)):
            given = [name for name in ("logits", "hidden", "head") if getattr(self, name) is not None]
            raise InputError(f"OwnModel: has {', '.join(given) or 'no function'}, expected logits, or hidden and head")

    @property
    def is_forest(self) -> bool:
        """Whether its rows may hold branches."""
        return self.hidden is not None

    @property
    def layer_windows(self) -> tuple[int | None, ...]:
        return self.windows


class BoundOwn:
    """The model with its weights, called like the engine's own decoder: hidden states, then a head."""

    def __init__(self, config: OwnModel, params: Any) -> None:
        self.config, self.params = config, params

    def __call__(self, token_ids_BT: jax.Array, position_BT: jax.Array, visibility: Visibility) -> jax.Array:
        """[B, T, D]; of a model that has logits alone, these: [B, T, V]."""
        if self.config.hidden is not None:
            hidden = self.config.hidden(self.params, token_ids_BT, position_BT, visibility)
            return self._checked("hidden", hidden, token_ids_BT.shape, None)
        assert self.config.logits is not None
        logits = self.config.logits(self.params, token_ids_BT)
        return self._checked("logits", logits, token_ids_BT.shape, self.config.vocab_size)

    def head(self) -> Head:
        if self.config.head is None:
            return Head(None)
        found = self.config.head(self.params)
        head = found if isinstance(found, Head) else Head(jnp.asarray(found))
        if head.weight_VD is None or head.weight_VD.ndim != 2 or head.weight_VD.shape[0] != self.config.vocab_size:
            shape = None if head.weight_VD is None else list(head.weight_VD.shape)
            raise InputError(
                f"--model: head gives a weight of shape {shape}, expected [{self.config.vocab_size}, D], a row a token of "
                "vocab_size: transpose a Dense or Linear kernel, and cut rows that only pad the vocabulary"
            )
        return head

    def _checked(self, name: str, found: jax.Array, rows: tuple[int, ...], last: int | None) -> jax.Array:
        shape = getattr(found, "shape", None)
        if shape is None or len(shape) != 3 or shape[:2] != rows or (last is not None and shape[2] != last):
            wanted = [*rows, "D" if last is None else last]
            raise InputError(
                f"--model: {name} gives {type(found).__name__ if shape is None else list(shape)} for token ids of shape "
                f"{list(rows)}, expected {wanted}; mend the function"
            )
        return found.astype(jnp.float32)


def bind(network: Any, params: Any) -> "Decoder | BoundOwn":
    """A network (nnx.GraphDef of a Decoder, or an OwnModel) with its weights, inside a traced function."""
    if isinstance(network, OwnModel):
        return BoundOwn(network, params)
    return nnx.merge(network, params)


def is_factory(name: str) -> bool:
    """Whether --model names a factory, `package.module:factory`."""
    module, colon, factory = name.partition(":")
    return bool(colon) and factory.isidentifier() and all(part.isidentifier() for part in module.split("."))


def make_own(name: str) -> OwnModel:
    """What the factory returns."""
    made = import_from(name, "--model", 0)()
    if not isinstance(made, OwnModel):
        raise InputError(
            f"--model={name}: {name.partition(':')[2]} returns a {type(made).__name__}, expected a miron_jax.OwnModel; see "
            "the README"
        )
    return made


def import_from(name: str, flag: str, num_arguments: int) -> Callable[..., Any]:
    """The function `package.module:function`, to be called with so many arguments; its module is looked for in the working
    directory first."""
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise InputError(f"{flag}={name}: {module} imports {error.name}, which is not installed") from error
        raise InputError(
            f"{flag}={name}: no module {error.name}, neither in {os.getcwd()} nor installed; run where it lies, or set "
            "PYTHONPATH"
        ) from None
    if not callable(getattr(imported, function, None)):
        raise InputError(f"{flag}={name}: {imported.__file__} has no function {function}; name one that it has")
    found = getattr(imported, function)
    _check_arguments(found, f"{flag}={name}", num_arguments)
    return found


def _check_arguments(function: Callable[..., Any], where: str, count: int) -> None:
    """Before it is called: a TypeError within it is its own."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a builtin that tells nothing
        return
    try:
        signature.bind(*range(count))
    except TypeError as error:
        called = "without arguments" if not count else f"with {count} argument{'s' if count > 1 else ''}"
        raise InputError(
            f"{where} takes {signature}, but it is called {called} ({error}): give the others default values"
        ) from None


def source_of(name: str) -> Path:
    """The file that `package.module:function` is in; one that does not exist where none is found."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.util.find_spec(name.partition(":")[0])
    except (ImportError, ValueError):
        found = None
    return Path((found and found.origin) or name)


def code_of(name: str, own: OwnModel) -> str:
    """Fingerprint of what a factory's model computes beside its weights: its record, and every module that was imported from
    the factory's own folder or the working directory (installed packages apart).  Called after the factory."""
    folders = {source_of(name).resolve().parent, source_of(name.partition(".")[0]).resolve().parent, Path.cwd()}
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    paths = {Path(file).resolve() for file in files if file and "site-packages" not in file}
    inside = sorted(path for path in paths if path.is_file() and any(path.is_relative_to(own) for own in folders))
    told = [getattr(own, field.name) for field in fields(own) if field.name not in ("params", "tokenizer")]
    record = [value for value in told if not callable(value)]
    return blake2b(repr([record, [path.read_bytes() for path in inside]]).encode(), digest_size=16).hexdigest()


def check_own(own: OwnModel, params: Any, tolerance: float) -> Answers:
    """Run rows of random tokens that tell whether the model keeps its word, and what it answers.

    `tolerance`: largest difference of log-probabilities, nats, that rounding may cause.  Raises InputError with the reason.
    """
    answers = np.zeros((0, 0, 0), np.float32)
    for seed in range(PROBE_DRAWS):  # a few tokens may be answered with NaN: the run itself counts them
        answers = _probe(own, params, tolerance, np.random.default_rng(seed))
        if not np.isnan(answers).any():
            break
    best = answers.max(axis=-1).reshape(-1).tolist()
    digest = blake2b(answers.tobytes(), digest_size=16).hexdigest()
    return Answers(_layout(params), digest, tuple(value if math.isfinite(value) else None for value in best), tolerance)


def _layout(params: Any) -> str | None:
    leaves = [leaf for leaf in jax.tree.leaves(params) if isinstance(leaf, jax.Array)]
    device = next(iter(leaves[0].devices())) if leaves else jax.devices()[0]
    if device.platform == "gpu":  # its compiler chooses among algorithms by their times
        return None
    where = sorted({str(leaf.sharding) for leaf in leaves})
    told = [
        device.platform,
        device.device_kind,
        jax.device_count(),
        jax.__version__,
        os.environ.get("XLA_FLAGS"),
        where,
    ]
    return blake2b(repr(told).encode(), digest_size=16).hexdigest()


def _probe(own: OwnModel, params: Any, tolerance: float, rng: np.random.Generator) -> np.ndarray:
    """Log-probabilities [4, T, V] of the drawn tokens; where one of them is NaN nothing else is looked at."""
    run = jax.jit(_logprobs, static_argnums=0)
    length = min(PROBE_LENGTH, own.num_positions or PROBE_LENGTH)
    half = length // 2
    rows = rng.integers(0, own.vocab_size, (4, length), np.int32)
    position = np.tile(np.arange(length, dtype=np.int32), (4, 1))
    subtree_end = np.full((4, length), length, np.int32)
    # Rows 0 and 3 are the same, row 1 begins like them.  In `crowd` the rows between repeat one of their tokens.
    rows[1, :half], rows[3] = rows[0, :half], rows[0]
    crowd = rows.copy()
    crowd[1:3] = rows[0, 0]
    alone, crowded = (np.asarray(run(own, params, tokens, position, subtree_end)) for tokens in (rows, crowd))

    def differ(a: np.ndarray, b: np.ndarray) -> bool:
        return bool((np.abs(a - b) > tolerance).any())

    if np.isnan(alone).any():
        return alone
    again = np.asarray(run(own, params, rows, position, subtree_end))
    if differ(alone, again):
        raise _refused("the same row gives other logits each time", "turn dropout off (evaluation mode)")
    if differ(alone[0], alone[3]) or differ(alone[[0, 3]], crowded[[0, 3]]):
        raise _refused(
            "equal rows of a batch get different logits, or a row's logits change with the other rows",
            "turn dropout off, freeze batch statistics (evaluation mode), let a mixture of experts with a capacity limit "
            "take every token",
        )
    if differ(alone[0, :half], alone[1, :half]):
        remedy = ": attend under visibility.mask() or with visibility.attend" if own.is_forest else ""
        raise _refused("a token's logits change with the tokens behind it", f"it is no causal model{remedy}")
    if own.is_forest:
        _check_forest(run, own, params, rows, alone, differ)
    return alone


def _check_forest(
    run: Any, own: OwnModel, params: Any, rows: np.ndarray, alone: np.ndarray, differ: Callable[..., bool]
) -> None:
    """Two rows with a common first half as one: the second branch stands behind the first, and must not see it.

    index        0 .. h-1   h .. n-1   n .. n+h-1        of n = 2h
    token        common     branch 1   branch 2
    position     0 .. h-1   h .. n-1   h .. n-1
    subtree_end  n+h        n          n+h
    """
    length = rows.shape[1] // 2 * 2
    half = length // 2
    total = length + half

    def forest(first_branch: np.ndarray) -> np.ndarray:
        tokens = np.concatenate([rows[0, :half], first_branch, rows[1, half:length]])[None]
        position = np.concatenate([np.arange(length), np.arange(half, length)]).astype(np.int32)[None]
        subtree_end = np.full((1, total), total, np.int32)
        subtree_end[0, half:length] = length
        return np.asarray(run(own, params, tokens.astype(np.int32), position, subtree_end))[0, length:]

    found = forest(rows[0, half:length])
    if differ(found, forest(rows[2, half:length])):
        raise _refused(
            "a token's hidden state changes with tokens that `visibility` hides from it",
            "attend with visibility.attend(q, k, v, scale=...) or under visibility.mask()",
        )
    if differ(found, alone[1, half:length]):
        raise _refused(
            "a token's hidden state depends on its place in the row",
            "take positions from `positions`, not from arange: in a row with branches they are not the same",
        )


def _refused(found: str, remedy: str) -> InputError:
    return InputError(f"--model: {found}, so no score could be trusted: {remedy}")


def _logprobs(
    own: OwnModel, params: Any, token_ids_BT: jax.Array, position_BT: jax.Array, subtree_end_BT: jax.Array
) -> jax.Array:
    """Log-probabilities of all tokens at every place, [B, T, V]."""
    model = BoundOwn(own, params)
    visibility = Visibility.of_batch(subtree_end_BT, position_BT, own.layer_windows)
    hidden_BTD = model(token_ids_BT, position_BT, visibility)
    head, (b, t, d) = model.head(), hidden_BTD.shape
    logits = head.logits(hidden_BTD.reshape(b * t, d))
    return jax.nn.log_softmax(logits).reshape(b, t, -1)
