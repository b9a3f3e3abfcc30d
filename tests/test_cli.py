"""The command as its user meets it: a whole run on a tiny model, and one clear sentence for each kind of bad input."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jaxlib.version
import pytest
from absl import flags

from miron_jax import bench, cli
from miron_jax.cli import COMMANDS
from miron_jax.cli.flags import EVERY, OF_COMMAND
from miron_jax.config import SETTINGS, RunConfig
from miron_jax.errors import InputError
from miron_jax.tasks.mera.metrics import ETHICS
from tests.tiny_model import make_model, write_core_data

TASKS = "core/copa,core/arc_easy,core/winograd,core/lambada_openai"


class Ran(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def miron(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """miron("eval", "--limit=3") -> exit status and what was printed."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr("sys.argv", ["miron-jax", *arguments])
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        flags.FLAGS.unparse_flags()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return Ran(int(stopped.value.code or 0), captured.out, captured.err)

    return run


class Place(NamedTuple):
    model: Path
    data: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("cli")
    return Place(make_model(folder / "model"), write_core_data(folder / "data"))


def common(place: Place, output: Path, *more: str) -> list[str]:
    return [
        f"--model={place.model}", f"--data_dir={place.data}", f"--output={output}", f"--tasks={TASKS}",
        "--allow_changed_data", "--compilation_cache=", *more,
    ]  # fmt: skip


def finite_or_null(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(finite_or_null, value.values()))
    if isinstance(value, list):
        return all(map(finite_or_null, value))
    return not isinstance(value, float) or math.isfinite(value)


def test_a_whole_run(miron, place, tmp_path):
    ran = miron("eval", *common(place, tmp_path / "out", "--limit=12"))
    assert ran.status == 0, ran.err
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["schema"] == 1
    assert list(results["tasks"]) == ["core/arc_easy", "core/copa", "core/lambada_openai", "core/winograd"]
    assert finite_or_null(results)
    for name, task in results["tasks"].items():
        lines = [json.loads(line) for line in (tmp_path / "out" / "samples" / f"{name}.jsonl").read_text().splitlines()]
        assert [line["id"] for line in lines] == list(range(12))
        assert task["n"] == task["limit"] == 12
        accuracy = task["metrics"]["accuracy"]
        right = sum(line["correct"] for line in lines)
        assert accuracy["value"] == pytest.approx(right / 12)
        assert accuracy["stderr"] == pytest.approx(math.sqrt(right / 12 * (1 - right / 12) / 12))
        assert accuracy["ci95"][0] <= accuracy["value"] <= accuracy["ci95"][1]
        assert all(len(o["token_logprobs"]) == o["num_tokens"] for line in lines for o in line["options"])
        for line in lines:
            for option in line["options"]:
                assert option["logprob"] is None or option["logprob"] == pytest.approx(sum(option["token_logprobs"]))
    composites = results["suites"]["core"]["composites"]
    assert all(composite["value"] is None for composite in composites.values()), "changed data bear no suite's name"
    speed = results["speed"]
    assert speed["unique_tokens"] < speed["plain_tokens"]
    assert speed["unique_tokens"] <= speed["padded_tokens"]
    assert "core/arc_easy" in ran.out
    assert "not the published data" in ran.out


