"""Fixed texts, scored in several ways and against an oracle's numbers: does this model score as it should?

Arrives: a Session, an oracle file.  Leaves: `Verified`.  It deliberately knows no tasks.

The ways, which must agree within the self-check's tolerance a token: the engine's own (texts share prefixes); one request a
row with dense attention; another order with another batch budget.  The oracle is transformers on torch, whose numbers may be
stored once and read where torch is not: log-probabilities of every token, and the next token's distribution after each text.
"""

import importlib.util
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from miron_jax.engine.forward import Forward
from miron_jax.engine.plain import score_plainly
from miron_jax.engine.records import Score
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import SelfCheck
from miron_jax.errors import InputError
from miron_jax.evaluation.session import Session
from miron_jax.files.readers import JsonObject, parse_json
from miron_jax.model.costs import cost_model
from miron_jax.planning.request_batches import Totals
from miron_jax.tokens.ragged import offsets_of
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import encoder, first_tokens, load_tokenizer

SCHEMA = 1
TOP = 64  # of the next token's distribution
OTHER_BUDGET = 512  # slots of a batch, where the engine would take as many as the device holds


class Difference(NamedTuple):
    """One way of scoring against another."""

    name: str
    largest: float  # nats a token
    flips: int  # tokens of which one way says that they are the most probable one, and the other does not
    kl: float | None = None  # nats, largest over the texts; None: not asked


class Verified(NamedTuple):
    tokens: int
    tolerance: float  # nats a token
    differences: list[Difference]

    @property
    def wrong(self) -> list[Difference]:
        return [own for own in self.differences if not own.largest <= self.tolerance]

    def json(self) -> JsonObject:
        ways = [difference._asdict() for difference in self.differences]
        return {"tokens": self.tokens, "tolerance": self.tolerance, "differences": ways}


