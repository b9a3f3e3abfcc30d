"""MIRON's card in plain torch: its formulas, healed spans and ranks item by item, and its loop over
batches of items.

Arrives: a model folder, `Cloze` items, the number of tokens to generate for each.  Leaves:
`TwinScores`, `PeerRun`, and verdicts on numbers that differ from torch's.  It deliberately does not
know how this engine computes its own.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from agreement import Verdicts
from peers import EOS, PlainTorch, plain_greedy

from miron_jax.definitions.records import Cloze, ClozeProfile
from miron_jax.engine.text_requests import TextRequest
from miron_jax.evaluation.records import Inputs
from miron_jax.metrics.cloze import lev_score
from miron_jax.model.checkpoints.hf_config import eos_token_ids
from miron_jax.model.checkpoints.hf_reader import resolve_model
from miron_jax.tokens.cloze_requests import ItemRequests
from miron_jax.tokens.tokenizers import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import StoppingCriteria

TOLERANCE = 1e-3  # what a number may differ by
TIE = 1e-4  # nats between two logits that count as equal


def sampled_evenly(inputs: Inputs, count: int) -> Inputs:
    """About `count` items of each suite, as many of every language and category, spread over each
    one's items."""
    cloze = [source for source in inputs.sources if source.task.kind == "cloze"]
    num_groups = sum(len({item.category for item in source.examples}) for source in cloze) // len(
        inputs.suites
    )
    each = math.ceil(count / num_groups)
    return inputs._replace(
        sources=[source._replace(examples=_spread(source.examples, each)) for source in cloze]
    )


