"""Composes the stages, and skips a task whose answers have no room: RunConfig -> `Outcome`s.

Arrives: a validated RunConfig and the `Inputs` of its tasks.  Leaves: the scores of every task.
It deliberately does not know flags or file formats of results.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from miron_jax.config import AXES, RunConfig
from miron_jax.engine.checked_requests import Choices
from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import ForwardSpeed, Model, with_experts
from miron_jax.engine.scores import score_planned
from miron_jax.engine.self_check import SelfCheck
from miron_jax.engine.text_requests import GenerationSpeed
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import unverified
from miron_jax.evaluation.journal_key import agreed_key, key_with_answers
from miron_jax.evaluation.parts import cost_of
from miron_jax.evaluation.records import Inputs, Outcome
from miron_jax.evaluation.run_tasks import SCORING_PROGRAMS, RunTasks
from miron_jax.evaluation.sampling import ExampleSampling
from miron_jax.evaluation.saved_requests import save_requests
from miron_jax.evaluation.task_kinds.interface import TaskKind, TaskScores
from miron_jax.evaluation.texts import generate_texts
from miron_jax.files.claims import Claims
from miron_jax.files.hub import commit_of
from miron_jax.files.places import public
from miron_jax.files.store import Store
from miron_jax.model.checkpoints.checkpoints import (
    Architecture,
    ModelFiles,
    architecture_of,
    checkpoints_of,
    find_model,
    rounds,
    say_tokenizer,
)
from miron_jax.model.checkpoints.fingerprint import tokenizer_fingerprint, weights_fingerprint
from miron_jax.model.checkpoints.loading import loaded
from miron_jax.model.checkpoints.plausible import implausible
from miron_jax.model.checkpoints.training_run import Checkpoint
from miron_jax.model.checkpoints.training_tokens import training_tokens
from miron_jax.model.costs import cost_model, flops_per_token
from miron_jax.model.network import Network
from miron_jax.model.own import OwnModel
from miron_jax.planning.request_batches import RequestBatch, Totals
from miron_jax.results.output import folder_of, mend_output
from miron_jax.results.records import Decided
from miron_jax.runtime.answers import Answers
from miron_jax.runtime.backend import start_devices
from miron_jax.runtime.devices import Placement, Tree, as_copies
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.journal import Journal
from miron_jax.runtime.progress import SILENT, Progress
from miron_jax.runtime.shared_arrays import SharedArrays
from miron_jax.runtime.timeline import counted_in_thread, spent_on
from miron_jax.tokens.answer_requests import NoRoom
from miron_jax.tokens.tokenizers import taken_from


def evaluate(config: RunConfig, inputs: Inputs, progress: Progress = SILENT) -> Outcome:
    """Score every task with the model's only checkpoint, or with its last one."""
    return list(evaluate_checkpoints(config, inputs, progress))[-1][1]


def evaluate_checkpoints(
    config: RunConfig,
    inputs: Inputs,
    progress: Progress = SILENT,
    is_scored: Callable[[Checkpoint, Answers | None], bool] = lambda checkpoint, answers: False,
    store: Store | None = None,
    hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
    files: ModelFiles | None = None,
    claims: Claims | None = None,
) -> Iterator[tuple[int | None, Outcome]]:
    """Yield (step, outcome) for every checkpoint; an average of some has no step.  All run the same
    programs; texts are tokenized and planned once.

    `progress` gets tokens computed and tokens planned so far.  A checkpoint is left out if
    `is_scored`; for a user's own model this is asked once its answers are known.  `store` keeps
    finished scores and texts.  Of several `hosts` only the first yields.  `files`: what
    `find_model` gave.  `claims`: checkpoints are shared with other processes; one that is taken
    over by another while it is scored here comes again.  Raises InputError, SelfCheckFailed.
    """
    start = time.perf_counter()
    model = files or hosts.first_then_others("model", lambda: find_model(config))
    start_devices(progress.warn)
    evaluation: Evaluation | None = None
    checkpoints = checkpoints_of(config, model)
    placement = Placement.choose(config.sharding, config.mesh)
    if placement.how == "mesh" and placement.size(*AXES) < jax.local_device_count():
        progress.say(
            f"--mesh takes {placement.size(*AXES)} of this host's {jax.local_device_count()} "
            "devices"
        )
    is_own = model.own_model is not None

    def has_results(checkpoint: Checkpoint) -> bool:
        return not is_own and is_scored(checkpoint, None)

    def take(checkpoint: Checkpoint) -> bool:
        if claims is None:
            return True
        name = folder_of(checkpoint.step, checkpoint.average)
        if not claims.take(name):
            return False
        assert store is not None
        for line in mend_output(store, name):
            progress.warn(line)
        if has_results(checkpoint):  # by another process since the look
            claims.release(name)
        return claims.has(name)

    for group in rounds(config, model, progress, has_results, hosts, take):
        try:
            evaluation = evaluation or Evaluation(
                config,
                inputs,
                architecture_of(config, model),
                progress,
                keep=config.watch or len(checkpoints) > 1 or config.average is not None,
                placement=placement,
                store=store,
                hosts=hosts,
            )
        except InputError:
            if config.watch and not all(checkpoint.is_there() for checkpoint in group.checkpoints):
                continue  # the trainer has removed the step whose config was read
            raise
        for checkpoint, state in loaded(
            evaluation.architecture, config, group, placement, progress
        ):
            load_seconds = time.perf_counter() - start
            is_one = checkpoint.step is None and not checkpoint.averaged
            which = "" if is_one else f" at {checkpoint.title}"
            tell = progress.detail if is_one else progress.say
            tell(f"loaded {public(config.model)}{which} in {load_seconds:.1f} s")
            outcome = evaluation.score(
                state, load_seconds, checkpoint, partial(is_scored, checkpoint)
            )
            del state
            evaluation.let_go()
            if outcome is not None:
                yield checkpoint.step, outcome
            name = folder_of(checkpoint.step, checkpoint.average)
            if claims is not None and not claims.release(name):
                group.read.remove(checkpoint)
            start = time.perf_counter()
        if claims is not None:
            claims.release_all()


