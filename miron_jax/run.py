"""Composes the stages: a RunConfig in, an `Outcome` out.

Arrives: a validated RunConfig.  Leaves: what every task scored, or what a run would do.  Benchmark data and config.json
are checked before weights are loaded.  It deliberately does not know flags or file formats of results.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from miron_jax import demo
from miron_jax.aggregate import (
    AnswerScores,
    AnswerSource,
    AnyScores,
    ClozeScores,
    ClozeSource,
    Inputs,
    Outcome,
    ProgramScores,
    ProgramSource,
    Source,
    TaskScores,
)
from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.forward import Forward, Model, Speed, cost_model, free_bytes, useful_flops
from miron_jax.generate import GenerationSpeed, Generator
from miron_jax.hand_out import hand_out, score_answers, score_items, score_problems
from miron_jax.model.config import ModelConfig
from miron_jax.model.decoder import abstract
from miron_jax.model.hf_config import eos_token_ids, from_hf_config
from miron_jax.model.hf_files import has_tensors
from miron_jax.model.hf_reader import load_hf, resolve_model
from miron_jax.model.training_run import load_step, pick_steps, training_steps
from miron_jax.parts import Part, expected_lengths, join, parts_of
from miron_jax.plan import CostModel
from miron_jax.scores import TOLERANCE, SelfCheck, Totals, plan_parts, score_parts
from miron_jax.task import AnswerTask, AnyTask, Cloze, ClozeTask, ProgramTask, data_state, read_examples
from miron_jax.tasks import registry
from miron_jax.texts import AskedAnswers, AskedPrograms, asked_texts, generate_texts
from miron_jax.token_bytes import TokenBytes
from miron_jax.token_requests import Bos, LengthLimit, load_tokenizer, resolve_bos

SCORING_PROGRAMS = 8  # row lengths of a run at most, each compiled once
GENERATION_PROGRAMS = 2  # of these, what a run that draws long texts leaves to prefill and steps


def find_inputs(config: RunConfig) -> Inputs:
    """Find and read the data of every task asked for.  A suite goes on without a file; a task asked for by name does not."""
    every = registry.suites(config.icl_tasks, config.eval_gauntlet)
    selection = registry.select(",".join(config.tasks), every)
    names = {task.name for task in selection.tasks}
    suites = [suite for suite in every.values() if any(task.name in names for task in suite.tasks)]
    sources, missing = [], {}
    for suite in suites:
        named = config.folder_of(suite.name)
        folder = suite.locate(Path(named) if named else None, True)
        for task in (task for task in suite.tasks if task.name in names):
            data = data_state(task, folder)
            if data.state == "missing" and task.name not in selection.by_name:
                missing[task.name] = task_file(task, folder)
            elif isinstance(task, ClozeTask):
                items = task.read(folder, config.items_per_category)
                sources.append(ClozeSource(task, _first_of_each(items, config.limit), data))
            elif isinstance(task, ProgramTask):
                _check_allowed(task, config)
                sources.append(ProgramSource(task, read_examples(task, folder, config.allow_changed_data), data))
            elif isinstance(task, AnswerTask):
                sources.append(AnswerSource(task, read_examples(task, folder, config.allow_changed_data), data))
            else:
                sources.append(Source(task, read_examples(task, folder, config.allow_changed_data), data))
    if not sources:
        raise InputError(f"none of the tasks asked for has its data file: {next(iter(missing.values()))} and others")
    return Inputs(sources, missing, suites)


def _check_allowed(task: ProgramTask, config: RunConfig) -> None:
    if not config.allow_code_execution:
        raise InputError(
            f"{task.name} runs programs that the model writes: add --allow_code_execution to run them in a sandbox, or "
            "leave the task out"
        )


def _first_of_each(items: list[Cloze], limit: int | None) -> list[Cloze]:
    """The first `limit` items of each category, in file order."""
    met: Counter[str] = Counter()
    chosen = []
    for item in items:
        met[item.category] += 1
        if limit is None or met[item.category] <= limit:
            chosen.append(item)
    return chosen


def task_file(task: AnyTask, folder: Path) -> Path:
    assert task.file is not None
    return folder / (task.file if isinstance(task, ClozeTask) else task.file.path)


def length_limit(config: RunConfig, model: ModelConfig) -> LengthLimit:
    """The user's limit, or each suite's own, and never more than the model's learned positions."""
    learned = model.num_positions or None
    if config.max_length and learned and config.max_length > learned:
        raise InputError(
            f"--max_length is {config.max_length}, but the model has {learned} learned positions: lower it"
        )
    return LengthLimit(config.max_length, learned)


