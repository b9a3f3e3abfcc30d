"""Spans, cuts and BOS against a slow twin that follows the published pseudo-code token by token."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Profile
from miron_jax.errors import InputError
from miron_jax.prompting.prompts import Prompt, render
from miron_jax.tasks import core
from miron_jax.tokens import requests as token_requests
from miron_jax.tokens.ragged import blocks, end_to_end, gather, offsets_of
from miron_jax.tokens.records import Bos, Requests, concatenate
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.spans import AFTER_CONTEXT, AFTER_CONTEXT_OR_DIFFERENCE, AFTER_STRIPPED_CONTEXT, CONTINUATION
from miron_jax.tokens.tokenizers import load_tokenizer, resolve_bos
from tests.support.tiny_tokenizer import BOS, TINY, trained

pytestmark = pytest.mark.newest

TASKS = {task.name: task for task in core.SUITE.tasks}
CHOICE = TASKS["core/copa"].profile
SCHEMA = TASKS["core/winograd"].profile
TEXT = TASKS["core/lambada_openai"].profile


class Slow:
    """A tokenizer that is not backed by the tokenizers library."""

    is_fast = False
    bos_token_id = BOS
    bos_token = "<|endoftext|>"

    def __call__(self, texts: list[str], add_special_tokens: bool, verbose: bool) -> dict[str, list[list[int]]]:
        assert not add_special_tokens
        return {"input_ids": [TINY.encode(text, add_special_tokens=False) for text in texts]}


def twin(prompt: Prompt, profile: Profile, tokenizer: Any, max_length: int | None) -> list[tuple[list[int], int]]:
    """What the published rules make of one prompt, one token at a time."""

    def ids(text: str) -> list[int]:
        return [resolve_bos(tokenizer).id, *tokenizer.encode(text, add_special_tokens=False)]

    options = [ids(prompt.preamble + c + k) for c, k in zip(prompt.contexts, prompt.continuations, strict=True)]
    if profile.span.name == "after_common_prefix":
        starts = [num_shared(options)] * len(options)
    elif profile.span.name == "common_suffix":
        ending_alike = num_shared([option[::-1] for option in options])
        starts = [len(option) - ending_alike for option in options]
    else:
        starts = [num_shared([ids((prompt.preamble + prompt.contexts[0]).strip()), *options])]
    cuts = [0 if max_length is None else max(0, len(option) - max_length) for option in options]
    return [(option[cut:], start - cut) for option, start, cut in zip(options, starts, cuts, strict=True)]


def num_shared(sequences: list[list[int]]) -> int:
    """How many tokens all of these share from their beginning."""
    shared = 0
    while shared < min(map(len, sequences)) and len({ids[shared] for ids in sequences}) == 1:
        shared += 1
    return shared


def pairs(requests: Requests) -> list[tuple[list[int], int]]:
    return [(tokens.tolist(), start) for tokens, start in requests]


def checked(
    prompts: Sequence[Prompt], profile: Profile, tokenizer: Any = TINY, max_length: int | None = None
) -> Requests:
    """Requests that equal the twin's."""
    requests = tokenize(prompts, profile, tokenizer, max_length, "test")
    assert pairs(requests) == [pair for prompt in prompts for pair in twin(prompt, profile, tokenizer, max_length)]
    return requests


def prompt_of(contexts: Sequence[str], continuations: Sequence[str], idx: int = 0) -> Prompt:
    return Prompt(idx, idx + 100, tuple(contexts), tuple(continuations), None if len(contexts) == 1 else 0)


WORDS = st.text(alphabet="abt he\n.,é界🙂", max_size=12)
OPTIONS = st.lists(WORDS, min_size=2, max_size=4)


@settings(max_examples=40)
@given(st.lists(st.tuples(WORDS, OPTIONS), min_size=1, max_size=4))
def test_choices_equal_the_twin(cases: list[tuple[str, list[str]]]):
    prompts = [prompt_of([context] * len(options), options, i) for i, (context, options) in enumerate(cases)]
    requests = checked(prompts, CHOICE)
    assert pairs(tokenize(prompts, CHOICE, Slow(), None, "test")) == pairs(requests)
    dtypes = (requests.token_ids.dtype, requests.offsets.dtype, requests.span_start.dtype)
    assert dtypes == (np.int32, np.int64, np.int32)
    assert (requests.span_start >= 1).all()  # the BOS is never scored


