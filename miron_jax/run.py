"""Composes the stages: a RunConfig in, an `Outcome` out.

Arrives: a validated RunConfig.  Leaves: what every task scored, or what a run would do.  Benchmark data and config.json
are checked before weights are loaded.  It deliberately does not know flags or file formats of results.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from miron_jax.config import AXES, RunConfig
from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model, Speed, attention_of
from miron_jax.engine.scores import score_planned
from miron_jax.engine.self_check import SelfCheck, tolerance_of
from miron_jax.engine.text_requests import GenerationSpeed
from miron_jax.errors import InputError
from miron_jax.evaluation.parts import Part, join, parts_of, survey
from miron_jax.evaluation.records import Inputs, Outcome
from miron_jax.evaluation.texts import generate_texts
from miron_jax.files.hub import commit_of
from miron_jax.files.places import public
from miron_jax.files.store import Store
from miron_jax.inputs import unverified
from miron_jax.model.checkpoints import (
    Architecture,
    architecture_of,
    checkpoints_of,
    find_model,
    loaded,
    rounds,
)
from miron_jax.model.config import ModelConfig
from miron_jax.model.costs import cost_model, useful_flops
from miron_jax.model.fingerprint import tokenizer_fingerprint, weights_fingerprint
from miron_jax.model.own import OwnModel, import_from
from miron_jax.model.training_run import Checkpoint, implausible
from miron_jax.planning.records import CostModel
from miron_jax.planning.request_batches import RequestBatch, Totals, plan_request_batches
from miron_jax.runtime.answers import Answers
from miron_jax.runtime.devices import Placement
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.journal import Journal, key_of_answers, run_key
from miron_jax.task_kinds.interface import Setup, TaskKind
from miron_jax.task_kinds.kinds import kind_of
from miron_jax.tokens.records import LengthLimit
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import resolve_bos

SCORING_PROGRAMS = 8  # row lengths of a run at most, each compiled once
GENERATION_PROGRAMS = 2  # of these, what a run that draws long texts leaves to prefill and steps


def length_limit(config: RunConfig, model: ModelConfig | OwnModel) -> LengthLimit:
    """The user's limit, or each suite's own, and never more than the model's learned positions."""
    learned = model.num_positions or None
    if config.max_length and learned and config.max_length > learned:
        raise InputError(
            f"--max_length is {config.max_length}, but the model has {learned} learned positions: lower it"
        )
    return LengthLimit(config.max_length, learned, model.trained_length)


def evaluate(
    config: RunConfig,
    inputs: Inputs,
    say: Callable[[str], None],
    progress: Callable[[int, int], None] = lambda done, planned: None,
) -> Outcome:
    """Score every task with a model that has one checkpoint, or with the last of its checkpoints."""
    return list(evaluate_checkpoints(config, inputs, say, progress))[-1][1]


def evaluate_checkpoints(
    config: RunConfig,
    inputs: Inputs,
    say: Callable[[str], None],
    progress: Callable[[int, int], None] = lambda done, planned: None,
    scored: Callable[[Checkpoint, Answers | None], bool] = lambda checkpoint, answers: False,
    store: Store | None = None,
    hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
) -> Iterator[tuple[int | None, Outcome]]:
    """(step, what it scored) for every checkpoint; all run the same programs, text is tokenized and planned once.

    `progress` hears of tokens computed and tokens planned so far; `scored` knows checkpoints that need not be, those of a
    user's own model once it is known what they answer; `store` keeps what is finished.  Of several `hosts` only the first
    yields anything.
    """
    start = time.perf_counter()
    found = hosts.first_then_others("model", lambda: find_model(config))
    evaluation: Evaluation | None = None
    there, placement = checkpoints_of(config, found), Placement.choose(config.sharding, config.mesh)
    if placement.how == "mesh" and placement.size(*AXES) < jax.local_device_count():
        say(f"--mesh takes {placement.size(*AXES)} of this host's {jax.local_device_count()} devices")
    own = found.own_model is not None
    for now in rounds(config, found, say, lambda checkpoint: not own and scored(checkpoint, None), hosts):
        evaluation = evaluation or Evaluation(
            config,
            inputs,
            architecture_of(config, found),
            say,
            config.watch or len(there) > 1,
            (),
            placement,
            store,
            hosts,
        )
        for checkpoint, state in loaded(evaluation.architecture, config, now, placement):
            load_seconds = time.perf_counter() - start
            say(f"loaded {public(config.model)}{_at(checkpoint)} in {load_seconds:.1f} s")
            outcome = evaluation.score(state, load_seconds, progress, checkpoint, partial(scored, checkpoint))
            del state
            if outcome is not None:
                yield checkpoint.step, outcome
            start = time.perf_counter()


