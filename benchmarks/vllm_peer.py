"""vLLM as a peer: log-probabilities of prompts.  It computes every request whole: prompt_logprobs turn its prefix cache off.

It takes a share of a GPU's memory and keeps it, so `gpu_suite.py` runs it in a child.
"""

import importlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from common import Answers, Requests, seconds_of

from miron_jax.planning.request_batches import select

BATCH_TOKENS = 8192  # of a step: its float32 logits take 2 GB with 65,536 tokens
PILOT = 64  # requests that tell how fast it is


class Vllm:
    def __init__(self, folder: str, dtype: str, memory: float):
        """`memory`: share of the GPU's, weights and cache together."""
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # one process, so that killing it frees the GPU
        vllm: Any = importlib.import_module("vllm")
        self.model = vllm.LLM(
            model=folder,
            dtype=dtype,
            gpu_memory_utilization=memory,
            max_num_batched_tokens=BATCH_TOKENS,
            enforce_eager=True,  # CUDA graphs serve steps of one token
            seed=0,
        )
        self.rules = vllm.SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)

    def score(self, requests: Requests) -> Answers:
        rows = [ids.tolist() for ids, _ in requests]
        found = self.model.generate([{"prompt_token_ids": row} for row in rows], self.rules, use_tqdm=False)
        answers = Answers([], [])
        for row, (_, start), own in zip(rows, requests, found, strict=True):
            span = [own.prompt_logprobs[t][row[t]] for t in range(int(start), len(row))]
            answers.logprob.append(np.asarray([one.logprob for one in span]))
            answers.greedy.append(np.asarray([one.rank == 1 for one in span], bool))
        return answers


def time_vllm(folder: str, dtype: str, memory: float, requests: Requests, budget: float) -> dict[str, Any]:
    """Seconds for all requests, from as many of them, drawn evenly, as fit into the budget (seconds)."""
    vllm = Vllm(folder, dtype, memory)
    pilot = evenly(requests, PILOT)
    vllm.score(pilot)
    seconds, _ = seconds_of(lambda: vllm.score(pilot))
    chosen = evenly(requests, max(PILOT, int(len(pilot) * budget / seconds)))
    measured, _ = seconds_of(lambda: vllm.score(chosen))
    tokens, ran = (int(own.offsets[-1]) for own in (requests, chosen))
    return {"seconds": measured * tokens / ran, "measured_seconds": measured, "places": tokens, "measured_places": ran}


def evenly(requests: Requests, count: int) -> Requests:
    places: Sequence[int] = (
        np.linspace(0, len(requests), min(count, len(requests)), endpoint=False).astype(int).tolist()
    )
    return select(requests, np.asarray(places))
