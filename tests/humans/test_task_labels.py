"""`--human_labels`: people's answers to a task's examples become its human score and a paired human gap, by hand."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import miron_jax
from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState
from miron_jax.definitions.records import Example, HumanBaseline, Suite
from miron_jax.definitions.rules import NOTHING
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import with_labels
from miron_jax.evaluation.records import Inputs
from miron_jax.evaluation.task_kinds.choice import ChoiceKind
from miron_jax.evaluation.task_kinds.interface import LoadedTask
from miron_jax.humans.task_labels import check_folder, file_of, label_of_choice, label_of_text, read_labels
from miron_jax.metrics.choices import ExampleScore
from miron_jax.results.document import run_json, run_of
from miron_jax.statistics.estimate import wilson
from miron_jax.statistics.human_gaps import BothAnswered, paired_gaps
from tests.support.own_models import bigrams, users_promotion
from tests.support.own_task import CHOICE, TEXT, read_task, rows
from tests.support.tiny_model import make_tokenizer
from tests.support.tolerances import FLOAT64

__all__ = ["users_promotion"]  # a fixture that every test here uses
HEADER = "INPUT:row\tOUTPUT:answer\tGOLDEN:answer\tASSIGNMENT:worker_id\n"
CAPITALS = ["Paris", "Oslo", "Rome", "Madrid", "Bern"]
# Row -> answers of w1, w2 and w3.  w4 has its one control task wrong.
ANSWERS = {0: "Paris paris Lyon", 1: "Oslo Bergen Bergen", 2: "Rome Rome Rome", 3: "Madrid Lisbon"}
BY_W4 = "3\tMadrid\t\tw4\ncontrol\tno\tyes\tw4\n"


def lines_of(answers: dict[int, str]) -> str:
    cast = [(row, answer, i) for row, each in answers.items() for i, answer in enumerate(each.split(), start=1)]
    return HEADER + "".join(f"{row}\t{answer}\t\tw{i}\n" for row, answer, i in cast)


def write_labels(folder: Path, text: str, name: str = "own/x.tsv") -> Path:
    path = folder / "labels" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder / "labels"


def capitals(folder: Path, text: str = lines_of(ANSWERS) + BY_W4) -> list[str]:
    """The flags of a run whose model is right but for row 2, and of people's labels."""
    read_task(folder, TEXT + "item_order: file\n", rows(*CAPITALS))
    written = [{"id": i, "generated": f" {city}"} for i, city in enumerate(CAPITALS)]
    written[2] = {"id": 2, "generated": " Milan"}
    (folder / "written/own").mkdir(parents=True)
    (folder / "written/own/x.json").write_text(json.dumps(written))
    flags = {"task_path": "x.yaml", "generated": "written", "output": "out"}
    labels = write_labels(folder, text)
    return [*(f"--{name}={folder / path}" for name, path in flags.items()), f"--human_labels={labels}"]


def test_people_and_a_model_of_the_same_rows(miron: Any, tmp_path: Path) -> None:
    """Votes: paris (2 of 3, right), Bergen (2 of 3, wrong), Rome (right); row 3 is even without w4, who is rejected, and
    row 4 was not asked.  People have 2 of 3; of these three the model has 2, one that people have not and the other way
    round.  Bonett and Price add one of each: (2 - 2) / 5 +- 1.96 sqrt(4/5 / 5) = +- 0.784."""
    ran = miron("eval", *capitals(tmp_path))
    assert ran.status == 0, ran.err
    document = json.loads((tmp_path / "out/results.json").read_text())
    task = document["tasks"]["own/x"]
    [gap] = task["human"]
    people = gap["human"]
    assert task["metrics"]["accuracy"]["value"] == pytest.approx(0.8)
    assert (people["value"], people["n"], people["procedure"]) == (pytest.approx(2 / 3), 3, "B")
    assert people["ci95"] == pytest.approx(wilson(2 / 3, 3))
    assert (gap["value"], gap["pairs"], gap["interval"]) == (0, 3, "Bonett and Price, of pairs")
    assert gap["ci95"] == pytest.approx([-0.784, 0.784], abs=FLOAT64)
    assert task["baselines"]["human"] == people["value"]
    assert json.loads(json.dumps(run_json(run_of(document)))) == document

    sentence = (
        "people's accuracy: 0.6667 (0.2077 to 0.9385), 3 examples by procedure B, 13 answers of 4 annotators, 1 "
        "rejected; Krippendorff's alpha 0.400; 1 of 4 rows have no label; the model's less people's over the same 3: "
        "+0.0000 (-0.7840 to 0.7840; Bonett and Price, of pairs)"
    )
    assert f"own/x: {sentence}\n" in ran.out
    assert re.search(r"own/x .* 0\.667 .* \+0\.000 \(-0\.784 to \+0\.784\)", ran.out)
    assert miron("report", str(tmp_path / "out"), f"--html={tmp_path / 'out.html'}").status == 0
    page = (tmp_path / "out.html").read_text()
    assert sentence.replace("'", "&#39;") in page
    assert "people 0.6667 (0.2077 to 0.9385), human gap +0.0000 (-0.7840 to 0.7840)" in page


