"""Are MIRON's numbers the same as torch's?  Real weights, miron-gen items, float32.

    python benchmarks/parity_miron.py --model=FOLDER --items=200

Items are sampled evenly over languages and categories, once with their space in the target and once
with it in the prefix, where tokens cross the seam.  This engine runs them as `miron-jax eval` does,
all in one forest.  Torch runs one item a forward and, for the completion, one HF generate; it takes
only the number of tokens to generate from this engine:

    lev_score          100 (1 - Lev(text, target) / max(|text|, |target|)), the distance by its textbook table
    target_confidence  100 exp(mean log p of tokenizer(prefix + target) from token len(tokenizer(prefix)) on), or 0.0
    logprob            nats of the tokens whose offset ends in the target, less the log of the summed probability of all
                       tokens that agree with the part of the prefix that the first of them contains
    greedy_exact, first_token_rank, and the greedy completion, cut at the first newline

Logits are float32, their log_softmax float64: torch's own in float32 is off by 3.5e-5 nats over
Gemma's 262,144 tokens, a confidence by 0.0026.  Numbers must agree to 1e-3.  A number that does not
is computed again by torch in float64: if this engine is within the tolerance of that and torch's
float32 is not nearer, torch is at fault and the number is listed.  Two completions may part at
tokens whose logits differ by at most 1e-4 nats in torch; a rank or a flag may differ by as many
tokens as have logits that close to the target's.  When a token crosses the seam, neither rank nor
flag is defined.  Exit status 1 if anything else differs.  The last line is JSON.
"""  # noqa: E501

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from absl import flags
from agreement import Verdicts, say_verdicts
from common import PRINTED, environment, run, say, seconds_of
from miron_card import (
    TIE,
    TOLERANCE,
    Completion,
    Disputed,
    RankBounds,
    Twin,
    judge,
    sampled_evenly,
    score,
)
from peers import tokens_of

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Cloze
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import load_model
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import evaluate
from miron_jax.evaluation.task_kinds.cloze import ClozeRow
from miron_jax.evaluation.task_kinds.interface import TaskScores
from miron_jax.model.checkpoints.hf_reader import resolve_model

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_integer(
    "items", 200, "Items of each suite, rounded up to as many of every group.", lower_bound=1
)

SUITES = ("miron-gen", "miron-gen-prefixspace")
NUMBERS = ("lev_score", "target_confidence", "logprob")
COLUMNS = {
    "items": 7,
    "seams": 7,
    "zeros": 7,
    **dict.fromkeys(NUMBERS, 19),
    "texts": 8,
    "torch": 10,
}


def main(_: Sequence[str]) -> None:
    config = RunConfig(FLAGS.model, SUITES)
    inputs = sampled_evenly(find_inputs(config), FLAGS.items)
    engine_seconds, outcome = seconds_of(lambda: evaluate(config, inputs, PRINTED))
    tasks = outcome.tasks
    twin = Twin.load(FLAGS.model)
    say(
        f"{'largest differences':26}"
        + "".join(f"{name:>{width}}" for name, width in COLUMNS.items())
    )
    comparisons = []
    for task in tasks:
        seconds, comparison = seconds_of(lambda task=task: compare(task, twin))
        comparisons.append(comparison)
        say(row(comparison, seconds))
    judge_texts(comparisons, tasks, twin)
    verdicts = judge(
        [disputed for comparison in comparisons for disputed in comparison.disputed], twin
    )
    report(comparisons, verdicts, engine_seconds)


class TwinAnswers(NamedTuple):
    """One item by torch."""

    lev_score: float
    completion: Completion
    target_confidence: float
    logprob: float  # nats, healed
    ranks: list[RankBounds]  # see TwinScores


def answer(twin: Twin, item: Cloze, new_tokens: int) -> TwinAnswers:
    """One forward and one HF generate."""
    prompt = twin.token_ids(item.prefix)
    new = twin.torch.greedy(prompt, new_tokens, twin.ends)
    completion = Completion(twin.text_of(prompt, new), new)
    return TwinAnswers(card_lev(completion.text, item.target), completion, *score(twin, item))


def card_lev(text: str, target: str) -> float:
    longer = max(len(text), len(target))
    return 100 * (1 - edit_distance(text, target) / longer) if longer else 100.0


def edit_distance(a: str, b: str) -> int:
    """Levenshtein's, a row of its table at a time."""
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        current = [i]
        for j, y in enumerate(b, 1):
            current.append(min(previous[j] + 1, current[-1] + 1, previous[j - 1] + (x != y)))
        previous = current
    return previous[-1]


