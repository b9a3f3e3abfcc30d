"""Tasks of a user's own: rules by name, shots from another file, groups, Python, programs, the hub, descriptions."""

import json
import math
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from miron_jax.definitions.data_files import data_state, read_examples
from miron_jax.errors import InputError
from miron_jax.prompting.prompts import render
from miron_jax.tasks import registry
from miron_jax.tasks.own_tasks.yaml_task import read_suite
from miron_jax.tasks.registry import SUITES
from tests.support.command import Place, run, samples
from tests.support.own_tasks import PLAIN, ROWS, logprobs, write
from tests.support.tolerances import FLOAT64

pytestmark = pytest.mark.slow


def test_rules_of_a_task_by_their_names(miron: Any, place: Place, tmp_path: Path) -> None:
    """A rule that the file names stands in the place of its protocol's; results say which ran."""
    more = "normalizer: char\ntie: last\nspan: after_context\nbos: never\nitem_order: shuffle_7\nfewshot_draw: per_item_7\n"
    path = write(tmp_path / "tasks", PLAIN + more)
    results = run(miron, place.model, tmp_path / "out", f"--task_path={path}")
    profile = results["tasks"]["own/hills"]["profile"]
    assert {key: profile[key] for key in ("normalizer", "tie", "span", "bos", "item_order", "fewshot_draw")} == {
        "normalizer": "char", "tie": "last", "span": "after_context", "bos": "never", "item_order": "shuffle_7",
        "fewshot_draw": "per_item_7",
    }  # fmt: skip
    order = list(range(7))
    random.Random(7).shuffle(order)
    assert [sample["row"] for sample in samples(tmp_path / "out", "own/hills")] == order


def test_categories_count_alike(miron: Any, place: Place, tmp_path: Path) -> None:
    rows = [{**row, "kind": "ab"[i > 1]} for i, row in enumerate(ROWS)]
    text = PLAIN.replace("num_fewshot: 2", "num_fewshot: 0") + "category: kind\ncategories: macro\n"
    path = write(tmp_path / "tasks", text, rows)
    task = run(miron, place.model, tmp_path / "out", f"--task_path={path}")["tasks"]["own/hills"]
    assert {name: group["n"] for name, group in task["groups"].items()} == {"a": 2, "b": 5}
    values = [group["metrics"]["accuracy"]["value"] for group in task["groups"].values()]
    assert task["metrics"]["accuracy"]["value"] == pytest.approx(sum(values) / 2)


@pytest.mark.parametrize("draw", ["first", "per_item_5", "stream_lm_eval", "stream_3"])
def test_shots_from_another_file(tmp_path: Path, draw: str) -> None:
    """The shots stand before the question as the file's own would, and the questions themselves are never among them."""
    others = [{**row, "question": f"other {i}"} for i, row in enumerate(ROWS)]
    path = write(tmp_path, PLAIN + f"fewshot_data: others.jsonl\nfewshot_draw: {draw}\nitem_order: file\n")
    (tmp_path / "others.jsonl").write_text("".join(json.dumps(row) + "\n" for row in others))
    [task] = read_suite([str(path)]).tasks
    assert task.profile.fewshot_pool == "other_file"
    prompts = render(task, read_examples(task, tmp_path))
    shots = [f"Question: other {i}\nAnswer: {ROWS[i]['options'][ROWS[i]['answer']]}" for i in range(7)]
    stream = random.Random(1234 if draw == "stream_lm_eval" else 3)
    for i, prompt in enumerate(prompts):
        drawn = [0, 1] if draw == "first" else random.Random(5 + i).sample(range(7), 2)
        drawn = stream.sample(range(7), 2) if draw.startswith("stream") else drawn
        assert prompt.preamble == "\n\n".join(shots[j] for j in drawn)
        assert prompt.contexts[0] == f"\n\nQuestion: {ROWS[i]['question']}\nAnswer: "


def test_groups_make_composites(miron: Any, place: Place, tmp_path: Path) -> None:
    """Weights and baselines by hand: (a - b) / (1 - b) of each task where a group is rescaled."""
    folder = tmp_path / "tasks"
    write(folder)
    write(
        folder,
        PLAIN.replace("task: hills", "task: more/hills").replace("baseline: 0.333", "baseline: 0.5"),
        name="more",
    )
    groups = {
        "plain": {"of": ["hills", "more/hills"]},
        "centered": {"of": ["hills", "more/hills"], "weights": {"hills": 1, "more/hills": 3}, "rescaled": True},
        "both": {"of": ["plain", "centered"], "weights": "by_size"},
    }
    (folder / "groups.yaml").write_text(json.dumps({"groups": groups}))
    results = run(miron, place.model, tmp_path / "out", f"--task_path={folder}")
    one, more = (results["tasks"][f"own/{name}"]["metrics"]["accuracy"] for name in ("hills", "more/hills"))
    expected = {
        "plain": (one["value"] + more["value"]) / 2,
        "centered": (one["value"] - 0.333) / 0.667 / 4 + 3 * (more["value"] - 0.5) / 0.5 / 4,
    }
    expected["both"] = (expected["plain"] + expected["centered"]) / 2
    composites = results["suites"]["own"]["composites"]
    assert {name: composite["value"] for name, composite in composites.items()} == pytest.approx(expected, rel=FLOAT64)
    stderr = math.hypot(one["stderr"] / 0.667 / 4, 3 * more["stderr"] / 0.5 / 4)
    assert composites["centered"]["stderr"] == pytest.approx(stderr, rel=FLOAT64)


