"""A policy's rules, a run and its baseline -> GO, NO-GO or INCONCLUSIVE, with reasons.

Arrives: `Rule`s, `Run`s.  Leaves: `Finding`s, a JSON object.  It deliberately computes no
statistics: differences, their intervals and p-values are those of compare, other intervals those of
results.json.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

from miron_jax.errors import InputError, some_of
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.properties import LOWER_IS_BETTER, ZERO_IS_BEST
from miron_jax.report.compare.policy import TASKS, Rule
from miron_jax.report.compare.runs import Comparison, compare, has_stopped
from miron_jax.report.exports.flat import composites_of
from miron_jax.report.numbers import interval, shown
from miron_jax.results.document import plain
from miron_jax.results.records import SuiteResult
from miron_jax.results.run_folder import Run
from miron_jax.statistics.estimate import Estimate, interval_at

Verdict = Literal["GO", "NO-GO", "INCONCLUSIVE"]
MOST = 12  # names in a sentence
NO_INTERVAL = (math.nan, math.nan)


class _Subject(NamedTuple):
    """The number that a rule is about."""

    name: str  # as compare names it: "core: CORE", "core/copa accuracy"
    metric: str
    tasks: tuple[str, ...]  # that it is made of
    composite: tuple[str, str] | None  # its suite and name; None: a metric of a task

    @property
    def sign(self) -> int:
        """1, or -1 where less is better."""
        return -1 if self.metric in LOWER_IS_BETTER else 1


class _Measured(NamedTuple):
    """A number of the run, or that of the run less that of the baseline."""

    value: float
    interval: tuple[float, float]
    p_value: float  # NaN: of the run alone
    unknown: str  # why it decides nothing; ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a rule."""

    rule: Rule
    sentence: str  # the rule in words
    verdict: Verdict
    reason: str
    value: float = math.nan  # of the run, or run less baseline; NaN: there is none, or of all tasks
    interval: tuple[float, float] = NO_INTERVAL
    p_value: float = math.nan


class Judged(NamedTuple):
    findings: list[Finding]
    notes: tuple[str, ...]  # of the comparison

    @property
    def verdict(self) -> Verdict:
        """The worst of the rules'."""
        verdicts = {finding.verdict for finding in self.findings}
        if "NO-GO" in verdicts:
            return "NO-GO"
        return "INCONCLUSIVE" if "INCONCLUSIVE" in verdicts else "GO"

    def json(self) -> JsonObject:
        findings = [*map(asdict, self.findings)]
        return plain({"verdict": self.verdict, "findings": findings, "notes": list(self.notes)})


def judge(rules: Sequence[Rule], run: Run, baseline: Run | None) -> Judged:
    """Raises InputError for a metric that a run lacks, for a rule without its baseline, and for one
    that asks whether a number is worse of which 0 is best."""
    subjects = list[_Subject]()
    for i, rule in enumerate(rules, 1):
        subjects.append(_subject(i, rule.metric, run))
        if rule.wants_baseline and subjects[-1].metric in ZERO_IS_BEST:
            raise InputError(
                f"rule {i}: {rule.metric} {rule.kind}: 0 is best of it, so that neither side is "
                "worse; expected above or below"
            )
        if rule.wants_baseline and baseline is not None:
            _subject(i, rule.metric, baseline)
        elif rule.wants_baseline:
            raise InputError(
                f"rule {i}: {rule.metric} {rule.kind} wants a baseline: miron-jax gate "
                f"POLICY.yaml {run.folder} BASELINE"
            )
    comparisons = {} if baseline is None else _comparisons(rules, subjects, run, baseline)
    findings = list[Finding]()
    for rule, subject in zip(rules, subjects, strict=True):
        if not rule.wants_baseline:
            findings.append(_finding(rule, subject, _of_run(rule, subject, run)))
        elif rule.metric == TASKS:
            findings.append(_of_tasks(rule, comparisons[rule.confidence]))
        else:
            measured = _of_both(subject, comparisons[rule.confidence])
            findings.append(_finding(rule, subject, measured))
    notes = ()
    for comparison in comparisons.values():
        notes = comparison.notes  # the same of each
    return Judged(findings, notes)


def _comparisons(
    rules: Sequence[Rule], subjects: Sequence[_Subject], run: Run, baseline: Run
) -> dict[float, Comparison]:
    """A comparison for each confidence, of the main metrics of all tasks and of the rules'."""
    asked = dict[str, None]()
    known = set[str]()
    for name, task in baseline.tasks.items():
        if name in run.tasks:
            asked[task.main_metric] = None
            known |= task.metrics.keys()
    comparisons = dict[float, Comparison]()
    asked |= dict.fromkeys(subject.metric for subject in subjects)
    metrics = [metric for metric in asked if metric in known]
    for rule in rules:
        if rule.wants_baseline and rule.confidence not in comparisons:
            comparisons[rule.confidence] = compare(baseline, run, metrics, rule.confidence)
    return comparisons


def _subject(number: int, name: str, run: Run) -> _Subject:
    """A task alone stands for its main metric, a suite for the composite of its name or for its
    only one."""
    if name == TASKS:
        return _Subject(name, "", (), None)
    task, _, metric = (name, "", "") if name in run.tasks else name.rpartition(" ")
    if task in run.tasks:
        of_task = run.tasks[task]
        metric = metric or of_task.main_metric
        if metric not in of_task.metrics:
            raise InputError(
                f"rule {number}: {task} of {run.label} has no metric {metric!r}, expected one of "
                f"{', '.join(of_task.metrics)}"
            )
        return _Subject(f"{task} {metric}", metric, (task,), None)
    suite, _, wanted = name.partition(": ")
    of_suite = run.result.suites.get(suite, SuiteResult({})).composites
    chosen = [each for each in of_suite if each.casefold() == (wanted or suite).casefold()]
    if not chosen and not wanted:
        chosen = [*of_suite]
    if len(chosen) != 1:
        known = some_of([TASKS, *composites_of([run]), *run.tasks], MOST)
        raise InputError(f"rule {number}: {run.label} has no {name!r}, expected one of {known}")
    composite = of_suite[chosen[0]]
    return _Subject(
        f"{suite}: {chosen[0]}",
        run.result.metric_of(composite),
        tuple(composite.weights),
        (suite, chosen[0]),
    )


