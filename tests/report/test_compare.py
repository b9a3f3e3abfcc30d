"""`miron-jax compare`: which examples are paired, what is refused, what is printed."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.errors import InputError
from miron_jax.report.compare.runs import Comparison, compare, turned
from miron_jax.report.compare.subset import subset
from miron_jax.report.compare.training_noise import training_noise
from miron_jax.results.run_folder import Run, read_runs
from miron_jax.statistics.estimate import bonett_price
from miron_jax.statistics.noise import noise, signal_to_noise
from tests.support.run_folders import PROFILE, changed, composite, samples_of, write_run, write_training_run
from tests.support.tolerances import FLOAT64, METRIC_RELATIVE


def compared(*folders: Path, metrics: tuple[str, ...] = ()) -> Comparison:
    runs = read_runs([str(folder) for folder in folders])
    return compare(runs[0], runs[1], metrics)


def test_examples_are_paired_by_row_whatever_their_order(tmp_path: Path) -> None:
    # Rows 0 to 9; the second run lacks row 9 and lists the others backwards.  Right in one only: 0 | 5, 6, 7.
    first = samples_of([1, 1, 1, 0, 0, 0, 0, 0, 0, 1], bits=[1.0] * 10)
    second = samples_of([0, 1, 1, 0, 0, 1, 1, 1, 0, 1], bits=[0.5] * 10)[:9][::-1]
    computed = compared(write_run(tmp_path / "a", {"own/x": first}), write_run(tmp_path / "b", {"own/x": second}))
    main, beside = computed.tasks
    assert (main.task, main.metric, main.is_main, beside.metric) == ("own/x", "accuracy", True, "bits_per_byte")
    assert (main.difference.num_examples, main.only_first, set(main.only_second)) == (9, (0,), {5, 6, 7})
    assert (main.first, main.second, main.difference.value) == pytest.approx((3 / 9, 5 / 9, 2 / 9))
    assert (beside.difference.value, beside.difference.p_value) == (-0.5, 2 / 2**9)
    for each in (main, beside):  # of one task, each metric over its tasks
        assert each.adjusted == each.difference.p_value


@pytest.mark.parametrize(
    ("of_task", "columns", "sentence"),
    [
        ({"data": {"file": "x", "git_blob_sha1": "b" * 40}}, {}, r"own/x: its data differ: aaaa.* and bbbb"),
        ({"profile": {**PROFILE, "num_fewshot": 0}}, {}, "own/x: its rule num_fewshot differs: 5 and 0"),
        ({"profile": {**PROFILE, "span": "whole"}}, {}, "own/x: its rule span differs: None and 'whole'"),
        ({}, {"prompt_sha256": ["0" * 16, "f" * 16, f"{2:016x}"]}, r"its prompts differ in 1 of 3 examples \(row 1\)"),
        ({}, {"gold": [0, 1, 1]}, r"its right answers differ in 1 of 3 examples \(row 2\)"),
    ],
)
def test_runs_by_other_rules_are_refused(
    tmp_path: Path, of_task: dict[str, Any], columns: dict[str, Any], sentence: str
) -> None:
    first = write_run(tmp_path / "a", {"own/x": samples_of([1, 0, 1])})
    with pytest.raises(InputError, match=sentence):
        compared(first, write_run(tmp_path / "b", {"own/x": samples_of([1, 0, 1], **columns)}, of_task=of_task))


def test_limits_of_programs_are_compared_where_both_results_name_them(tmp_path: Path) -> None:
    """Null is a limit of processor time, that of the package; an older version's results name none."""
    none, minute, old = (
        write_run(tmp_path / name, {"own/x": samples_of([1, 0, 1])}, of_task={"profile": {**PROFILE, **limits}})
        for name, limits in (("none", {"cpu_seconds": None}), ("minute", {"cpu_seconds": 60.0}), ("old", {}))
    )
    with pytest.raises(InputError, match=r"own/x: its rule cpu_seconds differs: None and 60\.0"):
        compared(none, minute)
    assert compared(old, minute).tasks[0].difference.value == compared(none, old).tasks[0].difference.value == 0


