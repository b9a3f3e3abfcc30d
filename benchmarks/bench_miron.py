"""How fast are MIRON's numbers here, beside the card's own loop in torch, on the same items, weights and dtype?

    python benchmarks/bench_miron.py --model=FOLDER

miron-gen in English and Russian, float32.  This engine runs all items, in two ways:

    card   the card's two numbers and no other: one scored request and one text an item
    full   all that `miron-jax eval` computes: the two, healed log-probability, PMI, distractors, the clean partners of
           noisy items, up to 8 tokenizations of a target; only its self-check stands apart, as the peers have none

The peers run --peer_items of them, drawn evenly, for the card's two numbers; their seconds are scaled by items.  As few rows
sorted by length are padded more than all would be, the batched peer is also given at the padding of all items:

    one by one   the card's loop: one item a forward, logits of every place, one HF generate
    batched      8, 32 or 128 items at once, the fastest of the three, padded on the left; to score, sorted by length, logits
                 from the first target on; to generate, sorted by tokens asked for and length

HF generate keeps its cache and ends, in both, when every row has a newline or as many tokens as its item is granted.  The
seconds hold tokenization, planning, forward passes, texts and metrics; loading and compilation stand apart.  Medians of
--repeats for this engine.  Exit status 1 where a number differs from a peer's by more than the tolerance, unless torch's
rounding or a tie is at fault (parity_miron.py).  The last line is JSON.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import flags
from common import Engine, environment, run, say, seconds_of
from parity_miron import (
    EOS,
    TIE,
    TOLERANCE,
    Disputed,
    Twin,
    card_confidence,
    drawn_evenly,
    judge,
    plain_greedy,
    text_requests,
    tokens_of,
    told,
)

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Cloze
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model, Speed, load_model
from miron_jax.engine.text_requests import GenerationSpeed
from miron_jax.evaluation.records import Inputs, Outcome
from miron_jax.inputs import find_inputs
from miron_jax.metrics.cloze import lev_score, target_confidence
from miron_jax.model.hf_reader import resolve_model
from miron_jax.planning.request_batches import select
from miron_jax.run import evaluate
from miron_jax.task_kinds.cloze import ClozeScores
from miron_jax.task_kinds.interface import Source
from miron_jax.tokens.cloze_requests import ClozeRequests, cloze_requests
from miron_jax.tokens.records import concatenate
from miron_jax.tokens.token_bytes import TokenBytes

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_integer("items_per_category", 500, "Items of each category and language.", lower_bound=1)
flags.DEFINE_integer(
    "peer_items", 200, "Items that the peers run, rounded up to as many of every group.", lower_bound=1
)
flags.DEFINE_integer("repeats", 3, "Timed runs of this engine; medians are reported.", lower_bound=1)

BATCH_SIZES = (8, 32, 128)


def main(_: Sequence[str]) -> None:
    inputs = find_inputs(RunConfig(FLAGS.model, ("miron-gen",), items_per_category=FLAGS.items_per_category))
    sample = drawn_evenly(inputs, FLAGS.peer_items)
    twin = Twin.load(FLAGS.model)
    twin.torch.torch.set_num_threads(os.cpu_count() or 1)
    here = CardEngine(load_model(resolve_model(FLAGS.model), "float32"), twin)
    say(f"miron-gen: {len(cloze_items(inputs))} items here, {len(cloze_items(sample))} by the peers")
    card, full = [], []
    for repeat in range(FLAGS.repeats):
        card.append(here.run(inputs))
        say(f"  card's two numbers {card[-1].seconds:.1f} s (run {repeat + 1})")
        full.append(run_full(inputs))
        say(f"  full run {full[-1].seconds:.1f} s")
    peers = run_peers(CardLoop(twin), sample, here.tokens_granted(sample))
    document = summarize(inputs, card, full, peers) | compared(inputs, sample, card[-1], peers, twin)
    print_table(document)
    print_differences(document)
    print(json.dumps(document | {"environment": environment()}, allow_nan=False))
    if document["wrong"]:
        sys.exit(1)


def cloze_items(inputs: Inputs) -> list[Cloze]:
    return [item for source in inputs.sources for item in source.examples if isinstance(item, Cloze)]


# This engine


class Answer(NamedTuple):
    """The card's two numbers for one item."""

    confidence: float
    lev: float
    text: str
    new: list[int]  # tokens of the text, EOS at its end


