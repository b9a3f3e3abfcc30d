"""A small run of two steps whose disk fails, whose process is killed or whose machine loses power at a call of the writer:
the next command ends as if nothing had been.

The engine scores once; then its outcomes and its journal's entries are replayed, and all else is the command's own.
"""

import errno
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from miron_jax.errors import InputError
from miron_jax.evaluation import run as engine
from miron_jax.files.store import LOCK, Lock, Store
from miron_jax.results.document import example_line
from miron_jax.results.run_folder import read_runs
from miron_jax.runtime.journal import FOLDER, Entries, Journal
from tests.support.command import Ran, in_process
from tests.support.faults import Disk, Tree, plant, tree_of
from tests.support.tiny_model import make_model, write_core_data


class Small(NamedTuple):
    """A finished run of two steps, and the flags that made it."""

    output: Path
    flags: tuple[str, ...]
    run: Path  # of the checkpoints

    def eval(self, output: Path, *more: str) -> Ran:
        return in_process("eval", *self.flags, f"--output={output}", "--quiet", *more)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    folder = tmp_path_factory.mktemp("small")
    for step in (1, 2):
        make_model(folder / "run" / str(step), layers=1, seed=step)
    data, output = write_core_data(folder / "data"), folder / "out"
    flags = (
        f"--model={folder / 'run'}", f"--data_dir={data}", "--tasks=core/copa", "--limit=2", "--allow_changed_data",
        "--compilation_cache=",
    )  # fmt: skip
    made, scored = Small(output, flags, folder / "run"), list[tuple[int, Any]]()
    score = engine.evaluate_checkpoints

    def recorded(*arguments: Any) -> Iterator[tuple[int | None, Any]]:
        for step, outcome in score(*arguments):
            assert step is not None
            scored.append((step, outcome))
            yield step, outcome

    with pytest.MonkeyPatch.context() as patch:
        # what takes most of a command's time and writes nothing else; the picture has random names in it
        draw = "miron_jax.report.figures.curves.draw_curves"
        patch.setattr(draw, lambda steps, sink: sink.write(f"curves of {sorted(steps)}".encode()))
        patch.setattr("miron_jax.report.tables.closing.last_run_beside", lambda *_: None)
        patch.setattr("miron_jax.evaluation.run_result.version", cache(version))
        patch.setattr(engine, "evaluate_checkpoints", recorded)
        ran = made.eval(output)
        assert ran.status == 0, ran.err
        entries = {key.name: entries_in(output, key.name) for key in sorted((output / FOLDER).iterdir())}
        assert len(entries) == len(scored) == 2

        def replayed(
            config: Any, inputs: Any, progress: Any, is_scored: Callable[..., bool], store: Store, *_: Any
        ) -> Iterator[tuple[int | None, Any]]:
            for (step, outcome), (key, each) in zip(scored, entries.items(), strict=True):
                if not (made.run / str(step)).exists() or is_scored(outcome.checkpoint, None):
                    continue
                with Journal(store, key, "0") as journal:
                    if not journal.known([digest.tobytes() for digest in each.digests]).all():
                        journal.add(each)
                yield step, outcome

        patch.setattr(engine, "evaluate_checkpoints", replayed)
        yield made


def entries_in(output: Path, key: str) -> Entries:
    with Journal(Store(str(output)), key, "0") as journal:
        [entries] = journal._segments
    return entries


def contents(folder: Path) -> dict[str, Any]:
    """All files but the journal's names; results without what hangs on the clock and the folder."""
    files: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if name.startswith(f"{FOLDER}/") and not name.endswith(".partial"):
            continue
        files[name] = path.read_bytes()
        if path.name == "results.json":
            results = files[name] = json.loads(files[name])
            for name in ("finished", "wall_seconds", "timeline", "in_threads"):
                results["speed"].pop(name)
            results["config"].pop("output")
    return files


