"""What commands import: nothing heavy before it is needed, and no torch, which transformers' config classes would import."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers

from miron_jax.cli.processes import leave_out_torch
from miron_jax.config import RunConfig
from miron_jax.model.checkpoints.hf_config import from_hf_config
from tests.support.command import Place, common, make_place
from tests.support.run_folders import samples_of, write_run
from tests.support.tiny_families import MODELS

HEAVY = {
    "datasets",
    "matplotlib",
    "orbax",
    "pandas",
    "scipy.stats",
    "sklearn",
    "sympy",
    "tensorflow",
    "tensorstore",
    "torch",
}
OF_MODELS = {"flax", "jax", "tokenizers", "transformers"}
# The first call of the first scoring program ends the command.
COMMAND = """
import json, sys

def first_token(*_):
    raise SystemExit("tokens")

if sys.argv[1] == "eval":
    from miron_jax.cli.processes import start_jax
    from miron_jax.engine import forward
    forward.assemble = first_token
from miron_jax.__main__ import main
try:
    main()
except SystemExit as ended:
    print(json.dumps([ended.code, *sys.modules]))
"""
CONFIGS = """
import json, sys
from miron_jax.cli.processes import leave_out_torch
from miron_jax.config import RunConfig
from miron_jax.model.checkpoints.hf_config import from_hf_config

leave_out_torch(RunConfig("demo", ("none",)))
print(json.dumps([[repr(from_hf_config(folder)) for folder in sys.argv[1:]], "torch" in sys.modules]))
"""


def fresh(code: str, *arguments: str) -> Any:
    """What a new interpreter prints in its last line, as JSON."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("imports"))


@pytest.mark.parametrize("arguments", ["--help", "tasks", "report FOLDER"])
def test_pages_lists_and_reports_import_no_library_of_models(arguments: str, tmp_path: Path) -> None:
    write_run(tmp_path / "FOLDER", {"core/copa": samples_of([True, False])})
    status, *imported = fresh(COMMAND, *arguments.replace("FOLDER", f"{tmp_path}/FOLDER").split())
    assert status == 0
    assert (HEAVY | OF_MODELS).intersection(imported) == set()


@pytest.mark.slow
def test_eval_imports_nothing_heavy_on_the_way_to_its_first_token(place: Place, tmp_path: Path) -> None:
    status, *imported = fresh(
        COMMAND, "eval", *common(place, tmp_path / "out", "--limit=1", "--tasks=core/copa,miron-gen")
    )
    assert status == "tokens"
    assert HEAVY.intersection(imported) == set()
    assert set(imported) >= OF_MODELS


@pytest.mark.slow
def test_configs_are_read_without_torch_as_with_it(tmp_path: Path) -> None:
    folders = []
    for name, (kind, fields) in MODELS.items():
        model_type = getattr(transformers, f"{kind}Config").model_type.replace("gemma3", "gemma3_text")
        for config in (fields, {}):
            folders.append(tmp_path / f"{name}-{len(config)}")
            folders[-1].mkdir()
            (folders[-1] / "config.json").write_text(json.dumps({"model_type": model_type, **config}))
    import torch  # which transformers' classes see in this process

    assert torch.nn
    configs, has_torch = fresh(CONFIGS, *map(str, folders))
    assert not has_torch
    assert configs == [repr(from_hf_config(folder)) for folder in folders]


@pytest.mark.parametrize("given", [{"model": "mine:make"}, {"task_path": ("task.py",)}, {"detox_scorer": "mine:score"}])
def test_users_python_keeps_torch(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("torch", "transformers")]:
        monkeypatch.delitem(sys.modules, name)
    leave_out_torch(RunConfig(**{"model": "demo", "tasks": ("none",), **given}))
    assert "transformers" not in sys.modules
