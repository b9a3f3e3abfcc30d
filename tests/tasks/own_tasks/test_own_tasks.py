"""Tasks of a user's own: what their files say reaches prompts, rules and composites; a run scores them as the suites do."""

import csv
import importlib.util
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyarrow import parquet

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import data_state, read_examples
from miron_jax.definitions.records import Measured
from miron_jax.files.readers import JsonObject
from miron_jax.inputs import find_inputs
from miron_jax.prompting.prompts import Prompt, render
from miron_jax.report.output import write_results
from miron_jax.run import evaluate
from miron_jax.tasks.own_tasks.templates import value_of
from miron_jax.tasks.own_tasks.yaml_task import read_suite
from miron_jax.tasks.registry import SUITES
from tests.support.command import Place, samples
from tests.support.own_tasks import PLAIN, ROWS, logprobs, write
from tests.support.tolerances import CONTINUATION, FLOAT64


def prompts_of(path: Path) -> list[Prompt]:
    [task] = read_suite([str(path)]).tasks
    return render(task, read_examples(task, path.parent))


# ---------------------------------------------------------------------------------------------------- files to tasks


def test_templates_do_what_tasks_need() -> None:
    record = {"question": " Why? ", "labels": ["A", "B"], "texts": ["x", "y"], "n": 3}
    text = "{{question.strip()}}{% for l in labels %}\n{{l}}. {{texts[loop.index0]}}{% endfor %}"
    text += "\n{{n * 2}}{{labels | join('/')}}"
    assert value_of(text)(record) == "Why?\nA. x\nB. y\n6A/B"
    assert value_of("labels")(record) == ["A", "B"]
    assert value_of("a.b")({"a": {"b": 1}}) == 1


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


def test_a_space_stands_before_an_answer_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    text = PLAIN.replace('delimiter: "\\nAnswer: "\n', "").replace("num_fewshot: 2", "num_fewshot: 0")
    first = prompts_of(write(tmp_path, text))[0]
    row = ROWS[first.row]
    whole = [context + continuation for context, continuation in zip(first.contexts, first.continuations, strict=True)]
    assert whole == [f"Question: {row['question']} {option}" for option in row["options"]]


@pytest.mark.parametrize("draw", ["first", "per_item_5", "stream_lm_eval", "stream_3"])
def test_shots_from_another_file(tmp_path: Path, draw: str) -> None:
    """The shots stand before the question as the file's own would, and the questions themselves are never among them."""
    others = [{**row, "question": f"other {i}"} for i, row in enumerate(ROWS)]
    path = write(tmp_path, PLAIN + f"fewshot_data: others.jsonl\nfewshot_draw: {draw}\nitem_order: file\n")
    (tmp_path / "others.jsonl").write_text("".join(json.dumps(row) + "\n" for row in others))
    shots = [f"Question: other {i}\nAnswer: {ROWS[i]['options'][ROWS[i]['answer']]}" for i in range(7)]
    stream = random.Random(1234 if draw == "stream_lm_eval" else 3)
    for i, prompt in enumerate(prompts_of(path)):
        drawn = [0, 1] if draw == "first" else random.Random(5 + i).sample(range(7), 2)
        drawn = stream.sample(range(7), 2) if draw.startswith("stream") else drawn
        assert prompt.preamble == "\n\n".join(shots[j] for j in drawn)
        assert prompt.contexts[0] == f"\n\nQuestion: {ROWS[i]['question']}\nAnswer: "


def test_lm_evals_shots_never_include_the_question_itself(tmp_path: Path) -> None:
    """One stream samples one example more than are shown, and the question is left out."""
    stream = random.Random(1234)
    for prompt in prompts_of(write(tmp_path, PLAIN + "rules: lm_eval\n")):
        shown = [i for i in stream.sample(range(7), 3) if i != prompt.row][:2]
        words = [ROWS[i]["question"].split()[1] for i in shown]
        assert [part.split()[2] for part in prompt.preamble.split("\n\n") if part] == words