def read_whole(output: Path) -> set[str]:
    """Reads every result that is there with its samples, and returns the versions that wrote them."""
    versions = set[str]()
    for folder in (output, output / "step_1", output / "step_2"):
        [run] = read_runs([str(folder)])
        versions.add(run.result.environment.packages["miron-jax"])
        assert len([*run.examples("core/copa")]) == 2
    return versions


def earlier(small: Small, output: Path) -> None:
    """The run as an earlier version left it, with other samples: all of it is replaced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("miron_jax.evaluation.run_result.__version__", "0.0.1")
        patch.setattr(
            "miron_jax.results.document.strict_json", lambda value, indent=None: json.dumps(value, indent=indent)
        )
        patch.setattr(
            "miron_jax.results.writing.example_line", lambda example: example_line(replace(example, reason="as it was"))
        )
        ran = small.eval(output)
    assert ran.status == 0, ran.err
    assert read_whole(output) == {"0.0.1"}


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk that syncs and removes for nothing, where there is one."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


class Cases:
    """What one command leaves when a call fails, or a kill or a power cut comes at some moment of it; and the next command,
    which runs once for states that are equal but for names and times."""

    def __init__(self, small: Small, folder: Path, is_fresh: bool) -> None:
        self.small, self.output = small, folder / "out"
        self.before: Tree = {}
        if not is_fresh:
            earlier(small, self.output)
            self.before = tree_of(self.output)
        self.expected = contents(small.output)
        self._mended = set[frozenset[tuple[str, bytes | None]]]()

    def after_cuts(self) -> dict[str, Tree]:
        """What kills and power cuts leave, at each moment at which that may differ."""
        plant(self.before, self.output)
        trees = dict[str, Tree]()
        with Disk(self.output) as disk:

            def look() -> None:
                if disk.is_before_change:
                    at, rng = f"{len(disk.calls)}: {disk.calls[-1]}", random.Random(len(disk.calls))
                    trees[f"kill at {at}"] = disk.after_kill()
                    for share in (0.0, 0.5, 1.0):
                        trees[f"power cut at {at}, of what was not synced {share}"] = disk.after_power_cut(rng, share)

            disk.when = look
            assert self.small.eval(self.output).status == 0
        for share in (0.0, 0.5, 1.0):
            trees[f"power cut after the end, {share}"] = tree = disk.after_power_cut(random.Random(0), share)
            plant(tree, self.output)
            lasting = contents(self.output)
            assert {name: lasting[name] for name in self.expected} == self.expected, (
                "all that was said to be written lasts"
            )
        return trees

    def after_failure(self, at: int) -> Tree | None:
        """What a command leaves whose call fails; None if it has fewer calls."""
        plant(self.before, self.output)
        error = random.Random(at).choice((errno.ENOSPC, errno.EIO, errno.EACCES, errno.EDQUOT, errno.ESTALE))
        with Disk(self.output, at, error) as disk:
            ran = self.small.eval(self.output)
        if len(disk.calls) < at:
            assert ran.status == 0, ran.err
            return None
        # 0: nothing hung on the call, such as a file that is removed when all is written
        assert ran.status in (0, 2), (disk.calls[at - 1], ran.err)
        assert "Traceback" not in ran.err, (disk.calls[at - 1], ran.err)
        return tree_of(self.output)

    def check(self, where: str, tree: Tree) -> None:
        """Earlier results are whole in what is left, and the next command gives what an undisturbed one gives."""
        state = frozenset((NAME.sub("", name), same(content)) for name, content in tree.items())
        if state in self._mended:
            return
        self._mended.add(state)
        plant(tree, self.output)
        if self.before:
            assert read_whole(self.output) <= {"0.0.1", "0.2.0"}, where
        again = self.small.eval(self.output)
        assert again.status == 0, (where, again.err)
        assert contents(self.output) == self.expected, where


# of temporary files, locks and segments of the journal
NAME = re.compile(r"[0-9a-f]{32}|(?<=journal/.{33})0-[0-9a-f]+")
TIMES = re.compile(rb'[0-9a-f]{32}|"finished": "[^"]*"|"wall_seconds": [0-9.]+|"(timeline|in_threads)": \{[^}]*\}')


def same(content: bytes | None) -> bytes | None:
    return None if content is None else TIMES.sub(b"", content)


@pytest.mark.parametrize("is_fresh", [True, False], ids=["fresh", "replaced"])
def test_after_a_fault_at_some_call_the_next_command_gives_the_undisturbed_run(
    is_fresh: bool, small: Small, in_memory: Path
) -> None:
    cases, rng = Cases(small, in_memory, is_fresh), random.Random(is_fresh)
    trees = cases.after_cuts()
    for where in rng.sample([*trees], 6):
        cases.check(where, trees[where])
    for at in rng.sample(range(1, len(trees) // 4), 3):
        tree = cases.after_failure(at)
        assert tree is not None
        cases.check(f"failure at {at}", tree)


@pytest.mark.slow
@pytest.mark.parametrize("is_fresh", [True, False], ids=["fresh", "replaced"])
def test_after_a_fault_at_any_call_the_next_command_gives_the_undisturbed_run(
    is_fresh: bool, small: Small, in_memory: Path
) -> None:
    cases, at = Cases(small, in_memory, is_fresh), 1
    trees = cases.after_cuts()
    assert len(trees) > 240
    for where, tree in trees.items():
        cases.check(where, tree)
    while (tree := cases.after_failure(at)) is not None:
        cases.check(f"failure at {at}", tree)
        at += 1
    assert at > 100
    print(f"{len(trees)} cuts, {at - 1} failures, {len(cases._mended)} states")


def test_readers_see_whole_results_at_every_call(small: Small, tmp_path: Path) -> None:
    """Beside a run that replaces all results: each folder's are the former or the new ones, with their own samples."""
    output, seen = tmp_path / "out", set[str]()
    earlier(small, output)
    with Disk(output) as disk:
        disk.when = lambda: seen.update(read_whole(output))
        assert small.eval(output).status == 0
    assert seen == {"0.0.1", "0.2.0"}
    assert contents(output) == contents(small.output)


