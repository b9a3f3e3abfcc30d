"""The record of a candidate item, and the files of a language.

Arrives: the folder of a language, such as `en` of this folder or a user's.  Leaves: `Draft`,
`Frames`, checked values.  It deliberately does not know the generators.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from miron_jax.errors import InputError
from miron_jax.files.readers import Json, JsonObject, parse_json, shown
from miron_jax.files.regular import read_regular, read_text
from miron_jax.tasks.generators.eval_uation_gen.language import check_fields


class Draft(NamedTuple):
    prefix: str  # no space at its end
    target: str  # one leading space
    distractors: tuple[str, ...]  # formed as a target, certainly wrong
    template: str  # family and number of its wording: "plural/3"
    meta: tuple[tuple[str, str], ...]  # its ingredients, such as stem and form


Frames = Mapping[str, Sequence[str]]  # form -> wordings


def package_folder(lang: str) -> Path:
    """The files of "en" or "ru"."""
    return Path(__file__).with_name(lang)


def read_file(path: Path) -> JsonObject:
    """A JSON file of a language.  Raises InputError."""
    try:
        fields = parse_json(read_regular(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no JSON that can be read ({error!s:.160}): mend it") from None
    if not isinstance(fields, dict):
        raise InputError(f"{path}: found {shown(fields)}, expected keys with values: mend it")
    return fields


def frames_of(folder: Path) -> tuple[Frames, Frames]:
    """Morphology's wordings: of the benchmark, and of the demo model's training text (of a user's
    language none)."""
    frames = read_file(folder / "frames.json")
    benchmark = frames.get("benchmark")
    if not isinstance(benchmark, dict) or not benchmark:
        raise InputError(
            f"{folder / 'frames.json'}: benchmark is {shown(benchmark)}, expected a list of "
            "wordings for each form: mend it"
        )
    return benchmark, frames.get("training", {})


def check_frames(
    folder: Path, frames: Frames, forms: Sequence[str], slots: Collection[str]
) -> None:
    """Raises InputError for a wording that names another field or its answer, or no form."""
    path = folder / "frames.json"
    for form, wordings in frames.items():
        others = [name for name in forms if name != form]
        for i, wording in enumerate(texts_of(path, form, wordings)):
            at = f"{path}: {form} {i}"
            check_fields(wording, (*others, *slots), at)
            if not any(f"{{{name}}}" in wording for name in others):
                raise InputError(
                    f"{at} is {wording!r:.60}, expected the word in it, as "
                    f"{', '.join(map('{{{}}}'.format, others)):.90}: add it"
                )


def texts_of(path: Path, where: str, value: Json, least: int = 1) -> tuple[str, ...]:
    """Raises InputError for what is no list of `least` texts or more, none of them empty or with
    white space at an end."""
    if not isinstance(value, list) or len(value) < least:
        raise InputError(
            f"{path}: {where} is {shown(value)}, expected a list of {least} texts or more: mend it"
        )
    for i, text in enumerate(value):
        if not isinstance(text, str) or not text.strip() or text != text.strip():
            raise InputError(
                f"{path}: text {i} of {where} is {shown(text)}, expected a text that neither is "
                "empty nor has a space at an end: mend it"
            )
    return tuple(value)


def rows_of(
    path: Path, where: str, value: Json, cells: Sequence[str], least: int = 0
) -> tuple[tuple[str, ...], ...]:
    """Raises InputError for what is no list of `least` rows or more of these cells; none: of any
    number of texts."""
    if not isinstance(value, list) or len(value) < least:
        raise InputError(f"{path}: {where} is {shown(value)}, expected a list of rows: mend it")
    rows = []
    for i, row in enumerate(value):
        rows.append(texts_of(path, f"row {i} of {where}", row))
        if cells and len(row) != len(cells):
            raise InputError(
                f"{path}: row {i} of {where} is {shown(row)}, expected {', '.join(cells)}: mend it"
            )
    return tuple(rows)


def slots_of(folder: Path, words: JsonObject) -> Mapping[str, Sequence[str]]:
    """Words that wordings may name, by the name of their field."""
    slots = words.get("slots", {})
    if not isinstance(slots, dict):
        slots = {"slots": slots}
    return {name: texts_of(folder / "words.json", name, each) for name, each in slots.items()}


def stems_of(folder: Path) -> list[str]:
    """stems.txt: the stems of the benchmark, a blank line, those of the training text; a user's may
    have the first alone."""
    path = folder / "stems.txt"
    try:
        stems = read_text(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error!s:.160}): write a stem a line") from None
    for stem in stems.split() or [""]:
        if len(stem) < 2:
            raise InputError(
                f"{path}: a stem is {stem!r}, expected two letters or more: write one a line"
            )
    return re.split(r"\n\s*\n", stems.strip())


def check_forms(folder: Path, frames: Frames, forms: Collection[str]) -> None:
    """Raises InputError unless each of the forms has wordings, and no other."""
    if set(frames) != set(forms):
        unlike = min(set(frames) ^ set(forms))
        raise InputError(
            f"{folder / 'frames.json'}: the form {unlike!r} is of one side only, expected wordings "
            f"for {', '.join(forms)}: mend it"
        )
