"""The Python interface: score weights in a training loop, or score a few texts.

Arrives: a model and its tokenizer, task names, weights.  Leaves: the document of results.json, as a
dict; scores of texts.  It deliberately adds nothing to the stages, so that its numbers are those of
the command.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.stages import Compiled

from miron_jax.config import AXES, RunConfig, mesh_text, parse_mesh
from miron_jax.errors import InputError
from miron_jax.evaluation.device_memory import DeviceMemory, copied, memory_of
from miron_jax.evaluation.earlier import with_earlier
from miron_jax.evaluation.evaluator_arguments import (
    check_arguments,
    check_runs_here,
    name_of_tokenizer,
    step_of,
)
from miron_jax.evaluation.inputs import find_inputs, in_chats, with_labels
from miron_jax.evaluation.memory import inputs_of
from miron_jax.evaluation.records import Outcome
from miron_jax.evaluation.run import Evaluation
from miron_jax.evaluation.run_result import finished_run
from miron_jax.evaluation.same_on_hosts import (
    common_fields,
    fields_of_weights,
    lies_on_several_hosts,
)
from miron_jax.evaluation.sampling import check_sampling
from miron_jax.evaluation.session import Session, architecture_with, cast_to_run, files_of, state_of
from miron_jax.files.readers import Json, JsonObject
from miron_jax.files.store import Lock
from miron_jax.model.checkpoints.checkpoints import (
    Architecture,
    architecture_of,
    find_model,
)
from miron_jax.model.checkpoints.loading import check_one_copy
from miron_jax.model.checkpoints.training_run import Checkpoint
from miron_jax.model.decoder.decoder import leaf_name
from miron_jax.model.decoder.sharding import compile_copy, placed_shapes
from miron_jax.model.own import OwnModel
from miron_jax.report.exports.loggers import NAMES as LOGGERS
from miron_jax.report.exports.loggers import logged_numbers, open_loggers
from miron_jax.report.exports.other_layouts import other_layout
from miron_jax.results.document import run_json
from miron_jax.results.output import check_output, mend_output, steps_there
from miron_jax.results.records import RunResult
from miron_jax.results.run_folder import Run, read_runs
from miron_jax.results.writing import with_times, write_finished, write_top
from miron_jax.runtime.backend import check_backend_flags
from miron_jax.runtime.devices import Placement, Tree
from miron_jax.runtime.hosts import Hosts, of_program
from miron_jax.runtime.progress import SILENT, Lines
from miron_jax.runtime.timeline import Timeline, spent_on
from miron_jax.tokens.ragged import end_to_end
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import Tokenizer

Results = dict[str, Any]  # the document of results.json


class Evaluator:
    """Scores weights that change.  Data are read, tokenized and planned once; programs are compiled
    once::

        evaluator = Evaluator(model, tokenizer, tasks=["core/copa", "miron-gen"], limit=200)
        results = evaluator.run(params, step=1000)      # the document of results.json

    `model`: an OwnModel, or a folder (or hub id) with a config.json: then `params` is a state of
    the engine's Decoder (`load_params` gives one), and without params the folder's own weights are
    scored.  `tokenizer`: a transformers one, a folder or a hub id; None: the model's own.
    `row_axes`: axes of the weights' mesh that rows are split over, such as ("data",); weights stay
    where they are.  `mesh`: another layout of the same devices, such as "data=2,model=4": each run
    copies the weights to it from device to device, and frees the copy.  `data`: rows in memory
    instead of `tasks`, {"core/copa": [{"query": ..}, ..]} in the layout of CORE's files; another
    name has a dict of rows, type, num_fewshot and delimiter.
    `data_dir`: a folder with the data files; None: they are fetched and cached.  `output`: a folder
    that gets one step_N per step, as the command writes it; None: nothing is written.  `say`: gets
    each line of progress.
    `every`, `at_end`: after which steps `after_step` scores; `subset`: unique tokens of its runs
    but for the last one, of examples that are drawn as `budget` draws them.
    Other keywords are RunConfig's fields (limit, until, budget, dtype, max_length, tensorboard,
    wandb, seed, ...), named as the flags.  Raises InputError.
    """

    def __init__(
        self,
        model: OwnModel | str | Path,
        tokenizer: Any = None,
        tasks: Sequence[str] | None = None,
        *,
        data: Mapping[str, Json] | None = None,
        data_dir: str | Path | None = None,
        output: str | Path | None = None,
        row_axes: tuple[str, ...] = (),
        mesh: str | None = None,
        say: Callable[[str], None] | None = None,
        every: int | None = None,
        at_end: bool = True,
        subset: int | None = None,
        **options: Any,
    ) -> None:
        if data is not None and tasks is not None:
            raise InputError("Evaluator: data names its tasks itself: leave tasks out")
        given = {"tasks": tasks, "data": data, "data_dir": data_dir, "output": output}
        given |= {"row_axes": row_axes, "mesh": mesh, "say": say, **options}
        check_arguments(tasks, row_axes, every, subset)
        names = data
        if names is None:
            names = ("core",) if tasks is None else tasks
        if data_dir is not None:
            options["data_dir"] = (("", str(data_dir)),)
        name = f"OwnModel({_name_of(model)})" if isinstance(model, OwnModel) else str(model)
        if "sharding" in options:
            raise InputError(
                "Evaluator: weights stay where they are: place params, and name row_axes of their "
                "mesh; or name another layout by mesh alone"
            )
        if mesh is not None:
            if row_axes:
                raise InputError(
                    "Evaluator: row_axes are of the weights' own mesh, mesh is another one: leave "
                    "one of them out"
                )
            options |= {"sharding": "mesh", "mesh": parse_mesh(mesh)}
        if output is not None:
            options["output"] = str(output)
        if isinstance(tokenizer, str | Path):
            options["tokenizer"] = str(tokenizer)
        try:
            config = RunConfig(model=name, tasks=tuple(names), **options)
        except TypeError as error:
            raise InputError(f"Evaluator: {error}; expected fields of RunConfig") from None
        check_runs_here(config, writes=output is not None)
        self.config = config
        if tokenizer is not None:
            self.config = replace(config, tokenizer=name_of_tokenizer(tokenizer))
        against = self._against()
        self._writes = output is not None and jax.process_index() == 0
        if self._writes:
            store = check_output(self.config)
            with Lock(store):
                mend_output(store)
        self._results_of_step = steps_there(self.config) if self._writes else {}
        # tree structure of the first weights; shape, dtype and sharding of each leaf
        self._first: tuple[Tree, Tree] | None = None
        self._copy: Compiled | None = None  # the program that copies weights to the layout of mesh
        self._has_computed = False  # with the first weights
        self._hosts = Hosts()
        self._common: JsonObject = {}  # what hosts compare beside step and weights
        self._loggers = [] if jax.process_index() else open_loggers(self.config)
        self._files = files_of(model, config)
        if data is None:
            inputs = find_inputs(self.config)
        else:
            inputs = with_labels(self.config, in_chats(inputs_of(data), self.config))
        if against is not None:
            inputs = with_earlier(inputs, against)
        architecture = architecture_with(model, self._files, tokenizer, config)
        self.evaluation = Evaluation(
            self.config,
            inputs,
            architecture,
            SILENT if say is None else Lines(say),
            row_axes=row_axes,
        )
        self._every = every
        self._at_end = at_end
        self._logged_below = ""
        self._subset: Evaluator | None = None
        if subset is not None:
            self._subset = self._of_subset(subset, model, tokenizer, given)

    def _of_subset(
        self,
        budget: int,
        model: OwnModel | str | Path,
        tokenizer: Tokenizer | str | Path | None,
        given: JsonObject,
    ) -> "Evaluator":
        """The same on so many unique tokens; it writes to a folder beside this one's."""
        if self.config.is_sampled:
            raise InputError(
                "Evaluator: subset is a budget of its own: leave it out, or until and budget"
            )
        output = given["output"] and f"{given['output']}-subset"
        given = {**given, **dict.fromkeys(LOGGERS), "output": output, "budget": budget}
        # of a sample there are none; the whole run has them
        given |= {"controls": False, "fewshot_draws": 1}
        evaluator = Evaluator(model, tokenizer, **given)
        evaluator._loggers = self._loggers
        evaluator._logged_below = "subset/"
        return evaluator

    def run(self, params: Tree = None, step: int | None = None) -> Results:
        """Score these weights and return the document of results.json.  Raises InputError,
        SelfCheckFailed.

        `params`: as `OwnModel`'s functions take them, on any devices; None: the model's own.  Later
        calls take weights of the same shapes, dtypes and sharding, and compile nothing.  Examples
        that the model answers with NaN are counted in results["unanswered"].
        """
        return self.run_async(params, step).result()

    def memory(self, params: Tree = None) -> DeviceMemory:
        """What a run of all tasks takes of each device beside these weights, in bytes: see
        `DeviceMemory`.  Compiles the programs, which the first run then finds; nothing runs.

        `params`: as for `run`, or their shapes with shardings.  Raises InputError.
        """
        check_backend_flags()
        evaluation = self.evaluation
        with self._first_weights():
            state = self._state_of(params)
            if evaluation.placement is not None:
                state = placed_shapes(state, evaluation.architecture.config, evaluation.placement)
            return memory_of(evaluation, state, self._copy)

    def after_step(self, params: Tree, step: int, is_last: bool = False) -> Future[Results] | None:
        """`run_async` after a step of training that is due, else None: all tasks after the last one
        if `at_end`, a `subset` of them or all after each `every`-th one."""
        if is_last and self._at_end:
            return self.run_async(params, step)
        number = step_of(step)
        if not self._every or number is None or number % self._every:
            return None
        return (self._subset or self).run_async(params, step)

    def run_async(self, params: Tree = None, step: int | None = None) -> Future[Results]:
        """`run` in two parts: what needs the weights is done when this returns, metrics and files
        are made by a thread meanwhile, and the future has what `run` returns.

        The next run waits for that thread.
        """
        check_backend_flags()
        timeline = Timeline()
        with timeline.running(), self._first_weights():
            start = time.perf_counter()
            if lies_on_several_hosts(params):
                self._hosts = of_program()
            hosts = self.evaluation.hosts = self._hosts
            state = problem = None
            try:
                step = step_of(step)
                state = self._state_of(params)
            except (InputError, TypeError, ValueError) as error:  # jax's, of what is no array
                if hosts.count == 1:
                    raise
                problem = str(error)
            load_seconds = time.perf_counter() - start
            with hosts.round(partial(self._fields, state, step), problem):
                outcome = self._outcome(state, step, load_seconds)
        return hosts.in_first(partial(self._finish, outcome, step, timeline))

    @contextmanager
    def _first_weights(self) -> Iterator[None]:
        """Forget the first weights if nothing can be computed with them: the next may be others."""
        try:
            yield
            self._has_computed = True
        finally:
            if not self._has_computed:
                self._first = self._copy = self.evaluation.engine = None

    def _outcome(self, state: Tree, step: int | None, load_seconds: float) -> Outcome | None:
        """All scores of these weights, which are let go; None on hosts other than the first."""
        if self._copy is not None:
            state = copied(self.evaluation, self._copy, state)
        try:
            checkpoint = Checkpoint(step, None)
            return self.evaluation.score(state, load_seconds, checkpoint, rest_later=True)
        finally:
            self.evaluation.let_go()

    def _state_of(self, params: Tree) -> Tree:
        """Raises InputError for weights that the compiled programs do not take."""
        evaluation = self.evaluation
        with spent_on("load"):
            state = state_of(self._files, evaluation.architecture, self.config, params)
            if self._first is None and params is not None:
                evaluation.architecture = cast_to_run(evaluation.architecture, state, self.config)
            self._check_like_first(state)
            if self.config.mesh and self._copy is None:
                evaluation.placement = self._layout_for(state)
                model = evaluation.architecture.config
                self._copy = compile_copy(state, model, evaluation.placement)
        return state

    def _layout_for(self, state: Tree) -> Placement:
        """The layout of `mesh` on the devices of these weights, in their order.  Raises InputError
        for a mesh of more or fewer, and for one that would split a model that cannot be."""
        placement = Placement.of(state)
        devices = [placement.device]
        if placement.mesh is not None:
            devices = [*placement.mesh.devices.flat]
        shape = tuple(dict(self.config.mesh).get(axis, 1) for axis in AXES)
        if math.prod(shape) != len(devices):
            raise InputError(
                f"Evaluator: mesh={mesh_text(self.config.mesh)!r} takes {math.prod(shape)} "
                f"devices, the weights lie on {len(devices)}: name sizes whose product is that"
            )
        placement = Placement.on_mesh(devices, shape)
        check_one_copy(self.evaluation.architecture.config, self.config, placement)
        return placement

    def _fields(self, state: Tree, step: int | None) -> JsonObject:
        """What must be equal in all processes."""
        self._common = self._common or common_fields(self.evaluation)
        return {"step": step, **self._common, **fields_of_weights(state)}

    def _finish(self, outcome: Outcome | None, step: int | None, timeline: Timeline) -> Results:
        """The document of the results, written if there is an output folder, and logged."""
        assert outcome is not None, "the first host has the scores"
        with timeline.running():
            if outcome.take_texts is not None:
                outcome.take_texts()
            result = self._result(outcome, step, timeline)
            for logger in self._loggers:
                numbers = logged_numbers(result).items()
                logger.log(
                    step or 0, {f"{self._logged_below}{name}": value for name, value in numbers}
                )
            return run_json(result)

    def _result(self, outcome: Outcome, step: int | None, timeline: Timeline) -> RunResult:
        run = finished_run(self.config, outcome, step)
        if not self._writes:
            return with_times(run.result, timeline.total())
        layout = partial(other_layout, self.config.results_format)
        result = write_finished(self.config, run, timeline.total, layout)
        if step is not None:
            self._results_of_step[step] = result
            write_top(self.config, self._results_of_step, timeline.total, layout)
        return result

    def _against(self) -> Run | None:
        """The run that `until` and `budget` compare with.  Raises InputError."""
        config = self.config
        if config.against is not None and not config.is_sampled:
            raise InputError(
                "Evaluator: against is a run that until and budget compare with: give one of them "
                "too, or leave it out"
            )
        against = read_runs([config.against])[0] if config.against else None
        if config.is_sampled:
            check_sampling(config, has_earlier=against is not None)
        return against

    def _check_like_first(self, state: Tree) -> None:
        """Raises InputError for weights that the compiled programs do not take."""
        leaves, structure = jax.tree_util.tree_flatten_with_path(state)
        arrays = {
            leaf_name(path): (tuple(leaf.shape), str(leaf.dtype), leaf.sharding)
            for path, leaf in leaves
            if len(path)
        }
        if any(leaf.sharding is None for _, leaf in leaves):
            raise InputError(
                "Evaluator.memory: params hold a shape without a sharding: give each shape that of "
                "the weights, jax.ShapeDtypeStruct(shape, dtype, sharding=..)"
            )
        self._first = self._first or (structure, arrays)
        first_structure, first_arrays = self._first
        if first_structure != structure:
            raise InputError(
                "Evaluator.run: these params are another tree than the first ones (a pure dict, a "
                "module or a state of another model): give what the first call got, or make "
                "another Evaluator"
            )
        for name, (shape, dtype, sharding) in arrays.items():
            first_shape, first_dtype, first_sharding = first_arrays[name]
            if (first_shape, first_dtype) != (shape, dtype) or not first_sharding.is_equivalent_to(
                sharding, len(shape)
            ):
                raise InputError(
                    f"Evaluator.run: {name} is {dtype} {list(shape)} on {sharding}, the first "
                    f"call's was {first_dtype} {list(first_shape)} on {first_sharding}: make "
                    "another Evaluator for such weights"
                )


