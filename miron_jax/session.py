"""A model's weights on the devices, with compiled programs: scores requests and completes texts, call after call.

Arrives: a model, its tokenizer, weights; requests as token ids.  Leaves: `Scores`, completions.  It deliberately does not
know tasks or files of results.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.config import RunConfig
from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model
from miron_jax.engine.records import Score
from miron_jax.engine.scores import score_request_batches
from miron_jax.engine.self_check import SelfCheck, tolerance_of
from miron_jax.engine.text_requests import Generated, TextRequest
from miron_jax.errors import InputError
from miron_jax.model.checkpoints import (
    Architecture,
    ModelFiles,
    architecture_of,
    check_vocabulary,
    checkpoints_of,
    find_model,
    load,
)
from miron_jax.model.costs import cost_model
from miron_jax.model.own import OwnModel, check_own_model
from miron_jax.planning.request_batches import REQUEST_BATCH_TOKENS, Totals, select
from miron_jax.runtime.backend import check_backend_flags
from miron_jax.runtime.devices import Placement, with_auto_axes
from miron_jax.tokens.records import Requests
from miron_jax.tokens.tokenizers import load_tokenizer


class Session:
    """One model.  `totals` and `check` are sums over all calls of `scores`.

    `model`: an OwnModel, or a folder or hub id; `params`: its weights, which stay where they are; None: its own (of a
    training run, the last step that `config.steps` selects), on the devices that `config` names.  Raises InputError.
    """

    def __init__(
        self,
        model: OwnModel | str | Path,
        tokenizer: Any,
        params: Any,
        config: RunConfig,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        check_backend_flags()
        self.files = files = files_of(model, config)
        self.architecture = architecture_with(model, files, tokenizer, config)
        placement = Placement.choose(config.sharding, config.mesh) if params is None else None
        state = state_of(files, self.architecture, config, params, placement)
        config_of_model = self.architecture.config
        placement = Placement.of_loaded(state, placement, is_own=isinstance(config_of_model, OwnModel))
        self.totals, self.check = Totals(), SelfCheck(tolerance_of(config_of_model, state, config.dtype))
        self.model = Model(config_of_model, self.architecture.network, state, placement, config.attention)
        with jax.default_matmul_precision("highest"):
            if isinstance(config_of_model, OwnModel):
                check_own_model(config_of_model, self.model.on_one_device.state, self.check.tolerance)
            self.forward = Forward(self.model, config.token_budget, say)
            self.generator = Generator(self.model, self.architecture.tokenizer, self.architecture.eos_ids, say=say)

    def scores(self, requests: Requests) -> list[Score]:
        """The scored span of each request, in their order.  Raises InputError, SelfCheckFailed."""
        highest, vocab_size = int(requests.token_ids.max(initial=0)), self.architecture.config.vocab_size
        if highest >= vocab_size:
            raise InputError(
                f"the tokenizer gives token id {highest}, but the model's vocabulary has {vocab_size}: "
                "give the model's own tokenizer"
            )
        with jax.default_matmul_precision("highest"):
            cost = cost_model(self.architecture.config)
            batches = score_request_batches(_parts(requests), self.forward, cost, self.totals, self.check)
            return [score for scores in batches for score in scores]

    def completions(self, requests: Sequence[TextRequest]) -> list[Generated]:
        """Raises InputError for a request that cannot run."""
        with jax.default_matmul_precision("highest"):
            return self.generator.run(requests)


def _parts(requests: Requests) -> Iterator[Requests]:
    """The requests in parts of about REQUEST_BATCH_TOKENS tokens, in their order."""
    part = requests.offsets[:-1] // REQUEST_BATCH_TOKENS
    for number in np.unique(part):
        yield select(requests, np.flatnonzero(part == number))


def files_of(model: OwnModel | str | Path, config: RunConfig) -> ModelFiles:
    return ModelFiles(None, None, model) if isinstance(model, OwnModel) else find_model(config)


def state_of(
    files: ModelFiles, architecture: Architecture, config: RunConfig, params: Any, placement: Placement | None = None
) -> Any:
    """`params` as arrays of the engine; None: the model's own, of its last checkpoint."""
    if params is None:
        checkpoint = checkpoints_of(config, files)[-1]
        params = load(architecture, config, checkpoint, placement or Placement.default())
    return with_auto_axes(jax.tree.map(jnp.asarray, params))


def architecture_with(
    model: OwnModel | str | Path, files: ModelFiles, tokenizer: Any, config: RunConfig
) -> Architecture:
    """What the model computes, with this tokenizer (a transformers one, a folder or a hub id; None: the model's own)."""
    if not isinstance(model, OwnModel):
        architecture = architecture_of(config, files)
        return architecture if tokenizer is None else architecture._replace(tokenizer=_tokenizer(tokenizer))
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
