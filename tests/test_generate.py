"""Generation against its slow twin: the whole prompt through the decoder again for every token."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from miron_jax.engine import model as model_module
from miron_jax.engine.decode import decoder_of, with_guesses
from miron_jax.engine.generate import CPU_PROGRAM, Generator
from miron_jax.engine.model import Model, Network
from miron_jax.engine.text_requests import Generated, Sampling, TextRequest
from miron_jax.errors import InputError
from miron_jax.kernels.draw_token import keep_probable
from miron_jax.kernels.forest_attention import tpu
from miron_jax.kernels.forest_attention.choose import Choice
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder import Decoder, abstract, random_params
from miron_jax.model.hf_config import eos_token_ids, from_hf_config
from miron_jax.model.hf_reader import load_hf
from miron_jax.model.visibility import Visibility
from miron_jax.runtime.devices import Tree
from miron_jax.tokens.detokenize import text_after
from miron_jax.tokens.tokenizers import Tokenizer, load_tokenizer
from tests.tiny_model import WORDS, make_model
from tests.tolerances import BFLOAT16


class Tiny(NamedTuple):
    model: Model
    tokenizer: Tokenizer
    folder: Path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = make_model(tmp_path_factory.mktemp("tiny"))
    return load(folder)


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


def load(folder: Path) -> Tiny:
    config, state = load_hf(folder, jnp.dtype("float32"))
    return Tiny(Model(config, abstract(config, jnp.dtype("float32"))[0], state), load_tokenizer(str(folder)), folder)


LONGEST = 160  # slots of the slow twin's one row, padded on the right


@partial(jax.jit, static_argnums=0)
def last_logits(graphdef: Network, state: Tree, row_T: jax.Array, length: jax.Array) -> jax.Array:
    decoder = decoder_of(graphdef, state)
    position = jnp.arange(LONGEST, dtype=jnp.int32)[None]
    hidden = decoder(row_T[None], position, Visibility(jnp.full((1, LONGEST), LONGEST, jnp.int32), position))
    head = decoder.head()
    return head.logits(hidden[0, length - 1][None])[0]


def slow_logits(model: Model, ids: Sequence[int]) -> np.ndarray:
    row = np.zeros(LONGEST, np.int32)
    row[: len(ids)] = ids
    return np.asarray(last_logits(model.graphdef, model.state, row, np.int32(len(ids))))


def slow_greedy(model: Model, prompt: tuple[int, ...], count: int) -> list[int]:
    """One token a whole forward pass; NumPy's argmax takes the lowest id among equals, as the engine promises."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(slow_logits(model, ids).argmax()))
    return ids[len(prompt) :]


def prompts(count: int, seed: int, vocabulary: int) -> list[tuple[int, ...]]:
    """Random prompts of 1 to 40 tokens, many of which begin alike."""
    rng = np.random.default_rng(seed)
    shared = rng.integers(1, vocabulary, 24).tolist()
    return [
        (*shared[: int(rng.integers(0, 25))], *rng.integers(1, vocabulary, int(rng.integers(1, 17))).tolist())
        for _ in range(count)
    ]


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
    monkeypatch.setattr(model_module, "choose", lambda device, heads, wanted: Choice("tpu"))
    monkeypatch.setattr(tpu, "forest_attention", attend)
    completions = Generator(tiny.model, tiny.tokenizer, slots=4).run(requests)
    assert calls
    assert [c.token_ids for c in completions] == [c.token_ids for c in expected]


