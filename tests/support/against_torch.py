"""Scores and texts of a family's model beside torch, one request or one text a call."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import SelfCheck
from miron_jax.engine.text_requests import TextRequest
from miron_jax.model.costs import cost_model
from miron_jax.model.hf_reader import load_hf
from miron_jax.planning.request_batches import Totals
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.own_models import some_requests
from tests.support.tiny_model import make_tokenizer
from tests.support.tolerances import BFLOAT16, TOKEN


def loaded(folder: Path, dtype: str = "float32") -> Model:
    config, state = load_hf(folder, jnp.dtype(dtype))
    return Model(config, config, state)


def torch_logprobs(torch_model: Any, row: np.ndarray) -> np.ndarray:
    """[T, V]; without torch's cache, in which a row of one token of RecurrentGemma fails (transformers 5.24)."""
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        logits = torch_model(torch.tensor(np.asarray(row, np.int64)[None]), use_cache=False).logits
    return torch.log_softmax(logits.double(), dim=-1).numpy()[0]


def one_by_one(torch_model: Any, requests: Any) -> list[np.ndarray]:
    """Torch, one request a call."""
    found = []
    for ids, start in requests:
        logprob = torch_logprobs(torch_model, ids[:-1]) if start < len(ids) else np.zeros(0)
        found.append(logprob[np.arange(start - 1, len(ids) - 1), ids[start:]] if start < len(ids) else logprob)
    return found


def check_scores(folder: Path, torch_model: Any, dtype: str) -> None:
    model, requests = loaded(folder, dtype), some_requests()
    forward, check, totals = Forward(model, token_budget=300), SelfCheck.of(model.config, model.state, dtype), Totals()
    with jax.default_matmul_precision("highest"):
        [scores] = score_request_batches([requests], forward, cost_model(model.config), totals, check)
    largest = TOKEN if dtype == "float32" else BFLOAT16
    for score, expected in zip(scores, one_by_one(torch_model, requests), strict=True):
        np.testing.assert_allclose(score.logprob, expected, rtol=0, atol=largest)
    assert check.requests >= 8
    assert totals.plain_tokens > 2 * totals.unique_tokens


def check_texts(folder: Path, torch_model: Any, prompts: list[list[int]], tokenizer: Path) -> None:
    make_tokenizer(tokenizer)
    generator = Generator(loaded(folder), load_tokenizer(str(tokenizer)), slots=len(prompts) - 1)
    texts = generator.run([TextRequest(tuple(ids), 5 + i) for i, ids in enumerate(prompts)])
    for ids, text in zip(prompts, texts, strict=True):
        row = list(ids)
        for token in text.token_ids:
            logprobs = torch_logprobs(torch_model, np.asarray(row))[-1]
            assert logprobs[token] > logprobs.max() - TOKEN, "two tokens may be level within rounding"
            row.append(token)
