"""--chat_template from end to end: lm-eval's prompts and sums, results that no plain run is compared with, refusals."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import miron_jax
from miron_jax.definitions.data_files import read_examples
from miron_jax.definitions.records import Task
from miron_jax.errors import InputError
from miron_jax.prompting.prompts import render
from miron_jax.tasks.chats import with_chat_template
from miron_jax.tasks.own_tasks.yaml_task import read_suite
from miron_jax.tokens.chats import Chat
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.command import run, samples
from tests.support.needs import reason
from tests.support.tiny_model import make_model
from tests.support.tolerances import CONTINUATION
from tests.tokens.test_chats import TEMPLATE, tokenizer_with

ROWS = [
    {"q": f"the {word} hill is", "c": ["hot", "cold rain", "small"], "a": i % 3, "w": word, "b": ["the sun", f"a {word}"],
     "e": f"is {word}.", "g": i % 2} for i, word in enumerate(("green", "small", "cold", "hot", "rain"))
]  # fmt: skip
KEYS = 'data: x.jsonl\nrules: lm_eval\nnum_fewshot: 2\ndelimiter: " "\n'
TASKS = {
    "choice": 'question: "Question: {{q}}"\nchoices: c\ngold: a\nbefore_shots: "Be brief.\\n\\n"\n',
    "schema": "kind: schema\ncontexts: b\nanswer: e\ngold: g\n",
    "write": "kind: generation\nquestion: q\nanswer: w\n",
}
LM_EVAL = {
    "choice": {"doc_to_text": "Question: {{q}}", "doc_to_choice": "{{c}}", "doc_to_target": "a",
               "description": "Be brief.\n\n", "output_type": "multiple_choice"},
    # multiple inputs, as lm-eval has Winogrande
    "schema": {"doc_to_text": "g", "doc_to_choice": "{{b}}", "doc_to_target": "e", "output_type": "multiple_choice"},
    "write": {"doc_to_text": "{{q}}", "doc_to_target": "{{w}}", "output_type": "generate_until"},
}  # fmt: skip


def write_model(folder: Path, template: str | None = TEMPLATE) -> Path:
    make_model(folder, vocabulary=401)
    tokenizer_with(template).save_pretrained(folder)
    return folder


def write_tasks(folder: Path) -> str:
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for name, text in TASKS.items():
        (folder / f"{name}.yaml").write_text(f"task: {name}\n{KEYS}{text}")
    return ",".join(str(folder / f"{name}.yaml") for name in TASKS)


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("lm_eval"), reason=reason("lm_eval"))
@pytest.mark.parametrize("form", ["turns", "one_turn"])
def test_prompts_and_scores_are_lm_evals(form: Any, miron: Any, tmp_path: Path) -> None:
    """--apply_chat_template --fewshot_as_multiturn of a choice with an instruction, a schema and a completion."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    from miron_jax.lm_eval import MironLM

    model = write_model(tmp_path / "model")
    paths = write_tasks(tmp_path)
    flags = (f"--task_path={paths}", "--tasks=own", f"--chat_template={form}")
    results = run(miron, model, tmp_path / "out", *flags)
    suffix = {"turns": "chat", "one_turn": "chat-one-turn"}[form]
    folder = tmp_path / "lm_eval"
    folder.mkdir()
    for name, task in LM_EVAL.items():
        keys = {
            "task": name, "test_split": "test", "fewshot_split": "test", "dataset_path": "json", "num_fewshot": 2,
            "dataset_kwargs": {"data_files": {"test": str(tmp_path / "x.jsonl")}}, **task,
        }  # fmt: skip
        if name == "write":
            most = results["tasks"][f"own/write/{suffix}"]["max_new_tokens"]
            keys["generation_kwargs"] = {"until": ["\n"], "max_gen_toks": most, "do_sample": False}
        (folder / f"{name}.yaml").write_text(json.dumps(keys))
    evaluate: Any = lm_eval.simple_evaluate
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    theirs = evaluate(
        model=MironLM(str(model)), tasks=[*LM_EVAL], task_manager=manager,
        apply_chat_template=True, fewshot_as_multiturn=form == "turns", bootstrap_iters=0, log_samples=True,
    )["samples"]  # fmt: skip
    tokenizer = load_tokenizer(str(model))
    for plain in read_suite(paths.split(",")).tasks:
        [task] = with_chat_template([plain], form)
        assert isinstance(task, Task)
        prompts = Chat(tokenizer).prompts(render(task, read_examples(task, tmp_path)), task.profile)
        name = task.name.split("/")[1]
        mine = samples(tmp_path / "out", task.name)
        for prompt, sample, other in zip(prompts, mine, theirs[name], strict=True):
            contexts = [context for context, *_ in other["arguments"]]
            assert [prompt.preamble + context for context in prompt.contexts] == contexts
            if name == "write":
                assert sample["generated"] == other["resps"][0][0].partition("<|end|>")[0]
                continue
            assert [*prompt.continuations] == [continuation for _, continuation in other["arguments"]]
            sums = [float(response[0][0]) for response in other["resps"]]
            assert [option["logprob"] for option in sample["options"]] == pytest.approx(sums, abs=CONTINUATION)
            assert sample["metrics"]["accuracy"] == other["acc"]