def write_gauntlet(folder: Path) -> list[str]:
    """Four benchmarks of the user's own, one of each kind, and the two yaml files; returns their flags."""
    lines: dict[str, list[dict[str, Any]]] = {
        "choices": [
            {"query": f"{i} sun", "choices": ["hot", "cold"], "gold": i % 2, "category": "ab"[i % 2]} for i in range(6)
        ],
        "schemas": [{"context_options": ["sun", "rain"], "continuation": "is hot", "gold": 0} for _ in range(3)],
        "texts": [{"context": f"the {i}", "continuation": "hill"} for i in range(4)],
        "questions": [
            {
                "context": f"how much is {i}?",
                "chain_of_thought": "it is",
                "answer": str(i),
                "aliases": ["(a"] * (i == 2),
            }
            for i in range(4)
        ],
    }
    kinds = ("multiple_choice", "schema", "language_modeling", "generation_task_with_answers")
    tasks: list[dict[str, Any]] = []
    for (label, rows), kind in zip(lines.items(), kinds, strict=True):
        (folder / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        tasks.append(
            {"label": label, "dataset_uri": f"{label}.jsonl", "num_fewshot": [1], "icl_task_type": kind}
            | ({"has_categories": True} if label == "choices" else {})
            | ({"cot_delimiter": " #### "} if label == "questions" else {})
        )
    benchmarks = [{"name": label, "num_fewshot": 1, "random_baseline": 0.0} for label in lines]
    (folder / "tasks.yaml").write_text(json.dumps({"icl_tasks": tasks}))  # JSON is yaml
    averages = {"categories": [{"name": "all", "benchmarks": benchmarks}]}
    (folder / "gauntlet.yaml").write_text(json.dumps({"eval_gauntlet": averages}))
    return [f"--icl_tasks={folder / 'tasks.yaml'}", f"--eval_gauntlet={folder / 'gauntlet.yaml'}"]


def test_humans_writes_a_baseline_and_its_labels(miron, tmp_path):
    path, out = tmp_path / "a.tsv", tmp_path / "out"
    lines = [
        "INPUT:formula\tOUTPUT:result\tASSIGNMENT:worker_id",
        *(f"1 + {k}\t{k + 1}\tw{w}" for k in (1, 2) for w in (1, 2, 3)),
    ]
    path.write_text("\n".join([*lines, "5 - 1\t3\tw1", ""]))
    ran = miron("humans", f"--annotations={path}", "--gold=arithmetic", f"--output={out}")
    assert ran.status == 0, ran.err
    found = json.loads((out / "humans.json").read_text())
    assert (found["a"]["accuracy"]["right"], found["a"]["accuracy"]["n"], found["items"]) == (2, 2, 3)
    labels = [json.loads(line) for line in (out / "human_labels.jsonl").read_text().splitlines()]
    assert labels == [{"INPUT:formula": "1 + 1", "label": "2"}, {"INPUT:formula": "1 + 2", "label": "3"}]
    labels = [json.loads(line) for line in (out / "human_labels_b.jsonl").read_text().splitlines()]
    assert labels == [
        {"INPUT:formula": "1 + 1", "label": "2", "origin": "one answer"},
        {"INPUT:formula": "1 + 2", "label": "3", "origin": "one answer"},
        {"INPUT:formula": "5 - 1", "label": "3", "origin": "one answer"},
    ]
    assert found["b"]["f1_macro"] == pytest.approx((1 + 2 / 3 + 0) / 3)  # of 2, 3 and 4
    assert found["b"]["mcc"] is None
    assert "Krippendorff" in ran.out
    header = [f"INPUT:{name}_{i}" for i in (1, 2, 3) for name in ("text", "actant_1", "actant_2", "question")]
    cells = [own for i in "123" for own in (f"t{i}", "he", "she", "Этично ли это?")]
    header += [f"OUTPUT:answer_{i}" for i in (1, 2, 3)] + ["ASSIGNMENT:worker_id"]
    lines = [";".join(header), *(";".join([*cells, "1", "0", "0", worker]) for worker in "abc"), ""]
    (tmp_path / "pool1.csv").write_text("\n".join(lines))
    right = [{"text": f"t{i}", "pair": ["he", "she"], **dict.fromkeys(ETHICS, str(int(i == 1)))} for i in (1, 2, 3)]
    (tmp_path / "data.json").write_text(json.dumps(right))
    flags = ("--project=ruethics", f"--annotations={tmp_path / 'pool1.csv'}", f"--gold={tmp_path / 'data.json'}")
    ran = miron("humans", *flags, f"--output={tmp_path / 'ethics'}")
    assert ran.status == 0, ran.err
    values = json.loads((tmp_path / "ethics" / "humans.json").read_text())["ethics"]
    told = {"mcc": {f"ethical.{name}": 1.0 for name in ETHICS}, "n": {"ethical": 3}, "without_gold": 0}
    assert values == {"A": told, "B": told}
    assert "utilitarianism" in ran.out
    for more, sentence in (
        ([], "humans wants --annotations"),
        ([f"--annotations={path}", "--worker_column=who"], "no column who"),
        ([f"--annotations={path}", "--gold=lsc"], "is no file and none of lcs, brackets, arithmetic"),
        ([f"--annotations={tmp_path / 'none.tsv'}"], "No such file"),
    ):
        ran = miron("humans", *more, f"--output={tmp_path / 'other'}")
        assert ran.status == 2
        assert sentence in ran.err
    assert not (tmp_path / "other").exists()


def test_bench_measures_the_engine_beside_itself_without_each_idea(miron, place, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "SQUARE_ON_CPU", 256)
    monkeypatch.setattr(bench, "SECONDS", 0.5)
    ran = miron("bench", *common(place, tmp_path / "out"))
    assert ran.status == 0, ran.err
    found = json.loads((tmp_path / "out" / "bench.json").read_text())
    engine, others = found["engine"], {own["name"].partition(":")[0]: own for own in found["ablations"]}
    assert set(others) == {"no gather", "one row length", "no packing", "no sharing", "neither"}
    assert engine["tokens"] == found["unique_tokens"] < others["no sharing"]["tokens"] <= found["plain_tokens"]
    assert others["no gather"]["places"] == engine["places"] <= others["no packing"]["places"]
    assert others["no packing"]["tokens"] == engine["tokens"]
    for layout in (engine, *others.values()):
        assert layout["seconds"] == pytest.approx(sum(bucket["seconds"] for bucket in layout["buckets"]))
        assert layout["share_of_peak"] * layout["seconds"] == pytest.approx(engine["share_of_peak"] * engine["seconds"])
    assert found["peak_bytes"] > 0
    assert "no sharing" in ran.out


def test_bench_of_texts_alone_is_refused(miron, place, tmp_path):
    (place.data / "eval_data" / "symbolic_problem_solving").mkdir(exist_ok=True, parents=True)
    lines = [{"context": "1+1=", "answer": "2"}] * 4
    path = place.data / "eval_data" / "symbolic_problem_solving" / "svamp.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags = [f"--model={place.model}", f"--data_dir={place.data}", f"--output={tmp_path / 'out'}"]
    ran = miron("bench", *flags, "--tasks=gauntlet/svamp", "--allow_changed_data", "--limit=2")
    assert ran.status == 2
    assert "generate texts" in ran.err


def test_a_gauntlet_of_ones_own(miron, place, tmp_path):
    flags = [*write_gauntlet(tmp_path), f"--data_dir={tmp_path}", f"--model={place.model}", "--compilation_cache="]
    ran = miron("eval", *flags, f"--output={tmp_path / 'out'}")
    assert ran.status == 0, ran.err
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert finite_or_null(results)
    tasks = results["tasks"]
    assert {name: task["n"] for name, task in tasks.items()} == {
        "own-gauntlet/choices": 6,
        "own-gauntlet/schemas": 3,
        "own-gauntlet/texts": 4,
        "own-gauntlet/questions": 4,
    }
    choices = tasks["own-gauntlet/choices"]
    assert {name: group["n"] for name, group in choices["groups"].items()} == {"a": 3, "b": 3}
    means = [group["metrics"]["accuracy"]["value"] for group in choices["groups"].values()]
    assert choices["metrics"]["accuracy"]["value"] == pytest.approx(sum(means) / 2)
    questions = tasks["own-gauntlet/questions"]
    assert questions["always_right_rows"] == [2]
    assert sum(questions["ended"].values()) == 4
    samples = (tmp_path / "out" / "samples" / "own-gauntlet" / "questions.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in samples]
    assert lines[2]["correct"] is True
    assert [line["accepted"] for line in lines] == [["0"], ["1"], ["2", "(a"], ["3"]]
    right = sum(line["correct"] for line in lines)
    assert questions["metrics"]["accuracy"]["value"] == pytest.approx(right / 4)
    composite = results["suites"]["own-gauntlet"]["composites"]["all"]
    accuracies = [task["metrics"]["accuracy"]["value"] for task in tasks.values()]
    assert composite["value"] == pytest.approx(sum(accuracies) / 4)
    errors = [task["metrics"]["accuracy"]["stderr"] for task in tasks.values()]
    assert composite["stderr"] == pytest.approx(math.hypot(*errors) / 4)
    assert "any text is right in row 2" in ran.out
    # Questions alone: nothing is scored, all is generated.
    alone = miron("eval", *flags, "--tasks=own-gauntlet/questions", "--limit=2", f"--output={tmp_path / 'alone'}")
    assert alone.status == 0, alone.err
    listed = miron("tasks", *flags[:3])
    assert listed.status == 0, listed.err
    assert miron("plan", *flags).status == 0
    assert "--icl_tasks" in miron("eval", flags[1], f"--model={place.model}").err


def test_programs_run_only_where_allowed(miron, place, tmp_path):
    rows = [
        {
            "task_id": f"t/{i}", "prompt": "def f(a):\n", "entry_point": "f", "language": "python",
            "test_inputs": ["(1,)"], "test_outputs": ["1"], "canonical_solution": "    return a\n" * (1 - i) + "    x" * i,
        }
        for i in range(2)
    ]  # fmt: skip
    (tmp_path / "programming").mkdir()
    (tmp_path / "programming" / "human_eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = [
        "--tasks=gauntlet-programming/human_eval", f"--data_dir={tmp_path}", f"--model={place.model}",
        "--compilation_cache=", "--allow_changed_data", f"--output={tmp_path / 'out'}",
    ]  # fmt: skip
    refused = miron("eval", *flags)
    assert refused.status == 2
    assert (
        "gauntlet-programming/human_eval runs programs that the model writes: add --allow_code_execution" in refused.err
    )
    assert not (tmp_path / "out").exists()
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap (apt-get install bubblewrap), which is absent here")
    ran = miron("eval", *flags, "--allow_code_execution")
    assert ran.status == 0, ran.err
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert finite_or_null(results)
    task = results["tasks"]["gauntlet-programming/human_eval"]
    assert (task["n"], task["ceiling"], task["sandboxed"]) == (2, {"passed": 1, "n": 2}, True)
    assert sum(task["ended"].values()) == 10  # five programs a problem
    lines = (tmp_path / "out/samples/gauntlet-programming/human_eval.jsonl").read_text().splitlines()
    samples = [json.loads(line) for line in lines]
    assert [sample["ceiling"] for sample in samples] == ["passed", "error"]
    texts = [program["text"] for sample in samples for program in sample["programs"]]
    assert len(set(texts)) > 5  # drawn apart, with seeds of their own
    assert "solutions pass 1 of 2" in ran.out
    again = miron("eval", *flags, "--allow_code_execution", "--token_budget=64")
    assert again.status == 0
    assert (tmp_path / "out/samples/gauntlet-programming/human_eval.jsonl").read_text().splitlines() == lines


def test_the_same_run_again_and_another_one(miron, place, tmp_path):
    first = miron("eval", *common(place, tmp_path / "out", "--limit=11"))
    before = json.loads((tmp_path / "out" / "results.json").read_text())["tasks"]
    again = miron("eval", *common(place, tmp_path / "out", "--limit=11"))
    assert (first.status, again.status) == (0, 0)
    assert json.loads((tmp_path / "out" / "results.json").read_text())["tasks"] == before
    other = miron("eval", *common(place, tmp_path / "out", "--limit=12"))
    assert other.status == 2
    assert "holds another run: its limit is 11, now it is 12" in other.err
    fresh = miron("eval", *common(place, tmp_path / "out", "--limit=11", "--noresume"))
    assert fresh.status == 2
    assert "not empty" in fresh.err


def test_flagfile_and_plan(miron, place, tmp_path):
    flagfile = tmp_path / "job.flags"
    flagfile.write_text("\n".join(common(place, tmp_path / "out", "--limit=12")))
    ran = miron("plan", f"--flagfile={flagfile}")
    assert ran.status == 0, ran.err
    assert "unique tokens" in ran.out
    assert "useful FLOPs" in ran.out
    assert not (tmp_path / "out").exists()


def test_tasks_lists_what_is_there(miron, place):
    ran = miron("tasks", f"--data_dir={place.data}")
    assert ran.status == 0
    row = {line.split()[1]: line for line in ran.out.splitlines() if "core/" in line}
    assert len(row) == 22
    assert "changed" in row["core/copa"]
    assert "missing" in row["core/squad"]


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        ("--limit=0", "--limit is 0, expected 1 or more"),
        ("--tasks=core/arc_eazy", "did you mean core/arc_easy"),
        ("--tasks=core/squad", "squad.jsonl is missing"),
        ("--dtype=float16", "dtype"),
        ("--model=/nowhere/at/all", "/nowhere/at/all"),
        ("--noallow_changed_data", "is not the published file"),
        ("--max_length=3", "raise --max_length"),
        ("--data_dir=/nowhere", "no CORE data there"),
        ("--data_dir=cor=/nowhere", "is no suite"),
        ("--data_dir=core=", "has no folder"),
        ("--data_dir=/a,/b", "is named twice"),
        ("--output=/dev/null/x", "expected a folder"),
        ("--unknown=1", "unknown"),
        ("stray", "is no flag"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(miron, place, tmp_path, flag, sentence):
    ran = miron("eval", *common(place, tmp_path / "out", flag))
    assert ran.status == 2
    assert sentence in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "no valid JSON"),
        ('{"query": "a", "choices": ["b", "c"]}', "'gold' (the right answer) is missing"),
        ('{"query": "a", "choices": ["b", "c"], "gold": 2}', "expected a whole number from 0 to 1"),
        ('{"query": "a", "choices": ["b", ""], "gold": 0}', "is empty"),
    ],
)
def test_a_bad_line_is_named(miron, place, tmp_path, line, sentence):
    data = write_core_data(tmp_path / "data")
    path = data / "eval_data/commonsense_reasoning/copa.jsonl"
    path.write_text(path.read_text() + line + "\n")
    ran = miron("eval", *common(place, tmp_path / "out", f"--data_dir={data}"))
    assert ran.status == 2
    assert f"{path}, line 15: " in ran.err
    assert sentence in ran.err
    assert not (tmp_path / "out").exists()


