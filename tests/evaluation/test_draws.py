"""--fewshot_draws from end to end: one draw is today's run, each other one the run of its own seed; results, screen, page,
comparison, plan, refusals."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import miron_jax
from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run_tasks import RunTasks
from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model
from miron_jax.results.document import run_json, run_of
from miron_jax.tasks.mera.records import _pool
from miron_jax.tasks.mera.table import BY_NAME
from tests.support.mera_records import write_mera
from tests.support.own_models import bigrams
from tests.support.own_task import CHOICE
from tests.support.tiny_model import make_model, make_tokenizer
from tests.support.tolerances import CONTINUATION

WORDS = ("hot", "cold", "rain")


def write_tasks(folder: Path, num_rows: int = 23) -> list[str]:
    """own/x with two shots of its own rows, own/fixed with two that stand in its prompts' file, own/zero with none."""
    rows = [{"q": f"sun {i} is", "c": [f" {word}" for word in WORDS], "a": i * i % 3} for i in range(num_rows)]
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, keys in (
        ("x", "num_fewshot: 2\n"),
        ("zero", "num_fewshot: 0\n"),
        ("fixed", "num_fewshot: 2\nfewshot_draw: first\nfewshot_data: x.jsonl\n"),
    ):
        (folder / f"{name}.yaml").write_text(CHOICE.replace("task: x", f"task: {name}") + keys)
    return [f"--task_path={','.join(str(folder / f'{name}.yaml') for name in ('x', 'zero', 'fixed'))}", "--tasks=own"]


def document_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


def samples_of(folder: Path, task: str = "own/x") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "samples" / f"{task}.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_draws_are_those_of_runs_with_their_seeds(tmp_path: Path, miron: Any) -> None:
    flags = [f"--model={make_model(tmp_path / 'model')}", *write_tasks(tmp_path)]

    def ran(name: str, *more: str) -> Any:
        result = miron("eval", *flags, *more, f"--output={tmp_path / name}")
        assert result.status == 0, result.err
        return result

    ran("plain")
    ran("one", "--fewshot_draws=1")
    plain, one = document_of(tmp_path / "plain"), document_of(tmp_path / "one")
    assert [document["config"].pop("output") for document in (plain, one)]
    for key in plain.keys() - {"speed", "self_check"}:
        assert one[key] == plain[key], key
    for task in ("x", "zero", "fixed"):
        of_runs = [(tmp_path / name / "samples" / "own" / f"{task}.jsonl").read_bytes() for name in ("plain", "one")]
        assert of_runs[0] == of_runs[1]

    screen = ran("three", "--fewshot_draws=3").out
    three = document_of(tmp_path / "three")
    assert run_json(run_of(three)) == three
    draws = three["tasks"]["own/x"]["draws"]
    by_draw = np.array([sample["by_draw"] for sample in samples_of(tmp_path / "three")])
    assert draws["scores"] == pytest.approx(by_draw.mean(axis=0).tolist())
    assert draws["spread"] == pytest.approx(np.sqrt((by_draw.var(axis=1, ddof=1)).sum()) / 23)
    assert three["tasks"]["own/zero"]["draws"]["scored_once"] == "zero-shot"
    assert three["tasks"]["own/fixed"]["draws"]["scored_once"] == "fixed"
    for words in (" few-shot draws ", "zero-shot", "fixed", "95 % over draws"):
        assert words in screen, words
    # draw 0 is today's: the same choices, and scores that other batches move by rounding alone
    for mine, theirs in zip(samples_of(tmp_path / "three"), samples_of(tmp_path / "plain"), strict=True):
        assert "by_draw" not in theirs
        assert mine["prompt_sha256"] == theirs["prompt_sha256"]
        assert mine["prediction"] == theirs["prediction"]
        assert mine["metrics"]["choice_logprob"] == pytest.approx(theirs["metrics"]["choice_logprob"], abs=CONTINUATION)
    (tmp_path / "x.yaml").write_text(f"{CHOICE}num_fewshot: 2\nfewshot_draw: per_item_1236\n")
    ran("third")
    third = [sample["metrics"]["accuracy"] for sample in samples_of(tmp_path / "third")]
    assert by_draw[:, 2].tolist() == third != by_draw[:, 0].tolist()


