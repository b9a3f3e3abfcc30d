"""Do this engine and torch give the same answers?  Torch one option a forward, and what differs.

Arrives: `Work`, this engine's `Answers`, a torch model.  Leaves: `Differences`.  It deliberately does not know flags,
files or time.
"""

from typing import NamedTuple

import numpy as np
from common import Answers, PlainTorch, Work, predictions

from miron_jax.metrics.choices import mean_losses


class TorchAnswers(NamedTuple):
    """One entry a request; arrays cover the scored span."""

    logprob: list[np.ndarray]  # nats
    greedy: list[np.ndarray]  # bool
    margin: list[np.ndarray]  # logit of the token less the best other one; its sign is the greedy flag


class Differences(NamedTuple):
    """What one work shows."""

    nats: np.ndarray  # absolute difference of every scored token
    beyond: list[int]  # requests with a token beyond the tolerance
    close: list[str]  # flags or choices that differ where two scores are closer than twice the tolerance
    wrong: list[str]  # those that differ elsewhere


def score_each(torch: PlainTorch, work: Work) -> TorchAnswers:
    """Torch, one request a forward, nothing kept."""
    answers = TorchAnswers([], [], [])
    for ids, start in work.requests:
        for column, value in zip(answers, score_one(torch, ids, start), strict=True):
            column.append(value)
    return answers


def score_one(torch: PlainTorch, ids: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(log-probability, greedy, margin) of the tokens from `start` on, in the model's dtype."""
    t = torch.torch
    if start == len(ids):
        return np.zeros(0), np.zeros(0, bool), np.zeros(0)
    with t.inference_mode():
        logits_NV = torch.logits([ids])[0, start - 1 : -1]
        target_N1 = t.tensor(ids[start:].astype(np.int64), device=torch.device)[:, None]
        logprob_N = t.log_softmax(logits_NV, dim=-1).gather(1, target_N1)[:, 0]
        chosen_N = logits_NV.gather(1, target_N1)[:, 0]
        best_other_N = logits_NV.scatter(1, target_N1, -t.inf).amax(dim=1)
        greedy_N = logits_NV.argmax(dim=1) == target_N1[:, 0]
        margin_N = chosen_N - best_other_N
        return logprob_N.double().cpu().numpy(), greedy_N.cpu().numpy(), margin_N.double().cpu().numpy()


def compare(work: Work, ours: Answers, theirs: TorchAnswers, tolerance: float) -> Differences:
    differs = [np.abs(a.astype(np.float64) - b) for a, b in zip(ours.logprob, theirs.logprob, strict=True)]
    beyond = [r for r, difference in enumerate(differs) if not (difference <= tolerance).all()]
    close: list[str] = []
    wrong: list[str] = []
    for where, far, line in [*_flags_that_differ(ours, theirs), *_choices_that_differ(work, ours, theirs)]:
        (close if far < 2 * tolerance else wrong).append(f"{work.task.name}, {where}: {line}, {far:.1e} apart")
    return Differences(np.concatenate([np.zeros(0), *differs]), beyond, close, wrong)


class Differing(NamedTuple):
    where: str
    far: float  # how far apart torch holds the two answers: logits, or nats a token
    line: str


def _flags_that_differ(ours: Answers, theirs: TorchAnswers) -> list[Differing]:
    return [
        Differing(f"request {r}, scored token {i}", abs(float(margin[i])), f"greedy {a[i]} here, {b[i]} in torch")
        for r, (a, b, margin) in enumerate(zip(ours.greedy, theirs.greedy, theirs.margin, strict=True))
        for i in np.flatnonzero(a != b)
    ]


def _choices_that_differ(work: Work, ours: Answers, theirs: TorchAnswers) -> list[Differing]:
    own, other = predictions(work, ours), predictions(work, Answers(theirs.logprob, theirs.greedy))
    found = []
    for i, (here, there) in enumerate(zip(own, other, strict=True)):
        if here == there or work.prompts[i].gold is None:
            continue
        far = float("inf")
        if here is not None and there is not None:
            losses = mean_losses(theirs.logprob[work.first[i] : work.first[i + 1]])
            far = abs(float(losses[here]) - float(losses[there]))
        found.append(Differing(f"example {work.prompts[i].id}", far, f"option {here} here, {there} in torch"))
    return found