def test_what_follows_from_the_model_is_noted_not_refused(tmp_path: Path) -> None:
    """Its BOS and window, its dtype; fewer shots where its tokenizer has no room; no digests in an old run."""
    whole, profile = samples_of([1, 0, 1], num_shots=[5, 5, 5]), {**PROFILE, "max_length": 99, "bos_token": "<|bos|>"}
    first = write_run(tmp_path / "a", {"own/x": whole})
    fewer = samples_of([1, 0, 1], num_shots=[5, 4, 5])
    fewer[1]["prompt_sha256"] = "f" * 16
    second = write_run(tmp_path / "b", {"own/x": fewer}, of_task={"profile": profile}, config={"dtype": "bfloat16"})
    undigested = [{k: v for k, v in sample.items() if k != "prompt_sha256"} for sample in samples_of([1, 0, 1])]
    old = write_run(tmp_path / "old", {"own/x": undigested})
    for other, parts in (
        (
            second,
            (
                "bos_token is declared in a and <|bos|> in b",
                "is 512 in a and 99 in b",
                "differs: float32 in a and bfloat16 in b",
            ),
        ),
        (old, ("has no digests",)),
    ):
        notes = "\n".join(compared(first, other).notes)
        assert all(part in notes for part in parts), notes


def test_what_a_comparison_says_is_true_of_it_turned(tmp_path: Path) -> None:
    samples = {"own/x": samples_of([1, 0, 1]), "own/y": samples_of([1, 1, 0])}
    first = write_run(tmp_path / "a", {**samples, "own/z": samples_of([1])}, config={"limit": 5})
    second = write_run(tmp_path / "b", samples, of_task={"profile": {**PROFILE, "max_length": 99}})
    with changed(second) as results:
        results["tasks"]["own/x"]["profile"]["num_fewshot"] = 0
    back, there = turned(compared(first, second)), compared(second, first)
    assert back.refused == there.refused == {"own/x": "its rule num_fewshot differs: 0 and 5"}
    assert sorted(back.notes) != sorted(there.notes), "they name the runs"
    assert all("in a and" in note or note.startswith("only in a: own/z") for note in back.notes), back.notes


def test_holms_family_is_the_main_metrics_of_all_tasks(tmp_path: Path) -> None:
    """Two tasks, whatever their main metrics are called: the smaller p-value counts twice."""
    runs = []
    for name, right, bits in (("a", [0] * 6, 1.0), ("b", [1] * 6, 2.0)):
        samples = {"own/x": samples_of(right), "own/y": samples_of([1] * 9, bits=[bits] * 9)}
        runs.append(write_run(tmp_path / name, samples))
        with changed(runs[-1]) as results:
            results["tasks"]["own/y"]["main"] = "bits_per_byte"
    x, y = compared(*runs).tasks
    assert (x.metric, y.metric) == ("accuracy", "bits_per_byte")
    # McNemar; all signs flipped
    assert (x.difference.p_value, y.difference.p_value) == pytest.approx((2 / 2**6, 2 / 2**9))
    assert (x.adjusted, y.adjusted) == pytest.approx((2 / 2**6, 2 * 2 / 2**9))


def test_runs_with_other_main_metrics(tmp_path: Path) -> None:
    """Each metric is compared; no number that stands for the whole task is."""
    samples = {"own/x": samples_of([1, 0, 1, 1], bits=[1.0] * 4)}
    runs = [write_run(tmp_path / name, samples, {"c": composite(0.5, {"own/x": 1.0})}) for name in "ab"]
    assert [each.is_main for each in compared(*runs).tasks] == [True, False]
    with changed(runs[1]) as results:
        results["tasks"]["own/x"]["main"] = "bits_per_byte"
    computed = compared(*runs)
    assert [(each.metric, each.is_main) for each in computed.tasks] == [("accuracy", False), ("bits_per_byte", False)]
    assert computed.refused == {"own: c": "the main metric of own/x differs in the two runs"}