def _of_run(rule: Rule, subject: _Subject, run: Run) -> _Measured:
    if subject.composite is None:
        estimate = run.result.metric(subject.tasks[0], subject.metric)
    else:
        composite = run.result.composite(*subject.composite)
        ends = composite.ci95 or NO_INTERVAL
        estimate = Estimate(composite.value, composite.stderr, ends, 0, 0)
    ends = interval_at(estimate, rule.confidence)
    return _Measured(estimate.value, ends, math.nan, _unknown(subject, (run,), ends))


def _of_both(subject: _Subject, comparison: Comparison) -> _Measured:
    if subject.composite is None:
        named = {f"{each.task} {each.metric}": each.difference for each in comparison.tasks}
    else:
        named = {each.name: each.paired for each in comparison.composites}
    paired = named.get(subject.name)
    if paired is None:
        refused = comparison.refused
        why = refused.get(subject.name) or refused.get(subject.name.partition(" ")[0])
        return _Measured(math.nan, NO_INTERVAL, math.nan, why or "it has no value in both runs")
    unknown = _unknown(subject, (comparison.first, comparison.second), paired.ci95)
    return _Measured(paired.value, paired.ci95, paired.p_value, unknown)


def _unknown(subject: _Subject, runs: Sequence[Run], ends: tuple[float, float]) -> str:
    """Why a number decides nothing; "" if it does."""
    for run in runs:
        for task in subject.tasks:
            if task in run.tasks and has_stopped(run.tasks[task]):
                return (
                    f"{task} of {run.label} stopped when it knew enough (--until), so it has no "
                    "interval of a fixed number of examples"
                )
    if any(map(math.isnan, ends)):
        return "it has no value with an interval"
    return ""


def _finding(rule: Rule, subject: _Subject, measured: _Measured) -> Finding:
    """A rule about one number: it holds at both ends of the interval, at neither, or at one."""
    holds = _holds(rule, subject, measured)
    verdict: Verdict = "INCONCLUSIVE"
    if not measured.unknown and all(holds) == any(holds):
        verdict = "GO" if all(holds) else "NO-GO"
    reason = f"it is {shown(measured.value)} ({interval(measured.interval)})"
    if rule.wants_baseline:
        low, high = measured.interval
        reason = (
            f"the difference is {measured.value:+.4f} ({low:+.4f} to {high:+.4f}), p "
            f"{measured.p_value:.2g}"
        )
    sentence = _words(rule, subject)
    return Finding(rule, sentence, verdict, measured.unknown or reason, *measured[:3])


def _holds(rule: Rule, subject: _Subject, measured: _Measured) -> tuple[bool, bool]:
    """Whether the rule holds at each end of the interval; of a p-value one answer, twice."""
    low, high = measured.interval
    match rule.kind:
        case "below":
            return low < rule.amount, high < rule.amount
        case "above":
            return low > rule.amount, high > rule.amount
        case "not_below_baseline_by":
            return subject.sign * low >= -rule.amount, subject.sign * high >= -rule.amount
        case "not_worse_beyond_chance":
            is_worse = subject.sign * measured.value < 0
            is_worse = is_worse and measured.p_value < 1 - rule.confidence
            return not is_worse, not is_worse


def _words(rule: Rule, subject: _Subject) -> str:
    """The rule as a sentence."""
    name = subject.name
    side = "lower"
    if subject.sign < 0:
        name = f"{name}, of which less is better,"
        side = "higher"
    words = {
        "below": f"is below {rule.amount:g}",
        "above": f"is above {rule.amount:g}",
        "not_below_baseline_by": f"is not {side} than the baseline's by more than {rule.amount:g}",
        "not_worse_beyond_chance": "is not worse than the baseline's beyond chance",
    }
    return f"{name} {words[rule.kind]}, {_confidence(rule)}"


def _of_tasks(rule: Rule, comparison: Comparison) -> Finding:
    """No task's main metric is worse, by the p-values of Holm's method."""
    worse = list[str]()
    known = set[str]()
    for each in comparison.tasks:
        if not each.is_main or math.isnan(each.adjusted):
            continue
        known.add(each.task)
        change = each.difference.value
        is_worse = (change > 0) == (each.metric in LOWER_IS_BETTER)
        if is_worse and each.adjusted < 1 - rule.confidence:
            worse.append(f"{each.task} {each.metric} {change:+.4f} (p {each.adjusted:.2g})")
    unknown = list[str]()
    for name, task in {**comparison.first.tasks, **comparison.second.tasks}.items():
        if task.main_metric and name not in known:
            unknown.append(name)
    verdict: Verdict = "GO"
    reason = f"none of {len(known)} tasks is"
    if unknown:
        verdict = "INCONCLUSIVE"
        reason = f"without a p-value against the baseline: {some_of(unknown, MOST)}"
    if worse:
        verdict = "NO-GO"
        reason = f"worse: {some_of(worse, MOST)}"
    words = "no task is worse than in the baseline beyond chance, all taken together (Holm)"
    return Finding(rule, f"{words}, {_confidence(rule)}", verdict, reason)


def _confidence(rule: Rule) -> str:
    return f"with {100 * rule.confidence:g} % confidence"
