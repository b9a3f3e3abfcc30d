"""Several checkpoints of one training run: a folder each, the last one on top, the programs compiled once."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from miron_jax.cli import eval as eval_command
from miron_jax.config import RunConfig
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.records import Outcome
from miron_jax.evaluation.run import evaluate, evaluate_checkpoints
from miron_jax.evaluation.run_result import finished_run
from miron_jax.model import demo
from miron_jax.model.checkpoints.hf_config import from_hf_config
from miron_jax.model.checkpoints.hf_reader import load_hf
from miron_jax.report.figures.curves import draw_curves
from miron_jax.report.tables.curves import bars, curves_of
from miron_jax.results.output import check_output
from miron_jax.results.writing import write_finished, write_top
from miron_jax.runtime.timeline import Timeline
from tests.support.command import in_process
from tests.support.tiny_model import make_model
from tests.support.tolerances import CONTINUATION

TASKS = ("miron-gen/en", "miron-gen/ru", "own/said")
SAID = "task: said\nkind: generation\ndata: said.jsonl\nquestion: q\nanswer: a\nnum_fewshot: 0\nextra_tokens: 4\n"


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model with checkpoints at steps 3 and 20, the first with weights of half the size."""
    folder = make_model(tmp_path / "model")
    _, state = load_hf(folder, jnp.dtype("float32"))
    with ocp.StandardCheckpointer() as checkpointer:
        for step, scale in ((20, 1.0), (3, 0.5)):
            scaled = jax.tree.map(lambda x, scale=scale: np.asarray(x) * np.float32(scale), nnx.to_pure_dict(state))
            checkpointer.save(tmp_path / "model" / "steps" / str(step), scaled)
            checkpointer.wait_until_finished()
    shutil.copytree(folder, tmp_path / "alone", ignore=shutil.ignore_patterns("steps"))
    (folder / "model.safetensors").unlink()  # else the folder is that one model
    demo.write_sums(folder)
    monkeypatch.setattr(demo, "FOLDER", folder)
    return folder


def logprobs(outcome: Outcome) -> list[float]:
    cloze = [task for task in outcome.tasks if task.source.task.name != "own/said"]
    return [example.metrics["logprob"] for task in cloze for example in task.example_scores if example]


def completions(outcome: Outcome) -> list[str]:
    said: Any = next(task for task in outcome.tasks if task.source.task.name == "own/said")
    return [row.text for row in said.rows]


def test_every_step_is_scored_with_its_own_weights(trained: Path, tmp_path: Path, monkeypatch) -> None:
    """In request batches of one task each, so that scores of one could reach the examples of another."""
    (tmp_path / "said.yaml").write_text(SAID)
    (tmp_path / "said.jsonl").write_text('{"q": "the sun is", "a": "hot"}\n{"q": "a green hill", "a": "falls"}\n')
    options: dict[str, Any] = {"limit": 2, "items_per_category": 12, "task_path": (str(tmp_path / "said.yaml"),)}
    assert from_hf_config(trained).num_layers == 2
    config = RunConfig("demo", TASKS, output=str(tmp_path / "out"), **options)
    check_output(config)
    inputs = find_inputs(config)
    written, outcomes, timeline = {}, {}, Timeline()
    with monkeypatch.context() as patch:
        patch.setattr("miron_jax.evaluation.parts.REQUEST_BATCH_TOKENS", 1)
        for step, outcome in evaluate_checkpoints(config, inputs):
            assert step is not None
            written[step], outcomes[step] = (
                write_finished(config, finished_run(config, outcome, step), timeline.lap),
                outcome,
            )
            assert (outcome.speed.programs > 0) == (step == 3), "later steps run what the first one compiled"
    assert list(written) == [3, 20]
    top = write_top(config, written, timeline.total)
    assert top.steps == {"3": "step_3/results.json", "20": "step_20/results.json"}
    assert top.tasks == written[20].tasks != written[3].tasks
    speeds = [each.speed for each in (*written.values(), top)]
    assert [sum(speed.timeline.values()) for speed in speeds] == pytest.approx([speed.wall_seconds for speed in speeds])
    assert 0 < sum(speed.wall_seconds for speed in speeds[:2]) < speeds[2].wall_seconds, "the top counts all steps"
    for step in written:
        assert json.loads((tmp_path / f"out/step_{step}/results.json").read_text())["step"] == step
        assert len((tmp_path / f"out/step_{step}/samples/miron-gen/en.jsonl").read_text().splitlines()) == 8
    check_output(config)  # the same run may be run again
    alone = evaluate(RunConfig(str(tmp_path / "alone"), TASKS, **options), inputs)
    assert logprobs(outcomes[20]) == pytest.approx(logprobs(alone), abs=CONTINUATION)
    assert completions(outcomes[20]) == completions(alone) != completions(outcomes[3])

    curves = curves_of(written)
    assert {curve.category for curve in curves} >= {"Morphology", "Facts", "Logic", "Noise"}
    assert all(len(curve.values) == 2 for curve in curves)
    picture = io.BytesIO()
    draw_curves(written, picture)
    assert b"<svg" in picture.getvalue()


def test_bars_by_hand() -> None:
    assert bars([0.0, 50.0, 100.0]) == "\u2581\u2585\u2588"  # 3.5 rounds to the even 4
    assert bars([None, 1.0, 1.0]) == "\u00b7\u2581\u2581"


def test_the_page_is_written_after_each_checkpoint(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    out = tmp_path / "out"
    page = out / "page.html"
    titles = list[str]()

    def write(name: str, folders: list[str]) -> None:
        write_page(name, folders)
        titles.append(page.read_text(encoding="utf-8"))

    write_page = eval_command.write_page
    monkeypatch.setattr(eval_command, "write_page", write)
    flags = [f"--model={trained}", "--tasks=miron-gen/en", "--limit=2", "--compilation_cache=", f"--output={out}"]
    ran = in_process("eval", *flags, f"--html={tmp_path / 'nowhere' / 'page.html'}")
    assert (ran.status, not (out / "results.json").exists()) == (2, True)
    assert "--html=" in ran.err
    assert "cannot be written: name a file in a folder that is there" in ran.err
    ran = in_process("eval", *flags, f"--html={page}")
    assert ran.status == 0, ran.err
    assert len(titles) == 3, "two steps, and both together"
    assert all("<html" in title and "miron-gen/en" in title for title in titles)
    assert len(titles[2]) > len(titles[0]), "curves of two steps"
    ran = in_process("report", str(out), f"--html={tmp_path / 'page.html'}")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == titles[2]
