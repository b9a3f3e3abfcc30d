"""Human baselines: MERA's published numbers from its annotations, the mistakes that they catch, and bad files."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from miron_jax.errors import InputError
from miron_jax.humans import annotations as tables
from miron_jax.humans.agreement import krippendorff_alpha
from miron_jax.humans.annotations import PROJECTS, Annotations, Answer, Columns, read_annotations
from miron_jax.humans.baseline import baseline
from miron_jax.humans.detox import kept_pairs
from miron_jax.humans.ethics import ethics_values, read_ethics_gold
from miron_jax.humans.glad import abilities
from miron_jax.humans.gold import RULES, Gold, arithmetic, brackets, common_subsequence, gold_of
from miron_jax.humans.votes import Votes, collect_votes, procedure_a, procedure_b, workers
from miron_jax.metrics.detox import detox_scores
from miron_jax.report.tables.humans import print_baseline
from miron_jax.tasks.mera.metrics import ETHICS
from tests.support.needs import needs
from tests.support.tolerances import printed

HEADER = "INPUT:q\tOUTPUT:a\tGOLDEN:a\tASSIGNMENT:worker_id\n"
Labels = dict[tuple[str, ...], str]
MERA = PROJECTS["mera"]


def table(tmp_path: Path, text: str, name: str = "a.tsv") -> Path:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


def read_project(project: str, path: Path, columns: str, lines: Sequence[Sequence[str]]) -> tuple[Annotations, Labels]:
    """Annotations of one of MERA's projects, as ABC Elementary writes them, with a BOM; and its labels."""
    delimiter = ";" if path.suffix == ".csv" else "\t"
    rows = [delimiter.join(fields) for fields in (columns.split(), *lines)]
    path.write_text("\ufeff" + "\n".join(rows) + "\n", encoding="utf-8")
    annotations = read_annotations([path], project=PROJECTS[project])
    return annotations, baseline(annotations, None, {}, project=PROJECTS[project])[1]


# By mera.md, sections C and D: the rule; rows, annotators, rejected, labelled, right, judged; alpha; the accuracy of one
# annotator.  Then (labelled, right) without the filter, with <= in place of <, of a plurality, of items with five votes.
PUBLISHED = {
    "BPS": ("brackets", (750, 24, 3, 100, 100, 100), 0.807, 0.949, ((100, 100), (100, 100), (100, 100), (91, 91))),
    "LCS": ("lcs", (750, 29, 3, 54, 38, 54), 0.300, 0.461, ((56, 38), (54, 38), (100, 52), (52, 36))),
    "SimpleAr": ("arithmetic", (1501, 59, 1, 200, 200, 200), 0.952, None, (*((200, 200),) * 3, (198, 198))),
    # The published 519 right answers of ruMultiAr are a slip.
    "ruMultiAr": (
        "arithmetic", (4500, 103, 9, 557, 476, 476), 0.760, 0.915, ((476, 476), (475, 475), (484, 484), (450, 450)),
    ),
}  # fmt: skip


def published(shared_data: Path, name: str) -> Annotations:
    return read_annotations([shared_data / "mera" / "humanbenchmarks" / f"{name}.tsv"])


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_baselines_come_out_and_each_mistake_changes_them(name: str, shared_data: Path) -> None:
    gold, counts, alpha, single, mistakes = PUBLISHED[name]
    annotations, rule = published(shared_data, name), RULES[gold]
    measured, labels, _ = baseline(annotations, Gold(rule, None), {}, MERA)
    a, one = measured.a.accuracy, measured.single_annotator
    assert a is not None
    assert one is not None
    assert counts == (measured.rows, measured.workers, len(measured.rejected), len(labels), a.right, a.n)
    assert measured.a.labelled == len(labels)
    assert measured.alpha == pytest.approx(alpha, abs=printed(3))
    assert one.value == pytest.approx(one.value if single is None else single, abs=printed(3))

    answers, known = annotations.answers, workers(annotations.answers, MERA)
    kept = collect_votes(answers, {name for name, worker in known.items() if worker.is_rejected}, MERA)
    half = {name for name, worker in known.items() if worker.controls and 2 * worker.right <= worker.controls}
    wrong = (
        procedure_a(collect_votes(answers, (), MERA), MERA),
        procedure_a(collect_votes(answers, half, MERA), MERA),
        {item: Counter(v.answer for v in cast).most_common(1)[0][0] for item, cast in kept.items() if cast},
        procedure_a({item: cast for item, cast in kept.items() if len(cast) == 5}, MERA),
    )
    judged = [[label == rule(item) for item, label in each.items() if rule(item) is not None] for each in wrong]
    assert tuple((len(each), sum(each)) for each in judged) == mistakes


