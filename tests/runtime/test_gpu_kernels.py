"""What is read off a program that XLA compiled for a GPU, and how a GPU is described; none of it needs the plugin."""

import pytest

from miron_jax.runtime.chips import GPUS, LAUNCH_SECONDS, description_of
from miron_jax.runtime.gpu_kernels import Kernel, kernel_of, roofline_of
from miron_jax.runtime.hlo import program_of

pytestmark = pytest.mark.newest

H200 = GPUS["h200"]
# A loop of three layers, each with a fused matmul, cuDNN's attention, a slice of stacked weights and an update in place;
# then a loop whose length the text does not tell, with cuBLAS's matmul, and a choice.
HLO = """
HloModule jit_score, is_scheduled=true

%gemm (p0: bf16[64,32], p1: bf16[32,16]) -> f32[64,16] {
  %p0 = bf16[64,32]{1,0} parameter(0)
  %p1 = bf16[32,16]{1,0} parameter(1)
  ROOT %dot.1 = f32[64,16]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={highest,highest}
}

%take (w: f32[3,1000], i: s32[]) -> f32[1000] {
  %w = f32[3,1000]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %slice.1 = f32[1,1000]{1,0} dynamic-slice(%w, %i, %zero), dynamic_slice_sizes={1,1000}
  ROOT %bitcast.1 = f32[1000]{0} bitcast(%slice.1)
}

%update (cache: bf16[500,8], new: f32[2,8], at: s32[]) -> bf16[500,8] {
  %cache = bf16[500,8]{1,0} parameter(0)
  %new = f32[2,8]{1,0} parameter(1)
  %at = s32[] parameter(2)
  %half = bf16[2,8]{1,0} convert(%new)
  %zero.1 = s32[] constant(0)
  ROOT %dus = bf16[500,8]{1,0} dynamic-update-slice(%cache, %half, %at, %zero.1)
}

%body (arg: (s32[], bf16[64,32])) -> (s32[], bf16[64,32]) {
  %arg = (s32[], bf16[64,32]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%arg), index=0
  %x = bf16[64,32]{1,0} get-tuple-element(%arg), index=1
  %w.1 = bf16[32,16]{1,0} constant({...})
  %ws = f32[3,1000]{1,0} constant({...})
  %gemm_fusion = f32[64,16]{1,0} fusion(%x, %w.1), kind=kCustom, calls=%gemm, metadata={op_name="jit(f)/layers/while/body/linear"}
  %take.1 = f32[1000]{0} fusion(%ws, %i.1), kind=kLoop, calls=%take
  %q = bf16[2,128,4,8]{3,2,1,0} constant({...})
  %k = bf16[2,128,1,8]{3,2,1,0} constant({...})
  %bias = bf16[2,1,128,128]{3,2,1,0} constant({...})
  %attention = (bf16[2,4,128,8]{3,1,2,0}, u8[4096]{0}) custom-call(%q, %k, %k, %bias), custom_call_target="__cudnn$fmhaScaleBiasSoftmax", backend_config={"mask_type": "CAUSAL", "bmm1_dot_dimension_numbers": {"lhs_contracting_dimensions": ["3"]}}
  %cache.1 = bf16[500,8]{1,0} constant({...})
  %new.1 = f32[2,8]{1,0} constant({...})
  %update.1 = bf16[500,8]{1,0} fusion-start(%cache.1, %new.1, %i.1), kind=kLoop, calls=%update
  %updated = bf16[500,8]{1,0} fusion-done(%update.1)
  ROOT %out = (s32[], bf16[64,32]{1,0}) tuple(%i.1, %x)
}

%condition (arg.1: (s32[], bf16[64,32])) -> pred[] {
  %arg.1 = (s32[], bf16[64,32]{1,0}) parameter(0)
  ROOT %more = pred[] constant(true)
}

%chunk (arg.2: (s32[], bf16[64,32])) -> (s32[], bf16[64,32]) {
  %arg.2 = (s32[], bf16[64,32]{1,0}) parameter(0)
  %a = f32[10,20]{1,0} constant({...})
  %b = f32[20,30]{1,0} constant({...})
  ROOT %cublas = (f32[10,30]{1,0}, s8[4194304]{0}) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
}

%small (y: f32[8]) -> f32[8] {
  %y = f32[8]{0} parameter(0)
  ROOT %copy.1 = f32[8]{0} copy(%y)
}

%large (z: f32[8]) -> f32[8] {
  %z = f32[8]{0} parameter(0)
  %copy.2 = f32[8]{0} copy(%z)
  ROOT %copy.3 = f32[8]{0} copy(%copy.2)
}

ENTRY %main (x.1: bf16[64,32], p: pred[], y.1: f32[8]) -> f32[8] {
  %x.1 = bf16[64,32]{1,0} parameter(0)
  %p = pred[] parameter(1)
  %y.1 = f32[8]{0} parameter(2)
  %none = s32[] constant(0)
  %start = (s32[], bf16[64,32]{1,0}) tuple(%none, %x.1)
  %while.1 = (s32[], bf16[64,32]{1,0}) while(%start), condition=%condition, body=%body, metadata={op_name="jit(f)/layers/while"}, backend_config={"known_trip_count":{"n":"3"},"dynamic_variables":[]}
  %while.2 = (s32[], bf16[64,32]{1,0}) while(%while.1), condition=%condition, body=%chunk, metadata={op_name="jit(f)/target_logprob/while"}
  ROOT %choice = f32[8]{0} conditional(%p, %y.1, %y.1), true_computation=%small, false_computation=%large
}
"""  # noqa: E501 - as a compiler writes it

