"""Models that the decoder does not compute: pure functions over a pytree of weights, and how the
engine runs them.

Arrives: a known family's functions (families/family_model.py) or a user's (own.py), weights.
Leaves: states, logits.  It deliberately does not know files, families or where the functions come
from.

    logits(params, token_ids)                  any causal model.  A row is one request, or several
                                               of which each is a prefix of the next; shared
                                               prefixes are recomputed
    hidden(params, token_ids, positions,       a transformer whose attention respects `visibility`.
           visibility), head(params)           Rows are forests; every unique token is computed once
    state(params, num_tokens),                 what one text has left behind so far: the state of a
    step(params, state, token_ids)             recurrent model, whose branches start from it
                                               (stateful/walk.py), or a cache, with which texts are
                                               generated
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import compress

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.errors import InvalidRngError, ModifyScopeVariableError, TraceContextError
from jax.typing import ArrayLike

from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention.choose import Heads
from miron_jax.model.decoder.decoder import Decoder, Head, leaf_name
from miron_jax.model.visibility import Visibility
from miron_jax.runtime.devices import Tree

PROBE_LENGTH = 16  # tokens of the rows that test whether a model satisfies the contract
MASKED = 2000.0  # nats below the largest logit, from where a token may be a masked one
MASKED_ULPS = 4  # that the log-probability of a masked token, such as -1e9, may differ by
EVALUATION = (
    "turn dropout off and freeze batch statistics, with model.eval() before nnx.split, or in Linen "
    "with deterministic=True and use_running_average=True"
)


# compared by identity: it is a static argument of compiled programs
@dataclass(frozen=True, eq=False)
class Network:
    """A causal language model as functions, which jax can trace; `OwnModel` has their shapes."""

    vocab_size: int  #: tokens of the vocabulary
    #: (params, token_ids) -> logits; what Linen's apply returns has a wider type than an array
    logits: Callable[[Tree, jax.Array], Tree] | None = None
    #: (params, token_ids, positions, visibility) -> hidden states
    hidden: Callable[[Tree, jax.Array, jax.Array, Visibility], Tree] | None = None
    #: weight [V, D], or a Head with bias, soft cap and scale
    head: Callable[[Tree], jax.Array | Head] | None = None
    #: (params, num_tokens) -> pytree of arrays: the state of a text before any token, with room for
    #: so many tokens
    state: Callable[[Tree, int], Tree] | None = None
    #: (params, state, token_ids [T]) -> (hidden states or logits of T more tokens of the text, the
    #: state after them)
    step: Callable[[Tree, Tree, jax.Array], Tree] | None = None
    params: Tree = None  #: pytree of arrays; None: they are passed later (Evaluator.run)
    eos_token_ids: tuple[int, ...] = ()  #: tokens that end a text
    num_positions: int | None = None  #: maximum length of a row in tokens; None: any length
    trained_length: int | None = None  #: tokens; longer requests are counted
    windows: tuple[int | None, ...] = (None,)  #: windows that `hidden` passes to visibility.attend

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

    @property
    def rope_classes(self) -> None:
        """No request's length changes its rotation, as a decoder's RoPE classes do."""
        return None

    @property
    def matmul_params(self) -> int:
        """Weights of all matrices; 0 if they are not known yet."""
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.params) if leaf.ndim > 1)

    @property
    def head_params(self) -> int:
        """Weights of the head that `matmul_params` does not count."""
        return 0


@contextmanager
def _evaluation_mode() -> Iterator[None]:
    """Raises InputError for a Flax model that draws masks or changes statistics as it computes."""
    try:
        yield
    except (InvalidRngError, ModifyScopeVariableError, TraceContextError) as error:
        reason = str(error).partition(" (https:")[0]
        raise InputError(
            f"--model: the model is in training mode ({reason}), so no score could be trusted: "
            f"{EVALUATION}"
        ) from None


class BoundNetwork:
    """A `Network` with its weights, and the interface of the engine's own decoder: hidden states,
    then a head."""

    def __init__(self, config: Network, params: Tree) -> None:
        self.config = config
        self.params = params

    @_evaluation_mode()
    def __call__(
        self, token_ids_BT: jax.Array, position_BT: jax.Array, visibility: Visibility
    ) -> jax.Array:
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

    def empty_states(self, count: int, num_tokens: int) -> Tree:
        """States of texts before any token: `state`'s tree, with a leading axis.  Raises InputError
        for a state without arrays."""
        assert self.config.state is not None
        state = self.config.state(self.params, num_tokens)
        try:
            state = jax.tree.map(jnp.asarray, state)
        except TypeError as error:
            raise InputError(
                f"--model: state gives something else than arrays ({error}): give arrays alone"
            ) from None
        if not jax.tree.leaves(state):
            raise InputError(
                "--model: state gives no array, expected what a text leaves behind: give it, or "
                "logits alone"
            )
        return jax.tree.map(
            lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype) + leaf[None], state
        )

    @_evaluation_mode()
    def advance(self, states: Tree, token_ids_BT: jax.Array) -> tuple[jax.Array, Tree]:
        """(hidden states [B, T, D] or logits [B, T, V], float32; states) after T more tokens of B
        texts.

        Raises InputError unless the new states have the shapes and dtypes of the old ones.
        """
        assert self.config.step is not None
        outputs = jax.vmap(self.config.step, in_axes=(None, 0, 0))(
            self.params, states, token_ids_BT
        )
        given = f"a {type(outputs).__name__}"
        if isinstance(outputs, tuple | list):
            given = f"{len(outputs)} values"
        if given != "2 values":
            raise InputError(
                f"--model: step gives {given}, expected two: its outputs, then the state after the "
                "tokens"
            )
        hidden, after = outputs
        before, new = map(_kinds_of, (states, after))
        if before != new:
            name = next(name for name in [*before, *new] if before.get(name) != new.get(name))
            raise InputError(
                f"--model: step gives a state whose {name or 'array'} is "
                f"{new.get(name, 'absent')}, expected {before.get(name, 'absent')}, as state gives "
                "it; mend one of the two (outputs come first, then the state)"
            )
        width = self.config.vocab_size if self.config.head is None else None
        return self._checked("step", hidden, token_ids_BT.shape, width), after

    def head(self) -> Head:
        """The head; without a weight for a model with `logits`.  Raises InputError for a weight of
        another shape."""
        if self.config.head is None:
            return Head(None)
        head = self.config.head(self.params)
        if not isinstance(head, Head):
            head = Head(jnp.asarray(head))
        shape = getattr(head.weight_VD, "shape", ())
        if len(shape) != 2 or shape[0] != self.config.vocab_size:
            raise InputError(
                f"--model: head gives a weight of shape {list(shape)}, expected "
                f"[{self.config.vocab_size}, D], a row a token of vocab_size: transpose a Dense or "
                "Linear kernel, and cut rows that only pad the vocabulary"
            )
        return head

    def _checked(
        self, name: str, output: jax.Array, rows: tuple[int, ...], width: int | None
    ) -> jax.Array:
        """The function's output in float32.  Raises InputError unless its shape is (*rows, width);
        None is any width."""
        shape = getattr(output, "shape", None)
        given = type(output).__name__ if shape is None else list(shape)
        if shape is None or len(shape) != 3 or shape[:2] != rows or width not in (None, shape[2]):
            raise InputError(
                f"--model: {name} gives {given} for token ids of shape {list(rows)}, expected "
                f"{[*rows, width or 'D']}; mend the function"
            )
        return output.astype(jnp.float32)


def is_key(leaf: Tree) -> bool:
    """Whether the leaf holds jax's random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _kinds_of(states: Tree) -> dict[str, str]:
    """Dtype and shape of each leaf, without its leading axis, by its name."""
    leaves = jax.tree_util.tree_leaves_with_path(states)
    return {
        jax.tree_util.keystr(path): f"{leaf.dtype} {list(leaf.shape[1:])}" for path, leaf in leaves
    }


