"""Examples of a task, as many as --limit leaves -> `Prompt`s: shots, delimiters and contexts.

Arrives: a task, and its examples or questions.  Leaves: one `Prompt` per example, in the suite's
own order.  It deliberately does not know tokens.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from itertools import count, islice

from miron_jax.definitions.records import AnyTask, Example, Task, Wording
from miron_jax.errors import InputError
from miron_jax.prompting.chats import Turns, answer_of, end_of_question
from miron_jax.prompting.draws import Distinct
from miron_jax.prompting.repeats import (
    ask_the_same,
    asks_the_same,
    keys_of,
    most_repeats,
    tells_answer,
)

TAIL = 300  # characters of a prompt that samples show
_END_SPACES = re.compile(r"[^\S\r\n]+\Z")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One example, ready to tokenize.  Choice i is exactly the text preamble + contexts[i] +
    continuations[i]."""

    id: int  # index in the suite's own order
    row: int  # line in the data file, from 0
    contexts: tuple[str, ...]
    # as many as contexts; of a question: the answer as a shot would show it
    continuations: tuple[str, ...]
    gold: int | None  # the right choice; None if nothing is chosen (language modelling, questions)
    shots: tuple[str, ...] = ()  # the preamble: shots and the text before them, end to end
    category: str | None = None
    num_shots: int | None = None  # shots that it has kept; None: none may be dropped
    # contexts and continuations after those of the choices: scored too, but no choices
    num_extra: int = 0
    # the last shots, from one on that asks what it asks and tells its answer; 0: none does
    leak: int = 0
    tail: str = ""  # the end of the first context with its preamble, kept when both are dropped
    digest: str = ""  # of all texts, likewise; equal digests are equal questions
    also_right: tuple[int, ...] | None = None  # as `Example` has it
    turns: Turns = ()  # of a chat by turns, until it is rendered: its shots

    @property
    def preamble(self) -> str:
        return "".join(self.shots)

    @property
    def num_chars(self) -> int:
        """Characters of all requests."""
        preambles = len(self.contexts) * sum(map(len, self.shots))
        return preambles + sum(map(len, self.contexts)) + sum(map(len, self.continuations))


def check_shots(
    task: Task[Wording],
    examples: Sequence[Example],
    limit: int | None,
    all_of_them: bool = False,
) -> None:
    """Raises InputError if there are too few examples to sample every prompt's shots from.
    `all_of_them`: also where the suite's draw would be content with fewer shots."""
    if task.arrange is not None:
        return
    for size in sizes_of_pools(task, examples, limit):
        _check_sizes(task, size, limit, all_of_them)


def sizes_of_pools(
    task: Task[Wording], examples: Sequence[Example], limit: int | None
) -> list[int]:
    """Examples that shots are sampled from, of each pool."""
    if task.shots_from is not None:
        sizes = [len(task.shots_from())]
    elif task.profile.categories == "macro":
        sizes = list(Counter(example.category for example in examples).values())
    else:
        sizes = [len(examples)]
    return [min(size, pool_size(task.profile, limit) or size) for size in sizes]


def render(
    task: Task[Wording], examples: Sequence[Example], limit: int | None = None
) -> list[Prompt]:
    """Prompts of the first `limit` examples of the suite's own order (None: all), each with its
    shots.

    If categories count separately, they come one after another, each with its own limit and its own
    shots.
    """
    return [*each_rendered(task, examples, limit)]


def each_rendered(
    task: Task[Wording], examples: Sequence[Example], limit: int | None = None
) -> Iterator[Prompt]:
    """What `render` returns, each when it is asked for."""
    if task.arrange is not None:
        yield from map(partial(_arranged, task), count(), examples[:limit])
        return
    first_id = 0
    for pool in _pools(task, examples):
        yield from _render_pool(task, pool, limit, first_id)
        first_id += len(pool[:limit])


def with_shots(
    task: Task[Wording], examples: Sequence[Example]
) -> Iterator[tuple[Example, list[Example]]]:
    """Every example with its shots, of a task whose shots are sampled."""
    for examples_of_pool in _pools(task, examples):
        pool, sampled = _sampled(task, examples_of_pool, None)
        for example, shots in zip(examples_of_pool, sampled, strict=False):
            yield example, [pool[i] for i in shots]


def chunks_of(prompts: Sequence[Prompt], num_chars: int) -> Iterator[Sequence[Prompt]]:
    """Prompts in runs of about `num_chars` characters."""
    start = so_far = 0
    for i, prompt in enumerate(prompts):
        so_far += prompt.num_chars
        if so_far >= num_chars:
            yield prompts[start : i + 1]
            start = i + 1
            so_far = 0
    if start < len(prompts):
        yield prompts[start:]


