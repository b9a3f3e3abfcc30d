"""Tokenized tasks and plans that an earlier run has kept give the same results, and are not taken where anything differs."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tokenizers import Tokenizer

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import DataState
from miron_jax.definitions.records import Profile
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.task_kinds import choice, kept_tasks
from miron_jax.evaluation.task_kinds.interface import LoadedTask, Setup
from miron_jax.evaluation.task_kinds.kept_tasks import KeptChunk, KeptTask
from miron_jax.files.kept import KeptArrays
from miron_jax.planning import request_batches
from miron_jax.planning.plan import make_plan
from miron_jax.planning.records import CostModel, Plan
from miron_jax.planning.request_batches import RequestPlanner, Totals, with_digests
from miron_jax.prompting.draws import STREAM_1234, shuffle
from miron_jax.runtime.journal import FOLDER
from miron_jax.tasks import registry
from miron_jax.tokens.records import Requests, concatenate
from miron_jax.tokens.spans import AFTER_CONTEXT
from miron_jax.tokens.tokenizers import load_tokenizer, reading_names_as_text
from miron_jax.tokens.truncation import LengthLimit
from tests.support import processes
from tests.support.command import Place, common
from tests.support.plan_check import COST
from tests.support.requests import requests_of, some_requests

NO_HASH = DataState("no published hash", None)


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which this test's commands keep plans, also of small tasks."""
    monkeypatch.setattr(request_batches, "LEAST_KEPT", 0)
    monkeypatch.setattr(kept_tasks, "LEAST_KEPT", 0)
    kept = lambda say: KeptArrays(tmp_path / "plans", say)  # noqa: E731
    monkeypatch.setattr("miron_jax.cli.eval.kept_plans", kept)
    monkeypatch.setattr("miron_jax.cli.plan.kept_plans", kept)
    return tmp_path / "plans"


def test_requests_of_a_smaller_type_are_the_same_requests() -> None:
    whole = some_requests()
    small = replace(whole, token_ids=whole.token_ids.astype(np.uint16))
    np.testing.assert_array_equal(with_digests(small).digests, with_digests(whole).digests)
    assert small.scored_ids.dtype == np.int32
    np.testing.assert_array_equal(small.scored_ids, whole.scored_ids)
    expected = make_plan(whole, COST)
    received = make_plan(small, COST)
    for each in fields(Plan):
        array = getattr(expected, each.name)
        assert getattr(received, each.name).dtype == array.dtype, each.name
        np.testing.assert_array_equal(getattr(received, each.name), array)


