"""Faults that people reported of prompts, few-shot examples and right choices, tried on tasks of a user's own and on files
of other programs.  README.md lists the reports."""

import json
from pathlib import Path
from typing import Any

import pytest

from miron_jax.errors import InputError
from miron_jax.tasks.icl_rows import parse_multiple_choice
from miron_jax.tasks.own_tasks.check import findings
from miron_jax.tasks.own_tasks.templates import value_of
from miron_jax.tasks.request_sets.requests_suite import read_suite
from tests.support.own_task import CHOICE, TEXT, prompts_of, read_task, rows

# ------------------------------------------------------------------------------------------------ what a template writes


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (["x", "y"], None),  # bigscience-workshop/promptsource#213: a list of options as Python prints it
        ([3], None),  # EleutherAI/lm-evaluation-harness#3933: a list of places
        ({"text": "x"}, None),
        (None, None),  # EleutherAI/lm-evaluation-harness#1760: a fifth option that most records lack
        (float("nan"), None),  # an empty field of a table
        (float("inf"), None),
        ("None", "None"),
        (3, "3"),
        (2.5, "2.5"),
        (True, "True"),
        ("", ""),
    ],
)
def test_python_forms_of_values_reach_no_prompt(value: Any, written: str | None, tmp_path: Path) -> None:
    template = value_of("{{v}}")
    if written is not None:
        assert template({"v": value}) == written
        return
    with pytest.raises(ValueError, match=r"it writes .*, expected texts and numbers"):
        template({"v": value})
    if value == value and not isinstance(value, float):  # JSON has it
        for keys in (
            CHOICE.replace("question: q", "question: '{{v}} {{q}}'"),
            TEXT.replace("answer: a", "answer: '{{v}}'"),
        ):
            with pytest.raises(InputError, match=r"x.jsonl, line 2: the template '{{v}}.*cannot be filled"):
                read_task(tmp_path, keys, [{"q": "q", "c": ["x", "y"], "a": "x", "v": each} for each in ("x", value)])
    assert value_of("{{ v | join(', ') if v is iterable else '' }}")({"v": ["x", "y"]}) == "x, y"


def test_yes_and_no_of_yaml_are_texts(tmp_path: Path) -> None:
    """instructlab/instructlab#813, inducer/relate#136: YAML 1.1 reads them as true and false, 010 as 8, 12:30 as 750."""
    written = ["yes", "no", "on", "off", "NO", "010", "12:30", "1_000", "0x1F", "2026-09-01"]
    keys = CHOICE.replace("choices: c", f"choices: [{', '.join(written)}]")
    _, examples = read_task(tmp_path, keys, rows("no", "12:30"))
    assert [example.continuations for example in examples] == [tuple(written)] * 2
    assert [example.gold for example in examples] == [1, 6]
    with pytest.raises(InputError, match=r"choices is \[True, False\], expected"):
        read_task(tmp_path, CHOICE.replace("choices: c", "choices: [true, false]"), rows("true"))


# ------------------------------------------------------------------------------------------------------- shots and draws


def test_a_shot_shows_one_of_several_right_answers(tmp_path: Path) -> None:
    """EleutherAI/lm-evaluation-harness#2895, #859: the list itself stood there; all of them are right all the same."""
    records = rows(["Paris", "City of Light"], ["Oslo"])
    prompts = prompts_of(tmp_path, TEXT + "num_fewshot: 1\nitem_order: file\n", records)
    assert [prompt.preamble for prompt in prompts] == ["q1 Oslo", "q0 Paris"]
    _, examples = read_task(tmp_path, TEXT, records)
    assert examples[0].accepted == ("Paris", "City of Light")


@pytest.mark.parametrize("delimiter", [" ", "\n", "\nAnswer:\n", ""])
def test_nothing_but_the_delimiter_stands_before_an_answer(delimiter: str, tmp_path: Path) -> None:
    """EleutherAI/lm-evaluation-harness#3526, #2346: a space that nobody asked for behind a line's end, in shots alone."""
    keys = CHOICE + f"num_fewshot: 1\nshot_separator: '|'\ndelimiter: {json.dumps(delimiter)}\n"
    for prompt in prompts_of(tmp_path, keys, rows("x", "y", c=["x", "y"])):
        other = 1 - prompt.row
        assert prompt.preamble == f"q{other}{delimiter}{'xy'[other]}"
        assert prompt.contexts[0] == f"|q{prompt.row}{delimiter}"


