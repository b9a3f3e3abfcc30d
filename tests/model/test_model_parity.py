"""The decoder against torch (tiny random transformers models), and against itself under the forest's layouts.

Tolerances, in nats of log-probability, largest over every token of the vocabulary:
    float32   3e-5   two float32 programs that sum in different orders, 1.1e-5 met; 1e-4 is what the engine promises
    bfloat16  1e-1   bfloat16 keeps 8 bits of every matmul operand: 2^-9 relative each, logits of a few units; 0.06 met
"""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from miron_jax.model.config import ModelConfig, attention_flops_per_pair, matmul_params
from miron_jax.model.decoder import abstract, random_params, with_places
from miron_jax.model.families.reading import alibi_slopes
from miron_jax.model.hf_config import from_hf_config
from miron_jax.model.hf_reader import load_hf
from miron_jax.model.visibility import Visibility
from tests.support.plain_rows import logprobs
from tests.support.tiny_families import GEMMA, GPT2, LLAMA, MODELS, VOCAB
from tests.support.tolerances import BFLOAT16, MOVED, TOKEN, TWO_BFLOAT16
from tests.support.torch_folders import save_tiny, torch_logprobs

pytestmark = pytest.mark.slow

LARGEST = {"float32": TOKEN, "bfloat16": BFLOAT16}


class Saved(NamedTuple):
    folder: Path
    token_ids: np.ndarray  # [2, 23]
    logprob_BTV: np.ndarray  # float64, torch's


def test_alibi_holds_in_bfloat16_at_far_positions() -> None:
    """Products of the dimensions that hold positions, against slope * position."""
    slopes = tuple(float(x) for x in 2.0 ** -np.linspace(0.5, 8, 6))
    config = dataclasses.replace(random_config(), alibi_slopes=slopes, num_heads=6, num_kv_heads=6, head_dim=4)
    position = np.asarray([[0, 1, 255, 256, 65535, 65536, 65793, 1_000_001]], np.int32)
    empty = jnp.zeros((1, 8, 6, 4), jnp.bfloat16)
    q, k, v = with_places(config, jnp.asarray(position), empty, empty, empty)
    found = np.einsum("btnh,bsnh->bnts", np.asarray(q, np.float64), np.asarray(k, np.float64))[0, :, 0]
    np.testing.assert_allclose(found, np.outer(slopes, position[0]), rtol=TWO_BFLOAT16)
    assert v.shape == (1, 8, 6, 12)


@pytest.mark.parametrize("heads", [1, 6, 32, 71])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_falcons_alibi_is_rounded_as_torch_rounds_it(heads: int, dtype: str) -> None:
    """Falcon RW: slope, position and their product each in bfloat16, then divided as logits are."""
    torch = pytest.importorskip("torch")
    falcon = pytest.importorskip("transformers.models.falcon.modeling_falcon")
    ones = torch.ones((1, 3000), dtype=torch.long)
    bias_NT = falcon.build_alibi_tensor(ones, heads, torch.float32).reshape(heads, -1).numpy()
    config = dataclasses.replace(
        random_config(), alibi_slopes=alibi_slopes(heads), alibi_rounded=True, num_heads=heads, num_kv_heads=heads
    )
    empty = jnp.zeros((1, 3000, heads, 4), dtype)
    places = jax.jit(functools.partial(with_places, config))
    q, k, v = places(jnp.arange(3000)[None], empty, empty, empty)
    assert q.shape == k.shape == v.shape == (1, 3000, heads, 12)
    assert q.dtype == k.dtype == dtype
    found_NT = np.einsum("nh,tnh->nt", np.asarray(q[0, 0], np.float64), np.asarray(k[0], np.float64))
    np.testing.assert_array_equal(found_NT, bias_NT * config.attn_scale)


def random_config() -> ModelConfig:
    return ModelConfig(
        family="bloom", vocab_size=VOCAB, d_model=24, num_layers=1, num_heads=6, num_kv_heads=6, head_dim=4, d_ff=8,
        trained_length=64, num_positions=None, layer_ropes=(), layer_windows=(None,), norm_eps=1e-5, attn_scale=0.5,
    )  # fmt: skip


