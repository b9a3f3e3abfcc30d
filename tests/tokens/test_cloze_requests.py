"""Cloze spans and token bytes against literal and brute-force twins, for byte-level and SentencePiece-like tokenizers."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from miron_jax.definitions.records import Cloze, ClozeProfile
from miron_jax.errors import InputError
from miron_jax.tokens.cloze_requests import ClozeRequests, ItemRequests, cloze_requests
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import Tokenizer, special_tokens

TEXT = ["one wug two wugs three wug", "the sun is hot and the rain is cold", "вот глок а там два глока"] * 5
TEXT += ["a b a b a b 12 13 14"] * 5
SPECIALS = ["<s>", "</s>"]


def byte_level(before: bool = False, after: bool = False) -> Tokenizer:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=340, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(TEXT, trainer)
    return _wrapped(backend, before, after)


def sentence_piece(before: bool = False, after: bool = False) -> Tokenizer:
    """Word marks, a space before every text, single bytes for characters without a piece."""
    words = {word for line in TEXT for word in line.replace(" ", " \u2581").split()}
    pieces = sorted({word[:n] for word in words for n in range(1, 5)} | {"\u2581"})
    names = ["<unk>", *SPECIALS, *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    vocabulary = {piece: i for i, piece in enumerate(names)}
    for character in {c for piece in pieces for c in piece}:
        vocabulary.setdefault(character, len(vocabulary))
    merges = [(p[:-1], p[-1]) for p in sorted(pieces, key=len) if len(p) > 1]
    backend = Backend(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(SPECIALS)
    return _wrapped(backend, before, after)


def _wrapped(backend: Backend, before: bool, after: bool) -> Tokenizer:
    if before or after:
        single = f"{'<s> ' if before else ''}$A{' </s>' if after else ''}"
        ids = [(token, backend.token_to_id(token)) for token in SPECIALS]
        backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=ids)
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


TOKENIZERS = {
    f"{name}{', bos' if before else ''}{', eos' if after else ''}": make(before, after)
    for name, make in (("bytes", byte_level), ("pieces", sentence_piece))
    for before, after in ((False, False), (True, False), (True, True))
}
every = pytest.mark.parametrize("name", TOKENIZERS)


def items(*pairs: tuple[str, str], **more: object) -> list[Cloze]:
    return [Cloze(row, str(row), prefix, target, "Facts", **more) for row, (prefix, target) in enumerate(pairs)]  # type: ignore[arg-type]


def ask(
    tokenizer: Tokenizer, cloze_items: list[Cloze], table: TokenBytes | None = None, most: int | None = None
) -> ClozeRequests:
    return cloze_requests(cloze_items, ClozeProfile(), tokenizer, table or TokenBytes(tokenizer), most, "miron/en")


words = st.text(alphabet="wugs aотглк12\n", max_size=12)


@every
@settings(max_examples=30)
@given(prefix=words, target=words.filter(bool))
def test_spans_against_literal_twins(name: str, prefix: str, target: str) -> None:
    tokenizer = TOKENIZERS[name]
    before = tokenizer("x")["input_ids"][:1] if "bos" in name else []
    assume(prefix or before)
    table = TokenBytes(tokenizer)
    try:
        requests, [item] = ask(tokenizer, items((prefix, target)), table)
    except InputError:
        assert not before, "a text after a BOS can always be scored"
        return
    # The card's code: two tokenizer calls and a count.
    whole, count = tokenizer(prefix + target)["input_ids"], len(tokenizer(prefix)["input_ids"])
    if len(whole) <= count:
        assert item.card is None
    else:
        assert item.card is not None
        assert requests.tokens(item.card).tolist() == whole
        assert requests.span_start[item.card] == count
    # The safe span: every token that reaches into the target, and no other; held: what its first token has of the prefix.
    assert item.target is not None
    ids, start = requests.tokens(item.target).tolist(), int(requests.span_start[item.target])
    spelled = b"".join(table.of[i] or b"" for i in ids[start:])
    set_of = int(requests.id_set[item.target])  # type: ignore[index]
    held = spelled[: len(spelled) - len(target.encode())]
    assert spelled.endswith(target.encode())
    assert len(table.of[ids[start]] or b"") > len(held), "a token that ends in the prefix is scored"
    assert item.seam == (set_of >= 0)
    assert prefix.encode().endswith(held) or held == b" " + prefix.encode() or (not prefix and held == b" ")
    if set_of >= 0:
        expected = [i for i, raw in enumerate(table.of) if raw and (raw.startswith(held) or held.startswith(raw))]
        assert table.id_sets[set_of].tolist() == expected


@every
def test_a_target_behind_a_space_is_one_and_the_same_question(name: str) -> None:
    """Then the card and the safe span agree to the token, so nothing is computed twice."""
    for item in ask(TOKENIZERS[name], items(("the sun is", " hot"), ("вот глок", " а"))).by_item:
        assert not item.seam
        assert not item.regress
        assert (item.card == item.target) == ("eos" not in name)


@settings(max_examples=25)
@given(st.sampled_from([" wugs", " глока", " 12 13", "aba"]), st.integers(1, 9))
def test_segmentations_against_every_way_to_cut(text: str, most: int) -> None:
    table = TokenBytes(TOKENIZERS["bytes"])
    known = {token: i for i, token in reversed(list(enumerate(table.of))) if token}
    raw = text.encode()
    ways = []
    for cuts in itertools.product([False, True], repeat=len(raw) - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(raw)]
        pieces = [raw[a:b] for a, b in itertools.pairwise(edges)]
        if all(piece in known for piece in pieces):
            ways.append([known[piece] for piece in pieces])
    assert table.segmentations(raw, most) == sorted(ways, key=lambda ids: (len(ids), ids))[:most]


@every
def test_segmentations_spell_the_target_and_count_what_they_add(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    table = TokenBytes(tokenizer)
    requests, [item] = ask(tokenizer, items(("two", " wugs")), table)
    assert 1 <= len(item.segmentations) <= 7
    target = requests.tokens(item.target)[requests.span_start[item.target] :].tolist()  # type: ignore[index]
    others = [requests.tokens(r)[requests.span_start[r] :].tolist() for r in item.segmentations]
    assert target not in others
    assert {b"".join(table.of[i] or b"" for i in ids) for ids in [target, *others]} == {b" wugs"}
    # A SentencePiece vocabulary spells one byte in two ways; a model is trained on the piece only.
    ids = {i for way in table.segmentations(b"wugs", 20) for i in way}
    assert not any(piece.startswith("<0x") for piece in tokenizer.convert_ids_to_tokens(sorted(ids)))
    inner = {tuple(ids[:n]) for ids in [target, *others] for n in range(1, len(ids))}
    assert item.added_tokens == len(inner) - (len(target) - 1)


def test_what_cannot_be_spelled_is_not_scored() -> None:
    backend = Backend(models.WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2, "the": 3, "sun": 4}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(SPECIALS)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", unk_token="<unk>")
    requests, [item] = ask(tokenizer, items(("the", " moon")))
    assert len(requests) == 0
    assert item.target is None


def test_a_target_at_the_beginning_needs_a_bos() -> None:
    """The BOS is one that the tokenizer adds, or one that it only declares; the latter is counted."""
    for name, added in (("bytes, bos", False), ("bytes", True)):
        tokenizer = TOKENIZERS[name]
        requests, [item] = ask(tokenizer, items(("", "hot")))
        assert item.target is not None
        assert requests.tokens(item.target)[0] == tokenizer.bos_token_id
        assert requests.span_start[item.target] == 1
        assert item.bos_added == added
    nothing = byte_level()
    nothing.bos_token = None
    with pytest.raises(InputError, match=r"miron/en, item 0 \(row 0\): no token stands before its target"):
        ask(nothing, items(("", "hot")))


def test_the_length_limit_keeps_the_end() -> None:
    requests, [item] = ask(TOKENIZERS["bytes"], items(("the sun is", " hot")), most=3)
    assert requests.truncated[item.target]  # type: ignore[index]
    assert max(np.diff(requests.offsets)) <= 3
    with pytest.raises(InputError, match="raise --max_length"):
        ask(TOKENIZERS["bytes"], items(("the sun is", " hot and the rain is cold")), most=3)


@every
def test_requests_of_pairs_distractors_and_null_prefix(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    special = special_tokens(tokenizer)
    assert special.before == ((tokenizer.bos_token_id,) if "bos" in name else ())
    more = {"distractors": (" cold", " sun"), "clean_prefix": "the sun is", "operator": "swap", "num_edits": 1}
    requests, [item] = ask(tokenizer, items(("teh sun is", " hot"), **more))
    assert isinstance(item, ItemRequests)
    assert None not in (item.clean, item.unprefixed, *item.distractors)
    null = requests.tokens(item.unprefixed)  # type: ignore[arg-type]
    assert null[0] == tokenizer.bos_token_id
    assert null[1:].tolist() == requests.tokens(item.target)[-item.num_tokens :].tolist()  # type: ignore[arg-type]
    assert list(item.prompt) == [*special.before, *tokenizer("teh sun is", add_special_tokens=False)["input_ids"]]
