"""The memory of a device that a run takes beside the weights, before it runs.

Arrives: an Evaluation, shapes and shardings of weights.  Leaves: `DeviceMemory`; the programs stay
with the Evaluation, whose first run finds them.  It deliberately does not know what is free.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import jax
from jax.stages import Compiled

from miron_jax.config import mesh_text
from miron_jax.engine.forward import IN_FLIGHT
from miron_jax.engine.generate import Generator
from miron_jax.engine.model import Model
from miron_jax.engine.self_check import SelfCheck
from miron_jax.errors import InputError
from miron_jax.evaluation.run import Evaluation
from miron_jax.model.checkpoints.fingerprint import compile_sums
from miron_jax.model.decoder.sharding import placed_shapes
from miron_jax.model.own import OwnModel
from miron_jax.model.own_probe import compile_probe
from miron_jax.runtime.devices import Tree, bytes_of_a_device
from miron_jax.runtime.progress import SILENT
from miron_jax.runtime.timeline import spent_on


class DeviceMemory(NamedTuple):
    """Bytes of a device that a run takes beside the trainer's weights."""

    weights: int  # of their copy in the layout of `mesh`; 0: they stay where they are
    activations: int  # that one program needs at most, weights cast inside it among them
    caches: int  # of completions, or of a dialogue

    @property
    def total(self) -> int:
        return sum(self)


def memory_of(evaluation: Evaluation, state: Tree, copy: Compiled | None) -> DeviceMemory:
    """Compile what a run of all tasks needs, and read what the compiler says.  `state`: the
    weights, or shapes of those that the program `copy` makes.  Raises InputError.

    Not known before it runs: the self-check of dialogues, and what is computed again for an example
    that the model answers with NaN.
    """
    held = bytes_of_a_device(state)
    activations = 0
    caches = 0
    with jax.default_matmul_precision("highest"):
        programs = [*_programs(evaluation, evaluation.model_of(state))]
        if copy is not None:
            programs.append((copy, 0))  # its result is `weights`
        for program, in_flight in programs:
            memory = program.memory_analysis()
            assert memory is not None, "every backend of XLA has one"
            cache = memory.alias_size_in_bytes
            arguments = max(0, memory.argument_size_in_bytes - held - cache)
            results = memory.output_size_in_bytes - cache
            caches = max(caches, cache)
            needs = memory.temp_size_in_bytes + in_flight * (arguments + results)
            activations = max(activations, needs)
    return DeviceMemory(0 if copy is None else held, activations, caches)


@spent_on("load")
def copied(evaluation: Evaluation, copy: Compiled, state: Tree) -> Tree:
    """The weights in the layout of `mesh`.  Raises InputError if a device has no room for them."""
    try:
        return jax.block_until_ready(copy(state))
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        placement = evaluation.placement
        assert placement is not None
        shapes = placed_shapes(state, evaluation.architecture.config, placement)
        raise InputError(
            f"Evaluator: mesh={mesh_text(evaluation.config.mesh)!r} copies the weights, "
            f"{bytes_of_a_device(shapes) / 2**20:,.1f} MiB to each device, and {placement.device} "
            "has no room for them beside what is there: name a mesh that splits them more (fsdp, "
            "model), or leave mesh out and they stay where they are"
        ) from error


def _programs(evaluation: Evaluation, model: Model) -> Iterator[tuple[Compiled, int]]:
    """Every program of a run, and how many calls of it have arrays on the device at once."""
    engine = evaluation.engine_with(model)
    check = SelfCheck.of(model.config, model.state, evaluation.config.dtype)
    for batch in evaluation.plan_all():
        engine.forward.compile(batch.plan, batch.more)
        check.prepare(model, batch)
    for program in engine.forward.programs.values():
        yield program, IN_FLIGHT
    for program in check.compile(model):
        yield program, 1
    yield compile_sums(model.state), 1
    if isinstance(model.config, OwnModel):
        yield compile_probe(model.config, model.state), 1
    described = _described(model)
    texts = [request for kind in evaluation.kinds for request in kind.texts()]
    if texts:
        architecture = evaluation.architecture
        generator = Generator(described, architecture.tokenizer, architecture.eos_ids)
        generator.compile(texts)
        engine.generator.programs.update(generator.programs)
        for program in generator.programs.values():
            yield program, 1
    for kind in evaluation.kinds:
        growing = kind.growing_text(described, SILENT)
        if growing is not None and growing.program is not None:
            yield growing.program, 1


def _described(model: Model) -> Model:
    """The model on the same devices, which then only compile."""
    placement = model.placement
    assert placement is not None
    state = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding),
        model.state,
    )
    free = placement.free_bytes() * (2 if placement.is_global else 1)
    return model._replace(state=state, placement=replace(placement, memory=int(free)))
