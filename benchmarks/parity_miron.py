"""Are MIRON's numbers the same as torch's?  Real weights, miron-gen items, float32.

    python benchmarks/parity_miron.py --model=FOLDER --items=200

Items are drawn evenly over languages and categories, once with their space in the target and once with it in the prefix,
where tokens cross the seam.  This engine runs them as `miron-jax eval` does, all in one forest.  Torch runs one item a
forward and, for the text, one HF generate; of this engine's tokenization it takes the number of tokens to generate, no more:

    lev_score          100 (1 - Lev(text, target) / max(|text|, |target|)), the distance by its textbook table
    target_confidence  100 exp(mean log p of tokenizer(prefix + target) from place len(tokenizer(prefix)) on), or 0.0
    logprob            nats of the tokens whose offset ends in the target, less the log of the summed probability of all
                       tokens that agree with what the first of them holds of the prefix
    greedy_exact, first_token_rank, and the text itself, greedy, cut at the first newline

Logits are float32, their log_softmax float64: torch's own in float32 is off by 3.5e-5 nats over Gemma's 262,144 tokens, a
confidence by 0.0026.  Numbers must agree to 1e-3.  One beyond it goes to torch in float64 throughout: where this engine is
within the tolerance of that, and torch's float32 is not nearer, torch is at fault, which is listed.  A text may part where
torch's logits of the two tokens tie within 1e-4 nats, a rank or a flag where as many logits lie that close to the target's;
where a token crosses the seam, neither rank nor flag is defined.  Exit status 1 where anything else differs.  The last line
is JSON.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import flags
from common import PlainTorch, environment, run, say, seconds_of

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Cloze, ClozeProfile
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import load_model
from miron_jax.engine.text_requests import Generated, TextRequest
from miron_jax.evaluation.records import Inputs
from miron_jax.inputs import find_inputs
from miron_jax.model.hf_config import eos_token_ids
from miron_jax.model.hf_reader import resolve_model
from miron_jax.run import evaluate
from miron_jax.task_kinds.cloze import ClozeScores
from miron_jax.tokens.cloze_requests import ItemRequests
from miron_jax.tokens.tokenizers import load_tokenizer

FLAGS = flags.FLAGS
if __name__ == "__main__":  # bench_miron.py, which takes the torch side from here, has flags of its own
    flags.DEFINE_string("model", None, "Hugging Face folder.", required=True)
    flags.DEFINE_integer("items", 200, "Items of each suite, rounded up to as many of every group.", lower_bound=1)

SUITES = ("miron-gen", "miron-gen-prefixspace")
TOLERANCE = 1e-3  # what a number may differ by
TIE = 1e-4  # nats between two logits that count as equal
NUMBERS = ("lev_score", "target_confidence", "logprob")
COLUMNS = {"items": 7, "seams": 7, "zeros": 7, **dict.fromkeys(NUMBERS, 19), "texts": 8, "torch": 10}
EOS = -1  # in place of any token that ends a text


def main(_: Sequence[str]) -> None:
    config = RunConfig(FLAGS.model, SUITES)
    inputs = drawn_evenly(find_inputs(config), FLAGS.items)
    ours_seconds, outcome = seconds_of(lambda: evaluate(config, inputs, say))
    tasks = [task for task in outcome.tasks if isinstance(task, ClozeScores)]
    twin = Twin.load(FLAGS.model)
    say(f"{'largest differences':26}" + "".join(f"{name:>{width}}" for name, width in COLUMNS.items()))
    found = []
    for task in tasks:
        seconds, own = seconds_of(lambda task=task: compare(task, twin))
        found.append(own)
        say(row(own, seconds))
    judge_texts(found, tasks, twin)
    rounding, beyond = judge([dispute for own in found for dispute in own.disputed], twin)
    report(found, rounding, beyond, ours_seconds)


def drawn_evenly(inputs: Inputs, count: int) -> Inputs:
    """About `count` items of each suite, as many of every language and category, spread over each one's items."""
    cloze = [source for source in inputs.sources if source.task.kind == "cloze"]
    groups = sum(len({item.category for item in source.examples}) for source in cloze) // len(inputs.suites)
    each = math.ceil(count / groups)
    return inputs._replace(sources=[source._replace(examples=_spread(source.examples, each)) for source in cloze])


