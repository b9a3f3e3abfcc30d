"""Tasks of a user's own in YAML: a few lines make one, rules are those of the suites, wrong files are one sentence."""

import csv
import importlib.util
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from miron_jax.definitions.data_files import json_rows
from miron_jax.errors import InputError
from miron_jax.tasks.own_tasks.templates import value_of
from miron_jax.tasks.own_tasks.yaml_task import read_suite
from miron_jax.tasks.registry import SUITES
from tests.support.command import Place, run, samples
from tests.support.own_tasks import PLAIN, ROWS, logprobs, write
from tests.support.tolerances import CONTINUATION

pytestmark = pytest.mark.slow


def test_eight_lines_make_a_task(miron: Any, place: Place, tmp_path: Path) -> None:
    path = write(tmp_path / "tasks")
    results = run(miron, place.model, tmp_path / "out", f"--task_path={path}")
    task = results["tasks"]["own/hills"]
    assert (task["n"], task["baselines"]["random"]) == (7, 0.333)
    assert task["profile"]["protocol"] == "core (nanochat)"
    found = samples(tmp_path / "out", "own/hills")
    assert sorted(sample["row"] for sample in found) == list(range(7))
    assert all(sample["gold"] == ROWS[sample["row"]]["answer"] for sample in found)
    listed = miron("tasks", f"--task_path={path}")
    assert listed.status == 0, listed.err
    assert "own/hills" in listed.out


