"""CORE's table, files, parsing, composites and locating; the choice of tasks by name."""

import csv
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from miron_jax.definitions.data_files import DataState, data_state, git_blob_sha1, read_examples
from miron_jax.definitions.records import Composite, DataFile, Measured
from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.tasks import core, eval_bundle
from miron_jax.tasks.registry import SUITES, select
from tests.support.tolerances import FLOAT64, printed

TASKS = {task.name: task for task in core.SUITE.tasks}
LARGE = ["core/hellaswag_zeroshot", "core/hellaswag", "core/squad", "core/coqa"]


def composites_of(accuracies: Mapping[str, float | None]) -> dict[str, Composite]:
    return core.composites({name: Measured(accuracy, 10) for name, accuracy in accuracies.items()})


def small_task(name: str, lines: list[str], folder: Path):
    """The task with these lines as its published file."""
    content = "".join(line + "\n" for line in lines).encode(errors="surrogateescape")
    (folder / "small.jsonl").write_bytes(content)
    return replace(TASKS[name], file=DataFile("small.jsonl", len(lines), git_blob_sha1(content)))


def test_table_equals_manifest_and_every_local_file_has_its_hash(shared_data: Path):
    assert (
        git_blob_sha1(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"
    )  # echo hello | git hash-object --stdin
    assert len(core.SUITE.tasks) == 22
    assert sum(task.file.rows or 0 for task in core.SUITE.tasks) == 91_037
    folder = core.locate(shared_data / "eval_bundle")
    with (shared_data / "eval_bundle" / "manifest.tsv").open() as file:
        manifest = {row["file"]: row for row in csv.DictReader(file, delimiter="\t")}
    for task in core.SUITE.tasks:
        if task.name in LARGE:
            assert data_state(task, folder) == DataState("missing", None)
            continue
        row = manifest[task.file.path]
        assert (task.file.rows, task.file.git_blob_sha1) == (int(row["rows"]), row["git_blob_sha1"])
        assert data_state(task, folder) == DataState("as published", task.file.git_blob_sha1)
        assert len(read_examples(task, folder)) == task.file.rows


def test_gold_and_equal_choices_are_as_published(shared_data: Path):
    folder = core.locate(shared_data / "eval_bundle")
    for name, num_first in (("boolq", 1237), ("piqa", 910), ("winograd", 137)):
        assert sum(e.gold == 0 for e in read_examples(TASKS[f"core/{name}"], folder)) == num_first
    for name, num_equal in (("arc_easy", 7), ("arc_challenge", 4)):
        examples = read_examples(TASKS[f"core/{name}"], folder)
        assert sum(len(set(e.continuations)) < len(e.continuations) for e in examples) == num_equal


def test_bundle_baselines_are_table_v1(shared_data: Path):
    with (shared_data / "eval_bundle" / "eval_meta_data.csv").open(encoding="utf-8") as file:
        published = {f"core/{row['Eval Task']}": 0.01 * float(row["Random baseline"]) for row in csv.DictReader(file)}
    assert {name: published[name] for name in core.BASELINES_V1} == core.BASELINES_V1


@pytest.mark.parametrize(
    ("model", "v1", "v2"),
    [
        ("", 0.113891, 0.088095),
        ("-medium", 0.184903, 0.158706),
        ("-large", 0.214641, 0.189887),
        ("-xl", 0.256525, 0.230890),
    ],
)
def test_composites_reproduce_the_published_csvs(shared_data: Path, model: str, v1: float, v2: float):
    text = (shared_data / "goldens" / f"openai-community-gpt2{model}.csv").read_text()
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()[1:]]
    accuracies = {f"core/{label}": float(accuracy) for label, accuracy, _ in rows[:-1]}
    composites = composites_of(accuracies)
    value = composites["CORE"].value
    assert value is not None
    # Twice or more: the accuracies are rounded as well.
    assert value == pytest.approx(float(rows[-1][2]), abs=2 * printed(6))
    assert value == pytest.approx(v1, abs=2 * printed(6))
    assert composites["CORE_v2"].value == pytest.approx(v2, abs=2 * printed(6))
    for label, accuracy, centered in rows[:-1]:
        b = core.BASELINES_V1[f"core/{label}"]
        assert (float(accuracy) - b) / (1 - b) == pytest.approx(float(centered), abs=4 * printed(6))


