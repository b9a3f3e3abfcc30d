"""How sure a human score is: by the agreement needed, over other annotators, and what the filter removes of chance."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.humans.annotations import PROJECTS, Answer, read_annotations
from miron_jax.humans.baseline import baseline
from miron_jax.humans.certainty import Resampled, _flat, _labelled, by_agreement, random_annotators, resampled
from miron_jax.humans.gold import RULES, Gold
from miron_jax.humans.votes import Votes, collect_votes, workers
from miron_jax.statistics.estimate import wilson
from tests.support.tolerances import SIMULATED

PLAIN, MERA = PROJECTS["plain"], PROJECTS["mera"]


def votes_of(items: list[str]) -> Votes:
    """Each item is a word whose letters are the answers of w0, w1, ...; "-": not asked."""
    votes: Votes = {}
    for i, word in enumerate(items):
        cast = [Answer((str(i),), f"w{k}", letter, None) for k, letter in enumerate(word) if letter != "-"]
        votes[str(i),] = cast
    return votes


def is_a(item: tuple[str, ...], answer: str) -> bool:
    return answer == "a"


def test_the_curve_by_hand() -> None:
    """aaa is right by 3 votes, aab by 2, bba is wrong by 2; abc and ab are even at any number of votes."""
    curve = by_agreement(votes_of(["aaa", "aab", "bba", "abc", "ab", ""]), is_a)
    assert [(each.votes, each.labelled, each.coverage) for each in curve] == [(1, 3, 0.5), (2, 3, 0.5), (3, 1, 1 / 6)]
    assert [each.accuracy for each in curve] == [2 / 3, 2 / 3, 1]
    assert [each.ci95 for each in curve] == [wilson(2 / 3, 3), wilson(2 / 3, 3), wilson(1, 1)]
    [only] = by_agreement(votes_of(["a"]), lambda item, answer: None)
    assert (only.labelled, only.accuracy, only.ci95) == (1, None, None)


def test_other_annotators_by_hand() -> None:
    """One of five answers b. A draw of five labels b if it holds him three times: with 0.2, that is a share of 0.058 of
    draws, more than 2.5 %. One of seven, four times: 0.0099, less."""
    for word, interval in (("aaaab", (0, 1)), ("aaaaaab", (1, 1))):
        assert resampled(votes_of([word] * 3), is_a, PLAIN, None) == Resampled(interval, interval), word
    # Nobody differs: annotators make no difference; both items are the same one with a half.
    assert resampled(votes_of(["aa", "bb"]), is_a, PLAIN, {}) == Resampled((0.5, 0.5), (0, 1))
    # One annotator an item: a quarter of the draws has w0 alone, a quarter w1 alone.
    for decided in (None, {}):
        assert resampled(votes_of(["a-", "-b"]), is_a, PLAIN, decided) == Resampled((0, 1), (0, 1))
    assert resampled(votes_of(["", "a"]), lambda item, answer: None, PLAIN, None) is None


def test_a_draw_is_labelled_by_the_procedure() -> None:
    """w0 twice, w1 once, w2 never: aab has three votes for a; ab- two to one; -ab one for a; ba- two to one for b."""
    items = ["aab", "ab-", "-ab", "ba-"]
    drawn = np.array([2, 1, 0])
    for project, decided, labels in (
        (PLAIN, None, [True] * 4), (MERA, None, [True, False, False, False]), (MERA, {}, [True] * 4),
    ):  # fmt: skip
        flat = _flat(votes_of(items), is_a, decided or {})
        assert flat is not None
        labelled, right = _labelled(flat, drawn, project, decided is not None)
        assert labelled.tolist() == labels
        assert right.tolist() == [label and item != "ba-" for label, item in zip(labels, items, strict=True)]
    for decided, label in (({}, False), ({("0",): "a"}, True)):
        even = _flat(votes_of(["ab"]), is_a, decided)
        assert even is not None
        assert _labelled(even, np.array([1, 1]), PLAIN, True)[1].tolist() == [label]


def test_what_the_filter_removes_of_random_answers() -> None:
    """Two answers: of one control task none is right with 1/2, of two with 1/4; of four at most one with (1 + 4) / 16."""
    for controls, removed in ((1, 1 / 2), (2, 1 / 4), (4, 5 / 16)):
        answers = [Answer((f"c{i}",), f"w{k}", "ab"[k % 2], "a") for k in range(40) for i in range(controls)]
        answers += [Answer((f"i{i}",), f"w{k}", "c", None) for k in range(60) for i in range(1 + 2 * (k >= 40))]
        random = random_annotators(answers, workers(answers, PLAIN), PLAIN)
        assert random is not None
        assert (random.answers, random.without_controls) == (2, 1 / 3)
        assert random.removed == pytest.approx(removed * 40 / 60, rel=SIMULATED)
        assert random.votes_removed == pytest.approx(removed * 40 / (40 + 60), rel=SIMULATED)
        low, high = random.range95
        assert low < random.removed < high
    assert random_annotators(answers[-5:], workers(answers[-5:], PLAIN), PLAIN) is None
    assert random_annotators(answers, workers(answers, PLAIN), PROJECTS["texts"]) is None


def test_lcs_depends_on_who_was_asked(shared_data: Path) -> None:
    """MERA's 38 of 54 stands at three votes of a curve from 0.59 to 1; other annotators move it further than other items."""
    annotations = read_annotations([shared_data / "mera/humanbenchmarks/LCS.tsv"])
    measured = baseline(annotations, Gold(RULES["lcs"], None), {}, MERA)[0]
    curve = [(each.labelled, round(each.labelled * (each.accuracy or 0))) for each in measured.by_agreement]
    assert curve == [(80, 47), (80, 47), (54, 38), (30, 28), (21, 21)]
    of_a = measured.a.resampled
    assert of_a is not None
    assert measured.a.accuracy is not None
    widths = [high - low for low, high in (measured.a.accuracy.ci95, of_a.annotators, of_a.both)]
    assert sorted(widths) == widths
    assert len(collect_votes(annotations.answers, (), MERA)) == measured.items


