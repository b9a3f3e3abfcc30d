"""Revisions of the hub's repositories, against a cache on disk: which commit is asked for, and which was read."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from miron_jax.cli.eval import _score_along
from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.files.hub import Repository, commit_of, fetch_data_set, parse_name, revision_of
from miron_jax.files.store import Store
from miron_jax.files.temporary import temporary_folder
from miron_jax.model.checkpoints.checkpoints import find_model
from miron_jax.tasks import miron
from miron_jax.tasks.eval_uation import suite as eval_uation
from miron_jax.tasks.mera import suite as mera
from tests.support.command import run
from tests.support.mera_records import write_mera
from tests.support.tiny_model import make_model, write_core_data

OLD, NEW, TOKENIZER = "0" * 39 + "a", "0" * 39 + "b", "0" * 39 + "c"


def test_names_are_taken_apart() -> None:
    for name in ("owner/name", "name@v1.0", f"owner/name@{OLD}", "owner/name@refs/pr/3"):
        repository, _, revision = name.partition("@")
        assert parse_name(name) == Repository(repository, revision or None), name
    for wrong in ("a/b/c", "owner/name@", "@x", "a b", "/x@y", "owner/name@a b"):
        assert parse_name(wrong) is None, wrong
    assert revision_of(Path("@abc")) == "abc"
    assert (revision_of(Path("x@abc")), revision_of(None), revision_of(Path("@"))) == (None, None, None)


def test_commits_are_read_from_where_the_hubs_client_keeps_them(tmp_path: Path) -> None:
    assert commit_of(tmp_path / "snapshots" / "mine" / "config.json") is None
    write_metadata(tmp_path / "data", "x/test.jsonl", NEW)
    assert commit_of(tmp_path / "data" / "x" / "test.jsonl") == NEW
    assert commit_of(tmp_path / "data" / "x" / "other.jsonl") is None
    (metadata,) = (tmp_path / "data" / ".cache").rglob("*.metadata")
    metadata.write_bytes(b"\xff\xfe")
    assert commit_of(tmp_path / "data" / "x" / "test.jsonl") is None


def write_metadata(folder: Path, name: str, commit: str) -> None:
    """As the hub's client does below the top of a folder that is not its cache."""
    path = folder / ".cache" / "huggingface" / "download" / f"{name}.metadata"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{commit}\netag\n1700000000.0\n")


def in_cache(cache: Path, kind: str, name: str, commit: str, files: Path, **refs: str) -> None:
    """As huggingface_hub lays a repository out."""
    home = cache / f"{kind}s--{name.replace('/', '--')}"
    shutil.copytree(files, home / "snapshots" / commit)
    (home / "refs").mkdir(exist_ok=True)
    for ref, of in refs.items():
        (home / "refs" / ref).write_text(of)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    for seed, commit in ((1, OLD), (2, NEW)):
        in_cache(tmp_path / "hub", "model", "me/tiny", commit, make_model(tmp_path / f"m{seed}", seed=seed), main=NEW)
    (tmp_path / "hub" / "models--me--tiny" / "refs" / "v1").write_text(OLD)
    in_cache(tmp_path / "hub", "model", "me/words", TOKENIZER, tmp_path / "m1", main=TOKENIZER)
    return tmp_path / "hub"


def test_names_lead_to_commits(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    for name, commit in (("me/tiny", NEW), ("me/tiny@v1", OLD), (f"me/tiny@{OLD}", OLD)):
        folder = find_model(RunConfig(model=name, tasks=("core/copa",))).weights
        assert folder is not None
        assert folder == cache / "models--me--tiny" / "snapshots" / commit, name
        assert commit_of(folder / "config.json") == commit, name


@pytest.mark.slow
def test_a_run_names_the_commits_that_it_read(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, miron: Any
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    data = (f"--data_dir={write_core_data(tmp_path / 'data')}", "--tasks=core/copa", "--allow_changed_data")
    for flags in (["--model=me/tiny@v9"], ["--model=me/tiny", "--tokenizer=me/words@v9"]):
        ran = miron("eval", *flags, *data)
        assert (ran.status, ran.err.count("miron-jax: ")) == (2, 1), ran.err
        assert f"{flags[-1]}: no such folder here, not in the hub's cache" in ran.err
    results = run(miron, Path("me/tiny@v1"), tmp_path / "out", "--tokenizer=me/words@main", "--limit=4", *data)
    assert results["checkpoint"]["commits"] == {"model": OLD, "tokenizer": TOKENIZER}
    assert results["checkpoint"]["tokenizer_from"] == "tokenizer.json"


def test_data_sets_take_a_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[tuple[str, str | None]] = []

    def snapshot(hub: str, repo_type: str, revision: str, local_dir: Path, allow_patterns: list[str]) -> None:
        requested.append((hub, revision))
        write_mera(local_dir, "v1.2", num_tests=3)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path / "cache"))
    with pytest.raises(InputError, match="no MIRON data there"):
        miron.locate(Path("@v2"), False)
    for _ in range(2):
        assert miron.locate(Path("@v2")) == tmp_path / "cache" / "miron@v2"
        assert miron.locate(None) == tmp_path / "cache" / "miron"
        folder = mera.V12.locate(Path(f"@{OLD}"), True)
        assert folder.is_relative_to(tmp_path / "cache" / f"mera-v1.2@{OLD}")
        assert mera.V12.locate(Path(f"@{OLD}"), False) == folder
    once = [(miron.HUB_ID, "v2"), (miron.HUB_ID, None), (mera.HUB["v1.2"], OLD)]
    assert requested == once
    with pytest.raises(InputError, match="nine repositories"):
        eval_uation.locate(Path("@v1"))