@pytest.mark.slow
def test_a_checkpoint_is_scored_again_where_people_have_answered_since(miron: Any, tmp_path: Path) -> None:
    flags = [flag for flag in capitals(tmp_path) if not flag.startswith("--generated")] + ["--compilation_cache="]
    assert miron("eval", *flags).status == 0
    again = miron("eval", *flags)
    assert (again.status, again.err.count("is scored already")) == (0, 6), again.err
    write_labels(tmp_path, lines_of({row: votes for row, votes in ANSWERS.items() if row}))
    changed = miron("eval", *flags)
    assert (changed.status, changed.err.count("is scored already")) == (0, 0), changed.err
    task = json.loads((tmp_path / "out/results.json").read_text())["tasks"]["own/x"]
    assert task["human"][0]["human"]["n"] == 2


@pytest.mark.slow
def test_macro_f1_and_mcc_where_all_examples_have_the_same_choices(tmp_path: Path) -> None:
    """Right: yes yes no no; people: yes no no no, so accuracy 3/4, F1 (2/3 + 4/5) / 2 = 11/15, MCC 2 / sqrt(1 2 2 3).

    The model of one token always takes the same choice: accuracy 1/2, F1 (2 2 / (4 + 2) + 0) / 2 = 1/3, MCC 0.
    """
    make_tokenizer(tmp_path / "tokenizer")
    read_task(tmp_path, CHOICE + 'delimiter: "\\nA:"\n', rows("hot", "hot", "rain", "rain", c=["hot", "rain"]))
    text = lines_of({0: "0 0", 1: "1", 2: "1 1", 3: "1"}).replace("OUTPUT:answer", "OUTPUT:choice")
    options: dict[str, Any] = {"task_path": [str(tmp_path / "x.yaml")], "output": tmp_path / "out"}
    options["human_labels"] = str(write_labels(tmp_path, text))
    evaluator = miron_jax.Evaluator(bigrams(), str(tmp_path / "tokenizer"), ["own"], **options)
    gaps = {gap["metric"]: gap for gap in evaluator.run(step=1)["tasks"]["own/x"]["human"]}
    human = {"accuracy": 3 / 4, "f1_macro": 11 / 15, "mcc": 2 / math.sqrt(12)}
    model = {"accuracy": 1 / 2, "f1_macro": 1 / 3, "mcc": 0.0}
    assert gaps.keys() == human.keys()
    for name, gap in gaps.items():
        assert gap["human"]["value"] == pytest.approx(human[name]), name
        assert gap["value"] == pytest.approx(model[name] - human[name]), name
        for value, (low, high) in ((gap["value"], gap["ci95"]), (human[name], gap["human"]["ci95"])):
            assert low <= value <= high, name
            assert low < high, name
    assert gaps["mcc"]["interval"] == "bootstrap of the pairs"


def both(model: list[float], people: list[float], **more: list[str]) -> list[BothAnswered]:
    def score(value: float) -> ExampleScore:
        return ExampleScore(None, bool(value), False, False, {"accuracy": value})

    pairs = [BothAnswered(score(a), score(b)) for a, b in zip(model, people, strict=True)]
    return [each._replace(**{key: more[key][i] for key in more}) for i, each in enumerate(pairs)]


