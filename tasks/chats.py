"""Tasks whose prompts are made by the tokenizer's chat template, under names of their own.

Arrives: a task, how few-shot examples stand.  Leaves: the same task as SUITE/TASK/chat, or
SUITE/TASK/chat-one-turn.  It deliberately does not know templates.  No composite takes a task under
such a name.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from miron_jax.definitions.records import AnyTask, ClozeTask, Profile, PromptedTask
from miron_jax.errors import InputError
from miron_jax.tasks.request_sets import requests_suite
from miron_jax.tokens.spans import AFTER_PROMPT

SUFFIX = {"turns": "chat", "one_turn": "chat-one-turn"}
_WHY_NOT = {  # by kind
    "code": "a program goes on where its prompt ends",
    "dialogue": "a dialogue has the model's earlier answers within its text",
    "expert": "a solution goes on where its prompt ends",
    "text": "a document is no answer",
}


def with_chat_template(
    tasks: Sequence[AnyTask], form: Literal["turns", "one_turn"]
) -> list[AnyTask]:
    """Raises InputError for tasks that have no chat, by their names."""
    chats = list[AnyTask]()
    refused = dict[str, list[str]]()
    for task in tasks:
        if why := _why_not(task, form):
            refused.setdefault(why, []).append(task.name)
        elif isinstance(task, ClozeTask):
            chats.append(_with_turn(task, form))
        else:
            chats.append(_with_chat(task, form))
    if refused:
        whose = "; ".join(f"{', '.join(names)}: {why}" for why, names in refused.items())
        raise InputError(
            f"--chat_template={form} is not for all tasks of --tasks ({whose}): leave these out"
        )
    return chats


def _with_chat(task: PromptedTask, form: Literal["turns", "one_turn"]) -> PromptedTask:
    profile = replace(task.profile, chat=form, bos="never", answer_start="stripped")
    if not isinstance(profile, Profile):
        profile = replace(profile, boundary="joint")
    elif profile.boundary == "context_kept":  # lm-eval's rules are for chats too
        profile = replace(profile, answer_start="as_written")
    else:
        profile = replace(
            profile,
            boundary="context_kept",
            span=AFTER_PROMPT,
            continuation_space="as_written",
        )
    return replace(task, name=f"{task.name}/{SUFFIX[form]}", profile=profile, reference={})


def _with_turn(task: ClozeTask, form: Literal["turns", "one_turn"]) -> ClozeTask:
    """Its prefix is the user's turn; it has no few-shot examples."""
    profile = replace(
        task.profile, chat=form, bos="never", boundary="context_kept", span="after_prompt"
    )
    return replace(task, name=f"{task.name}/{SUFFIX[form]}", profile=profile)


def _why_not(task: AnyTask, form: str) -> str:
    """Why a task has no prompts as chats; "": it has."""
    if isinstance(task, ClozeTask) or task.kind in _WHY_NOT:
        return _WHY_NOT.get(task.kind, "")
    if task.name.startswith(f"{requests_suite.NAME}/"):
        return "a frozen request set has its texts whole"
    if task.profile.special_tokens == "text":
        return "it reads names of special tokens as text, and a template writes such names"
    if form == "turns" and task.arrange is not None and task.profile.num_fewshot:
        return (
            "its suite writes its few-shot examples as one text, which "
            "--chat_template=one_turn takes"
        )
    return ""
