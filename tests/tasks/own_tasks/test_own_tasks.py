"""Tasks of a user's own: what their files say reaches prompts, rules and composites; wrong files are one sentence.

The page docs/own_tasks.md, whose commands tests/docs runs, has tasks of every kind."""

import csv
import importlib.util
import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from miron_jax.config import RunConfig
from miron_jax.definitions.data_files import data_state, located_rows, read_examples
from miron_jax.definitions.records import Measured, Problem, Task
from miron_jax.definitions.rules import printed
from miron_jax.engine.text_requests import Generated
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import evaluate
from miron_jax.evaluation.saved_requests import save_requests
from miron_jax.evaluation.task_kinds.interface import LoadedTask, Setup, TaskScores
from miron_jax.evaluation.task_kinds.kinds import kind_of
from miron_jax.files.store import Store
from miron_jax.prompting.prompts import Prompt, render
from miron_jax.runtime.progress import SILENT
from miron_jax.tasks import registry
from miron_jax.tasks.own_tasks.check import findings
from miron_jax.tasks.own_tasks.templates import value_of
from miron_jax.tasks.own_tasks.yaml_task import read_suite
from miron_jax.tasks.registry import SUITES
from miron_jax.tasks.request_sets.requests_suite import read_suite as read_request_set
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.tokenizers import load_tokenizer
from miron_jax.tokens.truncation import LengthLimit
from tests.support.command import Place, run, samples
from tests.support.needs import reason
from tests.support.tiny_model import make_model
from tests.support.tiny_tokenizer import TINY
from tests.support.tolerances import CONTINUATION

ROWS = [
    {"question": f"the {word} hill is", "options": ["hot", "cold rain", "small"], "answer": i % 3, "n": i}
    for i, word in enumerate(("green", "small", "cold", "hot", "rain", "sun", "where"))
]
PLAIN = """\
task: hills
data: hills.jsonl
question: "Question: {{question}}"
choices: options
gold: answer
delimiter: "\\nAnswer: "
num_fewshot: 2
baseline: 0.333
"""
HUB = "{hub: us/hills, config: default, split: test}"
LISTED = PLAIN.replace("choices: options", 'choices: ["hot", "cold {{\'rain\'}}", "small"]')