PEOPLE = HumanBaseline("accuracy", math.nan, 0, "B", "measured", "x.tsv")


def test_a_gap_counts_categories_and_clusters_as_the_task_does() -> None:
    """Macro: the mean of 1 - 0 and of (0 + 0) / 2 - (1 + 0) / 2, 1/4.  One cluster has no deviation."""
    pairs = both([1, 0, 0], [0, 1, 0], category=["a", "b", "b"])
    [gap] = paired_gaps(pairs, PEOPLE, "macro", NOTHING.call)
    assert (gap.value, gap.human.value) == (pytest.approx(1 / 4), pytest.approx(1 / 4))
    [gap] = paired_gaps(both([1, 0, 0], [0, 1, 0]), PEOPLE, "pooled", NOTHING.call)
    assert (gap.value, gap.interval) == (0, "Bonett and Price, of pairs")
    clustered = both([1, 0, 0], [0, 1, 0], cluster=["a", "a", "a"])
    [gap] = paired_gaps(clustered, PEOPLE, "pooled", NOTHING.call)
    assert (gap.value, gap.ci95, gap.interval) == (0, None, "Student's t of the pairs")


def test_a_gap_without_pairs_says_why() -> None:
    [gap] = paired_gaps([], PEOPLE, "pooled", NOTHING.call)
    assert (gap.value, gap.why_not) == (None, "no example that ran has a label of people")
    [gap] = paired_gaps(both([math.nan], [1]), PEOPLE, "pooled", NOTHING.call)
    assert (gap.human.value, gap.value, gap.why_not) == (1, None, "accuracy is not scored here")


def test_a_choice_is_named_by_its_place_or_its_text() -> None:
    options = ("\nAnswer: True", "\nAnswer: 7", "\nAnswer: a  b")
    assert [label_of_choice(options, "\nAnswer:", text, False) for text in ("true", "7.0", "a b")] == ["0", "1", "2"]
    assert label_of_choice(options, "\nAnswer:", "2.0", True) == "2"
    for text, is_place, sentence in (
        ("3", True, "OUTPUT:choice is '3', expected 0 to 2"),
        ("-1", True, "OUTPUT:choice is '-1', expected 0 to 2"),
        ("1" * 5000, True, "OUTPUT:choice is '1{39}, expected 0 to 2"),
        ("8", False, "OUTPUT:answer is '8', expected one of true, 7, a b"),
    ):
        with pytest.raises(ValueError, match=sentence):
            label_of_choice(options, "\nAnswer:", text, is_place)
    with pytest.raises(ValueError, match="several choices are 'x', expected OUTPUT:choice, a place"):
        label_of_choice(("x", "x "), "", "x", False)


def test_a_schema_is_answered_by_a_context(tmp_path: Path) -> None:
    task, examples = read_task(tmp_path, "task: x\nkind: schema\ndata: x.jsonl\ncontexts: c\nanswer: t\ngold: a\n",
                               [{"c": ["the cat", "the mat"], "t": "was fat", "a": 0}] * 2)  # fmt: skip
    assert ChoiceKind.label_of(task, examples[0], "the mat", False) == "1"


def read(folder: Path, text: str, procedure: Any = "B") -> Any:
    file = write_labels(folder, text) / "own/x.tsv"
    examples = [Example(row, ("",), (city,), 0) for row, city in enumerate(CAPITALS)]
    return read_labels(file, "own/x", examples, lambda _, *given: label_of_text(*given), procedure)


