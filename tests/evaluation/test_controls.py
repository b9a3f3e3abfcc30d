"""--controls from end to end: closed-form models, plain scores bit for bit, results, screen, refusals; and a simulation."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import miron_jax
from miron_jax.config import RunConfig
from miron_jax.errors import InputError
from miron_jax.evaluation.task_kinds.controls import control_of
from miron_jax.model.own import OwnModel
from miron_jax.report.tables.controls import controls_lines, controls_table
from miron_jax.results.document import run_json, run_of
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.own_models import VOCAB, bigrams, users_promotion
from tests.support.own_task import CHOICE
from tests.support.tiny_model import make_model, make_tokenizer

__all__ = ["users_promotion"]  # a fixture that every test here uses
ASKED = CHOICE.replace("question: q", 'question: "where {{q}}"') + 'delimiter: "\\nA:"\n'


def write_task(folder: Path, keys: str, rows: list[Any]) -> None:
    make_tokenizer(folder / "tokenizer")
    (folder / "x.yaml").write_text(keys)
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def lettered(num_rows: int) -> list[dict[str, Any]]:
    """Questions whose options stand under letters."""
    listed = "\n".join(f"{letter}. {word}" for letter, word in zip("ABC", ("hot", "cold", "rain"), strict=True))
    return [{"q": f"sun {i}?\n{listed}", "c": [*"ABC"], "a": i % 3} for i in range(num_rows)]


def scored(folder: Path, model: OwnModel, **more: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"task_path": [str(folder / "x.yaml")], "output": folder / "out", **more}
    run = miron_jax.Evaluator(model, str(folder / "tokenizer"), ["own"], **options).run(step=1)
    return run["tasks"]["own/x"]


@pytest.mark.slow
def test_a_model_of_the_last_token_loses_nothing(tmp_path: Path) -> None:
    """Each control ends in the same token, so every choice has the score that it has; one letter is always chosen."""
    write_task(tmp_path, f"{ASKED}num_fewshot: 2\n", lettered(40))
    controls = scored(tmp_path, bigrams(), controls=True)["controls"]
    assert (controls["of"], 2 <= controls["n"] <= 20, controls["absent"]) == (40, True, {})
    assert [*controls["by"]] == ["stem_swap", "answer_only", "shuffled_shots", "permuted_options"]
    for name in ("stem_swap", "answer_only", "shuffled_shots"):
        each = controls["by"][name]
        assert (each["gap"]["value"], each["accuracy"]["value"]) == (0.0, controls["accuracy"]["value"]), name
        low, high = each["gap"]["ci95"]
        assert low == -high < 0
    assert sorted(controls["by"]["permuted_options"]["chosen_places"]) == [0.0, 0.0, 1.0]


def reader_of_questions(folder: Path) -> OwnModel:
    """x or y in the text, whichever is last, says whether p or q follows."""
    tokenizer = load_tokenizer(str(folder / "tokenizer"))
    x, y, p, q = (tokenizer(letter)["input_ids"][0] for letter in "xypq")
    mark = np.zeros(VOCAB, np.float32)
    mark[[x, y]] = 1, -1
    to = np.zeros(VOCAB, np.float32)
    to[[p, q]] = 1, -1

    def later(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(b == 0, a, b)

    def logits(params: Any, ids: jax.Array) -> jax.Array:
        last = jax.lax.associative_scan(later, params["mark"][ids], axis=1)
        return last[..., None] * params["to"][None, None]

    return OwnModel(vocab_size=VOCAB, logits=logits, params={"mark": jnp.asarray(mark), "to": jnp.asarray(to)})


@pytest.mark.slow
def test_a_model_that_reads_the_question_loses_with_it(tmp_path: Path) -> None:
    rows = [{"q": f"the sun {i} {'xy'[i % 3 > 0]}", "c": ["p", "q"], "a": int(i % 3 > 0)} for i in range(90)]
    write_task(tmp_path, ASKED, rows)
    task = scored(tmp_path, reader_of_questions(tmp_path), controls=True)
    controls = task["controls"]
    assert (task["metrics"]["accuracy"]["value"], controls["accuracy"]["value"]) == (1.0, 1.0)
    for name in ("stem_swap", "answer_only"):
        assert controls["by"][name]["gap"]["ci95"][0] > 0, name
    # without a question both choices are as probable, and the first one wins: right in a third of the examples
    assert 1 / 3 - 0.2 < controls["by"]["answer_only"]["accuracy"]["value"] < 1 / 3 + 0.2
    assert set(controls["absent"]) == {"shuffled_shots", "permuted_options"}


@pytest.mark.slow
def test_a_subset_of_an_evaluator_has_no_controls(tmp_path: Path) -> None:
    """Small runs every few steps are samples, of which there are no controls; the whole runs have them."""
    write_task(tmp_path, ASKED, lettered(40))
    options = {"tasks": ["own"], "task_path": [str(tmp_path / "x.yaml")], "controls": True, "subset": 200}
    evaluator = miron_jax.Evaluator(reader_of_questions(tmp_path), str(tmp_path / "tokenizer"), **options)
    assert evaluator._subset is not None
    assert "controls" not in evaluator._subset.run(step=1)["tasks"]["own/x"]
    assert evaluator.run(step=2)["tasks"]["own/x"]["controls"]["n"] > 0


@pytest.mark.slow
def test_plain_scores_are_the_same_bit_for_bit(tmp_path: Path, miron: Any) -> None:
    """Results less `controls`, and samples to their last digit; a resumed run finds all scores; the plan says the cost."""
    write_task(tmp_path, f"{ASKED}num_fewshot: 2\n", lettered(40))
    flags = [f"--model={make_model(tmp_path / 'model')}", f"--task_path={tmp_path / 'x.yaml'}", "--tasks=own"]
    runs = []
    for name, more in (("plain", ()), ("with", ("--controls",))):
        ran = miron("eval", *flags, *more, f"--output={tmp_path / name}")
        assert ran.status == 0, ran.err
        runs.append(json.loads((tmp_path / name / "results.json").read_text()))
    plain, with_controls = runs
    stored_controls = with_controls["tasks"]["own/x"].pop("controls")
    for key in ("tasks", "suites", "samples"):
        assert with_controls[key] == plain[key], key
    assert (with_controls["config"].pop("controls"), "controls" in plain["config"]) == (True, False)
    assert with_controls["speed"]["unique_tokens"] <= 1.6 * plain["speed"]["unique_tokens"]
    assert "  stem swap " in ran.out
    assert "own/x: with permuted options it chooses A " in ran.out

    (tmp_path / "with" / "results.json").unlink()
    again = miron("eval", *flags, "--controls", f"--output={tmp_path / 'with'}", "--verbose")
    document = json.loads((tmp_path / "with" / "results.json").read_text())
    assert (document["speed"]["computed_tokens"], again.status) == (0, 0)
    assert document["tasks"]["own/x"]["controls"] == stored_controls
    assert run_json(run_of(document)) == document

    planned = miron("plan", *flags, "--controls").out
    unique, without = with_controls["speed"]["unique_tokens"], plain["speed"]["unique_tokens"]
    assert f"unique tokens  {unique} " in planned
    assert f"; {without} without --controls, which costs {unique / without:.2f} times as many" in planned

    tasks = run_of(document).tasks
    for width in (80, 60):
        console = Console(width=width, record=True)
        console.print(controls_table(tasks))
        assert max(map(len, console.export_text().splitlines())) <= width
    assert not [*controls_lines(run_of(plain).tasks)]


def test_refusals_are_one_sentence(tmp_path: Path, miron: Any) -> None:
    write_task(
        tmp_path, CHOICE.replace("choices: c\ngold: a", "kind: generation\nanswer: a"), [{"q": "?", "a": "b"}] * 4
    )
    flags = ["eval", "--model=demo", f"--task_path={tmp_path / 'x.yaml'}", "--tasks=own", "--controls"]
    ran = miron(*flags, f"--output={tmp_path / 'out'}")
    sentence = "--controls: own/x has none, as it does not choose among given options, and so it is with every task of"
    assert (ran.status, sentence in ran.err) == (2, True)
    assert not (tmp_path / "out" / "results.json").exists()
    for more in ("--rows=1", "--budget=1e5", "--until=ci<=0.1", "--generated=x"):
        ran = miron(*flags, more)
        assert (ran.status, "--controls draws examples from whole tasks" in ran.err) == (2, True), more
    with pytest.raises(InputError, match="leave out --generated, --rows, --until and --budget"):
        RunConfig(model="demo", tasks=("own",), rows=(1,), controls=True)


def test_a_model_that_ignores_the_question_has_no_gap() -> None:
    """1,000 sets of 80 questions: each choice has a prior that all prompts share, and noise of the prompt.  The interval of
    the gap holds 0 in at least 95 of 100 sets less three deviations of the count; of a model that reads the question, hardly
    ever."""
    generator = np.random.default_rng(5)
    covered = {0.0: 0, 1.5: 0}
    for reads in covered:
        for _ in range(1000):
            prior = generator.normal(size=(80, 4))
            gold = generator.integers(4, size=80)
            right = []
            for share in (reads, 0.0):
                scores = prior + generator.normal(size=(80, 4))
                scores[np.arange(80), gold] += share
                right.append((scores.argmax(axis=1) == gold).astype(np.float64))
            low, high = control_of(*right).gap.ci95
            covered[reads] += low <= 0 <= high
    assert covered[0.0] >= 950 - 3 * np.sqrt(1000 * 0.95 * 0.05)
    assert covered[1.5] < 50
