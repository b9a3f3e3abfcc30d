"""Revisions of the hub's repositories, against a cache on disk: which commit is asked for, and which was read."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from miron_jax.errors import InputError
from miron_jax.files.hub import Repository, commit_of, fetch_data_set, parse_name, revision_of
from miron_jax.tasks import miron
from miron_jax.tasks.eval_uation import suite as eval_uation
from miron_jax.tasks.mera import suite as mera
from tests.mera_records import write_mera
from tests.tiny_model import make_model, write_core_data

OLD, NEW, TOKENIZER = "0" * 39 + "a", "0" * 39 + "b", "0" * 39 + "c"


def test_names_are_taken_apart() -> None:
    assert parse_name("owner/name") == Repository("owner/name", None)
    assert parse_name("name@v1.0") == Repository("name", "v1.0")
    assert parse_name(f"owner/name@{OLD}") == Repository("owner/name", OLD)
    assert parse_name("owner/name@refs/pr/3") == Repository("owner/name", "refs/pr/3")
    for wrong in ("a/b/c", "owner/name@", "@x", "a b", "/x@y", "owner/name@a b"):
        assert parse_name(wrong) is None, wrong
    assert revision_of(Path("@abc")) == "abc"
    assert (revision_of(Path("x@abc")), revision_of(None), revision_of(Path("@"))) == (None, None, None)


def test_commits_are_read_from_where_the_hubs_client_keeps_them(tmp_path: Path) -> None:
    assert commit_of(tmp_path / "models--a--b" / "snapshots" / OLD / "config.json") == OLD
    assert commit_of(tmp_path / "snapshots" / "mine" / "config.json") is None
    told = tmp_path / "data" / ".cache" / "huggingface" / "download" / "x" / "test.jsonl.metadata"
    told.parent.mkdir(parents=True)
    told.write_text(f"{NEW}\netag\n1700000000.0\n")
    assert commit_of(tmp_path / "data" / "x" / "test.jsonl") == NEW
    assert commit_of(tmp_path / "data" / "x" / "other.jsonl") is None
    told.write_bytes(b"\xff\xfe")
    assert commit_of(tmp_path / "data" / "x" / "test.jsonl") is None


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


def test_a_run_names_the_commits_that_it_read(cache: Path, tmp_path: Path) -> None:
    data = write_core_data(tmp_path / "data")
    environment = {**os.environ, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu"}

    def run(*flags: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "miron_jax", "eval", "--tasks=core/copa", f"--data_dir={data}", "--limit=2"]
        command += ["--allow_changed_data", f"--output={tmp_path / 'out'}", *flags]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    weights = []
    for model, commit in (("me/tiny", NEW), ("me/tiny@v1", OLD), (f"me/tiny@{OLD}", OLD)):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        status, told = run(f"--model={model}", "--tokenizer=me/words@main")
        assert status == 0, told
        found = json.loads((tmp_path / "out" / "results.json").read_text())["checkpoint"]
        assert found["commits"] == {"model": commit, "tokenizer": TOKENIZER}
        weights.append(found["weights"])
    assert weights[0] != weights[1] == weights[2]
    shutil.rmtree(tmp_path / "out")
    for flags in (("--model=me/tiny@v9",), ("--model=me/tiny", "--tokenizer=me/words@v9")):
        status, told = run(*flags)
        assert status == 2, told
        assert f"{flags[-1]}: " in told
        assert told.count("\n") == 1
        assert not (tmp_path / "out" / "results.json").exists()


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
    import huggingface_hub

    folder = tmp_path / "suite"

    def download(*_: object, local_dir: Path, **__: object) -> None:
        for other in (local_dir, folder):
            other.mkdir(parents=True)
            (other / "rows.jsonl").write_text(other.name)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    fetch_data_set(Repository("a/b", None), folder, ["*.jsonl"], "suite")
    assert (folder / "rows.jsonl").read_text() == "suite"
    assert list(tmp_path.iterdir()) == [folder]
