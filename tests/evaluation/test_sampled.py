"""Runs of fewer examples: which ones, that their scores are those of a whole run, what results say, what is refused."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import miron_jax
from miron_jax.errors import InputError
from miron_jax.evaluation.sampling import parse_until
from miron_jax.runtime.journal import FOLDER
from tests.support.command import in_process, samples
from tests.support.kept_runs import same_results
from tests.support.run_folders import changed
from tests.support.tolerances import CONTINUATION

pytestmark = pytest.mark.slow

WORDS = ["sun", "moon", "tree", "river", "stone", "bird", "cloud", "grass", "sand", "wind"]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks of a user's own, of 400 and of 30 examples, and a group of both."""
    folder, draws = tmp_path_factory.mktemp("tasks"), np.random.default_rng(0)
    for name, size in (("large", 400), ("small", 30)):
        rows = []
        for _ in range(size):
            words = [WORDS[i] for i in draws.integers(0, len(WORDS), 4)]
            options = [words[1], f"{words[2]} {words[3]}"]
            rows.append({"q": f"A {words[0]} and", "options": options, "a": int(draws.integers(2))})
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        (folder / f"{name}.yaml").write_text(
            f"task: {name}\ndata: {name}.jsonl\nquestion: q\nchoices: options\ngold: a\nnum_fewshot: 2\nbaseline: 0.5\n"
        )
    (folder / "groups.yaml").write_text("groups:\n  both: {of: [large, small], rescaled: true}\n")
    return folder


class Ran:
    """The results and samples of one eval.  Its scores are in the journal of `known`, a run of the same model, if given."""

    def __init__(self, tasks: Path, output: Path, *flags: str, known: Path | None = None):
        if known is not None:
            shutil.copytree(known / FOLDER, output / FOLDER, dirs_exist_ok=True)
        command = ("eval", "--model=demo", "--steps=latest", f"--task_path={tasks}", f"--output={output}", *flags)
        self.ran, self.output = in_process(*command, "--compilation_cache="), output

    @property
    def results(self) -> Any:
        assert self.ran.status == 0, self.ran.err
        return json.loads((self.output / "results.json").read_text())

    def samples(self, task: str) -> dict[int, Any]:
        return samples_in(self.output, task)


def of_python(tasks: Path, **options: Any) -> miron_jax.Evaluator:
    return miron_jax.Evaluator("demo", tasks=["own"], task_path=(str(tasks),), steps="latest", **options)


def samples_in(output: Path, task: str) -> dict[int, Any]:
    return {sample["id"]: sample for sample in samples(output, f"own/{task}")}


