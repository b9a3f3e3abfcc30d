"""Composes the stages: a RunConfig in, an `Outcome` out.

Arrives: a validated RunConfig.  Leaves: what every task scored, or what a run would do.  Benchmark data and config.json
are checked before weights are loaded.  It deliberately does not know flags or file formats of results.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from miron_jax import demo
from miron_jax.aggregate import ClozeScores, ClozeSource, Inputs, Outcome, Source, TaskScores
from miron_jax.cloze_requests import Asked, cloze_requests
from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.forward import Forward, Model, Speed, cost_model, useful_flops
from miron_jax.generate import GenerationSpeed, Generator, TextRequest
from miron_jax.metrics.choices import ExampleScore, score_choices, score_continuation
from miron_jax.metrics.cloze import ClozeAnswers, Fragments, Span, score_cloze
from miron_jax.model.config import ModelConfig, eos_token_ids, from_hf_config
from miron_jax.model.decoder import abstract
from miron_jax.model.hf_reader import load_hf, resolve_model
from miron_jax.model.orbax_reader import checkpoint_steps, load_orbax
from miron_jax.plan import CostModel, choose_lengths
from miron_jax.prompts import Prompt, render, without_shots
from miron_jax.scores import PART_TOKENS, TOLERANCE, Score, SelfCheck, Totals, plan_parts, score_parts
from miron_jax.task import Cloze, ClozeTask, Task, data_state, read_examples
from miron_jax.tasks import registry
from miron_jax.token_bytes import TokenBytes
from miron_jax.token_requests import Bos, Requests, concatenate, load_tokenizer, resolve_bos, tokenize

LONGEST_TRIED, SAMPLED = 8, 32  # examples of each task tokenized ahead: its longest, and some of every size


class _Piece(NamedTuple):
    """Some examples of one task, tokenized."""

    task: int  # place in Inputs.sources
    prompts: list[Prompt]
    requests: Requests


class _ClozePiece(NamedTuple):
    """The items of one cloze task, tokenized."""

    task: int
    items: list[Cloze]
    asked: list[Asked]
    requests: Requests


def find_inputs(config: RunConfig) -> Inputs:
    """Find and read the data of every task asked for.  A suite goes on without a file; a task asked for by name does not."""
    selection = registry.select(",".join(config.tasks))
    names = {task.name for task in selection.tasks}
    suites = [suite for suite in registry.SUITES.values() if any(task.name in names for task in suite.tasks)]
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
            else:
                sources.append(Source(task, read_examples(task, folder, config.allow_changed_data), data))
    if not sources:
        raise InputError(f"none of the tasks asked for has its data file: {next(iter(missing.values()))} and others")
    return Inputs(sources, missing, suites)


def _first_of_each(items: list[Cloze], limit: int | None) -> list[Cloze]:
    """The first `limit` items of each category, in file order."""
    met: Counter[str] = Counter()
    chosen = []
    for item in items:
        met[item.category] += 1
        if limit is None or met[item.category] <= limit:
            chosen.append(item)
    return chosen


def task_file(task: Task | ClozeTask, folder: Path) -> Path:
    assert task.file is not None
    return folder / (task.file if isinstance(task, ClozeTask) else task.file.path)


def length_limit(config: RunConfig, model: ModelConfig) -> int | None:
    """Tokens a request may have, BOS included: the user's limit, and never more than the model's learned positions."""
    learned = model.num_positions
    if config.max_length and learned and config.max_length > learned:
        raise InputError(
            f"--max_length is {config.max_length}, but the model has {learned} learned positions: lower it"
        )
    return config.max_length or learned


class Checkpoint(NamedTuple):
    """Weights to score."""

    step: int | None  # of the training run it comes from; None: a model that has no steps
    load: Callable[[ModelConfig, Any], Any]  # config and dtype -> state on the device


def find_model(config: RunConfig, weights: bool = True) -> tuple[Path, list[Checkpoint]]:
    """(folder of config.json and tokenizer, its checkpoints in order of training)."""
    if config.model == demo.NAME:
        steps = checkpoint_steps(demo.FOLDER / "steps")
        return demo.FOLDER, [Checkpoint(step, partial(load_orbax, path)) for step, path in steps]
    folder = resolve_model(config.model, weights=weights)
    return folder, [Checkpoint(None, lambda model_config, dtype: load_hf(folder, dtype)[1])]


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
    bos = resolve_bos(tokenizer) if any(isinstance(source, Source) for source in inputs.sources) else None
    table, eos_ids = TokenBytes(tokenizer), eos_token_ids(folder)
    graphdef = abstract(model_config, jnp.dtype(config.dtype))[0]
    parts = _parts(inputs.sources, config.limit, tokenizer, table, limit)
    tokenized = list(parts) if len(checkpoints) > 1 else None
    engine: _Engine | None = None
    for step, load in checkpoints:
        model = Model(model_config, graphdef, load(model_config, jnp.dtype(config.dtype)))
        load_seconds = time.perf_counter() - start
        say(f"loaded {config.model}{'' if step is None else f' at step {step}'} in {load_seconds:.1f} s")
        engine = engine or _Engine(
            Forward(model, config.token_budget, say, table.id_sets), Generator(model, tokenizer, eos_ids, say=say)
        )
        engine.take(model)
        scored = _Scored(inputs, limit, bos, load_seconds, SelfCheck(TOLERANCE[config.dtype]))
        lengths = expected_lengths(inputs.sources, config, tokenizer, limit, cost_model(model_config))
        yield step, _evaluate(engine, scored, tokenized or parts, lengths, progress)
        start = time.perf_counter()


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
    length_limit: int | None
    bos: Bos | None
    load_seconds: float
    check: SelfCheck


def _evaluate(
    engine: _Engine,
    scored: _Scored,
    parts: Iterable[list[_Piece | _ClozePiece]],
    lengths: tuple[int, ...],
    progress: Callable[[int, int], None],
) -> Outcome:
    model, totals, done = engine.forward.model, Totals(), 0
    tasks = [TaskScores(own) if isinstance(own, Source) else ClozeScores(own) for own in scored.inputs.sources]

    def advance(tokens: int) -> None:
        nonlocal done
        done += tokens
        progress(done, totals.unique_tokens)

    waiting: deque[list[_Piece | _ClozePiece]] = deque()  # parts that are tokenized and not yet scored
    joined = _join(parts, waiting, model.config)
    cost = cost_model(model.config)
    for scores in score_parts(joined, engine.forward, cost, totals, scored.check, advance, lengths):
        taken = iter(scores)
        for piece in waiting.popleft():
            own, task = list(islice(taken, len(piece.requests))), tasks[piece.task]
            if isinstance(piece, _ClozePiece):
                assert isinstance(task, ClozeScores)
                _hand_out_cloze(task, piece, own, model.config.trained_length)
            else:
                assert isinstance(task, TaskScores)
                _hand_out(task, piece, own)
                _count(task, piece, model.config.trained_length)
    cloze = [task for task in tasks if isinstance(task, ClozeScores)]
    _generate(cloze, engine.generator)
    for task in cloze:
        columns = (task.items, task.asked, task.spans, task.generated)
        task.examples = [_score_item(*item) for item in zip(*columns, strict=True)]
    generation = engine.generator.speed if cloze else None
    inputs, limit, bos, load_seconds, check = scored
    return Outcome(tasks, inputs, limit, bos, totals, engine.forward.speed, check, load_seconds, generation)


def _generate(tasks: list[ClozeScores], generator: Generator) -> None:
    """A text for every item that is scored, the items of all tasks in one go."""
    asked = [(task, asked) for task in tasks for asked in task.asked]
    wanted = []
    for task, own in asked:
        profile = task.source.task.profile
        if own.target is not None:
            wanted.append(TextRequest(own.prompt, own.num_tokens + profile.extra_tokens, (profile.stop,)))
    texts = iter([found.text for found in generator.run(wanted)])
    for task, own in asked:
        task.generated.append("" if own.target is None else next(texts))


def _score_item(item: Cloze, asked: Asked, spans: dict[int, Score], generated: str) -> ExampleScore | None:
    if asked.target is None:
        return None

    def span(place: int | None) -> Span | None:
        return None if place is None else Span(*spans[place])

    target = span(asked.target)
    assert target is not None
    answers = ClozeAnswers(
        target=target,
        card=None if asked.card is None else spans[asked.card].logprob,
        unprefixed=span(asked.unprefixed),
        clean=span(asked.clean),
        distractors=[span(place) for place in asked.distractors],
        segmentations=[Span(*spans[place]) for place in asked.segmentations],
        generated=generated,
    )
    fragments = Fragments(asked.num_tokens, asked.num_prefix_tokens, asked.num_clean_tokens, asked.seam, asked.regress)
    return score_cloze(item.prefix, item.target, item.distractors, answers, fragments)


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
    parts = _parts(inputs.sources, config.limit, tokenizer, TokenBytes(tokenizer), limit)
    parts = _join(parts, deque(maxlen=1), model_config)
    cost = cost_model(model_config)
    lengths = expected_lengths(inputs.sources, config, tokenizer, limit, cost)
    for planned in plan_parts(parts, cost, totals, lengths):
        totals.useful_flops += useful_flops(model_config, planned.plan)
    return totals


def expected_lengths(
    sources: Sequence[Source | ClozeSource], config: RunConfig, tokenizer: Any, max_length: int | None, cost: CostModel
) -> tuple[int, ...]:
    """Row lengths for a run of several parts, () for a run of one, which chooses from the data themselves.

    Sizes of all examples are guessed from their UTF-8 bytes; the rate of each task comes from a few that are tokenized,
    the longest among them.  One program is left to an example that is longer than guessed.
    """
    plain_tokens, longest, guessed = 0.0, 0, []
    for source in sources:
        if isinstance(source, ClozeSource):
            continue
        prompts = render(source.task, source.examples, config.limit)
        sizes = np.asarray([len((prompt.contexts[0] + "".join(prompt.continuations)).encode()) for prompt in prompts])
        by_size = np.argsort(sizes, kind="stable")
        tried = np.unique([*by_size[-LONGEST_TRIED:], *by_size[:: max(1, len(prompts) // SAMPLED)]])
        measured = np.asarray([_places(prompts[i], source.task, tokenizer, max_length) for i in tried])
        longest = max(longest, int(measured.max()))
        guessed.append(np.minimum(sizes * (measured.sum() / sizes[tried].sum()), measured.max()))
        plain_tokens += float(guessed[-1].sum()) * len(prompts[0].contexts)
    if plain_tokens < PART_TOKENS:
        return ()
    longest = -(-longest // cost.length_multiple) * cost.length_multiple
    spare = replace(cost, max_lengths=max(1, cost.max_lengths - 1))
    return choose_lengths(np.ceil(np.concatenate(guessed)).astype(np.int64), spare, (longest,))


def _places(prompt: Prompt, task: Task, tokenizer: Any, max_length: int | None) -> int:
    """Places that an example's options take together, their common beginning shared."""
    requests = tokenize([prompt], task.profile, tokenizer, max_length, task.name)
    length = np.diff(requests.offsets)
    return int(length.max() + np.sort(length - requests.span_start)[:-1].sum())


