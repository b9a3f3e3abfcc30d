"""Prompts by a chat template: the ids of `apply_chat_template`, pieces that prompts share, refused templates."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import decoders, processors

from miron_jax.definitions.records import Cloze, ClozeTask, Task
from miron_jax.errors import InputError
from miron_jax.prompting.prompts import Prompt, render, without_shots
from miron_jax.tasks.chats import with_chat_template
from miron_jax.tasks.registry import SUITES
from miron_jax.tokens.answer_requests import answer_requests
from miron_jax.tokens.chats import Chat
from miron_jax.tokens.cloze_requests import cloze_requests
from miron_jax.tokens.requests import tokenize
from miron_jax.tokens.token_bytes import TokenBytes
from miron_jax.tokens.truncation import fitting
from tests.support.own_task import CHOICE, TEXT, read_task
from tests.support.tiny_tokenizer import trained

TURNS = "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
TEMPLATE = "{{ bos_token }}" + TURNS + PROMPT
STRIPS = TEMPLATE.replace("m['content']", "m['content'] | trim")
REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TEMPLATE
SPECIAL = ["<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
SHOTS = CHOICE + 'num_fewshot: 2\nbefore_shots: "Be brief."\ndelimiter: "\\nAnswer: "\n'
FORMS = ("turns", "one_turn")


def tokenizer_with(template: Any) -> Any:
    """It puts BOS before each text by itself."""
    tokenizer = trained(SPECIAL)
    tokenizer.add_special_tokens({"bos_token": "<|bos|>", "eos_token": "<|end|>", "additional_special_tokens": SPECIAL})
    bos = [("<|bos|>", tokenizer.convert_tokens_to_ids("<|bos|>"))]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=bos)
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    tokenizer.chat_template = template
    return tokenizer


def chats(
    folder: Path, keys: str, records: list[Any], form: Any, template: str = TEMPLATE
) -> tuple[Task[Any], list[Prompt], Any]:
    plain, examples = read_task(folder, keys, records)
    [task] = with_chat_template([plain], form)
    assert isinstance(task, Task)
    tokenizer = tokenizer_with(template)
    return task, Chat(tokenizer).prompts(render(task, examples), task.profile), tokenizer


def asked(count: int = 5) -> list[dict[str, Any]]:
    return [{"q": f"where {i}?", "c": ["the mat", "the sea"], "a": i % 2} for i in range(count)]


def talk(form: str, shots: Sequence[int], asked: int, delimiter: str = "\nAnswer: ") -> list[dict[str, str]]:
    """What the tokenizer is given: "where 1?" was answered "Answer: the sea"."""
    messages = [{"role": "system", "content": "Be brief."}]
    answers = ["the mat", "the sea"]
    if form == "one_turn":
        before = "".join(f"where {i}?{delimiter}{answers[i % 2]}\n\n" for i in shots)
        return [*messages, {"role": "user", "content": f"{before}where {asked}?"}]
    for i in shots:
        messages.append({"role": "user", "content": f"where {i}?"})
        messages.append({"role": "assistant", "content": f"{delimiter.lstrip()}{answers[i % 2]}"})
    return [*messages, {"role": "user", "content": f"where {asked}?"}]


def shots_of(prompt: Prompt, folder: Path, keys: str, records: list[Any]) -> list[int]:
    """The rows of its shots in a plain run."""
    plain = next(each for each in render(*read_task(folder, keys, records)) if each.id == prompt.id)
    return [int(text.partition("where ")[2].partition("?")[0]) for text in plain.shots[1:]]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rules", ["core", "gauntlet", "lm_eval"])
def test_ids_of_choices_are_those_of_the_tokenizers_own_template(rules: str, form: str, tmp_path: Path) -> None:
    """BOS stands there once, markers are their ids, and the answer is scored from its first token on.  By lm-eval's rules
    the line break before it is scored too, as lm-eval moves white space at a context's end to its continuation."""
    keys = f"{SHOTS}rules: {rules}\n"
    task, prompts, tokenizer = chats(tmp_path, keys, asked(), form)
    assert task.name == {"turns": "own/x/chat", "one_turn": "own/x/chat-one-turn"}[form]
    requests = iter(tokenize(prompts, task.profile, tokenizer, None, task.name))
    for prompt in prompts:
        shots = shots_of(prompt, tmp_path, keys, asked())
        separator = task.profile.shot_separator
        messages = talk(form, shots, prompt.row)
        if form == "one_turn":
            messages[-1]["content"] = messages[-1]["content"].replace("\n\n", separator)
        expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        for choice in ("the mat", "the sea"):
            ids, start = next(requests)
            assert prompt.preamble + prompt.contexts[0] == text
            assert ids[: len(expected)].tolist() == expected
            assert ids.tolist().count(tokenizer.bos_token_id) == 1
            scored = tokenizer(f"Answer: {choice}", add_special_tokens=False)["input_ids"]
            assert ids[len(expected) :].tolist() == scored
            assert start == len(expected) - (rules == "lm_eval")


