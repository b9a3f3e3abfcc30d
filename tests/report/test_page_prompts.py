"""Whole prompts in the page: rendered again from the data, shown where their digest is that of the sample."""

import base64
import gzip
import json
import re
import shutil
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from miron_jax.config import RunConfig
from miron_jax.evaluation import inputs
from miron_jax.evaluation.inputs import select_tasks
from miron_jax.prompting.prompts import without_shots
from miron_jax.report.html import examples
from miron_jax.report.html.prompts import ANOTHER, NO_ROOM, NOT_READ, UNDIGESTED, DataOfPage, Prompts, Shared
from miron_jax.results.run_folder import Run, read_runs
from miron_jax.results.samples import AskedItem, AskedPrompt
from tests.golden.data import write_all
from tests.golden.make import FOLDER, GROUPS
from tests.support import own_task
from tests.support.own_task import prompts_of, run_of
from tests.support.run_folders import changed, write_run

CHOICE = f"{own_task.CHOICE}num_fewshot: 2\n"


def rows_of(count: int, text: str = "What") -> list[dict[str, Any]]:
    return [{"q": f"{text} {i}?", "c": ["yes", "no"], "a": i % 2} for i in range(count)]


def shown_of(run: Run, room: int = 10**9) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """What the page has of each prompt, the texts before questions, and the reasons."""
    shared = Shared({}, {})
    rendered = Prompts.of(run, "own/x", room, DataOfPage(()))
    return [rendered.shown(example, shared) for example in run.examples("own/x")], [*shared.texts], [*shared.reasons]


def golden_run(suite: str, group: str, folder: Path) -> Run:
    """The run of a golden file."""
    golden = json.loads((FOLDER / f"{suite}.json").read_text(encoding="utf-8"))
    config = json.loads((FOLDER / f"{group}.run.json").read_text(encoding="utf-8"))["config"]
    with changed(write_run(folder, golden["samples"], config=config)) as results:
        results["tasks"] = golden["results"]["tasks"]
    return read_runs([str(folder)])[0]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_all(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "suite"), [(group, suite) for group, (_, suites) in GROUPS.items() for suite in suites]
)
def test_every_prompt_of_every_kind_is_whole(group: str, suite: str, data: Path, tmp_path: Path) -> None:
    """The end of each is what the run kept of it, the model's own answers of dialogues among them."""
    folder = GROUPS[group][1][suite]
    run = golden_run(suite, group, tmp_path / "run")
    shared = Shared({}, {})
    of_page = DataOfPage([(suite, str(data / folder))] if folder else ())
    for name in run.tasks:
        of_task = Prompts.of(run, name, 10**9, of_page)
        for example in run.examples(name):
            entry = of_task.shown(example, shared)
            assert "why" not in entry, (name, [*shared.reasons][entry["why"]])
            texts = [*shared.texts]
            whole = "".join(texts[i] for i in entry.get("before", ())) + entry.get("contexts", [entry["prompt"]])[0]
            if isinstance(example.asked, AskedPrompt):
                assert whole.endswith(example.asked.prompt), name
                assert len(whole) >= len(example.asked.prompt)
            if isinstance(example.asked, AskedItem):
                assert whole == example.asked.prefix
    assert shared.reasons == {}


def test_shots_stand_apart_and_once(tmp_path: Path) -> None:
    asked = prompts_of(tmp_path, CHOICE + 'before_shots: "Answer."\n', rows_of(9))
    entries, texts, reasons = shown_of(run_of(tmp_path, asked, {"prompt_string": "Answer."}))
    assert reasons == []
    assert len(texts) == len({*chain(*(prompt.shots for prompt in asked))}) < sum(len(prompt.shots) for prompt in asked)
    for entry, prompt in zip(entries, asked, strict=True):
        assert "".join(texts[i] for i in entry["before"]) == prompt.preamble
        assert (len(entry["before"]), entry["shots"]) == (3, 2), "the text before the shots is none"
        assert entry["prompt"] == prompt.contexts[0]


