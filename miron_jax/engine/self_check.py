"""The self-check: requests of every program, of several rows, and a share of all are scored by
`plain.py` too, and compared.

Arrives: scores of a request batch, the model.  Leaves: `SelfCheck`, or SelfCheckFailed.  It
deliberately does not know tasks.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.engine.model import Model
from miron_jax.engine.plain import PlainScore, score_plainly
from miron_jax.engine.records import Score, Scores
from miron_jax.model.config import ModelConfig
from miron_jax.model.network import Network
from miron_jax.model.own import OwnModel
from miron_jax.model.own_probe import check_own_model
from miron_jax.planning.records import Plan
from miron_jax.planning.request_batches import RequestBatch
from miron_jax.runtime.answers import Answers
from miron_jax.runtime.devices import Tree
from miron_jax.runtime.progress import SILENT, Progress

# Largest difference in nats per token that rounding may cause between a forest row and a plain row,
# by dtype.  float32 at highest matmul precision: sums of a few thousand terms in another order.
# bfloat16: operands keep 8 bits, and another order of sums moves roundings of the attention
# weights.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25}
# In bfloat16 these errors are a share of the logits, measured from their mean, which cancels: 1/32
# is 4 to 8 units in the last place of the largest.  Measured, logits as they are and up to 100
# times as large: right models reach 1/196 to 1/117 of it (SmolLM2, the demo) and 1/162 to 1/54
# (tiny random ones), a wrong mask, position or token 1/6 and more.
LOGIT_SHARE = 1 / 32
CHECKED_AT_LEAST = 8
CHECKED_SHARE = 1 / 1000
# of a batch's nodes: most tokens of requests that are checked beyond needs and share
CHECKED_TOKENS = 1 / 20
# tokens of a request that is checked for its kind: dense attention takes memory for all pairs
CHECKED_UP_TO = 8192


class SelfCheckFailed(Exception):
    """The engine and the plain scorer disagree: no number of this run can be trusted.  Exit status
    1."""


@dataclass(slots=True)
class SelfCheck:
    """Compares a share of the requests, chosen by hash, with the plain scorer; sums over the
    request batches of a run."""

    tolerance: float  # nats per token, at least
    share: float = 0.0  # of the largest logit, that is the bound where it is more
    # Whether the median over a batch's checked tokens is held to it, not each token: in bfloat16 a
    # near tie of a router sends a few tokens of a mixture to other experts, and no bound holds for
    # those.
    by_median: bool = False
    requests: int = 0
    tokens: int = 0
    largest: float = 0.0  # largest absolute difference so far, nats per token
    largest_bound: float = 0.0  # of the checks so far
    seconds: float = 0.0
    programs: int = 0
    progress: Progress = SILENT

    @classmethod
    def of(
        cls, model: ModelConfig | Network, state: Tree, dtype: str, progress: Progress = SILENT
    ) -> Self:
        """The check of a model's scores.  A user's own weights may be bfloat16 or float16 whatever
        --dtype says."""
        rounded = any(leaf.dtype in (jnp.bfloat16, jnp.float16) for leaf in jax.tree.leaves(state))
        if isinstance(model, OwnModel) and rounded:
            dtype = "bfloat16"
        if dtype == "float32":
            return cls(TOLERANCE[dtype], progress=progress)
        has_experts = isinstance(model, ModelConfig) and model.experts is not None
        return cls(TOLERANCE[dtype], LOGIT_SHARE, by_median=has_experts, progress=progress)

    def bound(self, plain_scores: Iterable[PlainScore]) -> float:
        """What a token of these may differ by, nats."""
        bound = self.tolerance
        for plain in plain_scores if self.share else ():
            sizes = plain.logit_size[np.isfinite(plain.logit_size)]
            bound = max(bound, self.share * float(sizes.max(initial=0.0)))
        self.largest_bound = max(self.largest_bound, bound)
        return bound

    def compare(
        self,
        model: Model,
        batch: RequestBatch,
        scores: Scores,
        judge: bool = True,
        id_sets: Sequence[np.ndarray] = (),
    ) -> None:
        """Raises SelfCheckFailed if a scored token or id set (or the median of them, `by_median`)
        differs by more than the tolerance, or if only one of the two is NaN.  `id_sets`: those that
        the requests name.

        Without `judge` the programs run and nothing is compared: all processes of a mesh that spans
        hosts must run them.
        """
        chosen = chosen_requests(batch)
        of_request = batch.fresh.id_set
        if of_request is None:
            of_request = np.full(len(batch.fresh), -1)
        names: list[str] = []
        requests: list[tuple[np.ndarray, int]] = []
        sets: list[np.ndarray] = []
        for r in chosen:
            names.append(f"request {batch.digests[r].hex()}")
            requests.append((batch.fresh.tokens(r), int(batch.fresh.span_start[r])))
            sets.append(id_sets[of_request[r]] if of_request[r] >= 0 else np.zeros(0, np.int32))
        self.compare_with(model, requests, [scores[r] for r in chosen], names, judge, sets)

    def compare_with(
        self,
        model: Model,
        requests: Sequence[tuple[np.ndarray, int]],
        scores: Sequence[Score],
        names: Sequence[str],
        judge: bool = True,
        id_sets: Sequence[np.ndarray] | None = None,
    ) -> None:
        """The same for these requests: token ids and span start of each, and the ids of its set."""
        start = time.perf_counter()
        self.progress.advance("self-check", 0, len(requests), "requests")
        token_ids = [ids for ids, _ in requests]
        firsts = [first for _, first in requests]
        plain_scores, programs = score_plainly(model, token_ids, firsts, self.progress, id_sets)
        self.progress.end("self-check")
        bound = self.bound(plain_scores)
        differences: list[np.ndarray] = []
        for i, plain in enumerate(plain_scores if judge else ()):
            name = f"{names[i]} ({len(token_ids[i])} tokens)"
            has_set = id_sets is not None and len(id_sets[i]) > 0
            differences.append(self._judge(scores[i], plain, name, has_set, bound))
        if self.by_median and differences:
            median = float(np.median(np.concatenate(differences)))
            if median > bound:
                raise _failed(f"the median of the checked tokens differs by {median:.3g}", bound)
        self.tokens += sum(len(plain.logprob) for plain in plain_scores)
        self.requests += len(requests)
        self.programs += programs
        self.seconds += time.perf_counter() - start

    def probe(self, model: Model) -> Answers:
        """Check that a user's own model satisfies the contract, before anything is scored.  Returns
        its answers to the probe.  Raises InputError."""
        start = time.perf_counter()
        assert isinstance(model.config, OwnModel)
        state = model.on_one_device.state
        answers = check_own_model(model.config, state, self.tolerance, self.share)
        self.seconds += time.perf_counter() - start
        return answers

    def _judge(
        self, score: Score, plain: PlainScore, name: str, has_set: bool, bound: float
    ) -> np.ndarray:
        """The differences of a request's tokens, nats, and of its id set."""
        ours = score.logprob.astype(np.float64)
        theirs = plain.logprob
        if has_set:
            ours = np.append(ours, score.set_logprob)
            theirs = np.append(theirs, plain.set_logprob)
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        with np.errstate(invalid="ignore"):  # infinity less infinity, which `same` has settled
            difference = np.where(same, 0.0, np.abs(ours - theirs))
        worst = float(difference.max())
        if not math.isfinite(worst) or (worst > bound and not self.by_median):
            raise _failed(f"{name} differs by {worst:.3g}", bound)
        self.largest = max(self.largest, worst)
        if self.by_median:
            return difference
        # A margin beyond twice the bound decides whether the token is the most probable one,
        # and the rank must agree.
        clear = np.abs(plain.margin) > 2 * bound
        if (clear & ((score.rank == 0) != (plain.margin > 0))).any():
            raise SelfCheckFailed(
                f"self-check: {name} has a token whose rank {score.rank.tolist()} contradicts its "
                "plain margin; no score of this run can be trusted, please report it"
            )
        return difference


