"""Few-shot sampling of CORE, the Gauntlet, lm-eval and MERA: rules for the order of a suite's
examples and for the shots before each.

Arrives: numbers of rows.  Leaves: orders, and shots as positions in the pool.  It deliberately does
not know texts.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, repeat
from typing import Any

from miron_jax.definitions.records import AnyRule
from miron_jax.definitions.rules import Rule

Order = Callable[[int], list[int]]
ShotSampler = Callable[[int, int], Iterator[list[int]]]
RecordDraw = Rule[Callable[[int], random.Random]]


def _shuffled(seed: int, num_rows: int) -> list[int]:
    order = list(range(num_rows))
    random.Random(seed).shuffle(order)
    return order


# Orders: number of rows -> rows in the suite's own order, before any limit.
FILE_ORDER = Rule("file", lambda num_rows: list(range(num_rows)))


def shuffle(seed: int) -> Rule[Order]:
    return Rule(f"shuffle_{seed}", partial(_shuffled, seed))


SHUFFLE_1337 = shuffle(1337)
SHUFFLE_42 = shuffle(42)


def _per_item(seed: int, num_pool: int, num_fewshot: int) -> Iterator[list[int]]:
    # The published rule samples from a list of all positions but idx.  random.sample chooses by the
    # list's length alone, so a range of that length gives the same positions without building the
    # list: with idx 2 of 5 the list is [0, 1, 3, 4], and position j holds j below idx and j + 1
    # from idx on.
    for idx in range(num_pool):
        positions = random.Random(seed + idx).sample(range(num_pool - 1), num_fewshot)
        yield [j + (j >= idx) for j in positions]


def _stream(seed: int, num_pool: int, num_fewshot: int) -> Iterator[list[int]]:
    # composer 0.17.2, _get_fewshot_sample_idxs: the example itself may be sampled and is then
    # replaced by another.  Shots come in the order in which CPython iterates over the set, so the
    # set has to be built by the same steps.
    stream = random.Random(seed)
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


def _stream_lm_eval(seed: int, num_pool: int, num_fewshot: int) -> Iterator[list[int]]:
    # lm-eval 0.4.13, ContextSampler with the task's own split: one more is drawn, and the example
    # itself left out.
    stream = random.Random(seed)
    for idx in range(num_pool):
        drawn = stream.sample(range(num_pool), num_fewshot + 1) if num_fewshot else []
        yield [j for j in drawn if j != idx][:num_fewshot]


# Few-shot sampling: (size of the pool, number of shots) -> for example 0, 1, 2, ...: positions in
# the pool, in prompt order.
# CORE's: random.Random(1234 + idx).sample over the others
PER_ITEM_1234 = Rule("per_item_1234", partial(_per_item, 1234))
# the Gauntlet's (composer's): one random.Random(1234) for all, in set order
STREAM_1234 = Rule("stream_1234", partial(_stream, 1234))
# lm-eval's: one random.Random(1234) for all, in the order of the draw
STREAM_LM_EVAL = Rule("stream_lm_eval", partial(_stream_lm_eval, 1234))
NO_SHOTS = Rule(
    "none", lambda num_pool, num_fewshot: ([] for _ in range(num_pool))
)  # texts that hold their shots already


def _stream_of_records(seed: int, num_rows: int) -> random.Random:
    return random.Random(seed)


def _shuffled_stream(seed: int, num_rows: int) -> random.Random:
    stream = random.Random(seed)
    stream.shuffle(list(range(num_rows)))
    return stream


# Suites that sample shots from another file: number of examples -> one random stream for all
# examples.
STREAM_1234_RECORDS = Rule("stream_1234_records", partial(_stream_of_records, 1234))
# after it has shuffled the examples
STREAM_42_RECORDS = Rule("stream_42_records", partial(_shuffled_stream, 42))


def _model_answers(answers: Sequence[str], turn: int) -> list[str]:
    return [*answers, *["-"] * (turn - len(answers))]


# Dialogues: (answers so far, index of the turn) -> an answer to every turn before it; a dash for
# turns without one.
OWN_ANSWERS = Rule("own_answers", _model_answers)


@dataclass(frozen=True, slots=True)
class Distinct(Rule[ShotSampler]):
    """A draw of which examples that ask the same as the question are left out; the next ones that
    it has stand there."""


def distinct(draw: Rule[ShotSampler]) -> Distinct:
    return Distinct(f"{draw.name}_distinct", draw.call)


def another_draw(draw: AnyRule, number: int) -> AnyRule | None:
    """The draw by the same rule with the seed that is `number` higher; None: the rule has no seed.

    By per_item_SEED the shots of example i are then those that example i + number has, but for
    positions from i on, so what stands before most questions is there already.
    """
    if not isinstance(draw.call, partial):
        return None
    seed = draw.call.args[0]
    name, count = re.subn(rf"_{seed}(?=_|\Z)", f"_{seed + number}", draw.name)
    if not count:  # the seed that goes without saying
        name = f"{draw.name}_{seed + number}"
    return replace(draw, name=name, call=partial(draw.call.func, seed + number))


def is_ordered(draw: AnyRule) -> bool:
    """Whether the same shots in another order are another draw."""
    return not (isinstance(draw.call, partial) and draw.call.func is _stream)


def order_named(name: str) -> Rule[Order] | None:
    """file, or shuffle_SEED; None: there is no such order."""
    if name == "file":
        return FILE_ORDER
    seed = re.fullmatch(r"shuffle_(\d{1,9})", name, re.ASCII)
    return seed and shuffle(int(seed[1]))


def draw_named(name: str) -> Rule[ShotSampler] | None:
    """per_item_SEED, stream_SEED, stream_lm_eval or stream_lm_eval_SEED: shots from the examples
    themselves; None: there is no such draw."""
    return _rule_named(name, {"stream_lm_eval": STREAM_LM_EVAL}, _OF_EXAMPLES)


def other_draw_named(name: str) -> Rule[ShotSampler] | None:
    """The same names, and `first`: shots from examples of another file, of which none needs to be
    left out."""
    fixed = {"first": FIRST_SHOTS, "stream_lm_eval": LM_EVAL_OF_OTHERS}
    return _rule_named(name, fixed, _OF_OTHERS)


def _rule_named(
    name: str, fixed: Mapping[str, Rule[ShotSampler]], seeded: Mapping[str, Any]
) -> Rule[ShotSampler] | None:
    """One of `fixed`, or one of `seeded` with its seed behind its name; None: there is none."""
    seed = re.fullmatch(r"(\w+?)_(\d{1,9})", name, re.ASCII)
    if seed and seed[1] in seeded:
        return Rule(name, partial(seeded[seed[1]], int(seed[2])))
    return fixed.get(name)


# Draws from another file, which never holds the question.  They print as the draws of a task's own
# examples do; `fewshot_pool: other_file` beside them in results tells the two apart.


def _per_item_of_others(seed: int, num_pool: int, num_fewshot: int) -> Iterator[list[int]]:
    return (random.Random(seed + idx).sample(range(num_pool), num_fewshot) for idx in count())


def _stream_of_others(seed: int, num_pool: int, num_fewshot: int) -> Iterator[list[int]]:
    # lm-eval 0.4.13, ContextSampler with a split of its own.
    stream = random.Random(seed)
    return (stream.sample(range(num_pool), num_fewshot) for _ in count())


FIRST_SHOTS: Rule[ShotSampler] = Rule(
    "first", lambda num_pool, num_fewshot: repeat(list(range(num_fewshot)))
)
LM_EVAL_OF_OTHERS: Rule[ShotSampler] = Rule("stream_lm_eval", partial(_stream_of_others, 1234))
_OF_EXAMPLES: dict[str, Any] = {
    "per_item": _per_item,
    "stream": _stream,
    "stream_lm_eval": _stream_lm_eval,
}
_OF_OTHERS: dict[str, Any] = {
    "per_item": _per_item_of_others, "stream": _stream_of_others,
    "stream_lm_eval": _stream_of_others,
}  # fmt: skip