@pytest.mark.slow
def test_results_are_marked_and_compared_with_no_plain_run(miron: Any, tmp_path: Path) -> None:
    """Another name, its rules in the profile, another folder's identity; the page says why prompts are not whole."""
    model = write_model(tmp_path / "model")
    write_tasks(tmp_path)
    path = tmp_path / "choice.yaml"
    path.write_text(path.read_text().replace("Be brief.", "Be brief. " * 9))
    task = f"--task_path={path}"
    results = run(miron, model, tmp_path / "chat", task, "--tasks=own", "--chat_template=turns")
    assert [*results["tasks"]] == ["own/choice/chat"]
    profile = results["tasks"]["own/choice/chat"]["profile"]
    assert (profile["chat"], profile["bos"], profile["boundary"]) == ("turns", "never", "context_kept")
    assert results["config"]["chat_template"] == "turns"
    assert "own/choice/chat " in miron("report", str(tmp_path / "chat")).out
    plain = run(miron, model, tmp_path / "plain", task, "--tasks=own")
    assert "chat" not in plain["tasks"]["own/choice"]["profile"]
    assert "chat_template" not in plain["config"]
    compared = miron("compare", str(tmp_path / "plain"), str(tmp_path / "chat"))
    assert compared.status == 2
    assert "have no task in common" in compared.err
    again = miron("eval", f"--model={model}", f"--output={tmp_path / 'plain'}", task, "--chat_template=turns")
    assert again.status == 2
    page = tmp_path / "page.html"
    assert miron("report", str(tmp_path / "chat"), f"--html={page}").status == 0
    assert "a page has no tokenizer, whose chat template made this prompt" in page.read_text()


@pytest.mark.slow
def test_an_evaluator_asks_by_the_template_too(miron: Any, tmp_path: Path) -> None:
    """Of files as the command, and of rows in memory: CORE's zero-shot COPA is one turn of the user."""
    model = write_model(tmp_path / "model")
    write_tasks(tmp_path)
    path = str(tmp_path / "choice.yaml")
    evaluator = miron_jax.Evaluator(model, tasks=["own"], task_path=[path], chat_template="turns", max_length=200)
    flags = (f"--task_path={path}", "--tasks=own", "--chat_template=turns", "--max_length=200")
    of_command = run(miron, model, tmp_path / "out", *flags)["tasks"]["own/choice/chat"]["metrics"]
    params = miron_jax.load_params(model)
    assert evaluator.run(params)["tasks"]["own/choice/chat"]["metrics"] == of_command
    rows = [{"query": "the sun is", "choices": ["hot", "cold rain"], "gold": 0}] * 3
    hills = {"rows": rows, "type": "multiple_choice", "num_fewshot": 0, "delimiter": " "}
    data = {"core/copa": rows, "hills": hills}
    results = miron_jax.Evaluator(model, data=data, chat_template="turns").run(params)
    assert [*results["tasks"]] == ["core/copa/chat", "hills/chat"]
    for task in results["tasks"].values():
        assert (task["profile"]["chat"], task["n"]) == ("turns", 3)
    with pytest.raises(InputError, match="--controls changes plain ones"):
        miron_jax.Evaluator(model, data=data, chat_template="turns", controls=True)


def test_wrong_input_is_one_sentence(miron: Any, tmp_path: Path) -> None:
    write_tasks(tmp_path)
    task = f"--task_path={tmp_path / 'choice.yaml'}"
    thinks = TEMPLATE.replace("{{ m['content'] }}", "{% if m['role'] == 'assistant' %}<t>{% endif %}{{ m['content'] }}")
    models = {each: write_model(tmp_path / each, text) for each, text in (("none", None), ("thinks", thinks))}
    cases = [
        (("none", "--chat_template=turns"), "has no chat template: leave the flag out"),
        (("thinks", "--chat_template=one_turn"), "moves the answer's border: a prompt ends with"),
        (("thinks", "--chat_template=turns", "--controls"), "--controls changes plain ones"),
        (("thinks", "--chat_template=both"), "expected one of turns, one_turn"),
        (("thinks", "--chat_template=turns", "--tasks=own,mera-v1/rutie"), "mera-v1/rutie: a dialogue has the model's"),
    ]
    for (model, *flags), sentence in cases:
        out = tmp_path / "out"
        ran = miron("eval", f"--model={models[model]}", f"--output={out}", task, "--tasks=own", *flags)
        *said, last = ran.err.splitlines()
        assert (ran.status, len(said) < 2, sentence in last) == (2, True, True), ran.err
        assert not (out / "results.json").exists()
