"""People's verdicts on the gaps of a user's stories, and their corrections of the stories.

Arrives: what the generator of gaps has made, tables that a page exported.  Leaves: sheets for such
a page; the gaps that people keep, the stories as they corrected them.  It deliberately makes no
gap.  The reasons are those of the boxes that Eval-UA-tion's annotators had (Hamotskyi's thesis,
4.3: one gap or story may have several).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError, some_of
from miron_jax.files.readers import JsonObject
from miron_jax.humans.annotations import Columns
from miron_jax.humans.sheets import Sheet, SheetRow, Shown
from miron_jax.humans.tables import read_table
from miron_jax.tasks.generators.eval_uation_gen.gaps import GAP, UserStory, story_text

GAP_REASONS = {
    "unknown": "The story does not say which option is right",
    "several": "Several options are right",
    "none": "No option is right",
    "repeated": "Two options name the same thing",
    "story": "The story has errors, or no logic",
    "word": "An option is no word of the language",
    "form": "Grammar gives the answer away: an option's case, number or gender",
    "other": "Another reason, in the note",
}
STORY_REASONS = {
    "continuity": "It contradicts itself, and would have to be written anew",
    "gender": "Many errors of gender",
    "name": "A character's name is an adjective",
    "short": "Too short, or fewer than three characters",
    "other": "Another reason, in the note",
}
VERDICT = "OUTPUT:verdict"
REASONS = "OUTPUT:reasons"
TEXT = "OUTPUT:text"
USABLE = "usable"
UNUSABLE = "unusable"
_GAP = ("INPUT:row", "INPUT:story", "INPUT:gap", "INPUT:options", "INPUT:right")
_STORY = ("INPUT:story", "INPUT:before")


class _Verdict(NamedTuple):
    at: str  # for messages
    worker: str
    is_usable: bool
    reasons: tuple[str, ...]
    text: str  # of a correction


def sheet_of_gaps(rows: Sequence[JsonObject], title: str) -> Sheet:
    """For verdicts on rows as `gap_rows` makes them."""
    asked = list[SheetRow]()
    for row in rows:
        cells = _cells_of(row)
        shown = (Shown("Story", row["context"]), Shown("Question", row["question"]))
        asked.append(SheetRow(cells, cells[2], shown, tuple(row["options"]), row["answer"]))
    return Sheet("verdicts", title, _GAP, VERDICT, asked, GAP_REASONS, GAP)


def sheet_of_stories(stories: Sequence[UserStory], title: str) -> Sheet:
    """For corrections of stories."""
    asked = list[SheetRow]()
    for story in stories:
        cells = (story.name, story.text)
        asked.append(SheetRow(cells, f"{story.name}: {story.text}", (), text=story.text))
    return Sheet("corrections", title, _STORY, VERDICT, asked, STORY_REASONS)


def kept_gaps(
    paths: Sequence[Path], rows: Sequence[JsonObject], say: Callable[[str], None]
) -> list[JsonObject]:
    """The rows that more people call usable than unusable.  Says how many are left out, and why.

    Raises InputError for verdicts on other gaps, an annotator's second one on a gap, and where
    nothing is left.
    """
    by_number = {cells[0]: cells for cells in map(_cells_of, rows)}
    verdicts = _verdicts("--verdicts", paths, _GAP, by_number, GAP_REASONS, "gap")
    kept = list[JsonObject]()
    reasons = Counter[str]()
    num_open = 0
    for row in rows:
        of_row = verdicts.get(str(row["md_global_number"]), [])
        num_usable = sum(verdict.is_usable for verdict in of_row)
        if not of_row:
            num_open += 1
        elif 2 * num_usable > len(of_row):
            kept.append(row)
        else:
            reasons.update({reason for verdict in of_row for reason in verdict.reasons})
    _say_counts("--verdicts", "gaps", len(rows), len(kept), num_open, reasons, say)
    return kept


def corrected(
    paths: Sequence[Path], stories: Sequence[UserStory], say: Callable[[str], None]
) -> list[UserStory]:
    """The stories that people call usable, with the text that they gave them.  Says how many are
    left out, and why.

    Raises InputError for corrections of other stories, a second one of a story, a text of which no
    gaps can be made, and where nothing is left.
    """
    by_name = {story.name: (story.name, story.text) for story in stories}
    verdicts = _verdicts("--corrections", paths, _STORY, by_name, STORY_REASONS, "story")
    kept = list[UserStory]()
    reasons = Counter[str]()
    num_open = 0
    for story in stories:
        of_story = verdicts.get(story.name, [])
        if len(of_story) > 1:
            raise InputError(
                f"--corrections: {of_story[0].at} and {of_story[1].at} are of one story, expected "
                "one text of it: leave one line out"
            )
        if not of_story:
            num_open += 1
            continue
        [first] = of_story
        if first.is_usable:
            try:
                kept.append(story._replace(text=story_text(first.text)))
            except ValueError as error:
                raise InputError(
                    f"--corrections: {first.at}: {TEXT}: {error}: mend it on the page"
                ) from None
        else:
            reasons.update(first.reasons)
    _say_counts("--corrections", "stories", len(stories), len(kept), num_open, reasons, say)
    return kept


def _cells_of(row: JsonObject) -> tuple[str, ...]:
    options = " | ".join(row["options"])
    number = str(row["md_global_number"])
    return number, str(row["storyId"]), row["md_gap_sentence"], options, row["answer"]


def _verdicts(
    flag: str,
    paths: Sequence[Path],
    inputs: tuple[str, ...],
    known: Mapping[str, tuple[str, ...]],
    reasons: Collection[str],
    thing: str,
) -> dict[str, list[_Verdict]]:
    """First input -> the verdicts of different annotators, in file order."""
    verdicts = dict[str, list[_Verdict]]()
    for path in paths:
        for line in _lines(flag, path, inputs):
            name, *others = (line[column] for column in inputs)
            worker = line[Columns().worker].strip()
            at = f"{path}, annotator {worker:.40}, {thing} {name:.20}"
            if name not in known:
                raise InputError(
                    f"{flag}: {at}: there is no such {thing}, expected one of "
                    f"{some_of([*known], 4)}: give the verdicts of these stories"
                )
            for column, value, expected in zip(inputs[1:], others, known[name][1:], strict=True):
                if value != expected:
                    raise InputError(
                        f"{flag}: {at}: {column} is {value!r:.60}, expected {expected!r:.60}, as "
                        "the stories have changed since the page was made: make it again"
                    )
            of_name = verdicts.setdefault(name, [])
            if worker in [verdict.worker for verdict in of_name]:
                raise InputError(
                    f"{flag}: {at}: the second verdict on it, expected one of an annotator: leave "
                    "one of the lines out"
                )
            named = tuple(filter(None, line[REASONS].split(";")))
            if line[VERDICT] not in (USABLE, UNUSABLE) or set(named) - set(reasons):
                raise InputError(
                    f"{flag}: {at}: {VERDICT} is {line[VERDICT]!r:.40} and {REASONS} "
                    f"{line[REASONS]!r:.40}, expected {USABLE}, or {UNUSABLE} with some of "
                    f"{';'.join(reasons)}: mend the line"
                )
            is_usable = line[VERDICT] == USABLE
            of_name.append(_Verdict(at, worker, is_usable, named, line.get(TEXT, "")))
    return verdicts


def _lines(flag: str, path: Path, inputs: tuple[str, ...]) -> Iterator[dict[str, str]]:
    try:
        header, lines = read_table(path)
    except OSError as error:
        raise InputError(
            f"{flag}={path} cannot be read ({error.strerror}): name a table that the page exported"
        ) from None
    needed = [*inputs, VERDICT, REASONS, Columns().worker]
    if inputs == _STORY:
        needed.append(TEXT)
    if missing := [name for name in needed if name not in header]:
        raise InputError(
            f"{flag}={path} has no column {missing[0]}, it has {', '.join(header)}: name a table "
            f"that the page for {flag[2:]} exported"
        )
    yield from lines


def _say_counts(
    flag: str,
    things: str,
    num_all: int,
    num_kept: int,
    num_open: int,
    reasons: Mapping[str, int],
    say: Callable[[str], None],
) -> None:
    counts = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    line = (
        f"{flag}: of {num_all} {things} {num_kept} are usable, {num_all - num_kept - num_open} "
        f"unusable ({counts or 'without a reason'}), and {num_open} without a verdict are left out"
    )
    if not num_kept:
        raise InputError(f"{line}: nothing is left to write")
    say(line)