def nothing_is_made(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(choice, "tokenize", lambda *_: pytest.fail("tokenized again"))
    patch.setattr(request_batches, "make_plan", lambda *_: pytest.fail("planned again"))


def written(output: Path) -> dict[str, Any]:
    """All that a run has written, but for times."""
    files = {str(path.relative_to(output)): path.read_text() for path in sorted((output / "samples").rglob("*.jsonl"))}
    return files | {"results.json": without_times(json.loads((output / "results.json").read_text()))}


def without_times(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    times = re.compile(r"\w*seconds|\w*per_second|timeline|in_threads|finished|output")
    return {key: without_times(inner) for key, inner in value.items() if not times.fullmatch(key)}


@pytest.mark.parametrize("more", [(), ("--max_length=24",)])
def test_kept_plans_change_no_byte_of_the_results(
    more: tuple[str, ...], miron: Callable[..., Any], place: Place, plans: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    def results(output: str) -> dict[str, Any]:
        assert miron("eval", *common(place, tmp_path / output, *more)).status == 0
        return written(tmp_path / output)

    with monkeypatch.context() as patch:
        patch.setattr("miron_jax.cli.eval.kept_plans", lambda say: None)
        without = results("without")
        for output in ("resumed", "resumed without"):
            shutil.copytree(tmp_path / "without" / FOLDER, tmp_path / output / FOLDER)
        resumed_without = results("resumed without")
    assert len(without) == 5
    assert not plans.exists()
    assert results("cold") == without
    nothing_is_made(monkeypatch)
    assert results("warm") == without
    assert results("resumed") == resumed_without


def test_a_plan_serves_a_run_and_damage_is_made_again(
    miron: Callable[..., Any], place: Place, plans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = miron("plan", *common(place, tmp_path / "out"), "--json")
    assert first.status == 0, first.err
    for path in plans.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    again = miron("plan", *common(place, tmp_path / "out"), "--json")
    assert again.out == first.out
    assert again.err.count("is damaged: what it held is made again") == len(list(plans.iterdir())) > 8
    nothing_is_made(monkeypatch)
    assert miron("eval", *common(place, tmp_path / "out")).status == 0


def test_a_folder_that_is_refused_costs_a_line_and_no_result(
    miron: Callable[..., Any], place: Place, plans: Path, tmp_path: Path
) -> None:
    plans.mkdir(0o777)
    plans.chmod(0o777)
    ran = miron("eval", *common(place, tmp_path / "out"))
    assert ran.status == 0
    assert ran.err.count("plans are not kept for later runs") == 1
    assert not list(plans.iterdir())


KEEPS_ALL = """
from miron_jax.evaluation.task_kinds import kept_tasks
from miron_jax.planning import request_batches
from miron_jax.planning.plan import make_plan
request_batches.LEAST_KEPT = kept_tasks.LEAST_KEPT = 0
from miron_jax.cli import main
main()
"""


def test_plans_lie_below_the_folder_of_programs_unless_they_are_not_wanted(place: Place, tmp_path: Path) -> None:
    for flags in (["--noplan_cache"], ["--compilation_cache="], []):
        assert not (tmp_path / "programs").exists()
        flags = [*common(place, tmp_path / "out"), f"--compilation_cache={tmp_path / 'programs'}", *flags]
        processes.run("-c", KEEPS_ALL, "plan", *flags, check=True)
    assert len(list((tmp_path / "programs" / "plans").iterdir())) > 8


class Keys(NamedTuple):
    """A task with shots, and what its requests are made with."""

    source: LoadedTask
    setup: Setup
    max_length: int | None = None

    @property
    def key(self) -> str | None:
        return getattr(KeptTask(*self), "_key", None)

    def with_profile(self, **changes: Any) -> "Keys":
        task = replace(self.source.task, profile=replace(self.source.task.profile, **changes))
        return self._replace(source=self.source._replace(task=task))

    def with_example(self, **changes: Any) -> "Keys":
        first, *others = self.source.examples
        return self._replace(source=self.source._replace(examples=[replace(first, **changes), *others]))

    def with_setup(self, **changes: Any) -> "Keys":
        return self._replace(setup=replace(self.setup, **changes))

    def with_tokenizer(self, change: Callable[[Any], Any]) -> "Keys":
        """A tokenizer that was read anew, and changed."""
        tokenizer = load_tokenizer(str(self.setup.tokenizer.name_or_path))
        return self.with_setup(tokenizer=change(tokenizer) or tokenizer)


@pytest.fixture
def keys(place: Place, tmp_path: Path) -> Keys:
    config = RunConfig(
        model=str(place.model), tasks=("core/arc_easy",), data_dir=(("", str(place.data)),), allow_changed_data=True
    )
    [source] = find_inputs(config).sources
    kept = KeptArrays(tmp_path / "plans", pytest.fail)
    return Keys(source, Setup(config, load_tokenizer(str(place.model)), None, LengthLimit(None, None), kept=kept))  # type: ignore[arg-type]


@pytest.mark.parametrize(("highest", "dtype"), [(65_535, np.uint16), (65_536, np.int32)])
def test_ids_of_kept_requests_take_two_bytes_where_they_fit(
    highest: int, dtype: Any, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_tasks, "LEAST_KEPT", 0)
    made = requests_of([([1, highest], 1)])
    KeptTask(*keys).keep_requests(0, KeptChunk(made, 1, True))
    chunk = KeptTask(*keys).requests_from(0)
    assert chunk is not None
    assert chunk.requests.token_ids.dtype == dtype
    both = concatenate([chunk.requests, made])
    assert both.token_ids.dtype == np.int32
    assert both.token_ids.tolist() == 2 * [1, highest]


def without_a_merge(tokenizer: Any) -> None:
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    rules["model"]["merges"].pop()
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(rules))


def test_whatever_requests_hang_on_has_another_key(keys: Keys) -> None:
    example = keys.source.examples[0]
    others = {
        "a byte of a context": keys.with_example(contexts=(example.contexts[0] + ".",)),
        "a byte of a choice": keys.with_example(
            continuations=(example.continuations[0] + ".", *example.continuations[1:])
        ),
        "the right choice": keys.with_example(gold=(example.gold + 1) % 4),
        "a record fewer": keys._replace(source=keys.source._replace(examples=keys.source.examples[:-1])),
        "shots": keys.with_profile(num_fewshot=9),
        "seed of the shots": keys.with_profile(fewshot_draw=STREAM_1234),
        "seed of the order": keys.with_profile(item_order=shuffle(43)),
        "delimiter": keys.with_profile(delimiter="\n"),
        "span": keys.with_profile(span=AFTER_CONTEXT),
        "BOS": keys.with_profile(bos="never"),
        "truncation": keys.with_profile(truncation="whole_shots"),
        "examples of another file": keys._replace(
            source=keys.source._replace(task=replace(keys.source.task, shots_from=lambda: [example]))
        ),
        "limit": keys.with_setup(config=replace(keys.setup.config, limit=3)),
        "max_length": keys._replace(max_length=64),
        "a merge": keys.with_tokenizer(without_a_merge),
        "a special token": keys.with_tokenizer(lambda tokenizer: setattr(tokenizer, "bos_token", "the")),
        "an added token": keys.with_tokenizer(lambda tokenizer: tokenizer.add_tokens(["zibs"]) and None),
        "names as text": keys.with_tokenizer(reading_names_as_text),
    }
    received = {name: other.key for name, other in others.items()}
    assert keys.key is not None
    assert None not in received.values()
    assert len({keys.key, *received.values()}) == len(received) + 1, received
    assert keys.with_tokenizer(lambda tokenizer: None).key == keys.key
    assert keys.with_setup(config=replace(keys.setup.config, dtype="bfloat16", output="elsewhere")).key == keys.key


def test_code_of_a_user_has_no_key(keys: Keys) -> None:
    task = replace(keys.source.task, made_of=(Path("tasks.py"),))
    assert keys._replace(source=keys.source._replace(task=task)).key is None
    assert keys.with_tokenizer(lambda tokenizer: delattr(tokenizer, "taken_from")).key is None
    assert keys.with_setup(kept=None).key is None


def test_keys_of_all_suites_are_the_same_in_another_process(tmp_path: Path) -> None:
    """No part of a profile prints where it lies in memory."""
    for suite in registry.SUITES.values():
        for task in suite.tasks:
            if isinstance(task.profile, Profile):
                parts = kept_tasks._parts_of(LoadedTask(replace(task, shots_from=None), [], NO_HASH))
                assert " at 0x" not in repr(parts), task.name


TWICE = [np.asarray([1, 2]), np.asarray([1, 2])]  # equal sets of ids under two numbers


def planned(folder: Path, requests: Requests, cost: CostModel, lengths: tuple[int, ...] = ()) -> Plan:
    """The plan, from the folder if it is there."""
    return RequestPlanner(cost, Totals(), lengths, TWICE, KeptArrays(folder, pytest.fail)).plan(requests).plan


def test_whatever_a_plan_hangs_on_has_another_key(plans: Path) -> None:
    requests = requests_of([([9, 1, 2, 3, i], 3) for i in range(5)])
    planned(plans, requests, COST)
    others: list[tuple[Requests, CostModel, tuple[int, ...]]] = [
        (requests_of([([9, 1, 2, 3, i], 3) for i in range(6)]), COST, ()),
        (requests_of([([9, 1, 2, 3, i], 2) for i in range(5)]), COST, ()),
        (replace(requests, id_set=np.full(5, 0, np.int32)), COST, ()),
        (replace(requests, id_set=np.full(5, 1, np.int32)), COST, ()),
        (requests, replace(COST, flops_per_pair=2 * COST.flops_per_pair), ()),
        (requests, replace(COST, length_multiple=16), ()),
        (requests, replace(COST, sharing="none"), ()),
        (requests, replace(COST, length_class=lambda length: 0), ()),
        (requests, replace(COST, length_class=lambda length: 1), ()),
        (requests, COST, (64,)),
    ]
    for number, other in enumerate(others, 2):
        made = planned(plans, *other)
        assert len(list(plans.iterdir())) == number
        again = planned(plans, *other)
        for each in fields(Plan):
            array, read = getattr(made, each.name), getattr(again, each.name)
            assert array.dtype == read.dtype
            np.testing.assert_array_equal(array, read)
    assert len(list(plans.iterdir())) == len(others) + 1
