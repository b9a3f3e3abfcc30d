"""The draws of the next seeds."""

import random
from functools import partial
from itertools import islice

import pytest

from miron_jax.prompting.draws import (
    FIRST_SHOTS,
    LM_EVAL_OF_OTHERS,
    NO_SHOTS,
    OWN_ANSWERS,
    PER_ITEM_1234,
    STREAM_42_RECORDS,
    STREAM_1234,
    STREAM_1234_RECORDS,
    STREAM_LM_EVAL,
    Distinct,
    another_draw,
    distinct,
    draw_named,
    is_ordered,
)


def test_cores_next_draw_has_the_shots_of_the_next_example() -> None:
    """Example i has random.Random(1234 + number + i), so the positions of example i + number, those from i to i + number - 1
    one higher."""
    another = another_draw(PER_ITEM_1234, 3)
    assert another is not None
    assert another.name == "per_item_1237"
    today = [*PER_ITEM_1234.call(40, 10)]
    for i, shots in enumerate(islice(another.call(40, 10), 37)):
        assert shots == [j - 1 + (j - 1 >= i) if j > i + 3 else j + (j >= i) for j in today[i + 3]]
    same = sum(a == b for a, b in zip(another.call(40, 10), today[3:], strict=False))
    assert 5 < same < 37


def test_names_are_those_that_a_task_of_ones_own_takes() -> None:
    for draw, name in (
        (STREAM_1234, "stream_1236"),
        (STREAM_LM_EVAL, "stream_lm_eval_1236"),
        (PER_ITEM_1234, "per_item_1236"),
    ):
        another = another_draw(draw, 2)
        named = draw_named(name)
        assert another is not None
        assert named is not None
        assert another.name == name
        assert [*another.call(9, 3)] == [*named.call(9, 3)] != [*draw.call(9, 3)]
        left_out = another_draw(distinct(draw), 2)
        assert isinstance(left_out, Distinct)
        assert [*left_out.call(9, 3)] == [*another.call(9, 3)]
    assert [is_ordered(draw) for draw in (STREAM_1234, STREAM_LM_EVAL, PER_ITEM_1234)] == [False, True, True]


def test_draws_from_another_file_have_the_next_seed() -> None:
    plain = another_draw(STREAM_1234_RECORDS, 1)
    shuffled = another_draw(STREAM_42_RECORDS, 1)
    of_others = another_draw(LM_EVAL_OF_OTHERS, 1)
    assert plain is not None
    assert shuffled is not None
    assert of_others is not None
    assert (plain.name, shuffled.name) == ("stream_1235_records", "stream_43_records")
    assert plain.call(7).random() == random.Random(1235).random()
    by_hand = random.Random(43)
    by_hand.shuffle([*range(7)])
    assert shuffled.call(7).random() == by_hand.random()
    stream = random.Random(1235)
    assert [*islice(of_others.call(9, 3), 2)] == [stream.sample(range(9), 3), stream.sample(range(9), 3)]


@pytest.mark.parametrize("draw", [NO_SHOTS, FIRST_SHOTS, OWN_ANSWERS])
def test_fixed_shots_have_no_other_draw(draw: partial[object]) -> None:
    assert another_draw(draw, 1) is None  # pyright: ignore[reportArgumentType] - a Rule
