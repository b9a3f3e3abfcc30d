"""Other engines on the same token ids: plain torch, and lm-eval's backend around it.

Arrives: a model folder, `Requests` or `Work`.  Leaves: `Answers`, greedy tokens, and seconds scaled
by the slots that a way of batching runs.  It deliberately does not know this engine.
"""

import importlib
import importlib.util
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from common import Answers, Work, joined, say, seconds_of

from miron_jax.engine.text_requests import Generated
from miron_jax.files.readers import JsonObject
from miron_jax.planning.request_batches import select
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import GenerationConfig

EOS = -1  # in place of any token that ends a text
BATCH_SLOTS = 16384  # of torch's sorted batches: float32 logits of this many tokens take 3.3 GB
LM_EVAL_BATCHES = (8, 32)  # it pads to the longest row and keeps float32 logits of every token


@dataclass
class PlainTorch:
    """A transformers model run the plain way: rows in, full logits out."""

    model: Any
    torch: ModuleType
    device: str

    @classmethod
    def load(cls, folder: str, dtype: str, device: str = "cpu") -> "PlainTorch":
        import torch
        import transformers
        from transformers import AutoModelForCausalLM

        transformers.utils.logging.disable_progress_bar()
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        return cls(model.to(device).eval(), torch, device)

    def logits(self, rows: Sequence[np.ndarray]) -> "Tensor":
        """[rows, longest, V]; short rows are padded on the right, which causal attention never
        reads."""
        longest = max(map(len, rows))
        ids_BT = np.zeros((len(rows), longest), np.int64)
        for b, row in enumerate(rows):
            ids_BT[b, : len(row)] = row
        return self.model(self.torch.tensor(ids_BT, device=self.device), use_cache=False).logits

    def batch(self, rows: Sequence[np.ndarray], starts: Sequence[int]) -> Answers:
        """Score rows as one batch the way nanochat does: loss and argmax of every token, of which
        the span is kept."""
        torch = self.torch
        with torch.inference_mode():
            logits_BTV = self.logits(rows)[:, :-1]
            longest = logits_BTV.shape[1] + 1
            target_BT = torch.zeros((len(rows), longest - 1), dtype=torch.long)
            for b, row in enumerate(rows):
                target_BT[b, : len(row) - 1] = torch.from_numpy(row[1:].astype(np.int64))
            target_BT = target_BT.to(self.device)
            loss_N = torch.nn.functional.cross_entropy(
                logits_BTV.reshape(-1, logits_BTV.shape[-1]).float(),
                target_BT.reshape(-1),
                reduction="none",
            )
            loss_BT = loss_N.reshape(target_BT.shape).cpu().numpy()
            greedy_BT = (logits_BTV.argmax(dim=-1) == target_BT).cpu().numpy()
        spans = [slice(start - 1, len(row) - 1) for row, start in zip(rows, starts, strict=True)]
        return Answers(
            [-loss_BT[b, span] for b, span in enumerate(spans)],
            [greedy_BT[b, span] for b, span in enumerate(spans)],
        )

    def requests(self, requests: Requests, indices: Sequence[int]) -> Answers:
        """Score these requests as one batch."""
        return self.batch(
            [requests.tokens(r) for r in indices], [int(requests.span_start[r]) for r in indices]
        )

    def by_example(self, works: Sequence[Work]) -> list[Answers]:
        """One example a forward, its choices one padded batch."""
        answers = []
        for work in works:
            logprob, greedy = [], []
            for a, b in zip(work.first[:-1], work.first[1:], strict=True):
                scored = self.requests(work.requests, range(int(a), int(b)))
                logprob += scored.logprob
                greedy += scored.greedy
            answers.append(Answers(logprob, greedy))
        return answers

    def left_padded(self, rows: Sequence[Sequence[int]]) -> "tuple[Tensor, Tensor]":
        """(ids_BT, mask_BT), both int64; the mask is 0 on padding."""
        longest = max(map(len, rows))
        ids_BT = self.torch.tensor([[0] * (longest - len(row)) + [*row] for row in rows])
        mask_BT = self.torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        return ids_BT, mask_BT

    def greedy(self, prompt: Sequence[int], new_tokens: int, ends: Sequence[int]) -> list[int]:
        """New tokens of HF generate; EOS stands for any token of `ends`."""
        ids = self.torch.tensor([prompt])
        with self.torch.inference_mode():
            out = self.model.generate(
                ids,
                attention_mask=self.torch.ones_like(ids),
                generation_config=plain_greedy(new_tokens, ends),
            )
        return [EOS if i in ends else i for i in out[0, len(prompt) :].tolist()]

    def logit_gap(
        self, prompt: Sequence[int], ours: Sequence[int], theirs: Sequence[int], ends: Sequence[int]
    ) -> float:
        """Nats between torch's logits of the first two tokens that differ; infinite when one text
        begins the other."""
        at = first_difference(ours, theirs)
        if at is None:
            return math.inf
        with self.torch.inference_mode():
            logits_V = self.logits([np.asarray([*prompt, *theirs[:at]])])[0, -1]
        our_logit, their_logit = (
            max(float(logits_V[i]) for i in (ends if token == EOS else (token,)))
            for token in (ours[at], theirs[at])
        )
        return abs(our_logit - their_logit)


def plain_greedy(new_tokens: int, ends: Sequence[int]) -> "GenerationConfig":
    """Greedy generation without any rule of the model folder, such as a repetition penalty."""
    from transformers import GenerationConfig

    return GenerationConfig(
        do_sample=False, max_new_tokens=new_tokens, eos_token_id=list(ends), pad_token_id=0
    )


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Index of the first token that differs; None when one sequence begins the other."""
    return next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)


def tokens_of(text: Generated) -> list[int]:
    """This engine's new tokens as `PlainTorch.greedy` gives its own, EOS at the end included."""
    return [*text.token_ids, EOS] if text.ended == "eos" else [*text.token_ids]


