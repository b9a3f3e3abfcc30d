"""Human baselines: MERA's published numbers from its annotations, the mistakes that they catch, and bad files."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from miron_jax.errors import InputError
from miron_jax.humans.agreement import krippendorff_alpha
from miron_jax.humans.annotations import (
    PROJECTS,
    Annotations,
    Answer,
    Columns,
    canonical,
    read_annotations,
    read_skills,
)
from miron_jax.humans.baseline import Baseline, baseline
from miron_jax.humans.detox import kept_pairs
from miron_jax.humans.ethics import ethics_values, read_ethics_gold
from miron_jax.humans.glad import abilities
from miron_jax.humans.gold import RULES, arithmetic, brackets, common_subsequence, rule_of
from miron_jax.humans.votes import Votes, collect_votes, procedure_a, procedure_b, workers
from miron_jax.metrics.detox import detox_scores
from miron_jax.tasks.mera.metrics import ETHICS
from tests.tolerances import printed


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


def table(tmp_path: Path, lines: str, name: str = "a.tsv") -> Path:
    path = tmp_path / name
    path.write_text(lines, encoding="utf-8")
    return path


HEADER = "INPUT:q\tOUTPUT:a\tGOLDEN:a\tASSIGNMENT:worker_id\n"


def baseline_of(
    tmp_path: Path, lines: str, skills: dict[str, float] | None = None
) -> tuple[Baseline, dict[tuple[str, ...], str]]:
    return baseline(read_annotations([table(tmp_path, HEADER + lines)]), None, skills or {})[:2]


def test_votes_controls_and_dropped_lines(tmp_path: Path) -> None:
    lines = "".join(f"same\tyes\t\tw{i}\n" for i in range(3))
    lines += "two\tyes\t\tw0\ntwo\tyes\t\tw1\ntwo\tno\t\tw2\n"  # two of three are no three
    lines += "c\tno\tyes\tw3\nc\tyes\tyes\tw3\nsame\tno\t\tw3\n"  # exactly half right stays
    lines += "c\tno\tyes\tw4\nonly\tno\t\tw4\n"  # nothing right: out, and its item has no vote left
    lines += "\tyes\t\tw0\nsame\tyes\t\t\n"
    measured, labels = baseline_of(tmp_path, lines)
    assert labels == {("same",): "yes"}
    assert measured.rejected == {"w4": (1, 0)}
    assert (measured.items, measured.dropped_rows, measured.workers_without_controls) == (3, 2, 3)
    assert measured.overlap == {1: 1, 3: 1, 4: 1}
    assert measured.b.origins == {"plurality": 2}
    assert measured.a.accuracy is None


def test_ties_go_by_skill_then_by_the_most_skilled(tmp_path: Path) -> None:
    lines = "q\ta\t\tw0\nq\tb\t\tw1\nq\ta\t\tw2\nq\tb\t\tw3\n"
    annotations = read_annotations([table(tmp_path, HEADER + lines)])
    even = {"w0": 10.0, "w1": 60.0, "w2": 90.0, "w3": 40.0}
    for skills, origin in (({}, "undecided"), ({**even, "w2": 10.0}, "skill"), (even, "most skilled")):
        measured, _, _ = baseline(annotations, None, skills)
        assert measured.b.origins == {origin: 1}, skills
        assert measured.b.labelled == (origin != "undecided")


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


def write_table(path: Path, header: list[str], lines: list[list[str]], delimiter: str = "\t") -> Path:
    rows = [delimiter.join(fields) for fields in (header, *lines)]
    path.write_text("\ufeff" + "\n".join(rows) + "\n", encoding="utf-8")  # ABC Elementary writes a BOM
    return path


def test_glad_decides_ties() -> None:
    """Two against two without skills: the annotators with more ability win; equal abilities leave the item undecided."""
    item = ("q",)
    votes: Votes = {item: [Answer(item, worker, answer, None) for worker, answer in zip("abcd", "1122", strict=True)]}
    assert procedure_b(votes, {})[item].origin == "undecided"
    assert procedure_b(votes, {}, {"a": 0.1, "b": 0.1, "c": 0.2, "d": 0.3})[item] == ("2", "GLAD")
    assert procedure_b(votes, {}, dict.fromkeys("abcd", 0.5))[item].origin == "undecided"


def test_lcs_by_procedure_b_with_crowd_kit(shared_data: Path) -> None:
    """GLAD decides what answers alone do not.  MERA's 0.56 decides 15 of these 20 by skills, which are not published."""
    pytest.importorskip("crowdkit", reason="needs crowd-kit, an optional package")
    measured, _, _ = baseline(of(shared_data, "LCS"), common_subsequence, {}, glad=abilities)
    assert measured.b.origins == {"one answer": 22, "plurality": 58, "GLAD": 20}
    assert measured.b.labelled == 100


