"""Human baselines: MERA's own numbers from its own annotations, the mistakes they would catch, and files that are bad."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from miron_jax.errors import InputError
from miron_jax.humans.agreement import krippendorff_alpha
from miron_jax.humans.annotations import Annotations, Columns, canonical, read_annotations, read_skills
from miron_jax.humans.baseline import Baseline, baseline
from miron_jax.humans.gold import RULES, arithmetic, brackets, common_subsequence, rule_of
from miron_jax.humans.votes import Votes, procedure_a, votes, workers


class Published(NamedTuple):
    """What mera.md, sections C and D, give."""

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
    found, expected = of(shared_data, name), PUBLISHED[name]
    told, labels = baseline(found, RULES[expected.gold], {})
    assert told.a.accuracy is not None
    assert told.single_annotator is not None
    assert (told.rows, told.workers, len(told.rejected)) == (expected.rows, expected.workers, expected.rejected)
    assert (told.a.labelled, len(labels)) == (expected.labelled, expected.labelled)
    assert (told.a.accuracy.right, told.a.accuracy.n) == (expected.right, expected.judged)
    assert told.alpha == pytest.approx(expected.alpha, abs=5e-4)
    if expected.single is not None:
        assert told.single_annotator.value == pytest.approx(expected.single, abs=5e-4)


def test_lcs_by_procedure_b(shared_data: Path) -> None:
    """22 and 58 items are decided by answers alone, as in MERA's notebook; the skills that decide others are not at hand."""
    told, _ = baseline(of(shared_data, "LCS"), common_subsequence, {})
    assert told.b.origins == {"one answer": 22, "plurality": 58, "undecided": 20}
    assert told.a.accuracy is not None
    assert told.a.accuracy.ci95 == pytest.approx((0.572, 0.809), abs=5e-4)


def right_of(labels: dict[tuple[str, ...], str], gold: str) -> tuple[int, int]:
    judged = [label == RULES[gold](item) for item, label in labels.items() if RULES[gold](item) is not None]
    return len(judged), sum(judged)


def rejected_at_most_half(found: Annotations) -> set[str]:
    return {name for name, own in workers(found.answers).items() if own.controls and 2 * own.right <= own.controls}


def plurality(found: Votes) -> dict[tuple[str, ...], str]:
    return {item: Counter(v.answer for v in own).most_common(1)[0][0] for item, own in found.items() if own}


def five_votes(found: Votes) -> Votes:
    return {item: own for item, own in found.items() if len(own) == 5}


