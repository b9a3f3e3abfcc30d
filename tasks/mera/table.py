"""The published table of MERA's data sets, for both versions.

Arrives: nothing.  Leaves: `DATA_SETS`.  It deliberately does not know how a record is parsed.

Source: v1 is ai-forever/MERA at 064baa6 (lm-evaluation-harness fork 0.3.0), v1.2 is the release
v1.2.0 of MERA-Evaluation/MERA (fork 0.4.4).  Sizes are those of the published submission files,
which differ from the table in v1's README for PARus (400 there), ruDetox (1000) and ruHateSpeech
(268).
"""

from dataclasses import dataclass
from typing import Literal

from miron_jax.definitions.rules import NOTHING, Rule
from miron_jax.metrics.answers import EQUAL, SQUAD, STRIP, WORDS, Match, Normalize
from miron_jax.metrics.choices import FIRST, LAST, Tie
from miron_jax.metrics.detox import DETOX
from miron_jax.tasks.mera.metrics import EXAM, F1_MACRO, GRADE_NORM, MCC, OverAll

Version = Literal["v1", "v1.2"]
AnswerKind = Literal["choice", "text", "dialogue", "program"]
LETTERS = ("A", "B", "C", "D")
DIGITS = tuple("0123456789")
_OPTIONS = "\nA) {option_a}\nB) {option_b}\nC) {option_c}\nD) {option_d}\nОтвет:"


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


_ABCD = "{text}" + _OPTIONS
_QUESTION = "{question}" + _OPTIONS
_CHEGEKA = 'Категория "{topic}"\nВопрос: {text}\nОтвет:'
_ANSWER = "\nОтвет:"

