"""Answers to MERA's records -> the metrics of MERA's site, under the site's names.

Arrives: a submission's answers, the test records with their right answers.  Leaves: metrics by data
set; none for a data set whose right answers are not published, for only the site can score it.  It
deliberately does not know models.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from miron_jax.definitions.rules import NOTHING
from miron_jax.files.readers import Json
from miron_jax.metrics.answers import WORDS, exact_match, token_f1
from miron_jax.metrics.detox import DETOX
from miron_jax.metrics.programs import pass_at
from miron_jax.tasks.mera.metrics import EXAM, GRADE_NORM, MCC, Answered, exam_points, total_score
from miron_jax.tasks.mera.submission import Key
from miron_jax.tasks.mera.table import DATA_SETS, DataSet, Version, data_sets

PASS_AT = (1, 5, 10)


def score_submission(
    answers: Mapping[str, Mapping[Key, Json]],
    records: Mapping[str, Mapping[Key, Mapping[str, Json]]],
    version: Version,
) -> dict[str, dict[str, float]]:
    """Metrics of every data set whose `records` hold the right answers.

    The site's names: acc and acc.GROUP, f1_macro, em, f1, pass@k, grade_norm, correct.virtue and so
    on.  J of ruDetox needs three classifiers and is not computed here.
    """
    numbers = {}
    for dataset in DATA_SETS:
        known = {
            key: record
            for key, record in records.get(dataset.name, {}).items()
            if record["outputs"]
        }
        if dataset.name in answers and known and dataset.match is not DETOX:
            outputs = answers[dataset.name]
            numbers[dataset.name] = _numbers(
                dataset, version, [(outputs[key], record) for key, record in known.items()]
            )
    return numbers


def expected_total(numbers: Mapping[str, Mapping[str, float]], version: Version) -> float:
    """total_score by the version's rule for missing data sets."""
    counted = [dataset.name for dataset in data_sets(version) if dataset.counts(version)]
    return total_score(numbers, counted, missing_is_zero=version == "v1.2")


def answered_record(
    dataset: DataSet, record: Mapping[str, Json], output: Json, version: Version
) -> Answered:
    """A record and its answer in the form that metrics over all records read.

    v1 divides the exam's points by 34, v1.2 by the maximum that the records state.
    """
    meta = record["meta"]
    gold = record["outputs"]
    if dataset.over_all is MCC:
        return Answered(output, gold, meta["question"])
    group = str(group_of(dataset, record) or "")
    if dataset.match is EXAM:
        points = exam_points(output, gold, meta["type"], meta["id_task"])
        most_points = 0.0 if version == "v1" else float(meta["score"])
        return Answered(output, gold, str(meta["variant"]), points, most_points)
    return Answered(output, gold, group)


def group_of(dataset: DataSet, record: Mapping[str, Json]) -> str | None:
    """The group of a record, for accuracies by group; None if its data set has no groups."""
    inputs = record["inputs"]
    named = record["meta"].get(dataset.group) or (
        inputs.get(dataset.group) if isinstance(inputs, dict) else None
    )
    return str(named) if dataset.group and named else None


def accepted(gold: Json) -> list[str]:
    """All right answers to a question: v1's MultiQ lists spans, other data sets separate them by
    ";"."""
    if isinstance(gold, list):
        return [span["segment"] for span in gold]
    return str(gold).split(";")


def _numbers(
    dataset: DataSet, version: Version, pairs: Sequence[tuple[Json, Mapping[str, Json]]]
) -> dict[str, float]:
    if dataset.kind == "program":
        right = [
            [run == record["outputs"] for run in (out[0] if version == "v1.2" else out)]
            for out, record in pairs
        ]
        return {
            f"pass@{k}": _mean([pass_at(k, len(runs), sum(runs)) for runs in right])
            for k in PASS_AT
        }
    if dataset.match is WORDS:
        texts = [
            (out[0]["segment"] if isinstance(out, list) else out, accepted(record["outputs"]))
            for out, record in pairs
        ]
        return {
            "em": _mean([exact_match(*pair) for pair in texts]),
            "f1": _mean([token_f1(*pair) for pair in texts]),
        }
    numbers = {}
    if dataset.over_all not in (MCC, GRADE_NORM):
        right = {}
        for output, record in pairs:
            text = output.strip() if dataset.kind == "text" else output
            right.setdefault(group_of(dataset, record), []).append(float(text == record["outputs"]))
        numbers["acc"] = _mean([value for values in right.values() for value in values])
        numbers |= {
            f"acc.{group}": _mean(values)
            for group, values in sorted(right.items(), key=str)
            if group
        }
    if dataset.over_all is not NOTHING:
        answered_records = [
            answered_record(dataset, record, output, version) for output, record in pairs
        ]
        numbers |= dataset.over_all.call(answered_records, np.ones(len(answered_records)))
        numbers.pop("score", None)  # the site has no name for it
    return numbers


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
