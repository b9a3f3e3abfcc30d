"""The command as its user meets it: whole runs on a tiny model, resumed runs, what is printed, every command beside eval."""

import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from miron_jax import __version__
from miron_jax.cli import throughput
from miron_jax.report.tables.progress import Screen
from miron_jax.runtime.timeline import ACTIVITIES
from miron_jax.tasks.about import about
from miron_jax.tasks.mera.metrics import ETHICS
from miron_jax.tasks.registry import SUITES
from tests.support.command import Place, Ran, common, finite_or_null, in_process, run, samples
from tests.support.kept_runs import same_results
from tests.support.tolerances import CONTINUATION

pytestmark = pytest.mark.newest


class Finished(NamedTuple):
    ran: Ran
    output: Path

    @property
    def results(self) -> dict[str, Any]:
        return json.loads((self.output / "results.json").read_text())


@pytest.fixture(scope="module")
def finished(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A verbose run of six examples a task, in a folder where an interrupted write has left something."""
    output = tmp_path_factory.mktemp("finished") / "out"
    (output / "samples").mkdir(parents=True)
    (output / ".partial").mkdir()
    ran = in_process("eval", *common(place, output, "--limit=6", "--verbose"))
    assert ran.status == 0, ran.err
    return Finished(ran, output)


@pytest.fixture
def open_stages(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Stage -> whether it was open when its Screen ended."""
    stages: dict[str, bool] = {}
    advance, leave = Screen.advance, Screen.__exit__

    def recorded(self: Screen, stage: str, *rest: Any) -> None:
        stages.setdefault(stage, False)
        advance(self, stage, *rest)

    def left(self: Screen, *rest: object) -> None:
        stages.update(dict.fromkeys(self._stages, True))
        leave(self, *rest)

    monkeypatch.setattr(Screen, "advance", recorded)
    monkeypatch.setattr(Screen, "__exit__", left)
    return stages


def test_a_whole_run(finished: Finished) -> None:
    results = finished.results
    assert results["schema"] == 1
    assert list(results["tasks"]) == ["core/arc_easy", "core/copa", "core/lambada_openai", "core/winograd"]
    assert finite_or_null(results)
    for name, task in results["tasks"].items():
        lines = samples(finished.output, name)
        assert [line["id"] for line in lines] == list(range(6))
        assert task["n"] == task["limit"] == 6
        accuracy = task["metrics"]["accuracy"]
        right = sum(line["correct"] for line in lines)
        assert accuracy["value"] == pytest.approx(right / 6)
        assert accuracy["stderr"] == pytest.approx(math.sqrt(right / 6 * (1 - right / 6) / 6))
        assert accuracy["ci95"][0] <= accuracy["value"] <= accuracy["ci95"][1]
        options = [option for line in lines for option in line["options"]]
        assert all(len(option["token_logprobs"]) == option["num_tokens"] for option in options)
        for option in options:
            assert option["logprob"] is None or option["logprob"] == pytest.approx(sum(option["token_logprobs"]))
    composites = results["suites"]["core"]["composites"]
    assert all(composite["value"] is None for composite in composites.values()), "changed data bear no suite's name"
    speed = results["speed"]
    assert speed["unique_tokens"] < speed["plain_tokens"]
    assert speed["unique_tokens"] <= speed["padded_tokens"]
    timeline = speed["timeline"]
    assert [*timeline] == [*ACTIVITIES]
    assert {name for name, seconds in timeline.items() if seconds > 0} >= {
        "import", "load", "compile", "wait_for_host", "device", "self_check", "metrics", "write",
    }  # fmt: skip
    assert min(timeline.values()) >= 0
    assert sum(timeline.values()) == pytest.approx(speed["wall_seconds"])
    assert {name for name, seconds in speed["in_threads"].items() if seconds > 0} >= {"render", "tokenize", "plan"}
    assert f"where these {speed['wall_seconds']:.1f} s went:" in finished.ran.out
    assert "core/arc_easy" in finished.ran.out
    assert "not the published data" in finished.ran.out
    assert not (finished.output / ".partial").exists()
    assert re.search(r"compiled \d+ x \d+ tokens in ", finished.ran.err)
    assert "loaded " in finished.ran.err
    assert "self-check (largest difference" in finished.ran.out


def test_the_same_run_again_and_another_one(
    miron, place: Place, finished: Finished, tmp_path: Path, monkeypatch, open_stages: dict[str, bool]
) -> None:
    """Paths may be spelled anew; a run whose scores are all there leaves no stage open."""
    shutil.copytree(finished.output, tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    model = f"--model={os.path.relpath(place.model)}"
    again = miron("eval", *common(place, Path("out"), "--limit=6", "--token_budget=99", model))
    assert again.status == 0, again.err
    assert json.loads((tmp_path / "out" / "results.json").read_text())["tasks"] == finished.results["tasks"]
    assert {"loading", "planning"} <= set(open_stages)
    assert not any(open_stages.values())

    first, there, cost, *_ = again.err.splitlines()
    assert first.startswith(f"miron-jax {__version__}: {os.path.relpath(place.model)} on core/")
    assert re.search(r"core/copa.*, up to 24 examples, with \d CPU devices? in float32$", first), first
    assert re.fullmatch(r"[\d,]+ unique tokens of [\d,]+ to compute, \S+ GFLOP \(.* times fewer .*\)", cost), cost
    assert re.fullmatch(r"\d+ scores and texts are there already", there), there
    assert not re.search("compiled|loaded", again.err + again.out), "that is for --verbose"
    assert "padding" not in again.out, "that too"
    *_, counts, where, look = again.out.splitlines()
    assert counts.startswith("core/arc_easy accuracy ")
    assert "4 tasks, 24 examples in " in where
    assert look.startswith("look at it: miron-jax report ")

    for flag, sentence in (
        ("--limit=5", "holds another run: its limit is 6, now it is 5: name another folder"),
        (
            "--limit=12",
            "now it is 12, and core/arc_easy draws its shots from what --limit leaves, so all prompts change:",
        ),
        ("--limit=7 --until=ci<=0.1", "and --until and --budget choose examples in an order that --limit changes:"),
        ("--noresume", "not empty"),
    ):
        other = miron("eval", *common(place, tmp_path / "out", "--limit=6", *flag.split()))
        assert other.status == 2
        assert sentence in other.err


@pytest.mark.slow
def test_a_limit_that_has_grown_goes_on(miron, place: Place, finished: Finished, tmp_path: Path) -> None:
    """The numbers and samples of a fresh run; what the smaller run scored is not computed again."""
    shutil.copytree(finished.output, tmp_path / "grown")
    (tmp_path / "grown" / "requests").mkdir()
    for name in ("requests/requests.jsonl", "nanochat.csv"):
        (tmp_path / "grown" / name).write_text("of six examples")
    fresh, grown = (
        run(miron, place.model, tmp_path / name, *common(place, tmp_path / name, "--limit=9"))
        for name in ("fresh", "grown")
    )
    same_results(grown, fresh)
    assert {name: task["n"] for name, task in grown["tasks"].items()} == dict.fromkeys(fresh["tasks"], 9)
    for task in fresh["tasks"]:
        for sample, expected in zip(*(samples(tmp_path / name, task) for name in ("grown", "fresh")), strict=True):
            for option, other in zip(sample.pop("options"), expected.pop("options"), strict=True):
                assert option["logprob"] == pytest.approx(other["logprob"], abs=CONTINUATION)
                assert (option["text"], option["num_tokens"]) == (other["text"], other["num_tokens"])
            assert [sample[key] for key in ("id", "row", "prediction", "correct", "prompt_sha256")] == [
                expected[key] for key in ("id", "row", "prediction", "correct", "prompt_sha256")
            ]
    # of the tasks' examples a third are new
    assert 0 < grown["speed"]["computed_tokens"] < 0.5 * fresh["speed"]["computed_tokens"]
    for number in ("unique_tokens", "tokens_by_task"):
        assert grown["speed"][number] == fresh["speed"][number]
    assert fresh["speed"]["tokens_by_task"].keys() == fresh["tasks"].keys()
    # a plan of all tasks shares no less than those of each alone
    assert sum(fresh["speed"]["tokens_by_task"].values()) >= fresh["speed"]["unique_tokens"]
    assert {path.name for path in (tmp_path / "grown").iterdir()} == {
        path.name for path in (tmp_path / "fresh").iterdir()
    }


def test_quiet_and_json(miron, place: Place, finished: Finished, tmp_path: Path) -> None:
    shutil.copytree(finished.output, tmp_path / "out")
    command = ["eval", *common(place, tmp_path / "out", "--limit=6")]
    quiet = miron(*command, "--quiet")
    assert (quiet.status, quiet.err) == (0, "")
    assert len(quiet.out.splitlines()) <= 5
    assert "┃" not in quiet.out
    (tmp_path / "job.flags").write_text("--json\n--nowatch\n")  # the bare flag takes no word behind it
    for flag in ("--json=-", f"--flagfile={tmp_path / 'job.flags'}"):
        ran = miron(*command, flag)
        assert json.loads(ran.out) == json.loads((tmp_path / "out" / "results.json").read_text())
    miron(*command, f"--json={tmp_path / 'own.json'}")
    assert json.loads((tmp_path / "own.json").read_text())["schema"] == 1
    ran = miron(*command, f"--json={tmp_path}/no/file")
    assert (ran.status, "--json=" in ran.err, "cannot be written" in ran.err) == (2, True, True)
    compared = miron("compare", str(finished.output), str(tmp_path / "out"), "--json")
    assert json.loads(compared.out)[0]["tasks"], "the table goes to standard error"


def test_humans_writes_a_baseline_and_its_labels(miron, tmp_path: Path) -> None:
    path, out = tmp_path / "a.tsv", tmp_path / "out"
    header = "INPUT:formula\tOUTPUT:result\tASSIGNMENT:worker_id"
    lines = [f"1 + {k}\t{k + 1}\tw{w}" for k in (1, 2) for w in (1, 2, 3)]
    path.write_text("\n".join([header, *lines, "5 - 1\t3\tw1", ""]))
    ran = miron("humans", f"--annotations={path}", "--gold=arithmetic", "--votes_needed=3", f"--output={out}")
    assert ran.status == 0, ran.err
    humans = json.loads((out / "humans.json").read_text())
    assert (humans["a"]["accuracy"]["right"], humans["a"]["accuracy"]["n"], humans["items"]) == (2, 2, 3)
    agreed = [{"INPUT:formula": "1 + 1", "label": "2"}, {"INPUT:formula": "1 + 2", "label": "3"}]
    assert [json.loads(line) for line in (out / "human_labels.jsonl").read_text().splitlines()] == agreed
    assert [json.loads(line) for line in (out / "human_labels_b.jsonl").read_text().splitlines()] == [
        {**label, "origin": "one answer"} for label in [*agreed, {"INPUT:formula": "5 - 1", "label": "3"}]
    ]
    assert humans["b"]["f1_macro"] == pytest.approx((1 + 2 / 3 + 0) / 3)  # of 2, 3 and 4
    assert humans["b"]["mcc"] is None
    assert "Krippendorff" in ran.out
    page = (out / "humans.html").read_text(encoding="utf-8")
    assert "<h1>Human baseline of a.tsv</h1>" in page
    assert "<script" not in page
    # Wilson's interval of 2 of 2: 1 / (1 + 1.96^2 / 2) = 0.342
    assert "right in 1.000 of 2 labels (0.342 to 1.000, 95 %), by procedure A, which labels 2 of 3 items" in page
    rows = re.findall(r'<tr><th scope="row">(\d)</th><td>(\d)</td><td>([\d.]+)</td><td>([\d.]+)</td>', page)
    # of equal votes needed: of one the three plurality labels, two of them right
    assert rows == [("1", "3", "1.000", "0.667"), ("2", "2", "0.667", "1.000"), ("3", "2", "0.667", "1.000")]
    assert page.count("<svg") == 1
    assert "by the equal votes that a label needs" in page

    names = [f"INPUT:{name}_{i}" for i in (1, 2, 3) for name in ("text", "actant_1", "actant_2", "question")]
    cells = [cell for i in "123" for cell in (f"t{i}", "he", "she", "Этично ли это?")]
    names += [f"OUTPUT:answer_{i}" for i in (1, 2, 3)] + ["ASSIGNMENT:worker_id"]
    lines = [";".join(names), *(";".join([*cells, "1", "0", "0", worker]) for worker in "abc"), ""]
    (tmp_path / "pool1.csv").write_text("\n".join(lines))
    right = [{"text": f"t{i}", "pair": ["he", "she"], **dict.fromkeys(ETHICS, str(int(i == 1)))} for i in (1, 2, 3)]
    (tmp_path / "data.json").write_text(json.dumps(right))
    flags = ("--project=ruethics", f"--annotations={tmp_path / 'pool1.csv'}", f"--gold={tmp_path / 'data.json'}")
    ran = miron("humans", *flags, f"--output={tmp_path / 'ethics'}")
    assert ran.status == 0, ran.err
    values = json.loads((tmp_path / "ethics" / "humans.json").read_text())["ethics"]
    expected = {"mcc": {f"ethical.{name}": 1.0 for name in ETHICS}, "n": {"ethical": 3}, "without_gold": 0}
    assert values == {"A": expected, "B": expected}
    assert "utilitarianism" in ran.out
    for more, sentence in (
        ([], "humans wants --annotations"),
        ([f"--annotations={path}", "--worker_column=who"], "no column who"),
        ([f"--annotations={path}", "--gold=lsc"], "is no file and none of lcs, brackets, arithmetic"),
        ([f"--annotations={tmp_path / 'none.tsv'}"], "No such file"),
        ([f"--annotations={path}", "--project=mera", "--votes_needed=2"], "--project=mera has MERA's rule"),
    ):
        ran = miron("humans", *more, f"--output={tmp_path / 'other'}")
        assert ran.status == 2
        assert sentence in ran.err
    assert not (tmp_path / "other").exists()


def test_bench_measures_the_engine_beside_itself_without_each_idea(miron, place: Place, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(throughput, "SQUARE_ON_CPU", 64)
    monkeypatch.setattr(throughput, "SECONDS", 0.01)
    ran = miron("bench", *common(place, tmp_path / "out", "--tasks=core/copa", "--limit=6"))
    assert ran.status == 0, ran.err
    measured = json.loads((tmp_path / "out" / "bench.json").read_text())
    engine, others = measured["engine"], {layout["name"].partition(":")[0]: layout for layout in measured["ablations"]}
    assert set(others) == {"no gather", "one row length", "no packing", "no sharing", "neither"}
    assert engine["tokens"] == measured["unique_tokens"] < others["no sharing"]["tokens"] <= measured["plain_tokens"]
    assert others["no gather"]["places"] == engine["places"] <= others["no packing"]["places"]
    assert others["no packing"]["tokens"] == engine["tokens"]
    for layout in (engine, *others.values()):
        assert layout["seconds"] == pytest.approx(sum(bucket["seconds"] for bucket in layout["buckets"]))
        assert layout["share_of_peak"] * layout["seconds"] == pytest.approx(engine["share_of_peak"] * engine["seconds"])
    host_seconds = measured["tokenize_seconds"] + measured["plan_seconds"]
    assert measured["host_tokens_per_second"] * host_seconds == pytest.approx(measured["unique_tokens"])
    assert measured["device_tokens_per_second"] * engine["seconds"] == pytest.approx(engine["tokens"])
    assert measured["peak_bytes"] > 0
    assert "no sharing" in ran.out


def write_gauntlet(folder: Path) -> list[str]:
    """Four benchmarks of the user's own, one of each kind, and the two yaml files; returns their flags."""
    choices = [
        {"query": f"{i} sun", "choices": ["hot", "cold"], "gold": i % 2, "category": "ab"[i % 2]} for i in range(6)
    ]
    schema = {"context_options": ["sun", "rain"], "continuation": "is hot", "gold": 0}
    questions = [
        {"context": f"{i}?", "chain_of_thought": "is", "answer": str(i), "aliases": ["(a"] * (i == 2)} for i in range(4)
    ]
    texts = [{"context": f"the {i}", "continuation": "hill"} for i in range(4)]
    tasks = []
    for label, kind, rows, more in (
        ("choices", "multiple_choice", choices, {"has_categories": True}),
        ("schemas", "schema", [schema] * 3, {}),
        ("texts", "language_modeling", texts, {}),
        ("questions", "generation_task_with_answers", questions, {"cot_delimiter": " #### "}),
    ):
        (folder / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        tasks.append(
            {"label": label, "dataset_uri": f"{label}.jsonl", "num_fewshot": [1], "icl_task_type": kind, **more}
        )
    benchmarks = [{"name": task["label"], "num_fewshot": 1, "random_baseline": 0.0} for task in tasks]
    (folder / "tasks.yaml").write_text(json.dumps({"icl_tasks": tasks}))  # JSON is yaml
    averages = {"categories": [{"name": "all", "benchmarks": benchmarks}]}
    (folder / "gauntlet.yaml").write_text(json.dumps({"eval_gauntlet": averages}))
    return [f"--icl_tasks={folder / 'tasks.yaml'}", f"--eval_gauntlet={folder / 'gauntlet.yaml'}"]


def test_a_gauntlet_of_ones_own(miron, place: Place, tmp_path: Path, open_stages: dict[str, bool]) -> None:
    flags = [*write_gauntlet(tmp_path), f"--data_dir={tmp_path}", f"--model={place.model}", "--compilation_cache="]
    ran = miron("eval", *flags, f"--output={tmp_path / 'out'}")
    assert ran.status == 0, ran.err
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert finite_or_null(results)
    tasks = {name.removeprefix("own-gauntlet/"): task for name, task in results["tasks"].items()}
    assert {name: task["n"] for name, task in tasks.items()} == {"choices": 6, "schemas": 3, "texts": 4, "questions": 4}
    choices, questions = tasks["choices"], tasks["questions"]
    assert {name: group["n"] for name, group in choices["groups"].items()} == {"a": 3, "b": 3}
    means = [group["metrics"]["accuracy"]["value"] for group in choices["groups"].values()]
    assert choices["metrics"]["accuracy"]["value"] == pytest.approx(sum(means) / 2)
    assert questions["always_right_rows"] == [2]
    assert sum(questions["ended"].values()) == 4
    lines = samples(tmp_path / "out", "own-gauntlet/questions")
    assert lines[2]["correct"] is True
    assert [line["accepted"] for line in lines] == [["0"], ["1"], ["2", "(a"], ["3"]]
    right = sum(line["correct"] for line in lines)
    assert questions["metrics"]["accuracy"]["value"] == pytest.approx(right / 4)
    composite = results["suites"]["own-gauntlet"]["composites"]["all"]
    accuracies = [task["metrics"]["accuracy"] for task in tasks.values()]
    assert composite["value"] == pytest.approx(sum(accuracy["value"] for accuracy in accuracies) / 4)
    assert composite["stderr"] == pytest.approx(math.hypot(*(accuracy["stderr"] for accuracy in accuracies)) / 4)
    assert "any text is right in row 2" in ran.out
    assert set(open_stages) >= {"loading", "planning", "scoring", "self-check", "generating", "compiling"}
    assert not any(open_stages.values()), open_stages
    listed = miron("tasks", *flags[:3])
    assert listed.status == 0, listed.err
    assert miron("plan", *flags).status == 0
    assert "--icl_tasks" in miron("eval", flags[1], f"--model={place.model}").err


def test_completions_alone_leave_no_stage_open_and_the_licence_stands_in_results(
    miron, place: Place, tmp_path: Path, open_stages: dict[str, bool]
) -> None:
    rows = [{"q": f"the {word} is", "a": "hot"} for word in ("sun", "hill")]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    yaml = "task: t\nkind: generation\ndata: t.jsonl\nquestion: q\nanswer: a\nnum_fewshot: 0\nlicence: CC0\n"
    (tmp_path / "t.yaml").write_text(yaml)
    flags = [f"--task_path={tmp_path / 't.yaml'}", f"--output={tmp_path / 'out'}", "--compilation_cache="]
    ran = miron("eval", f"--model={place.model}", *flags)
    assert ran.status == 0, ran.err
    task = json.loads((tmp_path / "out" / "results.json").read_text())["tasks"]["own/t"]
    assert (task["n"], task["licence"]) == (2, "CC0")
    assert set(open_stages) >= {"loading", "planning", "generating"}
    assert not any(open_stages.values()), open_stages


def test_programs_run_only_where_allowed(miron, place: Place, tmp_path: Path) -> None:
    rows = [
        {
            "task_id": f"t/{i}", "prompt": "def f(a):\n", "entry_point": "f", "language": "python",
            "test_inputs": ["(1,)"], "test_outputs": ["1"], "canonical_solution": "    return a\n" * (1 - i) + "    x" * i,
        }
        for i in range(2)
    ]  # fmt: skip
    (tmp_path / "programming").mkdir()
    (tmp_path / "programming" / "human_eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    name = "gauntlet-programming/human_eval"
    flags = [
        f"--tasks={name}", f"--data_dir={tmp_path}", f"--model={place.model}", "--compilation_cache=",
        "--allow_changed_data", f"--output={tmp_path / 'out'}",
    ]  # fmt: skip
    refused = miron("eval", *flags)
    assert refused.status == 2
    assert f"{name} runs programs that the model writes: add --allow_code_execution" in refused.err
    assert not (tmp_path / "out").exists()
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap: apt-get install bubblewrap")
    ran = miron("eval", *flags, "--allow_code_execution")
    assert ran.status == 0, ran.err
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert finite_or_null(results)
    task = results["tasks"][name]
    assert (task["n"], task["ceiling"], task["sandboxed"]) == (2, {"passed": 1, "n": 2}, True)
    assert (task["bounded_by"] == "cgroup") == ("no_cgroup" not in task)
    assert sum(task["ended"].values()) == 10  # five programs a problem
    lines = samples(tmp_path / "out", name)
    assert [line["ceiling"] for line in lines] == ["passed", "error"]
    texts = [program["text"] for line in lines for program in line["programs"]]
    assert len(set(texts)) > 5  # drawn apart, with seeds of their own
    assert "solutions pass 1 of 2" in ran.out
    again = miron("eval", *flags, "--allow_code_execution", "--token_budget=64")
    assert again.status == 0
    assert samples(tmp_path / "out", name) == lines


def test_tasks_lists_what_is_there_what_it_asks_and_when_it_came(miron, place: Place) -> None:
    ran = miron("tasks", f"--data_dir={place.data}")
    assert ran.status == 0
    row = {line.split()[1]: line for line in ran.out.splitlines() if "core/" in line}
    assert len(row) == 22
    assert "changed" in row["core/copa"]
    assert "missing" in row["core/squad"]
    for name in (task.name for suite in SUITES.values() for task in suite.tasks):
        known = about(name)
        assert known is not None, name
        assert known.year is None or 2010 < known.year < 2026
        assert known.asks in ran.out, name
    assert about("own-gauntlet/arc_easy") is None


def test_licences_are_those_of_the_sources_pages(miron) -> None:
    """Of Eval-UA-tion's nine data sets, the pages of four have no line about it; llm-foundry's files have none either."""
    listed = json.loads(miron("tasks", "--json").out)
    of_task = {task["task"]: task["licence"] for task in listed}
    assert {name for name in of_task if of_task[name] == "CC BY-NC 4.0" and name.startswith("eval-ua-tion/")} == {
        f"eval-ua-tion/{name}"
        for name in (
            "ua_cbt", "ua_cbt_cloze", "up_masked", "up_masked_refcompat", "up_unmasked", "lmes_catsbin", "lmes_catsmc"
        )
    }  # fmt: skip
    assert (of_task["miron/en"], of_task["mera-v1/rcb"], of_task["core/copa"]) == ("MIT", "MIT", "not stated")
    assert of_task["miron-gen/en"] == of_task["eval-ua-tion-gen/ua_cbt"] == "Apache-2.0"
