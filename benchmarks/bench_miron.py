"""How fast are MIRON's numbers, compared with the card's loop in torch, on the same items, weights
and dtype?

    python benchmarks/bench_miron.py --model=FOLDER

miron-gen in English and Russian, float32.  This engine runs all items, in two ways:

    card   the card's two numbers only: one scored request and one completion an item
    full   all that `miron-jax eval` computes: the two, healed log-probability, PMI, distractors, the clean partners of
           noisy items, up to 8 tokenizations of a target; its self-check is not counted, as the
           peers have none

The peers run --peer_items of the items, sampled evenly, for the card's two numbers; their seconds
are scaled by items.  Few rows sorted by length need more padding than many, so the batched peer is
also reported at the padding of all items:

    one by one   the card's loop: one item a forward, logits of every token, one HF generate
    batched      8, 32 or 128 items at once, the fastest of the three, padded on the left; scored sorted by length, with
                 logits from the first target on; generated sorted by number of new tokens and
                 length

HF generate keeps its cache.  It ends, for both peers, when every row has a newline or its item's
number of new tokens.  The seconds include tokenization, planning, forward passes, completions and
metrics, but neither loading nor compilation.  Medians of --repeats for this engine.  Exit status 1
if a number differs from a peer's by more than the tolerance, unless torch's rounding or a tie is at
fault (parity_miron.py).  The last line is JSON.
"""  # noqa: E501

import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import flags
from agreement import Verdicts, say_verdicts
from common import Engine, environment, run, say, seconds_of
from miron_card import (
    TIE,
    TOLERANCE,
    Answer,
    CardLoop,
    Completion,
    Disputed,
    PeerRun,
    Twin,
    judge,
    padding_of,
    sampled_evenly,
    text_requests,
)
from peers import tokens_of

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Cloze
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import ForwardSpeed, Model, load_model
from miron_jax.engine.text_requests import GenerationSpeed
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.records import Inputs, Outcome
from miron_jax.evaluation.run import evaluate
from miron_jax.evaluation.task_kinds.cloze import ClozeRow
from miron_jax.evaluation.task_kinds.interface import LoadedTask
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.cloze import ScoredSpan, lev_score, target_confidence
from miron_jax.model.checkpoints.hf_reader import resolve_model
from miron_jax.planning.request_batches import select
from miron_jax.tokens.cloze_requests import ClozeRequests, cloze_requests
from miron_jax.tokens.records import concatenate
from miron_jax.tokens.token_bytes import TokenBytes

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
flags.DEFINE_integer(
    "items_per_category", 500, "Items of each category and language.", lower_bound=1
)
flags.DEFINE_integer(
    "peer_items",
    200,
    "Items that the peers run, rounded up to as many of every group.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "repeats", 3, "Timed runs of this engine; medians are reported.", lower_bound=1
)

BATCH_SIZES = (8, 32, 128)


def main(_: Sequence[str]) -> None:
    inputs = find_inputs(
        RunConfig(FLAGS.model, ("miron-gen",), items_per_category=FLAGS.items_per_category)
    )
    sample = sampled_evenly(inputs, FLAGS.peer_items)
    twin = Twin.load(FLAGS.model)
    twin.torch.torch.set_num_threads(os.cpu_count() or 1)
    engine = CardEngine(load_model(resolve_model(FLAGS.model), "float32"), twin)
    say(
        f"miron-gen: {len(cloze_items(inputs))} items here, {len(cloze_items(sample))} by the peers"
    )
    card, full = [], []
    for repeat in range(FLAGS.repeats):
        card.append(engine.run(inputs))
        say(f"  card's two numbers {card[-1].seconds:.1f} s (run {repeat + 1})")
        full.append(run_full(inputs))
        say(f"  full run {full[-1].seconds:.1f} s")
    peers = run_peers(CardLoop(twin), sample, engine.max_new_tokens(sample))
    document = summarize(inputs, card, full, peers) | compared(
        inputs, sample, card[-1], peers, twin
    )
    print_table(document)
    print(
        f"confidences differ by {max(document['largest_confidence'].values()):.1e} of 100 at most"
    )
    verdicts = Verdicts(document["torch_rounding"], document["wrong"])
    say_verdicts(f"ties, within {TIE:g} nats in torch", document["ties"], verdicts)
    print(json.dumps(document | {"environment": environment()}, allow_nan=False))
    if document["wrong"]:
        sys.exit(1)


