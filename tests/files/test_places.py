"""Names of places: what they mean, and what of them may be passed on."""

from pathlib import Path

import pytest

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.files.places import data_cache, home_cache, is_url, local_path, place, public
from miron_jax.files.store import Store
from miron_jax.results.document import config_json
from miron_jax.results.output import _identity, _resolved, check_output

HOME = Path.home()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("s3://KEY:SECRET@bucket/scores", "s3://bucket/scores"),
        ("https://user:token@host.org/x?sig=SECRET&y=1#SECRET", "https://host.org/x"),
        ("simplecache::s3://KEY:SECRET@bucket/x", "simplecache::s3://bucket/x"),
        ("https://host/x?a=https://u:SECRET@y", "https://host/x"),
        ("gs://bucket/a@b/c", "gs://bucket/a@b/c"),
        (f"{HOME}/models/a", "~/models/a"),
        (str(HOME), "~"),
        (f"{HOME}beside/a", f"{HOME}beside/a"),
        ("/data/a", "/data/a"),
        ("org/name", "org/name"),
        ("pkg.module:factory", "pkg.module:factory"),
    ],
)
def test_public_names_hold_no_secret(name: str, shown: str):
    assert public(name) == shown
    assert public(shown) == shown


def test_results_hold_no_secret_and_a_run_is_still_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    config = RunConfig(
        model=f"{tmp_path}/model", tasks=("core",), output="s3://KEY:SECRET@bucket/x",
        checkpoint="https://u:SECRET@host/x?sig=SECRET", data_dir=(("core", f"{tmp_path}/data"),),
    )  # fmt: skip
    entry = config_json(config)
    assert Store("memory://u:SECRET@x/y").name == "memory://x/y"
    assert "SECRET" not in str(entry)
    assert str(tmp_path) not in str(entry)
    assert (entry["model"], entry["data_dir"]) == ("~/model", [["core", "~/data"]])
    same = RunConfig(**{"model": str(tmp_path / "model" / ".." / "model"), "tasks": ("core",)})
    assert _resolved(_identity(same)["model"]) == _resolved(entry["model"])


def test_file_urls_are_local(tmp_path: Path):
    assert local_path(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    assert not is_url(f"file://{tmp_path}")
    assert place("~/x") == str(HOME / "x")
    assert place("gs://b/x") == "gs://b/x"
    config = RunConfig(model="demo", tasks=("core",), output=place(f"file://{tmp_path}/new"))
    check_output(config).put("x", b"1")
    assert (tmp_path / "new" / "x").read_bytes() == b"1"


def test_names_that_no_path_can_have_are_refused():
    for name, message in (("~nosuchuser/x", "there is no user 'nosuchuser'"), ("a\0b", "null character")):
        with pytest.raises(InputError, match=message):
            place(name)


def test_a_user_without_a_home_is_told_where_data_would_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an unknown uid of a container."""
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("MIRON_JAX_DATA", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # KeyError, as for any unknown user
    assert home_cache() is None
    assert public("/data/a") == "/data/a"
    with pytest.raises(InputError, match="no home folder, in which data is kept: set HOME, or MIRON_JAX_DATA"):
        data_cache("core")
    with pytest.raises(InputError, match="no user ''"):
        local_path("~/a")
    monkeypatch.setenv("MIRON_JAX_DATA", "/data")
    assert data_cache("core") == Path("/data/core")
