"""The last lines of eval: headline, what changed against the run before, where to look."""

import os
from pathlib import Path

from miron_jax.files.store import Store
from miron_jax.report.tables.closing import closing_lines, last_run_beside
from miron_jax.results.run_folder import read_runs
from tests.support.command import common
from tests.support.run_folders import composite, samples_of, write_run


def test_headline_change_and_place(tmp_path: Path) -> None:
    # y: six of nine, all one way: McNemar's 2 / 64 = .031, and by Holm, of three tasks the second, .0625.
    for name, x, y, value in (("old", [1, 0] * 50, [0] * 6 + [1] * 3, 0.5), ("new", [1] * 100, [1] * 9, 1.0)):
        samples = {"own/x": samples_of(x), "own/y": samples_of(y), "own/z": samples_of([1, 0])}
        write_run(tmp_path / name, samples, dict.fromkeys("ABCD", composite(value, {"own/x": 1.0}, 0.1)))
    old, new = read_runs([str(tmp_path / "old"), str(tmp_path / "new")])
    folder = tmp_path / "new"
    assert list(closing_lines(new, old, False)) == [
        "own: A 1.0000 (0.9000 to 1.1000), own: B 1.0000 (0.9000 to 1.1000), own: C 1.0000 (0.9000 to 1.1000) and 1 more",
        # Bonett and Price, 50 one way of 100: center 50 / 102, half 1.96 sqrt((52 / 102 - (50 / 102)²) / 102)
        "against old: own: A +0.5000 (paired, +0.3894 to +0.5909), own: B +0.5000 (paired, +0.3894 to +0.5909), "
        "own: C +0.5000 (paired, +0.3894 to +0.5909) and 1 more",
        "1 of 3 tasks changed their main metric by more than chance (Holm, 0.05): own/x accuracy +0.5000",
        f"3 tasks, 111 examples in 9.0 s; self-check: 8 tokens within 1.0e-06 nats; numbers: {folder}/results.json",
        f"look at it: miron-jax report {folder} --html={folder}/report.html",
    ]
    (spaced,) = read_runs([str(write_run(tmp_path / "a run", {"own/w": samples_of([1, 0])}))])
    *_, look = closing_lines(spaced, None, False)
    assert look == f"look at it: miron-jax report '{spaced.folder}' --html='{spaced.folder}/report.html'"
    headline, *rest = closing_lines(spaced, old, False)
    assert headline == "own/w accuracy 0.5000 (0.0945 to 0.9055)"  # Wilson's of 1 of 2
    assert len(rest) == 2, "a run beside it that has other tasks is passed over"
    assert "have no task in common" in list(closing_lines(spaced, old, True))[1]


def test_the_last_run_beside_is_the_newest_other_folder_of_this_model(tmp_path: Path) -> None:
    models = {"a": "hub/m/step_100", "b": "hub/m/step_200", "c": "hub/m/step_100/", "demo": "demo", "m2": "hub/m-135"}
    for age, name in ((300, "a"), (100, "b"), (200, "c"), (50, "demo"), (60, "m2")):
        config = {"model": models[name]}
        path = write_run(tmp_path / name, {"own/x": samples_of([1, 0])}, config=config) / "results.json"
        seconds = path.stat().st_mtime - age
        os.utime(path, (seconds, seconds))
    (tmp_path / "notes").mkdir()
    for name, model, expected in (
        ("new", "hub/m/step_300", "b"),
        ("b", "hub/m/step_200", "c"),
        ("new", "hub/m-135", "m2"),
        ("new", "hub/m-360", None),
        ("a/new", "demo", None),
    ):
        run = last_run_beside(Store(str(tmp_path / name)), model)
        assert (run and run.label) == expected, (name, model)


def test_eval_ends_with_them(miron, place, tmp_path: Path) -> None:
    ran = miron("eval", *common(place, tmp_path / "one", "--limit=3", f"--against={tmp_path / 'nowhere'}"))
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "nowhere is not there: name" in ran.err
    assert not (tmp_path / "one" / "results.json").exists()
    one, two = (miron("eval", *common(place, tmp_path / name, "--limit=3")) for name in ("one", "two"))
    assert (one.status, two.status, "against" in one.out) == (0, 0, False), one.err + two.err
    *_, change, place_of_numbers, look = two.out.splitlines()
    assert change.startswith("against one: 0 of 4 tasks changed their main metric by more than chance")
    assert place_of_numbers.startswith("4 tasks, 12 examples in ")
    assert look.startswith(f"look at it: miron-jax report {tmp_path / 'two'} --html=")
