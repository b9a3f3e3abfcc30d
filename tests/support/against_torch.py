"""Scores and texts of a family's model beside torch, one request or one text a call."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model
from miron_jax.engine.plain import score_plainly
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import TOLERANCE, SelfCheck
from miron_jax.engine.text_requests import TextRequest
from miron_jax.model.costs import cost_model
from miron_jax.model.hf_reader import load_hf
from miron_jax.planning.request_batches import Totals
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.needs import needs
from tests.support.own_models import some_requests
from tests.support.tiny_model import make_tokenizer
from tests.support.tolerances import BFLOAT16, TOKEN


def loaded(folder: Path, dtype: str = "float32") -> Model:
    config, state = load_hf(folder, jnp.dtype(dtype))
    return Model(config, config, state)


def torch_logprobs(torch_model: Any, row: np.ndarray) -> np.ndarray:
    """[T, V]; without torch's cache, in which a row of one token of RecurrentGemma fails (transformers 5.24)."""
    torch = needs("torch")
    with torch.no_grad():
        logits = torch_model(torch.tensor(np.asarray(row, np.int64)[None]), use_cache=False).logits
    return torch.log_softmax(logits.double(), dim=-1).numpy()[0]


def one_by_one(torch_model: Any, requests: Any) -> list[np.ndarray]:
    """Torch, a row for each request that begins no longer one."""
    items, rows, computed = list(requests), list[tuple[np.ndarray, np.ndarray]](), dict[int, np.ndarray]()
    for i in sorted(range(len(items)), key=lambda i: -len(items[i][0])):
        ids, start = items[i]
        read = ids[:-1]
        same = [logprob for row, logprob in rows if np.array_equal(row[: len(read)], read)]
        if not same:
            same = [torch_logprobs(torch_model, read)]
            rows.append((read, same[0]))
        computed[i] = same[0][np.arange(start - 1, len(ids) - 1), ids[start:]]
    return [computed[i] for i in range(len(items))]


def check_scores(folder: Path, torch_model: Any) -> None:
    """In float32: requests that share tokens, beside the plain scorer as well."""
    model, requests = loaded(folder), some_requests()
    forward, check, totals = Forward(model, token_budget=300), SelfCheck(TOLERANCE["float32"]), Totals()
    with jax.default_matmul_precision("highest"):
        [scores] = score_request_batches([requests], forward, cost_model(model.config), totals, check)
    for score, expected in zip(scores, one_by_one(torch_model, requests), strict=True):
        np.testing.assert_allclose(score.logprob, expected, rtol=0, atol=TOKEN)
    assert check.requests >= 8
    assert totals.plain_tokens > 2 * totals.unique_tokens


def check_bfloat16(folder: Path, torch_model: Any) -> None:
    """Weights in bfloat16: the plain scorer's row, which is one program, and whose numbers the self-check compares with."""
    ids = np.random.default_rng(5).integers(1, 331, 40, dtype=np.int32)
    expected = torch_logprobs(torch_model, ids[:-1])[np.arange(39), ids[1:]]
    [score], _ = score_plainly(loaded(folder, "bfloat16"), [ids], [1])
    np.testing.assert_allclose(score.logprob, expected, rtol=0, atol=BFLOAT16)


def check_texts(folder: Path, torch_model: Any, prompts: list[list[int]], tokenizer: Path) -> None:
    make_tokenizer(tokenizer)
    generator = Generator(loaded(folder), load_tokenizer(str(tokenizer)), slots=len(prompts) - 1)
    texts = generator.run([TextRequest(tuple(ids), 4 + i) for i, ids in enumerate(prompts)])
    for ids, text in zip(prompts, texts, strict=True):
        row = np.asarray([*ids, *text.token_ids])
        logprobs = torch_logprobs(torch_model, row)[len(ids) - 1 : -1]
        chosen = logprobs[np.arange(len(text.token_ids)), list(text.token_ids)]
        assert (chosen > logprobs.max(axis=-1) - TOKEN).all(), "two tokens may be level within rounding"
