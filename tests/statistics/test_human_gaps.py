"""Published human baselines, and human gaps: by hand, or refused with a reason."""

import math

import pytest

from miron_jax.definitions.data_files import DataState
from miron_jax.definitions.records import HumanBaseline
from miron_jax.statistics.estimate import Estimate, estimate, wilson
from miron_jax.statistics.human_gaps import HumanGap, gaps, newcombe
from miron_jax.tasks.human_baselines import EVAL_UATION, MERA
from miron_jax.tasks.mera.metrics import total_score
from miron_jax.tasks.mera.suite import V1, V12
from miron_jax.tasks.mera.table import DATA_SETS
from tests.support.tolerances import printed

DATA = DataState("no published hash", None)


@pytest.mark.parametrize(("procedure", "total"), [("A", 0.8878), ("B", 0.8725)])
def test_the_totals_of_both_sets_are_the_published_ones(procedure: str, total: float) -> None:
    """The site's total over the 17 data sets that count; B gives the leaderboard's 0.872."""
    counted = [data_set for data_set in DATA_SETS if data_set.counts("v1")]
    values = {
        data_set.name: {value.metric: value.value for value in MERA[data_set.config] if value.procedure == procedure}
        for data_set in counted
    }
    # A gives RWSD truncated.
    if procedure == "A":
        values["RWSD"]["accuracy"], values["USE"]["grade_norm"] = 0.837, 0.701
    assert total_score(values, [data_set.name for data_set in counted], False) == pytest.approx(total, abs=printed(4))


def test_every_human_value_belongs_to_a_data_set_and_no_set_is_mixed() -> None:
    assert MERA.keys() == {data_set.config for data_set in DATA_SETS if data_set.v1 is not None}
    for values in MERA.values():
        names = [(value.metric, value.procedure) for value in values]
        assert len(names) == len(set(names))
        assert {value.procedure for value in values} == {"A", "B"}
    assert len(MERA["ruethics"]) == 30
    assert {task.name.partition("/")[2] for task in V1.tasks if task.human} == MERA.keys()
    assert [task.name for task in V12.tasks if not task.human] == ["mera-v1.2/mamuramu", "mera-v1.2/rucodeeval"]


def test_eval_uations_human_baselines_are_the_published_percentages() -> None:
    percent = {name: round(100 * value.value, 2) for name, [value] in EVAL_UATION.items()}
    assert percent == {
        "ua_cbt": 93.94, "up_unmasked": 87.88, "up_masked": 83.67, "lmes_wordalpha": 91.84, "lmes_wordlength": 94.0,
        "lmes_catsbin": 96.97, "lmes_catsmc": 98.0, "lmes_low": 97.0, "lmes_wis": 94.0,
    }  # fmt: skip


def test_newcombe_by_hand() -> None:
    """Newcombe 1998, table II, (a): 56/70 against 48/80 gives 0.2 (0.0524 to 0.3339) by method 10."""
    model, human = wilson(56 / 70, 70), wilson(48 / 80, 80)
    assert newcombe(model, 56 / 70, human, 48 / 80) == pytest.approx((0.0524, 0.3339), abs=printed(4))


def gap_of(human: HumanBaseline, model: Estimate | None, rows: int = 500, data: DataState = DATA) -> HumanGap:
    [gap] = gaps({} if model is None else {human.metric: model}, [human], "B", rows, data)
    return gap


LCS = HumanBaseline("accuracy", 0.56, 100, "B", "measured", "cards", 500)
HALF = estimate([1.0, 0.0] * 250, True)


def test_a_gap_has_an_interval_of_both_samples() -> None:
    gap = gap_of(LCS, HALF)
    assert gap.value == pytest.approx(-0.06)
    assert gap.ci95 == pytest.approx(newcombe(wilson(0.5, 500), 0.5, wilson(0.56, 100), 0.56))
    assert gap.interval == "Newcombe, independent samples"
    paper = gap_of(MERA["chegeka"][1], HALF, 416)
    assert "people's is not known" in paper.interval  # a paper's n counts its test set, not its annotators
    unknown = gap_of(HumanBaseline("grade_norm", 0.701, None, "B", "exam statistics", "cards"), HALF)
    assert unknown.ci95 == pytest.approx(tuple(end - 0.701 for end in HALF.ci95))
    assert "people's is not known" in unknown.interval


@pytest.mark.parametrize(
    ("human", "model", "rows", "data", "message"),
    [
        (LCS, None, 500, DATA, "accuracy is not scored here"),
        (LCS, Estimate(math.nan, math.nan, (math.nan, math.nan), 0, 3), 500, DATA, "accuracy is not scored here"),
        (LCS, HALF, 14012, DATA, "another split: people's value stands for 500 records, the test file has 14012"),
        (LCS, HALF, 500, DataState("changed", "x"), "the data are not the published ones"),
        (MERA["ruhhh"][1], HALF, 178, DATA, "another prompt set: people saw several wordings"),
    ],
)
def test_a_gap_is_refused_with_its_reason(
    human: HumanBaseline, model: Estimate | None, rows: int, data: DataState, message: str
) -> None:
    gap = gap_of(human, model, rows, data)
    assert (gap.value, gap.ci95) == (None, None)
    assert message in gap.why_not