@settings(max_examples=40)
@given(st.lists(st.tuples(st.lists(WORDS, min_size=2, max_size=3, unique=True), WORDS), min_size=1, max_size=4))
def test_schemas_equal_the_twin(cases: list[tuple[list[str], str]]):
    checked([prompt_of(contexts, [end] * len(contexts), i) for i, (contexts, end) in enumerate(cases)], SCHEMA)


@settings(max_examples=40)
@given(st.lists(st.tuples(WORDS, st.text(alphabet="abt he", min_size=1).map("{}x".format)), min_size=1, max_size=4))
def test_continuations_equal_the_twin(cases: list[tuple[str, str]]):
    prompts = [prompt_of([context + " "], [end], i) for i, (context, end) in enumerate(cases)]
    requests = checked(prompts, TEXT)
    for request, prompt in enumerate(prompts):
        alone = [BOS, *TINY.encode(prompt.contexts[0].strip(), add_special_tokens=False)]
        whole = requests.tokens(request).tolist()
        assert requests.inexact_prefix[request] == (whole[: len(alone)] != alone)


@settings(max_examples=40)
@given(WORDS, OPTIONS, st.integers(1, 30))
def test_cuts_equal_the_twin(context: str, options: list[str], max_length: int):
    prompt = prompt_of([context] * len(options), options)
    expected = twin(prompt, CHOICE, TINY, max_length)
    if any(start < len(ids) and start < 1 for ids, start in expected):
        with pytest.raises(InputError, match="raise --max_length"):
            tokenize([prompt], CHOICE, TINY, max_length, "test")
        return
    requests = checked([prompt], CHOICE, TINY, max_length)
    whole = tokenize([prompt], CHOICE, TINY, None, "test")
    assert requests.truncated.tolist() == (np.diff(whole.offsets) > max_length).tolist()


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=8), st.integers(1, 12))
def test_sequences_are_gathered_in_blocks_of_any_size(sequences: list[list[int]], block: int):
    whole = end_to_end(sequences)
    rows = np.arange(len(sequences))[::-1]
    with patch("miron_jax.tokens.ragged.BLOCK", block):
        gathered = gather(whole.values, whole.offsets[:-1][rows], whole.lengths[rows])
        assert [row for a, b in blocks(gathered.offsets) for row in range(a, b)] == list(range(len(rows)))
    assert gathered.values.tolist() == [value for sequence in sequences[::-1] for value in sequence]
    assert gathered.offsets.tolist() == offsets_of([len(sequence) for sequence in sequences[::-1]]).tolist()


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch):
    prompts = [prompt_of(["the cat "] * 2, [f"sat {i}", "the mat"], i) for i in range(20)]
    whole = tokenize(prompts, CHOICE, TINY, 6, "test")
    monkeypatch.setattr(token_requests, "_CHUNK_CHARS", 50)
    pieces = tokenize(prompts, CHOICE, TINY, 6, "test")
    for field in ("token_ids", "offsets", "span_start", "truncated", "inexact_prefix"):
        assert np.array_equal(getattr(whole, field), getattr(pieces, field))
    assert len(whole) == 40
    assert whole.truncated.any()


def test_each_distinct_text_is_tokenized_once():
    seen: list[str] = []

    class Counting(Slow):
        def __call__(self, texts: list[str], **rest: Any) -> dict[str, list[list[int]]]:
            seen.extend(texts)
            return super().__call__(texts, **rest)

    tokenize([prompt_of(["q "] * 3, ["a", "b", "a"])] * 2, CHOICE, Counting(), None, "test")
    assert sorted(seen) == ["q a", "q b"]


def test_spans_of_no_token():
    """A choice that begins another, equal choices, no prompt."""
    for continuations, empty in ((["sat", "sat."], [True, False]), (["a", "a"], [True, True])):
        requests = tokenize([prompt_of(["the cat "] * 2, continuations)], CHOICE, TINY, None, "test")
        assert [len(tokens) == start for tokens, start in requests] == empty
    assert len(tokenize([], CHOICE, TINY, None, "test")) == 0
    assert concatenate([]).offsets.tolist() == [0]


