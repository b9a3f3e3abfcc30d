"""The slots of a generation batch: prompts that are read and completions that grow.

Arrives: prefilled keys and values.  Leaves: `Slot`, `PromptNodes`, `PrefilledPrompt`.  It
deliberately does not know programs.
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


class PromptNodes(NamedTuple):
    """Where a prompt lies in a prefilled batch."""

    request: int
    shard: int
    first_node: int  # of its row, in its shard
    nodes: np.ndarray  # int64, of all its tokens but the last, counted in the row


class PrefilledPrompt(NamedTuple):
    """A request of which the model has read all tokens but the last, and what is kept of it on the
    device."""

    request: int
    # [shards, L, P, K, H] of its prefilled batch; of a user's own model, states [shards, n, ...],
    # or None if it has none
    kept: KeyValues | Tree
    shard: int
    # int64, nodes of all its tokens but the last, in its shard; of a model with states, one
    # element: the index of its state
    path: np.ndarray


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

    def append(self, tokens: np.ndarray) -> None:
        """Take drawn tokens.  The last one may be NOT_A_NUMBER, which ends the completion."""
        self.tokens_S[self.num_tokens : self.num_tokens + len(tokens)] = tokens
        self.num_tokens += len(tokens)
        self.drawn += tokens.tolist()


def with_paths(kept: KeyValues | Tree, prompts: list[PromptNodes]) -> list[PrefilledPrompt]:
    """Prompts of one prefilled batch.

    A caller that yields them must hold no reference to `kept`: its memory is freed with the last
    prompt.
    """
    return [
        PrefilledPrompt(each.request, kept, each.shard, each.nodes + each.first_node)
        for each in prompts
    ]


def arrays_for_drawing(sampling: Sequence[Sampling], step: np.ndarray) -> RowDraws:
    """The arrays that draw one token in every slot; `step` counts the tokens that each slot has
    drawn."""
    temperature = np.asarray([s.temperature for s in sampling], np.float32)
    seed = np.asarray([s.seed for s in sampling], np.uint32)
    cut = None
    if any(s.top_k or s.top_p < 1 for s in sampling):
        top_k = np.asarray([s.top_k for s in sampling], np.int32)
        cut = VocabularyCut(top_k, np.asarray([s.top_p for s in sampling], np.float32))
    return RowDraws(temperature, seed, step, cut)


def batch_to_prefill(
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