def test_humans_prints_and_writes_them(miron: Any, tmp_path: Path) -> None:
    lines = [
        f"{item},{answer},,w{k}" for item, word in (("1+1", "222"), ("2+2", "445")) for k, answer in enumerate(word)
    ]
    lines += [f"{right},{right},{right},w{k}" for k in range(3) for right in "98"]
    header = "INPUT:q,OUTPUT:a,GOLDEN:a,ASSIGNMENT:worker_id"
    (tmp_path / "a.csv").write_text("\n".join([header, *lines, ""]))
    ran = miron("humans", f"--annotations={tmp_path / 'a.csv'}", "--gold=arithmetic", f"--output={tmp_path / 'out'}")
    assert ran.status == 0, ran.err
    assert "A's accuracy with other annotators: " in ran.out
    assert "annotators who answer at random (one of 2 answers) would be rejected in 2" in ran.out  # 1/4
    assert "equal votes needed" in ran.out
    written = json.loads((tmp_path / "out/humans.json").read_text())
    assert [each["labelled"] for each in written["by_agreement"]] == [2, 2, 1]
    assert written["random"]["answers"] == 2
    assert written["a"]["resampled"]["both"][1] == 1


def test_without_a_score_there_is_no_interval(miron: Any, tmp_path: Path) -> None:
    """One annotator never gives an item two votes.  Two who differ give none a label; draws of one of them twice do."""
    assert resampled(votes_of(["a"] * 3), is_a, PLAIN._replace(needed=2), None) is None
    header = "INPUT:q,OUTPUT:a,ASSIGNMENT:worker_id"
    for lines in (["1+1,2,w0"], ["1+1,2,w0", "1+1,3,w1"]):
        (tmp_path / "a.csv").write_text("\n".join([header, *lines, ""]))
        flags = (f"--annotations={tmp_path / 'a.csv'}", "--gold=arithmetic", f"--output={tmp_path / 'out'}")
        ran = miron("humans", *flags, "--votes_needed=2")
        assert ran.status == 0, ran.err
        written = json.loads((tmp_path / "out/humans.json").read_text())
        assert (written["a"]["accuracy"], written["a"]["resampled"]) == (None, None)
        assert "A's accuracy with other annotators" not in ran.out
