"""The mended Gauntlet: each fault on a row of its source, what it leaves alone, and its names."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from miron_jax.definitions.data_files import data_state, read_examples
from miron_jax.definitions.records import Example, Measured, PromptedTask
from miron_jax.definitions.rules import printed
from miron_jax.metrics.answers import may_be_right, score_answer
from miron_jax.prompting.prompts import render
from miron_jax.tasks.gauntlet import fixed, suite
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.truncation import LengthLimit
from tests.support.tiny_tokenizer import TINY

EXACT = {task.name.partition("/")[2]: task for task in suite.SUITE.tasks}
MENDED = {task.name.partition("/")[2]: task for task in suite.FIXED.tasks}


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return suite.locate(shared_data / "eval_bundle")


def both(label: str, folder: Path) -> tuple[list[Example], list[Example]]:
    return read_examples(EXACT[label], folder), read_examples(MENDED[label], folder)


def test_options_in_a_query_change_places_where_gold_leans(folder: Path) -> None:
    """Gold of commonsense_qa stands under C in 492 of 1,221 rows: more than 305.25 + 4 * sqrt(1221 * 3 / 16) = 365.8.

    Row 0 asks for bank, department store, mall or new york.  The hashes of "commonsense_qa 0 0" to "commonsense_qa 0 3"
    begin with dfa6, 327c, feb2 and 1962; from the smallest on that is 3, 1, 0, 2: new york, department store, bank, mall.
    Gold was A, the bank, which now stands under C.
    """
    published, mended = both("commonsense_qa", folder)
    assert Counter(example.gold for example in published) == {0: 239, 1: 255, 2: 492, 3: 235}
    before, after = published[0].contexts[0], mended[0].contexts[0]
    assert before.endswith("\nA. bank\nB. department store\nC. mall\nD. new york\nAnswer:")
    question = before[: before.index("\nA. ")]
    assert after == f"{question}\nA. new york\nB. department store\nC. bank\nD. mall\nAnswer:"
    assert (published[0].gold, mended[0].gold, mended[0].continuations) == (0, 2, ("A", "B", "C", "D"))
    assert not fixed.leans(mended)
    for old, new in zip(published, mended, strict=True):  # the right text is still the right one, among the same others
        texts = [[each.contexts[0][span] for span in fixed.options_of(each.contexts[0], 4)] for each in (old, new)]
        assert sorted(texts[0]) == sorted(texts[1])
        assert texts[0][old.gold or 0] == texts[1][new.gold or 0]
    # "below" stands in an option of three rows: one that may point at another option stays
    assert [i for i in (487, 825, 878) if published[i] == mended[i]] == [487, 825, 878]


def test_choices_that_a_query_does_not_list_change_places(folder: Path) -> None:
    """Row 0 of novel_concepts: "novel_concepts 0 i" hashes to 70f8, 0e56, e472, 2778, so the order is 1, 3, 0, 2."""
    published, mended = both("bigbench_novel_concepts", folder)
    texts = published[0].continuations
    assert published[0].gold == 0
    assert mended[0].continuations == (texts[1], texts[3], texts[0], texts[2])
    assert (mended[0].gold, mended[0].contexts) == (2, published[0].contexts)
    # A model that finds all choices equal takes the first: it was right in 32 of 32 rows.
    assert Counter(example.gold for example in mended)[0] == 3
    for label in ("bigbench_strange_stories", "boolq"):
        assert fixed.leans(read_examples(EXACT[label], folder)), label


def test_the_rows_of_mmlu_are_read(shared_data: Path) -> None:
    """Its options stand on one line.  "mmlu 0 i" hashes to f181, 59da, 0e10, 8bdc: the order is 2, 1, 3, 0."""
    line = (shared_data / "eval_bundle_samples" / "mmlu_small.jsonl").read_text().splitlines()[0]
    example = EXACT["mmlu"].parse(json.loads(line), 0)
    query = example.contexts[0]
    a, b, c, d = (query[span] for span in fixed.options_of(query, 4))
    assert query.endswith(f"\n(A) {a} (B) {b} (C) {c} (D) {d}")
    mended = fixed.permuted("mmlu", example)
    assert mended.contexts[0].endswith(f"\n(A) {c} (B) {b} (C) {d} (D) {a}")
    assert (example.gold, mended.gold) == (1, 1)


def choice(query: str, *choices: str) -> Example:
    return Example(0, (query,), choices, 0)


@pytest.mark.parametrize(
    "example",
    [
        choice("Q?\nA. it is B. x\nB. two\nA. three", "A", "B"),  # a mark twice
        choice("Q?\nChoices: A. one\nB. two", "A", "B"),  # logi_qa's: a mark that opens no line
        choice("Q?\nA. one\nmore\nB. two", "A", "B"),  # an option of two lines
        choice("Q?\nA. \nB. two", "A", "B"),  # an empty one
        choice("Q?\nB. two\nA. one", "A", "B"),  # another order
        choice("Q?\nA. one\nB. two\nC. both A and B", "A", "B", "C"),
        choice("Q?\nA. one\nB. two\nC. all of the above", "one", "two", "all of the above"),
    ],
)
def test_options_that_cannot_be_told_apart_stay(example: Example) -> None:
    for row in range(20):
        at_row = replace(example, row=row)
        assert fixed.permuted("x", at_row) == at_row


def test_choices_that_a_query_also_lists_change_places_in_both() -> None:
    """ "x 0 i" hashes to df66, 6bcd: the order is 1, 0; "x 3 i" to 1300, d4f3: 0, 1."""
    example = choice("Q?\nA.) one\nB.) two\nA:", "one", "two ")
    assert fixed.permuted("x", example) == replace(choice("Q?\nA.) two\nB.) one\nA:", "two ", "one"), gold=1)
    assert fixed.permuted("x", replace(example, row=3)) == replace(example, row=3)


@pytest.mark.parametrize(
    ("golds", "num", "leans"),
    [
        ([0] * 32, 4, True),  # 8 + 4 * sqrt(32 * 3 / 16) = 17.8
        ([0] * 17 + [1] * 5 + [2] * 5 + [3] * 5, 4, False),
        ([0] * 18 + [1] * 5 + [2] * 5 + [3] * 4, 4, True),
        ([0] * 16, 2, False),  # 8 + 4 * sqrt(16 / 4) = 16 is not passed
        ([1] * 17, 2, True),  # 8.5 + 4 * sqrt(17 / 4) = 16.7
    ],
)
def test_gold_leans_by_counts(golds: list[int], num: int, leans: bool) -> None:
    examples = [Example(row, ("Q?",), tuple("abcd"[:num]), gold) for row, gold in enumerate(golds)]
    assert fixed.leans(examples) == leans


def test_answers_are_exact(folder: Path) -> None:
    """Row 0 of each source: triviaqa asks for Onion, svamp for 1, gsm8k for 18."""

    def right(label: str, text: str) -> tuple[bool | None, bool | None]:
        accepted = read_examples(EXACT[label], folder)[0].accepted
        judged = [score_answer(text, accepted, tasks[label].profile).correct for tasks in (EXACT, MENDED)]
        return judged[0], judged[1]

    assert right("triviaqa_sm_sub", " The onion.") == (True, True)  # case, article and full stop are no difference
    assert right("triviaqa_sm_sub", " Onion rings") == (True, False)
    assert right("svamp", "\n( 8.0 - 7.0 ) #### 12") == (True, False)  # "12" begins with "1"
    assert right("gsm8k", " 16 - 3 - 4 = 9\n9 * 2 = 18 #### 18\nShe also") == (True, True)  # the answer's line
    assert right("gsm8k", " #### 18 dollars") == (True, False)
    assert right("gsm8k", " #### $18.") == (True, True)
    # An alias of row 2102, "(a", is nothing once normalized: every completion begins with it.
    trivia = read_examples(EXACT["triviaqa_sm_sub"], folder)[2102]
    judged = [
        score_answer("no idea", trivia.accepted, each["triviaqa_sm_sub"].profile).correct for each in (EXACT, MENDED)
    ]
    assert judged == [True, False]
    assert may_be_right(trivia.accepted, MENDED["triviaqa_sm_sub"].profile)


def test_prompts_have_two_thousand_tokens(folder: Path) -> None:
    """The first prompt of sat_en has some 4,100 tokens of GPT-2: v0.1.0 keeps 1,024 of them."""
    lasting: list[Any] = []
    for task in (EXACT["agi_eval_sat_en"], MENDED["agi_eval_sat_en"]):
        prompts = render(task, read_examples(task, folder), limit=1)
        most = LengthLimit(None, None).of(task.profile)
        tokens, _ = next(iter(tokenize(prompts, task.profile, TINY, most, "t")))
        lasting.append(tokens)
    assert [*map(len, lasting)] == [1024, 2048]
    assert lasting[1][-1024:].tolist() == lasting[0].tolist()


def changed(label: str) -> set[str]:
    exact, mended = printed(EXACT[label].profile), printed(MENDED[label].profile)
    return {name for name in mended if mended[name] != exact.get(name)}


def test_nothing_else_differs() -> None:
    wording = {"protocol", "max_length"}
    for label, task in MENDED.items():
        more: set[str] = set()
        if task.kind == "generation":
            more = {"stop", "answer_normalizer", "match"}
        if task.kind == "multiple_choice":
            more = {"choice_order"}
        assert changed(label) == wording | more, label
        assert (task.file, task.section, task.baselines) == (
            EXACT[label].file,
            EXACT[label].section,
            EXACT[label].baselines,
        )


def prompts_of(task: PromptedTask, folder: Path) -> list[Any]:
    return render(task, read_examples(task, folder), limit=40)


@pytest.mark.slow
def test_prompts_of_the_others_are_the_published_ones(folder: Path) -> None:
    local = [label for label, task in EXACT.items() if data_state(task, folder).state == "as published"]
    same = {label for label in local if prompts_of(EXACT[label], folder) == prompts_of(MENDED[label], folder)}
    leaning = {"commonsense_qa", "bigbench_novel_concepts", "bigbench_strange_stories", "boolq"}
    assert (len(local), set(local) - same) == (43, leaning)


def test_composites_bear_other_names() -> None:
    measured = {name: Measured(1.0, 100) for tasks in suite.FIXED_AVERAGES.categories.values() for name in tasks}
    composites = suite.FIXED.composites(measured)
    assert {name: each.value for name, each in composites.items()} == pytest.approx(dict.fromkeys(composites, 1.0))
    assert composites.keys() == {f"fixed_{name}" for name in suite.AVERAGES.composites({}) if "partial" not in name}
    # Scores of the published tasks never enter them, nor theirs the published ones.
    assert suite.AVERAGES.composites(measured)["core_average"].value is None
    published = {name: Measured(1.0, 100) for tasks in suite.AVERAGES.categories.values() for name in tasks}
    assert suite.FIXED.composites(published)["fixed_core_average"].value is None