def _spread(items: Sequence[Cloze], each: int) -> list[Cloze]:
    chosen = []
    for _, members in groupby(items, key=lambda item: item.category):
        group = list(members)
        count, step = min(each, len(group)), max(1, len(group) // each)
        # i % step: operators of noise come in turn, and every step-th item might have the same one.
        chosen += [group[i * len(group) // count + i % step] for i in range(count)]
    return chosen


def text_requests(profile: ClozeProfile, asked: Sequence[ItemRequests]) -> list[TextRequest]:
    """The texts that `miron_jax.evaluation.run` generates for these items."""
    return [
        TextRequest(item.prompt, item.num_tokens + profile.extra_tokens, (profile.stop,))
        for item in asked
        if item.target is not None
    ]


@dataclass
class Twin:
    """The model and tokenizer that the card's formulas are computed with."""

    torch: PlainTorch
    tokenizer: Tokenizer
    ends: tuple[int, ...]  # tokens that end a text
    pieces: list[bytes]  # bytes of every token, b"" for special ones
    # tokens that begin with it or that it begins with
    agreeing: dict[bytes, list[int]] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: str) -> "Twin":
        path = str(resolve_model(folder))
        tokenizer = load_tokenizer(path)
        return cls(
            PlainTorch.load(path, "float32"),
            tokenizer,
            eos_token_ids(path),
            bytes_of_pieces(tokenizer),
        )

    def token_ids(self, text: str) -> list[int]:
        return self.tokenizer(text)["input_ids"]

    def text_of(self, prompt: Sequence[int], new: Sequence[int]) -> str:
        """What the new tokens add to the prompt's text, up to the first newline; unfinished bytes
        end it as one U+FFFD."""
        kept = new[: new.index(EOS)] if EOS in new else new
        before, whole = (
            self.tokenizer.decode(
                ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
            for ids in ([*prompt], [*prompt, *kept])
        )
        text = whole[len(before) :]
        return (text.rstrip("\ufffd") + "\ufffd" if text.endswith("\ufffd") else text).partition(
            "\n"
        )[0]

    def compare_texts(
        self, label: str, item: Cloze, ours: "Completion", theirs: "Completion"
    ) -> tuple[bool, str]:
        """(whether two unlike completions part where torch's logits tie, a line that says so)."""
        nats = self.torch.logit_gap(self.token_ids(item.prefix), ours.new, theirs.new, self.ends)
        gap = "of the same tokens" if math.isinf(nats) else f"{nats:.1e} nats apart where they part"
        return nats <= TIE, f"{label}: {ours.text!r} here, {theirs.text!r} in torch, {gap}"


class Completion(NamedTuple):
    text: str
    new: list[int]  # its tokens, EOS at the end


def bytes_of_pieces(tokenizer: Tokenizer) -> list[bytes]:
    """Bytes of every token, by transformers' own table of byte-level characters or SentencePiece's
    marks."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
    byte_level = "ByteLevel" in str(tokenizer.backend_tokenizer.decoder)

    def piece_bytes(piece: str) -> bytes:
        if byte_level:
            return (
                bytes(byte_of[c] for c in piece)
                if all(c in byte_of for c in piece)
                else piece.encode()
            )
        single = len(piece) == 6 and piece[:3] == "<0x" and piece[5] == ">"
        return bytes.fromhex(piece[3:5]) if single else piece.replace("\u2581", " ").encode()

    pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = set(tokenizer.all_special_ids)
    return [b"" if i in special else piece_bytes(piece) for i, piece in enumerate(pieces)]


class RankBounds(NamedTuple):
    """How many tokens rank ahead of one: by torch's logits, and the least and the most that near
    ties allow."""

    rank: int
    least: int
    most: int


class TwinScores(NamedTuple):
    target_confidence: float
    logprob: float  # nats, healed
    # of the tokens that `logprob` sums; empty when the first of them crosses the seam
    ranks: list[RankBounds]


def score(twin: Twin, item: Cloze) -> TwinScores:
    """One forward of prefix and target; the card's tokens and the healed span are both read from
    it."""
    whole = twin.token_ids(item.prefix + item.target)
    with twin.torch.torch.inference_mode():
        logits_TV = twin.torch.logits([np.asarray(whole)])[0].double()
    span, prefix_bytes = healed_span(twin, item, whole)
    return TwinScores(
        card_confidence(twin.torch.torch, logits_TV, whole, len(twin.token_ids(item.prefix))),
        healed_logprob(twin, logits_TV, whole, span, prefix_bytes),
        [] if prefix_bytes else [rank_bounds(logits_TV[i - 1], whole[i]) for i in span],
    )


def card_confidence(
    torch: ModuleType, logits_TV: "Tensor", whole: Sequence[int], count: int
) -> float:
    """The card's formula: geometric mean of p over what follows `count` tokens, in percent."""
    if len(whole) - count <= 0:
        return 0.0
    logprob_NV = torch.log_softmax(logits_TV[count - 1 : len(whole) - 1], dim=-1)
    target_N1 = torch.tensor(whole[count:], device=logits_TV.device)[:, None]
    return 100 * math.exp(float(logprob_NV.gather(1, target_N1).mean()))


def healed_span(twin: Twin, item: Cloze, whole: Sequence[int]) -> tuple[range, bytes]:
    """(indices of the tokens that end in the target, the bytes of the prefix that the first of them
    contains)."""
    offsets = twin.tokenizer(item.prefix + item.target, return_offsets_mapping=True)[
        "offset_mapping"
    ]
    scored = [i for i, (_, end) in enumerate(offsets) if end > len(item.prefix)]
    spelled = b"".join(twin.pieces[i] for i in whole[scored[0] : scored[-1] + 1])
    return range(scored[0], scored[-1] + 1), spelled[: len(spelled) - len(item.target.encode())]


def healed_logprob(
    twin: Twin, logits_TV: "Tensor", whole: Sequence[int], span: range, prefix_bytes: bytes
) -> float:
    """log p of these tokens, less that of all tokens of the vocabulary that agree with
    `prefix_bytes`."""
    logprob_NV = twin.torch.torch.log_softmax(logits_TV[span[0] - 1 : span[-1]], dim=-1)
    total = sum(float(logprob_NV[n, whole[i]]) for n, i in enumerate(span))
    if not prefix_bytes:
        return total
    if prefix_bytes not in twin.agreeing:
        twin.agreeing[prefix_bytes] = [
            i
            for i, piece in enumerate(twin.pieces)
            if piece and (piece.startswith(prefix_bytes) or prefix_bytes.startswith(piece))
        ]
    return total - float(logprob_NV[0, twin.agreeing[prefix_bytes]].logsumexp(0))


def rank_bounds(logits_V: "Tensor", token: int) -> RankBounds:
    logit = logits_V[token]
    ahead = ((logits_V > logit), (logits_V > logit + TIE), (logits_V >= logit - TIE))
    rank, least, most = (int(mask_V.sum()) for mask_V in ahead)
    return RankBounds(rank, least, most - 1)


class Disputed(NamedTuple):
    """A number that differs from torch's float32 by more than the tolerance."""

    label: str  # task and item
    item: Cloze
    number: str  # a field of TwinScores
    ours: float
    theirs: float


def judge(disputed: Sequence[Disputed], twin: Twin) -> Verdicts:
    """Compute disputed numbers again with torch in float64, to which the model is converted in
    place."""
    verdicts = Verdicts([], [])
    if disputed:
        twin.torch.model.double()
    for label, item, number, ours, theirs in disputed:
        truth = getattr(score(twin, item), number)
        line = f"{label}: {number} {ours:.5f} here, {theirs:.5f} in torch, {truth:.5f} in float64"
        rounding = abs(ours - truth) <= min(TOLERANCE, abs(theirs - truth))
        (verdicts.torch_rounding if rounding else verdicts.wrong).append(line)
    return verdicts


# The card's loop


class Answer(NamedTuple):
    """The card's two numbers for one item."""

    confidence: float
    lev: float
    completion: Completion


class Row(NamedTuple):
    """One item as the card tokenizes it."""

    prompt: list[int]
    whole: list[int]
    max_new_tokens: int

    @property
    def num_scored(self) -> int:
        return max(0, len(self.whole) - len(self.prompt))


class PeerRun(NamedTuple):
    """One run of the loop over the sample."""

    batch_size: int
    seconds: float
    score_seconds: float
    padding: float  # of the scored rows, percent
    answers: list[Answer]

    def seconds_padded_as(self, lengths: Sequence[int]) -> float:
        """Seconds at the padding of rows of these lengths: of more rows, those that share a batch
        are more alike."""
        return self.seconds * (100 + padding_of(lengths, self.batch_size)) / (100 + self.padding)


class CardLoop:
    def __init__(self, twin: Twin):
        self.twin, self.torch, self.model = twin, twin.torch.torch, twin.torch.model
        self.ends_line_V = self.torch.zeros(
            self.model.get_input_embeddings().num_embeddings, dtype=self.torch.bool
        )
        self.ends_line_V[[i for i, piece in enumerate(twin.pieces) if b"\n" in piece]] = True

    def run(
        self, items: Sequence[Cloze], max_new_tokens: Sequence[int], batch_size: int
    ) -> PeerRun:
        start = time.perf_counter()
        rows = [
            Row(
                self.twin.token_ids(item.prefix),
                self.twin.token_ids(item.prefix + item.target),
                most,
            )
            for item, most in zip(items, max_new_tokens, strict=True)
        ]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].whole))
        confidence: dict[int, float] = {}
        for batch in slices(order, batch_size):
            confidence.update(zip(batch, self._confidences([rows[i] for i in batch]), strict=True))
        score_seconds = time.perf_counter() - start
        new: dict[int, list[int]] = {}
        for batch in slices(
            sorted(order, key=lambda i: (rows[i].max_new_tokens, len(rows[i].prompt))), batch_size
        ):
            new.update(zip(batch, self._generated([rows[i] for i in batch]), strict=True))
        texts = [self.twin.text_of(row.prompt, new[i]) for i, row in enumerate(rows)]
        answers = [
            Answer(confidence[i], lev_score(text, item.target), Completion(text, new[i]))
            for i, (item, text) in enumerate(zip(items, texts, strict=True))
        ]
        seconds = time.perf_counter() - start
        return PeerRun(
            batch_size,
            seconds,
            score_seconds,
            padding_of([len(row.whole) for row in rows], batch_size),
            answers,
        )

    def _confidences(self, rows: Sequence[Row]) -> list[float]:
        """One forward.  A batch computes logits from its first target on; a single row all of them,
        as the card does."""
        ids_BT, mask_BT = self.twin.torch.left_padded([row.whole for row in rows])
        num_logits = max(row.num_scored for row in rows) + 1 if len(rows) > 1 else 0
        position_BT = (mask_BT.cumsum(1) - 1).clamp(min=0)
        with self.torch.inference_mode():
            logits_BKV = self.model(
                ids_BT,
                attention_mask=mask_BT,
                position_ids=position_BT,
                use_cache=False,
                logits_to_keep=num_logits,
            ).logits
            return [
                card_confidence(
                    self.torch,
                    logits_KV[-1 - row.num_scored :],
                    row.whole[-1 - row.num_scored :],
                    1,
                )
                for row, logits_KV in zip(rows, logits_BKV, strict=True)
            ]

    def _generated(self, rows: Sequence[Row]) -> list[list[int]]:
        """New tokens of one HF generate, at most `max_new_tokens` of each row; padding follows a
        row's end."""
        ids_BT, mask_BT = self.twin.torch.left_padded([row.prompt for row in rows])
        longest, limits = ids_BT.shape[1], [row.max_new_tokens for row in rows]
        with self.torch.inference_mode():
            out_BT = self.model.generate(
                ids_BT,
                attention_mask=mask_BT,
                generation_config=plain_greedy(max(limits), self.twin.ends),
                stopping_criteria=[self._until_all_end(longest, limits)],
            )
        new = [
            row[longest : longest + limit]
            for row, limit in zip(out_BT.tolist(), limits, strict=True)
        ]
        return [[EOS if i in self.twin.ends else i for i in row] for row in new]

    def _until_all_end(self, longest: int, limits: Sequence[int]) -> "StoppingCriteria":
        """Marks rows that have a newline or all their new tokens; HF generate stops when every row
        is marked."""
        from transformers import StoppingCriteria

        limit_B, ends_line_V = self.torch.tensor(limits), self.ends_line_V

        class Ended(StoppingCriteria):
            def __call__(self, input_ids: "Tensor", scores: "Tensor", **_: object) -> "Tensor":
                return ends_line_V[input_ids[:, -1]] | (input_ids.shape[1] - longest >= limit_B)

        return Ended()


def slices(order: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (order[start : start + size] for start in range(0, len(order), size))


def padding_of(lengths: Sequence[int], batch_size: int) -> float:
    """Percent that padding adds to rows sorted by length."""
    rows = sorted(lengths)
    slots = sum(max(batch) * len(batch) for batch in slices(rows, batch_size))
    return 100 * (slots / sum(rows) - 1)
