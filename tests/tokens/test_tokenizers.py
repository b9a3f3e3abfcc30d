"""Which tokenizer a folder has: the ids of its tokenizer.json, whatever class its other files declare."""

import itertools
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend
from transformers import AutoTokenizer

from miron_jax.errors import InputError
from miron_jax.model.checkpoints.fingerprint import tokenizer_fingerprint
from miron_jax.tokens.tokenizers import (
    PROBES,
    SENTENCEPIECE,
    _ends,
    _finder,
    encoder,
    load_tokenizer,
    reading_names_as_text,
    special_names_in,
    taken_from,
    unlike_transformers,
)

CORPUS = ["In 1987 there were 12345 birds", "caf\u00e9 cafe\u0301", "a  b", "a\n\n\nb", "I'm sure WE'LL go"] * 20
SPECIAL = ["<|endoftext|>", "<s>"]


def backend(pre_tokenizer: Any = None, normalizer: Any = None, bos: str | None = None) -> Backend:
    made = Backend(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=420, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False),
    )
    made.add_tokens([AddedToken("<tool>", normalized=False)])
    if pre_tokenizer is not None:
        made.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        made.normalizer = normalizer
    if bos:
        pair = (bos, made.token_to_id(bos))
        made.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[pair])
    return made


TRIPLES = [
    pre_tokenizers.Split(Regex(r"\p{N}{1,3}| ?\p{L}+|\s+|."), "isolated"),
    pre_tokenizers.ByteLevel(False, use_regex=False),
]
DIGITS = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
BACKENDS = {
    "plain": backend(),
    "digits": backend(pre_tokenizers.Sequence(DIGITS)),
    "nfc": backend(normalizer=normalizers.NFC()),
    "prefix space": backend(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "bos": backend(bos="<s>"),
    "three digits": backend(pre_tokenizers.Sequence(TRIPLES)),
}
NAMED = {"bos_token": "<s>", "eos_token": "<|endoftext|>"}
DECLARED = [
    *((name, "llama") for name in ("GPT2Tokenizer", "GPT2TokenizerFast", "CodeGenTokenizerFast", "LlamaTokenizerFast")),
    *((name, "gpt_neox") for name in ("GPTNeoXTokenizerFast", "PreTrainedTokenizerFast", None)),
    ("Qwen2Tokenizer", "qwen3"),
    *((None, model_type) for model_type in ("gpt2", "gpt_neo", "starcoder2", "llama", None)),
]


def folder_with(folder: Path, of: Backend, name: str | None, model_type: str | None, **config: object) -> Path:
    folder.mkdir(exist_ok=True)
    of.save(str(folder / "tokenizer.json"))
    declared = {} if name is None else {"tokenizer_class": name}
    (folder / "tokenizer_config.json").write_text(json.dumps(config | declared))
    if model_type is not None:
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


@pytest.mark.parametrize("rules", BACKENDS)
def test_ids_are_those_of_the_file(tmp_path: Path, rules: str) -> None:
    of = BACKENDS[rules]
    texts = [*PROBES, *CORPUS, "x<tool>y", "x <|endoftext|> y", "<s>a"]
    expected = [of.encode(text).ids for text in texts]
    for i, (name, model_type) in enumerate(DECLARED):
        folder = folder_with(tmp_path / str(i), of, name, model_type, **NAMED)
        tokenizer = load_tokenizer(str(folder))
        case = f"{rules}, {name}, {model_type}"
        assert encoder(tokenizer)(texts, True) == expected, case
        assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "<|endoftext|>"), case

        built = AutoTokenizer.from_pretrained(str(folder))
        differs = encoder(built)(texts, True) != expected
        assert bool(unlike_transformers(tokenizer)) == differs, case
        assert taken_from(tokenizer).startswith("tokenizer.json"), case
        assert ("unlike" in taken_from(tokenizer)) == differs, case
        if differs:
            assert tokenizer_fingerprint(tokenizer) != tokenizer_fingerprint(built), case


def test_the_line_names_the_class_and_a_text(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "a", BACKENDS["digits"], "GPT2TokenizerFast", "llama", **NAMED)
    line = unlike_transformers(load_tokenizer(str(folder)))
    assert line.startswith(
        "tokenizer.json is taken as it is: GPT2Tokenizer, which transformers makes of it, gives other"
    )
    assert "'In 1987 there were 12345 birds' (" in line


def test_a_config_that_transformers_refuses_hides_no_tokenizer(tmp_path: Path) -> None:
    """It refuses 256.0, which levanter writes; the tokenizer is that of the kind of model."""
    of = BACKENDS["digits"]
    for name, model_type in (("GPT2Tokenizer", "gemma2"), (None, "gpt2")):
        folder = folder_with(tmp_path / f"{name}-{model_type}", of, name, model_type, **NAMED)
        plain = load_tokenizer(str(folder))
        config = {"model_type": model_type, "query_pre_attn_scalar": 256.0, "vocab_size": 30.0}
        (folder / "config.json").write_text(json.dumps(config))
        tokenizer = load_tokenizer(str(folder))
        assert taken_from(tokenizer) == taken_from(plain)
        assert tokenizer_fingerprint(tokenizer) == tokenizer_fingerprint(plain)
        assert encoder(tokenizer)(CORPUS, True) == [of.encode(text).ids for text in CORPUS]


