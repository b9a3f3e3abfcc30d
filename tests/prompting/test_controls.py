"""Controls: the parts of contexts by hand, what each control changes, what is absent, and how many examples are drawn."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from miron_jax.definitions.records import Example
from miron_jax.prompting.controls import (
    ANSWER_ONLY,
    CONTROLS,
    LEAST,
    PERMUTED_OPTIONS,
    SHARE,
    SHUFFLED_SHOTS,
    STEM_SWAP,
    ControlPrompts,
    Parts,
    control_prompts,
    parts_of,
)
from miron_jax.prompting.prompts import Prompt, render
from miron_jax.tasks import core
from tests.support.own_task import CHOICE, read_task

WORDS = ("sun", "rain", "hill", "cat", "sea")
ASKED = CHOICE.replace("question: q", 'question: "Question: {{q}}"') + 'delimiter: "\\nAnswer: "\n'


def of(contexts: str | tuple[str, ...], *continuations: str, row: int = 0, **more: Any) -> Example:
    return Example(row, (contexts,) if isinstance(contexts, str) else contexts, continuations, 0, **more)


def nodes(prompts: list[Prompt]) -> int:
    """Of tries of letters."""
    texts = [p.preamble + c + e for p in prompts for c, e in zip(p.contexts, p.continuations, strict=True)]
    return len({text[:end] for text in texts for end in range(1, len(text) + 1)})


def records(num_records: int, letters: bool = False) -> list[dict[str, Any]]:
    made = []
    for i in range(num_records):
        options = [f"{word} {i % 7}" for word in WORDS[: 2 + i % 3]]
        question = f"which of {i} is it here?"
        if letters:
            listed = "\n".join(f"{letter}. {option}" for letter, option in zip("ABCD", options, strict=False))
            question, options = f"{question}\n{listed}", list("ABCD"[: len(options)])
        made.append({"q": question, "c": options, "a": i % 2})
    return made


def controls(folder: Path, keys: str, rows: list[Any], seed: int = 0) -> tuple[list[Prompt], ControlPrompts]:
    task, examples = read_task(folder, keys, rows)
    prompts = render(task, examples)
    return prompts, control_prompts(task, examples, prompts, seed)


def by_control(made: ControlPrompts, control: str) -> list[Prompt]:
    """Prompts of this control, with the ids of their examples."""
    chosen = [prompt for prompt, each in zip(made.prompts, made.controls, strict=True) if each == control]
    return [replace(prompt, id=i) for prompt, i in zip(chosen, made.ids, strict=False)]


def parts(examples: list[Example]) -> list[Parts]:
    """Of examples without rows."""
    return [*parts_of([replace(example, row=i) for i, example in enumerate(examples)]).values()]


def test_contexts_in_their_parts_by_hand() -> None:
    """The task's words stand before and behind the question; so do options under letters, of the last list alone."""
    one, two = parts([of("Question: Why so?\nAnswer:", " we", " you"), of("Question: Who is?\nAnswer:", " we", " you")])
    assert (one.before, one.question, one.rest) == ("Question: ", "Why so?", ("\nAnswer:",))
    assert two.asking(one.question).contexts == ("Question: Why so?\nAnswer:",)

    shot = "Question: x\n A. u\n B. v\nAnswer: A\n\n"
    lettered = [
        of(f"{shot}Question: {text}\n A. A. Lee\n B. two\nAnswer:", " A", " B") for text in ("Why A. Lee", "Who?")
    ]
    one, two = parts(lettered)
    assert (one.before, one.question, two.question) == (f"{shot}Question: ", "Why A. Lee", "Who?")
    assert [one.example.contexts[0][slice(*span)] for span in one.options] == ["A. Lee", "two"]
    inline = [of(f"Story {i}. Gap? A: x y; B: z\nAnswer:", " A", " B") for i in "pq"]
    assert [each.example.contexts[0][slice(*span)] for each in parts(inline) for span in each.options] == [
        "x y",
        "z",
    ] * 2
    with_order = [of(f"Story {i}. A: x y; B: {i}z. Choose one.\nAnswer:", " A", " B") for i in "pq"]
    assert [each.example.contexts[0][slice(*each.options[1])] for each in parts(with_order)] == ["pz.", "qz."]
    code = [of(f"Which of {i}?\nA. def f():\n  pass\nB. def g():\n  pass\nAnswer:", " A", " B") for i in "pq"]
    assert [each.options for each in parts(code)] == [(), ()], "where an option of several lines ends is not known"
    lsat, _ = parts([of(f"{text}\nA.) day 2\nB.) day 4\nAnswer: ", "A", "B") for text in ("One?", "Two?")])
    assert (lsat.question, lsat.example.contexts[0][slice(*lsat.options[1])]) == ("One?", "day 4")

    one, two = parts(
        [
            of(("It is hot so the sun", "It is hot so the rain"), " falls"),
            of(("It is cold, Ann", "It is cold, Bea"), " is"),
        ]
    )
    assert (one.before, one.question, one.rest) == ("It is ", "hot so the ", ("sun", "rain"))
    assert (two.question, two.rest) == ("cold, ", ("Ann", "Bea"))

    # numbers that are answers of one example only are no letters
    one, _ = parts([of("How many?\nAnswer:", " 0", " 1"), of("Who?\nAnswer:", " we", " you")])
    assert (one.question, one.rest, one.options) == ("How many?", ("\nAnswer:",), ())
    # each category has other words
    of_two = [of(f"About {name}: {i}", "a", "b", category=name) for name in ("law", "art") for i in range(2)]
    assert [each.before for each in parts(of_two)] == ["About law: "] * 2 + ["About art: "] * 2


