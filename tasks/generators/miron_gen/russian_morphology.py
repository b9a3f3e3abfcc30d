"""Russian morphology: an invented word in a sentence that calls for one case, gender or person of
it.

Arrives: a source of draws; lemmas and frames, of the benchmark or of the demo model's training
text, which are disjoint.  Leaves: one candidate item.  It deliberately does not know which prefixes
are in use, nor how the lemmas were chosen: tools/freeze_stems.py wrote ru/stems.txt once
(benchmark, blank line, training).

The tables are right for that list only: no lemma has a soft or hushing end or a fleeting vowel, or
looks like a surname. The accusative of masculine nouns, which depends on animacy, never occurs.
"""

from collections import defaultdict
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

_FOLDER = package_folder("ru")
_WORDS = read_file(_FOLDER / "words.json")
SLOTS = slots_of(_FOLDER, _WORDS)


class Endings(NamedTuple):
    """What follows the root; `attach` spells "ы" and "и"."""

    right: str
    # the lemma's, then endings of other forms or declensions, or of no Russian word
    wrong: Sequence[str]


class RussianMaterial(NamedTuple):
    """Lemmas and wordings of one side, benchmark or training."""

    stems: Mapping[str, Sequence[str]]  # family -> lemmas
    frames: Frames  # form -> wordings; a slot is "lemma" or a key of `slots`
    slots: Mapping[str, Sequence[str]] = SLOTS


_LEMMA_ENDING = {"verb": "ать", "adjective": "ый", "feminine": "а", "masculine": ""}

# No wrong ending may be a second right answer.  Excluded: -у for a masculine genitive or
# prepositional (чаю, в саду), -а for its nominative plural (дома), the same case in the other
# number, and -у for -аю (ору, жду).
_ENDINGS: dict[str, dict[str, tuple[str, list[str]]]] = _WORDS["endings"]  # family -> form -> both
FORMS = tuple(f"{family}_{form}" for family, endings in _ENDINGS.items() for form in endings)


def family(lemma: str) -> str:
    """The family that a lemma's ending shows; unambiguous for the lemmas of the list."""
    return next(name for name, ending in _LEMMA_ENDING.items() if lemma.endswith(ending))


def root(lemma: str) -> str:
    return lemma.removesuffix(_LEMMA_ENDING[family(lemma)])


def attach(root: str, ending: str) -> str:
    """Root and ending: "ы" is spelt и after г к х; the wrong ending "и" becomes whichever of both
    is a misspelling."""
    if root.endswith(("г", "к", "х")):
        ending = {"ы": "и", "и": "ы"}.get(ending, ending)
    return root + ending


def inflect(lemma: str, form: str) -> str:
    return attach(root(lemma), _endings(lemma, form).right)


def misinflect(lemma: str, form: str) -> tuple[str, ...]:
    return tuple(attach(root(lemma), ending) for ending in _endings(lemma, form).wrong)


def _endings(lemma: str, form: str) -> Endings:
    kind = family(lemma)
    return Endings(*_ENDINGS[kind][form.removeprefix(f"{kind}_")])


# A preposition, numeral or verb determines the case, a pronoun or numeral the number and gender;
# the lemma appears as a subject.  In no frame would the lemma itself be right.
FRAMES, TRAINING_FRAMES = frames_of(_FOLDER)


def _by_family(lemmas: str) -> Mapping[str, Sequence[str]]:
    by_family = defaultdict(list)
    for lemma in lemmas.split():
        by_family[family(lemma)].append(lemma)
    return by_family


BENCHMARK_STEMS, TRAINING_STEMS = map(_by_family, stems_of(_FOLDER))
BENCHMARK = RussianMaterial(BENCHMARK_STEMS, FRAMES)
TRAINING = RussianMaterial(TRAINING_STEMS, TRAINING_FRAMES)


def read_material(folder: Path) -> RussianMaterial:
    """Lemmas, wordings and slots of a folder of Russian.  Raises InputError."""
    slots = slots_of(folder, read_file(folder / "words.json"))
    frames, _ = frames_of(folder)
    check_forms(folder, frames, FORMS)
    check_frames(folder, frames, ("lemma",), slots)
    lemmas = _by_family(stems_of(folder)[0])
    if lemmas.keys() != _LEMMA_ENDING.keys():
        raise InputError(
            f"{folder / 'stems.txt'}: it has {', '.join(lemmas)} lemmas, expected some of each of "
            f"{', '.join(_LEMMA_ENDING)}: add them"
        )
    return RussianMaterial(lemmas, frames, slots)


def draft(draw: Stream, material: RussianMaterial = BENCHMARK) -> Draft:
    """One candidate: the form is drawn first and uniformly, then a wording, then a lemma of the
    form's family."""
    form = draw.choice(FORMS)
    frame_idx = draw.below(len(material.frames[form]))
    lemma = draw.choice(material.stems[form.partition("_")[0]])
    words = {slot: draw.choice(options) for slot, options in material.slots.items()}
    return Draft(
        prefix=material.frames[form][frame_idx].format(lemma=lemma, **words),
        target=" " + inflect(lemma, form),
        distractors=tuple(" " + word for word in misinflect(lemma, form)),
        template=f"{form}/{frame_idx}",
        meta=(("stem", lemma), ("form", form), ("family", family(lemma))),
    )
