"""Results and samples that are replaced together: what readers see beside a writer, on a disk and in an object store."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from math import isnan, nan
from pathlib import Path

import pytest

from miron_jax.errors import InputError
from miron_jax.files.readers import parse_json
from miron_jax.files.store import Store
from miron_jax.results.document import example_line
from miron_jax.results.records import RunResult
from miron_jax.results.run_folder import Run, RunChanged, read_runs, reading_again
from miron_jax.results.samples import ExampleResult, Programs, ProgramText
from miron_jax.results.whole import replace_results
from tests.support.run_folders import samples_of, write_run

TASK = "core/copa"


class Writer:
    """Writes one of several versions of a run: each has its own limit in results.json, and as many samples."""

    def __init__(self, folder: Path, output: str) -> None:
        [made] = read_runs([str(write_run(folder / "made", {TASK: samples_of([1.0] * 9)}))])
        self.result, self.examples = made.result, [*made.examples(TASK)]
        self.store = Store(output)

    def write(self, version: int) -> RunResult:
        examples: list[ExampleResult] = self.examples[:version]
        content = b"".join(map(example_line, examples))
        result = replace(self.result, config={**self.result.config, "limit": version})
        return replace_results(self.store, "", [(TASK, content)], lambda: result)


@pytest.fixture(params=["disk", "store"])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Writer:
    output = str(tmp_path / "out") if request.param == "disk" else f"memory://whole/{time.time_ns()}"
    return Writer(tmp_path, output)


def version_of(run: Run) -> int:
    """The version that both results and samples have."""
    assert len([*run.examples(TASK)]) == run.result.config["limit"]
    version = run.result.config["limit"]
    assert isinstance(version, int)
    return version


def test_a_reader_beside_a_writer_sees_samples_of_its_results(writer: Writer) -> None:
    """Whatever the two do at once, for as long as the writer needs for 60 versions."""
    writer.write(9)
    is_done, failures, seen = threading.Event(), list[BaseException](), list[int]()

    def read() -> None:
        try:
            while not is_done.is_set():
                seen.append(reading_again(lambda: version_of(read_runs([writer.store.name])[0])))
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        for count in range(60):
            writer.write(1 + count % 9)
            time.sleep(0.005)
    finally:
        is_done.set()
    reader.join()
    assert not failures, failures
    assert len({*seen}) > 3


def test_results_that_are_replaced_while_they_are_read_are_read_again(writer: Writer) -> None:
    writer.write(3)
    later: Iterator[int] = iter([5])

    def read() -> int:
        [run] = read_runs([writer.store.name])
        for version in later:  # between the results and the samples
            writer.write(version)
        return version_of(run)

    assert reading_again(read) == 5
    later = iter([4])
    with pytest.raises(RunChanged, match=r"is not the file that results\.json names .* is damaged or being written"):
        read()


def test_samples_that_are_changed_cut_or_lost_are_named_wherever_they_are(writer: Writer) -> None:
    writer.write(3)
    name = f"samples/{TASK}.jsonl"
    whole = writer.store.get(name)

    def damages() -> list[str]:
        return [*read_runs([writer.store.name])[0].damages()]

    assert damages() == []
    for content in (whole.swapcase(), whole[:-1], b""):
        writer.store.put(name, content)
        [line] = damages()
        assert line.startswith(f"{writer.store.name}/{name} is not the file that results.json names"), line
        with pytest.raises(InputError):
            version_of(read_runs([writer.store.name])[0])
    writer.store.remove(name)
    [line] = damages()
    assert line.startswith(f"{writer.store.name}/{name} is missing"), line
    writer.write(3)
    assert damages() == []


def test_samples_keep_whatever_a_program_answered_and_a_record_says(tmp_path: Path) -> None:
    """Integers of more than 64 bits, lists in lists, a number of a data file that kept its text: each is read as it was."""
    answers: list[object] = [2**80, -(2**70), 0.5]
    for _ in range(300):
        answers = [answers]
    program = ProgramText(text="f = 1", ended="passed", answers=answers)
    meta = parse_json('{"id": 1.50, "other": 123456789012345678901234567890}', of_records=True)
    written = ExampleResult(
        id=0, row=0, answered=Programs(programs=(program,), ceiling="passed"), meta=meta, metrics={"a": nan}
    )
    writer = Writer(tmp_path, str(tmp_path / "out"))
    replace_results(writer.store, "", [(TASK, example_line(written))], lambda: writer.result)
    [run] = read_runs([writer.store.name])
    [example] = run.examples(TASK)
    assert isinstance(example.answered, Programs)
    assert example.answered.programs == (program,)
    assert example.meta == {"id": 1.5, "other": 123456789012345678901234567890}
    assert isnan(example.metrics["a"])
