"""Logic: short series and chains with one right continuation.

Arrives: draws and one language's words and frames.  Leaves: a `Draft`, and `pool`, the words that noise must leave
recognisable.  It deliberately does not know any language: english_logic.py and russian_logic.py do.

Two proofs stand behind an item.  A series of numbers counts only if every rule of `RULES` that explains the shown terms
continues them alike; weekdays, months and letters only if no other list they could come from (`rivals`) disagrees.  And
a series belongs to the benchmark or to training by the SHA-256 of its runs of five terms, so neither holds a piece of
the other's that is long enough to be an item: "2, 5, 8, 11, 14" decides for both of its continuations by one term.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from itertools import chain, pairwise
from typing import Literal, NamedTuple

from miron_jax.tasks.draw import Draw
from miron_jax.tasks.generators.miron_gen.draft import Draft

FamilyName = Literal[
    "arithmetic",
    "doubling",
    "squares",
    "letters",
    "weekdays",
    "months",
    "repetition",
    "ordinals",
    "number_words",
    "roman",
    "copy",
    "reverse",
    "comparison",
]

NUM_DISTRACTORS = 3
RUN_LEN = 5  # terms; the shortest series: four shown and the answer
_TRIES = 64  # draws inside one family, so that families with more rejections are not rarer


class Family(NamedTuple):
    """Wordings of one family; those of training are no wording of the benchmark."""

    name: FamilyName
    frames: tuple[str, ...]  # with {terms}; {terms} and {shown}; or {facts} and {most} ({Most} as a sentence's start)
    training: tuple[str, ...]


class Person(NamedTuple):
    subject: str
    compared: str  # the form after "than"


class Scale(NamedTuple):
    more: str
    less: str
    most: str
    least: str


@dataclass(frozen=True, slots=True)
class LogicWords:
    """Everything of Logic that depends on the language."""

    language: str
    families: tuple[Family, ...]
    alphabets: tuple[str, ...]  # stretches of letters that everyone recites alike
    weekdays: tuple[str, ...]
    months: tuple[str, ...]
    rivals: tuple[tuple[str, ...], ...]  # other well-known rounds of letters, weekdays or months
    numbers: tuple[str, ...]  # one to twenty
    tens: tuple[str, ...]  # ten, twenty and so on
    ordinals: tuple[str, ...]  # first to twentieth
    nouns: tuple[str, ...]
    people: tuple[Person, ...]
    scales: tuple[Scale, ...]
    statement: str  # with {subject}, {more}, {compared}
    optional_letters: str  # many writers use another instead; an answer may hold one only if the prefix shows it


class Puzzle(NamedTuple):
    """An item that has no wording yet."""

    blanks: dict[str, str]  # what the frame's fields are filled with
    answer: str
    wrong: Iterable[str]  # what distractors may be taken from
    runs: tuple[tuple[str, ...], ...]  # all of them must be on the asked side


# Rules that continue a series of numbers; None where the rule does not explain the terms.


def _steps(terms: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise(terms)]


def _is_constant(values: Sequence[int]) -> bool:
    return len(values) > 0 and all(value == values[0] for value in values)


def _arithmetic_next(terms: Sequence[int]) -> Fraction | None:
    return Fraction(terms[-1] + terms[-1] - terms[-2]) if _is_constant(_steps(terms)) else None


def _geometric_next(terms: Sequence[int]) -> Fraction | None:
    if len(terms) < 2 or 0 in terms:
        return None
    ratios = [Fraction(after, before) for before, after in pairwise(terms)]
    return terms[-1] * ratios[0] if all(ratio == ratios[0] for ratio in ratios) else None


def _second_difference_next(terms: Sequence[int]) -> Fraction | None:
    steps = _steps(terms)
    bends = _steps(steps)
    return Fraction(terms[-1] + steps[-1] + bends[0]) if _is_constant(bends) else None


def _fibonacci_next(terms: Sequence[int]) -> Fraction | None:
    sums = [a + b for a, b in pairwise(terms)]
    return Fraction(sums[-1]) if len(terms) > 2 and sums[:-1] == list(terms[2:]) else None


def _period_next(terms: Sequence[int], period: int) -> Fraction | None:
    """A period explains something only where at least one term is already a repeat."""
    if len(terms) <= period or list(terms[period:]) != list(terms[:-period]):
        return None
    return Fraction(terms[-period])


def _interleaved_next(terms: Sequence[int], rule: Callable[[Sequence[int]], Fraction | None]) -> Fraction | None:
    """Two series in turn; from six terms on, since two terms a series would fit anything."""
    if len(terms) < 6:
        return None
    # six terms t0..t5: the next one, t6, belongs to t0, t2, t4
    own, other = terms[len(terms) % 2 :: 2], terms[(len(terms) + 1) % 2 :: 2]
    return rule(own) if rule(other) is not None else None


RULES: dict[str, Callable[[Sequence[int]], Fraction | None]] = {
    "arithmetic": _arithmetic_next,
    "geometric": _geometric_next,
    "second difference": _second_difference_next,
    "fibonacci": _fibonacci_next,
    "period 2": lambda terms: _period_next(terms, 2),
    "period 3": lambda terms: _period_next(terms, 3),
    "interleaved arithmetic": lambda terms: _interleaved_next(terms, _arithmetic_next),
    "interleaved geometric": lambda terms: _interleaved_next(terms, _geometric_next),
}


def continuations(terms: Sequence[int]) -> dict[str, Fraction]:
    """What each rule that explains the terms expects next."""
    return {name: value for name, rule in RULES.items() if (value := rule(terms)) is not None}


def only_next(terms: Sequence[int]) -> int | None:
    """The next number if the rules that explain the terms agree on one; 1, 2, 4 goes on to 7 as well as to 8."""
    expected = list(continuations(terms).values())
    if not expected or any(value != expected[0] for value in expected) or expected[0].denominator != 1:
        return None
    return int(expected[0])


def round_next(terms: Sequence[str], lap: Sequence[str]) -> str | None:
    """The next term if the terms go round the lap in equal steps, else None."""
    if any(term not in lap for term in terms):
        return None
    places = [lap.index(term) for term in terms]
    steps = {step % len(lap) for step in _steps(places)}
    return lap[(places[-1] + steps.pop()) % len(lap)] if len(steps) == 1 else None


def is_training(run: Sequence[str]) -> bool:
    """One run in three belongs to training; case and language make no difference."""
    digest = sha256(", ".join(run).casefold().encode()).digest()
    return int.from_bytes(digest[:8], "big") % 3 == 0


def _runs(series: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(series[i : i + RUN_LEN]) for i in range(len(series) - RUN_LEN + 1))


def _series(series: Sequence[str], wrong: Iterable[str]) -> Puzzle:
    return Puzzle({"terms": ", ".join(series[:-1])}, series[-1], wrong, _runs(series))


def _walk(draw: Draw, size: int, steps: Sequence[int]) -> tuple[int, ...]:
    """5 to 7 places of 0 to size - 1 in equal steps, up or down, or as many as fit."""
    step = draw.choice(steps)
    num_places = min(RUN_LEN + draw.below(3), (size - 1) // step + 1)
    span = step * (num_places - 1)
    start = draw.below(size - span)
    places = tuple(range(start, start + span + 1, step))
    return places[::-1] if draw.below(2) else places


def _numbers(values: Sequence[int]) -> Puzzle | None:
    *shown, answer = values
    if only_next(shown) != answer:
        return None
    step = answer - shown[-1]
    near = (answer + shift for shift in (1, -1, 2, -2, 10, -10, step, -step))
    return _series([str(value) for value in values], (str(value) for value in near if value > 0))


def _arithmetic(draw: Draw, words: LogicWords) -> Puzzle | None:
    return _numbers([place + 1 for place in _walk(draw, 130, (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 20, 25))])


def _doubling(draw: Draw, words: LogicWords) -> Puzzle | None:
    start, num_terms = 1 + draw.below(40), RUN_LEN + draw.below(3)
    values = [start * 2**i for i in range(num_terms) if start * 2**i < 1000]
    return _numbers(values[::-1] if draw.below(2) else values)


def _squares(draw: Draw, words: LogicWords) -> Puzzle | None:
    return _numbers([(place + 1) ** 2 for place in _walk(draw, 25, (1,))])


def _places(draw: Draw, listed: Sequence[str], steps: Sequence[int]) -> Puzzle | None:
    """A walk along names of 1, 2, 3 ... (or of 10, 20, 30 ..., which no rule tells from them), proved as numbers."""
    walk = _walk(draw, len(listed), steps)
    if only_next([1 + place for place in walk[:-1]]) != 1 + walk[-1]:
        return None
    return _series([listed[place] for place in walk], _neighbours(listed, walk[-1]))


def _neighbours(listed: Sequence[str], place: int) -> Iterable[str]:
    return (listed[i] for i in range(max(place - 3, 0), min(place + 4, len(listed))) if i != place)


def _number_words(draw: Draw, words: LogicWords) -> Puzzle | None:
    listed, steps = (words.numbers, (1, 2, 3, 4)) if draw.below(5) else (words.tens, (1, 2))
    return _places(draw, listed, steps)


def _ordinals(draw: Draw, words: LogicWords) -> Puzzle | None:
    return _places(draw, words.ordinals, (1, 2, 3))


def _roman(draw: Draw, words: LogicWords) -> Puzzle | None:
    return _places(draw, [roman_numeral(number) for number in range(1, 21)], (1, 2, 3, 4))


def roman_numeral(number: int) -> str:
    """1 to 39: 14 is X and the fifth of the ones below."""
    ones = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
    return "X" * (number // 10) + ones[number % 10]


def _letters(draw: Draw, words: LogicWords) -> Puzzle | None:
    stretch = draw.choice([stretch for stretch in words.alphabets for _ in stretch])  # by its length
    fitting = [step for step in (1, 2, 3, 4, 5) if step * (RUN_LEN - 1) < len(stretch)]
    walk = _walk(draw, len(stretch), fitting)
    letters = stretch.upper() if draw.below(2) else stretch
    series = [letters[place] for place in walk]
    if _has_rival([term.lower() for term in series], words.rivals):
        return None
    return _series(series, _neighbours(letters, walk[-1]))


def _has_rival(series: Sequence[str], rivals: Iterable[Sequence[str]]) -> bool:
    *shown, answer = series
    return any(round_next(shown, rival) not in (None, answer) for rival in rivals)


def _round(draw: Draw, lap: Sequence[str], rivals: Iterable[Sequence[str]]) -> Puzzle | None:
    step, start = draw.choice((1, 2, -1, -2)), draw.below(len(lap))
    series = [lap[(start + step * i) % len(lap)] for i in range(RUN_LEN + draw.below(2))]
    if _has_rival(series, rivals):
        return None
    return _series(series, (term for term in lap if term != series[-1]))


def _repetition(draw: Draw, words: LogicWords) -> Puzzle:
    """Two or three nouns in turn, shown at least twice each, broken off anywhere in the third round."""
    period = 2 + draw.below(2)
    nouns = draw.sample(words.nouns, period + NUM_DISTRACTORS)
    cycle, strangers = nouns[:period], nouns[period:]
    num_shown = 2 * period + draw.below(period)
    shown = [cycle[i % period] for i in range(num_shown)]
    answer = cycle[num_shown % period]
    wrong = [noun for noun in cycle if noun != answer] + strangers
    return Puzzle({"terms": ", ".join(shown)}, answer, wrong[:NUM_DISTRACTORS], (tuple(sorted(cycle)),))


def _copied(draw: Draw, nouns: Sequence[str], direction: int) -> Puzzle:
    """A list, the beginning of the list once more or from its end, and the next noun of that."""
    num_nouns = 3 + draw.below(3)
    *listed, stranger = draw.sample(nouns, num_nouns + 1)
    copy = listed[::direction]
    num_shown = 1 + draw.below(num_nouns - 1)
    answer = copy[num_shown]
    wrong = [noun for noun in (*listed, stranger) if noun != answer]
    blanks = {"terms": ", ".join(listed), "shown": ", ".join(copy[:num_shown])}
    return Puzzle(blanks, answer, wrong, (tuple(sorted(listed)),))


def _comparison(draw: Draw, words: LogicWords) -> Puzzle:
    """Three or four people in a row, told neighbour by neighbour in any order and direction; asked for an end."""
    num_people = 3 + draw.below(2)
    *ranked, stranger = draw.sample(words.people, num_people + 1)
    scale = draw.choice(words.scales)
    facts = draw.shuffled([_told(draw, words.statement, scale, above, below) for above, below in pairwise(ranked)])
    asked, answer = (scale.most, ranked[0]) if draw.below(2) else (scale.least, ranked[-1])
    wrong = [person.subject for person in (*ranked, stranger) if person != answer]
    blanks = {"facts": " ".join(facts), "most": asked, "Most": asked.capitalize()}
    run = tuple(sorted(person.subject for person in ranked))
    return Puzzle(blanks, answer.subject, wrong[:NUM_DISTRACTORS], (run,))


def _told(draw: Draw, statement: str, scale: Scale, above: Person, below: Person) -> str:
    if draw.below(2):
        return statement.format(subject=above.subject, more=scale.more, compared=below.compared)
    return statement.format(subject=below.subject, more=scale.less, compared=above.compared)


_PUZZLES: dict[FamilyName, Callable[[Draw, LogicWords], Puzzle | None]] = {
    "arithmetic": _arithmetic,
    "doubling": _doubling,
    "squares": _squares,
    "letters": _letters,
    "weekdays": lambda draw, words: _round(draw, words.weekdays, words.rivals),
    "months": lambda draw, words: _round(draw, words.months, words.rivals),
    "repetition": _repetition,
    "ordinals": _ordinals,
    "number_words": _number_words,
    "roman": _roman,
    "copy": lambda draw, words: _copied(draw, words.nouns, 1),
    "reverse": lambda draw, words: _copied(draw, words.nouns, -1),
    "comparison": _comparison,
}


def draft(draw: Draw, words: LogicWords, training: bool = False) -> Draft | None:
    """One item of a family that is drawn first; None if that family gave none on the asked side."""
    family = draw.choice(words.families)
    for _ in range(_TRIES):
        puzzle = _PUZZLES[family.name](draw, words)
        if puzzle is not None and puzzle.runs and all(is_training(run) == training for run in puzzle.runs):
            item = _worded(draw, family, puzzle, training)
            if len(item.distractors) == NUM_DISTRACTORS and _has_one_spelling(item, words.optional_letters):
                return item
    return None


def _has_one_spelling(item: Draft, optional_letters: str) -> bool:
    return all(letter not in item.target or letter in item.prefix for letter in optional_letters)


def _distractors(draw: Draw, puzzle: Puzzle) -> tuple[str, ...]:
    """None begins the answer and none is begun by it: " 1" would be at least as likely as " 14" whatever the model."""
    wrong = [w for w in dict.fromkeys(puzzle.wrong) if not w.startswith(puzzle.answer)]
    wrong = [w for w in wrong if not puzzle.answer.startswith(w)]
    return tuple(f" {w}" for w in draw.sample(wrong, min(NUM_DISTRACTORS, len(wrong))))


def _worded(draw: Draw, family: Family, puzzle: Puzzle, training: bool) -> Draft:
    frames, mark = (family.training, "training-") if training else (family.frames, "")
    number = draw.below(len(frames))
    prefix = frames[number].format(**puzzle.blanks)
    meta = (("family", str(family.name)),)
    return Draft(prefix, f" {puzzle.answer}", _distractors(draw, puzzle), f"{family.name}/{mark}{number}", meta)


def pool(words: LogicWords) -> tuple[str, ...]:
    """Every word that a series, a list or a chain is made of, each once."""
    people = chain.from_iterable(words.people)
    scales = chain.from_iterable(words.scales)
    lists = (words.weekdays, words.months, words.numbers, words.tens, words.ordinals, words.nouns)
    return tuple(dict.fromkeys(chain(*lists, people, scales)))
