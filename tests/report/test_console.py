"""Tables on narrow screens: columns give way by importance, no number is cut, COLUMNS counts in a pipe too."""

import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from miron_jax.cli.mera import _print_checked
from miron_jax.humans.baseline import Accuracy, Baseline, Mean, Procedure
from miron_jax.planning.request_batches import Totals
from miron_jax.report.tables.bench import Bench, Bucket, Layout, print_bench
from miron_jax.report.tables.cloze import cloze_table
from miron_jax.report.tables.console import NumberTable, console, table_of
from miron_jax.report.tables.curves import curves_table
from miron_jax.report.tables.humans import print_baseline
from miron_jax.report.tables.topology import Cycles, PlannedProgram, TopologyPlan, print_topology_plan
from miron_jax.report.tables.verify import WayDifference, print_verified
from miron_jax.results.details import ClozeDetails, Fragmentation
from miron_jax.results.records import Group, RunResult, TaskResult
from miron_jax.runtime.chips import CHIPS
from miron_jax.runtime.gpu_kernels import Roofline
from miron_jax.runtime.streams import ERRORS
from miron_jax.statistics.estimate import estimate
from miron_jax.tasks.mera.site import SiteReport
from tests.support.run_folders import composite, samples_of, write_run, write_training_run

WIDTHS = (60, 80, 100, 200)
NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)*(?:e[+-]\d+)?")
NAMES = ("own/a_task_of_a_very_long_name", "own/bigbench_elementary_question")

Show = Callable[[Path, Any], object]


def of_report(folder: Path, miron: Any) -> object:
    samples = {name: samples_of([1, 0] * 500, bits=[1.0] * 1000) for name in NAMES}
    run = write_run(folder / "run", samples, {"BOTH": composite(0.5, dict.fromkeys(NAMES, 0.5))})
    return print(miron("report", str(run)).out)


def of_compare(folder: Path, miron: Any) -> object:
    runs = []
    for label, shift in (("first", 0), ("second", 30)):
        steps = {
            step: {name: samples_of([1] * (n + shift) + [0] * (120 - n - shift), bits=[n / 60] * 120) for name in NAMES}
            for step, n in ((1000, 50), (2000, 61), (3000, 70))
        }
        runs.append(str(write_training_run(folder / label, steps)))
    return print(miron("compare", *runs, "--until=decided").out)


def of_tasks(folder: Path, miron: Any) -> object:
    return print(miron("tasks").out, miron("tasks", "--human").out)


def of_verify(folder: Path, miron: Any) -> object:
    each = WayDifference("one request a row, dense attention", 1.2e-5, False, 3, 2.5e-9)
    return print_verified(console(), [each], 1234, 1e-3)


def of_bench(folder: Path, miron: Any) -> object:
    bucket = Bucket(1024, 12345, 16, 772, 20, 12_345_678, 123.4)
    layout = Layout("no sharing: a row holds whole requests", 1234.5, 12.3, 98_765_432, 12_345_678, 0.345, [bucket])
    return print_bench(Bench("CPU", 1, "xla", 1e11, 2e11, 9, 99, 88, 1e12, 1.0, 2.0, 3e5, 1e4, 10**9, layout, [layout]))


def of_topology(folder: Path, miron: Any, topology: str, estimate: Cycles | Roofline) -> object:
    sizes = (10**9, 2 * 10**9, 10**8)
    program = PlannedProgram("score 16 rows of 1024", 123, True, False, *sizes, estimate, 0.0823, 0.345)
    chip = CHIPS[topology.split(":")[0]]
    plan = TopologyPlan(
        topology, chip, 16, {"data": 16}, "pmap", "bfloat16", "tpu", 10**9, [program], 16384, [], {}, Totals()
    )
    return print_topology_plan(plan)


of_tpus = partial(of_topology, topology="v5e:4x4", estimate=Cycles(123_456_789))
of_gpus = partial(of_topology, topology="h100:1x2x8", estimate=Roofline(0.0823, 1e12, 1e9, 80, 12_345, "matmuls"))