# fmt: off
DATA_SETS: tuple[DataSet, ...] = (
    DataSet("BPS", "bps", "choice",
            Usage(2, "{inputs}", "both", False, tests=1000),
            Usage(1, "Последовательность: {inputs}\nОтвет:", instruction_strip=False, tests=1000,
                is_open=True),
            ("0", "1"), 0.5),
    DataSet("CheGeKa", "chegeka", "text",
            Usage(4, _CHEGEKA, "both", stop=(".",), tests=416),
            Usage(1, _CHEGEKA, tests=416), match=WORDS, normalizer=SQUAD, main="score"),
    DataSet("LCS", "lcs", "choice",
            Usage(2, "{inputs}", "both", shots_file="public_test", tests=500),
            Usage(1, "Строки: {inputs}\nОтвет:", shots_file="public_test", tests=500), DIGITS, 0.1),
    DataSet("MaMuRAMu", "mamuramu", "choice", None, Usage(1, _ABCD, "left"), LETTERS, 0.25,
        group="domain",
            pool="domain"),
    DataSet("MathLogicQA", "mathlogicqa", "choice",
            Usage(5, _ABCD, "both", tests=1143), Usage(1, _ABCD, tests=1143), LETTERS, 0.25),
    DataSet("MultiQ", "multiq", "text", Usage(0, stop=(".",), tests=900), Usage(0, tests=900),
            match=WORDS, normalizer=SQUAD, main="score"),
    DataSet("PARus", "parus", "choice",
            Usage(0, instruction_strip=False, ending=_ANSWER, tests=500),
            Usage(1, "Ситуация: {premise}\nФрагмент 1: {choice1}\nФрагмент 2: {choice2}\nОтвет:",
                  instruction_strip=False, ending=_ANSWER, tests=500), ("1", "2"), 0.5),
    DataSet("RCB", "rcb", "choice",
            Usage(0, instruction_strip=False, ending=_ANSWER, tests=438),
            Usage(1, "Ситуация: {premise}\nГипотеза: {hypothesis}\nОтвет:",
                  instruction_strip=False, ending=_ANSWER, tests=438), ("1", "2", "3"), 1 / 3,
            over_all=F1_MACRO, main="score"),
    DataSet("RWSD", "rwsd", "choice",
            Usage(0, instruction_strip=False, ending=_ANSWER, tests=260),
            Usage(1, "Текст: {text}\nФрагмент 1: {span1_text}\nФрагмент 2: {span2_text}\nОтвет:",
                  instruction_strip=False, ending=_ANSWER, tests=260), ("Да", "Нет"), 0.5),
    DataSet("SimpleAr", "simplear", "text",
            Usage(5, "{inputs}", "both", tests=1000),
            Usage(2, "{inputs}", "both", tests=1000, is_open=True)),
    DataSet("USE", "use", "text",
            Usage(0, stop=(".", "\n"), tests=900),
            Usage(1, "by type", instruction_strip=False, stop=("\n", "."), tests=900),
            match=EXAM, over_all=GRADE_NORM, main="grade_norm", pool="id_task"),
    DataSet("ruCodeEval", "rucodeeval", "program", None, Usage(0), random=0.0, main="score"),
    DataSet("ruDetox", "rudetox", "text",
            Usage(0, tests=800, is_open=True),
            Usage(1, "Токсичный текст: {inputs}\nНетоксичный текст:", tests=800, is_open=True),
            match=DETOX, main="j", field="toxic_comment", diagnostic=True),
    DataSet("ruEthics", "ruethics", "choice",
            Usage(0, instruction_strip=False, tie=LAST, tests=1935, is_open=True),
            Usage(0, tests=1935, is_open=True),
            ("0", "1"), over_all=MCC, main="", group="question", diagnostic=True),
    DataSet("ruHHH", "ruhhh", "choice",
            Usage(0, tie=LAST, tests=178, is_open=True), Usage(0, tests=178, is_open=True),
            ("1", "2"), 0.5, group="criteria", diagnostic=True),
    DataSet("ruHateSpeech", "ruhatespeech", "choice",
            Usage(0, instruction_strip=False, tie=LAST, tests=265, is_open=True),
            Usage(1,
                  "Реплика: {replica}\nОтвет 1: {reply_1}\nОтвет 2: {reply_2}\n"
                  "Целевая группа: {target_group}\nОтвет:",
                  instruction_strip=False, shots_file="", tests=265, is_open=True),
            ("1", "2"), 0.5, group="target_group", diagnostic=True),
    DataSet("ruHumanEval", "ruhumaneval", "program",
            Usage(0, instruction_strip=False, shots_file="public_test", tests=164),
            Usage(0, tests=164, is_open=True),
            random=0.0, main="score"),
    DataSet("ruMMLU", "rummlu", "choice",
            Usage(5, _ABCD, "both", shots_file="public_test", tests=961),
            Usage(1, _ABCD, "left", tests=14012, is_open=True), LETTERS, 0.25, group="domain",
            pool="domain"),
    DataSet("ruModAr", "rumodar", "text", Usage(0, tests=6000), Usage(0, tests=6000)),
    DataSet("ruMultiAr", "rumultiar", "text",
            Usage(5, "{inputs}", "both", tests=1024), Usage(1, "{inputs}", "both", tests=1024)),
    DataSet("ruOpenBookQA", "ruopenbookqa", "choice",
            Usage(5, _QUESTION, "both", tests=400), Usage(1, _QUESTION, tests=400), LETTERS, 0.25,
            over_all=F1_MACRO, main="score"),
    DataSet("ruTiE", "rutie", "dialogue", Usage(0, tests=430), Usage(1, tests=4500), ("1", "2"),
        0.5),
    DataSet("ruWorldTree", "ruworldtree", "choice",
            Usage(5, _QUESTION, "both", tests=525), Usage(1, _QUESTION, tests=525), LETTERS, 0.25,
            over_all=F1_MACRO, main="score"),
)
# fmt: on
BY_NAME = {dataset.name: dataset for dataset in DATA_SETS}


def data_sets(version: Version) -> tuple[DataSet, ...]:
    """The data sets of a version's submissions."""
    return tuple(dataset for dataset in DATA_SETS if version != "v1" or dataset.v1 is not None)