GEMM = Kernel(2 * 64 * 32 * 16, False, 2 * (64 * 32 + 32 * 16) + 4 * 64 * 16)
TAKE = Kernel(0, False, 4 + 2 * 4 * 1000)  # the index, one of three rows, and the result
# half of the square for q times k and for the weights times v; half of the mask for each of four heads
ATTENTION = Kernel(
    4 * 2 * 4 * 128 * 128 * 8 / 2, False, 2 * (2 * 2 * 128 * 4 * 8 + 2 * 2 * 128 * 8 + 2 * 128 * 128 * 4 / 2)
)
UPDATE = Kernel(0, False, 4 * 2 * 8 + 4 + 2 * 2 * 8)  # what is new, where, and what is written
CUBLAS = Kernel(2 * 10 * 20 * 30, True, 4 * (10 * 20 + 20 * 30 + 10 * 30))
COPY = Kernel(0, False, 2 * 4 * 8)


def test_a_kernel_takes_what_it_uses() -> None:
    program = program_of(HLO)
    body = program.computations["body"]
    expected = {"gemm_fusion": GEMM, "take.1": TAKE, "attention": ATTENTION, "update.1": UPDATE}
    kernels = {name: kernel_of(each, body, program) for name, each in body.operations.items()}
    assert {name: kernel for name, kernel in kernels.items() if kernel} == expected


@pytest.mark.parametrize("chunks", [1, 5])
def test_a_roofline_is_the_longer_time_of_each_kernel_and_its_launch(chunks: int) -> None:
    loops = {} if chunks == 1 else {"target_logprob/while": chunks}
    roofline = roofline_of(HLO, loops, H200)
    layer = [GEMM, TAKE, ATTENTION, UPDATE]
    kernels = [*layer * 3, *[CUBLAS] * chunks, COPY, COPY]  # the dearer branch has two copies
    assert (roofline.kernels, roofline.launches) == (4 + 1 + 2, len(kernels))
    assert roofline.flops == sum(kernel.flops for kernel in kernels)
    assert roofline.traffic == sum(kernel.traffic for kernel in kernels)
    seconds = sum(
        max(kernel.flops / (51e12 if kernel.is_float32 else 704e12), kernel.traffic / (0.85 * 4.8e12)) + 2e-6
        for kernel in kernels
    )
    assert roofline.roofline == pytest.approx(seconds)
    assert roofline.bound == "launches"


@pytest.mark.parametrize(
    ("rows", "columns", "bound"), [(1, 1, "launches"), (8192, 8192, "matmuls"), (64, 1 << 24, "memory")]
)
def test_what_bounds_a_program(rows: int, columns: int, bound: str) -> None:
    text = f"""
%gemm (p0: bf16[{rows},{columns}], p1: bf16[{columns},{rows}]) -> bf16[{rows},{rows}] {{
  %p0 = bf16[{rows},{columns}]{{1,0}} parameter(0)
  %p1 = bf16[{columns},{rows}]{{1,0}} parameter(1)
  ROOT %dot.1 = bf16[{rows},{rows}]{{1,0}} dot(%p0, %p1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}

ENTRY %main (a: bf16[{rows},{columns}], b: bf16[{columns},{rows}]) -> bf16[{rows},{rows}] {{
  %a = bf16[{rows},{columns}]{{1,0}} parameter(0)
  %b = bf16[{columns},{rows}]{{1,0}} parameter(1)
  ROOT %gemm_fusion = bf16[{rows},{rows}]{{1,0}} fusion(%a, %b), kind=kCustom, calls=%gemm
}}
"""
    roofline = roofline_of(text, {}, H200)
    assert roofline.bound == bound
    if bound == "matmuls":
        assert roofline.roofline == pytest.approx(2 * rows * rows * columns / 704e12 + LAUNCH_SECONDS)


def test_the_description_of_a_gpu_has_its_facts() -> None:
    text = description_of(GPUS["a100"])
    assert "major: 8 feature_extension: NONE }" in text
    assert "core_count: 108\n" in text
    assert "memory_bandwidth: 2039000000000\n" in text
    assert text.count("{") == text.count("}")
    assert "ACCELERATED" in description_of(GPUS["b200"])