def _spread(items: Sequence[Cloze], each: int) -> list[Cloze]:
    chosen = []
    for _, members in groupby(items, key=lambda item: item.category):
        own = list(members)
        count, step = min(each, len(own)), max(1, len(own) // each)
        # i % step: operators of noise come in turn, and every step-th item might have the same one.
        chosen += [own[i * len(own) // count + i % step] for i in range(count)]
    return chosen


@dataclass
class Twin:
    """The card in plain torch, and what stands beside it."""

    torch: PlainTorch
    tokenizer: Any
    ends: tuple[int, ...]  # tokens that end a text
    pieces: list[bytes]  # of every token, b"" where it stands for none
    agreeing: dict[bytes, list[int]] = field(default_factory=dict)  # tokens that begin with it or that it begins with

    @classmethod
    def load(cls, folder: str) -> "Twin":
        path = str(resolve_model(folder))
        tokenizer = load_tokenizer(path)
        return cls(PlainTorch.load(path, "float32"), tokenizer, eos_token_ids(path), bytes_of_pieces(tokenizer))

    def logits(self, ids: Sequence[int]) -> Any:
        """[T, V] of one row."""
        with self.torch.torch.inference_mode():
            return self.torch.logits([np.asarray(ids)])[0]

    def greedy(self, prompt: Sequence[int], new_tokens: int) -> list[int]:
        """New tokens, EOS for any that ends a text; no other rule of the folder's own applies."""
        ids = self.torch.torch.tensor([prompt])
        with self.torch.torch.inference_mode():
            mask, rules = self.torch.torch.ones_like(ids), plain_greedy(new_tokens, self.ends)
            out = self.torch.model.generate(ids, attention_mask=mask, generation_config=rules)
        return [EOS if i in self.ends else i for i in out[0, len(prompt) :].tolist()]

    def text_of(self, prompt: Sequence[int], new: Sequence[int]) -> str:
        """What the new tokens add to the prompt's text, up to the first newline; unfinished bytes end it as one U+FFFD."""
        kept = new[: new.index(EOS)] if EOS in new else new
        before, whole = (
            self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            for ids in ([*prompt], [*prompt, *kept])
        )
        text = whole[len(before) :]
        return (text.rstrip("\ufffd") + "\ufffd" if text.endswith("\ufffd") else text).partition("\n")[0]

    def gap(self, prompt: Sequence[int], here: Sequence[int], there: Sequence[int]) -> float:
        """Nats between the first two tokens that differ, as torch sees them; infinite where one text begins the other."""
        at = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
        if at is None:
            return math.inf
        logits_V = self.logits([*prompt, *there[:at]])[-1]
        mine, other = (
            max(float(logits_V[i]) for i in (self.ends if own == EOS else (own,))) for own in (here[at], there[at])
        )
        return abs(mine - other)


def plain_greedy(new_tokens: int, ends: Sequence[int]) -> Any:
    from transformers import GenerationConfig

    return GenerationConfig(do_sample=False, max_new_tokens=new_tokens, eos_token_id=list(ends), pad_token_id=0)


def bytes_of_pieces(tokenizer: Any) -> list[bytes]:
    """Of every token, by transformers' own table of byte-level characters or SentencePiece's marks."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
    byte_level = "ByteLevel" in str(tokenizer.backend_tokenizer.decoder)

    def piece_bytes(piece: str) -> bytes:
        if byte_level:
            return bytes(byte_of[c] for c in piece) if all(c in byte_of for c in piece) else piece.encode()
        single = len(piece) == 6 and piece[:3] == "<0x" and piece[5] == ">"
        return bytes.fromhex(piece[3:5]) if single else piece.replace("\u2581", " ").encode()

    pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = set(tokenizer.all_special_ids)
    return [b"" if i in special else piece_bytes(piece) for i, piece in enumerate(pieces)]


class RankBounds(NamedTuple):
    """How many tokens stand ahead of one: as torch has it, and the least and the most that near ties leave open."""

    rank: int
    least: int
    most: int


class TwinAnswers(NamedTuple):
    """One item by torch."""

    lev_score: float
    prompt: list[int]
    new: list[int]  # tokens of the text, EOS at its end
    text: str
    target_confidence: float
    logprob: float  # nats, healed
    ranks: list[RankBounds]  # see TwinScores


def ask(twin: Twin, item: Cloze, new_tokens: int) -> TwinAnswers:
    """One forward and one HF generate."""
    prompt = twin.tokenizer(item.prefix)["input_ids"]
    new = twin.greedy(prompt, new_tokens)
    text = twin.text_of(prompt, new)
    return TwinAnswers(card_lev(text, item.target), prompt, new, text, *score(twin, item))


class TwinScores(NamedTuple):
    target_confidence: float
    logprob: float  # nats, healed
    ranks: list[RankBounds]  # of the tokens that `logprob` sums; none where the first of them crosses the seam


def score(twin: Twin, item: Cloze) -> TwinScores:
    """One forward: the card's tokens and the healed span lie in the same row."""
    whole = twin.tokenizer(item.prefix + item.target)["input_ids"]
    logits_TV = twin.logits(whole).double()
    places, held = healed_span(twin, item, whole)
    return TwinScores(
        card_confidence(twin.torch.torch, logits_TV, whole, len(twin.tokenizer(item.prefix)["input_ids"])),
        healed_logprob(twin, logits_TV, whole, places, held),
        [] if held else [rank_bounds(logits_TV[i - 1], whole[i]) for i in places],
    )


def card_confidence(torch: Any, logits_TV: Any, whole: Sequence[int], count: int) -> float:
    """The card's formula: geometric mean of p over what follows `count` tokens, in percent."""
    if len(whole) - count <= 0:
        return 0.0
    logprob_NV = torch.log_softmax(logits_TV[count - 1 : len(whole) - 1], dim=-1)
    target_N1 = torch.tensor(whole[count:], device=logits_TV.device)[:, None]
    return 100 * math.exp(float(logprob_NV.gather(1, target_N1).mean()))


def card_lev(text: str, target: str) -> float:
    longer = max(len(text), len(target))
    return 100 * (1 - edit_distance(text, target) / longer) if longer else 100.0


def edit_distance(a: str, b: str) -> int:
    """Levenshtein's, a row of its table at a time."""
    above = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        own = [i]
        for j, y in enumerate(b, 1):
            own.append(min(above[j] + 1, own[-1] + 1, above[j - 1] + (x != y)))
        above = own
    return above[-1]


def healed_span(twin: Twin, item: Cloze, whole: Sequence[int]) -> tuple[range, bytes]:
    """(places of the tokens that end in the target, what the first of them holds of the prefix)."""
    offsets = twin.tokenizer(item.prefix + item.target, return_offsets_mapping=True)["offset_mapping"]
    scored = [i for i, (_, end) in enumerate(offsets) if end > len(item.prefix)]
    spelled = b"".join(twin.pieces[i] for i in whole[scored[0] : scored[-1] + 1])
    return range(scored[0], scored[-1] + 1), spelled[: len(spelled) - len(item.target.encode())]


def healed_logprob(twin: Twin, logits_TV: Any, whole: Sequence[int], places: range, held: bytes) -> float:
    """log p of these tokens, less that of all tokens that agree with `held`; the whole vocabulary is searched for them."""
    logprob_NV = twin.torch.torch.log_softmax(logits_TV[places[0] - 1 : places[-1]], dim=-1)
    total = sum(float(logprob_NV[n, whole[i]]) for n, i in enumerate(places))
    if held and held not in twin.agreeing:
        pieces = enumerate(twin.pieces)
        twin.agreeing[held] = [i for i, own in pieces if own and (own.startswith(held) or held.startswith(own))]
    return total - float(logprob_NV[0, twin.agreeing[held]].logsumexp(0)) if held else total


def rank_bounds(logits_V: Any, token: int) -> RankBounds:
    own = logits_V[token]
    ahead = ((logits_V > own), (logits_V > own + TIE), (logits_V >= own - TIE))
    rank, least, most = (int(one.sum()) for one in ahead)
    return RankBounds(rank, least, most - 1)


class Differing(NamedTuple):
    """A text that is not torch's."""

    place: int  # of the item in its task
    name: str
    theirs: TwinAnswers


class Disputed(NamedTuple):
    """A number beyond the tolerance."""

    where: str
    item: Cloze
    number: str  # of NUMBERS
    here: float
    there: float  # by torch


@dataclass(slots=True)
class Found:
    """One task beside torch."""

    task: str
    items: int
    unscored: int  # the tokenizer cannot spell them
    seams: int
    zeros: int  # the card's formula finds no token
    largest: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NUMBERS, 0.0))
    texts: list[Differing] = field(default_factory=list)
    disputed: list[Disputed] = field(default_factory=list)
    ties: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def compare(task: ClozeScores, twin: Twin) -> Found:
    seams, zeros = sum(own.seam for own in task.asked), sum(own.card is None for own in task.asked)
    found = Found(task.source.task.name, len(task.items), task.unspelled, seams, zeros - task.unspelled)
    for place, (item, asked, example) in enumerate(zip(task.items, task.asked, task.examples, strict=True)):
        if example is None:
            continue
        theirs = ask(twin, item, asked.num_tokens + task.source.task.profile.extra_tokens)
        same_text = task.generated[place] == theirs.text
        if not same_text:
            found.texts.append(Differing(place, item.name, theirs))
        for number in NUMBERS if same_text else NUMBERS[1:]:
            here, there = example.metrics[number], getattr(theirs, number)
            found.largest[number] = max(found.largest[number], abs(here - there))
            if number == "lev_score" and not abs(here - there) <= TOLERANCE:
                found.wrong.append(f"{found.task}, {item.name}: {number} {here:.5f} here, {there:.5f} in torch")
            elif not abs(here - there) <= TOLERANCE:
                found.disputed.append(Disputed(f"{found.task}, {item.name}", item, number, here, there))
        compare_ranks(found, item.name, example.metrics, theirs.ranks)
    return found


def compare_ranks(found: Found, name: str, metrics: Mapping[str, float], ranks: Sequence[RankBounds]) -> None:
    """First rank and greedy flag: the same, or within what near ties leave open."""
    first, greedy = metrics["first_token_rank"], metrics["greedy_exact"]
    if math.isnan(first) or math.isnan(greedy) or not ranks:
        if not (math.isnan(first) and math.isnan(greedy) and not ranks):
            found.wrong.append(f"{found.task}, {name}: a seam in one of the two, rank {first} here, {ranks} in torch")
        return
    if first != ranks[0].rank:
        line = f"{found.task}, {name}: first rank {first:.0f} here, {ranks[0].rank} in torch"
        (found.ties if ranks[0].least <= first <= ranks[0].most else found.wrong).append(line)
    if bool(greedy) != all(own.rank == 0 for own in ranks):
        tie = all(own.least == 0 for own in ranks) and any(own.most > 0 for own in ranks)
        (found.ties if tie else found.wrong).append(f"{found.task}, {name}: greedy_exact is {greedy:.0f} here only")


def judge_texts(found: Sequence[Found], tasks: Sequence[ClozeScores], twin: Twin) -> None:
    """Where texts differ, this engine's tokens are asked for once more, and torch for its logits where they part."""
    if not any(own.texts for own in found):
        return
    generator = Generator(load_model(resolve_model(FLAGS.model), "float32"), twin.tokenizer, twin.ends)
    wanted = [text for task in tasks for text in text_requests(task.source.task.profile, task.asked)]
    generated = iter(generator.run(wanted))
    for own, task in zip(found, tasks, strict=True):
        again = [next(generated) if asked.target is not None else None for asked in task.asked]
        for text in own.texts:
            ours, theirs = again[text.place], text.theirs
            assert ours is not None
            apart = twin.gap(theirs.prompt, tokens_of(ours), theirs.new)
            line = f"{own.task}, {text.name}: {task.generated[text.place]!r} here, {theirs.text!r} in torch"
            (own.ties if apart <= TIE else own.wrong).append(f"{line}, {told(apart)}")


def judge(disputed: Sequence[Disputed], twin: Twin) -> tuple[list[str], list[str]]:
    """(torch's rounding, wrong): every disputed number goes to torch in float64, which takes the float32 model's place."""
    rounding: list[str] = []
    wrong: list[str] = []
    if disputed:
        twin.torch.model.double()
    for where, item, number, here, there in disputed:
        truth = getattr(score(twin, item), number)
        line = f"{where}: {number} {here:.5f} here, {there:.5f} in torch, {truth:.5f} in float64"
        off = abs(here - truth) <= min(TOLERANCE, abs(there - truth))
        (rounding if off else wrong).append(line)
    return rounding, wrong


def text_requests(rules: ClozeProfile, asked: Sequence[ItemRequests]) -> list[TextRequest]:
    """What `miron_jax.run` asks its generator for."""
    scored = (own for own in asked if own.target is not None)
    return [TextRequest(own.prompt, own.num_tokens + rules.extra_tokens, (rules.stop,)) for own in scored]


def told(apart: float) -> str:
    return "of the same tokens" if math.isinf(apart) else f"{apart:.1e} nats apart where they part"


def tokens_of(text: Generated) -> list[int]:
    return [*text.token_ids, EOS] if text.ended == "eos" else [*text.token_ids]


def row(found: Found, seconds: float) -> str:
    largest = "".join(f"{found.largest[number]:>19.1e}" for number in NUMBERS)
    return f"{found.task:26}{found.items:7}{found.seams:7}{found.zeros:7}{largest}{len(found.texts):8}{seconds:8.1f} s"


def report(found: Sequence[Found], rounding: list[str], beyond: list[str], engine_seconds: float) -> None:
    ties, wrong = [line for own in found for line in own.ties], [line for own in found for line in own.wrong] + beyond
    for title, lines in (
        (f"ties, within {TIE:g} nats in torch", ties),
        ("closer to float64 than torch's float32 is", rounding),
        ("WRONG", wrong),
    ):
        print("\n".join([f"{title}: {len(lines)}", *(f"  {line}" for line in lines)]))
    document = {
        "benchmark": "parity_miron",
        "model": Path(FLAGS.model).name,
        "tolerance": TOLERANCE,
        "tie": TIE,
        "tasks": {
            own.task: {
                "items": own.items,
                "unscored": own.unscored,
                "seams": own.seams,
                "card_zeros": own.zeros,
                "largest_difference": own.largest,
                "texts_that_differ": len(own.texts),
            }
            for own in found
        },
        "ties": ties,
        "torch_rounding": rounding,
        "wrong": wrong,
        "engine_seconds": round(engine_seconds, 1),
        "environment": environment(),
    }
    print(json.dumps(document, allow_nan=False))
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    run(main)
