"""Generation against its slow twin, the whole prompt through the decoder again for every token; sampled texts."""

import json
import re
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.engine import model as model_module
from miron_jax.engine.decode import NOTHING, with_guesses
from miron_jax.engine.generate import CPU_PROGRAM, Generator
from miron_jax.engine.model import Model
from miron_jax.engine.slots import Slot
from miron_jax.engine.text_requests import Generated, Sampling, TextRequest, why_refused
from miron_jax.errors import InputError
from miron_jax.kernels.draw_token import keep_probable
from miron_jax.kernels.forest_attention import tpu
from miron_jax.kernels.forest_attention.choose import AttentionChoice
from miron_jax.kernels.forest_attention.reference import forest_attention
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.checkpoints.hf_reader import load_hf
from miron_jax.model.decoder.cache import Cache
from miron_jax.model.decoder.decoder import KeyValues, abstract, leaf_name
from miron_jax.model.visibility import Continuation
from miron_jax.planning.records import Plan
from miron_jax.runtime import devices
from miron_jax.runtime.devices import Placement
from miron_jax.runtime.progress import Lines
from tests.support.generators import NoText, Tiny, load, prompts, random_model, shared, slow_greedy, slow_logits, tiny
from tests.support.own_models import bigrams, model_of, with_cache
from tests.support.tiny_model import make_model, spoil_token
from tests.support.tolerances import BFLOAT16, KERNEL

__all__ = ["shared", "tiny"]  # fixtures


@pytest.fixture(scope="module")
def repeating(tiny: Tiny) -> Generator:
    """Its texts soon repeat themselves: with larger embeddings the token before decides most."""

    def larger(path: Any, leaf: jax.Array) -> jax.Array:
        return jnp.asarray(np.asarray(leaf) * (3 if leaf_name(path) == "embedding_VD" else 1))

    state = jax.tree_util.tree_map_with_path(larger, tiny.model.state)
    return Generator(tiny.model._replace(state=state), tiny.tokenizer, slots=4)


@pytest.mark.newest
def test_greedy_equals_the_slow_twin(tiny: Tiny, shared: Generator) -> None:
    requests = [TextRequest(ids, 1 + i % 9) for i, ids in enumerate(prompts(20, 0, 320))]
    few = Generator(tiny.model, tiny.tokenizer, slots=3)
    completions = few.run(requests)
    assert shared.run(requests) == completions
    for request, completion in zip(requests, completions, strict=True):
        assert list(completion.token_ids) == slow_greedy(tiny.model, request.token_ids, request.max_new_tokens)
        assert completion.ended == "length"
    assert few.speed.prefilled_tokens < few.speed.prompt_tokens - len(requests)