def test_damaged_files_are_named_and_written_again(small: Small, tmp_path: Path) -> None:
    """Empty, cut or zeroed results, samples that are lost or cut; changed ones are found by --verify."""
    output = tmp_path / "out"
    shutil.copytree(small.output, output)

    def said_of(name: str, content: bytes | None) -> str:
        """What the next command says of such a file, before it has mended it."""
        path = output / name
        path.unlink() if content is None else path.write_bytes(content)
        ran = small.eval(output)
        assert ran.status == 0, ran.err
        assert contents(output) == contents(small.output), name
        return ran.err

    for name in ("results.json", "step_1/results.json"):
        whole = (output / name).read_bytes()
        for content in (b"", whole[: len(whole) // 2], bytes(100)):
            assert f"{output}/{name} is damaged: it is written again" in said_of(name, content)
    for name in ("samples/core/copa.jsonl", "step_1/samples/core/copa.jsonl"):
        whole = (output / name).read_bytes()
        assert f"{name} has 5 bytes, expected {len(whole)}: it is written again" in said_of(name, whole[:5])
        assert f"{name} is missing: it is written again" in said_of(name, None)
    last = (output / "step_2/samples/core/copa.jsonl").read_bytes()
    said = said_of("step_2/samples/core/copa.jsonl", last.swapcase())
    assert "step_2/samples/core/copa.jsonl is not the file that results.json names: it is written again" in said
    assert "samples" not in small.eval(output).err

    changed = output / "step_1/samples/core/copa.jsonl"
    changed.write_bytes(changed.read_bytes().swapcase())
    verified = in_process("report", str(output), "--verify")
    assert (verified.status, "1 sample files are not whole" in verified.err) == (2, True), verified.err
    assert "step_1/samples/core/copa.jsonl is not the file that results.json names" in verified.err
    whole = in_process("report", str(small.output), "--verify")
    assert (whole.status, whole.out.strip()) == (0, "3 sample files are as results.json says"), whole.err

    # results.json of something else, beside which no run has written anything
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "results.json").write_bytes(b"{")
    assert "cannot be read" in small.eval(tmp_path / "other").err
    assert (tmp_path / "other" / "results.json").read_bytes() == b"{"


def test_a_run_that_an_earlier_version_was_replacing_is_finished(small: Small, tmp_path: Path) -> None:
    """It had removed results.json, then moved the samples; the results lay whole in .partial."""
    for moved in (False, True):
        output = tmp_path / str(moved)
        shutil.copytree(small.output, output)
        folder = output / "step_1"
        results = json.loads((folder / "results.json").read_text())
        del results["samples"]
        (folder / ".partial").mkdir()
        (folder / ".partial" / "results.json").write_text(json.dumps(results))
        (folder / "results.json").unlink()
        if not moved:
            (folder / "samples").rename(folder / ".partial" / "samples")
        (folder / ".1-2.npz.7.partial").write_bytes(b"half")
        shutil.move(small.run / "1", tmp_path / "dropped")  # the trainer keeps the last step alone
        try:
            ran = small.eval(output)
        finally:
            shutil.move(tmp_path / "dropped", small.run / "1")
        assert ran.status == 0, ran.err
        assert "the results that a killed run had written are put in their place" in ran.err
        assert [*json.loads((output / "results.json").read_text())["steps"]] == ["1", "2"]
        assert (output / "curves.svg").read_text() == "curves of [1, 2]"
        assert not [*output.rglob("*.partial")]
        assert json.loads((folder / "results.json").read_text()) == results


def test_the_folder_is_looked_at_again_once_its_lock_is_held(small: Small, tmp_path: Path) -> None:
    """Another run with other flags ends while this one waits for the lock."""
    output = tmp_path / "out"
    enter = Lock.__enter__

    def late(lock: Lock) -> Lock:
        if not (output / "results.json").exists():
            shutil.copytree(small.output, output, dirs_exist_ok=True)
        return enter(lock)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lock, "__enter__", late)
        ran = small.eval(output, "--limit=1")
    assert ran.status == 2
    assert "holds another run: its limit is 2, now it is 1" in ran.err
    assert contents(output) == contents(small.output)


