"""The engine from Python: inside a training loop, or for a few texts.

Arrives: a model and its tokenizer, task names, weights.  Leaves: what results.json holds, as a dict; scores of texts.  It
deliberately adds nothing to what the stages do: a number from here is the command's number.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.config import RunConfig
from miron_jax.engine.forward import Forward
from miron_jax.engine.model import Model
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import SelfCheck, tolerance_of
from miron_jax.errors import InputError
from miron_jax.inputs import find_inputs
from miron_jax.model.checkpoints import (
    Architecture,
    architecture_of,
    check_vocabulary,
    checkpoints_of,
    find_model,
    load,
)
from miron_jax.model.costs import cost_model
from miron_jax.model.decoder import leaf_name
from miron_jax.model.own import OwnModel, check_own_model
from miron_jax.model.training_run import Checkpoint
from miron_jax.planning.request_batches import Totals
from miron_jax.ragged import end_to_end
from miron_jax.report.loggers import numbers_of, open_loggers
from miron_jax.report.output import check_output, steps_there, write_results, write_top
from miron_jax.report.results import results_of, strict
from miron_jax.run import Evaluation
from miron_jax.runtime.backend import check_backend_flags
from miron_jax.runtime.devices import Placement, with_auto_axes
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import load_tokenizer


class Evaluator:
    """Benchmarks for weights that change: data are read and tokenized and planned once, programs are compiled once.

        evaluator = Evaluator(model, tokenizer, tasks=["core/copa", "miron-gen"], limit=200)
        results = evaluator.run(params, step=1000)      # what results.json holds

    `model`: an OwnModel, or a folder (or hub id) with a config.json: then `params` is a state of the engine's Decoder
    (`load_params` gives one), and without params the folder's own weights are scored.  `tokenizer`: a transformers one, a
    folder or a hub id; None: the model's own.  `row_axes`: axes of the weights' mesh that rows are split over, such as
    ("data",); weights stay where they are.  `output`: a folder that gets a step_N a step, as the command writes it.  Other
    keywords are RunConfig's fields (limit, dtype, max_length, tensorboard, wandb, seed, ...), named as the command's flags.
    """

    def __init__(
        self,
        model: OwnModel | str | Path,
        tokenizer: Any = None,
        tasks: Sequence[str] = ("core",),
        *,
        data_dir: str | Path | None = None,
        output: str | Path | None = None,
        row_axes: tuple[str, ...] = (),
        say: Callable[[str], None] = lambda line: None,
        **options: Any,
    ) -> None:
        if isinstance(tasks, str):
            raise InputError(f"tasks is {tasks!r}, expected a list of names: tasks=[{tasks!r}]")
        if data_dir is not None:
            options["data_dir"] = (("", str(data_dir)),)
        own = isinstance(model, OwnModel)
        name = f"OwnModel({_name_of(model)})" if isinstance(model, OwnModel) else str(model)
        if "sharding" in options or "mesh" in options:
            raise InputError("Evaluator: weights stay where they are: place params, and name row_axes of their mesh")
        if output is not None:
            options["output"] = str(output)
        try:
            self.config = RunConfig(model=name, tasks=tuple(tasks), **options)
        except TypeError as error:
            raise InputError(f"Evaluator: {error}; expected fields of RunConfig") from None
        self._writes = output is not None and jax.process_index() == 0
        if self._writes:
            check_output(self.config)
        self._of_step = steps_there(self.config) if self._writes else {}
        self._like: Any = None  # shapes, dtypes and places of the first weights
        self._loggers = open_loggers(self.config)
        self._own_weights = None if own else find_model(self.config)
        self.evaluation = Evaluation(
            self.config,
            find_inputs(self.config),
            _architecture(model, tokenizer, self.config),
            say,
            row_axes=row_axes,
        )

    def run(self, params: Any = None, step: int | None = None) -> dict[str, Any]:
        """Score these weights: what results.json holds.  Raises InputError, SelfCheckFailed.

        `params`: as `OwnModel`'s functions take them, on any devices; None: the model's own.  Later calls take weights of
        the same shapes, dtypes and placement, and compile nothing.  Examples that the model answers with NaN are counted in
        results["unanswered"].
        """
        check_backend_flags()
        start = time.perf_counter()
        state = self._weights() if params is None else with_auto_axes(jax.tree.map(jnp.asarray, params))
        self._check_alike(state)
        outcome = self.evaluation.score(state, time.perf_counter() - start, checkpoint=Checkpoint(step, None))
        assert outcome is not None, "this process is alone"
        seconds = time.perf_counter() - start
        if self._writes:
            results = write_results(self.config, outcome, seconds, step)
            if step is not None:
                self._of_step[step] = results
                write_top(self.config, self._of_step, seconds)
        else:
            results = strict(results_of(self.config, outcome, seconds))
            results = results if step is None else {**results, "step": step}
        for logger in self._loggers:
            logger.log(step or 0, numbers_of(results))
        return results

    def _check_alike(self, state: Any) -> None:
        """Raises InputError for weights that the compiled programs do not take."""
        leaves, structure = jax.tree_util.tree_flatten_with_path(state)
        like = {
            leaf_name(path): (tuple(leaf.shape), str(leaf.dtype), leaf.sharding) for path, leaf in leaves if len(path)
        }
        first, self._like = self._like, self._like or (structure, like)
        if first is None:
            return
        if first[0] != structure:
            raise InputError(
                "Evaluator.run: these params are another tree than the first ones (a pure dict, a module or a state of "
                "another model): give what the first call got, or make another Evaluator"
            )
        for name, (shape, dtype, sharding) in like.items():
            before = first[1][name]
            if before[:2] != (shape, dtype) or not before[2].is_equivalent_to(sharding, len(shape)):
                raise InputError(
                    f"Evaluator.run: {name} is {dtype} {list(shape)} on {sharding}, the first call's was {before[1]} "
                    f"{list(before[0])} on {before[2]}: make another Evaluator for such weights"
                )

    def _weights(self) -> Any:
        architecture = self.evaluation.architecture
        if self._own_weights is None:
            return load(architecture, self.config, Checkpoint(None, None), Placement.default())
        return load(architecture, self.config, checkpoints_of(self.config, self._own_weights)[-1], Placement.default())


class TextScore(NamedTuple):
    """A continuation's score behind its context."""

    logprob: float  # nats, sum over its tokens; NaN where the model answers that
    greedy: bool  # whether greedy decoding writes it: every rank is 0
    token_ids: tuple[int, ...]
    token_logprobs: tuple[float, ...]  # nats
    token_ranks: tuple[int, ...]  # tokens ahead of each


