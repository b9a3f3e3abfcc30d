"""Tokenizers: loading one, which BOS and special tokens it has, and texts to token ids.

Arrives: a folder or hub id; texts.  Leaves: a tokenizer; lists of token ids.  It deliberately does
not know prompts or spans.

Which tokenizer a folder has.  A tokenizer.json is complete in itself: its ids are the tokenizer's.
transformers 5 loads it as it is only where it takes the folder's class for a general one; for
others (GPT2Tokenizer, GPTNeoXTokenizer, Qwen2Tokenizer, ...) it keeps vocabulary and merges and
writes normalizer, pre-tokenizer and BPE settings of that class around them.  So transformers
chooses the class, and then the file is loaded as it is, with

- the tokens that tokenizer_config.json adds and names, as transformers reads them for every class;
- the names of special tokens that the class has where the folder names none (GPT-2's
  <|endoftext|>), if the file has the token;
- `add_bos_token` and `add_eos_token` of tokenizer_config.json where transformers' class follows
  them, and else the special tokens that the file puts around a text.

The same holds for a SentencePiece model alone (tokenizer.model, spiece.model and so on):
transformers' general class reads its own normalizer and `add_dummy_prefix`, LlamaTokenizer and
others write theirs.  Such a file says nothing of special tokens around a text, so these are the
class's; and so are the ids where the class numbers the file's pieces otherwise (XGLM's).

Other folders (vocab.json and merges.txt, tekken.json) and tokenizers written in Python are
transformers' own.
"""

import copy
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from miron_jax.errors import InputError
from miron_jax.tokens.records import Bos, Special

# A transformers tokenizer.  Its class is private to that library's version, so no type is named
# here.
Tokenizer = Any
Processor = Any  # of a SentencePiece model; its package is an extra


FILE = "tokenizer.json"
SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model")
SPECIAL_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
TEXTS_AT_ONCE = 4096  # that a tokenizer gets, whose lists of ids take memory
PROBED_TOKENS = 50  # added tokens that the two tokenizers are compared on
PROBES = (
    "In 1987 there were 12345 birds", "caf\u00e9 and na\u00efve", "cafe\u0301", "a  b   c", " a",
    "a ", "a\n\n\nb\n", "\tx[0] += 3.14;\r\n    return", "I'm sure WE'LL",
    "\U0001f600 \u2014 \u2026", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440",
    "\u4f60\u597d\uff0c\u4e16\u754c", "\ufb01 \uff21 \u00bd", "",
)  # fmt: skip
# which transformers may read otherwise than sentencepiece: its mark of a blank, a byte's name
SENTENCEPIECE_PROBES = (*PROBES, "a\u2581", "a<0x41>b")

# of definitions.records.Wording
BosRule = Literal["always", "as_tokenizer", "as_tokenizer_or_prefix", "never"]


class Encode(Protocol):
    def __call__(self, texts: list[str], special: bool = False) -> list[list[int]]: ...


def load_tokenizer(folder_or_id: str, flag: str = "--tokenizer") -> Tokenizer:
    """A tokenizer from a Hugging Face folder or hub id.  Raises InputError, which names `flag`."""
    # transformers greets a machine without torch with a warning, once, while it is imported.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    remedy = (
        "name a folder that holds tokenizer.json and tokenizer_config.json, or a hub id that can "
        "be reached"
    )
    if folder_or_id.startswith(("/", ".", "~")) and not Path(folder_or_id).is_dir():
        raise InputError(f"{flag}={folder_or_id}: there is no such folder: {remedy}")
    try:
        tokenizer = _from_file(folder_or_id)
        _try_out(tokenizer)
        return tokenizer
    except (InputError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # A damaged file ends in whatever error its first use leads to; tokenizers' own panics are
        # no Exception.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{flag}={folder_or_id}: no tokenizer could be read ({reason:.200}): {remedy}"
        ) from error


