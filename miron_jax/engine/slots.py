"""The slots of a generation batch: prompts that are read and texts that grow.

Arrives: prefilled keys and values.  Leaves: `Slot`, `PrefilledPrompt`.  It deliberately does not know programs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from miron_jax.engine.text_requests import Sampling
from miron_jax.kernels.draw_token import Cut, Draw
from miron_jax.model.decoder import KeyValues
from miron_jax.planning.records import Plan


class PrefilledPrompt(NamedTuple):
    """A request whose keys and values are on the device."""

    request: int
    kept: KeyValues | None  # [shards, L, P, K, H] of its prefilled batch; None: a model that keeps nothing
    shard: int
    path: np.ndarray  # int64, places of all its tokens but the last, in its shard


@dataclass(slots=True)
class Slot:
    request: int
    tokens_S: np.ndarray  # int32, the prompt and what was drawn
    known: int  # tokens of these
    drawn: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, request: int, prompt: Sequence[int], size: int) -> "Slot":
        tokens_S = np.zeros(size, np.int32)
        tokens_S[: len(prompt)] = prompt
        return cls(request, tokens_S, len(prompt))

    def draw(self, tokens: np.ndarray) -> None:
        """A NaN may stand last, as NOT_A_NUMBER: the text ends there."""
        self.tokens_S[self.known : self.known + len(tokens)] = tokens
        self.known += len(tokens)
        self.drawn += tokens.tolist()


def with_paths(kept: KeyValues, where: list[tuple[int, int, int, np.ndarray]]) -> list[PrefilledPrompt]:
    return [PrefilledPrompt(request, kept, shard, path + first) for request, shard, first, path in where]


def draw_arrays(sampling: Sequence[Sampling], step: np.ndarray) -> Draw:
    cut = Cut(
        np.asarray([own.top_k for own in sampling], np.int32), np.asarray([own.top_p for own in sampling], np.float32)
    )
    return Draw(
        np.asarray([own.temperature for own in sampling], np.float32),
        np.asarray([own.seed for own in sampling], np.uint32),
        step,
        cut if any(own.top_k or own.top_p < 1 for own in sampling) else None,
    )


def prefill_batch(plan: Plan, rows: Sequence[int], num_rows: int, length: int, shards: int) -> np.ndarray:
    """int32 [shards, 3, B, T]: token ids, positions and subtree ends of these rows, dealt out to the shards."""
    batch = np.zeros((shards, 3, num_rows, length), np.int32)
    batch[:, 2] = np.arange(1, length + 1)  # a padding place sees only itself
    for i, row in enumerate(rows):
        places = slice(plan.place_offset[row], plan.place_offset[row + 1])
        own = batch[i % shards, :, i // shards, : places.stop - places.start]
        own[0], own[1], own[2] = plan.token_ids[places], plan.position[places], plan.subtree_end[places]
    return batch
