"""The tasks of a run, ready to be tokenized and planned for one model.

Arrives: a validated RunConfig, the `Inputs` of its tasks, a model's architecture.  Leaves: request
batches with their plans, or the size of a run that is only planned.  It deliberately does not know
weights.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from types import MappingProxyType
from typing import NamedTuple

from miron_jax.config import RunConfig
from miron_jax.engine.records import Scores
from miron_jax.errors import InputError
from miron_jax.evaluation.parts import Survey, parts_of, requests_of, survey
from miron_jax.evaluation.records import Inputs
from miron_jax.evaluation.task_kinds.choice import ChoiceKind
from miron_jax.evaluation.task_kinds.controls import ControlsKind
from miron_jax.evaluation.task_kinds.draws import further_draws
from miron_jax.evaluation.task_kinds.interface import (
    Setup,
    TaskKind,
    TaskScores,
    TokenizedExamples,
)
from miron_jax.evaluation.task_kinds.kinds import kind_of
from miron_jax.evaluation.task_kinds.prompted import PromptedKind
from miron_jax.files.kept import Job
from miron_jax.model.checkpoints.checkpoints import (
    Architecture,
    architecture_of,
    find_model,
)
from miron_jax.model.config import ModelConfig
from miron_jax.model.costs import cost_model, useful_flops
from miron_jax.model.network import Network
from miron_jax.planning.request_batches import EnteredBatch, RequestBatch, RequestPlanner, Totals
from miron_jax.runtime.progress import SILENT, Progress
from miron_jax.runtime.shared_arrays import SharedArrays
from miron_jax.runtime.timeline import spent_on
from miron_jax.tokens.chats import Chat
from miron_jax.tokens.ragged import offsets_of
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import resolve_bos
from miron_jax.tokens.truncation import LengthLimit

SCORING_PROGRAMS = 8  # at most so many row lengths in a run, each compiled once
GENERATION_PROGRAMS = 2  # fewer in a run that generates long texts, for prefill and steps


def length_limit(config: RunConfig, model: ModelConfig | Network) -> LengthLimit:
    """The user's limit, or each suite's own, and never more than the model's learned positions.
    Raises InputError."""
    learned = model.num_positions or None
    if config.max_length and learned and config.max_length > learned:
        raise InputError(
            f"--max_length is {config.max_length}, but the model has {learned} learned positions: "
            "lower it"
        )
    return LengthLimit(config.max_length, learned, model.trained_length)


class RunTasks(NamedTuple):
    """The tasks of a run, ready to be tokenized and planned for one model."""

    model: ModelConfig | Network
    setup: Setup
    kinds: list[TaskKind]  # one per task
    shared: SharedArrays | None = None  # with the other processes; None: each makes all
    controls: Sequence[ControlsKind] = ()  # of those tasks that have some
    draws: Mapping[int, Sequence[PromptedKind]] = MappingProxyType({})  # task -> its further draws

    @classmethod
    @spent_on("tokenize")
    def of(
        cls,
        config: RunConfig,
        inputs: Inputs,
        architecture: Architecture,
        shared: SharedArrays | None = None,
    ) -> "RunTasks":
        """`shared`: instead of what `inputs` keeps.  Raises InputError."""
        model = architecture.config
        tokenizer = architecture.tokenizer
        limit = length_limit(config, model)
        table = TokenBytes(tokenizer, model.vocab_size)
        trained = model.trained_length or (1 << 31)
        adds_bos = any(source.task.profile.bos == "always" for source in inputs.sources)
        bos = resolve_bos(tokenizer) if adds_bos else None
        chat = Chat(tokenizer) if config.chat_template else None
        setup = Setup(config, tokenizer, table, limit, trained, shared or inputs.kept, bos, chat)
        kinds = [kind_of(source.task)(source, setup) for source in inputs.sources]
        controls = _controls_of(kinds) if config.controls else ()
        draws = {index: some for index, kind in enumerate(kinds) if (some := further_draws(kind))}
        return cls(model, setup, kinds, shared, controls, draws)

    @property
    def every_kind(self) -> list[TaskKind]:
        """The tasks, then their controls, then their further draws of shots."""
        return [*self.kinds, *self.controls, *chain.from_iterable(self.draws.values())]

    def without(self, names: Collection[str]) -> "RunTasks":
        """All but these tasks."""
        kept = [i for i, kind in enumerate(self.kinds) if kind.source.task.name not in names]
        return self._replace(
            kinds=[self.kinds[i] for i in kept],
            controls=[kind for kind in self.controls if kind.source.task.name not in names],
            draws={new: self.draws[i] for new, i in enumerate(kept) if i in self.draws},
        )

    def request_batches(self, totals: Totals, several: bool = False) -> Iterator[RequestBatch]:
        """Tokenize and plan one part at a time.  `several`: the run has more rounds than this
        one."""
        generates = any(kind.generates and not kind.scores_spans for kind in self.kinds)
        cost = cost_model(self.model, SCORING_PROGRAMS - GENERATION_PROGRAMS * generates)
        kept = self.setup.kept
        if kept is not None:
            kept.promise([job for kind in self.kinds for job in kind.sizes_job(cost)])
        with spent_on("plan"):
            surveyed = survey(self.kinds, cost, several, self.draws)
        if kept is not None:
            kept.promise([*self._piece_jobs(surveyed)])
        totals.expect(surveyed.plain_tokens, surveyed.unique_tokens)
        if self.controls:
            sizes = [kind.sizes(cost) for kind in self.controls if kind.made.prompts]
            if not surveyed.plain_tokens:
                sizes += surveyed.sizes.values()
            totals.expect(
                surveyed.plain_tokens + sum(each.plain_tokens for each in sizes),
                surveyed.unique_tokens + sum(each.unique_tokens for each in sizes),
            )
        for index, sizes in surveyed.sizes.items():
            totals.by_task[self.kinds[index].source.task.name] = round(sizes.unique_tokens)
        lengths = surveyed.lengths
        planner = RequestPlanner(cost, totals, lengths, self.setup.table.id_sets, kept)
        yield from self._planned(surveyed.order, planner, totals)
        if self.controls:
            # Separate batches, so that the rows of all others are as they are without controls.
            planner.bounds_tries = False
            without = totals.unique_tokens
            order = range(len(self.kinds), len(self.kinds) + len(self.controls))
            yield from self._planned(order, planner, totals)
            totals.control_tokens = totals.unique_tokens - without
        totals.expect(totals.plain_tokens, totals.unique_tokens)

    def _planned(
        self, order: Sequence[int], planner: RequestPlanner, totals: Totals
    ) -> Iterator[RequestBatch]:
        """The request batches of these tasks and controls, by their places in `every_kind`."""
        draws = dict[int, range]()
        start = len(self.kinds) + len(self.controls)
        for index, of_task in self.draws.items():
            draws[index] = range(start, start + len(of_task))
            start += len(of_task)
        parts = parts_of(self.every_kind, order, draws)
        for entered in self._entered(parts, planner):
            with spent_on("plan"):
                batch = planner.planned(entered)
                totals.useful_flops += useful_flops(self.model, batch.plan)
            yield batch

    def _entered(
        self, parts: Iterator[list[TokenizedExamples]], planner: RequestPlanner
    ) -> Iterator[EnteredBatch]:
        """Batches to be planned; the processes plan as many ahead as there are processes, but for
        the first one, which may add a row length that the other plans hang on."""
        kept = self.setup.kept
        num_ahead = 1 if kept is None else kept.num_ahead
        ahead = 1
        while some := [*islice(parts, ahead)]:
            with spent_on("plan"):
                vocab_size = self.model.vocab_size
                entered = [planner.enter(requests_of(part, vocab_size), part) for part in some]
            if kept is not None and num_ahead > 1:
                kept.promise([*chain.from_iterable(map(planner.job, entered))])
            yield from entered
            ahead = num_ahead

    @spent_on("metrics")
    def take(self, tasks: Sequence[TaskScores], batch: RequestBatch, scores: Scores) -> None:
        """Add the scored examples of a batch to their tasks: those of `every_kind`."""
        ends = offsets_of([len(piece.requests) for piece in batch.pieces]).tolist()
        for piece, start, end in zip(batch.pieces, ends[:-1], ends[1:], strict=True):
            ids = piece.requests.scored_ids
            num_bytes = self.setup.table.num_bytes[ids]
            of_piece = scores.of_requests(start, end).spelled_by(ids, num_bytes)
            scored = tasks[piece.task]
            scored.rows += scored.kind.rows_of(piece, of_piece)

    def _piece_jobs(self, surveyed: Survey) -> Iterator[Job]:
        rendered = lru_cache(maxsize=1)(lambda kind: kind.rendered())
        for index in surveyed.order:
            if index in surveyed.sizes:
                yield from self.kinds[index].piece_jobs(surveyed.sizes[index], rendered)


def _controls_of(kinds: Sequence[TaskKind]) -> list[ControlsKind]:
    """Raises InputError if no task has any."""
    controls = list[ControlsKind]()
    for kind in kinds:
        if isinstance(kind, ChoiceKind) and not kind.why_no_controls:
            controls.append(ControlsKind(kind))
    if not controls:
        first = kinds[0]
        raise InputError(
            f"--controls: {first.source.task.name} has none, as {first.why_no_controls}, and so it "
            "is with every task of --tasks: name a task of choices too, or leave the flag out"
        )
    return controls


def summarize_plan(config: RunConfig, inputs: Inputs, progress: Progress = SILENT) -> Totals:
    """Tokenize and plan without a device or weights."""
    if config.fewshot_draws > 1:
        without = summarize_plan(replace(config, fewshot_draws=1), inputs, progress).unique_tokens
        totals = _planned(config, inputs, progress)
        totals.without_draws = without
        return totals
    return _planned(config, inputs, progress)


def _planned(config: RunConfig, inputs: Inputs, progress: Progress) -> Totals:
    tasks = RunTasks.of(config, inputs, architecture_of(config, find_model(config, weights=False)))
    totals = Totals()
    progress.advance("planning")
    for _ in tasks.request_batches(totals):
        progress.advance("planning", totals.plain_tokens, totals.expected, "tokens")
    progress.end("planning")
    return totals