def lines_of(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(folder: Path, text: str = PLAIN, rows: list[Any] = ROWS, name: str = "hills") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hills.jsonl").write_text(lines_of(rows))
    (folder / f"{name}.yaml").write_text(text)
    return folder / f"{name}.yaml"


def task_of(path: Path) -> Task[Any]:
    [task] = read_suite([str(path)]).tasks
    return task


def prompts_of(path: Path) -> list[Prompt]:
    return render(task_of(path), read_examples(task_of(path), path.parent))


# ---------------------------------------------------------------------------------------------------- files to tasks


@pytest.mark.parametrize("kind", ["choice", "generation"])
def test_names_of_special_tokens_are_text_on_request(tmp_path: Path, kind: str) -> None:
    rows = [{**row, "question": f"<|endoftext|> {row['question']}"} for row in ROWS]
    plain = PLAIN if kind == "choice" else GENERATE
    ids = {}
    for reading in ("control", "text"):
        path = write(tmp_path / reading, plain + f"special_tokens: {reading}\n", rows)
        task = task_of(path)
        source = LoadedTask(task, read_examples(task, path.parent), data_state(task, path.parent))
        setup = Setup(RunConfig("demo", ("own",)), TINY, TokenBytes(TINY, 400), LengthLimit(None, None, None))
        made = kind_of(task)(source, setup)
        made.prepare()
        scored = [token for _, requests in made.pieces() for token in requests.token_ids.tolist()]
        ids[reading] = scored + [token for request in made.texts() for token in request.token_ids]
        if kind == "choice":
            save_requests([made], Store(str(tmp_path / reading)), SILENT)
            [saved] = read_request_set(tmp_path / reading / "requests").tasks
            assert saved.profile.special_tokens == reading
        assert made.control_tokens == ({"<|endoftext|>": len(ROWS)} if reading == "control" else {})
    end = TINY.convert_tokens_to_ids("<|endoftext|>")
    assert ids["control"].count(end) > ids["text"].count(end) > 0, "BOS stays"


def test_a_completion_says_whether_its_prompt_was_cut(tmp_path: Path) -> None:
    path = write(tmp_path, GENERATE, ROWS)
    task = task_of(path)
    source = LoadedTask(task, read_examples(task, path.parent), data_state(task, path.parent))
    limit = None
    for expected in ({None}, {None, True}):
        setup = Setup(RunConfig("demo", ("own",)), TINY, TokenBytes(TINY, 400), LengthLimit(limit, None, None))
        kind: Any = kind_of(task)(source, setup)
        kind.prepare()
        scores = TaskScores(kind)
        kind.take_texts(scores, iter([Generated("", (), "stop") for _ in ROWS]))
        truncated = [example.truncated for example in kind.example_results(scores)]
        assert {*truncated} == expected
        assert kind.details(scores).truncated == truncated.count(True)
        limit = max(map(len, kind.requests.prompts)) + kind.requests.max_new_tokens - 1  # too few for the longest


def test_templates_do_what_tasks_need() -> None:
    record = {"question": " Why? ", "labels": ["A", "B"], "texts": ["x", "y"], "n": 3}
    text = "{{question.strip()}}{% for l in labels %}\n{{l}}. {{texts[loop.index0]}}{% endfor %}"
    text += "\n{{n * 2}}{{labels | join('/')}}"
    assert value_of(text)(record) == "Why?\nA. x\nB. y\n6A/B"
    assert value_of("labels")(record) == ["A", "B"]
    assert value_of("a.b")({"a": {"b": 1}}) == 1


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}", "{{ cycler.__init__.__globals__ }}", "{{ 'a' * 100000000 }}", "{{ 9 ** 999999 }}",
        "{{ '%1000000000d' % 1 }}", "{{ range(100000000) | list }}", "{{ question.format_map }}{{ question.__len__() }}",
        "{% include '/etc/passwd' %}", "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
        "{% for a in question %}{% for b in question %}{% for c in question %}x{% endfor %}{% endfor %}{% endfor %}",
        "{{ question.ljust(1000000000) }}", "{{ question | center(1000000000) }}", "{{ [1, 2] | random }}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "{{ self.__init__ }}", "{{ question.encode().decode() }}",
    ],
)  # fmt: skip
def test_templates_run_no_code_and_end(template: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be filled|is no template|a template with more"):
        value_of(template)({"question": "a"})


def test_gold_is_a_choice_its_letter_or_its_place(tmp_path: Path) -> None:
    task = task_of(write(tmp_path))
    for value, gold in ((1, 1), ("1", 1), ("cold rain", 1), ("C", 2), (" B ", 1)):
        assert task.parse({**ROWS[0], "answer": value}, 0).gold == gold, value
    for value in (3, "x", True, -1):
        with pytest.raises(ValueError, match=r"expected one of the choices, its letter, or its place from 0 to 2"):
            task.parse({**ROWS[0], "answer": value}, 0)


def golds_of(folder: Path, rows: list[Any], more: str = "") -> list[int]:
    text = PLAIN.replace("num_fewshot: 2", "num_fewshot: 0") + f"item_order: file\n{more}"
    path = write(folder, text, [{"question": "q", **row} for row in rows])
    return [prompt.gold for prompt in prompts_of(path) if prompt.gold is not None]


def row_of(options: str, gold: Any) -> dict[str, Any]:
    return {"options": options.split(","), "answer": gold}


@pytest.mark.parametrize(
    ("rows", "more", "golds"),
    [
        # 7 and 9 are no places: all are texts, "1" too, which is the second place.
        ([row_of("1,0,2", "1"), row_of("7,8,9", "7"), row_of("7,8,9", "9")], "", [0, 0, 2]),
        ([row_of("1,0,2", "1"), row_of("2,3,4", "1"), row_of("x,y,z", "0")], "", [1, 1, 0]),
        ([row_of("1,0,2", "1"), row_of("2,3,4", "1")], "gold_is: place\n", [1, 1]),
        ([row_of("1,0,2", "1"), row_of("2,1,4", 1)], "gold_is: text\n", [0, 1]),
        ([row_of("0,1,2", "1"), row_of("0,1,2", 2)], "", [1, 2]),
        ([{"options": [1, 2, 3.5], "answer": 3.5}, {"options": [10, 20, 30], "answer": 20}], "", [2, 1]),
        ([row_of("x,y", "B."), row_of("x,y", "b"), row_of("x,y", "(a)"), row_of("x,y", "A")], "", [1, 1, 0, 0]),
        ([row_of("yes,no", True), row_of("no,yes", True), row_of("Yes,No", "False")], "", [0, 1, 1]),
        ([row_of("True,False", False), row_of("false,true", "false")], "", [1, 0]),
        ([row_of("A,B", "B"), row_of("A,B", "A")], "", [1, 0]),
        ([row_of(" hot,cold", "hot")], "", [0]),
    ],
)
def test_gold_has_one_reading_in_a_file(rows: list[Any], more: str, golds: list[int], tmp_path: Path) -> None:
    assert golds_of(tmp_path, rows, more) == golds, [row["answer"] for row in rows]


@pytest.mark.parametrize(
    ("rows", "more", "sentences"),
    [
        (
            [row_of("1,0,2", "1"), row_of("2,3,4", "1")], "",
            ("gold of line 1 ('1') is one choice as a place and another as a text", "line 2 is a place only",
             "gold_is: place or gold_is: text"),
        ),
        (
            [row_of("a,b", "a"), row_of("1,0,2", "1"), row_of("2,7,1", "0")], "",
            ("gold is a text in line 1 ('a') and", "place in line 3"),
        ),
        ([row_of("1,0,2", "1"), row_of("2,0,1", "0")], "", ("gold of line 1 ('1') is", "as is that of line 2", "gold_is")),
        ([row_of("x,y", "x"), row_of("x,y", "B")], "", ("gold is a text in line 1 ('x') and a letter in line 2 ('B')",)),
        ([row_of("B,A", "A"), row_of("B,A", "B")], "", ("gold of line 1 ('A')", "gold_is: text or gold_is: letter")),
        ([row_of("x,y", True)], "", ("gold is True, expected one of the choices",)),
        ([row_of("x,y", True)], "gold_is: truth\n", ("expected true or false, and two choices, true or yes",)),
        ([row_of("yes,no,or", True)], "", ("gold is True, expected",)),
        ([row_of("x,y", "C")], "", ("gold is 'C', expected one of the choices, its letter, or its place from 0 to 1",)),
        ([row_of("x,y", "1"), row_of("x,y", "1.")], "", ("line 2: gold is '1.', expected a place from 0 to 1",)),
        ([row_of("x,y", 0)], "gold_is: number\n", ("gold_is is 'number', expected one of",)),
        ([{"options": [1, float("nan")], "answer": 0}], "", ("choice 2 holds nan, expected a text",)),
    ],
)  # fmt: skip
def test_a_gold_of_two_meanings_is_refused(
    rows: list[Any], more: str, sentences: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        golds_of(tmp_path, rows, more)
    for sentence in sentences:
        assert sentence in str(error.value), rows


TABLE = "Best Answer,a,b,right\nWhy?,hot,cold,b\n"
COLUMNS = 'task: hills\ndata: hills.csv\nquestion: Best Answer\ngold: "1"\n'


def test_columns_of_a_table_are_never_texts(tmp_path: Path) -> None:
    """A column's name with a space is the column; in a list of choices a name may be a text, so its writer has to say."""
    (tmp_path / "hills.csv").write_text(TABLE)
    for choices, expected in (('["{{a}}", "{{b}}"]', ("hot", "cold")), ("[\"{{'a'}}\", c]", ("a", "c"))):
        [prompt] = prompts_of(write(tmp_path, f"{COLUMNS}choices: {choices}\n"))
        assert (prompt.continuations, prompt.contexts[0]) == (expected, "Why? "), choices
    with pytest.raises(InputError, match="choices: 'a' may be that text or the field of this name: write"):
        prompts_of(write(tmp_path, f"{COLUMNS}choices: [a, b]\n"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("hills.csv", 'question;answer\r\n"a\nb";"1,5"\r\n\r\nc;\r\n'),
        ("hills.csv", '\ufeffquestion,answer\n"a\nb","1,5"\n\nc,\n'),
        ("hills.jsonl", '\ufeff{"question": "a", "answer": 1.5}\r\n\r\n\r\n\r\n{"question": "c", "answer": ""}\r\n'),
    ],
)
def test_lines_are_those_of_an_editor(name: str, content: str, tmp_path: Path) -> None:
    """The second record has no answer; it begins in line 5, after a header of one line or four lines of others."""
    keys = f"task: hills\nkind: continuation\ndata: {name}\nquestion: question\nanswer: answer\n"
    path = write(tmp_path, keys)
    (tmp_path / name).write_text(content, newline="")
    with pytest.raises(InputError, match=f"{name}, line 5: answer is empty"):
        prompts_of(path)


def test_a_space_stands_before_an_answer_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    text = PLAIN.replace('delimiter: "\\nAnswer: "\n', "").replace("num_fewshot: 2", "num_fewshot: 0")
    first = prompts_of(write(tmp_path, text))[0]
    whole = [context + continuation for context, continuation in zip(first.contexts, first.continuations, strict=True)]
    row = ROWS[first.row]
    assert whole == [f"Question: {row['question']} {option}" for option in row["options"]]


GENERATE = "task: hills\nkind: generation\ndata: hills.jsonl\nquestion: question\nanswer: '{{n}}'\n"


@pytest.mark.parametrize(
    ("more", "end"),
    [
        ("", "hill is"),  # the default delimiter is a space
        ("delimiter: '? '\nrules: lm_eval\n", "hill is?"),
        ('delimiter: "\\nAnswer:\\n"\n', "\nAnswer:\n"),  # words begin after a line break
        ('delimiter: "\\nAnswer:\\n \\t\\u00a0"\n', "\nAnswer:\n"),
        ("delimiter: ''\nbefore_question: ''\n", "hill is"),
        ("question_delimiter: whole\n", "hill is "),
        ('delimiter: "\\nA:\\n "\nrules: gauntlet\n', "\nA:"),
    ],
)
def test_prompts_of_completions_end_where_a_tokenizer_goes_on(more: str, end: str, tmp_path: Path) -> None:
    """A space that stands alone is no beginning of a word; shots keep theirs before their answers."""
    prompts = prompts_of(write(tmp_path, GENERATE + more + "num_fewshot: 1\nitem_order: file\n"))
    assert prompts[0].contexts[0].endswith(end), repr(prompts[0].contexts[0])
    shot = next(row for row in ROWS if row["question"] in prompts[0].preamble)
    kept = task_of(tmp_path / "hills.yaml").profile.delimiter
    assert prompts[0].preamble == f"{shot['question']}{kept}{shot['n']}"
    spaced = write(tmp_path, GENERATE.replace("question: question", "question: '{{question}} '") + "delimiter: ''\n")
    assert prompts_of(spaced)[0].contexts[0].endswith("hill is"), "a space of the question's own"


@pytest.mark.parametrize("draw", ["first", "per_item_5", "stream_lm_eval", "stream_3"])
def test_shots_from_another_file(tmp_path: Path, draw: str) -> None:
    """The shots stand before the question as the file's own would, and the questions themselves are never among them."""
    path = write(tmp_path, PLAIN + f"fewshot_data: others.jsonl\nfewshot_draw: {draw}\nitem_order: file\n")
    others = [{**row, "question": f"other {i}"} for i, row in enumerate(ROWS)]
    (tmp_path / "others.jsonl").write_text(lines_of(others))
    shots = [f"Question: other {i}\nAnswer: {ROWS[i]['options'][ROWS[i]['answer']]}" for i in range(7)]
    stream = random.Random(1234 if draw == "stream_lm_eval" else 3)
    for i, prompt in enumerate(prompts_of(path)):
        drawn = [0, 1] if draw == "first" else random.Random(5 + i).sample(range(7), 2)
        drawn = stream.sample(range(7), 2) if draw.startswith("stream") else drawn
        assert prompt.preamble == "\n\n".join(shots[j] for j in drawn)
        assert prompt.contexts[0] == f"\n\nQuestion: {ROWS[i]['question']}\nAnswer: "


@pytest.mark.parametrize("draw", ["per_item_5", "stream_3", "stream_lm_eval"])
@pytest.mark.parametrize("shots", ["", "fewshot_data: others.jsonl\n"])
def test_distinct_shots_never_ask_the_question(draw: str, shots: str, tmp_path: Path) -> None:
    """Rows 0 and 7 ask the same, with other white space, and so do 1 and 8, with other wrong choices."""
    again = [{**ROWS[0], "question": " the green  hill is"}, {**ROWS[1], "options": ["new", "cold rain"]}]
    rows = [*ROWS, *again]
    text = PLAIN.replace("{{question}}", "{{question}} {{n}}").replace("num_fewshot: 2", "num_fewshot: 6")
    rules = f"{shots}fewshot_draw: {draw}\nitem_order: file\n"
    (tmp_path / "others.jsonl").write_text(lines_of(rows))

    def leaks(fewshot: str) -> int:
        prompts = prompts_of(write(tmp_path, text + rules + fewshot, rows))
        assert all(prompt.preamble.count("Question") == 6 for prompt in prompts)
        questions = [f" {row['n']}\nAnswer" for row in rows]
        leaked = [questions[prompt.row] in prompt.preamble for prompt in prompts]
        assert [prompt.leak > 0 for prompt in prompts] == leaked
        return sum(leaked)

    assert leaks("fewshot: any\n") > 0
    assert leaks("fewshot: distinct\n") == 0
    assert task_of(tmp_path / "hills.yaml").profile.fewshot_draw.name == f"{draw}_distinct"
    with pytest.raises(InputError, match=r"7 examples do not ask what record 1 of .* asks, expected 8 as its shots"):
        prompts_of(write(tmp_path, text.replace(": 6", ": 8") + rules + "fewshot: distinct\n", rows))


def test_lm_evals_shots_never_include_the_question_itself(tmp_path: Path) -> None:
    """One stream samples one example more than are shown, and the question is left out."""
    stream = random.Random(1234)
    for prompt in prompts_of(write(tmp_path, PLAIN + "rules: lm_eval\n")):
        shown = [i for i in stream.sample(range(7), 3) if i != prompt.row][:2]
        words = [ROWS[i]["question"].split()[1] for i in shown]
        assert [part.split()[2] for part in prompt.preamble.split("\n\n") if part] == words


def test_rules_of_a_task_by_their_names(tmp_path: Path) -> None:
    """A rule that the file names stands in the place of its protocol's."""
    rules = {"normalizer": "char", "tie": "last", "span": "after_context", "bos": "never", "item_order": "shuffle_7",
             "fewshot_draw": "per_item_7"}  # fmt: skip
    path = write(tmp_path, PLAIN + "".join(f"{key}: {rule}\n" for key, rule in rules.items()))
    profile, order = task_of(path).profile, list(range(7))
    assert {key: getattr(getattr(profile, key), "name", getattr(profile, key)) for key in rules} == rules
    random.Random(7).shuffle(order)
    assert [prompt.row for prompt in prompts_of(path)] == order


def test_a_program_is_what_its_record_says(tmp_path: Path) -> None:
    keys = {
        "task": "add", "kind": "program", "data": "hills.jsonl", "prompt": "start", "entry_point": "name", "inputs": "given",
        "outputs": "values", "solution": "rest", "num_samples": 2, "extra_tokens": 4,
    }  # fmt: skip
    start, rest = "def add(a, b):\n", "    return a + b\n"
    row = {"start": start, "name": "add", "given": ["1, 2"], "values": ["3"], "rest": rest}
    path = write(tmp_path, json.dumps(keys), [row])
    expected = Problem(0, "problem 0", start, "add", "python", ("(1, 2)",), ("3",), rest)
    assert read_examples(task_of(path), tmp_path) == [expected]
    profile = task_of(path).profile
    assert (profile.num_samples, profile.extra_tokens) == (2, 4)
    assert (profile.test_seconds, profile.cpu_seconds) == (5.0, 20.0)
    limits = {"test_seconds": 0.5, "memory_mb": 512, "output_mb": 2, "processes": 9}
    profile = task_of(write(tmp_path, json.dumps(keys | limits), [row])).profile
    assert {key: getattr(profile, key) for key in limits} == limits
    assert profile.cpu_seconds == 2.0
    assert limits.items() <= printed(profile).items()


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("memory_mb", 15, "16 to 1048576"), ("memory_mb", 2**21, "16 to 1048576"), ("output_mb", 1.5, "1 to 1024"),
        ("processes", 0, "1 to 32768"), ("processes", True, "1 to 32768"), ("test_seconds", 0, "at most 86400"),
        ("cpu_seconds", "5", "at most 86400"), ("test_seconds", float("nan"), "at most 86400"),
    ],
)  # fmt: skip
def test_limits_of_programs_are_checked(tmp_path: Path, key: str, value: Any, expected: str) -> None:
    keys = {key: key for key in ("prompt", "entry_point", "inputs", "outputs", "solution")}
    text = yaml.safe_dump({"task": "t", "kind": "program", "data": "hills.jsonl", key: value} | keys)
    with pytest.raises(InputError, match=f"yaml: {key} is .*, expected .*{expected}$"):
        task_of(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("7", (7,)), ("[7]", ([7],)), ("'ab'", ("ab",)), ("1, 2", (1, 2)), ("(1, 2)", ((1, 2),)), ("", ()), ("1,", (1,)),
        ("')', 1  # (", (")", 1)), ("*[1, 2]", (1, 2)), ("-1.5e300, {'a': None}", (-1.5e300, {"a": None})),
        ("a=1", None), ("1) + (2", None), ("1 +", None), ("1)(2", None), ("x for x in 'ab'", None),
    ],
)  # fmt: skip
def test_inputs_of_python_are_what_a_call_holds(text: str, arguments: tuple[Any, ...] | None, tmp_path: Path) -> None:
    keys = {key: key for key in ("prompt", "entry_point", "inputs", "outputs", "solution")}
    row = {"prompt": "def f(*a):\n", "entry_point": "f", "inputs": [text], "outputs": ["a"], "solution": " return a"}
    path = write(tmp_path, json.dumps({"task": "t", "kind": "program", "data": "hills.jsonl"} | keys), [row])
    if arguments is None:
        with pytest.raises(InputError, match="expected what a call holds between its parentheses"):
            read_examples(task_of(path), tmp_path)
    else:
        [problem] = read_examples(task_of(path), tmp_path)
        assert eval(problem.inputs[0]) == arguments


