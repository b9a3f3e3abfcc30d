"""How long do report and compare take over full runs, and is the page quick in a browser?

    python benchmarks/bench_report.py --data_dir=BUNDLE       # four minutes on two cores

No model runs: two folders are written as eval would, with the prompts of the bundle's files, of the
tasks of CORE and the Gauntlet that choose or continue, and seeded log-probabilities.  Timed are
`report --html` of one, with whole prompts and without; in headless Chromium the second frame after
the page is asked for, until an example in its middle is open, and frames while the list scrolls;
`compare` of both; and the page of two training runs of 20 checkpoints and 57 tasks.  Seconds of
processor are stated beside those of `json.dumps` of 128,050 numbers, as machines differ; a second
for imports is apart.  The last line is JSON.
"""

import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import flags
from common import environment, run, say

sys.path.append(str(Path(__file__).parents[1]))  # tests/ makes training runs

from miron_jax.config import RunConfig
from miron_jax.definitions.rules import printed
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.task_kinds.interface import LoadedTask
from miron_jax.evaluation.task_kinds.kinds import kind_of
from miron_jax.metrics.choices import ExampleScore, score_choices, score_continuations
from miron_jax.metrics.spans import Spans
from miron_jax.prompting.prompts import Prompt, without_shots
from miron_jax.report.compare.runs import compare
from miron_jax.report.html.page import page_of
from miron_jax.results.document import config_json, example_line, run_json, strict_json
from miron_jax.results.records import RunResult, SuiteResult, TaskData, TaskResult
from miron_jax.results.run_folder import read_runs
from miron_jax.results.samples import AskedPrompt, ExampleResult, Option
from miron_jax.statistics.estimate import estimates

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Eval bundle.", required=True)
flags.DEFINE_integer("examples", 100_000, "Examples of a run.", lower_bound=1)
flags.DEFINE_string("chromium", "chromium", "The browser.")

KINDS = ("multiple_choice", "schema", "language_modeling")
BYTES_A_TOKEN = 4
NUMBERS = 128_050
FRAMES = """async () => {
  const list = document.getElementById("list"), start = performance.now();
  let frames = 0, longest = 0, last = start;
  while (performance.now() - start < 2000) {
    list.scrollTop += 40;
    await new Promise(requestAnimationFrame);
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
    frames++;
  }
  return [1000 * frames / (performance.now() - start), longest / 1000];
}"""
SECOND_FRAME = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(
  () => done(performance.now() / 1000))))"""
# until the example of the 7th row that is seen is open
OPENED = """async () => {
  const list = document.getElementById("list"), start = performance.now();
  list.scrollTop = document.getElementById("spacer").offsetHeight / 2;
  while (list.querySelectorAll("button > span").length < 30) {
    await new Promise(requestAnimationFrame);
  }
  list.querySelectorAll("button")[6].click();
  while (!document.querySelector("#detail pre")) await new Promise(requestAnimationFrame);
  return (performance.now() - start) / 1000;
}"""


class Written(NamedTuple):
    """A page."""

    processor_seconds: float
    megabytes: float


def scored(prompt: Prompt, draws: np.random.Generator) -> tuple[ExampleScore, ExampleResult]:
    """A score and a sample of a prompt, from drawn log-probabilities."""
    kept = without_shots(prompt)
    texts = kept.continuations
    logprobs = []
    for text in texts:
        size = max(1, len(text.encode()) // BYTES_A_TOKEN)
        logprobs.append(-draws.exponential(1.5, size).astype(np.float32))
    if prompt.gold is None:
        ranks = draws.integers(0, 2, len(logprobs[0]))
        [score] = score_continuations(texts, Spans.of_each(logprobs, [ranks]))
    else:
        score = score_choices(logprobs, texts, prompt.gold)
    options = []
    for text, each in zip(texts, logprobs, strict=True):
        options.append(
            Option(
                text=text,
                logprob=float(each.sum()),
                num_tokens=len(each),
                token_logprobs=each.tolist(),
                token_bytes=tuple(_lengths(len(text.encode()), len(each), draws)),
                greedy=False,
            )
        )
    sample = ExampleResult(
        id=prompt.id,
        row=prompt.row,
        asked=AskedPrompt(prompt=kept.tail, prompt_sha256=kept.digest, category=prompt.category),
        gold=prompt.gold,
        prediction=score.prediction,
        correct=score.correct,
        options=tuple(options),
        metrics=score.metrics,
    )
    return score, sample


def _lengths(num_bytes: int, num_tokens: int, draws: np.random.Generator) -> list[int]:
    """Bytes of each token, of a text that is cut at drawn places."""
    cuts = np.sort(draws.integers(0, num_bytes + 1, num_tokens - 1))
    return np.diff([0, *cuts, num_bytes]).tolist()


def write_run(
    folder: Path, config: RunConfig, sources: Sequence[LoadedTask], seed: int
) -> tuple[int, int]:
    """A run's folder with `FLAGS.examples` examples over its tasks; returns how many, and how many
    tasks these are."""
    draws = np.random.default_rng(seed)
    results = {}
    num_written = 0
    for source in sources:
        scores = []
        lines = []
        for prompt in kind_of(source.task).whole_prompts(source, config, ()):
            if num_written == FLAGS.examples:
                break
            score, sample = scored(prompt, draws)
            scores.append(score)
            lines.append(example_line(sample))
            num_written += 1
        if not lines:
            continue
        name = source.task.name
        results[name] = TaskResult(
            n=len(lines),
            metrics=estimates(scores),
            baselines={"random": 0.25, "human": None},
            main=source.task.main,
            profile=printed(source.task.profile),
            data=TaskData(source.task.file.path, state="as published"),
            kind=source.task.kind,
        )
        target = folder / "samples" / f"{name}.jsonl"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"".join(lines))
    suites = {suite: SuiteResult({}) for suite in config.tasks}
    result = RunResult(config=config_json(config), tasks=results, suites=suites)
    (folder / "results.json").write_text(strict_json(run_json(result)), encoding="utf-8")
    return num_written, len(results)


def write_training_runs(folder: Path) -> list[Path]:
    """Two of 20 checkpoints and 57 tasks of 40 examples."""
    from tests.support.run_folders import samples_of, write_training_run

    draws = random.Random(0)
    runs = []
    for name in ("first", "second"):
        steps = {}
        for step in range(1000, 21_000, 1000):
            tasks = {}
            for i in range(57):
                right = [int(draws.random() < 0.3 + step / 40_000) for _ in range(40)]
                tasks[f"own/task_{i}"] = samples_of(right, bits=[1.0] * 40)
            steps[step] = tasks
        runs.append(write_training_run(folder / name, steps))
    return runs


def write_page(folders: Sequence[Path], file: Path, data_dir: str) -> Written:
    runs = read_runs([str(folder) for folder in folders])
    start = time.process_time()
    page = page_of(runs, (("", data_dir),)).encode()
    seconds = time.process_time() - start
    file.write_bytes(page)
    return Written(seconds, len(page) / 1e6)


def seconds_of_numbers() -> float:
    """Of a processor, for `json.dumps` of NUMBERS numbers: by it machines can be compared."""
    numbers = [random.random() for _ in range(NUMBERS)]
    seconds = []
    for _ in range(5):
        start = time.process_time()
        json.dumps(numbers, allow_nan=False)
        seconds.append(time.process_time() - start)
    return min(seconds)


def in_browser(file: Path, has_examples: bool) -> Iterator[tuple[str, float]]:
    """Seconds until the second frame and until an example is open, frames a second while the list
    scrolls, and seconds of the longest of them."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which(FLAGS.chromium), args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.goto(file.as_uri(), wait_until="commit")
        page.wait_for_load_state("load")
        yield "drawn_seconds", page.evaluate(SECOND_FRAME)
        if has_examples:
            page.wait_for_timeout(500)
            yield "opened_seconds", page.evaluate(OPENED)
            frames, longest = page.evaluate(FRAMES)
            yield "scrolled_frames_per_second", frames
            yield "longest_frame_seconds", longest
        browser.close()


