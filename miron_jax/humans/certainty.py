"""How sure a human score is: by the agreement that labels need, by who was asked, and by what the
filter of annotators removes of random answers.

Arrives: votes by item, which answers are right.  Leaves: `Needed`, `Resampled`, `RandomAnnotators`.
It deliberately does not know files or how items are labelled in the end.

    interval over both    annotators and items are drawn again, with replacement, each as often as
                          there are, and every vote counts (draws of its annotator) times; the
                          score is taken of the drawn items that are labelled (the pigeonhole
                          bootstrap: Owen 2007, Ann. Appl. Stat. 1, 386-411; it is wider than the
                          truth rather than narrower)
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from miron_jax.humans.annotations import Answer, Project, canonical
from miron_jax.humans.votes import REJECT_BELOW, Votes, Worker, most_common
from miron_jax.statistics.estimate import BOOTSTRAP, wilson

SIMULATED = 1000  # groups of random annotators


@dataclass(frozen=True, slots=True)
class Needed:
    """The score of labels that need so many equal votes; an even split is dropped."""

    votes: int
    labelled: int
    coverage: float  # of all items
    accuracy: float | None  # None: no right answer is known of what is labelled
    ci95: tuple[float, float] | None  # Wilson's


@dataclass(frozen=True, slots=True)
class Resampled:
    """95 % intervals of a procedure's accuracy, percentiles of BOOTSTRAP draws with seed 0."""

    annotators: tuple[float, float]  # other annotators, the same items
    both: tuple[float, float]  # other annotators and other items


@dataclass(frozen=True, slots=True)
class RandomAnnotators:
    """What the filter by control tasks would remove if all annotators answered at random."""

    answers: int  # different ones, of which each is as likely
    removed: float  # share of annotators, the mean of SIMULATED groups with seed 0
    range95: tuple[float, float]  # of that share, over the groups
    votes_removed: float  # share of their votes
    without_controls: float  # share of annotators whom no filter can remove


Right = Callable[[tuple[str, ...], str], bool | None]  # (item, answer); None: not known


def by_agreement(votes: Votes, right: Right) -> tuple[Needed, ...]:
    """From one vote, a strict plurality, to as many as an item has at most."""
    labels = list[tuple[int, bool | None]]()  # votes of the most common answer, whether it is right
    for item, cast in votes.items():
        counts = Counter(vote.answer for vote in cast)
        answer = most_common(counts)
        if answer is not None:
            labels.append((counts[answer], right(item, answer)))
    curve = list[Needed]()
    for needed in range(1, max(map(len, votes.values()), default=0) + 1):
        judged = [is_right for count, is_right in labels if count >= needed]
        known = [is_right for is_right in judged if is_right is not None]
        coverage = len(judged) / len(votes)
        if not known:
            curve.append(Needed(needed, len(judged), coverage, None, None))
            continue
        accuracy = sum(known) / len(known)
        ci95 = wilson(accuracy, len(known))
        curve.append(Needed(needed, len(judged), coverage, accuracy, ci95))
    return tuple(curve)


class _Votes(NamedTuple):
    """All votes in flat arrays.  A candidate is an answer to an item; those of an item follow each
    other."""

    worker_V: np.ndarray  # int64, of each vote
    candidate_V: np.ndarray  # int64
    first_I: np.ndarray  # int64, each item's first candidate
    item_C: np.ndarray  # int64, of each candidate
    right_C: np.ndarray  # bool
    preferred_C: np.ndarray  # bool: of equally many votes this one wins
    num_workers: int


def resampled(
    votes: Votes, right: Right, project: Project, decided: Mapping[tuple[str, ...], str] | None
) -> Resampled | None:
    """Of procedure A, or of B, whose ties go as `decided` has them, else stay without a label.

    None without votes on an item of which the right answer is known, or if no draw has a score.
    """
    flat = _flat(votes, right, decided or {})
    if flat is None:
        return None
    rng = np.random.default_rng(0)
    num_items = len(flat.first_I)
    scores = np.full((2, BOOTSTRAP), np.nan)
    for draw in range(BOOTSTRAP):
        drawn_W = np.bincount(
            rng.integers(flat.num_workers, size=flat.num_workers), minlength=flat.num_workers
        )
        drawn_I = np.bincount(rng.integers(num_items, size=num_items), minlength=num_items)
        labelled_I, right_I = _labelled(flat, drawn_W, project, decided is not None)
        for i, times_I in enumerate((np.ones(num_items), drawn_I)):
            total = (times_I * labelled_I).sum()
            if total:
                scores[i, draw] = (times_I * right_I).sum() / total
    if np.isnan(scores).all(axis=1).any():
        return None
    ends = np.nanpercentile(scores, (2.5, 97.5), axis=1).T.tolist()
    return Resampled(*map(tuple, ends))


