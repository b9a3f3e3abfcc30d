"""Starts jax's devices: XLA flags that they need, and the CPU where an accelerator cannot start.

Arrives: environment variables.  Leaves: environment variables with which a backend may start; a
backend.  It deliberately does not import jax before a check needs it.
"""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jaxlib.version import __version__ as jaxlib_version  # quicker than importlib.metadata

from miron_jax.errors import InputError

YNN_FLAG = "--xla_cpu_experimental_ynn_fusion_type"
_too_late = False  # whether a backend had started before the flag was set


def set_backend_flags() -> None:
    """Set the XLA flag that avoids a miscompilation on CPU in jaxlib 0.10.2 - 0.11.  Call before
    jax starts a backend.

    jax-ml/jax#39103, #39257: YNNPACK fusions give silently wrong sums.  `individual_dot` keeps the
    fast matmul and drops the fusions.  A flag that the user has set is kept; other versions do not
    know the flag and would abort on it.
    """
    global _too_late
    version = tuple(map(int, re.findall(r"\d+", jaxlib_version)[:3]))
    flags = os.environ.get("XLA_FLAGS", "")
    if (0, 10, 2) <= version < (0, 12) and YNN_FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {YNN_FLAG}=individual_dot".strip()
        bridge = sys.modules.get("jax._src.xla_bridge")
        _too_late = bool(bridge and bridge.backends_are_initialized())


def check_backend_flags() -> None:
    """Raises InputError if a CPU backend had started before the flag was set."""
    import jax

    if _too_late and jax.default_backend() == "cpu":
        raise InputError(
            "jax started before miron_jax was imported, and this jaxlib miscompiles sums on CPU "
            f"without {YNN_FLAG}=individual_dot: import miron_jax first, or set XLA_FLAGS"
        )


def start_devices(say: Callable[[str], None]) -> None:
    """Start jax's devices; where those of an accelerator cannot start, the CPU's, and `say` why.

    jax raises where there is a GPU whose driver is too old or whose memory is taken.  Raises
    InputError where the CPU would not do: JAX_PLATFORMS names the devices, or other processes take
    part.
    """
    import jax

    with _plugins_told(say):
        try:
            jax.devices()
        except RuntimeError as error:
            # jax's advice stands in brackets behind it
            reason = str(error).splitlines()[0].partition(" (")[0]
            platforms: str | None = getattr(jax.config, "jax_platforms")  # noqa: B009 - untyped
            if platforms or jax.distributed.is_initialized():
                raise InputError(
                    f"jax cannot start its devices ({reason}): mend the driver or the plugin, or "
                    "set JAX_PLATFORMS=cpu to compute on the CPU"
                ) from error
            jax.config.update("jax_platforms", "cpu")
            jax.devices()
            say(
                f"computes on the CPU: {reason}; a newer driver or JAX_PLATFORMS=cpu ends this line"
            )


@contextmanager
def _plugins_told(say: Callable[[str], None]) -> Iterator[None]:
    """A sentence in place of the traceback that jax logs of a plugin that it cannot load."""
    logger = logging.getLogger("jax._src.xla_bridge")

    def is_other(record: logging.LogRecord) -> bool:
        if record.exc_info is None or "plugin" not in record.msg:
            return True
        say(f"{record.getMessage()}: {record.exc_info[1]}; other devices compute")
        return False

    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)
