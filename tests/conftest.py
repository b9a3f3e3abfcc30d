"""Settings that every test shares: the CPU backend, strict promotion, and where the real data and models lie."""

import gc
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Programs that are compiled once serve all test processes, and the next run of the tests.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(REPOSITORY / ".pytest_cache" / "programs"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from miron_jax.runtime.backend import set_backend_flags  # noqa: E402

set_backend_flags()

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# `make test` leaves these files to `make test-slow`: families against torch, checkpoints of every layout, hosts, meshes,
# kills, signals, programs that are run, whole suites against plain scoring, lm-eval, tasks of a user's own, wheels.
SLOW = {
    "answers", "array_tree", "benchmarks", "cheats", "cli_signals", "damage", "demo", "dialogues", "docs", "evaluator",
    "examples", "experts", "extending", "fuzz", "gemma3n", "hf_config", "hf_flax", "hf_reader", "hosts", "hub", "journal",
    "lm_eval", "lm_eval_hosts", "lm_eval_use", "loggers", "mera_run", "miron", "model_parity", "orbax_layouts",
    "own_factory", "own_model", "own_rules", "own_state", "own_tasks", "packaging", "paired", "param_map", "presets",
    "recipes", "recurrent", "report_page", "requests", "rope_class", "sampled", "sampling", "sandbox", "sequential",
    "sharding", "store", "text", "tpu", "tpu_plan", "training_run", "uation_gen", "uation_gen_stories", "uation_gen_user",
    "uation_gen_words", "uation_run", "verify",
}  # fmt: skip

# Programs for TPUs need libtpu, which `make tpu` installs beside this package in an environment of its own.
collect_ignore = [] if importlib.util.find_spec("libtpu") else ["test_tpu.py", "test_tpu_plan.py"]

# What CI runs on the newest Python, jax, flax, orbax and transformers too: what hangs on one of them.
NEWEST = {
    "cli", "evaluator", "forward", "generate", "kernels", "metrics", "orbax_layouts", "own_factory", "own_model", "plan",
    "program_cache", "prompts", "ragged", "readers", "rope", "sampling", "steps", "text_ends", "token_requests",
    "topology", "training_run",
}  # fmt: skip

# Files that take a minute and more come first, so that none of them is left to one worker at the end.
LONG = (
    "hosts", "docs", "golden", "sharding", "uation_run", "own_model", "kernels", "benchmarks", "journal", "fuzz", "forward",
    "model_parity", "sandbox", "mera_run", "training_run", "own_factory", "evaluator", "answers",
    "cli_signals", "cli", "generate",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem.removeprefix("test_") in SLOW:
            item.add_marker(pytest.mark.slow)
        if item.path.stem.removeprefix("test_") in NEWEST:
            item.add_marker(pytest.mark.newest)
    place = {name: i for i, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.stem.removeprefix("test_"), len(LONG)))


@pytest.fixture(scope="module", autouse=True)
def programs_of_one_file() -> Iterator[None]:
    """Programs stay mapped while a cache of jax holds them: those of all files reach Linux's 65,530 maps a process, and then
    XLA crashes."""
    yield
    jax.clear_caches()
    gc.collect()


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


@pytest.fixture
def miron(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """miron("eval", "--limit=3") -> exit status and what was printed."""
    from tests.command import command

    return command(monkeypatch, capsys)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Where a tiny model and CORE-like data lie: a tests.command.Place."""
    from tests.command import make_place

    return make_place(tmp_path_factory.mktemp("cli"))
