"""Prompts + weights -> greedy or sampled completions.

Arrives: a model, tokenized prompts with their limits, a tokenizer.  Leaves: one `Generated` a request, in their order.
It deliberately does not know tasks or metrics; what runs on the device is in `decode.py`.

A shard of a batch (`runtime/devices.py`) is a number of *slots*, each with room for a prompt and its completion.
Prompts are prefilled as a forest (shared prefixes are computed once, `planning/`), and the keys and values along each
prompt's path are copied into a slot of the same shard.  All slots then take steps on the device, until some slot of a
shard ends or draws a token that may complete a stop string.  Then the host looks, evicts completions that have ended and
admits waiting prompts.

The last token of a prompt is not prefilled: it is the first that a slot takes in.  A draw depends on the request's seed,
the step and the logits alone: batch and order change it only where float rounding decides between two tokens.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from miron_jax.engine.decode import NOT_A_NUMBER, NOTHING, admit, prefill, take_plain_steps, take_steps
from miron_jax.engine.model import Model, attention_of
from miron_jax.engine.slots import PrefilledPrompt, Slot, draw_arrays, prefill_batch, with_paths
from miron_jax.engine.text_requests import Generated, GenerationSpeed, Sampling, TextRequest, why_refused
from miron_jax.errors import InputError
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
from miron_jax.tokens.detokenize import text_after, texts_of_tokens
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import Tokenizer

SMALLEST_SLOT = 64  # tokens; slot sizes double from here
CPU_SLOTS, ACCELERATOR_SLOTS = 128, 256
CPU_TURNS, ACCELERATOR_TURNS = (
    2,
    1,
)  # longest completions per slot; on a CPU an idle slot costs as much as a busy one
CPU_PREFILL, ACCELERATOR_PREFILL = 2048, 16384  # row slots of a prefilled batch
PREFILL_LENGTHS = 2  # row lengths of prefilled batches; more of them save less padding than their programs cost
CPU_PROGRAM, ACCELERATOR_PROGRAM = 2 * 10**10, 10**13  # bytes that could be read while one more program is compiled
CPU_BLOCK = SMALLEST_SLOT  # tokens that attention reads at a time; every slot holds a whole number of blocks
WIDTH = 4  # tokens that a step takes in if completions may be long
LONG_TEXT = 64  # tokens; shorter completions seldom repeat themselves

ProgramKey = tuple[str | int, ...]  # what it does, and its sizes


class Generator:
    """The compiled programs of one model; they stay from call to call."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        eos_ids: Sequence[int] = (),
        slots: int | None = None,
        say: Callable[[str], None] = lambda line: None,
    ):
        self.placement = model.placement or Placement.of(model.state)
        self.on_cpu = self.placement.device.platform == "cpu"
        self.model, self.tokenizer, self.say = model, tokenizer, say
        self.eos_ids = frozenset(eos_ids)
        self.num_slots = slots or (CPU_SLOTS if self.on_cpu else ACCELERATOR_SLOTS)
        self.prefill_slots = CPU_PREFILL if self.on_cpu else ACCELERATOR_PREFILL
        self._prefill_rows: dict[int, int] = {}  # compiled row length -> rows of a prefilled batch
        self.speed = GenerationSpeed()
        self.programs: dict[ProgramKey, jax.stages.Compiled] = {}  # compiled so far
        self._calls: Counter[ProgramKey] = Counter()
        self._texts: list[str] | None = None  # each token's text; made for the first stop string

    def run(
        self,
        requests: Sequence[TextRequest],
        finished: Callable[[TextRequest, Generated], None] = lambda request, text: None,
    ) -> list[Generated]:
        """Generate a completion for each request, equal requests once; call `finished` as each completion ends.

        Raises InputError for a request that cannot run, before any of them runs.
        """
        self._check(requests)
        self.speed.prompt_tokens += sum(len(request.token_ids) for request in requests)
        completions: dict[TextRequest, Generated] = {}
        for size, group in self._groups(requests):
            completions |= self._run_slots(group, size, finished)
        return [completions[request] for request in requests]

    def _check(self, requests: Sequence[TextRequest]) -> None:
        for i, request in enumerate(requests):
            if reason := why_refused(request, self.model.config):
                raise InputError(f"request {i} to generate from {reason}")

    def compile(self, requests: Sequence[TextRequest]) -> Counter[ProgramKey]:
        """Compile what `run` would call for these requests, on devices that only compile, and count the calls.

        Steps are counted at one token each, as if every completion went to its limit and every slot were busy.
        """
        assert self.placement.is_described
        self._check(requests)
        self._calls.clear()
        for size, group in self._groups(requests):
            num, shards = self._slots_for(group, size), range(self.placement.shards)
            halts_V = self.placement.share(self._halting_tokens(group))
            cache = None if isinstance(self.model.config, OwnModel) else self._empty_cache(num, size)
            for prompts in self._prefilled(group):
                of_shard = [[prompt for prompt in prompts if prompt.shard == s] for s in shards]
                for start in range(0, max(map(len, of_shard)), num):
                    batch = [pair for s in shards for pair in enumerate(of_shard[s][start : start + num], s * num)]
                    cache = None if cache is None else self._admit(cache, batch)
            num_slots = num * len(shards)
            # Slots that draw in several ways take the dearest one's steps.
            ways = {request.sampling.how: i for i, request in enumerate(group)}
            steps = -(-sum(request.max_new_tokens for request in group) // num_slots)
            for way in sorted(ways, key=("sampled", "cut", "greedy").index):
                slots = [Slot.of(ways[way], group[ways[way]].token_ids, size), *[None] * (num_slots - 1)]
                before = self._calls.copy()
                self._take_steps(cache, slots, group, halts_V, size)
                [key] = self._calls - before
            self._calls[key] += steps - 1
        return self._calls.copy()

    def _groups(self, requests: Sequence[TextRequest]) -> Iterator[tuple[int, list[TextRequest]]]:
        """Slot sizes, and the distinct requests that grow side by side in them.

        Sampled texts seldom repeat themselves, and take one token per step.  Larger slots come first: shorter prefill rows
        fit into longer ones.
        """
        unique = list(dict.fromkeys(requests))
        for greedy in (True, False):
            by_size = self._by_slot_size([r for r in unique if (r.sampling.temperature == 0) == greedy])
            for size in sorted(by_size, reverse=True):
                yield size, by_size[size]

    def _by_slot_size(self, requests: Sequence[TextRequest]) -> dict[int, list[TextRequest]]:
        """Slot size -> requests.  Sizes double; a size that does not fill its slots joins the next one if that pays."""
        sizes: dict[int, list[TextRequest]] = {}
        for request in requests:
            size = SMALLEST_SLOT
            while size < len(request.token_ids) + request.max_new_tokens:
                size *= 2
            sizes.setdefault(size, []).append(request)
        for size, larger in pairwise(sorted(sizes)):
            if len(sizes[size]) < self.num_slots and self._worth_joining(sizes[size], larger - size):
                sizes[larger] = sizes.pop(size) + sizes[larger]
        return sizes

    def _worth_joining(self, requests: Sequence[TextRequest], more_tokens: int) -> bool:
        """Compare bytes read: separate steps read the weights again and need a program; larger slots read `more_tokens`
        cached tokens for every drawn one."""
        most = [request.max_new_tokens for request in requests]
        weights = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.model.state))
        program = CPU_PROGRAM if self.on_cpu else ACCELERATOR_PROGRAM
        return max(most) * weights + program > sum(most) * more_tokens * self._token_bytes

    def _slots_for(self, requests: Sequence[TextRequest], size: int) -> int:
        """Slots of a shard that the completions keep busy for CPU_TURNS or ACCELERATOR_TURNS of the longest one."""
        most = [request.max_new_tokens for request in requests]
        share = -(-sum(most) // self.placement.shards)
        filled = -(-share // (max(most) * (CPU_TURNS if self.on_cpu else ACCELERATOR_TURNS)))
        few = 1 << (filled - 1).bit_length()
        return min(few if few < 8 else -(-filled // 8) * 8, self.num_slots, self._slots_that_fit(size))

    def _run_slots(
        self, requests: Sequence[TextRequest], size: int, finished: Callable[[TextRequest, Generated], None]
    ) -> dict[TextRequest, Generated]:
        """Distinct requests of one slot size.  Slots are halved when their programs do not fit the memory."""
        completions: dict[TextRequest, Generated] = {}
        num_slots = self._slots_for(requests, size)
        while len(completions) < len(requests):
            missing = [request for request in requests if request not in completions]
            try:
                self._complete(missing, size, num_slots, completions, finished)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error) or num_slots == 1 or self.placement.is_global:
                    raise
                num_slots //= 2
                self.say(f"out of memory: {num_slots} slots of {size} tokens from now on")
        return completions

    def _complete(
        self,
        requests: Sequence[TextRequest],
        size: int,
        num_slots: int,
        completions: dict[TextRequest, Generated],
        finished: Callable[[TextRequest, Generated], None],
    ) -> None:
        """Prefill, admit, step and evict until every request has its completion."""
        halts_V = self._halting_tokens(requests)
        on_device, shards = self.placement.share(halts_V), self.placement.shards
        prompts, waiting = self._prefilled(requests), [deque[PrefilledPrompt]() for _ in range(shards)]
        slots: list[Slot | None] = [None] * (shards * num_slots)  # shard after shard
        cache = None if isinstance(self.model.config, OwnModel) else self._empty_cache(num_slots, size)
        count = len(completions) + len(requests)
        while len(completions) < count:
            cache = self._fill(cache, slots, requests, prompts, waiting, size)
            cache, drawn_NBT = self._step(cache, slots, requests, on_device, size)
            for b, slot in enumerate(slots):
                if slot is None:
                    continue
                request, drawn = requests[slot.request], drawn_NBT[:, b].ravel()
                slot.draw(drawn[drawn != NOTHING])
                if (text := self._ended(request, slot.drawn, halts_V)) is not None:
                    completions[request], slots[b] = text, None
                    finished(request, text)

    def _fill(
        self,
        cache: Cache | None,
        slots: list[Slot | None],
        requests: Sequence[TextRequest],
        prompts: Iterator[list[PrefilledPrompt]],
        waiting: list[deque[PrefilledPrompt]],
        size: int,
    ) -> Cache | None:
        """Admit waiting prompts to free slots, one prefilled batch after another; its last prompt frees its memory.

        No batch is prefilled for a shard without prompts while another shard has enough waiting to fill its slots.
        """
        num = len(slots) // len(waiting)
        while free := [b for b, slot in enumerate(slots) if slot is None]:
            if not all(waiting[b // num] for b in free) and max(map(len, waiting)) < num:
                for prompt in next(prompts, ()):
                    waiting[prompt.shard].append(prompt)
            admitted = [(b, waiting[b // num].popleft()) for b in free if waiting[b // num]]
            if not admitted:
                break
            cache = None if cache is None else self._admit(cache, admitted)
            for b, prompt in admitted:
                slots[b] = Slot.of(prompt.request, requests[prompt.request].token_ids, size)
        return cache

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

    def _step(
        self,
        cache: Cache | None,
        slots: Sequence[Slot | None],
        requests: Sequence[TextRequest],
        halts_V: jax.Array,
        size: int,
    ) -> tuple[Cache | None, np.ndarray]:
        """Draw tokens in every busy slot: (cache, tokens int32 [N, slots, T]), NOTHING where none is drawn."""
        cache, drawn, steps = self._take_steps(cache, slots, requests, halts_V, size)
        steps = np.asarray(steps)
        # Shards take unlike numbers of steps; rows beyond a shard's last step hold NOTHING.
        drawn_NBT = np.concatenate(list(np.asarray(drawn)), axis=1)[: int(steps.max())]
        self.speed.slot_steps += len(slots) // self.placement.shards * int(steps.sum())
        self.speed.busy_steps += int((drawn_NBT[:, :, 0] != NOTHING).sum())
        self.speed.drawn_tokens += int((drawn_NBT != NOTHING).sum())
        return cache, drawn_NBT

    def _take_steps(
        self,
        cache: Cache | None,
        slots: Sequence[Slot | None],
        requests: Sequence[TextRequest],
        halts_V: jax.Array,
        size: int,
    ) -> tuple[Cache | None, jax.Array, jax.Array]:
        """(cache, drawn tokens int32 [shards, N, B, T], steps int32 [shards]) on the devices."""
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
            self.say(f"compiled {' '.join(map(str, key))}, {seconds:.1f} s")
            start = time.perf_counter()
        if self.placement.is_described:
            return self.programs[key].out_info
        result = jax.block_until_ready(self.programs[key](*arguments))
        self.speed.device_seconds += time.perf_counter() - start
        return result

    # Text

    def _halting_tokens(self, requests: Sequence[TextRequest]) -> np.ndarray:
        """Bool [V]: EOS, and tokens that may complete a stop string, because they hold its last character."""
        halts_V = np.zeros(self.model.config.vocab_size, bool)
        halts_V[[i for i in self.eos_ids if i < len(halts_V)]] = True
        last = {stop[-1] for request in requests for stop in request.stop}
        if last:
            if any(ord(c) > 127 for c in last):
                last.add("\ufffd")  # a token that holds a part of a character decodes to it
            self._texts = self._texts or texts_of_tokens(self.tokenizer, len(halts_V))
            halts_V[: len(self._texts)] |= [any(c in text for c in last) for text in self._texts]
        return halts_V

    def _ended(self, request: TextRequest, drawn: list[int], halts_V: np.ndarray) -> Generated | None:
        """The completion of a request that has ended, or None.  A halting token is always the last one drawn."""
        if drawn[-1] == NOT_A_NUMBER:
            return Generated("", tuple(drawn[:-1]), "nan")
        at_limit = len(drawn) >= request.max_new_tokens
        if not halts_V[drawn[-1]] and not at_limit:
            return None
        at_eos = drawn[-1] in self.eos_ids
        tokens = drawn[:-1] if at_eos else drawn
        text = text_after(self.tokenizer, request.token_ids, tokens)
        cuts = [at for stop in request.stop if (at := text.find(stop)) >= 0]
        if cuts:
            return Generated(text[: min(cuts)], tuple(tokens), "stop")
        if at_eos or at_limit:
            return Generated(text, tuple(tokens), "eos" if at_eos else "length")
        return None
