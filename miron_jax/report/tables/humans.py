"""Human baselines on screen.

Arrives: a `Baseline`, or suites with published ones.  Leaves: rows and lines, on standard output or
for a page.  It deliberately computes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping

from miron_jax.definitions.records import Suite
from miron_jax.humans.baseline import Accuracy, Baseline
from miron_jax.humans.ethics import EthicsValues
from miron_jax.report.numbers import shown
from miron_jax.report.tables.console import console, table_of

PROCEDURE = (
    "labels", "n", "coverage", "accuracy", "95 % interval", "right", "macro F1", "MCC",
    "decided by",
)  # fmt: skip
AGREEMENT = ("equal votes needed", "labels", "coverage", "accuracy", "95 % interval")


def print_baseline(measured: Baseline) -> None:
    """Prints both procedures and a single annotator, then annotators and their agreement."""
    out = console()
    table = table_of(
        ("labels",),
        PROCEDURE[1:-1],
        ("decided by",),
        gives_way=("decided by", "MCC", "macro F1", "right", "coverage"),
    )
    for row in procedure_rows(measured):
        table.add_row(*row)
    out.print(table)
    if measured.by_agreement:
        table = table_of(AGREEMENT[:1], AGREEMENT[1:])
        for row in agreement_rows(measured):
            table.add_row(*row)
        out.print(table)
    for line in baseline_lines(measured):
        out.print(line, soft_wrap=True)


def procedure_rows(measured: Baseline) -> Iterator[tuple[str, ...]]:
    """Cells under PROCEDURE."""
    for name, procedure in (
        ("A: enough votes, else dropped", measured.a),
        ("B: plurality, then skills", measured.b),
    ):
        scores = (
            *_accuracy(procedure.accuracy),
            shown(procedure.f1_macro, ".3f"),
            shown(procedure.mcc, ".3f"),
        )
        origins = ", ".join(f"{rule} {count}" for rule, count in procedure.origins.items())
        yield name, str(procedure.labelled), f"{procedure.coverage:.3f}", *scores, origins
    yield "one annotator", "", "", *_accuracy(measured.single_annotator), "", "", ""


def agreement_rows(measured: Baseline) -> Iterator[tuple[str, ...]]:
    """Cells under AGREEMENT."""
    for needed in measured.by_agreement:
        bounds = ""
        if needed.ci95 is not None:
            bounds = "{:.3f} - {:.3f}".format(*needed.ci95)
        accuracy = shown(needed.accuracy, ".3f")
        yield str(needed.votes), str(needed.labelled), f"{needed.coverage:.3f}", accuracy, bounds


def baseline_lines(measured: Baseline) -> list[str]:
    """Annotators, their agreement, what else qualifies the numbers."""
    rejected = sum(controls for controls, _ in measured.rejected.values())
    return [
        f"{measured.rows} answers by {measured.workers} annotators to {measured.items} items; "
        "answers an item: "
        + ", ".join(f"{count} x {votes}" for votes, count in measured.overlap.items()),
        f"rejected: {len(measured.rejected)} annotators, less than half of their control tasks "
        f"right ({rejected} in all); control tasks an annotator, median: "
        f"{measured.controls_a_worker:g}; without any, and kept: "
        f"{measured.workers_without_controls}",
        f"Krippendorff's alpha (nominal): {_number(measured.alpha)}; with rejected annotators "
        f"{_number(measured.alpha_before)}",
        *_of_random(measured),
        *_of_annotators(measured),
        *_f1_of_texts(measured),
        *_notes(measured),
    ]


def print_human_values(suites: Iterable[Suite]) -> None:
    """Prints every published human value that a suite's task is compared with, and where it
    stands."""
    out = console()
    texts = ("how", "notes")
    table = table_of(
        ("task", "metric"),
        ("value", "n", "procedure"),
        texts,
        gives_way=("notes", "how", "procedure"),
    )
    sources: dict[str, int] = {}
    for suite in suites:
        for task in suite.tasks:
            for baseline in getattr(task, "human", ()):
                notes = filter(None, (baseline.paper, baseline.note, baseline.otherwise))
                numbers = (f"{baseline.value:.3f}", shown(baseline.n, "d"), baseline.procedure)
                source = sources.setdefault(baseline.published, len(sources) + 1)
                how = f"{baseline.source} [{source}]"
                table.add_row(task.name, baseline.metric, *numbers, how, "; ".join(notes))
    out.print(table)
    for published, source in sources.items():
        out.print(f"[{source}] {published}", soft_wrap=True)
    out.print(
        "--human_baseline of eval chooses between A and B, which must not be mixed", soft_wrap=True
    )


def print_ethics(by_procedure: Mapping[str, EthicsValues]) -> None:
    """Prints ruEthics' correlations, one row per question and category, one column per
    procedure."""
    names = dict[str, float | None]()
    for values in by_procedure.values():
        names |= values.mcc
    if not names:
        return
    out = console()
    table = table_of(("question", "category"), [f"MCC, {name}" for name in by_procedure])
    for name in names:
        table.add_row(
            *name.split("."), *(_number(values.mcc.get(name)) for values in by_procedure.values())
        )
    out.print(table)
    for name, values in by_procedure.items():
        counts = ", ".join(f"{question} {count}" for question, count in values.n.items())
        out.print(
            f"{name}: items of {counts}; {values.without_gold} have no right answer and are left "
            "out",
            soft_wrap=True,
        )


def _of_annotators(measured: Baseline) -> Iterator[str]:
    """Intervals that also know that others could have been asked."""
    for name, procedure in (("A", measured.a), ("B", measured.b)):
        if procedure.resampled is not None:
            annotators = "{:.3f} to {:.3f}".format(*procedure.resampled.annotators)
            both = "{:.3f} to {:.3f}".format(*procedure.resampled.both)
            yield (
                f"{name}'s accuracy with other annotators: {annotators}; with other annotators and "
                f"other items: {both} (95 %, bootstrap)"
            )


def _of_random(measured: Baseline) -> Iterator[str]:
    random = measured.random
    if random is not None:
        low, high = random.range95
        share = len(measured.rejected) / measured.workers
        yield (
            f"annotators who answer at random (one of {random.answers} answers) would be rejected "
            f"in {100 * random.removed:.1f} % ({100 * low:.1f} to {100 * high:.1f}), with "
            f"{100 * random.votes_removed:.1f} % of their votes; here {100 * share:.1f} % are"
        )


def _f1_of_texts(measured: Baseline) -> list[str]:
    lines = []
    for name, procedure in (("A", measured.a), ("B", measured.b)):
        mean = procedure.token_f1
        if mean is not None:
            of_one = "no interval of one item"
            about = of_one if mean.ci95 is None else "{:.3f} to {:.3f}".format(*mean.ci95)
            lines.append(f"token F1 of {name}'s texts: {mean.value:.3f} ({about}), n {mean.n}")
    return lines


def _notes(measured: Baseline) -> list[str]:
    notes = []
    if measured.test_items is not None:
        notes.append(
            f"the test set has {measured.test_items} items; {measured.items} have answers here, "
            f"A labels {measured.a.labelled} and B {measured.b.labelled}"
        )
    if measured.repeated:
        notes.append(
            f"{measured.repeated} answers are an annotator's second or later one to an item, and "
            "do not count"
        )
    if measured.even:
        notes.append(f"{measured.even} items have an even split of votes, and A drops them")
    if measured.dropped_rows:
        notes.append(f"{measured.dropped_rows} lines without an item or an annotator are left out")
    if measured.a.without_gold or measured.b.without_gold:
        notes.append(
            "labelled items without a right answer, left out of the accuracy: "
            f"{measured.a.without_gold} of A, {measured.b.without_gold} of B"
        )
    if undecided := measured.b.origins.get("undecided", 0):
        notes.append(
            f"{undecided} items are even under B and left out of it; --skills may decide them, and "
            "GLAD does: pip install crowd-kit"
        )
    return notes


def _accuracy(accuracy: Accuracy | None) -> tuple[str, str, str]:
    if accuracy is None:
        return "", "", ""
    low, high = accuracy.ci95
    return f"{accuracy.value:.3f}", f"{low:.3f} - {high:.3f}", f"{accuracy.right} of {accuracy.n}"


def _number(value: float | None) -> str:
    return shown(value, ".3f", "none")