def cloze_items(inputs: Inputs) -> list[Cloze]:
    return [
        item for source in inputs.sources for item in source.examples if isinstance(item, Cloze)
    ]


# This engine


class CardRun(NamedTuple):
    """One run over all items for the card's two numbers."""

    seconds: float
    compile_seconds: float
    score_seconds: float  # with tokenization and planning
    answers: list[Answer]
    unique_tokens: int
    num_slots: int  # of the batches that scored them, padding included
    lengths: list[int]  # tokens of each scored row, as a peer would pad them
    generation: GenerationSpeed


class CardEngine:
    """This engine, computing the card's two numbers only.  Compiled programs are kept from run to
    run."""

    def __init__(self, model: Model, twin: Twin):
        self.tokenizer, self.table = (
            twin.tokenizer,
            TokenBytes(twin.tokenizer, model.config.vocab_size),
        )
        self.engine = Engine(model)
        self.generator = Generator(model, twin.tokenizer, twin.ends)

    def tokenize(self, source: LoadedTask) -> ClozeRequests:
        """The card's requests alone, without those of distractors, clean prefixes and other
        tokenizations."""
        bare = [replace(item, distractors=(), clean_prefix=None) for item in source.examples]
        profile = replace(source.task.profile, num_segmentations=1)
        requests, asked = cloze_requests(
            bare, profile, self.tokenizer, self.table, None, source.task.name
        )
        if unspelled := sum(item.target is None for item in asked):
            sys.exit(
                f"{source.task.name}: the tokenizer cannot spell {unspelled} items, which the "
                "peers would score"
            )
        return ClozeRequests(
            select(requests, np.asarray([item.card for item in asked if item.card is not None])),
            asked,
        )

    def max_new_tokens(self, inputs: Inputs) -> list[int]:
        """Of each item's completion: its target's tokens and a few more."""
        return [
            request.max_new_tokens
            for source in cloze_sources(inputs)
            for request in text_requests(source.task.profile, self.tokenize(source).by_item)
        ]

    def run(self, inputs: Inputs) -> CardRun:
        self.engine.forward.speed, self.generator.speed = ForwardSpeed(), GenerationSpeed()
        sources, start = cloze_sources(inputs), time.perf_counter()
        tokenized = [self.tokenize(source) for source in sources]
        scored = self.engine.score(iter([concatenate([cloze.requests for cloze in tokenized])]))
        score_seconds = time.perf_counter() - start - self.engine.speed.compile_seconds
        texts = self.generator.run(
            [
                request
                for source, cloze in zip(sources, tokenized, strict=True)
                for request in text_requests(source.task.profile, cloze.by_item)
            ]
        )
        logprobs = iter(scored.answers.logprob)
        columns = (
            cloze_items(inputs),
            [asked for cloze in tokenized for asked in cloze.by_item],
            texts,
        )
        answers = [
            Answer(
                target_confidence(None if asked.card is None else _span(next(logprobs))),
                lev_score(text.text, item.target),
                Completion(text.text, tokens_of(text)),
            )
            for item, asked, text in zip(*columns, strict=True)
        ]
        compile_seconds = self.engine.speed.compile_seconds + self.generator.speed.compile_seconds
        return CardRun(
            time.perf_counter() - start - compile_seconds,
            compile_seconds,
            score_seconds,
            answers,
            scored.totals.unique_tokens,
            self.engine.speed.batch_tokens,
            [len(ids) for cloze in tokenized for ids, _ in cloze.requests],
            self.generator.speed,
        )