def _at(checkpoint: Checkpoint) -> str:
    return "" if checkpoint.step is None else f" at step {checkpoint.step}"


class Evaluation:
    """Tasks tokenized and planned for one architecture; scores any weights of it with the same compiled programs."""

    def __init__(
        self,
        config: RunConfig,
        inputs: Inputs,
        architecture: Architecture,
        say: Callable[[str], None] = lambda line: None,
        keep: bool = True,
        row_axes: tuple[str, ...] = (),
        placement: Placement | None = None,
        store: Store | None = None,
        hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
    ) -> None:
        """`keep`: tokens and plans stay for the next weights.  `row_axes`: of the weights' mesh, for rows.  `placement`: of
        weights that the engine has loaded.  `store`: where finished scores and texts are kept, for a run that goes on.
        `hosts`: that share the work."""
        self.config, self.inputs, self.architecture, self.say, self.keep = config, inputs, architecture, say, keep
        self.row_axes, self.placement, self.store, self.hosts = row_axes, placement, store, hosts
        self._detox = import_from(config.detox_scorer, "--detox_scorer", 2) if config.detox_scorer else None
        self._times = 0  # weights were scored
        model, tokenizer = architecture.config, architecture.tokenizer
        self._limit = length_limit(config, model)
        always = any(source.task.profile.bos == "always" for source in inputs.sources)
        self._bos = resolve_bos(tokenizer) if always else None
        self._setup = _setup(config, architecture)
        self._kinds = [kind_of(source.task)(source, self._setup) for source in inputs.sources]
        for kind in self._kinds:
            kind.prepare()
        self._cost = _costs(model, self._kinds)
        self._parts: list[Part] = []
        self._planned: list[RequestBatch] = []
        self._totals: Totals | None = None  # once all is planned
        self._engine: _Engine | None = None

    def score(
        self,
        state: Any,
        load_seconds: float = 0.0,
        progress: Callable[[int, int], None] = lambda done, planned: None,
        checkpoint: Checkpoint = Checkpoint(None, None),  # noqa: B008 - frozen
        scored: Callable[[Answers], bool] = lambda answers: False,
    ) -> Outcome | None:
        """Score every task with these weights; of several hosts only the first has what comes of it.  None too where a
        user's own model that answers so is `scored` already.

        Raises SelfCheckFailed, and InputError for what a part finds wrong.
        """
        config, placement = self.architecture.config, Placement.of(state, self.row_axes)
        whole = all(leaf.is_fully_replicated for leaf in jax.tree.leaves(state))
        if (
            self.placement is not None
            and self.placement.mesh == placement.mesh
            and (whole or not isinstance(config, OwnModel))
        ):
            placement = self.placement  # else they came on a mesh of their own
        model = Model(config, self.architecture.network, state, placement, self.config.attention)
        check = SelfCheck(tolerance_of(config, state, self.config.dtype))
        with jax.default_matmul_precision("highest"):
            self._times += 1
            answers = check.probe(model) if isinstance(config, OwnModel) else None
            if answers is not None and self.hosts.agree(f"scored/{self._times}", scored(answers)):
                self.say(f"step {checkpoint.step} is scored already")
                return None
            if self._engine is None:
                forward = Forward(model, self.config.token_budget, self.say, self._setup.table.id_sets)
                generator = Generator(model, self.architecture.tokenizer, self.architecture.eos_ids, say=self.say)
                self._engine = _Engine(forward, generator)
            self._engine.take(model)
            weights = weights_fingerprint(model.on_one_device.state)
            odd = [] if isinstance(config, OwnModel) else implausible(model.on_one_device.state)
            for line in odd:
                self.say(line)
            with self._journal(model, weights, answers) as journal:
                outcome = self._score(self._engine, check, journal, load_seconds, progress, checkpoint)
                told = outcome and outcome._replace(weights=weights, answers=answers, implausible=odd)
                found = unverified(self.config, self.inputs, checkpoint)
                return told and told._replace(unverified=found, commits=self._commits(checkpoint))

    def _commits(self, checkpoint: Checkpoint) -> dict[str, str | None]:
        """Of the hub, that the model's files and the tokenizer were read at; None: they did not come from there."""
        tokenizer = Path(str(getattr(self.architecture.tokenizer, "name_or_path", "")))
        of_model = None if checkpoint.folder is None else commit_of(checkpoint.folder / "config.json")
        return {"model": of_model, "tokenizer": commit_of(tokenizer / "tokenizer.json")}

    @contextmanager
    def _journal(self, model: Model, weights: str, answers: Answers | None) -> Iterator[Journal | None]:
        start = time.perf_counter()
        assert model.placement is not None
        if self.store is None or (model.placement.is_global and not self.hosts.is_first):
            yield None
            return
        key = run_key(
            {
                "weights": weights,
                "model": self.architecture.source or repr(model.config),
                "eos": sorted(self.architecture.eos_ids),
                "tokenizer": tokenizer_fingerprint(self.architecture.tokenizer),
                "dtype": self.config.dtype,
                "precision": str(jax.config.values["jax_default_matmul_precision"]),
                "platform": Placement.of(model.state).device.platform,
                "attention": attention_of(model).name,
            }
        )
        if not model.placement.is_global and self.hosts.agree(f"key/{self._times}", key) != key:
            raise InputError(
                f"process {self.hosts.index} has other weights than process 0, or another tokenizer, device or precision: "
                "give all processes the same files and flags on devices of one kind"
            )
        if answers is not None:
            key = self._key_of(key, answers, model.placement.is_global)
        with Journal(self.store, key, str(self.hosts.index), self.say) as journal:
            journal.seconds += time.perf_counter() - start
            self.hosts.on_leave = journal.flush
            if journal.num_known:
                self.say(f"{journal.num_known} scores and texts are there already")
            yield journal

    def _key_of(self, key: str, answers: Answers, is_global: bool) -> str:
        """The first host's choice, which the others' models must answer like."""
        assert self.store is not None
        if self.hosts.is_first:
            key = key_of_answers(self.store, key, answers, self.say)
        if is_global:
            return key
        key, first = self.hosts.agree(f"answers/{self._times}", [key, answers])
        if why := answers.differ(Answers.of_json(first)):
            raise InputError(
                f"process {self.hosts.index}'s model answers fixed tokens otherwise than process 0's, {why}: give all "
                "processes the same code, and the same files for it to read"
            )
        return key

    def _score(
        self,
        engine: "_Engine",
        check: SelfCheck,
        journal: Journal | None,
        load_seconds: float,
        progress: Callable[[int, int], None],
        checkpoint: Checkpoint,
    ) -> Outcome | None:
        tasks = [kind.begin() for kind in self._kinds]
        totals, done, name = self._totals or Totals(), 0, str(self._times)

        def advance(tokens: int) -> None:
            nonlocal done
            done += tokens
            progress(done, totals.unique_tokens)

        waiting: deque[Part] = deque()  # parts that are tokenized and not yet scored
        if self._totals is None:  # the first weights, or none of the earlier ones came to the end
            planned = self._plan(totals, waiting)
        else:
            planned = self._planned
            waiting.extend(self._parts)
        for scores in score_planned(planned, engine.forward, check, advance, journal, self.hosts, name):
            taken = iter(scores)
            for piece in waiting.popleft():
                own = list(islice(taken, len(piece.requests)))
                self._kinds[piece.task].take(tasks[piece.task], piece, own)
        if self.keep:
            self._totals = totals
        generate_texts(self._kinds, tasks, engine.generator, journal, self.hosts, name)
        model = engine.forward.model
        if self.hosts.is_first or (model.placement and model.placement.is_global):  # on a mesh over hosts all take part
            for kind, task in zip(self._kinds, tasks, strict=True):
                kind.score_in_turn(task, model, check, self.say)
        if not self.hosts.is_first:
            return None
        for task in tasks:
            task.finish(self._detox)
        generation = engine.generator.speed if any(kind.generates for kind in self._kinds) else None
        return Outcome(
            tasks,
            self.inputs,
            self._limit,
            self._bos,
            totals,
            engine.forward.speed,
            check,
            load_seconds,
            generation,
            checkpoint,
            0.0 if journal is None else journal.seconds,
        )

    def _plan(self, totals: Totals, waiting: deque[Part]) -> Iterator[RequestBatch]:
        """Tokenize and plan part by part."""
        lengths, order = survey(self._kinds, self._cost)
        parts, config = parts_of(self._kinds, order), self.architecture.config
        self._parts, self._planned = [], []
        for part in _planned(parts, waiting, config, self._cost, totals, lengths, self._setup.table.id_sets):
            if self.keep:
                self._parts.append(waiting[-1])
                self._planned.append(part)
            yield part