class Checkpoint(NamedTuple):
    """Weights to score."""

    step: int | None  # of the training run it comes from; None: a model that has no steps
    load: Callable[[ModelConfig, Any], Any]  # config and dtype -> state on the device


def find_model(config: RunConfig, weights: bool = True) -> tuple[Path, list[Checkpoint]]:
    """(folder of config.json and tokenizer, its checkpoints in order of training)."""
    folder = demo.FOLDER if config.model == demo.NAME else resolve_model(config.model, weights=weights)
    whole = config.steps is None and has_tensors(folder)
    steps = [] if whole else training_steps(folder)
    if config.steps is not None and not steps:
        raise InputError(
            f"--steps={config.steps}: {folder} holds no checkpoint in a folder named by its step, such as 1000 or "
            "checkpoint-1000; name the run's folder"
        )
    if not steps:
        return folder, [Checkpoint(None, partial(load_step, folder))]
    steps = pick_steps(steps, config.steps, folder)
    home = folder if (folder / "config.json").is_file() else steps[-1][1]
    return home, [Checkpoint(step, partial(load_step, path)) for step, path in steps]


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
) -> Iterator[tuple[int | None, Outcome]]:
    """(step, what it scored) for every checkpoint; all run the same programs, and text is tokenized once.

    `progress` hears of tokens computed and tokens planned so far.
    """
    start = time.perf_counter()
    folder, checkpoints = find_model(config)
    model_config = from_hf_config(folder)
    limit = length_limit(config, model_config)
    tokenizer = load_tokenizer(config.tokenizer or str(folder))
    tokenizer_seconds = time.perf_counter() - start
    always = any(isinstance(own, Source) and own.task.profile.bos == "always" for own in inputs.sources)
    bos = resolve_bos(tokenizer) if always else None
    table, eos_ids = TokenBytes(tokenizer, model_config.vocab_size), eos_token_ids(folder)
    graphdef = abstract(model_config, jnp.dtype(config.dtype))[0]
    asked = asked_texts(config, inputs, tokenizer, limit)
    parts = parts_of(inputs.sources, config.limit, tokenizer, table, limit)
    tokenized = list(parts) if len(checkpoints) > 1 else None
    engine: _Engine | None = None
    start = time.perf_counter() - tokenizer_seconds
    for step, state in _loaded(checkpoints, model_config, jnp.dtype(config.dtype)):
        model = Model(model_config, graphdef, state)
        load_seconds = time.perf_counter() - start
        say(f"loaded {config.model}{'' if step is None else f' at step {step}'} in {load_seconds:.1f} s")
        engine = engine or _Engine(
            Forward(model, config.token_budget, say, table.id_sets), Generator(model, tokenizer, eos_ids, say=say)
        )
        engine.take(model)
        scored = _Scored(inputs, limit, bos, load_seconds, SelfCheck(TOLERANCE[config.dtype]))
        lengths = expected_lengths(inputs.sources, config, tokenizer, limit, _costs(model_config, inputs))
        yield step, _evaluate(engine, scored, tokenized or parts, asked, lengths, progress)
        start = time.perf_counter()


def _loaded(checkpoints: Sequence[Checkpoint], model: ModelConfig, dtype: Any) -> Iterator[tuple[int | None, Any]]:
    """Weights of each checkpoint; the next ones are read while these are scored, where there is room for both."""
    with ThreadPoolExecutor(1) as reader:
        waiting: Future[Any] | None = None
        for i, (step, load) in enumerate(checkpoints):
            state = load(model, dtype) if waiting is None else waiting.result()
            waiting, leaves = None, jax.tree.leaves(state)
            room = free_bytes(leaves[0].devices().pop()) > 2 * sum(leaf.nbytes for leaf in leaves)
            if i + 1 < len(checkpoints) and room:
                waiting = reader.submit(checkpoints[i + 1].load, model, dtype)
            del leaves
            yield step, state
            del state  # before the next ones are read where there is no room for both