def test_metrics_that_cannot_be_compared(tmp_path: Path) -> None:
    a, b = samples_of([1, 0, 1, 1]), samples_of([1, 1, 1, 0])
    for sample in (*a, *b):
        sample["metrics"]["bits_per_token"] = 2.5
    first, second = write_run(tmp_path / "a", {"own/x": a}), write_run(tmp_path / "b", {"own/x": b})
    assert len(compared(first, second, metrics=("bits_per_token",)).tasks) == 1
    with changed(second) as results:
        results["checkpoint"]["tokenizer"] = "another"
        results["tasks"]["own/x"]["metrics"]["mcc"] = {"value": 0.4, "stderr": 0.1, "ci95": [0.2, 0.6]}
    computed = compared(first, second, metrics=("accuracy", "bits_per_token", "mcc"))
    assert [each.metric for each in computed.tasks] == ["accuracy"]
    assert "the tokenizers differ" in computed.refused["own/x bits_per_token"]
    assert "no metric of that name, expected one of accuracy" in computed.refused["own/x mcc"]
    with changed(second) as results:
        results["tasks"]["own/x"]["metrics"]["accuracy"]["value"] = 0.123  # no mean of the examples
    with pytest.raises(InputError, match="a number over all examples"):
        compared(first, second)


def test_categories_clusters_and_documents(tmp_path: Path) -> None:
    """The difference is that of the task's own number: a mean of means, or bits of all over bytes of all."""
    categories, clusters = ["a", "b", "b", "b"], ["s", "s", "t", "t"]
    macro, clustered, documents = [], [], []
    for name, right, nlls in (("a", [1, 1, 0, 0], [7.0, 14.0]), ("b", [0, 1, 1, 0], [6.0, 10.0])):
        samples = samples_of(right, category=categories)
        of_task = {"profile": {**PROFILE, "categories": "macro"}}
        macro.append(write_run(tmp_path / f"macro {name}", {"own/x": samples}, of_task=of_task))
        with changed(macro[-1]) as results:
            results["tasks"]["own/x"]["metrics"]["accuracy"]["value"] = (right[0] + sum(right[1:]) / 3) / 2
        right = [1, 1, 0, 0] if name == "a" else [0, 0, 1, 1]
        clustered.append(write_run(tmp_path / f"cluster {name}", {"own/x": samples_of(right, cluster=clusters)}))
        metrics = [{"bits_per_byte": nll / math.log(2) / size} for nll, size in zip(nlls, (10, 30), strict=True)]
        samples = samples_of(
            [0, 0],
            total_nll=nlls,
            num_bytes=[10, 30],
            scored_tokens=[3, 9],
            doc_id="xy",
            text_sha256="xy",
            metrics=metrics,
        )
        documents.append(write_run(tmp_path / f"text {name}", {"text/x": samples}, of_task={"main": "bits_per_byte"}))
        with changed(documents[-1]) as results:
            results["tasks"]["text/x"]["metrics"]["bits_per_byte"]["value"] = sum(nlls) / math.log(2) / 40
    assert compared(*macro).tasks[0].difference.value == pytest.approx((-1 + 1 / 3) / 2, abs=FLOAT64)
    assert compared(*clustered).tasks[0].difference.method == "sign flips of clusters"
    assert compared(*documents).tasks[0].difference.value == pytest.approx(-5 / math.log(2) / 40, abs=FLOAT64)


def test_composites_have_the_error_of_pairs(tmp_path: Path) -> None:
    y, weights = samples_of([1, 0] * 50), {"own/x": 0.5, "own/y": 0.5}
    runs = []
    for name, x, value, half in (("a", [1, 1, 0, 0] * 25, 0.5, 0.06), ("b", [1, 1, 1, 0] * 25, 0.625, 0.08)):
        composites = {"BOTH": composite(value, weights, half), "PART": composite(None, {}, missing=["own/z"])}
        runs.append(write_run(tmp_path / name, {"own/x": samples_of(x), "own/y": y}, composites))
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
    def run(name: str, num: int = 20, weight: float = 1.0, **more: Any) -> Path:
        composites = {"ALL": composite(0.5, {"own/x": weight}, **more)}
        return write_run(tmp_path / name, {"own/x": samples_of([1, 0] * num)}, composites)

    first = run("a")
    for other, sentence in (
        (run("longer", num=30), "own/x: not every example has a value in both runs"),
        (run("weight", weight=0.5), "it averages other tasks, or weighs them otherwise"),
        (run("metric", metric="bits_per_byte"), "it averages other tasks, or weighs them otherwise"),
    ):
        computed = compared(first, other)
        assert computed.composites == (), other.name
        assert sentence in computed.refused["own: ALL"]


