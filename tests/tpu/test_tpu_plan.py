"""`miron-jax plan --topology` with libtpu, as a user calls it: `make tpu`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Place, common
from tests.support.described_models import CONFIGS, FEW, check_refused, check_too_large, real_shape
from tests.support.mera_records import turn

pytestmark = pytest.mark.slow

TASKS = "--tasks=core/copa"


def test_a_plan_names_every_program(miron: Any, place: Place, tmp_path: Path) -> None:
    output = tmp_path / "out"
    turns = tmp_path / "mera" / "rutie" / "test.jsonl"
    turns.parent.mkdir(parents=True)
    turns.write_text("".join(json.dumps(turn(i)) + "\n" for i in range(6)), encoding="utf-8")
    data = f"--data_dir=core={place.data},mera-v1={tmp_path / 'mera'}"
    tasks = "--tasks=core/copa,core/lambada_openai,miron-gen,mera-v1/rutie"
    more = (tasks, data, FEW, "--topology=v5e:2x2", "--dtype=bfloat16", "--items_per_category=2")
    ran = miron("plan", *common(place, output, *more))
    assert ran.status == 0, ran.err
    assert "read 128 of a dialogue" in ran.out
    assert "4 x TPU v5 lite (v5e:2x2), one copy of the weights each" in ran.out
    plan = json.loads((output / "plan.json").read_text())["plan"]
    kinds = {program["name"].split()[0] for program in plan["programs"]}
    assert kinds == {"score", "self-check", "prefill", "admit", "step", "fingerprint", "read"}
    for program in plan["programs"]:
        assert program["calls"] > 0
        assert program["cycles"] > 0
        assert program["seconds"] >= program["cycles"] / plan["chip"]["clock"]
        assert program["peak_share"] is None or 0 < program["peak_share"] < 1
    assert plan["attention"] == "tpu"
    assert plan["token_budget"] == 2048
    assert plan["seconds"] == pytest.approx(sum(each["calls"] * each["seconds"] for each in plan["programs"]))


@pytest.mark.long
def test_8b_fits_four_v5e(miron: Any, place: Place, tmp_path: Path) -> None:
    model, output = real_shape(CONFIGS["llama-8b"], place.model, tmp_path / "model"), tmp_path / "out"
    flags = (
        f"--model={model}",
        TASKS,
        FEW,
        "--topology=v5e:2x2",
        "--dtype=bfloat16",
        "--sharding=mesh",
        "--mesh=fsdp=4",
    )
    ran = miron("plan", *common(place, output, *flags))
    assert ran.status == 0, ran.err
    assert "the times of this mesh are lower bounds" in ran.out
    plan = json.loads((output / "plan.json").read_text())["plan"]
    for each in plan["programs"]:
        assert plan["weights"] + each["arguments"] + each["temporaries"] + each["outputs"] < plan["chip"]["memory"]


@pytest.mark.parametrize(
    ("topology", "mesh"),
    [
        pytest.param("v5e:2x2", "--topology=v5e:4x4 --sharding=mesh --mesh=fsdp=16", marks=pytest.mark.long),
        ("v5p:2x2x1", "--topology=v5p:2x2x1 --sharding=mesh --mesh=data=2,fsdp=2"),
    ],
)
def test_what_does_not_fit_is_told_with_the_smallest_mesh_that_does(
    topology: str, mesh: str, miron: Any, place: Place, tmp_path: Path
) -> None:
    check_too_large(miron, place, tmp_path, "llama-70b", topology, mesh)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--topology=v7:2x2",), "'v7:2x2' is not a known topology"),
        (("--topology=v5e:3x5",), "'v5e:3x5' is not a topology that libtpu knows"),
        (("--topology=v5e:2x2", "--sharding=mesh", "--mesh=data=8"), "--mesh=data=8 takes 8 devices, v5e:2x2 has 4"),
        (("--topology=v5e:2x2", "--attention=cudnn"), "--attention=cudnn cannot be used here"),
    ],
)
def test_bad_input_is_one_sentence(
    flags: tuple[str, ...], sentence: str, miron: Any, place: Place, tmp_path: Path
) -> None:
    check_refused(miron, place, tmp_path / "out", flags, sentence)
