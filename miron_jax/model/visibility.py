"""Which tokens of a batch are visible to which, as a dense mask and as attention.

Arrives: `subtree_end` and `position` of a batch.  Leaves: a dense mask, or the result of attention.
It deliberately does not know layers; a user's own model calls one of the two methods.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from miron_jax.kernels.forest_attention import IMPLEMENTATIONS, implementation, reference, xla
from miron_jax.kernels.reductions import row_max, row_sum
from miron_jax.model.decoder.cache import Cache
from miron_jax.runtime.devices import MODEL, row_axes

# slots of the longest row whose biases are built once a batch; those of longer rows: block by block
AHEAD_UP_TO = 4096
NO_WINDOW = 2**30  # a window wider than any row


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Visibility:
    """Key k is visible to query q exactly when k <= q < subtree_end[k], and position[q] -
    position[k] < window."""

    # int32, row index just past the token's subtree; a padding place sees only itself
    subtree_end_BT: jax.Array
    position_BT: jax.Array  # int32, depth in the token's trie
    bias_WBTT: jax.Array | None = None  # `xla.hidden_bias` for each of `windows`
    windows: tuple[int, ...] = field(default=(), metadata={"static": True})
    # windows are traced numbers, each one of `windows`
    traced: bool = field(default=False, metadata={"static": True})
    attention: str = field(default="xla", metadata={"static": True})  # name of the implementation
    has_gradient: bool = field(default=False, metadata={"static": True})  # of plain XLA alone
    # of the rows, where XLA would compute those of all devices on each
    row_sharding: NamedSharding | PartitionSpec | None = field(
        default=None, metadata={"static": True}
    )

    @classmethod
    def of_batch(
        cls,
        subtree_end_BT: jax.Array,
        position_BT: jax.Array,
        layer_windows: tuple[int | None, ...] = (None,),
        traced: bool = False,
        attention: str = "xla",
    ) -> "Visibility":
        """Build the biases of all windows of the layers, if the implementation reads them and rows
        are short enough."""
        dtype = IMPLEMENTATIONS[attention].bias_dtype
        if dtype is None or subtree_end_BT.shape[1] > AHEAD_UP_TO:
            return cls(subtree_end_BT, position_BT, attention=attention)
        windows = tuple(dict.fromkeys(window or NO_WINDOW for window in layer_windows))
        biases = []
        for window in windows:
            biases.append(xla.hidden_bias(subtree_end_BT, position_BT, window).astype(dtype))
        return cls(subtree_end_BT, position_BT, jnp.stack(biases), windows, traced, attention)

    @classmethod
    def causal(cls, rows: int, length: int) -> "Visibility":
        """One text in each row, as in training: a token sees itself and those before it."""
        position_BT = jnp.tile(jnp.arange(length, dtype=jnp.int32)[None], (rows, 1))
        seen = cls.of_batch(jnp.full((rows, length), length, jnp.int32), position_BT)
        return replace(seen, has_gradient=True)

    def mask(self, window: jax.Array | int | None = None) -> jax.Array:
        """Dense bool [B, T, T], query by key."""
        return reference.visible_pairs(self.subtree_end_BT, self.position_BT, window)

    def attend(
        self,
        q_BTNH: jax.Array,
        k_BTKH: jax.Array,
        v_BTKH: jax.Array,
        *,
        scale: float,
        window: jax.Array | int | None = None,
        softcap: float | None = None,
        sinks_N: jax.Array | None = None,
    ) -> jax.Array:
        """Attention over the visible keys, [B, T, N, H] float32; kernels/forest_attention gives the
        definition.

        `sinks_N`: float32, a logit of each head that has no value.

        Where windows come `traced`, each must be one of `windows`; NO_WINDOW sees everything.
        """
        rows = (q_BTNH, k_BTKH, v_BTKH, self.subtree_end_BT, self.position_BT)
        attend = partial(implementation(self.attention), scale=scale, softcap=softcap)
        if IMPLEMENTATIONS[self.attention].splits:
            return _on_each_device(attend, rows, window, sinks_N)
        bias_BTT = self._bias(window)
        if self.has_gradient:
            attend = partial(attend, skip=False)
        if self.row_sharding is not None:
            return _on_each_device(attend, rows, window, sinks_N, bias_BTT, self.row_sharding)
        if sinks_N is not None:
            attend = partial(attend, sinks_N=sinks_N)
        return attend(*rows, window=window, bias_BTT=bias_BTT)

    def _bias(self, window: jax.Array | int | None) -> jax.Array | None:
        """The bias of this window if it was built; None: the implementation builds it."""
        if self.bias_WBTT is None:
            return None
        if isinstance(window, jax.Array):
            if not self.traced:
                return None
            if len(self.windows) == 1:
                return self.bias_WBTT[0]
            return self.bias_WBTT[jnp.argmax(jnp.asarray(self.windows) == window)]
        wanted = NO_WINDOW if window is None else int(window)
        return self.bias_WBTT[self.windows.index(wanted)] if wanted in self.windows else None


def _on_each_device(
    attend: Callable[..., jax.Array],
    rows: tuple[jax.Array, ...],
    window: jax.Array | int | None,
    sinks_N: jax.Array | None,
    bias_BTT: jax.Array | None = None,
    row_sharding: NamedSharding | PartitionSpec | None = None,
) -> jax.Array:
    """`attend` of each device's rows, which `fsdp` and `expert` split, and heads, which `model`
    splits: XLA does not divide a kernel, nor a loop over rows.

    An axis that its devices do not divide is computed whole by each.  For use inside a program of
    `Placement.compile`.  `row_sharding`: on a user's mesh it says what splits the rows, and heads
    stay as they are.
    """

    def local(
        window: jax.Array | int | None,
        sinks_N: jax.Array | None,
        bias_BTT: jax.Array | None,
        *rows: jax.Array,
    ) -> jax.Array:
        more = {"sinks_N": sinks_N, "bias_BTT": bias_BTT}
        return attend(
            *rows, window=window, **{name: x for name, x in more.items() if x is not None}
        )

    where = {}
    if isinstance(row_sharding, NamedSharding):
        [by_rows] = row_sharding.spec
        by_heads = None
        axes = {by_rows} if isinstance(by_rows, str) else set(by_rows)
        if rows[0].shape[0] % math.prod(row_sharding.mesh.shape[axis] for axis in axes):
            return local(window, sinks_N, bias_BTT, *rows)
        where = {"mesh": row_sharding.mesh}
    else:
        mesh = jax.sharding.get_abstract_mesh()
        # those of size 1, too: a kernel is compiled under manual axes alone
        axes = set(mesh.axis_names) - set(mesh.manual_axes)
        if not axes:
            return local(window, sinks_N, bias_BTT, *rows)
        by_rows = row_axes(rows[0].shape[0]) or None
        by_heads = MODEL if rows[1].shape[2] % mesh.shape[MODEL] == 0 else None
    heads = PartitionSpec(by_rows, None, by_heads)
    places = PartitionSpec(by_rows)
    specs = (PartitionSpec(), PartitionSpec(by_heads), places, heads, heads, heads, places, places)
    split = jax.shard_map(
        local, in_specs=specs, out_specs=heads, axis_names=axes, check_vma=False, **where
    )
    window = None if window is None else jnp.asarray(window, jnp.int32)
    return split(window, sinks_N, bias_BTT, *rows)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Continuation:
    """T new tokens a row behind places kept before: each sees the first `position` of these and
    those up to itself."""

    position_B: jax.Array  # int32, places kept so far: the position of a row's first new token

    def attend(
        self,
        q_BTNH: jax.Array,
        k_BTKH: jax.Array,
        v_BTKH: jax.Array,
        cache: Cache,
        layer: jax.Array,
        *,
        scale: float,
        window: jax.Array | int | None = None,
        softcap: float | None = None,
        sinks_N: jax.Array | None = None,
    ) -> jax.Array:
        """[B, T, N, H] float32.

        Block after block of kept places, as far as any row has come, with a running softmax that
        begins with the new tokens: nothing is copied but the block, which stays in the processor's
        cache.  A block that a row does not see adds exact zeros to it.
        """
        b, t, n, h = q_BTNH.shape
        kv_heads = k_BTKH.shape[2]
        dtype = q_BTNH.dtype
        group = n // kv_heads
        # R: the queries of one key/value head, those of all new tokens
        q_BTKGH = (q_BTNH * jnp.asarray(scale, dtype)).reshape(b, t, kv_heads, group, h)
        q_BKRH = q_BTKGH.transpose(0, 2, 1, 3, 4).reshape(b, kv_heads, t * group, h)

        def logits(key_BKHS: jax.Array, visible_BTS: jax.Array) -> jax.Array:
            logit_BKRS = jnp.einsum(
                "bkrh,bkhs->bkrs", q_BKRH, key_BKHS, preferred_element_type=jnp.float32
            )
            if softcap is not None:
                logit_BKRS = softcap * jnp.tanh(logit_BKRS / softcap)
            return jnp.where(jnp.repeat(visible_BTS, group, axis=1)[:, None], logit_BKRS, -jnp.inf)

        def mixed(weights_BKRS: jax.Array, value_BKSH: jax.Array) -> jax.Array:
            weights_BKRS = weights_BKRS.astype(dtype)
            return jnp.einsum(
                "bkrs,bksh->bkrh", weights_BKRS, value_BKSH, preferred_element_type=jnp.float32
            )

        def add_block(i: jax.Array, running: xla.Running) -> xla.Running:
            key_BKHC, value_BKCH = cache.read(layer, i)
            place_C = i * cache.block + jnp.arange(cache.block, dtype=jnp.int32)
            logit_BKRC = logits(key_BKHC, self._visible_kept(place_C, t, window))
            highest = jnp.maximum(running.highest, row_max(logit_BKRC))
            weights = jnp.exp(logit_BKRC - highest[..., None])
            before = jnp.exp(running.highest - highest)
            total = running.total * before + row_sum(weights)
            return xla.Running(
                highest, total, running.mixed * before[..., None] + mixed(weights, value_BKCH)
            )

        new = logits(k_BTKH.transpose(0, 2, 3, 1), _visible_new(t, window))
        highest = row_max(new)
        sunk = 0.0
        if sinks_N is not None:  # as a key of this logit whose value is 0
            sinks_1KR = jnp.tile(sinks_N.reshape(kv_heads, group), (1, t))[None]
            highest = jnp.maximum(highest, sinks_1KR)
            sunk = jnp.exp(sinks_1KR - highest)
        weights = jnp.exp(new - highest[..., None])
        start = xla.Running(
            highest, row_sum(weights) + sunk, mixed(weights, v_BTKH.transpose(0, 2, 1, 3))
        )
        blocks = (self.position_B.max() + (cache.block - 1)) // cache.block
        running = jax.lax.fori_loop(0, blocks, add_block, start)
        o_BKRH = running.mixed / running.total[..., None]
        return o_BKRH.reshape(b, kv_heads, t, group, h).transpose(0, 2, 1, 3, 4).reshape(b, t, n, h)

    def _visible_kept(
        self, place_C: jax.Array, new: int, window: jax.Array | int | None
    ) -> jax.Array:
        """Bool [B, T, C]."""
        place = place_C[None, None]
        first = self.position_B[:, None, None]
        position = first + jnp.arange(new, dtype=jnp.int32)[None, :, None]
        visible = jnp.broadcast_to(place < first, (first.shape[0], new, len(place_C)))
        return visible if window is None else visible & (position - place < window)


def _visible_new(new: int, window: jax.Array | int | None) -> jax.Array:
    """Bool [1, T, T], query by key."""
    index = jnp.arange(new, dtype=jnp.int32)
    back = index[None, :, None] - index[None, None]
    return (back >= 0) if window is None else (back >= 0) & (back < window)
