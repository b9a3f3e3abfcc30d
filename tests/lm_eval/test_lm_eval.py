"""lm-eval on this engine: the same answers as its Hugging Face backend (HFLM), request by request and task by task."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.support.needs import reason

pytest.importorskip("lm_eval", reason=reason("lm_eval"))
pytest.importorskip("torch", reason=reason("torch"))

import miron_jax.evaluation.session
from miron_jax import InputError, load_params
from miron_jax.lm_eval import MironLM
from tests.support.lm_eval_pair import NAMES, TEXTS, asked, assert_same, assert_same_values, hflm, simple_evaluate
from tests.support.tolerances import TOKEN
from tests.support.torch_folders import torch_folder

pytestmark = pytest.mark.slow

Pair = tuple[MironLM, Any]


def test_every_pair_of_texts(pair: Pair) -> None:
    """Trailing spaces, BOS in the text, letters across tokens, duplicates; contexts longer than the window.

    HFLM fails where the context's tokens leave none for the continuation, or where there is no context token: where one
    token takes in both, as "t" and "he" of "the", its score is that of the token without a context.
    """
    ours, theirs = pair
    whole = next(
        word for word in ("the", "hill", "rain") if len(theirs.tok_encode(word, add_special_tokens=False)) == 1
    )
    bos = theirs.tokenizer.decode(theirs.prefix_token_id)
    contexts = [*TEXTS, f"{bos}the sun", " ".join(TEXTS * 8)]
    rests = [text for text in TEXTS if text.strip()]
    texts = [(context, rest) for i, context in enumerate(contexts) for rest in rests[i % 2 :: 2]]
    texts += [*texts[:3], ("", whole), (whole[0], whole[1:])]
    requests = asked("loglikelihood", texts)
    kept = [i for i, (context, rest) in enumerate(texts) if not context or all(theirs._encode_pair(context, rest))]
    assert len(kept) > 0.8 * len(texts)
    received = ours.loglikelihood(requests)
    expected = theirs.loglikelihood([requests[i] for i in kept], disable_tqdm=True)
    tokens = [len(after) for _, after in ours._pairs(texts)]
    assert_same([received[i] for i in kept], expected, [tokens[i] for i in kept])
    assert all(np.isfinite(logprob) and logprob < 0 for logprob, _ in received)
    assert received[-1] == received[-2]


def test_tokens_are_theirs(pair: Pair) -> None:
    ours, theirs = pair
    bos = theirs.tokenizer.decode(theirs.prefix_token_id)
    assert (ours.max_length, ours.prefix_token_id) == (theirs.max_length, theirs.prefix_token_id)
    for text in (*TEXTS, f"{bos}hot", f"{bos} hot", f"hot {bos}"):
        for special in (None, True, False):
            assert ours.tok_encode(text, special) == theirs.tok_encode(text, special)
            assert ours.tok_encode(text, special, left_truncate_len=2) == theirs.tok_encode(text, special, 2)
        assert ours.tok_encode(text)[:2] != [ours.prefix_token_id] * 2, "a second BOS"


def test_documents_by_windows(pair: Pair) -> None:
    """Shorter than the window, exactly as long, one longer, several windows, and empty."""
    ours, theirs = pair
    window = ours.max_length
    ids = theirs.tok_encode(" ".join(TEXTS[:5]) * 9, add_special_tokens=False)
    texts = [theirs.tok_decode(ids[:length]) for length in (window - 1, window, window + 1, 2 * window + 3, 3)]
    texts.append("")
    requests = asked("loglikelihood_rolling", [(text,) for text in texts])
    received = ours.loglikelihood_rolling(requests)
    for a, b, text in zip(received, theirs.loglikelihood_rolling(requests, True), texts, strict=True):
        assert isinstance(a, float)
        assert abs(a - b) <= TOKEN * len(theirs.tok_encode(text))


def test_a_perplexity_that_lm_eval_cannot_compute_is_named(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """exp has room for 709.78 nats; lm-eval counts "a b" as two words, and ends in OverflowError by itself."""
    ours, _ = pair
    for nats, is_named in ((1419.0, False), (1420.0, True), (math.inf, False)):
        monkeypatch.setattr(ours, "_loglikelihood_tokens", lambda pairs, nats=nats: [(-nats, False) for _ in pairs])
        caplog.clear()
        ours.loglikelihood_rolling(asked("loglikelihood_rolling", [("a b",)]))
        assert ("exp(710), its word_perplexity, is no float" in caplog.text) == is_named


def test_completions(pair: Pair) -> None:
    ours, theirs = pair
    options: list[dict[str, Any]] = [
        {"until": ["\n\n"], "max_gen_toks": 12},
        {"until": "hill", "do_sample": False, "max_new_tokens": 12},
        {"until": [" "], "max_gen_toks": 7, "temperature": 0.0},
        {"max_gen_toks": 9, "num_beams": 1},
    ]
    contexts = ["the sun is", "where the small hill", " ".join(TEXTS * 8), "hot"]
    requests = asked("generate_until", [(context, each) for each in options for context in contexts])
    assert ours.generate_until(requests) == theirs.generate_until(requests, disable_tqdm=True)


@pytest.mark.parametrize("pair", ["llama"], indirect=True)
def test_tasks_of_every_output_type(pair: Pair, tasks: Any) -> None:
    """And the same task's prompts by the chat template."""
    options: dict[str, Any] = {"task_manager": tasks, "bootstrap_iters": 0, "log_samples": True}
    received, expected = (simple_evaluate(model=model, tasks=NAMES, **options) for model in pair)
    assert_same_values(received, expected)
    assert received["config"]["model_dtype"] == "float32"
    for name in NAMES:
        for a, b in zip(received["samples"][name], expected["samples"][name], strict=True):
            assert [a[key] for key in ("doc_id", "prompt_hash", "target_hash")] == [
                b[key] for key in ("doc_id", "prompt_hash", "target_hash")
            ]
            assert name != "own_write" or a["resps"] == b["resps"]
    options |= {"apply_chat_template": True, "system_instruction": "be brief", "fewshot_as_multiturn": True, "limit": 3}
    received, expected = (simple_evaluate(model=model, tasks=["own_shots"], **options) for model in pair)
    assert_same_values(received, expected)
    for a, b in zip(received["samples"]["own_shots"], expected["samples"]["own_shots"], strict=True):
        assert a["arguments"] == b["arguments"]