class CardRun(NamedTuple):
    """One run over all items for the card's two numbers."""

    seconds: float
    compile_seconds: float
    score_seconds: float  # with tokenization and planning
    answers: list[Answer]
    unique_tokens: int
    places: int  # of the batches that scored them, padding included
    lengths: list[int]  # tokens of each scored row, as a peer would pad them
    generation: GenerationSpeed


class CardEngine:
    """This engine, asked for no more than the card asks.  Compiled programs stay from run to run."""

    def __init__(self, model: Model, twin: Twin):
        self.tokenizer, self.table = twin.tokenizer, TokenBytes(twin.tokenizer, model.config.vocab_size)
        self.engine = Engine(model)
        self.generator = Generator(model, twin.tokenizer, twin.ends)

    def ask(self, source: Source) -> ClozeRequests:
        """The card's requests alone, and what each item asked."""
        bare = [replace(item, distractors=(), clean_prefix=None) for item in source.examples]
        profile = replace(source.task.profile, num_segmentations=1)
        requests, asked = cloze_requests(bare, profile, self.tokenizer, self.table, None, source.task.name)
        if unspelled := sum(own.target is None for own in asked):
            sys.exit(f"{source.task.name}: the tokenizer cannot spell {unspelled} items, which the peers would score")
        return ClozeRequests(select(requests, np.asarray([own.card for own in asked if own.card is not None])), asked)

    def tokens_granted(self, inputs: Inputs) -> list[int]:
        """Of each item's text: its target's tokens and a few more."""
        own = [text_requests(source.task.profile, self.ask(source).by_item) for source in cloze_sources(inputs)]
        return [text.max_new_tokens for texts in own for text in texts]

    def run(self, inputs: Inputs) -> CardRun:
        self.engine.forward.speed, self.generator.speed = Speed(), GenerationSpeed()
        sources, start = cloze_sources(inputs), time.perf_counter()
        asked = [self.ask(source) for source in sources]
        scored = self.engine.score(iter([concatenate([own.requests for own in asked])]))
        score_seconds = time.perf_counter() - start - self.engine.speed.compile_seconds
        wanted = [text_requests(source.task.profile, own.by_item) for source, own in zip(sources, asked, strict=True)]
        texts = self.generator.run([text for own in wanted for text in own])
        logprobs = iter(scored.answers.logprob)
        columns = cloze_items(inputs), [one for own in asked for one in own.by_item], texts
        answers = [
            Answer(
                target_confidence(None if one.card is None else next(logprobs)),
                lev_score(text.text, item.target),
                text.text,
                tokens_of(text),
            )
            for item, one, text in zip(*columns, strict=True)
        ]
        compiled = self.engine.speed.compile_seconds + self.generator.speed.compile_seconds
        return CardRun(
            time.perf_counter() - start - compiled,
            compiled,
            score_seconds,
            answers,
            scored.totals.unique_tokens,
            self.engine.speed.batch_tokens,
            [len(ids) for own in asked for ids, _ in own.requests],
            self.generator.speed,
        )


def cloze_sources(inputs: Inputs) -> list[Source]:
    return [source for source in inputs.sources if source.task.kind == "cloze"]


class FullRun(NamedTuple):
    """One `evaluate` of all items."""

    seconds: float
    apart: dict[str, float]  # seconds that do not count: loading, compilation, self-check
    outcome: Outcome


def run_full(inputs: Inputs) -> FullRun:
    """Everything that evaluate computes.  Its programs are compiled anew each time, and that is taken off."""
    config = RunConfig(FLAGS.model, ("miron-gen",), items_per_category=FLAGS.items_per_category)
    seconds, outcome = seconds_of(lambda: evaluate(config, inputs, lambda line: None))
    assert outcome.generation is not None
    apart = {
        "load_seconds": outcome.load_seconds,
        "compile_seconds": outcome.speed.compile_seconds + outcome.generation.compile_seconds,
        "self_check_seconds": outcome.check.seconds,
    }
    return FullRun(seconds - sum(apart.values()), apart, outcome)


# Peers


class Row(NamedTuple):
    """One item as the card tokenizes it."""

    prompt: list[int]
    whole: list[int]
    granted: int  # new tokens

    @property
    def scored(self) -> int:
        return max(0, len(self.whole) - len(self.prompt))


class Padded(NamedTuple):
    ids_BT: Any
    mask_BT: Any


