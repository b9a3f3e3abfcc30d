"""The table of Eval-UA-tion's nine data sets: files, numbers of rows, published scores.

Arrives: nothing.  Leaves: `DATA_SETS`.  It deliberately does not know prompts.

Every evaluation split is called `train`; few-shot examples come from a split called `fewshot`,
which UP-Titles lacks.  Published chance of lmes_low and lmes_wis is 1 / (mean number of answers),
repeated ones counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from miron_jax.definitions.records import DataFile

QuestionShape = Literal["letters", "words", "odd_word", "yes_no", "two_words", "story", "article"]
CITATION = (
    "Eval-UA-tion 1.0, Hamotskyi, Levbarg and Hänig 2024, UNLP (data CC BY-NC 4.0), in prompts of "
    "our own"
)
_MODELS = (
    "gpt-4-1106-preview",
    "gpt-3.5-turbo",
    "Mistral-7B-Instruct-v0.2",
    "Ukrainian Mistral SLERP",
    "Sherlock 7B",
)


@dataclass(frozen=True, slots=True)
class UationSet:
    name: str  # "lmes_low"
    hub: str  # its repository, which also names its folder
    shape: QuestionShape  # the kind of question
    file: str  # below its folder
    shots_file: str | None  # None: few-shot examples come from the test rows
    rows: int | None  # published; None: the sources disagree
    # published chance; lmes_low, lmes_wis: 1 / (mean number of choices); None: not published
    random: float | None
    clusters: str  # what dependent examples share
    reference: Mapping[str, float] = field(default_factory=dict)
    masked: bool = False  # article: the digits of the text are masked too
    shots_blob: str | None = None  # git blob of the file of few-shot examples; None: not published

    @property
    def folder(self) -> str:
        return self.hub.rpartition("/")[2]

    @property
    def data_file(self) -> DataFile:
        return DataFile(
            f"{self.folder}/{self.file}", self.rows, None, _places(self.folder, self.file)
        )

    def shots_places(self) -> tuple[str, ...]:
        """Paths at which the split of few-shot examples may be."""
        assert self.shots_file is not None
        return (f"{self.folder}/{self.shots_file}", *_places(self.folder, self.shots_file))


def _places(folder: str, file: str) -> tuple[str, ...]:
    """Other paths of a file: the published trees keep files at the top, in data/, or in one folder
    for each split."""
    name = file.rpartition("/")[2]
    split = "fewshot" if "fewshot" in file.lower() else "train"
    spelled = {name, name.replace("-fewshot", "_fewshot"), name.replace("_fewshot", "-fewshot")}
    bare = name.replace("-fewshot", "").replace("_fewshot", "")
    # A name without "fewshot" means the evaluated split, except in the folder of the other one.
    tops = ["", "data/", f"data/{split}/"]
    if split == "fewshot" and name == bare:
        tops = tops[2:]
    places = [
        *(f"{folder}/{top}{spelling}" for spelling in sorted(spelled) for top in tops),
        f"{folder}/data/{split}/{bare}",
        f"{folder}/{split}.jsonl",
    ]
    others = dict.fromkeys(places)
    others.pop(f"{folder}/{file}", None)
    return tuple(others)


def _rows(*values: float) -> dict[str, float]:
    return dict(zip(_MODELS, values, strict=True))


# fmt: off
DATA_SETS: tuple[UationSet, ...] = (
    UationSet(
        "ua_cbt", "shamotskyi/ua_cbt", "story", "data/train/ua_cbt_v0.2-clean.json",
        "data/fewshot_clean_v0.2.json",
        1061, 1 / 6, "story", _rows(0.97, 0.61, 0.46, 0.45, 0.55),
    ),
    UationSet(
        "lmes_low", "shamotskyi/lmes_LOW", "letters", "data/train/LOWTask.jsonl",
        "data/fewshot/LOWTask.jsonl",
        2000, 0.0943, "word", _rows(0.67, 0.68, 0.34, 0.35, 0.37),
    ),
    UationSet(
        "lmes_wis", "shamotskyi/lmes_WIS", "words", "data/WISTask.jsonl",
        "data/WISTask_fewshot.jsonl",
        2000, 0.0469, "sentence", _rows(0.39, 0.34, 0.19, 0.19, 0.19),
    ),
    UationSet(
        "lmes_catsbin", "shamotskyi/lmes_catsbin", "yes_no", "DoAllWordsBelongToCatTask.jsonl",
        "DoAllWordsBelongToCatTask-fewshot.jsonl", 2000, 1 / 2, "categories and words",
        _rows(0.86, 0.68, 0.59, 0.66, 0.69),
    ),
    UationSet(
        "lmes_catsmc", "shamotskyi/lmes_catsmc", "odd_word", "WhichWordWrongCatTask.jsonl",
        "WhichWordWrongCatTask-fewshot.jsonl", 1000, 1 / 5, "categories and words",
        _rows(0.93, 0.91, 0.71, 0.66, 0.76),
    ),
    UationSet(
        "lmes_wordalpha", "shamotskyi/lmes_wordalpha", "two_words", "WordsAlphabetOrder.jsonl",
        "WordsAlphabetOrder_fewshot.jsonl", 2000, 1 / 2, "pair",
        _rows(0.85, 0.78, 0.48, 0.49, 0.50),
    ),
    UationSet(
        "lmes_wordlength", "shamotskyi/lmes_wordlength", "two_words", "WordLengthComparison.jsonl",
        "WordLengthComparison_fewshot.jsonl", 2000, 1 / 2, "pair",
        _rows(0.95, 0.89, 0.71, 0.70, 0.75),
    ),
    UationSet(
        "up_masked", "shamotskyi/up_titles_masked", "article", "up_titles_35000-5000-ukr.json",
        None,
        5000, 1 / 10, "article", masked=True,
    ),
    # The published task shows the unmasked article with masked titles; most likely the published
    # scores are of that.
    UationSet(
        "up_masked_refcompat", "shamotskyi/up_titles_masked", "article",
        "up_titles_35000-5000-ukr.json", None,
        5000, 1 / 10, "article", _rows(0.96, 0.77, 0.75, 0.79, 0.88),
    ),
    UationSet(
        "up_unmasked", "anilev6/up_titles_unmasked", "article", "5000_ukr_pravda.json", None,
        None, 1 / 10, "article", _rows(0.97, 0.86, 0.86, 0.87, 0.92),
    ),
)
# fmt: on
