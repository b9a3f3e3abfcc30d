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
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

from jinja2 import TemplateError

from miron_jax.definitions.records import AnswerProfile, Cloze, Wording
from miron_jax.errors import InputError
from miron_jax.prompting.chats import lead_of
from miron_jax.prompting.prompts import Prompt, without_end_spaces
from miron_jax.tokens.tokenizers import Tokenizer

_FLAG = "--chat_template"
# What a template is tried out with: words that no template is likely to hold.
_SYSTEM = "Xsystemx"
_ASKED = "Xaskedx"
_ANSWER = "Xansweredx"


class _Message(NamedTuple):
    role: str  # system, user or assistant
    # its content is these, end to end: of a user the instruction or "", then few-shot examples of
    # one turn, then the question
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
        self._between = cache(self._texts_between)
        self._same = dict[str, str]()  # one string object each, whatever prompts hold it

    @property
    def key(self) -> tuple[str, str]:
        """What prompts depend on: the template, and a prompt of it, which may hold today's date."""
        return str(self.tokenizer.chat_template), self._applied([("user", _ASKED)])

    def prompts(self, prompts: Sequence[Prompt], profile: Wording) -> list[Prompt]:
        """`profile`: has `chat`."""
        return [*map(partial(self._prompt, profile), prompts)]

    def item(self, item: Cloze) -> Cloze:
        """The item whose prefix is the user's turn, and whose target begins the assistant's."""
        clean = None
        if item.clean_prefix is not None:
            clean = self._applied([("user", item.clean_prefix)])
        return replace(
            item,
            prefix=self._applied([("user", item.prefix)]),
            clean_prefix=clean,
            target=_answer(item.target),
            distractors=tuple(map(_answer, item.distractors)),
        )

    def _prompt(self, profile: Wording, prompt: Prompt) -> Prompt:
        texts = dict[str, list[str]]()
        before = set[tuple[str, ...]]()
        for context in prompt.contexts:
            if context not in texts:
                texts[context] = self._rendered(prompt, context, profile)
                before.add(tuple(texts[context][:-1]))
        shots = before.pop() if len(before) == 1 else ()
        shots = tuple(map(self._same.setdefault, shots, shots))
        lead = without_end_spaces(lead_of(profile)) if isinstance(profile, AnswerProfile) else ""
        contexts = dict[str, str]()  # one string object for all choices that share it
        for context, pieces in texts.items():
            contexts[context] = "".join(pieces[len(shots) :]) + lead
        continuations = list[str]()
        for continuation in prompt.continuations:
            continuations.append(continuation.removeprefix(lead))
        # without pieces no shot can be left out
        num_shots = prompt.num_shots if len(shots) > (prompt.num_shots or 0) else None
        return replace(
            prompt,
            contexts=tuple(map(contexts.__getitem__, prompt.contexts)),
            continuations=tuple(continuations),
            shots=shots,
            num_shots=num_shots,
            turns=(),
        )

    def _rendered(self, prompt: Prompt, question: str, profile: Wording) -> list[str]:
        """What stands before the first shot, each shot, and the question with all behind it; one
        text where the template has changed some of them."""
        messages = list[_Message]()
        first = ""  # of the user's first turn
        if profile.prompt_string and self.takes_system:
            messages.append(_Message("system", (profile.prompt_string,)))
        elif profile.prompt_string:
            first = profile.prompt_string.rstrip() + "\n\n"
        for asked, answer in prompt.turns:
            messages += [_Message("user", (first, asked)), _Message("assistant", (answer,))]
            first = ""
        shots = prompt.shots if profile.chat == "one_turn" else ()
        messages.append(_Message("user", (first, *shots, question)))
        contents = list[tuple[str, str]]()
        for role, parts in messages:
            contents.append((role, "".join(parts)))
        text = self._applied(contents)
        roles, _ = zip(*contents, strict=True)
        for strip in (tuple, _stripped):  # contents as they are, or as some templates have them
            pieces = _cut(messages, self._between(roles), strip)
            if "".join(pieces) == text:
                return pieces
        return [text]

    def _texts_between(self, roles: tuple[str, ...]) -> list[str]:
        """The template's texts before, between and behind the contents of messages."""
        contents = list[tuple[str, str]]()
        for i, role in enumerate(roles):
            contents.append((role, f"Xcontent{i}x"))
        rest = self._applied(contents)
        between = list[str]()
        for _, word in contents:
            before, _, rest = rest.partition(word)
            between.append(before)
        return [*between, rest]

    def _applied(self, contents: Sequence[tuple[str, str]], is_answered: bool = False) -> str:
        """`contents`: of messages, behind their roles."""
        talk = list[dict[str, str]]()
        for role, content in contents:
            talk.append({"role": role, "content": content})
        try:
            return self.tokenizer.apply_chat_template(
                talk, tokenize=False, add_generation_prompt=not is_answered
            )
        except (TemplateError, ValueError, TypeError) as error:
            why = " ".join(str(error).split())
            roles, _ = zip(*contents, strict=True)
            raise InputError(
                f"{_FLAG}: the chat template of {self._name} refuses turns of {', '.join(roles)} "
                f"({why:.200}): leave the flag out, or name another tokenizer with --tokenizer"
            ) from error

    @property
    def _name(self) -> str:
        return str(getattr(self.tokenizer, "name_or_path", "") or "of this run")

    def _has_system(self) -> bool:
        try:
            return _SYSTEM in self._applied([("system", _SYSTEM), ("user", _ASKED)])
        except InputError:
            return False

    def _end_of_turn(self) -> str:
        """Raises InputError for a template that writes something else before an answer than its
        generation prompt does, or leaves a question out."""
        end = ""
        for shots in ([], [("user", "Xbeforex"), ("assistant", "Xsolvedx")]):
            talk = [*shots, ("user", _ASKED)]
            prompt = self._applied(talk)
            answered = self._applied([*talk, ("assistant", _ANSWER)], is_answered=True)
            if _ASKED not in prompt or not answered.startswith(prompt + _ANSWER):
                raise InputError(
                    f"{_FLAG}: the chat template of {self._name} moves the answer's border: a "
                    f"prompt ends with {prompt[-40:]!r}, but with its answer the text is "
                    f"{answered[max(0, len(prompt) - 40) :][:80]!r}: leave the flag out, or put a "
                    "template into the tokenizer's folder that writes the same before every answer"
                )
            end = answered[len(prompt) + len(_ANSWER) :]
        return end.strip()


def _answer(text: str) -> str:
    """Without white space at its beginning, unless there is nothing else."""
    return text.lstrip() or text


def _cut(
    messages: Sequence[_Message],
    between: Sequence[str],
    strip: Callable[[tuple[str, ...]], tuple[str, ...]],
) -> list[str]:
    """The texts of `Chat._rendered`, if the template writes the contents so."""
    pieces = [""]
    for message, before in zip(messages, between[:-1], strict=True):
        first, *others = strip(message.parts)
        pieces[-1] += before + first
        pieces += others
    pieces[-1] += between[-1]
    return pieces


def _stripped(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The parts of a text without white space at both ends."""
    whole = "".join(parts)
    stripped = whole.strip()
    begin = whole.find(stripped)
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    return tuple(stripped[max(0, a - begin) : max(0, b - begin)] for a, b in pairwise(ends))
