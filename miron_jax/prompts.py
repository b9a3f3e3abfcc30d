"""Task + few-shot draw -> Prompts.

Arrives: a `Task` and its examples.  Leaves: one `Prompt` an example, in the suite's own order.
It deliberately does not know tokens.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from miron_jax.errors import InputError
from miron_jax.task import Example, Profile, Task


@dataclass(frozen=True, slots=True)
class Prompt:
    """One example ready to tokenize.  Option i reads contexts[i] + continuations[i], character for character."""

    id: int  # place in the suite's own order
    row: int  # line in the data file, from 0
    contexts: tuple[str, ...]
    continuations: tuple[str, ...]  # as long as contexts
    gold: int | None  # None where nothing is chosen (language modelling)


def render(task: Task, examples: Sequence[Example], limit: int | None = None) -> list[Prompt]:
    """The first `limit` examples of the suite's own order (all without a limit), each behind its worked examples."""
    profile = task.profile
    pool = [examples[i] for i in item_order(profile, len(examples))][: pool_size(profile, limit)]
    _check_sizes(task, len(pool), limit)
    shots = [_worked_example(example, profile) for example in pool]
    return [
        _prompt(task, idx, example, "".join(shots[i] for i in draw_shots(profile, idx, len(pool))))
        for idx, example in enumerate(pool[:limit])
    ]


def without_shots(prompt: Prompt) -> Prompt:
    """Contexts cut to what tells options apart: the last line of each where they differ, nothing where they do not."""
    same = all(context == prompt.contexts[0] for context in prompt.contexts)
    contexts = tuple("" if same else context.rsplit("\n", 1)[-1] for context in prompt.contexts)
    return replace(prompt, contexts=contexts)


def item_order(profile: Profile, num_rows: int) -> list[int]:
    """File rows in the order in which the suite counts its examples."""
    return _ORDERS[profile.item_order](num_rows)


def pool_size(profile: Profile, limit: int | None) -> int | None:
    """How many leading examples a draw may choose from: those under the limit, or just enough for one draw."""
    return None if limit is None else max(limit, profile.num_fewshot + 1)


def draw_shots(profile: Profile, idx: int, num_pool: int) -> list[int]:
    """Places in the pool of the worked examples shown before example `idx`, in the order shown."""
    return _DRAWS[profile.fewshot_draw](idx, num_pool, profile.num_fewshot)


def _shuffle_1337(num_rows: int) -> list[int]:
    order = list(range(num_rows))
    random.Random(1337).shuffle(order)
    return order


def _draw_per_item_1234(idx: int, num_pool: int, num_fewshot: int) -> list[int]:
    # The published draw samples a list of all places but idx.  random.sample chooses positions by the list's length
    # alone, so a range of that length gives the same positions without building the list: with idx 2 of 5 the list
    # is [0, 1, 3, 4], and position j holds j below idx and j + 1 from idx on.
    positions = random.Random(1234 + idx).sample(range(num_pool - 1), num_fewshot)
    return [j + (j >= idx) for j in positions]


_ORDERS: dict[str, Callable[[int], list[int]]] = {"shuffle_1337": _shuffle_1337}
_DRAWS: dict[str, Callable[[int, int, int], list[int]]] = {"per_item_1234": _draw_per_item_1234}


def _check_sizes(task: Task, num_pool: int, limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise InputError(
            f"--limit={limit}: expected at least 1 example a task; leave the flag out to score all of them"
        )
    if num_pool <= task.profile.num_fewshot:
        raise InputError(
            f"{task.name}: {task.file.path} holds {num_pool} examples, expected at least {task.profile.num_fewshot + 1} "
            f"to draw {task.profile.num_fewshot} others before each question: fetch the file again"
        )


def _context(example: Example, option: int, profile: Profile) -> str:
    """Everything before an option's continuation, without the worked examples."""
    text = example.contexts[option if len(example.contexts) > 1 else 0]
    return (text.strip() if profile.strip_context else text) + profile.delimiter


def _continuation(example: Example, option: int) -> str:
    return example.continuations[option if len(example.continuations) > 1 else 0]


def _worked_example(example: Example, profile: Profile) -> str:
    return _context(example, example.gold, profile) + _continuation(example, example.gold) + profile.shot_separator


def _prompt(task: Task, idx: int, example: Example, shots: str) -> Prompt:
    # A context that all options share is one string, however many options point at it.
    contexts = tuple(shots + _context(example, c, task.profile) for c in range(len(example.contexts)))
    num_options = max(len(contexts), len(example.continuations))
    return Prompt(
        id=idx,
        row=example.row,
        contexts=contexts if len(contexts) == num_options else contexts * num_options,
        continuations=tuple(_continuation(example, option) for option in range(num_options)),
        gold=None if task.kind == "language_modeling" else example.gold,
    )
