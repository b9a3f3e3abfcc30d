"""`miron-jax plan --topology`: the programs of a run, compiled for TPUs or GPUs that are not here.

Arrives: a run's configuration and data, the name of a topology.  Leaves: a `TopologyPlan`: memory
and least time of each program, rows of a chip, the time of a run.  It deliberately runs nothing:
weights are shapes, devices only compile.  What a program takes is said by `topology_costs.py`.

Programs are compiled by the code that a run compiles them with.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from miron_jax.cli.topology_costs import Work, cost_of
from miron_jax.config import RunConfig, mesh_text
from miron_jax.engine.batches import Shape
from miron_jax.engine.checked_requests import CheckedRequests
from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.growing import READ
from miron_jax.engine.model import Model, with_experts
from miron_jax.engine.plain import MULTIPLE, PlainProgram, calls_of
from miron_jax.engine.slot_programs import ProgramKey
from miron_jax.errors import InputError
from miron_jax.evaluation.records import Inputs
from miron_jax.evaluation.run_tasks import RunTasks
from miron_jax.evaluation.task_kinds.interface import TaskKind
from miron_jax.files.places import public
from miron_jax.model.checkpoints.checkpoints import (
    Architecture,
    architecture_of,
    find_model,
)
from miron_jax.model.checkpoints.fingerprint import compile_sums
from miron_jax.model.checkpoints.hf_reader import shapes_of
from miron_jax.model.checkpoints.loading import check_one_copy, own_params
from miron_jax.model.config import ModelConfig, attention_flops_per_pair, matmul_params
from miron_jax.model.costs import network_flops
from miron_jax.model.decoder.decoder import abstract
from miron_jax.model.decoder.sharding import placed_shapes
from miron_jax.model.families.family_model import FamilyModel
from miron_jax.model.network import Network
from miron_jax.model.own import OwnModel
from miron_jax.model.own_probe import compile_probe
from miron_jax.planning.request_batches import RequestBatch, Totals
from miron_jax.report.tables.topology import PlannedProgram, TopologyPlan, gigabytes
from miron_jax.runtime.devices import (
    EXPERT,
    FSDP,
    MODEL,
    Placement,
    Tree,
    bytes_of_a_device,
)
from miron_jax.runtime.hlo import sends
from miron_jax.runtime.progress import Progress
from miron_jax.runtime.topology import chip_of, described_devices, described_placement, larger

PROBE_CALLS = 4  # by which model/own_probe.py tries a user's model
FULL = 0.9  # share of a chip's memory that weights alone may take in a mesh that is proposed
FLOAT32_PASSES = 6  # bfloat16 products of one float32 product at "highest" precision


class DoesNotFit(Exception):
    """Weights or a program of the smallest batch need more memory than a chip has."""


def plan_on_topology(
    config: RunConfig, inputs: Inputs, topology: str, progress: Progress
) -> TopologyPlan:
    """Compile every program that `eval` would run on these chips.

    Raises InputError for an unknown topology, a mesh that is larger, and a model that does not fit,
    with the smallest mesh of the topology that holds it.
    """
    count = len(described_devices(topology))
    by_rows = (("data", count),) if count > 1 else ()
    mesh = config.mesh if config.sharding == "mesh" else by_rows
    placement = described_placement(topology, mesh)
    architecture = architecture_of(config, find_model(config, weights=False))
    tasks = RunTasks.of(config, inputs, architecture)
    with jax.default_matmul_precision("highest"):
        try:
            return _Planner(config, architecture, tasks, topology, placement, progress).plan(inputs)
        except DoesNotFit as problem:
            remedy = _smallest_mesh(config, architecture, tasks, inputs, topology, progress)
            raise InputError(
                f"--topology={topology}: {public(config.model)} does not fit: {problem}; {remedy}"
            ) from problem


class _Planner:
    """Compiles the programs of a run and adds up what they need."""

    def __init__(
        self,
        config: RunConfig,
        architecture: Architecture,
        tasks: RunTasks,
        topology: str,
        placement: Placement,
        progress: Progress,
    ) -> None:
        """Raises DoesNotFit for weights that are larger than a chip's memory."""
        self.config = config
        self.architecture = architecture
        self.tasks = tasks
        self.topology = topology
        self.progress = progress
        self.chip = chip_of(placement.device)
        state = _shapes(architecture, config, placement)
        self.weights = bytes_of_a_device(state)
        if self.weights > self.chip.memory:
            raise DoesNotFit(
                f"its weights take {gigabytes(self.weights)} a chip, which has "
                f"{gigabytes(self.chip.memory)}"
            )
        self.placement = replace(placement, taken=self.weights)
        how = config.attention, config.token_stats
        model = Model(architecture.config, architecture.network, state, self.placement, *how)
        self.model = with_experts(model)
        self.forward = Forward(self.model, config.token_budget, progress, tasks.setup.table.id_sets)
        self.programs: list[PlannedProgram] = []
        self._halved: set[int] = set()  # row lengths whose batches did not fit

    def plan(self, inputs: Inputs) -> TopologyPlan:
        kinds = [
            kind
            for kind in self.tasks.kinds
            if not kind.runs_programs or self.config.allow_code_execution
        ]
        for kind in kinds:
            kind.prepare()
        totals = Totals()
        batches = Counter[Shape]()
        parents = Counter[Shape]()
        checked = list[list[tuple[int, int]]]()
        choice = CheckedRequests.of(self.model.config, self.placement)
        for batch in self.tasks.request_batches(totals):
            self._score(batch, batches, parents)
            of_batch = list[tuple[int, int]]()
            for r in choice.choose(batch):
                num_tokens = len(batch.fresh.tokens(r))
                of_batch.append((num_tokens, num_tokens - int(batch.fresh.span_start[r])))
            checked.append(of_batch)
        for shape in sorted(batches, key=lambda shape: shape.length):
            self._add_scoring(shape, batches[shape], parents[shape] / batches[shape])
        self._add_self_check(checked, choice)
        self._add_generation(kinds)
        self._add_dialogues(kinds)
        self._add_loading()
        fitted = [shape.slots for shape in batches if shape.length in self._halved]
        return TopologyPlan(
            topology=self.topology,
            chip=self.chip,
            chips=self.placement.devices,
            mesh=dict(self.placement.mesh.shape) if self.placement.mesh is not None else {},
            sharding=self.config.sharding,
            dtype=self.config.dtype,
            attention=self.forward.attention,
            weights=self.weights,
            programs=self.programs,
            token_budget=min([*fitted, self.forward.token_budget]),
            not_planned=[kind.source.task.name for kind in self.tasks.kinds if kind not in kinds],
            missing=dict(inputs.missing),
            totals=totals,
        )

    # Scoring

    def _score(self, batch: RequestBatch, batches: Counter[Shape], parents: Counter[Shape]) -> None:
        """Compile the programs of a request batch, and count its batches of rows and their parent
        nodes."""
        plan = batch.plan
        forward = self.forward
        before = forward.size(plan, batch.more)
        with _refused("a batch of the fewest rows"):
            forward.compile(plan, batch.more)
        of_row = plan.parents_of_rows
        for length, count in zip(*np.unique(plan.row_length, return_counts=True), strict=True):
            shape = forward.shape_of(plan, int(length))
            if shape.rows < before[shape.length]:
                self._halved.add(shape.length)
            batches[shape] += -(-int(count) // (shape.rows * shape.shards))
            parents[shape] += int(of_row[plan.row_length == length].sum())

    def _add_scoring(self, shape: Shape, calls: int, parents: float) -> None:
        """`parents`: nodes of all shards that go through the head, in a batch."""
        chunks = -(-parents / shape.shards // shape.chunk)
        loops = {
            "target_logprob/while": chunks,
            "id_set_logprob/while": shape.num_queries / shape.chunk,
        }
        pairs = shape.rows * shape.length * (shape.length + 1) / 2
        self._add(
            f"score {shape.rows} x {shape.length}",
            self.forward.programs[shape],
            calls,
            loops,
            flops=self._flops(shape.slots, pairs, chunks * shape.chunk),
            pairs=pairs,
        )

    def _add_self_check(
        self, checked: list[list[tuple[int, int]]], choice: CheckedRequests
    ) -> None:
        """`checked`: tokens and scored tokens of each request of each batch."""
        passes = defaultdict[int, list[int]](list)  # of the head, by row length
        calls = Counter[int]()
        for of_batch in checked:
            lengths = choice.lengths_of([tokens for tokens, _ in of_batch])
            for (_, scored), length in zip(of_batch, lengths, strict=True):
                passes[length].append(-(-scored // MULTIPLE))
            calls.update(lengths[call[0]] for call in calls_of(self.model, lengths))
        for length in sorted(calls):
            with _refused(f"the self-check of {length} tokens"):
                program = PlainProgram(self.model, length).compile()
            mean = sum(passes[length]) / len(passes[length])
            flops = self._flops(length, length * (length + 1) / 2, mean * MULTIPLE)
            flops *= self.placement.row_places[1]
            loops = {"plain_head/while": mean}
            self._add(f"self-check {length}", program, calls[length], loops, flops)

    # Generation

    def _add_generation(self, kinds: Sequence[TaskKind]) -> None:
        requests = [request for kind in kinds for request in kind.texts()]
        if not requests:
            return
        generator = Generator(
            self.model,
            self.architecture.tokenizer,
            self.architecture.eos_ids,
            progress=self.progress,
        )
        with _refused("a program of generation"):
            calls = generator.compile(requests)
        admissions = (
            sum(count for key, count in calls.items() if key[0] == "admit") * self.placement.shards
        )
        for key, count in calls.items():
            self._add_generating(
                key, generator.programs[key], count, len(set(requests)) / max(1, admissions)
            )

    def _add_generating(
        self, key: ProgramKey, program: jax.stages.Compiled, calls: int, prompts: float
    ) -> None:
        """`prompts`: that one call admits to a shard."""
        what, *sizes = key
        name = " ".join(map(str, key))
        flops = None
        pairs = 0.0
        loops = {}
        if what == "prefill":
            rows, length = map(int, sizes[:2])
            pairs = rows * length * (length + 1) / 2
            name = f"prefill {rows} x {length}"
            flops = self._flops(rows * length, pairs, 0)
        elif what == "admit":
            loops = {"admit/while": prompts}
        else:
            slots = int(sizes[0])
            width = int(sizes[2]) if what == "step" else 1
            flops = self._flops(slots * width, 0, slots * width)
        self._add(name, program, calls, loops, flops, pairs, takes_weights=what != "admit")

    def _add_dialogues(self, kinds: Sequence[TaskKind]) -> None:
        for kind in kinds:
            with _refused("the cache of a dialogue"):
                text = kind.growing_text(self.model, self.progress)
            if text is not None and text.program is not None:
                # At least one read for a turn's question and one for each of its choices.
                calls = sum(
                    len(example.continuations)
                    for example in kind.source.examples[: self.config.limit]
                )
                self._add(
                    f"read {READ} of a dialogue", text.program, calls, {}, self._flops(READ, 0, 1)
                )

    # What a run does with the weights once they are loaded

    def _add_loading(self) -> None:
        with _refused("the fingerprint of the weights"):
            program = compile_sums(self.model.state)
        self._add("fingerprint of the weights", program, 1, {}, of_weights=True)
        if isinstance(self.model.config, OwnModel):
            self._add(
                "probe of a model of your own",
                compile_probe(self.model.config, self.model.state),
                PROBE_CALLS,
                {},
            )

    # Sums

    def _flops(self, tokens: float, pairs: float, head: float) -> float:
        """FLOPs of one shard: tokens through the layers, visible pairs, nodes through the head."""
        config = self.model.config
        if isinstance(config, Network):
            return network_flops(config) * tokens
        linear = 2.0 * matmul_params(config) * tokens
        return (
            linear
            + attention_flops_per_pair(config) * pairs
            + 2.0 * config.d_model * config.vocab_size * head
        )

    def _add(
        self,
        name: str,
        program: jax.stages.Compiled,
        calls: int,
        loops: Mapping[str, float],
        flops: float | None = None,
        pairs: float = 0.0,
        takes_weights: bool = True,
        of_weights: bool = False,
    ) -> None:
        """`flops`, `pairs`: of a shard; visible pairs that the kernel computes.  `of_weights`: its
        only arguments are some of the weights.

        Raises DoesNotFit if weights and program are larger than a chip's memory.
        """
        text = program.as_text() or ""
        memory = program.memory_analysis()
        assert memory is not None
        chips = self.placement.devices // self.placement.shards  # that share the work of one shard
        config = self.model.config
        attention_flops = 0.0
        if isinstance(config, ModelConfig):
            passes = FLOAT32_PASSES if self.config.dtype == "float32" else 1
            attention_flops = passes * attention_flops_per_pair(config) * pairs / chips
        work = Work(loops, None if flops is None else flops / chips, attention_flops)
        cost = cost_of(text, work, self.chip, config)
        arguments = memory.argument_size_in_bytes - (self.weights if takes_weights else 0)
        added = PlannedProgram(
            name,
            calls,
            cost.has_kernel,
            sends(text),
            0 if of_weights else max(0, arguments),
            memory.temp_size_in_bytes,
            max(0, memory.output_size_in_bytes - memory.alias_size_in_bytes),
            cost.estimate,
            cost.seconds,
            cost.peak_share,
        )
        if self.weights + added.needs > self.chip.memory:
            raise DoesNotFit(
                f"{name} needs {gigabytes(added.needs)} a chip beside weights of "
                f"{gigabytes(self.weights)}, the chip has {gigabytes(self.chip.memory)}"
            )
        self.programs.append(added)


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Raises DoesNotFit for what the compiler refuses to place in a chip's memory."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise DoesNotFit(f"{what} is refused ({str(error).splitlines()[0]})") from error


def _shapes(architecture: Architecture, config: RunConfig, placement: Placement) -> Tree:
    """The weights as shapes, dtypes and shardings."""
    model = architecture.config
    if isinstance(model, Network):
        check_one_copy(model, config, placement)
        if isinstance(model, OwnModel):
            params = own_params(model, config)
        else:
            params = shapes_of(model, jnp.dtype(config.dtype))
        if any(
            isinstance(getattr(leaf, "sharding", None), NamedSharding)
            for leaf in jax.tree.leaves(params)
        ):
            raise InputError(
                "--topology: the factory's params are on a mesh of their own, which is not "
                "planned: give shapes"
            )
        sharding = placement.shared

        def one(leaf: jax.Array) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(
                leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype), sharding=sharding
            )

        return jax.tree.map(one, params)
    return placed_shapes(abstract(model, jnp.dtype(config.dtype))[1], model, placement)


def _smallest_mesh(
    config: RunConfig,
    architecture: Architecture,
    tasks: RunTasks,
    inputs: Inputs,
    topology: str,
    progress: Progress,
) -> str:
    """What to do about a model that does not fit: the smallest mesh of these chips that holds it
    and all programs."""
    if isinstance(architecture.config, FamilyModel):
        return "take --dtype=bfloat16, or a chip with more memory"
    if isinstance(architecture.config, OwnModel):
        return "give the factory's params on a mesh of yours, or take a chip with more memory"
    axes = (FSDP, MODEL) if architecture.config.experts is None else (FSDP, EXPERT, MODEL)
    size = 1  # chips that share one copy of the weights
    for name in (topology, *larger(topology)):
        count = len(described_devices(name))
        while (size := 2 * size) <= count:
            for axis in axes:
                copies = count // size
                mesh = (*((("data", copies),) if copies > 1 else ()), (axis, size))
                placement = described_placement(name, mesh)
                weights = bytes_of_a_device(_shapes(architecture, config, placement))
                if weights > FULL * chip_of(placement.device).memory:
                    continue
                with suppress(DoesNotFit):
                    _Planner(config, architecture, tasks, name, placement, progress).plan(inputs)
                    flags = mesh_text(mesh)
                    return (
                        f"the smallest mesh that does: --topology={name} --sharding=mesh "
                        f"--mesh={flags}"
                    )
        size //= 2  # it had become too large for this slice: the next one begins with it
    if config.dtype == "float32":
        return "no mesh that is known here does: take --dtype=bfloat16"
    return "no mesh that is known here does"
