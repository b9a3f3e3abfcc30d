"""The published human baselines of MERA and Eval-UA-tion, each with its source.

Arrives: nothing.  Leaves: `MERA`, `EVAL_UATION`, by data set.  It deliberately does not know
models.

MERA published two sets, by two procedures (miron_jax/humans/votes.py), which must not be mixed:

    A   the table of ai-forever/MERA, humanbenchmarks/README.md (commit 12daebd): samples without 3
        equal votes are dropped, so the easy ones remain: LCS keeps 54 of 100
    B   the dataset cards and the leaderboard's human row: no sample is dropped

Their totals by the site's rule are 0.8878 and 0.8725.  Sizes in A's table that are wrong: ruMultiAr
has not 519 (its annotations give 476), PARus has 500 test records (not 400), ruDetox 800 (not
1000), ruHateSpeech 265 (not 268), and ruEthics' 645 texts are asked three times (1935).  RWSD's
0.837 is 217/259 = 0.8378, truncated.
"""

from functools import partial
from typing import Literal

from miron_jax.definitions.records import HumanBaseline
from miron_jax.tasks.mera.metrics import ETHICS, QUESTIONS

_TABLE = "ai-forever/MERA, humanbenchmarks/README.md at 12daebd"
_CARDS = "MERA's dataset cards and leaderboard, mera.a-ai.ru/en/submits/10001"
_OWN_ITEMS = "people saw items of their own, made by the same generator"
_RSG = "Russian SuperGLUE, Shavrina et al. 2020"
_TAPE = "TAPE, Taktasheva et al. 2022, arXiv:2210.12813"
_HHH = "people saw several wordings of the instruction, the model the record's own"
_TIE_A = "people did not see the turns before a question"


_SETS: dict[Literal["A", "B"], str] = {"A": _TABLE, "B": _CARDS}


def _both(
    metric: str, value: float, n: int, tests: int, note: str = "", paper: str = ""
) -> tuple[HumanBaseline, ...]:
    """A value that is the same in both sets."""
    source = "paper" if paper else "measured"
    return tuple(
        HumanBaseline(metric, value, n, procedure, source, table, tests, note, paper=paper)
        for procedure, table in _SETS.items()
    )


def _measured(
    procedure: Literal["A", "B"],
    metric: str,
    value: float,
    n: int,
    tests: int,
    note: str = "",
    otherwise: str = "",
) -> HumanBaseline:
    return HumanBaseline(
        metric, value, n, procedure, "measured", _SETS[procedure], tests, note, otherwise
    )


_a = partial(_measured, "A")
_b = partial(_measured, "B")


def _paper(metric: str, value: float, n: int, paper: str) -> HumanBaseline:
    """A value that the first set takes from a paper."""
    return HumanBaseline(metric, value, n, "A", "paper", _TABLE, n, paper=paper)


# ruEthics: rows justice, law, moral, utilitarianism, virtue; columns correct, good, ethical ("act
# right, well, ethically").
_ETHICS = {
    "justice": (0.748, 0.789, 0.729),
    "law": (0.864, 0.832, 0.817),
    "moral": (0.880, 0.837, 0.811),
    "utilitarianism": (0.684, 0.675, 0.665),
    "virtue": (0.813, 0.802, 0.771),
}