class _Engine(NamedTuple):
    """Compiled programs, which serve any checkpoint of the model."""

    forward: Forward
    generator: Generator

    def take(self, model: Model) -> None:
        """Other weights, and speeds counted anew."""
        self.forward.model = self.generator.model = model
        self.forward.speed, self.generator.speed = Speed(), GenerationSpeed()


class _Scored(NamedTuple):
    """What an outcome holds beside scores and speeds."""

    inputs: Inputs
    length_limit: LengthLimit
    bos: Bos | None
    load_seconds: float
    check: SelfCheck


def _evaluate(
    engine: _Engine,
    scored: _Scored,
    parts: Iterable[Part],
    asked: list[AskedAnswers | AskedPrograms],
    lengths: tuple[int, ...],
    progress: Callable[[int, int], None],
) -> Outcome:
    model, totals, done = engine.forward.model, Totals(), 0
    empty = {own.source.task.name: own.scores(model.config.trained_length) for own in asked}
    tasks: list[AnyScores] = []
    for own in scored.inputs.sources:
        if isinstance(own, AnswerSource | ProgramSource):
            tasks.append(empty[own.task.name])
        else:
            tasks.append(TaskScores(own) if isinstance(own, Source) else ClozeScores(own))

    def advance(tokens: int) -> None:
        nonlocal done
        done += tokens
        progress(done, totals.unique_tokens)

    waiting: deque[Part] = deque()  # parts that are tokenized and not yet scored
    joined = join(parts, waiting, model.config)
    cost = _costs(model.config, scored.inputs)
    for scores in score_parts(joined, engine.forward, cost, totals, scored.check, advance, lengths):
        taken = iter(scores)
        for piece in waiting.popleft():
            own = list(islice(taken, len(piece.requests)))
            task = tasks[piece.task]
            assert isinstance(task, TaskScores | ClozeScores)
            hand_out(task, piece, own, model.config.trained_length)
    generate_texts([task for task in tasks if isinstance(task, ClozeScores)], asked, empty, engine.generator)
    for task in tasks:
        if isinstance(task, ClozeScores):
            score_items(task)
        elif isinstance(task, AnswerScores):
            score_answers(task)
        elif isinstance(task, ProgramScores):
            score_problems(task)
    generation = None if all(isinstance(task, TaskScores) for task in tasks) else engine.generator.speed
    inputs, limit, bos, load_seconds, check = scored
    return Outcome(tasks, inputs, limit, bos, totals, engine.forward.speed, check, load_seconds, generation)


def load_model(folder: Path, dtype: str) -> Model:
    config, state = load_hf(folder, jnp.dtype(dtype))
    return Model(config, abstract(config, jnp.dtype(dtype))[0], state)


def summarize_plan(config: RunConfig, inputs: Inputs) -> Totals:
    """Tokenize and plan without a device or weights."""
    folder, _ = find_model(config, weights=False)
    model_config = from_hf_config(folder)
    limit = length_limit(config, model_config)
    tokenizer = load_tokenizer(config.tokenizer or str(folder))
    totals = Totals()
    parts = parts_of(inputs.sources, config.limit, tokenizer, TokenBytes(tokenizer, model_config.vocab_size), limit)
    parts = join(parts, deque(maxlen=1), model_config)
    cost = _costs(model_config, inputs)
    lengths = expected_lengths(inputs.sources, config, tokenizer, limit, cost)
    for planned in plan_parts(parts, cost, totals, lengths):
        totals.useful_flops += useful_flops(model_config, planned.plan)
    return totals


def _costs(model: ModelConfig, inputs: Inputs) -> CostModel:
    """What rows cost; a run that draws long texts leaves some programs to generation."""
    texts = any(isinstance(source, AnswerSource | ProgramSource) for source in inputs.sources)
    return cost_model(model, SCORING_PROGRAMS - (GENERATION_PROGRAMS if texts else 0))
