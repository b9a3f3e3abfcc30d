"""English morphology: an invented stem in a sentence that calls for one inflected form of it.

Arrives: a source of draws; stems and frames, the benchmark's or those a demo model trains on, which share nothing.
Leaves: one candidate item.  It deliberately does not know which prefixes were used before, nor how the stems were
chosen: benchmarks/freeze_stems.py made stems_en.txt once (benchmark, blank line, training), and only that list counts.

Every stem begins with a consonant, so "a" stands before each; the frames rely on it.  None ends in a single s or z,
which would double in some forms (quizzes) and not in others.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from miron_jax.tasks.draw import Draw
from miron_jax.tasks.miron_gen.draft import Draft

FORMS = ("plural", "third", "past", "ing", "comparative", "superlative", "agent", "possessive", "adverb")

# An inflection that none of the form's frames can take.  A past after "is" would be a passive, so "ing" avoids it.
_OTHER_FORM = {
    "plural": "ing",
    "third": "ing",
    "past": "ing",
    "ing": "third",
    "comparative": "superlative",
    "superlative": "comparative",
    "agent": "ing",
    "possessive": "plural",
    "adverb": "comparative",
}

_SUFFIX = {
    "plural": "s",
    "third": "s",
    "past": "ed",
    "ing": "ing",
    "comparative": "er",
    "superlative": "est",
    "agent": "er",
    "adverb": "ly",
}

_VOWELS = "aeiou"


class Material(NamedTuple):
    """What items are made of."""

    stems: tuple[str, ...]
    frames: Mapping[str, tuple[str, ...]]  # form -> wordings; a slot is a form of the stem, "stem" or a key of SLOTS


def ending(stem: str) -> str:
    """The spelling class, which decides every allomorph: blish, glompy, droy, vope, stib, flisk."""
    if stem.endswith(("s", "x", "z", "sh", "ch")):
        return "sibilant"
    if stem[-1] == "y":
        return "vowel_y" if stem[-2] in _VOWELS else "consonant_y"
    if stem[-1] == "e":
        return "silent_e"
    one_short_vowel = stem[-2] in _VOWELS and sum(letter in _VOWELS for letter in stem) == 1
    return "doubling" if one_short_vowel and stem[-1] not in _VOWELS + "w" else "plain"


def inflect(stem: str, form: str) -> str:
    if form == "possessive":
        return stem + "'s"
    kind, suffix = ending(stem), _SUFFIX[form]
    if suffix == "s":
        return {"sibilant": stem + "es", "consonant_y": stem[:-1] + "ies"}.get(kind, stem + "s")
    if kind == "consonant_y" and suffix != "ing":
        return stem[:-1] + "i" + suffix
    if suffix == "ly":
        return stem + "ly"
    if kind == "silent_e":
        return stem[:-1] + suffix
    return stem + (stem[-1] if kind == "doubling" else "") + suffix


def misspell(stem: str, form: str) -> str:
    """The form with another class's allomorph: wuges, blishs, glompyed, vopeing, stibed, fliskked."""
    if form == "possessive":
        return inflect(stem, "plural") + "'"  # right for several owners, and every frame has one
    kind, suffix = ending(stem), _SUFFIX[form]
    if suffix == "s":
        regular = {"sibilant": stem + "s", "consonant_y": stem + "s", "vowel_y": stem[:-1] + "ies"}
        return regular.get(kind, stem + "es")
    if kind == "vowel_y" or (kind == "consonant_y" and suffix == "ing"):
        return stem[:-1] + "i" + suffix
    if suffix == "ly":
        wrong = {"consonant_y": stem + "ly", "silent_e": stem[:-1] + "ily", "doubling": stem + stem[-1] + "ly"}
        return wrong.get(kind, stem + "ily")
    if kind in ("consonant_y", "silent_e", "doubling"):
        return stem + suffix
    return (stem[:-1] if stem[-1] == stem[-2] else stem + stem[-1]) + suffix


def fits(stem: str, form: str) -> bool:
    """Whether spelling has one answer: boss' stands beside boss's, and daily beside coyly."""
    return (form, ending(stem)) not in {("possessive", "sibilant"), ("adverb", "vowel_y")}


