"""Prompts of a choice task -> the prompts of its controls: what is left of a score without its
input.

Arrives: a task, its examples, and the prompts that they have.  Leaves: prompts of a sample of the
examples, in which one thing is changed.  It deliberately does not know tokens or scores.

    stem_swap         the question is another example's; the choices stay
    answer_only       the question is left out
    shuffled_shots    each shot has the answer of another shot
    permuted_options  the options listed under letters stand in another order

A context is three texts, and a control changes the middle one or the last one:

    Question:  Why is the sky blue?  \\n A. dust\\n B. scattering\\nAnswer:
    before     question              rest
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from os.path import commonprefix
from random import Random
from typing import NamedTuple

from miron_jax.definitions.records import Example, Profile, Task
from miron_jax.prompting.draws import NO_SHOTS
from miron_jax.prompting.prompts import Prompt, digest_of, prompt_of, shot_parts

STEM_SWAP, ANSWER_ONLY = "stem_swap", "answer_only"
SHUFFLED_SHOTS, PERMUTED_OPTIONS = "shuffled_shots", "permuted_options"
CONTROLS: tuple[str, ...] = (STEM_SWAP, ANSWER_ONLY, SHUFFLED_SHOTS, PERMUTED_OPTIONS)
# As many examples are drawn as keep the prompts of their controls within this share of the task's
# prompts, in characters; what prompts have in common counts once.
SHARE = 0.5
LEAST = 2  # examples drawn, or none are: one has no interval
_LETTERS = ("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz", "123456789", "0123456789")
# The mark of option {}, at the beginning of a line, else of a word: "A. ", "(A) ", "A) ", "A.) ".
_MARKS = (r"^[^\S\n]*\(?{}[.):]+\s+", r"(?<!\S)\(?{}[.):]+\s+")
_FIRST_MARK = re.compile(r"\s*\(?\w[.):]+\s+\Z")
_END_OF_OPTION = re.compile(r"[\s;,]*\Z")
_LAST_WORD = re.compile(r"\S*\Z")


class ControlPrompts(NamedTuple):
    """The controls of one task."""

    prompts: list[Prompt]  # those of an example one after another; the id is the place here
    controls: list[str]  # which each of them is
    ids: list[int]  # of the examples that were drawn
    absent: Mapping[str, str]  # control -> why the task has none


class Parts(NamedTuple):
    """contexts[i] of an example is before + question + rest[i]."""

    example: Example
    before: str  # what all contexts of the task, or of the example's category, begin with
    question: str
    # Options under letters, and what all contexts of the task end with; of a schema what differs.
    rest: tuple[str, ...]
    # where in the context the text of each option stands, half-open; (): none are listed
    options: tuple[tuple[int, int], ...] = ()

    def asking(self, question: str) -> Example:
        """The example with another question."""
        contexts = tuple(self.before + question + rest for rest in self.rest)
        return replace(self.example, contexts=contexts)

    def permuted(self, order: Sequence[int]) -> Example:
        """The example whose option i is the one that was order[i]; letters stay where they are."""
        [context] = {*self.example.contexts}
        pieces = list[str]()
        end = 0
        for (start, stop), i in zip(self.options, order, strict=True):
            pieces += [context[end:start], context[slice(*self.options[i])]]
            end = stop
        contexts = ("".join((*pieces, context[end:])),)
        gold = self.example.gold
        assert gold is not None, "drawn examples have a right answer"
        also_right = tuple(map(order.index, self.example.also_right or ())) or None
        return replace(
            self.example, contexts=contexts, gold=order.index(gold), also_right=also_right
        )


def control_prompts(
    task: Task[Profile], examples: Sequence[Example], prompts: Sequence[Prompt], seed: int
) -> ControlPrompts:
    """Draw examples by (seed, task) and make their controls.  `prompts`: of the task's examples, in
    its order."""
    parts = parts_of(examples)
    asked = [prompt for prompt in prompts if prompt.gold is not None]
    Random(f"{seed}/{task.name}").shuffle(asked)
    ends = _ends_of_shots(task, examples)
    absent = _absent(task, [parts[prompt.row] for prompt in asked], bool(ends))
    changes = _Changes(task, seed, asked, parts, ends, absent)
    if SHUFFLED_SHOTS not in absent and not any(map(changes.has_other_shots, asked)):
        absent[SHUFFLED_SHOTS] = "the shots of a prompt all have the same answer"
    drawn = ControlPrompts([], [], [], absent)
    left = SHARE * _num_chars(prompts, parts, set())
    preambles = set[tuple[str, ...]]()
    for i in range(len(asked) if len(absent) < len(CONTROLS) else 0):
        changed = changes.of(i)
        left -= _num_chars(changed.values(), parts, preambles)
        if left < 0:
            break
        drawn.ids.append(asked[i].id)
        for control, prompt in changed.items():
            drawn.controls.append(control)
            drawn.prompts.append(replace(prompt, id=len(drawn.prompts)))
    if len(drawn.ids) >= LEAST:
        return drawn
    why = (
        f"controls of {LEAST} of its {len(prompts)} examples would cost more than {SHARE:g} of the "
        "task: score more of them"
    )
    return ControlPrompts([], [], [], dict.fromkeys(CONTROLS, why) | absent)


class _Changes(NamedTuple):
    """What makes the controls of each example of a task."""

    task: Task[Profile]
    seed: int
    asked: Sequence[Prompt]  # in the order of the draw
    parts: Mapping[int, Parts]
    ends: Mapping[str, tuple[str, str]]  # a shot's text -> its context and its answer
    absent: Mapping[str, str]  # controls that are not made

    def of(self, i: int) -> dict[str, Prompt]:
        """Control -> the prompt asked[i] under it."""
        prompt = self.asked[i]
        parts = self.parts[prompt.row]
        examples = dict[str, Example]()
        if STEM_SWAP not in self.absent:
            examples[STEM_SWAP] = parts.asking(self._other_question(i))
        if ANSWER_ONLY not in self.absent:
            examples[ANSWER_ONLY] = parts.asking("")
        if PERMUTED_OPTIONS not in self.absent:
            order = list(range(len(parts.options)))
            Random(f"{self.seed}/{self.task.name}/{prompt.row}").shuffle(order)
            examples[PERMUTED_OPTIONS] = parts.permuted(order)
        made = dict[str, Prompt]()
        for control, example in examples.items():
            changed = prompt_of(self.task, prompt.id, example, prompt.shots)
            made[control] = replace(changed, num_shots=prompt.num_shots)
        if SHUFFLED_SHOTS not in self.absent:
            made[SHUFFLED_SHOTS] = replace(prompt, shots=self._shuffled(prompt.shots))
        return made

    def has_other_shots(self, prompt: Prompt) -> bool:
        return self._shuffled(prompt.shots) != prompt.shots

    def _other_question(self, i: int) -> str:
        """That of the next example of the draw, around its end, that asks something else."""
        question = self.parts[self.asked[i].row].question
        for j in range(i + 1 - len(self.asked), i):
            other = self.parts[self.asked[j].row].question
            if other != question:
                return other
        raise AssertionError("a task with one question alone has no stem_swap")

    def _shuffled(self, shots: tuple[str, ...]) -> tuple[str, ...]:
        """The shots, each with another one's answer.  Equal shots are shuffled alike, so that
        prompts share them."""
        # shots that a suite arranges end with theirs
        separator = self.task.profile.shot_separator if self.task.arrange is None else ""
        separators = [separator] * (len(shots) - 1) + [""]
        texts = [*map(str.removesuffix, shots, separators)]
        places = [i for i, text in enumerate(texts) if text in self.ends]  # not a heading
        Random(f"{self.seed}/{digest_of(*shots)}").shuffle(places)

        def answer_at(i: int) -> str:
            return self.ends[texts[i]][1]

        # Equal answers side by side, then as many places further as the most common one has: no
        # shot keeps its answer, unless more than half of them have the same.
        places.sort(key=answer_at)
        by = max(Counter(map(answer_at, places)).values(), default=0)
        changed = list(shots)
        for i, other in zip(places, places[by:] + places[:by], strict=True):
            changed[i] = self.ends[texts[i]][0] + answer_at(other) + separators[i]
        return tuple(changed)


def parts_of(examples: Sequence[Example]) -> dict[int, Parts]:
    """The contexts of a task's examples in their parts, by row."""
    is_lettered = are_lettered(examples)
    end = _end_of_contexts(examples)
    options = list[tuple[tuple[int, int], ...]]()
    stems = list[str]()
    of_category = defaultdict[str | None, set[str]](set)
    for example in examples:
        context = example.contexts[0]
        options.append(_listed_options(example, end) if is_lettered else ())
        stem = context if is_lettered else context[: len(context) - len(end)]
        if options[-1]:
            stem = _FIRST_MARK.sub("", context[: options[-1][0][0]])
        elif len({*example.contexts}) > 1:  # a schema
            stem = _common_begin(example.contexts)
        stems.append(stem)
        of_category[example.category].add(stem)
    begins = dict(zip(of_category, map(_common_begin, of_category.values()), strict=True))
    parts = dict[int, Parts]()
    for example, stem, spans in zip(examples, stems, options, strict=True):
        before = begins[example.category]
        rest = tuple(context[len(stem) :] for context in example.contexts)
        parts[example.row] = Parts(example, before, stem[len(before) :], rest, spans)
    return parts