@dataclass(frozen=True)
class CastNetwork:
    """A network that is given weights of other dtypes than the run's, such as a trainer's.  Each
    program casts them, a decoder's layers one at a time, so no second copy is held."""

    network: nnx.GraphDef | Network
    dtypes: tuple[str, ...]  # of each leaf of the weights, as the programs compute with it

    def cast(self, params: Tree) -> Tree:
        leaves, tree = jax.tree.flatten(params)
        return tree.unflatten(map(_as_dtype, leaves, self.dtypes))

    def bind(self, params: Tree) -> Decoder | BoundNetwork:
        if isinstance(self.network, Network):
            return bind(self.network, self.cast(params))
        leaves, tree = jax.tree_util.tree_flatten_with_path(params)
        is_late = [leaf_name(path).startswith("layers/") for path, _ in leaves]
        early = []
        for (_, leaf), late, dtype in zip(leaves, is_late, self.dtypes, strict=True):
            early.append(leaf if late else _as_dtype(leaf, dtype))
        decoder = nnx.merge(self.network, tree.unflatten(early))
        decoder.layer_dtypes = tuple(compress(self.dtypes, is_late))
        return decoder


def _as_dtype(leaf: jax.Array, dtype: str) -> jax.Array:
    return leaf.astype(dtype)


