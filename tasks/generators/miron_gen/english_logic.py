"""Logic in English: word lists and wordings.

Arrives: nothing.  Leaves: `WORDS`.  It deliberately does not know how a series is drawn or proved.

Any two nouns or names differ by at least two letters, so that a misspelt one is still recognisable.
"""

from miron_jax.tasks.generators.miron_gen.logic import LogicWords, Person, PuzzleFamily, Scale

_NUMBER_FRAMES = (
    "{terms},",
    "A row of numbers: {terms},",
    "Which number comes next? {terms},",
    "The board shows {terms}, and the next number on it is",
    "If the pattern holds, {terms} is followed by",
    "Tom goes on in the same way: {terms},",
    "The number that continues {terms} is",
)
_NUMBER_TRAINING = (
    "One rule makes all of these numbers: {terms},",
    "We start with {terms} and go on with",
    "Numbers on the doors: {terms},",
)

_FAMILIES = (
    *(
        PuzzleFamily(name, _NUMBER_FRAMES, _NUMBER_TRAINING)
        for name in ("arithmetic", "doubling", "squares")
    ),
    PuzzleFamily(
        "letters",
        (
            "{terms},",
            "A row of letters: {terms},",
            "Which letter comes next? {terms},",
            "Through the alphabet in equal steps: {terms},",
            "The cards read {terms}, and the next card reads",
            "The letter that continues {terms} is",
        ),
        ("Letters at equal distances: {terms},", "The labels on the drawers are {terms} and then"),
    ),
    PuzzleFamily(
        "weekdays",
        (
            "{terms},",
            "Days of the week: {terms},",
            "Which day comes next? {terms},",
            "Round the week in equal steps: {terms},",
            "The diary lists {terms}, and after that",
            "The day that continues this pattern of days, {terms}, is",
            "Going on in the same way: {terms},",
        ),
        (
            "Days named by one rule: {terms},",
            "She calls out {terms} and then",
            "Shop open on these days: {terms},",
        ),
    ),
    PuzzleFamily(
        "months",
        (
            "{terms},",
            "Months of the year: {terms},",
            "Which month comes next? {terms},",
            "Round the year in equal steps: {terms},",
            "The calendar page lists {terms}, and after that",
            "The month that continues this pattern, {terms}, is",
        ),
        (
            "Months named by one rule: {terms},",
            "He calls out {terms} and then",
            "Tests in these months: {terms},",
        ),
    ),
    PuzzleFamily(
        "repetition",
        (
            "{terms},",
            "The pictures repeat: {terms},",
            "Which picture comes next? {terms},",
            "The same pattern again and again: {terms},",
            "The wallpaper shows {terms}, and next to that",
            "The stamps take turns: {terms},",
        ),
        ("Round and round it goes: {terms},", "The cards are laid out {terms} and then"),
    ),
    PuzzleFamily(
        "ordinals",
        (
            "{terms},",
            "Places in a queue: {terms},",
            "Which place comes next? {terms},",
            "The runners are called up {terms}, and now",
            "The pattern goes on: {terms},",
            "The word that continues {terms} is",
        ),
        ("Positions picked by one rule: {terms},", "The list says {terms} and then"),
    ),
    PuzzleFamily(
        "number_words",
        (
            "{terms},",
            "Numbers in words: {terms},",
            "Which number comes next? {terms},",
            "Counting in equal steps: {terms},",
            "The children call out {terms}, and now",
            "The word that continues {terms} is",
        ),
        ("Spelt out one by one: {terms},", "The clerk reads {terms} and then"),
    ),
    PuzzleFamily(
        "roman",
        (
            "{terms},",
            "Roman numerals: {terms},",
            "Which numeral comes next? {terms},",
            "The stones are marked {terms}, and the next one is marked",
            "The Roman number that continues {terms} is",
            "Carved in equal steps: {terms},",
        ),
        ("Numerals on old clocks: {terms},", "The Roman series runs {terms} and then"),
    ),
    PuzzleFamily(
        "copy",
        (
            "{terms}. Once more: {shown},",
            "Copy the words in the same order: {terms}. Copy: {shown},",
            "The list is {terms}. The same list again: {shown},",
            "Anna says: {terms}. Ben repeats it word for word: {shown},",
            "Upper shelf: {terms}. Lower shelf, exactly alike: {shown},",
            "Original: {terms}. Duplicate: {shown},",
        ),
        (
            "Learn these words: {terms}. Now say them: {shown},",
            "Left page: {terms}. Right page, the same: {shown},",
        ),
    ),
    PuzzleFamily(
        "reverse",
        (
            "Forwards: {terms}. Backwards: {shown},",
            "The list is {terms}. Read from the end: {shown},",
            "Turn the order round: {terms}. Result: {shown},",
            "Anna says: {terms}. Ben says it in reverse order: {shown},",
            "From left to right: {terms}. From right to left: {shown},",
            "The words {terms} in reverse order: {shown},",
        ),
        (
            "On the way there: {terms}. On the way back: {shown},",
            "From top to bottom: {terms}. Bottom to top: {shown},",
        ),
    ),
    PuzzleFamily(
        "comparison",
        (
            "{facts} The {most} of them all is",
            "{facts} So the {most} one is",
            "{facts} This means that the {most} person is",
            "{facts} Among these people the {most} is",
            "{facts} It follows that the {most} of all is",
            "{facts} The one who is the {most} is called",
        ),
        ("{facts} We see that the {most} must be", "{facts} Put in a row, the {most} is"),
    ),
)

