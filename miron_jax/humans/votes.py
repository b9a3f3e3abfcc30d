"""Answers -> one label an item, by the two procedures of MERA's human baselines.

Arrives: `Answer`s.  Leaves: labels, and how each was decided.  It deliberately does not know right
answers other than those of control tasks.  Source: MERA's human-benchmark repository, its published
table (A) and its notebooks (B).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from miron_jax.humans.annotations import Answer, Project

REJECT_BELOW = 0.5  # share of control tasks that a kept annotator has right
MOST_SKILLED = 3

Origin = Literal["one answer", "plurality", "skill", "most skilled", "GLAD", "undecided"]
Votes = dict[tuple[str, ...], list[Answer]]


class Worker(NamedTuple):
    controls: int
    right: int

    @property
    def is_rejected(self) -> bool:
        """Annotators with exactly half right, or without control tasks, are kept."""
        return self.controls > 0 and self.right / self.controls < REJECT_BELOW


class Label(NamedTuple):
    answer: str
    origin: Origin


def workers(answers: Sequence[Answer], project: Project) -> dict[str, Worker]:
    """Each annotator's result on control tasks, repeats counted."""
    controls = Counter[str]()
    right = Counter[str]()
    for answer in answers:
        controls[answer.worker] += answer.right is not None  # 0 is an entry too
        if answer.right is not None:
            right[answer.worker] += project.is_right(answer.answer, answer.right)
    return {worker: Worker(controls[worker], right[worker]) for worker in controls}


def collect_votes(
    answers: Sequence[Answer],
    rejected: Collection[str],
    project: Project,
) -> Votes:
    """Votes by item in file order: answers to items other than control tasks, of annotators who are
    not rejected.

    An item without votes keeps its entry.  Where the project gives an annotator one vote an item,
    it is the first in time; without times, the first in the files.
    """
    counted = [answer for answer in answers if answer.right is None or project.controls_vote]
    votes: Votes = {answer.item: [] for answer in counted}
    voted: set[tuple[str, tuple[str, ...]]] = set()
    if project.one_vote:
        counted.sort(key=lambda answer: answer.time)
    for vote in counted:
        is_repeated = project.one_vote and (vote.worker, vote.item) in voted
        if vote.worker not in rejected and not is_repeated:
            voted.add((vote.worker, vote.item))
            votes[vote.item].append(vote)
    return votes


def procedure_a(votes: Votes, project: Project) -> dict[tuple[str, ...], str]:
    """The most common answer of each item, if no other is as common and enough annotators gave it
    (see `Project`).  Other items are dropped."""
    labels = {}
    for item, cast in votes.items():
        counts = Counter(vote.answer for vote in cast)
        answer = most_common(counts)
        if answer is None:
            continue
        needed = len(cast) // 2 + 1 if project.needed is None else project.needed
        if project.plurality or counts[answer] >= needed:
            labels[item] = answer
    return labels


def most_common(counts: Counter[str]) -> str | None:
    """The most common answer; None if another is as common, or there is none."""
    ranked = counts.most_common(2)
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        return None
    return ranked[0][0]


def procedure_b(
    votes: Votes, skills: Mapping[str, float], glad: Mapping[str, float] | None = None
) -> dict[tuple[str, ...], Label]:
    """A label for every item: a plurality wins; ties go by the sum of skills, then by the most
    skilled annotators, then by the sum of `glad`, annotators' ability in GLAD (humans/glad.py).  An
    item that is still tied is `undecided` and has its first answer."""
    return {item: _decide(cast, skills, glad) for item, cast in votes.items() if cast}


def _decide(
    votes: Sequence[Answer], skills: Mapping[str, float], glad: Mapping[str, float] | None
) -> Label:
    counts = Counter(vote.answer for vote in votes)
    if len(counts) == 1:
        return Label(votes[0].answer, "one answer")
    if (winner := most_common(counts)) is not None:
        return Label(winner, "plurality")
    if (winner := _most_skilled(votes, skills)) is not None:
        return Label(winner, "skill")
    few = sorted(votes, key=lambda vote: -skills.get(vote.worker, 0.0))[:MOST_SKILLED]
    if skills and (winner := _most_skilled(few, skills)) is not None:
        return Label(winner, "most skilled")
    if glad is not None and (winner := _most_skilled(votes, glad)) is not None:
        return Label(winner, "GLAD")
    return Label(votes[0].answer, "undecided")


def _most_skilled(votes: Sequence[Answer], skills: Mapping[str, float]) -> str | None:
    """The answer with most votes, then the largest sum of skills.

    None if the sums of the first two are equal, whatever their votes, as in MERA's notebooks.
    """
    counts = Counter[str]()
    sums = Counter[str]()
    for vote in votes:
        counts[vote.answer] += 1
        sums[vote.answer] += skills.get(vote.worker, 0.0)  # type: ignore[assignment]
    ranked = sorted(counts, key=lambda answer: (-counts[answer], -sums[answer]))
    if len(ranked) > 1 and sums[ranked[0]] == sums[ranked[1]]:
        return None
    return ranked[0]
