"""The results of a run on screen.

Arrives: results.json.  Leaves: lines on a rich console.  It deliberately does not know the engine.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from miron_jax.files.readers import JsonObject
from miron_jax.metrics.choices import SOFT
from miron_jax.report.cloze import cloze_notes, cloze_table
from miron_jax.report.console import table_of

MOST_OTHERS = 4
MODEL_ONLY = "*"
_SOFT = tuple(metric.name for metric in SOFT)
_OF_CHOICES = ("accuracy_sum", "accuracy_bytes", "bits_per_byte", "answered", *_SOFT)
_COLUMNS = {"accuracy_sum": "by sum", "accuracy_bytes": "by bytes", "bits_per_byte": "bits/byte"}
PARTIAL = "partial_"
_VERDICTS = {1: "better than", -1: "worse than", 0: "not decided against"}
FIRST_OPTION = 0.9  # share of examples with gold first, above which ties inflate accuracy


def print_results(console: Console, results: JsonObject) -> None:
    """Print tasks with their accuracy and its 95 % interval, then composites and notes."""
    cloze = {name: task for name, task in results["tasks"].items() if "macro" in task}
    if cloze:
        console.print(cloze_table(cloze))
    for suite in results["suites"]:
        tasks = {name: task for name, task in results["tasks"].items() if name.startswith(f"{suite}/")}
        if tasks and not tasks.keys() <= cloze.keys():
            console.print(_table_of(tasks))
    for suite in results["suites"].values():
        if any(name.startswith(PARTIAL) for name in suite["composites"]):
            console.print(partials_table(suite["composites"]))
            console.print(_left_out(suite["composites"]), soft_wrap=True)
            continue
        for name, composite in suite["composites"].items():
            console.print(_composite(name, composite), soft_wrap=True)
    for line in (*cloze_notes(cloze), *notes_of(results)):
        console.print(line, soft_wrap=True)


def _table_of(tasks: JsonObject) -> Table:
    if any(task["section"] for task in tasks.values()):
        return sections_table(tasks)
    others = any(task.get("main", "accuracy") != "accuracy" or task.get("human") for task in tasks.values())
    is_robust = any(task.get("robustness") for task in tasks.values())
    return mains_table(tasks) if others or is_robust else _choices_table(tasks)


def mains_table(tasks: JsonObject) -> Table:
    """A table of tasks with different main metrics, and further numbers of each."""
    table = table_of(("task",), ("n", "metric", "value", "95 % interval", "chance", "human", "human gap"))
    table.add_column("also")
    for name, task in tasks.items():
        main = task["metrics"].get(task["main"], {})
        low, high = main.get("ci95", (None, None))
        interval = f"{_number(low)} - {_number(high)}" if main.get("value") is not None else ""
        value = _number(main.get("value")) or ("" if task["n"] else "none")
        chance = _number(task["baselines"]["random"]) if task["main"] == "accuracy" else ""
        table.add_row(name, str(task["n"]), task["main"], value, interval, chance, *_human(task), _others(task))
    return table


def _human(task: JsonObject) -> tuple[str, str]:
    """The human baseline, of the main metric if there is one, and the human gap."""
    if not task.get("human"):
        return "", ""
    gap = next((gap for gap in task["human"] if gap["metric"] == task["main"]), task["human"][0])
    baseline = _number(gap["human"]["value"]) + ("" if gap["metric"] == task["main"] else f" {gap['metric']}")
    if gap["value"] is None:
        return baseline, "none"
    if gap["ci95"] is None:
        return baseline, f"{gap['value']:+.3f}"
    low, high = gap["ci95"]
    mark = "" if "Newcombe" in gap["interval"] else MODEL_ONLY
    return baseline, f"{gap['value']:+.3f} ({low:+.3f} to {high:+.3f}){mark}"


def _others(task: JsonObject) -> str:
    """Up to MOST_OTHERS further numbers of a task."""
    others = [
        f"{name} {_number(metric['value'])}"
        for name, metric in task["metrics"].items()
        if name not in (task["main"], *_OF_CHOICES) and metric["value"] is not None
    ]
    return ", ".join(others[:MOST_OTHERS]) + (f" and {len(others) - MOST_OTHERS} more" if others[MOST_OTHERS:] else "")


def sections_table(tasks: JsonObject) -> Table:
    """A table of tasks by section, with rescaled accuracies: (accuracy - baseline) / (1 - baseline)."""
    table = table_of(("task",), ("n", "accuracy", "stderr", "baseline", "rescaled", "stderr", "bits/byte"))
    for section in dict.fromkeys(task["section"] for task in tasks.values()):
        table.add_section()
        table.add_row(section or "in no section", style="bold")
        for name, task in tasks.items():
            if task["section"] == section:
                table.add_row(*_section_row(name, task))
    return table


def _section_row(name: str, task: JsonObject) -> tuple[str, ...]:
    accuracy, rescaled = task["metrics"]["accuracy"], task["rescaled"] or {}
    return (
        f"  {name.partition('/')[2]}",
        str(task["n"]),
        _number(accuracy["value"]),
        _number(accuracy["stderr"]),
        _number(task["baselines"]["random"]),
        _number(rescaled.get("value")),
        _number(rescaled.get("stderr")),
        _number(task["metrics"].get("bits_per_byte", {}).get("value")),
    )


def _choices_table(tasks: JsonObject) -> Table:
    known = ("accuracy", *_COLUMNS, *_SOFT)
    more = list(dict.fromkeys(name for task in tasks.values() for name in task["metrics"] if name not in known))
    more = more[:MOST_OTHERS]
    table = table_of(("task",), ("n", "accuracy", "95 % interval", "baseline", *_COLUMNS.values(), *more))
    for name, task in tasks.items():
        table.add_row(*_row(name, task, (*_COLUMNS, *more)))
    return table


def _row(name: str, task: JsonObject, others: Sequence[str]) -> tuple[str, ...]:
    metrics = task["metrics"]
    low, high = metrics["accuracy"]["ci95"]
    return (
        name,
        str(task["n"]),
        _number(metrics["accuracy"]["value"]),
        f"{_number(low)} - {_number(high)}",
        _number(task["baselines"]["random"]),
        *(_number(metrics.get(key, {}).get("value")) for key in others),
    )


def _number(value: float | None) -> str:
    return "" if value is None or value != value else f"{value:.3f}"


def _composite(name: str, composite: JsonObject) -> str:
    if composite["value"] is None:
        missing = composite["missing"]
        if not missing:
            return f"{name}: none, its number is not defined for one of its tasks"
        names = f"{', '.join(missing[:4])}{' ...' if missing[4:] else ''}"
        return f"{name}: none, {len(missing)} tasks have no score on published data: {names}"
    if composite["stderr"] is None:
        return (
            f"{name}: {composite['value']:.4f} (one example of a task has no deviation, so there is no standard error)"
        )
    low, high = composite["ci95"]
    error = f"standard error {composite['stderr']:.4f}"
    return f"{name}: {composite['value']:.4f}, {error} (95 % interval {low:.4f} to {high:.4f})"


def partials_table(composites: JsonObject) -> Table:
    """A table of composites; incomplete ones have a partial value over the scored tasks."""
    table = table_of(("composite",), ("value", "stderr", "partial", "stderr", "tasks without a score"))
    for name, composite in composites.items():
        if not name.startswith(PARTIAL):
            partial = composites.get(PARTIAL + name, {})
            numbers = (composite["value"], composite["stderr"], partial.get("value"), partial.get("stderr"))
            table.add_row(name, *map(_number, numbers), str(len(composite["missing"])))
    return table


def _left_out(composites: JsonObject) -> str:
    names = dict.fromkeys(task for composite in composites.values() for task in composite["missing"])
    return (
        "a composite that lacks a task has no value; a partial one compares only with runs over the same tasks; "
        f"without a score on published data: {', '.join(names)}"
    )


def notes_of(results: JsonObject) -> list[str]:
    """Sentences that qualify the numbers."""
    tasks = results["tasks"]
    notes = []
    if decided := results.get("decided"):
        verdict = f"{_VERDICTS[decided['winner']]} {results['config'].get('against')}"
        numbers = f"{decided['difference']:+.4f}, give or take {decided['half_width']:.4f}"
        notes.append(f"{decided['composite']}: {verdict} on this set: {numbers}")
    if any(gap["interval"].startswith("the model's") for task in tasks.values() for gap in task.get("human", ())):
        notes.append(f"{MODEL_ONLY} the interval of the model's number alone: that of the human baseline is not known")
    for name, task in tasks.items():
        if (sampled := task.get("sampled")) and sampled["examples"] < sampled["of"]:
            low, high = sampled["interval"]
            notes.append(
                f"{name}: {sampled['examples']} of {sampled['of']} examples ran, in a random order ({sampled['how']}, seed "
                f"{sampled['seed']}); the {task['main']} of all of them lies within {low:.3f} and {high:.3f}"
            )
        if (sampled := task.get("sampled")) and sampled.get("winner") is not None:
            verdict = f"{_VERDICTS[sampled['winner']]} {results['config'].get('against')}"
            notes.append(f"{name}: {verdict} on this set, after {sampled['examples']} of its {sampled['of']} examples")
        if "published_rows" in task["data"]:
            rows, published = task["data"]["rows"], task["data"]["published_rows"]
            notes.append(f"{name}: its file has {rows} rows, published are {published}; no composite counts it")
        shots, expected = task.get("num_shots") or {}, task["profile"]["num_fewshot"]
        if fewer := sum(count for kept, count in shots.items() if int(kept) < expected):
            notes.append(
                f"{name}: {fewer} of {sum(shots.values())} prompts have fewer than {expected} few-shot examples: no more fit"
            )
        if task.get("main") == "j" and not task["n"]:
            notes.append(f"{name}: J wants three classifiers, which --detox_scorer names")
    for key, text in (
        ("skipped", "examples without a score (NaN, or unpublished right answers); no composite counts their tasks"),
        ("rounded_to_a_tie", "examples decided by exp() rounding two losses to the same number, as the reference does"),
        ("empty_span", "examples with an option that scores no token"),
        ("truncated", "examples cut to the length limit (BOS and early shots go first)"),
        ("inexact_prefix", "examples whose context is no token prefix, scored from the longest common one"),
        ("beyond_trained_length", "examples longer than the length the model was trained at"),
    ):
        if total := sum(task.get(key, 0) - task.get("unspelled", 0) * (key == "skipped") for task in tasks.values()):
            notes.append(f"{total} {text}")
    for rule in ("first", "last"):
        if tied := sum(task.get("tied", 0) for task in tasks.values() if task["profile"].get("tie", "first") == rule):
            notes.append(f"{tied} examples where another option equals the chosen one (the {rule} wins)")
    for name, task in tasks.items():
        if (task.get("first_option_accuracy") or 0) > FIRST_OPTION:
            notes.append(
                f"{name}: a model that finds all options equal scores {task['first_option_accuracy']:.3f} here"
            )
        for gap in task.get("human", ()):
            if gap["why_not"] and task["n"]:
                notes.append(f"{name}: no human gap by {gap['metric']}: {gap['why_not']}")
        if ceiling := task.get("ceiling"):
            notes.append(f"{name}: the authors' own solutions pass {ceiling['passed']} of {ceiling['n']}")
        if task.get("sandboxed") is False:
            notes.append(f"{name}: its programs ran without a sandbox")
        if rows := task.get("always_right_rows"):
            notes.append(
                f"{name}: any text is right in row {', '.join(map(str, rows))} (the answer is punctuation only)"
            )
    if limits := {task["limit"] for task in tasks.values() if "limit" in task}:
        profiles = [task["profile"] for task in tasks.values() if task["profile"]["num_fewshot"]]
        shots = any(profile.get("fewshot_pool") == "limited_items" for profile in profiles)
        pool = "; few-shot examples are sampled from them too" if shots else ""
        notes.append(f"--limit {limits.pop()}: the first examples of each task or category{pool}")
    if changed := [name for name, task in tasks.items() if task["data"]["state"] == "changed"]:
        notes.append(f"not the published data: {', '.join(changed)}")
    return notes


def speed_line(results: JsonObject) -> str:
    """Counts and times of a run, in a sentence."""
    speed, check = results["speed"], results["self_check"]
    padding = 100 * (speed["padded_tokens"] / max(1, speed["computed_tokens"]) - 1) if speed["computed_tokens"] else 0.0
    rate = speed["tokens_per_second"] or 0.0
    return (
        f"{speed['requests']} requests, {speed['plain_tokens']} tokens one row each, {speed['unique_tokens']} unique, "
        f"{padding:.1f} % padding; {rate:.0f} unique tokens/s on the device; {speed['wall_seconds']:.1f} s in all, of "
        f"them {speed['device_seconds']:.1f} device, {speed['compile_seconds']:.1f} compiling {speed['programs']} "
        f"programs, {speed['load_seconds']:.1f} loading, {check['seconds']:.1f} self-check (largest difference "
        f"{check['largest']:.1e} nats over {check['tokens']} tokens, allowed {check['tolerance']:g})"
    )