def _labelled(
    flat: _Votes, drawn_W: np.ndarray, project: Project, by_plurality: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(whether each item has a label, whether it has and that is right), bool [I] each."""
    count_C = np.bincount(
        flat.candidate_V, weights=drawn_W[flat.worker_V], minlength=len(flat.item_C)
    )
    most_I = np.maximum.reduceat(count_C, flat.first_I)
    is_most_C = (count_C == most_I[flat.item_C]) & (count_C > 0)
    is_single_I = np.add.reduceat(is_most_C, flat.first_I, dtype=np.int64) == 1
    chosen_C = is_most_C & is_single_I[flat.item_C]
    if by_plurality:
        chosen_C |= is_most_C & flat.preferred_C
    elif not project.plurality:
        needed_I = np.full(len(most_I), float(project.needed or 0))
        if project.needed is None:
            needed_I = np.floor(np.add.reduceat(count_C, flat.first_I) / 2) + 1
        chosen_C &= (most_I >= needed_I)[flat.item_C]
    labelled_I = np.logical_or.reduceat(chosen_C, flat.first_I)
    return labelled_I, np.logical_or.reduceat(chosen_C & flat.right_C, flat.first_I)


def _flat(votes: Votes, right: Right, decided: Mapping[tuple[str, ...], str]) -> _Votes | None:
    """Votes on the items of which the right answer is known."""
    workers = dict[str, int]()
    worker_V = list[int]()
    candidate_V = list[int]()
    first_I = list[int]()
    item_C = list[int]()
    right_C = list[bool]()
    preferred_C = list[bool]()
    for item, cast in votes.items():
        answers = [*dict.fromkeys(vote.answer for vote in cast)]
        if not answers or right(item, answers[0]) is None:
            continue
        first = len(item_C)
        for answer in answers:
            item_C.append(len(first_I))
            right_C.append(bool(right(item, answer)))
            preferred_C.append(decided.get(item) == answer)
        first_I.append(first)
        for vote in cast:
            worker_V.append(workers.setdefault(vote.worker, len(workers)))
            candidate_V.append(first + answers.index(vote.answer))
    if not first_I:
        return None
    return _Votes(
        np.array(worker_V),
        np.array(candidate_V),
        np.array(first_I),
        np.array(item_C),
        np.array(right_C),
        np.array(preferred_C),
        len(workers),
    )


def random_annotators(
    answers: Sequence[Answer], known: Mapping[str, Worker], project: Project
) -> RandomAnnotators | None:
    """Annotators with as many control tasks as these have, each answered by one of all answers that
    control tasks have or should have; None without a control task, or if answers are texts."""
    controls_W = np.array([worker.controls for worker in known.values()])
    if project.are_texts or not controls_W.any():
        return None
    different = set[str]()
    for answer in answers:
        if answer.right is not None:
            different |= {canonical(answer.answer), canonical(answer.right)}
    num_answers = len(different)
    of_worker = Counter(answer.worker for answer in answers if answer.right is None)
    votes_W = np.array([of_worker[name] for name in known])
    right_GW = np.random.default_rng(0).binomial(
        controls_W, 1 / num_answers, (SIMULATED, len(controls_W))
    )
    removed_GW = (controls_W > 0) & (right_GW < REJECT_BELOW * controls_W)
    share_G = removed_GW.mean(axis=1)
    low, high = np.percentile(share_G, (2.5, 97.5)).tolist()
    votes_removed = (removed_GW @ votes_W).mean() / max(votes_W.sum(), 1)
    return RandomAnnotators(
        num_answers,
        float(share_G.mean()),
        (low, high),
        float(votes_removed),
        float((controls_W == 0).mean()),
    )