def _parts(
    sources: Sequence[Source | ClozeSource],
    limit: int | None,
    tokenizer: Any,
    table: TokenBytes,
    max_length: int | None,
) -> Iterator[list[_Piece | _ClozePiece]]:
    """Tokenized examples in runs of about PART_TOKENS tokens, over the tasks' borders."""
    part: list[_Piece | _ClozePiece] = []
    tokens = 0
    for index, source in enumerate(sources):
        for piece in _pieces(index, source, limit, tokenizer, table, max_length):
            part.append(piece)
            tokens += len(piece.requests.token_ids)
            if tokens >= PART_TOKENS:
                yield part
                part, tokens = [], 0
    if part:
        yield part


def _pieces(
    index: int,
    source: Source | ClozeSource,
    limit: int | None,
    tokenizer: Any,
    table: TokenBytes,
    max_length: int | None,
) -> Iterator[_Piece | _ClozePiece]:
    if isinstance(source, ClozeSource):
        task, items = source.task, source.examples
        requests, asked = cloze_requests(items, task.profile, tokenizer, table, max_length, task.name)
        yield _ClozePiece(index, items, asked, requests)
        return
    prompts = render(source.task, source.examples, limit)
    for chunk in _chunks(prompts):
        requests = tokenize(chunk, source.task.profile, tokenizer, max_length, source.task.name)
        yield _Piece(index, chunk, requests)