def test_each_control_changes_one_thing(tmp_path: Path) -> None:
    prompts, made = controls(tmp_path, f"{ASKED}num_fewshot: 3\n", records(40))
    assert (set(made.absent), len(made.ids) >= LEAST) == ({PERMUTED_OPTIONS}, True)
    plain = {prompt.id: prompt for prompt in prompts}
    asked = {prompt.contexts[0] for prompt in prompts}
    for prompt in by_control(made, STEM_SWAP):
        before = plain[prompt.id]
        assert prompt.contexts[0] != before.contexts[0]
        assert prompt.contexts[0] in asked, "the question of another example"
        assert replace(prompt, contexts=before.contexts) == before
    for prompt in by_control(made, ANSWER_ONLY):
        assert set(prompt.contexts) == {"\n\nQuestion: which of  is it here?\nAnswer: "}
        assert replace(prompt, contexts=plain[prompt.id].contexts) == plain[prompt.id]
    for prompt in by_control(made, SHUFFLED_SHOTS):
        before = plain[prompt.id]
        assert prompt.shots != before.shots
        pairs = [[shot.strip().split("\nAnswer: ") for shot in each.shots] for each in (prompt, before)]
        assert [question for question, _ in pairs[0]] == [question for question, _ in pairs[1]]
        assert Counter(answer for _, answer in pairs[0]) == Counter(answer for _, answer in pairs[1])
        assert replace(prompt, shots=before.shots) == before
    again = controls(tmp_path, f"{ASKED}num_fewshot: 3\n", records(40))[1]
    other = controls(tmp_path, f"{ASKED}num_fewshot: 3\n", records(40), seed=1)[1]
    assert (again == made, other.ids == made.ids) == (True, False)


def test_permuted_options_take_gold_along(tmp_path: Path) -> None:
    by_hand = of("Why?\nA. p\nB. q\nC. r\nAnswer:", "A", "B", "C", also_right=(2,))
    one, _ = parts([by_hand, replace(by_hand, contexts=("Who?\nA. p\nB. q\nC. r\nAnswer:",))])
    changed = one.permuted([1, 2, 0])
    assert (changed.contexts, changed.gold) == (("Why?\nA. q\nB. r\nC. p\nAnswer:",), 2)
    assert changed.also_right == (1,), "r stands under B"

    prompts, made = controls(tmp_path, ASKED, records(60, letters=True))
    plain = {prompt.id: prompt for prompt in prompts}
    moved = 0
    for prompt in by_control(made, PERMUTED_OPTIONS):
        right = [
            dict(line.split(". ") for line in each.contexts[0].split("\n")[1:-1])["ABCD"[each.gold or 0]]
            for each in (prompt, plain[prompt.id])
        ]
        assert right[0] == right[1], "the right option is under its new letter"
        moved += prompt.gold != plain[prompt.id].gold
    assert moved
    assert prompt.continuations == plain[prompt.id].continuations
    [other] = {each.contexts[0].split("\n", 1)[1] == plain[each.id].contexts[0].split("\n", 1)[1]
               for each in by_control(made, STEM_SWAP)}  # fmt: skip
    assert other, "a swapped question has the options of the example"


@pytest.mark.parametrize(
    ("keys", "change", "control", "why"),
    [
        (ASKED, {}, SHUFFLED_SHOTS, "its prompts have no two shots"),
        (f"{ASKED}num_fewshot: 1\n", {}, SHUFFLED_SHOTS, "its prompts have no two shots"),
        (ASKED, {}, PERMUTED_OPTIONS, "its prompts list no options under letters"),
        (ASKED, {"q": "Which is it?"}, STEM_SWAP, "its prompts have no question that could be another one"),
        (ASKED, {"c": ["A", "B"]}, STEM_SWAP, "its choices are letters or numbers, and its prompts list no"),
        (f"{CHOICE}bos: never\n", {"q": None}, ANSWER_ONLY, "nothing would be left before the choices"),
    ],
)
def test_an_absent_control_says_why(tmp_path: Path, keys: str, change: dict, control: str, why: str) -> None:
    rows = [{**row, **change} for row in records(40)]
    if change.get("q", "") is None:
        rows = [{**row, "q": f"{i}?"} for i, row in enumerate(rows)]
    made = controls(tmp_path, keys, rows)[1]
    assert made.absent[control].startswith(why)
    assert not by_control(made, control)