class PeerRun(NamedTuple):
    """The card's loop over the sample."""

    batch_size: int
    seconds: float
    score_seconds: float
    padding: float  # of the scored rows, percent
    answers: list[Answer]

    def seconds_padded_as(self, lengths: Sequence[int]) -> float:
        """What it would take at the padding of batches of rows of these lengths: the more rows, the more alike in each."""
        return self.seconds * (100 + padding_of(lengths, self.batch_size)) / (100 + self.padding)


class CardLoop:
    """The card's loop in torch, a batch at a time."""

    def __init__(self, twin: Twin):
        self.twin, self.torch, self.model = twin, twin.torch.torch, twin.torch.model
        self.ends_line_V = self.torch.zeros(self.model.get_input_embeddings().num_embeddings, dtype=self.torch.bool)
        self.ends_line_V[[i for i, piece in enumerate(twin.pieces) if b"\n" in piece]] = True

    def run(self, items: Sequence[Cloze], granted: Sequence[int], batch_size: int) -> PeerRun:
        start = time.perf_counter()
        rows = [self._row(item, own) for item, own in zip(items, granted, strict=True)]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].whole))
        confidence: dict[int, float] = {}
        for batch in slices(order, batch_size):
            confidence.update(zip(batch, self._confidences([rows[i] for i in batch]), strict=True))
        score_seconds = time.perf_counter() - start
        new: dict[int, list[int]] = {}
        for batch in slices(sorted(order, key=lambda i: (rows[i].granted, len(rows[i].prompt))), batch_size):
            new.update(zip(batch, self._generated([rows[i] for i in batch]), strict=True))
        texts = [self.twin.text_of(row.prompt, new[i]) for i, row in enumerate(rows)]
        answers = [
            Answer(confidence[i], lev_score(text, item.target), text, new[i])
            for i, (item, text) in enumerate(zip(items, texts, strict=True))
        ]
        seconds = time.perf_counter() - start
        return PeerRun(
            batch_size, seconds, score_seconds, padding_of([len(row.whole) for row in rows], batch_size), answers
        )

    def _row(self, item: Cloze, granted: int) -> Row:
        prompt, whole = (self.twin.tokenizer(text)["input_ids"] for text in (item.prefix, item.prefix + item.target))
        return Row(prompt, whole, granted)

    def _padded(self, rows: Sequence[Sequence[int]]) -> Padded:
        """Padding on the left."""
        longest = max(map(len, rows))
        ids_BT = self.torch.tensor([[0] * (longest - len(row)) + [*row] for row in rows])
        mask_BT = self.torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        return Padded(ids_BT, mask_BT)

    def _confidences(self, rows: Sequence[Row]) -> list[float]:
        """One forward.  A batch asks for logits from its first target on; the card's own loop for all."""
        ids_BT, mask_BT = self._padded([row.whole for row in rows])
        kept = max(row.scored for row in rows) + 1 if len(rows) > 1 else 0
        place_BT = (mask_BT.cumsum(1) - 1).clamp(min=0)
        with self.torch.inference_mode():
            logits_BKV = self.model(
                ids_BT, attention_mask=mask_BT, position_ids=place_BT, use_cache=False, logits_to_keep=kept
            ).logits
            return [
                card_confidence(self.torch, logits_KV[-1 - row.scored :], row.whole[-1 - row.scored :], 1)
                for row, logits_KV in zip(rows, logits_BKV, strict=True)
            ]

    def _generated(self, rows: Sequence[Row]) -> list[list[int]]:
        """One HF generate.  Each row up to what its item is granted; what follows a row's end is padding."""
        ids_BT, mask_BT = self._padded([row.prompt for row in rows])
        longest, granted = ids_BT.shape[1], [row.granted for row in rows]
        with self.torch.inference_mode():
            out_BT = self.model.generate(
                ids_BT,
                attention_mask=mask_BT,
                generation_config=plain_greedy(max(granted), self.twin.ends),
                stopping_criteria=[self._ended(longest, granted)],
            )
        new = [own[longest : longest + most] for own, most in zip(out_BT.tolist(), granted, strict=True)]
        return [[EOS if i in self.twin.ends else i for i in own] for own in new]

    def _ended(self, longest: int, granted: Sequence[int]) -> Any:
        """Which rows have a newline, or all tokens that their items are granted: generation ends when all have."""
        from transformers import StoppingCriteria

        granted_B, ends_line_V = self.torch.tensor(granted), self.ends_line_V

        class Ended(StoppingCriteria):
            def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
                return ends_line_V[input_ids[:, -1]] | (input_ids.shape[1] - longest >= granted_B)

        return Ended()


