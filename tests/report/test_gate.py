"""`miron-jax gate`: each rule's verdict by hand, its sentence, statuses, and what is refused."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from miron_jax.report.compare.policy import KINDS, read_policy
from miron_jax.report.compare.runs import compare
from miron_jax.report.compare.verdicts import verdict_of_task
from miron_jax.results.run_folder import read_runs
from miron_jax.statistics.estimate import Estimate, bonett_price, estimate, interval_at, wilson
from miron_jax.statistics.paired import combined, difference
from tests.conftest import REPOSITORY
from tests.support.run_folders import changed, composite, samples_of, write_run
from tests.support.tolerances import FLOAT64, printed

HALF = [1, 0] * 100


def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The baseline is right in 100 of 200; the run in 90 of these, and in 10 others; x's bits fall from 1 to 0.9."""
    other = [0] * 20 + HALF[20:]
    other[1:20:2] = [1] * 10
    runs = []
    for name, x, bits, value in (("base", HALF, [1.0] * 200, 0.5), ("new", other, [0.9] * 200, 0.5)):
        samples = {"own/x": samples_of(x, bits=bits), "own/y": samples_of(HALF)}
        composites = {"OWN": composite(value, {"own/x": 0.5, "own/y": 0.5}, 0.05), "B": composite(None, {})}
        runs.append(write_run(tmp_path / name, samples, composites))
    return runs[0], runs[1]


def gate(miron, place: Path, rules: Any, *runs: Path, flags: tuple[str, ...] = ()) -> Any:
    text = rules if isinstance(rules, str) else json.dumps({"rules": rules})
    (place / "policy.yaml").write_text(text)
    return miron("gate", str(place / "policy.yaml"), *map(str, runs), *flags)


# of the run: x is .5 (Wilson of 100 of 200: .4314 to .5686), its bits .9 to .9, OWN .45 to .55 of its file; against the
# baseline x differs by 0 with 10 flips each way (Bonett and Price: 11 each of 202: +-.0455), its bits by -.1
RULES = (
    ("own/x accuracy", "above", 0.43, "GO", "own/x accuracy is above 0.43, with 95 % confidence: it is 0.5000 (0.4314"),
    ("own/x", "above", 0.44, "INCONCLUSIVE", "own/x accuracy is above 0.44, with"),
    ("own/x", "above", 0.57, "NO-GO", "own/x accuracy is above 0.57, with"),
    ("own/x", "below", 0.57, "GO", "own/x accuracy is below 0.57, with"),
    ("own/x bits_per_byte", "below", 0.9, "NO-GO", "own/x bits_per_byte, of which less is better, is below 0.9, with"),
    ("own", "above", 0.44, "GO", "own: OWN is above 0.44, with 95 % confidence: it is 0.5000 (0.4500 to 0.5500)"),
    ("own: OWN", "below", 0.54, "INCONCLUSIVE", "own: OWN is below 0.54, with"),
    ("own: B", "below", 0.54, "INCONCLUSIVE", "own: B is below 0.54, with 95 % confidence: it has no value with an"),
    ("own/x", "not_below_baseline_by", 0.0456, "GO", "own/x accuracy is not lower than the baseline's by more than"),
    ("own/x", "not_below_baseline_by", 0.0454, "INCONCLUSIVE", "the difference is +0.0000 (-0.0455 to +0.0455), p 1"),
    ("own", "not_below_baseline_by", 0.03, "GO", "own: OWN is not lower than the baseline's by more than 0.03, with"),
    ("own/x", "not_worse_beyond_chance", True, "GO", "own/x accuracy is not worse than the baseline's beyond chance"),
    ("tasks", "not_worse_beyond_chance", True, "GO", "all taken together (Holm), with 95 % confidence: none of 2 tasks"),
)  # fmt: skip


