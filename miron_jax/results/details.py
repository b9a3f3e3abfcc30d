"""What only one task kind has beside the numbers that every task has.

Arrives: nothing.  Leaves: `Details`.  It deliberately does not know how a kind computes them.

Field names are the keys of results.json.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from miron_jax.engine.growing import GrowingSpeed
from miron_jax.statistics.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceDetails:
    tied: int = 0  # examples where another option equals the chosen one
    rounded_to_a_tie: int = 0  # examples decided by exp() rounding two losses to the same number
    first_option_accuracy: float | None = None  # of a model that finds all choices equal: the first one wins
    empty_span: int = 0  # examples with an option that scores no token
    inexact_prefix: int = 0  # examples whose context is no token prefix, scored from the longest common one
    dialogue: GrowingSpeed | None = None  # None: no dialogue
    truncated: int = 0  # examples that lost tokens to the length limit
    beyond_trained_length: int = 0  # examples longer than the length the model was trained at


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDetails:
    max_new_tokens: int = 0  # of each completion
    ended: Mapping[str, int] = field(default_factory=dict)  # why completions ended -> how many
    always_right_rows: tuple[int, ...] = ()  # every text begins with an accepted answer that normalizes to ""
    truncated: int = 0
    beyond_trained_length: int = 0


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The authors' own solutions: an upper bound of what programs score."""

    passed: int
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramDetails:
    max_new_tokens: int = 0  # of each program
    ended: Mapping[str, int] = field(default_factory=dict)
    sandboxed: bool = True  # False: programs ran under resource limits only
    ceiling: Ceiling | None = None  # None: expected values are not published
    beyond_trained_length: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDetails:
    tokens: int = 0
    bytes: int = 0
    windows: int = 0
    empty_documents: int = 0
    beyond_trained_length: int = 0  # documents with windows longer than the length the model was trained at


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
class ClozeDetails:
    macro: Mapping[str, Estimate]  # mean of the categories
    fragmentation: Fragmentation
    drift: Mapping[str, Drift]  # all pairs, by operator, by number of edits
    rows_by_category: Mapping[str, int]
    published_rows_a_category: int | None = None
    unspelled: int = 0  # items that the tokenizer cannot spell
    bos_added: int = 0
    targets_with_newline: int = 0
    truncated: int = 0
    beyond_trained_length: int = 0
    prefixes_end_in_space: int = 0
    targets_begin_with_space: int = 0


Details = ChoiceDetails | GenerationDetails | ProgramDetails | TextDetails | ClozeDetails
