"""What a user installs, and who may import whom.

The trap behind most of this: `kernels` is the import name of a Hugging Face package that transformers probes for, so our
folder of that name must be reachable as miron_jax.kernels alone, from a wheel, an editable install and the bare checkout.
"""

import ast
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.support.needs import needs

pytestmark = pytest.mark.slow

PACKAGE_FOLDERS = ("miron_jax", "kernels", "tasks")

# docs/design.md: a stage is a folder, and imports only what stands above it.
STAGES = (
    "files", "definitions", "metrics", "prompting", "tokens", "planning", "runtime", "model", "engine", "statistics",
    "humans", "results", "evaluation", "report", "lm_eval", "cli",
)  # fmt: skip
BELOW_ALL = {"errors": set[str](), "config": {"errors", "files"}}  # files of the root that every stage may import
DOORS = ("evaluator", "__main__", "__init__")  # files of the root that no stage may import
TASKS_MAY_IMPORT = {"errors", "files", "definitions", "prompting", "metrics", "tokens", "tasks"}
COMPOSES_TASKS = {"evaluation", "humans", "cli"}


def run_python(code: str, cwd: Path, *options: str, path: Path | None = None) -> str:
    """Standard output of a fresh interpreter that sees this environment, and `path` before it."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, *options, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout's packages and packaging files: building in the checkout itself would leave folders behind."""
    if int((version("setuptools") if importlib.util.find_spec("setuptools") else "0").split(".")[0]) < 77:
        pytest.skip("needs setuptools 77 or newer: make install")
    target = tmp_path_factory.mktemp("checkout")
    for folder in PACKAGE_FOLDERS:
        shutil.copytree(
            REPOSITORY / folder, target / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, target / name)
    return target