@dataclass(slots=True)
class Comparison:
    """One task's numbers beside torch's."""

    task: str
    items: int
    unscored: int  # the tokenizer cannot spell them
    seams: int
    zeros: int  # the card's formula has no token to score
    largest: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NUMBERS, 0.0))
    # torch's, where this engine's differs; by item
    texts: dict[int, Completion] = field(default_factory=dict)
    disputed: list[Disputed] = field(default_factory=list)
    ties: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def compare(task: TaskScores[ClozeRow], twin: Twin) -> Comparison:
    rows = task.rows
    tokenized = [row.asked for row in rows if row.asked is not None]
    unspelled = sum(asked.target is None for asked in tokenized)
    zeros = sum(asked.card is None for asked in tokenized)
    seams = sum(asked.seam for asked in tokenized)
    comparison = Comparison(task.source.task.name, len(rows), unspelled, seams, zeros - unspelled)
    for index, row in enumerate(rows):
        item, example = row.item, row.score
        if example is None or row.asked is None:
            continue
        answers = answer(twin, item, row.asked.num_tokens + task.source.task.profile.extra_tokens)
        same_text = row.generated == answers.completion.text
        if not same_text:
            comparison.texts[index] = answers.completion
        for number in NUMBERS if same_text else NUMBERS[1:]:
            ours, theirs = example.metrics[number], getattr(answers, number)
            comparison.largest[number] = max(comparison.largest[number], abs(ours - theirs))
            if abs(ours - theirs) <= TOLERANCE:
                continue
            label = f"{comparison.task}, {item.name}"
            if number == "lev_score":
                comparison.wrong.append(f"{label}: {number} {ours:.5f} here, {theirs:.5f} in torch")
            else:
                comparison.disputed.append(Disputed(label, item, number, ours, theirs))
        compare_ranks(comparison, item.name, example.metrics, answers.ranks)
    return comparison


def compare_ranks(
    comparison: Comparison, name: str, metrics: Mapping[str, float], ranks: Sequence[RankBounds]
) -> None:
    """First rank and greedy flag must be the same, or within what near ties allow."""
    first, greedy = metrics["first_token_rank"], metrics["greedy_exact"]
    label = f"{comparison.task}, {name}"
    if math.isnan(first) or math.isnan(greedy) or not ranks:
        if not (math.isnan(first) and math.isnan(greedy) and not ranks):
            comparison.wrong.append(
                f"{label}: a seam in one of the two, rank {first} here, {ranks} in torch"
            )
        return
    if first != ranks[0].rank:
        tie = ranks[0].least <= first <= ranks[0].most
        line = f"{label}: first rank {first:.0f} here, {ranks[0].rank} in torch"
        (comparison.ties if tie else comparison.wrong).append(line)
    if bool(greedy) != all(bounds.rank == 0 for bounds in ranks):
        tie = all(bounds.least == 0 for bounds in ranks) and any(
            bounds.most > 0 for bounds in ranks
        )
        (comparison.ties if tie else comparison.wrong).append(
            f"{label}: greedy_exact is {greedy:.0f} here only"
        )


def judge_texts(
    comparisons: Sequence[Comparison], tasks: Sequence[TaskScores[ClozeRow]], twin: Twin
) -> None:
    """Sort completions that differ into ties and wrong ones, by torch's logits at the first token
    that differs.

    Scores keep no tokens, so this engine generates all completions once more.
    """
    if not any(comparison.texts for comparison in comparisons):
        return
    generator = Generator(
        load_model(resolve_model(FLAGS.model), "float32"), twin.tokenizer, twin.ends
    )
    requests = [request for task in tasks for request in task.kind.texts()]
    generated = iter(generator.run(requests))
    for comparison, task in zip(comparisons, tasks, strict=True):
        again = []
        for row in task.rows:
            was_asked = row.asked is not None and row.asked.target is not None
            again.append(next(generated) if was_asked else None)
        for index, theirs in comparison.texts.items():
            text, item = again[index], task.rows[index].item
            assert text is not None
            ours = Completion(task.rows[index].generated or "", tokens_of(text))
            tie, line = twin.compare_texts(f"{comparison.task}, {item.name}", item, ours, theirs)
            (comparison.ties if tie else comparison.wrong).append(line)


def row(comparison: Comparison, seconds: float) -> str:
    largest = "".join(f"{comparison.largest[number]:>19.1e}" for number in NUMBERS)
    counts = f"{comparison.items:7}{comparison.seams:7}{comparison.zeros:7}"
    return f"{comparison.task:26}{counts}{largest}{len(comparison.texts):8}{seconds:8.1f} s"


def report(comparisons: Sequence[Comparison], verdicts: Verdicts, engine_seconds: float) -> None:
    ties = [line for comparison in comparisons for line in comparison.ties]
    wrong = [line for comparison in comparisons for line in comparison.wrong] + verdicts.wrong
    say_verdicts(f"ties, within {TIE:g} nats in torch", ties, verdicts._replace(wrong=wrong))
    document = {
        "benchmark": "parity_miron",
        "model": Path(FLAGS.model).name,
        "tolerance": TOLERANCE,
        "tie": TIE,
        "tasks": {
            comparison.task: {
                "items": comparison.items,
                "unscored": comparison.unscored,
                "seams": comparison.seams,
                "card_zeros": comparison.zeros,
                "largest_difference": comparison.largest,
                "texts_that_differ": len(comparison.texts),
            }
            for comparison in comparisons
        },
        "ties": ties,
        "torch_rounding": verdicts.torch_rounding,
        "wrong": wrong,
        "engine_seconds": round(engine_seconds, 1),
        "environment": environment(),
    }
    print(json.dumps(document, allow_nan=False))
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    run(main)
