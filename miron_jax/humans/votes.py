"""Answers -> one label an item, by the two procedures of MERA's human baselines.

Arrives: `Answer`s.  Leaves: labels, and how each was decided.  It deliberately does not know what is right beyond control
tasks.  Source: MERA's human-benchmark repository, its published table (A) and its notebooks (B).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from miron_jax.humans.annotations import PROJECTS, Answer, Project

NEEDED = 3  # equal votes that procedure A wants, whatever the number of votes
REJECT_BELOW = 0.5  # share of control tasks that a kept annotator has right
MOST_SKILLED = 3

Origin = Literal["one answer", "plurality", "skill", "most skilled", "GLAD", "undecided"]
Votes = dict[tuple[str, ...], list[Answer]]


class Worker(NamedTuple):
    controls: int
    right: int

    @property
    def is_rejected(self) -> bool:
        """Exactly half right stays, and so does who had no control task."""
        return self.controls > 0 and self.right / self.controls < REJECT_BELOW


class Label(NamedTuple):
    answer: str
    origin: Origin


def workers(answers: Sequence[Answer]) -> dict[str, Worker]:
    """How each did on control tasks, repeats counted."""
    controls, right = Counter[str](), Counter[str]()
    for own in answers:
        controls[own.worker] += own.right is not None
        right[own.worker] += own.right is not None and own.answer == own.right
    return {worker: Worker(controls[worker], right[worker]) for worker in controls}


def votes(
    answers: Sequence[Answer],
    rejected: Collection[str] = (),
    project: Project = PROJECTS["plain"],
) -> Votes:
    """Answers to items that are no control tasks, of annotators who are not rejected, by item in file order.

    Where control tasks vote too, an annotator who met one several times has one vote there, the first by its time.
    """
    found: Votes = defaultdict(list)
    voted: set[tuple[str, tuple[str, ...]]] = set()
    ordered = sorted(answers, key=lambda own: own.when) if project.controls_vote else answers
    for own in answers:
        if own.right is None or project.controls_vote:
            found[own.item]  # an item keeps its place where nobody's answer counts
    for own in ordered:
        if own.item not in found or own.worker in rejected or (own.right is not None and not project.controls_vote):
            continue
        if project.controls_vote and (own.worker, own.item) in voted:
            continue
        voted.add((own.worker, own.item))
        found[own.item].append(own)
    return dict(found)


def procedure_a(found: Votes, needed: int = NEEDED, plurality: bool = False) -> dict[tuple[str, ...], str]:
    """The most common answer where `needed` annotators gave it, or, by `plurality`, where no other is as common; other
    items are dropped."""
    labels = {}
    for item, own in found.items():
        counts = Counter(vote.answer for vote in own).most_common(2)
        if counts and (counts[0][1] > (counts[1][1] if counts[1:] else 0) if plurality else counts[0][1] >= needed):
            labels[item] = counts[0][0]
    return labels


def procedure_b(
    found: Votes, skills: Mapping[str, float], glad: Mapping[str, float] | None = None
) -> dict[tuple[str, ...], Label]:
    """Nothing is dropped: a plurality wins, ties go by the sum of skills, then by the most skilled annotators, then by the
    sum of `glad`, annotators' ability in GLAD (humans/glad.py).  What is still even is `undecided`, first answer."""
    return {item: _decided(own, skills, glad) for item, own in found.items() if own}


def _decided(own: Sequence[Answer], skills: Mapping[str, float], glad: Mapping[str, float] | None) -> Label:
    counts = Counter(vote.answer for vote in own)
    if len(counts) == 1:
        return Label(own[0].answer, "one answer")
    (first, most), (_, second) = counts.most_common(2)
    if most > second:
        return Label(first, "plurality")
    if (winner := _most_skilled(own, skills)) is not None:
        return Label(winner, "skill")
    few = sorted(own, key=lambda vote: -skills.get(vote.worker, 0.0))[:MOST_SKILLED]
    if skills and (winner := _most_skilled(few, skills)) is not None:
        return Label(winner, "most skilled")
    if glad is not None and (winner := _most_skilled(own, glad)) is not None:
        return Label(winner, "GLAD")
    return Label(own[0].answer, "undecided")


def _most_skilled(own: Sequence[Answer], skills: Mapping[str, float]) -> str | None:
    """The answer with most votes, then the largest sum of skills; None where the sums of the first two are equal, whatever
    their votes, as in MERA's notebooks."""
    counts, sums = Counter[str](), Counter[str]()
    for vote in own:
        counts[vote.answer] += 1
        sums[vote.answer] += skills.get(vote.worker, 0.0)  # type: ignore[assignment]
    ranked = sorted(counts, key=lambda answer: (-counts[answer], -sums[answer]))
    if len(ranked) > 1 and sums[ranked[0]] == sums[ranked[1]]:
        return None
    return ranked[0]
