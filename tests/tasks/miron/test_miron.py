"""MIRON's files, miron-gen's guarantees (../shared/spec section F.5), and both through the command's own stages."""

import hashlib
import json
import math
import unicodedata
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from scipy.stats import spearmanr

from miron_jax.config import RunConfig
from miron_jax.definitions.records import Cloze, Measured
from miron_jax.engine.model import load_model
from miron_jax.errors import InputError
from miron_jax.evaluation.inputs import find_inputs
from miron_jax.evaluation.run import evaluate
from miron_jax.evaluation.run_result import finished_run
from miron_jax.files.readers import JsonObject
from miron_jax.metrics.choices import ExampleScore
from miron_jax.metrics.cloze import lev_score
from miron_jax.results.document import example_line, run_json
from miron_jax.results.records import RunResult
from miron_jax.statistics.cloze_groups import cloze_groups
from miron_jax.tasks.generators.miron_gen.items import CATEGORIES, items_of
from miron_jax.tasks.miron import BY_TEXT, LANGUAGES, MIRON, MIRON_GEN, OVERALL, read_parquet, with_pairs
from miron_jax.tokens.tokenizers import load_tokenizer
from tests.support.generators import slow_logits
from tests.support.tiny_model import make_model
from tests.support.tolerances import CONFIDENCE, FLOAT64

ROWS = [
    {"prefix": "the sun is", "target": " hot", "category": "Facts"},
    {"prefix": "a green hi", "target": "ll", "category": "Morphology"},
    {"prefix": "rain falls on a small", "target": " hill where the sun is cold", "category": "Facts"},
    {"prefix": "the su ", "target": "n", "category": "A category nobody knows"},
]