@pytest.fixture(scope="module", params=MODELS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp(request.param)
    model = save_tiny(folder, *MODELS[request.param])
    token_ids = np.random.default_rng(3).integers(1, VOCAB, (2, 23), dtype=np.int32)
    return Saved(folder, token_ids, torch_logprobs(model, token_ids))


class Model(NamedTuple):
    config: ModelConfig
    state: Any


def random_model(folder: Path, architecture: str, fields: dict[str, Any]) -> Model:
    """The same shapes without torch: config.json alone, and the decoder's own random weights."""
    split = {
        "Gemma3": "gemma3_text",
        "GPTNeoX": "gpt_neox",
        "Qwen2Moe": "qwen2_moe",
        "Qwen3Moe": "qwen3_moe",
        "GptOss": "gpt_oss",
    }
    model_type = split.get(architecture, architecture.lower())
    (folder / "config.json").write_text(json.dumps(fields | {"model_type": model_type}))
    config = from_hf_config(folder)
    return Model(config, random_params(config, jnp.float32, seed=1))


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return random_model(tmp_path_factory.mktemp("model"), *MODELS[request.param])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_log_probability_is_torchs(saved: Saved, dtype: str) -> None:
    config, state = load_hf(saved.folder, dtype)
    apart_BT = np.abs(logprobs(config, state, saved.token_ids) - saved.logprob_BTV).max(axis=-1)
    # In bfloat16 a router whose choices are nearly equal may take another expert for one token of the 46.
    rerouted = 1 if config.experts is not None and dtype == "bfloat16" else 0
    worst = np.sort(apart_BT.ravel())[::-1]
    assert worst[rerouted] <= LARGEST[dtype]
    assert worst[0] <= (1 + rerouted) * LARGEST[dtype]


# Three tries in two rows of 13.  Row 0: a trunk a b c with branches d e | f (g | h) at depth 3, then a trie i j.
#   index        0  1  2  3  4  5  6  7  8  9 10 11 12
#   position     0  1  2  3  4  3  4  4  0  1  0  0  0     places 10 to 12 are padding: each sees only itself
#   subtree_end  8  8  8  5  5  8  7  8 10 10 11 12 13
# Row 1: one trie of 11 in a line, two places of padding.
POSITION = np.array([[0, 1, 2, 3, 4, 3, 4, 4, 0, 1, 0, 0, 0], [*range(11), 0, 0]], np.int32)
SUBTREE_END = np.array([[8, 8, 8, 5, 5, 8, 7, 8, 10, 10, 11, 12, 13], [11] * 11 + [12, 13]], np.int32)
PATHS = [(0, [0, 1, 2, 3, 4]), (0, [0, 1, 2, 5, 6]), (0, [0, 1, 2, 5, 7]), (0, [8, 9]), (1, [*range(11)])]


def test_a_forest_row_equals_its_paths_as_plain_rows(model: Model) -> None:
    token_ids = np.random.default_rng(5).integers(1, VOCAB, POSITION.shape, dtype=np.int32)
    forest = logprobs(*model, token_ids, POSITION, SUBTREE_END)
    plain_ids = np.zeros((len(PATHS), 11), np.int32)  # one shape, one program: what follows a path cannot reach back
    for i, (row, places) in enumerate(PATHS):
        plain_ids[i, : len(places)] = token_ids[row, places]
    plain = logprobs(*model, plain_ids)
    for i, (row, places) in enumerate(PATHS):
        np.testing.assert_allclose(forest[row, places], plain[i, : len(places)], rtol=0, atol=TOKEN)


def test_padding_tokens_and_row_mates_move_nothing(model: Model) -> None:
    token_ids = np.random.default_rng(5).integers(1, VOCAB, POSITION.shape, dtype=np.int32)
    changed = token_ids.copy()
    changed[0, 8:] = 1  # another trie and other padding beside the first trie
    changed[1] = 2
    before, after = (logprobs(*model, ids, POSITION, SUBTREE_END)[0, :8] for ids in (token_ids, changed))
    np.testing.assert_array_equal(before, after)


def test_sharded_and_single_files_load_the_same(tmp_path: Path) -> None:
    save_tiny(tmp_path / "single", "Llama", LLAMA)
    save_tiny(tmp_path / "sharded", "Llama", LLAMA, max_shard_size="20KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 3
    single, sharded = (load_hf(tmp_path / name, jnp.float32) for name in ("single", "sharded"))
    assert single.config == sharded.config
    jax.tree.map(np.testing.assert_array_equal, single.state, sharded.state)


def test_gpt2_without_its_prefix_loads_the_same(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "prefixed", "GPT2", GPT2)
    model.transformer.save_pretrained(tmp_path / "bare")
    prefixed, bare = (load_hf(tmp_path / name, jnp.float32).state for name in ("prefixed", "bare"))
    jax.tree.map(np.testing.assert_array_equal, prefixed, bare)


def test_attention_soft_cap_is_torchs(tmp_path: Path) -> None:
    fields = MODELS["gemma2"][1] | {"attn_logit_softcapping": 0.4, "final_logit_softcapping": 2.0}
    model = save_tiny(tmp_path, "Gemma2", fields)
    capped, state = load_hf(tmp_path, jnp.float32)
    token_ids = np.random.default_rng(3).integers(1, VOCAB, (2, 23), dtype=np.int32)
    found = logprobs(capped, state, token_ids)
    np.testing.assert_allclose(found, torch_logprobs(model, token_ids), rtol=0, atol=TOKEN)
    uncapped = logprobs(dataclasses.replace(capped, attn_softcap=None), state, token_ids)
    assert np.abs(uncapped - found).max() > MOVED  # the cap bites: the test can fail


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return random_model(tmp_path_factory.mktemp("gemma"), "Gemma3", GEMMA)


def test_the_head_is_the_embedding_itself_where_tied(gemma: Model) -> None:
    config, state = gemma
    decoder = nnx.merge(abstract(config, jnp.float32)[0], state)
    head = decoder.head()
    assert head.weight_VD is decoder.embedding_VD[...]
    assert len(jax.tree.leaves(head)) == 1  # no bias leaf; cap and scale are static


def test_random_params_have_the_abstract_tree(gemma: Model) -> None:
    config, _ = gemma
    for dtype in (jnp.float32, jnp.bfloat16):
        _, wanted = abstract(config, dtype)
        made = random_params(config, dtype, seed=1)
        assert jax.tree.structure(wanted) == jax.tree.structure(made)
        jax.tree.map(
            lambda w, m: None if (w.shape, w.dtype) == (m.shape, m.dtype) else pytest.fail(str(w)), wanted, made
        )
    one, same, other = (jax.tree.leaves(random_params(config, jnp.float32, seed))[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_flop_counts_by_hand(gemma: Model) -> None:
    config, state = gemma
    # a layer: q 36x60, k and v 36x20 each, out 60x36, gate, up and down 36x53 each = 2160 + 1440 + 2160 + 5724 = 11484
    assert matmul_params(config) == 5 * 11484
    flat = jax.tree_util.tree_flatten_with_path(state)[0]
    assert matmul_params(config) == sum(leaf.size for path, leaf in flat if "kernel_IO" in jax.tree_util.keystr(path))
    assert attention_flops_per_pair(config) == 4 * 6 * 10 * 5  # two matmuls, multiply and add, 6 heads of 10, 5 layers


def test_one_program_serves_all_layers_and_ahead_of_time_compilation(gemma: Model) -> None:
    """Budget: the layer is traced once, whatever the depth, and a compiled call with donated tokens works."""
    config, state = gemma
    calls = []

    class Counting(Visibility):
        def attend(self, *args: Any, **kwargs: Any) -> jax.Array:
            calls.append(kwargs["window"])
            return super().attend(*args, **kwargs)

    graphdef, wanted = abstract(config, jnp.float32)
    tokens = jax.ShapeDtypeStruct((2, 9), jnp.int32)

    def step(state: Any, token_ids: jax.Array, position: jax.Array) -> tuple[jax.Array, jax.Array]:
        visibility = Counting(jnp.full_like(position, 9), position)
        return nnx.merge(graphdef, state)(token_ids, position, visibility), token_ids + 1  # takes the donated place

    compiled = jax.jit(step, donate_argnums=(1,)).lower(wanted, tokens, tokens).compile()
    assert len(calls) <= 2  # lax.scan may trace a body once more to settle its types
    position = jnp.tile(jnp.arange(9, dtype=jnp.int32), (2, 1))
    hidden_BTD, _ = compiled(state, position + 1, position)
    assert hidden_BTD.shape == (2, 9, config.d_model)


def test_a_multimodal_gemma3_answers_as_its_text_model(tmp_path: Path) -> None:
    """Its config is nested, its tensors have another prefix, and its vision tower is beside them."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
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
    token_ids = np.random.default_rng(3).integers(1, 80, (2, 23), dtype=np.int32)
    expected = torch_logprobs(model, token_ids)
    np.testing.assert_allclose(logprobs(*load_hf(tmp_path, "float32"), token_ids), expected, rtol=0, atol=TOKEN)