def _absent(task: Task[Profile], asked: Sequence[Parts], marks_answers: bool) -> dict[str, str]:
    """Control -> why the task has none.  `marks_answers`: the answers of its shots are known."""
    if not asked:
        return dict.fromkeys(CONTROLS, "the right answers are not published")
    absent = dict[str, str]()
    if not are_lettered(each.example for each in asked):
        absent[PERMUTED_OPTIONS] = "its prompts list no options under letters"
    elif not all(each.options for each in asked):
        why = "its choices are letters or numbers, and its prompts list no options under them"
        absent |= dict.fromkeys((STEM_SWAP, ANSWER_ONLY, PERMUTED_OPTIONS), why)
    if STEM_SWAP not in absent and len({each.question for each in asked}) < 2:
        why = "its prompts have no question that could be another one"
        absent |= dict.fromkeys((STEM_SWAP, ANSWER_ONLY), why)
    if ANSWER_ONLY not in absent and _may_be_empty(task, asked):
        absent[ANSWER_ONLY] = "nothing would be left before the choices"
        if not all(each.question.strip() for each in asked):
            absent[STEM_SWAP] = (
                "nothing would be left before the choices with a question of no word"
            )
    if task.profile.num_fewshot < 2:
        absent[SHUFFLED_SHOTS] = "its prompts have no two shots whose answers could be exchanged"
    elif not marks_answers:
        absent[SHUFFLED_SHOTS] = "its shots are texts in which no answer is marked"
    return absent