def _built(folder_or_id: str) -> Tokenizer:
    """The tokenizer that transformers makes of a folder.

    It chooses the class by the kind of model, and refuses a config.json for any of its fields: then
    the kind alone is given, because a tokenizer hangs on no other field.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import CONFIG_MAPPING, AutoTokenizer, PretrainedConfig

    # Without it, transformers asks on the terminal whether to run the folder's own code.
    no_code = {"trust_remote_code": False}
    try:
        return AutoTokenizer.from_pretrained(folder_or_id, **no_code)
    except StrictDataclassError:
        fields, _ = PretrainedConfig.get_config_dict(folder_or_id)
        config = CONFIG_MAPPING[fields["model_type"]]()
        config.tokenizer_class = fields.get("tokenizer_class")
        config.name_or_path = folder_or_id
        return AutoTokenizer.from_pretrained(folder_or_id, config=config, **no_code)


def _from_file(folder_or_id: str) -> Tokenizer:
    """The tokenizer of tokenizer.json or of a SentencePiece model; the one that transformers makes,
    if there is no such file, or its class numbers the file's pieces otherwise."""
    import transformers

    path = _path_of(FILE, folder_or_id) or _sentencepiece_file(folder_or_id)
    file = Path(path).name if path else ""
    processor = _processor(path) if path and file != FILE else None
    try:
        built = _built(folder_or_id)
    except ValueError:
        if processor is None:
            raise
        # transformers' general class looks for no other name than tokenizer.model
        built = _general(folder_or_id, file)
    theirs = f"{type(built).__name__} of transformers {transformers.__version__}"
    tokenizer = built
    tokenizer.taken_from = theirs
    differences = list[str]()
    is_fast = getattr(built, "is_fast", False)
    if file and is_fast and not _renumbers(built, processor, file):
        if processor or type(built) is not transformers.PreTrainedTokenizerFast:
            tokenizer = _as_it_is(built, folder_or_id, file)
        differences += _difference(tokenizer, built, file)
        tokenizer.taken_from = f"{file}, unlike {theirs}" if differences else file
    if processor is not None:
        differences += _unlike(processor, tokenizer, file)
    tokenizer.unlike_transformers = "; ".join(differences)
    return tokenizer


def _as_it_is(built: Tokenizer, folder_or_id: str, file: str) -> Tokenizer:
    """The file's own tokenizer, with the special tokens of the class that transformers built."""
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    tokenizer = _general(folder_or_id, file)
    known = tokenizer.backend_tokenizer.token_to_id
    missing = {}
    for key, token in built.special_tokens_map.items():
        is_absent = key in SPECIAL_NAMES and getattr(tokenizer, key) is None
        if is_absent and known(str(token)) is not None:
            missing[key] = token
    if missing:
        tokenizer.add_special_tokens(missing)
    ends = _ends(built)
    if file == FILE:
        config = get_tokenizer_config(folder_or_id)
        ends = {name: added for name, added in ends.items() if config.get(name) is added}
    _put_ends(tokenizer, ends)
    return tokenizer


def _general(folder_or_id: str, file: str) -> Tokenizer:
    """What transformers' general class makes of the file."""
    from transformers import PreTrainedTokenizerFast

    if file == FILE:
        return PreTrainedTokenizerFast.from_pretrained(folder_or_id)

    named = {"vocab_files_names": {"vocab_file": file}}
    of_file = type("SentencePiece", (PreTrainedTokenizerFast,), named)
    # "legacy": false is meant for other classes; here it would change the dummy prefix
    return of_file.from_pretrained(folder_or_id, legacy=True)


def _path_of(name: str, folder_or_id: str) -> str | None:
    """Where the folder, or the cache of the hub, has the file."""
    from transformers.utils.hub import cached_file

    return cached_file(folder_or_id, name, _raise_exceptions_for_missing_entries=False)