def test_composite_without_all_22_is_null_and_names_the_missing():
    accuracies: dict[str, float | None] = {name: 0.5 for name in TASKS if name not in LARGE}
    composites = composites_of({**accuracies, "core/coqa": None})
    for name in ("CORE", "CORE_v2"):
        assert (composites[name].value, composites[name].complete) == (None, False)
        assert sorted(composites[name].missing) == sorted(LARGE)
    assert composites["CORE-18"].complete
    assert composites["CORE-18"].value is not None
    assert composites_of({**accuracies, "core/copa": None})["CORE-18"].missing == ("core/copa",)


def test_composite_by_hand():
    # All at their baseline: 0.  One task then gains .1: copa (b = .5) adds .1 / .5 / 22; boolq (b = .62) .1 / .38 / 22.
    at_baseline: dict[str, float | None] = dict(core.BASELINES_V1)
    assert composites_of(at_baseline)["CORE"].value == pytest.approx(0, abs=FLOAT64)
    up = composites_of({**at_baseline, "core/copa": 0.6})["CORE"]
    assert up.value == pytest.approx(0.1 / 0.5 / 22)
    assert up.weights["core/copa"] == pytest.approx(1 / 0.5 / 22)
    # CORE-18 takes the same table: by another one, tasks at these baselines would not add 0.
    assert composites_of({**at_baseline, "core/copa": 0.6})["CORE-18"].value == pytest.approx(0.1 / 0.5 / 18)
    # Not clipped: boolq at 0 is .62 below a baseline of .62, that is -.62 / .38.
    assert composites_of({**at_baseline, "core/boolq": 0.0})["CORE"].value == pytest.approx(-0.62 / 0.38 / 22)


GOOD = {"query": "q", "choices": ["a", "b"], "gold": 1}
SCHEMA = {"context_options": ["a", "b"], "continuation": "c", "gold": 0}


def without(fields: JsonObject, key: str) -> JsonObject:
    return {each: value for each, value in fields.items() if each != key}


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("copa", "{", "no valid JSON"),
        ("copa", "", "blank line"),
        ("copa", "[1]", "JSON list"),
        ("copa", '{"query": "\udcff"}', "byte 12 is not UTF-8"),
        ("copa", '{"query": "\\ud800", "choices": ["a", "b"], "gold": 0}', "half a surrogate pair"),
        ("copa", '{"query": "q", "choices": ["a", "b"], "gold": 0, "gold": 1}', "the key 'gold' stands twice in {"),
        ("copa", {**GOOD, "gold": 2}, "'gold' holds 2, expected a whole number from 0 to 1"),
        ("copa", {**GOOD, "gold": -1}, "'gold' holds -1"),
        ("copa", {**GOOD, "gold": True}, "'gold' holds True"),
        ("copa", {**GOOD, "gold": "1"}, "'gold' holds '1'"),
        ("copa", without(GOOD, "gold"), "'gold' (the right answer) is missing"),
        ("copa", {**GOOD, "choices": ["a", ""]}, "choices[1] is empty"),
        ("copa", {**GOOD, "choices": ["a", " \n"]}, "choices[1] is empty"),
        ("copa", {**GOOD, "choices": ["a"]}, "at least 2"),
        ("copa", {**GOOD, "choices": "ab"}, "at least 2"),
        ("copa", {**GOOD, "choices": ["a", 3]}, "choices[1] holds 3"),
        ("copa", without(GOOD, "choices"), "'choices' is missing"),
        ("copa", without(GOOD, "query"), "'query' is missing"),
        ("winograd", without(SCHEMA, "continuation"), "'continuation' is missing"),
        ("winograd", {**SCHEMA, "context_options": ["a"]}, "at least 2"),
        ("winograd", {**SCHEMA, "context_options": ["a", ""]}, "context_options[1]"),
        ("jeopardy", {"context": "c", "continuation": " "}, "'continuation' is empty"),
        ("jeopardy", {"continuation": "c"}, "'context' is missing"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, name: str, line: str | JsonObject, message: str):
    good = {"copa": GOOD, "winograd": SCHEMA, "jeopardy": {"context": "c", "continuation": "d"}}[name]
    lines = [each if isinstance(each, str) else json.dumps(each) for each in (good, line, good)]
    task = small_task(f"core/{name}", lines, tmp_path)
    with pytest.raises(InputError) as error:
        read_examples(task, tmp_path)
    assert "small.jsonl, line 2: " in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_empty_and_changed_files(tmp_path: Path):
    task = small_task("core/copa", [json.dumps(GOOD)], tmp_path)
    assert data_state(task, tmp_path).state == "as published"
    with (tmp_path / "small.jsonl").open("a") as file:
        file.write(json.dumps(GOOD))  # no newline at the end: as good as with one
    assert data_state(task, tmp_path).state == "changed"
    with pytest.raises(InputError, match=r"is not the published file .* --allow_changed_data"):
        read_examples(task, tmp_path)
    assert len(read_examples(task, tmp_path, allow_changed=True)) == 2
    (tmp_path / "small.jsonl").write_bytes(b"")
    with pytest.raises(InputError, match=r"small.jsonl is empty"):
        read_examples(task, tmp_path, allow_changed=True)
    (tmp_path / "small.jsonl").unlink()
    with pytest.raises(InputError, match=r"core/copa: data file .*small.jsonl is missing"):
        read_examples(task, tmp_path)