def test_tasks_in_a_python_file(miron: Any, place: Place, tmp_path: Path) -> None:
    write(tmp_path / "tasks")
    (tmp_path / "tasks" / "mine.py").write_text(PYTHON.format(data=tmp_path / "tasks" / "hills.jsonl"))
    paths = f"{tmp_path / 'tasks'},{tmp_path / 'tasks' / 'mine.py'}"
    results = run(miron, place.model, tmp_path / "out", f"--task_path={paths}")
    assert set(results["tasks"]) == {"own/hills", "own/mine"}
    assert results["tasks"]["own/mine"]["n"] == 7
    for content, sentence in (("1 / 0", "cannot be run (ZeroDivisionError: division by zero)"), ("", "holds no Task")):
        (tmp_path / "wrong.py").write_text(content)
        ran = miron(
            "eval", f"--model={place.model}", f"--output={tmp_path / 'o'}", f"--task_path={tmp_path / 'wrong.py'}"
        )
        assert (ran.status, sentence in ran.err) == (2, True), ran.err


PYTHON = """\
from dataclasses import replace

from miron_jax.definitions.records import DataFile, Example
from miron_jax.tasks import core

TASK = replace(
    core.SUITE.tasks[3],
    name="mine",
    file=DataFile({data!r}, None, None),
    parse=lambda fields, row: Example(row, (fields["question"],), tuple(fields["options"]), fields["answer"]),
    profile=replace(core.SUITE.tasks[3].profile, num_fewshot=1),
)
""".replace("{data!r}", '"{data}"')


class _Entry:
    """An entry point of an installed package."""

    name, value, dist = "theirs", "theirs:SUITE", None

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded

    def load(self) -> Any:
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded


def test_suites_of_other_packages_are_found_by_their_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = replace(SUITES["core"], name="theirs")

    def installed(loaded: Any) -> dict[str, Any]:
        monkeypatch.setattr(
            registry, "entry_points", lambda group: [_Entry(loaded)] if group == "miron_jax.tasks" else []
        )
        return registry.installed_suites({"core"})

    assert installed(suite) == installed([suite]) == {"theirs": suite}
    for wrong, sentence in (
        (3, "is a int, expected a Suite"),
        (replace(suite, name="core"), "there is a suite core already"),
        (ImportError("no module"), r"cannot be loaded \(ImportError: no module\)"),
    ):
        with pytest.raises(InputError, match=sentence):
            installed(wrong)


PROGRAM = {
    "task": "add", "kind": "program", "data": "programs.jsonl", "prompt": "start", "entry_point": "name",
    "inputs": "arguments", "outputs": "values", "solution": "rest", "num_samples": 2,
}  # fmt: skip


