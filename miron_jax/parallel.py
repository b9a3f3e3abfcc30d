"""The flags that a device's backend needs.

Arrives: nothing but the environment.  Leaves: the environment, ready for a backend to start.  It deliberately does not
know models or plans.  One device scores today.
"""

import importlib.metadata
import os
import re

YNN_FLAG = "--xla_cpu_experimental_ynn_fusion_type"


def set_backend_flags() -> None:
    """Set the XLA flag that cures jaxlib 0.10.2 - 0.11's CPU miscompilation.  Call before jax starts a backend.

    jax-ml/jax#39103, #39257: YNNPACK fusions give silently wrong sums.  `individual_dot` keeps the fast matmul and
    drops the fusions.  A flag of the user's own stands; other versions do not know the flag and would abort on it.
    """
    version = tuple(int(part) for part in re.findall(r"\d+", importlib.metadata.version("jaxlib"))[:3])
    flags = os.environ.get("XLA_FLAGS", "")
    if (0, 10, 2) <= version < (0, 12) and YNN_FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {YNN_FLAG}=individual_dot".strip()
