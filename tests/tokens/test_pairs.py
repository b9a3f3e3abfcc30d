"""Pairs of texts as lm-eval splits them: by hand, and against lm-eval's own code for several tokenizers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from miron_jax.errors import InputError
from miron_jax.prompting.prompts import Prompt
from miron_jax.tasks.request_sets.requests_suite import PROFILE
from miron_jax.tokens.pairs import TextTokens, context_kept, text_tokens
from miron_jax.tokens.pieces import Text
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.tokenizers import load_tokenizer
from miron_jax.tokens.truncation import LengthLimit
from tests.support.needs import reason
from tests.support.torch_folders import FOLDERS, tokenizer_of

# The pairs of a bug report, whose sums were 13 nats apart, and other places where a token crosses the border.
CROSSED = [
    ("print(", '"Hello, world!")'), ("x = [", '"a", "b"]'), ("http:", "//example.com"), ("We saw a cat", "s and a dog"),
]  # fmt: skip
PAIRS = [
    *CROSSED, ("the sun is ", "hot"), ("on a green  ", " hill"), ("where\n", "the sun"), ("the r", "ain is hot"),
    ("é", "ñ and cold"), ("a small", "er hill"), ("the hill", "."),
]  # fmt: skip
SPELLED = {"(": 1, '("': 2, "a": 3, '"': 4, " b": 5, " ": 6, "b": 7, "<s>": 8, "ab": 9}


def spell(texts: Sequence[Text], special: bool = False) -> list[np.ndarray]:
    """The longest spelling first, and <s> before a text with special tokens."""
    return [np.asarray([8] * special + list(_spelled("".join(text))), np.int32) for text in texts]


def _spelled(text: str) -> Any:
    while text:
        piece = max((each for each in SPELLED if text.startswith(each)), key=len)
        yield SPELLED[piece]
        text = text[len(piece) :]


@pytest.mark.parametrize(
    ("context", "continuation", "read", "start"),
    [
        ("a(", '"a"', [3, 1, 3, 4], 2),  # a( and a(" a ": behind a( what follows two tokens
        ("a ", "b", [3, 5], 1),  # the space belongs to the continuation
        ("a  ", "b", [3, 6, 5], 1),
        ("(", '"', [8, 2], 1),  # one token takes in both
        ("a(", '"', [3, 2], 1),  # no token is left: from the first that differs
        ("", "b", [8, 7], 1),
        ("  ", "b", [8, 6, 5], 1),
        ("", "<s>b", [8, 7], 1),  # the continuation begins with the prefix itself
        ("a", "", [3], 1),
    ],
)
def test_pairs_by_hand(context: str, continuation: str, read: list[int], start: int) -> None:
    class Bos:
        bos_token_id, eos_token_id = 8, None

        def decode(self, token: int) -> str:
            return "<s>"

    tokenizer: Any = Bos()
    [pair] = replace(text_tokens("as_tokenizer_or_prefix", tokenizer), encode=spell, special=False).pairs(
        [((context,), continuation)]
    )
    ids = context_kept(pair).tolist()
    shared = np.equal(pair.whole[: len(pair.context)], pair.context[: len(pair.whole)]).argmin()
    assert ids == read, (context, continuation)
    assert start == (len(pair.context) if len(pair.whole) > len(pair.context) else shared or len(ids))


def test_a_text_that_begins_with_bos_gets_no_special_token() -> None:
    tokens = TextTokens(spell, special=True, bos="<s>")
    assert {text: ids.tolist() for text, ids in tokens.of(["a", "<s>a", "a"]).items()} == {"a": [8, 3], "<s>a": [8, 3]}
    assert {text: ids.tolist() for text, ids in tokens.alone(["a"]).items()} == {"a": [3]}


def assert_as_lm_eval(tokenizer: Any, least_crossed: int) -> None:
    """Request by request, as `TemplateLM._encode_pair` splits it, and as its Hugging Face backend cuts it."""
    from lm_eval.api.model import TemplateLM

    theirs: Any = SimpleNamespace(backend="causal", tok_encode=tokenizer.encode)
    encode_pair: Any = TemplateLM._encode_pair
    crossed = 0
    for limit in (None, 3):
        for context, continuation in PAIRS:
            prompt = Prompt(0, 0, (context,), (continuation,), None)
            before, after = encode_pair(theirs, context, continuation)
            expected = (before + after)[-(limit + 1) :] if limit else before + after
            if not after or len(after) >= len(expected):  # there they fail
                continue
            requests = tokenize([prompt], PROFILE, tokenizer, limit, "test")
            [(ids, start)] = requests
            assert (ids.tolist(), start) == (expected, len(expected) - len(after)), (context, continuation, limit)
            is_prefix = tokenizer.encode(context + continuation)[: len(before)] == before
            assert requests.inexact_prefix.tolist() == [not is_prefix], (context, continuation)
            crossed += not is_prefix
    assert crossed >= least_crossed


@pytest.mark.parametrize("kind", FOLDERS)
def test_requests_are_those_of_lm_eval(kind: str) -> None:
    pytest.importorskip("lm_eval", reason=reason("lm_eval"))
    assert_as_lm_eval(tokenizer_of(kind), least_crossed=1)


def test_requests_are_those_of_lm_eval_with_a_real_tokenizer(smollm2: Path) -> None:
    pytest.importorskip("lm_eval", reason=reason("lm_eval"))
    assert_as_lm_eval(load_tokenizer(str(smollm2)), least_crossed=len(CROSSED))


def test_the_limit_is_on_tokens_that_the_model_reads() -> None:
    """lm-eval's: the length a model was trained at, and the last token, which is only predicted, does not count."""
    assert LengthLimit(None, None, 64).of(PROFILE) == 64
    assert LengthLimit(None, 32, 64).of(PROFILE) == 32
    assert LengthLimit(99, None, 64).of(PROFILE) == 99
    assert LengthLimit(None, None, 64).of(replace(PROFILE, truncation="keep_last")) is None
    prompt, tokenizer = Prompt(0, 0, ("the sun is",), (" hot and cold",), None), tokenizer_of("gpt2")
    [(_, start)] = whole = tokenize([prompt], PROFILE, tokenizer, None, "test")
    num_scored = len(whole.token_ids) - start
    shortest = tokenize([prompt], PROFILE, tokenizer, num_scored, "test")
    assert (len(shortest.token_ids), shortest.span_start.tolist()) == (num_scored + 1, [1])
    with pytest.raises(InputError, match=f"raise --max_length to at least {num_scored}, or"):
        tokenize([prompt], PROFILE, tokenizer, num_scored - 1, "test")