def test_a_span_over_the_limit_is_an_error_with_numbers():
    prompt = prompt_of(["the cat "], ["x" * 9], idx=3)
    # Ten tokens are scored: the blank and nine letters, none of them merged.  A limit of 10 leaves no token before them.
    for limit in (6, 9, 10):
        with pytest.raises(InputError) as error:
            tokenize([prompt_of(["a "], ["b"]), prompt], TEXT, TINY, limit, "core/lambada_openai")
        where = "core/lambada_openai, example 3 (row 103), option 0"
        for part in (where, "has 10 tokens", "--max_length to at least 11", f"limit is {limit}:"):
            assert part in str(error.value)
    assert tokenize([prompt], TEXT, TINY, 11, "test").span_start.tolist() == [1]


def test_spans_without_anything_before_or_in_them_are_errors():
    with pytest.raises(InputError, match=r"option 0: the scored span has no token before it"):
        tokenize([prompt_of(["same "] * 2, ["end"] * 2)], SCHEMA, TINY, None, "test")
    with pytest.raises(InputError, match="adds no token to its context"):
        tokenize([prompt_of(["the cat"], [""])], TEXT, TINY, None, "test")


def test_settings_of_a_tokenizer_file_do_not_leak_in():
    tokenizer = trained(["<|endoftext|>"])
    tokenizer.backend_tokenizer.enable_truncation(3)
    tokenizer.backend_tokenizer.enable_padding(length=50)
    prompts = [prompt_of(["the cat "] * 2, ["sat on the mat", "is blue"])]
    assert pairs(tokenize(prompts, CHOICE, tokenizer, None, "test")) == twin(prompts[0], CHOICE, TINY, None)


def test_bos_rules():
    def fake(bos: str | None, vocabulary: dict[str, int]) -> SimpleNamespace:
        return SimpleNamespace(bos_token=bos, bos_token_id=vocabulary.get(bos or ""), get_vocab=lambda: vocabulary)

    both = {"<|endoftext|>": 3, "<|bos|>": 0, "<s>": 7}
    assert resolve_bos(fake("<s>", both)) == Bos(7, "declared <s>")
    assert resolve_bos(fake("<|bos|>", both)) == Bos(0, "declared <|bos|>")  # id 0 counts as declared
    assert resolve_bos(fake(None, both)) == Bos(0, "vocabulary <|bos|>")
    assert resolve_bos(fake(None, {"<|endoftext|>": 3})) == Bos(3, "vocabulary <|endoftext|>")
    with pytest.raises(InputError, match="declares no bos_token"):
        resolve_bos(fake(None, {"a": 1}))


def adding(single: str) -> PreTrainedTokenizerFast:
    """A tokenizer that puts <s> before every text itself, and perhaps </s> after it."""
    tokenizer = trained(["<|endoftext|>", "<s>", "</s>"])
    special = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("<s>", "</s>")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)
    tokenizer.bos_token, tokenizer.eos_token = "<s>", "</s>"
    return tokenizer


def test_no_eos_stays_after_a_preamble():
    """Preamble, context and continuation are tokenized apart; a preamble of no text is BOS and EOS."""
    profile = replace(TEXT, boundary="segments", bos="as_tokenizer", span=CONTINUATION)
    tokenizer = adding("<s> $A </s>")
    for preamble in ("", "the sky "):
        prompt = replace(prompt_of(["the cat"], [" sat"]), shots=(preamble,))
        [(tokens, start)] = tokenize([prompt], profile, tokenizer, None, "test")
        before = tokenizer.encode(preamble)[:-1] + tokenizer.encode("the cat", add_special_tokens=False)
        assert tokens[:start].tolist() == before
        assert tokens[start:].tolist() == tokenizer.encode(" sat", add_special_tokens=False)


def test_one_bos_whoever_adds_it():
    """With lm-eval's rule a text that begins with BOS gets no other; in place of an empty context stands BOS."""
    profile = replace(TEXT, bos="as_tokenizer_or_prefix", span=AFTER_CONTEXT_OR_DIFFERENCE)
    adds_bos = adding("<s> $A")
    bos = adds_bos.bos_token_id
    for tokens, _ in tokenize([prompt_of(["a "] * 2, ["b", "c"])], CHOICE, adds_bos, None, "test"):
        assert (tokens == bos).tolist() == [True] + [False] * (len(tokens) - 1)
    for context, continuation in (("<s>the cat", " sat"), ("the cat", " sat"), ("", "sat"), ("", "<s>sat")):
        [(tokens, start)] = tokenize([prompt_of([context], [continuation])], profile, adds_bos, None, "test")
        assert (tokens == bos).tolist() == [True] + [False] * (len(tokens) - 1), (context, continuation)
        assert start == 1 + len(adds_bos.encode(context.removeprefix("<s>"), add_special_tokens=False))


