"""What XLA's compiler makes of the engine's programs for GPUs that are not here: `make gpu`.

Each case compiles programs of a real architecture, whose weights are shapes alone, and reads the compiled text.  The
engine has no kernels of its own on GPUs, so no registers of theirs are looked at.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from miron_jax.config import AXES
from miron_jax.engine.batches import Shape
from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.growing import GrowingText
from miron_jax.engine.model import with_experts
from miron_jax.engine.plain import PlainProgram
from miron_jax.kernels.forest_attention.choose import AttentionChoice, Heads, choose
from miron_jax.model.checkpoints.fingerprint import compile_sums
from miron_jax.model.config import ModelConfig
from miron_jax.model.own_probe import compile_probe
from miron_jax.runtime.chips import GPUS, Gpu
from miron_jax.runtime.gpu_kernels import is_attention, roofline_of
from miron_jax.runtime.hlo import Computation, Operation, bytes_of, program_of, sizes_of
from miron_jax.runtime.topology import chip_of, described_devices, described_placement
from tests.support.described_models import (
    LAYERS,
    OWN,
    Case,
    cache_bytes,
    check_collectives,
    check_evaluator,
    model_of,
    placed_params,
    plan_of,
    short_and_long,
    small,
    text_of,
    text_requests,
)

pytestmark = pytest.mark.slow

ONE, EIGHT = "1x1x1", "1x1x8"
BLOCKS = {320: 256, 640: 256, 1280: 512}  # row length -> queries of a block of XLA's attention


class Expected(NamedTuple):
    """A scoring program."""

    case: Case
    attention: str
    kernels: int  # the most of a layer by jax 0.10.2 and 0.12.0.1; of a model whose layers are no loop, of the program


CASES = {
    "llama h100": Expected(small("llama-8b", f"h100:{ONE}"), "cudnn", 22),
    "gpt2 h200": Expected(small("gpt2", f"h200:{ONE}"), "cudnn", 25),
    "gpt2 a100, float32": Expected(small("gpt2", f"a100:{ONE}", dtype="float32"), "xla", 35),
    "gemma h100, heads of 256, windows": Expected(small("gemma3-1b", f"h100:{ONE}", lengths=(640,)), "xla", 46),
    "llama b200, a copy a GPU, id sets": Expected(small("llama-1b", f"b200:{EIGHT}", "data=8", sets=3), "cudnn", 22),
    "llama h200 over model": Expected(small("llama-8b", f"h200:{EIGHT}", "data=2,model=4"), "xla", 35),
    "a model of one's own that calls attend": Expected(small("own attend", f"h100:{EIGHT}", "data=8"), "cudnn", 43),
    "mamba h100": Expected(small("mamba-130m", f"h100:{ONE}", lengths=(15,)), "xla", 147),
}
LONG = {
    "1b h100, short and long rows": Expected(Case("llama-1b", f"h100:{ONE}", lengths=(96, 480, 1280)), "cudnn", 24),
    "8b h200 over fsdp": Expected(Case("llama-8b", f"h200:{EIGHT}", "fsdp=8"), "xla", 45),
    "8b h100 over data and model, id sets": Expected(
        Case("llama-8b", f"h100:{EIGHT}", "data=2,model=4", sets=3), "xla", 42
    ),
    "8b a100, two hosts": Expected(Case("llama-8b", "a100:1x2x8", "data=16"), "cudnn", 24),
    "gemma h100, a copy a GPU": Expected(Case("gemma3-1b", f"h100:{EIGHT}", "data=8"), "xla", 48),
    "gpt2 h200": Expected(Case("gpt2", f"h200:{ONE}", lengths=(960,)), "cudnn", 27),
    "qwen b200, heads are normed": Expected(Case("qwen3-0.6b", f"b200:{ONE}"), "cudnn", 27),
    "olmoe h100, 64 experts": Expected(Case("olmoe-1b-7b", f"h100:{ONE}"), "cudnn", 809),
    "mixtral h100 over fsdp and experts": Expected(Case("mixtral-8x7b", f"h100:{EIGHT}", "fsdp=2,expert=4"), "xla", 88),
    "mixtral h200 over fsdp and model": Expected(Case("mixtral-8x7b", f"h200:{EIGHT}", "fsdp=4,model=2"), "xla", 166),
    "a model of one's own that takes the mask": Expected(small("own mask", f"h100:{ONE}"), "xla", 46),
    "a model of one's own that gives logits": Expected(small("own logits", f"a100:{ONE}"), "xla", 46),
    "a model of one's own that carries a state": Expected(
        small("own state", f"h100:{EIGHT}", "data=8", lengths=(15,)), "xla", 121
    ),
    "mamba h200": Expected(Case("mamba-130m", f"h200:{ONE}", lengths=(15,)), "xla", 155),
}


@short_and_long(CASES, LONG)
def test_programs_of_scoring(case: Expected, tmp_path: Path) -> None:
    shapes, attention, kernels = case
    model = model_of(shapes, tmp_path)
    forward = Forward(model, shapes.budget, id_sets=[np.arange(10 * i, 10 * i + 10) for i in range(shapes.sets)])
    assert forward.attention == attention
    for length in shapes.lengths:
        forward.compile(plan_of(shapes, model, length))
    chip = chip_of(shapes.placement.device)
    assert isinstance(chip, Gpu)
    for shape, program in forward.programs.items():
        text = text_of(program)
        assert needs_of(program) < chip.memory
        check_matmuls(shapes, text)
        launches, again = (roofline_of(text, {"layers/while": n}, chip) for n in (1, 2))
        assert (again.launches - launches.launches or launches.kernels) <= kernels
        if isinstance(model.config, ModelConfig):
            check_attention(shape, attention, text, 1)
            check_collectives(shapes, text)
        elif shapes.model == "own attend":
            check_attention(shape, attention, text, LAYERS)


class Least(NamedTuple):
    """A batch of 32,768 tokens on an H200, four passes of the head, by jax 0.10.2 and 0.12.0.1."""

    model: str
    length: int
    milliseconds: dict[str, float]  # the most of the roofline, by the beginning of jax's version
    temporaries: float  # the most, bytes
    launches: int  # the most


@pytest.mark.long
@pytest.mark.parametrize(
    "least",
    [
        Least("gpt2", 1024, {"0.10": 17.4, "0.12": 14.1}, 0.9e9, 420),
        Least("llama-1b", 1024, {"0.10": 115.5, "0.12": 112.0}, 1.7e9, 480),
        # chunks of 1, 4, 16, 64 and 256 tokens in turn; the last one has 2,916 and 2,940 launches
        Least("mamba-130m", 255, {"0.10": 29.0, "0.12": 29.4}, 3.2e9, 6300),
    ],
    ids=lambda least: least.model,
)
def test_rooflines_at_real_sizes(least: Least, tmp_path: Path) -> None:
    """With activations' inputs in float32 GPT-2 and Llama took 14.6 and 116.4 ms, and 3.1 GB in 0.12."""
    case = Case(least.model, f"h200:{ONE}", lengths=(least.length,))
    model = model_of(case, tmp_path)
    forward = Forward(model, case.budget)
    forward.compile(plan_of(case, model, least.length))
    (program,) = forward.programs.values()
    chip, memory = chip_of(case.placement.device), program.memory_analysis()
    assert isinstance(chip, Gpu)
    assert memory is not None
    assert memory.temp_size_in_bytes <= least.temporaries
    version = ".".join(jax.__version__.split(".")[:2])
    roofline = roofline_of(text_of(program), {"target_logprob/while": 4}, chip)
    assert 1e3 * roofline.roofline <= least.milliseconds.get(version, least.milliseconds["0.12"])
    assert roofline.launches <= least.launches