class Unchecked(SelfCheck):
    """A self-check that does nothing, where all scores are compared by other means, or times alone
    count."""

    def compare(self, *_: object, **more: object) -> None: ...


def _failed(what: str, bound: float) -> SelfCheckFailed:
    return SelfCheckFailed(
        f"self-check: {what} nats from its plain score, expected at most {bound:.3g}; no score of "
        "this run can be trusted, please report it"
    )


class _RequestKind(NamedTuple):
    """Requests of a batch of which one may be computed wrongly where others are right."""

    row_length: int  # the compiled program
    has_query: bool  # an id set is summed too
    is_stretched: bool  # the request's length selects other rotary frequencies than a short one's
    is_first: bool  # of the rows of this length
    is_second: bool
    is_last: bool
    has_siblings: bool  # the row has nodes of the same trie before its end that it must not see
    has_strangers: bool  # the row has other tries before it

    @property
    def needs(self) -> set[tuple[object, ...]]:
        """What a checked request of this kind covers of that which every batch must have
        covered."""
        program = ("program", self.row_length, self.has_query, self.is_stretched)
        neighbours = self._with_length("has_siblings", "has_strangers")
        return {program, *neighbours, *((name,) for name, _ in self.wishes)}

    @property
    def wishes(self) -> set[tuple[str, int]]:
        """Of that which is covered as far as CHECKED_TOKENS allows: first, second and last rows of
        each length."""
        return self._with_length("is_first", "is_second", "is_last")

    def _with_length(self, *names: str) -> set[tuple[str, int]]:
        """Those of these traits that it has, each with the length of its row."""
        return {(name, self.row_length) for name in names if getattr(self, name)}


