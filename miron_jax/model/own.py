"""A user's own Flax model: a record of functions, and the checks that it satisfies the contract.

Arrives: `OwnModel`, from a factory that `--model=package.module:factory` names or from Python.  Leaves: the same model with
its weights bound, or an InputError.  It deliberately does not know Linen or NNX: parameters are a pytree, functions are
called under jit.

    logits(params, token_ids)                            any causal model.  A row is one request, or several of which
                                                         each is a prefix of the next; shared prefixes are recomputed
    hidden(params, token_ids, positions, visibility)     a transformer whose attention respects `visibility`.  Rows are
    head(params)                                         forests; every unique token is computed once
"""

import importlib
import importlib.util
import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention.choose import Heads
from miron_jax.model.decoder import Decoder, Head
from miron_jax.model.visibility import Visibility
from miron_jax.runtime.answers import Answers

PROBE_LENGTH = 16  # tokens of the rows that test whether a model satisfies the contract
PROBE_ATTEMPTS = 5


@dataclass(frozen=True, eq=False)  # compared by identity: it is a static argument of compiled programs
class OwnModel:
    """A user's own causal language model.

    Pass `logits`, or `hidden` and `head`; all are pure functions that jax can trace.  Shapes: token_ids and positions int32
    [B, T]; logits [B, T, V] and hidden states [B, T, D] of any float dtype; row v of the head's weight [V, D] belongs to
    token v.  Rows are padded on the right with token 0.

    If --checkpoint names the weights, `params` may hold only shapes (jax.eval_shape).
    """

    vocab_size: int  #: tokens of the vocabulary
    logits: Callable[..., Any] | None = None  #: (params, token_ids) -> logits
    #: (params, token_ids, positions, visibility) -> hidden states
    hidden: Callable[..., Any] | None = None
    head: Callable[[Any], "jax.Array | Head"] | None = None  #: weight [V, D], or a Head with bias, soft cap and scale
    params: Any = None  #: pytree of arrays; None: they are passed later (Evaluator.run)
    tokenizer: Any = None  #: folder, hub id, or a transformers tokenizer; --tokenizer takes precedence
    eos_token_ids: tuple[int, ...] = ()  #: tokens that end a text
    num_positions: int | None = None  #: maximum length of a row in tokens; None: any length
    trained_length: int | None = None  #: tokens; longer requests are counted
    windows: tuple[int | None, ...] = (None,)  #: windows that `hidden` passes to visibility.attend

    def __post_init__(self) -> None:
        if self.vocab_size < 1:
            raise InputError(f"OwnModel: vocab_size is {self.vocab_size}, expected the number of tokens")
        functions = [name for name in ("logits", "hidden", "head") if getattr(self, name) is not None]
        if functions not in (["logits"], ["hidden", "head"]):
            raise InputError(
                f"OwnModel: has {', '.join(functions) or 'no function'}, expected logits, or hidden and head"
            )

    @property
    def is_forest(self) -> bool:
        """Whether its rows may hold branches, that is, requests with a shared prefix."""
        return self.hidden is not None

    @property
    def layer_windows(self) -> tuple[int | None, ...]:
        return self.windows