@pytest.mark.parametrize("form", FORMS)
def test_ids_of_completions_are_the_template_and_the_beginning_of_the_answer(form: str, tmp_path: Path) -> None:
    records = [{"q": f"where {i}?", "a": ["the mat", "the sea"][i % 2]} for i in range(5)]
    keys = f'{TEXT}num_fewshot: 2\nbefore_shots: "Be brief."\ndelimiter: "\\nAnswer: "\n'
    task, prompts, tokenizer = chats(tmp_path, keys, records, form)
    _, questions = read_task(tmp_path, keys, records)
    made = answer_requests(prompts, questions, task.profile, tokenizer, None, task.name)
    for prompt, ids in zip(prompts, made.prompts, strict=True):
        messages = talk(form, shots_of(prompt, tmp_path, keys, records), prompt.row)
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert [*ids] == tokenizer(f"{text}Answer:", add_special_tokens=False)["input_ids"]
    assert Chat(tokenizer).end_of_turn == "<|end|>"


def test_an_items_prefix_is_the_users_turn_and_its_target_the_answer() -> None:
    tokenizer = tokenizer_with(TEMPLATE)
    [task] = with_chat_template([SUITES["miron"].tasks[0]], "turns")
    assert isinstance(task, ClozeTask)
    assert task.name == "miron/en/chat"
    item = Cloze(0, "sea", "the sea is", " blue", "Facts", (" the mat",), "the blue sea is", "noise", 1)
    chat = Chat(tokenizer).item(item)
    table = TokenBytes(tokenizer)
    requests, [asked] = cloze_requests([chat], task.profile, tokenizer, table, None, task.name)
    messages = [{"role": "user", "content": "the sea is"}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    clean = [{"role": "user", "content": "the blue sea is"}]
    before = tokenizer.apply_chat_template(clean, add_generation_prompt=True, return_dict=False)
    blue, mat = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("blue", "the mat"))
    assert [*asked.prompt] == prompt
    [distractor] = asked.distractors
    for request, ids in ((asked.target, prompt + blue), (asked.card, prompt + blue), (distractor, prompt + mat),
                         (asked.clean, before + blue)):  # fmt: skip
        assert request is not None
        assert requests.tokens(request).tolist() == ids
        assert requests.span_start[request] == len(ids) - len(mat if request == distractor else blue)
    assert (asked.seam, asked.regress, asked.num_tokens) == (False, False, len(blue))


def test_prompts_share_the_texts_of_their_shots(tmp_path: Path) -> None:
    """Each turn is one string, whatever prompts hold it; a template that strips contents has the same pieces."""
    records = [row | {"q": f" {row['q']} "} for row in asked(9)]
    for template in (TEMPLATE, STRIPS):
        for form in FORMS:
            _, prompts, _ = chats(tmp_path, SHOTS, records, form, template)
            assert {len(prompt.shots) for prompt in prompts} == {3}
            assert len({id(prompt.shots[0]) for prompt in prompts}) == 1
            assert all(prompt.contexts[0] is prompt.contexts[1] for prompt in prompts)
            assert all(prompt.shots[0].endswith("<|user|>\n") for prompt in prompts)
            if template is STRIPS:
                assert all(prompt.contexts[0].endswith("?<|end|>\n<|assistant|>\n") for prompt in prompts)