def test_prompts_are_read_by_the_devices_own_attention(
    tiny: Tiny, shared: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [TextRequest(ids, 5) for ids in prompts(4, 1, 320)]
    expected, calls = shared.run(requests), list[int]()

    def attend(*arrays: jax.Array, **rules: Any) -> jax.Array:
        calls.append(len(arrays))
        return interpreted(*arrays, **rules)

    interpreted = partial(tpu.forest_attention, interpret=True)
    monkeypatch.setattr(model_module, "choose", lambda device, heads, name, split: AttentionChoice("tpu"))
    monkeypatch.setattr(tpu, "forest_attention", attend)
    assert Generator(tiny.model, tiny.tokenizer, slots=4).run(requests) == expected
    assert calls


FAMILIES: dict[str, dict[str, Any]] = {
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
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_learned_positions_windows_and_alibi(tmp_path: Path, family: str) -> None:
    """Prompts longer than the window, generation that crosses it; learned positions that end right at the limit."""
    model = random_model(tmp_path, {"model_type": family, **FAMILIES[family]})
    longest = tuple(range(1, 40))  # 39 tokens and 9 more that are fed: the last of GPT-2's 48 positions
    requests = [TextRequest(ids, 10) for ids in [longest, *(ids[:39] for ids in prompts(7, 1, 331))]]
    for request, text in zip(requests, Generator(model, NoText(), slots=4).run(requests), strict=True):
        assert list(text.token_ids) == slow_greedy(model, request.token_ids, 10)


@pytest.mark.newest
def test_new_tokens_see_what_the_definition_says() -> None:
    """Four new tokens behind 0 to 20 kept ones, which lie in three blocks, against the definition over whole rows."""
    rng, position, (block, new, length) = np.random.default_rng(5), np.asarray([0, 5, 12, 20], np.int32), (8, 4, 24)
    q = rng.normal(size=(4, length, 6, 8)).astype(np.float32)
    k, v = rng.normal(size=(2, 4, length, 2, 8)).astype(np.float32)
    sinks_N = rng.normal(size=6).astype(np.float32)
    index = np.arange(length, dtype=np.int32)
    is_kept = (index < position[:, None])[:, :, None, None]
    kept = (np.where(is_kept, x, 9.0).astype(np.float32).reshape(4, -1, block, 2, 8) for x in (k, v))
    keys, values = (x.transpose(1, 0, 3, *axes) for x, axes in zip(kept, ((4, 2), (2, 4)), strict=True))
    cache = Cache(np.stack([keys + 1, keys]), np.stack([values + 1, values]))  # type: ignore[arg-type]
    every: dict[str, Any] = {
        "window": 3,
        "softcap": 0.7,
        "sinks_N": sinks_N,
    }
    rules = {"none": {}, "window": {"window": 7}, "cap": {"softcap": 0.7}, "sinks": {"sinks_N": sinks_N}, "all": every}

    @jax.jit
    def attend(cache: Cache, position_B: jax.Array, *rows: Any) -> dict[str, tuple[jax.Array, jax.Array]]:
        new_BT = position_B[:, None] + jnp.arange(new, dtype=jnp.int32)[None]
        slot_B1, layer = jnp.arange(4, dtype=jnp.int32)[:, None], jnp.int32(1)
        end_BT, index_BT = jnp.full((4, length), length, jnp.int32), jnp.tile(index[None], (4, 1))
        outputs = {}
        q, k, v = rows
        for name, rule in rules.items():
            q_new, k_new, v_new = (x[slot_B1, new_BT] for x in rows)
            computed = Continuation(position_B).attend(q_new, k_new, v_new, cache, layer, scale=0.4, **rule)
            expected = forest_attention(q, k, v, end_BT, index_BT, scale=0.4, **rule)[slot_B1, new_BT]
            outputs[name] = computed, expected
        return outputs

    for name, (computed, expected) in attend(cache, position, q, k, v).items():
        np.testing.assert_allclose(computed, expected, atol=KERNEL, err_msg=name)


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


def test_guessed_tokens_change_no_text(repeating: Generator) -> None:
    """Long greedy texts take several tokens a step: every one is the slow twin's, and texts that repeat need few steps."""
    before, counts = replace(repeating.speed), (100, 90, 64, 3, 1, 2, 97)
    requests = [TextRequest(ids, count) for ids, count in zip(prompts(7, 3, 320), counts, strict=True)]
    completions = repeating.run(requests)
    assert repeating.speed.drawn_tokens - before.drawn_tokens == sum(counts)
    assert repeating.speed.busy_steps - before.busy_steps < 0.7 * sum(counts)
    for request, completion in zip(requests, completions, strict=True):
        assert list(completion.token_ids) == slow_greedy(repeating.model, request.token_ids, request.max_new_tokens)
    assert repeating.run(requests[:1]) == completions[:1], "in one slot"


def test_a_text_may_end_inside_what_a_step_draws(repeating: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """EOS or a stop string among guessed tokens: nothing after it counts."""
    before, ids = repeating.speed.busy_steps, prompts(1, 3, 320)[0]
    [whole] = repeating.run([TextRequest(ids, 100)])
    assert repeating.speed.busy_steps - before < 70
    drawn = list(whole.token_ids)
    for token in set(drawn):
        monkeypatch.setattr(repeating, "eos_ids", frozenset({token}))
        [ended] = repeating.run([TextRequest(ids, 100)])
        assert (list(ended.token_ids), ended.ended) == (drawn[: drawn.index(token)], "eos")
    monkeypatch.setattr(repeating, "eos_ids", frozenset())
    ends = {whole.text[i : i + 5] for i in range(len(whole.text) - 5) if "\ufffd" not in whole.text[i : i + 5]}
    assert len(ends) > 4
    requests = [TextRequest(ids, 100, stop=(end,)) for end in sorted(ends)]
    for end, completion in zip(sorted(ends), repeating.run(requests), strict=True):
        assert (completion.text, completion.ended) == (whole.text[: whole.text.find(end)], "stop")


def test_stop_strings(tiny: Tiny, shared: Generator) -> None:
    """The first one in the text ends it, whatever their order; a letter may end in a token that holds a part of it."""
    encode = partial(tiny.tokenizer.encode, add_special_tokens=False)
    for last, is_split in (("t", False), ("é", True), ("☀", True)):
        request, ids = TextRequest((1,), 9, stop=(f"ho{last}",)), encode(f"the sun is ho{last}")
        assert shared._halting_tokens([request])[ids[-1]], f"a text may end in {last}"
        assert (len(encode(last)) > 1) == is_split
    ids = encode("the sun is hot")
    for stop in (("hot", "sun"), ("sun", "hot")):
        request = TextRequest((1,), len(ids), stop)
        assert shared._ended(request, ids, shared._halting_tokens([request])) == Generated("the ", tuple(ids), "stop")


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
    guessed = np.asarray(jax.jit(partial(with_guesses, width=4))(tokens, position))
    assert guessed.tolist() == [[known[-1], *guess] for known, guess in cases.items()]


def test_a_text_of_nan_spoils_no_other_in_its_slot(tmp_path: Path) -> None:
    """One slot, and a token whose embedding is NaN: prompts with it come first, others after them."""
    generator = Generator(load(spoil_token(make_model(tmp_path), 330)).model, NoText(), slots=1)
    wrong = [TextRequest((*range(1, 290), 330, 5 + i), 70) for i in range(3)]
    right = [TextRequest((*range(2, 291), 5 + i), 66 - i) for i in range(3)]  # in another row
    clean = generator.run(right)
    assert [c.ended for c in clean] == ["length"] * 3
    completions = generator.run(right + wrong)
    assert completions[:3] == clean
    assert completions[3:] == [Generated("", (), "nan")] * 3


def test_as_many_slots_as_texts_fill(tiny: Tiny) -> None:
    generator = Generator(tiny.model, tiny.tokenizer, slots=100)
    # One text of 40 tokens and 16 of 5 have 120 tokens, 40 one after the other: two slots would take two turns of 40.
    for counts, slots in (
        ([5], 1),
        ([5] * 3, 4),
        ([5] * 8, 8),
        ([5] * 17, 16),
        ([5] * 60, 32),
        ([40, *[5] * 16], 4),
        ([80, *[10] * 16], 2),
        ([80] * 17, 16),
        ([5] * 1000, 100),
    ):
        assert generator._slots_for([TextRequest((1,), count) for count in counts], 64) == slots, counts
    reading_whole_texts = Generator(model_of(bigrams()), tiny.tokenizer)  # where an idle slot costs a whole row
    assert reading_whole_texts._slots_for([TextRequest((1,), 5)] * 8, 64) == 4


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


def test_finished_slots_are_filled_again(shared: Generator) -> None:
    """One long text among short ones does not hold the batch: 4 slots, 41 texts; idle slots only at the end."""
    requests = [TextRequest((i, *ids[:9]), 40 if i == 0 else 3) for i, ids in enumerate(prompts(41, 8, 320))]
    assert len(set(requests)) == 41
    before = replace(shared.speed)
    shared.run(requests)
    assert shared.speed.busy_steps - before.busy_steps == 40 + 40 * 3
    # Three slots take 40 texts of 3 steps in turns beside the one of 40 steps; at most one turn is not full.
    assert shared.speed.slot_steps - before.slot_steps <= 4 * 43


@pytest.mark.parametrize("kind", ["engine's", "user's"])
def test_a_shard_without_texts_takes_no_steps(kind: str, shared: Generator, tiny: Tiny) -> None:
    """Shards end their texts at unlike times; all of them wait for the one that takes the most steps."""
    generator = shared if kind == "engine's" else Generator(model_of(with_cache()), tiny.tokenizer)
    halts = generator.placement.share(generator._halting_tokens([]))
    requests, cache = [TextRequest((1, 2), 2)], generator._empty_cache(8, 64)
    _, drawn, steps = generator._take_steps(cache, [None] * 8, requests, halts, 64)
    assert steps.tolist() == [0]
    assert np.unique(drawn).tolist() == [NOTHING]
    one = [Slot.of(0, (1, 2), 64), *[None] * 7]
    _, drawn, steps = generator._take_steps(generator._empty_cache(8, 64), one, requests, halts, 64)
    assert (steps.tolist(), int((np.asarray(drawn) != NOTHING).sum())) == ([2], 2)


def test_the_cache_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler as users have it copies a cache of one block whole at each call."""
    options: dict[str, bool | str] = {"xla_cpu_use_fusion_emitters": True}
    monkeypatch.setattr(devices, "compiled", lambda lowered, *_: lowered.compile(options))
    model = random_model(tmp_path, {"model_type": "gpt2", **FAMILIES["gpt2"]})
    generator = Generator(model, NoText(), slots=2)
    generator.run([TextRequest((1, 2, 3, 4 + i), 5) for i in range(3)])
    programs = {str(key[0]): program for key, program in generator.programs.items()}
    shape = ",".join(map(str, generator._empty_cache(2, 64).key_LJBKHC.shape[1:]))
    for name in ("admit", "step"):
        assert shape in (text := str(programs[name].as_text()))
        assert not re.findall(rf"= f32\[(?:1,)?{shape}\]\S* copy\(", text), name


def test_the_last_prompts_are_read_in_a_batch_as_full_as_the_others(
    tiny: Tiny, shared: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator, batches, prefill = Generator(tiny.model, tiny.tokenizer, slots=8), list[int](), Generator._prefill

    def counting(self: Generator, plan: Plan, rows: list[int], num_rows: int, length: int) -> KeyValues:
        batches.append(len(rows))
        return prefill(self, plan, rows, num_rows, length)

    monkeypatch.setattr(Generator, "_prefill", counting)
    requests = [TextRequest(tuple(range(1 + 40 * i, 41 + 40 * i)), 3) for i in range(7)]  # a row of 64 each
    generator.prefill_slots = 5 * 64
    assert generator.run(requests) == shared.run(requests)
    assert batches[:2] == [4, 3]
    assert [key[1:3] for key in generator.programs if key[0] == "prefill"] == [(4, 64)]


def test_bad_requests(shared: Generator, tmp_path: Path) -> None:
    for request, words in (
        (TextRequest((), 3), "BOS"),
        (TextRequest((1,), 0), "at least 1"),
        (TextRequest((1,), 3, stop=("",)), "none of them empty"),
        (TextRequest((1,), 3, stop="END"), "tuple of strings"),  # type: ignore[arg-type]
        (TextRequest((331,), 3), "vocabulary has 331"),
        (TextRequest((-1,), 3), "from -1"),
    ):
        with pytest.raises(InputError, match=words):
            shared.run([request])
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **FAMILIES["gpt2"]}))
    config = from_hf_config(tmp_path)
    assert why_refused(TextRequest(tuple(range(39)), 10), config) is None
    assert "48 learned positions" in str(why_refused(TextRequest(tuple(range(40)), 10), config))


def test_programs_follow_neither_the_number_of_requests_nor_their_repetition(shared: Generator) -> None:
    request, before = TextRequest((1, 2, 3), 5), shared.speed.busy_steps
    completions = shared.run([request, request, request])
    assert completions[0] == completions[1] == completions[2]
    assert shared.speed.busy_steps == before + 5, "equal requests are generated once"
    shared.run([TextRequest((i, 1, 2), 3) for i in range(8)])
    programs = shared.speed.programs
    for count in (5, 7):
        shared.run([TextRequest((i, count, 4), 3) for i in range(count)])
    assert shared.speed.programs == programs


@pytest.mark.parametrize(("blocks", "block", "new"), [(1, 16, 4), (3, 8, 5)])
def test_new_tokens_are_placed_in_one_way_by_both_forms(blocks: int, block: int, new: int) -> None:
    """A TPU places a step's tokens by a pass over the cache, other devices by a scatter."""
    rng, beyond = np.random.default_rng(blocks), blocks * block
    layers, slots, heads, size = 2, 5, 3, 7
    shapes = ((layers, blocks, slots, heads, size, block), (layers, blocks, slots, heads, block, size))
    cache = Cache(*(rng.normal(size=shape).astype(np.float32) for shape in shapes))  # type: ignore[arg-type]
    key, value = rng.normal(size=(2, layers, slots, new, heads, size)).astype(np.float32)
    position = np.stack([rng.permutation(beyond + 2)[:new] for _ in range(slots)]).astype(np.int32)
    position[0], position[1] = beyond, np.where(np.arange(new) < 2, np.arange(new), beyond)  # idle; a wrong guess
    both = jax.jit(lambda cache, *tokens: (cache._selected(*tokens), cache._scattered(*tokens)))
    selected, scattered = both(cache, key, value, position)
    np.testing.assert_array_equal(selected.key_LJBKHC, scattered.key_LJBKHC)
    np.testing.assert_array_equal(selected.value_LJBKCH, scattered.value_LJBKCH)
    assert not np.array_equal(selected.key_LJBKHC, cache.key_LJBKHC)
    np.testing.assert_array_equal(selected.key_LJBKHC[:, :, 0], cache.key_LJBKHC[:, :, 0])


def test_slots_that_do_not_fit_are_halved(tiny: Tiny, shared: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device without room for all slots refuses the program of their steps."""
    generator, asked = Generator(tiny.model, tiny.tokenizer, slots=8), [TextRequest((3 + i, 5, 7), 6) for i in range(9)]
    texts, compile_program, lines = shared.run(asked), Placement.compile, list[str]()

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


@pytest.mark.newest
def test_order_and_batch_change_no_draw(tiny: Tiny, shared: Generator) -> None:
    """Texts of unlike lengths end in the middle of others, whose next tokens are drawn in another call."""
    rules = [Sampling(0.9, seed=5), Sampling(1.3, top_k=7, seed=6), Sampling(0.7, top_p=0.8, seed=7)]
    requests = [TextRequest(ids, 4 + i, sampling=rules[i % 3]) for i, ids in enumerate(prompts(9, 2, 320))]
    together = shared.run(requests)
    assert Generator(tiny.model, tiny.tokenizer, slots=3).run(requests[::-1]) == together[::-1]
    one_slot = Generator(tiny.model, tiny.tokenizer, slots=1)
    for i in (6, 7, 8):
        assert one_slot.run([requests[i]]) == [together[i]], rules[i % 3]
    [other] = one_slot.run([TextRequest(requests[6].token_ids, 10, sampling=Sampling(0.9, seed=8))])
    assert other.token_ids != together[6].token_ids


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


def test_top_k_and_top_p_keep_the_fewest() -> None:
    """Against a loop in float64: walk down from the most probable token of the top k until top_p is held."""
    logits, keep = np.random.default_rng(0).normal(size=(3, 331)).astype(np.float32) * 3, jax.jit(keep_probable)
    for top_k, top_p in product((0, 1, 5, 400), (1e-6, 0.3, 0.8, 1.0)):
        kept = np.isfinite(keep(logits, np.full(3, top_k, np.int32), np.full(3, top_p, np.float32)))
        for row, kept_row in zip(logits.astype(np.float64), kept, strict=True):
            order = np.argsort(-row)[: top_k or len(row)]
            share = np.exp(row[order]) / np.exp(row[order]).sum()
            before = np.cumsum(share) - share
            # float64's sum may reach 1 a token early; top_p 1 cuts nothing
            expected = order if top_p == 1 else order[(before < top_p) | (np.arange(len(order)) == 0)]
            assert set(np.flatnonzero(kept_row)) == set(expected), f"top_k {top_k}, top_p {top_p}"


def test_a_tiny_temperature_is_greedy(shared: Generator) -> None:
    ids = prompts(1, 4, 320)[0]
    [best, completion] = shared.run([TextRequest(ids, 3), TextRequest(ids, 3, sampling=Sampling(1e-37))])
    assert completion.token_ids == best.token_ids


def test_bad_sampling() -> None:
    bad = (("top_p", 0.0), ("top_p", 1.5), ("temperature", float("nan")), ("seed", -1), ("top_k", -1), ("seed", 2**32))
    for name, value in bad:
        with pytest.raises(InputError, match=name):
            Sampling(**{name: value})  # type: ignore[arg-type]
