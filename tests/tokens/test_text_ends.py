"""Where a text ends, and which characters are its own: stop strings, EOS, tokens that share a character."""

from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model
from miron_jax.engine.text_requests import Generated, TextRequest
from miron_jax.model.checkpoints.hf_config import eos_token_ids
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder.decoder import abstract
from miron_jax.tokens.detokenize import num_without_text, text_after, texts_of_tokens
from miron_jax.tokens.token_bytes import _byte_of_character
from tests.support.generators import Tiny, load, prompts, slow_greedy
from tests.support.tiny_model import make_model

pytestmark = pytest.mark.newest


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return load(make_model(tmp_path_factory.mktemp("tiny")))


def test_a_special_token_can_be_a_stop_string(tiny: Tiny) -> None:
    """Random weights never draw it: a head that prefers it does."""
    bos = tiny.tokenizer.bos_token_id
    assert isinstance(tiny.model.config, ModelConfig)
    config = replace(tiny.model.config, head_bias=True)
    bias_V = jnp.asarray(np.where(np.arange(config.vocab_size) == bos, np.float32(1e4), np.float32(0)))
    graphdef, shapes = abstract(config, jnp.float32)
    weights = nnx.to_pure_dict(tiny.model.state) | {"head_bias_V": bias_V}
    nnx.replace_by_pure_dict(shapes, weights)
    generator = Generator(Model(config, graphdef, shapes), tiny.tokenizer)
    [completion] = generator.run([TextRequest((5, 6, 7), 9, stop=(tiny.tokenizer.bos_token,))])
    assert completion == Generated("", (bos,), "stop")


def test_ids_that_the_tokenizer_lacks_have_no_text_and_those_behind_a_gap_have() -> None:
    backend = Tokenizer(models.WordLevel({"a": 0, "b": 1, "z": 7}, unk_token="a"))
    backend.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert len(tokenizer) == 3
    assert text_after(tokenizer, [0], [1, 7, 5, 9]) == "bz"
    assert num_without_text(tokenizer, [1, 7, 5, 9]) == 2
    assert texts_of_tokens(tokenizer, 9) == ["aa", "bb", "", "", "", "", "", "zz"]


def test_eos_ends_a_text_and_is_not_part_of_it(tiny: Tiny) -> None:
    ids = prompts(1, 6, 320)[0]
    drawn = slow_greedy(tiny.model, ids, 12)
    eos = drawn[4]
    [completion] = Generator(tiny.model, tiny.tokenizer, eos_ids=(eos,)).run([TextRequest(ids, 12)])
    assert completion.ended == "eos"
    assert list(completion.token_ids) == drawn[: drawn.index(eos)]


def test_a_token_may_end_one_character_and_begin_the_next() -> None:
    """A byte-level token of the last byte of one letter and the first of another: the whole letter is kept."""
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
    vocabulary = {"<unk>": 0, "\u2581the": 1, "\u2581sky": 2, "s": 3}
    vocabulary |= {f"<0x{byte:02X}>": i for i, byte in enumerate("\u20ac\U0001f600".encode(), start=4)}
    backend = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    euro, smile = (4, 5, 6), (7, 8, 9, 10)  # three bytes, four bytes: a character each
    for prompt, ids, text in (
        ((1,), (2,), " sky"),
        ((1,), (3,), "s"),
        ((1,), (2, 3), " skys"),
        ((1, 4), (5, 6, 3), "\u20acs"),  # the prompt ends inside a character
        ((1, *euro), (3, 4, 5), "s\ufffd"),  # the text does
        ((1, *euro), (4,), "\ufffd"),
        *(((1,), (3, *smile[:n]), "s\ufffd") for n in (1, 2, 3)),
        ((1,), (3, *smile), "s\U0001f600"),
        ((1, *euro, *euro, *euro), (*euro, 3), "\u20acs"),  # the prompt's last eight tokens begin inside a character
        ((1, 2), (), ""),
    ):
        assert text_after(tokenizer, prompt, ids) == text, (prompt, ids)


def test_eos_ids_of_a_folder(tmp_path: Path) -> None:
    assert eos_token_ids(tmp_path) == ()
    (tmp_path / "config.json").write_text('{"eos_token_id": 2}')
    assert eos_token_ids(tmp_path) == (2,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 106]}')
    assert eos_token_ids(tmp_path) == (1, 106)
