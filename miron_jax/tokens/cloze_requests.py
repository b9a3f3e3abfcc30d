"""Cloze items + tokenizer -> Requests, several an item, and what each is for.  The card's span and the safe one live here.

Arrives: `Cloze` items.  Leaves: `Requests` and one `Asked` an item.  It deliberately does not know models or scores.

A target's first token may hold the end of its prefix.  The prefix "no wug" and the target "s" as one text:

    tokens      no   _wu   gs          token_bytes.py tells where each ends: 2, 5, 7; the prefix ends at 6
    card        len(tokenizer(prefix)) = 3 tokens come before its target: nothing is left, its formula gives 0.0
    safe        scored: gs, the only token that ends in the target; healed by "g", the prefix's part of it:
                log p(gs) - log sum of p(v) over all tokens v that may stand where a text goes on with "g"
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from miron_jax.definitions.records import Cloze, ClozeProfile
from miron_jax.errors import InputError
from miron_jax.ragged import end_to_end
from miron_jax.tokens.records import Requests, Special
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import Tokenizer, special_tokens

LONGEST_SEGMENTED = 12  # characters of a target whose other tokenizations are scored


@dataclass(frozen=True, slots=True)
class Asked:
    """One item's requests, by their place among all of them.  None: there is none."""

    target: int | None  # None: the tokenizer cannot spell the item
    card: int | None  # None: the card's formula gives 0.0 without asking the model
    unprefixed: int | None
    clean: int | None
    distractors: tuple[int | None, ...]
    segmentations: tuple[int, ...]  # others than the target's own
    segmented: bool  # others were looked for
    prompt: tuple[int, ...]  # what a text is generated from
    prompt_cut: bool  # it lost tokens to the length limit
    num_tokens: int  # scored tokens of the target
    num_prefix_tokens: int
    num_clean_tokens: int  # 0 where the item has no clean prefix
    added_tokens: int  # places that the other segmentations add to the forest
    bos_added: (
        bool  # its first token stands at the text's beginning: a BOS that the tokenizer does not put is its context
    )
    seam: bool  # a token holds the end of the prefix and the beginning of the target
    regress: bool  # the prefix alone has other tokens than in front of the target


class ClozeRequests(NamedTuple):
    requests: Requests
    asked: list[Asked]


class _Spelled(NamedTuple):
    """A text cut where its target begins."""

    ids: tuple[int, ...]  # specials before it included
    span_start: int  # first token that ends in the target
    held: bytes  # what that token holds of the prefix

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
    texts = sorted({text for item in items for text in _texts(item)})
    encoded = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"] if texts else []
    desk = _Desk(special_tokens(tokenizer), table, dict(zip(texts, map(tuple, encoded), strict=True)), max_length)
    asked = [desk.ask(item, profile, f"{task_name}, item {item.name} (row {item.row})") for item in items]
    return ClozeRequests(desk.requests(), asked)


def _texts(item: Cloze) -> list[str]:
    beginnings = [item.prefix] if item.clean_prefix is None else [item.prefix, item.clean_prefix]
    ends = [item.target, *item.distractors]
    return [*beginnings, *(item.prefix + end for end in ends), *(start + item.target for start in beginnings)]


