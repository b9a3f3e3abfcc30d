"""`miron-jax report`: one HTML file, Markdown, CSV; what is in them, and that no text of a run becomes more than text."""

import base64
import csv
import gzip
import hashlib
import io
import json
import math
import os
import re
import threading
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from miron_jax.errors import printable
from miron_jax.report.compare.runs import Keyed, keyed_examples
from miron_jax.report.html import head
from miron_jax.report.html.page import page_of
from miron_jax.report.tables.results import timeline_lines
from miron_jax.results.run_folder import Run, read_runs
from tests.support.run_folders import (
    NASTY,
    PROFILE,
    changed,
    composite,
    hostile_run,
    samples_of,
    task_of,
    write_run,
    write_training_run,
)  # fmt: skip

VOID = {"meta", "input", "br", "link", "path", "rect", "use", "circle"}


def chunks_of(page: str) -> list[Any]:
    texts = re.findall(r'<script type="text/plain" id="chunk-\d+">([^<]*)</script>', page)
    return [json.loads(gzip.decompress(base64.b64decode(text))) for text in texts]


def index_of(page: str) -> Any:
    computed = re.search(r'<script type="application/json" id="index">([^<]*)</script>', page)
    assert computed is not None
    return json.loads(computed[1])


class Elements(HTMLParser):
    """Names and attributes of all elements, and whether each is closed."""

    def __init__(self, page: str):
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:  # which `<path/>` calls too
        if tag not in VOID:
            assert self.open.pop() == tag


