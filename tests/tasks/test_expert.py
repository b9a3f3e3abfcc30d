"""Experts' solutions: the numbers of a user's file, rBridge's weights by hand, wrong files."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import miron_jax
from miron_jax.errors import InputError
from miron_jax.metrics.token_stats import rbridge_surprise
from miron_jax.tasks.expert import read_suite
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.command import samples
from tests.support.own_models import bigrams, users_promotion
from tests.support.tiny_model import make_tokenizer
from tests.support.tolerances import FLOAT64, TOKEN

__all__ = ["users_promotion"]  # a fixture that every test here uses
RECORD = {"prompt": "the sun is", "solution": " hot and", "expert_probs": [[" hot", 0.25], [" and", 1.0]]}


def test_weights_of_rbridge_by_hand() -> None:
    """Letters a b c d have .2 .2 .6 1; tokens "ab" "c" "d" weigh .2 .6 1, scaled 0 .5 1; "é" is two bytes."""
    logprob, probs = np.asarray([-1.0, -2.0, -4.0], np.float32), [("ab", 0.2), ("c", 0.6), ("d", 1.0)]
    assert rbridge_surprise(logprob, [b"ab", b"c", b"d"], probs) == pytest.approx((0 + 1 + 4) / 3)
    # a token of several experts' tokens has their letters' mean: "bc" .4 beside "a" .2 and "d" 1 is .25 of the way
    assert rbridge_surprise(logprob, [b"a", b"bc", b"d"], probs) == pytest.approx((0 + 0.5 + 4) / 3)
    # a space that belongs to the prompt, and one that shares its token with the solution
    assert rbridge_surprise(logprob, [b" ", b"abc", b"d"], probs) == pytest.approx((0 + 4) / 2)
    assert rbridge_surprise(logprob, [b" ab", b"c", b"d"], probs) == pytest.approx(5 / 3)
    # the length limit has cut the solution's beginning; equal weights are all 1
    assert rbridge_surprise(logprob[1:], [b"c", b"d"], probs) == pytest.approx((0 + 4) / 2)
    assert rbridge_surprise(logprob, [b"\xc3", b"\xa9", b"x"], [("\u00e9", 0.5), ("x", 0.5)]) == pytest.approx(7 / 3)
    assert math.isnan(rbridge_surprise(logprob, [b"ab", b"c", b"e"], probs))


@pytest.mark.slow
def test_a_file_of_solutions(tmp_path: Path) -> None:
    """Every token of a solution is scored after its prompt, and rBridge's number is there where the file has weights."""
    make_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "files").mkdir()
    lines = [RECORD, {"prompt": "", "solution": "the rain is cold"}]
    (tmp_path / "files" / "proofs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    model = bigrams()
    options: dict[str, Any] = {"data_dir": tmp_path / "files", "output": tmp_path / "out"}
    given = model, str(tmp_path / "tokenizer"), ["expert"]
    with pytest.raises(InputError, match="add --token_stats"):
        miron_jax.Evaluator(*given, **options)
    task = miron_jax.Evaluator(*given, token_stats=True, **options).run(step=1)["tasks"]["expert/proofs"]
    tokenizer, table = load_tokenizer(str(tmp_path / "tokenizer")), np.asarray(model.params, np.float64)
    computed = samples(tmp_path / "out/step_1", "expert/proofs")
    ids = tokenizer("the sun is hot and")["input_ids"]
    first = len(tokenizer("the sun is")["input_ids"])
    logprob = table - np.log(np.exp(table).sum(axis=1, keepdims=True))
    expected = [logprob[a, b] for a, b in zip(ids[first - 1 : -1], ids[first:], strict=True)]
    [option] = computed[0]["options"]
    assert option["token_logprobs"] == pytest.approx(expected, abs=TOKEN)
    pieces = [tokenizer.decode([i]).encode() for i in ids[first:]]
    weighted = rbridge_surprise(np.asarray(option["token_logprobs"]), pieces, [(" hot", 0.25), (" and", 1.0)])
    assert computed[0]["metrics"]["rbridge_surprise"] == pytest.approx(weighted, rel=FLOAT64)
    assert "rbridge_surprise" not in computed[1]["metrics"]
    assert (task["n"], task["main"], task["kind"]) == (2, "token_top5", "expert")
    hits = [sample["metrics"]["token_top5"] for sample in computed]
    assert task["metrics"]["token_top5"]["value"] == pytest.approx(np.mean(hits), rel=FLOAT64)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"solution": ""}, "line 1: solution is empty"),
        ({"prompt": None}, "line 1: prompt holds None, expected a text"),
        (
            {"expert_probs": [[" hot", 2], [" and", 1]]},
            "expected .text, probability. pairs, from 0 to 1; mend the file",
        ),
        ({"expert_probs": [[" hot", 0.5]]}, "the texts of expert_probs are ' hot', expected the solution, ' hot and'"),
    ],
)
def test_wrong_files_are_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({**RECORD, **change}))
    [task] = read_suite(tmp_path).tasks
    assert task.examples is not None
    with pytest.raises(InputError, match=words):
        task.examples(Path())
    with pytest.raises(InputError, match=r"holds no file that ends in .jsonl"):
        read_suite(tmp_path / "nowhere")
