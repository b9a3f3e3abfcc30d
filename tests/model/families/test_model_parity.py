"""The decoder against torch: tiny random models of transformers, as plain rows and as tries, in float32 and bfloat16."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.model.checkpoints.hf_reader import load_hf
from miron_jax.model.decoder.decoder import with_places
from miron_jax.model.families.reading import alibi_slopes
from tests.support.needs import needs
from tests.support.plain_rows import logprobs
from tests.support.tiny_families import GEMMA, GPT2, MODELS, VOCAB
from tests.support.tolerances import BFLOAT16, TOKEN
from tests.support.torch_folders import save_tiny, torch_logprobs
from tests.support.toy_decoders import CONFIG

pytestmark = pytest.mark.slow


# One batch of each model: two plain rows, and three tries in a row of 23.  A trunk a b c with branches d e | f (g | h) at
# depth 3, then a trie i j, then padding, each slot of which sees only itself.
#   index        0  1  2  3  4  5  6  7  8  9 10 11 ..
#   position     0  1  2  3  4  3  4  4  0  1  0  0 ..
#   subtree_end  8  8  8  5  5  8  7  8 10 10 11 12 ..
LENGTH, NODES = 23, 10
POSITION = np.tile(np.arange(LENGTH, dtype=np.int32), (3, 1))
POSITION[2] = [0, 1, 2, 3, 4, 3, 4, 4, 0, 1, *[0] * (LENGTH - NODES)]
SUBTREE_END = np.full((3, LENGTH), LENGTH, np.int32)
SUBTREE_END[2] = [8, 8, 8, 5, 5, 8, 7, 8, 10, 10, *range(NODES + 1, LENGTH + 1)]
PATHS = [[0, 1, 2, 3, 4], [0, 1, 2, 5, 6], [0, 1, 2, 5, 7], [8, 9]]
TOKEN_IDS = np.random.default_rng(3).integers(1, VOCAB, (3, LENGTH), dtype=np.int32)

# In bfloat16 what differs between families is what stands outside the layers' matmuls.
BFLOAT16_ALSO = (
    "llama-tied-biases", "mpt-six-heads-clip-scale", "gpt2", "falcon-alibi", "gemma2", "cohere-normed-biases", "granite",
    "qwen2-moe", "gpt-oss",
)  # fmt: skip


class Saved(NamedTuple):
    folder: Path
    logprob_2TV: np.ndarray  # float64, torch's: of the plain rows
    forest_TV: np.ndarray  # of the tries' nodes, from a row a path


@pytest.fixture(scope="module", params=MODELS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp(request.param)
    model = save_tiny(folder, *MODELS[request.param])
    forest_TV = np.zeros((NODES, VOCAB))
    for path in PATHS:
        forest_TV[path] = torch_logprobs(model, TOKEN_IDS[2:, path])[0]
    return Saved(folder, torch_logprobs(model, TOKEN_IDS[:2]), forest_TV)


def test_every_log_probability_is_torchs(saved: Saved) -> None:
    """Of plain rows, of nodes of a trie; and bit by bit the same beside other tries, padding and rows."""
    model = load_hf(saved.folder, "float32")
    computed = logprobs(*model, TOKEN_IDS, POSITION, SUBTREE_END)
    np.testing.assert_allclose(computed[:2], saved.logprob_2TV, rtol=0, atol=TOKEN)
    np.testing.assert_allclose(computed[2, :NODES], saved.forest_TV, rtol=0, atol=TOKEN)
    changed = TOKEN_IDS.copy()
    changed[:2], changed[2, 8:] = 2, 1
    np.testing.assert_array_equal(logprobs(*model, changed, POSITION, SUBTREE_END)[2, :8], computed[2, :8])


@pytest.mark.parametrize(
    "saved",
    [name if name in BFLOAT16_ALSO else pytest.param(name, marks=pytest.mark.long) for name in MODELS],
    indirect=True,
)
def test_in_bfloat16_too(saved: Saved) -> None:
    config, state = load_hf(saved.folder, "bfloat16")
    computed = logprobs(config, state, TOKEN_IDS, POSITION, SUBTREE_END)
    apart_BT = np.abs(computed[:2] - saved.logprob_2TV).max(axis=-1)
    # A router whose choices are nearly equal may take another expert for one token of the 46.
    rerouted = 1 if config.experts is not None else 0
    worst = np.sort(apart_BT.ravel())[::-1]
    assert worst[rerouted] <= BFLOAT16
    assert worst[0] <= (1 + rerouted) * BFLOAT16


@pytest.mark.parametrize(("heads", "dtype"), [(1, "bfloat16"), (6, "float32"), (71, "bfloat16")])
def test_falcons_alibi_is_rounded_as_torch_rounds_it(heads: int, dtype: str) -> None:
    """Falcon RW: slope, position and their product each in bfloat16, then divided as logits are."""
    torch = needs("torch")
    falcon = needs("transformers.models.falcon.modeling_falcon")
    ones = torch.ones((1, 3000), dtype=torch.long)
    bias_NT = falcon.build_alibi_tensor(ones, heads, torch.float32).reshape(heads, -1).numpy()
    slopes = alibi_slopes(heads)
    config = dataclasses.replace(CONFIG, alibi_slopes=slopes, alibi_rounded=True, num_heads=heads, attn_scale=0.5)
    empty = jnp.zeros((1, 3000, heads, 4), dtype)
    places = jax.jit(functools.partial(with_places, config))
    q, k, v = places(jnp.arange(3000)[None], empty, empty, empty)
    assert q.shape == k.shape == v.shape == (1, 3000, heads, 12)
    assert q.dtype == k.dtype == dtype
    computed_NT = np.einsum("nh,tnh->nt", np.asarray(q[0, 0], np.float64), np.asarray(k[0], np.float64))
    np.testing.assert_array_equal(computed_NT, bias_NT * config.attn_scale)


def test_gpt2_without_its_prefix_loads_the_same(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "prefixed", "GPT2", GPT2)
    model.transformer.save_pretrained(tmp_path / "bare")
    prefixed, bare = (load_hf(tmp_path / name, jnp.float32).state for name in ("prefixed", "bare"))
    jax.tree.map(np.testing.assert_array_equal, prefixed, bare)


def test_a_multimodal_gemma3_answers_as_its_text_model(tmp_path: Path) -> None:
    """Its config is nested, its tensors have another prefix, and its vision tower is beside them."""
    torch, transformers = needs("torch"), needs("transformers")
    torch.manual_seed(3)
    vision = {
        "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
        "patch_size": 14,
    }  # fmt: skip
    text = {name: value for name, value in GEMMA.items() if name != "tie_word_embeddings"}
    config = transformers.Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=90
    )
    model = transformers.Gemma3ForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "gemma3"
    token_ids = TOKEN_IDS % 80  # none of an image
    expected = torch_logprobs(model, token_ids)
    np.testing.assert_allclose(logprobs(*load_hf(tmp_path, "float32"), token_ids), expected, rtol=0, atol=TOKEN)
