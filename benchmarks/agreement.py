"""Do this engine and torch give the same answers?  Torch with one choice a forward, and what
differs.

Arrives: `Work`, this engine's `Answers`, a torch model.  Leaves: `Differences`, `Verdicts`.  It
deliberately does not know flags, files or time.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from common import Answers, Work, predictions, say
from peers import PlainTorch

from miron_jax.metrics.choices import mean_losses
from miron_jax.metrics.spans import Spans


class TorchAnswers(NamedTuple):
    """One entry a request; arrays cover the scored span."""

    logprob: list[np.ndarray]  # nats
    greedy: list[np.ndarray]  # bool
    # logit of the token less the best other one; its sign is the greedy flag
    margin: list[np.ndarray]


class Differences(NamedTuple):
    """How this engine's answers to one `Work` differ from torch's."""

    nats: np.ndarray  # absolute difference of every scored token
    beyond: list[int]  # requests with a token beyond the tolerance
    # flags or choices that differ where two scores are closer than twice the tolerance
    close: list[str]
    wrong: list[str]  # all other flags or choices that differ


def score_each(torch: PlainTorch, work: Work) -> TorchAnswers:
    """Score by torch, one request a forward, without a cache; requests that differ in the last
    token alone share theirs."""
    answers = TorchAnswers([], [], [])
    before: tuple[bytes, int] | None = None
    logits_NV = None
    for ids, start in work.requests:
        if before != (ids[:-1].tobytes(), start):
            before, logits_NV = (ids[:-1].tobytes(), start), logits_of(torch, ids, start)
        for column, value in zip(
            answers, judge_targets(torch, logits_NV, ids[start:]), strict=True
        ):
            column.append(value)
    return answers


def score_one(
    torch: PlainTorch, ids: np.ndarray, start: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(log-probability, greedy, margin) of the tokens from `start` on, in the model's dtype."""
    return judge_targets(torch, logits_of(torch, ids, start), ids[start:])


def logits_of(torch: PlainTorch, ids: np.ndarray, start: int) -> Any:
    """Torch's [N, V] before each of the tokens from `start` on; None where there are none."""
    if start == len(ids):
        return None
    with torch.torch.inference_mode():
        return torch.logits([ids[:-1]])[0, start - 1 :]


def judge_targets(
    torch: PlainTorch, logits_NV: Any, target_N: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if logits_NV is None:
        return np.zeros(0), np.zeros(0, bool), np.zeros(0)
    t = torch.torch
    with t.inference_mode():
        target_N1 = t.tensor(target_N.astype(np.int64), device=torch.device)[:, None]
        logprob_N = t.log_softmax(logits_NV, dim=-1).gather(1, target_N1)[:, 0]
        chosen_N = logits_NV.gather(1, target_N1)[:, 0]
        best_other_N = logits_NV.scatter(1, target_N1, -t.inf).amax(dim=1)
        greedy_N = logits_NV.argmax(dim=1) == target_N1[:, 0]
        margin_N = chosen_N - best_other_N
        return (
            logprob_N.double().cpu().numpy(),
            greedy_N.cpu().numpy(),
            margin_N.double().cpu().numpy(),
        )


def compare(work: Work, ours: Answers, theirs: TorchAnswers, tolerance: float) -> Differences:
    differs = [
        np.abs(a.astype(np.float64) - b) for a, b in zip(ours.logprob, theirs.logprob, strict=True)
    ]
    beyond = [r for r, difference in enumerate(differs) if not (difference <= tolerance).all()]
    close: list[str] = []
    wrong: list[str] = []
    for label, gap, line in [
        *_flags_that_differ(ours, theirs),
        *_choices_that_differ(work, ours, theirs),
    ]:
        (close if gap < 2 * tolerance else wrong).append(
            f"{work.task.name}, {label}: {line}, {gap:.1e} apart"
        )
    return Differences(np.concatenate([np.zeros(0), *differs]), beyond, close, wrong)


class Differing(NamedTuple):
    label: str
    gap: float  # between the two answers in torch: logits, or nats a token
    line: str


def _flags_that_differ(ours: Answers, theirs: TorchAnswers) -> list[Differing]:
    return [
        Differing(
            f"request {r}, scored token {i}",
            abs(float(margin[i])),
            f"greedy {a[i]} here, {b[i]} in torch",
        )
        for r, (a, b, margin) in enumerate(
            zip(ours.greedy, theirs.greedy, theirs.margin, strict=True)
        )
        for i in np.flatnonzero(a != b)
    ]


def _choices_that_differ(work: Work, ours: Answers, theirs: TorchAnswers) -> list[Differing]:
    our_choices, their_choices = (
        predictions(work, ours),
        predictions(work, Answers(theirs.logprob, theirs.greedy)),
    )
    differing = []
    for i, (our_choice, their_choice) in enumerate(zip(our_choices, their_choices, strict=True)):
        if our_choice == their_choice or work.prompts[i].gold is None:
            continue
        gap = loss_gap(theirs.logprob[work.first[i] : work.first[i + 1]], our_choice, their_choice)
        line = f"choice {our_choice} here, {their_choice} in torch"
        differing.append(Differing(f"example {work.prompts[i].id}", gap, line))
    return differing


def loss_gap(logprobs: list[np.ndarray], our_choice: int | None, their_choice: int | None) -> float:
    """Nats a token between the mean losses of two choices; infinite when one of the two chose
    nothing."""
    if our_choice is None or their_choice is None:
        return float("inf")
    losses = mean_losses(Spans.of_each(logprobs))
    return abs(float(losses[our_choice]) - float(losses[their_choice]))


class Verdicts(NamedTuple):
    """A line of text for each number beyond the tolerance, once torch in float64 has computed it
    again."""

    # ours is within the tolerance of float64, and torch's float32 is not nearer
    torch_rounding: list[str]
    wrong: list[str]


def say_lists(lists: Mapping[str, Sequence[str]]) -> None:
    """Print each title with the number of its lines, and the lines."""
    for title, lines in lists.items():
        say("\n".join([f"{title}: {len(lines)}", *(f"  {line}" for line in lines)]))


def say_verdicts(close_title: str, close: Sequence[str], verdicts: Verdicts) -> None:
    rounding, wrong = verdicts
    say_lists(
        {close_title: close, "closer to float64 than torch's float32 is": rounding, "WRONG": wrong}
    )