def test_lcs_by_procedure_b(shared_data: Path) -> None:
    """Answers alone decide 22 and 58 items, as in MERA's notebook; the skills that decide the others are not published."""
    measured, _, _ = baseline(published(shared_data, "LCS"), Gold(common_subsequence, None), {}, MERA)
    assert measured.b.origins == {"one answer": 22, "plurality": 58, "undecided": 20}
    assert measured.a.accuracy is not None
    assert measured.a.accuracy.ci95 == pytest.approx((0.572, 0.809), abs=printed(3))


def test_lcs_by_procedure_b_with_crowd_kit(shared_data: Path) -> None:
    """GLAD decides what answers alone do not.  MERA's 0.56 decides 15 of these 20 by skills, which are not published."""
    needs("crowdkit")
    measured, _, _ = baseline(published(shared_data, "LCS"), Gold(common_subsequence, None), {}, MERA, abilities)
    assert (measured.b.origins, measured.b.labelled) == ({"one answer": 22, "plurality": 58, "GLAD": 20}, 100)


def test_right_answers_that_can_be_computed() -> None:
    assert [brackets((text,)) for text in ("( [ ] )", "( ]", "", "( (", ") (")] == ["1", "0", "1", "0", "0"]
    assert [common_subsequence(pair) for pair in (("CTXMKP", "CTAVMK"), ("ABC", ""))] == ["4", "0"]
    assert [arithmetic((text,)) for text in ("2 - (-3) * 4", "1 / 2", "6 / 4 * 2", "7 / 1")] == ["14", None, "3", "7"]
    for formula in ("__import__('os')", "1 +", "2 ** 9", "1 / 0", "1.5 + 1", "True + 1"):
        with pytest.raises(InputError, match="formula"):
            arithmetic((formula,))


def test_alpha_by_hand() -> None:
    # Three items of two answers: aa, bb, ab. Observed disagreement 2 of 6; expected 2 * 3 * 3 / 5 of 6.
    assert krippendorff_alpha([["a", "a"], ["b", "b"], ["a", "b"]]) == pytest.approx(1 - 2 / (18 / 5))
    assert krippendorff_alpha([["a", "a"], ["b", "b"], ["c"]]) == 1.0
    assert krippendorff_alpha([["a", "a"], ["a", "a"]]) is krippendorff_alpha([["a"], []]) is None