def score(
    model: OwnModel | str | Path,
    tokenizer: Any = None,
    texts: Sequence[tuple[str, str]] = (),
    params: Any = None,
    dtype: str = "float32",
) -> list[TextScore]:
    """Score (context, continuation) pairs; what they share is computed once.

    Context and continuation are tokenized apart and laid end to end, with the tokenizer's own special tokens before the
    context.  An empty context needs a tokenizer that puts one there.  Raises InputError, SelfCheckFailed.
    """
    check_backend_flags()
    config = RunConfig(model="OwnModel" if isinstance(model, OwnModel) else str(model), tasks=("none",), dtype=dtype)  # type: ignore[arg-type]
    architecture = _architecture(model, tokenizer, config)
    requests = _requests(architecture, texts)
    if params is None:
        found = None if isinstance(model, OwnModel) else find_model(config)
        there = Checkpoint(None, None) if found is None else checkpoints_of(config, found)[-1]
        params = load(architecture, config, there, Placement.default())
    weights = Model(architecture.config, architecture.network, with_auto_axes(jax.tree.map(jnp.asarray, params)))
    check = SelfCheck(tolerance_of(architecture.config, weights.state, dtype))
    with jax.default_matmul_precision("highest"):
        if isinstance(architecture.config, OwnModel):
            check_own_model(architecture.config, weights.state, check.tolerance)
        forward = Forward(weights)
        [found_scores] = score_request_batches([requests], forward, cost_model(architecture.config), Totals(), check)
    return [
        TextScore(
            float(own.logprob.sum(dtype=np.float64)),
            not own.rank.any() and not np.isnan(own.logprob).any(),
            tuple(requests.tokens(r)[requests.span_start[r] :].tolist()),
            tuple(own.logprob.tolist()),
            tuple(own.rank.tolist()),
        )
        for r, own in enumerate(found_scores)
    ]


