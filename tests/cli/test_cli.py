"""The command as its user meets it: whole runs on a tiny model, resumed runs, every command beside eval."""

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from miron_jax import bench
from miron_jax.tasks.mera.metrics import ETHICS
from tests.support.command import common, finite_or_null

pytestmark = pytest.mark.newest


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


def test_tasks_lists_what_is_there(miron, place):
    ran = miron("tasks", f"--data_dir={place.data}")
    assert ran.status == 0
    row = {line.split()[1]: line for line in ran.out.splitlines() if "core/" in line}
    assert len(row) == 22
    assert "changed" in row["core/copa"]
    assert "missing" in row["core/squad"]


def test_an_interrupted_write_is_taken_up_and_paths_may_be_spelled_anew(miron, place, tmp_path, monkeypatch):
    (tmp_path / "out" / "samples").mkdir(parents=True)
    (tmp_path / "out" / ".partial").mkdir()
    assert miron("eval", *common(place, tmp_path / "out", "--limit=11")).status == 0
    monkeypatch.chdir(tmp_path)
    model = os.path.relpath(place.model)
    again = miron("eval", *common(place, Path("out"), "--limit=11", f"--model={model}", "--token_budget=99"))
    assert again.status == 0, again.err
    assert not (tmp_path / "out" / ".partial").exists()


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