SLOTS = {
    "girl": ("Anna", "Clara", "Emma", "Grace", "Helen", "Julia", "Laura", "Maria", "Nina", "Sarah"),
    "boy": ("Adam", "Ben", "David", "Frank", "Henry", "Jack", "Martin", "Oscar", "Paul", "Simon"),
    "count": ("three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
}

# Up to the gap a frame settles the form, and the bare stem would be wrong there whatever came next: hence "much" and not
# "a bit" before comparatives, "so" or "very" before adverbs, a single owner of another name before possessives.
FRAMES: dict[str, tuple[str, ...]] = {
    "plural": (
        "Here is one {stem}. Over there I can count {count}",
        "{girl} found a {stem} this morning. By noon she had found {count}",
        "First a single {stem} sat on the fence. Soon the whole fence was full of",
        "We used to own just one {stem}. Today we own {count}",
        "A {stem} costs one coin, so with {count} coins you can buy {count}",
        "{boy} drew a {stem}, then another, until the page was covered with dozens of",
        "Nobody expected to meet even one {stem}, yet the valley was home to hundreds of",
        "The red {stem} and the green {stem} are sold together, as a pair of",
    ),
    "third": (
        "I {stem} every morning, and every morning my neighbour {girl}",
        "You {stem}, we {stem}, and she often",
        "Most dogs {stem} at night. This dog never",
        "It is a habit of {boy}'s to {stem}. As soon as he wakes up, he",
        "Few people {stem} well, but everyone agrees that {girl}",
        "Machines like these {stem} all by themselves. The big one in the corner always",
        "Birds {stem} when it rains. Just look at how this bird",
        "Do not ask me why I {stem}. Ask {boy} why he",
    ),
    "past": (
        "Every day they {stem}. A week ago they also",
        "We will {stem} tomorrow, and last Sunday we",
        "{girl} loves to {stem}. Yesterday evening she",
        "Nobody may {stem} here any more. Fifty years ago everyone",
        "They had promised to {stem}, and last night they finally",
        "{boy} did not want to {stem}, but after a while he",
        "There once was a king who liked to {stem}. One day he left his throne and",
        "I can still {stem} today. When I was a child, I often",
    ),
    "ing": (
        "They {stem} a lot. At this very moment they are",
        "{boy} started to {stem} an hour ago, and he still has not stopped",
        "{girl} can {stem} for hours. All her friends know that she is fond of",
        "You must not {stem} in this room! Please quit",
        "Whoever hopes to {stem} well will spend years",
        "We heard {boy} {stem} yesterday, and at the moment he is again",
        "It is so hard to {stem} in the dark that they gave up",
        "I {stem} because it is good for me. My brother does it too, but he hardly enjoys",
    ),
    "comparative": (
        "My soup is {stem}, but yours is much",
        "The first hill was {stem}. The second was far",
        "{boy} was {stem} last year, and since then he has grown even",
        "The new road is {stem}, yet the old road was a lot",
        "How {stem} this cellar is! No other cellar could be any",
        "At first the cloth is only {stem}. The more you wash it, the",
        "Stone is {stem}, but iron is many times",
        "By day {girl}'s room is {stem}, and by night it is so much",
    ),
    "superlative": (
        "Many hills are {stem}, but the hill behind our house is by far the",
        "All {count} sisters are {stem}, and of them all {girl} is the",
        "No stone in the whole world is as {stem} as this one. It is simply the",
        "{boy} was shown {count} {stem} hats. He bought the very",
        "The first was {stem}, the second was {comparative}, and the third was the",
        "Everyone in the class is {stem}, and {boy} beats them all. He is the",
        "A winter so {stem} is rare. In the history of the town it was one of the",
        "There are {count} {stem} lakes in this land, and the last one is easily the",
    ),
    "agent": (
        "Painters paint, singers sing, and a man whose work is to {stem} is a",
        "A teacher teaches. A runner runs. So anybody who likes to {stem} must be a",
        "{boy} learned to bake and {girl} learned to {stem}. He is now a baker, and she is now a",
        "People who dance are dancers, and one who can {stem} is called a",
        "To plough a field you hire a farmer. To {stem} you hire a",
        "{boy} does not drive, he has to {stem} all day. So by trade he is not a driver but a",
        "Who hunts here? The hunter. Who reads here? The reader. And who has to {stem} here? The",
        "We want a cleaner to clean for us, a helper to help and, because somebody must {stem}, a",
    ),
    "possessive": (
        "There is just one {stem} in the yard. Whose nest is this? It can only be the",
        "Those ears are not the cat's. They belong to the {stem}, which means that they are the",
        "The dog's bowl is red. Our {stem} has a green bowl, so the green one is our",
        "A fox and a {stem} have left two tracks in the snow. One track is the fox's, and the other is the",
        "{girl} keeps a goat and a {stem}. The left door is the goat's, and the right door is the",
        "A {stem} lives by the pond. {boy} found an egg that was neither the duck's nor the hen's but the",
        "This crown was once the king's. He lost it to a {stem}, and ever since it has been the",
        "The sheep is white and the {stem} is brown. The white wool is the sheep's, the brown wool is the",
    ),
    "adverb": (
        "{girl} has a {stem} voice. She sings very",
        "His reply was {stem}. Nobody else would have replied so",
        "{boy} is a {stem} driver. Even on ice he drives very",
        "A quick man walks quickly, and a {stem} man walks just as",
        "{girl} is {stem} with all her guests. Yesterday, too, she greeted us so",
        "The work was done in a {stem} way. It could not have been done more",
        "{boy} likes to play in a {stem} manner, but at school nobody is allowed to play so",
        "The storm was {stem}. Never before had the wind blown so",
    ),
}

TRAINING_FRAMES: dict[str, tuple[str, ...]] = {
    "plural": (
        "Mother bought a {stem}. Then she bought another, and now she has two",
        "Is there only one {stem} in this box? No, there are several",
        "{boy} saw a {stem} by the river and told me that there are a lot of",
    ),
    "third": (
        "They {stem} after lunch. She does as they do: after lunch she",
        "My parents {stem}, my sisters {stem}, and even my old uncle {boy}",
        "You can watch the cats {stem}. Our cat",
    ),
    "past": (
        "Today we {stem}. Two days ago we",
        "{girl} was asked to {stem}, so she went outside and",
        "Sailors no longer {stem}. In the old days all sailors",
    ),
    "ing": (
        "Let us {stem} together! I am already",
        "To {stem} is easy for {girl}. She never gets tired of",
        "The boys {stem} in the garden. Do you see them? They have been",
    ),
    "comparative": (
        "{girl} is {stem}, but her cousin is even",
        "Your bag is {stem}. Mine is not, I need something much",
        "In March the days are {stem}. In June they are a lot",
    ),
    "superlative": (
        "Of these {count} {stem} boxes, the one in the middle is the",
        "All his horses are {stem}, and the black one is surely the",
        "This is a {stem} song. Among the songs of this year it is by far the",
    ),
    "agent": (
        "She who writes is a writer, and she who has to {stem} is a",
        "{boy} wants to {stem} for a living, just as a builder builds. He wants to become a",
        "Farmers farm, and those teams that {stem} need at least one good",
    ),
    "possessive": (
        "{boy} met a {stem}. That bag is not {boy}'s, it is the",
        "The horse has a stable and so does the {stem}. This stable is the horse's and that stable is the",
        "Only one {stem} passed here. These tracks are not the bear's, they are surely the",
    ),
    "adverb": (
        "The girl is {stem}. She speaks very",
        "A brave child acts bravely. A {stem} child acts as",
        "Their music is {stem}. I did not know that they could play so",
    ),
}


def _stem_lists() -> tuple[tuple[str, ...], tuple[str, ...]]:
    text = Path(__file__).with_name("stems_en.txt").read_text(encoding="utf-8")
    benchmark, training = (tuple(part.split()) for part in text.split("\n\n"))
    return benchmark, training


BENCHMARK_STEMS, TRAINING_STEMS = _stem_lists()
BENCHMARK = Material(BENCHMARK_STEMS, FRAMES)
TRAINING = Material(TRAINING_STEMS, TRAINING_FRAMES)


def draft(draw: Draw, material: Material) -> Draft:
    """One candidate: the form is drawn first and uniformly, then a wording, then a stem that has the form."""
    form = draw.choice(FORMS)
    frame_idx = draw.below(len(material.frames[form]))
    stem = draw.choice([stem for stem in material.stems if fits(stem, form)])
    words = {slot: draw.choice(options) for slot, options in SLOTS.items()}
    words |= {name: inflect(stem, name) for name in FORMS}
    wrong = (stem, misspell(stem, form), inflect(stem, _OTHER_FORM[form]))
    return Draft(
        prefix=material.frames[form][frame_idx].format(stem=stem, **words),
        target=" " + inflect(stem, form),
        distractors=tuple(" " + word for word in wrong),
        template=f"{form}/{frame_idx}",
        meta=(("stem", stem), ("form", form), ("ending", ending(stem))),
    )