def test_procedure_a_wants_more_than_half(tmp_path: Path) -> None:
    """One Rome of four answers is a plurality of b's, and no half: B labels it, A does not."""
    text = lines_of({0: "a a b", 1: "a a b c", 2: "a b"})
    assert read(tmp_path, text).of_row == {0: "a", 1: "a"}
    assert read(tmp_path, text, "A").of_row == {0: "a"}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            "7\tRome\t\tw1\n",
            "annotator w1, row 7: own/x has no such row, expected lines of its data file, 0 to 4: give",
        ),
        ("x\tRome\t\tw1\n", "annotator w1, row x: own/x has no such row"),
        ("2\tRome\t\tw2\n2.0\tRome\t\tw2\n", "annotator w2, row 2.0: answered twice, expected once: leave one of the"),
        (f"{'1' * 5000}\tRome\t\tw1\n", "own/x has no such row, expected lines of its data file, 0 to 4: give"),
        ("2\tRome\n", "line 5: 2 fields, the header has 4"),
    ],
)
def test_wrong_labels_are_one_sentence(tmp_path: Path, more: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        read(tmp_path, lines_of({0: "Paris Paris Lyon"}) + more)


def test_labels_that_decide_nothing_are_refused(tmp_path: Path) -> None:
    for lines in ("", "0\tParis\t\t\n", "control\tyes\tyes\tw1\n"):
        with pytest.raises(InputError, match="has no answer to an example, expected lines with INPUT:row, an an"):
            read(tmp_path, HEADER + lines)
    with pytest.raises(
        InputError, match="no row of 1 has a label by procedure B, as 1 of 3 annotators fail their contr"
    ):
        read(tmp_path, lines_of({0: "a b"}) + "0\ta\t\tw4\ncontrol\tno\tyes\tw4\n")
    for text in (
        HEADER.replace("row", "id"),
        HEADER.replace("answer", "x"),
        HEADER.replace("GOLDEN:answer", "OUTPUT:choice"),
    ):
        with pytest.raises(
            InputError, match="expected INPUT:row, ASSIGNMENT:worker_id and one of OUTPUT:choice and OUT"
        ):
            read(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("other/y.tsv", "has labels of other/y, expected those of a task of this run, such as own/x.tsv: add the file"),
        ("own/y.tsv", "own has no task own/y, expected one of own/x, own/z: rename the file"),
        ("own/z.tsv", "has labels of own/z, expected those of a task of this run"),
        ("readme.md", "has labels of no task, expected those of a task of this run, such as own/x.tsv"),
    ],
)
def test_a_folder_without_the_task_is_one_sentence(tmp_path: Path, name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        check_folder(write_labels(tmp_path, HEADER, name), {"own/x": True, "own/z": False})
    with pytest.raises(InputError, match="is no folder, expected one with a file a task, such as own/x"):
        check_folder(tmp_path / "nowhere", {"own/x": True})


def test_a_file_is_of_each_way_to_ask_a_task(tmp_path: Path) -> None:
    task, examples = read_task(tmp_path, TEXT, rows(*CAPITALS))
    suite = Suite("own", (task, replace(task, name="own/x/5-shot")), lambda _: {}, lambda *_: tmp_path)
    config = RunConfig("demo", ("own/x",), human_labels=str(write_labels(tmp_path, lines_of(ANSWERS))))
    source = LoadedTask(task, examples, DataState("changed", None))
    [labelled] = with_labels(config, Inputs([source], {}, [suite])).sources
    assert labelled.labels is not None
    assert [*labelled.labels.of_row] == [0, 1, 2]


def test_two_files_of_a_task_are_refused(tmp_path: Path) -> None:
    folder = write_labels(tmp_path, HEADER, "own/x.csv")
    assert file_of(folder, "own/x") == folder / "own/x.csv"
    with pytest.raises(InputError, match="are both there, expected one file: remove the other"):
        file_of(write_labels(tmp_path, HEADER), "own/x")


def test_wrong_labels_end_a_run_before_anything_is_written(miron: Any, tmp_path: Path) -> None:
    ran = miron("eval", *capitals(tmp_path, lines_of(ANSWERS) + "1\tOslo\t\tw1\n"))
    assert (ran.status, ran.out) == (2, "")
    assert "own/x.tsv: annotator w1, row 1: answered twice, expected once" in ran.err
    assert not (tmp_path / "out").exists()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/t.txt").write_text("some words")
    labels = write_labels(tmp_path / "text", HEADER, "text/t.tsv")
    flags = ("--tasks=text", f"--data_dir=text={tmp_path / 'docs'}", f"--human_labels={labels}")
    ran = miron("eval", *flags, f"--output={tmp_path / 'out'}")
    assert ran.status == 2, ran.err
    assert "text/t is a text task, whose score is no mean over answers that people can give" in ran.err
