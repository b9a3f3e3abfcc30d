"""Fixed texts, scored in several ways and against an oracle's numbers: does this model score as it
should?

Arrives: a Session, an oracle file.  Leaves: `Verified`.  It deliberately knows no tasks.

The ways, which must agree within the self-check's tolerance a token: the engine's own (texts share
prefixes); one request a row with dense attention; the engine's again, with rows of other lengths,
other row mates and texts cut in two.  The oracle is transformers on torch, whose numbers may be
stored once and read where torch is not: log-probabilities of every token, and the next token's
distribution after each text.
"""

import contextlib
import importlib.util
import json
import math
import random
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from miron_jax.engine.forward import Forward
from miron_jax.engine.plain import PlainScore, score_plainly
from miron_jax.engine.records import Score
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import Unchecked
from miron_jax.errors import InputError
from miron_jax.evaluation.session import Session
from miron_jax.files.readers import JsonObject, parse_json
from miron_jax.files.regular import read_regular
from miron_jax.model.config import RopeClasses
from miron_jax.model.costs import cost_model
from miron_jax.planning.request_batches import Totals
from miron_jax.report.tables.verify import WayDifference
from miron_jax.runtime.progress import SILENT, Progress
from miron_jax.tokens.ragged import offsets_of
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import Tokenizer, encoder, first_tokens, load_tokenizer

SCHEMA = 2
TOP = 64  # of the next token's distribution
# tokens of the long texts: tables of positions and scaled RoPE often end at 1,024 or 4,096
LONG = (1100, 4200)
OTHER_BUDGET = 512  # slots of a batch, where the engine would take as many as the device holds
OTHER_LENGTH = 96  # slots that rows of the second way are longer
MATE_TOKENS = 32  # by which a row mate leaves a text


class Verified(NamedTuple):
    tokens: int
    tolerance: float  # nats; a token's bound is at most this
    differences: list[WayDifference]

    @property
    def wrong(self) -> list[WayDifference]:
        return [each for each in self.differences if each.exceeds]

    def json(self) -> JsonObject:
        ways = [difference._asdict() for difference in self.differences]
        return {"tokens": self.tokens, "tolerance": self.tolerance, "differences": ways}


class VerifiedText(NamedTuple):
    text: str
    most: int  # tokens, special ones included


def texts_for(trained_length: int | None, most: int) -> list[VerifiedText]:
    """The fixed texts, and long ones of LONG tokens, or as many as the model was trained at:
    windows, positions far from the first and scaled RoPE show there.  `most`: tokens that the model
    takes."""
    texts = json.loads(
        files("miron_jax.cli").joinpath("verify_texts.json").read_text(encoding="utf-8")
    )
    words = " ".join([*texts["passages"][:2], texts["paragraph"]]).split()
    chosen = [VerifiedText(passage, most) for passage in texts["passages"]]
    for length in sorted({min(length, trained_length or LONG[0], most) for length in LONG}):
        chosen.append(VerifiedText(f"{texts['paragraph']}{_drawn(words, length)}", length))
    return chosen


def _drawn(words: Sequence[str], count: int) -> str:
    """So many of the words, drawn: a repeated text is so easy to predict that a wrong position
    hardly shows."""
    rng = random.Random(0)
    return " ".join(words[int(rng.random() * len(words))] for _ in range(count))


def token_ids_of(tokenizer: Tokenizer, texts: Sequence[VerifiedText]) -> list[list[int]]:
    """Token ids with the special tokens that the tokenizer puts first, at most `most` of each;
    texts of one token are left out."""
    first = list(first_tokens("as_tokenizer", tokenizer))
    kept: list[list[int]] = []
    encoded = encoder(tokenizer)([text.text for text in texts])
    for ids, text in zip(encoded, texts, strict=True):
        cut = (first + ids)[: text.most]
        if len(cut) > 1:
            kept.append(cut)
    return kept


def verify(
    session: Session,
    budget: int | None = None,
    oracle: JsonObject | None = None,
    name: str = "",
    progress: Progress = SILENT,
) -> Verified:
    """`budget`: of the run, slots of a batch.  Raises InputError for an oracle of other texts."""
    config = session.architecture.config
    tokenizer = session.architecture.tokenizer
    most = min(config.num_positions or 1 << 31, config.trained_length or 1 << 31)
    ids = token_ids_of(tokenizer, texts_for(config.trained_length, most))
    # the plain way compares every token
    session.check = Unchecked(session.check.tolerance, session.check.share)
    if oracle is not None:
        _check_same_texts(oracle, ids, name)
    with _stage(progress, f"{len(ids)} texts as the engine scores them"):
        engine = session.scores(_requests([(each, 1) for each in ids]))
    with _stage(progress, "one request a row, dense attention"):
        plain, bounds = _one_a_row(session, ids, engine)
    differences = [plain]
    with _stage(progress, "other row lengths, cuts and row mates"):
        others = _in_other_rows(session, ids, budget)
    compared = [(other.logprob, other.rank == 0) for other in others]
    differences.append(
        _difference("other row lengths, cuts and row mates", engine, compared, bounds)
    )
    if oracle is not None:
        with _stage(progress, "the oracle's texts"):
            differences.append(_against(session, oracle, engine, bounds))
    return Verified(
        sum(len(score.logprob) for score in engine), session.check.largest_bound, differences
    )


