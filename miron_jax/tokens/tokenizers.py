"""Tokenizers: loading one, its special tokens, and texts to token ids.

Arrives: a folder or hub id; texts.  Leaves: a tokenizer; lists of token ids.  It deliberately does not know prompts
or spans.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from miron_jax.errors import InputError
from miron_jax.tokens.records import Bos, Special

# A transformers tokenizer.  Its class is private to that library's version, so no type is named here.
Tokenizer = Any


BosRule = Literal["always", "as_tokenizer", "as_tokenizer_or_prefix", "never"]  # of definitions.records.Wording


class Encode(Protocol):
    def __call__(self, texts: list[str], special: bool = False) -> list[list[int]]: ...


def load_tokenizer(folder_or_id: str) -> Tokenizer:
    """A tokenizer from a Hugging Face folder or hub id."""
    # transformers greets a machine without torch with a warning, once, while it is imported.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import AutoTokenizer

    remedy = "name a folder that holds tokenizer.json and tokenizer_config.json, or a hub id that can be reached"
    if folder_or_id.startswith(("/", ".", "~")) and not Path(folder_or_id).is_dir():
        raise InputError(f"--tokenizer={folder_or_id}: there is no such folder: {remedy}")
    try:
        # Without trust_remote_code=False, transformers asks on the terminal whether to run the folder's own code.
        tokenizer = AutoTokenizer.from_pretrained(folder_or_id, trust_remote_code=False)
        _try_out(tokenizer)
        return tokenizer
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # A damaged file ends in whatever error its first use leads to; tokenizers' own panics are no Exception.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"--tokenizer={folder_or_id}: no tokenizer could be read ({reason:.200}): {remedy}") from error


def _try_out(tokenizer: Tokenizer) -> None:
    """Encode and decode a text, and check all token ids that a run reads, so that a damaged tokenizer fails before a run."""
    ids = tokenizer("A b1\n\u00e9")["input_ids"]
    tokenizer.decode(ids, skip_special_tokens=False)
    special = [token for token in (tokenizer.bos_token_id, tokenizer.eos_token_id) if token is not None]
    for token in (*ids, *special, *tokenizer.all_special_ids, *tokenizer.get_vocab().values()):
        if not isinstance(token, int) or token < 0:
            raise ValueError(f"{token!r:.40} stands where a token id is expected")


def resolve_bos(tokenizer: Tokenizer) -> Bos:
    """The declared bos_token, else `<|bos|>` or `<|endoftext|>` of the vocabulary.  Raises InputError if there is none."""
    if tokenizer.bos_token_id is not None:
        return Bos(int(tokenizer.bos_token_id), f"declared {tokenizer.bos_token}")
    vocabulary = tokenizer.get_vocab()
    for token in ("<|bos|>", "<|endoftext|>"):
        if token in vocabulary:
            return Bos(int(vocabulary[token]), f"vocabulary {token}")
    raise InputError(
        "the tokenizer declares no bos_token and has neither <|bos|> nor <|endoftext|>, but each prompt begins with one: "
        "set bos_token in its tokenizer_config.json"
    )


def special_tokens(tokenizer: Tokenizer) -> Special:
    """The tokens that the tokenizer puts around every text."""
    with_specials, alone = tokenizer("a")["input_ids"], tokenizer("a", add_special_tokens=False)["input_ids"]
    starts = range(len(with_specials))
    start = next((i for i in starts if alone and with_specials[i : i + len(alone)] == alone), None)
    if start is None:
        raise InputError(
            f"the tokenizer makes {with_specials} of 'a' with special tokens and {alone} without, expected the same tokens "
            "between them: name another with --tokenizer"
        )
    try:
        empty = (resolve_bos(tokenizer).id,)
    except InputError:
        empty = ()
    return Special(tuple(with_specials[:start]), tuple(with_specials[start + len(alone) :]), empty)


def first_tokens(bos: BosRule, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The special tokens before a text that is tokenized as one."""
    if bos in ("as_tokenizer", "as_tokenizer_or_prefix"):
        return special_tokens(tokenizer).before
    return () if bos == "never" else (resolve_bos(tokenizer).id,)


def prefix_token(tokenizer: Tokenizer) -> int:
    """What stands in place of an empty context: BOS, or EOS.  Raises InputError if there is neither."""
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if token is not None:
            return token
    raise InputError("the tokenizer has neither BOS nor EOS, one of which stands before a text without a context")


def longest_answer(texts: Sequence[str], tokenizer: Tokenizer) -> int:
    """Number of tokens of the longest text, special tokens around it included."""
    return max((len(ids) for ids in encoder(tokenizer)(list(texts), True)), default=0)


def writes_space_into_words(tokenizer: Tokenizer) -> bool:
    """Whether " a" is one token: composer's test for tokenizers that join a space and the word after it."""
    return len(tokenizer(" a", add_special_tokens=False)["input_ids"]) == 1


def encoder(tokenizer: Tokenizer) -> Encode:
    """Texts -> token ids; `special`: with the tokens that the tokenizer puts around a text."""
    if not getattr(tokenizer, "is_fast", False):
        return lambda texts, special=False: tokenizer(texts, add_special_tokens=special, verbose=False)["input_ids"]
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # a tokenizer.json may ask for either; transformers resets both on each of its own calls too
    backend.no_padding()
    # encode_batch_fast leaves character offsets out and runs on all cores (TOKENIZERS_PARALLELISM=false: on one).
    return lambda texts, special=False: [e.ids for e in backend.encode_batch_fast(texts, add_special_tokens=special)]


def encode_each(
    encode: Encode, texts: list[str], special: bool = False, first: tuple[int, ...] = ()
) -> list[np.ndarray]:
    """`first` and the tokens of each text; equal texts are tokenized once."""
    unique = list(dict.fromkeys(texts))
    encoded = {
        text: np.array([*first, *ids], np.int32) for text, ids in zip(unique, encode(unique, special), strict=True)
    }
    return [encoded[text] for text in texts]