@pytest.fixture(scope="module")
def wheel(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the sdist, as an index would serve it."""
    needs("build")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(copy)]
    done = subprocess.run(command, cwd=out, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.whl"))


def test_wheel_holds_every_file_of_every_package_the_licence_and_the_command(wheel: Path, copy: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = {name.partition(".dist-info/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
        assert b"Apache License" in archive.read(metadata["licenses/LICENSE"])
        assert b"miron-jax = miron_jax.__main__:main" in archive.read(metadata["entry_points.txt"])
    assert packed == {installed_name(path.relative_to(copy)) for path in package_files(copy)}


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_every_module_of_the_unpacked_wheel_is_imported_from_there_and_torch_is_not(site: Path, tmp_path: Path) -> None:
    names = [module_name(path) for path in package_files(REPOSITORY) if path.suffix == ".py"]
    if not importlib.util.find_spec("lm_eval"):  # an extra, which one module subclasses
        names = [name for name in names if not name.startswith("miron_jax.lm_eval.")]
    code = f"""
import importlib, json, sys
files = {{name: importlib.import_module(name).__file__ for name in {sorted(names)!r}}}
print(json.dumps([files, "torch" in sys.modules]))
"""
    files, has_torch = json.loads(run_python(code, tmp_path, path=site).splitlines()[-1])
    assert {name: file for name, file in files.items() if not file.startswith(f"{site}/")} == {}
    assert files["miron_jax.kernels.target_logprob.xla"] == str(site / "miron_jax/kernels/target_logprob/xla.py")
    assert not has_torch


USERS_FILE = """
import jax
import jax.numpy as jnp
import miron_jax
from flax import linen as nn

linen = miron_jax.OwnModel(vocab_size=8, logits=nn.Dense(8).apply)
model = miron_jax.OwnModel(vocab_size=8, logits=lambda params, ids: jnp.zeros((*ids.shape, 8)), params={})
evaluator = miron_jax.Evaluator(model, tasks=["core/copa"], limit=3)
results = evaluator.run({}, step=1)
value: float = results["tasks"]["core/copa"]["metrics"]["accuracy"]["value"]
scores = miron_jax.score("FOLDER", None, [("a", "b")])
first: float = scores[0].token_logprobs[0]
seen: jax.Array = miron_jax.Visibility.causal(1, 8).position_BT
wrong_size = miron_jax.OwnModel(vocab_size="8")  # error
wrong_text: str = scores[0].greedy  # error
absent = miron_jax.nothing  # error
"""


def test_types_reach_a_users_file(site: Path, tmp_path: Path) -> None:
    """A type checker sees the wheel's types, and the user's mistakes, and nothing else."""
    needs("basedpyright")
    (tmp_path / "use.py").write_text(USERS_FILE)
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(site)], "include": ["use.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    computed = json.loads(done.stdout)["generalDiagnostics"]
    lines = sorted(each["range"]["start"]["line"] for each in computed if each["severity"] == "error")
    marked = [i for i, line in enumerate(USERS_FILE.splitlines()) if line.endswith("# error")]
    assert lines == marked, computed


def test_editable_install_maps_the_folders_and_exposes_no_bare_name(copy: Path, tmp_path: Path) -> None:
    build = f"import setuptools.build_meta as b; print(b.build_editable({str(tmp_path)!r}))"
    name = run_python(build, copy).splitlines()[-1]
    site = tmp_path / "site"
    with zipfile.ZipFile(tmp_path / name) as archive:
        archive.extractall(site)
    # -S: an editable install in this environment must not answer instead; its other packages are put back by hand.
    code = f"""
import importlib.util, site, sys
site.addsitedir({str(site)!r})
sys.path.append({sysconfig.get_path("purelib")!r})
import miron_jax.kernels.target_logprob.xla as k, miron_jax.tasks.core as t
print(k.__file__, t.__file__)
for name in ("kernels", "tasks"):
    spec = importlib.util.find_spec(name)
    assert spec is None or not str(spec.origin).startswith({str(copy)!r}), spec
"""
    kernel, task = run_python(code, tmp_path, "-S").split()
    assert Path(kernel).resolve() == copy / "kernels/target_logprob/xla.py"
    assert Path(task).resolve() == copy / "tasks/core.py"


def test_every_tolerance_of_a_test_has_a_name_in_the_table() -> None:
    """tests/support/tolerances.py holds them all, so that one is loosened where all can see it."""
    wrong = [
        f"{path.relative_to(REPOSITORY)}, line {line}"
        for path in sorted((REPOSITORY / "tests").rglob("*.py"))
        if path.name != "tolerances.py"
        for line in literal_tolerances(path.read_text(encoding="utf-8"))
    ]
    assert wrong == []
    refused = (
        "approx(x, abs=1e-4)|approx(x, rel=2 * 1e-4)|isclose(x, y, abs_tol=0.4)|worst < 2e-5|0 < a <= b * 1e-3|a > 1e-3"
    )
    allowed = "allclose(x, y, rtol=TOKEN, atol=0)|approx(1000, abs=130)|rng.random() < 0.05|value == 0.001"
    assert all(literal_tolerances(line) for line in refused.split("|"))
    assert not any(literal_tolerances(line) for line in allowed.split("|"))


def test_pyproject_lists_the_packages_on_disk() -> None:
    listed = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    modules = {path.parent for path in package_files(REPOSITORY) if path.suffix == ".py"}
    on_disk = {Path(installed_name(folder.relative_to(REPOSITORY))) for folder in modules}
    assert sorted(listed) == sorted(".".join(folder.parts) for folder in on_disk)
    assert [str(folder) for folder in modules if not (folder / "__init__.py").is_file()] == []


def test_transformers_imports_from_the_root_of_the_checkout() -> None:
    # `python -c` puts the current directory first on sys.path, so a probe for `kernels` meets our folder.
    code = """
import importlib.util
from transformers import AutoConfig, AutoTokenizer
from transformers.utils.import_utils import is_kernels_available
is_kernels_available()
if importlib.util.find_spec("torch"):
    import transformers.integrations.hub_kernels  # this one asks the package for more than its version
print("fine")
"""
    assert run_python(code, REPOSITORY) == "fine"


def test_a_stage_imports_only_what_stands_above_it() -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)} imports {imported}"
        for path in package_files(REPOSITORY)
        if path.suffix == ".py"
        for imported in stages_imported(path)
        if not may_import(stage_of(path), imported)
    ]
    assert wrong == []
    for pair in ["planning engine", "kernels model", "tasks planning", "engine tasks", "cli evaluator", "config model"]:
        assert not may_import(*pair.split()), pair


def test_what_shows_a_run_that_is_done_asks_nothing_of_what_computes_one() -> None:
    """From the engine to results.json and the tables a score climbs back nowhere."""
    # the tables of tasks that are still to run, and of tests that are no score of a run
    of_tasks = {"opening.py", "plan.py", "memorized.py"}
    of_prompts = {"prompts.py"}  # renders what was asked again, no score
    climbing = {
        path.name
        for path in (REPOSITORY / "miron_jax" / "report").rglob("*.py")
        if stages_imported(path) & {"model", "engine", "evaluation"}
    }
    assert climbing == of_tasks | of_prompts


def test_results_json_is_written_by_results_and_each_stage_is_called_by_the_command() -> None:
    """engine, evaluation (numbers of a run), results (files): what a report makes of them comes after."""
    importers = {
        "evaluate_checkpoints": "cli/eval.py",
        "finished_runs": "cli/eval.py",
        "finished_run": "evaluator.py",
        "write_finished": "cli/eval.py evaluator.py",
        "write_top": "cli/eval.py evaluator.py",
        "replace_results": "results/writing.py",
        "run_json": "cli/eval.py evaluator.py results/whole.py",
        "other_layout": "cli/eval.py evaluator.py",
    }
    package = REPOSITORY / "miron_jax"
    paths = [path for stage in (*STAGES, "evaluator.py") for path in python_files(package / stage)]
    imported = {str(path.relative_to(package)): names_imported(path) for path in paths}
    for name, expected in importers.items():
        assert [path for path, names in sorted(imported.items()) if name in names] == expected.split(), name
    writers = {"miron_jax.results.writing", "miron_jax.results.whole"}
    shows = [path for path, names in imported.items() if path.startswith("report/") and names & writers]
    assert shows == [], "a report reads runs and writes none"


def test_only_two_files_ask_for_a_generator() -> None:
    """A run reads frozen rows: other numbers of items and `tasks --export` are what a generator is for."""
    outside = [path for path in (REPOSITORY / "tasks").rglob("*.py") if "generators" not in path.parts]
    asking = {path.name for path in outside if "tasks.generators" in path.read_text()}
    assert asking == {"miron.py", "registry.py"}
    makers = "('.miron_gen.items', '.eval_uation_gen.sets')"
    code = f"import sys, miron_jax.tasks.registry; print([name for name in sys.modules if name.endswith({makers})])"
    assert run_python(code, REPOSITORY) == "[]"


def test_stages_are_sixteen_folders_which_the_design_page_lists_in_order() -> None:
    root = REPOSITORY / "miron_jax"
    entries = {path.stem for path in root.iterdir() if path.is_dir() or path.suffix == ".py"} - {"__pycache__"}
    assert entries == {*STAGES, *BELOW_ALL, *DOORS, "kernels", "tasks"}
    assert len(STAGES) <= 16
    page = (REPOSITORY / "docs" / "design.md").read_text().partition("## Stages")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(STAGES)


# Distributions by the name that is imported, where the two differ.
DISTRIBUTIONS = {
    "absl": "absl-py", "orbax": "orbax-checkpoint", "yaml": "pyyaml", "upath": "universal-pathlib", "crowdkit": "crowd-kit",
    "pandas": "crowd-kit", "huggingface_hub": "huggingface-hub", "jaxlib": "jax", "lm_eval": "lm-eval",
    "mlflow": "mlflow-skinny", "comet_ml": "comet-ml",
}  # fmt: skip


def test_what_the_package_imports_is_declared() -> None:
    """What comes with another package today may not come with it tomorrow."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = {name: each for name, each in project["optional-dependencies"].items() if name not in ("test", "bench")}
    declared = {
        re.split(r"[<>=!\[]", each)[0] for each in [*project["dependencies"], *itertools.chain(*extras.values())]
    }
    imported = set()
    for path in package_files(REPOSITORY):
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.module:
                    names = [node.module]
                imported |= {name.partition(".")[0] for name in names}
    foreign = imported - set(sys.stdlib_module_names) - {"miron_jax"}
    assert {"numpy", "tensorstore"} <= foreign
    absent = {name for name in foreign if DISTRIBUTIONS.get(name, name) not in declared}
    assert absent == set()


def literal_tolerances(source: str) -> list[int]:
    """Lines where a tolerance is a number: of rtol=, atol=, abs=, rel= and the like, or what something small is below."""
    names, orders = {"rtol", "atol", "abs", "rel", "abs_tol", "rel_tol"}, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
    lines = []
    for node in ast.walk(ast.parse(source)):
        sides, below = [], 0.5
        if isinstance(node, ast.keyword) and node.arg in names:
            sides = [node.value]
        elif isinstance(node, ast.Compare) and any(isinstance(operator, orders) for operator in node.ops):
            sides, below = [node.left, *node.comparators], 0.01
        lines += [line for side in sides for line, value in numbers_of(side) if 0 < value <= below]
    return lines


def numbers_of(node: ast.expr) -> Iterator[tuple[int, float]]:
    """Line and value of every float of a sum or product; what stands within a call, a list or a power is no tolerance."""
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Pow):
        yield from numbers_of(node.left)
        yield from numbers_of(node.right)
    elif isinstance(node, ast.IfExp):
        yield from numbers_of(node.body)
        yield from numbers_of(node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, float):
        yield node.lineno, node.value


