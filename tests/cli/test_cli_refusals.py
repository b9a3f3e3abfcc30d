"""One clear sentence for each kind of bad input, and nothing written."""

import json
import math
from typing import Any

import pytest

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.report.output import check_output
from tests.support.command import common
from tests.support.tiny_model import make_model, write_core_data


def test_bench_of_texts_alone_is_refused(miron, place, tmp_path):
    (place.data / "eval_data" / "symbolic_problem_solving").mkdir(exist_ok=True, parents=True)
    lines = [{"context": "1+1=", "answer": "2"}] * 4
    path = place.data / "eval_data" / "symbolic_problem_solving" / "svamp.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags = [f"--model={place.model}", f"--data_dir={place.data}", f"--output={tmp_path / 'out'}"]
    ran = miron("bench", *flags, "--tasks=gauntlet/svamp", "--allow_changed_data", "--limit=2")
    assert ran.status == 2
    assert "generate texts" in ran.err


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        ("--limit=0", "--limit is 0, expected 1 or more"),
        ("--tasks=core/arc_eazy", "did you mean core/arc_easy"),
        ("--tasks=core/squad", "squad.jsonl is missing"),
        ("--dtype=float16", "dtype"),
        ("--model=/nowhere/at/all", "/nowhere/at/all"),
        ("--noallow_changed_data", "is not the published file"),
        ("--max_length=3", "raise --max_length"),
        ("--data_dir=/nowhere", "no CORE data there"),
        ("--data_dir=cor=/nowhere", "is no suite"),
        ("--data_dir=core=", "has no folder"),
        ("--data_dir=/a,/b", "is named twice"),
        ("--output=/dev/null/x", "expected a folder"),
        ("--unknown=1", "unknown"),
        ("stray", "is no flag"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(miron, place, tmp_path, flag, sentence):
    ran = miron("eval", *common(place, tmp_path / "out", flag))
    assert ran.status == 2
    assert sentence in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "no valid JSON"),
        ('{"query": "a", "choices": ["b", "c"]}', "'gold' (the right answer) is missing"),
        ('{"query": "a", "choices": ["b", "c"], "gold": 2}', "expected a whole number from 0 to 1"),
        ('{"query": "a", "choices": ["b", ""], "gold": 0}', "is empty"),
    ],
)
def test_a_bad_line_is_named(miron, place, tmp_path, line, sentence):
    data = write_core_data(tmp_path / "data")
    path = data / "eval_data/commonsense_reasoning/copa.jsonl"
    path.write_text(path.read_text() + line + "\n")
    ran = miron("eval", *common(place, tmp_path / "out", f"--data_dir={data}"))
    assert ran.status == 2
    assert f"{path}, line 15: " in ran.err
    assert sentence in ran.err
    assert not (tmp_path / "out").exists()


def test_an_output_that_holds_something_else(miron, place, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    ran = miron("eval", *common(place, tmp_path))
    assert ran.status == 2
    assert "holds no results.json" in ran.err
    (tmp_path / "notes.txt").rename(tmp_path / "plan.json")  # as `plan --topology` leaves it: a run may follow
    check_output(RunConfig("demo", ("core",), output=str(tmp_path)))
    (tmp_path / "results.json").write_text("{")
    assert "cannot be read" in miron("eval", *common(place, tmp_path)).err
    for content in ("[1]", '{"config": null}', '"x"'):
        (tmp_path / "results.json").write_text(content)
        assert "cannot be read" in miron("eval", *common(place, tmp_path)).err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"limit": 0}, "--limit is 0, expected 1 or more; leave the flag out for its default"),
        ({"items_per_category": 0}, "--items_per_category is 0, expected 1 or more"),
        ({"max_length": 1}, "--max_length is 1, expected 2 or more"),
        ({"token_budget": 0}, "--token_budget is 0, expected 1 or more"),
        ({"watch_timeout": 0.0}, "--watch_timeout is 0, expected seconds, more than 0"),
        ({"watch_timeout": math.nan}, "--watch_timeout is nan, expected seconds, more than 0"),
        ({"dtype": "float16"}, "--dtype is 'float16', expected one of float32, bfloat16"),
        ({"dtype": None}, "--dtype is None, expected one of float32, bfloat16"),
        ({"params_key": ""}, "--params_key is empty, expected a path such as ema_params"),
        ({"sharding": "one"}, "--sharding is 'one', expected one of pmap, mesh"),
        ({"attention": "hopper"}, "--attention is 'hopper', expected one of xla, cudnn, tpu"),
        ({"human_baseline": "C"}, "--human_baseline is 'C', expected one of A, B"),
    ],
)
def test_bounds_and_choices_come_from_the_declarations(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        RunConfig("demo", ("core",), **change)
    assert sentence in str(refused.value)


def test_a_tokenizer_of_another_model_is_refused(miron, place, tmp_path):
    make_model(tmp_path / "small", vocabulary=257)
    ran = miron("eval", *common(place, tmp_path / "out", f"--model={tmp_path / 'small'}"))
    assert ran.status == 2
    assert "vocabulary has 257" in ran.err
    assert not (tmp_path / "out").exists()


def test_no_command_and_a_wrong_one(miron):
    assert miron().status == 0
    for arguments, sentence in {
        ("evaluate",): "unknown command 'evaluate', expected one of eval, report, ",
        ("evl", "--limit=2"): "; eval is the nearest\n",
        ("--limit=2",): "a command comes before its flags: miron-jax eval --limit=2 ...",
    }.items():
        ran = miron(*arguments)
        assert (ran.status, ran.err.count("\n"), ran.out) == (2, 1, "")
        assert sentence in ran.err
