"""Data files and documents that benchmarks/fuzz.py damages: a sane one of each, and what reads
it."""

import contextlib
import gzip
import io
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pyarrow as pa
import yaml
from fuzz import Target
from pyarrow import parquet

sys.path.append(str(Path(__file__).parents[1]))  # tests/ has MERA-like records

from miron_jax.definitions.data_files import data_state, read_examples
from miron_jax.definitions.records import Suite, Task
from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject
from miron_jax.humans.annotations import PROJECTS, Columns, read_annotations, read_skills
from miron_jax.humans.gold import gold_of
from miron_jax.prompting.prompts import render
from miron_jax.tasks import core, eval_bundle, miron
from miron_jax.tasks.gauntlet import programming, yaml_files
from miron_jax.tasks.generators.eval_uation_gen.gaps import gap_rows, read_stories
from miron_jax.tasks.generators.eval_uation_gen.story_prompts import read_prompted
from miron_jax.tasks.generators.eval_uation_gen.story_words import CASES, read_distractors
from miron_jax.tasks.generators.eval_uation_gen.titles import read_articles
from miron_jax.tasks.mera import suite as mera
from miron_jax.tasks.mera.site import check, read_records
from miron_jax.tasks.mera.submission import Key, write_submission
from miron_jax.tasks.mera.table import Version, data_sets
from miron_jax.tasks.own_tasks.yaml_task import read_suite as read_own_tasks
from miron_jax.tasks.request_sets.requests_suite import read_suite as read_request_set
from miron_jax.tasks.text import read_suite as read_texts
from tests.support.mera_records import write_mera

MULTIPLE = {"query": "Where?", "choices": ["here", "there"], "gold": 1, "category": "x"}
PROGRAM = {
    "task_id": "a/1", "prompt": "def f(a):\n", "entry_point": "f",
    "canonical_solution": "    return a\n", "test": "def check(f):\n    assert f(1) == 1\n",
    "test_inputs": ["1"], "test_outputs": ["1"], "language": "python",
}  # fmt: skip
ENTRY = {
    "label": "a", "dataset_uri": "eval/local_data/x/a.jsonl", "num_fewshot": [0, 5],
    "icl_task_type": "schema",
    "continuation_delimiter": ": ", "has_categories": True,
}  # fmt: skip
AVERAGES = {
    "eval_gauntlet": {
        "weighting": "EQUAL",
        "subtract_random_baseline": True,
        "rescale_accuracy": True,
        "averages": {"all": ["c"]},
        "categories": [
            {"name": "c", "benchmarks": [{"name": "a", "num_fewshot": 0, "random_baseline": 0.25}]}
        ],
    }
}


def write_lines(path: Path, *records: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records),
        encoding="utf-8",
    )


