"""A user's own Flax model: a record of functions, and the checks that it satisfies the contract.

Arrives: `OwnModel`, from a factory that `--model=package.module:factory` names or from Python.  Leaves: the same model with
its weights bound, or an InputError.  It deliberately does not know Linen or NNX: parameters are a pytree, functions are
called under jit.

    logits(params, token_ids)                            any causal model.  A row is one request, or several of which
                                                         each is a prefix of the next; shared prefixes are recomputed
    hidden(params, token_ids, positions, visibility)     a transformer whose attention respects `visibility`.  Rows are
    head(params)                                         forests; every unique token is computed once
    state(params, num_tokens)                            what one text has left behind so far: the state of a recurrent
    step(params, state, token_ids)                       model, whose branches start from it (`walk.py`), or a cache, with
                                                         which texts are generated
"""

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention.choose import Heads
from miron_jax.model.decoder.decoder import Decoder, Head
from miron_jax.model.visibility import Visibility

PROBE_LENGTH = 16  # tokens of the rows that test whether a model satisfies the contract
ARGUMENTS = {"logits": 2, "hidden": 4, "head": 1, "state": 2, "step": 3}  # of the functions of an OwnModel


@dataclass(frozen=True, eq=False)  # compared by identity: it is a static argument of compiled programs
class OwnModel:
    """A user's own causal language model.

    Pass `logits`, or `hidden` and `head`, or `state` and `step`; all are pure functions that jax can trace.  Shapes:
    token_ids and positions int32 [B, T]; logits [B, T, V] and hidden states [B, T, D] of any float dtype; row v of the
    head's weight [V, D] belongs to token v.  Rows are padded on the right with token 0.

    `state` and `step` are of one text, without an axis B and without padding.  Beside `hidden` they serve generation;
    otherwise requests are scored by them too, and `logits`, if given, tests them.  `step` gives hidden states [T, D] if
    there is a head, else logits [T, V].

    If --checkpoint names the weights, `params` may hold only shapes (jax.eval_shape).
    """

    vocab_size: int  #: tokens of the vocabulary
    logits: Callable[..., Any] | None = None  #: (params, token_ids) -> logits
    #: (params, token_ids, positions, visibility) -> hidden states
    hidden: Callable[..., Any] | None = None
    head: Callable[[Any], "jax.Array | Head"] | None = None  #: weight [V, D], or a Head with bias, soft cap and scale
    #: (params, num_tokens) -> pytree of arrays: the state of a text before any token, with room for so many tokens
    state: Callable[..., Any] | None = None
    #: (params, state, token_ids [T]) -> (hidden states or logits of T more tokens of the text, the state after them)
    step: Callable[..., Any] | None = None
    params: Any = None  #: pytree of arrays; None: they are passed later (Evaluator.run)
    tokenizer: Any = None  #: folder, hub id, or a transformers tokenizer; --tokenizer takes precedence
    eos_token_ids: tuple[int, ...] = ()  #: tokens that end a text
    num_positions: int | None = None  #: maximum length of a row in tokens; None: any length
    trained_length: int | None = None  #: tokens; longer requests are counted
    windows: tuple[int | None, ...] = (None,)  #: windows that `hidden` passes to visibility.attend

    def __post_init__(self) -> None:
        if self.vocab_size < 1:
            raise InputError(f"OwnModel: vocab_size is {self.vocab_size}, expected the number of tokens")
        functions = [name for name in ARGUMENTS if getattr(self, name) is not None]
        rest = [name for name in functions if name not in ("state", "step")]
        has_both = len(functions) - len(rest) == 2
        if rest not in (["logits"], ["hidden", "head"], *([[], ["head"]] if has_both else [])) or not (
            has_both or rest == functions
        ):
            raise InputError(
                f"OwnModel: has {', '.join(functions) or 'no function'}, expected logits, or hidden and head, or state and "
                "step (which may come with any of them)"
            )
        for name in functions:
            _check_arguments(getattr(self, name), f"OwnModel: {name}", ARGUMENTS[name])

    @property
    def is_forest(self) -> bool:
        """Whether its rows may hold branches, that is, requests with a shared prefix."""
        return self.hidden is not None or self.step is not None

    @property
    def is_recurrent(self) -> bool:
        """Whether branches start from the state of what they share."""
        return self.hidden is None and self.step is not None

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
        if self.config.logits is not None:
            logits = self.config.logits(self.params, token_ids_BT)
            return self._checked("logits", logits, token_ids_BT.shape, self.config.vocab_size)
        return self.by_steps(token_ids_BT)

    def by_steps(self, token_ids_BT: jax.Array) -> jax.Array:
        """The same by one `step` of each whole row, in which there must be no branch."""
        b, t = token_ids_BT.shape
        return self.advance(self.empty_states(b, t), token_ids_BT)[0]

    def empty_states(self, count: int, num_tokens: int) -> Any:
        """States of texts before any token: `state`'s tree, with a leading axis.  Raises InputError for a state without
        arrays."""
        assert self.config.state is not None
        state = self.config.state(self.params, num_tokens)
        try:
            state = jax.tree.map(jnp.asarray, state)
        except TypeError as error:
            raise InputError(f"--model: state gives something else than arrays ({error}): give arrays alone") from None
        if not jax.tree.leaves(state):
            raise InputError(
                "--model: state gives no array, expected what a text leaves behind: give it, or logits alone"
            )
        return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype) + leaf[None], state)

    def advance(self, states: Any, token_ids_BT: jax.Array) -> tuple[jax.Array, Any]:
        """(hidden states [B, T, D] or logits [B, T, V], float32; states) after T more tokens of B texts.

        Raises InputError unless the new states have the shapes and dtypes of the old ones.
        """
        assert self.config.step is not None
        outputs = jax.vmap(self.config.step, in_axes=(None, 0, 0))(self.params, states, token_ids_BT)
        if not isinstance(outputs, tuple | list) or len(outputs) != 2:
            given = f"{len(outputs)} values" if isinstance(outputs, tuple | list) else f"a {type(outputs).__name__}"
            raise InputError(f"--model: step gives {given}, expected two: its outputs, then the state after the tokens")
        hidden, after = outputs
        before, new = (_kinds_of(tree) for tree in (states, after))
        if before != new:
            name = next(name for name in [*before, *new] if before.get(name) != new.get(name))
            raise InputError(
                f"--model: step gives a state whose {name or 'array'} is {new.get(name, 'absent')}, expected "
                f"{before.get(name, 'absent')}, as state gives it; mend one of the two (outputs come first, then the state)"
            )
        width = self.config.vocab_size if self.config.head is None else None
        return self._checked("step", hidden, token_ids_BT.shape, width), after

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


def _kinds_of(states: Any) -> dict[str, str]:
    """Dtype and shape of each leaf, without its leading axis, by its name."""
    leaves = jax.tree_util.tree_leaves_with_path(states)
    return {jax.tree_util.keystr(path): f"{leaf.dtype} {list(leaf.shape[1:])}" for path, leaf in leaves}


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
        has_sinks = rules.get("sinks_N") is not None
        self.calls.heads.add(Heads(heads, kv_heads, head_dim, softcap, dtype, has_sinks))
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
