"""What the results of all task kinds have in common.

Arrives: a task's scores and estimates, prompts, `Score`s.  Leaves: `TaskResult`s, and parts of
`ExampleResult`s.  It deliberately does not know what a metric means.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from miron_jax.definitions.records import Example, Problem
from miron_jax.definitions.rules import printed
from miron_jax.engine.records import Score
from miron_jax.evaluation.task_kinds.interface import TaskScores
from miron_jax.files.places import public
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.token_stats import token_metrics
from miron_jax.prompting.prompts import Prompt
from miron_jax.results.records import Details, Group, Rescaled, TaskData, TaskResult
from miron_jax.results.samples import AskedPrompt, Option
from miron_jax.statistics.estimate import Estimate, TaskEstimates
from miron_jax.statistics.human_gaps import HumanGap, gaps
from miron_jax.statistics.robustness import Robustness


def task_result(
    scores: TaskScores,
    estimates: TaskEstimates,
    details: Details,
    num_shots: Mapping[str, int] | None = None,
    robustness: Robustness | None = None,
    human: Sequence[HumanGap] = (),
) -> TaskResult:
    """`human`: gaps to people's labels, which stand in place of published values of the same
    metrics."""
    source = scores.source
    setup = scores.kind.setup
    task = source.task
    baselines = dict(task.baselines)
    if task.chance is not None:
        baselines |= task.chance(source.examples)
    rows = len(source.examples)
    labelled = {gap.metric for gap in human}
    published = gaps(estimates.metrics, task.human, setup.config.human_baseline, rows, source.data)
    human = [*human, *(gap for gap in published if gap.metric not in labelled)]
    for gap in human:
        if gap.metric == task.main and not math.isnan(gap.human.value):
            baselines["human"] = gap.human.value
    return TaskResult(
        n=len(scores.rows) - scores.num_skipped,
        metrics=estimates.metrics,
        groups={
            name: Group(estimates.sizes[name], metrics)
            for name, metrics in estimates.categories.items()
        },
        baselines=baselines,
        human=tuple(human),
        rescaled=_rescaled(estimates.metrics.get("accuracy"), baselines["random"]),
        profile={
            **printed(task.profile),
            "bos_token": setup.bos.how if setup.bos and task.profile.bos == "always" else None,
            "max_length": scores.kind.max_length,
        },
        kind=task.kind,
        main=task.main,
        section=task.section,
        skipped=scores.num_skipped,
        details=details,
        control_tokens=scores.kind.control_tokens,
        tokens_without_text=scores.tokens_without_text or None,
        num_shots=num_shots,
        robustness=robustness,
        data=data_of(scores, task.file.rows),
        citation=task.citation,
        reference=dict(task.reference or {}),
        licence=task.licence,
        sampled=scores.sampled,
        limit=setup.config.limit,
    )


def data_of(scores: TaskScores, published: int | None) -> TaskData:
    """`published`: rows of the published file; None: not known, or not compared."""
    source = scores.source
    rows = len(source.examples)
    file = None if source.task.file is None else public(source.task.file.path)
    data = TaskData(file, **source.data._asdict())
    if published in (None, rows):
        return data
    return replace(data, rows=rows, published_rows=published)


def option_of(text: str, score: Score) -> Option:
    logprob = float(score.logprob.sum(dtype=np.float64))
    return scored_option(text, score, logprob, not score.rank.any())


def scored_option(text: str, score: Score, logprob: float, is_greedy: bool) -> Option:
    """`logprob`: the sum over its tokens, nats; `is_greedy`: whether every rank is 0."""
    if not len(score.logprob):
        return Option(text=text, logprob=math.nan, reason="no scored token")
    option = Option(
        text=text,
        logprob=logprob,
        num_tokens=len(score.logprob),
        token_logprobs=score.logprob.tolist(),
        token_bytes=tuple(score.num_bytes.tolist()),
        greedy=None if math.isnan(logprob) else is_greedy,
    )
    if not score.distribution.size:
        return option
    return replace(
        option,
        token_ids=tuple(score.token_ids.tolist()),
        token_ranks=tuple(score.rank.tolist()),
        token_entropies=tuple(score.distribution[:, 0].tolist()),
        token_largest_logprobs=tuple(score.distribution[:, 1].tolist()),
    )


def with_token_stats(example: ExampleScore, score: Score) -> ExampleScore:
    """The example with the statistics of the tokens of its right span, if they were asked for."""
    if not score.has_distribution:
        return example
    stats = token_metrics(score.logprob, score.rank, score.distribution)
    return replace(example, metrics={**example.metrics, **stats})


def asked_prompt(prompt: Prompt, example: Example) -> AskedPrompt:
    asked = AskedPrompt(
        prompt=prompt.tail,
        prompt_sha256=prompt.digest,
        category=prompt.category,
        num_shots=prompt.num_shots,
    )
    if example.cluster is None:
        return asked
    return replace(
        asked, cluster=example.cluster, swapped=example.swapped, traits=dict(example.traits)
    )


def num_shots_of(prompts: Sequence[Prompt]) -> dict[str, int] | None:
    """Number of few-shot examples -> prompts that keep so many; None for tasks that do not count
    them."""
    kept = Counter(prompt.num_shots for prompt in prompts if prompt.num_shots is not None)
    return {str(shots): kept[shots] for shots in sorted(kept)} or None


def num_leaked(prompts: Sequence[Prompt]) -> int | None:
    return sum(prompt.leak > 0 for prompt in prompts) or None


def submitted_meta(example: Example | Problem) -> JsonObject | None:
    """What identifies an example's record in a submission."""
    if example.published is None:
        return None
    return dict(example.published["meta"])


def why_unscored(is_nan: bool, wants_classifiers: bool = False) -> str:
    if is_nan:
        return "the model answers NaN"
    if wants_classifiers:
        return "J wants three classifiers, which are not here"
    return "the right answer is not published: it cannot be scored here"


def _rescaled(accuracy: Estimate | None, baseline: float | None) -> Rescaled | None:
    if baseline is None or accuracy is None:
        return None
    scale = 1 / (1 - baseline)
    return Rescaled((accuracy.value - baseline) * scale, accuracy.stderr * scale)
