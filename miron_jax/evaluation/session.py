"""A model's weights on the devices, with compiled programs: scores requests and completes texts,
call after call.

Arrives: a model, its tokenizer, weights; requests as token ids.  Leaves: `Scores`, completions.  It
deliberately does not know tasks or files of results.
"""

import io
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from miron_jax.config import RunConfig
from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model, with_experts
from miron_jax.engine.records import Score
from miron_jax.engine.scores import score_planned
from miron_jax.engine.self_check import SelfCheck
from miron_jax.engine.text_requests import Generated, Sampling, TextRequest
from miron_jax.errors import InputError, some_of
from miron_jax.evaluation.journal_key import agreed_key, key_with_answers
from miron_jax.evaluation.texts import generated
from miron_jax.files.store import Store, wait_for
from miron_jax.model.checkpoints.checkpoints import (
    Architecture,
    ModelFiles,
    architecture_of,
    check_vocabulary,
    check_without_checkpoint,
    checkpoints_of,
    find_model,
    say_tokenizer,
    tokenizer_at,
)
from miron_jax.model.checkpoints.fingerprint import weights_fingerprint
from miron_jax.model.checkpoints.hf_reader import shapes_of
from miron_jax.model.checkpoints.loading import load
from miron_jax.model.costs import cost_model
from miron_jax.model.decoder.decoder import leaf_name
from miron_jax.model.network import CastNetwork, Network
from miron_jax.model.own import OwnModel
from miron_jax.planning.request_batches import (
    REQUEST_BATCH_TOKENS,
    Totals,
    plan_request_batches,
    select,
)
from miron_jax.runtime.backend import check_backend_flags, start_devices
from miron_jax.runtime.devices import Placement, Tree, with_auto_axes
from miron_jax.runtime.hosts import Hosts
from miron_jax.runtime.journal import Journal
from miron_jax.runtime.progress import SILENT, Progress
from miron_jax.tokens.records import Requests

CALLS = "calls"  # folder of the store: requests that the first process hands to the others


