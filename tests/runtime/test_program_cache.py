"""Compiled programs of processes after the first are read from their folder when they start again."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from miron_jax.engine.forward import Forward
from miron_jax.engine.model import load_model
from miron_jax.model.costs import cost_model
from miron_jax.planning.plan import make_plan
from miron_jax.runtime import devices
from miron_jax.runtime.devices import Placement
from miron_jax.runtime.program_cache import library_matmuls
from tests.support.requests import requests_of

pytestmark = pytest.mark.newest


@pytest.fixture
def second_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The cache's folder, for this process as process 1 of some; jax keeps to the folder that it opened, until reset."""
    before = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "programs"))
    compilation_cache.reset_cache()
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    yield tmp_path / "programs"
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


def scores(place: Any) -> np.ndarray:
    model = load_model(place.model, "float32")
    plan = make_plan(requests_of([([i, *range(1, 20)], 10) for i in range(1, 9)]), cost_model(model.config), (32,))
    return np.concatenate([batch.logprob for batch in Forward(model, 256).run(plan)])


def test_a_program_is_compiled_once(place: Any, second_process: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = scores(place)
    [entry] = second_process.glob("*-process")
    with monkeypatch.context() as patch:
        patch.setattr(jax.stages.Lowered, "compile", lambda self, options: pytest.fail("compiled again"))
        np.testing.assert_array_equal(scores(place), first)
    entry.write_bytes(entry.read_bytes()[:100])
    np.testing.assert_array_equal(scores(place), first)
    assert entry.stat().st_size > 100, "a damaged entry is written again"
    assert list(second_process.glob("*-process*")) == [entry]


@pytest.mark.filterwarnings("ignore:Error reading persistent compilation cache")
def test_a_folder_that_cannot_be_written_costs_no_result(place: Any, second_process: Path) -> None:
    second_process.write_text("a file in its place")
    assert np.isfinite(scores(place)).all()


def test_a_program_that_calls_python_is_compiled_each_time(second_process: Path) -> None:
    def printing(x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda y: None, x)
        return 2 * x

    for _ in range(2):
        program = Placement.default().compile(printing, (), (jnp.ones((1, 3)),))
        np.testing.assert_array_equal(program(jnp.ones((1, 3))), 2 * np.ones((1, 3)))
    assert not list(second_process.glob("*-process*"))


def test_other_flags_of_xla_are_another_program(second_process: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flags change what a program computes, so one that was compiled with others is not taken."""
    for number, flags in enumerate(("--xla_cpu_enable_fast_math=false", "--xla_cpu_enable_fast_math=true"), start=1):
        for _ in range(2):
            monkeypatch.setenv("XLA_FLAGS", flags)  # XLA itself has read them before
            Placement.default().compile(lambda x: 2 * x, (), (jnp.ones((1, 3)),))
            assert len(list(second_process.glob("*-process"))) == number
    monkeypatch.setattr(jax, "process_index", lambda: 0)
    monkeypatch.setenv("XLA_FLAGS", "")
    Placement.default().compile(lambda x: 2 * x, (), (jnp.ones((1, 3)),))
    assert len(list(second_process.glob("*-process"))) == 2, "the first process leaves it to jax"


def test_this_jaxlib_knows_the_options_of_a_gpu() -> None:
    options = library_matmuls(SimpleNamespace(platform="gpu"))
    assert options
    program = jax.jit(lambda x: x @ x).lower(jnp.eye(2)).compile(options)
    np.testing.assert_array_equal(program(jnp.eye(2)), np.eye(2))
    assert library_matmuls(jax.devices()[0]) is None


@pytest.mark.parametrize(("dtype", "options"), [("float32", {"of": "a library"}), ("bfloat16", None)])
def test_programs_with_float32_weights_take_them(dtype: str, options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(devices, "library_matmuls", lambda device: {"of": "a library"})
    monkeypatch.setattr(devices, "compiled", lambda lowered, among, options: seen.append(options))
    params = {"kernel": jnp.ones((4, 4), dtype), "scale": jnp.ones(4)}
    Placement.default().compile(lambda params, x: params["kernel"] * x, (params,), (jnp.ones((1, 4, 4), dtype),))
    assert seen == [options]
