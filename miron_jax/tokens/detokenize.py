"""Token ids -> the text that a reader would see.

Arrives: a tokenizer, a prompt and the tokens drawn after it.  Leaves: their text, no space lost or
doubled.  It deliberately does not know models or how tokens were drawn.
"""

from collections.abc import Sequence
from functools import lru_cache

from miron_jax.tokens.tokenizers import Tokenizer

WITHOUT_TEXT = (
    "tokens of completions have no text: the model has more rows than the tokenizer has tokens"
)
CONTEXT = 8  # prompt tokens that are decoded with a completion, so that its first space is right


def text_after(tokenizer: Tokenizer, prompt: Sequence[int], new: Sequence[int]) -> str:
    """The text that tokens `new` add to the prompt, special tokens included; an incomplete last
    character is one U+FFFD.

    `new` is decoded after the end of the prompt, because SentencePiece drops the first space of a
    text decoded alone.  SentencePiece decodes byte tokens run by run, and one bad byte spoils its
    run, so the context begins with a whole character and the bytes of an incomplete last character
    are left out.  A single U+FFFD at the end of the decoded text is kept: a byte-level token may
    hold the last byte of one character and the first of another.
    """
    size = CONTEXT
    while size < len(prompt) and _decode(tokenizer, prompt[-size:]).startswith("\ufffd"):
        size += CONTEXT
    context = list(prompt[-size:])
    before = _decode(tokenizer, context)
    whole = _decode(tokenizer, [*context, *new])
    unfinished = ""
    for cut in range(1, min(4, len(new) + 1) if whole.endswith("\ufffd\ufffd") else 1):
        shorter = _decode(tokenizer, [*context, *new[: len(new) - cut]])
        if not shorter.endswith("\ufffd"):
            whole = shorter
            unfinished = "\ufffd"
            break
    while not whole.startswith(before):  # the prompt ends inside a character that `new` completes
        before = before[:-1]
    return whole[len(before) :] + unfinished


def drops_first_space(tokenizer: Tokenizer) -> bool:
    """Whether a text loses its first space when its tokens are decoded alone, as with
    SentencePiece."""
    return not _decode(
        tokenizer, tokenizer(" a", add_special_tokens=False)["input_ids"]
    ).startswith(" ")


def _decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of ids; those that the tokenizer lacks have none."""
    known = _known_ids(tokenizer, len(tokenizer))
    return tokenizer.decode(
        [i for i in ids if i in known],
        skip_special_tokens=False,
        clean_up_tokenization_spaces=False,
    )


def num_without_text(tokenizer: Tokenizer, ids: Sequence[int]) -> int:
    """How many ids the tokenizer lacks: a model draws them from rows that pad its vocabulary."""
    known = _known_ids(tokenizer, len(tokenizer))
    return sum(i not in known for i in ids)


@lru_cache(maxsize=2)
def _known_ids(tokenizer: Tokenizer, size: int) -> frozenset[int]:
    """All ids of a tokenizer of this size; they may leave numbers out."""
    return frozenset(tokenizer.get_vocab().values())


def texts_of_tokens(tokenizer: Tokenizer, vocab_size: int) -> list[str]:
    """Each id's raw piece, with its word mark as a space, then its text: decoding a token alone may
    drop that space.  "" of ids that the tokenizer lacks."""
    ids = sorted(i for i in _known_ids(tokenizer, len(tokenizer)) if i < vocab_size)
    marks = str.maketrans({"\u2581": " ", "\u0120": " "})
    pieces = [(piece or "").translate(marks) for piece in tokenizer.convert_ids_to_tokens(ids)]
    texts = tokenizer.batch_decode(
        [[i] for i in ids], skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    of_ids = [""] * (ids[-1] + 1)
    for i, piece, text in zip(ids, pieces, texts, strict=True):
        of_ids[i] = piece + text
    return of_ids