def test_a_run_that_stopped_by_its_scores_has_no_p_value(tmp_path: Path) -> None:
    sampled = {"sampled": {"examples": 30, "of": 90, "how": "--until=decided", "seed": 0, "interval": [0, 1]}}
    first = write_run(tmp_path / "a", {"own/x": samples_of([0] * 30)})
    computed = compared(first, write_run(tmp_path / "b", {"own/x": samples_of([1] * 30)}, of_task=sampled))
    (task,) = computed.tasks
    assert (task.difference.value, math.isnan(task.difference.p_value), math.isnan(task.adjusted)) == (1.0, True, True)
    assert "b stopped when it knew enough (--until), so there are no p-values: own/x" in computed.notes


def test_what_the_command_prints_and_writes(tmp_path: Path, miron) -> None:
    a, b, c = (
        write_run(tmp_path / name, {"own/x": samples_of(correct, bits=bits)})
        for name, correct, bits in (
            ("a", [0] * 40, [1.0, math.nan] + [1.0] * 38), ("b", [0, 1] * 20, [2.0] * 40), ("c", [0] * 40, None)
        )
    )  # fmt: skip
    ran = miron("compare", str(a), str(b), str(c), f"--json={tmp_path / 'out.json'}")
    assert ran.status == 0, ran.err
    for part in ("b (second) against a (first): differences are second less first",
                 "+0.5000", "<.0001*", "1 of 1 compared tasks moved by more than chance", "  own/x: b 1, 3, 5",
                 "c (second) against a",
                 "own/x accuracy: every example is the same in both runs",
                 "own/x bits_per_byte: 1 examples have no value in one of the runs"):  # fmt: skip
        assert part in ran.out, ran.out
    first, second = json.loads((tmp_path / "out.json").read_text())
    assert first["tasks"][0]["only_second"] == list(range(1, 40, 2))
    assert second["tasks"][0]["difference"]["p_value"] == 1.0
    one = [write_run(tmp_path / name, {"own/x": samples_of([1], bits=[bits])}) for name, bits in (("d", 1), ("e", 2))]
    assert "one example, or one cluster, has no deviation" in miron("compare", *map(str, one)).out


def test_when_it_would_have_been_decided(tmp_path: Path, miron) -> None:
    a, b = (
        write_run(tmp_path / name, {"own/x": samples_of(x), "own/y": samples_of(y)})
        for name, x, y in (("a", [0] * 300, [0, 1] * 150), ("b", [1] * 300, [1, 0] * 150))
    )
    ran = miron("compare", str(a), str(b), "--until=decided", f"--json={tmp_path / 'out.json'}")
    assert ran.status == 0, ran.err
    rows = [line.replace("│", " ").split() for line in ran.out.splitlines() if line.count("│") == 5]
    assert ["own/x", "100", "300", "b"] in rows, "after the first round"
    assert ["own/y", "300", "300", "neither"] in rows, "a tie"
    assert "in the order of --seed=0" in ran.out
    (document,) = json.loads((tmp_path / "out.json").read_text())
    assert document["decided"][0] == {"task": "own/x", "examples": 100, "of": 300, "better": "b"}
    ran = miron("compare", str(a), str(b), "--until=ci<=0.1")
    assert (ran.status, "compare knows decided alone" in ran.err) == (2, True)


def test_training_runs_have_noise_and_overtake(tmp_path: Path, miron) -> None:
    def run(name: str, rights: dict[int, int]) -> str:
        steps = {step: {"own/x": samples_of([1] * n + [0] * (20 - n))} for step, n in rights.items()}
        return str(write_training_run(tmp_path / name, steps))

    a, b = run("a", {100: 5, 200: 9, 300: 10, 400: 11}), run("b", {100: 8, 200: 12, 300: 14})
    for runs, parts in (
        # the last three: .45 .5 .55: mean .5, on a line; over examples sqrt(.55 .45 / 20) = .1112
        ([a], ("training noise over the last 3 checkpoints", "0.5000", "0.0000", "0.1112")),
        # means .5 and .5667: signal .0667 / .5333 = .125; noise of b, .4 .6 .7 about a line of slope .15: residuals
        # -.0167 .0333 -.0167, deviation .0408, by the mean .0720; b is above .55 at step 200
        ([a, b], ("b overtakes at step", "200", "0.1250", "0.0408", "1.7351")),
    ):
        ran = miron("compare", *runs, "--last=3")
        assert ran.status == 0, ran.err
        assert all(part in ran.out for part in parts), ran.out