def test_an_output_that_holds_something_else(miron, place, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    ran = miron("eval", *common(place, tmp_path))
    assert ran.status == 2
    assert "holds no results.json" in ran.err
    (tmp_path / "results.json").write_text("{")
    assert "cannot be read" in miron("eval", *common(place, tmp_path)).err
    for content in ("[1]", '{"config": null}', '"x"'):
        (tmp_path / "results.json").write_text(content)
        assert "cannot be read" in miron("eval", *common(place, tmp_path)).err


def test_an_interrupt_says_so(miron, place, tmp_path, monkeypatch):
    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("miron_jax.cli.eval.command", stop)
    ran = miron("eval")
    assert ran.status == 75
    assert "run the same command again" in ran.err


def test_help_lists_the_flags():
    script = [sys.executable, "-c", "from miron_jax.cli import main; main()", "eval", "--help"]
    ran = subprocess.run(script, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "--data_dir" in ran.stdout
    assert "--max_length" in ran.stdout


def help_of(command: str) -> dict[str, list[str]]:
    """Heading of a topic -> its lines, of what `miron-jax COMMAND --help` prints."""
    script = [
        sys.executable,
        "-c",
        "import sys; from miron_jax.cli import main\ntry: main()\nfinally: print('jax' in sys.modules)",
    ]
    ran = subprocess.run([*script, command, "--help"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    text, _, has_jax = ran.stdout.rstrip().rpartition("\n")
    assert has_jax == "False", "help is quick"
    _, *topics = text.split("\n\n")
    return {lines[0].removesuffix(":"): lines[1:] for lines in (topic.splitlines() for topic in topics)}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_a_screen_a_topic_and_the_flags_of_its_command_alone(command: str) -> None:
    topics = help_of(command)
    if command in ("eval", "plan", "bench"):
        assert list(topics) == ["Model", "Tasks", "Output", "Devices", "Hosts", "Flag files"]
    assert all(len(lines) < 44 for lines in topics.values())
    assert all(len(line) <= 110 for lines in topics.values() for line in lines)
    named = re.findall(r"^  --(?:\[no\])?(\w+)", "\n".join(line for lines in topics.values() for line in lines), re.M)
    assert sorted(named) == sorted([*OF_COMMAND[command], "flagfile"])


def test_help_tells_defaults_and_values() -> None:
    topics = help_of("eval")
    tasks = "\n".join(topics["Tasks"])
    assert "--items_per_category=N\n      Items of each language and category of miron-gen. (default: 500)" in tasks
    assert "--human_baseline=A|B" in tasks
    assert "First n examples of each task, after the suite's own shuffle.\n" in tasks, "no default is none"
    assert "--[no]resume" in "\n".join(topics["Output"])
    assert "(default: 60)" in "\n".join(topics["Hosts"])


def test_every_flag_of_before_is_a_flag_of_a_command() -> None:
    """The flags of the command when one list served all of its parts."""
    before = (
        "model steps checkpoint param_map watch watch_timeout tensorboard wandb tokenizer tasks data_dir icl_tasks "
        "eval_gauntlet limit items_per_category output dtype attention sharding mesh distributed coordinator num_processes "
        "process_id peer_timeout max_length token_budget human_baseline detox_scorer seed export articles stories "
        "mask_number_words resume allow_code_execution allow_unsandboxed_code allow_changed_data compilation_cache "
        "annotations input_columns answer_column control_column worker_column project skills gold mera_submission "
        "check_submission robustness mera_version"
    )
    assert set(before.split()) == set(EVERY) == {name for names in OF_COMMAND.values() for name in names}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_refuses_every_flag_of_another(miron, command: str) -> None:
    for name in set(EVERY) - set(OF_COMMAND[command]):
        ran = miron(command, f"--{name}=1")
        others = ", ".join(other for other, names in OF_COMMAND.items() if name in names)
        assert ran.status == 2
        assert ran.err.startswith(f"miron-jax {command}: --{name} is a flag of {others}, not of {command}; "), ran.err
        assert ran.err.endswith(f"miron-jax {command} --help lists the flags\n")
        assert ran.err.count("\n") == 1
        assert not ran.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["tasks", "--limit=3"],
            "miron-jax tasks: --limit is a flag of eval, plan, bench, not of tasks; miron-jax tasks",
        ),
        (["tasks", "--noresume"], "miron-jax tasks: --resume is a flag of eval, plan, bench, not of tasks"),
        (["humans", "--input_column=a"], "humans: there is no flag --input_column; the nearest is --input_columns; "),
        (
            ["eval", "--limt", "3"],
            "miron-jax eval: there is no flag --limt; the nearest is --limit; miron-jax eval --help",
        ),
        (["report", "--mera_submision=x"], "the nearest is --mera_submission"),
        (["report", "--export=x"], "--export is a flag of tasks, not of report"),
        (["eval", "--mask_number_words"], "--mask_number_words is a flag of tasks, not of eval"),
        (["tasks", "--tasks=core"], "not of tasks; the nearest of tasks is --icl_tasks; "),
        (["eval", "--noresume=3"], "--noresume=3 does not take an argument; miron-jax eval --help"),
    ],
)
def test_an_unknown_flag_is_answered_with_the_nearest(miron, arguments: list[str], sentence: str) -> None:
    ran = miron(*arguments)
    assert ran.status == 2
    assert sentence in ran.err
    assert ran.err.count("\n") == 1


def test_a_flagfile_holds_flags_of_its_command(miron, tmp_path) -> None:
    path = tmp_path / "job.flags"
    path.write_text(f"--limit=3\n--data_dir={tmp_path}\n")
    ran = miron("tasks", f"--flagfile={path}")
    assert ran.status == 2
    assert (
        "--limit is a flag of eval, plan, bench, not of tasks (it stands in a --flagfile, which may hold only"
        in ran.err
    )
    assert miron("tasks", f"--flagfile={path}", "--undefok=limit").status == 0
    path.write_text("--distributd\n")
    assert "there is no flag --distributd (it stands in a --flagfile" in miron("eval", f"--flagfile={path}").err


def test_what_makes_another_run_and_what_names_files() -> None:
    """The two lists that stood beside RunConfig, before its fields said so themselves."""
    assert {name for name, own in SETTINGS.items() if not own.identity} == {
        "output", "resume", "token_budget", "sharding", "mesh", "steps", "watch", "watch_timeout", "tensorboard", "wandb",
    }  # fmt: skip
    assert {name for name, own in SETTINGS.items() if own.is_path} == {
        "model", "tokenizer", "data_dir", "icl_tasks", "eval_gauntlet", "output", "checkpoint", "param_map", "tensorboard",
    }  # fmt: skip


def test_a_flag_that_is_not_given_leaves_the_fields_default() -> None:
    code = """
from miron_jax.cli.parse import parse
from miron_jax.cli.run_config import run_config
from miron_jax.config import RunConfig

assert parse("plan", ["x"]) == ["x"]
assert run_config() == RunConfig(model="demo", tasks=("miron-gen",)), run_config()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"limit": 0}, "--limit is 0, expected 1 or more; leave the flag out for its default"),
        ({"items_per_category": 0}, "--items_per_category is 0, expected 1 or more"),
        ({"max_length": 1}, "--max_length is 1, expected 2 or more"),
        ({"token_budget": 0}, "--token_budget is 0, expected 1 or more"),
        ({"watch_timeout": 0.0}, "--watch_timeout is 0, expected seconds, more than 0"),
        ({"watch_timeout": math.nan}, "--watch_timeout is nan, expected seconds, more than 0"),
        ({"dtype": "float16"}, "--dtype is 'float16', expected one of float32, bfloat16"),
        ({"dtype": None}, "--dtype is None, expected one of float32, bfloat16"),
        ({"sharding": "one"}, "--sharding is 'one', expected one of pmap, mesh"),
        ({"attention": "hopper"}, "--attention is 'hopper', expected one of xla, cudnn, tpu"),
        ({"human_baseline": "C"}, "--human_baseline is 'C', expected one of A, B"),
    ],
)
def test_bounds_and_choices_come_from_the_declarations(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        RunConfig("demo", ("core",), **change)
    assert sentence in str(refused.value)


def test_the_command_sets_the_backend_flag_itself(place, tmp_path):
    # conftest sets it for this process; the command has to do so where nobody else did.
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    probe = (
        "import os, sys; from miron_jax import cli; sys.argv = ['miron-jax', *sys.argv[1:]]\n"
        "try: cli.main()\n"
        "finally: print('FLAGS', os.environ.get('XLA_FLAGS', ''))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", probe, "plan", *common(place, tmp_path / "out", "--limit=11")],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    applies = (0, 10, 2) <= tuple(map(int, jaxlib.version.__version__.split(".")[:3])) < (0, 12)
    assert ("--xla_cpu_experimental_ynn_fusion_type=individual_dot" in ran.stdout) == applies


def test_an_interrupted_write_is_taken_up_and_paths_may_be_spelled_anew(miron, place, tmp_path, monkeypatch):
    (tmp_path / "out" / "samples").mkdir(parents=True)
    (tmp_path / "out" / ".partial").mkdir()
    assert miron("eval", *common(place, tmp_path / "out", "--limit=11")).status == 0
    monkeypatch.chdir(tmp_path)
    model = os.path.relpath(place.model)
    again = miron("eval", *common(place, Path("out"), "--limit=11", f"--model={model}", "--token_budget=99"))
    assert again.status == 0, again.err
    assert not (tmp_path / "out" / ".partial").exists()


def test_a_tokenizer_of_another_model_is_refused(miron, place, tmp_path):
    make_model(tmp_path / "small", vocabulary=257)
    ran = miron("eval", *common(place, tmp_path / "out", f"--model={tmp_path / 'small'}"))
    assert ran.status == 2
    assert "vocabulary has 257" in ran.err
    assert not (tmp_path / "out").exists()


def test_no_command_and_a_wrong_one(miron):
    assert "usage" in miron().out
    assert miron("evaluate").status == 2


DROPPED = {
    "a destructor": """
class Dying:
    def __del__(self):
        send()

def action():
    Dying()
    time.sleep(60)
""",
    "a gc callback": """
import gc

def action():
    gc.callbacks.append(lambda phase, info: phase == "start" and not sent and send())
    gc.collect()
    time.sleep(60)
""",
}


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("where", DROPPED)
def test_a_signal_that_python_drops_is_not_lost(where: str, number: str) -> None:
    """What is raised there goes nowhere; the run went on to its end, deaf to further signals."""
    code = f"""
import os, signal, sys, time
from absl import flags
from miron_jax.cli.guard import guarded
sent = []

def send():
    sent.append(1)
    os.kill(os.getpid(), signal.{number})
    time.sleep(0.1)
{DROPPED[where]}
flags.FLAGS(["miron-jax"])
sys.exit(guarded(action, ["miron-jax"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 75, done.stderr
    assert done.stderr.startswith("miron-jax: interrupted; what is scored is kept")


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_waits_until_an_import_is_over(number: str, tmp_path: Path) -> None:
    """torch runs Python within C++ as it is imported, where an exception ends the process with -6."""
    (tmp_path / "library.py").write_text(f"""
import os, signal, time
os.kill(os.getpid(), signal.{number})
time.sleep(0.2)
print("imported", flush=True)
""")
    code = """
import sys
from absl import flags
from miron_jax.cli.guard import guarded

def action():
    import library
    for moment in range(50):
        library.time.sleep(0.1)
    print("the signal is lost")

flags.FLAGS(["miron-jax"])
sys.exit(guarded(action, ["miron-jax"]))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=50
    )
    assert (done.returncode, done.stdout) == (75, "imported\n"), done.stderr
    assert done.stderr.startswith("miron-jax: interrupted; what is scored is kept")


def test_a_second_interrupt_ends_at_once_with_a_sentence() -> None:
    code = """
import sys, time
from absl import flags
from miron_jax.cli.guard import guarded

def action():
    try:
        print("there", flush=True)
        time.sleep(60)
    finally:
        print("writes", flush=True)
        time.sleep(60)

flags.FLAGS(["miron-jax"])
sys.exit(guarded(action, ["miron-jax"]))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "writes\n"
        process.send_signal(signal.SIGTERM)  # ignored: what is finished is being written
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 75
        assert process.stderr is not None
        assert process.stderr.read() == "miron-jax: interrupted twice, ended at once; run the same command again\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_from_the_first_line_to_the_last_a_signal_has_its_status(number: signal.Signals, tmp_path: Path) -> None:
    """At moments from the first import to the end of the process: 75 and a sentence, or 0 once all is done."""
    code = """
import sys
from miron_jax import __main__
from miron_jax.runtime import signals
own = signals.install

def install():
    own()
    print("begun", flush=True)

signals.install = install
sys.argv = ["miron-jax", "tasks"]
__main__.main()
"""
    environment = {**os.environ, "MIRON_JAX_DATA": str(tmp_path)}

    def begin() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        return process

    start = time.monotonic()
    begin().communicate()
    whole = time.monotonic() - start
    statuses = []
    for moment in range(10):
        process = begin()
        time.sleep(whole * moment / 6)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        statuses.append(process.returncode)
        found = (process.returncode, "interrupted" in err, "Traceback" in err)
        assert found in ((75, True, False), (0, False, False)), err
        assert process.returncode or "core" in out
    assert {0, 75} == set(statuses)


def test_tasks_tells_what_every_benchmark_asks_and_when_it_came(miron) -> None:
    from miron_jax.tasks.about import about
    from miron_jax.tasks.registry import SUITES

    names = [task.name for suite in SUITES.values() for task in suite.tasks]
    assert [name for name in names if about(name) is None] == []
    assert about("own-gauntlet/arc_easy") is None
    shown = miron("tasks")
    assert shown.status == 0
    for name in names:
        known = about(name)
        assert known is not None
        assert known.year is None or 2010 < known.year < 2026
        assert known.asks in shown.out, name