def test_so_few_examples_have_no_controls(tmp_path: Path) -> None:
    made = controls(tmp_path, ASKED, records(3))[1]
    assert (made.prompts, set(made.absent)) == ([], {*CONTROLS})
    assert "controls of 2 of its 3 examples would cost more than 0.5 of the task" in made.absent[STEM_SWAP]


@pytest.mark.parametrize("shots", [0, 2, 5])
def test_drawn_examples_keep_the_share(tmp_path: Path, shots: int) -> None:
    prompts, made = controls(tmp_path, f"{ASKED}num_fewshot: {shots}\n", records(50))
    cost = nodes(made.prompts) / nodes(prompts)
    assert 0.5 * SHARE < cost < 1.15 * SHARE
    assert len(made.ids) == len(set(made.ids)) == len(by_control(made, STEM_SWAP))


def test_equal_shots_are_shuffled_alike() -> None:
    """Shots that all questions share are computed once more, not once more for each question."""
    from miron_jax.prompting.draws import FIRST_SHOTS

    examples = [of(f"question {i} is", f"yes {i}", f"no {i}", row=i) for i in range(60)]
    task = next(task for task in core.SUITE.tasks if task.name == "core/arc_easy")
    task = replace(
        task,
        profile=replace(task.profile, fewshot_draw=FIRST_SHOTS, fewshot_pool="other_file", num_fewshot=4),
        shots_from=lambda: [of(f"is {i} it?", f"yes {i}" * 12, "no", row=i) for i in range(4)],
    )
    prompts = render(task, examples)
    made = control_prompts(task, examples, prompts, 0)
    assert len({prompt.shots for prompt in by_control(made, SHUFFLED_SHOTS)}) == 1
    assert 0.75 * SHARE < nodes(made.prompts) / nodes(prompts) < 1.15 * SHARE


def test_a_swapped_question_is_another_one(tmp_path: Path) -> None:
    """Although most examples ask the same, as twins of Winograd do."""
    rows = [{**row, "q": f"who is {i % 10 == 0}?"} for i, row in enumerate(records(60))]
    prompts, made = controls(tmp_path, ASKED, rows)
    for prompt in by_control(made, STEM_SWAP):
        assert prompt.contexts[0] != prompts[prompt.id].contexts[0]


def test_shots_get_other_answers_where_there_are_some(tmp_path: Path) -> None:
    """Of 5 shots that say yes or no, as many keep theirs as the more common answer has beyond half; of equal ones all do."""
    rows = [{"q": f"is {i} so?", "c": ["yes", "no"], "a": int(i % 3 == 0)} for i in range(40)]
    prompts, made = controls(tmp_path, f"{ASKED}num_fewshot: 5\n", rows)
    plain = {prompt.id: prompt for prompt in prompts}
    for prompt in by_control(made, SHUFFLED_SHOTS):
        answers, before = (
            [shot.strip().rpartition(" ")[2] for shot in each.shots] for each in (prompt, plain[prompt.id])
        )
        kept = sum(map(str.__eq__, answers, before))
        assert kept == max(0, 2 * max(Counter(before).values()) - 5)
    alike = [{**row, "a": 0} for row in rows]
    _, made = controls(tmp_path, f"{ASKED}num_fewshot: 5\n", alike)
    assert made.absent[SHUFFLED_SHOTS] == "the shots of a prompt all have the same answer"


def test_a_context_of_any_example_may_be_empty(tmp_path: Path) -> None:
    """Law's contexts begin alike, art's have nothing in common; without BOS no token would stand before art's choices."""
    keys = CHOICE + "categories: reported\ncategory: k\nnum_fewshot: 0\nrules: gauntlet\nbos: never\n"
    texts = ("In law, who is it", "In law, what now", "Why", "Now then")
    rows = [{"q": text, "c": ["we", "you"], "a": 0, "k": "law" if i < 2 else "art"} for i, text in enumerate(texts * 5)]
    for seed in range(4):
        _, made = controls(tmp_path, keys, rows, seed)
        assert made.absent[ANSWER_ONLY] == "nothing would be left before the choices"
        assert STEM_SWAP not in made.absent
