"""What only one task kind has beside the numbers that every task has, and the sentences that
qualify them.

Arrives: nothing.  Leaves: the `Details` of each kind.  It deliberately does not know how a kind
computes them.

Field names are the keys of results.json.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from miron_jax.definitions.if_any import IfAny
from miron_jax.engine.records import GrowingSpeed
from miron_jax.errors import some_of
from miron_jax.metrics.bias import SIGNS
from miron_jax.results.records import BEYOND_TRAINED, UNSCORED, Details, TaskResult
from miron_jax.statistics.estimate import Estimate

FIRST_OPTION = 0.9  # share of examples with gold first, above which ties inflate accuracy
FEW = 4  # examples, below which all of them may be alike by chance
TRUNCATED = "examples cut to the length limit (BOS and early shots go first)"
ROUNDED = "examples decided by exp() rounding two losses to the same number, as the reference does"
EMPTY_SPAN = "examples with an option that scores no token"
LEAKED = "prompts with a shot that asks the same question: they hold their answer"
CROSSED = "pairs of context and continuation whose border a token crosses"
CROSSED_BY = {
    "context_kept": "the model reads the context's own tokens first, as under lm-eval",
    "joint": "the model reads the two as one text, which lm-eval does not",
}
# metrics of a cloze category that tables show, as columns
BY_TARGET_TOKENS = (
    "lev_score", "target_confidence", "bits_per_char", "bits_per_byte", "greedy_exact",
    "contrast_accuracy",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceDetails(Details):
    tied: int = 0  # examples where another option equals the chosen one
    rounded_to_a_tie: int = 0  # examples decided by exp() rounding two losses to the same number
    # of a model that finds all choices equal: the first one wins
    first_option_accuracy: float | None = None
    empty_span: int = 0  # examples with an option that scores no token
    # examples with a context whose tokens are no prefix of those of context and continuation
    inexact_prefix: int = 0
    # such pairs of a context and its continuation; None: there are none
    crossed_pairs: IfAny[int | None] = None
    dialogue: IfAny[GrowingSpeed | None] = None  # None: no dialogue
    truncated: int = 0  # examples that lost tokens to the length limit
    # prompts with a shot that asks what the prompt asks; None: there are none
    leaked_prompts: IfAny[int | None] = None

    def notes(self, task: TaskResult) -> Iterator[str]:
        accuracy = self.first_option_accuracy
        if accuracy is not None and accuracy > FIRST_OPTION:
            yield f"a model that finds all options equal scores {accuracy:.3f} here"
        if self.tied == task.n >= FEW:
            yield f"each of the {task.n} examples is a tie: the tie rule has chosen, not the model"
        for name in SIGNS:
            bias = task.metric(name)
            if bias.num_examples:
                yield (
                    f"{name} {bias.value:+.3f} (95 % interval {bias.ci95[0]:+.3f} to "
                    f"{bias.ci95[1]:+.3f}, {bias.num_examples} answers): 0 is no bias, 1 and -1 "
                    "that all answers follow or oppose the stereotype"
                )

    def counts(self, task: TaskResult) -> dict[str, int]:
        tie = task.profile.get("tie", "first")
        reads = CROSSED_BY.get(task.profile.get("boundary", "joint"), "")
        return {
            UNSCORED: task.skipped,
            ROUNDED: self.rounded_to_a_tie,
            EMPTY_SPAN: self.empty_span,
            TRUNCATED: self.truncated,
            f"{CROSSED}: {reads}": self.crossed_pairs or 0,
            LEAKED: self.leaked_prompts or 0,
            BEYOND_TRAINED: self.beyond_trained_length,
            f"examples where another option equals the chosen one (the {tie} wins)": self.tied,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDetails(Details):
    max_new_tokens: int = 0  # of each completion
    ended: Mapping[str, int] = field(default_factory=dict)  # why completions ended -> how many
    # every text begins with an accepted answer that normalizes to ""
    always_right_rows: tuple[int, ...] = ()
    # an accepted answer holds a stop string, before which texts end, or `answer_after`; (): none do
    answer_holds_stop_rows: IfAny[tuple[int, ...]] = ()
    never_right_rows: IfAny[tuple[int, ...]] = ()  # no text at all is right
    # what all texts are; "": they differ, or are too few to say
    alike: IfAny[Literal["", "empty", "equal"]] = ""
    # prompts whose last character is a space or tab; None: there is none
    prompts_end_in_space: IfAny[int | None] = None
    truncated: int = 0
    # prompts with a shot that asks what the prompt asks; None: there are none
    leaked_prompts: IfAny[int | None] = None
    # fingerprints of the classifiers that made J, and of their calibrations
    classifiers: IfAny[Mapping[str, str] | None] = None

    def notes(self, task: TaskResult) -> Iterator[str]:
        if self.alike:
            yield f"all texts that the model wrote are {self.alike}"
        if self.prompts_end_in_space:
            yield (
                f"{self.prompts_end_in_space} prompts end in a space, which tokenizers join with "
                "the next word: models seldom go on after it"
            )
        if self.always_right_rows:
            rows = ", ".join(map(str, self.always_right_rows))
            yield f"any text is right in row {rows} (the answer is punctuation only)"
        if self.answer_holds_stop_rows:
            yield (
                "answers end before a stop string and begin after answer_after, so none is the "
                f"right one that holds either in row {some_of(self.answer_holds_stop_rows, 8)}"
            )
        if self.never_right_rows:
            yield f"no text at all is right in row {some_of(self.never_right_rows, 8)}"
        if task.profile.get("match") == "detox" and not task.n:
            yield "J wants three classifiers, which --detox_scorer names"

    def counts(self, task: TaskResult) -> dict[str, int]:
        return {
            UNSCORED: task.skipped,
            TRUNCATED: self.truncated,
            LEAKED: self.leaked_prompts or 0,
            BEYOND_TRAINED: self.beyond_trained_length,
        }


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The authors' own solutions: an upper bound of what programs score."""

    passed: int
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramDetails(Details):
    max_new_tokens: int = 0  # of each program
    ended: Mapping[str, int] = field(default_factory=dict)
    sandboxed: bool = True  # False: programs ran under resource limits only
    no_sandbox: IfAny[str] = ""  # why no sandbox could be used, in one word
    # what counted their memory: "cgroup" (the kernel), or "watch" (looks from outside)
    bounded_by: str = "watch"
    no_cgroup: IfAny[str] = ""  # why no control group could be made, in one word
    ceiling: Ceiling | None = None  # None: expected values are not published
    # why the machine could not judge programs, which are in no mean; (): it judged all
    not_judged: IfAny[tuple[str, ...]] = ()

    def notes(self, task: TaskResult) -> Iterator[str]:
        if self.ceiling is not None:
            yield f"the authors' own solutions pass {self.ceiling.passed} of {self.ceiling.n}"
        if not self.sandboxed:
            yield "its programs ran without a sandbox"
        if self.not_judged:
            yield (
                f"{self.ended.get('not judged', 0)} programs were not judged "
                f"({some_of(self.not_judged, 2)}): the same command judges them"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDetails(Details):
    tokens: int = 0
    bytes: int = 0
    windows: int = 0
    empty_documents: int = 0


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """A cloze task's scores by the number of tokens of the target."""

    spearman_tokens_bits_per_char: float  # NaN if either is constant
    by_target_tokens: Mapping[str, Mapping[str, Estimate]]  # "1", "2", "3", "4+"
    segmentation_tokens: int = 0  # computed for other segmentations of targets


@dataclass(frozen=True, slots=True)
class Drift:
    """What noise in the prefix costs."""

    median_percent: float  # of P(target) lost
    ci95: tuple[float, float]
    n: int  # pairs with a defined value
    metrics: Mapping[str, Estimate]  # flip rates, drift in bits


@dataclass(frozen=True, slots=True, kw_only=True)
class ClozeDetails(Details):
    caution: ClassVar[str] = (
        "confidence is a mean a token: compare bits/char, not confidence, between tokenizers"
    )

    macro: Mapping[str, Estimate]  # mean of the categories
    fragmentation: Fragmentation
    drift: Mapping[str, Drift]  # all pairs, by operator, by number of edits
    rows_by_category: Mapping[str, int]
    published_rows_a_category: int | None = None
    unspelled: int = 0  # items that the tokenizer cannot spell
    bos_added: int = 0
    targets_with_newline: int = 0
    truncated: int = 0
    prefixes_end_in_space: int = 0
    targets_begin_with_space: int = 0

    def notes(self, task: TaskResult) -> Iterator[str]:
        if not task.n:
            yield f"no item is scored, {self.unspelled} cannot be spelled with this tokenizer"
            return
        if "seam" in task.metrics:  # not of completions that were written elsewhere
            seam, zero = (100 * task.metric(name).value for name in ("seam", "card_zero"))
            yield (
                f"a token spans the border of prefix and target in {seam:.1f} % of the items, and "
                f"the card's formula gives a forced 0 in {zero:.1f} %; {self.unspelled} items "
                "cannot be spelled with this tokenizer"
            )
        if self.targets_with_newline:
            yield f"the targets of {self.targets_with_newline} items hold a line break"
        published = self.published_rows_a_category
        rows = self.rows_by_category
        if published and task.limit is None and set(rows.values()) != {published}:
            counts = ", ".join(f"{category} {count}" for category, count in rows.items())
            yield f"its file has {counts} rows, the card says {published} of each category"
        drift = self.drift.get("all")
        if drift and drift.n:
            low, high = drift.ci95
            wrong = shown_with_error(drift.metrics.get("flip_to_wrong"))
            right = shown_with_error(drift.metrics.get("flip_to_right"))
            yield (
                f"noise in the prefix takes a median {drift.median_percent:.1f} % ({low:.1f} to "
                f"{high:.1f}) of P(target); share of items turned wrong {wrong}, turned right "
                f"{right}"
            )

    def counts(self, task: TaskResult) -> dict[str, int]:
        return {
            UNSCORED: task.skipped - self.unspelled,
            TRUNCATED: self.truncated,
            BEYOND_TRAINED: self.beyond_trained_length,
        }


def shown_with_error(estimate: Estimate | None) -> str:
    """Value and standard error; "" without a value."""
    if estimate is None or not math.isfinite(estimate.value):
        return ""
    digits = 1 if abs(estimate.value) >= 10 else 2
    value = f"{estimate.value:.{digits}f}"
    return value if math.isnan(estimate.stderr) else f"{value} \u00b1 {estimate.stderr:.{digits}f}"
