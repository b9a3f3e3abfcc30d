"""A share of the requests scored the plain way too, and compared.

Arrives: scores of a planned batch, the model.  Leaves: `SelfCheck`, or SelfCheckFailed.  It deliberately does not
know tasks.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.engine.model import Model
from miron_jax.engine.plain import PlainScore, score_plainly
from miron_jax.engine.records import Score, Scores
from miron_jax.model.config import ModelConfig
from miron_jax.model.own import OwnModel, check_own
from miron_jax.planning.request_batches import PlannedPart
from miron_jax.runtime.answers import Answers

# Largest difference in nats a token that rounding may cause between a forest row and a plain row, by dtype.  float32 at
# highest matmul precision: sums of a few thousand terms in another order.  bfloat16: operands keep 8 bits, and a
# different order of sums moves roundings of the attention weights.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25}
CHECKED_AT_LEAST, CHECKED_SHARE = 8, 1 / 1000


class SelfCheckFailed(Exception):
    """The fast path and the plain path disagree: no number of this run can be trusted.  Exit status 1."""


@dataclass(slots=True)
class SelfCheck:
    """Scores a share of the requests, chosen by hash, the plain way, and compares.  Sums over the parts of a run."""

    tolerance: float  # nats a token
    requests: int = 0
    tokens: int = 0
    largest: float = 0.0  # largest absolute difference so far, nats a token
    seconds: float = 0.0
    programs: int = 0

    def compare(self, model: Model, part: "PlannedPart", scores: Scores, judge: bool = True) -> None:
        """Raises SelfCheckFailed where a scored token differs by more than the tolerance, or only one of the two is NaN.

        Without `judge` only the programs run, which all processes of a mesh that spans hosts must.
        """
        scored = np.flatnonzero(np.diff(scores.offsets)).tolist()
        wanted = max(CHECKED_AT_LEAST, math.ceil(CHECKED_SHARE * len(scored)))
        chosen = sorted(scored, key=part.digests.__getitem__)[:wanted]
        names = [f"request {part.digests[r].hex()}" for r in chosen]
        asked = [(part.fresh.tokens(r), int(part.fresh.span_start[r])) for r in chosen]
        self.compare_with(model, asked, [scores[r] for r in chosen], names, judge)

    def compare_with(
        self,
        model: Model,
        asked: Sequence[tuple[np.ndarray, int]],
        scores: Sequence[Score],
        names: Sequence[str],
        judge: bool = True,
    ) -> None:
        """The same of these requests: token ids and where the span begins."""
        start = time.perf_counter()
        plain, programs = score_plainly(model, [ids for ids, _ in asked], [first for _, first in asked])
        for (ids, _), score, other, name in zip(asked, scores, plain, names, strict=True):
            if judge:
                self._judge(score, other, f"{name} ({len(ids)} tokens)")
            self.tokens += len(other.logprob)
        self.requests += len(asked)
        self.programs += programs
        self.seconds += time.perf_counter() - start

    def probe(self, model: Model) -> Answers:
        """Whether a user's own model keeps its word, before anything is scored; what it answers.  Raises InputError."""
        start = time.perf_counter()
        assert isinstance(model.config, OwnModel)
        answers = check_own(model.config, model.on_one_device.state, self.tolerance)
        self.seconds += time.perf_counter() - start
        return answers

    def _judge(self, score: Score, plain: PlainScore, name: str) -> None:
        same = (score.logprob == plain.logprob) | (np.isnan(score.logprob) & np.isnan(plain.logprob))
        with np.errstate(invalid="ignore"):  # infinity less infinity, which `same` has settled
            difference = np.where(same, 0.0, np.abs(score.logprob.astype(np.float64) - plain.logprob))
        worst = float(difference.max())
        if not worst <= self.tolerance:
            raise SelfCheckFailed(
                f"self-check: {name} differs by {worst:.3g} nats from its plain score, expected at most "
                f"{self.tolerance:g}; no score of this run can be trusted, please report it"
            )
        # Where the margin over every other token is clear, the rank must say the same.
        clear = np.abs(plain.margin) > 2 * self.tolerance
        if (clear & ((score.rank == 0) != (plain.margin > 0))).any():
            raise SelfCheckFailed(
                f"self-check: {name} has a token whose rank {score.rank.tolist()} contradicts its plain margin; no score "
                "of this run can be trusted, please report it"
            )
        self.largest = max(self.largest, worst)


def tolerance_of(model: ModelConfig | OwnModel, state: Any, dtype: str) -> float:
    """Nats a token; a user's own weights may be rounded whatever --dtype says."""
    rounded = any(leaf.dtype in (jnp.bfloat16, jnp.float16) for leaf in jax.tree.leaves(state))
    return TOLERANCE["bfloat16" if isinstance(model, OwnModel) and rounded else dtype]