def test_a_task_of_programs(miron: Any, place: Place, tmp_path: Path) -> None:
    row = {
        "start": "def add(a, b):\n",
        "name": "add",
        "arguments": ["1, 2"],
        "values": ["3"],
        "rest": "    return a + b\n",
    }
    (tmp_path / "programs.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "add.yaml").write_text(json.dumps(PROGRAM))
    flags = (f"--model={place.model}", f"--output={tmp_path / 'out'}", f"--task_path={tmp_path / 'add.yaml'}")
    ran = miron("eval", *flags)
    assert ran.status == 2
    assert "own/add runs programs that the model writes: add --allow_code_execution" in ran.err
    assert shutil.which("bwrap"), "the sandbox needs bubblewrap, as BUILD_NOTES say"
    ran = miron("eval", *flags, "--allow_code_execution", "--compilation_cache=")
    assert ran.status == 0, ran.err
    task = json.loads((tmp_path / "out" / "results.json").read_text())["tasks"]["own/add"]
    assert (task["n"], task["ceiling"], task["profile"]["num_samples"]) == (1, {"passed": 1, "n": 1}, 2)


def test_data_of_the_hub(miron: Any, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the cache is read; what is not, without a network, is one sentence."""
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path / "cache"))
    text = PLAIN.replace("hills.jsonl", "{hub: us/hills, config: default, split: test}")
    path = write(tmp_path / "tasks", text)
    flags = (f"--model={place.model}", f"--output={tmp_path / 'out'}", f"--task_path={path}")
    ran = miron("eval", *flags)
    assert (ran.status, ran.err.count("miron-jax: ")) == (2, 1)
    assert "nor to be had from us/hills on the Hugging Face hub" in ran.err
    folder = tmp_path / "cache" / "own@refs-convert-parquet" / "us--hills-default--test--+.parquet" / "default" / "test"
    folder.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(ROWS[:4]), folder / "0000.parquet")
    parquet.write_table(pa.Table.from_pylist(ROWS[4:]), folder / "0001.parquet")
    results = run(miron, place.model, tmp_path / "out", f"--task_path={path}")
    assert results["tasks"]["own/hills"]["n"] == 7
    run(miron, place.model, tmp_path / "file", f"--task_path={write(tmp_path / 'plain')}")
    assert logprobs(tmp_path / "out", "own/hills") == logprobs(tmp_path / "file", "own/hills")


def test_the_hash_of_a_task_covers_all_that_its_prompts_hang_on(tmp_path: Path) -> None:
    """A step that is scored already is left out by this hash: another template, shot or group makes another one."""
    path = write(tmp_path, PLAIN + "fewshot_data: others.jsonl\n")
    (tmp_path / "others.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    groups = tmp_path / "groups.yaml"
    groups.write_text("groups: {all: {of: [hills]}}")

    def found() -> str | None:
        [task] = read_suite([str(path), str(groups)]).tasks
        return data_state(task, tmp_path).git_blob_sha1

    hashes = [found(), found()]
    for file, change in ((path, "# x\n"), (tmp_path / "others.jsonl", json.dumps(ROWS[0]) + "\n"), (groups, "\n# y\n")):
        file.write_text(file.read_text() + change)
        hashes.append(found())
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


def test_check_reads_and_describe_shows(miron: Any, place: Place, tmp_path: Path) -> None:
    path = write(tmp_path / "tasks", PLAIN + "licence: CC0\ncitation: us\n", [*ROWS, ROWS[0]])
    ran = miron("tasks", f"--check={path}")
    assert ran.status == 0, ran.err
    assert ran.out == "own/hills: multiple_choice, 8 examples, nothing is wrong\n"
    ran = miron("tasks", "--describe=own/hills", f"--task_path={path}", f"--model={place.model}")
    assert ran.status == 0, ran.err
    for line in (
        "licence of the data: CC0", "cite: us", "baselines: random 0.333", "    num_fewshot: 2",
        "repeated examples: 1 of 8 are there before", "requests: 24, the longest of ",
    ):  # fmt: skip
        assert line in ran.out
    requests = [line for line in ran.out.splitlines() if line.startswith("  request ")]
    assert len(requests) == 3
    assert sum("(right)" in line for line in requests) == 1
    assert all(line.endswith("⟧") and line.count("⟦") == 1 for line in requests)
    wrong = write(tmp_path / "wrong", PLAIN.replace("gold: answer", "gold: n"))
    ran = miron("tasks", f"--check={wrong}")
    assert (ran.status, "line 4: gold is 3" in ran.err) == (2, True)
    (wrong.parent / "few.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    write(wrong.parent, PLAIN + "fewshot_data: few.jsonl\n")
    ran = miron("tasks", f"--check={wrong}")
    assert (ran.status, "holds 1 examples, expected at least 2 to sample 2 before each question" in ran.err) == (
        2,
        True,
    )


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ({2024: {"of": ["hills"]}}, "group 2024: expected letters, digits"),
        ({"partial_a": {"of": ["hills"]}}, "that do not begin with partial_"),
        ({"a": {"of": ["hills"], "rescaled": "no"}}, "rescaled is 'no', expected true or false"),
        ({"a": {"of": ["hills"]}, "b": {"of": ["a"], "rescaled": True}}, "is rescaled, but a is a group"),
        ({"a": {"of": ["hills"], "weights": {"hills": 10**17}}}, "expected equal, by_size or a number each, up to 1e"),
        ([1], "expected names that no other file has"),
    ],
)
def test_wrong_groups_are_one_sentence(tmp_path: Path, groups: Any, sentence: str) -> None:
    path = write(tmp_path)
    (tmp_path / "groups.yaml").write_text(yaml.safe_dump({"groups": groups}))
    with pytest.raises(InputError, match=sentence):
        read_suite([str(path), str(tmp_path / "groups.yaml")])


@pytest.mark.parametrize("names", ["miron-gen/en", "gauntlet-programming/human_eval", "eval-ua-tion-gen-text/lmes_low"])
def test_every_kind_of_task_is_described(miron: Any, names: str, shared_data: Path) -> None:
    data = f"--data_dir=gauntlet-programming={shared_data / 'eval_bundle'}"
    ran = miron("tasks", f"--describe={names}", data, "--items_per_category=3", "--max_length=512")
    assert ran.status == 0, ran.err
    assert "rules:" in ran.out
    assert "first" in ran.out
