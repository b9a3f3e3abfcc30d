"""`verify --reference`: a run beside stored numbers of the same model, and the page of them."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from miron_jax.report.compare import reference
from miron_jax.report.compare.reference import Reference, entry_of, references, rows_of
from miron_jax.results.run_folder import Run, read_runs
from tests.support.run_folders import changed, composite, samples_of, write_run
from tools.reference_numbers import PAGE, page

RIGHT = [1, 0, 1, 1, 0, 0, 1, 0, 1, 1]
BITS = [0.5 + i / 10 for i in range(10)]
COPA = {"core/copa": samples_of(RIGHT, BITS)}
BOTH = {**COPA, "core/piqa": samples_of(RIGHT, BITS)}
# d value / d accuracy of each task: an example moves it by .5 / 10
CORE = {"CORE-18": composite(0.2, dict.fromkeys(BOTH, 0.5), complete=True)}


class Verified(NamedTuple):
    """What the command printed, and what is in its --json."""

    status: int
    out: str
    err: str
    unlike: str
    verdicts: dict[str, str]


@pytest.fixture
def verified(tmp_path: Path, miron: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Verified]:
    """Of a run against the numbers of BOTH: what was printed, and the verdicts in --json."""
    run = write_run(tmp_path / "tiny", BOTH, CORE)
    table = {"tiny": entry_of(read_runs([str(run)])[0], "eval"), "never": Reference("miron-jax eval --model=it")}
    file = tmp_path / "references.json"
    file.write_text(json.dumps({name: asdict(each) for name, each in table.items()}, allow_nan=False))
    monkeypatch.setattr(reference, "FILE", file)

    def verified(folder: Path, *more: str) -> Verified:
        path = folder.parent / "verified.json"
        ran = miron("verify", f"--output={folder}", f"--json={path}", *(more or ["--reference=tiny"]))
        if path.exists():
            document = json.loads(path.read_text())
            path.unlink()
            verdicts = {f"{row['task']} {row['metric']}": row["verdict"] for row in document["rows"]}
            return Verified(ran.status, ran.out, ran.err, document["unlike"], verdicts)
        return Verified(ran.status, ran.out, ran.err, "", {})

    return verified


def test_a_fresh_run_is_the_same(verified: Callable[..., Verified], tmp_path: Path) -> None:
    """One flip of ten answers, a mean within .002, one example of a composite; its folder's name is its weights' hash."""
    near = {**COPA, "core/piqa": samples_of([0, *RIGHT[1:]], [BITS[0] + 0.019, *BITS[1:]])}
    for samples, value in ((BOTH, 0.2), (near, 0.25), ({**BOTH, "core/more": COPA["core/copa"]}, 0.15)):
        run = write_run(tmp_path / "again" / "tiny", samples, {"CORE-18": composite(value, dict.fromkeys(BOTH, 0.5))})
        ran = verified(run)
        assert ran.status == 0, ran.err
        assert [*ran.verdicts.values()] == ["same"] * 5
        assert "the same weights and dtype; on cpu" in ran.out


def test_what_differs_is_said(verified: Callable[..., Verified], tmp_path: Path) -> None:
    piqa, copa = "core/piqa accuracy", "core/copa accuracy"
    for samples, name, verdict in (
        ({**COPA, "core/piqa": samples_of([0, 0, 0, *RIGHT[3:]], BITS)}, piqa, "DIFFERS"),
        ({**COPA, "core/piqa": samples_of(RIGHT, [BITS[0] + 0.021, *BITS[1:]])}, "core/piqa bits_per_byte", "DIFFERS"),
        ({**COPA, "core/piqa": samples_of(RIGHT[:9], BITS)}, piqa, "9 examples, not 10"),
        ({**COPA, "core/piqa": samples_of(RIGHT, BITS, prompt_sha256=["0"] * 10)}, piqa, "other requests"),
        ({**COPA, "core/piqa": samples_of(RIGHT, BITS, prompt_sha256=[""] * 10)}, piqa, "requests without hashes"),
        ({**COPA, "core/piqa": samples_of(RIGHT, BITS, row=range(1, 11))}, piqa, "other requests"),
        ({**COPA, "core/piqa": samples_of(RIGHT, [float("nan")] * 10)}, "core/piqa bits_per_byte", "no value"),
        ({**COPA, "core/piqa": samples_of(RIGHT)}, "core/piqa bits_per_byte", "no value"),
        (COPA, piqa, "not scored"),
    ):
        ran = verified(write_run(tmp_path / "other" / "tiny", samples, CORE))
        assert (ran.status, ran.verdicts[name], ran.verdicts[copa]) == (1, verdict, "same"), ran.err
        assert f"{name} ({verdict})" in ran.err
        assert "compare data and versions" in ran.err
    for value, weights, verdict in (
        (0.28, dict.fromkeys(BOTH, 0.5), "DIFFERS"),  # an example and a half moves it by .5 * 1.5 / 10 = .075
        (None, dict.fromkeys(BOTH, 0.5), "no value"),
        (0.2, {"core/copa": 0.5, "core/new": 0.5}, "other tasks"),
    ):
        ran = verified(write_run(tmp_path / "other" / "tiny", BOTH, {"CORE-18": composite(value, weights)}))
        assert (ran.status, ran.verdicts["core CORE-18"]) == (1, verdict), ran.err
    assert verified(write_run(tmp_path / "other" / "tiny", BOTH)).verdicts["core CORE-18"] == "no value"


def test_other_weights_and_dtype_are_said(verified: Callable[..., Verified], tmp_path: Path) -> None:
    """They are no verdict of themselves, and the reason of one.  Weights in another dtype have another fingerprint."""
    for samples, status in ((BOTH, 0), ({**COPA, "core/piqa": samples_of([0] * 10, BITS)}, 1)):
        run = write_run(tmp_path / "instruct", samples, CORE)
        ran = verified(run)
        assert (ran.status, ran.unlike) == (status, "other weights")
        assert "other weights; on cpu" in ran.out
        with changed(run) as results:
            results["config"]["dtype"] = "bfloat16"
        ran = verified(run)
        assert (ran.status, ran.unlike) == (status, "bfloat16, not float32")
    assert "instruct differs from tiny in core/piqa accuracy (DIFFERS): it is of bfloat16, not float32 (" in ran.err


def test_mirons_two_are_percentages(tmp_path: Path) -> None:
    """Of ten examples one moves the Levenshtein Score by 10 at most; Target Confidence may move by 0.2."""

    def run_of(levs: float, confidence: float) -> Run:
        samples = samples_of(RIGHT)
        for sample in samples:
            sample["metrics"] |= {"lev_score": 40 + levs, "target_confidence": 20 + confidence}
            sample["metrics"]["lev_score"] += sample["id"] % 2  # without a spread there is no interval
            sample["metrics"]["target_confidence"] += sample["id"] % 2
        return read_runs([str(write_run(tmp_path / "tiny", {"miron/en": samples}))])[0]

    entry = entry_of(run_of(0, 0), "eval")
    for levs, confidence, verdicts in ((10, 0.19, ["same"] * 3), (16, -0.21, ["same", "DIFFERS", "DIFFERS"])):
        rows = {row.metric: row.verdict for row in rows_of(entry, run_of(levs, confidence))}
        assert [rows[name] for name in ("accuracy", "lev_score", "target_confidence")] == verdicts


def test_bad_input_is_one_sentence(verified: Callable[..., Verified], tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", BOTH, CORE)
    bare = write_run(tmp_path / "bare", BOTH, CORE)
    (bare / "samples" / "core" / "piqa.jsonl").unlink()
    for folder, flags, sentence in (
        (run, ["--reference=tinny"], "--reference=tinny: there are no such numbers, expected tiny, never"),
        (run, ["--reference=never"], "was not run here, and the command to run it is miron-jax eval --model=it"),
        (run, ["--reference=tiny", "--model=demo"], "leave out --model"),
        (run, ["--model=demo"], "--output is the run that --reference compares: name --reference too"),
        (bare, [], "piqa.jsonl is missing: copy the whole folder"),
        (tmp_path / "absent", [], "absent is not there: name the --output folder of a finished eval"),
    ):
        ran = verified(folder, *flags)
        assert (ran.status, sentence in ran.err, ran.verdicts) == (2, True, {}), ran.err


def test_numbers_without_a_value_are_no_reference(tmp_path: Path) -> None:
    """Nor are composites that lack tasks, or of another metric than their tasks' main one."""
    levels = composite(0.3, {}, metric="lev_score", complete=True)
    composites = {**CORE, "none": composite(None, {}), "levels": levels, "partial": composite(0.2, {}, complete=False)}
    run = write_run(tmp_path / "tiny", {"core/copa": samples_of(RIGHT, [float("nan")] * 10)}, composites)
    entry = entry_of(read_runs([str(run)])[0], "eval")
    assert [*entry.tasks["core/copa"].metrics] == ["accuracy"]
    assert [*entry.composites] == ["core/CORE-18"]
    assert (entry.weights, entry.packages["miron-jax"]) == ("tiny", "0.1.0")


def test_the_page_and_the_table_are_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python tools/reference_numbers.py writes it again"
    for name, each in references().items():
        assert f"--output={name}" in each.command.split()[-1], name
        for task in each.tasks.values():
            assert (len(task.requests_sha256), bool(task.metrics)) == (64, True)