class Session:
    """One model.  `totals` and `check` are sums over all calls of `scores`.

    `model`: an OwnModel, or a folder or hub id; `params`: its weights, which stay where they are;
    None: its own (of a training run, the last step that `config.steps` selects), on the devices
    that `config` names.  `store`: keeps finished scores and texts for a later session of the same
    weights.  `hosts`: processes that each make a session of the same model and share its work: the
    first one calls, the others `serve` until it closes; they meet in `store`.  Raises InputError.
    """

    def __init__(
        self,
        model: OwnModel | str | Path,
        tokenizer: Any,
        params: Any,
        config: RunConfig,
        progress: Progress = SILENT,
        store: Store | None = None,
        hosts: Hosts = Hosts(),  # noqa: B008 - this process alone
    ) -> None:
        check_backend_flags()
        self.files = files = hosts.first_then_others("model", lambda: files_of(model, config))
        self.architecture = architecture_with(model, files, tokenizer, config)
        start_devices(progress.warn)  # a user's module may set jax's flags before
        placement = Placement.choose(config.sharding, config.mesh) if params is None else None
        state = state_of(files, self.architecture, config, params, placement)
        if params is not None:
            self.architecture = cast_to_run(self.architecture, state, config)
        config_of_model = self.architecture.config
        placement = Placement.of_loaded(
            state, placement, is_own=isinstance(config_of_model, Network)
        )
        self.totals = Totals()
        self.check = SelfCheck.of(config_of_model, state, config.dtype)
        loaded = Model(
            config_of_model,
            self.architecture.network,
            state,
            placement,
            config.attention,
            config.token_stats,
        )
        self.model = with_experts(loaded, progress)
        self._store = store
        self._hosts = hosts
        self._num_calls = 0
        self._progress = progress
        say_tokenizer(self.architecture.tokenizer, progress)
        with jax.default_matmul_precision("highest"):
            if isinstance(config_of_model, OwnModel):
                self.check.probe(self.model)
            self._journal = None if store is None else self._open_journal(store, config.dtype)
            self.forward = Forward(self.model, config.token_budget, progress)
            self.generator = Generator(
                self.model,
                self.architecture.tokenizer,
                self.architecture.eos_ids,
                progress=progress,
            )

    def scores(self, requests: Requests) -> list[Score]:
        """The scored span of each request, in their order.  Raises InputError, SelfCheckFailed."""
        highest = int(requests.token_ids.max(initial=0))
        vocab_size = self.architecture.config.vocab_size
        if highest >= vocab_size:
            raise InputError(
                f"the tokenizer gives token id {highest}, but the model's vocabulary has "
                f"{vocab_size}: give the model's own tokenizer"
            )
        with self._call(requests) as name, jax.default_matmul_precision("highest"):
            cost = cost_model(self.architecture.config)
            planned = plan_request_batches(
                _parts(requests), cost, self.totals, (), self.forward.id_sets
            )
            how = {"journal": self._journal, "hosts": self._hosts, "name": name}
            batches = score_planned(planned, self.forward, self.check, **how)
            scores: list[Score] = []
            for _, of_batch in batches:
                scores += of_batch
            return scores

    def completions(self, requests: Sequence[TextRequest]) -> list[Generated]:
        """Raises InputError for a request that cannot run."""
        with self._call(list(requests)) as name, jax.default_matmul_precision("highest"):
            return generated(
                list(requests), self.generator, self._journal, self._hosts, f"{name}/texts"
            )

    @cached_property
    def weights(self) -> str:
        """The fingerprint of the weights; of a mesh that spans processes, all of them compute
        it."""
        return weights_fingerprint(self.model.on_one_device.state)

    # Other processes

    def serve(self) -> None:
        """Take part in the calls of the first process until it closes its session."""
        while (call := self._hosts.agree(f"call/{self._num_calls + 1}")) is not None:
            assert self._store is not None
            content = wait_for(self._store, call)
            if call.endswith(".npz"):
                self.scores(_requests_of(content))
            else:
                self.completions(_text_requests_of(content))

    def close(self) -> None:
        """Let the other processes end; every call has written what is kept."""
        if self._hosts.is_first:
            self._hosts.agree(f"call/{self._num_calls + 1}", None)
        self._hosts.end()

    @contextmanager
    def _call(self, requests: Requests | list[TextRequest]) -> Iterator[str]:
        """The name of a call; the first process hands its requests to the others.  Its end writes
        what is finished."""
        self._num_calls += 1
        name = f"call/{self._num_calls}"
        file = None
        hosts = self._hosts
        hosts.rest(False)
        if hosts.count > 1 and hosts.is_first:
            assert self._store is not None
            file = f"{CALLS}/{uuid.uuid4().hex}"
            if isinstance(requests, Requests):
                file += ".npz"
                self._store.put(file, _npz(requests))
            else:
                file += ".json"
                self._store.put(file, json.dumps([*map(astuple, requests)]).encode())
            hosts.agree(name, file)
        try:
            yield name
        finally:
            if self._journal is not None:
                self._journal.flush()
        hosts.arrive(f"{name}/done")
        if file is not None and self._store is not None:
            hosts.gather(f"{name}/done")
            self._store.remove(file)
        hosts.rest(True)

    def _open_journal(self, store: Store, dtype: str) -> Journal | None:
        """None on processes of a mesh that spans hosts, but for the first."""
        placement = self.model.placement
        hosts = self._hosts
        assert placement is not None
        hosts.check_shared(store)
        key = agreed_key(hosts, "session", self.model, self.architecture, self.weights, dtype)
        if isinstance(self.model.config, OwnModel):
            answers = self.check.probe(self.model)
            key = key_with_answers(
                hosts, "session", store, key, answers, placement.is_global, self._progress
            )
        if placement.is_global and not hosts.is_first:
            return None
        journal = Journal(store, key, str(hosts.index), self._progress).__enter__()
        hosts.on_leave = journal.flush
        return journal


def _npz(requests: Requests) -> bytes:
    content = io.BytesIO()
    np.savez(
        content,
        token_ids=requests.token_ids,
        offsets=requests.offsets,
        span_start=requests.span_start,
    )
    return content.getvalue()