def main(arguments: Sequence[str]) -> None:
    config = RunConfig("demo", ("core", "gauntlet"), data_dir=(("", FLAGS.data_dir),))
    sources = []
    for source in find_inputs(config, fetch=False, runs=False).sources:
        if source.task.kind in KINDS:
            sources.append(source)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        runs = [folder / "a", folder / "b"]
        for seed, each in enumerate(runs):
            num_examples, num_tasks = write_run(each, config, sources, seed)
        numbers_seconds = seconds_of_numbers()
        say(f"{NUMBERS:,} numbers as JSON: {numbers_seconds:.3f} s")
        pages = {}
        for name, data_dir in (("whole_prompts", FLAGS.data_dir), ("without", str(folder))):
            file = folder / f"{name}.html"
            written = write_page(runs[:1], file, data_dir)
            browser = dict(in_browser(file, has_examples=True))
            pages[name] = {**written._asdict(), **browser}
            say(
                f"{num_examples} examples, {num_tasks} tasks, {name.replace('_', ' ')}: "
                f"{written.processor_seconds:.1f} s of a processor, {written.megabytes:.1f} MB; "
                f"second frame {browser['drawn_seconds']:.2f} s, an example open "
                f"{browser['opened_seconds']:.2f} s, {browser['scrolled_frames_per_second']:.0f} "
                "frames a second"
            )
        start = time.perf_counter()
        first, second = read_runs([str(each) for each in runs])
        comparison = compare(first, second)
        compare_seconds = time.perf_counter() - start
        say(f"compare of {len(comparison.tasks)} numbers: {compare_seconds:.1f} s")
        training = write_page(write_training_runs(folder), folder / "training.html", str(folder))
        drawn = dict(in_browser(folder / "training.html", has_examples=False))
        say(
            f"two runs of 20 checkpoints: {training.processor_seconds:.1f} s of a processor, "
            f"{training.megabytes:.1f} MB; second frame {drawn['drawn_seconds']:.2f} s"
        )
    say(
        json.dumps(
            {
                "benchmark": "bench_report",
                "examples": num_examples,
                "numbers_seconds": numbers_seconds,
                "pages": pages,
                "training_runs": {**training._asdict(), **drawn},
                "compare_seconds": compare_seconds,
                "environment": environment(),
            }
        )
    )


if __name__ == "__main__":
    run(main)