def slices(order: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (order[start : start + size] for start in range(0, len(order), size))


def padding_of(lengths: Sequence[int], batch_size: int) -> float:
    """Percent that padding adds to rows sorted by length."""
    rows = sorted(lengths)
    places = sum(max(batch) * len(batch) for batch in slices(rows, batch_size))
    return 100 * (places / sum(rows) - 1)


class Peers(NamedTuple):
    one_by_one: PeerRun
    batched: PeerRun  # the fastest on the sample
    every_batched: list[PeerRun]


def run_peers(loop: CardLoop, sample: Inputs, granted: Sequence[int]) -> Peers:
    items = cloze_items(sample)
    loop.run(items[:2], granted[:2], 2)  # warm-up
    alone = loop.run(items, granted, 1)
    say(f"  torch, one by one {alone.seconds:.1f} s on {len(items)} items")
    batched = [loop.run(items, granted, size) for size in BATCH_SIZES]
    say("  torch, batched: " + ", ".join(f"{own.batch_size}: {own.seconds:.1f} s" for own in batched))
    return Peers(alone, min(batched, key=lambda own: own.seconds), batched)


# What came out


class Differences(NamedTuple):
    """A peer's answers beside this engine's."""

    largest_confidence: float  # difference, of 100
    ties: list[str]  # texts that part where torch's logits tie
    wrong: list[str]  # other texts that part
    disputed: list[Disputed]  # confidences beyond the tolerance


def differences(ours: dict[str, Answer], sample: Inputs, peer: PeerRun, twin: Twin) -> Differences:
    found, largest = Differences(0.0, [], [], []), 0.0
    for item, theirs in zip(cloze_items(sample), peer.answers, strict=True):
        mine = ours[item.name]
        if mine.text != theirs.text:
            apart = twin.gap(twin.tokenizer(item.prefix)["input_ids"], mine.new, theirs.new)
            line = f"{item.name}: {mine.text!r} here, {theirs.text!r} in torch, {told(apart)}"
            (found.ties if apart <= TIE else found.wrong).append(line)
        largest = max(largest, abs(mine.confidence - theirs.confidence))
        if not abs(mine.confidence - theirs.confidence) <= TOLERANCE:
            found.disputed.append(Disputed(item.name, item, "target_confidence", mine.confidence, theirs.confidence))
    return found._replace(largest_confidence=largest)


def compared(inputs: Inputs, sample: Inputs, ours: CardRun, peers: Peers, twin: Twin) -> dict[str, Any]:
    """Both peers beside this engine; torch in float64 comes last, as it takes the place of the float32 model."""
    mine = {item.name: own for item, own in zip(cloze_items(inputs), ours.answers, strict=True)}
    found = {name: differences(mine, sample, getattr(peers, name), twin) for name in ("one_by_one", "batched")}
    rounding, wrong = judge([one for own in found.values() for one in own.disputed], twin)
    return {
        "tolerance": TOLERANCE,
        "largest_confidence": {name: own.largest_confidence for name, own in found.items()},
        "ties": [line for own in found.values() for line in own.ties],
        "torch_rounding": rounding,
        "wrong": [*(line for own in found.values() for line in own.wrong), *wrong],
    }


def summarize(inputs: Inputs, card: list[CardRun], full: list[FullRun], peers: Peers) -> dict[str, Any]:
    ours = {
        "card": statistics.median(own.seconds for own in card),
        "full": statistics.median(own.seconds for own in full),
    }
    items, sampled = len(cloze_items(inputs)), len(peers.one_by_one.answers)
    lengths = card[-1].lengths
    tightest = min(peers.every_batched, key=lambda own: own.seconds_padded_as(lengths))

    def peer_numbers(own: PeerRun, seconds: float) -> dict[str, Any]:
        scaled = seconds * items / sampled
        ratio = {name: scaled / mine for name, mine in ours.items()}
        return {"batch_size": own.batch_size, "seconds": scaled, "ratio": ratio, "measured_seconds": own.seconds}

    return {
        "benchmark": "bench_miron",
        "model": Path(FLAGS.model).name,
        "dtype": "float32",
        "items": items,
        "peer_items": sampled,
        "card": card_numbers(ours["card"], card),
        "full": full_numbers(ours["full"], full),
        "one_by_one": peer_numbers(peers.one_by_one, peers.one_by_one.seconds),
        "batched": peer_numbers(peers.batched, peers.batched.seconds),
        "batched_tightly": peer_numbers(tightest, tightest.seconds_padded_as(lengths)),
        "every_batch_size": {
            own.batch_size: {
                "seconds": own.seconds,
                "score_seconds": own.score_seconds,
                "padding_percent": own.padding,
                "padding_percent_of_all_items": padding_of(lengths, own.batch_size),
            }
            for own in peers.every_batched
        },
    }


def card_numbers(seconds: float, runs: list[CardRun]) -> dict[str, Any]:
    last = runs[-1]
    return {
        "seconds": seconds,
        "all_seconds": [own.seconds for own in runs],
        "all_score_seconds": [own.score_seconds for own in runs],
        "compile_seconds": runs[0].compile_seconds,
        **work(last.unique_tokens, last.places, last.generation),
    }


def full_numbers(seconds: float, runs: list[FullRun]) -> dict[str, Any]:
    outcome = runs[-1].outcome
    assert outcome.generation is not None
    tasks = [task for task in outcome.tasks if isinstance(task, ClozeScores)]
    return {
        "seconds": seconds,
        "all_seconds": [own.seconds for own in runs],
        **{name: statistics.median(own.apart[name] for own in runs) for name in runs[0].apart},
        "requests": outcome.totals.requests,
        "segmentation_tokens": sum(asked.added_tokens for task in tasks for asked in task.asked),
        **work(outcome.totals.unique_tokens, outcome.speed.batch_tokens, outcome.generation),
    }


def work(unique_tokens: int, places: int, generation: GenerationSpeed) -> dict[str, Any]:
    """What was computed: places of scoring, places of prompts, steps of slots."""
    return {
        "unique_tokens": unique_tokens,
        "padding_percent": 100 * (places / unique_tokens - 1),
        "prompt_tokens": generation.prompt_tokens,
        "prefilled_tokens": generation.prefilled_tokens,
        "new_tokens": generation.drawn_tokens,
        "busy_slots_percent": 100 * generation.busy_steps / generation.slot_steps,
        "generation_device_seconds": generation.device_seconds,
    }


def print_table(one: dict[str, Any]) -> None:
    print(
        f"\nmiron-gen: {one['items']} items; the peers ran {one['peer_items']}, and their seconds are scaled by items"
    )
    print(f"{'':40}{'seconds':>9}{'items/s':>9}{'x card':>8}{'x full':>8}")
    names = {
        "card": "miron_jax, the card's two numbers",
        "full": "miron_jax, everything",
        "one_by_one": "torch, one by one",
        "batched": f"torch, batches of {one['batched']['batch_size']}",
        "batched_tightly": f"  of {one['batched_tightly']['batch_size']}, padded as all items would be",
    }
    for key, name in names.items():
        own = one[key]
        ratios = "".join(f"{own['ratio'][base]:7.2f}x" for base in ("card", "full")) if "ratio" in own else ""
        print(f"{name:40}{own['seconds']:9.1f}{one['items'] / own['seconds']:9.1f}{ratios}")
    for key in ("card", "full"):
        own = one[key]
        print(
            f"{key}: {own['unique_tokens']} tokens to score, padding adds {own['padding_percent']:.1f} %; "
            f"{own['new_tokens']} new tokens, {own['busy_slots_percent']:.1f} % of slot steps busy; "
            f"{own['compile_seconds']:.1f} s to compile"
        )
    print(
        f"full: the other tokenizations of targets add {one['full']['segmentation_tokens']} of the tokens; self-check "
        f"{one['full']['self_check_seconds']:.1f} s apart"
    )


def print_differences(one: dict[str, Any]) -> None:
    print(f"confidences differ by {max(one['largest_confidence'].values()):.1e} of 100 at most")
    for title, lines in (
        (f"ties, within {TIE:g} nats in torch", one["ties"]),
        ("closer to float64 than torch's float32 is", one["torch_rounding"]),
        ("WRONG", one["wrong"]),
    ):
        print("\n".join([f"{title}: {len(lines)}", *(f"  {line}" for line in lines)]))


if __name__ == "__main__":
    run(main)