# fmt: off
MERA: dict[str, tuple[HumanBaseline, ...]] = {
    "bps": _both("accuracy", 1.0, 100, 1000, _OWN_ITEMS),
    "chegeka": (*_both("f1", 0.719, 416, 416, paper=_TAPE),
        *_both("em", 0.645, 416, 416, paper=_TAPE)),
    "lcs": (_a("accuracy", 0.704, 54, 500, _OWN_ITEMS), _b("accuracy", 0.56, 100, 500, _OWN_ITEMS)),
    "mathlogicqa": (_a("accuracy", 0.995, 1130, 1143), _b("accuracy", 0.99, 1143, 1143)),
    "multiq": (*_both("f1", 0.928, 900, 900, paper=_TAPE),
        *_both("em", 0.910, 900, 900, paper=_TAPE)),
    "parus": _both("accuracy", 0.982, 400, 500, "the paper's test set had 400 records", _RSG),
    "rcb": (
        _paper("f1_macro", 0.68, 438, _RSG),
        _paper("accuracy", 0.702, 438, _RSG),
        _b("f1_macro", 0.565, 438, 438),
        _b("accuracy", 0.587, 438, 438),
    ),
    "rwsd": (_a("accuracy", 217 / 259, 259, 260, "published as 0.837, truncated"),
        _b("accuracy", 0.835, 260, 260)),
    "rudetox": (
        _a("j", 0.477, 404, 800, "three classifiers' score of people's own rewrites"),
        _b("j", 0.447, 800, 800, "three classifiers' score of people's own rewrites"),
    ),
    "ruethics": tuple(
        value
        for category in ETHICS
        for question, number in zip(QUESTIONS, _ETHICS[category], strict=True)
        for value in _both(f"{question}.{category}", number, 645, 1935)
    ),
    "ruhatespeech": _both("accuracy", 0.985, 265, 265),
    "ruhhh": (_a("accuracy", 0.814, 177, 178, otherwise=_HHH),
        _b("accuracy", 0.815, 178, 178, otherwise=_HHH)),
    "ruhumaneval": tuple(
        HumanBaseline(f"pass_at_{k}", 1.0, None, procedure, "definition", table, 164)
        for k in (1, 5, 10)
        for procedure, table in _SETS.items()
    ),
    "rummlu": (
        HumanBaseline(
            "accuracy", 0.898, None, "A", "paper", _TABLE, 961,
            otherwise="an estimate of experts' accuracy on the English test",
            paper="MMLU, arXiv:2009.03300",
        ),
        _b("accuracy", 0.844, 961, 961),
    ),
    "rumodar": (_a("accuracy", 0.999, 1794, 6000, _OWN_ITEMS),
        _b("accuracy", 0.999, 1800, 6000, _OWN_ITEMS)),
    "rumultiar": (
        _a("accuracy", 1.0, 476, 1024, f"published with n = 519, a slip; {_OWN_ITEMS}"),
        _b("accuracy", 0.998, 484, 1024, _OWN_ITEMS),
    ),
    "ruopenbookqa": (
        *_both("f1_macro", 0.875, 400, 400, paper=_TAPE),
        *_both("accuracy", 0.865, 400, 400, paper=_TAPE),
    ),
    "rutie": (_a("accuracy", 0.977, 430, 430, otherwise=_TIE_A), _b("accuracy", 0.942, 430, 430)),
    "ruworldtree": (
        _paper("f1_macro", 0.838, 525, _TAPE),
        _paper("accuracy", 0.837, 525, _TAPE),
        _b("f1_macro", 0.935, 525, 525),
        _b("accuracy", 0.935, 525, 525),
    ),
    "simplear": _both("accuracy", 1.0, 200, 1000, _OWN_ITEMS),
    "use": tuple(
        HumanBaseline(
            "grade_norm", 23.835 / 34, None, procedure, "exam statistics", table, 900,
            otherwise="the mean of all graduates of 2019, who sat other exams",
        )
        for procedure, table in _SETS.items()
    ),
}
# fmt: on

_UATION = "Eval-UA-tion 1.0, Hamotskyi et al. 2024, UNLP"
_UATION_TABLE = {  # human answers, wrong ones
    "ua_cbt": (99, 6),
    "up_unmasked": (99, 12),
    "up_masked": (98, 16),
    "lmes_wordalpha": (98, 8),
    "lmes_wordlength": (100, 6),
    "lmes_catsbin": (99, 3),
    "lmes_catsmc": (100, 2),
    "lmes_low": (100, 3),
    "lmes_wis": (100, 6),
}
EVAL_UATION: dict[str, tuple[HumanBaseline, ...]] = {
    name: (HumanBaseline("accuracy", (n - wrong) / n, n, "one annotator", "measured", _UATION),)
    for name, (n, wrong) in _UATION_TABLE.items()
}
