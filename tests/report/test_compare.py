"""`miron-jax compare`: which examples are paired, what is refused, what is printed."""

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.errors import InputError
from miron_jax.report.comparison import compare
from miron_jax.report.run_folder import Run, read_runs
from miron_jax.report.training_noise import training_noise
from miron_jax.statistics.paired import bonett_price
from tests.support.run_folders import PROFILE, samples_of, task_of, write_run, write_training_run
from tests.support.tolerances import FLOAT64


def compared(*folders: Path, metrics: tuple[str, ...] = ()):
    runs = read_runs([str(folder) for folder in folders])
    return compare(runs[0], runs[1], metrics)


def test_examples_are_paired_by_row_whatever_their_order(tmp_path: Path) -> None:
    # Rows 0 to 9; the second run lacks row 9 and lists the others backwards.  Right in one only: 0 | 5, 6, 7.
    first = samples_of([1, 1, 1, 0, 0, 0, 0, 0, 0, 1], bits=[1.0] * 10)
    second = samples_of([0, 1, 1, 0, 0, 1, 1, 1, 0, 1], bits=[0.5] * 10)[:9][::-1]
    computed = compared(write_run(tmp_path / "a", {"own/x": first}), write_run(tmp_path / "b", {"own/x": second}))
    main, beside = computed.tasks
    assert (main.task, main.metric, main.is_main, beside.metric) == ("own/x", "accuracy", True, "bits_per_byte")
    assert main.difference.num_examples == 9
    assert (main.only_first, set(main.only_second)) == ((0,), {5, 6, 7})
    assert (main.first, main.second) == pytest.approx((3 / 9, 5 / 9))
    assert main.difference.value == pytest.approx(2 / 9)
    assert (beside.difference.value, beside.difference.p_value) == (-0.5, 2 / 2**9)
    assert main.adjusted == main.difference.p_value  # of one task
    assert beside.adjusted == beside.difference.p_value  # each metric over its tasks


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"data": {"file": "made_up.jsonl", "git_blob_sha1": "b" * 40}}, r"own/x: its data differ: aaaa.* and bbbb"),
        ({"profile": {**PROFILE, "num_fewshot": 0}}, "own/x: its rule num_fewshot differs: 5 and 0"),
        ({"profile": {**PROFILE, "bos": "never"}}, "own/x: its rule bos differs: 'always' and 'never'"),
        ({"profile": {**PROFILE, "span": "whole"}}, "own/x: its rule span differs: None and 'whole'"),
    ],
)
def test_runs_by_other_rules_are_refused(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    samples = {"own/x": samples_of([1, 0, 1])}
    with pytest.raises(InputError, match=sentence):
        compared(write_run(tmp_path / "a", samples), write_run(tmp_path / "b", samples, of_task=change))


def test_what_follows_from_the_model_is_told_not_refused(tmp_path: Path) -> None:
    samples, profile = {"own/x": samples_of([1, 0, 1])}, {**PROFILE, "max_length": 99, "bos_token": "<|bos|>"}
    other = write_run(tmp_path / "b", samples, of_task={"profile": profile}, config={"dtype": "bfloat16"})
    notes = "\n".join(compared(write_run(tmp_path / "a", samples), other).notes)
    for part in (
        "bos_token is declared and <|bos|>",
        "max_length is 512 and 99",
        "--dtype differs: float32 and bfloat16",
    ):
        assert part in notes


def test_other_prompts_and_golds_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", {"own/x": samples_of([1, 0, 1])})
    other = samples_of([1, 0, 1])
    other[1]["prompt_sha256"] = "f" * 16
    with pytest.raises(InputError, match=r"its prompts differ in 1 of 3 examples \(row 1\)"):
        compared(run, write_run(tmp_path / "b", {"own/x": other}))
    other = samples_of([1, 0, 1])
    other[2]["gold"] = 1
    with pytest.raises(InputError, match=r"its right answers differ in 1 of 3 examples \(row 2\)"):
        compared(run, write_run(tmp_path / "c", {"own/x": other}))
    # One tokenizer had no room for all shots: as the task's rule has it.
    fewer = samples_of([1, 0, 1], num_shots=[5, 4, 5])
    fewer[1]["prompt_sha256"] = "f" * 16
    whole = write_run(tmp_path / "d", {"own/x": samples_of([1, 0, 1], num_shots=[5, 5, 5])})
    assert compared(whole, write_run(tmp_path / "e", {"own/x": fewer})).tasks


def test_holms_family_is_the_main_metrics_of_all_tasks(tmp_path: Path) -> None:
    """Two tasks, whatever their main metrics are called: the smaller p-value counts twice."""
    runs = []
    for name, right, bits in (("a", [0] * 6, 1.0), ("b", [1] * 6, 2.0)):
        samples = {"own/x": samples_of(right), "own/y": samples_of([1] * 9, bits=[bits] * 9)}
        folder = write_run(tmp_path / name, samples)
        results = json.loads((folder / "results.json").read_text())
        results["tasks"]["own/y"]["main"] = "bits_per_byte"
        (folder / "results.json").write_text(json.dumps(results))
        runs.append(folder)
    x, y = compared(*runs).tasks
    assert (x.metric, y.metric) == ("accuracy", "bits_per_byte")
    assert (x.difference.p_value, y.difference.p_value) == pytest.approx(
        (2 / 2**6, 2 / 2**9)
    )  # McNemar; all signs flipped
    assert (x.adjusted, y.adjusted) == pytest.approx((2 / 2**6, 2 * 2 / 2**9))


def test_metrics_that_cannot_be_compared(tmp_path: Path) -> None:
    a, b = samples_of([1, 0, 1, 1]), samples_of([1, 1, 1, 0])
    for sample in (*a, *b):
        sample["metrics"]["bits_per_token"] = 2.5
    first, second = write_run(tmp_path / "a", {"own/x": a}), write_run(tmp_path / "b", {"own/x": b})
    assert len(compared(first, second, metrics=("bits_per_token",)).tasks) == 1
    results = json.loads((second / "results.json").read_text())
    results["checkpoint"]["tokenizer"] = "another"
    results["tasks"]["own/x"]["metrics"]["mcc"] = {"value": 0.4, "stderr": 0.1, "ci95": [0.2, 0.6]}
    (second / "results.json").write_text(json.dumps(results))
    computed = compared(first, second, metrics=("accuracy", "bits_per_token", "mcc"))
    assert [each.metric for each in computed.tasks] == ["accuracy"]
    assert "the tokenizers differ" in computed.refused["own/x bits_per_token"]
    assert "no metric of that name, expected one of accuracy" in computed.refused["own/x mcc"]
    results["tasks"]["own/x"]["metrics"]["accuracy"]["value"] = 0.123  # no mean of the examples
    (second / "results.json").write_text(json.dumps(results))
    with pytest.raises(InputError, match="a number over all examples"):
        compared(first, second)


def test_categories_clusters_and_documents(tmp_path: Path) -> None:
    """The difference is that of the task's own number: a mean of means, or bits of all over bytes of all."""
    categories = ["a", "b", "b", "b"]
    macro = {"profile": {**PROFILE, "categories": "macro"}}
    a, b = samples_of([1, 1, 0, 0], category=categories), samples_of([0, 1, 1, 0], category=categories)
    runs = []
    for name, each in (("a", a), ("b", b)):
        folder = write_run(tmp_path / name, {"own/x": each}, of_task=macro)
        results = json.loads((folder / "results.json").read_text())
        value = np.mean(
            [each[0]["metrics"]["accuracy"], np.mean([sample["metrics"]["accuracy"] for sample in each[1:]])]
        )
        results["tasks"]["own/x"]["metrics"]["accuracy"]["value"] = value
        (folder / "results.json").write_text(json.dumps(results))
        runs.append(folder)
    (computed,) = compared(*runs).tasks
    assert computed.difference.value == pytest.approx((-1 + 1 / 3) / 2, abs=FLOAT64)
    clustered = [
        samples_of([1, 1, 0, 0], cluster=["s", "s", "t", "t"]),
        samples_of([0, 0, 1, 1], cluster=["s", "s", "t", "t"]),
    ]
    folders = [write_run(tmp_path / f"c{i}", {"own/x": each}) for i, each in enumerate(clustered)]
    assert compared(*folders).tasks[0].difference.method == "sign flips of clusters"

    def documents(nll: list[float]) -> list[dict[str, Any]]:
        sizes = [10, 30]
        rows = samples_of([0, 0], total_nll=nll, num_bytes=sizes, scored_tokens=[3, 9], text_sha256=["x", "y"])
        for sample, loss, size in zip(rows, nll, sizes, strict=True):
            sample["metrics"] = {"bits_per_byte": loss / math.log(2) / size}
        return rows

    runs = []
    for name, nll in (("d", [7.0, 14.0]), ("e", [6.0, 10.0])):
        folder = write_run(tmp_path / name, {"text/x": documents(nll)}, of_task={"main": "bits_per_byte"})
        results = json.loads((folder / "results.json").read_text())
        results["tasks"]["text/x"]["metrics"]["bits_per_byte"]["value"] = sum(nll) / math.log(2) / 40
        (folder / "results.json").write_text(json.dumps(results))
        runs.append(folder)
    (computed,) = compared(*runs).tasks
    assert computed.difference.value == pytest.approx(-5 / math.log(2) / 40, abs=FLOAT64)


def test_composites_have_the_error_of_pairs(tmp_path: Path) -> None:
    tasks = {"own/x": [1, 1, 0, 0] * 25, "own/y": [1, 0] * 50}
    others = {"own/x": [1, 1, 1, 0] * 25, "own/y": [1, 0] * 50}

    def composite(value: float, stderr: float) -> dict[str, Any]:
        weights = {"own/x": 0.5, "own/y": 0.5}
        return {
            "BOTH": {"value": value, "stderr": stderr, "ci95": [0, 1], "weights": weights, "missing": []},
            "PART": {"value": None, "stderr": None, "ci95": None, "weights": {}, "missing": ["own/z"]},
        }

    runs = [
        write_run(tmp_path / name, {task: samples_of(each) for task, each in values.items()}, composite(value, error))
        for name, values, value, error in (("a", tasks, 0.5, 0.03), ("b", others, 0.625, 0.04))
    ]
    (computed,) = compared(*runs).composites
    assert (computed.name, computed.first, computed.second) == ("own: BOTH", 0.5, 0.625)
    # Each keeps its interval (Bonett and Price): x has 1 and 26 of 102, y 1 and 1.
    assert computed.paired.value == pytest.approx(0.125)
    x, y = bonett_price(0, 25, 100), bonett_price(0, 0, 100)
    low, high = 0.5 * math.hypot(0.25 - x[0], y[0]), 0.5 * math.hypot(x[1] - 0.25, y[1])
    assert computed.paired.ci95 == pytest.approx((0.125 - low, 0.125 + high))
    assert computed.unpaired_stderr == pytest.approx(0.05)
    assert computed.shares["own/x"] == pytest.approx((x[1] - x[0]) ** 2 / ((x[1] - x[0]) ** 2 + (y[1] - y[0]) ** 2))


def test_composites_of_other_examples_or_weights_are_refused(tmp_path: Path) -> None:
    def run(name: str, values: list[int], weight: float = 1.0, **more: Any) -> Path:
        composite = {"value": 0.5, "stderr": 0.04, "ci95": [0, 1], "weights": {"own/x": weight}, "missing": [], **more}
        return write_run(tmp_path / name, {"own/x": samples_of(values)}, {"ALL": composite})

    first = run("a", [1, 0] * 20)
    for name, other, sentence in (
        ("b", run("b", [1, 0] * 30), "own/x: not every example has a value in both runs"),
        ("c", run("c", [1, 0] * 20, 0.5), "it averages other tasks, or weighs them otherwise"),
        ("d", run("d", [1, 0] * 20, metric="bits_per_byte"), "it averages other tasks, or weighs them otherwise"),
    ):
        computed = compared(first, other)
        assert computed.composites == (), name
        assert sentence in computed.refused["own: ALL"]


def test_a_run_that_stopped_by_its_scores_has_no_p_value(tmp_path: Path) -> None:
    sampled = {"sampled": {"examples": 30, "of": 90, "how": "--until=decided", "seed": 0, "interval": [0, 1]}}
    first = write_run(tmp_path / "a", {"own/x": samples_of([0] * 30)})
    second = write_run(tmp_path / "b", {"own/x": samples_of([1] * 30)}, of_task=sampled)
    computed = compared(first, second)
    assert computed.tasks[0].difference.value == 1.0
    assert math.isnan(computed.tasks[0].difference.p_value)
    assert math.isnan(computed.tasks[0].adjusted)
    assert "b stopped when it knew enough (--until), so there are no p-values: own/x" in computed.notes


def test_a_run_without_digests_is_told(tmp_path: Path) -> None:
    old = samples_of([1, 0])
    for sample in old:
        del sample["prompt_sha256"]
    computed = compared(
        write_run(tmp_path / "a", {"own/x": old}), write_run(tmp_path / "b", {"own/x": samples_of([1, 0])})
    )
    assert any("has no digests" in note for note in computed.notes)


def test_what_the_command_prints_and_writes(tmp_path: Path, miron) -> None:
    a, b, c = (
        write_run(tmp_path / name, {"own/x": samples_of(correct, bits=[1.0] * 40)})
        for name, correct in (("a", [0] * 40), ("b", [0, 1] * 20), ("c", [0] * 40))
    )
    ran = miron("compare", str(a), str(b), str(c), f"--json={tmp_path / 'out.json'}")
    assert ran.status == 0, ran.err
    for part in ("b (second) against a (first): differences are second less first",
                 "+0.5000", "<.0001*", "1 of 1 tasks differ", "  own/x: b 1, 3, 5",
                 "c (second) against a", "own/x accuracy: every example is the same in both runs"):  # fmt: skip
        assert part in ran.out, ran.out
    first, second = json.loads((tmp_path / "out.json").read_text())
    assert first["tasks"][0]["only_second"] == list(range(1, 40, 2))
    assert second["tasks"][0]["difference"]["p_value"] == 1.0


def test_when_it_would_have_been_decided(tmp_path: Path, miron) -> None:
    a, b = (
        write_run(tmp_path / name, {"own/x": samples_of(x), "own/y": samples_of(y)})
        for name, x, y in (("a", [0] * 300, [0, 1] * 150), ("b", [1] * 300, [1, 0] * 150))
    )
    ran = miron("compare", str(a), str(b), "--until=decided")
    assert ran.status == 0, ran.err
    rows = [line.replace("│", " ").split() for line in ran.out.splitlines() if line.count("│") == 5]
    assert ["own/x", "100", "300", "b"] in rows, "after the first round"
    assert ["own/y", "300", "300", "neither"] in rows, "a tie"
    assert "in the order of --seed=0" in ran.out
    ran = miron("compare", str(a), str(b), "--until=decided", f"--json={tmp_path / 'out.json'}")
    (document,) = json.loads((tmp_path / "out.json").read_text())
    assert document["decided"][0] == {"task": "own/x", "examples": 100, "of": 300, "better": "b"}
    ran = miron("compare", str(a), str(b), "--until=ci<=0.1")
    assert (ran.status, "compare knows decided alone" in ran.err) == (2, True)


def test_training_runs_have_noise_and_overtake(tmp_path: Path, miron) -> None:
    def run(name: str, rights: dict[int, int]) -> Path:
        steps = {step: {"own/x": samples_of([1] * n + [0] * (20 - n))} for step, n in rights.items()}
        return write_training_run(tmp_path / name, steps)

    a, b = run("a", {100: 5, 200: 9, 300: 10, 400: 11}), run("b", {100: 8, 200: 12, 300: 14})
    ran = miron("compare", str(a), "--last=3")
    assert ran.status == 0, ran.err
    # the last three: .45 .5 .55: mean .5, deviation .05; over examples sqrt(.55 .45 / 20) = .1112
    for part in ("training noise over the last 3 checkpoints", "0.5000", "0.0500", "0.1112"):
        assert part in ran.out, ran.out
    ran = miron("compare", str(a), str(b), "--last=3")
    # means .5 and .5667: signal .0667 / .5333 = .125; noise of b .1528 / .5667 = .2696; b is above .55 at step 200
    for part in ("b overtakes at step", "200", "0.1250", "0.4637"):
        assert part in ran.out, ran.out


@pytest.mark.parametrize("metric", ["bits_per_byte", "first_token_rank", "score"])
def test_a_run_overtakes_by_the_better_value(tmp_path: Path, metric: str) -> None:
    """Against 2 at the end of the other run: fewer bits or a lower rank are better, of any other metric more is."""

    def run(name: str, values: list[float]) -> Run:
        samples = [{"own/x": [{**each, "metrics": {metric: value}} for each in samples_of([1, 1])]} for value in values]
        folder = write_training_run(tmp_path / name, dict(enumerate(samples, 1)))
        for path in folder.rglob("results.json"):
            path.write_text(path.read_text().replace('"main": "accuracy"', f'"main": "{metric}"'))
        return read_runs([str(folder)])[0]

    (task,) = training_noise([run("a", [4.0, 2.0]), run("b", [2.5, 1.0, 3.0])], 5)
    assert (task.metric, task.overtakes) == (metric, 1 if metric == "score" else 2)


def test_a_composites_error_comes_from_its_smallest_task(tmp_path: Path, miron) -> None:
    """CORE's arithmetic in small: .5 of 100 and of 400 examples, equal weights: variances 4 to 1."""
    steps = {step: {"own/x": samples_of([1, 0] * 50), "own/y": samples_of([1, 0] * 200)} for step in (1, 2)}
    run = write_training_run(tmp_path / "a", steps)
    weights = {"own/x": 0.5, "own/y": 0.5}
    composite = {"value": 0.5, "stderr": 0.03, "ci95": [0.4, 0.6], "weights": weights, "missing": []}
    for path in (run / "results.json", *run.glob("step_*/results.json")):
        results = json.loads(path.read_text())
        results["suites"]["own"]["composites"] = {"BOTH": composite}
        path.write_text(json.dumps(results))
    ran = miron("compare", str(run))
    assert ran.status == 0, ran.err
    assert "own: BOTH: of its variance over examples x 80%, y 20%" in ran.out


def test_an_unfinished_training_run_counts_with_what_is_done(tmp_path: Path, miron) -> None:
    done = write_run(tmp_path / "a" / "step_200", {"own/x": samples_of([1, 0, 1])}, step=200).parent
    (done / "journal").mkdir()
    other = write_run(tmp_path / "b", {"own/x": samples_of([1, 1, 1])})
    ran = miron("compare", str(other), str(done))
    assert ran.status == 0, ran.err
    assert "a is unfinished: of its checkpoints 1 are scored" in ran.out


def test_bad_folders_are_one_sentence(tmp_path: Path, miron) -> None:
    good = write_run(tmp_path / "good", {"own/x": samples_of([1, 0])})
    write_run(tmp_path / "other", {"own/y": samples_of([1, 0])})
    write_run(tmp_path / "schema", {"own/x": samples_of([1, 0])}, schema=2)
    (tmp_path / "unfinished" / "journal").mkdir(parents=True)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "results.json").write_text("[")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "elsewhere" / "notes.txt").write_text("")
    bare = write_run(tmp_path / "bare", {"own/x": samples_of([1, 0])})
    (bare / "samples" / "own" / "x.jsonl").unlink()
    torn = write_run(tmp_path / "torn", {"own/x": samples_of([1, 0])})
    (torn / "samples" / "own" / "x.jsonl").write_text('{"id": 0, "row": 0}\n{"id"')
    later = samples_of([1, 0])
    for sample in later:
        sample["row"] += 7
    write_run(tmp_path / "later", {"own/x": later})
    for name, sentence in (
        ("nowhere", "is not there: name the --output folder"),
        ("empty", "is empty: name the --output folder"),
        ("file", "is a file: name the --output folder"),
        ("elsewhere", "holds no results.json: name the --output folder"),
        ("unfinished", "holds an unfinished run, without results yet: run the same eval again"),
        ("broken", "is no results.json"),
        ("schema", "has schema 2, expected 1: read it with the version that wrote it, 0.1.0"),
        ("other", "have no task in common: the first has own/x, the second own/y"),
        ("later", "own/x: the runs have no example of it in common"),
        ("bare", "x.jsonl is missing"),
        ("torn", "line 2 is no JSON object"),
        ("good", "is named twice"),
    ):
        ran = miron("compare", str(good), str(tmp_path / name))
        assert ran.status == 2, (name, ran.out)
        assert sentence in ran.err, ran.err
        assert ran.err.count("\n") == 1
    ran = miron("compare", str(good))
    assert (ran.status, "name a second one to compare it with" in ran.err) == (2, True)
    ran = miron("compare", str(good), str(good.parent / "other"), f"--json={tmp_path / 'no' / 'x'}")
    assert (ran.status, "--json=" in ran.err, "cannot be written" in ran.err) == (2, True, True)
    ran = miron(
        "compare", str(good), str(write_run(tmp_path / "same", {"own/x": samples_of([1, 0])})), "--metric=acuracy"
    )
    assert (ran.status, "--metric: no task has 'acuracy', expected one of accuracy" in ran.err) == (2, True)
    ran = miron("compare", str(good), str(tmp_path / "other"), str(tmp_path / "same"))
    assert (ran.status, "same (second) against good (first)" in ran.out) == (2, True), "what can be compared is printed"
    assert "good and other have no task in common" in ran.err
    ran = miron("compare")
    assert (ran.status, "compare wants the output folders" in ran.err) == (2, True)


def test_nan_and_one_example_are_told(tmp_path: Path, miron) -> None:
    a, b = samples_of([1, 0], bits=[1.0, math.nan]), samples_of([1, 1], bits=[2.0, 3.0])
    first, second = write_run(tmp_path / "a", {"own/x": a}), write_run(tmp_path / "b", {"own/x": b})
    ran = miron("compare", str(first), str(second))
    assert "own/x bits_per_byte: 1 examples have no value in one of the runs" in ran.out
    assert "own/x bits_per_byte: one example, or one cluster, has no deviation" in ran.out


def test_two_large_runs_take_seconds(tmp_path: Path) -> None:
    """Not a benchmark: that no step is quadratic in the examples."""
    draws = np.random.default_rng(0)
    runs = []
    for name in "ab":
        correct, bits = draws.integers(0, 2, 3000).tolist(), draws.gamma(4, 0.3, 3000).tolist()
        runs.append(write_run(tmp_path / name, {f"own/{task}": samples_of(correct, bits) for task in "xyz"}))
    start = time.perf_counter()
    assert len(compared(*runs).tasks) == 6
    assert time.perf_counter() - start < 60
    assert task_of(samples_of([1, 0]))["n"] == 2
