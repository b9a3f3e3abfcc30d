"""What may be wrong with a user's task although its files can be read, for `miron-jax tasks
--check`.

Arrives: a task and its examples.  Leaves: sentences, each with a count and the first record.  It
deliberately does not know models; a tokenizer is optional.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any

from miron_jax.definitions.records import (
    AnswerProfile,
    AnyExample,
    Example,
    Problem,
    Question,
    Task,
    Wording,
)
from miron_jax.errors import some_of
from miron_jax.metrics import answers
from miron_jax.prompting.prompts import with_shots
from miron_jax.prompting.repeats import asks_the_same, keys_of
from miron_jax.tokens.tokenizers import Tokenizer, encoder

_STDERRS = 2  # above chance, from where a constant answer is said to beat it
_NUMBER = re.compile(r"[-+]?[0-9][0-9.,]*")
_RARE = 0.01  # chance of a pattern that is not taken for chance


def findings(
    task: Task[Any], examples: Sequence[AnyExample], tokenizer: Tokenizer | None = None
) -> Iterator[str]:
    if all(isinstance(example, Problem) for example in examples):
        prompts = [example.prompt for example in examples]
        yield from _counted(examples, _repeats(prompts), "have the prompt of an earlier one")
    if not all(isinstance(example, Example) for example in examples):
        return
    yield from _repeated(examples)
    if getattr(task.profile, "match", answers.EQUAL) is not answers.EQUAL:
        compared = task.profile.answer_normalizer.call
        lost: list[int] = []
        for i, answer in enumerate(map(_answer, examples)):
            if _NUMBER.fullmatch(answer) and compared(answer) != answer:
                lost.append(i)
        yield from _counted(examples, lost, "have a number that loses its sign, point or comma")
    yield from _stopped(task, examples)
    if task.arrange is None and task.profile.num_fewshot:
        yield from _told(task, examples)
    if all(len(_options(example)) > 1 and example.gold is not None for example in examples):
        yield from _counted(examples, _where(examples, _equal), "have two equal options")
        if task.kind != "schema":
            yield from _scored_options(task, examples)
        yield from _places(examples)
        yield from _constants(examples)
        if tokenizer is not None and task.kind != "schema":
            yield from _first_tokens(task, examples, tokenizer)


def _scored_options(task: Task[Wording], examples: Sequence[Example]) -> Iterator[str]:
    yield from _counted(
        examples, _where(examples, _begins), "have an option that begins with another one"
    )
    joined = getattr(task.profile, "joined_delimiter", "")
    if (task.profile.delimiter + joined).endswith(" "):
        spaced = _where(
            examples, lambda texts: any(text[len(joined) :][:1] == " " for text in texts)
        )
        yield from _counted(examples, spaced, "have a space before an option and a delimiter's")


def _counted(examples: Sequence[AnyExample], places: Sequence[int], what: str) -> Iterator[str]:
    """`places`: those of examples that something is said of."""
    if places:
        first = examples[places[0]].row + 1
        yield f"{len(places)} of {len(examples)} examples {what}, the first is record {first}"


def _where(examples: Sequence[Example], is_so: Callable[[Sequence[str]], bool]) -> list[int]:
    return [i for i, example in enumerate(examples) if is_so(_options(example))]


def _options(example: Example) -> Sequence[str]:
    """The choices, or the contexts of a schema."""
    return example.contexts if len(example.contexts) > 1 else example.continuations


def _equal(options: Sequence[str]) -> bool:
    return len(set(map(str.strip, options))) < len(options)


def _begins(options: Sequence[str]) -> bool:
    """The sum of log-probabilities prefers the shorter one, whatever the model knows."""
    pairs = permutations([*map(str.strip, options)], 2)
    return any(one != other and one.startswith(other) for one, other in pairs)


def _repeats(keys: Sequence[Any]) -> list[int]:
    """Places of keys that stand before already."""
    seen: set[object] = set()
    places: list[int] = []
    for i, key in enumerate(keys):
        if key in seen:
            places.append(i)
        seen.add(key)
    return places


def _repeated(examples: Sequence[Example]) -> Iterator[str]:
    by_answer, by_choices = zip(*map(keys_of, examples), strict=True)
    repeated = sorted({*_repeats(by_answer), *_repeats(by_choices)})
    yield from _counted(
        examples, repeated, "ask what an earlier one asks (as shots they carry the answer)"
    )
    answered: dict[Any, set[str]] = {}
    for example, key in zip(examples, by_choices, strict=True):
        answered.setdefault(key, set()).add(_answer(example))
    unlike = [i for i, key in enumerate(by_choices) if len(answered[key]) > 1]
    yield from _counted(examples, unlike, "have one question and several right answers")


def _answer(example: Example) -> str:
    if isinstance(example, Question):
        return "\n".join(sorted(map(str.strip, example.accepted)))
    return _options(example)[example.gold or 0].strip()


def _stopped(task: Task[AnswerProfile], examples: Sequence[Example]) -> Iterator[str]:
    """Right answers that hold a stop string, before which a completion ends, or `answer_after`."""
    never: list[int] = []
    records: list[int] = []
    for example in examples:
        if not isinstance(example, Question):
            continue
        accepted = example.accepted
        if any(answers.holds_stop(answer, task.profile) for answer in accepted):
            records.append(example.row + 1)
        if not answers.may_be_right(accepted, task.profile):
            never.append(example.row + 1)
    if records:
        yield (
            f"{len(records)} of {len(examples)} examples have a right answer that holds a stop "
            f"string or answer_after, so no completion is that answer: records "
            f"{some_of(records, 8)}"
        )
    if never:
        yield (
            f"no completion at all is right in {len(never)} of {len(examples)} examples: records "
            f"{some_of(never, 8)}"
        )


def _told(task: Task[Wording], examples: Sequence[Example]) -> Iterator[str]:
    leaked = sorted(
        example.row
        for example, shots in with_shots(task, examples)
        if any(asks_the_same(example, shot) for shot in shots)
    )
    if leaked:
        yield (
            f"{len(leaked)} of {len(examples)} prompts have a shot that is the question itself, "
            f"the first is that of record {leaked[0] + 1}: fewshot: distinct leaves such shots out"
        )


def _places(examples: Sequence[Example]) -> Iterator[str]:
    golds = Counter(example.gold for example in examples)
    if len(golds) == 1 and len(examples) > 1:
        yield (
            f"the right choice is at place {examples[0].gold} of all {len(examples)} examples, the "
            f"first is record {examples[0].row + 1}"
        )
    by_chance = math.prod(1 - 1 / len(_options(example)) for example in examples)
    if not golds[0] and len(golds) > 1 and by_chance < _RARE:
        yield (
            f"the right choice is never the first one in {len(examples)} examples: places are "
            "counted from 0"
        )


def _constants(examples: Sequence[Example]) -> Iterator[str]:
    """The best answer that does not depend on the question, if it is better than chance by more
    than chance."""
    places = Counter(example.gold for example in examples)
    texts = Counter(map(_answer, examples))
    if len(places) == 1 or len(examples) < 2:
        return
    chances = [1 / len(_options(example)) for example in examples]
    chance = sum(chances) / len(chances)
    stderr = math.sqrt(sum(each * (1 - each) for each in chances)) / len(chances)
    [(place, at_place)], [(text, of_text)] = places.most_common(1), texts.most_common(1)
    is_text = of_text >= at_place
    best = max(at_place, of_text)
    right = [_answer(each) == text if is_text else each.gold == place for each in examples]
    if best / len(examples) > chance + _STDERRS * stderr:
        what = f"the choice {text[:40]!r}" if is_text else f"the choice at place {place}"
        yield (
            f"{what} is right in {best} of {len(examples)} examples ({best / len(examples):.3f}, "
            f"by chance {chance:.3f}), the first is record {examples[right.index(True)].row + 1}"
        )


def _first_tokens(
    task: Task[Any], examples: Sequence[Example], tokenizer: Tokenizer
) -> Iterator[str]:
    """Options that all examples share are labels: with one first token they differ in later ones
    only."""
    labels = sorted(set(examples[0].continuations))
    if any(sorted(set(example.continuations)) != labels for example in examples):
        return
    joined = task.profile.joined_delimiter
    space = " " if (task.profile.delimiter + joined).endswith(" ") else ""
    texts = [space + label[len(joined) :].strip() for label in labels]
    firsts = Counter(tuple(ids[:1]) for ids in encoder(tokenizer)(texts))
    same = sum(count for count in firsts.values() if count > 1)
    if same:
        yield (
            f"{same} of {len(labels)} labels begin with the first token of another one in all "
            f"{len(examples)} examples, the first is record {examples[0].row + 1}"
        )
