"""Rotary frequencies that follow a request's own length (dynamic, longrope): every request as torch scores it alone."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model, load_model
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import TOLERANCE, SelfCheck
from miron_jax.engine.text_requests import TextRequest
from miron_jax.errors import InputError
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.config import RopeClasses
from miron_jax.model.costs import cost_model
from miron_jax.model.decoder.decoder import abstract
from miron_jax.model.decoder.rope import rope_of
from miron_jax.planning.plan import make_plan
from miron_jax.planning.request_batches import Totals
from miron_jax.tokens.records import Requests
from tests.support.needs import needs
from tests.support.plan_check import COST, check
from tests.support.requests import requests_of
from tests.support.tolerances import FLOAT32, FLOAT64, MOVED, TOKEN
from tests.support.toy_decoders import seeded

VOCAB, ABOVE = 97, 16
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3,
    "num_key_value_heads": 1, "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 50.0, "short_factor": [1.0, 1.1, 1.3, 1.5],
    "long_factor": [1.5, 2.0, 4.0, 9.0], "original_max_position_embeddings": ABOVE,
}  # fmt: skip
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 50.0, "factor": 3.0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "phi3, longrope": ("Phi3", SIZES | {
        "max_position_embeddings": 64, "original_max_position_embeddings": ABOVE, "rope_parameters": LONGROPE,
    }),
    "llama, longrope with a factor": ("Llama", SIZES | {
        "head_dim": 8, "max_position_embeddings": 64, "rope_parameters": LONGROPE | {"factor": 8.0},
    }),
    "llama, dynamic": ("Llama", SIZES | {"head_dim": 8, "max_position_embeddings": ABOVE, "rope_parameters": DYNAMIC}),
}  # fmt: skip


def save(folder: Path, name: str) -> Any:
    torch, transformers = needs("torch"), needs("transformers")
    architecture, fields = MODELS[name]
    torch.manual_seed(1)
    config = getattr(transformers, f"{architecture}Config")(**fields)
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{architecture}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5) if parameter.ndim > 1 else parameter.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    return model


def alone(model: Any, ids: np.ndarray) -> np.ndarray:
    """Log-probabilities of a request's tokens behind its first; the model remembers no request before it."""
    import torch

    embedding = model.model.rotary_emb
    embedding.inv_freq = embedding.original_inv_freq.clone()
    embedding.max_seq_len_cached = embedding.original_max_seq_len
    with torch.no_grad():
        logits = model(torch.tensor(ids[None], dtype=torch.long)).logits[0].double().log_softmax(-1).numpy()
    return logits[np.arange(len(ids) - 1), ids[1:]]


def some_requests() -> Requests:
    """One stem with continuations on both sides of the limit, some of the same length, and requests that begin others."""
    rng = np.random.default_rng(0)
    stem = rng.integers(3, VOCAB, 13).tolist()
    items = []
    for total in (14, 15, 16, 17, 17, 18, 18, 25, 40, 40):
        items.append(([*stem, *rng.integers(3, VOCAB, total - 13).tolist()], 13))
    longest = items[-1][0]
    return requests_of([*items, (longest[:16], 1), (longest[:17], 1), (longest[:30], 5), items[2]])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_request_has_the_frequencies_of_its_own_length(name: str, tmp_path: Path) -> None:
    torch_model = save(tmp_path, name)
    model, requests, totals = load_model(tmp_path, "float32"), some_requests(), Totals()
    selfcheck = SelfCheck(TOLERANCE["float32"])
    forward = Forward(model, token_budget=256)
    [scores] = score_request_batches([requests], forward, cost_model(model.config), totals, selfcheck)
    apart = []
    for (ids, start), score in zip(requests, scores, strict=True):
        expected = alone(torch_model, ids)
        np.testing.assert_allclose(score.logprob, expected[start - 1 :], atol=2 * TOKEN)
        if len(ids) > ABOVE:
            short = alone(torch_model, ids[:ABOVE])  # its beginning, as a request of its own
            apart.append(np.abs(short - expected[: ABOVE - 1]).max())
    assert min(apart) > 10 * MOVED, "the frequencies do differ"
    assert selfcheck.requests >= 8


@pytest.mark.parametrize(("by_length", "most"), [(False, 2), (True, 6)])
def test_only_requests_of_one_class_share_places(by_length: bool, most: int) -> None:
    """Lengths 14 to 16 are one class; above: one of all, or 17, 18, 25, 30 and 40 apart."""
    rope_classes, requests = RopeClasses(ABOVE, by_length), some_requests()
    plan = make_plan(requests, replace(COST, length_class=rope_classes.class_of))
    check(plan, requests)
    together = make_plan(requests, COST)
    assert len(together.rope_class) == 0
    assert len(np.unique(plan.rope_class)) == most
    roots = int((plan.position == 0).sum())
    assert roots >= most
    for r, (ids, start) in enumerate(requests):
        edges = plan.request_edge[plan.request_edge_offset[r] : plan.request_edge_offset[r + 1]]
        assert len(edges) == len(ids) - start
        row = int(np.searchsorted(plan.edge_offset, edges[0], side="right") - 1)
        places = plan.edge_parent[edges] + plan.node_offset[row]
        assert set(plan.rope_class[places].tolist()) == {rope_classes.class_of(len(ids))}


def test_texts_that_would_cross_the_limit_are_refused(tmp_path: Path) -> None:
    fields = MODELS["phi3, longrope"][1] | {"model_type": "phi3"}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    config = from_hf_config(tmp_path)
    model = Model(config, abstract(config, jnp.float32)[0], seeded(config))
    generator = Generator(model, None, slots=1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="has 12 tokens and asks for 5 more, but the model's rotary frequencies"):
        generator.run([TextRequest(tuple(range(3, 15)), 5)])


def test_parameters_that_mean_nothing(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"short_factor": [1.0, 2.0]}, "short_factor field must have length 4, got 2"),
        ({"long_factor": None}, "transformers refuses it"),
        ({"mscale": 2.0}, "'mscale'"),
    ]
    for changes, words in cases:
        fields = MODELS["phi3, longrope"][1] | {"model_type": "phi3", "rope_parameters": LONGROPE | changes}
        (tmp_path / "config.json").write_text(json.dumps(fields))
        with pytest.raises(InputError, match=words):
            from_hf_config(tmp_path)


@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_frequencies_are_transformers(kind: str) -> None:
    """At the size of Phi-3-mini-128k."""
    needs("torch")
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rng = np.random.default_rng(0)
    parameters: dict[str, Any] = {"rope_type": kind, "rope_theta": 10000.0, "factor": 32.0}
    if kind == "longrope":
        parameters |= {
            "short_factor": rng.uniform(1, 2, 48).tolist(),
            "long_factor": rng.uniform(1, 60, 48).tolist(),
            "original_max_position_embeddings": 4096,
        }
    config = LlamaConfig(
        hidden_size=384, num_attention_heads=4, max_position_embeddings=131072, rope_parameters=dict(parameters)
    )
    computed = rope_of(kind, parameters | {"max_position_embeddings": 131072}, 96)
    for length, frequencies in ((None, computed.frequencies), (4097, computed.long or computed.frequencies)):
        expected, scale = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)
        np.testing.assert_allclose(np.asarray(frequencies, np.float32), expected.numpy(), rtol=FLOAT32, atol=0)
        assert computed.scale == pytest.approx(scale, abs=FLOAT64)