@pytest.mark.slow
def test_check_runs_the_solutions_of_programs(miron: Any, tmp_path: Path) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap: apt-get install bubblewrap")
    keys = {key: key for key in ("prompt", "entry_point", "inputs", "outputs", "solution")}
    row = {"prompt": "def f(a):\n", "entry_point": "f", "inputs": ["7", "[7]", "'ab'"], "solution": "    return a\n"}
    rows = [{**row, "outputs": outputs} for outputs in (["7", "[7]", "'ab'"], ["7", "7", "'ab'"])]
    rows[1]["prompt"] = "def f(a, b=0):\n"
    path = write(tmp_path, json.dumps({"task": "t", "kind": "program", "data": "hills.jsonl"} | keys), rows)
    ran = miron("tasks", f"--check={path}")
    assert ran.status == 0, ran.err
    *lines, bounds = ran.out.splitlines()
    assert lines == [
        "own/t: program, 2 examples, 1 to look at:",
        "    1 of 2 examples have a solution that does not pass, the first is record 2 (wrong)",
    ]
    assert ("cgroup" in bounds, bounds.startswith("memory of programs: ")) == (True, True)


CHOOSE = {"question": "query", "choices": "choices", "gold": "gold"}
CONTINUE = {"kind": "continuation", "question": "context", "answer": "continuation"}