_NAMES = (
    "Alice", "Bruno", "Clara", "David", "Edith", "Felix", "Grace", "Henry", "Irene", "James",
    "Karen", "Louis",
    "Megan", "Nora", "Oscar", "Peter", "Quentin", "Rachel", "Simon", "Tessa", "Victor", "Wendy",
)  # fmt: skip

# fmt: off
WORDS = LogicWords(
    language="en",
    families=_FAMILIES,
    alphabets=("abcdefghijklmnopqrstuvwxyz",),
    weekdays=("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    months=(
        "January", "February", "March", "April", "May", "June", "July", "August", "September",
        "October", "November",
        "December",
    ),
    rivals=(
        ("January", "March", "May", "July", "August", "October", "December"),  # 31 days
        ("c", "d", "e", "f", "g", "a", "b"),  # notes
        ("a", "b", "c", "d", "f"),  # marks
    ),
    numbers=(
        "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
        "twelve", "thirteen",
        "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
    ),
    tens=("ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"),
    ordinals=(
        "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
        "tenth", "eleventh",
        "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth",
        "eighteenth", "nineteenth",
        "twentieth",
    ),
    nouns=(
        "lamp", "kite", "drum", "fork", "nest", "tiger", "apple", "spoon", "chair", "bread",
        "cloud", "glove", "horse",
        "piano", "robot", "snake", "wheel", "brush", "fence", "grape", "honey", "juice", "onion",
        "queen", "shirt", "train",
        "zebra", "melon", "river", "torch", "ocean", "bottle", "candle", "garden", "hammer",
        "island", "jacket", "ladder",
        "mirror", "pencil", "rabbit", "window", "violin", "basket", "dragon", "cactus",
    ),
    people=tuple(map(Person, _NAMES, _NAMES)),
    scales=(
        Scale("taller", "shorter", "tallest", "shortest"),
        Scale("older", "younger", "oldest", "youngest"),
        Scale("faster", "slower", "fastest", "slowest"),
        Scale("stronger", "weaker", "strongest", "weakest"),
        Scale("heavier", "lighter", "heaviest", "lightest"),
        Scale("richer", "poorer", "richest", "poorest"),
    ),
    statement="{subject} is {more} than {compared}.",
    optional_letters="",
)
# fmt: on
