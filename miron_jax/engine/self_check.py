"""The self-check: some requests are scored by `plain.py` too, and compared.

Arrives: scores of a request batch, the model.  Leaves: `SelfCheck`, or SelfCheckFailed.  It
deliberately does not know tasks.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Compiled

from miron_jax.engine.checked_requests import CheckedRequests, Choices
from miron_jax.engine.model import Model
from miron_jax.engine.plain import (
    PlainProgram,
    PlainRow,
    PlainScore,
    launch_plainly,
    moved_by_rounding,
)
from miron_jax.engine.records import Score, Scores
from miron_jax.errors import SelfCheckFailed
from miron_jax.model.config import ModelConfig
from miron_jax.model.network import Network, rounding_bounds
from miron_jax.model.own import OwnModel
from miron_jax.model.own_probe import check_own_model
from miron_jax.planning.request_batches import RequestBatch
from miron_jax.runtime.answers import Answers
from miron_jax.runtime.compiling import in_thread
from miron_jax.runtime.devices import Placement, Tree
from miron_jax.runtime.progress import SILENT, Progress
from miron_jax.runtime.timeline import spent_on

# Largest difference in nats per token that rounding may cause between a forest row and a plain row,
# by dtype.  float32 at highest matmul precision: sums of a few thousand terms in another order.
# bfloat16: operands keep 8 bits, and another order of sums moves roundings of the attention
# weights.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25}
# In bfloat16 these errors are a share of the logits, measured from their mean, which cancels: 1/32
# is 4 to 8 units in the last place of the largest.  Measured, logits as they are and up to 100
# times as large: right models reach 1/196 to 1/117 of it (SmolLM2, the demo) and 1/162 to 1/54
# (tiny random ones), a wrong mask, position or token 1/6 and more.
# In float32 right models reach 2**-20, and a common factor of the logits moves that by nothing.
LOGIT_SHARE = {"float32": 2**-16, "bfloat16": 1 / 32}
# A token whose log-probability hangs on a difference of large activations moves by nats where any
# weight is rounded otherwise: SmolLM2 in bfloat16 has 8 such among 1,239 tokens of random texts
# right behind the BOS, where this engine and plain rows differ by 0.4 to 2 times what the largest
# of three draws moves.
ROUNDING_FACTOR = 3.0
ENTROPY_BOUND = 8.0  # ln V / 2 + 1 of a million tokens: see `_judge_distribution`


class _Launched(NamedTuple):
    """Requests whose plain scores are on their way."""

    names: list[str]
    has_set: list[bool]
    rows: Iterable[PlainRow]
    # of the request of this place: nats that rounding moves its tokens by
    moved: Callable[[int], np.ndarray]


@dataclass(slots=True)
class SelfCheck:
    """Compares a share of the requests, chosen by hash, with the plain scorer; sums over the
    request batches of a run."""

    tolerance: float  # nats per token, at least
    share: float = 0.0  # of its position's largest logit, that is a token's bound where it is more
    # Whether the median over a batch's checked tokens is held to it, not each token: in bfloat16 a
    # near tie of a router sends a few tokens of a mixture to other experts, and no bound holds for
    # those.
    by_median: bool = False
    requests: int = 0
    tokens: int = 0
    largest: float = 0.0  # largest absolute difference so far, nats per token
    largest_bound: float = 0.0  # of the checks so far
    seconds: float = 0.0
    progress: Progress = SILENT
    # of batches of which earlier weights have passed, and these; None: batches are not kept
    kept: Choices | None = None
    turn: int = 0  # the number of these weights
    _passing: Choices = field(default_factory=dict)  # of batches that are being checked
    _checked: CheckedRequests | None = None  # None: no batch has come yet
    # length of a plain row -> its program, which a thread compiles
    _compiling: dict[int, Future[object]] = field(default_factory=dict)
    # by the batch's identity: its requests, while it is scored
    _prepared: dict[int, list[int]] = field(default_factory=dict)
    _launched: dict[int, tuple[list[int], _Launched]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, model: ModelConfig | Network, state: Tree, dtype: str, progress: Progress = SILENT
    ) -> Self:
        """The check of a model's scores.  A user's own weights may be bfloat16 or float16 whatever
        --dtype says."""
        rounded = any(leaf.dtype in (jnp.bfloat16, jnp.float16) for leaf in jax.tree.leaves(state))
        if isinstance(model, OwnModel) and rounded:
            dtype = "bfloat16"
        has_experts = isinstance(model, ModelConfig) and model.experts is not None
        by_median = has_experts and dtype == "bfloat16"
        return cls(TOLERANCE[dtype], LOGIT_SHARE[dtype], by_median, progress=progress)

    def bounds(self, logprob: np.ndarray, logit_size: np.ndarray) -> np.ndarray:
        """What each of these may differ by, nats."""
        bounds = rounding_bounds(self.tolerance, self.share, logprob, logit_size)
        self.largest_bound = max(self.largest_bound, float(bounds.max(initial=self.tolerance)))
        return bounds

    @property
    def programs(self) -> int:
        return 0 if self._checked is None else len(self._checked.lengths)

    @spent_on("self_check")
    def prepare(self, model: Model, batch: RequestBatch, processes: int = 1) -> None:
        """Choose the requests of a batch that will be compared, and compile what scores them in
        threads while the batch is scored.  `processes`: the number that share the rows."""
        if self.kept is not None and id(batch) in self.kept:
            # earlier weights have compiled what scores them
            chosen, checked = self._passing[id(batch)] = self.kept.pop(id(batch))
            self._checked = replace(checked)
            # a median of a few tokens is no median
            self._prepared[id(batch)] = (
                chosen if self.by_median else checked.later(chosen, self.turn)
            )
            return
        checked = self._checked_of(model, processes)
        self._prepared[id(batch)] = chosen = checked.choose(batch)
        self._passing[id(batch)] = chosen, replace(checked)
        # on a mesh that spans hosts all compile in the same order
        if model.placement is not None and not model.placement.is_global:
            for length in sorted(checked.lengths - self._compiling.keys()):
                self._compiling[length] = in_thread(PlainProgram(model, length).compile)

    def compile(self, model: Model) -> list[Compiled]:
        """The programs for the requests that were chosen so far."""
        lengths = sorted(self._checked_of(model).lengths)
        return [PlainProgram(model, length).compile() for length in lengths]

    def _checked_of(self, model: Model, processes: int = 1) -> CheckedRequests:
        if self._checked is None:
            self._checked = CheckedRequests.of(model.config, _placement_of(model), processes)
        return self._checked

    @spent_on("self_check")
    def launch(self, model: Model, batch: RequestBatch, id_sets: Sequence[np.ndarray] = ()) -> None:
        """Start what scores the chosen requests of a batch, for `compare`.  `id_sets`: those that
        the requests name."""
        chosen = self._prepared.pop(id(batch), None)
        if chosen is None:
            chosen = self._checked_of(model).choose(batch)
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
        launched = self._launch(model, requests, names, sets)
        # a CPU would run them side by side, each with memory of its own
        if _placement_of(model).device.platform != "cpu":
            launched = launched._replace(rows=[*launched.rows])
        self._launched[id(batch)] = chosen, launched

    @spent_on("self_check")
    def compare(
        self,
        model: Model,
        batch: RequestBatch,
        scores: Scores,
        judge: bool = True,
        id_sets: Sequence[np.ndarray] = (),
    ) -> None:
        """Raises SelfCheckFailed if a scored token or id set (or the median of them, `by_median`)
        differs by more than the tolerance, or if only one of the two is NaN.

        Without `judge` the programs run and nothing is compared: all processes of a mesh that spans
        hosts must run them.
        """
        if id(batch) not in self._launched:
            self.launch(model, batch, id_sets)
        chosen, launched = self._launched.pop(id(batch))
        tells = self._compare(launched, [scores[r] for r in chosen], judge)
        if self.kept is not None and tells and id(batch) in self._passing:
            self.kept[id(batch)] = self._passing.pop(id(batch))

    @spent_on("self_check")
    def compare_with(
        self,
        model: Model,
        requests: Sequence[tuple[np.ndarray, int]],
        scores: Sequence[Score],
        names: Sequence[str],
    ) -> None:
        """The same for these requests: token ids and span start of each."""
        no_sets = [np.zeros(0, np.int32)] * len(requests)
        self._compare(self._launch(model, requests, names, no_sets), scores, judge=True)

    def _launch(
        self,
        model: Model,
        requests: Sequence[tuple[np.ndarray, int]],
        names: Sequence[str],
        id_sets: Sequence[np.ndarray],
    ) -> _Launched:
        start = time.perf_counter()
        token_ids = [ids for ids, _ in requests]
        firsts = [first for _, first in requests]
        lengths = self._checked_of(model).lengths_of([*map(len, token_ids)])
        for length in self._compiling.keys() & lengths:
            self._compiling[length].result()
        rows = launch_plainly(model, token_ids, firsts, lengths, id_sets)
        self.seconds += time.perf_counter() - start
        sized = [f"{name} ({len(ids)} tokens)" for name, ids in zip(names, token_ids, strict=True)]

        @cache
        def moved(i: int) -> np.ndarray:
            if self.tolerance <= TOLERANCE["float32"]:
                return np.zeros(1)
            try:
                return moved_by_rounding(model, token_ids[i], firsts[i], lengths[i], id_sets[i])
            except jax.errors.JaxRuntimeError as error:  # no room for the weights a second time
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                return np.zeros(1)

        return _Launched(sized, [len(ids) > 0 for ids in id_sets], rows, moved)

    def _compare(self, launched: _Launched, scores: Sequence[Score], judge: bool) -> bool:
        """Whether the plain scores tell rows apart: of NaN weights, or of a head of zeros, they are
        the same whatever a row holds."""
        start = time.perf_counter()
        names, has_set, rows, moved = launched
        self.progress.advance("self-check", 0, len(names), "requests")
        differences: list[np.ndarray] = []
        logprobs: list[np.ndarray] = []
        for i, row in enumerate(rows):
            plain = row.read()
            logprobs.append(plain.logprob)
            self.tokens += len(plain.logprob)
            self.progress.advance("self-check", i + 1, len(names), "requests")
            if judge:
                of_request = scores[i], plain, names[i], partial(moved, i)
                differences.append(self._judge(*of_request, has_set[i]))
                if plain.distribution.size and not self.by_median:
                    self._judge_distribution(*of_request)
        self.progress.end("self-check")
        if self.by_median and differences:
            difference, bounds = np.concatenate(differences, axis=1)
            middle = np.argsort(difference / bounds)[len(bounds) // 2]
            if difference[middle] > bounds[middle]:
                what = f"the median of the checked tokens differs by {difference[middle]:.3g}"
                raise _failed(what, bounds[middle])
        self.requests += len(names)
        self.seconds += time.perf_counter() - start
        every = np.concatenate([np.zeros(0), *logprobs])
        with np.errstate(invalid="ignore"):  # infinity less infinity
            return bool((np.abs(every - every[:1]) > self.tolerance).any())

    @spent_on("self_check")
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
        self,
        score: Score,
        plain: PlainScore,
        name: str,
        moved: Callable[[], np.ndarray],
        has_set: bool,
    ) -> np.ndarray:
        """(differences, bounds) of a request's tokens, nats, and of its id set [2, N].  `moved`: by
        how much rounding moves them, asked where one is beyond its bound."""
        ours = score.logprob.astype(np.float64)
        theirs = plain.logprob
        sizes = plain.logit_size
        if has_set:
            ours = np.append(ours, score.set_logprob)
            theirs = np.append(theirs, plain.set_logprob)
            sizes = np.append(sizes, sizes[0])
        bounds = self.bounds(theirs, sizes)
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        with np.errstate(invalid="ignore"):  # infinity less infinity, which `same` has settled
            difference = np.where(same, 0.0, np.abs(ours - theirs))
        if not self.by_median and (difference > bounds).any():
            bounds = np.maximum(bounds, ROUNDING_FACTOR * moved())
        excess = difference / bounds
        worst = float(excess.max(initial=0.0))
        if not math.isfinite(worst) or (worst > 1 and not self.by_median):
            at = int(excess.argmax())
            raise _failed(f"{name} differs by {difference[at]:.3g}", bounds[at])
        self.largest = max(self.largest, float(difference.max(initial=0.0)))
        if self.by_median:
            return np.stack([difference, bounds])
        # A margin beyond twice the bound decides whether the token is the most probable one,
        # and the rank must agree.
        clear = np.abs(plain.margin) > 2 * bounds[: len(plain.margin)]
        if (clear & ((score.rank == 0) != (plain.margin > 0))).any():
            raise SelfCheckFailed(
                f"self-check: {name} has a token whose rank {score.rank.tolist()} contradicts its "
                "plain margin; no score of this run can be trusted, please report it"
            )
        return np.stack([difference, bounds])

    def _judge_distribution(
        self, score: Score, plain: PlainScore, name: str, moved: Callable[[], np.ndarray]
    ) -> None:
        """Compare largest log-probabilities, entropies and variances of log p: where all logits
        differ by b at most, an entropy differs by b times the deviation of log p, which is below
        ln V / 2 + 1, and a variance v by b (2 v + 2 sqrt(v))."""
        bounds = self.bounds(plain.distribution[:, 1], plain.logit_size)
        difference = np.abs(score.distribution - plain.distribution)
        difference[np.isnan(score.distribution) & np.isnan(plain.distribution)] = 0.0
        of_variance = 2 * (1 + np.sqrt(np.maximum(plain.distribution[:, 2], 0))) ** 2
        ones = np.ones(len(bounds))
        shares = np.stack([ENTROPY_BOUND * ones, ones, of_variance], axis=1)
        if (difference > bounds[:, None] * shares).any():
            bounds = np.maximum(bounds, ROUNDING_FACTOR * moved()[: len(bounds)])
        bounds = bounds[:, None] * shares
        wrong = np.flatnonzero(~(difference <= bounds))
        if len(wrong):
            what = f"{name} has an entropy, largest log-probability or variance that differs by"
            raise _failed(f"{what} {difference.flat[wrong[0]]:.3g}", bounds.flat[wrong[0]])


class Unchecked(SelfCheck):
    """A self-check that does nothing, where all scores are compared by other means, or times alone
    count."""

    def prepare(self, *_: object) -> None: ...

    def launch(self, *_: object, **more: object) -> None: ...

    def compare(self, *_: object, **more: object) -> None: ...


def _placement_of(model: Model) -> Placement:
    return model.placement or Placement.of(model.state)


def _failed(what: str, bound: float) -> SelfCheckFailed:
    return SelfCheckFailed(
        f"self-check: {what} nats from its plain score, expected at most {bound:.3g}; no score of "
        "this run can be trusted, please report it"
    )