def _sentencepiece_file(folder_or_id: str) -> str | None:
    """Where the SentencePiece model is; None: there is none, or the file is of another kind."""
    paths = (_path_of(name, folder_or_id) for name in SENTENCEPIECE)
    path = next(filter(None, paths), None)
    if path is None:
        return None
    with Path(path).open("rb") as file:
        return path if file.read(1) == b"\n" else None  # the tag of a model's first piece


def _processor(path: str) -> Processor:
    if find_spec("sentencepiece") is None:
        raise InputError(
            f"--tokenizer: {path} is a SentencePiece model, which wants pip install sentencepiece"
        )
    from sentencepiece import SentencePieceProcessor

    return SentencePieceProcessor(model_file=path)


def _renumbers(built: Tokenizer, processor: Processor | None, file: str) -> bool:
    """Whether the class has other ids for pieces of the model.  Raises InputError if it has read no
    others than those."""
    if processor is None:
        return False
    of_class = built.get_vocab()
    pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    if all(of_class.get(piece, i) == i for i, piece in enumerate(pieces)):
        return False
    if 2 * len(of_class.keys() & set(pieces)) < len(pieces):
        raise InputError(
            f"--tokenizer: {type(built).__name__} of transformers does not read {file}, and has "
            "other ids for its special tokens: put the tokenizer.json that it was saved with "
            f"beside it, or name it {SENTENCEPIECE[0]} if the model was trained with its own ids"
        )
    return True


def _unlike(processor: Processor, tokenizer: Tokenizer, file: str) -> list[str]:
    """A sentence if sentencepiece itself gives other tokens."""
    encoded = encoder(tokenizer)(list(SENTENCEPIECE_PROBES))
    pairs = zip(SENTENCEPIECE_PROBES, encoded, strict=True)
    differing = [text for text, ids in pairs if ids != processor.encode(text)]
    if not differing:
        return []
    return [
        f"sentencepiece itself gives other tokens than transformers' reading of {file} for "
        f"{len(differing)} of {len(SENTENCEPIECE_PROBES)} texts, the first {differing[0]!r}"
    ]


def _put_ends(tokenizer: Tokenizer, ends: Mapping[str, bool]) -> None:
    """Put BOS and EOS around texts, or leave them out."""
    has = _ends(tokenizer)
    wanted = has | dict(ends)
    if wanted != has:
        for name, is_added in wanted.items():
            setattr(tokenizer, name, is_added)


def _ends(tokenizer: Tokenizer) -> dict[str, bool]:
    [ids] = encoder(tokenizer)(["a"], True)
    return {
        "add_bos_token": ids[:1] == [tokenizer.bos_token_id],
        "add_eos_token": ids[-1:] == [tokenizer.eos_token_id],
    }


def _difference(tokenizer: Tokenizer, built: Tokenizer, file: str) -> list[str]:
    """A sentence if the class that transformers built gives other ids."""
    if tokenizer is built:
        return []
    added = [*map(str, tokenizer.added_tokens_decoder.values())][:PROBED_TOKENS]
    texts = [*PROBES, *(f"x {token} y" for token in added)]
    pairs = zip(texts, encoder(tokenizer)(texts, True), encoder(built)(texts, True), strict=True)
    differing = [(text, len(ids), len(other)) for text, ids, other in pairs if ids != other]
    if not differing:
        return []
    text, num_ids, num_other = differing[0]
    return [
        f"{file} is taken as it is: {type(built).__name__}, which transformers makes of it, gives "
        f"other tokens for {len(differing)} of {len(texts)} texts, the first {text!r} ({num_other} "
        f"tokens, {num_ids} by the file)"
    ]


def taken_from(tokenizer: Tokenizer) -> str:
    """Where the ids come from: tokenizer.json, a class of transformers, or an object that the user
    gave."""
    return getattr(tokenizer, "taken_from", f"a given {type(tokenizer).__name__}")