class TextScore(NamedTuple):
    """The score of a continuation after its context."""

    logprob: float  #: nats, sum over its tokens; NaN if the model answers NaN
    greedy: bool  #: whether greedy decoding writes it: every rank is 0
    token_ids: tuple[int, ...]  #: of the continuation
    token_logprobs: tuple[float, ...]  #: nats
    token_ranks: tuple[int, ...]  #: number of tokens that are more likely than each


def score(
    model: OwnModel | str | Path,
    tokenizer: Any = None,
    texts: Sequence[tuple[str, str]] = (),
    params: Tree = None,
    dtype: str = "float32",
) -> list[TextScore]:
    """Score (context, continuation) pairs; shared prefixes are computed once.

    Context and continuation are tokenized separately and concatenated, with the tokenizer's special
    tokens before the context.  An empty context needs a tokenizer that adds one there.  Raises
    InputError, SelfCheckFailed.
    """
    config = RunConfig(
        model="OwnModel" if isinstance(model, OwnModel) else str(model),
        tasks=("none",),
        dtype=dtype,  # type: ignore[arg-type]
    )
    session = Session(model, tokenizer, params, config)
    requests = _requests(session.architecture, texts)
    return [
        TextScore(
            float(text_score.logprob.sum(dtype=np.float64)),
            not text_score.rank.any() and not np.isnan(text_score.logprob).any(),
            tuple(requests.tokens(r)[requests.span_start[r] :].tolist()),
            tuple(text_score.logprob.tolist()),
            tuple(text_score.rank.tolist()),
        )
        for r, text_score in enumerate(session.scores(requests))
    ]


