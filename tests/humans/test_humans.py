"""Human baselines: MERA's published numbers from its annotations, the mistakes that they catch, and bad files."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from miron_jax.errors import InputError
from miron_jax.humans.agreement import krippendorff_alpha
from miron_jax.humans.annotations import Annotations, Answer, Columns, canonical, read_annotations, read_skills
from miron_jax.humans.baseline import baseline
from miron_jax.humans.glad import abilities
from miron_jax.humans.gold import RULES, Rule, arithmetic, brackets, common_subsequence, rule_of
from miron_jax.humans.votes import Votes, collect_votes, procedure_a, procedure_b, workers
from miron_jax.report.human_table import print_baseline
from tests.support.annotation_tables import HEADER, baseline_of, table
from tests.support.tolerances import printed


class Published(NamedTuple):
    """The numbers of mera.md, sections C and D."""

    gold: str
    rows: int
    workers: int
    rejected: int
    labelled: int
    right: int
    judged: int
    alpha: float
    single: float | None


PUBLISHED = {
    "BPS": Published("brackets", 750, 24, 3, 100, 100, 100, 0.807, 0.949),
    "LCS": Published("lcs", 750, 29, 3, 54, 38, 54, 0.300, 0.461),
    "SimpleAr": Published("arithmetic", 1501, 59, 1, 200, 200, 200, 0.952, None),
    "ruMultiAr": Published("arithmetic", 4500, 103, 9, 557, 476, 476, 0.760, 0.915),  # the published 519 is a slip
}


def of(shared_data: Path, name: str) -> Annotations:
    return read_annotations([shared_data / "mera" / "humanbenchmarks" / f"{name}.tsv"])


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_baselines_come_out(name: str, shared_data: Path) -> None:
    annotations, expected = of(shared_data, name), PUBLISHED[name]
    measured, labels, _ = baseline(annotations, RULES[expected.gold], {})
    assert measured.a.accuracy is not None
    assert measured.single_annotator is not None
    assert (measured.rows, measured.workers, len(measured.rejected)) == expected[1:4]
    assert (measured.a.labelled, len(labels)) == (expected.labelled, expected.labelled)
    assert (measured.a.accuracy.right, measured.a.accuracy.n) == (expected.right, expected.judged)
    assert measured.alpha == pytest.approx(expected.alpha, abs=printed(3))
    if expected.single is not None:
        assert measured.single_annotator.value == pytest.approx(expected.single, abs=printed(3))


def test_lcs_by_procedure_b(shared_data: Path) -> None:
    """Answers alone decide 22 and 58 items, as in MERA's notebook; the skills that decide the others are not published."""
    measured, _, _ = baseline(of(shared_data, "LCS"), common_subsequence, {})
    assert measured.b.origins == {"one answer": 22, "plurality": 58, "undecided": 20}
    assert measured.a.accuracy is not None
    assert measured.a.accuracy.ci95 == pytest.approx((0.572, 0.809), abs=printed(3))


def right_of(labels: dict[tuple[str, ...], str], gold: str) -> tuple[int, int]:
    judged = [label == RULES[gold](item) for item, label in labels.items() if RULES[gold](item) is not None]
    return len(judged), sum(judged)


def rejected_at_most_half(annotations: Annotations) -> set[str]:
    known = workers(annotations.answers)
    return {name for name, worker in known.items() if worker.controls and 2 * worker.right <= worker.controls}


def plurality(votes: Votes) -> dict[tuple[str, ...], str]:
    return {item: Counter(v.answer for v in cast).most_common(1)[0][0] for item, cast in votes.items() if cast}


def five_votes(votes: Votes) -> Votes:
    return {item: cast for item, cast in votes.items() if len(cast) == 5}


