"""Answers to MERA's records -> the metrics of MERA's site, under the site's names.

Arrives: a submission's answers, the test records with their right answers.  Leaves: metrics by data
set; none for a data set whose right answers are not published, for only the site can score it.  It
deliberately does not know models.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, starmap

import numpy as np

from miron_jax.definitions.rules import NOTHING
from miron_jax.files.readers import Json
from miron_jax.metrics.answers import WORDS, exact_match, token_f1
from miron_jax.metrics.detox import DETOX
from miron_jax.metrics.programs import pass_at
from miron_jax.tasks.mera.metrics import (
    EXAM,
    GRADE_NORM,
    MCC,
    AnsweredRecord,
    exam_points,
    mean,
    total_score,
)
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
        if dataset.name not in answers or dataset.match is DETOX:
            continue
        pairs = []
        for key, record in records.get(dataset.name, {}).items():
            if record["outputs"]:
                pairs.append((answers[dataset.name][key], record))
        if pairs:
            numbers[dataset.name] = _numbers(dataset, version, pairs)
    return numbers


def expected_total(numbers: Mapping[str, Mapping[str, float]], version: Version) -> float:
    """total_score by the version's rule for missing data sets."""
    return total_score(numbers, counted(version), missing_is_zero=version == "v1.2")


def counted(version: Version) -> list[str]:
    """The data sets of the version's total."""
    return [dataset.name for dataset in data_sets(version) if dataset.counts(version)]


def answered_record(
    dataset: DataSet, record: Mapping[str, Json], output: Json, version: Version
) -> AnsweredRecord:
    """A record and its answer in the form that metrics over all records read.

    v1 divides the exam's points by 34, v1.2 by the maximum that the records state.
    """
    meta = record["meta"]
    gold = record["outputs"]
    if dataset.over_all is MCC:
        return AnsweredRecord(output, gold, meta["question"])
    group = str(group_of(dataset, record) or "")
    if dataset.match is EXAM:
        points = exam_points(output, gold, meta["type"], meta["id_task"])
        most_points = 0.0 if version == "v1" else float(meta["score"])
        return AnsweredRecord(output, gold, str(meta["variant"]), points, most_points)
    return AnsweredRecord(output, gold, group)


def group_of(dataset: DataSet, record: Mapping[str, Json]) -> str | None:
    """The group of a record, for accuracies by group; None if its data set has no groups."""
    group = stated_group(dataset, record)
    return str(group) if dataset.group and group else None


def stated_group(dataset: DataSet, record: Mapping[str, Json]) -> Json:
    """The field of the record that names its group, unchecked."""
    inputs = record["inputs"]
    of_inputs = inputs.get(dataset.group) if isinstance(inputs, dict) else None
    return record["meta"].get(dataset.group) or of_inputs


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
        return _pass_rates(pairs, version)
    if dataset.match is WORDS:
        exact, f1 = [], []
        for output, record in pairs:
            text = output[0]["segment"] if isinstance(output, list) else output
            exact.append(exact_match(text, accepted(record["outputs"])))
            f1.append(token_f1(text, accepted(record["outputs"])))
        return {"em": mean(exact), "f1": mean(f1)}
    numbers = {}
    if dataset.over_all not in (MCC, GRADE_NORM):
        right = defaultdict[str | None, list[float]](list)
        for output, record in pairs:
            text = output.strip() if dataset.kind == "text" else output
            right[group_of(dataset, record)].append(float(text == record["outputs"]))
        numbers["acc"] = mean(list(chain(*right.values())))
        for group, values in sorted(right.items(), key=str):
            if group:
                numbers[f"acc.{group}"] = mean(values)
    if dataset.over_all is not NOTHING:
        answered = [answered_record(dataset, record, output, version) for output, record in pairs]
        numbers |= dataset.over_all.call(answered, np.ones(len(answered)))
        numbers.pop("score", None)  # the site has no name for it
    return numbers


def _pass_rates(
    pairs: Sequence[tuple[Json, Mapping[str, Json]]], version: Version
) -> dict[str, float]:
    num_right = []  # of each problem its programs, and those that pass
    for output, record in pairs:
        runs = output[0] if version == "v1.2" else output
        num_right.append((len(runs), runs.count(record["outputs"])))
    return {f"pass@{k}": mean(list(starmap(partial(pass_at, k), num_right))) for k in PASS_AT}