def test_small_runs_decide_as_large_ones_do_in_a_share_of_the_pairs(tmp_path: Path, miron) -> None:
    """Three recipes; large ones have 4, 6 and 8 of 10 right.  On x the small ones have 3, 5 and 4: they order a, b and
    a, c so, and b, c not.  On y b and c tie: half a pair."""

    def run(name: str, x: int, y: int) -> str:
        rows = {task: samples_of([1] * n + [0] * (10 - n)) for task, n in (("own/x", x), ("own/y", y))}
        return str(write_run(tmp_path / name, rows))

    small = [run("a", 3, 3), run("b", 5, 5), run("c", 4, 5)]
    large = [run("la", 4, 4), run("lb", 6, 6), run("lc", 8, 8)]
    ran = miron("compare", *small, f"--larger={','.join(large)}")
    assert ran.status == 0, ran.err
    rows = [line.split() for line in ran.out.splitlines() if "accuracy" in line and line.strip("│ ")[:5] == "own/x"]
    assert any("0.67" in row and "3" in row for row in rows), ran.out
    assert "0.83" in ran.out
    with changed(Path(large[2])) as results:
        results["tasks"]["own/y"]["limit"] = 10
    ran = miron("compare", *small, f"--larger={','.join(large)}")
    assert ("0.67" in ran.out, "0.83" in ran.out) == (True, False), "y has another limit in one run"
    refused = miron("compare", *small, f"--larger={large[0]}")
    assert (refused.status, "--larger names 1 runs for 3 runs" in refused.err) == (2, True)


def test_curves_say_how_far_they_rise_and_when_they_leave_chance(tmp_path: Path) -> None:
    """20 of 40, 30, 28 and 36 of 40 right, chance .5: intervals of 30 and 28 of 40 lie above .5 (.598, .546), that of
    20 does not.  Ranks 1 3 2 4 against 1 2 3 4: rho 1 - 6 * 2 / 60 = .8"""
    rights = {1: 20, 2: 30, 3: 28, 4: 36}
    steps = {step: {"own/x": samples_of([1] * n + [0] * (40 - n))} for step, n in rights.items()}
    (task,) = training_noise(read_runs([str(write_training_run(tmp_path / "a", steps))]), 5)
    assert task.monotonicity == (pytest.approx(0.8, abs=FLOAT64),)
    assert task.above_chance == (2,)


@pytest.mark.parametrize("metric", ["bits_per_byte", "first_token_rank", "score"])
def test_a_run_overtakes_by_the_better_value(tmp_path: Path, metric: str) -> None:
    """Against 2 at the end of the other run: fewer bits or a lower rank are better, of any other metric more is."""

    def run(name: str, values: list[float]) -> Run:
        samples = [{"own/x": samples_of([1, 1], metrics=[{metric: value}] * 2)} for value in values]
        folder = write_training_run(tmp_path / name, dict(enumerate(samples, 1)))
        for path in folder.rglob("results.json"):
            with changed(path.parent) as results:
                results["tasks"]["own/x"]["main"] = metric
        return read_runs([str(folder)])[0]

    (task,) = training_noise([run("a", [4.0, 2.0]), run("b", [2.5, 1.0, 3.0])], 5)
    assert (task.metric, task.overtakes) == (metric, 1 if metric == "score" else 2)