class BoundOwnModel:
    """An OwnModel with its weights, and the interface of the engine's own decoder: hidden states, then a head."""

    def __init__(self, config: OwnModel, params: Any) -> None:
        self.config, self.params = config, params

    def __call__(self, token_ids_BT: jax.Array, position_BT: jax.Array, visibility: Visibility) -> jax.Array:
        """Hidden states [B, T, D], or logits [B, T, V] of a model with `logits`; float32."""
        if self.config.hidden is not None:
            hidden = self.config.hidden(self.params, token_ids_BT, position_BT, visibility)
            return self._checked("hidden", hidden, token_ids_BT.shape, None)
        assert self.config.logits is not None
        logits = self.config.logits(self.params, token_ids_BT)
        return self._checked("logits", logits, token_ids_BT.shape, self.config.vocab_size)

    def head(self) -> Head:
        """The head; without a weight for a model with `logits`.  Raises InputError for a weight of another shape."""
        if self.config.head is None:
            return Head(None)
        head = self.config.head(self.params)
        head = head if isinstance(head, Head) else Head(jnp.asarray(head))
        if head.weight_VD is None or head.weight_VD.ndim != 2 or head.weight_VD.shape[0] != self.config.vocab_size:
            shape = None if head.weight_VD is None else list(head.weight_VD.shape)
            raise InputError(
                f"--model: head gives a weight of shape {shape}, expected [{self.config.vocab_size}, D], a row a token of "
                "vocab_size: transpose a Dense or Linear kernel, and cut rows that only pad the vocabulary"
            )
        return head

    def _checked(self, name: str, output: jax.Array, rows: tuple[int, ...], width: int | None) -> jax.Array:
        """The function's output in float32.  Raises InputError unless its shape is (*rows, width); None is any width."""
        shape = getattr(output, "shape", None)
        if shape is None or len(shape) != 3 or shape[:2] != rows or (width is not None and shape[2] != width):
            raise InputError(
                f"--model: {name} gives {type(output).__name__ if shape is None else list(shape)} for token ids of shape "
                f"{list(rows)}, expected {[*rows, 'D' if width is None else width]}; mend the function"
            )
        return output.astype(jnp.float32)


def bind(network: Any, params: Any) -> "Decoder | BoundOwnModel":
    """A network (nnx.GraphDef of a Decoder, or an OwnModel) with its weights; for use in a traced function."""
    if isinstance(network, OwnModel):
        return BoundOwnModel(network, params)
    return nnx.merge(network, params)


@dataclass(eq=False)  # hashed by identity, as a static field must be
class _Calls:
    """What `attend` was called with."""

    heads: set[Heads] = field(default_factory=set)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _NotedVisibility(Visibility):
    """A `Visibility` that notes the heads of each call of `attend`."""

    calls: _Calls = field(default_factory=_Calls, metadata={"static": True})

    def attend(self, q_BTNH: jax.Array, k_BTKH: jax.Array, v_BTKH: jax.Array, **rules: Any) -> jax.Array:
        dtypes = {str(x.dtype) for x in (q_BTNH, k_BTKH, v_BTKH)}
        dtype = dtypes.pop() if len(dtypes) == 1 else "operands of several dtypes"
        softcap = rules.get("softcap")
        if isinstance(softcap, jax.Array):  # a kernel wants a number
            softcap, dtype = None, "a soft cap that is an array"
        heads, kv_heads, head_dim = q_BTNH.shape[2], k_BTKH.shape[2], q_BTNH.shape[3]
        self.calls.heads.add(Heads(heads, kv_heads, head_dim, softcap, dtype))
        return super().attend(q_BTNH, k_BTKH, v_BTKH, **rules)


def heads_of(model: OwnModel, params: Any) -> list[Heads]:
    """The kinds of heads that `hidden` gives to `visibility.attend`; none if it attends by itself, under `mask()`."""
    if model.hidden is None:
        return []
    hidden, calls = model.hidden, _Calls()
    row = jax.ShapeDtypeStruct((1, min(PROBE_LENGTH, model.num_positions or PROBE_LENGTH)), jnp.int32)

    def noted(params: Any, token_ids_BT: jax.Array, position_BT: jax.Array, subtree_end_BT: jax.Array) -> jax.Array:
        return hidden(params, token_ids_BT, position_BT, _NotedVisibility(subtree_end_BT, position_BT, calls=calls))

    jax.eval_shape(noted, params, row, row, row)
    return sorted(calls.heads, key=repr)


def is_factory(name: str) -> bool:
    """Whether the name has the form `package.module:factory`."""
    module, colon, factory = name.partition(":")
    return bool(colon) and factory.isidentifier() and all(part.isidentifier() for part in module.split("."))


def make_own_model(name: str) -> OwnModel:
    """Call the factory that --model names.  Raises InputError if it does not return an OwnModel."""
    module = name.partition(":")[0]
    if module.endswith(".py"):
        raise InputError(
            f"--model={name} names a file, expected its module: --model={module.removesuffix('.py')}:function"
        )
    factory = import_from(name, "--model", 0)
    try:
        model = factory()
    except InputError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        frame = [frame for frame in frames if frame.filename == str(source_file(name))][-1:] or frames[-1:]
        at = f"{Path(frame[0].filename).name}, line {frame[0].lineno}"
        raise InputError(
            f"--model={name} fails in {at} ({type(error).__name__}: {error}): run the function by itself to see more"
        ) from error
    if not isinstance(model, OwnModel):
        raise InputError(
            f"--model={name}: {name.partition(':')[2]} returns a {type(model).__name__}, expected a miron_jax.OwnModel; see "
            "docs/own_model.md"
        )
    return model


