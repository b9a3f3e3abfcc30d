"""Few-shot sampling: rules for the order of a suite's examples and for the shots before each.

Arrives: numbers of rows.  Leaves: orders, and shots as positions in the pool.  It deliberately does not know texts.
"""

import random
from collections.abc import Iterator, Sequence

from miron_jax.definitions.rules import Rule


def _shuffled(seed: int, num_rows: int) -> list[int]:
    order = list(range(num_rows))
    random.Random(seed).shuffle(order)
    return order


# Orders: number of rows -> rows in the suite's own order, before any limit.
FILE_ORDER = Rule("file", lambda num_rows: list(range(num_rows)))
SHUFFLE_1337 = Rule("shuffle_1337", lambda num_rows: _shuffled(1337, num_rows))
SHUFFLE_42 = Rule("shuffle_42", lambda num_rows: _shuffled(42, num_rows))


def _per_item_1234(num_pool: int, num_fewshot: int) -> Iterator[list[int]]:
    # The published rule samples from a list of all positions but idx.  random.sample chooses by the list's length
    # alone, so a range of that length gives the same positions without building the list: with idx 2 of 5 the list
    # is [0, 1, 3, 4], and position j holds j below idx and j + 1 from idx on.
    for idx in range(num_pool):
        positions = random.Random(1234 + idx).sample(range(num_pool - 1), num_fewshot)
        yield [j + (j >= idx) for j in positions]


def _stream_1234(num_pool: int, num_fewshot: int) -> Iterator[list[int]]:
    # composer 0.17.2, _get_fewshot_sample_idxs: the example itself may be sampled and is then replaced by another.  Shots
    # come in the order in which CPython iterates over the set, so the set has to be built by the same steps.
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


def _stream_lm_eval(num_pool: int, num_fewshot: int) -> Iterator[list[int]]:
    # lm-eval 0.4.13, ContextSampler with the task's own split: one more is drawn, and the example itself left out.
    stream = random.Random(1234)
    for idx in range(num_pool):
        drawn = stream.sample(range(num_pool), num_fewshot + 1) if num_fewshot else []
        yield [j for j in drawn if j != idx][:num_fewshot]


# Few-shot sampling: (size of the pool, number of shots) -> for example 0, 1, 2, ...: positions in the pool, in prompt order.
PER_ITEM_1234 = Rule("per_item_1234", _per_item_1234)  # random.Random(1234 + idx).sample over the others
STREAM_1234 = Rule("stream_1234", _stream_1234)  # one random.Random(1234) for all, in set order
STREAM_LM_EVAL = Rule("stream_lm_eval", _stream_lm_eval)  # one random.Random(1234) for all, in the order of the draw
NO_SHOTS = Rule(
    "none", lambda num_pool, num_fewshot: ([] for _ in range(num_pool))
)  # texts that hold their shots already


def _shuffled_stream_42(num_rows: int) -> random.Random:
    stream = random.Random(42)
    stream.shuffle(list(range(num_rows)))
    return stream


# Suites that sample shots from another file: number of examples -> one random stream for all examples.
STREAM_1234_RECORDS = Rule("stream_1234_records", lambda num_rows: random.Random(1234))
STREAM_42_RECORDS = Rule("stream_42_records", _shuffled_stream_42)  # after it has shuffled the examples


def _model_answers(answers: Sequence[str], turn: int) -> list[str]:
    return [*answers, *["-"] * (turn - len(answers))]


# Dialogues: (answers so far, index of the turn) -> an answer to every turn before it; a dash for turns without one.
OWN_ANSWERS = Rule("own_answers", _model_answers)