def test_each_kind_of_rule_by_hand(tmp_path: Path, miron) -> None:
    baseline, run = folders(tmp_path)
    rules = [{"metric": metric, kind: amount, "confidence": 0.95} for metric, kind, amount, *_ in RULES]
    ran = gate(miron, tmp_path, rules, run, baseline, flags=(f"--json={tmp_path / 'out.json'}",))
    assert (ran.status, ran.err) == (3, f"miron-jax: NO-GO for new by {tmp_path}/policy.yaml\n")
    lines = ran.out.splitlines()
    for line, (*_, verdict, text) in zip(lines, RULES, strict=True):
        assert line.startswith(f"{verdict}: "), line
        assert text in line
    document = json.loads((tmp_path / "out.json").read_text())
    assert (document["verdict"], document["baseline"]) == ("NO-GO", str(baseline))
    assert [each["verdict"] for each in document["findings"]] == [verdict for *_, verdict, _ in RULES]
    first = document["findings"][0]
    assert first["rule"] == {"metric": "own/x accuracy", "kind": "above", "amount": 0.43, "confidence": 0.95}
    assert first["value"] == 0.5
    assert first["interval"] == pytest.approx([0.4314, 0.5686], abs=printed(4))


POLICY = """
rules:
  - {metric: core, not_below_baseline_by: 0.005, confidence: 0.95}
  - {metric: tasks, not_worse_beyond_chance: true, confidence: 0.95}
  - {metric: text/en bits_per_byte, below: 0.92, confidence: 0.95}
  - {metric: core/arc_easy accuracy, above: 0.4, confidence: 0.95}
"""
SENTENCES = (
    "core: CORE is not lower than the baseline's by more than 0.005, with 95 % confidence: the difference is ",
    "no task is worse than in the baseline beyond chance, all taken together (Holm), with 95 % confidence: ",
    "text/en bits_per_byte, of which less is better, is below 0.92, with 95 % confidence: it is 0.9",
    "core/arc_easy accuracy is above 0.4, with 95 % confidence: it is 0.",
)


@pytest.mark.parametrize(
    ("flips", "verdicts", "status"),
    [
        # Bonett and Price of 2000 pairs: 1.96 sqrt(down + up + 2) / 2002 is .0014, .0063 and, of 100 one way, .0099
        ((0, 0), ("GO", "GO", "GO", "GO"), 0),
        ((20, 20), ("INCONCLUSIVE", "GO", "GO", "GO"), 4),
        ((100, 0), ("NO-GO", "NO-GO", "GO", "GO"), 3),
    ],
)
def test_a_policy_says_each_rule_in_words_and_exits_with_its_verdict(
    flips: tuple[int, int], verdicts: tuple[str, ...], status: int, tmp_path: Path, miron
) -> None:
    right = [1, 0] * 1000
    changed_answers = [*right]
    for down in range(flips[0]):
        changed_answers[2 * down] = 0
    for up in range(flips[1]):
        changed_answers[2 * up + 1] = 1
    runs = []
    for name, answers in (("new", changed_answers), ("base", right)):
        samples = {"core/arc_easy": samples_of(answers), "text/en": samples_of(right, bits=[0.9] * 2000)}
        core = composite(sum(answers) / 2000, {"core/arc_easy": 1.0})
        runs.append(write_run(tmp_path / name, samples, {"CORE": core}))
    ran = gate(miron, tmp_path, POLICY, *runs)
    assert ran.status == status, ran.out + ran.err
    lines = ran.out.splitlines()
    for line, verdict, sentence in zip(lines, verdicts, SENTENCES, strict=False):
        assert line.startswith(f"{verdict}: {sentence}"), line
    last = {0: "GO", 3: "NO-GO", 4: "INCONCLUSIVE"}[status] + f" for new by {tmp_path}/policy.yaml"
    assert (lines[-1] if status == 0 else ran.err.strip().removeprefix("miron-jax: ")) == last


def test_less_is_better_of_bits_and_worse_is_found(tmp_path: Path, miron) -> None:
    """The other way round, the bits rise by 0.1, all of them, and 40 answers of y become wrong."""
    run, baseline = folders(tmp_path)
    write_run(run, {"own/x": samples_of(HALF, bits=[1.0] * 200), "own/y": samples_of([0] * 80 + HALF[80:])})
    bits: dict[str, Any] = {"metric": "own/x bits_per_byte", "confidence": 0.99}
    for rule, status, text in (
        (bits | {"not_below_baseline_by": 0.11}, 0, "less is better, is not higher than the baseline's by more than 0.11"),
        (bits | {"not_below_baseline_by": 0.09}, 3, "the difference is +0.1000 (+0.1000 to +0.1000)"),
        (bits | {"not_worse_beyond_chance": True}, 3, "of which less is better, is not worse than the baseline's beyond"),
        ({"metric": "tasks", "not_worse_beyond_chance": True, "confidence": 0.95}, 3, "worse: own/y accuracy -0.2000 (p"),
    ):  # fmt: skip
        ran = gate(miron, tmp_path, [rule], run, baseline)
        assert (ran.status, text in ran.out) == (status, True), ran.out + ran.err


