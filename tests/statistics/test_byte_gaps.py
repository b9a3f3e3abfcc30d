"""Two models' byte losses: by kind of text, by word, from the files of runs."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miron_jax.statistics.byte_gaps import BytePair, gaps_by_kind, worst_spans
from tests.support.command import run
from tests.support.tiny_model import make_model
from tests.support.tolerances import ROUNDING


def pair(text: str, difference: dict[int, float], name: str = "d") -> BytePair:
    """The second model needs these bits more at these bytes."""
    first = np.full(len(text.encode()), math.log(2))  # one bit a byte
    second = first.copy()
    for at, bits in difference.items():
        second[at] += bits * math.log(2)
    return BytePair(name, text, first, second)


def test_kinds_by_hand() -> None:
    # Bytes 0 to 5 are ASCII; the two Cyrillic letters have two each, from 6 and from 8 on.
    gaps = {gap.kind: gap for gap in gaps_by_kind([pair("ab 12,Да", {0: 3.0, 3: -1.0, 6: 2.0})])}
    assert gaps["letters, Latin"][1:] == pytest.approx((2, 1.0, 2.5, 3 / 4))
    assert gaps["digits"][1:] == pytest.approx((2, 1.0, 0.5, -1 / 4))
    assert gaps["letters, Cyrillic"][1:] == pytest.approx((4, 1.0, 1.5, 2 / 4))
    assert gaps["white space"][1:] == pytest.approx((1, 1.0, 1.0, 0.0))
    assert gaps["punctuation and symbols"].num_bytes == 1
    # A combining accent, two bytes, belongs to its letter.
    kinds = {gap.kind: gap.num_bytes for gap in gaps_by_kind([pair("e\u0301", {})])}
    assert kinds == {"letters, Latin": 1, "letters, other": 2}


def test_worst_spans_by_hand() -> None:
    worse, better = worst_spans([pair("one two  three", {4: 2.0, 5: 1.0, 13: -4.0}), pair("Да", {3: 1.5}, "e")], 2)
    assert [(each.doc_id, each.start, each.text, each.difference) for each in worse] == [
        ("d", 3, " two", pytest.approx(3.0)),
        ("e", 0, "Да", pytest.approx(1.5)),
    ]
    assert [(each.text, each.difference) for each in better] == [("  three", pytest.approx(-4.0))]


@settings(max_examples=20)
@given(st.lists(st.text(max_size=30), max_size=4), st.integers(0, 99))
def test_every_byte_is_of_one_kind_and_in_one_span(texts: list[str], seed: int) -> None:
    draws, pairs = np.random.default_rng(seed), []
    for i, text in enumerate(texts):
        size = len(text.encode("utf-8", "surrogatepass"))
        pairs.append(BytePair(str(i), text, draws.random(size), draws.random(size)))
    whole = sum(float((each.second - each.first).sum()) for each in pairs) / math.log(2)
    gaps = gaps_by_kind(pairs)
    assert sum(gap.num_bytes for gap in gaps) == sum(len(each.first) for each in pairs)
    assert sum((gap.second - gap.first) * gap.num_bytes for gap in gaps) == pytest.approx(whole, abs=ROUNDING)
    worse, better = worst_spans(pairs, 1000)
    assert sum(each.difference for each in (*worse, *better)) == pytest.approx(whole, abs=ROUNDING)


def test_compare_reads_them_from_two_runs(miron, place, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "notes.txt").write_text("the sun is hot 1984 and Слава falls, cold\n")
    for name, model in (("a", place.model), ("b", make_model(tmp_path / "model", seed=1))):
        run(
            miron, model, tmp_path / name, "--tasks=text", f"--data_dir=text={tmp_path / 'texts'}", "--save_byte_losses"
        )
    ran = miron("compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert ran.status == 0, ran.err
    kinds = ("letters, Latin", "letters, Cyrillic", "digits", "white space")
    for part in (*kinds, ": b finds less probable:", " bits  '"):
        assert part in ran.out, ran.out
    (path,) = (tmp_path / "b").rglob("byte_losses/text/*.parquet")
    path.write_bytes(b"torn")
    ran = miron("compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert (ran.status, "is no file of byte losses of this version" in ran.err) == (2, True), ran.err
