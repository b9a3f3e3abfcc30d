"""The plain scorer that the self-check compares with: one request per row, attention by its
definition.

Arrives: a model and a few requests.  Leaves: log-probabilities of their spans.  It deliberately
shares neither plan nor kernels with `forward.py`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.engine.model import Graph, Model
from miron_jax.kernels.forest_attention import reference
from miron_jax.model.network import bind, logit_size
from miron_jax.model.visibility import Visibility
from miron_jax.runtime.devices import Placement, Tree
from miron_jax.runtime.program_cache import library_matmuls
from miron_jax.runtime.progress import SILENT, Progress

# slots of plain rows that one more program must save: it compiles as long as some rows take
PROGRAM_SLOTS = 4096


class PlainVisibility(Visibility):
    """A `Visibility` whose attention is the dense definition, for the self-check."""

    def attend(
        self,
        q_BTNH: jax.Array,
        k_BTKH: jax.Array,
        v_BTKH: jax.Array,
        *,
        sinks_N: jax.Array | None = None,
        **rules: Any,
    ) -> jax.Array:
        """One key-value head at a time: the dense logits of all heads at once would set the run's
        peak memory."""
        (b, t, n, h), kv_heads = q_BTNH.shape, k_BTKH.shape[2]
        q_KBTGH = jnp.moveaxis(
            q_BTNH.astype(jnp.float32).reshape(b, t, kv_heads, n // kv_heads, h), 2, 0
        )
        k_KBT1H, v_KBT1H = (
            jnp.moveaxis(x.astype(jnp.float32)[:, :, :, None], 2, 0) for x in (k_BTKH, v_BTKH)
        )

        sinks_KG = None if sinks_N is None else sinks_N.reshape(kv_heads, -1)

        def one_head(head: tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]) -> jax.Array:
            q, k, v, sinks_G = head
            return reference.forest_attention(
                q, k, v, self.subtree_end_BT, self.position_BT, sinks_N=sinks_G, **rules
            )

        out_KBTGH = jax.lax.map(one_head, (q_KBTGH, k_KBT1H, v_KBT1H, sinks_KG))
        return jnp.moveaxis(out_KBTGH, 0, 2).reshape(b, t, n, h)


class PlainScore(NamedTuple):
    """The scored span of one request, token by token."""

    logprob: np.ndarray  # float32 nats
    # float32 nats, log p less that of the best other token; negative if another token is ahead
    margin: np.ndarray
    logit_size: np.ndarray  # float32, the largest logit of its position less their mean
    # float32 [] nats, log p of all ids of the request's set together; -inf: it has none
    set_logprob: np.ndarray


class PlainShape(NamedTuple):
    """The sizes of one plain program."""

    length: int  # tokens of a row
    scored: int  # positions that go through the head


def by_shape(
    num_tokens: Sequence[int], span_start: Sequence[int]
) -> list[tuple[list[int], PlainShape]]:
    """Requests of similar lengths together, each part with the shape of its longest: one program a
    part.

    No other parts have fewer slots, where a program counts as PROGRAM_SLOTS.
    """
    order = np.argsort(num_tokens, kind="stable")
    length = np.asarray(num_tokens, np.int64)[order]
    # of the shortest 0, 1, 2, .. requests: the least cost, where the last part begins
    costs, begins = [0], list[int]()
    for stop in range(1, len(order) + 1):
        cost = np.asarray(costs) + np.arange(stop, 0, -1) * length[stop - 1] + PROGRAM_SLOTS
        begins.append(int(cost.argmin()))
        costs.append(int(cost.min()))
    parts = list[tuple[list[int], PlainShape]]()
    stop = len(order)
    while stop:
        part = order[begins[stop - 1] : stop].tolist()
        scored = max(num_tokens[i] - span_start[i] for i in part)
        parts.append((part, PlainShape(max(num_tokens[i] for i in part), scored)))
        stop = begins[stop - 1]
    return parts


def score_plainly(
    model: Model,
    token_ids: list[np.ndarray],
    span_start: list[int],
    progress: Progress = SILENT,
    id_sets: Sequence[np.ndarray] | None = None,
) -> tuple[list[PlainScore], int]:
    """Score requests one per row, with dense attention and the whole vocabulary at once at the
    scored positions.

    `id_sets`: of each request, the token ids that are summed at the node before its span.  Returns
    a score for each request and the number of programs.
    """
    results: dict[int, PlainScore] = {}
    model = model.on_one_device
    placement = model.placement or Placement.of(model.state)
    rope_classes = model.config.rope_classes
    program = jax.jit(
        _score_plain, static_argnums=0, compiler_options=library_matmuls(placement.device)
    )
    parts = by_shape([*map(len, token_ids)], span_start)
    for part, (length, scored) in parts:
        for i in part:
            ids = token_ids[i]
            start = span_start[i]
            row = np.zeros(length, np.int32)
            positions = np.ones(scored, np.int32)
            row[: len(ids)] = ids
            positions[: len(ids) - start] = np.arange(start, len(ids))
            in_set = np.zeros(model.config.vocab_size, bool)
            if id_sets is not None:
                in_set[id_sets[i]] = True
            length_class = None
            if rope_classes is not None:
                length_class = np.int32(rope_classes.class_of(len(ids)))
            outputs = program(model.graphdef, model.state, row, positions, in_set, length_class)
            logprob, margin, size, set_logprob = map(np.asarray, outputs)
            span = slice(len(ids) - start)
            results[i] = PlainScore(logprob[span], margin[span], size[span], set_logprob)
            progress.advance("self-check", len(results), len(token_ids), "requests")
    return [results[i] for i in range(len(token_ids))], len({shape for _, shape in parts})


def compile_plain(model: Model, shape: PlainShape) -> jax.stages.Compiled:
    """The program of this shape for devices that only compile."""
    row = np.zeros(shape.length, np.int32)
    positions = np.ones(shape.scored, np.int32)
    in_set = np.zeros(model.config.vocab_size, bool)
    length_class = None if model.config.rope_classes is None else np.int32(0)
    program = jax.jit(_score_plain, static_argnums=0)
    return program.lower(
        model.graphdef, model.state, row, positions, in_set, length_class
    ).compile()


def _score_plain(
    network: Graph,
    state: Tree,
    token_ids_T: jax.Array,
    position_N: jax.Array,
    in_set_V: jax.Array,
    rope_class: jax.Array | None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """(log p, margin, size of the logits) of the tokens at these positions, and log p of a set in
    place of the first.  Padding is on the right, where causal attention never looks."""
    decoder = bind(network, state)
    length = token_ids_T.shape[0]
    position_1T = jnp.arange(length, dtype=jnp.int32)[None]
    visibility = PlainVisibility(jnp.full((1, length), length, jnp.int32), position_1T)
    more = () if rope_class is None else (jnp.full((1, length), rope_class),)
    hidden_ND = decoder(token_ids_T[None], position_1T, visibility, *more)[0][position_N - 1]
    logits_NV = decoder.head().logits(hidden_ND)
    logprob_NV = jax.nn.log_softmax(logits_NV, axis=-1)
    target_N1 = token_ids_T[position_N][:, None]
    logprob_N = jnp.take_along_axis(logprob_NV, target_N1, axis=1)[:, 0]
    others_NV = jnp.where(jnp.arange(logits_NV.shape[1])[None] == target_N1, -jnp.inf, logprob_NV)
    in_set_V = jnp.pad(in_set_V, (0, logits_NV.shape[1] - len(in_set_V)))
    set_logprob = jax.nn.logsumexp(jnp.where(in_set_V, logprob_NV[0], -jnp.inf))
    return logprob_N, logprob_N - others_NV.max(axis=-1), logit_size(logits_NV), set_logprob