def of_humans(folder: Path, miron: Any) -> object:
    accuracy = Accuracy(0.812, 1234, 1002, (0.789, 0.833))
    f1 = Mean(0.865, 1234, (0.845, 0.885))
    procedure = Procedure(1234, 0.987, {"plurality": 1200, "skills": 34}, 10, accuracy, f1, 0.765, 0.654)
    return print_baseline(
        Baseline(9, 0, 0, 9, None, 0, {5: 9}, 9, {}, 0, 2.0, 0.5, 0.6, accuracy, procedure, procedure)
    )


def of_mera(folder: Path, miron: Any) -> object:
    rows = [("rutie", "430 of 430", "complete", "accuracy 0.523, f1_macro 0.498, exact_match 0.123, mcc 0.077")]
    return _print_checked(SiteReport([], rows, [], "total 0.523"))


def of_plan(folder: Path, miron: Any) -> object:
    return print(miron("plan", "--mde", "--tasks=miron-gen", "--model=demo", "--items_per_category=20").out)


def of_eval(folder: Path, miron: Any) -> object:
    """Tables of a training run on a suite of gaps."""
    seven_of_40 = estimate([1.0] * 7 + [0.0] * 33, proportion=True)
    names: list[str] = ["greedy_exact", "contrast_accuracy", "bits_per_char", "lev_score"]
    metrics = dict.fromkeys(names, seven_of_40)
    details = ClozeDetails(macro=metrics, fragmentation=Fragmentation(0.0, {}), drift={}, rows_by_category={})
    task = TaskResult(n=40, metrics={}, groups={"Facts": Group(40, metrics)}, kind="cloze", details=details)
    run = RunResult(config={}, tasks={"miron-gen/en": task}, suites={})
    console().print(cloze_table(run.tasks))
    return console().print(curves_table(dict.fromkeys(range(1000, 13000, 1000), run)))


COMMANDS: dict[str, tuple[Show, tuple[str, ...]]] = {  # what it prints; what stays at every width
    "eval": (of_eval, ("greedy", "0.17 ± 0.06", "miron-gen/", "12000", "0.175")),
    "report": (of_report, ("1000", "0.500", "0.469 - 0.531", "95 % interval 0.3000", "question")),
    "compare": (of_compare, ("120", "+0.2500", "+0.1662", "difference", "noise", "metric")),
    "tasks": (of_tasks, ("core/arc_easy", "0.939")),
    "verify": (of_verify, ("1.2e-05", "verdict", "same")),
    "bench": (of_bench, ("1234.5", "34.5 %", "100046")),
    "plan": (of_plan, ("0.1566", "correlation")),
    "plan --topology=v5e": (of_tpus, ("123", "score 16", "10.1")),
    "plan --topology=h100": (of_gpus, ("123", "score 16", "10.1", "matmuls")),
    "humans": (of_humans, ("0.812", "0.789 - 0.833", "1234", "0.865 (0.845 to 0.885)")),
    "mera": (of_mera, ("0.523", "0.123", "430 of 430", "complete")),
}


