"""Examples that ask the same: as a shot, one tells the answer of the other.

Arrives: examples.  Leaves: `asks_the_same`, and `most_repeats` of a pool.  It deliberately does not
know how shots are sampled.

Two examples ask the same if their contexts are equal and so are their right continuations or all
their choices.  Equal contexts alone are not enough: "Which sentence is right?" may stand before all
examples.
"""

from collections import Counter
from collections.abc import Hashable, Sequence

from miron_jax.definitions.records import Example, Question

QuestionKeys = tuple[Hashable, Hashable]


def asks_the_same(example: Example, other: Example) -> bool:
    return ask_the_same(keys_of(example), keys_of(other))


def ask_the_same(keys: QuestionKeys, others: QuestionKeys) -> bool:
    return keys[0] == others[0] or keys[1] == others[1]


def tells_answer(example: Example, shot: Example) -> bool:
    """Whether a shot that asks the same shows an answer that is right: of a question, an accepted
    one."""
    if not (isinstance(example, Question) and isinstance(shot, Question)):
        return True
    return any(_words(shown) in map(_words, example.accepted) for shown in shot.accepted[:1])


def keys_of(example: Example) -> QuestionKeys:
    """Examples of which either is equal ask the same.  White space does not count."""
    contexts = tuple(map(_words, example.contexts))
    if isinstance(example, Question):
        return contexts, contexts
    gold = min(example.gold or 0, len(example.continuations) - 1)
    return (
        (contexts, _words(example.continuations[gold])),
        (contexts, tuple(sorted(map(_words, example.continuations)))),
    )


def most_repeats(examples: Sequence[Example], pool: Sequence[Example]) -> int:
    """Examples of the pool that ask the same as one of `examples`, at most."""
    by_answer = Counter(keys_of(example)[0] for example in pool)
    by_choices = Counter(keys_of(example)[1] for example in pool)
    both = map(keys_of, examples)
    return max((by_answer[answer] + by_choices[choices] for answer, choices in both), default=0)


def _words(text: str) -> str:
    return " ".join(text.split())