def load_params(folder: str | Path, dtype: str = "float32") -> Any:
    """Weights of a folder (or hub id, or a run's last step) as the engine's Decoder holds them, on the default device."""
    config = RunConfig(model=str(folder), tasks=("none",), dtype=dtype)  # type: ignore[arg-type]
    found = find_model(config)
    return load(architecture_of(config, found), config, checkpoints_of(config, found)[-1], Placement.default())


def _architecture(model: OwnModel | str | Path, tokenizer: Any, config: RunConfig) -> Architecture:
    if not isinstance(model, OwnModel):
        found = architecture_of(config, find_model(config))
        return found if tokenizer is None else found._replace(tokenizer=_tokenizer(tokenizer))
    tokenizer = model.tokenizer if tokenizer is None else tokenizer
    if tokenizer is None:
        raise InputError("the OwnModel has no tokenizer: give one there, or beside it")
    tokenizer = _tokenizer(tokenizer)
    check_vocabulary(tokenizer, model.vocab_size)
    return Architecture(model, model, tokenizer, model.eos_token_ids)


def _tokenizer(tokenizer: Any) -> Any:
    if isinstance(tokenizer, str | Path):
        return load_tokenizer(str(tokenizer))
    if not callable(tokenizer) or not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise InputError(
            f"the tokenizer is a {type(tokenizer).__name__}, expected a transformers tokenizer, a folder or a hub id "
            "(weights go to params)"
        )
    return tokenizer


def _name_of(own: OwnModel) -> str:
    function = own.logits or own.hidden
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', 'function')}"


def _requests(architecture: Architecture, texts: Sequence[tuple[str, str]]) -> Requests:
    """One request a pair, in order."""
    ids, starts = [], []
    for i, pair in enumerate(texts):
        if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise InputError(f"text {i} is {pair!r}, expected a pair of texts: (context, continuation)")
        context, continuation = pair
        before = architecture.tokenizer(context, add_special_tokens=True)["input_ids"]
        eos = architecture.tokenizer.eos_token_id
        before = before[:-1] if len(before) > 1 and before[-1] == eos else before
        after = architecture.tokenizer(continuation, add_special_tokens=False)["input_ids"]
        if not before or not after:
            empty = "continuation" if before else "context"
            raise InputError(
                f"text {i}: its {empty} {continuation if before else context!r} has no token: give it some text"
            )
        ids.append(np.asarray([*before, *after], np.int32))
        starts.append(len(before))
    highest = max((int(own.max()) for own in ids), default=0)
    if highest >= architecture.config.vocab_size:
        raise InputError(
            f"the tokenizer gives token id {highest}, but the model's vocabulary has {architecture.config.vocab_size}: "
            "give the model's own tokenizer"
        )
    most = architecture.config.num_positions
    too_long = [i for i, own in enumerate(ids) if most and len(own) > most]
    if too_long:
        raise InputError(
            f"text {too_long[0]} has {len(ids[too_long[0]])} tokens, but the model has {most} places: cut it"
        )
    no = np.zeros(len(ids), bool)
    return Requests(*end_to_end(ids), np.asarray(starts, np.int32), no, no)