# (labelled, right) of the filter left out, of <= in place of <, of a plurality, and of items with five votes alone
MUTATIONS = {
    "BPS": ((100, 100), (100, 100), (100, 100), (91, 91)),
    "LCS": ((56, 38), (54, 38), (100, 52), (52, None)),
    "SimpleAr": ((200, 200), (200, 200), (200, 200), (198, 198)),
    "ruMultiAr": ((476, 476), (475, 475), (484, 484), (450, 450)),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mistake_changes_the_number_that_it_must(name: str, shared_data: Path) -> None:
    annotations, gold = of(shared_data, name), PUBLISHED[name].gold
    answers = annotations.answers
    kept = collect_votes(answers, {name for name, worker in workers(answers).items() if worker.is_rejected})
    counts = (
        right_of(procedure_a(collect_votes(answers)), gold),
        right_of(procedure_a(collect_votes(answers, rejected_at_most_half(annotations))), gold),
        right_of(plurality(kept), gold),
        right_of(procedure_a(five_votes(kept)), gold),
    )
    for (n, right), (expected, expected_right) in zip(counts, MUTATIONS[name], strict=True):
        assert n == expected
        assert expected_right is None or right == expected_right


def test_right_answers_that_can_be_computed() -> None:
    assert [brackets((text,)) for text in ("( [ ] )", "( ]", "", "( (", ") (")] == ["1", "0", "1", "0", "0"]
    assert common_subsequence(("CTXMKP", "CTAVMK")) == "4"
    assert common_subsequence(("ABC", "")) == "0"
    assert [arithmetic((text,)) for text in ("2 - (-3) * 4", "1 / 2", "6 / 4 * 2", "7 / 1")] == ["14", None, "3", "7"]
    for formula in ("__import__('os')", "1 +", "2 ** 9", "1 / 0", "1.5 + 1", "True + 1"):
        with pytest.raises(InputError, match="formula"):
            arithmetic((formula,))


def test_alpha_by_hand() -> None:
    # Three items of two answers: aa, bb, ab. Observed disagreement 2 of 6; expected 2 * 3 * 3 / 5 of 6.
    assert krippendorff_alpha([["a", "a"], ["b", "b"], ["a", "b"]]) == pytest.approx(1 - 2 / (18 / 5))
    assert krippendorff_alpha([["a", "a"], ["b", "b"], ["c"]]) == 1.0
    assert krippendorff_alpha([["a", "a"], ["a", "a"]]) is None
    assert krippendorff_alpha([["a"], []]) is None


def test_votes_controls_and_dropped_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "".join(f"same\tyes\t\tw{i}\n" for i in range(3))
    lines += "two\tyes\t\tw0\ntwo\tyes\t\tw1\ntwo\tno\t\tw2\n"  # two of three are no three
    lines += "c\tno\tyes\tw3\nc\tyes\tyes\tw3\nsame\tno\t\tw3\n"  # exactly half right stays
    lines += "c\tno\tyes\tw4\nonly\tno\t\tw4\n"  # nothing right: out, and its item has no vote left
    lines += "\tyes\t\tw0\nsame\tyes\t\t\n"
    right: Rule = {("same",): "yes", ("only",): "no"}.get  # pyright: ignore[reportAssignmentType]
    measured, labels = baseline_of(tmp_path, lines, rule=right)
    assert labels == {("same",): "yes"}
    assert measured.rejected == {"w4": (1, 0)}
    assert (measured.items, measured.dropped_rows, measured.workers_without_controls) == (3, 2, 3)
    assert measured.overlap == {1: 1, 3: 1, 4: 1}
    assert measured.b.origins == {"plurality": 2}
    assert measured.single_annotator is not None
    assert (measured.single_annotator.right, measured.single_annotator.n) == (
        3,
        4,
    )  # w4's right answer counts for nothing
    assert baseline_of(tmp_path, lines)[0].a.accuracy is None
    print_baseline(measured)
    assert "rejected: 1 annotators, less than half of their control tasks right (1 in all)" in capsys.readouterr().out


def test_ties_go_by_skill_then_by_the_most_skilled(tmp_path: Path) -> None:
    lines = "q\ta\t\tw0\nq\tb\t\tw1\nq\ta\t\tw2\nq\tb\t\tw3\n"
    annotations = read_annotations([table(tmp_path, HEADER + lines)])
    even = {"w0": 10.0, "w1": 60.0, "w2": 90.0, "w3": 40.0}
    for skills, origin in (({}, "undecided"), ({**even, "w2": 10.0}, "skill"), (even, "most skilled")):
        measured, _, decided = baseline(annotations, None, skills)
        assert measured.b.origins == {origin: 1}, skills
        assert measured.b.labelled == (origin != "undecided")
        # The three most skilled: w2 (90) says a, w1 and w3 say b; of two, w2 and w1, a would win.
        assert decided["q",].answer == {"undecided": "a", "skill": "b", "most skilled": "b"}[origin]


def test_values_are_text_with_one_spelling() -> None:
    values = ["0.0", "True", " NA ", "null", "-3.00", "0.50", "01"]
    assert [canonical(value) for value in values] == ["0", "true", "NA", "null", "-3", "0.50", "01"]


def test_named_columns_and_gold_of_a_file(tmp_path: Path) -> None:
    lines = "text;said;by;known\n" + "".join(f"a  b;x;{worker};\n" for worker in (1, 2, 3))
    annotations = read_annotations([table(tmp_path, lines, "own.csv")], Columns(("text",), "said", "known", "by"))
    gold = rule_of(str(table(tmp_path, "text,right\na b,x\n", "gold.csv")), annotations.inputs)
    measured, labels, _ = baseline(annotations, gold, {})
    assert labels == {("a  b",): "x"}
    assert measured.a.accuracy is not None
    assert measured.a.accuracy.right == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("INPUT:q\tOUTPUT:a\n1\t2\n", "no column ASSIGNMENT:worker_id"),
        ("OUTPUT:a\tASSIGNMENT:worker_id\n", "no column begins with INPUT:"),
        ("INPUT:q\tASSIGNMENT:worker_id\n", "no column begins with OUTPUT:"),
        ("INPUT:q\tOUTPUT:a\tOUTPUT:b\tASSIGNMENT:worker_id\n", "several columns begin with OUTPUT:"),
        ("INPUT:q\tINPUT:q\tOUTPUT:a\tASSIGNMENT:worker_id\n", "names INPUT:q twice"),
        (HEADER + "1\t2\n", "line 2: 2 fields, the header has 4"),
        (HEADER + '"1\t2\t\tw\n', "line 2"),
    ],
)
def test_bad_files_raise(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        read_annotations([table(tmp_path, text)])


def test_mixed_encodings_raise(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes((HEADER + "да\tщи\t\tw\n").encode() + "да\tщи\t\tw\n".encode("cp1251"))
    with pytest.raises(InputError, match="line 3: byte 0xe4 is not UTF-8"):
        read_annotations([path])


def test_bad_skills_and_gold_raise(tmp_path: Path) -> None:
    assert read_skills(table(tmp_path, "worker_id|skill_value\nw|50\n")) == {"w": 50.0}
    with pytest.raises(InputError, match="line 2: skill_value is 'high'"):
        read_skills(table(tmp_path, "worker_id|skill_value\nw|high\n"))
    with pytest.raises(InputError, match="is no file and none of lcs"):
        rule_of("nothing", ("INPUT:q",))
    with pytest.raises(InputError, match="line 3: this item has another right answer"):
        rule_of(str(table(tmp_path, "INPUT:q\tright\n1\ta\n1 \tb\n")), ("INPUT:q",))


def test_glad_decides_ties() -> None:
    """Two against two without skills: the annotators with more ability win; equal abilities leave the item undecided."""
    item = ("q",)
    votes: Votes = {item: [Answer(item, worker, answer, None) for worker, answer in zip("abcd", "1122", strict=True)]}
    assert procedure_b(votes, {})[item].origin == "undecided"
    assert procedure_b(votes, {}, {"a": 0.1, "b": 0.1, "c": 0.2, "d": 0.3})[item] == ("2", "GLAD")
    assert procedure_b(votes, {}, dict.fromkeys("abcd", 0.5))[item].origin == "undecided"


def test_lcs_by_procedure_b_with_crowd_kit(shared_data: Path) -> None:
    """GLAD decides what answers alone do not.  MERA's 0.56 decides 15 of these 20 by skills, which are not published."""
    pytest.importorskip("crowdkit", reason="needs crowd-kit: pip install crowd-kit")
    measured, _, _ = baseline(of(shared_data, "LCS"), common_subsequence, {}, glad=abilities)
    assert measured.b.origins == {"one answer": 22, "plurality": 58, "GLAD": 20}
    assert measured.b.labelled == 100


def test_a_rule_for_other_items_is_refused() -> None:
    with pytest.raises(InputError, match="--gold=lcs wants 2 columns an item, here are INPUT:formula"):
        rule_of("lcs", ["INPUT:formula"])


def test_few_most_skilled_decide_only_where_the_leading_sums_differ() -> None:
    """MERA's notebooks compare the two leading sums first: two votes of 30 and one of 60 are tied."""
    item = ("q",)
    votes: Votes = {item: [Answer(item, worker, answer, None) for worker, answer in zip("abcd", "1122", strict=True)]}
    skills = {"a": 30.0, "b": 30.0, "c": 60.0, "d": 0.0}
    assert procedure_b(votes, skills)[item].origin == "undecided"
    assert procedure_b(votes, {**skills, "c": 61.0})[item] == ("2", "skill")


def test_labels_have_macro_f1_and_matthews_correlation() -> None:
    answers = [Answer((str(i),), worker, said, None) for i, said in enumerate("1101001") for worker in "abc"]
    right: dict[tuple[str, ...], str] = {(str(i),): gold for i, gold in enumerate("1001011")}
    measured, _, _ = baseline(Annotations(("INPUT:q",), answers, 0), right.get, {})
    assert measured.a.accuracy is not None
    # tp 3, tn 2, fp 1, fn 1
    assert measured.a.accuracy.right == 5
    assert measured.a.mcc == pytest.approx((3 * 2 - 1 * 1) / (4 * 4 * 3 * 3) ** 0.5)
    assert measured.a.f1_macro == pytest.approx((2 * 3 / (2 * 3 + 2) + 2 * 2 / (2 * 2 + 2)) / 2)
    measured, _, _ = baseline(Annotations(("INPUT:q",), answers, 0), None, {})
    assert (measured.a.f1_macro, measured.a.mcc) == (None, None)
