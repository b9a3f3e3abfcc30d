"""`miron-jax plan --topology` with XLA's compiler for GPUs, as a user calls it: `make gpu`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Place, common
from tests.support.described_models import CONFIGS, FEW, check_refused, check_too_large, real_shape

pytestmark = pytest.mark.slow


def test_a_plan_names_every_program_and_what_bounds_it(miron: Any, place: Place, tmp_path: Path) -> None:
    output = tmp_path / "out"
    more = ("--tasks=core/copa,miron-gen", FEW, "--topology=h100:1x1x2", "--dtype=bfloat16", "--items_per_category=2")
    ran = miron("plan", *common(place, output, *more))
    assert ran.status == 0, ran.err
    assert "2 x NVIDIA H100 80GB HBM3 (h100:1x1x2), one copy of the weights each" in ran.out
    assert "matmuls at 704 TFLOP/s (71% of the data sheet, as measured on an H200)" in ran.out
    plan = json.loads((output / "plan.json").read_text())["plan"]
    kinds = {program["name"].split()[0] for program in plan["programs"]}
    assert kinds == {"score", "self-check", "prefill", "admit", "step", "fingerprint"}
    for program in plan["programs"]:
        assert program["calls"] > 0
        assert program["launches"] >= program["kernels"] > 0
        assert program["bound"] in ("matmuls", "memory", "launches")
        least = max(program["flops"] / plan["chip"]["peak"], program["traffic"] / plan["chip"]["bandwidth"])
        assert program["seconds"] >= least > 0
        assert program["peak_share"] is None or 0 < program["peak_share"] < 1
    assert plan["attention"] == "cudnn"
    assert plan["chip"]["memory"] == int(0.75 * plan["chip"]["whole_memory"])
    assert plan["seconds"] == pytest.approx(sum(each["calls"] * each["seconds"] for each in plan["programs"]))


@pytest.mark.parametrize(
    ("model", "topology", "mesh"),
    [
        ("llama-70b", "a100:1x1x1", "--topology=a100:1x1x4 --sharding=mesh --mesh=fsdp=4"),
        pytest.param(
            *("mixtral-8x7b", "h100:1x1x8", "--topology=h100:1x1x8 --sharding=mesh --mesh=data=4,expert=2"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_does_not_fit_is_told_with_the_smallest_mesh_that_does(
    model: str, topology: str, mesh: str, miron: Any, place: Place, tmp_path: Path
) -> None:
    check_too_large(miron, place, tmp_path, model, topology, mesh)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--topology=h300:1x1x1",), "'h300:1x1x1' is not a known topology"),
        (
            ("--topology=h100:1x1x4", "--sharding=mesh", "--mesh=data=8"),
            "--mesh=data=8 takes 8 devices, h100:1x1x4 has 4",
        ),
        (
            ("--topology=h100:1x1x1", "--attention=cudnn"),
            "cannot be used here: cudnn does not take float32",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    flags: tuple[str, ...], sentence: str, miron: Any, place: Place, tmp_path: Path
) -> None:
    check_refused(miron, place, tmp_path / "out", flags, sentence)


def test_a_head_that_cudnn_refuses_is_one_sentence(miron: Any, place: Place, tmp_path: Path) -> None:
    folder = real_shape(CONFIGS["gemma3-1b"], place.model, tmp_path / "model")
    flags = (f"--model={folder}", FEW, "--topology=h100:1x1x1", "--dtype=bfloat16", "--attention=cudnn")
    sentence = "--attention=cudnn cannot be used here: cudnn attention fails here: The head dim must be <= 128"
    check_refused(miron, place, tmp_path / "out", flags, sentence)
