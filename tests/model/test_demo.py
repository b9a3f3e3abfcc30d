"""The demo model: its text shares nothing with the benchmark, its training runs, and what ships is whole."""

import json
import re
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.errors import InputError
from miron_jax.model.checkpoints.hf_config import eos_token_ids, from_hf_config
from miron_jax.model.checkpoints.orbax_reader import load_orbax
from miron_jax.model.checkpoints.training_run import training_steps
from miron_jax.model.demo import FOLDER
from miron_jax.tasks.generators.miron_gen import (
    english_morphology,
    facts,
    logic,
    russian_morphology,
)
from miron_jax.tasks.generators.miron_gen.items import items_of
from miron_jax.tokens.tokenizers import load_tokenizer, resolve_bos
from tests.support.toy_decoders import same_bits
from tools import demo_text as text
from tools.train_demo import Recipe, batches, make_step, make_tokenizer, train

pytestmark = pytest.mark.slow

TINY = Recipe(
    vocabulary=300, width=16, layers=1, heads=2, kv_heads=1, d_ff=16, row_length=97, rows=2, steps=3, save_at=(1,),
    tokenizer_documents=60,
)  # fmt: skip
# sha256 of the first 500 texts; another sum means that the shipped weights were trained on another text.
GOLDEN = "bfc1601ca7f4162bf5dd821b4b1918195f7e6154efafa6ee523067debfc68e95"


# The text.


@pytest.fixture(scope="module")
def documents() -> list[text.Document]:
    return list(islice(text.documents("test", 0), 2000))


def test_the_text_is_the_same_everywhere() -> None:
    first = [document.text for document in islice(text.documents("training", 0), 500)]
    assert sha256("\n".join(first).encode()).hexdigest() == GOLDEN


def test_every_document_reads_as_a_sentence(documents: list[text.Document]) -> None:
    for document in documents:
        assert re.fullmatch(r"[^a-zа-яё\s].*\S\.", document.text), document
        assert not re.search(r"[{}\[\]|]|\s\s|[^\S ]", document.text), document
        assert 0 <= document.knowable_start < len(document.text)
        if document.root:
            assert document.text.count(document.root) >= 2, document
            assert document.root not in text.words_known_to_all(document), document


@pytest.mark.parametrize("language", ["en", "ru"])
def test_no_document_holds_an_item_of_the_benchmark(language: str, documents: list[text.Document]) -> None:
    whole = "\n".join(document.text for document in documents)
    for item in items_of(language, 500):
        assert f"\n{item.prefix}" not in whole, item
        assert item.prefix + item.target not in whole, item


def test_no_stem_is_one_of_the_benchmark(documents: list[text.Document]) -> None:
    russian_stems = (lemma for lemmas in text.RUSSIAN_MATERIAL.stems.values() for lemma in lemmas)
    benchmark = {*english_morphology.BENCHMARK.stems}.union(*russian_morphology.BENCHMARK.stems.values())
    assert not {*text.ENGLISH_MATERIAL.stems, *russian_stems} & benchmark
    words = {word for document in documents for word in re.findall(r"\w+", document.text)}
    assert not words & benchmark


def opening(wording: str) -> str:
    """The wording before its answer, without names: "The capital of {country} is {answer}." -> "the capital of {} is"."""
    return re.sub(r"\{\w+\}", "{}", re.split(r"\{answer\}", wording, flags=re.I)[0]).strip().casefold()


