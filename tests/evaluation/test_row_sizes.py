"""What a run is estimated to compute before it is tokenized, beside its plan."""

from pathlib import Path

import numpy as np
import pytest

from miron_jax.config import RunConfig
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.parts import cost_of
from miron_jax.evaluation.run_tasks import RunTasks
from miron_jax.evaluation.task_kinds import cloze, row_sizes
from miron_jax.evaluation.task_kinds.row_sizes import VARIED, Sample, row_bytes, sampled, varies
from miron_jax.model.checkpoints.checkpoints import architecture_of, find_model
from miron_jax.planning.plan import make_plan
from miron_jax.planning.request_batches import Totals
from miron_jax.prompting.prompts import Prompt
from miron_jax.tasks.core import SUITE as CORE
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.command import Place
from tests.support.plan_check import COST, plain_tokens
from tests.support.tiny_model import make_tokenizer
from tests.support.tolerances import ESTIMATED

PROFILE = next(task.profile for task in CORE.tasks if task.name == "core/openbook_qa")
WORDS = [*"the cat sat on a mat and saw seven small birds fly over old green hills".split()]  # noqa: SIM905


def _prompts(shape: str) -> list[Prompt]:
    rng = np.random.default_rng(0)
    text = lambda low, high: " ".join(rng.choice(WORDS, rng.integers(low, high)))  # noqa: E731
    stories = [text(60, 90) for _ in range(40)]
    prompts = []
    for i in range(400):
        story = stories[i % 40] if shape == "stories" else text(9, 30)
        contexts, continuations = (f"{story} {text(4, 9)}",) * 4, tuple(f" {text(1, 4)}" for _ in range(4))
        if shape == "schema":
            contexts, continuations = tuple(f"{story} {text(1, 4)}" for _ in range(4)), (f" {text(5, 12)}",) * 4
        if shape == "long":
            contexts, continuations = (f"{text(80, 200)} so",) * 2, (" cat", " a")
        prompts.append(Prompt(i, i, contexts, continuations, 0))
    return prompts


@pytest.mark.parametrize("small", [0, 1 << 30], ids=["sampled", "whole"])
@pytest.mark.parametrize("shape", ["choices", "schema", "stories", "long"])
def test_estimate_is_near_the_plan(tmp_path: Path, shape: str, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices share a question, contexts of a schema a beginning, questions a story; long prompts lose their left
    ends."""
    monkeypatch.setattr(row_sizes, "SMALL", small)
    make_tokenizer(tmp_path)
    tokenizer, prompts = load_tokenizer(str(tmp_path)), _prompts(shape)
    num_bytes, limit = row_bytes(prompts), 64 if shape == "long" else None
    index = sampled(num_bytes)
    some = [prompts[i] for i in index.tolist()]
    of_some, requests = (tokenize(each, PROFILE, tokenizer, limit, "t") for each in (some, prompts))
    sizes = row_sizes.row_sizes(prompts, num_bytes, Sample(index, some, of_some), limit, COST)
    plain, unique = plain_tokens(requests), make_plan(requests, COST).unique_tokens
    assert len(some) == 400 if small else len(some) < 100
    apart = ESTIMATED if small == 0 else 0
    assert sizes.plain_tokens == pytest.approx(plain, rel=apart)
    assert sizes.unique_tokens == pytest.approx(unique, rel=apart)


def test_more_is_tokenized_where_truncated_choices_share_by_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Choices of one length lose the same; of two lengths they share their question only where both are short."""
    monkeypatch.setattr(row_sizes, "SMALL", 0)
    make_tokenizer(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))
    of_choices = lambda limit, texts: Sample(  # noqa: E731
        np.arange(8),
        prompts := [Prompt(i, i, ("the cat sat on a mat",) * 2, texts, 0) for i in range(8)],
        tokenize(prompts, PROFILE, tokenizer, limit, "t"),
    )
    assert varies(of_choices(8, (" a cat", " a")))
    assert not varies(of_choices(8, (" cat", " mat")))
    assert not varies(of_choices(None, (" a cat", " a")))
    num_bytes = row_bytes(_prompts("long"))
    assert len(sampled(num_bytes, VARIED)) > 2 * len(sampled(num_bytes))


def test_cloze_items_are_counted_by_their_requests(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig(model=str(place.model), tasks=("miron-gen/en",), items_per_category=3)
    tasks = RunTasks.of(config, find_inputs(config), architecture_of(config, find_model(config, weights=False)))
    [kind] = tasks.kinds
    sizes = kind.sizes(COST)
    monkeypatch.setattr(cloze, "cloze_requests", lambda *_: pytest.fail("tokenized twice"))
    [(items, requests)] = kind.pieces()
    plan = make_plan(requests, COST)
    assert sizes is not None
    assert len(items) > 9
    assert (sizes.plain_tokens, sizes.unique_tokens) == (plain_tokens(requests), plan.unique_tokens)
    assert sizes.longest <= plan.row_length.max()


def test_line_says_what_is_expected_of_the_whole_run() -> None:
    """The first batch has another share of the unique tokens than of the plain ones."""
    totals = Totals(plain_tokens=100, unique_tokens=80, useful_flops=8e9, expected=1000.0, expected_unique=160.0)
    assert cost_of(totals).startswith("about 160 unique tokens of 1,000 to compute, 16 GFLOP ")
