"""Prompts + weights -> greedy or sampled completions, which end before a stop string.

Arrives: a model, tokenized prompts with their limits, a tokenizer.  Leaves: one `Generated` a
request, in their order.  It deliberately does not know tasks or metrics; what runs on the device is
in `slot_programs.py`.

A shard of a batch (`runtime/devices.py`) is a number of *slots*, each with room for a prompt and
its completion.  Prompts are prefilled as a forest (shared prefixes are computed once, `planning/`),
and the keys and values along each prompt's path are copied into a slot of the same shard.  All
slots then take steps on the device, until some slot of a shard ends or draws a token that may
complete a stop string.  Then the host looks, evicts completions that have ended and admits waiting
prompts.

The last token of a prompt is not prefilled: it is the first that a slot takes in.  A draw depends
on the request's seed, the step and the logits alone: batch and order change it only where float
rounding decides between two tokens.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import jax
import numpy as np

from miron_jax.engine.decode import NOT_A_NUMBER, NOTHING
from miron_jax.engine.model import Model
from miron_jax.engine.slot_programs import LONG_TEXT, SMALLEST_SLOT, ProgramKey, SlotPrograms
from miron_jax.engine.slots import PrefilledPrompt, Slot
from miron_jax.engine.text_requests import Generated, TextRequest, why_refused
from miron_jax.errors import InputError
from miron_jax.runtime.devices import Tree
from miron_jax.runtime.progress import SILENT, Progress
from miron_jax.tokens.detokenize import text_after, texts_of_tokens
from miron_jax.tokens.tokenizers import Tokenizer

# longest completions per slot; on a CPU an idle slot of many costs as much as a busy one
CPU_TURNS, ACCELERATOR_TURNS = 2, 1
CPU_FREE = 16  # slots whose tokens a CPU computes in the time in which it reads the weights
# bytes that could be read while one more program is compiled
CPU_PROGRAM, ACCELERATOR_PROGRAM = 2 * 10**10, 10**13


class Generator(SlotPrograms):
    """Completes prompts with the programs of one model, which stay from call to call."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        eos_ids: Sequence[int] = (),
        slots: int | None = None,
        progress: Progress = SILENT,
    ):
        super().__init__(model, slots, progress)
        self.tokenizer = tokenizer
        self.eos_ids = frozenset(eos_ids)
        self._texts: list[str] | None = None  # each token's text; made for the first stop string

    def run(
        self,
        requests: Sequence[TextRequest],
        finished: Callable[[TextRequest, Generated], None] = lambda request, text: None,
    ) -> list[Generated]:
        """Generate a completion for each request, equal requests once; call `finished` as each
        completion ends.

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
        """Compile what `run` would call for these requests, on devices that only compile, and count
        the calls.

        Steps are counted at one token each, as if every completion went to its limit and every slot
        were busy.
        """
        assert self.placement.is_described
        self._check(requests)
        self._calls.clear()
        for size, group in self._groups(requests):
            num = self._slots_for(group, size)
            shards = range(self.placement.shards)
            halts_V = self.placement.share(self._halting_tokens(group))
            cache = self._empty_cache(num, size)
            for prompts in self._prefilled(group, size):
                of_shard = [list[PrefilledPrompt]() for _ in shards]
                for prompt in prompts:
                    of_shard[prompt.shard].append(prompt)
                for start in range(0, max(map(len, of_shard)), num):
                    batch: list[tuple[int, PrefilledPrompt]] = []
                    for s in shards:
                        batch += enumerate(of_shard[s][start : start + num], s * num)
                    cache = self._admit(cache, batch, num, size) if self.keeps else None
            num_slots = num * len(shards)
            # Slots that draw in several ways take the dearest one's steps.
            ways = {request.sampling.how: i for i, request in enumerate(group)}
            steps = -(-sum(request.max_new_tokens for request in group) // num_slots)
            for way in sorted(ways, key=("sampled", "cut", "greedy").index):
                slots = [
                    Slot.of(ways[way], group[ways[way]].token_ids, size),
                    *[None] * (num_slots - 1),
                ]
                before = self._calls.copy()
                self._take_steps(cache, slots, group, halts_V, size)
                [key] = self._calls - before
            self._calls[key] += steps - 1
        return self._calls.copy()

    def _groups(self, requests: Sequence[TextRequest]) -> Iterator[tuple[int, list[TextRequest]]]:
        """Slot sizes, and the distinct requests that grow side by side in them.

        Sampled texts seldom repeat themselves, and take one token per step.  Larger slots come
        first: shorter prefill rows fit into longer ones.
        """
        unique = list(dict.fromkeys(requests))
        for greedy in (True, False):
            by_size = self._by_slot_size(
                [r for r in unique if (r.sampling.temperature == 0) == greedy]
            )
            for size in sorted(by_size, reverse=True):
                yield size, by_size[size]

    def _by_slot_size(self, requests: Sequence[TextRequest]) -> dict[int, list[TextRequest]]:
        """Slot size -> requests.  Sizes double; a size that does not fill its slots joins the next
        one if that pays."""
        sizes: dict[int, list[TextRequest]] = {}
        for request in requests:
            size = SMALLEST_SLOT
            while size < len(request.token_ids) + request.max_new_tokens:
                size *= 2
            sizes.setdefault(size, []).append(request)
        for size, larger in pairwise(sorted(sizes)):
            if len(sizes[size]) < self.num_slots and self._worth_joining(
                sizes[size], self._slot_bytes(larger) - self._slot_bytes(size)
            ):
                sizes[larger] = sizes.pop(size) + sizes[larger]
        return sizes

    def _worth_joining(self, requests: Sequence[TextRequest], more_bytes: int) -> bool:
        """Compare bytes read: separate steps read the weights again and need a program; larger
        slots read `more_bytes` for every drawn token."""
        most = [request.max_new_tokens for request in requests]
        weights = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.model.state))
        program = CPU_PROGRAM if self.on_cpu else ACCELERATOR_PROGRAM
        return max(most) * weights + program > sum(most) * more_bytes

    def _slots_for(self, requests: Sequence[TextRequest], size: int) -> int:
        """Slots of a shard that the completions keep busy for CPU_TURNS or ACCELERATOR_TURNS of the
        longest one; for one turn up to CPU_FREE."""
        most = [request.max_new_tokens for request in requests]
        share = -(-sum(most) // self.placement.shards)
        filled = -(-share // (max(most) * (CPU_TURNS if self.on_cpu else ACCELERATOR_TURNS)))
        if self.keeps and max(most) < LONG_TEXT:
            filled = max(filled, min(CPU_FREE, -(-share // max(most))))
        few = 1 << (filled - 1).bit_length()
        if few >= 8:
            few = -(-filled // 8) * 8
        return self._shared(min(few, self.num_slots, self._slots_that_fit(size)))

    def _run_slots(
        self,
        requests: Sequence[TextRequest],
        size: int,
        finished: Callable[[TextRequest, Generated], None],
    ) -> dict[TextRequest, Generated]:
        """Distinct requests of one slot size.  Slots are halved when their programs do not fit the
        memory."""
        completions: dict[TextRequest, Generated] = {}
        num_slots = self._slots_for(requests, size)
        while len(completions) < len(requests):
            missing = [request for request in requests if request not in completions]
            try:
                self._complete(missing, size, num_slots, completions, finished)
            except jax.errors.JaxRuntimeError as error:
                if (
                    "RESOURCE_EXHAUSTED" not in str(error)
                    or num_slots == 1
                    or self.placement.is_global
                ):
                    raise
                num_slots //= 2
                self.prefill_slots = max(1, self.prefill_slots // 2)
                self._prefill_rows.clear()
                self.progress.warn(f"out of memory: {num_slots} slots of {size} tokens from now on")
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
        on_device = self.placement.share(halts_V)
        shards = self.placement.shards
        prompts = self._prefilled(requests, size)
        waiting = [deque[PrefilledPrompt]() for _ in range(shards)]
        slots: list[Slot | None] = [None] * (shards * num_slots)  # shard after shard
        cache = self._empty_cache(num_slots, size)
        count = len(completions) + len(requests)
        while len(completions) < count:
            cache = self._fill(cache, slots, requests, prompts, waiting, size)
            cache, drawn, steps = self._take_steps(cache, slots, requests, on_device, size)
            drawn_NBT = self._fetched(drawn, steps)
            for b, slot in enumerate(slots):
                if slot is None:
                    continue
                request = requests[slot.request]
                tokens = drawn_NBT[:, b].ravel()
                slot.append(tokens[tokens != NOTHING])
                if (text := self._ended(request, slot.drawn, halts_V)) is not None:
                    completions[request], slots[b] = text, None
                    finished(request, text)

    def _fill(
        self,
        cache: Tree,
        slots: list[Slot | None],
        requests: Sequence[TextRequest],
        prompts: Iterator[list[PrefilledPrompt]],
        waiting: list[deque[PrefilledPrompt]],
        size: int,
    ) -> Tree:
        """Admit waiting prompts to free slots, one prefilled batch after another; its last prompt
        frees its memory.

        No batch is prefilled for a shard without prompts while another shard has enough waiting to
        fill its slots.
        """
        num = len(slots) // len(waiting)
        while free := [b for b, slot in enumerate(slots) if slot is None]:
            if not all(waiting[b // num] for b in free) and max(map(len, waiting)) < num:
                for prompt in next(prompts, ()):
                    waiting[prompt.shard].append(prompt)
            admitted = [(b, waiting[b // num].popleft()) for b in free if waiting[b // num]]
            if not admitted:
                break
            cache = self._admit(cache, admitted, num, size) if self.keeps else None
            for b, prompt in admitted:
                slots[b] = Slot.of(prompt.request, requests[prompt.request].token_ids, size)
        return cache

    # Text

    def _halting_tokens(self, requests: Sequence[TextRequest]) -> np.ndarray:
        """Bool [V]: EOS, and tokens that may complete a stop string, because they hold its last
        character."""
        halts_V = np.zeros(self.model.config.vocab_size, bool)
        halts_V[[i for i in self.eos_ids if i < len(halts_V)]] = True
        last = {stop[-1] for request in requests for stop in request.stop}
        if last:
            if any(ord(c) > 127 for c in last):
                last.add("\ufffd")  # a token that holds a part of a character decodes to it
            self._texts = self._texts or texts_of_tokens(self.tokenizer, len(halts_V))
            halts_V[: len(self._texts)] |= [any(c in text for c in last) for text in self._texts]
        return halts_V

    def _ended(
        self, request: TextRequest, drawn: list[int], halts_V: np.ndarray
    ) -> Generated | None:
        """The completion of a request that has ended, or None.  A halting token is always the last
        one drawn."""
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