def quietly(read: Callable[[], object]) -> None:
    """Run without printing anything."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        read()


def _examples(name: str, suite: Suite[Task]) -> Callable[[Path], object]:
    task = next(task for task in suite.tasks if task.name == name)
    return lambda folder: read_examples(task, folder, allow_changed=True)


def _write_core(folder: Path) -> None:
    write_lines(folder / "eval_data/commonsense_reasoning/copa.jsonl", MULTIPLE, MULTIPLE)
    rows = [
        {
            "label": row.label,
            "dataset_uri": row.file,
            "num_fewshot": [row.num_fewshot],
            "icl_task_type": row.kind,
        }
        for row in core._TABLE  # pyright: ignore[reportPrivateUsage]
    ]
    (folder / "core.yaml").write_text(yaml.safe_dump({"icl_tasks": rows}))


def _read_core(folder: Path) -> None:
    task = next(task for task in core.SUITE.tasks if task.name == "core/copa")
    below = (
        eval_bundle.locate_files(folder, False, {task.file.path: None}, "CORE")
        if not (folder / "core.yaml").exists()
        else None
    )
    if below is None:
        core._read_table(folder / "core.yaml")  # pyright: ignore[reportPrivateUsage]
        below = folder / "eval_data"
    read_examples(task, below, allow_changed=True)


def _write_yaml(folder: Path) -> None:
    (folder / "tasks.yaml").write_text(
        yaml.safe_dump({"icl_tasks": [ENTRY, {**ENTRY, "label": "b"}]})
        + "base: &b {k: 1}\nown: {<<: *b, l: [*b]}\n"
    )
    (folder / "averages.yaml").write_text(yaml.safe_dump(AVERAGES))


def _write_mera(version: Version) -> Callable[[Path], object]:
    return lambda folder: write_mera(folder, version, num_tests=3)


def _read_mera(version: Version) -> Callable[[Path], None]:
    suite = mera.V1 if version == "v1" else mera.V12

    def read(folder: Path) -> None:
        failed = None
        for task in suite.tasks:
            try:
                read_examples(cast("Task", task), folder, allow_changed=True)
            except InputError as error:
                failed = error
        read_records(folder, version)
        if failed is not None:
            raise failed

    return read


def _write_submission(folder: Path) -> None:
    choices: dict[Key, str] = {0: "1", 1: "0"}
    answers = {data_set.name: choices for data_set in data_sets("v1") if data_set.kind == "choice"}
    meta: dict[str, dict[Key, JsonObject]] = {
        name: {key: {"id": key} for key in choices} for name in answers
    }
    write_submission(folder / "a.zip", "v1", answers, meta)
    with zipfile.ZipFile(folder / "a.zip") as archive:
        (folder / "PARus.json").write_bytes(archive.read("PARus.json"))
    with zipfile.ZipFile(folder / "stored.zip", "w") as archive:
        archive.write(folder / "PARus.json", "PARus.json")


def _read_submission(folder: Path) -> None:
    with zipfile.ZipFile(folder / "packed.zip", "w") as archive:
        archive.write(folder / "PARus.json", "PARus.json")
    for name in ("a.zip", "stored.zip", "packed.zip"):
        quietly(lambda name=name: check(folder / name, "v1", None))


def _write_humans(folder: Path) -> None:
    head = "INPUT:text\tOUTPUT:answer\tGOLDEN:answer\tASSIGNMENT:worker_id\n"
    lines = [f"{i % 3}+1\t{i % 2}\t{'1' if i == 2 else ''}\tw{i % 4}\n" for i in range(12)]
    (folder / "plain.tsv").write_text(head + "".join(lines))
    listed = "[{'question': 'a', 'answer': '1'}, {'question': 'b', 'answer': '0'}]"
    head = "INPUT:dialog\tOUTPUT:result\tASSIGNMENT:worker_id\n"
    (folder / "rutie.tsv").write_text(head + f"x\t{listed}\tw1\nx\t{listed}\tw2\n")
    (folder / "skills.csv").write_text("worker_id,skill_value\nw1,0.5\nw2,1\n")
    (folder / "gold.csv").write_text("INPUT:text,right\n0+1,1\n1+1,2\n")


def _read_humans(folder: Path) -> None:
    annotations = read_annotations([folder / "plain.tsv"])
    read_annotations([folder / "rutie.tsv"], Columns(), PROJECTS["rutie"])
    read_skills(folder / "skills.csv")
    file = gold_of(str(folder / "gold.csv"), ["INPUT:text"])
    computed = gold_of("arithmetic", ["INPUT:text"])
    for answer in annotations.answers:
        file.rule(answer.item)
        computed.rule(answer.item)


def _write_parquet(folder: Path) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    rows = {
        "prefix": ["Москва is", "a b"] * 8, "target": [" c", " d"] * 8, "category": ["x", "y"] * 8,
        "id": ["1", "2"] * 8,
        "distractors": [["e"], None] * 8, "clean_prefix": [None, "f"] * 8,
        "num_edits": [1, None] * 8,
    }  # fmt: skip
    parquet.write_table(
        pyarrow.table(rows), folder / "miron_en.parquet", compression="none", use_dictionary=False
    )


def _write_arrow(folder: Path, rows: list[JsonObject]) -> None:
    """As `save_to_disk` of Hugging Face's datasets does, in two files."""
    folder.mkdir(parents=True)
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for name, part in zip(names, (rows[:1], rows[1:]), strict=True):
        table = pa.Table.from_pylist(part)
        path = str(folder / name)
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