def needs_of(program: jax.stages.Compiled) -> int:
    """Bytes of one device."""
    memory = program.memory_analysis()
    assert memory is not None
    return memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes


def operations_of(text: str) -> Iterator[tuple[Operation, Computation, bool]]:
    """Every operation; whether it is inside of a kernel."""
    program = program_of(text)
    fused = set(re.findall(r" calls=%?([\w.\-]+)", text))
    for name, computation in program.computations.items():
        for operation in computation.operations.values():
            yield operation, computation, name in fused


def check_matmuls(case: Case, text: str) -> None:
    """In bfloat16 no matmul has float32 operands."""
    matmuls = [
        [inside.operations[name].shape for name in operation.operands[:2]]
        for operation, inside, _ in operations_of(text)
        if operation.kind == "dot" or "__cublas" in operation.line
    ]
    assert matmuls
    if case.dtype == "bfloat16":
        assert [shapes for shapes in matmuls if any(shape.startswith("f32") for shape in shapes)] == []


def check_attention(shape: Shape, attention: str, text: str, calls: int) -> None:
    """cuDNN's call, or XLA's blocks, in each kind of layer; no heads by queries by keys in memory, but the mask."""
    operations = [*operations_of(text)]
    length = shape.length
    assert sum(is_attention(operation) for operation, _, _ in operations) == (attention == "cudnn") * calls
    if attention == "xla":
        matmuls = [each for each, _, _ in operations if each.kind == "dot" or "__cublas" in each.line]
        blocks = -(-length // BLOCKS[length])
        assert sum("/forest_attention/" in each.scope for each in matmuls) == 2 * blocks * calls
    squares = [
        sizes_of(operation.shape)
        for operation, _, is_fused in operations
        if not is_fused and sizes_of(operation.shape)[-2:] == [length, length]
    ]
    masks = 2 * shape.rows * length**2  # of two kinds of layers, if there are windows
    assert [sizes for sizes in squares if np.prod(sizes) > masks] == []


GENERATING = {
    "llama h100": small("llama-8b", f"h100:{ONE}"),
    "gpt2 h200, a copy a GPU": small("gpt2", f"h200:{EIGHT}", "data=8"),
    "gemma b200 over model": small("gemma3-1b", f"b200:{EIGHT}", "data=2,model=4"),
}
LONG_GENERATING = {
    "8b h100 over fsdp and model": Case("llama-8b", f"h100:{EIGHT}", "fsdp=2,model=4"),
    "gemma a100": Case("gemma3-1b", f"a100:{ONE}"),
    "mixtral h200 over experts": Case("mixtral-8x7b", f"h200:{EIGHT}", "expert=8"),
    "a model of one's own that carries a state": small("own state", f"h100:{ONE}", lengths=(3,)),
    "mamba h100": Case("mamba-130m", f"h100:{ONE}", lengths=(15,)),
}


@short_and_long(GENERATING, LONG_GENERATING)
def test_programs_of_generation(case: Case, tmp_path: Path) -> None:
    model = model_of(case, tmp_path)
    generator = Generator(model, None)
    generator.compile(text_requests(model, min(60, *case.lengths)))
    assert {key[-1] for key in generator.programs if "step" in str(key[0])} == {"greedy", "sampled", "cut"}
    for key, program in generator.programs.items():
        text, memory = text_of(program), program.memory_analysis()
        assert memory is not None
        if key[0] != "admit":
            check_matmuls(case, text)
        if not isinstance(model.config, ModelConfig):
            assert key[0] not in ("admit", "plain step") or memory.alias_size_in_bytes, "states are copied"
        elif key[0] in ("step", "admit"):
            slots, size = (int(x) for x in key[1:3])
            cache = cache_bytes(model, slots, size)
            assert memory.alias_size_in_bytes >= cache, "the cache is updated where it is"
            copies = [each.shape for each, _, _ in operations_of(text) if each.kind == "copy"]
            whole = [shape for shape in copies if len(sizes_of(shape)) > 4 and bytes_of(shape) >= cache / 2]
            assert whole == [], "keys or values of the whole cache are copied"


@short_and_long(
    {"llama h100": small("llama-8b", f"h100:{ONE}"), "gpt2 a100 over model": small("gpt2", f"a100:{EIGHT}", "model=4")},
    {
        "gemma h200, a copy a GPU": Case("gemma3-1b", f"h200:{EIGHT}", "data=8"),
        "8b h100": Case("llama-8b", f"h100:{ONE}"),
    },
)
def test_programs_beside_the_rows(case: Case, tmp_path: Path) -> None:
    """Dialogues, the fingerprint, the self-check."""
    model = model_of(case, tmp_path)
    read = GrowingText(model, 900).program
    assert read is not None
    memory = read.memory_analysis()
    assert memory is not None
    assert memory.alias_size_in_bytes >= cache_bytes(model, 1, 1024)
    check_matmuls(case, text_of(read))
    text_of(compile_sums(model.state))
    text_of(PlainProgram(model, 320).compile())


@pytest.mark.parametrize("layout", [{"row_axes": ("fsdp",)}, {"mesh": "data=8"}], ids=str)
def test_programs_of_an_evaluator(layout: dict[str, Any], tmp_path: Path) -> None:
    """Where a trainer has put float32 weights, and in another layout of the same GPUs."""
    check_evaluator(small("llama-8b", f"h100:{EIGHT}", "fsdp=4,model=2"), tmp_path, **layout)


def test_programs_of_an_evaluator_on_whole_weights(tmp_path: Path) -> None:
    """All axes of the trainer's mesh split rows: each device has a shard of them, and its kernel."""
    forward = check_evaluator(small("llama-8b", f"h100:{EIGHT}", "data=8"), tmp_path, row_axes=AXES)
    assert ({shape.shards for shape in forward.programs}, forward.attention) == ({8}, "cudnn")


@pytest.mark.parametrize("name", OWN)
def test_a_model_of_ones_own_is_probed(name: str) -> None:
    placement = described_placement(f"h100:{ONE}")
    compile_probe(OWN[name], placed_params(OWN[name], placement, "bfloat16"))


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_is_what_its_facts_say(name: str) -> None:
    devices = described_devices(f"{name}:1x2x4")
    assert [device.process_index for device in devices] == [0] * 4 + [1] * 4
    assert {chip_of(device) for device in devices} == {GPUS[name]}


def test_a_head_that_cudnn_refuses_takes_plain_attention() -> None:
    device = described_devices(f"h100:{ONE}")[0]
    assert choose(device, Heads(8, 8, 128, None, "bfloat16")) == AttentionChoice("cudnn")
    name, why = choose(device, Heads(8, 8, 256, None, "bfloat16"))
    assert name == "xla"
    assert why is not None
    assert re.fullmatch(r"cudnn attention fails here: The head dim must be <= 128[^\n]*", why)


@pytest.mark.long
def test_experts_take_the_kernel_of_hopper_alone(tmp_path: Path) -> None:
    """Compiled for it: a call of each of the three products, and of no loop over blocks."""
    for name in ("h100", "h200"):
        case = small("olmoe-1b-7b", f"{name}:{ONE}")
        model = with_experts(model_of(case, tmp_path))
        forward = Forward(model, case.budget)
        forward.compile(plan_of(case, model, case.lengths[0]))
        (program,) = forward.programs.values()
        assert text_of(program).count("mosaic_gpu") >= 3
    a100 = model_of(small("olmoe-1b-7b", f"a100:{ONE}"), tmp_path)
    assert with_experts(a100) is a100
