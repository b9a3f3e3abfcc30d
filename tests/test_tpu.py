"""What libtpu's compiler makes of the engine's programs, for chips that are not here: `make tpu`.

Each case compiles programs of a real architecture, whose weights are shapes alone, and reads the compiled text.
"""

import re
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

from miron_jax.config import parse_mesh
from miron_jax.engine.forward import Forward
from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention import implementation
from miron_jax.kernels.forest_attention.tpu import TABLE, block_of
from miron_jax.runtime.topology import CHIPS, chip_of, described_devices, described_placement
from tests.tpu_models import TOPOLOGIES, Case, model_of, plan_of

# Each is here for what it covers alone.
CASES = {
    "1b v5e, short, middle and long rows": Case("llama-1b", "v5e", lengths=(64, 480, 4352)),
    "1b v5p": Case("llama-1b", "v5p"),
    "1b v6e, id sets": Case("llama-1b", "v6e", sets=3),
    "8b v5e over fsdp": Case("llama-8b", "v5e", "fsdp=4"),
    "8b v5p over model": Case("llama-8b", "v5p", "model=4"),
    "8b v6e over data and model": Case("llama-8b", "v6e", "data=2,model=2"),
    "gemma v5e over data and fsdp, windows and 262k ids": Case("gemma3-1b", "v5e", "data=2,fsdp=2"),
    "gpt2 v5p, float32, learned positions": Case("gpt2", "v5p", lengths=(640,), dtype="float32"),
    "qwen v6e, heads are normed": Case("qwen3-0.6b", "v6e", "data=4"),
}


def programs_of(case: Case, folder: Path) -> dict[int, jax.stages.Compiled]:
    """Row length -> the program that scores rows of it, as a run compiles it."""
    model = model_of(case, folder)
    forward = Forward(model, case.budget, id_sets=[np.arange(10 * i, 10 * i + 10) for i in range(case.sets)])
    assert forward.attention == "tpu"
    for length in case.lengths:
        forward.compile(plan_of(case, model, length))
    return {shape.length: program for shape, program in forward.programs.items()}


@pytest.mark.parametrize("name", CASES)
def test_programs_of_scoring_compile(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    programs = programs_of(case, tmp_path)
    assert set(programs) == set(case.lengths)
    for length, program in programs.items():
        text, memory = program.as_text(), program.memory_analysis()
        assert memory is not None
        assert text is not None
        assert len(re.findall(r'custom_call_target="tpu_custom_call"', text)) == 1, (
            "one kernel call, in the layers' loop"
        )
        squares = [line[:200] for line in text.splitlines() if re.search(rf"= \w+\[(\d+,)*{length},{length}\]", line)]
        assert not squares
        if case.dtype == "bfloat16":
            assert not float32_matmuls(text)
        assert not re.search(r" (infeed|outfeed|send|recv)\(", text)
        print(
            f"{name}, rows of {length}: weights and batch {memory.argument_size_in_bytes / 1e9:.2f} GB, "
            f"temporaries {memory.temp_size_in_bytes / 1e9:.2f} GB"
        )


def float32_matmuls(text: str) -> list[str]:
    """Lines of matmuls whose operands are float32."""
    dtypes = dict(re.findall(r"%([\w.\-]+) = (\w+)\[", text))
    found = []
    for line in text.splitlines():
        matmul = re.search(r" (?:convolution|dot)\(%([\w.\-]+), %([\w.\-]+)\)", line)
        if matmul and "f32" in (dtypes.get(operand) for operand in matmul.groups()):
            found.append(line[:200])
    return found


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("rows", "length", "heads", "kv_heads", "head_dim", "window", "softcap"),
    [
        (8, 512, 16, 8, 128, None, None),
        (8, 480, 12, 12, 64, None, None),
        (8, 32, 32, 8, 64, None, None),
        (4, 640, 4, 1, 256, 100, 30.0),
        (4, 640, 8, 2, 80, 100, None),
        (2, 640, 5, 5, 64, None, 30.0),
        (8, 32768, 2, 1, 128, None, None),  # the table is as large as it may be
        (9, 32768, 2, 1, 128, None, None),  # and would be larger here
        (512, 1024, 2, 2, 64, None, None),
    ],
)
def test_the_kernel_compiles(
    chip: str,
    rows: int,
    length: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    window: int | None,
    softcap: float | None,
) -> None:
    here = SingleDeviceSharding(described_devices(TOPOLOGIES[chip])[0])
    places = [jax.ShapeDtypeStruct((rows, length), "int32", sharding=here)] * 2
    for dtype in ("bfloat16", "float32"):
        q, k = (jax.ShapeDtypeStruct((rows, length, n, head_dim), dtype, sharding=here) for n in (heads, kv_heads))
        attend = jax.jit(implementation("tpu"), static_argnames=("scale", "window", "softcap"))
        with jax.default_matmul_precision("highest"):
            attend.lower(q, k, k, *places, scale=0.1, window=window, softcap=softcap).compile()


def test_blocks_grow_where_their_table_would_not_fit() -> None:
    assert (block_of(8, 32768), block_of(9, 32768), block_of(512, 64), block_of(1, 200)) == (256, 512, 64, 208)
    for rows, length in ((8, 32768), (9, 32768), (100, 32768), (4096, 4096)):
        assert rows * (-(-length // block_of(rows, length))) ** 2 <= TABLE


@pytest.mark.parametrize(
    ("topology", "sentence"),
    [
        ("v9:2x2", "'v9:2x2' is not a known topology, expected v5e, v5p, v6e and sizes, such as v5e:2x2"),
        ("v5e", "is not a known topology"),
        ("v5e:3x5", "is not a topology that libtpu knows"),
    ],
)
def test_an_unknown_topology_is_one_sentence(topology: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        described_devices(topology)


def test_a_mesh_that_is_larger_than_its_topology() -> None:
    with pytest.raises(InputError, match=r"--mesh=data=8 takes 8 devices, v5e:2x2 has 4"):
        described_placement("v5e:2x2", parse_mesh("data=8"))


def test_chips_are_told_by_their_kind() -> None:
    for name, chip in CHIPS.items():
        assert chip_of(described_devices(TOPOLOGIES[name])[0]) == chip
