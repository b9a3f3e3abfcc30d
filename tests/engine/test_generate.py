"""Generation against its slow twin: the whole prompt through the decoder again for every token."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from miron_jax.engine import model as model_module
from miron_jax.engine.decode import decoder_of, with_guesses
from miron_jax.engine.generate import CPU_PROGRAM, Generator
from miron_jax.engine.model import Model
from miron_jax.engine.text_requests import Generated, TextRequest
from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention import tpu
from miron_jax.kernels.forest_attention.choose import Choice
from miron_jax.model.cache import Cache
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder import Decoder, abstract, random_params
from miron_jax.model.hf_config import from_hf_config
from miron_jax.model.hf_reader import load_hf
from miron_jax.runtime.devices import Placement
from miron_jax.runtime.progress import Lines
from tests.support.generators import Tiny, load, prompts, slow_greedy, slow_logits
from tests.support.tiny_model import make_model
from tests.support.tolerances import BFLOAT16

pytestmark = pytest.mark.newest


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return load(make_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def repeating(tiny: Tiny) -> Tiny:
    """Its texts soon repeat themselves: with larger embeddings the token before decides most."""
    decoder = decoder_of(tiny.model.graphdef, jax.tree.map(jnp.copy, tiny.model.state))
    decoder.embedding_VD[...] = decoder.embedding_VD[...] * 3
    return tiny._replace(model=tiny.model._replace(state=nnx.split(decoder)[1]))


@pytest.fixture(scope="module")
def shared(tiny: Tiny) -> Generator:
    """One generator, whose programs are compiled once."""
    return Generator(tiny.model, tiny.tokenizer, slots=8)


@pytest.mark.parametrize("slots", [3, 32])
def test_greedy_equals_the_slow_twin(tiny: Tiny, slots: int) -> None:
    generator = Generator(tiny.model, tiny.tokenizer, slots=slots)
    requests = [TextRequest(ids, 1 + i % 9) for i, ids in enumerate(prompts(20, 0, 320))]
    for request, completion in zip(requests, generator.run(requests), strict=True):
        assert list(completion.token_ids) == slow_greedy(tiny.model, request.token_ids, request.max_new_tokens)
        assert completion.ended == "length"
    assert generator.speed.prefilled_tokens < generator.speed.prompt_tokens - len(requests)


def test_prompts_are_read_by_the_devices_own_attention(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [TextRequest(ids, 5) for ids in prompts(4, 1, 320)]
    expected = Generator(tiny.model, tiny.tokenizer, slots=4).run(requests)
    calls: list[int] = []

    def attend(*arrays: jax.Array, **rules: Any) -> jax.Array:
        calls.append(len(arrays))
        return interpreted(*arrays, **rules)

    interpreted = partial(tpu.forest_attention, interpret=True)
    monkeypatch.setattr(model_module, "choose", lambda device, heads, name, split: Choice("tpu"))
    monkeypatch.setattr(tpu, "forest_attention", attend)
    completions = Generator(tiny.model, tiny.tokenizer, slots=4).run(requests)
    assert calls
    assert [c.token_ids for c in completions] == [c.token_ids for c in expected]


@pytest.mark.parametrize("family", ["gpt2", "gemma3_text", "bloom", "falcon"])
def test_learned_positions_windows_and_alibi(tmp_path: Path, family: str) -> None:
    """Prompts longer than the window, generation that crosses it; learned positions that end right at the limit."""
    config: dict[str, Any] = {
        "gpt2": {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 48, "vocab_size": 331},
        "gemma3_text": {
            "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8,
            "intermediate_size": 40, "vocab_size": 331, "sliding_window": 7, "max_position_embeddings": 128,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        "bloom": {"hidden_size": 24, "n_layer": 2, "n_head": 3, "vocab_size": 331},
        "falcon": {
            "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 331, "alibi": True,
            "multi_query": False,
        },
    }[family]  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family, **config}))
    model_config = from_hf_config(tmp_path)
    model = Model(
        model_config,
        abstract(model_config, jnp.dtype("float32"))[0],
        random_params(model_config, jnp.dtype("float32"), 3),
    )
    generator = Generator(model, _NoText(), slots=4)
    longest = tuple(range(1, 40))  # 39 tokens and 9 more that are fed: the last of GPT-2's 48 positions
    requests = [TextRequest(ids, 10) for ids in [longest, *(ids[:39] for ids in prompts(7, 1, 331))]]
    for request, text in zip(requests, generator.run(requests), strict=True):
        assert list(text.token_ids) == slow_greedy(model, request.token_ids, 10)


class _NoText:
    """For models that have no tokenizer: the text is not looked at."""

    def __len__(self) -> int:
        return 331

    def decode(self, ids: list[int], **_: Any) -> str:
        return ""


def test_bfloat16_keeps_its_keys_in_bfloat16(tiny: Tiny) -> None:
    """Greedy until the slow twin's two best logits are closer than bfloat16 can tell apart."""
    config, state = load_hf(tiny.folder, jnp.dtype("bfloat16"))
    model = Model(config, abstract(config, jnp.dtype("bfloat16"))[0], state)
    generator = Generator(model, tiny.tokenizer, slots=8)
    assert generator._empty_cache(1, 64).key_LJBKHC.dtype == jnp.bfloat16
    requests = [TextRequest(ids, 6) for ids in prompts(8, 9, 320)]
    compared = 0
    for request, completion in zip(requests, generator.run(requests), strict=True):
        ids = list(request.token_ids)
        for token in completion.token_ids:
            logits = slow_logits(model, ids)
            second, best = np.sort(logits)[-2:]
            if best - second < BFLOAT16:
                break
            assert token == int(logits.argmax())
            ids.append(token)
            compared += 1
    assert compared > 16