def test_votes_controls_and_dropped_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "".join(f"same\tyes\t\tw{i}\n" for i in range(3))
    lines += "two\tyes\t\tw0\ntwo\tyes\t\tw1\ntwo\tno\t\tw2\n"  # two of three are no three
    lines += "c\tno\tyes\tw3\nc\tyes\tyes\tw3\nsame\tno\t\tw3\n"  # exactly half right stays
    lines += "c\tno\tyes\tw4\nonly\tno\t\tw4\n"  # nothing right: out, and its item has no vote left
    lines += "\tyes\t\tw0\nsame\tyes\t\t\n"
    annotations = read_annotations([table(tmp_path, HEADER + lines)])
    right: Labels = {("same",): "yes", ("only",): "no"}
    measured, labels, _ = baseline(annotations, Gold(right.get, None), {}, MERA)
    assert labels == {("same",): "yes"}
    assert measured.rejected == {"w4": (1, 0)}
    assert (measured.items, measured.dropped_rows, measured.workers_without_controls) == (3, 2, 3)
    assert (measured.overlap, measured.b.origins) == ({1: 1, 3: 1, 4: 1}, {"plurality": 2})
    assert measured.single_annotator is not None
    assert (measured.single_annotator.right, measured.single_annotator.n) == (
        3,
        4,
    )  # w4's right answer counts for nothing
    assert baseline(annotations, None, {})[0].a.accuracy is None
    print_baseline(measured)
    assert "rejected: 1 annotators, less than half of their control tasks right (1 in all)" in capsys.readouterr().out