@pytest.mark.parametrize("language", ["en", "ru"])
def test_no_wording_is_one_of_the_benchmark(language: str) -> None:
    is_english = language == "en"
    morphology = english_morphology if is_english else russian_morphology
    material = text.ENGLISH_MATERIAL if is_english else text.RUSSIAN_MATERIAL
    training = {opening(frame) for frames in material.frames.values() for frame in frames}
    assert not training & {opening(frame) for frames in morphology.BENCHMARK.frames.values() for frame in frames}
    words = logic.words_of("en" if is_english else "ru")
    training = {opening(frame) for family in text.LOGIC[language].families for frame in family.training}
    assert not training & {opening(frame) for family in words.families for frame in family.frames}
    benchmark = facts.tables_of(language)
    training = {opening(wording) for table in text.FACTS[language].tables for wording in table.training_templates}
    assert not training & {opening(template) for table in benchmark.tables for template in table.templates}
    sentences = "\n".join(facts.training_sentences(text.FACTS[language]))
    for cloze in facts.clozes(benchmark):
        assert f"{cloze.prefix} {cloze.answer}" not in sentences, cloze


# Training.


def test_rows_hold_whole_documents_that_do_not_see_one_another() -> None:
    tokenizer = make_tokenizer(TINY)
    bos, eos = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")
    batch = next(batches(TINY, tokenizer))
    for ids, target, weight, position, subtree_end in zip(*batch, strict=True):
        start = 0
        while start < TINY.row_length and weight[start] > 0:
            stop = subtree_end[start]
            assert ids[start] == bos
            assert ids[stop - 1] == eos
            assert weight[stop - 1] == 0
            np.testing.assert_array_equal(subtree_end[start:stop], stop)
            np.testing.assert_array_equal(position[start:stop], np.arange(stop - start))
            np.testing.assert_array_equal(target[start : stop - 1], ids[start + 1 : stop])
            assert weight[stop - 2] == 1.0
            start = stop
        assert start > TINY.row_length // 2
        np.testing.assert_array_equal(subtree_end[start:], np.arange(start, TINY.row_length) + 1)
        assert not weight[start:].any()


def test_three_steps_leave_a_model_folder_the_same_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    made: list[Any] = []  # the program of a step, compiled once
    monkeypatch.setattr(
        "tools.train_demo.make_step", lambda *parts: (made or made.append(make_step(*parts)) or made)[0]
    )
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # optax relies on both
        for name in ("a", "b"):
            train(TINY, tmp_path / name, lines.append)
    config = from_hf_config(tmp_path / "a")
    (one, first), (three, last) = training_steps(tmp_path / "a")
    assert (one, three) == (1, 3)
    states = [load_orbax(folder, config, jnp.bfloat16) for folder in (first, last, tmp_path / "b" / "steps" / "3")]
    assert not same_bits(states[0], states[1])
    assert same_bits(states[1], states[2])
    assert all(np.isfinite(np.asarray(x, np.float32)).all() for x in jax.tree.leaves(states))
    assert re.fullmatch(r"step 3 of 3: loss \d\.\d+ nats a token, \d+ tokens/s", lines[-1])
    with pytest.raises(InputError, match=r"has checkpoints in steps already.*delete them or name another"):
        train(TINY, tmp_path / "a", lines.append)


# What ships.


def test_the_shipped_tokenizer_takes_every_byte_and_begins_with_bos() -> None:
    tokenizer = load_tokenizer(str(FOLDER))
    every = "".join(map(chr, range(1, 0x500))) + "  Жук\t№7 🙂\n"
    ids = tokenizer.encode(every)
    assert tokenizer.decode(ids[1:]) == every
    assert resolve_bos(tokenizer) == (ids[0], "declared <s>")
    assert tokenizer.encode("") == [ids[0]]
    assert eos_token_ids(FOLDER) == (tokenizer.eos_token_id,)
    assert len(tokenizer) == json.loads((FOLDER / "config.json").read_text())["vocab_size"]


def test_the_shipped_checkpoints_are_read_and_small() -> None:
    config = from_hf_config(FOLDER)
    steps = training_steps(FOLDER)
    assert [step for step, _ in steps] == [*Recipe().save_at, Recipe().steps]
    for _, folder in steps:
        state = load_orbax(folder, config, jnp.bfloat16)
        assert sum(x.size for x in jax.tree.leaves(state)) < 900_000
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 11e6
