"""A chunk of the page: columns of numbers beside numbers, from which every example can be read again."""

import base64
import gzip
import json
import math
from pathlib import Path
from typing import Any

from miron_jax.report.html.chunks import TEXT, Chunk
from miron_jax.results.run_folder import read_runs
from miron_jax.results.samples import Completion, ExampleResult, Option
from tests.support.run_folders import samples_of, write_run


def chunk_of(*examples: ExampleResult) -> dict[str, Any]:
    chunk = Chunk()
    for example in examples:
        chunk.add(example, {"prompt": f"q{example.id}"}, "", True)
    return json.loads(gzip.decompress(base64.b64decode(chunk.text())))


def test_options_and_tokens_stand_end_to_end() -> None:
    """The second option's run kept no bytes of its tokens, the third has more text than the page keeps; the fourth
    has no token."""
    long = "x" * (TEXT + 1)
    options = [
        Option(
            text="ab",
            logprob=-3.004,
            token_logprobs=[-2.5, -0.504],
            token_bytes=(1, 1),
            token_ids=[70, 9],
            token_ranks=[3, 0],
        ),
        Option(text="c", logprob=-1.0, token_logprobs=[-1.0], greedy=True),
        Option(text=long, logprob=-0.0, token_logprobs=[-0.0], token_bytes=(TEXT + 1,), greedy=False),
        Option(text="", logprob=math.nan, reason="no scored token"),
    ]
    asked = ExampleResult(id=0, row=7, gold=1, prediction=0, options=tuple(options[:3]))
    chunk = chunk_of(asked, ExampleResult(id=1, row=8, options=tuple(options[3:])), ExampleResult(id=2, row=9))
    assert chunk == {
        "each": {"prompt": ["q0", "q1", "q2"], "row": [7, 8, 9], "gold": [1, None, None],
                 "prediction": [0, None, None], "same": [True] * 3},
        "metrics": {},
        "options": [3, 1, 0],
        "texts": ["ab", "c", long[:TEXT], ""],
        "sums": [300, 100, 0, None],
        "sizes": [2, 1, 1, 0],
        "greedy": [None, True, False, None],
        "tokens": [250, 50, 100, 0],
        "lengths": [1, 1, None, None],
        "ids": [70, 9, None, None],
        "ranks": [3, 0, None, None],
    }  # fmt: skip


def test_a_metric_of_some_examples_is_false_in_the_others_and_null_where_it_is_not_defined() -> None:
    metrics = [{"a": 0.12349}, {"b": 1.0, "a": math.inf}, {}, {"b": math.nan, "a": 0.0}]
    chunk = chunk_of(*(ExampleResult(id=i, row=i, metrics=each) for i, each in enumerate(metrics)))
    assert chunk["metrics"] == {"a": [0.123, None, False, 0.0], "b": [False, 1.0, False, None]}
    assert [type(value) for value in chunk["metrics"]["a"]] == [float, type(None), bool, float]


def test_what_few_examples_have_is_null_in_the_others() -> None:
    written = ExampleResult(id=1, row=1, generated="y" * 700, answered=Completion(accepted=("z",)), truncated=True)
    each = chunk_of(ExampleResult(id=0, row=0), written)["each"]
    assert (each["generated"], each["accepted"], each["truncated"]) == (
        [None, ["y" * TEXT]],
        [None, ["z"]],
        [None, True],
    )


def test_half_a_surrogate_pair_is_kept_as_it_is(tmp_path: Path) -> None:
    sample = {**samples_of([1])[0], "prompt": "half \ud83d"}
    [run] = read_runs([str(write_run(tmp_path / "run", {"own/x": [sample]}))])
    [example] = run.examples("own/x")
    chunk = Chunk()
    chunk.add(example, {"prompt": "half \ud83d"}, "", True)
    assert json.loads(gzip.decompress(base64.b64decode(chunk.text())))["each"]["prompt"] == ["half \ud83d"]
    assert getattr(example.asked, "prompt", None) == "half \ud83d"