def _join(
    parts: Iterable[list[_Piece | _ClozePiece]], waiting: deque[list[_Piece | _ClozePiece]], model: ModelConfig
) -> Iterator[Requests]:
    """Each part's requests end to end; the part itself goes to `waiting` for the scores to come."""
    for part in parts:
        waiting.append(part)
        requests = concatenate([piece.requests for piece in part])
        highest = int(requests.token_ids.max(initial=0))
        if highest >= model.vocab_size:  # an embedding lookup on the device would silently take another row
            raise InputError(
                f"the tokenizer gives token id {highest}, but the model's vocabulary has {model.vocab_size}: "
                "name the model's own tokenizer with --tokenizer"
            )
        yield requests


def _chunks(prompts: list[Prompt]) -> Iterator[list[Prompt]]:
    """Prompts in runs that hold about half a part's text, at four characters a token."""
    start = num_chars = 0
    for i, prompt in enumerate(prompts):
        num_chars += sum(map(len, prompt.contexts)) + sum(map(len, prompt.continuations))
        if num_chars >= 2 * PART_TOKENS:
            yield prompts[start : i + 1]
            start, num_chars = i + 1, 0
    if start < len(prompts):
        yield prompts[start:]


def _hand_out(task: TaskScores, piece: _Piece, scores: list[Score]) -> None:
    """Give each example its options' scores and score it."""
    taken = iter(scores)
    for prompt in piece.prompts:
        options = list(islice(taken, len(prompt.continuations)))
        if task.source.task.kind == "language_modeling":
            example = score_continuation(options[0].logprob, options[0].rank, prompt.continuations[0])
        else:
            assert prompt.gold is not None
            example = score_choices([option.logprob for option in options], prompt.continuations, prompt.gold)
        task.prompts.append(without_shots(prompt))
        task.options.append(options)
        task.examples.append(example)