class _Desk:
    """Takes items one after another and keeps what they ask, each question once."""

    def __init__(self, special: Special, table: TokenBytes, ids: dict[str, tuple[int, ...]], max_length: int | None):
        self.special, self.table, self.ids, self.max_length = special, table, ids, max_length
        self._place: dict[tuple[tuple[int, ...], int, int], int] = {}
        self._cut: list[bool] = []

    def requests(self) -> Requests:
        return Requests(
            *end_to_end([ids for ids, _, _ in self._place]),
            span_start=np.asarray([start for _, start, _ in self._place], np.int32),
            truncated=np.asarray(self._cut, bool),
            inexact_prefix=np.zeros(len(self._place), bool),
            id_set=np.asarray([own for _, _, own in self._place], np.int32),
        )

    def ask(self, item: Cloze, profile: ClozeProfile, where: str) -> Asked:
        spelled = self._spell(item.prefix, item.target)
        clean = None if item.clean_prefix is None else self._spell(item.clean_prefix, item.target)
        if spelled is None or (item.clean_prefix is not None and clean is None):
            return _not_asked(item)
        scored, empty = spelled.scored, self.special.empty
        prefix_ids = self.ids[item.prefix]
        inside = spelled.ids[len(self.special.before) : spelled.span_start]
        own, others = tuple(scored), ()
        segmented = not spelled.held and len(item.target) <= LONGEST_SEGMENTED
        if segmented:
            bytes_of_scored = b"".join(self.table.of[i] or b"" for i in own)
            every = map(tuple, self.table.segmentations(bytes_of_scored, profile.num_segmentations))
            fitting = (way for way in every if way != own and (not self.max_length or len(way) < self.max_length))
            others = tuple(fitting)[: profile.num_segmentations - 1]
        context = spelled.ids[: spelled.span_start]
        alone = _Spelled((*empty, *scored), len(empty), spelled.held)
        distractors = [self._spell(item.prefix, other) for other in item.distractors]
        prompt = (*self.special.before, *prefix_ids) or empty
        room = len(prompt) if self.max_length is None else self.max_length - len(scored) - profile.extra_tokens
        cut = min(max(0, len(prompt) - room), len(prompt) - 1)
        return Asked(
            target=self._add(spelled, where),
            card=self._add_card(item, where),
            unprefixed=self._add(alone, where) if empty else None,
            clean=None if clean is None else self._add(clean, where),
            distractors=tuple(None if other is None else self._add(other, where) for other in distractors),
            segmentations=tuple(self._add(_Spelled((*context, *way), len(context), b""), where) for way in others),
            segmented=segmented,
            prompt=prompt[cut:],
            prompt_cut=cut > 0,
            num_tokens=len(scored),
            num_prefix_tokens=len(prefix_ids),
            num_clean_tokens=0 if item.clean_prefix is None else len(self.ids[item.clean_prefix]),
            added_tokens=_places_added(own, others),
            seam=bool(spelled.held),
            bos_added=not self.special.before
            and spelled.ids[: len(empty)] == empty
            and spelled.span_start == len(empty),
            regress=inside != prefix_ids[: len(inside)],
        )

    def _spell(self, prefix: str, target: str) -> _Spelled | None:
        text, before = prefix + target, self.special.before
        ids, seam = self.ids[text], len(prefix.encode())
        ends = self.table.ends(ids, text)
        if ends is None or not len(ids):
            return None
        first = int(np.searchsorted(ends, seam, side="right"))
        spelled = b"".join(self.table.of[i] or b"" for i in ids)
        added = len(spelled) - len(text.encode())  # 1 where the tokenizer put a space before the text
        start = int(ends[first - 1]) if first else -added
        held = spelled[start + added : seam + added] if prefix else b""
        context = before if before or first else self.special.empty
        return _Spelled((*context, *ids), len(context) + first, held)

    def _add_card(self, item: Cloze, where: str) -> int | None:
        before, after = self.special.before, self.special.after
        whole = (*before, *self.ids[item.prefix + item.target], *after)
        num_before = len(before) + len(self.ids[item.prefix]) + len(after)
        if not 0 < num_before < len(whole):  # of a text without any token before it the card's own code makes an error
            return None
        return self._add(_Spelled(whole, num_before, b""), where)

    def _add(self, spelled: _Spelled, where: str) -> int:
        ids, start = spelled.ids, spelled.span_start
        cut = 0 if self.max_length is None else max(0, len(ids) - self.max_length)
        if start < 1:
            raise InputError(
                f"{where}: no token stands before its target, and the vocabulary has no BOS to put there, so its first "
                "token cannot be scored: give the item a prefix, or the tokenizer a bos_token"
            )
        if start - cut < 1:
            raise InputError(
                f"{where}: its target has {len(ids) - start} tokens and needs one more before it, but the length limit is "
                f"{self.max_length}: raise --max_length, or remove the item"
            )
        id_set = self.table.id_set(spelled.held) if spelled.held else -1
        place = self._place.setdefault((ids[cut:], start - cut, id_set), len(self._place))
        if place == len(self._cut):
            self._cut.append(cut > 0)
        return place


def _not_asked(item: Cloze) -> Asked:
    """The tokenizer has no tokens that spell the item: it is counted, and not scored."""
    nothing = (None,) * len(item.distractors)
    return Asked(None, None, None, None, nothing, (), False, (), False, 0, 0, 0, 0, False, False, False)


def _places_added(own: tuple[int, ...], others: Sequence[tuple[int, ...]]) -> int:
    """Places that segmentations take in the forest beside the target's own: beginnings that go on."""
    inner = {way[:n] for way in others for n in range(1, len(way))}
    return len(inner - {own[:n] for n in range(1, len(own))})
