"""Another number of few-shot examples than a task states: whose, under which name, and who refuses it."""

import json
from pathlib import Path

import pytest

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Measured
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import find_inputs, select_tasks
from miron_jax.prompting.prompts import render
from miron_jax.tasks.gauntlet.suite import AVERAGES
from tests.support.command import in_process

ROWS = [{"q": f"is {i} even", "c": ["yes", "no"], "a": i % 2} for i in range(9)]
YAML = "task: {name}\ndata: rows.jsonl\nquestion: q\nchoices: c\ngold: a\nrules: {rules}\nnum_fewshot: {shots}\n"


def write_tasks(folder: Path, *tasks: tuple[str, str, int]) -> tuple[str]:
    """(name, rules, shots) of each, and a group of all."""
    folder.mkdir()
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    for name, rules, shots in tasks:
        text = YAML.format(name=name, rules=rules, shots=shots)
        (folder / f"{name.replace('/', '_')}.yaml").write_text(text)
    members = ", ".join(name for name, *_ in tasks)
    (folder / "groups.yaml").write_text(f"groups:\n  all: {{of: [{members}]}}\n")
    return (str(folder),)


@pytest.mark.parametrize("rules", ["core", "gauntlet", "lm_eval"])
def test_the_prompts_are_those_of_a_task_that_states_the_number(rules: str, tmp_path: Path) -> None:
    stated = RunConfig("demo", ("own",), task_path=write_tasks(tmp_path / "three", ("t", rules, 3)))
    asked = RunConfig("demo", ("own/t",), task_path=write_tasks(tmp_path / "one", ("t", rules, 1)), num_fewshot=3)
    [expected], [source] = find_inputs(stated).sources, find_inputs(asked).sources
    assert render(source.task, source.examples) == render(expected.task, expected.examples)
    assert (expected.task.name, source.task.name) == ("own/t", "own/t/3-shot")
    assert find_inputs(asked).by_name == {"own/t/3-shot"}


def test_a_task_that_states_the_number_keeps_its_name() -> None:
    config = RunConfig("demo", ("gauntlet/arc_easy", "gauntlet/copa"), num_fewshot=0)
    [suite] = (selected := select_tasks(config)).suites
    assert selected.names == {"gauntlet/arc_easy/0-shot", "gauntlet/copa"}
    assert selected.names < {task.name for task in suite.tasks}
    shots = {task.name: task.profile.num_fewshot for task in selected.tasks}
    assert shots == {"gauntlet/arc_easy/0-shot": 0, "gauntlet/copa": 0}


def test_no_composite_takes_a_task_under_such_a_name() -> None:
    """All tasks of the Gauntlet with four shots: each average misses each of its tasks."""
    selected = select_tasks(RunConfig("demo", ("gauntlet",), num_fewshot=4))
    measured = {name: Measured(0.5, 100) for name in selected.names}
    composites = selected.suites[0].composites(measured)
    assert [name for name, each in composites.items() if each.value is not None] == []
    assert set(composites["core_average"].missing) == {
        task for name in AVERAGES.averages["core_average"] for task in AVERAGES.categories[name]
    }


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        (
            "core/arc_easy",
            "core/arc_easy is published with 10 few-shot examples by a fixed rule, and the numbers of core",
        ),
        ("core/copa", "core/copa is published with no few-shot examples by a fixed rule"),
        (
            "mera-v1.2/bps",
            "published with 1 few-shot examples by a fixed rule, and the numbers of mera-v1.2 are of those",
        ),
        ("mera-v1/rutie", "by a fixed rule, and the numbers of mera-v1 are of those alone"),
        ("eval-ua-tion", "by a fixed rule, and the numbers of eval-ua-tion are of those alone"),
        ("miron", "is a cloze task, which asks without few-shot examples"),
        ("gauntlet,gauntlet-programming", "is a program task, which asks without few-shot examples"),
    ],
)
def test_suites_of_a_fixed_draw_say_so(tasks: str, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        select_tasks(RunConfig("demo", tuple(tasks.split(",")), num_fewshot=2))
    assert str(refused.value).startswith("--num_fewshot=2: ")
    assert sentence in str(refused.value)
    suites = "own, own-gauntlet, gauntlet, gauntlet-cot-fix, gauntlet-fixed"
    assert str(refused.value).endswith(f"or choose tasks of {suites}")


def test_too_few_examples_and_two_of_one_name_are_refused(tmp_path: Path) -> None:
    """composer's draw would be content with eight; nothing is called nine shots that has eight."""
    paths = write_tasks(tmp_path / "tasks", ("t", "gauntlet", 1), ("t/3-shot", "gauntlet", 3))
    for tasks, shots, sentence in (
        ("own/t", 9, "own/t/9-shot: .* holds 9 examples, expected at least 10 to sample 9"),
        ("own", 3, "makes one task of several: name one of own/t, own/t/3-shot in --tasks"),
        ("own", 2, "makes one task of several: name one of own/t, own/t/3-shot"),
    ):
        config = RunConfig("demo", (tasks,), task_path=paths, num_fewshot=shots)
        with pytest.raises(InputError, match=sentence):
            find_inputs(config)
    [source] = find_inputs(RunConfig("demo", ("own/t",), task_path=paths, num_fewshot=3)).sources
    assert source.task.name == "own/t/3-shot"
    assert source.task.profile.num_fewshot == 3


@pytest.mark.slow
def test_a_run_says_the_number_in_its_names(tmp_path: Path) -> None:
    paths = write_tasks(tmp_path / "tasks", ("a", "core", 1), ("b", "core", 2))
    output = tmp_path / "out"
    flags = (f"--task_path={paths[0]}", "--num_fewshot=2", "--save_requests", "--results_format=lm_eval")
    ran = in_process("eval", "--model=demo", "--steps=latest", *flags, f"--output={output}", "--compilation_cache=")
    assert ran.status == 0, ran.err
    results = json.loads((output / "results.json").read_text())
    assert {name: task["profile"]["num_fewshot"] for name, task in results["tasks"].items()} == {
        "own/a/2-shot": 2, "own/b": 2
    }  # fmt: skip
    assert (results["config"]["num_fewshot"], results["suites"]["own"]["composites"]["all"]["value"]) == (2, None)
    assert results["suites"]["own"]["composites"]["all"]["missing"] == ["own/a"]
    assert len((output / "samples" / "own" / "a" / "2-shot.jsonl").read_text().splitlines()) == len(ROWS)
    again = in_process("eval", "--model=demo", "--steps=latest", f"--requests={output / 'requests'}",
                       f"--output={tmp_path / 'again'}", "--compilation_cache=")  # fmt: skip
    assert again.status == 0, again.err
    read = json.loads((tmp_path / "again" / "results.json").read_text())["tasks"]
    assert {name: task["n"] for name, task in read.items()} == {"requests/own_a_2-shot": 9, "requests/own_b": 9}
    other = in_process("eval", "--model=demo", "--steps=latest", flags[0], f"--output={output}", "--compilation_cache=")
    assert "holds another run: its num_fewshot is 2, now it is None" in other.err