def test_a_composites_error_comes_from_its_smallest_task(tmp_path: Path, miron) -> None:
    """CORE's arithmetic in small: .5 of 100 and of 400 examples, equal weights: variances 4 to 1."""
    steps = {step: {"own/x": samples_of([1, 0] * 50), "own/y": samples_of([1, 0] * 200)} for step in (1, 2)}
    run = write_training_run(tmp_path / "a", steps)
    for path in run.rglob("results.json"):
        with changed(path.parent) as results:
            results["suites"]["own"]["composites"] = {"BOTH": composite(0.5, {"own/x": 0.5, "own/y": 0.5})}
    ran = miron("compare", str(run))
    assert ran.status == 0, ran.err
    assert "own: BOTH: of its variance over examples x 80%, y 20%" in ran.out


def test_an_unfinished_training_run_counts_with_what_is_done(tmp_path: Path, miron) -> None:
    done = write_run(tmp_path / "a" / "step_200", {"own/x": samples_of([1, 0, 1])}, step=200).parent
    (done / "journal").mkdir()
    ran = miron("compare", str(write_run(tmp_path / "b", {"own/x": samples_of([1, 1, 1])})), str(done))
    assert ran.status == 0, ran.err
    assert "a is unfinished: of its checkpoints 1 are scored" in ran.out


def test_bad_folders_are_one_sentence(tmp_path: Path, miron) -> None:
    two = {"own/x": samples_of([1, 0])}
    good, same, bare, torn = (write_run(tmp_path / name, two) for name in ("good", "same", "bare", "torn"))
    write_run(tmp_path / "other", {"own/y": samples_of([1, 0])})
    write_run(tmp_path / "schema", two, schema=2)
    write_run(tmp_path / "later", {"own/x": samples_of([1, 0], row=[7, 8])})
    for name in ("unfinished/journal", "broken", "elsewhere", "empty"):
        (tmp_path / name).mkdir(parents=True)
    for name, text in (("broken/results.json", "["), ("file", ""), ("elsewhere/notes.txt", "")):
        (tmp_path / name).write_text(text)
    (bare / "samples/own/x.jsonl").unlink()
    (torn / "samples/own/x.jsonl").write_text('{"id": 0, "row": 0}\n{"id"')
    for name in ("named", "other_named"):  # a damaged results.json: its task is no name of a file
        whole = write_run(tmp_path / name, two) / "results.json"
        whole.write_text(whole.read_text().replace("own/x", "own/" + "x" * 300))
    for arguments, sentence in (
        ("good nowhere", "is not there: name the --output folder"),
        ("good empty", "is empty: name the --output folder"),
        ("good file", "is a file: name the --output folder"),
        ("good elsewhere", "holds no results.json: name the --output folder"),
        ("good unfinished", "holds an unfinished run, without results yet: run the same eval again"),
        ("good broken", "is no results.json"),
        ("good schema", "has schema 2, expected 1: read it with the version that wrote it, 0.1.0"),
        ("good other", "have no task in common: good has own/x, other has own/y"),
        ("good later", "own/x: the runs have no example of it in common"),
        ("good bare", "x.jsonl is missing"),
        ("good torn", "line 2 is no sample"),
        ("named other_named", "cannot be read (File name too long): copy the whole folder"),
        ("good good", "is named twice"),
        ("good", "name a second one to compare it with"),
        ("", "compare wants the output folders"),
    ):
        ran = miron("compare", *(str(tmp_path / name) for name in arguments.split()))
        assert (ran.status, ran.err.count("\n")) == (2, 1), (arguments, ran.err)
        assert sentence in ran.err, ran.err
    for flag, sentence in (
        (f"--json={tmp_path / 'no' / 'x'}", "cannot be written"),
        ("--metric=acuracy", "--metric: no task has 'acuracy', expected one of accuracy"),
    ):
        ran = miron("compare", str(good), str(same), flag)
        assert (ran.status, sentence in ran.err) == (2, True), ran.err
    ran = miron("compare", str(good), str(tmp_path / "other"), str(same))
    assert (ran.status, "same (second) against good (first)" in ran.out) == (2, True), "what can be compared is printed"
    assert "good and other have no task in common" in ran.err