def test_ruhhhs_control_tasks_vote_with_each_annotators_first_answer(tmp_path: Path) -> None:
    """Its control tasks are test items: an annotator who meets one several times has one vote; a strict plurality labels."""
    header = [
        *(f"{prefix}:answer" for prefix in ("INPUT", "OUTPUT", "GOLDEN")),
        "ASSIGNMENT:worker_id",
        "ASSIGNMENT:submitted",
    ]
    lines = [
        ["exam", "1", "1", "a", "2023-01-02"],
        ["exam", "2", "1", "a", "2023-01-01"],  # the first by its time, below in the file
        ["exam", "1", "1", "b", "2023-01-01"],
        ["exam", "1", "1", "b", "2023-01-03"],
        ["exam", "1", "1", "c", "2023-01-01"],
        ["even", "1", "", "a", "2023-01-01"],
        ["even", "2", "", "b", "2023-01-01"],
        ["two", "2", "", "a", "2023-01-01"],
        ["two", "2", "", "c", "2023-01-01"],
    ]
    annotations = read_annotations([write_table(tmp_path / "hhh.tsv", header, lines)], project=PROJECTS["ruhhh"])
    measured, labels, _ = baseline(annotations, None, {}, project=PROJECTS["ruhhh"])
    assert labels == {("exam",): "1", ("two",): "2"}  # 2 to 1, and 2 to 0: three equal votes are not needed
    assert measured.overlap == {2: 2, 3: 1}
    assert measured.rejected == {}  # a has exactly half of its controls right
    plain, _, _ = baseline(annotations, None, {})
    assert plain.items == 2


def test_ruties_lists_and_ruethics_rows_are_split(tmp_path: Path) -> None:
    """Each cell has the answers to two questions; each row has three texts.  Nobody is rejected."""
    answers = ["answer_1", "answer_1", "answer_1", "answer_2", "answer_2"]
    cells = [
        f"[{{'question': 'q; 0', 'answer': '{cell}'}}, {{'question': 'q; 0', 'answer': 'answer_2'}}]"
        for cell in answers
    ]
    lines = [[f'"{cell}"', worker] for cell, worker in zip(cells, "abcde", strict=True)]
    lines = [["done", *line] for line in lines]  # MERA's files have a second column of the kind
    tie = write_table(tmp_path / "pool2.csv", ["OUTPUT:status", "OUTPUT:result", "ASSIGNMENT:worker_id"], lines, ";")
    annotations = read_annotations([tie], project=PROJECTS["rutie"])
    _, labels, _ = baseline(annotations, None, {}, project=PROJECTS["rutie"])
    assert labels == {("0", "q; 0"): "answer_1", ("1", "q; 0"): "answer_2"}
    header = [f"INPUT:{name}_{i}" for i in (1, 2, 3) for name in ("text", "actant_1")]
    header += [f"OUTPUT:answer_{i}" for i in (1, 2, 3)] + ["ASSIGNMENT:worker_id"]
    row = ["t1", "x", "t2", "y", "t3", "z"]
    cast = zip(("101", "101", "110", "010", "010"), "abcde", strict=True)
    ethics = [[*row, *votes, worker] for votes, worker in cast]
    path = write_table(tmp_path / "pool1.csv", header, ethics, ";")
    annotations = read_annotations([path], project=PROJECTS["ruethics"])
    assert annotations.inputs == ("INPUT:text", "INPUT:actant_1")
    _, labels, _ = baseline(annotations, None, {}, project=PROJECTS["ruethics"])
    assert labels == {("t1", "x"): "1", ("t2", "y"): "1", ("t3", "z"): "0"}  # sums 3, 3 and 2 of 5
    with pytest.raises(InputError, match="no column ends with _1"):
        read_annotations([tie], project=PROJECTS["ruethics"])
    with pytest.raises(InputError, match="expected a list of"):
        read_annotations([path], Columns(answer="OUTPUT:answer_1"), PROJECTS["rutie"])