def test_every_format_holds_the_same_records(miron: Any, place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    text = PLAIN.replace("choices: options", 'choices: ["hot", "cold {{\'rain\'}}", "small"]')
    write(folder, text)
    (folder / "hills.json").write_text(json.dumps(ROWS))
    flat = [{**row, "options": "-"} for row in ROWS]
    for suffix, delimiter in (("csv", ","), ("tsv", "\t")):
        with (folder / f"hills.{suffix}").open("w", newline="") as file:
            table = csv.DictWriter(file, list(flat[0]), delimiter=delimiter)
            table.writeheader()
            table.writerows(flat)
    parquet.write_table(pa.Table.from_pylist(ROWS), folder / "hills.parquet")
    for suffix in ("json", "csv", "tsv", "parquet"):
        write(
            folder,
            text.replace("hills.jsonl", f"hills.{suffix}").replace("task: hills", f"task: {suffix}"),
            name=suffix,
        )
    run(miron, place.model, tmp_path / "out", f"--task_path={folder}", "--tasks=own")
    expected = logprobs(tmp_path / "out", "own/hills")
    for suffix in ("json", "csv", "tsv", "parquet"):
        assert logprobs(tmp_path / "out", f"own/{suffix}") == expected


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


def test_rules_of_core_are_those_of_core(miron: Any, place: Place, tmp_path: Path) -> None:
    """Choices and continuations of a suite's own file, by its rules: the same scores."""
    data = place.data / "eval_data"
    choice = (
        f'{{task: easy, data: "{data}/world_knowledge/arc_easy.jsonl", question: query, choices: choices, gold: gold'
    )
    (tmp_path / "easy.yaml").write_text(choice + ', delimiter: "\\nAnswer: ", num_fewshot: 10}')
    lambada = f'{{task: lambada, kind: continuation, data: "{data}/language_understanding/lambada_openai.jsonl"'
    (tmp_path / "lambada.yaml").write_text(lambada + ", question: context, answer: continuation}")
    flags = (f"--task_path={tmp_path}", f"--data_dir={place.data}", "--allow_changed_data")
    results = run(miron, place.model, tmp_path / "out", *flags, "--tasks=own,core/arc_easy,core/lambada_openai")
    for own, core in (("own/easy", "core/arc_easy"), ("own/lambada", "core/lambada_openai")):
        assert logprobs(tmp_path / "out", own) == logprobs(tmp_path / "out", core)
        assert results["tasks"][own]["metrics"] == results["tasks"][core]["metrics"]


def test_rules_of_the_gauntlet_are_those_of_the_gauntlet(miron: Any, place: Place, tmp_path: Path) -> None:
    profile: Any = next(task.profile for task in SUITES["gauntlet"].tasks if task.name == "gauntlet/arc_easy")
    rows = [
        json.loads(line) for line in (place.data / "eval_data/world_knowledge/arc_easy.jsonl").read_text().splitlines()
    ]
    rows = [{**row, "query": f"  {row['query']} \n"} for row in rows]  # texts are stripped, those in lists are not
    for folder in ("own", "data/eval_data/world_knowledge"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "arc_easy.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = {
        "task": "easy", "data": "arc_easy.jsonl", "question": "query", "choices": "choices", "gold": "gold",
        "rules": "gauntlet", "delimiter": profile.delimiter, "num_fewshot": profile.num_fewshot,
        "before_question": profile.prelimiter, "before_shots": profile.prompt_string,
    }  # fmt: skip
    (tmp_path / "own" / "easy.yaml").write_text(json.dumps(own))
    flags = (f"--task_path={tmp_path / 'own'}", f"--data_dir={tmp_path / 'data'}", "--allow_changed_data")
    results = run(miron, place.model, tmp_path / "out", *flags, "--tasks=own,gauntlet/arc_easy")
    assert logprobs(tmp_path / "out", "own/easy") == logprobs(tmp_path / "out", "gauntlet/arc_easy")
    assert results["tasks"]["own/easy"]["metrics"] == results["tasks"]["gauntlet/arc_easy"]["metrics"]


@pytest.mark.skipif(not importlib.util.find_spec("lm_eval"), reason="needs lm-eval, which the extra lm-eval installs")
def test_rules_of_lm_eval_are_those_of_lm_eval(miron: Any, place: Place, tmp_path: Path) -> None:
    """The same prompts, shots included, and the same sums and accuracies as lm-eval's own task of these records."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    from miron_jax.lm_eval import MironLM

    folder = tmp_path / "tasks"
    write(folder, PLAIN.replace("delimiter", "rules: lm_eval\ndelimiter").replace('"\\nAnswer: "', '" "'))
    run(miron, place.model, tmp_path / "out", f"--task_path={folder}")
    theirs = {
        "task": "hills", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(folder / "hills.jsonl")}},
        "test_split": "test", "fewshot_split": "test", "output_type": "multiple_choice", "num_fewshot": 2,
        "doc_to_text": "Question: {{question}}", "doc_to_choice": "{{options}}", "doc_to_target": "answer",
    }  # fmt: skip
    (tmp_path / "lm_eval.yaml").write_text(json.dumps(theirs))
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    evaluate: Any = lm_eval.simple_evaluate
    model = MironLM(str(place.model))
    expected = evaluate(model=model, tasks=["hills"], task_manager=manager, bootstrap_iters=0, log_samples=True)
    found = samples(tmp_path / "out", "own/hills")
    for sample, other in zip(found, expected["samples"]["hills"], strict=True):
        sums = [float(response[0][0]) for response in other["resps"]]
        assert [option["logprob"] for option in sample["options"]] == pytest.approx(sums, abs=CONTINUATION)
        assert sample["metrics"]["accuracy"] == other["acc"]


def test_a_task_that_writes(miron: Any, place: Place, tmp_path: Path) -> None:
    text = "task: write\nkind: generation\ndata: hills.jsonl\nquestion: question\nanswer: options\nextra_tokens: 2\n"
    path = write(tmp_path / "tasks", text)
    results = run(miron, place.model, tmp_path / "out", f"--task_path={path}", "--limit=3")
    assert results["tasks"]["own/write"]["n"] == 3
    assert all(sample["generated"] is not None for sample in samples(tmp_path / "out", "own/write"))


@pytest.mark.parametrize(
    ("value", "gold"),
    [(1, 1), ("1", 1), ("cold rain", 1), ("C", 2), (" B ", 1), (3, None), ("x", None), (True, None), (-1, None)],
)
def test_gold(value: Any, gold: int | None, tmp_path: Path) -> None:
    [task] = read_suite([str(write(tmp_path))]).tasks
    if gold is not None:
        assert task.parse({**ROWS[0], "answer": value}, 0).gold == gold
    else:
        with pytest.raises(ValueError, match=r"expected one of the choices, its letter, or its place from 0 to 2"):
            task.parse({**ROWS[0], "answer": value}, 0)


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
def test_wrong_files_are_one_sentence(
    change: tuple[str, str], sentence: str, miron: Any, place: Place, tmp_path: Path
) -> None:
    path = write(tmp_path / "tasks", PLAIN.replace(*change))
    ran = miron("eval", f"--model={place.model}", f"--output={tmp_path / 'out'}", f"--task_path={path}")
    assert ran.status == 2
    assert sentence in ran.err
    assert ran.err.count("miron-jax: ") == 1
    assert not (tmp_path / "out").exists()


def test_wrong_paths_and_names_that_clash(miron: Any, place: Place, tmp_path: Path) -> None:
    for paths, sentence in (
        (tmp_path / "absent.yaml", "absent.yaml cannot be read (No such file or directory)"),
        (tmp_path, "the folder has no .yaml file"),
        (f"{write(tmp_path / 'a')},{write(tmp_path / 'b')}", "has a task own/hills too: give one another name"),
    ):
        ran = miron("eval", f"--model={place.model}", f"--output={tmp_path / 'out'}", f"--task_path={paths}")
        assert (ran.status, sentence in ran.err) == (2, True), ran.err


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


def test_more_shots_than_examples(miron: Any, place: Place, tmp_path: Path) -> None:
    path = write(tmp_path / "tasks", PLAIN.replace("num_fewshot: 2", "num_fewshot: 7"))
    ran = miron("eval", f"--model={place.model}", f"--output={tmp_path / 'out'}", f"--task_path={path}")
    assert ran.status == 2
    assert "holds 7 examples, expected at least 8 to sample 7 others before each question: ask for fewer" in ran.err


def test_errors_name_the_file_before_a_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"hills.yaml: key 'shots' is not known, did you mean 'before_shots'"):
        read_suite([str(write(tmp_path, PLAIN + "shots: 3\n"))])


def test_templates_do_what_tasks_need() -> None:
    record = {"question": " Why? ", "labels": ["A", "B"], "texts": ["x", "y"], "n": 3}
    text = "{{question.strip()}}{% for l in labels %}\n{{l}}. {{texts[loop.index0]}}{% endfor %}"
    text += "\n{{n * 2}}{{labels | join('/')}}"
    assert value_of(text)(record) == "Why?\nA. x\nB. y\n6A/B"
    assert value_of("labels")(record) == ["A", "B"]
    assert value_of("a.b")({"a": {"b": 1}}) == 1