@contextlib.contextmanager
def _stage(progress: Progress, name: str) -> Iterator[None]:
    progress.say(f"{name} ...")
    progress.advance(name)
    yield
    progress.end(name)


SpanRequest = tuple[Sequence[int], int]  # token ids, span start


def _requests(asked: Sequence[SpanRequest]) -> Requests:
    no_flags = np.zeros(len(asked), bool)
    flat: list[int] = []
    lengths: list[int] = []
    starts: list[int] = []
    for ids, start in asked:
        flat.extend(ids)
        lengths.append(len(ids))
        starts.append(start)
    return Requests(
        np.asarray(flat, np.int32),
        offsets_of(lengths),
        np.asarray(starts, np.int32),
        no_flags,
        no_flags,
    )


def _one_a_row(
    session: Session, ids: Sequence[Sequence[int]], engine: Sequence[Score]
) -> tuple[WayDifference, list[np.ndarray]]:
    """The difference, and a bound of each token of each text, nats."""
    import jax

    plain: dict[int, PlainScore] = {}
    # Each padded to the longest of its group: dense attention takes time for all pairs of places.
    groups: tuple[list[int], list[int]] = ([], [])
    for i, each in enumerate(ids):
        groups[len(each) > LONG[0]].append(i)
    with jax.default_matmul_precision("highest"):
        for group in filter(None, groups):
            rows = [np.asarray(ids[i], np.int32) for i in group]
            scores, _ = score_plainly(session.model, rows, [1] * len(group))
            plain |= zip(group, scores, strict=True)
    others: list[_Compared] = []
    bounds: list[np.ndarray] = []
    for i in range(len(ids)):
        bounds.append(session.check.bounds(plain[i].logprob, plain[i].logit_size))
        others.append((plain[i].logprob, plain[i].margin > 0))
    return _difference("one request a row, dense attention", engine, others, bounds), bounds


def _in_other_rows(
    session: Session, ids: Sequence[Sequence[int]], budget: int | None
) -> list[Score]:
    """The same texts in longer rows and batches of another size, each in two requests, with others
    that leave it midway."""
    import jax

    config = session.architecture.config
    parts = [_cut(each, config.rope_classes) for each in ids]
    requests = _requests([*chain(*parts, *map(_mates, ids))])
    cost = cost_model(config)
    longest = cost.max_slots or 1 << 31
    lengths = tuple(
        sorted({min(length + OTHER_LENGTH, longest) for length in session.totals.lengths})
    )
    with jax.default_matmul_precision("highest"):
        forward = Forward(
            session.model, OTHER_BUDGET if budget != OTHER_BUDGET else 2 * OTHER_BUDGET
        )
        check = Unchecked(session.check.tolerance)
        scores = score_request_batches([requests], forward, cost, Totals(), check, lengths=lengths)
        scored = iter([*chain(*scores)])
    return [_joined([*islice(scored, len(of_text))]) for of_text in parts]


def _cut(ids: Sequence[int], rope_classes: RopeClasses | None) -> list[SpanRequest]:
    """A text as two requests whose spans meet in its middle; as one if its beginning alone had
    other RoPE frequencies."""
    middle = len(ids) // 2
    is_same = rope_classes is None or rope_classes.class_of(middle) == rope_classes.class_of(
        len(ids)
    )
    if middle > 1 and is_same:
        return [(ids[:middle], 1), (ids, middle)]
    return [(ids, 1)]