OF_SENTENCEPIECE = [  # (class, tokenizer_config.json's further keys, name of the file)
    *((name, {}, "tokenizer.model") for name in ("LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizer", None)),
    # issue 54: the dummy prefix was gone
    *((name, {"legacy": False}, "tokenizer.model") for name in ("LlamaTokenizer", None)),
    # issue 54: not looked for; LlamaTokenizer read nothing and made every text <unk>
    *((None, {}, name) for name in SENTENCEPIECE[1:]),
    *(("LlamaTokenizer", {}, name) for name in SENTENCEPIECE[1:]),
]


@pytest.fixture(scope="module")
def sentencepieces(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[bool, str], Path]:
    """(add_dummy_prefix, normalization) -> a SentencePiece model's file."""
    import sentencepiece

    folder = tmp_path_factory.mktemp("sentencepiece")
    files: dict[tuple[bool, str], Path] = {}
    for key in itertools.product((True, False), ("identity", "nmt_nfkc")):
        prefix = folder / f"{key[0]}-{key[1]}"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS * 8), model_prefix=str(prefix), vocab_size=320, model_type="bpe",
            add_dummy_prefix=key[0], normalization_rule_name=key[1], remove_extra_whitespaces=False, byte_fallback=True,
            split_digits=True, minloglevel=2, hard_vocab_limit=False,
        )  # fmt: skip
        files[key] = prefix.with_suffix(".model")
    return files


def sentencepiece_folder(
    folder: Path, file: Path, name: str | None, file_name: str = "tokenizer.model", **config: object
) -> Path:
    folder.mkdir()
    shutil.copy(file, folder / file_name)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    if name is not None:
        config["tokenizer_class"] = name
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(("name", "config", "file_name"), OF_SENTENCEPIECE)
def test_ids_of_a_sentencepiece_model_are_its_own(
    tmp_path: Path,
    sentencepieces: dict[tuple[bool, str], Path],
    name: str | None,
    config: dict[str, Any],
    file_name: str,
) -> None:
    from sentencepiece import SentencePieceProcessor

    for (prefix, rules), file in sentencepieces.items():
        case = f"{name}, add_dummy_prefix {prefix}, {rules}"
        tokenizer = load_tokenizer(str(sentencepiece_folder(tmp_path / case, file, name, file_name, **config)))
        processor = SentencePieceProcessor(model_file=str(file))
        texts = [*PROBES, *CORPUS]
        pairs = zip(texts, encoder(tokenizer)(texts), strict=True)
        differing = [text for text, ids in pairs if ids != processor.encode(text)]
        # tokenizers takes "\r\n" for one character, and says so
        carriages = [text for text in texts if "\r\n" in text and rules == "nmt_nfkc"]
        assert differing == carriages, case
        assert ("sentencepiece itself gives other" in unlike_transformers(tokenizer)) == bool(carriages), case
        assert taken_from(tokenizer).startswith(file_name), case
        if name or file_name == "tokenizer.model":
            assert _ends(tokenizer) == _ends(AutoTokenizer.from_pretrained(str(tmp_path / case))), case


def test_what_transformers_reads_unlike_sentencepiece_is_said(tmp_path: Path) -> None:
    """A blank's mark at the end, where blanks are removed; a byte's name and a special token's name in a Unigram model."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 8), model_prefix=str(tmp_path / "unigram"), vocab_size=330, byte_fallback=True,
        normalization_rule_name="identity", minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    tokenizer = load_tokenizer(str(sentencepiece_folder(tmp_path / "a", tmp_path / "unigram.model", None)))
    assert re.search(r"for 2 of \d+ texts, the first 'a\u2581'$", unlike_transformers(tokenizer))
    assert special_names_in(reading_names_as_text(tokenizer), [["x </s> y"], ["plain"]]) == {"</s>": 1}


def test_a_class_that_numbers_pieces_otherwise_and_does_not_read_the_file_is_refused(
    tmp_path: Path, sentencepieces: dict[tuple[bool, str], Path]
) -> None:
    """XGLM's <s> is 0, the file's is 1: ids of the file would be those of other tokens."""
    folder = sentencepiece_folder(
        tmp_path / "a", sentencepieces[True, "identity"], "XGLMTokenizer", "sentencepiece.bpe.model"
    )
    with pytest.raises(InputError, match=r"XGLMTokenizer of transformers does not read sentencepiece\.bpe\.model"):
        load_tokenizer(str(folder))


@pytest.mark.parametrize("file_name", SENTENCEPIECE)
def test_without_sentencepiece_it_is_the_remedy(
    tmp_path: Path,
    sentencepieces: dict[tuple[bool, str], Path],
    monkeypatch: pytest.MonkeyPatch,
    file_name: str,
) -> None:
    """A hub id's too (issue 54), whose files lie in the cache."""
    folder = sentencepiece_folder(tmp_path / "a", sentencepieces[True, "identity"], "LlamaTokenizer", file_name)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    monkeypatch.setattr("miron_jax.tokens.tokenizers.find_spec", lambda name: None)
    in_cache = {name: str(folder / name) for name in (file_name,)}
    monkeypatch.setattr("miron_jax.tokens.tokenizers._path_of", lambda name, folder_or_id: in_cache.get(name))
    for place in (str(folder), "nobody/model"):
        with pytest.raises(InputError, match=rf"{re.escape(file_name)} is a .* pip install sentencepiece"):
            load_tokenizer(place)


