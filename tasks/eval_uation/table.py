"""The table of Eval-UA-tion's nine data sets: files, numbers of rows, published scores.

Arrives: table.jsonl.  Leaves: `DATA_SETS`.  It deliberately does not know prompts.

Every evaluation split is called `train`; few-shot examples come from a split called `fewshot`,
which UP-Titles lacks.  Published chance of lmes_low and lmes_wis is 1 / (mean number of answers),
repeated ones counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from miron_jax.definitions.records import DataFile
from miron_jax.tasks.tables import table_rows

QuestionShape = Literal["letters", "words", "odd_word", "yes_no", "two_words", "story", "article"]
CITATION = (
    "Eval-UA-tion 1.0, Hamotskyi, Levbarg and Hänig 2024, UNLP (data CC BY-NC 4.0), in prompts of "
    "our own"
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
    reference: Mapping[str, float] = field(default_factory=dict)  # published accuracy, by model
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


# up_masked_refcompat: the published task shows the unmasked article with masked titles; most likely
# the published scores are of that.
DATA_SETS = tuple(UationSet(**row) for row in table_rows(__file__))