def test_shots_without_room_are_left_out_of_the_users_turn(tmp_path: Path) -> None:
    task, prompts, tokenizer = chats(tmp_path, SHOTS, asked(), "one_turn")
    droppable = [replace(prompt, num_shots=2) for prompt in prompts]
    profile = replace(task.profile, truncation="whole_shots")
    longest = max(len(tokenizer(each.preamble + each.contexts[0] + "Answer: the mat")["input_ids"]) for each in prompts)
    shorter = fitting(droppable, profile, tokenizer, longest - 10)
    assert {each.num_shots for each in shorter} == {1}
    for prompt, kept in zip(prompts, shorter, strict=True):
        assert kept.shots == (prompt.shots[0], prompt.shots[2])
    assert {each.num_shots for each in fitting(droppable, profile, tokenizer, 12)} == {0}


def test_a_template_without_system_texts_has_the_instruction_in_the_first_turn(tmp_path: Path) -> None:
    for form in FORMS:
        _, prompts, _ = chats(tmp_path, SHOTS, asked(), form, REFUSES)
        for prompt in prompts:
            text = prompt.preamble + prompt.contexts[0]
            assert text.startswith("<|bos|><|user|>\nBe brief.\n\nwhere ")
            assert text.count("Be brief.") == 1


def test_every_context_of_a_schema_has_its_turn(tmp_path: Path) -> None:
    """The common ending is the answer, and the shots are shared."""
    records = [{"q": ["the cat: the cat", "the cat: the mat"], "w": f"is {i}.", "a": i % 2} for i in range(4)]
    keys = "task: x\nkind: schema\ndata: x.jsonl\ncontexts: q\nanswer: w\ngold: a\nnum_fewshot: 1\n"
    _, prompts, _ = chats(tmp_path, keys, records, "turns")
    for prompt in prompts:
        assert without_shots(prompt).contexts == ("the cat: the cat<|end|>", "the cat: the mat<|end|>")
        assert prompt.continuations == (f"is {prompt.row}.",) * 2
        assert prompt.contexts == tuple(f"the cat: the {noun}<|end|>\n<|assistant|>\n" for noun in ("cat", "mat"))


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        (None, "has no chat template: leave the flag out"),
        # as of models that think: the finished turn has a mark that the prompt has not
        (TEMPLATE.replace("{{ m['content'] }}", "{% if m['role'] == 'assistant' %}<t></t>{% endif %}{{ m['content'] }}"),
         "moves the answer's border: a prompt ends with"),
        (TURNS, "moves the answer's border"),  # no generation prompt
        ("{{ bos_token }}" + PROMPT, "moves the answer's border"),  # no question
        ("{{ raise_exception('never') }}", r"refuses turns of user \(never\)"),
        ("{% for %}", "refuses turns of user"),
    ],
)  # fmt: skip
def test_templates_that_no_prompt_can_have_are_refused(template: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=rf"^--chat_template: the .*{sentence}") as error:
        Chat(tokenizer_with(template))
    assert "\n" not in str(error.value)


def test_tasks_without_chats_are_refused_by_name() -> None:
    named = {task.name: task for suite in SUITES.values() for task in suite.tasks}
    arranged = next(n for n, t in named.items() if isinstance(t, Task) and t.arrange and t.profile.num_fewshot)
    cases = {
        "gauntlet-programming/human_eval": "a program goes on where its prompt ends",
        "mera-v1/rutie": "a dialogue has the model's earlier answers",
        arranged: "--chat_template=one_turn takes",
    }
    for name, sentence in cases.items():
        with pytest.raises(InputError, match=rf"^--chat_template=turns .*{name}: .*{sentence}"):
            with_chat_template([named["core/copa"], named[name]], "turns")
    [task] = with_chat_template([named[arranged]], "one_turn")
    assert task.name == f"{arranged}/chat-one-turn"