class LmEval:
    """lm-eval's Hugging Face backend around a torch model."""

    @classmethod
    def around(cls, torch: PlainTorch, tokenizer: Tokenizer) -> "LmEval | None":
        """None when lm-eval is not installed."""
        return cls(torch, tokenizer) if importlib.util.find_spec("lm_eval") else None

    def __init__(self, torch: PlainTorch, tokenizer: Tokenizer):
        backend = importlib.import_module("lm_eval.models.huggingface").HFLM
        self.backend = backend(
            pretrained=torch.model, tokenizer=tokenizer, backend="causal", batch_size=1
        )

    def score(self, requests: Requests, batch_size: int) -> Answers:
        # The backend asserts that a continuation has tokens; a choice that begins another one has
        # none to score.
        scored = [r for r, (ids, start) in enumerate(requests) if start < len(ids)]
        pairs = [
            (("", ""), ids[:start].tolist(), ids[start:].tolist())
            for ids, start in ((requests.tokens(r), int(requests.span_start[r])) for r in scored)
        ]
        self.backend.batch_size_per_gpu = batch_size
        sums = self.backend._loglikelihood_tokens(pairs, disable_tqdm=True)
        # The backend returns sums only: every token gets the mean, and all tokens share one greedy
        # flag.
        logprob, greedy = [np.zeros(0)] * len(requests), [np.zeros(0, bool)] * len(requests)
        for r, (total, all_greedy) in zip(scored, sums, strict=True):
            count = len(requests.tokens(r)) - int(requests.span_start[r])
            logprob[r], greedy[r] = np.full(count, total / count), np.full(count, all_greedy)
        return Answers(logprob, greedy)


def padded_by_length(requests: Requests, batch_size: int) -> int:
    """Slots that lm-eval runs: rows sorted by length, one row for requests equal up to their last
    token."""
    rows = {ids[:-1].tobytes(): len(ids) - 1 for ids, start in requests if start < len(ids)}
    lengths = sorted(rows.values(), reverse=True)
    return sum(
        lengths[i] * len(lengths[i : i + batch_size]) for i in range(0, len(lengths), batch_size)
    )


def padded_by_example(works: Sequence[Work]) -> int:
    """Slots that `PlainTorch.by_example` runs: every choice is as long as its example's longest."""
    return sum(padded_batches(joined(works), example_batches(works)))


def padded_batches(requests: Requests, batches: list[list[int]]) -> list[int]:
    """Slots of each batch when all its rows are padded to the longest."""
    length = np.diff(requests.offsets)
    return [len(batch) * int(length[batch].max()) for batch in batches]


def example_batches(works: Sequence[Work]) -> list[list[int]]:
    """Requests of each example, by their index in the joined works."""
    before = np.cumsum([0, *(len(work.requests) for work in works)])
    return [
        list(range(int(start + a), int(start + b)))
        for work, start in zip(works, before, strict=False)
        for a, b in itertools.pairwise(work.first)
    ]


def sorted_batches(requests: Requests) -> list[list[int]]:
    """Longest first, as many rows together as BATCH_SLOTS allows."""
    length = np.diff(requests.offsets)
    batches: list[list[int]] = [[]]
    for r in np.argsort(-length, kind="stable").tolist():
        if batches[-1] and (len(batches[-1]) + 1) * length[batches[-1][0]] > BATCH_SLOTS:
            batches.append([])
        batches[-1].append(r)
    return batches


def time_torch(
    torch: PlainTorch, requests: Requests, batches: list[list[int]], budget: float
) -> JsonObject:
    """Run batches in a shuffled order until the budget (seconds) is spent; scale to all of them by
    slots."""
    slots = padded_batches(requests, batches)
    order = np.random.default_rng(0).permutation(len(batches)).tolist()
    for b in order[:3]:  # warm-up
        torch.requests(requests, batches[b])
    num_run, start = 0, time.perf_counter()
    for b in order:
        torch.requests(requests, batches[b])
        num_run += slots[b]
        if time.perf_counter() - start > budget:
            break
    measured = time.perf_counter() - start
    total = sum(slots)
    seconds = measured * total / num_run
    say(
        f"  torch: {seconds:.2f} s for {total} slots in {len(batches)} batches, from "
        f"{measured:.2f} s for {num_run}"
    )
    return {
        "seconds": seconds,
        "measured_seconds": measured,
        "places": total,
        "plain_tokens_per_second": (len(requests.token_ids) - len(requests)) / seconds,
    }


def time_lm_eval(
    lm_eval: LmEval, requests: Requests, torch_seconds: float, budget: float
) -> JsonObject:
    """Run every n-th request at two batch sizes, scale to all requests by slots, and keep the
    faster size.

    n is such that torch's own batches, which take `torch_seconds` for all requests, would take half
    the budget.
    """
    step = max(1, math.ceil(2 * torch_seconds / budget))
    chosen = select(requests, np.arange(0, len(requests), step))
    lm_eval.score(select(requests, np.arange(min(8, len(requests)))), 8)  # warm-up
    timed = []
    for size in LM_EVAL_BATCHES:
        seconds, _ = seconds_of(lambda size=size: lm_eval.score(chosen, size))
        slots = padded_by_length(requests, size)
        scaled = seconds * slots / padded_by_length(chosen, size)
        say(f"  lm-eval, batches of {size}: {scaled:.2f} s for {slots} slots, from {seconds:.2f} s")
        timed.append(
            {"seconds": scaled, "measured_seconds": seconds, "places": slots, "batch_size": size}
        )
    return min(timed, key=lambda run: run["seconds"])
