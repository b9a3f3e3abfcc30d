"""Prompts + params -> greedy or sampled text.

Arrives: a model, tokenized prompts with their limits, a tokenizer.  Leaves: one `Generated` a request, in their order.
It deliberately does not know tasks or metrics; what runs on the device is in `decode.py`.

A shard of a batch (`runtime/devices.py`) is a number of *slots*, each with room for a prompt and what follows it.
Prompts are prefilled as a forest (what they share at their beginnings is computed once, `planning/`), and the keys
and values along each one's path are copied into a slot of the same shard.  All slots then take steps on the device,
until some slot of a shard ends or shows a token that may complete a stop string; there the host looks, frees what has
ended and lets waiting prompts in.

The last token of a prompt is not prefilled: it is the first that a slot takes.  A draw depends on the request's seed, the
step and the logits alone: batch and order change it only where float rounding decides between two tokens.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from miron_jax.engine.decode import NOT_A_NUMBER, NOTHING, let_in, prefill, take_plain_steps, take_steps
from miron_jax.engine.model import Model, attention_of
from miron_jax.engine.slots import PrefilledPrompt, Slot, draw_arrays, prefill_batch, with_paths
from miron_jax.engine.text_requests import Generated, GenerationSpeed, Sampling, TextRequest, why_refused
from miron_jax.errors import InputError
from miron_jax.model.cache import Cache
from miron_jax.model.config import ModelConfig
from miron_jax.model.costs import cost_model
from miron_jax.model.decoder import KeyValues
from miron_jax.model.layout import heads_axis
from miron_jax.model.own import OwnModel
from miron_jax.planning.plan import make_plan
from miron_jax.planning.records import Plan
from miron_jax.ragged import end_to_end
from miron_jax.runtime.devices import DATA, Placement
from miron_jax.tokens.detokenize import text_after, texts_of_tokens
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import Tokenizer

SMALLEST_SLOT = 64  # places; slot sizes double from here
CPU_SLOTS, ACCELERATOR_SLOTS = 128, 256
CPU_TURNS, ACCELERATOR_TURNS = 2, 1  # of the longest text; a CPU pays for idle slots what it pays for busy ones
CPU_PREFILL, ACCELERATOR_PREFILL = 2048, 16384  # places of a prefilled batch
PREFILL_LENGTHS = 2  # row lengths of prefilled batches: what more of them save in padding, their programs cost
CPU_PROGRAM, ACCELERATOR_PROGRAM = 2 * 10**10, 10**13  # bytes that could be read while one more program is compiled
CPU_BLOCK = SMALLEST_SLOT  # places that attention reads at a time; every slot holds a whole number of them
WIDTH = 4  # tokens that a step takes in where texts may be long
LONG_TEXT = 64  # tokens; shorter texts seldom repeat themselves


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
        self.prefill_places = CPU_PREFILL if self.on_cpu else ACCELERATOR_PREFILL
        self._prefill_rows: dict[int, int] = {}  # of each row length compiled
        self.speed = GenerationSpeed()
        self._programs: dict[tuple[Any, ...], Any] = {}
        self._texts: list[str] | None = None  # of every token alone, made when the first stop string comes

    def run(
        self,
        requests: Sequence[TextRequest],
        finished: Callable[[TextRequest, Generated], None] = lambda request, text: None,
    ) -> list[Generated]:
        """Equal requests are generated once; `finished` hears of each as its text ends.  Raises InputError for a request
        that cannot be run, before any is."""
        for i, request in enumerate(requests):
            if wrong := why_refused(request, self.model.config):
                raise InputError(f"request {i} to generate from {wrong}")
        self.speed.prompt_tokens += sum(len(request.token_ids) for request in requests)
        unique = list(dict.fromkeys(requests))
        found: dict[TextRequest, Generated] = {}
        for greedy in (True, False):  # sampled texts seldom repeat themselves, and take one token a step
            kind = [request for request in unique if (request.sampling.temperature == 0) == greedy]
            for size, members in sorted(
                self._by_slot_size(kind).items(), reverse=True
            ):  # short rows fit into long ones
                found.update(zip(members, self._run_slots(members, size, finished), strict=True))
        return [found[request] for request in requests]

    def _by_slot_size(self, requests: Sequence[TextRequest]) -> dict[int, list[TextRequest]]:
        """Slot sizes double; a size that would not fill its slots once joins the next larger one where that pays."""
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

    def _worth_joining(self, requests: Sequence[TextRequest], more_places: int) -> bool:
        """In bytes read: steps of their own read the weights anew and need a program, slots of more places read more for
        every token."""
        most = [request.max_new_tokens for request in requests]
        weights = sum(leaf.nbytes for leaf in jax.tree.leaves(self.model.state))
        program = CPU_PROGRAM if self.on_cpu else ACCELERATOR_PROGRAM
        return max(most) * weights + program > sum(most) * more_places * self._place_bytes

    def _slots_for(self, requests: Sequence[TextRequest], size: int) -> int:
        """Slots of a shard that the texts fill: each one takes `turns` of the longest, or as much of shorter ones."""
        most = [request.max_new_tokens for request in requests]
        share = -(-sum(most) // self.placement.shards)
        filled = -(-share // (max(most) * (CPU_TURNS if self.on_cpu else ACCELERATOR_TURNS)))
        few = 1 << (filled - 1).bit_length()
        return min(few if few < 8 else -(-filled // 8) * 8, self.num_slots, self._slots_that_fit(size))

    def _run_slots(
        self, requests: Sequence[TextRequest], size: int, finished: Callable[[TextRequest, Generated], None]
    ) -> list[Generated]:
        """One size of slot: prefill, let in, step, look, until every request has its text."""
        found: dict[int, Generated] = {}
        halts_V = self._halting_tokens(requests)
        on_device = self.placement.share(halts_V)
        shards, num_slots = self.placement.shards, self._slots_for(requests, size)
        prompts, waiting = self._prefilled(requests), [deque[PrefilledPrompt]() for _ in range(shards)]
        slots: list[Slot | None] = [None] * (shards * num_slots)  # shard after shard
        cache = None if isinstance(self.model.config, OwnModel) else self._empty_cache(num_slots, size)
        while len(found) < len(requests):
            cache = self._fill(cache, slots, requests, prompts, waiting, size)
            cache, drawn_NBT = self._step(cache, slots, requests, on_device, size)
            for b, slot in enumerate(slots):
                if slot is None:
                    continue
                drawn = drawn_NBT[:, b].ravel()
                slot.draw(drawn[drawn != NOTHING])
                if (text := self._ended(requests[slot.request], slot.drawn, halts_V)) is not None:
                    found[slot.request], slots[b] = text, None
                    finished(requests[slot.request], text)
        return [found[i] for i in range(len(requests))]

    def _fill(
        self,
        cache: Cache | None,
        slots: list[Slot | None],
        requests: Sequence[TextRequest],
        prompts: Iterator[list[PrefilledPrompt]],
        waiting: list[deque[PrefilledPrompt]],
        size: int,
    ) -> Cache | None:
        """Let waiting prompts into free slots, one prefilled batch after another: its memory goes with its last prompt.

        A shard whose prompts run out waits where another one has as many left as it has slots.
        """
        own = len(slots) // len(waiting)
        while free := [b for b, slot in enumerate(slots) if slot is None]:
            if not all(waiting[b // own] for b in free) and max(map(len, waiting)) < own:
                for prompt in next(prompts, ()):
                    waiting[prompt.shard].append(prompt)
            taken = [(b, waiting[b // own].popleft()) for b in free if waiting[b // own]]
            if not taken:
                break
            cache = None if cache is None else self._let_in(cache, taken)
            for b, prompt in taken:
                slots[b] = Slot.of(prompt.request, requests[prompt.request].token_ids, size)
        return cache

    # Prefill

    def _prefilled(self, requests: Sequence[TextRequest]) -> Iterator[list[PrefilledPrompt]]:
        """Batches of prompts with their keys and values, in the planner's order."""
        if isinstance(self.model.config, OwnModel):
            longest_first = sorted(range(len(requests)), key=lambda r: -requests[r].max_new_tokens)
            nothing, shards = np.zeros(0, np.int64), self.placement.shards
            yield [PrefilledPrompt(r, None, i % shards, nothing) for i, r in enumerate(longest_first)]
            return
        ids = [request.token_ids for request in requests]
        first, no = np.ones(len(ids), np.int32), np.zeros(len(ids), bool)
        plan = make_plan(
            Requests(*end_to_end(ids), first, no, no),
            cost_model(self.model.config, max_lengths=PREFILL_LENGTHS),
            tuple(self._prefill_rows),
        )
        # Every token but the first is asked for, so a request's edges start at the places of all its tokens but the last.
        edge_row = np.repeat(np.arange(plan.num_rows), np.diff(plan.edge_offset))
        paths = [
            plan.request_edge[plan.request_edge_offset[r] : plan.request_edge_offset[r + 1]] for r in range(len(ids))
        ]
        row_of = [int(edge_row[path[0]]) if len(path) else -1 for path in paths]
        # Those that may run longest go first: a long text that starts last keeps the other slots idle.
        shards = self.placement.shards
        members: dict[int, list[int]] = {}
        for r in sorted(range(len(requests)), key=lambda r: -requests[r].max_new_tokens):
            members.setdefault(row_of[r], []).append(r)
        if alone := members.pop(-1, []):  # prompts of one token have nothing to prefill
            nothing = self._nothing()
            yield [PrefilledPrompt(r, nothing, i % shards, np.zeros(0, np.int64)) for i, r in enumerate(alone)]
        rows_of: dict[int, list[int]] = {}
        for row in members:
            rows_of.setdefault(int(plan.row_length[row]), []).append(row)
        for length, rows in rows_of.items():
            few = 1 << (-(-len(rows) // shards) - 1).bit_length()
            wanted = min(max(1, self.prefill_places // length), few)
            rows_a_batch = self._prefill_rows[length] = max(wanted, self._prefill_rows.get(length, 0))
            for start in range(0, len(rows), rows_a_batch * shards):
                own = rows[start : start + rows_a_batch * shards]
                inside = sorted((r for row in own for r in members[row]), key=lambda r: -requests[r].max_new_tokens)
                place = {row: (i % shards, i // shards * length) for i, row in enumerate(own)}
                where = [(r, *place[row_of[r]], plan.edge_source[paths[r]].astype(np.int64)) for r in inside]
                yield with_paths(self._prefill(plan, own, rows_a_batch, length), where)

    def _prefill(self, plan: Plan, rows: list[int], num_rows: int, length: int) -> KeyValues:
        """Run rows of the plan, dealt out to the shards; keys and values of every place, [shards, L, P, K, H]."""
        shards = self.placement.shards
        batch = prefill_batch(plan, rows, num_rows, length, shards)
        self.speed.prefilled_tokens += int(np.diff(plan.place_offset)[rows].sum())
        places = 1 << (num_rows * length - 1).bit_length()  # few sizes: one let-in program
        program = partial(prefill, places=places, attention=attention_of(self.model).name)
        spec = self._by_heads(3)
        return self._call(
            ("prefill", num_rows, length), program, (self.model.state,), (batch,), out=KeyValues(spec, spec)
        )

    def _nothing(self) -> KeyValues:
        config = self._config
        shape = (self.placement.shards, config.num_layers, 1, config.num_kv_heads, config.head_dim)
        empty = self.placement.zeros(shape, self._dtype, self._by_heads(3))
        return KeyValues(empty, empty)

    def _by_heads(self, axis: int) -> Any:
        """Of an array [shards, ...] whose key/value heads stand at this axis."""
        return PartitionSpec(DATA, *(None,) * (axis - 1), heads_axis(self._config, self.placement))

    # Slots

    @property
    def _config(self) -> ModelConfig:
        assert isinstance(self.model.config, ModelConfig), "a user's own model keeps nothing"
        return self.model.config

    @property
    def _dtype(self) -> Any:
        """The run's dtype, which matrices have; norm weights and biases are float32 whatever it is."""
        return self.model.state["embedding_VD"][...].dtype

    @property
    def _place_bytes(self) -> int:
        """Keys and values of one place; logits, which a model that keeps nothing makes anew."""
        config = self.model.config
        if isinstance(config, OwnModel):
            return 8 * config.vocab_size
        return 2 * config.num_layers * config.num_kv_heads * config.head_dim * self._dtype.itemsize

    def _slots_that_fit(self, size: int) -> int:
        """Slots of a shard of this size that half of the free memory holds; prefilled batches need some of the rest."""
        return max(1, int(self.placement.free_bytes() / 2 / (self._place_bytes * size)))

    def _empty_cache(self, num_slots: int, size: int) -> Cache:
        block = CPU_BLOCK if self.on_cpu else size  # on an accelerator, many small blocks would be many launches
        shapes = jax.eval_shape(lambda: Cache.zeros(self._config, num_slots, size // block, block, self._dtype))
        shards = self.placement.shards
        return Cache(*(self.placement.zeros((shards, *own.shape), own.dtype, self._by_heads(4)) for own in shapes))

    def _let_in(self, cache: Cache, taken: list[tuple[int, PrefilledPrompt]]) -> Cache:
        """Copy each prompt's path into its slot, prompts of one prefilled batch at a time."""
        _, _, blocks, num, _, _, block = cache.key_LJBKHC.shape  # with its leading axis of shards
        size, shards = blocks * block, self.placement.shards
        batches: dict[int, list[tuple[int, PrefilledPrompt]]] = {}
        for b, prompt in taken:
            assert prompt.kept is not None
            batches.setdefault(id(prompt.kept.key_LBTKH), []).append((b, prompt))
        for group in batches.values():
            kept = group[0][1].kept
            assert kept is not None
            slot, place = np.zeros((shards, num), np.int32), np.zeros((shards, num, size), np.int32)
            count = np.zeros(shards, np.int32)
            for b, prompt in group:
                s, i = prompt.shard, count[prompt.shard]
                slot[s, i] = b - s * num
                # The rest is never seen, but multiplied by zero: a place of its own, whose values are as finite.
                place[s, i] = prompt.path[-1] if len(prompt.path) else 0
                place[s, i, : len(prompt.path)] = prompt.path
                count[s] += 1
            key, spec = ("let in", num, size, kept.key_LBTKH.shape[2]), self._by_heads(4)
            cache = self._call(key, let_in, (), (cache, kept, slot, place, count), donate=(0,), out=Cache(spec, spec))
        return cache

    def _step(
        self,
        cache: Cache | None,
        slots: Sequence[Slot | None],
        requests: Sequence[TextRequest],
        halts_V: jax.Array,
        size: int,
    ) -> tuple[Cache | None, np.ndarray]:
        """Draw tokens in every busy slot.  Returns them, int32 [N, slots, T], NOTHING beside them."""
        shards, num = self.placement.shards, len(slots) // self.placement.shards
        tokens_BS = np.zeros((len(slots), size), np.int32)
        position, left, step = (np.zeros(len(slots), np.int32) for _ in range(3))
        sampling = [Sampling()] * len(slots)
        for b, slot in enumerate(slots):
            if slot is not None:
                request = requests[slot.request]
                tokens_BS[b] = slot.tokens_S
                position[b], step[b] = slot.known - 1, len(slot.drawn)
                left[b], sampling[b] = request.max_new_tokens - len(slot.drawn), request.sampling
        draw = None if all(own.temperature == 0 for own in sampling) else draw_arrays(sampling, step)
        how = "greedy" if draw is None else "sampled" if draw.cut is None else "cut"
        by_slot = jax.tree.map(lambda x: x.reshape(shards, num, *x.shape[1:]), (tokens_BS, position, left, draw))
        shared = (self.model.state, halts_V)
        if cache is None:
            key = ("plain step", num, size, how)
            drawn, steps = self._call(key, take_plain_steps, shared, by_slot)
        else:
            long = any(request.max_new_tokens >= LONG_TEXT for request in requests)
            width = WIDTH if draw is None and long else 1
            program, key = partial(take_steps, width=width), ("step", num, size, width, how)
            spec, small = self._by_heads(4), self.placement.results
            out = (Cache(spec, spec), small, small)
            cache, drawn, steps = self._call(key, program, shared, (cache, *by_slot), donate=(2,), out=out)
        steps = np.asarray(steps)
        # A shard that halts earlier has drawn nothing since.
        drawn_NBT = np.concatenate(list(np.asarray(drawn)), axis=1)[: int(steps.max())]
        self.speed.slot_steps += num * int(steps.sum())
        self.speed.busy_steps += int((drawn_NBT[:, :, 0] != NOTHING).sum())
        self.speed.drawn_tokens += int((drawn_NBT != NOTHING).sum())
        return cache, drawn_NBT

    def _call(
        self,
        key: tuple[Any, ...],
        function: Callable[..., Any],
        shared: tuple[Any, ...],
        by_shard: tuple[Any, ...],
        donate: tuple[int, ...] = (),
        out: Any = None,
    ) -> Any:
        """Run the program of this key, compiled when it is first met: see `Placement.compile`."""
        arguments = (*shared, *jax.tree.map(self._placed, by_shard))
        start = time.perf_counter()
        if key not in self._programs:
            bound = partial(function, self.model.graphdef) if shared else function
            split = arguments[len(shared) :]
            self._programs[key] = self.placement.compile(bound, shared, split, donate, out)
            self.speed.programs += 1
            seconds = time.perf_counter() - start
            self.speed.compile_seconds += seconds
            self.say(f"compiled {' '.join(map(str, key))}, {seconds:.1f} s")
            start = time.perf_counter()
        result = jax.block_until_ready(self._programs[key](*arguments))
        self.speed.device_seconds += time.perf_counter() - start
        return result

    def _placed(self, x: Any) -> Any:
        return self.placement.put(x) if isinstance(x, np.ndarray) else x

    # Text

    def _halting_tokens(self, requests: Sequence[TextRequest]) -> np.ndarray:
        """Bool [V]: EOS, and tokens that may complete a stop string, because they hold its last character."""
        halts_V = np.zeros(self.model.config.vocab_size, bool)
        halts_V[[i for i in self.eos_ids if i < len(halts_V)]] = True
        last = {stop[-1] for request in requests for stop in request.stop}
        if last:
            if any(ord(c) > 127 for c in last):
                last.add("\ufffd")  # what a part of a character shows as, alone
            self._texts = self._texts or texts_of_tokens(self.tokenizer, len(halts_V))
            halts_V[: len(self._texts)] |= [any(c in text for c in last) for text in self._texts]
        return halts_V

    def _ended(self, request: TextRequest, drawn: list[int], halts_V: np.ndarray) -> Generated | None:
        """The text of a request that is done, or None.  A token that halts stands last: the device stops at it."""
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