def test_what_cannot_be_known_is_inconclusive(tmp_path: Path, miron) -> None:
    """A task of one run only, one that stopped by its scores, one by other rules: alone they decide nothing."""
    baseline, run = folders(tmp_path)
    tasks = {"metric": "tasks", "not_worse_beyond_chance": True, "confidence": 0.95}
    x = {"metric": "own/x", "not_below_baseline_by": 1, "confidence": 0.95}
    with changed(run) as results:
        sampled = {"examples": 200, "of": 900, "how": "--until=decided", "seed": 0, "interval": [0, 1]}
        results["tasks"]["own/x"]["sampled"] = sampled
    for rule in (x, {"metric": "own", "above": 0.1, "confidence": 0.9}):
        ran = gate(miron, tmp_path, [rule], run, baseline)
        assert (ran.status, "own/x of new stopped when it knew enough (--until)" in ran.out) == (4, True), ran.out
    with changed(run) as results:
        results["tasks"]["own/x"]["sampled"] = None
        results["tasks"]["own/x"]["data"]["git_blob_sha1"] = "b" * 40
        del results["tasks"]["own/y"]
    ran = gate(miron, tmp_path, [tasks], write_run(tmp_path / "third", {"own/x": samples_of(HALF)}), baseline)
    assert (ran.status, "without a p-value against the baseline: own/y" in ran.out) == (4, True), ran.out + ran.err
    assert "only in base: own/y" in ran.out
    ran = gate(miron, tmp_path, [x], run, baseline)
    assert (ran.status, "its data differ" in ran.err) == (2, True), "nothing is comparable"


def test_intervals_of_another_confidence() -> None:
    """Wilson's and Bonett and Price's by their formulas at 2.5758, Student's 3.2498 of nine degrees instead of 2.2622."""
    z = 2.575829
    assert interval_at(estimate([1.0] * 50, True), 0.99) == pytest.approx(wilson(1.0, 50, z), abs=printed(6))
    # a mean is 1.96 standard errors wide
    assert interval_at(Estimate(3.0, 0.5, (2.02, 3.98), 9, 0), 0.99) == pytest.approx((3 - z / 2, 3 + z / 2))
    assert interval_at(estimate([0.0, 1.0], True), 0.95) == estimate([0.0, 1.0], True).ci95
    first, second = [0.0] * 10, [0.5, 1.5] * 5
    narrow, wide = (difference(first, second, confidence=level).ci95[1] - 1 for level in (0.95, 0.99))
    assert wide / narrow == pytest.approx(3.2498 / 2.2622, abs=printed(4))
    flips = difference([1, 0] * 20, [0, 1] * 10 + [1, 0] * 10, confidence=0.99)
    assert flips.ci95 == pytest.approx(bonett_price(10, 10, 40, z), abs=printed(6))
    assert combined(0.0, [(1.0, flips)], 0.99).stderr == pytest.approx(flips.ci95[1] / z, abs=printed(6))
    assert combined(0.0, [(1.0, flips)], 0.99).ci95 == pytest.approx(flips.ci95, abs=FLOAT64)