def unlike_transformers(tokenizer: Tokenizer) -> str:
    """How the ids differ from those of transformers' AutoTokenizer, in a sentence; "": they do
    not."""
    return getattr(tokenizer, "unlike_transformers", "")


def _try_out(tokenizer: Tokenizer) -> None:
    """Encode and decode a text, and check all token ids that a run reads, so that a damaged
    tokenizer fails before a run."""
    ids = tokenizer("A b1\n\u00e9")["input_ids"]
    tokenizer.decode(ids, skip_special_tokens=False)
    special = [
        token for token in (tokenizer.bos_token_id, tokenizer.eos_token_id) if token is not None
    ]
    for token in (*ids, *special, *tokenizer.all_special_ids, *tokenizer.get_vocab().values()):
        if not isinstance(token, int) or token < 0:
            raise ValueError(f"{token!r:.40} stands where a token id is expected")


def resolve_bos(tokenizer: Tokenizer) -> Bos:
    """The declared bos_token, else `<|bos|>` or `<|endoftext|>` of the vocabulary.  Raises
    InputError if there is none."""
    if tokenizer.bos_token_id is not None:
        return Bos(int(tokenizer.bos_token_id), f"declared {tokenizer.bos_token}")
    vocabulary = tokenizer.get_vocab()
    for token in ("<|bos|>", "<|endoftext|>"):
        if token in vocabulary:
            return Bos(int(vocabulary[token]), f"vocabulary {token}")
    raise InputError(
        "the tokenizer declares no bos_token and has neither <|bos|> nor <|endoftext|>, but each "
        "prompt begins with one: set bos_token in its tokenizer_config.json"
    )


@lru_cache(maxsize=1)
def reading_names_as_text(tokenizer: Tokenizer) -> Tokenizer:
    """A copy to which the names of special tokens in a text are plain text; it still puts its own
    around a text."""
    copied = copy.deepcopy(tokenizer)
    copied.split_special_tokens = True
    if getattr(copied, "is_fast", False):
        copied.backend_tokenizer.encode_special_tokens = True
    return copied


def reads_names_as_text(tokenizer: Tokenizer) -> bool:
    return bool(getattr(tokenizer, "split_special_tokens", False))


def special_names_in(tokenizer: Tokenizer, texts: Iterable[Iterable[str]]) -> dict[str, int]:
    """Names of special tokens -> how many of the rows (each is some texts) hold them; without those
    that none holds."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    names = {
        *getattr(tokenizer, "all_special_tokens", ()),
        *(token.content for token in added if token.special),
    } - {""}
    if reads_names_as_text(tokenizer):  # a Unigram model has some of them among its pieces
        encoded = zip(names, encoder(tokenizer)(list(names)), strict=True)
        names = {name for name, ids in encoded if tokenizer.convert_tokens_to_ids(name) in ids}
    if not names:
        return {}
    names_in = _finder(names)
    counts = Counter[str]()
    for row in texts:
        counts.update(set(chain(*map(names_in, row))))
    return dict(sorted(counts.items()))


def _finder(names: Collection[str]) -> Callable[[str], Iterator[str]]:
    """A function from a text to the names in it, the longest at each place and none inside another.

    One pattern of all names takes 5 s a megabyte of code with the 6,000 names of a Gemma.  So the
    few ways in which names begin are looked for, and what follows them is looked up.
    """
    size = min(4, min(map(len, names)))
    lengths: dict[str, list[int]] = {}  # beginning -> lengths of its names, longest first
    for length, beginning in sorted({(len(name), name[:size]) for name in names}, reverse=True):
        lengths.setdefault(beginning, []).append(length)
    begins = re.compile(f"(?=({'|'.join(map(re.escape, lengths))}))", re.DOTALL)

    def names_in(text: str) -> Iterator[str]:
        end = 0
        for match in begins.finditer(text):
            at = match.start()
            if at < end:
                continue
            candidates = (text[at : at + length] for length in lengths[match[1]])
            name = next((each for each in candidates if each in names), None)
            if name is not None:
                end = at + len(name)
                yield name

    return names_in


def special_tokens(tokenizer: Tokenizer) -> Special:
    """The tokens that the tokenizer puts around every text."""
    with_specials = tokenizer("a")["input_ids"]
    alone = tokenizer("a", add_special_tokens=False)["input_ids"]
    starts = range(len(with_specials)) if alone else ()
    start = next((i for i in starts if with_specials[i : i + len(alone)] == alone), None)
    if start is None:
        raise InputError(
            f"the tokenizer makes {with_specials} of 'a' with special tokens and {alone} without, "
            "expected the same tokens between them: name another with --tokenizer"
        )
    try:
        empty = (resolve_bos(tokenizer).id,)
    except InputError:
        empty = ()
    return Special(tuple(with_specials[:start]), tuple(with_specials[start + len(alone) :]), empty)


def first_tokens(bos: BosRule, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The special tokens before a text that is tokenized as one, by the profile's rule.

    always: BOS.  never: none.  as_tokenizer: what the tokenizer puts there.
    as_tokenizer_or_prefix: likewise, and `bos_or_eos` where the context is empty and the tokenizer
    puts nothing there (pairs.text_tokens).
    """
    if bos in ("as_tokenizer", "as_tokenizer_or_prefix"):
        return special_tokens(tokenizer).before
    if bos == "never":
        return ()
    return (resolve_bos(tokenizer).id,)


