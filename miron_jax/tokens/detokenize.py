"""Token ids -> the text that a reader would see.

Arrives: a tokenizer, a prompt and the tokens drawn after it.  Leaves: their text, no space lost or doubled.  It
deliberately does not know models or how tokens were drawn.
"""

from collections.abc import Sequence

from miron_jax.tokens.tokenizers import Tokenizer

CONTEXT = 8  # prompt tokens that are decoded with the text, so that its first space is right


def text_after(tokenizer: Tokenizer, prompt: Sequence[int], new: Sequence[int]) -> str:
    """What `new` adds to the prompt's text, special tokens included; a character left unfinished shows as one U+FFFD.

    Decoded behind the prompt's end, so that no space is lost or doubled: SentencePiece drops the first space of a text
    that stands alone.  Its byte tokens decode run by run, one bad byte spoils its run: so the context begins with a whole
    character, and what is unfinished at the end stays out.  A lone U+FFFD at the end is as it should be: a byte-level token
    may hold the last byte of one character and the first of another.
    """
    size = CONTEXT
    while size < len(prompt) and _decode(tokenizer, prompt[-size:]).startswith("\ufffd"):
        size += CONTEXT
    context = list(prompt[-size:])
    before, whole, unfinished = _decode(tokenizer, context), _decode(tokenizer, [*context, *new]), ""
    for cut in range(1, min(4, len(new) + 1) if whole.endswith("\ufffd\ufffd") else 1):
        shorter = _decode(tokenizer, [*context, *new[: len(new) - cut]])
        if not shorter.endswith("\ufffd"):
            whole, unfinished = shorter, "\ufffd"
            break
    while not whole.startswith(before):  # the prompt ends inside a character that `new` completes
        before = before[:-1]
    return whole[len(before) :] + unfinished


def drops_first_space(tokenizer: Tokenizer) -> bool:
    """Whether a text whose tokens are decoded alone loses the space that it begins with, as SentencePiece's do."""
    return not _decode(tokenizer, tokenizer(" a", add_special_tokens=False)["input_ids"]).startswith(" ")


def _decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Ids beyond the tokenizer, which a model's padded vocabulary may draw, have no text."""
    size = len(tokenizer)
    known = [i for i in ids if i < size]
    return tokenizer.decode(known, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def texts_of_tokens(tokenizer: Tokenizer, vocab_size: int) -> list[str]:
    """Each token's text alone, behind its raw piece, whose word mark stands for the space that decoding may drop."""
    ids = list(range(min(vocab_size, len(tokenizer))))
    marks = str.maketrans({"\u2581": " ", "\u0120": " "})
    pieces = [(piece or "").translate(marks) for piece in tokenizer.convert_ids_to_tokens(ids)]
    texts = tokenizer.batch_decode([[i] for i in ids], skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return [piece + text for piece, text in zip(pieces, texts, strict=True)]
