"""English morphology: an invented stem in a sentence that calls for one inflected form of it.

Arrives: a source of draws; stems and frames, of the benchmark or of the demo model's training text,
which are disjoint.  Leaves: one candidate item.  It deliberately does not know which prefixes are
in use, nor how the stems were chosen: tools/freeze_stems.py wrote en/stems.txt once
(benchmark, blank line, training).

Every stem begins with a consonant, so frames write "a" before it.  None ends in a single s or z,
which would double in some forms (quizzes) and not in others.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.miron_gen.draft import (
    Draft,
    Frames,
    check_forms,
    check_frames,
    frames_of,
    package_folder,
    read_file,
    slots_of,
    stems_of,
)

_FOLDER = package_folder("en")
_WORDS = read_file(_FOLDER / "words.json")
# form -> its suffix, and an inflection that fits no frame of the form; "ing" does not use the past,
# which is a passive after "is"
_FORMS: dict[str, tuple[str, str]] = _WORDS["forms"]
FORMS = tuple(_FORMS)
SLOTS = slots_of(_FOLDER, _WORDS)
_VOWELS = "aeiou"


class EnglishMaterial(NamedTuple):
    """Stems and wordings of one side, benchmark or training."""

    stems: tuple[str, ...]
    frames: Frames  # form -> wordings; a slot is a form of the stem, "stem" or a key of `slots`
    slots: Mapping[str, Sequence[str]] = SLOTS


def ending(stem: str) -> str:
    """The spelling class of a stem, which decides every allomorph: blish, glompy, droy, vope, stib,
    flisk."""
    if stem.endswith(("s", "x", "z", "sh", "ch")):
        return "sibilant"
    if stem[-1] == "y":
        return "vowel_y" if stem[-2] in _VOWELS else "consonant_y"
    if stem[-1] == "e":
        return "silent_e"
    one_short_vowel = stem[-2] in _VOWELS and sum(map(stem.count, _VOWELS)) == 1
    if one_short_vowel and stem[-1] not in _VOWELS + "w":
        return "doubling"
    return "plain"


def inflect(stem: str, form: str) -> str:
    if form == "possessive":
        return stem + "'s"
    kind = ending(stem)
    suffix = _FORMS[form][0]
    if suffix == "s":
        return {"sibilant": stem + "es", "consonant_y": stem[:-1] + "ies"}.get(kind, stem + "s")
    if kind == "consonant_y" and suffix != "ing":
        return stem[:-1] + "i" + suffix
    if suffix == "ly":
        return stem + "ly"
    if kind == "silent_e":
        return stem[:-1] + suffix
    if kind == "doubling":
        return stem + stem[-1] + suffix
    return stem + suffix


def misspell(stem: str, form: str) -> str:
    """The form with another class's allomorph: wuges, blishs, glompyed, vopeing, stibed,
    fliskked."""
    if form == "possessive":
        # right for several owners, but every frame has one owner
        return inflect(stem, "plural") + "'"
    kind = ending(stem)
    suffix = _FORMS[form][0]
    if suffix == "s":
        regular = {"sibilant": stem + "s", "consonant_y": stem + "s", "vowel_y": stem[:-1] + "ies"}
        return regular.get(kind, stem + "es")
    if kind == "vowel_y" or (kind == "consonant_y" and suffix == "ing"):
        return stem[:-1] + "i" + suffix
    if suffix == "ly":
        wrong = {
            "consonant_y": stem + "ly",
            "silent_e": stem[:-1] + "ily",
            "doubling": stem + stem[-1] + "ly",
        }
        return wrong.get(kind, stem + "ily")
    if kind in ("consonant_y", "silent_e", "doubling"):
        return stem + suffix
    if stem[-1] == stem[-2]:
        return stem[:-1] + suffix
    return stem + stem[-1] + suffix


def fits(stem: str, form: str) -> bool:
    """Whether the form has one spelling; boss' and boss's, daily and coyly are both in use."""
    return (form, ending(stem)) not in {("possessive", "sibilant"), ("adverb", "vowel_y")}


# A frame determines the form, and excludes the bare stem whatever follows: hence "much" and not "a
# bit" before comparatives, "so" or "very" before adverbs, and a single owner of another name before
# possessives.
FRAMES, TRAINING_FRAMES = frames_of(_FOLDER)
BENCHMARK_STEMS, TRAINING_STEMS = map(str.split, stems_of(_FOLDER))
BENCHMARK = EnglishMaterial(tuple(BENCHMARK_STEMS), FRAMES)
TRAINING = EnglishMaterial(tuple(TRAINING_STEMS), TRAINING_FRAMES)


def read_material(folder: Path) -> EnglishMaterial:
    """Stems, wordings and slots of a folder of English.  Raises InputError."""
    slots = slots_of(folder, read_file(folder / "words.json"))
    frames, _ = frames_of(folder)
    check_forms(folder, frames, FORMS)
    check_frames(folder, frames, ("stem", *FORMS), slots)
    stems = tuple(stems_of(folder)[0].split())
    for form in FORMS:
        if not any(fits(stem, form) for stem in stems):
            raise InputError(f"{folder / 'stems.txt'}: no stem has the form {form}: add some")
    return EnglishMaterial(stems, frames, slots)


def draft(draw: Stream, material: EnglishMaterial = BENCHMARK) -> Draft:
    """One candidate: the form is drawn first and uniformly, then a wording, then a stem that has
    the form."""
    form = draw.choice(FORMS)
    frame_idx = draw.below(len(material.frames[form]))
    stem = draw.choice([stem for stem in material.stems if fits(stem, form)])
    words = {slot: draw.choice(options) for slot, options in material.slots.items()}
    words |= {name: inflect(stem, name) for name in FORMS}
    wrong = (stem, misspell(stem, form), inflect(stem, _FORMS[form][1]))
    return Draft(
        prefix=material.frames[form][frame_idx].format(stem=stem, **words),
        target=" " + inflect(stem, form),
        distractors=tuple(" " + word for word in wrong),
        template=f"{form}/{frame_idx}",
        meta=(("stem", stem), ("form", form), ("ending", ending(stem))),
    )