RULE = {"metric": "own/x", "above": 0.1, "confidence": 0.95}


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ("[1", "is no yaml"),
        ("- 1", "holds [1], expected `rules:`, a list"),
        ("rules: 3", "rules is 3, expected `rules:`, a list"),
        ("rules: []", "rules is [], expected"),
        ("rules: [3]", "rule 1 is 3, expected `rules:`, a list, each with metric, confidence and one of not_below"),
        ('{"rules": [], "more": 1}', "'rules': []}, expected `rules:`, a list"),
        ([RULE, RULE | {"abov": 1}], "policy.yaml: rule 2 has an unknown key 'abov', expected"),
        ([RULE | {"below": 1}], "rule 1 has below and above of the four, expected"),
        ([{"metric": "own/x", "confidence": 0.9}], "rule 1 has none of the four, expected"),
        ([RULE | {"metric": ["x"]}], "metric is ['x'], expected a text"),
        ([RULE | {"above": True}], "above is True, expected a number"),
        ([{"metric": "own", "not_below_baseline_by": -1, "confidence": 0.9}], "is -1, expected a number, 0 or more"),
        ([{"metric": "own", "not_worse_beyond_chance": 0.9, "confidence": 0.9}], "is 0.9, expected true"),
        ([{"metric": "tasks", "below": 1, "confidence": 0.9}], "tasks has no below, expected not_worse_beyond_chance"),
        ([RULE | {"confidence": 95}], "confidence is 95, expected a number between 0 and 1, such as 0.95"),
        ([RULE | {"confidence": 1.0}], "confidence is 1.0, expected a number between 0 and 1"),
        ([{"metric": "own/x", "above": 1}], "confidence is None, expected a number between"),
        ([RULE | {"metric": "own/x acuracy"}], "own/x of new has no metric 'acuracy', expected one of accuracy, bits_"),
        ([RULE | {"metric": "core"}], "new has no 'core', expected one of tasks, own: OWN, own: B, own/x"),
        ([{"metric": "own", "not_below_baseline_by": 0, "confidence": 0.9}], "own not_below_baseline_by wants a baseline"),
    ],
)  # fmt: skip
def test_a_bad_policy_is_one_sentence(tmp_path: Path, miron, rules: Any, sentence: str) -> None:
    composites = {"OWN": composite(0.5, {"own/x": 1.0}), "B": composite(None, {})}
    run = write_run(tmp_path / "new", {"own/x": samples_of([1, 0], bits=[1.0] * 2)}, composites)
    ran = gate(miron, tmp_path, rules, run)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
    assert sentence in ran.err


def test_a_suite_of_several_composites_is_asked_for_one(tmp_path: Path, miron) -> None:
    _, run = folders(tmp_path)
    with changed(run) as results:
        results["suites"]["own"]["composites"]["A"] = results["suites"]["own"]["composites"].pop("OWN")
    ran = gate(miron, tmp_path, [RULE | {"metric": "own"}], run)
    assert (ran.status, "has no 'own', expected one of tasks, own: B, own: A" in ran.err) == (2, True), ran.err
    for words, sentence in (
        ((), "gate wants a policy, a run and"),
        ((str(tmp_path / "none.yaml"), str(run)), "none.yaml cannot be read (No such file or directory)"),
    ):
        ran = miron("gate", *words)
        assert (ran.status, sentence in ran.err) == (2, True), ran.err


def test_no_side_of_a_number_is_worse_of_which_0_is_best(tmp_path: Path, miron) -> None:
    folders = []
    for name, sign in (("base", 0.0), ("new", 1.0)):
        samples = samples_of(HALF)
        for sample in samples:
            sample["metrics"]["bias_ambiguous"] = sign
        folders.append(write_run(tmp_path / name, {"own/x": samples}))
    bias = {"metric": "own/x bias_ambiguous", "confidence": 0.95}
    ran = gate(miron, tmp_path, [bias | {"not_below_baseline_by": 0.1}], *folders[::-1])
    assert (ran.status, "0 is best of it, so that neither side is worse" in ran.err) == (2, True), ran.err
    assert gate(miron, tmp_path, [bias | {"below": 0.5}], *folders[::-1]).status == 3
    first, second = read_runs([*map(str, folders)])
    [change] = compare(first, second, ["bias_ambiguous"]).tasks
    assert verdict_of_task(replace(change, adjusted=0.0)) == "higher"


def test_the_policy_of_the_page_has_each_kind(tmp_path: Path) -> None:
    page = REPOSITORY / "docs" / "compare.md"
    [policy] = re.findall(r"```yaml\n(# policy.yaml\n.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "policy.yaml").write_text(policy)
    assert {rule.kind for rule in read_policy(str(tmp_path / "policy.yaml"))} == set(KINDS)