def write(folder: Path, rows: list[JsonObject], language: str = "en") -> Path:
    path = folder / f"miron_{language}.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{**ROWS[0], "distractors": "wugs"}], "distractors is 'wugs', expected a list of texts"),
        ([{**ROWS[0], "distractors": [" hot"]}], "holds the target ' hot'"),
        ([{**ROWS[0], "clean_prefix": ""}], "clean_prefix is ''"),
        ([{**ROWS[0], "num_edits": "two"}], "num_edits 'two'"),
        ([{"prefix": "a", "category": "b"}], "no column 'target', only prefix, category"),
        ([{**ROWS[0], "target": None}, ROWS[1]], "row 0: target is null"),
        ([ROWS[0], {**ROWS[1], "prefix": None}], "row 1: prefix is null"),
        ([{**ROWS[0], "target": ""}], "row 0: target is empty"),
        ([{**ROWS[0], "target": 3}], "row 0: target is 3, expected a text"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, rows: list[JsonObject], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_parquet(write(tmp_path, rows), "miron/en")


def test_bad_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "miron_en.parquet"
    broken.write_bytes(b"no parquet")
    with pytest.raises(InputError, match="no parquet file that can be read"):
        read_parquet(broken, "miron/en")
    parquet.write_table(pa.table({"prefix": [], "target": [], "category": []}), broken)
    with pytest.raises(InputError, match="has no rows"):
        read_parquet(broken, "miron/en")
    other = tmp_path / "mine.parquet"
    other.write_bytes(b"")
    with pytest.raises(InputError, match=r"a folder, or a file named miron_en\.parquet"):
        MIRON.locate(other, False)
    monkeypatch.setenv("MIRON_JAX_DATA", str(tmp_path / "cache"))
    with pytest.raises(InputError, match="pass --data_dir=miron=FOLDER"):  # HF_HUB_OFFLINE
        MIRON.locate(None, True)
    assert MIRON.locate(broken, False) == tmp_path


# ------------------------------------------------------------------------------------------------------------- runs


class Ran(NamedTuple):
    folder: Path
    result: RunResult
    tasks: JsonObject
    composites: JsonObject
    samples: dict[str, list[JsonObject]]


NOISE = [
    {"prefix": "the sun is hot and the hill is", "target": " green", "category": "Facts"},
    {"prefix": "the sun is hot adn the hill is", "target": " green", "category": "Noise"},
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Published files of some rows, and three items of each category and language of miron-gen."""
    folder = tmp_path_factory.mktemp("miron")
    for language in LANGUAGES:
        write(folder, [*ROWS, *NOISE], language)
    tasks, data = ("miron/en", "miron-gen"), (("", str(folder)),)
    config = RunConfig(str(make_model(folder / "model")), tasks, data_dir=data, limit=3, items_per_category=12)
    outcome = evaluate(config, find_inputs(config))
    result = finished_run(config, outcome).result
    results = run_json(result)
    samples = {
        task.source.task.name: [json.loads(example_line(example)) for example in task.kind.example_results(task)]
        for task in outcome.tasks
    }
    return Ran(folder, result, results["tasks"], results["suites"]["miron-gen"]["composites"], samples)


@pytest.mark.slow
def test_the_cards_numbers_against_its_own_loop(ran: Ran) -> None:
    """One forward pass for each item, tokens and slices as on the card, completions from a slow greedy loop."""
    model, tokenizer = load_model(ran.folder / "model", "float32"), load_tokenizer(str(ran.folder / "model"))
    rows, samples = [*ROWS, *NOISE], ran.samples["miron/en"]
    for row, sample in zip(rows, samples, strict=True):
        before = tokenizer(row["prefix"])["input_ids"]
        whole = tokenizer(row["prefix"] + row["target"])["input_ids"]
        logprobs = []
        for i in range(len(before), len(whole)):
            logits = slow_logits(model, whole[:i])
            logprobs.append(logits[whole[i]] - np.logaddexp.reduce(logits))
        confidence = 100 * np.exp(np.mean(logprobs)) if logprobs else 0.0
        assert sample["metrics"]["target_confidence"] == pytest.approx(confidence, abs=10 * CONFIDENCE)
        ids, text = list(before), ""
        for _ in range(int(sample["metrics"]["target_tokens"]) + 8):
            ids.append(int(slow_logits(model, ids).argmax()))
            text = tokenizer.decode([i for i in ids if i < len(tokenizer)])[len(row["prefix"]) :]
            if "\n" in text:
                break
        assert sample["generated"] == text.split("\n")[0]
        assert sample["metrics"]["lev_score"] == lev_score(text.split("\n")[0], row["target"])
        assert sample["options"][0]["num_tokens"] == sample["metrics"]["target_tokens"]
    entry = ran.tasks["miron/en"]
    assert (entry["n"], entry["skipped"], entry["data"]["state"]) == (6, 0, "no published hash")
    categories = Counter(row["category"] for row in rows)
    assert {name: group["n"] for name, group in entry["groups"].items()} == categories
    assert (entry["prefixes_end_in_space"], entry["targets_begin_with_space"]) == (1, 4)
    of_categories = [group["metrics"]["lev_score"]["value"] for group in entry["groups"].values()]
    assert entry["macro"]["lev_score"]["value"] == pytest.approx(sum(of_categories) / 4)


@pytest.mark.slow
def test_published_noise_has_drift_by_text_and_counts_that_differ_from_the_cards_are_told(ran: Ran) -> None:
    task = ran.tasks["miron/en"]
    assert task["drift"]["all"]["n"] == 1
    assert task["drift"][f"operator {BY_TEXT}"]["n"] == 1
    assert (task["rows_by_category"]["Noise"], task["published_rows_a_category"]) == (1, 500)
    result = replace(ran.result.tasks["miron/en"], limit=None)
    notes = list(result.details.notes(result))
    counts = ", ".join(f"{category} {count}" for category, count in task["rows_by_category"].items())
    assert f"its file has {counts} rows, the card says 500 of each category" in notes


@pytest.mark.slow
def test_generated_items_run_with_pairs_and_contrast(ran: Ran) -> None:
    entry, samples = ran.tasks["miron-gen/ru"], ran.samples["miron-gen/ru"]
    assert {name: group["n"] for name, group in entry["groups"].items()} == dict.fromkeys(CATEGORIES, 3)
    assert (entry["data"]["state"], entry["limit"]) == ("generated", 3)
    assert entry["drift"]["all"]["n"] == 3
    assert 0 <= entry["groups"]["Logic"]["metrics"]["contrast_accuracy"]["value"] <= 1
    assert all(sample["gold"] is None and sample["prediction"] is None for sample in samples)
    json.dumps(samples)
    for name in OVERALL:
        macros = [ran.tasks[f"miron-gen/{language}"]["macro"][name]["value"] for language in LANGUAGES]
        assert ran.composites[f"miron-gen overall {name}"]["value"] == pytest.approx(sum(macros) / 2)
    ru = Measured(None, 9, dict.fromkeys(OVERALL, 0.5))
    lacking = MIRON_GEN.composites({"miron-gen/ru": ru})["miron-gen overall lev_score"]
    assert (lacking.value, lacking.missing) == (None, ("miron-gen/en",))


# ------------------------------------------------------------------------------------------------------------ groups


def test_targets_of_four_tokens_and_more_are_one_group() -> None:
    scored = [
        (
            Cloze(0, "x", "a", " b", "Facts"),
            ExampleScore(None, None, False, False, {"target_tokens": n, "bits_per_char": n}),
        )
        for n in (1.0, 3.0, 4.0, 5.0, 5.0)
    ]
    groups = cloze_groups(scored).by_target_tokens
    counts = {name: metrics["bits_per_char"].num_examples for name, metrics in groups.items()}
    assert counts == {"1": 1, "3": 1, "4+": 3}


def test_correlation_of_ranks_is_scipys() -> None:
    """Ranks of equal values are their mean; a constant and a NaN have no correlation."""
    tokens = [1.0, 3.0, 2.0, 2.0, 5.0, 2.0, 1.0, 4.0]
    for bits in ([2.5, 1.5, 1.5, 0.25, math.inf, 7.0, 1.5, 1.0], [1.0] * 8, [math.nan, *range(7)]):
        scored = [
            (
                Cloze(0, "x", "a", " b", "Facts"),
                ExampleScore(None, None, False, False, {"target_tokens": n, "bits_per_char": each}),
            )
            for n, each in zip(tokens, bits, strict=True)
        ]
        expected = math.nan if len(set(bits)) == 1 else float(np.asarray(spearmanr(tokens, bits))[0])
        assert cloze_groups(scored).spearman == pytest.approx(expected, abs=FLOAT64, nan_ok=True)


# --------------------------------------------------------------------------------------------------- generated items


GOLDEN = {
    "en": "98b0f686f7eecbb47c58725c48ebc5c6565f830612a075d8aeb51e7ae7938445",
    "ru": "47df4f73f930a9dc39049cdfef2b376cf8240ee5041cd5644fb9cb8693f23e64",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_items_are_the_same_everywhere_and_satisfy_their_guarantees(language: str) -> None:
    """Each interpreter has a hash seed of its own.  A change of the items needs a new VERSION."""
    generated = items_of(language, 500)
    text = json.dumps([repr(item) for item in generated])
    assert hashlib.sha256(text.encode()).hexdigest() == GOLDEN[language]
    frozen = MIRON_GEN.tasks[LANGUAGES.index(language)].read(None, 500)
    assert frozen == [item.cloze(row) for row, item in enumerate(generated)], "python -m tools.freeze_rows"
    by_id = {item.id: item for item in generated}
    assert len(by_id) == len({item.prefix for item in generated}) == 2000
    for item in generated:
        assert item.target == " " + item.target.strip()
        assert item.prefix == item.prefix.strip()
        assert unicodedata.is_normalized("NFC", item.prefix + item.target)
        assert len({item.target, *item.distractors}) == len(item.distractors) + 1 >= 3
        if item.category == "Noise":
            clean = by_id[item.pair_id or ""]
            assert clean.category in ("Facts", "Logic")
            assert (clean.prefix, clean.target) == (item.clean_prefix, item.target)
            assert item.prefix != item.clean_prefix
            assert 1 <= item.num_edits <= 3
    for category in CATEGORIES:
        items = [item for item in generated if item.category == category]
        assert len(items) == 500
        # Repeating the last word and the most common target score low.
        copied = np.mean([item.target == " " + item.prefix.split()[-1].strip(".,:;!?»«") for item in items])
        [(_, common)] = Counter(item.target for item in items).most_common(1)
        assert copied <= 0.10, category
        assert common <= 50, category
    if language == "en":  # A smaller set begins the larger one.
        for category in CATEGORIES[:3]:
            small, large = (
                [i for i in each if i.category == category][:20] for each in (items_of("en", 20), generated)
            )
            assert small == large
    with pytest.raises(InputError, match="--items_per_category is 100000, miron-gen has no more than 2000"):
        items_of(language, 100_000)


def test_noisy_rows_find_the_beginning_they_were_made_from() -> None:
    """Pairs share the target and have the least distance; distant, equal and ambiguous items have no pair."""

    def item(prefix: str, target: str, category: str) -> Cloze:
        return Cloze(0, "x", prefix, target, category)

    clean = [
        item("The capital of France is", " Paris", "Facts"),
        item("The capital of Franze was", " Paris", "Logic"),
        item("The opposite of hot is", " cold", "Facts"),
        item("one two three a", " four", "Facts"),
        item("one two three b", " four", "Facts"),
    ]
    noisy = [
        item("The captial of France is", " Paris", "Noise"),  # one swap of neighbours
        item("The opposite of hot is", " Paris", "Noise"),  # another target
        item("Completely other words here", " cold", "Noise"),
        item("The opposite of hot is", " cold", "Noise"),  # no noise at all
        item("one two three c", " four", "Noise"),  # two are as near
    ]
    paired = with_pairs([*clean, *noisy])
    assert paired[:5] == clean
    assert [item.operator for item in paired[5:]] == [BY_TEXT, None, None, None, None]
    assert [(item.clean_prefix, item.num_edits) for item in paired[5:]] == [
        ("The capital of France is", 1), (None, 0), (None, 0), (None, 0), (None, 0),
    ]  # fmt: skip