def _requests_of(content: bytes) -> Requests:
    with np.load(io.BytesIO(content)) as arrays:
        no_flags = np.zeros(len(arrays["span_start"]), bool)
        return Requests(
            arrays["token_ids"], arrays["offsets"], arrays["span_start"], no_flags, no_flags
        )


def _text_requests_of(content: bytes) -> list[TextRequest]:
    return [
        TextRequest(tuple(token_ids), most, tuple(stop), Sampling(*sampling))
        for token_ids, most, stop, sampling in json.loads(content)
    ]


def _parts(requests: Requests) -> Iterator[Requests]:
    """The requests in parts of about REQUEST_BATCH_TOKENS tokens, in their order."""
    part = requests.offsets[:-1] // REQUEST_BATCH_TOKENS
    for number in np.unique(part):
        yield select(requests, np.flatnonzero(part == number))


def files_of(model: OwnModel | str | Path, config: RunConfig) -> ModelFiles:
    if not isinstance(model, OwnModel):
        return find_model(config)
    check_without_checkpoint(config, "expected a model's folder: an OwnModel has its params")
    return ModelFiles(None, None, model)


def state_of(
    files: ModelFiles,
    architecture: Architecture,
    config: RunConfig,
    params: Any,
    placement: Placement | None = None,
) -> Any:
    """`params` as arrays of the engine; None: the model's own, of its last checkpoint."""
    if params is not None:
        # the others may choose the step whose config.json and tokenizer are read
        chosen = replace(config, steps=None, params_key=None)
        check_without_checkpoint(chosen, "expected no params beside it")
    else:
        checkpoint = checkpoints_of(config, files)[-1]
        devices = placement or Placement.default()
        params = load(architecture, config, checkpoint, devices).state
    return with_auto_axes(jax.tree.map(_array, params))


def _array(leaf: Tree) -> Tree:
    return leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jnp.asarray(leaf)


def cast_to_run(architecture: Architecture, state: Any, config: RunConfig) -> Architecture:
    """The architecture whose programs cast these weights to `config.dtype` where they differ.
    Weights of a user's own model stay in their dtypes.  Raises InputError for another tree."""
    model = architecture.config
    if isinstance(model, OwnModel):
        return architecture
    expected = _by_name(shapes_of(model, jnp.dtype(config.dtype)))
    given = _by_name(state)
    if list(given) != list(expected):
        others = sorted(given.keys() - expected.keys())
        lacking = sorted(expected.keys() - given.keys())
        raise InputError(
            f"the params are no weights of {config.model}: they have {some_of(others, 3)} and lack "
            f"{some_of(lacking, 3)}, expected the tree that miron_jax.load_params gives"
        )
    if all(given[name].dtype == leaf.dtype for name, leaf in expected.items()):
        return architecture
    dtypes = tuple(str(leaf.dtype) for leaf in expected.values())
    return architecture._replace(network=CastNetwork(architecture.network, dtypes))


def _by_name(state: Any) -> dict[str, Any]:
    """Leaves by their names, in the order of the tree."""
    return {leaf_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(state)}


def architecture_with(
    model: OwnModel | str | Path, files: ModelFiles, tokenizer: Any, config: RunConfig
) -> Architecture:
    """What the model computes, with this tokenizer (a transformers one, a folder or a hub id; None:
    the model's own)."""
    if not isinstance(model, OwnModel):
        given = None if tokenizer is None else _tokenizer(tokenizer)
        return architecture_of(config, files, given)
    tokenizer = model.tokenizer if tokenizer is None else tokenizer
    if tokenizer is None:
        raise InputError("the OwnModel has no tokenizer: give one there, or beside it")
    tokenizer = _tokenizer(tokenizer)
    check_vocabulary(tokenizer, model.vocab_size)
    return Architecture(model, model, tokenizer, model.eos_token_ids)


def _tokenizer(tokenizer: Any) -> Any:
    if isinstance(tokenizer, str | Path):
        return tokenizer_at(str(tokenizer))
    if not callable(tokenizer) or not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise InputError(
            f"the tokenizer is a {type(tokenizer).__name__}, expected a transformers tokenizer, a "
            "folder or a hub id (weights go to params)"
        )
    return tokenizer
