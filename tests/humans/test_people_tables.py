"""What a page asks and what its exports are read as: answers, verdicts, corrections; every bad input is one sentence."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.choice import ChoiceKind
from miron_jax.humans.annotations import Columns, read_annotations
from miron_jax.humans.reviews import corrected, kept_gaps, sheet_of_gaps, sheet_of_stories
from miron_jax.humans.sheets import Shown, sheet_of_table, sheet_of_task
from miron_jax.humans.tables import CHECK, check_of, read_table
from miron_jax.humans.task_labels import read_labels
from miron_jax.prompting.prompts import Prompt
from miron_jax.tasks.generators.eval_uation_gen.gaps import UserStory
from tests.support.own_task import CHOICE, read_task
from tests.support.people_pages import exported, write_tsv
from tests.tasks.eval_uation.test_uation_gen_user import TALE

STORIES = [UserStory(name, TALE, ()) for name in "abc"]
GAPS = [
    {"md_global_number": i, "storyId": "a", "md_gap_sentence": f"{i} ______ .", "options": ["кит", "слон"], "answer": "кит",
     "context": "Жили собі.", "question": f"{i} ______ ."}
    for i in range(4)
]  # fmt: skip


def answers(worker: str, count: int = 6, page: str = "p1") -> list[dict[str, str]]:
    lines = [{"INPUT:a": f"{i}", "INPUT:b": f"{i + 1}", "OUTPUT:sum": f"{2 * i + 1}"} for i in range(count)]
    return exported(page, worker, lines)


def verdicts(worker: str, words: str, reasons: str = "") -> list[dict[str, str]]:
    """`words`: u or x for each gap; a blank: no verdict."""
    lines = []
    for row, word in zip(sheet_of_gaps(GAPS, "gaps").rows, words, strict=True):
        cells = dict(zip(sheet_of_gaps(GAPS, "gaps").inputs, row.cells, strict=True))
        judged = {
            "OUTPUT:verdict": "usable" if word == "u" else "unusable",
            "OUTPUT:reasons": reasons if word == "x" else "",
        }
        lines += [] if word == " " else [{**cells, **judged}]
    return exported("g", worker, lines)


def corrections(worker: str, **texts: str) -> list[dict[str, str]]:
    """Story -> its text; "": unusable."""
    lines = []
    for name, text in texts.items():
        judged = {"OUTPUT:verdict": "usable" if text else "unusable", "OUTPUT:reasons": "" if text else "short"}
        lines.append({"INPUT:story": name, "INPUT:before": TALE, **judged, "OUTPUT:text": text})
    return exported("s", worker, lines)


def test_a_check_is_of_cells_with_their_columns_in_whatever_order() -> None:
    """crc32 of column, a zero byte and text, of both cells; their sum, as an exclusive or of these would stay where cells of
    one length change places."""
    expected = f"{(crc32(b'a' + bytes(1) + b'x') + crc32(b'b' + bytes(1) + 'ї'.encode())) % 2**32:08x}"
    assert check_of([("a", "x"), ("b", "ї")]) == check_of([("b", "ї"), (CHECK, "?"), ("a", "x")]) == expected
    assert check_of([("a", "ї"), ("b", "x")]) != expected


def test_shuffled_rows_and_columns_are_read_right_and_cells_moved_apart_are_refused(tmp_path: Path) -> None:
    lines = answers("w1")
    path = tmp_path / "w1.tsv"
    in_order = read_annotations([write_tsv(path, lines)])
    shuffled = read_annotations([write_tsv(path, lines[3:] + lines[:3], sorted(lines[0], reverse=True))])
    assert sorted(shuffled.answers, key=lambda answer: answer.time) == [
        answer._replace(item=answer.item[::-1]) for answer in in_order.answers
    ]
    header = list(lines[0])
    names = [header[1], header[0], *header[2:]]  # the header alone
    path.write_text(write_tsv(path, lines).read_text().replace("\t".join(header), "\t".join(names)))
    with pytest.raises(
        InputError, match=r"w1.tsv, line 2: PAGE:check is '\w+', expected \w+, as columns or cells were moved"
    ):
        read_table(path)
    of_column = sorted((line["OUTPUT:sum"] for line in lines), reverse=True)  # a column sorted alone
    moved = [{**line, "OUTPUT:sum": cell} for line, cell in zip(lines, of_column, strict=True)]
    with pytest.raises(InputError, match=f"remove the column {CHECK}"):
        read_table(write_tsv(path, moved))
    assert len(read_table(write_tsv(path, moved, [name for name in header if name != CHECK]))[1]) == 6


def test_exports_that_are_joined(tmp_path: Path) -> None:
    """Two annotators in one file, with the second header; the same annotator twice, of whom the first answer counts; two
    pages."""
    one, two = (write_tsv(tmp_path / f"{worker}.tsv", answers(worker)) for worker in ("w1", "w2"))
    joined = tmp_path / "joined.tsv"
    joined.write_text(one.read_text() + two.read_text())
    assert read_annotations([joined]).answers == read_annotations([one, two]).answers
    other = write_tsv(tmp_path / "other.tsv", answers("w2", page="p2"))
    with pytest.raises(InputError, match=r"w1.tsv and .*other.tsv are the work of two pages"):
        read_annotations([one, other])
    joined.write_text(one.read_text() + other.read_text())
    with pytest.raises(InputError, match=r"joined.tsv joins the work of pages p1 and p2, expected one page's"):
        read_annotations([joined])


def test_two_exports_of_one_work_are_refused(tmp_path: Path) -> None:
    """An answer that was corrected after the first export has its start in both; another start is another answer."""
    first = answers("w1", 2)
    second = changed(first, "OUTPUT:sum", "7")
    one, two = (write_tsv(tmp_path / f"{i}.tsv", lines) for i, lines in enumerate((first, second)))
    with pytest.raises(InputError, match=r"1.tsv: annotator w1 answers '0' as begun at 2026-.*, which .*0.tsv has too"):
        read_annotations([one, two])
    restarted = changed(first, "ASSIGNMENT:started", "2027")[:1]
    assert len(read_annotations([one, write_tsv(two, restarted)]).answers) == 3


def test_an_annotator_twice_has_one_vote_and_is_told(miron: Any, tmp_path: Path) -> None:
    lines = answers("w1", 2)
    later = [{**line, "ASSIGNMENT:started": "2027", "OUTPUT:sum": "9"} for line in lines]
    later = [{**line, CHECK: check_of(line.items())} for line in later]
    path = write_tsv(tmp_path / "w1.tsv", later + lines)
    ran = miron("humans", f"--annotations={path}", f"--output={tmp_path / 'out'}")
    assert "2 answers are an annotator's second or later one to an item" in " ".join(ran.out.split())
    labels = (tmp_path / "out/human_labels.jsonl").read_text().splitlines()
    assert labels == [
        '{"INPUT:a": "0", "INPUT:b": "1", "label": "1"}',
        '{"INPUT:a": "1", "INPUT:b": "2", "label": "3"}',
    ]


def test_a_table_is_asked_item_by_item(tmp_path: Path) -> None:
    """Items of several lines once, the control row with its answer; columns get the names that `humans` reads."""
    path = tmp_path / "items.csv"
    path.write_text("INPUT:a,text,GOLDEN:x\n1,one,\n1,one,\n2,two,yes\n,,\n")
    sheet = sheet_of_table(path, Columns(inputs=("text",)), ("yes", "no"))
    assert (sheet.inputs, sheet.output) == (("INPUT:text",), "OUTPUT:x")
    assert [(row.cells, row.shown, row.right) for row in sheet.rows] == [
        (("one",), (Shown("text", "one"),), ""), (("two",), (Shown("text", "two"),), "yes")
    ]  # fmt: skip
    assert sheet_of_table(path, Columns(right="GOLDEN:x"), ()).rows[0].cells == ("1",)
    with pytest.raises(InputError, match="no column c, it has INPUT:a, text, GOLDEN:x: name it with --input_columns"):
        sheet_of_table(path, Columns(inputs=("c",)), ())
    with pytest.raises(InputError, match="GOLDEN:x of '2' is 'yes', expected one of --answers=no,maybe: add it there"):
        sheet_of_table(path, Columns(), ("no", "maybe"))
    for options in (("yes",), ("yes", "yes"), ("yes", "no", ""), ("1", "2", "1.0")):
        with pytest.raises(InputError, match="expected two answers or more, all different and none empty"):
            sheet_of_table(path, Columns(), options)
    path.write_text("text,INPUT:text,GOLDEN:x\n1,one,no\n1,one,\n1,one,yes\n")
    with pytest.raises(InputError, match="columns text, INPUT:text would be text, text in what people give back"):
        sheet_of_table(path, Columns(("text", "INPUT:text")), ())
    with pytest.raises(InputError, match="GOLDEN:x of 'one' is 'no' and 'yes', expected one right answer of an item"):
        sheet_of_table(path, Columns(), ())
    path.write_text("INPUT:a,INPUT:b\n,\n")
    with pytest.raises(InputError, match="has no item"):
        sheet_of_table(path, Columns(), ())


def test_a_task_is_asked_as_the_model_reads_it_without_shots() -> None:
    """A schema's choices are its contexts with the ending that they share."""
    choice = Prompt(0, 7, ("Q?",) * 2 + ("neutral",), (" a", " b", " a"), 1, ("shot",), num_extra=1)
    schema = Prompt(1, 8, ("He is", "She is"), (" here.",) * 2, 0)
    one, two = sheet_of_task("own/x", [choice, schema], True, {8: "0"}).rows
    assert (one.cells, one.shown, one.options, one.right) == (("7",), (Shown("", "Q?"),), ("a", "b"), "")
    assert (two.cells, two.shown, two.options, two.right) == (("8",), (), ("He is here.", "She is here."), "0")
    [text] = sheet_of_task("own/x", [Prompt(0, 0, ("2+3=",), (" 5",), None)], False, {}).rows
    assert (text.shown, text.options) == ((Shown("", "2+3="),), ())


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--page=p.html", "--page wants what it asks: --annotations=TABLE with a line an item, or --tasks=TASK"),
        ("--page=p.html --annotations=a,b", "--page wants what it asks"),
        ("--page=p.html --annotations=a --tasks=core", "--page wants what it asks"),
        ("--tasks=core", "--tasks is of a page that asks people: add --page=FILE"),
        ("--page=p.html --tasks=eval-ua-tion-gen/ua_cbt --answers=a", "--answers are of a table's items"),
        ("--page=p.html --tasks=eval-ua-tion-gen", "the examples of one task, here are eval-ua-tion-gen/ua_cbt, "),
        (
            "--page=p.html --tasks=miron-gen/en",
            "is a cloze task, expected one of choices, continuations or completions",
        ),
        ("--page=p.html --tasks=eval-ua-tion-gen/ua_cbt --limit=3 --control_rows=5", "the page has no row 5"),
        (
            "--page=p.html --tasks=eval-ua-tion-gen/ua_cbt --control_rows=x",
            "--control_rows=x: 'x' is not expected there",
        ),
        ("--page=no/p.html --tasks=eval-ua-tion-gen/ua_cbt", "--page=no/p.html cannot be written"),
    ],
)
def test_bad_flags_of_a_page_that_asks(
    miron: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = miron("humans", *flags.split())
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert sentence in ran.err
    assert [*tmp_path.iterdir()] == []


def test_a_page_of_an_own_task_and_its_export_as_labels(miron: Any, tmp_path: Path) -> None:
    """w1 has its control row right, and chooses Rome in both others."""
    task, examples = read_task(tmp_path, CHOICE, [{"q": f"q{i}", "c": ["Oslo", "Rome"], "a": 0} for i in range(3)])
    page = tmp_path / "p.html"
    ran = miron("humans", f"--page={page}", f"--task_path={tmp_path / 'x.yaml'}", "--control_rows=0")
    assert (ran.status, ran.out.endswith("3 rows, 1 of them control rows, for answers\n")) == (0, True), ran.err
    text = page.read_text()
    assert '"inputs":["INPUT:row"],"output":"OUTPUT:choice","golden":"GOLDEN:choice","places":true' in text
    lines = [
        {"INPUT:row": f"{row}", "OUTPUT:choice": f"{row and 1}", "GOLDEN:choice": "" if row else "0"}
        for row in range(3)
    ]
    file = write_tsv(tmp_path / "own-x-w1.tsv", exported("p", "w1", lines))
    labels = read_labels(file, "own/x", examples, partial(ChoiceKind.label_of, task), "A")
    assert (labels.of_row, labels.people.controls_a_worker) == ({1: "1", 2: "1"}, 1)


def test_gaps_stay_that_more_people_keep(tmp_path: Path) -> None:
    """Gap 0: kept by two; 1: by one of two, so left out; 2: refused by both; 3: nobody has judged it."""
    one = write_tsv(tmp_path / "1.tsv", verdicts("w1", "uxx ", "several;unknown"))
    two = write_tsv(tmp_path / "2.tsv", verdicts("w2", "uux ", "several"))
    said = list[str]()
    assert kept_gaps([one, two], GAPS, said.append) == GAPS[:1]
    assert said == [
        "--verdicts: of 4 gaps 1 are usable, 2 unusable (several 2, unknown 2), and 1 without a verdict are left out"
    ]


def test_stories_as_people_corrected_them(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "c.tsv", corrections("w1", a=f"Давно. {TALE}", b=""))
    said = list[str]()
    [story] = corrected([path], STORIES, said.append)
    assert (story.name, story.text) == ("a", f"Давно. {TALE}")
    assert said == [
        "--corrections: of 3 stories 1 are usable, 1 unusable (short 1), and 1 without a verdict are left out"
    ]
    assert sheet_of_stories(STORIES, "s").rows[1].text == TALE


def changed(lines: list[dict[str, str]], column: str, text: str) -> list[dict[str, str]]:
    first = {**lines[0], column: text}
    return [{**first, CHECK: check_of(first.items())}, *lines[1:]]


@pytest.mark.parametrize(
    ("read", "lines", "sentence"),
    [
        (kept_gaps, verdicts("w1", "uuuu") + verdicts("w1", "   u"), "annotator w1, gap 3: the second verdict on it"),
        (
            kept_gaps,
            changed(verdicts("w1", "u   "), "INPUT:row", "9"),
            "gap 9: there is no such gap, expected one of 0, 1, 2, 3",
        ),
        (
            kept_gaps,
            changed(verdicts("w1", "u   "), "INPUT:gap", "Інше"),
            "INPUT:gap is 'Інше', expected '0 ______ .', as the stori",
        ),
        (
            kept_gaps,
            changed(verdicts("w1", "u   "), "OUTPUT:verdict", "good"),
            "is 'good' and OUTPUT:reasons '', expected usable, or",
        ),
        (
            kept_gaps,
            verdicts("w1", "x   ", "ugly"),
            "OUTPUT:reasons 'ugly', expected usable, or unusable with some of unknown;",
        ),
        (kept_gaps, verdicts("w1", "xxxx", "word"), "0 without a verdict are left out: nothing is left to write"),
        (kept_gaps, corrections("w1", a=TALE), "has no column INPUT:row, it has INPUT:story,"),
        (
            corrected,
            corrections("w1", a=TALE) + corrections("w2", a=TALE),
            "w2, story a are of one story, expected one text of it",
        ),
        (
            corrected,
            corrections("w1", a="Одне речення."),
            "story a: OUTPUT:text: text has one sentence, of two at least: mend it",
        ),
        (corrected, verdicts("w1", "u   "), "has no column INPUT:before"),
    ],
)
def test_bad_reviews(tmp_path: Path, read: Callable[..., Any], lines: list[dict[str, str]], sentence: str) -> None:
    path = write_tsv(tmp_path / "x.tsv", lines)
    with pytest.raises(InputError, match=re.escape(sentence)) as raised:
        read([path], GAPS if read is kept_gaps else STORIES, print)
    assert str(raised.value).startswith("--verdicts" if read is kept_gaps else "--corrections")
    with pytest.raises(InputError, match="cannot be read"):
        read([tmp_path / "none.tsv"], GAPS if read is kept_gaps else STORIES, print)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--page=p.html", "--page wants --stories=FILE"),
        ("--export=out --verdicts=v.tsv", "--verdicts wants --stories=FILE"),
        ("--stories=s.jsonl --page=p.html --verdicts=v.tsv", "--verdicts wants --export=FOLDER"),
        ("--stories=s.jsonl", "--stories wants --export=FOLDER, where its set of gaps is written, or --page=FILE"),
    ],
)
def test_bad_flags_of_reviews(miron: Any, flags: str, sentence: str) -> None:
    ran = miron("tasks", *flags.split())
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.err
