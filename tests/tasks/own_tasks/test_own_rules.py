"""Wrong files of tasks of a user's own are one sentence; what the command lists, checks and describes of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from miron_jax.definitions.data_files import json_rows, read_examples
from miron_jax.errors import InputError
from miron_jax.tasks import registry
from miron_jax.tasks.own_tasks.templates import value_of
from miron_jax.tasks.own_tasks.yaml_task import read_suite
from miron_jax.tasks.registry import SUITES
from tests.support.own_tasks import PLAIN, ROWS, write


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("task: hills", "task: ../hills"), "task is '../hills', expected letters"),
        (("baseline: 0.333", "normalizer: median"), "normalizer is 'median', expected one of mean, exp_mean, sum, char"),
        (("baseline: 0.333", "fewshot_draw: first"), "fewshot_draw is 'first', expected per_item_SEED, stream_SEED or"),
        (("baseline: 0.333", "categories: macro"), "categories is macro, but no category is taken"),
        (("baseline: 0.333", "fewshot_data: no.csv"), "fewshot_data names"),
        (("data: hills.jsonl", "data: {hub: us/x}"), "data is {'hub': 'us/x'}, expected {hub: owner/name, config: NAME"),
        (("data: hills.jsonl", "data: {hub: us/x, files: ../x}"), "leads out of the data set"),
        ((PLAIN, "groups: {a: {of: [b]}}"), "there are groups and no task"),
        (("baseline: 0.333", "span: continuation"), "span is continuation, which goes with boundary: segments"),
        (("baseline: 0.333", "shots: 3"), "hills.yaml: key 'shots' is not known, did you mean 'before_shots'"),
        (("gold: answer", "golden: answer"), "key 'golden' is not known, did you mean 'gold'?"),
        (("gold: answer", ""), "gold is None, expected a field's name or a template"),
        (("choices: options", "answer: options"), "key 'answer' is not of a task of kind choice"),
        (("choices: options", "choices: [hot]"), "choices is ['hot'], expected a field's name or a template or a list"),
        (("hills.jsonl", "hill.jsonl"), "and there is no such file"),
        (("hills.jsonl", "hills.xlsx"), "expected a file that ends in .jsonl, .json, .csv, .tsv, .parquet"),
        (("num_fewshot: 2", "num_fewshot: many"), "num_fewshot is 'many', expected a whole number"),
        (("baseline: 0.333", "baseline: 25"), "baseline is 25, expected the accuracy of chance"),
        (("baseline: 0.333", "rules: mmlu"), "rules is 'mmlu', expected one of core, gauntlet, lm_eval"),
        (("{{question}}", "{{question"), "question: 'Question: {{question' is no template"),
        (("{{question}}", "{{query}}"), "line 1: the template 'Question: {{query}}' cannot be filled ('query' is undef"),
        (("gold: answer", "gold: label"), "line 1: field 'label' is missing, found question, options, answer, n"),
        (("gold: answer", "gold: n"), "line 4: gold is 3, expected one of the choices"),
        (("choices: options", "choices: question"), "line 1: choices are 'the green hill is', expected a list"),
        ((PLAIN, "- task"), "found ['task'], expected keys such as task, data, question"),
        ((PLAIN, "task: &a [*a]"), "is no yaml"),
    ],
)  # fmt: skip
def test_wrong_files_are_one_sentence(change: tuple[str, str], sentence: str, tmp_path: Path) -> None:
    path = write(tmp_path / "tasks", PLAIN.replace(*change))
    with pytest.raises(InputError) as error:
        [read_examples(task, tmp_path) for task in read_suite([str(path)]).tasks]
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


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


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("question,answer,answer\na,b,c\n", "two columns have one name"),
        ("question,answer\na\n", "row 1 has another number of values than the 2 columns"),
        ("", "is empty"),
    ],
)
def test_tables_that_are_wrong(table: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        json_rows(table.encode(), Path("a.csv"), "own/a")


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}", "{{ cycler.__init__.__globals__ }}", "{{ 'a' * 100000000 }}", "{{ 9 ** 999999 }}",
        "{{ '%1000000000d' % 1 }}", "{{ range(100000000) | list }}", "{{ question.format_map }}{{ question.__len__() }}",
        "{% include '/etc/passwd' %}", "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
        "{% for a in question %}{% for b in question %}{% for c in question %}x{% endfor %}{% endfor %}{% endfor %}",
        "{{ question.ljust(1000000000) }}", "{{ question | center(1000000000) }}", "{{ [1, 2] | random }}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "{{ self.__init__ }}", "{{ question.encode().decode() }}",
    ],
)  # fmt: skip
def test_templates_run_no_code_and_end(template: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be filled|is no template|a template with more"):
        value_of(template)({"question": "a"})


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


# ------------------------------------------------------------------------------------------------------- the command


@pytest.mark.slow
def test_the_command_names_what_is_wrong_before_it_loads_a_model(
    miron: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path / "cache"))
    program = {"task": "add", "kind": "program", "data": "hills.jsonl", "prompt": "question", "entry_point": "question",
               "inputs": "options", "outputs": "options", "solution": "question"}  # fmt: skip
    for name, content in (("zero.py", "1 / 0"), ("none.py", ""), ("add.yaml", json.dumps(program))):
        (tmp_path / name).write_text(content)
    write(tmp_path / "data")
    (tmp_path / "hills.jsonl").write_text((tmp_path / "data" / "hills.jsonl").read_text())
    (tmp_path / "empty").mkdir()
    hub = PLAIN.replace("hills.jsonl", "{hub: us/hills, config: default, split: test}")
    for paths, sentence in (
        (tmp_path / "absent.yaml", "absent.yaml cannot be read (No such file or directory)"),
        (tmp_path / "empty", "the folder has no .yaml file"),
        (f"{write(tmp_path / 'a')},{write(tmp_path / 'b')}", "has a task own/hills too: give one another name"),
        (tmp_path / "zero.py", "cannot be run (ZeroDivisionError: division by zero)"),
        (tmp_path / "none.py", "holds no Task"),
        (tmp_path / "add.yaml", "own/add runs programs that the model writes: add --allow_code_execution"),
        (write(tmp_path / "hub", hub), "nor to be had from us/hills on the Hugging Face hub"),
        (write(tmp_path / "gold", PLAIN.replace("gold: answer", "gold: n")), "line 4: gold is 3, expected one of"),
        (
            write(tmp_path / "many", PLAIN.replace("num_fewshot: 2", "num_fewshot: 7")),
            "holds 7 examples, expected at least 8 to sample 7 others before each question: ask for fewer",
        ),
    ):
        ran = miron("eval", "--model=demo", f"--output={tmp_path / 'out'}", f"--task_path={paths}")
        assert (ran.status, ran.err.count("miron-jax: ")) == (2, 1), ran.err
        assert sentence in ran.err
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_check_reads_and_describe_shows(miron: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "tasks", PLAIN + "licence: CC0\ncitation: us\n", [*ROWS, ROWS[0]])
    ran = miron("tasks", f"--task_path={path}")
    assert ran.status == 0, ran.err
    assert "own/hills" in ran.out
    ran = miron("tasks", f"--check={path}")
    assert ran.status == 0, ran.err
    assert ran.out == "own/hills: multiple_choice, 8 examples, nothing is wrong\n"
    ran = miron("tasks", "--describe=own/hills", f"--task_path={path}", "--model=demo")
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
    assert ran.status == 2
    assert "holds 1 examples, expected at least 2 to sample 2 before each question" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize("names", ["miron-gen/en", "gauntlet-programming/human_eval", "eval-ua-tion-gen-text/lmes_low"])
def test_every_kind_of_task_is_described(miron: Any, names: str, shared_data: Path) -> None:
    data = f"--data_dir=gauntlet-programming={shared_data / 'eval_bundle'}"
    ran = miron("tasks", f"--describe={names}", data, "--items_per_category=3", "--max_length=512")
    assert ran.status == 0, ran.err
    assert "rules:" in ran.out
    assert "first" in ran.out
