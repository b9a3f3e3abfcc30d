"""Tests of whether a set is known by heart: what is scored for them and at what cost, numbers by hand, bad input, the
command."""

import json
from collections import Counter
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.config import RunConfig
from miron_jax.engine.records import Score
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.memorized import LEAST, LONG, Memorized, TaskRows
from miron_jax.evaluation.twins import generated_twins, read_twins
from miron_jax.prompting.row_texts import row_texts
from miron_jax.statistics.paired import sign_flips, signed_ranks
from tests.support.command import command
from tests.support.own_task import CHOICE, read_task
from tests.support.tiny_model import make_model
from tests.support.tolerances import FLOAT64, RESAMPLED, ROUNDING

__all__ = ["command"]
run = pytest.fixture(command)


def numbered(count: int, length: int, first: int = 0) -> list[np.ndarray]:
    """Rows that no two of share a token."""
    return [np.arange(length, dtype=np.int32) + first + i * length for i in range(count)]


def spans(tests: Memorized) -> list[tuple[list[int], list[int]]]:
    """(what stands before the scored tokens, scored tokens) of each request."""
    return [(ids[:start].tolist(), ids[start:].tolist()) for ids, start in tests.requests]


def test_blocks_are_read_forwards_and_backwards() -> None:
    """52 rows of 2 tokens: ten blocks of 5, the last two rows stand in none; 7 is the separator, 1 and 2 come first."""
    rows = numbered(52, 2, first=10)
    tests = Memorized([TaskRows("t", rows, [*"x" * 52], None)], (1, 2), (7,), 20, 0)
    scored = spans(tests)
    assert len(scored) == 20
    starts = set()
    for forwards, backwards in zip(scored[::2], scored[1::2], strict=True):
        assert forwards[0] == backwards[0] == [1, 2]
        start = forwards[1][0]
        starts.add(start)
        block = [[start + 2 * i, start + 2 * i + 1] for i in range(5)]
        assert forwards[1] == [*chain.from_iterable((*row, 7) for row in block)][:-1]
        assert backwards[1] == [*chain.from_iterable((*row, 7) for row in block[::-1])][:-1]
    assert starts == {10 + 10 * i for i in range(10)}


def test_shorter_blocks_where_rows_are_long() -> None:
    """Blocks of 5 rows have 5 * 8 + 4 = 44 tokens and those of 2 have 17; 20 have room for two."""
    rows = numbered(30, 8, first=10)
    tests = Memorized([TaskRows("t", rows, [*"x" * 30], None)], (1,), (7,), 20, 0)
    assert {len(scored) for _, scored in spans(tests)} == {17}
    fits = TaskRows("t", rows, [*"x" * 30], None)
    with pytest.raises(InputError, match=r"t has no order test, for 0 blocks of 2 of its 30 rows fit 9 tokens, .* 10;"):
        Memorized([fits], (1,), (7,), 10, 0)
    with pytest.raises(InputError, match=r"expected at least 10 \(raise --max_length\); no twins test"):
        Memorized([fits], (1,), (7,), 10, 0, may_be_longer=True)
    few = TaskRows("few", rows[:19], [*"x" * 19], None)
    with pytest.raises(InputError, match=r"for 9 blocks of 2 of its 19 rows fit 19 tokens, expected at least 10; no"):
        Memorized([few], (1,), (7,), 20, 0, may_be_longer=True)
    plans = Memorized([few, fits], (1,), (7,), 20, 0).plans
    assert [[*plan.pairs] for plan in plans] == [[], ["order"]], "one task does not stop another"
    twins = TaskRows("t", rows, [*map(str, range(30))], [*rows], [*map(str, range(30))])
    assert [*Memorized([twins], (1,), (7,), 10, 0).plans[0].pairs] == ["twins"], "nor one test another"


def test_a_cluster_of_rows_stands_against_one_of_twins() -> None:
    """Rows 0 and 1 are of one cluster, and their twins of one; of 2 and 3, whose twins are of two, one pair is taken; of
    4 and 5, which share a cluster of twins, likewise."""
    rows, clusters, of_twins = numbered(30, 8), [*map(str, range(30))], [*map(str, range(30))]
    clusters[1], of_twins[1], clusters[3], of_twins[5] = "0", "0", "2", "4"
    tests = Memorized([TaskRows("t", rows, clusters, [*rows], of_twins)], (1,), (7,), 50, 0, test_rows=1000)
    taken = Counter(pair[2] for pair in tests.plans[0].pairs["twins"])
    assert (taken["0"], taken["2"], taken["4"] + taken["5"], taken.total()) == (2, 1, 1, 28)
    one = [TaskRows("t", rows, clusters, [*rows], ["x"] * 30)]
    left_out = Memorized(one, (1,), (7,), 50, 0).plans[0].left_out
    assert left_out["twins"] == "for 1 clusters of its rows and twins have 1 tokens or more, expected at least 10"