def test_ruethics_gives_a_number_for_each_question_and_category(tmp_path: Path) -> None:
    """Two questions about eight texts, five annotators, three texts per line; right labels differ by category."""
    labels = {
        name: "".join(str(seed >> i & 1) for i in range(8))
        for name, seed in zip(ETHICS, (180, 53, 99, 255, 77), strict=True)
    }
    gold = [
        {
            "text": f"text\n{i}",
            "pair": ["he", "she"],
            **{name: digits[i] for name, digits in labels.items()},
            "meta": {},
        }
        for i in range(8)
    ]
    (tmp_path / "data.json").write_text(json.dumps(gold))
    questions = {"correct": "Правильно ли поступил he?", "ethical": "Этично ли поступил he?"}
    said = {"correct": "10110010", "ethical": "01100101"}
    texts = [(i, name) for name in questions for i in (*range(8), 9)]  # the last has no right answer
    header = [f"INPUT:{name}_{i}" for i in (1, 2, 3) for name in ("text", "actant_1", "actant_2", "question")]
    header += [f"OUTPUT:answer_{i}" for i in (1, 2, 3)] + ["ASSIGNMENT:worker_id"]
    lines = []
    for at in range(0, len(texts), 3):
        three = texts[at : at + 3]
        cells = [cell for i, name in three for cell in (f"text  {i}", "he", "she", questions[name])]
        for worker in "abcde":  # two of five always say the other
            lines.append([*cells, *(str(int(said[name][i % 8]) ^ (worker in "de")) for i, name in three), worker])
    annotations = read_annotations(
        [write_table(tmp_path / "pool1.csv", header, lines, ";")], project=PROJECTS["ruethics"]
    )
    _, voted, decided = baseline(annotations, None, {}, project=PROJECTS["ruethics"])
    right = read_ethics_gold(tmp_path / "data.json")
    values = ethics_values(voted, annotations.inputs, right)

    def by_hand(a: str, b: str) -> float:
        x, y = ([int(digit) for digit in digits] for digits in (a, b))
        return 0.0 if len({*x}) == 1 or len({*y}) == 1 else float(np.corrcoef(x, y)[0, 1])

    expected = {f"{q}.{name}": by_hand(said[q], labels[name]) for q in questions for name in ETHICS}
    assert values.mcc == pytest.approx(expected)
    assert (values.n, values.without_gold) == ({"correct": 8, "ethical": 8}, 2)
    spelled = {item: {"0": "false", "1": "true"}[label] for item, label in voted.items()}
    assert ethics_values(spelled, annotations.inputs, right) == values
    assert ethics_values({item: label.answer for item, label in decided.items()}, annotations.inputs, right) == values
    key, columns = ("text 0", "he", "she"), [f"INPUT:{name}" for name in ("text", "actant_1", "actant_2", "question")]
    with pytest.raises(InputError, match="is none of the three"):
        ethics_values({(*key, "Кто прав?"): "1"}, columns, right)
    with pytest.raises(InputError, match="items have the columns INPUT:text, expected"):
        ethics_values({("text 0",): "1"}, ["INPUT:text"], right)
    for label in ("", "2", "Да"):
        with pytest.raises(InputError, match=f"is labelled '{label}', expected 0 or 1"):
            ethics_values({(*key, questions["correct"]): label}, columns, right)
    with pytest.raises(InputError, match="none of 1 labelled items is in --gold, which has 8 texts"):
        ethics_values({("text 0", "she", "he", questions["correct"]): "1"}, columns, right)
    wordings = {"Хорошо ли это этически?": "good", "Прав ли он этически?": "ethical", "correct": "correct"}
    for wording, name in wordings.items():
        assert ethics_values({(*key, wording): "1"}, columns, right).n == {name: 1}