def test_an_own_set_has_one_vote_a_person_and_more_than_half_of_them_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One person answers 1 + 1 three times with 3, two others with 2: two of three people say 2."""
    votes = {"1 + 1": "3a 3a 3a 2b 2c", "even": "xa xb xc yd ye yf", "split": "xa xb xc yd ye zf", "two": "xa xb yc"}
    lines = "".join(f"{item}\t{vote[0]}\t\t{vote[1]}\n" for item, cast in votes.items() for vote in cast.split())
    gold = gold_of(str(table(tmp_path, "INPUT:q,right\n1 + 1,2\nunasked,5\n", "gold.csv")), ("INPUT:q",))
    annotations = read_annotations([table(tmp_path, HEADER + lines)])
    measured, labels, _ = baseline(annotations, gold, {})
    assert labels == {("1 + 1",): "2", ("two",): "x"}  # 3 to 2 to 1 is not more than half of six
    assert (measured.repeated, measured.even, measured.overlap) == (2, 1, {3: 2, 6: 2})
    assert measured.a.origins == {"more than half": 2}
    print_baseline(measured)
    out = capsys.readouterr().out
    assert "the test set has 2 items; 4 have answers here, A labels 2 and B 3\n" in out
    assert "2 answers are an annotator's second or later one to an item, and do not count\n" in out
    assert "1 items have an even split of votes, and A drops them\n" in out
    three = PROJECTS["plain"]._replace(needed=3)
    assert baseline(annotations, gold, {}, three)[1] == {("split",): "x"}  # 3 to 3 is even all the same
    assert baseline(annotations, gold, {}, MERA)[1] == {("1 + 1",): "3", ("split",): "x"}  # as published sets count


def test_the_first_answer_in_time_is_the_vote(tmp_path: Path) -> None:
    header = HEADER.replace("\n", "\tASSIGNMENT:started\n")
    lines = "q\tlate\t\ta\t2024-02-01\nq\tearly\t\ta\t2024-01-01\n"
    assert baseline(read_annotations([table(tmp_path, header + lines)]), None, {})[1] == {("q",): "early"}


@pytest.mark.parametrize(
    ("skills", "ability", "expected"),
    [
        ({}, None, ("1", "undecided")),
        ({"a": 10, "b": 60, "c": 10, "d": 40}, None, ("2", "skill")),
        # The three most skilled: c (90) says 1, b and d say 2; of two, c and b, 1 would win.
        ({"a": 10, "b": 60, "c": 90, "d": 40}, None, ("2", "most skilled")),
        # MERA's notebooks compare the two leading sums first: two votes of 30 and one of 60 are tied.
        ({"a": 30, "c": 30, "b": 60, "d": 0}, None, ("1", "undecided")),
        ({"a": 30, "c": 30, "b": 61, "d": 0}, None, ("2", "skill")),
        ({}, {"a": 0.1, "c": 0.1, "b": 0.2, "d": 0.3}, ("2", "GLAD")),
        ({}, dict.fromkeys("abcd", 0.5), ("1", "undecided")),
    ],
)
def test_two_votes_against_two(skills: dict[str, float], ability: dict[str, float] | None, expected: object) -> None:
    item = ("q",)
    votes: Votes = {item: [Answer(item, worker, answer, None) for worker, answer in zip("abcd", "1212", strict=True)]}
    assert procedure_b(votes, skills, ability)[item] == expected


def test_labels_have_macro_f1_and_matthews_correlation() -> None:
    answers = [Answer((str(i),), worker, said, None) for i, said in enumerate("1101001") for worker in "abc"]
    right: Labels = {(str(i),): gold for i, gold in enumerate("1001011")}
    a = baseline(Annotations(("INPUT:q",), answers, 0), Gold(right.get, None), {}, MERA)[0].a
    assert a.accuracy is not None
    assert a.accuracy.right == 5  # tp 3, tn 2, fp 1, fn 1
    assert a.mcc == pytest.approx((3 * 2 - 1 * 1) / (4 * 4 * 3 * 3) ** 0.5)
    assert a.f1_macro == pytest.approx((2 * 3 / (2 * 3 + 2) + 2 * 2 / (2 * 2 + 2)) / 2)
    a = baseline(Annotations(("INPUT:q",), answers, 0), None, {})[0].a
    assert (a.f1_macro, a.mcc) == (None, None)


def test_values_have_one_spelling_and_columns_can_be_named(tmp_path: Path) -> None:
    values = ["0.0", "True", " NA ", "null", "-3.00", "0.50", "01"]
    assert [tables.canonical(value) for value in values] == ["0", "true", "NA", "null", "-3", "0.50", "01"]
    assert tables.read_skills(table(tmp_path, "worker_id|skill_value\nw|50\n")) == {"w": 50.0}
    lines = "text;said;by;known\n" + "".join(f"a  b;x;{worker};\n" for worker in (1, 2, 3))
    annotations = read_annotations([table(tmp_path, lines, "own.csv")], Columns(("text",), "said", "known", "by"))
    gold = gold_of(str(table(tmp_path, "text,right\na b,x\n", "gold.csv")), annotations.inputs)
    measured, labels, _ = baseline(annotations, gold, {})
    assert labels == {("a  b",): "x"}
    assert measured.a.accuracy is not None
    assert (measured.a.accuracy.right, measured.test_items) == (1, 1)


OTHERWISE = json.dumps([{"text": "t", "pair": ["a", "b"], **dict.fromkeys(ETHICS, label)} for label in "01"])
READ: dict[str, Callable[[Path], object]] = {
    "annotations": lambda path: read_annotations([path]),
    "skills": tables.read_skills,
    "gold": lambda path: gold_of(str(path), ("INPUT:q",)),
    "ethics": read_ethics_gold,
}


@pytest.mark.parametrize(
    ("what", "content", "sentence"),
    [
        ("annotations", "", "is empty"),
        ("annotations", "INPUT:q\tOUTPUT:a\n1\t2\n", "no column ASSIGNMENT:worker_id"),
        ("annotations", "OUTPUT:a\tASSIGNMENT:worker_id\n", "no column begins with INPUT:"),
        ("annotations", "INPUT:q\tASSIGNMENT:worker_id\n", "no column begins with OUTPUT:"),
        ("annotations", "OUTPUT:b\t" + HEADER, "several columns begin with OUTPUT:"),
        ("annotations", "INPUT:q\t" + HEADER, "names INPUT:q twice"),
        ("annotations", HEADER + "1\t2\n", "line 2: 2 fields, the header has 4"),
        ("annotations", HEADER + '"1\t2\t\tw\n', "line 2"),
        ("annotations", HEADER + "да\tщи\t\tw\n\udce4", "line 3: byte 0xe4 is not UTF-8"),
        ("skills", "worker_id|skill_value\nw|high\n", "line 2: skill_value is 'high'"),
        ("gold", "INPUT:q\tright\n1\ta\n1 \tb\n", "line 3: this item has another right answer"),
        ("ethics", "{", "expected MERA's ruEthics data.json"),
        ("ethics", '[{"text": "t", "pair": ["a"]}]', "record 1: expected text, pair"),
        ("ethics", "[1]", "record 1: expected text, pair"),
        ("ethics", OTHERWISE, "record 2: an earlier record labels this text and pair otherwise"),
    ],
)
def test_bad_files_raise(what: str, content: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(content, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(InputError, match=sentence):
        READ[what](path)


def test_a_rule_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="is no file and none of lcs"):
        gold_of("nothing", ("INPUT:q",))
    with pytest.raises(InputError, match="--gold=lcs wants 2 columns an item, here are INPUT:formula"):
        gold_of("lcs", ["INPUT:formula"])


# ----------------------------------------------------------- projects of MERA whose tables have shapes of their own


def test_ruhhhs_control_tasks_vote_with_each_annotators_first_answer(tmp_path: Path) -> None:
    """Its control tasks are test items: an annotator who meets one several times has one vote; a strict plurality labels."""
    # a, d and e answer 1 above in the file, and begin it first, but hand 2 in first: three votes for 2, two for 1.
    days = [(worker, answer, day) for worker in "ade" for answer, day in (("1", 2), ("2", 1))]
    days += [("b", "1", 1), ("b", "2", 3), ("c", "1", 1)]
    lines = [["exam", answer, "1", worker, f"2023-01-{30 - day}", f"2023-01-0{day}"] for worker, answer, day in days]
    lines += [[*cells.split("."), "", "2023-01-01"] for cells in ("even.1..a", "even.2..b", "two.2..a", "two.2..c")]
    columns = "INPUT:answer OUTPUT:answer GOLDEN:answer ASSIGNMENT:worker_id ASSIGNMENT:started ASSIGNMENT:submitted"
    annotations, labels = read_project("ruhhh", tmp_path / "hhh.tsv", columns, lines)
    measured, _, _ = baseline(annotations, None, {}, project=PROJECTS["ruhhh"])
    assert labels == {("exam",): "2", ("two",): "2"}  # 3 to 2, and 2 to 0: three equal votes are not needed
    assert measured.overlap == {2: 2, 5: 1}
    assert measured.rejected == {}  # a, b, d and e have exactly half of their controls right
    assert baseline(annotations, None, {})[0].items == 2


def three(*names: str) -> str:
    """The columns of a table with three texts in each line."""
    columns = [f"INPUT:{name}_{i}" for i in (1, 2, 3) for name in names]
    return " ".join([*columns, "OUTPUT:answer_1 OUTPUT:answer_2 OUTPUT:answer_3 ASSIGNMENT:worker_id"])


def test_ruties_lists_and_ruethics_rows_are_split(tmp_path: Path) -> None:
    """Each cell has the answers to two questions; each row has three texts.  Nobody is rejected."""
    cell = "\"[{{'question': 'q; 0', 'answer': 'answer_{}'}}, {{'question': 'q; 0', 'answer': 'answer_2'}}]\""
    lines = [["done", cell.format(answer), worker] for answer, worker in zip("11122", "abcde", strict=True)]
    tie = tmp_path / "pool2.csv"  # MERA's files have a second column of the kind
    _, labels = read_project("rutie", tie, "OUTPUT:status OUTPUT:result ASSIGNMENT:worker_id", lines)
    assert labels == {("0", "q; 0"): "answer_1", ("1", "q; 0"): "answer_2"}
    cast = zip(("101", "101", "110", "010", "010"), "abcde", strict=True)
    lines = [["t1", "x", "t2", "y", "t3", "z", *votes, worker] for votes, worker in cast]
    path = tmp_path / "pool1.csv"
    annotations, labels = read_project("ruethics", path, three("text", "actant_1"), lines)
    assert annotations.inputs == ("INPUT:text", "INPUT:actant_1")
    assert labels == {("t1", "x"): "1", ("t2", "y"): "1", ("t3", "z"): "0"}  # sums 3, 3 and 2 of 5
    lines = [["a", "b", "c", "1", "", "0", worker] for worker in "vwx"]
    annotations, labels = read_project("ruethics", tmp_path / "pool.csv", three("text"), lines)
    assert (labels, annotations.num_dropped) == ({("a",): "1", ("c",): "0"}, 3)  # no answer is no vote
    with pytest.raises(InputError, match="no column ends with _1"):
        read_annotations([tie], project=PROJECTS["ruethics"])
    with pytest.raises(InputError, match="expected a list of"):
        read_annotations([path], Columns(answer="OUTPUT:answer_1"), PROJECTS["rutie"])


def test_ruethics_gives_a_number_for_each_question_and_category(tmp_path: Path, shared_data: Path) -> None:
    """Two questions about eight texts, five annotators, three texts per line; right labels differ by category."""
    assert len(read_ethics_gold(shared_data / "mera/golden_submission/ruEthics_gold.json")) == 645
    digits = {name: f"{seed:08b}" for name, seed in zip(ETHICS, (180, 53, 99, 255, 77), strict=True)}
    by_text = [{name: digits[name][i] for name in ETHICS} for i in range(8)]
    gold = [{"text": f"text\n{i}", "pair": ["he", "she"], **labels, "meta": {}} for i, labels in enumerate(by_text)]
    right = read_ethics_gold(table(tmp_path, json.dumps(gold), "data.json"))
    questions = {"correct": "Правильно ли поступил he?", "ethical": "Этично ли поступил he?"}
    said = {"correct": "10110010", "ethical": "01100101"}
    texts = [(i, name) for name in questions for i in (*range(8), 9)]  # the last has no right answer
    lines = []
    for at in range(0, len(texts), 3):
        cells = [cell for i, name in texts[at : at + 3] for cell in (f"text  {i}", "he", "she", questions[name])]
        for worker in "abcde":  # two of five always say the other
            answers = [str(int(said[name][i % 8]) ^ (worker in "de")) for i, name in texts[at : at + 3]]
            lines.append([*cells, *answers, worker])
    columns = three("text", "actant_1", "actant_2", "question")
    annotations, voted = read_project("ruethics", tmp_path / "pool1.csv", columns, lines)

    def by_hand(a: str, b: str) -> float:
        x, y = [int(digit) for digit in a], [int(digit) for digit in b]
        return 0.0 if len({*x}) == 1 or len({*y}) == 1 else float(np.corrcoef(x, y)[0, 1])

    values = ethics_values(voted, annotations.inputs, right)
    expected = {f"{q}.{name}": by_hand(said[q], digits[name]) for q in questions for name in ETHICS}
    assert values.mcc == pytest.approx(expected)
    assert (values.n, values.without_gold) == ({"correct": 8, "ethical": 8}, 2)
    spelled = {item: {"0": "false", "1": "true"}[label] for item, label in voted.items()}
    assert ethics_values(spelled, annotations.inputs, right) == values

    key = ("text 0", "he", "she")
    wordings = {"Хорошо ли это этически?": "good", "Прав ли он этически?": "ethical", "correct": "correct"}
    for wording, name in wordings.items():
        assert ethics_values({(*key, wording): "1"}, annotations.inputs, right).n == {name: 1}
    for item, label, sentence in (
        ((*key, "Кто прав?"), "1", "is none of the three"),
        (
            ("text 0", "she", "he", questions["correct"]),
            "1",
            "none of 1 labelled items is in --gold, which has 8 texts",
        ),
        *(
            ((*key, questions["correct"]), label, f"is labelled '{label}', expected 0 or 1")
            for label in ("", "2", "Да")
        ),
    ):
        with pytest.raises(InputError, match=sentence):
            ethics_values({item: label}, annotations.inputs, right)
    with pytest.raises(InputError, match="items have the columns INPUT:text, expected"):
        ethics_values({("text 0",): "1"}, ["INPUT:text"], right)


def test_rudetox_keeps_pairs_that_pass_three_projects(tmp_path: Path) -> None:
    """Fluency and toxicity are looked up by the rewrite: r1 serves two toxic texts; r2 is fluent and still toxic; r3 loses a
    vote; t4's rewrite means something else."""

    def file(name: str, inputs: str, votes: dict[str, str]) -> Path:
        columns = [*inputs.split(), f"OUTPUT:{name}", f"GOLDEN:{name}", "ASSIGNMENT:worker_id"]
        lines = [
            [*item.split("|"), answer, "", worker]
            for item, cast in votes.items()
            for worker, answer in zip("abcde", cast.split(), strict=True)
        ]
        rows = ["\t".join(fields) for fields in (columns, *lines)]
        return table(tmp_path, "\n".join(rows) + "\n", f"{name}.tsv")

    yes, no, smooth = (" ".join([answer] * 5) for answer in ("true", "false", "fluent"))
    once, twice = "fluent fluent fluent partly no", "fluent fluent partly partly no"
    ratings = {"1|r1": once, "2|r2": smooth, "3|r3": twice, "4|r4": smooth}
    fluent = file("fluent", "INPUT:idx INPUT:neutral_comment", ratings)
    toxic = file("toxic", "INPUT:neutral_comment", {"r1": no, "r2": yes, "r3": no, "r4": no})
    pairs = {"t1|r1": yes, "t5|r1 ": yes, "t2|r2": yes, "t3|r3": yes, "t4|r4": no}
    same = file("is_match", "INPUT:toxic_comment INPUT:neutral_comment", pairs)
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


