"""Texts in pieces have the tokens of whole texts, for tokenizers of every kind, and what repeats is tokenized once."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from miron_jax.errors import SelfCheckFailed
from miron_jax.tokens import pieces
from miron_jax.tokens.pieces import PieceEncoder
from miron_jax.tokens.tokenizers import load_tokenizer, reading_names_as_text

CORPUS = [
    "Question: is it 1987, or 12345?\nAnswer: it's 12.5.\n\nQ: ¿café?\nA:\tnaïve  x\n\n\nabc def\n 12\r\nx\u00a0y <b> \"a",
    "Питання: хто це? Відповідь: кіт.\n\n数字は123です。\nhe said: “don't”…\n",
] * 3
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QUOTES = r'"[^"]*"|[^"\s]+|\s+'  # an open quotation mark joins the lines behind it
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lo}\p{M}]*[\p{Ll}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lo}\p{M}]+[\p{Ll}\p{Lo}\p{M}]*"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(regex: str | None = None, prefix: bool = False) -> pre_tokenizers.PreTokenizer:
    if regex is None:
        return pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    split = pre_tokenizers.Split(Regex(regex), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


KINDS: dict[str, tuple[Any, Any, Any]] = {  # model, normalizer, pre-tokenizer
    "gpt2": (models.BPE(), None, byte_level()),
    "gpt2 with a prefix": (models.BPE(), None, byte_level(prefix=True)),
    "llama3": (models.BPE(), None, byte_level(LLAMA3)),
    "digits": (models.BPE(), normalizers.NFC(), pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level()])),
    "bert": (
        models.WordPiece(unk_token="[UNK]"),
        normalizers.BertNormalizer(lowercase=True),
        pre_tokenizers.BertPreTokenizer(),
    ),
    "nfkc, lower": (models.BPE(), normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]), byte_level()),
    "metaspace": (models.Unigram(), None, pre_tokenizers.Metaspace()),
    "gemma": (
        models.BPE(byte_fallback=True, fuse_unk=True),
        normalizers.Replace(" ", "▁"),
        pre_tokenizers.Split(" ", "merged_with_previous"),
    ),
    "no pre-tokenizer": (models.BPE(fuse_unk=True, unk_token="[UNK]"), normalizers.Replace(" ", "▁"), None),
    "whole": (models.BPE(), normalizers.Prepend("▁"), None),
}  # fmt: skip


def tokenizer_of(kind: str, added: Sequence[str | AddedToken] = ("<b>",), corpus: Sequence[str] = CORPUS) -> Any:
    model, normalizer, pre_tokenizer = KINDS[kind]
    backend = Tokenizer(deepcopy(model))
    if normalizer is not None:
        backend.normalizer = normalizer
    if pre_tokenizer is not None:
        backend.pre_tokenizer = pre_tokenizer
    of_model: dict[type, Callable[..., Any]] = {
        models.BPE: trainers.BpeTrainer,
        models.Unigram: trainers.UnigramTrainer,
        models.WordPiece: trainers.WordPieceTrainer,
    }
    unknown = {"unk_token": "[UNK]"} if isinstance(model, models.Unigram) else {}
    special = ["[UNK]", "<s>", *(f"<0x{byte:02X}>" for byte in range(256) if getattr(model, "byte_fallback", False))]
    backend.train_from_iterator(
        corpus,
        of_model[type(model)](vocab_size=400 + len(special), special_tokens=special, show_progress=False, **unknown),
    )
    backend.add_special_tokens([*added])
    backend.add_tokens([AddedToken("\n\nAb c", normalized=True)])
    backend.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>")


TOKENIZERS = {kind: tokenizer_of(kind) for kind in KINDS}
PARTS = st.lists(
    st.one_of(
        st.sampled_from([
            "Question: is it 1987?\n", "\n\n", "Answer:", " it's 12.5", "\nAnswer: “don’t”…\n\n", "1", "2345",
            " ", "'ll", "cafe", "\u0301x", "<b", ">", "<b>", "\r\n", "x\n", "\u00a0", "Відповідь: кіт.\n\nПит",
            "数字は12", "3です\n", " \n \nx", "", "\n\nAB c", "\nAb c\n",
        ]),
        st.text(alphabet="ab1.\n '\u0301", max_size=12),
    ),
    max_size=6,
).map(tuple)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.lists(PARTS, max_size=4), st.booleans())
def test_pieces_have_the_tokens_of_whole_texts(kind: str, texts: list[tuple[str, ...]], special: bool):
    tokenizer = TOKENIZERS[kind]
    expected = [tokenizer("".join(text), add_special_tokens=special)["input_ids"] for text in texts]
    assert [ids.tolist() for ids in PieceEncoder(tokenizer)(texts, special)] == expected


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_unknown_characters_side_by_side_are_one_token(kind: str):
    tokenizer = TOKENIZERS[kind]
    for text in [("abcd\u0301", "\u0301abcd"), ("abcd\u0301", "abcd"), ("abcd", "\u0302\u0301abcd")]:
        expected = tokenizer("".join(text), add_special_tokens=False)["input_ids"]
        assert PieceEncoder(tokenizer)([text])[0].tolist() == expected


def encoder_of(kind: str, monkeypatch: pytest.MonkeyPatch) -> tuple[PieceEncoder, list[str]]:
    """An encoder, and the texts that its tokenizer will be given."""
    encoder = PieceEncoder(TOKENIZERS[kind])
    given = list[str]()
    whole = encoder._encode
    monkeypatch.setattr(encoder, "_encode", lambda texts, special=False: given.extend(texts) or whole(texts, special))
    return encoder, given


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_repeats_is_tokenized_once(kind: str, monkeypatch: pytest.MonkeyPatch):
    """A thousand texts of the same ten shots: each line comes to the tokenizer once where it cuts at ends of lines."""
    encoder, given = encoder_of(kind, monkeypatch)
    shots = tuple(f"Question: what is {i}?\nAnswer: {i}\n\n" for i in range(10))
    encoder([(*shots[i % 10 :], f"Question: and {i}?\nAnswer:", " a") for i in range(1000)])
    checked = sum(i % pieces.CHECKED == 0 for i in range(1000))
    if kind in ("gpt2 with a prefix", "metaspace", "whole"):
        assert len(given) >= 1000
    else:  # a shot may come as the first and behind another, and the question behind one
        assert len(given) <= 3 * 10 + 1000 + 2 + checked


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_context_that_ends_with_a_space_is_tokenized_once(kind: str, monkeypatch: pytest.MonkeyPatch):
    """The space belongs to the choices where the tokenizer joins it with a word."""
    encoder, given = encoder_of(kind, monkeypatch)
    encoder([(f"Question: is it {i}? ", choice) for i in range(100) for choice in ("yes", "no", "red", "blue")])
    if kind == "whole":
        assert len(given) >= 400
    else:
        assert len(given) <= 100 + 4 + 2


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_token_may_stand_across_parts_and_lines(kind: str):
    added = [AddedToken("<b>", lstrip=True), AddedToken("\nQ"), AddedToken("long<special>token", rstrip=True)]
    tokenizer = tokenizer_of(kind, added)
    texts = [
        ("abcd efgh\n", "Question: abcd"),
        ("abcd efgh\n\n", "<b>abcd"),
        ("abcd long<special>token     \n", "abcd efgh"),
        ("abcd long<sp", "ecial>token"),
        ("abcd long<special>token", "\nabc"),
        ("abcd efgh\n\n", "LONG<Special>token"),
        ("\n\n", "<b>"),
        ("abcd\n.? ", "\u0301\nAb c\n"),  # without the accent, two spaces before Ab c are a token
    ]
    expected = [tokenizer("".join(text), add_special_tokens=False)["input_ids"] for text in texts]
    assert [ids.tolist() for ids in PieceEncoder(tokenizer)(texts)] == expected


DROPS = normalizers.Replace("\u200b", "")
SCRIPTS = pre_tokenizers.Sequence([
    pre_tokenizers.UnicodeScripts(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
])  # fmt: skip
FAR = [  # model, normalizer, pre-tokenizer; added tokens; corpus; text
    (
        (models.BPE(), None, byte_level(DEEPSEEK)),
        (),
        ["Voilà voilà la vérité naïveté appréciation, Is it right?"],
        ("Is it right?", "Voilà"),
    ),
    ((models.BPE(), None, byte_level(O200K)), (), ["他们使用HTTP协议 下载APP下载"], ("Q: 他们使用", "HTTP协议")),
    (
        (models.BPE(unk_token="[UNK]"), None, pre_tokenizers.Metaspace(prepend_scheme="first")),
        (AddedToken("\n", normalized=False),),
        CORPUS,
        ("Question: is it?\n", "Question: 12"),
    ),
    ((models.BPE(), DROPS, byte_level()), (), CORPUS, ("abcd\n\n\u200b\u200b\u200b", "Question: is")),
    (
        (models.BPE(), DROPS, byte_level()),
        (AddedToken("<b>", rstrip=True, normalized=True),),
        CORPUS,
        ("xx<b>\u200b    ", "abcd efg"),
    ),
    ((models.BPE(), None, byte_level(QUOTES)), (), ['"abcd\nabcd"'], ('he "said: abcd\nabcd efgh\nabcd"',)),
    ((models.BPE(), None, SCRIPTS), (), ["abcd     Question is     efgh"], ("abcd     ", "Question is")),
]


@pytest.mark.parametrize(("kind", "added", "corpus", "text"), FAR)
def test_what_stands_out_of_sight_may_decide(
    kind: tuple[Any, Any, Any],
    added: Sequence[AddedToken],
    corpus: Sequence[str],
    text: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(KINDS, "far", kind)
    tokenizer = tokenizer_of("far", added, [*corpus] * 20)
    expected = tokenizer("".join(text), add_special_tokens=False)["input_ids"]
    assert PieceEncoder(tokenizer)(["abcd", text])[1].tolist() == expected


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(KINDS)), PARTS, st.lists(st.tuples(st.integers(0, 6), PARTS), max_size=6))
def test_texts_that_share_leading_parts(kind: str, parts: tuple[str, ...], ends: list[tuple[int, tuple[str, ...]]]):
    tokenizer = TOKENIZERS[kind]
    texts = [(*parts[:n], *end) for n, end in ends]
    expected = [tokenizer("".join(text), add_special_tokens=False)["input_ids"] for text in texts]
    assert [ids.tolist() for ids in PieceEncoder(tokenizer)(texts)] == expected


def test_a_name_that_is_read_as_text_is_no_cut():
    corpus = [*CORPUS, *["abcd§abcd xabcd§abcd"] * 20]
    tokenizer = reading_names_as_text(tokenizer_of("llama3", [AddedToken("§", special=True)], corpus))
    expected = tokenizer("xabcd§abcd", add_special_tokens=False)["input_ids"]
    assert PieceEncoder(tokenizer)(["abcd", ("xabcd§", "abcd")])[1].tolist() == expected


def test_a_difference_ends_the_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pieces, "_cuts_of", lambda tokenizer: lambda left, right: True)
    encoder = PieceEncoder(TOKENIZERS["gpt2"])
    monkeypatch.setattr(pieces, "CHECKED", 1)
    with pytest.raises(SelfCheckFailed, match="other tokens in pieces"):
        encoder([("Question: is it 123", "45? Answer")])


def test_texts_that_cannot_be_tokenized_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch):
    encoder = PieceEncoder(TOKENIZERS["gpt2"])

    def fail(texts: Sequence[str], special: bool = False) -> Any:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(encoder, "_encode", fail)
        with pytest.raises(MemoryError):
            encoder(["efgh"])
    [ids] = encoder([("abcd\n", "Question: abcd")])
    assert ids.tolist() == TOKENIZERS["gpt2"]("abcd\nQuestion: abcd", add_special_tokens=False)["input_ids"]


def test_pieces_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pieces, "KEPT_BYTES", 1000)
    encoder = PieceEncoder(TOKENIZERS["gpt2"])
    for i in range(50):
        text = (f"Question: {i} and {i * i}?\nAnswer:", " no")
        assert encoder([text])[0].tolist() == TOKENIZERS["gpt2"]("".join(text), add_special_tokens=False)["input_ids"]
    assert encoder._num_bytes < 4000
    assert len(encoder._ids) < 10


@pytest.mark.parametrize("special", [False, True])
def test_a_real_tokenizer(smollm2: Path, special: bool):
    tokenizer = load_tokenizer(str(smollm2))
    texts = [tuple(CORPUS[0][a : a + 17] for a in range(start, len(CORPUS[0]), 17)) for start in range(40)]
    for text, ids in zip(texts, PieceEncoder(tokenizer)(texts, special), strict=True):
        assert np.array_equal(ids, tokenizer("".join(text), add_special_tokens=special)["input_ids"])