@pytest.mark.parametrize(
    ("name", "keys"), [("core/arc_easy", CHOOSE), ("gauntlet/arc_easy", CHOOSE), ("core/lambada_openai", CONTINUE)]
)
def test_rules_of_a_suite_make_its_prompts(name: str, keys: dict[str, str], tmp_path: Path) -> None:
    """Choices and continuations of a suite's own file, by its rules.  Texts are stripped, those in lists are not."""
    suite = name.partition("/")[0]
    theirs: Any = next(task for task in SUITES[suite].tasks if task.name == name)
    theirs, rules = replace(theirs, file=replace(theirs.file, path="hills.jsonl")), theirs.profile
    stated = {"rules": suite, "delimiter": rules.delimiter, "num_fewshot": rules.num_fewshot}
    wording = {"before_question": rules.prelimiter, "before_shots": rules.prompt_string}
    texts = [f"  {row['question']} {i} \n" for i, row in enumerate(ROWS * 2)]
    rows = [
        {"query": text, "context": text, "choices": [" a", "b "], "gold": 1, "continuation": " x "} for text in texts
    ]
    path = write(tmp_path, json.dumps({"task": "own", "data": "hills.jsonl", **keys, **stated, **wording}), rows)
    assert prompts_of(path) == render(theirs, read_examples(theirs, tmp_path, allow_changed=True))
    ours = task_of(path).profile
    differ = {key for key in ours.__dataclass_fields__ if getattr(ours, key) != getattr(rules, key)}
    assert differ <= {"documented_num_fewshot"}


@pytest.mark.parametrize("data", ["hills.json", "hills.csv", "hills.tsv", "hills.parquet", HUB])
def test_every_format_holds_the_same_records(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path))
    expected = prompts_of(write(tmp_path, LISTED))
    path = write(tmp_path, LISTED.replace("hills.jsonl", data), name="other")
    cached = tmp_path / "own@refs-convert-parquet" / "us--hills-default--test--+.parquet" / "default" / "test"
    cached.mkdir(parents=True)
    for file, rows in ((tmp_path / "hills", ROWS), (cached / "0000", ROWS[:4]), (cached / "0001", ROWS[4:])):
        parquet.write_table(pa.Table.from_pylist(rows), file.with_suffix(".parquet"))
    (tmp_path / "hills.json").write_text(json.dumps(ROWS))
    for name, delimiter in (("hills.csv", ","), ("hills.tsv", "\t")):
        with (tmp_path / name).open("w", newline="") as opened:
            table = csv.DictWriter(opened, list(ROWS[0]), delimiter=delimiter)
            table.writeheader()
            table.writerows({**row, "options": "-"} for row in ROWS)
    read_suite([str(path)]).locate(None, True)
    assert prompts_of(path) == expected