def test_chat_templates(pair: Pair) -> None:
    """llama's, gemma's, which refuses a system's message, and gpt2's, which has none."""
    ours, theirs = pair
    talk = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the sun?"}]
    if ours.tokenizer.chat_template is None:
        with pytest.raises(InputError, match="has no chat template"):
            ours.apply_chat_template(talk)
        return
    for prompts_you in (True, False):
        assert ours.apply_chat_template(talk, prompts_you) == theirs.apply_chat_template(talk, prompts_you)


def test_bos_and_prefix_of_ones_own(folder_of: Callable[[str], Path]) -> None:
    """GPT-2's tokenizer puts no BOS before a text; llama's does, and a prompt that begins with BOS gets no second one."""
    texts, prompts = [("the sun", " is hot"), ("", "rain")], ["<s>hot", "the sun is", "<|endoftext|>hot"]
    scored = asked("loglikelihood", texts)
    written = asked("generate_until", [(prompt, {"max_gen_toks": 6, "until": []}) for prompt in prompts])
    for kind, options in (("gpt2", {"add_bos_token": True}), ("llama", {"add_bos_token": False, "prefix_token_id": 1})):
        folder = str(folder_of(kind))
        theirs = hflm(pretrained=folder, dtype="float32", device="cpu", batch_size=1, logits_cache=False, **options)
        ours = MironLM(folder, **options)  # pyright: ignore[reportArgumentType]
        assert ours.tok_encode("the sun") == theirs.tok_encode("the sun")
        assert_same(ours.loglikelihood(scored), theirs.loglikelihood(scored, disable_tqdm=True), [4, 4])
        assert ours.generate_until(written) == theirs.generate_until(written, disable_tqdm=True)


