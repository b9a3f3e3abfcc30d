"""How long does a page of people's work take to open in a browser?

    python benchmarks/bench_people_page.py

The page asks for verdicts on gaps in 72 made-up stories, of which each has a context of 1,800
characters and a question of 920, as UA-CBT's do: 1,000 rows.  Timed are writing it, and in headless
Chromium the second frame after the page is asked for, with no answer and with all rows answered,
and what its main thread computes until then.  The last line is JSON.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from absl import flags
from common import environment, run, say

from miron_jax.files.readers import JsonObject
from miron_jax.humans.reviews import sheet_of_gaps
from miron_jax.report.html.people import people_page
from miron_jax.tasks.generators.eval_uation_gen.gaps import GAP

FLAGS = flags.FLAGS
flags.DEFINE_integer("rows", 1000, "Rows of the page.", lower_bound=1)
flags.DEFINE_string("chromium", "chromium", "The browser.")

STORIES = 72
CONTEXT, QUESTION = 1800, 920  # characters
SECOND_FRAME = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(
  () => done(performance.now() / 1000))))"""


def gaps() -> list[JsonObject]:
    rows: list[JsonObject] = []
    sentence = "Одного разу черепаха покликала слона до великої річки. "
    for i in range(FLAGS.rows):
        story = f"Казка {i % STORIES}. "
        start = i // STORIES * 40
        text = (story + sentence * 20)[:QUESTION]
        rows.append(
            {
                "md_global_number": i,
                "storyId": str(i % STORIES),
                "context": (story + sentence * 40)[:CONTEXT],
                "question": f"{text[:start]}{GAP}{text[start:]}",
                "md_gap_sentence": f"{story}{GAP} покликала слона.",
                "options": ["Черепаха", "Жаба", "Коза", "Миша", "Лисиця", "Вівця"],
                "answer": "Черепаха",
            }
        )
    return rows


def main(arguments: Sequence[str]) -> None:
    from playwright.sync_api import sync_playwright

    start = time.process_time()
    text = people_page(sheet_of_gaps(gaps(), "gaps"))
    written = time.process_time() - start
    file_bytes = len(text.encode())
    opened = dict[str, float]()
    thread = dict[str, float]()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        file = Path(folder, "page.html")
        file.write_text(text, encoding="utf-8")
        context = started.chromium.launch_persistent_context(
            str(Path(folder, "profile")),
            executable_path=shutil.which(FLAGS.chromium),
            args=["--no-sandbox"],
        )
        for name in ("empty", "answered"):
            page = context.new_page()
            devtools = context.new_cdp_session(page)
            devtools.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})
            devtools.send("Performance.enable")
            page.goto(file.as_uri(), wait_until="commit")
            page.wait_for_load_state("load")
            opened[name] = page.evaluate(SECOND_FRAME)
            for metric in devtools.send("Performance.getMetrics")["metrics"]:
                if metric["name"] == "TaskDuration":
                    thread[name] = metric["value"]
            if name == "empty":
                page.keyboard.type("w1")
                page.keyboard.press("Enter")
                for _ in range(FLAGS.rows):
                    page.keyboard.press("g")
            say(
                f"{name}: {page.inner_text('#count')}; second frame {opened[name]:.3f} s, "
                f"{thread[name]:.3f} s of a processor"
            )
        context.close()
    record = {
        "benchmark": "bench_people_page",
        "rows": FLAGS.rows,
        "megabytes": file_bytes / 1e6,
        "processor_seconds": written,
        "opened_seconds": opened,
        "thread_seconds": thread,
        "environment": environment(),
    }
    say(json.dumps(record))


if __name__ == "__main__":
    run(main)