def test_the_hash_of_a_task_covers_all_that_its_prompts_hang_on(tmp_path: Path) -> None:
    """A step that is scored already is left out by this hash: another template, shot or group makes another one."""
    path = write(tmp_path, PLAIN + "fewshot_data: others.jsonl\n")
    others, groups = tmp_path / "others.jsonl", tmp_path / "groups.yaml"
    others.write_text(lines_of(ROWS))
    groups.write_text("groups: {all: {of: [hills]}}")

    def of_files() -> str | None:
        [task] = read_suite([str(path), str(groups)]).tasks
        return data_state(task, tmp_path).git_blob_sha1

    hashes = [of_files(), of_files()]
    for file, change in ((path, "# x\n"), (others, lines_of(ROWS[:1])), (groups, "\n# y\n")):
        file.write_text(file.read_text() + change)
        hashes.append(of_files())
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


def test_groups_make_composites(tmp_path: Path) -> None:
    """(a - b) / (1 - b) of each task where a group is rescaled; the group of both holds each task twice."""
    members = {"of": ["hills", "more/hills"]}
    groups = {
        "plain": members,
        "centered": {**members, "weights": {"hills": 1, "more/hills": 3}, "rescaled": True},
        "both": {"of": ["plain", "centered"], "weights": "by_size"},
    }
    write(tmp_path)
    write(tmp_path, PLAIN.replace("task: hills", "task: more/hills").replace("0.333", "0.5"), name="more")
    (tmp_path / "groups.yaml").write_text(json.dumps({"groups": groups}))
    suite = read_suite([str(tmp_path)])
    composites = suite.composites({"own/hills": Measured(0.4, 7), "own/more/hills": Measured(0.8, 7)})
    plain, centered = (0.4 + 0.8) / 2, (0.4 - 0.333) / 0.667 / 4 + 3 * (0.8 - 0.5) / 0.5 / 4
    assert [composites[name].value for name in groups] == pytest.approx([plain, centered, (plain + centered) / 2])
    lacking = suite.composites({"own/hills": Measured(0.4, 7)})["both"]
    assert (lacking.value, lacking.missing) == (None, ("own/more/hills",))


# ------------------------------------------------------------------------------------------------------------ schemas

TROPHY = [  # Winogrande's form: of two beginnings one makes the common ending right
    {"begins": ["The cup is not in the bag: the cup", "The cup is not in the bag: the bag"], "ends": f"is too {size}.",
     "right": gold} for size, gold in (("big", 0), ("small", 1), ("wide", 0), ("tight", 1))
]  # fmt: skip
SCHEMA = """\
task: cups
kind: schema
data: hills.jsonl
contexts: begins
answer: ends
gold: right
delimiter: " "
num_fewshot: 1
baseline: 0.5
"""


@pytest.mark.parametrize("rules", ["core", "gauntlet", "lm_eval"])
def test_a_schema_scores_the_common_ending_by_each_protocol(rules: str, tmp_path: Path) -> None:
    """The prompts of CORE's and the Gauntlet's own tasks on the same records in their layout."""
    path = write(tmp_path, SCHEMA + f"rules: {rules}\n", TROPHY)
    prompts = prompts_of(path)
    assert {len(prompt.continuations) for prompt in prompts} == {2}
    assert [prompt.gold for prompt in sorted(prompts, key=lambda prompt: prompt.row)] == [0, 1, 0, 1]
    for prompt in prompts:
        assert prompt.continuations[0] == prompt.continuations[1]
        assert prompt.contexts[0] != prompt.contexts[1]
    if rules == "lm_eval":
        return
    published: Any = next(task for task in SUITES[rules].tasks if task.name.endswith("/winograd"))
    rows = [{"context_options": row["begins"], "continuation": row["ends"], "gold": row["right"]} for row in TROPHY]
    task = replace(published, profile=replace(published.profile, num_fewshot=1))
    theirs = render(task, [task.parse(row, i) for i, row in enumerate(rows)])
    assert [replace(prompt, category=None) for prompt in prompts] == [replace(each, category=None) for each in theirs]
    mine = task_of(path).profile
    assert replace(mine, max_length=None, documented_num_fewshot=None, protocol="") == replace(
        task.profile, max_length=None, documented_num_fewshot=None, protocol=""
    )


def test_a_target_delimiter_begins_each_choice(tmp_path: Path) -> None:
    """Shots have it too; a question ends without it, so that it is scored."""
    wanted = 'target_delimiter: "\\n-> "\nrules: lm_eval\n'
    for text, rows in ((PLAIN.replace('delimiter: "\\nAnswer: "\n', wanted), ROWS),
                       (SCHEMA.replace('delimiter: " "\n', wanted), TROPHY)):  # fmt: skip
        task = task_of(write(tmp_path, text, rows))
        assert (task.profile.delimiter, task.profile.joined_delimiter) == ("", "\n-> ")
        for prompt in prompts_of(tmp_path / "hills.yaml"):
            assert prompt.shots
            assert all(shot.count("\n-> ") == 1 for shot in prompt.shots)
            assert all("\n-> " not in context for context in prompt.contexts)
            assert all(each.startswith("\n-> ") for each in prompt.continuations)
    assert prompt.continuations[0].removeprefix("\n-> ") in [row["ends"] for row in TROPHY]
    rows = _rows("x, x,y", EVEN)
    path = write(tmp_path, PLAIN.replace('delimiter: "\\nAnswer: "\n', wanted).replace("shot: 2", "shot: 0"), rows)
    said = [*findings(task_of(path), read_examples(task_of(path), tmp_path))]
    assert any("have a space before an option and a delimiter's" in each for each in said)


def test_what_is_wrong_with_a_schema_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, SCHEMA, [*TROPHY, {**TROPHY[0], "begins": ["the cup", "the cup "]}])
    said = list(findings(task_of(path), read_examples(task_of(path), tmp_path)))
    assert said == ["1 of 5 examples have two equal options, the first is record 5"]
    for change, sentence in (
        ({"begins": "one"}, "line 1: contexts are 'one', expected a list of at least two texts"),
        ({"begins": ["a", " "]}, "line 1: context 2 is empty (' '), expected a text to score"),
        ({"right": 2}, "line 1: gold is 2, expected a place from 0 to 1"),
        ({"ends": ""}, "line 1: answer is empty (''), expected a text to score"),
    ):
        path = write(tmp_path, SCHEMA + "gold_is: place\n", [{**TROPHY[0], **change}, *TROPHY])
        with pytest.raises(InputError, match=re.escape(sentence)):
            read_examples(task_of(path), tmp_path)
    with pytest.raises(InputError, match="key 'choices' is not of a task of kind schema, which takes contexts, answer"):
        task_of(write(tmp_path, SCHEMA + "choices: begins\n", TROPHY))