@pytest.fixture(scope="module")
def whole(tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run's folder."""
    run = Ran(tasks, tmp_path_factory.mktemp("whole") / "out")
    assert run.results["tasks"]["own/large"]["n"] == 400
    return run.output


def another(whole: Path, output: Path, changes: Callable[[dict[str, Any]], Any], *names: str) -> Path:
    """The whole run as it would be with these changes to each sample of these tasks."""
    shutil.copytree(whole, output, ignore=shutil.ignore_patterns(FOLDER))
    for name in names or ("large", "small"):
        lines = [json.dumps(changes(sample)) for sample in samples_in(whole, name).values()]
        (output / "samples" / "own" / f"{name}.jsonl").write_text("\n".join([*lines, ""]))
    with changed(output) as results:
        del results["samples"]  # digests of the samples as they were
    return output


def with_accuracy(value: float | None, only: int | None = None) -> Callable[[dict[str, Any]], Any]:
    def with_value(sample: dict[str, Any]) -> dict[str, Any]:
        is_meant = only is None or sample["id"] == only
        return {**sample, "metrics": {**sample["metrics"], "accuracy": value}} if is_meant else sample

    return with_value


def check_part_of(run: Ran, whole: Path) -> None:
    """Every example that ran has the prompt and the scores of the whole run."""
    for task in ("large", "small"):
        everything, ids = samples_in(whole, task), list(run.samples(task))
        assert ids == sorted(ids)
        for i, sample in run.samples(task).items():
            assert sample["prompt_sha256"] == everything[i]["prompt_sha256"]
            for a, b in zip(sample["options"], everything[i]["options"], strict=True):
                assert a["logprob"] == pytest.approx(b["logprob"], abs=CONTINUATION)


def test_until_an_interval_is_small(tasks: Path, whole: Path, tmp_path: Path) -> None:
    run = Ran(tasks, tmp_path / "out", "--until=ci<=0.09", known=whole)
    large, small = (run.results["tasks"][f"own/{name}"] for name in ("large", "small"))
    assert 100 < large["n"] == large["sampled"]["examples"] < 400 == large["sampled"]["of"]
    assert small["n"] == small["sampled"]["of"] == 30
    low, high = large["sampled"]["interval"]
    truth = json.loads((whole / "results.json").read_text())["tasks"]["own/large"]["metrics"]["accuracy"]["value"]
    assert high - low <= 0.18
    assert low <= truth <= high
    assert large["sampled"]["how"] == "--until=ci<=0.09"
    check_part_of(run, whole)
    assert set(run.samples("large")) != set(range(large["n"])), "the order is random"
    # No published name, but one that says what it is; its error is for the complete set.
    composites = run.results["suites"]["own"]["composites"]
    assert composites["both"]["value"] is None
    sampled = composites["sampled both"]
    assert sampled["value"] == pytest.approx((large["rescaled"]["value"] + small["rescaled"]["value"]) / 2)
    # small is complete; large has its confidence sequence, rescaled by 1 / (1 - .5)
    assert sampled["stderr"] == pytest.approx((high - low) / 2 / 1.96)
    assert f"own/large: {large['n']} of 400 examples ran" in run.ran.out
    other = Ran(tasks, tmp_path / "other", "--until=ci<=0.09", "--seed=1", known=whole)
    assert set(other.samples("large")) != set(run.samples("large"))


def test_until_a_composite_is_known(tasks: Path, whole: Path, tmp_path: Path) -> None:
    run = Ran(tasks, tmp_path / "out", "--until=both:ci<=0.12", known=whole)
    large, small = (run.results["tasks"][f"own/{name}"] for name in ("large", "small"))
    assert small["n"] == 30
    assert 100 <= large["n"] < 400
    check_part_of(run, whole)


def test_until_a_winner_is_decided(tasks: Path, whole: Path, tmp_path: Path) -> None:
    """Against a run that was always wrong, and one that was always right: soon decided."""
    for value, verdict in ((0.0, "better"), (1.0, "worse")):
        other = another(whole, tmp_path / f"all_{value:g}", with_accuracy(value))
        flags = ("--until=own/large:decided", f"--against={other}")
        run = Ran(tasks, tmp_path / f"out_{value:g}", *flags, known=whole)
        assert run.results["tasks"]["own/large"]["n"] == 100, "the first round"
        assert f"own/large: {verdict} than {other} on this set, after 100 of its 400 examples" in run.ran.out
    evaluator = of_python(tasks, until="own/large:decided", against=str(other))
    results = evaluator.run(step=1)
    same_results(results, run.results)
    assert results["tasks"]["own/large"]["sampled"] == run.results["tasks"]["own/large"]["sampled"]


def test_a_composite_says_who_won(tasks: Path, whole: Path, tmp_path: Path) -> None:
    """Against a run that was always wrong on the large task; the small one is the same."""
    other = another(whole, tmp_path / "other", with_accuracy(0.0), "large")
    run = Ran(tasks, tmp_path / "out", "--until=both:decided", f"--against={other}", known=whole)
    decided = run.results["decided"]
    assert (decided["composite"], decided["winner"]) == ("both", 1)
    # Half of the large task's accuracy, rescaled by 1 / (1 - .5).
    assert decided["difference"] == pytest.approx(run.results["tasks"]["own/large"]["metrics"]["accuracy"]["value"])
    assert 0 < decided["half_width"] <= decided["difference"]
    assert f"both: better than {other} on this set: +" in run.ran.out
    same = Ran(tasks, tmp_path / "same", "--until=both:decided", f"--against={whole}", known=whole)
    assert (same.results["decided"]["winner"], same.results["tasks"]["own/large"]["n"]) == (0, 400)


def test_tasks_that_run_whole_run_once_beside_sampled_ones(tasks: Path, whole: Path, tmp_path: Path) -> None:
    """MIRON's items, a text and completions are computed in the first round alone, however many there are."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("the sun is hot and cold rain falls")
    mixed = Path(shutil.copytree(tasks, tmp_path / "tasks"))
    (mixed / "said.jsonl").write_text("".join(f'{{"q": "{word} is", "a": "{word}"}}\n' for word in WORDS))
    said = "task: said\nkind: generation\ndata: said.jsonl\nquestion: q\nanswer: a\nnum_fewshot: 1\n"
    (mixed / "said.yaml").write_text(said)
    flags = ["--until=own/large:ci<=0.08", "--tasks=own,miron-gen,text", f"--data_dir=text={tmp_path / 'texts'}"]
    run = Ran(mixed, tmp_path / "out", *flags, "--items_per_category=3", known=whole)
    entries = run.results["tasks"]
    assert entries["own/large"]["n"] > 150, "several rounds"
    assert [entries[name]["n"] for name in ("miron-gen/en", "text/a", "own/said")] == [12, 1, 10]
    assert {name for name, entry in entries.items() if "sampled" in entry} == {"own/large", "own/small"}


def test_a_budget_is_kept_and_a_larger_one_contains_it(tasks: Path, whole: Path, tmp_path: Path) -> None:
    chosen = []
    for budget, known in ((1000, None), (3000, whole)):
        run = Ran(tasks, tmp_path / f"{budget}", f"--budget={budget}", f"--against={whole}", known=known)
        assert 0.6 * budget < run.results["speed"]["unique_tokens"] < 1.25 * budget
        check_part_of(run, whole)
        chosen.append({task: set(run.samples(task)) for task in ("large", "small")})
        assert run.results["tasks"]["own/large"]["sampled"]["how"] == f"--budget={budget}"
        if budget == 1000:
            evaluator = of_python(tasks, budget=1000.0, against=str(whole))
            same_results(evaluator.run(), run.results)
    for task in ("large", "small"):
        assert chosen[0][task] <= chosen[1][task]
    assert len(chosen[0]["large"]) < len(chosen[1]["large"])


@pytest.mark.parametrize("text", ["", "ci<0.1", "ci<=2", "ci<=0", "known", "CORE:", "ci<=0.1 of CORE"])
def test_until_is_one_of_two_rules(text: str) -> None:
    with pytest.raises(InputError, match=r"is not understood: expected ci<=0\.01"):
        parse_until(text)
    assert parse_until("core: CORE: ci <= .5e-1")[:2] == ("core: CORE", 0.05)
    assert parse_until("decided")[:2] == ("", None)


def test_flags_that_do_not_go_together(tasks: Path, whole: Path, tmp_path: Path) -> None:
    other = another(whole, tmp_path / "other", lambda sample: {**sample, "prompt_sha256": "0" * 16})
    nan = another(whole, tmp_path / "nan", with_accuracy(None, only=3), "small")
    rules = another(whole, tmp_path / "rules", lambda sample: sample)
    with changed(rules) as results:  # a rule that results leave out at its default
        results["tasks"]["own/large"]["profile"]["joined_delimiter"] = "\n"
    main = another(whole, tmp_path / "main", lambda sample: sample)
    with changed(main) as results:
        results["tasks"]["own/large"]["main"] = "bits_per_byte"
    for flags, sentence in (
        (["--until=known"], "--until='known' is not understood"),
        (["--until=decided"], "--until=decided wants the run to compare with: add --against=RUN"),
        (["--until=ci<=0.1", "--budget=100"], "--until and --budget both say"),
        (["--budget=0"], "--budget is 0, expected more than 0"),
        (["--until=CORE:ci<=0.1"], "CORE is no task of this run whose examples may be chosen, nor a "
         "composite: expected one of own/large, own/small, both"),
        (["--until=decided", f"--against={other}"], "its run asked own/large otherwise"),
        (["--until=own/small:decided", f"--against={nan}"], "has no score for example 3 of own/small"),
        (["--until=decided", f"--against={rules}"], r"its rule joined_delimiter differs: '\n' and None"),
        (["--until=decided", f"--against={main}"], "its main metric differs: bits_per_byte and accuracy"),
        (["--until=both:ci<=0.1", "--tasks=own/large"], "both wants tasks that are not in this run"),
    ):  # fmt: skip
        run = Ran(tasks, tmp_path / "out", *flags)
        options = dict(flag.removeprefix("--").split("=", 1) for flag in flags if not flag.startswith("--tasks"))
        if len(options) == len(flags):
            budget = {"budget": float(options["budget"])} if "budget" in options else {}
            with pytest.raises(InputError, match=re.escape(sentence)):
                of_python(tasks, **options | budget).run()
        program = "miron-jax eval" if "--budget=0" in flags else "miron-jax"  # a bound of a flag, or of flags together
        last = run.ran.err.splitlines()[-1]
        assert (run.ran.status, last.startswith(f"{program}: ")) == (2, True), run.ran.err
        assert sentence in run.ran.err, run.ran.err
    with pytest.raises(InputError, match="against is a run that until and budget compare with"):
        of_python(tasks, against=str(whole))
