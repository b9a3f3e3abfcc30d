"""An output folder that is an object store's, a disk that is full: whole objects, one sentence, nothing lost."""

import errno
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import evaluate_checkpoints
from miron_jax.evaluation.run_result import finished_run
from miron_jax.files.store import Store
from miron_jax.report.figures.curves import write_curves
from miron_jax.results.document import run_json
from miron_jax.results.output import check_output, leave_smaller_run, stored_result
from miron_jax.results.writing import write_finished, write_top
from miron_jax.runtime.progress import Lines
from miron_jax.runtime.timeline import Timeline
from tests.support.command import Place
from tests.support.faults import Disk
from tests.support.kept_runs import parts_in, same_results
from tests.support.tiny_model import make_model, write_core_data


@pytest.fixture
def only_puts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store as object stores are: no rename, no append."""

    for name in ("mv", "rename", "move", "mv_file"):
        monkeypatch.setattr(MemoryFileSystem, name, None, raising=False)
    opened = MemoryFileSystem._open

    def without_append(self: Any, path: str, mode: str = "rb", **options: Any) -> Any:
        assert mode in ("rb", "wb"), mode
        return opened(self, path, mode, **options)

    monkeypatch.setattr(MemoryFileSystem, "_open", without_append)


@pytest.mark.slow
@pytest.mark.usefixtures("only_puts")
def test_results_samples_and_journal_go_to_an_object_store(tmp_path: Path) -> None:
    """A training run of two steps, then again: the second run finds scores and texts there, and the same results."""
    for step in (1, 2):
        make_model(tmp_path / "run" / str(step), seed=step)
    data, output = write_core_data(tmp_path / "data"), f"memory://scores/{time.time_ns()}"
    config = RunConfig(
        str(tmp_path / "run"), ("core/copa", "miron-gen/en"), data_dir=(("", str(data)),), output=output,
        allow_changed_data=True, items_per_category=2,
    )  # fmt: skip
    lines: list[str] = []

    def run() -> dict[int, dict[str, Any]]:
        store, inputs, results, timeline = check_output(config), find_inputs(config), {}, Timeline()
        for step, outcome in evaluate_checkpoints(config, inputs, Lines(lines.append), store=store):
            assert step is not None
            results[step] = write_finished(config, finished_run(config, outcome, step), timeline.lap)
        write_top(config, results, timeline.total)
        write_curves(config, results)
        return {step: run_json(result) for step, result in results.items()}

    first = run()
    store = Store(output)
    assert store.names() == ["curves.svg", "journal", "results.json", "samples", "step_1", "step_2"]
    top = json.loads(store.get("results.json"))
    assert list(top["steps"]) == ["1", "2"]
    samples = store.get("samples/core/copa.jsonl").decode().splitlines()
    assert len(samples) == top["tasks"]["core/copa"]["n"] == 14
    assert not any("there already" in line for line in lines)
    again = run()
    assert sum("there already" in line for line in lines) == 2
    for step in (1, 2):
        same_results(again[step], first[step])
        assert again[step]["speed"]["computed_tokens"] == 0
    inputs = find_inputs(config)
    fingerprint = first[2]["checkpoint"]["fingerprint"]
    data = {source.task.name: source.data for source in inputs.sources}
    assert stored_result(config, "step_2", fingerprint, data, None) is not None
    assert stored_result(config, "step_2", "another", data, None) is None
    labelled = {**data, "core/copa": data["core/copa"]._replace(labels="a" * 40)}
    assert stored_result(config, "step_2", fingerprint, labelled, None) is None, "people have answered since"
    both = dict(data)
    del data["core/copa"]
    assert stored_result(config, "step_2", fingerprint, data, None) is None
    with pytest.raises(InputError, match="holds another run: its limit is None, now it is 3"):
        check_output(replace(config, limit=3))
    for name in ("results.json", "step_2/results.json"):  # as a run of two examples leaves them
        smaller = json.loads(store.get(name))
        store.put(name, json.dumps({**smaller, "config": {**smaller["config"], "limit": 2}}).encode())
    store.put("requests/x/requests.jsonl", b"of two examples")
    with pytest.raises(InputError, match="its limit is 2, now it is None, and it draws: name another folder"):
        check_output(config, lambda limit: "it draws")
    check_output(config, {2: None}.__getitem__)
    assert stored_result(config, "step_2", fingerprint, both, None) is None
    leave_smaller_run(config, store)
    assert {name: store.has(f"{name}results.json") for name in ("", "step_1/", "step_2/")} == {
        "": False, "step_1/": True, "step_2/": False
    }  # fmt: skip
    assert not store.has("requests/x/requests.jsonl")
    same_results(run()[2], first[2])


@pytest.mark.slow
def test_a_full_disk_gives_one_sentence_and_loses_nothing(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, miron: Any
) -> None:
    monkeypatch.setattr("miron_jax.runtime.journal.FLUSH_SECONDS", 0)
    output = tmp_path / "out"
    flags = [f"--model={place.model}", f"--data_dir={place.data}", "--tasks=core/copa", "--allow_changed_data"]
    flags += ["--token_budget=64", "--compilation_cache=", f"--output={output}"]

    def sentence_when_full(kind: str, after: int) -> str:
        """What a run says whose disk is full in the middle of a file in the folder `kind`, after some such files."""
        left = after

        class Full(Disk):
            def _call(self, name: str, function: Any, *arguments: Any, **options: Any) -> Any:
                nonlocal left
                if name == "write" and f"/{kind}/" in str(self._open[arguments[0]]):
                    left -= 1
                    if left < 0:  # and so it stays
                        self.at = len(self.calls) + 1
                return super()._call(name, function, *arguments, **options)

        with Full(output):
            ran = miron("eval", *flags)
        assert ran.status == 2, ran.err
        return ran.err.splitlines()[-1]

    said = sentence_when_full("journal", 1)
    assert f"{output}/journal" in said, said
    assert "No space left on device: free space there, or name another --output" in said
    assert len(parts_in(output)) == 1, "what was written stays"
    assert [path.name for path in output.iterdir()] == ["journal"]
    assert miron("eval", *flags).status == 0
    before = (output / "results.json").read_text()
    samples = (output / "samples" / "core" / "copa.jsonl").read_text()
    assert "No space left on device" in sentence_when_full("samples", 0)
    assert (output / "results.json").read_text() == before
    assert (output / "samples" / "core" / "copa.jsonl").read_text() == samples
    assert sorted(path.name for path in output.iterdir()) == ["journal", "results.json", "samples"]


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"--output=nosuch://x: .*name a local folder"):
        check_output(RunConfig("demo", ("core",), output="nosuch://x"))

    def read_only(**_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    with pytest.raises(InputError, match=r"cannot be written to \(Read-only file system\): name another folder"):
        check_output(RunConfig("demo", ("core",), output=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()