# ------------------------------------------------------------------------------------------------------- wrong files


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("task: hills", "task: ../hills"), "task is '../hills', expected letters"),
        (("baseline: 0.333", "normalizer: median"), "normalizer is 'median', expected one of mean, exp_mean, sum, char"),
        (("baseline: 0.333", "fewshot_draw: first"), "fewshot_draw is 'first', expected per_item_SEED, stream_SEED or"),
        (("baseline: 0.333", "categories: macro"), "categories is macro, but no category is taken"),
        (("baseline: 0.333", "fewshot_data: no.csv"), "fewshot_data names"),
        (("baseline: 0.333", "fewshot_data: one.jsonl\nfewshot_pool: whole_file"), "but shots come from fewshot_data"),
        (("baseline: 0.333", "fewshot_pool: other_file"), "but shots come from the task's own examples"),
        (("data: hills.jsonl", "data: {hub: us/x}"), "data is {'hub': 'us/x'}, expected {hub: owner/name, config: NAME"),
        (("data: hills.jsonl", "data: {hub: us/x, files: ../x}"), "leads out of the data set"),
        (("hills.jsonl", "{hub: us/x, config: a, split: b}"), "nor to be had from us/x on the Hugging Face hub"),
        ((PLAIN, "groups: {a: {of: [b]}}"), "there are groups and no task"),
        (("baseline: 0.333", "span: continuation"), "span is continuation, which goes with boundary: segments"),
        (
            ("baseline: 0.333", "rules: lm_eval\nspan: common_suffix"),
            "span is common_suffix and boundary is context_kept, expected span after_context or after_context_or_difference",
        ),
        (("baseline: 0.333", "shots: 3"), "hills.yaml: key 'shots' is not known, did you mean 'before_shots'"),
        (("gold: answer", "golden: answer"), "key 'golden' is not known, did you mean 'gold'?"),
        (("gold: answer", ""), "gold is None, expected a field's name or a template"),
        (("choices: options", "answer: options"), "key 'answer' is not of a task of kind choice"),
        (("baseline: 0.333", "target_delimiter: x"), "delimiter and target_delimiter are both given: name the one that"),
        (('delimiter: "\\nAnswer: "', "target_delimiter: x"), "target_delimiter would not be scored, as the span after_"),
        (('delimiter: "\\nAnswer: "', "target_delimiter: 3"), "target_delimiter is 3, expected a text"),
        (("choices: options", "choices: [hot]"), "choices is ['hot'], expected a field's name or a template or a list"),
        (("hills.jsonl", "hill.jsonl"), "and there is no such file"),
        (("hills.jsonl", "hills.xlsx"), "expected files that end in .jsonl, .json, .csv, .tsv, .parquet"),
        (("num_fewshot: 2", "num_fewshot: many"), "num_fewshot is 'many', expected a whole number"),
        (("num_fewshot: 2", "num_fewshot: 7"), "holds 7 examples, expected at least 8 to sample 7 others before each q"),
        (("baseline: 0.333", "fewshot_data: one.jsonl"), "holds 1 examples, expected at least 2 to sample 2 before each"),
        (("baseline: 0.333", "baseline: 25"), "baseline is 25, expected the accuracy of chance"),
        (("baseline: 0.333", "special_tokens: words"), "special_tokens is 'words', expected one of control, text"),
        (("baseline: 0.333", "rules: mmlu"), "rules is 'mmlu', expected one of core, gauntlet, lm_eval"),
        (("{{question}}", "{{question"), "question: 'Question: {{question' is no template"),
        (("{{question}}", "{{query}}"), "line 1: the template 'Question: {{query}}' cannot be filled ('query' is undef"),
        (("gold: answer", "gold: label"), "line 1: field 'label' is missing, found question, options, answer, n"),
        (("gold: answer", "gold: n"), "line 4: gold is 3, expected a place from 0 to 2"),
        (("choices: options", "choices: question"), "line 1: choices are 'the green hill is', expected a list"),
        ((PLAIN, "- task"), "found ['task'], expected keys such as task, data, question"),
        ((PLAIN, "task: &a [*a]"), "is no yaml"),
    ],
)  # fmt: skip
def test_wrong_files_are_one_sentence(
    change: tuple[str, str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path / "cache"))
    (tmp_path / "one.jsonl").write_text(lines_of(ROWS[:1]))
    path = write(tmp_path, PLAIN.replace(*change))

    def read() -> None:
        read_suite([str(path)]).locate(None, True)
        prompts_of(path)

    with pytest.raises(InputError) as error:
        read()
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("second", "content", "sentence"),
    [
        ("groups.yaml", {2024: {"of": ["hills"]}}, "group 2024: expected letters, digits"),
        ("groups.yaml", {"partial_a": {"of": ["hills"]}}, "that do not begin with partial_"),
        ("groups.yaml", {"a": {"of": ["hills"], "rescaled": "no"}}, "rescaled is 'no', expected true or false"),
        (
            "groups.yaml",
            {"a": {"of": ["hills"]}, "b": {"of": ["a"], "rescaled": True}},
            "is rescaled, but a is a group",
        ),
        (
            "groups.yaml",
            {"a": {"of": ["hills"], "weights": {"hills": 10**17}}},
            "expected equal, by_size or a number each",
        ),
        ("groups.yaml", [1], "expected names that no other file has"),
        ("twin.yaml", PLAIN, "has a task own/hills too: give one another name"),
        ("zero.py", "1 / 0", r"cannot be run \(ZeroDivisionError: division by zero\)"),
        ("none.py", "", "holds no Task"),
        ("absent.yaml", None, r"absent.yaml cannot be read \(No such file or directory\)"),
        ("", None, "the folder has no .yaml file"),
    ],
)
def test_wrong_second_files_are_one_sentence(tmp_path: Path, second: str, content: Any, sentence: str) -> None:
    path, folder = write(tmp_path / "tasks"), tmp_path / "empty"
    folder.mkdir()
    (tmp_path / "hills.jsonl").write_text(lines_of(ROWS))
    if content is not None:
        text = content if isinstance(content, str) else yaml.safe_dump({"groups": content})
        (tmp_path / second).write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_suite([str(path), str(tmp_path / second if second else folder)])


def test_wrong_tables_are_named() -> None:
    for table, sentence in (
        ("question,answer,answer\na,b,c\n", "two columns have one name"),
        ("question,answer\na\n", "line 2 has another number of values than the 2 columns"),
        ('question,answer\n"a\nb",c\n\nd\n', "line 5 has another number of values than the 2 columns"),
        ("question;answer\na;b;c\n", "line 2 has another number of values than the 2 columns"),
        ("", "is empty"),
    ):
        with pytest.raises(InputError, match=sentence):
            located_rows(table.encode(), Path("a.csv"), "own/a")


