"""The programs of generation with their arrays: prompts are prefilled, admitted to slots, and all slots take steps.

Arrives: a model, requests as slots.  Leaves: keys and values, drawn tokens.  It deliberately does not know texts, or when a
completion ends; the traced functions are in `decode.py`.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from miron_jax.engine.decode import NOTHING, admit, prefill, take_plain_steps, take_steps
from miron_jax.engine.model import Model, attention_of
from miron_jax.engine.slots import PrefilledPrompt, Slot, draw_arrays, prefill_batch, with_paths
from miron_jax.engine.text_requests import GenerationSpeed, Sampling, TextRequest
from miron_jax.model.cache import Cache
from miron_jax.model.config import ModelConfig
from miron_jax.model.costs import cost_model
from miron_jax.model.decoder import KeyValues, matrix_dtype
from miron_jax.model.own import OwnModel
from miron_jax.model.sharding import heads_axis
from miron_jax.planning.plan import make_plan
from miron_jax.planning.records import Plan
from miron_jax.ragged import end_to_end
from miron_jax.runtime.devices import DATA, Placement, Tree
from miron_jax.runtime.progress import Progress
from miron_jax.tokens.records import Requests

CPU_SLOTS, ACCELERATOR_SLOTS = 128, 256
CPU_PREFILL, ACCELERATOR_PREFILL = 2048, 16384  # row slots of a prefilled batch
PREFILL_LENGTHS = 2  # row lengths of prefilled batches; more of them save less padding than their programs cost
SMALLEST_SLOT = 64  # tokens; slot sizes double from here
CPU_BLOCK = SMALLEST_SLOT  # tokens that attention reads at a time; every slot holds a whole number of blocks
WIDTH = 4  # tokens that a step takes in if completions may be long
LONG_TEXT = 64  # tokens; shorter completions seldom repeat themselves

ProgramKey = tuple[str | int, ...]  # what it does, and its sizes


class SlotPrograms:
    """The compiled programs of one model; they stay from call to call."""

    def __init__(self, model: Model, slots: int | None, progress: Progress) -> None:
        self.placement = model.placement or Placement.of(model.state)
        self.on_cpu = self.placement.device.platform == "cpu"
        self.model, self.progress = model, progress
        self.num_slots = slots or (CPU_SLOTS if self.on_cpu else ACCELERATOR_SLOTS)
        self.prefill_slots = CPU_PREFILL if self.on_cpu else ACCELERATOR_PREFILL
        self._prefill_rows: dict[int, int] = {}  # compiled row length -> rows of a prefilled batch
        self.speed = GenerationSpeed()
        self.programs: dict[ProgramKey, jax.stages.Compiled] = {}  # compiled so far
        self._calls: Counter[ProgramKey] = Counter()

    # Prefill

    def _prefilled(self, requests: Sequence[TextRequest]) -> Iterator[list[PrefilledPrompt]]:
        """Batches of prompts with their keys and values; prompts whose completions may be long come first."""
        shards, empty = self.placement.shards, np.zeros(0, np.int64)

        def longest_first(members: Iterable[int]) -> list[int]:  # a long text that starts last keeps other slots idle
            return sorted(members, key=lambda r: -requests[r].max_new_tokens)

        order = longest_first(range(len(requests)))
        if isinstance(self.model.config, OwnModel):
            yield [PrefilledPrompt(r, None, i % shards, empty) for i, r in enumerate(order)]
            return
        ids = [request.token_ids for request in requests]
        first, no = np.ones(len(ids), np.int32), np.zeros(len(ids), bool)
        cost = cost_model(self.model.config, max_lengths=PREFILL_LENGTHS)
        plan = make_plan(Requests(*end_to_end(ids), first, no, no), cost, tuple(self._prefill_rows))
        # All tokens but the first are targets, so the parents of a request's edges are the nodes of all but the last.
        paths = np.split(plan.request_edge, plan.request_edge_offset[1:-1])
        row_of, members = plan.request_row.tolist(), dict[int, list[int]]()  # row of each request, requests of each row
        for r in order:
            members.setdefault(row_of[r], []).append(r)
        if alone := members.pop(-1, []):  # prompts of one token have nothing to prefill
            nothing = self._nothing()
            yield [PrefilledPrompt(r, nothing, i % shards, empty) for i, r in enumerate(alone)]
        rows_of: dict[int, list[int]] = {}  # row length -> rows
        for row in members:
            rows_of.setdefault(int(plan.row_length[row]), []).append(row)
        for length, rows in rows_of.items():
            few = 1 << (-(-len(rows) // shards) - 1).bit_length()
            num_rows = min(max(1, self.prefill_slots // length), few)
            num_rows = self._prefill_rows[length] = max(num_rows, self._prefill_rows.get(length, 0))
            for start in range(0, len(rows), num_rows * shards):
                batch = rows[start : start + num_rows * shards]
                nodes = {  # of each request: its shard, the first slot of its row, its nodes within the row
                    r: (i % shards, i // shards * length, plan.edge_parent[paths[r]].astype(np.int64))
                    for i, row in enumerate(batch)
                    for r in members[row]
                }
                kept_paths = [(r, *nodes[r]) for r in longest_first(nodes)]
                yield with_paths(self._prefill(plan, batch, num_rows, length), kept_paths)

    def _prefill(self, plan: Plan, rows: list[int], num_rows: int, length: int) -> KeyValues:
        """Run rows of the plan, dealt out to the shards; keys and values of every node, [shards, L, P, K, H]."""
        shards = self.placement.shards
        batch = prefill_batch(plan, rows, num_rows, length, shards)
        self.speed.prefilled_tokens += int(np.diff(plan.node_offset)[rows].sum())
        num_nodes = 1 << (num_rows * length - 1).bit_length()  # few sizes, so that they share one program to admit
        program = partial(prefill, num_nodes=num_nodes, attention=attention_of(self.model).name)
        spec = self._by_heads(3)
        return self._call(
            ("prefill", num_rows, length), program, (self.model.state,), (batch,), out=KeyValues(spec, spec)
        )

    def _nothing(self) -> KeyValues:
        config = self._config
        shape = (self.placement.shards, config.num_layers, 1, config.num_kv_heads, config.head_dim)
        empty = self.placement.zeros(shape, matrix_dtype(self.model.state), self._by_heads(3))
        return KeyValues(empty, empty)

    def _by_heads(self, axis: int) -> Any:
        """The PartitionSpec of an array [shards, ...] with key-value heads at this axis."""
        return PartitionSpec(DATA, *(None,) * (axis - 1), heads_axis(self._config, self.placement))

    # Slots

    @property
    def _config(self) -> ModelConfig:
        assert isinstance(self.model.config, ModelConfig), "a user's own model keeps no cache"
        return self.model.config

    @property
    def _token_bytes(self) -> int:
        """Bytes of one token's keys and values; of its logits if the model keeps no cache."""
        config = self.model.config
        if isinstance(config, OwnModel):
            return 8 * config.vocab_size
        return 2 * config.num_layers * config.num_kv_heads * config.head_dim * matrix_dtype(self.model.state).itemsize

    def _slots_that_fit(self, size: int) -> int:
        """Slots of this size, per shard, that half of the free memory holds; prefilled batches take some of the rest."""
        return max(1, int(self.placement.free_bytes() / 2 / (self._token_bytes * size)))

    def _empty_cache(self, num_slots: int, size: int) -> Cache:
        block = CPU_BLOCK if self.on_cpu else size  # on an accelerator, many small blocks would be many launches
        shapes = jax.eval_shape(
            lambda: Cache.zeros(self._config, num_slots, size // block, block, matrix_dtype(self.model.state))
        )
        shards = self.placement.shards
        return Cache(*(self.placement.zeros((shards, *x.shape), x.dtype, self._by_heads(4)) for x in shapes))

    def _admit(self, cache: Cache, admitted: list[tuple[int, PrefilledPrompt]]) -> Cache:
        """Copy each prompt's path into its slot, prompts of one prefilled batch at a time."""
        _, _, blocks, num, _, _, block = cache.key_LJBKHC.shape  # with its leading axis of shards
        size, shards = blocks * block, self.placement.shards
        batches: dict[int, list[tuple[int, PrefilledPrompt]]] = {}
        for b, prompt in admitted:
            assert prompt.kept is not None
            batches.setdefault(id(prompt.kept.key_LBTKH), []).append((b, prompt))
        for group in batches.values():
            kept = group[0][1].kept
            assert kept is not None
            slot, node = np.zeros((shards, num), np.int32), np.zeros((shards, num, size), np.int32)
            count = np.zeros(shards, np.int32)
            for b, prompt in group:
                s, i = prompt.shard, count[prompt.shard]
                slot[s, i] = b - s * num
                # Attention multiplies the rest of the slot by zero: values of the same prompt are as finite as the others.
                node[s, i] = prompt.path[-1] if len(prompt.path) else 0
                node[s, i, : len(prompt.path)] = prompt.path
                count[s] += 1
            key, spec = ("admit", num, size, kept.key_LBTKH.shape[2]), self._by_heads(4)
            cache = self._call(key, admit, (), (cache, kept, slot, node, count), donate=(0,), out=Cache(spec, spec))
        return cache

    def _take_steps(
        self,
        cache: Cache | None,
        slots: Sequence[Slot | None],
        requests: Sequence[TextRequest],
        halts_V: jax.Array,
        size: int,
    ) -> tuple[Cache | None, jax.Array, jax.Array]:
        """Draw tokens in every busy slot: (cache, drawn int32 [shards, N, B, T], steps int32 [shards]) on the devices."""
        shards, num = self.placement.shards, len(slots) // self.placement.shards
        tokens_BS = np.zeros((len(slots), size), np.int32)
        position, left, step = (np.zeros(len(slots), np.int32) for _ in range(3))
        sampling = [Sampling()] * len(slots)
        for b, slot in enumerate(slots):
            if slot is not None:
                request = requests[slot.request]
                tokens_BS[b] = slot.tokens_S
                position[b], step[b] = slot.num_tokens - 1, len(slot.drawn)
                left[b], sampling[b] = request.max_new_tokens - len(slot.drawn), request.sampling
        draw = None if all(s.temperature == 0 for s in sampling) else draw_arrays(sampling, step)
        how = "greedy" if draw is None else "sampled" if draw.cut is None else "cut"
        by_slot = jax.tree.map(lambda x: x.reshape(shards, num, *x.shape[1:]), (tokens_BS, position, left, draw))
        shared = (self.model.state, halts_V)
        if cache is None:
            key = ("plain step", num, size, how)
            return None, *self._call(key, take_plain_steps, shared, by_slot)
        long = any(request.max_new_tokens >= LONG_TEXT for request in requests)
        width = WIDTH if draw is None and long else 1
        program, key = partial(take_steps, width=width), ("step", num, size, width, how)
        spec, small = self._by_heads(4), self.placement.results
        out = (Cache(spec, spec), small, small)
        return self._call(key, program, shared, (cache, *by_slot), donate=(2,), out=out)

    def _fetched(self, drawn: jax.Array, steps: jax.Array) -> np.ndarray:
        """Drawn tokens of all slots, int32 [N, slots, T], NOTHING where none is drawn."""
        drawn_SNBT, steps_S = np.asarray(drawn), np.asarray(steps)
        # Shards take unlike numbers of steps; rows beyond a shard's last step hold NOTHING.
        drawn_NBT = np.concatenate(list(drawn_SNBT), axis=1)[: int(steps_S.max())]
        self.speed.slot_steps += drawn_SNBT.shape[2] * int(steps_S.sum())
        self.speed.busy_steps += int((drawn_NBT[:, :, 0] != NOTHING).sum())
        self.speed.drawn_tokens += int((drawn_NBT != NOTHING).sum())
        return drawn_NBT

    def _call(
        self,
        key: ProgramKey,
        function: Callable[..., Tree],
        shared: tuple[Tree, ...],
        by_shard: tuple[Tree, ...],
        donate: tuple[int, ...] = (),
        out: Tree = None,
    ) -> Any:
        """Run the program of this key, and compile it first if it is new: see `Placement.compile`.

        On devices that only compile the results are shapes.
        """
        put = self.placement.put
        self._calls[key] += 1
        arguments = (*shared, *jax.tree.map(lambda x: put(x) if isinstance(x, np.ndarray) else x, by_shard))
        start = time.perf_counter()
        if key not in self.programs:
            bound = partial(function, self.model.graphdef) if shared else function
            split = arguments[len(shared) :]
            self.programs[key] = self.placement.compile(bound, shared, split, donate, out)
            self.speed.programs += 1
            seconds = time.perf_counter() - start
            self.speed.compile_seconds += seconds
            self.progress.detail(f"compiled {' '.join(map(str, key))}, {seconds:.1f} s")
            start = time.perf_counter()
        if self.placement.is_described:
            return self.programs[key].out_info
        result = jax.block_until_ready(self.programs[key](*arguments))
        self.speed.device_seconds += time.perf_counter() - start
        return result
