"""Settings that every test shares: the CPU backend, strict promotion, and where the real data and models lie."""

import gc
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Programs that are compiled once serve all test processes, and the next run of the tests.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(REPOSITORY / ".pytest_cache" / "programs"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # a sixth of the time to lower a program
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, and output would be broken at that width

from miron_jax.runtime.backend import set_backend_flags  # noqa: E402

set_backend_flags()

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

hypothesis.settings.register_profile("seeded", derandomize=True, deadline=None)
hypothesis.settings.load_profile("seeded")

jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# What each file costs, and what was skipped, stands at the end of a run.
pytest_plugins = ["tests.support.costs"]

# Programs for TPUs and GPUs need their compilers, which `make tpu` and `make gpu` install in environments of their own.
COMPILERS = {"tpu": "libtpu", "gpu": "jax_cuda13_plugin"}
collect_ignore = [folder for folder, name in COMPILERS.items() if importlib.util.find_spec(name) is None]

ALL_SLOW = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.slow", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test` does not import files whose tests are all slow, nor `make test-slow` those that have none."""
    wanted = config.getoption("markexpr")
    if collection_path.suffix != ".py" or wanted not in ("not slow and not long", "slow and not long"):
        return None
    source = collection_path.read_text(encoding="utf-8")
    unwanted = ALL_SLOW.search(source) if wanted.startswith("not slow") else "mark.slow" not in source
    return True if unwanted else None


def pytest_collection_finish() -> None:
    """What was imported stays: a look through all of it for garbage takes a quarter of a second, at the end of each file and
    at moments between."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="module", autouse=True)
def programs_of_one_file() -> Iterator[None]:
    """Programs stay mapped while a cache holds them: those of all files reach Linux's 65,530 maps a process, and then XLA
    crashes."""
    yield
    jax.clear_caches()
    plain = sys.modules.get("miron_jax.engine.plain")
    if plain is not None:
        plain.PROGRAMS.clear()
    gc.collect()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real benchmark files and goldens, which lie beside a checkout and are never copied into it."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the benchmark files at {folder}: ln -s FOLDER_WITH_THEM/shared {folder.parent}")
    return folder


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M as a Hugging Face folder, made by make_real_models.py."""
    models = Path(os.environ.get("MIRON_MODELS") or Path.home() / ".cache/miron_jax/models")
    if not (models / "smollm2-135m" / "model.safetensors").is_file():
        pytest.skip(f"needs {models}/smollm2-135m: make {models}/smollm2-135m/model.safetensors")
    return models / "smollm2-135m"


@pytest.fixture
def miron(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """miron("eval", "--limit=3") -> exit status and what was printed."""
    from tests.support.command import command

    return command(monkeypatch, capsys)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Where a tiny model and CORE-like data lie: a tests.support.command.Place."""
    from tests.support.command import make_place

    return make_place(tmp_path_factory.mktemp("cli"))