# Of one model


def test_edges(lm: MironLM) -> None:
    [empty, spaces, alone] = lm.loglikelihood(asked("loglikelihood", [("hot", ""), ("hot", "  "), ("", "")]))
    assert empty == alone == (0.0, True)
    assert spaces[0] < 0
    assert lm.loglikelihood([]) == lm.loglikelihood_rolling([]) == lm.generate_until([]) == []
    long = "hot " * (lm.max_length + 5)
    with pytest.raises(InputError, match=r"a continuation has .* tokens, but the model takes"):
        lm.loglikelihood(asked("loglikelihood", [("the", long)]))
    plain: list[dict[str, Any]] = [{"until": ""}, {"until": []}, {"temperature": None}]
    options = [{"max_gen_toks": 0}, *({**each, "max_gen_toks": 4} for each in plain)]
    nothing, *texts = lm.generate_until(asked("generate_until", [("hot", each) for each in options]))
    assert nothing == ""
    assert len(set(texts)) == 1
    for wrong, sentence in (
        ({"max_gen_toks": lm.max_length}, "that prompt and completion have together"),
        ({"do_sample": True, "temperature": 0.0}, "draws nothing"),
        ({"repetition_penalty": 1.2}, "repetition_penalty=1.2 is not done here"),
        ({"num_beams": 4}, "num_beams=4 is not done here"),
        ({"until": 3}, "until is"),
        ({"do_sample": "False"}, "do_sample is 'False'"),
        ({"max_gen_toks": -1}, "max_gen_toks is -1"),
        ({"temperature": "hot"}, "a value that is no number"),
    ):
        with pytest.raises(InputError, match=sentence):
            lm.generate_until(asked("generate_until", [("hot", wrong)]))


def test_repeats_draw_anew_and_can_be_drawn_again(lm: MironLM) -> None:
    how = {"do_sample": True, "temperature": 2.0, "max_gen_toks": 12, "until": []}
    [request] = asked("generate_until", [("the sun", how)])
    first = lm.generate_until([request] * 4)
    assert len(set(first)) > 1
    assert lm.generate_until([request] * 4) == first


def test_a_model_that_answers_nan(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    nan = jax.tree.map(lambda x: jax.device_put(np.full(x.shape, np.nan, x.dtype)), load_params(folder))
    lm = MironLM(str(folder), params=nan)
    [(logprob, greedy)] = lm.loglikelihood(asked("loglikelihood", [("the sun", " is hot")]))
    assert np.isnan(logprob)
    assert not greedy
    lm.generate_until(asked("generate_until", [("the sun", {"max_gen_toks": 3})]))
    assert "1 of 1 completions mean nothing" in caplog.text


def test_settings_that_are_not_followed_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = torch_folder("llama", tmp_path)
    settings = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**settings, "repetition_penalty": 1.3}))
    MironLM(str(folder)).generate_until(asked("generate_until", [("the sun", {"max_gen_toks": 0})]))
    assert "has {'repetition_penalty': 1.3}, which HFLM applies" in caplog.text


def test_many_parts_are_one(lm: MironLM, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of several parts, some of them in two, have the scores that they have in one."""
    requests = asked("loglikelihood", [("the sun is" + " hot" * (i % 7), " and cold") for i in range(20)])
    before = lm.session.totals.rows
    expected = lm.loglikelihood(requests)
    monkeypatch.setattr(miron_jax.evaluation.session, "REQUEST_BATCH_TOKENS", 40)
    parts = MironLM(str(folder))
    assert_same(parts.loglikelihood(requests), expected, [4] * 20)
    assert parts.session.totals.rows > lm.session.totals.rows - before
