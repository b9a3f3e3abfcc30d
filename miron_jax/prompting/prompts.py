"""Task + few-shot sampling -> Prompts.

Arrives: a task of examples or questions, and these.  Leaves: one `Prompt` an example, in the suite's own order.
It deliberately does not know tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice

from miron_jax.definitions.records import Example, Task, Wording
from miron_jax.errors import InputError
from miron_jax.prompting.draws import PER_ITEM_1234


@dataclass(frozen=True, slots=True)
class Prompt:
    """One example ready to tokenize.  Option i reads preamble + contexts[i] + continuations[i], character for character."""

    id: int  # place in the suite's own order
    row: int  # line in the data file, from 0
    contexts: tuple[str, ...]
    continuations: tuple[str, ...]  # as long as contexts; of a question: what a few-shot example would show
    gold: int | None  # None where nothing is chosen (language modelling, questions)
    preamble: str = ""  # few-shot examples and what stands before them
    category: str | None = None
    shot_starts: tuple[int, ...] = ()  # characters of the preamble before each few-shot example that may be dropped
    num_shots: int | None = None  # few-shot examples that it has kept; None: they are not counted
    beside: int = 0  # of contexts and continuations, how many stand behind the options: asked too, and no option

    @property
    def num_chars(self) -> int:
        """Characters of all options."""
        options = len(self.contexts) * len(self.preamble)
        return options + sum(map(len, self.contexts)) + sum(map(len, self.continuations))


def render(task: Task[Wording], examples: Sequence[Example], limit: int | None = None) -> list[Prompt]:
    """The first `limit` examples of the suite's own order (all without a limit), each behind its few-shot examples.

    Where categories count apart, they come one after another, each with its own limit and its own shots.
    """
    if task.arrange is not None:
        return [_arranged(task, idx, own) for idx, own in enumerate(examples[:limit])]
    ordered = [examples[i] for i in task.profile.item_order.call(len(examples))]
    pools: dict[str | None, list[Example]] = {}
    for example in ordered:
        pools.setdefault(example.category if task.profile.categories == "macro" else None, []).append(example)
    rendered = [prompt for pool in pools.values() for prompt in _render_pool(task, pool, limit)]
    return [replace(prompt, id=place) for place, prompt in enumerate(rendered)] if len(pools) > 1 else rendered


def without_shots(prompt: Prompt) -> Prompt:
    """Contexts cut to what tells options apart: the last line of each where they differ, nothing where they do not."""
    num_options = len(prompt.contexts) - prompt.beside
    contexts, continuations = prompt.contexts[:num_options], prompt.continuations[:num_options]
    same = all(context == contexts[0] for context in contexts)
    contexts = tuple("" if same else context.rsplit("\n", 1)[-1] for context in contexts)
    return replace(prompt, contexts=contexts, continuations=continuations, preamble="", shot_starts=(), beside=0)


def without_first_shot(prompt: Prompt) -> Prompt:
    """One few-shot example fewer; it has at least one."""
    cut = prompt.shot_starts[1] if len(prompt.shot_starts) > 1 else len(prompt.preamble)
    starts = tuple(start - cut for start in prompt.shot_starts[1:])
    return replace(prompt, preamble=prompt.preamble[cut:], shot_starts=starts, num_shots=len(starts))


def pool_size(profile: Wording, limit: int | None) -> int | None:
    """How many leading examples a draw may choose from: all, or those under the limit, or just enough for one draw."""
    if limit is None or profile.fewshot_pool == "whole_file":
        return None
    return max(limit, profile.num_fewshot + 1)


def _render_pool(task: Task[Wording], examples: Sequence[Example], limit: int | None) -> list[Prompt]:
    profile = task.profile
    pool = examples[: pool_size(profile, limit)]
    _check_sizes(task, len(pool), limit)
    shots = [_shot(example, profile) for example in pool]
    draws = profile.fewshot_draw.call(len(pool), profile.num_fewshot)
    return [
        _prompt(task, idx, pool[idx], profile.shot_separator.join([*_opening(profile), *(shots[i] for i in drawn)]))
        for idx, drawn in enumerate(islice(draws, limit))
    ]


def _opening(profile: Wording) -> list[str]:
    return [profile.prompt_string] if profile.prompt_string else []


def _check_sizes(task: Task[Wording], num_pool: int, limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise InputError(
            f"--limit={limit}: expected at least 1 example a task; leave the flag out to score all of them"
        )
    if task.profile.fewshot_draw == PER_ITEM_1234 and num_pool <= task.profile.num_fewshot:
        raise InputError(
            f"{task.name}: {task.file.path} holds {num_pool} examples, expected at least {task.profile.num_fewshot + 1} "
            f"to sample {task.profile.num_fewshot} others before each question: fetch the file again"
        )


def _context(example: Example, option: int, profile: Wording, delimiter: str) -> str:
    """Everything before an option's continuation, without the few-shot examples."""
    text = example.contexts[option if len(example.contexts) > 1 else 0]
    return profile.prelimiter + (text.strip() if profile.strip == "context" else text) + delimiter


def _continuation(example: Example, option: int) -> str:
    return example.continuations[option if len(example.continuations) > 1 else 0]


def _shot(example: Example, profile: Wording) -> str:
    assert example.gold is not None, "a suite whose right answers are not published arranges its own examples"
    return _context(example, example.gold, profile, profile.delimiter) + _continuation(example, example.gold)


def _question_delimiter(profile: Wording, example: Example, preamble: str) -> str:
    """The delimiter behind the question itself."""
    if profile.question_delimiter == "whole":
        return profile.delimiter
    is_schema = len(example.contexts) > 1
    return "" if is_schema and not preamble else profile.delimiter.rstrip()


def _arranged(task: Task[Wording], idx: int, example: Example) -> Prompt:
    """An example whose suite has sampled its few-shot examples."""
    shots = example.shots or ()
    prompt = _prompt(task, idx, example, "".join(shots))
    if task.profile.truncation == "keep_last":
        return prompt
    starts = tuple(accumulate(map(len, shots[:-1]), initial=0)) if shots else ()
    return replace(prompt, shot_starts=starts, num_shots=len(shots))


def _prompt(task: Task[Wording], idx: int, example: Example, preamble: str) -> Prompt:
    # A context that all options share is one string, however many options point at it.
    between = task.profile.shot_separator if preamble and task.arrange is None else ""
    delimiter = _question_delimiter(task.profile, example, preamble)
    contexts = tuple(between + _context(example, c, task.profile, delimiter) for c in range(len(example.contexts)))
    num_options = max(len(contexts), len(example.continuations))
    contexts = contexts if len(contexts) == num_options else contexts * num_options
    continuations = tuple(_continuation(example, option) for option in range(num_options))
    beside = _beside(task, example, contexts, continuations)
    return Prompt(
        id=idx,
        row=example.row,
        contexts=(*contexts, *(context for context, _ in beside)),
        continuations=(*continuations, *(continuation for _, continuation in beside)),
        beside=len(beside),
        gold=example.gold if num_options > 1 else None,
        preamble=preamble,
        category=example.category,
    )


def _beside(
    task: Task[Wording], example: Example, contexts: tuple[str, ...], continuations: tuple[str, ...]
) -> list[tuple[str, str]]:
    """What is asked beside the options: gold with each ending, then every option behind the context without content."""
    asked = []
    if example.gold is not None:
        gold = contexts[example.gold], continuations[example.gold]
        asked += [(gold[0], gold[1] + ending) for ending in task.profile.endings]
    if example.neutral is not None:
        asked += [(example.neutral, continuation) for continuation in continuations]
    return asked
