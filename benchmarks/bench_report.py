"""How long do report and compare take over full runs, and is the page quick in a browser?

    python benchmarks/bench_report.py --data_dir=BUNDLE       # two minutes on two cores

No model runs: two folders are written as eval would, with the questions and choices of the bundle's
files, of all tasks of CORE and the Gauntlet, and seeded log-probabilities.  Timed are `report
--html` of one, in headless Chromium the time until the list of examples is drawn and until an
example in its middle is open, and `compare` of both.  The last line is JSON.
"""

import json
import math
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from absl import flags
from common import environment, run, say

from miron_jax.metrics.choices import ExampleScore, score_choices, score_continuation
from miron_jax.prompting.prompts import TAIL, digest_of
from miron_jax.report.compare.runs import compare
from miron_jax.report.html.page import page_of
from miron_jax.results.document import example_line, run_json, strict_json
from miron_jax.results.records import RunResult, SuiteResult, TaskData, TaskResult
from miron_jax.results.run_folder import read_runs
from miron_jax.results.samples import AskedPrompt, ExampleResult, Option
from miron_jax.statistics.estimate import estimates
from miron_jax.tasks import core
from miron_jax.tasks.gauntlet import suite as gauntlet

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_integer("examples", 100_000, "Examples of a run.", lower_bound=1)
flags.DEFINE_string("chromium", "chromium", "The browser.")

BYTES_A_TOKEN = 4


def examples_of(path: Path) -> Iterator[tuple[list[str], list[str], int | None]]:
    """Contexts, continuations and the right one of each row of a file."""
    for line in path.read_text(encoding="utf-8").strip().split("\n"):
        row = json.loads(line)
        if "choices" in row:
            yield [row["query"]] * len(row["choices"]), row["choices"], row["gold"]
        elif "context_options" in row:
            yield (
                row["context_options"],
                [row["continuation"]] * len(row["context_options"]),
                row["gold"],
            )
        elif "continuation" in row:
            yield [row["context"]], [row["continuation"]], None


def samples_of(
    path: Path, draws: np.random.Generator, more: int
) -> Iterator[tuple[ExampleScore, ExampleResult]]:
    """Scores and samples of the rows of a file, repeated `more` times."""
    for i, (contexts, texts, gold) in enumerate([*examples_of(path)] * more):
        num_tokens = [max(1, len(text.encode()) // BYTES_A_TOKEN) for text in texts]
        logprobs = [-draws.exponential(1.5, size).astype(np.float32) for size in num_tokens]
        if gold is None:
            score = score_continuation(
                logprobs[0], np.asarray([0, 1])[draws.integers(0, 2, len(logprobs[0]))], texts[0]
            )
        else:
            score = score_choices(logprobs, texts, gold)
        yield (
            score,
            ExampleResult(
                id=i,
                row=i,
                asked=AskedPrompt(
                    prompt=contexts[0][-TAIL:], prompt_sha256=digest_of(*contexts, *texts)
                ),
                gold=gold,
                prediction=score.prediction,
                correct=score.correct,
                options=tuple(
                    Option(
                        text=text,
                        logprob=float(each.sum()),
                        num_tokens=len(each),
                        token_logprobs=tuple(each.tolist()),
                        greedy=False,
                    )
                    for text, each in zip(texts, logprobs, strict=True)
                ),
                metrics=score.metrics,
            ),
        )


def write_run(folder: Path, files: Sequence[tuple[str, Path]], seed: int) -> int:
    """A run's folder with `FLAGS.examples` examples over its tasks; returns how many."""
    draws, results, num_written = np.random.default_rng(seed), {}, 0
    rows = sum(len(path.read_text(encoding="utf-8").strip().split("\n")) for _, path in files)
    more = math.ceil(FLAGS.examples / rows)
    for name, path in files:
        pairs = [*samples_of(path, draws, more)][: max(0, FLAGS.examples - num_written)]
        num_written += len(pairs)
        results[name] = TaskResult(
            n=len(pairs),
            metrics=estimates([score for score, _ in pairs]),
            baselines={"random": 0.25, "human": None},
            main="accuracy",
            profile={"num_fewshot": 10, "categories": "pooled"},
            data=TaskData(path.name, state="as published"),
            kind="multiple_choice",
        )
        target = folder / "samples" / f"{name}.jsonl"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"".join(example_line(example) for _, example in pairs))
    suites = {suite: SuiteResult({}) for suite in ("core", "gauntlet")}
    result = RunResult(config={"model": folder.name}, tasks=results, suites=suites)
    (folder / "results.json").write_text(strict_json(run_json(result)))
    return num_written


def in_browser(file: Path) -> dict[str, float]:
    """Seconds until the list is drawn, and until an example in the middle of the largest task is
    open."""
    from playwright.sync_api import sync_playwright

    drawn = "document.querySelector('#list button')?.textContent.length > 3"
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which(FLAGS.chromium), args=["--no-sandbox"]
        )
        page = browser.new_page()
        start = time.perf_counter()
        page.goto(file.as_uri())
        page.wait_for_function(drawn)
        until_drawn = time.perf_counter() - start
        start = time.perf_counter()
        page.evaluate(
            "document.getElementById('list').scrollTop = "
            "document.getElementById('spacer').offsetHeight / 2"
        )
        page.wait_for_timeout(50)
        page.wait_for_function(drawn)
        page.locator("#list button").nth(6).click()
        page.wait_for_function("document.querySelector('#detail pre') !== null")
        until_open = time.perf_counter() - start
        browser.close()
    return {"drawn_seconds": until_drawn, "opened_seconds": until_open}


def main(arguments: Sequence[str]) -> None:
    folder = Path(FLAGS.data_dir) / "eval_data"
    files = [
        (task.name, task.file.below(folder))
        for suite in (core, gauntlet)
        for task in suite.SUITE.tasks
    ]
    files = [
        (name, path) for name, path in files if path.is_file() and next(examples_of(path), None)
    ]
    with tempfile.TemporaryDirectory() as scratch:
        runs = [Path(scratch) / name for name in ("a", "b")]
        num_examples = max(write_run(folder, files, seed) for seed, folder in enumerate(runs))
        start = time.perf_counter()
        page = page_of(read_runs([str(runs[0])])).encode()
        report_seconds = time.perf_counter() - start
        (Path(scratch) / "out.html").write_bytes(page)
        say(
            f"{num_examples} examples, {len(files)} tasks: report {report_seconds:.1f} s, "
            f"{len(page) / 1e6:.1f} MB"
        )
        browser = in_browser(Path(scratch) / "out.html")
        say(
            f"browser: drawn after {browser['drawn_seconds']:.2f} s, opened after "
            f"{browser['opened_seconds']:.2f} s"
        )
        start = time.perf_counter()
        first, second = read_runs([str(folder) for folder in runs])
        comparison = compare(first, second)
        compare_seconds = time.perf_counter() - start
        say(f"compare of {len(comparison.tasks)} numbers: {compare_seconds:.1f} s")
    say(
        json.dumps(
            {
                "benchmark": "bench_report",
                "examples": num_examples,
                "report_seconds": report_seconds,
                "megabytes": len(page) / 1e6,
                **browser,
                "compare_seconds": compare_seconds,
                "environment": environment(),
            }
        )
    )


if __name__ == "__main__":
    run(main)
