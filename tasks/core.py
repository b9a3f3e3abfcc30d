"""CORE: the 22 tasks of DCLM's "core" metric by nanochat's rules, and their centred mean.

Arrives: an eval bundle (core.yaml, eval_data/...), the user's or fetched.  Leaves: `SUITE`.  It
deliberately does not know tokenizers or models.

DCLM scores the same files by other rules (file order, one random stream for all shots, "\\n"
between shots, stripped text, the whole choice as span), so its scores differ.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from miron_jax.definitions.records import Composite, DataFile, Measured, Profile, Suite, Task
from miron_jax.errors import InputError
from miron_jax.files.readers import parse_yaml, shown
from miron_jax.files.regular import read_regular
from miron_jax.metrics.choices import FIRST, MEAN
from miron_jax.prompting.draws import PER_ITEM_1234, SHUFFLE_1337
from miron_jax.tasks.eval_bundle import locate_files
from miron_jax.tasks.groups import main_metrics, missing_of
from miron_jax.tasks.icl_rows import PARSE, IclKind
from miron_jax.tokens.spans import AFTER_COMMON_PREFIX, AFTER_STRIPPED_CONTEXT, COMMON_SUFFIX, Span

CITATION = (
    "CORE of DataComp-LM, Li et al. 2024, arXiv:2406.11794; data of MosaicML llm-foundry; rules of "
    "karpathy/nanochat"
)


class _CoreTask(NamedTuple):
    """One line of the published table."""

    label: str
    kind: IclKind
    num_fewshot: int
    delimiter: str
    baseline_v1: float  # percent
    baseline_v2: float  # percent
    file: str
    rows: int
    git_blob_sha1: str


# Baselines: v1 is DCLM's first table and the one nanochat uses (the bundle's eval_meta_data.csv
# holds these numbers); v2 is DCLM's correction of September 2025.  Scores under one table do not
# compare with scores under the other.
# fmt: off
_TABLE = (
    _CoreTask("hellaswag_zeroshot", "multiple_choice", 0, " ", 25, 25,
         "language_understanding/hellaswag.jsonl", 10042,
         "448321079fdc140bd8566b16b24eda9ceacd3501"),
    _CoreTask("jeopardy", "language_modeling", 10, "\nAnswer: ", 0, 0,
         "world_knowledge/jeopardy_all.jsonl", 2117, "2f771918dbc8b68550df204171b14d2648b5d494"),
    _CoreTask("bigbench_qa_wikidata", "language_modeling", 10, " ", 0, 0,
         "world_knowledge/bigbench_qa_wikidata.jsonl", 20321,
         "5e1be72797ba082fd4f6efa42f7d759d2d23339a"),
    _CoreTask("arc_easy", "multiple_choice", 10, "\nAnswer: ", 25, 25,
         "world_knowledge/arc_easy.jsonl", 2376, "b5fd1bf87a24246a6be67230b721541688f5c349"),
    _CoreTask("arc_challenge", "multiple_choice", 10, "\nAnswer: ", 25, 25,
         "world_knowledge/arc_challenge.jsonl", 1172, "ce66b8dcfb4bac892a404a0dda8b4e8ed0f84b89"),
    _CoreTask("copa", "multiple_choice", 0, " ", 50, 50,
         "commonsense_reasoning/copa.jsonl", 100, "b22f96e08ae9d0e97e1ae58f67b6425c77ef200a"),
    _CoreTask("commonsense_qa", "multiple_choice", 10, " ", 20, 40.3,
         "commonsense_reasoning/commonsense_qa.jsonl", 1221,
         "f1cc16a88b05ab0934aab2ec2d02a6869e6e5520"),
    _CoreTask("piqa", "multiple_choice", 10, "\nAnswer: ", 50, 50,
         "commonsense_reasoning/piqa.jsonl", 1838, "a9992adfdefde366fe7ccff871f5aa62449a09cf"),
    _CoreTask("openbook_qa", "multiple_choice", 0, " ", 25, 25,
         "commonsense_reasoning/openbook_qa.jsonl", 500,
         "a8aff255a64cbc72a85252acf00df25a315686c2"),
    _CoreTask("lambada_openai", "language_modeling", 0, " ", 0, 0,
         "language_understanding/lambada_openai.jsonl", 5153,
         "4da02dd53b9e7385871d06ab855471d77b2f7dda"),
    _CoreTask("hellaswag", "multiple_choice", 10, " ", 25, 25,
         "language_understanding/hellaswag.jsonl", 10042,
         "448321079fdc140bd8566b16b24eda9ceacd3501"),
    _CoreTask("winograd", "schema", 0, " ", 50, 50,
         "language_understanding/winograd_wsc.jsonl", 273,
         "762fe030ac6938ecba438c47a04057247c6ab891"),
    _CoreTask("winogrande", "schema", 0, " ", 50, 50,
         "language_understanding/winogrande.jsonl", 1267,
         "316e87ae4659f0c402b0f00551fdec83ab0a0986"),
    _CoreTask("bigbench_dyck_languages", "language_modeling", 10, " ", 0, 0,
         "symbolic_problem_solving/bigbench_dyck_languages.jsonl", 1000,
         "27a4ac2b3b18716add92f4ecd62475c4f8d77768"),
    _CoreTask("agi_eval_lsat_ar", "multiple_choice", 3, " ", 20, 25,
         "symbolic_problem_solving/agi_eval_lsat_ar.jsonl", 230,
         "d663b427ba310d3f877f09a6830198ca7c856189"),
    _CoreTask("bigbench_cs_algorithms", "language_modeling", 10, " ", 0, 0,
         "symbolic_problem_solving/bigbench_cs_algorithms.jsonl", 1320,
         "7ecee0f270f3de8b6558da14ae02181f3d950a40"),
    _CoreTask("bigbench_operators", "language_modeling", 10, " ", 0, 0,
         "symbolic_problem_solving/bigbench_operators.jsonl", 210,
         "a982dc4f962725c9dc4abb07d3cc333c99959290"),
    _CoreTask("bigbench_repeat_copy_logic", "language_modeling", 10, " ", 0, 0,
         "symbolic_problem_solving/bigbench_repeat_copy_logic.jsonl", 32,
         "86621f10e7124ed6f3a61fb91493c1256c008f60"),
    _CoreTask("squad", "language_modeling", 10, " ", 0, 0,
         "reading_comprehension/squad.jsonl", 10570, "dc733b8f58ec666c53fd946198c434b819a00680"),
    _CoreTask("coqa", "language_modeling", 0, " ", 0, 0,
         "reading_comprehension/coqa.jsonl", 7983, "028bd4e51326cc43f8394987ae47fbb271aeba9d"),
    _CoreTask("boolq", "multiple_choice", 10, "\nAnswer: ", 62, 62,
         "reading_comprehension/boolq.jsonl", 3270, "f42083a58713d00ef4600118cfdf79618c269190"),
    _CoreTask("bigbench_language_identification", "multiple_choice", 10, " ", 9.1, 25,
         "language_understanding/bigbench_language_identification.jsonl", 10000,
         "1f132fbbb12a67ce267b7b92b458175632c265f3"),
)
# fmt: on

BASELINES_V1: dict[str, float] = {f"core/{row.label}": 0.01 * row.baseline_v1 for row in _TABLE}
BASELINES_V2: dict[str, float] = {f"core/{row.label}": 0.01 * row.baseline_v2 for row in _TABLE}

# Data sets whose files are too large to pass around: CORE-18 leaves them out.
_LARGE = frozenset({"core/hellaswag_zeroshot", "core/hellaswag", "core/squad", "core/coqa"})
BASELINES_18: dict[str, float] = {name: b for name, b in BASELINES_V1.items() if name not in _LARGE}
# CORE-soft takes choice_prob_norm of the tasks that choose.  Equal choices of boolq have 0.5 each;
# v1 has its majority.
SOFT = "choice_prob_norm"
BASELINES_SOFT = {
    f"core/{row.label}": 0.01 * row.baseline_v1 for row in _TABLE if row.kind != "language_modeling"
}
BASELINES_SOFT["core/boolq"] = 0.5


_SPAN: dict[IclKind, Span] = {
    "multiple_choice": AFTER_COMMON_PREFIX,
    "schema": COMMON_SUFFIX,
    "language_modeling": AFTER_STRIPPED_CONTEXT,
}


def _profile(row: _CoreTask) -> Profile:
    return Profile(
        protocol="core (nanochat)",
        num_fewshot=row.num_fewshot,
        delimiter=row.delimiter,
        question_delimiter="whole",
        shot_separator="\n\n",
        strip="context" if row.kind == "language_modeling" else "nothing",
        item_order=SHUFFLE_1337,
        fewshot_draw=PER_ITEM_1234,
        fewshot_pool="limited_items",
        bos="always",
        boundary="joint",
        continuation_space="as_written",
        span=_SPAN[row.kind],
        truncation="keep_last",
        max_length=None,
        normalizer=MEAN,
        tie=FIRST,
        empty_span="nan_first_wins",
        categories="pooled",
    )


def _task(row: _CoreTask) -> Task:
    return Task(
        name=f"core/{row.label}",
        kind=row.kind,
        profile=_profile(row),
        file=DataFile(row.file, row.rows, row.git_blob_sha1),
        baselines={"random": 0.01 * row.baseline_v1, "human": None},
        parse=PARSE[row.kind],
        citation=CITATION,
    )


def task_of_rows(name: str, kind: str, num_fewshot: int, delimiter: str) -> Task:
    """A task by CORE's rules over rows of one's own.  Raises InputError."""
    if kind not in PARSE:
        raise InputError(f"{name}: type is {shown(kind)}, expected one of {', '.join(PARSE)}")
    task = _task(_CoreTask(name, kind, num_fewshot, delimiter, 0, 0, name, 0, ""))
    file = DataFile(name, None, None)
    baselines = {"random": None, "human": None}
    return replace(task, name=name, file=file, baselines=baselines, citation="")


def composites(measured: Mapping[str, Measured]) -> dict[str, Composite]:
    """CORE and CORE_v2 over all 22 tasks, CORE-18 over the 18 small ones; null if a task has no
    accuracy.

    CORE-soft is not published: the same mean of choice_prob_norm over the 13 tasks that choose.
    """
    accuracy_of = main_metrics(measured)
    soft = {name: score.means[SOFT] for name, score in measured.items() if SOFT in score.means}
    return {
        "CORE": _centered_mean(accuracy_of, BASELINES_V1),
        "CORE_v2": _centered_mean(accuracy_of, BASELINES_V2),
        "CORE-18": _centered_mean(accuracy_of, BASELINES_18),
        "CORE-soft": replace(_centered_mean(soft, BASELINES_SOFT), metric=SOFT),
    }


def _centered_mean(accuracy_of: Mapping[str, float], baselines: Mapping[str, float]) -> Composite:
    """Mean over the tasks of (accuracy - b) / (1 - b), not clipped: a task below its baseline
    counts negative."""
    missing = missing_of(baselines, accuracy_of)
    weights = {name: 1 / (1 - b) / len(baselines) for name, b in baselines.items()}
    if missing:
        return Composite(None, False, missing, weights)
    value = sum(weights[name] * (accuracy_of[name] - b) for name, b in baselines.items())
    return Composite(value, True, (), weights)


def locate(data_dir: Path | None, fetch: bool = True) -> Path:
    """The folder that holds the task files: in `data_dir`, or in the cache, where the bundle is
    fetched once."""
    folder = locate_files(data_dir, fetch, {row.file: row.git_blob_sha1 for row in _TABLE}, "CORE")
    table = (folder.parent if folder.name == "eval_data" else folder) / "core.yaml"
    if table.is_file():
        _check_table(table)
    return folder


class _YamlRow(NamedTuple):
    """The fields of a task in core.yaml, without has_categories: CORE pools jeopardy's
    categories."""

    file: object
    num_fewshot: object
    kind: object
    delimiter: object


def _check_table(path: Path) -> None:
    """Raises InputError if core.yaml differs from the table above, which alone decides how tasks
    are scored."""
    table = _read_table(path)
    expected = {
        row.label: _YamlRow(row.file, [row.num_fewshot], row.kind, row.delimiter) for row in _TABLE
    }
    for label in [*expected, *table]:
        if table.get(label) != expected.get(label):
            raise InputError(
                f"{path}: task {label!r} reads {_row_text(table.get(label))}, CORE has "
                f"{_row_text(expected.get(label))}: restore the published core.yaml or remove it"
            )


def _row_text(row: _YamlRow | None) -> str:
    if row is None:
        return "nothing"
    return ", ".join(f"{key} {shown(value)}" for key, value in row._asdict().items())


def _read_table(path: Path) -> dict[object, _YamlRow]:
    try:
        rows = {}
        for entry in parse_yaml(read_regular(path))["icl_tasks"]:
            rows[entry["label"]] = _YamlRow(
                entry["dataset_uri"],
                entry["num_fewshot"],
                entry["icl_task_type"],
                entry.get("continuation_delimiter", " "),
            )
        return rows
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: cannot be read as a list of tasks under 'icl_tasks' ({type(error).__name__}: "
            f"{error!s:.80}): restore the published core.yaml or remove it"
        ) from error


SUITE = Suite("core", tuple(map(_task, _TABLE)), composites, locate)
SUITES = (SUITE,)
