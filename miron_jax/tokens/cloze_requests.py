"""Cloze items + tokenizer -> several requests per item, by the card's span rule and by a safe one.

Arrives: `Cloze` items.  Leaves: `Requests` and one `ItemRequests` per item.  It deliberately does
not know models or scores.

The first token of a target may hold the end of its prefix.  The prefix "no wug" and the target "s"
as one text:

    tokens      no   _wu   gs          end at 2, 5, 7 (token_bytes.py); the prefix ends at 6
    card        len(tokenizer(prefix)) = 3 tokens come before its target: none is left to score, and
                its formula gives 0.0
    safe        scored: gs, the only token that ends in the target; healed by "g", which belongs to
                the prefix:
                log p(gs) - log sum of p(v) over all tokens v that may come next in a text that
                continues with "g"
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from miron_jax.definitions.records import Cloze, ClozeProfile
from miron_jax.errors import InputError
from miron_jax.tokens.ragged import end_to_end
from miron_jax.tokens.records import Requests, Special
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import Tokenizer, special_tokens
from miron_jax.tokens.truncation import num_cut

LONGEST_SEGMENTED = 12  # characters of a target whose other tokenizations are scored


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRequests:
    """One item's requests, as indices into all requests; None: the item has no such request."""

    target: int | None = None  # None: the tokenizer cannot spell the item
    card: int | None = None  # None: the card's formula gives 0.0 whatever the model says
    unprefixed: int | None = None
    clean: int | None = None
    distractors: tuple[int | None, ...]
    segmentations: tuple[int, ...] = ()  # other tokenizations of the target
    segmented: bool = False  # other tokenizations were searched
    prompt: tuple[int, ...] = ()  # to generate from
    prompt_cut: bool = False  # the prompt lost tokens to the length limit
    num_tokens: int = 0  # scored tokens of the target
    num_prefix_tokens: int = 0
    num_clean_tokens: int = 0  # 0: the item has no clean prefix
    added_tokens: int = 0  # nodes that the other tokenizations add to the forest
    # the context of the target is a BOS that the tokenizer itself does not add
    bos_added: bool = False
    seam: bool = False  # a token holds the end of the prefix and the beginning of the target
    regress: bool = False  # the prefix alone has other tokens than before the target


class ClozeRequests(NamedTuple):
    """The distinct requests of a task's items."""

    requests: Requests
    by_item: list[ItemRequests]


class _Spelled(NamedTuple):
    """A tokenized text and its scored span."""

    ids: tuple[int, ...]  # special tokens before it included
    span_start: int  # first token that ends in the target
    held: bytes  # the end of the prefix that this token holds

    @property
    def context(self) -> tuple[int, ...]:
        return self.ids[: self.span_start]

    @property
    def scored(self) -> tuple[int, ...]:
        return self.ids[self.span_start :]


def cloze_requests(
    items: Sequence[Cloze],
    profile: ClozeProfile,
    tokenizer: Tokenizer,
    table: TokenBytes,
    max_length: int | None,
    task_name: str,
) -> ClozeRequests:
    """Raises InputError for an item without a token before its target."""
    texts = sorted(set(chain(*map(_texts, items))))
    ids = dict[str, tuple[int, ...]]()
    if texts:
        encoded = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        ids |= zip(texts, map(tuple, encoded), strict=True)
    special = special_tokens(tokenizer)
    if profile.chat:
        special = special._replace(before=(), after=())
    builder = _Builder(special, table, ids, max_length, bool(profile.chat))
    by_item = []
    for item in items:
        by_item.append(
            builder.add_item(item, profile, f"{task_name}, item {item.name} (row {item.row})")
        )
    return ClozeRequests(builder.requests(), by_item)


def _texts(item: Cloze) -> Iterator[str]:
    yield item.prefix
    for end in (item.target, *item.distractors):
        yield item.prefix + end
    if item.clean_prefix is not None:
        yield item.clean_prefix
        yield item.clean_prefix + item.target