def test_the_hash_of_a_task_covers_all_that_its_prompts_hang_on(tmp_path: Path) -> None:
    """A step that is scored already is left out by this hash: another template, shot or group makes another one."""
    path = write(tmp_path, PLAIN + "fewshot_data: others.jsonl\n")
    (tmp_path / "others.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    groups = tmp_path / "groups.yaml"
    groups.write_text("groups: {all: {of: [hills]}}")

    def of_files() -> str | None:
        [task] = read_suite([str(path), str(groups)]).tasks
        return data_state(task, tmp_path).git_blob_sha1

    hashes = [of_files(), of_files()]
    for file, change in ((path, "# x\n"), (tmp_path / "others.jsonl", json.dumps(ROWS[0]) + "\n"), (groups, "\n# y\n")):
        file.write_text(file.read_text() + change)
        hashes.append(of_files())
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


GROUPS = {
    "plain": {"of": ["hills", "more/hills"]},
    "centered": {"of": ["hills", "more/hills"], "weights": {"hills": 1, "more/hills": 3}, "rescaled": True},
    "both": {"of": ["plain", "centered"], "weights": "by_size"},
}
MORE = PLAIN.replace("task: hills", "task: more/hills").replace("baseline: 0.333", "baseline: 0.5")


def by_hand(hills: float, more: float) -> dict[str, float]:
    """(a - b) / (1 - b) of each task where a group is rescaled; the group of both holds each task twice."""
    plain = (hills + more) / 2
    centered = (hills - 0.333) / 0.667 / 4 + 3 * (more - 0.5) / 0.5 / 4
    return {"plain": plain, "centered": centered, "both": (plain + centered) / 2}


def test_groups_make_composites(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, MORE, name="more")
    (tmp_path / "groups.yaml").write_text(json.dumps({"groups": GROUPS}))
    suite = read_suite([str(tmp_path)])
    composites = suite.composites({"own/hills": Measured(0.4, 7), "own/more/hills": Measured(0.8, 7)})
    assert {name: composite.value for name, composite in composites.items()} == pytest.approx(by_hand(0.4, 0.8))
    lacking = suite.composites({"own/hills": Measured(0.4, 7)})["both"]
    assert (lacking.value, lacking.missing) == (None, ("own/more/hills",))


# --------------------------------------------------------------------------------------------------------- one run

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
"""
RULES = {
    "normalizer": "char", "tie": "last", "span": "after_context", "bos": "never", "item_order": "shuffle_7",
    "fewshot_draw": "per_item_7",
}  # fmt: skip
PROGRAM = {
    "task": "add", "kind": "program", "data": "programs.jsonl", "prompt": "start", "entry_point": "name",
    "inputs": "arguments", "outputs": "values", "solution": "rest", "num_samples": 2, "extra_tokens": 4,
}  # fmt: skip
ADD = {
    "start": "def add(a, b):\n", "name": "add", "arguments": ["1, 2"], "values": ["3"], "rest": "    return a + b\n",
}  # fmt: skip
LISTED = PLAIN.replace("choices: options", 'choices: ["hot", "cold {{\'rain\'}}", "small"]')
FORMATS = ("json", "csv", "tsv", "parquet")


def named(text: str, name: str) -> str:
    return text.replace("task: hills", f"task: {name}")


def write_tasks(folder: Path, data: Path) -> None:
    """Tasks of every kind, of every format, and twins of tasks of CORE and the Gauntlet."""
    texts = {
        "hills": PLAIN,
        "more": MORE,
        "ruled": named(PLAIN, "ruled") + "".join(f"{key}: {rule}\n" for key, rule in RULES.items()),
        "halves": named(PLAIN.replace("num_fewshot: 2", "num_fewshot: 0"), "halves")
        + "category: half\ncategories: macro\n",
        "lm": named(PLAIN, "lm").replace("delimiter", "rules: lm_eval\ndelimiter").replace('"\\nAnswer: "', '" "'),
        "hub": named(PLAIN, "hub").replace("hills.jsonl", "{hub: us/hills, config: default, split: test}"),
        "write": "task: write\nkind: generation\ndata: hills.jsonl\nquestion: question\nanswer: options\nextra_tokens: 2\n",
        "listed": named(LISTED, "listed"),
        **{suffix: named(LISTED.replace("hills.jsonl", f"hills.{suffix}"), suffix) for suffix in FORMATS},
    }
    for name, text in texts.items():
        write(folder, text, [{**row, "half": "ab"[i > 2]} for i, row in enumerate(ROWS)], name)
    (folder / "hills.json").write_text(json.dumps(ROWS))
    flat = [{**row, "options": "-"} for row in ROWS]
    for suffix, delimiter in (("csv", ","), ("tsv", "\t")):
        with (folder / f"hills.{suffix}").open("w", newline="") as file:
            table = csv.DictWriter(file, list(flat[0]), delimiter=delimiter)
            table.writeheader()
            table.writerows(flat)
    parquet.write_table(pa.Table.from_pylist(ROWS), folder / "hills.parquet")
    (folder / "programs.jsonl").write_text(json.dumps(ADD) + "\n")
    gauntlet: Any = next(task.profile for task in SUITES["gauntlet"].tasks if task.name == "gauntlet/arc_easy")
    easy = {
        "data": f"{data}/eval_data/world_knowledge/arc_easy.jsonl", "question": "query", "choices": "choices",
        "gold": "gold",
    }  # fmt: skip
    lambada = f"{data}/eval_data/language_understanding/lambada_openai.jsonl"
    for name, fields in {
        "groups": {"groups": GROUPS},
        "add": PROGRAM,
        "easy": {"task": "easy", **easy, "delimiter": "\nAnswer: ", "num_fewshot": 10},
        "lambada": {
            "task": "lambada", "kind": "continuation", "data": lambada, "question": "context", "answer": "continuation",
        },
        "gauntlet": {
            "task": "gauntlet", **easy, "rules": "gauntlet", "delimiter": gauntlet.delimiter,
            "num_fewshot": gauntlet.num_fewshot, "before_question": gauntlet.prelimiter,
            "before_shots": gauntlet.prompt_string,
        },
    }.items():  # fmt: skip
        (folder / f"{name}.yaml").write_text(json.dumps(fields))
    (folder / "mine.py").write_text(PYTHON.replace("{data!r}", repr(str(folder / "hills.jsonl"))))


class Scored(NamedTuple):
    folder: Path  # of the tasks
    output: Path
    tasks: JsonObject
    composites: JsonObject


@pytest.fixture(scope="module")
def scored(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scored]:
    """All of these tasks, and those of the suites that some of them repeat, in one run."""
    top = tmp_path_factory.mktemp("own")
    easy = place.data / "eval_data" / "world_knowledge" / "arc_easy.jsonl"
    rows = [json.loads(line) for line in easy.read_text().splitlines()]
    spaced = [{**row, "query": f"  {row['query']} \n"} for row in rows]  # texts are stripped, those in lists are not
    easy.write_text("".join(json.dumps(row) + "\n" for row in spaced))
    write_tasks(top / "tasks", place.data)
    cached = top / "cache" / "own@refs-convert-parquet" / "us--hills-default--test--+.parquet" / "default" / "test"
    cached.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(ROWS[:4]), cached / "0000.parquet")
    parquet.write_table(pa.Table.from_pylist(ROWS[4:]), cached / "0001.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MIRON_JAX_DATA", str(top / "cache"))
        config = RunConfig(
            str(place.model),
            ("own", "core/arc_easy", "core/lambada_openai", "gauntlet/arc_easy"),
            data_dir=(("", str(place.data)),),
            task_path=(str(top / "tasks"), str(top / "tasks" / "mine.py")),
            output=str(top / "out"),
            allow_changed_data=True,
            allow_code_execution=True,
            allow_unsandboxed_code=True,
        )
        results = write_results(config, evaluate(config, find_inputs(config)), 1.0)
        yield Scored(top / "tasks", top / "out", results["tasks"], results["suites"]["own"]["composites"])


@pytest.mark.slow
def test_eight_lines_make_a_task(scored: Scored) -> None:
    task = scored.tasks["own/hills"]
    assert (task["n"], task["baselines"]["random"], task["profile"]["protocol"]) == (7, 0.333, "core (nanochat)")
    each = samples(scored.output, "own/hills")
    assert sorted(sample["row"] for sample in each) == list(range(7))
    assert all(sample["gold"] == ROWS[sample["row"]]["answer"] for sample in each)


@pytest.mark.slow
def test_rules_of_a_task_by_their_names(scored: Scored) -> None:
    """A rule that the file names stands in the place of its protocol's; results say which ran."""
    profile = scored.tasks["own/ruled"]["profile"]
    assert {key: profile[key] for key in RULES} == RULES
    order = list(range(7))
    random.Random(7).shuffle(order)
    assert [sample["row"] for sample in samples(scored.output, "own/ruled")] == order


@pytest.mark.slow
def test_categories_count_alike(scored: Scored) -> None:
    task = scored.tasks["own/halves"]
    assert {name: group["n"] for name, group in task["groups"].items()} == {"a": 3, "b": 4}
    of_groups = [group["metrics"]["accuracy"] for group in task["groups"].values()]
    accuracy = task["metrics"]["accuracy"]
    assert accuracy["value"] == pytest.approx(sum(group["value"] for group in of_groups) / 2)
    assert accuracy["stderr"] == pytest.approx(math.hypot(*(group["stderr"] for group in of_groups)) / 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_holds_the_same_records(scored: Scored, name: str) -> None:
    assert logprobs(scored.output, f"own/{name}") == logprobs(scored.output, "own/listed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "suite"),
    [
        ("own/easy", "core/arc_easy"),
        ("own/lambada", "core/lambada_openai"),
        ("own/gauntlet", "gauntlet/arc_easy"),
        ("own/hub", "own/hills"),
    ],
)
def test_rules_of_a_suite_are_those_of_the_suite(scored: Scored, own: str, suite: str) -> None:
    """Choices and continuations of a suite's own file, by its rules: the same scores.  So is a file of the hub."""
    assert logprobs(scored.output, own) == logprobs(scored.output, suite)
    assert scored.tasks[own]["metrics"] == scored.tasks[suite]["metrics"]


@pytest.mark.slow
def test_composites_of_a_run(scored: Scored) -> None:
    one, more = (scored.tasks[f"own/{name}"]["metrics"]["accuracy"] for name in ("hills", "more/hills"))
    values = {name: composite["value"] for name, composite in scored.composites.items()}
    assert values == pytest.approx(by_hand(one["value"], more["value"]), rel=FLOAT64)
    stderr = math.hypot(one["stderr"] / 0.667 / 4, 3 * more["stderr"] / 0.5 / 4)
    assert scored.composites["centered"]["stderr"] == pytest.approx(stderr, rel=FLOAT64)


@pytest.mark.slow
def test_other_kinds_of_tasks_run(scored: Scored) -> None:
    assert scored.tasks["own/mine"]["n"] == scored.tasks["own/write"]["n"] == 7
    assert all(sample["generated"] is not None for sample in samples(scored.output, "own/write"))
    task = scored.tasks["own/add"]
    assert (task["n"], task["ceiling"], task["profile"]["num_samples"]) == (1, {"passed": 1, "n": 1}, 2)


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("lm_eval"), reason='needs lm-eval: pip install "miron-jax[lm-eval]"')
def test_rules_of_lm_eval_are_those_of_lm_eval(scored: Scored, place: Place, tmp_path: Path) -> None:
    """The same prompts, shots included, and the same sums and accuracies as lm-eval's own task of these records."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    from miron_jax.lm_eval import MironLM

    data_files = {"test": str(scored.folder / "hills.jsonl")}
    theirs = {
        "task": "hills", "dataset_path": "json", "dataset_kwargs": {"data_files": data_files},
        "test_split": "test", "fewshot_split": "test", "output_type": "multiple_choice", "num_fewshot": 2,
        "doc_to_text": "Question: {{question}}", "doc_to_choice": "{{options}}", "doc_to_target": "answer",
    }  # fmt: skip
    (tmp_path / "lm_eval.yaml").write_text(json.dumps(theirs))
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    evaluate: Any = lm_eval.simple_evaluate
    model = MironLM(str(place.model))
    expected = evaluate(model=model, tasks=["hills"], task_manager=manager, bootstrap_iters=0, log_samples=True)
    for sample, other in zip(samples(scored.output, "own/lm"), expected["samples"]["hills"], strict=True):
        sums = [float(response[0][0]) for response in other["resps"]]
        assert [option["logprob"] for option in sample["options"]] == pytest.approx(sums, abs=CONTINUATION)
        assert sample["metrics"]["accuracy"] == other["acc"]
