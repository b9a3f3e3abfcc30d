"""Which tokens of a request are scored, from the first of them to its end: rules that suites choose from.

Arrives: tokens of requests and of their contexts.  Leaves: places of first scored tokens.  It deliberately does not know
texts.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from miron_jax.definitions.rules import Rule
from miron_jax.ragged import Ragged, common_length

# Requests, their contexts tokenized alone, how many requests in a row are one example's -> int64 [R], counted from each
# request's first token, before any cut.
FirstScored = Callable[[Ragged, Ragged, np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class Span(Rule[FirstScored]):
    context: Callable[[str], str] | None = None  # the part of a context that is tokenized alone; None: none is


def shared_with_context(whole: Ragged, before: Ragged) -> np.ndarray:
    """How many tokens each request shares with its context alone."""
    requests = np.arange(len(whole.offsets) - 1)
    return common_length(whole, requests, before, requests)


def _shared_by_options(whole: Ragged, num_options: np.ndarray, from_end: bool) -> np.ndarray:
    """How many tokens all requests of an example share: the least of what each shares with the first."""
    first_of_example = np.cumsum(num_options) - num_options
    requests, first = np.arange(len(whole.offsets) - 1), np.repeat(first_of_example, num_options)
    shared = common_length(whole, requests, whole, first, from_end)
    return np.repeat(np.minimum.reduceat(shared, first_of_example), num_options)


AFTER_STRIPPED_CONTEXT = Span(
    "after_stripped_context", lambda whole, before, num_options: shared_with_context(whole, before), str.strip
)
# Behind as many tokens as the context alone has, trailing white space not counted.
AFTER_CONTEXT = Span(
    "after_context", lambda whole, before, num_options: np.minimum(before.lengths, whole.lengths), str.rstrip
)
AFTER_COMMON_PREFIX = Span(
    "after_common_prefix", lambda whole, before, num_options: _shared_by_options(whole, num_options, from_end=False)
)
COMMON_SUFFIX = Span(
    "common_suffix",
    lambda whole, before, num_options: whole.lengths - _shared_by_options(whole, num_options, from_end=True),
)
# Of segments: what stands behind the context's own tokens.
CONTINUATION = Span("continuation", lambda whole, before, num_options: before.lengths)