def load_params(folder: str | Path, dtype: str = "float32") -> Tree:
    """Weights of a folder (or hub id, or a training run's last step) as a state of the engine's
    Decoder (of a recurrent model nested dicts), on the default device.  Raises InputError."""
    config = RunConfig(model=str(folder), tasks=("none",), dtype=dtype)  # type: ignore[arg-type]
    files = find_model(config)
    return state_of(files, architecture_of(config, files), config, None)


def _name_of(model: OwnModel) -> str:
    function = model.logits or model.hidden or model.step
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', 'function')}"


def _requests(architecture: Architecture, texts: Sequence[tuple[str, str]]) -> Requests:
    """One request per pair, in order.  Raises InputError."""
    ids = []
    starts = []
    for i, pair in enumerate(texts):
        if (
            isinstance(pair, str)
            or len(pair) != 2
            or not all(isinstance(text, str) for text in pair)
        ):
            raise InputError(
                f"text {i} is {pair!r}, expected a pair of texts: (context, continuation)"
            )
        context, continuation = pair
        before = architecture.tokenizer(context, add_special_tokens=True)["input_ids"]
        eos = architecture.tokenizer.eos_token_id
        before = before[:-1] if len(before) > 1 and before[-1] == eos else before
        after = architecture.tokenizer(continuation, add_special_tokens=False)["input_ids"]
        if not before or not after:
            empty = "continuation" if before else "context"
            raise InputError(
                f"text {i}: its {empty} {continuation if before else context!r} has no token: give "
                "it some text"
            )
        ids.append(np.asarray([*before, *after], np.int32))
        starts.append(len(before))
    learned = architecture.config.num_positions
    for i, token_ids in enumerate(ids):
        if learned and len(token_ids) > learned:
            raise InputError(
                f"text {i} has {len(token_ids)} tokens, but the model has {learned} places: cut it"
            )
    no_flags = np.zeros(len(ids), bool)
    return Requests(*end_to_end(ids), np.asarray(starts, np.int32), no_flags, no_flags)