def _may_be_empty(task: Task[Profile], asked: Sequence[Parts]) -> bool:
    """Whether no token might stand before a choice of some prompt without question."""
    profile = task.profile
    if profile.num_fewshot or profile.bos in ("always", "as_tokenizer_or_prefix"):
        return False
    wording = profile.prompt_string + profile.prelimiter + profile.delimiter
    return not all((wording + each.before + rest).strip() for each in asked for rest in each.rest)


def _ends_of_shots(task: Task[Profile], examples: Sequence[Example]) -> dict[str, tuple[str, str]]:
    """The text of each shot -> its context and its answer; {}: no answer is marked in it."""
    ends = dict[str, tuple[str, str]]()
    if task.arrange is not None:
        mark = _end_of_contexts(examples)
        for example in examples if mark else ():
            for shot in example.shots or ():
                context, is_marked, answer = shot.rpartition(mark)
                if is_marked:
                    ends[shot] = context + mark, answer
    elif task.profile.fewshot_draw is not NO_SHOTS:
        for example in examples if task.shots_from is None else task.shots_from():
            if example.gold is not None:
                context, answer = shot_parts(example, task.profile)
                ends[context + answer] = context, answer
    return ends


def are_lettered(examples: Iterable[Example]) -> bool:
    """Whether the choices of every example are A, B, C, ..., or numbers in their order."""
    for example in examples:
        labels = _labels(example)
        is_whole = 1 < len(labels) == len(example.continuations)
        is_letters = any(letters.startswith(labels) for letters in _LETTERS)
        if not (is_whole and is_letters and len({*example.contexts}) == 1):
            return False
    return True