def texts_for(trained_length: int | None) -> list[str]:
    """The fixed texts, and one about as long as the model was trained at, at most 1,000 tokens: windows, positions far
    from the first and scaled RoPE show at its end."""
    texts = json.loads(files("miron_jax.cli").joinpath("verify_texts.json").read_text(encoding="utf-8"))
    length = min(trained_length or 1000, 1000)
    return [*texts["passages"], texts["paragraph"] * max(1, int(length * 3.5) // len(texts["paragraph"]))]


def token_ids_of(tokenizer: Any, texts: Sequence[str], most: int) -> list[list[int]]:
    """Token ids with the special tokens that the tokenizer puts first, at most `most` of each; texts of one token are left
    out."""
    first = list(first_tokens("as_tokenizer", tokenizer))
    ids = [(first + own)[:most] for own in encoder(tokenizer)(list(texts))]
    return [own for own in ids if len(own) > 1]


def verify(session: Session, budget: int | None = None, oracle: JsonObject | None = None, name: str = "") -> Verified:
    """`budget`: of the run, slots of a batch.  Raises InputError for an oracle of other texts, and SelfCheckFailed."""
    config, tokenizer = session.architecture.config, session.architecture.tokenizer
    most = min(config.num_positions or 1 << 31, config.trained_length or 1 << 31)
    ids = token_ids_of(tokenizer, texts_for(config.trained_length), most)
    if oracle is not None:
        _check_same_texts(oracle, ids, name)
    own = _scored(session, ids)
    found = [
        _one_a_row(session, ids, own),
        _difference("another order, batches of other sizes", own, _in_other_batches(session, ids, budget)),
    ]
    if oracle is not None:
        found.append(_against(session, oracle, own))
    return Verified(sum(len(score.logprob) for score in own), session.check.tolerance, found)


def _scored(session: Session, ids: Sequence[Sequence[int]]) -> list[Score]:
    return session.scores(_requests(ids, [1] * len(ids)))


def _requests(ids: Sequence[Sequence[int]], start: Sequence[int]) -> Requests:
    no_flags = np.zeros(len(ids), bool)
    flat = np.concatenate([np.asarray(own, np.int32) for own in ids])
    return Requests(flat, offsets_of([len(own) for own in ids]), np.asarray(start, np.int32), no_flags, no_flags)


def _one_a_row(session: Session, ids: Sequence[Sequence[int]], own: Sequence[Score]) -> Difference:
    import jax

    with jax.default_matmul_precision("highest"):
        plain, _ = score_plainly(session.model, [np.asarray(each, np.int32) for each in ids], [1] * len(ids))
    largest = max(_largest(a.logprob, b.logprob) for a, b in zip(own, plain, strict=True))
    flips = sum(int(((a.rank == 0) != (b.margin > 0)).sum()) for a, b in zip(own, plain, strict=True))
    return Difference("one request a row, dense attention", largest, flips)


def _in_other_batches(session: Session, ids: Sequence[Sequence[int]], budget: int | None) -> list[Score]:
    """The same texts backwards, in batches of another size."""
    import jax

    other = OTHER_BUDGET if budget != OTHER_BUDGET else 2 * OTHER_BUDGET
    with jax.default_matmul_precision("highest"):
        forward = Forward(session.model, other)
        check = SelfCheck(session.check.tolerance, session.check.by_median)
        requests, cost = _requests(ids[::-1], [1] * len(ids)), cost_model(session.architecture.config)
        scores = score_request_batches([requests], forward, cost, Totals(), check)
        return [score for part in scores for score in part][::-1]


def _difference(name: str, own: Sequence[Score], other: Sequence[Score]) -> Difference:
    largest = max(_largest(a.logprob, b.logprob) for a, b in zip(own, other, strict=True))
    return Difference(
        name, largest, sum(int(((a.rank == 0) != (b.rank == 0)).sum()) for a, b in zip(own, other, strict=True))
    )


def _against(session: Session, oracle: JsonObject, own: Sequence[Score]) -> Difference:
    stored = [np.asarray(each["logprobs"], np.float64) for each in oracle["texts"]]
    largest = max(_largest(a.logprob, b) for a, b in zip(own, stored, strict=True))
    greedy = [np.asarray(each["greedy"], bool) for each in oracle["texts"]]
    flips = sum(int(((a.rank == 0) != b).sum()) for a, b in zip(own, greedy, strict=True))
    ids = [[*each["token_ids"], token] for each in oracle["texts"] for token in each["next_ids"]]
    start = [len(each["token_ids"]) for each in oracle["texts"] for _ in each["next_ids"]]
    # A text as long as the model's positions has no room for one more token: its distribution is not asked.
    scores = iter(session.scores(_requests(ids, start))) if ids else iter(())
    kl = 0.0
    for each in oracle["texts"]:
        if each["next_ids"]:
            ours = np.asarray([next(scores).logprob[0] for _ in each["next_ids"]], np.float64)
            kl = max(kl, _kl(np.asarray(each["next_logprobs"], np.float64), ours))
    return Difference(f"{oracle['source']}", largest, flips, kl)


def _kl(oracle: np.ndarray, ours: np.ndarray) -> float:
    """KL(oracle | ours) in nats over the oracle's TOP tokens and the rest taken as one."""
    rest = [max(1 - float(np.exp(own).sum()), 1e-12) for own in (oracle, ours)]
    return float((np.exp(oracle) * (oracle - ours)).sum()) + rest[0] * math.log(rest[0] / rest[1])


def _largest(a: np.ndarray, b: np.ndarray) -> float:
    difference = np.abs(a.astype(np.float64) - b)
    return math.inf if np.isnan(difference).any() else float(difference.max())


# The oracle


def read_oracle(path: Path) -> JsonObject:
    """Raises InputError."""
    try:
        oracle = parse_json(path.read_bytes())
        if not isinstance(oracle, dict) or oracle.get("schema") != SCHEMA:
            raise ValueError(f"schema {oracle.get('schema') if isinstance(oracle, dict) else None}, expected {SCHEMA}")
        for own in oracle["texts"]:
            if len(own["logprobs"]) != len(own["token_ids"]) - 1 or len(own["next_ids"]) != len(own["next_logprobs"]):
                raise ValueError("a text has more or fewer numbers than tokens")
        return oracle
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"--against={path} is no file of an oracle's numbers ({error!s:.100}): make one with verify --write=FILE"
        ) from None


def _check_same_texts(oracle: JsonObject, ids: Sequence[Sequence[int]], name: str) -> None:
    """Another tokenizer, or another BOS, gives other tokens."""
    stored = [own["token_ids"] for own in oracle["texts"]]
    for i, (ours, theirs) in enumerate(zip(ids, stored, strict=False)):
        if list(ours) != theirs:
            at = next(
                (j for j, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
            )
            raise InputError(
                f"--against={name}: text {i} has other tokens there, from token {at} on: {theirs[at : at + 3]} instead "
                f"of {list(ours[at : at + 3])}: the tokenizer or its first token (BOS) is another one"
            )
    if len(ids) != len(stored):
        raise InputError(
            f"--against={name}: it holds {len(stored)} texts, expected {len(ids)}: make it again with --write"
        )


def oracle_of(folder: Path, trained_length: int | None, most: int) -> JsonObject:
    """What transformers computes in float32, on the ids of the folder's tokenizer.  Raises InputError without torch."""
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "--write makes the oracle with torch, which is not installed: pip install miron-jax[oracle], or run it elsewhere"
        )
    import torch
    import transformers

    tokenizer = load_tokenizer(str(folder))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    texts = []
    for text in texts_for(trained_length):
        ids = tokenizer(text)["input_ids"][:most]
        if len(ids) < 2:
            continue
        with torch.no_grad():
            logprobs = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        targets = torch.tensor(ids[1:])
        top = logprobs[-1].topk(min(TOP, logprobs.shape[-1]))
        has_room = len(ids) < most
        texts.append(
            {
                "token_ids": ids,
                "logprobs": logprobs[:-1].gather(1, targets[:, None])[:, 0].tolist(),
                "greedy": (logprobs[:-1].argmax(-1) == targets).tolist(),
                "next_ids": top.indices.tolist() if has_room else [],
                "next_logprobs": top.values.tolist() if has_room else [],
            }
        )
    source = f"transformers {transformers.__version__}, torch {torch.__version__}, float32"
    return {"schema": SCHEMA, "source": source, "texts": texts}


def oracle_json(oracle: JsonObject) -> str:
    return json.dumps(oracle)