def import_from(name: str, flag: str, num_arguments: int) -> Callable[..., Any]:
    """Import the function `package.module:function`, from the working directory if its module is there.

    Raises InputError, which names `flag`, if there is no such function or it cannot be called with so many arguments.
    """
    module, _, function = name.partition(":")
    _search_working_directory()
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
    _check_arguments(getattr(imported, function), f"{flag}={name}", num_arguments)
    return getattr(imported, function)


def _search_working_directory() -> None:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def _check_arguments(function: Callable[..., Any], description: str, count: int) -> None:
    """Raises InputError if the function cannot be called with `count` arguments; a TypeError of the call itself could also
    be raised by the function's body."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin function without a signature
        return
    try:
        signature.bind(*range(count))
    except TypeError as error:
        called = "without arguments" if not count else f"with {count} argument{'s' if count > 1 else ''}"
        raise InputError(
            f"{description} takes {signature}, but it is called {called} ({error}): give the others default values"
        ) from None


def source_file(name: str) -> Path:
    """The file that defines `package.module:function`; a path that does not exist if the module is not found."""
    _search_working_directory()
    try:
        spec = importlib.util.find_spec(name.partition(":")[0])
    except (ImportError, ValueError):
        spec = None
    return Path((spec and spec.origin) or name)


def code_fingerprint(name: str, model: OwnModel) -> str:
    """Fingerprint of the code of a factory's model: its record, and every module imported from the factory's folder or the
    working directory, except installed packages.  Call it after the factory."""
    folders = {source_file(name).resolve().parent, source_file(name.partition(".")[0]).resolve().parent, Path.cwd()}
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    paths = {Path(file).resolve() for file in files if file and "site-packages" not in file}
    sources = sorted(
        path for path in paths if path.is_file() and any(path.is_relative_to(folder) for folder in folders)
    )
    values = [getattr(model, each.name) for each in fields(model) if each.name not in ("params", "tokenizer")]
    record = [value for value in values if not callable(value)]
    return blake2b(repr([record, [path.read_bytes() for path in sources]]).encode(), digest_size=16).hexdigest()


def check_own_model(model: OwnModel, params: Any, tolerance: float) -> Answers:
    """Test with rows of random tokens whether the model satisfies the contract, and return its answers to them.

    `tolerance`: largest difference of log-probabilities, in nats, that rounding may cause.  Raises InputError with the
    reason if the model does not satisfy the contract.
    """
    logprobs = np.zeros((0, 0, 0), np.float32)
    for seed in range(PROBE_ATTEMPTS):  # a model may answer a few tokens with NaN, which the run itself counts
        logprobs = _probe(model, params, tolerance, np.random.default_rng(seed))
        if not np.isnan(logprobs).any():
            break
    best = logprobs.max(axis=-1).reshape(-1).tolist()
    digest = blake2b(logprobs.tobytes(), digest_size=16).hexdigest()
    return Answers(_layout(params), digest, tuple(value if math.isfinite(value) else None for value in best), tolerance)


def _layout(params: Any) -> str | None:
    """Fingerprint of the devices, shardings and compiler; None if equal ones may still give different results."""
    leaves = [leaf for leaf in jax.tree.leaves(params) if isinstance(leaf, jax.Array)]
    device = next(iter(leaves[0].devices())) if leaves else jax.devices()[0]
    if device.platform == "gpu":  # its compiler chooses algorithms by measured times
        return None
    shardings = sorted({str(leaf.sharding) for leaf in leaves})
    versions = [device.platform, device.device_kind, jax.device_count(), jax.__version__, os.environ.get("XLA_FLAGS")]
    return blake2b(repr([*versions, shardings]).encode(), digest_size=16).hexdigest()


def _probe(model: OwnModel, params: Any, tolerance: float, rng: np.random.Generator) -> np.ndarray:
    """Log-probabilities [4, T, V] of rows of random tokens.  Raises InputError unless they satisfy the contract.

    If one of them is NaN, nothing is tested.
    """
    program = jax.jit(_logprobs, static_argnums=0)
    length = min(PROBE_LENGTH, model.num_positions or PROBE_LENGTH)
    half = length // 2
    rows = rng.integers(0, model.vocab_size, (4, length), np.int32)
    position = np.tile(np.arange(length, dtype=np.int32), (4, 1))
    subtree_end = np.full((4, length), length, np.int32)
    # Rows 0 and 3 are equal, and row 1 has the same first half.  In `crowd`, rows 1 and 2 repeat one token.
    rows[1, :half], rows[3] = rows[0, :half], rows[0]
    crowd = rows.copy()
    crowd[1:3] = rows[0, 0]

    def run(tokens: np.ndarray) -> np.ndarray:
        return np.asarray(program(model, params, tokens, position, subtree_end))

    def differ(a: np.ndarray, b: np.ndarray) -> bool:
        return bool((np.abs(a - b) > tolerance).any())

    alone, crowded = run(rows), run(crowd)
    if np.isnan(alone).any():
        return alone
    if differ(alone, run(rows)):
        raise _refused("the same row gives other logits each time", "turn dropout off (evaluation mode)")
    if differ(alone[0], alone[3]) or differ(alone[[0, 3]], crowded[[0, 3]]):
        raise _refused(
            "equal rows of a batch get different logits, or a row's logits change with the other rows",
            "turn dropout off, freeze batch statistics (evaluation mode), let a mixture of experts with a capacity limit "
            "take every token",
        )
    if differ(alone[0, :half], alone[1, :half]):
        remedy = ": attend under visibility.mask() or with visibility.attend" if model.is_forest else ""
        raise _refused("a token's logits change with the tokens behind it", f"it is no causal model{remedy}")
    if model.is_forest:
        _check_forest(partial(program, model, params), rows, alone, differ)
    return alone


def compile_probe(model: OwnModel, params: Any) -> jax.stages.Compiled:
    """The program of the probe's rows, for devices that only compile."""
    rows = np.zeros((4, min(PROBE_LENGTH, model.num_positions or PROBE_LENGTH)), np.int32)
    return jax.jit(_logprobs, static_argnums=0).lower(model, params, rows, rows, rows).compile()