def _write_shards(folder: Path) -> None:
    rows: list[JsonObject] = [
        {"q": word, "c": ["1.50", "hot"], "a": i % 2, "n": [i, None], "m": {"x": i / 3}}
        for i, word in enumerate("abcd")
    ]
    _write_arrow(folder / "saved" / "train", rows)
    path, table = str(folder / "one.arrow"), pa.Table.from_pylist(rows)
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema, options=_ZSTD) as whole:
        whole.write_table(table)
    for i in range(2):
        (folder / f"n{i}.jsonl").write_text('{"q": "w", "a": 1e3, "c": [1.50, 3.0, -0, 1e3]}\n' * 2)
        parquet.write_table(pa.Table.from_pylist(rows[i:]), folder / f"p{i}.parquet")
    for name, data in _SHARDS.items():
        keys = {"task": name, "data": data, "question": "q", "choices": "c", "gold": "a"}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(keys))


_SHARDS = {
    "saved": "saved/train", "one": "one.arrow", "glob": "n*.jsonl", "parquet": "p*.parquet",
    "list": ["p1.parquet", "p0.parquet"],
}  # fmt: skip
_ZSTD = pa.ipc.IpcWriteOptions(compression="zstd")


def _write_own(folder: Path) -> None:
    rows = [
        {"q": f"the {word} hill", "c": ["hot", "cold"], "a": i % 2, "k": "x"}
        for i, word in enumerate("abcd")
    ]
    write_lines(folder / "a.jsonl", *rows)
    (folder / "b.csv").write_text("q,a\nwhere,here\nwhen,now\n")
    parquet.write_table(pa.Table.from_pylist(rows), folder / "c.parquet")
    choose = {
        "task": "a",
        "data": "a.jsonl",
        "question": "{{q}} {% for x in c %}{{x}}{% endfor %}",
        "choices": "c",
        "gold": "a",
    }
    rules = {
        "rules": "gauntlet",
        "normalizer": "char",
        "num_fewshot": 2,
        "fewshot_data": "c.parquet",
        "category": "k",
    }
    (folder / "a.yaml").write_text(yaml.safe_dump(choose | rules))
    (folder / "b.yaml").write_text(
        yaml.safe_dump(
            {
                "task": "b",
                "kind": "generation",
                "data": "b.csv",
                "question": "q",
                "answer": "a",
                "stop": ["x"],
            }
        )
    )
    groups = {
        "all": {"of": ["a", "b"], "weights": {"a": 1, "b": 2.5}},
        "more": {"of": ["all"], "weights": "by_size"},
    }
    (folder / "groups.yaml").write_text(yaml.safe_dump({"groups": groups}))


def _read_own(folder: Path) -> None:
    suite = read_own_tasks([str(folder)])
    for task in suite.tasks:
        data_state(task, folder)
        render(task, read_examples(task, folder), 3)
    suite.composites({})


def _read_shards(folder: Path) -> None:
    failed = None
    for path in sorted(folder.glob("*.yaml")):
        try:
            [task] = read_own_tasks([str(path)]).tasks
            data_state(task, folder)
            render(task, read_examples(task, folder), 1)
        except InputError as error:
            failed = error
    if failed is not None:
        raise failed


def _write_requests(folder: Path) -> None:
    pair = {"context": "the sun is", "continuation": " hot"}
    rows = [{"task": name, "doc_id": i, **pair} for i, name in enumerate("aab")]
    choices = [
        {"task": "c", "doc_id": 0, "gold": 1, **pair, "continuation": text}
        for text in (" hot", " cold")
    ]
    write_lines(folder / "plain" / "requests.jsonl", *rows, *choices)
    manifest = {
        "tasks": {"a": 2, "b": 1, "c": 2},
        "groups": {"g": {"of": ["a", "b"], "weights": "by_size"}},
    }
    (folder / "plain" / "manifest.json").write_text(json.dumps(manifest))
    olmo = {"task_name": "a:rc", "doc_id": 1, "idx": 0, "label": 0, "request": pair}
    several = {
        **pair,
        "continuations": [" hot", " cold"],
        "continuation_prompts": ["a sun", "an ice"],
    }
    write_lines(folder / "olmo" / "x-requests.jsonl", olmo)
    question = {**olmo, "task_name": "b", "doc": {"choices": ["hot", "cold"]}, "request": several}
    write_lines(folder / "olmo" / "y-requests.jsonl", question)
    twins = [
        {**olmo, "doc_id": doc_id, "idx": idx} for doc_id in (1, 1_000_001) for idx in range(2)
    ]
    packed = folder / "packed" / "arc" / "rc" / "requests.jsonl.gz"
    packed.parent.mkdir(parents=True)
    packed.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in twins).encode()))
    arguments = {
        f"gen_args_{i}": {"arg_0": "the sun is", "arg_1": text}
        for i, text in enumerate((" hot", " hot"))
    }
    lines = [
        {"doc_id": doc_id, "target": target, "arguments": arguments}
        for doc_id, target in enumerate(("1", "hot"))
    ]
    write_lines(folder / "lm" / "samples_a_2026-01-01T00-00-00.jsonl", *lines)