def test_two_spaces_before_an_answer_are_said(tmp_path: Path) -> None:
    """EleutherAI/lm-evaluation-harness#859: the delimiter and the options of the data both bring one."""
    records = [*rows("x", c=["x", "y"]), *rows(" x", " y", c=[" x", " y"])]
    [said] = [each for each in findings(*read_task(tmp_path, CHOICE, records)) if "delimiter" in each]
    assert said == "2 of 3 examples have a space before an option and a delimiter's, the first is record 2"
    task, examples = read_task(tmp_path, CHOICE + "delimiter: ''\n", records)
    assert not [each for each in findings(task, examples) if "delimiter" in each]


def test_a_question_is_never_its_own_shot_however_it_is_compared(tmp_path: Path) -> None:
    """sbintuitions/flexeval#293: the options, bigscience-workshop/lm-evaluation-harness#140: an id kept equal records from
    being seen as equal.  Here the pool holds each question twice, with another id and with its options in another order."""
    pool = [{"q": f"q{i % 3}", "id": i, "c": ["x", "y"] if i < 3 else ["y", "x"], "a": "xyx"[i % 3]} for i in range(6)]
    keys = CHOICE + "num_fewshot: 4\nfewshot: distinct\n"
    for prompt in prompts_of(tmp_path, keys, pool):
        shots = [part.split()[0] for part in prompt.preamble.split("\n\n")]
        assert len(shots) == 4
        assert f"q{prompt.row % 3}" not in shots
    with pytest.raises(InputError, match=r"4 examples do not ask what record 1 .* asks, expected 5 as its shots"):
        prompts_of(tmp_path, keys.replace(": 4", ": 5"), pool)


@pytest.mark.parametrize("rules", ["gauntlet", "lm_eval"])
def test_shots_do_not_hang_on_how_much_is_run(rules: str, tmp_path: Path) -> None:
    """EleutherAI/lm-evaluation-harness#1719: one stream of draws for each device gave .727 to .753 by their number."""
    records = rows(*"xyxyxyxy", c=["x", "y"])
    keys = CHOICE + f"rules: {rules}\nnum_fewshot: 3\n"
    every = [prompt.preamble for prompt in prompts_of(tmp_path, keys, records)]
    assert len(set(every)) > 1
    for limit in (1, 3, 7):
        assert [prompt.preamble for prompt in prompts_of(tmp_path, keys, records, limit)] == every[:limit]


@pytest.mark.parametrize("draw", ["first", "per_item_1", "stream_1", "stream_lm_eval"])
def test_a_pool_smaller_than_the_shots_is_refused(draw: str, tmp_path: Path) -> None:
    """karpathy/nanochat#551: an error of random.sample in the middle of a run, mended by fewer shots without a word."""
    (tmp_path / "f.jsonl").write_text(json.dumps({"q": "s", "c": ["x", "y"], "a": "x"}) + "\n")
    keys = CHOICE + f"fewshot_data: f.jsonl\nnum_fewshot: 2\nfewshot_draw: {draw}\n"
    with pytest.raises(InputError, match="holds 1 examples, expected at least 2 to sample 2"):
        prompts_of(tmp_path, keys, rows("x", "y", c=["x", "y"]))


# ------------------------------------------------------------------------------------------------------ the right choice


def own_gold(folder: Path, gold: Any) -> int | None:
    [example] = read_task(folder, CHOICE, rows(gold, c=["x", "y"]))[1]
    return example.gold


def core_gold(folder: Path, gold: Any) -> int | None:
    try:
        return parse_multiple_choice({"query": "q", "choices": ["x", "y"], "gold": gold}, 0).gold
    except ValueError as error:
        raise InputError(str(error)) from None


def set_gold(folder: Path, name: str, lines: list[Any]) -> int | None:
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    [task] = read_suite(folder).tasks
    assert task.examples is not None
    [example] = task.examples(Path())
    return example.gold