def without_shots(prompt: Prompt) -> Prompt:
    """The choices alone, without the question: the last line of each context that others do not
    have, or "" if all contexts are equal.  Its tail and its digest stay."""
    num_choices = len(prompt.contexts) - prompt.num_extra
    contexts = prompt.contexts[:num_choices]
    continuations = prompt.continuations[:num_choices]
    distinct = contexts
    if len(set(contexts)) == 1:
        distinct = contexts[:1]
        last_lines = ("",) * num_choices
    else:
        last_lines = _last_lines(contexts)
    return replace(
        prompt,
        contexts=last_lines,
        continuations=continuations,
        shots=(),
        turns=(),
        num_extra=0,
        tail=(prompt.preamble[-TAIL:] + contexts[0])[-TAIL:],
        digest=prompt.digest or digest_of(prompt.preamble, *distinct, *continuations),
    )


def _last_lines(contexts: Sequence[str]) -> tuple[str, ...]:
    """The last lines in which contexts differ; a chat template makes equal ones behind them."""
    from_end = [reversed(context.split("\n")) for context in contexts]
    lines = zip(*from_end, strict=False)
    last = next(lines)
    if len({*last}) > 1:
        return last
    return next((each for each in lines if len({*each}) > 1), last)


def without_end_spaces(text: str) -> str:
    """The text without spaces and tabs at its end; line breaks stay.  A tokenizer joins a space
    with the word behind it, so a model hardly ever writes a word after a space that stands
    alone."""
    return _END_SPACES.sub("", text)


def digest_of(*texts: str) -> str:
    """The first 16 digits of the SHA-256 of texts, each with its length before it."""
    digest = sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(encoded) + encoded)
    return digest.hexdigest()[:16]


def pool_size(profile: Wording, limit: int | None) -> int | None:
    """Number of leading examples that shots are sampled from, None: all.  At least enough for the
    shots of one example."""
    if limit is None or profile.fewshot_pool == "whole_file":
        return None
    return max(limit, profile.num_fewshot + 1)


def draws_by_limit(task: AnyTask, before: int, limit: int | None) -> bool:
    """Whether a task has other shots with this limit than with a smaller one, `before`."""
    profile = task.profile
    if not (isinstance(profile, Wording) and isinstance(task, Task) and profile.num_fewshot):
        return False
    if task.arrange is not None or task.shots_from is not None:
        return False
    all_rows = task.file.rows or math.inf
    sizes = {min(pool_size(profile, each) or math.inf, all_rows) for each in (before, limit)}
    return len(sizes) > 1


def _pools(task: Task[Wording], examples: Sequence[Example]) -> list[list[Example]]:
    """The examples in the suite's own order: all, or those of each category where categories count
    separately."""
    pools: dict[str | None, list[Example]] = {}
    for i in task.profile.item_order.call(len(examples)):
        category = examples[i].category if task.profile.categories == "macro" else None
        pools.setdefault(category, []).append(examples[i])
    return list(pools.values())


def _sampled(
    task: Task[Wording], examples: Sequence[Example], limit: int | None
) -> tuple[Sequence[Example], Iterator[list[int]]]:
    """The pool, and each example's shots as positions in it."""
    profile = task.profile
    pool = examples[: pool_size(profile, limit)]
    if task.shots_from is not None:
        pool = task.shots_from()
    _check_sizes(task, len(pool), limit)
    if isinstance(profile.fewshot_draw, Distinct):
        return pool, _distinct(task, examples, pool)
    return pool, profile.fewshot_draw.call(len(pool), profile.num_fewshot)


def _distinct(
    task: Task[Wording], examples: Sequence[Example], pool: Sequence[Example]
) -> Iterator[list[int]]:
    """Samples as many more as may have to be left out."""
    num_fewshot = task.profile.num_fewshot
    num_others = len(pool) - (task.shots_from is None)
    wanted = min(num_fewshot + most_repeats(examples, pool), num_others) if num_fewshot else 0
    draws = task.profile.fewshot_draw.call(len(pool), wanted)
    for example, sampled in zip(examples, draws, strict=False):
        kept = [i for i in sampled if not asks_the_same(example, pool[i])][:num_fewshot]
        if len(kept) < num_fewshot:
            raise InputError(
                f"{task.name}: {len(kept)} examples do not ask what record {example.row + 1} of "
                f"{task.file.path} asks, expected {num_fewshot} as its shots: ask for fewer, or "
                "leave fewshot: distinct out"
            )
        yield kept


def _render_pool(
    task: Task[Wording], examples: Sequence[Example], limit: int | None, first_id: int
) -> Iterator[Prompt]:
    profile = task.profile
    pool, sampled = _sampled(task, examples, limit)
    first = [] if profile.chat else [*filter(None, [profile.prompt_string])]
    texts = [*first, *("".join(shot_parts(example, profile)) for example in pool)]
    turns: Turns = ()
    if profile.chat == "turns":
        turns = tuple(_turn(example, profile) for example in pool)
    # one string object each, whatever prompts hold it
    separated = [text + profile.shot_separator for text in texts]
    keys = cache(lambda i: keys_of(pool[i]))  # a page asks for some of the prompts only
    pairs = zip(examples, sampled, strict=False)
    for idx, (example, shot_idx) in enumerate(islice(pairs, limit), first_id):
        before = [*range(len(first)), *(len(first) + i for i in shot_idx)]
        preamble = (*(separated[i] for i in before[:-1]), *(texts[i] for i in before[-1:]))
        if profile.chat:
            preamble = tuple(separated[i] for i in before)
        prompt = prompt_of(task, idx, example, preamble)
        if turns:
            prompt = replace(prompt, turns=tuple(turns[i] for i in shot_idx))
        asked = keys_of(example) if profile.num_fewshot else None
        for leak, i in enumerate(reversed(shot_idx), 1):
            if asked and ask_the_same(asked, keys(i)) and tells_answer(example, pool[i]):
                prompt = replace(prompt, leak=leak)
                break
        yield prompt


