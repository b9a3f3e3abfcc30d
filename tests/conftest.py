"""Settings that every test shares: the CPU backend, strict promotion, and where the real data and models lie."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from miron_jax.runtime.backend import set_backend_flags

set_backend_flags()

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

REPOSITORY = Path(__file__).resolve().parent.parent

# `make test` leaves these files to `make test-slow`: families against torch, checkpoints of every layout, hosts, meshes,
# kills, programs that are run, whole suites against plain scoring, wheels.
SLOW = {
    "answers", "benchmarks", "cheats", "demo", "dialogues", "evaluator", "fuzz", "hf_reader", "hosts", "journal", "mera_run",
    "miron", "model_parity", "own_model", "packaging", "param_map", "recipes", "sandbox", "sharding", "stretch",
    "training_run", "uation_gen", "uation_run",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem.removeprefix("test_") in SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real benchmark files and goldens, which lie beside a checkout and are never copied into it."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the benchmark files at {folder}, which are absent here")
    return folder


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M as a Hugging Face folder, made by make_real_models.py."""
    models = Path(os.environ.get("MIRON_MODELS") or Path.home() / ".cache/miron_jax/models")
    if not (models / "smollm2-135m" / "model.safetensors").is_file():
        pytest.skip(f"needs {models}/smollm2-135m; make it with make_real_models.py")
    return models / "smollm2-135m"