def bundle(folder: Path, core_yaml: str) -> Path:
    path = folder / "eval_data" / TASKS["core/copa"].file.path
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(GOOD) + "\n")
    (folder / "core.yaml").write_text(core_yaml)
    return folder


@pytest.mark.parametrize("entry", ["", "eval_data"])
def test_locate_refuses_another_table(shared_data: Path, tmp_path: Path, entry: str):
    text = (shared_data / "eval_bundle" / "core.yaml").read_text()
    folder = bundle(tmp_path, text)
    with pytest.raises(InputError, match="no CORE data there"):
        core.locate(tmp_path / "absent")
    assert core.locate(folder / entry) == folder / "eval_data"
    (folder / "core.yaml").unlink()
    assert core.locate(folder / entry) == folder / "eval_data"
    for content, sentence in (
        (text.replace("num_fewshot: [3]", "num_fewshot: [5]"), r"'agi_eval_lsat_ar' reads .*\[5\].* CORE has .*\[3\]"),
        (text.replace("label: copa", "label: copa2"), "task 'copa' reads nothing"),
        ("icl_tasks: [", r"core.yaml: cannot be read"),
    ):
        (folder / "core.yaml").write_text(content)
        with pytest.raises(InputError, match=sentence):
            core.locate(folder / entry)


COPA = "commonsense_reasoning/copa.jsonl"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive that is fetched."""
    monkeypatch.setattr(eval_bundle, "BUNDLE_URL", (tmp_path / "source.zip").as_uri())
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path / "cache"))
    return tmp_path / "source.zip"


def archive(path: Path, *names: str, method: int = zipfile.ZIP_STORED, size: int = 0) -> None:
    with zipfile.ZipFile(path, "w", method) as file:
        for name in names:
            file.writestr(name, bytes(size) if size else json.dumps(GOOD) + "\n")


def publish(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `archive` writes is CORE's copa."""
    of = git_blob_sha1((json.dumps(GOOD) + "\n").encode())
    rows = [row._replace(git_blob_sha1=of) if row.file == COPA else row for row in core._TABLE]
    monkeypatch.setattr(core, "_TABLE", rows)


@pytest.mark.parametrize("top", ["eval_bundle/", ""])
def test_bundle_is_fetched_once_and_stays_whole(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, top: str
):
    folder = tmp_path / "cache" / "eval_bundle" / "eval_data"
    archive(source, f"{top}eval_data/{COPA}")
    unpack, left_if_killed = eval_bundle.unpack, []

    def unpacked(archive: Path, target: Path) -> None:
        left_if_killed.extend(path.relative_to(tmp_path / "cache") for path in (tmp_path / "cache").glob("*/lock"))
        unpack(archive, target)

    monkeypatch.setattr(eval_bundle, "unpack", unpacked)
    (tmp_path / "cache" / ".fetch-killed").mkdir(parents=True)
    (tmp_path / "cache" / ".fetch-killed" / "lock").touch()
    with pytest.raises(InputError, match=r"copa\.jsonl is not the published file"):
        core.locate(None)
    [left] = left_if_killed
    assert left.parts[0].startswith(".fetch-"), "the next fetch removes it"
    assert left.parts[0] != ".fetch-killed"
    assert os.listdir(tmp_path / "cache") == [], "wrong bytes are not taken into the cache at all"
    publish(monkeypatch)
    assert core.locate(None) == folder
    assert os.listdir(tmp_path / "cache") == ["eval_bundle"]
    whole = (folder / COPA).read_bytes()
    (folder / COPA).write_bytes(whole.replace(b'"', b"'", 1))
    core.locate(None)
    assert (folder / COPA).read_bytes() == whole
    (folder / COPA).write_bytes(b"damaged")
    source.unlink()
    assert core.locate(None) == folder  # nothing to be had: copa names its file, the other tasks go on
    assert (folder / COPA).read_bytes() == b"damaged"