def chosen_requests(batch: RequestBatch) -> list[int]:
    """The requests of a batch that are checked; its plan and digests alone decide, so all hosts and
    a resumed run choose the same.

    A fault may lie in one program, in one row of a batch, or only where a row holds other requests.
    So the longest request is checked, then what covers all `_RequestKind.needs` of the batch, then
    `_RequestKind.wishes`, then a share by the digests.
    """
    scored = np.flatnonzero(np.diff(batch.plan.request_edge_offset))
    num_checked = max(CHECKED_AT_LEAST, math.ceil(CHECKED_SHARE * len(scored)))
    chosen = dict.fromkeys(_covering(batch, scored, num_checked))
    for r in sorted(scored.tolist(), key=batch.digests.__getitem__):
        if len(chosen) >= num_checked:
            break
        chosen[r] = None
    return list(chosen)


def _covering(batch: RequestBatch, scored: np.ndarray, num_checked: int) -> list[int]:
    """The longest request, those that cover the needs of a batch, and those that cover its wishes:
    up to `num_checked`, and beyond as far as CHECKED_TOKENS allows.  `scored`: the requests with a
    scored token."""
    num_tokens = np.diff(batch.fresh.offsets)
    requests = scored[num_tokens[scored] <= CHECKED_UP_TO]
    if not len(requests):
        return []
    # Of each kind the request that ends furthest right in its row: it is long, and has most
    # neighbours.
    columns, slot = _kinds_of(batch.plan, requests)
    digest = np.frombuffer(b"".join(batch.digests[r][:8] for r in requests.tolist()), ">u8")
    order = np.lexsort((digest, -slot))
    requests = requests[order]
    columns = columns[order]
    first = np.sort(np.unique(columns, axis=0, return_index=True)[1])
    waiting = {_RequestKind(*columns[i].tolist()): int(requests[i]) for i in first}

    longest = int(np.argmax(num_tokens[requests]))
    kind = _RequestKind(*columns[longest].tolist())
    chosen = [int(requests[longest])]
    covered = kind.needs | kind.wishes
    spare = CHECKED_TOKENS * batch.plan.unique_tokens
    while waiting:
        kind = max(
            waiting, key=lambda kind: (len(kind.needs - covered), len(kind.wishes - covered))
        )
        r = waiting.pop(kind)
        if kind.needs | kind.wishes <= covered:
            break
        if kind.needs <= covered and len(chosen) >= num_checked:
            if num_tokens[r] > spare:
                continue
            spare -= num_tokens[r]
        chosen.append(r)
        covered |= kind.needs | kind.wishes
    return list(dict.fromkeys(chosen))


def _kinds_of(plan: Plan, requests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64 [n, fields of _RequestKind], the slot of the node before each one's last token)."""
    row = plan.request_row[requests]
    slot = plan.edge_parent[plan.request_edge[plan.request_edge_offset[requests + 1] - 1]]
    node = plan.node_offset[row] + slot
    # every subtrie begins with its requests' first token
    roots = np.flatnonzero(plan.position == 0)
    root = roots[np.searchsorted(roots, node, side="right") - 1]
    rope_class = plan.rope_class[node] if len(plan.rope_class) else np.zeros(len(node), np.int32)

    _, length_idx, count = np.unique(plan.row_length, return_inverse=True, return_counts=True)
    rank = np.empty(plan.num_rows, np.int64)  # of each row among those of its length
    rank[np.argsort(length_idx, kind="stable")] = np.concatenate([*map(np.arange, count)])
    columns = (
        plan.row_length[row],
        plan.request_query[requests] >= 0,
        rope_class > 0,
        rank[row] == 0,
        rank[row] == 1,
        rank[row] == count[length_idx[row]] - 1,
        node - root > plan.position[node],
        root > plan.node_offset[row],
    )
    return np.stack([column.astype(np.int64) for column in columns], axis=1), slot
