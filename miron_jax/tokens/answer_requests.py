"""Questions or problems + tokenizer -> tokenized prompts to generate from.

Arrives: Prompts and their Questions, or Problems.  Leaves: `AnswerRequests`.  It deliberately does
not know models or which answers are right.
"""

import operator
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from miron_jax.definitions.records import AnswerProfile, Problem, ProgramProfile, Question
from miron_jax.errors import InputError
from miron_jax.prompting.prompts import Prompt
from miron_jax.tokens.requests import tokenize_questions
from miron_jax.tokens.tokenizers import Tokenizer, first_tokens, longest_answer
from miron_jax.tokens.truncation import fitting, num_cut


class NoRoom(InputError):
    """A task's texts leave no room for its prompts within the length limit."""


class AnswerRequests(NamedTuple):
    """One task's tokenized prompts."""

    prompts: list[tuple[int, ...]]  # token ids; a prompt that was too long keeps its last ones
    # the same prompts as text, without shots that did not fit; of problems: none
    worded: list[Prompt]
    max_new_tokens: int  # of each completion; 0: it is there
    truncated: Sequence[bool]  # of each prompt, whether it lost tokens

    @classmethod
    def untokenized(cls, num_prompts: int, worded: list[Prompt]) -> "AnswerRequests":
        """Of completions that are there, for which no tokenizer is needed."""
        return cls([()] * num_prompts, worded, 0, [False] * num_prompts)

    def num_longer_than(self, length: int) -> int:
        """Prompts that may be longer with their completion; its last token is not read."""
        return sum(len(ids) + self.max_new_tokens - 1 > length for ids in self.prompts)


def answer_requests(
    prompts: Sequence[Prompt],
    questions: Sequence[Question],
    profile: AnswerProfile,
    tokenizer: Tokenizer,
    max_length: int | None,
    task_name: str,
) -> AnswerRequests:
    """Tokenize prompts so that every completion has room for the longest answer of `questions`,
    those of the whole file.

    A prompt keeps the last tokens that leave this room within `max_length`.  Raises NoRoom where
    there is none.
    """
    answers = [*chain(*(question.room_for for question in questions))]
    max_new_tokens = longest_answer(answers, tokenizer) + profile.extra_tokens
    window = None if max_length is None else max_length - max_new_tokens
    if window is not None and window < 1:
        raise NoRoom(
            f"{task_name}: its longest answer takes {max_new_tokens} tokens, which leaves no room "
            f"for a prompt within the length limit of {max_length}: raise --max_length to at least "
            f"{max_new_tokens + 1}"
        )
    worded = fitting(prompts, profile, tokenizer, window)
    first = None if profile.boundary == "segments" else first_tokens(profile.bos, tokenizer)
    whole = tokenize_questions(worded, tokenizer, first)
    kept = [ids[num_cut(len(ids), window) :] for ids in whole]
    truncated = [*map(operator.ne, map(len, kept), map(len, whole))]
    if empty := [prompt for prompt, ids in zip(prompts, kept, strict=True) if not ids]:
        raise InputError(
            f"{task_name}, row {empty[0].row}: its prompt has no token and the tokenizer puts no "
            "BOS there: mend or remove the line"
        )
    return AnswerRequests(kept, worded, max_new_tokens, truncated)


def program_requests(
    problems: Sequence[Problem],
    limit: int | None,
    profile: ProgramProfile,
    tokenizer: Tokenizer,
    max_length: int | None,
    task_name: str,
) -> AnswerRequests:
    """Tokenize the prompts of the first `limit` problems; `problems` are those of the whole file.

    Every program has room for the longest solution and `extra_tokens`, or what the longest prompt
    leaves of `max_length`. Raises NoRoom where it leaves nothing.
    """
    room = profile.extra_tokens
    if profile.room == "longest_solution":
        room += longest_answer([problem.solution for problem in problems], tokenizer)
    prompts = []
    for problem in problems:
        prompts.append(Prompt(problem.row, problem.row, (problem.prompt,), ("",), None))
    ids = tokenize_questions(prompts, tokenizer, () if profile.bos == "never" else None)
    longest = max(map(len, ids))
    if max_length is not None:
        room = min(room, max_length - longest)
    if room < 1:
        raise NoRoom(
            f"{task_name}: its longest prompt takes {longest} tokens, which leaves no room for a "
            f"program within the length limit of {max_length}: raise --max_length to at least "
            f"{longest + 1}"
        )
    ids = ids[:limit]
    return AnswerRequests(ids, [], room, [False] * len(ids))