def test_a_data_set_that_another_run_fetches_at_once_serves_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that is there first stays."""
    folder = tmp_path / "suite"

    def download(*_: object, local_dir: Path, **__: object) -> None:
        for other in (local_dir, folder):
            other.mkdir(parents=True)
            (other / "rows.jsonl").write_text(other.name)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    fetch_data_set(Repository("a/b", None), folder, ["*.jsonl"], "suite")
    assert (folder / "rows.jsonl").read_text() == "suite"
    assert list(tmp_path.iterdir()) == [folder]


def test_files_in_the_cache_of_the_hubs_client_serve_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data cache gets a copy with its commit, so that it outlives the client's cache; half a data set is not taken."""
    names = [*miron.FILES.values()]
    (tmp_path / "files").mkdir()
    for name in names:
        (tmp_path / "files" / name).write_text(f"{name} of the client's cache")
    in_cache(tmp_path / "hub", "dataset", miron.HUB_ID, OLD, tmp_path / "files", main=OLD)
    (tmp_path / "files" / names[0]).unlink()
    in_cache(tmp_path / "half", "dataset", miron.HUB_ID, OLD, tmp_path / "files", main=OLD)
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path / "data"))
    for cache, data_dir in (("half", None), ("hub", Path("@v9"))):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / cache))
        with pytest.raises(InputError, match="miron data are neither in"):
            miron.locate(data_dir)
        assert list((tmp_path / "data").iterdir()) == []
    for _ in range(2):
        folder = miron.locate(None)
        assert folder == tmp_path / "data" / "miron"
        for name in names:
            assert (folder / name).read_text() == f"{name} of the client's cache"
            assert not (folder / name).is_symlink()
            assert commit_of(folder / name) == OLD
        shutil.rmtree(tmp_path / "hub", ignore_errors=True)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["miron"]


def test_a_host_after_the_first_looks_in_its_own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its data cache is empty, and the hub cannot be reached; the hub's client has the files."""
    (tmp_path / "files").mkdir()
    columns = {"prefix": ["a b"], "target": [" c"], "category": ["Facts"]}
    for name in miron.FILES.values():
        pq.write_table(pa.table(columns), tmp_path / "files" / name)
    in_cache(tmp_path / "hub", "dataset", miron.HUB_ID, OLD, tmp_path / "files", main=OLD)
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    scored: list[Any] = []
    evaluate = "miron_jax.evaluation.run.evaluate_checkpoints"
    monkeypatch.setattr(evaluate, lambda config, inputs, **_: scored.append(inputs) or ())
    monkeypatch.setattr("miron_jax.cli.eval.kept_plans", lambda say: None)  # else it reads flags, which nobody parsed
    hosts: Any = SimpleNamespace(check_shared=lambda store: None, first_then_others=lambda name, function: function())
    _score_along(RunConfig("demo", ("miron/en",), steps="latest"), Store(str(tmp_path / "out")), hosts)
    [inputs] = scored
    assert [source.data.commit for source in inputs.sources] == [OLD]


@pytest.mark.parametrize("keeps_metadata", [True, False])
def test_a_lost_file_is_fetched_again_at_the_commit_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_metadata: bool
) -> None:
    """Files that are there stay as they are; without a network the error names the lost file."""
    requested: list[str | None] = []

    def snapshot(hub: str, repo_type: str, revision: str | None, local_dir: Path, allow_patterns: list[str]) -> None:
        requested.append(revision)
        for name in ("a/rows.jsonl", "b.jsonl"):
            path = local_dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"fetch {len(requested)}")
            if keeps_metadata:
                write_metadata(local_dir, name, NEW)

    folder = tmp_path / "suite"

    def fetch() -> None:
        fetch_data_set(Repository("a/b", "v1"), folder, ["*.jsonl"], "suite")

    with monkeypatch.context() as patched:
        patched.setattr("huggingface_hub.snapshot_download", snapshot)
        for lost in ("nothing", "nothing", "a", "nothing"):
            shutil.rmtree(folder / lost, ignore_errors=True)
            fetch()
    assert requested == ["v1", NEW if keeps_metadata else "v1"]
    assert [(folder / name).read_text() for name in ("a/rows.jsonl", "b.jsonl")] == ["fetch 2", "fetch 1"]
    (folder / "b.jsonl").unlink()
    lost = r"suite data: b\.jsonl is neither in .*suite nor .* pass --data_dir=suite=FOLDER"
    with pytest.raises(InputError, match=lost):
        fetch()  # HF_HUB_OFFLINE


def test_only_the_temporary_folder_of_a_killed_fetch_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a fetch which is still alive stays."""
    code = "import os, sys; from pathlib import Path; from miron_jax.files.temporary import temporary_folder\n"
    code += "with temporary_folder(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    assert len(list(tmp_path.glob(".fetch-*"))) == 1

    def download(*_: object, local_dir: Path, **__: object) -> None:
        local_dir.mkdir()
        (local_dir / "rows.jsonl").write_text("whole")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with temporary_folder(tmp_path) as alive:
        assert len(list(tmp_path.glob(".fetch-*"))) == 2
        fetch_data_set(Repository("a/b", None), tmp_path / "suite", ["*.jsonl"], "suite")
        assert list(tmp_path.glob(".fetch-*")) == [alive]
    assert (tmp_path / "suite" / "rows.jsonl").read_text() == "whole"
    assert list(tmp_path.iterdir()) == [tmp_path / "suite"]