def _planned(
    parts: Iterable[Part],
    waiting: deque[Part],
    model: ModelConfig | OwnModel,
    cost: CostModel,
    totals: Totals,
    lengths: tuple[int, ...],
    id_sets: Sequence[np.ndarray],
) -> Iterator[RequestBatch]:
    for part in plan_request_batches(join(parts, waiting, model.vocab_size), cost, totals, lengths, id_sets):
        totals.useful_flops += useful_flops(model, part.plan)
        yield part


class _Engine(NamedTuple):
    """Compiled programs, which serve any checkpoint of the model."""

    forward: Forward
    generator: Generator

    def take(self, model: Model) -> None:
        """Other weights, and speeds counted anew."""
        self.forward.model = self.generator.model = model
        self.forward.speed, self.generator.speed = Speed(self.forward.attention), GenerationSpeed()


def summarize_plan(config: RunConfig, inputs: Inputs) -> Totals:
    """Tokenize and plan without a device or weights."""
    architecture = architecture_of(config, find_model(config, weights=False))
    setup = _setup(config, architecture)
    kinds = [kind_of(source.task)(source, setup) for source in inputs.sources]
    model, cost, totals = architecture.config, _costs(architecture.config, kinds), Totals()
    lengths, order = survey(kinds, cost)
    parts = parts_of(kinds, order)
    deque(_planned(parts, deque(maxlen=1), model, cost, totals, lengths, setup.table.id_sets), maxlen=0)
    return totals


def _setup(config: RunConfig, architecture: Architecture) -> Setup:
    model, tokenizer = architecture.config, architecture.tokenizer
    table, limit = TokenBytes(tokenizer, model.vocab_size), length_limit(config, model)
    return Setup(config, tokenizer, table, limit, model.trained_length or (1 << 31))


def _costs(model: ModelConfig | OwnModel, kinds: Sequence[TaskKind]) -> CostModel:
    """What rows cost; a run that draws long texts leaves some programs to generation."""
    texts = any(kind.generates and not kind.scores_spans for kind in kinds)
    return cost_model(model, SCORING_PROGRAMS - (GENERATION_PROGRAMS if texts else 0))
