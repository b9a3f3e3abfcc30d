"""What a call of a compiled program takes on a chip that is not here.

Arrives: compiled text, what is known of the chip and of the call's work.  Leaves: `Cost`.  It
deliberately does not know how programs are compiled, nor memory.

Of a TPU it is the compiler's cycles (`runtime/tpu_cycles.py`), which leave out kernels and what
chips send to one another: the attention kernel's FLOPs are added at the chip's peak rate,
communication is not.  Of a GPU it is a roofline (`runtime/gpu_kernels.py`).  None of it is a
measured time.
"""

from collections.abc import Mapping
from typing import NamedTuple

from miron_jax.model.config import ModelConfig
from miron_jax.model.network import Network
from miron_jax.report.tables.topology import Cycles
from miron_jax.runtime.chips import Gpu, Tpu
from miron_jax.runtime.gpu_kernels import ATTENTION, Roofline, roofline_of
from miron_jax.runtime.hlo import sends
from miron_jax.runtime.tpu_cycles import cycles_of, kernel_calls


class Work(NamedTuple):
    """Of one call."""

    loops: Mapping[str, float]  # iterations of loops that the text does not tell, see `runs_of`
    flops: float | None = None  # of a chip; None: it is not made of matmuls
    attention_flops: float = 0.0  # of a chip, of pairs that attention's kernel computes


class Cost(NamedTuple):
    """Of one call."""

    estimate: Cycles | Roofline
    seconds: float  # those of the estimate, and what it does not count of matmuls
    has_kernel: bool  # it calls the attention kernel
    # FLOPs over seconds and peak; None: not made of matmuls, or the text does not show them all
    peak_share: float | None


def cost_of(text: str, work: Work, chip: Tpu | Gpu, config: ModelConfig | Network) -> Cost:
    # The loops of experts' blocks and of a recurrent model's walk have no limit that is known here.
    has_experts = isinstance(config, ModelConfig) and config.experts is not None
    is_partial = has_experts or (isinstance(config, Network) and config.is_recurrent)
    if isinstance(chip, Gpu):
        estimate = roofline_of(text, work.loops, chip)
        seconds = estimate.roofline
        has_kernel = ATTENTION in text
    else:
        kernels = kernel_calls(text)
        estimate = Cycles(round(cycles_of(text, work.loops)))
        seconds = estimate.cycles / chip.clock
        seconds += work.attention_flops / chip.peak if kernels else 0.0
        # those of experts are kernels too
        has_kernel = kernels > 0 and (work.attention_flops > 0 or not has_experts)
        is_partial = is_partial or sends(text)  # matmuls that are fused with it have no estimate
    if work.flops is None:
        return Cost(estimate, seconds, has_kernel, None)
    least = work.flops / chip.peak
    if is_partial:
        return Cost(estimate, max(seconds, least), has_kernel, None)
    return Cost(estimate, seconds, has_kernel, least / seconds)
