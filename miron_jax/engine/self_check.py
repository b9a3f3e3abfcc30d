"""The self-check: a share of the requests is scored by `plain.py` too, and compared.

Arrives: scores of a request batch, the model.  Leaves: `SelfCheck`, or SelfCheckFailed.  It deliberately does not know
tasks.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

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
from miron_jax.planning.request_batches import RequestBatch
from miron_jax.runtime.answers import Answers
from miron_jax.runtime.devices import Tree
from miron_jax.runtime.progress import SILENT, Progress

# Largest difference in nats per token that rounding may cause between a forest row and a plain row, by dtype.  float32 at
# highest matmul precision: sums of a few thousand terms in another order.  bfloat16: operands keep 8 bits, and another
# order of sums moves roundings of the attention weights.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25}
CHECKED_AT_LEAST, CHECKED_SHARE = 8, 1 / 1000


class SelfCheckFailed(Exception):
    """The engine and the plain scorer disagree: no number of this run can be trusted.  Exit status 1."""


@dataclass(slots=True)
class SelfCheck:
    """Compares a share of the requests, chosen by hash, with the plain scorer; sums over the request batches of a run."""

    tolerance: float  # nats per token
    # Whether the median over a batch's checked tokens is held to it, not each token: in bfloat16 a near tie of a router
    # sends a few tokens of a mixture to other experts, and no bound holds for those.
    by_median: bool = False
    requests: int = 0
    tokens: int = 0
    largest: float = 0.0  # largest absolute difference so far, nats per token
    seconds: float = 0.0
    programs: int = 0
    progress: Progress = SILENT

    @classmethod
    def of(cls, model: ModelConfig | Network, state: Tree, dtype: str, progress: Progress = SILENT) -> Self:
        """The check of a model's scores.  A user's own weights may be bfloat16 or float16 whatever --dtype says."""
        rounded = any(leaf.dtype in (jnp.bfloat16, jnp.float16) for leaf in jax.tree.leaves(state))
        tolerance = TOLERANCE["bfloat16" if isinstance(model, Network) and rounded else dtype]
        has_experts = isinstance(model, ModelConfig) and model.experts is not None
        return cls(tolerance, by_median=has_experts and dtype == "bfloat16", progress=progress)

    def compare(self, model: Model, batch: RequestBatch, scores: Scores, judge: bool = True) -> None:
        """Raises SelfCheckFailed if a scored token (or the median of them, `by_median`) differs by more than the tolerance,
        or if only one of the two is NaN.

        Without `judge` the programs run and nothing is compared: all processes of a mesh that spans hosts must run them.
        """
        chosen = chosen_requests(batch)
        names = [f"request {batch.digests[r].hex()}" for r in chosen]
        requests = [(batch.fresh.tokens(r), int(batch.fresh.span_start[r])) for r in chosen]
        self.compare_with(model, requests, [scores[r] for r in chosen], names, judge)

    def compare_with(
        self,
        model: Model,
        requests: Sequence[tuple[np.ndarray, int]],
        scores: Sequence[Score],
        names: Sequence[str],
        judge: bool = True,
    ) -> None:
        """The same for these requests: token ids and span start of each."""
        start = time.perf_counter()
        self.progress.advance("self-check", 0, len(requests), "requests")
        token_ids, firsts = [ids for ids, _ in requests], [first for _, first in requests]
        plain_scores, programs = score_plainly(model, token_ids, firsts, self.progress)
        self.progress.end("self-check")
        differences = [
            self._judge(score, plain, f"{name} ({len(ids)} tokens)")
            for (ids, _), score, plain, name in zip(requests, scores, plain_scores, names, strict=True)
            if judge
        ]
        if self.by_median and differences:
            median = float(np.median(np.concatenate(differences)))
            if median > self.tolerance:
                raise _failed(f"the median of the checked tokens differs by {median:.3g} nats", self.tolerance)
        self.tokens += sum(len(plain.logprob) for plain in plain_scores)
        self.requests += len(requests)
        self.programs += programs
        self.seconds += time.perf_counter() - start

    def probe(self, model: Model) -> Answers:
        """Check that a user's own model satisfies the contract, before anything is scored.  Returns its answers to the
        probe.  Raises InputError."""
        start = time.perf_counter()
        assert isinstance(model.config, OwnModel)
        answers = check_own_model(model.config, model.on_one_device.state, self.tolerance)
        self.seconds += time.perf_counter() - start
        return answers

    def _judge(self, score: Score, plain: PlainScore, name: str) -> np.ndarray:
        """The differences of a request's tokens, nats."""
        same = (score.logprob == plain.logprob) | (np.isnan(score.logprob) & np.isnan(plain.logprob))
        with np.errstate(invalid="ignore"):  # infinity less infinity, which `same` has settled
            difference = np.where(same, 0.0, np.abs(score.logprob.astype(np.float64) - plain.logprob))
        worst = float(difference.max())
        if not math.isfinite(worst) or (worst > self.tolerance and not self.by_median):
            raise _failed(f"{name} differs by {worst:.3g} nats", self.tolerance)
        self.largest = max(self.largest, worst)
        if self.by_median:
            return difference
        # A margin beyond twice the tolerance decides whether the token is the most probable one, and the rank must agree.
        clear = np.abs(plain.margin) > 2 * self.tolerance
        if (clear & ((score.rank == 0) != (plain.margin > 0))).any():
            raise SelfCheckFailed(
                f"self-check: {name} has a token whose rank {score.rank.tolist()} contradicts its plain margin; no score "
                "of this run can be trusted, please report it"
            )
        return difference


def _failed(what: str, tolerance: float) -> SelfCheckFailed:
    return SelfCheckFailed(
        f"self-check: {what} from its plain score, expected at most {tolerance:g}; no score of this run can be trusted, "
        "please report it"
    )


def chosen_requests(batch: RequestBatch) -> list[int]:
    """The requests of a batch that are checked: a share of those with scored tokens, by their digests."""
    scored = np.flatnonzero(np.diff(batch.plan.request_edge_offset)).tolist()
    num_checked = max(CHECKED_AT_LEAST, math.ceil(CHECKED_SHARE * len(scored)))
    return sorted(scored, key=batch.digests.__getitem__)[:num_checked]