@pytest.mark.parametrize("family", ["gpt2", "gemma3_text"])
def test_learned_positions_and_windows(tmp_path: Path, family: str) -> None:
    """Prompts longer than the window, generation that crosses it; learned positions that end right at the limit."""
    config: dict[str, Any] = {
        "gpt2": {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 48, "vocab_size": 331},
        "gemma3_text": {
            "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8,
            "intermediate_size": 40, "vocab_size": 331, "sliding_window": 7, "max_position_embeddings": 128,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
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
    token_bytes = 2 * 2 * 1 * 8 * 4  # keys and values, layers, key-value heads, head size, bytes
    few = [TextRequest((1,) * 8, 10)] * 2
    # Two texts of 10 tokens: 10 steps more and a program, or 20 tokens that read larger slots.
    even = (10 * weights + CPU_PROGRAM) // (20 * token_bytes)
    assert generator._worth_joining(few, even - 1)
    assert not generator._worth_joining(few, even + 1)
    sizes = generator._by_slot_size([TextRequest((1,) * 8, 10), TextRequest((1,) * 100, 10)])
    assert {size: len(members) for size, members in sizes.items()} == {128: 2}


def test_order_and_batch_change_no_draw(tiny: Tiny, shared: Generator) -> None:
    rules = [Sampling(0.9, seed=5), Sampling(1.3, top_k=7, seed=6), Sampling(0.7, top_p=0.8, seed=7), Sampling()]
    requests = [TextRequest(ids, 8, sampling=rules[i % 4]) for i, ids in enumerate(prompts(12, 2, 320))]
    together = shared.run(requests)
    backwards = Generator(tiny.model, tiny.tokenizer, slots=5).run(requests[::-1])[::-1]
    one_slot = Generator(tiny.model, tiny.tokenizer, slots=1)
    alone = [one_slot.run([request])[0] for request in requests[:3]]
    assert together == backwards
    assert together[:3] == alone
    other = Generator(tiny.model, tiny.tokenizer).run(
        [TextRequest(requests[0].token_ids, 8, sampling=Sampling(0.9, seed=8))]
    )
    assert other[0].token_ids != together[0].token_ids


def test_draws_follow_the_distribution(tiny: Tiny) -> None:
    """2,000 seeds of one prompt: top_k 3 draws three tokens only, each as often as its renormalised probability says."""
    ids = prompts(1, 3, 320)[0]
    requests = [TextRequest(ids, 1, sampling=Sampling(0.5, top_k=3, seed=seed)) for seed in range(2000)]
    drawn = np.asarray([text.token_ids[0] for text in Generator(tiny.model, tiny.tokenizer, slots=64).run(requests)])
    logits = slow_logits(tiny.model, ids).astype(np.float64) / 0.5
    best = np.argsort(-logits)[:3]
    expected = np.exp(logits[best]) / np.exp(logits[best]).sum()
    assert set(drawn.tolist()) <= set(best.tolist())
    share = np.asarray([(drawn == token).mean() for token in best])
    assert np.abs(share - expected).max() < 4 * 0.5 / 2000**0.5  # four standard errors of a proportion


@pytest.mark.parametrize("top_k", [0, 1, 5, 400])
@pytest.mark.parametrize("top_p", [1e-6, 0.3, 0.8, 1.0])
def test_top_k_and_top_p_keep_the_fewest(top_k: int, top_p: float) -> None:
    """Against a loop in float64: walk down from the most probable token of the top k until top_p is held."""
    logits = np.random.default_rng(0).normal(size=(3, 331)).astype(np.float32) * 3
    kept = np.isfinite(
        keep_probable(jnp.asarray(logits), jnp.full(3, top_k, jnp.int32), jnp.full(3, top_p, jnp.float32))
    )
    for row, kept_row in zip(logits.astype(np.float64), kept, strict=True):
        order = np.argsort(-row)[: top_k or len(row)]
        share = np.exp(row[order]) / np.exp(row[order]).sum()
        held, expected = 0.0, set()
        for token, probability in zip(order.tolist(), share, strict=True):
            if held >= top_p and expected:
                break
            expected.add(token)
            held += probability
        if top_p == 1:  # float64's sum may reach 1 a token early; top_p 1 cuts nothing
            expected = set(order.tolist())
        assert set(np.flatnonzero(kept_row).tolist()) == expected


def test_a_tiny_temperature_is_greedy(shared: Generator) -> None:
    ids = prompts(1, 4, 320)[0]
    [best] = shared.run([TextRequest(ids, 3)])
    [completion] = shared.run([TextRequest(ids, 3, sampling=Sampling(1e-37))])
    assert completion.token_ids == best.token_ids


def test_stop_strings_are_found_in_the_text(tiny: Tiny, shared: Generator) -> None:
    """Any substring of the completion without stop strings, used as a stop string, ends it there, wherever tokens end."""
    ids = tuple(tiny.tokenizer(" ".join(WORDS[:5]))["input_ids"])
    [whole] = shared.run([TextRequest(ids, 32)])
    clean = [i for i, c in enumerate(whole.text) if c != "\ufffd"]
    pieces = {whole.text[i : i + n] for i in clean for n in (1, 2, 3) if "\ufffd" not in whole.text[i : i + n]}
    assert len(pieces) > 5
    requests = [TextRequest(ids, 32, stop=(piece, "never comes")) for piece in sorted(pieces)]
    for piece, cut in zip(sorted(pieces), shared.run(requests), strict=True):
        assert (cut.text, cut.ended) == (whole.text[: whole.text.find(piece)], "stop")
        assert cut.token_ids == whole.token_ids[: len(cut.token_ids)]
    [never] = shared.run([TextRequest(ids, 32, stop=("never comes",))])
    assert never == whole


def test_a_special_token_can_be_a_stop_string(tiny: Tiny) -> None:
    """Random weights never draw it: a head that prefers it does."""
    bos = tiny.tokenizer.bos_token_id
    decoder = decoder_of(tiny.model.graphdef, tiny.model.state)
    assert isinstance(tiny.model.config, ModelConfig)
    config = replace(tiny.model.config, head_bias=True)
    graphdef, state = nnx.split(Decoder(config, dtype=jnp.float32, rngs=nnx.Rngs(0)))
    nnx.update(biased := nnx.merge(graphdef, state), nnx.state(decoder))
    assert biased.head_bias_V is not None
    biased.head_bias_V[...] = jnp.zeros(config.vocab_size).at[bos].set(1e4)
    generator = Generator(Model(config, *nnx.split(biased)), tiny.tokenizer)
    [completion] = generator.run([TextRequest((5, 6, 7), 9, stop=(tiny.tokenizer.bos_token,))])
    assert completion == Generated("", (bos,), "stop")


def test_eos_ends_a_text_and_is_not_part_of_it(tiny: Tiny) -> None:
    ids = prompts(1, 6, 320)[0]
    drawn = slow_greedy(tiny.model, ids, 12)
    eos = drawn[4]
    [completion] = Generator(tiny.model, tiny.tokenizer, eos_ids=(eos,)).run([TextRequest(ids, 12)])
    assert completion.ended == "eos"
    assert list(completion.token_ids) == drawn[: drawn.index(eos)]


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


@pytest.mark.parametrize(
    "rules",
    [{"top_p": 0.0}, {"top_p": 1.5}, {"temperature": float("nan")}, {"seed": -1}, {"top_k": -1}, {"seed": 2**32}],
)
def test_bad_sampling(rules: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(rules))):
        Sampling(**rules)


def test_programs_do_not_follow_the_number_of_requests(tiny: Tiny) -> None:
    generator = Generator(tiny.model, tiny.tokenizer, slots=8)
    generator.run([TextRequest((i, 1, 2), 3) for i in range(8)])
    programs = generator.speed.programs
    generator.run([TextRequest((i, 3, 4), 3) for i in range(5)])
    generator.run([TextRequest((i, 5, 6), 3) for i in range(7)])
    assert generator.speed.programs == programs


def test_a_token_may_end_one_character_and_begin_the_next() -> None:
    """A byte-level token of the last byte of one letter and the first of another: the whole letter is kept."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    from miron_jax.tokens.token_bytes import _byte_of_character

    half = "\u0451".encode()  # two bytes; byte-level tokenizers write them as these two characters
    table = {byte: character for character, byte in _byte_of_character().items()}
    first, both = table[half[0]], table[half[1]] + table[half[0]]
    backend = Tokenizer(models.BPE({"<s>": 0, first: 1, table[half[1]]: 2, both: 3}, []))
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>")
    assert text_after(tokenizer, (1, 2), (1, 3)) == "\u0451\ufffd"
    assert text_after(tokenizer, (1, 2), (1, 3, 2)) == "\u0451\u0451"
    assert text_after(tokenizer, (1,), (3,)) == "\u0451\ufffd"


def test_text_behind_a_prompt_keeps_its_space() -> None:
    """A SentencePiece-like tokenizer drops the first space of a text that stands alone, not of one that goes on."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<unk>": 0, "\u2581the": 1, "\u2581sky": 2, "s": 3, "<0xE2>": 4, "<0x82>": 5, "<0xAC>": 6}
    backend = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert text_after(tokenizer, (1,), (2,)) == " sky"
    assert text_after(tokenizer, (1,), (3,)) == "s"
    assert text_after(tokenizer, (1,), (2, 3)) == " skys"
    euro = (4, 5, 6)  # three bytes, one character
    assert text_after(tokenizer, (1, 4), (5, 6, 3)) == "\u20acs"  # the prompt ends inside a character
    assert text_after(tokenizer, (1, *euro), (3, 4, 5)) == "s\ufffd"  # the text does
    assert text_after(tokenizer, (1, *euro), (4,)) == "\ufffd"
    # The last eight tokens of the prompt begin inside a character.
    assert text_after(tokenizer, (1, *euro, *euro, *euro), (*euro, 3)) == "\u20acs"
    assert text_after(tokenizer, (1, 2), ()) == ""


def test_eos_ids_of_a_folder(tmp_path: Path) -> None:
    assert eos_token_ids(tmp_path) == ()
    (tmp_path / "config.json").write_text('{"eos_token_id": 2}')
    assert eos_token_ids(tmp_path) == (2,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 106]}')
    assert eos_token_ids(tmp_path) == (1, 106)