def _hand_out_cloze(task: ClozeScores, piece: _ClozePiece, scores: list[Score], trained_length: int) -> None:
    """Give each item the scores that it asked for; its text is generated later."""
    task.items += piece.items
    task.asked += piece.asked
    length = np.diff(piece.requests.offsets)
    for asked in piece.asked:
        optional = (asked.target, asked.card, asked.unprefixed, asked.clean, *asked.distractors)
        places = [place for place in (*optional, *asked.segmentations) if place is not None]
        task.spans.append({place: scores[place] for place in places})
        task.truncated += bool(piece.requests.truncated[places].any())
        task.beyond_trained += bool((length[places] - 1 > trained_length).any())


def _count(task: TaskScores, piece: _Piece, trained_length: int) -> None:
    """Count examples that the length limit, the tokenizer or the model's training length touched."""
    first = np.cumsum([0, *(len(prompt.continuations) for prompt in piece.prompts)])[:-1]
    requests = piece.requests
    task.truncated += int(np.logical_or.reduceat(requests.truncated, first).sum())
    task.inexact_prefix += int(np.logical_or.reduceat(requests.inexact_prefix, first).sum())
    too_long = np.diff(requests.offsets) - 1 > trained_length
    task.beyond_trained += int(np.logical_or.reduceat(too_long, first).sum())