@pytest.mark.parametrize(
    ("device", "bound"),
    [
        (100_000, "computes 100,000: up to 3 of them bound a run, and beyond that the host does"),
        (350_001, "computes 350,001: the host bounds a run on any number of them"),
    ],
)
def test_bench_says_on_how_many_devices_the_host_bounds_a_run(
    device: float, bound: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    layout = Layout("engine", 1.0, 1.0, 9, 9, 0.5, [])
    print_bench(Bench("TPU", 4, "tpu", 1e11, 2e11, 9, 99, 88, 1e12, 1.0, 2.0, 350_000, device, None, layout, []))
    assert f"the host tokenizes and plans 350,000 unique tokens a second, a device {bound}" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_no_number_is_cut_at_any_width(
    name: str, tmp_path: Path, miron: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    show, kept = COMMANDS[name]
    monkeypatch.setenv("COLUMNS", "400")
    show(tmp_path, miron)
    numbers = set(NUMBER.findall(capsys.readouterr().out))
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        show(tmp_path, miron)
        out = capsys.readouterr().out
        rows = [line for line in out.splitlines() if line[:1] in "┏┃┡│├└"]
        assert rows, (name, width, out)
        assert max(map(len, rows)) <= width, (name, width, max(rows, key=len))
        assert "\N{HORIZONTAL ELLIPSIS}" not in out, (name, width, out)
        cells = [cell for line in rows if line.startswith("│") for cell in line.split("│")]
        assert (cut := {each for cell in cells for each in NUMBER.findall(cell)} - numbers) == set(), (name, width, cut)
        assert [each for each in kept if each not in out] == [], (name, width, out)


@pytest.mark.parametrize("name", COMMANDS)
def test_screens_that_are_not_utf8_show_every_number(name: str, tmp_path: Path, miron: Any) -> None:
    show, kept = COMMANDS[name]
    stream = io.TextIOWrapper(io.BytesIO(), "ascii", errors=ERRORS)
    with redirect_stdout(stream):
        show(tmp_path, miron)
    stream.flush()
    out = stream.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert [each for each in kept if each.replace("\u00b1", "+-") not in out] == [], out


def shown(table: NumberTable, capsys: pytest.CaptureFixture[str]) -> str:
    console().print(table)
    return capsys.readouterr().out


def test_columns_leave_in_their_order_and_a_line_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four columns of 10 and 3 beside each: 53 in all; without one 40, without two 27, the name folded 23."""
    table = table_of(
        ("a_name_of1",), ("least num1", "more num22", "keepnumber"), gives_way=("least num1", "more num22")
    )
    table.add_row("a_name_of1", *["1234567.89"] * 3)
    for width, lost in ((53, ""), (52, "least num1"), (40, "least num1"), (39, "least num1, more num22"), (27, "l")):
        monkeypatch.setenv("COLUMNS", str(width))
        out = shown(table, capsys)
        assert out.count("1234567.89") == 3 - len(lost.split(", ")) * bool(lost) or lost == "l", (width, out)
        assert ("shows all" in " ".join(out.split())) == bool(lost), (width, out)
    assert "keepnumber" in out


def test_a_column_without_a_value_leaves_first_and_pairs_leave_together(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven columns of 6 and 3 beside each: 64 in all, 55 without the empty one, 37 without the pair too."""
    numbers = ("small1", "first1", "second", "empty1", "value1", "value2")
    table = table_of(("a_name",), numbers, gives_way=(("first1", "second"), "small1", "empty1"))
    table.add_row("a_name", *["0.1234"] * 3, "-", "0.5678", "0.5678")
    for width, lost in ((64, ()), (63, ("empty1",)), (54, ("empty1", "first1", "second"))):
        monkeypatch.setenv("COLUMNS", str(width))
        heading, _, below = shown(table, capsys).partition("\u2521")
        assert [name for name in numbers if name not in heading] == [name for name in numbers if name in lost]
        assert "empty1" not in below, "nothing is lost by a column without a value"


def test_a_pipe_has_all_columns_and_COLUMNS_counts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(("task",), [f"heading {i:012}" for i in range(20)], ("text",), gives_way=["heading 000000000019"])
    table.add_row("x", *["0.1234"] * 20, "word " * 50)
    monkeypatch.delenv("COLUMNS", raising=False)
    out = shown(table, capsys)
    assert out.count("0.1234") == 20
    assert "not shown" not in out
    line = "a sentence of some words " * 9
    console().print(line, soft_wrap=True)
    assert capsys.readouterr().out == f"{line}\n"
    monkeypatch.setenv("COLUMNS", "60")
    console().print(line, soft_wrap=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert " ".join(map(str.strip, lines)) == line.strip()
