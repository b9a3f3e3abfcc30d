"""A user's cloze items: the metrics, groups and composites of MIRON for the same rows."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from miron_jax.definitions.records import Cloze
from miron_jax.errors import InputError
from miron_jax.tasks.miron import FROZEN, read_parquet
from miron_jax.tasks.own_tasks.yaml_task import read_suite

KEYS = "task: x\nkind: cloze\ndata: x.jsonl\nprefix: p\ntarget: t\ncategory: c\n"
ALL = (
    "task: x\nkind: cloze\ndata: miron_gen_en.parquet\nname: id\n"
    + "".join(f"{key}: {key}\n" for key in ("prefix", "target", "category"))
    + "".join(f"{key}: {key}\n" for key in ("distractors", "clean_prefix", "operator", "num_edits"))
)


def items_of(folder: Path, keys: str, *rows: dict[str, Any]) -> list[Cloze]:
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "x.yaml").write_text(keys)
    [task] = read_suite([str(folder / "x.yaml")]).tasks
    return task.read(None, 0)


def test_columns_of_miron(tmp_path: Path) -> None:
    shutil.copy(FROZEN / "miron_gen_en.parquet", tmp_path)
    assert items_of(tmp_path, ALL) == read_parquet(FROZEN / "miron_gen_en.parquet", "miron-gen/en")
    assert items_of(tmp_path, KEYS, {"p": "", "t": " a", "c": 1}) == [Cloze(0, "0", "", " a", "1")]


@pytest.mark.slow
def test_numbers_and_groups_are_those_of_miron(tmp_path: Path, miron) -> None:
    shutil.copy(FROZEN / "miron_gen_en.parquet", tmp_path)
    (tmp_path / "x.yaml").write_text(ALL)
    (tmp_path / "groups.yaml").write_text("groups: {all: {of: [x], weights: by_size}}\n")
    paths = f"--task_path={tmp_path / 'x.yaml'},{tmp_path / 'groups.yaml'}"
    ran = miron("eval", "--tasks=miron-gen/en,own", paths, "--limit=3", f"--output={tmp_path / 'run'}")
    assert ran.status == 0, ran.err
    document = json.loads((tmp_path / "run" / "results.json").read_text())
    mine, theirs = document["tasks"]["own/x"], document["tasks"]["miron-gen/en"]
    for key in ("n", "metrics", "groups", "macro", "fragmentation", "drift", "main", "kind"):
        assert mine[key] == theirs[key], key
    assert mine["groups"].keys() == {"Morphology", "Facts", "Logic", "Noise"}
    checked = miron("tasks", f"--check={tmp_path / 'x.yaml'}")
    assert "own/x: cloze, 2000 examples, nothing is wrong" in checked.out


@pytest.mark.parametrize(
    ("keys", "row", "words"),
    [
        ("", {"t": ""}, "target is empty"),
        ("", {"p": None}, "prefix holds None, expected a text"),
        ("distractors: d\n", {"d": "a"}, "distractors is 'a', expected a list of texts"),
        ("distractors: d\n", {"d": [" a"]}, "distractors holds the target ' a'"),
        ("num_edits: d\n", {"d": "a"}, "num_edits is 'a', expected a whole number"),
        ("clean_prefix: d\n", {"d": [1]}, "clean_prefix holds [1], expected a text"),
        ("num_fewshot: 1\n", {}, "key 'num_fewshot' is not of a task of kind cloze"),
    ],
)
def test_bad_items(tmp_path: Path, keys: str, row: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        items_of(tmp_path, KEYS + keys, {"p": "b", "t": " a", "c": "c", **row})