def test_a_prompt_of_another_digest_is_never_shown(tmp_path: Path) -> None:
    """Record 4 has changed since the run: so have its own prompt and those that have it as a shot."""
    asked = prompts_of(tmp_path, CHOICE, rows_of(9, "A long question, " * 30))
    run = run_of(tmp_path, asked)
    before, texts, _ = shown_of(run)
    rows = rows_of(9, "A long question, " * 30)
    rows[4]["q"] = "Another?"
    again = prompts_of(tmp_path, CHOICE, rows)
    is_same = [
        old.preamble + old.contexts[0] == new.preamble + new.contexts[0] for old, new in zip(asked, again, strict=True)
    ]
    assert 0 < sum(is_same) < 8
    entries, texts, reasons = shown_of(run)
    assert reasons == [ANOTHER]
    for entry, prompt, stands, first in zip(entries, asked, is_same, before, strict=True):
        assert ("why" not in entry) == stands
        assert entry == (
            first | {"before": entry.get("before")} if stands else {"prompt": prompt.contexts[0][-300:], "why": 0}
        )
    assert not any("Another" in text for text in (*texts, *(entry["prompt"] for entry in entries)))


def test_a_prompt_that_lost_shots_says_how_many(tmp_path: Path) -> None:
    """The digest is of what the model read: two shots, one, none."""
    asked = [replace(prompt, num_shots=2) for prompt in prompts_of(tmp_path, CHOICE, rows_of(3))]
    read = [replace(prompt, shots=prompt.shots[i:], num_shots=2 - i) for i, prompt in enumerate(asked)]
    run = run_of(tmp_path, read, num_shots=[2, 1, 0])
    rendered = replace(Prompts.of(run, "own/x", 10**9, DataOfPage(())), by_id={prompt.id: prompt for prompt in asked})
    shared = Shared({}, {})
    entries = [rendered.shown(example, shared) for example in run.examples("own/x")]
    assert [entry.get("dropped") for entry in entries] == [None, 1, 2]
    assert [len(entry.get("before", ())) for entry in entries] == [2, 1, 0]
    assert shared.reasons == {}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tasks": ["own/x"], "task_path": ["GONE/x.yaml"]}, NOT_READ),
        ({"task_path": ["FOLDER/secret"]}, NOT_READ),  # a reader's sentence has the file's words
        ({"task_path": ["x" * 5000]}, NOT_READ),
        ({"items_per_category": 10**9}, "no more than 10,000 items"),
        ({"task_path": ["FOLDER/y.yaml"]}, "this version has no task own/x"),
        ({"tasks": None}, "results.json lacks the run's settings"),
        ({"limit": "many"}, "results.json lacks the run's settings"),
        ({"limit": -1}, NOT_READ),
        ({"task_path": ["FOLDER/evil.py"]}, "a page runs no Python file"),
    ],
)
def test_without_the_data_a_prompt_is_its_end_and_says_why(change: Any, why: str, tmp_path: Path) -> None:
    (tmp_path / "y.yaml").write_text(CHOICE.replace("task: x", "task: y"))
    (tmp_path / "secret").write_text("hf_secret")
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    asked = prompts_of(tmp_path, CHOICE, [*rows_of(3), *rows_of(1, "A long question, " * 30)])
    run_of(tmp_path, asked)
    with changed(tmp_path / "run") as results:
        results["config"] |= json.loads(json.dumps(change).replace("FOLDER", str(tmp_path)))
    entries, texts, [reason] = shown_of(read_runs([str(tmp_path / "run")])[0])
    assert why in reason
    assert "hf_secret" not in reason
    assert texts == []
    for entry, prompt in zip(entries, map(without_shots, asked), strict=True):
        start, _, rest = prompt.tail.partition("\n\n")
        is_cut = len(prompt.tail) == 300  # it begins with the end of a shot, which is left out
        shown = {"prompt": (rest or start) if is_cut else prompt.tail}
        assert entry == shown | ({"why": 0} if is_cut else {})
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_the_data_may_lie_elsewhere_now(
    tmp_path: Path, data: Path, miron: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--data_dir of report, where the run's own is gone; missing data are a sentence in the page."""
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path))
    golden_run("core", "open", tmp_path / "run")
    whys = []
    for flags in ((), (f"--data_dir={data / 'icl'}",)):
        ran = miron("report", str(tmp_path / "run"), f"--html={tmp_path / 'out.html'}", *flags)
        assert ran.status == 0, ran.err
        index = re.search(r'id="index">([^<]*)<', (tmp_path / "out.html").read_text())
        assert index is not None
        whys.append(json.loads(index[1])["reasons"])
    assert whys[0] == [NOT_READ]
    assert whys[1] == []


