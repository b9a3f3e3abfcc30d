"""What is known of the TPUs and GPUs that programs are compiled for without having them.

Arrives: nothing.  Leaves: `Tpu` and `Gpu`, tables by the names that `--topology` takes, and the
text that describes a GPU to XLA.  It deliberately does not know jax.
"""

from pathlib import Path
from typing import Literal, NamedTuple

from miron_jax.files.regular import read_text


class Tpu(NamedTuple):
    """Bytes are those that libtpu 0.0.42.1 says are available; rates are of
    cloud.google.com/tpu/docs (v5e, v5p, v6e)."""

    kind: str  # `device_kind` of its devices
    memory: int  # bytes
    peak: float  # FLOPs a second of bfloat16 matmuls
    clock: float  # cycles a second of the compiler's estimates
    sizes: tuple[str, ...]  # of its topologies, from the smallest; there are others

    compiler = "libtpu"  # the package
    extra = "tpu"  # that installs it
    any_size = r"\d+(x\d+){1,2}"  # libtpu says which there are


_FLAT = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8")
TPUS = {
    "v5e": Tpu("TPU v5 lite", int(15.75 * 2**30), 197e12, 1.5e9, _FLAT),
    "v5p": Tpu("TPU v5", int(95.74 * 2**30), 459e12, 1.75e9, _CUBES),
    "v6e": Tpu("TPU v6 lite", int(31.25 * 2**30), 918e12, 1.75e9, _FLAT),
}


class Gpu(NamedTuple):
    """Bytes and rates are of NVIDIA's data sheets (H100 SXM, H200 SXM, A100 SXM 80 GB, HGX B200),
    sizes of a multiprocessor of the CUDA programming guide's table of compute capabilities."""

    kind: str  # `device_kind` of its devices
    whole_memory: int  # bytes that the driver reports
    tensor_rate: float  # FLOPs a second of bfloat16 matmuls without sparsity, on paper
    float32_rate: float  # FLOPs a second of float32 matmuls, on paper
    bandwidth: float  # bytes a second of its memory, on paper
    capability: int  # compute capability, major
    processors: int  # multiprocessors
    float32_units: int  # of a multiprocessor
    clock: float  # GHz, boost
    cache: int  # bytes of L2
    shared_memory: int  # bytes of a multiprocessor; a block has a KiB less
    # whether instructions of this capability alone are used
    features: Literal["NONE", "ACCELERATED_FEATURES"] = "ACCELERATED_FEATURES"
    sizes: tuple[str, ...] = ("1x1x1", "1x1x2", "1x1x4", "1x1x8", "1x2x8", "1x4x8")

    compiler = "jax-cuda13-plugin"
    extra = "cuda"
    any_size = r"[1-9]\d*(x[1-9]\d*){2}"  # of racks, hosts of a rack, GPUs of a host

    @property
    def memory(self) -> int:
        """Bytes of arrays and programs: jax takes three quarters of a GPU
        (XLA_PYTHON_CLIENT_MEM_FRACTION)."""
        return int(0.75 * self.whole_memory)

    @property
    def peak(self) -> float:
        """FLOPs a second that bfloat16 matmuls reach."""
        return MATMUL_SHARE * self.tensor_rate


# Of the rates on paper.  benchmarks/results/gpu_h200.json: an H200 reached 704 and 51 TFLOP/s.
MATMUL_SHARE = 704 / 989
FLOAT32_SHARE = 51 / 67
BANDWIDTH_SHARE = 0.85  # assumed
LAUNCH_SECONDS = 2e-6  # of a kernel; assumed

GPUS = {
    "a100": Gpu(
        "NVIDIA A100-SXM4-80GB", 85_100_068_864, 312e12, 19.5e12, 2.039e12,
        capability=8, processors=108, float32_units=64, clock=1.41, cache=40 << 20,
        shared_memory=164 << 10, features="NONE",
    ),
    "h100": Gpu(
        "NVIDIA H100 80GB HBM3", 84_942_979_072, 989e12, 67e12, 3.35e12,
        capability=9, processors=132, float32_units=128, clock=1.98, cache=50 << 20,
        shared_memory=228 << 10,
    ),
    "h200": Gpu(
        "NVIDIA H200", 151_397_597_184, 989e12, 67e12, 4.8e12,
        capability=9, processors=132, float32_units=128, clock=1.98, cache=50 << 20,
        shared_memory=228 << 10,
    ),
    "b200": Gpu(
        "NVIDIA B200", 191_514_411_008, 2250e12, 75e12, 7.7e12,
        capability=10, processors=148, float32_units=128, clock=1.965, cache=126 << 20,
        shared_memory=228 << 10,
    ),
}  # fmt: skip
CHIPS: dict[str, Tpu | Gpu] = {**TPUS, **GPUS}


def description_of(gpu: Gpu) -> str:
    """The GPU as XLA's `GpuTargetConfigProto` in text."""
    template = read_text(Path(__file__).with_name("gpu_target.textproto"))
    return template.format(
        gpu=gpu, bandwidth=int(gpu.bandwidth), block_memory=gpu.shared_memory - 1024
    )
