"""A cloze task's scores -> its entry in results.json, its samples, its rows on screen.

Arrives: `ClozeScores`.  Leaves: plain dicts and rows.  It deliberately does not know how a metric is made.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from miron_jax.evaluation.records import ClozeScores, Outcome
from miron_jax.report.entries import estimate_entry, option_entry
from miron_jax.statistics.cloze_groups import cloze_groups, overall
from miron_jax.statistics.estimate import Estimate, estimates, skipped
from miron_jax.task_kinds.records import ClozeTask, Suite

SHOWN = ("lev_score", "target_confidence", "bits_per_char", "bits_per_byte", "greedy_exact", "contrast_accuracy")
OVERALL = SHOWN[:5]
HEADINGS = ("Levenshtein", "confidence", "bits/char", "bits/byte", "greedy exact", "contrast")


def cloze_entry(task: ClozeScores, outcome: Outcome, limit: int | None) -> dict[str, Any]:
    """The task's part of results.json: DESIGN section 4's keys, and what only a cloze task has."""
    definition, groups = task.source.task, cloze_groups(task)
    scored = [example for _, example in task.scored]
    entry: dict[str, Any] = {
        "n": len(scored),
        "metrics": _entries(estimates(scored)),
        "groups": {
            name: {"n": groups.sizes[name], "metrics": _entries(found)} for name, found in groups.categories.items()
        },
        "macro": _entries(groups.macro),
        "fragmentation": {
            "spearman_tokens_bits_per_char": groups.spearman,
            **({"reason": "tokens or bits are the same for all items"} if math.isnan(groups.spearman) else {}),
            "by_target_tokens": {
                name: _entries({key: found[key] for key in SHOWN if key in found})
                for name, found in groups.by_target_tokens.items()
            },
            "segmentation_tokens": sum(asked.added_tokens for asked in task.asked),
        },
        "drift": {
            name: {
                "median_percent": found.value,
                "ci95": list(found.ci95),
                "n": found.num_examples,
                **({} if found.num_examples else {"reason": "no pair has a defined value"}),
                **_entries(groups.flips[name]),
            }
            for name, found in groups.drift.items()
        },
        "baselines": {"random": None, "human": None},
        "profile": {
            **asdict(definition.profile),
            "empty_prefix_token": task.empty_prefix,
            "max_length": outcome.length_limit.of(definition.profile),
        },
        "kind": definition.kind,
        "rows_by_category": dict(Counter(item.category for item in task.items)),
        "published_rows_a_category": definition.rows,
        "skipped": skipped(task),
        "unspelled": task.unspelled,
        "bos_added": sum(asked.bos_added for asked in task.asked),
        "targets_with_newline": sum("\n" in item.target for item in task.items),
        "truncated": task.truncated,
        "beyond_trained_length": task.beyond_trained,
        "prefixes_end_in_space": sum(item.prefix[-1:].isspace() for item in task.items),
        "targets_begin_with_space": sum(item.target[:1].isspace() for item in task.items),
        "data": {"file": definition.file, **task.source.data._asdict()},
        "citation": definition.citation,
    }
    return entry if limit is None else {**entry, "limit": limit}


def cloze_composites(suite: Suite[ClozeTask], outcome: Outcome) -> dict[str, Any]:
    """Means over the suite's languages of their macro means, in the form of any composite."""
    tasks = [task for task in outcome.tasks if isinstance(task, ClozeScores)]
    return {
        name: {
            "value": found.mean.value if found.mean else None,
            "stderr": found.mean.stderr if found.mean else None,
            "ci95": list(found.mean.ci95) if found.mean else None,
            "complete": found.mean is not None,
            "missing": list(found.missing),
        }
        for name, found in overall(suite, tasks, OVERALL).items()
    }


def cloze_samples(task: ClozeScores) -> Iterator[dict[str, Any]]:
    """One record an item, in file order."""
    columns = (task.items, task.asked, task.spans, task.generated, task.examples)
    for place, (item, asked, spans, generated, example) in enumerate(zip(*columns, strict=True)):
        options = []
        if asked.target is not None:
            held = spans[asked.target].set_logprob
            options = [{**option_entry(item.target, spans[asked.target]), "held_logprob": held}]
        sample = {
            "id": place,
            "row": item.row,
            "name": item.name,
            "category": item.category,
            "prefix": item.prefix,
            "gold": None,
            "prediction": None,
            "correct": example.correct if example else None,
            "options": options,
            "generated": generated,
            "metrics": dict(example.metrics) if example else {},
        }
        if example is None:
            sample["reason"] = "the tokenizer has no tokens that spell this item"
        elif math.isnan(example.metrics["logprob"]):
            sample["reason"] = "the model answers NaN"
        elif not all(map(math.isfinite, example.metrics.values())):
            sample["reason"] = "a metric that is null is not defined for this item"
        yield sample


def cloze_table(tasks: Mapping[str, Mapping[str, Any]]) -> Table:
    """Categories, then their macro mean, of every cloze task."""
    table = Table(title=None, header_style="bold")
    table.add_column("task", no_wrap=True)
    for heading in ("category", "n", *HEADINGS):
        table.add_column(heading, justify="left" if heading == "category" else "right", no_wrap=True)
    for name, task in tasks.items():
        for category, group in task["groups"].items():
            table.add_row(name, category, str(group["n"]), *_cells(group["metrics"]))
        table.add_row(name, "macro mean", str(task["n"]), *_cells(task["macro"]), end_section=True)
    return table


def cloze_notes(tasks: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    """What a reader has to know about these numbers."""
    notes = []
    for name, task in tasks.items():
        metrics = task["metrics"]
        if not task["n"]:
            notes.append(f"{name}: no item is scored, {task['unspelled']} cannot be spelled with this tokenizer")
            continue
        seam, zero = (100 * metrics[key]["value"] for key in ("seam", "card_zero"))
        notes.append(
            f"{name}: a token spans the border of prefix and target in {seam:.1f} % of the items, and the card's formula "
            f"gives a forced 0 in {zero:.1f} %; {task['unspelled']} items cannot be spelled with this tokenizer"
        )
        published = task.get("published_rows_a_category")
        if published and "limit" not in task and set(task["rows_by_category"].values()) != {published}:
            counts = ", ".join(f"{category} {count}" for category, count in task["rows_by_category"].items())
            notes.append(f"{name}: its file has {counts} rows, the card says {published} of each category")
        if task["drift"].get("all", {}).get("n"):
            drift = task["drift"]["all"]
            low, high = (f"{bound:.1f}" for bound in drift["ci95"])
            notes.append(
                f"{name}: noise in the prefix takes a median {drift['median_percent']:.1f} % ({low} to {high}) of "
                f"P(target); share of items turned wrong {_number(drift['flip_to_wrong'])}, turned right "
                f"{_number(drift['flip_to_right'])}"
            )
    if tasks:
        notes.append("confidence is a mean a token: compare bits/char, not confidence, between tokenizers")
    return notes


def _entries(found: Mapping[str, Estimate]) -> dict[str, Any]:
    """Each with its own n: some numbers exist for some items only."""
    return {name: {**estimate_entry(own), "n": own.num_examples} for name, own in found.items()}


def _cells(metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [_number(metrics.get(name, {})) for name in SHOWN]


def _number(entry: Mapping[str, Any]) -> str:
    """Value and standard error."""
    value, stderr = entry.get("value"), entry.get("stderr")
    if value is None:
        return ""
    digits = 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}" if stderr is None else f"{value:.{digits}f} \u00b1 {stderr:.{digits}f}"
