"""Devices that jax cannot start: the CPU computes and a line says why, or the run is refused in one sentence."""

from tests.support.processes import run

# An accelerator whose driver refuses, by jax's own registry, and a plugin that jax cannot load; then a run's start.
START = """
import sys, types
from jax._src import xla_bridge
from miron_jax.errors import InputError
from miron_jax.runtime.backend import start_devices

def refuse():
    raise RuntimeError("INTERNAL: CUDA driver version is insufficient for CUDA runtime version\\nat line 5")

xla_bridge.register_backend_factory("broken", refuse, priority=500, fail_quietly=False)

def load():
    raise RuntimeError("Unable to load cuFFT. Is it installed?")

package, plugin = types.ModuleType("jax_plugins"), types.ModuleType("jax_plugins.other")
package.__path__, plugin.initialize = [], load
sys.modules.update({"jax_plugins": package, "jax_plugins.other": plugin})
from importlib import metadata
entry = metadata.EntryPoint("other", "jax_plugins.other", "jax_plugins")
metadata.entry_points = lambda **_: [entry]
try:
    start_devices(lambda line: print(line))
except InputError as error:
    print("REFUSED", error)
else:
    import jax.numpy as jnp
    print(jnp.arange(3).sum())
"""
REASON = "Unable to initialize backend 'broken': INTERNAL: CUDA driver version is insufficient for CUDA runtime version"


def test_a_driver_that_is_too_old_is_a_line_and_the_cpu_computes() -> None:
    ran = run("-c", START, env={"JAX_PLATFORMS": ""})
    assert ran.stdout.splitlines() == [
        "Jax plugin configuration error: Exception when calling jax_plugins.other.initialize(): Unable to load cuFFT. "
        "Is it installed?; other devices compute",
        f"computes on the CPU: {REASON}; a newer driver or JAX_PLATFORMS=cpu ends this line",
        "3",
    ]
    assert "Traceback" not in ran.stderr


def test_devices_that_are_asked_for_by_name_are_not_replaced() -> None:
    ran = run("-c", START, env={"JAX_PLATFORMS": "broken"})
    assert ran.stdout.splitlines()[-1] == (
        f"REFUSED jax cannot start its devices ({REASON}): mend the driver or the plugin, or set JAX_PLATFORMS=cpu to "
        "compute on the CPU"
    )


def test_eval_says_so_before_its_first_line() -> None:
    """The opening line names the devices, so they start before it; the folder of the model is looked for after."""
    start = """
import sys
from jax._src import xla_bridge

def refuse():
    raise RuntimeError("INTERNAL: CUDA driver version is insufficient for CUDA runtime version")

xla_bridge.register_backend_factory("broken", refuse, priority=500, fail_quietly=False)
from miron_jax.__main__ import main
main()
"""
    ran = run("-c", start, "eval", "--model=nowhere/at/all", "--tasks=miron-gen/en", env={"JAX_PLATFORMS": ""})
    assert ran.returncode == 2, ran.stderr
    assert f"computes on the CPU: {REASON}" in ran.stderr
    assert "1 CPU device" in ran.stderr
    assert "Traceback" not in ran.stderr
