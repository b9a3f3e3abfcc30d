"""The demo model: its text shares nothing with the benchmark, its reader refuses bad checkpoints, its training runs."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.typing import DTypeLike

from miron_jax.demo import FOLDER
from miron_jax.errors import InputError
from miron_jax.model.decoder import abstract
from miron_jax.model.hf_config import eos_token_ids, from_hf_config
from miron_jax.model.orbax_reader import load_orbax
from miron_jax.model.training_run import training_steps
from miron_jax.runtime.devices import Tree
from miron_jax.tasks.generators.miron_gen import (
    english_logic,
    english_morphology,
    facts,
    russian_logic,
    russian_morphology,
)
from miron_jax.tasks.generators.miron_gen.items import items_of
from miron_jax.tokens.tokenizers import load_tokenizer, resolve_bos
from tests.support.toy_decoders import CONFIG, pure, same_bits, weights
from tools import demo_text as text
from tools.train_demo import Recipe, batches, make_step, make_tokenizer, save, train

# After a damaged array Orbax closes its event loop before its last reads end: on a busy machine asyncio warns of it during
# the next test.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

TINY = Recipe(
    vocabulary=300, width=16, layers=1, heads=2, kv_heads=1, d_ff=16, row_length=97, rows=2, steps=3, save_at=(1,),
    tokenizer_documents=60,
)  # fmt: skip
# sha256 of the first 500 texts; another sum means that the shipped weights were trained on another text.
GOLDEN = "bfc1601ca7f4162bf5dd821b4b1918195f7e6154efafa6ee523067debfc68e95"


def write_tree(folder: Path, change: Callable[[Tree], object]) -> Path:
    """A checkpoint of a tree that `change` damaged."""
    tree = pure()
    change(tree)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(folder, args=ocp.args.PyTreeSave(tree))
    return folder


# The reader.


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_a_state_comes_back_bit_for_bit(tmp_path: Path, dtype: DTypeLike) -> None:
    state = weights(dtype)
    save(tmp_path / "7", state)
    loaded = load_orbax(tmp_path / "7", CONFIG, dtype)
    assert jax.tree.structure(loaded) == jax.tree.structure(state) == jax.tree.structure(abstract(CONFIG, dtype)[1])
    assert same_bits(loaded, state)


def test_matrices_come_in_the_requested_dtype_and_norms_in_float32(tmp_path: Path) -> None:
    save(tmp_path / "7", weights(jnp.bfloat16))
    loaded = load_orbax(tmp_path / "7", CONFIG, jnp.float32)
    assert {x.dtype for x in jax.tree.leaves(loaded)} == {np.dtype(np.float32)}
    # bfloat16 is the upper half of float32, so widening loses nothing
    assert same_bits(jax.tree.map(lambda x, y: x.astype(y.dtype), loaded, weights(jnp.bfloat16)), weights(jnp.bfloat16))


def test_reads_what_a_checkpoint_manager_keeps(tmp_path: Path) -> None:
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(5, args=ocp.args.StandardSave(pure()))
        manager.wait_until_finished()
    [(step, folder)] = training_steps(tmp_path)
    assert step == 5
    assert same_bits(load_orbax(folder, CONFIG, jnp.bfloat16), weights())


BROKEN: dict[str, tuple[Callable[[Tree], object], str]] = {
    "a key is missing": (
        lambda tree: tree["layers"]["attn"].pop("q"),
        r"lacks layers/attn/q/kernel_IO and has nothing besides.*config\.json",
    ),
    "a key too many": (
        lambda tree: tree.update(head_VD=np.zeros((31, 12), np.float32)),
        r"lacks nothing and has head_VD besides.*expected the \d+ arrays",
    ),
    "weights below another key": (
        lambda tree: tree.update(params={"embedding_VD": tree.pop("embedding_VD")}),
        r"lacks embedding_VD and has params/embedding_VD besides",
    ),
    "another shape": (
        lambda tree: tree.update(embedding_VD=np.zeros((30, 12), np.float32)),
        r"embedding_VD has shape \[30, 12\], expected \[31, 12\]",
    ),
    "the right size in another shape": (
        lambda tree: tree.update(embedding_VD=np.zeros((12, 31), np.float32)),
        r"embedding_VD has shape \[12, 31\], expected \[31, 12\]",
    ),
    "whole numbers": (
        lambda tree: tree.update(embedding_VD=np.zeros((31, 12), np.int8)),
        r"embedding_VD holds int8, expected one of float64, float32, float16, bfloat16; save the weights unquantized",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_tree_of_another_form_is_refused(tmp_path: Path, case: str) -> None:
    change, sentence = BROKEN[case]
    folder = write_tree(tmp_path / "7", change)
    with pytest.raises(InputError, match=rf"^{re.escape(str(folder))}: .*{sentence}"):
        load_orbax(folder, CONFIG, jnp.bfloat16)


def spoil_tree_file(folder: Path) -> None:
    (folder / "_METADATA").write_text("{")


def spoil_arrays(folder: Path) -> None:
    for path in folder.rglob("d/*"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def drop_manifest(folder: Path) -> None:
    (folder / "manifest.ocdbt").unlink()


def drop_arrays(folder: Path) -> None:
    shutil.rmtree(folder / "d")
    shutil.rmtree(folder / "ocdbt.process_0")


def cut_arrays(folder: Path) -> None:
    largest = max((path for path in folder.rglob("d/*") if path.is_file()), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-100])


@pytest.mark.parametrize("damage", [spoil_tree_file, spoil_arrays, drop_manifest, drop_arrays, cut_arrays])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    save(tmp_path / "7", weights())
    damage(tmp_path / "7")
    with pytest.raises(InputError, match=r"/7: Orbax cannot read it \(.*expected a whole checkpoint; copy or save it"):
        load_orbax(tmp_path / "7", CONFIG, jnp.bfloat16)


def test_no_folder_and_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "weights.pkl").write_bytes(b"never opened")
    with pytest.raises(InputError, match=r"/8: no such folder, expected an Orbax checkpoint; check the path"):
        load_orbax(tmp_path / "8", CONFIG, jnp.bfloat16)
    with pytest.raises(InputError, match=r"/7: holds weights\.pkl and no _METADATA, expected a finished Orbax"):
        load_orbax(tmp_path / "7", CONFIG, jnp.bfloat16)


def test_steps_come_in_order_and_unfinished_ones_not_at_all(tmp_path: Path) -> None:
    for step in (9, 100, 20):
        save(tmp_path / str(step), weights())
    (tmp_path / "100").rename(tmp_path / "0100")
    (tmp_path / "20.orbax-checkpoint-tmp-3").mkdir()
    (tmp_path / "30").mkdir()
    (tmp_path / "best").symlink_to(tmp_path / "9")
    assert training_steps(tmp_path) == [(9, tmp_path / "9"), (20, tmp_path / "20"), (100, tmp_path / "0100")]


# The text.


@pytest.fixture(scope="module")
def documents() -> list[text.Document]:
    return list(islice(text.documents("test", 0), 2000))


def test_the_text_is_the_same_everywhere() -> None:
    first = [document.text for document in islice(text.documents("training", 0), 500)]
    assert sha256("\n".join(first).encode()).hexdigest() == GOLDEN


def test_every_document_reads_as_a_sentence(documents: list[text.Document]) -> None:
    for document in documents:
        assert not re.search(r"[{}\[\]|]|\s\s|[^\S ]|^\s|\s$", document.text), document
        assert document.text[0].isupper() or not document.text[0].isalpha(), document
        assert document.text.endswith("."), document
        assert 0 <= document.knowable_start < len(document.text)
        if document.root:
            assert document.text.count(document.root) >= 2, document
            assert document.root not in text.words_known_to_all(document), document


def test_all_categories_and_languages_have_their_share(documents: list[text.Document]) -> None:
    shares = Counter((document.language, document.category) for document in documents)
    assert len(shares) == 6
    assert min(shares.values()) > 0.08 * len(documents)  # Russian facts: 5/12 * 3/12 = 0.104


@pytest.mark.parametrize("language", ["en", "ru"])
def test_no_document_holds_an_item_of_the_benchmark(language: str, documents: list[text.Document]) -> None:
    whole = "\n".join(document.text for document in documents)
    for item in items_of(language, 500):
        assert f"\n{item.prefix}" not in whole, item
        assert item.prefix + item.target not in whole, item


def test_no_stem_is_one_of_the_benchmark(documents: list[text.Document]) -> None:
    russian_stems = (lemma for lemmas in text.RUSSIAN_MATERIAL.stems.values() for lemma in lemmas)
    benchmark = {*english_morphology.BENCHMARK.stems, *sum(russian_morphology.BENCHMARK.stems.values(), ())}
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
    words = english_logic.WORDS if is_english else russian_logic.WORDS
    training = {opening(frame) for family in text.LOGIC[language].families for frame in family.training}
    assert not training & {opening(frame) for family in words.families for frame in family.frames}
    benchmark = facts.tables_of(language)
    training = {opening(wording) for table in text.FACTS[language].tables for wording in table.training_templates}
    assert not training & {opening(template) for table in benchmark.tables for template in table.templates}
    sentences = "\n".join(facts.training_sentences(text.FACTS[language]))
    for cloze in facts.clozes(benchmark):
        assert f"{cloze.prefix} {cloze.answer}" not in sentences, cloze


def test_a_choice_is_written_out_and_an_empty_one_takes_its_space_along() -> None:
    assert text.expanded("[We|I] sing[| now]") == ("We sing", "We sing now", "I sing", "I sing now")
    assert text.expanded("She [|often] {stem}") == ("She {stem}", "She often {stem}")


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