def _check_sizes(
    task: Task[Wording], num_pool: int, limit: int | None, wants_all: bool = False
) -> None:
    if limit is not None and limit < 1:
        raise InputError(
            f"--limit={limit}: expected at least 1 example a task; leave the flag out to score all "
            "of them"
        )
    profile = task.profile
    others = task.shots_from is None
    draw = profile.fewshot_draw.name
    wants_all = wants_all or not others or draw.startswith(("per_item", "stream_lm_eval"))
    if wants_all and num_pool < profile.num_fewshot + others:
        before = "others before each question" if others else "before each question"
        raise InputError(
            f"{task.name}: {task.file.path} holds {num_pool} examples, expected at least "
            f"{profile.num_fewshot + others} to sample {profile.num_fewshot} {before}: ask for "
            "fewer, or complete the file"
        )


def _context(example: Example, choice: int, profile: Wording, delimiter: str) -> str:
    """Everything before a choice's continuation, without the shots."""
    text = _of_choice(example.contexts, choice)
    if profile.strip == "context":
        text = text.strip()
    return profile.prelimiter + text + delimiter


def _of_choice(texts: Sequence[str], choice: int) -> str:
    """The text of a choice; one text is that of all choices."""
    return texts[choice] if len(texts) > 1 else texts[0]


def shot_parts(example: Example, profile: Wording) -> tuple[str, str]:
    """An example as a shot: its context and its answer."""
    gold = example.gold
    assert gold is not None, (
        "a suite whose right answers are not published arranges its own examples"
    )
    context = _context(example, gold, profile, profile.delimiter)
    return context, _of_choice(example.continuations, gold)


def _turn(example: Example, profile: Wording) -> tuple[str, str]:
    """An example as a turn of the user and one of the assistant."""
    gold = example.gold or 0
    asked = _context(example, gold, profile, end_of_question(profile))
    return asked, answer_of(_of_choice(example.continuations, gold), profile)


def _question_delimiter(profile: Wording, example: Example, has_preamble: bool) -> str:
    """The delimiter after the question itself."""
    if profile.chat:
        return end_of_question(profile)
    if profile.question_delimiter != "right_stripped":
        return profile.delimiter
    if len(example.contexts) > 1 and not has_preamble:  # a schema
        return ""
    return profile.delimiter.rstrip()


def _arranged(task: Task[Wording], idx: int, example: Example) -> Prompt:
    """The prompt of an example whose suite has sampled its shots itself."""
    shots = tuple(example.shots or ())
    prompt = prompt_of(task, idx, example, shots)
    if task.profile.truncation != "whole_shots":
        return prompt
    return replace(prompt, num_shots=len(shots))


def prompt_of(task: Task[Wording], idx: int, example: Example, shots: tuple[str, ...]) -> Prompt:
    """The prompt of an example after these shots, none of which may be dropped."""
    # A context that all choices share is one string object, however many choices there are.
    has_preamble = any(shots)
    between = task.profile.shot_separator if has_preamble and task.arrange is None else ""
    if task.profile.chat:  # the shots end with theirs
        between = ""
    delimiter = _question_delimiter(task.profile, example, has_preamble)
    contexts = tuple(
        between + _context(example, choice, task.profile, delimiter)
        for choice in range(len(example.contexts))
    )
    if task.profile.question_delimiter == "spaces_stripped":
        contexts = tuple(map(without_end_spaces, contexts))
    continuations = tuple(example.continuations)
    if task.profile.chat:
        continuations = tuple(answer_of(text, task.profile) for text in continuations)
    num_choices = max(len(contexts), len(continuations))
    if len(contexts) < num_choices:
        contexts *= num_choices
    if len(continuations) < num_choices:
        continuations *= num_choices
    extra_contexts, extra_continuations = _extra(task, example, contexts, continuations)
    return Prompt(
        id=idx,
        row=example.row,
        contexts=(*contexts, *extra_contexts),
        continuations=(*continuations, *extra_continuations),
        num_extra=len(extra_contexts),
        gold=example.gold if num_choices > 1 else None,
        also_right=example.also_right,
        shots=shots,
        category=example.category,
    )


def _extra(
    task: Task[Wording], example: Example, contexts: tuple[str, ...], continuations: tuple[str, ...]
) -> tuple[list[str], list[str]]:
    """Contexts and continuations beside the choices: gold with each ending, then every choice after
    a neutral context."""
    before = list[str]()
    behind = list[str]()
    if example.gold is not None:
        for ending in task.profile.endings:
            before.append(contexts[example.gold])
            behind.append(continuations[example.gold] + ending)
    if example.neutral is not None:
        before += [example.neutral] * len(continuations)
        behind += continuations
    return before, behind
