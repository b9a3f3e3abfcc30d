"""Order, few-shot sampling and wording of CORE's prompts."""

import json
import random
import time
from dataclasses import replace
from itertools import islice, product
from pathlib import Path

import pytest

from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Example, Profile, Task
from miron_jax.definitions.rules import Rule
from miron_jax.errors import InputError
from miron_jax.prompting.draws import PER_ITEM_1234, STREAM_1234, STREAM_LM_EVAL, ShotSampler
from miron_jax.prompting.prompts import Prompt, draws_by_limit, pool_size, render
from miron_jax.tasks import core
from miron_jax.tasks.registry import SUITES

pytestmark = pytest.mark.newest

TASKS = {task.name: task for task in core.SUITE.tasks}


@pytest.fixture(scope="module")
def goldens(shared_data: Path) -> dict:
    return json.loads((shared_data / "goldens" / "core_gauntlet.json").read_text())


def sampled(profile: Profile, idx: int, num_pool: int) -> list[int]:
    return next(islice(profile.fewshot_draw.call(num_pool, profile.num_fewshot), idx, None))


def read(prompt: Prompt) -> list[str]:
    """The text before each choice's continuation."""
    return [prompt.preamble + context for context in prompt.contexts]


def test_order_is_the_published_shuffle(goldens: dict):
    for label, golden in goldens["nanochat_shuffle_first10_original_line_index"].items():
        order = TASKS[f"core/{label}"].profile.item_order.call(golden["N"])
        assert order[:10] == golden["first10"]
        assert sorted(order) == list(range(golden["N"]))


def test_draws_are_the_published_ones(goldens: dict):
    for label, golden in goldens["nanochat_fewshot"].items():
        task = TASKS[f"core/{label}"]
        assert task.profile.num_fewshot == golden["k"]
        for key, shots in golden.items():
            if not key.startswith("idx"):
                continue
            idx, _, limit = key.removeprefix("idx").partition("_max_per_task_")
            rows = task.file.rows or 0
            num_pool = min(rows, int(limit)) if limit else rows
            assert sampled(task.profile, int(idx), num_pool) == shots, (label, key)


def test_prompts_are_the_published_ones(goldens: dict, shared_data: Path):
    folder = core.locate(shared_data / "eval_bundle")
    for label, golden in goldens["nanochat_rendered_gpt2_bos50256"].items():
        task = TASKS[f"core/{label}"]
        prompts = render(task, read_examples(task, folder))
        for prompt, expected in zip(prompts, golden, strict=False):
            texts = [prompt.preamble + c + k for c, k in zip(prompt.contexts, prompt.continuations, strict=True)]
            if task.kind == "language_modeling":
                texts = [(prompt.preamble + prompt.contexts[0]).strip(), *texts]
            assert texts == expected["prompts"]
            assert prompt.gold == expected["gold"]


def test_draw_equals_sampling_a_list_without_the_item():
    for num_pool, idx in product((11, 12, 40, 85, 86, 87, 1000), (0, 1, 5, 10)):
        others = [i for i in range(num_pool) if i != idx]
        shots = sampled(TASKS["core/arc_easy"].profile, idx, num_pool)
        assert shots == random.Random(1234 + idx).sample(others, 10), (num_pool, idx)


def few(task: Task, num_fewshot: int) -> Task:
    return replace(task, profile=replace(task.profile, num_fewshot=num_fewshot))


def test_wording_of_multiple_choice_by_hand():
    # Two examples: each is the other's only few-shot example.  Random(1337) leaves [0, 1] or swaps it.
    task = few(TASKS["core/arc_easy"], 1)
    examples = [Example(0, (" q0 ",), ("a0", "b0"), 1), Example(1, ("q1",), ("a1", "b1", "c1"), 0)]
    prompts = {prompt.row: prompt for prompt in render(task, examples)}
    assert read(prompts[0]) == ["q1\nAnswer: a1\n\n q0 \nAnswer: "] * 2  # the query keeps its blanks
    assert prompts[0].continuations == ("a0", "b0")
    assert prompts[0].gold == 1
    assert read(prompts[1]) == [" q0 \nAnswer: b0\n\nq1\nAnswer: "] * 3
    assert prompts[1].contexts[0] is prompts[1].contexts[2]  # one string in memory