@pytest.mark.parametrize("slots", [1, 3, 16])
def test_guessed_tokens_change_no_text(repeating: Tiny, slots: int) -> None:
    """Long greedy texts take several tokens a step: every one is the slow twin's, and texts that repeat need few steps."""
    generator = Generator(repeating.model, repeating.tokenizer, slots=slots)
    counts = (100, 90, 64, 3, 1, 2, 97)
    requests = [TextRequest(ids, count) for ids, count in zip(prompts(7, 3, 320), counts, strict=True)]
    for request, completion in zip(requests, generator.run(requests), strict=True):
        assert list(completion.token_ids) == slow_greedy(repeating.model, request.token_ids, request.max_new_tokens)
    assert generator.speed.drawn_tokens == sum(counts)
    assert generator.speed.busy_steps < 0.7 * sum(counts)


def test_a_text_may_end_inside_what_a_step_draws(repeating: Tiny) -> None:
    """EOS or a stop string among guessed tokens: nothing after it counts."""
    generator = Generator(repeating.model, repeating.tokenizer, slots=4)
    ids = prompts(1, 3, 320)[0]
    [whole] = generator.run([TextRequest(ids, 100)])
    assert generator.speed.busy_steps < 70
    drawn = list(whole.token_ids)
    for token in set(drawn):
        generator.eos_ids = frozenset({token})
        [ended] = generator.run([TextRequest(ids, 100)])
        assert (list(ended.token_ids), ended.ended) == (drawn[: drawn.index(token)], "eos")
    generator.eos_ids = frozenset()
    ends = {whole.text[i : i + 5] for i in range(len(whole.text) - 5) if "\ufffd" not in whole.text[i : i + 5]}
    assert len(ends) > 4
    requests = [TextRequest(ids, 100, stop=(end,)) for end in sorted(ends)]
    for end, completion in zip(sorted(ends), generator.run(requests), strict=True):
        assert (completion.text, completion.ended) == (whole.text[: whole.text.find(end)], "stop")


def test_what_is_guessed() -> None:
    """The longest match of three tokens at most, the last among equals, repeated; without one, the token itself."""
    cases = {
        (5, 6, 7, 8, 9, 6, 7): (8, 9, 6),  # what followed 6 7
        (1, 2, 3, 9, 2, 3, 8, 1, 2, 3): (9, 2, 3),  # three tokens match further back than two
        (4, 1, 4, 2, 4): (2, 4, 2),  # the later 4, and on from it again
        (4, 4): (4, 4, 4),
        (1, 2, 3): (3, 3, 3),  # nothing was met before
        (7,): (7, 7, 7),
    }
    tokens = np.full((len(cases), 12), 330, np.int32)  # values after the last token are never read
    for row, known in zip(tokens, cases, strict=True):
        row[: len(known)] = known
    position = np.asarray([len(known) - 1 for known in cases], np.int32)
    guessed = np.asarray(with_guesses(jnp.asarray(tokens), jnp.asarray(position), 4))
    assert guessed.tolist() == [[known[-1], *guess] for known, guess in cases.items()]