def _mates(ids: Sequence[int]) -> list[SpanRequest]:
    """Requests that begin as a text does and go on with its tokens backwards, from a third and from
    two thirds of it."""
    mates: list[SpanRequest] = []
    for at in filter(None, (len(ids) // 3, 2 * len(ids) // 3)):
        mates.append(([*ids[:at], *ids[:at][::-1][: min(MATE_TOKENS, len(ids) - at)]], at))
    return mates


def _joined(parts: Sequence[Score]) -> Score:
    return Score(
        np.concatenate([part.logprob for part in parts]),
        np.concatenate([part.rank for part in parts]),
    )


# What another way says of a text: nats a token, and whether no token is more probable.
_Compared = tuple[np.ndarray, np.ndarray]


def _difference(
    name: str,
    engine: Sequence[Score],
    other: Sequence[_Compared],
    bounds: Sequence[np.ndarray],
    kl: float | None = None,
) -> WayDifference:
    largest = 0.0
    exceeds = False
    flips = 0
    for ours, (logprob, is_greedy), bound in zip(engine, other, bounds, strict=True):
        difference = _differences(ours.logprob, logprob)
        largest = max(largest, float(difference.max()))
        exceeds |= bool((difference > bound).any())
        flips += int(((ours.rank == 0) != is_greedy).sum())
    return WayDifference(name, largest, exceeds, flips, kl)


def _against(
    session: Session, oracle: JsonObject, engine: Sequence[Score], bounds: Sequence[np.ndarray]
) -> WayDifference:
    stored: list[_Compared] = []
    asked: list[SpanRequest] = []
    for each in oracle["texts"]:
        ids = each["token_ids"]
        asked += [([*ids, token], len(ids)) for token in each["next_ids"]]
        logprobs = np.asarray(each["logprobs"], np.float64)
        stored.append((logprobs, np.asarray(each["greedy"], bool)))
    # A text as long as the model's positions has no room for one more token: its distribution is
    # not asked.
    scores = iter(session.scores(_requests(asked))) if asked else iter(())
    kl = 0.0
    for each in oracle["texts"]:
        if each["next_ids"]:
            ours = [score.logprob[0] for score in islice(scores, len(each["next_ids"]))]
            theirs = np.asarray(each["next_logprobs"], np.float64)
            kl = max(kl, _kl(theirs, np.asarray(ours, np.float64)))
    return _difference(f"{oracle['source']}", engine, stored, bounds, kl)


def _kl(oracle: np.ndarray, ours: np.ndarray) -> float:
    """KL(oracle | ours) in nats over the oracle's TOP tokens and the rest taken as one."""
    rest, rest_ours = (max(1 - float(np.exp(each).sum()), 1e-12) for each in (oracle, ours))
    return float((np.exp(oracle) * (oracle - ours)).sum()) + rest * math.log(rest / rest_ours)


def _differences(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Nats; NaN differs from every number, and so does -inf."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.abs(a.astype(np.float64) - b), nan=math.inf, posinf=math.inf)


# The oracle


def read_oracle(path: Path) -> JsonObject:
    """Raises InputError."""
    try:
        oracle = parse_json(read_regular(path))
        if not isinstance(oracle, dict) or oracle.get("schema") != SCHEMA:
            raise ValueError(
                f"schema {oracle.get('schema') if isinstance(oracle, dict) else None}, expected "
                f"{SCHEMA}"
            )
        for each in oracle["texts"]:
            if len(each["logprobs"]) != len(each["token_ids"]) - 1 or len(each["next_ids"]) != len(
                each["next_logprobs"]
            ):
                raise ValueError("a text has more or fewer numbers than tokens")
        return oracle
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"--against={path} is no file of an oracle's numbers ({error!s:.100}): make one with "
            "verify --write=FILE"
        ) from None


def _check_same_texts(oracle: JsonObject, ids: Sequence[Sequence[int]], name: str) -> None:
    """Another tokenizer, or another BOS, gives other tokens."""
    stored = [each["token_ids"] for each in oracle["texts"]]
    for i, (ours, theirs) in enumerate(zip(ids, stored, strict=False)):
        if list(ours) != theirs:
            at = next(
                (j for j, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
                min(len(ours), len(theirs)),
            )
            raise InputError(
                f"--against={name}: text {i} has other tokens there, from token {at} on: "
                f"{theirs[at : at + 3]} instead of {list(ours[at : at + 3])}: the tokenizer or its "
                "first token (BOS) is another one"
            )
    if len(ids) != len(stored):
        raise InputError(
            f"--against={name}: it holds {len(stored)} texts, expected {len(ids)}: make it again "
            "with --write"
        )


def oracle_of(folder: Path, trained_length: int | None, most: int) -> JsonObject:
    """What transformers computes in float32, on the ids of the folder's tokenizer.  Raises
    InputError without torch."""
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "--write makes the oracle with torch, which is not installed: pip install "
            '"miron-jax[oracle]", or run it elsewhere'
        )
    import torch
    import transformers

    tokenizer = load_tokenizer(str(folder))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    texts = []
    for text in texts_for(trained_length, most):
        ids = tokenizer(text.text)["input_ids"][: text.most]
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