def test_a_fetch_that_fails_says_why_and_leaves_nothing(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(sentence: str, limit: str = "MOST_BYTES", most: int = 1 << 20) -> None:
        monkeypatch.setattr(eval_bundle, limit, most)
        with pytest.raises(InputError, match=sentence):
            core.locate(None)
        assert os.listdir(tmp_path / "cache") == []

    (tmp_path / "cache").mkdir()
    fails("--data_dir=FOLDER")
    source.write_bytes(b"PK, but cut short")
    fails("--data_dir=FOLDER")
    archive(source, "eval_data/a.jsonl", "../../escaped")
    fails("outside its folder")
    assert not (tmp_path / "escaped").exists()
    archive(source, "eval_data/a.jsonl", method=zipfile.ZIP_DEFLATED, size=3 << 20)
    fails("the unpacked archive has more than 1048576 bytes")
    archive(source, "eval_data/a.jsonl", size=3 << 20)
    fails("the download has more than 1048576 bytes", "MOST_ARCHIVE_BYTES")
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        archive(source, "eval_data/a.jsonl", method=method)
        fails("another method")
    archive(source, "eval_data/a.jsonl", "eval_data/b.jsonl")
    fails("has 2 files, expected 1", "MOST_FILES", 1)


def test_select_keeps_published_order_without_duplicates():
    suites = """core eval-ua-tion eval-ua-tion-text eval-ua-tion-text-refcompat eval-ua-tion-gen eval-ua-tion-gen-text
        expert gauntlet gauntlet-cot-fix gauntlet-fixed gauntlet-programming mera-v1 mera-v1.2 miron miron-gen
        miron-gen-prefixspace olmes text"""
    assert list(SUITES) == suites.split()
    assert [task.name for task in select("core").tasks] == list(TASKS)
    chosen = select("core/copa, core/arc_*,core/arc_easy")
    assert [task.name for task in chosen.tasks] == ["core/arc_easy", "core/arc_challenge", "core/copa"]
    assert chosen.by_name == {"core/copa", "core/arc_easy"}
    assert select("core").by_name == frozenset()
    assert {task.name for task in select("core/CORE-18").tasks} == TASKS.keys() - set(LARGE)


def test_select_suggests_the_nearest():
    for patterns, message in {
        "core/arc_esay": "did you mean core/arc_easy",
        "arc_easy": "did you mean core/arc_easy",
        "croe": "did you mean core",
        "core,nothing/*": r"'nothing/\*' is no suite",
        "": "'' is no suite",
        "core,,": "'' is no suite",
    }.items():
        with pytest.raises(InputError, match=message):
            select(patterns)


def test_core_soft_by_hand() -> None:
    """The plain mean over the 13 tasks that choose of (choice_prob_norm - b) / (1 - b)."""
    chance = {
        name: Measured(0.9, 10, {"accuracy": 0.9, "choice_prob_norm": b}) for name, b in core.BASELINES_SOFT.items()
    }
    assert core.composites(chance)["CORE-soft"].value == pytest.approx(0.0, abs=FLOAT64)
    copa = {"core/copa": Measured(0.9, 10, {"accuracy": 0.9, "choice_prob_norm": 0.6})}
    assert core.composites({**chance, **copa})["CORE-soft"].value == pytest.approx(0.1 / 0.5 / 13, rel=FLOAT64)
    del chance["core/piqa"]
    lacking = core.composites(chance)["CORE-soft"]
    assert (lacking.value, lacking.missing, lacking.metric) == (None, ("core/piqa",), "choice_prob_norm")