def test_old_samples_without_a_digest_open(tmp_path: Path) -> None:
    asked = prompts_of(tmp_path, CHOICE, rows_of(3, "A long question, " * 30))
    entries, _, reasons = shown_of(run_of(tmp_path, asked, prompt_sha256=[""] * 3))
    assert (entries, reasons) == ([{"prompt": prompt.contexts[0][-300:], "why": 0} for prompt in asked], [UNDIGESTED])


def test_a_page_has_room_for_the_first_prompts_of_each_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = prompts_of(tmp_path, CHOICE, rows_of(40, "A long question, " * 30))
    run = run_of(tmp_path, asked)
    size = sum(map(len, {*chain(*(prompt.shots for prompt in asked))})) + 40 * (len(asked[0].contexts[0]) - 300)
    monkeypatch.setattr(examples, "MOST", size // 2)
    index, chunks = examples.examples_of([run])
    assert index["reasons"] == [NO_ROOM]
    shown, texts = (json.loads(gzip.decompress(base64.b64decode(chunk))) for chunk in chunks)
    whole = [why is None for why in shown["each"]["why"]]
    assert whole == sorted(whole, reverse=True)
    assert 5 < sum(whole) < 35
    assert sum(map(len, texts)) < size // 2
    monkeypatch.setattr(examples, "MOST", size + 100)
    assert examples.examples_of([run]).index["reasons"] == []


def test_runs_that_asked_the_same_have_one_rendering(tmp_path: Path) -> None:
    """Of three runs the last asked another first question: only its prompts are rendered again."""
    runs = list[Run]()
    for name, digests in (("a", {}), ("b", {}), ("c", {0: "another"})):
        (tmp_path / name).mkdir()
        asked = prompts_of(tmp_path / name, CHOICE, rows_of(5))
        kept = [digests.get(each.id, each.digest) for each in map(without_shots, asked)]
        runs.append(run_of(tmp_path / name, asked, prompt_sha256=kept))
    of_page = DataOfPage(())
    first, second, third = (Prompts.of(run, "own/x", 10**9, of_page).by_id for run in runs)
    assert first is second
    assert first == third
    assert first is not third


def test_the_tasks_of_a_run_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = prompts_of(tmp_path, CHOICE, rows_of(5))
    run_of(tmp_path, asked)
    (tmp_path / "y.yaml").write_text(CHOICE.replace("task: x", "task: y"))
    with changed(tmp_path / "run") as results:
        results["config"]["task_path"].append(str(tmp_path / "y.yaml"))
        results["tasks"]["own/y"] = results["tasks"]["own/x"]
    shutil.copy(tmp_path / "run" / "samples" / "own" / "x.jsonl", tmp_path / "run" / "samples" / "own" / "y.jsonl")
    [run] = read_runs([str(tmp_path / "run")])
    selected = list[RunConfig]()
    monkeypatch.setattr(inputs, "select_tasks", lambda config: (selected.append(config), select_tasks(config))[1])
    assert examples.examples_of([run]).index["reasons"] == []
    assert len(selected) == 1


def test_an_end_of_a_prompt_begins_with_a_paragraph(tmp_path: Path) -> None:
    """A sample's 300 characters begin in a shot; those of a long question have no other beginning."""
    asked = prompts_of(tmp_path, CHOICE, [*rows_of(3, "A question, " * 9), *rows_of(1, "A long question, " * 30)])
    entries, _, _ = shown_of(run_of(tmp_path, asked, prompt_sha256=[""] * 4))
    for entry, prompt in zip(entries, map(without_shots, asked), strict=True):
        start, _, rest = prompt.tail.partition("\n\n")
        assert entry["prompt"] == (rest or start)
        assert entry["why"] == 0
    assert [entry["prompt"].startswith(("A question", "A long question")) for entry in entries[:3]] == [True] * 3