def _labels(example: Example) -> str:
    return "".join(map(str.strip, example.continuations))


def _listed_options(example: Example, end: str) -> tuple[tuple[int, int], ...]:
    """Where in the context the text behind each letter stands, half-open; (): not all of them are
    there.  The last list counts: earlier ones are of shots.  `end`: of all contexts of the task."""
    context = example.contexts[0]
    labels = _labels(example)
    for mark in _MARKS:
        for first in reversed([*re.finditer(mark.format(labels[0]), context, re.MULTILINE)]):
            marks = [first]
            for label in labels[1:]:
                pattern = re.compile(mark.format(label), re.MULTILINE)
                marks += islice(pattern.finditer(context, marks[-1].end()), 1)
            if len(marks) == len(labels):
                return _texts_behind(marks, context, len(context) - len(end))
    return ()


def _texts_behind(
    marks: Sequence[re.Match[str]], context: str, stop_at: int
) -> tuple[tuple[int, int], ...]:
    """From each mark to the next one, half-open; from the last one to the end of its line, or to
    `stop_at` where all stand on one line.  (): options of several lines, or of no text."""
    last = marks[-1].end()
    line = context.find("\n", last)
    stop = line if line >= 0 else len(context)
    if "\n" not in context[marks[0].start() : last] and stop_at > last:
        stop = min(stop, stop_at)
    spans = list[tuple[int, int]]()
    for mark, next_start in zip(marks, [*map(re.Match.start, marks[1:]), stop], strict=True):
        text = _END_OF_OPTION.sub("", context[mark.end() : next_start])
        if not text or "\n" in text:
            return ()
        spans.append((mark.end(), mark.end() + len(text)))
    return tuple(spans)


def _common_begin(texts: Iterable[str]) -> str:
    """What different texts begin with, up to a border of words; "" of one text alone."""
    distinct = {*texts}
    if len(distinct) < 2:
        return ""
    return _LAST_WORD.sub("", commonprefix([*distinct]))  # noqa: RUF071 - texts, no paths


def _end_of_contexts(examples: Iterable[Example]) -> str:
    """What different contexts end with, from a border of words on; "" of one context alone."""
    return _common_begin(example.contexts[0][::-1] for example in examples)[::-1]


def _num_chars(
    prompts: Iterable[Prompt], parts: Mapping[int, Parts], preambles: set[tuple[str, ...]]
) -> int:
    """Characters of prompts, less what they share: what they begin with, if it is in `preambles`
    already, and contexts of several choices."""
    num_chars = 0
    for prompt in prompts:
        before = parts[prompt.row].before
        preamble = (*prompt.shots, before)
        if preamble not in preambles:
            preambles.add(preamble)
            num_chars += sum(map(len, preamble))
        for context in {*prompt.contexts}:
            num_chars += max(0, len(context) - len(before))
        num_chars += sum(map(len, prompt.continuations))
    return num_chars