def _span(logprob: np.ndarray) -> ScoredSpan:
    return ScoredSpan(float(logprob.sum(dtype=np.float64)), len(logprob), 0, False, False)


def cloze_sources(inputs: Inputs) -> list[LoadedTask]:
    return [source for source in inputs.sources if source.task.kind == "cloze"]


class FullRun(NamedTuple):
    """One `evaluate` of all items."""

    seconds: float
    # seconds of loading, compilation and self-check, which `seconds` does not include
    excluded: dict[str, float]
    outcome: Outcome


def run_full(inputs: Inputs) -> FullRun:
    """Everything that evaluate computes.  It compiles its programs anew each time; those seconds
    are excluded."""
    config = RunConfig(FLAGS.model, ("miron-gen",), items_per_category=FLAGS.items_per_category)
    seconds, outcome = seconds_of(lambda: evaluate(config, inputs))
    assert outcome.generation is not None
    excluded = {
        "load_seconds": outcome.load_seconds,
        "compile_seconds": outcome.speed.compile_seconds + outcome.generation.compile_seconds,
        "self_check_seconds": outcome.check.seconds,
    }
    return FullRun(seconds - sum(excluded.values()), excluded, outcome)


# Peers


class Peers(NamedTuple):
    one_by_one: PeerRun
    batched: PeerRun  # the fastest on the sample
    every_batched: list[PeerRun]


def run_peers(loop: CardLoop, sample: Inputs, max_new_tokens: Sequence[int]) -> Peers:
    items = cloze_items(sample)
    loop.run(items[:2], max_new_tokens[:2], 2)  # warm-up
    one_by_one = loop.run(items, max_new_tokens, 1)
    say(f"  torch, one by one {one_by_one.seconds:.1f} s on {len(items)} items")
    batched = [loop.run(items, max_new_tokens, size) for size in BATCH_SIZES]
    say(
        "  torch, batched: "
        + ", ".join(f"{peer.batch_size}: {peer.seconds:.1f} s" for peer in batched)
    )
    return Peers(one_by_one, min(batched, key=lambda peer: peer.seconds), batched)


# Comparison


def compared(inputs: Inputs, sample: Inputs, card: CardRun, peers: Peers, twin: Twin) -> JsonObject:
    """How both peers' answers differ from this engine's; float64 comes last, as it converts the
    float32 model in place."""
    answers = {
        item.name: answer for item, answer in zip(cloze_items(inputs), card.answers, strict=True)
    }
    ties, wrong, disputed = [], [], []
    largest = {"one_by_one": 0.0, "batched": 0.0}
    for name in largest:
        for item, theirs in zip(cloze_items(sample), getattr(peers, name).answers, strict=True):
            ours = answers[item.name]
            if ours.completion.text != theirs.completion.text:
                tie, line = twin.compare_texts(item.name, item, ours.completion, theirs.completion)
                (ties if tie else wrong).append(line)
            difference = abs(ours.confidence - theirs.confidence)
            largest[name] = max(largest[name], difference)
            if not difference <= TOLERANCE:
                disputed.append(
                    Disputed(
                        item.name, item, "target_confidence", ours.confidence, theirs.confidence
                    )
                )
    verdicts = judge(disputed, twin)
    return {
        "tolerance": TOLERANCE,
        "largest_confidence": largest,
        "ties": ties,
        "torch_rounding": verdicts.torch_rounding,
        "wrong": [*wrong, *verdicts.wrong],
    }