def test_spans_after_a_context_by_hand():
    # request 1 2 5 6, its context alone 1 2: from 5; one token reaches over the boundary: nothing, or from what differs
    whole, before = end_to_end([[1, 2, 5, 6], [1, 2, 5], [1, 2, 5]]), end_to_end([[1, 2], [1, 2, 3], [1, 2, 3, 4]])
    one = np.ones(3, np.int64)
    assert AFTER_CONTEXT.call(whole, before, one).tolist() == [2, 3, 3]
    assert AFTER_CONTEXT_OR_DIFFERENCE.call(whole, before, one).tolist() == [2, 2, 2]
    assert AFTER_STRIPPED_CONTEXT.call(whole, before, one).tolist() == [2, 2, 2]


DAMAGE: list[tuple[str, str | None, Any]] = [
    ("tokenizer_config", "tokenizer_class", 3),
    ("tokenizer_config", "added_tokens_decoder", {"0": 1.5}),
    ("tokenizer_config", "model_max_length", {}),
    ("tokenizer_config", None, "[1]"),
    ("tokenizer_config", "bos_token", 10**30),
    ("tokenizer_config", None, '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"),
    ("tokenizer", "added_tokens", [{"id": -1}]),
    ("tokenizer", "model", {"type": "BPE", "vocab": {"a": 1}, "merges": ["a b c"]}),
    ("tokenizer", "decoder", 1),
    ("tokenizer", None, "{"),
    ("tokenizer", None, '{"added_tokens": [], "model": {"type": "?"}}'),
]


def test_a_damaged_tokenizer_is_one_sentence(tmp_path: Path):
    """A field replaced by another value, or a whole file by a text."""
    with pytest.raises(InputError, match="there is no such folder"):
        load_tokenizer(str(tmp_path / "absent"))
    with pytest.raises(InputError, match="no tokenizer could be read"):
        load_tokenizer("nobody/such-a-model")  # the hub is offline in tests
    TINY.save_pretrained(tmp_path)
    for file, field, value in DAMAGE:
        path = tmp_path / f"{file}.json"
        whole = path.read_text()
        path.write_text(value if field is None else json.dumps(json.loads(whole) | {field: value}))
        with pytest.raises(InputError, match="no tokenizer could be read") as error:
            load_tokenizer(str(tmp_path))
        assert "\n" not in str(error.value), (file, field, str(value)[:20])
        path.write_text(whole)
    assert load_tokenizer(str(tmp_path)).get_vocab() == TINY.get_vocab()


def test_code_in_a_tokenizers_folder_never_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """transformers asks whether to run it, and `yes` may stand on standard input."""
    folder, marker = tmp_path / "model", tmp_path / "ran"
    TINY.save_pretrained(folder)
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Own: pass\n")
    fields = json.loads((folder / "tokenizer_config.json").read_text())
    fields |= {"auto_map": {"AutoTokenizer": ["own.Own", "own.Own"]}, "tokenizer_class": "Own"}
    (folder / "tokenizer_config.json").write_text(json.dumps(fields))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    with pytest.raises(InputError, match="contains custom code"):
        load_tokenizer(str(folder))
    assert not marker.exists()


@pytest.mark.parametrize("label", ["arc_easy", "winogrande", "jeopardy"])
def test_real_prompts_equal_the_twin_with_a_real_tokenizer(shared_data: Path, smollm2: Path, label: str):
    tokenizer, task = load_tokenizer(str(smollm2)), TASKS[f"core/{label}"]
    prompts = render(task, read_examples(task, core.locate(shared_data / "eval_bundle")), limit=15)
    for max_length in (None, 256):
        requests = checked(prompts, task.profile, tokenizer, max_length)
        assert requests.truncated.any() == (max_length is not None and task.profile.num_fewshot > 0)