def bos_or_eos(tokenizer: Tokenizer) -> int | None:
    """What stands in place of an empty context; None: the tokenizer has neither."""
    known = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    return next((token for token in known if token is not None), None)


def prefix_token(tokenizer: Tokenizer) -> int:
    """`bos_or_eos`.  Raises InputError if there is neither."""
    token = bos_or_eos(tokenizer)
    if token is None:
        raise InputError(
            "the tokenizer has neither BOS nor EOS, one of which stands before a text without a "
            "context"
        )
    return token


def longest_answer(texts: Sequence[str], tokenizer: Tokenizer) -> int:
    """Number of tokens of the longest text, special tokens around it included."""
    return max(map(len, encoder(tokenizer)(list(texts), True)), default=0)


def writes_space_into_words(tokenizer: Tokenizer) -> bool:
    """Whether " a" is one token: composer's test for tokenizers that join a space and the word
    after it."""
    return len(tokenizer(" a", add_special_tokens=False)["input_ids"]) == 1


def encoder(tokenizer: Tokenizer) -> Encode:
    """Texts -> token ids; `special`: with the tokens that the tokenizer puts around a text."""
    if not getattr(tokenizer, "is_fast", False):
        return lambda texts, special=False: tokenizer(
            texts, add_special_tokens=special, verbose=False
        )["input_ids"]
    backend = tokenizer.backend_tokenizer
    # a tokenizer.json may ask for either; transformers resets both on each of its own calls too
    backend.no_truncation()
    backend.no_padding()
    # encode_batch_fast leaves character offsets out and runs on all cores
    # (TOKENIZERS_PARALLELISM=false: on one).
    return lambda texts, special=False: [
        e.ids for e in backend.encode_batch_fast(texts, add_special_tokens=special)
    ]


def encode_each(encode: Encode, texts: list[str], special: bool = False) -> list[np.ndarray]:
    """The tokens of each text; equal texts are tokenized once."""
    unique = list(dict.fromkeys(texts))
    encoded = dict[str, np.ndarray]()
    for start in range(0, len(unique), TEXTS_AT_ONCE):
        batch = unique[start : start + TEXTS_AT_ONCE]
        arrays = (np.array(ids, np.int32) for ids in encode(batch, special))
        encoded |= zip(batch, arrays, strict=True)
    return [encoded[text] for text in texts]