def test_a_folder_that_was_removed_and_made_again_belongs_to_whoever_locks_it(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "out"))
    with Lock(store) as lock:
        assert not lock.renew()
        shutil.rmtree(store.root)
        assert lock.renew(), "nobody else is there"
        shutil.rmtree(store.root)
        with Lock(store):
            store.put("x", b"of another run")
            with pytest.raises(InputError, match="is being written by another run"):
                lock.renew()
    assert store.names() == ["x"]
    with Lock(store):  # which ends without a look
        shutil.rmtree(store.root)
        other = Lock(store)
    assert store.has(LOCK), "the lock of the other run stays"
    other.__exit__()


@pytest.mark.parametrize("is_taken", [False, True])
def test_an_output_that_is_removed_in_the_middle_of_a_run(is_taken: bool, small: Small, tmp_path: Path) -> None:
    """The run goes on in a new folder, and the next command completes it; another run's folder is left alone."""
    output, score, others = tmp_path / "out", engine.evaluate_checkpoints, list[Lock]()

    def removing(*arguments: Any) -> Iterator[tuple[int | None, Any]]:
        for step, outcome in score(*arguments):
            if step == 2:
                shutil.rmtree(output)
                if is_taken:
                    others.append(Lock(Store(str(output))))
                    (output / "results.json").write_text("of another run")
            yield step, outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "evaluate_checkpoints", removing)
        ran = small.eval(output)
    if is_taken:
        assert ran.status == 2
        assert "is being written by another run" in ran.err
        assert {path.name for path in output.iterdir()} == {LOCK, "results.json"}
        assert (output / "results.json").read_text() == "of another run"
        others[0].__exit__()
        return
    assert ran.status == 0, ran.err
    assert (output / "step_2" / "results.json").is_file()
    again = small.eval(output)
    assert again.status == 0, again.err
    assert contents(output) == contents(small.output)