def test_wording_of_schema_and_language_modeling_by_hand():
    schema = [Example(0, ("the cat", "the dog"), ("ran",), 1), Example(1, ("a", "b"), ("c",), 0)]
    prompt = next(p for p in render(few(TASKS["core/winograd"], 1), schema) if p.row == 0)
    assert read(prompt) == ["a c\n\nthe cat ", "a c\n\nthe dog "]
    assert prompt.continuations == ("ran", "ran")
    assert prompt.gold == 1
    texts = [Example(0, (" x \n",), ("y ",), 0), Example(1, ("u",), ("v",), 0)]
    prompts = {p.row: p for p in render(few(TASKS["core/jeopardy"], 1), texts)}
    assert read(prompts[1]) == ["x\nAnswer: y \n\nu\nAnswer: "]  # contexts are stripped, continuations never
    assert prompts[1].gold is None


def test_limit_cuts_the_pool_but_leaves_enough_for_a_draw():
    task = TASKS["core/arc_easy"]
    examples = [Example(row, (f"q{row}",), ("a", "b"), 0) for row in range(50)]
    order = task.profile.item_order.call(50)
    everything = render(task, examples)
    assert [prompt.row for prompt in everything] == order
    assert [prompt.id for prompt in everything] == list(range(50))
    three = render(task, examples, limit=3)
    assert [prompt.row for prompt in three] == order[:3]
    pool = {f"q{row}" for row in order[:11]}  # max(3, 10 + 1) rows
    for prompt in three:
        shots = read(prompt)[0].split("\n\n")[:-1]
        assert {text.partition("\n")[0] for text in shots} == pool - {f"q{prompt.row}"}
    assert (pool_size(task.profile, None), pool_size(task.profile, 3), pool_size(task.profile, 20)) == (None, 11, 20)
    assert len(render(task, examples, limit=1000)) == 50


@pytest.mark.parametrize(
    ("name", "before", "limit", "moves"),
    [
        ("core/arc_easy", 11, 12, True),
        ("core/arc_easy", 10, None, True),
        ("core/arc_easy", 6, 11, False),  # ten shots: a pool of 11 either way
        ("core/arc_easy", 2376, 3000, False),  # all rows
        ("core/copa", 10, 12, False),  # no shots
        ("gauntlet/arc_easy", 10, 12, False),  # shots from the whole file
        ("mera-v1.2/bps", 10, 12, False),  # shots of its own
        ("miron-gen/en", 10, 12, False),
    ],
)
def test_whether_a_larger_limit_has_other_shots(name: str, before: int, limit: int | None, moves: bool):
    [task] = [each for suite in SUITES.values() for each in suite.tasks if each.name == name]
    assert draws_by_limit(task, before, limit) == moves


@pytest.mark.parametrize("rule", [PER_ITEM_1234, STREAM_1234, STREAM_LM_EVAL], ids=lambda rule: rule.name)
def test_no_example_is_its_own_shot(rule: Rule[ShotSampler]):
    for num_fewshot in (0, 1, 10):
        for idx, shots in enumerate(rule.call(30, num_fewshot)):
            assert len(set(shots) - {idx}) == len(shots) == num_fewshot
            assert set(shots) <= set(range(30))


def test_bad_sizes_are_refused():
    task = TASKS["core/copa"]
    examples = [Example(0, ("q",), ("a", "b"), 0)]
    for limit in (0, -3):
        with pytest.raises(InputError, match=f"--limit={limit}"):
            render(task, examples, limit)
    with pytest.raises(InputError, match=r"core/arc_easy: .* holds 1 examples, expected at least 11"):
        render(TASKS["core/arc_easy"], examples)


def test_a_large_task_renders_in_seconds(shared_data: Path):
    task = TASKS["core/bigbench_language_identification"]
    examples = read_examples(task, core.locate(shared_data / "eval_bundle"))
    start = time.process_time()
    assert len(render(task, examples)) == task.file.rows
    assert time.process_time() - start < 10  # about 0.7 s; drawing from lists of all others takes minutes