def test_suites_of_other_packages_are_found_by_their_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = replace(SUITES["core"], name="theirs")

    def installed(load: Callable[[], Any]) -> dict[str, Any]:
        entry = SimpleNamespace(name="theirs", value="theirs:SUITE", dist=None, load=load)
        monkeypatch.setattr(registry, "entry_points", lambda group: [entry] if group == "miron_jax.tasks" else [])
        return registry.installed_suites({"core"})

    assert installed(lambda: suite) == installed(lambda: [suite]) == {"theirs": suite}
    for wrong, sentence in (
        (lambda: 3, "is a int, expected a Suite"),
        (lambda: replace(suite, name="core"), "there is a suite core already"),
        (
            lambda: importlib.import_module("no_such"),
            r"cannot be loaded \(ModuleNotFoundError: No module named 'no_such'\)",
        ),
    ):
        with pytest.raises(InputError, match=sentence):
            installed(wrong)


# ------------------------------------------------------------------------------------------------------- the command


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("lm_eval"), reason=reason("lm_eval"))
def test_rules_of_lm_eval_are_those_of_lm_eval(miron: Any, place: Place, tmp_path: Path) -> None:
    """The same prompts, shots included, and the same sums and accuracies as lm-eval's own task of these records."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    from miron_jax.lm_eval import MironLM

    hills = PLAIN.replace('"\\nAnswer: "', '" "')
    doc = {"doc_to_text": "Question: {{question}}", "doc_to_choice": "{{options}}", "doc_to_target": "answer"}
    cups = {"doc_to_text": "right", "doc_to_choice": "{{begins}}", "doc_to_target": "ends"}  # as lm-eval has Winogrande
    theirs = {
        "test_split": "test", "fewshot_split": "test", "output_type": "multiple_choice", "dataset_path": "json",
    }  # fmt: skip
    evaluate: Any = lm_eval.simple_evaluate
    model = MironLM(str(place.model))
    cases = [("hills", hills, ROWS, doc, 2), ("cups", SCHEMA, TROPHY, cups, 1)]
    for name, delimiter in (("arrow", "\n-> "), ("none", "")):  # of which lm-eval scores what the choice begins with
        target = f"target_delimiter: {json.dumps(delimiter)}"
        for task, text, rows, docs, shots in cases[:2]:
            named = text.replace(f"task: {task}", f"task: {task}_{name}").replace('delimiter: " "', target)
            cases.append((f"{task}_{name}", named, rows, docs | {"target_delimiter": delimiter}, shots))
    for name, text, rows, docs, shots in cases:
        folder = tmp_path / name
        metric = "acc_norm" if name == "hills_arrow" else "acc"  # lm-eval divides by the choice without the delimiter
        normalizer = "normalizer: char\n" if metric == "acc_norm" else ""
        path = write(folder, f"{text}rules: lm_eval\n{normalizer}", rows)
        files = {"data_files": {"test": str(folder / "hills.jsonl")}}
        (folder / "lm_eval").mkdir()
        (folder / "lm_eval" / "task.yaml").write_text(
            json.dumps({**theirs, **docs, "task": name, "dataset_kwargs": files, "num_fewshot": shots})
        )
        manager = TaskManager(include_path=str(folder / "lm_eval"), include_defaults=False)
        expected = evaluate(model=model, tasks=[name], task_manager=manager, bootstrap_iters=0, log_samples=True)
        run(miron, place.model, folder / "out", f"--task_path={path}")
        _compare_samples(samples(folder / "out", f"own/{name}"), expected["samples"][name], metric)


def _compare_samples(mine: list[Any], theirs: list[Any], metric: str) -> None:
    for sample, other in zip(mine, theirs, strict=True):
        sums = [float(response[0][0]) for response in other["resps"]]
        assert [option["logprob"] for option in sample["options"]] == pytest.approx(sums, abs=CONTINUATION)
        assert sample["metrics"]["accuracy"] == other[metric]


def _rows(options: str, golds: list[int], questions: str = "abcdefghijklmnopqrstuvwxyz") -> list[Any]:
    return [
        {"question": question, "options": options.split(","), "answer": gold}
        for question, gold in zip(questions, golds, strict=False)
    ]


SAME = _rows("x,y", [0, 1, 1, 0], "abab")
EVEN = [0, 1] * 6


@pytest.mark.parametrize(
    ("rows", "sentences"),
    [
        (_rows("x,y", EVEN), []),
        (
            [*_rows("x,y", EVEN), *_rows("x, x,y", [2], "z")],
            ["1 of 13 examples have two equal options, the first is record 13",
             "1 of 13 examples have a space before an option and a delimiter's, the first is record 13"],
        ),
        (
            [*_rows("x,y", EVEN), *_rows("small,small hill", [1], "z")],
            ["1 of 13 examples have an option that begins with another one, the first is record 13"],
        ),
        (
            SAME,
            ["2 of 4 examples ask what an earlier one asks (as shots they carry the answer), the first is record 3",
             "4 of 4 examples have one question and several right answers, the first is record 1"],
        ),
        (_rows("x,y", [1] * 5), ["the right choice is at place 1 of all 5 examples, the first is record 1"]),
        # .5 + 2 sqrt(.25 / 12) = .789
        (_rows("x,y", [0, *[1] * 10, 0]), ["the choice 'y' is right in 10 of 12 examples (0.833, by chance 0.500), the "
                                           "first is record 2"]),
        (_rows("x,y", [0, *[1] * 9, 0, 0]), []),
        (_rows("w,x,y,z", [1, 2, 3] * 6), ["the right choice is never the first one in 18 examples"]),  # .75 ** 18 = .006
    ],
)  # fmt: skip
def test_check_says_what_may_be_wrong(rows: list[Any], sentences: list[str], tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN.replace("num_fewshot: 2", "num_fewshot: 0"), rows)
    said = list(findings(task_of(path), read_examples(task_of(path), tmp_path)))
    assert [line[: len(sentence)] for line, sentence in zip(said, sentences, strict=True)] == sentences


def test_check_counts_leaked_shots_and_labels_of_one_first_token(tmp_path: Path) -> None:
    from miron_jax.model import demo

    rows = _rows("zibs,zabs", EVEN)
    path = write(tmp_path, PLAIN + "fewshot_data: others.jsonl\nfewshot_draw: first\n", rows)
    (tmp_path / "others.jsonl").write_text(lines_of([rows[3], rows[5]]))
    task = task_of(path)
    examples = read_examples(task, tmp_path)
    leaked, labels = findings(task, examples, load_tokenizer(str(demo.FOLDER)))
    assert leaked.startswith("2 of 12 prompts have a shot that is the question itself, the first is that of record 4")
    assert labels.startswith("2 of 2 labels begin with the first token of another one in all 12 examples")


@pytest.mark.slow
def test_check_reads_and_describe_shows(miron: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "tasks", PLAIN + "licence: CC0\ncitation: us\n", [*ROWS, ROWS[0]])
    ran = miron("tasks", f"--check={path}", "--model=demo")
    repeats = "    1 of 8 examples ask what an earlier one asks (as shots they carry the answer), the first is record 8"
    line, first = ran.out.splitlines()
    assert (ran.status, line, first) == (0, "own/hills: choice, 8 examples, 1 to look at:", repeats), ran.err
    ran = miron("tasks", "--describe=own/hills", f"--task_path={path}", "--model=demo")
    assert ran.status == 0, ran.err
    for line in (
        "licence of the data: CC0", "cite: us", "baselines: random 0.333", "    num_fewshot: 2",
        "repeated examples: 1 of 8 are there before", "requests: 24, the longest of ",
    ):  # fmt: skip
        assert line in ran.out
    requests = [line for line in ran.out.splitlines() if line.startswith("  request ")]
    assert len(requests) == 3
    assert sum("(right)" in line for line in requests) == 1
    assert all(line.endswith("⟧") and line.count("⟦") == 1 for line in requests)
    wrong = write(tmp_path / "wrong", PLAIN.replace("num_fewshot: 2", "num_fewshot: 7"))
    monkeypatch.chdir(tmp_path)
    for arguments in (("tasks", f"--check={wrong}"), ("eval", f"--task_path={wrong}", "--model=demo", "--output=out")):
        ran = miron(*arguments)
        assert (ran.status, ran.err.count("miron-jax: ")) == (2, 1), ran.err
        assert "holds 7 examples, expected at least 8 to sample 7 others" in ran.err
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("names", ["miron-gen/en", "gauntlet-programming/human_eval", "eval-ua-tion-gen-text/lmes_low"])
def test_every_kind_of_task_is_described(miron: Any, names: str, shared_data: Path) -> None:
    data = f"--data_dir=gauntlet-programming={shared_data / 'eval_bundle'}"
    ran = miron("tasks", f"--describe={names}", data, "--items_per_category=3", "--max_length=512")
    assert ran.status == 0, ran.err
    assert "rules:" in ran.out
    assert "first" in ran.out


@pytest.mark.slow
def test_a_run_says_what_makes_its_numbers_worthless(miron: Any, tmp_path: Path) -> None:
    """One question for all rows has one text; equal options tie; three examples are too few to say either."""
    rows = [{**row, "question": "the sun"} for row in ROWS]
    written = GENERATE + "question_delimiter: whole\n"
    texts = write(tmp_path, written.replace("task: hills", "task: texts"), rows, "texts")
    same = LISTED.replace("cold {{'rain'}}", "hot").replace("small", "hot") + "span: after_context\n"
    ties = write(tmp_path, same, rows)
    flags = (f"--task_path={texts},{ties}", "--steps=latest")
    tasks = run(miron, Path("demo"), tmp_path / "out", *flags)["tasks"]
    assert (tasks["own/texts"]["alike"], tasks["own/texts"]["prompts_end_in_space"]) == ("equal", 7)
    assert tasks["own/hills"]["leaked_prompts"] == 7
    assert "leaked_prompts" not in tasks["own/texts"], "it has no shots"
    shown = " ".join(miron("report", str(tmp_path / "out")).out.split())
    for sentence in (
        "own/texts: all texts that the model wrote are equal",
        "own/texts: 7 prompts end in a space, which tokenizers join with the next word",
        "own/hills: each of the 7 examples is a tie",
        "7 prompts with a shot that asks the same question: they hold their answer",
    ):
        assert sentence in shown, shown
    assert "never_right_rows" not in tasks["own/texts"]
    fewer = run(miron, Path("demo"), tmp_path / "few", *flags, "--limit=3")["tasks"]["own/texts"]
    assert ("alike" in fewer, fewer["prompts_end_in_space"]) == (False, 3)


@pytest.mark.slow
def test_a_run_counts_answers_that_hold_a_stop_string_and_tokens_without_text(miron: Any, tmp_path: Path) -> None:
    """The tiny model has 331 rows, its tokenizer fewer tokens.  Rows are counted from 0."""
    model = make_model(tmp_path / "model")
    rows = [{**row, "n": "1\n2" if i in (1, 4) else i} for i, row in enumerate(ROWS)]
    path = write(tmp_path, GENERATE + "match: equal\nextra_tokens: 40\n", rows)
    task = run(miron, model, tmp_path / "out", f"--task_path={path}")["tasks"]["own/hills"]
    assert (task["answer_holds_stop_rows"], task["never_right_rows"]) == ([1, 4], [1, 4])
    config = RunConfig(str(model), ("own",), task_path=(str(path),))
    [scores] = evaluate(config, find_inputs(config)).tasks
    drawn = [token for row in scores.rows for token in row.completion.token_ids]
    assert task["tokens_without_text"] == sum(token >= len(load_tokenizer(str(model))) for token in drawn) > 0
    shown = " ".join(miron("report", str(tmp_path / "out")).out.split())
    assert "that holds either in row 1, 4" in shown, shown
    assert "no text at all is right in row 1, 4" in shown, shown
    assert f"{task['tokens_without_text']} tokens of completions have no text: the model has more rows" in shown


@pytest.mark.slow
def test_a_task_without_room_is_left_out_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, miron
) -> None:
    """hills has answers of a token or two; long asks for 100 tokens more than the limit."""
    hills = write(tmp_path, GENERATE)
    long = tmp_path / "long.yaml"
    long.write_text(GENERATE.replace("hills\n", "long\n", 1) + "extra_tokens: 100\n")
    monkeypatch.chdir(tmp_path)
    flags = ("--model=demo", f"--task_path={hills},{long}", "--max_length=60", "--steps=latest")
    ran = miron("eval", *flags, "--tasks=own", "--limit=2", "--output=all")
    assert ran.status == 0, ran.err
    assert "left out, as they do not fit: own/long: its longest answer takes 10" in " ".join(ran.err.split())
    results = json.loads((tmp_path / "all" / "results.json").read_text())
    assert list(results["tasks"]) == ["own/hills"]
    assert "leaves no room for a prompt" in results["suites"]["own"]["missing_data"]["own/long"]
    ran = miron("eval", *flags, "--tasks=own/hills,own/long", "--output=named")
    assert ran.status == 2
    assert "own/long: its longest answer takes" in ran.err
    assert not (tmp_path / "named" / "results.json").exists()