# (labelled, right) of the filter left out, of <= in place of <, of a plurality, and of items with five votes alone
MUTATIONS = {
    "BPS": ((100, 100), (100, 100), (100, 100), (91, 91)),
    "LCS": ((56, 38), (54, 38), (100, 52), (52, None)),
    "SimpleAr": ((200, 200), (200, 200), (200, 200), (198, 198)),
    "ruMultiAr": ((476, 476), (475, 475), (484, 484), (450, 450)),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mistake_changes_the_number_that_it_must(name: str, shared_data: Path) -> None:
    found, gold = of(shared_data, name), PUBLISHED[name].gold
    bad = {worker for worker, own in workers(found.answers).items() if own.is_rejected}
    kept = votes(found.answers, bad)
    told = (
        right_of(procedure_a(votes(found.answers)), gold),
        right_of(procedure_a(votes(found.answers, rejected_at_most_half(found))), gold),
        right_of(plurality(kept), gold),
        right_of(procedure_a(five_votes(kept)), gold),
    )
    for (n, right), (expected, expected_right) in zip(told, MUTATIONS[name], strict=True):
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


def table(tmp_path: Path, lines: str, name: str = "a.tsv") -> Path:
    path = tmp_path / name
    path.write_text(lines, encoding="utf-8")
    return path


HEADER = "INPUT:q\tOUTPUT:a\tGOLDEN:a\tASSIGNMENT:worker_id\n"


def told_of(
    tmp_path: Path, lines: str, skills: dict[str, float] | None = None
) -> tuple[Baseline, dict[tuple[str, ...], str]]:
    return baseline(read_annotations([table(tmp_path, HEADER + lines)]), None, skills or {})


def test_votes_controls_and_dropped_lines(tmp_path: Path) -> None:
    lines = "".join(f"same\tyes\t\tw{i}\n" for i in range(3))
    lines += "two\tyes\t\tw0\ntwo\tyes\t\tw1\ntwo\tno\t\tw2\n"  # two of three are no three
    lines += "c\tno\tyes\tw3\nc\tyes\tyes\tw3\nsame\tno\t\tw3\n"  # exactly half right stays
    lines += "c\tno\tyes\tw4\nonly\tno\t\tw4\n"  # nothing right: out, and its item has no vote left
    lines += "\tyes\t\tw0\nsame\tyes\t\t\n"
    told, labels = told_of(tmp_path, lines)
    assert labels == {("same",): "yes"}
    assert told.rejected == {"w4": (1, 0)}
    assert (told.items, told.dropped_rows, told.workers_without_controls) == (3, 2, 3)
    assert told.overlap == {1: 1, 3: 1, 4: 1}
    assert told.b.origins == {"plurality": 2}
    assert told.a.accuracy is None


def test_ties_go_by_skill_then_by_the_most_skilled(tmp_path: Path) -> None:
    lines = "q\ta\t\tw0\nq\tb\t\tw1\nq\ta\t\tw2\nq\tb\t\tw3\n"
    found = read_annotations([table(tmp_path, HEADER + lines)])
    even = {"w0": 10.0, "w1": 60.0, "w2": 90.0, "w3": 40.0}
    for skills, origin in (({}, "undecided"), ({**even, "w2": 10.0}, "skill"), (even, "most skilled")):
        told, _ = baseline(found, None, skills)
        assert told.b.origins == {origin: 1}, skills
        assert told.b.labelled == (origin != "undecided")


def test_values_are_text_with_one_spelling() -> None:
    values = ["0.0", "True", " NA ", "null", "-3.00", "0.50", "01"]
    assert [canonical(value) for value in values] == ["0", "true", "NA", "null", "-3", "0.50", "01"]


def test_columns_of_ones_own_and_gold_of_a_file(tmp_path: Path) -> None:
    lines = "text;said;by;known\n" + "".join(f"a  b;{said};{by};\n" for said, by in (("x", 1), ("x", 2), ("x", 3)))
    found = read_annotations([table(tmp_path, lines, "own.csv")], Columns(("text",), "said", "known", "by"))
    gold = rule_of(str(table(tmp_path, "text,right\na b,x\n", "gold.csv")), found.inputs)
    told, labels = baseline(found, gold, {})
    assert labels == {("a  b",): "x"}
    assert told.a.accuracy is not None
    assert told.a.accuracy.right == 1


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
def test_bad_files_are_told(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        read_annotations([table(tmp_path, text)])


def test_mixed_encodings_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes((HEADER + "да\tщи\t\tw\n").encode() + "да\tщи\t\tw\n".encode("cp1251"))
    with pytest.raises(InputError, match="line 3: byte 0xe4 is not UTF-8"):
        read_annotations([path])


def test_bad_skills_and_gold_are_told(tmp_path: Path) -> None:
    assert read_skills(table(tmp_path, "worker_id|skill_value\nw|50\n")) == {"w": 50.0}
    with pytest.raises(InputError, match="line 2: skill_value is 'high'"):
        read_skills(table(tmp_path, "worker_id|skill_value\nw|high\n"))
    with pytest.raises(InputError, match="is no file and none of lcs"):
        rule_of("nothing", ("INPUT:q",))
    with pytest.raises(InputError, match="line 3: this item has another right answer"):
        rule_of(str(table(tmp_path, "INPUT:q\tright\n1\ta\n1 \tb\n")), ("INPUT:q",))
