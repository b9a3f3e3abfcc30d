"""`--rows=3,11`: single examples, with everything that their scores are made of."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.definitions.data_files import read_examples
from miron_jax.engine.records import Scores
from miron_jax.prompting.prompts import render, without_shots
from miron_jax.tasks.core import SUITE
from tests.support.command import common
from tests.support.requests import requests_of
from tests.support.tolerances import METRIC


@pytest.mark.slow
def test_rows_are_asked_as_in_a_whole_run(miron: Any, place: Any, tmp_path: Path) -> None:
    """The same places and shots, as nanochat's evaluate_example for one index; the self-check scores them a second way."""
    ran = miron("eval", *common(place, tmp_path, "--tasks=core/arc_easy", "--rows=3,11"))
    assert ran.status == 0, ran.err
    task = next(task for task in SUITE.tasks if task.name == "core/arc_easy")
    whole = [without_shots(prompt) for prompt in render(task, read_examples(task, place.data / "eval_data", True))]
    lines = [*map(json.loads, (tmp_path / "samples/core/arc_easy.jsonl").read_text().splitlines())]
    asked = [(line["id"], line["row"], line["prompt_sha256"], line["gold"]) for line in lines]
    assert asked == [(each.id, each.row, each.digest, each.gold) for each in whole if each.row in (3, 11)]
    # the screen has the sum of every option
    sums = [option["logprob"] for line in lines for option in line["options"]]
    assert [*map(float, re.findall(r"⟧ sum (-[\d.]+)", ran.out))] == pytest.approx(sums, abs=METRIC)
    assert "--rows 3,11: only these examples of each task" in ran.out


def test_a_described_row_has_its_shots_and_its_spans(miron: Any, place: Any) -> None:
    """Of ten shots before each question of arc_easy, none is the question; a span is what one choice has alone."""
    flags = [f"--model={place.model}", f"--data_dir={place.data}", "--rows=3"]
    ran = miron("tasks", "--describe=core/arc_easy", *flags)
    assert ran.status == 0, ran.err
    rows = [
        json.loads(line) for line in (place.data / "eval_data/world_knowledge/arc_easy.jsonl").read_text().splitlines()
    ]
    prompt = ran.out.partition("core/arc_easy, row 3, prompt:\n")[2].partition("\n  0")[0]
    assert prompt.count("Answer: ") == 11
    assert prompt.endswith(f"{rows[3]['query']}\nAnswer: ")
    assert rows[3]["query"] not in prompt.removesuffix(f"{rows[3]['query']}\nAnswer: ")
    spans = re.findall(r"⟦(.*)⟧", ran.out)
    texts = ["".join(eval(token) for token in span.split(" | ")) for span in spans]
    assert texts == [f" {choice}" for choice in rows[3]["choices"]]


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        ("eval", ["--rows=3,14"], "core/arc_easy has no example of row 14, expected lines of its data file, 0 to 13"),
        ("eval", ["--rows=3,3"], "'3' is not expected there; name lines of the data file, from 0, once each"),
        ("eval", ["--rows=3,x"], "'x' is not expected there"),
        ("eval", ["--rows=3", "--budget=100"], "leave out --until and --budget"),
        (
            "eval",
            ["--rows=3", "--tasks=miron-gen/en"],
            "miron-gen/en has no single examples with a prompt of their own",
        ),
        ("tasks", ["--rows=3"], "--rows wants --describe=TASK"),
    ],
)
def test_rows_that_are_not_there_are_refused(
    command: str, flags: list[str], message: str, miron: Any, place: Any, tmp_path: Path
) -> None:
    given = common(place, tmp_path / "out", "--tasks=core/arc_easy") if command == "eval" else []
    ran = miron(command, *given, *flags)
    assert (ran.status, message in ran.err) == (2, True), ran.err


def test_scored_tokens_stand_end_to_end() -> None:
    requests = requests_of([([5, 6, 7], 1), ([4], 1), ([8, 9], 0)])
    assert requests.scored_ids.tolist() == [6, 7, 8, 9]
    zeros = np.zeros(4, np.float32)
    lengths = np.asarray([3, 1, 0, 2], np.uint16)
    scores = Scores(np.asarray([0, 2, 2, 4]), zeros, zeros, zeros[:3], np.zeros((4, 0))).spelled_by(lengths, lengths)
    each = [[3, 1], [], [0, 2]]
    assert [score.num_bytes.tolist() for score in scores] == [scores[r].num_bytes.tolist() for r in range(3)] == each
    assert scores.of_requests(1, 3)[1].num_bytes.tolist() == each[2]