class _Builder:
    """Collects the requests of items, equal ones once."""

    def __init__(
        self,
        special: Special,
        table: TokenBytes,
        ids: dict[str, tuple[int, ...]],
        max_length: int | None,
        is_chat: bool,
    ):
        self.is_chat = is_chat  # no token holds both a prefix and its target
        self.special = special
        self.table = table
        self.ids = ids
        self.max_length = max_length
        # token ids, span start, id set -> index
        self._idx: dict[tuple[tuple[int, ...], int, int], int] = {}
        self._truncated: list[bool] = []

    def requests(self) -> Requests:
        return Requests(
            *end_to_end([ids for ids, _, _ in self._idx]),
            span_start=np.asarray([start for _, start, _ in self._idx], np.int32),
            truncated=np.asarray(self._truncated, bool),
            inexact_prefix=np.zeros(len(self._idx), bool),
            id_set=np.asarray([id_set for _, _, id_set in self._idx], np.int32),
        )

    def add_item(self, item: Cloze, profile: ClozeProfile, name: str) -> ItemRequests:
        spelled = self._spell(item.prefix, item.target)
        clean = None
        if item.clean_prefix is not None:
            clean = self._spell(item.clean_prefix, item.target)
        if spelled is None or (item.clean_prefix is not None and clean is None):
            return ItemRequests(distractors=(None,) * len(item.distractors))
        scored = spelled.scored
        before = self.special.before
        empty = self.special.empty
        prefix_ids = self.ids[item.prefix]
        inside = spelled.context[len(before) :]
        segmented = not spelled.held and len(item.target) <= LONGEST_SEGMENTED
        others = self._other_tokenizations(scored, profile) if segmented else []
        distractors = [self._spell(item.prefix, other) for other in item.distractors]
        prompt = (*before, *prefix_ids) or empty
        cut = self._num_cut(len(prompt), len(scored) + profile.extra_tokens)
        return ItemRequests(
            target=self._add(spelled, name),
            card=self._add_card(item, name),
            unprefixed=self._add(_spelled(empty, scored, spelled.held), name) if empty else None,
            clean=clean and self._add(clean, name),
            distractors=tuple(other and self._add(other, name) for other in distractors),
            segmentations=tuple(self._add(_spelled(spelled.context, way), name) for way in others),
            segmented=segmented,
            prompt=prompt[cut:],
            prompt_cut=cut > 0,
            num_tokens=len(scored),
            num_prefix_tokens=len(prefix_ids),
            num_clean_tokens=0 if item.clean_prefix is None else len(self.ids[item.clean_prefix]),
            added_tokens=_nodes_added(scored, others),
            seam=bool(spelled.held),
            bos_added=not before and spelled.context == empty,
            regress=inside != prefix_ids[: len(inside)],
        )

    def _other_tokenizations(
        self, scored: tuple[int, ...], profile: ClozeProfile
    ) -> list[tuple[int, ...]]:
        """Those of the target's bytes that fit, the shortest first."""
        target_bytes = b"".join(self.table.of[i] or b"" for i in scored)
        ways = map(tuple, self.table.segmentations(target_bytes, profile.num_segmentations))
        most = self.max_length or math.inf
        fitting = [way for way in ways if way != scored and len(way) < most]
        return fitting[: profile.num_segmentations - 1]

    def _num_cut(self, prompt_len: int, completion_len: int) -> int:
        """Tokens that a prompt loses so that its completion has room; one token stays."""
        return min(num_cut(prompt_len + completion_len, self.max_length), prompt_len - 1)

    def _spell(self, prefix: str, target: str) -> _Spelled | None:
        text = prefix + target
        before = self.special.before
        ids = self.ids[text]
        if self.is_chat:
            return _spelled(self.ids[prefix], ids[len(self.ids[prefix]) :])
        seam = len(prefix.encode())
        ends = self.table.ends(ids, text)
        if ends is None or not len(ids):
            return None
        first = int(np.searchsorted(ends, seam, side="right"))
        spelled = b"".join(self.table.of[i] or b"" for i in ids)
        added = len(spelled) - len(text.encode())  # 1: the tokenizer put a space before the text
        start = int(ends[first - 1]) if first else -added
        held = spelled[start + added : seam + added] if prefix else b""
        context = before if before or first else self.special.empty
        return _Spelled((*context, *ids), len(context) + first, held)

    def _add_card(self, item: Cloze, name: str) -> int | None:
        before = self.special.before
        after = self.special.after
        whole = (*before, *self.ids[item.prefix + item.target], *after)
        num_before = len(before) + len(self.ids[item.prefix]) + len(after)
        # the card's own code raises an error if no token comes before the target
        if not 0 < num_before < len(whole):
            return None
        return self._add(_Spelled(whole, num_before, b""), name)

    def _add(self, spelled: _Spelled, name: str) -> int:
        ids = spelled.ids
        start = spelled.span_start
        cut = num_cut(len(ids), self.max_length)
        if start < 1:
            raise InputError(
                f"{name}: no token stands before its target, and the vocabulary has no BOS to put "
                "there, so its first token cannot be scored: give the item a prefix, or the "
                "tokenizer a bos_token"
            )
        if start - cut < 1:
            raise InputError(
                f"{name}: its target has {len(ids) - start} tokens and needs one more before it, "
                f"but the length limit is {self.max_length}: raise --max_length, or remove the item"
            )
        id_set = self.table.id_set(spelled.held) if spelled.held else -1
        idx = self._idx.setdefault((ids[cut:], start - cut, id_set), len(self._idx))
        if idx == len(self._truncated):
            self._truncated.append(cut > 0)
        return idx


def _spelled(context: tuple[int, ...], scored: tuple[int, ...], held: bytes = b"") -> _Spelled:
    return _Spelled((*context, *scored), len(context), held)


def _nodes_added(target: tuple[int, ...], others: Sequence[tuple[int, ...]]) -> int:
    """Nodes of the forest for other tokenizations of a target that its own tokenization does not
    have."""
    inner = {way[:n] for way in others for n in range(1, len(way))}
    return len(inner - {target[:n] for n in range(1, len(target))})
