"""The command in this process, as its tests run it, and what it runs on."""

import io
import json
import math
import signal
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from absl import flags

from miron_jax import cli
from miron_jax.runtime.streams import ERRORS
from tests.support.tiny_model import make_model, write_core_data

TASKS = "core/copa,core/arc_easy,core/winograd,core/lambada_openai"


class Ran(NamedTuple):
    status: int
    out: str
    err: str


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """command(...)("eval", "--limit=3") -> exit status and what was printed."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr("sys.argv", ["miron-jax", *arguments])
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        monkeypatch.setattr("miron_jax.runtime.limits.are_set", lambda: False)  # no fork of the tests
        flags.FLAGS.unparse_flags()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return Ran(int(stopped.value.code or 0), captured.out, captured.err)

    return run


def in_process(*arguments: str, encoding: str = "utf-8") -> Ran:
    """The same for fixtures of a module or a session, which have no capsys, and for screens of another encoding."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, ERRORS, newline="", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr("sys.argv", ["miron-jax", *arguments])
        patch.setattr(signal, "signal", lambda *_: None)
        patch.setattr("miron_jax.runtime.limits.are_set", lambda: False)
        flags.FLAGS.unparse_flags()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
    printed = [stream.buffer.getvalue().decode(encoding) for stream in (out, err)]  # type: ignore[attr-defined]
    return Ran(int(stopped.value.code or 0), *printed)


class Place(NamedTuple):
    model: Path
    data: Path


def make_place(folder: Path) -> Place:
    return Place(make_model(folder / "model"), write_core_data(folder / "data"))


def common(place: Place, output: Path, *more: str) -> list[str]:
    return [
        f"--model={place.model}", f"--data_dir={place.data}", f"--output={output}", f"--tasks={TASKS}",
        "--allow_changed_data", "--compilation_cache=", *more,
    ]  # fmt: skip


def run(miron: Any, model: Path, output: Path, *flags: str) -> dict[str, Any]:
    """results.json of an `eval` that ends well."""
    ran = miron("eval", f"--model={model}", f"--output={output}", "--compilation_cache=", *flags)
    assert ran.status == 0, ran.err
    return json.loads((output / "results.json").read_text())


def samples(output: Path, task: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "samples" / f"{task}.jsonl").read_text().splitlines()]


def finite_or_null(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(finite_or_null, value.values()))
    if isinstance(value, list):
        return all(map(finite_or_null, value))
    return not isinstance(value, float) or math.isfinite(value)