def test_a_page_holds_everything_and_only_its_own_script(tmp_path: Path, miron) -> None:
    out = tmp_path / "out.html"
    ran = miron("report", str(hostile_run(tmp_path / "run")), f"--html={out}")
    assert ran.status == 0, ran.err
    page = out.read_text()
    assert page.isascii()
    elements = Elements(page)
    assert not elements.open
    types = [each.get("type") for name, each in elements.all if name == "script"]
    assert types == ["application/json", "text/plain", None]
    assert not {name for name, _ in elements.all} & {"img", "b", "iframe", "link", "object", "embed"}
    assert not [each for _, each in elements.all if "style" in each or any(key.startswith("on") for key in each)]
    policy = next(each["content"] for _, each in elements.all if each.get("http-equiv")) or ""
    assert policy.startswith("default-src 'none'; ")
    for kind in ("script", "style"):
        (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "http://" not in re.sub(r'(xmlns(:\w+)?="[^"]*"|NAMESPACE = "[^"]*")', "", page)
    (examples,) = chunks_of(page)
    assert examples["each"]["prompt"] == list(NASTY)
    assert examples["texts"][:: examples["options"][0]] == list(NASTY)
    of_run = {"label": "run", "first": 0, "size": 500, "ids": None, "marks": "10101010"}
    assert index_of(page)["tasks"] == [{"name": "own/x", "groups": [*map(printable, NASTY)], "runs": [of_run]}]
    for part in ("num_fewshot", "a" * 40, "0.3000 to 0.7000", "&lt;img src=x onerror"):
        assert part in page


def test_examples_stand_in_chunks_of_their_task(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", {"own/x": samples_of([1] * 1203), "own/y": samples_of([0] * 3)})
    page = page_of(read_runs([str(run)]))
    x, y = (task["runs"][0] for task in index_of(page)["tasks"])
    assert (x["first"], len(x["marks"]), y["first"], y["marks"]) == (0, 1203, 3, "000")
    chunks = chunks_of(page)
    assert [len(chunk["options"]) for chunk in chunks] == [500, 500, 203, 3]
    assert [row for chunk in chunks[:3] for row in chunk["each"]["row"]] == list(range(1203))


def test_two_runs_are_compared_and_steps_make_curves(tmp_path: Path) -> None:
    steps = {step: {"own/x": samples_of(right)} for step, right in ((1, [1, 0] * 20), (2, [1, 1, 0, 0] * 10))}
    a = write_training_run(tmp_path / "a", steps)
    b = write_run(tmp_path / "b", {"own/x": samples_of([1] * 40)})
    page = page_of(read_runs([str(a), str(b)]))
    for part in (
        "b (second) against a (first)",
        "+0.5000",
        '"runs":[{"label":"a","folders":{"1":"',
    ):
        assert part in page
    assert "<dt>best step</dt><dd>1 on 1 of 1 tasks</dd>" in page
    assert "best step" not in page_of(read_runs([str(b)]))
    with_step = page_of(read_runs([str(a), str(a / "step_1")]))
    assert '"here":{"2":"a","1":"step_1"}' in with_step
    other = write_run(tmp_path / "c", {"own/y": samples_of([1] * 40)})
    assert "a and c have no task in common" in page_of(read_runs([str(a), str(other)]))


def test_runs_that_are_compared_with_each_other_are_read_once(tmp_path: Path, monkeypatch) -> None:
    folders = [str(write_run(tmp_path / name, {"own/x": samples_of([1, 0] * 4)})) for name in "abcd"]
    read = list[tuple[str, str]]()

    def counted(run: Run, task: str) -> Keyed:
        read.append((run.label, task))
        return keyed_examples(run, task)

    monkeypatch.setattr(head, "keyed_examples", counted)
    besides = head.against_of(read_runs(folders))
    assert [len(beside) for beside in besides] == [3, 3, 3, 3]
    assert read == [(name, "own/x") for name in "abcd"]


def test_a_card_says_better_worse_or_within_noise(tmp_path: Path) -> None:
    """Pairs that differ all go one way: exact McNemar says p = 2 * 0.5 ** 30 of thirty of 100, 0.125 of four."""
    composites = {
        "ALL": composite(0.5, {"own/x": 1.0}, complete=True),
        "bits": composite(1.0, {"own/x": 1.0}, metric="bits_per_byte", complete=True),
        "NONE": composite(None, {}, missing=["own/z"]),
    }
    folders = []
    for name, right, bits in (("pinned", 50, 1.0), ("more", 80, 1.25), ("same", 54, 1.0)):
        draws = [bits + 0.01 * (i % 7) for i in range(100)]
        samples = {"own/x": samples_of([1] * right + [0] * (100 - right), bits=draws)}
        folders.append(str(write_run(tmp_path / name, samples, composites)))
    page = page_of(read_runs(folders))
    pinned, more, same = re.findall(r'<article class="card">.*?</article>', page, re.S)
    noise = ["within noise"] * 2
    by_pin = ([[], ["better", "worse"], noise], [["worse", "better"], [], ["worse", "better"]])
    for pin, expected in enumerate(by_pin):
        word = rf'<div data-pin="{pin}"[^<]*<b class="[^"]*">([^<]*)</b>'
        assert [re.findall(word, card) for card in (pinned, more, same)] == expected
    assert "bits_per_byte &#8595;" in more
    assert "+0.3000 (" in more
    assert "NONE" not in page
    assert "more against pinned: 1 of 1 compared tasks moved by more than chance: 1 better, 0 worse." in page
    assert "same against pinned: 0 of 1 compared tasks moved by more than chance." in page
    # Alone, 80 of 100 lie above a chance of a half, 54 do not (Wilson's interval: 0.44 to 0.63).
    for folder, count in ((folders[1], 1), (folders[2], 0)):
        assert f"{count} of 1 tasks with a known chance lie above it" in page_of(read_runs([folder]))


def test_the_last_step_stands_beside_the_one_before(tmp_path: Path) -> None:
    steps = {step: {"own/x": samples_of([1] * right + [0] * (40 - right))} for step, right in ((5, 40), (1, 9), (3, 9))}
    page = page_of(read_runs([str(write_training_run(tmp_path / "a", steps))]))
    assert "a against a step 3: 1 of 1 compared tasks moved by more than chance: 1 better, 0 worse." in page


def test_robustness_is_a_section(tmp_path: Path) -> None:
    entry = {"n": 2, "value": 0.5, "stderr": 0.25, "cluster_stderr": None, "clusters": 1}
    report = {
        "main": "accuracy",
        "cluster": "story",
        "clusters": 1,
        "metrics": {"accuracy": entry},
        "by": {"template_n": {"<1>": entry}},
    }
    run = write_run(tmp_path / "a", {"own/x": samples_of([1, 0])}, of_task={"robustness": report})
    page = page_of(read_runs([str(run)]))
    for part in ("<h2>Robustness to wording</h2>", "of story clusters", "template_n", "&lt;1&gt;", "0.250"):
        assert part in page


def test_markdown_and_csv(tmp_path: Path, miron) -> None:
    composites = {"ALL": composite(0.5, {"own/x|y": 1.0}), "PART": composite(None, {}, missing=["own/z"])}
    run = write_run(tmp_path / "a", {"own/x|y": samples_of([1, 0, 1, 0], bits=[1.0, 2.0, 1.0, math.nan])}, composites)
    ran = miron("report", str(run), f"--markdown={tmp_path / 'a.md'}", f"--csv={tmp_path / 'a.csv'}")
    assert ran.status == 0, ran.err
    text = (tmp_path / "a.md").read_text()
    assert "| own: ALL | 0.5000 (0.3000 to 0.7000) |\n| own: PART | none |\n" in text
    assert "| own/x\\|y | 4 | accuracy | 0.5000 (0.1500 to 0.8500) | 0.5000 |" in text  # Wilson's of 2 of 4
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert [(row["task"], row["metric"]) for row in rows] == [
        ("own: ALL", "composite"), ("own: PART", "composite"), ("own/x|y", "accuracy"), ("own/x|y", "bits_per_byte")
    ]  # fmt: skip
    assert (rows[2]["value"], rows[2]["n"], rows[2]["chance"], rows[3]["n"]) == ("0.5", "4", "0.5", "3")


def test_reported_categories_are_on_screen_in_the_page_and_in_csv(tmp_path: Path, miron) -> None:
    metrics = task_of(samples_of([1, 1, 1, 0]))["metrics"]  # .75 of 4: Wilson's .3006 to .9544
    of_task = {"groups": {"Europe": {"n": 4, "metrics": metrics}}, "profile": {**PROFILE, "categories": "reported"}}
    run = write_run(tmp_path / "a", {"own/x": samples_of([1, 0])}, of_task=of_task)
    ran = miron("report", str(run))
    assert re.search(r"own/x +│ Europe +│ 4 │ accuracy │ 0\.750 │ 0\.301 - 0\.954", ran.out), ran.out
    assert "Europe: accuracy" in page_of(read_runs([str(run)]))
    miron("report", str(run), f"--csv={tmp_path / 'a.csv'}")
    assert "own/x: Europe,accuracy,0.75," in (tmp_path / "a.csv").read_text()


def test_composites_that_nobody_asked_for_are_not_spoken_of(tmp_path: Path, miron) -> None:
    """--tasks=core/copa lacks what CORE has besides; --tasks=core lacks data."""
    composites = {
        "CORE": composite(None, {}, missing=["core/squad", "core/piqa"]),
        "ONE": composite(0.5, {"core/copa": 1.0}),
    }
    for tasks, speaks in ((["core/copa"], False), (["core"], True), (["core/copa", "core/p*"], False), (None, True)):
        run = write_run(tmp_path / "a", {"core/copa": samples_of([1, 0])}, composites, config={"tasks": tasks})
        out, page = miron("report", str(run)).out, page_of(read_runs([str(run)]))
        assert ("CORE: none" in out, "without a score on published data" in page) == (speaks, speaks), (tasks, out)
        assert "ONE: 0.5000" in out, tasks


def test_report_alone_prints_what_there_is(tmp_path: Path, miron) -> None:
    run = write_run(tmp_path / "a", {"own/x": samples_of([1, 0], bits=[1.0, 2.0])}, of_task={"num_shots": {}})
    for arguments in ([str(run)], [f"--output={run}"]):
        ran = miron("report", *arguments)
        assert ran.status == 0, ran.err
        assert re.search(r"own/x.*0\.500", ran.out)


def test_a_pipe_is_written_to_not_replaced(tmp_path: Path, miron) -> None:
    """A rename would put a file in its place: /dev/null would be gone for all programs."""
    run = write_run(tmp_path / "a", {"own/x": samples_of([1, 0])})
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    ran = miron("report", str(run), f"--csv={pipe}")
    reader.join(60)
    assert ran.status == 0, ran.err
    assert received[0].startswith("run,step,task")
    assert pipe.is_fifo()


@pytest.mark.parametrize("flag", ["html", "markdown", "csv"])
def test_a_report_that_cannot_be_written(tmp_path: Path, miron, flag: str) -> None:
    run = write_run(tmp_path / "a", {"own/x": samples_of([1, 0])})
    for file, sentence in (
        (tmp_path / "nowhere" / "x", "cannot be written: name a file in a folder that is there"),
        (run / "results.json", "would overwrite a run's results"),
    ):
        ran = miron("report", str(run), f"--{flag}={file}")
        assert (ran.status, ran.err.count("\n"), f"--{flag}=" in ran.err, sentence in ran.err) == (2, 1, True, True), (
            ran.err
        )


def test_a_category_is_drawn_where_all_runs_average_the_same_tasks_of_it(tmp_path: Path) -> None:
    """Runs a and b lack a task of "part", the same one; of "unlike" each has another."""
    folders = []
    for run, only in (("a", "x"), ("b", "y")):
        composites = {name: composite(0.5, {"own/x": 0.5, "own/y": 0.5}, complete=True) for name in ("one", "two")}
        for name, task in (("part", "x"), ("unlike", only)):
            missing = {"complete": False, "missing": [f"own/not {task}"]}
            composites[name] = composite(None, {}, **missing)
            composites[f"partial_{name}"] = composite(0.4, {f"own/{task}": 1.0}, **missing)
        samples = {"own/x": samples_of([1, 0]), "own/y": samples_of([1, 0])}
        folders.append(str(write_run(tmp_path / run, samples, composites)))
    page = page_of(read_runs(folders))
    assert (
        "Without some of their tasks: part of 1 tasks. Not drawn, as the runs have other tasks of them: unlike." in page
    )
    (radar,) = [svg for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL) if ">two<" in svg and ">one<" in svg]
    assert (">part<" in radar, ">unlike<" in radar) == (True, False)
    assert "Not drawn" not in page_of(read_runs(folders[:1]))


def test_the_wall_time_has_a_bar_for_each_activity(tmp_path: Path) -> None:
    """On screen, where a bar of 40 columns takes all the time, and on the page; older results have none."""
    old, new = (write_run(tmp_path / name, {"own/x": samples_of([1, 0])}) for name in ("old", "new"))
    with changed(new) as results:
        results["speed"] |= {
            "wall_seconds": 1000.0, "timeline": {"load": 250.0, "plan": 0.04, "wait_for_host": 745.0, "other": 4.96},
            "in_threads": {"tokenize": 700.0, "plan": 0.01},
        }  # fmt: skip
    first, second = (run.result for run in read_runs([str(old), str(new)]))
    assert timeline_lines(first) == []
    assert timeline_lines(second) == [
        "where these 1000.0 s went:",
        f"  load            250.0 s   25%  {10 * chr(0x2588)}",
        f"  wait for host   745.0 s   74%  {30 * chr(0x2588)}",
        "  other             5.0 s    0%",
        "threads worked meanwhile: tokenize 700.0 s",
    ]
    assert max(map(len, timeline_lines(replace(second, speed=replace(second.speed, wall_seconds=745.0))))) <= 80
    caption = "Where the wall time went"
    assert caption not in page_of(read_runs([str(old)]))
    [card] = [each for each in page_of(read_runs([str(new), str(old)])).split("</article>") if caption in each]
    spent = re.findall(r'<dt>([^<]*)</dt><dd><svg [^>]*><rect width="([^"]*)"[^>]*></svg> ([^<]*)</dd>', card)
    assert spent == [
        ("load", "25.0", "250.0 s"), ("wait for host", "74.5", "745.0 s"), ("other", "0.5", "5.0 s")
    ]  # fmt: skip
