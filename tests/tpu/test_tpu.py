"""What libtpu's compiler makes of the engine's programs, for chips that are not here: `make tpu`.

Each case compiles programs of a real architecture, whose weights are shapes alone, and reads the compiled text.
"""

import itertools
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

from miron_jax.config import AXES
from miron_jax.engine.forward import Forward
from miron_jax.engine.generate import Generator
from miron_jax.engine.growing import GrowingText
from miron_jax.engine.plain import PlainProgram
from miron_jax.kernels.forest_attention import implementation
from miron_jax.kernels.forest_attention.tpu import TABLE, block_of
from miron_jax.model.checkpoints.fingerprint import compile_sums
from miron_jax.model.own_probe import compile_probe
from miron_jax.runtime.chips import TPUS
from miron_jax.runtime.topology import chip_of, described_devices, described_placement
from miron_jax.runtime.tpu_cycles import kernel_calls
from tests.support.described_models import (
    CONFIGS,
    LAYERS,
    OWN,
    TOPOLOGIES,
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

# Each is here for what it covers alone; those of LONG have models and batches of real sizes.
CASES = {
    "8b v5e over 16 chips, id sets": small("llama-8b", "v5e:4x4", "data=2,fsdp=2,model=4", sets=3),
    "gemma v5e over data and fsdp, windows and 262k ids": small("gemma3-1b", "v5e:2x2", "data=2,fsdp=2"),
    "gpt2 v5p, float32, learned positions": small("gpt2", "v5p:2x2x1", dtype="float32"),
    "falcon rw v6e over model, places in keys by head": small("falcon-rw-1b", "v6e:2x2", "model=4"),
    "olmoe v5p, 64 experts": small("olmoe-1b-7b", "v5p:2x2x1", "data=4"),
    "gpt-oss v5p over experts, sinks": small("gpt-oss-20b", "v5p:2x2x1", "expert=4"),
    "a model of one's own that calls attend": small("own attend", "v5e:2x2", "data=4"),
    "a model of one's own that carries a state": small("own state", "v5e:2x2", "data=4", lengths=(15,)),
    "mamba v5e": small("mamba-130m", "v5e:2x2", lengths=(15,)),
}
LONG = {
    "1b v5e, short, middle and long rows": Case("llama-1b", "v5e:2x2", lengths=(64, 480, 4352)),
    "8b v5e over fsdp, id sets": Case("llama-8b", "v5e:2x2", "fsdp=4", sets=3),
    "8b v6e over data and model": Case("llama-8b", "v6e:2x2", "data=2,model=2"),
    "70b v6e over 16 chips": Case("llama-70b", "v6e:4x4", "fsdp=2,model=8"),
    "qwen v6e, heads are normed, a copy a chip": Case("qwen3-0.6b", "v6e:2x2", "data=4"),
    "gemma v5e over data and fsdp, windows and 262k ids": Case("gemma3-1b", "v5e:2x2", "data=2,fsdp=2"),
    "bloom v5e, places in queries and keys": Case("bloom-560m", "v5e:2x2"),
    "gemma 3n v6e, layers that share keys": Case("gemma3n-e2b", "v6e:2x2"),
    "mixtral v6e over fsdp, experts and model": Case("mixtral-8x7b", "v6e:4x4", "fsdp=2,expert=4,model=2"),
    "a model of one's own that takes the mask": small("own mask", "v5p:2x2x1", dtype="float32"),
    "a model of one's own that gives logits": small("own logits", "v6e:2x2"),
    # Short requests want few sizes of groups, each of which takes the compiler half a minute.
    "mamba 2 v6e": Case("mamba2-130m", "v6e:2x2", lengths=(15,)),
    "recurrent gemma v5p": Case("recurrent-gemma-2b", "v5p:2x2x1", lengths=(15,)),
}
RECURRENT = ("own state", "mamba-130m", "mamba2-130m", "recurrent-gemma-2b")
WITHOUT_KERNEL = ("own mask", "own logits", *RECURRENT)
GENERATING = {
    "8b v5p over fsdp and model": small("llama-8b", "v5p:2x2x1", "fsdp=2,model=2"),
    "a model of one's own that carries a state": small("own state", "v6e:2x2", lengths=(3,)),
}
LONG_GENERATING = {
    "gemma v6e, a copy a chip": Case("gemma3-1b", "v6e:2x2", "data=4"),
    "olmoe v5p over experts": Case("olmoe-1b-7b", "v5p:2x2x1", "expert=4"),
}


def programs_of(case: Case, folder: Path) -> dict[int, jax.stages.Compiled]:
    """Row length -> the program that scores rows of it, as a run compiles it."""
    model = model_of(case, folder)
    forward = Forward(model, case.budget, id_sets=[np.arange(10 * i, 10 * i + 10) for i in range(case.sets)])
    assert forward.attention == ("xla" if case.model in WITHOUT_KERNEL else "tpu")
    for length in case.lengths:
        forward.compile(plan_of(case, model, length))
    return {shape.length: program for shape, program in forward.programs.items()}


@short_and_long(CASES, LONG)
def test_programs_of_scoring(case: Case, tmp_path: Path) -> None:
    programs = programs_of(case, tmp_path)
    assert set(programs) == set(case.lengths)
    for length, program in programs.items():
        text, memory = text_of(program), program.memory_analysis()
        assert memory is not None
        needs = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
        assert needs < chip_of(case.placement.device).memory
        if case.model not in WITHOUT_KERNEL:
            assert kernel_calls(text) == kernels_of(case), "those of one layer, in the layers' loop"
            assert not re.findall(rf"= \w+\[(?:\d+,)*{length},{length}\]", text)
        if case.model in CONFIGS and case.model not in WITHOUT_KERNEL:
            check_operands(case, text)
            check_collectives(case, text)
        print(
            f"rows of {length}: weights and batch {memory.argument_size_in_bytes / 1e9:.2f} GB, "
            f"temporaries {memory.temp_size_in_bytes / 1e9:.2f} GB"
        )


@short_and_long(GENERATING, LONG_GENERATING)
def test_programs_of_generation(case: Case, tmp_path: Path) -> None:
    model = model_of(case, tmp_path)
    generator = Generator(model, None)
    generator.compile(text_requests(model, min(60, *case.lengths)))
    hows = {key[-1] for key in generator.programs if "step" in str(key[0])}
    assert hows == {"greedy", "sampled", "cut"}
    for key, program in generator.programs.items():
        text, memory = text_of(program), program.memory_analysis()
        assert memory is not None
        if case.model in WITHOUT_KERNEL:
            assert key[0] not in ("admit", "plain step") or memory.alias_size_in_bytes, "states are copied"
            continue
        if case.model in CONFIGS:
            check_operands(case, text)
        if key[0] == "prefill":
            assert kernel_calls(text) == kernels_of(case)
        if key[0] in ("step", "admit"):
            num, size = (int(x) for x in key[1:3])
            assert memory.alias_size_in_bytes >= cache_bytes(model, num, size), "the cache is updated where it is"
        if key[0] == "step":
            for shape in re.findall(r"= bf16\[((?:\d+,){4,}\d+)\]\S* copy\(", text):
                copied = 4 * np.prod([int(axis) for axis in shape.split(",")])
                assert copied != cache_bytes(model, num, size), "keys or values of the whole cache are copied"


def kernels_of(case: Case) -> int:
    """Of attention; and of experts three matmuls, and one that tells them which rows are whose."""
    if case.model in OWN:
        return LAYERS
    if case.model == "gemma3n-e2b":
        return 2  # those of layers with keys of their own, and those of the others
    return 5 if {"num_experts", "num_local_experts"} & set(case.config) else 1


@short_and_long(
    {"8b v5p over fsdp and model": small("llama-8b", "v5p:2x2x1", "fsdp=2,model=2")},
    {"gemma v5e": Case("gemma3-1b", "v5e:2x2"), "gpt2 v6e": Case("gpt2", "v6e:2x2")},
)
def test_programs_beside_the_rows(case: Case, tmp_path: Path) -> None:
    """Dialogues, the fingerprint, the self-check."""
    model = model_of(case, tmp_path)
    read = GrowingText(model, 900).program
    assert read is not None
    text, memory = text_of(read), read.memory_analysis()
    assert memory is not None
    assert memory.alias_size_in_bytes >= cache_bytes(model, 1, 1024)
    check_operands(case, text)
    compile_sums(model.state)
    PlainProgram(model, 320).compile()


@pytest.mark.parametrize("layout", [{"row_axes": ("fsdp",)}, {"mesh": "data=4,model=4"}], ids=str)
def test_programs_of_an_evaluator(layout: dict[str, Any], tmp_path: Path) -> None:
    """Where a trainer has put float32 weights, and in another layout of the same chips."""
    check_evaluator(small("llama-8b", "v5e:4x4", "fsdp=4,model=4"), tmp_path, **layout)


def test_programs_of_an_evaluator_on_whole_weights(tmp_path: Path) -> None:
    """All axes of the trainer's mesh split rows: each device has a shard of them, and its kernel."""
    forward = check_evaluator(small("llama-8b", "v5e:4x4", "data=16"), tmp_path, row_axes=AXES)
    assert ({shape.shards for shape in forward.programs}, forward.attention) == ({16}, "tpu")


def test_a_model_of_ones_own_is_probed() -> None:
    for chip, name in zip(itertools.cycle(TOPOLOGIES), OWN, strict=False):
        compile_probe(OWN[name], placed_params(OWN[name], described_placement(TOPOLOGIES[chip]), "bfloat16"))


def check_operands(case: Case, text: str) -> None:
    """In bfloat16 no matmul has float32 operands."""
    if case.dtype != "bfloat16":
        return
    dtypes = dict(re.findall(r"%([\w.\-]+) = (\w+)\[", text))
    for line in text.splitlines():
        matmul = re.search(r" (?:convolution|dot)\(%([\w.\-]+), %([\w.\-]+)\)", line)
        assert not matmul or "f32" not in (dtypes.get(operand) for operand in matmul.groups()), line[:200]


class Kernel(NamedTuple):
    rows: int
    length: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    softcap: float | None = None
    dtype: str = "bfloat16"


KERNELS = (
    Kernel(8, 512, 16, 8, 128),
    Kernel(8, 480, 12, 12, 64),
    Kernel(8, 32, 32, 8, 64),
    Kernel(4, 640, 4, 1, 256, window=100, softcap=30.0),
    Kernel(4, 640, 8, 2, 80, window=100),
    Kernel(2, 640, 5, 5, 64, softcap=30.0),
    Kernel(8, 32768, 2, 1, 128),  # the table is as large as it may be
    Kernel(9, 32768, 2, 1, 128),  # and would be larger here
    Kernel(512, 1024, 2, 2, 64),
)
EACH_CHIP = [(chip, kernel) for chip in TPUS for kernel in KERNELS]
EACH_CHIP += [("v5e", kernel._replace(dtype="float32")) for kernel in KERNELS]


@pytest.mark.parametrize(  # each shape on a chip, each chip with each kind of shape; the rest in `make tpu-long`
    ("chip", "kernel"),
    [
        pytest.param(chip, kernel, marks=() if i % 9 % 3 == i // 9 % 3 else pytest.mark.long)
        for i, (chip, kernel) in enumerate(EACH_CHIP)
    ],
)
def test_the_kernel_compiles(chip: str, kernel: Kernel) -> None:
    here = SingleDeviceSharding(described_devices(TOPOLOGIES[chip])[0])
    places = [jax.ShapeDtypeStruct((kernel.rows, kernel.length), "int32", sharding=here)] * 2
    q, k = (
        jax.ShapeDtypeStruct((kernel.rows, kernel.length, n, kernel.head_dim), kernel.dtype, sharding=here)
        for n in (kernel.heads, kernel.kv_heads)
    )
    sinks_N = None if kernel.window is None else jax.ShapeDtypeStruct((kernel.heads,), "float32", sharding=here)
    attend = jax.jit(implementation("tpu"), static_argnames=("scale", "window", "softcap"))
    with jax.default_matmul_precision("highest"):
        how = {"window": kernel.window, "softcap": kernel.softcap, "sinks_N": sinks_N}
        attend.lower(q, k, k, *places, scale=0.1, **how).compile()


def test_blocks_grow_where_their_table_would_not_fit() -> None:
    assert (block_of(8, 32768), block_of(9, 32768), block_of(512, 64), block_of(1, 200)) == (256, 512, 64, 208)
    for rows, length in ((8, 32768), (9, 32768), (100, 32768), (4096, 4096)):
        assert rows * (-(-length // block_of(rows, length))) ** 2 <= TABLE


def test_chips_are_told_by_their_kind() -> None:
    for name, chip in TPUS.items():
        assert chip_of(described_devices(TOPOLOGIES[name])[0]) == chip
