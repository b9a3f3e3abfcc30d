"""Logic: short series and chains with one right continuation.

Arrives: draws; one language's words and frames, its logic.json.  Leaves: a `Draft`,
and `pool`, the words that noise must leave recognisable.  It deliberately does not know any
language.

An item has one right answer: a series of numbers is kept only if all `RULES` that explain its terms
agree on the next one, and weekdays, months and letters only if no other list that contains them
(`rivals`) disagrees.  The SHA-256 of each run of five terms assigns the run to the benchmark or to
training, and a series is used only where all its runs belong.  So no series of one side contains
five consecutive terms of a series of the other.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from hashlib import sha256
from itertools import chain, pairwise, starmap
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.readers import shown
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.eval_uation_gen.language import check_fields
from miron_jax.tasks.generators.miron_gen.draft import (
    Draft,
    package_folder,
    read_file,
    rows_of,
    texts_of,
)

NUM_DISTRACTORS = 3
RUN_LEN = 5  # terms; the shortest series: four shown and the answer
_TRIES = 64  # draws within one family, so that families with more rejections are not rarer


class PuzzleFamily(NamedTuple):
    """Wordings of one family; training shares none with the benchmark."""

    name: str  # of _PUZZLES
    # With {terms}; {terms} and {shown}; or {facts} and {most} ({Most} at the start of a sentence).
    frames: tuple[str, ...]
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
    """The word lists and wordings of one language."""

    language: str
    families: tuple[PuzzleFamily, ...]
    alphabets: tuple[str, ...]  # sequences of letters that everyone recites alike
    weekdays: tuple[str, ...]
    months: tuple[str, ...]
    # other well-known cycles: months of 31 days, notes, marks
    rivals: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...]  # one to twenty
    tens: tuple[str, ...]  # ten, twenty and so on
    ordinals: tuple[str, ...]  # first to twentieth
    nouns: tuple[str, ...]
    people: tuple[Person, ...]
    scales: tuple[Scale, ...]
    statement: str  # with {subject}, {more}, {compared}
    # often replaced in writing; an answer may have one only if the prefix does
    optional_letters: str


@cache
def words_of(language: str) -> LogicWords:
    """The words of "en" or "ru".

    Any two English nouns or names differ by at least two letters, so that a misspelt one is still
    recognisable.  Russian words are nominatives, and no frame requires another case; people are
    compared in the genitive.  Russian alphabets stop before ё, й, ъ, ы and ь, which not everyone
    counts, there are no Roman numerals, and the comparative is the superlative ("выше всех").
    Families of numbers share their wordings.
    """
    return read_words(package_folder(language))


def read_words(folder: Path) -> LogicWords:
    """The words of a language; only the lists of its families must be there.  Raises
    InputError."""
    path = folder / "logic.json"
    fields = read_file(path)
    families = list[PuzzleFamily]()
    stated = fields.get("families")
    if not isinstance(stated, dict) or not stated or not all(map(str.strip, stated)):
        raise InputError(f"{path}: families is {shown(stated)}, expected some with their wordings")
    for names, wordings in stated.items():
        given = wordings if isinstance(wordings, dict) else {}
        frames = texts_of(path, f"frames of {names}", given.get("frames"))
        training = texts_of(path, f"training of {names}", given.get("training", []), 0)
        for name in names.split():
            if name not in _PUZZLES:
                raise InputError(
                    f"{path}: the family {name!r} is not known, expected some of "
                    f"{', '.join(_PUZZLES)}: remove it"
                )
            for i, frame in enumerate(frames):
                fields_of = _FIELDS.get(name, ("terms",))
                at = f"{path}: frame {i} of {name}"
                check_fields(frame.replace("{Most}", "{most}"), fields_of, at, needs_all=True)
            for needed, least in _NEEDED.get(name, {}).items():
                value = fields.get(needed)
                if not isinstance(value, list) or len(value) < least:
                    raise InputError(
                        f"{path}: {needed} is {shown(value)}, and the family {name} wants "
                        f"{least} or more: add them, or remove the family"
                    )
            families.append(PuzzleFamily(name, frames, training))
    statement = fields.get("statement", "")
    optional = fields.get("optional_letters", "")
    if not isinstance(statement, str) or not isinstance(optional, str):
        raise InputError(
            f"{path}: statement is {shown(statement)} and optional_letters {shown(optional)}, "
            "expected texts: mend it"
        )
    if statement or "comparison" in " ".join(stated).split():
        said = ("subject", "more", "compared")
        check_fields(statement, said, f"{path}: statement", needs_all=True)

    def listed(name: str) -> tuple[str, ...]:
        return texts_of(path, name, fields.get(name, []), 0)

    def rows(name: str, cells: Sequence[str] = ()) -> tuple[tuple[str, ...], ...]:
        return rows_of(path, name, fields.get(name, []), cells)

    words = LogicWords(
        language=folder.name,
        families=tuple(families),
        alphabets=listed("alphabets"),
        weekdays=listed("weekdays"),
        months=listed("months"),
        rivals=rows("rivals"),
        numbers=listed("numbers"),
        tens=listed("tens"),
        ordinals=listed("ordinals"),
        nouns=listed("nouns"),
        people=tuple(starmap(Person, rows("people", Person._fields))),
        scales=tuple(starmap(Scale, rows("scales", Scale._fields))),
        statement=statement,
        optional_letters=optional,
    )
    for alphabet in words.alphabets:
        if len(alphabet) < RUN_LEN:
            raise InputError(f"{path}: the alphabet {alphabet!r} has less than {RUN_LEN} letters")
    return words


class Puzzle(NamedTuple):
    """An item without its wording."""

    blanks: dict[str, str]  # field of the frame -> text
    answer: str
    wrong: Iterable[str]  # candidates for distractors
    # all of them must belong to the requested side, benchmark or training
    runs: tuple[tuple[str, ...], ...]


# Rules that continue a series of numbers; None where the rule does not explain the terms.


def _steps(terms: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise(terms)]


def _is_constant(values: Sequence[int | Fraction]) -> bool:
    return len(set(values)) == 1


def _arithmetic_next(terms: Sequence[int]) -> Fraction | None:
    if not _is_constant(_steps(terms)):
        return None
    return Fraction(terms[-1] + terms[-1] - terms[-2])


def _geometric_next(terms: Sequence[int]) -> Fraction | None:
    if len(terms) < 2 or 0 in terms:
        return None
    ratios = [Fraction(after, before) for before, after in pairwise(terms)]
    if not _is_constant(ratios):
        return None
    return terms[-1] * ratios[0]


def _second_difference_next(terms: Sequence[int]) -> Fraction | None:
    steps = _steps(terms)
    bends = _steps(steps)
    if not _is_constant(bends):
        return None
    return Fraction(terms[-1] + steps[-1] + bends[0])


def _fibonacci_next(terms: Sequence[int]) -> Fraction | None:
    sums = list(map(sum, pairwise(terms)))
    if len(terms) < 3 or sums[:-1] != list(terms[2:]):
        return None
    return Fraction(sums[-1])


def _period_next(terms: Sequence[int], period: int) -> Fraction | None:
    """A period explains a series only if at least one term is a repeat."""
    if len(terms) <= period or list(terms[period:]) != list(terms[:-period]):
        return None
    return Fraction(terms[-period])


def _interleaved_next(
    terms: Sequence[int], rule: Callable[[Sequence[int]], Fraction | None]
) -> Fraction | None:
    """Two series in turn, of six terms or more: a rule fits any two terms of a series."""
    # six terms t0..t5: the next one, t6, belongs to t0, t2, t4
    continued = terms[len(terms) % 2 :: 2]
    other = terms[(len(terms) + 1) % 2 :: 2]
    if len(terms) < 6 or rule(other) is None:
        return None
    return rule(continued)


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
    """Rule -> next term, for each rule that explains the terms."""
    return {name: value for name, rule in RULES.items() if (value := rule(terms)) is not None}


def only_next(terms: Sequence[int]) -> int | None:
    """The next number if all rules that explain the terms agree; None for 1, 2, 4, which 7 and 8
    may follow."""
    expected = set(continuations(terms).values())
    if len(expected) != 1:
        return None
    [value] = expected
    if value.denominator == 1:
        return int(value)
    return None


def round_next(terms: Sequence[str], cycle: Sequence[str]) -> str | None:
    """The next term if the terms go round the cycle in equal steps, else None."""
    if not set(terms) <= set(cycle):
        return None
    idxs = [*map(cycle.index, terms)]
    steps = {step % len(cycle) for step in _steps(idxs)}
    if len(steps) != 1:
        return None
    return cycle[(idxs[-1] + steps.pop()) % len(cycle)]


def is_training(run: Sequence[str]) -> bool:
    """Whether a run belongs to training, as one in three does; case makes no difference."""
    digest = sha256(", ".join(run).casefold().encode()).digest()
    return int.from_bytes(digest[:8], "big") % 3 == 0


def _runs(series: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(series[i : i + RUN_LEN]) for i in range(len(series) - RUN_LEN + 1))


def _series(series: Sequence[str], wrong: Iterable[str]) -> Puzzle:
    return Puzzle({"terms": ", ".join(series[:-1])}, series[-1], wrong, _runs(series))


def _walk(draw: Stream, size: int, steps: Sequence[int]) -> Sequence[int]:
    """5 to 7 indices from 0 to size - 1 in equal steps, up or down, or as many as fit."""
    step = draw.choice(steps)
    num_terms = min(RUN_LEN + draw.below(3), (size - 1) // step + 1)
    span = step * (num_terms - 1)
    start = draw.below(size - span)
    return range(start, start + span + 1, step)[:: draw.choice((1, -1))]


def _numbers(values: Sequence[int]) -> Puzzle | None:
    *terms, answer = values
    if only_next(terms) != answer:
        return None
    step = answer - terms[-1]
    shifts = (1, -1, 2, -2, 10, -10, step, -step)
    near = (str(answer + shift) for shift in shifts if answer + shift > 0)
    return _series(list(map(str, values)), near)


def _doubling(draw: Stream, words: LogicWords) -> Puzzle | None:
    start = 1 + draw.below(40)
    num_terms = RUN_LEN + draw.below(3)
    values = [start * 2**i for i in range(num_terms) if start * 2**i < 1000]
    return _numbers(values[:: draw.choice((1, -1))])


def _named_numbers(draw: Stream, names: Sequence[str], steps: Sequence[int]) -> Puzzle | None:
    """A walk along names of 1, 2, 3 ... or of 10, 20, 30 ..., which all rules treat alike."""
    walk = _walk(draw, len(names), steps)
    if only_next([1 + idx for idx in walk[:-1]]) != 1 + walk[-1]:
        return None
    return _series([names[idx] for idx in walk], _neighbours(names, walk[-1]))


def _neighbours(names: Sequence[str], idx: int) -> Iterable[str]:
    return (*names[max(idx - 3, 0) : idx], *names[idx + 1 : idx + 4])


def _number_words(draw: Stream, words: LogicWords) -> Puzzle | None:
    if draw.below(5):
        return _named_numbers(draw, words.numbers, (1, 2, 3, 4))
    return _named_numbers(draw, words.tens, (1, 2))


def roman_numeral(number: int) -> str:
    """The numeral of 1 to 39: 14 is X and IV."""
    ones = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
    return "X" * (number // 10) + ones[number % 10]


_ARITHMETIC_STEPS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 20, 25)
_ROMAN = [*map(roman_numeral, range(1, 21))]


def _letters(draw: Stream, words: LogicWords) -> Puzzle | None:
    # weighted by length
    alphabet = draw.choice([alphabet for alphabet in words.alphabets for _ in alphabet])
    longest_step = min(5, (len(alphabet) - 1) // (RUN_LEN - 1))
    walk = _walk(draw, len(alphabet), range(1, longest_step + 1))
    letters = draw.choice((alphabet, alphabet.upper()))
    series = [letters[idx] for idx in walk]
    if _has_rival(list(map(str.lower, series)), words.rivals):
        return None
    return _series(series, _neighbours(letters, walk[-1]))


def _has_rival(series: Sequence[str], rivals: Iterable[Sequence[str]]) -> bool:
    *terms, answer = series
    return any(round_next(terms, rival) not in (None, answer) for rival in rivals)


def _round(draw: Stream, cycle: Sequence[str], rivals: Iterable[Sequence[str]]) -> Puzzle | None:
    step = draw.choice((1, 2, -1, -2))
    start = draw.below(len(cycle))
    series = [cycle[(start + step * i) % len(cycle)] for i in range(RUN_LEN + draw.below(2))]
    if _has_rival(series, rivals):
        return None
    return _series(series, (term for term in cycle if term != series[-1]))


def _repetition(draw: Stream, words: LogicWords) -> Puzzle:
    """Two or three nouns in turn, each at least twice; the series stops anywhere in the third
    round."""
    period = 2 + draw.below(2)
    nouns = draw.sample(words.nouns, period + NUM_DISTRACTORS)
    cycle = nouns[:period]
    strangers = nouns[period:]
    num_shown = 2 * period + draw.below(period)
    *terms, answer = (cycle * 3)[: num_shown + 1]
    wrong = [noun for noun in cycle if noun != answer] + strangers
    return Puzzle(
        {"terms": ", ".join(terms)}, answer, wrong[:NUM_DISTRACTORS], (tuple(sorted(cycle)),)
    )


def _copied(draw: Stream, nouns: Sequence[str], direction: int) -> Puzzle:
    """A list, and the beginning of its copy (direction 1) or of its reverse (-1), which the answer
    continues."""
    num_nouns = 3 + draw.below(3)
    *listed, stranger = draw.sample(nouns, num_nouns + 1)
    copy = listed[::direction]
    num_shown = 1 + draw.below(num_nouns - 1)
    answer = copy[num_shown]
    wrong = [noun for noun in (*listed, stranger) if noun != answer]
    blanks = {"terms": ", ".join(listed), "shown": ", ".join(copy[:num_shown])}
    return Puzzle(blanks, answer, wrong, (tuple(sorted(listed)),))


def _comparison(draw: Stream, words: LogicWords) -> Puzzle:
    """Three or four ranked people, compared pair by pair in any order and direction; the answer is
    the first or the last."""
    num_people = 3 + draw.below(2)
    *ranked, stranger = draw.sample(words.people, num_people + 1)
    scale = draw.choice(words.scales)
    statements = []
    for above, below in pairwise(ranked):
        statements.append(_comparing(draw, words.statement, scale, above, below))
    facts = draw.shuffled(statements)
    superlative, answer = draw.choice(((scale.least, ranked[-1]), (scale.most, ranked[0])))
    wrong = [person.subject for person in (*ranked, stranger) if person != answer]
    blanks = {"facts": " ".join(facts), "most": superlative, "Most": superlative.capitalize()}
    run = tuple(sorted(person.subject for person in ranked))
    return Puzzle(blanks, answer.subject, wrong[:NUM_DISTRACTORS], (run,))


def _comparing(draw: Stream, statement: str, scale: Scale, above: Person, below: Person) -> str:
    if draw.below(2):
        return statement.format(subject=above.subject, more=scale.more, compared=below.compared)
    return statement.format(subject=below.subject, more=scale.less, compared=above.compared)


_PUZZLES: dict[str, Callable[[Stream, LogicWords], Puzzle | None]] = {
    "arithmetic": lambda draw, words: _numbers(
        [idx + 1 for idx in _walk(draw, 130, _ARITHMETIC_STEPS)]
    ),
    "doubling": _doubling,
    "squares": lambda draw, words: _numbers([(idx + 1) ** 2 for idx in _walk(draw, 25, (1,))]),
    "letters": _letters,
    "weekdays": lambda draw, words: _round(draw, words.weekdays, words.rivals),
    "months": lambda draw, words: _round(draw, words.months, words.rivals),
    "repetition": _repetition,
    "ordinals": lambda draw, words: _named_numbers(draw, words.ordinals, (1, 2, 3)),
    "number_words": _number_words,
    "roman": lambda draw, words: _named_numbers(draw, _ROMAN, (1, 2, 3, 4)),
    "copy": lambda draw, words: _copied(draw, words.nouns, 1),
    "reverse": lambda draw, words: _copied(draw, words.nouns, -1),
    "comparison": _comparison,
}


_FIELDS = {  # of a family's frames, {Most} as {most}; of the others: terms
    "copy": ("terms", "shown"),
    "reverse": ("terms", "shown"),
    "comparison": ("facts", "most"),
}
_LONG = RUN_LEN + NUM_DISTRACTORS
_NEEDED = {  # lists that a family wants, and how long they must be
    "letters": {"alphabets": 1},
    "weekdays": {"weekdays": RUN_LEN},
    "months": {"months": RUN_LEN},
    "ordinals": {"ordinals": _LONG},
    "number_words": {"numbers": _LONG, "tens": _LONG},
    "repetition": {"nouns": _LONG},
    "copy": {"nouns": _LONG},
    "reverse": {"nouns": _LONG},
    "comparison": {"people": RUN_LEN, "scales": 1},
}


def draft(draw: Stream, words: LogicWords, training: bool = False) -> Draft | None:
    """One item of a family drawn first; None if that family gave none on the requested side."""
    family = draw.choice(words.families)
    for _ in range(_TRIES):
        puzzle = _PUZZLES[family.name](draw, words)
        if puzzle is not None and set(map(is_training, puzzle.runs)) == {training}:
            item = _worded(draw, family, puzzle, training)
            optional = set(item.target) & set(words.optional_letters)
            if len(item.distractors) == NUM_DISTRACTORS and optional <= set(item.prefix):
                return item
    return None


def _distractors(draw: Stream, puzzle: Puzzle) -> tuple[str, ...]:
    """Wrong answers of which none is a prefix of the right one or the reverse: any model finds " 1"
    as likely as " 14"."""
    wrong = []
    for text in dict.fromkeys(puzzle.wrong):
        if not text.startswith(puzzle.answer) and not puzzle.answer.startswith(text):
            wrong.append(f" {text}")
    return tuple(draw.sample(wrong, min(NUM_DISTRACTORS, len(wrong))))


def _worded(draw: Stream, family: PuzzleFamily, puzzle: Puzzle, training: bool) -> Draft:
    frames, mark = (family.training, "training-") if training else (family.frames, "")
    frame_idx = draw.below(len(frames))
    return Draft(
        prefix=frames[frame_idx].format(**puzzle.blanks),
        target=f" {puzzle.answer}",
        distractors=_distractors(draw, puzzle),
        template=f"{family.name}/{mark}{frame_idx}",
        meta=(("family", family.name),),
    )


def pool(words: LogicWords) -> tuple[str, ...]:
    """All words of series, lists and comparisons, without repetition."""
    people = chain.from_iterable(words.people)
    scales = chain.from_iterable(words.scales)
    lists = (words.weekdays, words.months, words.numbers, words.tens, words.ordinals, words.nouns)
    return tuple(dict.fromkeys(chain(*lists, people, scales)))
