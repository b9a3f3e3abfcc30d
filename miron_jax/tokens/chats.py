"""Prompts -> the same by the tokenizer's chat template.

Arrives: a tokenizer with a template; prompts whose contexts are questions alone.  Leaves: prompts
whose contexts end with the template's generation prompt; a continuation is the beginning of the
assistant's turn.  It deliberately does not know token ids.

The text of a prompt is what `tokenizer.apply_chat_template` makes of

    turns       [system: instruction,] user: question, assistant: answer, .., user: question
    one_turn    [system: instruction,] user: few-shot examples and question

with `add_generation_prompt`, as lm-eval 0.4.13 does with --apply_chat_template, with
--fewshot_as_multiturn or without.  All special tokens are the template's.  A template without
system texts has the instruction at the beginning of the user's first turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from jinja2 import TemplateError

from miron_jax.definitions.records import AnswerProfile, Wording
from miron_jax.errors import InputError
from miron_jax.prompting.chats import lead_of
from miron_jax.prompting.prompts import Prompt, without_end_spaces
from miron_jax.tokens.tokenizers import Tokenizer

_FLAG = "--chat_template"
# What a template is tried out with; no content of a template is likely to hold these words.
_SYSTEM, _WORDS = "Xsystemx", ("Xaskedx", "Xansweredx")


class _Message(NamedTuple):
    role: str  # system, user or assistant
    # its content is these, end to end; of a user: few-shot examples of one turn, then the question
    parts: tuple[str, ...]


class Chat:
    """A tokenizer's chat template, tried out once.  Raises InputError for one that no prompt can
    have."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        if not getattr(tokenizer, "chat_template", None):
            raise InputError(
                f"{_FLAG}: the tokenizer {self._name} has no chat template: leave the flag out, or "
                "name another with --tokenizer"
            )
        self.takes_system = self._has_system()
        self.end_of_turn = self._end_of_turn()  # the text behind an answer; "": there is none
        self._between = cache(self._found_between)
        self._same = dict[str, str]()  # one string object each, whatever prompts hold it

    def prompts(self, prompts: Sequence[Prompt], profile: Wording) -> list[Prompt]:
        """`profile`: has `chat`."""
        lead = without_end_spaces(lead_of(profile)) if isinstance(profile, AnswerProfile) else ""
        chats = list[Prompt]()
        for prompt in prompts:
            chat = self._prompt(prompt, profile, lead)
            if lead:
                answers = tuple(text.removeprefix(lead) for text in prompt.continuations)
                chat = replace(chat, continuations=answers)
            chats.append(chat)
        return chats

    def _prompt(self, prompt: Prompt, profile: Wording, lead: str) -> Prompt:
        before = dict[tuple[str, ...], None]()
        rendered = dict[str, list[str]]()
        for context in dict.fromkeys(prompt.contexts):
            rendered[context] = self._rendered(prompt, context, profile)
            before[tuple(rendered[context][:-1])] = None
        contexts = dict[str, str]()
        shots: tuple[str, ...] = ()
        if len(before) == 1:
            [shots] = before
        for context, texts in rendered.items():
            contexts[context] = "".join(texts[len(shots) :]) + lead
        num_shots = prompt.num_shots if len(shots) > (prompt.num_shots or 0) else None
        return replace(
            prompt,
            contexts=tuple(contexts[context] for context in prompt.contexts),
            shots=tuple(self._same.setdefault(text, text) for text in shots),
            num_shots=num_shots,
            turns=(),
        )

    def _rendered(self, prompt: Prompt, question: str, profile: Wording) -> list[str]:
        """What stands before the first shot, each shot, and the question with all behind it; one
        text where the template has changed some of them."""
        messages = list[_Message]()
        instruction = profile.prompt_string
        if instruction and self.takes_system:
            messages.append(_Message("system", (instruction,)))
        elif instruction:
            instruction = instruction.rstrip() + "\n\n"
        first = instruction if instruction and not self.takes_system else ""
        asked = [*prompt.turns, (question, "")]
        if profile.chat == "one_turn":
            messages.append(_Message("user", (first, *prompt.shots, question)))
        else:
            for text, answer in asked[:-1]:
                messages += [_Message("user", (first, text)), _Message("assistant", (answer,))]
                first = ""
            messages.append(_Message("user", (first, question)))
        text = self._applied([(each.role, "".join(each.parts)) for each in messages])
        between = self._between(tuple(each.role for each in messages))
        for pieces in _pieces(messages, between):
            if "".join(pieces) == text:
                return pieces
        return [text]

    def _found_between(self, roles: tuple[str, ...]) -> tuple[str, ...]:
        """The template's texts before, between and behind the contents of messages."""
        words = [f"Xcontent{i}x" for i in range(len(roles))]
        rest = self._applied([*zip(roles, words, strict=True)])
        between = list[str]()
        for word in words:
            before, _, rest = rest.partition(word)
            between.append(before)
        return (*between, rest)

    def _applied(self, messages: Sequence[tuple[str, str]], is_answered: bool = False) -> str:
        talk = [{"role": role, "content": content} for role, content in messages]
        try:
            return self.tokenizer.apply_chat_template(
                talk, tokenize=False, add_generation_prompt=not is_answered
            )
        except (TemplateError, ValueError, TypeError) as error:
            why = " ".join(str(error).split())
            roles = ", ".join(role for role, _ in messages)
            raise InputError(
                f"{_FLAG}: the chat template of {self._name} refuses turns of {roles} "
                f"({why:.200}): leave the flag out, or name another tokenizer with --tokenizer"
            ) from error

    @property
    def key(self) -> tuple[str, str]:
        """What prompts hang on: the template, and a prompt of it, which may hold today's date."""
        return str(self.tokenizer.chat_template), self._applied([("user", _WORDS[0])])

    @property
    def _name(self) -> str:
        return str(getattr(self.tokenizer, "name_or_path", "") or "of this run")

    def _has_system(self) -> bool:
        try:
            return _SYSTEM in self._applied([("system", _SYSTEM), ("user", _WORDS[0])])
        except InputError:
            return False

    def _end_of_turn(self) -> str:
        """Raises InputError for a template that writes something else before an answer than its
        generation prompt does, or leaves a question out."""
        asked, answer = _WORDS
        shot = [("user", "Xbeforex"), ("assistant", "Xsolvedx")]
        end = ""
        for shots in ([], shot):
            talk = [*shots, ("user", asked)]
            prompt = self._applied(talk)
            answered = self._applied([*talk, ("assistant", answer)], is_answered=True)
            is_whole = all(word in prompt for _, word in talk)
            if not (is_whole and answered.startswith(prompt + answer)):
                raise InputError(
                    f"{_FLAG}: the chat template of {self._name} moves the answer's border: a "
                    f"prompt ends with {prompt[-40:]!r}, but with its answer the text is "
                    f"{answered[len(prompt) - 40 :][:80]!r}: leave the flag out, or put a template "
                    "into the tokenizer's folder that writes the same before every answer"
                )
            end = answered[len(prompt) + len(answer) :]
        return end.strip()


def _pieces(messages: Sequence[_Message], between: Sequence[str]) -> list[list[str]]:
    """The texts of `Chat._rendered`, as the contents are and as a template that strips them has
    them."""
    return [_cut(messages, between, strip) for strip in (_unchanged, _stripped)]


def _cut(
    messages: Sequence[_Message],
    between: Sequence[str],
    strip: Callable[[tuple[str, ...]], tuple[str, ...]],
) -> list[str]:
    pieces = [""]
    for message, before in zip(messages, between, strict=False):
        pieces[-1] += before
        parts = strip(message.parts)
        if message.role != "user":
            pieces[-1] += "".join(parts)
            continue
        pieces[-1] += parts[0]
        pieces += parts[1:]
    pieces[-1] += between[len(messages)]
    return pieces


def _unchanged(parts: tuple[str, ...]) -> tuple[str, ...]:
    return parts


def _stripped(parts: tuple[str, ...]) -> tuple[str, ...]:
    whole = "".join(parts)
    begin = len(whole) - len(whole.lstrip())
    end = len(whole.rstrip())
    kept = list[str]()
    at = 0
    for part in parts:
        kept.append(whole[max(at, begin) : max(begin, min(at + len(part), end))])
        at += len(part)
    return tuple(kept)
