"""Statistics of scored tokens: by hand, and of a model whose distribution is the same everywhere, in tasks of every kind."""

import json
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import miron_jax
from miron_jax.errors import InputError
from miron_jax.metrics.token_stats import TOKEN_STATS, min_k_plus_plus, token_metrics
from tests.support.command import samples
from tests.support.own_models import VOCAB, bigrams, users_promotion
from tests.support.tiny_model import make_tokenizer
from tests.support.tolerances import FLOAT64, ROUNDING, TOKEN

__all__ = ["users_promotion"]  # a fixture that every test here uses


def test_token_metrics_by_hand() -> None:
    """Two tokens: p = 1/2, the most probable of 1/2, 1/4, 1/4; and p = 1/8 as 6th of 1/4, six times 1/8."""
    logprob = np.log(np.asarray([1 / 2, 1 / 8], np.float32))
    distribution = np.asarray([[1.5 * math.log(2), math.log(1 / 2)], [2.75 * math.log(2), math.log(1 / 4)]], np.float32)
    metrics = token_metrics(logprob, np.asarray([0, 5], np.int32), distribution)
    expected = {
        "token_surprise": 2 * math.log(2), "token_entropy": 2.125 * math.log(2), "token_prob": 5 / 16,
        "token_top1": 1 / 2, "token_top5": 1 / 2, "token_top20": 1.0, "expected_rank": 3.5,
        "reciprocal_rank": (1 + 1 / 6) / 2, "token_margin": 1 / 16, "wrong_confidence": 1 / 8,
    }  # fmt: skip
    assert metrics == pytest.approx(expected, abs=ROUNDING)
    for tokens in (logprob[:0], np.asarray([np.nan, -1.0], np.float32)):
        broken = token_metrics(tokens, np.zeros(len(tokens), np.int32), distribution[: len(tokens)])
        assert [*broken] == [*TOKEN_STATS]
        assert math.isnan(broken["token_top1"] + broken["expected_rank"] + broken["token_surprise"])


def test_min_k_plus_plus_by_hand() -> None:
    """Of ten tokens the two least: p = 1/4 of 1/4 and 3/4, z = -1.732; and log p two deviations of 0.5 below the mean.

    For 1/4 and 3/4 with d = ln 3: mean -1.386 + 3/4 d = -0.562, variance 3/16 d², so z of 1/4 is -(3/4) / sqrt(3/16).
    """
    d = math.log(3)
    quarter = [math.log(4) - 3 / 4 * d, math.log(3 / 4), 3 / 16 * d * d]
    logprob = np.asarray([math.log(1 / 4), *[-1.0] * 8, -2.0], np.float32)
    distribution = np.asarray([quarter, *[[1.0, -0.5, 0.25]] * 9], np.float32)
    assert min_k_plus_plus(logprob, distribution) == pytest.approx((-math.sqrt(3) - 2) / 2, abs=ROUNDING)
    # of three tokens one counts, and the only possible token is at the mean of its distribution
    assert min_k_plus_plus(logprob[-3:], distribution[-3:]) == pytest.approx(-2, abs=ROUNDING)
    assert min_k_plus_plus(np.zeros(1, np.float32), np.zeros((1, 3), np.float32)) == 0
    assert math.isnan(min_k_plus_plus(logprob[:0], distribution[:0]))


@pytest.mark.slow
def test_a_distribution_that_is_the_same_everywhere(tmp_path: Path) -> None:
    """Tasks of every kind with scored spans: each token's entropy and largest probability are those of the table's row,
    and an example's numbers the means over the tokens of its right answer."""
    row = np.random.default_rng(1).normal(size=VOCAB)
    logprob = row - np.log(np.exp(row).sum())
    make_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.json").write_text(json.dumps(["the sun is hot", "the rain is cold and small", ""]))
    questions = [{"q": "the sun is", "c": ["hot", "cold and small"], "a": 1}, {"q": "so", "c": ["a", "b"], "a": 0}]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(each) + "\n" for each in questions))
    (tmp_path / "x.yaml").write_text("task: x\ndata: x.jsonl\nquestion: q\nchoices: c\ngold: a\nitem_order: file\n")
    tasks, more = (
        ["text", "own", "miron-gen/en"],
        {"data_dir": tmp_path / "text", "task_path": [str(tmp_path / "x.yaml")]},
    )
    model = bigrams(params=jnp.tile(jnp.asarray(row, jnp.float32), (VOCAB, 1)))
    given = str(tmp_path / "tokenizer"), tasks
    more |= {"output": tmp_path / "out", "items_per_category": 1}
    results = miron_jax.Evaluator(model, *given, token_stats=True, **more).run(step=1)["tasks"]
    for name in ("text/a", "own/x", "miron-gen/en"):
        seen = 0
        for sample in samples(tmp_path / "out/step_1", name):
            for option in sample["options"]:
                entropies, largest = option["token_entropies"], option["token_largest_logprobs"]
                assert entropies == pytest.approx(
                    [-(np.exp(logprob) * logprob).sum()] * option["num_tokens"], abs=TOKEN
                )
                assert largest == pytest.approx([logprob.max()] * option["num_tokens"], abs=TOKEN)
            if sample["options"]:
                right = sample["options"][sample.get("gold") or 0]
                ranks = np.asarray(right["token_ranks"])
                assert logprob[right["token_ids"]] == pytest.approx(np.asarray(right["token_logprobs"]), abs=TOKEN)
                assert ranks.tolist() == [(logprob > each + TOKEN).sum() for each in right["token_logprobs"]]
                metrics = sample["metrics"]
                assert metrics["expected_rank"] == pytest.approx(1 + ranks.mean(), rel=FLOAT64)
                assert metrics["token_top20"] == pytest.approx((ranks < 20).mean(), rel=FLOAT64)
                assert metrics["token_prob"] == pytest.approx(np.exp(right["token_logprobs"]).mean(), rel=FLOAT64)
                seen += 1
        assert seen >= 2
        stats = {key: results[name]["metrics"][key] for key in TOKEN_STATS}
        assert stats["token_entropy"]["value"] == pytest.approx(-(np.exp(logprob) * logprob).sum(), abs=TOKEN)
        assert stats["expected_rank"]["ci95"][0] < stats["expected_rank"]["value"]
    with pytest.raises(InputError, match="holds another run: its token_stats is True"):
        miron_jax.Evaluator(model, *given, **more)
