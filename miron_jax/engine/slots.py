"""The slots of a generation batch: prompts that are read and completions that grow.

Arrives: prefilled keys and values.  Leaves: `Slot`, `PrefilledPrompt`.  It deliberately does not
know programs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from miron_jax.engine.text_requests import Sampling
from miron_jax.kernels.draw_token import RowDraws, VocabularyCut
from miron_jax.model.decoder.decoder import KeyValues
from miron_jax.planning.records import Plan
from miron_jax.runtime.devices import Tree

# (request, shard, first node of its row, int64 nodes of the row)
Path = tuple[int, int, int, np.ndarray]


class PrefilledPrompt(NamedTuple):
    """A request that is read but for its last token, and what is kept of it on the device."""

    request: int
    # [shards, L, P, K, H] of its prefilled batch; of a user's own model, states [shards, n, ...],
    # or None if it has none
    kept: KeyValues | Tree
    shard: int
    path: np.ndarray  # int64, nodes of all its tokens but the last, in its shard; or its state


@dataclass(slots=True)
class Slot:
    """A completion that grows."""

    request: int
    tokens_S: np.ndarray  # int32, the prompt and the drawn tokens
    num_tokens: int  # of tokens_S in use
    drawn: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, request: int, prompt: Sequence[int], size: int) -> "Slot":
        tokens_S = np.zeros(size, np.int32)
        tokens_S[: len(prompt)] = prompt
        return cls(request, tokens_S, len(prompt))

    def draw(self, tokens: np.ndarray) -> None:
        """Append drawn tokens.  The last one may be NOT_A_NUMBER, which ends the completion."""
        self.tokens_S[self.num_tokens : self.num_tokens + len(tokens)] = tokens
        self.num_tokens += len(tokens)
        self.drawn += tokens.tolist()


def with_paths(kept: KeyValues | Tree, paths: list[Path]) -> list[PrefilledPrompt]:
    """Prompts of one prefilled batch, from (request, shard, first node of its row, path within the
    row).

    A caller that yields them holds no reference to `kept`, so its memory is freed with the last
    prompt.
    """
    return [
        PrefilledPrompt(request, kept, shard, path + first) for request, shard, first, path in paths
    ]


def draw_arrays(sampling: Sequence[Sampling], step: np.ndarray) -> RowDraws:
    """The arrays that draw one token in every slot; `step` counts the tokens that each slot has
    drawn."""
    temperature = np.asarray([s.temperature for s in sampling], np.float32)
    seed = np.asarray([s.seed for s in sampling], np.uint32)
    cut = None
    if any(s.top_k or s.top_p < 1 for s in sampling):
        top_k = np.asarray([s.top_k for s in sampling], np.int32)
        cut = VocabularyCut(top_k, np.asarray([s.top_p for s in sampling], np.float32))
    return RowDraws(temperature, seed, step, cut)


def prefill_batch(
    plan: Plan, rows: Sequence[int], num_rows: int, length: int, shards: int
) -> np.ndarray:
    """int32 [shards, 3, B, T]: token ids, positions and subtree ends of these rows, dealt out to
    the shards."""
    batch = np.zeros((shards, 3, num_rows, length), np.int32)
    batch[:, 2] = np.arange(1, length + 1)  # a padding slot sees only itself
    for i, row in enumerate(rows):
        nodes = slice(plan.node_offset[row], plan.node_offset[row + 1])
        columns = plan.token_ids[nodes], plan.position[nodes], plan.subtree_end[nodes]
        batch[i % shards, :, i // shards, : nodes.stop - nodes.start] = columns
    return batch