@pytest.mark.slow
def test_plan_page_comparison_and_another_number(tmp_path: Path, miron: Any) -> None:
    flags = write_tasks(tmp_path)
    for i, name in enumerate(("one", "two")):
        model = make_model(tmp_path / f"model {i}", seed=i)
        ran = miron("eval", f"--model={model}", *flags, "--fewshot_draws=3", f"--output={tmp_path / name}")
        assert ran.status == 0, ran.err
    unique = document_of(tmp_path / "one")["speed"]["unique_tokens"]
    planned = miron("plan", f"--model={tmp_path / 'model 0'}", *flags, "--fewshot_draws=3").out
    alone = miron("plan", f"--model={tmp_path / 'model 0'}", *flags).out
    without = int(alone.partition("unique tokens  ")[2].split()[0])
    assert f"unique tokens  {unique} " in planned
    assert f"; {without} without --fewshot_draws, which costs {unique / without:.2f} times as many" in planned
    assert without < unique < 2.5 * without  # of 3 draws: most shots stand there already

    path = tmp_path / "compared.json"
    compared = miron("compare", str(tmp_path / "one"), str(tmp_path / "two"), f"--json={path}").out
    differences = np.array([sample["by_draw"] for sample in samples_of(tmp_path / "two")])
    differences = differences - np.array([sample["by_draw"] for sample in samples_of(tmp_path / "one")])
    spread = np.sqrt(differences.var(axis=1, ddof=1).sum()) / 23
    document = json.loads(path.read_text())
    [document] = document if isinstance(document, list) else [document]
    mains = {each["task"]: each for each in document["tasks"] if each["is_main"]}
    assert mains["own/x"]["over_draws"] == pytest.approx(spread)
    assert mains["own/zero"]["over_draws"] == 0.0
    value = mains["own/x"]["difference"]["value"]
    named = f"own/x {value:+.4f} of {1.96 * spread:.4f}" if abs(value) < 1.96 * spread else "none"
    assert f"over draws): {named}, of 1 differences with draws" in " ".join(compared.split())

    assert miron("report", str(tmp_path / "one"), f"--html={tmp_path / 'page.html'}").status == 0
    assert "accuracy over 3 draws of shots" in (tmp_path / "page.html").read_text()

    before = (tmp_path / "one" / "results.json").read_bytes()
    for more in ("--fewshot_draws=2", "--fewshot_draws=1"):
        again = miron("eval", f"--model={tmp_path / 'model 0'}", *flags, more, f"--output={tmp_path / 'one'}")
        assert again.status == 2
        assert "holds another run: its fewshot_draws is 3, now it is" in again.err
    assert (tmp_path / "one" / "results.json").read_bytes() == before


def test_refusals_are_one_sentence(tmp_path: Path, miron: Any) -> None:
    flags = ["eval", "--model=demo", *write_tasks(tmp_path, 3), f"--output={tmp_path / 'out'}"]
    for more, sentence in (
        (["--fewshot_draws=0"], "--fewshot_draws is 0, expected 1 or more"),
        (["--fewshot_draws=3"], "--fewshot_draws=3: own/x samples 2 from 2 examples, which can be drawn in 2 ways"),
        *((["--fewshot_draws=2", each], "scores whole tasks with every draw") for each in ("--rows=1", "--budget=1e5")),
    ):
        ran = miron(*flags, *more)
        assert (ran.status, sentence in ran.err) == (2, True), ran.err
        assert not (tmp_path / "out" / "results.json").exists()


def test_rows_in_memory_are_drawn_whole_too(tmp_path: Path) -> None:
    """What the command refuses: draws of a part of a task."""
    make_tokenizer(tmp_path / "tokenizer")
    rows = [{"query": f"sun {i} is", "choices": ["hot", "cold"], "gold": i % 2} for i in range(12)]
    data = {"own/x": {"type": "multiple_choice", "num_fewshot": 2, "delimiter": " ", "rows": rows}}
    parts: list[dict[str, Any]] = [{"rows": (1, 5)}, {"budget": 300.0}]
    for more in parts:
        with pytest.raises(InputError, match="scores whole tasks with every draw"):
            miron_jax.Evaluator(bigrams(), str(tmp_path / "tokenizer"), data=data, fewshot_draws=3, **more)


def test_suites_that_arrange_their_shots_draw_them_again(tmp_path: Path) -> None:
    """MERA v1.2: one random.Random(1234 + draw) for all records in file order."""
    data = write_mera(tmp_path / "mera", "v1.2")
    make_tokenizer(tmp_path / "model")
    config = RunConfig(
        model=str(make_model(tmp_path / "model")),
        tasks=("mera-v1.2/lcs",),
        data_dir=(("mera-v1.2", str(data)),),
        fewshot_draws=3,
    )
    inputs = find_inputs(config, fetch=False)
    [draws] = RunTasks.of(config, inputs, architecture_of(config, find_model(config, weights=False))).draws.values()
    pool = _pool(BY_NAME["LCS"], "v1.2", data)
    num_shots = inputs.sources[0].task.profile.num_fewshot
    for number, kind in enumerate(draws, 1):
        stream = random.Random(1234 + number)
        assert kind.source.task.profile.fewshot_draw.name == f"stream_{1234 + number}_records"
        for example in kind.source.examples:
            answers = [shot.fields["outputs"] for shot in stream.sample(pool, num_shots)]
            assert [shot.strip().rpartition(" ")[2] for shot in example.shots] == answers
        assert [each.shots for each in kind.source.examples] != [each.shots for each in inputs.sources[0].examples]
