"""The published table of MERA's data sets, for both versions.

Arrives: table.jsonl.  Leaves: `DATA_SETS`.  It deliberately does not know how a record is parsed.

Source: v1 is ai-forever/MERA at 064baa6 (lm-evaluation-harness fork 0.3.0), v1.2 is the release
v1.2.0 of MERA-Evaluation/MERA (fork 0.4.4).  Sizes are those of the published submission files,
which differ from the table in v1's README for PARus (400 there), ruDetox (1000) and ruHateSpeech
(268).
"""

from dataclasses import dataclass
from typing import Literal

from miron_jax.definitions.rules import NOTHING, Rule
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.answers import EQUAL, SQUAD, STRIP, WORDS, Match, Normalize
from miron_jax.metrics.choices import FIRST, LAST, Tie
from miron_jax.metrics.detox import DETOX
from miron_jax.tasks.mera.metrics import EXAM, F1_MACRO, GRADE_NORM, MCC, OverAll
from miron_jax.tasks.tables import table_rows

Version = Literal["v1", "v1.2"]
AnswerKind = Literal["choice", "text", "dialogue", "program"]


@dataclass(frozen=True, slots=True)
class Usage:
    """How one version uses a data set."""

    num_fewshot: int
    # wording without the instruction, of later shots and of the question after them
    short: str = ""
    short_strip: Literal["nothing", "both", "left"] = "nothing"
    instruction_strip: bool = True  # strip white space at both ends of the filled-in instruction
    ending: str = ""  # after the filled-in instruction
    stop: tuple[str, ...] = ("\n",)  # of completions
    shots_file: str = "train"  # split of the shots; "": they are other test records
    tie: Rule[Tie] = FIRST  # which of equal options wins
    tests: int | None = None  # records; None: not published
    is_open: bool = False  # the right answers of the test records are published


@dataclass(frozen=True, slots=True)
class DataSet:
    name: str  # in submissions
    config: str  # on the hub
    kind: AnswerKind
    v1: Usage | None
    v12: Usage
    choices: tuple[str, ...] = ()
    random: float | None = None  # accuracy of a guess; None: of completions
    match: Rule[Match] = EQUAL  # of completions
    normalizer: Rule[Normalize] = STRIP  # of completions
    over_all: Rule[OverAll] = NOTHING  # metrics over all records together
    # the metric that composites use; "": a single answer is never right or wrong
    main: str = "accuracy"
    group: str = ""  # field of meta or inputs; results show the accuracy of each of its values
    pool: str = ""  # field of meta; shots have the same value as the question
    field: str = "inputs"  # the placeholder of inputs that are one text
    diagnostic: bool = False  # v1 leaves it out of the total

    def rules(self, version: Version) -> Usage:
        """Of a version that has the data set."""
        rules = self.v1 if version == "v1" else self.v12
        assert rules is not None, f"{version} has no {self.name}"
        return rules

    def counts(self, version: Version) -> bool:
        """Whether the version's total includes the data set: v1 excludes diagnostic ones, v1.2 open
        ones."""
        if version == "v1":
            return self.v1 is not None and not self.diagnostic
        return not self.v12.is_open


# rules that the table names
_RULES = {
    "match": (WORDS, EXAM, DETOX),
    "normalizer": (SQUAD,),
    "over_all": (F1_MACRO, GRADE_NORM, MCC),
    "tie": (LAST,),
}


def _with_rules(fields: JsonObject) -> JsonObject:
    """Fields of a record, with the rules that they name, and tuples in the place of lists."""
    made: JsonObject = {}
    for name, value in fields.items():
        made[name] = tuple(value) if isinstance(value, list) else value
        for rule in _RULES.get(name, ()):
            if rule.name == value:
                made[name] = rule
    return made


def _data_set(row: JsonObject) -> DataSet:
    v1 = row["v1"] and Usage(**_with_rules(row["v1"]))
    return DataSet(**{**_with_rules(row), "v1": v1, "v12": Usage(**_with_rules(row["v12"]))})


DATA_SETS = tuple(map(_data_set, table_rows(__file__)))
BY_NAME = {dataset.name: dataset for dataset in DATA_SETS}


def data_sets(version: Version) -> tuple[DataSet, ...]:
    """The data sets of a version's submissions."""
    return tuple(dataset for dataset in DATA_SETS if version != "v1" or dataset.v1 is not None)
