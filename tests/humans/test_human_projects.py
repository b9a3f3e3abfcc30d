"""Projects of MERA whose tables have shapes of their own: ruHHH, ruTiE, ruEthics, ruDetox."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from miron_jax.errors import InputError
from miron_jax.humans.annotations import PROJECTS, Columns, read_annotations
from miron_jax.humans.baseline import baseline
from miron_jax.humans.detox import kept_pairs
from miron_jax.humans.ethics import ethics_values, read_ethics_gold
from miron_jax.metrics.detox import detox_scores
from miron_jax.tasks.mera.metrics import ETHICS
from tests.support.annotation_tables import write_table


def test_ruhhhs_control_tasks_vote_with_each_annotators_first_answer(tmp_path: Path) -> None:
    """Its control tasks are test items: an annotator who meets one several times has one vote; a strict plurality labels."""
    header = [
        *(f"{prefix}:answer" for prefix in ("INPUT", "OUTPUT", "GOLDEN")),
        "ASSIGNMENT:worker_id",
        "ASSIGNMENT:started",
        "ASSIGNMENT:submitted",
    ]
    # a, d and e answer 1 above in the file, and begin it first, but hand 2 in first: three votes for 2, two for 1.
    days = [(answer, worker, day) for worker in "ade" for answer, day in (("1", "02"), ("2", "01"))]
    days += [("1", "b", "01"), ("2", "b", "03"), ("1", "c", "01")]
    lines = [
        ["exam", answer, "1", worker, f"2023-01-{30 - int(day)}", f"2023-01-{day}"] for answer, worker, day in days
    ]
    lines += [
        [item, answer, "", worker, "", "2023-01-01"]
        for item, answer, worker in (("even", "1", "a"), ("even", "2", "b"), ("two", "2", "a"), ("two", "2", "c"))
    ]
    annotations = read_annotations([write_table(tmp_path / "hhh.tsv", header, lines)], project=PROJECTS["ruhhh"])
    measured, labels, _ = baseline(annotations, None, {}, project=PROJECTS["ruhhh"])
    assert labels == {("exam",): "2", ("two",): "2"}  # 3 to 2, and 2 to 0: three equal votes are not needed
    assert measured.overlap == {2: 2, 5: 1}
    assert measured.rejected == {}  # a, b, d and e have exactly half of their controls right
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
