"""Annotations -> the human baseline of a task, by both procedures, with the numbers that qualify
it.

Arrives: `Annotations`, a rule for right answers if there is one.  Leaves: `Baseline`.  It
deliberately does not know files.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from miron_jax.humans.agreement import krippendorff_alpha
from miron_jax.humans.annotations import PROJECTS, Annotations, Project, accepted
from miron_jax.humans.certainty import (
    Needed,
    RandomAnnotators,
    Resampled,
    by_agreement,
    random_annotators,
    resampled,
)
from miron_jax.humans.gold import Gold
from miron_jax.humans.votes import (
    Label,
    Votes,
    collect_votes,
    most_common,
    procedure_a,
    procedure_b,
    workers,
)
from miron_jax.metrics.answers import token_f1
from miron_jax.statistics.estimate import estimate, wilson
from miron_jax.tasks.mera.metrics import macro_f1, matthews


@dataclass(frozen=True, slots=True)
class Accuracy:
    value: float
    n: int
    right: int
    ci95: tuple[float, float]  # Wilson


@dataclass(frozen=True, slots=True)
class Mean:
    """Of numbers between 0 and 1."""

    value: float
    n: int
    ci95: tuple[float, float] | None  # normal; None: of one number


@dataclass(frozen=True, slots=True)
class Procedure:
    """Labels of one procedure and how often they are right."""

    labelled: int
    coverage: float  # of all items
    origins: dict[str, int]  # rule that decided -> labels
    without_gold: int  # labelled items without a known right answer; the accuracy leaves them out
    # None: no rule for right answers; of texts, MERA's exact match
    accuracy: Accuracy | None
    token_f1: Mean | None  # of texts, MERA's f1; None: they are no texts, or without right answers
    f1_macro: float | None  # of labels against right answers; None: there are none, or texts
    mcc: float | None  # Matthews' correlation, of two answers; the one that sorts last is positive
    resampled: Resampled | None = None  # of the accuracy; None: without it, or no draw has one


@dataclass(frozen=True, slots=True)
class Baseline:
    rows: int
    dropped_rows: int  # without item or worker
    repeated: int  # answers of an annotator who had answered the item before, which do not count
    items: int  # other than control tasks
    test_items: int | None  # of the whole test set; None: not known
    even: int  # items whose most common answers have equally many votes; A drops them
    overlap: dict[int, int]  # votes an item -> items, before annotators are rejected
    workers: int
    rejected: dict[str, tuple[int, int]]  # worker -> (controls, right)
    workers_without_controls: int
    controls_a_worker: float  # median
    alpha_before: float | None  # Krippendorff's, nominal, of all annotators
    alpha: float | None  # of kept annotators
    single_annotator: Accuracy | None  # one answer of a kept annotator
    a: Procedure
    b: Procedure
    by_agreement: tuple[Needed, ...] = ()  # from one equal vote up
    random: RandomAnnotators | None = None  # None: no control tasks, or texts


def baseline(
    annotations: Annotations,
    gold: Gold | None,
    skills: Mapping[str, float],
    project: Project = PROJECTS["plain"],
    glad: Callable[[Annotations], Mapping[str, float] | None] = lambda annotations: None,
) -> tuple[Baseline, dict[tuple[str, ...], str], dict[tuple[str, ...], Label]]:
    """The baseline, and the labels by item of procedures A and B.  `glad` fits abilities; it runs
    only if items are tied."""
    known = workers(annotations.answers, project)
    rejected = {}
    for name, worker in known.items():
        if worker.is_rejected and project.is_filtered:
            rejected[name] = (worker.controls, worker.right)
    everyone = collect_votes(annotations.answers, (), project)
    kept = collect_votes(annotations.answers, rejected, project)
    right = {item: gold and gold.rule(item) for item in everyone}

    def is_right(item: tuple[str, ...], answer: str) -> bool | None:
        of_item = right[item]
        return None if of_item is None else project.is_right(answer, of_item)

    labels = procedure_a(kept, project)
    decided = procedure_b(kept, skills)
    if any(label.origin == "undecided" for label in decided.values()):
        decided = procedure_b(kept, skills, glad(annotations))
    decided_b = dict[tuple[str, ...], str]()
    for item, label in decided.items():
        if label.origin != "undecided":
            decided_b[item] = label.answer
    counted = sum(answer.right is None or project.controls_vote for answer in annotations.answers)
    single = [
        project.is_right(vote.answer, of_item)
        for item, votes in kept.items()
        for vote in votes
        if (of_item := right[item]) is not None
    ]
    random = None
    if project.is_filtered:
        random = random_annotators(annotations.answers, known, project)
    measured = Baseline(
        rows=len(annotations.answers),
        dropped_rows=annotations.num_dropped,
        repeated=counted - sum(map(len, everyone.values())),
        items=len(everyone),
        test_items=None if gold is None else gold.items,
        even=sum(
            bool(cast) and most_common(Counter(vote.answer for vote in cast)) is None
            for cast in kept.values()
        ),
        overlap=dict(sorted(Counter(map(len, everyone.values())).items())),
        workers=len(known),
        rejected=rejected,
        workers_without_controls=sum(not worker.controls for worker in known.values()),
        controls_a_worker=median(worker.controls for worker in known.values()) if known else 0.0,
        alpha_before=_alpha(everyone),
        alpha=_alpha(kept),
        single_annotator=_accuracy(single),
        a=_procedure(labels, Counter({_rule_of_a(project): len(labels)}), right, gold, project),
        b=_procedure(
            decided_b,
            Counter(label.origin for label in decided.values()),
            right,
            gold,
            project,
        ),
        by_agreement=by_agreement(kept, is_right),
        random=random,
    )
    a = measured.a
    b = measured.b
    if a.accuracy is not None:
        a = replace(a, resampled=resampled(kept, is_right, project, None))
    if b.accuracy is not None:
        b = replace(b, resampled=resampled(kept, is_right, project, decided_b))
    return replace(measured, a=a, b=b), labels, decided


def _rule_of_a(project: Project) -> str:
    if project.plurality:
        return "a strict plurality"
    return "more than half" if project.needed is None else f"{project.needed} equal votes"


def _alpha(votes: Votes) -> float | None:
    return krippendorff_alpha([vote.answer for vote in cast] for cast in votes.values())


def _procedure(
    labels: Mapping[tuple[str, ...], str],
    origins: Counter[str],
    right: Mapping[tuple[str, ...], str | None],
    gold: Gold | None,
    project: Project,
) -> Procedure:
    pairs = [
        (answer, known) for item, answer in labels.items() if (known := right[item]) is not None
    ]
    accuracy = _accuracy([project.is_right(*pair) for pair in pairs])
    unknown = 0 if gold is None else len(labels) - len(pairs)
    coverage = len(labels) / len(right) if right else 0.0
    counts = (len(labels), coverage, dict(origins), unknown)
    if project.are_texts:
        return Procedure(*counts, accuracy, _token_f1(pairs), None, None)
    numbers = dict[str, float]()
    if pairs:
        values = sorted({value for pair in pairs for value in pair})
        numbers = class_numbers(pairs, np.ones(len(pairs)), values)
    return Procedure(*counts, accuracy, None, numbers.get("f1_macro"), numbers.get("mcc"))


def _token_f1(pairs: Sequence[tuple[str, str]]) -> Mean | None:
    if not pairs:
        return None
    mean = estimate([token_f1(answer, accepted(right)) for answer, right in pairs], False)
    ci95 = None
    if len(pairs) > 1:
        low, high = mean.ci95
        ci95 = max(low, 0.0), min(high, 1.0)
    return Mean(mean.value, len(pairs), ci95)


def class_numbers(
    pairs: Sequence[tuple[str, str]], weights: np.ndarray, classes: Sequence[str]
) -> dict[str, float]:
    """f1_macro and, of two classes, mcc, Matthews' correlation: MERA's measures of RCB and the TAPE
    sets, and of ruEthics.  `pairs`: answer and right answer; `classes`: sorted, the last is
    positive; `weights`, float64 [pairs]: how often each counts."""
    answers = [answer for answer, _ in pairs]
    right = [gold for _, gold in pairs]
    numbers = {"f1_macro": macro_f1(answers, right, weights)}
    if len(classes) == 2:
        is_answer = np.asarray(answers) == classes[1]
        numbers["mcc"] = matthews(is_answer, np.asarray(right) == classes[1], weights)
    return numbers


def _accuracy(judged: list[bool]) -> Accuracy | None:
    if not judged:
        return None
    n = len(judged)
    right = sum(judged)
    return Accuracy(right / n, n, right, wilson(right / n, n))
