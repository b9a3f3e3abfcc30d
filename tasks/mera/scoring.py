"""Answers to MERA's records -> the site's numbers under the site's names.

Arrives: a submission's answers, the test records with their right answers.  Leaves: numbers by data set; a data set whose
right answers are not published has none: it cannot be scored here.  It deliberately does not know models.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from miron_jax.definitions.rules import NOTHING
from miron_jax.metrics.answers import WORDS, exact_match, token_f1
from miron_jax.metrics.detox import DETOX
from miron_jax.metrics.programs import pass_at
from miron_jax.tasks.mera.metrics import EXAM, GRADE_NORM, MCC, Answered, exam_points, total_score
from miron_jax.tasks.mera.submission import Key
from miron_jax.tasks.mera.table import DATA_SETS, DataSet, Version

PASS_AT = (1, 5, 10)


def score_submission(
    answers: Mapping[str, Mapping[Key, Any]], records: Mapping[str, Mapping[Key, Mapping[str, Any]]], version: Version
) -> dict[str, dict[str, float]]:
    """Numbers of every data set whose `records` hold their right answers.

    acc and acc.GROUP, f1_macro, em, f1, pass@k, grade_norm, and correct.virtue and its like, as the site names them.  J of
    ruDetox wants three classifiers and is not computed here.
    """
    found = {}
    for own in DATA_SETS:
        known = {key: record for key, record in records.get(own.name, {}).items() if record["outputs"]}
        if own.name in answers and known and own.match is not DETOX:
            outputs = answers[own.name]
            found[own.name] = _numbers(own, version, [(outputs[key], record) for key, record in known.items()])
    return found


def expected_total(numbers: Mapping[str, Mapping[str, float]], version: Version) -> float:
    """total_score by the version's own rule for what is missing."""
    counted = [own.name for own in DATA_SETS if own.counts(version)]
    return total_score(numbers, counted, missing_is_zero=version == "v1.2")


def answered(own: DataSet, record: Mapping[str, Any], output: Any, version: Version) -> Answered:
    """A record and its answer, as metrics over all records take them.

    v1 divides the exam's points by 34 whatever its records say, v1.2 by what they say.
    """
    meta, gold = record["meta"], record["outputs"]
    if own.over_all is MCC:
        return Answered(output, gold, meta["question"])
    group = str(group_of(own, record) or "")
    if own.match is EXAM:
        points = exam_points(output, gold, meta["type"], meta["id_task"])
        most = 0.0 if version == "v1" else float(meta["score"])
        return Answered(output, gold, str(meta["variant"]), points, most)
    return Answered(output, gold, group)


def group_of(own: DataSet, record: Mapping[str, Any]) -> str | None:
    """The group under which a record's accuracy is also told."""
    inputs = record["inputs"]
    named = record["meta"].get(own.group) or (inputs.get(own.group) if isinstance(inputs, dict) else None)
    return str(named) if own.group and named else None


def accepted(gold: Any) -> list[str]:
    """Right answers of a text: v1's MultiQ lists spans, elsewhere ";" stands between them."""
    if isinstance(gold, list):
        return [span["segment"] for span in gold]
    return str(gold).split(";")


def _numbers(own: DataSet, version: Version, pairs: Sequence[tuple[Any, Mapping[str, Any]]]) -> dict[str, float]:
    if own.kind == "program":
        right = [[run == record["outputs"] for run in (out[0] if version == "v1.2" else out)] for out, record in pairs]
        return {f"pass@{k}": _mean([pass_at(k, len(runs), sum(runs)) for runs in right]) for k in PASS_AT}
    if own.match is WORDS:
        texts = [
            (out[0]["segment"] if isinstance(out, list) else out, accepted(record["outputs"])) for out, record in pairs
        ]
        return {"em": _mean([exact_match(*pair) for pair in texts]), "f1": _mean([token_f1(*pair) for pair in texts])}
    numbers = {}
    if own.over_all not in (MCC, GRADE_NORM):
        right = {}
        for output, record in pairs:
            text = output.strip() if own.kind == "text" else output
            right.setdefault(group_of(own, record), []).append(float(text == record["outputs"]))
        numbers["acc"] = _mean([value for own_values in right.values() for value in own_values])
        numbers |= {f"acc.{group}": _mean(values) for group, values in sorted(right.items(), key=str) if group}
    if own.over_all is not NOTHING:
        found = [answered(own, record, output, version) for output, record in pairs]
        numbers |= own.over_all.call(found, np.ones(len(found)))
        numbers.pop("score", None)  # the site has no name for it
    return numbers


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
