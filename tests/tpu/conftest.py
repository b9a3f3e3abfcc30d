"""What every test of tests/tpu has: a compiler that takes half the time, but for the cases of `make tpu-long`."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def little_effort(request: pytest.FixtureRequest) -> Iterator[None]:
    """The least effort that XLA makes for a program's speed.  What a kernel compiles to, what is copied and what travels
    between chips are checked all the same; cases of real sizes, and users, have the usual effort."""
    usual = jax.config.values["jax_exec_time_optimization_effort"]
    if request.node.get_closest_marker("long") is None:
        jax.config.update("jax_exec_time_optimization_effort", -1.0)
    yield
    jax.config.update("jax_exec_time_optimization_effort", usual)