SUBSET_RIGHT = {  # of a, of b: right of ten at each of three steps
    "own/decides": ([2, 3, 2], [7, 6, 7]),
    "own/noisy": ([2, 6, 3], [4, 7, 3]),
    "own/cheap": ([3, 4, 3], [6, 7, 6]),
    "own/same": ([5, 5, 5], [5, 5, 5]),
}
TOKENS = {"own/decides": 1000, "own/noisy": 10, "own/cheap": 300, "own/same": 1}


def training_runs(folder: Path) -> list[str]:
    runs = []
    for i, name in enumerate("ab"):
        steps = {
            step: {
                task: samples_of([1] * right[i][step] + [0] * (10 - right[i][step]))
                for task, right in SUBSET_RIGHT.items()
            }
            for step in range(3)
        }
        runs.append(str(write_training_run(folder / name, steps)))
        with changed(folder / name) as results:
            results["speed"]["tokens_by_task"] = TOKENS
    return runs


@pytest.mark.parametrize(
    ("budget", "expected"),
    [(5000, ["decides", "cheap", "noisy"]), (1010, ["decides", "noisy"]), (999, ["cheap", "noisy"]), (10, ["noisy"])],
)
def test_a_subset_is_the_tasks_that_decide_most_for_its_tokens(
    tmp_path: Path, miron, budget: int, expected: list[str]
) -> None:
    path = tmp_path / "subset.json"
    ran = miron("compare", *training_runs(tmp_path), f"--subset={path}", f"--budget={budget}")
    assert ran.status == 0, ran.err
    document = json.loads(path.read_text())
    assert document["tasks"] == [f"own/{name}" for name in expected]
    assert document["tokens"] == sum(TOKENS[name] for name in document["tasks"]) <= budget
    assert document["left_out"]["own/same"] == "its signal to noise is not known"  # no checkpoint deviates
    assert f"eval --tasks=@{path}" in ran.out
    if expected[0] == "decides":
        # about a line 2 3 2 and 7 6 7 of ten leave residuals 1/3, 2/3, 1/3, squares 2/3, one degree of freedom: deviation
        # .0816; means .2333 and .6667: signal .4333 / .45 over noise .0816 / .2333
        first = document["chosen"]["own/decides"]
        assert first["signal_to_noise"] == pytest.approx(
            0.43333 / 0.45 / ((2 / 3) ** 0.5 / 10 / 0.23333), rel=METRIC_RELATIVE
        )
        assert first["together"] == pytest.approx(first["signal_to_noise"])


def test_what_a_subset_has_together(tmp_path: Path) -> None:
    """A mean of shares of each task's mean; bits, of which less is better, do not cancel accuracies."""
    runs = read_runs(training_runs(tmp_path))
    chosen = subset(runs, 1300, 5).chosen
    curves = []
    for run in range(2):
        shares = []
        for name in ("own/decides", "own/cheap"):
            values = np.asarray(SUBSET_RIGHT[name])
            shares.append(values[run] / values.mean())
        curves.append(noise(dict(enumerate(np.mean(shares, axis=0)))))
    assert chosen[1].together == pytest.approx(signal_to_noise(curves))
    assert math.isfinite(subset(runs, 1300, 5).all_together)


def test_a_subset_is_refused_without_what_it_wants(tmp_path: Path, miron) -> None:
    runs = training_runs(tmp_path)
    path = tmp_path / "subset.json"
    for words, sentence in (
        ([*runs, f"--subset={path}"], "--subset=FILE and --budget=TOKENS go together"),
        ([*runs, "--budget=5"], "--subset=FILE and --budget=TOKENS go together"),
        (
            [*runs, f"--subset={path}", "--budget=5"],
            "finds no task for --budget=5: own/noisy: its 10 tokens do not fit; it wants",
        ),
        ([*runs, f"--subset={tmp_path}", "--budget=5"], "cannot be written: name a file"),
    ):
        ran = miron("compare", *words)
        assert (ran.status, ran.err.count("\n")) == (2, 1)
        assert sentence in ran.err
    with changed(tmp_path / "a") as results:
        del results["speed"]["tokens_by_task"]
    assert "the results of a do not say its tokens" in subset_left_out(runs)
    assert not path.exists()


def subset_left_out(runs: list[str]) -> str:
    with pytest.raises(InputError) as error:
        subset(read_runs(runs), 1e9, 5)
    return str(error.value)