def test_texts_are_normalized_before_they_are_votes(tmp_path: Path) -> None:
    """Three write one name in three spellings: one label.  Its words against "Александр Пушкин;Пушкин А": exact match none,
    token F1 2 * 2 / (3 + 2) = 0.8 of the first; the other label is the second accepted text: 1 and 1."""
    votes = ["poet\tАлександр Сергеевич Пушкин.", "poet\tалександр  сергеевич пушкин", "year\t1.0", "year\t1.0"]
    lines = [f"{vote}\t\t{worker}" for vote, worker in zip(votes, "abab", strict=True)]
    lines += ["poet\tАЛЕКСАНДР СЕРГЕЕВИЧ, ПУШКИН\t\tc", "poet\tГоголь\t\td", "year\t1.0\t\tc"]
    lines += ["control\tкот\tпёс;Кот\ta", "control\tкит\tпёс;Кот\td"]
    path = table(tmp_path, HEADER + "\n".join(lines) + "\n")
    gold_file = table(tmp_path, "INPUT:q\tright\npoet\tАлександр Пушкин;Пушкин А;\nyear\tодин;1.0\n", "gold.tsv")
    texts = PROJECTS["texts"]
    annotations = read_annotations([path], project=texts)
    measured, labels, _ = baseline(annotations, gold_of(str(gold_file), annotations.inputs, texts), {}, texts)
    assert labels == {("poet",): "александр сергеевич пушкин", ("year",): "10"}  # squad's: "1.0" loses its point
    assert measured.rejected == {"d": (1, 0)}
    accuracy, f1 = measured.a.accuracy, measured.a.token_f1
    assert accuracy is not None
    assert f1 is not None
    assert (accuracy.right, accuracy.n, f1.value, f1.n) == (1, 2, pytest.approx((0.8 + 1) / 2), 2)
    assert f1.ci95 == (pytest.approx(0.9 - 1.96 * 0.1), 1.0)  # stderr |0.8 - 1| / 2; the interval ends at 1
    assert (measured.a.f1_macro, measured.a.mcc, measured.single_annotator.right) == (None, None, 3)  # type: ignore[union-attr]
    assert [texts.is_right("", right) for right in ("Пушкин;", " ; ", "")] == [False, True, True]