def summarize(inputs: Inputs, card: list[CardRun], full: list[FullRun], peers: Peers) -> JsonObject:
    our_runs = {"card": card, "full": full}
    ours = {name: statistics.median(one.seconds for one in runs) for name, runs in our_runs.items()}
    items, sampled = len(cloze_items(inputs)), len(peers.one_by_one.answers)
    lengths = card[-1].lengths
    tightest = min(peers.every_batched, key=lambda peer: peer.seconds_padded_as(lengths))

    def peer_numbers(peer: PeerRun, seconds: float) -> JsonObject:
        scaled = seconds * items / sampled
        ratio = {name: scaled / our_seconds for name, our_seconds in ours.items()}
        return {
            "batch_size": peer.batch_size,
            "seconds": scaled,
            "ratio": ratio,
            "measured_seconds": peer.seconds,
        }

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
            peer.batch_size: {
                "seconds": peer.seconds,
                "score_seconds": peer.score_seconds,
                "padding_percent": peer.padding,
                "padding_percent_of_all_items": padding_of(lengths, peer.batch_size),
            }
            for peer in peers.every_batched
        },
    }


def card_numbers(seconds: float, runs: list[CardRun]) -> JsonObject:
    last = runs[-1]
    return {
        "seconds": seconds,
        "all_seconds": [one.seconds for one in runs],
        "all_score_seconds": [one.score_seconds for one in runs],
        "compile_seconds": runs[0].compile_seconds,
        **work(last.unique_tokens, last.num_slots, last.generation),
    }


def full_numbers(seconds: float, runs: list[FullRun]) -> JsonObject:
    outcome = runs[-1].outcome
    assert outcome.generation is not None
    rows = [row for task in outcome.tasks for row in task.rows if isinstance(row, ClozeRow)]
    return {
        "seconds": seconds,
        "all_seconds": [one.seconds for one in runs],
        **{
            name: statistics.median(one.excluded[name] for one in runs) for name in runs[0].excluded
        },
        "requests": outcome.totals.requests,
        "segmentation_tokens": sum(row.asked.added_tokens for row in rows if row.asked is not None),
        **work(outcome.totals.unique_tokens, outcome.speed.batch_tokens, outcome.generation),
    }


def work(unique_tokens: int, num_slots: int, generation: GenerationSpeed) -> JsonObject:
    """What was computed: tokens and padding of scoring, tokens of prompts, steps of generation."""
    return {
        "unique_tokens": unique_tokens,
        "padding_percent": 100 * (num_slots / unique_tokens - 1),
        "prompt_tokens": generation.prompt_tokens,
        "prefilled_tokens": generation.prefilled_tokens,
        "new_tokens": generation.drawn_tokens,
        "busy_slots_percent": 100 * generation.busy_steps / generation.slot_steps,
        "generation_device_seconds": generation.device_seconds,
    }


def print_table(document: JsonObject) -> None:
    print(
        f"\nmiron-gen: {document['items']} items; the peers ran {document['peer_items']}; their "
        "seconds are scaled by items"
    )
    print(f"{'':40}{'seconds':>9}{'items/s':>9}{'x card':>8}{'x full':>8}")
    names = {
        "card": "miron_jax, the card's two numbers",
        "full": "miron_jax, everything",
        "one_by_one": "torch, one by one",
        "batched": f"torch, batches of {document['batched']['batch_size']}",
        "batched_tightly": f"  of {document['batched_tightly']['batch_size']}, padded as all items would be",  # noqa: E501
    }
    for key, name in names.items():
        numbers = document[key]
        ratios = (
            "".join(f"{numbers['ratio'][base]:7.2f}x" for base in ("card", "full"))
            if "ratio" in numbers
            else ""
        )
        print(
            f"{name:40}{numbers['seconds']:9.1f}{document['items'] / numbers['seconds']:9.1f}{ratios}"  # noqa: E501
        )
    for key in ("card", "full"):
        numbers = document[key]
        print(
            f"{key}: {numbers['unique_tokens']} tokens to score, padding adds "
            f"{numbers['padding_percent']:.1f} %; {numbers['new_tokens']} new tokens, "
            f"{numbers['busy_slots_percent']:.1f} % of slot steps busy; "
            f"{numbers['compile_seconds']:.1f} s to compile"
        )
    print(
        f"full: the other tokenizations of targets add {document['full']['segmentation_tokens']} "
        f"of the tokens; self-check {document['full']['self_check_seconds']:.1f} s more"
    )


if __name__ == "__main__":
    run(main)