def plain_gold(folder: Path, gold: Any) -> int | None:
    lines = [{"task": "t", "doc_id": 0, "context": "q", "continuation": each, "gold": gold} for each in (" x", " y")]
    return set_gold(folder, "requests.jsonl", lines)


def olmo_gold(folder: Path, gold: Any) -> int | None:
    request = {"context": "q", "continuations": [" x", " y"], "continuation": " x"}
    return set_gold(folder, "t-requests.jsonl", [{"task_name": "t", "doc_id": 0, "label": gold, "request": request}])


def lm_eval_gold(folder: Path, gold: Any) -> int | None:
    arguments = {f"gen_args_{i}": {"arg_0": "q", "arg_1": each} for i, each in enumerate((" x", " y"))}
    return set_gold(folder, "samples_t.jsonl", [{"doc_id": 0, "target": gold, "arguments": arguments}])


@pytest.mark.parametrize("read", [own_gold, core_gold, plain_gold, olmo_gold, lm_eval_gold])
@pytest.mark.parametrize(
    "gold",
    [
        2,  # EleutherAI/lm-evaluation-harness#811, huggingface/lighteval#1162: a mislabelled row, a crash or always wrong
        -1,  # a hidden label, which Python takes for the last choice
        [1],  # EleutherAI/lm-evaluation-harness#3933: a list of places
        [0, 1],
        1.0,  # a column of whole numbers in which one is missing
        None,
        "\u00b2",  # isdigit, and no number
        "\u0661",  # a digit that int() takes
        "",
    ],
)
def test_a_right_choice_that_is_none_is_refused(read: Any, gold: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected|right one is None"):
        read(tmp_path, gold)
    assert read(tmp_path, 1) == 1, "and one that is there is read"


def test_labels_that_are_digits_in_some_questions_name_no_places(tmp_path: Path) -> None:
    """modelscope/evalscope#1516, confident-ai/deepeval#3070, sapientinc/HRM-Text#2: 119 of ARC's 3,548 keys are 1 to 4,
    and all of them were scored 0."""
    letters, digits = ["A", "B", "C", "D"], ["1", "2", "3", "4"]
    records = [
        {"q": "q", "choices": {"label": labels, "text": ["w", "x", "y", "z"]}, "a": labels[i]}
        for i, labels in enumerate((letters, digits, letters, digits))
    ]
    keys = CHOICE.replace("choices: c", "choices: choices.text")
    with pytest.raises(InputError, match=r"gold is a letter in line 1 \('A'\) and a place in line 2 \('2'\)"):
        read_task(tmp_path, keys, records)
    _, examples = read_task(tmp_path, keys.replace("gold: a", 'gold: "{{ choices.label.index(a) }}"'), records)
    assert [example.gold for example in examples] == [0, 1, 2, 3]


def test_places_that_are_counted_from_one_are_said_or_refused(tmp_path: Path) -> None:
    """nyu-mll/quality#12, EleutherAI/lm-evaluation-harness#1447: every label named the option behind the right one."""
    with pytest.raises(InputError, match="line 4: gold is '4', expected a place from 0 to 3"):
        read_task(tmp_path, CHOICE, rows("1", "2", "3", "4", c=list("wxyz")))
    few = read_task(tmp_path, CHOICE, rows(*"123" * 6, c=list("wxyz")))  # none happens to be 4
    assert "the right choice is never the first one in 18 examples: places are counted from 0" in [*findings(*few)]


@pytest.mark.parametrize(
    ("answers", "is_leaked"),
    [
        (("up", "up"), True),
        (("up", "down"), False),
        ((["up", "high"], "high"), False),
        (("high", ["high", "up"]), True),
    ],
)
def test_a_shot_that_shows_another_answer_to_the_question_is_no_leak(
    answers: tuple[Any, Any], is_leaked: bool, tmp_path: Path
) -> None:
    """Issue 54: equal questions alone were counted.  A shot shows the first of its answers."""
    records = [{"q": "where?", "a": answer} for answer in answers]
    prompts = prompts_of(tmp_path, TEXT + "num_fewshot: 1\nitem_order: file\n", records)
    assert (prompts[1].leak > 0) == is_leaked