class _Engine(NamedTuple):
    """Compiled programs, which serve any checkpoint of the model."""

    forward: Forward
    generator: Generator


class Evaluation:
    """Tasks tokenized and planned for one architecture; scores any weights of it with the same
    compiled programs."""

    def __init__(
        self,
        config: RunConfig,
        inputs: Inputs,
        architecture: Architecture,
        progress: Progress = SILENT,
        keep: bool = True,
        row_axes: tuple[str, ...] = (),
        placement: Placement | None = None,
        store: Store | None = None,
        hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
    ) -> None:
        """`keep`: keep requests and plans for the next weights.  `row_axes`: axes of the weights'
        mesh that rows are split over.  `placement`: of weights that the engine has loaded.
        `store`: keeps finished scores and texts for a run that is resumed.  `hosts`: share the
        work.  Raises InputError."""
        self.config = config
        self.inputs = inputs
        self.architecture = architecture
        self.progress = progress
        self.keep = keep and not config.is_sampled
        self.row_axes = row_axes
        self.placement = placement
        self.store = store
        self.hosts = hosts
        self._num_scored = 0  # weights so far
        say_tokenizer(architecture.tokenizer, progress)
        self._tokenizer = tokenizer_fingerprint(architecture.tokenizer)
        self._num_tokens = max(architecture.tokenizer.get_vocab().values(), default=0) + 1
        shared = None
        if store is not None and hosts.count > 1 and not config.is_sampled:
            shared = SharedArrays(inputs.kept, store, hosts)
        self._tasks = RunTasks.of(config, inputs, architecture, shared)
        _ = self._tasks.setup.detox  # refuses a name before weights are loaded
        self._leave_out_what_has_no_room()
        if config.is_sampled:
            self._sampling()  # raises before weights are loaded
        if config.save_requests and hosts.is_first and jax.process_index() == 0:
            save_requests(self._tasks.kinds, Store(config.output), progress)
        self._planned: list[RequestBatch] = []
        self._choices: Choices = {}  # of the self-check, for what is planned
        self._totals: Totals | None = None  # None: the run is not yet planned to its end
        self.engine: _Engine | None = None

    def _leave_out_what_has_no_room(self) -> None:
        """Prepare all tasks.  One whose texts are too long for the model is left out, as one
        without data is.

        Raises NoRoom for a task that the user named, and if no task is left."""
        why: dict[str, str] = {}
        for index, kind in enumerate(self._tasks.kinds):
            name = kind.source.task.name
            try:
                with spent_on("tokenize"):
                    for each in (kind, *self._tasks.draws.get(index, ())):
                        each.prepare()
            except NoRoom as error:
                why[name] = str(error)
                if name in self.inputs.by_name or len(why) == len(self._tasks.kinds):
                    raise
        if not why:
            return
        self.progress.warn(f"left out, as they do not fit: {'; '.join(why.values())}")
        self._tasks = self._tasks.without(why)
        missing = {**self.inputs.missing, **why}
        sources = [kind.source for kind in self._tasks.kinds]
        self.inputs = self.inputs._replace(sources=sources, missing=missing)

    def score(
        self,
        state: Any,
        load_seconds: float = 0.0,
        checkpoint: Checkpoint = Checkpoint(None, None),  # noqa: B008 - frozen
        is_scored: Callable[[Answers], bool] = lambda answers: False,
        rest_later: bool = False,
    ) -> Outcome | None:
        """Score every task with these weights.  None on hosts other than the first, and if a user's
        own model `is_scored`.  `rest_later`: leave `Outcome.take_texts` to the caller.

        Raises SelfCheckFailed, InputError.
        """
        config = self.architecture.config
        model = self.model_of(state)
        check = SelfCheck.of(config, state, self.config.dtype, self.progress)
        if self.keep:
            check.kept = self._choices
            check.turn = self._num_scored
        with jax.default_matmul_precision("highest"):
            self._num_scored += 1
            answers = check.probe(model) if isinstance(config, OwnModel) else None
            if answers is not None and self.hosts.agree(
                f"scored/{self._num_scored}", is_scored(answers)
            ):
                self.progress.say(f"{checkpoint.title} is scored already")
                return None
            engine = self.engine_with(model)
            weights = weights_fingerprint(model.on_one_device.state)
            is_own = isinstance(config, OwnModel)
            warnings = list[str]()
            # a user's own weights may be zero; those of a file that was cut are not meant so
            if not is_own or checkpoint.folder is not None:
                warnings = implausible(model.on_one_device.state, self._num_tokens, is_own)
            for line in warnings:
                self.progress.warn(line)
            with self._journal(model, weights, answers) as journal:
                what = journal, load_seconds, checkpoint, rest_later
                outcome = self._score(engine, check, *what)
            return outcome and outcome._replace(
                matmul_precision=jax.config.values["jax_default_matmul_precision"],
                weights=weights,
                placement=self._placement_of(state),
                dtypes=model.num_weights,
                training_tokens=training_tokens(checkpoint, self.config.model),
                flops_per_token=flops_per_token(config),
                answers=answers,
                implausible=warnings,
                tokenizer=self._tokenizer,
                tokenizer_from=taken_from(self.architecture.tokenizer),
                unverified=unverified(self.config, self.inputs, checkpoint),
                commits=self._commits(checkpoint),
            )

    def model_of(self, state: Tree) -> Model:
        """The model with these weights, or with their shapes, where they lie."""
        config = self.architecture.config
        placement = self._placement_of(state)
        # a model of a user's may name the axes of its mesh
        if not isinstance(config, Network):
            state, placement = as_copies(state, placement)
        how = self.config.attention, self.config.token_stats
        model = Model(config, self.architecture.network, state, placement, *how)
        return with_experts(model, self.progress)

    def _placement_of(self, state: Tree) -> Placement:
        is_network = isinstance(self.architecture.config, Network)
        return Placement.of_loaded(state, self.placement, self.row_axes, is_network)

    def let_go(self) -> None:
        """Hold these weights no longer."""
        for each in self.engine or ():
            each.model = each.model._replace(state=None)

    @property
    def kinds(self) -> list[TaskKind]:
        """One per task."""
        return self._tasks.kinds

    def plan_all(self) -> Iterator[RequestBatch]:
        """The request batches of all tasks, which a run finds planned unless it is sampled."""
        totals = self._totals or Totals()
        yield from self._request_batches(totals)
        if self.keep:
            self._totals = totals

    def engine_with(self, model: Model) -> _Engine:
        """The engine with the weights of this model, and with new counts of speed."""
        if self.engine is None:
            forward = Forward(
                model, self.config.token_budget, self.progress, self._tasks.setup.table.id_sets
            )
            generator = Generator(
                model,
                self.architecture.tokenizer,
                self.architecture.eos_ids,
                progress=self.progress,
            )
            self.engine = _Engine(forward, generator)
        forward, generator = self.engine
        forward.model = generator.model = model
        forward.speed = ForwardSpeed(forward.attention)
        generator.speed = GenerationSpeed()
        return self.engine

    def _commits(self, checkpoint: Checkpoint) -> dict[str, str | None]:
        """Hub commits of the model's files and the tokenizer's; None: they are of no hub."""
        tokenizer = Path(str(getattr(self.architecture.tokenizer, "name_or_path", "")))
        folder = checkpoint.folder
        return {
            "model": folder and commit_of(folder / "config.json"),
            "tokenizer": commit_of(tokenizer / "tokenizer.json"),
        }

    @contextmanager
    def _journal(
        self, model: Model, weights: str, answers: Answers | None
    ) -> Iterator[Journal | None]:
        """The journal of these weights; None without a store, and on all hosts but the first of a
        mesh that spans hosts."""
        start = time.perf_counter()
        assert model.placement is not None
        if self.store is None:
            yield None
            return
        name = str(self._num_scored)
        key = agreed_key(self.hosts, name, model, self.architecture, weights, self.config.dtype)
        if model.placement.is_global and not self.hosts.is_first:
            yield None
            return
        if answers is not None:
            is_global = model.placement.is_global
            key = key_with_answers(
                self.hosts, name, self.store, key, answers, is_global, self.progress
            )
        with Journal(self.store, key, str(self.hosts.index), self.progress) as journal:
            journal.seconds += time.perf_counter() - start
            self.hosts.on_leave = journal.flush
            if journal.num_known:
                self.progress.say(f"{journal.what_is_known} are there already")
            yield journal

    def _score(
        self,
        engine: _Engine,
        check: SelfCheck,
        journal: Journal | None,
        load_seconds: float,
        checkpoint: Checkpoint,
        rest_later: bool,
    ) -> Outcome | None:
        name = str(self._num_scored)
        tasks = [*map(TaskScores, self._tasks.every_kind)]
        totals = self._totals or Totals()
        decided = self._score_requests(tasks, engine, check, journal, totals)
        if self.keep:
            self._totals = totals
        how = journal, self.hosts, name, self.progress
        take_texts: Callable[[], None] | None = generate_texts(tasks, engine.generator, *how)
        if self.hosts.is_first and not rest_later:
            take_texts()
            take_texts = None
        model = engine.forward.model
        # on a mesh over hosts all take part
        if self.hosts.is_first or (model.placement and model.placement.is_global):
            for scores in tasks:
                scores.kind.score_in_turn(scores, model, check, self.progress)
        if not self.hosts.is_first:
            return None
        generates = any(kind.generates for kind in self._tasks.kinds)
        num_tasks = len(self._tasks.kinds)
        num_plain = num_tasks + len(self._tasks.controls)
        return Outcome(
            tasks=tasks[:num_tasks],
            controls=tasks[num_tasks:num_plain],
            draws=tasks[num_plain:],
            inputs=self.inputs,
            totals=totals,
            speed=engine.forward.speed,
            check=check,
            load_seconds=load_seconds,
            generation=engine.generator.speed if generates else None,
            checkpoint=checkpoint,
            journal_seconds=0.0 if journal is None else journal.seconds,
            decided=decided,
            take_texts=take_texts,
        )

    def _score_requests(
        self,
        tasks: Sequence[TaskScores],
        engine: _Engine,
        check: SelfCheck,
        journal: Journal | None,
        totals: Totals,
    ) -> Decided | None:
        """Score all requests in one round, or those of a sampled run in as many as --until and
        --budget want.  Returns what --until=decided found."""
        name = str(self._num_scored)
        sampling = self._sampling() if self.config.is_sampled else None
        # processes that share the rows
        sharing = 1 if engine.forward.placement.is_global else self.hosts.count
        done = 0

        def advance(tokens: int) -> None:
            nonlocal done
            done += tokens
            # how many rounds there will be is not known
            total = 0.0 if sampling else totals.unique_in_all / sharing
            self.progress.advance("scoring", done, total, "tokens")

        taken: list[Future[None]] = []  # by the thread that computes metrics

        def settle() -> None:
            while taken:
                taken.pop().result()

        def score_round(of_round: str) -> None:
            batches = self._request_batches(totals)
            how = (advance, journal, self.hosts, of_round, settle)
            with ThreadPoolExecutor(1, initializer=counted_in_thread()) as thread:
                for batch, scores in score_planned(batches, engine.forward, check, *how):
                    taken.append(thread.submit(self._tasks.take, tasks, batch, scores))
                settle()

        if sampling is None:
            score_round(name)
        else:
            for i, _ in enumerate(sampling.rounds(tasks, self.hosts, name)):
                score_round(f"{name}/round/{i}")
        self.progress.end("scoring")
        if self._tasks.shared is not None:
            self._tasks.shared.remove()
        return sampling and sampling.decided

    def _sampling(self) -> ExampleSampling:
        cost = cost_model(self._tasks.model, SCORING_PROGRAMS)
        return ExampleSampling(
            self.config, self._tasks.kinds, self.inputs.suites, cost, self.inputs.earlier
        )

    def _request_batches(self, totals: Totals) -> Iterator[RequestBatch]:
        """The batches that were planned for earlier weights, or new ones.  See
        `RunTasks.request_batches`."""
        if self._totals is not None:
            yield from self._planned
            return
        self._planned = []
        self._choices.clear()
        self.progress.advance("planning")
        for i, batch in enumerate(self._tasks.request_batches(totals, self.config.is_sampled)):
            if not i and not self.config.is_sampled:
                each = "for each checkpoint: " if self.keep else ""
                self.progress.say(f"{each}{cost_of(totals)}")
            self.progress.advance("planning", totals.plain_tokens, totals.expected, "tokens")
            if self.keep:
                self._planned.append(batch)
            yield batch
        self.progress.end("planning")