def test_what_stays_of_transformers(tmp_path: Path) -> None:
    """Names that the class has, tokens of tokenizer_config.json, its add_bos_token, and folders without a file."""
    plain, bos = BACKENDS["plain"], BACKENDS["bos"]
    gpt2 = load_tokenizer(str(folder_with(tmp_path / "names", plain, None, "gpt2")))
    assert (gpt2.eos_token_id, gpt2.pad_token) == (0, None)

    neox = load_tokenizer(str(folder_with(tmp_path / "pad", plain, None, "gpt_neox")))
    assert neox.pad_token is None, "GPTNeoX has a <|padding|>, the file has none"
    assert len(neox) == plain.get_vocab_size()

    more = {"added_tokens_decoder": {str(plain.get_vocab_size()): {"content": "<more>", "special": True}}}
    added = load_tokenizer(str(folder_with(tmp_path / "added", plain, "GPT2Tokenizer", "gpt2", **more)))
    assert encoder(added)(["a<more>"])[0][-1] == plain.get_vocab_size()

    stated = {"add_bos_token": False, **NAMED}
    without = load_tokenizer(str(folder_with(tmp_path / "bos", bos, "GPTNeoXTokenizer", "gpt_neox", **stated)))
    assert encoder(without)(["a"], True) == encoder(without)(["a"])
    assert encoder(without)(["1987"]) == [bos.encode("1987", add_special_tokens=False).ids]

    legacy = folder_with(tmp_path / "legacy", plain, "GPT2Tokenizer", "gpt2", add_bos_token=True, **NAMED)
    plain.model.save(str(legacy))
    (legacy / "tokenizer.json").unlink()
    tokenizer, built = load_tokenizer(str(legacy)), AutoTokenizer.from_pretrained(str(legacy))
    assert taken_from(tokenizer).startswith("GPT2Tokenizer of transformers")
    assert encoder(tokenizer)(CORPUS, True) == encoder(built)(CORPUS, True)
    assert encoder(tokenizer)(["a"], True)[0][0] == tokenizer.bos_token_id

    assert taken_from(built) == "a given GPT2Tokenizer"


def test_names_of_special_tokens_as_text(tmp_path: Path) -> None:
    """Letters in place of the token, and the tokenizer's own BOS in front all the same; other added tokens stay."""
    control = load_tokenizer(str(folder_with(tmp_path / "a", BACKENDS["bos"], "GPT2Tokenizer", "llama", **NAMED)))
    text = reading_names_as_text(control)
    [as_control], [as_text] = (encoder(each)(["a<|endoftext|>b"], True) for each in (control, text))
    assert as_control[0] == as_text[0] == control.bos_token_id
    assert len(as_control) == 4
    assert control.eos_token_id not in as_text
    assert text.decode(as_text[1:]) == "a<|endoftext|>b"
    assert encoder(text)(["a<tool>b"]) == encoder(control)(["a<tool>b"])
    assert text("a<|endoftext|>b")["input_ids"] == as_text
    assert encoder(control)(["a<|endoftext|>b"], True) == [as_control], "the tokenizer itself stays as it is"


def test_rows_that_name_special_tokens(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(folder_with(tmp_path / "a", BACKENDS["plain"], None, "gpt2", **NAMED)))
    rows = [("a", "<s> and <s>"), ("<|endoftext|>", "<s>"), ("<tool>", "</s>"), ()]
    assert special_names_in(tokenizer, rows) == {"<s>": 2, "<|endoftext|>": 1}
    assert special_names_in(reading_names_as_text(tokenizer), rows) == {}


@given(
    st.sets(st.text("ab<", min_size=1, max_size=7), min_size=1, max_size=12),
    st.lists(st.text("ab<", max_size=40), min_size=1, max_size=4),
)
def test_names_are_those_that_one_pattern_matches(names: set[str], texts: list[str]) -> None:
    pattern = re.compile("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)))
    names_in = _finder(names)
    for text in texts:
        assert list(names_in(text)) == pattern.findall(text)
