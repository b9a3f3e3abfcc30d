"""vLLM as a peer: log-probabilities of prompts, without its prefix cache, which prompt_logprobs
turn off.

It never frees its share of the GPU's memory, so `gpu_suite.py` runs it in a child process.
"""

import importlib
import os

import numpy as np
from common import Answers, Requests, seconds_of

from miron_jax.files.readers import JsonObject
from miron_jax.planning.request_batches import select

BATCH_TOKENS = 8192  # of a step: its float32 logits take 2 GB with 65,536 tokens
PILOT = 64  # requests whose seconds set how many are timed


class Vllm:
    def __init__(self, folder: str, dtype: str, memory: float):
        """`memory` is a share of the GPU's, for weights and cache together."""
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        # one process, so that killing it frees the GPU
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        vllm = importlib.import_module("vllm")
        self.model = vllm.LLM(
            model=folder,
            dtype=dtype,
            gpu_memory_utilization=memory,
            max_num_batched_tokens=BATCH_TOKENS,
            enforce_eager=True,  # CUDA graphs serve steps of one token
            seed=0,
        )
        self.rules = vllm.SamplingParams(
            max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False
        )

    def score(self, requests: Requests) -> Answers:
        rows = [ids.tolist() for ids, _ in requests]
        outputs = self.model.generate(
            [{"prompt_token_ids": row} for row in rows], self.rules, use_tqdm=False
        )
        answers = Answers([], [])
        for row, (_, start), output in zip(rows, requests, outputs, strict=True):
            span = [output.prompt_logprobs[t][row[t]] for t in range(int(start), len(row))]
            answers.logprob.append(np.asarray([token.logprob for token in span]))
            answers.greedy.append(np.asarray([token.rank == 1 for token in span], bool))
        return answers


def time_vllm(
    folder: str, dtype: str, memory: float, requests: Requests, budget: float
) -> JsonObject:
    """Seconds for all requests, scaled from evenly sampled ones, as many as fit into the budget
    (seconds)."""
    vllm = Vllm(folder, dtype, memory)
    pilot = evenly(requests, PILOT)
    vllm.score(pilot)
    seconds, _ = seconds_of(lambda: vllm.score(pilot))
    chosen = evenly(requests, max(PILOT, int(len(pilot) * budget / seconds)))
    measured, _ = seconds_of(lambda: vllm.score(chosen))
    tokens, ran = (int(some.offsets[-1]) for some in (requests, chosen))
    return {
        "seconds": measured * tokens / ran,
        "measured_seconds": measured,
        "places": tokens,
        "measured_places": ran,
    }


def evenly(requests: Requests, count: int) -> Requests:
    return select(
        requests,
        np.linspace(0, len(requests), min(count, len(requests)), endpoint=False).astype(int),
    )
