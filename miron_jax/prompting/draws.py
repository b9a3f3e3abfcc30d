"""In which order a suite counts its examples, and which few-shot examples stand before each: rules that suites choose from.

Arrives: numbers of rows.  Leaves: orders, and shots by index in the pool.  It deliberately does not know texts.
"""

import random
from collections.abc import Iterator, Sequence

from miron_jax.definitions.rules import Rule


def _shuffled(seed: int, num_rows: int) -> list[int]:
    order = list(range(num_rows))
    random.Random(seed).shuffle(order)
    return order


# Orders: number of rows -> rows in the order in which the suite counts its examples, before any limit.
FILE_ORDER = Rule("file", lambda num_rows: list(range(num_rows)))
SHUFFLE_1337 = Rule("shuffle_1337", lambda num_rows: _shuffled(1337, num_rows))
SHUFFLE_42 = Rule("shuffle_42", lambda num_rows: _shuffled(42, num_rows))


def _per_item_1234(num_pool: int, num_fewshot: int) -> Iterator[list[int]]:
    # The published code samples a list of all indices but idx.  random.sample chooses positions by the list's length
    # alone, so a range of that length gives the same positions without building the list: with idx 2 of 5 the list
    # is [0, 1, 3, 4], and position j holds j below idx and j + 1 from idx on.
    for idx in range(num_pool):
        positions = random.Random(1234 + idx).sample(range(num_pool - 1), num_fewshot)
        yield [j + (j >= idx) for j in positions]


def _stream_1234(num_pool: int, num_fewshot: int) -> Iterator[list[int]]:
    # composer 0.17.2, _get_fewshot_sample_idxs: the item itself may be sampled and is then replaced.  The
    # order shown is that in which CPython walks the set, so the set has to be built by the same steps.
    stream = random.Random(1234)
    for idx in range(num_pool):
        shots = set(stream.sample(range(num_pool), min(num_pool - 1, num_fewshot)))
        if idx in shots:
            shots.remove(idx)
            if len(shots) < num_pool - 1:
                other = stream.choice(range(num_pool))
                while other in shots or other == idx:
                    other = stream.choice(range(num_pool))
                shots.add(other)
        yield list(shots)


# Sampling: (size of the pool, few-shot examples) -> for example 0, 1, 2, ...: places in the pool, in the order shown.
PER_ITEM_1234 = Rule("per_item_1234", _per_item_1234)  # random.Random(1234 + place).sample over the others
STREAM_1234 = Rule(
    "stream_1234", _stream_1234
)  # one random.Random(1234) for all, the item itself replaced, in set order


def _shuffled_stream_42(num_rows: int) -> random.Random:
    stream = random.Random(42)
    stream.shuffle(list(range(num_rows)))
    return stream


# Sampling of suites that use records of another file themselves: number of examples -> the one stream that serves all.
STREAM_1234_RECORDS = Rule("stream_1234_records", lambda num_rows: random.Random(1234))
STREAM_42_RECORDS = Rule("stream_42_records", _shuffled_stream_42)  # that has shuffled the examples before


def _own_answers(answers: Sequence[str], place: int) -> list[str]:
    return [*answers, *["-"] * (place - len(answers))]


# Of dialogues: (answers so far, place of the turn) -> an answer to every turn before it, a dash where there is none.
OWN_ANSWERS = Rule("own_answers", _own_answers)
