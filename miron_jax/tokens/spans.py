"""Rules for the first scored token of a request; its scored span goes from there to the end.

Arrives: tokens of requests and of their contexts.  Leaves: positions of first scored tokens.  It
deliberately does not know texts.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from miron_jax.definitions.rules import Rule
from miron_jax.tokens.ragged import Ragged, common_length

# Requests, their contexts tokenized alone, number of consecutive requests of each example -> int64
# [R], positions counted from each request's first token, before truncation.
FirstScored = Callable[[Ragged, Ragged, np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class Span(Rule[FirstScored]):
    """A rule for the first scored token."""

    # Context -> the text that is tokenized alone; None: the rule needs none.
    context: Callable[[str], str] | None = None


def shared_with_context(whole: Ragged, before: Ragged) -> np.ndarray:
    """Number of leading tokens that each request shares with its context tokenized alone."""
    requests = np.arange(len(whole.offsets) - 1)
    return common_length(whole, requests, before, requests)


def _shared_by_choices(whole: Ragged, num_choices: np.ndarray, from_end: bool) -> np.ndarray:
    """Number of tokens that all requests of an example share: the least that any shares with the
    first."""
    first_of_example = np.cumsum(num_choices) - num_choices
    requests = np.arange(len(whole.offsets) - 1)
    first = np.repeat(first_of_example, num_choices)
    shared = common_length(whole, requests, whole, first, from_end)
    return np.repeat(np.minimum.reduceat(shared, first_of_example), num_choices)


AFTER_STRIPPED_CONTEXT = Span(
    "after_stripped_context",
    lambda whole, before, num_choices: shared_with_context(whole, before),
    str.strip,
)
# Starts after as many tokens as the context alone has, without its trailing white space.
AFTER_CONTEXT = Span(
    "after_context",
    lambda whole, before, num_choices: np.minimum(before.lengths, whole.lengths),
    str.rstrip,
)
# The same; where that leaves nothing, because one token reaches over the boundary, from the first
# token that differs.
AFTER_CONTEXT_OR_DIFFERENCE = Span(
    "after_context_or_difference",
    lambda whole, before, num_choices: np.where(
        before.lengths < whole.lengths, before.lengths, shared_with_context(whole, before)
    ),
    str.rstrip,
)
AFTER_COMMON_PREFIX = Span(
    "after_common_prefix",
    lambda whole, before, num_choices: _shared_by_choices(whole, num_choices, from_end=False),
)
COMMON_SUFFIX = Span(
    "common_suffix",
    lambda whole, before, num_choices: (
        whole.lengths - _shared_by_choices(whole, num_choices, from_end=True)
    ),
)
# The same after the context as it is, of which a chat template makes the end.
AFTER_PROMPT = Span(
    "after_prompt",
    lambda whole, before, num_choices: np.minimum(before.lengths, whole.lengths),
    str,
)
# For contexts and continuations tokenized separately: all tokens after the context.
CONTINUATION = Span("continuation", lambda whole, before, num_choices: before.lengths)