@jax.jit
def logit_size(logits: ArrayLike) -> jax.Array:
    """The largest logit less their mean [...], of logits [..., V] or log-probabilities.  Tokens
    that the model masks do not count: more than MASKED below, or a multiple of it that half of
    the others keep to; and the lowest value there, whatever number share it."""
    gap = jnp.max(logits, axis=-1, keepdims=True) - jnp.asarray(logits)
    finite = jnp.isfinite(gap)
    lowest = jnp.max(gap, axis=-1, keepdims=True, where=finite, initial=0.0)
    others = finite & ((gap <= MASKED) | (gap < lowest))

    def are_few(limit: jax.Array) -> jax.Array:
        return jnp.mean(gap <= limit, axis=-1, keepdims=True, where=others) < 0.5

    limit = jax.lax.while_loop(
        lambda limit: are_few(limit).any(),
        lambda limit: jnp.where(are_few(limit), 8 * limit, limit),
        jnp.full_like(lowest, MASKED),
    )
    return jnp.mean(gap, axis=-1, where=others & (gap <= limit))


def rounding_bounds(
    tolerance: float, share: float, logprob: np.ndarray, logit_size: np.ndarray
) -> np.ndarray:
    """What rounding may change each of these log-probabilities by, nats: the self-check, the probe
    of a user's own model and `verify` go by it.

    `tolerance`: at least.  `share`: of the size of its position's logits, where that is more; a
    peaked position widens no other one's.
    """
    rounding = MASKED_ULPS * np.spacing(np.abs(logprob.astype(np.float32)))
    scaled = np.fmax(share * logit_size.astype(np.float64), rounding)
    return np.maximum(tolerance, np.where(np.isfinite(scaled), scaled, 0.0))


def bind(network: nnx.GraphDef | Network | CastNetwork, params: Tree) -> Decoder | BoundNetwork:
    """A network (nnx.GraphDef of a Decoder, a Network or a CastNetwork) with its weights; for use
    in a traced function."""
    if isinstance(network, CastNetwork):
        return network.bind(params)
    if isinstance(network, Network):
        return BoundNetwork(network, params)
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

    def attend(
        self, q_BTNH: jax.Array, k_BTKH: jax.Array, v_BTKH: jax.Array, **rules: Tree
    ) -> jax.Array:
        dtypes = {str(x.dtype) for x in (q_BTNH, k_BTKH, v_BTKH)}
        dtype = dtypes.pop() if len(dtypes) == 1 else "operands of several dtypes"
        softcap = rules.get("softcap")
        if isinstance(softcap, jax.Array):  # a kernel wants a number
            softcap = None
            dtype = "a soft cap that is an array"
        heads = q_BTNH.shape[2]
        kv_heads = k_BTKH.shape[2]
        head_dim = q_BTNH.shape[3]
        has_sinks = rules.get("sinks_N") is not None
        self.calls.heads.add(Heads(heads, kv_heads, head_dim, softcap, dtype, has_sinks))
        return super().attend(q_BTNH, k_BTKH, v_BTKH, **rules)


@_evaluation_mode()
def heads_of(model: Network, params: Tree) -> list[Heads]:
    """The kinds of heads that `hidden` gives to `visibility.attend`; none if it attends by itself,
    under `mask()`."""
    if model.hidden is None:
        return []
    hidden = model.hidden
    calls = _Calls()
    row = jax.ShapeDtypeStruct(
        (1, min(PROBE_LENGTH, model.num_positions or PROBE_LENGTH)), jnp.int32
    )

    def noted(
        params: Tree, token_ids_BT: jax.Array, position_BT: jax.Array, subtree_end_BT: jax.Array
    ) -> jax.Array:
        return hidden(
            params,
            token_ids_BT,
            position_BT,
            _NotedVisibility(subtree_end_BT, position_BT, calls=calls),
        )

    jax.eval_shape(noted, params, row, row, row)
    return sorted(calls.heads, key=repr)
