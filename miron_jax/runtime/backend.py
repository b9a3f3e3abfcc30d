"""XLA flags that a device's backend needs.

Arrives: environment variables.  Leaves: environment variables with which a backend may start.  It
deliberately does not import jax before a check needs it.
"""

import os
import re
import sys

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