def test_a_text_of_nan_spoils_no_other_in_its_slot(tiny: Tiny) -> None:
    """One slot, and a token whose embedding is NaN: prompts with it come first, others after them."""
    assert isinstance(tiny.model.config, ModelConfig)
    config = replace(tiny.model.config, tied_head=False)
    decoder = nnx.merge(*nnx.split(Decoder(config, dtype=jnp.float32, rngs=nnx.Rngs(0))))
    nnx.update(decoder, tiny.model.state)
    assert decoder.head_VD is not None
    decoder.head_VD[...] = decoder.embedding_VD[...]
    decoder.embedding_VD[...] = decoder.embedding_VD[...].at[330].set(jnp.nan)
    generator = Generator(Model(config, *nnx.split(decoder)), _NoText(), slots=1)
    wrong = [TextRequest((*range(1, 290), 330, 5 + i), 70) for i in range(3)]
    right = [TextRequest((*range(2, 291), 5 + i), 66 - i) for i in range(3)]  # in another row
    completions = generator.run(right + wrong)
    assert [c.ended for c in completions] == ["length"] * 3 + ["nan"] * 3
    clean = Generator(tiny.model, _NoText(), slots=1).run(right)
    assert [c.token_ids for c in completions[:3]] == [c.token_ids for c in clean]


def test_as_many_slots_as_texts_fill(tiny: Tiny) -> None:
    generator = Generator(tiny.model, tiny.tokenizer, slots=100)

    def slots(*counts: int) -> int:
        return generator._slots_for([TextRequest((1,), count) for count in counts], 64)

    assert [slots(5), slots(5, 5, 5), slots(*[5] * 8), slots(*[5] * 17)] == [1, 2, 4, 16]
    assert slots(40, *[5] * 16) == 2  # 120 tokens, 40 one after the other: two slots take two turns of 40
    assert slots(*[5] * 1000) == 100


def test_small_slots_join_larger_ones_only_where_that_pays(tiny: Tiny) -> None:
    generator = Generator(tiny.model, tiny.tokenizer, slots=8)
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(tiny.model.state))
    few = [TextRequest((1,) * 8, 10)] * 2
    # Two texts of 10 tokens: 10 steps more and a program, or 20 tokens that read more bytes.
    even = (10 * weights + CPU_PROGRAM) // 20
    assert generator._worth_joining(few, even - 1)
    assert not generator._worth_joining(few, even + 1)
    sizes = generator._by_slot_size([TextRequest((1,) * 8, 10), TextRequest((1,) * 100, 10)])
    assert {size: len(members) for size, members in sizes.items()} == {128: 2}


def test_equal_requests_are_generated_once(tiny: Tiny) -> None:
    request = TextRequest(prompts(1, 7, 320)[0], 5)
    generator = Generator(tiny.model, tiny.tokenizer)
    completions = generator.run([request, request, request])
    assert completions[0] == completions[1] == completions[2]
    assert generator.speed.busy_steps == 5


def test_finished_slots_are_filled_again(tiny: Tiny) -> None:
    """One long text among short ones does not hold the batch: 4 slots, 41 texts; idle slots only at the end."""
    requests = [TextRequest((i, *ids[:9]), 40 if i == 0 else 3) for i, ids in enumerate(prompts(41, 8, 320))]
    assert len(set(requests)) == 41
    generator = Generator(tiny.model, tiny.tokenizer, slots=4)
    generator.run(requests)
    assert generator.speed.busy_steps == 40 + 40 * 3
    # Three slots take 40 texts of 3 steps in turns beside the one of 40 steps; at most one turn is not full.
    assert generator.speed.slot_steps <= 4 * 43


