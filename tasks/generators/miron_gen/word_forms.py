"""Morphology of a user's language: words of a table in sentences that call for one of their forms.

Arrives: a draw; frames.json, and a table with a column for each form.  Leaves: drafts.  It
deliberately knows no grammar: the table holds every form.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.readers import JsonObject
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.eval_uation_gen.language import Language
from miron_jax.tasks.generators.miron_gen.draft import (
    Draft,
    Frames,
    check_frames,
    frames_of,
    slots_of,
)

NUM_DISTRACTORS = 3
WORDS = "words.csv"


class WordForms(NamedTuple):
    words: Sequence[Mapping[str, str]]  # "word" and each form -> text
    frames: Frames  # form -> wordings; a slot is "word", a form or a key of `slots`
    slots: Mapping[str, Sequence[str]]


def read_material(folder: Path, words_file: Path | None, fields: JsonObject) -> WordForms:
    """`words_file`: in place of words.csv; `fields`: of words.json.  Raises InputError."""
    language = Language(folder, words_file)
    frames, _ = frames_of(folder)
    slots = slots_of(folder, fields)
    check_frames(folder, frames, ("word", *frames), slots)
    words = []
    for line, row in language.table(WORDS, ("word", *frames)):
        for form in ("word", *frames):
            if not row[form].strip():
                raise InputError(
                    f"{language.file(WORDS)}: line {line}: {row['word']!r} has no form {form!r}: "
                    "add it to the line"
                )
        words.append({name: row[name].strip() for name in ("word", *frames)})
    return WordForms(words, frames, slots)


def draft(draw: Stream, material: WordForms) -> Draft | None:
    """One candidate: the form is drawn first and uniformly, then a wording, then a word; None if
    all its other forms read alike."""
    form = draw.choice([*material.frames])
    frame_idx = draw.below(len(material.frames[form]))
    word = draw.choice(material.words)
    slots = {slot: draw.choice(options) for slot, options in material.slots.items()}
    wrong = [text for text in dict.fromkeys(word.values()) if text != word[form]]
    if not wrong:
        return None
    wrong = draw.sample(wrong, min(NUM_DISTRACTORS, len(wrong)))
    return Draft(
        prefix=material.frames[form][frame_idx].format_map({**slots, **word}),
        target=f" {word[form]}",
        distractors=tuple(map(" {}".format, wrong)),
        template=f"{form}/{frame_idx}",
        meta=(("stem", word["word"]), ("form", form)),
    )