def _check_forest(
    program: Callable[..., jax.Array], rows: np.ndarray, alone: np.ndarray, differ: Callable[..., bool]
) -> None:
    """Test that two branches of one row give the same log-probabilities as the rows 0 and 1, whose first half is common.

    index        0 .. h-1   h .. n-1   n .. n+h-1        of n = 2h
    token        common     branch 1   branch 2, to which branch 1 is hidden
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
        return np.asarray(program(tokens.astype(np.int32), position, subtree_end))[0, length:]

    second_branch = forest(rows[0, half:length])
    if differ(second_branch, forest(rows[2, half:length])):
        raise _refused(
            "a token's hidden state changes with tokens that `visibility` hides from it",
            "attend with visibility.attend(q, k, v, scale=...) or under visibility.mask()",
        )
    if differ(second_branch, alone[1, half:length]):
        raise _refused(
            "a token's hidden state depends on its place in the row",
            "take positions from `positions`, not from arange: in a row with branches they are not the same",
        )


def _refused(reason: str, remedy: str) -> InputError:
    return InputError(f"--model: {reason}, so no score could be trusted: {remedy}")


def _logprobs(
    model: OwnModel, params: Any, token_ids_BT: jax.Array, position_BT: jax.Array, subtree_end_BT: jax.Array
) -> jax.Array:
    """Log-probabilities of all tokens at every position, float32 [B, T, V]."""
    bound = BoundOwnModel(model, params)
    visibility = Visibility.of_batch(subtree_end_BT, position_BT, model.layer_windows)
    hidden_BTD = bound(token_ids_BT, position_BT, visibility)
    b, t, d = hidden_BTD.shape
    logits = bound.head().logits(hidden_BTD.reshape(b * t, d))
    return jax.nn.log_softmax(logits).reshape(b, t, -1)