def test_nan_is_said(tiny: Tiny) -> None:
    broken = jax.tree.map(lambda x: x * jnp.nan, tiny.model.state)
    [completion] = Generator(tiny.model._replace(state=broken), tiny.tokenizer).run([TextRequest((1, 2, 3), 4)])
    assert completion == Generated("", (), "nan")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (TextRequest((), 3), "BOS"),
        (TextRequest((1,), 0), "at least 1"),
        (TextRequest((1,), 3, stop=("",)), "none of them empty"),
        (TextRequest((1,), 3, stop="END"), "tuple of strings"),  # type: ignore[arg-type]
        (TextRequest((331,), 3), "vocabulary has 331"),
        (TextRequest((-1,), 3), "from -1"),
    ],
)
def test_bad_requests(tiny: Tiny, request_: TextRequest, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Generator(tiny.model, tiny.tokenizer).run([request_])


def test_too_long_for_learned_positions(tmp_path: Path) -> None:
    shape = {"n_embd": 24, "n_layer": 1, "n_head": 3, "n_positions": 48, "vocab_size": 331}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **shape}))
    config = from_hf_config(tmp_path)
    model = Model(config, abstract(config, jnp.dtype("float32"))[0], random_params(config, jnp.dtype("float32"), 3))
    with pytest.raises(InputError, match="48 learned positions"):
        Generator(model, _NoText()).run([TextRequest(tuple(range(40)), 10)])


def test_programs_do_not_follow_the_number_of_requests(tiny: Tiny) -> None:
    generator = Generator(tiny.model, tiny.tokenizer, slots=8)
    generator.run([TextRequest((i, 1, 2), 3) for i in range(8)])
    programs = generator.speed.programs
    generator.run([TextRequest((i, 3, 4), 3) for i in range(5)])
    generator.run([TextRequest((i, 5, 6), 3) for i in range(7)])
    assert generator.speed.programs == programs


@pytest.mark.parametrize(("blocks", "block", "new"), [(1, 16, 4), (4, 8, 1), (3, 8, 5), (2, 4, 8)])
def test_new_tokens_are_placed_in_one_way_by_both_forms(blocks: int, block: int, new: int) -> None:
    """A TPU places a step's tokens by a pass over the cache, other devices by a scatter."""
    rng = np.random.default_rng(blocks)
    layers, slots, heads, size = 2, 5, 3, 7
    shapes = ((layers, blocks, slots, heads, size, block), (layers, blocks, slots, heads, block, size))
    cache = Cache(*(jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes))
    key, value = jnp.asarray(rng.normal(size=(2, layers, slots, new, heads, size)), jnp.float32)
    beyond = blocks * block
    position = np.stack([rng.permutation(beyond + 2)[:new] for _ in range(slots)]).astype(np.int32)
    position[0], position[1] = beyond, np.where(np.arange(new) < 2, np.arange(new), beyond)  # idle; a wrong guess
    for placed, expected in zip(
        cache._selected(key, value, jnp.asarray(position)),
        cache._scattered(key, value, jnp.asarray(position)),
        strict=True,
    ):
        np.testing.assert_array_equal(placed, expected)
    assert not np.array_equal(cache._selected(key, value, jnp.asarray(position)).key_LJBKHC, cache.key_LJBKHC)


def test_slots_that_do_not_fit_are_halved(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device without room for all slots refuses the program of their steps."""
    generator, expected = (Generator(tiny.model, tiny.tokenizer, slots=8) for _ in range(2))
    asked = [TextRequest((3 + i, 5, 7), 6) for i in range(9)]
    texts, compile_program, lines = expected.run(asked), Placement.compile, list[str]()

    def refusing(self: Placement, function: Any, shared: Any, split: Any, *more: Any) -> Any:
        is_step = len(split) == 5 and len(shared) == 2
        if is_step and split[1].shape[1] > 2:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Ran out of memory on HBM")
        return compile_program(self, function, shared, split, *more)

    monkeypatch.setattr(Placement, "compile", refusing)
    generator.progress, finished = Lines(lines.append), list[TextRequest]()
    assert generator.run(asked, lambda request, text: finished.append(request)) == texts
    assert [line for line in lines if "out of memory" in line]
    assert sorted(finished, key=asked.index) == asked
