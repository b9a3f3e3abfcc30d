"""The programs of generation with their arrays: prompts are prefilled, admitted to slots, and all
slots take steps.

Arrives: a model, requests as slots.  Leaves: keys and values, drawn tokens.  It deliberately does
not know texts, or when a completion ends; the traced functions are in `decode.py`.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import jax
import numpy as np
from jax.sharding import PartitionSpec

from miron_jax.engine.decode import (
    NOTHING,
    RowSplit,
    admit,
    admit_states,
    empty_states,
    prefill,
    prefill_states,
    take_plain_steps,
    take_steps,
)
from miron_jax.engine.model import Model, attention_of
from miron_jax.engine.slots import (
    PrefilledPrompt,
    PromptNodes,
    Slot,
    arrays_for_drawing,
    batch_to_prefill,
    with_paths,
)
from miron_jax.engine.text_requests import GenerationSpeed, Sampling, TextRequest
from miron_jax.model.config import ModelConfig
from miron_jax.model.costs import cost_model
from miron_jax.model.decoder.cache import Cache
from miron_jax.model.decoder.decoder import KeyValues
from miron_jax.model.decoder.sharding import heads_axis
from miron_jax.model.network import Network
from miron_jax.model.stateful.walk import (
    WalkArrays,
    WalkShape,
    group_sizes,
    states_for,
    states_that_fit,
    write_walk,
)
from miron_jax.planning.plan import make_plan
from miron_jax.planning.records import Plan
from miron_jax.planning.walks import GroupSize, nodes_of, schedule, segments_of
from miron_jax.runtime.devices import DATA, Placement, Tree
from miron_jax.runtime.progress import Progress
from miron_jax.runtime.timeline import spent_on
from miron_jax.tokens.ragged import end_to_end
from miron_jax.tokens.records import Requests

CPU_SLOTS, ACCELERATOR_SLOTS = 128, 256
# most row slots of a prefilled batch; batches of a row length have equally many rows
CPU_PREFILL, ACCELERATOR_PREFILL = 2048, 16384
# row lengths of prefilled batches; more of them save less padding than their programs cost
PREFILL_LENGTHS = 2
SMALLEST_SLOT = 64  # tokens; slot sizes double from here
# tokens that attention reads at a time; every slot holds a whole number of blocks
CPU_BLOCK = SMALLEST_SLOT
WIDTH = 4  # tokens that a step takes in if completions may be long
LONG_TEXT = 64  # tokens; shorter completions seldom repeat themselves

BY_SHARD = PartitionSpec(DATA)
ProgramKey = tuple[str | int, ...]  # what it does, and its sizes


class SlotPrograms:
    """The compiled programs of one model; they stay from call to call."""

    def __init__(self, model: Model, slots: int | None, progress: Progress) -> None:
        self.placement = model.placement or Placement.of(model.state)
        self.split = RowSplit()
        if self.placement.how == "user":
            self.split = RowSplit(self.placement.mesh, self.placement.row_axes)
        self.on_cpu = self.placement.device.platform == "cpu"
        self.model = model
        self.progress = progress
        self.num_slots = slots or (CPU_SLOTS if self.on_cpu else ACCELERATOR_SLOTS)
        self.prefill_slots = CPU_PREFILL if self.on_cpu else ACCELERATOR_PREFILL
        self._prefill_rows: dict[int, int] = {}  # compiled row length -> rows of a prefilled batch
        self.speed = GenerationSpeed()
        self.programs: dict[ProgramKey, jax.stages.Compiled] = {}  # compiled so far
        self._calls: Counter[ProgramKey] = Counter()
        # slot size -> groups of a user's own model
        self._group_sizes: dict[int, tuple[GroupSize, ...]] = {}

    def _shared(self, count: int) -> int:
        """So many slots or rows, and some more if the devices share them."""
        return -(-count // self.split.size) * self.split.size

    # Prefill

    def _prefilled(
        self, requests: Sequence[TextRequest], size: int
    ) -> Iterator[list[PrefilledPrompt]]:
        """Batches of prompts with what slots of this size keep of them; prompts whose completions
        may be long come first."""
        shards = self.placement.shards
        empty = np.zeros(0, np.int64)

        # a long text that starts last keeps other slots idle
        def longest_first(members: Iterable[int]) -> list[int]:
            return sorted(members, key=lambda r: -requests[r].max_new_tokens)

        order = longest_first(range(len(requests)))
        if not self.keeps:
            yield [PrefilledPrompt(r, None, i % shards, empty) for i, r in enumerate(order)]
            return
        ids = [request.token_ids for request in requests]
        first = np.ones(len(ids), np.int32)
        no = np.zeros(len(ids), bool)
        cost = cost_model(self.model.config, max_lengths=PREFILL_LENGTHS)
        plan = make_plan(Requests(*end_to_end(ids), first, no, no), cost, tuple(self._prefill_rows))
        # All tokens but the first are targets, so the parents of a request's edges are the nodes of
        # all but the last.
        paths = np.split(plan.request_edge, plan.request_edge_offset[1:-1])
        # row of each request, requests of each row
        row_of, members = plan.request_row.tolist(), dict[int, list[int]]()
        for r in order:
            members.setdefault(row_of[r], []).append(r)
        if alone := members.pop(-1, []):  # prompts of one token have nothing to prefill
            nothing = self._nothing(size)
            yield [PrefilledPrompt(r, nothing, i % shards, empty) for i, r in enumerate(alone)]
        rows_of: dict[int, list[int]] = {}  # row length -> rows
        for row in members:
            rows_of.setdefault(int(plan.row_length[row]), []).append(row)
        for length, rows in rows_of.items():
            most = max(1, self.prefill_slots // length)
            calls = -(-len(rows) // (most * shards))
            even = -(-len(rows) // (calls * shards))
            num_rows = self._shared(even if calls > 1 else min(most, 1 << (even - 1).bit_length()))
            if self._network is not None:  # each prompt keeps a state of its own
                free = self.placement.free_bytes() / 2
                fit = states_that_fit(self._network, self.model.state, self._room(size), free)
                num_rows = min(num_rows, max(1, fit // max(len(members[row]) for row in rows)))
            num_rows = self._prefill_rows[length] = max(num_rows, self._prefill_rows.get(length, 0))
            for start in range(0, len(rows), num_rows * shards):
                batch = rows[start : start + num_rows * shards]
                by_request: dict[int, PromptNodes] = {}
                for i, row in enumerate(batch):
                    for r in members[row]:
                        nodes = plan.edge_parent[paths[r]].astype(np.int64)
                        by_request[r] = PromptNodes(r, i % shards, i // shards * length, nodes)
                prompts = [by_request[r] for r in longest_first(by_request)]
                if self._network is None:
                    yield with_paths(self._prefill(plan, batch, num_rows, length), prompts)
                else:
                    yield with_paths(
                        *self._prefill_states(plan, batch, num_rows, length, size, prompts)
                    )

    def _prefill_states(
        self,
        plan: Plan,
        rows: list[int],
        num_rows: int,
        length: int,
        size: int,
        prompts: list[PromptNodes],
    ) -> tuple[Tree, list[PromptNodes]]:
        """Run rows of the plan; states [shards, 1 + kept, ...] after each prompt, and the prompts
        with their states."""
        shards = self.placement.shards
        sizes = self._walk_sizes(size)
        # of each shard: a prompt's last node -> its state
        kept_nodes: list[dict[int, int]] = [{} for _ in range(shards)]
        for _, shard, first, path in prompts:
            kept_nodes[shard].setdefault(first + int(path[-1]), 0)
        segments = []
        for shard, kept in enumerate(kept_nodes):
            every = np.asarray(sorted(kept), np.int64)
            kept |= zip(every.tolist(), range(1, 1 + len(every)), strict=True)
            of_shard = []
            nodes: list[np.ndarray] = []
            for b, row in enumerate(rows[shard::shards]):
                of_shard.append((b * length, *nodes_of(plan, row)))
                nodes.append(every[every // length == b] - b * length)
            segments.append(segments_of(of_shard, nodes))
        depth = max(of_shard.depth for of_shard in segments)
        most = max(map(len, kept_nodes))
        num_kept = 1 << (most - 1).bit_length()
        num_states = states_for(depth, sizes)
        shape = WalkShape(
            sizes, num_rows * length, num_states, num_kept, self._room(size), has_hidden=False
        )
        arrays = [np.zeros((shards, *each), np.int32) for each in shape.array_shapes]
        for shard, of_shard in enumerate(segments):
            write_walk(
                schedule(of_shard, sizes, shape.num_states), [array[shard] for array in arrays]
            )
        tokens = batch_to_prefill(plan, rows, num_rows, length, shards)[:, 0].reshape(shards, -1)
        self.speed.prefilled_tokens += int(np.diff(plan.node_offset)[rows].sum())
        states = self._call(
            ("prefill", num_rows, length, size, shape.num_states, num_kept),
            partial(prefill_states, shape=shape),
            (self.model.state,),
            (tokens, WalkArrays(*arrays)),  # type: ignore[arg-type]
            out=BY_SHARD,
        )
        with_states: list[PromptNodes] = []
        for r, shard, first, path in prompts:
            state = kept_nodes[shard][first + int(path[-1])]
            with_states.append(PromptNodes(r, shard, state, np.zeros(1, np.int64)))
        return states, with_states

    def _walk_sizes(self, size: int) -> tuple[GroupSize, ...]:
        """The groups that read prompts for slots of this size; the first answer stays."""
        if size not in self._group_sizes:
            assert self._network is not None
            free = self.placement.free_bytes()
            self._group_sizes[size] = group_sizes(
                self._network, self.model.state, self._room(size), self.on_cpu, free
            )
        return self._group_sizes[size]

    def _room(self, size: int) -> int:
        """Tokens that the state of a slot of this size has room for."""
        return min(size, self.model.config.num_positions or size)

    def _prefill(self, plan: Plan, rows: list[int], num_rows: int, length: int) -> KeyValues:
        """Run rows of the plan, dealt out to the shards; keys and values of every node, [shards, L,
        P, K, H]."""
        shards = self.placement.shards
        batch = batch_to_prefill(plan, rows, num_rows, length, shards)
        self.speed.prefilled_tokens += int(np.diff(plan.node_offset)[rows].sum())
        # few sizes, so that they share one program to admit
        num_nodes = 1 << (num_rows * length - 1).bit_length()
        how = {"attention": attention_of(self.model).name, "split": self.split}
        program = partial(prefill, num_nodes=num_nodes, **how)
        spec = self._by_heads(3)
        return self._call(
            ("prefill", num_rows, length),
            program,
            (self.model.state,),
            (batch,),
            out=KeyValues(spec, spec),
        )

    def _nothing(self, size: int) -> Tree:
        """What is kept of no tokens."""
        if self._network is not None:
            if self.placement.is_described:
                return self._zero_states(1, size)
            shards = np.zeros(self.placement.shards, np.int32)
            program = partial(empty_states, count=1, size=self._room(size))
            return self._call(
                ("empty state", size), program, (self.model.state,), (shards,), out=BY_SHARD
            )
        config = self._config
        shape = (
            self.placement.shards,
            config.num_layers,
            1,
            config.num_kv_heads,
            config.attended_dim,
        )
        empty = self.placement.zeros(shape, self.model.matrix_dtype, self._by_heads(3))
        return KeyValues(empty, empty)

    def _by_heads(self, axis: int) -> Tree:
        """The PartitionSpec of an array [shards, ...] with key-value heads at this axis."""
        return PartitionSpec(DATA, *(None,) * (axis - 1), heads_axis(self._config, self.placement))

    # Slots

    @property
    def _network(self) -> Network | None:
        """None: the engine's decoder."""
        return self.model.config if isinstance(self.model.config, Network) else None

    @property
    def keeps(self) -> bool:
        """Whether slots keep what the model has read; otherwise each step reads whole texts."""
        return self._network is None or self._network.step is not None

    @property
    def _config(self) -> ModelConfig:
        assert isinstance(self.model.config, ModelConfig)
        return self.model.config

    def _slot_bytes(self, size: int) -> int:
        """Bytes that a slot of this size keeps; of its logits if the model keeps nothing."""
        if self._network is None:
            heads = (
                2 * self._config.num_layers * self._config.num_kv_heads * self._config.attended_dim
            )
            return heads * self.model.matrix_dtype.itemsize * size
        if not self.keeps:
            return 8 * self._network.vocab_size * size
        program = partial(empty_states, self.model.graphdef, count=1, size=self._room(size))
        states = jax.eval_shape(program, self.model.state)
        kept = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(states))
        return kept + 8 * self._network.vocab_size

    def _slots_that_fit(self, size: int) -> int:
        """Slots of this size, per shard, that half of the free memory holds; prefilled batches take
        some of the rest."""
        return max(1, int(self.placement.free_bytes() / 2 / self._slot_bytes(size)))

    def _empty_cache(self, num_slots: int, size: int) -> Tree:
        """Nothing in every slot: a Cache, or states; None: the model keeps nothing."""
        if not self.keeps:
            return None
        if self._network is not None:
            return self._zero_states(num_slots, size)
        # On an accelerator, many small blocks would be many launches.  XLA's CPU compiler (jaxlib
        # 0.10.2) copies a cache of one block whole at each call.
        block = min(CPU_BLOCK, size // 2) if self.on_cpu else size
        shapes = jax.eval_shape(
            lambda: Cache.zeros(
                self._config, num_slots, size // block, block, self.model.matrix_dtype
            )
        )
        shards = self.placement.shards
        return Cache(
            *(self.placement.zeros((shards, *x.shape), x.dtype, self._by_heads(4)) for x in shapes)
        )

    def _zero_states(self, count: int, size: int) -> Tree:
        """[shards, count, ...], for states that are overwritten."""
        program = partial(empty_states, self.model.graphdef, count=count, size=self._room(size))
        shapes = jax.eval_shape(program, self.model.state)
        shards = self.placement.shards
        return jax.tree.map(
            lambda x: self.placement.zeros((shards, *x.shape), x.dtype, BY_SHARD), shapes
        )

    def _admit(
        self, cache: Tree, admitted: list[tuple[int, PrefilledPrompt]], num: int, size: int
    ) -> Tree:
        """Copy what is kept of each prompt into its slot, one of `num` of this size in a shard;
        prompts of one prefilled batch at a time."""
        shards = self.placement.shards
        batches: dict[int, list[tuple[int, PrefilledPrompt]]] = {}
        for b, prompt in admitted:
            batches.setdefault(id(prompt.kept), []).append((b, prompt))
        for group in batches.values():
            kept = group[0][1].kept
            slot = np.zeros((shards, num), np.int32)
            node = np.zeros((shards, num, size), np.int32)
            count = np.zeros(shards, np.int32)
            for b, prompt in group:
                s = prompt.shard
                i = count[prompt.shard]
                slot[s, i] = b - s * num
                # Attention multiplies the rest of the slot by zero: values of the same prompt are
                # as finite as the others.
                node[s, i] = max(prompt.path[-1:], default=0)
                node[s, i, : len(prompt.path)] = prompt.path
                count[s] += 1
            if isinstance(kept, KeyValues):
                key = ("admit", num, size, kept.key_LBTKH.shape[2])
                spec = self._by_heads(4)
                cache = self._call(
                    key,
                    admit,
                    (),
                    (cache, kept, slot, node, count),
                    donate=(0,),
                    out=Cache(spec, spec),
                )
            else:
                key = ("admit", num, size, jax.tree.leaves(kept)[0].shape[1])
                arrays = (cache, kept, slot, node[:, :, 0], count)
                cache = self._call(key, admit_states, (), arrays, donate=(0,), out=BY_SHARD)
        return cache

    def _take_steps(
        self,
        cache: Tree,
        slots: Sequence[Slot | None],
        requests: Sequence[TextRequest],
        halts_V: jax.Array,
        size: int,
    ) -> tuple[Tree, jax.Array, jax.Array]:
        """Draw tokens in every busy slot: (cache, drawn int32 [shards, N, B, T], steps int32
        [shards]) on the devices."""
        shards = self.placement.shards
        num = len(slots) // self.placement.shards
        tokens_BS = np.zeros((len(slots), size), np.int32)
        position, left, step = (np.zeros(len(slots), np.int32) for _ in range(3))
        sampling = [Sampling()] * len(slots)
        for b, slot in enumerate(slots):
            if slot is not None:
                request = requests[slot.request]
                tokens_BS[b] = slot.tokens_S
                position[b], step[b] = slot.num_tokens - 1, len(slot.drawn)
                left[b], sampling[b] = request.max_new_tokens - len(slot.drawn), request.sampling
        draw = None
        how = "greedy"
        if any(s.temperature != 0 for s in sampling):
            draw = arrays_for_drawing(sampling, step)
            how = "sampled" if draw.cut is None else "cut"
        by_slot = jax.tree.map(
            lambda x: x.reshape(shards, num, *x.shape[1:]), (tokens_BS, position, left, draw)
        )
        shared = (self.model.state, halts_V)
        small = self.placement.results
        if self._network is not None:
            out = (None if cache is None else BY_SHARD, small, small)
            donate = () if cache is None else (2,)
            key = ("plain step", num, size, how)
            program = partial(take_plain_steps, split=self.split)
            return self._call(key, program, shared, (cache, *by_slot), donate=donate, out=out)
        long = any(request.max_new_tokens >= LONG_TEXT for request in requests)
        width = WIDTH if draw is None and long else 1
        program = partial(take_steps, width=width, split=self.split)
        key = ("step", num, size, width, how)
        spec = self._by_heads(4)
        out = (Cache(spec, spec), small, small)
        return self._call(key, program, shared, (cache, *by_slot), donate=(2,), out=out)

    def _fetched(self, drawn: jax.Array, steps: jax.Array) -> np.ndarray:
        """Drawn tokens of all slots, int32 [N, slots, T], NOTHING where none is drawn."""
        drawn_SNBT = np.asarray(drawn)
        steps_S = np.asarray(steps)
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
    ) -> Tree:
        """Run the program of this key, and compile it first if it is new: see `Placement.compile`.

        On devices that only compile the results are shapes.
        """
        put = self.placement.put
        self._calls[key] += 1
        # on one device a program takes host arrays itself, in a fifth of the time
        if key not in self.programs or self.placement.how != "one":
            by_shard = jax.tree.map(lambda x: put(x) if isinstance(x, np.ndarray) else x, by_shard)
        arguments = *shared, *by_shard
        start = time.perf_counter()
        if key not in self.programs:
            bound = partial(function, self.model.graphdef) if shared else function
            with spent_on("compile"):
                self.programs[key] = self.placement.compile(bound, shared, by_shard, donate, out)
            self.speed.programs += 1
            seconds = time.perf_counter() - start
            self.speed.compile_seconds += seconds
            self.progress.detail(f"compiled {' '.join(map(str, key))}, {seconds:.1f} s")
            start = time.perf_counter()
        if self.placement.is_described:
            return self.programs[key].out_info
        with spent_on("device"):
            result = jax.block_until_ready(self.programs[key](*arguments))
        self.speed.device_seconds += time.perf_counter() - start
        return result