def package_files(root: Path) -> Iterator[Path]:
    """Files of the three package folders; the two symlinks inside miron_jax/ are not followed."""
    for folder in PACKAGE_FOLDERS:
        for directory, subfolders, names in os.walk(root / folder):
            subfolders[:] = [name for name in subfolders if name != "__pycache__"]
            yield from (Path(directory) / name for name in names if (Path(directory) / name).is_file())


def installed_name(path: Path) -> str:
    """kernels/x.py -> miron_jax/kernels/x.py"""
    return path.as_posix() if path.parts[0] == "miron_jax" else f"miron_jax/{path.as_posix()}"


def module_name(path: Path) -> str:
    name = Path(installed_name(path.relative_to(REPOSITORY))).with_suffix("")
    return ".".join(name.parent.parts if name.name == "__init__" else name.parts)


def stage_of(path: Path) -> str:
    parts = Path(installed_name(path.relative_to(REPOSITORY))).with_suffix("").parts
    return parts[1]


def stages_imported(path: Path) -> set[str]:
    """Stages that a file names in any import, wherever it stands in the file."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    ours = (name.split(".") for name in modules if name.split(".")[0] == "miron_jax")
    stages = {parts[1] if len(parts) > 1 else "__init__" for parts in ours}
    return stages - {"__version__"}  # stands in miron_jax/__init__.py before anything else


def python_files(path: Path) -> list[Path]:
    return [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))


def names_imported(path: Path) -> set[str]:
    """Modules from which something is imported, and what."""
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(alias.name for alias in node.names)}
    return names


def may_import(stage: str, imported: str) -> bool:
    if stage == "kernels" or imported == "kernels":
        return imported == "kernels"
    if stage == "tasks":
        return imported in TASKS_MAY_IMPORT
    if imported == "tasks":
        return stage in COMPOSES_TASKS
    if stage in BELOW_ALL or stage in DOORS:
        return imported in BELOW_ALL.get(stage, {*STAGES, *BELOW_ALL, *DOORS})
    return imported in BELOW_ALL or imported in STAGES[: STAGES.index(stage) + 1]