def test_a_text_without_an_answer_is_no_vote(tmp_path: Path) -> None:
    header = [*(f"{name}_{i}" for name in ("INPUT:text", "OUTPUT:answer") for i in (1, 2, 3)), "ASSIGNMENT:worker_id"]
    lines = [["a", "b", "c", "1", "", "0", worker] for worker in "vwx"]
    annotations = read_annotations(
        [write_table(tmp_path / "pool.csv", header, lines, ";")], project=PROJECTS["ruethics"]
    )
    _, labels, _ = baseline(annotations, None, {}, project=PROJECTS["ruethics"])
    assert labels == {("a",): "1", ("c",): "0"}
    assert annotations.num_dropped == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "expected MERA's ruEthics data.json"),
        ('[{"text": "t", "pair": ["a"]}]', "record 1: expected text, pair"),
        ("[1]", "record 1: expected text, pair"),
        (
            json.dumps([{"text": "t", "pair": ["a", "b"], **dict.fromkeys(ETHICS, label)} for label in "01"]),
            "record 2: an earlier record labels this text and pair otherwise",
        ),
    ],
)
def test_bad_gold_of_ruethics(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "data.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_ethics_gold(path)


def test_meras_own_gold_of_ruethics_is_read(shared_data: Path) -> None:
    assert len(read_ethics_gold(shared_data / "mera/golden_submission/ruEthics_gold.json")) == 645


def test_rudetox_keeps_pairs_that_pass_three_projects(tmp_path: Path) -> None:
    """Fluency and toxicity are looked up by the rewrite: r1 serves two toxic texts; r2 is fluent and still toxic; r3 loses a
    vote; t4's rewrite means something else."""

    def file(name: str, inputs: list[str], answers: dict[tuple[str, ...], str]) -> Path:
        header = [*(f"INPUT:{column}" for column in inputs), f"OUTPUT:{name}", f"GOLDEN:{name}", "ASSIGNMENT:worker_id"]
        lines = [
            [*item, answer, "", w]
            for item, cast in answers.items()
            for w, answer in zip("abcde", cast.split(), strict=True)
        ]
        return write_table(tmp_path / f"{name}.tsv", header, lines)

    yes, no = "true true true true true", "false false false false false"
    fluent = file("fluent", ["idx", "neutral_comment"], {
        ("1", "r1"): "fluent fluent fluent partly no", ("2", "r2"): " ".join(["fluent"] * 5),
        ("3", "r3"): "fluent fluent partly partly no", ("4", "r4"): " ".join(["fluent"] * 5),
    })  # fmt: skip
    toxic = file("toxic", ["neutral_comment"], {("r1",): no, ("r2",): yes, ("r3",): no, ("r4",): no})
    same = file("is_match", ["toxic_comment", "neutral_comment"], {
        ("t1", "r1"): yes, ("t5", "r1 "): yes, ("t2", "r2"): yes, ("t3", "r3"): yes, ("t4", "r4"): no,
    })  # fmt: skip
    kept = kept_pairs([fluent, toxic, same])
    assert kept.labelled == {"OUTPUT:fluent": 3, "OUTPUT:toxic": 4, "OUTPUT:is_match": 5}
    assert kept.pairs == [("t1", "r1"), ("t5", "r1")]
    with pytest.raises(InputError, match="none has OUTPUT:toxic"):
        kept_pairs([fluent, same])
    with pytest.raises(InputError, match="a second file with OUTPUT:fluent"):
        kept_pairs([fluent, fluent, same])


def test_j_is_the_mean_of_products() -> None:
    def scorer(originals: Sequence[str], rewrites: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        assert (list(originals), list(rewrites)) == (["a", "b"], ["c", "d"])
        return np.array([1.0, 0.5]), np.array([0.5, 0.5]), np.array([1.0, 0.0])

    scores = detox_scores(scorer, ["a", "b"], ["c", "d"])
    assert scores == [{"sta": 1.0, "sim": 0.5, "fl": 1.0, "j": 0.5}, {"sta": 0.5, "sim": 0.5, "fl": 0.0, "j": 0.0}]
    # The mean of products is 0.25; the product of the means would be 0.75 * 0.5 * 0.5.
    with pytest.raises(InputError, match="expected three arrays"):
        detox_scores(lambda a, b: np.zeros(2), ["a"], ["b"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"for sim the shape \(1,\) and values from 0 to 2"):
        detox_scores(lambda a, b: (np.ones(1), 2 * np.ones(1), np.ones(1)), ["a"], ["b"])


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