def test_second_halves_stand_after_those_of_a_third_text() -> None:
    """A guided pair has the second half of the twin after the third's first (expected higher), and of the row (other)."""
    rows = numbered(60, LONG, first=10)
    twins: list[Any] = numbered(60, LONG, first=10_000)
    twins[3] = twins[3][:0]
    tests = Memorized(
        [TaskRows("t", rows, [*map(str, range(60))], twins, [*map(str, range(60))])],
        (1,),
        (7,),
        500,
        0,
        test_rows=100_000,
    )
    scored, pairs = spans(tests), tests.plans[0].pairs
    assert {name: len(each) for name, each in pairs.items()} == {"order": 12, "twins": 59, "guided prefix": 29}
    lenders = {*map(tuple, twins[:3] + twins[4:])}
    for pair in pairs["guided prefix"]:
        (alone, after), (twin_alone, row_after), cluster = pair
        row, twin = scored[alone][1], scored[twin_alone][1]
        assert row[0] == 10 + LONG * int(cluster)
        assert twin[0] == 10_000 + LONG * int(cluster)
        assert scored[after][1] == twin[LONG // 2 :]
        assert scored[row_after][1] == row[LONG // 2 :]
        assert scored[after][0] == scored[row_after][0]
        lenders.discard(tuple(twin))
    for pair in pairs["guided prefix"]:
        third = scored[pair[1][1]][0][1:]
        assert any(list(each[: LONG // 2]) == third for each in lenders)


def test_numbers_by_hand() -> None:
    """Forwards each token has -1 nat and backwards -2: 1 nat a token, and of ten blocks all signs are one of 1,024.

    Rows have z = -1 where twins have z = -2, so the rank correlation is 1.  Of 20 guided pairs, a row's second half has
    -1 after its own first half and -1.5 after another's, the twin's -2 after both: (-1 - 2) / 2 less (-2 - 1.5) / 2.
    """
    rows, twins = numbered(50, LONG, first=10), numbered(50, LONG, first=10_000)
    task = TaskRows("t", rows, [*map(str, range(50))], [*twins], [*map(str, range(50))])
    tests = Memorized([task], (1,), (7,), 500, 0, test_rows=100_000)
    scores = []
    guided = {pair[1][1] for pair in tests.plans[0].pairs["guided prefix"]}
    for i, (_, scored) in enumerate(spans(tests)):
        nats = -1.0 if scored[0] < scored[-1] else -2.0
        if scored[0] >= 10_000:
            nats = -2.0
        if i in guided:
            nats = -1.5
        distribution = np.tile(np.asarray([0.0, 0.0, 1.0], np.float32), (len(scored), 1))
        scores.append(Score(np.full(len(scored), nats, np.float32), np.zeros(0, np.int32), 0.0, distribution))
    [result] = tests.results(scores)
    assert result.left_out == {}
    by_name = {each.test: each for each in result.tests}
    values = {name: each.difference.value for name, each in by_name.items()}
    assert values == pytest.approx({"order": 1, "twins": 1, "guided prefix": 0.25}, abs=ROUNDING)
    assert by_name["twins"].difference.ci95[1] == 1, "Student's t would end at 1.17"
    assert by_name["order"].difference.num_examples == 10
    assert by_name["order"].difference.p_value == 1 / 1024
    assert by_name["order"].holm == 1 / 1024  # the largest of three
    assert by_name["guided prefix"].holm == by_name["twins"].holm == 3 / 10_001


def test_sign_flips_of_one_side_and_signed_ranks_by_hand() -> None:
    """Of 1, 2, -4 all eight flips: -1 is reached by -1, 1, 3, 5, 7 (two-sided by all but none).  Ranks of 3, -1, 0.5, 3
    without sign are 3.5, 2, 1, 3.5, their mean 2.5."""
    sums = np.asarray([1.0, 2.0, -4.0])
    reached = [sum(s * x for s, x in zip(signs, sums, strict=True)) for signs in product((1, -1), repeat=3)]
    assert sign_flips(sums, one_sided=True) == np.mean([each >= -1 for each in reached]) == 5 / 8
    assert sign_flips(-sums, one_sided=True) == 4 / 8
    assert sign_flips(sums) == 1
    many = np.arange(1.0, 41) * np.where(np.arange(40) % 3, 1, -1)
    assert sign_flips(many) == pytest.approx(2 * sign_flips(many, one_sided=True), abs=RESAMPLED)
    ranks = signed_ranks(np.asarray([3.0, -1.0, 0.5, 3.0, np.nan]))
    np.testing.assert_allclose(ranks, [1.4, -0.8, 0.4, 1.4, np.nan], rtol=FLOAT64)


@pytest.mark.parametrize("with_twins", [False, True])
def test_ten_thousand_rows_cost_a_tenth_of_their_tokens(with_twins: bool) -> None:
    """Rows of 10 to 150 tokens; twins are longer.  Of 400 rows the tests take the tokens of 1,000."""
    rng = np.random.default_rng(0)
    # 3 tokens are the same in all rows, which begin with them
    drawn = [rng.integers(0, 1 << 30, length) for length in rng.integers(10, 150, 10_000)]
    rows = [np.append([1, 2, 3], row).astype(np.int32) for row in drawn]
    twins: list[Any] = [np.append(row, row[:5]) for row in rows]
    for num_rows, most in ((10_000, 0.1), (400, 2.5)):
        clusters = [*map(str, range(num_rows))]
        task = TaskRows("t", rows[:num_rows], clusters, twins[:num_rows] if with_twins else None, clusters)
        tests = Memorized([task], (1,), (7,), 2048, 0)
        whole = sum(map(len, task.row_ids)) - 3 * (num_rows - 1)
        [sentence] = tests.sentences()
        tokens = sum(tests.plans[0].scored.values())
        assert f"{tokens / whole:.1%} of the {whole:,} distinct tokens of its {num_rows:,} rows" in sentence
        assert tokens <= most * whole
        assert tokens >= 0.8 * most * whole
        assert all(len(pairs) >= LEAST for pairs in tests.plans[0].pairs.values())


QUESTIONS = [{"q": f"Question {i}?", "c": [f"no {i}", f"yes {i}"], "a": i % 2} for i in range(40)]


def own_rows(folder: Path, records: list[Any]) -> tuple[RunConfig, Any]:
    folder.mkdir()
    read_task(folder, CHOICE, records)
    config = RunConfig("demo", ("own",), task_path=(str(folder / "x.yaml"),))
    [source] = find_inputs(config).sources
    return config, row_texts(source.task, source.examples)


def test_rows_are_question_and_right_answer_in_the_order_of_the_file(tmp_path: Path) -> None:
    _, rows = own_rows(tmp_path / "data", QUESTIONS)
    assert [row.row for row in rows] == [*range(40)]
    assert [row.text.split()[-2:] for row in rows[:2]] == [["no", "0"], ["yes", "1"]]
    assert rows[0].text.startswith("Question 0?")


def test_a_row_that_is_completed_has_its_first_accepted_answer() -> None:
    config = RunConfig("demo", ("eval-ua-tion-gen-text/*",), items_per_category=2)
    for source in find_inputs(config).sources:
        for row, example in zip(row_texts(source.task, source.examples), source.examples, strict=False):
            assert row.text == f"{example.contexts[0]} {example.accepted[0]}"


def test_noisy_rows_are_of_the_cluster_of_their_clean_prefix() -> None:
    [source] = find_inputs(RunConfig("demo", ("miron-gen/en",), items_per_category=20)).sources
    clusters = {row.text: row.cluster for row in row_texts(source.task, source.examples)}
    noisy = [each for each in source.examples if each.clean_prefix]
    assert noisy
    for each in noisy:
        clean = each.clean_prefix + each.target
        assert clusters[each.prefix + each.target] == clusters.get(clean, each.clean_prefix)


def test_twins_stand_in_a_folder_laid_out_as_the_data(tmp_path: Path) -> None:
    config, rows = own_rows(tmp_path / "data", QUESTIONS)
    twins = [{**row, "q": f"Say {i}."} for i, row in enumerate(QUESTIONS)]
    own_rows(tmp_path / "twins", twins)
    read = read_twins(config, {"": str(tmp_path / "twins")}, "own/x", rows)
    assert read is not None
    assert [twin and twin.text.split("\n")[0][:6] for twin in read[:2]] == ["Say 0.", "Say 1."]
    assert read_twins(config, {"core": str(tmp_path / "twins")}, "own/x", rows) is None
    own_rows(tmp_path / "fewer", twins[:-1])
    with pytest.raises(InputError, match=r"own/x has 39 rows there, 40 in its data, expected a twin of each row"):
        read_twins(config, {"own": str(tmp_path / "fewer")}, "own/x", rows)
    (tmp_path / "empty").mkdir()
    for folder, sentence in (
        ("absent", r"^--twins=.*/absent is not there, expected a folder laid out as the data of own/x$"),
        ("empty", r"^--twins, twins of own/x: --twins=.*/empty: the folder has no .yaml file"),
        ("data", r"data: all 40 rows of own/x there are those of its data, expected texts that no model has read"),
    ):
        with pytest.raises(InputError, match=sentence):
            read_twins(config, {"own": str(tmp_path / folder)}, "own/x", rows)
    made = RunConfig("demo", ("miron-gen/en",))
    with pytest.raises(InputError, match=r"miron-gen/en makes its rows and reads no folder, .* --twins=generated"):
        read_twins(made, {"": str(tmp_path / "twins")}, "miron-gen/en", [])


def test_documents_are_paired_by_their_ids(tmp_path: Path) -> None:
    for folder, ids in (("data", "ab"), ("twins", "ba"), ("right", "ab")):
        (tmp_path / folder).mkdir()
        lines = [json.dumps({"id": each, "text": f"{folder} {each}"}) for each in ids]
        (tmp_path / folder / "set.jsonl").write_text("\n".join(lines))
    config = RunConfig("demo", ("text",), data_dir=(("text", str(tmp_path / "data")),))
    [source] = find_inputs(config).sources
    rows = row_texts(source.task, source.examples)
    with pytest.raises(InputError, match=r"row 0 of text/set is 'b' there and 'a' in its data, .*: sort them"):
        read_twins(config, {"text": str(tmp_path / "twins")}, "text/set", rows)
    [twin, _] = read_twins(config, {"text": str(tmp_path / "right")}, "text/set", rows) or [None, None]
    assert twin is not None
    assert twin.text == "right a"


def test_generated_twins_are_further_rows_of_the_same_categories() -> None:
    config = RunConfig("demo", ("miron-gen/en",), items_per_category=3)
    [source] = find_inputs(config).sources
    rows = row_texts(source.task, source.examples)
    twins = generated_twins(config, "miron-gen/en", rows)
    assert [twin and twin.group for twin in twins] == [row.group for row in rows]
    assert not {row.text for row in rows} & {twin.text for twin in twins if twin is not None}
    with pytest.raises(InputError, match=r"core/copa has no generator, only miron, .*: write twins of its rows"):
        generated_twins(config, "core/copa", rows)
    assert generated_twins(config, "miron/en", [row._replace(group="Tests") for row in rows]) == [None] * len(rows)


@pytest.mark.slow
def test_the_command_prints_a_table_and_its_costs(tmp_path: Path, run: Any) -> None:
    """A set of 200 rows with twins that are as long; a task of 12 rows ends with status 2 and nothing is written."""
    made = make_model(tmp_path / "tiny")
    own_rows(tmp_path / "data", QUESTIONS * 2)
    own_rows(tmp_path / "twins", [{**row, "q": f"Say {i}."} for i, row in enumerate(QUESTIONS * 2)])
    given = ("memorized", f"--model={made}", f"--task_path={tmp_path / 'data' / 'x.yaml'}", "--compilation_cache=")
    ran = run(*given, f"--twins={tmp_path / 'twins'}", f"--json={tmp_path / 'x.json'}")
    assert ran.status == 0, ran.err
    assert "own/x: order 11 pairs, " in ran.out + ran.err
    document = json.loads((tmp_path / "x.json").read_text())
    [written] = document["tasks"]
    assert (document["step"], document["seed"], document["test_rows"]) == (None, 0, None)
    assert document["twins"] == str(tmp_path / "twins")
    assert len(written["git_blob_sha1"]) == 40
    assert "pairs" not in written
    assert [each["test"] for each in written["tests"]][:2] == ["order", "twins"]
    for each in written["tests"]:
        differs = each["difference"]
        assert 0 < differs["p_value"] <= each["holm"] <= 1
        assert differs["ci95"][0] < differs["value"] < differs["ci95"][1]
    alone = run(*given)
    assert "own/x: no twins test, which wants --twins" in alone.out
    own_rows(tmp_path / "few", QUESTIONS[:12])
    few = run(*given[:2], f"--task_path={tmp_path / 'few' / 'x.yaml'}", given[3], f"--json={tmp_path / 'y.json'}")
    assert few.status == 2
    assert "own/x has no order test, for 6 blocks of 2 of its 12 rows fit" in few.err
    steps = run(*given, "--steps=60,200")
    assert (steps.status, "memorized tests one checkpoint, expected one step or latest" in steps.err) == (2, True)
    assert not (tmp_path / "y.json").exists()