def _read_requests(folder: Path) -> None:
    for each in ("plain", "olmo", "packed", "lm"):
        suite = read_request_set(folder / each)
        for task in suite.tasks:
            render(task, read_examples(task, folder))
        suite.composites({})


def _write_texts(folder: Path) -> None:
    write_lines(
        folder / "a" / "x.jsonl", {"text": "the sun", "id": 3}, {"text": "é ☀", "doc_id": "b"}
    )
    (folder / "a" / "y.json.gz").write_bytes(gzip.compress(json.dumps(["one", "two"]).encode()))
    parquet.write_table(pa.Table.from_pylist([{"text": "rain"}]), folder / "z.parquet")
    (folder / "w.txt").write_text("a hill")
    _write_arrow(folder / "saved" / "test", [{"text": "a"}, {"text": "b", "id": 2}])


def _read_texts(folder: Path) -> None:
    for task in read_texts(folder).tasks:
        read_examples(task, folder)


def _write_stories(folder: Path) -> None:
    noun = {"lemma": "їжа", "forms": dict.fromkeys(CASES, "їжа") | {"gen": "їжі"}}
    text = "Слон, їжа й лев. Слон спав. Тут слон утік."
    write_lines(folder / "a.jsonl", {"text": text, "words": [noun | {"type": "VERB"}]})
    listed = {"NAMED_ENTITY": {"animal": {"male": ["слон", noun]}}}
    (folder / "nouns.yaml").write_text(json.dumps(listed, ensure_ascii=False), encoding="utf-8")
    write_lines(folder / "prompts.jsonl", {"id": "1", "columns": {"NUM_WORDS": 5}})
    (folder / "1.2.story.txt").write_text(text, encoding="utf-8")


def _read_stories(folder: Path) -> None:
    listed = read_distractors(folder / "nouns.yaml")
    for story in (*read_prompted(folder, listed, print), *read_stories(folder / "a.jsonl")):
        list(gap_rows(story, listed))


TARGETS = [
    Target("own-tasks", _write_own, _read_own),
    Target("shards", _write_shards, _read_shards),
    Target("requests", _write_requests, _read_requests),
    Target("texts", _write_texts, _read_texts),
    Target("rows",
        lambda folder: write_lines(folder / "commonsense_reasoning/copa.jsonl", MULTIPLE, MULTIPLE),
           _examples("core/copa", core.SUITE)),
    Target("programs",
        lambda folder: write_lines(folder / "programming/human_eval.jsonl", PROGRAM, PROGRAM),
           _examples("gauntlet-programming/human_eval", programming.SUITE)),
    Target("core", _write_core, _read_core),
    Target("yaml", _write_yaml,
           lambda folder: yaml_files.read_suite(folder / "tasks.yaml", folder / "averages.yaml")),
    Target("mera-v1", _write_mera("v1"), _read_mera("v1")),
    Target("mera-v1.2", _write_mera("v1.2"), _read_mera("v1.2")),
    Target("submission", _write_submission, _read_submission),
    Target("humans", _write_humans, _read_humans),
    Target("parquet", _write_parquet,
        lambda folder: miron.read_parquet(folder / "miron_en.parquet", "miron/en")),
    Target("articles", lambda folder: (folder / "a.json").write_text(json.dumps(
        [{"title": "a", "text": "b c", "tags": ["x"]},
            {"ukr_title": "d", "ukr_text": "e", "tags": "x,y"}])),
           lambda folder: read_articles(folder / "a.json")),
    Target("stories", _write_stories, _read_stories),
]  # fmt: skip
